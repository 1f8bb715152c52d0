/*
 * The holds of the session, with their deadlines.
 */
#ifndef HOLDFAST_CLIENT_HOLD_H
#define HOLDFAST_CLIENT_HOLD_H

#include "proto/clients/c/client.h"
#include "proto/clients/c/holdfast.h"
#include "proto/clients/c/pending.h"

/* hold.c */

/* The claim of a hold at the broker of this connection. */
enum holdfast_claim {
    CLAIM_NONE,   /* the broker has confirmed the hold */
    CLAIM_NEEDED, /* the CLAIM is due at claim_due_ms */
    CLAIM_ASKED,
};

/*
 * A hold that the broker granted. It is in holdfast.holds from the OK of its
 * LOCK until it is released or lost, or the session ends. In a session that is
 * not kept its deadline ends it too.
 */
struct holdfast_kept {
    struct holdfast_kept *next; /* owned by the list */
    uint64_t request;           /* the first LOCK */
    char name[HOLDFAST_NAME_MAX + 1];
    char owner[HOLDFAST_OWNER_MAX + 1];
    uint64_t fence;
    uint64_t count;
    uint64_t releases; /* outstanding UNLOCKs */
    bool leased;
    bool wanted;     /* a LOCK of it had wanted=1 */
    bool upgrade;    /* it is above another hold, and before it in the list */
    bool given_up;   /* its deadline was reported */
    uint64_t ttl_ms; /* of the last answer */
    uint64_t granted_ms; /* when its OK arrived */
    uint64_t deadline_ms;
    /* The soonest end by a RENEW without an answer; UINT64_MAX: none. */
    uint64_t renew_end_ms;
    uint64_t renew_ttl_ms; /* of that RENEW */
    uint64_t confirming;   /* the last LOCK whose OK waits; 0: none */
    /* Owned: the OKs that wait, at one of the holds of their LOCKs. */
    struct holdfast_notice *deferred;
    enum holdfast_claim claim;
    uint64_t claim_due_ms;
};

/* Whether the hold has that name and owner ("": the default). */
bool holdfast_kept_is(
    const struct holdfast_kept *kept, const char *name, const char *owner);

/* The hold of that name, owner and fence, or NULL. `fence` 0: an upgrade, or
 * else the hold without one. */
struct holdfast_kept *holdfast_kept_find(const struct holdfast *h,
    const char *name, const char *owner, uint64_t fence);

/* The hold that a request of one name is about, or NULL. */
struct holdfast_kept *holdfast_kept_of(
    const struct holdfast *h, const struct holdfast_pending *pending);

/* Whether the program may rely on the hold. */
bool holdfast_kept_stands(const struct holdfast_kept *kept);

/* Whether the outstanding UNLOCKs release the hold. */
bool holdfast_kept_releasing(const struct holdfast_kept *kept);

/*
 * The OK of a LOCK: enters its holds. True: the OK may be reported now, or the
 * connection is closed. False: the holds own the notice until a broker confirms
 * them.
 */
bool holdfast_kept_grant(struct holdfast *h,
    const struct holdfast_pending *pending, struct holdfast_notice *notice);

/* The answer to an UNLOCK; `done`: it is OK. It may end the hold. */
void holdfast_kept_released(struct holdfast *h,
    const struct holdfast_pending *pending,
    const struct holdfast_message *message, bool done);

/* The OK to an UNLOCK of some permits: the hold stands, or these were all. */
void holdfast_kept_parted(struct holdfast *h,
    const struct holdfast_pending *pending,
    const struct holdfast_message *message);

/* A RENEW is sent. Until its answer the hold may have the new end, if that is
 * sooner (PROTOCOL.md 6.5). */
void holdfast_kept_renewing(
    struct holdfast *h, struct holdfast_pending *pending);

/* The deadline, also by the RENEWs without an answer. */
uint64_t holdfast_kept_deadline_ms(const struct holdfast_kept *kept);

/* The answer to a RENEW or NOTE; `done`: it is OK. The hold has another
 * deadline then. After some errors it may have one. */
void holdfast_kept_renewed(struct holdfast *h,
    const struct holdfast_pending *pending,
    const struct holdfast_message *message, bool done);

/* A LOST: its holds end. *request becomes the first LOCK of the last of them;
 * it is unchanged if there are none. */
void holdfast_kept_lost(struct holdfast *h,
    const struct holdfast_message *message, uint64_t *request);

/* Frees all holds, and the OKs that wait for them. */
void holdfast_kept_clear(struct holdfast *h);

/* Ends and frees one hold. The OKs that wait for it are reported before. */
void holdfast_kept_remove(struct holdfast *h, struct holdfast_kept *kept);

/* Reports the OKs that wait for the hold, also OKs of several holds. */
void holdfast_kept_tell(struct holdfast *h, struct holdfast_kept *kept);

/* An answer with `ttl_ms`, to a question that was sent at `base_ms`. */
void holdfast_kept_set(
    struct holdfast_kept *kept, uint64_t base_ms, uint64_t ttl_ms);

/* Reads ttl_ms=. False: it is absent or out of range. */
bool holdfast_ttl_read(
    const struct holdfast_message *message, uint64_t *ttl_ms);

/* Makes the next PING due at `when_ms` or earlier. */
void holdfast_kept_ask_by(struct holdfast *h, uint64_t when_ms);

/* The time in ms from an answer with `ttl_ms` to the next question. */
uint64_t holdfast_kept_pause_ms(const struct holdfast *h, uint64_t ttl_ms);

/* notice.c */

/* An event in the queue. */
struct holdfast_notice {
    struct holdfast_notice *next; /* owned by the queue */
    struct holdfast_event event;  /* refs into message and line */
    struct holdfast_message message;
    char line[]; /* the decoded line */
};

/* A notice with a copy of the line, not parsed. The caller owns it; NULL: no
 * memory. */
struct holdfast_notice *holdfast_notice_create(const char *line, size_t len);

/* Fills in the event from the message. The queue owns the notice. */
void holdfast_notice_push(struct holdfast *h, struct holdfast_notice *notice,
    enum holdfast_kind kind, uint64_t request);

/* Queues a line of the library. Without memory it sets h->no_memory, and the
 * turn closes the connection. */
void holdfast_notice_say(struct holdfast *h, enum holdfast_kind kind,
    uint64_t request, const char *line);

/* Takes the final answer to `request`. The event is valid until the next one is
 * taken. False: the queue has none. */
bool holdfast_notice_take(
    struct holdfast *h, uint64_t request, struct holdfast_event *event);

/* Removes the greeting from the queue, if it is there. */
void holdfast_notice_drop_hello(struct holdfast *h);

/* Frees the queue, and the last event taken. */
void holdfast_notice_clear(struct holdfast *h);

#endif

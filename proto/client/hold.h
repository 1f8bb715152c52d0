/*
 * Holds of the session, with their deadlines.
 */
#ifndef HOLDFAST_CLIENT_HOLD_H
#define HOLDFAST_CLIENT_HOLD_H

#include "proto/client/client.h"
#include "proto/client/message.h"
#include "proto/client/notice.h"
#include "proto/client/pending.h"

/* Where a hold stands with the broker of this connection. */
enum holdfast_claim {
    CLAIM_NONE,   /* it has confirmed the hold */
    CLAIM_NEEDED, /* it is to be asked at claim_due_ms */
    CLAIM_ASKED,
};

/*
 * A hold that the broker granted. It lives on holdfast.holds, from the OK of
 * its LOCK until it is given back or lost, or the session ends; and where the
 * session is not kept, until it is overdue.
 */
struct holdfast_kept {
    struct holdfast_kept *next; /* owned by the list */
    uint64_t request;           /* that took it first */
    char name[HOLDFAST_NAME_MAX + 1];
    char owner[HOLDFAST_OWNER_MAX + 1];
    uint64_t fence;
    uint64_t count;
    uint64_t releases; /* UNLOCKs outstanding */
    bool leased;
    bool given_up;       /* its deadline was told: nobody believes in it */
    uint64_t ttl_ms;     /* as last told */
    uint64_t granted_ms; /* when its OK arrived */
    uint64_t deadline_ms;
    uint64_t confirming; /* the last request whose OK waits for word; 0: none */
    struct holdfast_notice *deferred; /* owned; that OK and those before it, at
                                       * one of the holds that they are of */
    enum holdfast_claim claim;
    uint64_t claim_due_ms;
};

/* The hold of exactly that name and owner ("": the default), or NULL. */
struct holdfast_kept *holdfast_kept_find(
    const struct holdfast *h, const char *name, const char *owner);

/* Whether the user believes, or may, in the hold. */
bool holdfast_kept_stands(const struct holdfast_kept *kept);

/* Whether as many UNLOCKs are outstanding as the hold was entered. */
bool holdfast_kept_releasing(const struct holdfast_kept *kept);

/*
 * The OK of a LOCK: enters its holds. True: the OK may be told now, or the
 * connection is closed; false: the holds own the notice until a broker confirms
 * them.
 */
bool holdfast_kept_grant(struct holdfast *h,
    const struct holdfast_pending *pending, struct holdfast_notice *notice);

/* The answer to an UNLOCK; `done`: it is OK. It may end the hold. */
void holdfast_kept_released(struct holdfast *h,
    const struct holdfast_pending *pending,
    const struct holdfast_message *message, bool done);

/* The OK of a RENEW: the hold has another deadline. */
void holdfast_kept_renewed(struct holdfast *h,
    const struct holdfast_pending *pending,
    const struct holdfast_message *message);

/* A LOST: its holds end. *request: the one that took the last of them; as
 * before where the session has none of them. */
void holdfast_kept_lost(struct holdfast *h,
    const struct holdfast_message *message, uint64_t *request);

/* Frees all holds, and the OKs that wait for them, untold. */
void holdfast_kept_clear(struct holdfast *h);

/* Ends and frees one hold. The OKs that wait for it are told before. */
void holdfast_kept_remove(struct holdfast *h, struct holdfast_kept *kept);

/* Tells the OKs that wait for `kept`, also those of other holds. */
void holdfast_kept_tell(struct holdfast *h, struct holdfast_kept *kept);

/* The broker has promised `ttl_ms` in an answer to a question of `base_ms`. */
void holdfast_kept_set(
    struct holdfast_kept *kept, uint64_t base_ms, uint64_t ttl_ms);

/* Reads ttl_ms=; false: it lacks, or is out of range. */
bool holdfast_ttl_read(
    const struct holdfast_message *message, uint64_t *ttl_ms);

/* Has the broker asked no later than `when_ms`. */
void holdfast_kept_ask_by(struct holdfast *h, uint64_t when_ms);

/* How long after an answer of `ttl_ms` the next question is due, in ms. */
uint64_t holdfast_kept_pause_ms(const struct holdfast *h, uint64_t ttl_ms);

#endif

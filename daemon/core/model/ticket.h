/*
 * Tickets: one for each session, owner and lock, from the first LOCK to the
 * last trace in Redis. Requests queue at it, and the first is being served.
 *
 *              acquire             granted
 *     IDLE ------------> ASKING -------------> HELD
 *      ^ |                 | queued              |  \  UNLOCK, end of the
 *      | | nobody left     v          granted    |   \ session, deadline
 *      | +------> (gone)  WAITING ---------------+    \
 *      |                   | cancel, time-out          v
 *      +-------------------+----------------------> LEAVING
 *                     struck out of the record, or lease over
 */
#ifndef HOLDFAST_CORE_MODEL_TICKET_H
#define HOLDFAST_CORE_MODEL_TICKET_H

#include "daemon/base/log.h"
#include "daemon/base/slab.h"
#include "daemon/base/table.h"
#include "daemon/core/model/time.h"
#include "daemon/op/kind.h"
#include "proto/request.h"

enum ticket_state {
    TICKET_IDLE,    /* nothing in Redis; on its way to ASKING or away */
    TICKET_ASKING,  /* acquire is under way */
    TICKET_WAITING, /* stands in the queue */
    TICKET_HELD,
    TICKET_LEAVING, /* release is under way, or will be tried again */
};

/* The client's interest in the ticket. The last two are of ASKING. */
enum ticket_fate {
    FATE_WANTED,
    FATE_UNATTENDED, /* its connection ended; its LOCK may come again */
    FATE_ABANDONED,  /* a grant is released: nobody waits for it */
    FATE_FORGOTTEN,  /* the ticket ends: another broker goes on with it */
};

/* LEAVING, and IDLE after it: how the hold ended. */
enum ticket_ending {
    ENDING_CLEAN,   /* by UNLOCK or QUIT, or a wait has ended */
    ENDING_LATE,    /* by UNLOCK or QUIT, while its renewal was late */
    ENDING_UNCLEAN, /* otherwise, as by the client's death */
    ENDING_LOST,    /* LOST was sent; unclean, too */
};

/* HELD: an exclusive hold becomes a shared one, or gives permits back. */
enum ticket_downgrade {
    DOWNGRADE_NONE,
    DOWNGRADE_ASKED, /* so it is from now on; Redis has not confirmed it */
    DOWNGRADE_DONE,
};

/*
 * Legal together, as ticket_check() asserts:
 *            main_op  renew_op  fate        ending  downgrade, jeopardy, reborn
 *    IDLE    -        -         unattended  any     -
 *    ASKING  set      -         any         -       -
 *    WAITING -        any       unattended  -       -
 *    HELD    -        any       unattended  -       any
 *    LEAVING any      -         -           any     -
 *
 * A hold has a fence and no doubt. It is unattended, or has holds; no other
 * ticket has any. Its deadline is no later than the end of its lease=.
 */
struct ticket {
    struct slab_node node;
    enum ticket_state state;
    struct list session_link;
    struct list lock_link;
    struct list holder_link;
    struct list stir_link; /* in core->stirred */
    struct list age_link;  /* in core->ages; see ages.c */
    struct list wait_link; /* who->waits */
    struct table_node table;
    struct wheel_node timer;
    struct session *session; /* ref; NULL: it has ended */
    struct owner *who;       /* ref; NULL as the session */
    struct lock *lock;       /* ref, counted */
    struct list requests;    /* by ticket_link; the first is being served */
    struct handle main_op;   /* acquire or release under way */
    struct handle renew_op;
    uint64_t serial; /* grows; the order of creation */
    /* as in the record */
    uint8_t session_id[16];
    uint32_t generation;
    uint64_t owner_hash;
    uint32_t place;
    uint64_t arrival;
    uint64_t fence;
    struct ask ask;
    /* of a hold */
    uint32_t holds;       /* re-entries and the first */
    uint64_t hard_end_us; /* of lease=, NEVER: none */
    uint64_t stands_us;   /* others see that lease until then; NEVER: none */
    uint64_t detached_us; /* Redis may have it as detached until then; or 0 */
    uint64_t granted_us;
    uint64_t deadline_us; /* believed no longer than this */
    uint64_t foreign_us;  /* deadline that another broker may have told */
    uint64_t kept_us;     /* an idle intention ends then; 0: it is none */
    uint64_t jeopardy_us; /* when to warn; NEVER: has been done */
    uint64_t renew_us;    /* when to renew; NEVER: not again */
    struct handle wanted; /* its watch, with wanted=1; or NONE */
    /* of a wait */
    uint64_t waits_us;   /* when it began, at this broker */
    uint64_t heard_us;   /* when Redis last spoke of it */
    uint64_t settles_us; /* nobody is granted it before; 0: not so */
    uint64_t over_us;    /* ASKING, too: see op.h */
    uint64_t refresh_us;
    uint64_t probe_us; /* when to look for a deadlock; NEVER: not */
    uint32_t looked;   /* after so many, up to a few */
    uint32_t refused;  /* of late, for want of room, likewise */
    /* of leaving */
    uint64_t leave_until_us; /* by then its lease is over in any case */
    uint32_t delay_ms;       /* of the UNLOCK; LEAVING and IDLE */
    enum ticket_fate fate;
    enum ticket_ending ending;
    enum ticket_downgrade downgrade;
    bool doubt;     /* an answer was lost: it may have been granted, or freed */
    bool hinted;    /* ASKING, WAITING: a grant was told meanwhile */
    bool unheard;   /* WAITING: the last question got no answer */
    bool beyond;    /* at its grant more permits were out than the limit */
    bool note_due;  /* HELD: Redis has not confirmed the note */
    bool jeopardy;  /* HELD: JEOPARDY was sent */
    bool moving;    /* it was claimed, and Redis has not confirmed it */
    bool used;      /* any state: its request id has been used */
    bool reborn;    /* HELD: it was put again, and not claimed since */
    bool upgrade;   /* any state: it is exclusive, above another hold */
    bool part;      /* HELD: the names above have an intention for it */
    bool uprooted;  /* HELD: it was a part, and lost such an intention */
    bool called;    /* an intention: others wait, it must not be kept */
    bool stray;     /* put again without an answer: its number is not known */
    bool requeued;  /* it was gone, perhaps to a later connection's broker */
    uint32_t taken; /* that generation has it, elsewhere; 0: none */
    uint8_t owner_len;
    uint8_t client_len;
    uint8_t note_len;
    char owner[PROTO_OWNER_MAX];
    char client[PROTO_CLIENT_MAX]; /* the session's, when it asked */
    char note[PROTO_NOTE_MAX];
};

struct core;

/* The session's ticket for that lock and owner; NULL: there is none. */
struct ticket *ticket_find(const struct core *core,
    const struct session *session, const struct lock *lock, struct text owner);

/* The ticket of that lock and owner, created if need be. NULL: a limit forbids
 * it, which is counted and named in *limit. */
struct ticket *ticket_obtain(struct core *core, struct session *session,
    struct text name, struct text owner, const char **limit);

/* Cuts the ticket from its session. */
void ticket_detach(struct core *core, struct ticket *ticket);

/* Frees an IDLE ticket without requests. */
void ticket_free(struct core *core, struct ticket *ticket);

/* The owner's word, the client's name of the latest request, and the note. They
 * live as long as the ticket, or until ticket_set_note(). */
struct text ticket_owner(const struct ticket *ticket);
struct text ticket_client(const struct ticket *ticket);
struct text ticket_note(const struct ticket *ticket);

/* Logs an event of the ticket's life. `reason` may be NULL. */
void ticket_log(const struct ticket *ticket, enum log_level level,
    const char *event, const char *reason);

/* Time in ms that the client may count on without more from the broker. */
uint64_t ticket_ttl_ms(const struct core *core, const struct ticket *ticket);

/* Time in ms that the hold's client believes to be left of its lease=. */
uint64_t ticket_lease_ms(const struct core *core, const struct ticket *ticket);

/* Counts the deadline for PING: attended tickets, those with lease= apart. */
void ticket_count_deadline(const struct ticket *ticket);

/* Sets the deadline and counts it for PING. The caller arms the timer. */
void ticket_set_deadline(struct ticket *ticket, uint64_t deadline_us);

/* The request that is being served; and if the ticket's own operation answers
 * it; whether none is, or it waits for other names. NULL: none. */
struct request *ticket_request(const struct ticket *ticket);
struct request *ticket_asking(const struct ticket *ticket);
bool ticket_is_unserved(const struct ticket *ticket);

/* The holds that the client knows: none of an unfinished multi-lock, nor one
 * that is being detached. */
uint32_t ticket_known_holds(const struct ticket *ticket);

/* Whether renew_op is a reclaim. */
bool ticket_reclaims(const struct core *core, const struct ticket *ticket);

/* Asserts what is legal together. See struct ticket. */
void ticket_check(const struct ticket *ticket);

/* ASKING: nobody waits for the answer any more. */
void ticket_abandon(struct ticket *ticket);

/* Makes the transition with its counts and lists. The caller arms the timer. */
void ticket_set_state(
    struct core *core, struct ticket *ticket, enum ticket_state state);

/* Sets the ticket's timer to the soonest time of its state. */
void ticket_arm(struct core *core, struct ticket *ticket);

/* Creates an operation on the ticket's place in the record. NULL: no room. */
struct op *ticket_op(
    struct core *core, struct ticket *ticket, enum op_kind kind);

/* Takes the place and arrival that Redis has told. */
void ticket_stands(struct ticket *ticket, uint32_t place, uint64_t arrival);

/* Whether the ticket is queued, or waits for the broker to settle. */
bool ticket_is_patient(const struct ticket *ticket);

/* Advances the ticket at the end of a step that has room for its answers. The
 * tickets of a session that closes come late: after the others. */
void ticket_stir(struct core *core, struct ticket *ticket);
void ticket_stir_late(struct core *core, struct ticket *ticket);

/* Whether a later connection has it at another broker, which may put it. */
bool ticket_is_taken(const struct ticket *ticket);

/* Gives the ticket to another connection of its session. */
void ticket_rebind(
    struct core *core, struct ticket *ticket, struct session *session);

/* When the waiting ticket begins a search for a deadlock; NEVER: not. */
void ticket_probe_at(struct core *core, struct ticket *ticket, uint64_t at_us);

/* Until when Redis is waited for on behalf of the request being served. */
uint64_t request_deadline_us(
    const struct core *core, const struct request *request);

/* Adds the ticket's words to a question. */
void ticket_words(const struct ticket *ticket, struct op *op);

/* Sets the note of the ticket, cut to its room. */
void ticket_set_note(struct ticket *ticket, struct text note);

/* Takes over the client's name from the session. */
void ticket_set_client(struct ticket *ticket, const struct session *session);

/* Forgets what an IDLE ticket knew of Redis, to serve that session. */
void ticket_reset(struct ticket *ticket, const struct session *session);

#endif

/*
 * The core's own state, for the files of daemon/core only.
 *
 * A *session* is a client's connection. A *ticket* is the standing of one owner
 * of one session with one lock, from the first LOCK to the last trace of it in
 * Redis; there is at most one for each (session, owner, lock). A *pending*
 * request is one that has not had its final reply. Requests on one ticket take
 * effect in the order sent: they queue at it, and the first is being served.
 *
 *              acquire             granted
 *     IDLE ------------> ASKING -------------> HELD
 *      ^ |                 | queued              |  \  UNLOCK, end of the
 *      | | nobody left     v          granted    |   \ session, deadline
 *      | +------> (gone)  WAITING ---------------+    \
 *      |                   | cancel, time-out          v
 *      +-------------------+----------------------> LEAVING
 *                     struck out of the record, or lease over
 *
 * Who changes what: session.c sessions, lock.c locks, ticket.c tickets (and it
 * alone writes ticket->state), pending.c pending requests, command.c turns
 * request lines into calls of these, listing.c reads.
 */
#ifndef HOLDFAST_CORE_STATE_H
#define HOLDFAST_CORE_STATE_H

#include "daemon/base/random.h"
#include "daemon/base/slab.h"
#include "daemon/base/slot.h"
#include "daemon/base/table.h"
#include "daemon/base/wheel.h"
#include "daemon/core/core.h"
#include "proto/reply.h"
#include "proto/request.h"

#define NEVER WHEEL_NEVER

/* What a wheel node is part of. */
enum timer_kind {
    TIMER_SESSION,
    TIMER_TICKET,
    TIMER_PENDING,
    TIMER_LOCK,
};

enum session_state {
    SESSION_OPEN,
    SESSION_CLOSING, /* no more requests; ends when all have been answered */
};

struct session {
    struct slab_node node;
    enum session_state state;
    bool tcp;
    bool drained;   /* has been told of the broker's stop */
    bool ending;    /* on core->ending */
    uint8_t id[16]; /* secret */
    char short_id[9];
    char client[PROTO_CLIENT_MAX];
    uint8_t client_len;
    char peer[54];
    const char *bye; /* ref, static: why it closes */
    enum counter bye_counter;
    uint64_t opened_us;
    uint64_t heard_us;     /* of the last line */
    uint64_t heartbeat_us; /* 0: none */
    uint64_t ping_serial;
    struct wheel_node timer; /* heartbeat; stop */
    struct list tickets;     /* by session_link, oldest first */
    struct list pendings;    /* by session_link, oldest first */
    struct list ending_link;
    uint32_t ticket_count;
    uint32_t pending_count;
    uint32_t held;        /* tickets that are HELD */
    uint32_t waiting;     /* tickets that are WAITING */
    uint64_t least_us;    /* none of them has a sooner deadline */
    uint64_t least_at_us; /* when that was looked up */
};

struct lock {
    struct slab_node node;
    struct table_node table;
    struct wheel_node timer; /* when to ask Redis about it again */
    struct list tickets;     /* by lock_link, in order of arrival here */
    struct ticket *holder;   /* ref: the one of them that is HELD, or NULL */
    uint32_t waiting;        /* tickets that are WAITING */
    uint32_t refs;           /* tickets, operations, the timer */
    uint16_t slot;
    uint16_t name_len;
    char name[PROTO_NAME_MAX + 1];
};

enum ticket_state {
    TICKET_IDLE,    /* nothing in Redis; on its way to ASKING or away */
    TICKET_ASKING,  /* acquire is under way */
    TICKET_WAITING, /* stands in the queue */
    TICKET_HELD,
    TICKET_LEAVING, /* release is under way, or will be tried again */
};

struct ticket {
    struct slab_node node;
    enum ticket_state state;
    struct list session_link;
    struct list lock_link;
    struct table_node table;
    struct wheel_node timer;
    struct session *session; /* ref; NULL: it has ended */
    struct lock *lock;       /* ref, counted */
    struct list pendings;    /* by ticket_link; the first is being served */
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
    /* of a hold */
    uint32_t holds;       /* re-entries and the first */
    uint64_t hold_ms;     /* asked by lease=; 0: renewed as long as it lives */
    uint64_t hard_end_us; /* of lease=, NEVER: none */
    uint64_t granted_us;
    uint64_t deadline_us; /* believed no longer than this */
    uint64_t jeopardy_us; /* when to warn; NEVER: has been done */
    uint64_t renew_us;    /* when to renew; NEVER: not again */
    /* of a wait */
    uint64_t heard_us; /* when Redis last spoke of it */
    uint64_t refresh_us;
    /* of leaving */
    uint64_t leave_until_us; /* by then its lease is over in any case */
    bool abandoned;          /* ASKING: to be released when the answer comes */
    bool doubt;    /* an answer was lost: it may have been granted, or freed */
    bool hinted;   /* a grant was announced while a question was under way */
    bool unheard;  /* the last question got no answer */
    bool lost;     /* LEAVING after LOST was sent */
    bool jeopardy; /* JEOPARDY was sent */
    bool used;     /* its request id has been used */
    uint8_t owner_len;
    uint8_t client_len;
    uint8_t note_len;
    char owner[PROTO_OWNER_MAX];
    char client[PROTO_CLIENT_MAX]; /* the session's, when it asked */
    char note[PROTO_NOTE_MAX];
};

struct pending {
    struct slab_node node;
    struct list session_link;
    struct list ticket_link;
    struct table_node tag_table;
    struct wheel_node timer; /* wait= is over */
    struct session *session; /* ref */
    struct ticket *ticket;   /* ref; NULL: SHOW, HELD */
    enum command command;
    bool progress;
    bool asked; /* its own operation is under way */
    uint64_t began_us;
    uint64_t wait_us; /* NEVER: as long as it takes */
    uint64_t hold_ms; /* lease= */
    uint64_t fence;   /* fence=, 0: not given */
    uint64_t cursor;  /* HELD: serial of the last ticket shown */
    uint32_t shown;
    char tag[PROTO_TAG_MAX + 1];
    uint8_t note_len;
    char note[PROTO_NOTE_MAX];
};

struct core {
    struct core_settings settings;
    struct counters *counters; /* ref */
    struct effects *effects;   /* ref, during a step */
    uint64_t now_us;
    uint64_t awake_us; /* end of the last stall */
    struct slab sessions;
    struct slab locks;
    struct slab tickets;
    struct slab pendings;
    struct slab ops;
    struct table lock_table;   /* by name */
    struct table ticket_table; /* by session, owner, lock */
    struct table tag_table;    /* by session and tag */
    struct hash_key hash_key;
    struct random random;
    struct wheel wheel;
    struct list ending; /* sessions to look at when the step ends */
    uint64_t serial;
    uint32_t held;
    uint32_t waiting;
    bool stopping;
    uint64_t stop_us; /* NEVER; when grace is over; 0: it is */
    uint64_t fence_seen[SLOT_COUNT];
};

/* Milliseconds to microseconds, NEVER where it does not fit. */
static inline uint64_t
us_from_ms(uint64_t ms)
{
    return ms > NEVER / 1000 ? NEVER : ms * 1000;
}

/* a + b, NEVER where it does not fit. */
static inline uint64_t
us_add(uint64_t a, uint64_t b)
{
    return a > NEVER - b ? NEVER : a + b;
}

static inline uint64_t
us_min(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* From `low` to 1.1 times as much, so that many do not come together. */
uint64_t core_jitter(struct core *core, uint64_t low_us);

/* Hash of an owner's word or a session's id, the same at every broker. */
uint64_t core_public_hash(const void *bytes, size_t len);

/* answer.c: lines to a session; each call of _end sends one. */
struct reply answer_begin(struct core *core, const char *tag, const char *word);
struct reply answer_event(struct core *core, enum event_code event);
void answer_end(
    struct core *core, const struct session *session, struct reply *reply);
void answer_error(struct core *core, const struct session *session,
    const char *tag, enum error_code code, const char *why);
void answer_limit(struct core *core, const struct session *session,
    const char *tag, const char *limit);

/* session.c */
void session_open(struct core *core, struct core_event *event);
void session_hear(struct core *core, struct session *session);
void session_eof(struct core *core, struct session *session);
void session_close(struct core *core, struct session *session, const char *bye,
    enum counter counter);
void session_drop(
    struct core *core, struct session *session, enum counter counter);
void session_expel(
    struct core *core, struct session *session, enum core_expel why);
void session_check_end(struct core *core, struct session *session);
void session_end_all(struct core *core);
void session_timer(struct core *core, struct session *session);
void session_heartbeat(
    struct core *core, struct session *session, uint64_t heartbeat_us);
uint64_t session_silence_us(
    const struct core *core, const struct session *session);

/* lock.c */
struct lock *lock_find(const struct core *core, struct text name);
struct lock *lock_obtain(struct core *core, struct text name);
void lock_ref(struct lock *lock);
void lock_unref(struct core *core, struct lock *lock);
void lock_ask_at(struct core *core, struct lock *lock, uint64_t at_us);
void lock_timer(struct core *core, struct lock *lock);
void lock_refresh_waiters(struct core *core, struct lock *lock);
void lock_see_fence(struct core *core, const struct lock *lock, uint64_t fence);

/* ticket.c */
struct ticket *ticket_find(const struct core *core,
    const struct session *session, const struct lock *lock, struct text owner);
struct ticket *ticket_create(struct core *core, struct session *session,
    struct lock *lock, struct text owner);
void ticket_advance(struct core *core, struct ticket *ticket);
void ticket_cancel(struct core *core, struct ticket *ticket,
    struct pending *pending, enum error_code code, const char *why);
void ticket_orphan(struct core *core, struct ticket *ticket);
void ticket_session_closing(struct core *core, struct ticket *ticket);
void ticket_timer(struct core *core, struct ticket *ticket);
void ticket_wait_over(struct core *core, struct pending *pending);
void ticket_done(struct core *core, struct op *op);
void ticket_granted_by_the_way(
    struct core *core, const struct op_grant *grant, uint64_t sent_us);
void ticket_hint(struct core *core, uint64_t request);
void ticket_refresh(struct core *core, struct ticket *ticket);
void ticket_refresh_at(
    struct core *core, struct ticket *ticket, uint64_t at_us);
void ticket_stop(struct core *core, struct ticket *ticket);
uint64_t ticket_ttl_ms(const struct core *core, const struct ticket *ticket);
struct text ticket_owner(const struct ticket *ticket);
struct text ticket_note(const struct ticket *ticket);
struct text ticket_client(const struct ticket *ticket);

/* pending.c */
struct pending *pending_create(
    struct core *core, struct session *session, const struct request *request);
void pending_free(struct core *core, struct pending *pending);
void pending_error(struct core *core, struct pending *pending,
    enum error_code code, const char *why);
struct pending *pending_of_tag(
    const struct core *core, const struct session *session, const char *tag);

/* op.c */
struct op *op_create(struct core *core, enum op_kind kind, struct lock *lock,
    struct handle owner);
void op_submit(struct core *core, struct op *op);
void op_free(struct core *core, struct op *op);

/* command.c */
void command_line(
    struct core *core, struct session *session, char *line, size_t len);

/* listing.c */
void listing_show(
    struct core *core, struct session *session, const struct request *request);
void listing_show_done(struct core *core, struct op *op);
void listing_held(struct core *core, struct pending *pending);
void listing_locks(
    struct core *core, struct session *session, const struct request *request);
void listing_sessions(
    struct core *core, struct session *session, const struct request *request);
void listing_stats(
    struct core *core, struct session *session, const struct request *request);
void listing_help(
    struct core *core, struct session *session, const struct request *request);

#endif

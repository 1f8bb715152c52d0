/*
 * Requests without a final reply, and LOCKs of several names.
 */
#ifndef HOLDFAST_CORE_MODEL_REQUEST_H
#define HOLDFAST_CORE_MODEL_REQUEST_H

#include "daemon/base/slab.h"
#include "daemon/base/table.h"
#include "daemon/core/model/time.h"
#include "daemon/op/kind.h"
#include "proto/request.h"

/*
 * A request at its ticket. request_move() makes each move, and asserts that the
 * table allows it:
 *
 *     QUEUED <--> ASKED --> ENDED
 *
 * The request of a member that waits, or was had, is QUEUED.
 */
enum request_state {
    REQUEST_QUEUED, /* behind others, or without a ticket */
    REQUEST_ASKED,  /* its own operation is under way, or its wait */
    REQUEST_ENDED,  /* LOCK: is refused once Redis has nothing of it */
};

/* A request's part in a LOCK or UNLOCK of several names. */
enum member_state {
    MEMBER_NONE,  /* nothing: it is of its own */
    MEMBER_WAITS, /* for the names before it: nothing is asked yet */
    MEMBER_ASKS,
    MEMBER_HAD,      /* keeps its turn at the ticket until all are had */
    MEMBER_RELEASES, /* of an UNLOCK */
};

/* LOCK progress=1. */
enum request_progress {
    PROGRESS_NONE, /* not given */
    PROGRESS_WANTED,
    PROGRESS_TOLD, /* QUEUED was sent */
};

/* A name of a LOCK of several. */
struct multilock_member {
    uint16_t offset; /* in text */
    uint16_t len;
    bool intent;           /* not of the request, but above one of its names */
    uint32_t position;     /* in the request */
    struct handle request; /* the LOCK or UNLOCK of that name */
    struct handle ticket;  /* NONE: its hold was lost */
    uint64_t fence;        /* of its hold */
};

/* A LOCK or UNLOCK of several names that is under way; see multilock.c. */
struct multilock {
    struct slab_node node;
    struct handle parent; /* the request */
    uint32_t count;
    uint32_t names; /* without the intentions */
    uint32_t got;   /* so many of them, from the first, are had */
    unsigned ignored;
    /* of an UNLOCK */
    uint32_t unanswered;
    uint32_t released;
    uint32_t holds;  /* the most that are left of a name */
    uint32_t failed; /* place of the first that failed; `count`: none */
    enum error_code failure;
    struct multilock_member members[LOCK_NAMES_MAX];
    uint8_t owner_len;
    char owner[PROTO_OWNER_MAX];
    char text[PROTO_LINE_MAX];
};

struct request {
    struct slab_node node;
    struct list session_link;
    struct list ticket_link;
    struct table_node tag_table;
    struct wheel_node timer; /* wait= is over */
    struct session *session; /* ref */
    struct ticket *ticket;   /* ref; NULL: SHOW, HELD, one of several names */
    struct handle multilock; /* that it is, or is a part of */
    enum member_state member;
    struct handle watch; /* WATCH, AWAIT */
    struct lock *broken; /* ref, counted: BREAK; NULL: not yet */
    enum command command;
    enum request_progress progress;
    bool wanted;      /* wanted=1: the client wants to hear of waiters */
    bool presses;     /* wait=0: it waits a moment, as intentions may be idle */
    bool no_deadlock; /* deadlock=0, for good: its owner has other doings */
    bool denied;      /* its user has lost the right to it, in any state */
    enum request_state state;
    enum error_code end_code; /* ENDED: refused by that */
    const char *end_why;      /* ref, static; or NULL */
    uint64_t began_us;
    uint64_t wait_us; /* NEVER: as long as it takes */
    struct ask ask;   /* LOCK; RENEW: hold_ms; UNLOCK: delay_ms */
    uint64_t fence;   /* fence=, 0: not given */
    uint32_t holds;   /* CLAIM: count= */
    uint64_t cursor;  /* HELD: serial of the last ticket shown */
    uint32_t shown;
    char tag[PROTO_TAG_MAX + 1];
    uint8_t note_len;
    char note[PROTO_NOTE_MAX];
};

/* Whether the request is a member of a multi-lock that keeps its turn at its
 * ticket: neither it nor what is behind it can be served now. */
static inline bool
request_stands(const struct request *request)
{
    return request->member == MEMBER_WAITS || request->member == MEMBER_HAD;
}

struct core;

/* Makes the transition. */
void request_move(struct request *request, enum request_state state);

/* The session's request with that tag; NULL: there is none. */
struct request *request_of_tag(
    const struct core *core, const struct session *session, const char *tag);

/* Creates a request; the caller has checked its tag and the limits. NULL: there
 * is no room. */
struct request *request_create(struct core *core, struct session *session,
    const struct request_line *line);

/* Frees a request without an answer. The members of its multi-lock are freed
 * with it. */
void request_free(struct core *core, struct request *request);

/* Creates the request for one name of the multi-lock of `parent`. NULL: there
 * is no room. */
struct request *request_create_member(
    struct core *core, const struct request *parent);

/* Begins the turn of a member. Its wait= is what is left of `parent`'s. */
void request_begin_member(
    struct core *core, struct request *member, const struct request *parent);

/* The name of member `place`. */
struct text multilock_name(const struct multilock *multilock, uint32_t place);

/* The multi-lock that the request is, or is a member of; NULL: none. */
struct multilock *multilock_of(
    const struct core *core, const struct request *request);

/* The request of member `place`; NULL: it is gone. */
struct request *multilock_member(
    const struct core *core, const struct multilock *multilock, uint32_t place);

/* The hold that member `place` has; NULL: it is gone. */
struct ticket *multilock_hold(
    const struct core *core, const struct multilock *multilock, uint32_t place);

/* Keeps the members that were had, for a LOCK that may come again. */
void multilock_leave(struct core *core, struct multilock *multilock);

/* Frees the members. Requests behind them have their turn at the end of the
 * step. */
void multilock_drop_members(struct core *core, struct multilock *multilock);

/* Sets the request of the multi-lock and the name that it waits for. False:
 * `member` is no member. */
bool multilock_waits(const struct core *core, const struct request *member,
    const struct request **parent, struct text *name);

/* A member waits: requests behind the other members may have to be refused,
 * at the end of the step. Members only stand behind older requests, so this
 * ends. */
void multilock_stir(struct core *core, const struct request *asks);

#endif

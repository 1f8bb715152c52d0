/*
 * Locks, and watches of them.
 */
#ifndef HOLDFAST_CORE_MODEL_LOCK_H
#define HOLDFAST_CORE_MODEL_LOCK_H

#include "daemon/base/assert.h"
#include "daemon/base/slab.h"
#include "daemon/base/table.h"
#include "daemon/core/model/time.h"
#include "proto/request.h"

#define WATCH_PART      64     /* events of a session before it must read */
#define WATCH_TICKETS   512    /* that an inspection shows */
#define WATCH_RETRY_US  500000 /* while Redis cannot be asked */
#define WATCH_SHOWN_ALL ((UINT64_C(1) << 53) - 1) /* no arrival is later */
/* Other brokers of a quorum tell that they wait at least so often. */
#define WATCH_ELSEWHERE_US 3000000

/* The known state of a watched lock. */
struct lock_news {
    bool known;
    uint32_t holders;
    uint32_t waiters;
    uint64_t elsewhere_us; /* other brokers of a quorum wait until then */
    uint64_t at_us;        /* when it was inspected */
    bool unsettled;        /* an earlier holder may still report */
    uint64_t barred_us;    /* nobody is granted it sooner */
    uint64_t last_fence;   /* of the last grant that is known; 0: of none */
    uint64_t fence;        /* the newest holder's; 0: nobody holds it */
    uint64_t words_fence;  /* of the grant that has these words */
    bool detached;         /* the newest hold */
    uint32_t edition;      /* another one for another note */
    uint8_t client_len;
    uint8_t owner_len;
    uint8_t note_len;
    char client[PROTO_CLIENT_MAX];
    char owner[PROTO_OWNER_MAX];
    char note[PROTO_NOTE_MAX];
};

/* A watch and the inspections of its lock. An inspection that was sent before
 * the watch began does not count for it. */
enum watch_state {
    WATCH_NEW,   /* no inspection was sent since it began */
    WATCH_HEARS, /* the next answer counts */
    WATCH_DUE,   /* an answer has come, and its session has not been told */
};

enum watch_kind {
    WATCH_HOLDERS, /* WATCH: HELD and FREE */
    WATCH_MEMBERS, /* WATCH members=1: JOINED, CHANGED and LEFT */
    WATCH_WAITERS, /* of a hold with wanted=1: WANTED */
    WATCH_AWAIT,   /* AWAIT: it ends when nobody holds the lock */
};

struct core;
struct op_result;
struct watch;

/* The parts of WATCH_AWAIT. */
struct await_calls {
    /* An inspection counts for it. Returns WATCH_DUE if that answers it. */
    enum watch_state (*hears)(struct core *core, struct watch *watch);
    /* It goes on after that inspection: when is the next one due? */
    void (*again)(
        struct core *core, struct watch *watch, const struct op_result *result);
    /* It is due: answers and frees it. */
    void (*tell)(struct core *core, struct watch *watch);
};

/* A session that wants to hear of a lock. */
struct watch {
    struct slab_node node;
    struct session *session; /* ref */
    struct lock *lock;       /* ref, counted */
    struct list session_link;
    struct list lock_link;
    struct list news_link;
    struct handle request; /* the WATCH or AWAIT that is not answered yet */
    struct handle ticket;  /* WATCH_WAITERS: the hold */
    enum watch_kind kind;
    const struct await_calls *await; /* ref; WATCH_AWAIT */
    enum watch_state state;
    bool told; /* an event was sent, with these; AWAIT: it was inspected */
    uint32_t told_waiters; /* WATCH_WAITERS: of the last WANTED, or fewer */
    uint32_t told_holders;
    bool told_detached;
    uint32_t told_edition;
    uint64_t told_fence;
    uint64_t shown; /* WATCH_MEMBERS: holders up to this arrival were told */
    bool asks;      /* WATCH_MEMBERS: it wants the next page of them */
};

/* The holders of a lock with WATCH_MEMBERS, as far as they are known; see
 * members.c. */
struct members {
    uint32_t watched; /* such watches */
    uint32_t looks;   /* OP_LOOKs under way that ask for a page */
    bool again;       /* another one is wanted after them */
    bool known;       /* by a page, and no message was lost since */
    uint32_t count;
    uint32_t sum;     /* of fences */
    uint32_t history; /* of the node */
    uint64_t fence;   /* of the last grant */
};

struct inspection;

struct lock {
    struct slab_node node;
    struct table_node table;
    struct wheel_node timer; /* when to ask Redis about it again */
    bool all_waiters;        /* about all of our tickets that wait */
    uint64_t expiry_us;      /* a grant to another broker may lapse then */
    struct list tickets;     /* by lock_link, in order of arrival here */
    struct list holders;     /* by holder_link: those of them that are HELD */
    uint32_t waiting;        /* tickets that are WAITING */
    uint32_t waits;          /* tickets on a list of waits, see ages.c */
    uint32_t refs; /* tickets, operations, watches, the timer, the inspection */
    struct list watches;      /* by lock_link */
    uint32_t waiters_watched; /* watches of WATCH_WAITERS */
    uint32_t inspected;       /* watches that inspections are for */
    struct members members;
    struct wheel_node watch_timer;
    struct list tell_link;  /* not all who watch it have been told */
    struct handle watch_op; /* an inspection under way */
    struct inspection
        *inspection;  /* ref; NULL: none is wanted; see inspection_queue.c */
    bool watch_again; /* another one after it */
    struct lock_news news;
    uint16_t slot;
    uint8_t namespace; /* in core->namespaces, as at namespace_serial */
    uint32_t namespace_serial;
    uint16_t name_len;
    char name[PROTO_NAME_MAX + 1];
};

/* The lock of that name, without a reference; NULL: none is known. */
struct lock *lock_find(const struct core *core, struct text name);

/* The name of the lock; it lives as long as the lock. */
struct text lock_name(const struct lock *lock);

/* The lock of that name, created if need be, with a reference for the caller.
 * NULL: there is no room. */
struct lock *lock_obtain(struct core *core, struct text name);

/* Takes one more reference to the lock. */
static inline void
lock_ref(struct lock *lock)
{
    require(lock->refs > 0);
    lock->refs++;
}

/* Gives a reference back. The lock is gone with the last one. */
void lock_unref(struct core *core, struct lock *lock);

/* Remembers the largest fence that was seen in the lock's hash slot. */
void lock_see_fence(struct core *core, const struct lock *lock, uint64_t fence);

/* Redis will be asked about the lock at `at_us`, or sooner if that was set. */
void lock_ask_at(struct core *core, struct lock *lock, uint64_t at_us);

/* Asks about the lock once a grant to another broker has lapsed, should that
 * broker be gone. */
void lock_ask_after_expiry(struct core *core, struct lock *lock);

/* Asks about all waiters of the lock at once, but once for many calls: a lost
 * answer may have told of a grant. */
void lock_refresh_soon(struct core *core, struct lock *lock);

#endif

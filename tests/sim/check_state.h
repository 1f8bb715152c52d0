/*
 * Shared by the parts of the judge:
 *
 * - check.c: promises and excuses, fences, the resource
 * - check_belief.c: beliefs; check_detached.c: those in detached holds
 * - check_record.c: records; check_resize.c: limits of semaphores
 * - check_watch.c: messages to watchers
 * - check_circle.c: the waits-for graph
 */
#ifndef HOLDFAST_TESTS_SIM_CHECK_STATE_H
#define HOLDFAST_TESTS_SIM_CHECK_STATE_H

#include "daemon/op/kind.h"
#include "tests/sim/check.h"

#include <stdarg.h>

#define NONE        0
#define TOLD_KEPT   64 /* fences remembered of a lock, to see one told twice */
#define STAND_KEPT  2048 /* living tickets of a record: waiters_max, and more */
#define LIMIT_KEPT  16   /* limits that a lock had */
#define RESIZE_KEPT 256  /* RESIZEs of a lock */
#define BROKEN_KEPT 256  /* fences of holds that were taken away */
#define GIVEN_KEPT  32   /* detached holds that were given back */
#define WAITS_KEPT  64   /* changes of how many wait */
#define NOTED_KEPT  32   /* notes of holders of a lock that were told of late */

/* No promise of the topology covers it. */
#define CAUSE(fault) (1u << FAULT_##fault)
#define JUMPS        (CAUSE(clock_forward) | CAUSE(clock_back))
#define CLOCKS       (JUMPS | CAUSE(migrate)) /* between clocks that differ */
#define LOST         (CAUSE(failover) | CAUSE(wiped) | CAUSE(redis_restart))
#define LOSSES       (LOST | CLOCKS)
#define DAMAGES      (LOSSES | CAUSE(script_break))

struct belief {
    uint32_t lock;
    uint32_t next; /* of its lock's, or of the unused */
    uint64_t fence;
    uint64_t began_us;
    uint64_t until_us;
    const struct machine *machine; /* ref; NULL: nobody's */
    uint32_t serial;
    uint32_t limit;
    uint32_t permits; /* that it relies on */
    uint32_t most;    /* and may still have in a record */
    bool shared;
    bool upgradable;
    uint64_t below;    /* fence of the hold that it upgrades; 0: none */
    bool part;         /* tree=1: it fits those of names above */
    bool detached;     /* nobody's: it stands in Redis until then */
    uint64_t asked_us; /* a detached one */
    bool doubted;    /* somebody else believed while its process was stopped */
    enum fault doom; /* an order has taken it away; FAULT_COUNT: none */
    char who[16];
};

/* A living ticket. */
struct stand {
    uint64_t arrival;
    uint64_t fence;
    uint64_t ends_ms;
    uint64_t since_us;
    uint32_t generation;
    uint32_t permits;
    uint32_t owner; /* of check->owners */
    enum mode mode;
    bool granted;
    bool claimed;
    bool suspended;
    bool broken;
    bool detached;
    char request[8];
    char broker[8];
};

/* The version of a record that was written last. */
struct version {
    bool known;
    bool damaged; /* said already */
    bool pending; /* the machine has another id */
    char id[40];  /* that it is up to date with */
    uint64_t fence;
    uint64_t arrival;
    uint64_t delay_ms;  /* nobody is granted anything before */
    uint64_t forget_ms; /* when Redis forgets the key */
    uint64_t written_us;
    const struct machine *machine; /* ref; who has written it */
    uint32_t limit;
    uint32_t live; /* of them so many are in stands */
    uint32_t granted;
    uint32_t used;
    struct stand stands[STAND_KEPT]; /* in order of arrival; the last member */
};

/* The holders of a lock, as records said one after the other. */
struct holders {
    uint32_t first; /* in hold_ends */
    uint32_t count;
};

struct hold_end {
    uint64_t fence;
    uint64_t ends_ms;
};

struct told {
    uint64_t fence;
    char who[16];
};

/* A detached hold that was given back. */
struct given {
    uint64_t fence;
    uint64_t at_us;
};

struct noted {
    uint64_t fence;
    uint64_t note;
};

struct subject {
    uint32_t beliefs;
    uint32_t told_next;
    uint64_t told_highest;
    uint64_t told_us;   /* when the highest was told */
    uint64_t fell_from; /* the highest that was in a record, and is not */
    bool told_ahead;    /* by a clock that is ahead of another one */
    struct told told[TOLD_KEPT];
    uint64_t resource_fence; /* the highest that the resource has seen */
    uint64_t shared_fence;   /* of those who only read */
    uint64_t value;
    uint64_t value_us;
    char writer[16];
    struct version version;   /* without a quorum */
    struct version *nodes;    /* owned; where one does: each node's, or NULL */
    uint64_t astray_since_us; /* the clock of its lock-delay became another */
    uint64_t astray_until_us; /* so that it lasts until then */
    uint64_t delay_us;        /* nobody may be granted it before */
    uint64_t delay_fence;     /* that of the hold whose delay it is */
    uint64_t delay_stood_us;  /* when that stood for sure */
    char delayed_by[16];

    struct {
        uint32_t limit;
        uint64_t seen_us;
    } limits[LIMIT_KEPT];

    struct {
        uint32_t limit;
        uint64_t sent_us;
        uint64_t ended_us;  /* WORLD_NEVER: that is not known */
    } resizes[RESIZE_KEPT]; /* in turn */

    uint32_t resizes_next;
    bool ordered; /* an operator has broken holds of it, or will */
    uint64_t ordered_us;
    uint64_t broken[BROKEN_KEPT];
    uint32_t broken_next;
    struct given given[GIVEN_KEPT]; /* in turn */
    uint32_t given_next;
    struct noted noted[NOTED_KEPT]; /* in turn */
    uint64_t noted_floor;           /* the largest fence that was forgotten */
    uint32_t noted_next;

    struct {
        uint64_t sure_ms; /* until then none of them is over */
        uint32_t count;
    } waits[WAITS_KEPT]; /* in turn: how many have waited */

    uint32_t waits_next;
    struct holders *history; /* owned */
    uint32_t history_count;
    uint32_t history_capacity;
    struct hold_end *hold_ends; /* owned */
    uint32_t hold_end_count;
    uint32_t hold_end_capacity;
};

/* An owner of a session, with tickets or without. */
struct standing {
    uint8_t session[16];
    uint32_t word; /* 0: none */
    uint32_t next; /* of the same hash */
    uint32_t tickets;
    uint32_t waits;
    uint32_t visited; /* by the latest search */

    /* When its waits were last in a cycle, and the youngest of one. */
    struct {
        uint64_t circle_us;
        uint64_t youngest_us;
    } marks[PLAN_LOCKS_MAX]; /* of its wait for each lock */
};

#define OWNER_HASHES 1024

struct check {
    struct world *world; /* ref */
    uint32_t locks;
    struct subject *subjects; /* owned; one for each lock */
    struct belief *beliefs;   /* owned; [0] is none */
    uint32_t belief_count;
    uint32_t belief_capacity;
    uint32_t unused;
    uint32_t serial;         /* of beliefs */
    struct standing *owners; /* owned; [0] is none */
    uint32_t owner_count;
    uint32_t owner_capacity;
    uint32_t owner_table[OWNER_HASHES];
    uint32_t search;     /* serial of the latest one */
    uint64_t crowded_us; /* a lock had too many tickets to look for cycles */
    uint64_t excused_us[FAULT_COUNT]; /* latest; 0: never */
    uint64_t forgot_us;               /* a Redis has lost its data */
    bool clocks_set;                  /* those of Redis hosts may differ */
    struct check_totals totals;
};

/* check.c */
struct subject *subject_of(const struct check *check, uint32_t lock);

/* So long before that, less a lease: what happened then may still show. */
uint64_t lease_before(const struct check *check, uint64_t at_us);

/* As check_broken(), with other causes. */
void broken_by(struct check *check, enum promise promise, uint32_t causes,
    uint64_t since_us, const char *format, ...)
    __attribute__((format(printf, 5, 6)));

/* The latest of the causes since then; FAULT_COUNT: none. */
enum fault excuse_since(const struct check *check, enum promise promise,
    uint32_t causes, uint64_t since_us);

/* It is broken, and that cause is known to be the one. */
void excused_by(struct check *check, enum promise promise, enum fault cause,
    const char *what, uint32_t lock);

/* A record's last fence fell: grants may be below what was told until a clock
 * that is behind has caught up. */
void fence_fell(struct check *check, uint32_t lock, uint64_t from);

/* check_belief.c: an order has taken the hold of that fence away. */
void belief_doom(
    struct check *check, uint32_t lock, uint64_t fence, enum fault order);

/* A grant, though somebody's lock-delay may not be over. */
void delay_judge(
    struct check *check, uint32_t lock, uint64_t fence, uint64_t since_us);

/* A record has changed: holds of a semaphore have the permits that their
 * clients rely on, and no more than they were told. */
void permits_judge(
    struct check *check, uint32_t lock, const struct version *version);

/* check_resize.c: the most permits that may be out, of a semaphore with that
 * limit. RESIZE takes none from a holder. */
uint32_t limit_most(const struct check *check, uint32_t lock, uint32_t limit);

/* The largest limit that may have been in force since then: that one, or of a
 * RESIZE meanwhile. One call of a script may carry out several. */
uint32_t limit_since(const struct check *check, uint32_t lock, uint32_t limit,
    uint64_t since_us);

/* check_record.c: the version of that node of a quorum; NULL: there is none. */
struct version *check_node(
    const struct check *check, uint32_t lock, const struct machine *machine);
uint64_t check_clock_ms(const struct machine *machine);

/* check_detached.c: a record has changed. */
void detached_judge(struct check *check, uint32_t lock,
    const struct version *before, const struct version *version);

/* check_watch.c: a record has changed. */
void waits_note(const struct check *check, struct subject *subject,
    const struct version *version);
void holders_note(struct subject *subject, const struct version *version);

/* check_circle.c: the owner of a ticket; tickets come and go; a record has
 * changed. */
uint32_t owner_number(
    struct check *check, const uint8_t session[16], uint32_t word);
void circle_count(
    struct check *check, const struct version *version, int change);
void circle_look(struct check *check, uint32_t lock);

#endif

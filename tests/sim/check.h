/*
 * The judge: what everybody was told, believes and did, against what was
 * promised (DESIGN, section 2). He knows true time; nobody else does.
 *
 * A broken promise is a violation, unless a fault that the topology cannot
 * promise anything about (plan.h: from FAULT_FIRST_EXCUSE on) came shortly
 * before: then it is counted under that cause.
 */
#ifndef HOLDFAST_TESTS_SIM_CHECK_H
#define HOLDFAST_TESTS_SIM_CHECK_H

#include "tests/sim/world.h"

enum promise {
    PROMISE_EXCLUSION, /* two believers of a lock in true time */
    PROMISE_FENCE,     /* a grant's fence is not above all earlier ones */
    PROMISE_UPDATE,    /* a fenced update was lost */
    PROMISE_ORDER,     /* granted before somebody who stood before it */
    PROMISE_SERVED,    /* a waiter waits after all has healed */
    PROMISE_FREED,     /* a dead session's lock is not free in time */
    PROMISE_ANSWERED,  /* not exactly one final reply, or to whom? */
    PROMISE_STALE,     /* a stale fence changed something */
    PROMISE_TOLD,      /* a loss was told too late, or not at all */
    PROMISE_CLEAN,     /* something is left in tables, wheel or Redis */
    PROMISE_COUNT
};

extern const char *const promise_names[PROMISE_COUNT];

struct check *check_create(struct world *world, uint32_t locks);
void check_destroy(struct check **check);

/* A fault of the kind that excuses happened now. */
void check_excuse(struct check *check, enum fault cause);

/* Broken: noted, and counted as a violation or by its cause. `since_us`: causes
 * from then on count (true time). */
void check_broken(struct check *check, enum promise promise, uint64_t since_us,
    const char *format, ...) __attribute__((format(printf, 4, 5)));

/* A client was told of a grant and believes in it from now on. Returns a
 * belief's number, for the calls below. */
uint32_t check_believes(struct check *check, uint32_t lock, uint64_t fence,
    const char *who, uint64_t until_us);

/* Whose belief it is. A process that is stopped cannot be told of anything, and
 * does nothing either; so what overlaps meanwhile is judged when it runs again:
 * it must have been told by then. */
void check_process(
    struct check *check, uint32_t belief, const struct machine *machine);

/* Its deadline, in true time, is another now. */
void check_until(struct check *check, uint32_t belief, uint64_t until_us);

/* It does not believe any more: unlocked, told, disconnected, dead. */
void check_ends(struct check *check, uint32_t belief);

/* A fence was told in an OK of a new grant. */
void check_fence(
    struct check *check, uint32_t lock, uint64_t fence, const char *who);

/* The highest fence told of a lock so far. An OK may be overtaken by that of a
 * later grant; so who asks remembers this when it sends its LOCK, and its own
 * fence must be above it. */
uint64_t check_fence_told(const struct check *check, uint32_t lock);
void check_fence_above(struct check *check, uint32_t lock, uint64_t fence,
    uint64_t floor, const char *who);

/* The resource behind a lock: reads and writes carry the fence; false: refused
 * as stale. A write says what was read. */
bool check_read(
    struct check *check, uint32_t lock, uint64_t fence, uint64_t *value);
bool check_write(struct check *check, uint32_t lock, uint64_t fence,
    uint64_t read, const char *who);

/* A Redis has written a lock's record: order, prefix, counts are looked at. */
void check_record(struct check *check, const char *key, size_t key_len,
    const char *value, size_t value_len);

struct check_totals {
    uint64_t grants;
    uint64_t updates;
    uint64_t refused; /* stale writes */
    uint64_t violations;
    uint64_t by_promise[PROMISE_COUNT];
    uint64_t excused[FAULT_COUNT];
};
const struct check_totals *check_totals(const struct check *check);

#endif

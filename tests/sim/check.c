/*
 * The judge: broken promises and their excuses, fences, updates. See check.h.
 *
 * He is told of everything in the order of true time and never acts on it.
 */
#include "tests/sim/check_state.h"

#include "tests/sim/server.h"

#include "daemon/base/assert.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A record begins so far ahead of the clock: FENCE_JUMP of lua/call.lua. */
#define FENCE_JUMP_US 10000000

const char *const promise_names[PROMISE_COUNT] = {
    [PROMISE_EXCLUSION] = "exclusion",
    [PROMISE_FENCE] = "fence",
    [PROMISE_UPDATE] = "update",
    [PROMISE_ORDER] = "order",
    [PROMISE_SERVED] = "served",
    [PROMISE_FREED] = "freed",
    [PROMISE_ANSWERED] = "answered",
    [PROMISE_STALE] = "stale",
    [PROMISE_TOLD] = "told",
    [PROMISE_CLEAN] = "clean",
    [PROMISE_KEPT] = "kept",
    [PROMISE_DELAY] = "delay",
    [PROMISE_DEADLOCK] = "deadlock",
    [PROMISE_WATCH] = "watch",
    [PROMISE_TRUST] = "trust",
    [PROMISE_AUDIT] = "audit",
};

const char *const deed_names[DEED_COUNT] = {
    [DEED_EXCLUSIVE] = "exclusive",
    [DEED_SHARED] = "shared",
    [DEED_SEMAPHORE] = "semaphore",
    [DEED_TREE] = "tree",
    [DEED_DETACHED] = "detached",
    [DEED_PROLONGED] = "prolonged",
    [DEED_GIVEN_BACK] = "given_back",
    [DEED_PART] = "parts",
    [DEED_RESIZED] = "resized",
    [DEED_AWAITED] = "awaited",
    [DEED_WANTED] = "wanted",
    [DEED_SEVERAL] = "several",
    [DEED_DOWNGRADE] = "downgraded",
    [DEED_UPGRADE] = "upgraded",
    [DEED_RESUME] = "resumed",
    [DEED_CLAIM] = "claimed",
    [DEED_AGAIN] = "put_again",
    [DEED_WATCH] = "watched",
    [DEED_MEMBER] = "members",
    [DEED_DEADLOCK] = "deadlocks",
    [DEED_CONFLICT] = "conflicts",
    [DEED_BROKEN] = "broken",
    [DEED_FOUND] = "found",
};

_Static_assert(FAULT_COUNT <= 32, "causes are bits of a word");

/* The causes that excuse each promise; a fence is to survive a failover, and
 * that data are lost. */
static const uint32_t excuses[PROMISE_COUNT] = {
    [PROMISE_EXCLUSION] = (DAMAGES & ~CAUSE(redis_restart)) | CAUSE(cut),
    [PROMISE_FENCE] = CAUSE(script_break) | CAUSE(redis_stop),
    [PROMISE_UPDATE] = CAUSE(script_break) | CLOCKS | CAUSE(broker_clock),
    [PROMISE_ORDER] = DAMAGES,
    [PROMISE_SERVED] = DAMAGES,
    [PROMISE_FREED] = DAMAGES,
    [PROMISE_TOLD] = LOSSES | CAUSE(script_break),
    [PROMISE_CLEAN] = DAMAGES,
    [PROMISE_KEPT] = DAMAGES,
    [PROMISE_DELAY] = DAMAGES,
    [PROMISE_DEADLOCK] = DAMAGES,
    [PROMISE_WATCH] = DAMAGES | CAUSE(redis_stop),
};

struct check *
check_create(struct world *world, uint32_t locks)
{
    struct check *check = calloc(1, sizeof(*check));

    require(check != NULL);
    check->world = world;
    check->locks = locks;
    check->subjects = calloc(locks, sizeof(*check->subjects));
    check->belief_capacity = 64;
    check->belief_count = 1;
    check->beliefs = calloc(check->belief_capacity, sizeof(*check->beliefs));
    check->owner_capacity = 64;
    check->owner_count = 1;
    check->owners = calloc(check->owner_capacity, sizeof(*check->owners));
    require(check->subjects != NULL && check->beliefs != NULL &&
            check->owners != NULL);
    return check;
}

void
check_destroy(struct check **check)
{
    if (*check == NULL)
        return;
    for (uint32_t i = 0; i < (*check)->locks; i++) {
        free((*check)->subjects[i].nodes);
        free((*check)->subjects[i].history);
        free((*check)->subjects[i].hold_ends);
    }
    free((*check)->subjects);
    free((*check)->beliefs);
    free((*check)->owners);
    free(*check);
    *check = NULL;
}

const struct check_totals *
check_totals(const struct check *check)
{
    return &check->totals;
}

struct subject *
subject_of(const struct check *check, uint32_t lock)
{
    require(lock < check->locks);
    return &check->subjects[lock];
}

/* --- broken promises ------------------------------------------------------ */

void
check_excuse(struct check *check, enum fault cause)
{
    check->excused_us[cause] = check->world->now_us;
    /* The half-done work of a script stays so, and so does a clock. */
    if (cause == FAULT_script_break || cause == FAULT_broker_clock)
        check->excused_us[cause] = WORLD_NEVER;
}

/* A client that has lost a lock by a fault knows it by then: its lease is over.
 */
static bool
excuse_stands(const struct check *check, enum promise promise, uint64_t at_us)
{
    uint64_t lease_us = (uint64_t)check->world->plan.lease_ms * 1000;

    return promise != PROMISE_EXCLUSION || at_us == WORLD_NEVER ||
           check->world->now_us <= at_us + 2 * lease_us + 2000000;
}

enum fault
excuse_since(const struct check *check, enum promise promise, uint32_t causes,
    uint64_t since_us)
{
    enum fault found = FAULT_COUNT;
    uint64_t latest_us = 0;

    for (unsigned i = 0; i < FAULT_COUNT; i++) {
        uint64_t at_us = check->excused_us[i];
        if ((causes >> i & 1) != 0 && at_us > 0 && at_us >= since_us &&
            at_us >= latest_us && excuse_stands(check, promise, at_us)) {
            latest_us = at_us;
            found = (enum fault)i;
        }
    }
    return found;
}

static void broken(struct check *check, enum promise promise, uint32_t causes,
    uint64_t since_us, const char *format, va_list args)
    __attribute__((format(printf, 5, 0)));

static void
broken(struct check *check, enum promise promise, uint32_t causes,
    uint64_t since_us, const char *format, va_list args)
{
    char what[300];
    enum fault cause = excuse_since(check, promise, causes, since_us);

    int len = vsnprintf(what, sizeof(what), format, args);
    require(len >= 0);
    if (cause != FAULT_COUNT) {
        check->totals.excused[cause]++;
        check->totals.overlaps += promise == PROMISE_EXCLUSION;
        world_note(check->world, "judge", "excused by %s: %s: %s",
            fault_names[cause], promise_names[promise], what);
        return;
    }
    check->totals.violations++;
    check->totals.by_promise[promise]++;
    world_note(check->world, "judge", "VIOLATION %s: %s",
        promise_names[promise], what);
}

/* In strict no failover makes two believe. */
static uint32_t
excuses_of(const struct check *check, enum promise promise)
{
    if (promise == PROMISE_EXCLUSION && check->world->plan.strict)
        return excuses[promise] & ~CAUSE(failover);
    return excuses[promise];
}

void
check_broken(struct check *check, enum promise promise, uint64_t since_us,
    const char *format, ...)
{
    va_list args;

    va_start(args, format);
    broken(check, promise, excuses_of(check, promise), since_us, format, args);
    va_end(args);
}

void
check_violated(
    struct check *check, enum promise promise, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    broken(check, promise, 0, 0, format, args);
    va_end(args);
}

void
broken_by(struct check *check, enum promise promise, uint32_t causes,
    uint64_t since_us, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    broken(check, promise, causes, since_us, format, args);
    va_end(args);
}

void
excused_by(struct check *check, enum promise promise, enum fault cause,
    const char *what, uint32_t lock)
{
    check->totals.excused[cause]++;
    world_note(check->world, "judge", "excused by %s: %s: %s of lock-%" PRIu32,
        fault_names[cause], promise_names[promise], what, lock);
}

uint64_t
lease_before(const struct check *check, uint64_t at_us)
{
    uint64_t lease_us = (uint64_t)check->world->plan.lease_ms * 1000;

    return at_us > lease_us ? at_us - lease_us : 0;
}

bool
check_was_replaced(const struct check *check, uint64_t since_us)
{
    uint64_t at_us = check->excused_us[FAULT_failover];

    return at_us > 0 && at_us >= lease_before(check, since_us);
}

void
check_deed(struct check *check, enum deed deed)
{
    check->totals.deeds[deed]++;
}

/* --- fences --------------------------------------------------------------- */

uint64_t
check_fence_told(const struct check *check, uint32_t lock)
{
    return subject_of(check, lock)->told_highest;
}

/* Of "c12.1" and "c12.3", tasks of one client. */
static bool
same_client(const char *a, const char *b)
{
    size_t len = strcspn(a, ".");

    return strcspn(b, ".") == len && memcmp(a, b, len) == 0;
}

/* Whether that clock would not have begun with it yet. */
static bool
fence_is_ahead(uint64_t fence, const struct machine *machine)
{
    return fence > machine_real_us(machine) + FENCE_JUMP_US;
}

/* Since when a clock of Redis may be why a fence is too small. A fence that was
 * further ahead of the clock than a beginning is so by an earlier fault. */
static uint64_t
fence_since(const struct check *check, const struct subject *subject)
{
    const struct version *version = &subject->version;

    if (subject->told_ahead ||
        (version->known &&
            fence_is_ahead(subject->told_highest, version->machine)))
        return 0;
    return lease_before(check, subject->told_us);
}

/* After a loss of data fences grow by the clock alone. They do not if the clock
 * of another host is behind by more than has passed since (guarantees.md, G2).
 * So it is after a failover that lost the grant, if the broker that knew of it
 * was killed. */
static bool
fence_is_behind(const struct check *check, const struct subject *subject)
{
    uint64_t since_us = lease_before(check, subject->told_us);
    const struct plan *plan = &check->world->plan;
    bool forgot = plan->fault_weight[FAULT_broker_kill] > 0 &&
                  check->excused_us[FAULT_failover] > since_us;
    bool lost = check->excused_us[FAULT_wiped] > since_us ||
                check->excused_us[FAULT_redis_restart] > since_us || forgot;
    bool apart = plan->skew_us > 0 ||
                 plan->fault_weight[FAULT_clock_forward] > 0 ||
                 plan->fault_weight[FAULT_clock_back] > 0;

    return lost && apart && fence_since(check, subject) == 0;
}

void
fence_fell(struct check *check, uint32_t lock, uint64_t from)
{
    struct subject *subject = subject_of(check, lock);

    if (subject->fell_from < from)
        subject->fell_from = from;
    if (fence_is_behind(check, subject))
        subject->told_ahead = true;
}

/* Otherwise it is broken. */
static void fence_broken(struct check *check, uint32_t lock, const char *format,
    ...) __attribute__((format(printf, 3, 4)));

static void
fence_broken(struct check *check, uint32_t lock, const char *format, ...)
{
    struct subject *subject = subject_of(check, lock);
    va_list args;

    if (fence_is_behind(check, subject)) {
        excused_by(check, PROMISE_FENCE, FAULT_wiped, "a clock behind", lock);
        subject->told_ahead = true; /* until it has been caught up with */
        return;
    }
    va_start(args, format);
    broken(check, PROMISE_FENCE, excuses[PROMISE_FENCE],
        fence_since(check, subject), format, args);
    va_end(args);
}

static bool
quorum_is_behind(const struct check *check, uint64_t fence)
{
    struct world *world = check->world;

    for (uint32_t i = 0; world->plan.quorum != 0 && i < world->plan.masters;
         i++)
        if (fence_is_ahead(fence, server_machine(world, i)))
            return true;
    return false;
}

void
check_fence(struct check *check, uint32_t lock, uint64_t fence, const char *who,
    bool again)
{
    struct subject *subject = subject_of(check, lock);

    check->totals.grants++;
    for (uint32_t i = 0; i < TOLD_KEPT; i++)
        if (subject->told[i].fence == fence &&
            !(again && same_client(subject->told[i].who, who)))
            fence_broken(check, lock,
                "lock-%" PRIu32 ": fence %" PRIu64
                " is told to %s, and was told before",
                lock, fence, who);
    /* A client that asked before the others were told does not show it, but its
     * followers may. */
    if (fence < subject->told_highest && fence_is_behind(check, subject))
        subject->told_ahead = true;
    /* Elsewhere it is looked at where the record says it. */
    if (check->world->plan.quorum != 0 && !again)
        delay_judge(check, lock, fence, lease_before(check, subject->told_us));
    struct told *told = &subject->told[subject->told_next++ % TOLD_KEPT];
    told->fence = fence;
    snprintf(told->who, sizeof(told->who), "%s", who);
    if (fence > subject->told_highest) {
        subject->told_highest = fence;
        subject->told_us = check->world->now_us;
        subject->told_ahead = quorum_is_behind(check, fence);
    }
}

void
check_fence_above(struct check *check, uint32_t lock, uint64_t fence,
    uint64_t floor, const char *who)
{
    if (fence <= floor)
        fence_broken(check, lock,
            "lock-%" PRIu32 ": %s is told fence %" PRIu64
            ", and when it asked, %" PRIu64 " had been told",
            lock, who, fence, floor);
}

/* --- the resource behind a lock ------------------------------------------- */

/* Whether the resource lets somebody in who is alone, with that fence. */
static bool
resource_admits(struct subject *subject, uint64_t fence)
{
    if (fence < subject->resource_fence || fence < subject->shared_fence)
        return false;
    subject->resource_fence = fence;
    return true;
}

bool
check_read(struct check *check, uint32_t lock, uint64_t fence, bool shared,
    uint64_t *value)
{
    struct subject *subject = subject_of(check, lock);

    if (shared ? fence < subject->resource_fence
               : !resource_admits(subject, fence)) {
        check->totals.refused++;
        return false;
    }
    if (shared && fence > subject->shared_fence)
        subject->shared_fence = fence;
    *value = subject->value;
    return true;
}

void
check_same(struct check *check, uint32_t belief, uint64_t value)
{
    require(belief > 0 && belief < check->belief_count);
    const struct belief *own = &check->beliefs[belief];
    const struct subject *subject = subject_of(check, own->lock);

    if (subject->value == value)
        return;
    if (own->doom != FAULT_COUNT)
        excused_by(check, PROMISE_EXCLUSION, own->doom, "a reader", own->lock);
    else
        check_broken(check, PROMISE_EXCLUSION,
            lease_before(check, subject->value_us),
            "lock-%" PRIu32 ": %s shares it and had read %" PRIu64
            ", and %s has made it %" PRIu64,
            own->lock, own->who, value, subject->writer, subject->value);
}

bool
check_write(struct check *check, uint32_t lock, uint64_t fence, uint64_t read,
    const char *who)
{
    struct subject *subject = subject_of(check, lock);

    if (!resource_admits(subject, fence)) {
        check->totals.refused++;
        return false;
    }
    if (subject->value != read)
        check_broken(check, PROMISE_UPDATE,
            lease_before(check, subject->value_us),
            "lock-%" PRIu32 ": %s with fence %" PRIu64 " had read %" PRIu64
            ", and %s has made it %" PRIu64,
            lock, who, fence, read, subject->writer, subject->value);
    subject->value++;
    subject->value_us = check->world->now_us;
    snprintf(subject->writer, sizeof(subject->writer), "%s", who);
    check->totals.updates++;
    return true;
}

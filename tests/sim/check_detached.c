/*
 * Detached holds (PROTOCOL.md, 3.4) against what the records have. A belief in
 * one is nobody's: it stands from the OK until its told end, or until somebody
 * sends the UNLOCK. Meanwhile the record, of a quorum a majority, has it, to
 * that end or longer. A fault may take it away. This is excused once. From then
 * on others may believe.
 */
#include "tests/sim/check_state.h"
#include "tests/sim/server.h"

#include "daemon/base/assert.h"

#include <inttypes.h>

/* By a record's milliseconds, and by clocks that do not run alike. */
#define ENDS_US 2000

void
check_clock_set(struct check *check)
{
    check->clocks_set = true;
}

/* An order may be carried out so long after it was sent. A broker that was
 * stopped does so when it runs again. */
static uint64_t
order_us(const struct check *check)
{
    const struct plan *plan = &check->world->plan;
    uint64_t us = (uint64_t)plan->redis_timeout_ms * 2000 + 10000000;

    return plan->fault_weight[FAULT_broker_stop] > 0 ? us + plan->run_us : us;
}

/* Why it may be gone; FAULT_COUNT: it may not. A strict failover keeps what was
 * told (guarantees.md, G11). A Redis without its data does not, and another
 * clock ends it at another time. */
static enum fault
detached_excuse(const struct check *check, uint32_t lock, uint64_t since_us)
{
    const struct subject *subject = subject_of(check, lock);
    const struct plan *plan = &check->world->plan;
    uint64_t from_us = lease_before(check, since_us);
    uint64_t age_us = check->world->now_us - since_us + order_us(check);
    bool strict = plan->strict && plan->skew_us == 0 && !check->clocks_set &&
                  check->forgot_us < from_us;

    if (subject->ordered && subject->ordered_us + order_us(check) >= since_us)
        return FAULT_order_break;
    if (plan->break_ms > 0 && age_us >= (uint64_t)plan->break_ms * 1000)
        return FAULT_order_break;
    return excuse_since(
        check, PROMISE_KEPT, strict ? DAMAGES & ~LOST : DAMAGES, from_us);
}

/* True: it is excused. */
static bool
detached_broken(struct check *check, uint32_t lock, uint64_t fence,
    uint64_t since_us, const char *who, const char *what)
{
    enum fault cause = detached_excuse(check, lock, since_us);

    if (cause == FAULT_COUNT)
        check_violated(check, PROMISE_KEPT,
            "lock-%" PRIu32 ": the detached hold of fence %" PRIu64
            ", which %s took, %s",
            lock, fence, who, what);
    else
        excused_by(check, PROMISE_KEPT, cause, "a detached hold", lock);
    return cause != FAULT_COUNT;
}

static const struct stand *
stand_of_fence(const struct version *version, uint64_t fence)
{
    for (uint32_t i = 0; i < version->live; i++)
        if (version->stands[i].granted && version->stands[i].fence == fence)
            return &version->stands[i];
    return NULL;
}

/* The fault of the hold in that record; NULL: none. */
static const char *
detached_wrong(const struct check *check, const struct version *version,
    const struct belief *belief)
{
    const struct stand *stand = stand_of_fence(version, belief->fence);
    uint64_t left_us = belief->until_us - check->world->now_us;

    if (stand == NULL)
        return "is gone before its end";
    if (!stand->detached)
        return "is not detached any more";
    if (version->machine != NULL &&
        stand->ends_ms * 1000 + ENDS_US <
            machine_real_us(version->machine) + left_us)
        return "ends sooner than was told";
    return NULL;
}

/* In `version`, which is new; in a quorum, at a majority. */
static const char *
detached_wrong_now(const struct check *check, uint32_t lock,
    const struct version *version, const struct belief *belief)
{
    const struct subject *subject = subject_of(check, lock);
    const char *wrong = detached_wrong(check, version, belief);
    uint32_t masters = check->world->plan.masters;
    uint32_t good = 0;

    if (wrong == NULL || check->world->plan.quorum == 0)
        return wrong;
    for (uint32_t i = 0; i < masters; i++)
        good += subject->nodes[i].machine != version->machine &&
                subject->nodes[i].known &&
                detached_wrong(check, &subject->nodes[i], belief) == NULL;
    return good > masters / 2 ? NULL : wrong;
}

/* Those that were given back, and are there again. A quorum's minority keeps
 * one that it was not told of. */
static void
given_judge(struct check *check, uint32_t lock, const struct version *version)
{
    struct subject *subject = subject_of(check, lock);

    if (check->world->plan.quorum != 0)
        return;
    for (uint32_t i = 0; i < GIVEN_KEPT; i++) {
        struct given *given = &subject->given[i];
        if (given->fence == 0 || stand_of_fence(version, given->fence) == NULL)
            continue;
        broken_by(check, PROMISE_FREED, DAMAGES,
            lease_before(check, given->at_us),
            "lock-%" PRIu32 ": the detached hold of fence %" PRIu64
            " was given back, and stands",
            lock, given->fence);
        given->fence = 0;
    }
}

/* A BREAK ends a detached hold at once; no record shows that it is broken. */
static void
broken_note(struct check *check, uint32_t lock, const struct version *before,
    const struct version *version)
{
    if (!subject_of(check, lock)->ordered && check->world->plan.break_ms == 0)
        return;
    for (uint32_t i = 0; i < before->live; i++) {
        const struct stand *was = &before->stands[i];
        if (was->detached && stand_of_fence(version, was->fence) == NULL &&
            !check_is_broken(check, lock, was->fence))
            belief_doom(check, lock, was->fence, FAULT_order_break);
    }
}

void
detached_judge(struct check *check, uint32_t lock, const struct version *before,
    const struct version *version)
{
    uint64_t now_us = check->world->now_us;

    for (uint32_t at = subject_of(check, lock)->beliefs; at != NONE;
         at = check->beliefs[at].next) {
        struct belief *belief = &check->beliefs[at];
        if (!belief->detached || belief->until_us <= now_us ||
            belief->doom != FAULT_COUNT)
            continue;
        const char *wrong = detached_wrong_now(check, lock, version, belief);
        if (wrong == NULL)
            continue;
        if (detached_broken(check, lock, belief->fence, belief->asked_us,
                belief->who, wrong))
            belief->doom = detached_excuse(check, lock, belief->asked_us);
        else
            belief->until_us = now_us;
    }
    given_judge(check, lock, version);
    broken_note(check, lock, before, version);
}

void
check_given_back(
    struct check *check, uint32_t lock, uint64_t fence, const char *who)
{
    struct subject *subject = subject_of(check, lock);

    check_deed(check, DEED_GIVEN_BACK);
    for (uint32_t i = 0; i < GIVEN_KEPT; i++)
        if (subject->given[i].fence == fence && check->world->plan.quorum == 0)
            broken_by(check, PROMISE_STALE, DAMAGES,
                lease_before(check, subject->given[i].at_us),
                "lock-%" PRIu32 ": %s gives fence %" PRIu64
                " back, and it was given back before",
                lock, who, fence);
    subject->given[subject->given_next++ % GIVEN_KEPT] =
        (struct given){fence, check->world->now_us};
}

/* A broker may be left with a master that was replaced: what it answers about
 * detached holds is not so at the next one. */
static bool
answer_is_astray(struct check *check, enum promise promise, uint32_t lock)
{
    if (!servers_replaced(check->world))
        return false;
    excused_by(check, promise, FAULT_failover, "a detached hold", lock);
    return true;
}

void
check_missing(struct check *check, uint32_t lock, uint64_t fence,
    uint64_t since_us, const char *who)
{
    if (answer_is_astray(check, PROMISE_KEPT, lock))
        return;
    (void)detached_broken(
        check, lock, fence, since_us, who, "is told to be none");
}

void
check_stale_fence(struct check *check, uint32_t lock, uint64_t fence,
    uint64_t since_us, const char *who)
{
    if (answer_is_astray(check, PROMISE_STALE, lock))
        return;
    broken_by(check, PROMISE_STALE, DAMAGES, lease_before(check, since_us),
        "lock-%" PRIu32 ": %s is told OK, and fence %" PRIu64
        " is of no detached hold",
        lock, who, fence);
}

/*
 * Beliefs that overlap. A lock has a short list of beliefs that have not been
 * ended; one that has only run out stays in it, since its client may be stopped
 * and wake.
 */
#include "tests/sim/check_state.h"

#include "daemon/base/assert.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

static uint32_t
belief_take(struct check *check)
{
    uint32_t number = check->unused;

    if (number != NONE) {
        check->unused = check->beliefs[number].next;
        return number;
    }
    if (check->belief_count == check->belief_capacity) {
        check->belief_capacity *= 2;
        check->beliefs = realloc(
            check->beliefs, check->belief_capacity * sizeof(*check->beliefs));
        require(check->beliefs != NULL);
    }
    return check->belief_count++;
}

static bool
belief_sleeps(const struct check *check, const struct belief *belief)
{
    return belief->machine != NULL &&
           belief->machine->stopped_until > check->world->now_us;
}

static void belief_doubt(struct check *check, uint32_t number);

static bool
belief_lives(const struct check *check, const struct belief *belief)
{
    return belief->until_us > check->world->now_us;
}

/* Those who hold a semaphore have no more permits together than there are. An
 * overlap with sleeping clients is judged when these wake. */
static void
permits_compare(struct check *check, uint32_t lock, uint32_t limit)
{
    uint64_t awake = 0;
    uint64_t all = 0;
    uint64_t since_us = check->world->now_us;
    enum fault doom = FAULT_COUNT;

    limit = limit_most(check, lock, limit);
    for (uint32_t at = subject_of(check, lock)->beliefs; at != NONE;
         at = check->beliefs[at].next) {
        const struct belief *belief = &check->beliefs[at];
        if (!belief_lives(check, belief) || belief->limit == 0)
            continue;
        if (belief->doom != FAULT_COUNT) {
            doom = belief->doom;
            continue;
        }
        all += belief->permits;
        if (!belief_sleeps(check, belief))
            awake += belief->permits;
        if (belief->began_us < since_us)
            since_us = belief->began_us;
    }
    /* Several RESIZEs may have been carried out within one call. */
    limit = limit_since(check, lock, limit, lease_before(check, since_us));
    if (awake > limit)
        check_broken(check, PROMISE_EXCLUSION, lease_before(check, since_us),
            "lock-%" PRIu32 ": %" PRIu64
            " permits are believed in, of %" PRIu32,
            lock, awake, limit);
    else if (all > limit)
        for (uint32_t at = subject_of(check, lock)->beliefs; at != NONE;
             at = check->beliefs[at].next)
            if (belief_lives(check, &check->beliefs[at]) &&
                belief_sleeps(check, &check->beliefs[at]))
                belief_doubt(check, at);
    if (doom != FAULT_COUNT && all == limit)
        excused_by(check, PROMISE_EXCLUSION, doom, "permits", lock);
}

/* A process runs again during whose stop somebody else came to believe. */
static void
belief_wakes(void *arg, uint64_t data)
{
    struct check *check = arg;
    struct belief *belief = &check->beliefs[data >> 32];

    if (belief->serial != (uint32_t)data)
        return;
    if (belief_sleeps(check, belief)) {
        world_at(check->world, belief->machine->stopped_until + 1, belief_wakes,
            check, data);
        return;
    }
    belief->doubted = false;
    if (!belief_lives(check, belief))
        return;
    if (belief->limit > 0)
        permits_compare(check, belief->lock, belief->limit);
    else if (belief->doom != FAULT_COUNT)
        excused_by(check, PROMISE_EXCLUSION, belief->doom, "a stopped holder",
            belief->lock);
    else
        check_broken(check, PROMISE_EXCLUSION,
            lease_before(check, belief->began_us),
            "lock-%" PRIu32 ": %s (fence %" PRIu64
            ") was stopped, and was told nothing when it ran again",
            belief->lock, belief->who, belief->fence);
}

static void
belief_doubt(struct check *check, uint32_t number)
{
    struct belief *belief = &check->beliefs[number];

    if (belief->doubted)
        return;
    belief->doubted = true;
    world_at(check->world, belief->machine->stopped_until + 1, belief_wakes,
        check, (uint64_t)number << 32 | belief->serial);
}

/* Whether two may believe at one time, but for the count of permits. */
static bool
beliefs_fit(
    const struct check *check, const struct belief *a, const struct belief *b)
{
    if (a->limit != b->limit && check->world->plan.resizes == 0)
        return false;
    if (a->below > 0 || b->below > 0)
        return a->below == b->fence || b->below == a->fence;
    return a->limit > 0 ? b->limit > 0
                        : b->limit == 0 && a->shared && b->shared &&
                              !(a->upgradable && b->upgradable);
}

/* Whether one of two locks has to keep beliefs of the other out. */
static bool
locks_meet(const struct belief *own, uint32_t lock, bool part)
{
    return own->lock == lock ||
           (own->part && plan_lock_has_part(lock, own->lock)) ||
           (part && plan_lock_has_part(own->lock, lock));
}

/* Nobody else may believe in that lock now who does not fit. */
static void
beliefs_compare_with(struct check *check, uint32_t number, uint32_t lock)
{
    const struct belief *own = &check->beliefs[number];
    uint64_t now_us = check->world->now_us;

    for (uint32_t at = subject_of(check, lock)->beliefs; at != NONE;
         at = check->beliefs[at].next) {
        const struct belief *other = &check->beliefs[at];
        if (at == number || !belief_lives(check, other) ||
            !locks_meet(own, lock, other->part) ||
            beliefs_fit(check, own, other))
            continue;
        enum fault doom = own->doom != FAULT_COUNT ? own->doom : other->doom;
        if (doom != FAULT_COUNT) {
            excused_by(check, PROMISE_EXCLUSION, doom, "a holder", own->lock);
            continue;
        }
        if (belief_sleeps(check, other)) {
            belief_doubt(check, at);
            continue;
        }
        uint64_t since_us =
            other->began_us < own->began_us ? other->began_us : own->began_us;
        check_broken(check, PROMISE_EXCLUSION, lease_before(check, since_us),
            "%s: %s (fence %" PRIu64 ") believes, and in %s %s (fence "
            "%" PRIu64 ") since %" PRIu64 " us for %" PRIu64 " us more",
            plan_lock_name(own->lock), own->who, own->fence,
            plan_lock_name(lock), other->who, other->fence,
            now_us - other->began_us, other->until_us - now_us);
    }
}

/* Nobody else may believe now who does not fit. */
static void
beliefs_compare(struct check *check, uint32_t number)
{
    const struct belief *own = &check->beliefs[number];

    beliefs_compare_with(check, number, own->lock);
    for (uint32_t lock = PLAN_TREE;
         check->world->plan.trees > 0 && lock < PLAN_TREE_END; lock++)
        if (lock != own->lock && plan_lock_is_tree(own->lock))
            beliefs_compare_with(check, number, lock);
    if (own->limit > 0)
        permits_compare(check, own->lock, own->limit);
}

void
check_ordered(struct check *check, uint32_t lock)
{
    subject_of(check, lock)->ordered = true;
    subject_of(check, lock)->ordered_us = check->world->now_us;
}

bool
check_is_broken(const struct check *check, uint32_t lock, uint64_t fence)
{
    const struct subject *subject = subject_of(check, lock);

    for (uint32_t i = 0; i < BROKEN_KEPT; i++)
        if (subject->broken[i] == fence)
            return true;
    return false;
}

uint32_t
check_believes(
    struct check *check, const struct check_hold *hold, uint64_t until_us)
{
    struct subject *subject = subject_of(check, hold->lock);
    uint32_t number = belief_take(check);
    struct belief *belief = &check->beliefs[number];

    *belief = (struct belief){
        .lock = hold->lock,
        .next = subject->beliefs,
        .fence = hold->fence,
        .began_us = check->world->now_us,
        .until_us = until_us,
        .machine = hold->machine,
        .serial = ++check->serial,
        .limit = hold->limit,
        .permits = hold->permits,
        .most = hold->permits,
        .shared = hold->shared,
        .upgradable = hold->upgradable,
        .below = hold->below,
        .part = hold->part,
        .detached = hold->detached,
        .asked_us = hold->asked_us,
        .doom = check_is_broken(check, hold->lock, hold->fence)
                    ? FAULT_order_break
                    : hold->doom,
    };
    snprintf(belief->who, sizeof(belief->who), "%s", hold->who);
    subject->beliefs = number;
    if (until_us > belief->began_us)
        beliefs_compare(check, number);
    return number;
}

void
check_permits(struct check *check, uint32_t belief, uint32_t permits, bool done)
{
    require(belief > 0 && belief < check->belief_count);
    struct belief *own = &check->beliefs[belief];

    require(permits <= own->permits);
    own->permits = permits;
    if (done)
        own->most = permits;
}

void
permits_judge(struct check *check, uint32_t lock, const struct version *version)
{
    for (uint32_t i = 0; i < version->live && version->limit > 0; i++) {
        const struct stand *stand = &version->stands[i];
        for (uint32_t at = subject_of(check, lock)->beliefs;
             at != NONE && stand->granted; at = check->beliefs[at].next) {
            const struct belief *own = &check->beliefs[at];
            if (own->fence != stand->fence || !belief_lives(check, own) ||
                (stand->permits >= own->permits && stand->permits <= own->most))
                continue;
            broken_by(check, PROMISE_KEPT, DAMAGES,
                lease_before(check, own->began_us),
                "lock-%" PRIu32 ": %s (fence %" PRIu64 ") relies on %" PRIu32
                " permits of at most %" PRIu32 ", and has %" PRIu32,
                lock, own->who, own->fence, own->permits, own->most,
                stand->permits);
        }
    }
}

void
check_shares(struct check *check, uint32_t belief)
{
    require(belief > 0 && belief < check->belief_count);
    check->beliefs[belief].shared = true;
    check->beliefs[belief].upgradable = false;
}

void
belief_doom(
    struct check *check, uint32_t lock, uint64_t fence, enum fault order)
{
    struct subject *subject = subject_of(check, lock);

    subject->broken[subject->broken_next++ % BROKEN_KEPT] = fence;
    for (uint32_t at = subject->beliefs; at != NONE;
         at = check->beliefs[at].next)
        if (check->beliefs[at].fence == fence)
            check->beliefs[at].doom = order;
}

void
check_doom(struct check *check, const struct machine *machine, enum fault order)
{
    for (uint32_t i = 1; i < check->belief_count; i++)
        if (check->beliefs[i].serial != 0 &&
            check->beliefs[i].machine == machine)
            check->beliefs[i].doom = order;
}

void
check_until(struct check *check, uint32_t belief, uint64_t until_us)
{
    require(belief > 0 && belief < check->belief_count);
    struct belief *own = &check->beliefs[belief];
    uint64_t now_us = check->world->now_us;
    bool revived = own->until_us <= now_us && until_us > now_us;

    own->until_us = until_us;
    if (revived)
        beliefs_compare(check, belief);
}

void
check_ends(struct check *check, uint32_t belief)
{
    require(belief > 0 && belief < check->belief_count);
    struct belief *own = &check->beliefs[belief];
    uint32_t *link = &subject_of(check, own->lock)->beliefs;

    while (*link != belief) {
        require(*link != NONE);
        link = &check->beliefs[*link].next;
    }
    *link = own->next;
    own->serial = 0;
    own->next = check->unused;
    check->unused = belief;
}

/* --- lock-delay ----------------------------------------------------------- */

void
check_delays(struct check *check, uint32_t lock, uint64_t fence,
    uint64_t stood_us, uint32_t delay_ms, const char *who)
{
    struct subject *subject = subject_of(check, lock);
    /* Less what clocks may disagree on, and the milliseconds of a record. */
    uint64_t until_us = stood_us + (uint64_t)delay_ms * 995;

    if (until_us < subject->delay_us + 10000)
        return;
    subject->delay_us = until_us - 10000;
    subject->delay_fence = fence;
    subject->delay_stood_us = stood_us;
    snprintf(subject->delayed_by, sizeof(subject->delayed_by), "%s", who);
}

void
delay_judge(
    struct check *check, uint32_t lock, uint64_t fence, uint64_t since_us)
{
    const struct subject *subject = subject_of(check, lock);
    uint64_t now_us = check->world->now_us;
    uint64_t held_us = lease_before(check, subject->delay_stood_us);

    if (since_us > held_us) /* a delay may be longer than a lease */
        since_us = held_us;
    /* An older grant may be heard of late. */
    if (now_us < subject->delay_us && fence > subject->delay_fence)
        check_broken(check, PROMISE_DELAY, since_us,
            "lock-%" PRIu32 ": fence %" PRIu64 " is granted, and the "
            "lock-delay of %s is not over for %" PRIu64 " us",
            lock, fence, subject->delayed_by, subject->delay_us - now_us);
}

void
check_rests(struct check *check, uint32_t lock, uint64_t fence,
    uint64_t sent_us, uint32_t delay_ms, const char *who)
{
    const struct subject *subject = subject_of(check, lock);
    const struct version *version = &subject->version;
    uint64_t last = subject->told_highest;

    check_delays(check, lock, fence, sent_us, delay_ms, who);
    for (uint32_t i = 0; i < version->live; i++)
        if (version->stands[i].granted && version->stands[i].fence > last)
            last = version->stands[i].fence;
    delay_judge(check, lock, last, sent_us);
}

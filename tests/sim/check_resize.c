/*
 * RESIZE: which limits a semaphore may have, and how many permits may be out.
 */
#include "tests/sim/check_state.h"

#include <inttypes.h>
#include <string.h>

uint32_t
limit_most(const struct check *check, uint32_t lock, uint32_t limit)
{
    const struct subject *subject = subject_of(check, lock);

    for (uint32_t i = 0; i < LIMIT_KEPT && check->world->plan.resizes > 0; i++)
        if (limit < subject->limits[i].limit)
            limit = subject->limits[i].limit;
    return limit;
}

uint32_t
limit_since(
    const struct check *check, uint32_t lock, uint32_t limit, uint64_t since_us)
{
    const struct subject *subject = subject_of(check, lock);

    for (uint32_t i = 0; i < RESIZE_KEPT; i++)
        if (limit < subject->resizes[i].limit &&
            subject->resizes[i].ended_us >= since_us)
            limit = subject->resizes[i].limit;
    return limit;
}

void
check_resizes(struct check *check, uint32_t lock, uint32_t limit)
{
    struct subject *subject = subject_of(check, lock);
    uint32_t at = subject->resizes_next++ % RESIZE_KEPT;

    subject->resizes[at].limit = limit;
    subject->resizes[at].sent_us = check->world->now_us;
    subject->resizes[at].ended_us = WORLD_NEVER;
}

/* Its end may have passed, and no call has struck it out since. */
static bool
stand_holds(const struct subject *subject, const struct stand *stand)
{
    const struct machine *machine = subject->version.machine;

    return machine == NULL || stand->ends_ms > check_clock_ms(machine);
}

/* Whether a hold that a client was told of before then stands. */
static bool
lock_stood(const struct check *check, uint32_t lock, uint64_t since_us)
{
    const struct subject *subject = subject_of(check, lock);

    for (uint32_t at = subject->beliefs; at != NONE;
         at = check->beliefs[at].next)
        for (uint32_t i = 0; i < subject->version.live; i++)
            if (check->beliefs[at].began_us < since_us &&
                stand_holds(subject, &subject->version.stands[i]) &&
                subject->version.stands[i].fence == check->beliefs[at].fence)
                return true;
    return false;
}

/* Whether a record may have had that limit since then. Another RESIZE may have
 * changed it within a call of a script. */
static bool
had_limit(const struct subject *subject, uint32_t limit, uint64_t sent_us)
{
    for (uint32_t i = 0; i < LIMIT_KEPT; i++)
        if (subject->limits[i].limit == limit &&
            subject->limits[i].seen_us >= sent_us)
            return true;
    for (uint32_t i = 0; i < RESIZE_KEPT; i++)
        if ((subject->resizes[i].sent_us != sent_us ||
                subject->resizes[i].limit != limit) &&
            subject->resizes[i].ended_us > sent_us)
            return true;
    return false;
}

void
check_resized(struct check *check, uint32_t lock, uint32_t limit,
    uint64_t sent_us, const char *code, const char *who)
{
    struct subject *subject = subject_of(check, lock);
    const char *wrong = NULL;

    if (code != NULL && strcmp(code, "INDOUBT") == 0)
        return;
    for (uint32_t i = 0; i < RESIZE_KEPT; i++)
        if (subject->resizes[i].limit == limit &&
            subject->resizes[i].sent_us == sent_us)
            subject->resizes[i].ended_us = check->world->now_us;
    if (code == NULL && !had_limit(subject, limit, sent_us))
        wrong = "its record never had that limit";
    else if (code != NULL && strcmp(code, "NOTHELD") == 0)
        wrong = "somebody has held it all the time";
    if (wrong != NULL && lock_stood(check, lock, sent_us))
        broken_by(check, PROMISE_ANSWERED, DAMAGES,
            lease_before(check, sent_us),
            "%s: RESIZE of lock-%" PRIu32 ", limit=%" PRIu32 ": %s", who, lock,
            limit, wrong);
}

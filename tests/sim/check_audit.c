/*
 * Findings of audits, as the hook is told of them: what they say must be so.
 */
#include "tests/sim/check_state.h"
#include "tests/sim/server.h"

#include "daemon/base/assert.h"
#include "daemon/base/text.h"
#include "proto/reply.h"

#include <inttypes.h>
#include <string.h>

/* The value of KEY in an environment of KEY=value and a NUL each. */
static struct text
value_of(const char *env, size_t len, const char *key)
{
    size_t key_len = strlen(key);

    for (const char *at = env; at < env + len; at += strlen(at) + 1)
        if (strncmp(at, key, key_len) == 0 && at[key_len] == '=')
            return text_from(at + key_len + 1);
    require(false);
    return text_from("");
}

static uint64_t
number_of(const char *env, size_t len, const char *key)
{
    uint64_t number = 0;
    bool good = text_to_u64(value_of(env, len, key), UINT64_MAX, &number);

    require(good);
    return number;
}

static bool
lock_of(const struct check *check, struct text value, uint32_t *lock)
{
    char name[64];

    if (value.len >= sizeof(name))
        return false;
    memcpy(name, value.at, value.len);
    return plan_lock_of(name, percent_decode(name, value.len),
        plan_lock_count(&check->world->plan), lock);
}

/* A client that believes in a hold, though its broker is said to know nothing
 * of it. */
static const struct belief *
believer_of(const struct check *check, uint32_t lock, uint64_t fence)
{
    for (uint32_t at = subject_of(check, lock)->beliefs; at != NONE;
         at = check->beliefs[at].next) {
        const struct belief *belief = &check->beliefs[at];
        if (belief->fence == fence && belief->until_us > check->world->now_us)
            return belief;
    }
    return NULL;
}

void
check_finding(struct check *check, const char *who, const char *env, size_t len)
{
    struct text kind = value_of(env, len, "HOLDFAST_FINDING");
    struct text name = value_of(env, len, "HOLDFAST_LOCK");
    struct text why = value_of(env, len, "HOLDFAST_WHY");
    uint64_t fence = number_of(env, len, "HOLDFAST_FENCE");
    uint64_t age_ms = number_of(env, len, "HOLDFAST_AGE_MS");
    uint32_t lock;

    world_note(check->world, who, "has found %.*s: %.*s %" PRIu64 " %" PRIu64,
        (int)kind.len, kind.at, (int)name.len, name.at, fence, age_ms);
    check_deed(check, DEED_FOUND);
    if (!lock_of(check, name, &lock)) {
        check_broken(check, PROMISE_AUDIT, 0, "%s: there is no lock %.*s", who,
            (int)name.len, name.at);
        return;
    }
    if (text_equal(kind, TEXT("senseless")))
        broken_by(check, PROMISE_AUDIT, CAUSE(script_break), 0,
            "%s: lock-%" PRIu32 " is said to make no sense: %.*s", who, lock,
            (int)why.len, why.at);
    /* A master that was replaced and lives on may have broken it. */
    if (number_of(env, len, "HOLDFAST_BROKEN") != 0 &&
        !check_is_broken(check, lock, fence) && !servers_replaced(check->world))
        check_broken(check, PROMISE_AUDIT, 0,
            "%s: lock-%" PRIu32 " is said to be broken, and nobody has done so",
            who, lock);
    const struct belief *believer = believer_of(check, lock, fence);
    if (check->world->calm && text_equal(kind, TEXT("orphan")) &&
        believer != NULL)
        check_broken(check, PROMISE_AUDIT, check->world->now_us,
            "%s: lock-%" PRIu32 " is said to be nobody's, and %s has it", who,
            lock, believer->who);
}

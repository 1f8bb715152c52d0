/*
 * Shrinking is greedy: each way of making the plan smaller is tried, with the
 * same seed and then a few others, and kept where the run still fails. A
 * changed plan draws other chances from the same seed, so it is another run:
 * what is kept is only that it fails too.
 */
#include "tests/sim/shrink.h"

#include "tests/sim/run.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#define SEEDS_TRIED 12
#define TRIES_MAX   2000

static unsigned tries;

static bool
plan_fails(const struct plan *plan)
{
    int status = 0;

    tries++;
    fflush(stdout);
    pid_t pid = fork();
    if (pid < 0)
        return false;
    if (pid == 0) {
        struct result result;
        run_plan(plan, false, &result);
        _exit(result.totals.violations > 0);
    }
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        continue;
    return !WIFEXITED(status) || WEXITSTATUS(status) != 0;
}

/* Keeps `smaller` where it fails, with some seed. */
static bool
adopt(struct plan *plan, struct plan smaller)
{
    uint64_t seed = smaller.seed;

    for (uint64_t i = 0; i < SEEDS_TRIED && tries < TRIES_MAX; i++) {
        smaller.seed = seed + i * 1000003;
        if (!plan_fails(&smaller))
            continue;
        *plan = smaller;
        return true;
    }
    return false;
}

static bool
shrink_number(struct plan *plan, uint32_t *number, uint32_t least)
{
    uint32_t was = *number;

    if (was <= least)
        return false;
    struct plan smaller = *plan;
    uint32_t *there = (uint32_t *)(void *)((char *)&smaller +
                                           ((char *)number - (char *)plan));
    *there = least + (was - least) / 2;
    return adopt(plan, smaller);
}

/* Deeds of clients and brokers that need not be. */
static const size_t deeds[] = {
    offsetof(struct plan, semaphores),
    offsetof(struct plan, shares),
    offsetof(struct plan, several),
    offsetof(struct plan, nests),
    offsetof(struct plan, keeps),
    offsetof(struct plan, watches),
    offsetof(struct plan, members),
    offsetof(struct plan, delays),
    offsetof(struct plan, conflicts),
    offsetof(struct plan, detaches),
    offsetof(struct plan, parts),
    offsetof(struct plan, awaits),
    offsetof(struct plan, wants),
    offsetof(struct plan, trees),
    offsetof(struct plan, rests),
    offsetof(struct plan, audit_ms),
    offsetof(struct plan, break_ms),
};

static bool
shrink_once(struct plan *plan)
{
    bool some = false;
    struct plan smaller;

    for (int i = 0; i < FAULT_COUNT; i++) {
        if (plan->fault_weight[i] == 0)
            continue;
        smaller = *plan;
        smaller.fault_weight[i] = 0;
        some |= adopt(plan, smaller);
    }
    for (size_t i = 0; i < sizeof(deeds) / sizeof(deeds[0]); i++) {
        smaller = *plan;
        uint32_t *there = (uint32_t *)(void *)((char *)&smaller + deeds[i]);
        if (*there == 0)
            continue;
        *there = 0;
        some |= adopt(plan, smaller);
    }
    some |= shrink_number(plan, &plan->clients, 1);
    some |= shrink_number(plan, &plan->brokers, 1);
    some |= shrink_number(plan, &plan->locks, 1);
    some |= shrink_number(plan, &plan->replicas, 0);
    some |= shrink_number(plan, &plan->masters, 1);
    if (plan->run_us > 500000) {
        smaller = *plan;
        smaller.run_us /= 2;
        some |= adopt(plan, smaller);
    }
    if (plan->cluster && plan->masters == 1 && plan->replicas == 0) {
        smaller = *plan;
        smaller.cluster = false;
        some |= adopt(plan, smaller);
    }
    return some;
}

void
shrink(const struct plan *plan)
{
    struct plan small = *plan;
    struct plan drawn;
    char set[500];

    tries = 0;
    while (tries < TRIES_MAX && shrink_once(&small))
        continue;
    plan_draw(&drawn, small.seed, 60000000);
    plan_difference(&small, &drawn, set, sizeof(set));
    printf("smallest of %u runs: holdfast-sim --trace --seed %" PRIu64
           " --set %s\n",
        tries, small.seed, set[0] != '\0' ? set : "run_us=60000000");
}

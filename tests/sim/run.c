/*
 * The phases of a run: it begins; faults; it heals; the clients wind up, each
 * taking every lock once more; then nothing may be left anywhere.
 */
#include "tests/sim/run.h"

#include "daemon/base/log.h"
#include "tests/sim/broker.h"
#include "tests/sim/client.h"
#include "tests/sim/drill.h"
#include "tests/sim/server.h"

#include <stdio.h>
#include <string.h>

#define COVER_EVERY 17 /* seeds; of one of them the scripts' lines count */
/* A restart or a stop may last so much longer than the faults. */
#define SETTLE_US 12000000
/* Winding up takes no longer, beside leases. */
#define WIND_UP_US 400000000
/* An audit's pauses are longer. */
#define AUDIT_STEP_US 3000
#define AUDIT_MOST_MS 10000 /* between two of them, or they are seldom */

static void
run_until(struct world *world, uint64_t until_us, uint64_t *events)
{
    while (world_step(world, until_us))
        ++*events;
}

static void
run_wind_up(struct world *world, uint64_t *events)
{
    uint64_t lease_us = (uint64_t)world->plan.lease_ms * 1000;
    uint64_t limit_us = world->now_us + WIND_UP_US + 100 * lease_us +
                        10 * plan_late_us(&world->plan);
    char what[200];

    clients_wind_up(world);
    while (!clients_done(world, what, sizeof(what))) {
        if (world->now_us >= limit_us) {
            check_broken(world->check, PROMISE_SERVED, 0, "%s", what);
            return;
        }
        run_until(world, world->now_us + 100000, events);
    }
}

/* Audits ask for something again and again, but not for long. Audits of several
 * brokers may leave no moment without a question. */
static void
run_until_idle(struct world *world, uint32_t number, uint64_t *events)
{
    for (int i = 0; i < 100 && broker_asks(world, number) > 0; i++)
        run_until(world, world->now_us + AUDIT_STEP_US, events);
}

static void
run_sum_up(struct world *world, struct result *result)
{
    struct fake_counts counts;

    result->seed = world->plan.seed;
    result->setting = plan_setting(&world->plan);
    result->virtual_us = world->now_us - WORLD_START_US;
    result->totals = *check_totals(world->check);
    for (uint32_t i = 0; i < world->plan.brokers; i++)
        broker_add_counters(world, i, result->counters);
    for (uint32_t i = 0; i < world->plan.masters * (1 + world->plan.replicas);
         i++) {
        fake_counts(server_fake(world, i), &counts);
        result->commands += counts.commands;
        result->scripts += counts.scripts;
    }
    world_mix(world, result->counters, sizeof(result->counters));
    world_mix(world, &result->commands, sizeof(result->commands));
    world_mix(world, &result->events, sizeof(result->events));
    result->hash = world->hash;
}

/* The brokers' log is printed with the trace, and is no part of it. */
static void
run_log(enum log_level level, const char *line, size_t len)
{
    (void)level;
    printf("                    %.*s\n", (int)len, line);
}

void
run_plan(const struct plan *plan, bool trace, struct result *result)
{
    struct world *world = world_create(plan, trace);
    uint64_t lease_us = (uint64_t)plan->lease_ms * 1000;

    memset(result, 0, sizeof(*result));
    cover_into(plan->seed % COVER_EVERY == 0 ? &result->cover : NULL);
    log_init(trace ? run_log : NULL, LOG_DEBUG);
    world->net = net_create(world);
    world->check = check_create(world, plan_lock_count(plan));
    servers_create(world);
    brokers_create(world);
    clients_create(world);
    faults_begin(world, &result->faults);
    change_rolls(world);
    run_until(world, WORLD_START_US + plan->run_us, &result->events);
    faults_heal(world);
    run_until(world, faults_over_us(world) + SETTLE_US, &result->events);
    world->calm = true;
    /* An audit while clients hold locks, and nothing excuses its findings. */
    if (plan->audit_ms < AUDIT_MOST_MS)
        run_until(world, world->now_us + 2000 * (uint64_t)plan->audit_ms,
            &result->events);
    run_wind_up(world, &result->events);
    /* Tickets of brokers that died end with a lease; a lock's own timers may
     * still be set for one. */
    run_until(world,
        world->now_us + 2 * lease_us + 3000000 + plan_late_us(plan),
        &result->events);
    for (uint32_t i = 0; i < plan->brokers; i++) {
        if (plan->audit_ms > 0)
            run_until_idle(world, i, &result->events);
        broker_check_idle(world, i);
    }
    servers_check_idle(world);
    run_sum_up(world, result);
    clients_destroy(world);
    brokers_destroy(world);
    servers_destroy(world);
    check_destroy(&world->check);
    net_destroy(&world->net);
    world_destroy(&world);
}

uint64_t
result_faults(const struct result *result)
{
    uint64_t sum = 0;

    for (int i = 0; i < FAULT_COUNT; i++)
        sum += result->faults.by_kind[i];
    return sum;
}

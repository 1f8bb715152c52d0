/*
 * Faults: which, when, whom, for how long. See plan.h for what there is.
 */
#include "tests/sim/faults.h"

#include "daemon/base/assert.h"
#include "tests/sim/broker.h"
#include "tests/sim/check.h"
#include "tests/sim/client.h"
#include "tests/sim/server.h"

#include <inttypes.h>

/* The totals are the run's; one run at a time. */
static struct fault_totals *totals;

static uint32_t
any_broker(struct world *world)
{
    return (uint32_t)world_below(world, world->plan.brokers);
}

static uint32_t
any_client(struct world *world)
{
    return (uint32_t)world_below(world, world->plan.clients);
}

static uint32_t
any_server(struct world *world)
{
    return (uint32_t)world_below(
        world, world->plan.masters * (1 + world->plan.replicas));
}

/* Mostly short, now and then longer than a lease. */
static uint64_t
any_span_us(struct world *world)
{
    uint64_t lease_us = (uint64_t)world->plan.lease_ms * 1000;

    if (world_odds(world, 3))
        return world_between(world, lease_us / 2, 2 * lease_us);
    return world_between(world, 1000, lease_us / 2);
}

static struct machine *
any_machine(struct world *world)
{
    return &world->machines[world_below(world, world->machine_count)];
}

/* Packets pass again. */
static void
fault_pass(void *arg, uint64_t data)
{
    struct world *world = arg;
    struct machine *from = &world->machines[data >> 8 & 255];

    if (!world->healing) /* else they pass already, or are held by a drill */
        from->blocked[data & 255] = false;
}

static void
block(struct world *world, struct machine *from, struct machine *to,
    uint64_t span_us)
{
    net_block(world->net, from, to);
    world_at(world, world->now_us + span_us, fault_pass, world,
        (uint64_t)from->number << 8 | to->number);
}

void
faults_part(
    struct world *world, struct machine *a, struct machine *b, uint64_t span_us)
{
    block(world, a, b, span_us);
    block(world, b, a, span_us);
}

static void
fault_partition(struct world *world, bool both)
{
    struct machine *a = any_machine(world);
    uint64_t span_us = any_span_us(world);

    world_note(world, a->name, "cut off %s for %" PRIu64 " ms",
        both ? "both ways" : "one way", span_us / 1000);
    bool all = world_odds(world, 3);
    bool from = both || world_odds(world, 2);
    for (uint32_t i = 0; i < world->machine_count; i++) {
        struct machine *b = &world->machines[i];
        if (b == a || (!all && !world_odds(world, 3)))
            continue;
        if (from)
            block(world, a, b, span_us);
        if (both || !from)
            block(world, b, a, span_us);
    }
}

static void
fault_fast(void *arg, uint64_t data)
{
    struct world *world = arg;

    (void)data;
    net_slow(world->net, 0);
}

static void
stop(struct world *world, struct machine *machine)
{
    uint64_t span_us = any_span_us(world);

    world_note(
        world, machine->name, "is stopped for %" PRIu64 " ms", span_us / 1000);
    machine_stop(machine, world->now_us + span_us);
}

static void
fault_well(void *arg, uint64_t data)
{
    struct world *world = arg;

    fake_set_mood(server_fake(world, (uint32_t)data), FAKE_WELL);
}

static void
fault_mood(struct world *world)
{
    uint32_t number = any_server(world);
    enum fake_mood mood =
        (enum fake_mood)world_between(world, 1, FAKE_MOOD_COUNT - 1);

    if (mood == FAKE_CLUSTERDOWN && !world->plan.cluster)
        mood = FAKE_BUSY;
    world_note(world, server_machine(world, number)->name, "mood %d", mood);
    fake_set_mood(server_fake(world, number), mood);
    world_at(
        world, world->now_us + any_span_us(world), fault_well, world, number);
}

static void
fault_cut(struct world *world, bool silent)
{
    uint32_t id = net_any(world->net);

    if (id == 0)
        return;
    world_note(world, "net", "%s %u", silent ? "half-open" : "cut", id & 65535);
    if (silent)
        net_half_open(world->net, id);
    else if (!net_cut(world->net, id))
        check_excuse(world->check, FAULT_cut);
}

static void
fault_wipe(struct world *world)
{
    uint32_t number = any_server(world);

    if (world_odds(world, 2)) {
        server_restart(world, number, false);
        return;
    }
    if (!machine_runs(server_machine(world, number)) ||
        fake_is_replica(server_fake(world, number)))
        return;
    world_note(world, server_machine(world, number)->name, "FLUSHALL");
    check_excuse(world->check, FAULT_wiped);
    fake_flush_all(server_fake(world, number));
    check_forgets(world->check, server_machine(world, number));
}

static void
fault_broker_clock(struct world *world)
{
    struct machine *machine = broker_machine(world, any_broker(world));

    /* The first fence of a lock may be of this clock, and be lost. */
    check_excuse(world->check, FAULT_broker_clock);
    machine->wall_us += (int64_t)world_below(world, 20000000) - 10000000;
}

static void
fault_break_script(struct world *world, uint32_t number)
{
    check_excuse(world->check, FAULT_script_break);
    fake_break_script(
        server_fake(world, number), 1 + (unsigned)world_below(world, 6));
}

/* The master, and whoever is with it, on one side; a majority of the Sentinels
 * on the other. */
static void
fault_part_master(struct world *world)
{
    const struct machine *master = server_master(world);
    uint64_t span_us = world_between(world, 2000000, 10000000);
    uint32_t left = (world->plan.sentinels - 1) / 2;
    bool with[WORLD_MACHINES] = {false};

    for (uint32_t i = 0; i < world->machine_count; i++) {
        const struct machine *machine = &world->machines[i];
        bool sentinel = server_is_sentinel(world, machine);
        with[i] = machine == master ||
                  (!(sentinel && left == 0) && world_odds(world, 3));
        left -= with[i] && sentinel;
    }
    world_note(world, master->name, "is cut off with others for %" PRIu64 " ms",
        span_us / 1000);
    for (uint32_t i = 0; i < world->machine_count; i++)
        for (uint32_t j = 0; j < world->machine_count; j++)
            if (with[i] != with[j])
                block(world, &world->machines[i], &world->machines[j], span_us);
}

static void
fault_failover(struct world *world, uint32_t number)
{
    if (world->plan.sentinels == 0 || world_odds(world, 4))
        server_failover(world, number);
    else if (world_odds(world, 3))
        sentinel_failover(
            world, (uint32_t)world_below(world, world->plan.sentinels));
    else
        fault_part_master(world);
}

static void
fault_server(struct world *world, enum fault fault)
{
    uint32_t number = any_server(world);
    bool runs = machine_runs(server_machine(world, number));

    if (!runs)
        return;
    if (fault == FAULT_redis_stop && world->plan.sentinels > 0 &&
        world_odds(world, 2))
        stop(world, sentinel_machine(world,
                        (uint32_t)world_below(world, world->plan.sentinels)));
    else if (fault == FAULT_redis_stop)
        stop(world, server_machine(world, number));
    else if (fault == FAULT_redis_restart)
        server_restart(
            world, number, world->plan.loses == 0 || world_odds(world, 2));
    else if (fault == FAULT_script_flush)
        fake_script_flush(server_fake(world, number));
    else if (fault == FAULT_script_break)
        fault_break_script(world, number);
    else if (fault == FAULT_client_list_kill)
        fake_drop_clients(server_fake(world, number));
    else if (fault == FAULT_failover)
        fault_failover(world, number);
    else
        server_jump(world, number,
            (int64_t)any_span_us(world) *
                (fault == FAULT_clock_forward ? 1 : -1));
}

static void
fault_do(struct world *world, enum fault fault)
{
    switch (fault) {
    case FAULT_cut:
    case FAULT_half_open:
        fault_cut(world, fault == FAULT_half_open);
        break;
    case FAULT_partition:
    case FAULT_one_way:
        fault_partition(world, fault == FAULT_partition);
        break;
    case FAULT_slow:
        net_slow(world->net, world_between(world, 1000, 500000));
        world_at(
            world, world->now_us + any_span_us(world), fault_fast, world, 0);
        break;
    case FAULT_client_kill:
        client_kill(world, any_client(world));
        break;
    case FAULT_client_stop:
        stop(world, client_machine(world, any_client(world)));
        break;
    case FAULT_client_vanish:
        client_vanish(world, any_client(world));
        break;
    case FAULT_broker_kill:
        broker_kill(world, any_broker(world));
        break;
    case FAULT_broker_stop:
        stop(world, broker_machine(world, any_broker(world)));
        break;
    case FAULT_broker_drain:
        broker_drain(world, any_broker(world));
        break;
    case FAULT_redis_mood:
        fault_mood(world);
        break;
    case FAULT_migrate:
        server_migrate(world);
        break;
    case FAULT_wiped:
        fault_wipe(world);
        break;
    case FAULT_broker_clock:
        fault_broker_clock(world);
        break;
    case FAULT_order_break:
    case FAULT_order_kill:
        client_order(world, fault);
        break;
    case FAULT_redis_stop:
    case FAULT_redis_restart:
    case FAULT_script_flush:
    case FAULT_script_break:
    case FAULT_client_list_kill:
    case FAULT_failover:
    case FAULT_clock_forward:
    case FAULT_clock_back:
        fault_server(world, fault);
        break;
    case FAULT_COUNT:
        require(false);
    }
}

static void
fault_next(void *arg, uint64_t data)
{
    struct world *world = arg;
    const uint32_t *weights = world->plan.fault_weight;
    uint64_t sum = 0;

    (void)data;
    for (int i = 0; i < FAULT_COUNT; i++)
        sum += weights[i];
    if (world->healing || sum == 0)
        return;
    uint64_t pick = world_below(world, sum);
    int fault = 0;
    while (pick >= weights[fault])
        pick -= weights[fault++];
    totals->by_kind[fault]++;
    fault_do(world, (enum fault)fault);
    world_at(world,
        world->now_us + world_below(world, 2 * world->plan.fault_us),
        fault_next, world, 0);
}

void
faults_begin(struct world *world, struct fault_totals *counts)
{
    totals = counts;
    if (world->plan.fault_us > 0)
        world_at(world, world->now_us + world_below(world, 1000000), fault_next,
            world, 0);
}

void
faults_heal(struct world *world)
{
    world->healing = true;
    world_note(world, "world", "heals");
    net_unblock_all(world->net);
    net_slow(world->net, 0);
    servers_heal(world);
    brokers_heal(world);
}

/* When the last stop of a process is over. */
uint64_t
faults_over_us(const struct world *world)
{
    uint64_t over_us = world->now_us;

    for (uint32_t i = 0; i < world->machine_count; i++)
        if (world->machines[i].stopped_until > over_us)
            over_us = world->machines[i].stopped_until;
    return over_us;
}

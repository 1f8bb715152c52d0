/*
 * Slots of a cluster on their way from one shard to another. See server.h.
 */
#include "tests/sim/server_state.h"

#include "daemon/base/slot.h"
#include "tests/sim/check.h"

static bool
migration_can(struct cluster *cluster)
{
    return machine_runs(shard_master(cluster->world, cluster->from)->machine) &&
           machine_runs(shard_master(cluster->world, cluster->to)->machine);
}

static void
migration_open(const struct cluster *cluster)
{
    struct fake *from = shard_master(cluster->world, cluster->from)->fake;
    struct fake *to = shard_master(cluster->world, cluster->to)->fake;

    fake_migrating(from, cluster->slot, to);
    fake_importing(to, cluster->slot, from);
}

/* So many of the slot's keys, but for those that have expired. A slot that was
 * forgotten is mended first: what was made anew there meets what had moved. */
static unsigned
migration_moves(struct cluster *cluster, unsigned keys)
{
    struct server *from = shard_master(cluster->world, cluster->from);
    struct server *to = shard_master(cluster->world, cluster->to);

    if (cluster->forgotten) {
        check_excuse(cluster->world->check, FAULT_failover);
        migration_open(cluster);
        cluster->forgotten = false;
    }
    server_wind(from);
    server_wind(to);
    return fake_move_keys(from->fake, to->fake, cluster->slot, keys);
}

/* The slot is the other's, and everybody knows. */
static void
migration_end(struct cluster *cluster)
{
    struct world *world = cluster->world;
    struct fake *to = shard_master(world, cluster->to)->fake;

    while (migration_moves(cluster, 1000) > 0)
        continue;
    cluster->moving = false;
    cluster->shard[cluster->slot] = (uint8_t)cluster->to;
    for (uint32_t i = 0; i < server_count(world); i++) {
        struct fake *fake = world->servers[i].fake;
        fake_migrating(fake, cluster->slot, NULL);
        fake_importing(fake, cluster->slot, NULL);
        fake_map_slot(fake, cluster->slot, to);
    }
    world_note(world, "cluster", "slot %u has moved", cluster->slot);
}

static void
migration_goes_on(void *arg, uint64_t step)
{
    struct cluster *cluster = arg;
    struct world *world = cluster->world;

    if (!cluster->moving)
        return;
    if (!migration_can(cluster)) {
        world_at(
            world, world->now_us + 100000, migration_goes_on, cluster, step);
        return;
    }
    if (step == 1) {
        migration_end(cluster);
        return;
    }
    (void)migration_moves(cluster, 1);
    world_at(world, world->now_us + world_below(world, 500000),
        migration_goes_on, cluster, 1);
}

/* The slot of a lock goes to another shard; false: not now. */
static bool
migration_begin(struct cluster *cluster, uint32_t lock, uint32_t to)
{
    struct world *world = cluster->world;

    cluster->slot = slot_of_key(text_from(plan_lock_name(lock)));
    cluster->from = cluster->shard[cluster->slot];
    cluster->to = to;
    if (cluster->from == cluster->to || !migration_can(cluster))
        return false;
    cluster->moving = true;
    /* The lease ends are another host's clock. */
    if (server_clocks_differ(
            shard_master(world, cluster->from), shard_master(world, to)))
        servers_lost(world, FAULT_migrate);
    world_note(world, "cluster", "slot %u moves to shard %u", cluster->slot,
        cluster->to);
    cluster->forgotten = false;
    migration_open(cluster);
    return true;
}

void
server_migrate(struct world *world)
{
    struct cluster *cluster = world->cluster;
    uint32_t lock = (uint32_t)world_below(world, world->plan.locks);

    if (cluster->moving || !world->plan.cluster || world->plan.masters < 2)
        return;
    uint32_t to = (uint32_t)world_below(world, world->plan.masters);
    if (migration_begin(cluster, lock, to))
        world_at(world, world->now_us + world_below(world, 500000),
            migration_goes_on, cluster, 0);
}

bool
server_park(struct world *world, uint32_t lock, unsigned keys)
{
    struct cluster *cluster = world->cluster;

    if (cluster->moving || !world->plan.cluster || world->plan.masters < 2)
        return false;
    uint16_t slot = slot_of_key(text_from(plan_lock_name(lock)));
    uint32_t to = (cluster->shard[slot] + 1u) % world->plan.masters;
    if (!migration_begin(cluster, lock, to))
        return false;
    cluster->parked = true;
    (void)migration_moves(cluster, keys);
    return true;
}

void
server_park_end(struct world *world)
{
    if (!world->cluster->parked)
        return;
    world->cluster->parked = false;
    migration_end(world->cluster);
}

static void
strand_goes_on(void *arg, uint64_t data)
{
    struct cluster *cluster = arg;

    (void)data;
    if (cluster->parked && migration_can(cluster)) {
        server_park_end(cluster->world);
        return;
    }
    world_at(cluster->world, cluster->world->now_us + 10000, strand_goes_on,
        cluster, 0);
}

bool
server_strand(struct world *world, uint32_t lock)
{
    if (!server_park(world, lock, 0))
        return false;
    struct server *from = shard_master(world, world->cluster->from);
    world_note(world, from->machine->name, "is killed, data lost");
    servers_lost(world, FAULT_wiped);
    server_dies(from);
    world_at(world, world->now_us + world_between(world, 1000, 300000),
        server_back, from, (uint64_t)from->life << 1);
    strand_goes_on(world->cluster, 0);
    return true;
}

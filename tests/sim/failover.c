/*
 * Which server of a shard is the master: replicas that take over, and masters
 * that have been replaced and do not know it yet. See server.h.
 */
#include "tests/sim/server_state.h"

#include "daemon/base/slot.h"
#include "tests/sim/broker.h"
#include "tests/sim/check.h"
#include "tests/sim/faults.h"

#include <inttypes.h>
#include <stdio.h>

#define CLOCKS_AGREE_US 10000

bool
server_clocks_differ(const struct server *a, const struct server *b)
{
    int64_t apart_us = a->machine->wall_us - b->machine->wall_us;

    return apart_us > CLOCKS_AGREE_US || apart_us < -CLOCKS_AGREE_US;
}

bool
servers_replaced(const struct world *world)
{
    for (uint32_t i = 0; i < server_count(world); i++)
        if (world->servers[i].demoted && world->servers[i].machine->up)
            return true;
    return false;
}

/* The cluster's news to its nodes, except those that it has not reached yet. */
static void
servers_learn(struct world *world)
{
    for (uint32_t i = 0; world->plan.cluster && i < server_count(world); i++) {
        if (world->servers[i].demoted)
            continue;
        server_learn(&world->servers[i]);
        server_learn_replicas(&world->servers[i]);
    }
}

/* It follows its shard's master, whom it has not followed before. */
static void
server_changes_sides(struct server *server)
{
    server->stage++;
    server->replicating = false;
    server_attach(server);
}

uint64_t
servers_changed_us(const struct world *world)
{
    return world->cluster->changed_us;
}

/* Its master `lives` on for a while, or may. A slot on its way is forgotten by
 * who takes over, and its keys may be at the other side already. */
static void
promotion_excuses(
    const struct server *replica, const struct server *master, bool lives)
{
    struct world *world = replica->world;

    if (lives || world->cluster->moving)
        check_excuse(world->check, FAULT_failover);
    else if (fake_replica_lag(replica->fake) > 0 ||
             server_clocks_differ(replica, master))
        servers_lost(world, FAULT_failover);
}

static void
server_promoted(struct server *replica, bool split)
{
    struct world *world = replica->world;
    struct server *old = shard_master(world, replica->shard);

    world->cluster->forgotten = world->cluster->moving;
    world_note(world, replica->machine->name, "takes over, %" PRIu64 " behind",
        fake_replica_lag(replica->fake));
    server_wind(replica);
    fake_promote(replica->fake);
    replica->master = true;
    replica->follows = NULL;
    replica->stage++;
    replica->demoted = false;
    old->master = false;
    old->demoted = true;
    old->demoted_us = world->now_us;
    world->cluster->changed_us = world->now_us;
    for (uint32_t i = 0; i < server_count(world); i++) {
        struct server *server = &world->servers[i];
        if (server->shard == replica->shard && !server->master &&
            server != old && !(split && world_odds(world, 2)))
            server_changes_sides(server);
    }
    servers_learn(world);
}

void
server_takes_over(struct server *replica, bool split)
{
    const struct server *old = shard_master(replica->world, replica->shard);

    promotion_excuses(replica, old, old->machine->up);
    server_promoted(replica, split);
}

static void
server_demoted(struct server *server)
{
    server->demoted = false;
    server->world->cluster->changed_us = server->world->now_us;
    servers_learn(server->world);
    server_wind(server);
    for (uint32_t i = 0; i < server_count(server->world); i++)
        if (server->world->servers[i].follows == server)
            server_changes_sides(&server->world->servers[i]);
    server_changes_sides(server);
}

void
server_follows(struct server *server)
{
    check_excuse(server->world->check, FAULT_failover);
    server_demoted(server);
}

static void server_wakes(void *arg, uint64_t data);

/* A stopped old master, which runs again, hears of it. */
static void
server_hears(void *arg, uint64_t data)
{
    struct server *server = arg;

    if (!server->demoted || !server->machine->up)
        return;
    if (server->machine->stopped_until > server->world->now_us) {
        server_wakes(arg, data);
        return;
    }
    server_follows(server);
}

/* Until it hears of it, what it still carries out as a master is lost. */
static void
server_wakes(void *arg, uint64_t data)
{
    struct server *server = arg;
    struct world *world = server->world;

    if (!server->demoted || !server->machine->up)
        return;
    if (server->machine->stopped_until > world->now_us) {
        world_at(
            world, server->machine->stopped_until, server_wakes, server, data);
        return;
    }
    check_excuse(world->check, FAULT_failover);
    check_excuse(world->check, FAULT_redis_stop);
    world_at(world, world->now_us + 1000 + world_below(world, 20000),
        server_hears, server, data);
}

static void
server_elect(void *arg, uint64_t data)
{
    struct server *replica = arg;
    struct world *world = replica->world;
    struct server *old = shard_master(world, replica->shard);

    (void)data;
    if (replica->master || !replica->machine->up || machine_runs(old->machine))
        return; /* it has come back in time */
    server_takes_over(replica, false);
    if (old->machine->up)
        server_wakes(old, 0);
}

/* It is cut off from the replica that takes over, and not from brokers: there
 * are two masters for a while, and this one hears of it late. */
static void
server_splits(void *arg, uint64_t data)
{
    struct server *replica = arg;
    struct world *world = replica->world;
    struct server *old = shard_master(world, replica->shard);
    uint64_t lease_us = (uint64_t)world->plan.lease_ms * 1000;

    (void)data;
    if (world->healing || replica->master || replica->demoted ||
        !replica->machine->up || !machine_runs(old->machine))
        return;
    server_takes_over(replica, true);
    uint64_t span_us = world_below(world, 4 * lease_us);
    world_note(world, old->machine->name,
        "goes on as a master for %" PRIu64 " ms", span_us / 1000);
    for (uint32_t i = 0; i < world->plan.brokers; i++)
        if (world_odds(world, 2))
            faults_part(world, old->machine, broker_machine(world, i), span_us);
    world_at(world, world->now_us + span_us, server_hears, old, 0);
}

void
servers_hear(struct world *world)
{
    for (uint32_t i = 0; i < server_count(world); i++)
        if (world->servers[i].demoted && world->plan.sentinels == 0)
            world_at(world, world->now_us + 1000, server_hears,
                &world->servers[i], 0);
}

/* One that may take that shard over; NULL: there is none. */
static struct server *
shard_successor(struct world *world, uint32_t shard)
{
    struct server *replica = NULL;

    for (uint32_t i = 0; i < server_count(world); i++)
        if (world->servers[i].shard == shard && !world->servers[i].master &&
            !world->servers[i].demoted && world->servers[i].machine->up &&
            world->servers[i].follows == shard_master(world, shard))
            replica = &world->servers[i];
    return replica;
}

static uint32_t
shard_of_lock(const struct world *world, uint32_t lock)
{
    uint16_t slot = slot_of_key(text_from(plan_lock_name(lock)));

    return world->cluster->shard[slot];
}

/* The lock's record there; empty: there is none. Clocks do not matter: a
 * replica may be one whose clock lets the key expire. */
static struct text
server_record(const struct server *server, uint32_t lock)
{
    char wanted[64];
    const char *key;
    const char *value;
    size_t key_len;
    size_t len;

    snprintf(wanted, sizeof(wanted), "holdfast:{%s}", plan_lock_name(lock));
    for (size_t i = 0; fake_key(server->fake, i, &key, &key_len, &value, &len);
         i++)
        if (text_equal(text_make(key, key_len), text_from(wanted)))
            return text_make(value, len);
    return text_make("", 0);
}

bool
server_leaves_behind(struct world *world, uint32_t lock)
{
    uint32_t shard = shard_of_lock(world, lock);
    struct server *master = shard_master(world, shard);
    struct server *replica = shard_successor(world, shard);

    if (replica == NULL || !servers_meet(master, replica))
        return false;
    net_block(world->net, master->machine, replica->machine);
    world->cluster->behind = replica;
    return true;
}

uint64_t
server_misses(struct world *world)
{
    return fake_replica_lag(world->cluster->behind->fake);
}

void
server_takes(struct world *world, uint64_t n)
{
    struct server *replica = world->cluster->behind;
    struct server *master = replica->follows;

    if (!machine_runs(replica->machine) || !machine_runs(master->machine))
        return;
    server_wind(replica);
    fake_replica_apply(replica->fake, n);
    server_wind(master);
    (void)fake_wake(master->fake);
}

bool
server_believes(const struct world *world, uint32_t lock)
{
    struct text record = server_record(world->cluster->behind, lock);

    return check_record_granted(record.at, record.len) > 0;
}

void
server_swaps(struct world *world)
{
    struct server *replica = world->cluster->behind;
    struct server *master = replica->follows;

    promotion_excuses(replica, master, false);
    server_promoted(replica, false);
    server_demoted(master);
    world->cluster->behind = master;
}

bool
servers_have(struct world *world, uint32_t lock, uint64_t fence)
{
    const struct server *master =
        shard_master(world, shard_of_lock(world, lock));

    for (uint32_t i = 0; i < server_count(world); i++) {
        const struct server *server = &world->servers[i];
        if (server != master && server->follows != master)
            continue;
        struct text record = server_record(server, lock);
        if (check_record_fence(record.at, record.len) < fence)
            return false;
    }
    return true;
}

size_t
servers_copy(struct world *world, uint32_t lock, char out[SERVER_COPY_BYTES])
{
    struct text record =
        server_record(shard_master(world, shard_of_lock(world, lock)), lock);

    if (record.len > SERVER_COPY_BYTES)
        return 0;
    memcpy(out, record.at, record.len);
    return record.len;
}

bool
servers_restore(
    struct world *world, uint32_t lock, const char *copy, size_t len)
{
    char key[64];
    int key_len =
        snprintf(key, sizeof(key), "holdfast:{%s}", plan_lock_name(lock));

    world_note(world, "world", "an older %s comes back", key);
    check_older(world->check, key, strlen(key));
    return fake_restore(shard_master(world, shard_of_lock(world, lock))->fake,
        key, (size_t)key_len, copy, len);
}

struct machine *
server_split(struct world *world, uint32_t lock)
{
    uint32_t shard = shard_of_lock(world, lock);
    struct server *old = shard_master(world, shard);
    struct server *replica = shard_successor(world, shard);

    if (replica == NULL || !machine_runs(old->machine))
        return NULL;
    server_takes_over(replica, true);
    world->cluster->split = old;
    return old->machine;
}

void
server_split_end(struct world *world)
{
    struct server *old = world->cluster->split;

    world->cluster->split = NULL;
    if (old != NULL)
        server_hears(old, 0);
}

bool
server_switches(struct world *world, uint64_t misses)
{
    struct server *master = shard_master(world, 0);
    struct server *replica = shard_successor(world, 0);

    if (replica == NULL || !machine_runs(master->machine) ||
        !machine_runs(replica->machine) ||
        fake_replica_lag(replica->fake) > misses)
        return false;
    promotion_excuses(replica, master, false);
    server_promoted(replica, false);
    server_demoted(master);
    return true;
}

void
server_failover(struct world *world, uint32_t number)
{
    struct server *master = shard_master(world, world->servers[number].shard);
    struct server *replica = shard_successor(world, master->shard);

    if (replica == NULL || !machine_runs(master->machine))
        return;
    if (plan_named(&world->plan) && world_odds(world, 2)) {
        (void)server_switches(world, UINT64_MAX);
        return;
    }
    uint64_t elected_us = world->now_us + world_between(world, 500000, 3000000);
    /* If safety is not strict, two may believe then. */
    if (world->plan.strict > 0 && world->plan.sentinels == 0 &&
        world_odds(world, 2)) {
        world_at(world, elected_us, server_splits, replica, 0);
        return;
    }
    if (world_odds(world, 2)) {
        world_note(world, master->machine->name, "is killed");
        server_dies(master);
        world_at(world, elected_us + world_between(world, 1000, 8000000),
            server_back, master, (uint64_t)master->life << 1 | 1);
    } else {
        world_note(world, master->machine->name, "is stopped");
        machine_stop(
            master->machine, elected_us + world_between(world, 1000, 5000000));
    }
    /* Sentinels find out by themselves. */
    if (world->plan.sentinels == 0)
        world_at(world, elected_us, server_elect, replica, 0);
}

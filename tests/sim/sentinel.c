/*
 * Sentinels: those who say which server is the master.
 *
 * Each looks at the master twice a second or so, and tells the others what it
 * knows where packets pass. A Sentinel lets a replica take over if a majority
 * agrees that the master is down, a second after its last word. All of that
 * majority know it from then on, the others when they hear of it. An old master
 * that comes back is one until a Sentinel finds it, which takes seconds.
 * Masters are replaced only in runs that have failovers.
 */
#include "daemon/base/assert.h"
#include "tests/sim/check.h"
#include "tests/sim/server_state.h"

#include <inttypes.h>

#define DOWN_AFTER_US 1000000

/* How long brokers may go by what Sentinels said before: TRUST_US of
 * daemon/store/node/sentinel.c, by clocks that run slow. */
#define TRUST_US 2050000

static struct server *
sentinel_at(struct world *world, uint32_t index)
{
    return &world->servers[server_count(world) + index];
}

struct machine *
sentinel_machine(struct world *world, uint32_t index)
{
    return sentinel_at(world, index)->machine;
}

const char *
sentinel_host(struct world *world, uint32_t index)
{
    return sentinel_at(world, index)->host;
}

uint16_t
sentinel_port(struct world *world, uint32_t index)
{
    return server_port(world, sentinel_at(world, index)->number);
}

bool
server_is_sentinel(struct world *world, const struct machine *machine)
{
    for (uint32_t i = 0; i < world->plan.sentinels; i++)
        if (sentinel_at(world, i)->machine == machine)
            return true;
    return false;
}

static void
sentinel_adopt(struct server *sentinel, uint32_t master, uint64_t epoch)
{
    struct world *world = sentinel->world;
    const struct server *server = &world->servers[master];

    sentinel->names = master;
    sentinel->epoch = epoch;
    sentinel->missed_us = 0;
    fake_name_master(sentinel->fake, server->host, server_port(world, master));
}

/* It looks at the master. */
static void
sentinel_look(struct server *sentinel)
{
    struct world *world = sentinel->world;

    if (servers_meet(sentinel, &world->servers[sentinel->names]))
        sentinel->missed_us = 0;
    else if (sentinel->missed_us == 0)
        sentinel->missed_us = world->now_us;
}

/* Newer knowledge of another one. */
static void
sentinel_listen(struct server *sentinel)
{
    struct world *world = sentinel->world;

    for (uint32_t i = 0; i < world->plan.sentinels; i++) {
        const struct server *other = sentinel_at(world, i);
        if (other->epoch > sentinel->epoch && servers_meet(sentinel, other))
            sentinel_adopt(sentinel, other->names, other->epoch);
    }
}

static bool
sentinel_misses(const struct server *sentinel)
{
    return sentinel->missed_us > 0 &&
           sentinel->world->now_us > sentinel->missed_us + DOWN_AFTER_US;
}

/* Whether it goes along with `leader`. */
static bool
sentinel_agrees(const struct server *sentinel, const struct server *leader)
{
    return sentinel == leader ||
           (servers_meet(sentinel, leader) && sentinel->epoch <= leader->epoch);
}

static bool
majority_misses(const struct server *leader)
{
    uint32_t votes = 0;

    for (uint32_t i = 0; i < leader->world->plan.sentinels; i++) {
        const struct server *other = sentinel_at(leader->world, i);
        votes += sentinel_agrees(other, leader) && sentinel_misses(other);
    }
    return 2 * votes > leader->world->plan.sentinels;
}

/* The one that has most of what was written. */
static struct server *
best_replica(const struct server *leader)
{
    struct world *world = leader->world;
    struct server *best = NULL;

    for (uint32_t i = 0; i < server_count(world); i++) {
        struct server *server = &world->servers[i];
        if (server->master || server->demoted ||
            !servers_meet(leader, server) ||
            (best != NULL &&
                fake_replica_lag(best->fake) <= fake_replica_lag(server->fake)))
            continue;
        best = server;
    }
    return best;
}

static void
sentinels_elect(struct server *leader)
{
    struct world *world = leader->world;
    struct server *replica = best_replica(leader);
    uint32_t votes = 0;

    for (uint32_t i = 0; i < world->plan.sentinels; i++)
        votes += sentinel_agrees(sentinel_at(world, i), leader);
    if (replica == NULL || 2 * votes <= world->plan.sentinels ||
        leader->names != shard_master(world, 0)->number)
        return;
    server_takes_over(replica, false);
    uint64_t epoch = leader->epoch;
    for (uint32_t i = 0; i < world->plan.sentinels; i++)
        if (sentinel_agrees(sentinel_at(world, i), leader) &&
            sentinel_at(world, i) != leader)
            sentinel_adopt(sentinel_at(world, i), replica->number, epoch + 1);
    sentinel_adopt(leader, replica->number, epoch + 1);
}

void
sentinel_failover(struct world *world, uint32_t index)
{
    struct server *leader = sentinel_at(world, index);

    if (machine_runs(leader->machine) && !leader->machine->silent)
        sentinels_elect(leader);
}

/* An old master that it finds. */
static void
sentinel_sets_right(const struct server *sentinel)
{
    struct world *world = sentinel->world;

    for (uint32_t i = 0; i < server_count(world); i++) {
        struct server *server = &world->servers[i];
        if (server->demoted && sentinel->names != i &&
            servers_meet(sentinel, server) && world_odds(world, 8))
            server_follows(server);
    }
}

static void
sentinel_tick(void *arg, uint64_t data)
{
    struct server *sentinel = arg;
    struct world *world = sentinel->world;

    (void)data;
    if (machine_runs(sentinel->machine) && !sentinel->machine->silent) {
        sentinel_look(sentinel);
        sentinel_listen(sentinel);
        if (sentinel_misses(sentinel) && !world->healing &&
            world->plan.fault_weight[FAULT_failover] > 0 &&
            majority_misses(sentinel))
            sentinels_elect(sentinel);
        sentinel_sets_right(sentinel);
    }
    world_at(world, world->now_us + world_between(world, 300000, 700000),
        sentinel_tick, sentinel, 0);
}

void
sentinels_begin(struct world *world)
{
    for (uint32_t i = 0; i < world->plan.sentinels; i++) {
        struct server *sentinel = sentinel_at(world, i);
        sentinel_adopt(sentinel, 0, 1);
        sentinel_tick(sentinel, 0);
    }
}

void
server_asked(struct world *world, const struct machine *machine)
{
    for (uint32_t i = 0; world->plan.sentinels > 0 && i < server_count(world);
         i++) {
        const struct server *server = &world->servers[i];
        if (server->machine == machine && !server->master &&
            server->demoted_us > 0 &&
            world->now_us > server->demoted_us + TRUST_US)
            check_broken(world->check, PROMISE_TRUST, world->now_us,
                "%s is asked, though another one has been the master for "
                "%" PRIu64 " ms",
                machine->name, (world->now_us - server->demoted_us) / 1000);
    }
}

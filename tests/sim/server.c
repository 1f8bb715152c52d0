/*
 * Redis servers: a fake on a machine, wired to the network and to each other.
 *
 * Server i below plan.masters begins as the master of shard i; its replicas are
 * at i + masters, i + 2 * masters. Roles change; a shard does not. Messages
 * between Redis nodes (writes, the bus, the owners of slots) take the time of
 * packets and stop where packets stop.
 */
#include "tests/sim/server_state.h"

#include "daemon/base/assert.h"
#include "daemon/base/slot.h"
#include "daemon/store/wire/record.h"
#include "tests/sim/broker.h"
#include "tests/sim/check.h"
#include "tests/sim/faults.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PORT 7000

/* A bus message under way. */
struct bulletin {
    struct server *to; /* ref */
    size_t channel_len;
    size_t len;
    char bytes[];
};

uint32_t
server_count(const struct world *world)
{
    return world->plan.masters * (1 + world->plan.replicas);
}

static uint32_t
server_total(const struct world *world)
{
    return server_count(world) + world->plan.sentinels;
}

struct machine *
server_machine(struct world *world, uint32_t number)
{
    return world->servers[number].machine;
}

const char *
server_host(struct world *world, uint32_t number)
{
    return world->servers[number].host;
}

uint16_t
server_port(struct world *world, uint32_t number)
{
    (void)world;
    return (uint16_t)(PORT + number);
}

struct machine *
server_master(struct world *world)
{
    return shard_master(world, 0)->machine;
}

struct machine *
server_at(struct world *world, const char *host, uint16_t port)
{
    uint32_t number = (uint32_t)port - PORT;

    if (port < PORT || number >= server_total(world) ||
        strcmp(world->servers[number].host, host) != 0)
        return NULL;
    if (plan_named(&world->plan))
        return server_master(world);
    return world->servers[number].machine;
}

struct fake *
server_fake(struct world *world, uint32_t number)
{
    return world->servers[number].fake;
}

struct server *
shard_master(struct world *world, uint32_t shard)
{
    for (uint32_t i = 0; i < server_count(world); i++)
        if (world->servers[i].shard == shard && world->servers[i].master)
            return &world->servers[i];
    require(false);
    return NULL;
}

void
server_wind(struct server *server)
{
    fake_set_clock(server->fake, machine_real_us(server->machine));
}

/* --- connections ---------------------------------------------------------- */

static struct peer *
peer_of_net(struct server *server, uint32_t net_id)
{
    for (uint32_t i = 0; i < server->peer_count; i++)
        if (server->peers[i].net_id == net_id)
            return &server->peers[i];
    return NULL;
}

static struct peer *
peer_of_fake(struct server *server, uint32_t fake_id)
{
    for (uint32_t i = 0; i < server->peer_count; i++)
        if (server->peers[i].fake_id == fake_id)
            return &server->peers[i];
    return NULL;
}

static void
peer_remove(struct server *server, struct peer *peer)
{
    *peer = server->peers[--server->peer_count];
}

static void
server_bytes(void *arg, uint32_t id, const char *bytes, size_t len)
{
    struct server *server = arg;
    const struct peer *peer = peer_of_net(server, id);

    if (peer == NULL)
        return;
    server_wind(server);
    fake_input(server->fake, peer->fake_id, bytes, len);
}

static void
server_ended(void *arg, uint32_t id, enum net_end_reason reason)
{
    struct server *server = arg;
    struct peer *peer = peer_of_net(server, id);

    if (peer == NULL)
        return;
    uint32_t fake_id = peer->fake_id;
    peer_remove(server, peer);
    fake_hangup(server->fake, fake_id);
    if (reason == NET_EOF)
        net_close(server->world->net, id, server->machine);
}

static const struct net_user server_user = {
    .bytes = server_bytes,
    .ended = server_ended,
};

static bool
server_accept(void *arg, uint32_t id, const struct net_user **user,
    void **user_arg, uint64_t *silence_us)
{
    struct server *server = arg;

    if (server->peer_count == server->peer_capacity) {
        server->peer_capacity = 2 * server->peer_capacity + 8;
        server->peers = realloc(
            server->peers, server->peer_capacity * sizeof(*server->peers));
        require(server->peers != NULL);
    }
    server_wind(server);
    server->peers[server->peer_count++] =
        (struct peer){id, fake_accept(server->fake)};
    *user = &server_user;
    *user_arg = server;
    *silence_us = 300000000; /* tcp-keepalive */
    return true;
}

/* --- the sink of a fake --------------------------------------------------- */

static void
sink_send(void *arg, uint32_t connection, const char *bytes, size_t len)
{
    struct server *server = arg;
    const struct peer *peer = peer_of_fake(server, connection);

    if (peer != NULL)
        net_send(server->world->net, peer->net_id, server->machine, bytes, len);
}

static void
sink_closed(void *arg, uint32_t connection)
{
    struct server *server = arg;
    struct peer *peer = peer_of_fake(server, connection);

    if (peer == NULL)
        return;
    uint32_t id = peer->net_id;
    peer_remove(server, peer);
    net_close(server->world->net, id, server->machine);
}

bool
servers_meet(const struct server *a, const struct server *b)
{
    return machine_runs(a->machine) && machine_runs(b->machine) &&
           !a->machine->silent && !b->machine->silent &&
           !a->machine->blocked[b->machine->number];
}

static void
bulletin_arrives(void *arg, uint64_t data)
{
    struct bulletin *bulletin = arg;
    struct server *server = bulletin->to;

    (void)data;
    if (machine_runs(server->machine)) {
        server_wind(server);
        fake_publish(server->fake, bulletin->bytes, bulletin->channel_len,
            bulletin->bytes + bulletin->channel_len, bulletin->len);
    }
    free(bulletin);
}

static void
sink_bus(void *arg, const char *channel, size_t channel_len,
    const char *message, size_t len)
{
    struct server *server = arg;
    struct world *world = server->world;

    for (uint32_t i = 0; i < server_count(world); i++) {
        struct server *to = &world->servers[i];
        if (to == server || !servers_meet(server, to))
            continue;
        struct bulletin *bulletin =
            malloc(sizeof(*bulletin) + channel_len + len);
        require(bulletin != NULL);
        bulletin->to = to;
        bulletin->channel_len = channel_len;
        bulletin->len = len;
        memcpy(bulletin->bytes, channel, channel_len);
        memcpy(bulletin->bytes + channel_len, message, len);
        /* A link between two nodes is one connection, which keeps the order. */
        uint64_t *last_us = &server->bus_us[to->machine->number];
        uint64_t at_us = world->now_us + world->plan.latency_us +
                         world_below(world, 2 * world->plan.jitter_us + 1);
        *last_us = at_us > *last_us ? at_us : *last_us;
        world_at(world, *last_us, bulletin_arrives, bulletin, 0);
    }
}

/* A replica takes what has come to it; what comes later, later. */
static void
server_replicate(void *arg, uint64_t stage)
{
    struct server *replica = arg;
    struct world *world = replica->world;

    if (stage != replica->stage || replica->master)
        return;
    replica->replicating = false;
    uint64_t lag = fake_replica_lag(replica->fake);
    if (lag == 0)
        return;
    struct server *master = replica->follows;
    if (servers_meet(master, replica)) {
        server_wind(replica);
        fake_replica_apply(
            replica->fake, world_odds(world, 4) ? 1 + lag / 2 : lag);
        server_wind(master);
        (void)fake_wake(master->fake);
    }
    replica->replicating = true;
    world_at(world, world->now_us + 1000 + world_below(world, 5000),
        server_replicate, replica, stage);
}

/*
 * A question that was sent on by an ASK and was late. The slot has moved on
 * since, and comes back. So the node serves it again, though the key is still
 * in the node that the slot comes from. There are two records until that one
 * moves.
 */
static bool
wrote_astray(const struct server *server, const char *key, size_t key_len)
{
    struct world *world = server->world;
    const struct cluster *cluster = world->cluster;
    size_t len;

    return world->plan.cluster && cluster->moving &&
           server == shard_master(world, cluster->to) &&
           slot_of_key(text_make(key, key_len)) == cluster->slot &&
           fake_get(shard_master(world, cluster->from)->fake, key, key_len,
               &len) != NULL;
}

static void sink_waits(void *arg, uint64_t until_us);

/* Time has passed for a WAIT. */
static void
server_wake(void *arg, uint64_t life)
{
    struct server *server = arg;
    struct world *world = server->world;

    if (life != server->life || !server->machine->up)
        return;
    if (!machine_runs(server->machine)) {
        world_at(world, server->machine->stopped_until, server_wake, server,
            server->life);
        return;
    }
    server_wind(server);
    uint64_t until_us = fake_wake(server->fake);
    if (until_us > 0)
        sink_waits(server, until_us);
}

static void
sink_waits(void *arg, uint64_t until_us)
{
    struct server *server = arg;
    uint64_t real_us = machine_real_us(server->machine);

    world_at(server->world,
        server->world->now_us + (until_us > real_us ? until_us - real_us : 0),
        server_wake, server, server->life);
}

/* Something is there for the replica to take. */
static void
server_catches_up(struct server *replica)
{
    struct world *world = replica->world;

    if (replica->replicating)
        return;
    replica->replicating = true;
    world_at(world,
        world->now_us + world->plan.latency_us +
            world_below(world, 2 * world->plan.jitter_us + 1),
        server_replicate, replica, replica->stage);
}

/* It is a replica of its shard's master from now on, and takes a full copy if
 * need be. */
void
server_attach(struct server *replica)
{
    replica->follows = shard_master(replica->world, replica->shard);
    fake_replicate_from(replica->fake, replica->follows->fake);
    if (replica->world->plan.strict > 0)
        server_catches_up(replica);
}

static void
sink_wrote(void *arg, const char *key, size_t key_len, const char *value,
    size_t value_len)
{
    struct server *server = arg;
    struct world *world = server->world;

    if (server->master && wrote_astray(server, key, key_len)) {
        world_note(world, server->machine->name, "writes after a late ASK");
        check_excuse(world->check, FAULT_migrate);
    }
    /* Brokers that are with an old master trust it for a while. */
    if (server->demoted && world->plan.sentinels > 0) {
        check_excuse(world->check, FAULT_failover);
        check_excuse(world->check, FAULT_redis_stop);
    }
    if (server->master)
        check_record(world->check, server->machine, fake_repl_id(server->fake),
            key, key_len, value, value_len);
    else if (server->demoted)
        check_breaks(world->check, key, key_len, value, value_len);
    for (uint32_t i = 0; i < server_count(world); i++)
        if (world->servers[i].follows == server)
            server_catches_up(&world->servers[i]);
}

static const struct fake_sink server_sink = {
    .send = sink_send,
    .closed = sink_closed,
    .bus = sink_bus,
    .wrote = sink_wrote,
    .waits = sink_waits,
};

/* --- beginning and end ---------------------------------------------------- */

static void
server_create(struct world *world, uint32_t number)
{
    struct server *server = &world->servers[number];
    bool sentinel = number >= server_count(world);
    char name[20];

    if (sentinel)
        snprintf(
            name, sizeof(name), "sentinel-%u", number - server_count(world));
    else
        snprintf(name, sizeof(name), "redis-%u", number);
    server->world = world;
    server->number = number;
    server->shard = sentinel ? UINT32_MAX : number % world->plan.masters;
    server->master = number < world->plan.masters;
    server->machine = world_machine(world, name);
    server->machine->drift_ppm = (int64_t)world_between(world, 0, 2000) - 1000;
    server->machine->wall_us =
        (int64_t)world_between(world, 0, 2 * world->plan.skew_us) -
        (int64_t)world->plan.skew_us;
    snprintf(server->host, sizeof(server->host), "10.0.0.%u", number + 1);
    struct fake_settings settings = {
        .seed = random_next(&world->random),
        .sink = server_sink,
        .arg = server,
        .cluster = world->plan.cluster,
        .sentinel = sentinel,
        .port = server_port(world, number),
        .maxmemory_policy = "noeviction",
    };
    snprintf(settings.host, sizeof(settings.host), "%s", server->host);
    server->fake = fake_create(&settings);
    server_wind(server);
    net_listen(world->net, server->machine, server_accept, server);
}

/* The owners of slots, as every node that can be reached is told. */
void
server_learn(struct server *server)
{
    struct world *world = server->world;
    const struct fake *masters[WORLD_MACHINES];

    for (uint32_t i = 0; i < world->plan.masters; i++)
        masters[i] = shard_master(world, i)->fake;
    for (uint32_t slot = 0; slot < FAKE_SLOTS; slot++)
        fake_map_slot(
            server->fake, (uint16_t)slot, masters[world->cluster->shard[slot]]);
}

/* One that still takes itself for a master is known as nobody's replica. */
void
server_learn_replicas(struct server *server)
{
    struct world *world = server->world;

    fake_unmap_replicas(server->fake);
    for (uint32_t i = 0; i < server_count(world); i++)
        if (!world->servers[i].master && !world->servers[i].demoted)
            fake_map_replica(server->fake,
                shard_master(world, world->servers[i].shard)->fake,
                world->servers[i].fake);
}

void
servers_create(struct world *world)
{
    world->servers = calloc(server_total(world), sizeof(*world->servers));
    world->cluster = calloc(1, sizeof(*world->cluster));
    require(world->servers != NULL && world->cluster != NULL);
    world->cluster->world = world;
    for (uint32_t i = 0; i < FAKE_SLOTS; i++)
        world->cluster->shard[i] =
            (uint8_t)(i * world->plan.masters / FAKE_SLOTS);
    for (uint32_t i = 0; i < server_total(world); i++)
        server_create(world, i);
    for (uint32_t i = 0; i < server_count(world); i++) {
        struct server *server = &world->servers[i];
        if (!server->master) {
            server->follows = shard_master(world, server->shard);
            fake_replicate_from(server->fake, server->follows->fake);
        }
        if (!world->plan.cluster)
            continue;
        server_learn(server);
        server_learn_replicas(server);
    }
    sentinels_begin(world);
}

void
servers_destroy(struct world *world)
{
    for (uint32_t i = 0; i < server_total(world); i++) {
        fake_destroy(&world->servers[i].fake);
        free(world->servers[i].peers);
    }
    free(world->servers);
    free(world->cluster);
}

/* --- restart -------------------------------------------------------------- */

static void
server_loaded(void *arg, uint64_t life)
{
    struct server *server = arg;

    if (life == server->life)
        fake_set_mood(server->fake, FAKE_WELL);
}

/* Its connections are gone; nobody is told by the fake. */
void
server_dies(struct server *server)
{
    server->life++;
    server->stage++;
    server->replicating = false;
    server->peer_count = 0;
    server->machine->up = false;
    net_process_died(server->world->net, server->machine);
}

static void
server_rises(struct server *server, bool keep_data)
{
    struct world *world = server->world;

    server->machine->up = true;
    world->cluster->changed_us = world->now_us;
    server_wind(server);
    fake_restart(server->fake, keep_data);
    if (!keep_data)
        check_forgets(world->check, server->machine);
    /* Sentinels tell it, when they find it. */
    bool unaware = server->demoted && world->plan.sentinels > 0;
    server->demoted = unaware;
    for (uint32_t i = 0; i < server_count(world); i++) {
        struct server *other = &world->servers[i];
        bool left = other->follows == server && !server->master;
        if (other->shard == server->shard && !other->master &&
            (other == server ? !unaware
                             : (server->master || left) && other->machine->up))
            server_attach(other);
    }
    if (world->plan.cluster) {
        server_learn(server);
        server_learn_replicas(server);
    }
    fake_set_mood(server->fake, FAKE_LOADING);
    world_at(world, world->now_us + world_below(world, 300000), server_loaded,
        server, server->life);
    world_note(world, server->machine->name, "is up again");
}

void
server_back(void *arg, uint64_t data)
{
    struct server *server = arg;

    if (data >> 1 == server->life && !server->machine->up)
        server_rises(server, (data & 1) != 0);
}

void
servers_lost(struct world *world, enum fault cause)
{
    check_excuse(
        world->check, plan_settles(&world->plan) ? FAULT_redis_restart : cause);
}

void
server_restart(struct world *world, uint32_t number, bool keep_data)
{
    struct server *server = &world->servers[number];

    if (!server->machine->up)
        return;
    if (!keep_data && server->master)
        servers_lost(world, FAULT_wiped);
    world_note(world, server->machine->name, "is killed, data %s",
        keep_data ? "kept" : "lost");
    server_dies(server);
    world_at(world,
        world->now_us + world_between(world, 1000,
                            world_odds(world, 4) ? 8000000 : 1000000),
        server_back, server, (uint64_t)server->life << 1 | keep_data);
}

/* --- all of them ---------------------------------------------------------- */

void
servers_flush(struct world *world, bool held)
{
    if (held)
        check_excuse(world->check, FAULT_wiped);
    for (uint32_t i = 0; i < world->plan.masters; i++) {
        struct server *server = shard_master(world, i);
        world_note(world, server->machine->name, "FLUSHALL");
        server_wind(server);
        fake_flush_all(server->fake);
        check_forgets(world->check, server->machine);
    }
}

static bool
key_is_lock(const char *key, size_t key_len)
{
    return memchr(key, '{', key_len) == key + sizeof("holdfast:") - 1;
}

/* Living tickets of a record: DESIGN.md D1.3. */
static uint32_t
record_live(const char *value, size_t len)
{
    uint32_t live = 0;

    if (len >= BYTES_HEAD)
        memcpy(&live, value + AT_HEAD_LIVE, sizeof(live));
    return live;
}

/*
 * Whether Redis forgets a record, by the clock that it has now, while a client
 * may believe in a ticket there. No client does so a lease later, unless the
 * record was renewed, and has time again. Each one has half of
 * redis.forget_after where it is renewed; but that is gone with one long step
 * as with several that come before the next renewal.
 */
static bool
server_forgets(const struct server *server)
{
    const struct world *world = server->world;
    uint64_t real_ms = machine_real_us(server->machine) / 1000;
    int64_t least_ms = (int64_t)(real_ms + world->plan.lease_ms);
    const char *key;
    const char *value;
    size_t key_len;
    size_t len;

    for (size_t at = 0;
         fake_key(server->fake, at, &key, &key_len, &value, &len); at++)
        if (key_is_lock(key, key_len) && record_live(value, len) > 0 &&
            fake_key_expires_ms(server->fake, at) < least_ms)
            return true;
    return false;
}

void
server_jump(struct world *world, uint32_t number, int64_t us)
{
    struct server *server = &world->servers[number];

    world_note(world, server->machine->name, "clock jumps by %" PRId64 " ms",
        us / 1000);
    server->machine->wall_us += us;
    check_clock_set(world->check);
    if (us > 0 && server_forgets(server))
        check_excuse(world->check, FAULT_clock_forward);
    servers_lost(world, us > 0 ? FAULT_clock_forward : FAULT_clock_back);
}

void
servers_set_back(struct world *world, uint64_t us)
{
    world_note(world, "world", "all clocks are set back");
    for (uint32_t i = 0; i < server_count(world); i++)
        world->servers[i].machine->wall_us -= (int64_t)us;
    for (uint32_t i = 0; i < world->plan.brokers; i++)
        broker_machine(world, i)->wall_us -= (int64_t)us;
}

void
servers_rename(struct world *world)
{
    for (uint32_t i = 0; i < world->plan.masters; i++) {
        struct fake *fake = shard_master(world, i)->fake;
        uint64_t words[3];
        char id[49];
        for (size_t j = 0; j < 3; j++)
            words[j] = random_next(&world->random);
        text_to_hex(id, (const uint8_t *)words, sizeof(words));
        id[40] = '\0';
        fake_set_ids(fake, fake_run_id(fake), id);
    }
}

void
servers_refuse(struct world *world, enum fake_mood mood)
{
    for (uint32_t i = 0; i < server_count(world); i++)
        fake_set_mood(world->servers[i].fake, mood);
}

void
servers_heal(struct world *world)
{
    servers_refuse(world, FAKE_WELL);
    servers_hear(world);
}

void
servers_check_idle(struct world *world)
{
    for (uint32_t i = 0; i < world->plan.masters; i++) {
        struct server *server = shard_master(world, i);
        const char *key;
        const char *value;
        size_t key_len;
        size_t len;
        server_wind(server);
        for (size_t at = 0;
             fake_key(server->fake, at, &key, &key_len, &value, &len); at++)
            if (key_is_lock(key, key_len) && record_live(value, len) > 0)
                check_broken(world->check, PROMISE_CLEAN, 0,
                    "%s has %u tickets in %.*s", server->machine->name,
                    record_live(value, len), (int)key_len, key);
    }
}

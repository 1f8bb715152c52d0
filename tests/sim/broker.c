/*
 * A broker: engine, network, time. net.h takes the place of daemon/io's
 * sockets. Nothing is decided here.
 *
 * A turn begins with the first thing that happens to the broker and ends a
 * moment later, when the engine is moved and what it wants is sent. Between,
 * more may come, and the process may be stopped.
 */
#include "tests/sim/broker.h"

#include "daemon/base/assert.h"
#include "daemon/core/model/state.h"
#include "daemon/driver/engine.h"
#include "daemon/store/model/state.h"
#include "proto/request.h"
#include "tests/sim/check.h"
#include "tests/sim/reply.h"
#include "tests/sim/server.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SESSIONS_MAX 256
#define PARTIAL_MAX  (PROTO_LINE_MAX + (1 << 16))

/* A client's connection. */
struct guest {
    uint32_t net_id; /* 0: none */
    struct engine_input input;
    bool closing; /* its session has ended; our FIN is due */
    bool more;    /* wants CORE_MORE */
    bool eof;
    uint32_t partial_len;
    char *partial; /* owned */
    char *out;     /* owned; of this turn */
    size_t out_len;
    size_t out_capacity;
};

/* A connection to a Redis. */
struct wire {
    uint32_t net_id; /* 0: none */
    bool open;
    struct store_conn conn;
    const struct machine *machine; /* ref; to which it goes */
    char *in;                      /* owned */
    size_t in_len;
    size_t in_capacity;
};

struct broker {
    struct world *world; /* ref */
    struct machine *machine;
    uint32_t number;
    uint32_t lease_ms;
    uint32_t settle_ms;
    bool old;     /* it runs by an earlier configuration */
    bool running; /* the engine is there */
    struct engine engine;
    struct counters counters;
    struct counters before; /* of its predecessors */
    struct guest guests[SESSIONS_MAX];
    struct guest *by_session[2 * SESSIONS_MAX]; /* core_sessions_room() */
    struct wire wires[STORE_CONNS];
    bool turning;
    uint64_t turn_serial;
    uint64_t wake_serial;
    uint64_t wake_us; /* boot clock; WHEEL_NEVER */
    uint64_t life;
};

static void broker_turn(void *arg, uint64_t serial);

struct machine *
broker_machine(struct world *world, uint32_t number)
{
    return world->brokers[number].machine;
}

/* Something happens to the broker: a turn begins, if none has. */
static uint64_t
broker_now(struct broker *broker)
{
    struct world *world = broker->world;

    if (broker->turning)
        return engine_now(&broker->engine);
    broker->turning = true;
    uint64_t takes_us = world_below(world, 60);
    if (world_odds(world, 300))
        takes_us = world_below(world, 5000);
    world_at(world, world->now_us + takes_us, broker_turn, broker,
        ++broker->turn_serial);
    return engine_now(&broker->engine);
}

/* An engine's step is of a turn. */
static void
broker_step(struct broker *broker, struct core_event *event)
{
    (void)broker_now(broker);
    engine_step(&broker->engine, event);
}

/* --- clients -------------------------------------------------------------- */

static void
guest_forget(struct broker *broker, struct guest *guest)
{
    if (guest->input.session.generation != 0 &&
        broker->by_session[guest->input.session.index] == guest)
        broker->by_session[guest->input.session.index] = NULL;
    free(guest->partial);
    free(guest->out);
    memset(guest, 0, sizeof(*guest));
}

static struct guest *
guest_of_net(struct broker *broker, uint32_t id)
{
    for (uint32_t i = 0; i < SESSIONS_MAX; i++)
        if (broker->guests[i].net_id == id)
            return &broker->guests[i];
    return NULL;
}

static void
guest_step(
    struct broker *broker, const struct guest *guest, enum core_event_kind kind)
{
    struct core_event event = {.kind = kind, .session = guest->input.session};

    broker_step(broker, &event);
}

static void
guest_bytes(void *arg, uint32_t id, const char *bytes, size_t len)
{
    struct broker *broker = arg;
    struct guest *guest = guest_of_net(broker, id);

    if (guest == NULL || guest->closing || guest->eof)
        return;
    (void)broker_now(broker);
    if (guest->partial == NULL) {
        guest->partial = malloc(PARTIAL_MAX);
        require(guest->partial != NULL);
    }
    require(guest->partial_len + len <= PARTIAL_MAX);
    memcpy(guest->partial + guest->partial_len, bytes, len);
    guest->partial_len += (uint32_t)len;
    bool late = false;
    size_t done = engine_take(&broker->engine, &guest->input, guest->partial,
        guest->partial_len, true, &late);
    require(!late); /* time stands still in a step */
    if (guest->net_id != id || guest->closing)
        return;
    guest->partial_len -= (uint32_t)done;
    memmove(guest->partial, guest->partial + done, guest->partial_len);
}

static void
guest_ended(void *arg, uint32_t id, enum net_end_reason reason)
{
    struct broker *broker = arg;
    struct guest *guest = guest_of_net(broker, id);

    if (guest == NULL)
        return;
    if (reason == NET_EOF && !guest->closing) {
        guest->eof = true;
        guest_step(broker, guest, CORE_EOF);
        return;
    }
    if (!guest->closing) {
        struct core_event event = {
            .kind = CORE_DROP, .session = guest->input.session};
        guest_forget(broker, guest);
        broker_step(broker, &event);
        return;
    }
    guest_forget(broker, guest);
}

static const struct net_user guest_user = {
    .bytes = guest_bytes,
    .ended = guest_ended,
};

static bool
broker_accept(void *arg, uint32_t id, const struct net_user **user,
    void **user_arg, uint64_t *silence_us)
{
    struct broker *broker = arg;
    struct guest *guest = guest_of_net(broker, 0);
    struct core_event event = {.kind = CORE_OPEN};
    uint64_t secret[2] = {random_next(&broker->world->random),
        random_next(&broker->world->random)};

    if (!broker->running || engine_stopping(&broker->engine) || guest == NULL)
        return false;
    memcpy(event.open.id, secret, sizeof(secret));
    event.open.peer = "10.1.0.1:1";
    event.open.silence_us = (uint64_t)broker->world->plan.silence_ms * 1000;
    (void)broker_now(broker);
    engine_carry_out(&broker->engine);
    guest->net_id = id;
    engine_step(&broker->engine, &event);
    if (handle_equal(event.session, HANDLE_NONE)) {
        guest->net_id = 0;
        return false;
    }
    guest->input.session = event.session;
    broker->by_session[event.session.index] = guest;
    *user = &guest_user;
    *user_arg = broker;
    *silence_us = (uint64_t)broker->world->plan.silence_ms * 1000 +
                  world_below(broker->world, 1000000);
    return true;
}

/* --- the engine's sink ---------------------------------------------------- */

static struct guest *
guest_of_session(struct broker *broker, struct handle session)
{
    struct guest *guest = broker->by_session[session.index];

    return guest != NULL && handle_equal(guest->input.session, session) ? guest
                                                                        : NULL;
}

static void
guest_say(struct guest *guest, const char *text, size_t len)
{
    if (guest->out_len + len > guest->out_capacity) {
        guest->out_capacity = 2 * (guest->out_len + len) + 256;
        guest->out = realloc(guest->out, guest->out_capacity);
        require(guest->out != NULL);
    }
    memcpy(guest->out + guest->out_len, text, len);
    guest->out_len += len;
}

static uint64_t
sink_clock(void *arg)
{
    const struct broker *broker = arg;

    return machine_boot_us(broker->machine);
}

static void
sink_effect(void *arg, const struct effect *effect)
{
    struct broker *broker = arg;
    struct guest *guest = guest_of_session(broker, effect->session);

    if (effect->kind == EFFECT_HOOK)
        check_finding(broker->world->check, broker->machine->name,
            broker->engine.effects.text + effect->offset, effect->len);
    if (guest == NULL)
        return;
    switch (effect->kind) {
    case EFFECT_HOOK: /* has no guest */
        break;
    case EFFECT_LINE:
        guest_say(
            guest, broker->engine.effects.text + effect->offset, effect->len);
        break;
    case EFFECT_MORE:
        guest->more = true;
        break;
    case EFFECT_CLOSE:
        broker->by_session[effect->session.index] = NULL;
        guest->closing = true;
        guest->input.deaf = true;
        break;
    }
}

static void
sink_written(void *arg)
{
    struct broker *broker = arg;
    struct net *net = broker->world->net;

    for (uint32_t i = 0; i < SESSIONS_MAX; i++) {
        struct guest *guest = &broker->guests[i];
        if (guest->net_id == 0)
            continue;
        if (guest->out_len > 0)
            net_send(net, guest->net_id, broker->machine, guest->out,
                guest->out_len);
        guest->out_len = 0;
        if (guest->closing) {
            net_close(net, guest->net_id, broker->machine);
            guest_forget(broker, guest);
        }
    }
}

static bool
sink_settle(void *arg)
{
    struct broker *broker = arg;
    bool some = false;

    for (uint32_t i = 0; i < SESSIONS_MAX; i++) {
        struct guest *guest = &broker->guests[i];
        if (!guest->more)
            continue;
        guest->more = false;
        guest_step(broker, guest, CORE_MORE);
        some = true;
    }
    return some;
}

static const struct engine_sink broker_sink = {
    .clock = sink_clock,
    .effect = sink_effect,
    .written = sink_written,
    .settle = sink_settle,
};

/* --- Redis ---------------------------------------------------------------- */

static struct wire *
wire_of_net(struct broker *broker, uint32_t id)
{
    for (uint32_t i = 0; i < STORE_CONNS; i++)
        if (broker->wires[i].net_id == id)
            return &broker->wires[i];
    return NULL;
}

static void
wire_close(struct broker *broker, struct wire *wire)
{
    if (wire->net_id != 0)
        net_close(broker->world->net, wire->net_id, broker->machine);
    wire->net_id = 0;
    wire->open = false;
    wire->in_len = 0;
}

static void
wire_opened(void *arg, uint32_t id)
{
    struct broker *broker = arg;
    struct wire *wire = wire_of_net(broker, id);

    if (wire == NULL)
        return;
    wire->open = true;
    (void)broker_now(broker);
    engine_conn_connected(&broker->engine, wire->conn);
}

static void
wire_bytes(void *arg, uint32_t id, const char *bytes, size_t len)
{
    struct broker *broker = arg;
    struct wire *wire = wire_of_net(broker, id);
    const struct resp *reply;
    size_t used;
    size_t done = 0;

    if (wire == NULL)
        return;
    if (wire->in_len + len > wire->in_capacity) {
        wire->in_capacity = 2 * (wire->in_len + len) + 4096;
        wire->in = realloc(wire->in, wire->in_capacity);
        require(wire->in != NULL);
    }
    memcpy(wire->in + wire->in_len, bytes, len);
    wire->in_len += len;
    while (wire->net_id == id && (used = reply_parse(wire->in + done,
                                      wire->in_len - done, &reply)) > 0) {
        done += used;
        (void)broker_now(broker);
        engine_reply(&broker->engine, wire->conn, reply);
    }
    wire->in_len -= done;
    memmove(wire->in, wire->in + done, wire->in_len);
}

static void
wire_ended(void *arg, uint32_t id, enum net_end_reason reason)
{
    struct broker *broker = arg;
    struct wire *wire = wire_of_net(broker, id);

    if (wire == NULL)
        return;
    if (reason == NET_EOF)
        net_close(broker->world->net, id, broker->machine);
    wire->net_id = 0;
    wire->open = false;
    wire->in_len = 0;
    (void)broker_now(broker);
    engine_conn_lost(
        &broker->engine, wire->conn, HEALTH_CLOSED, "it has ended");
}

static const struct net_user wire_user = {
    .opened = wire_opened,
    .bytes = wire_bytes,
    .ended = wire_ended,
};

static void
broker_carry_out(struct broker *broker)
{
    struct store *store = broker->engine.store;
    struct store_wish wish;

    while (store_take_wish(store, &wish)) {
        struct wire *wire = &broker->wires[wish.conn.index];
        wire_close(broker, wire);
        wire->conn = wish.conn;
        if (wish.kind != WISH_CONNECT)
            continue;
        struct machine *to =
            server_at(broker->world, wish.address->host, wish.address->port);
        require(to != NULL);
        wire->machine = to;
        wire->net_id = net_connect(broker->world->net, broker->machine, to,
            &wire_user, broker,
            (uint64_t)broker->world->plan.command_timeout_ms * 1000);
    }
    for (uint32_t i = 0; store_next_output(store, &i); i++) {
        struct wire *wire = &broker->wires[i];
        struct buffer *out = store_conn_output(store, i);
        if (!wire->open)
            continue;
        /* Bytes that were about to be sent when it was stopped are sent late.
         */
        if (broker->machine->stopped_until + 1000 < broker->world->now_us &&
            memmem(buffer_data(out), buffer_len(out), "EVALSHA", 7) != NULL)
            server_asked(broker->world, wire->machine);
        net_send(broker->world->net, wire->net_id, broker->machine,
            buffer_data(out), buffer_len(out));
        buffer_clear(out);
    }
}

/* --- turns ---------------------------------------------------------------- */

static void broker_wake(void *arg, uint64_t serial);

static void
broker_set_timer(struct broker *broker, bool idle)
{
    struct world *world = broker->world;
    uint64_t next_us = idle ? engine_next_us(&broker->engine) : 0;

    if (next_us == broker->wake_us && next_us != 0)
        return;
    broker->wake_us = next_us;
    broker->wake_serial++;
    if (next_us == WHEEL_NEVER)
        return;
    uint64_t at_us = machine_when(broker->machine, next_us);
    /* libevent's timers are coarse. */
    world_at(world, at_us + world_below(world, 200), broker_wake, broker,
        broker->wake_serial);
}

static void
broker_end(struct broker *broker)
{
    for (uint32_t i = 0; i < SESSIONS_MAX; i++)
        guest_forget(broker, &broker->guests[i]);
    for (uint32_t i = 0; i < STORE_CONNS; i++)
        free(broker->wires[i].in);
    memset(broker->wires, 0, sizeof(broker->wires));
    engine_fini(&broker->engine);
    broker->running = false;
    broker->turning = false;
    broker->turn_serial++;
    broker->wake_serial++;
    broker->life++;
}

static void
broker_rise(void *arg, uint64_t life)
{
    struct broker *broker = arg;

    if (life == broker->life && !broker->running)
        broker_start(broker->world, broker->number);
}

static void
broker_exit(struct broker *broker)
{
    struct world *world = broker->world;

    world_note(world, broker->machine->name, "exits");
    broker->machine->up = false;
    net_process_died(world->net, broker->machine);
    broker_end(broker);
    world_at(world, world->now_us + world_between(world, 1000, 3000000),
        broker_rise, broker, broker->life);
}

static bool
broker_over(const struct broker *broker)
{
    return engine_stopping(&broker->engine) &&
           (core_stopped(broker->engine.core) ||
               engine_impatient(&broker->engine));
}

static void
broker_turn(void *arg, uint64_t serial)
{
    struct broker *broker = arg;
    struct machine *machine = broker->machine;

    if (serial != broker->turn_serial || !broker->running)
        return;
    if (machine->stopped_until > broker->world->now_us) {
        world_at(
            broker->world, machine->stopped_until, broker_turn, broker, serial);
        return;
    }
    bool idle = engine_move(&broker->engine, machine_real_us(machine));
    broker_carry_out(broker);
    broker->turning = false;
    engine_turn_over(&broker->engine);
    if (broker_over(broker))
        broker_exit(broker);
    else
        broker_set_timer(broker, idle);
}

static void
broker_wake(void *arg, uint64_t serial)
{
    struct broker *broker = arg;

    if (serial != broker->wake_serial || !broker->running)
        return;
    if (broker->machine->stopped_until > broker->world->now_us) {
        world_at(broker->world, broker->machine->stopped_until, broker_wake,
            broker, serial);
        return;
    }
    broker->wake_us = 0;
    (void)broker_now(broker);
}

/* --- audits --------------------------------------------------------------- */

/* Of all locks. Nothing is broken any more when all heals. */
static struct audit_limits
audit_limits(const struct world *world)
{
    const struct plan *plan = &world->plan;

    return (struct audit_limits){
        .warn_ms = plan->warn_ms,
        .wait_ms = plan->wait_ms,
        .break_ms = world->healing ? 0 : plan->break_ms,
    };
}

void
brokers_heal(struct world *world)
{
    struct audit_limits limits = audit_limits(world);

    for (uint32_t i = 0; i < world->plan.brokers; i++) {
        struct core *core = world->brokers[i].engine.core;
        if (!world->brokers[i].running || world->plan.audit_ms == 0)
            continue;
        struct core_settings settings = core->settings;
        settings.audit_limits = &limits;
        core_configure(core, &settings);
    }
}

/* --- beginning and end ---------------------------------------------------- */

static void
broker_settings(struct broker *broker, struct core_settings *core,
    struct store_settings *store)
{
    struct world *world = broker->world;
    const struct plan *plan = &world->plan;

    snprintf(core->broker_id, sizeof(core->broker_id), "b%03u%04x",
        broker->number, (unsigned)world_below(world, 65536));
    memcpy(core->key_prefix, "holdfast", sizeof("holdfast"));
    core->server = "holdfastd/sim";
    core->seed = random_next(&world->random);
    core->hash_seed[0] = random_next(&world->random);
    core->hash_seed[1] = random_next(&world->random);
    core->lease_ms = broker->lease_ms;
    core->redis_timeout_us = (uint64_t)plan->redis_timeout_ms * 1000;
    core->command_timeout_us = (uint64_t)plan->command_timeout_ms * 1000;
    core->stop_grace_us = (uint64_t)plan->stop_grace_ms * 1000;
    /* Usually all that takes any time, so that it is looked at. */
    core->slow_us = plan->slow_ms == 1 ? 1 : (uint64_t)plan->slow_ms * 1000;
    core->line_max = plan->line;
    core->name_max = plan->name;
    core->sessions_max = SESSIONS_MAX;
    core->output_max = plan->output;
    core->outstanding_max = plan->outstanding;
    core->holds_max = plan->holds;
    core->tickets_max = plan->tickets;
    core->requests_max = plan->requests;
    bool watched = plan->sentinels > 0;
    store->topology = watched             ? STORE_SENTINEL
                      : plan->cluster     ? STORE_CLUSTER
                      : plan->quorum != 0 ? STORE_QUORUM
                                          : STORE_SINGLE;
    core->no_semaphores = plan->quorum != 0;
    core->queues_here = plan->quorum != 0;
    core->releases_kept = plan->quorum != 0 ? 0 : 256;
    core->audit_interval_us = (uint64_t)plan->audit_ms * 1000;
    core->audit_pause_us = (uint64_t)plan->audit_pause_ms * 1000;
    core->audit_keys = plan->audit_keys;
    core->audit_hook = true;
    store->node_count = watched ? plan->sentinels : plan->masters;
    for (uint32_t i = 0; i < store->node_count; i++) {
        snprintf(store->nodes[i].host, sizeof(store->nodes[i].host), "%s",
            watched ? sentinel_host(world, i) : server_host(world, i));
        store->nodes[i].port =
            watched ? sentinel_port(world, i) : server_port(world, i);
    }
    memcpy(store->sentinel_master, "mymaster", sizeof("mymaster"));
    memcpy(store->key_prefix, core->key_prefix, sizeof(store->key_prefix));
    memcpy(store->broker_id, core->broker_id, sizeof(store->broker_id));
    store->expiry_ms = CORE_EXPIRY_MS;
    store->settle_us = (uint64_t)broker->settle_ms * 1000;
    store->lease_ms = plan->peers > 0 ? broker->lease_ms : 0;
    store->strict = plan->strict > 0;
    store->replicas = plan->cluster || plan->least_replicas > 0
                          ? plan->least_replicas
                          : plan->replicas;
    store->waiters_max = plan->waiters;
    store->forget_after_ms = plan_forget_ms(plan);
    store->idle_after_ms = plan_idle_ms(plan);
    store->connect_timeout_us = (uint64_t)plan->connect_timeout_ms * 1000;
    store->command_timeout_us = core->command_timeout_us;
    store->silence_us = (uint64_t)broker->lease_ms * 1000 / 3;
    store->batch = plan->batch;
    store->in_flight = plan->in_flight > 0 ? plan->in_flight
                       : plan->cluster     ? 64
                                           : 4;
    store->seed = random_next(&world->random);
}

void
broker_start(struct world *world, uint32_t number)
{
    struct broker *broker = &world->brokers[number];
    struct core_settings core = {0};
    struct audit_limits limits = audit_limits(world);
    struct store_settings *store = calloc(1, sizeof(*store));

    require(!broker->running && store != NULL);
    broker_settings(broker, &core, store);
    core.audit_limits = &limits;
    for (size_t i = 0; i < COUNTER_COUNT; i++)
        broker->before.value[i] += broker->counters.value[i];
    memset(&broker->counters, 0, sizeof(broker->counters));
    bool there = engine_init(
        &broker->engine, &core, store, &broker->counters, &broker_sink, broker);
    require(there);
    free(store);
    broker->running = true;
    broker->old = false;
    broker->machine->up = true;
    broker->wake_us = WHEEL_NEVER;
    world_note(world, broker->machine->name, "starts as %s", core.broker_id);
    (void)broker_now(broker);
}

void
brokers_create(struct world *world)
{
    world->brokers = calloc(world->plan.brokers, sizeof(*world->brokers));
    require(world->brokers != NULL);
    for (uint32_t i = 0; i < world->plan.brokers; i++) {
        struct broker *broker = &world->brokers[i];
        char name[20];
        snprintf(name, sizeof(name), "broker-%u", i);
        broker->world = world;
        broker->number = i;
        broker->lease_ms = world->plan.lease_ms;
        broker->settle_ms = world->plan.settle_ms;
        broker->machine = world_machine(world, name);
        broker->machine->drift_ppm =
            (int64_t)world_between(world, 0, 4000) - 2000;
        net_listen(world->net, broker->machine, broker_accept, broker);
        broker_start(world, i);
    }
}

void
brokers_destroy(struct world *world)
{
    for (uint32_t i = 0; i < world->plan.brokers; i++)
        if (world->brokers[i].running)
            broker_end(&world->brokers[i]);
    free(world->brokers);
}

void
broker_kill(struct world *world, uint32_t number)
{
    struct broker *broker = &world->brokers[number];

    if (broker->running) {
        world_note(world, broker->machine->name, "is killed");
        broker_exit(broker);
    }
}

void
broker_configure(
    struct world *world, uint32_t number, uint32_t lease_ms, uint32_t settle_ms)
{
    struct broker *broker = &world->brokers[number];

    broker->lease_ms = lease_ms;
    broker->settle_ms = settle_ms;
    broker->old = broker->running;
}

void
broker_kill_old(struct world *world, uint32_t number)
{
    if (world->brokers[number].old)
        broker_kill(world, number);
}

void
broker_drain(struct world *world, uint32_t number)
{
    struct broker *broker = &world->brokers[number];
    if (!broker->running || engine_stopping(&broker->engine))
        return;
    world_note(world, broker->machine->name, "drains");
    (void)broker_now(broker);
    engine_stop(&broker->engine);
}

bool
broker_ready(const struct world *world, uint32_t number)
{
    const struct broker *broker = &world->brokers[number];

    return broker->running && store_ready(broker->engine.store);
}

/* Those of the servers that it knows to be masters. */
static bool
broker_settled(const struct broker *broker)
{
    const struct store *store = broker->engine.store;
    bool quorum = broker->world->plan.quorum != 0;

    if (!broker->running || (!quorum && store->slots_mapped < SLOT_COUNT))
        return false;
    for (uint16_t i = 0; i < store->node_count; i++)
        if (store->nodes[i].used && (quorum || store->nodes[i].mapped) &&
            (store->conns[i].state < CONN_READY ||
                store->conns[i].history.state != HISTORY_SETTLED))
            return false;
    return true;
}

bool
brokers_settled(const struct world *world)
{
    for (uint32_t i = 0; i < world->plan.brokers; i++)
        if (!broker_settled(&world->brokers[i]))
            return false;
    return true;
}

bool
broker_reclaims(const struct world *world, uint32_t number)
{
    const struct broker *broker = &world->brokers[number];

    if (!broker->running)
        return false;
    const struct slab *ops = &broker->engine.core->ops;
    for (uint32_t i = 0; i < ops->touched; i++) {
        const struct op *op = slab_at(ops, i);
        if (op != NULL && op->kind == OP_RECLAIM)
            return true;
    }
    return false;
}

void
broker_add_counters(struct world *world, uint32_t number, uint64_t *counters)
{
    const struct broker *broker = &world->brokers[number];

    for (size_t i = 0; i < COUNTER_COUNT; i++)
        counters[i] += broker->before.value[i] + broker->counters.value[i];
}

bool
broker_asks(struct world *world, uint32_t number)
{
    const struct broker *broker = &world->brokers[number];
    struct core_totals totals = {0};

    if (broker->running)
        core_totals(broker->engine.core, &totals);
    return totals.ops > 0;
}

void
broker_check_idle(struct world *world, uint32_t number)
{
    struct broker *broker = &world->brokers[number];
    struct core_totals totals;

    if (!broker->running)
        return;
    core_totals(broker->engine.core, &totals);
    for (uint32_t i = 0; i < SESSIONS_MAX; i++)
        if (broker->guests[i].net_id != 0)
            world_note(world, broker->machine->name,
                "connection %u is there still%s%s",
                broker->guests[i].net_id & 65535,
                broker->guests[i].eof ? ", half closed" : "",
                broker->guests[i].closing ? ", closing" : "");
    core_check(broker->engine.core);
    store_check(broker->engine.store);
    if (totals.sessions > 0 || totals.tickets > 0 || totals.requests > 0 ||
        totals.ops > 0 || totals.locks > 0)
        check_broken(world->check, PROMISE_CLEAN, 0,
            "%s has sessions=%u tickets=%u requests=%u ops=%u locks=%u",
            broker->machine->name, totals.sessions, totals.tickets,
            totals.requests, totals.ops, totals.locks);
}

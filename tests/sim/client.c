/*
 * Clients: the process and its connection, keeping deadlines, and the end of a
 * run with its checks. All clients give back, each gets each lock once, and
 * drills follow (drill.h).
 *
 * A scheduled action carries a serial, so that the leftovers of an ended
 * process or connection do nothing. While a machine is stopped its events are
 * put off until it runs again.
 */
#include "tests/sim/drill.h"

#include "daemon/base/assert.h"
#include "tests/sim/broker.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BACK_US    5000000
#define SILENCE_US 12000000 /* a PING without an answer for so long */
#define PING_US    2000     /* PINGs are no closer */
#define TICK_US    500000   /* winding up */

static void client_connect(void *arg, uint64_t data);
static void fleet_event(void *arg, uint64_t data);

void
fleet_look(struct fleet *fleet)
{
    world_at(fleet->world, fleet->world->now_us, fleet_event, fleet, 0);
}

/* Puts an event of a stopped process off; true: not now. */
static bool
put_off(struct client *client, world_call *call, uint64_t data)
{
    if (client->machine->stopped_until <= client->world->now_us)
        return false;
    world_at(client->world, client->machine->stopped_until, call, client, data);
    return true;
}

uint64_t
client_patience_us(const struct client *client)
{
    const struct plan *plan = &client->world->plan;

    return (uint64_t)plan->command_timeout_ms * 3000 +
           8 * (plan->latency_us + 2 * plan->jitter_us) + 2000000;
}

/* --- deadlines ------------------------------------------------------------ */

/* Asks what remains, where that is due. */
static void
client_keep(struct client *client)
{
    uint64_t now_us = machine_boot_us(client->machine);
    bool survey;

    if (client->link != LINK_OPEN || client->finishing ||
        !tasks_hold(client, &survey))
        return;
    if (client->ping != 0) {
        if (now_us >= client->ping_sent_us + SILENCE_US)
            client_hang_up(client, true);
        return;
    }
    if (now_us < client->ping_due_us)
        return;
    client->ping_due_us = now_us + PING_US;
    struct request *request =
        wire_begin(client, survey ? VERB_HELD : VERB_PING, NULL);
    if (request == NULL)
        return;
    wire_end(client);
    client->ping = request->serial;
    client->ping_sent_us = now_us;
    client->ping_due_us =
        now_us + (uint64_t)plan_least_lease_ms(&client->world->plan) * 500;
}

static void
client_watch(void *arg, uint64_t data)
{
    struct client *client = arg;

    if (data != client->watch || !client->machine->up ||
        put_off(client, client_watch, data))
        return;
    client->watch_us = UINT64_MAX;
    tasks_expire(client);
    client_keep(client);
    client_arm(client);
    wire_flush(client);
}

void
client_arm(struct client *client)
{
    uint64_t due_us = tasks_due_us(client);
    bool survey;

    if (client->link == LINK_OPEN && !client->finishing &&
        tasks_hold(client, &survey)) {
        uint64_t ping_us = client->ping != 0 ? client->ping_sent_us + SILENCE_US
                                             : client->ping_due_us;
        uint64_t least_us = machine_boot_us(client->machine) + PING_US / 4;
        if (ping_us < least_us)
            ping_us = least_us;
        if (ping_us < due_us)
            due_us = ping_us;
    }
    if (due_us >= client->watch_us || !client->machine->up)
        return;
    client->watch_us = due_us;
    world_at(client->world, machine_when(client->machine, due_us), client_watch,
        client, ++client->watch);
}

/* --- the connection ------------------------------------------------------- */

static void
trace_end(const struct client *client, uint32_t id, const char *how)
{
    char text[80];
    int len = snprintf(text, sizeof(text),
        "connection %" PRIu32 " with broker-%" PRIu32 " %s", id & 65535,
        client->broker, how);

    if (len > 0)
        wire_trace(client, '=', text, (size_t)len);
}

/* Nothing of the connection is left; the process may be dead. */
static void
client_forget(struct client *client, bool dead)
{
    bool moves = !dead && client_keeps(client) &&
                 (client->fleet->winding || !world_odds(client->world, 8));

    client->life++;
    client->connection = 0;
    client->moved = moves;
    if (moves) {
        client_cut(client);
    } else {
        tasks_reset(client, dead);
        memset(client->remnants, 0, sizeof(client->remnants));
        client->session[0] = '\0';
    }
    wire_reset(client);
    watches_reset(client);
    client->dismissed = false;
    if (!moves)
        client->doom = FAULT_COUNT;
    client->greeted = false;
    client->said_bye = false;
    client->finishing = false;
    client->draining = false;
    client->proven_us = 0;
    client->ping = 0;
    client->ping_due_us = 0;
    client->true_down = client->world->now_us;
    client->watch++;
    client->watch_us = UINT64_MAX;
    drill_failed(client);
    if (!dead)
        client_arm(client);
}

static void
client_done(struct client *client)
{
    client->wind = WIND_DONE;
    fleet_look(client->fleet);
}

/* Connects again after a pause that grows, with jitter. */
static void
client_pause(struct client *client)
{
    struct world *world = client->world;
    uint32_t doublings = client->attempts < 5 ? client->attempts : 5;

    client->link = LINK_PAUSE;
    if (client->wind == WIND_QUIT || client->wind == WIND_DONE) {
        client_done(client);
        return;
    }
    client->attempts++;
    world_at(world,
        world->now_us + 5000 + world_below(world, 50000u << doublings),
        client_connect, client, client->life);
}

void
client_hang_up(struct client *client, bool reconnects)
{
    uint32_t connection = client->connection;

    if (client->link == LINK_OPEN)
        wire_flush(client);
    client_forget(client, false);
    client->link = LINK_PAUSE;
    if (connection != 0) {
        trace_end(client, connection, "is closed");
        net_close(client->world->net, connection, client->machine);
    }
    if (reconnects)
        client_pause(client);
}

/* Ends the session in one of the ways that there are. */
static void
client_finish(struct client *client)
{
    wire_flush(client);
    net_finish(client->world->net, client->connection, client->machine);
    client->finishing = true;
}

/* Without a tag to spare nobody can say it. */
static void
client_quit(struct client *client)
{
    if (!wire_request(client, VERB_QUIT))
        client_finish(client);
    client->finishing = true;
}

void
client_leave(struct client *client)
{
    switch (world_below(client->world, 3)) {
    case 0:
        client_hang_up(client, true);
        break;
    case 1:
        tasks_finish(client);
        client_quit(client);
        break;
    default:
        tasks_finish(client);
        client_finish(client);
        break;
    }
}

static void
on_opened(void *arg, uint32_t id)
{
    struct client *client = arg;

    if (id != client->connection)
        return;
    trace_end(client, id, "is open");
    client->link = LINK_OPEN;
    client_hello(client);
    client_resume(client);
    watches_begin(client);
    if (client->wind != WIND_NOT)
        client_wind_on(client);
    wire_flush(client);
}

static void
on_bytes(void *arg, uint32_t id, const char *bytes, size_t len)
{
    struct client *client = arg;

    if (id != client->connection)
        return;
    tasks_expire(client);
    wire_bytes(client, bytes, len);
    if (client->greeted)
        client->attempts = 0;
    client_arm(client);
    wire_flush(client);
}

static void
on_ended(void *arg, uint32_t id, enum net_end_reason reason)
{
    static const char *const reasons[] = {
        "has ended", "is reset", "is silent", "is refused"};
    struct client *client = arg;

    if (id != client->connection)
        return;
    trace_end(client, id, reasons[reason]);
    if (client->wind == WIND_QUIT && reason == NET_EOF && !client->said_bye)
        check_broken(client->world->check, PROMISE_ANSWERED,
            client->world->now_us, "%s: QUIT, and the end came without BYE",
            client->machine->name);
    client_forget(client, false);
    client->link = LINK_PAUSE;
    net_close(client->world->net, id, client->machine);
    client_pause(client);
}

static const struct net_user client_user = {on_opened, on_bytes, on_ended};

/* To its own broker mostly, else to any. */
static void
client_connect(void *arg, uint64_t data)
{
    struct client *client = arg;
    struct world *world = client->world;
    uint32_t brokers = world->plan.brokers;

    if (data != client->life || !client->machine->up ||
        put_off(client, client_connect, data))
        return;
    if (client->attempts > 1 || world_odds(world, 4))
        client->broker = (uint32_t)world_below(world, brokers);
    else
        client->broker = client->number % brokers;
    if (client->broker == client->avoid && world_odds(world, 2))
        client->broker = (client->broker + 1) % brokers;
    client->avoid = UINT32_MAX;
    client->link = LINK_CONNECT;
    client->connection = net_connect(world->net, client->machine,
        broker_machine(world, client->broker), &client_user, client,
        10000000 + world_below(world, 10000000));
}

/* --- the process ---------------------------------------------------------- */

static void
client_begin(struct client *client)
{
    struct world *world = client->world;

    client->reviving = false;
    client->machine->up = true;
    client->machine->silent = false;
    client->link = LINK_PAUSE;
    client->attempts = 0;
    client->life++;
    client->wind = client->fleet->winding ? WIND_GIVE_BACK : WIND_NOT;
    client->served = 0;
    world_at(world, world->now_us + world_below(world, 200000), client_connect,
        client, client->life);
}

static void
client_revive(void *arg, uint64_t data)
{
    struct client *client = arg;

    if (data != client->life || client->machine->up)
        return;
    client_begin(client);
}

static void
client_die(struct client *client, uint64_t back_us)
{
    struct world *world = client->world;

    client_forget(client, true);
    client->link = LINK_DOWN;
    client->machine->up = false;
    client->machine->stopped_until = 0;
    net_process_died(world->net, client->machine);
    world_note(world, client->machine->name, "dies");
    client->reviving = !world->healing;
    if (client->reviving) {
        /* A client that is away for long is back soon after all has healed. */
        uint64_t last_us = WORLD_START_US + world->plan.run_us + BACK_US;
        uint64_t back = world->now_us + world_below(world, back_us);
        world_at(world, back < last_us ? back : last_us, client_revive, client,
            client->life);
    }
    fleet_look(client->fleet);
}

void
client_kill(struct world *world, uint32_t number)
{
    require(number < world->plan.clients);
    struct client *client = &world->clients[number];

    if (client->machine->up)
        client_die(client, 2000000);
}

void
client_vanish(struct world *world, uint32_t number)
{
    require(number < world->plan.clients);
    struct client *client = &world->clients[number];

    if (!client->machine->up)
        return;
    client->machine->silent = true;
    client_die(client, 30000000);
}

struct machine *
client_machine(struct world *world, uint32_t number)
{
    require(number < world->plan.clients);
    return world->clients[number].machine;
}

static void
client_create(struct world *world, struct fleet *fleet, uint32_t number)
{
    struct client *client = &world->clients[number];
    char name[16];

    snprintf(name, sizeof(name), "c%" PRIu32, number);
    client->world = world;
    client->fleet = fleet;
    client->number = number;
    client->machine = world_machine(world, name);
    client->machine->drift_ppm = (int64_t)world_between(world, 0, 400) - 200;
    client->watch_us = UINT64_MAX;
    client->doom = FAULT_COUNT;
    client->avoid = UINT32_MAX;
    if (world_below(world, 100) < world->plan.keeps)
        client->keep_ms =
            500 + (uint32_t)world_below(world, 2 * plan_term_ms(&world->plan));
    for (uint32_t i = 0; i < CLIENT_WATCHES; i++) {
        client->outlooks[i].lock = (i + number) % world->plan.locks;
        client->outlooks[i].members =
            world->plan.members != 0 && (i + number / 2) % 2 == 0;
        client->outlooks[i].wanted =
            i < world->plan.locks &&
            world_below(world, 100) < world->plan.watches;
    }
    client->task_count = 1 + (uint32_t)world_below(world, CLIENT_TASKS);
    for (uint32_t i = 0; i < client->task_count; i++) {
        struct task *task = &client->tasks[i];
        task->client = client;
        task->cap_us = UINT64_MAX;
        snprintf(task->who, sizeof(task->who), "%.8s.%" PRIu32, name, i);
    }
    client_begin(client);
}

void
clients_create(struct world *world)
{
    uint32_t count = world->plan.clients;
    struct fleet *fleet = calloc(1, sizeof(*fleet));

    world->clients = calloc(count, sizeof(*world->clients));
    require(fleet != NULL && (world->clients != NULL || count == 0));
    fleet->world = world;
    fleet->count = count;
    /* A majority does without the node where a lost broker's ticket is. */
    for (uint32_t i = 0; world->plan.quorum != 0 && i < PLAN_LOCKS_MAX; i++)
        fleet->left[i] = true;
    fleet->clients = world->clients;
    for (uint32_t i = 0; i < count; i++)
        client_create(world, fleet, i);
    if (count == 0)
        free(fleet);
}

void
clients_destroy(struct world *world)
{
    if (world->clients != NULL && world->plan.clients > 0)
        free(world->clients[0].fleet);
    free(world->clients);
    world->clients = NULL;
}

/* --- winding up ----------------------------------------------------------- */

/* A lock that has not been had yet, or once more where it was refused. */
static void
task_serve(struct client *client, struct task *task)
{
    struct world *world = client->world;
    uint32_t locks = plan_lock_count(&world->plan);
    uint64_t now_us = world->now_us;

    if (!task->serving) {
        if (client->served == locks)
            return;
        task->lock =
            (client->number * locks / world->plan.clients + client->served++) %
            locks;
        task->owner = 0;
        task->purpose = TASK_IS_SERVED;
        task->serving = true;
        task->true_serve_by = now_us + client->fleet->wait_us;
    }
    if (now_us >= task->true_serve_by) {
        check_broken(world->check, PROMISE_SERVED, client->fleet->true_wind,
            "%s: lock-%" PRIu32 " could not be had in %" PRIu64 " us",
            task->who, task->lock, client->fleet->wait_us);
        task->serving = false;
        task_wake(task, 1000);
        return;
    }
    uint64_t wait_ms = (task->true_serve_by - now_us) / 1000;
    if (wait_ms == 0)
        wait_ms = 1;
    task_wants(task, task->lock, (uint32_t)wait_ms, 0);
    if (task_send_wish(task, false)) {
        task->state = TASK_ASKING;
        task->timer++;
    } else {
        task_wake(task, 100000);
    }
}

/* Whether nothing is under way, and nothing left to be served. */
static bool
client_rests(const struct client *client)
{
    for (uint32_t i = 0; i < client->task_count; i++)
        if (client->tasks[i].serving)
            return false;
    return tasks_rest(client);
}

void
client_wind_on(struct client *client)
{
    if (client->link != LINK_OPEN)
        return;
    detached_wind_up(client);
    if (client->wind == WIND_GIVE_BACK && tasks_rest(client))
        client->wind = WIND_SERVE;
    if (client->wind == WIND_WAIT && tasks_rest(client))
        fleet_look(client->fleet);
    if (client->wind != WIND_SERVE || client->draining)
        return;
    for (uint32_t i = 0; i < client->task_count; i++)
        if (client->tasks[i].state == TASK_IDLE)
            task_serve(client, &client->tasks[i]);
    if (client->served == plan_lock_count(&client->world->plan) &&
        client_rests(client)) {
        client->wind = WIND_WAIT;
        fleet_look(client->fleet);
    }
}

static void
client_give_up(struct client *client)
{
    client->wind = WIND_DONE;
    client_hang_up(client, false);
    fleet_look(client->fleet);
}

/* It is one for a lock, or waits behind such a one. */
static bool
is_for_a_lock(const struct request *request)
{
    return request->verb == VERB_LOCK ||
           (request->task != NULL && request->task->locks > 0);
}

/* A request that has not been answered in all that time never will be. */
static bool
client_stuck(struct client *client)
{
    struct world *world = client->world;
    const struct fleet *fleet = client->fleet;
    uint64_t bound_us = fleet->wait_us + client_patience_us(client);
    uint64_t quiet_us = fleet->true_quiet > fleet->true_wind ? fleet->true_quiet
                                                             : fleet->true_wind;

    if (client->link != LINK_OPEN) {
        uint64_t from_us =
            client->true_down > quiet_us ? client->true_down : quiet_us;
        if (world->now_us < from_us + bound_us)
            return false;
        check_broken(world->check, PROMISE_SERVED, fleet->true_wind,
            "%s: no broker takes its connection", client->machine->name);
        return true;
    }
    for (uint32_t i = 0; i < CLIENT_REQUESTS; i++) {
        const struct request *request = &client->requests[i];
        uint64_t from_us =
            request->true_sent_us > quiet_us ? request->true_sent_us : quiet_us;
        if (request->serial == 0 || request->verb == VERB_AWAIT ||
            world->now_us < from_us + bound_us)
            continue;
        check_broken(world->check,
            is_for_a_lock(request) ? PROMISE_SERVED : PROMISE_ANSWERED,
            fleet->true_wind,
            "%s: 1c%" PRIu32 "-%" PRIu64 " %s lock-%" PRIu32
            " of broker %" PRIu32 " has no answer",
            client->machine->name, client->number, request->serial,
            verb_names[request->verb], request->lock, client->broker);
        return true;
    }
    if (client->finishing && client->requests_now == 0 &&
        world->now_us > quiet_us + 2 * bound_us) {
        check_broken(world->check, PROMISE_ANSWERED, fleet->true_wind,
            "%s: the broker does not end the connection",
            client->machine->name);
        return true;
    }
    return false;
}

static void
client_tick(void *arg, uint64_t data)
{
    struct client *client = arg;

    if (client->wind == WIND_DONE)
        return;
    if (client->machine->up && machine_runs(client->machine)) {
        if (client_stuck(client)) {
            client_give_up(client);
            return;
        }
        client_wind_on(client);
        wire_flush(client);
    }
    world_at(client->world, client->world->now_us + TICK_US, client_tick,
        client, data);
}

/* No sooner than the process runs. */
static void
client_wind(void *arg, uint64_t data)
{
    struct client *client = arg;

    if (client->machine->up && put_off(client, client_wind, data))
        return;
    if (client->machine->up && client->wind == WIND_NOT) {
        client->wind = WIND_GIVE_BACK;
        for (uint32_t i = 0; i < client->task_count; i++)
            task_wind_up(&client->tasks[i]);
        if (client->draining)
            client_moves_on(client);
        client_wind_on(client);
        wire_flush(client);
    }
    client_tick(client, 0);
}

void
clients_wind_up(struct world *world)
{
    if (world->plan.clients == 0)
        return;
    struct fleet *fleet = world->clients[0].fleet;

    require(!fleet->winding);
    fleet->winding = true;
    fleet->true_wind = world->now_us;
    fleet->wait_us = (uint64_t)world->plan.lease_ms * 3000 + 10000000 +
                     plan_late_us(&world->plan);
    /* Each may have asked for a detached hold before. A drill may restart Redis
     * meanwhile, and such a hold does not end before the broker is settled. */
    if (world->plan.detaches > 0)
        fleet->wait_us +=
            1000 * ((uint64_t)fleet->count * plan_detached_ms(&world->plan) +
                       world->plan.settle_ms);
    for (uint32_t i = 0; i < fleet->count; i++)
        world_at(world, world->now_us, client_wind, &fleet->clients[i], 0);
    fleet_look(fleet);
}

/* Whether the client has nothing more to do in this run. */
static bool
client_is_done(const struct client *client)
{
    return client->wind == WIND_DONE ||
           (client->link == LINK_DOWN && !client->reviving);
}

static const char *
wind_name(enum wind wind)
{
    static const char *const names[] = {"works", "gives back", "is served",
        "waits for the others", "quits", "is done"};

    return names[wind];
}

bool
clients_done(struct world *world, char *what, size_t what_bytes)
{
    for (uint32_t i = 0; i < world->plan.clients; i++) {
        const struct client *client = &world->clients[i];
        const struct task *waits = NULL;
        if (client_is_done(client))
            continue;
        for (uint32_t t = 0; t < client->task_count; t++)
            if (client->tasks[t].state != TASK_IDLE)
                waits = &client->tasks[t];
        if (waits == NULL)
            snprintf(what, what_bytes, "%s %s (link %d)", client->machine->name,
                wind_name(client->wind), (int)client->link);
        else
            snprintf(what, what_bytes,
                "%s %s (link %d): lock-%" PRIu32 ", state %d, %" PRIu32
                " requests, %" PRIu32 " holds",
                client->machine->name, wind_name(client->wind),
                (int)client->link, waits->lock, (int)waits->state,
                waits->outstanding, waits->count);
        return false;
    }
    return true;
}

/* --- the fleet ------------------------------------------------------------ */

/* Everybody has been served: a drill, or the end. */
static void
fleet_event(void *arg, uint64_t data)
{
    struct fleet *fleet = arg;

    (void)data;
    if (!fleet->winding || fleet->drill.stage != DRILL_NONE)
        return;
    if (fleet->world->now_us < fleet->true_quiet) {
        world_at(fleet->world, fleet->true_quiet, fleet_event, fleet, 0);
        return;
    }
    for (uint32_t i = 0; i < fleet->count; i++) {
        const struct client *client = &fleet->clients[i];
        if (!client_is_done(client) &&
            (client->wind < WIND_WAIT ||
                (client->wind == WIND_WAIT && !tasks_rest(client))))
            return;
    }
    if (drill_next(fleet))
        return;
    if (!fleet->settled) {
        fleet->settled = true;
        drill_quiet(fleet,
            drill_prompt_us(fleet->world) + drill_lease_us(fleet->world) / 2);
        fleet_look(fleet);
        return;
    }
    for (uint32_t i = 0; i < fleet->count; i++)
        if (!client_is_done(&fleet->clients[i])) {
            watches_check(&fleet->clients[i], fleet->true_wind);
            awaits_check(&fleet->clients[i], fleet->true_wind);
        }
    for (uint32_t i = 0; i < fleet->count; i++) {
        struct client *client = &fleet->clients[i];
        if (client->wind != WIND_WAIT || client_is_done(client))
            continue;
        client->wind = WIND_QUIT;
        if (client->link != LINK_OPEN) {
            client_done(client);
            continue;
        }
        client_quit(client);
        wire_flush(client);
    }
}

/*
 * Drills of sessions that move (PROTOCOL.md, profile C): a connection ends, by
 * itself or with its broker, and another one goes on with what the session has.
 */
#include "tests/sim/drill.h"

#include "daemon/base/assert.h"
#include "tests/sim/broker.h"
#include "tests/sim/server.h"

#include <inttypes.h>

/* Brokers are up again, with their links to Redis. */
#define REJOIN_US 3000000

/* Long enough for every wait. */
#define KEEP_MS 600000

static bool
is_at(const struct task *task, uint32_t broker)
{
    return task != NULL && task->client->broker == broker;
}

/* How a connection ends that is not the client's last one. Its broker ends with
 * it only where nobody else of the drill is there. */
static void
connection_ends(struct fleet *fleet, struct client *client)
{
    const struct drill *drill = &fleet->drill;
    struct world *world = fleet->world;
    uint32_t broker = client->broker;
    bool shared = is_at(drill->holder, broker) || is_at(drill->heir, broker) ||
                  is_at(drill->another, broker);
    uint64_t ways = shared || world->plan.brokers == 1 ? 2 : 4;

    switch (world_below(world, ways)) {
    case 0:
        client_hang_up(client, true);
        break;
    case 1:
        (void)net_cut(world->net, client->connection);
        break;
    case 2:
        fleet->left[fleet->drill.lock] = true;
        drill_quiet(fleet, 2 * REJOIN_US);
        broker_drain(world, broker);
        break;
    default:
        fleet->left[fleet->drill.lock] = true;
        drill_quiet(fleet, 2 * REJOIN_US);
        broker_kill(world, broker);
        break;
    }
}

/* So late nobody who was not renewed can be sure of anything. */
static bool
in_time(const struct fleet *fleet)
{
    return fleet->world->now_us <
           fleet->drill.true_from + drill_lease_us(fleet->world) / 2;
}

static void
mover_late(void *arg, uint64_t data)
{
    struct fleet *fleet = arg;
    const struct drill *drill = drill_at(fleet, data, DRILL_STAYS);

    if (drill == NULL)
        return;
    if (drill->kind == DRILL_CROSSED && drill->mover->client->link == LINK_OPEN)
        check_broken(fleet->world->check, PROMISE_FREED, drill->true_from,
            "lock-%" PRIu32 ": %s waits for it still, %" PRIu64 " us after %s",
            drill->lock, drill->mover->who,
            fleet->world->now_us - drill->true_from,
            drill_plans[drill->kind].after);
    drill_end(fleet);
}

/* It takes no part until it is back: whatever ends its connection is meant. */
static void
mover_leaves(struct fleet *fleet, struct task *task)
{
    struct drill *drill = &fleet->drill;

    drill->mover = task;
    drill->stage = DRILL_STAYS;
    drill->serial++;
    drill->true_from = fleet->world->now_us;
    drill_event(
        fleet, 2 * drill_lease_us(fleet->world) + REJOIN_US, mover_late);
    connection_ends(fleet, task->client);
}

/* --- a hold --------------------------------------------------------------- */

/* The brokers that it leaves behind give up what they kept while it is held
 * elsewhere: that must not matter. */
bool
resumed_begin(struct fleet *fleet)
{
    struct drill *drill = &fleet->drill;
    const uint32_t lease_ms = fleet->world->plan.lease_ms;

    if (!drill_choose_two(fleet))
        return false;
    drill->keep_ms =
        lease_ms / 2 + (uint32_t)world_below(fleet->world, lease_ms);
    drill_keep(drill->holder->client, drill->keep_ms);
    return true;
}

static void
packets_pass(void *arg, uint64_t data)
{
    struct world *world = arg;

    (void)data;
    net_unblock_all(world->net);
}

static void
moves_again(void *arg, uint64_t data)
{
    struct fleet *fleet = arg;
    const struct drill *drill = &fleet->drill;

    if (data != drill->serial || drill->stage != DRILL_STAYS ||
        drill->mover == NULL || drill->mover->client->link != LINK_OPEN)
        return;
    drill->mover->client->avoid = drill->mover->client->broker;
    client_hang_up(drill->mover->client, true);
}

/* The questions of the next broker reach Redis when the session has moved on
 * once more. */
static void
moves_twice(struct fleet *fleet, const struct client *client)
{
    struct world *world = fleet->world;
    uint32_t number = client->number % world->plan.brokers;
    struct machine *broker = broker_machine(world, number);
    uint64_t span_us = (uint64_t)world->plan.command_timeout_ms * 500;

    for (uint32_t i = 0; i < drill_servers(world); i++)
        net_block(world->net, broker, server_machine(world, i));
    world_at(world, world->now_us + span_us, packets_pass, world, 0);
    drill_event(fleet, span_us / 2, moves_again);
}

static void
resumed_leaves(void *arg, uint64_t data)
{
    struct fleet *fleet = arg;
    struct task *holder = fleet->drill.holder;

    if (data != fleet->drill.serial || fleet->drill.stage != DRILL_ACTS)
        return;
    fleet->drill.holder = NULL;
    mover_leaves(fleet, holder);
    if (fleet->world->plan.brokers > 1 && world_odds(fleet->world, 2))
        moves_twice(fleet, holder->client);
}

/* It may hold it more than once. */
void
resumed_acts(struct fleet *fleet)
{
    struct task *holder = fleet->drill.holder;
    bool twice = world_odds(fleet->world, 2);

    if (twice) {
        task_send_reentry(holder, CLIENT_NO_WAIT);
        wire_flush(holder->client);
    }
    drill_event(
        fleet, twice ? drill_packets_us(fleet->world) : 0, resumed_leaves);
}

static void
resumed_gives(void *arg, uint64_t data)
{
    struct fleet *fleet = arg;

    if (data != fleet->drill.serial || fleet->drill.stage != DRILL_STAYS)
        return;
    drill_gives(fleet, drill_prompt_us(fleet->world));
}

void
drill_claimed(struct task *task, bool ok)
{
    struct fleet *fleet = task->client->fleet;
    struct drill *drill = &fleet->drill;

    if (drill->stage != DRILL_STAYS || task != drill->mover)
        return;
    drill->mover = NULL;
    if (drill->kind == DRILL_REVIVED) {
        revived_claimed(fleet, task, ok);
        return;
    }
    if (drill->kind == DRILL_CLAIMED) {
        claimed_claimed(fleet, task, ok);
        return;
    }
    if (drill->kind == DRILL_RETURNED) {
        returned_claimed(fleet, task, ok);
        return;
    }
    if (ok) {
        drill->holder = task;
        drill->serial++;
        drill_event(fleet,
            (uint64_t)drill->keep_ms * 1000 + drill_lease_us(fleet->world) / 2,
            resumed_gives);
        return;
    }
    if (in_time(fleet))
        check_broken(fleet->world->check, PROMISE_KEPT, fleet->true_wind,
            "%s: lock-%" PRIu32 " cannot be claimed, %" PRIu64
            " us after its connection ended",
            task->who, task->lock, fleet->world->now_us - drill->true_from);
    drill_end(fleet);
}

/* --- a place -------------------------------------------------------------- */

bool
rejoins_begin(struct fleet *fleet)
{
    struct drill *drill = &fleet->drill;

    if (!drill_choose_two(fleet))
        return false;
    drill->another = drill_choose_behind(fleet);
    if (drill->another == NULL)
        return false;
    drill->broker = drill->heir->client->broker;
    /* There nobody tells a broker that somebody has gone on. */
    bool quorum = fleet->world->plan.quorum != 0;
    drill_keep(
        drill->heir->client, quorum ? fleet->world->plan.lease_ms : KEEP_MS);
    return true;
}

/* The heir waits, and somebody else behind it. */
void
rejoins_acts(struct fleet *fleet)
{
    drill_ask(
        &fleet->drill, fleet->drill.another, TASK_DRILL_WAITS, CLIENT_NO_WAIT);
}

void
rejoins_queued(struct fleet *fleet, const struct task *task)
{
    struct task *heir = fleet->drill.heir;

    if (fleet->drill.stage != DRILL_ACTS || task != fleet->drill.another ||
        heir == NULL)
        return;
    fleet->drill.heir = NULL;
    mover_leaves(fleet, heir);
}

/* It stands in the queue again: the next grant is its. */
void
drill_rejoined(struct task *task)
{
    struct fleet *fleet = task->client->fleet;
    struct drill *drill = &fleet->drill;
    struct task *holder = drill->holder;

    if (drill->stage != DRILL_STAYS || task != drill->mover ||
        drill->kind == DRILL_CROSSED)
        return;
    drill->mover = NULL;
    /* In a quorum the queue is a broker's own. */
    bool elsewhere =
        fleet->world->plan.quorum != 0 && task->client->broker != drill->broker;
    if (elsewhere)
        drill_quiet(fleet, 2 * drill_lease_us(fleet->world));
    if (!in_time(fleet) || holder == NULL || elsewhere) {
        task->purpose = TASK_DRILL_OVER;
        drill_end(fleet);
        return;
    }
    drill->heir = task;
    drill_gives(fleet, drill_prompt_us(fleet->world));
}

void
rejoins_granted(struct fleet *fleet, struct task *task)
{
    const struct drill *drill = &fleet->drill;

    if (drill->stage != DRILL_FREES)
        return;
    if (task != drill->heir)
        check_broken(fleet->world->check, PROMISE_KEPT, fleet->true_wind,
            "lock-%" PRIu32 ": %s is granted it, and %s has moved and stood "
            "before it",
            drill->lock, task->who, drill->heir->who);
    drill_end(fleet);
}

/* --- a grant that crosses it ---------------------------------------------- */

/* The waiter moves at the moment of its grant. */
bool
crossed_begin(struct fleet *fleet)
{
    if (!drill_choose_two(fleet))
        return false;
    drill_keep(fleet->drill.heir->client, fleet->world->plan.lease_ms);
    return true;
}

static void
crossed_gives(void *arg, uint64_t data)
{
    struct fleet *fleet = arg;
    struct drill *drill = drill_at(fleet, data, DRILL_STAYS);

    if (drill == NULL)
        return;
    struct task *holder = drill->holder;
    drill->holder = NULL;
    drill_release(holder, TASK_DRILL_OVER);
}

static void
crossed_leaves(void *arg, uint64_t data)
{
    struct fleet *fleet = arg;
    struct drill *drill = drill_at(fleet, data, DRILL_ACTS);

    if (drill == NULL)
        return;
    struct task *heir = drill->heir;
    drill->heir = NULL;
    drill_quiet(fleet, 2 * drill_lease_us(fleet->world));
    mover_leaves(fleet, heir);
    if (drill->holder != NULL)
        drill_event(fleet,
            world_below(fleet->world, drill_moment_us(fleet->world)),
            crossed_gives);
}

void
crossed_acts(struct fleet *fleet)
{
    struct drill *drill = &fleet->drill;
    uint64_t moment_us = drill_moment_us(fleet->world);

    if (world_odds(fleet->world, 2)) {
        struct task *holder = drill->holder;
        drill->holder = NULL;
        drill_release(holder, TASK_DRILL_OVER);
        drill_event(
            fleet, world_below(fleet->world, moment_us), crossed_leaves);
    } else {
        crossed_leaves(fleet, drill->serial);
    }
}

void
crossed_granted(struct fleet *fleet, struct task *task)
{
    const struct drill *drill = &fleet->drill;

    if (task == drill->mover || task == drill->heir)
        drill_end(fleet);
}

/* --- nobody comes for it, or an operator ends it -------------------------- */

bool
unkept_begin(struct fleet *fleet)
{
    struct drill *drill = &fleet->drill;
    struct world *world = fleet->world;

    if (!drill_choose_two(fleet))
        return false;
    drill->keep_ms = 1 + (uint32_t)world_below(world, 2 * world->plan.lease_ms);
    drill_keep(drill->holder->client, drill->keep_ms);
    return true;
}

/* After its client's death it goes when that time is over; by KILL at once. */
void
unkept_acts(struct fleet *fleet)
{
    struct drill *drill = &fleet->drill;
    struct world *world = fleet->world;
    const struct task *holder = drill->holder;
    uint64_t keep_us = (uint64_t)drill->keep_ms * 1000;

    drill->holder = NULL;
    if (is_at(drill->heir, holder->client->broker)) {
        client_orders_kill(drill->heir->client, holder->client);
        drill_frees(fleet, drill_prompt_us(world));
    } else {
        drill_kill(fleet, holder);
        drill_frees(fleet, keep_us + drill_prompt_us(world));
    }
}

/*
 * lease.default changes, broker by broker. In the run it follows the steps of
 * operations.md. In the drill brokers know only what they hear of one another.
 */
#include "tests/sim/drill.h"

#include "tests/sim/broker.h"
#include "tests/sim/server.h"

#define DRAIN_US  1000000 /* then a broker that drains is killed */
#define TRIES     200
#define AGAIN_US  50000
#define HEARS_US  1500000 /* a broker of a cluster first needs the map */
#define ROLL_PART 3       /* of a step's time, the restarts take one */

/* --- in the run ----------------------------------------------------------- */

/* To the shorter lease and back. The longer one stays redis.settle wherever a
 * broker may have it, or its holders may. */
static const struct {
    bool lease;  /* the shorter one */
    bool settle; /* so */
} rolls[] = {{true, false}, {true, true}, {true, false}, {false, false}};

static void
roll_ends(void *arg, uint64_t number)
{
    broker_kill_old(arg, (uint32_t)number);
}

static void
roll_restarts(void *arg, uint64_t data)
{
    struct world *world = arg;
    const struct plan *plan = &world->plan;
    uint32_t number = (uint32_t)data & 255;
    uint64_t step = data >> 8;

    broker_configure(world, number,
        rolls[step].lease ? plan->short_ms : plan->lease_ms,
        rolls[step].settle ? plan->short_ms : plan->settle_ms);
    if (world_odds(world, 2))
        broker_drain(world, number);
    else
        broker_kill_old(world, number);
    world_at(world, world->now_us + DRAIN_US, roll_ends, world, number);
}

void
change_rolls(struct world *world)
{
    uint64_t step_us = plan_roll_us(&world->plan);
    uint32_t brokers = world->plan.brokers;

    if (!plan_rolls(&world->plan))
        return;
    for (uint64_t step = 0; step < sizeof(rolls) / sizeof(rolls[0]); step++)
        for (uint64_t i = 0; i < brokers; i++)
            world_at(world,
                world->now_us + step_us * (step + 1) +
                    step_us * i / (ROLL_PART * brokers),
                roll_restarts, world, step << 8 | i);
}

/* --- as a drill ----------------------------------------------------------- */

/*
 * A broker has been started with a shorter lease than the others. The holder's
 * broker is cut off, and Redis restarts without its data. The new broker has
 * heard of the longer lease: it grants nothing before the holder has been told.
 */
bool
changed_begin(struct fleet *fleet)
{
    struct drill *drill = &fleet->drill;
    const struct plan *plan = &fleet->world->plan;

    if (plan->short_ms == 0 || plan->replicas > 0 || plan->quorum ||
        !drill_choose_two(fleet))
        return false;
    drill->broker = drill->heir->client->broker;
    return drill->holder->client->broker != drill->broker;
}

/* The heir gets the lock when the longer lease is over. */
static void
changed_asks(void *arg, uint64_t data)
{
    struct fleet *fleet = arg;
    struct drill *drill = drill_at(fleet, data, DRILL_ACTS);
    struct world *world = fleet->world;

    if (drill == NULL)
        return;
    if (!broker_ready(world, drill->broker)) {
        drill_event(fleet, AGAIN_US, changed_asks);
        return;
    }
    drill_frees(fleet, 2 * drill_lease_us(world) + DRILL_REJOIN_US +
                           drill_asks_us(world) + drill_prompt_us(world));
    drill_ask(drill, drill->heir, TASK_DRILL_WAITS, CLIENT_NO_WAIT);
}

/* That broker has heard of the longer lease. */
static void
changed_cuts(void *arg, uint64_t data)
{
    struct fleet *fleet = arg;
    const struct drill *drill = drill_at(fleet, data, DRILL_ACTS);
    struct world *world = fleet->world;

    if (drill == NULL)
        return;
    drill_nodes_leave(
        fleet, drill->holder->client->broker, 0, drill_servers(world));
    for (uint32_t i = 0; i < drill_servers(world); i++)
        server_restart(world, i, false);
    drill_event(fleet, AGAIN_US, changed_asks);
}

/* The heir's client comes to the broker that has been restarted. */
static void
changed_waits(void *arg, uint64_t data)
{
    struct fleet *fleet = arg;
    struct drill *drill = drill_at(fleet, data, DRILL_ACTS);
    struct world *world = fleet->world;

    if (drill == NULL)
        return;
    struct client *client = drill->mover->client;
    bool there = client->link == LINK_OPEN && client->broker == drill->broker;
    if (drill->rounds++ == TRIES) {
        drill_end(fleet);
        return;
    }
    if (!there || !broker_ready(world, drill->broker)) {
        if (client->link == LINK_OPEN && !there) {
            client->avoid = client->broker;
            client_hang_up(client, true);
        }
        drill_event(fleet, AGAIN_US, changed_waits);
        return;
    }
    drill->heir = drill->mover;
    drill->mover = NULL;
    drill_event(fleet, HEARS_US, changed_cuts);
}

void
changed_acts(struct fleet *fleet)
{
    struct drill *drill = &fleet->drill;
    struct world *world = fleet->world;

    drill->mover = drill->heir;
    drill->heir = NULL;
    fleet->left[drill->lock] = true;
    broker_configure(
        world, drill->broker, world->plan.short_ms, world->plan.short_ms);
    broker_kill_old(world, drill->broker);
    drill_event(fleet, AGAIN_US, changed_waits);
}

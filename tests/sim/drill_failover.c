/*
 * Drills in which a replica takes over that knows nothing of what its master
 * did last. See drill.h.
 */
#include "tests/sim/drill.h"

#include "tests/sim/broker.h"
#include "tests/sim/server.h"

#include <inttypes.h>

/* --- a release is lost ---------------------------------------------------- */

/* All its brokers ask meanwhile, and the grace is over. */
static uint64_t
undone_bound_us(const struct world *world)
{
    return (uint64_t)world->plan.settle_ms * 1000 + DRILL_REJOIN_US +
           drill_asks_us(world) + drill_prompt_us(world);
}

/* Whether that is less than what stays in the way for a lease would take. */
static bool
undone_shows(const struct world *world)
{
    uint64_t settle_us = (uint64_t)world->plan.settle_ms * 1000;

    return plan_settles(&world->plan) &&
           undone_bound_us(world) < settle_us + drill_lease_us(world) * 9 / 10;
}

/*
 * The holder gives back, and its shard's replica does not get that, but takes
 * over. Its copy of the hold is nobody's, and must not be in the way for a
 * lease after the grace.
 */
bool
undone_begin(struct fleet *fleet)
{
    struct drill *drill = &fleet->drill;

    if (!undone_shows(fleet->world))
        return false;
    drill->holder = drill_choose(fleet, ANYWHERE);
    if (drill->holder == NULL)
        return false;
    drill->broker = drill->holder->client->broker;
    drill->heir = drill_choose(fleet, AT_BROKER);
    return drill->heir != NULL;
}

/* The failover excuses what was before. */
static void
undone_asks(void *arg, uint64_t data)
{
    struct fleet *fleet = arg;
    struct drill *drill = &fleet->drill;

    if (data != drill->serial || drill->stage != DRILL_ACTS)
        return;
    drill_quiet(fleet, undone_bound_us(fleet->world));
    drill_frees(fleet, undone_bound_us(fleet->world));
    drill_ask(drill, drill->heir, TASK_DRILL_WAITS, CLIENT_NO_WAIT);
}

static void
undone_swaps(void *arg, uint64_t data)
{
    struct fleet *fleet = arg;
    struct drill *drill = &fleet->drill;

    if (data != drill->serial || drill->stage != DRILL_ACTS)
        return;
    if (drill->holder->state != TASK_IDLE) {
        drill_event(fleet, drill_packets_us(fleet->world), undone_swaps);
        return;
    }
    drill->holder = NULL;
    server_swaps(fleet->world);
    drill_packets_pass(fleet->world, 0);
    drill_event(fleet, drill_packets_us(fleet->world), undone_asks);
}

/* Once the replica has the hold it gets nothing more. False: it has not yet,
 * and `again` is called; or it cannot be. */
static bool
replica_left_behind(struct fleet *fleet, uint64_t data, world_call *again)
{
    const struct drill *drill = drill_at(fleet, data, DRILL_ACTS);
    struct world *world = fleet->world;

    if (drill == NULL)
        return false;
    if (!servers_have(world, drill->lock, drill->holder->fence)) {
        drill_event(fleet, drill_packets_us(world), again);
        return false;
    }
    if (!server_leaves_behind(world, drill->lock)) {
        drill_end(fleet);
        return false;
    }
    return true;
}

static void
undone_gives(void *arg, uint64_t data)
{
    struct fleet *fleet = arg;

    if (!replica_left_behind(fleet, data, undone_gives))
        return;
    drill_release(fleet->drill.holder, TASK_DRILL_OVER);
    drill_event(fleet, drill_packets_us(fleet->world), undone_swaps);
}

void
undone_acts(struct fleet *fleet)
{
    drill_event(fleet, 0, undone_gives);
}

/* --- and somebody claims it ----------------------------------------------- */

/*
 * The holder's connection ends, nobody comes for its session in time, and the
 * heir has the lock. Then the replica takes over that got nothing of that, and
 * the holder's broker is dead, which could say that it was given back. The
 * holder comes late, and claims what is the heir's.
 */
bool
revived_begin(struct fleet *fleet)
{
    struct drill *drill = &fleet->drill;

    if (!plan_settles(&fleet->world->plan) || !drill_choose_two(fleet))
        return false;
    drill->broker = drill->holder->client->broker;
    if (drill->heir->client->broker == drill->broker)
        return false;
    drill->keep_ms = 1 + (uint32_t)world_below(fleet->world, 500);
    drill_keep(drill->holder->client, drill->keep_ms);
    return true;
}

static void
revived_leaves(void *arg, uint64_t data)
{
    struct fleet *fleet = arg;
    struct drill *drill = &fleet->drill;
    struct world *world = fleet->world;

    if (!replica_left_behind(fleet, data, revived_leaves))
        return;
    struct client *client = drill->holder->client;
    /* A broker with hints by way of the replica hears none. */
    uint64_t bound_us = (uint64_t)drill->keep_ms * 1000 + drill_asks_us(world) +
                        drill_prompt_us(world);
    drill->mover = drill->holder;
    drill->holder = NULL;
    machine_stop(
        client->machine, world->now_us + bound_us + drill_packets_us(world));
    (void)net_cut(world->net, client->connection);
    drill_frees(fleet, bound_us);
    drill_ask(drill, drill->heir, TASK_DRILL_HOLDS, CLIENT_NO_WAIT);
}

void
revived_acts(struct fleet *fleet)
{
    drill_event(fleet, 0, revived_leaves);
}

void
revived_granted(struct fleet *fleet, struct task *task)
{
    struct drill *drill = &fleet->drill;
    struct world *world = fleet->world;

    if (task != drill->heir || drill->stage != DRILL_FREES)
        return;
    drill_stays(fleet, 2 * drill_lease_us(world) + DRILL_REJOIN_US);
    drill_quiet(fleet, undone_bound_us(world) + 2 * DRILL_REJOIN_US);
    fleet->left[drill->lock] = true;
    broker_kill(world, drill->broker);
    server_swaps(world);
    drill_packets_pass(world, 0);
}

void
revived_claimed(struct fleet *fleet, const struct task *task, bool ok)
{
    const struct drill *drill = &fleet->drill;

    if (ok && drill->heir->count > 0)
        check_broken(fleet->world->check, PROMISE_KEPT, fleet->world->now_us,
            "%s: lock-%" PRIu32 " can be claimed, and %s has been granted it",
            task->who, task->lock, drill->heir->who);
    drill_end(fleet);
}

/* --- and who holds it cannot say so --------------------------------------- */

/*
 * A replica takes over that knows nothing of a grant, and the holder's broker
 * is cut off, so that it cannot put the hold there again. Nobody is granted the
 * lock before the holder has been told.
 */
bool
cutoff_begin(struct fleet *fleet)
{
    return plan_settles(&fleet->world->plan) && drill_choose_apart(fleet);
}

/* Of `raced`, too. */
void
cutoff_acts(struct fleet *fleet)
{
    struct drill *drill = &fleet->drill;

    if (!server_leaves_behind(fleet->world, drill->lock)) {
        drill_end(fleet);
        return;
    }
    drill->holder = drill->another;
    drill->another = NULL;
    drill_ask(drill, drill->holder, TASK_DRILL_HOLDS, CLIENT_NO_WAIT);
}

/* From here on it is to be had when all that was held is over. */
static void
cutoff_heir(struct fleet *fleet)
{
    struct drill *drill = &fleet->drill;

    drill_frees(
        fleet, undone_bound_us(fleet->world) + drill_lease_us(fleet->world));
    drill_ask(drill, drill->heir, TASK_DRILL_WAITS, CLIENT_NO_WAIT);
}

/* The heir's broker has died, too: it asks one that has seen nothing of it. */
static void
cutoff_asks(void *arg, uint64_t data)
{
    struct fleet *fleet = arg;
    struct drill *drill = drill_at(fleet, data, DRILL_ACTS);

    if (drill == NULL)
        return;
    struct client *client = drill->mover->client;
    if (client->link != LINK_OPEN || client->broker == drill->broker) {
        client->avoid = drill->broker;
        if (client->link == LINK_OPEN)
            client_hang_up(client, true);
        drill_event(fleet, drill_packets_us(fleet->world), cutoff_asks);
        return;
    }
    drill->heir = drill->mover;
    drill->mover = NULL;
    cutoff_heir(fleet);
}

void
cutoff_granted(struct fleet *fleet, struct task *task)
{
    struct drill *drill = &fleet->drill;
    struct world *world = fleet->world;

    if (task == drill->heir) {
        drill_end(fleet);
        return;
    }
    if (drill->stage != DRILL_ACTS)
        return;
    server_swaps(world);
    drill_packets_pass(world, 0);
    drill_nodes_leave(fleet, drill->broker, 0, drill_servers(world));
    if (world_odds(world, 2)) {
        drill->mover = drill->heir;
        drill->heir = NULL;
        fleet->left[drill->lock] = true;
        broker_kill(world, drill->mover->client->broker);
        drill_event(fleet, drill_packets_us(world), cutoff_asks);
        return;
    }
    cutoff_heir(fleet);
}

/* --- and who was passed over comes back ----------------------------------- */

/*
 * The waiter is granted the lock while its broker is cut off, so the grant
 * lapses, and the heir is next. A replica takes over that knows of the first of
 * these grants alone, and that broker is back: it must not claim it.
 */
bool
lapsed_begin(struct fleet *fleet)
{
    struct drill *drill = &fleet->drill;
    struct world *world = fleet->world;

    if (!plan_settles(&world->plan) || world->plan.brokers < 2)
        return false;
    drill->broker = (uint32_t)world_below(world, world->plan.brokers);
    drill->waiters[0] = drill_choose(fleet, AT_BROKER);
    if (drill->waiters[0] == NULL)
        return false;
    drill->waiter_count = 1;
    drill->holder = drill_choose(fleet, NOT_AT_BROKER);
    drill->heir =
        drill->holder == NULL ? NULL : drill_choose(fleet, NOT_AT_BROKER);
    return drill->heir != NULL;
}

/* The replica has got the first grant, and nothing more from now on. */
static void
lapsed_leaves(void *arg, uint64_t data)
{
    struct fleet *fleet = arg;
    struct drill *drill = drill_at(fleet, data, DRILL_FREES);

    if (drill == NULL)
        return;
    if (drill->heir->count > 0 ||
        !server_leaves_behind(fleet->world, drill->lock) ||
        server_misses(fleet->world) > 0)
        drill_end(fleet);
    else
        drill->rounds = 1;
}

static void
lapsed_gives(void *arg, uint64_t data)
{
    struct fleet *fleet = arg;
    struct drill *drill = drill_at(fleet, data, DRILL_ACTS);
    struct world *world = fleet->world;

    if (drill == NULL)
        return;
    drill->heir->purpose = TASK_DRILL_HOLDS;
    /* A broker with hints by way of the replica hears none. */
    drill_gives(fleet,
        drill_lapse_us(world) + drill_asks_us(world) + drill_prompt_us(world));
    drill_event(fleet, 2 * drill_packets_us(world), lapsed_leaves);
}

/* Its last request arrives first. */
void
lapsed_acts(struct fleet *fleet)
{
    struct world *world = fleet->world;

    drill_nodes_leave(fleet, fleet->drill.broker, 0, drill_servers(world));
    drill_event(fleet, drill_packets_us(world), lapsed_gives);
}

/* Both brokers are dead: a third one's client has the lock when the grace is
 * over, and they have let their turns pass. */
static bool
lapsed_dies(struct fleet *fleet)
{
    struct drill *drill = &fleet->drill;
    struct world *world = fleet->world;
    uint32_t other = drill->heir->client->broker;
    struct task *third = drill_choose(fleet, NOT_AT_BROKER);

    if (third == NULL || third->client->broker == other)
        return false;
    fleet->left[drill->lock] = true;
    drill_quiet(fleet, undone_bound_us(world) + 2 * DRILL_REJOIN_US);
    drill->heir->purpose = TASK_DRILL_OVER;
    drill_abandon_waiters(drill);
    drill->heir = third;
    broker_kill(world, drill->broker);
    broker_kill(world, other);
    drill_frees(fleet, undone_bound_us(world) + 2 * drill_lapse_us(world));
    drill_ask(drill, third, TASK_DRILL_WAITS, CLIENT_NO_WAIT);
    return true;
}

/* From here on the heir holds it, and says so or cannot. */
void
lapsed_granted(struct fleet *fleet, struct task *task)
{
    struct drill *drill = &fleet->drill;
    struct world *world = fleet->world;

    if (task != drill->heir || drill->stage != DRILL_FREES)
        return;
    if (drill->rounds++ != 1) {
        drill_end(fleet);
        return;
    }
    server_swaps(world);
    drill_packets_pass(world, 0);
    if (world_odds(world, 3)) {
        drill->survives = true;
        drill_stays(fleet, undone_bound_us(world) + drill_lease_us(world));
    } else if (world_odds(world, 2) || !lapsed_dies(fleet)) {
        drill_nodes_leave(
            fleet, drill->heir->client->broker, 0, drill_servers(world));
        drill->holder = drill->heir;
        drill->heir = drill->waiters[0];
        drill->waiter_count = 0;
        drill_frees(fleet, undone_bound_us(world) + drill_lease_us(world));
    }
}

/* --- a claim is lost ------------------------------------------------------ */

/* Until then the broker that the holder has left is back. */
#define CLAIMED_KEEP_MS 3500

/*
 * The holder claims its hold at another broker. The broker that it has left
 * does not hear of it, nor does the replica that takes over. Then the new
 * broker is cut off. The old broker gives up the unclaimed hold, so the new
 * master has no holder any more. All the same it grants nothing before the true
 * holder has been told.
 */
bool
claimed_begin(struct fleet *fleet)
{
    struct drill *drill = &fleet->drill;
    const struct world *world = fleet->world;
    bool returns = drill->kind == DRILL_RETURNED;

    if (!plan_settles(&world->plan) || world->plan.brokers < 2 ||
        (returns ? !undone_shows(world)
                 : drill_lease_us(world) < 2 * CLAIMED_KEEP_MS * 1000))
        return false;
    drill->holder = drill_choose(fleet, ANYWHERE);
    if (drill->holder == NULL)
        return false;
    drill->broker = drill->holder->client->broker;
    drill->heir = drill_choose(fleet, AT_BROKER);
    if (drill->heir == NULL)
        return false;
    drill->keep_ms = returns ? 4 * world->plan.lease_ms : CLAIMED_KEEP_MS;
    drill_keep(drill->holder->client, drill->keep_ms);
    return true;
}

static void
claimed_late(void *arg, uint64_t data)
{
    struct fleet *fleet = arg;

    if (drill_at(fleet, data, DRILL_STAYS) != NULL)
        drill_end(fleet);
}

static void
claimed_moves(struct fleet *fleet)
{
    struct drill *drill = &fleet->drill;

    drill->mover = drill->holder;
    drill->holder = NULL;
    drill->stage = DRILL_STAYS;
    drill->serial++;
    drill->true_from = fleet->world->now_us;
    drill_event(fleet, CLAIMED_KEEP_MS * 1000 / 2, claimed_late);
    drill_nodes_leave(fleet, drill->broker, 0, drill_servers(fleet->world));
    drill->mover->client->avoid = drill->broker;
    client_hang_up(drill->mover->client, true);
}

static void
claimed_leaves(void *arg, uint64_t data)
{
    struct fleet *fleet = arg;

    if (replica_left_behind(fleet, data, claimed_leaves))
        claimed_moves(fleet);
}

void
claimed_acts(struct fleet *fleet)
{
    drill_event(fleet, 0, claimed_leaves);
}

void
claimed_claimed(struct fleet *fleet, struct task *task, bool ok)
{
    struct drill *drill = &fleet->drill;
    struct world *world = fleet->world;
    uint32_t broker = task->client->broker;

    drill->holder = task;
    if (!ok || broker == drill->broker) {
        drill_end(fleet);
        return;
    }
    server_swaps(world);
    drill_packets_pass(world, 0);
    drill_nodes_leave(fleet, broker, 0, drill_servers(world));
    cutoff_heir(fleet);
}

/* --- a hold that has been given back comes back --------------------------- */

/*
 * The holder claims its hold at another broker and gives it back there, of
 * which the one that it has left does not hear. Then a replica takes over, and
 * that broker finds nothing of the hold that it keeps. The hold is not put
 * there again, for the data know of its end. The next has the lock promptly
 * after the grace.
 */
void
returned_acts(struct fleet *fleet)
{
    claimed_moves(fleet);
}

/* Once its UNLOCK is answered, and all of that is at the replica. */
static void
returned_swaps(void *arg, uint64_t data)
{
    struct fleet *fleet = arg;
    struct drill *drill = drill_at(fleet, data, DRILL_STAYS);
    struct world *world = fleet->world;

    if (drill == NULL)
        return;
    if (drill->holder->state != TASK_IDLE) {
        drill_event(fleet, drill_packets_us(world), returned_swaps);
        return;
    }
    drill->holder = NULL;
    server_swaps(world);
    drill_packets_pass(world, 0);
    drill_quiet(fleet, undone_bound_us(world));
    drill_frees(fleet, undone_bound_us(world));
    drill_ask(drill, drill->heir, TASK_DRILL_WAITS, CLIENT_NO_WAIT);
}

void
returned_claimed(struct fleet *fleet, struct task *task, bool ok)
{
    struct drill *drill = &fleet->drill;

    drill->holder = task;
    if (!ok || task->client->broker == drill->broker ||
        !server_leaves_behind(fleet->world, drill->lock)) {
        drill_end(fleet);
        return;
    }
    drill_packets_pass(fleet->world, 0);
    drill_nodes_leave(fleet, drill->broker, 0, drill_servers(fleet->world));
    drill->serial++;
    drill_release(task, TASK_DRILL_OVER);
    drill_event(fleet, 4 * drill_packets_us(fleet->world), returned_swaps);
}

/* --- and those who wait --------------------------------------------------- */

/*
 * Two wait, one after the other, and a replica takes over that knows of
 * neither. Both are put there again, in whatever order: the first of them has
 * the lock first.
 */
bool
ordered_begin(struct fleet *fleet)
{
    struct drill *drill = &fleet->drill;

    if (!plan_settles(&fleet->world->plan) || !drill_choose_two(fleet))
        return false;
    drill->another = drill_choose(fleet, ANYWHERE);
    return drill->another != NULL;
}

static void
ordered_leaves(void *arg, uint64_t data)
{
    struct fleet *fleet = arg;
    struct drill *drill = &fleet->drill;

    if (replica_left_behind(fleet, data, ordered_leaves))
        drill_ask(drill, drill->heir, TASK_DRILL_WAITS, CLIENT_NO_WAIT);
}

void
ordered_acts(struct fleet *fleet)
{
    drill_event(fleet, 0, ordered_leaves);
}

static void
ordered_gives(void *arg, uint64_t data)
{
    struct fleet *fleet = arg;
    struct drill *drill = drill_at(fleet, data, DRILL_ACTS);

    if (drill == NULL)
        return;
    drill_gives(fleet, drill_prompt_us(fleet->world));
}

void
ordered_queued(struct fleet *fleet, const struct task *task)
{
    struct drill *drill = &fleet->drill;
    struct world *world = fleet->world;

    if (drill->stage != DRILL_ACTS)
        return;
    if (task == drill->heir) {
        drill_ask(drill, drill->another, TASK_DRILL_WAITS, CLIENT_NO_WAIT);
        return;
    }
    server_swaps(world);
    drill_packets_pass(world, 0);
    drill_event(
        fleet, undone_bound_us(world) + drill_lease_us(world), ordered_gives);
}

/* --- a hold is put back that is given back -------------------------------- */

#define RACED_LOOK_US 100
#define RACED_ILL_US  100000

/*
 * A replica takes over that knows nothing of a grant. Just when its broker puts
 * it there again, Redis refuses that for a moment, and the client gives back.
 * The order of the two must not matter, and nothing is left of the hold.
 */
bool
raced_begin(struct fleet *fleet)
{
    struct drill *drill = &fleet->drill;

    if (!undone_shows(fleet->world))
        return false;
    drill->another = drill_choose(fleet, ANYWHERE);
    drill->heir = drill_choose(fleet, ANYWHERE);
    return drill->heir != NULL;
}

static void
raced_well(void *arg, uint64_t data)
{
    struct fleet *fleet = arg;
    struct drill *drill = drill_at(fleet, data, DRILL_STAYS);

    servers_refuse(fleet->world, FAKE_WELL);
    if (drill == NULL)
        return;
    drill_quiet(fleet, undone_bound_us(fleet->world));
    drill_frees(fleet, undone_bound_us(fleet->world));
    drill_ask(drill, drill->heir, TASK_DRILL_WAITS, CLIENT_NO_WAIT);
}

static void
raced_looks(void *arg, uint64_t data)
{
    struct fleet *fleet = arg;
    struct drill *drill = drill_at(fleet, data, DRILL_STAYS);
    struct world *world = fleet->world;

    if (drill == NULL)
        return;
    struct task *holder = drill->holder;
    if (world->now_us > drill->true_from + drill_lease_us(world) / 2) {
        drill_end(fleet);
    } else if (!broker_reclaims(world, holder->client->broker)) {
        drill_event(fleet, RACED_LOOK_US, raced_looks);
    } else {
        drill->holder = NULL;
        servers_refuse(world, FAKE_MISCONF);
        drill_event(fleet, RACED_ILL_US, raced_well);
        drill_release(holder, TASK_DRILL_OVER);
    }
}

void
raced_granted(struct fleet *fleet, struct task *task)
{
    struct drill *drill = &fleet->drill;
    struct world *world = fleet->world;

    if (task == drill->heir) {
        drill_end(fleet);
        return;
    }
    if (drill->stage != DRILL_ACTS)
        return;
    /* A hold that was over long ago, and whose broker is dead, is in the way
     * for another lease, which would hide what this is to show. */
    if (server_believes(world, drill->lock)) {
        drill_end(fleet);
        return;
    }
    drill->stage = DRILL_STAYS;
    drill->serial++;
    drill->survives = true;
    drill->true_from = world->now_us;
    server_swaps(world);
    drill_packets_pass(world, 0);
    raced_looks(fleet, drill->serial);
}

/* --- a grant that nobody heard of, and the one that followed it ----------- */

#define REPEATED_US 1500000 /* the heir asks, and a broker has a new master */

/*
 * The broker of a LOCK does not hear that Redis has granted it. Its lease ends,
 * and the heir has the lock. A replica takes over that knows of the first grant
 * alone, and the heir's broker is cut off. The first broker asks again: it must
 * not take that grant up, and has the lock after the grace.
 */
bool
repeated_begin(struct fleet *fleet)
{
    struct drill *drill = &fleet->drill;
    const struct world *world = fleet->world;

    /* The LOCK is asked about until its patience is over. */
    if (!plan_settles(&world->plan) ||
        world->plan.lease_ms + REPEATED_US / 1000 >
            world->plan.redis_timeout_ms)
        return false;
    drill->another = drill_choose(fleet, ANYWHERE);
    if (drill->another == NULL)
        return false;
    drill->broker = drill->another->client->broker;
    drill->heir = drill_choose(fleet, NOT_AT_BROKER);
    return drill->heir != NULL;
}

/* The replica has the first grant, and gets nothing more from now on. */
static void
repeated_leaves(void *arg, uint64_t data)
{
    struct fleet *fleet = arg;
    struct drill *drill = drill_at(fleet, data, DRILL_ACTS);
    struct world *world = fleet->world;

    if (drill == NULL)
        return;
    if (!server_leaves_behind(world, drill->lock) || server_misses(world) > 0 ||
        !server_believes(world, drill->lock)) {
        drill_end(fleet);
        return;
    }
    drill_frees(fleet,
        drill_lease_us(world) + drill_asks_us(world) + drill_prompt_us(world));
    drill_ask(drill, drill->heir, TASK_DRILL_HOLDS, CLIENT_NO_WAIT);
}

void
repeated_acts(struct fleet *fleet)
{
    struct drill *drill = &fleet->drill;
    struct world *world = fleet->world;
    struct machine *broker = broker_machine(world, drill->broker);

    for (uint32_t i = 0; i < drill_servers(world); i++)
        net_block(world->net, server_machine(world, i), broker);
    drill_ask(drill, drill->another, TASK_DRILL_HOLDS, CLIENT_NO_WAIT);
    drill_event(fleet, 2 * drill_packets_us(world), repeated_leaves);
}

void
repeated_granted(struct fleet *fleet, struct task *task)
{
    struct drill *drill = &fleet->drill;
    struct world *world = fleet->world;

    if (task != drill->heir || drill->stage != DRILL_FREES ||
        drill->rounds++ > 0) {
        drill_end(fleet);
        return;
    }
    server_swaps(world);
    drill_packets_pass(world, 0);
    drill_nodes_leave(fleet, task->client->broker, 0, drill_servers(world));
    drill->holder = task;
    drill->heir = drill->another;
    drill->another = NULL;
    drill_frees(fleet, undone_bound_us(world) + drill_lease_us(world));
}

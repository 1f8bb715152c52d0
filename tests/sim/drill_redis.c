/*
 * Drills in which Redis itself is in trouble: slots, masters, data. See
 * drill.h.
 */
#include "tests/sim/drill.h"

#include "daemon/base/assert.h"
#include "tests/sim/broker.h"
#include "tests/sim/server.h"

#include <inttypes.h>

/* Whether no broker has just met a node that a slot may go to, or come from,
 * nor is about to. */
static bool
all_settled(const struct fleet *fleet)
{
    const struct world *world = fleet->world;

    return brokers_settled(world) &&
           world->now_us >= servers_changed_us(world) + DRILL_REJOIN_US +
                                (uint64_t)world->plan.settle_ms * 1000;
}

/* --- a slot is on its way ------------------------------------------------- */

/*
 * The heir asks for the lock, and beside it for another one in the same slot:
 * one of them may have moved, both, or none. They are renewed on the way. (A
 * remnant of a lost broker may be in the way for a lease, as another clock
 * measures its end.)
 */
bool
moves_begin(struct fleet *fleet)
{
    struct drill *drill = &fleet->drill;
    struct world *world = fleet->world;

    if (!world->plan.cluster || world->plan.masters < 2 || !all_settled(fleet))
        return false;
    drill->lock = drill->lock / 3 * 3;
    drill->heir = drill_choose(fleet, ANYWHERE);
    if (drill->heir == NULL || fleet->left[drill->lock])
        return false;
    struct client *client = drill->heir->client;
    if (client->task_count > 1 && drill->lock + 1 < world->plan.locks &&
        !fleet->left[drill->lock + 1])
        drill->another = &client->tasks[1];
    return true;
}

void
moves_acts(struct fleet *fleet)
{
    struct drill *drill = &fleet->drill;
    struct world *world = fleet->world;

    if (!server_park(world, drill->lock, world_odds(world, 3) ? 1000 : 1)) {
        drill_end(fleet);
        return;
    }
    drill_frees(fleet, drill_prompt_us(world));
    struct task *another = drill->another;
    if (another != NULL) {
        /* In one write, so that one call may ask for both. */
        another->purpose = TASK_DRILL_HOLDS;
        another->owner = 0;
        task_wants(another, drill->lock + 1, CLIENT_NO_WAIT, 0);
        if (!task_send_wish(another, false)) {
            drill_failed(another->client);
            return;
        }
        another->state = TASK_ASKING;
        another->timer++;
    }
    drill_ask(drill, drill->heir, TASK_DRILL_HOLDS, CLIENT_NO_WAIT);
}

void
moves_granted(struct fleet *fleet, struct task *task)
{
    struct world *world = fleet->world;

    (void)task;
    if (drill_unserved(&fleet->drill) == NULL)
        drill_stays(fleet, world_below(world, drill_lease_us(world) * 3 / 2));
}

/* --- brokers that are left with something --------------------------------- */

/* A client whose broker will be left with less than others: with too few, or
 * with an old master while the others hear of the new one (drill_next). */
static struct task *
split_choose(struct fleet *fleet)
{
    struct world *world = fleet->world;

    if (world->plan.brokers < 2)
        return NULL;
    fleet->drill.broker = (uint32_t)world_below(world, world->plan.brokers);
    return drill_choose(fleet, AT_BROKER);
}

/* --- a node of a quorum forgets ------------------------------------------- */

/*
 * A majority, and no more, grants a lock, while the other nodes are out of
 * reach; then one of it loses its data. Those that never knew of the hold and
 * the one that knows no more are a majority, too: it grants nothing before the
 * holder has been told.
 */
bool
forgets_begin(struct fleet *fleet)
{
    struct drill *drill = &fleet->drill;

    if (!all_settled(fleet))
        return false;
    drill->another = drill_choose(fleet, ANYWHERE);
    drill->heir = drill_choose(fleet, ANYWHERE);
    return drill->heir != NULL;
}

void
drill_nodes_leave(
    struct fleet *fleet, uint32_t number, uint32_t from, uint32_t count)
{
    struct world *world = fleet->world;
    struct machine *broker = broker_machine(world, number);

    for (uint32_t i = 0; i < count; i++) {
        struct machine *node =
            server_machine(world, (from + i) % drill_servers(world));
        net_cut_between(world->net, node, broker);
        net_block(world->net, node, broker);
        net_block(world->net, broker, node);
    }
}

void
forgets_acts(struct fleet *fleet)
{
    struct drill *drill = &fleet->drill;
    struct world *world = fleet->world;

    drill->second = (uint32_t)world_below(world, world->plan.masters);
    for (uint32_t i = 0; i < world->plan.brokers; i++)
        drill_nodes_leave(fleet, i, drill->second + 1, world->plan.masters / 2);
    drill->holder = drill->another;
    drill->another = NULL;
    drill_ask(drill, drill->holder, TASK_DRILL_HOLDS, CLIENT_NO_WAIT);
}

void
forgets_granted(struct fleet *fleet, struct task *task)
{
    struct drill *drill = &fleet->drill;
    struct world *world = fleet->world;

    if (task == drill->heir) {
        drill_end(fleet);
        return;
    }
    if (drill->stage != DRILL_ACTS)
        return;
    drill_packets_pass(world, 0);
    server_restart(world, drill->second, false);
    drill_frees(fleet,
        2 * drill_lease_us(world) + DRILL_REJOIN_US + drill_prompt_us(world));
    drill_ask(drill, drill->heir, TASK_DRILL_WAITS, CLIENT_NO_WAIT);
}

void
forgets_over(struct fleet *fleet)
{
    drill_packets_pass(fleet->world, 0);
    drill_quiet(
        fleet, (uint64_t)fleet->world->plan.settle_ms * 1000 + DRILL_REJOIN_US);
}

/* --- a broker is left with the smaller part ------------------------------- */

/* The holder's (split_begin); what that part still renews does not count, so it
 * is told, and the heir has the lock from the others when their leases end. */
void
parted_acts(struct fleet *fleet)
{
    struct world *world = fleet->world;

    drill_nodes_leave(fleet, fleet->drill.broker,
        (uint32_t)world_below(world, world->plan.masters),
        world->plan.masters / 2 + 1);
    drill_frees(
        fleet, drill_lease_us(world) * 3 / 2 + 3 * drill_prompt_us(world));
}

/* --- the brokers' turns --------------------------------------------------- */

/* Eight in a row, and whoever waits elsewhere may miss some of its turns. */
#define TURNS_MAX 100

/*
 * Two clients of one broker take the lock again and again without a pause. The
 * heir waits at another broker, and is to have its turn.
 */
bool
turns_begin(struct fleet *fleet)
{
    struct drill *drill = &fleet->drill;

    drill->holder = drill_choose(fleet, ANYWHERE);
    if (drill->holder == NULL)
        return false;
    drill->broker = drill->holder->client->broker;
    drill->another = drill_choose(fleet, AT_BROKER);
    drill->heir = drill_choose(fleet, NOT_AT_BROKER);
    return drill->another != NULL && drill->heir != NULL;
}

static void
turns_pass(void *arg, uint64_t data)
{
    struct fleet *fleet = arg;
    struct drill *drill = drill_at(fleet, data, DRILL_STAYS);

    if (drill == NULL)
        return;
    struct task *const tasks[] = {drill->holder, drill->another};
    for (int i = 0; i < 2; i++) {
        if (tasks[i] != NULL && tasks[i]->count > 0)
            drill_release(tasks[i], TASK_DRILL_OVER);
        else if (tasks[i] != NULL && tasks[i]->state == TASK_IDLE)
            drill_ask(drill, tasks[i], TASK_DRILL_HOLDS, CLIENT_NO_WAIT);
    }
    drill_event(fleet, 1000, turns_pass);
}

void
turns_acts(struct fleet *fleet)
{
    struct drill *drill = &fleet->drill;

    drill->stage = DRILL_STAYS;
    drill->serial++;
    drill->true_from = fleet->world->now_us;
    turns_pass(fleet, drill->serial);
}

void
turns_granted(struct fleet *fleet, struct task *task)
{
    struct drill *drill = &fleet->drill;

    if (task != drill->heir && drill->rounds++ < TURNS_MAX)
        return;
    if (task != drill->heir)
        check_broken(fleet->world->check, PROMISE_SERVED, drill->true_from,
            "lock-%" PRIu32 ": %s waits for it still, after %" PRIu32
            " grants to clients of another broker",
            drill->lock, drill->heir->who, drill->rounds);
    drill_end(fleet);
}

/* --- an UNLOCK overtakes a renewal ---------------------------------------- */

/* Percent of the lease: from when on the nodes sleep, and for how long; a
 * broker renews a hold at 30 to 34 of it. */
#define GIVEN_SLEEPS 29
#define GIVEN_FOR    6

static uint64_t
given_span_us(const struct world *world)
{
    return drill_lease_us(world) / 100 * GIVEN_FOR;
}

static uint64_t
given_bound_us(const struct world *world)
{
    return drill_packets_us(world) + 150000;
}

/*
 * The nodes sleep when the hold is to be renewed, and it is given back shortly
 * before they wake. Their word on the renewal does not matter any more, and the
 * UNLOCK is answered as soon as any. Were it forgotten, the broker would ask
 * again when its time for an answer is over.
 */
bool
given_begin(struct fleet *fleet)
{
    struct drill *drill = &fleet->drill;
    const struct world *world = fleet->world;
    uint64_t timeout_us = (uint64_t)world->plan.command_timeout_ms * 1000;

    if (given_span_us(world) + drill_packets_us(world) > timeout_us ||
        given_bound_us(world) + drill_packets_us(world) > timeout_us)
        return false;
    drill->holder = drill_choose(fleet, ANYWHERE);
    return drill->holder != NULL;
}

static void
given_late(void *arg, uint64_t data)
{
    struct fleet *fleet = arg;
    const struct drill *drill = drill_at(fleet, data, DRILL_FREES);

    if (drill == NULL)
        return;
    const struct task *holder = drill->holder;
    if (holder->unlocks > 0 &&
        net_resent_us(fleet->world->net) < drill->true_from)
        check_broken(fleet->world->check, PROMISE_ANSWERED, drill->true_from,
            "%s: an UNLOCK of lock-%" PRIu32 " is not answered yet",
            holder->who, drill->lock);
    drill_end(fleet);
}

static void
given_gives(void *arg, uint64_t data)
{
    struct fleet *fleet = arg;
    struct drill *drill = drill_at(fleet, data, DRILL_STAYS);

    if (drill == NULL)
        return;
    drill->stage = DRILL_FREES;
    drill_event(fleet, given_bound_us(fleet->world), given_late);
    drill_release(drill->holder, TASK_DRILL_OVER);
}

static void
given_sleeps(void *arg, uint64_t data)
{
    struct fleet *fleet = arg;
    struct world *world = fleet->world;
    struct drill *drill = drill_at(fleet, data, DRILL_STAYS);
    uint64_t span_us = given_span_us(world);

    if (drill == NULL)
        return;
    require(span_us > 0); /* or it would not have begun */
    for (uint32_t i = 0; i < drill_servers(world); i++)
        machine_stop(server_machine(world, i), world->now_us + span_us);
    drill->true_from = world->now_us;
    drill_event(fleet, span_us - drill_packets_us(world) / 4, given_gives);
}

void
given_granted(struct fleet *fleet, struct task *task)
{
    struct drill *drill = &fleet->drill;

    if (task != drill->holder || drill->stage != DRILL_HOLDS)
        return;
    drill->stage = DRILL_STAYS;
    drill->serial++;
    drill_event(
        fleet, drill_lease_us(fleet->world) / 100 * GIVEN_SLEEPS, given_sleeps);
}

/* --- a name that follows the master --------------------------------------- */

/* The brokers settle with the new one, and the hold is renewed. */
static uint64_t
named_bound_us(const struct world *world)
{
    return (uint64_t)world->plan.settle_ms * 1000 +
           drill_lease_us(world) * 3 / 2;
}

static void
named_gives(void *arg, uint64_t data)
{
    struct fleet *fleet = arg;

    if (drill_at(fleet, data, DRILL_ACTS) != NULL)
        drill_gives(fleet, drill_prompt_us(fleet->world));
}

/* A replica that has all takes over. The master lives on as its replica, and
 * nobody ends the brokers' connections to it. No hold is lost by that. */
void
named_acts(struct fleet *fleet)
{
    struct world *world = fleet->world;

    if (!server_switches(world, 0)) {
        drill_end(fleet);
        return;
    }
    fleet->drill.survives = true;
    drill_event(fleet, named_bound_us(world), named_gives);
}

/* --- Redis is slow -------------------------------------------------------- */

#define SLOW_SPARE_US     250000 /* a packet is sent again */
#define SLOW_AWAKE_US     2000
#define SLOW_REPLICAS_US  20000 /* replicas take what has come, at any rate */
#define SLOW_LEASE_MS     60000
#define SLOW_ROUND_MS     100
#define SLOW_SENTINELS_US 400000 /* so they do not miss it */

/* For so long all servers are awake in between. */
static uint64_t
slow_awake_us(const struct world *world)
{
    return world->plan.strict ? SLOW_REPLICAS_US : SLOW_AWAKE_US;
}

/* A renewal may meet two sleeps, and what replicas have two more. All of that
 * is in time where it takes less than a third of a lease. */
static uint64_t
slow_span_us(const struct world *world)
{
    uint64_t third_us = drill_lease_us(world) / 3;
    uint64_t spare_us =
        drill_packets_us(world) + SLOW_SPARE_US + 5 * slow_awake_us(world);
    uint64_t span_us = third_us > spare_us ? third_us - spare_us : 0;

    span_us /= world->plan.strict ? 5 : 2;
    return world->plan.sentinels > 0 && span_us > SLOW_SENTINELS_US
               ? SLOW_SENTINELS_US
               : span_us;
}

bool
slow_begin(struct fleet *fleet)
{
    const struct world *world = fleet->world;

    /* Else it would not only answer late, but be taken for dead. A quorum's
     * round has to be under way when a majority wakes: where it lasts no longer
     * than the pause between two rounds, that is luck. */
    return world->plan.lease_ms <= SLOW_LEASE_MS &&
           (world->plan.quorum == 0 ||
               world->plan.command_timeout_ms >= SLOW_ROUND_MS) &&
           slow_span_us(world) >
               (uint64_t)world->plan.command_timeout_ms * 1000 &&
           drill_choose_two(fleet);
}

static void
slow_gives(void *arg, uint64_t data)
{
    struct fleet *fleet = arg;

    if (drill_at(fleet, data, DRILL_ACTS) != NULL)
        drill_gives(fleet, drill_prompt_us(fleet->world));
}

static void
slow_sleeps(void *arg, uint64_t data)
{
    struct fleet *fleet = arg;
    struct world *world = fleet->world;
    struct drill *drill = drill_at(fleet, data, DRILL_ACTS);
    uint64_t span_us = slow_span_us(world);

    if (drill == NULL)
        return;
    require(span_us > 0); /* or it would not have begun */
    for (uint32_t i = 0; i < drill_servers(world); i++)
        machine_stop(server_machine(world, i), world->now_us + span_us);
    bool last = drill->rounds++ > 5 * drill_lease_us(world) / span_us / 2;
    drill_event(fleet,
        span_us + (last ? DRILL_REJOIN_US : slow_awake_us(world)),
        last ? slow_gives : slow_sleeps);
}

/* Every Redis sleeps again and again, each time for longer than a command may
 * take. No hold is lost by that. */
void
slow_acts(struct fleet *fleet)
{
    fleet->drill.survives = true;
    drill_event(fleet, 0, slow_sleeps);
}

/* --- and its data are lost ------------------------------------------------ */

/* Its data are lost before the slot has moved. The slot is another node's then,
 * which has all its own. The holder's broker puts its hold there, and until
 * then the lock is not granted. */
bool
strands_begin(struct fleet *fleet)
{
    struct drill *drill = &fleet->drill;
    const struct plan *plan = &fleet->world->plan;

    if (plan->settle_ms == 0 || !all_settled(fleet) || !drill_choose_two(fleet))
        return false;
    drill->broker = drill->heir->client->broker;
    if (!plan->strict)
        drill->another = drill_choose(fleet, AT_BROKER);
    return true;
}

/* The rest of that shard's data comes back, and is waited for. */
void
strands_over(struct fleet *fleet)
{
    server_park_end(fleet->world);
    drill_quiet(
        fleet, (uint64_t)fleet->world->plan.settle_ms * 1000 + DRILL_REJOIN_US);
}

static void
strands_gives(void *arg, uint64_t data)
{
    struct fleet *fleet = arg;
    struct drill *drill = &fleet->drill;

    if (data != drill->serial || drill->stage != DRILL_ACTS)
        return;
    drill_gives(fleet, drill_prompt_us(fleet->world));
}

static void
strands_later(struct fleet *fleet)
{
    uint64_t settle_us = (uint64_t)fleet->world->plan.settle_ms * 1000;

    drill_event(
        fleet, 2 * settle_us + DRILL_REJOIN_US + 8000000, strands_gives);
}

/* The heir's broker has met the one that has taken over, but not long ago. */
static void
strands_leaves(void *arg, uint64_t data)
{
    struct fleet *fleet = arg;
    struct drill *drill = drill_at(fleet, data, DRILL_ACTS);
    struct world *world = fleet->world;

    if (drill == NULL)
        return;
    if (!server_park(world, drill->lock, 1000)) {
        drill_end(fleet);
        return;
    }
    server_park_end(world);
    drill_ask(drill, drill->another, TASK_DRILL_WAITS, CLIENT_NO_WAIT);
    strands_later(fleet);
}

static void
strands_ages(void *arg, uint64_t data)
{
    struct fleet *fleet = arg;
    struct drill *drill = drill_at(fleet, data, DRILL_ACTS);
    struct world *world = fleet->world;

    if (drill == NULL)
        return;
    drill->survives = true;
    server_swaps(world);
    drill_packets_pass(world, 0);
    drill_ask(drill, drill->heir, TASK_DRILL_WAITS, CLIENT_NO_WAIT);
    drill_event(fleet, 2 * drill_packets_us(world), strands_leaves);
}

/* Or what moves is of a replica that has heard of no renewal for a lease. */
void
strands_acts(struct fleet *fleet)
{
    struct drill *drill = &fleet->drill;
    struct world *world = fleet->world;

    if (drill->another != NULL && world_odds(world, 2) &&
        server_leaves_behind(world, drill->lock)) {
        drill_event(fleet, drill_lease_us(world) * 9 / 8, strands_ages);
    } else if (server_strand(world, drill->lock)) {
        drill_ask(drill, drill->heir, TASK_DRILL_WAITS, CLIENT_NO_WAIT);
        strands_later(fleet);
    } else {
        drill_end(fleet);
    }
}

/* It finds out who the new master is, settles with it, and the lease of whoever
 * holds the lock begins anew there when it asks, and ends. */
static uint64_t
split_bound_us(const struct world *world)
{
    return (uint64_t)world->plan.settle_ms * 1000 + drill_lease_us(world) +
           DRILL_REJOIN_US + 3 * drill_prompt_us(world);
}

/* --- a replica is behind -------------------------------------------------- */

/*
 * A replica does not get what its master has granted: nobody is told that it
 * has the lock before it does. Nor when the replica gets an earlier grant to
 * another client at the same broker. Nor when the replica takes the shard over,
 * and the master comes back, which knows nothing of it any more.
 */
bool
behind_begin(struct fleet *fleet)
{
    struct drill *drill = &fleet->drill;

    drill->heir = drill_choose(fleet, ANYWHERE);
    if (drill->heir == NULL)
        return false;
    drill->lock = drill->lock / 3 * 3;
    drill->broker = drill->heir->client->broker;
    if (world_odds(fleet->world, 2))
        drill->another = drill_choose(fleet, AT_BROKER);
    return true;
}

/* Brokers may have seen it as one that lags, and look only now and then. */
static void
behind_ends(void *arg, uint64_t data)
{
    struct fleet *fleet = arg;

    if (data != fleet->drill.serial || fleet->drill.stage != DRILL_ACTS)
        return;
    drill_packets_pass(fleet->world, 0);
    drill_frees(fleet, drill_prompt_us(fleet->world) + DRILL_REJOIN_US);
}

static void
behind_takes(void *arg, uint64_t data)
{
    struct fleet *fleet = arg;

    if (data != fleet->drill.serial || fleet->drill.stage != DRILL_ACTS)
        return;
    server_takes(fleet->world, fleet->drill.rounds);
    drill_event(fleet, world_below(fleet->world, 30000), behind_ends);
}

static void
behind_asks(void *arg, uint64_t data)
{
    struct fleet *fleet = arg;
    struct drill *drill = &fleet->drill;
    struct world *world = fleet->world;

    if (data != drill->serial || drill->stage != DRILL_ACTS)
        return;
    drill->queued = 1;
    drill->rounds = (uint32_t)server_misses(world);
    drill_ask_for(drill, drill->another, drill->lock + 1, TASK_DRILL_WAITS);
    drill_event(fleet, drill_moment_us(world), behind_takes);
}

/* From here on it is as with masters that are replaced. */
static void
behind_swaps(void *arg, uint64_t data)
{
    struct fleet *fleet = arg;
    struct world *world = fleet->world;

    if (data != fleet->drill.serial || fleet->drill.stage != DRILL_ACTS)
        return;
    server_swaps(world);
    if (fleet->drill.rounds++ == 0) {
        drill_event(fleet, world_below(world, 30000), behind_swaps);
        return;
    }
    drill_packets_pass(world, 0);
    drill_frees(fleet, split_bound_us(world));
    drill_quiet(fleet, split_bound_us(world));
}

void
behind_acts(struct fleet *fleet)
{
    struct drill *drill = &fleet->drill;
    struct world *world = fleet->world;
    uint64_t moment_us = drill_moment_us(world);

    if (!server_leaves_behind(world, drill->lock)) {
        drill_end(fleet);
        return;
    }
    drill_ask(drill, drill->heir, TASK_DRILL_WAITS, CLIENT_NO_WAIT);
    if (drill->another != NULL && drill->lock + 1 < world->plan.locks)
        drill_event(fleet, moment_us, behind_asks);
    else if (world->plan.cluster && world_odds(world, 2))
        drill_event(fleet, moment_us, behind_swaps);
    else
        drill_event(fleet, moment_us + world_below(world, 300000), behind_ends);
}

void
behind_granted(struct fleet *fleet, struct task *task)
{
    struct drill *drill = &fleet->drill;
    struct world *world = fleet->world;

    if (!servers_have(world, task->lock, task->fence))
        check_broken(world->check, PROMISE_EXCLUSION, world->now_us,
            "lock-%" PRIu32 ": %s has it, and not all replicas know",
            task->lock, task->who);
    drill_release(task, TASK_DRILL_OVER);
    if (task == drill->heir)
        drill->heir = drill->queued > 0 ? drill->another : NULL;
    drill->another = NULL;
    if (drill->heir == NULL)
        drill_end(fleet);
}

/* --- a master that has been replaced goes on ------------------------------ */

/*
 * One broker, and no other, is left with the old master. Its writes do not come
 * to all replicas, so they must not be told: neither that a holder's lease goes
 * on, nor a grant. Others ask the new master, which lets them have it a lease
 * after they have met it.
 */
static bool
split_apart(struct fleet *fleet)
{
    struct drill *drill = &fleet->drill;
    struct world *world = fleet->world;
    struct machine *old = server_split(world, drill->lock);

    if (old == NULL)
        return false;
    for (uint32_t i = 0; i < world->plan.brokers; i++)
        if (i != drill->broker) {
            struct machine *broker = broker_machine(world, i);
            net_cut_between(world->net, old, broker);
            net_block(world->net, old, broker);
            net_block(world->net, broker, old);
        }
    fleet->left[drill->lock] = true;
    return true;
}

void
split_over(struct fleet *fleet)
{
    server_split_end(fleet->world);
    drill_packets_pass(fleet->world, 0);
    drill_quiet(fleet, drill_lease_us(fleet->world) + DRILL_REJOIN_US);
}

/* The holder's broker is left with the old master, and the heir waits. */
bool
split_begin(struct fleet *fleet)
{
    struct drill *drill = &fleet->drill;

    drill->holder = split_choose(fleet);
    drill->heir =
        drill->holder == NULL ? NULL : drill_choose(fleet, NOT_AT_BROKER);
    return drill->heir != NULL;
}

void
split_acts(struct fleet *fleet)
{
    if (split_apart(fleet))
        drill_frees(fleet, split_bound_us(fleet->world));
    else
        drill_end(fleet);
}

/* Nobody holds it; another one asks the old master a moment later. */
bool
stale_begin(struct fleet *fleet)
{
    struct drill *drill = &fleet->drill;

    drill->another = split_choose(fleet);
    drill->heir =
        drill->another == NULL ? NULL : drill_choose(fleet, NOT_AT_BROKER);
    return drill->heir != NULL;
}

static void
stale_asks(void *arg, uint64_t data)
{
    struct fleet *fleet = arg;
    struct drill *drill = &fleet->drill;

    if (data == drill->serial && drill->stage == DRILL_FREES)
        drill_ask(drill, drill->another, TASK_DRILL_HOLDS, CLIENT_NO_WAIT);
}

void
stale_acts(struct fleet *fleet)
{
    struct drill *drill = &fleet->drill;
    struct world *world = fleet->world;

    if (!split_apart(fleet)) {
        drill_end(fleet);
        return;
    }
    drill_frees(fleet, split_bound_us(world));
    drill_event(fleet, world_below(world, 3000000), stale_asks);
    drill_ask(drill, drill->heir, TASK_DRILL_WAITS, CLIENT_NO_WAIT);
}

void
stale_granted(struct fleet *fleet, struct task *task)
{
    if (task == fleet->drill.heir)
        drill_end(fleet);
}

/* --- the data are lost ---------------------------------------------------- */

/* And with them, who watches what. */
static void
flush(struct fleet *fleet, bool held)
{
    servers_flush(fleet->world, held);
    fleet->true_deaf = fleet->world->now_us + drill_lease_us(fleet->world);
}

/*
 * Of runs that have that fault in any case. The heir gets what the holder has;
 * the holder is told at its next renewal, within a third of the lease. Earlier
 * waiters are not overtaken by later ones, though arrivals begin anew.
 */
bool
wiped_begin(struct fleet *fleet)
{
    struct drill *drill = &fleet->drill;

    if (fleet->world->plan.fault_weight[FAULT_wiped] == 0)
        return false;
    if (!drill_choose_two(fleet))
        return false;
    drill_choose_waiters(fleet, ANYWHERE);
    if (drill->waiter_count > 1)
        drill->waiter_count = 1;
    drill->another = drill_choose(fleet, ANYWHERE);
    flush(fleet, true);
    return true;
}

static void
wiped_untold(void *arg, uint64_t data)
{
    struct fleet *fleet = arg;
    struct drill *drill = &fleet->drill;
    const struct task *holder = drill->holder;

    if (data != drill->serial || holder == NULL || holder->count == 0)
        return;
    check_broken(fleet->world->check, PROMISE_TOLD, fleet->world->now_us,
        "%s: lock-%" PRIu32 " is somebody else's, and nobody says so",
        holder->who, drill->lock);
    drill_end(fleet);
}

void
wiped_acts(struct fleet *fleet)
{
    struct drill *drill = &fleet->drill;

    drill_abandon_waiters(drill);
    flush(fleet, true);
    drill_frees(fleet, drill_prompt_us(fleet->world));
    drill_ask(drill, drill->heir, TASK_DRILL_HOLDS, CLIENT_NO_WAIT);
}

/* The excuse for two who believe is over before the heir gives back. */
static void
wiped_gives(void *arg, uint64_t data)
{
    struct fleet *fleet = arg;
    struct task *heir = fleet->drill.heir;

    if (data != fleet->drill.serial || fleet->drill.stage != DRILL_STAYS)
        return;
    fleet->drill.heir = NULL;
    drill_release(heir, TASK_DRILL_OVER);
    drill_stays(fleet, drill_lease_us(fleet->world) / 2 + 1000000);
}

void
wiped_granted(struct fleet *fleet, struct task *task)
{
    struct drill *drill = &fleet->drill;
    struct world *world = fleet->world;

    if (task != drill->heir || drill->stage != DRILL_FREES)
        return;
    drill->stage = DRILL_STAYS;
    drill->serial++;
    drill_event(fleet, drill_lease_us(world) * 2 / 5 + drill_prompt_us(world),
        wiped_untold);
    drill_event(fleet, 2 * drill_lease_us(world) + 2100000, wiped_gives);
    if (drill->another != NULL)
        drill_ask(drill, drill->another, TASK_DRILL_HOLDS, CLIENT_NO_WAIT);
}

/* --- replication ids change ----------------------------------------------- */

#define IDS_ROUNDS 16
#define IDS_US     40000

/*
 * They do so much faster than the clock runs on, with a grant after each; then
 * the data are lost, and a broker that knows nothing of these grants asks. Its
 * fence must be above them, as long as the clocks are right.
 */
bool
ids_begin(struct fleet *fleet)
{
    struct drill *drill = &fleet->drill;
    const struct plan *plan = &fleet->world->plan;

    if (plan->skew_us > 0 || plan->fault_weight[FAULT_broker_clock] > 0 ||
        plan->fault_weight[FAULT_clock_forward] > 0 ||
        plan->fault_weight[FAULT_clock_back] > 0 || plan->settle_ms > 0)
        return false;
    drill->heir = drill_choose(fleet, ANYWHERE);
    if (drill->heir == NULL)
        return false;
    drill->broker = drill->heir->client->broker;
    drill->another = drill_choose(fleet, NOT_AT_BROKER);
    return drill->another != NULL;
}

static void
ids_change(void *arg, uint64_t data)
{
    struct fleet *fleet = arg;
    struct drill *drill = &fleet->drill;
    bool rests = drill->heir != NULL && drill->heir->state == TASK_IDLE;

    if (data != drill->serial || drill->stage != DRILL_ACTS)
        return;
    if (!rests) {
        drill_event(fleet, IDS_US, ids_change);
    } else if (drill->rounds++ < IDS_ROUNDS) {
        servers_rename(fleet->world);
        drill_ask(drill, drill->heir, TASK_DRILL_WAITS, CLIENT_NO_WAIT);
    } else {
        flush(fleet, false);
        drill->heir = drill->another;
        drill->another = NULL;
        drill_frees(fleet, drill_prompt_us(fleet->world));
        drill_ask(drill, drill->heir, TASK_DRILL_WAITS, CLIENT_NO_WAIT);
    }
}

void
ids_acts(struct fleet *fleet)
{
    drill_event(fleet, 0, ids_change);
}

void
ids_granted(struct fleet *fleet, struct task *task)
{
    (void)task;
    if (fleet->drill.stage == DRILL_ACTS)
        drill_event(fleet, IDS_US, ids_change);
    else
        drill_end(fleet);
}

/* --- records of before, clocks of before ---------------------------------- */

#define COPY_ROUNDS 5
#define FORGETS_US  30000000

/*
 * The heir has the lock some times, and gives it back. The record of before is
 * there again after that, and a broker asks that knows nothing of these grants.
 */
bool
copies_begin(struct fleet *fleet)
{
    struct drill *drill = &fleet->drill;

    drill->heir = drill_choose(fleet, ANYWHERE);
    if (drill->heir == NULL)
        return false;
    drill->broker = drill->heir->client->broker;
    drill->another = drill_choose(fleet, NOT_AT_BROKER);
    return drill->another != NULL;
}

static void
another_asks(struct fleet *fleet)
{
    struct drill *drill = &fleet->drill;

    drill->heir = drill->another;
    drill->another = NULL;
    drill_frees(fleet, drill_prompt_us(fleet->world));
    drill_ask(drill, drill->heir, TASK_DRILL_WAITS, CLIENT_NO_WAIT);
}

static void
copies_change(void *arg, uint64_t data)
{
    struct fleet *fleet = arg;
    struct drill *drill = &fleet->drill;
    bool setback = drill->kind == DRILL_SETBACK;
    uint64_t idle_us = (uint64_t)plan_idle_ms(&fleet->world->plan) * 1000;
    bool rests = drill->heir != NULL && drill->heir->state == TASK_IDLE;

    if (data != drill->serial || drill->stage != DRILL_ACTS)
        return;
    if (!rests) {
        drill_event(fleet, IDS_US, copies_change);
        return;
    }
    if (drill->rounds == 1)
        drill->copied = servers_copy(fleet->world, drill->lock, drill->copy);
    if (!setback && drill->rounds > 0 && drill->copied == 0) {
        drill_end(fleet);
    } else if (drill->rounds++ < COPY_ROUNDS) {
        drill_ask(drill, drill->heir, TASK_DRILL_WAITS, CLIENT_NO_WAIT);
    } else if (setback && drill->rounds == COPY_ROUNDS + 1) {
        drill->rounds++; /* until Redis has forgotten it */
        drill_event(fleet, idle_us + FORGETS_US, copies_change);
    } else if (setback) {
        servers_set_back(fleet->world, idle_us + 2 * FORGETS_US);
        another_asks(fleet);
    } else if (servers_restore(
                   fleet->world, drill->lock, drill->copy, drill->copied)) {
        another_asks(fleet);
    } else {
        drill_end(fleet);
    }
}

void
copies_acts(struct fleet *fleet)
{
    drill_event(fleet, 0, copies_change);
}

void
copies_granted(struct fleet *fleet, struct task *task)
{
    (void)task;
    if (fleet->drill.stage == DRILL_ACTS)
        drill_event(fleet, IDS_US, copies_change);
    else
        drill_end(fleet);
}

/* Redis forgets the lock, and then all clocks are set back to before that. */
bool
setback_begin(struct fleet *fleet)
{
    return fleet->world->plan.settle_ms == 0 && copies_begin(fleet);
}

void
setback_acts(struct fleet *fleet)
{
    copies_acts(fleet);
}

/*
 * The kinds of drills, and the promise of each. See drill.h.
 */
#include "tests/sim/drill.h"

#include "daemon/base/assert.h"
#include "tests/sim/broker.h"
#include "tests/sim/server.h"

#include <inttypes.h>

/* The longest pause before the next try, and how many more may fail; conn.c. */
#define PAUSE_US 1500000
#define PAUSES   2

/* --- deaths --------------------------------------------------------------- */

void
drill_kill(struct fleet *fleet, const struct task *victim)
{
    if (world_odds(fleet->world, 2)) /* an RST in place of a FIN */
        net_cut(fleet->world->net, victim->client->connection);
    client_kill(fleet->world, victim->client->number);
}

/* The holder gives back; a dead one may stand next. */
static void
death_gives(void *arg, uint64_t data)
{
    struct fleet *fleet = arg;

    if (data != fleet->drill.serial || fleet->drill.stage != DRILL_ACTS)
        return;
    drill_gives(fleet, drill_prompt_us(fleet->world));
}

static bool
death_begin(struct fleet *fleet)
{
    struct drill *drill = &fleet->drill;

    if (!drill_choose_two(fleet))
        return false;
    if (world_odds(fleet->world, 2)) {
        drill_choose_waiters(fleet, ANYWHERE);
        if (drill->waiter_count > 1)
            drill->waiter_count = 1;
    }
    return true;
}

static void
death_acts(struct fleet *fleet)
{
    struct drill *drill = &fleet->drill;
    const struct task *victim =
        drill->waiter_count > 0 ? drill->waiters[0] : drill->holder;

    /* No part of it any more, so that its death does not end the drill. */
    if (victim == drill->holder) {
        drill->holder = NULL;
        drill_kill(fleet, victim);
        drill_frees(fleet, drill_prompt_us(fleet->world));
        return;
    }
    drill->waiter_count = 0;
    drill_kill(fleet, victim);
    drill_event(fleet, world_below(fleet->world, 50000), death_gives);
}

/* The client that has asked dies, whatever became of its request. The heir asks
 * then. */
static void
gone_acts(struct fleet *fleet)
{
    struct drill *drill = &fleet->drill;
    const struct task *victim = drill->holder;

    drill->holder = NULL;
    drill_kill(fleet, victim);
    drill_frees(fleet, drill_prompt_us(fleet->world));
    drill_ask(drill, drill->heir, TASK_DRILL_WAITS, CLIENT_NO_WAIT);
}

/* Its session ends by three heartbeats, if it has any, or by TCP. */
static bool
silent_begin(struct fleet *fleet)
{
    struct drill *drill = &fleet->drill;
    struct world *world = fleet->world;

    if (!drill_choose_two(fleet))
        return false;
    struct client *client = drill->holder->client;
    /* Silence is counted from the first packet that is lost, a PING's. */
    drill->silence_us =
        plan_silence_us(&world->plan) + drill_lease_us(world) / 3;
    if (world_odds(world, 4) || wire_begin(client, VERB_HELLO, NULL) == NULL)
        return true;
    uint64_t heartbeat_ms = 500 + world_below(world, 2000);
    wire_pair(client, "heartbeat", heartbeat_ms);
    wire_end(client);
    drill->silence_us = heartbeat_ms * 3000;
    return true;
}

void
drill_packets_pass(void *arg, uint64_t data)
{
    struct world *world = arg;

    (void)data;
    net_unblock_all(world->net);
}

/* One that is cut off has a deadline, which is over by then. */
static void
silent_acts(struct fleet *fleet)
{
    struct drill *drill = &fleet->drill;
    struct world *world = fleet->world;
    struct task *victim = drill->holder;
    uint64_t span_us = drill->silence_us + 2000000;

    drill->holder = NULL;
    drill_frees(fleet, drill->silence_us + drill_prompt_us(world));
    if (world_odds(world, 2)) {
        client_vanish(world, victim->client->number);
        return;
    }
    struct machine *broker = broker_machine(world, victim->client->broker);
    struct machine *machine = victim->client->machine;
    world_note(world, machine->name, "is cut off");
    net_block(world->net, machine, broker);
    net_block(world->net, broker, machine);
    world_at(world, world->now_us + span_us, drill_packets_pass, world, 0);
    victim->purpose = TASK_DRILL_OVER;
    task_wake(victim, span_us);
    drill_quiet(fleet, span_us + DRILL_REJOIN_US);
}

/* --- the brokers lose Redis ----------------------------------------------- */

static void
shaken_shakes(void *arg, uint64_t data)
{
    struct fleet *fleet = arg;
    struct world *world = fleet->world;

    if (data != fleet->drill.serial || fleet->drill.stage != DRILL_FREES)
        return;
    for (uint32_t i = 0; i < drill_servers(world); i++)
        net_cut_machine(world->net, server_machine(world, i));
    fleet->true_deaf = world->now_us + DRILL_REJOIN_US;
}

static bool
shaken_begin(struct fleet *fleet)
{
    struct drill *drill = &fleet->drill;

    drill->heir = drill_choose(fleet, ANYWHERE);
    return drill->heir != NULL;
}

static void
shaken_acts(struct fleet *fleet)
{
    struct world *world = fleet->world;

    drill_frees(fleet, drill_prompt_us(world));
    drill_ask(
        &fleet->drill, fleet->drill.heir, TASK_DRILL_WAITS, CLIENT_NO_WAIT);
    drill_event(
        fleet, world_below(world, drill_moment_us(world)), shaken_shakes);
}

/* The release may be lost, or the hint of what it grants. */
static void
unheard_acts(struct fleet *fleet)
{
    struct world *world = fleet->world;

    drill_gives(fleet, drill_prompt_us(world) + drill_asks_us(world));
    drill_event(
        fleet, world_below(world, drill_moment_us(world)), shaken_shakes);
}

/* Somebody is granted the lock who has no right to it yet. */
static void
order_broken(struct fleet *fleet, const struct task *task)
{
    const struct drill *drill = &fleet->drill;

    check_broken(fleet->world->check, PROMISE_ORDER, drill->true_from,
        "lock-%" PRIu32 ": %s is granted it, and %s stands before it",
        drill->lock, task->who, drill->heir->who);
    drill_end(fleet);
}

/*
 * The heir's request is carried out, and its broker hears nothing of Redis for
 * longer than the lease. The grant is over when the broker asks again, and must
 * be granted anew. Its heartbeats are such that no less than the lease is told.
 * Almost nothing of a shorter silence may be left after the wait, and it would
 * give the lock back before its PING is answered.
 */
static bool
retries_begin(struct fleet *fleet)
{
    struct drill *drill = &fleet->drill;
    uint32_t lease_ms = fleet->world->plan.lease_ms;

    /* It is to be before the request's own patience is over. */
    if (drill_lease_us(fleet->world) > 3000000)
        return false;
    drill->heir = drill_choose(fleet, ANYWHERE);
    drill->another = drill->heir == NULL ? NULL : drill_choose(fleet, ANYWHERE);
    if (drill->another == NULL ||
        wire_begin(drill->heir->client, VERB_HELLO, NULL) == NULL)
        return false;
    wire_pair(drill->heir->client, "heartbeat", lease_ms);
    wire_end(drill->heir->client);
    return true;
}

static void
retries_acts(struct fleet *fleet)
{
    struct drill *drill = &fleet->drill;
    struct world *world = fleet->world;
    struct machine *broker = broker_machine(world, drill->heir->client->broker);
    uint64_t span_us =
        drill_lease_us(world) * 11 / 10 + drill_packets_us(world);

    for (uint32_t i = 0; i < drill_servers(world); i++)
        net_block(world->net, server_machine(world, i), broker);
    world_at(world, world->now_us + span_us, drill_packets_pass, world, 0);
    drill_quiet(fleet, span_us + DRILL_REJOIN_US);
    drill_frees(fleet, span_us + DRILL_REJOIN_US);
    drill_ask(drill, drill->heir, TASK_DRILL_HOLDS, CLIENT_NO_WAIT);
}

/* It is the heir's, whoever asks, for as long as it stays. */
static void
retries_granted(struct fleet *fleet, struct task *task)
{
    struct drill *drill = &fleet->drill;

    if (task != drill->heir) {
        order_broken(fleet, task);
        return;
    }
    drill_stays(fleet, drill_lease_us(fleet->world) * 3 / 2);
    drill_ask(drill, drill->another, TASK_DRILL_HOLDS, CLIENT_NO_WAIT);
}

/*
 * A request is under way when every Redis falls asleep, and when they wake all
 * who were concerned have given it up and told so: nothing may come of it.
 * Their clocks are doubted for a while then, so what a lost broker has left in
 * a record is not over at once.
 */
static bool
asleep_begin(struct fleet *fleet)
{
    return !fleet->left[fleet->drill.lock] && drill_choose_two(fleet);
}

static void
asleep_wakes(void *arg, uint64_t data)
{
    struct fleet *fleet = arg;
    struct drill *drill = &fleet->drill;

    if (data != drill->serial || drill->stage != DRILL_ACTS)
        return;
    /* In a greeting, too, what is sent again may miss a short time-out; the
     * pause after that is a long one by now. */
    if (!broker_ready(fleet->world, drill->heir->client->broker) &&
        drill->rounds++ < PAUSES) {
        drill_event(fleet, PAUSE_US, asleep_wakes);
        return;
    }
    drill_frees(fleet, drill_prompt_us(fleet->world));
    drill_ask(drill, drill->heir, TASK_DRILL_WAITS, CLIENT_NO_WAIT);
}

static void
asleep_acts(struct fleet *fleet)
{
    struct drill *drill = &fleet->drill;
    struct world *world = fleet->world;
    uint64_t timeout_us = (uint64_t)world->plan.command_timeout_ms * 1000;
    uint64_t sleeps_us = drill_lease_us(world) + 2 * timeout_us + 1000000 +
                         world_below(world, 1000000);
    struct task *asker = drill->holder;

    for (uint32_t i = 0; i < drill_servers(world); i++)
        machine_stop(server_machine(world, i), world->now_us + sleeps_us);
    drill_ask(drill, asker, TASK_DRILL_OVER,
        world_odds(world, 4) ? CLIENT_NO_WAIT
                             : 1 + (uint32_t)world_below(world, 20));
    if (drill->stage == DRILL_NONE)
        return;
    drill->holder = NULL;
    drill_quiet(fleet, sleeps_us + DRILL_REJOIN_US);
    drill_event(fleet, sleeps_us + DRILL_REJOIN_US, asleep_wakes);
}

/* --- a long wait ---------------------------------------------------------- */

static bool
place_begin(struct fleet *fleet)
{
    struct drill *drill = &fleet->drill;

    if (!drill_choose_two(fleet))
        return false;
    drill->another = drill_choose_behind(fleet);
    return drill->another != NULL;
}

/* The last one to ask stands behind who has waited for a lease and more. */
static void
place_asks(void *arg, uint64_t data)
{
    struct fleet *fleet = arg;
    struct drill *drill = &fleet->drill;

    if (data == drill->serial && drill->stage == DRILL_STAYS)
        drill_ask(drill, drill->another, TASK_DRILL_WAITS, CLIENT_NO_WAIT);
}

static void
place_acts(struct fleet *fleet)
{
    uint64_t wait_us = drill_lease_us(fleet->world) * 6 / 5;

    fleet->drill.stage = DRILL_STAYS;
    drill_event(fleet, wait_us, place_asks);
}

static void
place_queued(struct fleet *fleet, const struct task *task)
{
    if (fleet->drill.stage != DRILL_STAYS || fleet->drill.holder == NULL ||
        task != fleet->drill.another)
        return;
    drill_gives(fleet, drill_prompt_us(fleet->world));
}

void
drill_in_order(struct fleet *fleet, struct task *task)
{
    if (task == fleet->drill.heir)
        drill_end(fleet);
    else
        order_broken(fleet, task);
}

/* --- a lease= runs out ---------------------------------------------------- */

static bool
lapses_begin(struct fleet *fleet)
{
    struct drill *drill = &fleet->drill;
    struct world *world = fleet->world;
    uint64_t least_ms = drill_packets_us(world) / 500 + 500;

    drill->holder = drill_choose(fleet, ANYWHERE);
    if (drill->holder == NULL)
        return false;
    drill->heir = drill_choose(fleet, ANYWHERE); /* or nobody */
    drill->lease_ms =
        (uint32_t)(least_ms + world_below(world, 2 * world->plan.lease_ms));
    return true;
}

/* LOST comes before the lease is over; this is what its packet may take. */
static void
lapses_untold(void *arg, uint64_t data)
{
    struct fleet *fleet = arg;
    struct drill *drill = &fleet->drill;
    const struct task *holder = drill->holder;

    if (data != drill->serial || holder == NULL)
        return;
    if (holder->count > 0 && holder->unlocks == 0)
        check_broken(fleet->world->check, PROMISE_TOLD, drill->true_from,
            "%s: lease=%" PRIu32 " of lock-%" PRIu32
            " is over, and nobody says so",
            holder->who, drill->lease_ms, drill->lock);
    drill_end(fleet);
}

static void
lapses_granted(struct fleet *fleet, struct task *task)
{
    struct drill *drill = &fleet->drill;
    struct world *world = fleet->world;
    uint64_t term_us = (uint64_t)drill->lease_ms * 1000;

    if (task == drill->holder) {
        drill_frees(fleet, term_us + drill_prompt_us(world));
        drill_event(fleet, term_us + drill_packets_us(world) / 4 + 250000,
            lapses_untold);
        if (drill->heir != NULL)
            drill_ask(drill, drill->heir, TASK_DRILL_WAITS, CLIENT_NO_WAIT);
        return;
    }
    drill->heir = NULL;
    drill_release(task, TASK_DRILL_OVER);
    if (drill->holder == NULL)
        drill_end(fleet);
}

/* --- a RENEW overtakes ---------------------------------------------------- */

/*
 * Percent of the lease: until Redis takes no renewal, and from when it takes
 * them again. In the rest of the time its waiter must be heard of, or it gives
 * up. Its broker asks again twice, should the first answer be late.
 */
#define RENEWS_ILL      25
#define RENEWS_LEFT     15
#define RENEWS_AGAIN_US (2 * 220000)

/*
 * The hold has a lease= that is a little longer than the broker's lease. Redis
 * takes no renewal until two wait for it: the broker's, to the first end, and
 * the client's RENEW, to a later end. Their order must not matter.
 */
static bool
renews_begin(struct fleet *fleet)
{
    struct drill *drill = &fleet->drill;
    const struct world *world = fleet->world;

    if (drill_lease_us(world) / 10 < drill_packets_us(world) + 60000 ||
        drill_lease_us(world) / 100 * RENEWS_LEFT <
            drill_prompt_us(world) + RENEWS_AGAIN_US ||
        !drill_choose_two(fleet))
        return false;
    drill->lease_ms = world->plan.lease_ms * 105 / 100;
    return true;
}

static void
renews_well(void *arg, uint64_t data)
{
    struct fleet *fleet = arg;

    servers_refuse(fleet->world, FAKE_WELL);
    if (data == fleet->drill.serial && fleet->drill.stage == DRILL_STAYS)
        drill_stays(fleet, drill_lease_us(fleet->world));
}

static void
renews_asks(void *arg, uint64_t data)
{
    struct fleet *fleet = arg;
    struct task *holder = fleet->drill.holder;

    if (data != fleet->drill.serial || fleet->drill.stage != DRILL_STAYS)
        return;
    task_send_renew(holder, 3 * (uint64_t)fleet->world->plan.lease_ms);
    wire_flush(holder->client);
}

static void
renews_ill(void *arg, uint64_t data)
{
    static const enum fake_mood moods[] = {
        FAKE_LOADING, FAKE_BUSY, FAKE_MISCONF, FAKE_NOREPLICAS};
    struct fleet *fleet = arg;
    struct world *world = fleet->world;

    if (data != fleet->drill.serial || fleet->drill.stage != DRILL_STAYS)
        return;
    servers_refuse(world, moods[world_below(world, 4)]);
    drill_event(fleet,
        drill_lease_us(world) / 100 * (100 - RENEWS_ILL - RENEWS_LEFT),
        renews_well);
    drill_quiet(fleet, drill_lease_us(world));
}

static void
renews_acts(struct fleet *fleet)
{
    uint64_t percent_us = drill_lease_us(fleet->world) / 100;

    fleet->drill.stage = DRILL_STAYS;
    drill_event(fleet, RENEWS_ILL * percent_us, renews_ill);
    drill_event(fleet, 80 * percent_us, renews_asks);
}

/* --- a broker is lost ----------------------------------------------------- */

/* An unclaimed grant stands no longer. */
/*
 * With those who wait first: they are granted the lock, and nobody is there to
 * claim it; one lapse later the heir must have it. Without: the holder's, and
 * the lock is free when its lease ends.
 */
static bool
broker_begin(struct fleet *fleet)
{
    struct drill *drill = &fleet->drill;
    struct world *world = fleet->world;
    bool waiters = !world_odds(world, 4);

    if (world->plan.brokers < 2)
        return false;
    drill->broker = (uint32_t)world_below(world, world->plan.brokers);
    if (waiters)
        drill_choose_waiters(fleet, AT_BROKER);
    drill->holder = drill_choose(
        fleet, drill->waiter_count > 0 ? NOT_AT_BROKER : AT_BROKER);
    drill->heir =
        drill->holder == NULL ? NULL : drill_choose(fleet, NOT_AT_BROKER);
    return drill->heir != NULL;
}

static void
broker_is_lost(struct fleet *fleet, uint64_t span_us)
{
    struct world *world = fleet->world;
    struct machine *machine = broker_machine(world, fleet->drill.broker);

    drill_quiet(fleet, span_us + 2 * DRILL_REJOIN_US);
    fleet->left[fleet->drill.lock] = true;
    switch (world_below(world, 3)) {
    case 0:
        broker_kill(world, fleet->drill.broker);
        break;
    case 1:
        world_note(world, machine->name, "is stopped");
        machine_stop(machine, world->now_us + span_us);
        break;
    default:
        world_note(world, machine->name, "is cut off from Redis");
        for (uint32_t i = 0; i < drill_servers(world); i++) {
            net_block(world->net, machine, server_machine(world, i));
            net_block(world->net, server_machine(world, i), machine);
        }
        world_at(world, world->now_us + span_us, drill_packets_pass, world, 0);
        break;
    }
}

static void
broker_gives(void *arg, uint64_t data)
{
    struct fleet *fleet = arg;

    if (data != fleet->drill.serial || fleet->drill.stage != DRILL_ACTS)
        return;
    drill_gives(
        fleet, drill_lapse_us(fleet->world) + drill_prompt_us(fleet->world));
}

static void
broker_acts(struct fleet *fleet)
{
    struct drill *drill = &fleet->drill;
    struct world *world = fleet->world;
    bool waiters = drill->waiter_count > 0;
    uint64_t bound_us =
        (waiters ? drill_lapse_us(world) : drill_lease_us(world)) +
        drill_prompt_us(world);

    drill_abandon_waiters(drill);
    if (!waiters) {
        drill->holder->purpose = TASK_DRILL_OVER;
        drill->holder = NULL;
    }
    /* Its last request arrives. A grant that it claims so is its hold, and not
     * the next one's before its lease is over. */
    uint64_t way_us = 2 * (world->plan.latency_us + 2 * world->plan.jitter_us);
    broker_is_lost(
        fleet, way_us + bound_us + 500000 + world_below(world, 1000000));
    if (waiters)
        drill_event(fleet, way_us + world_below(world, 50000), broker_gives);
    else
        drill_frees(fleet, bound_us);
}

/* Expiry runs no script: who asks for the lock sweeps it. */
static bool
sweep_begin(struct fleet *fleet)
{
    struct drill *drill = &fleet->drill;

    for (uint32_t i = 0; i < fleet->world->plan.locks; i++) {
        if (!fleet->left[i])
            continue;
        drill->lock = i;
        drill->heir = drill_choose(fleet, ANYWHERE);
        return drill->heir != NULL;
    }
    return false;
}

static void
sweep_acts(struct fleet *fleet)
{
    struct drill *drill = &fleet->drill;
    const struct plan *plan = &fleet->world->plan;

    uint64_t anew_us = /* of a lease at a master that was met since */
        plan->cluster > 0 && plan->settle_ms > 0 ? drill_lease_us(fleet->world)
                                                 : 0;
    fleet->left[drill->lock] = false;
    drill_frees(fleet, anew_us + drill_prompt_us(fleet->world));
    drill_ask(drill, drill->heir, TASK_DRILL_WAITS, CLIENT_NO_WAIT);
}

/*
 * A question that was on its way for long comes to nothing there, or does not
 * say surely enough what time it is to end a lease (trust_within_us). If a
 * majority has granted the lock by then, no broker asks that node again. So who
 * comes next does, when all links are well. A remnant of this question itself
 * is no excuse: its lease goes on.
 */
void
sweep_over(struct fleet *fleet)
{
    uint32_t lock = fleet->drill.lock;

    if (!drill_is_resent(fleet) ||
        !check_has_leavings(fleet->world->check, lock))
        return;
    fleet->left[lock] = true;
    drill_quiet(fleet, DRILL_REJOIN_US);
}

/* --- all of them ---------------------------------------------------------- */

const struct drill_plan drill_plans[DRILL_COUNT] = {
    [DRILL_DEATH] = {"death", "a death", death_begin, death_acts, true, NULL,
        NULL},
    [DRILL_GONE] = {"gone", "the death of one who had just asked",
        drill_choose_two, gone_acts, false, NULL, NULL},
    [DRILL_SHAKEN] = {"shaken", "the brokers lost Redis", shaken_begin,
        shaken_acts, false, NULL, NULL},
    [DRILL_UNHEARD] = {"unheard", "its release, when the brokers lost Redis",
        drill_choose_two, unheard_acts, true, NULL, NULL},
    [DRILL_RETRIES] = {"retries", "its broker lost Redis' answers",
        retries_begin, retries_acts, false, retries_granted, NULL},
    [DRILL_PLACE] = {"place", "its release, with others behind", place_begin,
        place_acts, true, drill_in_order, place_queued},
    [DRILL_SILENT] = {"silent", "its holder fell silent", silent_begin,
        silent_acts, true, NULL, NULL},
    [DRILL_LAPSES] = {"lapses", "the beginning of a lease=", lapses_begin, NULL,
        true, lapses_granted, NULL},
    [DRILL_RENEWS] = {"renews", "a RENEW", renews_begin, renews_acts, true,
        NULL, NULL},
    [DRILL_BROKER] = {"broker", "a broker was lost", broker_begin, broker_acts,
        true, NULL, NULL},
    [DRILL_ASLEEP] = {"asleep", "Redis was awake again", asleep_begin,
        asleep_acts, false, NULL, NULL},
    [DRILL_MOVES] = {"moves", "its slot began to move", moves_begin, moves_acts,
        false, moves_granted, NULL},
    [DRILL_WIPED] = {"wiped", "its data were lost", wiped_begin, wiped_acts,
        true, wiped_granted, NULL},
    [DRILL_IDS] = {"ids", "its data were lost", ids_begin, ids_acts, false,
        ids_granted, NULL},
    [DRILL_COPIES] = {"copies", "an older record came back", copies_begin,
        copies_acts, false, copies_granted, NULL},
    [DRILL_SETBACK] = {"setback", "all clocks were set back", setback_begin,
        setback_acts, false, copies_granted, NULL},
    [DRILL_RESUMED] = {"resumed", "its session had moved", resumed_begin,
        resumed_acts, true, NULL, NULL},
    [DRILL_REJOINS] = {"rejoins", "its release, when who was first had moved",
        rejoins_begin, rejoins_acts, true, rejoins_granted, rejoins_queued},
    [DRILL_CROSSED] = {"crossed", "its release, while it moved", crossed_begin,
        crossed_acts, true, crossed_granted, NULL},
    [DRILL_UNKEPT] = {"unkept", "its holder died, whose session is kept",
        unkept_begin, unkept_acts, true, NULL, NULL},
    [DRILL_DELAY] = {"delay", "its end, with a lock-delay", delay_begin,
        delay_acts, true, NULL, NULL},
    [DRILL_BREAK] = {"break", "it was broken", drill_choose_two, break_acts,
        true, break_granted, NULL},
    [DRILL_SEVERAL] = {"several", "a LOCK of two names was called off",
        several_begin, several_acts, false, several_granted, several_queued},
    [DRILL_CIRCLE] = {"circle", "a circle had closed", circle_begin,
        circle_acts, false, circle_granted, NULL},
    [DRILL_WATCH] = {"watch", "its release", told_begin, told_acts, false,
        told_granted, NULL},
    [DRILL_FORGETS] = {"forgets", "a node had lost its data", forgets_begin,
        forgets_acts, false, forgets_granted, NULL},
    [DRILL_PARTED] = {"parted", "its broker had lost most nodes", split_begin,
        parted_acts, true, NULL, NULL},
    [DRILL_GIVEN] = {"given", "its release, while it was renewed", given_begin,
        NULL, true, given_granted, NULL},
    [DRILL_NAMED] = {"named", "its release, where its name leads elsewhere",
        drill_choose_two, named_acts, true, NULL, NULL},
    [DRILL_SLOW] = {"slow", "its release, after Redis was slow", slow_begin,
        slow_acts, true, NULL, NULL},
    [DRILL_TURNS] = {"turns", "its turn", turns_begin, turns_acts, true,
        turns_granted, NULL},
    [DRILL_CROWDED] = {"crowded", "it asked beside a crowd", crowded_begin,
        crowded_acts, false, NULL, NULL},
    [DRILL_STRANDS] = {"strands",
        "its release, where its slot's data were lost", strands_begin,
        strands_acts, true, NULL, NULL},
    [DRILL_BEHIND] = {"behind", "its replica could catch up", behind_begin,
        behind_acts, false, behind_granted, NULL},
    [DRILL_SPLIT] = {"split", "its master was replaced, and goes on",
        split_begin, split_acts, true, NULL, NULL},
    [DRILL_STALE] = {"stale", "its master was replaced, and goes on",
        stale_begin, stale_acts, false, stale_granted, NULL},
    [DRILL_UNDONE] = {"undone", "a failover had undone its release",
        undone_begin, undone_acts, true, NULL, NULL},
    [DRILL_REVIVED] = {"revived", "its session was kept no longer",
        revived_begin, revived_acts, true, revived_granted, NULL},
    [DRILL_CUTOFF] = {"cutoff", "a failover had undone a grant", cutoff_begin,
        cutoff_acts, false, cutoff_granted, NULL},
    [DRILL_LAPSED] = {"lapsed", "its release, with a broker cut off",
        lapsed_begin, lapsed_acts, true, lapsed_granted, NULL},
    [DRILL_CLAIMED] = {"claimed", "a failover had undone a claim",
        claimed_begin, claimed_acts, true, NULL, NULL},
    [DRILL_RETURNED] = {"returned", "its release at another broker",
        claimed_begin, returned_acts, true, NULL, NULL},
    [DRILL_ORDERED] = {"ordered",
        "its release, where a failover had undone the queue", ordered_begin,
        ordered_acts, true, drill_in_order, ordered_queued},
    [DRILL_RACED] = {"raced", "its release, which was put back meanwhile",
        raced_begin, cutoff_acts, false, raced_granted, NULL},
    [DRILL_REPEATED] = {"repeated",
        "a failover had undone a grant that followed its own", repeated_begin,
        repeated_acts, false, repeated_granted, NULL},
    [DRILL_CHANGED] = {"changed", "Redis was empty, before a shorter lease",
        changed_begin, changed_acts, true, NULL, NULL},
    [DRILL_HANDED] = {"handed", "its release at another broker", handed_begin,
        handed_acts, false, NULL, handed_queued},
    [DRILL_ROUSED] = {"roused", "its release, with AWAITs", roused_begin,
        roused_acts, true, roused_granted, NULL},
    [DRILL_SWEEP] = {"sweep", "what a lost broker had left was over",
        sweep_begin, sweep_acts, false, NULL, NULL},
};

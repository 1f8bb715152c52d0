/*
 * Drills of what else is promised for locks: lock-delays, orders of operators,
 * several names, cycles of owners, watches.
 */
#include "tests/sim/drill.h"

#include "daemon/base/assert.h"
#include "tests/sim/broker.h"

#include <inttypes.h>
#include <string.h>

/* For a cycle over several brokers: DESIGN.md D6.3. */
#define CIRCLE_US 1000000

/* --- lock-delay and BREAK ------------------------------------------------- */

/*
 * An order of the heir's client, `again` where it is not known what became of
 * the first one. If its hint is lost, the holder's next renewal tells. The next
 * client has the lock a lock-delay after that.
 */
static void
order_break(struct fleet *fleet, bool again)
{
    struct drill *drill = &fleet->drill;
    const struct world *world = fleet->world;
    struct client *client = drill->heir->client;
    struct request *request = wire_begin(client, VERB_BREAK, NULL);

    if (request == NULL) {
        drill_end(fleet);
        return;
    }
    check_ordered(world->check, drill->lock);
    wire_lock(client, drill->lock);
    if (again) /* the heir may have it by now */
        wire_pair(client, "fence", drill->fence);
    wire_end(client);
    wire_flush(client);
    drill->order = request->serial;
    drill_frees(fleet, drill_lease_us(world) / 3 + drill_prompt_us(world) +
                           (uint64_t)drill->delay_ms * 1000);
}

void
drill_ordered(struct client *client, const struct request *request,
    const struct answer *a)
{
    struct fleet *fleet = client->fleet;
    const struct drill *drill = &fleet->drill;

    if (drill->stage != DRILL_FREES || drill->heir == NULL ||
        drill->heir->client != client || drill->order != request->serial)
        return;
    if (drill->kind == DRILL_CROWDED) {
        drill_ask(&fleet->drill, drill->heir, TASK_DRILL_WAITS, CLIENT_NO_WAIT);
        return;
    }
    if (a->code != NULL && (strcmp(a->code, "INDOUBT") == 0 ||
                               strcmp(a->code, "UNAVAILABLE") == 0))
        order_break(fleet, true);
}

/* --- a crowd -------------------------------------------------------------- */

#define CROWD_US   1000 /* so often it is made up */
#define CROWD_LEFT 4    /* requests that its client keeps for itself */

bool
crowded_begin(struct fleet *fleet)
{
    struct drill *drill = &fleet->drill;
    uint32_t locks = fleet->world->plan.locks;

    drill->heir = drill_choose(fleet, ANYWHERE);
    if (drill->heir == NULL || locks < 2)
        return false;
    drill->second = (drill->lock + 1) % locks;
    drill->broker = drill->heir->client->broker;
    drill->another = drill_choose(fleet, AT_BROKER);
    drill->broker = DRILL_NOBODY;
    return drill->another != NULL;
}

/* An order about the lock that nobody has; 0: it could not be sent. */
static uint64_t
crowd_order(const struct drill *drill, struct client *client)
{
    struct request *request = wire_begin(client, VERB_BREAK, NULL);

    if (request == NULL)
        return 0;
    wire_lock(client, drill->second);
    wire_end(client);
    return request->serial;
}

static void
crowd_grows(void *arg, uint64_t data)
{
    struct fleet *fleet = arg;
    struct drill *drill = &fleet->drill;

    if (data != drill->serial || drill->another == NULL)
        return;
    struct client *client = drill->another->client;
    while (client->requests_now < CLIENT_REQUESTS - CROWD_LEFT &&
           crowd_order(drill, client) > 0)
        continue;
    wire_flush(client);
    drill_event(fleet, CROWD_US, crowd_grows);
}

static void
crowd_stands(void *arg, uint64_t data)
{
    struct fleet *fleet = arg;
    struct drill *drill = drill_at(fleet, data, DRILL_ACTS);

    if (drill == NULL || drill->heir == NULL)
        return;
    struct client *client = drill->heir->client;
    drill_frees(fleet, 4 * drill_packets_us(fleet->world) + 200000);
    crowd_grows(fleet, drill->serial);
    drill->order = crowd_order(drill, client);
    wire_flush(client);
    if (drill->order == 0)
        drill_end(fleet);
}

/*
 * A session has as many requests under way as it may, all the time. The heir
 * sends one of the same kind, and then a LOCK. Both have their turns, and are
 * answered as soon as any.
 */
void
crowded_acts(struct fleet *fleet)
{
    crowd_grows(fleet, fleet->drill.serial);
    drill_event(fleet, drill_moment_us(fleet->world), crowd_stands);
}

bool
delay_begin(struct fleet *fleet)
{
    fleet->drill.delay_ms = 2 * fleet->world->plan.lease_ms;
    return drill_choose_two(fleet);
}

/* After an UNLOCK there is none; after another end nobody has it sooner, which
 * the judge sees, nor much later. */
void
delay_acts(struct fleet *fleet)
{
    struct drill *drill = &fleet->drill;
    struct world *world = fleet->world;
    struct task *holder = drill->holder;
    uint64_t delay_us = (uint64_t)drill->delay_ms * 1000;
    uint64_t way = world_below(world, 3);

    drill->fence = holder->fence;
    drill->holder = NULL;
    if (way == 0) {
        drill_frees(fleet, drill_prompt_us(world));
        drill_release(holder, TASK_DRILL_OVER);
        return;
    }
    if (world->plan.awaits > 0)
        drill_awaits(fleet);
    check_delays(world->check, drill->lock, drill->fence, world->now_us,
        drill->delay_ms, holder->who);
    if (way == 1) {
        drill_kill(fleet, holder);
        drill_frees(fleet, delay_us + drill_prompt_us(world));
    } else {
        order_break(fleet, false);
    }
}

void
break_acts(struct fleet *fleet)
{
    fleet->drill.fence = fleet->drill.holder->fence;
    order_break(fleet, false);
}

static void
break_untold(void *arg, uint64_t data)
{
    struct fleet *fleet = arg;
    const struct drill *drill = drill_at(fleet, data, DRILL_STAYS);

    if (drill == NULL)
        return;
    if (drill->holder != NULL)
        check_broken(fleet->world->check, PROMISE_TOLD, drill->true_from,
            "%s: lock-%" PRIu32 " was broken, and nobody says so",
            drill->holder->who, drill->lock);
    drill_end(fleet);
}

/* The word to who had it may take a few packets more. */
void
break_granted(struct fleet *fleet, struct task *task)
{
    struct drill *drill = &fleet->drill;

    if (task != drill->heir || drill->stage != DRILL_FREES)
        return;
    drill->stage = DRILL_STAYS;
    drill->serial++;
    drill_event(fleet, drill_packets_us(fleet->world) + 250000, break_untold);
}

/* --- several names -------------------------------------------------------- */

/* The name that a LOCK of both takes before that one; false: none. */
static bool
taken_before(const struct fleet *fleet, uint32_t lock, uint32_t *first)
{
    const struct plan *plan = &fleet->world->plan;

    for (uint32_t i = 0; i < plan->locks; i++) {
        if (strcmp(plan_lock_name(i), plan_lock_name(lock)) >= 0 ||
            fleet_limit(fleet, i) != fleet_limit(fleet, lock))
            continue;
        *first = i;
        return true;
    }
    return false;
}

/*
 * The holder has the second of two names. The heir's LOCK of both takes the
 * first one and waits for the second. Another client waits for the first then,
 * and has it promptly when the heir's LOCK is called off.
 */
bool
several_begin(struct fleet *fleet)
{
    struct drill *drill = &fleet->drill;

    if (!taken_before(fleet, drill->lock, &drill->second) ||
        !drill_choose_two(fleet))
        return false;
    drill->another = drill_choose_behind(fleet);
    return drill->another != NULL && drill->heir->client->task_count > 1;
}

/* Once the holder has it. The later name comes first in the request. */
void
several_acts(struct fleet *fleet)
{
    struct drill *drill = &fleet->drill;
    struct task *leader = drill->heir;
    struct task *mate = &leader->client->tasks[1];

    if (drill->holder->count == 0 || drill->rounds++ > 0)
        return;
    task_wants(leader, drill->lock, CLIENT_NO_WAIT, 0);
    task_wants(mate, drill->second, CLIENT_NO_WAIT, 0);
    mate->owner = leader->owner;
    mate->leader = leader;
    leader->mates = 3;
    leader->purpose = mate->purpose = TASK_DRILL_WAITS;
    leader->state = mate->state = TASK_ASKING;
    leader->timer++;
    mate->timer++;
    if (task_send_wish(leader, false))
        wire_flush(leader->client);
    else
        drill_failed(leader->client);
}

static void
several_off(void *arg, uint64_t data)
{
    struct fleet *fleet = arg;
    struct drill *drill = &fleet->drill;
    struct task *leader = drill->heir;

    if (drill_at(fleet, data, DRILL_ACTS) == NULL)
        return;
    drill->heir = drill->another;
    drill->another = NULL;
    drill_frees(fleet, drill_prompt_us(fleet->world));
    leader->purpose = TASK_DRILL_OVER;
    leader->client->tasks[1].purpose = TASK_DRILL_OVER;
    task_send_cancel(leader);
    wire_flush(leader->client);
}

void
several_queued(struct fleet *fleet, const struct task *task)
{
    struct drill *drill = &fleet->drill;

    if (task == drill->heir && drill->stage == DRILL_ACTS)
        drill_ask_for(drill, drill->another, drill->second, TASK_DRILL_WAITS);
    else if (task == drill->another && drill->stage == DRILL_ACTS)
        drill_event(fleet, drill_moment_us(fleet->world), several_off);
}

void
several_granted(struct fleet *fleet, struct task *task)
{
    struct drill *drill = &fleet->drill;

    if (task == drill->holder) {
        several_acts(fleet);
    } else if (task == drill->another) {
        check_broken(fleet->world->check, PROMISE_ORDER, fleet->true_wind,
            "lock-%" PRIu32
            ": %s is granted it, and %s who waits for lock-%" PRIu32
            " too has to have it before",
            drill->second, task->who, drill->heir->who, drill->lock);
        drill_end(fleet);
    } else if (task == drill->heir && drill->stage == DRILL_FREES) {
        drill_end(fleet);
    } else {
        drill_failed(task->client);
    }
}

/* --- cycles --------------------------------------------------------------- */

bool
circle_begin(struct fleet *fleet)
{
    struct drill *drill = &fleet->drill;
    uint32_t locks = fleet->world->plan.locks;

    if (locks < 2 || !drill_choose_two(fleet))
        return false;
    drill->second =
        (drill->lock + 1 + (uint32_t)world_below(fleet->world, locks - 1)) %
        locks;
    return drill->holder->client->task_count > 1 &&
           drill->heir->client->task_count > 1;
}

static void
circle_stands(void *arg, uint64_t data)
{
    struct fleet *fleet = arg;
    const struct drill *drill = drill_at(fleet, data, DRILL_STAYS);

    if (drill == NULL)
        return;
    check_broken(fleet->world->check, PROMISE_DEADLOCK, drill->true_from,
        "%s has lock-%" PRIu32 ", %s lock-%" PRIu32
        ", and each waits for the other's still",
        drill->holder->who, drill->lock, drill->heir->who, drill->second);
    drill_end(fleet);
}

/* Each asks for what the other one has. */
static void
circle_closes(struct fleet *fleet)
{
    struct drill *drill = &fleet->drill;
    struct task *a = &drill->holder->client->tasks[1];
    struct task *b = &drill->heir->client->tasks[1];

    drill->waiters[0] = a;
    drill->waiters[1] = b;
    drill->waiter_count = 2;
    drill->stage = DRILL_STAYS;
    drill->serial++;
    drill->true_from = fleet->world->now_us;
    drill_event(
        fleet, CIRCLE_US + drill_prompt_us(fleet->world), circle_stands);
    a->owner = drill->holder->owner;
    b->owner = drill->heir->owner;
    drill_ask_for(drill, b, drill->lock, TASK_DRILL_WAITS);
    if (drill->stage == DRILL_STAYS)
        drill_ask_for(drill, a, drill->second, TASK_DRILL_WAITS);
}

/* The heir takes the other one. */
void
circle_acts(struct fleet *fleet)
{
    struct drill *drill = &fleet->drill;

    drill_ask_for(drill, drill->heir, drill->second, TASK_DRILL_HOLDS);
}

void
circle_granted(struct fleet *fleet, struct task *task)
{
    struct drill *drill = &fleet->drill;

    if (drill->stage == DRILL_STAYS)
        drill_failed(task->client);
    else if (drill->holder->count > 0 && drill->heir->count > 0)
        circle_closes(fleet);
}

/* --- watches -------------------------------------------------------------- */

/*
 * A link to Redis may be found to be silent, or a packet is sent again. If that
 * takes longer than a broker waits for an answer, it looks again after a pause
 * of half a second.
 */
uint64_t
told_bound_us(const struct fleet *fleet)
{
    const struct world *world = fleet->world;

    if (world->plan.command_timeout_ms <= 200)
        return drill_prompt_us(world);
    return (uint64_t)world->plan.command_timeout_ms * 1000 +
           drill_packets_us(world) + 200000;
}

/* Somebody's, who takes no part: a lock that he watches. */
bool
told_begin(struct fleet *fleet)
{
    struct drill *drill = &fleet->drill;
    uint32_t at = (uint32_t)world_below(fleet->world, fleet->count);

    if (fleet->world->now_us < fleet->true_deaf)
        return false;
    for (uint32_t i = 0; i < fleet->count && drill->watcher == NULL; i++) {
        struct client *client = &fleet->clients[(at + i) % fleet->count];
        const struct outlook *outlook =
            &client->outlooks[world_below(fleet->world, CLIENT_WATCHES)];
        if (!outlook->on || outlook->members || client->link != LINK_OPEN ||
            client->draining || !machine_runs(client->machine))
            continue;
        drill->watcher = outlook;
        drill->lock = outlook->lock;
    }
    /* Else it would be told by the watch's renewal as well. */
    if (drill->watcher == NULL ||
        told_bound_us(fleet) > drill_lease_us(fleet->world) / 5)
        return false;
    drill->holder = drill_choose(fleet, ANYWHERE);
    return drill->holder != NULL;
}

static void
told_late(struct fleet *fleet, const char *what)
{
    const struct drill *drill = &fleet->drill;

    check_broken(fleet->world->check, PROMISE_WATCH, drill->true_from,
        "lock-%" PRIu32 " is %s, and who watches it was told of fence %" PRIu64
        " and %" PRIu32 " holders",
        drill->lock, what, drill->watcher->fence, drill->watcher->holders);
}

static void
told_over(void *arg, uint64_t data)
{
    struct fleet *fleet = arg;
    const struct drill *drill = drill_at(fleet, data, DRILL_FREES);

    if (drill == NULL)
        return;
    if (drill->watcher->on && drill->watcher->holders != 0)
        told_late(fleet, "free");
    drill_end(fleet);
}

static void
told_held(void *arg, uint64_t data)
{
    struct fleet *fleet = arg;
    struct drill *drill = &fleet->drill;
    struct task *holder = drill->holder;

    if (drill_at(fleet, data, DRILL_STAYS) == NULL || holder == NULL)
        return;
    if (drill->watcher->on && (drill->watcher->holders == 0 ||
                                  drill->watcher->fence != holder->fence)) {
        told_late(fleet, "held");
        drill_end(fleet);
        return;
    }
    drill->holder = NULL;
    drill->stage = DRILL_FREES;
    drill->serial++;
    drill_event(fleet, told_bound_us(fleet), told_over);
    drill_release(holder, TASK_DRILL_OVER);
}

void
told_granted(struct fleet *fleet, struct task *task)
{
    struct drill *drill = &fleet->drill;

    if (task != drill->holder)
        return;
    drill->stage = DRILL_STAYS;
    drill->serial++;
    drill->true_from = fleet->world->now_us;
    drill_event(fleet, told_bound_us(fleet), told_held);
}

void
told_acts(struct fleet *fleet)
{
    (void)fleet; /* begins when the holder has it */
}

/*
 * The course of drills. See drill.h.
 */
#include "tests/sim/drill.h"

#include "daemon/base/assert.h"
#include "daemon/core/settings.h"
#include "tests/sim/server.h"

#include <inttypes.h>
#include <string.h>

#define DRILLS         24       /* that are tried */
#define MARGIN_US      600000   /* DESIGN.md D10.3 */
#define ASKS_US        1000000  /* lock.c: a queue is looked at anew */
#define QUORUM_ASKS_US 1600000  /* quorum.c: the like */
#define MAPPED_US      16000000 /* all brokers have asked for the slot map */
#define LAPSE_PERMILLE 15       /* of a lease: its client's margin, and drift */

uint64_t
drill_lease_us(const struct world *world)
{
    return (uint64_t)world->plan.lease_ms * 1000;
}

uint64_t
drill_packets_us(const struct world *world)
{
    return 8 * (world->plan.latency_us + 2 * world->plan.jitter_us);
}

uint64_t
drill_prompt_us(const struct world *world)
{
    return (uint64_t)world->plan.command_timeout_ms * 1000 +
           drill_packets_us(world) + MARGIN_US;
}

uint64_t
drill_lapse_us(const struct world *world)
{
    uint64_t us = CORE_EXPIRY_MS * 1000;

    return (us < drill_lease_us(world) ? us : drill_lease_us(world)) + 50000;
}

uint32_t
drill_servers(const struct world *world)
{
    return world->plan.masters * (1 + world->plan.replicas);
}

uint64_t
drill_asks_us(const struct world *world)
{
    return ASKS_US + (world->plan.quorum != 0 ? QUORUM_ASKS_US : 0);
}

/* --- parts ---------------------------------------------------------------- */

static bool
part_is(const struct task *task, const struct client *client)
{
    return task != NULL && task->client == client;
}

static bool
drill_has(const struct drill *drill, const struct client *client)
{
    for (uint32_t i = 0; i < drill->waiter_count; i++)
        if (part_is(drill->waiters[i], client))
            return true;
    return part_is(drill->holder, client) || part_is(drill->heir, client) ||
           part_is(drill->another, client);
}

/* Whether a client does nothing and may take part. */
static bool
client_free(const struct client *client)
{
    return client->wind == WIND_WAIT && client->link == LINK_OPEN &&
           machine_runs(client->machine) && tasks_rest(client);
}

void
drill_keep(struct client *client, uint32_t keep_ms)
{
    if (client->keep_ms == keep_ms)
        return;
    struct request *request = wire_begin(client, VERB_HELLO, NULL);
    if (request == NULL)
        return;
    client->keep_ms = keep_ms;
    request->keep_ms = keep_ms;
    wire_pair(client, "keep", keep_ms);
    wire_end(client);
}

struct task *
drill_choose(struct fleet *fleet, enum where where)
{
    const struct drill *drill = &fleet->drill;
    uint32_t at = (uint32_t)world_below(fleet->world, fleet->count);

    for (uint32_t i = 0; i < fleet->count; i++) {
        struct client *client = &fleet->clients[(at + i) % fleet->count];
        if (drill_has(drill, client) || !client_free(client) ||
            (where == AT_BROKER && client->broker != drill->broker) ||
            (where == NOT_AT_BROKER && client->broker == drill->broker))
            continue;
        client->tasks[0].owner = 0;
        drill_keep(client, 0);
        return &client->tasks[0];
    }
    return NULL;
}

struct task *
drill_choose_behind(struct fleet *fleet)
{
    struct drill *drill = &fleet->drill;

    drill->broker = drill->heir->client->broker;
    struct task *task = drill_choose(
        fleet, fleet->world->plan.quorum != 0 ? AT_BROKER : ANYWHERE);
    drill->broker = DRILL_NOBODY;
    return task;
}

bool
drill_choose_two(struct fleet *fleet)
{
    struct drill *drill = &fleet->drill;

    drill->holder = drill_choose(fleet, ANYWHERE);
    drill->heir = drill->holder == NULL ? NULL : drill_choose(fleet, ANYWHERE);
    return drill->heir != NULL;
}

bool
drill_choose_apart(struct fleet *fleet)
{
    struct drill *drill = &fleet->drill;

    drill->another = drill_choose(fleet, ANYWHERE);
    if (drill->another == NULL)
        return false;
    drill->broker = drill->another->client->broker;
    drill->heir = drill_choose(fleet, NOT_AT_BROKER);
    return drill->heir != NULL;
}

void
drill_choose_waiters(struct fleet *fleet, enum where where)
{
    struct drill *drill = &fleet->drill;
    struct task *first = drill_choose(fleet, where);

    if (first == NULL)
        return;
    struct client *client = first->client;
    for (uint32_t i = 0; i < client->task_count && i < DRILL_WAITERS; i++) {
        client->tasks[i].owner = i;
        drill->waiters[drill->waiter_count++] = &client->tasks[i];
    }
}

static void
ask(struct task *task, enum task_purpose purpose)
{
    task->purpose = purpose;
    if (!task_send_wish(task, false)) {
        drill_failed(task->client);
        return;
    }
    task->state = TASK_ASKING;
    task->timer++;
    wire_flush(task->client);
}

void
drill_ask(struct drill *drill, struct task *task, enum task_purpose purpose,
    uint32_t wait_ms)
{
    bool holder = task == drill->holder;

    task_wants(task, drill->lock, wait_ms, holder ? drill->lease_ms : 0);
    task->wish.delay_ms = holder ? drill->delay_ms : 0;
    task->wish.wanted = holder && drill->kind == DRILL_ROUSED;
    ask(task, purpose);
}

void
drill_ask_detached(struct drill *drill, struct task *task)
{
    drill->lease_ms = plan_detached_ms(&task->client->world->plan) * 5 / 8;
    task_wants(task, drill->lock, CLIENT_NO_WAIT, drill->lease_ms);
    task->wish.detached = true;
    ask(task, TASK_DRILL_WAITS);
}

void
drill_ask_for(struct drill *drill, struct task *task, uint32_t lock,
    enum task_purpose purpose)
{
    (void)drill;
    task_wants(task, lock, CLIENT_NO_WAIT, 0);
    ask(task, purpose);
}

void
drill_release(struct task *task, enum task_purpose purpose)
{
    if (task == NULL || task->purpose < TASK_DRILL_HOLDS ||
        task->purpose == TASK_DRILL_OVER)
        return;
    task->purpose = purpose;
    if (task->client->machine->up && task->count > 0)
        task_leave(task);
    wire_flush(task->client);
}

void
drill_abandon_waiters(struct drill *drill)
{
    for (uint32_t i = 0; i < drill->waiter_count; i++)
        drill->waiters[i]->purpose = TASK_DRILL_OVER;
    drill->waiter_count = 0;
}

const struct task *
drill_unserved(const struct drill *drill)
{
    if (drill->heir != NULL && drill->heir->count == 0)
        return drill->heir;
    if (drill->kind == DRILL_MOVES && drill->another != NULL &&
        drill->another->count == 0)
        return drill->another;
    return NULL;
}

/* --- the course ----------------------------------------------------------- */

void
drill_event(struct fleet *fleet, uint64_t in_us, world_call *call)
{
    world_at(fleet->world, fleet->world->now_us + in_us, call, fleet,
        fleet->drill.serial);
}

void
drill_quiet(struct fleet *fleet, uint64_t for_us)
{
    if (fleet->true_quiet < fleet->world->now_us + for_us)
        fleet->true_quiet = fleet->world->now_us + for_us;
}

void
drill_end(struct fleet *fleet)
{
    struct drill *drill = &fleet->drill;

    if (drill->kind == DRILL_MOVES) {
        server_park_end(fleet->world);
        drill_quiet(fleet, MAPPED_US);
    }
    if (drill->kind == DRILL_BEHIND || drill->kind == DRILL_UNDONE ||
        drill->kind == DRILL_REVIVED || drill->kind == DRILL_STRANDS ||
        drill->kind == DRILL_ORDERED || drill->kind == DRILL_RACED)
        drill_packets_pass(fleet->world, 0);
    if (drill->kind == DRILL_FORGETS || drill->kind == DRILL_PARTED ||
        drill->kind == DRILL_CUTOFF || drill->kind == DRILL_LAPSED ||
        drill->kind == DRILL_CLAIMED || drill->kind == DRILL_RETURNED ||
        drill->kind == DRILL_REPEATED || drill->kind == DRILL_CHANGED)
        forgets_over(fleet);
    if (drill->kind == DRILL_STRANDS)
        strands_over(fleet);
    if (drill->kind == DRILL_ASLEEP)
        drill_quiet(fleet, drill_lease_us(fleet->world) + DRILL_REJOIN_US);
    if (drill->kind == DRILL_SPLIT || drill->kind == DRILL_STALE)
        split_over(fleet);
    if (drill->kind == DRILL_SWEEP)
        sweep_over(fleet);
    drill->stage = DRILL_NONE;
    drill->serial++;
    drill_release(drill->holder, TASK_DRILL_OVER);
    drill_release(drill->heir, TASK_DRILL_OVER);
    drill_release(drill->another, TASK_DRILL_OVER);
    drill_release(drill->mover, TASK_DRILL_OVER);
    drill_abandon_waiters(drill);
    fleet_look(fleet);
}

/* A LOCK that is refused now is a broken promise (task_answered). */
void
drill_failed(struct client *client)
{
    struct fleet *fleet = client->fleet;
    struct drill *drill = &fleet->drill;

    if (drill->stage == DRILL_NONE || !drill_has(drill, client))
        return;
    drill_release(drill->holder, TASK_IS_SERVED);
    drill_release(drill->heir, TASK_IS_SERVED);
    drill_release(drill->another, TASK_IS_SERVED);
    for (uint32_t i = 0; i < drill->waiter_count; i++)
        drill_release(drill->waiters[i], TASK_IS_SERVED);
    drill->waiter_count = 0;
    drill_end(fleet);
}

bool
drill_is_resent(const struct fleet *fleet)
{
    const struct world *world = fleet->world;
    uint64_t timeout_us = (uint64_t)world->plan.command_timeout_ms * 1000;

    return net_resent_us(world->net) + timeout_us >= fleet->drill.true_from;
}

/* The link that was given up would have brought the news, and brokers ask by
 * themselves from time to time. */
static bool
drill_is_patient(struct fleet *fleet)
{
    struct drill *drill = &fleet->drill;

    if (drill->patient || !drill_is_resent(fleet))
        return false;
    drill->patient = true;
    return true;
}

/* A question of a broker from before its loss may arrive after a waiter of that
 * broker was granted the lock, and claim it. */
static uint64_t
drill_patience_us(const struct fleet *fleet)
{
    uint64_t us = drill_asks_us(fleet->world);

    return fleet->drill.kind == DRILL_BROKER ? us + drill_lease_us(fleet->world)
                                             : us;
}

static void
drill_late(void *arg, uint64_t data)
{
    struct fleet *fleet = arg;
    struct drill *drill = &fleet->drill;

    if (data != drill->serial || drill->stage != DRILL_FREES)
        return;
    const struct task *unserved = drill_unserved(drill);
    if (unserved == NULL)
        return;
    if (drill_is_patient(fleet)) {
        drill_event(fleet, drill_patience_us(fleet), drill_late);
        return;
    }
    check_broken(fleet->world->check, PROMISE_FREED,
        check_since(fleet->world->check, unserved->lock, drill->true_from),
        "lock-%" PRIu32 ": %s waits for it still, %" PRIu64 " us after %s",
        unserved->lock, unserved->who, fleet->world->now_us - drill->true_from,
        drill_plans[drill->kind].after);
    drill_end(fleet);
}

void
drill_frees(struct fleet *fleet, uint64_t bound_us)
{
    struct drill *drill = &fleet->drill;

    drill->stage = DRILL_FREES;
    drill->patient = false;
    drill->true_from = fleet->world->now_us;
    drill->serial++;
    drill_event(fleet, bound_us, drill_late);
}

void
drill_gives(struct fleet *fleet, uint64_t bound_us)
{
    struct task *holder = fleet->drill.holder;

    fleet->drill.holder = NULL;
    drill_frees(fleet, bound_us);
    drill_release(holder, TASK_DRILL_OVER);
}

struct drill *
drill_at(struct fleet *fleet, uint64_t data, enum drill_stage stage)
{
    struct drill *drill = &fleet->drill;

    return data == drill->serial && drill->stage == stage ? drill : NULL;
}

static void
stays_end(void *arg, uint64_t data)
{
    struct fleet *fleet = arg;

    if (drill_at(fleet, data, DRILL_STAYS) != NULL)
        drill_end(fleet);
}

void
drill_stays(struct fleet *fleet, uint64_t for_us)
{
    fleet->drill.stage = DRILL_STAYS;
    fleet->drill.serial++;
    drill_event(fleet, for_us, stays_end);
}

static void
drill_acts(void *arg, uint64_t data)
{
    struct fleet *fleet = arg;

    if (data == fleet->drill.serial && fleet->drill.stage == DRILL_ACTS)
        drill_plans[fleet->drill.kind].acts(fleet);
}

/* Its event happens in a moment. */
static void
drill_soon(struct fleet *fleet, uint64_t within_us)
{
    fleet->drill.stage = DRILL_ACTS;
    fleet->drill.serial++;
    drill_event(fleet, world_below(fleet->world, within_us), drill_acts);
}

/* Whether the heir does not ask before it has begun. */
static bool
drill_asks_later(const struct drill *drill)
{
    return drill->kind == DRILL_WIPED || drill->kind == DRILL_STRANDS ||
           drill->kind == DRILL_UNDONE || drill->kind == DRILL_REVIVED ||
           drill->kind == DRILL_CLAIMED || drill->kind == DRILL_RETURNED ||
           drill->kind == DRILL_ORDERED;
}

/* The next one stands in the queue; when all do, it begins. */
static void
drill_queue(struct fleet *fleet)
{
    struct drill *drill = &fleet->drill;

    drill->stage = DRILL_QUEUES;
    if (drill->queued < drill->waiter_count)
        drill_ask(drill, drill->waiters[drill->queued], TASK_DRILL_WAITS,
            CLIENT_NO_WAIT);
    else if (drill_asks_later(drill))
        drill_soon(fleet, 50000);
    else
        drill_ask(drill, drill->heir, TASK_DRILL_WAITS, CLIENT_NO_WAIT);
}

/* --- the fate of the participants ----------------------------------------- */

void
drill_queued(struct task *task)
{
    struct fleet *fleet = task->client->fleet;
    struct drill *drill = &fleet->drill;

    if (drill->stage == DRILL_NONE)
        return;
    if (task == drill->mover) {
        drill_rejoined(task);
        return;
    }
    if ((task == drill->another || task == drill->heir) &&
        drill->stage != DRILL_QUEUES && drill_plans[drill->kind].queued != NULL)
        drill_plans[drill->kind].queued(fleet, task);
    if (drill->stage != DRILL_QUEUES)
        return;
    if (task == drill->heir) {
        drill_soon(fleet, 50000);
    } else if (drill->queued < drill->waiter_count &&
               task == drill->waiters[drill->queued]) {
        drill->queued++;
        drill_queue(fleet);
    }
}

void
drill_granted(struct task *task)
{
    struct fleet *fleet = task->client->fleet;
    struct drill *drill = &fleet->drill;
    const struct drill_plan *plan = &drill_plans[drill->kind];

    bool moved = drill->kind == DRILL_CROSSED && task == drill->mover;

    if (drill->stage == DRILL_NONE ||
        (!moved && !drill_has(drill, task->client)))
        return;
    if (task == drill->holder && drill->stage == DRILL_HOLDS && plan->holds &&
        plan->acts != NULL)
        drill_queue(fleet);
    else if (plan->granted != NULL)
        plan->granted(fleet, task);
    else if (task == drill->heir && drill->stage == DRILL_FREES)
        drill_end(fleet);
    else if (task != drill->holder)
        drill_failed(task->client);
}

/* Nothing but a queue that is full, or Redis out of reach, keeps
 * anybody from being served. */
void
drill_refused(struct task *task, const char *code)
{
    struct fleet *fleet = task->client->fleet;
    const struct drill *drill = &fleet->drill;
    bool known =
        strcmp(code, "LIMIT") == 0 ||
        (strcmp(code, "INDOUBT") == 0 &&
            (drill->kind == DRILL_RETRIES || drill->kind == DRILL_REPEATED)) ||
        (strcmp(code, "UNAVAILABLE") == 0 && drill->kind == DRILL_SLOW) ||
        (strcmp(code, "DEADLOCK") == 0 && drill->kind == DRILL_CIRCLE);
    bool stale = drill->kind == DRILL_STALE && task == drill->another;
    /* The last one where the answer was sent again, and came too late. */
    bool moved =
        drill->kind == DRILL_CROSSED && task == drill->mover &&
        (strcmp(code, "DRAINING") == 0 || strcmp(code, "INDOUBT") == 0);

    if ((known || moved) && drill->stage != DRILL_NONE)
        drill_end(fleet);
    else if (stale)
        task->purpose = TASK_DRILL_OVER;
    else
        drill_failed(task->client);
}

void
drill_renewed(struct task *task)
{
    struct drill *drill = &task->client->fleet->drill;

    if (drill->stage == DRILL_STAYS && task == drill->holder)
        drill->renewed = true;
}

/* Nothing but what the drill is about takes a lock away. */
void
drill_lost(struct task *task, const char *reason)
{
    struct fleet *fleet = task->client->fleet;
    struct drill *drill = &fleet->drill;
    bool lapsed =
        task->purpose == TASK_DRILL_LAPSES && strcmp(reason, "expired") == 0;
    bool wiped = drill->kind == DRILL_WIPED && task == drill->holder &&
                 drill->stage >= DRILL_FREES;
    bool parted = drill->kind == DRILL_SPLIT || drill->kind == DRILL_FORGETS ||
                  drill->kind == DRILL_PARTED || drill->kind == DRILL_CUTOFF ||
                  drill->kind == DRILL_LAPSED || drill->kind == DRILL_CLAIMED ||
                  drill->kind == DRILL_REPEATED || drill->kind == DRILL_CHANGED;
    bool split = parted && task == drill->holder && drill->stage >= DRILL_FREES;
    bool refused = drill->kind == DRILL_RENEWS && !drill->renewed;
    bool broken = (drill->kind == DRILL_BREAK || drill->kind == DRILL_DELAY) &&
                  drill->stage >= DRILL_FREES && strcmp(reason, "broken") == 0;
    bool expected = lapsed || wiped || split || refused || broken;

    if (task->purpose < TASK_DRILL_HOLDS || task->purpose == TASK_DRILL_OVER ||
        drill->stage == DRILL_NONE)
        return;
    if (!expected && drill->survives)
        check_violated(fleet->world->check, PROMISE_SERVED,
            "%s: lock-%" PRIu32 " is lost (%s), and it was to survive that",
            task->who, drill->lock, reason);
    else if (!expected)
        check_broken(fleet->world->check, PROMISE_SERVED, fleet->true_wind,
            "%s: lock-%" PRIu32 " is lost (%s), and nothing has happened",
            task->who, drill->lock, reason);
    if (task != drill->holder || !expected) {
        drill_failed(task->client);
        return;
    }
    drill->holder = NULL;
    if (refused || (lapsed && drill->heir == NULL)) {
        /* LOST comes by a margin before the lock is free. */
        drill_quiet(fleet, (uint64_t)drill->lease_ms * LAPSE_PERMILLE +
                               drill_prompt_us(fleet->world));
        drill_end(fleet);
    }
}

/* --- one after the other -------------------------------------------------- */

uint64_t
drill_moment_us(const struct world *world)
{
    return 8 * (world->plan.latency_us + world->plan.jitter_us) + 1;
}

static void
drill_start(struct fleet *fleet)
{
    struct drill *drill = &fleet->drill;
    const struct drill_plan *plan = &drill_plans[drill->kind];

    world_note(fleet->world, "fleet", "drill %s of lock-%" PRIu32 ": %s %s",
        plan->name, drill->lock,
        drill->holder != NULL ? drill->holder->who : "-",
        drill->heir != NULL ? drill->heir->who : "-");
    drill->stage = DRILL_HOLDS;
    require(!plan->holds || drill->holder != NULL);
    if (drill->holder != NULL && drill->kind != DRILL_ASLEEP)
        drill_ask(drill, drill->holder,
            drill->kind == DRILL_LAPSES ? TASK_DRILL_LAPSES : TASK_DRILL_HOLDS,
            CLIENT_NO_WAIT);
    if (!plan->holds && drill->stage == DRILL_HOLDS)
        drill_soon(fleet, drill_moment_us(fleet->world));
}

/* False: not enough can take part. */
static bool
drill_try(struct fleet *fleet, enum drill_kind kind)
{
    struct drill *drill = &fleet->drill;

    memset(drill, 0, offsetof(struct drill, serial));
    drill->serial++;
    drill->kind = kind;
    drill->broker = DRILL_NOBODY;
    drill->lock = (uint32_t)world_below(fleet->world, fleet->world->plan.locks);
    if (drill_plans[kind].begin(fleet)) {
        drill_start(fleet);
        return true;
    }
    memset(drill, 0, offsetof(struct drill, serial));
    return false;
}

/* Those that need what few runs have: each of them once. */
static const enum drill_kind last_drills[] = {DRILL_FORGETS, DRILL_PARTED,
    DRILL_GIVEN, DRILL_TURNS, DRILL_BEHIND, DRILL_STRANDS, DRILL_STALE,
    DRILL_SPLIT, DRILL_UNDONE, DRILL_REVIVED, DRILL_CUTOFF, DRILL_LAPSED,
    DRILL_CLAIMED, DRILL_RETURNED, DRILL_ORDERED, DRILL_RACED, DRILL_REPEATED,
    DRILL_NAMED, DRILL_SLOW, DRILL_COPIES, DRILL_SETBACK, DRILL_CHANGED,
    DRILL_HANDED, DRILL_ROUSED, DRILL_CROWDED};

#define LAST_DRILLS (sizeof(last_drills) / sizeof(last_drills[0]))

static bool
last_drill_can(const struct world *world, enum drill_kind kind)
{
    if (kind == DRILL_NAMED)
        return plan_named(&world->plan);
    if (kind == DRILL_SLOW || kind == DRILL_SETBACK)
        return true;
    if (kind == DRILL_COPIES)
        return world->plan.quorum == 0 && world->plan.replicas == 0;
    if (kind == DRILL_CROWDED)
        return world->plan.quorum == 0;
    if (kind == DRILL_CHANGED)
        return world->plan.peers > 0;
    if (kind == DRILL_HANDED)
        return world->plan.detaches > 0;
    if (kind == DRILL_ROUSED)
        return world->plan.awaits + world->plan.wants > 0;
    if (kind == DRILL_FORGETS)
        return world->plan.quorum != 0 && plan_settles(&world->plan);
    if (kind == DRILL_PARTED || kind == DRILL_GIVEN || kind == DRILL_TURNS)
        return world->plan.quorum;
    if (kind == DRILL_BEHIND)
        return world->plan.strict;
    if (kind >= DRILL_UNDONE && kind <= DRILL_REPEATED)
        return world->plan.cluster > 0 && !world->plan.strict;
    return world->plan.cluster > 0 && world->plan.masters > 1 &&
           (kind == DRILL_STRANDS ? plan_settles(&world->plan)
                                  : world->plan.strict);
}

/* A hold that was over when all asked, but by a clock in doubt, is there still
 * if no request has come since. */
static void
leavings_note(struct fleet *fleet)
{
    const struct world *world = fleet->world;

    for (uint32_t i = 0; i < plan_lock_count(&world->plan); i++)
        if (check_has_leavings(world->check, i))
            fleet->left[i] = true;
}

bool
drill_next(struct fleet *fleet)
{
    struct world *world = fleet->world;

    /* It would not show with leases no longer than that. With a patience of
     * that, requests fail while brokers connect again. */
    if (drill_prompt_us(world) > drill_lease_us(world) * 3 / 4 ||
        world->plan.settle_ms > 2 * world->plan.lease_ms ||
        plan_term_ms(&world->plan) < world->plan.lease_ms ||
        world->plan.redis_timeout_ms < DRILL_REJOIN_US / 1000)
        return false;
    world->calm = false;
    while (fleet->drills < DRILLS) {
        fleet->drills++;
        if (drill_try(fleet, (enum drill_kind)world_below(world, DRILL_SWEEP)))
            return true;
    }
    while (fleet->drills < DRILLS + LAST_DRILLS) {
        enum drill_kind kind = last_drills[fleet->drills++ - DRILLS];
        if (last_drill_can(world, kind) && drill_try(fleet, kind))
            return true;
    }
    if (fleet->drills == DRILLS + LAST_DRILLS) {
        fleet->drills++;
        drill_quiet(fleet, drill_lease_us(world));
        fleet_look(fleet);
        return true;
    }
    if (fleet->settled)
        return false;
    if (fleet->drills == DRILLS + LAST_DRILLS + 1) {
        fleet->drills++;
        leavings_note(fleet);
    }
    return drill_try(fleet, DRILL_SWEEP);
}

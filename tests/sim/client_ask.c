/*
 * Which locks a client asks for, and how: kinds, several names, locks within
 * locks. All clients agree on what a lock is (fleet_limit()), but for a few
 * that do not, on purpose.
 */
#include "tests/sim/drill.h"

#include "daemon/base/assert.h"

#include <inttypes.h>

static struct world *
world_of(const struct task *task)
{
    return task->client->world;
}

static bool
chance(struct world *world, uint32_t percent)
{
    return percent > 0 && world_below(world, 100) < percent;
}

static uint32_t
task_bit(const struct task *task)
{
    return 1u << (task - task->client->tasks);
}

/* --- sending -------------------------------------------------------------- */

/* 0, or a note. */
static uint64_t
wish_send(struct client *client, const struct wish *wish)
{
    struct world *world = client->world;

    if (wish->limit > 0) {
        wire_pair(client, "limit", wish->limit);
        if (wish->permits > 1 || world_odds(world, 2))
            wire_pair(client, "permits", wish->permits);
    } else if (wish->shared) {
        wire_word(client, "mode=shared");
    } else if (wish->upgradable) {
        wire_word(client, "mode=upgradable");
    } else if (world_odds(world, 4)) {
        wire_word(client, "mode=exclusive");
    }
    if (wish->wait_ms != CLIENT_NO_WAIT)
        wire_pair(client, "wait", wish->wait_ms);
    if (wish->lease_ms > 0)
        wire_pair(client, "lease", wish->lease_ms);
    if (wish->tree)
        wire_pair(client, "tree", 1);
    if (wish->wanted)
        wire_pair(client, "wanted", 1);
    if (wish->detached)
        wire_pair(client, "detached", 1);
    if (wish->delay_ms > 0)
        wire_pair(client, "delay", wish->delay_ms);
    if (wish->no_deadlock)
        wire_pair(client, "deadlock", 0);
    if (!world_odds(world, 8))
        return 0;
    uint64_t note = world_below(world, 1000000);
    wire_pair(client, "note", note);
    return note;
}

/* One name, or the leader's and then those of its mates. */
static struct request *
lock_begin(struct task *task)
{
    struct client *client = task->client;
    struct request *request = wire_begin(client, VERB_LOCK, NULL);

    if (request == NULL)
        return NULL;
    request->task = task;
    request->lock = task->lock;
    request->mates = task->mates;
    wire_lock(client, task->lock);
    for (uint32_t i = 0; i < client->task_count; i++)
        if (&client->tasks[i] != task && (task->mates >> i & 1) != 0)
            wire_lock(client, client->tasks[i].lock);
    wire_owner(client, task->owner);
    return request;
}

static void
lock_end(struct task *task, struct request *request, const struct wish *wish)
{
    struct client *client = task->client;

    request->wish = *wish;
    request->fresh = request->mates == 0 &&
                     task_remnant(task, task->lock) == NULL &&
                     client->world->now_us >=
                         client->remnants[task->lock][task->owner].true_doubt;
    request->arrival = check_arrival(client->world->check, task->lock);
    request->note = wish_send(client, wish);
    request->progress =
        task->purpose == TASK_DRILL_WAITS || world_odds(client->world, 4);
    if (request->progress)
        wire_pair(client, "progress", 1);
    wire_end(client);
    task->outstanding++;
    task->locks++;
    task->asking = request->serial;
}

/* A broker keeps it for keep=, then it stands for a lease, and a late LOCK may
 * be carried out while that is worth it. */
static uint64_t
remnant_until(const struct client *client)
{
    const struct world *world = client->world;

    return world->now_us + (uint64_t)client->keep_ms * 1000 +
           2 * (uint64_t)world->plan.lease_ms * 1000 +
           client_patience_us(client);
}

void
task_leaves(const struct task *task)
{
    struct client *client = task->client;
    struct remnant *remnant = &client->remnants[task->lock][task->owner];

    if (client->world->now_us >= remnant->true_until)
        remnant->floor = task->floor;
    remnant->true_until = remnant_until(client);
}

/* Redis may carry the LOCK out yet, behind a later one's sending. */
void
task_doubts(const struct task *task, uint32_t lock)
{
    task->client->remnants[lock][task->owner].true_doubt =
        remnant_until(task->client);
}

/* The session is taken up again: a broker that was asleep since the connection
 * before may have all of it still. */
void
client_finds_remnants(struct client *client)
{
    for (uint32_t lock = 0; lock < PLAN_LOCKS_MAX; lock++)
        for (uint32_t owner = 0; owner <= OWNERS; owner++) {
            struct remnant *remnant = &client->remnants[lock][owner];
            if (remnant->true_until > 0)
                remnant->true_until = remnant_until(client);
        }
}

const struct remnant *
task_remnant(const struct task *task, uint32_t lock)
{
    const struct client *client = task->client;
    const struct remnant *remnant = &client->remnants[lock][task->owner];

    if (client->generation < 2 || client->world->now_us >= remnant->true_until)
        return NULL;
    return remnant;
}

/* Its fence is above all that were told by now. */
static void
task_asks_first(struct task *task)
{
    const struct world *world = world_of(task);

    task->floor = check_fence_told(world->check, task->lock);
    task->true_asked = world->now_us;
    task->asked_us = machine_boot_us(task->client->machine);
    task->wanted_seen = check_wanted_from(world->check, task->lock);
    task->loose = false;
}

/* But it may find what an earlier connection left; and where it is put again,
 * that of a connection which had not ended when it was asked for first. */
static void
task_may_find(struct task *task)
{
    const struct remnant *remnant = task_remnant(task, task->lock);

    if (remnant != NULL && remnant->floor < task->floor)
        task->floor = remnant->floor;
}

bool
task_send_wish(struct task *task, bool again)
{
    struct client *client = task->client;
    const struct task *below = task->upgrade ? task->parent : NULL;

    if (below != NULL && below->count > 0 && !below->here && !below->claims)
        return false; /* the hold must be claimed before */
    struct request *request = lock_begin(task);
    struct wish wish = task->wish;

    if (request == NULL)
        return false;
    request->again = again;
    if (again && wish.wait_ms != CLIENT_NO_WAIT) {
        uint64_t waited_us = machine_boot_us(client->machine) - task->asked_us;
        wish.wait_ms = waited_us / 1000 + 1 < wish.wait_ms
                           ? wish.wait_ms - (uint32_t)(waited_us / 1000)
                           : 1;
    }
    for (uint32_t i = 0; i < client->task_count; i++) {
        struct task *mate = &client->tasks[i];
        if (mate != task && (task->mates >> i & 1) == 0)
            continue;
        if (!again)
            task_asks_first(mate);
        task_may_find(mate);
        mate->loose = again;
        mate->here = false;
    }
    lock_end(task, request, &wish);
    return true;
}

void
task_wants(
    struct task *task, uint32_t lock, uint32_t wait_ms, uint32_t lease_ms)
{
    uint32_t limit = fleet_limit(task->client->fleet, lock);

    task->lock = lock;
    task->wish = (struct wish){
        .limit = limit,
        .permits = limit > 0 ? limit : 1,
        .wait_ms = wait_ms,
        .lease_ms = lease_ms,
    };
    task->mates = 0;
    task->leader = NULL;
}

/* A kind that does not fit beside the hold; false: it fits. */
static bool
wish_misfits(struct task *task, struct wish *wish)
{
    struct world *world = world_of(task);

    if (world->plan.quorum != 0 || !world_odds(world, 6) || task->loose ||
        wish->tree)
        return false;
    if (wish->limit > 1 && world_odds(world, 2)) {
        wish->permits = wish->permits > 1 ? wish->permits - 1 : 2;
        return true;
    }
    if (wish->limit > 0 || world_odds(world, 3) || task->shares) {
        wish->limit += world->plan.resizes > 0 ? 100 : 1;
        wish->shared = false;
        wish->upgradable = false;
        return true;
    }
    return false;
}

/* It gives up what only it had, from now on. */
static void
task_downgrades(struct task *task)
{
    task->shares = true;
    task->wish.upgradable = false;
    task->has_read = false;
    check_deed(world_of(task)->check, DEED_DOWNGRADE);
    if (task->belief != 0)
        check_shares(world_of(task)->check, task->belief);
}

void
task_send_reentry(struct task *task, uint32_t wait_ms)
{
    struct world *world = world_of(task);
    struct wish wish = task->wish;
    uint32_t mates = task->mates;
    bool holds = task->count > 0 && task->unlocks == 0;

    if (holds && (!task->here || task->vague || task->parts > 0))
        return;
    task->mates = 0;
    struct request *request = lock_begin(task);
    task->mates = mates;
    if (request == NULL)
        return;
    wish.wait_ms = wait_ms;
    if (task->count > 0)
        wish.shared = task->shares && !wish.upgradable;
    wish.delay_ms = 0;
    wish.lease_ms = 0;
    request->mates = 0;
    request->misfits = holds && wish_misfits(task, &wish);
    if (holds && !request->misfits && wish.limit == 0 && !wish.shared &&
        !task->upgrade && chance(world, world->plan.shares) &&
        world_odds(world, 2)) {
        wish.shared = true;
        task_downgrades(task);
    }
    lock_end(task, request, &wish);
}

/* --- drawing -------------------------------------------------------------- */

/* Whether another task of the client stands with that lock and owner. */
static bool
is_taken(const struct task *task, uint32_t lock, uint32_t owner)
{
    const struct client *client = task->client;

    for (uint32_t i = 0; i < client->task_count; i++) {
        const struct task *other = &client->tasks[i];
        if (other != task && other->state != TASK_IDLE && other->lock == lock &&
            other->owner == owner)
            return true;
    }
    return false;
}

/* Whether the owner's whole and part would meet there: that is a conflict. So
 * may be an exclusive part beside a shared one: all parts `shares` alike. */
static bool
meets_own(const struct task *task, uint32_t lock, bool *shares)
{
    const struct client *client = task->client;

    for (uint32_t i = 0; i < client->task_count; i++) {
        const struct task *other = &client->tasks[i];
        if (other == task || other->state == TASK_IDLE ||
            other->owner != task->owner || !plan_lock_is_tree(other->lock))
            continue;
        if (other->lock == lock || plan_lock_has_part(lock, other->lock) ||
            plan_lock_has_part(other->lock, lock))
            return true;
        *shares = other->wish.shared;
    }
    return false;
}

/* Some locks nearly everybody wants, others hardly anybody. */
static uint32_t
draw_lock(struct world *world)
{
    uint64_t u = world_below(world, 1u << 16);

    return (uint32_t)((u * u * u) * world->plan.locks >> 48);
}

static uint32_t
draw_wait(struct world *world)
{
    uint32_t term_ms = plan_term_ms(&world->plan);

    switch (world_below(world, 10)) {
    case 0:
        return 0;
    case 1:
        return 1 + (uint32_t)world_below(world, 20);
    case 2:
    case 3:
    case 4:
        return 10 + (uint32_t)world_below(world, 2 * term_ms);
    default:
        return CLIENT_NO_WAIT;
    }
}

static uint32_t
draw_lease(struct world *world)
{
    uint32_t term_ms = plan_term_ms(&world->plan);

    if (!world_odds(world, 6))
        return 0;
    switch (world_below(world, 6)) {
    case 0:
        return 1 + (uint32_t)world_below(world, 50);
    case 1:
        return term_ms + (uint32_t)world_below(world, 3 * term_ms);
    default:
        return 100 + (uint32_t)world_below(world, term_ms);
    }
}

/* By the kind of its lock. */
static void
draw_wish(struct task *task)
{
    struct world *world = world_of(task);
    const struct plan *plan = &world->plan;
    struct wish *wish = &task->wish;

    *wish = (struct wish){
        .limit = fleet_limit(task->client->fleet, task->lock),
        .permits = 1,
        .wait_ms = draw_wait(world),
        .lease_ms = draw_lease(world),
    };
    if (wish->limit > 0 && world_odds(world, 2))
        wish->permits = 1 + (uint32_t)world_below(world, wish->limit);
    if (wish->limit == 0)
        wish->shared = chance(world, plan->shares);
    bool tree = plan_lock_is_tree(task->lock);
    if (!tree && wish->shared && chance(world, plan->upgrades)) {
        wish->shared = false;
        wish->upgradable = true;
    }
    if (!tree && chance(world, plan->detaches)) {
        wish->detached = true;
        wish->lease_ms =
            100 + (uint32_t)world_below(world, plan_detached_ms(plan) - 100);
    } else if (chance(world, plan->wants)) {
        wish->wanted = true;
    }
    wish->shared = wish->shared || (wish->upgradable && wish->detached);
    wish->upgradable = wish->upgradable && !wish->detached;
    if (chance(world, plan->delays))
        wish->delay_ms = 1 + (uint32_t)world_below(world, 2000);
    if (tree) {
        wish->tree = true;
        (void)meets_own(task, task->lock, &wish->shared);
    } else if (chance(world, plan->conflicts)) {
        wish->limit = 1 + (uint32_t)world_below(world, 3);
        wish->permits = 1;
        wish->shared = false;
        wish->upgradable = false;
    }
    /* A client in a deadlock must come out of it in some other way. */
    wish->no_deadlock = wish->wait_ms != CLIENT_NO_WAIT && world_odds(world, 8);
}

/* Idle tasks of the client join, each with another lock of that kind. */
static void
draw_mates(struct task *task)
{
    struct client *client = task->client;
    const struct fleet *fleet = client->fleet;

    for (uint32_t i = 0; i < client->task_count; i++) {
        struct task *mate = &client->tasks[i];
        uint32_t lock = draw_lock(client->world);
        if (mate == task || mate->state != TASK_IDLE ||
            mate->purpose != TASK_WORKS || lock == task->lock ||
            fleet_limit(fleet, lock) != fleet_limit(fleet, task->lock) ||
            is_taken(mate, lock, task->owner))
            continue;
        mate->lock = lock;
        mate->owner = task->owner;
        mate->wish = task->wish;
        mate->leader = task;
        mate->mates = 0;
        mate->parent = NULL;
        mate->state = TASK_ASKING;
        mate->timer++;
        task->mates |= task_bit(mate) | task_bit(task);
    }
}

/* The LOCK could not be sent: mates go their own ways. */
static void
mates_part(struct task *task)
{
    struct client *client = task->client;

    for (uint32_t i = 0; i < client->task_count; i++)
        if (client->tasks[i].leader == task &&
            client->tasks[i].state == TASK_ASKING) {
            client->tasks[i].leader = NULL;
            task_think(&client->tasks[i]);
        }
    task->mates = 0;
}

/* Further requests with a LOCK, or soon after. */
static void
task_ask_more(struct task *task)
{
    struct world *world = world_of(task);

    switch (world_below(world, 40)) {
    case 0:
        if (task->mates != 0 || task->wish.detached)
            break;
        task->state = TASK_LEAVING;
        task_send_unlock(task);
        break;
    case 1:
        if (task->mates == 0 && !task->wish.detached)
            task_send_reentry(task, draw_wait(world));
        break;
    case 2:
        task_send_cancel(task);
        break;
    case 3:
    case 4:
    case 5:
        task_wake(task, world_below(world, 2 * world->plan.hold_us + 1000));
        break;
    default:
        break;
    }
}

/* By the lock and owner that it has: the LOCK leaves. */
static bool
task_asks(struct task *task)
{
    struct world *world = world_of(task);

    task->mates = 0;
    task->leader = NULL;
    draw_wish(task);
    task->state = TASK_ASKING;
    if (task->parent == NULL && !task->wish.detached && !task->wish.tree &&
        chance(world, world->plan.several))
        draw_mates(task);
    if (!task_send_wish(task, false)) {
        mates_part(task);
        return false;
    }
    task_ask_more(task);
    return true;
}

void
task_ask(struct task *task)
{
    struct world *world = world_of(task);
    bool tree = chance(world, world->plan.trees);

    task->parent = NULL;
    task->lock = tree ? PLAN_TREE + (uint32_t)world_below(
                                        world, PLAN_TREE_END - PLAN_TREE)
                      : draw_lock(world);
    task->owner =
        world_odds(world, 4) ? 1 + (uint32_t)world_below(world, OWNERS) : 0;
    if (is_taken(task, task->lock, task->owner) ||
        (tree && meets_own(task, task->lock, &(bool){false})) ||
        !task_asks(task))
        task_think(task);
}

/* --- a lock within a lock ------------------------------------------------- */

/* The hold becomes exclusive, for a while. */
static bool
task_upgrades(struct task *task, struct task *child)
{
    struct world *world = world_of(task);

    child->lock = task->lock;
    child->owner = task->owner;
    child->parent = task;
    child->upgrade = true;
    child->mates = 0;
    child->leader = NULL;
    child->wish = (struct wish){.permits = 1,
        .wait_ms = draw_wait(world),
        .lease_ms = draw_lease(world)};
    child->state = TASK_ASKING;
    if (!task_send_wish(child, false)) {
        task_nest_ends(child);
        task_think(child);
        return false;
    }
    task->child = child;
    if (world_odds(world, 8))
        task_wake(child, world_below(world, 2 * world->plan.hold_us + 1000));
    return true;
}

static bool
may_upgrade(const struct task *task)
{
    struct world *world = world_of(task);

    return task->shares && !task->upgrade && !task->wish.wanted &&
           !task->wish.tree && task->count == 1 && task->outstanding == 0 &&
           chance(world, world->plan.upgrades);
}

bool
task_nests(struct task *task)
{
    struct client *client = task->client;
    struct world *world = client->world;

    if (!task->here || task->child != NULL || client->wind != WIND_NOT ||
        client->draining)
        return false;
    bool upgrades = may_upgrade(task);
    if (!upgrades && !chance(world, world->plan.nests))
        return false;
    for (uint32_t i = 0; i < client->task_count; i++) {
        struct task *child = &client->tasks[i];
        uint32_t lock = upgrades ? task->lock : draw_lock(world);
        if (child->state != TASK_IDLE || child->purpose != TASK_WORKS)
            continue;
        if (upgrades)
            return task_upgrades(task, child);
        if (lock == task->lock || is_taken(child, lock, task->owner))
            continue;
        child->lock = lock;
        child->owner = task->owner;
        child->parent = task;
        if (!task_asks(child)) {
            child->parent = NULL;
            task_think(child);
            return false;
        }
        task->child = child;
        return true;
    }
    return false;
}

void
task_nest_ends(struct task *task)
{
    struct task *parent = task->parent;

    bool upgrade = task->upgrade;

    task->parent = NULL;
    task->upgrade = false;
    if (parent == NULL || parent->child != task)
        return;
    parent->child = NULL;
    if (upgrade)
        parent->has_read = false;
    if (parent->state == TASK_HOLDING)
        task_wake(parent, 1000);
}

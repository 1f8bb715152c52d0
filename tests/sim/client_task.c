/*
 * Tasks of a client: what it does with locks, and when it believes that it
 * holds one (PROTOCOL.md, 6.5 and profile B).
 *
 * A belief begins at an OK whose deadline is not over, else at a PING's. It
 * ends at the deadline, at LOST, with the sending of the last UNLOCK, and with
 * the connection where the session does not move; it never comes back. The
 * judge is told of each step at once, and of deadlines in true time, so that he
 * sees one pass while the client is stopped.
 */
#include "tests/sim/drill.h"

#include "daemon/base/assert.h"

#include <inttypes.h>
#include <string.h>

#define CONFIRMS_MAX 3

static struct world *
world_of(const struct task *task)
{
    return task->client->world;
}

static uint64_t
boot_us(const struct task *task)
{
    return machine_boot_us(task->client->machine);
}

/* Around a mean, now and then much longer. */
static uint64_t
around(struct world *world, uint64_t mean_us)
{
    uint64_t us = world_below(world, 2 * mean_us + 1);

    return world_odds(world, 25) ? 5 * us : us;
}

static void task_event(void *arg, uint64_t data);

/* The task's next step; the one before is off. */
void
task_wake(struct task *task, uint64_t in_us)
{
    struct world *world = world_of(task);

    world_at(world, world->now_us + in_us, task_event, task, ++task->timer);
}

void
task_think(struct task *task)
{
    require(task->belief == 0);
    task->state = TASK_IDLE;
    task->count = 0;
    task_wake(task, around(world_of(task), world_of(task)->plan.think_us));
}

/* --- belief --------------------------------------------------------------- */

static bool
task_believes(const struct task *task)
{
    return task->belief != 0 && boot_us(task) < task->deadline_us;
}

void
belief_begin(struct task *task)
{
    struct machine *machine = task->client->machine;

    if (task->belief != 0 || boot_us(task) >= task->deadline_us)
        return;
    struct check_hold hold = {
        .lock = task->lock,
        .fence = task->fence,
        .who = task->who,
        .machine = machine,
        .limit = task->wish.limit,
        .permits = task->wish.permits,
        .shared = task->shares,
        .upgradable = task->wish.upgradable,
        .below =
            task->upgrade && task->parent != NULL ? task->parent->fence : 0,
        .part = task->wish.tree,
        .doom = task->client->doom,
    };
    task->belief = check_believes(
        world_of(task)->check, &hold, machine_when(machine, task->deadline_us));
}

/* Nobody gave it back: a lock-delay begins no sooner than when it stood. */
static void
belief_delays(const struct task *task)
{
    if (task->belief != 0 && task->wish.delay_ms > 0 && task->wish.limit == 0 &&
        !task->shares && task->unlocks == 0)
        check_delays(world_of(task)->check, task->lock, task->fence,
            task->true_stood, task->wish.delay_ms, task->who);
}

void
belief_end(struct task *task)
{
    if (task->belief != 0)
        check_ends(world_of(task)->check, task->belief);
    task->belief = 0;
}

static void late_write(void *arg, uint64_t data);

/*
 * The belief ends against the client's will. Some program was about to write,
 * having checked before; it may still do so, however late.
 */
void
belief_break(struct task *task)
{
    struct world *world = world_of(task);

    if (task->belief != 0 && task->has_read && !task->shares &&
        task->wish.limit == 0 && world_odds(world, 4)) {
        task->late.lock = task->lock;
        task->late.fence = task->fence;
        task->late.value = task->value;
        world_at(world,
            world->now_us +
                world_below(world, (uint64_t)world->plan.lease_ms * 2000 + 1),
            late_write, task, ++task->late.timer);
    }
    belief_end(task);
}

static void
late_write(void *arg, uint64_t data)
{
    struct task *task = arg;
    struct world *world = world_of(task);

    if (data != task->late.timer || !task->client->machine->up)
        return;
    if (task->client->machine->stopped_until > world->now_us) {
        world_at(world, task->client->machine->stopped_until, late_write, task,
            data);
        return;
    }
    check_write(world->check, task->late.lock, task->late.fence,
        task->late.value, task->who);
}

/* By the client's clock. */
void
deadline_move(struct task *task, uint64_t deadline_us)
{
    task->deadline_us = deadline_us;
    if (task->belief != 0)
        check_until(world_of(task)->check, task->belief,
            machine_when(task->client->machine, deadline_us));
}

/* A message from `base_us` of the client's clock holds for so long. */
void
deadline_set(struct task *task, uint64_t base_us, uint64_t ttl_ms)
{
    struct client *client = task->client;
    /* Less 1 %, for clocks that do not run alike. */
    uint64_t deadline_us = base_us + ttl_ms * 990;
    uint64_t due_us = base_us + ttl_ms * 1000 / 3;

    if (client->keep_ms > 0 && ttl_ms > client->keep_ms)
        check_violated(client->world->check, PROMISE_TOLD,
            "%s: ttl_ms=%" PRIu64 " is more than keep=%" PRIu32, task->who,
            ttl_ms, client->keep_ms);
    deadline_move(
        task, deadline_us < task->cap_us ? deadline_us : task->cap_us);
    if (due_us < client->ping_due_us)
        client->ping_due_us = due_us;
    client_arm(client);
}

static void
ping_now(struct task *task)
{
    task->client->ping_due_us = 0;
    client_arm(task->client);
}

/* Begins to work where the deadline allows it, else asks for a new one. */
void
task_confirm(struct task *task)
{
    struct world *world = world_of(task);

    if (boot_us(task) < task->deadline_us) {
        task->state = TASK_HOLDING;
        belief_begin(task);
        task->steps = 1 + (uint32_t)world_below(world, 3);
        task->has_read = false;
        task->timer++;
        if (task->purpose == TASK_WORKS)
            task_wake(
                task, around(world, world->plan.hold_us / (2 * task->steps)));
    } else if (task->confirms++ < CONFIRMS_MAX) {
        task->state = TASK_CONFIRMING;
        ping_now(task);
    } else {
        task_leave(task);
    }
}

/* --- asking --------------------------------------------------------------- */

static struct request *
task_begin(struct task *task, enum verb verb)
{
    struct request *request = wire_begin(task->client, verb, task);

    if (request != NULL)
        task->outstanding++;
    return request;
}

void
task_send_cancel(struct task *task)
{
    struct client *client = task->client;

    if (task->leader != NULL)
        task = task->leader;
    struct request *asking =
        &client->requests[task->asking & (CLIENT_REQUESTS - 1)];
    if (asking->serial != task->asking || task_begin(task, VERB_CANCEL) == NULL)
        return;
    asking->cancelled = true;
    wire_end(client);
}

static void
send_fence(struct request *request, struct client *client, uint64_t fence)
{
    const struct task *task = request->task;

    request->beside = task->upgrade || task->child != NULL;
    request->fence = fence;
    wire_pair(client, "fence", fence);
}

/* A hold and its upgrade: each needs its fence. */
static bool
task_is_one_of_two(const struct task *task)
{
    return task->upgrade || (task->child != NULL && task->child->upgrade);
}

/* Whether the next UNLOCK is surely the last, and no drill waits for it. */
static bool
task_may_rest(const struct task *task)
{
    return task->count == 1 && task->locks == 0 && task->unlocks == 0 &&
           task->purpose == TASK_WORKS && !task_is_one_of_two(task);
}

uint32_t
rest_send(struct client *client)
{
    struct world *world = client->world;
    uint32_t delay_ms;

    if (world->plan.rests == 0 || client->fleet->winding ||
        world_below(world, 100) >= world->plan.rests)
        return 0;
    delay_ms = 1 + (uint32_t)world_below(world, 2000);
    wire_pair(client, "delay", delay_ms);
    return delay_ms;
}

/* With the last one the belief ends, whatever the answer will be. */
bool
task_send_unlock(struct task *task)
{
    struct client *client = task->client;

    if (task->count > 0 && !task->here)
        return false;
    struct request *request = task_begin(task, VERB_UNLOCK);
    if (request == NULL)
        return false;
    if (task->count > 0 && task->locks == 0 &&
        (task_is_one_of_two(task) || world_odds(client->world, 2)))
        send_fence(request, client, task->fence);
    if (task_may_rest(task))
        request->wish.delay_ms = rest_send(client);
    wire_end(client);
    task->unlocks++;
    if (task->unlocks >= task->count)
        belief_end(task);
    return true;
}

/* Not the hold's, or of nothing: nothing may come of it. */
static void
task_send_stale(struct task *task)
{
    struct client *client = task->client;
    struct request *request = task_begin(task, VERB_UNLOCK);

    if (request == NULL)
        return;
    request->stale = true;
    switch (world_below(client->world, 3)) {
    case 0:
        send_fence(request, client, 1);
        break;
    case 1: /* an upgrade's hold may have a fence little below */
        send_fence(request, client, task->upgrade ? 1 : task->fence - 1);
        break;
    default:
        send_fence(request, client, task->fence + 99991); /* nobody's soon */
        break;
    }
    wire_end(client);
}

/*
 * A new end for a lease=. From now on no deadline lies beyond it, until the
 * answer has come: one that was told before may not have heard of it.
 */
bool
task_send_renew(struct task *task, uint64_t asked_ms)
{
    struct client *client = task->client;
    struct world *world = client->world;
    struct request *request = task->here ? task_begin(task, VERB_RENEW) : NULL;

    if (request == NULL)
        return false;
    request->lease_ms = (uint32_t)asked_ms;
    wire_pair(client, "lease", asked_ms);
    if (task_is_one_of_two(task) || world_odds(world, 2))
        send_fence(request, client, task->fence);
    wire_end(client);
    task->renews++;
    if (task->lease_ms == 0) /* it has one from now on */
        task->lease_ms = (uint32_t)asked_ms;
    task->renewed = true;
    uint64_t margin_us = asked_ms * 10 + 2000;
    uint64_t end_us = boot_us(task) + asked_ms * 1000;
    end_us -= margin_us < asked_ms * 1000 ? margin_us : asked_ms * 1000;
    if (end_us < task->cap_us)
        task->cap_us = end_us;
    if (task->cap_us >= task->deadline_us)
        return true;
    deadline_move(task, task->cap_us);
    client_arm(client);
    return true;
}

static void
task_send_note(struct task *task)
{
    struct client *client = task->client;
    uint64_t note = 1 + world_below(client->world, 1000000);

    if (!task->here ||
        !check_may_note(client->world->check, task->lock, task->fence, note))
        return;
    struct request *request = task_begin(task, VERB_NOTE);
    if (request == NULL)
        return;
    wire_pair(client, "note", note);
    if (task_is_one_of_two(task) || world_odds(client->world, 2))
        send_fence(request, client, task->fence);
    wire_end(client);
}

/* Some of its permits, now and then more than it has. From now on it relies on
 * the rest only, whatever the answer will be. */
static void
task_send_part(struct task *task)
{
    struct client *client = task->client;
    uint32_t permits = task->wish.permits;

    if (!task->here || task->vague || task->parts > 0 || task->count != 1 ||
        task->locks > 0 || task->unlocks > 0 || permits < 2 ||
        task->belief == 0)
        return;
    struct request *request = task_begin(task, VERB_PART);
    if (request == NULL)
        return;
    uint32_t given = 1 + (uint32_t)world_below(client->world, permits - 1);
    if (world_odds(client->world, 6)) {
        request->misfits = true;
        given = permits + 1;
    } else {
        task->wish.permits = permits - given;
        check_permits(
            client->world->check, task->belief, task->wish.permits, false);
    }
    request->wish.permits = task->wish.permits;
    task->parts++;
    wire_pair(client, "permits", given);
    if (world_odds(client->world, 2))
        send_fence(request, client, task->fence);
    wire_end(client);
}

/* Shorter or longer. */
static uint64_t
draw_renewal(struct world *world)
{
    uint64_t term_ms = plan_term_ms(&world->plan);

    return 1 + world_below(
                   world, world_odds(world, 3) ? term_ms / 4 + 2 : 3 * term_ms);
}

/* An UNLOCK of what nobody ever locks. */
static void
send_unheld(struct client *client)
{
    if (wire_begin(client, VERB_UNLOCK, NULL) == NULL)
        return;
    wire_lock(client,
        (uint32_t)world_below(client->world, client->world->plan.locks));
    wire_owner(client, OWNERS + 1);
    wire_end(client);
}

static void
send_show(struct client *client)
{
    if (wire_begin(client, VERB_SHOW, NULL) == NULL)
        return;
    wire_lock(client,
        (uint32_t)world_below(client->world, client->world->plan.locks));
    wire_end(client);
}

/* Further habits of programs. */
static void
client_fidget(struct client *client)
{
    struct world *world = client->world;

    if (client->wind == WIND_NOT && world->plan.detaches > 0 &&
        world_below(world, 100) < world->plan.detaches) {
        detached_fidget(client);
        return;
    }
    if (client->wind == WIND_NOT && world->plan.awaits > 0 &&
        world_below(world, 100) < world->plan.awaits) {
        await_fidget(client);
        return;
    }
    if (client->wind == WIND_NOT && world->plan.resizes > 0 &&
        world_below(world, 100) < world->plan.resizes) {
        resize_fidget(client);
        return;
    }
    switch (world_below(client->world, 32)) {
    case 0:
        (void)wire_request(client, VERB_PING);
        break;
    case 5:
        send_unclaimed(client);
        break;
    case 6:
        watches_fidget(client);
        break;
    case 1:
        (void)wire_request(client, VERB_HELD);
        break;
    case 2:
        send_show(client);
        break;
    case 3:
        send_unheld(client);
        break;
    case 4:
        wire_mistake(client);
        break;
    default:
        break;
    }
}

static void
task_fidget(struct task *task)
{
    struct world *world = world_of(task);

    if (world->plan.parts > 0 && task->wish.permits > 1 &&
        world_below(world, 100) < world->plan.parts) {
        task_send_part(task);
        return;
    }
    if (task->lease_ms > 0 && world_odds(world, 3)) {
        task_send_renew(task, draw_renewal(world));
        return;
    }
    switch (world_below(world, 40)) {
    case 0:
    case 1:
    case 2:
        if (task->count < 4)
            task_send_reentry(task, world_odds(world, 2)
                                        ? CLIENT_NO_WAIT
                                        : (uint32_t)world_below(world, 1000));
        break;
    case 3:
    case 4:
        if (task->here)
            task_send_stale(task);
        break;
    case 5:
        if (task->count > 1 && task->unlocks == 0)
            task_send_unlock(task);
        break;
    case 6:
        if (task->lease_ms == 0)
            task_send_renew(task, draw_renewal(world));
        break;
    case 7:
    case 8:
        task_send_note(task);
        break;
    default:
        client_fidget(task->client);
        break;
    }
}

/* --- working -------------------------------------------------------------- */

void
task_leave(struct task *task)
{
    uint32_t unlocks = task->count;

    if (task->state == TASK_IDLE)
        return;
    task->state = TASK_LEAVING;
    task->timer++;
    if (task->count > 0 && !task->here && task->client->link == LINK_OPEN)
        task_claim(task);
    while (task->unlocks < unlocks)
        if (!task_send_unlock(task))
            break;
    if (world_odds(world_of(task), 100) && task->here) {
        /* Behind the last one: answered in turn, whatever became of it. */
        task_send_stale(task);
        task_send_stale(task);
    }
    belief_end(task);
    if (task->outstanding == 0 && task->count > 0)
        task_wake(task, task->here ? 10000 : 50000);
}

/* Between the look at the deadline and the act a process may be stopped. */
static void
task_pause(struct task *task)
{
    struct world *world = world_of(task);

    if (world->plan.fault_weight[FAULT_client_stop] > 0 && !world->healing &&
        world_odds(world, 400)) {
        uint64_t span_us =
            world_below(world, (uint64_t)world->plan.lease_ms * 2000 + 1);
        world_note(
            world, task->who, "is stopped for %" PRIu64 " ms", span_us / 1000);
        machine_stop(task->client->machine, world->now_us + span_us);
    }
}

/* A client that is not alone with it. */
static bool
task_only_reads(const struct task *task)
{
    return task->shares || task->wish.limit > 0;
}

static void
task_read(struct task *task)
{
    struct world *world = world_of(task);

    if (!check_read(world->check, task->lock, task->fence,
            task_only_reads(task), &task->value)) {
        task_leave(task);
        return;
    }
    task->has_read = true;
    task_fidget(task);
    if (task_nests(task))
        return; /* goes on when that is over */
    task_wake(task, around(world, world->plan.hold_us / (2 * task->steps)));
    task_pause(task);
}

/* Half of the programs look at the deadline once more before they write. */
static void
task_write(struct task *task)
{
    struct world *world = world_of(task);

    if (world_odds(world, 2) && !task_believes(task)) {
        task_leave(task);
        return;
    }
    task->has_read = false;
    bool done = true;
    if (!task_only_reads(task))
        done = check_write(
            world->check, task->lock, task->fence, task->value, task->who);
    else if (task_believes(task) && task->belief != 0)
        check_same(world->check, task->belief, task->value);
    if (!done || --task->steps == 0 ||
        (task->client->draining && task->client->keep_ms == 0)) {
        task_leave(task);
        return;
    }
    task_wake(task, around(world, world->plan.hold_us / (2 * task->steps)));
}

static void
task_step(struct task *task)
{
    struct client *client = task->client;

    switch (task->state) {
    case TASK_IDLE:
        if (client->link != LINK_OPEN || client->finishing)
            return; /* begins again with the next connection */
        if (client->wind != WIND_NOT) {
            client_wind_on(client);
        } else if (client->draining) {
            task_think(task);
        } else {
            client_fidget(client);
            if (world_odds(client->world, 3000))
                client_leave(client);
            else
                task_ask(task);
        }
        break;
    case TASK_ASKING:
        if (task->outstanding > 0 && task->purpose == TASK_WORKS)
            task_send_cancel(task);
        else if (task->outstanding == 0 && task->leader == NULL &&
                 !client->draining && !task_send_wish(task, true))
            task_wake(task, 50000);
        break;
    case TASK_CONFIRMING:
        task_claim(task);
        break;
    case TASK_HOLDING:
        if (task->child != NULL)
            break;
        task_claim(task);
        if (task->purpose == TASK_DRILL_OVER)
            task_leave(task);
        else if (task->has_read)
            task_write(task);
        else if (task_believes(task))
            task_read(task);
        else
            task_leave(task);
        break;
    case TASK_LEAVING:
        task_leave(task);
        break;
    }
}

static void
task_event(void *arg, uint64_t data)
{
    struct task *task = arg;
    struct client *client = task->client;

    if (data != task->timer || !client->machine->up)
        return;
    if (client->machine->stopped_until > client->world->now_us) {
        world_at(client->world, client->machine->stopped_until, task_event,
            task, data);
        return;
    }
    task_step(task);
    wire_flush(client);
}

/* --- messages to the session ---------------------------------------------- */

static bool
task_is_held(const struct task *task)
{
    return task->count > 0 && task->unlocks == 0 && task->here;
}

/*
 * A lease= that is long over is held still, by this answer. One such may come
 * of a broker that has just slept; one asked for after it may not.
 */
static void
task_overdue(struct task *task, const struct request *request)
{
    if (task->lease_ms == 0 || task->renewed ||
        request->sent_us < task->over_us + 500000)
        return;
    if (task->overdue_us == 0)
        task->overdue_us = boot_us(task);
    else if (request->sent_us > task->overdue_us)
        check_broken(world_of(task)->check, PROMISE_TOLD, task->true_asked,
            "%s: its lease of lock-%" PRIu32 " is over, and it is held still",
            task->who, task->lock);
}

/* A PING's ttl_ms is of all holds without lease= whose OK came before; HELD's
 * came before. */
void
tasks_confirmed(struct client *client, const struct request *request,
    const struct answer *a)
{
    bool ping = request->verb == VERB_PING;

    for (uint32_t i = 0; i < client->task_count; i++) {
        struct task *task = &client->tasks[i];
        bool told = ping ? a->has_ttl : task->listed == request->serial;
        bool covered =
            ping ? task->lease_ms == 0 : task->granted_us < request->sent_us;
        if (!task_is_held(task) || a->code != NULL || !covered)
            continue;
        if (!told) {
            task_odd(task, PROMISE_TOLD, request, a, "it is not told of");
            continue;
        }
        task_overdue(task, request);
        if (task->granted_us < request->sent_us)
            task->true_stood = request->true_sent_us;
        if (ping)
            deadline_set(task, request->sent_us, a->ttl_ms);
        if (task->state == TASK_CONFIRMING)
            task_confirm(task);
    }
}

/* Of a hold and its upgrade that with the fence. */
static struct task *
task_of(struct client *client, uint32_t lock, uint32_t owner, uint64_t fence)
{
    struct task *found = NULL;

    for (uint32_t i = 0; i < client->task_count; i++) {
        struct task *task = &client->tasks[i];
        if (task->count > 0 && task->lock == lock && task->owner == owner &&
            (found == NULL || task->fence == fence))
            found = task;
    }
    return found;
}

bool
task_listed(struct client *client, const struct request *request, uint32_t lock,
    uint32_t owner, const struct answer *item)
{
    struct task *task = task_of(client, lock, owner, item->fence);

    /* Holds of earlier connections are not claimed yet, or not known. */
    if (client->generation > 1 && (task == NULL || !task->here))
        return true;
    if (task == NULL || task->fence != item->fence ||
        (task->count != item->count && !task->loose))
        return false;
    task->listed = request->serial;
    if (task->unlocks == 0)
        deadline_set(task, request->sent_us, item->ttl_ms);
    return true;
}

/* A lease= is over no sooner than was asked for, except for the margins, and
 * for a renewal's time on its way, since it counts from the sending. */
static bool
lost_too_soon(const struct task *task)
{
    uint64_t lease_us = (uint64_t)task->lease_ms * 1000;
    uint64_t usual_us = (uint64_t)world_of(task)->plan.lease_ms * 1000;
    uint64_t way_us = (uint64_t)world_of(task)->plan.command_timeout_ms * 1000;

    /* A hold of an earlier connection may have a lease= of its own. */
    if (task->renewed || task_remnant(task, task->lock) != NULL)
        return false;
    return task->lease_ms == 0 || boot_us(task) - task->asked_us +
                                          lease_us / 25 + usual_us / 25 +
                                          way_us + 10000 <
                                      lease_us;
}

/* Redis has lost a hold that it does not know any more, except in drills, and
 * after the end of a lease=. That end counts from the request, or shortly
 * before, and may be heard of long after. */
static void
task_is_gone(const struct task *task)
{
    const struct world *world = world_of(task);
    uint64_t leases_us = 2 * (uint64_t)world->plan.lease_ms * 1000 +
                         boot_us(task) - task->asked_us;

    if (task->purpose < TASK_DRILL_HOLDS && task->lease_ms == 0 &&
        task_remnant(task, task->lock) == NULL)
        check_broken(world->check, PROMISE_KEPT,
            world->now_us > leases_us ? world->now_us - leases_us : 0,
            "%s: lock-%" PRIu32 " is gone, and nothing has taken it", task->who,
            task->lock);
}

bool
task_lost(struct client *client, uint32_t lock, uint32_t owner, uint64_t fence,
    const char *reason)
{
    struct task *task = task_of(client, lock, owner, fence);
    struct world *world = client->world;

    if (task == NULL || task->fence != fence)
        return client->generation > 1; /* an earlier connection had it */
    if (strcmp(reason, "broken") == 0) {
        check_deed(world->check, DEED_BROKEN);
        if (!check_is_broken(world->check, lock, fence) &&
            !check_was_replaced(world->check, task->true_asked))
            check_broken(world->check, PROMISE_TOLD, world->now_us,
                "%s: lock-%" PRIu32 " was not broken", task->who, lock);
    }
    world_note(world, task->who, "lost lock-%" PRIu32 " %" PRIu64 " %s", lock,
        fence, reason);
    if (strcmp(reason, "expired") == 0 && lost_too_soon(task))
        check_broken(world->check, PROMISE_TOLD, task->true_asked,
            "%s: lock-%" PRIu32 " has expired after %" PRIu64
            " us, with lease=%" PRIu32,
            task->who, lock, boot_us(task) - task->asked_us, task->lease_ms);
    if (strcmp(reason, "gone") == 0)
        task_is_gone(task);
    drill_lost(task, reason);
    task_gone(task);
    task_settle(task);
    return true;
}

/* QUIT or FIN is being sent: nothing is held from now on. */
void
tasks_finish(struct client *client)
{
    for (uint32_t i = 0; i < client->task_count; i++) {
        struct task *task = &client->tasks[i];
        belief_end(task);
        task->timer++;
        if (task->state != TASK_IDLE)
            task->state = TASK_LEAVING;
    }
}

void
tasks_reset(struct client *client, bool dead)
{
    for (uint32_t i = 0; i < client->task_count; i++) {
        struct task *task = &client->tasks[i];
        belief_delays(task);
        if (dead) {
            belief_end(task);
            task->late.timer++;
        } else {
            belief_break(task);
        }
        task->state = TASK_IDLE;
        task->timer++;
        task->count = 0;
        task->here = false;
        task->claims = false;
        task->shares = false;
        task->leader = NULL;
        task->parent = NULL;
        task->child = NULL;
        task->upgrade = false;
        task->mates = 0;
        task->outstanding = 0;
        task->locks = 0;
        task->unlocks = 0;
        task->renews = 0;
        task->parts = 0;
        task->cap_us = UINT64_MAX;
    }
}

void
tasks_expire(struct client *client)
{
    for (uint32_t i = 0; i < client->task_count; i++) {
        struct task *task = &client->tasks[i];
        if (task->belief == 0 || task_believes(task))
            continue;
        belief_break(task);
        if (task->purpose != TASK_DRILL_LAPSES)
            task_leave(task);
    }
}

uint64_t
tasks_due_us(const struct client *client)
{
    uint64_t due_us = UINT64_MAX;

    for (uint32_t i = 0; i < client->task_count; i++) {
        const struct task *task = &client->tasks[i];
        if (task->belief != 0 && task->deadline_us < due_us)
            due_us = task->deadline_us;
    }
    return due_us;
}

/* Whether there is a hold with a deadline to keep, or, for some clients, a wait
 * that may become one. `survey`: PING would tell several holds the end of one
 * that runs out. */
bool
tasks_hold(const struct client *client, bool *survey)
{
    uint32_t holds = 0;
    bool leased = false;
    bool waits = false;

    for (uint32_t i = 0; i < client->task_count; i++) {
        const struct task *task = &client->tasks[i];
        waits = waits || task->state == TASK_ASKING;
        if (!task->here)
            continue;
        if (task->belief != 0 || task->state == TASK_CONFIRMING) {
            holds++;
            leased = leased || task->lease_ms > 0;
        }
    }
    *survey = leased;
    return holds > 0 || (waits && client->number % 2 == 1);
}

bool
tasks_rest(const struct client *client)
{
    for (uint32_t i = 0; i < client->task_count; i++)
        if (client->tasks[i].state != TASK_IDLE)
            return false;
    return true;
}

void
task_wind_up(struct task *task)
{
    switch (task->state) {
    case TASK_ASKING:
        if (task->leader == NULL && world_odds(world_of(task), 2))
            task_send_cancel(task);
        break;
    case TASK_CONFIRMING:
    case TASK_HOLDING:
        task_leave(task);
        break;
    case TASK_IDLE:
    case TASK_LEAVING:
        break;
    }
}

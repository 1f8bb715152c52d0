/*
 * Tasks of a client: what it does with locks, and when it believes that it
 * holds one (PROTOCOL.md, 6.5 and 7).
 *
 * A belief begins at an OK whose deadline is not over, else at a PING's. It
 * ends at the deadline, at LOST, with the sending of the last UNLOCK, and with
 * the connection; it never comes back. The judge is told of each step at once,
 * and of deadlines in true time, so that he sees one pass while the client is
 * stopped.
 */
#include "tests/sim/drill.h"

#include "daemon/base/assert.h"

#include <inttypes.h>
#include <string.h>

#define OWNERS       2
#define TURN_US      25000 /* a broker reads its clock once a turn */
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

static void
belief_begin(struct task *task)
{
    struct check *check = world_of(task)->check;
    struct machine *machine = task->client->machine;

    if (task->belief != 0 || boot_us(task) >= task->deadline_us)
        return;
    task->belief = check_believes(check, task->lock, task->fence, task->who,
        machine_when(machine, task->deadline_us));
    check_process(check, task->belief, machine);
}

static void
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
static void
belief_break(struct task *task)
{
    struct world *world = world_of(task);

    if (task->belief != 0 && task->has_read && world_odds(world, 4)) {
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

/* What was told at `base_us` of the client's clock holds for so long. */
static void
deadline_set(struct task *task, uint64_t base_us, uint64_t ttl_ms)
{
    struct client *client = task->client;
    /* Less 1 %, for clocks that do not run alike. */
    uint64_t deadline_us = base_us + ttl_ms * 990;
    uint64_t due_us = base_us + ttl_ms * 1000 / 3;

    task->deadline_us = deadline_us < task->cap_us ? deadline_us : task->cap_us;
    if (task->belief != 0)
        check_until(client->world->check, task->belief,
            machine_when(client->machine, task->deadline_us));
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
static void
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

bool
task_send_lock(struct task *task, uint32_t wait_ms, uint32_t lease_ms)
{
    struct client *client = task->client;
    struct world *world = client->world;
    struct request *request = wire_begin(client, VERB_LOCK, task);

    if (request == NULL)
        return false;
    request->wait_ms = wait_ms;
    request->lease_ms = lease_ms;
    request->floor = check_fence_told(world->check, task->lock);
    if (wait_ms != CLIENT_NO_WAIT)
        wire_pair(client, "wait", wait_ms);
    if (lease_ms > 0)
        wire_pair(client, "lease", lease_ms);
    if (world_odds(world, 8))
        wire_pair(client, "note", world_below(world, 1000000));
    request->progress =
        task->purpose == TASK_DRILL_WAITS || world_odds(world, 4);
    if (request->progress)
        wire_pair(client, "progress", 1);
    wire_end(client);
    task->outstanding++;
    task->locks++;
    task->asking = request->serial;
    return true;
}

static struct request *
task_begin(struct task *task, enum verb verb)
{
    struct request *request = wire_begin(task->client, verb, task);

    if (request != NULL)
        task->outstanding++;
    return request;
}

static void
task_send_cancel(struct task *task)
{
    struct client *client = task->client;
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
    request->fence = fence;
    wire_pair(client, "fence", fence);
}

/* With the last one the belief ends, whatever the answer will be. */
static bool
task_send_unlock(struct task *task)
{
    struct client *client = task->client;

    struct request *request = task_begin(task, VERB_UNLOCK);
    if (request == NULL)
        return false;
    if (task->count > 0 && task->locks == 0 && world_odds(client->world, 2))
        send_fence(request, client, task->fence);
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
    case 1:
        send_fence(request, client, task->fence - 1);
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
    struct request *request = task_begin(task, VERB_RENEW);

    if (request == NULL)
        return false;
    request->lease_ms = (uint32_t)asked_ms;
    wire_pair(client, "lease", asked_ms);
    if (world_odds(world, 2))
        send_fence(request, client, task->fence);
    wire_end(client);
    task->renews++;
    if (task->lease_ms == 0)
        return true;
    task->renewed = true;
    uint64_t margin_us = asked_ms * 10 + 2000;
    uint64_t end_us = boot_us(task) + asked_ms * 1000;
    end_us -= margin_us < asked_ms * 1000 ? margin_us : asked_ms * 1000;
    if (end_us < task->cap_us)
        task->cap_us = end_us;
    if (task->cap_us >= task->deadline_us)
        return true;
    task->deadline_us = task->cap_us;
    if (task->belief != 0)
        check_until(world->check, task->belief,
            machine_when(client->machine, task->deadline_us));
    client_arm(client);
    return true;
}

/* Shorter or longer. */
static uint64_t
draw_renewal(struct world *world)
{
    uint64_t lease_ms = world->plan.lease_ms;

    return 1 + world_below(world,
                   world_odds(world, 3) ? lease_ms / 4 + 2 : 3 * lease_ms);
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

/* What programs also do, now and then. */
static void
client_fidget(struct client *client)
{
    switch (world_below(client->world, 32)) {
    case 0:
        wire_request(client, VERB_PING);
        break;
    case 1:
        wire_request(client, VERB_HELD);
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

    if (task->lease_ms > 0 && world_odds(world, 3)) {
        task_send_renew(task, draw_renewal(world));
        return;
    }
    switch (world_below(world, 40)) {
    case 0:
    case 1:
    case 2:
        if (task->count < 4)
            task_send_lock(task,
                world_odds(world, 2) ? CLIENT_NO_WAIT
                                     : (uint32_t)world_below(world, 1000),
                0);
        break;
    case 3:
    case 4:
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
    default:
        client_fidget(task->client);
        break;
    }
}

/* Some locks nearly everybody wants, others hardly anybody. */
static bool
task_choose(struct task *task)
{
    struct client *client = task->client;
    struct world *world = client->world;
    uint64_t u = world_below(world, 1u << 16);

    task->lock = (uint32_t)((u * u * u) * world->plan.locks >> 48);
    task->owner =
        world_odds(world, 4) ? 1 + (uint32_t)world_below(world, OWNERS) : 0;
    for (uint32_t i = 0; i < client->task_count; i++) {
        const struct task *other = &client->tasks[i];
        if (other != task && other->state != TASK_IDLE &&
            other->lock == task->lock && other->owner == task->owner)
            return false;
    }
    return true;
}

static uint32_t
draw_wait(struct world *world)
{
    switch (world_below(world, 10)) {
    case 0:
        return 0;
    case 1:
        return 1 + (uint32_t)world_below(world, 20);
    case 2:
    case 3:
    case 4:
        return 10 + (uint32_t)world_below(world, 2 * world->plan.lease_ms);
    default:
        return CLIENT_NO_WAIT;
    }
}

static uint32_t
draw_lease(struct world *world)
{
    if (!world_odds(world, 6))
        return 0;
    switch (world_below(world, 6)) {
    case 0:
        return 1 + (uint32_t)world_below(world, 50);
    case 1:
        return world->plan.lease_ms +
               (uint32_t)world_below(world, 3 * world->plan.lease_ms);
    default:
        return 100 + (uint32_t)world_below(world, world->plan.lease_ms);
    }
}

static void
task_ask(struct task *task)
{
    struct world *world = world_of(task);
    uint32_t wait_ms = draw_wait(world);

    if (!task_choose(task) ||
        !task_send_lock(task, wait_ms, draw_lease(world))) {
        task_think(task);
        return;
    }
    task->state = TASK_ASKING;
    switch (world_below(world, 40)) {
    case 0:
        task->state = TASK_LEAVING;
        task_send_unlock(task);
        break;
    case 1:
        task_send_lock(task, draw_wait(world), 0);
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

/* --- working -------------------------------------------------------------- */

void
task_leave(struct task *task)
{
    uint32_t unlocks = task->count;

    if (task->state == TASK_IDLE)
        return;
    task->state = TASK_LEAVING;
    task->timer++;
    while (task->unlocks < unlocks)
        if (!task_send_unlock(task))
            break;
    if (world_odds(world_of(task), 100)) {
        /* Behind the last one: answered in turn, whatever became of it. */
        task_send_stale(task);
        task_send_stale(task);
    }
    belief_end(task);
    if (task->outstanding == 0 && task->count > 0)
        task_wake(task, 10000);
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

static void
task_read(struct task *task)
{
    struct world *world = world_of(task);

    if (!check_read(world->check, task->lock, task->fence, &task->value)) {
        task_leave(task);
        return;
    }
    task->has_read = true;
    task_fidget(task);
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
    if (!check_write(
            world->check, task->lock, task->fence, task->value, task->who) ||
        --task->steps == 0 || task->client->draining) {
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
        if (task->purpose == TASK_WORKS)
            task_send_cancel(task);
        break;
    case TASK_CONFIRMING:
        break;
    case TASK_HOLDING:
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

/* --- answers -------------------------------------------------------------- */

static void
task_odd(struct task *task, enum promise promise, const struct request *request,
    const struct answer *a, const char *what)
{
    check_broken(world_of(task)->check, promise, request->true_sent_us,
        "%s: %s (%s of lock-%" PRIu32 ": %s, holds %" PRIu32
        ", told fence %" PRIu64 " ttl %" PRIu64 " count %" PRIu64 ")",
        task->who, what, verb_names[request->verb], task->lock,
        a->code != NULL ? a->code : "OK", task->count, a->fence, a->ttl_ms,
        a->count);
}

/* It is not held any more, and nobody was asked. */
static void
task_gone(struct task *task)
{
    belief_break(task);
    task->count = 0;
    if (task->state != TASK_IDLE)
        task->state = TASK_LEAVING;
    task->timer++;
}

/* After each answer: whether the task has come to rest, or must go on. */
static void
task_settle(struct task *task)
{
    if (task->state == TASK_IDLE || task->outstanding > 0)
        return;
    if (task->count > 0) {
        if (task->state == TASK_LEAVING)
            task_leave(task);
        return;
    }
    task->renewed = false;
    task->cap_us = UINT64_MAX;
    task_think(task);
    if (task->client->wind == WIND_NOT)
        return;
    if (task->serving) /* refused, and not for good */
        task_wake(task, 100000 + world_below(world_of(task), 200000));
    else
        client_wind_on(task->client);
}

/* Whether it takes part in a drill that is not over for it. */
static bool
task_drills(const struct task *task)
{
    return task->purpose == TASK_DRILL_HOLDS ||
           task->purpose == TASK_DRILL_WAITS ||
           task->purpose == TASK_DRILL_LAPSES;
}

static void
lock_granted(
    struct task *task, const struct request *request, const struct answer *a)
{
    struct world *world = world_of(task);

    check_fence_above(
        world->check, task->lock, a->fence, request->floor, task->who);
    check_fence(world->check, task->lock, a->fence, task->who);
    world_note(
        world, task->who, "lock-%" PRIu32 " %" PRIu64, task->lock, a->fence);
    task->fence = a->fence;
    task->lease_ms = request->lease_ms;
    task->renewed = false;
    task->asked_us = request->sent_us;
    task->granted_us = boot_us(task);
    task->cap_us = UINT64_MAX;
    task->overdue_us = 0;
    task->confirms = 0;
    task->count = 1;
}

static void
lock_ok(
    struct task *task, const struct request *request, const struct answer *a)
{
    struct client *client = task->client;
    uint64_t base_us = request->sent_us > client->proven_us ? request->sent_us
                                                            : client->proven_us;

    if (!a->has_fence || !a->has_ttl || !a->has_count) {
        task_odd(task, PROMISE_ANSWERED, request, a, "something is missing");
        return;
    }
    if (a->count != task->count + 1)
        task_odd(task, PROMISE_ANSWERED, request, a, "the count is wrong");
    else if (task->count > 0 && a->fence != task->fence)
        task_odd(task, PROMISE_ANSWERED, request, a, "a re-entry's fence");
    if (a->count > 1) {
        task->count = (uint32_t)a->count;
        deadline_set(task, base_us, a->ttl_ms);
        return;
    }
    belief_end(task);
    lock_granted(task, request, a);
    deadline_set(task, base_us, a->ttl_ms);
    if (task->state == TASK_ASKING && task->unlocks == 0)
        belief_begin(task); /* be it for a moment */
    if (task_drills(task))
        drill_granted(task);
    if (task->state == TASK_ASKING && client->wind != WIND_NOT &&
        task->purpose != TASK_DRILL_HOLDS && task->purpose != TASK_DRILL_LAPSES)
        task_leave(task);
    else if (task->state == TASK_ASKING)
        task_confirm(task);
}

static void
lock_refused(
    struct task *task, const struct request *request, const struct answer *a)
{
    uint64_t waited_us = boot_us(task) - request->sent_us;
    bool timeout = strcmp(a->code, "TIMEOUT") == 0;
    /* Stopped in the middle of a turn, a broker goes on with an old time. */
    bool stops = world_of(task)->plan.fault_weight[FAULT_broker_stop] > 0;

    if (strcmp(a->code, "BUSY") == 0 && request->wait_ms != 0)
        task_odd(task, PROMISE_ANSWERED, request, a, "it would have waited");
    if (timeout &&
        (request->wait_ms == 0 || request->wait_ms == CLIENT_NO_WAIT ||
            (!stops && waited_us + waited_us / 200 + TURN_US <
                           (uint64_t)request->wait_ms * 1000)))
        task_odd(task, PROMISE_ANSWERED, request, a, "wait= is not over");
    if (strcmp(a->code, "CANCELLED") == 0 && !request->cancelled &&
        !task->client->finishing && !task->client->draining)
        task_odd(task, PROMISE_ANSWERED, request, a, "nobody called it off");
    if (task_drills(task))
        drill_refused(task, a->code);
}

static void
unlock_ok(
    struct task *task, const struct request *request, const struct answer *a)
{
    if (request->fence != 0 && request->fence != task->fence) {
        task_odd(
            task, PROMISE_STALE, request, a, "its fence is not the hold's");
        task_gone(task);
        return;
    }
    if (!a->has_count || task->count == 0 || a->count != task->count - 1)
        task_odd(task, PROMISE_ANSWERED, request, a, "the count is wrong");
    task->count = (uint32_t)a->count;
    if (task->count == 0)
        belief_end(task);
}

/* An UNLOCK or RENEW that was refused, and what it says of the hold. */
static void
hold_refused(
    struct task *task, const struct request *request, const struct answer *a)
{
    bool unlock = request->verb == VERB_UNLOCK;

    if (strcmp(a->code, "NOTHELD") == 0) {
        if (task->count > 0) {
            task_odd(task, PROMISE_TOLD, request, a, "it was told no loss");
            task_gone(task);
        }
    } else if (strcmp(a->code, "LOST") == 0) {
        if (task->count > 1)
            task_odd(task, PROMISE_TOLD, request, a, "it was told no loss");
        if (task->count > 0)
            task_gone(task);
    } else if (strcmp(a->code, "STALE") == 0) {
        if (request->fence == 0 || request->fence == task->fence)
            task_odd(
                task, PROMISE_STALE, request, a, "it was the hold's fence");
        if (task->count == 0)
            task_odd(task, PROMISE_STALE, request, a, "nothing is held");
    } else if (strcmp(a->code, "CONFLICT") == 0) {
        if (task->lease_ms > 0)
            task_odd(task, PROMISE_ANSWERED, request, a, "it has a lease=");
    } else if (unlock && (strcmp(a->code, "INDOUBT") == 0 ||
                             strcmp(a->code, "INTERNAL") == 0)) {
        if (task->count > 1)
            task_odd(task, PROMISE_ANSWERED, request, a, "an inner UNLOCK");
        if (task->count > 0 && !request->stale)
            task_gone(task);
    }
}

static void
renew_answered(
    struct task *task, const struct request *request, const struct answer *a)
{
    task->renews--;
    if (task->renews == 0)
        task->cap_us = UINT64_MAX;
    if (a->code != NULL) {
        hold_refused(task, request, a);
        return;
    }
    if (request->fence != 0 && request->fence != task->fence)
        task_odd(
            task, PROMISE_STALE, request, a, "its fence is not the hold's");
    else if (!a->has_ttl || task->count == 0 || task->lease_ms == 0)
        task_odd(task, PROMISE_ANSWERED, request, a, "there is none to renew");
    else if (a->ttl_ms > request->lease_ms)
        task_odd(task, PROMISE_ANSWERED, request, a, "it was asked for less");
    else
        deadline_set(task, request->sent_us, a->ttl_ms);
    drill_renewed(task);
}

/* Whether an answer took longer than it may when nothing fails. */
static void
answer_time(
    struct task *task, const struct request *request, const struct answer *a)
{
    const struct client *client = task->client;

    if (!task->serving || request->verb != VERB_LOCK)
        return;
    if (client->world->now_us >
        task->true_serve_by + client_patience_us(client))
        task_odd(task, PROMISE_ANSWERED, request, a, "it took too long");
}

void
task_answered(
    struct task *task, const struct request *request, const struct answer *a)
{
    require(task->outstanding > 0);
    task->outstanding--;
    switch (request->verb) {
    case VERB_LOCK:
        task->locks--;
        answer_time(task, request, a);
        if (task->serving &&
            (a->code == NULL || strcmp(a->code, "TIMEOUT") == 0))
            task->serving = false;
        if (a->code == NULL)
            lock_ok(task, request, a);
        else
            lock_refused(task, request, a);
        if (a->code != NULL && task->purpose == TASK_IS_SERVED &&
            !task->serving)
            check_broken(world_of(task)->check, PROMISE_SERVED,
                request->true_sent_us,
                "%s: lock-%" PRIu32 " could not be had in %" PRIu32 " ms",
                task->who, task->lock, request->wait_ms);
        break;
    case VERB_UNLOCK:
        task->unlocks -= !request->stale;
        if (a->code == NULL)
            unlock_ok(task, request, a);
        else
            hold_refused(task, request, a);
        break;
    case VERB_RENEW:
        renew_answered(task, request, a);
        break;
    case VERB_HELLO:
    case VERB_CANCEL:
    case VERB_SHOW:
    case VERB_HELD:
    case VERB_PING:
    case VERB_QUIT:
    case VERB_BAD:
    case VERB_COUNT:
        break;
    }
    task_settle(task);
}

/* --- what the session is told --------------------------------------------- */

static bool
task_is_held(const struct task *task)
{
    return task->count > 0 && task->unlocks == 0;
}

/*
 * A lease= that is long over is held still, by this answer. One such may come
 * of a broker that has just slept; one asked for after it may not.
 */
static void
task_overdue(
    struct task *task, const struct request *request, const struct answer *a)
{
    uint64_t end_us = task->granted_us + (uint64_t)task->lease_ms * 1010;

    if (task->lease_ms == 0 || task->renewed ||
        request->sent_us < end_us + 500000)
        return;
    if (task->overdue_us == 0)
        task->overdue_us = boot_us(task);
    else if (request->sent_us > task->overdue_us)
        task_odd(task, PROMISE_TOLD, request, a, "its lease is over");
}

/* A PING's ttl_ms is of all holds whose OK came before; HELD's came before. */
void
tasks_confirmed(struct client *client, const struct request *request,
    const struct answer *a)
{
    bool ping = request->verb == VERB_PING;

    for (uint32_t i = 0; i < client->task_count; i++) {
        struct task *task = &client->tasks[i];
        bool told = ping ? a->has_ttl : task->listed == request->serial;
        bool covered = ping || task->granted_us < request->sent_us;
        if (!task_is_held(task) || a->code != NULL || !covered)
            continue;
        if (!told) {
            task_odd(task, PROMISE_TOLD, request, a, "it is not told of");
            continue;
        }
        task_overdue(task, request, a);
        if (ping)
            deadline_set(task, request->sent_us, a->ttl_ms);
        if (task->state == TASK_CONFIRMING)
            task_confirm(task);
    }
}

static struct task *
task_of(struct client *client, uint32_t lock, uint32_t owner)
{
    for (uint32_t i = 0; i < client->task_count; i++) {
        struct task *task = &client->tasks[i];
        if (task->count > 0 && task->lock == lock && task->owner == owner)
            return task;
    }
    return NULL;
}

bool
task_listed(struct client *client, const struct request *request, uint32_t lock,
    uint32_t owner, const struct answer *item)
{
    struct task *task = task_of(client, lock, owner);

    if (task == NULL || task->fence != item->fence ||
        task->count != item->count)
        return false;
    task->listed = request->serial;
    if (task->unlocks == 0)
        deadline_set(task, request->sent_us, item->ttl_ms);
    return true;
}

/* A lease= is over no sooner than was asked for, but for the margins. */
static bool
lost_too_soon(const struct task *task)
{
    uint64_t lease_us = (uint64_t)task->lease_ms * 1000;
    uint64_t usual_us = (uint64_t)world_of(task)->plan.lease_ms * 1000;

    if (task->renewed)
        return false;
    return task->lease_ms == 0 || boot_us(task) - task->asked_us +
                                          lease_us / 25 + usual_us / 25 +
                                          10000 <
                                      lease_us;
}

bool
task_lost(struct client *client, uint32_t lock, uint32_t owner, uint64_t fence,
    const char *reason)
{
    struct task *task = task_of(client, lock, owner);
    struct world *world = client->world;

    if (task == NULL || task->fence != fence)
        return false;
    world_note(world, task->who, "lost lock-%" PRIu32 " %" PRIu64 " %s", lock,
        fence, reason);
    if (strcmp(reason, "expired") == 0 && lost_too_soon(task))
        check_broken(world->check, PROMISE_TOLD, world->now_us,
            "%s: lock-%" PRIu32 " has expired after %" PRIu64
            " us, with lease=%" PRIu32,
            task->who, lock, boot_us(task) - task->asked_us, task->lease_ms);
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
        if (dead) {
            belief_end(task);
            task->late.timer++;
        } else {
            belief_break(task);
        }
        task->state = TASK_IDLE;
        task->timer++;
        task->count = 0;
        task->outstanding = 0;
        task->locks = 0;
        task->unlocks = 0;
        task->renews = 0;
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

/* Whether there is a hold to keep a deadline of, or, for some clients, a wait
 * that is to be worth a belief; `survey`: PING would tell several holds the end
 * of one that runs out. */
bool
tasks_hold(const struct client *client, bool *survey)
{
    uint32_t holds = 0;
    bool leased = false;
    bool waits = false;

    for (uint32_t i = 0; i < client->task_count; i++) {
        const struct task *task = &client->tasks[i];
        waits = waits || task->state == TASK_ASKING;
        if (task->belief != 0 || task->state == TASK_CONFIRMING) {
            holds++;
            leased = leased || task->lease_ms > 0;
        }
    }
    *survey = holds > 1 && leased;
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
        if (world_odds(world_of(task), 2))
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

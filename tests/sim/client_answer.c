/*
 * The meaning of answers to a task: which of them make sense, and its holds by
 * them. As requests on one lock and owner take effect in the order sent, it
 * knows exactly what may come.
 */
#include "tests/sim/drill.h"

#include "daemon/base/assert.h"

#include <inttypes.h>
#include <string.h>

#define TURN_US 25000 /* a broker reads its clock once a turn */

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

void
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
void
task_gone(struct task *task)
{
    belief_break(task);
    task_leaves(task);
    task->count = 0;
    if (task->state != TASK_IDLE)
        task->state = TASK_LEAVING;
    task->timer++;
}

/* After each answer: whether the task has come to rest, or must go on. */
void
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
    task->leader = NULL;
    task->mates = 0;
    task->here = false;
    task->shares = false;
    task_think(task);
    task_nest_ends(task);
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
        world->check, task->lock, a->fence, task->floor, task->who);
    check_fence(world->check, task->lock, a->fence, task->who,
        task_remnant(task, task->lock) != NULL);
    world_note(
        world, task->who, "lock-%" PRIu32 " %" PRIu64, task->lock, a->fence);
    if (request->fresh && !request->again)
        check_noted(
            world->check, task->lock, a->fence, request->note, task->who);
    check_deed(world->check, request->wish.limit > 0 ? DEED_SEMAPHORE
                             : request->wish.shared  ? DEED_SHARED
                             : task->upgrade         ? DEED_UPGRADE
                                                     : DEED_EXCLUSIVE);
    if (request->wish.tree)
        check_deed(world->check, DEED_TREE);
    if (request->again)
        check_deed(world->check, DEED_AGAIN);
    task->fence = a->fence;
    task->wish = request->wish;
    task->shares = request->wish.shared || request->wish.upgradable;
    task->here = true;
    task->vague = false;
    task->wanted = 0;
    task->true_stood = request->true_sent_us;
    task->lease_ms = request->wish.lease_ms;
    task->renewed = false;
    task->granted_us = boot_us(task);
    task->over_us = task->granted_us + (uint64_t)task->lease_ms * 1010;
    task->cap_us = UINT64_MAX;
    task->overdue_us = 0;
    task->confirms = 0;
    task->count = (uint32_t)a->count;
}

/*
 * A request that did not fit when it was sent may fit a later grant: that hold
 * ended, and another one like it came first. And the other way round: what was
 * to be refused has been granted, since the hold had ended, and what comes
 * behind it does not fit that.
 */
static bool
wish_fits(const struct task *task, const struct wish *wish)
{
    return wish->limit == task->wish.limit &&
           wish->permits == task->wish.permits &&
           (wish->shared ||
               (wish->upgradable ? task->wish.upgradable : !task->shares));
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
    if (request->wish.detached) {
        detached_granted(task, request, a);
        return;
    }
    bool twice = request->again && task->count == 0 && a->count == 2;
    if (a->count != task->count + 1 && !twice)
        task_odd(task, PROMISE_ANSWERED, request, a, "the count is wrong");
    else if (task->count > 0 && a->fence != task->fence)
        task_odd(task, PROMISE_ANSWERED, request, a, "a re-entry's fence");
    task->wanted = 0; /* it has asked for the event anew */
    if (a->count > 1 && !twice) {
        if (request->misfits && !wish_fits(task, &request->wish))
            task_odd(task, PROMISE_ANSWERED, request, a, "it does not fit");
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

/* Whether what is left of an earlier request may be in the way of this one. */
static bool
meets_remnant(const struct task *task, const struct answer *a)
{
    if (task_remnant(task, a->lock) != NULL)
        return true;
    for (uint32_t lock = PLAN_TREE;
         plan_lock_is_tree(task->lock) && lock < PLAN_TREE_END; lock++)
        if (task_remnant(task, lock) != NULL)
            return true;
    return false;
}

/* A kind that disagrees with what stood there, or a cycle that stood. */
static void
lock_refused_for(
    struct task *task, const struct request *request, const struct answer *a)
{
    struct check *check = world_of(task)->check;

    if (strcmp(a->code, "CONFLICT") == 0) {
        check_deed(check, DEED_CONFLICT);
        if (world_of(task)->plan.resizes > 0)
            task->client->fleet->limits[a->lock] = (uint32_t)a->limit;
        bool own = (task->count > 0 && !wish_fits(task, &request->wish)) ||
                   task->upgrade;
        if (!request->misfits && !own && !meets_remnant(task, a) &&
            !check_conflicts(
                check, a->lock, request->wish.limit, task->true_asked) &&
            !check_was_replaced(check, task->true_asked))
            task_odd(task, PROMISE_ANSWERED, request, a, "it would have fit");
    }
    if (strcmp(a->code, "DEADLOCK") == 0) {
        check_deadlock(check, task->client->session, task->owner, a->lock,
            task->true_asked, task->who);
        if (request->wish.no_deadlock)
            task_odd(task, PROMISE_DEADLOCK, request, a, "deadlock=0");
    }
}

static void
lock_refused(
    struct task *task, const struct request *request, const struct answer *a)
{
    uint64_t waited_us = boot_us(task) - request->sent_us;
    bool timeout = strcmp(a->code, "TIMEOUT") == 0;
    /* Stopped in the middle of a turn, a broker goes on with an old time. */
    bool stops = world_of(task)->plan.fault_weight[FAULT_broker_stop] > 0;

    if (strcmp(a->code, "INDOUBT") == 0)
        task_doubts(task, task->lock);
    if (strcmp(a->code, "BUSY") == 0 && request->wish.wait_ms != 0)
        task_odd(task, PROMISE_ANSWERED, request, a, "it would have waited");
    if (timeout && (request->wish.wait_ms == 0 ||
                       request->wish.wait_ms == CLIENT_NO_WAIT ||
                       (!stops && waited_us + waited_us / 200 + TURN_US <
                                      (uint64_t)request->wish.wait_ms * 1000)))
        task_odd(task, PROMISE_ANSWERED, request, a, "wait= is not over");
    if (strcmp(a->code, "CANCELLED") == 0 && !request->cancelled &&
        !task->client->finishing && !task->client->draining)
        task_odd(task, PROMISE_ANSWERED, request, a, "nobody called it off");
    /* Another LOCK under way may be granted meanwhile. So may this one, if the
     * holders are idle intentions that have just been told to go. */
    if (strcmp(a->code, "CANCELLED") == 0 && request->cancelled &&
        request->fresh && request->progress && !request->queued &&
        !request->wish.tree && task->locks == 0 && !task->client->finishing &&
        !task->client->draining)
        check_called_off(world_of(task)->check, task->client->session,
            task->owner, task->lock, request->arrival, task->true_asked,
            task->who);
    lock_refused_for(task, request, a);
    if (task_drills(task) && !request->misfits)
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
    if (!a->has_count || task->count == 0 ||
        (a->count != task->count - 1 && !task->loose))
        task_odd(task, PROMISE_ANSWERED, request, a, "the count is wrong");
    task->count = (uint32_t)a->count;
    if (task->count == 0)
        belief_end(task);
    /* Beside other holders one may have come since it was granted. */
    if (request->wish.delay_ms > 0 && task->wish.limit == 0 &&
        !task->wish.upgradable && !task->shares)
        check_rests(world_of(task)->check, task->lock, task->fence,
            request->true_sent_us, request->wish.delay_ms, task->who);
}

/* An UNLOCK or RENEW that was refused, and what it says of the hold. */
static void
hold_refused(
    struct task *task, const struct request *request, const struct answer *a)
{
    bool unlock = request->verb == VERB_UNLOCK;
    bool none = strcmp(a->code, "NOTHELD") == 0 || strcmp(a->code, "LOST") == 0;

    if (none && request->stale && request->beside)
        return; /* with nobody's fence: it tells of the owner's other hold */
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
        if (request->beside && task->count == 0)
            return; /* the owner's other hold has another fence */
        if (request->fence == 0 || request->fence == task->fence)
            task_odd(
                task, PROMISE_STALE, request, a, "it was the hold's fence");
        if (task->count == 0)
            task_odd(task, PROMISE_STALE, request, a, "nothing is held");
    } else if (unlock && (strcmp(a->code, "INDOUBT") == 0 ||
                             strcmp(a->code, "INTERNAL") == 0)) {
        if (task->count > 1 && !task->client->draining)
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
    else if (!a->has_ttl || task->count == 0)
        task_odd(task, PROMISE_ANSWERED, request, a, "there is none to renew");
    else if (a->ttl_ms > request->lease_ms)
        task_odd(task, PROMISE_ANSWERED, request, a, "it was asked for less");
    else
        deadline_set(task, request->sent_us, a->ttl_ms);
    drill_renewed(task);
}

/* The hold has the rest of its permits, also where Redis has not answered. */
static void
part_answered(
    struct task *task, const struct request *request, const struct answer *a)
{
    struct check *check = world_of(task)->check;
    uint32_t left = request->wish.permits;
    bool conflict = a->code != NULL && strcmp(a->code, "CONFLICT") == 0;

    task->parts--;
    if (a->code == NULL && request->misfits) {
        task_odd(task, PROMISE_ANSWERED, request, a, "it has not so many");
    } else if (a->code == NULL && task->count == 0) {
        task_odd(task, PROMISE_ANSWERED, request, a, "nothing is held");
    } else if (a->code == NULL) {
        check_deed(check, DEED_PART);
        if (!a->has_count || a->count != 1 || !a->has_permits ||
            a->permits != left)
            task_odd(task, PROMISE_ANSWERED, request, a, "what is left");
        if (task->belief != 0)
            check_permits(check, task->belief, left, true);
    } else if (conflict && !request->misfits) {
        task_odd(task, PROMISE_ANSWERED, request, a, "it has so many");
    } else if (!conflict) {
        hold_refused(task, request, a);
    }
}

/* It is a renewal, too. */
static void
note_answered(
    struct task *task, const struct request *request, const struct answer *a)
{
    if (a->code != NULL)
        hold_refused(task, request, a);
    else if (!a->has_ttl || task->count == 0)
        task_odd(task, PROMISE_ANSWERED, request, a, "nothing is held");
    else
        deadline_set(task, request->sent_us, a->ttl_ms);
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

/* Its leader's, and then its mates' in their order. */
static void
lock_ok_each(
    struct task *leader, const struct request *request, const struct answer *a)
{
    struct client *client = leader->client;
    uint32_t at = 1;

    if (request->mates == 0) {
        lock_ok(leader, request, a);
        return;
    }
    check_deed(client->world->check, DEED_SEVERAL);
    lock_ok(leader, request, a);
    for (uint32_t i = 0; i < client->task_count; i++) {
        struct task *mate = &client->tasks[i];
        struct answer own = *a;
        if (mate == leader || (request->mates >> i & 1) == 0)
            continue;
        own.has_fence = at < a->fence_count;
        own.fence = own.has_fence ? a->fences[at++] : 0;
        mate->leader = NULL;
        lock_ok(mate, request, &own);
        task_settle(mate);
    }
    if (at != a->fence_count)
        task_odd(leader, PROMISE_ANSWERED, request, a, "so many fences");
}

/* None of them is had, as far as is known. */
static void
mates_settle(
    struct task *leader, const struct request *request, const struct answer *a)
{
    struct client *client = leader->client;
    /* Its release may still be under way when its broker dies. */
    bool leaves = strcmp(a->code, "CONFLICT") != 0;

    if (leaves)
        task_leaves(leader);
    for (uint32_t i = 0; i < client->task_count; i++) {
        struct task *mate = &client->tasks[i];
        if (mate == leader || (request->mates >> i & 1) == 0)
            continue;
        if (leaves)
            task_leaves(mate);
        task_settle(mate);
    }
}

/* The broker is going: another one is asked, for the same place. False: not by
 * this client. */
static bool
lock_moves_on(struct task *task, const struct request *request)
{
    struct client *client = task->client;

    if (task->state != TASK_ASKING || task->count > 0 || request->misfits ||
        request->cancelled || request->serial != task->asking ||
        request->wish.wait_ms == 0 || !client_keeps(client) ||
        world_odds(client->world, 8))
        return false;
    client_moves_on(client);
    return true;
}

/* False: it is put again elsewhere. */
static bool
lock_answered(
    struct task *task, const struct request *request, const struct answer *a)
{
    bool had = task->count > 0;

    task->locks--;
    answer_time(task, request, a);
    if (task->serving && (a->code == NULL || strcmp(a->code, "TIMEOUT") == 0))
        task->serving = false;
    if (a->code == NULL) {
        lock_ok_each(task, request, a);
        return true;
    }
    if (strcmp(a->code, "DRAINING") == 0 && lock_moves_on(task, request))
        return false;
    lock_refused(task, request, a);
    task->asking = ASKING_NONE;
    mates_settle(task, request, a);
    if (task->purpose == TASK_IS_SERVED && !task->serving && !had)
        check_broken(world_of(task)->check, PROMISE_SERVED,
            request->true_sent_us,
            "%s: lock-%" PRIu32 " could not be had in %" PRIu32 " ms",
            task->who, task->lock, request->wish.wait_ms);
    return true;
}

/* The count is that of a hold and of its upgrade: of the other as many count as
 * its broker knew. */
static uint64_t
count_alone(const struct task *task, enum verb verb, uint64_t count)
{
    const struct task *other = task->upgrade ? task->parent : task->child;
    uint64_t own = task->count;

    if (other == NULL || !(task->upgrade || other->upgrade))
        return count;
    own = verb == VERB_LOCK ? own + 1 : verb == VERB_UNLOCK ? own - 1 : own;
    return count >= own && count <= own + other->count + other->locks ? own
                                                                      : count;
}

void
task_answered(struct task *task, const struct request *request,
    const struct answer *answer)
{
    struct answer alone = *answer;
    const struct answer *a = &alone;

    alone.count = count_alone(task, request->verb, alone.count);
    if (request->verb == VERB_LOCK && a->code == NULL && !a->upgrade)
        task->upgrade = false; /* the hold below it had ended */
    require(task->outstanding > 0);
    task->outstanding--;
    if (request->verb == VERB_LOCK) {
        if (!lock_answered(task, request, a))
            return;
    } else if (request->verb == VERB_UNLOCK) {
        task->unlocks -= !request->stale;
        if (a->code == NULL)
            unlock_ok(task, request, a);
        else
            hold_refused(task, request, a);
    } else if (request->verb == VERB_RENEW) {
        renew_answered(task, request, a);
    } else if (request->verb == VERB_PART) {
        part_answered(task, request, a);
    } else if (request->verb == VERB_NOTE) {
        note_answered(task, request, a);
    } else if (request->verb == VERB_CLAIM) {
        claim_answered(task, request, a);
    }
    task_settle(task);
}

/*
 * Detached holds (PROTOCOL.md, 3.4). A LOCK with detached=1 is a task's until
 * its OK. From then on its fence is known to all clients of the fleet: any of
 * them prolongs the hold or gives it back, at its own broker.
 *
 * Requests of several clients for one hold may overtake one another, and those
 * of a connection that has ended may still be carried out. So the end that
 * counts is the earliest that they may lead to.
 */
#include "tests/sim/drill.h"

#include "daemon/base/assert.h"

#include <inttypes.h>
#include <string.h>

static struct baton *
baton_find(struct fleet *fleet, uint32_t lock, uint64_t fence)
{
    for (uint32_t i = 0; i < BATONS; i++)
        if (fleet->batons[i].fence == fence && fleet->batons[i].lock == lock)
            return &fleet->batons[i];
    return NULL;
}

static struct baton *
baton_free(struct fleet *fleet)
{
    for (uint32_t i = 0; i < BATONS; i++)
        if (fleet->batons[i].fence == 0)
            return &fleet->batons[i];
    return NULL;
}

/* True time of the client's boot clock. */
static uint64_t
true_of(const struct client *client, uint64_t boot_us)
{
    uint64_t ago_us = machine_boot_us(client->machine) - boot_us;

    return client->world->now_us - ago_us;
}

/* Nobody relies on it any more. */
static void
baton_rests(struct world *world, struct baton *baton)
{
    if (baton->belief != 0)
        check_ends(world->check, baton->belief);
    baton->belief = 0;
}

static void
baton_drop(struct world *world, struct baton *baton)
{
    baton_rests(world, baton);
    baton->fence = 0;
}

static void
baton_until(struct world *world, struct baton *baton, uint64_t true_us)
{
    baton->true_until = true_us < baton->true_cap ? true_us : baton->true_cap;
    if (baton->belief != 0)
        check_until(world->check, baton->belief, baton->true_until);
}

/* The term is told in full, less a margin and the time since it began. */
static bool
term_is_cut(
    const struct client *client, const struct request *request, uint64_t ttl_ms)
{
    uint64_t waited_ms =
        (client->world->now_us - request->true_sent_us) / 1000 + 10;
    uint64_t term_ms =
        request->verb == VERB_LOCK ? request->wish.lease_ms : request->lease_ms;

    return ttl_ms > term_ms || ttl_ms + waited_ms < term_ms * 98 / 100;
}

void
detached_granted(
    struct task *task, const struct request *request, const struct answer *a)
{
    struct client *client = task->client;
    struct fleet *fleet = client->fleet;
    struct check *check = client->world->check;
    struct baton *baton = baton_free(fleet);
    uint64_t base_us = request->sent_us > client->proven_us ? request->sent_us
                                                            : client->proven_us;

    if (a->count != 1 || task->count > 0)
        task_odd(task, PROMISE_ANSWERED, request, a, "the count is wrong");
    if (term_is_cut(client, request, a->ttl_ms))
        task_odd(task, PROMISE_ANSWERED, request, a, "its lease is cut");
    check_fence_above(check, task->lock, a->fence, task->floor, task->who);
    check_fence(check, task->lock, a->fence, task->who,
        task_remnant(task, task->lock) != NULL);
    if (request->fresh && !request->again)
        check_noted(check, task->lock, a->fence, request->note, task->who);
    check_deed(check, DEED_DETACHED);
    world_note(client->world, task->who,
        "lock-%" PRIu32 " %" PRIu64 " detached", task->lock, a->fence);
    task->state = TASK_LEAVING;
    uint64_t until_us = true_of(client, base_us) + a->ttl_ms * 990;
    if (baton == NULL || until_us <= client->world->now_us)
        return;
    *baton = (struct baton){
        .fence = a->fence,
        .lock = task->lock,
        .alone = request->wish.limit == 0 && !request->wish.shared,
        .true_began = client->world->now_us,
        .true_until = until_us,
        .true_cap = WORLD_NEVER,
    };
    struct check_hold hold = {
        .lock = task->lock,
        .fence = a->fence,
        .who = task->who,
        .limit = request->wish.limit,
        .permits = request->wish.permits,
        .shared = request->wish.shared,
        .detached = true,
        .asked_us = request->true_sent_us,
        .doom = FAULT_COUNT,
    };
    baton->belief = check_believes(check, &hold, until_us);
    drill_detached(task, a->fence);
}

/* --- sending -------------------------------------------------------------- */

static struct request *
detached_begin(
    struct client *client, enum verb verb, uint32_t lock, uint64_t fence)
{
    struct request *request = wire_begin(client, verb, NULL);

    if (request == NULL)
        return NULL;
    request->lock = lock;
    request->fence = fence;
    wire_lock(client, lock);
    wire_pair(client, "fence", fence);
    wire_pair(client, "detached", 1);
    return request;
}

static uint32_t
draw_term(struct world *world)
{
    uint32_t most_ms = plan_detached_ms(&world->plan);

    return world_odds(world, 3) ? 1 + (uint32_t)world_below(world, most_ms / 16)
                                : 1 + (uint32_t)world_below(world, most_ms);
}

/* Nobody relies on it from now on. */
static void
baton_give_back(struct client *client, struct baton *baton)
{
    struct request *request =
        detached_begin(client, VERB_GIVE_BACK, baton->lock, baton->fence);

    if (request == NULL)
        return;
    /* A node of a quorum that was away may have it still. */
    request->stale = baton->given_us > 0 && client->world->plan.quorum == 0;
    request->given_us = baton->given_us;
    if (baton->belief != 0 && baton->renewals == 0)
        request->true_until = baton->true_until;
    request->wish.delay_ms = rest_send(client);
    wire_end(client);
    baton->unlocks++;
    baton->true_asking = client->world->now_us + client_patience_us(client);
    baton_rests(client->world, baton);
}

/* Its end may be a sooner one from now on. */
static void
baton_prolong(struct client *client, struct baton *baton, uint32_t term_ms)
{
    struct world *world = client->world;
    struct request *request =
        detached_begin(client, VERB_PROLONG, baton->lock, baton->fence);

    if (request == NULL)
        return;
    request->stale = baton->given_us > 0;
    request->given_us = baton->given_us;
    request->lease_ms = term_ms;
    if (baton->belief != 0 && baton->renewals == 0)
        request->true_until = baton->true_until;
    wire_pair(client, "lease", term_ms);
    wire_end(client);
    /* As ttl_ms, less 1 % and 2 ms; and some more. */
    uint64_t sure_us = term_ms > 3 ? (uint64_t)(term_ms - 3) * 980 : 0;
    uint64_t end_us = world->now_us + sure_us;
    baton->turn++;
    if (baton->renewals == 0) {
        request->turn = baton->turn;
        baton->true_cap = WORLD_NEVER;
    }
    baton->renewals++;
    if (end_us < baton->true_cap)
        baton->true_cap = end_us;
    baton_until(world, baton, baton->true_until);
}

/* A fence of no detached hold: one that is the client's own, or nobody's. */
static void
detached_tries(struct client *client)
{
    struct world *world = client->world;
    uint32_t lock = (uint32_t)world_below(world, world->plan.locks);
    uint64_t fence = 1;
    bool gives = world_odds(world, 2);

    for (uint32_t i = 0; i < client->task_count && world_odds(world, 2); i++)
        if (client->tasks[i].state == TASK_HOLDING) {
            lock = client->tasks[i].lock;
            fence = client->tasks[i].fence;
        }
    struct request *request = detached_begin(
        client, gives ? VERB_GIVE_BACK : VERB_PROLONG, lock, fence);
    if (request == NULL)
        return;
    request->stale = true;
    if (!gives)
        wire_pair(client, "lease", draw_term(world));
    wire_end(client);
}

void
detached_fidget(struct client *client)
{
    struct world *world = client->world;
    struct baton *baton =
        &client->fleet->batons[world_below(world, BATONS / 4)];

    if (world_odds(world, 8)) {
        detached_tries(client);
        return;
    }
    for (uint32_t i = 0; baton->fence == 0 && i < BATONS; i++)
        baton = &client->fleet->batons[i];
    if (baton->fence == 0)
        return;
    if (world_odds(world, 3) && world->now_us >= baton->true_asking)
        baton_give_back(client, baton);
    else
        baton_prolong(client, baton, draw_term(world));
}

bool
detached_prolong(
    struct client *client, uint32_t lock, uint64_t fence, uint32_t term_ms)
{
    struct baton *baton = baton_find(client->fleet, lock, fence);

    if (baton == NULL || client->link != LINK_OPEN)
        return false;
    baton_prolong(client, baton, term_ms);
    return true;
}

bool
detached_give_back(struct client *client, uint32_t lock, uint64_t fence)
{
    struct baton *baton = baton_find(client->fleet, lock, fence);

    if (baton == NULL || client->link != LINK_OPEN)
        return false;
    baton_give_back(client, baton);
    wire_flush(client);
    return true;
}

void
detached_wind_up(struct client *client)
{
    const struct drill *drill = &client->fleet->drill;

    if (drill->kind == DRILL_HANDED && drill->stage != DRILL_NONE)
        return;
    for (uint32_t i = 0; i < BATONS; i++) {
        struct baton *baton = &client->fleet->batons[i];
        if (baton->fence != 0 && client->world->now_us >= baton->true_asking)
            baton_give_back(client, baton);
    }
}

/* --- answers -------------------------------------------------------------- */

static void
detached_odd(struct client *client, const struct request *request,
    const struct answer *a, const char *what)
{
    check_broken(client->world->check, PROMISE_STALE, request->true_sent_us,
        "%s: %s lock-%" PRIu32 " of fence %" PRIu64 ", detached: %s: %s",
        client->machine->name, verb_names[request->verb], request->lock,
        request->fence, a->code != NULL ? a->code : "OK", what);
}

static void
prolonged(struct client *client, const struct request *request,
    const struct answer *a, struct baton *baton)
{
    struct world *world = client->world;

    check_deed(world->check, DEED_PROLONGED);
    if (!a->has_ttl || term_is_cut(client, request, a->ttl_ms))
        detached_odd(client, request, a, "its lease is cut");
    if (baton == NULL || baton->belief == 0)
        return;
    if (request->turn != baton->turn)
        return; /* another one may have come after it */
    baton->true_cap = WORLD_NEVER;
    baton_until(world, baton, request->true_sent_us + a->ttl_ms * 990);
}

/* `baton` may have been dropped since. */
static void
detached_ok(struct client *client, const struct request *request,
    const struct answer *a, struct baton *baton)
{
    struct world *world = client->world;

    if (request->stale) {
        /* A hold that was given back may have come back since. */
        check_stale_fence(world->check, request->lock, request->fence,
            request->given_us > 0 ? request->given_us : request->true_sent_us,
            client->machine->name);
        return;
    }
    if (request->verb == VERB_PROLONG) {
        prolonged(client, request, a, baton);
        return;
    }
    if (!a->has_count || a->count != 0)
        detached_odd(client, request, a, "the count is wrong");
    check_given_back(
        world->check, request->lock, request->fence, client->machine->name);
    if (baton == NULL)
        return;
    baton->given_us = world->now_us;
    /* After its end, one node of a quorum alone may still have had it. */
    if (request->wish.delay_ms > 0 && baton->alone && baton->unlocks == 1 &&
        request->true_until > request->true_sent_us)
        check_rests(world->check, request->lock, request->fence,
            request->true_sent_us, request->wish.delay_ms,
            client->machine->name);
}

void
detached_answered(struct client *client, const struct request *request,
    const struct answer *a)
{
    struct world *world = client->world;
    struct baton *baton =
        baton_find(client->fleet, request->lock, request->fence);
    bool gone = a->code != NULL && (strcmp(a->code, "NOTHELD") == 0 ||
                                       strcmp(a->code, "CONFLICT") == 0);

    if (a->code == NULL)
        detached_ok(client, request, a, baton);
    if (baton == NULL)
        return;
    bool alone = baton->unlocks == (request->verb == VERB_GIVE_BACK);
    if (gone && alone && !request->stale &&
        world->now_us < request->true_until &&
        world->now_us < baton->true_until)
        check_missing(world->check, request->lock, request->fence,
            baton->true_began, client->machine->name);
    /* An UNAVAILABLE was not carried out; an INDOUBT may be, later. */
    if (request->verb == VERB_PROLONG &&
        (a->code == NULL || gone || strcmp(a->code, "UNAVAILABLE") == 0))
        baton->renewals--;
    if (gone && request->verb == VERB_GIVE_BACK)
        baton_drop(world, baton);
}

/*
 * AWAIT, which takes nothing; and WANTED, told to the holder of a LOCK with
 * wanted=1.
 */
#include "tests/sim/drill.h"

#include "daemon/base/assert.h"

#include <inttypes.h>
#include <string.h>

#define AWAITS 3 /* of a client at a time */

uint32_t
awaits_of(const struct client *client, uint32_t lock)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < CLIENT_REQUESTS; i++)
        count += client->requests[i].serial != 0 &&
                 client->requests[i].verb == VERB_AWAIT &&
                 client->requests[i].lock == lock;
    return count;
}

static uint32_t
awaits_now(const struct client *client)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < CLIENT_REQUESTS; i++)
        count += client->requests[i].serial != 0 &&
                 client->requests[i].verb == VERB_AWAIT;
    return count;
}

struct request *
await_send(struct client *client, uint32_t lock, uint32_t wait_ms)
{
    struct check *check = client->world->check;
    struct request *request = wire_begin(client, VERB_AWAIT, NULL);

    if (request == NULL)
        return NULL;
    request->lock = lock;
    request->wish.wait_ms = wait_ms;
    request->fence = check_fence_told(check, lock);
    request->seen = check_watch_from(check, lock);
    wire_lock(client, lock);
    if (wait_ms != CLIENT_NO_WAIT)
        wire_pair(client, "wait", wait_ms);
    wire_end(client);
    return request;
}

static void
await_cancel(struct client *client)
{
    for (uint32_t i = 0; i < CLIENT_REQUESTS; i++) {
        struct request *asking = &client->requests[i];
        if (asking->serial == 0 || asking->verb != VERB_AWAIT)
            continue;
        if (wire_cancel(client, asking->serial))
            asking->cancelled = true;
        return;
    }
}

void
await_fidget(struct client *client)
{
    struct world *world = client->world;
    uint32_t lock = (uint32_t)world_below(world, world->plan.locks);
    uint32_t term_ms = plan_term_ms(&world->plan);

    if (world_odds(world, 6)) {
        await_cancel(client);
        return;
    }
    if (awaits_now(client) >= AWAITS)
        return;
    switch (world_below(world, 4)) {
    case 0:
        await_send(client, lock, 0);
        break;
    case 1:
        await_send(client, lock, 1 + (uint32_t)world_below(world, term_ms));
        break;
    default:
        await_send(client, lock, CLIENT_NO_WAIT);
        break;
    }
}

static void
await_odd(struct client *client, const struct request *request,
    const struct answer *a, const char *what)
{
    check_broken(client->world->check, PROMISE_ANSWERED, request->true_sent_us,
        "%s: AWAIT of lock-%" PRIu32 ", wait=%" PRIu32 ": %s: %s",
        client->machine->name, request->lock, request->wish.wait_ms, a->code,
        what);
}

void
await_answered(struct client *client, const struct request *request,
    const struct answer *a)
{
    struct check *check = client->world->check;
    uint64_t waited_us =
        machine_boot_us(client->machine) - request->sent_us + 25000;
    bool stops = client->world->plan.fault_weight[FAULT_broker_stop] > 0;
    uint32_t wait_ms = request->wish.wait_ms;

    if (a->code == NULL) {
        check_awaited(check, request->lock, request->true_sent_us,
            request->seen, request->fence, a->fence, client->machine->name);
        return;
    }
    if (strcmp(a->code, "BUSY") == 0 && wait_ms != 0)
        await_odd(client, request, a, "it would have waited");
    if (strcmp(a->code, "BUSY") == 0)
        check_awaited_in_vain(check, request->lock, request->true_sent_us,
            request->seen, client->machine->name);
    if (strcmp(a->code, "TIMEOUT") == 0 &&
        (wait_ms == 0 || wait_ms == CLIENT_NO_WAIT ||
            (!stops && waited_us + waited_us / 200 < (uint64_t)wait_ms * 1000)))
        await_odd(client, request, a, "wait= is not over");
    if (strcmp(a->code, "CANCELLED") == 0 && !request->cancelled &&
        !client->finishing && !client->draining)
        await_odd(client, request, a, "nobody called it off");
}

void
awaits_check(struct client *client, uint64_t since_us)
{
    for (uint32_t i = 0; i < CLIENT_REQUESTS; i++) {
        const struct request *request = &client->requests[i];
        if (request->serial != 0 && request->verb == VERB_AWAIT &&
            client->link == LINK_OPEN && !client->draining)
            check_broken(client->world->check, PROMISE_WATCH, since_us,
                "lock-%" PRIu32 ": %s awaits it, and nobody has it",
                request->lock, client->machine->name);
    }
}

bool
wanted_told(
    struct client *client, uint32_t lock, uint32_t owner, uint64_t waiters)
{
    struct task *task = NULL;

    for (uint32_t i = 0; i < client->task_count; i++)
        if (client->tasks[i].count > 0 && client->tasks[i].lock == lock &&
            client->tasks[i].owner == owner)
            task = &client->tasks[i];
    if (task == NULL || !task->wish.wanted || waiters == 0)
        return false;
    check_wanted(client->world->check, lock, waiters, task->wanted,
        &task->wanted_seen, task->who);
    task->wanted = (uint32_t)waiters;
    return true;
}

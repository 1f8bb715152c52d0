/*
 * Watches of a client, and the orders of an operator.
 */
#include "tests/sim/drill.h"

#include "daemon/base/assert.h"

#include <inttypes.h>
#include <string.h>

/* --- watches -------------------------------------------------------------- */

static void
watch_ask(struct client *client, struct outlook *outlook)
{
    struct request *request;

    if (outlook->on || outlook->asking != 0 || outlook->ending != 0)
        return;
    request = wire_begin(client, VERB_WATCH, NULL);
    if (request == NULL)
        return;
    request->lock = outlook->lock;
    wire_lock(client, outlook->lock);
    if (outlook->members)
        wire_pair(client, "members", 1);
    wire_end(client);
    outlook->asking = request->serial;
    outlook->told = false;
    check_members_begin(&outlook->roster, outlook->lock);
    outlook->seen = check_watch_from(client->world->check, outlook->lock);
}

void
watches_begin(struct client *client)
{
    for (uint32_t i = 0; i < CLIENT_WATCHES; i++)
        if (client->outlooks[i].wanted)
            watch_ask(client, &client->outlooks[i]);
}

void
watches_reset(struct client *client)
{
    for (uint32_t i = 0; i < CLIENT_WATCHES; i++) {
        struct outlook *outlook = &client->outlooks[i];
        outlook->asking = 0;
        outlook->ending = 0;
        outlook->on = false;
        outlook->told = false;
    }
}

void
watches_fidget(struct client *client)
{
    struct outlook *outlook =
        &client->outlooks[world_below(client->world, CLIENT_WATCHES)];
    struct request *request;

    if (!outlook->wanted)
        return;
    if (!outlook->on) {
        watch_ask(client, outlook);
        return;
    }
    if (outlook->ending != 0 || outlook->asking != 0)
        return;
    request = wire_begin(client, VERB_UNWATCH, NULL);
    if (request == NULL)
        return;
    request->lock = outlook->lock;
    wire_lock(client, outlook->lock);
    wire_end(client);
    outlook->ending = request->serial;
}

void
watch_answered(struct client *client, const struct request *request,
    const struct answer *a)
{
    for (uint32_t i = 0; i < CLIENT_WATCHES; i++) {
        struct outlook *outlook = &client->outlooks[i];
        if (outlook->asking == request->serial) {
            outlook->asking = 0;
            outlook->on = a->code == NULL;
        } else if (outlook->ending == request->serial) {
            outlook->ending = 0;
            outlook->on = false;
            if (a->code != NULL)
                check_broken(client->world->check, PROMISE_ANSWERED,
                    request->true_sent_us,
                    "%s: UNWATCH of lock-%" PRIu32 ": %s",
                    client->machine->name, request->lock, a->code);
        }
    }
}

bool
watch_told(
    struct client *client, uint32_t lock, uint64_t fence, uint32_t holders)
{
    for (uint32_t i = 0; i < CLIENT_WATCHES; i++) {
        struct outlook *outlook = &client->outlooks[i];
        if (!outlook->on || outlook->lock != lock || outlook->members)
            continue;
        outlook->told = true;
        outlook->fence = fence;
        outlook->holders = holders;
        check_watched(client->world->check, lock, fence, holders,
            &outlook->seen, client->machine->name);
        return true;
    }
    return false;
}

struct outlook *
watch_of_members(struct client *client, uint32_t lock)
{
    for (uint32_t i = 0; i < CLIENT_WATCHES; i++) {
        struct outlook *outlook = &client->outlooks[i];
        if (outlook->on && outlook->lock == lock && outlook->members)
            return outlook;
    }
    return NULL;
}

void
watches_check(struct client *client, uint64_t since_us)
{
    for (uint32_t i = 0; i < CLIENT_WATCHES; i++) {
        const struct outlook *outlook = &client->outlooks[i];
        if (!outlook->on || client->link != LINK_OPEN || client->draining)
            continue;
        if (outlook->members)
            check_members_true(client->world->check, &outlook->roster, since_us,
                client->machine->name);
        else if (outlook->told)
            check_watched_true(client->world->check, outlook->lock,
                outlook->fence, outlook->holders, since_us,
                client->machine->name);
        else
            check_broken(client->world->check, PROMISE_WATCH, since_us,
                "lock-%" PRIu32 ": %s watches it, and was told nothing",
                outlook->lock, client->machine->name);
    }
}

/* --- orders --------------------------------------------------------------- */

static void
order_break(struct client *client)
{
    struct world *world = client->world;
    uint32_t lock = (uint32_t)world_below(world, world->plan.locks);

    if (wire_begin(client, VERB_BREAK, NULL) == NULL)
        return;
    check_ordered(world->check, lock);
    wire_lock(client, lock);
    if (world_odds(world, 2) && check_fence_told(world->check, lock) > 0)
        wire_pair(client, "fence", check_fence_told(world->check, lock));
    wire_end(client);
    wire_flush(client);
}

void
client_orders_kill(struct client *client, struct client *victim)
{
    if (victim->session[0] == '\0' || client == victim ||
        wire_begin(client, VERB_KILL, NULL) == NULL)
        return;
    victim->doom = FAULT_order_kill;
    check_doom(client->world->check, victim->machine, FAULT_order_kill);
    wire_word(client, victim->session);
    wire_end(client);
    wire_flush(client);
}

void
client_order(struct world *world, enum fault order)
{
    uint32_t count = world->plan.clients;
    struct client *client = &world->clients[world_below(world, count)];
    struct client *victim = &world->clients[world_below(world, count)];

    if (!machine_runs(client->machine) || client->link != LINK_OPEN)
        return;
    if (order == FAULT_order_break)
        order_break(client);
    else
        client_orders_kill(client, victim);
}

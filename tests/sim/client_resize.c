/*
 * RESIZE: clients change the limit of a semaphore while they use it. All of
 * them name the latest limit that one of them was told.
 */
#include "tests/sim/drill.h"

#include <inttypes.h>

#define LIMIT_MAX 12

uint32_t
fleet_limit(const struct fleet *fleet, uint32_t lock)
{
    uint32_t limit = plan_lock_limit(&fleet->world->plan, lock);

    return limit > 0 && fleet->limits[lock] > 0 ? fleet->limits[lock] : limit;
}

void
resize_fidget(struct client *client)
{
    struct world *world = client->world;
    uint32_t lock = (uint32_t)world_below(world, world->plan.locks);

    if (fleet_limit(client->fleet, lock) == 0)
        return;
    struct request *request = wire_begin(client, VERB_RESIZE, NULL);
    if (request == NULL)
        return;
    request->lock = lock;
    request->wish.limit = 1 + (uint32_t)world_below(world, LIMIT_MAX);
    wire_lock(client, lock);
    wire_pair(client, "limit", request->wish.limit);
    check_resizes(world->check, lock, request->wish.limit);
    wire_end(client);
}

void
resize_answered(struct client *client, const struct request *request,
    const struct answer *a)
{
    struct check *check = client->world->check;
    uint32_t limit = request->wish.limit;

    check_resized(check, request->lock, limit, request->true_sent_us, a->code,
        client->machine->name);
    if (a->code != NULL)
        return;
    check_deed(check, DEED_RESIZED);
    if (!a->has_permits || a->limit != limit)
        check_broken(check, PROMISE_ANSWERED, request->true_sent_us,
            "%s: RESIZE of lock-%" PRIu32 ": something is missing",
            client->machine->name, request->lock);
    client->fleet->limits[request->lock] = limit;
}

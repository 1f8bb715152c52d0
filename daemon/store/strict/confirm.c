/*
 * Safety level strict: what a node's replicas have not got yet is not told.
 *
 * The answer to a call that has granted or renewed something is held until all
 * replicas that could be promoted have what was written: see replicas.c. One
 * question is for all calls that were answered before it was asked. What is not
 * confirmed in its operations' time is of unknown outcome.
 *
 * Where it is known that it cannot be confirmed nothing new is asked for.
 * strict.c knows that, and has the verdict.
 *
 * See DESIGN.md D4.1.
 */
#include "daemon/store/strict/confirm.h"

#include "daemon/store/node/link.h"
#include "daemon/store/queue/call.h"
#include "daemon/store/strict/replicas.h"
#include "daemon/store/strict/strict.h"

#include "daemon/base/assert.h"

static struct link *
witness_of(struct store *store, const struct link *link)
{
    return &store->links[LINK_WITNESS + link->index];
}

static void
held_lost(struct store *store, struct link *link, struct call *call)
{
    call_lost(store, call);
    link_end_call(store, link, call);
}

void
confirm_drop(struct store *store, struct link *link)
{
    if (link_is_second(link)) {
        struct link *node = &store->links[link->index - LINK_WITNESS];
        node->replicas.state = REPLICAS_UNKNOWN;
        LIST_EACH (at, &node->held)
            container_of(at, struct call, link)->covered = false;
        return;
    }
    while (!list_empty(&link->held))
        held_lost(
            store, link, container_of(link->held.next, struct call, link));
    LIST_EACH_SAFE (at, &store->confirmed) {
        struct call *call = container_of(at, struct call, link);
        if (call->at_link == link->index)
            held_lost(store, link, call);
    }
}

/* When the next one is of unknown outcome. */
static uint64_t
held_until_us(const struct store *store, const struct link *link)
{
    uint64_t until_us = WHEEL_NEVER;

    LIST_EACH (at, &link->held) {
        uint64_t due_us =
            call_due_us(store, container_of(at, struct call, link));
        until_us = due_us < until_us ? due_us : until_us;
    }
    return until_us;
}

static bool
confirm_due(const struct store *store, const struct link *link)
{
    return !list_empty(&link->held) && confirm_possible(store, link) &&
           list_empty(&store->links[LINK_WITNESS + link->index].calls);
}

void
confirm_ask(struct store *store, struct link *link, uint64_t now_us)
{
    replicas_ask(store, witness_of(store, link), now_us);
    LIST_EACH (at, &link->held)
        container_of(at, struct call, link)->covered = true;
}

void
confirm_tick(struct store *store, struct link *link, uint64_t now_us)
{
    LIST_EACH_SAFE (at, &link->held) {
        struct call *call = container_of(at, struct call, link);
        if (now_us < call_due_us(store, call))
            continue;
        count(store->counters, COUNTER_redis_unconfirmed);
        held_lost(store, link, call);
    }
    if (!confirm_due(store, link) || now_us < link->wait_us)
        return;
    confirm_ask(store, link, now_us);
    count(store->counters, COUNTER_redis_waits);
}

uint64_t
confirm_next_us(const struct store *store, const struct link *link)
{
    uint64_t until_us = held_until_us(store, link);

    return confirm_due(store, link) && link->wait_us < until_us ? link->wait_us
                                                                : until_us;
}

bool
confirm_take(struct store *store)
{
    struct call *call = store->confirming;

    if (call != NULL)
        link_end_call(store, &store->links[call->at_link], call);
    store->confirming = NULL;
    if (list_empty(&store->confirmed))
        return false;
    call = container_of(list_pop_front(&store->confirmed), struct call, link);
    store->confirming = call;
    call_results(store, &store->links[call->at_link], call, store->confirmed_us,
        call_said(call));
    return true;
}

static void
calls_release(const struct list *calls)
{
    LIST_EACH (at, calls)
        confirm_release(container_of(at, struct call, link));
}

void
confirm_fini(struct store *store)
{
    for (uint32_t i = 0; i < LINK_COUNT; i++) {
        calls_release(&store->links[i].held);
        replicas_forget(&store->links[i].replicas);
    }
    calls_release(&store->confirmed);
    if (store->confirming != NULL)
        confirm_release(store->confirming);
}

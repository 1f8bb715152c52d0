/*
 * The topologies: a row each. See model/topology.h.
 */
#include "daemon/store/model/topology.h"

#include "daemon/store/model/state.h"
#include "daemon/store/topology/quorum.h"
#include "daemon/store/topology/single.h"

#include "daemon/base/assert.h"

/* The node has locks from the start. */
static void
seed_master(struct store *store, struct node *node)
{
    (void)store;
    node->mapped = true;
}

static void
seed_sentinel(struct store *store, struct node *node)
{
    store->sentinel_count += !node->sentinel; /* one that is named twice */
    node->sentinel = true;
}

static uint16_t
route_single(const struct store *store, const struct op *op)
{
    (void)store;
    (void)op;
    return 0;
}

static uint16_t
route_slot_of(const struct store *store, const struct op *op)
{
    require(op->slot < SLOT_COUNT);
    return store->slots[op->slot];
}

static uint16_t
route_master(const struct store *store, const struct op *op)
{
    (void)op;
    return store->master;
}

static uint16_t
route_home(const struct store *store, const struct op *op)
{
    (void)store;
    return op_see(op)->home;
}

static void
want_map(struct store *store, struct conn *conn, uint64_t now_us)
{
    (void)conn;
    (void)now_us;
    store->map_wanted = true;
}

static enum health_reason
lacks_slots(const struct store *store)
{
    return store->slots_mapped < SLOT_COUNT ? HEALTH_SLOTS : HEALTH_FINE;
}

static enum health_reason
lacks_master(const struct store *store)
{
    return store->master == NODE_NONE ? HEALTH_NO_MASTER : HEALTH_FINE;
}

const struct topology topologies[] = {
    [STORE_SINGLE] = {.seed = seed_master, .route = route_single},
    [STORE_CLUSTER] = {.slots = true,
        .route = route_slot_of,
        .ask = route_tick,
        .next_us = route_next_us,
        .conn_lost = want_map,
        .answer = route_map_reply,
        .lacks = lacks_slots},
    [STORE_SENTINEL] = {.seed = seed_sentinel,
        .route = route_master,
        .tick = sentinel_tick,
        .next_us = sentinel_next_us,
        .conn_lost = master_lost,
        .answer = sentinel_reply,
        .lacks = lacks_master},
    [STORE_QUORUM] = {.independent = true,
        .create = quorum_create,
        .destroy = quorum_destroy,
        .seed = seed_master,
        .route = route_home,
        .submit = quorum_take,
        .results = quorum_results,
        .tick = quorum_tick,
        .next_us = quorum_next_us,
        .heard = quorum_heard,
        .request = quorum_request,
        .suffices = quorum_suffices},
};

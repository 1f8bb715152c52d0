/*
 * Nodes and slots: which node an operation goes to. map.c learns the map of
 * slots. What MOVED says is used at once.
 */
#include "daemon/store/topology/route.h"

#include "daemon/store/node/conn.h"
#include "daemon/store/node/history.h"
#include "daemon/store/queue/lane.h"
#include "daemon/store/queue/op_queue.h"

#include "daemon/base/assert.h"

uint16_t
route_node(struct store *store, struct text host, uint16_t port)
{
    uint16_t free = NODE_NONE;

    if (host.len == 0 || host.len >= STORE_HOST_MAX || port == 0 ||
        memchr(host.at, '\0', host.len) != NULL)
        return NODE_NONE;
    for (uint16_t i = 0; i < STORE_NODES_MAX; i++) {
        const struct node *node = &store->nodes[i];
        if (node->used && route_is_at(node, host, port))
            return i;
        if (!node->used && free == NODE_NONE &&
            store->conns[i].state == CONN_DOWN && !store->conns[i].wish_close)
            free = i;
    }
    if (free == NODE_NONE)
        return NODE_NONE;
    struct node *node = &store->nodes[free];
    memset(&node->address, 0, sizeof(node->address));
    memcpy(node->address.host, host.at, host.len);
    node->address.port = port;
    node->used = true;
    store->health.nodes[free].needed = false;
    node->seed = false;
    node->mapped = false;
    node->sentinel = false;
    node->nameless = false;
    node->names = NODE_NONE;
    conn_forget(&store->conns[free]);
    if (store->node_count <= free)
        store->node_count = (uint16_t)(free + 1);
    return free;
}

uint16_t
route_of(const struct store *store, const struct op *op)
{
    return op->kind == OP_AUDIT ? op->home : store->topology->route(store, op);
}

void
op_route(struct store *store, struct op *op, uint64_t now_us)
{
    uint16_t node = route_of(store, op);

    op->grace_us = 0;
    if (store->topology->submit != NULL && !op->vote) {
        store->topology->submit(store, op);
        return;
    }
    if (node != NODE_NONE) {
        op_enqueue(store, op, node, now_us, false);
        return;
    }
    store->map_wanted = true;
    op_park(store, op, now_us + ROUTE_RETRY_US);
}

void
store_route_parked(struct store *store, uint64_t now_us)
{
    struct list parked;
    struct list *at;

    list_init(&parked);
    list_splice_back(&parked, &store->parked);
    while ((at = list_pop_front(&parked)) != NULL) {
        struct op *op = container_of(at, struct op, link);
        if (op->attempts > 0)
            op_park(store, op, op->timer.due_us); /* backs off */
        else
            op_route(store, op, now_us);
    }
}

bool
node_counts(const struct store *store, uint32_t index)
{
    return store->nodes[index].used && store->nodes[index].mapped;
}

/* "MOVED 3999 127.0.0.1:6381"; an empty host is that of the one who said it. */
bool
route_redirect(struct store *store, struct text where, uint16_t from,
    uint16_t *slot, uint16_t *node)
{
    const char *end = where.at + where.len;
    const char *namespace = memchr(where.at, ' ', where.len);
    const char *second =
        namespace ? memchr(namespace + 1, ' ', (size_t)(end - namespace - 1))
                  : NULL;
    uint64_t slot_number;
    uint64_t port;

    if (second == NULL)
        return false;
    const char *colon = end;
    while (colon > second && colon[-1] != ':')
        colon--;
    if (colon == second ||
        !text_to_u64(text_make(namespace + 1, (size_t)(second - namespace - 1)),
            SLOT_COUNT - 1, &slot_number) ||
        !text_to_u64(
            text_make(colon, (size_t)(end - colon)), UINT16_MAX, &port))
        return false;
    struct text host = text_make(second + 1, (size_t)(colon - second - 2));
    if (text_equal(host, TEXT("?")))
        return false;
    if (host.len == 0)
        host = text_from(store->nodes[from].address.host);
    *slot = (uint16_t)slot_number;
    *node = route_node(store, host, (uint16_t)port);
    return *node != NODE_NONE;
}

static void
op_reroute(struct store *store, struct op *op, uint64_t now_us)
{
    if (op->asking || route_of(store, op) == op->at_node)
        return;
    op_dequeue(store, op);
    op_route(store, op, now_us);
}

void
route_requeue(struct store *store, uint64_t now_us)
{
    for (uint16_t i = 0; i < store->node_count; i++)
        lane_each(store, &store->nodes[i], now_us, op_reroute);
}

bool
route_slot(struct store *store, uint16_t slot, uint16_t node, uint64_t now_us)
{
    uint16_t old = store->slots[slot];
    uint16_t had = store->had[slot];

    if (node == old)
        return false;
    store->slots[slot] = node;
    if (node == NODE_NONE)
        return true;
    store->had[slot] = node;
    history_has_locks(store, &store->conns[node]);
    if (old != NODE_NONE)
        history_inherit(store, &store->conns[old], &store->conns[node], now_us);
    else if (had != NODE_NONE && had != node)
        history_inherit(store, NULL, &store->conns[node], now_us);
    return true;
}

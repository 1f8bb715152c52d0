/*
 * Nodes by their addresses, and slots by their nodes. map.c learns the map of
 * slots. A MOVED is used at once.
 */
#include "daemon/store/node/route.h"

#include "daemon/store/node/conn.h"
#include "daemon/store/node/history.h"

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
            store->conns[i].state == CONN_DOWN &&
            store->conns[i].wish == WISH_NONE)
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

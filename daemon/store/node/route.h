/*
 * Nodes and slots. See route.c.
 */
#ifndef HOLDFAST_STORE_NODE_ROUTE_H
#define HOLDFAST_STORE_NODE_ROUTE_H

#include "daemon/store/model/state.h"

/* The node of that address, added if need be. NODE_NONE: the address is
 * unusable, or there is no room. */
uint16_t route_node(struct store *store, struct text host, uint16_t port);

/* Whether locks are asked of the node. */
bool node_counts(const struct store *store, uint32_t index);

/* Reads "SLOT HOST:PORT" of a redirect and adds the node. An empty host is that
 * of `from`. False: it is malformed. */
bool route_redirect(struct store *store, struct text where, uint16_t from,
    uint16_t *slot, uint16_t *node);

/* Gives the slot to the node, or to NODE_NONE. The node may have to settle.
 * False: it had it. */
bool route_slot(
    struct store *store, uint16_t slot, uint16_t node, uint64_t now_us);

#endif

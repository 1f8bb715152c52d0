/*
 * The map of slots. See map.c.
 */
#ifndef HOLDFAST_STORE_TOPOLOGY_MAP_H
#define HOLDFAST_STORE_TOPOLOGY_MAP_H

#include "daemon/store/model/state.h"

/* Asks for the map where that is due. */
void route_tick(struct store *store, uint64_t now_us);

/* When route_tick() has something to do. */
uint64_t route_next_us(const struct store *store);

/* Forgets nodes that have no slots and nothing to do any more. */
void route_retire(struct store *store, uint64_t now_us);

/* Slots, or the master, have moved: what waits is routed again, and nodes
 * without slots are forgotten. */
void route_moved(struct store *store, uint64_t now_us);

/* Takes the map of slots that a node tells. */
void route_map_reply(struct store *store, struct conn *conn,
    const struct call *call, uint64_t now_us, const struct resp *reply);

#endif

/*
 * Topologies whose locks have one node each: cluster and Sentinels.
 */
#ifndef HOLDFAST_STORE_TOPOLOGY_SINGLE_H
#define HOLDFAST_STORE_TOPOLOGY_SINGLE_H

#include "daemon/store/model/state.h"

/* map.c */

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

/* master.c */

/* Counts the votes of the Sentinels, where there are new ones, or old ones
 * end. */
void sentinel_tick(struct store *store, uint64_t now_us);

/* When sentinel_tick() has something to do. */
uint64_t sentinel_next_us(const struct store *store);

/* The connection to a node is gone. Sentinels are asked again if it was the
 * master. */
void master_lost(struct store *store, struct conn *conn, uint64_t now_us);

/* Takes the master's address from a Sentinel, or nil: it knows no such
 * master. */
void sentinel_reply(struct store *store, struct conn *conn,
    const struct call *call, uint64_t now_us, const struct resp *reply);

#endif

/*
 * The master that the Sentinels name. See master.c.
 */
#ifndef HOLDFAST_STORE_TOPOLOGY_MASTER_H
#define HOLDFAST_STORE_TOPOLOGY_MASTER_H

#include "daemon/store/model/state.h"

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

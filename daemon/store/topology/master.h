/*
 * The master that the Sentinels name. See master.c.
 */
#ifndef HOLDFAST_STORE_TOPOLOGY_MASTER_H
#define HOLDFAST_STORE_TOPOLOGY_MASTER_H

#include "daemon/store/model/state.h"

/* Counts the votes of the Sentinels, where there are new ones, or old ones
 * end. */
void sentinel_tick(struct store *store, uint64_t now_us);

/* Takes the master's address from a Sentinel, or nil: it knows no such
 * master. */
void sentinel_reply(struct store *store, const struct conn *conn,
    const struct call *call, uint64_t now_us, const struct resp *reply);

#endif

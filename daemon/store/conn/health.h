/*
 * Why a node grants nothing. See health.c.
 */
#ifndef HOLDFAST_STORE_CONN_HEALTH_H
#define HOLDFAST_STORE_CONN_HEALTH_H

#include "daemon/store/model/state.h"

/* Finds out why nodes grant nothing. Tells core and io of changes, by
 * store->health, and logs them. */
void health_update(struct store *store, uint64_t now_us);

#endif

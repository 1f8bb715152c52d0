/*
 * What time does to a connection. See link_time.c.
 */
#ifndef HOLDFAST_STORE_NODE_LINK_TIME_H
#define HOLDFAST_STORE_NODE_LINK_TIME_H

#include "daemon/store/model/state.h"

/* Does what is due at the connection. */
void link_tick(struct store *store, struct link *link, uint64_t now_us);

/* When link_tick() has something to do. */
uint64_t link_next_us(const struct store *store, const struct link *link);

#endif

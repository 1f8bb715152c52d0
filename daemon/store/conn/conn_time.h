/*
 * Time passes for a connection. See conn_time.c.
 */
#ifndef HOLDFAST_STORE_CONN_CONN_TIME_H
#define HOLDFAST_STORE_CONN_CONN_TIME_H

#include "daemon/store/model/state.h"

/* Does what is due at the connection. */
void conn_tick(struct store *store, struct conn *conn, uint64_t now_us);

/* When conn_tick() has something to do. */
uint64_t conn_next_us(const struct store *store, const struct conn *conn);

#endif

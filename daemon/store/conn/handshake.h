/*
 * The handshake of a connection. See handshake.c.
 */
#ifndef HOLDFAST_STORE_CONN_HANDSHAKE_H
#define HOLDFAST_STORE_CONN_HANDSHAKE_H

#include "daemon/store/model/state.h"

/* The connection stands: sends the greeting. */
void conn_connected(struct store *store, struct conn *conn, uint64_t now_us);

/* Takes INFO of the greeting: whether the node can be used, and its history. */
void conn_info(struct store *store, struct conn *conn, const struct call *call,
    uint64_t now_us, const struct resp *reply);

/* Takes INFO of a connection that is in use. */
void conn_ids(struct store *store, struct conn *conn, const struct call *call,
    uint64_t now_us, const struct resp *reply);

/* Compares the answer to TIME with the clock of the broker. */
void conn_time(struct store *store, struct conn *conn, const struct call *call,
    uint64_t now_us, const struct resp *reply);

/* The greeting was answered: sends what must be done before any script call. */
void conn_prepare(struct store *store, struct conn *conn, uint64_t now_us);

/* The connection is ready for operations. */
void conn_ready(struct store *store, struct conn *conn, uint64_t now_us);

#endif

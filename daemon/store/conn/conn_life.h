/*
 * The begin and the end of a connection. See conn_life.c.
 */
#ifndef HOLDFAST_STORE_CONN_CONN_LIFE_H
#define HOLDFAST_STORE_CONN_CONN_LIFE_H

#include "daemon/base/log.h"
#include "daemon/store/model/state.h"

/* Wishes for a connection to the node, from io. */
void conn_connect(struct store *store, struct conn *conn, uint64_t now_us);

/* The use of a connection that carries no operations, for the log; nothing for
 * others. */
struct log_pair conn_use(const struct store *store, const struct conn *conn);

/* The connection is gone, or must go. HEALTH_FINE: that is no fault of the
 * node, or the fault is known. */
void conn_lost(struct store *store, struct conn *conn, uint64_t now_us,
    enum health_reason reason, const char *why);

/* Closes the connection from this side, for that reason. */
void conn_give_up(struct store *store, struct conn *conn, uint64_t now_us,
    enum health_reason reason, const char *why);

/* Gives the connection up, for no fault of the node, or for one that is
 * known. */
void conn_abandon(
    struct store *store, struct conn *conn, uint64_t now_us, const char *why);

/* Gives up a connection to a node that cannot be used, for that reason. It is
 * logged once in a while. */
void conn_unfit(struct store *store, struct conn *conn, uint64_t now_us,
    enum health_reason reason, struct text said);

/* Ends the subscription at a node that has left the cluster, where there is a
 * better one. */
void route_move_subscriber(struct store *store, uint64_t now_us);

#endif

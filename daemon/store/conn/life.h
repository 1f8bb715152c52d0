/*
 * The life of a connection to a node.
 */
#ifndef HOLDFAST_STORE_CONN_LIFE_H
#define HOLDFAST_STORE_CONN_LIFE_H

#include "daemon/base/log.h"
#include "daemon/store/model/state.h"

/* conn_life.c */

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

/* Ends the subscription at a server that is none of the node's now, or at a
 * node that has left the cluster, where there is a better one. */
void route_move_subscriber(struct store *store, uint64_t now_us);

/* handshake.c */

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

/* conn_time.c */

/* Does what is due at the connection. */
void conn_tick(struct store *store, struct conn *conn, uint64_t now_us);

/* When conn_tick() has something to do. */
uint64_t conn_next_us(const struct store *store, const struct conn *conn);

/* reply.c */

/* Takes a reply, or a message, of the connection. */
void conn_reply(struct store *store, struct conn *conn, uint64_t now_us,
    const struct resp *reply);

/* mark.c */

/* Takes the answer to a read or a write of the marker. */
void history_marked(struct store *store, struct conn *conn, bool wrote,
    const struct resp *reply, uint64_t now_us);

/* Settles with the node where its time is over; asks for its IDs, and for the
 * marker, where that is due. */
void history_tick(struct store *store, struct conn *conn, uint64_t now_us);

/* When history_tick() has something to do. */
uint64_t history_next_us(const struct store *store, const struct conn *conn);

/* health.c */

/* Finds out why nodes grant nothing. Tells core and io of changes, by
 * store->health, and logs them. */
void health_update(struct store *store, uint64_t now_us);

#endif

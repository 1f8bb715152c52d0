/*
 * Nodes, slots, and the master that Sentinels name.
 */
#ifndef HOLDFAST_STORE_NODE_ROUTE_H
#define HOLDFAST_STORE_NODE_ROUTE_H

#include "daemon/store/model/state.h"

/* route.c */

/* The node of that address, added if need be. NODE_NONE: the address is
 * unusable, or there is no room. */
uint16_t route_node(struct store *store, struct text host, uint16_t port);

/* Whether locks are asked of the node. */
bool node_counts(const struct store *store, uint32_t index);

/* Reads "SLOT HOST:PORT" of a redirect and adds the node. An empty host is that
 * of `from`. False: it is malformed. */
bool route_redirect(struct store *store, struct text where, uint16_t from,
    uint16_t *slot, uint16_t *node);

/* Gives the slot to the node, or to NODE_NONE. The node may have to settle.
 * False: it had it. */
bool route_slot(
    struct store *store, uint16_t slot, uint16_t node, uint64_t now_us);

/* sentinel.c */

/* Asks the Sentinels for the master at once. Earlier answers do not count. */
void sentinel_resolve(struct store *store, uint64_t now_us);

/* Begins the questions to a Sentinel after AUTH. Their answer makes the
 * connection ready. */
void sentinel_greet(struct store *store, struct conn *conn, uint64_t now_us);

/* Takes the Sentinel's run ID. Two addresses of one Sentinel are logged, and
 * have one vote. */
void sentinel_info(
    struct store *store, struct conn *conn, const struct resp *reply);

/* When the Sentinel must be asked again. */
uint64_t sentinel_ask_due_us(
    const struct store *store, const struct conn *conn);

/* Asks the Sentinel, if it is time. The connection must be ready and wait for
 * no answer. */
void sentinel_conn_tick(
    struct store *store, struct conn *conn, uint64_t now_us);

/* A Sentinel has told of another master: all are asked at once. */
void sentinel_hint(struct store *store, uint64_t now_us);

/* Whether a majority of the Sentinels names the node. *due_us: when to count
 * again. */
bool master_elected(const struct store *store, uint16_t candidate,
    uint64_t now_us, uint64_t *due_us);

/* Whether a Sentinel names the node as the master. */
bool sentinel_names(const struct store *store, uint16_t node);

#endif

/*
 * Sentinels: which node is the master. See sentinel.c.
 */
#ifndef HOLDFAST_STORE_NODE_SENTINEL_H
#define HOLDFAST_STORE_NODE_SENTINEL_H

#include "daemon/store/model/state.h"

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

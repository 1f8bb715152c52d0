/*
 * Settings and leases of other brokers. See peers.c.
 */
#ifndef HOLDFAST_STORE_NODE_PEERS_H
#define HOLDFAST_STORE_NODE_PEERS_H

#include "daemon/store/model/state.h"

/* Exchanges settings and leases with other brokers by the node, if it is time
 * for that. */
void peers_tick(struct store *store, struct conn *conn, uint64_t now_us);

/* When peers_tick() has something to do; WHEEL_NEVER: not. */
uint64_t peers_next_us(const struct store *store, const struct conn *conn);

/* Takes the answer to a question of peers_tick(). */
void peers_reply(struct store *store, struct conn *conn,
    const struct call *call, const struct resp *reply, uint64_t now_us);

#endif

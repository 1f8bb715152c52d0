/*
 * The marker of a node. See mark.c.
 */
#ifndef HOLDFAST_STORE_CONN_MARK_H
#define HOLDFAST_STORE_CONN_MARK_H

#include "daemon/store/model/state.h"

/* Takes the answer to a read or a write of the marker. */
void history_marked(struct store *store, struct conn *conn, bool wrote,
    const struct resp *reply, uint64_t now_us);

/* Settles with the node where its time is over; asks for its IDs, and for the
 * marker, where that is due. */
void history_tick(struct store *store, struct conn *conn, uint64_t now_us);

/* When history_tick() has something to do. */
uint64_t history_next_us(const struct store *store, const struct conn *conn);

#endif

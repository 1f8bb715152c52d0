/*
 * An audit's steps at a node. See audit.c.
 */
#ifndef HOLDFAST_STORE_QUEUE_AUDIT_H
#define HOLDFAST_STORE_QUEUE_AUDIT_H

#include "daemon/store/model/state.h"

/* Sends a step of an audit to its node. Without a node it ends as OP_UNSENT, or
 * OP_GONE after the last node. */
void audit_take(struct store *store, struct op *op, uint64_t now_us);

/* Writes the mark of an audit's call to the connection. False: there is no room
 * for it now. */
bool audit_mark(
    struct store *store, struct conn *conn, const struct call *call);

/* Takes the answer to audit_mark(). OP_BUSY: the mark is another broker's. */
void audit_marked(
    struct store *store, struct call *call, const struct resp *reply);

#endif

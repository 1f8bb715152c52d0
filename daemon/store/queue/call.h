/*
 * Batches of operations. See call.c.
 */
#ifndef HOLDFAST_STORE_QUEUE_CALL_H
#define HOLDFAST_STORE_QUEUE_CALL_H

#include "daemon/store/model/state.h"

/* When the first operation of the call must be given back. WHEEL_NEVER: all
 * have been. */
uint64_t call_due_us(const struct store *store, const struct call *call);

/* Sends the operations that wait at the node, as far as it may grant and the
 * connection has room. */
void call_flush_node(struct store *store, uint16_t index, uint64_t now_us);

/* Whether an audit marks its node with the call, which is no script then. */
bool call_is_mark(const struct call *call);

#endif

/*
 * Operations that wait. See op_queue.c.
 */
#ifndef HOLDFAST_STORE_QUEUE_OP_QUEUE_H
#define HOLDFAST_STORE_QUEUE_OP_QUEUE_H

#include "daemon/store/model/state.h"

/* Begins the store's part of an operation that is nowhere. */
void op_begin(struct op *op);

/* Until when an operation stays at the node. A node that answers, or is tried
 * once more, has at least the command time-out. */
uint64_t queue_due_us(const struct store *store, const struct op *op,
    uint16_t index, uint64_t now_us);

/* Until when an operation waits for a route. A master that was just lost may be
 * named again at once. */
uint64_t route_due_us(const struct store *store, const struct op *op);

/* Puts an operation into its lane at the node: in front, where `first`. */
void op_enqueue(struct store *store, struct op *op, uint16_t index,
    uint64_t now_us, bool first);

/* Takes an operation out of its lane. */
void op_dequeue(struct store *store, struct op *op);

/* Parks an operation until `until_us`, or until its time is over. */
void op_park(struct store *store, struct op *op, uint64_t until_us);

/* Ends an operation with that status: it goes back to the core, or to the
 * topology that asked. */
void op_done(struct store *store, struct op *op, enum op_status status);

/* The node that serves the operation; NODE_NONE: none is known. */
uint16_t route_of(const struct store *store, const struct op *op);

/* Puts an operation into the lane of its node, or parks it where there is
 * none. */
void op_route(struct store *store, struct op *op, uint64_t now_us);

/* Routes all parked operations again, but for those that back off. */
void store_route_parked(struct store *store, uint64_t now_us);

/* Moves waiting operations to the nodes that have their slots now. */
void route_requeue(struct store *store, uint64_t now_us);

#endif

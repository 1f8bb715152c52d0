/*
 * Operations that wait at a node. See lane.c.
 */
#ifndef HOLDFAST_STORE_QUEUE_LANE_H
#define HOLDFAST_STORE_QUEUE_LANE_H

#include "daemon/store/model/state.h"

/* Queues the operation in its lane of the node. `first`: before others of its
 * session. */
void lane_add(
    struct store *store, struct node *node, struct op *op, bool first);

/* Takes the operation out of its lane. The next one of its session takes its
 * place. */
void lane_remove(struct store *store, struct op *op);

/* For each operation that waits at the node. It may be taken away. */
void lane_each(struct store *store, struct node *node, uint64_t now_us,
    void (*act)(struct store *store, struct op *op, uint64_t now_us));

#endif

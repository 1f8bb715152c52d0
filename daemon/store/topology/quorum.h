/*
 * The core's operations before a quorum. See quorum.c.
 */
#ifndef HOLDFAST_STORE_TOPOLOGY_QUORUM_H
#define HOLDFAST_STORE_TOPOLOGY_QUORUM_H

#include "daemon/store/model/state.h"

/* Takes memory for the quorum. False: there is none, and quorum_destroy() frees
 * the rest. */
bool quorum_create(struct store *store);

/* Frees the memory of the quorum, if there is one. */
void quorum_destroy(struct store *store);

/* An operation is done. True: it was a vote, of which its round hears. Else its
 * round goes on without it, and a bid that is over is freed. */
bool quorum_results(struct store *store, struct op *op, enum op_status status);

/* Hears that a key has changed, so that its first waiter tries again soon; or
 * that another broker waits for it, or has taken over a hold. */
void quorum_heard(struct store *store, uint16_t node, struct text told);

/* Takes an operation of the core, which comes back by op_done(). */
void quorum_take(struct store *store, struct op *op);

/* Frees rounds and bids that are over, and wakes the queues that are due. */
void quorum_tick(struct store *store, uint64_t now_us);

/* When a queue must be woken; WHEEL_NEVER: not. */
uint64_t quorum_next_us(const struct store *store);

/* Whether so many nodes are a majority. */
bool quorum_suffices(const struct store *store, uint32_t nodes);

#endif

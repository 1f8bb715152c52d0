/*
 * Votes of a quorum, and what follows from them. See round.c.
 */
#ifndef HOLDFAST_STORE_TOPOLOGY_ROUND_H
#define HOLDFAST_STORE_TOPOLOGY_ROUND_H

#include "daemon/store/model/state.h"

struct round;

/* Begins a vote on a copy of `op`. `asked` is the core's operation that it
 * answers; NULL: none. Returns NULL without room. */
struct round *round_begin(
    struct store *store, const struct op *op, struct op *asked);

/* Frees rounds that are over, whose results were readable until now. */
void round_sweep(struct store *store);

/* In how many ms enough leases have ended for a majority to grant the lock.
 * UINT32_MAX: unknown. */
uint32_t round_free_ms(const struct store *store, const struct round *round);

/* The nodes, as bits, at which another ticket is in the way. */
uint32_t round_busy(const struct store *store, const struct round *round);

/* A vote's operation is done with that status. The round may be decided by it,
 * or over. */
void quorum_voted(struct store *store, struct op *op, enum op_status status);

/* Asks the nodes whose bits are set. Nodes that cannot be asked count as
 * OP_UNSENT at once. */
void round_ask(struct store *store, struct round *round, uint32_t nodes);

#endif

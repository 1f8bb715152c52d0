/*
 * Votes of a quorum, and what follows from them. See round.c.
 */
#ifndef HOLDFAST_STORE_TOPOLOGY_ROUND_H
#define HOLDFAST_STORE_TOPOLOGY_ROUND_H

#include "daemon/store/model/quorum.h"

/* A vote's operation is done with that status. The round may be decided by it,
 * or over. */
void quorum_voted(struct store *store, struct op *op, enum op_status status);

/* Asks the nodes whose bits are set. Nodes that cannot be asked count as
 * OP_UNSENT at once. */
void round_ask(struct store *store, struct round *round, uint32_t nodes);

#endif

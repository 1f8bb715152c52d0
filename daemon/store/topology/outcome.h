/*
 * Outcomes of a bid. See outcome.c.
 */
#ifndef HOLDFAST_STORE_TOPOLOGY_OUTCOME_H
#define HOLDFAST_STORE_TOPOLOGY_OUTCOME_H

#include "daemon/store/model/quorum.h"

#define PAUSE_MAX_MS 1000
#define STIR_US      2000 /* before a queue that has heard of a change tries */

/* Gives the core's operation back with that status. Its round may go on without
 * it. */
void quorum_answer(struct store *store, struct op *op, enum op_status status);

/* Answers that the bid waits, and when to ask again. */
void bid_waits(struct store *store, struct bid *bid, struct op *op,
    const struct op_result *about);

/* Puts the bid into the queue of its lock; NULL: a new one. False: the bid may
 * not wait, and the operation is answered. */
bool bid_queues(
    struct store *store, struct bid *bid, struct queue *queue, struct op *op);

/* The bid has a majority, with that fence. It leaves its queue. */
void bid_wins(struct store *store, struct bid *bid, uint64_t fence);

/* No majority has granted the bid. Answers the core's question, and says when
 * the next try may begin. */
void bid_loses(struct store *store, struct bid *bid, struct round *round);

/* Nodes, as bits, have answered the bid's release. `had`: one had the hold, or
 * may have had it. The bid may be gone afterwards. */
void bid_left(struct store *store, struct bid *bid, uint32_t node, bool had);

/* Answers the release of a bid if a majority has carried it out. The bid is
 * gone then. */
void leave_answer(struct store *store, struct bid *bid);

#endif

/*
 * What the core asks of a quorum. See quorum.c.
 */
#ifndef HOLDFAST_STORE_QUORUM_H
#define HOLDFAST_STORE_QUORUM_H

#include "daemon/store/state.h"

struct bid;
struct round;

/* quorum.c */
void bid_wins(struct store *store, struct bid *bid, uint64_t fence);
void bid_loses(struct store *store, struct bid *bid, struct round *round);
void bid_left(struct store *store, struct bid *bid, uint32_t node, bool had);
void quorum_answer(struct store *store, struct op *op, enum op_status status);

/* round.c */
struct round *round_begin(
    struct store *store, const struct op *op, struct op *asked);
void round_ask(struct store *store, struct round *round, uint32_t nodes);
uint32_t round_free_ms(const struct store *store, const struct round *round);
uint32_t round_busy(const struct store *store, const struct round *round);
void round_sweep(struct store *store);

#endif

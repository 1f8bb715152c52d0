/*
 * Rounds and their votes. See vote.c.
 */
#ifndef HOLDFAST_STORE_TOPOLOGY_VOTE_H
#define HOLDFAST_STORE_TOPOLOGY_VOTE_H

#include "daemon/store/model/quorum.h"

/* The bit of the vote's node. */
uint32_t bit_of(const struct vote *vote);

/* Copies a word, cut to its longest, and lets it refer to the copy. */
void keep_word(char to[PROTO_NOTE_MAX], struct text *word);

/* The round is freed by the next round_sweep() if nothing of it is left. */
void round_end(struct store *store, struct round *round);

/* Sends a vote's question; `waits`: also where the node must come back for it.
 * False: the node is not asked. */
bool vote_send(struct store *store, struct vote *vote, enum vote_state state,
    uint64_t deadline_us, bool waits);

/* The command time-out from now on. */
uint64_t soon_us(const struct store *store);

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

#endif

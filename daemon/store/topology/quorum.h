/*
 * Quorum: queues, attempts, votes, decisions.
 */
#ifndef HOLDFAST_STORE_TOPOLOGY_QUORUM_H
#define HOLDFAST_STORE_TOPOLOGY_QUORUM_H

#include "daemon/store/model/quorum.h"
#include "daemon/store/model/state.h"

/* quorum.c */

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

/* bid.c */

#define PAUSE_MIN_MS 100

#define SPLIT_MS 8 /* after a try that some nodes had granted */

/* The turn of locks with that hash. */
struct turn *turn_of(struct quorum *quorum, uint64_t hash);

/* When a bid of this broker may try: not in the turn of others. */
uint64_t turn_due_us(const struct turn *turn);

/* Another broker has the lock: the turn passes to it. */
void turn_passes(struct store *store, const struct bid *bid);

/* The bid tries: its turn begins, or goes on. */
void turn_begins(struct store *store, struct bid *bid);

/* The bid's hold counts no more in the turn of this broker. */
void turn_ends(struct store *store, struct bid *bid);

/* The queue of that lock; NULL: nobody waits here. */
struct queue *queue_find(const struct quorum *quorum, struct text name);

/* The queue of that lock, a new one if need be; NULL: there is no memory. */
struct queue *queue_make(struct quorum *quorum, struct text name);

/* The first bid of the queue, which must have one. */
struct bid *queue_first(const struct queue *queue);

/* Lets the first bid try: at once, or in the turn of this broker. */
void queue_stir(struct store *store, struct queue *queue);

/* Takes a bid out of its queue; `stir`: the next one may try. */
void queue_leave(struct store *store, struct bid *bid, bool stir);

/* Stirs the queues that have heard of a change. */
void queues_stir(struct store *store);

/* A broker has told that it waits for that key. */
void quorum_wanted(struct store *store, struct text key);

/* Another broker has taken over a hold, for a later connection of its session:
 * the hold counts no more in this broker's turn. `told` is the request ID of
 * the hold's try. */
void quorum_moved(struct store *store, const char told[8]);

/* The bid of the core's request; NULL: there is none. */
struct bid *bid_find(const struct quorum *quorum, uint64_t request);

/* A new bid for the operation; NULL: there is no memory. */
struct bid *bid_make(struct store *store, const struct op *op);

/* The core has spoken of the bid: it is forgotten later. */
void bid_used(struct store *store, struct bid *bid);

/* Frees the bid, and takes it out of its queue. No release may wait for it. */
void bid_free(struct store *store, struct bid *bid);

/* The bid whose last try has that request ID; NULL: there is none. */
struct bid *bid_of_try(const struct store *store, struct handle request);

/* The core's own request, of the try that a message names; 0: there is none. */
uint64_t quorum_request(const struct store *store, uint64_t request);

/* Forgets bids that the core has not spoken of for longer than any lease. */
void bids_forget(struct store *store);

/* How many wait here for that lock. */
uint32_t queue_count(const struct store *store, struct text name);

/* Writes the tickets of those who wait here, in order. `out` has room for
 * all. */
uint32_t queue_show(
    const struct store *store, struct text name, struct op_ticket *out);

/* Whether that answer ends the bid, so that the core says no more of it. */
bool bid_is_over(const struct bid *bid, const struct op *op);

/* Puts a bid into the queue. One that comes back has its old place. */
void queue_insert(struct queue *queue, struct bid *bid);

/* The place in the queue, from 1 on. */
uint32_t bid_place(const struct bid *bid);

/* outcome.c */

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

/* vote.c */

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

/* A node that still has the vote's hold after that has it no more. */
uint64_t lease_over_us(const struct store *store, const struct vote *vote);

/* Takes back what the node has granted, after the round is decided. Once the
 * hold is detached, only an ordinary ticket is taken back. */
void vote_undo(struct store *store, struct vote *vote);

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

/* In how many ms so many nodes are settled that a majority speaks. The nodes
 * that have answered must suffice for it. */
uint32_t round_settles_ms(const struct store *store, const struct round *round);

/* The nodes, as bits, at which another ticket is in the way. */
uint32_t round_busy(const struct store *store, const struct round *round);

/* round.c */

/* A vote's operation is done with that status. The round may be decided by it,
 * or over. */
void quorum_voted(struct store *store, struct op *op, enum op_status status);

/* Asks the nodes whose bits are set. Nodes that cannot be asked count as
 * OP_UNSENT at once. */
void round_ask(struct store *store, struct round *round, uint32_t nodes);

#endif

/*
 * Bids for locks of a quorum. See bid.c.
 */
#ifndef HOLDFAST_STORE_TOPOLOGY_BID_H
#define HOLDFAST_STORE_TOPOLOGY_BID_H

#include "daemon/store/model/quorum.h"

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

#endif

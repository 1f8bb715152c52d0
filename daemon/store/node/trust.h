/*
 * History and clock of a node: whether it may grant. See trust.c.
 */
#ifndef HOLDFAST_STORE_NODE_TRUST_H
#define HOLDFAST_STORE_NODE_TRUST_H

#include "daemon/store/model/state.h"

/* The marker is not true any more: it is read again, and a write that is under
 * way does not count. */
void trust_unmark(struct link *link);

/* The node refuses what grants. The marker is written soon, to see when it
 * refuses no more. */
void trust_probe(struct link *link, uint64_t now_us);

/* Locks may be at the node from now on. Core and io hear that an unsettled node
 * counts. */
void trust_has_locks(struct store *store, const struct link *link);

/* The broker is settled with the node; `why` is for the log. */
void trust_settle(struct store *store, struct link *link, const char *why);

/* Takes the node's run ID, which may be empty, and both replication IDs.
 * Another history must settle anew. */
void trust_learn(struct store *store, struct link *link, struct text run_id,
    struct text id, struct text second, uint64_t now_us);

/* The node got a slot of `from`. It must settle if `from` may have lost locks.
 * NULL: the slot was nobody's in between. */
void trust_inherit(
    struct store *store, struct link *from, struct link *link, uint64_t now_us);

/* Whether the node must wait for what an earlier owner of its slots says of its
 * history. */
bool trust_awaits(const struct link *link);

/* `from` cannot say now whether it has lost locks. Nodes that have its slots
 * are doubted. */
void trust_mute(struct store *store, struct link *from, uint64_t now_us);

/* `from` has told its history in `info`, an answer to `call`. Nodes with its
 * slots are trusted, or doubted. `settled`: it was settled before. */
void trust_vouch(struct store *store, struct link *from,
    const struct call *call, struct text info, bool settled, uint64_t now_us);

/* A script has seen that replication ID. The node is asked for its history if
 * the ID is new. */
void trust_see(struct store *store, struct link *link, const char *id);

/* In how many ms the node's history is old enough to grant; 0: it is. */
uint32_t trust_settles_ms(
    const struct store *store, const struct link *link, uint64_t now_us);

/* The least age, by the node's clock, of what came at `since_us`. It must be
 * before the clock was last set forward. */
uint64_t trust_age_us(
    const struct link *link, uint64_t since_us, uint64_t time_us);

/* Takes the node's time in an answer to what was sent at `sent_us`. A step of
 * the clock is logged. */
void trust_clock(struct store *store, struct link *link, uint64_t time_us,
    uint64_t sent_us, uint64_t now_us);

/* In how many ms the node's clock has been steady for long enough; 0: it
 * has. */
uint32_t trust_steady_ms(
    const struct store *store, const struct link *link, uint64_t now_us);

/* How far, in microseconds, the node's clock may be from the expected time when
 * a call arrives. More is a step of the clock, or a late call. UINT32_MAX: no
 * limit. */
uint32_t trust_within_us(const struct store *store, const struct link *link);

/* PREFIX:WORD, in a cluster with a tag of the node's next slot from *slot on,
 * which becomes that. Its length; 0: the node has no slots. */
size_t trust_key(const struct store *store, const struct link *link,
    const char *word, uint16_t *slot, char out[KEY_BYTES]);

/* redis.settle, or the longest lease that a broker has used here of late. */
uint64_t peers_settle_us(const struct store *store, uint64_t now_us);

/* Whether the longest lease that a broker has told is still to be waited
 * for. */
bool longest_counts(const struct store *store, uint64_t now_us);

#endif

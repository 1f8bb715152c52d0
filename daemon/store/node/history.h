/*
 * History and clock of a node, and what other brokers tell.
 */
#ifndef HOLDFAST_STORE_NODE_HISTORY_H
#define HOLDFAST_STORE_NODE_HISTORY_H

#include "daemon/store/model/state.h"

/* history.c */

/* The marker is not true any more: it is read again, and a write that is under
 * way does not count. */
void history_unmark(struct conn *conn);

/* The node refuses what grants. The marker is written soon, to see when it
 * refuses no more. */
void history_probe(struct conn *conn, uint64_t now_us);

/* Locks may be at the node from now on. Core and io hear that an unsettled node
 * counts. */
void history_has_locks(struct store *store, const struct conn *conn);

/* The broker is settled with the node; `why` is for the log. */
void history_settle(struct store *store, struct conn *conn, const char *why);

/* Takes the node's run ID, which may be empty, and both replication IDs.
 * Another history must settle anew. */
void history_learn(struct store *store, struct conn *conn, struct text run_id,
    struct text id, struct text second, uint64_t now_us);

/* The node got a slot of `from`. It must settle if `from` may have lost locks.
 * NULL: the slot was nobody's in between. */
void history_inherit(
    struct store *store, struct conn *from, struct conn *conn, uint64_t now_us);

/* Whether the node must wait for what an earlier owner of its slots says of its
 * history. */
bool history_awaits(const struct conn *conn);

/* `from` cannot say now whether it has lost locks. Nodes that have its slots
 * are doubted. */
void history_mute(struct store *store, struct conn *from, uint64_t now_us);

/* `from` has told its history in `info`, an answer to `call`. Nodes with its
 * slots are trusted, or doubted. `settled`: it was settled before. */
void history_vouch(struct store *store, struct conn *from,
    const struct call *call, struct text info, bool settled, uint64_t now_us);

/* A script has seen that replication ID. The node is asked for its history if
 * the ID is new. */
void history_see(struct store *store, struct conn *conn, const char *id);

/* In how many ms the node's history is old enough to grant; 0: it is. */
uint32_t history_settles_ms(
    const struct store *store, const struct conn *conn, uint64_t now_us);

/* The least age, by the node's clock, of what came at `since_us`. It must be
 * before the clock was last set forward. */
uint64_t history_age_us(
    const struct conn *conn, uint64_t since_us, uint64_t time_us);

/* Takes the node's time in an answer to what was sent at `sent_us`. A step of
 * the clock is logged. */
void history_clock(struct store *store, struct conn *conn, uint64_t time_us,
    uint64_t sent_us, uint64_t now_us);

/* In how many ms the node's clock has been steady for long enough; 0: it
 * has. */
uint32_t history_steady_ms(
    const struct store *store, const struct conn *conn, uint64_t now_us);

/* How far, in microseconds, the node's clock may be from the expected time when
 * a call arrives. More is a step of the clock, or a late call. UINT32_MAX: no
 * limit. */
uint32_t history_within_us(const struct store *store, const struct conn *conn);

/* PREFIX:WORD, in a cluster with a tag of the node's next slot from *slot on,
 * which becomes that. Its length; 0: the node has no slots. */
size_t history_key(const struct store *store, const struct conn *conn,
    const char *word, uint16_t *slot, char out[KEY_BYTES]);

/* redis.settle, or the longest lease that a broker has used here of late. */
uint64_t peers_settle_us(const struct store *store, uint64_t now_us);

/* Whether the longest lease that a broker has told is still to be waited
 * for. */
bool longest_counts(const struct store *store, uint64_t now_us);

/* fence_clock.c */

/* The fence clock at `now_us`, in microseconds since 1970. */
uint64_t fence_clock_us(const struct store *store, uint64_t now_us);

/* Takes a time that a clock has told. True: the fence clock was behind it. A
 * time too far ahead is ignored. */
bool fence_clock_hear(struct store *store, uint64_t clock_us, uint64_t now_us);

/* The floor for fences at all nodes of a quorum, in microseconds. 0: a node
 * would not believe it. */
uint64_t fence_clock_floor(const struct store *store);

/* peers.c */

/* Exchanges settings and leases with other brokers by the node, if it is time
 * for that. */
void peers_tick(struct store *store, struct conn *conn, uint64_t now_us);

/* When peers_tick() has something to do; WHEEL_NEVER: not. */
uint64_t peers_next_us(const struct store *store, const struct conn *conn);

/* Takes the answer to a question of peers_tick(). */
void peers_reply(struct store *store, struct conn *conn,
    const struct call *call, const struct resp *reply, uint64_t now_us);

#endif

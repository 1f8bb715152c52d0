/*
 * Strict: which answers wait for replicas, and how far these are.
 */
#ifndef HOLDFAST_STORE_STRICT_STRICT_H
#define HOLDFAST_STORE_STRICT_STRICT_H

#include "daemon/store/model/state.h"

/* strict.c */

enum op_grants {
    KIND_READS,
    KIND_FREES,
    KIND_PASSES,
    KIND_GRANTS,
};

/* The grants that the reply to such an operation may have, by op.def. */
enum op_grants kind_grants(enum op_kind kind);

/* The reply that a held call keeps. */
struct text call_said(const struct call *call);

/* Whether replicas can confirm now what the node answers. */
bool confirm_possible(const struct store *store, const struct conn *conn);

/* Whether the answer to that call must be confirmed by replicas before it is
 * told. */
bool confirm_wanted(const struct store *store, const struct call *call,
    const struct resp *reply);

/* Keeps the reply of a call. False: there is no memory for it. */
bool confirm_hold(struct call *call, const struct resp *reply);

/* Takes the answer to replicas_ask(): whether all replicas have what was
 * written before it, under that replication ID. */
void confirm_verdict(struct store *store, struct conn *conn, bool all_have_it,
    struct text id, uint64_t now_us);

/* replicas.c */

/* Frees the list of replicas. */
void replicas_forget(struct replicas *replicas);

/* An ack connection is connected. It counts no replica before it answers. */
void replicas_begin(struct store *store, struct conn *ack, uint64_t now_us);

/* Asks the ack connection for the replicas and their progress. */
void replicas_ask(struct store *store, struct conn *ack, uint64_t now_us);

/* When an idle ack connection must be asked again. */
uint64_t replicas_due_us(const struct store *store, const struct conn *ack);

/* Takes an answer to replicas_begin() or replicas_ask(). */
void replicas_reply(struct store *store, struct conn *ack,
    const struct call *call, uint64_t now_us, const struct resp *reply);

#endif

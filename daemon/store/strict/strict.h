/*
 * Answers that need the confirmation of replicas. See strict.c.
 */
#ifndef HOLDFAST_STORE_STRICT_STRICT_H
#define HOLDFAST_STORE_STRICT_STRICT_H

#include "daemon/store/model/state.h"

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

#endif

/*
 * How far the replicas of a node are. See replicas.c.
 */
#ifndef HOLDFAST_STORE_STRICT_REPLICAS_H
#define HOLDFAST_STORE_STRICT_REPLICAS_H

#include "daemon/store/model/state.h"

/* Frees the list of replicas. */
void replicas_forget(struct replicas *replicas);

/* A witness is connected. What was known of replicas counts no more until it
 * answers. */
void replicas_begin(struct store *store, struct link *witness, uint64_t now_us);

/* Asks the witness for the replicas and their progress. */
void replicas_ask(struct store *store, struct link *witness, uint64_t now_us);

/* When an idle witness must be asked again. */
uint64_t replicas_due_us(const struct store *store, const struct link *witness);

/* Takes an answer to replicas_begin() or replicas_ask(). */
void replicas_reply(struct store *store, struct link *witness,
    const struct call *call, uint64_t now_us, const struct resp *reply);

#endif

/*
 * How far the replicas of a node are. See replicas.c.
 */
#ifndef HOLDFAST_STORE_STRICT_REPLICAS_H
#define HOLDFAST_STORE_STRICT_REPLICAS_H

#include "daemon/store/model/state.h"

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

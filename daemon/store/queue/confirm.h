/*
 * Answers held back until replicas have them. See confirm.c.
 */
#ifndef HOLDFAST_STORE_QUEUE_CONFIRM_H
#define HOLDFAST_STORE_QUEUE_CONFIRM_H

#include "daemon/store/model/state.h"

/* The connection is gone. Calls that it had answered are lost; after an ack
 * connection, another one is asked. */
void confirm_drop(struct store *store, struct conn *conn);

/* Asks the ack connection what replicas have. The answer covers all calls that
 * are held now. */
void confirm_ask(struct store *store, struct conn *conn, uint64_t now_us);

/* Gives back held calls that are due, and asks replicas. The connection must be
 * a node's, and ready. */
void confirm_tick(struct store *store, struct conn *conn, uint64_t now_us);

/* When confirm_tick() has something to do; WHEEL_NEVER: not. */
uint64_t confirm_next_us(const struct store *store, const struct conn *conn);

/* Ends the confirmed call that was taken last, and takes the next one's
 * results. False: there is none. */
bool confirm_take(struct store *store);

/* Frees the held replies and what is known of replicas. To be called when the
 * store ends. */
void confirm_fini(struct store *store);

#endif

/*
 * PINGs, which move deadlines on, and deadlines that pass.
 */
#ifndef HOLDFAST_CLIENT_KEEPALIVE_H
#define HOLDFAST_CLIENT_KEEPALIVE_H

#include "proto/client/message.h"
#include "proto/client/pending.h"

/* The final answer to a PENDING_KEEPALIVE or PENDING_SURVEY; `message` is NULL
 * for an ERR. */
void holdfast_keepalive_confirmed(struct holdfast *h,
    const struct holdfast_pending *pending,
    const struct holdfast_message *message);

/* An ITEM of a PENDING_SURVEY. pending->ttl_ms keeps the least ttl_ms. */
void holdfast_keepalive_surveyed(struct holdfast *h,
    struct holdfast_pending *pending, const struct holdfast_message *message);

/* Reports the deadlines and sends the PING that are due. */
void holdfast_keepalive_tick(struct holdfast *h, uint64_t now_ms);

/* When holdfast_keepalive_tick() is due; UINT64_MAX: never. */
uint64_t holdfast_keepalive_due_ms(const struct holdfast *h);

#endif

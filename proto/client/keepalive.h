/*
 * Questions to the broker that keep holds believed.
 */
#ifndef HOLDFAST_CLIENT_KEEPALIVE_H
#define HOLDFAST_CLIENT_KEEPALIVE_H

#include "proto/client/message.h"
#include "proto/client/pending.h"

/*
 * The final answer to a PENDING_KEEPALIVE or PENDING_SURVEY; `message` is NULL
 * where it was an ERR.
 */
void holdfast_keepalive_confirmed(struct holdfast *h,
    const struct holdfast_pending *pending,
    const struct holdfast_message *message);

/* An ITEM of the PENDING_SURVEY `pending`, which counts its least ttl_ms. */
void holdfast_keepalive_surveyed(struct holdfast *h,
    struct holdfast_pending *pending, const struct holdfast_message *message);

/* Tells deadlines and asks the broker, as far as due. */
void holdfast_keepalive_tick(struct holdfast *h, uint64_t now_ms);

/* When holdfast_keepalive_tick() has something to do; UINT64_MAX: nothing. */
uint64_t holdfast_keepalive_due_ms(const struct holdfast *h);

#endif

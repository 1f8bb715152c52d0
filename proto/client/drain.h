/*
 * A broker that drains: when to leave it.
 */
#ifndef HOLDFAST_CLIENT_DRAIN_H
#define HOLDFAST_CLIENT_DRAIN_H

#include "proto/client/message.h"
#include "proto/client/pending.h"

/* A DRAIN: a kept session moves at a random time within its grace_ms=. */
void holdfast_drain_told(
    struct holdfast *h, const struct holdfast_message *message);

/* A request waits for another broker. Nothing happens unless this one drains.
 */
void holdfast_drain_hasten(struct holdfast *h);

/*
 * The request was answered with ERR DRAINING. True: it is parked for the next
 * broker, and the user is not told.
 */
bool holdfast_drain_refused(
    struct holdfast *h, struct holdfast_pending *pending);

#endif

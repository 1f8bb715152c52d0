/*
 * When to leave a draining broker.
 */
#ifndef HOLDFAST_CLIENT_DRAIN_H
#define HOLDFAST_CLIENT_DRAIN_H

#include "proto/client/message.h"
#include "proto/client/pending.h"

/* A DRAIN. A kept session moves at a random time within its grace_ms=. */
void holdfast_drain_told(
    struct holdfast *h, const struct holdfast_message *message);

/* A request is parked. The session moves sooner if the broker drains. */
void holdfast_drain_hasten(struct holdfast *h);

/* The request got ERR DRAINING. True: it is parked for the next broker, and the
 * program does not see the error. */
bool holdfast_drain_refused(
    struct holdfast *h, struct holdfast_pending *pending);

#endif

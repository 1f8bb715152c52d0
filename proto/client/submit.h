/*
 * The library's own requests. A function that returns false has sent nothing:
 * the output has no room now, or the connection is closed.
 */
#ifndef HOLDFAST_CLIENT_SUBMIT_H
#define HOLDFAST_CLIENT_SUBMIT_H

#include "proto/client/hold.h"
#include "proto/client/pending.h"
#include "proto/client/watch.h"

/* PING or HELD, by `kind`: PENDING_KEEPALIVE or PENDING_SURVEY. */
bool holdfast_submit_keepalive(
    struct holdfast *h, enum holdfast_pending_kind kind);

/* Answers the broker's PING, unless `number` is no number. */
void holdfast_submit_pong(struct holdfast *h, const char *number);

/* AUTH with the user and secret of the options. */
bool holdfast_submit_auth(struct holdfast *h);

/* HELLO with the options, and with resume= from the second connection on. */
bool holdfast_submit_hello(struct holdfast *h);

/* CLAIM of a hold. */
bool holdfast_submit_claim(
    struct holdfast *h, const struct holdfast_kept *kept);

/* UNLOCK of a hold that is given up. */
bool holdfast_submit_discard(
    struct holdfast *h, const struct holdfast_kept *kept);

/* WATCH of a lock that an earlier broker watched. */
bool holdfast_submit_rewatch(
    struct holdfast *h, const struct holdfast_watched *watched);

/* Sends the parked requests that may be sent now, in their order. */
void holdfast_submit_parked(struct holdfast *h);

#endif

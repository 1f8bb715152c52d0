/*
 * The library's own requests. Each function returns false where the output has
 * no room now, or the connection is closed; the request does not exist then.
 */
#ifndef HOLDFAST_CLIENT_SUBMIT_H
#define HOLDFAST_CLIENT_SUBMIT_H

#include "proto/client/hold.h"
#include "proto/client/pending.h"
#include "proto/client/watch.h"

/* PING or HELD, by `kind`: PENDING_KEEPALIVE or PENDING_SURVEY. */
bool holdfast_submit_keepalive(
    struct holdfast *h, enum holdfast_pending_kind kind);

/* Answers the broker's PING. It sends nothing where `number` is none. */
void holdfast_submit_pong(struct holdfast *h, const char *number);

/* AUTH with the user and secret of the options. */
bool holdfast_submit_auth(struct holdfast *h);

/* HELLO with what the options say, and resume= from the second connection on.
 */
bool holdfast_submit_hello(struct holdfast *h);

/* CLAIM of a hold. */
bool holdfast_submit_claim(
    struct holdfast *h, const struct holdfast_kept *kept);

/* UNLOCK of a hold that the user has given up. */
bool holdfast_submit_discard(
    struct holdfast *h, const struct holdfast_kept *kept);

/* WATCH of a lock that an earlier broker told of. */
bool holdfast_submit_rewatch(
    struct holdfast *h, const struct holdfast_watched *watched);

/* Sends the parked requests in their order, as far as each may go now. */
void holdfast_submit_parked(struct holdfast *h);

#endif

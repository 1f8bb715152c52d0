/*
 * Questions to a broker that goes on with a session.
 */
#ifndef HOLDFAST_CLIENT_CLAIM_H
#define HOLDFAST_CLIENT_CLAIM_H

#include "proto/client/message.h"
#include "proto/client/pending.h"

/*
 * The connection is gone. The next broker has to confirm each hold, which is
 * believed no longer than the last one may have kept the session.
 */
void holdfast_claims_dropped(struct holdfast *h);

/* The answer to a CLAIM; `done`: it is OK. A hold that is gone ends. */
void holdfast_claim_done(struct holdfast *h,
    const struct holdfast_pending *pending,
    const struct holdfast_message *message, bool done);

/* The final answer, OK or ERR, to a PENDING_DISCARD: that hold ends. */
void holdfast_claim_discarded(
    struct holdfast *h, const struct holdfast_pending *pending);

/* Whether a hold that the user believes in is not confirmed yet. */
bool holdfast_claims_open(const struct holdfast *h);

/* Sends the claims and the WATCHes that are due by now. */
void holdfast_claims_tick(struct holdfast *h, uint64_t now_ms);

/* When the next claim is due; UINT64_MAX: none. Watches count apart. */
uint64_t holdfast_claims_due_ms(const struct holdfast *h);

#endif

/*
 * Claims of holds, and watches, at a broker that resumes the session.
 */
#ifndef HOLDFAST_CLIENT_CLAIM_H
#define HOLDFAST_CLIENT_CLAIM_H

#include "proto/client/message.h"
#include "proto/client/pending.h"

/* The connection has ended. The next broker must confirm each hold. No deadline
 * stays later than the last broker may have kept the session. */
void holdfast_claims_dropped(struct holdfast *h);

/* The answer to a CLAIM; `done`: it is OK. It may end the hold. */
void holdfast_claim_done(struct holdfast *h,
    const struct holdfast_pending *pending,
    const struct holdfast_message *message, bool done);

/* The final answer to a PENDING_DISCARD. The hold ends. */
void holdfast_claim_discarded(
    struct holdfast *h, const struct holdfast_pending *pending);

/* Whether a hold that stands is not confirmed yet. */
bool holdfast_claims_open(const struct holdfast *h);

/* Sends the CLAIMs and WATCHes that are due. */
void holdfast_claims_tick(struct holdfast *h, uint64_t now_ms);

/* When the next CLAIM is due; UINT64_MAX: none. WATCHes are in watch.h. */
uint64_t holdfast_claims_due_ms(const struct holdfast *h);

#endif

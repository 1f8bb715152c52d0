/*
 * Sessions that outlive their connections: their claims, PINGs and DRAIN.
 */
#ifndef HOLDFAST_PROTO_CLIENT_SESSION_H
#define HOLDFAST_PROTO_CLIENT_SESSION_H

#include "proto/clients/c/client.h"
#include "proto/clients/c/pending.h"

/* session.c */

/* Sends AUTH and HELLO on a new connection, as the options and the session need
 * them. The output is empty. */
void holdfast_session_greet(struct holdfast *h);

/* The answer to AUTH; `done`: it is OK. An ERR closes the first connection. */
void holdfast_session_known_as(
    struct holdfast *h, const struct holdfast_message *message, bool done);

/* The answer to HELLO; `done`: it is OK. It may open the connection, or set
 * h->refused. */
void holdfast_session_greeted(
    struct holdfast *h, const struct holdfast_message *message, bool done);

/* No broker serves the session now. Drops the connection, parks the outstanding
 * requests, reports AWAY once, and connects again after a pause. */
void holdfast_session_away(struct holdfast *h, const char *reason);

/* A BYE. True: the program sees it, as the session ends. */
bool holdfast_session_bye(
    struct holdfast *h, const struct holdfast_message *message);

/* Leaves a draining broker, reports BACK, or ends the session, as due. */
void holdfast_session_tick(struct holdfast *h, uint64_t now_ms);

/* When holdfast_session_tick() or holdfast_link_expire() is due; UINT64_MAX:
 * never. */
uint64_t holdfast_session_due_ms(const struct holdfast *h);

/* claim.c */

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

/* keepalive.c */

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

/* drain.c */

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

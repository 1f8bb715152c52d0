/*
 * Sessions that outlive their connections.
 */
#ifndef HOLDFAST_CLIENT_SESSION_H
#define HOLDFAST_CLIENT_SESSION_H

#include "proto/client/client.h"
#include "proto/client/message.h"

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

/* BYE with the word `why`. True: the program sees it, as the session ends. */
bool holdfast_session_bye(struct holdfast *h, const char *why);

/* Leaves a draining broker, reports BACK, or ends the session, as due. */
void holdfast_session_tick(struct holdfast *h, uint64_t now_ms);

/* When holdfast_session_tick() or holdfast_link_expire() is due; UINT64_MAX:
 * never. */
uint64_t holdfast_session_due_ms(const struct holdfast *h);

#endif

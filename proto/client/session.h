/*
 * A session that outlives its connections.
 */
#ifndef HOLDFAST_CLIENT_SESSION_H
#define HOLDFAST_CLIENT_SESSION_H

#include "proto/client/client.h"
#include "proto/client/message.h"

/* Begins a connection's part of the session: AUTH and HELLO, where the options
 * or the session ask for them. Nothing may be in the output before. */
void holdfast_session_greet(struct holdfast *h);

/* The answer to AUTH; `done`: it is OK. An ERR on the first connection closes
 * it. */
void holdfast_session_known_as(
    struct holdfast *h, const struct holdfast_message *message, bool done);

/* The answer to HELLO; `done`: it is OK. It may open the connection, or raise
 * h->refused. */
void holdfast_session_greeted(
    struct holdfast *h, const struct holdfast_message *message, bool done);

/*
 * No broker serves the session now. Drops the connection, parks what is
 * outstanding, tells AWAY once, and connects again after a pause.
 */
void holdfast_session_away(struct holdfast *h, const char *reason);

/* BYE with the word `why`; true: the user is told, as it is the end of all. */
bool holdfast_session_bye(struct holdfast *h, const char *why);

/* Moves from a broker that drains, tells BACK, or ends the session, as due. */
void holdfast_session_tick(struct holdfast *h, uint64_t now_ms);

/* When holdfast_session_tick() or holdfast_link_expire() is due; UINT64_MAX:
 * not. */
uint64_t holdfast_session_due_ms(const struct holdfast *h);

#endif

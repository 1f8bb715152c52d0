/*
 * Sessions, and their times.
 */
#ifndef HOLDFAST_CORE_COMMAND_SESSION_H
#define HOLDFAST_CORE_COMMAND_SESSION_H

#include "daemon/core/model/state.h"

/* session.c */

/* Sets the session's timer to the soonest of its times. */
void session_arm(struct core *core, struct session *session);

/* Opens a session and sets event->session. HANDLE_NONE: a limit or the stop
 * forbids it, and that is counted. */
void session_open(struct core *core, struct core_event *event);

/* A line has come from the client. The silence that ends a session begins
 * anew. */
void session_hear(struct core *core, struct session *session);

/* Sets the heartbeat in microseconds; 0: none. */
void session_heartbeat(
    struct core *core, struct session *session, uint64_t heartbeat_us);

/* Refuses all requests of the session, LOCKs with `code`. A step has room for
 * these answers, as none of them tells why Redis is away. */
void session_refuse_requests(
    struct core *core, struct session *session, enum error_code code);

/* Gives up the tickets of a session that is GONE, and frees it after the last
 * one. False: the rest comes in a later step. */
bool session_dissolve(struct core *core, struct session *session);

/* Ends the session and counts why. Nobody hears of it any more, nor finds
 * it. */
void session_free(
    struct core *core, struct session *session, enum counter counter);

/* Ends a session of a broker that stops: what it has in Redis stays for its
 * client to claim. */
void session_forget(
    struct core *core, struct session *session, enum counter counter);

/* The connection is gone. The session is kept for its client, or ends and may
 * be gone afterwards. */
void session_drop(
    struct core *core, struct session *session, enum counter counter);

/* Says BYE and ends the connection. The session may be gone afterwards. */
void session_end(
    struct core *core, struct session *session, enum session_end end);

/* Ends the session for an operator. Nothing of it is kept. */
void session_kill(struct core *core, struct session *session);

/* Ends a session whose user is gone. Nothing of it is kept. */
void session_expel_user(struct core *core, struct session *session);

/* Takes over the session of an earlier connection, at this broker or by its ID
 * alone. Returns NULL, or a static text of why not. */
const char *session_resume(struct core *core, struct session *session,
    const uint8_t told[16], uint32_t generation);

/* Another broker has taken over a ticket for a later connection. Malformed news
 * is ignored. The session may end. */
void session_moved(struct core *core, struct text news);

/* Ends a connection that breaks a limit or the protocol. The session is kept
 * where that applies, or may be gone afterwards. */
void session_expel(
    struct core *core, struct session *session, enum core_expel why);

/* Takes no more requests and ends when all are answered. `state` is CLOSING or
 * QUITTING. Waits end, and holds without a request are released. */
void session_close(struct core *core, struct session *session,
    enum session_state state, enum session_end end);

/* The client sends no more. The session closes, after an AUTH that is under
 * way. */
void session_eof(struct core *core, struct session *session);

/* session_time.c */

/* The time of a session has come. The session may be gone afterwards. */
void session_timer(struct core *core, struct session *session);

/* Ends the sessions that nothing keeps, at the end of a step. */
void session_end_all(struct core *core);

#endif

/*
 * The times of sessions. See session_time.c.
 */
#ifndef HOLDFAST_CORE_COMMAND_SESSION_TIME_H
#define HOLDFAST_CORE_COMMAND_SESSION_TIME_H

#include "daemon/core/model/state.h"

/* The time of a session has come. The session may be gone afterwards. */
void session_timer(struct core *core, struct session *session);

/* Ends the sessions that nothing keeps, at the end of a step. */
void session_end_all(struct core *core);

#endif

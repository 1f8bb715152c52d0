/*
 * Admission of a request. See admit.c.
 */
#ifndef HOLDFAST_CORE_COMMAND_ADMIT_H
#define HOLDFAST_CORE_COMMAND_ADMIT_H

#include "daemon/core/model/state.h"

/* Whether the user may send that request. A refusal has been answered and
 * counted. */
bool auth_permits(struct core *core, struct session *session,
    const struct request_line *line);

/* Creates the request of a session. NULL: a limit forbids it, and the client
 * has been told. */
struct request *request_admit(struct core *core, struct session *session,
    const struct request_line *line);

#endif

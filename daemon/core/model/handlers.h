/*
 * The handlers of commands.def, wherever they are.
 */
#ifndef HOLDFAST_CORE_MODEL_HANDLERS_H
#define HOLDFAST_CORE_MODEL_HANDLERS_H

#include "daemon/core/model/state.h"

/* Carries out a request, whose row of commands.def allows it. It is answered at
 * once, or a request is left for the answer. */
#define COMMAND(id, right, draining, refusal, handler, ...)  \
    void handler(struct core *core, struct session *session, \
        const struct request_line *line);
#include "proto/commands.def"

#endif

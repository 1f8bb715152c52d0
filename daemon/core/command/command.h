/*
 * Request lines to calls; what BREAK does next. See command.c.
 */
#ifndef HOLDFAST_CORE_COMMAND_COMMAND_H
#define HOLDFAST_CORE_COMMAND_COMMAND_H

#include "daemon/core/model/state.h"

/* Takes the answer to OP_BREAK. An inspection then shows whether the holders
 * have let go. */
void command_break_done(struct core *core, struct op *op);

/* Inspects the lock of a BREAK, to see whether its holders have let go. */
void command_break_look(struct core *core, struct request *request);

/* Takes the inspection for a BREAK: answers it, or looks again until the
 * command's time-out. */
void command_break_seen(struct core *core, struct op *op);

/* The time of a request is over. Each command has its own row of what then
 * happens. */
void command_timer(struct core *core, struct request *request);

/* Parses and carries out one request line. `line` is changed. The session may
 * be gone afterwards. */
void command_line(
    struct core *core, struct session *session, char *line, size_t len);

#endif

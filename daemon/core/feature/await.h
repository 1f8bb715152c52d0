/*
 * AWAIT. See await.c.
 */
#ifndef HOLDFAST_CORE_FEATURE_AWAIT_H
#define HOLDFAST_CORE_FEATURE_AWAIT_H

#include "daemon/core/model/lock.h"
#include "daemon/core/model/request.h"
#include "daemon/core/model/state.h"

/* Begins an AWAIT. It may be refused and freed at once. */
void await_begin(struct core *core, struct request *request,
    const struct request_line *line);

/* The timer of the AWAIT: its wait= is over, Redis has been silent for long, or
 * the session or the broker ends. */
void await_timer(struct core *core, struct request *request);

/* Cancels the AWAIT. */
void await_cancel(struct core *core, struct request *request);

/* Refuses the AWAIT of the watch, and frees both. */
void await_end(struct core *core, struct watch *watch, enum error_code code);

#endif

/*
 * Slow operations, lost holds and deadlocks of late. See recent.c.
 */
#ifndef HOLDFAST_CORE_FEATURE_RECENT_H
#define HOLDFAST_CORE_FEATURE_RECENT_H

#include "daemon/core/model/state.h"

/* Keeps a slow operation for SLOW. The tries of one operation are one entry. */
void recent_slow(struct core *core, const struct op *op);

/* Keeps a lost hold for SLOW. `reason` must be static. */
void recent_lost(
    struct core *core, const struct ticket *ticket, const char *reason);

/* Keeps a wait that deadlock detection ended. `cycle` and `sessions` must fit
 * struct recent. */
void recent_deadlock(struct core *core, const struct ticket *ticket,
    struct text cycle, struct text sessions);

#endif

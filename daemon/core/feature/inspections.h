/*
 * Inspections for the search for deadlocks. See inspections.c.
 */
#ifndef HOLDFAST_CORE_FEATURE_INSPECTIONS_H
#define HOLDFAST_CORE_FEATURE_INSPECTIONS_H

#include "daemon/core/model/state.h"

/* Sends the inspections that Redis has time for. To be called at the end of a
 * step. */
void inspections_send(struct core *core);

/* The rest of the lock is over: its next inspection is queued. */
void inspections_timer(struct core *core, struct wheel_node *node);

/* Takes the answer to an inspection. Its probes are served, or dropped after an
 * error. */
void inspections_done(struct core *core, const struct op *op);

/* Asserts that each inspection waits for one thing alone. For core_check(). */
void inspections_check(const struct core *core);

#endif

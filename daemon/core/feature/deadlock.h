/*
 * The search for deadlocks. See deadlock.c.
 */
#ifndef HOLDFAST_CORE_FEATURE_DEADLOCK_H
#define HOLDFAST_CORE_FEATURE_DEADLOCK_H

#include "daemon/core/model/state.h"

struct op_result;

struct probe;

/* A wait begins, or counts again after its LOCK came again. Searches of its
 * owner's waits are scheduled. */
void deadlock_waits(struct core *core, struct ticket *ticket);

/* The owner has one more hold. Searches from its waits are scheduled. */
void deadlock_held(struct core *core, const struct owner *owner);

/* Whether the wait of the probe still lasts at this broker. */
bool deadlock_stands(const struct core *core, const struct probe *probe);

/* Begins the searches that are due for the ticket's owner. Returns when the
 * ticket is due again; NEVER: not. */
uint64_t deadlock_search(struct core *core, struct ticket *ticket);

/* Serves probes of the list with a record that was read. Probes beyond the room
 * of a step stay in the list. */
void deadlock_read(
    struct core *core, struct list *probes, const struct op_result *result);

/* Takes a probe of another broker. A malformed probe is ignored. */
void deadlock_message(struct core *core, struct text message);

#endif

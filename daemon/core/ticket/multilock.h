/*
 * Locks of several names. See multilock.c.
 */
#ifndef HOLDFAST_CORE_TICKET_MULTILOCK_H
#define HOLDFAST_CORE_TICKET_MULTILOCK_H

#include "daemon/core/model/state.h"

/* A hold of a member was lost, so the LOCK is cancelled. */
void multilock_lost(struct core *core, const struct request *had);

/* The member that is asked for is granted. The next member is asked for, or the
 * LOCK is answered. */
void multilock_granted(
    struct core *core, struct request *granted, struct ticket *ticket);

/* Begins a LOCK of several names. `parent` is refused and freed if a limit or
 * the request forbids it. */
void multilock_begin(
    struct core *core, struct request *parent, const struct request_line *line);

/* Whether the multi-lock waits at a lock that another owner has. */
bool multilock_is_waiting(
    const struct core *core, const struct request *member);

#endif

/*
 * Locks of several names. See bundle.c.
 */
#ifndef HOLDFAST_CORE_TICKET_BUNDLE_H
#define HOLDFAST_CORE_TICKET_BUNDLE_H

#include "daemon/core/model/state.h"

/* A hold of a member was lost, so the LOCK is cancelled. */
void bundle_lost(struct core *core, const struct request *had);

/* The member that is asked for is granted. The next member is asked for, or the
 * LOCK is answered. */
void bundle_granted(
    struct core *core, struct request *part, struct ticket *ticket);

/* Begins a LOCK of several names. `whole` is refused and freed if a limit or
 * the request forbids it. */
void bundle_begin(
    struct core *core, struct request *whole, const struct request_line *line);

/* Whether the multi-lock waits at a lock that another owner has. */
bool bundle_is_waiting(const struct core *core, const struct request *part);

/* Cancels the multi-lock that `request` is, or is a member of. False: an
 * earlier call has cancelled it. */
bool bundle_cancel(struct core *core, const struct request *request,
    enum error_code code, const char *why);

#endif

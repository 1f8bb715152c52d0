/*
 * Detached holds: of lock --detached, unlock and renew.
 */
#ifndef HOLDFAST_COMMAND_DETACHED_H
#define HOLDFAST_COMMAND_DETACHED_H

#include "proto/holdfast/acquire.h"

/* Takes a lock whose hold stays after this process, and prints its fence and
 * end. Returns the exit status. */
int detached_lock(
    const struct settings *settings, const struct acquire *acquire);

#endif

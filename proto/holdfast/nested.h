/*
 * A run within a run: what the runs above this process hold.
 */
#ifndef HOLDFAST_COMMAND_NESTED_H
#define HOLDFAST_COMMAND_NESTED_H

#include "proto/holdfast/acquire.h"

/* Tells the program to be started what is held for it, in its environment. */
bool nested_tell(const struct acquire *acquire);

/*
 * The first key that a run above this process holds, so that waiting for it
 * would never end; *pid is that run's. NULL: there is none.
 */
const char *nested_find(const struct acquire *acquire, long *pid);

#endif

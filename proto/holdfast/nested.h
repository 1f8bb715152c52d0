/*
 * A run within a run: the locks that the runs above this process hold.
 */
#ifndef HOLDFAST_COMMAND_NESTED_H
#define HOLDFAST_COMMAND_NESTED_H

#include "proto/holdfast/acquire.h"

/* Puts the locks into the environment of the program. False: no memory. */
bool nested_tell(const struct acquire *acquire);

/* The first key that a run above this process holds, whose PID is *pid: a wait
 * for it would never end. NULL: there is none. */
const char *nested_find(const struct acquire *acquire, long *pid);

#endif

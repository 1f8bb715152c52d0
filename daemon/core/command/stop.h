/*
 * The stop of the broker. See stop.c.
 */
#ifndef HOLDFAST_CORE_COMMAND_STOP_H
#define HOLDFAST_CORE_COMMAND_STOP_H

#include "daemon/core/model/state.h"

/* Begins the stop: sessions are told, and grace begins. A second call does
 * nothing. */
void core_stop(struct core *core);

/* Ends grace: each session ends in a step of its own. */
void core_stop_grace_over(struct core *core);

#endif

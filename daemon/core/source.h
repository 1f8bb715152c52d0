/*
 * Connections by address and user. See source.c.
 */
#ifndef HOLDFAST_CORE_SOURCE_H
#define HOLDFAST_CORE_SOURCE_H

#include "daemon/core/state.h"

/* Addresses with failures, and with nobody connected. */
#define IDLE_MAX 4096

#endif

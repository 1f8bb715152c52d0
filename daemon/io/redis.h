/*
 * Connections to Redis.
 */
#ifndef HOLDFAST_IO_REDIS_H
#define HOLDFAST_IO_REDIS_H

#include "daemon/io/state.h"

/* Makes the connections, all of them closed. False: no memory. */
bool redis_create(struct loop *loop);

/* Closes and frees all connections, if there are any. */
void redis_destroy(struct loop *loop);

/* Connects and closes as the store wishes, and writes its output. */
void redis_carry_out(struct loop *loop);

#endif

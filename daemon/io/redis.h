/*
 * Links to Redis.
 */
#ifndef HOLDFAST_IO_REDIS_H
#define HOLDFAST_IO_REDIS_H

#include "daemon/io/state.h"

/* Makes the links, none of them connected. False: no memory. */
bool redis_create(struct loop *loop);

/* Closes and frees the links; nothing happens where there are none. */
void redis_destroy(struct loop *loop);

/* Connects and closes links as the store wishes, and writes its output. */
void redis_carry_out(struct loop *loop);

#endif

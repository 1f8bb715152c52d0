/*
 * The list of all connections. A child of fork(2) closes its copies of them.
 */
#ifndef HOLDFAST_CLIENT_FORK_H
#define HOLDFAST_CLIENT_FORK_H

#include "proto/client/client.h"

/* Adds a connection, before it has a descriptor. */
void holdfast_fork_enter(struct holdfast *h);

/* Removes a connection, before it is freed. */
void holdfast_fork_leave(struct holdfast *h);

/* Between lock and unlock no fork() happens. They enclose each change of a
 * descriptor, and no blocking call. */
void holdfast_fork_lock(void);
void holdfast_fork_unlock(void);

#endif

/*
 * Connections of this process, whose copies a child of fork(2) closes.
 */
#ifndef HOLDFAST_CLIENT_FORK_H
#define HOLDFAST_CLIENT_FORK_H

#include "proto/client/client.h"

/* Puts a connection into the list; once, before it has a descriptor. */
void holdfast_fork_enter(struct holdfast *h);

/* Takes it out again, before it is freed. */
void holdfast_fork_leave(struct holdfast *h);

/*
 * No fork() comes between lock and unlock. They enclose each change of a
 * connection's descriptor, and nothing that blocks.
 */
void holdfast_fork_lock(void);
void holdfast_fork_unlock(void);

#endif

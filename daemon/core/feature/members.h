/*
 * WATCH members=1. See members.c.
 */
#ifndef HOLDFAST_CORE_FEATURE_MEMBERS_H
#define HOLDFAST_CORE_FEATURE_MEMBERS_H

#include "daemon/core/model/lock.h"
#include "daemon/core/model/state.h"

struct op_members;

/* Takes a message of a script about the holders of a lock. */
void members_told(struct core *core, const struct op_members *told);

/* Messages may be lost: the watches of the lock begin again. */
void members_lost(struct core *core, struct lock *lock);

/* A watch_look() of the lock has ended. A page that does not come is asked for
 * again. */
void members_looked(struct core *core, struct lock *lock);

#endif

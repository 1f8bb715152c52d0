/*
 * Locks by name. See lock.c.
 */
#ifndef HOLDFAST_CORE_LOCK_H
#define HOLDFAST_CORE_LOCK_H

#include "daemon/core/state.h"

/* The lock of that name, without a reference; NULL: none is known. */
struct lock *lock_find(const struct core *core, struct text name);

/* The name of the lock; it lives as long as the lock. */
struct text lock_name(const struct lock *lock);

/* The lock of that name, created if need be, with a reference for the caller.
 * NULL: there is no room. */
struct lock *lock_obtain(struct core *core, struct text name);

/* Takes one more reference to the lock. */
void lock_ref(struct lock *lock);

/* Gives a reference back. The lock is gone with the last one. */
void lock_unref(struct core *core, struct lock *lock);

/* Remembers the largest fence that was seen in the lock's hash slot. */
void lock_see_fence(struct core *core, const struct lock *lock, uint64_t fence);

/* Redis will be asked about the lock at `at_us`, or sooner if that was set. */
void lock_ask_at(struct core *core, struct lock *lock, uint64_t at_us);

/* Asks about the lock once a grant to another broker has lapsed, should that
 * broker be gone. */
void lock_ask_after_lapse(struct core *core, struct lock *lock);

/* Asks about all waiters of the lock at once, but once for many calls: a lost
 * answer may have told of a grant. */
void lock_refresh_soon(struct core *core, struct lock *lock);

#endif

/*
 * WATCH. See watch.c.
 */
#ifndef HOLDFAST_CORE_FEATURE_WATCH_H
#define HOLDFAST_CORE_FEATURE_WATCH_H

#include "daemon/core/model/lock.h"
#include "daemon/core/model/state.h"

/* watch_look.c */

/* Has the record tell of changes for a lease, and inspects it then. */
void watch_look(struct core *core, struct lock *lock);

/* The next watch_look() comes in about a quarter of a lease. */
void watch_look_later(struct core *core, struct lock *lock);

/* Asks for the next page of the watches that want one. */
void members_ask(struct core *core, struct lock *lock);

/* The arrival number that a page begins after; WATCH_SHOWN_ALL: no watch wants
 * a page. */
uint64_t members_after(const struct lock *lock);

/* Answers the WATCH of that watch, if it has no answer yet. */
void watch_answer(struct core *core, struct watch *watch);

/* The lock of a record's key, or NULL. */
struct lock *watch_lock_of(const struct core *core, struct text key);

/* watch.c */

/* Takes a reference to the lock over. Each ticket has at most one watch, and
 * watch_of_request() refuses others, so there is room. */
struct watch *watch_create(struct core *core, struct session *session,
    struct lock *lock, enum watch_kind kind);

/* The watch of a request. NULL: the request was refused and freed. */
struct watch *watch_of_request(struct core *core, struct request *request,
    struct text name, enum watch_kind kind);

/* Inspects the record, or does so again after the inspection under way. */
void watch_inspect(struct core *core, struct lock *lock);

/* Frees the watch and its reference to the lock, which may be gone
 * afterwards. */
void watch_free(struct core *core, struct watch *watch);

/* Tells at most WATCH_PART events. The rest follows when the session has read
 * them. */
void watch_flush(struct core *core, struct session *session);

/* The time to inspect a watched lock has come. */
void watch_timer(struct core *core, struct lock *lock);

/* A script has told that somebody waits at the record `key` for holders of
 * intentions. */
void watch_called(struct core *core, struct text key);

/* A script has told of a change to the record `key`. A watched lock is
 * inspected. */
void watch_hint(struct core *core, struct text key);

/* Before a quorum, a ticket of another broker waits for the lock. `told` has
 * that broker's id, and the key. */
void watch_waits(struct core *core, struct text told);

/* Hints may be lost: all watched locks are inspected within half a second. */
void watch_unheard(struct core *core);

/* Takes the answer to OP_WATCH, or the failure of an inspection, which is tried
 * again. */
void watch_looked(struct core *core, struct lock *lock, enum op_status status);

/* Takes the inspection of a watched lock. Watchers hear of it by
 * watch_tell_all(). */
void watch_inspected(struct core *core, struct op *op);

/* Tells watchers what inspections found, as far as the step has room. To be
 * called at its end. */
void watch_tell_all(struct core *core);

/* The client of a hold wants to hear of waiters from now on, and at once where
 * there are some. */
void watch_wanted(struct core *core, struct ticket *ticket);

/* That hold ends. */
void watch_unwanted(struct core *core, struct ticket *ticket);

/* Refuses a WATCH whose time is over, and frees it with its watch. */
void watch_give_up(struct core *core, struct request *request);

/* Asserts that the counts of a lock's watches are true. For core_check(). */
void watch_check(const struct core *core, const struct lock *lock);

/* Begins a WATCH. The first inspection answers it. It may be refused and freed
 * at once. */
void watch_begin(struct core *core, struct request *request,
    const struct request_line *line);

/* Ends the watch of that name. False: the session does not watch it. */
bool watch_end(struct core *core, struct session *session, struct text name);

#endif

/*
 * WATCH. See watch.c.
 */
#ifndef HOLDFAST_CORE_FEATURE_WATCH_H
#define HOLDFAST_CORE_FEATURE_WATCH_H

#include "daemon/core/model/state.h"

/* Frees the watch and its reference to the lock, which may be gone
 * afterwards. */
void watch_free(struct core *core, struct watch *watch);

/* Tells at most WATCH_PART events. The rest follows when the session has read
 * them. */
void watch_flush(struct core *core, struct session *session);

/* The time to inspect a watched lock has come. */
void watch_timer(struct core *core, struct lock *lock);

/* A script has told of a change to the record `key`. A watched lock is
 * inspected. */
void watch_hint(struct core *core, struct text key);

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

/* Refuses a WATCH whose time is over, and frees it with its watch. */
void watch_give_up(struct core *core, struct request *request);

/* Begins a WATCH. The first inspection answers it. It may be refused and freed
 * at once. */
void watch_begin(struct core *core, struct request *request,
    const struct request_line *line);

/* Ends the watch of that name. False: the session does not watch it. */
bool watch_end(struct core *core, struct session *session, struct text name);

#endif

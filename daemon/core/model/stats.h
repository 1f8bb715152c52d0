/*
 * Counts of namespaces. See stats.c.
 */
#ifndef HOLDFAST_CORE_MODEL_STATS_H
#define HOLDFAST_CORE_MODEL_STATS_H

#include "daemon/core/model/state.h"

/* The counts of the lock's namespace. A change of the namespaces ends the
 * pointer. */
struct namespace *namespace_of(struct core *core, struct lock *lock);

/* Counts a grant and its wait, or a re-entry. Other requests than LOCK count
 * nothing. */
void stats_granted(struct core *core, const struct request *request,
    const struct ticket *ticket);

/* Counts a refused LOCK by its code. */
void stats_refused(
    struct core *core, const struct request *request, enum error_code code);

/* Counts a LOCK that was refused before it had a ticket. Of several names, the
 * first without room counts. */
void stats_turned_away(
    struct core *core, struct text name, enum error_code code);

/* Counts a LOCK whose session ended before the answer. */
void stats_unheard(struct core *core, const struct request *request);

/* Counts a finding of an audit in the namespace of that name. */
void stats_finding(
    struct core *core, struct text name, enum namespace_counter counter);

#endif

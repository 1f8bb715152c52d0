/*
 * Counts of namespaces; holds and waits by age.
 */
#ifndef HOLDFAST_CORE_MODEL_STATS_H
#define HOLDFAST_CORE_MODEL_STATS_H

#include "daemon/core/model/state.h"

/* stats.c */

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

/* ages.c */

/* The lists of all namespaces together, from the oldest ticket on. */
struct walk {
    struct list *head[NAMESPACES_MAX + 1];
    struct list *next[NAMESPACES_MAX + 1];
    uint32_t count;
};

/* Makes the lists. False: there is no memory for the counts of contention. */
bool top_init(struct core *core);

/* Frees the counts of contention. */
void top_fini(struct core *core);

/* Since when the ticket holds or waits. */
uint64_t ticket_since_us(const struct ticket *ticket);

/* Begins a walk over all holds, or over all waits. */
void walk_begin(struct walk *walk, struct core *core, bool holds);

/* The next ticket of the walk, the oldest first; NULL: those were all. */
struct ticket *walk_next(struct walk *walk);

/* Takes other namespaces. Unless they are the same, that costs a walk over all
 * tickets. */
void top_set_namespaces(
    struct core *core, const struct text *prefixes, uint32_t count);

/* Ends the wait of the ticket, if it has one. */
void top_wait_end(struct core *core, struct ticket *ticket);

/* The ticket comes into that state: it begins or ends a hold or a wait. */
void top_state(
    struct core *core, struct ticket *ticket, enum ticket_state state);

/* For core_check(): the lists are in order, and complete. */
void top_check(const struct core *core);

#endif

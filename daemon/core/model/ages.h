/*
 * Holds and waits by age. See ages.c.
 */
#ifndef HOLDFAST_CORE_MODEL_AGES_H
#define HOLDFAST_CORE_MODEL_AGES_H

#include "daemon/core/model/state.h"

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

/*
 * Places that searches for deadlocks have visited. See search_marks.c.
 */
#ifndef HOLDFAST_CORE_FEATURE_SEARCH_MARKS_H
#define HOLDFAST_CORE_FEATURE_SEARCH_MARKS_H

#include "daemon/core/feature/probe.h"

/* The hash of a search, from the first node of its probes. It differs between
 * searches and brokers. */
uint64_t search_hash(const struct core *core, const struct probe_node *first);

/* Whether the search has visited a wait of that lock which is as far behind, or
 * `behind` this one, and waits for all that this wait waits for. The queue of a
 * quorum is not in the order of arrival. */
bool search_covers(const struct core *core, uint64_t search,
    const struct ticket *ticket, bool behind);

/* Marks the wait as visited. */
void search_visits(
    struct core *core, uint64_t search, const struct ticket *ticket);

/* Whether the search has visited some of the owner's many waits before. Marks
 * the owner as visited. */
bool search_was_at(
    struct core *core, uint64_t search, const struct owner *owner);

#endif

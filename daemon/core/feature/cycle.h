/*
 * A cycle of a deadlock as text. See cycle.c.
 */
#ifndef HOLDFAST_CORE_FEATURE_CYCLE_H
#define HOLDFAST_CORE_FEATURE_CYCLE_H

#include "daemon/core/feature/probe.h"

/* Writes the lock names as "x,y,z". The holder of each lock waits for the next
 * one. A comma at the end says that more names follow. Refers to `out`. */
struct text cycle_names(const struct probe *probe, char *out, size_t out_bytes);

/* Writes the short IDs of the sessions as a sentence for people. */
void cycle_people(const struct probe *probe, char *out, size_t out_bytes);

/* Writes the short IDs with commas between. `out` has room for
 * RECENT_SESSIONS_BYTES. */
struct text cycle_sessions(const struct probe *probe, char *out);

#endif

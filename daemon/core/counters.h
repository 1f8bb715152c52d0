/*
 * The broker's counters, from one list: counters.def. One thread, so plain
 * integers.
 */
#ifndef HOLDFAST_CORE_COUNTERS_H
#define HOLDFAST_CORE_COUNTERS_H

#include "daemon/base/histogram.h"

#include <stdbool.h>
#include <stdint.h>

enum counter {
#define FAMILY(id, label, help)
#define SINGLE(id, help)              COUNTER_##id,
#define PART(id, family, value, help) COUNTER_##id,
#define STAT(id, help)                COUNTER_##id,
#include "daemon/core/counters.def"
#undef FAMILY
#undef SINGLE
#undef PART
#undef STAT
    COUNTER_COUNT
};

struct counters {
    uint64_t value[COUNTER_COUNT];
    struct histogram redis_call; /* µs from the sending to the answer */
    struct histogram loop_turn;  /* µs of work between two waits */
};

static inline void
count(struct counters *counters, enum counter counter)
{
    counters->value[counter]++;
}

const char *counter_name(enum counter counter);
const char *counter_help(enum counter counter);

/* What a counter is for Prometheus: a family, and which part of it. */
struct counter_metric {
    const char *family; /* without prefix and _total */
    const char *help;   /* of the family */
    const char *label;  /* NULL: it is all of its family */
    const char *value;
    bool first; /* of its family */
};

/* False: only STATS has it. */
bool counter_metric(enum counter counter, struct counter_metric *metric);

#endif

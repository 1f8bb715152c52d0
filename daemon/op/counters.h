/*
 * The broker's counters, from one list: counters.def. One thread, so plain
 * integers.
 */
#ifndef HOLDFAST_OP_COUNTERS_H
#define HOLDFAST_OP_COUNTERS_H

#include "daemon/base/histogram.h"
#include "daemon/op/metric.h"

#include <stdbool.h>
#include <stdint.h>

enum counter {
#define FAMILY(id, label, help)
#define SINGLE(id, help)              COUNTER_##id,
#define PART(id, family, value, help) COUNTER_##id,
#define STAT(id, help)                COUNTER_##id,
#include "daemon/op/counters.def"
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

/* The name of the counter in STATS and in the metrics. It is static. */
const char *counter_name(enum counter counter);

/* False: only STATS has it. */
bool counter_metric(enum counter counter, struct metric *metric);

#endif

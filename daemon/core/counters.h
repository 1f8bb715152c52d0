/*
 * The broker's counters, from one list. One thread, so plain integers.
 */
#ifndef HOLDFAST_CORE_COUNTERS_H
#define HOLDFAST_CORE_COUNTERS_H

#include <stdint.h>

enum counter {
#define COUNTER(id, help) COUNTER_##id,
#include "daemon/core/counters.def"
#undef COUNTER
    COUNTER_COUNT
};

struct counters {
    uint64_t value[COUNTER_COUNT];
};

static inline void
count(struct counters *counters, enum counter counter)
{
    counters->value[counter]++;
}

const char *counter_name(enum counter counter);
const char *counter_help(enum counter counter);

#endif

/*
 * Times in microseconds, and what a timer of the wheel belongs to.
 */
#ifndef HOLDFAST_CORE_MODEL_TIME_H
#define HOLDFAST_CORE_MODEL_TIME_H

#include "daemon/base/wheel.h"

#include <stdint.h>

#define NEVER WHEEL_NEVER

/* The object that a wheel node is part of. */
enum timer_kind {
    TIMER_SESSION,
    TIMER_TICKET,
    TIMER_REQUEST,
    TIMER_LOCK,
    TIMER_WATCH,
    TIMER_RELEASES,
    TIMER_AUDIT,
    TIMER_INSPECTION,
    TIMER_INSPECTIONS,
};

/* Milliseconds to microseconds, NEVER where it does not fit. */
static inline uint64_t
us_from_ms(uint64_t ms)
{
    return ms > NEVER / 1000 ? NEVER : ms * 1000;
}

/* a + b, NEVER where it does not fit. */
static inline uint64_t
us_add(uint64_t a, uint64_t b)
{
    return a > NEVER - b ? NEVER : a + b;
}

static inline uint64_t
us_max(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static inline uint64_t
us_min(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

#endif

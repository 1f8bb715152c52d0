/*
 * The only reader of the machine's clocks, except for log lines.
 */
#ifndef HOLDFAST_IO_CLOCK_H
#define HOLDFAST_IO_CLOCK_H

#include "daemon/base/assert.h"

#include <stdint.h>
#include <time.h>

static inline uint64_t
clock_read_us(clockid_t clock)
{
    struct timespec now;

    require(clock_gettime(clock, &now) == 0);
    return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

/*
 * Microseconds of CLOCK_BOOTTIME. It runs on while the machine sleeps, as
 * leases do, and cannot be set.
 */
static inline uint64_t
clock_boot_us(void)
{
    return clock_read_us(CLOCK_BOOTTIME);
}

/* Microseconds since 1970 of CLOCK_REALTIME. */
static inline uint64_t
clock_real_us(void)
{
    return clock_read_us(CLOCK_REALTIME);
}

#endif

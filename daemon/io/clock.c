/*
 * clock_gettime() and nothing else.
 */
#include "daemon/io/clock.h"

#include "daemon/base/assert.h"

#include <time.h>

static uint64_t
clock_read_us(clockid_t clock)
{
    struct timespec now;

    require(clock_gettime(clock, &now) == 0);
    return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

uint64_t
clock_boot_us(void)
{
    return clock_read_us(CLOCK_BOOTTIME);
}

uint64_t
clock_real_us(void)
{
    return clock_read_us(CLOCK_REALTIME);
}

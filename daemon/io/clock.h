/*
 * The only reader of the machine's clocks, except for log lines.
 */
#ifndef HOLDFAST_IO_CLOCK_H
#define HOLDFAST_IO_CLOCK_H

#include <stdint.h>

/*
 * Microseconds of CLOCK_BOOTTIME. It runs on while the machine sleeps, as
 * leases do, and cannot be set.
 */
uint64_t clock_boot_us(void);

/* Microseconds since 1970 of CLOCK_REALTIME. */
uint64_t clock_real_us(void);

#endif

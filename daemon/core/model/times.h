/*
 * Times that follow from the settings: the spread of what many do at once, the
 * margin between two clocks, the end of a lease that nobody renews.
 */
#ifndef HOLDFAST_CORE_MODEL_TIMES_H
#define HOLDFAST_CORE_MODEL_TIMES_H

#include "daemon/core/model/state.h"

/* Failed renewals and releases are tried again after so long, at least. */
#define RETRY_US 100000

/* From `low_us` to 1.1 times as much, so that many do not come together. */
static inline uint64_t
core_jitter(struct core *core, uint64_t low_us)
{
    return low_us + random_below(&core->random, low_us / 10 + 1);
}

/* The drift between two clocks over a lease, as in Redlock. */
static inline uint64_t
drift_margin_us(uint64_t lease_us)
{
    return lease_us / 100 + 2000;
}

/* The end of the lease of a hold that Redis granted at `from_us` at the
 * earliest. The broker has not heard of it, so it does not renew it. */
static inline uint64_t
unheard_over_us(const struct core *core, uint64_t from_us)
{
    uint64_t lease_us = us_from_ms(core->settings.lease_ms);

    return from_us + lease_us - drift_margin_us(lease_us);
}

#endif

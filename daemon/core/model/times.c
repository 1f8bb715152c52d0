/*
 * Times that follow from the settings: the spread of what many do at once, the
 * margin between two clocks, the end of a lease that nobody renews.
 */
#include "daemon/core/model/times.h"

uint64_t
core_jitter(struct core *core, uint64_t low_us)
{
    return low_us + random_below(&core->random, low_us / 10 + 1);
}

uint64_t
drift_margin_us(uint64_t lease_us)
{
    return lease_us / 100 + 2000;
}

uint64_t
unheard_over_us(const struct core *core, uint64_t from_us)
{
    uint64_t lease_us = us_from_ms(core->settings.lease_ms);

    return from_us + lease_us - drift_margin_us(lease_us);
}

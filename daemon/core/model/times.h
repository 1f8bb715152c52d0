/*
 * Times that follow from the settings. See times.c.
 */
#ifndef HOLDFAST_CORE_MODEL_TIMES_H
#define HOLDFAST_CORE_MODEL_TIMES_H

#include "daemon/core/model/state.h"

/* From `low_us` to 1.1 times as much, so that many do not come together. */
uint64_t core_jitter(struct core *core, uint64_t low_us);

/* The drift between two clocks over a lease, as in Redlock. */
uint64_t drift_margin_us(uint64_t lease_us);

/* The end of the lease of a hold that Redis granted at `from_us` at the
 * earliest. The broker has not heard of it, so it does not renew it. */
uint64_t unheard_over_us(const struct core *core, uint64_t from_us);

#endif

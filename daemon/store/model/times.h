/*
 * Times that follow from the settings. See times.c.
 */
#ifndef HOLDFAST_STORE_MODEL_TIMES_H
#define HOLDFAST_STORE_MODEL_TIMES_H

#include "daemon/store/model/state.h"

/* From `low_us` to 1.5 times as much, so that many do not come together. */
uint64_t store_jitter(struct store *store, uint64_t low_us);

/* After how much silence a connection in use is given up. */
uint64_t store_silence_us(const struct store *store);

#endif

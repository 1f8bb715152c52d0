/*
 * Times that follow from the settings: the spread of what many do at once, and
 * how long a connection may be silent.
 */
#ifndef HOLDFAST_STORE_MODEL_TIMES_H
#define HOLDFAST_STORE_MODEL_TIMES_H

#include "daemon/store/model/state.h"

/* From `low_us` to 1.5 times as much, so that many do not come together. */
static inline uint64_t
store_jitter(struct store *store, uint64_t low_us)
{
    return low_us + random_below(&store->random, low_us / 2 + 1);
}

/* After how much silence a connection in use is given up. */
static inline uint64_t
store_silence_us(const struct store *store)
{
    const struct store_settings *settings = &store->settings;

    return settings->silence_us > settings->command_timeout_us
               ? settings->silence_us
               : settings->command_timeout_us;
}

#endif

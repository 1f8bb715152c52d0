/*
 * The fence clock: where fences begin of which Redis knows nothing, or may know
 * too little (lua/call.lua). It is the latest time that any Redis host has
 * told, to this broker or to another one, which tells it by the marker
 * (history.c). From there it runs on, and never goes back, whatever is done to
 * the clocks. It runs slower than clocks may, so that it does not get away from
 * them by drift alone.
 *
 * Brokers' own clocks are no part of it: each broker has another one, and
 * fences of one broker would be above what the next one begins with. But what
 * is a day ahead of this host's clock is not believed.
 *
 * See DESIGN.md D2.5.
 */
#include "daemon/store/node/history.h"

#define FAR_US  UINT64_C(86400000000)
#define JUMP_US 10000000 /* FENCE_JUMP of lua/call.lua */

uint64_t
fence_clock_us(const struct store *store, uint64_t now_us)
{
    uint64_t age_us = now_us - store->fence_clock_at_us;

    return store->fence_clock_us + age_us - age_us / CLOCK_DRIFT;
}

bool
fence_clock_hear(struct store *store, uint64_t clock_us, uint64_t now_us)
{
    uint64_t limit_us = store->realtime_us + FAR_US;
    uint64_t fence_us = fence_clock_us(store, now_us);

    if (clock_us >= limit_us || (clock_us <= fence_us && fence_us < limit_us))
        return false;
    store->fence_clock_us = clock_us;
    store->fence_clock_at_us = now_us;
    return true;
}

uint64_t
fence_clock_floor(const struct store *store)
{
    uint64_t fence_us = fence_clock_us(store, store->now_us);

    for (uint16_t i = 0; i < store->node_count; i++) {
        const struct conn *conn = &store->conns[i];
        uint64_t time_us = store->now_us + (uint64_t)conn->clock.least_us;
        if (conn->clock.at_us > 0 && fence_us > time_us + FAR_US / 2)
            return 0;
    }
    return fence_us + JUMP_US;
}

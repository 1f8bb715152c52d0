/*
 * Counting by bounds, and the scales.
 */
#include "daemon/base/histogram.h"

#include "daemon/base/assert.h"

#define MS ((uint64_t)1000)
#define S  (1000 * MS)

const struct histogram_scale histogram_calls = {
    .unit = 1e6,
    .bounds = 15,
    .bound = {50, 100, 250, 500, MS, 2500, 5 * MS, 10 * MS, 20 * MS, 25 * MS,
        50 * MS, 100 * MS, 250 * MS, 500 * MS, S},
};

const struct histogram_scale histogram_waits = {
    .unit = 1e6,
    .bounds = 16,
    .bound = {MS, 2500, 5 * MS, 10 * MS, 25 * MS, 50 * MS, 100 * MS, 250 * MS,
        500 * MS, S, 5 * S, 10 * S, 30 * S, 60 * S, 600 * S, 3600 * S},
};

const struct histogram_scale histogram_shares = {
    .unit = 1e3,
    .bounds = 10,
    .bound = {50, 100, 200, 300, 400, 500, 600, 700, 800, 900},
};

void
histogram_add(struct histogram *histogram, const struct histogram_scale *scale,
    uint64_t value)
{
    uint32_t at = 0;

    while (at < scale->bounds && value > scale->bound[at])
        at++;
    require(at < sizeof(histogram->count) / sizeof(histogram->count[0]));
    histogram->count[at]++;
    histogram->sum += value;
}

/*
 * Values counted by size, as in Prometheus' histograms.
 *
 * A scale has the bounds. All values of a histogram have the same scale, and
 * the unit of its bounds.
 */
#ifndef HOLDFAST_BASE_HISTOGRAM_H
#define HOLDFAST_BASE_HISTOGRAM_H

#include <stdint.h>

#define HISTOGRAM_BOUNDS 16

struct histogram_scale {
    double unit; /* of the shown unit, in that of the bounds */
    uint32_t bounds;
    uint64_t bound[HISTOGRAM_BOUNDS]; /* ascending: the largest value of each */
};

struct histogram {
    uint64_t sum;
    uint64_t count[HISTOGRAM_BOUNDS + 1]; /* the last: above all bounds */
};

/* µs, shown as seconds: of machine calls, and of waits of people. */
extern const struct histogram_scale histogram_calls;
extern const struct histogram_scale histogram_waits;

/* Thousandths, shown as a share of one. */
extern const struct histogram_scale histogram_shares;

/* Counts one value, in the unit of the scale's bounds. */
void histogram_add(struct histogram *histogram,
    const struct histogram_scale *scale, uint64_t value);

#endif

/*
 * Values counted by how large they are, as Prometheus' histograms have it.
 *
 * Which bounds there are says a scale; all values of one histogram are counted
 * by the same one. The unit is whatever the scale's bounds are in.
 */
#ifndef HOLDFAST_BASE_HISTOGRAM_H
#define HOLDFAST_BASE_HISTOGRAM_H

#include <stdint.h>

#define HISTOGRAM_BOUNDS 16

struct histogram_scale {
    double unit; /* of the shown unit, in that of the bounds */
    uint32_t bounds;
    uint64_t bound[HISTOGRAM_BOUNDS]; /* growing; a value is at most that */
};

struct histogram {
    uint64_t sum;
    uint64_t count[HISTOGRAM_BOUNDS + 1]; /* the last: above all bounds */
};

/* µs, shown as seconds: what a machine does, and what people wait for. */
extern const struct histogram_scale histogram_calls;
extern const struct histogram_scale histogram_waits;

/* Thousandths, shown as a share of one. */
extern const struct histogram_scale histogram_shares;

/* Counts one value, in the unit of the scale's bounds. */
void histogram_add(struct histogram *histogram,
    const struct histogram_scale *scale, uint64_t value);

#endif

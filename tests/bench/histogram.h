/*
 * Counts of durations by size: 64 steps for each doubling, so that a percentile
 * is told to 1.6 %, from 1 ns to some hours, in a fixed table.
 */
#ifndef HOLDFAST_BENCH_HISTOGRAM_H
#define HOLDFAST_BENCH_HISTOGRAM_H

#include <stdint.h>
#include <stdio.h>

#define HISTOGRAM_STEPS   64
#define HISTOGRAM_OCTAVES 40

struct histogram {
    uint64_t count[HISTOGRAM_STEPS * HISTOGRAM_OCTAVES];
    uint64_t total;
    uint64_t max_ns;
};

void histogram_init(struct histogram *histogram);
void histogram_add(struct histogram *histogram, uint64_t value_ns);

/* The value that `share` (0 to 1) of all do not exceed; 0 where there are
 * none. */
uint64_t histogram_at(const struct histogram *histogram, double share);

/* Writes {"p50":..,"p90":..,"p99":..,"p999":..,"max":..} in microseconds. */
void histogram_print(const struct histogram *histogram, FILE *out);

#endif

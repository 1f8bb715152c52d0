/*
 * A small generator for jitter (xoshiro256**, Blackman and Vigna 2018). Seeded
 * by the caller, so that a run can be repeated. Not for secrets.
 */
#ifndef HOLDFAST_BASE_RANDOM_H
#define HOLDFAST_BASE_RANDOM_H

#include <stdint.h>

struct random {
    uint64_t state[4];
};

/* The same seed gives the same numbers; it may be 0. */
void random_init(struct random *random, uint64_t seed);

/* The next number, uniform over 64 bits. */
uint64_t random_next(struct random *random);

/* A number from 0 to bound - 1, uniform; bound is at least 1. */
uint64_t random_below(struct random *random, uint64_t bound);

#endif

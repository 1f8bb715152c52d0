/*
 * The clock that fences begin with. See fence_clock.c.
 */
#ifndef HOLDFAST_STORE_NODE_FENCE_CLOCK_H
#define HOLDFAST_STORE_NODE_FENCE_CLOCK_H

#include "daemon/store/model/state.h"

/* The fence clock at `now_us`, in microseconds since 1970. */
uint64_t fence_clock_us(const struct store *store, uint64_t now_us);

/* Takes a time that a clock has told. True: the fence clock was behind it. A
 * time too far ahead is ignored. */
bool fence_clock_hear(struct store *store, uint64_t clock_us, uint64_t now_us);

/* The floor for fences at all nodes of a quorum, in microseconds. 0: a node
 * would not believe it. */
uint64_t fence_clock_floor(const struct store *store);

#endif

/*
 * The names of the locks that are waited for most, in bounded memory. This is
 * the space-saving summary: Metwally, Agrawal and El Abbadi, "Efficient
 * Computation of Frequent and Top-k Elements in Data Streams", 2005. Its counts
 * are halved each minute.
 *
 * N is the sum of all waits so far, halved likewise. A count is wrong by at
 * most N / CONTENTION_KEPT, and 1 for the rounding. No name with more waits
 * than that is missing.
 *
 * Nothing here knows of locks, nor of time but by what it is told; what is put
 * off while nobody calls is done by the next call.
 */
#ifndef HOLDFAST_CORE_MODEL_CONTENTION_H
#define HOLDFAST_CORE_MODEL_CONTENTION_H

#include "daemon/base/table.h"
#include "daemon/base/text.h"
#include "proto/request.h"

#define CONTENTION_KEPT    64
#define CONTENTION_HALF_US 60000000u

struct contended {
    struct table_node table; /* by name */
    uint64_t count;          /* waits begun: so many at most */
    uint64_t seen;           /* so many at least: since it is kept */
    uint64_t waited_us;      /* of all who waited, since it is kept */
    uint64_t at_us;          /* by then */
    uint32_t waiters;        /* at present */
    uint8_t place;           /* in the heap */
    uint8_t name_len;
    char name[PROTO_NAME_MAX];
};

struct contention {
    uint32_t count;
    uint64_t halved_us;
    struct table table;
    uint8_t heap[CONTENTION_KEPT]; /* places in `kept`; the least first */
    struct contended kept[CONTENTION_KEPT];
};

/* False: no memory. */
bool contention_init(struct contention *contention, uint64_t now_us);

/* Frees the table of names. */
void contention_fini(struct contention *contention);

/* A wait for the lock begins, or ends; `waiters` are there from now on. `hash`
 * is the name's, by whatever key. */
void contention_begins(struct contention *contention, struct text name,
    uint64_t hash, uint32_t waiters, uint64_t now_us);

/* A wait for that name has ended. `waiters` is how many are left. `hash` as in
 * contention_begins(). */
void contention_ends(struct contention *contention, struct text name,
    uint64_t hash, uint32_t waiters, uint64_t now_us);

/* The most wanted locks now: places in `kept`, those with most waits seen
 * first. Returns how many there are. */
uint32_t contention_order(struct contention *contention, uint64_t now_us,
    uint8_t order[CONTENTION_KEPT]);

/* Aborts where it is not as it should be. */
void contention_check(const struct contention *contention);

#endif

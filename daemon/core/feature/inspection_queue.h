/*
 * Probes that wait for readings of records. See inspection_queue.c.
 */
#ifndef HOLDFAST_CORE_FEATURE_INSPECTION_QUEUE_H
#define HOLDFAST_CORE_FEATURE_INSPECTION_QUEUE_H

#include "daemon/core/feature/probe.h"

#define INSPECTION_TICKETS 512 /* of a record, from its first on */

/* Served by one reading, so that no step is long; others are by the next. */
#define INSPECTION_PROBES 64

enum probe_purpose {
    PROBE_FOLLOWS, /* a search that is under way */
    PROBE_BEGINS,
    PROBE_VERIFIES, /* a cycle that was found */
    PURPOSES
};

/* The readings of a lock's record: the one that is under way, and the next. */
struct inspection {
    struct slab_node node;
    struct lock *lock;            /* ref, counted */
    struct list probes[PURPOSES]; /* for the next reading */
    enum probe_purpose turn;      /* the purpose of the last one */
    uint32_t probe_count;         /* that wait for the next one */
    uint32_t served_count;        /* by this one, or the last one */
    struct list served;           /* for the one that is under way */
    struct list due_link;         /* core->inspections_due */
    struct wheel_node timer;      /* it rests until then */
    bool under_way;
    uint64_t due_us; /* since when it could have been made */
};

/* Takes memory for probes and readings. False: there is none. */
bool inspections_init(struct core *core);

/* Frees the memory of probes and readings. */
void inspections_fini(struct core *core);

/* Frees a reading that no probe waits for. */
void inspection_end(struct core *core, struct inspection *inspection);

/* Queues the next reading, if nothing hinders it, or frees it, if no probe
 * waits for it. */
void inspection_go_on(struct core *core, struct inspection *inspection);

/* A probe to look at that lock, or to verify. NULL: there is no room, and that
 * is counted. */
struct probe *probe_create(
    struct core *core, enum probe_purpose purpose, const struct lock *lock);

/* The purpose of the probe: to verify, to follow, or to begin a search. */
enum probe_purpose probe_purpose(const struct probe *probe);

/* Gives the probe to the next reading of the lock's record, which calls
 * deadlock_read() with both. The probe is owned from here on. */
void inspection_ask(struct core *core, struct probe *probe, struct lock *lock);

/* Counts `cost_us` of Redis' time as used. */
void inspections_pay(struct core *core, uint64_t cost_us);

/* Frees all probes of the list, and counts them as dropped. */
void drop_probes(struct core *core, struct list *probes);

#endif

/*
 * The simulator's world: true time, what happens next, chance, and machines
 * with clocks of their own.
 *
 * One thread, one seed. Everything that happens is an event in a heap, earliest
 * first and, at equal times, in the order of asking; so a seed is a run. Nobody
 * in here reads a real clock, and nothing depends on an address.
 *
 * In it are servers (server.h: a fake Redis on a machine), brokers (broker.h:
 * the real core and store), clients (client.h), the network (net.h) and faults
 * (faults.h). The judge (check.h) alone knows true time and all beliefs.
 */
#ifndef HOLDFAST_TESTS_SIM_WORLD_H
#define HOLDFAST_TESTS_SIM_WORLD_H

#include "daemon/base/random.h"
#include "tests/sim/plan.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define WORLD_NEVER UINT64_MAX

/* True time starts here, in us: no clock is near zero. */
#define WORLD_START_US 1000000000u

typedef void world_call(void *arg, uint64_t data);

/*
 * A host with one process on it. Its boot clock runs a little fast or slow; its
 * wall clock is off by some and may jump. While the process is stopped, what
 * happens to it waits.
 */
struct machine {
    char name[16];
    struct world *world; /* ref */
    uint32_t number;
    int64_t drift_ppm;
    uint64_t boot_us;       /* of the boot clock at WORLD_START_US */
    int64_t wall_us;        /* wall clock less true time */
    uint64_t stopped_until; /* in true time; 0: runs */
    bool up;
    bool silent; /* the host is cut off or dead: not even a FIN leaves it */
    bool blocked[64]; /* to the machine of that number: packets are held */
};

#define WORLD_MACHINES 64

struct happening {
    uint64_t at_us;
    uint64_t serial;
    world_call *call;
    void *arg; /* ref */
    uint64_t data;
};

struct world {
    struct plan plan;
    struct random random;
    uint64_t now_us; /* true time */
    uint64_t serial;
    uint64_t hash;          /* of all that was noted so far */
    bool trace;             /* print what is noted */
    struct happening *heap; /* owned */
    size_t heap_count;
    size_t heap_capacity;
    struct machine machines[WORLD_MACHINES];
    uint32_t machine_count;
    struct net *net;         /* owned */
    struct check *check;     /* owned */
    struct server *servers;  /* owned; plan.servers of them */
    struct cluster *cluster; /* owned; server.c's */
    struct broker *brokers;  /* owned; plan.brokers */
    struct client *clients;  /* owned; plan.clients */
    bool healing;            /* faults are over: everything must come right */
    bool calm;               /* their damage is repaired, and there were no
                              * drills yet */
};

struct world *world_create(const struct plan *plan, bool trace);
void world_destroy(struct world **world);

struct machine *world_machine(struct world *world, const char *name);

/* Calls at a true time; not before now. There is no taking it back: who may
 * have changed his mind carries a serial number in `data`. */
void world_at(struct world *world, uint64_t at_us, world_call *call, void *arg,
    uint64_t data);

/* Lets the next thing happen; false: nothing is left before `until_us`. */
bool world_step(struct world *world, uint64_t until_us);

/* Chance. */
uint64_t world_below(struct world *world, uint64_t bound);
uint64_t world_between(struct world *world, uint64_t low, uint64_t high);
bool world_odds(struct world *world, uint64_t one_in); /* 0: never */

/* Part of the trace and its hash: a line of "who what". */
void world_note(struct world *world, const char *who, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Mixes bytes into the hash without a line. */
void world_mix(struct world *world, const void *bytes, size_t len);

/* A machine's clocks now, and the true time when its boot clock will show
 * `boot_us` (WORLD_NEVER for UINT64_MAX). */
uint64_t machine_boot_us(const struct machine *machine);
uint64_t machine_real_us(const struct machine *machine);
uint64_t machine_when(const struct machine *machine, uint64_t boot_us);

/* Not down, not stopped. */
bool machine_runs(const struct machine *machine);

/* Stops the process; the longer of two stops counts. */
void machine_stop(struct machine *machine, uint64_t until_us);

#endif

/*
 * True time, the heap of what happens next, chance, clocks, the trace.
 *
 * The heap orders by time and then by the order of asking, so that equal times
 * do not make a run depend on anything else.
 */
#include "tests/sim/world.h"

#include "daemon/base/assert.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HEAP_START 1024

struct world *
world_create(const struct plan *plan, bool trace)
{
    struct world *world = calloc(1, sizeof(*world));

    require(world != NULL);
    world->plan = *plan;
    world->trace = trace;
    world->now_us = WORLD_START_US;
    world->hash = 0xcbf29ce484222325;
    random_init(&world->random, plan->seed);
    world->heap_capacity = HEAP_START;
    world->heap = calloc(HEAP_START, sizeof(*world->heap));
    require(world->heap != NULL);
    return world;
}

void
world_destroy(struct world **world)
{
    free((*world)->heap);
    free(*world);
    *world = NULL;
}

static bool
sooner(const struct happening *a, const struct happening *b)
{
    return a->at_us != b->at_us ? a->at_us < b->at_us : a->serial < b->serial;
}

void
world_at(struct world *world, uint64_t at_us, world_call *call, void *arg,
    uint64_t data)
{
    struct happening new = {at_us, ++world->serial, call, arg, data};

    require(at_us >= world->now_us);
    if (world->heap_count == world->heap_capacity) {
        world->heap_capacity *= 2;
        world->heap =
            realloc(world->heap, world->heap_capacity * sizeof(*world->heap));
        require(world->heap != NULL);
    }
    size_t at = world->heap_count++;
    while (at > 0 && sooner(&new, &world->heap[(at - 1) / 2])) {
        world->heap[at] = world->heap[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    world->heap[at] = new;
}

static struct happening
heap_pop(struct world *world)
{
    struct happening first = world->heap[0];
    struct happening last = world->heap[--world->heap_count];
    size_t at = 0;

    for (;;) {
        size_t child = 2 * at + 1;
        if (child >= world->heap_count)
            break;
        if (child + 1 < world->heap_count &&
            sooner(&world->heap[child + 1], &world->heap[child]))
            child++;
        if (!sooner(&world->heap[child], &last))
            break;
        world->heap[at] = world->heap[child];
        at = child;
    }
    world->heap[at] = last;
    return first;
}

bool
world_step(struct world *world, uint64_t until_us)
{
    if (world->heap_count == 0 || world->heap[0].at_us >= until_us) {
        if (until_us != WORLD_NEVER && until_us > world->now_us)
            world->now_us = until_us;
        return false;
    }
    struct happening next = heap_pop(world);
    world->now_us = next.at_us;
    next.call(next.arg, next.data);
    return true;
}

uint64_t
world_below(struct world *world, uint64_t bound)
{
    return random_below(&world->random, bound);
}

uint64_t
world_between(struct world *world, uint64_t low, uint64_t high)
{
    require(low <= high);
    return low + random_below(&world->random, high - low + 1);
}

bool
world_odds(struct world *world, uint64_t one_in)
{
    return one_in > 0 && random_below(&world->random, one_in) == 0;
}

/* --- the trace ------------------------------------------------------------ */

void
world_mix(struct world *world, const void *bytes, size_t len)
{
    const unsigned char *at = bytes;

    for (size_t i = 0; i < len; i++)
        world->hash = (world->hash ^ at[i]) * 0x100000001b3;
}

void
world_note(struct world *world, const char *who, const char *format, ...)
{
    char line[400];
    va_list args;
    uint64_t us = world->now_us - WORLD_START_US;

    va_start(args, format);
    int len = vsnprintf(line, sizeof(line), format, args);
    va_end(args);
    require(len >= 0);
    world_mix(world, &us, sizeof(us));
    world_mix(world, who, strlen(who));
    world_mix(world, line, strlen(line));
    if (world->trace)
        printf("%5" PRIu64 ".%06" PRIu64 " %-10s %s\n", us / 1000000,
            us % 1000000, who, line);
}

/* --- machines ------------------------------------------------------------- */

struct machine *
world_machine(struct world *world, const char *name)
{
    require(world->machine_count < WORLD_MACHINES);
    struct machine *machine = &world->machines[world->machine_count];

    snprintf(machine->name, sizeof(machine->name), "%s", name);
    machine->world = world;
    machine->number = world->machine_count++;
    machine->boot_us = world_between(world, 1000000, 100000000000);
    machine->up = true;
    return machine;
}

/* A span of true time by a clock that is off by `ppm`. */
static uint64_t
drifted(uint64_t us, int64_t ppm)
{
    return us + (uint64_t)((int64_t)us * ppm / 1000000);
}

uint64_t
machine_boot_us(const struct machine *machine)
{
    return machine->boot_us +
           drifted(machine->world->now_us - WORLD_START_US, machine->drift_ppm);
}

uint64_t
machine_real_us(const struct machine *machine)
{
    /* The wall clock begins at some day of 2027, and is kept right by NTP. */
    return (uint64_t)(1800000000000000 + machine->wall_us) +
           machine->world->now_us - WORLD_START_US;
}

uint64_t
machine_when(const struct machine *machine, uint64_t boot_us)
{
    uint64_t now_us = machine_boot_us(machine);
    uint64_t world_us = machine->world->now_us;

    if (boot_us == WORLD_NEVER)
        return WORLD_NEVER;
    if (boot_us <= now_us)
        return world_us;
    uint64_t at_us = world_us + drifted(boot_us - now_us, -machine->drift_ppm);
    /* Rounding must not make it come a little too soon, for ever. */
    return at_us + (boot_us - now_us) / 100000 + 2;
}

bool
machine_runs(const struct machine *machine)
{
    return machine->up && machine->stopped_until <= machine->world->now_us;
}

void
machine_stop(struct machine *machine, uint64_t until_us)
{
    if (machine->stopped_until < until_us)
        machine->stopped_until = until_us;
}

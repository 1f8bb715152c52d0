/*
 * Faults of a run: drawn from its plan, counted by kind, and ended when the run
 * heals.
 */
#ifndef HOLDFAST_TESTS_SIM_FAULTS_H
#define HOLDFAST_TESTS_SIM_FAULTS_H

#include "tests/sim/world.h"

struct fault_totals {
    uint64_t by_kind[FAULT_COUNT];
};

void faults_begin(struct world *world, struct fault_totals *counts);
/* No more of them; what was stopped runs on when its time has come. */
void faults_heal(struct world *world);

/* When the last stop of a process is over. */
uint64_t faults_over_us(const struct world *world);

/* Nothing passes between two machines for so long. */
void faults_part(struct world *world, struct machine *a, struct machine *b,
    uint64_t span_us);

#endif

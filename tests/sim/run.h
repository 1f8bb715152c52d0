/*
 * One run: a plan is played, judged, and summed up.
 */
#ifndef HOLDFAST_TESTS_SIM_RUN_H
#define HOLDFAST_TESTS_SIM_RUN_H

#include "daemon/op/counters.h"
#include "tests/sim/check.h"
#include "tests/sim/fake_cover.h"
#include "tests/sim/faults.h"

struct result {
    uint64_t seed;
    enum setting setting;
    uint64_t hash;
    uint64_t virtual_us;
    uint64_t events;
    struct check_totals totals;
    struct fault_totals faults;
    uint64_t counters[COUNTER_COUNT]; /* of all brokers */
    uint64_t commands;                /* of all servers */
    uint64_t scripts;
    struct cover cover; /* of some seeds; empty of others */
    bool crashed;
};

void run_plan(const struct plan *plan, bool trace, struct result *result);
uint64_t result_faults(const struct result *result);

#endif

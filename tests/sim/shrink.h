/*
 * Making a failing run small: fewer of all, shorter, as long as it still fails.
 */
#ifndef HOLDFAST_TESTS_SIM_SHRINK_H
#define HOLDFAST_TESTS_SIM_SHRINK_H

#include "tests/sim/plan.h"

/* Prints the command line of the smallest run that was found to fail. Runs are
 * made in child processes, since they may crash. */
void shrink(const struct plan *plan);

#endif

/*
 * Seeds of the randomised tests: another one each run, printed, and settable.
 */
#ifndef HOLDFAST_TESTS_UNIT_SEED_H
#define HOLDFAST_TESTS_UNIT_SEED_H

#include "daemon/base/random.h"

/*
 * Seeds `random` from HOLDFAST_SEED or, without it, from the clock, and prints
 * what repeats the run.
 */
void seed_random(struct random *random, const char *test);

#endif

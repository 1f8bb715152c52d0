/*
 * The seeds of the random tests.
 */
#include "tests/unit/seed.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

void
seed_random(struct random *random, const char *test)
{
    const char *given = getenv("HOLDFAST_SEED");
    struct timespec now;
    uint64_t seed;

    if (given != NULL) {
        seed = strtoull(given, NULL, 10);
    } else {
        clock_gettime(CLOCK_REALTIME, &now);
        seed = ((uint64_t)now.tv_sec << 20 ^ (uint64_t)now.tv_nsec) * 31 +
               (uint64_t)getpid();
    }
    printf("%s: HOLDFAST_SEED=%" PRIu64 "\n", test, seed);
    fflush(stdout);
    random_init(random, seed);
}

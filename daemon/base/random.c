/*
 * xoshiro256**, seeded through splitmix64 as its authors advise, so that a seed
 * of 0 or 1 is as good as any.
 */
#include "daemon/base/random.h"

#include "daemon/base/assert.h"

static uint64_t
splitmix(uint64_t *state)
{
    uint64_t mixed = *state += 0x9e3779b97f4a7c15u;

    mixed = (mixed ^ (mixed >> 30)) * 0xbf58476d1ce4e5b9u;
    mixed = (mixed ^ (mixed >> 27)) * 0x94d049bb133111ebu;
    return mixed ^ (mixed >> 31);
}

static uint64_t
rotate(uint64_t value, unsigned bits)
{
    return value << bits | value >> (64 - bits);
}

void
random_init(struct random *random, uint64_t seed)
{
    for (int i = 0; i < 4; i++)
        random->state[i] = splitmix(&seed);
}

uint64_t
random_next(struct random *random)
{
    uint64_t *state = random->state;
    uint64_t result = rotate(state[1] * 5, 7) * 9;
    uint64_t shifted = state[1] << 17;

    state[2] ^= state[0];
    state[3] ^= state[1];
    state[1] ^= state[2];
    state[0] ^= state[3];
    state[2] ^= shifted;
    state[3] = rotate(state[3], 45);
    return result;
}

uint64_t
random_below(struct random *random, uint64_t bound)
{
    uint64_t reject;
    uint64_t value;

    require(bound > 0);
    /* Without the lowest 2^64 mod bound values, all results are equally likely.
     */
    reject = (UINT64_MAX % bound + 1) % bound;
    do {
        value = random_next(random);
    } while (value < reject);
    return value % bound;
}

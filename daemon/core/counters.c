/*
 * Names of the counters, from counters.def.
 */
#include "daemon/core/counters.h"

#include "daemon/base/assert.h"

static const struct {
    const char *name;
    const char *help;
} table[COUNTER_COUNT] = {

#define COUNTER(id, help) {#id, help},
#include "daemon/core/counters.def"
#undef COUNTER
};

const char *
counter_name(enum counter counter)
{
    require(counter < COUNTER_COUNT);
    return table[counter].name;
}

const char *
counter_help(enum counter counter)
{
    require(counter < COUNTER_COUNT);
    return table[counter].help;
}

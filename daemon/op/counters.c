/*
 * Names of the counters, from counters.def.
 */
#include "daemon/op/counters.h"

#include "daemon/base/assert.h"

#include <stddef.h>

#define FAMILY(id, label, help) \
    static const struct metric_family family_##id = {#id, label, help};
#define SINGLE(id, help) FAMILY(id, NULL, help)
#define PART(id, family, value, help)
#define STAT(id, help)
#include "daemon/op/counters.def"
#undef FAMILY
#undef SINGLE
#undef PART
#undef STAT

static const struct {
    const char *name;
    const struct metric_family *family; /* NULL: none */
    const char *value;
} table[COUNTER_COUNT] = {

#define FAMILY(id, label, help)
#define SINGLE(id, help)              {#id, &family_##id, NULL},
#define PART(id, family, value, help) {#id, &family_##family, value},
#define STAT(id, help)                {#id, NULL, NULL},
#include "daemon/op/counters.def"
#undef FAMILY
#undef SINGLE
#undef PART
#undef STAT
};

const char *
counter_name(enum counter counter)
{
    require(counter < COUNTER_COUNT);
    return table[counter].name;
}

bool
counter_metric(enum counter counter, struct metric *metric)
{
    require(counter < COUNTER_COUNT);
    const struct metric_family *family = table[counter].family;
    *metric = (struct metric){
        .family = family,
        .value = table[counter].value,
        .first = counter == 0 || table[counter - 1].family != family,
    };
    return family != NULL;
}

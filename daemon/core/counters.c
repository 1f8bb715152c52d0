/*
 * Names of the counters, from counters.def.
 */
#include "daemon/core/counters.h"

#include "daemon/base/assert.h"

#include <stddef.h>

struct family {
    const char *name;
    const char *label; /* NULL: it has one part, itself */
    const char *help;
};

#define FAMILY(id, label, help) \
    static const struct family family_##id = {#id, label, help};
#define SINGLE(id, help) FAMILY(id, NULL, help)
#define PART(id, family, value, help)
#define STAT(id, help)
#include "daemon/core/counters.def"
#undef FAMILY
#undef SINGLE
#undef PART
#undef STAT

static const struct {
    const char *name;
    const char *help;
    const struct family *family; /* NULL: none */
    const char *value;
} table[COUNTER_COUNT] = {

#define FAMILY(id, label, help)
#define SINGLE(id, help)              {#id, help, &family_##id, NULL},
#define PART(id, family, value, help) {#id, help, &family_##family, value},
#define STAT(id, help)                {#id, help, NULL, NULL},
#include "daemon/core/counters.def"
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

const char *
counter_help(enum counter counter)
{
    require(counter < COUNTER_COUNT);
    return table[counter].help;
}

bool
counter_metric(enum counter counter, struct counter_metric *metric)
{
    require(counter < COUNTER_COUNT);
    const struct family *family = table[counter].family;
    if (family == NULL)
        return false;
    *metric = (struct counter_metric){
        .family = family->name,
        .help = family->help,
        .label = family->label,
        .value = table[counter].value,
        .first = counter == 0 || table[counter - 1].family != family,
    };
    return true;
}

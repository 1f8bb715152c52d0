/*
 * A walk over one YAML file that is nothing but sections, values and lists of
 * values: the only part of the program that knows libyaml.
 *
 * The caller says which keys there are. The walk checks the structure of the
 * file, and knows the place of each node.
 */
#ifndef HOLDFAST_CONF_WALK_H
#define HOLDFAST_CONF_WALK_H

#include "daemon/base/text.h"

#include <stdbool.h>
#include <stddef.h>

/* Both count from 1; a column is a character, not a byte. */
struct walk_place {
    size_t line; /* 0: nowhere */
    size_t column;
};

enum walk_shape {
    WALK_SECTION, /* keys below it, or nothing at all */
    WALK_VALUE,   /* one */
    WALK_LIST,    /* a list of values, or one without a list around it */
    WALK_ITEMS,   /* a list of sections */
};

/* So many mistakes are told, and then that there are more. */
#define WALK_MISTAKES_MAX 20

struct walk {
    const char *file; /* ref: as errors name it */
    char *error;      /* ref: where mistakes go, a line each; "" at first */
    size_t error_bytes;
    size_t mistakes; /* so far */
    void *context;   /* ref: the caller's */

    /* A mistake, which is told already; NULL: nothing is to be done then. */
    void (*on_mistake)(struct walk *walk);

    /*
     * A key, before what belongs to it. `path` is dotted; `name` is its end,
     * and may have dots of its own. False: refused by walk_fail(), and what
     * belongs to it is passed over.
     */
    bool (*on_key)(struct walk *walk, struct text path, struct text name,
        struct walk_place place, enum walk_shape *shape);

    /* The next section of a list of them, whose key is `path`; false as
     * above. Its keys have paths as if there were only one. */
    bool (*on_item)(
        struct walk *walk, struct text path, struct walk_place place);

    /* A value of the key last told; false as above. It may be empty. */
    bool (*on_value)(
        struct walk *walk, struct text value, struct walk_place place);
};

/*
 * False: it cannot be read to its end, which is told. True: all of it was read,
 * whatever the mistakes in it. `text` is as a whole in memory.
 */
bool walk_text(struct walk *walk, struct text text);

/* A mistake: a line "FILE:LINE:COLUMN: " and what. Returns false, for `return`.
 */
bool walk_fail(struct walk *walk, struct walk_place place, const char *format,
    ...) __attribute__((format(printf, 3, 4)));

#endif

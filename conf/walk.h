/*
 * A walk over a YAML file of sections, values and lists. No other part of the
 * program knows libyaml.
 *
 * The caller knows the keys. The walk checks the structure of the file, and
 * tells the place of each node.
 */
#ifndef HOLDFAST_CONF_WALK_H
#define HOLDFAST_CONF_WALK_H

#include "daemon/base/text.h"

#include <stdbool.h>
#include <stddef.h>

/* walk.c */

/* Line and column count from 1. A column is a character, not a byte. */
struct walk_place {
    size_t line; /* 0: nowhere */
    size_t column;
};

enum walk_shape {
    WALK_SECTION, /* keys, or nothing */
    WALK_VALUE,   /* one value */
    WALK_LIST,    /* a list of values, or one value */
    WALK_ITEMS,   /* a list of sections */
};

/* The number of mistakes that are reported. */
#define WALK_MISTAKES_MAX 20

struct walk {
    const char *file; /* ref: its name in errors */
    char *error;      /* ref: a line for each mistake; "" at first */
    size_t error_bytes;
    size_t mistakes; /* so far */
    void *context;   /* ref: the caller's */

    /* Called after each mistake; or NULL. */
    void (*on_mistake)(struct walk *walk);

    /*
     * A key, before its value. `path` is dotted; `name` is its end, and may
     * have dots of its own. False: refused by walk_fail(), and the walk skips
     * the value.
     */
    bool (*on_key)(struct walk *walk, struct text path, struct text name,
        struct walk_place place, enum walk_shape *shape);

    /* The next section of the list at `path`. False: as on_key(). The paths of
     * its keys have no index. */
    bool (*on_item)(
        struct walk *walk, struct text path, struct walk_place place);

    /* A value of the last key; it may be empty. False: as on_key(). */
    bool (*on_value)(
        struct walk *walk, struct text value, struct walk_place place);
};

/* Walks over the text. False: an error, which is reported, has ended the walk.
 * True: it came to the end, with or without mistakes. */
bool walk_text(struct walk *walk, struct text text);

/* Reports a mistake: a line "FILE:LINE:COLUMN: what". Returns false. */
bool walk_fail(struct walk *walk, struct walk_place place, const char *format,
    ...) __attribute__((format(printf, 3, 4)));

/* file.c */

#define FILE_BYTES_MAX ((size_t)1024 * 1024)

/*
 * Reads up to `room` bytes of the file into `out`; *len is their number.
 * Returns NULL, or the error. `running`: only a regular file is read, since
 * another one may block the running daemon.
 */
const char *file_read(
    const char *path, bool running, char *out, size_t room, size_t *len);

/* Reads a file of at most FILE_BYTES_MAX. The caller frees the result. NULL:
 * *what is the error. */
char *file_load(const char *path, bool running, size_t *len, const char **what);

#endif

/*
 * The table of every key of the configuration file. The loader, config_print()
 * and the tests walk it, so that none of them can miss a key.
 *
 * It knows nothing of YAML, nor how a value is read.
 */
#ifndef HOLDFAST_CONF_KEYS_H
#define HOLDFAST_CONF_KEYS_H

#include "daemon/base/text.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum key_type {
    KEY_SECTION,    /* has keys below it, and no field */
    KEY_ITEMS,      /* a list of sections; its keys are fields of an item */
    KEY_COUNT,      /* uint32_t */
    KEY_SIZE,       /* uint64_t, bytes */
    KEY_DURATION,   /* uint64_t, ms */
    KEY_SECONDS,    /* uint64_t, ms; whole seconds */
    KEY_CHOICE,     /* an enum's value, one of `words` */
    KEY_WORD,       /* text, one of `words` */
    KEY_PREFIX,     /* text before a lock's name in Redis */
    KEY_NAMESPACE,  /* the beginning of names of locks */
    KEY_USER,       /* text without blanks, may be empty */
    KEY_FILE,       /* a path, may be empty */
    KEY_HOST,       /* a host's name or number, may be empty */
    KEY_LISTEN,     /* struct config_list of host:port; port 0: any */
    KEY_LISTEN_ONE, /* a KEY_LISTEN with none or one */
    KEY_NODES,      /* struct config_list of host:port */
    KEY_PATHS,      /* struct config_list of Unix sockets */
    KEY_WORDS,      /* struct config_list of a program and its arguments */
};

struct key_word {
    const char *name; /* NULL ends the list */
    unsigned value;
};

struct key {
    const char *path; /* dotted: "redis.nodes" */
    enum key_type type;
    size_t offset;       /* of the field in struct config, or in the item */
    size_t bytes;        /* of the field; text has room for its NUL */
    size_t item_bytes;   /* KEY_ITEMS: of one item */
    size_t count_offset; /* KEY_ITEMS: of the number of items, a uint32_t */
    uint64_t min;        /* of a number, or of a list's count */
    uint64_t max;
    /* The default, with blanks between items; NULL: made of other keys. */
    const char *standard;
    bool reloadable; /* holdfast.yaml marks the key so */
    const struct key_word *words;
};

/* The number of keys, sections included. */
size_t key_count(void);

/* The key at `index`, below key_count(). The order is that of holdfast.yaml,
 * with each section before its keys. */
const struct key *key_at(size_t index);

/* The index of a key that is in the table. */
size_t key_index(const struct key *key);

/* The key of that dotted path, or NULL. */
const struct key *key_find(struct text path);

/* The list of sections that the key is part of, or NULL. */
const struct key *key_items(const struct key *key);

/* The last word of the dotted path. */
const char *key_name(const struct key *key);

/* The number of sections around the key. */
size_t key_depth(const struct key *key);

/* The key with the nearest name, for an unknown path; or NULL. */
const struct key *key_suggest(struct text path);

#endif

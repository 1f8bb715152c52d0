/*
 * The table of every key that the configuration file may have: what the loader,
 * config_print() and the tests walk, so that none of them can miss one.
 *
 * It knows nothing of YAML and of how a value is read.
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
    KEY_SECONDS,    /* the same, but whole seconds */
    KEY_CHOICE,     /* an enum's value, one of `words` */
    KEY_WORD,       /* text, one of `words` */
    KEY_PREFIX,     /* text that may stand before a lock's name in Redis */
    KEY_SPACE,      /* text that names of locks begin with */
    KEY_USER,       /* text without blanks, may be empty */
    KEY_FILE,       /* a path, may be empty */
    KEY_HOST,       /* a host's name or number, may be empty */
    KEY_LISTEN,     /* struct config_list of host:port; port 0: any */
    KEY_LISTEN_ONE, /* the same, none or one */
    KEY_NODES,      /* struct config_list of host:port */
    KEY_PATHS,      /* struct config_list of Unix sockets */
    KEY_WORDS,      /* struct config_list of any words: those of a program */
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
    size_t item_bytes;   /* KEY_ITEMS: of one of the field's array */
    size_t count_offset; /* KEY_ITEMS: of how many there are, a uint32_t */
    uint64_t min;        /* of a number; of a list's count */
    uint64_t max;
    /* The default, items with a blank between; NULL: made of other keys. */
    const char *standard;
    bool reloadable; /* by a reload; holdfast.yaml marks the key so */
    const struct key_word *words;
};

/* How many keys there are, sections among them. */
size_t key_count(void);

/* The key at `index`, below key_count(). A section comes before its keys, which
 * are in the order of the file. */
const struct key *key_at(size_t index);

/* The index of a key that is in the table. */
size_t key_index(const struct key *key);

/* The key of exactly that dotted path, or NULL. */
const struct key *key_find(struct text path);

/* The list of sections that the key is in each of; or NULL. */
const struct key *key_items(const struct key *key);

/* The last word of the dotted path. */
const char *key_name(const struct key *key);

/* How many sections it is in. */
size_t key_depth(const struct key *key);

/* The likely key for a path that is no key's; NULL: nothing near. */
const struct key *key_suggest(struct text path);

#endif

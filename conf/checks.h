/*
 * Rules between keys, the loader of a file, and differences between two
 * configurations.
 */
#ifndef HOLDFAST_CONF_CHECKS_H
#define HOLDFAST_CONF_CHECKS_H

#include "conf/config.h"
#include "conf/walk.h"

/* changes.c */

/* The number of keys, and the bytes of their names, at most. */
#define CHANGES_KEYS_MAX   96
#define CHANGES_TEXT_BYTES 1792

enum change {
    CHANGE_NONE,
    CHANGE_TAKEN, /* takes effect at once */
    CHANGE_LEFT,  /* needs a restart */
};

struct config_changes {
    enum change of[CHANGES_KEYS_MAX]; /* by key_index() */
};

/*
 * Finds the changes. A password counts as the key of its file. Turning these on
 * or off needs a restart:
 *
 *   - TLS to Redis, with the user and password of Redis;
 *   - TLS for clients;
 *   - users.
 */
void changes_find(struct config_changes *changes, const struct config *now,
    const struct config *next);

/* Marks a key whose value names a changed file. */
void changes_note(struct config_changes *changes, const char *path);

/* Copies the values that need no restart from `next` to `now`. */
void changes_take(const struct config_changes *changes, struct config *now,
    const struct config *next);

/* Whether there is such a change. */
bool changes_any(const struct config_changes *changes, enum change change);

/* The keys with such a change, with commas between them. Returns `out`. */
const char *changes_text(const struct config_changes *changes,
    enum change change, char *out, size_t out_bytes);

/* checks.c */

/* A file on its way into a struct config. */
struct loader {
    struct walk walk;
    struct config *config; /* ref: being filled */
    const struct key *key; /* ref: the key being read, or NULL */
    struct walk_place keys[CHANGES_KEYS_MAX];   /* of each key in the file */
    struct walk_place values[CHANGES_KEYS_MAX]; /* of its last value */
    bool bad[CHANGES_KEYS_MAX];                 /* it has a mistake */
    struct walk_place namespaces[CONFIG_NAMESPACES_MAX];
    size_t item; /* the index in the list of sections being read */
    /* ref: of the running daemon, which must not wait for a file; or NULL */
    const struct config *in_force;
};

/* Whether the file has the key of that dotted path, which is in the table. */
bool checks_is_given(const struct loader *loader, const char *path);

/* Checks the rules between keys, except of keys with mistakes. False: there are
 * mistakes, of a rule or of the walk. */
bool checks_run(struct loader *loader);

#endif

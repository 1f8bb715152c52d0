/*
 * Differences between the configuration in force and another one, key by key,
 * and which of them need a restart.
 */
#ifndef HOLDFAST_CONF_CHANGES_H
#define HOLDFAST_CONF_CHANGES_H

#include "conf/config.h"

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

#endif

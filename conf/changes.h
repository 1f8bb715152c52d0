/*
 * Differences between the configuration in force and another one, key by key,
 * and the keys that may change without a restart. By the table of keys.
 */
#ifndef HOLDFAST_CONF_CHANGES_H
#define HOLDFAST_CONF_CHANGES_H

#include "conf/config.h"

/* Keys there may be, and bytes that their names need at most. */
#define CHANGES_KEYS_MAX   96
#define CHANGES_TEXT_BYTES 1792

enum change {
    CHANGE_NONE,
    CHANGE_TAKEN, /* may change while the daemon runs */
    CHANGE_LEFT,  /* needs a restart */
};

struct config_changes {
    enum change of[CHANGES_KEYS_MAX]; /* by key_index() */
};

/*
 * A password counts as its file's key. Whether Redis is spoken to by TLS at all
 * is a matter of its ports, and left; so are users and passwords then. So it is
 * with TLS for clients, whose sockets are there or are not. Whether clients
 * have to be users is left, too: those who are there have come as the other.
 */
void changes_find(struct config_changes *changes, const struct config *now,
    const struct config *next);

/* The key's value is the same, but not what it names, as a file. */
void changes_note(struct config_changes *changes, const char *path);

/* Puts into `now` what of `next` is taken. */
void changes_take(const struct config_changes *changes, struct config *now,
    const struct config *next);

/* Whether any key has changed so. */
bool changes_any(const struct config_changes *changes, enum change change);

/* Those keys, with commas; empty: none. Returns `out`. */
const char *changes_text(const struct config_changes *changes,
    enum change change, char *out, size_t out_bytes);

#endif

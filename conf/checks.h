/*
 * Rules between keys, and the loader of a file.
 */
#ifndef HOLDFAST_CONF_CHECKS_H
#define HOLDFAST_CONF_CHECKS_H

#include "conf/changes.h"
#include "conf/config.h"
#include "conf/walk.h"

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

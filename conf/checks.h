/*
 * What keys must agree on, and the loader whose keys they are.
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
    const struct key *key; /* ref: the one being read, or NULL */
    struct walk_place keys[CHANGES_KEYS_MAX];   /* of each key in the file */
    struct walk_place values[CHANGES_KEYS_MAX]; /* of its (last) value */
    bool bad[CHANGES_KEYS_MAX];                 /* a mistake is in it */
    struct walk_place spaces[CONFIG_SPACES_MAX];
    size_t item; /* of the list of sections that is being read */
    /* ref: of the daemon that runs, which no file may keep waiting, or NULL */
    const struct config *in_force;
};

/* Whether the file has the key of that dotted path, which the table has. */
bool checks_is_given(const struct loader *loader, const char *path);

/*
 * Tells the mistakes of the whole configuration, but for those of keys that are
 * bad themselves. False: there are some, of the walk or of here.
 */
bool checks_run(struct loader *loader);

#endif

/*
 * The file of users: a line for each user, with words as in the protocol.
 *
 *     # credentials and rights
 *     shop   secret=sha256$SALT$DIGEST lock=stock-* lock=nightly
 *     watch  uid=1001 see=*
 *     ops    secret=... uid=0 cert=ops.example lock=* break=* admin
 */
#ifndef HOLDFAST_CONF_USERS_H
#define HOLDFAST_CONF_USERS_H

#include "daemon/base/users.h"

#define USERS_MAX        4096
#define USERS_PROOFS_MAX 8   /* secrets, uids, certificates of a user */
#define USERS_RULES_MAX  256 /* names, and beginnings of names, of a user */

/*
 * Parses the text of the file `name`. The caller owns the result. NULL: `error`
 * has a line "NAME:LINE:COLUMN: what" for each mistake, up to the bound of
 * walk_fail().
 */
struct users *users_parse(
    const char *name, struct text text, char *error, size_t error_bytes);

/*
 * Reads the file; `running` as for file_read(). Returns `before` (may be NULL)
 * if the file has not changed, so that a reload is cheap. NULL: errors as of
 * users_parse(), or "PATH: what".
 */
struct users *users_load(const char *path, bool running, struct users *before,
    char *error, size_t error_bytes);

#endif

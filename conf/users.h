/*
 * The file of users: a line for each, of words as in the protocol.
 *
 *     # how one is known, and what one may do
 *     shop   secret=sha256$SALT$DIGEST lock=stock-* lock=nightly
 *     watch  uid=1001 see=*
 *     ops    secret=... uid=0 cert=ops.example lock=* break=* admin
 */
#ifndef HOLDFAST_CONF_USERS_H
#define HOLDFAST_CONF_USERS_H

#include "daemon/base/users.h"

#define USERS_FILE_BYTES_MAX ((size_t)1024 * 1024)
#define USERS_MAX            4096
#define USERS_PROOFS_MAX     8   /* secrets, uids, certificates of a user */
#define USERS_RULES_MAX      256 /* names, and beginnings of names, of a user */

/*
 * NULL: `error` has a printable line "NAME:LINE:COLUMN: what" for each mistake,
 * as many as walk_fail() tells, cut to `error_bytes`. `name` is what the file
 * is called there; `text` need not end in NUL. The caller owns the result.
 */
struct users *users_parse(
    const char *name, struct text text, char *error, size_t error_bytes);

/*
 * The same for a file, or "PATH: what"; `running` as for file_read(). If
 * `before` was read from the same file, `before` is returned; NULL: there is
 * none. So many users cost a reload only if they change.
 */
struct users *users_load(const char *path, bool running, struct users *before,
    char *error, size_t error_bytes);

#endif

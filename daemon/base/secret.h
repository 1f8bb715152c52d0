/*
 * The rule for files of secrets: passwords of Redis and of the Sentinels,
 * secrets of users.
 *
 * A file has one secret on one line. A byte order mark before it and line ends
 * (LF or CR LF) after it are not part of it. Other leftovers of an editor or a
 * shell are refused: Redis would only say that the password is wrong.
 */
#ifndef HOLDFAST_BASE_SECRET_H
#define HOLDFAST_BASE_SECRET_H

#include "daemon/base/text.h"

/* Room for a file. A larger one has a secret that is too long. */
#define SECRET_FILE_BYTES 1024

/*
 * Takes the secret out of `file`, which has up to SECRET_FILE_BYTES. `*secret`
 * refers into it, and has `min` (1 or more) to `max` bytes. False: `why` says
 * what is wrong, as in "is empty", without any of the secret.
 */
bool secret_read(struct text file, size_t min, size_t max, struct text *secret,
    char *why, size_t why_bytes);

#endif

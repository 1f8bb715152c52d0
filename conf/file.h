/*
 * Reading of whole files.
 */
#ifndef HOLDFAST_CONF_FILE_H
#define HOLDFAST_CONF_FILE_H

#include <stdbool.h>
#include <stddef.h>

#define FILE_BYTES_MAX ((size_t)1024 * 1024)

/*
 * Reads up to `room` bytes of the file into `out`; *len is their number.
 * Returns NULL, or the error. `running`: only a regular file is read, since
 * another one may block the running daemon.
 */
const char *file_read(
    const char *path, bool running, char *out, size_t room, size_t *len);

/* Reads a file of at most FILE_BYTES_MAX. The caller frees the result. NULL:
 * *what is the error. */
char *file_load(const char *path, bool running, size_t *len, const char **what);

#endif

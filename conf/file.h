/*
 * Files that are read whole.
 */
#ifndef HOLDFAST_CONF_FILE_H
#define HOLDFAST_CONF_FILE_H

#include <stdbool.h>
#include <stddef.h>

/*
 * NULL where up to `room` bytes of it are in `out`, and how many in *len; else
 * what is wrong with it. `running`: the daemon is, and nothing but a regular
 * file is read, since another may keep it waiting.
 */
const char *file_read(
    const char *path, bool running, char *out, size_t room, size_t *len);

#endif

/*
 * Reads the files of configuration, passwords and users. It does not know their
 * contents.
 */
#include "conf/walk.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Whether a read never blocks. */
static bool
is_regular(int file)
{
    struct stat status;

    return fstat(file, &status) == 0 && S_ISREG(status.st_mode);
}

const char *
file_read(const char *path, bool running, char *out, size_t room, size_t *len)
{
    int file = open(path, O_RDONLY | O_CLOEXEC | (running ? O_NONBLOCK : 0));
    const char *what = NULL;
    ssize_t got = 1;

    *len = 0;
    if (file < 0)
        return strerror(errno);
    if (running && !is_regular(file)) {
        what = "not a regular file";
        got = 0;
    }
    while (got > 0 && *len < room) {
        got = read(file, out + *len, room - *len);
        if (got > 0)
            *len += (size_t)got;
        else if (got < 0 && errno == EINTR)
            got = 1;
    }
    if (got < 0)
        what = strerror(errno);
    close(file);
    return what;
}

char *
file_load(const char *path, bool running, size_t *len, const char **what)
{
    char *text = malloc(FILE_BYTES_MAX + 1);

    *what = "out of memory";
    if (text == NULL)
        return NULL;
    *what = file_read(path, running, text, FILE_BYTES_MAX + 1, len);
    if (*what == NULL && *len > FILE_BYTES_MAX)
        *what = "larger than 1MiB";
    if (*what == NULL)
        return text;
    free(text);
    return NULL;
}

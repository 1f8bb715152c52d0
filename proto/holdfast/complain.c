/*
 * Errors and warnings on stderr.
 */
#define _GNU_SOURCE 1

#include "proto/holdfast/command.h"

#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* One write, so that lines of processes do not mix. A line that would block is
 * dropped: run must kill its program in time, even if nobody reads stderr. */
void
complain(const char *format, ...)
{
    struct pollfd entry = {.fd = STDERR_FILENO, .events = POLLOUT};
    char line[1024] = "holdfast: ";
    size_t at = strlen(line);
    va_list arguments;

    va_start(arguments, format);
    (void)vsnprintf(line + at, sizeof(line) - at - 1, format, arguments);
    va_end(arguments);
    if (poll(&entry, 1, 0) <= 0 || entry.revents != POLLOUT)
        return;
    at = strlen(line);
    line[at++] = '\n';
    (void)!write(STDERR_FILENO, line, at);
}

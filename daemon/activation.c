/*
 * The protocol of socket activation. It is three variables, so it needs no
 * library, and every build has it. io checks whether a socket can be used.
 */
#include "daemon/process.h"

#include "daemon/base/assert.h"
#include "daemon/base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FIRST_FD  3
#define HTTP_NAME "http"
#define TLS_NAME  "tls"

static const char *const variables[] = {
    "LISTEN_PID", "LISTEN_PIDFDID", "LISTEN_FDS", "LISTEN_FDNAMES"};

/* Whether the variables are for this process, and not inherited. */
static bool
is_ours(const char *pid)
{
    uint64_t number;

    return pid != NULL && text_to_u64(text_from(pid), INT32_MAX, &number) &&
           number == (uint64_t)getpid();
}

static bool
refuse(const char *variable, const char *value, const char *why, char *error,
    size_t error_bytes)
{
    char quoted[80];

    snprintf(error, error_bytes, "%s: %s: %s", variable,
        log_quote(quoted, sizeof(quoted), text_from(value)), why);
    return false;
}

static enum socket_use
use_of(const char *name)
{
    if (strcmp(name, HTTP_NAME) == 0)
        return SOCKET_HTTP;
    return strcmp(name, TLS_NAME) == 0 ? SOCKET_TLS : SOCKET_CLIENTS;
}

/* Takes names, one for each socket, with colons; or none at all. */
static bool
take_names(struct activation *activation, const char *names)
{
    for (uint32_t i = 0; i < activation->count; i++) {
        struct loop_socket *socket = &activation->sockets[i];
        size_t len = names == NULL ? 0 : strcspn(names, ":");
        if (len >= sizeof(activation->names[i]))
            return false;
        if (len > 0)
            memcpy(activation->names[i], names, len);
        activation->names[i][len] = '\0';
        socket->name = len > 0 ? activation->names[i] : "unnamed";
        socket->use = use_of(activation->names[i]);
        if (names == NULL)
            continue;
        bool last = i + 1 == activation->count;
        if ((names[len] == '\0') != last)
            return false;
        names += len + !last;
    }
    return true;
}

static bool
take(struct activation *activation, char *error, size_t error_bytes)
{
    const char *count = getenv("LISTEN_FDS");
    const char *names = getenv("LISTEN_FDNAMES");
    uint64_t number;

    if (count == NULL || !is_ours(getenv("LISTEN_PID")))
        return true;
    if (!text_to_u64(text_from(count), ACTIVATION_MAX, &number))
        return refuse(variables[2], count, "a number from 0 to 64 expected",
            error, error_bytes);
    activation->count = (uint32_t)number;
    if (!take_names(activation, names)) {
        require(names != NULL); /* no names fit any sockets */
        return refuse(variables[3], names, "one name for each socket expected",
            error, error_bytes);
    }
    for (uint32_t i = 0; i < activation->count; i++) {
        int fd = FIRST_FD + (int)i;
        activation->sockets[i].fd = fd;
        if (fcntl(fd, F_SETFD, FD_CLOEXEC) != 0) {
            snprintf(error, error_bytes, "LISTEN_FDS: descriptor %d: %s", fd,
                strerror(errno));
            return false;
        }
    }
    return true;
}

bool
activation_take(struct activation *activation, char *error, size_t error_bytes)
{
    memset(activation, 0, sizeof(*activation));
    bool taken = take(activation, error, error_bytes);
    for (size_t i = 0; i < sizeof(variables) / sizeof(variables[0]); i++)
        (void)unsetenv(variables[i]);
    return taken;
}

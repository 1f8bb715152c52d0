/* Clock, sockets and lines for the measuring modes: see net.h. */
#include "tests/bench/net.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

uint64_t
clock_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000U + (uint64_t)now.tv_nsec;
}

void
die(const char *format, ...)
{
    va_list arguments;

    fputs("loadgen: ", stderr);
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fputc('\n', stderr);
    exit(1);
}

static int
connect_unix(const char *path)
{
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (strlen(path) >= sizeof(to.sun_path))
        die("%s: too long for a socket", path);
    memcpy(to.sun_path, path, strlen(path) + 1);
    if (fd < 0 || connect(fd, (struct sockaddr *)&to, sizeof(to)) != 0)
        die("%s: %s", path, strerror(errno));
    return fd;
}

static int
connect_tcp(const char *address)
{
    struct sockaddr_in to = {.sin_family = AF_INET};
    const char *colon = strrchr(address, ':');
    char host[64];
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int on = 1;

    if (colon == NULL || (size_t)(colon - address) >= sizeof(host))
        die("%s: not HOST:PORT", address);
    memcpy(host, address, (size_t)(colon - address));
    host[colon - address] = '\0';
    to.sin_port = htons((uint16_t)strtoul(colon + 1, NULL, 10));
    if (inet_pton(AF_INET, host, &to.sin_addr) != 1)
        die("%s: not a number", host);
    if (fd < 0 || connect(fd, (struct sockaddr *)&to, sizeof(to)) != 0)
        die("%s: %s", address, strerror(errno));
    if (setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)) != 0)
        die("TCP_NODELAY: %s", strerror(errno));
    return fd;
}

int
net_connect(const char *address)
{
    return strchr(address, '/') != NULL ? connect_unix(address)
                                        : connect_tcp(address);
}

void
net_nonblocking(int fd)
{
    int flags = fcntl(fd, F_GETFL);

    if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) != 0)
        die("O_NONBLOCK: %s", strerror(errno));
}

uint64_t
net_raise_descriptors(void)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) != 0)
        die("descriptors: %s", strerror(errno));
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
    return limit.rlim_cur;
}

void
peer_open(struct peer *peer, const char *address)
{
    peer->fd = net_connect(address);
    peer->start = 0;
    peer->used = 0;
}

void
peer_close(struct peer *peer)
{
    close(peer->fd);
    peer->fd = -1;
}

void
write_all(int fd, const void *data, size_t bytes)
{
    const char *at = data;

    while (bytes > 0) {
        ssize_t done = write(fd, at, bytes);

        if (done < 0 && errno == EINTR)
            continue;
        if (done < 0)
            die("write: %s", strerror(errno));
        at += done;
        bytes -= (size_t)done;
    }
}

bool
read_all(int fd, void *data, size_t bytes)
{
    char *at = data;

    while (bytes > 0) {
        ssize_t done = read(fd, at, bytes);

        if (done < 0 && errno == EINTR)
            continue;
        if (done <= 0)
            return false;
        at += done;
        bytes -= (size_t)done;
    }
    return true;
}

void
peer_send_bytes(struct peer *peer, const char *data, size_t bytes)
{
    write_all(peer->fd, data, bytes);
}

void
peer_send(struct peer *peer, const char *format, ...)
{
    char line[4096];
    va_list arguments;
    int bytes;

    va_start(arguments, format);
    bytes = vsnprintf(line, sizeof(line), format, arguments);
    va_end(arguments);
    if (bytes < 0 || (size_t)bytes >= sizeof(line))
        die("a line is too long");
    write_all(peer->fd, line, (size_t)bytes);
}

static char *
peer_find_end(const struct peer *peer)
{
    return memchr(
        (const void *)(peer->in + peer->start), '\n', peer->used - peer->start);
}

bool
peer_has_line(const struct peer *peer)
{
    return peer_find_end(peer) != NULL;
}

/* Reads once; false where nothing came in time. */
static bool
peer_fill(struct peer *peer, int timeout_ms)
{
    struct pollfd wait = {.fd = peer->fd, .events = POLLIN};
    ssize_t bytes;

    memmove(peer->in, peer->in + peer->start, peer->used - peer->start);
    peer->used -= peer->start;
    peer->start = 0;
    if (peer->used == sizeof(peer->in))
        die("a line without end");
    if (poll(&wait, 1, timeout_ms) <= 0)
        return false;
    bytes =
        read(peer->fd, peer->in + peer->used, sizeof(peer->in) - peer->used);
    if (bytes <= 0)
        die("the connection ended: %s", bytes == 0 ? "FIN" : strerror(errno));
    peer->used += (size_t)bytes;
    return true;
}

char *
peer_line(struct peer *peer, int timeout_ms)
{
    uint64_t begin = clock_ns();
    char *line;
    char *end;

    while ((end = peer_find_end(peer)) == NULL) {
        int gone = (int)((clock_ns() - begin) / 1000000U);

        if (!peer_fill(peer, gone < timeout_ms ? timeout_ms - gone : 0))
            return NULL;
    }
    line = peer->in + peer->start;
    peer->start = (size_t)(end - peer->in) + 1;
    if (end > line && end[-1] == '\r')
        end--;
    *end = '\0';
    return line;
}

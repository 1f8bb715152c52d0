/*
 * The socket of a connection: from an address to bytes in and out. Knows no
 * lines. Never blocks, but for looking up a host's name in
 * holdfast_link_resolve().
 *
 * The addresses of a name are tried in their order, each for CLIENT_CONNECT_MS.
 */
#define _GNU_SOURCE 1

#include "proto/client/client.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/un.h>
#include <unistd.h>

#define PORT_DEFAULT "4653"

static enum holdfast_status
resolve_path(struct holdfast *h, const char *path)
{
    struct sockaddr_un local = {.sun_family = AF_UNIX};
    size_t len = strlen(path);

    if (len >= sizeof(local.sun_path))
        return HOLDFAST_BAD_ADDRESS;
    memcpy(local.sun_path, path, len + 1);
    memcpy(&h->peers[0].address, &local, sizeof(local));
    h->peers[0].len = sizeof(local);
    h->peer_count = 1;
    return HOLDFAST_SUCCESS;
}

/* "HOST:PORT", "[V6]:PORT" and both without a port. */
static bool
address_split(
    const char *address, char *host, size_t host_bytes, const char **port)
{
    const char *start = address;
    const char *end;

    if (address[0] == '[') {
        start = address + 1;
        end = strchr(start, ']');
        if (end == NULL || (end[1] != ':' && end[1] != '\0'))
            return false;
        *port = end[1] == ':' ? end + 2 : PORT_DEFAULT;
    } else {
        end = strchr(start, ':');
        *port = end != NULL ? end + 1 : PORT_DEFAULT;
        if (end == NULL)
            end = start + strlen(start);
        else if (strchr(end + 1, ':') != NULL)
            return false;
    }
    size_t len = (size_t)(end - start);
    if (len == 0 || len >= host_bytes)
        return false;
    memcpy(host, start, len);
    host[len] = '\0';

    uint64_t number;
    return holdfast_number(*port, &number) && number > 0 && number < 65536;
}

enum holdfast_status
holdfast_link_resolve(struct holdfast *h, const char *address)
{
    struct addrinfo hints = {.ai_family = AF_UNSPEC,
        .ai_socktype = SOCK_STREAM,
        .ai_flags = AI_NUMERICSERV};
    struct addrinfo *found = NULL;
    const char *port;
    char host[256];

    if (strchr(address, '/') != NULL)
        return resolve_path(h, address);
    if (!address_split(address, host, sizeof(host), &port))
        return HOLDFAST_BAD_ADDRESS;
    int failed = getaddrinfo(host, port, &hints, &found);
    if (failed != 0)
        return failed == EAI_MEMORY ? HOLDFAST_NO_MEMORY : HOLDFAST_NO_HOST;
    for (struct addrinfo *at = found; at != NULL; at = at->ai_next) {
        if (h->peer_count < CLIENT_PEERS &&
            at->ai_addrlen <= sizeof(h->peers[0].address)) {
            struct holdfast_peer *peer = &h->peers[h->peer_count++];
            memcpy(&peer->address, at->ai_addr, at->ai_addrlen);
            peer->len = at->ai_addrlen;
        }
    }
    freeaddrinfo(found);
    return h->peer_count > 0 ? HOLDFAST_SUCCESS : HOLDFAST_NO_HOST;
}

/*
 * Small lines, so no Nagle; and a dead host is noticed by TCP in about ten
 * seconds, as the broker does it. Failing here costs only that.
 */
static void
socket_tune(int fd)
{
    static const struct {
        int level;
        int name;
        int value;
    } options[] = {
        {IPPROTO_TCP, TCP_NODELAY, 1},
        {SOL_SOCKET, SO_KEEPALIVE, 1},
        {IPPROTO_TCP, TCP_KEEPIDLE, 5},
        {IPPROTO_TCP, TCP_KEEPINTVL, 2},
        {IPPROTO_TCP, TCP_KEEPCNT, 3},
        {IPPROTO_TCP, TCP_USER_TIMEOUT, 10000},
    };

    for (size_t i = 0; i < sizeof(options) / sizeof(options[0]); i++) {
        (void)setsockopt(fd, options[i].level, options[i].name,
            &options[i].value, sizeof(options[i].value));
    }
}

static void
link_greet(struct holdfast *h)
{
    h->link = LINK_GREETING;
    h->connect_deadline_ms = holdfast_now_ms(h) + CLIENT_SILENCE_MS / 2;
}

static void
link_drop_socket(struct holdfast *h)
{
    if (h->fd >= 0) {
        (void)close(h->fd);
        h->fd = -1;
    }
}

/* Tries the addresses that are left, `error` being why the last one failed. */
static void
link_try(struct holdfast *h, int error)
{
    while (h->peer_next < h->peer_count) {
        const struct holdfast_peer *peer = &h->peers[h->peer_next++];

        link_drop_socket(h);
        h->fd = socket(peer->address.ss_family,
            SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
        if (h->fd < 0) {
            error = errno;
            continue;
        }
        if (peer->address.ss_family != AF_UNIX)
            socket_tune(h->fd);
        if (connect(h->fd, (const struct sockaddr *)&peer->address,
                peer->len) == 0) {
            link_greet(h);
            return;
        }
        if (errno == EINPROGRESS) {
            h->link = LINK_CONNECTING;
            h->connect_deadline_ms = holdfast_now_ms(h) + CLIENT_CONNECT_MS;
            return;
        }
        error = errno;
    }
    holdfast_link_close(h, strerror(error));
}

void
holdfast_link_connect(struct holdfast *h)
{
    link_try(h, ENOENT);
}

void
holdfast_link_connected(struct holdfast *h, short revents)
{
    int error = 0;
    socklen_t len = sizeof(error);

    if ((revents & (POLLOUT | POLLERR | POLLHUP)) == 0)
        return;
    if (getsockopt(h->fd, SOL_SOCKET, SO_ERROR, &error, &len) < 0)
        error = errno;
    if (error != 0) {
        link_try(h, error);
        return;
    }
    link_greet(h);
}

void
holdfast_link_expire(struct holdfast *h, uint64_t now_ms)
{
    if (now_ms < h->connect_deadline_ms)
        return;
    if (h->link == LINK_CONNECTING)
        link_try(h, ETIMEDOUT);
    else if (h->link == LINK_GREETING)
        holdfast_link_close(h, "connected, but there is no greeting");
}

/* Room for `len` more bytes of output. */
static bool
out_reserve(struct holdfast *h, size_t len)
{
    size_t used = h->out_end - h->out_start;

    if (h->out_start > 0) {
        memmove(h->out, h->out + h->out_start, used);
        h->out_start = 0;
        h->out_end = used;
    }
    if (h->out_bytes - used >= len)
        return true;
    size_t bytes = h->out_bytes == 0 ? 1024 : h->out_bytes;
    while (bytes - used < len)
        bytes *= 2;
    char *grown = realloc(h->out, bytes);
    if (grown == NULL)
        return false;
    h->out = grown;
    h->out_bytes = bytes;
    return true;
}

enum holdfast_status
holdfast_link_append(struct holdfast *h, const char *bytes, size_t len)
{
    if (h->link == LINK_CLOSED)
        return HOLDFAST_NOT_CONNECTED;
    if (h->out_end - h->out_start + len > CLIENT_OUT_BYTES)
        return HOLDFAST_FULL;
    if (h->out_bytes - h->out_end < len && !out_reserve(h, len))
        return HOLDFAST_NO_MEMORY;
    memcpy(h->out + h->out_end, bytes, len);
    h->out_end += len;
    return HOLDFAST_SUCCESS;
}

void
holdfast_link_flush(struct holdfast *h)
{
    if (h->link != LINK_GREETING && h->link != LINK_OPEN)
        return;
    while (h->out_start < h->out_end) {
        ssize_t sent = send(h->fd, h->out + h->out_start,
            h->out_end - h->out_start, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent >= 0) {
            h->out_start += (size_t)sent;
            continue;
        }
        if (errno == EINTR)
            continue;
        if (errno != EAGAIN && errno != EWOULDBLOCK)
            holdfast_link_close(h, strerror(errno));
        return;
    }
    h->out_start = 0;
    h->out_end = 0;
}

/* False: nothing more for now, or the connection is over. */
bool
holdfast_link_fill(struct holdfast *h)
{
    for (;;) {
        ssize_t got = recv(
            h->fd, h->in + h->in_len, sizeof(h->in) - h->in_len, MSG_DONTWAIT);
        if (got > 0) {
            h->in_len += (size_t)got;
            return true;
        }
        if (got == 0) {
            holdfast_link_close(h, "the broker closed the connection");
            return false;
        }
        if (errno == EINTR)
            continue;
        if (errno != EAGAIN && errno != EWOULDBLOCK)
            holdfast_link_close(h, strerror(errno));
        return false;
    }
}

void
holdfast_link_close(struct holdfast *h, const char *reason)
{
    link_drop_socket(h);
    h->link = LINK_CLOSED;
    if (h->reason[0] == '\0')
        (void)snprintf(h->reason, sizeof(h->reason), "%s", reason);
    h->out_start = 0;
    h->out_end = 0;
    h->ping_outstanding = false;
    holdfast_pending_clear(h);
    holdfast_kept_clear(h);
}

/*
 * The socket of a connection: connecting, bytes in and out. Knows no lines.
 * Never blocks.
 *
 * The addresses are tried in turn, each for CLIENT_CONNECT_MS, each once in a
 * round. The first round that is in vain is the end; of a session that is
 * known, and kept, another one follows after a pause.
 */
#define _GNU_SOURCE 1

#include "proto/client/client.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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
    uint64_t limit = holdfast_session_known(h) || h->peer_count > 1
                         ? CLIENT_CONNECT_MS
                         : CLIENT_SILENCE_MS / 2;

    h->link = LINK_GREETING;
    h->connect_deadline_ms = holdfast_now_ms(h) + limit;
}

static void
link_drop_socket(struct holdfast *h)
{
    if (h->fd >= 0) {
        (void)close(h->fd);
        h->fd = -1;
    }
    h->in_len = 0;
    h->connection++;
}

void
holdfast_link_drop(struct holdfast *h)
{
    link_drop_socket(h);
    h->out_start = 0;
    h->out_end = 0;
    h->ping_outstanding = false;
}

/* Tries what is left of the round, `reason` being why the last one failed. */
static void
link_try(struct holdfast *h, const char *reason)
{
    while (h->peer_left > 0) {
        const struct holdfast_peer *peer = &h->peers[h->peer_next];

        h->peer_origin = peer->origin;
        h->peer_next = (h->peer_next + 1) % h->peer_count;
        h->peer_left--;
        link_drop_socket(h);
        h->fd = socket(peer->address.ss_family,
            SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
        if (h->fd < 0) {
            reason = strerror(errno);
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
        reason = strerror(errno);
    }
    if (holdfast_session_known(h))
        holdfast_session_pause(h, reason);
    else
        holdfast_link_close(h, reason);
}

void
holdfast_link_connect(struct holdfast *h)
{
    h->peer_left = h->peer_count;
    link_try(h, strerror(ENOENT));
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
        link_try(h, strerror(error));
        return;
    }
    link_greet(h);
}

void
holdfast_link_lost(struct holdfast *h, const char *reason)
{
    switch (h->link) {
    case LINK_CONNECTING:
    case LINK_GREETING:
        link_try(h, h->reason[0] != '\0' ? h->reason : reason);
        return;
    case LINK_RESUMING:
        holdfast_session_away(h, reason);
        link_try(h, reason);
        return;
    case LINK_OPEN:
        if (h->final || h->keep_ms == 0)
            holdfast_link_close(h, reason);
        else
            holdfast_session_away(h, reason);
        return;
    case LINK_AWAY:
    case LINK_CLOSED:
        return;
    }
}

void
holdfast_link_expire(struct holdfast *h, uint64_t now_ms)
{
    switch (h->link) {
    case LINK_CONNECTING:
        if (now_ms >= h->connect_deadline_ms)
            link_try(h, strerror(ETIMEDOUT));
        return;
    case LINK_GREETING:
    case LINK_RESUMING:
        if (now_ms >= h->connect_deadline_ms)
            holdfast_link_lost(h, "connected, but there is no greeting");
        return;
    case LINK_AWAY:
        if (now_ms >= h->retry_ms)
            holdfast_link_connect(h);
        return;
    case LINK_OPEN:
    case LINK_CLOSED:
        return;
    }
}

bool
holdfast_link_reads(const struct holdfast *h)
{
    return h->link == LINK_GREETING || h->link == LINK_RESUMING ||
           h->link == LINK_OPEN;
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

/*
 * While there is another address to try, nothing is sent before the greeting,
 * for it could not be sent again.
 */
bool
holdfast_link_writes(const struct holdfast *h)
{
    return holdfast_link_reads(h) &&
           (h->link != LINK_GREETING || h->peer_count <= 1);
}

void
holdfast_link_flush(struct holdfast *h)
{
    if (!holdfast_link_writes(h))
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
            holdfast_link_lost(h, strerror(errno));
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
            holdfast_link_lost(h, "the broker closed the connection");
            return false;
        }
        if (errno == EINTR)
            continue;
        if (errno != EAGAIN && errno != EWOULDBLOCK)
            holdfast_link_lost(h, strerror(errno));
        return false;
    }
}

void
holdfast_link_close(struct holdfast *h, const char *reason)
{
    holdfast_link_drop(h);
    h->link = LINK_CLOSED;
    if (h->reason[0] == '\0')
        (void)snprintf(h->reason, sizeof(h->reason), "%s", reason);
    holdfast_pending_clear(h);
    holdfast_kept_clear(h);
    holdfast_watches_clear(h);
}

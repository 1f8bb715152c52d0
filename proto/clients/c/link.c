/*
 * The socket of a connection, and its transport: connecting, bytes in and out.
 * It knows no lines, and never blocks.
 *
 * A round tries each peer once, for CLIENT_CONNECT_MS. If the first round fails
 * the connection closes. A kept session with an ID tries another round after a
 * pause.
 *
 * A failed handshake counts as a failed peer, since nothing was sent to it. So
 * one broker with an expired certificate does not matter if others are well. If
 * the whole round fails, the error of the handshake is the reason.
 *
 * The time for handshake and greeting begins when the socket is connected.
 */
#define _GNU_SOURCE 1

#include "proto/clients/c/link.h"
#include "proto/clients/c/client.h"

#include <assert.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Lines are short, so Nagle is off. TCP detects a dead host in about ten
 * seconds, as at the broker. An error here is harmless. */
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

/* Keeps the first error of a transport before the greeting. */
static void
unshaken_keep(struct holdfast *h, const char *why)
{
    if (h->unshaken[0] == '\0')
        (void)snprintf(h->unshaken, sizeof(h->unshaken), "%s", why);
}

/* Continues the handshake. False: it failed; the caller tries the next peer. */
static bool
link_shake(struct holdfast *h)
{
    switch (h->transport->shake(h->through)) {
    case HOLDFAST_MOVED_DONE:
        h->read_wants = POLLIN;
        h->link = LINK_GREETING;
        return true;
    case HOLDFAST_MOVED_WANTS_READ:
        h->read_wants = POLLIN;
        return true;
    case HOLDFAST_MOVED_WANTS_WRITE:
        h->read_wants = POLLOUT;
        return true;
    case HOLDFAST_MOVED_END:
    case HOLDFAST_MOVED_BROKEN:
        break;
    }
    unshaken_keep(h, h->transport->why(h->through));
    return false;
}

/* The socket is connected: begins the handshake, or awaits the greeting. False:
 * as link_shake(). */
static bool
link_greet(struct holdfast *h)
{
    uint64_t limit = holdfast_session_known(h) || h->peer_count > 1
                         ? CLIENT_CONNECT_MS
                         : CLIENT_SILENCE_MS / 2;

    assert(h->fd >= 0 && h->through == NULL); /* link_try() made the socket */
    h->connect_deadline_ms = holdfast_now_ms(h) + limit;
    if (h->transport == NULL) {
        h->link = LINK_GREETING;
        return true;
    }
    h->link = LINK_SHAKING;
    h->through = h->transport->create(
        h->transport->context, h->fd, h->hosts[h->peer_origin]);
    if (h->through != NULL)
        return link_shake(h);
    unshaken_keep(h, strerror(ENOMEM));
    return false;
}

static void
link_drop_socket(struct holdfast *h)
{
    if (h->through != NULL) {
        h->transport->destroy(h->through);
        h->through = NULL;
    }
    h->read_wants = POLLIN;
    h->write_wants = POLLOUT;
    holdfast_fork_lock();
    if (h->fd >= 0)
        (void)close(h->fd);
    h->fd = -1;
    holdfast_fork_unlock();
    h->in_len = 0;
    h->connection++;
}

/* Drops the socket and the output. */
static void
link_drop(struct holdfast *h)
{
    link_drop_socket(h);
    h->out_start = 0;
    h->out_end = 0;
    h->ping_outstanding = false;
}

static uint64_t
pause_ms(struct holdfast *h)
{
    uint64_t pause = CLIENT_PAUSE_MIN_MS;

    if (h->rounds == 0)
        return holdfast_random(h, pause);
    for (unsigned i = 1; i < h->rounds && pause < CLIENT_PAUSE_MAX_MS; i++)
        pause *= 2;
    if (pause > CLIENT_PAUSE_MAX_MS)
        pause = CLIENT_PAUSE_MAX_MS;
    return pause / 2 + holdfast_random(h, pause / 2 + 1);
}

static void
reason_keep(struct holdfast *h, const char *reason)
{
    if (h->reason[0] == '\0')
        (void)snprintf(h->reason, sizeof(h->reason), "%s", reason);
}

void
holdfast_link_pause(struct holdfast *h, const char *reason)
{
    reason_keep(h, reason);
    link_drop(h);
    h->link = LINK_AWAY;
    h->retry_ms = holdfast_now_ms(h) + pause_ms(h);
}

/* Tries the rest of the round; `reason` is the error of the last peer. */
static void
link_try(struct holdfast *h, const char *reason)
{
    assert(h->peer_left <= h->peer_count);
    while (h->peer_left > 0) {
        const struct holdfast_peer *peer = &h->peers[h->peer_next];

        h->peer_origin = peer->origin;
        h->peer_next = (h->peer_next + 1) % h->peer_count;
        h->peer_left--;
        link_drop_socket(h);
        holdfast_fork_lock();
        h->fd = socket(peer->address.ss_family,
            SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
        int error = errno;
        holdfast_fork_unlock();
        if (h->fd < 0) {
            reason = strerror(error);
            continue;
        }
        if (peer->address.ss_family != AF_UNIX)
            socket_tune(h->fd);
        if (connect(h->fd, (const struct sockaddr *)&peer->address,
                peer->len) == 0) {
            if (link_greet(h))
                return;
            continue;
        }
        if (errno == EINPROGRESS) {
            h->link = LINK_CONNECTING;
            h->connect_deadline_ms = holdfast_now_ms(h) + CLIENT_CONNECT_MS;
            return;
        }
        reason = strerror(errno);
    }
    if (h->unshaken[0] != '\0')
        reason = h->unshaken;
    if (!holdfast_session_known(h)) {
        holdfast_link_close(h, reason);
        return;
    }
    h->rounds++;
    holdfast_link_pause(h, reason);
}

void
holdfast_link_connect(struct holdfast *h)
{
    h->peer_left = h->peer_count;
    h->unshaken[0] = '\0';
    link_try(h, strerror(ENOENT));
}

void
holdfast_link_connected(struct holdfast *h, short revents)
{
    int error = 0;
    socklen_t len = sizeof(error);

    if (h->link == LINK_SHAKING && !link_shake(h)) {
        link_try(h, h->unshaken);
        return; /* `revents` is of the old socket */
    }
    if (h->link != LINK_CONNECTING ||
        (revents & (POLLOUT | POLLERR | POLLHUP)) == 0)
        return;
    if (getsockopt(h->fd, SOL_SOCKET, SO_ERROR, &error, &len) < 0)
        error = errno;
    if (error != 0) {
        link_try(h, strerror(error));
        return;
    }
    if (!link_greet(h))
        link_try(h, h->unshaken);
}

void
holdfast_link_lost(struct holdfast *h, const char *reason)
{
    switch (h->link) {
    case LINK_CONNECTING:
    case LINK_SHAKING:
    case LINK_GREETING:
        link_try(h, h->reason[0] != '\0' ? h->reason : reason);
        return;
    case LINK_RESUMING:
        h->lost(h, reason);
        link_try(h, reason);
        return;
    case LINK_OPEN:
        if (h->final || h->keep_ms == 0)
            holdfast_link_close(h, reason);
        else
            h->lost(h, reason);
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
    case LINK_SHAKING:
        if (now_ms >= h->connect_deadline_ms) {
            unshaken_keep(h, "connected, but the handshake does not end");
            link_try(h, h->unshaken);
        }
        return;
    case LINK_GREETING:
    case LINK_RESUMING:
        if (now_ms >= h->connect_deadline_ms)
            holdfast_link_lost(h, "connected, but no greeting came");
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

/* Makes room for `len` more bytes of output. False: no memory. */
static bool
out_reserve(struct holdfast *h, size_t len)
{
    size_t used = h->out_end - h->out_start;

    assert(h->out_start <= h->out_end && h->out_end <= h->out_bytes);
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

/* With several peers nothing is sent before the greeting, since it could not be
 * sent to the next peer again. */
static bool
holdfast_link_writes(const struct holdfast *h)
{
    return holdfast_link_reads(h) &&
           (h->link != LINK_GREETING || h->peer_count <= 1);
}

short
holdfast_link_events(const struct holdfast *h, bool input, bool output)
{
    short events = 0;

    if (h->link == LINK_CONNECTING)
        return POLLOUT;
    if (h->link == LINK_SHAKING)
        return h->read_wants;
    if (!holdfast_link_reads(h))
        return 0;
    if (input)
        events |= h->read_wants;
    if (output && holdfast_link_writes(h))
        events |= h->write_wants;
    return events;
}

bool
holdfast_link_pending(const struct holdfast *h)
{
    return h->through != NULL && holdfast_link_reads(h) &&
           h->transport->pending(h->through);
}

/* The result of a call of the socket, of `moved` bytes or -1. */
static enum holdfast_moved
socket_moved(ssize_t moved, enum holdfast_moved wants, char *why)
{
    if (moved >= 0)
        return HOLDFAST_MOVED_DONE;
    if (errno == EAGAIN || errno == EWOULDBLOCK)
        return wants;
    (void)snprintf(why, CLIENT_WHY_BYTES, "%s", strerror(errno));
    return HOLDFAST_MOVED_BROKEN;
}

/* The result of a call of the transport. *wants is what to poll for until the
 * next call. */
static enum holdfast_moved
transport_moved(struct holdfast *h, enum holdfast_moved moved, short usual,
    short *wants, char *why)
{
    *wants = usual;
    if (moved == HOLDFAST_MOVED_WANTS_READ)
        *wants = POLLIN;
    else if (moved == HOLDFAST_MOVED_WANTS_WRITE)
        *wants = POLLOUT;
    else if (moved == HOLDFAST_MOVED_BROKEN)
        (void)snprintf(
            why, CLIENT_WHY_BYTES, "%s", h->transport->why(h->through));
    return moved;
}

enum holdfast_moved
holdfast_link_send(
    struct holdfast *h, const char *bytes, size_t len, size_t *sent, char *why)
{
    ssize_t moved;

    if (h->through != NULL)
        return transport_moved(h,
            h->transport->write(h->through, bytes, len, sent), POLLOUT,
            &h->write_wants, why);
    do {
        moved = send(h->fd, bytes, len, MSG_NOSIGNAL | MSG_DONTWAIT);
    } while (moved < 0 && errno == EINTR);
    *sent = moved > 0 ? (size_t)moved : 0;
    return socket_moved(moved, HOLDFAST_MOVED_WANTS_WRITE, why);
}

enum holdfast_moved
holdfast_link_receive(
    struct holdfast *h, char *out, size_t room, size_t *got, char *why)
{
    ssize_t moved;

    if (h->through != NULL)
        return transport_moved(h,
            h->transport->read(h->through, out, room, got), POLLIN,
            &h->read_wants, why);
    do {
        moved = recv(h->fd, out, room, MSG_DONTWAIT);
    } while (moved < 0 && errno == EINTR);
    *got = moved > 0 ? (size_t)moved : 0;
    if (moved == 0)
        return HOLDFAST_MOVED_END;
    return socket_moved(moved, HOLDFAST_MOVED_WANTS_READ, why);
}

enum holdfast_moved
holdfast_link_finish(struct holdfast *h)
{
    char why[CLIENT_WHY_BYTES];

    if (h->through != NULL && h->out_start < h->out_end)
        return HOLDFAST_MOVED_WANTS_WRITE;
    if (h->through != NULL) {
        enum holdfast_moved moved = transport_moved(
            h, h->transport->finish(h->through), POLLOUT, &h->write_wants, why);
        if (moved != HOLDFAST_MOVED_DONE)
            return moved;
    }
    (void)shutdown(h->fd, SHUT_WR);
    return HOLDFAST_MOVED_DONE;
}

/* A call has ended the connection. */
static void
link_broken(struct holdfast *h, enum holdfast_moved moved, const char *why)
{
    /* In TLS 1.3 the peer refuses a certificate after the handshake. */
    if (moved == HOLDFAST_MOVED_BROKEN && h->through != NULL &&
        h->link == LINK_GREETING)
        unshaken_keep(h, why);
    holdfast_link_lost(h, why);
}

void
holdfast_link_flush(struct holdfast *h)
{
    char why[CLIENT_WHY_BYTES];

    if (!holdfast_link_writes(h))
        return;
    while (h->out_start < h->out_end) {
        size_t sent = 0;
        enum holdfast_moved moved = holdfast_link_send(
            h, h->out + h->out_start, h->out_end - h->out_start, &sent, why);
        if (moved == HOLDFAST_MOVED_BROKEN)
            link_broken(h, moved, why);
        if (moved != HOLDFAST_MOVED_DONE)
            return;
        h->out_start += sent;
        assert(h->out_start <= h->out_end);
    }
    h->out_start = 0;
    h->out_end = 0;
}

bool
holdfast_link_fill(struct holdfast *h)
{
    char why[CLIENT_WHY_BYTES] = "the broker closed the connection";
    size_t got = 0;

    /* A read of no bytes would look like the end of the connection. */
    assert(h->in_len < sizeof(h->in));
    enum holdfast_moved moved = holdfast_link_receive(
        h, h->in + h->in_len, sizeof(h->in) - h->in_len, &got, why);

    h->in_len += got;
    assert(h->in_len <= sizeof(h->in));
    if (moved == HOLDFAST_MOVED_END || moved == HOLDFAST_MOVED_BROKEN)
        link_broken(h, moved, why);
    return moved == HOLDFAST_MOVED_DONE;
}

void
holdfast_link_close(struct holdfast *h, const char *reason)
{
    link_drop(h);
    h->link = LINK_CLOSED;
    reason_keep(h, reason);
}

/* Connections of the closed loop: see channel.h. */
#include "tests/bench/channel.h"

#include "tests/bench/net.h"

#include "proto/clients/c/holdfast.h"
#include "proto/tls/holdfast_tls.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define CONNECT_MS 30000

static const struct holdfast_transport *transport; /* NULL: no TLS */

void
channels_use_tls(const char *ca)
{
    struct holdfast_tls_options options = {.ca = ca, .verify = HOLDFAST_TLS_CA};
    char why[256];
    const struct holdfast_tls *tls =
        holdfast_tls_create(&options, why, sizeof(why));

    if (tls == NULL)
        die("%s", why);
    transport = holdfast_tls_transport(tls);
}

/* Whether it is done; what it wants else is awaited. */
static bool
channel_moved(const struct channel *channel, enum holdfast_moved moved)
{
    struct pollfd wait = {.fd = channel->fd, .events = POLLIN};

    if (moved == HOLDFAST_MOVED_DONE)
        return true;
    if (moved == HOLDFAST_MOVED_WANTS_WRITE)
        wait.events = POLLOUT;
    else if (moved != HOLDFAST_MOVED_WANTS_READ)
        die("a connection by TLS: %s", transport->why(channel->link));
    if (poll(&wait, 1, CONNECT_MS) <= 0)
        die("a connection stands still");
    return false;
}

static void
channel_await(const struct channel *channel)
{
    (void)channel_moved(channel, HOLDFAST_MOVED_WANTS_READ);
}

void
channel_open(struct channel *channel, const char *address, bool greets)
{
    char byte = '\0';

    channel->fd = net_connect(address);
    net_nonblocking(channel->fd);
    channel->link = NULL;
    if (transport != NULL) {
        channel->link =
            transport->create(transport->context, channel->fd, "localhost");
        if (channel->link == NULL)
            die("no memory");
        while (!channel_moved(channel, transport->shake(channel->link)))
            ;
    }
    while (greets && byte != '\n') {
        if (channel_read(channel, &byte, 1) == 0)
            channel_await(channel);
    }
}

void
channel_close(struct channel *channel)
{
    if (channel->link != NULL)
        transport->destroy(channel->link);
    close(channel->fd);
}

static size_t
tls_read(struct channel *channel, char *out, size_t room)
{
    size_t bytes = 0;

    switch (transport->read(channel->link, out, room, &bytes)) {
    case HOLDFAST_MOVED_DONE:
        return bytes;
    case HOLDFAST_MOVED_WANTS_READ:
        return 0;
    case HOLDFAST_MOVED_WANTS_WRITE:
    case HOLDFAST_MOVED_END:
    case HOLDFAST_MOVED_BROKEN:
    default:
        die("a connection ended: %s", transport->why(channel->link));
    }
}

size_t
channel_read(struct channel *channel, char *out, size_t room)
{
    if (channel->link != NULL)
        return tls_read(channel, out, room);
    ssize_t bytes = recv(channel->fd, out, room, 0);
    if (bytes < 0 && errno == EAGAIN)
        return 0;
    if (bytes <= 0)
        die("a connection ended: %s", bytes == 0 ? "FIN" : strerror(errno));
    return (size_t)bytes;
}

bool
channel_has_more(const struct channel *channel)
{
    return channel->link != NULL && transport->pending(channel->link);
}

void
channel_write(struct channel *channel, const char *bytes, size_t len)
{
    size_t sent = 0;

    if (channel->link != NULL) {
        if (transport->write(channel->link, bytes, len, &sent) !=
                HOLDFAST_MOVED_DONE ||
            sent != len)
            die("a write of %zu bytes did not go out: %s", len,
                transport->why(channel->link));
        return;
    }
    ssize_t done = send(channel->fd, bytes, len, MSG_NOSIGNAL);
    if (done != (ssize_t)len)
        die("a write of %zu bytes did not go out: %s", len,
            done < 0 ? strerror(errno) : "too many lanes");
}

/*
 * Listeners, and the clients that they accept or refuse.
 *
 * handshake.c gets a TLS connection. Any other connection becomes a session at
 * once.
 */
#include "daemon/io/listen.h"

#include "daemon/base/assert.h"
#include "daemon/io/client.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

#define ACCEPTS_A_TURN  64
#define ACCEPT_PAUSE_MS 100

static void
client_refuse(struct loop *loop, int fd, bool tell)
{
    count(&loop->counters, COUNTER_sessions_refused);
    /* A client sees the end without the BYE, too. */
    if (tell)
        (void)send(fd, CLIENT_BYE_LIMIT, sizeof(CLIENT_BYE_LIMIT) - 1,
            MSG_NOSIGNAL | MSG_DONTWAIT);
    close(fd);
}

static void
client_accept(struct listener *listener, int fd,
    const struct sockaddr_storage *address, socklen_t len)
{
    struct loop *loop = listener->loop;
    struct client *client = client_create(loop, fd);

    if (client == NULL) {
        count(&loop->counters, COUNTER_limit_connections);
        /* Only a handshake could carry a BYE. */
        client_refuse(loop, fd, !listener->tls);
        return;
    }
    client->silence_us =
        listener->tcp ? listen_set_options(&loop->settings, fd) : UINT64_MAX;
    if (listener->tls ? handshake_begin(client, address, len)
                      : client_open(client, address, len, NULL, 0))
        return;
    client_refuse(loop, client_release(client), !listener->tls);
}

/*
 * No descriptor is left. The spare one serves to refuse the connection.
 * Otherwise it would stay in the queue and keep the loop awake.
 */
static void
accept_exhausted(struct listener *listener)
{
    struct loop *loop = listener->loop;
    static const struct timeval pause = {.tv_usec = ACCEPT_PAUSE_MS * 1000};

    count(&loop->counters, COUNTER_limit_descriptors);
    if (loop->spare_fd >= 0) {
        close(loop->spare_fd);
        int fd = accept4(listener->fd, NULL, NULL, SOCK_CLOEXEC);
        if (fd >= 0)
            client_refuse(loop, fd, !listener->tls);
        loop->spare_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    }
    for (uint32_t i = 0; i < loop->listener_count; i++)
        event_del(&loop->listeners[i].event);
    loop_arm(&loop->accept_timer, &pause);
}

/* A TLS client waits in the kernel's queue until there is room, or until the
 * timer makes another client give room. */
static void
accept_tls_pause(struct loop *loop)
{
    static const struct timeval pause = {.tv_usec = ACCEPT_PAUSE_MS * 1000};

    for (uint32_t i = 0; i < loop->listener_count; i++)
        if (loop->listeners[i].tls)
            event_del(&loop->listeners[i].event);
    loop->tls_paused = true;
    loop_arm(&loop->accept_timer, &pause);
}

static void
accept_go_on(struct loop *loop, bool all)
{
    static const struct timeval pause = {.tv_usec = ACCEPT_PAUSE_MS * 1000};

    loop->tls_paused = false;
    for (uint32_t i = 0; i < loop->listener_count; i++)
        if ((all || loop->listeners[i].tls) &&
            event_add(&loop->listeners[i].event, NULL) != 0)
            loop_arm(&loop->accept_timer, &pause);
}

void
client_accept_tls(struct loop *loop)
{
    if (loop->tls_paused && loop->handshake_over)
        accept_go_on(loop, false);
    loop->handshake_over = false;
}

void
client_accept_timer(evutil_socket_t fd, short what, void *arg)
{
    struct loop *loop = arg;

    (void)fd;
    (void)what;
    if (!engine_stopping(&loop->engine))
        accept_go_on(loop, true);
}

static void
listener_readable(evutil_socket_t fd, short what, void *arg)
{
    struct listener *listener = arg;

    (void)what;
    for (int i = 0; i < ACCEPTS_A_TURN; i++) {
        struct sockaddr_storage address = {.ss_family = AF_UNIX};
        socklen_t len = sizeof(address);
        if (listener->tls && !handshake_has_room(listener->loop)) {
            accept_tls_pause(listener->loop);
            return;
        }
        int accepted = accept4(fd, (struct sockaddr *)&address, &len,
            SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (accepted >= 0) {
            client_accept(listener, accepted, &address, len);
            continue;
        }
        if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS ||
            errno == ENOMEM)
            accept_exhausted(listener);
        if (errno != EINTR && errno != ECONNABORTED)
            return;
    }
}

/* The end removes `path`, if it is not empty. False: no memory. The socket has
 * its place all the same. */
static bool
listener_add(struct loop *loop, int fd, bool tcp, bool tls, const char *path)
{
    struct listener *listener = &loop->listeners[loop->listener_count];
    size_t len = strlen(path);

    require(loop->listener_count < LISTENERS_MAX);
    require(
        len <
        sizeof(listener->path)); /* the address of a socket has room for it */
    listener->fd = fd;
    listener->loop = loop;
    listener->tcp = tcp;
    listener->tls = tls;
    memcpy(listener->path, path, len + 1);
    event_assign(&listener->event, loop->base, fd, EV_READ | EV_PERSIST,
        listener_readable, listener);
    loop->listener_count++;
    if (event_add(&listener->event, NULL) != 0)
        return false;
    listen_log(fd, tls ? "clients_tls" : "clients");
    return true;
}

bool
client_listen(struct loop *loop, const struct loop_address *address,
    char *error, size_t error_bytes)
{
    int fds[LISTEN_SOCKETS_MAX];
    uint32_t count = listen_on(&loop->settings, address,
        !loop->settings.loopback_only, fds, error, error_bytes);

    bool enough = true;
    for (uint32_t i = 0; i < count; i++)
        enough = listener_add(loop, fds[i], !address->is_path, address->tls,
                     address->is_path ? address->host : "") &&
                 enough;
    if (!enough)
        snprintf(error, error_bytes, "no memory");
    return count > 0 && enough;
}

bool
client_listen_passed(struct loop *loop, const struct loop_socket *passed,
    char *error, size_t error_bytes)
{
    bool tcp;

    if (!listen_take(
            passed, !loop->settings.loopback_only, &tcp, error, error_bytes))
        return false;
    if (passed->use == SOCKET_TLS &&
        (!tcp || loop->settings.client_tls == NULL)) {
        snprintf(error, error_bytes,
            "cannot listen on the passed socket %d, %s: %s", passed->fd,
            passed->name,
            tcp ? "listen.tls_cert is not set" : "TLS is for TCP only");
        return false;
    }
    /* The program that made the socket owns its path. */
    if (listener_add(loop, passed->fd, tcp, passed->use == SOCKET_TLS, ""))
        return true;
    snprintf(error, error_bytes, "no memory");
    return false;
}

void
client_stop_listening(struct loop *loop)
{
    for (uint32_t i = 0; i < loop->listener_count; i++) {
        struct listener *listener = &loop->listeners[i];
        event_del(&listener->event);
        /* In this order: after the close the path may be another broker's. */
        if (listener->path[0] != '\0')
            unlink(listener->path);
        close(listener->fd);
    }
    loop->listener_count = 0;
}

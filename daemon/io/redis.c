/*
 * Links to Redis: connecting and moving bytes. What is sent on which link, and
 * when one is given up, the store has decided.
 *
 * Names are resolved by libevent's own resolver, since getaddrinfo() would
 * block the loop.
 */
#include "daemon/io/state.h"

#include "daemon/base/assert.h"
#include "daemon/base/log.h"
#include "daemon/io/reader.h"

#include <arpa/inet.h>
#include <errno.h>
#include <event2/dns.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

struct redis_link {
    struct loop *loop; /* ref */
    struct store_link id;
    int fd; /* -1: none */
    bool connecting;
    struct event *reading; /* owned */
    struct event *writing; /* owned; connecting, or output waits */
    struct reader *reader; /* owned */
    struct evdns_getaddrinfo_request *query; /* ref, while resolving */
    bool resolving;
};

/* Closes what is there; the store is not told. */
static void
link_close(struct redis_link *link)
{
    if (link->query != NULL)
        evdns_getaddrinfo_cancel(link->query);
    link->query = NULL;
    link->resolving = false;
    if (link->reading != NULL)
        event_free(link->reading);
    if (link->writing != NULL)
        event_free(link->writing);
    link->reading = NULL;
    link->writing = NULL;
    reader_destroy(&link->reader);
    if (link->fd >= 0)
        close(link->fd);
    link->fd = -1;
    link->connecting = false;
}

static void
link_broken(struct redis_link *link, const char *why)
{
    struct loop *loop = link->loop;

    link_close(link);
    store_closed(loop->engine.store, link->id, engine_now(&loop->engine), why);
    engine_drain_store(&loop->engine);
}

static void
link_read(struct redis_link *link)
{
    struct loop *loop = link->loop;
    ssize_t got = recv(link->fd, loop->redis_buffer, REDIS_READ, 0);

    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (got <= 0) {
        link_broken(link, got == 0 ? "closed by Redis" : strerror(errno));
        return;
    }
    if (!reader_feed(link->reader, loop->redis_buffer, (size_t)got)) {
        link_broken(link, "no memory for its replies");
        return;
    }
    const struct resp *reply;
    enum reader_status status;
    while ((status = reader_next(link->reader, &reply)) == READER_REPLY) {
        store_reply(
            loop->engine.store, link->id, engine_now(&loop->engine), reply);
        engine_drain_store(&loop->engine); /* results refer to the reply */
    }
    if (status == READER_BROKEN)
        link_broken(link, "it does not speak RESP");
}

static void
link_readable(evutil_socket_t fd, short what, void *arg)
{
    (void)fd;
    (void)what;
    link_read(arg);
}

/* Sends what the store has put there; the rest when the socket takes it. */
static void
link_write(struct redis_link *link)
{
    struct loop *loop = link->loop;
    struct buffer *out = store_link_output(loop->engine.store, link->id.index);

    while (buffer_len(out) > 0) {
        ssize_t sent =
            send(link->fd, buffer_data(out), buffer_len(out), MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR)
            continue;
        if (sent < 0 && errno == EAGAIN) {
            if (event_add(link->writing, NULL) != 0)
                link_broken(link, "no memory to write to it");
            return;
        }
        if (sent < 0) {
            link_broken(link, strerror(errno));
            return;
        }
        buffer_consume(out, (size_t)sent);
    }
    event_del(link->writing);
}

static void
link_opened(struct redis_link *link)
{
    struct loop *loop = link->loop;
    int error = 0;
    socklen_t len = sizeof(error);

    getsockopt(link->fd, SOL_SOCKET, SO_ERROR, &error, &len);
    if (error != 0) {
        link_broken(link, strerror(error));
        return;
    }
    link->connecting = false;
    event_del(link->writing);
    if (event_add(link->reading, NULL) != 0) {
        link_broken(link, "no memory to read from it");
        return;
    }
    store_connected(loop->engine.store, link->id, engine_now(&loop->engine));
}

static void
link_writable(evutil_socket_t fd, short what, void *arg)
{
    struct redis_link *link = arg;

    (void)fd;
    (void)what;
    (void)engine_now(
        &link->loop->engine); /* the store may send more in this turn */
    if (link->connecting)
        link_opened(link);
    else
        link_write(link);
}

static bool
link_prepare_reader(struct redis_link *link)
{
    struct loop *loop = link->loop;

    link->reader = reader_create();
    if (link->reader == NULL)
        return false;
    link->reading = event_new(
        loop->base, link->fd, EV_READ | EV_PERSIST, link_readable, link);
    link->writing = event_new(
        loop->base, link->fd, EV_WRITE | EV_PERSIST, link_writable, link);
    return link->reading != NULL && link->writing != NULL;
}

static void
link_connect_to(
    struct redis_link *link, const struct sockaddr *address, socklen_t len)
{
    int one = 1;

    link->fd = socket(
        address->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (link->fd < 0 || !link_prepare_reader(link)) {
        link_broken(link, "no socket for it");
        return;
    }
    (void)setsockopt(link->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    (void)setsockopt(link->fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof(one));
    link->connecting = true;
    if (connect(link->fd, address, len) != 0 && errno != EINPROGRESS) {
        link_broken(link, strerror(errno));
        return;
    }
    if (event_add(link->writing, NULL) != 0)
        link_broken(link, "no memory to connect to it");
}

static void
link_resolved(int error, struct evutil_addrinfo *found, void *arg)
{
    struct redis_link *link = arg;
    bool wanted = link->resolving;

    if (error == EVUTIL_EAI_CANCEL)
        return;
    link->query = NULL;
    link->resolving = false;
    if (wanted && error == 0)
        link_connect_to(link, found->ai_addr, (socklen_t)found->ai_addrlen);
    else if (wanted)
        link_broken(link, evutil_gai_strerror(error));
    if (found != NULL)
        evutil_freeaddrinfo(found);
}

static void
link_resolve(struct redis_link *link, const struct store_address *address)
{
    struct loop *loop = link->loop;
    struct evutil_addrinfo hints = {.ai_family = AF_UNSPEC,
        .ai_socktype = SOCK_STREAM,
        .ai_protocol = IPPROTO_TCP};
    char port[8];

    if (loop->dns == NULL)
        loop->dns =
            evdns_base_new(loop->base, EVDNS_BASE_INITIALIZE_NAMESERVERS |
                                           EVDNS_BASE_DISABLE_WHEN_INACTIVE);
    if (loop->dns == NULL) {
        link_broken(link, "no resolver");
        return;
    }
    snprintf(port, sizeof(port), "%u", address->port);
    link->resolving = true;
    struct evdns_getaddrinfo_request *query = evdns_getaddrinfo(
        loop->dns, address->host, port, &hints, link_resolved, link);
    if (link->resolving)
        link->query = query;
}

static void
link_connect(struct redis_link *link, const struct store_address *address)
{
    struct sockaddr_in v4 = {
        .sin_family = AF_INET, .sin_port = htons(address->port)};
    struct sockaddr_in6 v6 = {
        .sin6_family = AF_INET6, .sin6_port = htons(address->port)};

    if (inet_pton(AF_INET, address->host, &v4.sin_addr) == 1)
        link_connect_to(link, (const struct sockaddr *)&v4, sizeof(v4));
    else if (inet_pton(AF_INET6, address->host, &v6.sin6_addr) == 1)
        link_connect_to(link, (const struct sockaddr *)&v6, sizeof(v6));
    else
        link_resolve(link, address);
}

bool
redis_create(struct loop *loop)
{
    loop->links = calloc(STORE_LINKS, sizeof(*loop->links));
    if (loop->links == NULL)
        return false;
    for (uint32_t i = 0; i < STORE_LINKS; i++) {
        loop->links[i].loop = loop;
        loop->links[i].fd = -1;
        loop->links[i].id.index = i;
    }
    return true;
}

void
redis_destroy(struct loop *loop)
{
    uint32_t count = loop->links == NULL ? 0 : STORE_LINKS;

    for (uint32_t i = 0; i < count; i++)
        link_close(&loop->links[i]);
    free(loop->links);
    loop->links = NULL;
    if (loop->dns != NULL)
        evdns_base_free(loop->dns, 0);
    loop->dns = NULL;
}

void
redis_carry_out(struct loop *loop)
{
    struct store_wish wish;

    while (store_take_wish(loop->engine.store, &wish)) {
        struct redis_link *link = &loop->links[wish.link.index];
        link_close(link);
        link->id = wish.link;
        if (wish.kind == WISH_CONNECT)
            link_connect(link, wish.address);
    }
    for (uint32_t i = 0; store_next_output(loop->engine.store, &i); i++) {
        struct redis_link *link = &loop->links[i];
        if (link->fd >= 0 && !link->connecting &&
            !event_pending(link->writing, EV_WRITE, NULL))
            link_write(link);
    }
}

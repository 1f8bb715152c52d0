/*
 * Connections to Redis: connecting and moving bytes. The store decides which
 * connection gets a call, and when one ends.
 *
 * Names are resolved by libevent, since getaddrinfo() would block the loop. A
 * TLS connection is connected when its handshake is done.
 */
#include "daemon/io/redis.h"

#include "daemon/base/assert.h"
#include "daemon/base/log.h"
#include "daemon/io/reader.h"
#include "daemon/io/tls.h"

#include <arpa/inet.h>
#include <errno.h>
#include <event2/dns.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

/* The resolver's configuration. */
static const char *const dns_paths[] = {"/etc/resolv.conf", "/etc/hosts"};

/*
 * The state of a connection. link_move() makes every move to a later state,
 * link_close() those to CLOSED:
 *
 *     CLOSED -> RESOLVING, CONNECTING
 *     RESOLVING -> RESOLVING_OTHER, CONNECTING
 *     RESOLVING_OTHER -> CONNECTING
 *     CONNECTING -> HANDSHAKE, CONNECTED
 *     HANDSHAKE -> CONNECTED
 *     CONNECTED -> HEARD
 *
 * CONNECTING and later states have a socket, a reader and both events.
 * HANDSHAKE has TLS, and CONNECTING has none.
 */
enum redis_state {
    REDIS_CLOSED,
    REDIS_RESOLVING,       /* the host's name */
    REDIS_RESOLVING_OTHER, /* for the other family: the first has no address */
    REDIS_CONNECTING,
    REDIS_HANDSHAKE,
    REDIS_CONNECTED, /* the store may send; nothing came so far */
    REDIS_HEARD,
};

struct redis_link {
    struct loop *loop; /* ref */
    struct store_link id;
    enum redis_state state;
    int fd;               /* -1: none */
    bool read_is_blocked; /* TLS has to write before it can read on */
    struct tls_link *tls; /* owned; NULL: plain, or before REDIS_HANDSHAKE */
    char host[STORE_HOST_MAX]; /* as the store names it */
    struct event *reading;     /* owned */
    struct event *writing;     /* owned; connecting, or output waits */
    struct reader *reader;     /* owned */
    struct evdns_getaddrinfo_request *query; /* ref, while resolving */
    uint32_t turn; /* the node to try next, see family_in_turn() */
    char port[8];  /* for the resolver */
};

static bool
link_is_connected(const struct redis_link *link)
{
    return link->state >= REDIS_CONNECTED;
}

static bool
link_is_resolving(const struct redis_link *link)
{
    return link->state == REDIS_RESOLVING ||
           link->state == REDIS_RESOLVING_OTHER;
}

static void
link_move(struct redis_link *link, enum redis_state to)
{
    static const unsigned moves[] = {
        [REDIS_CLOSED] = 1U << REDIS_RESOLVING | 1U << REDIS_CONNECTING,
        [REDIS_RESOLVING] =
            1U << REDIS_RESOLVING_OTHER | 1U << REDIS_CONNECTING,
        [REDIS_RESOLVING_OTHER] = 1U << REDIS_CONNECTING,
        [REDIS_CONNECTING] = 1U << REDIS_HANDSHAKE | 1U << REDIS_CONNECTED,
        [REDIS_HANDSHAKE] = 1U << REDIS_CONNECTED,
        [REDIS_CONNECTED] = 1U << REDIS_HEARD,
        [REDIS_HEARD] = 0,
    };
    bool socket = to >= REDIS_CONNECTING;

    require((moves[link->state] & 1U << to) != 0);
    require((link->fd >= 0) == socket && (link->reader != NULL) == socket);
    require(to != REDIS_CONNECTING || link->tls == NULL);
    require(to != REDIS_HANDSHAKE || link->tls != NULL);
    require(link->query == NULL);
    require(!link->read_is_blocked || to == REDIS_HEARD);
    link->state = to;
}

/* Closes what is there; the store is not told. */
static void
link_close(struct redis_link *link)
{
    if (link->query != NULL)
        evdns_getaddrinfo_cancel(link->query);
    link->query = NULL;
    if (link->reading != NULL)
        event_free(link->reading);
    if (link->writing != NULL)
        event_free(link->writing);
    link->reading = NULL;
    link->writing = NULL;
    reader_destroy(&link->reader);
    tls_link_destroy(&link->tls);
    link->read_is_blocked = false;
    if (link->fd >= 0)
        close(link->fd);
    link->fd = -1;
    link->state = REDIS_CLOSED;
}

static void
link_broken(struct redis_link *link, enum health_reason reason, const char *why)
{
    /* A connection that worked is tried at the same address again. */
    link->turn -= link_is_connected(link) && link->turn > 0;
    engine_link_lost(&link->loop->engine, link->id, reason, why);
    link_close(link); /* last, since `why` may be its own */
}

static void
link_starved(struct redis_link *link, const char *why)
{
    link_broken(link, HEALTH_NO_RESOURCES, why);
}

/* A system call failed. */
static void
link_failed(struct redis_link *link, int error)
{
    enum health_reason reason = error == ECONNREFUSED ? HEALTH_REFUSED
                                : error == ETIMEDOUT  ? HEALTH_SILENT
                                                      : HEALTH_UNREACHABLE;

    link_broken(link, reason, strerror(error));
}

/* TLS has ended, or never began. */
static void
link_broken_tls(struct redis_link *link)
{
    static const enum health_reason reasons[] = {
        [TLS_FAILED_GONE] = HEALTH_CLOSED,
        [TLS_FAILED_PROTOCOL] = HEALTH_TLS_FAILED,
        [TLS_FAILED_CERTIFICATE] = HEALTH_CERTIFICATE,
    };

    link_broken(
        link, reasons[tls_link_failure(link->tls)], tls_link_why(link->tls));
}

/* Awaits the writable event, until link_write() has nothing to do. */
static bool
link_want_write(struct redis_link *link)
{
    if (event_add(link->writing, NULL) == 0)
        return true;
    link_starved(link, "no memory to write to it");
    return false;
}

/* Reads into the loop's buffer. `end` is set if no more comes. */
static size_t
link_receive(struct redis_link *link, const char **end)
{
    ssize_t got = recv(link->fd, link->loop->redis_buffer, REDIS_READ, 0);

    if (got > 0)
        return (size_t)got;
    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        return 0;
    /* A TLS port ends plain text so, with or without an alert. */
    if (link->state != REDIS_HEARD)
        *end = "closed before any answer; is that a port for TLS?";
    else if (got == 0)
        *end = "closed by Redis";
    else
        *end = strerror(errno);
    return 0;
}

/*
 * Reads through TLS: whole records, as long as there is room for one. No event
 * tells of the rest of a record that was taken off the socket.
 */
static size_t
link_receive_tls(struct redis_link *link, const char **end)
{
    char *out = link->loop->redis_buffer;
    enum tls_status status = TLS_DONE;
    size_t len = 0;

    while (status == TLS_DONE && REDIS_READ - len >= TLS_RECORD_BYTES) {
        size_t got = 0;
        status = tls_link_read(link->tls, out + len, REDIS_READ - len, &got);
        len += status == TLS_DONE ? got : 0;
    }
    link->read_is_blocked = status == TLS_WANTS_WRITE;
    if (status == TLS_BROKEN || status == TLS_ENDED)
        *end = tls_link_why(link->tls);
    return len;
}

/* The input is no reply. */
static void
link_nonsense(struct redis_link *link)
{
    /* The first byte of a TLS alert, the answer to plain text. */
    if (link->tls == NULL && link->loop->redis_buffer[0] == 0x15)
        link_broken(link, HEALTH_TLS_EXPECTED,
            "it speaks TLS, and there is no redis.tls here");
    else if (memcmp(link->loop->redis_buffer, "* ", 2) == 0)
        link_broken(link, HEALTH_NO_REDIS, "it is a Holdfast broker");
    else
        link_broken(link, HEALTH_NO_REDIS, "it does not speak RESP");
}

/* Parses the input. False: the connection is broken. */
static bool
link_take_replies(struct redis_link *link, size_t got)
{
    struct loop *loop = link->loop;
    const struct resp *reply;
    enum reader_status status;

    if (!reader_feed(link->reader, loop->redis_buffer, got)) {
        link_starved(link, "no memory for its replies");
        return false;
    }
    while ((status = reader_next(link->reader, &reply)) == READER_REPLY)
        engine_reply(&loop->engine, link->id, reply);
    if (status == READER_BROKEN)
        link_nonsense(link);
    return status != READER_BROKEN;
}

static void
link_read(struct redis_link *link)
{
    const char *end = NULL;
    size_t got = link->tls == NULL ? link_receive(link, &end)
                                   : link_receive_tls(link, &end);

    if (got > 0 && link->state == REDIS_CONNECTED)
        link_move(link, REDIS_HEARD);
    if (got > 0 && !link_take_replies(link, got))
        return;
    if (end != NULL && link->tls != NULL)
        link_broken_tls(link);
    else if (end != NULL)
        link_broken(link, HEALTH_CLOSED, end);
    else if (link->read_is_blocked)
        (void)link_want_write(link);
}

/* False: the event is awaited, or `end` is set. */
static bool
link_send(struct redis_link *link, struct buffer *out, const char **end)
{
    ssize_t sent =
        send(link->fd, buffer_data(out), buffer_len(out), MSG_NOSIGNAL);

    if (sent >= 0) {
        buffer_consume(out, (size_t)sent);
        return true;
    }
    if (errno == EINTR)
        return true;
    if (errno == EAGAIN)
        (void)link_want_write(link);
    else
        *end = strerror(errno);
    return false;
}

/* Sends through TLS; the result is that of link_send(). */
static bool
link_send_tls(struct redis_link *link, struct buffer *out, const char **end)
{
    size_t sent = 0;
    enum tls_status status =
        tls_link_write(link->tls, buffer_data(out), buffer_len(out), &sent);

    if (status == TLS_DONE)
        buffer_consume(out, sent);
    else if (status == TLS_WANTS_WRITE)
        (void)link_want_write(link);
    else if (status == TLS_BROKEN || status == TLS_ENDED)
        *end = tls_link_why(link->tls);
    return status == TLS_DONE; /* a read tries again in any case */
}

/* Sends the store's output; the rest follows when the socket takes it. */
static void
link_write(struct redis_link *link)
{
    struct loop *loop = link->loop;
    struct buffer *out = store_link_output(loop->engine.store, link->id.index);
    const char *end = NULL;

    while (buffer_len(out) > 0) {
        if (link->tls == NULL ? link_send(link, out, &end)
                              : link_send_tls(link, out, &end))
            continue;
        if (end != NULL && link->tls != NULL)
            link_broken_tls(link);
        else if (end != NULL)
            link_broken(link, HEALTH_CLOSED, end);
        return;
    }
    event_del(link->writing);
}

/* The connection can be used. A slow Redis acknowledges unread bytes. A host
 * that is gone does not, and then the connection is broken. */
static void
link_connected(struct redis_link *link)
{
    struct loop *loop = link->loop;
    unsigned lost_ms =
        (unsigned)(store_in_force(loop->engine.store)->command_timeout_us /
                   1000);

    (void)setsockopt(
        link->fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &lost_ms, sizeof(lost_ms));
    link_move(link, REDIS_CONNECTED);
    event_del(link->writing);
    if (event_add(link->reading, NULL) != 0) {
        link_starved(link, "no memory to read from it");
        return;
    }
    engine_link_connected(&loop->engine, link->id);
}

/* Goes on with the handshake as far as the socket lets it. */
static void
link_handshake(struct redis_link *link)
{
    switch (tls_link_handshake(link->tls)) {
    case TLS_DONE:
        link_connected(link);
        return;
    case TLS_ENDED:
    case TLS_BROKEN:
        link_broken_tls(link);
        return;
    case TLS_WANTS_READ:
        event_del(link->writing); /* it would come all the time */
        if (event_add(link->reading, NULL) != 0)
            link_starved(link, "no memory to read from it");
        return;
    case TLS_WANTS_WRITE:
        (void)link_want_write(link);
        return;
    }
}

static void
link_opened(struct redis_link *link)
{
    struct loop *loop = link->loop;
    int error = 0;
    socklen_t len = sizeof(error);

    getsockopt(link->fd, SOL_SOCKET, SO_ERROR, &error, &len);
    if (error != 0) {
        link_failed(link, error);
        return;
    }
    if (loop->settings.tls == NULL) {
        link_connected(link);
        return;
    }
    link->tls = tls_link_create(loop->settings.tls, link->fd, link->host);
    if (link->tls == NULL) {
        link_starved(link, "no memory for TLS");
        return;
    }
    link_move(link, REDIS_HANDSHAKE);
    engine_link_opened(&loop->engine, link->id);
    link_handshake(link);
}

static void
link_readable(evutil_socket_t fd, short what, void *arg)
{
    struct redis_link *link = arg;

    (void)fd;
    (void)what;
    if (link->state == REDIS_HANDSHAKE)
        link_handshake(link);
    else
        link_read(link);
}

static void
link_writable(evutil_socket_t fd, short what, void *arg)
{
    struct redis_link *link = arg;

    (void)fd;
    (void)what;
    (void)engine_now(
        &link->loop->engine); /* the store may send more in this turn */
    if (link->state == REDIS_HANDSHAKE) {
        link_handshake(link);
        return;
    }
    if (link->state == REDIS_CONNECTING) {
        link_opened(link);
        return;
    }
    if (link->read_is_blocked)
        link_read(link);
    if (link_is_connected(link) && !link->read_is_blocked)
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
        link_starved(link, "no socket for it");
        return;
    }
    (void)setsockopt(link->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    (void)setsockopt(link->fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof(one));
    link_move(link, REDIS_CONNECTING);
    if (connect(link->fd, address, len) != 0 && errno != EINPROGRESS) {
        link_failed(link, errno);
        return;
    }
    if (event_add(link->writing, NULL) != 0)
        link_starved(link, "no memory to connect to it");
}

/*
 * IPv4 and IPv6 take turns, and so do the addresses of each. Only one family is
 * asked for at a time. Of two questions at once, libevent would send each to
 * the next name server. All of one family would get the same server, even a
 * silent one.
 */
static int
family_in_turn(uint32_t turn)
{
    return turn % 2 == 0 ? AF_INET : AF_INET6;
}

/* The address in turn, the first again after the last. */
static const struct evutil_addrinfo *
address_in_turn(const struct evutil_addrinfo *found, uint32_t turn)
{
    const struct evutil_addrinfo *at;
    uint32_t count = 0;

    for (at = found; at != NULL; at = at->ai_next)
        count++;
    for (at = found; at != NULL && turn / 2 % count > 0; turn -= 2)
        at = at->ai_next;
    return at;
}

static void link_ask_name(struct redis_link *link);

static void
link_resolved(int error, struct evutil_addrinfo *found, void *arg)
{
    struct redis_link *link = arg;
    bool wanted = link_is_resolving(link);

    if (error == EVUTIL_EAI_CANCEL)
        return;
    link->query = NULL;
    const struct evutil_addrinfo *address = address_in_turn(found, link->turn);
    if (error == 0 && address == NULL)
        error = EVUTIL_EAI_NONAME; /* /etc/hosts has only the other family */
    if (wanted)
        link->turn++; /* the next time another one, unless this one works */
    if (wanted && error == 0) {
        link_connect_to(link, address->ai_addr, (socklen_t)address->ai_addrlen);
    } else if (link->state == REDIS_RESOLVING) {
        link_move(link, REDIS_RESOLVING_OTHER);
        link_ask_name(link);
    } else if (wanted) {
        link_broken(link, HEALTH_NAME, evutil_gai_strerror(error));
    }
    if (found != NULL)
        evutil_freeaddrinfo(found);
}

static void
link_ask_name(struct redis_link *link)
{
    struct evutil_addrinfo hints = {.ai_family = family_in_turn(link->turn),
        .ai_socktype = SOCK_STREAM,
        .ai_protocol = IPPROTO_TCP};

    struct evdns_getaddrinfo_request *query = evdns_getaddrinfo(
        link->loop->dns, link->host, link->port, &hints, link_resolved, link);
    if (query != NULL) /* else link_resolved() was called already */
        link->query = query;
}

/*
 * The questions for both families, twice each, take less than a connection may:
 * a silent name server leaves time for the next. Some name servers do not keep
 * the case of a question's letters.
 */
static void
names_bound(struct loop *loop)
{
    char seconds[32];
    uint64_t us = store_in_force(loop->engine.store)->connect_timeout_us / 5;

    (void)snprintf(seconds, sizeof(seconds), "%" PRIu64 ".%06" PRIu64,
        us / 1000000, us % 1000000);
    (void)evdns_base_set_option(loop->dns, "timeout:", seconds);
    (void)evdns_base_set_option(loop->dns, "attempts:", "2");
    (void)evdns_base_set_option(loop->dns, "randomize-case:", "0");
}

/* Lets the resolver read its files, at first and when they change. */
static void
names_read(struct loop *loop)
{
    bool same = true;

    for (int i = 0; i < 2; i++) {
        struct stat now = {0}; /* also if the file is missing */
        struct stat *before = &loop->dns_files[i];
        (void)stat(dns_paths[i], &now);
        same = same && now.st_dev == before->st_dev &&
               now.st_ino == before->st_ino && now.st_size == before->st_size &&
               now.st_mtim.tv_sec == before->st_mtim.tv_sec &&
               now.st_mtim.tv_nsec == before->st_mtim.tv_nsec;
        *before = now;
    }
    if (loop->dns == NULL) {
        loop->dns =
            evdns_base_new(loop->base, EVDNS_BASE_DISABLE_WHEN_INACTIVE);
        same = false;
    }
    if (loop->dns == NULL || same)
        return;
    evdns_base_clear_nameservers_and_suspend(loop->dns);
    evdns_base_clear_host_addresses(loop->dns);
    /* The resolver logs mistakes, and uses the rest. */
    (void)evdns_base_resolv_conf_parse(
        loop->dns, DNS_OPTIONS_ALL, dns_paths[0]);
    evdns_base_resume(loop->dns);
}

static void
link_resolve(struct redis_link *link, const struct store_address *address)
{
    struct loop *loop = link->loop;

    names_read(loop);
    if (loop->dns == NULL) {
        link_starved(link, "no resolver");
        return;
    }
    names_bound(loop);
    (void)snprintf(link->port, sizeof(link->port), "%u", address->port);
    link_move(link, REDIS_RESOLVING);
    link_ask_name(link);
}

static void
link_connect(struct redis_link *link, const struct store_address *address)
{
    struct sockaddr_in v4 = {
        .sin_family = AF_INET, .sin_port = htons(address->port)};
    struct sockaddr_in6 v6 = {
        .sin6_family = AF_INET6, .sin6_port = htons(address->port)};

    memcpy(link->host, address->host, sizeof(link->host));
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
        if (link_is_connected(link) &&
            !event_pending(link->writing, EV_WRITE, NULL))
            link_write(link);
    }
}

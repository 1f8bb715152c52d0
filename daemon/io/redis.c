/*
 * Connections to Redis: connecting and moving bytes. The store decides which
 * connection gets a call, and when one ends.
 *
 * Names are resolved by libevent, since getaddrinfo() would block the loop. A
 * TLS connection is connected when its handshake is done.
 */
#include "daemon/io/redis.h"

#include "daemon/base/assert.h"
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
 * The state of a connection. conn_move() makes every move to a later state,
 * conn_close() those to CLOSED:
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

struct redis_conn {
    struct loop *loop; /* ref */
    struct store_conn id;
    enum redis_state state;
    int fd;               /* -1: none */
    bool read_is_blocked; /* TLS has to write before it can read on */
    struct tls_conn *tls; /* owned; NULL: plain, or before REDIS_HANDSHAKE */
    char host[STORE_HOST_MAX]; /* as the store names it */
    struct event *reading;     /* owned */
    struct event *writing;     /* owned; connecting, or output waits */
    struct reader *reader;     /* owned */
    struct evdns_getaddrinfo_request *query; /* ref, while resolving */
    uint32_t turn; /* the node to try next, see family_in_turn() */
    char port[8];  /* for the resolver */
};

static bool
conn_is_connected(const struct redis_conn *conn)
{
    return conn->state >= REDIS_CONNECTED;
}

static bool
conn_is_resolving(const struct redis_conn *conn)
{
    return conn->state == REDIS_RESOLVING ||
           conn->state == REDIS_RESOLVING_OTHER;
}

static void
conn_move(struct redis_conn *conn, enum redis_state to)
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

    require((moves[conn->state] & 1U << to) != 0);
    require((conn->fd >= 0) == socket && (conn->reader != NULL) == socket);
    require(to != REDIS_CONNECTING || conn->tls == NULL);
    require(to != REDIS_HANDSHAKE || conn->tls != NULL);
    require(conn->query == NULL);
    require(!conn->read_is_blocked || to == REDIS_HEARD);
    conn->state = to;
}

/* Closes what is there; the store is not told. */
static void
conn_close(struct redis_conn *conn)
{
    if (conn->query != NULL)
        evdns_getaddrinfo_cancel(conn->query);
    conn->query = NULL;
    if (conn->reading != NULL)
        event_free(conn->reading);
    if (conn->writing != NULL)
        event_free(conn->writing);
    conn->reading = NULL;
    conn->writing = NULL;
    reader_destroy(&conn->reader);
    tls_conn_destroy(&conn->tls);
    conn->read_is_blocked = false;
    if (conn->fd >= 0)
        close(conn->fd);
    conn->fd = -1;
    conn->state = REDIS_CLOSED;
}

static void
conn_broken(struct redis_conn *conn, enum health_reason reason, const char *why)
{
    /* A connection that worked is tried at the same address again. */
    conn->turn -= conn_is_connected(conn) && conn->turn > 0;
    engine_conn_lost(&conn->loop->engine, conn->id, reason, why);
    conn_close(conn); /* last, since `why` may be its own */
}

static void
conn_starved(struct redis_conn *conn, const char *why)
{
    conn_broken(conn, HEALTH_NO_RESOURCES, why);
}

/* A system call failed. */
static void
conn_failed(struct redis_conn *conn, int error)
{
    enum health_reason reason = error == ECONNREFUSED ? HEALTH_REFUSED
                                : error == ETIMEDOUT  ? HEALTH_SILENT
                                                      : HEALTH_UNREACHABLE;

    conn_broken(conn, reason, strerror(error));
}

/* TLS has ended, or never began. */
static void
conn_broken_tls(struct redis_conn *conn)
{
    static const enum health_reason reasons[] = {
        [TLS_FAILED_GONE] = HEALTH_CLOSED,
        [TLS_FAILED_PROTOCOL] = HEALTH_TLS_FAILED,
        [TLS_FAILED_CERTIFICATE] = HEALTH_CERTIFICATE,
    };

    conn_broken(
        conn, reasons[tls_conn_failure(conn->tls)], tls_conn_why(conn->tls));
}

/* Awaits the writable event, until conn_write() has nothing to do. */
static bool
conn_want_write(struct redis_conn *conn)
{
    if (event_add(conn->writing, NULL) == 0)
        return true;
    conn_starved(conn, "no memory to write to it");
    return false;
}

/* Reads into the loop's buffer. `end` is set if no more comes. */
static size_t
conn_receive(struct redis_conn *conn, const char **end)
{
    ssize_t got = recv(conn->fd, conn->loop->redis_buffer, REDIS_READ, 0);

    if (got > 0)
        return (size_t)got;
    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        return 0;
    /* A TLS port ends plain text so, with or without an alert. */
    if (conn->state != REDIS_HEARD)
        *end = "closed before any answer: is it a TLS port?";
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
conn_receive_tls(struct redis_conn *conn, const char **end)
{
    char *out = conn->loop->redis_buffer;
    enum tls_status status = TLS_DONE;
    size_t len = 0;

    while (status == TLS_DONE && REDIS_READ - len >= TLS_RECORD_BYTES) {
        size_t got = 0;
        status = tls_conn_read(conn->tls, out + len, REDIS_READ - len, &got);
        len += status == TLS_DONE ? got : 0;
    }
    conn->read_is_blocked = status == TLS_WANTS_WRITE;
    if (status == TLS_BROKEN || status == TLS_ENDED)
        *end = tls_conn_why(conn->tls);
    return len;
}

/* The input is no reply. */
static void
conn_nonsense(struct redis_conn *conn)
{
    /* The first byte of a TLS alert, the answer to plain text. */
    if (conn->tls == NULL && conn->loop->redis_buffer[0] == 0x15)
        conn_broken(conn, HEALTH_TLS_EXPECTED, "it speaks TLS: set redis.tls");
    else if (memcmp(conn->loop->redis_buffer, "* ", 2) == 0)
        conn_broken(conn, HEALTH_NO_REDIS, "it is a Holdfast broker");
    else
        conn_broken(conn, HEALTH_NO_REDIS, "it does not speak RESP");
}

/* Parses the input. False: the connection is broken. */
static bool
conn_take_replies(struct redis_conn *conn, size_t got)
{
    struct loop *loop = conn->loop;
    const struct resp *reply;
    enum reader_status status;

    if (!reader_feed(conn->reader, loop->redis_buffer, got)) {
        conn_starved(conn, "no memory for its replies");
        return false;
    }
    while ((status = reader_next(conn->reader, &reply)) == READER_REPLY)
        engine_reply(&loop->engine, conn->id, reply);
    if (status == READER_BROKEN)
        conn_nonsense(conn);
    return status != READER_BROKEN;
}

static void
conn_read(struct redis_conn *conn)
{
    const char *end = NULL;
    size_t got = conn->tls == NULL ? conn_receive(conn, &end)
                                   : conn_receive_tls(conn, &end);

    require(conn_is_connected(conn));
    if (got > 0 && conn->state == REDIS_CONNECTED)
        conn_move(conn, REDIS_HEARD);
    if (got > 0 && !conn_take_replies(conn, got))
        return;
    if (end != NULL && conn->tls != NULL)
        conn_broken_tls(conn);
    else if (end != NULL)
        conn_broken(conn, HEALTH_CLOSED, end);
    else if (conn->read_is_blocked)
        (void)conn_want_write(conn);
}

/* False: the event is awaited, or `end` is set. */
static bool
conn_send(struct redis_conn *conn, struct buffer *out, const char **end)
{
    ssize_t sent =
        send(conn->fd, buffer_data(out), buffer_len(out), MSG_NOSIGNAL);

    if (sent >= 0) {
        buffer_consume(out, (size_t)sent);
        return true;
    }
    if (errno == EINTR)
        return true;
    if (errno == EAGAIN)
        (void)conn_want_write(conn);
    else
        *end = strerror(errno);
    return false;
}

/* Sends through TLS; the result is that of conn_send(). */
static bool
conn_send_tls(struct redis_conn *conn, struct buffer *out, const char **end)
{
    size_t sent = 0;
    enum tls_status status =
        tls_conn_write(conn->tls, buffer_data(out), buffer_len(out), &sent);

    if (status == TLS_DONE)
        buffer_consume(out, sent);
    else if (status == TLS_WANTS_WRITE)
        (void)conn_want_write(conn);
    else if (status == TLS_BROKEN || status == TLS_ENDED)
        *end = tls_conn_why(conn->tls);
    return status == TLS_DONE; /* a read tries again in any case */
}

/* Sends the store's output; the rest follows when the socket takes it. */
static void
conn_write(struct redis_conn *conn)
{
    struct loop *loop = conn->loop;
    struct buffer *out = store_conn_output(loop->engine.store, conn->id.index);
    const char *end = NULL;

    require(conn_is_connected(conn));
    while (buffer_len(out) > 0) {
        if (conn->tls == NULL ? conn_send(conn, out, &end)
                              : conn_send_tls(conn, out, &end))
            continue;
        if (end != NULL && conn->tls != NULL)
            conn_broken_tls(conn);
        else if (end != NULL)
            conn_broken(conn, HEALTH_CLOSED, end);
        return;
    }
    event_del(conn->writing);
}

/* The connection can be used. A slow Redis acknowledges unread bytes. A host
 * that is gone does not, and then the connection is broken. */
static void
conn_connected(struct redis_conn *conn)
{
    struct loop *loop = conn->loop;
    unsigned lost_ms =
        (unsigned)(store_in_force(loop->engine.store)->command_timeout_us /
                   1000);

    (void)setsockopt(
        conn->fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &lost_ms, sizeof(lost_ms));
    conn_move(conn, REDIS_CONNECTED);
    event_del(conn->writing);
    if (event_add(conn->reading, NULL) != 0) {
        conn_starved(conn, "no memory to read from it");
        return;
    }
    engine_conn_connected(&loop->engine, conn->id);
}

/* Goes on with the handshake as far as the socket lets it. */
static void
conn_handshake(struct redis_conn *conn)
{
    require(conn->state == REDIS_HANDSHAKE);
    switch (tls_conn_handshake(conn->tls)) {
    case TLS_DONE:
        conn_connected(conn);
        return;
    case TLS_ENDED:
    case TLS_BROKEN:
        conn_broken_tls(conn);
        return;
    case TLS_WANTS_READ:
        event_del(conn->writing); /* it would come all the time */
        if (event_add(conn->reading, NULL) != 0)
            conn_starved(conn, "no memory to read from it");
        return;
    case TLS_WANTS_WRITE:
        (void)conn_want_write(conn);
        return;
    }
}

static void
conn_opened(struct redis_conn *conn)
{
    struct loop *loop = conn->loop;
    int error = 0;
    socklen_t len = sizeof(error);

    require(conn->state == REDIS_CONNECTING);
    getsockopt(conn->fd, SOL_SOCKET, SO_ERROR, &error, &len);
    if (error != 0) {
        conn_failed(conn, error);
        return;
    }
    if (loop->settings.tls == NULL) {
        conn_connected(conn);
        return;
    }
    conn->tls = tls_conn_create(loop->settings.tls, conn->fd, conn->host);
    if (conn->tls == NULL) {
        conn_starved(conn, "no memory for TLS");
        return;
    }
    conn_move(conn, REDIS_HANDSHAKE);
    engine_conn_opened(&loop->engine, conn->id);
    conn_handshake(conn);
}

static void
conn_readable(evutil_socket_t fd, short what, void *arg)
{
    struct redis_conn *conn = arg;

    (void)fd;
    (void)what;
    if (conn->state == REDIS_HANDSHAKE)
        conn_handshake(conn);
    else
        conn_read(conn);
}

static void
conn_writable(evutil_socket_t fd, short what, void *arg)
{
    struct redis_conn *conn = arg;

    (void)fd;
    (void)what;
    (void)engine_now(
        &conn->loop->engine); /* the store may send more in this turn */
    if (conn->state == REDIS_HANDSHAKE) {
        conn_handshake(conn);
        return;
    }
    if (conn->state == REDIS_CONNECTING) {
        conn_opened(conn);
        return;
    }
    if (conn->read_is_blocked)
        conn_read(conn);
    if (conn_is_connected(conn) && !conn->read_is_blocked)
        conn_write(conn);
}

static bool
conn_prepare_reader(struct redis_conn *conn)
{
    struct loop *loop = conn->loop;

    conn->reader = reader_create();
    if (conn->reader == NULL)
        return false;
    conn->reading = event_new(
        loop->base, conn->fd, EV_READ | EV_PERSIST, conn_readable, conn);
    conn->writing = event_new(
        loop->base, conn->fd, EV_WRITE | EV_PERSIST, conn_writable, conn);
    return conn->reading != NULL && conn->writing != NULL;
}

static void
conn_connect_to(
    struct redis_conn *conn, const struct sockaddr *address, socklen_t len)
{
    int one = 1;

    conn->fd = socket(
        address->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (conn->fd < 0 || !conn_prepare_reader(conn)) {
        conn_starved(conn, "no socket for it");
        return;
    }
    (void)setsockopt(conn->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    (void)setsockopt(conn->fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof(one));
    conn_move(conn, REDIS_CONNECTING);
    if (connect(conn->fd, address, len) != 0 && errno != EINPROGRESS) {
        conn_failed(conn, errno);
        return;
    }
    if (event_add(conn->writing, NULL) != 0)
        conn_starved(conn, "no memory to connect to it");
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

static void conn_ask_name(struct redis_conn *conn);

static void
conn_resolved(int error, struct evutil_addrinfo *found, void *arg)
{
    struct redis_conn *conn = arg;
    bool wanted = conn_is_resolving(conn);

    if (error == EVUTIL_EAI_CANCEL)
        return;
    conn->query = NULL;
    const struct evutil_addrinfo *address = address_in_turn(found, conn->turn);
    if (error == 0 && address == NULL)
        error = EVUTIL_EAI_NONAME; /* /etc/hosts has only the other family */
    if (wanted)
        conn->turn++; /* the next time another one, unless this one works */
    if (wanted && error == 0) {
        conn_connect_to(conn, address->ai_addr, (socklen_t)address->ai_addrlen);
    } else if (conn->state == REDIS_RESOLVING) {
        conn_move(conn, REDIS_RESOLVING_OTHER);
        conn_ask_name(conn);
    } else if (wanted) {
        conn_broken(conn, HEALTH_NAME, evutil_gai_strerror(error));
    }
    if (found != NULL)
        evutil_freeaddrinfo(found);
}

static void
conn_ask_name(struct redis_conn *conn)
{
    struct evutil_addrinfo hints = {.ai_family = family_in_turn(conn->turn),
        .ai_socktype = SOCK_STREAM,
        .ai_protocol = IPPROTO_TCP};

    struct evdns_getaddrinfo_request *query = evdns_getaddrinfo(
        conn->loop->dns, conn->host, conn->port, &hints, conn_resolved, conn);
    if (query != NULL) /* else conn_resolved() was called already */
        conn->query = query;
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
conn_resolve(struct redis_conn *conn, const struct store_address *address)
{
    struct loop *loop = conn->loop;

    names_read(loop);
    if (loop->dns == NULL) {
        conn_starved(conn, "no resolver");
        return;
    }
    names_bound(loop);
    (void)snprintf(conn->port, sizeof(conn->port), "%u", address->port);
    conn_move(conn, REDIS_RESOLVING);
    conn_ask_name(conn);
}

static void
conn_connect(struct redis_conn *conn, const struct store_address *address)
{
    struct sockaddr_in v4 = {
        .sin_family = AF_INET, .sin_port = htons(address->port)};
    struct sockaddr_in6 v6 = {
        .sin6_family = AF_INET6, .sin6_port = htons(address->port)};

    require(conn->state == REDIS_CLOSED);
    memcpy(conn->host, address->host, sizeof(conn->host));
    if (inet_pton(AF_INET, address->host, &v4.sin_addr) == 1)
        conn_connect_to(conn, (const struct sockaddr *)&v4, sizeof(v4));
    else if (inet_pton(AF_INET6, address->host, &v6.sin6_addr) == 1)
        conn_connect_to(conn, (const struct sockaddr *)&v6, sizeof(v6));
    else
        conn_resolve(conn, address);
}

bool
redis_create(struct loop *loop)
{
    loop->conns = calloc(STORE_CONNS, sizeof(*loop->conns));
    if (loop->conns == NULL)
        return false;
    for (uint32_t i = 0; i < STORE_CONNS; i++) {
        loop->conns[i].loop = loop;
        loop->conns[i].fd = -1;
        loop->conns[i].id.index = i;
    }
    return true;
}

void
redis_destroy(struct loop *loop)
{
    uint32_t count = loop->conns == NULL ? 0 : STORE_CONNS;

    for (uint32_t i = 0; i < count; i++)
        conn_close(&loop->conns[i]);
    free(loop->conns);
    loop->conns = NULL;
    if (loop->dns != NULL)
        evdns_base_free(loop->dns, 0);
    loop->dns = NULL;
}

void
redis_carry_out(struct loop *loop)
{
    struct store_wish wish;

    while (store_take_wish(loop->engine.store, &wish)) {
        require(wish.conn.index < STORE_CONNS);
        struct redis_conn *conn = &loop->conns[wish.conn.index];
        conn_close(conn);
        conn->id = wish.conn;
        if (wish.kind == WISH_CONNECT)
            conn_connect(conn, wish.address);
    }
    for (uint32_t i = 0; store_next_output(loop->engine.store, &i); i++) {
        struct redis_conn *conn = &loop->conns[i];
        if (conn_is_connected(conn) &&
            !event_pending(conn->writing, EV_WRITE, NULL))
            conn_write(conn);
    }
}

/*
 * HTTP for operators: GET and HEAD, one request a connection.
 *
 * The number of connections, the bytes of a request and the time of a
 * connection are bounded. If all places are taken, the oldest connection makes
 * room. So slow or many connections stop nobody: an honest client asks at once.
 * (libevent's evhttp bounds neither the number nor the time of a slow request.)
 *
 * A connection reads the head of its request, and writes its answer. Then it
 * reads until the other end closes: with unread input, the kernel would drop
 * the answer. Bodies of requests are ignored.
 */
#include "daemon/io/http.h"

#include "daemon/base/assert.h"
#include "daemon/io/listen.h"
#include "daemon/io/state.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#define CONNECTIONS_MAX 32
#define REQUEST_BYTES   4096
#define HEAD_BYTES      512 /* of an answer */
#define CONNECTION_S    5
#define ACCEPT_PAUSE_S  1

/* Each goes on to the next one; connection_close() frees it at any time. */
enum connection_state {
    CONNECTION_FREE, /* has no socket */
    CONNECTION_READING,
    CONNECTION_WRITING,
    CONNECTION_DONE, /* our FIN is sent; waits for the client's */
};

struct connection {
    enum connection_state state;
    struct http *http; /* ref */
    int fd;
    uint64_t number;    /* by age */
    struct event event; /* reading; writing while `out` has bytes */
    struct event deadline;
    struct buffer in;
    struct buffer out;
};

struct http {
    struct loop *loop; /* ref */
    int fds[LISTEN_SOCKETS_MAX];
    struct event accepting[LISTEN_SOCKETS_MAX];
    uint32_t fd_count;
    struct event pause; /* if no descriptor was left */
    struct buffer body;
    uint64_t opened; /* connections, so far */
    struct connection connections[CONNECTIONS_MAX];
};

static void
connection_close(struct connection *connection)
{
    require(connection->state != CONNECTION_FREE);
    event_del(&connection->event);
    event_del(&connection->deadline);
    close(connection->fd);
    connection->state = CONNECTION_FREE;
    buffer_clear(&connection->in);
    buffer_clear(&connection->out);
}

static const char *
reason_of(unsigned status)
{
    switch (status) {
    case 200:
        return "OK";
    case 400:
        return "Bad Request";
    case 404:
        return "Not Found";
    case 405:
        return "Method Not Allowed";
    case 431:
        return "Request Header Fields Too Large";
    default:
        return "Service Unavailable";
    }
}

/* Writes the head. The page is in http->body. */
static void
connection_answer(
    struct connection *connection, struct page page, bool head_only)
{
    struct buffer *body = &connection->http->body;
    char head[HEAD_BYTES];
    int len = snprintf(head, sizeof(head),
        "HTTP/1.1 %u %s\r\n"
        "Content-Type: %s\r\n"
        "Content-Length: %zu\r\n"
        "Cache-Control: no-store\r\n"
        "%s"
        "Connection: close\r\n\r\n",
        page.status, reason_of(page.status), page.type, buffer_len(body),
        page.status == 405 ? "Allow: GET, HEAD\r\n" : "");

    require(connection->state == CONNECTION_READING);
    require(len > 0 && (size_t)len < sizeof(head));
    require(buffer_append(&connection->out, head, (size_t)len));
    if (!head_only)
        require(buffer_append(
            &connection->out, buffer_data(body), buffer_len(body)));
    buffer_clear(body);
    buffer_clear(&connection->in);
    connection->state = CONNECTION_WRITING;
    count(&connection->http->loop->counters, COUNTER_http_requests);
}

static void
connection_complain(
    struct connection *connection, unsigned status, const char *why)
{
    struct page page = {status, "text/plain; charset=utf-8"};

    require(buffer_append(&connection->http->body, why, strlen(why)));
    connection_answer(connection, page, false);
}

/* Takes the bytes before the next `end`, which must exist. `rest` begins behind
 * it then. */
static bool
word_take(struct text *rest, char end, struct text *word)
{
    const char *at = memchr(rest->at, end, rest->len);

    if (at == NULL || at == rest->at)
        return false;
    *word = text_make(rest->at, (size_t)(at - rest->at));
    *rest = text_make(at + 1, rest->len - word->len - 1);
    return true;
}

/* Parses METHOD SP PATH["?" QUERY] SP HTTP/1.x. */
static void
connection_request(struct connection *connection)
{
    struct http *http = connection->http;
    struct text rest =
        text_make(buffer_data(&connection->in), buffer_len(&connection->in));
    struct text line, method, path;
    const char *query;

    if (!word_take(&rest, '\n', &line) || !word_take(&line, ' ', &method) ||
        !word_take(&line, ' ', &path) || line.len < 8 || line.len > 9 ||
        memcmp(line.at, "HTTP/1.", 7) != 0) {
        connection_complain(connection, 400, "not an HTTP/1 request\n");
        return;
    }
    bool head_only = text_equal(method, TEXT("HEAD"));
    if (!head_only && !text_equal(method, TEXT("GET"))) {
        connection_complain(connection, 405, "only GET and HEAD\n");
        return;
    }
    query = memchr(path.at, '?', path.len);
    if (query != NULL)
        path.len = (size_t)(query - path.at);
    struct page page = page_make(http->loop, path, &http->body);
    connection_answer(connection, page, head_only);
}

static void connection_event(evutil_socket_t fd, short what, void *arg);

static void
connection_await(struct connection *connection, short what)
{
    event_del(&connection->event);
    event_assign(&connection->event, connection->http->loop->base,
        connection->fd, (short)(what | EV_PERSIST), connection_event,
        connection);
    if (event_add(&connection->event, NULL) != 0)
        connection_close(connection);
}

/* Sends as much as the socket takes; after the last byte our FIN. */
static void
connection_write(struct connection *connection)
{
    struct buffer *out = &connection->out;
    ssize_t sent =
        send(connection->fd, buffer_data(out), buffer_len(out), MSG_NOSIGNAL);

    if (sent < 0 && errno != EAGAIN && errno != EINTR) {
        connection_close(connection);
        return;
    }
    if (sent > 0)
        buffer_consume(out, (size_t)sent);
    if (buffer_len(out) > 0) {
        connection_await(connection, EV_WRITE);
        return;
    }
    connection->state = CONNECTION_DONE;
    (void)shutdown(connection->fd, SHUT_WR);
    connection_await(connection, EV_READ);
}

/* Whether a blank line ends the head of the request. */
static bool
head_complete(const struct buffer *in)
{
    const char *data = buffer_data(in);
    size_t len = buffer_len(in);

    return memmem(data, len, "\n\r\n", 3) != NULL ||
           memmem(data, len, "\n\n", 2) != NULL;
}

static void
connection_read(struct connection *connection)
{
    struct buffer *in = &connection->in;
    size_t room = REQUEST_BYTES - buffer_len(in);
    char *place = buffer_reserve(in, room);
    ssize_t got = recv(connection->fd, place, room, 0);

    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (got <= 0) {
        connection_close(connection);
        return;
    }
    if (connection->state != CONNECTION_READING)
        return; /* nothing is committed: the input is dropped */
    buffer_commit(in, (size_t)got);
    if (head_complete(in))
        connection_request(connection);
    else if (buffer_len(in) == REQUEST_BYTES)
        connection_complain(connection, 431, "the request is too long\n");
    if (connection->state == CONNECTION_WRITING)
        connection_write(connection);
}

static void
connection_event(evutil_socket_t fd, short what, void *arg)
{
    (void)fd;
    if ((what & EV_WRITE) != 0)
        connection_write(arg);
    else
        connection_read(arg);
}

static void
connection_overdue(evutil_socket_t fd, short what, void *arg)
{
    struct connection *connection = arg;

    (void)fd;
    (void)what;
    if (connection->state != CONNECTION_DONE)
        count(&connection->http->loop->counters, COUNTER_http_slow);
    connection_close(connection);
}

/* Whether `a` makes room before `b`: answered ones first, then the oldest. */
static bool
makes_room_before(const struct connection *a, const struct connection *b)
{
    bool a_done = a->state == CONNECTION_DONE;
    bool b_done = b->state == CONNECTION_DONE;

    return a_done != b_done ? a_done : a->number < b->number;
}

static struct connection *
place_find(struct http *http)
{
    struct connection *first = http->connections;

    for (int i = 0; i < CONNECTIONS_MAX; i++) {
        struct connection *connection = &http->connections[i];
        if (connection->state == CONNECTION_FREE)
            return connection;
        if (makes_room_before(connection, first))
            first = connection;
    }
    if (first->state != CONNECTION_DONE)
        count(&http->loop->counters, COUNTER_http_refused);
    connection_close(first);
    return first;
}

static void
connection_open(struct http *http, int fd)
{
    static const struct timeval limit = {.tv_sec = CONNECTION_S};
    struct connection *connection = place_find(http);

    connection->fd = fd;
    connection->number = http->opened++;
    connection->state = CONNECTION_READING;
    loop_arm(&connection->deadline, &limit);
    connection_await(connection, EV_READ);
    /* The request may be there, and many others may come before the loop tells
     * of it. */
    if (connection->state == CONNECTION_READING)
        connection_read(connection);
}

static void
http_acceptable(evutil_socket_t fd, short what, void *arg)
{
    static const struct timeval pause = {.tv_sec = ACCEPT_PAUSE_S};
    struct http *http = arg;

    (void)what;
    for (int i = 0; i < CONNECTIONS_MAX; i++) {
        int accepted = accept4(fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (accepted >= 0) {
            connection_open(http, accepted);
        } else if (errno == EAGAIN) {
            return;
        } else if (errno != EINTR && errno != ECONNABORTED) {
            count(&http->loop->counters, COUNTER_limit_descriptors);
            for (uint32_t j = 0; j < http->fd_count; j++)
                event_del(&http->accepting[j]);
            loop_arm(&http->pause, &pause);
            return;
        }
    }
}

static void
http_pause_over(evutil_socket_t fd, short what, void *arg)
{
    static const struct timeval pause = {.tv_sec = ACCEPT_PAUSE_S};
    struct http *http = arg;

    (void)fd;
    (void)what;
    for (uint32_t i = 0; i < http->fd_count; i++)
        if (event_add(&http->accepting[i], NULL) != 0)
            loop_arm(&http->pause, &pause);
}

static bool
http_take_memory(struct http *http)
{
    bool enough = buffer_init(&http->body, PAGE_BYTES);

    for (int i = 0; i < CONNECTIONS_MAX; i++) {
        struct connection *connection = &http->connections[i];
        connection->http = http;
        evtimer_assign(&connection->deadline, http->loop->base,
            connection_overdue, connection);
        event_assign(&connection->event, http->loop->base, -1, EV_READ,
            connection_event, connection);
        enough = buffer_init(&connection->in, REQUEST_BYTES) &&
                 buffer_init(&connection->out, HEAD_BYTES + PAGE_BYTES) &&
                 enough;
    }
    return enough;
}

/* Owns the sockets in any case. False: no memory. */
static bool
http_take_sockets(struct http *http, const int *fds, uint32_t count)
{
    bool enough = true;

    require(count <= LISTEN_SOCKETS_MAX);
    http->fd_count = count;
    for (uint32_t i = 0; i < count; i++) {
        http->fds[i] = fds[i];
        event_assign(&http->accepting[i], http->loop->base, fds[i],
            EV_READ | EV_PERSIST, http_acceptable, http);
        enough = event_add(&http->accepting[i], NULL) == 0 && enough;
        listen_log(fds[i], "http");
    }
    return enough;
}

struct http *
http_create(struct loop *loop, const int *fds, uint32_t count)
{
    struct http *http = calloc(1, sizeof(*http));

    if (http == NULL)
        return NULL;
    http->loop = loop;
    evtimer_assign(&http->pause, loop->base, http_pause_over, http);
    if (!http_take_memory(http) || !http_take_sockets(http, fds, count))
        http_destroy(&http);
    return http;
}

void
http_destroy(struct http **http)
{
    struct http *h = *http;

    if (h == NULL)
        return;
    for (int i = 0; i < CONNECTIONS_MAX; i++) {
        if (h->connections[i].state != CONNECTION_FREE)
            connection_close(&h->connections[i]);
        buffer_fini(&h->connections[i].in);
        buffer_fini(&h->connections[i].out);
    }
    for (uint32_t i = 0; i < h->fd_count; i++) {
        event_del(&h->accepting[i]);
        close(h->fds[i]);
    }
    event_del(&h->pause);
    buffer_fini(&h->body);
    free(h);
    *http = NULL;
}

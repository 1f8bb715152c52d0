/*
 * Clients' connections: accepted, read into lines, written to, closed.
 *
 * A client is always read from: only so is its end seen at once. What it may
 * pile up is bounded instead: a partial line, outstanding requests (the core),
 * unread output, and the bytes of all together. A connection costs no buffer
 * while it is idle.
 *
 * At the end our FIN follows BYE, and the socket stays until the client's own
 * FIN, for a moment: closing with unread input would destroy the BYE.
 */
#include "daemon/io/state.h"

#include "daemon/base/assert.h"
#include "daemon/io/clock.h"
#include "proto/request.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#define ACCEPTS_A_TURN  64
#define LINGER_S        1
#define DRAIN_S         10
#define ACCEPT_PAUSE_MS 100

static void client_readable(evutil_socket_t fd, short what, void *arg);

static struct client *
client_of(const struct loop *loop, struct handle session)
{
    struct client *client = loop->by_session[session.index];

    return client != NULL && handle_equal(client->input.session, session)
               ? client
               : NULL;
}

static void
client_forget_output(struct client *client)
{
    client->loop->memory -= client->out_len;
    free(client->out);
    client->out = NULL;
    client->out_start = 0;
    client->out_len = 0;
    client->out_capacity = 0;
    if (client->writing != NULL)
        event_free(client->writing);
    client->writing = NULL;
}

static void
client_forget_partial(struct client *client)
{
    client->loop->memory -= client->partial_len;
    free(client->partial);
    client->partial = NULL;
    client->partial_len = 0;
}

/* Frees the client; its session has ended or ends by the caller. */
static void
client_destroy(struct client *client)
{
    struct loop *loop = client->loop;

    if (client_of(loop, client->input.session) == client)
        loop->by_session[client->input.session.index] = NULL;
    event_del(&client->event);
    client_forget_output(client);
    client_forget_partial(client);
    list_remove(&client->link);
    list_remove(&client->dirty_link);
    list_remove(&client->fate_link);
    list_remove(&client->late_link);
    close(client->fd);
    loop->client_count--;
    free(client);
}

static void
client_step(struct client *client, enum core_event_kind kind)
{
    struct core_event event = {.kind = kind, .session = client->input.session};

    engine_step(&client->loop->engine, &event);
}

/* The connection is broken. */
static void
client_broken(struct client *client)
{
    struct loop *loop = client->loop;
    struct handle session = client->input.session;
    bool ending = client->ending;

    client_destroy(client);
    if (ending)
        return;
    struct core_event event = {.kind = CORE_DROP, .session = session};
    engine_step(&loop->engine, &event);
}

static void
client_expel(struct client *client, enum core_expel why)
{
    struct core_event event = {
        .kind = CORE_EXPEL,
        .session = client->input.session,
        .expel = why,
    };

    if (!client->ending)
        engine_step(&client->loop->engine, &event);
}

/* All has been sent: our FIN, and then the client's is waited for a moment. */
static void
client_finish(struct client *client)
{
    static const struct timeval linger = {.tv_sec = LINGER_S};

    if (client->eof || client->shut || shutdown(client->fd, SHUT_WR) != 0) {
        client_destroy(client);
        return;
    }
    client->shut = true;
    client->close_us = engine_now(&client->loop->engine) + LINGER_S * 1000000;
    loop_arm(&client->event, &linger);
}

static void client_writable(evutil_socket_t fd, short what, void *arg);

/* Room for `len` bytes more behind what is kept; false: no memory. */
static bool
client_make_room(struct client *client, uint32_t len)
{
    if (client->writing == NULL) {
        client->writing = event_new(client->loop->base, client->fd,
            EV_WRITE | EV_PERSIST, client_writable, client);
        if (client->writing == NULL)
            return false;
    }
    if (client->out_start + client->out_len + len <= client->out_capacity)
        return true;
    /* By half as much again: who reads nothing is copied but a few times. */
    uint32_t wanted = client->out_len + len;
    uint32_t capacity = (wanted + wanted / 2 + 4095) / 4096 * 4096;
    char *out = malloc(capacity);
    if (out == NULL)
        return false;
    if (client->out_len > 0)
        memcpy(out, client->out + client->out_start, client->out_len);
    free(client->out);
    client->out = out;
    client->out_start = 0;
    client->out_capacity = capacity;
    return true;
}

/*
 * Keeps what the socket did not take. Where there is no memory for it the
 * client gets nothing that comes later either: what it reads has an end, and no
 * hole.
 */
static void
client_keep_output(struct client *client, const char *bytes, uint32_t len)
{
    if (client->torn)
        return;
    if (!client_make_room(client, len)) {
        client->torn = true;
        return;
    }
    memcpy(client->out + client->out_start + client->out_len, bytes, len);
    client->out_len += len;
    client->loop->memory += len;
    if (event_add(client->writing, NULL) != 0)
        client->torn = true;
}

/* How much the socket took; -1: it is broken. */
static ssize_t
client_send(struct client *client, const char *bytes, uint32_t len)
{
    ssize_t sent = send(client->fd, bytes, len, MSG_NOSIGNAL);

    if (sent >= 0)
        return sent;
    return errno == EAGAIN || errno == EINTR ? 0 : -1;
}

/* Output is drained: go on with what waited for it. */
static void
client_drained(struct client *client)
{
    if (client->ending) {
        client_finish(client);
    } else if (client->more) {
        client->more = false;
        client_step(client, CORE_MORE);
    }
}

static void
client_writable(evutil_socket_t fd, short what, void *arg)
{
    struct client *client = arg;
    ssize_t sent =
        client_send(client, client->out + client->out_start, client->out_len);

    (void)fd;
    (void)what;
    if (sent < 0) {
        client_broken(client);
        return;
    }
    client->out_start += (uint32_t)sent;
    client->out_len -= (uint32_t)sent;
    client->loop->memory -= (uint64_t)sent;
    if (client->out_len > 0)
        return;
    client_forget_output(client);
    client_drained(client);
}

/* All together have too much, and this one has more than its share of it. */
static bool
client_hoards(const struct client *client)
{
    const struct loop *loop = client->loop;
    uint64_t own = (uint64_t)client->out_len + client->partial_len;

    return loop->memory > loop->settings.memory_max &&
           own * loop->client_count > loop->settings.memory_max;
}

static void
client_keep_partial(struct client *client, const char *data, size_t len)
{
    require(len > 0 && len <= READ_BYTES + PROTO_LINE_MAX);
    client->partial = malloc(len);
    if (client->partial == NULL) {
        client_expel(client, EXPEL_MEMORY);
        return;
    }
    memcpy(client->partial, data, len);
    client->partial_len = (uint16_t)len;
    client->loop->memory += len;
}

static void
client_bytes(struct client *client, size_t len, bool fresh)
{
    struct loop *loop = client->loop;
    char *data = loop->read_buffer;
    bool first = !client->greeted;
    bool late;

    client->greeted = true;
    if (first && data[0] == 0x16) { /* a TLS handshake */
        client_expel(client, EXPEL_PROTOCOL);
        return;
    }
    client_forget_partial(client);
    size_t done =
        engine_take(&loop->engine, &client->input, data, len, fresh, &late);
    if (client->input.deaf)
        return;
    if (late)
        list_push_back(&loop->late, &client->late_link);
    if (done < len)
        client_keep_partial(client, data + done, len - done);
    if (client_hoards(client))
        client_expel(client, EXPEL_MEMORY);
}

/* Goes on with the lines that an earlier turn had no time for. */
void
client_catch_up(struct loop *loop)
{
    struct list late;
    struct list *at;

    list_init(&late);
    list_splice_back(&late, &loop->late);
    while ((at = list_pop_front(&late)) != NULL) {
        struct client *client = container_of(at, struct client, late_link);
        size_t len = client->partial_len;
        if (len > 0)
            memcpy(loop->read_buffer, client->partial, len);
        client_bytes(client, len, false);
    }
}

static void
client_readable(evutil_socket_t fd, short what, void *arg)
{
    struct client *client = arg;
    char *data = client->loop->read_buffer;
    size_t kept = client->partial_len;

    if ((what & EV_TIMEOUT) != 0 ||
        (client->ending &&
            engine_now(&client->loop->engine) >= client->close_us)) {
        client_destroy(client); /* it did not close in time */
        return;
    }
    if (!list_empty(&client->late_link))
        return; /* what came before is first */
    if (kept > 0)
        memcpy(data, client->partial, kept);
    ssize_t got = recv(fd, data + kept, READ_BYTES, 0);
    if (got < 0) {
        if (errno != EAGAIN && errno != EINTR)
            client_broken(client);
        return;
    }
    if (got == 0) {
        client->eof = true;
        if (client->shut) {
            client_destroy(client);
            return;
        }
        event_del(&client->event);
        client_forget_partial(client);
        if (!client->ending)
            client_step(client, CORE_EOF);
        return;
    }
    if (!client->ending)
        client_bytes(client, kept + (size_t)got, true);
}

static void
secret_id(struct loop *loop, uint8_t id[16])
{
    if (loop->secrets_left < 16) {
        ssize_t got = getrandom(loop->secrets, sizeof(loop->secrets), 0);
        require(got == (ssize_t)sizeof(loop->secrets));
        loop->secrets_left = sizeof(loop->secrets);
    }
    loop->secrets_left -= 16;
    memcpy(id, loop->secrets + loop->secrets_left, 16);
    explicit_bzero(loop->secrets + loop->secrets_left, 16);
}

static void
client_refuse(int fd)
{
    static const char bye[] = "* BYE limit\n";
    ssize_t sent = send(fd, bye, sizeof(bye) - 1, MSG_NOSIGNAL | MSG_DONTWAIT);

    (void)sent; /* whoever is not told sees the end all the same */
    close(fd);
}

/* Who comes by a Unix socket; false: that is not to be known. */
static bool
peer_uid(int fd, uint32_t *uid)
{
    struct ucred peer;
    socklen_t len = sizeof(peer);

    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) != 0)
        return false;
    *uid = peer.uid;
    return true;
}

/* Where a connection comes from, and what that tells of its user. */
static void
client_identify(const struct loop *loop, int fd,
    const struct sockaddr_storage *address, struct core_event *event)
{
    const struct users *users = loop->settings.core.users;
    uint32_t uid = UINT32_MAX;
    bool known = !event->open.tcp && peer_uid(fd, &uid);

    listen_source(address, uid, event->open.address);
    if (known && users != NULL)
        event->open.user = users_of_uid(users, uid, &event->open.mark);
}

static void
client_accept(struct listener *listener, int fd,
    const struct sockaddr_storage *address, socklen_t len)
{
    struct loop *loop = listener->loop;
    struct client *client = NULL;
    struct core_event event = {.kind = CORE_OPEN};
    char peer[80];

    listen_peer(address, len, peer, sizeof(peer));
    secret_id(loop, event.open.id);
    event.open.peer = peer;
    event.open.tcp = listener->tcp;
    client_identify(loop, fd, address, &event);
    if (loop->client_count < loop->client_max)
        client = calloc(1, sizeof(*client));
    if (client == NULL) {
        count(&loop->counters, COUNTER_sessions_refused);
        client_refuse(fd);
        return;
    }
    if (loop->tune_accepted && listener->tcp)
        listen_tune(&loop->settings, fd);
    /* Effects for a session that had the same place go out first. */
    engine_carry_out(&loop->engine);
    list_init(&client->link);
    list_init(&client->dirty_link);
    list_init(&client->fate_link);
    list_init(&client->late_link);
    client->loop = loop;
    client->fd = fd;
    client->tcp = listener->tcp;
    loop->client_count++;
    list_push_back(&loop->clients, &client->link);
    event_assign(&client->event, loop->base, fd, EV_READ | EV_PERSIST,
        client_readable, client);
    bool reads = event_add(&client->event, NULL) == 0;
    if (reads)
        engine_step(&loop->engine, &event);
    else
        count(&loop->counters, COUNTER_sessions_refused);
    if (!reads || handle_equal(event.session, HANDLE_NONE)) {
        loop->client_count--;
        event_del(&client->event);
        list_remove(&client->link);
        client_refuse(fd);
        free(client);
        return;
    }
    client->input.session = event.session;
    loop->by_session[event.session.index] = client;
}

/*
 * No descriptor is left. One that was kept spare lets the connection be told
 * no, instead of leaving it in the queue and the loop awake for it for ever.
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
            client_refuse(fd);
        loop->spare_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    }
    for (uint32_t i = 0; i < loop->listener_count; i++)
        event_del(&loop->listeners[i].event);
    loop_arm(&loop->accept_timer, &pause);
}

void
client_accept_timer(evutil_socket_t fd, short what, void *arg)
{
    static const struct timeval pause = {.tv_usec = ACCEPT_PAUSE_MS * 1000};
    struct loop *loop = arg;

    (void)fd;
    (void)what;
    if (engine_stopping(&loop->engine))
        return;
    for (uint32_t i = 0; i < loop->listener_count; i++)
        if (event_add(&loop->listeners[i].event, NULL) != 0)
            loop_arm(&loop->accept_timer, &pause);
}

static void
listener_readable(evutil_socket_t fd, short what, void *arg)
{
    struct listener *listener = arg;

    (void)what;
    for (int i = 0; i < ACCEPTS_A_TURN; i++) {
        struct sockaddr_storage address = {.ss_family = AF_UNIX};
        socklen_t len = sizeof(address);
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

/* `path` is to be removed at the end; empty: none is. False: no memory; the
 * socket is on its place all the same. */
static bool
listener_add(struct loop *loop, int fd, bool tcp, const char *path)
{
    struct listener *listener = &loop->listeners[loop->listener_count];
    size_t len = strlen(path);

    require(loop->listener_count < LISTENERS_MAX);
    require(len < sizeof(listener->path)); /* as a socket has room for it */
    listener->fd = fd;
    listener->loop = loop;
    listener->tcp = tcp;
    memcpy(listener->path, path, len + 1);
    event_assign(&listener->event, loop->base, fd, EV_READ | EV_PERSIST,
        listener_readable, listener);
    loop->listener_count++;
    if (event_add(&listener->event, NULL) != 0)
        return false;
    listen_log(fd, "clients");
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
        enough = listener_add(loop, fds[i], !address->is_path,
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

    if (!listen_take(&loop->settings, passed, !loop->settings.loopback_only,
            &tcp, error, error_bytes))
        return false;
    /* Who is in its queue already came before it was given any values. */
    loop->tune_accepted = true;
    /* Its path, if any, is that of who made it. */
    if (listener_add(loop, passed->fd, tcp, ""))
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
        close(listener->fd);
        if (listener->path[0] != '\0')
            unlink(listener->path);
    }
    loop->listener_count = 0;
}

/* Adds a line to what the client is sent in this turn. */
static void
effect_line(
    struct loop *loop, struct client *client, const struct effect *effect)
{
    const char *text = loop->engine.effects.text;

    if (list_empty(&client->dirty_link))
        list_push_back(&loop->dirty, &client->dirty_link);
    if (client->turn_len == 0 && client->out_len == 0) {
        client->turn_offset = effect->offset;
        client->turn_len = effect->len;
        return;
    }
    if (client->turn_len > 0 &&
        client->turn_offset + client->turn_len == effect->offset) {
        client->turn_len += effect->len;
        return;
    }
    if (client->turn_len > 0)
        client_keep_output(
            client, text + client->turn_offset, client->turn_len);
    client->turn_len = 0;
    client_keep_output(client, text + effect->offset, effect->len);
}

/* The session has ended: the client goes when it has read all, or in time. */
static void
client_end(struct client *client)
{
    static const struct timeval drain = {.tv_sec = DRAIN_S};

    client->ending = true;
    client->input.deaf = true;
    client->input.session = HANDLE_NONE;
    client->close_us = engine_now(&client->loop->engine) + DRAIN_S * 1000000;
    list_remove(&client->late_link);
    client_forget_partial(client);
    if (!client->eof)
        loop_arm(&client->event, &drain);
}

static void
effect_carry_out(struct loop *loop, const struct effect *effect)
{
    struct client *client = client_of(loop, effect->session);

    if (effect->kind == EFFECT_HOOK)
        hooks_run(loop->hooks, loop->engine.effects.text + effect->offset,
            effect->len);
    if (client == NULL)
        return;
    switch (effect->kind) {
    case EFFECT_HOOK:
        break;
    case EFFECT_LINE:
        effect_line(loop, client, effect);
        break;
    case EFFECT_MORE:
        client->more = true;
        if (list_empty(&client->dirty_link))
            list_push_back(&loop->dirty, &client->dirty_link);
        break;
    case EFFECT_CLOSE:
        loop->by_session[effect->session.index] = NULL;
        client_end(client);
        if (list_empty(&client->dirty_link))
            list_push_back(&loop->dirty, &client->dirty_link);
        break;
    }
}

/* To be dealt with when the effects have been carried out. */
static void
client_note(struct client *client, enum client_fate fate)
{
    client->fate = fate;
    client->input.deaf = client->ending || fate != FATE_DRAINED;
    if (list_empty(&client->fate_link))
        list_push_back(&client->loop->fated, &client->fate_link);
}

/* Sends what the client got in this turn, and moves nothing else. */
static void
client_write_turn(struct loop *loop, struct client *client)
{
    const char *text = loop->engine.effects.text + client->turn_offset;
    uint32_t len = client->turn_len;
    ssize_t sent = 0;

    client->turn_len = 0;
    if (len > 0 && !client->torn) {
        sent = client_send(client, text, len);
        if (sent < 0) {
            client_note(client, FATE_BROKEN);
            return;
        }
        if ((uint32_t)sent < len)
            client_keep_output(client, text + sent, len - (uint32_t)sent);
    }
    if (client->torn && !client->ending) {
        client_note(client, FATE_MEMORY);
    } else if (client->out_len == 0) {
        if (client->ending || client->more)
            client_note(client, FATE_DRAINED);
    } else if (client->out_len > loop->settings.output_max) {
        client_note(client, FATE_OUTPUT);
    } else if (client_hoards(client)) {
        client_note(client, FATE_MEMORY);
    }
}

static void
client_meet_fate(struct client *client)
{
    if (client->fate == FATE_DRAINED)
        client_drained(client);
    else if (client->fate == FATE_BROKEN || client->ending)
        client_broken(client);
    else
        client_expel(
            client, client->fate == FATE_OUTPUT ? EXPEL_OUTPUT : EXPEL_MEMORY);
}

static uint64_t
sink_clock(void *arg)
{
    (void)arg;
    return clock_boot_us();
}

static void
sink_effect(void *arg, const struct effect *effect)
{
    effect_carry_out(arg, effect);
}

static void
sink_written(void *arg)
{
    struct loop *loop = arg;
    struct list *at;

    while ((at = list_pop_front(&loop->dirty)) != NULL)
        client_write_turn(loop, container_of(at, struct client, dirty_link));
}

/* Moves the core for clients that broke or were drained. */
static bool
sink_settle(void *arg)
{
    struct loop *loop = arg;
    struct list *at;
    bool some = false;

    while ((at = list_pop_front(&loop->fated)) != NULL) {
        client_meet_fate(container_of(at, struct client, fate_link));
        some = true;
    }
    return some;
}

const struct engine_sink client_sink = {
    .clock = sink_clock,
    .effect = sink_effect,
    .written = sink_written,
    .settle = sink_settle,
};

void
client_close_all(struct loop *loop)
{
    struct list *at;

    while ((at = list_pop_front(&loop->clients)) != NULL)
        client_destroy(container_of(at, struct client, link));
}

/*
 * Connections of clients: reads lines, writes output, closes.
 *
 * Each client is always read from. Otherwise the broker would not see its end
 * at once. Limits bound its buffers: a partial line, outstanding requests (the
 * core), unread output, and the bytes of all clients. An idle connection costs
 * no buffer.
 *
 * At the end our FIN follows BYE. The socket stays for a moment, until the
 * client's own FIN: a close with unread input would destroy the BYE.
 */
#include "daemon/io/client.h"

#include "daemon/base/assert.h"
#include "daemon/io/clock.h"
#include "daemon/io/listen.h"
#include "daemon/io/tls.h"
#include "daemon/op/op.h"
#include "proto/request.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#define LINGER_S 1
#define DRAIN_S  10
/* TLS records of a client, a turn. A record may have a single byte. */
#define RECORDS_A_TURN 64
/* A part of a record counts as a whole one: TLS has room for all of it. */
#define RECORD_BYTES (TLS_RECORD_BYTES + 512)

static struct client *
client_of(const struct loop *loop, struct handle session)
{
    struct client *client = loop->by_session[session.index];

    return client != NULL && handle_equal(client->input.session, session)
               ? client
               : NULL;
}

/* Asserts the invariants of each state, which state.h lists. */
static void
client_check(const struct client *client)
{
    enum client_state state = client->state;

    require((client->handshake != NULL) == (state == CLIENT_HANDSHAKE));
    require(client_has_session(client) ==
            !handle_equal(client->input.session, HANDLE_NONE));
    require(client->input.deaf || state < CLIENT_LEAVING);
    require(client->partial_len == 0 || state < CLIENT_EOF);
    require(state != CLIENT_LINGER ||
            (client->out_len == 0 && client->tls == NULL));
}

void
client_move(struct client *client, enum client_state to)
{
    static const unsigned moves[] = {
        [CLIENT_ACCEPTED] = 1U << CLIENT_HANDSHAKE | 1U << CLIENT_FRESH,
        [CLIENT_HANDSHAKE] =
            1U << CLIENT_FRESH | 1U << CLIENT_LEAVING | 1U << CLIENT_HURRIED,
        [CLIENT_FRESH] = 1U << CLIENT_OPEN | 1U << CLIENT_EOF |
                         1U << CLIENT_LEAVING | 1U << CLIENT_HURRIED,
        [CLIENT_OPEN] =
            1U << CLIENT_EOF | 1U << CLIENT_LEAVING | 1U << CLIENT_HURRIED,
        [CLIENT_EOF] = 1U << CLIENT_LEAVING_EOF | 1U << CLIENT_HURRIED,
        [CLIENT_LEAVING] = 1U << CLIENT_LEAVING_EOF | 1U << CLIENT_LINGER,
        [CLIENT_LEAVING_EOF] = 0,
        [CLIENT_HURRIED] = 0,
        [CLIENT_LINGER] = 0,
    };

    require((moves[client->state] & 1U << to) != 0);
    client->state = to;
    client_check(client);
}

static void
client_forget_output(struct client *client)
{
    require(client->loop->memory >= client->out_len);
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
    require(client->loop->memory >= client->partial_len);
    client->loop->memory -= client->partial_len;
    free(client->partial);
    client->partial = NULL;
    client->partial_len = 0;
}

/* Counts the memory of a partial TLS record. */
static void
client_count_record(struct client *client, bool within)
{
    if (client->within == within)
        return;
    client->within = within;
    require(within || client->loop->memory >= RECORD_BYTES);
    if (within)
        client->loop->memory += RECORD_BYTES;
    else
        client->loop->memory -= RECORD_BYTES;
}

static void
client_forget_tls(struct client *client)
{
    client_count_record(client, false);
    client->loop->tls_count -= client->tls != NULL;
    tls_conn_destroy(&client->tls);
}

void
client_end_handshake(struct client *client)
{
    struct handshake *handshake = client->handshake;

    if (handshake == NULL)
        return;
    core_depart(client->loop->engine.core, &handshake->peer);
    list_remove(&handshake->link);
    require(client->loop->handshake_count > 0);
    client->loop->handshake_count--;
    client->loop->handshake_over = true;
    client->handshake = NULL;
    free(handshake);
}

/* Frees the client. Its session has ended, or the caller ends it. */
void
client_destroy(struct client *client)
{
    struct loop *loop = client->loop;

    client_end_handshake(client);
    core_linger_end(loop->engine.core, &client->address);
    if (client_of(loop, client->input.session) == client)
        loop->by_session[client->input.session.index] = NULL;
    event_del(&client->event);
    client_forget_output(client);
    client_forget_partial(client);
    client_forget_tls(client);
    list_remove(&client->link);
    list_remove(&client->dirty_link);
    list_remove(&client->fate_link);
    list_remove(&client->late_link);
    if (client->fd >= 0)
        close(client->fd);
    require(loop->client_count > 0);
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
    bool had_session = client_has_session(client);

    client_destroy(client);
    if (!had_session)
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

    if (client_has_session(client))
        engine_step(&client->loop->engine, &event);
}

static void client_writable(evutil_socket_t fd, short what, void *arg);

/* Awaits client_writable(), when the socket takes more. False: no memory. */
static bool
client_await_room(struct client *client)
{
    if (client->writing == NULL)
        client->writing = event_new(client->loop->base, client->fd,
            EV_WRITE | EV_PERSIST, client_writable, client);
    return client->writing != NULL && event_add(client->writing, NULL) == 0;
}

void
client_linger(struct client *client)
{
    static const struct timeval linger = {.tv_sec = LINGER_S};

    client_forget_tls(client);
    if (client->state != CLIENT_LEAVING || shutdown(client->fd, SHUT_WR) != 0) {
        client_destroy(client);
        return;
    }
    client_move(client, CLIENT_LINGER);
    client->close_us = engine_now(&client->loop->engine) + LINGER_S * 1000000;
    loop_arm(&client->event, &linger);
}

/* All output is sent: ends TLS, then lingers. */
void
client_finish(struct client *client)
{
    if (client->tls == NULL) {
        client_linger(client);
        return;
    }
    if (tls_conn_end(client->tls) != TLS_WANTS_WRITE ||
        client->state == CLIENT_HURRIED)
        client_linger(client);
    else if (!client_await_room(client))
        client_destroy(client);
}

/* Room for `len` bytes more behind what is kept; false: no memory. */
static bool
client_make_room(struct client *client, uint32_t len)
{
    if (client->out_start + client->out_len + len <= client->out_capacity)
        return true;
    /* Grows by half: the output of a slow reader is copied only a few times. */
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
 * Keeps output that the socket did not take. Without memory, the client gets no
 * later output either: its input ends, and has no hole.
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
    require(client->out_start + client->out_len + len <= client->out_capacity);
    memcpy(client->out + client->out_start + client->out_len, bytes, len);
    client->out_len += len;
    client->loop->memory += len;
    /* TLS may have to read first. */
    if (!client->write_waits && !client_await_room(client))
        client->torn = true;
}

/* As client_send(), record by record. */
static ssize_t
client_send_tls(struct client *client, const char *bytes, uint32_t len)
{
    enum tls_status status = TLS_DONE;
    size_t done = 0;

    while (done < len && status == TLS_DONE) {
        size_t sent = 0;
        status = tls_conn_write(client->tls, bytes + done, len - done, &sent);
        done += status == TLS_DONE ? sent : 0;
    }
    client->write_waits = status == TLS_WANTS_READ;
    return status == TLS_BROKEN || status == TLS_ENDED ? -1 : (ssize_t)done;
}

/* The bytes that the socket took. -1: the connection is broken. */
static ssize_t
client_send(struct client *client, const char *bytes, uint32_t len)
{
    if (client->tls != NULL)
        return client_send_tls(client, bytes, len);
    ssize_t sent = send(client->fd, bytes, len, MSG_NOSIGNAL);

    if (sent >= 0)
        return sent;
    return errno == EAGAIN || errno == EINTR ? 0 : -1;
}

/* Output is drained: closes the client, or lets the core go on. */
static void
client_drained(struct client *client)
{
    if (!client_has_session(client)) {
        client_finish(client);
    } else if (client->more) {
        client->more = false;
        client_step(client, CORE_MORE);
    }
}

/* Sends kept output; false: not all of it. */
static bool
client_send_kept(struct client *client)
{
    ssize_t sent =
        client_send(client, client->out + client->out_start, client->out_len);

    if (sent < 0) {
        client_broken(client);
        return false;
    }
    require((uint32_t)sent <= client->out_len);
    client->out_start += (uint32_t)sent;
    client->out_len -= (uint32_t)sent;
    client->loop->memory -= (uint64_t)sent;
    if (client->write_waits)
        event_del(client->writing); /* it would come all the time */
    return client->out_len == 0;
}

static void
client_writable(evutil_socket_t fd, short what, void *arg)
{
    struct client *client = arg;

    (void)fd;
    (void)what;
    if (client->read_waits) {
        client->read_waits = false;
        if (event_add(&client->event, NULL) != 0) {
            client_broken(client);
            return;
        }
    }
    if (client->out_len > 0 && !client_send_kept(client))
        return;
    client_forget_output(client);
    client_drained(client);
}

/* All clients together use too much memory, and this one more than its share.
 */
static bool
client_hoards(const struct client *client)
{
    const struct loop *loop = client->loop;
    uint64_t own = (uint64_t)client->out_len + client->partial_len +
                   (client->within ? RECORD_BYTES : 0);

    return loop->memory > loop->settings.memory_max &&
           own * loop->client_count > loop->settings.memory_max;
}

static void
client_keep_partial(struct client *client, const char *data, size_t len)
{
    require(len > 0 && len <= 2 * READ_BYTES + PROTO_LINE_MAX);
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
    bool late;

    require(client->state == CLIENT_FRESH || client->state == CLIENT_OPEN);
    if (client->state == CLIENT_FRESH) {
        client_move(client, CLIENT_OPEN);
        if (data[0] == 0x16) { /* a TLS handshake */
            client_expel(client, EXPEL_PROTOCOL);
            return;
        }
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

/* Waits without reading: remaining output has until close_us. */
static void
client_await_end(struct client *client)
{
    uint64_t now_us = engine_now(&client->loop->engine);
    uint64_t left_us =
        client->close_us > now_us ? client->close_us - now_us : 0;
    const struct timeval left = {.tv_sec = (time_t)(left_us / 1000000),
        .tv_usec = (suseconds_t)(left_us % 1000000)};

    require(client->state >= CLIENT_LEAVING);
    event_assign(
        &client->event, client->loop->base, -1, 0, client_readable, client);
    loop_arm(&client->event, &left);
}

/* The client sends no more, or is gone. Its earlier lines are done. */
static void
client_over(struct client *client)
{
    if (client->over == OVER_BROKEN) {
        client_broken(client);
        return;
    }
    if (client->state == CLIENT_LINGER) {
        client_destroy(client);
        return;
    }
    event_del(&client->event);
    client_forget_partial(client);
    if (client_has_session(client)) {
        client_move(client, CLIENT_EOF);
        client_step(client, CORE_EOF);
        return;
    }
    if (client->state == CLIENT_LEAVING)
        client_move(client, CLIENT_LEAVING_EOF);
    client_await_end(client);
}

/* Goes on with lines that were too many for an earlier turn. */
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
        if (client->over != OVER_NOT && list_empty(&client->late_link))
            client_over(client);
    }
}

/*
 * Reads up to twice READ_BYTES: whole records, as long as there is room for
 * one. No event tells of the rest of a partial record.
 */
static size_t
client_receive_tls(struct client *client, char *out)
{
    enum tls_status status = TLS_DONE;
    size_t len = 0;

    for (int i = 0; i < RECORDS_A_TURN && status == TLS_DONE &&
                    len <= 2 * READ_BYTES - TLS_RECORD_BYTES;
         i++) {
        size_t got = 0;
        status =
            tls_conn_read(client->tls, out + len, 2 * READ_BYTES - len, &got);
        len += status == TLS_DONE ? got : 0;
    }
    client_count_record(client, tls_conn_is_within(client->tls));
    if (status == TLS_ENDED)
        client->over = OVER_END;
    else if (status == TLS_BROKEN)
        client->over = OVER_BROKEN;
    client->read_waits = status == TLS_WANTS_WRITE;
    return len;
}

static size_t
client_receive(struct client *client, char *out)
{
    /* After our FIN, input matters only by its end. */
    if (client->tls != NULL)
        return client_receive_tls(client, out);
    ssize_t got = recv(client->fd, out, READ_BYTES, 0);
    if (got > 0)
        return (size_t)got;
    if (got == 0)
        client->over = OVER_END;
    else if (errno != EAGAIN && errno != EINTR)
        client->over = OVER_BROKEN;
    return 0;
}

/* Awaits the event that TLS needs first: TLS may have to write before it reads,
 * or read before it writes. */
static void
client_untangle(struct client *client)
{
    if (client->write_waits) {
        client->write_waits = false;
        if (!client_await_room(client))
            client->over = OVER_BROKEN;
    }
    if (!client->read_waits)
        return;
    event_del(&client->event); /* it would come all the time */
    /* A client that leaves is not waited for. */
    if (!client_has_session(client) || !client_await_room(client))
        client->over = OVER_BROKEN;
}

void
client_readable(evutil_socket_t fd, short what, void *arg)
{
    struct client *client = arg;
    char *data = client->loop->read_buffer;
    size_t kept = client->partial_len;

    (void)fd;
    if ((what & EV_TIMEOUT) != 0 ||
        (!client_has_session(client) &&
            engine_now(&client->loop->engine) >= client->close_us)) {
        client_destroy(client); /* the client did not close in time */
        return;
    }
    if (!list_empty(&client->late_link))
        return; /* earlier input comes first */
    if (kept > 0)
        memcpy(data, client->partial, kept);
    size_t got = client_receive(client, data + kept);
    if (client->tls != NULL)
        client_untangle(client);
    if (got > 0 && client_has_session(client))
        client_bytes(client, kept + got, true);
    else if (client->within && client_hoards(client))
        client_expel(client, EXPEL_MEMORY);
    if (client->over != OVER_NOT && list_empty(&client->late_link))
        client_over(client);
}

/* Adds a line to the client's output of this turn. */
static void
effect_line(
    struct loop *loop, struct client *client, const struct effect *effect)
{
    const char *text = loop->engine.effects.text;

    require(client_has_session(client));
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

/* The client has no session, and its input is ignored. It stays for a while, so
 * that BYE arrives. With many such clients of its address it is hurried: it
 * takes a place that others need. */
void
client_leave(struct client *client)
{
    struct sockaddr_storage address = {.ss_family = AF_UNSPEC};
    socklen_t len = sizeof(address);
    uint32_t uid = UINT32_MAX;
    uint8_t source[16];
    bool hurried = false;

    client->input.session = HANDLE_NONE;
    client->input.deaf = true;
    if (client->loop->settings.core.address_connections_max > 0 &&
        getpeername(client->fd, (struct sockaddr *)&address, &len) == 0) {
        if (address.ss_family == AF_UNIX)
            (void)listen_uid(client->fd, &uid);
        listen_address_key(&address, uid, source);
        hurried =
            !core_linger(client->loop->engine.core, source, &client->address);
    }
    client_move(client, hurried                       ? CLIENT_HURRIED
                        : client->state == CLIENT_EOF ? CLIENT_LEAVING_EOF
                                                      : CLIENT_LEAVING);
}

/* The session has ended. The client leaves when its output is sent, or in time.
 */
static void
client_end(struct client *client)
{
    static const struct timeval drain = {.tv_sec = DRAIN_S};
    bool eof = client->state == CLIENT_EOF;

    list_remove(&client->late_link);
    client_forget_partial(client);
    client_leave(client);
    client->close_us = engine_now(&client->loop->engine) + DRAIN_S * 1000000;
    if (eof)
        client_await_end(client);
    else
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

/* client_meet_fate() follows when all effects are carried out. */
static void
client_note(struct client *client, enum client_fate fate)
{
    client->fate = fate;
    client->input.deaf = !client_has_session(client) || fate != FATE_DRAINED;
    if (list_empty(&client->fate_link))
        list_push_back(&client->loop->fated, &client->fate_link);
}

/* Sends the client's output of this turn, and changes nothing else. */
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
    if (client->torn && client_has_session(client)) {
        client_note(client, FATE_MEMORY);
    } else if (client->out_len == 0) {
        if (!client_has_session(client) || client->more)
            client_note(client, FATE_DRAINED);
    } else if (client->state == CLIENT_HURRIED) {
        client_note(client, FATE_BROKEN);
    } else if (client->out_len > loop->settings.core.output_max) {
        client_note(client, FATE_OUTPUT);
    } else if (client_hoards(client)) {
        client_note(client, FATE_MEMORY);
    }
}

static void
client_meet_fate(struct client *client)
{
    /* Output that came since is drained by client_writable(). */
    if (client->fate == FATE_DRAINED && client->out_len > 0)
        return;
    if (client->fate == FATE_DRAINED)
        client_drained(client);
    else if (client->fate == FATE_BROKEN || !client_has_session(client))
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

/* Tells the core of clients that broke or were drained. */
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
    require(loop->client_count == 0 && loop->handshake_count == 0);
    require(loop->tls_count == 0 && loop->memory == 0);
}

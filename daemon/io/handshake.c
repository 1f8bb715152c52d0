/*
 * TLS handshakes of clients.
 *
 * A client has no session before its handshake is done. Until then it counts
 * for its address, has HANDSHAKE_S, and gets nothing but TLS.
 *
 * Anybody may begin a handshake, and a handshake costs more than a request. So
 * handshakes get a share of each turn, in the order in which they can go on.
 * The broker does nothing for a client that has gone. The number of handshakes
 * is bounded. If it is reached, the client that has kept the broker waiting for
 * longest makes room: an honest client answers soon. The broker accepts no TLS
 * client until one has waited that long. So handshakes under way finish, and
 * many honest clients get in one after the other.
 */
#include "daemon/io/listen.h"

#include "daemon/base/assert.h"
#include "daemon/base/log.h"
#include "daemon/io/client.h"
#include "daemon/io/clock.h"
#include "daemon/io/tls.h"
#include "daemon/op/op.h"

#include <poll.h>
#include <stdlib.h>
#include <sys/socket.h>

#define HANDSHAKE_S 10
/* A client that has kept the broker waiting for less makes no room. The wait
 * may begin anew so often, which is more than a handshake has flights. */
#define WAIT_US   300000
#define WAITS_MAX 6
/* The share of a turn, for all handshakes. A step that is begun is done. */
#define HANDSHAKES_US 3000
/* Memory of a handshake, with certificates and a record. It may be 155 KiB, if
 * a ClientHello claims the greatest length that OpenSSL takes. But room for
 * fewer handshakes would keep out more honest clients. */
#define HANDSHAKE_BYTES 65536
#define HANDSHAKES_MIN  64
/* Names of a certificate that are looked up among users. */
#define NAMES_MAX 64

/* The handshake has failed. Only TLS tells the client. */
static void
handshake_end(struct client *client, enum counter counter, const char *why)
{
    struct loop *loop = client->loop;
    char peer[80];

    listen_peer(&client->handshake->address, client->handshake->address_len,
        peer, sizeof(peer));
    count(&loop->counters, counter);
    /* A check that the port is open is not logged. */
    log_write(counter == COUNTER_tls_closed ? LOG_DEBUG : LOG_INFO,
        "tls_failed", log_word("peer", peer),
        log_quoted("why", text_from(why)));
    if (counter != COUNTER_tls_certificate) {
        client_destroy(client);
        return;
    }
    /* The client stays to read the reason. Its input is ignored. */
    client_end_handshake(client);
    event_del(&client->event);
    event_assign(&client->event, loop->base, client->fd, EV_READ | EV_PERSIST,
        client_readable, client);
    client_leave(client);
    client_linger(client);
}

static void
handshake_broken(struct client *client)
{
    static const enum counter counters[] = {
        [TLS_FAILED_GONE] = COUNTER_tls_closed,
        [TLS_FAILED_PROTOCOL] = COUNTER_tls_protocol,
        [TLS_FAILED_CERTIFICATE] = COUNTER_tls_certificate,
    };

    handshake_end(client, counters[tls_conn_failure(client->tls)],
        tls_conn_why(client->tls));
}

/* --- the owner of the certificate ----------------------------------------- */

struct names {
    const struct users *users;
    struct user *user;
    struct user *other; /* a second user of the same certificate */
    uint32_t mark;
    uint32_t count;
};

static void
name_found(void *arg, struct text name)
{
    struct names *names = arg;
    uint32_t mark;

    if (++names->count > NAMES_MAX)
        return;
    struct user *user = users_of_cert(names->users, name, &mark);
    if (user == NULL || user == names->user)
        return;
    if (names->user != NULL) {
        names->other = user;
        return;
    }
    names->user = user;
    names->mark = mark;
}

/* The one user that the certificate names; NULL: none, or several. */
static struct user *
handshake_user(const struct client *client, const char *peer, uint32_t *mark)
{
    struct names names = {.users = client->loop->settings.core.users};

    if (names.users == NULL || !tls_conn_names(client->tls, name_found, &names))
        return NULL;
    *mark = names.mark;
    if (names.count > NAMES_MAX) {
        log_write(LOG_WARN, "certificate_names", log_word("peer", peer),
            log_number("names", names.count), log_signed("most", NAMES_MAX));
        return NULL;
    }
    if (names.other == NULL)
        return names.user;
    log_write(LOG_WARN, "certificate_ambiguous", log_word("peer", peer),
        log_quoted("user", names.user->name),
        log_quoted("other", names.other->name));
    return NULL;
}

/* --- going on ------------------------------------------------------------- */

/* The broker has no room for the client, and can tell it now. */
static void
handshake_refuse(struct client *client)
{
    static const char bye[] = CLIENT_BYE_LIMIT;
    size_t sent;

    count(&client->loop->counters, COUNTER_sessions_refused);
    client_leave(client);
    client->close_us =
        engine_now(&client->loop->engine) + (uint64_t)HANDSHAKE_S * 1000000;
    (void)tls_conn_write(client->tls, bye, sizeof(bye) - 1, &sent);
    client_finish(client);
}

static void
handshake_done(struct client *client)
{
    struct loop *loop = client->loop;
    struct sockaddr_storage address = client->handshake->address;
    socklen_t len = client->handshake->address_len;
    uint32_t mark = 0;
    char peer[80];

    listen_peer(&address, len, peer, sizeof(peer));
    struct user *user = handshake_user(client, peer, &mark);
    count(&loop->counters, COUNTER_tls_done);
    client_end_handshake(client);
    event_assign(&client->event, loop->base, client->fd, EV_READ | EV_PERSIST,
        client_readable, client);
    if (!client_open(client, &address, len, user, mark))
        handshake_refuse(client);
}

static void
handshake_event(evutil_socket_t fd, short what, void *arg)
{
    struct client *client = arg;

    (void)fd;
    (void)engine_now(&client->loop->engine);
    if ((what & (EV_READ | EV_WRITE)) == 0) {
        handshake_end(client, COUNTER_tls_timeout, "handshake timed out");
        return;
    }
    list_remove(&client->handshake->link);
    list_push_back(&client->loop->handshakes_due, &client->handshake->link);
}

/* The handshake waits for its client. The longest wait is in front. */
static void
handshake_keeps_waiting(
    struct loop *loop, struct handshake *handshake, uint64_t now_us)
{
    if (handshake->waits == WAITS_MAX) { /* its flights come in pieces */
        list_push_front(&loop->handshakes, &handshake->link);
        return;
    }
    handshake->waits++;
    handshake->since_us = now_us;
    list_push_back(&loop->handshakes, &handshake->link);
}

/* Awaits EV_READ or EV_WRITE. False: no memory. */
static bool
handshake_await(struct client *client, short what)
{
    uint64_t now_us = engine_now(&client->loop->engine);
    uint64_t end_us = client->handshake->end_us;
    uint64_t wait_us = end_us > now_us ? end_us - now_us : 0;
    struct timeval wait = {.tv_sec = (time_t)(wait_us / 1000000),
        .tv_usec = (suseconds_t)(wait_us % 1000000)};

    require(list_empty(&client->handshake->link));
    handshake_keeps_waiting(client->loop, client->handshake, now_us);
    event_assign(&client->event, client->loop->base, client->fd, what,
        handshake_event, client);
    return event_add(&client->event, &wait) == 0;
}

/* Goes on with the handshake as far as the socket lets it. */
static void
handshake_go_on(struct client *client)
{
    bool awaited = true;

    switch (tls_conn_handshake(client->tls)) {
    case TLS_DONE:
        handshake_done(client);
        return;
    case TLS_ENDED:
    case TLS_BROKEN:
        handshake_broken(client);
        return;
    case TLS_WANTS_READ:
        awaited = handshake_await(client, EV_READ);
        break;
    case TLS_WANTS_WRITE:
        awaited = handshake_await(client, EV_WRITE);
        break;
    }
    if (!awaited)
        handshake_end(
            client, COUNTER_tls_crowded, "no memory for the handshake");
}

/* The client has closed already: nobody would read the costly answer. Input
 * that is no handshake costs nothing, and is logged as such. */
static bool
client_has_gone(const struct client *client)
{
    struct pollfd end = {.fd = client->fd, .events = POLLRDHUP};
    char first;

    return poll(&end, 1, 0) == 1 &&
           (recv(client->fd, &first, 1, MSG_PEEK) != 1 || first == 0x16);
}

static void
handshake_step(struct client *client)
{
    struct loop *loop = client->loop;

    if (client->tls == NULL && client_has_gone(client)) {
        handshake_end(client, COUNTER_tls_closed, "closed by the client");
        return;
    }
    if (engine_now(&loop->engine) >= client->handshake->end_us) {
        handshake_end(client, COUNTER_tls_timeout, "handshake timed out");
        return;
    }
    if (client->tls == NULL) {
        client->tls =
            tls_conn_create(loop->settings.client_tls, client->fd, NULL);
        loop->tls_count += client->tls != NULL;
    }
    if (client->tls == NULL)
        handshake_end(client, COUNTER_tls_crowded, "no memory for TLS");
    else
        handshake_go_on(client);
}

void
handshake_some(struct loop *loop)
{
    struct list *at;

    if (list_empty(&loop->handshakes_due))
        return;
    uint64_t end_us = clock_boot_us() + HANDSHAKES_US;
    while ((at = list_pop_front(&loop->handshakes_due)) != NULL) {
        handshake_step(container_of(at, struct handshake, link)->client);
        if (clock_boot_us() >= end_us)
            return;
    }
}

static uint32_t
handshakes_max(const struct loop *loop)
{
    uint64_t most = loop->settings.memory_max / 4 / HANDSHAKE_BYTES;

    return most < HANDSHAKES_MIN ? HANDSHAKES_MIN : (uint32_t)most;
}

/* The handshake that has kept the loop waiting for longest; NULL: none. */
static struct handshake *
handshake_slowest(const struct loop *loop)
{
    return list_empty(&loop->handshakes)
               ? NULL
               : container_of(loop->handshakes.next, struct handshake, link);
}

bool
handshake_has_room(const struct loop *loop)
{
    const struct handshake *slowest = handshake_slowest(loop);

    return loop->handshake_count < handshakes_max(loop) ||
           (slowest != NULL && clock_boot_us() >= slowest->since_us + WAIT_US);
}

/* Makes room for one more. False: there is none. */
static bool
handshake_make_room(struct loop *loop)
{
    if (loop->handshake_count < handshakes_max(loop))
        return true;
    struct handshake *slowest = handshake_slowest(loop);
    if (slowest == NULL) {
        count(&loop->counters, COUNTER_tls_crowded);
        return false;
    }
    handshake_end(
        slowest->client, COUNTER_tls_crowded, "too many handshakes at once");
    return true;
}

bool
handshake_begin(
    struct client *client, const struct sockaddr_storage *address, unsigned len)
{
    struct loop *loop = client->loop;
    uint8_t source[16];
    struct handshake *handshake = calloc(1, sizeof(*handshake));

    if (handshake == NULL)
        return false;
    listen_address_key(address, UINT32_MAX, source);
    /* A client beyond the limit of its address gets no other one's place. */
    if (!core_arrive(loop->engine.core, source, &handshake->peer)) {
        free(handshake);
        return false;
    }
    if (!handshake_make_room(loop)) {
        core_depart(loop->engine.core, &handshake->peer);
        free(handshake);
        return false;
    }
    list_init(&handshake->link);
    loop->handshake_count++;
    handshake->client = client;
    handshake->address = *address;
    handshake->address_len = len;
    handshake->end_us =
        engine_now(&loop->engine) + (uint64_t)HANDSHAKE_S * 1000000;
    client->handshake = handshake;
    client_move(client, CLIENT_HANDSHAKE);
    return handshake_await(client, EV_READ);
}

void
handshake_stop(struct loop *loop)
{
    struct list *at;

    list_splice_back(&loop->handshakes, &loop->handshakes_due);
    while ((at = list_pop_front(&loop->handshakes)) != NULL)
        client_destroy(container_of(at, struct handshake, link)->client);
}

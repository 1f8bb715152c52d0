/*
 * The begin of a client's connection, up to its session: what the system knows
 * of its peer, and its session ID.
 */
#include "daemon/io/client.h"

#include "daemon/base/assert.h"
#include "daemon/io/listen.h"
#include "daemon/op/op.h"

#include <stdlib.h>
#include <sys/random.h>

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

/*
 * Sets the address of the connection, and the user of a Unix socket's peer. The
 * user of a certificate is set already.
 */
static void
client_identify(const struct client *client,
    const struct sockaddr_storage *address, struct core_event *event)
{
    const struct users *users = client->loop->settings.core.users;
    uint32_t uid = UINT32_MAX;
    bool known = address->ss_family == AF_UNIX && listen_uid(client->fd, &uid);

    listen_address_key(address, uid, event->open.address);
    if (known && users != NULL)
        event->open.user = users_of_uid(users, uid, &event->open.mark);
}

struct client *
client_create(struct loop *loop, int fd)
{
    struct client *client = NULL;

    if (loop->client_count < loop->client_max)
        client = calloc(1, sizeof(*client));
    if (client == NULL)
        return NULL;
    list_init(&client->link);
    list_init(&client->dirty_link);
    list_init(&client->fate_link);
    list_init(&client->late_link);
    client->loop = loop;
    client->fd = fd;
    client->input.session = HANDLE_NONE;
    loop->client_count++;
    list_push_back(&loop->clients, &client->link);
    event_assign(&client->event, loop->base, fd, EV_READ | EV_PERSIST,
        client_readable, client);
    return client;
}

bool
client_open(struct client *client, const struct sockaddr_storage *address,
    socklen_t len, struct user *user, uint32_t mark)
{
    struct loop *loop = client->loop;
    struct core_event event = {.kind = CORE_OPEN};
    char peer[80];

    listen_peer(address, len, peer, sizeof(peer));
    secret_id(loop, event.open.id);
    event.open.peer = peer;
    event.open.silence_us = client->silence_us;
    event.open.user = user;
    event.open.mark = mark;
    client_identify(client, address, &event);
    if (event_add(&client->event, NULL) != 0)
        return false;
    /* Effects for an earlier session with this place come first. */
    engine_carry_out(&loop->engine);
    engine_step(&loop->engine, &event);
    if (handle_equal(event.session, HANDLE_NONE))
        return false;
    require(loop->by_session[event.session.index] == NULL);
    client->input.session = event.session;
    loop->by_session[event.session.index] = client;
    client_move(client, CLIENT_FRESH);
    return true;
}

int
client_release(struct client *client)
{
    int fd = client->fd;

    client->fd = -1;
    client_destroy(client);
    return fd;
}

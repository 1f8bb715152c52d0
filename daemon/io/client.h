/*
 * Connections of clients: open.c begins them, client.c serves and ends them.
 */
#ifndef HOLDFAST_IO_CLIENT_H
#define HOLDFAST_IO_CLIENT_H

#include "daemon/io/state.h"

/* Carries out the core's effects on clients. */
extern const struct engine_sink client_sink;

/*
 * open.c: a client without a session, which owns `fd`. NULL: no memory, or
 * client_max is reached; the descriptor is still the caller's.
 */
struct client *client_create(struct loop *loop, int fd);

/*
 * Opens the session of a client. `user` and `mark` are what a certificate
 * proves, or NULL. False: the core has no room; the client is the caller's.
 */
bool client_open(struct client *client, const struct sockaddr_storage *address,
    unsigned len, struct user *user, uint32_t mark);

/* Destroys a client without a session; returns its descriptor, still open. */
int client_release(struct client *client);

/* Makes a move of the client's state: see state.h. */
void client_move(struct client *client, enum client_state to);

/* Whether the client has a session in the core. */
static inline bool
client_has_session(const struct client *client)
{
    return client->state >= CLIENT_FRESH && client->state <= CLIENT_EOF;
}

/* Frees the client's handshake, if there is one. */
void client_end_handshake(struct client *client);

/* Closes and frees the client; its session has ended, or the caller ends it. */
void client_destroy(struct client *client);

/*
 * Moves a client without a session to CLIENT_LEAVING: its input is ignored.
 * Comes before client_finish() and client_linger().
 */
void client_leave(struct client *client);

/* Ends TLS, then calls client_linger(). All output has been sent. */
void client_finish(struct client *client);

/* Sends our FIN, and destroys the client at its FIN, or after a moment. */
void client_linger(struct client *client);

/* client->event: reads input, or ends a client that leaves and is late. */
void client_readable(evutil_socket_t fd, short what, void *arg);

/* Goes on with lines that were too many for an earlier turn. */
void client_catch_up(struct loop *loop);

/* Destroys all clients; the core hears of none. */
void client_close_all(struct loop *loop);

#endif

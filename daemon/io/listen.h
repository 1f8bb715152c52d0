/*
 * Listening sockets, new clients, and their TLS handshakes.
 */
#ifndef HOLDFAST_IO_LISTEN_H
#define HOLDFAST_IO_LISTEN_H

#include "daemon/io/state.h"

/* listen.c */

/*
 * Listens on an address, on each socket of its name; `fds` has room for
 * LISTEN_SOCKETS_MAX. Returns how many there are; 0: `error` says what the
 * system refused. `anywhere`: other machines may reach the address.
 */
uint32_t listen_on(const struct loop_settings *settings,
    const struct loop_address *address, bool anywhere, int *fds, char *error,
    size_t error_bytes);

/* Prepares a passed socket. False: it cannot be used, and `error` says why.
 * *tcp: whether it is TCP. */
bool listen_take(const struct loop_socket *passed, bool anywhere, bool *tcp,
    char *error, size_t error_bytes);

/*
 * The key that counts connections of one peer address: an IPv4 address, an IPv6
 * /64, or the uid at a Unix socket (UINT32_MAX: unknown).
 */
void listen_address_key(
    const struct sockaddr_storage *address, uint32_t uid, uint8_t out[16]);

/* The uid of the peer at a Unix socket; false: the system does not tell. */
bool listen_uid(int fd, uint32_t *uid);

/* Sets the options of a client's TCP socket. Returns how long TCP lets a silent
 * client be, in microseconds. */
uint64_t listen_set_options(const struct loop_settings *settings, int fd);

/* Logs that `fd` listens for `whom`. */
void listen_log(int fd, const char *whom);

/* The peer's address for people: "HOST:PORT", or "unix". 80 bytes are enough.
 */
void listen_peer(const struct sockaddr_storage *address, unsigned len,
    char *out, size_t out_bytes);

/* accept.c */

/* Listens on one address of listen.tcp, listen.tls or listen.unix. False:
 * `error` says why not. */
bool client_listen(struct loop *loop, const struct loop_address *address,
    char *error, size_t error_bytes);

/* Listens on a passed socket, which the loop owns then. False: as above. */
bool client_listen_passed(struct loop *loop, const struct loop_socket *passed,
    char *error, size_t error_bytes);

/* Closes all listening sockets, and removes the paths that the loop made. */
void client_stop_listening(struct loop *loop);

/* loop->accept_timer: accepts again after a pause. */
void client_accept_timer(evutil_socket_t fd, short what, void *arg);

/* Ends a pause of TLS listeners, if there may be room. */
void client_accept_tls(struct loop *loop);

/* handshake.c */

/* Whether a new handshake has room without ending one that is in time. */
bool handshake_has_room(const struct loop *loop);

/*
 * Begins a client's handshake, at whose end the client is opened. False: its
 * address has too many, or no memory; the client is the caller's.
 */
bool handshake_begin(struct client *client,
    const struct sockaddr_storage *address, unsigned len);

/* Goes on with handshakes that can, for a share of the turn. */
void handshake_some(struct loop *loop);

/* Ends all handshakes, and destroys their clients. */
void handshake_stop(struct loop *loop);

#endif

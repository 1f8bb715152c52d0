/*
 * Listeners, and new connections.
 */
#ifndef HOLDFAST_IO_ACCEPT_H
#define HOLDFAST_IO_ACCEPT_H

#include "daemon/io/state.h"

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

#endif

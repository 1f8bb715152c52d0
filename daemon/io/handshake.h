/*
 * Handshakes of clients that speak TLS.
 */
#ifndef HOLDFAST_IO_HANDSHAKE_H
#define HOLDFAST_IO_HANDSHAKE_H

#include "daemon/io/state.h"

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

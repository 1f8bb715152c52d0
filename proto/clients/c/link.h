/*
 * The socket of a connection, and the transport over it, if any.
 */
#ifndef HOLDFAST_CLIENT_LINK_H
#define HOLDFAST_CLIENT_LINK_H

#include "proto/clients/c/client.h"

/* address.c: resolves the addresses into h->peers, in random order. A name as
 * host makes it block. After an error h can only be destroyed. */
enum holdfast_status holdfast_link_resolve(
    struct holdfast *h, const char *address);

/* Begins a round of the addresses, with the next one. */
void holdfast_link_connect(struct holdfast *h);

/* Continues connecting and the handshake; `revents` is from poll(). */
void holdfast_link_connected(struct holdfast *h, short revents);

/* Gives up a peer that takes too long, and connects again after a pause. */
void holdfast_link_expire(struct holdfast *h, uint64_t now_ms);

/* Adds bytes to the output. Any status but SUCCESS: nothing was added. */
enum holdfast_status holdfast_link_append(
    struct holdfast *h, const char *bytes, size_t len);

/* Sends as much output as the socket takes. It may lose the connection. */
void holdfast_link_flush(struct holdfast *h);

/* Reads into h->in, which has room. False: there is no more input now, or the
 * connection is lost. */
bool holdfast_link_fill(struct holdfast *h);

/*
 * As send(), through the transport if there is one. The caller has set *sent to
 * 0. BROKEN: `why`, of CLIENT_WHY_BYTES, has the error.
 */
enum holdfast_moved holdfast_link_send(
    struct holdfast *h, const char *bytes, size_t len, size_t *sent, char *why);

/* As recv(), with the rules of holdfast_link_send(). END: the broker closed. */
enum holdfast_moved holdfast_link_receive(
    struct holdfast *h, char *out, size_t room, size_t *got, char *why);

/* As shutdown(SHUT_WR). DONE, a want, or BROKEN. */
enum holdfast_moved holdfast_link_finish(struct holdfast *h);

/* Whether there is input that poll() does not show. */
bool holdfast_link_pending(const struct holdfast *h);

/* The events to poll for: for `input`, for `output`. */
short holdfast_link_events(const struct holdfast *h, bool input, bool output);

/* Whether lines can be read. */
bool holdfast_link_reads(const struct holdfast *h);

/* Ends connection and session; the first reason stays. The end of the turn
 * drops requests and holds. */
void holdfast_link_close(struct holdfast *h, const char *reason);

/*
 * The connection has ended: tries the next address, calls h->lost(), or closes.
 */
void holdfast_link_lost(struct holdfast *h, const char *reason);

/* Drops the socket, to connect again after a pause. */
void holdfast_link_pause(struct holdfast *h, const char *reason);

#endif

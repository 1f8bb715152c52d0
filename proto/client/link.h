/*
 * The socket of a connection, and the transport over it where there is one.
 */
#ifndef HOLDFAST_CLIENT_LINK_H
#define HOLDFAST_CLIENT_LINK_H

#include "proto/client/client.h"

/*
 * address.c: resolves one address or several into h->peers, in random order. It
 * blocks where a host is a name. After an error h can only be destroyed.
 */
enum holdfast_status holdfast_link_resolve(
    struct holdfast *h, const char *address);

/* Begins a round of the addresses, with the one that is next. */
void holdfast_link_connect(struct holdfast *h);

/* Goes on with connecting and the handshake; `revents` is what poll() said. */
void holdfast_link_connected(struct holdfast *h, short revents);

/* Gives up an address that takes too long; connects again after a pause. */
void holdfast_link_expire(struct holdfast *h, uint64_t now_ms);

/* Adds bytes to the output. Any status but SUCCESS: nothing was added. */
enum holdfast_status holdfast_link_append(
    struct holdfast *h, const char *bytes, size_t len);

/* Sends of the output what can be sent now. It may lose the connection. */
void holdfast_link_flush(struct holdfast *h);

/*
 * Reads into h->in, which has room. False: nothing more for now, or the
 * connection is lost.
 */
bool holdfast_link_fill(struct holdfast *h);

/*
 * As send(), through the transport where there is one. The caller has set *sent
 * to 0. BROKEN: `why`, of CLIENT_WHY_BYTES, says what has failed.
 */
enum holdfast_moved holdfast_link_send(
    struct holdfast *h, const char *bytes, size_t len, size_t *sent, char *why);

/* As recv(), like holdfast_link_send(). END: the broker has closed. */
enum holdfast_moved holdfast_link_receive(
    struct holdfast *h, char *out, size_t room, size_t *got, char *why);

/* As shutdown(SHUT_WR). DONE, a want, or BROKEN. */
enum holdfast_moved holdfast_link_finish(struct holdfast *h);

/* Whether there is input that no poll() tells of. */
bool holdfast_link_pending(const struct holdfast *h);

/* The events to poll for, with `input` wanted, or `output` to be sent. */
short holdfast_link_events(const struct holdfast *h, bool input, bool output);

/* Whether there is a connection that lines come from. */
bool holdfast_link_reads(const struct holdfast *h);

/* Whether there is a connection that the output may be sent over. */
bool holdfast_link_writes(const struct holdfast *h);

/*
 * Ends the connection and the session; the first reason stays. Requests and
 * holds are dropped when the turn ends.
 */
void holdfast_link_close(struct holdfast *h, const char *reason);

/* The connection is no more: on to the next address, h->lost(), or the end. */
void holdfast_link_lost(struct holdfast *h, const char *reason);

/* Drops the socket; connects again after a pause. */
void holdfast_link_pause(struct holdfast *h, const char *reason);

#endif

/*
 * The operators' HTTP port: what daemon/io/http_page.c says, to GET and HEAD.
 *
 * Not for the open net: there is neither password nor encryption, so it listens
 * on loopback unless the configuration says otherwise.
 */
#ifndef HOLDFAST_IO_HTTP_H
#define HOLDFAST_IO_HTTP_H

#include "daemon/io/loop.h"

struct http;

/*
 * Answers in turns of the loop on `count` sockets that listen, up to
 * LISTEN_SOCKETS_MAX, which it owns from then on. NULL: no memory.
 */
struct http *http_create(struct loop *loop, const int *fds, uint32_t count);

/* Closes all, answered or not; sets *http to NULL. */
void http_destroy(struct http **http);

#endif

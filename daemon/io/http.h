/*
 * The HTTP port of operators: the pages of http_page.c, for GET and HEAD.
 *
 * It has neither password nor encryption. So it listens on loopback by default.
 */
#ifndef HOLDFAST_IO_HTTP_H
#define HOLDFAST_IO_HTTP_H

#include "daemon/io/loop.h"

struct http;

/*
 * Answers on `count` listening sockets, up to LISTEN_SOCKETS_MAX, which it owns
 * from then on. NULL: no memory.
 */
struct http *http_create(struct loop *loop, const int *fds, uint32_t count);

/* Closes all connections; sets *http to NULL. */
void http_destroy(struct http **http);

#endif

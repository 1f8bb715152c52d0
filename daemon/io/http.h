/*
 * The operators' HTTP port: what daemon/io/page.c says, to GET and HEAD.
 *
 * Not for the open net: there is neither password nor encryption, so it listens
 * on loopback unless the configuration says otherwise.
 */
#ifndef HOLDFAST_IO_HTTP_H
#define HOLDFAST_IO_HTTP_H

#include "daemon/io/loop.h"

struct http;

/*
 * Listens on `address` and answers in turns of the loop. NULL: `error` has a
 * line that says what the system refused.
 */
struct http *http_create(struct loop *loop, const struct loop_address *address,
    char *error, size_t error_bytes);

/* Closes all, answered or not; sets *http to NULL. */
void http_destroy(struct http **http);

#endif

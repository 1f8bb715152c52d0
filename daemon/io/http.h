/*
 * The HTTP port and its pages.
 */
#ifndef HOLDFAST_IO_HTTP_H
#define HOLDFAST_IO_HTTP_H

#include "daemon/base/buffer.h"
#include "daemon/base/text.h"
#include "daemon/io/loop.h"

struct http;

/* http.c */

/*
 * Answers on `count` listening sockets, up to LISTEN_SOCKETS_MAX, which it owns
 * from then on. NULL: no memory.
 */
struct http *http_create(struct loop *loop, const int *fds, uint32_t count);

/* Closes all connections; sets *http to NULL. */
void http_destroy(struct http **http);

/* http_page.c */

/* The most bytes of a page: 33 namespaces have 83 lines each of 180 bytes. */
#define PAGE_BYTES (640 * 1024)

struct page {
    unsigned status; /* of HTTP */
    const char *type;
};

/*
 * Writes the page at `path` to `body`, which is empty and has PAGE_BYTES. An
 * unknown path has a page that says so.
 */
struct page page_make(
    const struct loop *loop, struct text path, struct buffer *body);

#endif

/*
 * The pages of the HTTP port, from the loop's numbers. Knows no socket.
 */
#ifndef HOLDFAST_IO_HTTP_PAGE_H
#define HOLDFAST_IO_HTTP_PAGE_H

#include "daemon/base/buffer.h"
#include "daemon/base/text.h"
#include "daemon/io/loop.h"

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

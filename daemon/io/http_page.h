/*
 * The pages of the HTTP port, made out of the loop's numbers. Knows no socket.
 */
#ifndef HOLDFAST_IO_HTTP_PAGE_H
#define HOLDFAST_IO_HTTP_PAGE_H

#include "daemon/base/buffer.h"
#include "daemon/base/text.h"
#include "daemon/io/loop.h"

/* No page is longer: 33 namespaces have 83 lines each of at most 180 bytes. */
#define PAGE_BYTES (640 * 1024)

struct page {
    unsigned status; /* of HTTP */
    const char *type;
};

/*
 * Writes the page at `path` to `body`, which is empty and has PAGE_BYTES.
 * Without one it says so, with its status.
 */
struct page page_make(
    const struct loop *loop, struct text path, struct buffer *body);

#endif

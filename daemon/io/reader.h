/*
 * Bytes of a connection to Redis in, replies out. Knows neither sockets nor
 * what the replies mean.
 */
#ifndef HOLDFAST_IO_READER_H
#define HOLDFAST_IO_READER_H

#include "daemon/op/resp.h"

/* Bytes of a reply, and of its tree. CLUSTER SLOTS with a range for each slot
 * takes about a third. */
#define READER_REPLY_MAX ((size_t)64 * 1024 * 1024)

struct reader;

/* NULL where there is no memory. */
struct reader *reader_create(void);

/* Frees it, and the reply that it gave last; *reader becomes NULL. */
void reader_destroy(struct reader **reader);

/* False: no memory, or more than a reply may have. */
bool reader_feed(struct reader *reader, const char *bytes, size_t len);

enum reader_status {
    READER_REPLY,
    READER_MORE,   /* the next reply is not whole yet */
    READER_BROKEN, /* this is no RESP2, or too much of it; nothing more comes */
};

/* The next reply (ref), good until the next call. */
enum reader_status reader_next(
    struct reader *reader, const struct resp **reply);

#endif

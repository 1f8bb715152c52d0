/*
 * The parser of a connection to Redis: bytes in, replies out. It knows neither
 * sockets nor the meaning of replies.
 */
#ifndef HOLDFAST_IO_READER_H
#define HOLDFAST_IO_READER_H

#include "daemon/op/resp.h"

/* The most bytes of a reply, and of its tree. CLUSTER SLOTS with a range for
 * each slot takes about a third. */
#define READER_REPLY_MAX ((size_t)64 * 1024 * 1024)

struct reader;

/* Makes a reader. NULL: no memory. */
struct reader *reader_create(void);

/* Frees it and its last reply; *reader becomes NULL. */
void reader_destroy(struct reader **reader);

/* Adds input. False: no memory, or a reply is too long. */
bool reader_feed(struct reader *reader, const char *bytes, size_t len);

enum reader_status {
    READER_REPLY,
    READER_MORE,   /* the next reply is not whole yet */
    READER_BROKEN, /* this is no RESP2, or too long; nothing more comes */
};

/* The next reply (ref), good until the next call. */
enum reader_status reader_next(
    struct reader *reader, const struct resp **reply);

#endif

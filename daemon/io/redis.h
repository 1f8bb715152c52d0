/*
 * Connections to Redis, and the parser of replies.
 */
#ifndef HOLDFAST_IO_REDIS_H
#define HOLDFAST_IO_REDIS_H

#include "daemon/io/state.h"
#include "daemon/op/resp.h"

struct reader;

/* redis.c */

/* Makes the connections, all of them closed. False: no memory. */
bool redis_create(struct loop *loop);

/* Closes and frees all connections, if there are any. */
void redis_destroy(struct loop *loop);

/* Connects and closes as the store wishes, and writes its output. */
void redis_carry_out(struct loop *loop);

/* reader.c */

/* The most bytes of a reply, and of its tree. CLUSTER SLOTS with a range for
 * each slot takes about a third. */
#define READER_REPLY_MAX ((size_t)64 * 1024 * 1024)

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

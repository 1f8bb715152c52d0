/*
 * RESP2: replies as trees, and commands into a buffer.
 *
 * The reader of the bytes owns such a tree's memory: io with hiredis' reader,
 * or the simulator from its own Redis. The store only looks at it during a
 * call.
 */
#ifndef HOLDFAST_OP_RESP_H
#define HOLDFAST_OP_RESP_H

#include "daemon/base/buffer.h"
#include "daemon/base/text.h"

enum resp_type {
    RESP_NIL,
    RESP_STATUS,
    RESP_ERROR,
    RESP_INTEGER,
    RESP_STRING,
    RESP_ARRAY,
};

struct resp {
    enum resp_type type;
    int64_t integer;
    struct text text;        /* of STATUS, ERROR, STRING */
    const struct resp *item; /* of ARRAY: `count` of them, in a row */
    size_t count;
};

/* Bytes that one bulk string of `len` takes at most. */
#define RESP_BULK_BYTES(len) ((len) + 32)

/*
 * A command being written: begin reserves room for all of it, the parts follow,
 * end commits. The caller counts the parts and the bytes right.
 */
struct resp_writer {
    struct buffer *buffer; /* ref */
    char *at;
    char *end;
    size_t parts;
};

/* False where the buffer has no room for `bytes` more; nothing is written. */
bool resp_begin(struct resp_writer *writer, struct buffer *buffer, size_t parts,
    size_t bytes);

/* Writes a bulk string. */
void resp_text(struct resp_writer *writer, struct text text);

/* Writes a number as a bulk string. */
void resp_number(struct resp_writer *writer, uint64_t value);

/* The place of a bulk string of exactly `len` bytes, to be filled in. */
char *resp_bulk(struct resp_writer *writer, size_t len);

/* Ends the command. All its words must have been written. */
void resp_end(struct resp_writer *writer);

/* A whole command of literal words; false where there is no room. */
bool resp_command(
    struct buffer *buffer, const struct text *words, size_t count);

#endif

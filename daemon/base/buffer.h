/*
 * A queue of bytes with a fixed capacity: appended at the end, consumed at the
 * front. Full is an answer, never growth.
 */
#ifndef HOLDFAST_BASE_BUFFER_H
#define HOLDFAST_BASE_BUFFER_H

#include <stdbool.h>
#include <stddef.h>

struct buffer {
    char *memory; /* owned; capacity bytes, touched as used */
    size_t capacity;
    size_t start; /* first byte not consumed */
    size_t end;   /* one past the last byte */
};

/* Takes memory for `capacity` bytes. False: no memory. */
bool buffer_init(struct buffer *buffer, size_t capacity);

/* Frees the memory; the buffer has no room then. */
void buffer_fini(struct buffer *buffer);

static inline size_t
buffer_len(const struct buffer *buffer)
{
    return buffer->end - buffer->start;
}

static inline const char *
buffer_data(const struct buffer *buffer)
{
    return buffer->memory + buffer->start;
}

/*
 * A place for `len` bytes at the end, for buffer_commit(). Moves the bytes to
 * the front if it must. NULL: full.
 */
char *buffer_reserve(struct buffer *buffer, size_t len);

/* Appends `len` bytes that the caller has written at the reserved place. */
void buffer_commit(struct buffer *buffer, size_t len);

/* Appends all bytes or none. False: they do not fit. */
bool buffer_append(struct buffer *buffer, const void *bytes, size_t len);

/* Forgets the first `len` bytes; len is at most buffer_len(). */
void buffer_consume(struct buffer *buffer, size_t len);

/* Forgets all bytes, and keeps the memory. */
void buffer_clear(struct buffer *buffer);

#endif

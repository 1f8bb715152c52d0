/*
 * A byte queue of fixed capacity.
 *
 * Invariant: start <= end <= capacity. Bytes move to the front only if there is
 * no room behind them. An empty queue begins at the front again.
 *
 * Called by io and by the client library for input and output.
 */
#include "daemon/base/buffer.h"

#include "daemon/base/assert.h"

#include <stdlib.h>
#include <string.h>

bool
buffer_init(struct buffer *buffer, size_t capacity)
{
    require(capacity > 0);
    buffer->memory = malloc(capacity);
    buffer->capacity = capacity;
    buffer_clear(buffer);
    return buffer->memory != NULL;
}

void
buffer_fini(struct buffer *buffer)
{
    free(buffer->memory);
    memset(buffer, 0, sizeof(*buffer));
}

char *
buffer_reserve(struct buffer *buffer, size_t len)
{
    size_t used = buffer_len(buffer);

    require(buffer->start <= buffer->end && buffer->end <= buffer->capacity);
    if (len > buffer->capacity - used)
        return NULL;
    if (len > buffer->capacity - buffer->end) {
        memmove(buffer->memory, buffer->memory + buffer->start, used);
        buffer->start = 0;
        buffer->end = used;
    }
    return buffer->memory + buffer->end;
}

void
buffer_commit(struct buffer *buffer, size_t len)
{
    require(len <= buffer->capacity - buffer->end);
    buffer->end += len;
}

bool
buffer_append(struct buffer *buffer, const void *bytes, size_t len)
{
    char *place;

    if (len == 0)
        return true;
    place = buffer_reserve(buffer, len);
    if (place == NULL)
        return false;
    memcpy(place, bytes, len);
    buffer->end += len;
    require(buffer->end <= buffer->capacity);
    return true;
}

void
buffer_consume(struct buffer *buffer, size_t len)
{
    require(len <= buffer_len(buffer));
    buffer->start += len;
    if (buffer->start == buffer->end)
        buffer_clear(buffer);
}

void
buffer_clear(struct buffer *buffer)
{
    buffer->start = 0;
    buffer->end = 0;
}

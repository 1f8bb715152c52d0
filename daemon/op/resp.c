/*
 * Writing RESP2 commands into a buffer.
 */
#include "daemon/op/resp.h"

#include "daemon/base/assert.h"

static void
resp_length(struct resp_writer *writer, char kind, size_t value)
{
    require(writer->end - writer->at >= 24);
    *writer->at++ = kind;
    writer->at += text_from_u64(writer->at, value);
    *writer->at++ = '\r';
    *writer->at++ = '\n';
}

bool
resp_begin(struct resp_writer *writer, struct buffer *buffer, size_t parts,
    size_t bytes)
{
    require(parts > 0);
    writer->at = buffer_reserve(buffer, bytes + 32);
    if (writer->at == NULL)
        return false;
    writer->buffer = buffer;
    writer->end = writer->at + bytes + 32;
    writer->parts = parts;
    resp_length(writer, '*', parts);
    return true;
}

char *
resp_bulk(struct resp_writer *writer, size_t len)
{
    require(writer->parts > 0);
    writer->parts--;
    resp_length(writer, '$', len);
    require((size_t)(writer->end - writer->at) >= len + 2);
    char *place = writer->at;
    writer->at += len;
    *writer->at++ = '\r';
    *writer->at++ = '\n';
    return place;
}

void
resp_text(struct resp_writer *writer, struct text text)
{
    memcpy(resp_bulk(writer, text.len), text.at, text.len);
}

void
resp_number(struct resp_writer *writer, uint64_t value)
{
    char digits[20];
    size_t len = text_from_u64(digits, value);

    resp_text(writer, text_make(digits, len));
}

void
resp_end(struct resp_writer *writer)
{
    require(writer->parts == 0);
    const struct buffer *buffer = writer->buffer;
    size_t len = (size_t)(writer->at - (buffer->memory + buffer->end));
    buffer_commit(writer->buffer, len);
}

bool
resp_command(struct buffer *buffer, const struct text *words, size_t count)
{
    struct resp_writer writer;
    size_t bytes = 0;

    for (size_t i = 0; i < count; i++)
        bytes += RESP_BULK_BYTES(words[i].len);
    if (!resp_begin(&writer, buffer, count, bytes))
        return false;
    for (size_t i = 0; i < count; i++)
        resp_text(&writer, words[i]);
    resp_end(&writer);
    return true;
}

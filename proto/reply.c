/*
 * The lines that the broker sends, built word by word in the caller's memory.
 *
 * Invariant: start <= at <= end. After an overflow nothing is written, and
 * reply_end() returns 0. The only LF of a line is its last byte.
 */
#include "proto/reply.h"

#include "daemon/base/assert.h"

#define NUMBER_DIGITS_MAX 20 /* of 2^64 - 1 */

/* Writes all of the bytes or none. */
static void
reply_put(struct reply *reply, const char *bytes, size_t len)
{
    if (reply->overflow || (size_t)(reply->end - reply->at) < len) {
        reply->overflow = true;
        return;
    }
    memcpy(reply->at, bytes, len);
    reply->at += len;
}

static void
reply_put_number(struct reply *reply, uint64_t value)
{
    char digits[NUMBER_DIGITS_MAX];
    size_t len = text_from_u64(digits, value);

    reply_put(reply, digits, len);
}

static void
reply_put_encoded(struct reply *reply, struct text word)
{
    size_t len = 0;

    require(word.len > 0);
    if (!reply->overflow)
        len = percent_encode(word, reply->at, (size_t)(reply->end - reply->at));
    if (len == 0)
        reply->overflow = true;
    reply->at += len;
}

/* " key=" */
static void
reply_put_key(struct reply *reply, const char *key)
{
    reply_put(reply, " ", 1);
    reply_put(reply, key, strlen(key));
    reply_put(reply, "=", 1);
}

void
reply_begin(struct reply *reply, char *out, size_t out_bytes, const char *tag,
    const char *word)
{
    if (tag == NULL || tag[0] == '\0')
        tag = "-";
    reply->start = out;
    reply->at = out;
    reply->end = out + out_bytes;
    reply->overflow = false;
    reply_put(reply, tag, strlen(tag));
    reply_put(reply, " ", 1);
    reply_put(reply, word, strlen(word));
}

void
reply_error_begin(struct reply *reply, char *out, size_t out_bytes,
    const char *tag, enum error_code code)
{
    const char *name = error_name(code);

    reply_begin(reply, out, out_bytes, tag, "ERR ");
    reply_put(reply, name, strlen(name));
    reply_pair_number(reply, "retry", error_retry(code) ? 1 : 0);
}

void
reply_event_begin(
    struct reply *reply, char *out, size_t out_bytes, enum event_code code)
{
    reply_begin(reply, out, out_bytes, "*", event_name(code));
}

void
reply_word(struct reply *reply, struct text word)
{
    reply_put(reply, " ", 1);
    reply_put_encoded(reply, word);
}

void
reply_number(struct reply *reply, uint64_t value)
{
    reply_put(reply, " ", 1);
    reply_put_number(reply, value);
}

void
reply_pair(struct reply *reply, const char *key, struct text value)
{
    if (value.len == 0)
        return;
    reply_put_key(reply, key);
    reply_put_encoded(reply, value);
}

void
reply_pair_number(struct reply *reply, const char *key, uint64_t value)
{
    reply_put_key(reply, key);
    reply_put_number(reply, value);
}

void
reply_text(struct reply *reply, const char *text)
{
    reply_put(reply, " :", 2);
    for (; *text != '\0'; text++) {
        unsigned char byte = (unsigned char)*text;

        reply_put(reply, byte < 0x20 || byte == 0x7f ? "?" : text, 1);
    }
}

size_t
reply_end(struct reply *reply)
{
    reply_put(reply, "\n", 1);
    require(reply->at <= reply->end);
    return reply->overflow ? 0 : (size_t)(reply->at - reply->start);
}

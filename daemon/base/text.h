/*
 * A span of bytes with another owner, and number helpers for it.
 */
#ifndef HOLDFAST_BASE_TEXT_H
#define HOLDFAST_BASE_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct text {
    const char *at; /* ref; need not end in NUL */
    size_t len;     /* bytes */
};

#define TEXT(literal) \
    ((struct text){.at = (literal), .len = sizeof(literal) - 1})

static inline struct text
text_make(const char *at, size_t len)
{
    return (struct text){.at = at, .len = len};
}

static inline struct text
text_from(const char *string)
{
    return text_make(string, strlen(string));
}

static inline bool
text_equal(struct text a, struct text b)
{
    return a.len == b.len && (a.len == 0 || memcmp(a.at, b.at, a.len) == 0);
}

static inline bool
text_starts_with(struct text text, struct text beginning)
{
    return text.len >= beginning.len &&
           memcmp(text.at, beginning.at, beginning.len) == 0;
}

/* Compares bytes: below 0: a is first; 0: equal; above 0: b is first. */
int text_compare(struct text a, struct text b);

/* ASCII letters compare without case; other bytes exactly. */
bool text_equal_nocase(struct text a, struct text b);

/*
 * Reads a whole span as a decimal number, at most `max`: only digits, and no
 * leading zero except "0" itself. False: it is none, and nothing is written.
 */
bool text_to_u64(struct text text, uint64_t max, uint64_t *out);

/* Writes `value` in decimal at `out` (room for 20 bytes); returns the count. */
size_t text_from_u64(char *out, uint64_t value);

/* Writes 2*len lower-case hex digits at `out`, no NUL. */
void text_to_hex(char *out, const uint8_t *bytes, size_t len);

/* Reads exactly 2*len hex digits; false on any other byte. */
bool text_from_hex(struct text text, uint8_t *bytes, size_t len);

/* The bytes of the first character of `text`, which is not empty. *code is its
 * code point. 0: not UTF-8 (RFC 3629). */
size_t text_utf8(struct text text, uint32_t *code);

#endif

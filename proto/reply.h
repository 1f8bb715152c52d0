/*
 * Writes reply and event lines into the caller's memory: words, key=value
 * pairs, percent-encoding. No allocation. Running out of room is remembered and
 * told by reply_end().
 */
#ifndef HOLDFAST_PROTO_REPLY_H
#define HOLDFAST_PROTO_REPLY_H

#include "proto/request.h"

struct reply {
    char *start; /* ref: the caller's memory */
    char *at;
    char *end;
    bool overflow;
};

/* Begins a line at `out`: "TAG WORD" ("-" where tag is empty or NULL). */
void reply_begin(struct reply *reply, char *out, size_t out_bytes,
    const char *tag, const char *word);

/* Begins "TAG ERR CODE retry=R". */
void reply_error_begin(struct reply *reply, char *out, size_t out_bytes,
    const char *tag, enum error_code code);

/* Begins "* EVENT". */
void reply_event_begin(
    struct reply *reply, char *out, size_t out_bytes, enum event_code code);

/* Adds " word", percent-encoded; `word` is not empty. */
void reply_word(struct reply *reply, struct text word);

/* Adds " N", in decimal. */
void reply_number(struct reply *reply, uint64_t value);

/* Adds " key=value", the value percent-encoded; nothing where it is empty. */
void reply_pair(struct reply *reply, const char *key, struct text value);

/* Adds " key=N", in decimal, 0 as well. */
void reply_pair_number(struct reply *reply, const char *key, uint64_t value);

/*
 * Adds " :text", the last part of a line, as it is but for control bytes, which
 * become '?'.
 */
void reply_text(struct reply *reply, const char *text);

/* Ends the line with LF; returns its length, or 0 where it did not fit. */
size_t reply_end(struct reply *reply);

/*
 * Percent-encodes `word` at `out`; returns the length, or 0 with nothing said
 * where it does not fit (an empty word is not encodable and gives 0 too).
 */
size_t percent_encode(struct text word, char *out, size_t out_bytes);

/*
 * Decodes in place; returns the decoded length, or SIZE_MAX where a '%' is not
 * followed by two hex digits.
 */
size_t percent_decode(char *word, size_t len);

#endif

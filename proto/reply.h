/*
 * Writes lines of replies and events into the caller's memory: words, key=value
 * pairs, percent-encoding. reply_end() tells whether the line fits.
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

/* Begins a line at `out`: "TAG WORD"; "-" for an empty tag or NULL. */
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

/* Adds " key=value", the value percent-encoded; nothing if it is empty. */
void reply_pair(struct reply *reply, const char *key, struct text value);

/* Adds " key=N", in decimal, also for 0. */
void reply_pair_number(struct reply *reply, const char *key, uint64_t value);

/* Adds " :text", the last part of a line. Control bytes become '?'. */
void reply_text(struct reply *reply, const char *text);

/* Ends the line with LF. Returns its length; 0: it does not fit. */
size_t reply_end(struct reply *reply);

/* Percent-encodes `word` at `out`. Returns the length; 0: it does not fit, or
 * the word is empty. */
size_t percent_encode(struct text word, char *out, size_t out_bytes);

/* Decodes in place. Returns the length; SIZE_MAX: a '%' lacks its two hex
 * digits. */
size_t percent_decode(char *word, size_t len);

#endif

/*
 * Lines of the broker to their parts, in place.
 */
#ifndef HOLDFAST_CLIENT_MESSAGE_H
#define HOLDFAST_CLIENT_MESSAGE_H

#include "proto/client/holdfast.h"

#define CLIENT_PAIRS 32 /* of one line; more are ignored */

/* A line of the broker; all refs into the line. */
struct holdfast_message {
    const char *tag;
    const char *verb; /* OK, ERR, ITEM, LOST ... */
    const char *word; /* the first after it, or "" */
    size_t word_len;
    struct holdfast_pair pairs[CLIENT_PAIRS];
    size_t pair_count;
    const char *text; /* or "" */
};

/* Decodes `line` in place; it has room for a NUL at `len`. False: the line is
 * malformed, and *out is invalid. */
bool holdfast_message_parse(
    char *line, size_t len, struct holdfast_message *out);

/* The value of `key`, a ref into the line; NULL: there is no such key. */
const char *holdfast_message_value(
    const struct holdfast_message *message, const char *key);

/* False: there is no such key, or its value is no decimal number. */
bool holdfast_message_number(
    const struct holdfast_message *message, const char *key, uint64_t *value);

/* False: `digits` is no decimal number of 64 bits; *value is as before. */
bool holdfast_number(const char *digits, uint64_t *value);

/* Reads a list "F1,F2". Returns the number of values, of which at most `max`
 * are filled in; 0: it is not a list of numbers. */
size_t holdfast_numbers(const char *list, uint64_t *values, size_t max);

#endif

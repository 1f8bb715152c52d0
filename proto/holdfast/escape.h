/*
 * Escaping of untrusted bytes for a terminal, a tab-separated line, or JSON.
 */
#ifndef HOLDFAST_COMMAND_ESCAPE_H
#define HOLDFAST_COMMAND_ESCAPE_H

#include <stddef.h>
#include <stdio.h>

/*
 * A copy in UTF-8 without control characters. Control characters (C0, DEL, C1),
 * backslashes, invalid UTF-8, and characters that are invisible or change the
 * direction of text become \xNN, byte by byte. The number of characters goes to
 * *width (may be NULL). The caller owns the result; NULL: no memory.
 */
char *escape_make(const char *bytes, size_t len, size_t *width);

/*
 * As escape_make(), into memory of the caller, cut to its size. Returns `out`.
 */
const char *escape_text(const char *string, char *out, size_t out_bytes);

/* Writes a JSON string with its quotes. Invalid UTF-8 becomes U+FFFD. */
void escape_json(FILE *out, const char *bytes, size_t len);

#endif

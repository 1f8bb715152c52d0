/*
 * Bytes from elsewhere made fit for a terminal, a tab-separated line, or JSON.
 */
#ifndef HOLDFAST_COMMAND_ESCAPE_H
#define HOLDFAST_COMMAND_ESCAPE_H

#include <stddef.h>
#include <stdio.h>

/*
 * A copy that is UTF-8 without control characters. Control characters (C0, DEL,
 * C1), a backslash, and bytes that are no UTF-8 become \xNN, byte by byte. So
 * do characters that change the direction of text or cannot be seen. Owned by
 * the caller; NULL: no memory. *width, where it is not NULL, is its number of
 * characters.
 */
char *escape_make(const char *bytes, size_t len, size_t *width);

/* The same in memory of the caller, cut to what fits; returns `out`. */
const char *escape_text(const char *string, char *out, size_t out_bytes);

/* A JSON string with its quotes. Bytes that are no UTF-8 become U+FFFD. */
void escape_json(FILE *out, const char *bytes, size_t len);

#endif

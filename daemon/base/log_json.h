/*
 * A log line as a JSON object.
 */
#ifndef HOLDFAST_BASE_LOG_JSON_H
#define HOLDFAST_BASE_LOG_JSON_H

#include "daemon/base/text.h"

/* Room for the object of a line of `bytes`. */
#define LOG_JSON_BYTES(bytes) (6 * (bytes) + 16)

/* A line of so many has an object of `bytes` at most. */
#define LOG_JSON_LINE(bytes) (((bytes)-16) / 6)

/*
 * The pairs of `line`, `key=value` with a blank between, as one object in ASCII
 * with a NUL at the end. A value in quotes, as log_quote() writes it, becomes
 * the quoted text. Bytes of it that are no UTF-8 become U+FFFD. A value is a
 * number where `format`, that of printf which the line was made by, says so,
 * and else a string, so that a key's type does not depend on what an id looks
 * like. Returns the length without the NUL.
 */
size_t log_json(char *out, struct text line, const char *format);

#endif

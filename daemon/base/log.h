/*
 * Log lines as key=value, handed to a sink that main sets: base knows no file
 * and no clock.
 *
 *     log_write(LOG_WARN, "redis_down", "node=%s after_ms=%u", name, ms);
 *
 * gives `level=warn event=redis_down node=... after_ms=...`, or an object of
 * JSON with these. Values that may hold blanks, quotes or control bytes go
 * through log_quote().
 */
#ifndef HOLDFAST_BASE_LOG_H
#define HOLDFAST_BASE_LOG_H

#include "daemon/base/text.h"

enum log_level {
    LOG_ERROR,
    LOG_WARN,
    LOG_INFO,
    LOG_DEBUG,
};

enum log_format {
    LOG_TEXT, /* key=value, with a blank between */
    LOG_JSON, /* an object a line; see log_json.h */
};

/* `line` has no newline; it is valid during the call. */
typedef void log_sink(enum log_level level, const char *line, size_t len);

/* Whether a line of the event is to be written now; else it is not made. */
typedef bool log_gate(enum log_level level, const char *event);

/* Before it is called, lines go nowhere; after it they are text, and all of
 * them that the threshold lets through. */
void log_init(log_sink *sink, enum log_level threshold);

/* Lines above the threshold, such as debug above info, are not made. */
void log_set_level(enum log_level threshold);

/* The form of the lines from now on. */
void log_set_format(enum log_format format);

/* Asks `gate` before each line that the threshold lets through; NULL: not. */
void log_set_gate(log_gate *gate);

/* Whether the threshold lets lines of the level through; the gate is not asked.
 */
bool log_enabled(enum log_level level);

/* Makes one line and hands it to the sink; a long one is cut. `event` is a
 * word, and `format` makes its key=value pairs. */
void log_write(enum log_level level, const char *event, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/*
 * `text` in quotes, with backslash, quote and every byte outside 0x20..0x7E
 * escaped, cut to what fits, NUL at the end; `out_bytes` is at least 3. Returns
 * `out`.
 */
const char *log_quote(char *out, size_t out_bytes, struct text text);

/* The name in lower case: error, warn, info, debug. */
const char *log_level_name(enum log_level level);

/* The level of that name, in any case of its letters; false: there is none. */
bool log_level_parse(struct text name, enum log_level *out);

#endif

/*
 * Log lines of typed pairs, handed to a sink that main sets: base knows no file
 * and no clock.
 *
 *     log_write(LOG_WARN, "redis_down", log_word("node", name),
 *         log_quoted("error", error), log_number("after_ms", ms));
 *
 * gives `level=warn event=redis_down node=... error="..." after_ms=7`, or the
 * same as an object of JSON.
 */
#ifndef HOLDFAST_BASE_LOG_H
#define HOLDFAST_BASE_LOG_H

#include "daemon/base/text.h"

#define LOG_FOREIGN_MAX 160 /* bytes of log_foreign() */

enum log_level {
    LOG_ERROR,
    LOG_WARN,
    LOG_INFO,
    LOG_DEBUG,
};

enum log_format {
    LOG_TEXT, /* key=value, with a blank between */
    LOG_JSON, /* an object a line (RFC 8259), in ASCII */
};

/* `line` has no newline; it is valid during the call. */
typedef void log_sink(enum log_level level, const char *line, size_t len);

/* Whether to write a line of the event now. */
typedef bool log_gate(enum log_level level, const char *event);

/* Before this call lines go nowhere. After it lines are text, and all pass that
 * the threshold lets through. */
void log_init(log_sink *sink, enum log_level threshold);

/* Lines above the threshold, such as debug above info, are not made. */
void log_set_level(enum log_level threshold);

/* The form of the lines from now on. */
void log_set_format(enum log_format format);

/* Asks `gate` before each line that the threshold lets through; NULL: not. */
void log_set_gate(log_gate *gate);

/* Whether the threshold lets the level through. The gate is not asked. */
bool log_enabled(enum log_level level);

enum log_kind {
    LOG_LEFT_OUT,
    LOG_WORD,
    LOG_QUOTED,
    LOG_NUMBER,
    LOG_SIGNED,
    LOG_END,
};

/* A key and its value; the functions below make them. */
struct log_pair {
    enum log_kind kind;
    const char *key;  /* ref */
    struct text text; /* ref */
    uint64_t number;
};

/* A pair that is left out. */
#define LOG_NOTHING ((struct log_pair){.kind = LOG_LEFT_OUT})

/* Text without blanks or control bytes, or a path: it stands as it is. */
static inline struct log_pair
log_span(const char *key, struct text text)
{
    return (struct log_pair){.kind = LOG_WORD, .key = key, .text = text};
}

static inline struct log_pair
log_word(const char *key, const char *word)
{
    return log_span(key, text_from(word));
}

/* Any bytes: in quotes, as log_quote() writes them. In JSON, bytes that are no
 * UTF-8 become U+FFFD. */
static inline struct log_pair
log_quoted(const char *key, struct text text)
{
    return (struct log_pair){.kind = LOG_QUOTED, .key = key, .text = text};
}

/* Quoted, of what another program has said: its beginning is enough, and the
 * pairs behind it must have room in the line. */
static inline struct log_pair
log_foreign(const char *key, struct text text)
{
    if (text.len > LOG_FOREIGN_MAX)
        text.len = LOG_FOREIGN_MAX;
    return log_quoted(key, text);
}

static inline struct log_pair
log_number(const char *key, uint64_t number)
{
    return (struct log_pair){.kind = LOG_NUMBER, .key = key, .number = number};
}

static inline struct log_pair
log_signed(const char *key, int64_t number)
{
    return (struct log_pair){
        .kind = LOG_SIGNED, .key = key, .number = (uint64_t)number};
}

#define log_write(level, event, ...) \
    log_pairs(level, event,          \
        (const struct log_pair[]){__VA_ARGS__, {.kind = LOG_END}})

/* Makes one line of pairs and hands it to the sink; the end of a long one
 * becomes "...". `event` is a word. Callers use log_write(). */
void log_pairs(
    enum log_level level, const char *event, const struct log_pair *pairs);

/*
 * `text` in quotes, with backslash, quote and every byte outside 0x20..0x7E
 * escaped, cut to what fits, NUL at the end; `out_bytes` is at least 3. Returns
 * `out`.
 */
const char *log_quote(char *out, size_t out_bytes, struct text text);

/* The name in lower case: error, warn, info, debug. */
const char *log_level_name(enum log_level level);

/* The level of that name, in upper or lower case. False: unknown. */
bool log_level_parse(struct text name, enum log_level *out);

#endif

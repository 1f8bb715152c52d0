/*
 * Builds log lines and hands them to the sink.
 *
 * The sink and what is set for it are the only state of base that is not in a
 * struct: one process writes one log. A line that is too long is cut and
 * ends in "...".
 */
#include "daemon/base/log.h"

#include "daemon/base/assert.h"
#include "daemon/base/log_json.h"

#include <stdarg.h>
#include <stdio.h>

#define LINE_BYTES_MAX 2048

/* With the additions of a sink, no more than a pipe takes at once or not at all
 * (PIPE_BUF of pipe(7)). */
#define OBJECT_BYTES_MAX 4000

static log_sink *current_sink;
static log_gate *current_gate;
static enum log_level current_threshold = LOG_INFO;
static enum log_format current_format;

static const char *const level_names[] = {
    [LOG_ERROR] = "error",
    [LOG_WARN] = "warn",
    [LOG_INFO] = "info",
    [LOG_DEBUG] = "debug",
};

#define LEVEL_COUNT (sizeof(level_names) / sizeof(level_names[0]))

void
log_init(log_sink *sink, enum log_level threshold)
{
    current_sink = sink;
    current_gate = NULL;
    current_threshold = threshold;
    current_format = LOG_TEXT;
}

void
log_set_level(enum log_level threshold)
{
    current_threshold = threshold;
}

void
log_set_format(enum log_format format)
{
    current_format = format;
}

void
log_set_gate(log_gate *gate)
{
    current_gate = gate;
}

bool
log_enabled(enum log_level level)
{
    return current_sink != NULL && level <= current_threshold;
}

const char *
log_level_name(enum log_level level)
{
    require((size_t)level < LEVEL_COUNT);
    return level_names[level];
}

bool
log_level_parse(struct text name, enum log_level *out)
{
    for (size_t i = 0; i < LEVEL_COUNT; i++) {
        if (text_equal_nocase(name, text_from(level_names[i]))) {
            *out = (enum log_level)i;
            return true;
        }
    }
    return false;
}

/* The bytes in the line, from the result of snprintf(). */
static size_t
clamp(int printed, size_t room)
{
    if (printed < 0)
        return 0;
    return (size_t)printed < room ? (size_t)printed : room - 1;
}

/* Its end becomes "...". */
static void
cut(char *line, size_t len)
{
    memcpy(line + len - 3, "...", 3);
}

static void
log_hand_over(enum log_level level, char *line, size_t len, const char *format)
{
    char object[LOG_JSON_BYTES(LINE_BYTES_MAX)];

    if (current_format == LOG_TEXT) {
        current_sink(level, line, len);
        return;
    }
    size_t bytes = log_json(object, text_make(line, len), format);
    if (bytes > OBJECT_BYTES_MAX) {
        len = LOG_JSON_LINE(OBJECT_BYTES_MAX);
        cut(line, len);
        bytes = log_json(object, text_make(line, len), format);
    }
    current_sink(level, object, bytes);
}

void
log_write(enum log_level level, const char *event, const char *format, ...)
{
    char line[LINE_BYTES_MAX];
    size_t len;
    va_list arguments;
    int printed;

    if (!log_enabled(level) ||
        (current_gate != NULL && !current_gate(level, event)))
        return;
    printed = snprintf(
        line, sizeof(line), "level=%s event=%s ", log_level_name(level), event);
    len = clamp(printed, sizeof(line));
    va_start(arguments, format);
    printed = vsnprintf(line + len, sizeof(line) - len, format, arguments);
    va_end(arguments);
    if (printed >= 0 && (size_t)printed >= sizeof(line) - len)
        cut(line, sizeof(line) - 1);
    len += clamp(printed, sizeof(line) - len);
    if (line[len - 1] == ' ')
        line[--len] = '\0';
    log_hand_over(level, line, len, format);
}

/* Writes `byte` as it stands in quotes; returns 1, 2 or 4 bytes. */
static size_t
escape(char *out, unsigned char byte)
{
    if (byte == '"' || byte == '\\') {
        out[0] = '\\';
        out[1] = (char)byte;
        return 2;
    }
    if (byte >= 0x20 && byte <= 0x7e) {
        out[0] = (char)byte;
        return 1;
    }
    out[0] = '\\';
    out[1] = 'x';
    text_to_hex(out + 2, &byte, 1);
    return 4;
}

const char *
log_quote(char *out, size_t out_bytes, struct text text)
{
    size_t at = 0;

    require(out_bytes >= 3);
    out[at++] = '"';
    for (size_t i = 0; i < text.len; i++) {
        char escaped[4];
        size_t len = escape(escaped, (unsigned char)text.at[i]);

        if (at + len + 2 > out_bytes)
            break;
        memcpy(out + at, escaped, len);
        at += len;
    }
    out[at++] = '"';
    out[at] = '\0';
    return out;
}

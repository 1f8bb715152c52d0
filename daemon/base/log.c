/*
 * Builds log lines and hands them to the sink.
 *
 * The sink and its settings are the only state of base that is not in a
 * struct: one process writes one log. Each form has a writer of strings; all
 * else of a line is common.
 */
#include "daemon/base/log.h"

#include "daemon/base/assert.h"

#include <inttypes.h>
#include <stdio.h>

#define LINE_BYTES_MAX 2047

/* With the additions of a sink, no more than a pipe takes at once or not at all
 * (PIPE_BUF of pipe(7)). */
#define OBJECT_BYTES_MAX 4000

#define NO_CHARACTER 0xfffd

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

/* A line while it is written. */
struct line {
    char at[OBJECT_BYTES_MAX + 1];
    size_t room;
    size_t len;
    size_t mark; /* the last place where "..." and the end of the line fit */
    bool cut;    /* something had no room */
};

static void
put(struct line *line, const char *bytes, size_t len)
{
    require(line->len <= line->room && line->room <= OBJECT_BYTES_MAX);
    line->cut = line->cut || len > line->room - line->len;
    if (line->cut)
        return;
    memcpy(line->at + line->len, bytes, len);
    line->len += len;
}

static void
put_text(struct line *line, const char *text)
{
    put(line, text, strlen(text));
}

/* The end of a line that is cut within a value. */
static const char *
end_of_cut(void)
{
    return current_format == LOG_JSON ? "...\"}" : "...";
}

static void
mark(struct line *line)
{
    if (!line->cut && line->len + strlen(end_of_cut()) <= line->room)
        line->mark = line->len;
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

static void
put_unit(struct line *line, uint32_t unit)
{
    const uint8_t bytes[] = {(uint8_t)(unit >> 8), (uint8_t)unit};
    char out[6] = "\\u";

    text_to_hex(out + 2, bytes, sizeof(bytes));
    put(line, out, sizeof(out));
}

/* Takes the first character of `text`. */
static void
put_character(struct line *line, struct text *text)
{
    uint32_t code;
    char out[4];
    size_t used = text_utf8(*text, &code);

    if (used == 0)
        code = NO_CHARACTER;
    used += used == 0;
    *text = text_make(text->at + used, text->len - used);
    if (code >= 0x10000) {
        put_unit(line, 0xd800 + ((code - 0x10000) >> 10));
        put_unit(line, 0xdc00 + (code & 0x3ff));
    } else if (code < 0x20 || code > 0x7e) {
        put_unit(line, code);
    } else {
        put(line, out, escape(out, (unsigned char)code));
    }
}

static void
put_json(struct line *line, struct text text)
{
    put(line, "\"", 1);
    mark(line);
    while (text.len > 0 && !line->cut) {
        put_character(line, &text);
        mark(line);
    }
    put(line, "\"", 1);
}

static void
put_plain(struct line *line, struct text text, bool quoted)
{
    char out[4];

    if (quoted)
        put(line, "\"", 1);
    for (size_t i = 0; i < text.len && !line->cut; i++) {
        out[0] = text.at[i];
        put(line, out, quoted ? escape(out, (unsigned char)text.at[i]) : 1);
        mark(line);
    }
    if (quoted)
        put(line, "\"", 1);
}

static void
put_value(struct line *line, const struct log_pair *pair)
{
    char number[24];

    if (pair->kind == LOG_NUMBER)
        snprintf(number, sizeof(number), "%" PRIu64, pair->number);
    else if (pair->kind == LOG_SIGNED)
        snprintf(number, sizeof(number), "%" PRId64, (int64_t)pair->number);
    else if (current_format == LOG_JSON)
        put_json(line, pair->text);
    else
        put_plain(line, pair->text, pair->kind == LOG_QUOTED);
    if (pair->kind == LOG_NUMBER || pair->kind == LOG_SIGNED)
        put_text(line, number);
}

static void
put_pair(struct line *line, const struct log_pair *pair)
{
    bool json = current_format == LOG_JSON;

    require(pair->key != NULL);
    if (line->len > 0)
        put_text(line, json ? ",\"" : " ");
    else if (json)
        put_text(line, "{\"");
    put_text(line, pair->key);
    put_text(line, json ? "\":" : "=");
    put_value(line, pair);
}

void
log_pairs(enum log_level level, const char *event, const struct log_pair *pairs)
{
    struct line line; /* large, and cleared nowhere */

    if (!log_enabled(level) ||
        (current_gate != NULL && !current_gate(level, event)))
        return;
    const struct log_pair first = log_word("level", log_level_name(level));
    const struct log_pair second = log_word("event", event);
    line.room = current_format == LOG_JSON ? OBJECT_BYTES_MAX : LINE_BYTES_MAX;
    line.len = line.mark = 0;
    line.cut = false;
    put_pair(&line, &first);
    put_pair(&line, &second);
    for (; pairs->kind != LOG_END; pairs++)
        if (pairs->kind != LOG_LEFT_OUT)
            put_pair(&line, pairs);
    if (current_format == LOG_JSON)
        put_text(&line, "}");
    if (line.cut) {
        line.cut = false;
        line.len = line.mark;
        put_text(&line, end_of_cut());
    }
    line.at[line.len] = '\0';
    current_sink(level, line.at, line.len);
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

/*
 * Rows to columns, tabs or JSON.
 *
 * Columns need all rows before the first row is printed, so they are kept. The
 * other formats print each row at once. Only columns have a header. With tabs
 * an absent value is an empty field.
 */
#include "proto/holdfast/out.h"

#include "daemon/base/assert.h"
#include "proto/holdfast/escape.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define GAP 2

struct cell {
    char *text; /* owned; escaped */
    size_t width;
};

struct out {
    enum out_format format;
    const struct out_column *columns; /* ref */
    size_t column_count;
    size_t rows;
    struct cell *cells; /* owned; rows * column_count; for columns only */
    size_t cells_max;
};

struct out *
out_create(enum out_format format, const struct out_column *columns,
    size_t column_count)
{
    struct out *out = calloc(1, sizeof(*out));

    require(column_count <= OUT_COLUMNS_MAX);
    if (out == NULL) {
        complain("out of memory");
        return NULL;
    }
    if (format == OUT_AUTOMATIC)
        format = isatty(STDOUT_FILENO) ? OUT_COLUMNS : OUT_TABS;
    out->format = format;
    out->columns = columns;
    out->column_count = column_count;
    return out;
}

enum out_format
out_format(const struct out *out)
{
    return out->format;
}

static const struct holdfast_pair *
pair_find(const struct holdfast_event *event, const char *key)
{
    static struct holdfast_pair text = {.key = OUT_TEXT};

    for (size_t i = 0; i < event->pair_count; i++)
        if (strcmp(event->pairs[i].key, key) == 0)
            return &event->pairs[i];
    if (strcmp(key, OUT_TEXT) != 0 || event->text[0] == '\0')
        return NULL;
    text.value = event->text;
    text.len = strlen(event->text);
    return &text;
}

/* Whether every reader of JSON reads the number without loss. */
static bool
number_is_plain(const struct holdfast_pair *pair)
{
    static const char max[] = "9007199254740991";

    if (strspn(pair->value, "0123456789") != pair->len || pair->len == 0)
        return false;
    if (pair->value[0] == '0')
        return pair->len == 1;
    return pair->len < sizeof(max) - 1 ||
           (pair->len == sizeof(max) - 1 && strcmp(pair->value, max) <= 0);
}

/* The key decides, not the value, since a note may be "123". */
static bool
key_is_number(const struct out *out, const char *key)
{
    static const char *const others[] = {
        "holders", "waiters", "tries", "unseen"};
    size_t len = strlen(key);

    for (size_t i = 0; i < out->column_count; i++)
        if (strcmp(out->columns[i].key, key) == 0)
            return out->columns[i].type != OUT_TYPE_TEXT;
    if (len > 3 && (strcmp(key + len - 3, "_ms") == 0 ||
                       strcmp(key + len - 3, "_us") == 0))
        return true;
    for (size_t i = 0; i < COUNT(others); i++)
        if (strcmp(key, others[i]) == 0)
            return true;
    return false;
}

static void
json_pair(const struct out *out, const struct holdfast_pair *pair)
{
    escape_json(stdout, pair->key, strlen(pair->key));
    (void)putchar(':');
    if (key_is_number(out, pair->key) && number_is_plain(pair))
        (void)fputs(pair->value, stdout);
    else
        escape_json(stdout, pair->value, pair->len);
}

static void
json_pairs(
    const struct out *out, const struct holdfast_event *event, bool first)
{
    for (size_t i = 0; i < event->pair_count; i++) {
        if (!first)
            (void)putchar(',');
        first = false;
        json_pair(out, &event->pairs[i]);
    }
    const struct holdfast_pair *text = pair_find(event, OUT_TEXT);
    if (text != NULL && event->text[0] != '\0') {
        (void)fputs(first ? "" : ",", stdout);
        json_pair(out, text);
    }
    (void)fputs("}\n", stdout);
}

static bool
tabs_row(const struct out *out, const struct holdfast_event *event)
{
    for (size_t i = 0; i < out->column_count; i++) {
        const struct holdfast_pair *pair =
            pair_find(event, out->columns[i].key);

        if (i > 0)
            (void)putchar('\t');
        if (pair == NULL)
            continue;
        char *text = escape_make(pair->value, pair->len, NULL);
        if (text == NULL)
            return false;
        (void)fputs(text, stdout);
        free(text);
    }
    (void)putchar('\n');
    return true;
}

void
out_duration(uint64_t ms, char *text, size_t text_bytes)
{
    uint64_t seconds = ms / 1000;

    if (ms < 1000) {
        (void)snprintf(text, text_bytes, "%" PRIu64 "ms", ms);
    } else if (seconds < 60) {
        (void)snprintf(text, text_bytes, "%" PRIu64 ".%" PRIu64 "s", seconds,
            ms % 1000 / 100);
    } else if (seconds < 3600) {
        (void)snprintf(text, text_bytes, "%" PRIu64 "m%02" PRIu64 "s",
            seconds / 60, seconds % 60);
    } else if (seconds < 86400) {
        (void)snprintf(text, text_bytes, "%" PRIu64 "h%02" PRIu64 "m",
            seconds / 3600, seconds % 3600 / 60);
    } else {
        (void)snprintf(text, text_bytes, "%" PRIu64 "d%02" PRIu64 "h",
            seconds / 86400, seconds % 86400 / 3600);
    }
}

/* The duration as "850us", "12.3ms", or by out_duration(). */
static void
duration_us_text(uint64_t us, char *text, size_t text_bytes)
{
    if (us < 1000)
        (void)snprintf(text, text_bytes, "%" PRIu64 "us", us);
    else if (us < 1000000)
        (void)snprintf(text, text_bytes, "%" PRIu64 ".%" PRIu64 "ms", us / 1000,
            us % 1000 / 100);
    else
        out_duration(us / 1000, text, text_bytes);
}

static bool
cell_fill(struct cell *cell, const struct out_column *column,
    const struct holdfast_event *event)
{
    const struct holdfast_pair *pair = pair_find(event, column->key);
    bool us = column->type == OUT_TYPE_US;
    const char *text = pair != NULL ? pair->value : "-";
    size_t len = pair != NULL ? pair->len : 1;
    uint64_t number;
    char duration[32];

    if ((us || column->type == OUT_TYPE_MS) &&
        holdfast_event_number(event, column->key, &number)) {
        if (us)
            duration_us_text(number, duration, sizeof(duration));
        else
            out_duration(number, duration, sizeof(duration));
        text = duration;
        len = strlen(duration);
    }
    cell->text = escape_make(text, len, &cell->width);
    return cell->text != NULL;
}

static bool
columns_row(struct out *out, const struct holdfast_event *event)
{
    size_t used = out->rows * out->column_count;

    if (used + out->column_count > out->cells_max) {
        size_t more = out->cells_max == 0 ? 256 : out->cells_max * 2;
        struct cell *grown = realloc(out->cells, more * sizeof(*grown));

        if (grown == NULL)
            return false;
        memset(grown + out->cells_max, 0,
            (more - out->cells_max) * sizeof(*grown));
        out->cells = grown;
        out->cells_max = more;
    }
    for (size_t i = 0; i < out->column_count; i++)
        if (!cell_fill(&out->cells[used + i], &out->columns[i], event))
            return false;
    return true;
}

bool
out_row(struct out *out, const struct holdfast_event *event)
{
    bool good = true;

    if (out->format == OUT_JSON) {
        (void)putchar('{');
        json_pairs(out, event, true);
    } else if (out->format == OUT_TABS) {
        good = tabs_row(out, event);
    } else {
        good = columns_row(out, event);
    }
    if (good)
        out->rows++;
    return good && !ferror(stdout);
}

void
out_summary(struct out *out, const char *key, const char *value,
    const struct holdfast_event *event)
{
    if (out->format != OUT_JSON)
        return;
    (void)fputs("{\"kind\":\"summary\",", stdout);
    escape_json(stdout, key, strlen(key));
    (void)putchar(':');
    escape_json(stdout, value, strlen(value));
    json_pairs(out, event, false);
}

static void
column_print(const char *text, size_t width, size_t full,
    const struct out_column *column, bool last)
{
    require(width <= full);
    int fill = (int)(full - width);

    if (column->type != OUT_TYPE_TEXT)
        (void)printf("%*s%s", fill, "", text);
    else if (last)
        (void)fputs(text, stdout);
    else
        (void)printf("%s%*s", text, fill, "");
    if (last)
        (void)putchar('\n');
    else
        (void)printf("%*s", GAP, "");
}

static void
columns_print(const struct out *out)
{
    size_t count = out->column_count;
    size_t widths[OUT_COLUMNS_MAX];

    for (size_t i = 0; i < count; i++) {
        widths[i] = strlen(out->columns[i].title);
        for (size_t row = 0; row < out->rows; row++) {
            size_t width = out->cells[row * count + i].width;

            widths[i] = width > widths[i] ? width : widths[i];
        }
    }
    for (size_t i = 0; i < count; i++) {
        const char *title = out->columns[i].title;

        column_print(
            title, strlen(title), widths[i], &out->columns[i], i + 1 == count);
    }
    for (size_t row = 0; row < out->rows; row++) {
        for (size_t i = 0; i < count; i++) {
            const struct cell *cell = &out->cells[row * count + i];

            column_print(cell->text, cell->width, widths[i], &out->columns[i],
                i + 1 == count);
        }
    }
}

bool
out_destroy(struct out **out)
{
    if (*out == NULL)
        return true;
    if ((*out)->format == OUT_COLUMNS && (*out)->rows > 0)
        columns_print(*out);
    for (size_t i = 0; i < (*out)->cells_max; i++)
        free((*out)->cells[i].text);
    free((*out)->cells);
    free(*out);
    *out = NULL;
    return fflush(stdout) == 0 && !ferror(stdout);
}

/*
 * Lists on stdout: aligned columns for people, tabs or JSON lines for programs.
 */
#ifndef HOLDFAST_COMMAND_OUT_H
#define HOLDFAST_COMMAND_OUT_H

#include "proto/holdfast/command.h"

enum out_type {
    OUT_TYPE_TEXT,
    OUT_TYPE_NUMBER, /* decimal on the wire; to the right in columns */
    OUT_TYPE_MS, /* a duration; columns show it in the largest fitting unit */
};

struct out_column {
    const char *key; /* of the wire, and of JSON */
    const char *title;
    enum out_type type;
};

struct out;

/* `columns` is a ref for the list's life. NULL: no memory. */
struct out *out_create(enum out_format format, const struct out_column *columns,
    size_t column_count);

/* One line: the pairs of an ITEM. False: no memory, or stdout is gone. */
bool out_row(struct out *out, const struct holdfast_event *event);

/* One line of JSON, in that format only; `key` and `value` come first. */
bool out_summary(struct out *out, const char *key, const char *value,
    const struct holdfast_event *event);

/* How many rows there were. */
size_t out_rows(const struct out *out);

/* What was decided for OUT_AUTOMATIC. */
enum out_format out_format(const struct out *out);

/* Writes what is left and frees; false where stdout failed. */
bool out_destroy(struct out **out);

#endif

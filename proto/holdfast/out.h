/*
 * Lists on stdout: aligned columns for people, tabs or JSON lines for programs.
 */
#ifndef HOLDFAST_COMMAND_OUT_H
#define HOLDFAST_COMMAND_OUT_H

#include "proto/holdfast/command.h"

#define OUT_COLUMNS_MAX 16

enum out_type {
    OUT_TYPE_TEXT,
    OUT_TYPE_NUMBER, /* decimal on the wire; to the right in columns */
    OUT_TYPE_MS, /* a duration; columns show it in the largest fitting unit */
    OUT_TYPE_US, /* the same, and there are smaller ones */
};

/* In place of a key: the text for people at the end of the line. */
#define OUT_TEXT "text"

struct out_column {
    const char *key; /* of the wire, and of JSON */
    const char *title;
    enum out_type type;
};

struct out;

/*
 * `columns` is a ref for the list's life, OUT_COLUMNS_MAX of them at most. NULL
 * after a complaint: no memory.
 */
struct out *out_create(enum out_format format, const struct out_column *columns,
    size_t column_count);

/* One line: the pairs of an ITEM. False: no memory, or stdout is gone. */
bool out_row(struct out *out, const struct holdfast_event *event);

/* One line of JSON, in that format only; `key` and `value` come first. */
void out_summary(struct out *out, const char *key, const char *value,
    const struct holdfast_event *event);

/* "850ms", "12.3s", "5m03s", "7h05m", "3d07h" */
void out_duration(uint64_t ms, char *text, size_t text_bytes);

/* The form chosen for OUT_AUTOMATIC. */
enum out_format out_format(const struct out *out);

/* Writes what is left and frees; false where stdout has failed. */
bool out_destroy(struct out **out);

#endif

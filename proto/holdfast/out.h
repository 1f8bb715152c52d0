/*
 * Lists on stdout: columns for people, tabs or JSON lines for programs.
 */
#ifndef HOLDFAST_COMMAND_OUT_H
#define HOLDFAST_COMMAND_OUT_H

#include "proto/holdfast/command.h"

struct out;

/* out.c */

#define OUT_COLUMNS_MAX 16

enum out_type {
    OUT_TYPE_TEXT,
    OUT_TYPE_NUMBER, /* decimal on the wire; columns align it to the right */
    OUT_TYPE_MS,     /* a duration; columns show it with a unit */
    OUT_TYPE_US,     /* a duration in µs */
};

/* The key for the text at the end of an ITEM. */
#define OUT_TEXT "text"

struct out_column {
    const char *key; /* of the wire, and of JSON */
    const char *title;
    enum out_type type;
};

/* `columns` is a ref for the list's life, with at most OUT_COLUMNS_MAX columns.
 * NULL after a complaint: no memory. */
struct out *out_create(enum out_format format, const struct out_column *columns,
    size_t column_count);

/* Prints the pairs of an ITEM as a row. False: no memory, or stdout is gone. */
bool out_row(struct out *out, const struct holdfast_event *event);

/* Prints a summary, in JSON only: `key` and `value`, then the event's pairs. */
void out_summary(struct out *out, const char *key, const char *value,
    const struct holdfast_event *event);

/* The duration as "850ms", "12.3s", "5m03s", "7h05m" or "3d07h". */
void out_duration(uint64_t ms, char *text, size_t text_bytes);

/* The format; never OUT_AUTOMATIC. */
enum out_format out_format(const struct out *out);

/* Prints the columns, and frees. False: stdout has failed. */
bool out_destroy(struct out **out);

/* list.c */

struct list {
    const char *what; /* for complaints */
    const struct out_column *columns;
    size_t column_count;
    bool patient; /* the broker may be silent while it answers PINGs */
    /* Or NULL: the exit status by the OK. No OK is STATUS_TROUBLE then. */
    int (*judge)(const struct holdfast_event *end);
};

/* Connects, sends `line`, and prints the ITEMs of the answer. An OK with a
 * cursor= continues the list. Returns the exit status. */
int list_print(
    struct settings *settings, const struct list *list, const char *line);

#endif

/*
 * Lists of the broker.
 */
#ifndef HOLDFAST_COMMAND_LIST_H
#define HOLDFAST_COMMAND_LIST_H

#include "proto/holdfast/out.h"

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

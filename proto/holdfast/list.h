/*
 * Lists that one request gives, for the commands that print such.
 */
#ifndef HOLDFAST_COMMAND_LIST_H
#define HOLDFAST_COMMAND_LIST_H

#include "proto/holdfast/out.h"

/*
 * Connects, sends `line`, and prints the ITEMs of its answer; `what` is for
 * complaints. `judge`, or NULL: the exit status by the OK; that there is none
 * is trouble then. Returns the exit status.
 */
int list_once(struct settings *settings, const char *what, const char *line,
    const struct out_column *columns, size_t column_count,
    int (*judge)(const struct holdfast_event *end));

#endif

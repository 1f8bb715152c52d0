/*
 * A process that kills a process group when this process dies without a word.
 */
#ifndef HOLDFAST_COMMAND_GUARD_H
#define HOLDFAST_COMMAND_GUARD_H

#include "proto/holdfast/command.h"

#include <sys/types.h>

struct guard {
    pid_t pid; /* 0: none */
    int fd;    /* owned; its end is this process' end */
};

/* Guards `group` from now on. False: it could not be started; see errno. */
bool guard_start(
    struct guard *guard, const struct settings *settings, pid_t group);

/* Sends the guard home. The caller reaps it. */
void guard_dismiss(struct guard *guard);

#endif

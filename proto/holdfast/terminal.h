/*
 * The foreground group of the terminal. The program's group is in the
 * foreground while it runs, so that it may read, and gets Ctrl-C and Ctrl-Z.
 * Before and after, the group of this process is.
 */
#ifndef HOLDFAST_COMMAND_TERMINAL_H
#define HOLDFAST_COMMAND_TERMINAL_H

#include <stdbool.h>
#include <sys/types.h>
#include <termios.h>

struct terminal {
    bool present;         /* the process has a controlling terminal */
    bool input;           /* stdin is this terminal */
    struct termios modes; /* of stdin at first, if it is */
};

/* Finds the terminal, and keeps its modes. */
void terminal_init(struct terminal *terminal);

/* Puts `group` into the foreground, if this process' group is there. */
void terminal_give(const struct terminal *terminal, pid_t group);

/* Puts this process' group into the foreground, if `group` is there. False: it
 * is not. */
bool terminal_take(const struct terminal *terminal, pid_t group);

/* Restores the modes, for a program that was killed. */
void terminal_restore(const struct terminal *terminal);

#endif

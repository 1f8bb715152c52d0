/*
 * The owner of the terminal. The program's process group is in the foreground,
 * so that Ctrl-C and Ctrl-Z reach it and it may read. The shell's job is before
 * and after.
 */
#ifndef HOLDFAST_COMMAND_TERMINAL_H
#define HOLDFAST_COMMAND_TERMINAL_H

#include <stdbool.h>
#include <sys/types.h>
#include <termios.h>

struct terminal {
    bool present;         /* the process has a controlling terminal */
    bool input;           /* and it is stdin */
    struct termios modes; /* as they were, if so */
};

/* Looks whether the process has a terminal, and keeps its modes. */
void terminal_init(struct terminal *terminal);

/* Makes `group` the foreground group where this process' own is. */
void terminal_give(const struct terminal *terminal, pid_t group);

/* Makes this process' group the foreground group where `group` is; true: so it
 * was. */
bool terminal_take(const struct terminal *terminal, pid_t group);

/* The modes as they were, for a program that could not put them back. */
void terminal_restore(const struct terminal *terminal);

#endif

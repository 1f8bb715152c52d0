/*
 * The program of run, as a process group, and the terminal's foreground.
 */
#ifndef HOLDFAST_PROTO_HOLDFAST_CHILD_H
#define HOLDFAST_PROTO_HOLDFAST_CHILD_H

#include "proto/holdfast/guard.h"
#include "proto/holdfast/loop.h"

#include <stdbool.h>
#include <sys/types.h>
#include <termios.h>

/* terminal.c */

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

/* child.c */

struct child {
    pid_t pid; /* of the program, and of its group */
    bool ended;
    bool stopped;  /* by job control; the caller resets it */
    bool unreaped; /* more children may be ready to reap */
    int wait_status;
    struct guard *guard; /* ref */
    struct terminal terminal;
};

/*
 * Starts argv[0], found by PATH, with the locks in its environment, and guards
 * it. False after a complaint. If the program cannot be executed, the child
 * exits with 126 or 127.
 */
bool child_start(struct child *child, struct guard *guard,
    const struct loop *loop, const struct holdfast *h,
    const struct acquired *acquired, char **argv);

/* Signals the whole group. */
void child_signal(const struct child *child, int signal);

/* Updates `ended` and `stopped`. It also reaps orphans of the program's family
 * (PR_SET_CHILD_SUBREAPER), a bounded number in each call. */
void child_reap(struct child *child);

/* Whether no process of the group is left. */
bool child_group_gone(const struct child *child);

/* Whether no process that the program has started is left, in its group or not.
 * Guards of a run within this one do not count: they end by themselves. */
bool child_family_gone(const struct child *child);

/* Kills the family and waits until it is dead, or warns after BURY_MS. */
void child_kill(struct child *child);

/* The exit status of the program, or 128 plus the number of its signal. */
int child_exit_status(const struct child *child);

#endif

/*
 * The program of run, as a process group.
 */
#ifndef HOLDFAST_COMMAND_CHILD_H
#define HOLDFAST_COMMAND_CHILD_H

#include "proto/holdfast/guard.h"
#include "proto/holdfast/loop.h"
#include "proto/holdfast/terminal.h"

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

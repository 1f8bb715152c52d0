/*
 * The program that run starts, as a process group.
 */
#ifndef HOLDFAST_COMMAND_CHILD_H
#define HOLDFAST_COMMAND_CHILD_H

#include "proto/holdfast/guard.h"
#include "proto/holdfast/loop.h"
#include "proto/holdfast/terminal.h"

struct child {
    pid_t pid; /* of the program and of its group */
    bool ended;
    bool stopped;  /* by job control, since this was last set to false */
    bool unreaped; /* there may be more to reap now */
    int wait_status;
    struct guard *guard; /* ref */
    struct terminal terminal;
};

/*
 * Starts argv[0], looked up in PATH, with the locks in its environment, and has
 * it guarded. False after a complaint. A program that cannot be executed ends
 * with 126 or 127 by itself.
 */
bool child_start(struct child *child, struct guard *guard,
    const struct loop *loop, const struct holdfast *h,
    const struct acquired *acquired, char **argv);

/* To all of the group. */
void child_signal(const struct child *child, int signal);

/*
 * Takes note of what has ended or stopped. Also reaps orphans of the program's
 * family (PR_SET_CHILD_SUBREAPER), a bounded number in each call.
 */
void child_reap(struct child *child);

/* Whether nothing of the group is left. */
bool child_group_gone(const struct child *child);

/*
 * Whether no process is left that the program has started, in its group or not.
 * Guards of a run within this one do not count: they end by themselves.
 */
bool child_family_gone(const struct child *child);

/* Kills the family and waits until nothing of it is left. */
void child_kill(struct child *child);

/* The exit status that stands for how it ended. */
int child_exit_status(const struct child *child);

#endif

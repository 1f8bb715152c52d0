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
    bool stopped; /* by job control, since this was last set to false */
    int wait_status;
    struct guard guard;
    struct terminal terminal;
};

/*
 * Starts argv[0], looked up in PATH, with `lock` in its environment. False
 * after a complaint. A program that cannot be executed ends with 126 or 127 by
 * itself.
 */
bool child_start(struct child *child, const struct settings *settings,
    const struct loop *loop, const char *session,
    const struct holdfast_hold *lock, char **argv);

/* To all of the group. */
void child_signal(const struct child *child, int signal);

/*
 * Takes note of what has ended or stopped. Also reaps what the program left
 * behind, which comes to this process (PR_SET_CHILD_SUBREAPER).
 */
void child_reap(struct child *child);

/* Whether nothing of the group is left. */
bool child_group_gone(const struct child *child);

/* Kills the group and waits until nothing of it is left. */
void child_kill(struct child *child);

/* The exit status that stands for how it ended. */
int child_exit_status(const struct child *child);

#endif

/*
 * A process that acts when this process is killed. It kills a process group. It
 * ends a kept session, with its locks and its places in queues.
 */
#ifndef HOLDFAST_COMMAND_GUARD_H
#define HOLDFAST_COMMAND_GUARD_H

#include "proto/holdfast/acquire.h"

#include <stdbool.h>
#include <sys/types.h>

/* guard.c */

enum will_state {
    WILL_WAITING, /* the locks are requested */
    WILL_HELD,    /* the locks may be in use: their end is a crash */
    WILL_OVER,    /* the locks are being released */
};

/* The tasks of the guard. It is sent to the guard as it is. */
struct will {
    enum will_state state;
    pid_t group;      /* to kill first; 0: none */
    char session[96]; /* to end; "": it ends by itself */
    uint64_t keep_ms; /* after this time the session ends by itself */
    bool shared;      /* the request, with the next three */
    bool tree;
    uint64_t limit;
    uint64_t permits;
    struct acquired acquired;
};

/* All zero but the settings until guard_tell() starts the process. */
struct guard {
    const struct settings *settings; /* ref */
    pid_t pid;                       /* 0: none */
    int fd;                          /* owned; closes when this process dies */
    struct will will;                /* the message of guard_tell() */
};

/* Sends the will to the guard, which it starts if there is none. False: the
 * guard does not have this will; see errno. */
bool guard_tell(struct guard *guard);

/* Whether the process is a guard, of any run. */
bool guard_is(pid_t pid);

/* The guard was killed. The caller reaps it. */
void guard_gone(struct guard *guard);

/* Ends the guard: it has no task. The caller reaps it, or exits. */
void guard_dismiss(struct guard *guard);

/* Makes the guard act now, as if this process had died. */
void guard_leave(struct guard *guard);

/* group.c */

/* Kills the group and waits some seconds until it is dead. False: a process of
 * it may still run. */
bool group_bury(pid_t group);

#endif

/*
 * A process that acts when this process dies without a word. It kills a process
 * group. It gives back the locks and the places of a session that would outlive
 * us.
 */
#ifndef HOLDFAST_COMMAND_GUARD_H
#define HOLDFAST_COMMAND_GUARD_H

#include "proto/holdfast/acquire.h"

#include <sys/types.h>

enum will_state {
    WILL_WAITING, /* the locks have been asked for */
    WILL_HELD,    /* they may be in use: their end is a crash */
    WILL_OVER,    /* they are being given back */
};

/* The work that is left. It goes to the guard as it is. */
struct will {
    enum will_state state;
    pid_t group;      /* to be killed before; 0: none */
    char session[96]; /* to be ended; "": it ends by itself */
    uint64_t keep_ms; /* when it does in any case */
    bool shared;      /* how the locks were asked for */
    uint64_t limit;
    uint64_t permits;
    struct acquired acquired;
};

/* Needs no end while guard_tell() was not called. */
struct guard {
    const struct settings *settings; /* ref */
    pid_t pid;                       /* 0: none */
    int fd;                          /* owned; its end is this process' end */
    struct will will;                /* the message of guard_tell() */
};

/*
 * Tells the will, and guards by it from now on; starts the guard where there is
 * none. False: there is none, or it has not heard; see errno.
 */
bool guard_tell(struct guard *guard);

/* Whether the process is a guard, of any run. */
bool guard_is(pid_t pid);

/* The caller has reaped it: somebody killed it. */
void guard_gone(struct guard *guard);

/*
 * Sends the guard home: nothing is left to be done. The caller reaps it, or
 * ends.
 */
void guard_dismiss(struct guard *guard);

/* Has the guard act now, as if this process had died. */
void guard_leave(struct guard *guard);

#endif

/*
 * The events for run and lock: the broker, a signal, a time, a descriptor.
 *
 * Time is CLOCK_BOOTTIME by a timerfd, so that a deadline that passes while the
 * machine sleeps is seen at once when it wakes; poll() alone would sleep on.
 */
#ifndef HOLDFAST_COMMAND_LOOP_H
#define HOLDFAST_COMMAND_LOOP_H

#include "proto/holdfast/command.h"

#include <signal.h>

struct loop {
    int signal_fd;    /* owned */
    int timer_fd;     /* owned */
    sigset_t told;    /* the signals of signal_fd */
    sigset_t before;  /* the signal mask that the process came with */
    sigset_t ignored; /* signals that it came to ignore */
    struct sigaction child_before; /* the inherited action for SIGCHLD */
};

/* Blocks the signals that loop_signal() tells. False after a complaint. */
bool loop_init(struct loop *loop);

/* Closes the descriptors; the signals stay blocked. */
void loop_fini(struct loop *loop);

/* Has loop_signal() tell this one as well. */
void loop_signal_add(struct loop *loop, int signal);

/* CLOCK_BOOTTIME in ms. */
uint64_t loop_now_ms(void);

/*
 * Waits for `h` (may be NULL), a signal, `until_ms` (UINT64_MAX: no end), or
 * `fd` (-1: none) to be readable, which *readable tells where it is not NULL.
 * Returns what poll() said of the connection, for holdfast_process(), which the
 * caller calls, so as to look at the clock before.
 */
short loop_wait(struct loop *loop, const struct holdfast *h, uint64_t until_ms,
    int fd, bool *readable);

/* The next signal that came, 0: none. */
int loop_signal(struct loop *loop);

/* Whether a signal ends a process that was not told otherwise. */
bool loop_signal_ends(const struct loop *loop, int signal);

/*
 * Stops this process as SIGTSTP does, with the rest of its process group;
 * returns when it goes on (at once where there is no shell to make it).
 */
void loop_stop_self(void);

#endif

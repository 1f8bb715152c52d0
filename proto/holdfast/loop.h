/*
 * Waiting for the broker, a signal, a time and a descriptor.
 *
 * Time is CLOCK_BOOTTIME, by a timerfd. So a deadline that passes while the
 * machine sleeps is seen when it wakes. poll() alone would sleep on.
 */
#ifndef HOLDFAST_COMMAND_LOOP_H
#define HOLDFAST_COMMAND_LOOP_H

#include "proto/holdfast/command.h"

#include <signal.h>

struct loop {
    int signal_fd;                 /* owned */
    int timer_fd;                  /* owned */
    sigset_t told;                 /* the signals of signal_fd */
    sigset_t before;               /* the inherited signal mask */
    sigset_t ignored;              /* the signals that were ignored at start */
    struct sigaction child_before; /* the inherited action for SIGCHLD */
};

/* Blocks the signals that loop_signal() returns. False after a complaint. */
bool loop_init(struct loop *loop);

/* Closes the descriptors; the signals stay blocked. */
void loop_fini(struct loop *loop);

/* Adds a signal to those that loop_signal() returns. */
void loop_signal_add(struct loop *loop, int signal);

/* CLOCK_BOOTTIME in ms. */
uint64_t loop_now_ms(void);

/*
 * Waits for `h` (may be NULL), a signal, `until_ms` (UINT64_MAX: no end), or
 * `fd` (-1: none) to be readable. *readable (may be NULL) says whether it is.
 * Returns the revents of `h`. The caller passes them to holdfast_process(), and
 * can look at the clock before.
 */
short loop_wait(struct loop *loop, const struct holdfast *h, uint64_t until_ms,
    int fd, bool *readable);

/* The next signal that came; 0: none. */
int loop_signal(struct loop *loop);

/* Whether the signal ends this process: it does so by default, and was not
 * ignored at start. */
bool loop_signal_ends(const struct loop *loop, int signal);

/* Stops this process group, as SIGTSTP does. Returns when it continues, or at
 * once if no shell could continue it. */
void loop_stop_self(void);

#endif

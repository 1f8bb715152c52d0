/*
 * A signalfd delivers the signals, so no code runs in a handler. The signals
 * stay blocked from loop_init() on.
 */
#define _GNU_SOURCE 1

#include "proto/holdfast/loop.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

static const int told[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2,
    SIGWINCH, SIGCONT, SIGTSTP, SIGCHLD};

#define TOLD (sizeof(told) / sizeof(told[0]))

bool
loop_init(struct loop *loop)
{
    struct sigaction usual = {.sa_handler = SIG_DFL};
    sigset_t blocked;

    (void)sigemptyset(&loop->told);
    (void)sigemptyset(&loop->ignored);
    for (size_t i = 0; i < TOLD; i++) {
        struct sigaction found;

        (void)sigaddset(&loop->told, told[i]);
        (void)sigaction(told[i], NULL, &found);
        if (found.sa_handler == SIG_IGN)
            (void)sigaddset(&loop->ignored, told[i]);
    }
    /* A process that ignores SIGCHLD cannot wait for a child. */
    (void)sigaction(SIGCHLD, &usual, &loop->child_before);
    blocked = loop->told;
    /* Otherwise tcsetpgrp() or a warning would stop a background process, and a
     * warning to a closed pipe would end it. */
    (void)sigaddset(&blocked, SIGTTOU);
    (void)sigaddset(&blocked, SIGPIPE);
    (void)sigprocmask(SIG_BLOCK, &blocked, &loop->before);

    loop->signal_fd = signalfd(-1, &loop->told, SFD_NONBLOCK | SFD_CLOEXEC);
    loop->timer_fd = timerfd_create(CLOCK_BOOTTIME, TFD_NONBLOCK | TFD_CLOEXEC);
    if (loop->signal_fd < 0 || loop->timer_fd < 0) {
        complain("no descriptor for signals or time: %s", strerror(errno));
        loop_fini(loop);
        return false;
    }
    return true;
}

void
loop_fini(struct loop *loop)
{
    /* close(-1) does nothing. */
    (void)close(loop->signal_fd);
    (void)close(loop->timer_fd);
}

void
loop_signal_add(struct loop *loop, int signal)
{
    (void)sigaddset(&loop->told, signal);
    (void)sigprocmask(SIG_BLOCK, &loop->told, NULL);
    (void)signalfd(loop->signal_fd, &loop->told, 0);
}

uint64_t
loop_now_ms(void)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_BOOTTIME, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

static void
timer_set(struct loop *loop, uint64_t until_ms)
{
    struct itimerspec when = {.it_interval = {0, 0}};

    if (until_ms != UINT64_MAX) {
        when.it_value.tv_sec = (time_t)(until_ms / 1000);
        /* Plus 1 ns, since 0 would disarm the timer. */
        when.it_value.tv_nsec = (long)(until_ms % 1000) * 1000000 + 1;
    }
    (void)timerfd_settime(loop->timer_fd, TFD_TIMER_ABSTIME, &when, NULL);
}

short
loop_wait(struct loop *loop, const struct holdfast *h, uint64_t until_ms,
    int fd, bool *readable)
{
    struct pollfd entries[] = {
        {.fd = loop->signal_fd, .events = POLLIN},
        {.fd = loop->timer_fd, .events = POLLIN},
        {.fd = fd, .events = POLLIN},
        {.fd = -1},
    };

    if (h != NULL) {
        int own_ms = holdfast_timeout_ms(h);

        if (own_ms >= 0 && loop_now_ms() + (uint64_t)own_ms < until_ms)
            until_ms = loop_now_ms() + (uint64_t)own_ms;
        entries[3].fd = holdfast_fd(h);
        entries[3].events = holdfast_events(h);
    }
    timer_set(loop, until_ms);
    /* If it fails, revents stay 0, and the caller waits again. */
    (void)poll(entries, sizeof(entries) / sizeof(entries[0]), -1);
    if (readable != NULL)
        *readable = entries[2].revents != 0;
    return entries[3].revents;
}

int
loop_signal(struct loop *loop)
{
    struct signalfd_siginfo info;

    if (read(loop->signal_fd, &info, sizeof(info)) != (ssize_t)sizeof(info))
        return 0;
    return (int)info.ssi_signo;
}

bool
loop_signal_ends(const struct loop *loop, int signal)
{
    switch (signal) {
    case SIGINT:
    case SIGTERM:
    case SIGHUP:
    case SIGQUIT:
    case SIGUSR1:
    case SIGUSR2:
        return sigismember(&loop->ignored, signal) == 0;
    default:
        return false;
    }
}

void
loop_stop_self(void)
{
    sigset_t stop;

    (void)sigemptyset(&stop);
    (void)sigaddset(&stop, SIGTSTP);
    /* The kernel drops SIGTSTP, but not SIGSTOP, if no shell could continue the
     * group. */
    (void)kill(0, SIGTSTP);
    (void)sigprocmask(SIG_UNBLOCK, &stop, NULL);
    (void)sigprocmask(SIG_BLOCK, &stop, NULL);
}

/*
 * The command lock: holds locks until the input ends or a signal comes. Scripts
 * use it so:
 *
 *     exec 3> >(holdfast lock KEY >state); ...; exec 3>&-
 */
#define _GNU_SOURCE 1

#include "proto/holdfast/acquire.h"
#include "proto/holdfast/detached.h"
#include "proto/holdfast/escape.h"
#include "proto/holdfast/guard.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Reads and ignores input. False: the input is at its end. */
static bool
input_read(void)
{
    char ignored[4096];
    ssize_t got = read(STDIN_FILENO, ignored, sizeof(ignored));

    return got > 0 || (got < 0 && errno == EAGAIN);
}

/* Keeps the locks until the input ends or a signal comes; the exit status. */
static int
lock_keep(struct loop *loop, struct holdfast *h)
{
    struct holdfast_event event;
    char text[256];
    bool readable;
    int signal;

    for (;;) {
        while (holdfast_next(h, &event)) {
            const char *why = acquire_loss(&event);

            if (why != NULL) {
                complain("the lock is lost: %s",
                    escape_text(why, text, sizeof(text)));
                return STATUS_LOST;
            }
        }
        short revents = loop_wait(loop, h, UINT64_MAX, STDIN_FILENO, &readable);
        holdfast_process(h, revents);
        while ((signal = loop_signal(loop)) != 0) {
            if (loop_signal_ends(loop, signal))
                return STATUS_FINE;
            if (signal == SIGTSTP)
                loop_stop_self();
        }
        if (readable && !input_read())
            return STATUS_FINE;
    }
}

/* Prints and keeps the locks; the exit status. The guard ends the session if
 * this process is killed. */
static int
lock_hold(struct loop *loop, struct guard *guard, struct holdfast *h,
    const struct acquired *acquired)
{
    uint64_t deadline = acquired->hold[0].deadline_ms;
    char fences[ACQUIRED_TEXT_BYTES];
    uint64_t now = loop_now_ms();
    int status = STATUS_TROUBLE;

    if (holdfast_keep_ms(h) > 0 && !acquire_guard(guard, h, acquired, 0))
        complain("warning: no guard process: %s", strerror(errno));
    acquired_text(acquired, true, ',', fences, sizeof(fences));
    (void)printf("fence=%s ttl_ms=%" PRIu64 "\n", fences,
        deadline > now ? deadline - now : 0);
    if (fflush(stdout) == 0)
        status = lock_keep(loop, h);
    else
        complain("cannot write");
    if (status != STATUS_LOST)
        acquire_release(h, guard, acquired);
    return status;
}

int
command_lock(struct settings *settings, char **argv)
{
    struct guard guard = {.settings = settings};
    struct acquire acquire;
    struct words words;
    struct loop loop;
    struct holdfast *h;
    struct acquired acquired;

    if (!acquire_parse(settings, "lock", argv, &acquire, &words))
        return words.status;
    if (acquire.detached)
        return detached_lock(settings, &acquire);
    if (!loop_init(&loop))
        return STATUS_TROUBLE;
    int status = acquire_lock(&acquire, &loop, &guard, &h, &acquired);
    if (status == STATUS_FINE) {
        status = lock_hold(&loop, &guard, h, &acquired);
        holdfast_destroy(&h);
        guard_leave(&guard);
    }
    loop_fini(&loop);
    return status;
}

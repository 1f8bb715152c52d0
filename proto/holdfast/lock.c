/*
 * lock: a lock, or several, for scripts that open it and go on, as
 *
 *     exec 3> >(holdfast lock KEY >state); ...; exec 3>&-
 *
 * It is held until the input ends or a signal comes.
 */
#define _GNU_SOURCE 1

#include "proto/holdfast/acquire.h"
#include "proto/holdfast/escape.h"
#include "proto/holdfast/guard.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* False: the input is at its end. Its contents do not matter. */
static bool
input_read(void)
{
    char ignored[4096];
    ssize_t got = read(STDIN_FILENO, ignored, sizeof(ignored));

    return got > 0 || (got < 0 && errno == EAGAIN);
}

/* True: the lock is gone, after a complaint. */
static bool
event_ends(const struct holdfast_event *event)
{
    const char *reason = holdfast_event_value(event, "reason");
    char text[256];

    switch (event->kind) {
    case HOLDFAST_LOST:
        if (event->request == 0) /* of something that is not ours */
            return false;
        complain("the lock is lost: %s",
            escape_text(reason != NULL ? reason : "the broker says so", text,
                sizeof(text)));
        return true;
    case HOLDFAST_DEADLINE:
        complain("the lock is lost: its time ends without word of the broker");
        return true;
    case HOLDFAST_CLOSED:
        complain("the lock is lost: %s",
            escape_text(event->text, text, sizeof(text)));
        return true;
    case HOLDFAST_JEOPARDY:
        complain("warning: the renewal of the lock is late");
        return false;
    case HOLDFAST_SAFE:
        complain("the lock is renewed again");
        return false;
    case HOLDFAST_AWAY:
    case HOLDFAST_BACK:
        acquire_complain_away(event);
        return false;
    case HOLDFAST_HELD:
    case HOLDFAST_FREE:
    case HOLDFAST_HELLO:
    case HOLDFAST_OK:
    case HOLDFAST_ERR:
    case HOLDFAST_ITEM:
    case HOLDFAST_QUEUED:
    case HOLDFAST_DRAIN:
    case HOLDFAST_BYE:
        return false;
    }
    return false;
}

/* Until the input's end or a signal; the exit status. */
static int
lock_keep(struct loop *loop, struct holdfast *h)
{
    struct holdfast_event event;
    bool readable;
    int signal;

    for (;;) {
        while (holdfast_next(h, &event))
            if (event_ends(&event))
                return STATUS_LOST;
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

/*
 * The lock is held: says so and keeps it; the exit status. The guard ends the
 * session where this process is killed, as nobody else would for some time.
 */
static int
lock_hold(struct loop *loop, struct guard *guard, struct holdfast *h,
    const struct acquired *acquired)
{
    uint64_t deadline = acquired->hold[0].deadline_ms;
    char fences[ACQUIRED_TEXT_BYTES];
    uint64_t now = loop_now_ms();
    int status = STATUS_TROUBLE;

    if (holdfast_keep_ms(h) > 0 && !acquire_guard(guard, h, acquired, 0))
        complain("warning: no guard: %s", strerror(errno));
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
command_lock(struct settings *settings, int argc, char **argv)
{
    struct guard guard = {.settings = settings};
    struct acquire acquire;
    struct words words;
    struct loop loop;
    struct holdfast *h;
    struct acquired acquired;
    int status;

    (void)argc;
    if (!acquire_parse(
            settings, "lock", argv, false, &acquire, &words, &status))
        return status;
    if (!loop_init(&loop))
        return STATUS_TROUBLE;
    status = acquire_lock(&acquire, &loop, &guard, &h, &acquired);
    if (status == STATUS_FINE) {
        status = lock_hold(&loop, &guard, h, &acquired);
        holdfast_destroy(&h);
        guard_leave(&guard);
    }
    loop_fini(&loop);
    return status;
}

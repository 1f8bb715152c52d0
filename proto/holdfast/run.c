/*
 * run: a program under a lock.
 *
 * The rule: no process of the program's group runs when somebody else may hold
 * the lock. The three ways to lose it differ in how long that leaves:
 *
 *   the deadline comes near   the broker was not heard of in time. The lock is
 *                             ours until the deadline, so there is time: TERM,
 *                             and KILL shortly before the deadline.
 *   LOST                      the lock may be somebody else's from now on.
 *                             TERM, and KILL after LOST_GRACE_MS, a moment for
 *                             cleaning up that only the fence covers.
 *   the session ends          as with --keep 0 it does with the connection: a
 *                             broker that lives frees the lock when it sees
 *                             that, which is now. KILL.
 *
 * A session that is kept moves to another broker by itself; meanwhile the
 * deadline counts.
 *
 * A process that was paused looks at the clock before anything else: past the
 * time for KILL there is nothing to be asked.
 *
 * TERM goes to the group. KILL goes to each process that the program has
 * started, in the group or not, and the connection is closed only when none of
 * them is left. Processes that the program leaves behind when it ends by itself
 * go on.
 *
 * The program's processes may end, and send signals to this one, without a
 * pause. So each turn handles a bounded number of both and then looks for a
 * loss.
 */
#define _GNU_SOURCE 1

#include "proto/holdfast/acquire.h"
#include "proto/holdfast/child.h"
#include "proto/holdfast/escape.h"
#include "proto/holdfast/nested.h"

#include <inttypes.h>
#include <stdio.h>

#define LOST_GRACE_MS 100
#define KILL_MIN_MS   50 /* before the deadline, at least */
#define KILL_MAX_MS   500
#define TERM_MAX_MS   2000 /* between TERM and KILL, at most */

#define SIGNALS_MAX 32 /* in one turn */

enum run_state {
    RUN_WORKING, /* the lock is held */
    RUN_ENDING,  /* it is lost; TERM was sent, KILL comes at kill_ms */
    RUN_KILLED,  /* it is lost; nothing of the family is left */
};

struct run {
    enum run_state state;
    struct loop loop;
    struct holdfast *h; /* owned */
    struct acquired acquired;
    struct guard guard;
    struct child child;
    uint64_t kill_before_ms; /* KILL comes this long before a deadline */
    uint64_t kill_ms;        /* when KILL is due by what is known now */
};

static uint64_t
least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* How long before the deadline TERM and KILL come, by what was promised. */
static void
run_margins(struct run *run)
{
    uint64_t ttl = run->acquired.hold[0].ttl_ms;
    uint64_t term = least(ttl / 8, TERM_MAX_MS);

    run->kill_before_ms = least(ttl / 10, KILL_MAX_MS);
    if (run->kill_before_ms < KILL_MIN_MS)
        run->kill_before_ms = KILL_MIN_MS;
    holdfast_set_margin(run->h, run->kill_before_ms + term);
}

/* When KILL is due for a hold that ends at `deadline_ms`. */
static uint64_t
run_kill_at(const struct run *run, uint64_t deadline_ms)
{
    return deadline_ms - least(deadline_ms, run->kill_before_ms);
}

static void
run_kill(struct run *run)
{
    if (run->state != RUN_KILLED) {
        run->state = RUN_KILLED;
        child_kill(&run->child);
    }
}

/* The lock is lost, or as good as: TERM now, KILL at `kill_ms`. */
static void
run_lose(struct run *run, const char *why, uint64_t kill_ms)
{
    char text[256];

    if (run->state != RUN_WORKING)
        return;
    run->state = RUN_ENDING;
    run->kill_ms = least(run->kill_ms, kill_ms);
    if (loop_now_ms() >= run->kill_ms)
        run_kill(run);
    else
        child_signal(&run->child, SIGTERM);
    /* The complaint last: it may block, where nobody reads it. */
    complain("the lock is lost: %s", escape_text(why, text, sizeof(text)));
}

/* Looks at the clock alone. */
static void
run_overdue(struct run *run)
{
    if (run->state == RUN_KILLED || loop_now_ms() < run->kill_ms)
        return;
    run_lose(run, "its time is over", 0);
    run_kill(run);
}

static void
run_event(struct run *run, const struct holdfast_event *event)
{
    const char *reason = holdfast_event_value(event, "reason");
    uint64_t now = loop_now_ms();

    switch (event->kind) {
    case HOLDFAST_LOST:
        if (event->request == 0) /* of something that is not ours */
            break;
        run_lose(run, reason != NULL ? reason : "the broker says so",
            now + LOST_GRACE_MS);
        break;
    case HOLDFAST_DEADLINE:
        run_lose(run, "its time ends without word of the broker",
            run_kill_at(run, event->deadline_ms));
        break;
    case HOLDFAST_CLOSED:
        run_lose(run, event->text, 0);
        run_kill(run);
        break;
    case HOLDFAST_JEOPARDY:
        complain("warning: the renewal of the lock is late, %" PRIu64
                 " ms are left",
            event->ttl_ms);
        break;
    case HOLDFAST_SAFE:
        complain("the lock is renewed again");
        break;
    case HOLDFAST_DRAIN:
        complain("warning: the broker is going");
        break;
    case HOLDFAST_AWAY:
    case HOLDFAST_BACK:
        acquire_complain_away(event);
        break;
    case HOLDFAST_HELD:
    case HOLDFAST_FREE:
    case HOLDFAST_HELLO:
    case HOLDFAST_OK:
    case HOLDFAST_ERR:
    case HOLDFAST_ITEM:
    case HOLDFAST_QUEUED:
    case HOLDFAST_BYE:
        break;
    }
}

/* Handles the broker's lines; moves the time for KILL on. */
static void
run_broker(struct run *run, short revents)
{
    struct holdfast_event event;

    holdfast_process(run->h, revents);
    while (holdfast_next(run->h, &event))
        run_event(run, &event);
    uint64_t deadline = acquired_deadline_ms(run->h, &run->acquired);
    if (run->state == RUN_WORKING && deadline != 0)
        run->kill_ms = run_kill_at(run, deadline);
}

/*
 * The program was stopped, by Ctrl-Z for one: so does this process, and the
 * shell has its terminal back. Made to go on, by fg or bg, it makes the program
 * go on, unless the lock's time has passed meanwhile.
 */
static void
run_stopped(struct run *run)
{
    struct child *child = &run->child;

    child->stopped = false;
    if (!child->terminal.present || run->state != RUN_WORKING)
        return;
    (void)terminal_take(&child->terminal, child->pid);
    loop_stop_self();
    run_overdue(run);
    if (run->state == RUN_WORKING) {
        terminal_give(&child->terminal, child->pid);
        child_signal(child, SIGCONT);
    }
}

/*
 * Another process of our own group has asked for the terminal, as `less` does
 * behind a pipe, and was stopped, since the program has it. It gets the
 * terminal now, and goes on. Should the program ask for it as well, all of the
 * job stops.
 */
static void
run_yield(struct run *run)
{
    if (terminal_take(&run->child.terminal, run->child.pid))
        (void)kill(0, SIGCONT);
}

static void
run_signals(struct run *run)
{
    int signal;

    for (size_t i = 0;
         i < SIGNALS_MAX && (signal = loop_signal(&run->loop)) != 0; i++) {
        if (signal == SIGTTIN || signal == SIGTTOU)
            run_yield(run);
        if (signal == SIGCHLD || signal == SIGTTIN || signal == SIGTTOU)
            continue;
        if (!run->child.ended)
            child_signal(&run->child, signal);
    }
    child_reap(&run->child);
    if (run->child.stopped && !run->child.ended)
        run_stopped(run);
}

/* Until the program has ended, or all of its family if the lock is lost. */
static void
run_supervise(struct run *run)
{
    while (run->state == RUN_WORKING
               ? !run->child.ended
               : run->state == RUN_ENDING && !child_family_gone(&run->child)) {
        uint64_t until = run->child.unreaped ? 0 : run->kill_ms;
        short revents = loop_wait(&run->loop, run->h, until, -1, NULL);
        run_overdue(run);
        run_signals(run);
        /* Last: a program that ended after the loss has lost the lock. */
        run_broker(run, revents);
        run_overdue(run);
    }
}

/*
 * The lock is lost, and the program's group has been ended. Its number may soon
 * be another's, so the guard is to leave that alone.
 */
static void
run_lost(struct run *run)
{
    terminal_restore(&run->child.terminal);
    if (run->guard.pid == 0 || !child_group_gone(&run->child))
        return;
    run->guard.will.group = 0;
    (void)guard_tell(&run->guard);
}

/* Runs the program under the lock that is held; the exit status. */
static int
run_program(struct run *run, const struct acquire *acquire, char **argv)
{
    struct child *child = &run->child;

    run_margins(run);
    run->kill_ms = run_kill_at(run, run->acquired.hold[0].deadline_ms);
    if (loop_now_ms() >= run->kill_ms) {
        complain("the lock is lost: its time was over before the start");
        return STATUS_LOST;
    }
    if (!nested_tell(acquire))
        complain("warning: no memory to tell the program what it holds");
    if (!child_start(
            child, &run->guard, &run->loop, run->h, &run->acquired, argv)) {
        acquire_release(run->h, &run->guard, &run->acquired);
        return STATUS_TROUBLE;
    }
    run_supervise(run);
    (void)terminal_take(&child->terminal, child->pid);
    if (run->state != RUN_WORKING) {
        run_lost(run);
        return STATUS_LOST;
    }
    acquire_release(run->h, &run->guard, &run->acquired);
    return child_exit_status(child);
}

int
command_run(struct settings *settings, int argc, char **argv)
{
    struct run run = {.state = RUN_WORKING, .guard = {.settings = settings}};
    struct acquire acquire;
    struct words words;
    int status;

    (void)argc;
    if (!acquire_parse(settings, "run", argv, true, &acquire, &words, &status))
        return status;
    if (!loop_init(&run.loop))
        return STATUS_TROUBLE;
    /* Else another process of this group that reads the terminal would stop
     * this one as well, and nobody would look after the lock. */
    loop_signal_add(&run.loop, SIGTTIN);
    loop_signal_add(&run.loop, SIGTTOU);
    status =
        acquire_lock(&acquire, &run.loop, &run.guard, &run.h, &run.acquired);
    if (status == STATUS_FINE) {
        status = run_program(&run, &acquire, words.rest);
        holdfast_destroy(&run.h);
        guard_leave(&run.guard);
    }
    loop_fini(&run.loop);
    return status;
}

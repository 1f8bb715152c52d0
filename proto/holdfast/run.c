/*
 * The command run: a program under a lock.
 *
 * The rule: no process of the program's group runs when another client may hold
 * the lock. How the lock is lost decides how much time is left:
 *
 *   the deadline is near   The broker did not answer. The lock is held until
 *                          the deadline. TERM now, KILL shortly before it.
 *   LOST                   Another client may hold the lock from now on. TERM
 *                          now, KILL after LOST_GRACE_MS. Only the fence
 *                          protects this moment for cleaning up.
 *   the session ends       With --keep 0 it ends with the connection. A living
 *                          broker frees the lock at once. KILL now.
 *
 * A kept session moves to another broker by itself. Its deadline still counts.
 *
 * After a pause of the process the clock comes first: if KILL is due, nothing
 * else matters.
 *
 * TERM goes to the group. KILL goes to each process that the program has
 * started, in the group or not. The connection closes when all of them are
 * dead. Processes that the program leaves behind at its own end live on.
 *
 * The program's processes may end, and send signals to this one, without a
 * pause. So each turn handles a bounded number of both, then checks for a loss.
 */
#define _GNU_SOURCE 1

#include "daemon/base/assert.h"
#include "proto/holdfast/acquire.h"
#include "proto/holdfast/child.h"
#include "proto/holdfast/escape.h"

#include <stdio.h>

#define LOST_GRACE_MS 100
#define KILL_MIN_MS   50 /* before the deadline, at least */
#define KILL_MAX_MS   500
#define TERM_MAX_MS   2000 /* between TERM and KILL, at most */

#define SIGNALS_MAX 32 /* in one turn */

enum run_state {
    RUN_WORKING, /* the lock is held */
    RUN_ENDING,  /* the lock is lost; TERM was sent, KILL comes at kill_ms */
    RUN_KILLED,  /* the lock is lost; no process of the program is left */
};

struct run {
    enum run_state state;
    struct loop loop;
    struct holdfast *h; /* owned */
    struct acquired acquired;
    struct guard guard;
    struct child child;
    uint64_t kill_before_ms; /* KILL comes this long before a deadline */
    uint64_t kill_ms;        /* when KILL is due, as far as is known */
};

static uint64_t
least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* Sets the times from TERM and KILL to the deadline, by the ttl. */
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

/* The lock is lost, or will be: TERM now, KILL at `kill_ms`. */
static void
run_lose(struct run *run, const char *why, uint64_t kill_ms)
{
    char text[256];

    if (run->state != RUN_WORKING)
        return;
    require(run->child.pid > 0); /* the program was started */
    run->state = RUN_ENDING;
    run->kill_ms = least(run->kill_ms, kill_ms);
    if (loop_now_ms() >= run->kill_ms)
        run_kill(run);
    else
        child_signal(&run->child, SIGTERM);
    /* Last, since the signal comes before any output. */
    complain("the lock is lost: %s", escape_text(why, text, sizeof(text)));
}

/* Kills the program if that is due by the clock. */
static void
run_overdue(struct run *run)
{
    if (run->state == RUN_KILLED || loop_now_ms() < run->kill_ms)
        return;
    run_lose(run, "its deadline has passed", 0);
    run_kill(run);
}

static void
run_event(struct run *run, const struct holdfast_event *event)
{
    uint64_t now = loop_now_ms();
    const char *why = acquire_loss(event);

    if (event->kind == HOLDFAST_DRAIN)
        complain("warning: the broker stops");
    if (why == NULL)
        return;
    if (event->kind == HOLDFAST_LOST) {
        run_lose(run, why, now + LOST_GRACE_MS);
    } else if (event->kind == HOLDFAST_DEADLINE) {
        run_lose(run, why, run_kill_at(run, event->deadline_ms));
    } else {
        run_lose(run, why, 0);
        run_kill(run);
    }
}

/* Handles the broker's lines, and moves kill_ms on. */
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
 * The program was stopped, for example by Ctrl-Z. This process stops too, and
 * the shell gets the terminal. After fg or bg both go on, unless the lock's
 * time has passed meanwhile.
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
 * Another process of this process' group, as `less` behind a pipe, has asked
 * for the terminal. The kernel stopped it, since the program has the terminal.
 * It gets the terminal now, and goes on. If the program then asks for the
 * terminal too, the whole job stops.
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

/* Runs until the program ends, or after a loss until its last process ends. */
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
        /* Last: a program that ends after the loss has lost the lock. */
        run_broker(run, revents);
        run_overdue(run);
    }
}

/* The lock is lost, and the group is dead. The guard must not kill it, since
 * another group may get its number. */
static void
run_lost(struct run *run)
{
    terminal_restore(&run->child.terminal);
    if (run->guard.pid == 0 || !child_group_gone(&run->child))
        return;
    run->guard.will.group = 0;
    (void)guard_tell(&run->guard);
}

/* Runs the program under the lock; the exit status. */
static int
run_program(struct run *run, const struct acquire *acquire, char **argv)
{
    struct child *child = &run->child;

    run_margins(run);
    run->kill_ms = run_kill_at(run, run->acquired.hold[0].deadline_ms);
    if (loop_now_ms() >= run->kill_ms) {
        complain("the lock is lost: its deadline passed before the start");
        return STATUS_LOST;
    }
    if (!nested_tell(acquire))
        complain("warning: no memory for HOLDFAST_HELD; a run within this one "
                 "may wait for itself");
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
command_run(struct settings *settings, char **argv)
{
    struct run run = {.state = RUN_WORKING, .guard = {.settings = settings}};
    struct acquire acquire;
    struct words words;

    if (!acquire_parse(settings, "run", argv, &acquire, &words))
        return words.status;
    if (!loop_init(&run.loop))
        return STATUS_TROUBLE;
    /* Otherwise a process of this group that reads the terminal would stop this
     * process too, and nobody would watch over the lock. */
    loop_signal_add(&run.loop, SIGTTIN);
    loop_signal_add(&run.loop, SIGTTOU);
    int status =
        acquire_lock(&acquire, &run.loop, &run.guard, &run.h, &run.acquired);
    if (status == STATUS_FINE) {
        status = run_program(&run, &acquire, words.rest);
        holdfast_destroy(&run.h);
        guard_leave(&run.guard);
    }
    loop_fini(&run.loop);
    return status;
}

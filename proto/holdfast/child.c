/*
 * A program in a process group of its own: started, signalled, reaped, killed.
 *
 * Start: the child waits behind a gate until it has its group, its guard and
 * the terminal; so there is no moment in which it runs unguarded. It has the
 * signal mask, the dispositions and the descriptors that this process came
 * with; everything that this process opened is close-on-exec.
 *
 * The group's number stays taken while the program is not reaped or a process
 * of the group lives, so a signal to the group cannot meet a stranger as long
 * as none is sent after child_group_gone().
 */
#define _GNU_SOURCE 1

#include "proto/holdfast/child.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define BURY_MS     3000    /* for SIGKILL to be obeyed */
#define BURY_NAP_NS 1000000 /* between looks */

static void
environment_set(const char *session, const struct acquired *acquired)
{
    char text[ACQUIRED_TEXT_BYTES];

    acquired_text(acquired, false, ' ', text, sizeof(text));
    (void)setenv("HOLDFAST_LOCK", text, 1);
    acquired_text(acquired, true, ' ', text, sizeof(text));
    (void)setenv("HOLDFAST_FENCE", text, 1);
    (void)setenv("HOLDFAST_SESSION", session, 1);
}

static _Noreturn void
child_main(const struct loop *loop, pid_t parent, int gate, char **argv)
{
    char byte;

    (void)setpgid(0, 0);
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(STATUS_TROUBLE);
    if (read(gate, &byte, 1) != 1)
        _exit(STATUS_TROUBLE);
    (void)sigaction(SIGCHLD, &loop->child_before, NULL);
    (void)sigprocmask(SIG_SETMASK, &loop->before, NULL);
    (void)execvp(argv[0], argv);

    int error = errno;
    complain(
        "%s: %s", argv[0], error == ENOENT ? "not found" : strerror(error));
    _exit(error == ENOENT ? STATUS_NOT_FOUND : STATUS_NOT_EXECUTABLE);
}

/* Ends a child that is still behind the gate. */
static void
start_undo(struct child *child)
{
    (void)kill(child->pid, SIGKILL);
    (void)waitpid(child->pid, NULL, 0);
}

bool
child_start(struct child *child, struct guard *guard, const struct loop *loop,
    const struct holdfast *h, const struct acquired *acquired, char **argv)
{
    pid_t parent = getpid();
    int gate[2];

    memset(child, 0, sizeof(*child));
    child->guard = guard;
    terminal_init(&child->terminal);
    (void)prctl(PR_SET_CHILD_SUBREAPER, 1);
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, gate) != 0) {
        complain("no socket: %s", strerror(errno));
        return false;
    }
    environment_set(holdfast_session(h), acquired);
    (void)fflush(NULL);
    child->pid = fork();
    if (child->pid == 0) {
        (void)close(gate[0]);
        child_main(loop, parent, gate[1], argv);
    }
    (void)close(gate[1]);
    bool good = child->pid > 0;
    if (!good) {
        complain("cannot fork: %s", strerror(errno));
    } else {
        (void)setpgid(child->pid, child->pid);
        good = acquire_guard(guard, h, acquired, child->pid);
        if (!good) {
            complain("no guard: %s", strerror(errno));
            start_undo(child);
        }
    }
    if (good) {
        terminal_give(&child->terminal, child->pid);
        (void)send(gate[0], "", 1, MSG_NOSIGNAL);
    }
    (void)close(gate[0]);
    return good;
}

void
child_signal(const struct child *child, int signal)
{
    (void)kill(-child->pid, signal);
}

void
child_reap(struct child *child)
{
    int status;
    pid_t pid;

    while ((pid = waitpid(-1, &status, WNOHANG | WUNTRACED)) > 0) {
        if (pid == child->guard->pid) {
            /* Somebody killed it; the program itself still dies with us. */
            complain("warning: the guard of the process group is gone");
            guard_gone(child->guard);
        } else if (pid == child->pid && WIFSTOPPED(status)) {
            /* SIGSTOP is somebody's own business, not job control. */
            child->stopped = WSTOPSIG(status) != SIGSTOP;
        } else if (pid == child->pid) {
            child->ended = true;
            child->wait_status = status;
        }
    }
}

bool
child_group_gone(const struct child *child)
{
    return child->ended && kill(-child->pid, 0) != 0 && errno == ESRCH;
}

void
child_kill(struct child *child)
{
    const struct timespec nap = {.tv_nsec = BURY_NAP_NS};
    uint64_t end = loop_now_ms() + BURY_MS;

    for (;;) {
        child_signal(child, SIGKILL);
        child_reap(child);
        if (child_group_gone(child))
            return;
        if (loop_now_ms() >= end) {
            complain("warning: processes of the group %ld cannot be killed",
                (long)child->pid);
            return;
        }
        (void)nanosleep(&nap, NULL);
    }
}

int
child_exit_status(const struct child *child)
{
    if (WIFSIGNALED(child->wait_status))
        return STATUS_SIGNAL + WTERMSIG(child->wait_status);
    return WEXITSTATUS(child->wait_status);
}

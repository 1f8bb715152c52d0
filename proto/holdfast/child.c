/*
 * A program in its own process group: start, signals, reaping, killing.
 *
 * The child waits at a gate until it has its group, its guard and the terminal.
 * So it never runs without a guard. It inherits the signal mask, the
 * dispositions and the descriptors of this process at its start. Every
 * descriptor that this process opened is close-on-exec.
 *
 * The kernel does not reuse the group's number while the program is not reaped,
 * or a process of the group lives. So a signal to the group cannot hit another
 * group before child_group_gone().
 *
 * A process that leaves the group stays in the family: a process that loses its
 * parent becomes a child of this process (PR_SET_CHILD_SUBREAPER). So the
 * family is dead when this process has no child but guards. Only children are
 * killed by number, since no other process gets their number before they are
 * reaped here.
 */
#define _GNU_SOURCE 1

#include "proto/holdfast/child.h"

#include "daemon/base/assert.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define CHILDREN    "/proc/thread-self/children"
#define BURY_MS     10000   /* for SIGKILL to take effect */
#define BURY_NAP_NS 1000000 /* between checks */
#define REAP_MAX    256     /* orphans in one turn */

/* Of one reading of the list, which may grow meanwhile. */
#define CHILDREN_MAX 1024
#define ENTRIES_MAX  32768 /* zombies included */

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

/* Kills a child that waits at the gate. */
static void
start_undo(struct child *child)
{
    require(child->pid > 1);
    (void)kill(child->pid, SIGKILL);
    (void)waitpid(child->pid, NULL, 0);
}

/* Warns if children cannot be listed: a process that leaves the group would
 * outlive the lock. */
static void
warn_of_strays(void)
{
    if (access(CHILDREN, R_OK) != 0)
        complain("warning: " CHILDREN " cannot be read (no /proc, or a kernel "
                 "without PROC_CHILDREN): processes that leave the program's "
                 "process group are not ended when the lock is lost");
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
    warn_of_strays();
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, gate) != 0) {
        complain("cannot create a socket: %s", strerror(errno));
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
            complain("cannot start the guard process: %s", strerror(errno));
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
    /* -1 is every process of the user, and 0 the caller's own group. */
    require(child->pid > 1);
    (void)kill(-child->pid, signal);
}

/* Handles a child that has ended or stopped. */
static void
child_note(struct child *child, pid_t pid, int status)
{
    if (pid == child->guard->pid) {
        /* PR_SET_PDEATHSIG still kills the program with this process. */
        complain("warning: the guard of the process group was killed");
        guard_gone(child->guard);
    } else if (pid == child->pid && WIFSTOPPED(status)) {
        /* SIGSTOP is not of job control. */
        child->stopped = WSTOPSIG(status) != SIGSTOP;
    } else if (pid == child->pid) {
        child->ended = true;
        child->wait_status = status;
    }
}

/* False: child `pid` (-1: any) has neither ended nor stopped. */
static bool
reap_one(struct child *child, pid_t pid)
{
    int status;

    pid = waitpid(pid, &status, WNOHANG | WUNTRACED);
    if (pid <= 0)
        return false;
    child_note(child, pid, status);
    return true;
}

void
child_reap(struct child *child)
{
    size_t reaped = 0;

    /* These two first: orphans may end faster than they are reaped. */
    if (!child->ended)
        (void)reap_one(child, child->pid);
    if (child->guard->pid != 0)
        (void)reap_one(child, child->guard->pid);
    while (reaped < REAP_MAX && reap_one(child, -1))
        reaped++;
    child->unreaped = reaped == REAP_MAX;
}

/*
 * Sends `signal` (0: none) to each living child but the guard, and lists them.
 * Returns their number. /proc may show the numbers of an outer PID namespace,
 * so waitid() checks each.
 */
static size_t
children_list(const struct child *child, int signal, pid_t living[CHILDREN_MAX])
{
    FILE *file = fopen(CHILDREN, "re");
    size_t count = 0;
    long pid;

    if (file == NULL) /* only the group is known */
        return 0;
    for (size_t i = 0; i < ENTRIES_MAX && count < CHILDREN_MAX &&
                       fscanf(file, "%ld", &pid) == 1;
         i++) {
        siginfo_t info = {.si_pid = 0};

        if (pid == child->guard->pid ||
            waitid(P_PID, (id_t)pid, &info, WEXITED | WNOHANG | WNOWAIT) != 0 ||
            info.si_pid != 0)
            continue;
        (void)kill((pid_t)pid, signal);
        living[count++] = (pid_t)pid;
    }
    (void)fclose(file);
    return count;
}

/*
 * Kills each child that is not a guard. False: there was none. It stops them
 * first, since a process that forks and exits all the time could be gone before
 * guard_is() reads its name.
 */
static bool
children_kill(const struct child *child)
{
    pid_t pids[CHILDREN_MAX];
    size_t count = children_list(child, SIGSTOP, pids);
    bool found = false;

    for (size_t i = 0; i < count; i++) {
        bool guards = guard_is(pids[i]);

        (void)kill(pids[i], guards ? SIGCONT : SIGKILL);
        found |= !guards;
    }
    return found;
}

bool
child_group_gone(const struct child *child)
{
    return child->ended && kill(-child->pid, 0) != 0 && errno == ESRCH;
}

bool
child_family_gone(const struct child *child)
{
    pid_t pids[CHILDREN_MAX];

    if (!child_group_gone(child))
        return false;
    size_t count = children_list(child, 0, pids);
    for (size_t i = 0; i < count; i++)
        if (!guard_is(pids[i]))
            return false;
    return true;
}

void
child_kill(struct child *child)
{
    const struct timespec nap = {.tv_nsec = BURY_NAP_NS};
    uint64_t end = loop_now_ms() + BURY_MS;

    /* Many busy processes would leave little time to kill them. */
    (void)setpriority(PRIO_PROCESS, 0, -20);
    for (;;) {
        child_signal(child, SIGKILL);
        bool left = children_kill(child);
        child_reap(child);
        if (!left && child_group_gone(child))
            return;
        if (loop_now_ms() >= end) {
            complain("warning: processes of the program cannot be killed; "
                     "they may still run without the lock");
            return;
        }
        (void)nanosleep(&nap, NULL);
    }
}

int
child_exit_status(const struct child *child)
{
    require(child->ended);
    if (WIFSIGNALED(child->wait_status))
        return STATUS_SIGNAL + WTERMSIG(child->wait_status);
    return WEXITSTATUS(child->wait_status);
}

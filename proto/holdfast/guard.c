/*
 * The guard of a process group.
 *
 * When this process is killed (kill -9, out of memory), the broker sees the
 * connection end and gives the lock to the next one, at once. So the group must
 * end in the same moment. PR_SET_PDEATHSIG does that for the program itself but
 * not for what the program has started; so a second process sleeps in a read()
 * on a socket whose other end only this process has, and kills the group at its
 * end of file.
 *
 * The guard has a session and a group of its own, so that killing this process'
 * group does not kill it; a name of its own, so that killing this process by
 * name does not either; and no descriptor but that socket, above all not the
 * connection to the broker, which must end with this process.
 */
#define _GNU_SOURCE 1

#include "proto/holdfast/guard.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

static const char guard_name[] = "holdfast-guard";

/* Only `fd` stays, as 0. */
static void
descriptors_close(int fd)
{
    (void)dup2(fd, 0);
    if (close_range(1, ~0u, 0) == 0)
        return;
    long last = sysconf(_SC_OPEN_MAX);
    for (int i = 1; i < last; i++)
        (void)close(i);
}

/* What ps and pkill see; the memory of the arguments, in the guard's copy. */
static void
title_set(const struct settings *settings)
{
    char *first = settings->argv[0];
    char *last = settings->argv[settings->argc - 1];
    size_t room = (size_t)(last + strlen(last) - first);

    (void)prctl(PR_SET_NAME, guard_name);
    memset(first, 0, room);
    memcpy(first, guard_name,
        room < sizeof(guard_name) - 1 ? room : sizeof(guard_name) - 1);
}

static _Noreturn void
guard_main(const struct settings *settings, int fd, pid_t group)
{
    char byte;

    (void)setsid();
    title_set(settings);
    descriptors_close(fd);
    if (read(0, &byte, 1) != 1)
        (void)kill(-group, SIGKILL);
    _exit(0);
}

bool
guard_start(struct guard *guard, const struct settings *settings, pid_t group)
{
    int ends[2];

    guard->pid = 0;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
        return false;
    pid_t pid = fork();
    if (pid < 0) {
        int error = errno;

        (void)close(ends[0]);
        (void)close(ends[1]);
        errno = error;
        return false;
    }
    if (pid == 0) {
        (void)close(ends[0]);
        guard_main(settings, ends[1], group);
    }
    (void)close(ends[1]);
    guard->pid = pid;
    guard->fd = ends[0];
    return true;
}

void
guard_dismiss(struct guard *guard)
{
    if (guard->pid == 0)
        return;
    (void)send(guard->fd, "", 1, MSG_NOSIGNAL);
    (void)close(guard->fd);
    guard->pid = 0;
}

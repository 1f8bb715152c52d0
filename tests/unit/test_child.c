/*
 * Tests of proto/holdfast/child.c: processes that end in great number keep
 * nobody from looking elsewhere, and a family dies outside its group too.
 */
#define _GNU_SOURCE 1

#include "proto/holdfast/child.h"

#include <check.h>
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

Suite *child_suite(void);

#define ORPHANS 600 /* more than two turns reap */

static struct guard guard;

/* That of the command, which is not linked here. */
void
complain(const char *format, ...)
{
    (void)format;
}

static pid_t
fork_ended(int status)
{
    siginfo_t info;
    pid_t pid = fork();

    if (pid == 0)
        _exit(status);
    ck_assert_int_gt(pid, 0);
    ck_assert_int_eq(waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT), 0);
    return pid;
}

/* The program's end is told at once, though it is the last of many. */
START_TEST(test_reaping_is_bounded)
{
    struct child child = {.guard = &guard};
    size_t turns = 1;

    for (size_t i = 0; i < ORPHANS; i++)
        (void)fork_ended(0);
    child.pid = fork_ended(7);
    child_reap(&child);
    ck_assert(child.ended);
    ck_assert_int_eq(child_exit_status(&child), 7);
    ck_assert(child.unreaped);
    for (; child.unreaped; turns++)
        child_reap(&child);
    ck_assert_uint_ge(turns, 3);
    ck_assert_int_eq(waitpid(-1, NULL, WNOHANG), -1);
    ck_assert_int_eq(errno, ECHILD);
}

END_TEST

/* In the program: one process leaves the group, and its child that again. */
static _Noreturn void
family_main(int ready)
{
    (void)setpgid(0, 0);
    (void)signal(SIGTERM, SIG_IGN);
    if (fork() == 0) {
        (void)setsid();
        if (fork() == 0) {
            (void)setsid();
            (void)!write(ready, "", 1);
        }
    }
    for (;;)
        (void)pause();
}

START_TEST(test_family_dies_outside_the_group)
{
    struct child child = {.guard = &guard};
    int ready[2];
    char byte;

    (void)prctl(PR_SET_CHILD_SUBREAPER, 1);
    ck_assert_int_eq(pipe(ready), 0);
    child.pid = fork();
    if (child.pid == 0)
        family_main(ready[1]);
    (void)close(ready[1]);
    ck_assert_int_eq(read(ready[0], &byte, 1), 1);
    ck_assert(!child_family_gone(&child));
    child_kill(&child);
    ck_assert(child_family_gone(&child));
    ck_assert_int_eq(waitpid(-1, NULL, WNOHANG), -1);
    /* The end of all who had the other end of the pipe. */
    ck_assert_int_eq(read(ready[0], &byte, 1), 0);
    (void)close(ready[0]);
}

END_TEST

/* Guards of runs within this one give back what these held. */
START_TEST(test_guards_are_spared)
{
    struct child child = {.guard = &guard};
    int ends[2];
    int status;
    char byte;

    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    pid_t within = fork();
    if (within == 0) {
        (void)prctl(PR_SET_NAME, "holdfast-guard");
        (void)!write(ends[1], "", 1);
        (void)close(ends[0]);
        _exit(read(ends[1], &byte, 1) == 0 ? 3 : 1);
    }
    (void)close(ends[1]);
    ck_assert_int_eq(read(ends[0], &byte, 1), 1);
    ck_assert(guard_is(within));
    ck_assert(!guard_is(getpid()));
    child.pid = fork_ended(0);
    child_kill(&child);
    ck_assert(child_family_gone(&child));
    (void)close(ends[0]);
    ck_assert_int_eq(waitpid(within, &status, 0), within);
    ck_assert(WIFEXITED(status));
    ck_assert_int_eq(WEXITSTATUS(status), 3);
}

END_TEST

Suite *
child_suite(void)
{
    Suite *suite = suite_create("child");
    TCase *tcase = tcase_create("core");

    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, test_reaping_is_bounded);
    tcase_add_test(tcase, test_family_dies_outside_the_group);
    tcase_add_test(tcase, test_guards_are_spared);
    suite_add_tcase(suite, tcase);
    return suite;
}

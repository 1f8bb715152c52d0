/*
 * The guard of a process group, and of a kept session.
 *
 * When this process is killed (kill -9, out of memory), the broker sees the
 * connection end. It grants the lock to the next waiter at once, or after it
 * has kept the session. So the group must end at the same moment.
 * PR_SET_PDEATHSIG kills the program, but not its children. So the guard sleeps
 * in a recv() on a socket whose other end only this process has. At the end of
 * file it kills the group.
 *
 * A kept session would hold the lock, or its place in the queue, for nobody. So
 * the guard ends it, once the group is dead. It resumes the session at any
 * broker, in a generation above all of this process. There it claims the holds,
 * or sends the LOCK again, since a broker ends only the holds and waits that it
 * knows. Then, by the state of the will:
 *
 *   WILL_WAITING, WILL_OVER   QUIT: the locks are released.
 *   WILL_HELD                 The connection ends without QUIT, as after a
 *                             crash. So a lock-delay applies.
 *
 * The broker of this process may read its last request late, and then put the
 * session into a queue again. So the guard afterwards resumes the session at
 * each address: a broker then reads no earlier connection of the session.
 *
 * This process sends its will before the fact: WILL_WAITING before the LOCK,
 * WILL_HELD before the program runs. A will is one packet, so it arrives whole
 * or not at all.
 *
 * The guard has its own session and process group, so a kill of this process'
 * group does not reach it. It has its own name, so killall does not reach it
 * either. It has no descriptor but the socket, since the connection to the
 * broker must end with this process.
 */
#define _GNU_SOURCE 1

#include "proto/holdfast/guard.h"

#include "daemon/base/assert.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define ANSWER_MS    8000 /* longer than a broker waits for Redis by default */
#define RETRY_MIN_MS 100
#define RETRY_MAX_MS 900

/* Above every generation that this process reached. */
#define GENERATION_FIRST (UINT32_MAX / 2)

static const char guard_name[] = "holdfast-guard";

/* Closes all descriptors but `fd`, which becomes 0. */
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

/* Sets the name for ps and pkill. It overwrites the arguments, in the guard's
 * copy of them. */
static void
title_set(const struct settings *settings)
{
    char *first = settings->argv[0];
    char *last = settings->argv[settings->argc - 1];
    size_t room = (size_t)(last + strlen(last) - first);

    require(last >= first); /* the arguments lie behind one another */
    (void)prctl(PR_SET_NAME, guard_name);
    memset(first, 0, room);
    memcpy(first, guard_name,
        room < sizeof(guard_name) - 1 ? room : sizeof(guard_name) - 1);
}

static void
nap(uint64_t ms)
{
    const struct timespec time = {.tv_nsec = (long)ms * 1000000};

    (void)nanosleep(&time, NULL);
}

/* The result of a request to one broker. */
enum step {
    STEP_DONE,
    STEP_OVER,  /* the session has ended */
    STEP_AGAIN, /* try another broker, or this one later */
};

/* Waits for the answer. An ERR counts as done, unless a retry may help. */
static enum step
answer_wait(struct holdfast *h, enum holdfast_status sent, uint64_t request,
    struct holdfast_event *event)
{
    static const char *const later[] = {"DRAINING", "UNAVAILABLE", "INDOUBT"};

    if (sent == HOLDFAST_SUCCESS)
        sent = holdfast_wait(h, request, ANSWER_MS, event);
    if (sent == HOLDFAST_SUCCESS)
        return STEP_DONE;
    if (sent != HOLDFAST_REFUSED)
        return STEP_AGAIN;
    for (size_t i = 0; i < COUNT(later); i++)
        if (strcmp(event->word, later[i]) == 0)
            return STEP_AGAIN;
    return STEP_DONE;
}

/* Resumes the session, which then ends with this connection. */
static enum step
session_resume(struct holdfast *h, const struct will *will, uint32_t generation)
{
    char line[sizeof(will->session) + 64];
    enum holdfast_status sent;
    struct holdfast_event event;
    uint64_t resume = 0;
    uint64_t keep = 0;
    uint64_t ignored;

    (void)snprintf(line, sizeof(line), "HELLO resume=%s gen=%" PRIu32,
        will->session, generation);
    sent = holdfast_submit(h, line, &resume);
    if (sent == HOLDFAST_SUCCESS)
        sent = holdfast_submit(h, "HELLO keep=0", &keep);
    enum step step = answer_wait(h, sent, resume, &event);
    if (step != STEP_DONE)
        return step;
    if (event.kind != HOLDFAST_OK ||
        !holdfast_event_number(&event, "gen", &ignored))
        return STEP_OVER;
    return answer_wait(h, sent, keep, &event);
}

/* Claims the holds. */
static enum step
locks_claim(struct holdfast *h, const struct acquired *acquired)
{
    char line[3 * (HOLDFAST_NAME_MAX + HOLDFAST_OWNER_MAX) + 80];
    char name[KEY_WORD_BYTES];
    char owner[3 * HOLDFAST_OWNER_MAX + 1];
    enum step step = STEP_DONE;
    struct holdfast_event event;
    uint64_t request = 0;

    for (size_t i = 0; i < acquired->count && step == STEP_DONE; i++) {
        const struct holdfast_hold *hold = &acquired->hold[i];

        (void)holdfast_encode(
            hold->name, strlen(hold->name), name, sizeof(name));
        (void)holdfast_encode(
            hold->owner, strlen(hold->owner), owner, sizeof(owner));
        (void)snprintf(line, sizeof(line), "CLAIM %s fence=%" PRIu64 "%s%s",
            name, hold->fence, hold->owner[0] != '\0' ? " owner=" : "",
            hold->owner[0] != '\0' ? owner : "");
        enum holdfast_status sent = holdfast_submit(h, line, &request);
        step = answer_wait(h, sent, request, &event);
    }
    return step;
}

/* Sends the LOCK again. The QUIT that follows releases what it grants. */
static enum holdfast_status
locks_ask(struct holdfast *h, const struct will *will, uint64_t *request)
{
    const struct acquired *acquired = &will->acquired;
    struct holdfast_lock_options options = HOLDFAST_LOCK_DEFAULTS;
    const char *names[HOLDFAST_NAMES_MAX];

    for (size_t i = 0; i < acquired->count; i++)
        names[i] = acquired->hold[i].name;
    if (acquired->hold[0].owner[0] != '\0')
        options.owner = acquired->hold[0].owner;
    options.shared = will->shared;
    options.tree = will->tree;
    options.limit = will->limit;
    options.permits = will->permits;
    return holdfast_submit_lock_all(
        h, names, acquired->count, &options, request);
}

/* Sends QUIT, which releases all locks and places. */
static enum step
session_quit(struct holdfast *h, const struct will *will)
{
    uint64_t end = loop_now_ms() + ANSWER_MS;
    enum holdfast_status sent = HOLDFAST_SUCCESS;
    enum step step = STEP_DONE;
    struct holdfast_event event;
    uint64_t asked = 0;
    uint64_t quit = 0;

    bool asks = will->state == WILL_WAITING && will->acquired.count > 0;
    if (asks)
        sent = locks_ask(h, will, &asked);
    if (sent == HOLDFAST_SUCCESS)
        sent = holdfast_submit(h, "QUIT", &quit);
    if (asks)
        step = answer_wait(h, sent, asked, &event);
    if (step == STEP_DONE)
        step = answer_wait(h, sent, quit, &event);
    /* The broker closes after the releases. */
    for (uint64_t now = loop_now_ms();
         step == STEP_DONE && holdfast_fd(h) >= 0 && now < end;
         now = loop_now_ms())
        holdfast_poll(h, (int)(end - now));
    return step;
}

/* Resumes the session and ends it. False: try again. */
static bool
session_end(const struct guard *guard, const char *address, uint32_t generation)
{
    struct holdfast_options options = {.keep_ms = 0};
    const struct will *will = &guard->will;
    struct holdfast *h;

    if (!connect_options(guard->settings, &options))
        return false;
    options.address = address; /* the title has overwritten the arguments */
    if (holdfast_create_with(&options, &h) != HOLDFAST_SUCCESS)
        return false;
    enum step step = holdfast_connect_wait(h, ANSWER_MS) == HOLDFAST_SUCCESS
                         ? session_resume(h, will, generation)
                         : STEP_AGAIN;
    if (step == STEP_DONE && will->state != WILL_WAITING)
        step = locks_claim(h, &will->acquired);
    if (step == STEP_DONE && will->state != WILL_HELD)
        step = session_quit(h, will);
    holdfast_destroy(&h);
    return step != STEP_AGAIN;
}

/* This process is dead: does the tasks of its will. */
static void
will_execute(struct guard *guard, char *address)
{
    struct will *will = &guard->will;
    uint64_t end = loop_now_ms() + will->keep_ms;
    uint64_t pause = RETRY_MIN_MS;
    uint32_t generation = GENERATION_FIRST;
    const char *one;

    if (will->group != 0 && !group_bury(will->group))
        return;
    if (will->session[0] == '\0' || address == NULL)
        return;
    while (!session_end(guard, address, generation++) && loop_now_ms() < end) {
        nap(pause);
        pause = pause < RETRY_MAX_MS / 2 ? 2 * pause : RETRY_MAX_MS;
    }
    will->acquired.count = 0;
    while ((one = strsep(&address, ",")) != NULL)
        (void)session_end(guard, one, generation++);
}

/* Returns when the other process is dead, with its last will. */
static void
will_await(struct will *will)
{
    struct will told;
    ssize_t got;

    for (;;) {
        got = recv(0, &told, sizeof(told), 0);
        if (got == (ssize_t)sizeof(told))
            *will = told;
        else if (got == 1)
            _exit(0);
        else if (got >= 0 || errno != EINTR)
            return;
    }
}

static _Noreturn void
guard_main(struct guard *guard, int fd)
{
    /* title_set() overwrites the arguments. */
    char *address = strdup(connect_address(guard->settings));

    guard->will = (struct will){.group = 0};
    (void)setsid();
    title_set(guard->settings);
    descriptors_close(fd);
    will_await(&guard->will);
    will_execute(guard, address);
    _exit(0);
}

static bool
guard_start(struct guard *guard)
{
    int ends[2];

    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0)
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
        guard_main(guard, ends[1]);
    }
    (void)close(ends[1]);
    guard->pid = pid;
    guard->fd = ends[0];
    return true;
}

static bool
guard_send(const struct guard *guard, const void *data, size_t len)
{
    require(guard->pid > 0);
    return send(guard->fd, data, len, MSG_NOSIGNAL | MSG_DONTWAIT) ==
           (ssize_t)len;
}

bool
guard_tell(struct guard *guard)
{
    const struct will *will = &guard->will;

    if (guard->pid != 0) {
        if (guard_send(guard, will, sizeof(*will)))
            return true;
        if (errno != EPIPE)
            return false;
        guard_gone(guard); /* it was killed */
    }
    return guard_start(guard) && guard_send(guard, will, sizeof(*will));
}

bool
guard_is(pid_t pid)
{
    char path[sizeof("/proc//comm") + 3 * sizeof(pid)];
    char name[sizeof(guard_name) + 1] = "";

    (void)snprintf(path, sizeof(path), "/proc/%ld/comm", (long)pid);
    FILE *file = fopen(path, "re");
    if (file == NULL)
        return false;
    bool read = fgets(name, sizeof(name), file) != NULL;
    (void)fclose(file);
    return read && strncmp(name, guard_name, strlen(guard_name)) == 0 &&
           name[strlen(guard_name)] == '\n';
}

void
guard_gone(struct guard *guard)
{
    (void)close(guard->fd);
    guard->pid = 0;
}

void
guard_dismiss(struct guard *guard)
{
    if (guard->pid == 0)
        return;
    (void)guard_send(guard, "", 1);
    guard_gone(guard);
}

void
guard_leave(struct guard *guard)
{
    if (guard->pid != 0)
        guard_gone(guard);
}

/*
 * Processes of the audit hook. posix_spawn() starts them: its cost does not
 * grow with our memory. They end by themselves or by a timer. SIGCHLD tells of
 * the end.
 */
#include "daemon/io/hook.h"

#include "daemon/base/assert.h"
#include "daemon/base/list.h"
#include "daemon/base/log.h"

#include <errno.h>
#include <event2/event.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define AT_ONCE    4
#define QUEUED_MAX 128
#define VARIABLES  16
/* The end waits for killed processes, a second at most. */
#define END_STEPS   500
#define END_STEP_MS 2
#define PATH_STRING                                           \
    "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:" \
    "/sbin:/bin"

/* Each goes on to the next one, and any of them to CHILD_NONE. */
enum child_state {
    CHILD_NONE,
    CHILD_RUNS,
    CHILD_KILLED, /* it took too long */
};

/* A process. */
struct child {
    enum child_state state;
    pid_t pid;
    struct event *timer; /* owned */
};

/* A run that waits for its turn. */
struct turn {
    struct list link;
    size_t len;
    char environment[];
};

struct hooks {
    struct hook_settings settings;
    struct counters *counters; /* ref */
    struct event *ends;        /* owned; SIGCHLD */
    struct child children[AT_ONCE];
    struct list turns;
    uint32_t turn_count;
};

/* It may have left its group, which only has its own processes. */
static void
child_kill(const struct child *child)
{
    (void)kill(-child->pid, SIGKILL);
    (void)kill(child->pid, SIGKILL);
}

static void
on_late(evutil_socket_t fd, short what, void *arg)
{
    struct child *child = arg;

    (void)fd;
    (void)what;
    require(child->state == CHILD_RUNS);
    child->state = CHILD_KILLED;
    child_kill(child);
}

/* Sets the descriptors and signals of the process. */
static bool
spawn_prepare(posix_spawn_file_actions_t *files, posix_spawnattr_t *attributes)
{
    sigset_t none;
    sigset_t ours;

    sigemptyset(&none);
    sigemptyset(&ours);
    sigaddset(&ours, SIGPIPE);
    sigaddset(&ours, SIGXFSZ);
    sigaddset(&ours, SIGHUP);
    sigaddset(&ours, SIGINT);
    sigaddset(&ours, SIGTERM);
    sigaddset(&ours, SIGCHLD);
    for (int fd = 0; fd < 3; fd++)
        if (posix_spawn_file_actions_addopen(
                files, fd, "/dev/null", O_RDWR, 0) != 0)
            return false;
    return posix_spawn_file_actions_addclosefrom_np(files, 3) == 0 &&
           posix_spawnattr_setsigmask(attributes, &none) == 0 &&
           posix_spawnattr_setsigdefault(attributes, &ours) == 0 &&
           posix_spawnattr_setpgroup(attributes, 0) == 0 &&
           posix_spawnattr_setflags(attributes, POSIX_SPAWN_SETSIGMASK |
                                                    POSIX_SPAWN_SETSIGDEF |
                                                    POSIX_SPAWN_SETPGROUP) == 0;
}

/* Starts a process. Returns an errno, or 0. */
static int
spawn(const char *const argv[], char *const environment[], pid_t *pid)
{
    posix_spawn_file_actions_t files;
    posix_spawnattr_t attributes;
    int error = ENOMEM;

    if (posix_spawn_file_actions_init(&files) != 0)
        return error;
    if (posix_spawnattr_init(&attributes) == 0) {
        if (spawn_prepare(&files, &attributes))
            error = posix_spawn(pid, argv[0], &files, &attributes,
                (char *const *)(uintptr_t)argv, environment);
        posix_spawnattr_destroy(&attributes);
    }
    posix_spawn_file_actions_destroy(&files);
    return error;
}

static void
child_start(struct hooks *hooks, struct child *child, struct turn *turn)
{
    struct timeval timeout = {
        .tv_sec = (time_t)(hooks->settings.timeout_us / 1000000),
        .tv_usec = (suseconds_t)(hooks->settings.timeout_us % 1000000),
    };
    char path[] = PATH_STRING;
    char *environment[VARIABLES + 2] = {path};
    size_t n = 1;

    for (size_t at = 0; at < turn->len && n <= VARIABLES;
         at += strlen(turn->environment + at) + 1)
        environment[n++] = turn->environment + at;
    require(child->state == CHILD_NONE);
    int error = spawn(hooks->settings.argv, environment, &child->pid);
    if (error == 0) {
        child->state = CHILD_RUNS;
        (void)event_add(child->timer, &timeout);
        return;
    }
    count(hooks->counters, COUNTER_hooks_failed);
    log_write(LOG_ERROR, "hook_not_run",
        log_word("program", hooks->settings.argv[0]),
        log_quoted("why", text_from(strerror(error))));
}

/* Starts waiting runs, up to the limit. */
static void
hooks_start(struct hooks *hooks)
{
    for (int i = 0; i < AT_ONCE; i++) {
        struct child *child = &hooks->children[i];
        while (child->state == CHILD_NONE && !list_empty(&hooks->turns)) {
            require(hooks->turn_count > 0);
            struct turn *turn =
                container_of(list_pop_front(&hooks->turns), struct turn, link);
            hooks->turn_count--;
            child_start(hooks, child, turn);
            free(turn);
        }
    }
}

static void
log_failure(pid_t pid, int status)
{
    if (WIFEXITED(status))
        log_write(LOG_WARN, "hook_failed", log_signed("pid", (int)pid),
            log_signed("status", WEXITSTATUS(status)));
    else
        log_write(LOG_WARN, "hook_failed", log_signed("pid", (int)pid),
            log_signed("signal", WTERMSIG(status)));
}

static void
child_ended(struct hooks *hooks, struct child *child, int status)
{
    event_del(child->timer);
    if (child->state == CHILD_KILLED) {
        count(hooks->counters, COUNTER_hooks_late);
        log_write(LOG_WARN, "hook_killed", log_signed("pid", (int)child->pid),
            log_quoted("why", TEXT("timed out")));
    } else if (status == 0) {
        count(hooks->counters, COUNTER_hooks_done);
    } else {
        count(hooks->counters, COUNTER_hooks_failed);
        log_failure(child->pid, status);
    }
    child->state = CHILD_NONE;
}

static void
on_end(evutil_socket_t signal, short what, void *arg)
{
    struct hooks *hooks = arg;

    (void)signal;
    (void)what;
    pid_t pid;
    int status;
    /* The first process of a container has the orphans of others, too. */
    while ((pid = waitpid(-1, &status, WNOHANG)) > 0)
        for (int i = 0; i < AT_ONCE; i++)
            if (hooks->children[i].state != CHILD_NONE &&
                hooks->children[i].pid == pid)
                child_ended(hooks, &hooks->children[i], status);
    hooks_start(hooks);
}

/* A process that cannot be killed, or hangs in the kernel, is left alone. */
static void
children_end(struct hooks *hooks)
{
    const struct timespec pause = {.tv_nsec = END_STEP_MS * 1000000};
    int left = END_STEPS;

    for (int i = 0; i < AT_ONCE; i++)
        if (hooks->children[i].state != CHILD_NONE)
            child_kill(&hooks->children[i]);
    for (int i = 0; i < AT_ONCE; i++)
        while (hooks->children[i].state != CHILD_NONE &&
               waitpid(hooks->children[i].pid, NULL, WNOHANG) == 0 &&
               left-- > 0)
            (void)nanosleep(&pause, NULL);
}

struct hooks *
hooks_create(struct event_base *base, const struct hook_settings *settings,
    struct counters *counters)
{
    struct hooks *hooks = calloc(1, sizeof(*hooks));

    if (hooks == NULL)
        return NULL;
    hooks->settings = *settings;
    hooks->counters = counters;
    list_init(&hooks->turns);
    hooks->ends = evsignal_new(base, SIGCHLD, on_end, hooks);
    bool good = hooks->ends != NULL && evsignal_add(hooks->ends, NULL) == 0;
    for (int i = 0; i < AT_ONCE; i++) {
        struct child *child = &hooks->children[i];
        child->timer = evtimer_new(base, on_late, child);
        good = good && child->timer != NULL;
    }
    if (!good)
        hooks_destroy(&hooks);
    return hooks;
}

void
hooks_destroy(struct hooks **hooks)
{
    struct list *at;

    if (*hooks == NULL)
        return;
    children_end(*hooks);
    for (int i = 0; i < AT_ONCE; i++) {
        struct child *child = &(*hooks)->children[i];
        if (child->timer != NULL)
            event_free(child->timer);
    }
    while ((at = list_pop_front(&(*hooks)->turns)) != NULL)
        free(container_of(at, struct turn, link));
    if ((*hooks)->ends != NULL)
        event_free((*hooks)->ends);
    free(*hooks);
    *hooks = NULL;
}

void
hooks_run(struct hooks *hooks, const char *environment, size_t len)
{
    struct turn *turn = NULL;

    if (hooks->turn_count < QUEUED_MAX)
        turn = malloc(sizeof(*turn) + len);
    if (turn == NULL) {
        count(hooks->counters, COUNTER_hooks_dropped);
        return;
    }
    list_init(&turn->link);
    turn->len = len;
    memcpy(turn->environment, environment, len);
    list_push_back(&hooks->turns, &turn->link);
    hooks->turn_count++;
    hooks_start(hooks);
}

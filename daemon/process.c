/*
 * What the system says to the daemon and the daemon to the system: signals as
 * events of the loop, log lines to stderr or the journal, and the service
 * manager's READY, STOPPING and WATCHDOG.
 *
 * No handler does anything here: libevent posts the signal, and it is met in a
 * turn of the loop like all else. The second SIGTERM or SIGINT stops at once.
 */
#include "daemon/process.h"

#include "daemon/base/assert.h"
#include "daemon/io/loop.h"

#include <event2/event.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#ifdef HAVE_SYSTEMD
#include <systemd/sd-daemon.h>
#endif

#define SIGNALS 4

struct process {
    struct loop *loop; /* ref */
    struct event *signals[SIGNALS];
    struct event *watchdog; /* owned; NULL: nobody watches */
};

static bool journal;

static const char *
log_prefix(char *out, size_t out_bytes, enum log_level level)
{
    static const int priority[] = {3, 4, 6, 7}; /* syslog's */
    struct timespec now;
    struct tm tm;

    if (journal) {
        snprintf(out, out_bytes, "<%d>", priority[level]);
        return out;
    }
    clock_gettime(CLOCK_REALTIME, &now);
    gmtime_r(&now.tv_sec, &tm);
    size_t len = strftime(out, out_bytes, "time=%Y-%m-%dT%H:%M:%S", &tm);
    snprintf(out + len, out_bytes - len, ".%03ldZ ", now.tv_nsec / 1000000);
    return out;
}

static void
log_to_stderr(enum log_level level, const char *line, size_t len)
{
    char prefix[64];
    const char *start = log_prefix(prefix, sizeof(prefix), level);
    const struct iovec parts[] = {
        {(void *)(uintptr_t)start, strlen(start)},
        {(void *)(uintptr_t)line, len},
        {(void *)(uintptr_t) "\n", 1},
    };
    ssize_t written = writev(STDERR_FILENO, parts, 3);

    (void)written; /* a log that cannot be written is nobody's to mend */
}

void
process_log_init(enum log_level threshold)
{
    journal = getenv("JOURNAL_STREAM") != NULL;
    log_init(log_to_stderr, threshold);
}

static void
service_say(const char *state)
{
#ifdef HAVE_SYSTEMD
    sd_notify(0, state);
#else
    (void)state;
#endif
}

static void
on_stop(evutil_socket_t signal, short what, void *arg)
{
    struct process *process = arg;

    (void)what;
    log_write(LOG_INFO, "stopping", "signal=%d", (int)signal);
    service_say("STOPPING=1");
    loop_stop(process->loop);
}

static void
on_ignored(evutil_socket_t signal, short what, void *arg)
{
    (void)what;
    (void)arg;
    if (signal == SIGHUP)
        log_write(LOG_INFO, "reload_ignored",
            "advice=\"restart to read the configuration again\"");
}

static void
on_watchdog(evutil_socket_t fd, short what, void *arg)
{
    (void)fd;
    (void)what;
    (void)arg;
    service_say("WATCHDOG=1");
}

/* Half of what the service manager allows, as it advises; false: no memory. */
static bool
watchdog_start(struct process *process)
{
#ifdef HAVE_SYSTEMD
    uint64_t allowed_us = 0;

    if (sd_watchdog_enabled(0, &allowed_us) <= 0 || allowed_us == 0)
        return true;
    struct timeval period = {
        .tv_sec = (time_t)(allowed_us / 2 / 1000000),
        .tv_usec = (suseconds_t)(allowed_us / 2 % 1000000),
    };
    process->watchdog = event_new(
        loop_base(process->loop), -1, EV_PERSIST, on_watchdog, process);
    return process->watchdog != NULL &&
           event_add(process->watchdog, &period) == 0;
#else
    (void)process;
    (void)on_watchdog;
    return true;
#endif
}

struct process *
process_create(struct loop *loop)
{
    static const int numbers[SIGNALS] = {SIGTERM, SIGINT, SIGHUP, SIGPIPE};
    struct process *process = calloc(1, sizeof(*process));

    if (process == NULL)
        return NULL;
    process->loop = loop;
    for (int i = 0; i < SIGNALS; i++) {
        bool stops = numbers[i] == SIGTERM || numbers[i] == SIGINT;
        process->signals[i] = evsignal_new(
            loop_base(loop), numbers[i], stops ? on_stop : on_ignored, process);
        if (process->signals[i] == NULL ||
            evsignal_add(process->signals[i], NULL) != 0) {
            process_destroy(&process);
            return NULL;
        }
    }
    if (!watchdog_start(process)) {
        process_destroy(&process);
        return NULL;
    }
    service_say("READY=1");
    return process;
}

void
process_destroy(struct process **process)
{
    if (*process == NULL)
        return;
    for (int i = 0; i < SIGNALS; i++)
        if ((*process)->signals[i] != NULL)
            event_free((*process)->signals[i]);
    if ((*process)->watchdog != NULL)
        event_free((*process)->watchdog);
    free(*process);
    *process = NULL;
}

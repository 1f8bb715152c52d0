/*
 * The log's sink. A line for the journal begins with its priority, as sd-
 * daemon(3) says; the journal knows the time. Other lines have a time.
 *
 * One process writes one log, so the state is the file's own.
 */
#include "daemon/process.h"

#include "daemon/base/assert.h"
#include "daemon/base/log_limit.h"
#include "daemon/io/clock.h"
#include "daemon/io/loop.h"

#include <event2/event.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

/* Time from the first suppressed line to the report. */
#define TELL_S 5

static bool journal;
static enum log_level floor_level;
static enum log_format form;
static struct log_limit limit;
static uint32_t limit_rate;
static struct counters before;              /* of lines before the loop */
static struct counters *counters = &before; /* ref */
static struct event *tell_timer;            /* owned; NULL: there is no loop */

/* Whether stderr is the stream of JOURNAL_STREAM, of systemd.exec(5). */
static bool
stderr_is_journal(void)
{
    const char *stream = getenv("JOURNAL_STREAM");
    char own[64];
    struct stat stat;

    if (stream == NULL || fstat(STDERR_FILENO, &stat) != 0)
        return false;
    snprintf(own, sizeof(own), "%ju:%ju", (uintmax_t)stat.st_dev,
        (uintmax_t)stat.st_ino);
    return strcmp(stream, own) == 0;
}

/* "2026-01-31T12:34:56.789Z" */
static size_t
time_now(char *out, size_t out_bytes)
{
    struct timespec now;
    struct tm tm;

    clock_gettime(CLOCK_REALTIME, &now);
    gmtime_r(&now.tv_sec, &tm);
    size_t len = strftime(out, out_bytes, "%Y-%m-%dT%H:%M:%S", &tm);
    return len + (size_t)snprintf(out + len, out_bytes - len, ".%03ldZ",
                     now.tv_nsec / 1000000);
}

/* Makes the begin of the line. It replaces an object's first byte. */
static void
prefix_make(char *out, size_t out_bytes, enum log_level level)
{
    static const int priority[] = {3, 4, 6, 7}; /* syslog's */
    char now[40];

    if (journal) {
        snprintf(out, out_bytes, "<%d>%s", priority[level],
            form == LOG_JSON ? "{" : "");
        return;
    }
    (void)time_now(now, sizeof(now));
    snprintf(out, out_bytes,
        form == LOG_JSON ? "{\"time\":\"%s\"," : "time=%s ", now);
}

static void
count_line(enum log_level level)
{
    static const enum counter of[] = {
        [LOG_ERROR] = COUNTER_log_error,
        [LOG_WARN] = COUNTER_log_warn,
        [LOG_INFO] = COUNTER_log_info,
        [LOG_DEBUG] = COUNTER_log_debug,
    };

    count(counters, of[level]);
}

/* The log must not block: leases need renewal. A writable pipe takes PIPE_BUF
 * bytes, and no line has more. */
static bool
stderr_is_full(void)
{
    struct pollfd end = {.fd = STDERR_FILENO, .events = POLLOUT};

    return poll(&end, 1, 0) == 0;
}

static void
sink_write(enum log_level level, const char *line, size_t len)
{
    char prefix[64];
    size_t skipped = form == LOG_JSON ? 1 : 0;

    if (stderr_is_full()) {
        count(counters, COUNTER_log_lost);
        return;
    }
    prefix_make(prefix, sizeof(prefix), level);
    const struct iovec parts[] = {
        {prefix, strlen(prefix)},
        {(void *)(uintptr_t)(line + skipped), len - skipped},
        {(void *)(uintptr_t) "\n", 1},
    };
    size_t whole = parts[0].iov_len + parts[1].iov_len + parts[2].iov_len;
    ssize_t written = writev(STDERR_FILENO, parts, 3);

    /* A lost line is only counted. */
    if (written >= 0 && (size_t)written == whole)
        count_line(level);
    else
        count(counters, COUNTER_log_lost);
}

static bool
sink_gate(enum log_level level, const char *event)
{
    const struct timeval wait = {.tv_sec = TELL_S};

    if (log_limit_take(&limit, level, event, clock_boot_us()))
        return true;
    count(counters, COUNTER_log_suppressed);
    if (tell_timer != NULL && !event_pending(tell_timer, EV_TIMEOUT, NULL))
        (void)event_add(tell_timer, &wait); /* else with the next line */
    return false;
}

/* These lines are not suppressed: they are one an event. */
static void
sink_tell(void)
{
    struct log_held_back held_back;

    log_set_gate(NULL);
    while (log_limit_tell(&limit, &held_back))
        log_write(held_back.level, "log_suppressed",
            log_word("of", held_back.event),
            log_number("lines", held_back.lines));
    log_set_gate(sink_gate);
}

static void
on_tell(evutil_socket_t fd, short what, void *arg)
{
    (void)fd;
    (void)what;
    (void)arg;
    sink_tell();
}

void
sink_init(enum log_level threshold, enum log_format format, uint32_t rate)
{
    journal = stderr_is_journal();
    log_init(sink_write, threshold);
    sink_configure(threshold, format, rate);
}

void
sink_configure(enum log_level threshold, enum log_format format, uint32_t rate)
{
    bool same =
        threshold == floor_level && format == form && rate == limit_rate;

    /* Suppressed lines are reported in the form in which they were counted. A
     * reload without a change here is an event like others, and ends no count.
     */
    if (!same)
        sink_tell();
    floor_level = threshold;
    log_set_level(threshold);
    form = format;
    log_set_format(format);
    if (rate != limit_rate)
        log_limit_init(&limit, rate);
    limit_rate = rate;
}

bool
sink_attach(struct loop *loop)
{
    require(tell_timer == NULL);
    tell_timer = evtimer_new(loop_base(loop), on_tell, NULL);
    if (tell_timer == NULL)
        return false;
    counters = loop_counters(loop);
    for (enum counter i = 0; i < COUNTER_COUNT; i++)
        counters->value[i] += before.value[i];
    return true;
}

void
sink_detach(void)
{
    if (tell_timer == NULL)
        return;
    sink_tell();
    counters = &before;
    event_free(tell_timer);
    tell_timer = NULL;
}

/*
 * Messages between the system and the daemon: signals as events of the loop,
 * and READY, RELOADING, STOPPING and WATCHDOG to the service manager.
 *
 * No handler does anything: libevent posts the signal, and a turn of the loop
 * handles it. A second SIGTERM or SIGINT stops at once. A SIGHUP before the
 * loop begins waits for it. Signals after the loop are ignored: the rest is
 * short.
 */
#include "daemon/process.h"

#include "daemon/base/log.h"
#include "daemon/io/loop.h"

#include <event2/event.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#ifdef HAVE_SYSTEMD
#include <systemd/sd-daemon.h>
#endif

#define SIGNALS 3

struct process {
    struct loop *loop;      /* ref */
    process_reload *reload; /* on SIGHUP */
    process_look *look;     /* each second */
    void *arg;              /* ref; theirs */
    struct event *signals[SIGNALS];
    struct event *second;   /* owned */
    struct event *watchdog; /* owned; NULL: no watchdog */
};

static const int numbers[SIGNALS] = {SIGTERM, SIGINT, SIGHUP};

/*
 * Sends to NOTIFY_SOCKET, as sd_notify(3) does. That one would wait for a
 * service manager that reads nothing, and leases with it. Here a message
 * without room is dropped.
 */
static void
service_say(const char *state)
{
#ifdef HAVE_SYSTEMD
    const char *path = getenv("NOTIFY_SOCKET");
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    size_t len = path == NULL ? 0 : strlen(path);

    if (len < 2 || len > sizeof(address.sun_path) ||
        (path[0] != '/' && path[0] != '@'))
        return;
    memcpy(address.sun_path, path, len);
    if (path[0] == '@')
        address.sun_path[0] = '\0';
    socklen_t bytes = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + len);
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return;
    (void)sendto(fd, state, strlen(state), MSG_DONTWAIT | MSG_NOSIGNAL,
        (const struct sockaddr *)&address, bytes);
    close(fd);
#else
    (void)state;
#endif
}

/* Sends the first message, before any lock is held: it must arrive. */
static void
service_say_ready(void)
{
#ifdef HAVE_SYSTEMD
    sd_notify(0, "READY=1");
#endif
}

/* Sends the text for `systemctl status`. */
static void
say_health(void *arg, const char *text)
{
    char state[1024];

    (void)arg;
    (void)snprintf(state, sizeof(state), "STATUS=%s", text);
    service_say(state);
}

static void
on_stop(evutil_socket_t signal, short what, void *arg)
{
    struct process *process = arg;

    (void)what;
    log_write(LOG_INFO, "stopping", log_signed("signal", (int)signal));
    service_say("STOPPING=1");
    loop_stop(process->loop);
}

/* Says when the reload began: the service manager waits for a later READY. */
static void
service_say_reloading(void)
{
    struct timespec now;
    char state[64];

    clock_gettime(CLOCK_MONOTONIC, &now);
    snprintf(state, sizeof(state), "RELOADING=1\nMONOTONIC_USEC=%llu",
        (unsigned long long)now.tv_sec * 1000000 +
            (unsigned long long)now.tv_nsec / 1000);
    service_say(state);
}

static void
reload_now(struct process *process)
{
    service_say_reloading();
    process->reload(process->arg);
    service_say("READY=1");
}

static void
on_reload(evutil_socket_t signal, short what, void *arg)
{
    struct process *process = arg;

    (void)signal;
    (void)what;
    if (loop_stopping(process->loop)) {
        log_write(LOG_INFO, "reload_ignored", log_word("why", "stopping"));
        return;
    }
    reload_now(process);
}

static void
on_second(evutil_socket_t fd, short what, void *arg)
{
    struct process *process = arg;

    (void)fd;
    (void)what;
    if (!loop_stopping(process->loop) && process->look(process->arg))
        reload_now(process);
}

static void
on_watchdog(evutil_socket_t fd, short what, void *arg)
{
    (void)fd;
    (void)what;
    (void)arg;
    service_say("WATCHDOG=1");
}

/* Starts the watchdog at half its time, as advised. False: no memory. */
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

static void
reloads_block(int how)
{
    sigset_t set;

    sigemptyset(&set);
    sigaddset(&set, SIGHUP);
    (void)sigprocmask(how, &set, NULL);
}

/* For good: the default of each would end the process, with another status. */
static void
signals_block(void)
{
    sigset_t set;

    sigemptyset(&set);
    for (int i = 0; i < SIGNALS; i++)
        sigaddset(&set, numbers[i]);
    (void)sigprocmask(SIG_BLOCK, &set, NULL);
}

void
process_begin(void)
{
    reloads_block(SIG_BLOCK);
}

struct process *
process_create(
    struct loop *loop, process_reload *reload, process_look *look, void *arg)
{
    static const struct timeval second = {.tv_sec = 1};
    static const event_callback_fn handlers[SIGNALS] = {
        on_stop, on_stop, on_reload};
    struct process *process = calloc(1, sizeof(*process));

    if (process == NULL)
        return NULL;
    process->loop = loop;
    process->reload = reload;
    process->look = look;
    process->arg = arg;
    for (int i = 0; i < SIGNALS; i++) {
        process->signals[i] =
            evsignal_new(loop_base(loop), numbers[i], handlers[i], process);
        if (process->signals[i] == NULL ||
            evsignal_add(process->signals[i], NULL) != 0) {
            process_destroy(&process);
            return NULL;
        }
    }
    process->second =
        event_new(loop_base(loop), -1, EV_PERSIST, on_second, process);
    if (process->second == NULL || event_add(process->second, &second) != 0 ||
        !watchdog_start(process)) {
        process_destroy(&process);
        return NULL;
    }
    service_say_ready();
    loop_tell_health(loop, say_health, process);
    reloads_block(SIG_UNBLOCK);
    return process;
}

void
process_destroy(struct process **process)
{
    if (*process == NULL)
        return;
    signals_block();
    loop_tell_health((*process)->loop, NULL, NULL);
    for (int i = 0; i < SIGNALS; i++)
        if ((*process)->signals[i] != NULL)
            event_free((*process)->signals[i]);
    if ((*process)->second != NULL)
        event_free((*process)->second);
    if ((*process)->watchdog != NULL)
        event_free((*process)->watchdog);
    free(*process);
    *process = NULL;
}

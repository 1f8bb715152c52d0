/*
 * Turns of the loop: events of sockets, then time, until neither core nor store
 * has more to do; then output. One timer wakes the loop for the next due time.
 *
 * The order within a turn matters. A reply leaves only after the step that made
 * it. A call to Redis gets its time before it is sent. Locks are unknown here.
 */
#include "daemon/io/loop.h"

#include "daemon/base/log.h"
#include "daemon/base/wheel.h"
#include "daemon/io/client.h"
#include "daemon/io/clock.h"
#include "daemon/io/http.h"
#include "daemon/io/listen.h"
#include "daemon/io/redis.h"

#include <event2/dns.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

/* With more operations under way, polling wastes time. */
#define POLL_OPS_MAX 4
/* Descriptors for all but clients. */
#define DESCRIPTORS_KEPT 200

/* Sets the timer to the next due time. `idle`: nothing is left to do now. */
static void
loop_set_timer(struct loop *loop, bool idle)
{
    uint64_t now_us = engine_now(&loop->engine);
    uint64_t next_us = engine_next_us(&loop->engine);

    if (!idle || !list_empty(&loop->late) ||
        !list_empty(&loop->handshakes_due) || next_us < now_us)
        next_us = now_us;
    if (next_us == loop->timer_us &&
        event_pending(&loop->timer, EV_TIMEOUT, NULL))
        return;
    loop->timer_us = next_us;
    if (next_us == WHEEL_NEVER) {
        event_del(&loop->timer);
        return;
    }
    uint64_t wait_us = next_us > now_us ? next_us - now_us : 0;
    struct timeval wait = {.tv_sec = (time_t)(wait_us / 1000000),
        .tv_usec = (suseconds_t)(wait_us % 1000000)};
    loop_arm(&loop->timer, &wait);
}

static void
loop_timer(evutil_socket_t fd, short what, void *arg)
{
    struct loop *loop = arg;

    (void)fd;
    (void)what;
    /* This begins a turn, which does the rest, also if the loop polls. */
    (void)engine_now(&loop->engine);
}

const struct health *
loop_health(const struct loop *loop)
{
    return store_health(loop->engine.store);
}

static void
loop_say_health(struct loop *loop)
{
    const struct health *health = loop_health(loop);
    const struct health_why why = health_why(health);
    char text[HEALTH_TEXT_MAX];
    char line[HEALTH_TEXT_MAX + 20];

    if (loop->told == NULL || loop->told_changes == health->changes)
        return;
    loop->told_changes = health->changes;
    snprintf(line, sizeof(line), "%s%s",
        health->ready ? "Ready" : "Not ready: ",
        health->ready ? "" : health_text(&why, true, text));
    loop->told(loop->told_arg, line);
}

static void
loop_turn(struct loop *loop)
{
    client_catch_up(loop);
    handshake_some(loop);
    if (engine_stopping(&loop->engine) && loop->listener_count > 0) {
        client_stop_listening(loop);
        handshake_stop(loop);
    }
    client_accept_tls(loop);
    bool idle = engine_move(&loop->engine, clock_real_us());
    redis_carry_out(loop);
    loop_say_health(loop);
    loop_set_timer(loop, idle);
    histogram_add(&loop->counters.loop_turn, &histogram_calls,
        clock_boot_us() - engine_now(&loop->engine));
    engine_turn_over(&loop->engine);
}

/* Whether a stop has come to its end. */
static bool
loop_over(struct loop *loop)
{
    if (loop->stop == STOP_AT_ONCE)
        return true;
    if (!engine_stopping(&loop->engine))
        return false;
    if (core_stopped(loop->engine.core) && list_empty(&loop->clients))
        return true;
    return engine_impatient(&loop->engine);
}

/*
 * Polls for the next event for a moment. True: an event came. A sleeping
 * process takes longer to wake than Redis needs for a call. So if little goes
 * on and the last wait was short, the next wait is spent awake. A longer wait
 * ends that until one is short again (as KVM does before it halts a guest).
 */
static bool
loop_poll(struct loop *loop, uint64_t from_us)
{
    struct core_totals totals;

    core_totals(loop->engine.core, &totals);
    if (!loop->poll_pays || totals.ops > POLL_OPS_MAX)
        return false;
    do {
        /* Without ONCE it would go on while any descriptor is ready. */
        if (event_base_loop(loop->base, EVLOOP_ONCE | EVLOOP_NONBLOCK) < 0)
            return false;
        if (loop->engine.now_us != 0 || loop->stop == STOP_AT_ONCE)
            return true;
    } while (clock_boot_us() < from_us + loop->settings.busy_poll_us);
    return false;
}

/* Waits for an event. False: libevent has failed. */
static bool
loop_wait(struct loop *loop)
{
    if (loop->settings.busy_poll_us == 0)
        return event_base_loop(loop->base, EVLOOP_ONCE) >= 0;
    uint64_t from_us = clock_boot_us();
    if (loop_poll(loop, from_us))
        return true;
    int status = event_base_loop(loop->base, EVLOOP_ONCE);
    loop->poll_pays =
        engine_now(&loop->engine) < from_us + loop->settings.busy_poll_us;
    return status >= 0;
}

int
loop_run(struct loop *loop)
{
    for (;;) {
        loop_turn(loop);
        /* This turn may end the stop: no event may come after it. */
        if (loop_over(loop))
            return 0;
        const char *why = store_refusal(loop->engine.store);
        if (why != NULL) {
            log_write(
                LOG_ERROR, "cannot_start", log_quoted("why", text_from(why)));
            return 78;
        }
        if (!loop_wait(loop))
            return 71;
    }
}

void
loop_stop(struct loop *loop)
{
    if (loop->stop != STOP_NONE) {
        loop->stop = STOP_AT_ONCE;
        return;
    }
    loop->stop = STOP_ASKED;
    engine_stop(&loop->engine);
}

/* Raises the soft limit of descriptors, and returns how many clients fit. */
static uint32_t
loop_clients_fit(uint32_t wanted)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) != 0)
        return wanted;
    if (limit.rlim_cur < limit.rlim_max) {
        limit.rlim_cur = limit.rlim_max;
        (void)setrlimit(RLIMIT_NOFILE, &limit);
        (void)getrlimit(RLIMIT_NOFILE, &limit);
    }
    uint64_t fit = limit.rlim_cur > DESCRIPTORS_KEPT + 16
                       ? limit.rlim_cur - DESCRIPTORS_KEPT
                       : 16;
    if (fit > 1000000)
        fit = 1000000;
    return wanted == 0 || wanted > fit ? (uint32_t)fit : wanted;
}

static bool
loop_take_memory(struct loop *loop)
{
    loop->by_session = calloc(
        core_sessions_room(&loop->settings.core), sizeof(struct client *));
    loop->read_buffer = malloc(2 * READ_BYTES + 8192);
    loop->redis_buffer = malloc(REDIS_READ);
    return loop->by_session != NULL && loop->read_buffer != NULL &&
           loop->redis_buffer != NULL &&
           engine_init(&loop->engine, &loop->settings.core,
               &loop->settings.store, &loop->counters, &client_sink, loop) &&
           redis_create(loop);
}

/* Logs messages of libevent, usually of name servers. */
static void
loop_log(int severity, const char *text)
{
    enum log_level level = severity >= EVENT_LOG_ERR   ? LOG_ERROR
                           : severity >= EVENT_LOG_MSG ? LOG_WARN
                                                       : LOG_DEBUG;

    log_write(level, "libevent", log_quoted("text", text_from(text)));
}

static bool
loop_take_base(struct loop *loop)
{
    event_set_log_callback(loop_log);
    struct event_config *config = event_config_new();

    if (config == NULL)
        return false;
    event_config_set_flag(config, EVENT_BASE_FLAG_NOLOCK);
    loop->base = event_base_new_with_config(config);
    event_config_free(config);
    if (loop->base == NULL)
        return false;
    evtimer_assign(&loop->timer, loop->base, loop_timer, loop);
    evtimer_assign(&loop->accept_timer, loop->base, client_accept_timer, loop);
    return true;
}

/* Listens for clients of one use, on the passed sockets, or else on all
 * addresses. */
static bool
loop_listen(struct loop *loop, const struct loop_settings *settings,
    enum socket_use use, char *error, size_t error_bytes)
{
    uint32_t before = loop->listener_count;

    for (uint32_t i = 0; i < settings->passed_count; i++)
        if (settings->passed[i].use == use &&
            !client_listen_passed(
                loop, &settings->passed[i], error, error_bytes))
            return false;
    if (loop->listener_count > before)
        return true;
    for (uint32_t i = 0; i < settings->listen_count; i++)
        if (settings->listen[i].tls == (use == SOCKET_TLS) &&
            !client_listen(loop, &settings->listen[i], error, error_bytes))
            return false;
    return true;
}

/* Takes the sockets passed for operators. False: `error` says which cannot be
 * used. */
static bool
http_passed(const struct loop_settings *settings, int *fds, uint32_t *count,
    char *error, size_t error_bytes)
{
    bool tcp;

    *count = 0;
    for (uint32_t i = 0; i < settings->passed_count; i++) {
        const struct loop_socket *passed = &settings->passed[i];
        if (passed->use != SOCKET_HTTP)
            continue;
        if (*count == LISTEN_SOCKETS_MAX) {
            snprintf(error, error_bytes, "more than %d sockets passed as http",
                LISTEN_SOCKETS_MAX);
            return false;
        }
        if (!listen_take(passed, true, &tcp, error, error_bytes))
            return false;
        fds[(*count)++] = passed->fd;
    }
    return true;
}

/* Listens for operators, on passed sockets or an address, or not at all. */
static bool
loop_listen_http(struct loop *loop, const struct loop_settings *settings,
    char *error, size_t error_bytes)
{
    int fds[LISTEN_SOCKETS_MAX];
    uint32_t count;

    if (!http_passed(settings, fds, &count, error, error_bytes))
        return false;
    if (count == 0 && settings->http == NULL)
        return true;
    if (count == 0)
        count =
            listen_on(settings, settings->http, true, fds, error, error_bytes);
    if (count == 0)
        return false;
    loop->http = http_create(loop, fds, count);
    if (loop->http == NULL)
        snprintf(error, error_bytes, "no memory");
    return loop->http != NULL;
}

struct loop *
loop_create(
    const struct loop_settings *settings, char *error, size_t error_bytes)
{
    struct loop *loop = calloc(1, sizeof(*loop));

    if (loop == NULL) {
        snprintf(error, error_bytes, "no memory");
        return NULL;
    }
    loop->settings = *settings;
    list_init(&loop->clients);
    list_init(&loop->dirty);
    list_init(&loop->fated);
    list_init(&loop->late);
    list_init(&loop->handshakes);
    list_init(&loop->handshakes_due);
    loop->timer_us = WHEEL_NEVER;
    loop->started_us = clock_real_us();
    loop->reloaded_us = loop->started_us;
    loop->client_max = loop_clients_fit(settings->core.sessions_max);
    loop->settings.core.sessions_max = loop->client_max;
    loop->spare_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (!loop_take_base(loop) || !loop_take_memory(loop)) {
        snprintf(error, error_bytes, "no memory");
        loop_destroy(&loop);
        return NULL;
    }
    if (!loop_listen(loop, settings, SOCKET_CLIENTS, error, error_bytes) ||
        !loop_listen(loop, settings, SOCKET_TLS, error, error_bytes) ||
        !loop_listen_http(loop, settings, error, error_bytes)) {
        loop_destroy(&loop);
        return NULL;
    }
    if (settings->hook != NULL) {
        loop->hooks = hooks_create(loop->base, settings->hook, &loop->counters);
        if (loop->hooks == NULL) {
            snprintf(error, error_bytes, "no memory");
            loop_destroy(&loop);
            return NULL;
        }
    }
    loop->settings.listen = NULL;
    loop->settings.http = NULL;
    loop->settings.passed = NULL;
    loop->settings.hook = NULL;
    explicit_bzero(&loop->settings.store, sizeof(loop->settings.store));
    return loop;
}

void
loop_destroy(struct loop **loop)
{
    struct loop *l = *loop;

    if (l == NULL)
        return;
    client_stop_listening(l);
    client_close_all(l);
    redis_destroy(l);
    engine_fini(&l->engine);
    http_destroy(&l->http);
    hooks_destroy(&l->hooks);
    if (l->base != NULL) {
        event_del(&l->timer);
        event_del(&l->accept_timer);
        event_base_free(l->base);
    }
    if (l->spare_fd >= 0)
        close(l->spare_fd);
    free(l->by_session);
    free(l->read_buffer);
    free(l->redis_buffer);
    free(l);
    *loop = NULL;
}

void
loop_configure(struct loop *loop, const struct loop_settings *settings)
{
    struct loop_settings *own = &loop->settings;

    engine_configure(&loop->engine, &settings->core, &settings->store);
    own->core.users = settings->core.users;
    own->core.address_connections_max = settings->core.address_connections_max;
    own->tls = settings->tls;
    own->client_tls = settings->client_tls;
    own->busy_poll_us = settings->busy_poll_us;
    own->core.output_max = settings->core.output_max;
    own->memory_max = settings->memory_max;
    own->keepalive_idle_s = settings->keepalive_idle_s;
    own->keepalive_interval_s = settings->keepalive_interval_s;
    own->keepalive_count = settings->keepalive_count;
    own->tcp_user_timeout_ms = settings->tcp_user_timeout_ms;
}

void
loop_begin_turn(struct loop *loop)
{
    (void)engine_now(&loop->engine);
}

void
loop_note_reload(struct loop *loop, bool taken)
{
    count(&loop->counters, taken ? COUNTER_reload_ok : COUNTER_reload_failed);
    loop->reload_failed = !taken;
    if (taken)
        loop->reloaded_us = clock_real_us();
}

struct event_base *
loop_base(struct loop *loop)
{
    return loop->base;
}

struct counters *
loop_counters(struct loop *loop)
{
    return &loop->counters;
}

void
loop_tell_health(struct loop *loop, loop_told *told, void *arg)
{
    loop->told = told;
    loop->told_arg = arg;
    loop->told_changes = loop_health(loop)->changes - 1;
}

bool
loop_stopping(const struct loop *loop)
{
    return engine_stopping(&loop->engine);
}

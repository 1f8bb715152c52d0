/*
 * Detection of silent clients, TCP's keepalive and its user time-out, changed
 * while they are connected.
 *
 * A client may count on its locks for as long as it has been told, and that is
 * never longer than TCP may leave it silent. Hence two invariants. The silence
 * that clients hear of (loop->silence_us) is no longer than that of any of
 * their sockets. No socket gets less than a value that a client heard of and
 * that has not run out. So where silence becomes shorter clients are told so at
 * once, and sockets follow when the old one is over; where it becomes longer
 * the sockets are first.
 *
 * There may be many sockets: so many a turn are changed, in the order of
 * loop->clients, whose first one goes to the end each time. Later clients stand
 * behind, and get the new values when they are accepted. They have the
 * listener's values from the handshake on, which may have been before the
 * change.
 */
#include "daemon/io/tune.h"

#include "daemon/base/assert.h"
#include "daemon/io/listen.h"

#define CLIENTS_A_TURN 500

/* Goes on when it is due, or in the next turn. */
static void
tune_arm(struct loop *loop)
{
    uint64_t now_us = engine_now(&loop->engine);
    uint64_t wait_us =
        loop->tune_due_us > now_us ? loop->tune_due_us - now_us : 0;
    struct timeval wait = {.tv_sec = (time_t)(wait_us / 1000000),
        .tv_usec = (suseconds_t)(wait_us % 1000000)};

    loop_arm(&loop->tune_timer, &wait);
}

static void
tell_silence(struct loop *loop, uint64_t silence_us)
{
    loop->silence_us = silence_us;
    core_set_silence(loop->engine.core, silence_us);
}

/* False: the new values are the old ones. */
static bool
take_values(struct loop_settings *own, const struct loop_settings *settings)
{
    if (own->keepalive_idle_s == settings->keepalive_idle_s &&
        own->keepalive_interval_s == settings->keepalive_interval_s &&
        own->keepalive_count == settings->keepalive_count &&
        own->tcp_user_timeout_ms == settings->tcp_user_timeout_ms)
        return false;
    own->keepalive_idle_s = settings->keepalive_idle_s;
    own->keepalive_interval_s = settings->keepalive_interval_s;
    own->keepalive_count = settings->keepalive_count;
    own->tcp_user_timeout_ms = settings->tcp_user_timeout_ms;
    own->core.silence_us = settings->core.silence_us;
    return true;
}

void
tune_configure(struct loop *loop, const struct loop_settings *settings)
{
    uint64_t wanted_us = settings->core.silence_us;
    uint64_t over_us = engine_now(&loop->engine) + loop->silence_us;
    bool under_way = event_pending(&loop->tune_timer, EV_TIMEOUT, NULL) != 0;

    if (!take_values(&loop->settings, settings))
        return;
    loop->tune_accepted = true;
    if ((under_way || wanted_us < loop->silence_us) &&
        over_us > loop->tune_due_us)
        loop->tune_due_us = over_us;
    if (wanted_us < loop->silence_us)
        tell_silence(loop, wanted_us);
    loop->tune_left = loop->client_count;
    tune_arm(loop);
}

static void
tune_some(struct loop *loop)
{
    for (int i = 0; i < CLIENTS_A_TURN && loop->tune_left > 0; i++) {
        struct list *at = list_pop_front(&loop->clients);
        if (at == NULL) {
            loop->tune_left = 0;
            return;
        }
        struct client *client = container_of(at, struct client, link);
        if (client->tcp)
            listen_tune(&loop->settings, client->fd);
        list_push_back(&loop->clients, at);
        loop->tune_left--;
    }
}

void
tune_timer(evutil_socket_t fd, short what, void *arg)
{
    struct loop *loop = arg;

    (void)fd;
    (void)what;
    if (engine_now(&loop->engine) >= loop->tune_due_us)
        tune_some(loop);
    if (loop->tune_left > 0 || engine_now(&loop->engine) < loop->tune_due_us)
        tune_arm(loop);
    else
        tell_silence(loop, loop->settings.core.silence_us);
}

/*
 * Sessions: a client's connection from its greeting to its BYE, and what its
 * end does to its tickets. The liveness that everything here is for: when the
 * connection goes, the session's waiters leave and its locks pass on.
 *
 *     OPEN --QUIT, FIN, stop--> CLOSING --all answered--> BYE, gone
 *       \--------RST, heartbeat, expelled---------------> gone
 */
#include "daemon/core/state.h"

#include "daemon/base/assert.h"
#include "daemon/base/log.h"

#include <inttypes.h>

#define SHORT_ID_BYTES 4

uint64_t
session_silence_us(const struct core *core, const struct session *session)
{
    uint64_t silence_us = session->tcp ? core->settings.silence_us : NEVER;

    if (session->heartbeat_us > 0) {
        uint64_t end_us = session->heard_us + 3 * session->heartbeat_us;
        silence_us = us_min(
            silence_us, end_us > core->now_us ? end_us - core->now_us : 0);
    }
    return silence_us;
}

static void
session_greet(struct core *core, const struct session *session)
{
    struct reply reply = answer_event(core, EVENT_HELLO);
    char id[2 * sizeof(session->id)];

    text_to_hex(id, session->id, sizeof(session->id));
    reply_pair_number(&reply, "proto", PROTO_VERSION);
    reply_pair(&reply, "server", text_from(core->settings.server));
    reply_pair(&reply, "session", text_make(id, sizeof(id)));
    reply_pair_number(&reply, "max_line", core->settings.line_max);
    reply_pair_number(&reply, "lease_ms", core->settings.lease_ms);
    answer_end(core, session, &reply);
}

/* Sets event->session, to HANDLE_NONE where there is no room. */
void
session_open(struct core *core, struct core_event *event)
{
    struct session *session =
        core->stopping ? NULL : slab_alloc(&core->sessions);

    event->session = HANDLE_NONE;
    if (session == NULL) {
        count(core->counters, COUNTER_sessions_refused);
        return;
    }
    session->state = SESSION_OPEN;
    session->tcp = event->open.tcp;
    memcpy(session->id, event->open.id, sizeof(session->id));
    uint64_t public = core_public_hash(session->id, sizeof(session->id));
    text_to_hex(session->short_id, (const uint8_t *)&public, SHORT_ID_BYTES);
    size_t peer_len = strnlen(event->open.peer, sizeof(session->peer) - 1);
    memcpy(session->peer, event->open.peer, peer_len);
    session->opened_us = core->now_us;
    session->heard_us = core->now_us;
    session->least_us = NEVER;
    wheel_node_init(&session->timer, TIMER_SESSION);
    list_init(&session->tickets);
    list_init(&session->pendings);
    list_init(&session->ending_link);
    count(core->counters, COUNTER_sessions_opened);
    event->session = slab_handle(&core->sessions, session);
    session_greet(core, session);
}

void
session_hear(struct core *core, struct session *session)
{
    session->heard_us = core->now_us;
}

void
session_heartbeat(
    struct core *core, struct session *session, uint64_t heartbeat_us)
{
    session->heartbeat_us = heartbeat_us;
    wheel_add(
        &core->wheel, &session->timer, us_add(core->now_us, heartbeat_us));
}

/* Takes the session out of all tables; its tickets go on without it. */
static void
session_free(struct core *core, struct session *session, enum counter counter)
{
    while (!list_empty(&session->pendings))
        pending_free(core,
            container_of(session->pendings.next, struct pending, session_link));
    LIST_EACH_SAFE (link, &session->tickets) {
        ticket_orphan(core, container_of(link, struct ticket, session_link));
    }
    require(session->ticket_count == 0 && session->pending_count == 0);
    wheel_remove(&core->wheel, &session->timer);
    list_remove(&session->ending_link);
    count(core->counters, COUNTER_sessions_closed);
    count(core->counters, counter);
    slab_free(&core->sessions, session);
}

/* The connection is gone: nothing can be sent any more. */
void
session_drop(struct core *core, struct session *session, enum counter counter)
{
    log_write(LOG_DEBUG, "session_dropped", "session=%s tickets=%" PRIu32,
        session->short_id, session->ticket_count);
    session_free(core, session, counter);
}

/* Says BYE and ends the connection. */
static void
session_end(struct core *core, struct session *session)
{
    struct reply reply = answer_event(core, EVENT_BYE);

    require(session->bye != NULL);
    reply_word(&reply, text_from(session->bye));
    answer_end(core, session, &reply);
    effects_add(
        core->effects, EFFECT_CLOSE, slab_handle(&core->sessions, session));
    session_free(core, session, session->bye_counter);
}

void
session_expel(struct core *core, struct session *session, enum core_expel why)
{
    static const struct {
        const char *bye;
        enum counter counter;
    } table[] = {
        [EXPEL_OUTPUT] = {"output", COUNTER_closed_output},
        [EXPEL_MEMORY] = {"limit", COUNTER_limit_memory},
        [EXPEL_PROTOCOL] = {"protocol", COUNTER_closed_protocol},
    };

    session->bye = table[why].bye;
    session->bye_counter = table[why].counter;
    log_write(LOG_INFO, "session_expelled", "session=%s peer=%s reason=%s",
        session->short_id, session->peer, session->bye);
    session_end(core, session);
}

/* Queues the session for its end where nothing keeps it any more. */
void
session_check_end(struct core *core, struct session *session)
{
    if (session->ending || session->pending_count > 0)
        return;
    if (session->state == SESSION_OPEN &&
        !(session->drained && session->ticket_count == 0))
        return;
    session->ending = true;
    list_push_back(&core->ending, &session->ending_link);
}

/*
 * Takes no more requests. What was sent before is carried out and answered;
 * waits end at once, and holds that no request is left for are released.
 */
void
session_close(struct core *core, struct session *session, const char *bye,
    enum counter counter)
{
    if (session->state == SESSION_CLOSING)
        return;
    session->state = SESSION_CLOSING;
    session->bye = bye;
    session->bye_counter = counter;
    LIST_EACH_SAFE (link, &session->tickets) {
        ticket_session_closing(
            core, container_of(link, struct ticket, session_link));
    }
    session_check_end(core, session);
}

void
session_eof(struct core *core, struct session *session)
{
    session_close(core, session, "eof", COUNTER_closed_eof);
}

/* At the end of a step, when nobody on the way still needs the sessions. */
void
session_end_all(struct core *core)
{
    struct list *link;

    while ((link = list_pop_front(&core->ending)) != NULL) {
        struct session *session =
            container_of(link, struct session, ending_link);
        session->ending = false;
        if (session->bye == NULL) {
            session->bye = "drain";
            session->bye_counter = COUNTER_closed_drain;
        }
        if (session->pending_count == 0)
            session_end(core, session);
    }
}

/* The broker stops: first the word, and at the end of grace the end. */
static void
session_stop(struct core *core, struct session *session)
{
    bool over = core->stop_us == 0;

    if (!session->drained) {
        session->drained = true;
        struct reply reply = answer_event(core, EVENT_DRAIN);
        reply_pair_number(
            &reply, "grace_ms", over ? 0 : core->settings.stop_grace_us / 1000);
        answer_end(core, session, &reply);
    }
    if (over)
        session_close(core, session, "drain", COUNTER_closed_drain);
    else
        session_check_end(core, session);
}

static void
session_ping(struct core *core, struct session *session)
{
    struct reply reply = answer_event(core, EVENT_PING);

    reply_number(&reply, ++session->ping_serial);
    answer_end(core, session, &reply);
}

void
session_timer(struct core *core, struct session *session)
{
    if (core->stopping)
        session_stop(core, session);
    if (session->heartbeat_us == 0 || session->state != SESSION_OPEN)
        return;
    /* Silence before our own stall ended may be nothing but our deafness. */
    uint64_t heard_us =
        session->heard_us > core->awake_us ? session->heard_us : core->awake_us;
    uint64_t silent_us = core->now_us - heard_us;
    if (silent_us >= 3 * session->heartbeat_us) {
        session->bye = "heartbeat";
        session->bye_counter = COUNTER_closed_heartbeat;
        log_write(LOG_INFO, "session_silent",
            "session=%s peer=%s silent_ms=%" PRIu64, session->short_id,
            session->peer, silent_us / 1000);
        session_end(core, session);
        return;
    }
    if (silent_us >= session->heartbeat_us)
        session_ping(core, session);
    uint64_t beats = silent_us / session->heartbeat_us + 1;
    wheel_add(&core->wheel, &session->timer,
        heard_us + beats * session->heartbeat_us);
}

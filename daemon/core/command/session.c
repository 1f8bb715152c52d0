/*
 * Sessions: a client's connection from its greeting to its BYE, and what its
 * end does to its tickets (session_time.c has what time does to a session).
 * When the connection goes, the session's waiters leave and its locks pass on.
 *
 *     OPEN --QUIT, FIN--> QUITTING, CLOSING --all answered--> BYE, GONE
 *       \---------RST, heartbeat, expelled, stop-----------> GONE
 *
 * A session that is GONE gives up its tickets in portions. So the end of a
 * session with a million holds does not keep other sessions waiting.
 *
 * A session with keep= is AWAY after its connection. Its tickets stand until
 * keep= is over. Until then another connection may take them over (HELLO
 * resume=), here or at another broker. A broker that stops releases none of
 * them: the client claims them at another broker.
 *
 * See DESIGN.md D7.
 */
#include "daemon/core/command/session.h"

#include "daemon/core/answer/answer.h"
#include "daemon/core/feature/watch.h"
#include "daemon/core/model/part.h"
#include "daemon/core/model/request.h"
#include "daemon/core/model/session_table.h"
#include "daemon/core/model/stats.h"
#include "daemon/core/model/ticket.h"
#include "daemon/core/ticket/states.h"
#include "daemon/core/ticket/tickets.h"

#include "daemon/base/assert.h"
#include "daemon/base/log.h"

#include <inttypes.h>

void
session_arm(struct core *core, struct session *session)
{
    uint64_t due_us = us_min(session->beat_due_us, session->keep_due_us);

    require(session->state != SESSION_GONE);
    due_us = us_min(due_us, auth_due_us(core, session));
    if (auth_may_go_on(session))
        due_us = core->now_us;
    if (due_us == NEVER)
        wheel_remove(&core->wheel, &session->timer);
    else
        wheel_add(&core->wheel, &session->timer, due_us);
}

static void
session_greet(struct core *core, const struct session *session)
{
    struct reply reply = answer_event(core, EVENT_HELLO);
    char id[2 * sizeof(session->id)];

    require(session->state == SESSION_OPEN && session->generation == 1);
    text_to_hex(id, session->token, sizeof(session->token));
    reply_pair_number(&reply, "proto", PROTO_VERSION);
    reply_pair(&reply, "server", text_from(core->settings.server));
    reply_pair(&reply, "session", text_make(id, sizeof(id)));
    reply_pair_number(&reply, "max_line", core->settings.line_max);
    reply_pair_number(&reply, "lease_ms", core->settings.lease_ms);
    answer_times(core, session, &reply);
    if (core->settings.users != NULL && session->user == NULL)
        reply_pair(&reply, "auth", TEXT("required"));
    answer_end(core, session, &reply);
}

void
session_open(struct core *core, struct core_event *event)
{
    struct session *session;

    require(event->open.user == NULL || core->settings.users != NULL);
    event->session = HANDLE_NONE;
    if (core->stopping || !auth_admits(core, event))
        return;
    session = slab_alloc(&core->sessions);
    if (session == NULL) {
        count(core->counters, COUNTER_limit_connections);
        return;
    }
    session->state = SESSION_OPEN;
    session->silence_us = event->open.silence_us;
    auth_opened(core, session, event);
    session_set_id(core, session, event->open.id);
    session->generation = 1;
    session->beat_due_us = NEVER;
    session->keep_due_us = NEVER;
    size_t peer_len = strnlen(event->open.peer, sizeof(session->peer) - 1);
    memcpy(session->peer, event->open.peer, peer_len);
    session->opened_us = core->now_us;
    session->heard_us = core->now_us;
    session->least_us = NEVER;
    session->leased_us = NEVER;
    wheel_node_init(&session->timer, TIMER_SESSION);
    list_init(&session->tickets);
    list_init(&session->requests);
    list_init(&session->behind);
    list_init(&session->watches);
    list_init(&session->news);
    list_init(&session->ending_link);
    count(core->counters, COUNTER_sessions_opened);
    require(core->away < core->sessions.used);
    event->session = slab_handle(&core->sessions, session);
    session_arm(core, session);
    session_greet(core, session);
}

void
session_hear(struct core *core, struct session *session)
{
    require(session->heard_us <= core->now_us);
    session->heard_us = core->now_us;
}

void
session_heartbeat(
    struct core *core, struct session *session, uint64_t heartbeat_us)
{
    require(session_is_open(session));
    session->heartbeat_us = heartbeat_us;
    session->beat_due_us = us_add(core->now_us, heartbeat_us);
    session_arm(core, session);
}

static void
session_drop_requests(struct core *core, struct session *session)
{
    while (!list_empty(&session->requests)) {
        struct request *request =
            container_of(session->requests.next, struct request, session_link);
        stats_unheard(core, request);
        request_free(core, request);
    }
    auth_drop_behind(core, session);
    require(session->request_count == 0 && session->auths == 0);
}

void
session_refuse_requests(
    struct core *core, struct session *session, enum error_code code)
{
    while (!list_empty(&session->requests)) {
        struct request *request =
            container_of(session->requests.next, struct request, session_link);
        enum error_code told = command_refusal(request->command, code);
        request_refuse(
            core, request, told, error_outcome(told, request->command));
    }
    require(session->request_count == 0 && session->auths == 0);
    auth_refuse_behind(core, session, code);
}

static void
session_drop_watches(struct core *core, struct session *session)
{
    while (!list_empty(&session->watches))
        watch_free(core,
            container_of(session->watches.next, struct watch, session_link));
    require(session->watch_count == 0 && list_empty(&session->news));
    session->watch_waits = false;
}

bool
session_dissolve(struct core *core, struct session *session)
{
    require(session->request_count == 0 && session->behind_count == 0);
    require(session->state == SESSION_GONE && core->away > 0);
    LIST_EACH_SAFE (link, &session->tickets) {
        if (core->portion == 0)
            return false;
        core->portion--;
        ticket_orphan(core, container_of(link, struct ticket, session_link));
    }
    require(session->ticket_count == 0 && session->request_count == 0);
    require(session->held == 0 && session->waiting == 0);
    wheel_remove(&core->wheel, &session->timer);
    list_remove(&session->ending_link);
    table_remove(&core->session_table, &session->table);
    core->away--;
    slab_free(&core->sessions, session);
    return true;
}

void
session_free(struct core *core, struct session *session, enum counter counter)
{
    require(session->state != SESSION_GONE);
    session_drop_requests(core, session);
    session_drop_watches(core, session);
    wheel_remove(&core->wheel, &session->timer);
    if (session_connected(session))
        auth_disconnected(core, session);
    list_remove(&session->ending_link);
    list_push_back(&core->ending, &session->ending_link);
    session_move(core, session, SESSION_GONE);
    count(core->counters, COUNTER_sessions_closed);
    count(core->counters, counter);
    (void)session_dissolve(core, session);
}

/* The connection has ended, and the session is kept for another one. */
static void
session_go_away(
    struct core *core, struct session *session, enum counter counter)
{
    count(core->counters, COUNTER_sessions_kept);
    count(core->counters, counter);
    session_drop_requests(core, session);
    session_drop_watches(core, session);
    auth_disconnected(core, session);
    session->end = END_NONE;
    session->heartbeat_us = 0;
    session->beat_due_us = NEVER;
    session->keep_due_us = us_add(core->now_us, session->keep_us);
    list_remove(&session->ending_link);
    session_move(core, session, SESSION_AWAY);
    LIST_EACH_SAFE (link, &session->tickets) {
        ticket_leave_unattended(
            core, container_of(link, struct ticket, session_link));
    }
    session_arm(core, session);
}

void
session_forget(struct core *core, struct session *session, enum counter counter)
{
    session_drop_requests(core, session);
    /* Others become idle with their parts, which the client believes in. */
    LIST_EACH_SAFE (link, &session->tickets) {
        struct ticket *ticket = container_of(link, struct ticket, session_link);
        if (intent_is_idle(ticket))
            ticket_leave(core, ticket);
    }
    LIST_EACH_SAFE (link, &session->tickets) {
        ticket_forget(core, container_of(link, struct ticket, session_link));
    }
    session_free(core, session, counter);
}

/* The connection is no more. */
static void
session_disconnected(
    struct core *core, struct session *session, enum counter counter)
{
    bool room = core->away < core->settings.sessions_max;
    bool over = core->stopping && core->stop_us == 0;

    require(session_connected(session));
    if (over)
        session_forget(core, session, counter);
    else if (!session_keeps(session) || session->ticket_count == 0)
        session_free(core, session, counter);
    else if (core->stopping || !room) /* its holds stand for a lease */
        session_forget(core, session, counter);
    else
        session_go_away(core, session, counter);
}

void
session_drop(struct core *core, struct session *session, enum counter counter)
{
    log_write(LOG_DEBUG, "session_dropped",
        log_word("session", session->short_id),
        log_number("tickets", session->ticket_count));
    session_disconnected(core, session, counter);
}

/* The word of BYE, and the counter, of each end. */
static const struct {
    const char *bye;
    enum counter counter;
} ends[] = {
    [END_NONE] = {NULL, COUNTER_closed_dropped},
    [END_QUIT] = {"quit", COUNTER_closed_quit},
    [END_EOF] = {"eof", COUNTER_closed_eof},
    [END_DRAIN] = {"drain", COUNTER_closed_drain},
    [END_HEARTBEAT] = {"heartbeat", COUNTER_closed_heartbeat},
    [END_RESUMED] = {"resumed", COUNTER_closed_resumed},
    [END_OUTPUT] = {"output", COUNTER_closed_output},
    [END_MEMORY] = {"limit", COUNTER_closed_memory},
    [END_PROTOCOL] = {"protocol", COUNTER_closed_protocol},
    [END_KILLED] = {"killed", COUNTER_closed_killed},
    [END_AUTH] = {"auth", COUNTER_closed_auth},
};

void
session_end(struct core *core, struct session *session, enum session_end end)
{
    require(end != END_NONE && session_connected(session));
    if (session->state != SESSION_QUITTING) /* else it keeps nothing */
        session->end = end;
    if (session->state == SESSION_QUITTING && session->request_count == 0) {
        struct reply ok = answer_begin(core, session->quit_tag, "OK");
        answer_end(core, session, &ok);
    }
    /* A stop releases nothing: session_disconnected(). */
    bool stands = session->end == END_DRAIN ||
                  (session_keeps(session) && end != END_RESUMED);
    struct reply reply = answer_event(core, EVENT_BYE);
    reply_word(&reply, text_from(ends[end].bye));
    reply_pair_number(&reply, "keep", stands);
    answer_end(core, session, &reply);
    effects_add(
        core->effects, EFFECT_CLOSE, slab_handle(&core->sessions, session));
    session_disconnected(core, session, ends[end].counter);
}

/* At once, and nothing is kept. */
static void
session_end_at_once(
    struct core *core, struct session *session, enum session_end end)
{
    if (session->state == SESSION_GONE)
        return;
    session->end = end;
    if (session->state == SESSION_AWAY) /* its connection has been counted */
        session_free(core, session, COUNTER_closed_kept);
    else
        session_end(core, session, end);
}

void
session_kill(struct core *core, struct session *session)
{
    session_end_at_once(core, session, END_KILLED);
}

void
session_expel_user(struct core *core, struct session *session)
{
    session_end_at_once(core, session, END_AUTH);
}

const char *
session_resume(struct core *core, struct session *session,
    const uint8_t told[16], uint32_t generation)
{
    uint8_t id[sizeof(session->id)];

    auth_session_id(session->user, told, id);
    struct session *other = session_find(core, id);

    require(session_is_open(session));
    if (session->ticket_count > 0 || session->request_count > 0 ||
        session->generation > 1)
        return "resume= comes while the connection has nothing of its own";
    if (other == session)
        return "this is that session";
    if (other != NULL && generation <= other->generation)
        return "gen= must be larger than that of every earlier connection";
    table_remove(&core->session_table, &session->table);
    session->generation = generation;
    if (other == NULL) {
        session_set_id(core, session, told);
        return NULL;
    }
    if (session->client_len == 0) {
        memcpy(session->client, other->client, other->client_len);
        session->client_len = other->client_len;
    }
    session_refuse_requests(core, other, ERROR_CANCELLED);
    LIST_EACH_SAFE (link, &other->tickets) {
        struct ticket *ticket = container_of(link, struct ticket, session_link);
        ticket_leave_unattended(core, ticket);
    }
    LIST_EACH_SAFE (link, &other->tickets) {
        ticket_rebind(
            core, container_of(link, struct ticket, session_link), session);
    }
    require(other->ticket_count == 0);
    if (other->state == SESSION_AWAY) {
        session_free(core, other, COUNTER_sessions_resumed);
    } else {
        count(core->counters, COUNTER_sessions_resumed);
        session_end(core, other, END_RESUMED);
    }
    session_set_id(core, session, told);
    session->keep_due_us = us_add(core->now_us,
        session->keep_us > 0 ? session->keep_us
                             : us_from_ms(core->settings.lease_ms));
    session_arm(core, session);
    return NULL;
}

/*
 * Another broker has taken a ticket over, for a later connection of its session
 * (the ticket's request, and that generation: 8 and 4 bytes). The connection
 * here has no client any more, though TCP may not have told. The session here
 * ends, or it would wait for locks that the client already has. This broker
 * does not put the ticket into Redis again.
 */
void
session_moved(struct core *core, struct text news)
{
    uint64_t request;
    uint32_t generation;

    if (news.len != sizeof(request) + sizeof(generation))
        return;
    memcpy(&request, news.at, sizeof(request));
    memcpy(&generation, news.at + sizeof(request), sizeof(generation));
    struct ticket *ticket = slab_get(&core->tickets, handle_unpack(request));
    struct session *session = ticket != NULL ? ticket->session : NULL;
    if (session == NULL || !session_keeps(session) ||
        session->generation >= generation)
        return;
    ticket->taken = generation;
    if (!session_connected(session))
        return;
    session_refuse_requests(core, session, ERROR_CANCELLED);
    session_end(core, session, END_RESUMED);
}

void
session_expel(struct core *core, struct session *session, enum core_expel why)
{
    static const enum session_end table[] = {
        [EXPEL_OUTPUT] = END_OUTPUT,
        [EXPEL_MEMORY] = END_MEMORY,
        [EXPEL_PROTOCOL] = END_PROTOCOL,
    };

    require(why < sizeof(table) / sizeof(table[0]));
    if (why == EXPEL_MEMORY)
        count(core->counters, COUNTER_limit_memory);
    log_write(LOG_INFO, "session_expelled",
        log_word("session", session->short_id), log_word("peer", session->peer),
        log_word("reason", ends[table[why]].bye));
    session_end(core, session, table[why]);
}

/*
 * Takes no more requests. Earlier requests are served and answered. Waits end
 * at once, and holds without a request are released: in portions, as a step has
 * room.
 */
void
session_close(struct core *core, struct session *session,
    enum session_state state, enum session_end end)
{
    require(state == SESSION_CLOSING || state == SESSION_QUITTING);
    require((state == SESSION_QUITTING) == (end == END_QUIT));
    if (!session_is_open(session))
        return;
    session->end = end;
    session_move(core, session, state);
    session_check_end(core, session);
    /* A session without requests and late holds ends with this step. */
    if (session->request_count == 0 && core->now_us < session->least_us &&
        core->now_us < session->leased_us)
        return;
    LIST_EACH (link, &session->tickets) {
        ticket_stir_late(core, container_of(link, struct ticket, session_link));
    }
    LIST_EACH (link, &session->requests) {
        struct request *request =
            container_of(link, struct request, session_link);
        if (request->command == COMMAND_AWAIT)
            wheel_add(&core->wheel, &request->timer, core->now_us);
    }
}

void
session_eof(struct core *core, struct session *session)
{
    if (auth_pauses(session) && session->ticket_count == 0) {
        if (session->state == SESSION_OPEN)
            session_move(core, session, SESSION_HALF_CLOSED);
        return;
    }
    auth_refuse_behind(core, session, ERROR_CANCELLED);
    session_close(core, session, SESSION_CLOSING, END_EOF);
}

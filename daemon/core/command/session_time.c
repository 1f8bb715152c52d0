/*
 * The times of a session: heartbeats, the end of keep=, the time for an AUTH,
 * and the stop of the broker. At the end of a step, sessions without a reason
 * to live end.
 */
#include "daemon/core/command/session.h"

#include "daemon/core/answer/answer.h"
#include "daemon/core/command/command.h"
#include "daemon/core/model/session_table.h"
#include "daemon/core/ticket/tickets.h"

#include "daemon/base/assert.h"
#include "daemon/base/log.h"

#include <inttypes.h>

/* The broker stops: first the word, and at the end of grace the end. */
static void
session_stop(struct core *core, struct session *session)
{
    bool over = core->stop_us == 0;

    if (!session_connected(session)) {
        session_forget(core, session, COUNTER_closed_kept);
        return;
    }
    if (!session->drained) {
        session->drained = true;
        struct reply reply = answer_event(core, EVENT_DRAIN);
        reply_pair_number(
            &reply, "grace_ms", over ? 0 : core->settings.stop_grace_us / 1000);
        answer_end(core, session, &reply);
    }
    if (!over) {
        session_check_end(core, session);
        return;
    }
    session_refuse_requests(core, session, ERROR_DRAINING);
    session_end(core, session, END_DRAIN);
}

static void
session_ping(struct core *core, struct session *session)
{
    struct reply reply = answer_event(core, EVENT_PING);

    require(session->heartbeat_us > 0 && session_connected(session));
    reply_number(&reply, ++session->ping_serial);
    answer_end(core, session, &reply);
}

/* Silent for too long: its end. False: it is not over. */
static bool
session_beat(struct core *core, struct session *session)
{
    require(session->heartbeat_us > 0 && core->awake_us <= core->now_us);
    /* Silence before our own stall ended may be nothing but our deafness. */
    uint64_t heard_us =
        session->heard_us > core->awake_us ? session->heard_us : core->awake_us;
    uint64_t silent_us = core->now_us - heard_us;
    if (silent_us >= 3 * session->heartbeat_us) {
        log_write(LOG_INFO, "session_silent",
            log_word("session", session->short_id),
            log_word("peer", session->peer),
            log_number("silent_ms", silent_us / 1000));
        session_end(core, session, END_HEARTBEAT);
        return true;
    }
    if (silent_us >= session->heartbeat_us)
        session_ping(core, session);
    uint64_t beats = silent_us / session->heartbeat_us + 1;
    session->beat_due_us = heard_us + beats * session->heartbeat_us;
    require(session->beat_due_us > core->now_us);
    return false;
}

/* Nobody has come for the session, or for some of its tickets. */
static bool
session_keep_over(struct core *core, struct session *session)
{
    session->keep_due_us = NEVER;
    if (session->state == SESSION_AWAY) {
        log_write(LOG_INFO, "session_given_up",
            log_word("session", session->short_id),
            log_number("tickets", session->ticket_count));
        session_free(core, session, COUNTER_closed_kept);
        return true;
    }
    bool again = false;
    LIST_EACH_SAFE (link, &session->tickets) {
        if (ticket_end_unattended(
                core, container_of(link, struct ticket, session_link)))
            again = true;
    }
    if (again)
        session->keep_due_us =
            us_add(core->now_us, core->settings.command_timeout_us);
    return false;
}

/* It has not said in time who it is, and so has nothing. */
static void
session_expel_unknown(struct core *core, struct session *session)
{
    require(session->ticket_count == 0 && session->user == NULL);
    log_write(LOG_INFO, "session_expelled",
        log_word("session", session->short_id), log_word("peer", session->peer),
        log_word("reason", "auth"));
    session_refuse_requests(core, session, ERROR_AUTH);
    session_expel_user(core, session);
}

/* The next line, or the end, that came behind an AUTH. False: the session is
 * not open any more, and may be gone. */
static bool
auth_go_on(struct core *core, struct session *session)
{
    struct handle handle = slab_handle(&core->sessions, session);
    char tag[PROTO_TAG_MAX + 1];

    if (!auth_may_go_on(session))
        return true;
    require(session_is_open(session));
    struct behind *behind = behind_pop(session);
    if (behind == NULL) {
        session_eof(core, session);
        return false;
    }
    if (behind->too_long) {
        (void)request_tag(behind->line, behind->len, tag);
        answer_error(core, session, tag, ERROR_TOOLONG, NULL);
    } else {
        command_line(core, session, behind->line, behind->len);
    }
    behind_free(core, behind);
    if (slab_get(&core->sessions, handle) == NULL)
        return false;
    session_check_end(core, session);
    return session_is_open(session);
}

void
session_timer(struct core *core, struct session *session)
{
    if (session->state == SESSION_GONE)
        return;
    if (session->recheck != RECHECK_NONE && auth_recheck(core, session))
        return;
    if (core->stopping) {
        bool ends = session->state == SESSION_AWAY || core->stop_us == 0;
        session_stop(core, session);
        if (ends)
            return;
    }
    if (session_closes(session) || !auth_go_on(core, session))
        return;
    if (core->now_us >= auth_due_us(core, session)) {
        session_expel_unknown(core, session);
        return;
    }
    if (core->now_us >= session->beat_due_us && session_beat(core, session))
        return;
    if (core->now_us >= session->keep_due_us &&
        session_keep_over(core, session))
        return;
    session_arm(core, session);
}

void
session_end_all(struct core *core)
{
    struct list *link;

    while (list_empty(&core->stirred) && list_empty(&core->bulk) &&
           effects_room(core->effects) && core->portion > 0 &&
           (link = list_pop_front(&core->ending)) != NULL) {
        struct session *session =
            container_of(link, struct session, ending_link);
        if (session->state == SESSION_GONE) {
            if (!session_dissolve(core, session))
                list_push_back(&core->ending, &session->ending_link);
            continue;
        }
        require(session->state != SESSION_AWAY || session->ticket_count == 0);
        if (session->state == SESSION_AWAY)
            session_free(core, session, COUNTER_closed_kept);
        else if (session->request_count == 0)
            session_end(core, session,
                session->end == END_NONE ? END_DRAIN : session->end);
    }
}

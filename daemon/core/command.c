/*
 * Request lines to calls: what each command checks before a ticket, a listing
 * or the session itself takes over.
 */
#include "daemon/core/state.h"

#include "daemon/base/assert.h"

typedef void command_function(
    struct core *core, struct session *session, const struct request *request);

static struct text
request_word(const struct request *request, enum request_key key)
{
    return request_has(request, key) ? request->word[key] : TEXT("");
}

static uint64_t
request_value(
    const struct request *request, enum request_key key, uint64_t otherwise)
{
    return request_has(request, key) ? request->value[key] : otherwise;
}

/* NULL where a limit forbids it; the client has been told. */
static struct pending *
command_pending(
    struct core *core, struct session *session, const struct request *request)
{
    if (session->pending_count >= core->settings.outstanding_max) {
        count(core->counters, COUNTER_limit_outstanding);
        answer_limit(core, session, request->tag, "outstanding");
        return NULL;
    }
    struct pending *pending = pending_create(core, session, request);
    if (pending == NULL) {
        count(core->counters, COUNTER_limit_requests);
        answer_limit(core, session, request->tag, "requests");
    }
    return pending;
}

static void
command_hello(
    struct core *core, struct session *session, const struct request *request)
{
    char id[2 * sizeof(session->id)];
    struct text name = request_word(request, REQUEST_KEY_NAME);
    uint64_t heartbeat_ms = request_value(request, REQUEST_KEY_HEARTBEAT, 0);

    if (name.len > 0) {
        memcpy(session->client, name.at, name.len);
        session->client_len = (uint8_t)name.len;
    }
    if (heartbeat_ms > 0)
        session_heartbeat(core, session, heartbeat_ms * 1000);
    struct reply reply = answer_begin(core, request->tag, "OK");
    text_to_hex(id, session->id, sizeof(session->id));
    reply_pair(&reply, "session", text_make(id, sizeof(id)));
    reply_pair_number(&reply, "proto", PROTO_VERSION);
    reply_pair(&reply, "server", text_from(core->settings.server));
    if (session->heartbeat_us > 0)
        reply_pair_number(&reply, "heartbeat_ms", session->heartbeat_us / 1000);
    answer_end(core, session, &reply);
}

/* The ticket that a LOCK is about, old or new; NULL: the client was told. */
static struct ticket *
lock_ticket(
    struct core *core, struct session *session, const struct request *request)
{
    struct text owner = request_word(request, REQUEST_KEY_OWNER);
    struct lock *lock = lock_obtain(core, request->argument);
    struct ticket *ticket = NULL;

    if (lock != NULL)
        ticket = ticket_find(core, session, lock, owner);
    if (ticket == NULL && session->ticket_count >= core->settings.holds_max) {
        count(core->counters, COUNTER_limit_holds);
        answer_limit(core, session, request->tag, "holds");
    } else if (ticket == NULL) {
        if (lock != NULL)
            ticket = ticket_create(core, session, lock, owner);
        if (ticket == NULL) {
            count(core->counters, COUNTER_limit_tickets);
            answer_limit(core, session, request->tag, "tickets");
        }
    }
    if (lock != NULL)
        lock_unref(core, lock);
    return ticket;
}

static void
command_lock(
    struct core *core, struct session *session, const struct request *request)
{
    if (core->stopping) {
        answer_error(core, session, request->tag, ERROR_DRAINING, NULL);
        return;
    }
    struct pending *pending = command_pending(core, session, request);
    if (pending == NULL)
        return;
    struct ticket *ticket = lock_ticket(core, session, request);
    if (ticket == NULL) {
        pending_free(core, pending);
        return;
    }
    struct text note = request_word(request, REQUEST_KEY_NOTE);
    memcpy(pending->note, note.at, note.len);
    pending->note_len = (uint8_t)note.len;
    pending->ticket = ticket;
    pending->hold_ms = request_value(request, REQUEST_KEY_LEASE, 0);
    pending->progress = request_value(request, REQUEST_KEY_PROGRESS, 0) != 0;
    if (request_has(request, REQUEST_KEY_WAIT)) {
        pending->wait_us = us_from_ms(request->value[REQUEST_KEY_WAIT]);
        if (pending->wait_us > 0)
            wheel_add(&core->wheel, &pending->timer,
                us_add(core->now_us, pending->wait_us));
    }
    list_push_back(&ticket->pendings, &pending->ticket_link);
    ticket_advance(core, ticket);
}

/* UNLOCK and RENEW: something is done to a hold that should be there. */
static void
command_of_hold(
    struct core *core, struct session *session, const struct request *request)
{
    struct lock *lock = lock_find(core, request->argument);
    struct ticket *ticket = NULL;

    if (lock != NULL)
        ticket = ticket_find(
            core, session, lock, request_word(request, REQUEST_KEY_OWNER));
    if (ticket == NULL) {
        answer_error(core, session, request->tag, ERROR_NOTHELD, NULL);
        return;
    }
    struct pending *pending = command_pending(core, session, request);
    if (pending == NULL)
        return;
    pending->ticket = ticket;
    pending->fence = request_value(request, REQUEST_KEY_FENCE, 0);
    pending->hold_ms = request_value(request, REQUEST_KEY_LEASE, 0);
    list_push_back(&ticket->pendings, &pending->ticket_link);
    ticket_advance(core, ticket);
}

static void
answer_ok(
    struct core *core, struct session *session, const struct request *request)
{
    struct reply reply = answer_begin(core, request->tag, "OK");

    answer_end(core, session, &reply);
}

static void
command_cancel(
    struct core *core, struct session *session, const struct request *request)
{
    char tag[PROTO_TAG_MAX + 1] = "";
    struct pending *pending;

    require(request->argument.len <= PROTO_TAG_MAX);
    memcpy(tag, request->argument.at, request->argument.len);
    pending = pending_of_tag(core, session, tag);
    if (pending == NULL || pending->command != COMMAND_LOCK) {
        answer_error(core, session, request->tag, ERROR_BADREQ,
            "no LOCK with that tag is outstanding");
        return;
    }
    count(core->counters, COUNTER_waits_cancelled);
    ticket_cancel(core, pending->ticket, pending, ERROR_CANCELLED, NULL);
    answer_ok(core, session, request);
}

static void
command_held(
    struct core *core, struct session *session, const struct request *request)
{
    struct pending *pending = command_pending(core, session, request);

    if (pending != NULL)
        listing_held(core, pending);
}

/*
 * The soonest deadline of the holds, or one sooner still: where they are many
 * it is looked up now and then, since each PING would cost a walk over all.
 */
static uint64_t
session_least_us(const struct core *core, struct session *session)
{
    uint64_t pause_us = 10 * (uint64_t)session->ticket_count;

    if (core->now_us < session->least_at_us + pause_us)
        return session->least_us;
    session->least_at_us = core->now_us;
    session->least_us = NEVER;
    LIST_EACH (link, &session->tickets) {
        struct ticket *ticket = container_of(link, struct ticket, session_link);
        if (ticket->state == TICKET_HELD)
            session->least_us = us_min(session->least_us, ticket->deadline_us);
    }
    return session->least_us;
}

/* The least that remains of the holds. */
static void
command_ping(
    struct core *core, struct session *session, const struct request *request)
{
    struct reply reply = answer_begin(core, request->tag, "OK");

    if (session->held > 0) {
        uint64_t least_us = session_least_us(core, session);
        uint64_t left_us =
            least_us > core->now_us ? least_us - core->now_us : 0;
        left_us = us_min(left_us, session_silence_us(core, session));
        reply_pair_number(&reply, "ttl_ms", left_us / 1000);
    }
    answer_end(core, session, &reply);
}

static void
command_pong(
    struct core *core, struct session *session, const struct request *request)
{
    (void)core;
    (void)session;
    (void)request;
    /* That it came is all that it says, and session_hear() has heard it. */
}

static void
command_quit(
    struct core *core, struct session *session, const struct request *request)
{
    answer_ok(core, session, request);
    session_close(core, session, "quit", COUNTER_closed_quit);
}

static command_function *const commands[COMMAND_COUNT] = {
    [COMMAND_HELLO] = command_hello,
    [COMMAND_LOCK] = command_lock,
    [COMMAND_UNLOCK] = command_of_hold,
    [COMMAND_RENEW] = command_of_hold,
    [COMMAND_CANCEL] = command_cancel,
    [COMMAND_SHOW] = listing_show,
    [COMMAND_HELD] = command_held,
    [COMMAND_LOCKS] = listing_locks,
    [COMMAND_SESSIONS] = listing_sessions,
    [COMMAND_STATS] = listing_stats,
    [COMMAND_PING] = command_ping,
    [COMMAND_PONG] = command_pong,
    [COMMAND_HELP] = listing_help,
    [COMMAND_QUIT] = command_quit,
};

void
command_line(struct core *core, struct session *session, char *line, size_t len)
{
    struct request request;
    struct request_error error;

    if (session->state != SESSION_OPEN)
        return;
    switch (
        request_parse(line, len, core->settings.name_max, &request, &error)) {
    case REQUEST_BLANK:
        return;
    case REQUEST_BAD:
        count(core->counters, COUNTER_requests);
        count(core->counters, COUNTER_requests_bad);
        answer_error(core, session, request.tag, error.code, error.what);
        return;
    case REQUEST_OK:
        break;
    }
    count(core->counters, COUNTER_requests);
    if (request.tag[0] != '\0' &&
        pending_of_tag(core, session, request.tag) != NULL) {
        count(core->counters, COUNTER_requests_bad);
        answer_error(core, session, request.tag, ERROR_BADREQ,
            "a request with that tag is outstanding");
        return;
    }
    commands[request.command](core, session, &request);
}

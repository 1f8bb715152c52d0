/*
 * Request lines to calls: what each command checks before a ticket, a listing
 * or the session itself takes over.
 */
#include "daemon/core/command/command.h"

#include "daemon/core/answer/answer.h"
#include "daemon/core/command/session.h"
#include "daemon/core/feature/audit.h"
#include "daemon/core/feature/await.h"
#include "daemon/core/feature/listing.h"
#include "daemon/core/feature/watch.h"
#include "daemon/core/model/handlers.h"
#include "daemon/core/model/lock.h"
#include "daemon/core/model/op_pool.h"
#include "daemon/core/model/part.h"
#include "daemon/core/model/request.h"
#include "daemon/core/model/session_table.h"
#include "daemon/core/model/stats.h"
#include "daemon/core/model/ticket.h"
#include "daemon/core/model/upgrade.h"
#include "daemon/core/ticket/states.h"
#include "daemon/core/ticket/tickets.h"
#include "daemon/op/op.h"

#include "daemon/base/assert.h"
#include "daemon/base/log.h"

/* After a BREAK its lock is looked at, first after so long. */
#define BREAK_LOOK_US UINT64_C(2000)
#define BREAK_TICKETS 500 /* that are looked at; holders come first */

static struct text
request_word(const struct request_line *line, enum request_key key)
{
    return request_has(line, key) ? line->word[key] : TEXT("");
}

static void
request_set_note(struct request *request, const struct request_line *line)
{
    struct text note = request_word(line, REQUEST_KEY_NOTE);

    require(note.len <= sizeof(request->note));
    memcpy(request->note, note.at, note.len);
    request->note_len = (uint8_t)note.len;
}

/* Takes an earlier session over, where that was asked. False: it cannot be; the
 * client was told. */
static bool
hello_resume(
    struct core *core, struct session *session, const struct request_line *line)
{
    bool resume = request_has(line, REQUEST_KEY_RESUME);
    uint64_t generation = request_value(line, REQUEST_KEY_GEN, 0);
    uint8_t id[sizeof(session->id)];
    enum error_code code = ERROR_BADREQ;
    const char *wrong = NULL;

    if (!resume && generation == 0)
        return true;
    if (!resume || generation == 0) {
        wrong = "resume= and gen= go together, from the second connection on";
    } else if (!text_from_hex(line->word[REQUEST_KEY_RESUME], id, sizeof(id))) {
        wrong = "resume= must be a session: 32 hex digits";
    } else {
        code = ERROR_CONFLICT;
        wrong = session_resume(core, session, id, (uint32_t)generation);
    }
    if (wrong == NULL)
        return true;
    if (code == ERROR_BADREQ)
        count(core->counters, COUNTER_requests_bad);
    answer_error(core, session, line->tag, code, wrong);
    return false;
}

void
command_hello(
    struct core *core, struct session *session, const struct request_line *line)
{
    char id[2 * sizeof(session->id)];
    struct text name = request_word(line, REQUEST_KEY_NAME);
    uint64_t heartbeat_ms = request_value(line, REQUEST_KEY_HEARTBEAT, 0);
    uint64_t keep_us = session->keep_us;

    if (request_has(line, REQUEST_KEY_KEEP))
        session->keep_us = us_from_ms(line->value[REQUEST_KEY_KEEP]);
    if (!hello_resume(core, session, line)) {
        session->keep_us = keep_us;
        return;
    }
    if (request_has(line, REQUEST_KEY_REENTER))
        session->no_reentry = line->value[REQUEST_KEY_REENTER] == 0;
    require(name.len <= sizeof(session->client));
    if (name.len > 0) {
        memcpy(session->client, name.at, name.len);
        session->client_len = (uint8_t)name.len;
    }
    if (heartbeat_ms > 0)
        session_heartbeat(core, session, heartbeat_ms * 1000);
    struct reply reply = answer_begin(core, line->tag, "OK");
    text_to_hex(id, session->token, sizeof(session->token));
    reply_pair(&reply, "session", text_make(id, sizeof(id)));
    reply_pair_number(&reply, "proto", PROTO_VERSION);
    reply_pair(&reply, "server", text_from(core->settings.server));
    if (session->heartbeat_us > 0)
        reply_pair_number(&reply, "heartbeat_ms", session->heartbeat_us / 1000);
    if (session->keep_us > 0)
        reply_pair_number(&reply, "keep_ms", session->keep_us / 1000);
    if (session->generation > 1)
        reply_pair_number(&reply, "gen", session->generation);
    answer_times(core, session, &reply);
    answer_end(core, session, &reply);
}

/* Puts a request to the ticket that it is about, old or new. */
static void
command_to_ticket(
    struct core *core, struct request *request, const struct request_line *line)
{
    const char *limit = NULL;
    bool upgrade = request_value(line, REQUEST_KEY_UPGRADE, 0) != 0;
    struct ticket *ticket = (request->command == COMMAND_LOCK ? ticket_for_lock
                             : upgrade ? ticket_obtain_upgrade
                                       : ticket_obtain)(core, request->session,
        line->argument, request_word(line, REQUEST_KEY_OWNER), &limit);

    require(request->ticket == NULL && list_empty(&request->ticket_link));
    if (ticket == NULL) {
        if (request->command == COMMAND_LOCK)
            stats_turned_away(core, line->argument, ERROR_LIMIT);
        request_limit(core, request, limit);
        return;
    }
    request->ticket = ticket;
    list_push_back(&ticket->requests, &request->ticket_link);
    ticket_advance(core, ticket);
}

/* Reads the options of a LOCK. NULL, or the error. */
static const char *
lock_ask(
    const struct core *core, const struct request_line *line, struct ask *ask)
{
    struct text mode = request_word(line, REQUEST_KEY_MODE);
    uint64_t limit = request_value(line, REQUEST_KEY_LIMIT, 0);
    uint64_t permits = request_value(line, REQUEST_KEY_PERMITS, 1);
    bool semaphore = request_has(line, REQUEST_KEY_LIMIT);
    const char *wrong = lock_mode(core, mode, &ask->mode);

    if (wrong != NULL)
        return wrong;
    ask->permits = (uint32_t)permits;
    ask->permits_max = (uint32_t)limit;
    ask->delay_ms = (uint32_t)request_value(line, REQUEST_KEY_DELAY, 0);
    *(line_is_detached(line) ? &ask->detach_ms : &ask->hold_ms) =
        request_value(line, REQUEST_KEY_LEASE, 0);
    if (line_is_detached(line) && line->name_count > 1)
        return "detached=1 takes one name";
    if (semaphore && mode.len > 0)
        return "a semaphore (limit=) has no mode=";
    if (!semaphore && request_has(line, REQUEST_KEY_PERMITS))
        return "permits= needs limit=";
    if (semaphore && limit > 0 && permits > limit)
        return "permits= must be at most limit=";
    return limit_objection(core, line);
}

/* Reads tree=1, after the other options. A single name that has no name above
 * is taken as without tree=1. NULL, or the error. */
static const char *
tree_objection(
    const struct core *core, const struct request_line *line, struct ask *ask)
{
    if (request_value(line, REQUEST_KEY_TREE, 0) == 0)
        return NULL;
    if (core->settings.no_semaphores)
        return "tree=1 is not supported with redis.topology quorum";
    if (line_is_detached(line) || request_has(line, REQUEST_KEY_LIMIT) ||
        ask->mode == MODE_UPGRADABLE)
        return "tree=1 takes neither detached=1 nor limit= nor mode=upgradable";
    for (uint32_t i = 0; i < line->name_count; i++) {
        struct text name = line->names[i];
        if (!name_has_parts(name))
            return "with tree=1, a name must have no empty part: no / at "
                   "its start or end, and no //";
        ask->part = ask->part || name_above(&name);
    }
    return NULL;
}

/*
 * With reenter=0: whether the owner has the lock already, or will when its
 * earlier requests are answered. Requests are carried out in order, so the last
 * one about the lock decides.
 */
static bool
lock_would_reenter(const struct core *core, const struct session *session,
    struct text name, struct text owner)
{
    const struct lock *lock = lock_find(core, name);
    const struct ticket *ticket =
        lock != NULL ? ticket_meant(core, session, lock, owner, 0) : NULL;

    if (ticket == NULL)
        return false;
    for (struct list *link = ticket->requests.prev; link != &ticket->requests;
         link = link->prev) {
        const struct request *last =
            container_of(link, struct request, ticket_link);
        if (last->command == COMMAND_UNLOCK || last->state == REQUEST_ENDED)
            return false;
        if (last->command != COMMAND_RENEW && last->command != COMMAND_NOTE)
            return true;
    }
    return ticket->state == TICKET_HELD && ticket->fate != FATE_UNATTENDED;
}

/* False: it would enter a lock anew, which the client has forbidden. */
static bool
lock_may_enter(
    struct core *core, struct session *session, const struct request_line *line)
{
    struct text owner = request_word(line, REQUEST_KEY_OWNER);

    for (uint32_t i = 0; session->no_reentry && i < line->name_count; i++) {
        if (!lock_would_reenter(core, session, line->names[i], owner))
            continue;
        stats_turned_away(core, line->names[i], ERROR_CONFLICT);
        count(core->counters, COUNTER_refused_conflict);
        struct reply reply;
        answer_error_begin(core, &reply, line->tag, ERROR_CONFLICT);
        if (line->name_count > 1)
            reply_pair(&reply, "name", line->names[i]);
        reply_text(&reply,
            "this owner holds the lock or has asked for it, and HELLO said "
            "reenter=0: use another owner=");
        answer_end(core, session, &reply);
        return false;
    }
    return true;
}

void
command_lock(
    struct core *core, struct session *session, const struct request_line *line)
{
    struct ask ask = {0};
    const char *wrong = detached_objection(line);

    if (wrong == NULL)
        wrong = lock_ask(core, line, &ask);
    if (wrong == NULL)
        wrong = tree_objection(core, line, &ask);
    if (wrong != NULL) {
        count(core->counters, COUNTER_requests_bad);
        answer_error(core, session, line->tag, ERROR_BADREQ, wrong);
        return;
    }
    if (!lock_may_enter(core, session, line))
        return;
    struct request *request = request_admit(core, session, line);
    if (request == NULL) {
        stats_turned_away(core, line->argument, ERROR_LIMIT);
        return;
    }
    request_set_note(request, line);
    request->ask = ask;
    if (request_value(line, REQUEST_KEY_PROGRESS, 0) != 0)
        request->progress = PROGRESS_WANTED;
    request->wanted = request_value(line, REQUEST_KEY_WANTED, 0) != 0;
    request->no_deadlock = request_value(line, REQUEST_KEY_DEADLOCK, 1) == 0;
    if (request_has(line, REQUEST_KEY_WAIT))
        request->wait_us = us_from_ms(line->value[REQUEST_KEY_WAIT]);
    if (line->name_count > 1 || ask.part) {
        multilock_begin(core, request, line);
        return;
    }
    if (request->wait_us > 0 && request->wait_us != NEVER)
        wheel_add(&core->wheel, &request->timer,
            us_add(core->now_us, request->wait_us));
    command_to_ticket(core, request, line);
}

/* Goes on with a hold of an earlier connection of the session. */
void
command_claim(
    struct core *core, struct session *session, const struct request_line *line)
{
    if (session->generation == 1) {
        count(core->counters, COUNTER_requests_bad);
        answer_error(core, session, line->tag, ERROR_BADREQ,
            "CLAIM comes after HELLO resume=");
        return;
    }
    struct request *request = request_admit(core, session, line);
    if (request == NULL)
        return;
    require(request_has(line, REQUEST_KEY_FENCE)); /* commands.def: R(FENCE) */
    request->fence = line->value[REQUEST_KEY_FENCE];
    request->holds = (uint32_t)request_value(line, REQUEST_KEY_HOLDS, 1);
    request->wanted = request_value(line, REQUEST_KEY_WANTED, 0) != 0;
    command_to_ticket(core, request, line);
}

void
command_cancel(
    struct core *core, struct session *session, const struct request_line *line)
{
    char tag[PROTO_TAG_MAX + 1] = "";
    struct request *request;

    require(line->argument.len <= PROTO_TAG_MAX);
    memcpy(tag, line->argument.at, line->argument.len);
    request = request_of_tag(core, session, tag);
    if (request != NULL && request->command == COMMAND_AWAIT) {
        await_cancel(core, request);
        answer_ok(core, session, line);
        return;
    }
    if (request == NULL || request->command != COMMAND_LOCK) {
        answer_error(core, session, line->tag, ERROR_BADREQ,
            "no LOCK or AWAIT with that tag is outstanding");
        return;
    }
    bool ends = request->ticket == NULL
                    ? multilock_cancel(core, request, ERROR_CANCELLED, NULL)
                    : ticket_cancel(core, request->ticket, request,
                          ERROR_CANCELLED, NULL);
    if (ends)
        count(core->counters, COUNTER_waits_cancelled);
    answer_ok(core, session, line);
}

void
command_held(
    struct core *core, struct session *session, const struct request_line *line)
{
    struct request *request = request_admit(core, session, line);

    if (request != NULL)
        listing_held(core, request);
}

/*
 * The soonest deadline of the holds, or one sooner still: where they are many
 * it is looked up now and then, since each PING would cost a walk over all.
 */
static uint64_t
session_least_us(const struct core *core, struct session *session)
{
    uint64_t pause_us = 10 * (uint64_t)session->ticket_count;

    require(session->least_at_us <= core->now_us);
    if (core->now_us < session->least_at_us + pause_us)
        return session->least_us;
    session->least_at_us = core->now_us;
    session->least_us = NEVER;
    session->leased_us = NEVER;
    LIST_EACH (link, &session->tickets) {
        struct ticket *ticket = container_of(link, struct ticket, session_link);
        if (ticket->state == TICKET_HELD)
            ticket_count_deadline(ticket);
    }
    return session->least_us;
}

/* The least that remains of the holds that the client counts on and the broker
 * renews. Beside a lease= it is what remains of the session. */
void
command_ping(
    struct core *core, struct session *session, const struct request_line *line)
{
    struct reply reply = answer_begin(core, line->tag, "OK");

    if (session->held > 0) {
        uint64_t least_us = session_least_us(core, session);
        uint64_t left_us = NEVER;
        if (least_us != NEVER)
            left_us = least_us - us_min(least_us, core->now_us);
        if (least_us != NEVER || session->leased_us != NEVER)
            left_us = us_min(left_us, session_silence_us(core, session));
        require(session->keep_us == 0 || left_us == NEVER ||
                left_us <= session->keep_us); /* DESIGN.md D7.4 */
        if (left_us != NEVER)
            reply_pair_number(&reply, "ttl_ms", left_us / 1000);
    }
    answer_end(core, session, &reply);
}

void
command_pong(
    struct core *core, struct session *session, const struct request_line *line)
{
    (void)core;
    (void)session;
    (void)line;
    /* That it came is all that it says, and session_hear() has heard it. */
}

static const char *
unlock_objection(const struct request_line *line)
{
    bool permits = request_has(line, REQUEST_KEY_PERMITS);

    if (line->name_count > 1 && (request_has(line, REQUEST_KEY_FENCE) ||
                                    permits || line_is_detached(line)))
        return "fence=, permits= and detached= need an UNLOCK of one name";
    if (permits && request_has(line, REQUEST_KEY_DELAY))
        return "delay= needs an UNLOCK without permits=";
    return NULL;
}

static void
unlock_names(
    struct core *core, struct session *session, const struct request_line *line)
{
    struct request *request = request_admit(core, session, line);

    if (request != NULL)
        multilock_unlock(core, request, line);
}

/* UNLOCK, RENEW, NOTE: something is done to a hold that should be there. */
void
command_of_hold(
    struct core *core, struct session *session, const struct request_line *line)
{
    struct lock *lock = lock_find(core, line->argument);
    const char *wrong = unlock_objection(line);
    struct ticket *ticket = NULL;

    if (wrong != NULL) {
        count(core->counters, COUNTER_requests_bad);
        answer_error(core, session, line->tag, ERROR_BADREQ, wrong);
        return;
    }
    if (line->name_count > 1) {
        unlock_names(core, session, line);
        return;
    }
    if (line_is_detached(line)) {
        detached_command(core, session, line);
        return;
    }
    if (lock != NULL)
        ticket = ticket_meant(core, session, lock,
            request_word(line, REQUEST_KEY_OWNER),
            request_value(line, REQUEST_KEY_FENCE, 0));
    if (ticket == NULL) {
        answer_error(core, session, line->tag, ERROR_NOTHELD,
            fence_text(ERROR_NOTHELD, line->command,
                request_value(line, REQUEST_KEY_FENCE, 0)));
        return;
    }
    struct request *request = request_admit(core, session, line);
    if (request == NULL)
        return;
    require(ticket->session == session && ticket->lock == lock);
    request->ticket = ticket;
    request->fence = request_value(line, REQUEST_KEY_FENCE, 0);
    request->ask.hold_ms = request_value(line, REQUEST_KEY_LEASE, 0);
    request_set_note(request, line);
    request->ask.permits =
        (uint32_t)request_value(line, REQUEST_KEY_PERMITS, 0);
    list_push_back(&ticket->requests, &request->ticket_link);
    ticket_advance(core, ticket);
}

void
command_show(
    struct core *core, struct session *session, const struct request_line *line)
{
    struct op *op = command_op(core, session, line, OP_INSPECT);

    if (op == NULL)
        return;
    op->limit = listing_limit(line);
    op->after = request_value(line, REQUEST_KEY_CURSOR, 0);
    require(op->limit <= LISTING_MAX); /* DESIGN.md D13.2 */
    op_submit(core, op);
}

void
command_break(
    struct core *core, struct session *session, const struct request_line *line)
{
    struct op *op = command_op(core, session, line, OP_BREAK);

    if (op == NULL)
        return;
    count(core->counters, COUNTER_orders_break);
    log_write(LOG_WARN, "order_break", log_quoted("lock", line->argument),
        log_word("by", session->short_id), auth_log_user(session));
    op->fence = request_value(line, REQUEST_KEY_FENCE, 0);
    op_submit(core, op);
}

/* `left`: some holders have not let go yet. */
static void
answer_broken(
    struct core *core, struct request *request, bool left, uint64_t delay_ms)
{
    struct reply reply = answer_begin(core, request->tag, "OK");

    require(request->command == COMMAND_BREAK && request->broken != NULL);
    reply_pair_number(&reply, "holders", request->shown);
    if (left)
        reply_pair_number(&reply, "pending", 1);
    if (delay_ms > 0)
        reply_pair_number(&reply, "delay_ms", delay_ms);
    answer_end(core, request->session, &reply);
    request_free(core, request);
}

void
command_break_done(struct core *core, struct op *op)
{
    struct request *request = slab_get(&core->requests, op->owner);
    enum op_status status = op->result.status;

    require(op->kind == OP_BREAK);
    if (request == NULL)
        return;
    require(request->command == COMMAND_BREAK && request->broken == NULL);
    if (status != OP_OK && status != OP_GONE) {
        request_refuse(core, request,
            status == OP_REFUSED   ? ERROR_INTERNAL
            : status == OP_UNKNOWN ? ERROR_INDOUBT
                                   : ERROR_UNAVAILABLE,
            NULL);
        return;
    }
    request->shown = status == OP_OK ? op->result.ahead : 0;
    request->broken = slab_get(&core->locks, op->lock);
    require(request->broken != NULL);
    lock_ref(request->broken);
    request->began_us = core->now_us;
    if (request->shown == 0) /* there may be a lock-delay all the same */
        command_break_look(core, request);
    else
        wheel_add(&core->wheel, &request->timer, core->now_us + BREAK_LOOK_US);
}

void
command_break_look(struct core *core, struct request *request)
{
    require(request->broken != NULL);
    struct op *op = op_create(core, OP_INSPECT, request->broken,
        slab_handle(&core->requests, request));

    if (op == NULL) {
        answer_broken(core, request, request->shown > 0, 0);
        return;
    }
    op->reader = READER_BREAK;
    op->limit = BREAK_TICKETS;
    op->deadline_us =
        us_add(request->began_us, core->settings.command_timeout_us);
    op_submit(core, op);
}

void
command_break_seen(struct core *core, struct op *op)
{
    struct request *request = slab_get(&core->requests, op->owner);
    const struct op_result *result = &op->result;

    if (request == NULL)
        return;
    require(request->began_us <= core->now_us);
    bool left = request->shown > 0 && result->status != OP_OK &&
                result->status != OP_GONE;
    for (uint32_t i = 0; i < result->ticket_count; i++)
        left =
            left || (result->tickets[i].granted && result->tickets[i].broken);
    uint64_t waited_us = core->now_us - request->began_us;
    if (left && waited_us < core->settings.command_timeout_us)
        wheel_add(&core->wheel, &request->timer,
            core->now_us +
                (waited_us > BREAK_LOOK_US ? waited_us : BREAK_LOOK_US));
    else
        answer_broken(core, request, left, result->delay_ms);
}

void
command_audit(
    struct core *core, struct session *session, const struct request_line *line)
{
    struct request *request = request_admit(core, session, line);

    if (request != NULL && !audit_request(core, request))
        request_refuse(core, request, ERROR_BUSY, "an audit is under way");
}

/* Of those that `by` knows of: sessions of two users may have one ID, and one
 * hash of it, as it is the client that says which one it resumes. `*several`
 * have that hash: which one is meant cannot be known. */
static struct session *
session_of_word(const struct core *core, const struct session *by,
    struct text word, bool *several)
{
    uint8_t id[16];
    bool whole = text_from_hex(word, id, sizeof(id));
    struct session *found = NULL;

    *several = false;
    for (uint32_t i = 0; i < core->sessions.touched; i++) {
        struct session *session = slab_at(&core->sessions, i);
        if (session == NULL || !auth_knows(core, by, session))
            continue;
        if (whole && secret_equal(session->token, id, sizeof(id)))
            return session;
        if (whole || !text_equal_nocase(text_from(session->short_id), word))
            continue;
        *several = found != NULL;
        if (*several)
            break;
        found = session;
    }
    return found;
}

void
command_watch(
    struct core *core, struct session *session, const struct request_line *line)
{
    struct request *request = request_admit(core, session, line);

    if (request != NULL)
        watch_begin(core, request, line);
}

void
command_await(
    struct core *core, struct session *session, const struct request_line *line)
{
    struct request *request = request_admit(core, session, line);

    if (request == NULL)
        return;
    if (request_has(line, REQUEST_KEY_WAIT))
        request->wait_us = us_from_ms(line->value[REQUEST_KEY_WAIT]);
    await_begin(core, request, line);
}

void
command_unwatch(
    struct core *core, struct session *session, const struct request_line *line)
{
    if (watch_end(core, session, line->argument))
        answer_ok(core, session, line);
    else
        answer_error(core, session, line->tag, ERROR_NOTHELD,
            "this session does not watch it");
}

void
command_kill(
    struct core *core, struct session *session, const struct request_line *line)
{
    bool several;
    struct session *other =
        session_of_word(core, session, line->argument, &several);

    if (several) {
        answer_error(core, session, line->tag, ERROR_CONFLICT,
            "several sessions are called that: give the whole ID");
        return;
    }
    if (other == NULL) {
        answer_error(core, session, line->tag, ERROR_NOTHELD,
            "this broker has no such session");
        return;
    }
    count(core->counters, COUNTER_orders_kill);
    log_write(LOG_WARN, "order_kill", log_word("session", other->short_id),
        log_word("by", session->short_id), auth_log_user(session));
    answer_ok(core, session, line);
    session_kill(core, other);
}

void
command_drain(
    struct core *core, struct session *session, const struct request_line *line)
{
    log_write(LOG_WARN, "order_drain", log_word("by", session->short_id),
        auth_log_user(session));
    answer_ok(core, session, line);
    core_stop(core);
    require(core->stopping);
}

void
command_quit(
    struct core *core, struct session *session, const struct request_line *line)
{
    memcpy(session->quit_tag, line->tag, sizeof(session->quit_tag));
    session_close(core, session, SESSION_QUITTING, END_QUIT);
}

enum draining {
    DRAINING_SERVED,
    DRAINING_REFUSED,
};

static void
no_timer(struct core *core, struct request *request)
{
    (void)core;
    (void)request;
    require(false);
}

static const struct {
    void (*serve)(struct core *core, struct session *session,
        const struct request_line *line);
    void (*timer)(struct core *core, struct request *request);
    enum draining draining;
} commands[COMMAND_COUNT] = {

#define COMMAND(id, right, draining, refusal, handler, timer, ...) \
    {handler, timer, DRAINING_##draining},
#include "proto/commands.def"
};

void
command_timer(struct core *core, struct request *request)
{
    require(request->command < COMMAND_COUNT);
    commands[request->command].timer(core, request);
}

static void
command_run(
    struct core *core, struct session *session, const struct request_line *line)
{
    require(line->command < COMMAND_COUNT);
    if (core->settings.users != NULL && !auth_permits(core, session, line))
        return;
    if (core->stopping &&
        commands[line->command].draining == DRAINING_REFUSED) {
        if (line->command == COMMAND_LOCK)
            stats_turned_away(core, line->argument, ERROR_DRAINING);
        answer_error(core, session, line->tag, ERROR_DRAINING, NULL);
        return;
    }
    commands[line->command].serve(core, session, line);
}

void
command_line(struct core *core, struct session *session, char *line, size_t len)
{
    struct request_line parsed;
    struct request_error error;

    if (!session_is_open(session))
        return;
    switch (
        request_parse(line, len, core->settings.name_max, &parsed, &error)) {
    case REQUEST_BLANK:
        return;
    case REQUEST_BAD:
        count(core->counters, COUNTER_requests);
        count(core->counters, COUNTER_requests_bad);
        answer_error(core, session, parsed.tag, error.code, error.what);
        return;
    case REQUEST_OK:
        break;
    }
    count(core->counters, COUNTER_requests);
    if (parsed.tag[0] != '\0' &&
        request_of_tag(core, session, parsed.tag) != NULL) {
        count(core->counters, COUNTER_requests_bad);
        answer_error(core, session, parsed.tag, ERROR_BADREQ,
            "a request with that tag is outstanding");
        return;
    }
    command_run(core, session, &parsed);
    if (parsed.command == COMMAND_AUTH)
        explicit_bzero(line, len);
}

/*
 * The core's front: memory taken once, events handed to the files that know,
 * time. See core.h for what it promises and state.h for what it is made of.
 */
#include "daemon/core/core.h"

#include "daemon/core/answer/answer.h"
#include "daemon/core/command/command.h"
#include "daemon/core/command/session.h"
#include "daemon/core/feature/audit.h"
#include "daemon/core/feature/deadlock.h"
#include "daemon/core/feature/listing.h"
#include "daemon/core/feature/members.h"
#include "daemon/core/feature/message.h"
#include "daemon/core/feature/releases.h"
#include "daemon/core/feature/watch.h"
#include "daemon/core/model/hooks.h"
#include "daemon/core/model/lock.h"
#include "daemon/core/model/op_pool.h"
#include "daemon/core/model/part.h"
#include "daemon/core/model/session_table.h"
#include "daemon/core/model/stats.h"
#include "daemon/core/ticket/states.h"
#include "daemon/core/ticket/tickets.h"
#include "daemon/op/op.h"

#include "daemon/base/assert.h"

#include <stdlib.h>

/* A turn that took longer than this was a stall: nobody's silence counts. */
#define STALL_US 500000
/* Of tickets and timers no more than this are seen to between two looks at the
 * time, so that a turn is short however many there are. */
#define PORTION 256
/* After a change of Redis, the broker asks about all tickets within this time,
 * and a little more for each. */
#define CHANGED_US      1000000
#define CHANGED_EACH_US 200

static const struct ticket_hooks ticket_hooks = {
    .waits = deadlock_waits,
    .search = deadlock_search,
    .held = deadlock_held,
    .ends = part_unheld,
    .wanted = watch_wanted,
    .unwanted = watch_unwanted,
    .lost = recent_lost,
    .released = releases_note,
};

static bool
core_take_memory(struct core *core)
{
    const struct core_settings *s = &core->settings;
    uint32_t repeats = s->releases_kept > 0 ? RELEASES_KINDS * RELEASES_OUT : 0;
    uint32_t ops = 4 * s->tickets_max + s->requests_max + repeats;
    uint32_t locks = 2 * s->tickets_max + s->requests_max + repeats;
    uint32_t sessions = core_sessions_room(s);

    return slab_init(&core->sessions, sizeof(struct session), sessions) &&
           slab_init(&core->locks, sizeof(struct lock), locks) &&
           slab_init(&core->tickets, sizeof(struct ticket), s->tickets_max) &&
           slab_init(
               &core->requests, sizeof(struct request), s->requests_max) &&
           slab_init(&core->ops, sizeof(struct op), ops) &&
           slab_init(&core->behind, sizeof(struct behind), BEHIND_MAX) &&
           slab_init(
               &core->watches, sizeof(struct watch), 2 * s->tickets_max) &&
           slab_init(
               &core->multilocks, sizeof(struct multilock), s->requests_max) &&
           table_init(&core->lock_table, s->tickets_max) &&
           table_init(&core->ticket_table, s->tickets_max) &&
           table_init(&core->tag_table, s->requests_max) &&
           table_init(&core->session_table, sessions) && auth_init(core) &&
           owner_init(core) && releases_init(core) && audit_init(core) &&
           top_init(core) && inspections_init(core) && message_init(core);
}

struct core *
core_create(const struct core_settings *settings, struct counters *counters,
    uint64_t now_us)
{
    struct core *core = calloc(1, sizeof(*core));

    if (core == NULL)
        return NULL;
    core->settings = *settings;
    core->hooks = &ticket_hooks;
    core->counters = counters;
    core->now_us = now_us;
    core->awake_us = now_us;
    core->stop_us = NEVER;
    core->portion = PORTION;
    if (core->settings.slow_us == 0)
        core->settings.slow_us = NEVER;
    core->hash_key.word[0] = settings->hash_seed[0];
    core->hash_key.word[1] = settings->hash_seed[1];
    namespaces_init(
        &core->namespaces, settings->namespaces, settings->namespace_count);
    core->settings.namespaces = NULL;
    random_init(&core->random, settings->seed);
    wheel_init(&core->wheel, now_us);
    list_init(&core->stirred);
    list_init(&core->bulk);
    list_init(&core->telling);
    list_init(&core->ending);
    if (!core_take_memory(core))
        core_destroy(&core);
    return core;
}

void
core_configure(struct core *core, const struct core_settings *settings)
{
    struct core_settings *own = &core->settings;

    require(core->effects == NULL); /* DESIGN.md D13.2: between steps */
    own->redis_timeout_us = settings->redis_timeout_us;
    own->command_timeout_us = settings->command_timeout_us;
    own->stop_grace_us = settings->stop_grace_us;
    auth_set_timeout(core, settings->auth_us);
    own->output_max = settings->output_max;
    own->outstanding_max = settings->outstanding_max;
    own->holds_max = settings->holds_max;
    own->address_connections_max = settings->address_connections_max;
    own->user_connections_max = settings->user_connections_max;
    own->user_holds_max = settings->user_holds_max;
    require((own->users == NULL) == (settings->users == NULL));
    if (own->users != settings->users)
        auth_set_users(core, settings->users);
    top_set_namespaces(core, settings->namespaces, settings->namespace_count);
    audit_set_limits(core, settings->audit_limits);
}

void
core_set_health(struct core *core, const struct health *health)
{
    require(core->effects == NULL);
    core->health = health;
}

void
core_destroy(struct core **core)
{
    if (*core == NULL)
        return;
    require((*core)->effects == NULL);
    table_abandon(&(*core)->lock_table);
    table_abandon(&(*core)->ticket_table);
    table_abandon(&(*core)->tag_table);
    table_abandon(&(*core)->session_table);
    auth_fini(*core);
    owner_fini(*core);
    releases_fini(*core);
    audit_fini(*core);
    top_fini(*core);
    inspections_fini(*core);
    message_fini(*core);
    slab_fini(&(*core)->sessions);
    slab_fini(&(*core)->behind);
    slab_fini(&(*core)->locks);
    slab_fini(&(*core)->tickets);
    slab_fini(&(*core)->requests);
    slab_fini(&(*core)->ops);
    slab_fini(&(*core)->multilocks);
    slab_fini(&(*core)->watches);
    free(*core);
    *core = NULL;
}

static void
core_inspected(struct core *core, struct op *op)
{
    switch (op->reader) {
    case READER_REQUEST:
        listing_show_done(core, op);
        return;
    case READER_BREAK:
        command_break_seen(core, op);
        return;
    case READER_WATCH:
        watch_inspected(core, op);
        return;
    case READER_DEADLOCK:
        inspections_done(core, op);
        return;
    case READER_AUDIT:
        audit_inspected(core, op);
        return;
    }
    require(false);
}

/* A message of another broker, or of a script. */
static void
core_news(struct core *core, struct text news)
{
    if (news.len == 0)
        return;
    if (news.at[0] == 'W')
        watch_hint(core, text_make(news.at + 1, news.len - 1));
    else if (news.at[0] == 'I')
        watch_called(core, text_make(news.at + 1, news.len - 1));
    else if (news.at[0] == 'T')
        watch_waits(core, text_make(news.at + 1, news.len - 1));
    else if (news.at[0] == 'M')
        session_moved(core, text_make(news.at + 1, news.len - 1));
    else if (news.at[0] == 'Q' || news.at[0] == 'A')
        audit_news(core, news);
    else
        deadlock_message(core, news);
}

/* Takes the news of a result about its lock and other tickets. */
static void
core_lock_op_done(struct core *core, const struct op *op)
{
    const struct op_result *result = &op->result;
    struct lock *lock = slab_get(&core->locks, op->lock);

    require(lock != NULL && op->began_us <= core->now_us);
    require(result->grant_count == 0 || result->grants != NULL);
    if (core->now_us - op->began_us >= core->settings.slow_us)
        recent_slow(core, op);
    for (uint32_t i = 0; i < result->grant_count; i++)
        ticket_granted_by_the_way(core, &result->grants[i], result->sent_us);
    if (result->more)
        lock_ask_at(core, lock, core->now_us);
    if (result->handed)
        lock_ask_after_expiry(core, lock);
    if (result->status == OP_OK && result->again_ms > 0 &&
        (op->kind == OP_RELEASE || op->kind == OP_LOOK ||
            op->kind == OP_UNLOCK_DETACHED))
        lock_ask_at(
            core, lock, core->now_us + us_from_ms(result->again_ms) + 20000);
    enum op_owner owner = op_owner(op);
    if (result->status == OP_UNKNOWN &&
        (owner == OP_OF_TICKET || owner == OP_OF_LOCK))
        lock_refresh_soon(core, lock);
}

/* The last of an operation, by op.def. */

static void
core_released(struct core *core, struct op *op)
{
    if (op->repeats)
        releases_answered(core, op);
    else
        ticket_done(core, op);
}

static void
core_looked(struct core *core, struct op *op)
{
    struct lock *lock = slab_get(&core->locks, op->lock);
    enum op_status status = op->result.status;

    require(lock != NULL);
    if (op->members)
        members_looked(core, lock);
    if (op->watch)
        watch_looked(core, lock, status);
    if (status == OP_UNSENT || status == OP_UNKNOWN)
        lock_ask_at(core, lock, core->now_us + us_from_ms(CORE_EXPIRY_MS));
}

static void
core_broken(struct core *core, struct op *op)
{
    if (op->result.fence > 0)
        releases_note_detached(core, op);
    if (op->reader == READER_AUDIT)
        audit_broken(core, op);
    else
        command_break_done(core, op);
}

/* It is out, or is not. */
static void
message_sent(struct core *core, struct op *op)
{
    struct message *message = slab_get(&core->messages, op->owner);

    require(message != NULL && message->len > 0);
    if (op->result.status == OP_OK)
        question_told(core, text_make(message->words, message->len));
    slab_free(&core->messages, message);
}

static void
core_op_done(struct core *core, struct op *op)
{
    static void (*const done[OP_KIND_COUNT])(struct core *, struct op *) = {

#define OP(id, word, owner, done, ...) done,
#include "daemon/op/op.def"
    };

    if (op_owner(op) != OP_OF_AUDIT)
        core_lock_op_done(core, op);
    done[op->kind](core, op);
    op_free(core, op);
}

static void
core_unheard(struct core *core)
{
    for (uint32_t i = 0; i < core->tickets.touched; i++) {
        struct ticket *ticket = slab_at(&core->tickets, i);
        if (ticket == NULL)
            continue;
        if (ticket->state == TICKET_ASKING ||
            !handle_equal(ticket->renew_op, HANDLE_NONE))
            ticket->hinted = true; /* the answer may be older */
        else if (ticket->state == TICKET_WAITING)
            ticket_refresh_at(core, ticket,
                core->now_us + random_below(&core->random, 500000));
    }
}

/* No pause for a hold whose client is away: it cannot come back for the hold
 * before that. Other holds only wait for their deadlines. */
static uint64_t
changed_pause_us(
    struct core *core, const struct ticket *ticket, uint64_t half_us)
{
    bool away = ticket->session != NULL && !session_connected(ticket->session);

    return away || ticket->fate == FATE_UNATTENDED
               ? 0
               : random_below(&core->random, half_us);
}

/* Repairs what the node has lost: releases first, then holds, then waits, about
 * in their order of arrival. */
static void
core_changed(struct core *core)
{
    uint32_t count = core->tickets.touched;
    uint64_t half_us = us_min(CHANGED_US + (uint64_t)count * CHANGED_EACH_US,
                           us_from_ms(core->settings.lease_ms) / 3) /
                       2;

    releases_repeat(core);
    for (uint32_t i = 0; i < count; i++) {
        struct ticket *ticket = slab_at(&core->tickets, i);
        if (ticket != NULL && ticket->state == TICKET_HELD)
            ticket_renew_at(core, ticket,
                core->now_us + changed_pause_us(core, ticket, half_us));
        else if (ticket != NULL && ticket->state == TICKET_WAITING)
            ticket_refresh_at(
                core, ticket, core->now_us + half_us + half_us * i / count);
    }
}

static void
core_request_timer(struct core *core, struct request *request)
{
    if (request->denied)
        auth_end_wait(core, request);
    else
        command_timer(core, request);
}

static void
core_timer(struct core *core, struct wheel_node *node)
{
    switch ((enum timer_kind)node->kind) {
    case TIMER_SESSION:
        session_timer(core, container_of(node, struct session, timer));
        return;
    case TIMER_TICKET:
        ticket_timer(core, container_of(node, struct ticket, timer));
        return;
    case TIMER_REQUEST:
        core_request_timer(core, container_of(node, struct request, timer));
        return;
    case TIMER_LOCK:
        lock_timer(core, container_of(node, struct lock, timer));
        return;
    case TIMER_WATCH:
        watch_timer(core, container_of(node, struct lock, watch_timer));
        return;
    case TIMER_RELEASES:
        releases_timer(core, container_of(node, struct releases, timer));
        return;
    case TIMER_AUDIT:
        audit_timer(core);
        return;
    case TIMER_INSPECTION:
        inspections_timer(core, node);
        return;
    case TIMER_INSPECTIONS:
        return; /* they are sent when the step ends */
    }
    require(false);
}

/* Whether a step has left something to a later one. */
static bool
core_owes(const struct core *core)
{
    return !list_empty(&core->stirred) || !list_empty(&core->bulk) ||
           !list_empty(&core->telling) || !list_empty(&core->ending);
}

/* Does, at the end of a step, what was put off until no caller is on the way;
 * as much as there is room for. */
static void
core_settle(struct core *core)
{
    while (core_owes(core)) {
        ticket_advance_stirred(core);
        watch_tell_all(core);
        session_end_all(core);
        if (core->portion == 0 || !effects_room(core->effects))
            return;
    }
}

static void
core_time(struct core *core, struct core_event *event)
{
    struct wheel_node *node = NULL;
    uint32_t timers = PORTION; /* their own: nothing makes them late */

    if (core->stopping && core->stop_us != 0 && core->now_us >= core->stop_us)
        core_stop_grace_over(core);
    core_settle(core);
    while (timers > 0 && effects_room(core->effects) &&
           (node = wheel_pop(&core->wheel, core->now_us)) != NULL) {
        timers--;
        core_timer(core, node);
        core_settle(core);
    }
    event->more = node != NULL || core->portion == 0 || core_owes(core);
}

/* The next part of the oldest HELD; another one has its turn after it. */
static void
core_more(struct core *core, struct session *session)
{
    bool served = false;

    watch_flush(core, session);
    LIST_EACH_SAFE (link, &session->requests) {
        struct request *request =
            container_of(link, struct request, session_link);
        if (request->command != COMMAND_HELD)
            continue;
        if (served) {
            effects_add(core->effects, EFFECT_MORE,
                slab_handle(&core->sessions, session));
            return;
        }
        listing_held(core, request);
        served = true;
    }
}

static void
core_too_long(
    struct core *core, struct session *session, const struct core_event *event)
{
    char tag[PROTO_TAG_MAX + 1];

    session_hear(core, session);
    count(core->counters, COUNTER_requests);
    count(core->counters, COUNTER_lines_too_long);
    (void)request_tag(event->line.at, event->line.len, tag);
    if (line_foreign(event->line.at, event->line.len))
        session_expel(core, session, EXPEL_PROTOCOL);
    else if (session_is_open(session) &&
             !auth_keeps_back(
                 core, session, event->line.at, event->line.len, true))
        answer_error(core, session, tag, ERROR_TOOLONG, NULL);
}

static void
core_session_event(struct core *core, struct core_event *event)
{
    struct session *session = slab_get(&core->sessions, event->session);

    if (session == NULL || !session_connected(session))
        return;
    if (event->kind == CORE_LINE) {
        session_hear(core, session);
        if (line_foreign(event->line.at, event->line.len))
            session_expel(core, session, EXPEL_PROTOCOL);
        else if (!auth_keeps_back(
                     core, session, event->line.at, event->line.len, false))
            command_line(core, session, event->line.at, event->line.len);
    } else if (event->kind == CORE_TOO_LONG) {
        core_too_long(core, session, event);
    } else if (event->kind == CORE_BYTES) {
        session_hear(core, session);
    } else if (event->kind == CORE_MORE) {
        core_more(core, session);
    } else if (event->kind == CORE_EOF) {
        session_eof(core, session);
    } else if (event->kind == CORE_DROP) {
        session_drop(core, session, COUNTER_closed_dropped);
    } else {
        require(event->kind == CORE_EXPEL);
        session_expel(core, session, event->expel);
    }
}

static void
core_watch_clock(struct core *core, uint64_t now_us)
{
    if (now_us < core->now_us)
        return;
    if (now_us - core->now_us > STALL_US && core->wheel.count > 0 &&
        wheel_next_us(&core->wheel) + STALL_US < now_us) {
        count(core->counters, COUNTER_loop_stalls);
        core->awake_us = now_us;
    }
    core->now_us = now_us;
}

void
core_step(struct core *core, uint64_t now_us, struct core_event *event,
    struct effects *effects)
{
    require(core->effects == NULL);
    require(effects_room(effects));
    core->effects = effects;
    if (event->kind == CORE_TIME)
        core->portion = PORTION;
    core_watch_clock(core, now_us);
    switch (event->kind) {
    case CORE_OPEN:
        session_open(core, event);
        break;
    case CORE_LINE:
    case CORE_TOO_LONG:
    case CORE_BYTES:
    case CORE_MORE:
    case CORE_EOF:
    case CORE_DROP:
    case CORE_EXPEL:
        core_session_event(core, event);
        break;
    case CORE_DONE:
        core_op_done(core, event->op);
        break;
    case CORE_HINT:
        count(core->counters, COUNTER_hints);
        ticket_hint(core, event->hint.request);
        break;
    case CORE_BROKEN:
        ticket_broken(core, event->hint.request, event->hint.fence);
        break;
    case CORE_NEWS:
        core_news(core, event->news);
        break;
    case CORE_MEMBERS:
        members_told(core, event->members);
        break;
    case CORE_UNHEARD:
        watch_unheard(core);
        core_unheard(core);
        break;
    case CORE_CHANGED:
        core_changed(core);
        break;
    case CORE_TIME:
        core_time(core, event);
        break;
    case CORE_STOP:
        core_stop(core);
        break;
    }
    core_settle(core);
    inspections_send(core);
    require(core->portion <= PORTION && core->awake_us <= core->now_us);
    core->effects = NULL;
}

uint64_t
core_next_us(const struct core *core)
{
    uint64_t next_us = core_owes(core) ? 0 : wheel_next_us(&core->wheel);

    require(core->effects == NULL); /* DESIGN.md D13.2: between steps */
    if (core->stopping && core->stop_us != 0)
        next_us = us_min(next_us, core->stop_us);
    return next_us;
}

static void
check_ticket(const struct core *core, const struct ticket *ticket)
{
    struct request *request =
        ticket->session == NULL
            ? NULL
            : container_of(ticket->requests.next, struct request, ticket_link);
    bool gone =
        ticket->session != NULL && ticket->session->state == SESSION_GONE;

    ticket_check(ticket);
    if (!gone)
        part_check(core, ticket);
    require(ticket->lock->refs > 0);
    if (ticket->state == TICKET_IDLE && !gone)
        require(ticket->session != NULL && !list_empty(&ticket->requests) &&
                (request_stands(request) || !list_empty(&ticket->stir_link)));
    if (ticket->state == TICKET_HELD)
        require(wheel_node_set(&ticket->timer));
    if (ticket->state == TICKET_WAITING) /* DESIGN.md D10.3 */
        require(
            !handle_equal(ticket->renew_op, HANDLE_NONE) ||
            (ticket->refresh_us != NEVER && wheel_node_set(&ticket->timer)));
    if (ticket->state == TICKET_LEAVING)
        require(!handle_equal(ticket->main_op, HANDLE_NONE) ||
                wheel_node_set(&ticket->timer));
    if (ticket->state == TICKET_WAITING && ticket->fate != FATE_UNATTENDED &&
        !gone)
        require(request != NULL && !list_empty(&ticket->requests) &&
                request->state != REQUEST_QUEUED);
    if (ticket->session == NULL || gone)
        require(list_empty(&ticket->requests));
    const struct session *session = ticket->session;
    if (ticket->state == TICKET_HELD && ticket->fate != FATE_UNATTENDED) {
        require(session != NULL);
        require((ticket->ask.hold_ms > 0
                        ? session->leased_us
                        : session->least_us) <= ticket->deadline_us);
    }
}

static void
check_request(const struct core *core, const struct request *request)
{
    bool member = request->member != MEMBER_NONE;

    require(request->session != NULL && request->session->request_count > 0);
    require(list_empty(&request->ticket_link) == (request->ticket == NULL));
    if (request->state != REQUEST_QUEUED)
        require(request->ticket != NULL && !request_stands(request));
    if (member)
        require((request->member == MEMBER_RELEASES
                        ? request->command == COMMAND_UNLOCK
                        : request->command == COMMAND_LOCK) &&
                (request->ticket != NULL || request_stands(request)) &&
                multilock_of(core, request) != NULL);
}

/* The counts of sessions and locks agree with their lists. */
static void
check_counts(const struct core *core)
{
    uint32_t away = 0;

    for (uint32_t i = 0; i < core->sessions.touched; i++) {
        const struct session *session = slab_at(&core->sessions, i);
        uint32_t held = 0;
        uint32_t waiting = 0;
        if (session == NULL)
            continue;
        session_check(core, session);
        away += !session_connected(session);
        LIST_EACH (link, &session->tickets) {
            const struct ticket *ticket =
                container_of(link, struct ticket, session_link);
            held += ticket->state == TICKET_HELD;
            waiting += ticket->state == TICKET_WAITING;
        }
        require(held == session->held && waiting == session->waiting);
    }
    require(away == core->away);
    for (uint32_t i = 0; i < core->locks.touched; i++) {
        const struct lock *lock = slab_at(&core->locks, i);
        uint32_t waiting = 0;
        if (lock == NULL)
            continue;
        watch_check(core, lock);
        LIST_EACH (link, &lock->tickets) {
            const struct ticket *ticket =
                container_of(link, struct ticket, lock_link);
            waiting += ticket->state == TICKET_WAITING;
        }
        require(waiting == lock->waiting);
    }
}

void
core_check(const struct core *core)
{
    uint32_t held = 0;
    uint32_t waiting = 0;

    require(core->effects == NULL);
    for (uint32_t i = 0; i < core->tickets.touched; i++) {
        const struct ticket *ticket = slab_at(&core->tickets, i);
        if (ticket == NULL)
            continue;
        check_ticket(core, ticket);
        held += ticket->state == TICKET_HELD;
        waiting += ticket->state == TICKET_WAITING;
    }
    for (uint32_t i = 0; i < core->requests.touched; i++) {
        const struct request *request = slab_at(&core->requests, i);
        if (request != NULL)
            check_request(core, request);
    }
    require(held == core->held && waiting == core->waiting);
    check_counts(core);
    require(core->lock_table.count == core->locks.used);
    auth_check(core);
    audit_check(core);
    owner_check(core);
    inspections_check(core);
    top_check(core);
    wheel_check(&core->wheel);
}

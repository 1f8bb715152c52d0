/*
 * SHOW, HELD, LOCKS, SESSIONS, STATS, HELP: reading, for people and programs
 * that look. Nothing here changes a lock.
 *
 * Lists are bounded: LOCKS and SESSIONS by limit= and cursor=, SHOW by limit=,
 * and HELD comes in parts, each when the client has read the one before.
 */
#include "daemon/core/feature/listing.h"

#include "daemon/core/answer/answer.h"
#include "daemon/core/model/handlers.h"
#include "daemon/core/model/request.h"
#include "daemon/core/model/session_table.h"
#include "daemon/core/model/ticket.h"
#include "daemon/core/ticket/tickets.h"
#include "daemon/op/op.h"

#include "daemon/base/assert.h"

#include <stdio.h>

/* Places that one part of a list looks at; a part may so be short, or empty. */
#define LISTING_LOOKS 16384

static uint32_t
listing_cursor(const struct request_line *line)
{
    uint64_t cursor = request_value(line, REQUEST_KEY_CURSOR, 0);

    return cursor < UINT32_MAX ? (uint32_t)cursor : UINT32_MAX;
}

static void
show_ticket(struct core *core, const struct request *request,
    const struct op_ticket *ticket, uint64_t position)
{
    struct reply reply = answer_begin(core, request->tag, "ITEM");
    char short_id[SHORT_ID_BYTES + 1];

    core_short_id(ticket->session, short_id);
    reply_pair(
        &reply, "kind", ticket->granted ? TEXT("holder") : TEXT("waiter"));
    if (!ticket->granted)
        reply_pair_number(&reply, "position", position);
    reply_pair(&reply, "session", text_from(short_id));
    reply_pair(&reply, "broker", text_from(ticket->broker));
    if (ticket->permits > 1)
        reply_pair_number(&reply, "permits", ticket->permits);
    reply_mode(&reply, ticket->mode);
    if (ticket->part)
        reply_pair_number(&reply, "tree", 1);
    if (ticket->broken)
        reply_pair_number(&reply, "broken", 1);
    if (ticket->detached)
        reply_pair_number(&reply, "detached", 1);
    if (ticket->granted) {
        reply_pair_number(&reply, "fence", ticket->fence);
        reply_pair_number(&reply, "ttl_ms", ticket->ttl_ms);
        if (ticket->leased || !ticket->broken)
            reply_lease(&reply, ticket->leased, ticket->lease_ms);
    }
    reply_pair_number(&reply, "age_ms", ticket->age_ms);
    reply_pair_if(&reply, "name", ticket->client);
    reply_pair_if(&reply, "owner", ticket->owner);
    reply_pair_if(&reply, "note", ticket->note);
    answer_end(core, request->session, &reply);
}

static struct text
show_mode(const struct op_result *result)
{
    if (result->limit > 0)
        return TEXT("semaphore");
    return mode_name(result->mode);
}

void
listing_show_done(struct core *core, struct op *op)
{
    struct request *request = slab_get(&core->requests, op->owner);
    const struct op_result *result = &op->result;
    uint64_t position = result->place;

    require(op->kind == OP_INSPECT && op->reader == READER_REQUEST);
    if (request == NULL)
        return;
    if (result->status != OP_OK && result->status != OP_GONE) {
        bool refused = result->status == OP_REFUSED;
        request_refuse(
            core, request, refused ? ERROR_INTERNAL : ERROR_UNAVAILABLE, NULL);
        return;
    }
    for (uint32_t i = 0; i < result->ticket_count; i++) {
        if (!result->tickets[i].granted)
            position++;
        show_ticket(core, request, &result->tickets[i], position);
    }
    struct reply reply = answer_begin(core, request->tag, "OK");
    bool held = result->holders > 0;
    reply_pair(&reply, "state", held ? TEXT("held") : TEXT("free"));
    if (held)
        reply_pair(&reply, "mode", show_mode(result));
    if (result->limit > 0) {
        reply_pair_number(&reply, "limit", result->limit);
        reply_pair_number(&reply, "permits", result->used);
    }
    reply_pair_number(&reply, "holders", result->holders);
    reply_pair_number(&reply, "waiters", result->waiters);
    if (result->delay_ms > 0)
        reply_pair_number(&reply, "delay_ms", result->delay_ms);
    if (result->ahead > 0 && result->ticket_count > 0)
        reply_pair_number(&reply, "cursor",
            result->tickets[result->ticket_count - 1].arrival);
    answer_end(core, request->session, &reply);
    request_free(core, request);
}

static void
held_item(struct core *core, const struct request *request,
    const struct ticket *ticket)
{
    struct reply reply = answer_begin(core, request->tag, "ITEM");

    require(ticket->fence > 0);
    reply_pair(
        &reply, "name", text_make(ticket->lock->name, ticket->lock->name_len));
    reply_pair_number(&reply, "fence", ticket->fence);
    reply_pair_number(&reply, "ttl_ms", ticket_ttl_ms(core, ticket));
    reply_pair_number(&reply, "count", ticket_known_holds(ticket));
    answer_lease(core, &reply, ticket);
    listing_kind(&reply, &ticket->ask);
    reply_pair_if(&reply, "owner", ticket_owner(ticket));
    reply_pair_if(&reply, "note", ticket_note(ticket));
    answer_end(core, request->session, &reply);
}

void
listing_held(struct core *core, struct request *request)
{
    struct session *session = request->session;
    uint32_t part = 0;

    require(request->command == COMMAND_HELD);
    LIST_EACH (link, &session->tickets) {
        struct ticket *ticket = container_of(link, struct ticket, session_link);
        if (ticket->serial <= request->cursor || ticket->state != TICKET_HELD ||
            ticket_known_holds(ticket) == 0)
            continue;
        if (part == LISTING_MAX) {
            effects_add(core->effects, EFFECT_MORE,
                slab_handle(&core->sessions, session));
            return;
        }
        held_item(core, request, ticket);
        request->cursor = ticket->serial;
        request->shown++;
        part++;
    }
    listing_end(core, session, request->tag, request->shown, 0);
    request_free(core, request);
}

static void
locks_item(struct core *core, struct session *session, const char *tag,
    const struct lock *lock)
{
    const struct ticket *holder = NULL;
    uint32_t holders = 0;
    LIST_EACH (link, &lock->holders) {
        if (holders++ == 0)
            holder = container_of(link, struct ticket, holder_link);
    }
    require(holder == NULL || holder->state == TICKET_HELD);
    require(holders > 0 || lock->waiting > 0);
    struct reply reply = answer_begin(core, tag, "ITEM");
    reply_pair(&reply, "name", text_make(lock->name, lock->name_len));
    reply_pair(&reply, "state", holders > 0 ? TEXT("held") : TEXT("waiting"));
    reply_pair_number(&reply, "holders", holders);
    reply_pair_number(&reply, "waiters", lock->waiting);
    if (holder != NULL && holder->session != NULL) {
        reply_pair(&reply, "session", text_from(holder->session->short_id));
        reply_pair_number(&reply, "fence", holder->fence);
        reply_pair_number(
            &reply, "age_ms", (core->now_us - holder->granted_us) / 1000);
        listing_kind(&reply, &holder->ask);
        reply_pair_if(&reply, "client", ticket_client(holder));
        reply_pair_if(&reply, "owner", ticket_owner(holder));
        reply_pair_if(&reply, "note", ticket_note(holder));
    }
    answer_end(core, session, &reply);
}

/* Whether LOCKS lists the lock: in use, of that prefix, and for the user to
 * see. */
static bool
locks_lists(const struct core *core, const struct session *session,
    const struct request_line *line, const struct lock *lock)
{
    struct text name = text_make(lock->name, lock->name_len);

    if (list_empty(&lock->holders) && lock->waiting == 0)
        return false;
    if (request_has(line, REQUEST_KEY_PREFIX) &&
        !text_starts_with(name, line->word[REQUEST_KEY_PREFIX]))
        return false;
    return auth_sees(core, session, name);
}

void
listing_locks(
    struct core *core, struct session *session, const struct request_line *line)
{
    uint32_t limit = listing_limit(line);
    uint32_t looked = 0;
    uint32_t shown = 0;

    for (uint32_t i = listing_cursor(line); i < core->locks.touched; i++) {
        const struct lock *lock = slab_at(&core->locks, i);
        if (lock != NULL && !locks_lists(core, session, line, lock))
            lock = NULL;
        if (looked++ == LISTING_LOOKS || (lock != NULL && shown == limit)) {
            listing_end(core, session, line->tag, shown, i);
            return;
        }
        if (lock == NULL)
            continue;
        locks_item(core, session, line->tag, lock);
        shown++;
    }
    listing_end(core, session, line->tag, shown, 0);
}

static void
sessions_item(struct core *core, struct session *to, const char *tag,
    const struct session *session)
{
    require(session->held + session->waiting <= session->ticket_count);
    require(session->heard_us >= session->opened_us);
    struct reply reply = answer_begin(core, tag, "ITEM");
    reply_pair(&reply, "session", text_from(session->short_id));
    reply_pair_if(
        &reply, "name", text_make(session->client, session->client_len));
    reply_pair_if(&reply, "user", auth_name(session));
    reply_pair(&reply, "peer", text_from(session->peer));
    reply_pair_number(
        &reply, "age_ms", (core->now_us - session->opened_us) / 1000);
    reply_pair_number(
        &reply, "idle_ms", (core->now_us - session->heard_us) / 1000);
    reply_pair_number(&reply, "holds", session->held);
    reply_pair_number(&reply, "waits", session->waiting);
    if (!session_connected(session))
        reply_pair_number(&reply, "away", 1);
    answer_end(core, to, &reply);
}

void
listing_sessions(
    struct core *core, struct session *session, const struct request_line *line)
{
    uint32_t limit = listing_limit(line);
    uint32_t looked = 0;
    uint32_t shown = 0;

    for (uint32_t i = listing_cursor(line); i < core->sessions.touched; i++) {
        const struct session *other = slab_at(&core->sessions, i);
        if (other != NULL && !auth_knows(core, session, other))
            other = NULL;
        if (looked++ == LISTING_LOOKS || (other != NULL && shown == limit)) {
            listing_end(core, session, line->tag, shown, i);
            return;
        }
        if (other == NULL)
            continue;
        sessions_item(core, session, line->tag, other);
        shown++;
    }
    listing_end(core, session, line->tag, shown, 0);
}

static void
stats_item(struct core *core, struct session *session, const char *tag,
    const char *name, uint64_t value)
{
    struct reply reply = answer_begin(core, tag, "ITEM");

    reply_pair(&reply, "name", text_from(name));
    reply_pair_number(&reply, "value", value);
    answer_end(core, session, &reply);
}

void
listing_stats(
    struct core *core, struct session *session, const struct request_line *line)
{
    struct core_totals totals;

    core_totals(core, &totals);

    const struct {
        const char *name;
        uint32_t value;
    } now[] = {
        {"sessions_now", totals.sessions},
        {"locks_now", totals.locks},
        {"held_now", totals.held},
        {"waiting_now", totals.waiting},
        {"awaiting_now", totals.awaiting},
        {"tickets_now", totals.tickets},
        {"requests_now", totals.requests},
        {"operations_now", totals.ops},
    };

    uint32_t n = sizeof(now) / sizeof(now[0]);

    for (uint32_t i = 0; i < n; i++)
        stats_item(core, session, line->tag, now[i].name, now[i].value);
    for (enum counter i = 0; i < COUNTER_COUNT; i++)
        stats_item(core, session, line->tag, counter_name(i),
            core->counters->value[i]);
    listing_end(core, session, line->tag, n + COUNTER_COUNT, 0);
}

void
listing_help(
    struct core *core, struct session *session, const struct request_line *line)
{
    for (enum command i = 0; i < COMMAND_COUNT; i++) {
        struct reply reply = answer_begin(core, line->tag, "ITEM");
        char text[600];
        int len = snprintf(
            text, sizeof(text), "%s - %s", command_usage(i), command_help(i));
        require(len > 0 && (size_t)len < sizeof(text));
        reply_pair(&reply, "command", text_from(command_name(i)));
        reply_text(&reply, text);
        answer_end(core, session, &reply);
    }
    listing_end(core, session, line->tag, COMMAND_COUNT, 0);
}

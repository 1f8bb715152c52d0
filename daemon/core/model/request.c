/*
 * Requests without a final reply, and the members of a multi-lock, which are
 * requests, too. Each request gets exactly one reply: request_free() is called
 * after it was sent (final.c), or because there is nobody left to send it to.
 */
#include "daemon/core/model/request.h"

#include "daemon/core/model/state.h"

#include "daemon/core/model/lock.h"
#include "daemon/core/model/part.h"
#include "daemon/core/model/session_table.h"
#include "daemon/core/model/stats.h"
#include "daemon/core/model/ticket.h"

#include "daemon/base/assert.h"

void
request_move(struct request *request, enum request_state state)
{
    static const bool moves[][REQUEST_ENDED + 1] = {
        [REQUEST_QUEUED] = {[REQUEST_QUEUED] = true, [REQUEST_ASKED] = true},
        [REQUEST_ASKED] = {[REQUEST_QUEUED] = true, [REQUEST_ENDED] = true},
        [REQUEST_ENDED] = {false},
    };

    require(moves[request->state][state]);
    request->state = state;
    if (state == REQUEST_QUEUED && request->progress == PROGRESS_TOLD)
        request->progress = PROGRESS_WANTED;
    if (state != REQUEST_QUEUED)
        require(request->ticket != NULL && !request_stands(request));
    if (state == REQUEST_ENDED)
        require(request->command == COMMAND_LOCK);
}

static uint64_t
tag_hash(
    const struct core *core, const struct session *session, const char *tag)
{
    struct {
        struct handle session;
        char tag[PROTO_TAG_MAX + 1];
    } key;

    memset(&key, 0, sizeof(key));
    key.session = slab_handle(&core->sessions, session);
    memcpy(key.tag, tag, strlen(tag));
    return hash_bytes(&core->hash_key, &key, sizeof(key));
}

struct request *
request_of_tag(
    const struct core *core, const struct session *session, const char *tag)
{
    uint64_t hash = tag_hash(core, session, tag);

    for (struct table_node *node = table_first(&core->tag_table, hash);
         node != NULL; node = table_next(node)) {
        struct request *request = container_of(node, struct request, tag_table);
        if (request->session == session && strcmp(request->tag, tag) == 0)
            return request;
    }
    return NULL;
}

struct request *
request_create(
    struct core *core, struct session *session, const struct request_line *line)
{
    struct request *request = slab_alloc(&core->requests);

    if (request == NULL)
        return NULL;
    wheel_node_init(&request->timer, TIMER_REQUEST);
    list_init(&request->ticket_link);
    request->session = session;
    request->command = line->command;
    request->began_us = core->now_us;
    request->wait_us = NEVER;
    request->ask.delay_ms = (uint32_t)request_value(line, REQUEST_KEY_DELAY, 0);
    memcpy(request->tag, line->tag, sizeof(request->tag));
    if (request->tag[0] != '\0')
        table_insert(&core->tag_table, &request->tag_table,
            tag_hash(core, session, request->tag));
    list_push_back(&session->requests, &request->session_link);
    session->request_count++;
    return request;
}

/*
 * The request's connection has ended. In a kept session the members' holds stay
 * for a LOCK that may come again; else they are released with all others.
 */
static void
multilock_abandon(struct core *core, struct request *request)
{
    struct multilock *multilock = multilock_of(core, request);

    request->multilock = HANDLE_NONE;
    if (multilock == NULL)
        return;
    if (request->command == COMMAND_LOCK)
        stats_unheard(core, multilock_member(core, multilock, multilock->got));
    multilock_leave(core, multilock);
    multilock_drop_members(core, multilock);
    slab_free(&core->multilocks, multilock);
}

void
request_free(struct core *core, struct request *request)
{
    struct session *session = request->session;

    require(session->request_count > 0);
    if (!handle_equal(request->multilock, HANDLE_NONE))
        multilock_abandon(core, request);
    if (request->tag[0] != '\0')
        table_remove(&core->tag_table, &request->tag_table);
    wheel_remove(&core->wheel, &request->timer);
    list_remove(&request->ticket_link);
    list_remove(&request->session_link);
    session->request_count--;
    if (request->command == COMMAND_AUTH)
        auth_waited(session);
    if (request->broken != NULL)
        lock_unref(core, request->broken);
    slab_free(&core->requests, request);
    session_check_end(core, session);
}

struct request *
request_create_member(struct core *core, const struct request *parent)
{
    struct request *member = slab_alloc(&core->requests);

    if (member == NULL)
        return NULL;
    wheel_node_init(&member->timer, TIMER_REQUEST);
    list_init(&member->ticket_link);
    member->session = parent->session;
    member->command = parent->command;
    member->multilock = parent->multilock;
    member->member = MEMBER_WAITS;
    member->began_us = parent->began_us;
    member->wait_us = parent->wait_us;
    member->progress = parent->progress;
    member->no_deadlock = parent->no_deadlock;
    member->ask = parent->ask;
    member->ask.hold_ms = 0;
    member->note_len = parent->note_len;
    memcpy(member->note, parent->note, parent->note_len);
    list_push_back(&member->session->requests, &member->session_link);
    member->session->request_count++;
    return member;
}

void
request_begin_member(
    struct core *core, struct request *member, const struct request *parent)
{
    uint64_t end_us = us_add(parent->began_us, parent->wait_us);

    require(member->state == REQUEST_QUEUED && parent->ticket == NULL);
    require(member->member == MEMBER_WAITS);
    member->member = MEMBER_ASKS;
    member->began_us = core->now_us;
    if (parent->wait_us > 0 && end_us != NEVER) {
        member->wait_us = end_us > core->now_us ? end_us - core->now_us : 0;
        wheel_add(&core->wheel, &member->timer, end_us);
    }
}

struct text
multilock_name(const struct multilock *multilock, uint32_t place)
{
    const struct multilock_member *member = &multilock->members[place];

    return text_make(multilock->text + member->offset, member->len);
}

struct multilock *
multilock_of(const struct core *core, const struct request *request)
{
    return slab_get(&core->multilocks, request->multilock);
}

struct request *
multilock_member(
    const struct core *core, const struct multilock *multilock, uint32_t place)
{
    return slab_get(&core->requests, multilock->members[place].request);
}

struct ticket *
multilock_hold(
    const struct core *core, const struct multilock *multilock, uint32_t place)
{
    const struct multilock_member *member = &multilock->members[place];
    struct ticket *ticket = slab_get(&core->tickets, member->ticket);

    if (ticket == NULL || ticket->state != TICKET_HELD ||
        ticket->fence != member->fence)
        return NULL;
    return ticket;
}

void
multilock_leave(struct core *core, struct multilock *multilock)
{
    for (uint32_t i = 0; i < multilock->got; i++) {
        struct ticket *ticket = multilock_hold(core, multilock, i);
        if (ticket == NULL)
            continue;
        require(ticket->holds > 0 && ticket->fate != FATE_UNATTENDED);
        if (multilock->members[i].intent)
            intent_give_back(core, ticket);
        else if (--ticket->holds == 0)
            ticket->fate = FATE_UNATTENDED;
    }
    multilock->got = 0;
}

void
multilock_drop_members(struct core *core, struct multilock *multilock)
{
    for (uint32_t i = 0; i < multilock->count; i++) {
        struct request *member = multilock_member(core, multilock, i);
        if (member == NULL)
            continue;
        if (member->ticket != NULL)
            ticket_stir(core, member->ticket);
        member->multilock = HANDLE_NONE;
        member->member = MEMBER_NONE;
        request_free(core, member);
    }
}

bool
multilock_waits(const struct core *core, const struct request *member,
    const struct request **parent, struct text *name)
{
    const struct multilock *multilock = multilock_of(core, member);

    if (multilock == NULL)
        return false;
    *parent = slab_get(&core->requests, multilock->parent);
    *name = multilock_name(multilock, multilock->got);
    return true;
}

void
multilock_stir(struct core *core, const struct request *asks)
{
    const struct multilock *multilock = multilock_of(core, asks);

    for (uint32_t i = 0; i < multilock->count; i++) {
        const struct request *member = multilock_member(core, multilock, i);
        if (member != asks && member->ticket != NULL &&
            member->ticket->requests.next == &member->ticket_link)
            ticket_stir(core, member->ticket);
    }
}

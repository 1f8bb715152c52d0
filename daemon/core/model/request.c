/*
 * Requests without a final reply, and the members of a multi-lock, which are
 * requests, too. Each request gets exactly one reply: request_free() is called
 * after it was sent (final.c), or because there is nobody left to send it to.
 */
#include "daemon/core/model/request.h"

#include "daemon/core/model/state.h"

#include "daemon/core/model/lock.h"
#include "daemon/core/model/session_table.h"
#include "daemon/core/model/tally.h"
#include "daemon/core/model/ticket.h"

#include "daemon/base/assert.h"

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
    memcpy(request->tag, line->tag, sizeof(request->tag));
    if (request->tag[0] != '\0')
        table_insert(&core->tag_table, &request->tag_table,
            tag_hash(core, session, request->tag));
    list_push_back(&session->requests, &request->session_link);
    session->request_count++;
    return request;
}

/*
 * The request's connection has ended. What was had stands for a LOCK that may
 * come again, where the session is kept; else it is released with all else.
 */
static void
bundle_abandon(struct core *core, struct request *request)
{
    struct bundle *bundle = bundle_of(core, request);

    request->bundle = HANDLE_NONE;
    if (bundle == NULL)
        return;
    tally_unheard(core, bundle_part(core, bundle, bundle->got));
    bundle_leave(core, bundle);
    bundle_drop_parts(core, bundle);
    slab_free(&core->bundles, bundle);
}

void
request_free(struct core *core, struct request *request)
{
    struct session *session = request->session;

    require(session->request_count > 0);
    if (!handle_equal(request->bundle, HANDLE_NONE))
        bundle_abandon(core, request);
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
request_create_part(struct core *core, const struct request *whole)
{
    struct request *part = slab_alloc(&core->requests);

    if (part == NULL)
        return NULL;
    wheel_node_init(&part->timer, TIMER_REQUEST);
    list_init(&part->ticket_link);
    part->session = whole->session;
    part->command = COMMAND_LOCK;
    part->bundle = whole->bundle;
    part->part = PART_WAITS;
    part->wait_us = whole->wait_us;
    part->progress = whole->progress;
    part->no_deadlock = whole->no_deadlock;
    part->ask = whole->ask;
    part->ask.hold_ms = 0;
    part->note_len = whole->note_len;
    memcpy(part->note, whole->note, whole->note_len);
    list_push_back(&part->session->requests, &part->session_link);
    part->session->request_count++;
    return part;
}

void
request_begin_part(
    struct core *core, struct request *part, const struct request *whole)
{
    uint64_t end_us = us_add(whole->began_us, whole->wait_us);

    require(part->part == PART_WAITS);
    part->part = PART_ASKS;
    part->began_us = core->now_us;
    if (whole->wait_us > 0 && end_us != NEVER) {
        part->wait_us = end_us > core->now_us ? end_us - core->now_us : 0;
        wheel_add(&core->wheel, &part->timer, end_us);
    }
}

struct text
bundle_name(const struct bundle *bundle, uint32_t place)
{
    const struct bundle_part *part = &bundle->parts[place];

    return text_make(bundle->text + part->offset, part->len);
}

struct bundle *
bundle_of(const struct core *core, const struct request *request)
{
    return slab_get(&core->bundles, request->bundle);
}

struct request *
bundle_part(
    const struct core *core, const struct bundle *bundle, uint32_t place)
{
    return slab_get(&core->requests, bundle->parts[place].request);
}

struct ticket *
bundle_hold(
    const struct core *core, const struct bundle *bundle, uint32_t place)
{
    const struct bundle_part *part = &bundle->parts[place];
    struct ticket *ticket = slab_get(&core->tickets, part->ticket);

    if (ticket == NULL || ticket->state != TICKET_HELD ||
        ticket->fence != part->fence)
        return NULL;
    return ticket;
}

void
bundle_leave(struct core *core, struct bundle *bundle)
{
    for (uint32_t i = 0; i < bundle->got; i++) {
        struct ticket *ticket = bundle_hold(core, bundle, i);
        if (ticket == NULL)
            continue;
        ticket->unattended = --ticket->holds == 0;
    }
    bundle->got = 0;
}

void
bundle_drop_parts(struct core *core, struct bundle *bundle)
{
    for (uint32_t i = 0; i < bundle->count; i++) {
        struct request *part = bundle_part(core, bundle, i);
        if (part == NULL)
            continue;
        if (part->ticket != NULL)
            ticket_stir(core, part->ticket);
        part->bundle = HANDLE_NONE;
        part->part = PART_NONE;
        request_free(core, part);
    }
}

bool
bundle_waits(const struct core *core, const struct request *part,
    const struct request **whole, struct text *name)
{
    const struct bundle *bundle = bundle_of(core, part);

    if (bundle == NULL)
        return false;
    *whole = slab_get(&core->requests, bundle->whole);
    *name = bundle_name(bundle, bundle->got);
    return true;
}

void
bundle_stir(struct core *core, const struct request *asks)
{
    const struct bundle *bundle = bundle_of(core, asks);

    for (uint32_t i = 0; i < bundle->count; i++) {
        const struct request *part = bundle_part(core, bundle, i);
        if (part != asks && part->ticket->requests.next == &part->ticket_link)
            ticket_stir(core, part->ticket);
    }
}

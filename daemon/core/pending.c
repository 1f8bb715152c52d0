/*
 * Requests without a final reply. Each gets exactly one: pending_free() is
 * called after it was sent, or because there is nobody left to send it to.
 */
#include "daemon/core/behind.h"
#include "daemon/core/session_table.h"

#include "daemon/base/assert.h"

#include <stdio.h>

#define UNAVAILABLE_BYTES (HEALTH_TEXT_MAX + 160)

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

struct pending *
pending_of_tag(
    const struct core *core, const struct session *session, const char *tag)
{
    uint64_t hash = tag_hash(core, session, tag);

    for (struct table_node *node = table_first(&core->tag_table, hash);
         node != NULL; node = table_next(node)) {
        struct pending *pending = container_of(node, struct pending, tag_table);
        if (pending->session == session && strcmp(pending->tag, tag) == 0)
            return pending;
    }
    return NULL;
}

/* NULL where there is no room; the caller has checked the tag. */
struct pending *
pending_create(
    struct core *core, struct session *session, const struct request *request)
{
    struct pending *pending = slab_alloc(&core->pendings);

    if (pending == NULL)
        return NULL;
    wheel_node_init(&pending->timer, TIMER_PENDING);
    list_init(&pending->ticket_link);
    pending->session = session;
    pending->command = request->command;
    pending->began_us = core->now_us;
    pending->wait_us = NEVER;
    memcpy(pending->tag, request->tag, sizeof(pending->tag));
    if (pending->tag[0] != '\0')
        table_insert(&core->tag_table, &pending->tag_table,
            tag_hash(core, session, pending->tag));
    list_push_back(&session->pendings, &pending->session_link);
    session->pending_count++;
    return pending;
}

/* It has its turn at the ticket, and nothing is to be done for it now: neither
 * it nor what is behind it. */
bool
pending_stands(const struct pending *pending)
{
    return pending->part == PART_WAITS || pending->part == PART_HAD;
}

void
pending_free(struct core *core, struct pending *pending)
{
    struct session *session = pending->session;

    require(session->pending_count > 0);
    if (!handle_equal(pending->bundle, HANDLE_NONE))
        bundle_abandon(core, pending);
    if (pending->tag[0] != '\0')
        table_remove(&core->tag_table, &pending->tag_table);
    wheel_remove(&core->wheel, &pending->timer);
    list_remove(&pending->ticket_link);
    list_remove(&pending->session_link);
    session->pending_count--;
    if (pending->command == COMMAND_AUTH)
        auth_waited(session);
    if (pending->broken != NULL)
        lock_unref(core, pending->broken);
    slab_free(&core->pendings, pending);
    session_check_end(core, session);
}

/* What stands in the way of a request, as far as is known. */
struct health_why
pending_why(const struct core *core, const struct pending *pending)
{
    return health_why_slot(core->health,
        pending->ticket != NULL ? pending->ticket->lock->slot : HEALTH_NO_SLOT);
}

/* The text of UNAVAILABLE: which node cannot be asked, why, and what to do. */
static const char *
unavailable_text(
    enum command command, struct health_why why, char out[UNAVAILABLE_BYTES])
{
    char text[HEALTH_TEXT_MAX];

    if (why.reason == HEALTH_FINE)
        return error_outcome(ERROR_UNAVAILABLE, command);
    (void)snprintf(out, UNAVAILABLE_BYTES, "%s: %s",
        command == COMMAND_LOCK ? "nothing is held by this request"
                                : error_outcome(ERROR_UNAVAILABLE, command),
        health_text(&why, true, text));
    return out;
}

void
pending_error(struct core *core, struct pending *pending, enum error_code code,
    const char *why)
{
    const char *key = code == ERROR_DENIED ? "right" : NULL;
    struct health_why whose = pending_why(core, pending);
    char text[UNAVAILABLE_BYTES];
    struct reply reply;

    if (code == ERROR_UNAVAILABLE && why == NULL)
        why = unavailable_text(pending->command, whose, text);

    tally_refused(core, pending, code);
    if (pending->part != PART_NONE) {
        bundle_refused(core, pending, code, key, TEXT("lock"), why);
        return;
    }
    answer_error_begin(core, &reply, pending->tag, code);
    if (key != NULL)
        reply_pair(&reply, key, TEXT("lock"));
    if (code == ERROR_UNAVAILABLE)
        reply_pair_if(&reply, "reason", text_from(health_word(whose.reason)));
    reply_text(
        &reply, why != NULL ? why : error_outcome(code, pending->command));
    answer_end(core, pending->session, &reply);
    pending_free(core, pending);
}

/* The broker will be settled with the lock's node after so long. */
void
pending_unavailable(
    struct core *core, struct pending *pending, uint64_t after_us)
{
    static const char unsettled[] =
        "Redis is new to this broker, or has failed over: earlier holders may "
        "still report; ask again after after_ms";
    char digits[20];
    struct text after =
        text_make(digits, text_from_u64(digits, after_us / 1000 + 1));

    count(core->counters, COUNTER_refused_unavailable);
    tally_refused(core, pending, ERROR_UNAVAILABLE);
    if (pending->part != PART_NONE) {
        bundle_refused(
            core, pending, ERROR_UNAVAILABLE, "after_ms", after, unsettled);
        return;
    }
    struct reply reply;
    answer_error_begin(core, &reply, pending->tag, ERROR_UNAVAILABLE);
    reply_pair(&reply, "reason", text_from(health_word(HEALTH_SETTLING)));
    reply_pair(&reply, "after_ms", after);
    reply_text(&reply, unsettled);
    answer_end(core, pending->session, &reply);
    pending_free(core, pending);
}

/* Refused by a limit of that name, which the caller has counted. */
void
pending_limit(struct core *core, struct pending *pending, const char *limit)
{
    tally_refused(core, pending, ERROR_LIMIT);
    if (pending->part != PART_NONE) {
        bundle_refused(
            core, pending, ERROR_LIMIT, "limit", text_from(limit), NULL);
        return;
    }
    answer_limit(core, pending->session, pending->tag, limit);
    pending_free(core, pending);
}

/* A LOCK of one of the names that `whole` is about; NULL: there is no room. */
struct pending *
pending_create_part(struct core *core, const struct pending *whole)
{
    struct pending *part = slab_alloc(&core->pendings);

    if (part == NULL)
        return NULL;
    wheel_node_init(&part->timer, TIMER_PENDING);
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
    list_push_back(&part->session->pendings, &part->session_link);
    part->session->pending_count++;
    return part;
}

/* Its turn has come; what is left of the time to wait is its own. */
void
pending_begin_part(
    struct core *core, struct pending *part, const struct pending *whole)
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

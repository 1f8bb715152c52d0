/*
 * Requests without a final reply. Each gets exactly one: pending_free() is
 * called after it was sent, or because there is nobody left to send it to.
 */
#include "daemon/core/state.h"

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

void
pending_free(struct core *core, struct pending *pending)
{
    struct session *session = pending->session;

    require(session->pending_count > 0);
    if (pending->tag[0] != '\0')
        table_remove(&core->tag_table, &pending->tag_table);
    wheel_remove(&core->wheel, &pending->timer);
    list_remove(&pending->ticket_link);
    list_remove(&pending->session_link);
    session->pending_count--;
    slab_free(&core->pendings, pending);
    session_check_end(core, session);
}

void
pending_error(struct core *core, struct pending *pending, enum error_code code,
    const char *why)
{
    answer_error(core, pending->session, pending->tag, code, why);
    pending_free(core, pending);
}

/*
 * The lines that a session sends behind an AUTH. They wait until the AUTH has
 * its reply, and then have their turn (session_time.c). The number of lines is
 * bounded for each session and for all sessions together.
 */
#include "daemon/core/answer/answer.h"

#include "daemon/core/model/session_table.h"

#include "daemon/base/assert.h"

/* Lines of a session that wait for the reply to its AUTH. */
#define BEHIND_LINES 32

bool
auth_pauses(const struct session *session)
{
    return session->auths > 0 || !list_empty(&session->behind);
}

bool
auth_keeps_back(struct core *core, struct session *session, const char *line,
    size_t len, bool too_long)
{
    char tag[PROTO_TAG_MAX + 1];
    struct behind *behind = NULL;

    require(session->behind_count <= BEHIND_LINES);
    if (!session_is_open(session) || !auth_pauses(session))
        return false;
    if (session->behind_count < BEHIND_LINES)
        behind = slab_alloc(&core->behind);
    if (behind == NULL) {
        (void)request_tag(line, len, tag);
        count(core->counters, COUNTER_limit_auth);
        answer_limit(core, session, tag, "auth");
        return true;
    }
    behind->too_long = too_long;
    behind->len =
        (uint32_t)(len < sizeof(behind->line) ? len : sizeof(behind->line));
    memcpy(behind->line, line, behind->len);
    list_push_back(&session->behind, &behind->link);
    session->behind_count++;
    require(session->behind_count <= core->behind.used);
    return true;
}

struct behind *
behind_pop(struct session *session)
{
    struct list *link = list_pop_front(&session->behind);

    require(link == NULL || session->behind_count > 0);
    session->behind_count -= link != NULL;
    return link == NULL ? NULL : container_of(link, struct behind, link);
}

void
behind_free(struct core *core, struct behind *behind)
{
    require(behind->len <= sizeof(behind->line));
    require(list_empty(&behind->link));
    explicit_bzero(behind->line, behind->len); /* may be a secret */
    slab_free(&core->behind, behind);
}

void
auth_refuse_behind(
    struct core *core, struct session *session, enum error_code code)
{
    struct behind *behind;

    while ((behind = behind_pop(session)) != NULL) {
        char tag[PROTO_TAG_MAX + 1];
        struct request_line line;
        struct request_error error;
        (void)request_tag(behind->line, behind->len, tag);
        enum request_status status = request_parse(
            behind->line, behind->len, core->settings.name_max, &line, &error);
        if (status == REQUEST_BAD ||
            (status == REQUEST_OK && line.command != COMMAND_PONG))
            answer_error(core, session, tag, code, NULL);
        behind_free(core, behind);
    }
    require(session->behind_count == 0);
}

void
auth_drop_behind(struct core *core, struct session *session)
{
    struct behind *behind;

    while ((behind = behind_pop(session)) != NULL)
        behind_free(core, behind);
    require(session->behind_count == 0);
}

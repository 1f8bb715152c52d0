/*
 * Admission of a request: the rights of its user, and the limits on outstanding
 * requests.
 */
#include "daemon/core/command/command.h"

#include "daemon/core/answer/answer.h"
#include "daemon/core/model/lock.h"
#include "daemon/core/model/op_pool.h"
#include "daemon/core/model/request.h"
#include "daemon/core/model/session_table.h"
#include "daemon/core/model/stats.h"
#include "daemon/op/op.h"

#include "daemon/base/assert.h"

#include <string.h>

/* Rights and limits of a request, by commands.def. */
enum need {
    NEEDS_NOTHING = 0,
    NEEDS_LOCK = RIGHT_LOCK,
    NEEDS_SEE = RIGHT_SEE,
    NEEDS_BREAK = RIGHT_BREAK,
    NEEDS_ADMIN = RIGHT_ADMIN,
    NEEDS_USER, /* no right of it, but to be known */
};

static const enum need needs[COMMAND_COUNT] = {

#define COMMAND(id, right, ...) NEEDS_##right,
#include "proto/commands.def"
};

static struct text
right_word(enum right right)
{
    switch (right) {
    case RIGHT_LOCK:
        return TEXT("lock");
    case RIGHT_SEE:
        return TEXT("see");
    case RIGHT_BREAK:
        return TEXT("break");
    case RIGHT_ADMIN:
        return TEXT("admin");
    }
    require(false);
    return TEXT("");
}

static void
answer_denied(struct core *core, struct session *session,
    const struct request_line *line, enum right right, struct text name)
{
    struct reply reply;

    count(core->counters, COUNTER_requests_denied);
    if (line->command == COMMAND_LOCK)
        stats_turned_away(core, name, ERROR_DENIED);
    answer_error_begin(core, &reply, line->tag, ERROR_DENIED);
    reply_pair(&reply, "right", right_word(right));
    if (line->name_count > 1)
        reply_pair(&reply, "name", name);
    reply_text(&reply, error_meaning(ERROR_DENIED));
    answer_end(core, session, &reply);
}

bool
auth_permits(
    struct core *core, struct session *session, const struct request_line *line)
{
    enum need need = line_is_detached(line) ? NEEDS_LOCK : needs[line->command];
    bool resumes =
        line->command == COMMAND_HELLO && request_has(line, REQUEST_KEY_RESUME);

    if (need == NEEDS_NOTHING && !resumes)
        return true;
    if (session->user == NULL) {
        count(core->counters, COUNTER_requests_unknown_user);
        answer_error(core, session, line->tag, ERROR_AUTH, NULL);
        return false;
    }
    if (need == NEEDS_USER || resumes)
        return true;
    require(need != NEEDS_NOTHING);
    enum right right = (enum right)need;
    uint32_t names = line->name_count > 0 ? line->name_count : 1;
    for (uint32_t i = 0; i < names; i++) {
        struct text name =
            line->name_count > 0 ? line->names[i] : line->argument;
        if (session_may(core, session, right, name))
            continue;
        answer_denied(core, session, line, right, name);
        return false;
    }
    return true;
}

struct request *
request_admit(
    struct core *core, struct session *session, const struct request_line *line)
{
    require(session_is_open(session));
    if (session->request_count >= core->settings.outstanding_max) {
        count(core->counters, COUNTER_limit_outstanding);
        answer_limit(core, session, line->tag, "outstanding");
        return NULL;
    }
    struct request *request = request_create(core, session, line);
    if (request == NULL) {
        count(core->counters, COUNTER_limit_requests);
        answer_limit(core, session, line->tag, "requests");
    }
    return request;
}

struct op *
command_op(struct core *core, struct session *session,
    const struct request_line *line, enum op_kind kind)
{
    struct request *request = request_admit(core, session, line);
    struct op *op = NULL;

    if (request == NULL)
        return NULL;
    struct lock *lock = lock_obtain(core, line->argument);
    if (lock != NULL) {
        op = op_create(core, kind, lock, slab_handle(&core->requests, request));
        lock_unref(core, lock);
    }
    if (op == NULL) {
        request_free(core, request);
        count(core->counters, COUNTER_limit_requests);
        answer_limit(core, session, line->tag, "requests");
        return NULL;
    }
    memcpy(op->session, session->id, sizeof(op->session));
    op->deadline_us = core->now_us + core->settings.redis_timeout_us;
    return op;
}

const char *
limit_objection(const struct core *core, const struct request_line *line)
{
    if (!request_has(line, REQUEST_KEY_LIMIT))
        return NULL;
    if (core->settings.no_semaphores)
        return "limit= is not supported with redis.topology quorum";
    return line->value[REQUEST_KEY_LIMIT] == 0 ? "limit= must be at least 1"
                                               : NULL;
}

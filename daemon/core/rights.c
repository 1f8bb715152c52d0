/*
 * What the user of a session may do.
 *
 * Rights are looked at when a request comes. What is held stays held, and may
 * be given back, whatever has become of the right to it. Without users in the
 * settings anybody may do all.
 */
#include "daemon/core/rights.h"

#include "daemon/core/answer.h"
#include "daemon/core/pending.h"
#include "daemon/core/tally.h"

#include "daemon/base/assert.h"
#include "daemon/base/log.h"

/* What a request needs, by commands.def. */
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

struct text
auth_name(const struct session *session)
{
    return session->user != NULL ? session->user->name : TEXT("");
}

const char *
auth_log_user(const struct session *session, char out[AUTH_LOG_BYTES])
{
    static const char key[] = " user=";
    size_t len = sizeof(key) - 1;

    out[0] = '\0';
    if (session->user == NULL)
        return out;
    memcpy(out, key, len);
    log_quote(out + len, AUTH_LOG_BYTES - len, session->user->name);
    return out;
}

uint64_t
auth_due_us(const struct core *core, const struct session *session)
{
    bool known = core->settings.users == NULL || session->user != NULL;

    if (known || core->settings.auth_us == 0)
        return NEVER;
    return us_add(session->opened_us, core->settings.auth_us);
}

bool
session_may(const struct core *core, const struct session *session,
    enum right right, struct text name)
{
    const struct users *users = core->settings.users;

    return users == NULL || (session->user != NULL &&
                                user_may(users, session->user, right, name));
}

uint32_t
auth_denied(const struct core *core, const struct session *session,
    const struct bundle *bundle)
{
    uint32_t place = 0;

    while (place < bundle->count &&
           session_may(core, session, RIGHT_LOCK, bundle_name(bundle, place)))
        place++;
    return place;
}

bool
auth_sees(
    const struct core *core, const struct session *session, struct text name)
{
    return session_may(core, session, RIGHT_SEE, name);
}

bool
auth_is_admin(const struct core *core, const struct session *session)
{
    return session_may(core, session, RIGHT_ADMIN, TEXT(""));
}

bool
auth_knows(const struct core *core, const struct session *session,
    const struct session *other)
{
    return session->user == other->user || auth_is_admin(core, session);
}

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
    const struct request *request, enum right right, struct text name)
{
    struct reply reply;

    count(core->counters, COUNTER_requests_denied);
    if (request->command == COMMAND_LOCK)
        tally_turned_away(core, name, ERROR_DENIED);
    answer_error_begin(core, &reply, request->tag, ERROR_DENIED);
    reply_pair(&reply, "right", right_word(right));
    if (request->name_count > 1)
        reply_pair(&reply, "name", name);
    reply_text(&reply, error_meaning(ERROR_DENIED));
    answer_end(core, session, &reply);
}

bool
auth_permits(
    struct core *core, struct session *session, const struct request *request)
{
    enum need need = needs[request->command];
    bool resumes = request->command == COMMAND_HELLO &&
                   request_has(request, REQUEST_KEY_RESUME);

    if (need == NEEDS_NOTHING && !resumes)
        return true;
    if (session->user == NULL) {
        count(core->counters, COUNTER_requests_unknown_user);
        answer_error(core, session, request->tag, ERROR_AUTH, NULL);
        return false;
    }
    if (need == NEEDS_USER || resumes)
        return true;
    enum right right = (enum right)need;
    uint32_t names = request->name_count > 0 ? request->name_count : 1;
    for (uint32_t i = 0; i < names; i++) {
        struct text name =
            request->name_count > 0 ? request->names[i] : request->argument;
        if (session_may(core, session, right, name))
            continue;
        answer_denied(core, session, request, right, name);
        return false;
    }
    return true;
}

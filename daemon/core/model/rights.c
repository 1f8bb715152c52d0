/*
 * The rights of a session's user.
 *
 * Rights are looked at when a request comes. A hold outlives its right, and may
 * always be released. Without users in the settings anybody may do all.
 */
#include "daemon/core/model/session_table.h"

#include "daemon/core/model/request.h"

#include "daemon/base/assert.h"
#include "daemon/base/log.h"

struct text
auth_name(const struct session *session)
{
    return session->user != NULL ? session->user->name : TEXT("");
}

struct log_pair
auth_log_user(const struct session *session)
{
    return session->user != NULL ? log_quoted("user", session->user->name)
                                 : LOG_NOTHING;
}

uint64_t
auth_due_us(const struct core *core, const struct session *session)
{
    bool known = core->settings.users == NULL || session->user != NULL;

    require(core->settings.users != NULL || session->user == NULL);
    if (known || core->settings.auth_us == 0)
        return NEVER;
    return us_add(session->opened_us, core->settings.auth_us);
}

bool
session_may(const struct core *core, const struct session *session,
    enum right right, struct text name)
{
    const struct users *users = core->settings.users;
    const struct user *user = session->user;

    require(user == NULL || users != NULL);
    require(user == NULL ||
            (user >= users->user && user < users->user + users->count));
    return users == NULL ||
           (user != NULL && user_may(users, user, right, name));
}

uint32_t
auth_denied(const struct core *core, const struct session *session,
    const struct multilock *multilock)
{
    uint32_t place = 0;

    require(multilock->count > 1 && multilock->count <= LOCK_NAMES_MAX);
    while (
        place < multilock->count && (multilock->members[place].intent ||
                                        session_may(core, session, RIGHT_LOCK,
                                            multilock_name(multilock, place))))
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

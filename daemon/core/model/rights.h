/*
 * Rights of users. See rights.c.
 */
#ifndef HOLDFAST_CORE_MODEL_RIGHTS_H
#define HOLDFAST_CORE_MODEL_RIGHTS_H

#include "daemon/base/log.h"
#include "daemon/core/model/state.h"

/* The name of the session's user; empty without one. */
struct text auth_name(const struct session *session);

/* The session's user for the log; nothing without a user. */
struct log_pair auth_log_user(const struct session *session);

/* By when the session must have a user; NEVER: it has one, or needs none. */
uint64_t auth_due_us(const struct core *core, const struct session *session);

/* Whether the session's user has the right to that name. Without users anybody
 * has. */
bool session_may(const struct core *core, const struct session *session,
    enum right right, struct text name);

/* The place of the first name that the session may not lock; the count of
 * names, if it may lock all. */
uint32_t auth_denied(const struct core *core, const struct session *session,
    const struct multilock *multilock);

/* Whether the user may see locks of that name. */
bool auth_sees(
    const struct core *core, const struct session *session, struct text name);

/* Whether the user may do what only administrators may. */
bool auth_is_admin(const struct core *core, const struct session *session);

/* Whether the session may see the other one: the user is the same, or an
 * administrator. */
bool auth_knows(const struct core *core, const struct session *session,
    const struct session *other);

#endif

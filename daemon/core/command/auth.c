/*
 * AUTH, and what other users mean for sessions. rights.c has what users may do.
 *
 * A session has a user from its beginning, where its connection shows it (its
 * process' uid, on a Unix socket; a certificate, by TLS), or from an AUTH on.
 * How it came by it matters to nobody but user_has_mark(). Without users in the
 * settings there is nothing of this: anybody may do all.
 *
 * Failed AUTHs from one address are answered later, by up to 8 s. This
 * throttles misconfigured clients. Only they wait, and only so many of them:
 * others from there, who have the right secret, do not. So it is nothing
 * against guessing, whose answers nobody need wait for: against that secrets
 * are random (see base/users.c). The later lines of the session are served
 * after the answer (behind.c).
 */
#include "daemon/core/command/command.h"

#include "daemon/core/answer/answer.h"
#include "daemon/core/command/session.h"
#include "daemon/core/feature/await.h"
#include "daemon/core/feature/watch.h"
#include "daemon/core/model/handlers.h"
#include "daemon/core/model/request.h"
#include "daemon/core/model/session_table.h"
#include "daemon/core/ticket/states.h"
#include "daemon/core/ticket/tickets.h"

#include "daemon/base/assert.h"
#include "daemon/base/log.h"

/* AUTHs from an address that have failed and are not answered yet. */
#define WAITING_MAX 64

void
auth_set_timeout(struct core *core, uint64_t auth_us)
{
    bool changes = core->settings.auth_us != auth_us;

    core->settings.auth_us = auth_us;
    for (uint32_t i = 0; changes && i < core->sessions.touched; i++) {
        struct session *session = slab_at(&core->sessions, i);
        if (session != NULL && session->user == NULL &&
            session->recheck != RECHECK_REVOKED)
            wheel_add(&core->wheel, &session->timer, core->now_us);
    }
}

/* --- AUTH ----------------------------------------------------------------- */

static void
auth_failed(
    struct core *core, struct session *session, const struct request_line *line)
{
    struct request *request = request_admit(core, session, line);
    struct peer_address *address = session->address;

    require(address->connections > 0);
    /* An unknown name may be a secret in the wrong place: it is not logged. */
    bool known = users_find(core->settings.users, line->names[0]) != NULL;
    count(core->counters, COUNTER_auth_failed);
    log_write(LOG_WARN, "auth_failed",
        known ? log_quoted("user", line->names[0])
              : log_word("user", "unknown"),
        log_word("session", session->short_id),
        log_word("peer", session->peer));
    if (request == NULL)
        return;
    address_forget(core, address);
    address->failures += address->failures < UINT32_MAX;
    address->failed_us = core->now_us;
    address->waiting++;
    session->auths++;
    require(session->auths <= session->request_count);
    wheel_add(&core->wheel, &request->timer,
        us_add(core->now_us, failure_delay_us(address)));
}

void
auth_answer(struct core *core, struct request *request)
{
    struct session *session = request->session;

    require(request->command == COMMAND_AUTH && session->auths > 0);
    request_refuse(
        core, request, ERROR_AUTH, "no such user, or another secret");
    if (auth_may_go_on(session))
        wheel_add(&core->wheel, &session->timer, core->now_us);
}

/* Whether the session has nothing yet that is its user's. */
static bool
session_is_bare(const struct session *session)
{
    return session->ticket_count == 0 && session->request_count == 0 &&
           session->watch_count == 0 && session->generation == 1;
}

/* The user is known: it is the session's from now on. */
static void
auth_succeeded(struct core *core, struct session *session,
    const struct request_line *line, struct user *user, uint32_t mark)
{
    if (user == session->user) {
        session->user_mark = mark;
    } else if (!session_is_bare(session)) {
        answer_error(core, session, line->tag, ERROR_CONFLICT,
            "another user comes while the session has nothing of its own");
        return;
    } else if (user_is_full(core, user)) {
        count(core->counters, COUNTER_limit_user_connections);
        answer_limit(core, session, line->tag, "user_connections");
        return;
    } else {
        if (session->user != NULL) {
            require(session->user->connections > 0);
            session->user->connections--;
        }
        session->user = NULL;
        auth_take(session, user, mark);
        session_rename(core, session);
    }
    require(session->user == user && user->connections > 0);
    count(core->counters, COUNTER_auth_ok);
    log_write(LOG_DEBUG, "authenticated",
        log_word("session", session->short_id), log_word("peer", session->peer),
        auth_log_user(session));
    answer_ok(core, session, line);
}

void
auth_command(
    struct core *core, struct session *session, const struct request_line *line)
{
    const struct users *users = core->settings.users;
    struct text secret = line->names[1];
    uint32_t mark = 0;

    if (users == NULL) {
        answer_error(
            core, session, line->tag, ERROR_AUTH, "this broker has no users");
        return;
    }
    /* A session that came before there were users is closed by now. */
    require(session->address != NULL);
    struct user *user = users_of_secret(users, line->names[0], secret, &mark);
    if (user != NULL) {
        auth_succeeded(core, session, line, user, mark);
    } else if (session->address->waiting >= WAITING_MAX) {
        count(core->counters, COUNTER_limit_auth);
        answer_limit(core, session, line->tag, "auth");
    } else {
        auth_failed(core, session, line);
    }
}

/* --- other users ---------------------------------------------------------- */

/* The session's user by another table of them; NULL: it is no more. */
static struct user *
user_again(const struct session *session, const struct users *users)
{
    struct user *user =
        users == NULL ? NULL : users_find(users, session->user->name);

    if (user == NULL || !user_has_mark(users, user, session->user_mark))
        return NULL;
    return user;
}

void
auth_set_users(struct core *core, const struct users *users)
{
    for (uint32_t i = 0; i < core->sessions.touched; i++) {
        struct session *session = slab_at(&core->sessions, i);
        if (session == NULL || session->user == NULL)
            continue;
        const struct user *before = session->user;
        session->user = user_again(session, users);
        session->recheck =
            session->user == NULL ? RECHECK_REVOKED : RECHECK_RIGHTS;
        if (session->user == NULL)
            log_write(LOG_INFO, "session_revoked",
                log_word("session", session->short_id),
                log_word("peer", session->peer),
                log_quoted("user", before->name));
        wheel_add(&core->wheel, &session->timer, core->now_us);
        if (session->user == NULL)
            continue;
        require(session->user != before);
        session->user->connections += session_connected(session);
        session->user->tickets += session->ticket_count;
    }
    core->settings.users = users;
}

/* Whether its user may not lock (any more) all that a waiting LOCK is about. */
static bool
lock_is_denied(const struct core *core, const struct request *request)
{
    const struct session *session = request->session;
    const struct multilock *multilock =
        slab_get(&core->multilocks, request->multilock);

    if (request->command != COMMAND_LOCK || request->member != MEMBER_NONE ||
        request->state == REQUEST_ENDED)
        return false;
    if (request->ticket != NULL)
        return !session_may(core, session, RIGHT_LOCK,
            text_make(
                request->ticket->lock->name, request->ticket->lock->name_len));
    return multilock != NULL &&
           auth_denied(core, session, multilock) < multilock->count;
}

void
auth_end_wait(struct core *core, struct request *request)
{
    require(request->command == COMMAND_LOCK);
    require(request->member == MEMBER_NONE);
    request->denied = false;
    bool ends =
        request->ticket == NULL
            ? multilock_cancel(core, request, ERROR_DENIED, NULL)
            : ticket_cancel(core, request->ticket, request, ERROR_DENIED, NULL);
    if (ends)
        count(core->counters, COUNTER_requests_denied);
}

static void
session_recheck(struct core *core, struct session *session)
{
    require(session->user != NULL && core->settings.users != NULL);
    LIST_EACH (link, &session->requests) {
        struct request *request =
            container_of(link, struct request, session_link);
        if (!lock_is_denied(core, request))
            continue;
        request->denied = true;
        wheel_add(&core->wheel, &request->timer, core->now_us);
    }
    LIST_EACH_SAFE (link, &session->watches) {
        struct watch *watch = container_of(link, struct watch, session_link);
        struct text name = lock_name(watch->lock);
        if (watch->kind == WATCH_WAITERS || auth_sees(core, session, name))
            continue;
        if (watch->kind != WATCH_AWAIT)
            watch_end(core, session, name);
        else
            await_end(core, watch, ERROR_DENIED);
    }
}

bool
auth_recheck(struct core *core, struct session *session)
{
    bool revoked = session->recheck == RECHECK_REVOKED;

    session->recheck = RECHECK_NONE;
    if (!revoked) {
        session_recheck(core, session);
        return false;
    }
    session_expel_user(core, session);
    return true;
}

void
auth_check(const struct core *core)
{
    uint32_t connections = 0;
    uint32_t tickets = 0;
    uint32_t behind = core->behind.used;

    for (uint32_t i = 0; i < core->sessions.touched; i++) {
        const struct session *session = slab_at(&core->sessions, i);
        if (session != NULL)
            behind -= session->behind_count;
        if (session == NULL || session->user == NULL)
            continue;
        connections += session_connected(session);
        tickets += session->ticket_count;
    }
    const struct users *users = core->settings.users;
    for (uint32_t i = 0; users != NULL && i < users->count; i++) {
        connections -= users->user[i].connections;
        tickets -= users->user[i].tickets;
    }
    require(connections == 0 && tickets == 0 && behind == 0);
    require(core->address_table.count == core->addresses.used);
    require(core->idle_count <= IDLE_MAX);
}

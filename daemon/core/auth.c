/*
 * Who a session's user is, and what that one may do.
 *
 * A session has a user from its beginning, where its connection shows it (its
 * process' uid, on a Unix socket; a certificate, by TLS), or from an AUTH on.
 * How it came by it matters to nobody but user_has_mark(). Without users in the
 * settings there is nothing of this: anybody may do all.
 *
 * A session's ID is a secret that only its client knows. In the tables, and in
 * Redis, a session with a user is under a hash of its ID and the user's name:
 * so whoever takes it over has to be the same user, here and at any other
 * broker, and need not be asked about it.
 *
 * Who is set up wrongly is slowed down by address: the answer to an AUTH that
 * has failed comes the later, the more of them have failed from there of late.
 * Only they wait, and only so many of them: others from there, who have the
 * right secret, do not. So it is nothing against guessing, whose answers nobody
 * need wait for: against that secrets are random (see base/users.c). What a
 * session sends meanwhile has its turn after the answer. What is
 * remembered of an address with nobody connected is bounded, the oldest making
 * room.
 *
 * Rights are looked at when a request comes. What is held stays held, and may
 * be given back, whatever has become of the right to it.
 */
#include "daemon/core/session_table.h"
#include "daemon/core/source.h"

#include "daemon/base/assert.h"
#include "daemon/base/log.h"

#define DELAY_FIRST_US 250000u
#define DELAY_MOST_US  8000000u
/* So long after the last one failures are forgotten. */
#define FORGET_US UINT64_C(300000000)
/* AUTHs from an address that have failed and are not answered yet. */
#define WAITING_MAX 64

/* Lines of a session that wait for the reply to its AUTH. */
#define BEHIND_LINES 32

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

/* --- addresses ------------------------------------------------------------ */

bool
auth_init(struct core *core)
{
    uint32_t room = core_sessions_room(&core->settings) + IDLE_MAX + 1;

    list_init(&core->idle_sources);
    return slab_init(&core->sources, sizeof(struct source), room) &&
           table_init(&core->source_table, room);
}

void
auth_fini(struct core *core)
{
    table_abandon(&core->source_table);
    slab_fini(&core->sources);
}

static uint64_t
source_hash(const struct core *core, const uint8_t address[16])
{
    return hash_bytes(&core->hash_key, address, 16);
}

static struct source *
source_find(const struct core *core, const uint8_t address[16])
{
    uint64_t hash = source_hash(core, address);

    for (struct table_node *node = table_first(&core->source_table, hash);
         node != NULL; node = table_next(node)) {
        struct source *source = container_of(node, struct source, table);
        if (memcmp(source->address, address, sizeof(source->address)) == 0)
            return source;
    }
    return NULL;
}

static void
source_free(struct core *core, struct source *source)
{
    require(source->connections == 0 && source->lingering == 0);
    require(source->waiting == 0);
    if (!list_empty(&source->idle_link)) {
        list_remove(&source->idle_link);
        core->idle_count--;
    }
    table_remove(&core->source_table, &source->table);
    slab_free(&core->sources, source);
}

/* There is room: one for each connection, and for those that are idle. */
static struct source *
source_obtain(struct core *core, const uint8_t address[16])
{
    struct source *source = source_find(core, address);

    if (source == NULL) {
        source = slab_alloc(&core->sources);
        require(source != NULL);
        memcpy(source->address, address, sizeof(source->address));
        list_init(&source->idle_link);
        table_insert(
            &core->source_table, &source->table, source_hash(core, address));
    } else if (!list_empty(&source->idle_link)) {
        list_remove(&source->idle_link);
        core->idle_count--;
    }
    return source;
}

static void
source_forget(const struct core *core, struct source *source)
{
    if (core->now_us >= us_add(source->failed_us, FORGET_US))
        source->failures = 0;
}

/* Fewer are connected from there; perhaps nobody any more. */
static void
source_left(struct core *core, struct source *source)
{
    if (source->connections + source->lingering > 0)
        return;
    source_forget(core, source);
    if (source->failures == 0) {
        source_free(core, source);
        return;
    }
    list_push_back(&core->idle_sources, &source->idle_link);
    if (++core->idle_count > IDLE_MAX)
        source_free(core,
            container_of(core->idle_sources.next, struct source, idle_link));
}

/* --- sessions and users --------------------------------------------------- */

static bool
user_is_full(const struct core *core, const struct user *user)
{
    uint32_t max = core->settings.user_connections_max;

    return max > 0 && user->connections >= max;
}

/* Whether another connection of that address fits; where not it is counted. */
static bool
address_admits(struct core *core, const uint8_t address[16])
{
    uint32_t max = core->settings.address_connections_max;
    const struct source *source = max > 0 ? source_find(core, address) : NULL;

    if (source == NULL || source->connections < max)
        return true;
    count(core->counters, COUNTER_limit_address);
    return false;
}

/* NULL: addresses are not counted. */
static struct source *
address_count(struct core *core, const uint8_t address[16])
{
    if (core->settings.users == NULL &&
        core->settings.address_connections_max == 0)
        return NULL;
    struct source *source = source_obtain(core, address);
    source->connections++;
    return source;
}

/* Whether another connection fits; where not that is counted. */
bool
auth_admits(struct core *core, const struct core_event *event)
{
    if (!address_admits(core, event->open.address))
        return false;
    if (event->open.user != NULL && user_is_full(core, event->open.user)) {
        count(core->counters, COUNTER_limit_user_connections);
        return false;
    }
    return true;
}

/* The session has none so far, nor is it in a table. */
static void
auth_take(struct session *session, struct user *user, uint32_t mark)
{
    require(session->user == NULL);
    session->user = user;
    session->user_mark = mark;
    if (user != NULL)
        user->connections++;
}

void
auth_opened(
    struct core *core, struct session *session, const struct core_event *event)
{
    session->source = address_count(core, event->open.address);
    auth_take(session, event->open.user, event->open.mark);
}

bool
core_arrive(
    struct core *core, const uint8_t address[16], struct source **source)
{
    *source = NULL;
    if (!address_admits(core, address))
        return false;
    *source = address_count(core, address);
    return true;
}

void
core_depart(struct core *core, struct source **source)
{
    if (*source != NULL) {
        require((*source)->connections > 0);
        (*source)->connections--;
        source_left(core, *source);
    }
    *source = NULL;
}

bool
core_linger(
    struct core *core, const uint8_t address[16], struct source **source)
{
    uint32_t max = core->settings.address_connections_max;

    *source = NULL;
    if (max == 0)
        return true;
    struct source *from = source_find(core, address);
    if (from != NULL && from->lingering >= max)
        return false;
    *source = source_obtain(core, address);
    (*source)->lingering++;
    return true;
}

void
core_linger_end(struct core *core, struct source **source)
{
    if (*source != NULL) {
        require((*source)->lingering > 0);
        (*source)->lingering--;
        source_left(core, *source);
    }
    *source = NULL;
}

/* The session has no connection any more. */
void
auth_disconnected(struct core *core, struct session *session)
{
    if (session->user != NULL && !session->away) {
        require(session->user->connections > 0);
        session->user->connections--;
    }
    core_depart(core, &session->source);
}

struct text
auth_name(const struct session *session)
{
    return session->user != NULL ? session->user->name : TEXT("");
}

/* By when it has to be known who it is. */
uint64_t
auth_due_us(const struct core *core, const struct session *session)
{
    bool known = core->settings.users == NULL || session->user != NULL;

    if (known || core->settings.auth_us == 0)
        return NEVER;
    return us_add(session->opened_us, core->settings.auth_us);
}

/* For who is connected already, too. */
void
auth_set_timeout(struct core *core, uint64_t auth_us)
{
    bool changes = core->settings.auth_us != auth_us;

    core->settings.auth_us = auth_us;
    for (uint32_t i = 0; changes && i < core->sessions.touched; i++) {
        struct session *session = slab_at(&core->sessions, i);
        if (session != NULL && session->user == NULL && !session->revoked)
            wheel_add(&core->wheel, &session->timer, core->now_us);
    }
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

/* --- AUTH ----------------------------------------------------------------- */

static uint64_t
failure_delay_us(const struct source *source)
{
    uint64_t delay_us = DELAY_FIRST_US;

    for (uint32_t i = 1; i < source->failures && delay_us < DELAY_MOST_US; i++)
        delay_us *= 2;
    return us_min(delay_us, DELAY_MOST_US);
}

static void
auth_failed(
    struct core *core, struct session *session, const struct request *request)
{
    struct pending *pending = command_pending(core, session, request);
    struct source *source = session->source;
    char name[AUTH_LOG_BYTES];

    /* What no user is called may be a secret in the wrong place. */
    bool known = users_find(core->settings.users, request->names[0]) != NULL;
    count(core->counters, COUNTER_auth_failed);
    log_write(LOG_WARN, "auth_failed", "user=%s session=%s peer=%s",
        known ? log_quote(name, sizeof(name), request->names[0]) : "unknown",
        session->short_id, session->peer);
    if (pending == NULL)
        return;
    source_forget(core, source);
    source->failures += source->failures < UINT32_MAX;
    source->failed_us = core->now_us;
    source->waiting++;
    session->auths++;
    wheel_add(&core->wheel, &pending->timer,
        us_add(core->now_us, failure_delay_us(source)));
}

/* An AUTH that has failed is answered, or nobody is left to be. */
void
auth_waited(struct session *session)
{
    require(session->source != NULL && session->source->waiting > 0);
    require(session->auths > 0);
    session->source->waiting--;
    session->auths--;
}

/* --- what comes behind an AUTH -------------------------------------------- */

/* Whether what the session sends waits for the reply to an AUTH. */
bool
auth_pauses(const struct session *session)
{
    return session->auths > 0 || !list_empty(&session->behind);
}

bool
auth_may_go_on(const struct session *session)
{
    return session->auths == 0 &&
           (session->fin_behind || !list_empty(&session->behind));
}

/* Whether the line has its turn after an AUTH, or was refused. */
bool
auth_keeps_back(struct core *core, struct session *session, const char *line,
    size_t len, bool too_long)
{
    char tag[PROTO_TAG_MAX + 1];
    struct behind *behind = NULL;

    if (session->state != SESSION_OPEN || !auth_pauses(session))
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
    return true;
}

/* The next of them, which is the session's no more; NULL: there is none. */
static struct behind *
behind_pop(struct session *session)
{
    struct list *link = list_pop_front(&session->behind);

    session->behind_count -= link != NULL;
    return link == NULL ? NULL : container_of(link, struct behind, link);
}

static void
behind_free(struct core *core, struct behind *behind)
{
    explicit_bzero(behind->line, behind->len); /* may be a secret */
    slab_free(&core->behind, behind);
}

/* The reply to an AUTH that has failed. */
void
auth_answer(struct core *core, struct pending *pending)
{
    struct session *session = pending->session;

    pending_error(core, pending, ERROR_AUTH, "no such user, or another secret");
    if (auth_may_go_on(session))
        wheel_add(&core->wheel, &session->timer, core->now_us);
}

/* The next line, or the end, that came behind an AUTH. False: the session is
 * not open any more, and may be gone. */
bool
auth_go_on(struct core *core, struct session *session)
{
    struct handle handle = slab_handle(&core->sessions, session);
    char tag[PROTO_TAG_MAX + 1];

    if (!auth_may_go_on(session))
        return true;
    struct behind *behind = behind_pop(session);
    if (behind == NULL) {
        session->fin_behind = false;
        session_eof(core, session);
        return false;
    }
    if (behind->too_long) {
        (void)request_tag(behind->line, behind->len, tag);
        answer_error(core, session, tag, ERROR_TOOLONG, NULL);
    } else {
        command_line(core, session, behind->line, behind->len);
    }
    behind_free(core, behind);
    if (slab_get(&core->sessions, handle) == NULL)
        return false;
    session_check_end(core, session);
    return session->state == SESSION_OPEN;
}

/* The session ends before their turn. */
void
auth_refuse_behind(
    struct core *core, struct session *session, enum error_code code)
{
    struct behind *behind;

    while ((behind = behind_pop(session)) != NULL) {
        char tag[PROTO_TAG_MAX + 1];
        struct request request;
        struct request_error error;
        (void)request_tag(behind->line, behind->len, tag);
        enum request_status status = request_parse(behind->line, behind->len,
            core->settings.name_max, &request, &error);
        if (status == REQUEST_BAD ||
            (status == REQUEST_OK && request.command != COMMAND_PONG))
            answer_error(core, session, tag, code, NULL);
        behind_free(core, behind);
    }
}

void
auth_drop_behind(struct core *core, struct session *session)
{
    struct behind *behind;

    session->fin_behind = false;
    while ((behind = behind_pop(session)) != NULL)
        behind_free(core, behind);
}

/* Whether the session has nothing yet that is its user's. */
static bool
session_is_bare(const struct session *session)
{
    return session->ticket_count == 0 && session->pending_count == 0 &&
           session->watch_count == 0 && session->generation == 1;
}

/* The user is known: it is the session's from now on. */
static void
auth_succeeded(struct core *core, struct session *session,
    const struct request *request, struct user *user, uint32_t mark)
{
    char name[AUTH_LOG_BYTES];

    if (user == session->user) {
        session->user_mark = mark;
    } else if (!session_is_bare(session)) {
        answer_error(core, session, request->tag, ERROR_CONFLICT,
            "another user comes while the session has nothing of its own");
        return;
    } else if (user_is_full(core, user)) {
        count(core->counters, COUNTER_limit_user_connections);
        answer_limit(core, session, request->tag, "user_connections");
        return;
    } else {
        if (session->user != NULL)
            session->user->connections--;
        session->user = NULL;
        auth_take(session, user, mark);
        session_rename(core, session);
    }
    count(core->counters, COUNTER_auth_ok);
    log_write(LOG_DEBUG, "authenticated", "session=%s peer=%s%s",
        session->short_id, session->peer, auth_log_user(session, name));
    answer_ok(core, session, request);
}

void
auth_command(
    struct core *core, struct session *session, const struct request *request)
{
    const struct users *users = core->settings.users;
    struct text secret = request->names[1];
    uint32_t mark = 0;

    if (users == NULL) {
        answer_error(core, session, request->tag, ERROR_AUTH,
            "this broker has no users");
        return;
    }
    /* A session that came before there were users is closed by now. */
    require(session->source != NULL);
    struct user *user =
        users_of_secret(users, request->names[0], secret, &mark);
    if (user != NULL) {
        auth_succeeded(core, session, request, user, mark);
    } else if (session->source->waiting >= WAITING_MAX) {
        count(core->counters, COUNTER_limit_auth);
        answer_limit(core, session, request->tag, "auth");
    } else {
        auth_failed(core, session, request);
    }
}

/* --- rights --------------------------------------------------------------- */

static bool
session_may(const struct core *core, const struct session *session,
    enum right right, struct text name)
{
    const struct users *users = core->settings.users;

    return users == NULL || (session->user != NULL &&
                                user_may(users, session->user, right, name));
}

/* Which of its names the session may not lock: its place, or their count. */
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

/*
 * Takes other users: rights are theirs at once, and each session is looked at
 * in a small step of its own.
 */
void
auth_set_users(struct core *core, const struct users *users)
{
    char name[AUTH_LOG_BYTES];

    for (uint32_t i = 0; i < core->sessions.touched; i++) {
        struct session *session = slab_at(&core->sessions, i);
        if (session == NULL || session->user == NULL)
            continue;
        const struct user *before = session->user;
        session->user = user_again(session, users);
        session->revoked = session->user == NULL;
        if (session->revoked)
            log_write(LOG_INFO, "session_revoked", "session=%s peer=%s user=%s",
                session->short_id, session->peer,
                log_quote(name, sizeof(name), before->name));
        session->recheck = true;
        wheel_add(&core->wheel, &session->timer, core->now_us);
        if (session->user == NULL)
            continue;
        session->user->connections += !session->away;
        session->user->tickets += session->ticket_count;
    }
    core->settings.users = users;
}

/* Whether its user may not lock (any more) all that a waiting LOCK is about. */
static bool
lock_is_denied(const struct core *core, const struct pending *pending)
{
    const struct session *session = pending->session;
    const struct bundle *bundle = slab_get(&core->bundles, pending->bundle);

    if (pending->command != COMMAND_LOCK || pending->part != PART_NONE ||
        pending->ended)
        return false;
    if (pending->ticket != NULL)
        return !session_may(core, session, RIGHT_LOCK,
            text_make(
                pending->ticket->lock->name, pending->ticket->lock->name_len));
    return bundle != NULL && auth_denied(core, session, bundle) < bundle->count;
}

/* Ends a LOCK whose user has lost the right to it while it waited. Its timer
 * may be needed again. */
void
auth_end_wait(struct core *core, struct pending *pending)
{
    pending->denied = false;
    bool ends =
        pending->ticket == NULL
            ? bundle_cancel(core, pending, ERROR_DENIED, NULL)
            : ticket_cancel(core, pending->ticket, pending, ERROR_DENIED, NULL);
    if (ends)
        count(core->counters, COUNTER_requests_denied);
}

static void
session_recheck(struct core *core, struct session *session)
{
    LIST_EACH (link, &session->pendings) {
        struct pending *pending =
            container_of(link, struct pending, session_link);
        if (!lock_is_denied(core, pending))
            continue;
        pending->denied = true;
        wheel_add(&core->wheel, &pending->timer, core->now_us);
    }
    LIST_EACH_SAFE (link, &session->watches) {
        const struct lock *lock =
            container_of(link, struct watch, session_link)->lock;
        struct text name = text_make(lock->name, lock->name_len);
        if (!auth_sees(core, session, name))
            watch_end(core, session, name);
    }
}

/* The users are others; true: that was the end of the session. */
bool
auth_recheck(struct core *core, struct session *session)
{
    session->recheck = false;
    if (!session->revoked) {
        session_recheck(core, session);
        return false;
    }
    session_expel_user(core, session);
    return true;
}

/* For core_check(): what is counted of users and addresses is what there is. */
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
        connections += !session->away;
        tickets += session->ticket_count;
    }
    const struct users *users = core->settings.users;
    for (uint32_t i = 0; users != NULL && i < users->count; i++) {
        connections -= users->user[i].connections;
        tickets -= users->user[i].tickets;
    }
    require(connections == 0 && tickets == 0 && behind == 0);
    require(core->source_table.count == core->sources.used);
    require(core->idle_count <= IDLE_MAX);
}

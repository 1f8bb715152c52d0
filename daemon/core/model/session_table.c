/*
 * Sessions by their IDs, and what others ask about a session: whether it is
 * kept, how long it may be silent, whether it ends.
 *
 * A session's ID is a secret that only its client knows. Tables and Redis have
 * a session with a user by a hash of its ID and the user's name. So only the
 * same user can take the session over, at any broker (DESIGN.md D7.1).
 */
#include "daemon/core/model/session_table.h"

#include "daemon/base/assert.h"
#include "daemon/base/sha256.h"

uint64_t
core_public_hash(const void *bytes, size_t len)
{
    static const struct hash_key key = {
        {0x686f6c6466617374, 0x7075626c69636964}};

    return hash_bytes(&key, bytes, len);
}

void
core_short_id(const uint8_t session[16], char out[SHORT_ID_BYTES + 1])
{
    uint64_t public = core_public_hash(session, 16);

    text_to_hex(out, (const uint8_t *)&public, SHORT_ID_BYTES / 2);
    out[SHORT_ID_BYTES] = '\0';
}

uint32_t
core_sessions_room(const struct core_settings *settings)
{
    return 2 * settings->sessions_max;
}

uint64_t
session_silence_bound_us(const struct session *session)
{
    /* The broker may see the end of the connection when the client does not:
     * from then on keep= is all that is left. */
    if (session->keep_us > 0)
        return session->keep_us;
    if (session->heartbeat_us > 0)
        return us_min(session->silence_us, 3 * session->heartbeat_us);
    return session->silence_us;
}

uint64_t
session_silence_us(const struct core *core, const struct session *session)
{
    uint64_t silence_us = session_silence_bound_us(session);

    require(session->heard_us <= core->now_us);
    if (session->keep_us == 0 && session->heartbeat_us > 0) {
        uint64_t end_us = session->heard_us + 3 * session->heartbeat_us;
        silence_us = us_min(
            silence_us, end_us > core->now_us ? end_us - core->now_us : 0);
    }
    require(silence_us <= session_silence_bound_us(session));
    return silence_us;
}

#define TO(state) (1u << SESSION_##state)

void
session_move(
    struct core *core, struct session *session, enum session_state state)
{
    static const unsigned moves[SESSION_STATE_COUNT] = {
        [SESSION_OPEN] =
            TO(HALF_CLOSED) | TO(CLOSING) | TO(QUITTING) | TO(AWAY) | TO(GONE),
        [SESSION_HALF_CLOSED] =
            TO(CLOSING) | TO(QUITTING) | TO(AWAY) | TO(GONE),
        [SESSION_CLOSING] = TO(AWAY) | TO(GONE),
        [SESSION_QUITTING] = TO(GONE),
        [SESSION_AWAY] = TO(GONE),
        [SESSION_GONE] = 0,
    };

    require((moves[session->state] & 1u << state) != 0);
    bool connected = session_connected(session);
    session->state = state;
    core->away += connected && !session_connected(session);
    require(core->away <= core->sessions.used);
    session_check(core, session);
}

/* A session without a connection has nothing that a connection could use. */
static void
check_no_connection(const struct session *session)
{
    require(list_empty(&session->requests) && list_empty(&session->behind));
    require(list_empty(&session->watches) && list_empty(&session->news));
    require(session->address == NULL && session->auths == 0);
    require(!session->watch_waits);
}

void
session_check(const struct core *core, const struct session *session)
{
    require(session->state < SESSION_STATE_COUNT);
    if (!session_connected(session))
        check_no_connection(session);
    if (session_is_open(session))
        require(session->end == END_NONE);
    if (session->state == SESSION_CLOSING || session->state == SESSION_QUITTING)
        require(session->end != END_NONE);
    if (session->state == SESSION_AWAY) { /* DESIGN.md D7.4 */
        require(session_keeps(session) && session->end == END_NONE);
        require(session->heartbeat_us == 0 && session->beat_due_us == NEVER);
        require(!session->drained);
    }
    require(!session->drained || core->stopping);
    require(session->held + session->waiting <= session->ticket_count);
    require((session->ticket_count == 0) == list_empty(&session->tickets));
    require((session->request_count == 0) == list_empty(&session->requests));
    require((session->behind_count == 0) == list_empty(&session->behind));
    require((session->watch_count == 0) == list_empty(&session->watches));
}

bool
session_was_killed(const struct session *session)
{
    return session->end == END_KILLED || session->end == END_AUTH;
}

bool
session_keeps(const struct session *session)
{
    return session->keep_us > 0 && !session_was_killed(session) &&
           session->end != END_QUIT;
}

bool
session_gives_back(const struct session *session)
{
    return session == NULL ||
           (session_closes(session) && !session_keeps(session));
}

void
auth_session_id(const struct user *user, const uint8_t told[16], uint8_t id[16])
{
    uint8_t digest[SHA256_BYTES];
    struct sha256 sha;

    if (user == NULL) {
        memcpy(id, told, 16);
        return;
    }
    sha256_init(&sha);
    sha256_add(&sha, TEXT("holdfast session"));
    sha256_add(&sha, text_make((const char *)told, 16));
    sha256_add(&sha, user->name);
    sha256_end(&sha, digest);
    memcpy(id, digest, 16);
}

static uint64_t
session_hash(const struct core *core, const uint8_t id[16])
{
    return hash_bytes(&core->hash_key, id, 16);
}

struct session *
session_find(const struct core *core, const uint8_t id[16])
{
    uint64_t hash = session_hash(core, id);

    require(core->session_table.count <= core->sessions.used);
    for (struct table_node *node = table_first(&core->session_table, hash);
         node != NULL; node = table_next(node)) {
        struct session *session = container_of(node, struct session, table);
        if (session->state != SESSION_GONE &&
            secret_equal(session->id, id, sizeof(session->id)))
            return session;
    }
    return NULL;
}

void
session_set_id(
    struct core *core, struct session *session, const uint8_t told[16])
{
    memmove(session->token, told, sizeof(session->token));
    auth_session_id(session->user, session->token, session->id);
    core_short_id(session->id, session->short_id);
    table_insert(
        &core->session_table, &session->table, session_hash(core, session->id));
    require(core->session_table.count <= core->sessions.used);
}

void
session_rename(struct core *core, struct session *session)
{
    require(session->ticket_count == 0 && session->generation == 1);
    table_remove(&core->session_table, &session->table);
    session_set_id(core, session, session->token);
}

void
session_check_end(struct core *core, struct session *session)
{
    bool bare = session->ticket_count == 0;

    if (!list_empty(&session->ending_link) || session->request_count > 0 ||
        session->state == SESSION_GONE)
        return;
    bool away = session->state == SESSION_AWAY;
    if (!session_closes(session) &&
        (!((session->drained || away) && bare) || auth_may_go_on(session)))
        return;
    list_push_back(&core->ending, &session->ending_link);
}

void
auth_waited(struct session *session)
{
    require(session->address != NULL && session->address->waiting > 0);
    require(session->auths > 0);
    session->address->waiting--;
    session->auths--;
}

bool
auth_may_go_on(const struct session *session)
{
    require(session->behind_count == 0 || !list_empty(&session->behind));
    return session->auths == 0 && (session->state == SESSION_HALF_CLOSED ||
                                      !list_empty(&session->behind));
}

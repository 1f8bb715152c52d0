/*
 * Sessions by their IDs, and what others ask about a session: whether it is
 * kept, how long it may be silent, whether it ends.
 *
 * A session's ID is a secret that only its client knows. In the tables, and in
 * Redis, a session with a user is under a hash of its ID and the user's name:
 * so whoever takes it over has to be the same user, here and at any other
 * broker, and need not be asked about it.
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
session_silence_us(const struct core *core, const struct session *session)
{
    uint64_t silence_us = session->silence_us;

    /* The broker may see the end of the connection when the client does not:
     * from then on keep= is all that is left. */
    if (session->keep_us > 0)
        return session->keep_us;

    if (session->heartbeat_us > 0) {
        uint64_t end_us = session->heard_us + 3 * session->heartbeat_us;
        silence_us = us_min(
            silence_us, end_us > core->now_us ? end_us - core->now_us : 0);
    }
    return silence_us;
}

bool
session_keeps(const struct session *session)
{
    return session->keep_us > 0 && !session->killed &&
           session->bye_counter != COUNTER_closed_quit;
}

bool
session_closes(const struct session *session)
{
    return session != NULL && session->state != SESSION_OPEN;
}

bool
session_gives_back(const struct session *session)
{
    return session == NULL ||
           (session->state != SESSION_OPEN && !session_keeps(session));
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
}

void
session_rename(struct core *core, struct session *session)
{
    table_remove(&core->session_table, &session->table);
    session_set_id(core, session, session->token);
}

void
session_check_end(struct core *core, struct session *session)
{
    bool bare = session->ticket_count == 0;

    if (session->ending || session->request_count > 0)
        return;
    if (session->state == SESSION_OPEN &&
        (!((session->drained || session->away) && bare) ||
            auth_may_go_on(session)))
        return;
    session->ending = true;
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
    return session->auths == 0 &&
           (session->fin_behind || !list_empty(&session->behind));
}

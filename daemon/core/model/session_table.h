/*
 * Sessions by their IDs. See session_table.c.
 */
#ifndef HOLDFAST_CORE_MODEL_SESSION_TABLE_H
#define HOLDFAST_CORE_MODEL_SESSION_TABLE_H

#include "daemon/core/model/state.h"

/* Hash of an owner's word or of a session's ID, the same at every broker. */
uint64_t core_public_hash(const void *bytes, size_t len);

/* The short ID of a session, for people and logs. */
void core_short_id(const uint8_t session[16], char out[SHORT_ID_BYTES + 1]);

/* After how much silence the client must count the connection as lost. */
uint64_t session_silence_us(
    const struct core *core, const struct session *session);

/* Enters a state. The move must be in the table. Keeps core->away. */
void session_move(
    struct core *core, struct session *session, enum session_state state);

/* Asserts the invariants of the session. */
void session_check(const struct core *core, const struct session *session);

/* Whether the session has a connection. */
static inline bool
session_connected(const struct session *session)
{
    return session->state != SESSION_AWAY && session->state != SESSION_GONE;
}

/* Whether the session takes requests. */
static inline bool
session_is_open(const struct session *session)
{
    return session->state == SESSION_OPEN ||
           session->state == SESSION_HALF_CLOSED;
}

/* Whether an operator or a reload of users ended the session. */
bool session_was_killed(const struct session *session);

/* Whether the session's holds and waits outlive its connection. */
bool session_keeps(const struct session *session);

/* Whether the session sends no more, which ends what its LOCKs wait for. NULL
 * is no session, and does not. */
static inline bool
session_closes(const struct session *session)
{
    return session != NULL && !session_is_open(session) &&
           session->state != SESSION_AWAY;
}

/* Whether the session's holds are released without being asked for. NULL is a
 * session that has ended. */
bool session_gives_back(const struct session *session);

/* The ID that tables and Redis have for a session, from its user and from the
 * ID that its client was told. */
void auth_session_id(
    const struct user *user, const uint8_t told[16], uint8_t id[16]);

/* The session of that ID, as tables have it; NULL: there is none. */
struct session *session_find(const struct core *core, const uint8_t id[16]);

/* Puts the session into the table, by the ID that its client was told and by
 * its user. */
void session_set_id(
    struct core *core, struct session *session, const uint8_t told[16]);

/* The session has another user: finds its place in the table again. */
void session_rename(struct core *core, struct session *session);

/* Queues the session for its end, if nothing keeps it any more. */
void session_check_end(struct core *core, struct session *session);

/* A failed AUTH has its answer, or nobody is left to hear it: its address and
 * its session have one less. */
void auth_waited(struct session *session);

/* Whether lines, or the end of input, wait and the AUTH before them has its
 * reply. */
bool auth_may_go_on(const struct session *session);

#endif

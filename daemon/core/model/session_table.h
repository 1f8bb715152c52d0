/*
 * Sessions: IDs, owners, addresses, rights.
 */
#ifndef HOLDFAST_CORE_MODEL_SESSION_TABLE_H
#define HOLDFAST_CORE_MODEL_SESSION_TABLE_H

#include "daemon/base/log.h"
#include "daemon/core/model/state.h"

/* session_table.c */

/* Hash of an owner's word or of a session's ID, the same at every broker. */
uint64_t core_public_hash(const void *bytes, size_t len);

/* The short ID of a session, for people and logs. */
void core_short_id(const uint8_t session[16], char out[SHORT_ID_BYTES + 1]);

/* After how much silence the session may end, or NEVER. */
uint64_t session_silence_bound_us(const struct session *session);

/* After how much more silence the client must count the connection as lost. */
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

/* owner.c */

/* Takes memory for as many owners as tickets. False: there is none. */
bool owner_init(struct core *core);

/* Frees the memory of owners. */
void owner_fini(struct core *core);

/* The session's owner by the hash of its word; NULL: it has no ticket. */
struct owner *owner_find(
    const struct core *core, const struct session *session, uint64_t hash);

/* Counts a ticket that has come to its session. The owner is created with its
 * first ticket. */
void owner_joined(struct core *core, struct ticket *ticket);

/* The ticket leaves its session. The owner is gone with its last ticket. */
void owner_left(struct core *core, struct ticket *ticket);

/* Counts the change of state. To be called before ticket->state changes. */
void owner_state(struct ticket *ticket, enum ticket_state state);

/* Whether the owner can be part of a deadlock: it waits, and holds or waits for
 * something else. */
bool owner_is_in_between(const struct owner *owner);

/* Asserts that the counts of all owners are true. For core_check(). */
void owner_check(const struct core *core);

/* address.c */

/* Addresses with failures, and with nobody connected. */
#define IDLE_MAX 4096

/* Takes memory for the addresses. False: there is none. */
bool auth_init(struct core *core);

/* Frees the table of addresses. */
void auth_fini(struct core *core);

/* Forgets the failures of an address that are old enough. */
void address_forget(const struct core *core, struct peer_address *address);

/* Whether the user has as many connections as it may have. */
bool user_is_full(const struct core *core, const struct user *user);

/* Whether another connection fits by its address and its user. A refusal is
 * counted. */
bool auth_admits(struct core *core, const struct core_event *event);

/* Gives the session its user, by that mark. It has none before, and is in no
 * table. */
void auth_take(struct session *session, struct user *user, uint32_t mark);

/* Counts a new session for its address and its user. auth_admits() has allowed
 * it. */
void auth_opened(
    struct core *core, struct session *session, const struct core_event *event);

/* The session has no connection any more: its user and its address are counted
 * down. */
void auth_disconnected(struct core *core, struct session *session);

/* How long the answer to a failed AUTH is delayed, by the failures of that
 * address. */
uint64_t failure_delay_us(const struct peer_address *address);

/* rights.c */

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

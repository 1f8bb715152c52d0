/*
 * Owners within a session. See owner.c.
 */
#ifndef HOLDFAST_CORE_MODEL_OWNER_H
#define HOLDFAST_CORE_MODEL_OWNER_H

#include "daemon/core/model/state.h"

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

#endif

/*
 * Connections by address and user. See address.c.
 */
#ifndef HOLDFAST_CORE_MODEL_ADDRESS_H
#define HOLDFAST_CORE_MODEL_ADDRESS_H

#include "daemon/core/model/state.h"

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

#endif

/*
 * Tickets: creation, states, counts. See ticket.c.
 */
#ifndef HOLDFAST_CORE_TICKET_H
#define HOLDFAST_CORE_TICKET_H

#include "daemon/base/log.h"
#include "daemon/core/state.h"

/* Failed renewals and releases are tried again after so long, at least. */
#define RETRY_US 100000

/* The session's ticket for that lock and owner; NULL: there is none. */
struct ticket *ticket_find(const struct core *core,
    const struct session *session, const struct lock *lock, struct text owner);

/* Creates an IDLE ticket, which holds a reference to the lock. The caller must
 * put a request to it. NULL: there is no room. */
struct ticket *ticket_create(struct core *core, struct session *session,
    struct lock *lock, struct text owner);

/* The ticket of that lock and owner, created if need be. NULL: a limit forbids
 * it, which is counted and named in *limit. */
struct ticket *ticket_obtain(struct core *core, struct session *session,
    struct text name, struct text owner, const char **limit);

/* Cuts the ticket from its session. */
void ticket_detach(struct core *core, struct ticket *ticket);

/* Frees an IDLE ticket without requests. */
void ticket_free(struct core *core, struct ticket *ticket);

/* The owner's word. It lives as long as the ticket. */
struct text ticket_owner(const struct ticket *ticket);

/* The note. It lives until ticket_set_note() or the ticket's end. */
struct text ticket_note(const struct ticket *ticket);

/* The client's name of the latest request. It lives as long as the ticket. */
struct text ticket_client(const struct ticket *ticket);

/* Logs an event of the ticket's life. `reason` may be NULL. */
void ticket_log(const struct ticket *ticket, enum log_level level,
    const char *event, const char *reason);

/* The time in ms that the client may count on without another word from the
 * broker. */
uint64_t ticket_ttl_ms(const struct core *core, const struct ticket *ticket);

/* Takes the deadline into the least one that a PING tells. Unattended tickets
 * do not count, and lease= counts apart. */
void ticket_count_deadline(const struct ticket *ticket);

/* Sets the deadline and counts it for PING. The caller arms the timer. */
void ticket_set_deadline(struct ticket *ticket, uint64_t deadline_us);

/* The request that is being served; NULL: none. */
struct pending *ticket_pending(const struct ticket *ticket);

/* The request that the ticket's own operation answers; NULL: it is gone. */
struct pending *ticket_asking(const struct ticket *ticket);

/* How often the client holds the lock. A hold of an unfinished multi-lock does
 * not count yet. */
uint32_t ticket_known_holds(const struct ticket *ticket);

/* Makes the transition and moves all counts and lists. The caller arms the
 * timer. */
void ticket_set_state(
    struct core *core, struct ticket *ticket, enum ticket_state state);

/* Sets the ticket's timer to the soonest time of its state. */
void ticket_arm(struct core *core, struct ticket *ticket);

/* Creates an operation on the ticket's place in the record. NULL: there is no
 * room. */
struct op *ticket_op(
    struct core *core, struct ticket *ticket, enum op_kind kind);

/* Takes the place and arrival that Redis has told. */
void ticket_stands(struct ticket *ticket, uint32_t place, uint64_t arrival);

/* Whether the ticket stands in the queue, or waits for the broker to settle
 * with the node. */
bool ticket_is_patient(const struct ticket *ticket);

/* Advances the ticket at the end of this step, or in the next one with room for
 * its answers. */
void ticket_stir(struct core *core, struct ticket *ticket);

/* As ticket_stir(), after all tickets of that. For the many tickets of a
 * session that closes. */
void ticket_stir_late(struct core *core, struct ticket *ticket);

/* Whether a later connection of the session has the ticket at another broker.
 * Only that broker may put it again. */
bool ticket_is_taken(const struct ticket *ticket);

/* Gives the ticket to another connection of its session, with its counts and
 * lists. */
void ticket_rebind(
    struct core *core, struct ticket *ticket, struct session *session);

/* When the waiting ticket begins a search for a deadlock; NEVER: not. */
void ticket_probe_at(struct core *core, struct ticket *ticket, uint64_t at_us);

/* Until when Redis is waited for on behalf of the request being served. */
uint64_t pending_give_up_us(
    const struct core *core, const struct pending *pending);

/* Adds the ticket's words to a question that may put the ticket into the
 * record. */
void ticket_words(const struct ticket *ticket, struct op *op);

/* Sets the note of the ticket, cut to its room. */
void ticket_set_note(struct ticket *ticket, struct text note);

/* Takes over the client's name from the session. */
void ticket_set_client(struct ticket *ticket, const struct session *session);

/* Forgets what an IDLE ticket knew of Redis, to serve that request. */
void ticket_reset(struct ticket *ticket, struct pending *pending);

#endif

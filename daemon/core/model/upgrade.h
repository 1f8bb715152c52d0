/*
 * Upgrades: tickets that are exclusive, or wait to be, above another hold of
 * their owner. See DESIGN.md D1.8.
 */
#ifndef HOLDFAST_CORE_MODEL_UPGRADE_H
#define HOLDFAST_CORE_MODEL_UPGRADE_H

#include "daemon/core/model/ticket.h"

struct request;

/* Reads mode=, "" without it. NULL, or what is wrong with it. */
const char *lock_mode(
    const struct core *core, struct text word, enum mode *mode);

/* The upgrade above the ticket of that lock and owner; NULL: there is none. */
struct ticket *ticket_find_upgrade(const struct core *core,
    const struct session *session, const struct lock *lock, struct text owner);

/* That, created if need be. NULL: as ticket_obtain(). */
struct ticket *ticket_obtain_upgrade(struct core *core, struct session *session,
    struct text name, struct text owner, const char **limit);

/* Whether it is an upgrade that is held, asked for or waited for; also NULL. */
static inline bool
upgrade_stands(const struct ticket *ticket)
{
    return ticket != NULL && ticket->state != TICKET_IDLE &&
           ticket->state != TICKET_LEAVING;
}

/* The ticket of a hold that UNLOCK, RENEW or NOTE is about, or NULL. With a
 * fence it is the one that has the fence. Without one (0) the request stands
 * behind the owner's earlier requests; an upgrade goes before the hold below.
 */
struct ticket *ticket_meant(const struct core *core,
    const struct session *session, const struct lock *lock, struct text owner,
    uint64_t fence);

/* The ticket for a LOCK: as ticket_obtain(), but behind the owner's earlier
 * requests. An upgrade goes before a hold below it that has ended. */
struct ticket *ticket_for_lock(struct core *core, struct session *session,
    struct text name, struct text owner, const char **limit);

/* The ticket that the upgrade stands above, or NULL. */
struct ticket *ticket_base(
    const struct core *core, const struct ticket *upgrade);

/* The holds of the owner, with those of an upgrade and below it. */
uint32_t ticket_all_holds(const struct core *core, const struct ticket *ticket);

/* Sets what was asked for. The mode of an upgrade, and of no other ticket, is
 * MODE_UPGRADE, whatever a damaged record says. */
void ticket_set_ask(struct ticket *ticket, const struct ask *ask);

/* The hash of the owner as the record has it. */
uint64_t ticket_record_owner(const struct ticket *ticket);

/* The other ticket of the owner that a queued request of this ticket is about,
 * or NULL. The ticket is held, or IDLE with the first of its requests. */
struct ticket *request_elsewhere(const struct core *core,
    const struct ticket *ticket, const struct request *request);

/* Puts a queued request to another ticket of its session and lock, which serves
 * it at the end of the step. */
void request_hand(
    struct core *core, struct request *request, struct ticket *ticket);

#endif

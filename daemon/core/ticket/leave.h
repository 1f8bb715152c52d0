/*
 * Tickets that leave Redis. See leave.c.
 */
#ifndef HOLDFAST_CORE_TICKET_LEAVE_H
#define HOLDFAST_CORE_TICKET_LEAVE_H

#include "daemon/core/model/state.h"

/* Whether a request stands behind the release. */
bool leaving_is_awaited(const struct ticket *ticket);

/* Whether the ticket is LEAVING and its release is not due: other brokers see
 * the lease until then. */
bool ticket_expires(const struct core *core, const struct ticket *ticket);

/* Sends the release. Without room for an operation it is tried again after
 * RETRY_US. */
void ticket_send_release(struct core *core, struct ticket *ticket);

/* Ends the hold or wait: the ticket is LEAVING, and its release is sent at
 * `at_us`. No operation of the ticket may be under way but a renewal. */
void ticket_leave_at(struct core *core, struct ticket *ticket, uint64_t at_us);

/* Goes on with a ticket that is LEAVING after its reclaim was answered: sends
 * the release when due. */
void ticket_leave_on(struct core *core, struct ticket *ticket);

/* As ticket_leave_at(), with the release sent now. */
void ticket_leave(struct core *core, struct ticket *ticket);

/* Redis has nothing of the ticket any more: IDLE. The caller advances it. */
void ticket_end(struct core *core, struct ticket *ticket);

/* Gives back one hold that the client does not know of. */
void ticket_give_back(struct core *core, struct ticket *ticket);

#endif

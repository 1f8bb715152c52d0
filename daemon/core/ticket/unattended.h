/*
 * Tickets without a connection. See unattended.c.
 */
#ifndef HOLDFAST_CORE_TICKET_UNATTENDED_H
#define HOLDFAST_CORE_TICKET_UNATTENDED_H

#include "daemon/core/model/state.h"

/* The session is gone, and its requests are freed: the ticket goes on without
 * it. It may be gone afterwards. */
void ticket_orphan(struct core *core, struct ticket *ticket);

/* The connection has ended and the session is kept: so is the ticket. It may be
 * gone afterwards. */
void ticket_leave_unattended(struct core *core, struct ticket *ticket);

/* Ends a ticket that nobody has claimed in time. True: a request stands at it,
 * and it is to be looked at again. */
bool ticket_end_unattended(struct core *core, struct ticket *ticket);

/* Leaves the ticket to another broker, as this one stops. It is renewed once
 * more, so that there is time to claim it. */
void ticket_forget(struct core *core, struct ticket *ticket);

#endif

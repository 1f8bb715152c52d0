/*
 * The loop over the requests of a ticket. See advance.c.
 */
#ifndef HOLDFAST_CORE_TICKET_ADVANCE_H
#define HOLDFAST_CORE_TICKET_ADVANCE_H

#include "daemon/core/model/state.h"

/* Serves the ticket's requests as far as possible. The ticket may be gone
 * afterwards. Without room for answers it goes on in a later step. */
void ticket_advance(struct core *core, struct ticket *ticket);

/* Serves the tickets that were put off to the end of the step, as far as there
 * is room. */
void ticket_advance_stirred(struct core *core);

/* Redis has nothing of the ticket any more: IDLE, and the next request is
 * served. The ticket may be gone afterwards. */
void ticket_rest(struct core *core, struct ticket *ticket);

#endif

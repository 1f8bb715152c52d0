/*
 * Events of tickets. See ticket_event.c.
 */
#ifndef HOLDFAST_CORE_TICKET_TICKET_EVENT_H
#define HOLDFAST_CORE_TICKET_TICKET_EVENT_H

#include "daemon/core/model/state.h"

struct op;
struct op_grant;

/* Takes the answer to a ticket's operation. The ticket may be gone, or have
 * moved on. */
void ticket_done(struct core *core, struct op *op);

/* The time of a ticket has come. The ticket may be gone afterwards. */
void ticket_timer(struct core *core, struct ticket *ticket);

/* A release of this broker has granted the lock to a waiting ticket of this
 * broker. */
void ticket_granted_by_the_way(
    struct core *core, const struct op_grant *grant, uint64_t sent_us);

/* A script told of a grant to a ticket of this broker: the ticket claims it. */
void ticket_hint(struct core *core, uint64_t request);

/* A script told that a hold was taken away. Without that word its renewal would
 * tell. */
void ticket_broken(struct core *core, uint64_t request, uint64_t fence);

/* The time of a LOCK's wait= has come. Its ticket may be gone afterwards. */
void ticket_wait_over(struct core *core, struct request *request);

#endif

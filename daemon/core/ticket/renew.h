/*
 * Renewals of holds. See renew.c.
 */
#ifndef HOLDFAST_CORE_TICKET_RENEW_H
#define HOLDFAST_CORE_TICKET_RENEW_H

#include "daemon/core/model/state.h"

/* Takes the answer to a renewal or to a reclaim. The ticket may be gone
 * afterwards. */
void hold_renew_done(
    struct core *core, struct ticket *ticket, const struct op *op);

/* The time of a hold has come: its deadline, a warning, or a renewal. The
 * ticket may be gone afterwards. */
void hold_timer(struct core *core, struct ticket *ticket);

/* Renews a hold at `at_us`, or sooner where that was set. */
void ticket_renew_at(struct core *core, struct ticket *ticket, uint64_t at_us);

#endif

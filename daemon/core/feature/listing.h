/*
 * Lists for people.
 */
#ifndef HOLDFAST_CORE_FEATURE_LISTING_H
#define HOLDFAST_CORE_FEATURE_LISTING_H

#include "daemon/core/model/state.h"

/* listing.c */

/* Takes the inspection for a SHOW and answers it. A request that is gone is
 * ignored. */
void listing_show_done(struct core *core, struct op *op);

/* Sends the next LISTING_MAX holds of a HELD. The final reply follows the last
 * one and frees the request. */
void listing_held(struct core *core, struct request *request);

/* recent.c */

/* Keeps a slow operation for SLOW. The tries of one operation are one entry. */
void recent_slow(struct core *core, const struct op *op);

/* Keeps a lost hold for SLOW. `reason` must be static. */
void recent_lost(
    struct core *core, const struct ticket *ticket, const char *reason);

/* Keeps a wait that deadlock detection ended. `cycle` and `sessions` must fit
 * struct recent. */
void recent_deadlock(struct core *core, const struct ticket *ticket,
    struct text cycle, struct text sessions);

#endif

/*
 * SHOW and HELD. See listing.c.
 */
#ifndef HOLDFAST_CORE_FEATURE_LISTING_H
#define HOLDFAST_CORE_FEATURE_LISTING_H

#include "daemon/core/model/state.h"

/* Takes the inspection for a SHOW and answers it. A request that is gone is
 * ignored. */
void listing_show_done(struct core *core, struct op *op);

/* Sends the next LISTING_MAX holds of a HELD. The final reply follows the last
 * one and frees the request. */
void listing_held(struct core *core, struct request *request);

#endif

/*
 * Answers about tickets that are not granted yet. See acquire.c.
 */
#ifndef HOLDFAST_CORE_TICKET_ACQUIRE_H
#define HOLDFAST_CORE_TICKET_ACQUIRE_H

#include "daemon/core/model/state.h"

struct op;
struct op_result;

/* How long the broker is not settled with the node yet, by the last answer; 0:
 * it is. */
uint64_t ticket_settles_us(
    const struct core *core, const struct ticket *ticket);

/* Takes the answer to an acquire. The ticket may be gone afterwards. */
void acquire_done(
    struct core *core, struct ticket *ticket, const struct op_result *result);

/* Takes the answer to a claim. The ticket may be gone afterwards. */
void claim_done(
    struct core *core, struct ticket *ticket, const struct op_result *result);

/* Takes the answer about a waiting ticket: granted, still waiting, or struck.
 * The ticket may be gone afterwards. */
void wait_refresh_done(
    struct core *core, struct ticket *ticket, const struct op *op);

#endif

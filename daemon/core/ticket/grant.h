/*
 * Grants. See grant.c.
 */
#ifndef HOLDFAST_CORE_TICKET_GRANT_H
#define HOLDFAST_CORE_TICKET_GRANT_H

#include "daemon/core/model/state.h"

struct op_result;

/* Whether nothing of the lease is left to be believed of that answer. */
bool hold_is_over(const struct core *core, const struct op_result *result);

/* The hold was claimed. Another broker's client may believe in it until the end
 * of the lease in the record. */
void hold_was_foreign(
    struct core *core, struct ticket *ticket, const struct op_result *result);

/* Sets the deadline, the next renewal and the next warning from an answer to a
 * call sent at `sent_us`. No more than the lease that was asked for is
 * believed. */
void hold_believe(struct core *core, struct ticket *ticket, uint64_t sent_us,
    uint64_t ttl_ms);

/* Redis has granted the lock to the ticket. The request may have gone
 * meanwhile; then the lock is given back. */
void ticket_grant(struct core *core, struct ticket *ticket, uint64_t fence,
    uint64_t arrival, uint32_t place, uint64_t sent_us, uint64_t ttl_ms);

#endif

/*
 * Questions to Redis about tickets. See question.c.
 */
#ifndef HOLDFAST_CORE_TICKET_QUESTION_H
#define HOLDFAST_CORE_TICKET_QUESTION_H

#include "daemon/core/model/state.h"

/* By when the request is answered in any case. */
uint64_t request_end_us(const struct core *core, const struct request *request);

/* Asks Redis for the lock until `deadline_us`. Without room the request is
 * refused. */
void ticket_ask(struct core *core, struct ticket *ticket,
    struct request *request, uint64_t deadline_us);

/* Asks Redis whether the hold of a CLAIM stands, and takes it over. Without
 * room the request is refused. */
void claim_ask(
    struct core *core, struct ticket *ticket, struct request *request);

/* Asks Redis about a waiting ticket, unless that is under way. */
void ticket_refresh(struct core *core, struct ticket *ticket);

/* Asks Redis about a waiting ticket at `at_us`, unless that is under way. */
void ticket_refresh_at(
    struct core *core, struct ticket *ticket, uint64_t at_us);

/* Puts a ticket back that Redis has lost, where it stood. The answer comes as a
 * renewal's. */
void ticket_reclaim(struct core *core, struct ticket *ticket);

/* Sends a renewal, by the watchdog or for a RENEW; it may take the place of one
 * under way. False: there is no room, and the next one is tried soon. */
bool ticket_send_renewal(struct core *core, struct ticket *ticket,
    uint64_t hard_end_us, uint64_t deadline_us, bool sets_end);

/* The hold ends at `end_us`, or sooner. A nearer end counts at once, whatever
 * Redis answers. The caller arms the timer. */
void hold_end_by(struct ticket *ticket, uint64_t now_us, uint64_t end_us);

/* Begins the lease= of a multi-lock's member, in ms, once all members are held.
 * A renewal tells Redis. */
void ticket_set_lease(
    struct core *core, struct ticket *ticket, uint64_t hold_ms);

/* Begins to serve a LOCK. The ticket is IDLE; without room the request is
 * refused, and it stays so. */
void ticket_begin(
    struct core *core, struct ticket *ticket, struct request *request);

/* Begins a CLAIM of a hold that an earlier connection had, perhaps at another
 * broker. The ticket is IDLE. */
void claim_begin(
    struct core *core, struct ticket *ticket, struct request *request);

#endif

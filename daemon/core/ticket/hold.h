/*
 * Tickets that hold. See hold.c.
 */
#ifndef HOLDFAST_CORE_TICKET_HOLD_H
#define HOLDFAST_CORE_TICKET_HOLD_H

#include "daemon/core/model/state.h"

/* Answers a LOCK or a CLAIM with the hold, and frees the request. A member of a
 * multi-lock is told to that instead. */
void answer_hold(
    struct core *core, struct request *request, struct ticket *ticket);

/* Logs the loss and keeps it for SLOW. `reason` must be static. */
void hold_note_lost(
    struct core *core, const struct ticket *ticket, const char *reason);

/* The client ends the hold, or is gone. A hold whose renewal is late counts as
 * lost. */
void hold_given_up(struct core *core, struct ticket *ticket);

/* Redis has no such hold: the client is told, and the ticket ends, or leaves.
 * The caller advances it. */
void hold_gone(struct core *core, struct ticket *ticket);

/* An operator has taken the hold away by BREAK: the client is told, and the
 * ticket leaves. */
void hold_broken(struct core *core, struct ticket *ticket);

/* Serves a LOCK of the holder itself, after Redis has confirmed the hold. */
void hold_relock(
    struct core *core, struct ticket *ticket, struct request *request);

/* The hold is this connection's now: answers the CLAIM, and frees it. */
void hold_claimed(
    struct core *core, struct ticket *ticket, struct request *request);

/* Serves the first request of a held ticket, or ends the hold. True: the loop
 * must look at the ticket again. `request` may be gone afterwards. */
bool hold_advance(
    struct core *core, struct ticket *ticket, struct request *request);

#endif

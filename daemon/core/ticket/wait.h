/*
 * Tickets that ask or wait. See wait.c.
 */
#ifndef HOLDFAST_CORE_TICKET_WAIT_H
#define HOLDFAST_CORE_TICKET_WAIT_H

#include "daemon/core/model/state.h"

/* Refuses LOCKs with wait=0 behind a wait, and frees them. The rest follows in
 * a later step if this one is full. */
void ticket_refuse_impatient(struct core *core, struct ticket *ticket);

/* Ends the first LOCK of a WAITING ticket whose session sends no more. False:
 * nothing has ended. The ticket may be gone afterwards. */
bool wait_closes(struct core *core, struct ticket *ticket);

/* Ends what an ASKING ticket waits for besides Redis' answer, if its session
 * sends no more. */
void asking_closes(struct core *core, struct ticket *ticket);

/* Serves an unattended wait. Requests about a hold find none. */
void wait_advance(struct core *core, struct ticket *ticket);

/* Ends a wait with an ERR. While Redis is being asked, and may grant the lock,
 * the ERR waits until the ticket is struck out, no longer than a command's
 * time-out (see ticket_wait_over()). */
void request_end(struct core *core, struct request *request,
    enum error_code code, const char *why);

/* Ends a wait with that error, once Redis grants it no more. False: an earlier
 * call has ended it. `why` is static or NULL. */
bool ticket_cancel(struct core *core, struct ticket *ticket,
    struct request *request, enum error_code code, const char *why);

/* Cancels the multi-lock that `request` is, or is a member of. False: an
 * earlier call has cancelled it. */
bool multilock_cancel(struct core *core, const struct request *request,
    enum error_code code, const char *why);

/* Asks Redis about the lock: about the first waiter of this broker, about all
 * of them, or about the lock alone. */
void lock_timer(struct core *core, struct lock *lock);

#endif

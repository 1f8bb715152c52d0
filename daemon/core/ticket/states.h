/*
 * Tickets that wait, hold or leave.
 */
#ifndef HOLDFAST_CORE_TICKET_STATES_H
#define HOLDFAST_CORE_TICKET_STATES_H

#include "daemon/core/model/state.h"
#include "daemon/op/kind.h"

struct op;
struct op_result;

/* wait.c */

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

/* acquire.c */

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

/* hold.c */

/* Answers a LOCK or a CLAIM with the hold, and frees the request. A member of a
 * multi-lock is told to that instead. */
void answer_hold(
    struct core *core, struct request *request, struct ticket *ticket);

/* Until when a detachment is tried: for the Redis time-out of the LOCK, and of
 * the grant. A deadline, in microseconds. */
uint64_t detach_until_us(const struct core *core, const struct ticket *ticket,
    const struct request *request);

/* Asks Redis to detach the hold of a LOCK with detached=1. The LOCK is answered
 * after that. Without room it is refused, and the hold is given back. */
void hold_detach(
    struct core *core, struct ticket *ticket, struct request *request);

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

/* Whether the LOCK is for an upgrade of the hold. */
bool hold_may_upgrade(const struct core *core, const struct ticket *ticket,
    const struct request *request);

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

/* detach.c */

/* Redis has detached the hold: tells the client, and frees the ticket. */
void hold_detached(
    struct core *core, struct ticket *ticket, const struct op_result *result);

/* Redis has not detached the hold, or the answer was lost: asks again, or gives
 * the hold back. */
void hold_not_detached(
    struct core *core, struct ticket *ticket, enum op_status status);

/* grant.c */

/* The rest of the lease, as far as that answer may be believed. */
uint64_t result_left_us(
    const struct core *core, const struct op_result *result);

/* The hold was claimed. Another broker's client may believe in it until the end
 * of the lease in the record. */
void hold_was_foreign(
    struct core *core, struct ticket *ticket, const struct op_result *result);

/* Sets the deadline, the next renewal and the next warning from an answer to a
 * call sent at `sent_us`. No more than the lease that was asked for is
 * believed. */
void hold_believe(struct core *core, struct ticket *ticket, uint64_t sent_us,
    uint64_t ttl_ms);

/* Redis has told the limit of a semaphore (0: not), which RESIZE may have
 * changed. */
void ticket_hear_limit(struct ticket *ticket, uint32_t limit);

/* Redis has granted the lock to the ticket. The request may have gone
 * meanwhile; then the lock is given back. */
void ticket_grant(struct core *core, struct ticket *ticket, uint64_t fence,
    uint64_t arrival, uint32_t place, uint64_t sent_us, uint64_t ttl_ms);

/* renew.c */

/* Takes the answer to a renewal or to a reclaim. The ticket may be gone
 * afterwards. */
void hold_renew_done(
    struct core *core, struct ticket *ticket, const struct op *op);

/* The time of a hold has come: its deadline, a warning, or a renewal. The
 * ticket may be gone afterwards. */
void hold_timer(struct core *core, struct ticket *ticket);

/* Renews a hold at `at_us`, or sooner where that was set. */
void ticket_renew_at(struct core *core, struct ticket *ticket, uint64_t at_us);

/* grant.c */

/* The text of INDOUBT for a LOCK whose lease was over before its answer. */
extern const char lease_was_over[];

/* leave.c */

/* Whether a request stands behind the release. */
bool leaving_is_awaited(const struct ticket *ticket);

/* Whether the ticket is LEAVING and its release is not due: other brokers see
 * the lease until then. */
bool ticket_expires(const struct core *core, const struct ticket *ticket);

/* Sends the release. Without room for an operation it is tried again after
 * RETRY_US. */
void ticket_send_release(struct core *core, struct ticket *ticket);

/* Ends the hold or wait: the ticket is LEAVING, and its release is sent at
 * `at_us`. No operation of the ticket may be under way but a renewal. */
void ticket_leave_at(struct core *core, struct ticket *ticket, uint64_t at_us);

/* Goes on with a ticket that is LEAVING after its reclaim was answered: sends
 * the release when due. */
void ticket_leave_on(struct core *core, struct ticket *ticket);

/* As ticket_leave_at(), with the release sent now. */
void ticket_leave(struct core *core, struct ticket *ticket);

/* Redis has nothing of the ticket any more: IDLE. The caller advances it. */
void ticket_end(struct core *core, struct ticket *ticket);

/* Gives back one hold that the client does not know of. */
void ticket_give_back(struct core *core, struct ticket *ticket);

/* release.c */

/* Takes the answer to a release. The ticket may be gone afterwards. */
void release_done(
    struct core *core, struct ticket *ticket, const struct op_result *result);

#endif

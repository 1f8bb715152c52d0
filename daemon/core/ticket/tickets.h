/*
 * The service of tickets: their requests, questions, events, last answers.
 */
#ifndef HOLDFAST_CORE_TICKET_TICKETS_H
#define HOLDFAST_CORE_TICKET_TICKETS_H

#include "daemon/core/model/state.h"

struct op;
struct op_grant;

/* advance.c */

/* Serves the ticket's requests as far as possible. The ticket may be gone
 * afterwards. Without room for answers it goes on in a later step. */
void ticket_advance(struct core *core, struct ticket *ticket);

/* Serves the tickets that were put off to the end of the step, as far as there
 * is room. */
void ticket_advance_stirred(struct core *core);

/* Redis has nothing of the ticket any more: IDLE, and the next request is
 * served. The ticket may be gone afterwards. */
void ticket_rest(struct core *core, struct ticket *ticket);

/* ticket_event.c */

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

/* unattended.c */

/* The session is gone, and its requests are freed: the ticket goes on without
 * it. It may be gone afterwards. */
void ticket_orphan(struct core *core, struct ticket *ticket);

/* The connection has ended and the session is kept: so is the ticket. It may be
 * gone afterwards. */
void ticket_leave_unattended(struct core *core, struct ticket *ticket);

/* Ends a ticket that nobody has claimed in time. True: a request stands at it,
 * and it is to be looked at again. */
bool ticket_end_unattended(struct core *core, struct ticket *ticket);

/* Leaves the ticket to another broker, as this one stops. It is renewed once
 * more, so that there is time to claim it. */
void ticket_forget(struct core *core, struct ticket *ticket);

/* question.c */

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

/* Sets what the client has changed of the hold: its mode or permits, its note.
 * Each renewal tells it, for Redis may come back as it was before. */
void renewal_changes(const struct ticket *ticket, struct op *op);

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

/* multilock.c */

/* A hold of a member was lost, so the LOCK is cancelled. */
void multilock_lost(struct core *core, const struct request *had);

/* The member that is asked for is granted. The next member is asked for, or the
 * LOCK is answered. */
void multilock_granted(
    struct core *core, struct request *granted, struct ticket *ticket);

/* Begins a LOCK of several names. `parent` is refused and freed if a limit or
 * the request forbids it. */
void multilock_begin(
    struct core *core, struct request *parent, const struct request_line *line);

/* Begins an UNLOCK of several names. `parent` is refused and freed if a limit
 * or the request forbids it. */
void multilock_unlock(
    struct core *core, struct request *parent, const struct request_line *line);

/* Whether the multi-lock waits at a lock that another owner has. */
bool multilock_is_waiting(
    const struct core *core, const struct request *member);

/* final.c */

/* The code that refuses an outstanding request of that command as its session
 * ends; `reason` is that of a LOCK. */
enum error_code command_refusal(enum command command, enum error_code reason);

/* Answers an UNLOCK with OK and the holds that are left, and frees the
 * request. */
void answer_count(struct core *core, struct request *request, uint32_t holds);

/* Refuses the request with `code`, counts that for its namespace, and frees the
 * request. `why` may be NULL: the text of the code. */
void request_refuse(struct core *core, struct request *request,
    enum error_code code, const char *why);

/* The text of NOTHELD and STALE for a request with that fence: it may be that
 * of a detached hold. NULL: the text of the code. */
const char *fence_text(
    enum error_code code, enum command command, uint64_t fence);

/* Refuses the request, since the broker is settled with the lock's node only
 * after `after_us`, and frees it. */
void request_unavailable(
    struct core *core, struct request *request, uint64_t after_us);

/* Refuses the request with BUSY and what the result has of the lock, and frees
 * it. */
void request_busy(
    struct core *core, struct request *request, const struct op_result *result);

/* Refuses the request by the limit of that name, and frees it. The caller has
 * counted the limit. */
void request_limit(
    struct core *core, struct request *request, const char *limit);

/* Refuses a LOCK that does not fit the lock, and frees it. `limit`: of the
 * semaphore that it is; 0: it is none, or that is not known. */
void request_conflict(
    struct core *core, struct request *request, uint32_t limit);

/* Frees the multi-lock, its members and its request, after the answer. */
void multilock_end(struct core *core, struct multilock *multilock);

/* One name of an UNLOCK of several is answered: by OK and the holds that are
 * left if `failure` is ERROR_COUNT. The last name frees the multi-lock. */
void multilock_released(struct core *core, struct multilock *multilock,
    uint32_t place, enum error_code failure, uint32_t holds);

/* Refuses a LOCK whose wait would never end, and frees the request. The ticket
 * leaves. */
void ticket_deadlocked(struct core *core, struct ticket *ticket,
    struct request *request, struct text cycle, const char *why);

#endif

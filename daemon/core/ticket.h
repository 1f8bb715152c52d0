/*
 * What ticket.c, wait.c, hold.c and leave.c have of one another: the parts of a
 * ticket's life. The rest of the core uses what state.h names.
 */
#ifndef HOLDFAST_CORE_TICKET_H
#define HOLDFAST_CORE_TICKET_H

#include "daemon/base/log.h"
#include "daemon/core/state.h"

/* Failed renewals and releases are tried again after so long, at least. */
#define RETRY_US 100000

/* ticket.c */
void ticket_log(const struct ticket *ticket, enum log_level level,
    const char *event, const char *reason);
void ticket_set_deadline(struct ticket *ticket, uint64_t deadline_us);
bool ticket_is_patient(const struct ticket *ticket);
struct pending *ticket_pending(const struct ticket *ticket);
struct pending *ticket_asking(const struct ticket *ticket);
void ticket_set_state(
    struct core *core, struct ticket *ticket, enum ticket_state state);
void ticket_arm(struct core *core, struct ticket *ticket);
struct op *ticket_op(
    struct core *core, struct ticket *ticket, enum op_kind kind);
void ticket_stands(struct ticket *ticket, uint32_t place, uint64_t arrival);
bool ticket_is_taken(const struct ticket *ticket);

/* Until when Redis is waited for on behalf of the request being served. */
uint64_t pending_give_up_us(
    const struct core *core, const struct pending *pending);

/* Adds the ticket's words to a question that may put the ticket into the
 * record. */
void ticket_words(const struct ticket *ticket, struct op *op);

/* Sets the note of the ticket, cut to its room. */
void ticket_set_note(struct ticket *ticket, struct text note);

/* Takes over the client's name from the session. */
void ticket_set_client(struct ticket *ticket, const struct session *session);

/* Forgets what an IDLE ticket knew of Redis, to serve that request. */
void ticket_reset(struct ticket *ticket, struct pending *pending);

/* Cuts the ticket from its session. */
void ticket_detach(struct core *core, struct ticket *ticket);

/* Frees an IDLE ticket without requests. */
void ticket_free(struct core *core, struct ticket *ticket);

/* wait.c: from the first question to the grant */
void ticket_refuse_impatient(struct core *core, struct ticket *ticket);
void asking_closes(struct core *core, struct ticket *ticket);
bool wait_closes(struct core *core, struct ticket *ticket);
void wait_advance(struct core *core, struct ticket *ticket);

/* Ends a wait with an ERR. While Redis is being asked, and may grant the lock,
 * the ERR waits until the ticket is struck out, no longer than a command's
 * time-out (see ticket_wait_over()). */
void pending_end(struct core *core, struct pending *pending,
    enum error_code code, const char *why);

/* hold.c */
void hold_note_lost(
    struct core *core, const struct ticket *ticket, const char *reason);
void hold_given_up(struct core *core, struct ticket *ticket);
bool hold_advance(
    struct core *core, struct ticket *ticket, struct pending *pending);

/* Answers a LOCK or a CLAIM with the hold, and frees the request. A member of a
 * multi-lock is told to that instead. */
void answer_hold(
    struct core *core, struct pending *pending, struct ticket *ticket);

/* Redis has no such hold. The client is told; the ticket may be gone
 * afterwards. */
void hold_gone(struct core *core, struct ticket *ticket);

/* An operator has taken the hold away by BREAK: the client is told, and the
 * ticket leaves. */
void hold_broken(struct core *core, struct ticket *ticket);

/* Serves a LOCK of the holder itself, after Redis has confirmed the hold. */
void hold_relock(
    struct core *core, struct ticket *ticket, struct pending *pending);

/* The hold is this connection's now: answers the CLAIM, and frees it. */
void hold_claimed(
    struct core *core, struct ticket *ticket, struct pending *pending);

/* leave.c */
bool ticket_lapses(const struct core *core, const struct ticket *ticket);
void ticket_send_release(struct core *core, struct ticket *ticket);
void ticket_leave(struct core *core, struct ticket *ticket);
void ticket_leave_on(struct core *core, struct ticket *ticket);
void ticket_leave_at(struct core *core, struct ticket *ticket, uint64_t at_us);

/* Whether a request stands behind the release. */
bool leaving_is_awaited(const struct ticket *ticket);

#endif

/*
 * A ticket that is LEAVING: it is struck out of the lock's record, again and
 * again until Redis has said so or its lease is over in any case.
 */
#include "daemon/core/final.h"
#include "daemon/core/session_table.h"
#include "daemon/core/ticket.h"
#include "daemon/core/times.h"

#include "daemon/base/assert.h"

/* Whether a request stands behind the release. */
static bool
leaving_is_awaited(const struct ticket *ticket)
{
    LIST_EACH (link, &ticket->pendings) {
        const struct pending *pending =
            container_of(link, struct pending, ticket_link);
        if (!pending->asked && !pending_stands(pending))
            return true;
    }
    return false;
}

/* Whether its hold is over for the client, and not yet for others: the release
 * is sent when the lease ends for them, too. */
bool
ticket_lapses(const struct core *core, const struct ticket *ticket)
{
    return ticket->state == TICKET_LEAVING &&
           core->now_us + us_from_ms(core->settings.lease_ms) +
                   core->settings.command_timeout_us <
               ticket->leave_until_us;
}

/* That request has to be looked at while Redis does not answer. */
void
leaving_advance(struct core *core, struct ticket *ticket)
{
    struct op *op = slab_get(&core->ops, ticket->main_op);

    require(ticket->state == TICKET_LEAVING);
    if (ticket_lapses(core, ticket))
        ticket_refuse_impatient(core, ticket);
    if (op != NULL && op->kind == OP_RELEASE && leaving_is_awaited(ticket))
        op_hurry(core, op);
}

void
ticket_send_release(struct core *core, struct ticket *ticket)
{
    struct op *op = ticket_op(core, ticket, OP_RELEASE);
    uint64_t wait_us = core->settings.patience_us;

    ticket->refresh_us = NEVER;
    if (op == NULL) {
        ticket->refresh_us = core->now_us + RETRY_US;
        ticket_arm(core, ticket);
        return;
    }
    op->retry = ticket->doubt;
    op->unclean = ticket->unclean;
    op->moves = ticket->moving;
    /* It is sent again and again; between, who waits for it is looked at. One
     * that no client waits for gives way, and is left in the store until its
     * lease is over in any case. */
    op->yields =
        session_gives_back(ticket->session) && ticket_asking(ticket) == NULL;
    if (leaving_is_awaited(ticket))
        wait_us = us_min(wait_us, core->settings.command_timeout_us);
    else if (op->yields)
        wait_us = ticket->leave_until_us - core->now_us;
    op->give_up_us = core->now_us + wait_us;
    ticket->main_op = slab_handle(&core->ops, op);
    op_submit(core, op);
    ticket_arm(core, ticket);
}

/* Strikes the ticket out of the record, at once or then; nothing renews it from
 * here on. */
void
ticket_leave_at(struct core *core, struct ticket *ticket, uint64_t at_us)
{
    require(handle_equal(ticket->main_op, HANDLE_NONE));
    /* What it asked for all of our waiters, somebody else must ask now. */
    if (ticket->state == TICKET_WAITING &&
        !handle_equal(ticket->renew_op, HANDLE_NONE))
        lock_ask_at(core, ticket->lock, core->now_us + RETRY_US);
    ticket_set_state(core, ticket, TICKET_LEAVING);
    struct op *renewal = slab_get(&core->ops, ticket->renew_op);
    if (ticket->reclaiming) /* a release that came before it would be undone */
        ticket->main_op = ticket->renew_op;
    else if (renewal != NULL) /* it must not outlive the release */
        renewal->unwanted = true;
    ticket->reclaiming = false;
    ticket->renew_op = HANDLE_NONE;
    ticket->holds = 0;
    ticket->leave_until_us = at_us + us_from_ms(core->settings.lease_ms) +
                             core->settings.command_timeout_us;
    ticket->refresh_us = at_us;
    if (!handle_equal(ticket->main_op, HANDLE_NONE))
        return;
    if (core->now_us >= at_us)
        ticket_send_release(core, ticket);
    else
        ticket_arm(core, ticket);
}

/* What it was leaving for to be put again has been. */
void
ticket_leave_on(struct core *core, struct ticket *ticket)
{
    require(ticket->state == TICKET_LEAVING);
    if (core->now_us >= ticket->refresh_us)
        ticket_send_release(core, ticket);
    else
        ticket_arm(core, ticket);
}

void
ticket_leave(struct core *core, struct ticket *ticket)
{
    ticket_leave_at(core, ticket, core->now_us);
}

/* Nothing of it is in Redis any more. */
void
ticket_rest(struct core *core, struct ticket *ticket)
{
    require(!ticket->reclaiming);
    if (ticket->state != TICKET_HELD) /* else its loss is in the log */
        ticket_log(ticket, LOG_DEBUG,
            ticket->state == TICKET_LEAVING && ticket->fence > 0
                ? "lock_released"
                : "lock_left",
            NULL);
    ticket_set_state(core, ticket, TICKET_IDLE);
    ticket->renew_op = HANDLE_NONE;
    ticket->holds = 0;
    ticket_advance(core, ticket);
}

/* Answers the UNLOCK, if one asked for this release; true: with OK. */
static bool
release_answer(struct core *core, struct ticket *ticket, enum op_status status)
{
    struct pending *pending = ticket_asking(ticket);

    if (pending == NULL || pending->command != COMMAND_UNLOCK)
        return false;
    bool ours = core->now_us < ticket->deadline_us;
    if (status == OP_OK || (status == OP_MISSING && ours) ||
        (status == OP_GONE && ticket->doubt && ours)) {
        /* Gone after a lost answer and before the deadline: it was us. Where
         * Redis has lost it nobody has been granted it since. */
        count(core->counters, COUNTER_releases);
        answer_count(core, pending, 0);
        return true;
    }
    if (status == OP_GONE || status == OP_MISSING) {
        if (!ticket->given_up) {
            count(core->counters, COUNTER_lost_gone);
            space_of(core, ticket->lock)->value[SPACE_lost_gone]++;
            hold_note_lost(core, ticket, "gone");
        }
        pending_error(core, pending, ERROR_LOST, NULL);
    } else if (status == OP_REFUSED) {
        pending_error(core, pending, ERROR_INTERNAL, NULL);
    } else if (core->now_us >= pending_give_up_us(core, pending)) {
        count(core->counters, COUNTER_refused_indoubt);
        pending_error(core, pending, ERROR_INDOUBT, NULL);
    }
    return false;
}

/* The lease is over, and nobody knows whether the hold stood until then. */
static void
release_given_up(struct core *core, struct ticket *ticket)
{
    struct pending *pending = ticket_asking(ticket);

    if (pending == NULL || pending->command != COMMAND_UNLOCK)
        return;
    count(core->counters, COUNTER_refused_indoubt);
    pending_error(core, pending, ERROR_INDOUBT, NULL);
}

static void
refuse_late(struct core *core, struct pending *pending)
{
    enum error_code code = ERROR_UNAVAILABLE;
    enum counter counter = COUNTER_refused_unavailable;

    if (pending->command != COMMAND_LOCK) {
        code = ERROR_INDOUBT;
        counter = COUNTER_refused_indoubt;
    } else if (session_closes(pending->session)) {
        code = ERROR_CANCELLED;
        counter = COUNTER_waits_cancelled;
    }
    count(core->counters, counter);
    pending_error(core, pending, code, NULL);
}

/* Redis cannot be asked: whose patience for that is over is told so; those for
 * whom there is no room, the next time. */
static void
ticket_refuse_late(struct core *core, struct ticket *ticket)
{
    LIST_EACH_SAFE (link, &ticket->pendings) {
        struct pending *pending =
            container_of(link, struct pending, ticket_link);
        if (!effects_spare(core->effects))
            return;
        if (pending->asked || pending_stands(pending) ||
            core->now_us < pending_give_up_us(core, pending))
            continue;
        refuse_late(core, pending);
    }
}

void
release_done(
    struct core *core, struct ticket *ticket, const struct op_result *result)
{
    /* Redis may allow it later, unless there is no record to be released. */
    bool refused = result->status == OP_REFUSED && !result->senseless &&
                   !leaving_is_awaited(ticket);

    require(ticket->state == TICKET_LEAVING);
    bool given = release_answer(core, ticket, result->status);
    if (given || result->status == OP_OK)
        releases_note(core, ticket, result->sent_us);
    if (result->status == OP_UNKNOWN) {
        count(core->counters, COUNTER_outcomes_unknown);
        ticket->doubt = true;
    } else if (result->status != OP_UNSENT && !refused) {
        if (ticket->doubt)
            count(core->counters, COUNTER_outcomes_resolved);
        ticket_rest(core, ticket);
        return;
    }
    if (core->now_us >= ticket->leave_until_us) {
        release_given_up(core, ticket);
        ticket_rest(core, ticket);
        return;
    }
    ticket_refuse_late(core, ticket);
    ticket->refresh_us =
        core->now_us + core_jitter(core, refused
                                             ? core->settings.command_timeout_us
                                             : RETRY_US);
    ticket_arm(core, ticket);
    ticket_advance(core, ticket);
}

void
ticket_give_back(struct core *core, struct ticket *ticket)
{
    require(ticket->state == TICKET_HELD && ticket->holds > 0);
    if (ticket->holds > 1)
        ticket->holds--;
    else
        ticket_leave(core, ticket);
}

/*
 * The renewals of a hold: when they are due, what Redis said to them, and the
 * warnings where they are late.
 */
#include "daemon/core/ticket/states.h"

#include "daemon/core/answer/answer.h"
#include "daemon/core/model/part.h"
#include "daemon/core/model/request.h"
#include "daemon/core/model/stats.h"
#include "daemon/core/model/ticket.h"
#include "daemon/core/model/times.h"
#include "daemon/core/model/upgrade.h"
#include "daemon/core/ticket/tickets.h"
#include "daemon/op/op.h"

#include "daemon/base/assert.h"

static void
answer_ttl(
    struct core *core, struct request *request, const struct ticket *ticket)
{
    struct reply reply = answer_begin(core, request->tag, "OK");

    require(request->ticket == ticket && ticket->holds > 0);
    reply_pair_number(&reply, "ttl_ms", ticket_ttl_ms(core, ticket));
    answer_lease(core, &reply, ticket);
    answer_end(core, request->session, &reply);
    request_free(core, request);
}

static void
hold_event(
    struct core *core, const struct ticket *ticket, enum event_code event)
{
    require(ticket->jeopardy == (event == EVENT_JEOPARDY));
    if (ticket->session == NULL || ticket_known_holds(ticket) == 0)
        return;
    struct reply reply = answer_event(core, event);
    reply_word(&reply, text_make(ticket->lock->name, ticket->lock->name_len));
    reply_pair_number(&reply, "ttl_ms", ticket_ttl_ms(core, ticket));
    if (ticket->owner_len > 0)
        reply_pair(&reply, "owner", ticket_owner(ticket));
    answer_end(core, ticket->session, &reply);
}

/*
 * The end of lease= that follows from less than a lease: Redis has counted it
 * from an earlier question, whose answer was lost. As with a deadline, what was
 * told before is made no sooner by an answer that was longer on its way. A hold
 * whose end is further away was not renewed, only made shared.
 */
static uint64_t
hold_end_in_record(
    const struct core *core, const struct ticket *ticket, const struct op *op)
{
    uint64_t ttl_us = us_from_ms(op->result.ttl_ms);
    uint64_t end_us = op->result.sent_us + ttl_us;

    if (op->hard_end_us == NEVER ||
        op->result.ttl_ms >= core->settings.lease_ms ||
        op->result.hold_ms > op->result.ttl_ms)
        return NEVER;
    if (end_us < ticket->deadline_us &&
        ticket->deadline_us <= core->now_us + ttl_us)
        end_us = ticket->deadline_us;
    return end_us;
}

/* How much of the lease was left. */
static void
hold_note_margin(struct core *core, const struct ticket *ticket)
{
    uint64_t left_us = ticket->deadline_us > core->now_us
                           ? ticket->deadline_us - core->now_us
                           : 0;

    histogram_add(&namespace_of(core, ticket->lock)->margin, &histogram_shares,
        left_us / core->settings.lease_ms);
}

/* The record knows the hold as this generation's. Another broker may have
 * changed it. */
static void
hold_moved(
    struct core *core, struct ticket *ticket, const struct op_result *result)
{
    uint32_t left = result->ask.permits;

    require(ticket->state == TICKET_HELD);
    hold_was_foreign(core, ticket, result);
    ticket->moving = false;
    if (result->ask.mode == MODE_SHARED && !ticket->upgrade &&
        !ticket_is_intent(ticket))
        ticket->ask.mode = MODE_SHARED;
    if (!ticket->note_due)
        ticket_set_note(ticket, result->note);
    if (left > 0 && left < ticket->ask.permits)
        ticket->ask.permits = left;
}

static void
hold_renewed(struct core *core, struct ticket *ticket, const struct op *op)
{
    struct request *request = ticket_asking(ticket);
    const struct op_result *result = &op->result;
    bool late = ticket->jeopardy;

    require(ticket->state == TICKET_HELD);
    require(handle_equal(ticket->renew_op, HANDLE_NONE));
    require(result->sent_us <= core->now_us); /* DESIGN.md D2.1 */
    count(core->counters, COUNTER_renewals);
    if (request == NULL && !op->sets_end) /* not what a client has asked for */
        hold_note_margin(core, ticket);
    ticket->heard_us = core->now_us;
    ticket_stands(ticket, result->place, result->arrival);
    ticket_hear_limit(ticket, result->ahead);
    ticket->hard_end_us =
        us_min(op->sets_end ? op->hard_end_us : ticket->hard_end_us,
            hold_end_in_record(core, ticket, op));
    if (op->sets_end)
        ticket->stands_us =
            us_add(op->hard_end_us, core->now_us - result->sent_us);
    require(!op->sets_end || ticket->hard_end_us <= ticket->stands_us);
    ticket->jeopardy = false;
    if (result->waited_for && ticket_is_intent(ticket))
        ticket->called = true;
    if (op->shares || op->keeps > 0)
        ticket->downgrade = DOWNGRADE_DONE;
    if (op->notes)
        ticket->note_due = false;
    if (op->moves)
        hold_moved(core, ticket, result);
    hold_believe(core, ticket, result->sent_us, result->ttl_ms);
    if (late && core->now_us >= ticket->jeopardy_us) {
        ticket->jeopardy = true; /* a part, whose intention is late */
        ticket->jeopardy_us = NEVER;
    } else if (late) {
        hold_event(core, ticket, EVENT_SAFE);
    }
    if (ticket_is_intent(ticket))
        intent_renewed(core, ticket);
    ticket_arm(core, ticket);
    if (request != NULL &&
        (request->command == COMMAND_RENEW || request->command == COMMAND_NOTE))
        answer_ttl(core, request, ticket);
    else if (request != NULL && request->command == COMMAND_LOCK)
        hold_relock(core, ticket, request);
    else if (request != NULL && request->command == COMMAND_CLAIM)
        hold_claimed(core, ticket, request);
    else if (request != NULL)
        answer_count(core, request, ticket_all_holds(core, ticket));
    else if (ticket->detached_us > 0) /* nobody is there to be told of it */
        ticket_leave(core, ticket);
    ticket_advance(core, ticket);
}

/* Redis has no such hold. The ticket may be gone afterwards. */
static void
hold_end_gone(struct core *core, struct ticket *ticket)
{
    hold_gone(core, ticket);
    ticket_advance(core, ticket);
}

static void
hold_not_renewed(
    struct core *core, struct ticket *ticket, enum op_status status)
{
    struct request *request = ticket_asking(ticket);

    count(core->counters, COUNTER_renewals_failed);
    if (ticket->renew_us != NEVER || ticket->downgrade == DOWNGRADE_ASKED)
        ticket->renew_us = core->now_us + core_jitter(core, RETRY_US);
    ticket_arm(core, ticket);
    if (request != NULL && request->command == COMMAND_UNLOCK)
        request_refuse(core, request, ERROR_INDOUBT,
            "Redis has not confirmed it: the hold stands with the rest, and "
            "its next renewal gives the permits back");
    else if (request != NULL)
        request_refuse(core, request,
            status == OP_UNSENT ? ERROR_UNAVAILABLE : ERROR_INDOUBT, NULL);
    ticket_advance(core, ticket);
}

void
hold_renew_done(struct core *core, struct ticket *ticket, const struct op *op)
{
    require(ticket->deadline_us <= ticket->hard_end_us); /* DESIGN.md D9.2 */
    if (core->now_us >= ticket->deadline_us) {
        ticket_advance(core, ticket);
        return;
    }
    switch (op->result.status) {
    case OP_OK:
        if (op->detaches)
            hold_detached(core, ticket, &op->result);
        else
            hold_renewed(core, ticket, op);
        return;
    case OP_MISSING:
        if (op->sets_end) /* so it is put again */
            ticket->hard_end_us = op->hard_end_us;
        if (ticket_is_taken(ticket))
            hold_end_gone(core, ticket);
        else
            ticket_reclaim(core, ticket);
        return;
    case OP_GONE:
    case OP_WAITING:
    case OP_MOVED:
        hold_end_gone(core, ticket);
        return;
    case OP_BROKEN:
        hold_broken(core, ticket);
        return;
    case OP_BUSY:
    case OP_FULL:
    case OP_CONFLICT:
    case OP_UNSETTLED:
    case OP_UNSENT:
    case OP_UNKNOWN:
    case OP_REFUSED:
        if (ticket->detached_us > 0) /* or could not put it back for that */
            hold_not_detached(core, ticket, op->result.status);
        else
            hold_not_renewed(core, ticket, op->result.status);
        return;
    }
}

void
hold_timer(struct core *core, struct ticket *ticket)
{
    require(!ticket->jeopardy || ticket->jeopardy_us == NEVER);
    if (core->now_us >= ticket->deadline_us || ticket->uprooted ||
        (ticket_is_unserved(ticket) && intent_is_idle(ticket) &&
            intent_is_over(core, ticket))) {
        ticket_advance(core, ticket);
        return;
    }
    if (core->now_us >= ticket->jeopardy_us) {
        ticket->jeopardy_us = NEVER;
        ticket->jeopardy = true;
        count(core->counters, COUNTER_jeopardies);
        hold_event(core, ticket, EVENT_JEOPARDY);
    }
    if (core->now_us >= ticket->renew_us &&
        handle_equal(ticket->renew_op, HANDLE_NONE)) {
        if (ticket_is_taken(ticket)) {
            hold_end_gone(core, ticket);
            return;
        }
        (void)ticket_send_renewal(
            core, ticket, ticket->hard_end_us, NEVER, false);
    }
    ticket_arm(core, ticket);
}

void
ticket_renew_at(struct core *core, struct ticket *ticket, uint64_t at_us)
{
    require(ticket->state == TICKET_HELD);
    if (ticket->renew_us <= at_us ||
        !handle_equal(ticket->renew_op, HANDLE_NONE))
        return;
    ticket->renew_us = at_us;
    ticket_arm(core, ticket);
}

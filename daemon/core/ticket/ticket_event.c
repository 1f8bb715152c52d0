/*
 * Events of a ticket: the answer to its operation, its timer, a grant or a loss
 * that another broker or a script tells of, the end of wait=.
 */
#include "daemon/core/ticket/tickets.h"

#include "daemon/core/model/hooks.h"
#include "daemon/core/model/part.h"
#include "daemon/core/model/ticket.h"
#include "daemon/core/ticket/states.h"
#include "daemon/op/op.h"

#include "daemon/base/assert.h"

/*
 * A ticket was put again. If a later ticket has its number by now, it has got
 * another one, and is given back by that one.
 */
static void
reclaim_done(struct ticket *ticket, const struct op_result *result)
{
    if (result->status == OP_OK || result->status == OP_WAITING)
        ticket_stands(ticket, result->place, result->arrival);
    else if (result->status == OP_UNKNOWN)
        ticket->stray = true;
}

void
ticket_done(struct core *core, struct op *op)
{
    struct ticket *ticket = slab_get(&core->tickets, op->owner);
    struct handle handle = slab_handle(&core->ops, op);

    if (ticket == NULL)
        return;
    if (op->kind == OP_RECLAIM)
        reclaim_done(ticket, &op->result);
    if (handle_equal(ticket->main_op, handle)) {
        ticket->main_op = HANDLE_NONE;
        if (ticket->fate == FATE_FORGOTTEN) {
            ticket_set_state(core, ticket, TICKET_IDLE);
            ticket_free(core, ticket);
            return;
        }
        if (op->kind == OP_ACQUIRE)
            acquire_done(core, ticket, &op->result);
        else if (op->kind == OP_RECLAIM)
            ticket_leave_on(core, ticket);
        else if (op->kind == OP_RENEW)
            claim_done(core, ticket, &op->result);
        else {
            require(op->kind == OP_RELEASE);
            release_done(core, ticket, &op->result);
        }
        return;
    }
    if (!handle_equal(ticket->renew_op, handle)) {
        require(op->kind == OP_RENEW); /* nothing else is overtaken */
        return;
    }
    ticket->renew_op = HANDLE_NONE;
    require(ticket->state == TICKET_HELD || ticket->state == TICKET_WAITING);
    if (ticket->state == TICKET_HELD)
        hold_renew_done(core, ticket, op);
    else if (ticket->state == TICKET_WAITING)
        wait_refresh_done(core, ticket, op);
}

static void
wait_timer(struct core *core, struct ticket *ticket)
{
    if (core->now_us >= ticket->probe_us)
        ticket->probe_us = core->hooks->search(core, ticket);
    if (core->now_us >= ticket->refresh_us)
        ticket_refresh(core, ticket);
    ticket_arm(core, ticket);
    require(!handle_equal(ticket->renew_op, HANDLE_NONE) ||
            wheel_node_set(&ticket->timer)); /* DESIGN.md D10.3 */
}

void
ticket_timer(struct core *core, struct ticket *ticket)
{
    switch (ticket->state) {
    case TICKET_HELD:
        hold_timer(core, ticket);
        return;
    case TICKET_WAITING:
        wait_timer(core, ticket);
        return;
    case TICKET_LEAVING:
        if (handle_equal(ticket->main_op, HANDLE_NONE))
            ticket_send_release(core, ticket);
        return;
    case TICKET_IDLE:
    case TICKET_ASKING:
        return;
    }
}

void
ticket_granted_by_the_way(
    struct core *core, const struct op_grant *grant, uint64_t sent_us)
{
    struct ticket *ticket =
        slab_get(&core->tickets, handle_unpack(grant->request));

    if (ticket == NULL)
        return;
    if (ticket->state != TICKET_WAITING || ticket_reclaims(core, ticket)) {
        ticket->hinted = true;
        return;
    }
    struct op *op = slab_get(&core->ops, ticket->renew_op);
    if (op != NULL && op->overdue) {
        ticket->hinted = true; /* Redis may take that for an older grant */
        return;
    }
    if (op != NULL)
        op->over_us = NEVER;
    count(core->counters, COUNTER_grants_handed_over);
    ticket_hear_limit(ticket, grant->limit);
    ticket->beyond = false; /* or it would not have been granted */
    ticket_grant(core, ticket, grant->fence, grant->arrival, grant->place,
        sent_us, grant->ttl_ms);
}

void
ticket_hint(struct core *core, uint64_t request)
{
    struct ticket *ticket = slab_get(&core->tickets, handle_unpack(request));

    if (ticket == NULL)
        return;
    if (ticket->state == TICKET_HELD && ticket_is_intent(ticket)) {
        intent_called(core, ticket);
        return;
    }
    if (ticket->state != TICKET_WAITING ||
        !handle_equal(ticket->renew_op, HANDLE_NONE)) {
        ticket->hinted = true;
        return;
    }
    ticket_refresh(core, ticket);
}

void
ticket_broken(struct core *core, uint64_t request, uint64_t fence)
{
    struct ticket *ticket = slab_get(&core->tickets, handle_unpack(request));

    if (ticket != NULL && ticket->state == TICKET_HELD &&
        ticket->fence == fence)
        hold_broken(core, ticket);
}

void
ticket_wait_over(struct core *core, struct request *request)
{
    struct ticket *ticket = request->ticket;

    if (request->state == REQUEST_ENDED) {
        require(
            ticket->state != TICKET_WAITING && ticket->state != TICKET_HELD);
        count(core->counters, COUNTER_refused_indoubt);
        request_refuse(core, request, ERROR_INDOUBT, NULL);
        return;
    }
    if (core->stopping) {
        (void)ticket_cancel(core, ticket, request, ERROR_DRAINING, NULL);
        return;
    }
    if ((ticket->state == TICKET_WAITING && !ticket->unheard) ||
        ticket_expires(core, ticket) ||
        request_stands(ticket_request(ticket))) {
        if (ticket->state == TICKET_WAITING && ticket->settles_us > 0 &&
            request->state != REQUEST_QUEUED && !request_stands(request)) {
            request_unavailable(core, request, ticket_settles_us(core, ticket));
            ticket_leave(core, ticket);
            return;
        }
        if (ticket_cancel(core, ticket, request, ERROR_TIMEOUT, NULL))
            count(core->counters, COUNTER_waits_timed_out);
        return;
    }
    if (ticket->state == TICKET_ASKING && request->state != REQUEST_QUEUED)
        return; /* its answer is due within a command's time-out */
    if (ticket_cancel(core, ticket, request, ERROR_UNAVAILABLE, NULL))
        count(core->counters, COUNTER_refused_unavailable);
}

/*
 * Questions to Redis about a ticket: acquire, claim, renew, look after a wait,
 * put a lost ticket back. leave.c asks for its release.
 */
#include "daemon/core/ticket/tickets.h"

#include "daemon/core/model/op_pool.h"
#include "daemon/core/model/request.h"
#include "daemon/core/model/ticket.h"
#include "daemon/core/model/times.h"
#include "daemon/core/model/upgrade.h"
#include "daemon/op/op.h"

#include "daemon/base/assert.h"

uint64_t
request_end_us(const struct core *core, const struct request *request)
{
    return us_add(
        request_deadline_us(core, request), core->settings.command_timeout_us);
}

/*
 * The question for the request, under a new request id unless the last question
 * is in doubt. NULL: no room, and the request was refused.
 */
static struct op *
ticket_question(struct core *core, struct ticket *ticket,
    struct request *request, enum op_kind kind)
{
    require(!ticket->doubt || ticket->used); /* DESIGN.md D8.4: that id */
    if (ticket->used && !ticket->doubt)
        slab_renew_handle(&core->tickets, ticket);
    struct op *op = ticket_op(core, ticket, kind);
    if (op == NULL) {
        count(core->counters, COUNTER_limit_tickets);
        request_limit(core, request, "tickets");
        return NULL;
    }
    op->deadline_us = request_deadline_us(core, request);
    ticket->used = true;
    return op;
}

void
ticket_ask(struct core *core, struct ticket *ticket, struct request *request,
    uint64_t deadline_us)
{
    require(ticket->state == TICKET_IDLE || ticket->state == TICKET_ASKING);
    require(handle_equal(ticket->main_op, HANDLE_NONE));
    struct op *op = ticket_question(core, ticket, request, OP_ACQUIRE);
    if (op == NULL)
        return;
    op->deadline_us = deadline_us;
    op->arrival = 0;
    op->fence = 0;
    op->retry = ticket->doubt;
    if (!op->retry)
        ticket->over_us = unheard_over_us(core, core->now_us);
    op->over_us = ticket->over_us;
    op->moves = ticket->generation > 1 || ticket->requeued;
    op->no_queue = request->wait_us == 0;
    op->tell = op->no_queue || request->progress != PROGRESS_NONE;
    op->ask = ticket->ask;
    ticket_words(ticket, op);
    ticket->main_op = slab_handle(&core->ops, op);
    op_submit(core, op);
}

void
claim_ask(struct core *core, struct ticket *ticket, struct request *request)
{
    require(ticket->state == TICKET_IDLE || ticket->state == TICKET_ASKING);
    require(handle_equal(ticket->main_op, HANDLE_NONE));
    require(ticket->fence == request->fence); /* DESIGN.md D7.3 */
    struct op *op = ticket_question(core, ticket, request, OP_RENEW);
    if (op == NULL)
        return;
    op->moves = true;
    ticket->doubt = true; /* the same request id, should it be asked again */
    ticket->main_op = slab_handle(&core->ops, op);
    op_submit(core, op);
}

void
ticket_refresh(struct core *core, struct ticket *ticket)
{
    const struct request *request = ticket_asking(ticket);

    require(ticket->state == TICKET_WAITING);
    require(request == NULL || request->command == COMMAND_LOCK);
    if (!handle_equal(ticket->renew_op, HANDLE_NONE))
        return;
    /* A reclaim whose answer was lost may have taken over the hold of an
     * earlier connection, of another kind: only a reclaim tells. */
    if (ticket->stray && ticket->generation > 1 && !ticket->moving) {
        ticket->refresh_us = NEVER;
        ticket_reclaim(core, ticket);
        return;
    }
    struct op *op = ticket_op(core, ticket, OP_RENEW);
    if (op == NULL) {
        ticket_refresh_at(core, ticket, core->now_us + RETRY_US);
        return;
    }
    ticket->refresh_us = NEVER;
    ticket_words(ticket, op);
    op->fence = 0;
    op->moves = ticket->moving;
    if (!op->moves)
        op->over_us = ticket->over_us;
    op->idle = ticket->fate == FATE_UNATTENDED && list_empty(&ticket->requests);
    op->tell = request != NULL && request->progress == PROGRESS_WANTED;
    op->deadline_us = core->now_us + core->settings.redis_timeout_us;
    ticket->renew_op = slab_handle(&core->ops, op);
    op_submit(core, op);
}

void
ticket_refresh_at(struct core *core, struct ticket *ticket, uint64_t at_us)
{
    require(ticket->state == TICKET_WAITING);
    if (!handle_equal(ticket->renew_op, HANDLE_NONE))
        return;
    ticket->refresh_us = at_us;
    ticket_arm(core, ticket);
}

void
ticket_reclaim(struct core *core, struct ticket *ticket)
{
    struct op *op = ticket_op(core, ticket, OP_RECLAIM);
    uint64_t until_us = core->now_us + core->settings.redis_timeout_us;
    bool held = ticket->state == TICKET_HELD;

    require(held || ticket->state == TICKET_WAITING);
    require(!held || ticket->fence > 0); /* DESIGN.md D3.7 */
    require(handle_equal(ticket->renew_op, HANDLE_NONE));
    if (op == NULL) {
        if (held)
            ticket->renew_us = core->now_us + RETRY_US;
        else
            ticket->refresh_us = core->now_us + RETRY_US;
        ticket_arm(core, ticket);
        return;
    }
    count(core->counters, COUNTER_reclaims);
    op->ask = ticket->ask;
    op->hard_end_us = held ? ticket->hard_end_us : NEVER;
    op->deadline_us = held ? us_min(until_us, ticket->deadline_us) : until_us;
    ticket_words(ticket, op);
    ticket->renew_op = slab_handle(&core->ops, op);
    ticket->reborn = held;
    op_submit(core, op);
}

void
renewal_changes(const struct ticket *ticket, struct op *op)
{
    require(ticket->state == TICKET_HELD && op->kind == OP_RENEW);
    if (ticket->downgrade != DOWNGRADE_NONE && ticket->ask.permits_max > 0)
        op->keeps = ticket->ask.permits;
    else
        op->shares = ticket->downgrade != DOWNGRADE_NONE;
    op->notes = ticket->note_due;
}

bool
ticket_send_renewal(struct core *core, struct ticket *ticket,
    uint64_t hard_end_us, uint64_t deadline_us, bool sets_end)
{
    struct op *op = ticket_op(core, ticket, OP_RENEW);

    require(ticket->state == TICKET_HELD);
    require(!ticket_reclaims(core, ticket)); /* DESIGN.md D3.7 */
    if (op == NULL) {
        ticket->renew_us = core->now_us + RETRY_US;
        return false;
    }
    op->hard_end_us = hard_end_us;
    op->sets_end = sets_end;
    renewal_changes(ticket, op);
    op->moves = ticket->moving;
    op->holds = true;
    op->deadline_us = us_min(deadline_us, ticket->deadline_us);
    ticket_words(ticket, op);
    ticket->renew_op = slab_handle(&core->ops, op);
    op_submit(core, op);
    return true;
}

void
hold_end_by(struct ticket *ticket, uint64_t now_us, uint64_t end_us)
{
    uint64_t hold_us = end_us - now_us;

    require(end_us >= now_us);
    ticket->hard_end_us = us_min(ticket->hard_end_us, end_us);
    ticket->stands_us = us_min(ticket->stands_us, end_us);
    ticket->foreign_us = us_min(ticket->foreign_us, end_us);
    ticket_set_deadline(
        ticket, us_min(ticket->deadline_us,
                    end_us - us_min(hold_us, drift_margin_us(hold_us))));
    require(ticket->deadline_us <= ticket->hard_end_us); /* DESIGN.md D9.2 */
}

void
ticket_set_lease(struct core *core, struct ticket *ticket, uint64_t hold_ms)
{
    uint64_t end_us = us_add(core->now_us, us_from_ms(hold_ms));

    require(ticket->state == TICKET_HELD);
    require(ticket->holds == 1); /* the first: the others keep the end */
    ticket->ask.hold_ms = hold_ms;
    /* While it is put again only the broker knows of that end. */
    if (!ticket_reclaims(core, ticket))
        (void)ticket_send_renewal(core, ticket, end_us,
            us_add(core->now_us, core->settings.redis_timeout_us), true);
    hold_end_by(ticket, core->now_us, end_us);
    ticket_arm(core, ticket);
}

void
ticket_begin(struct core *core, struct ticket *ticket, struct request *request)
{
    require(ticket->state == TICKET_IDLE);
    require(ticket_request(ticket) == request);
    if (core->stopping) {
        request_refuse(core, request, ERROR_DRAINING, NULL);
        return;
    }
    ticket_reset(ticket, request->session);
    request_move(request, REQUEST_ASKED);
    ticket_set_ask(ticket, &request->ask);
    ticket_set_note(ticket, text_make(request->note, request->note_len));
    ticket_set_client(ticket, request->session);
    /* No room for the question frees the request; the ticket stays IDLE. */
    ticket_ask(core, ticket, request, request_deadline_us(core, request));
    ticket->requeued = false;
    if (handle_equal(ticket->main_op, HANDLE_NONE))
        return;
    ticket_set_state(core, ticket, TICKET_ASKING);
    ticket_log(ticket, LOG_DEBUG, "lock_asked", NULL);
}

void
claim_begin(struct core *core, struct ticket *ticket, struct request *request)
{
    require(ticket->state == TICKET_IDLE);
    require(ticket_request(ticket) == request);
    if (core->stopping) {
        request_refuse(core, request, ERROR_DRAINING, NULL);
        return;
    }
    ticket_reset(ticket, request->session);
    request_move(request, REQUEST_ASKED);
    ticket->fence = request->fence;
    ticket_set_client(ticket, request->session);
    claim_ask(core, ticket, request);
    if (!handle_equal(ticket->main_op, HANDLE_NONE))
        ticket_set_state(core, ticket, TICKET_ASKING);
}

/*
 * A ticket that is LEAVING: it is struck out of the lock's record, repeatedly
 * until Redis confirms it or the lease is over. release.c takes the answers.
 */
#include "daemon/core/ticket/states.h"

#include "daemon/core/model/lock.h"
#include "daemon/core/model/op_pool.h"
#include "daemon/core/model/part.h"
#include "daemon/core/model/session_table.h"
#include "daemon/core/model/ticket.h"
#include "daemon/core/model/times.h"
#include "daemon/op/op.h"

#include "daemon/base/assert.h"

bool
leaving_is_awaited(const struct ticket *ticket)
{
    LIST_EACH (link, &ticket->requests) {
        const struct request *request =
            container_of(link, struct request, ticket_link);
        if (request->state == REQUEST_QUEUED && !request_stands(request))
            return true;
    }
    return false;
}

bool
ticket_expires(const struct core *core, const struct ticket *ticket)
{
    return ticket->state == TICKET_LEAVING && ticket->detached_us == 0 &&
           core->now_us + us_from_ms(core->settings.lease_ms) +
                   core->settings.command_timeout_us <
               ticket->leave_until_us;
}

void
ticket_send_release(struct core *core, struct ticket *ticket)
{
    struct op *op = ticket_op(core, ticket, OP_RELEASE);
    uint64_t wait_us = core->settings.redis_timeout_us;

    require(ticket->state == TICKET_LEAVING);
    require(handle_equal(ticket->main_op, HANDLE_NONE));
    require(handle_equal(ticket->renew_op, HANDLE_NONE)); /* DESIGN.md D8.2 */
    ticket->refresh_us = NEVER;
    if (op == NULL) {
        ticket->refresh_us = core->now_us + RETRY_US;
        ticket_arm(core, ticket);
        return;
    }
    op->retry = ticket->doubt;
    op->unclean = ticket->ending >= ENDING_UNCLEAN;
    op->delay_ms = ticket->delay_ms;
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
    op->deadline_us = core->now_us + wait_us;
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
    require(at_us >= core->now_us);
    /* It asked for all of our waiters; another one must ask now. */
    if (ticket->state == TICKET_WAITING &&
        !handle_equal(ticket->renew_op, HANDLE_NONE))
        lock_ask_at(core, ticket->lock, core->now_us + RETRY_US);
    struct op *renewal = slab_get(&core->ops, ticket->renew_op);
    /* A release that came before a reclaim would be undone. */
    if (ticket_reclaims(core, ticket))
        ticket->main_op = ticket->renew_op;
    else if (renewal != NULL) /* it must not outlive the release */
        renewal->unwanted = true;
    ticket->renew_op = HANDLE_NONE;
    ticket_set_state(core, ticket, TICKET_LEAVING);
    ticket->leave_until_us =
        (ticket->detached_us > at_us ? ticket->detached_us : at_us) +
        us_from_ms(core->settings.lease_ms) + core->settings.command_timeout_us;
    ticket->refresh_us = at_us;
    if (!handle_equal(ticket->main_op, HANDLE_NONE))
        return;
    if (core->now_us >= at_us)
        ticket_send_release(core, ticket);
    else
        ticket_arm(core, ticket);
}

void
ticket_leave_on(struct core *core, struct ticket *ticket)
{
    require(ticket->state == TICKET_LEAVING);
    require(ticket->refresh_us != NEVER); /* when its release is due */
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

void
ticket_end(struct core *core, struct ticket *ticket)
{
    require(!ticket_reclaims(core, ticket));
    require(handle_equal(ticket->main_op, HANDLE_NONE));
    if (ticket->state != TICKET_HELD) /* else its loss is in the log */
        ticket_log(ticket, LOG_DEBUG,
            ticket->state == TICKET_LEAVING && ticket->fence > 0
                ? "lock_released"
                : "lock_left",
            NULL);
    ticket->renew_op = HANDLE_NONE;
    ticket_set_state(core, ticket, TICKET_IDLE);
}

void
ticket_give_back(struct core *core, struct ticket *ticket)
{
    require(ticket->state == TICKET_HELD && ticket->holds > 0);
    if (ticket_is_intent(ticket))
        intent_give_back(core, ticket);
    else if (ticket->holds > 1)
        ticket->holds--;
    else
        ticket_leave(core, ticket);
}

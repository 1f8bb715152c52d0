/*
 * Tickets whose connection has ended: given up with the session, kept for
 * another connection, or left to another broker.
 */
#include "daemon/core/ticket/tickets.h"

#include "daemon/core/model/op_pool.h"
#include "daemon/core/model/part.h"
#include "daemon/core/model/session_table.h"
#include "daemon/core/model/ticket.h"
#include "daemon/core/ticket/states.h"
#include "daemon/op/op.h"

#include "daemon/base/assert.h"

void
ticket_orphan(struct core *core, struct ticket *ticket)
{
    bool quit = ticket->session->end == END_QUIT;
    bool killed = session_was_killed(ticket->session);

    require(list_empty(&ticket->requests));
    ticket_detach(core, ticket);
    require(ticket->session == NULL);
    switch (ticket->state) {
    case TICKET_HELD:
        if (!killed)
            hold_given_up(core, ticket);
        count(core->counters, COUNTER_releases_by_death);
        if (!quit)
            ticket->ending = ENDING_UNCLEAN;
        ticket_leave(core, ticket);
        break;
    case TICKET_WAITING:
        ticket_leave(core, ticket);
        break;
    case TICKET_ASKING:
        ticket_abandon(ticket);
        break;
    case TICKET_LEAVING:
        break;
    case TICKET_IDLE:
        ticket_free(core, ticket);
        break;
    }
}

void
ticket_leave_unattended(struct core *core, struct ticket *ticket)
{
    require(list_empty(&ticket->requests));
    switch (ticket->state) {
    case TICKET_ASKING:
        if (ticket->fate == FATE_WANTED)
            ticket->fate = FATE_UNATTENDED;
        break;
    case TICKET_WAITING:
        ticket->fate = FATE_UNATTENDED;
        break;
    case TICKET_HELD:
        if (ticket_is_intent(ticket) && ticket->holds > 0)
            break; /* for parts, which are kept */
        /* The next connection says how often it has it: a LOCK whose answer
         * was lost is put again, and is its first. */
        ticket->fate = FATE_UNATTENDED;
        ticket->holds = 0;
        if (ticket->ask.part && !ticket->part && !ticket->uprooted)
            ticket_leave(core, ticket); /* of a LOCK of several names */
        break;
    case TICKET_IDLE:
        ticket_advance(core, ticket);
        break;
    case TICKET_LEAVING:
        break;
    }
}

bool
ticket_end_unattended(struct core *core, struct ticket *ticket)
{
    if (ticket->fate != FATE_UNATTENDED)
        return false;
    if (!list_empty(&ticket->requests))
        return true;
    if (ticket->state == TICKET_HELD) {
        require(ticket->holds == 0);
        hold_given_up(core, ticket);
        ticket->ending = ENDING_UNCLEAN;
    }
    if (ticket->state == TICKET_ASKING)
        ticket_abandon(ticket);
    else if (ticket->state == TICKET_WAITING || ticket->state == TICKET_HELD)
        ticket_leave(core, ticket);
    return false;
}

void
ticket_forget(struct core *core, struct ticket *ticket)
{
    bool held = ticket->state == TICKET_HELD;
    struct op *op = NULL;

    require(list_empty(&ticket->requests));
    if (ticket->state == TICKET_LEAVING)
        return;
    if (ticket_reclaims(core, ticket)) { /* which renews it, too */
        ticket->main_op = ticket->renew_op;
        ticket->renew_op = HANDLE_NONE;
        ticket_set_state(core, ticket, TICKET_ASKING);
    }
    if (ticket->state == TICKET_ASKING) {
        /* The question shows the ticket's words. */
        ticket->fate = FATE_FORGOTTEN;
        return;
    }
    if ((held && !ticket_is_taken(ticket)) || ticket->state == TICKET_WAITING)
        op = ticket_op(core, ticket, OP_RENEW);
    if (op != NULL && held)
        renewal_changes(ticket, op);
    ticket->renew_op = HANDLE_NONE;
    if (op == NULL) {
        ticket_set_state(core, ticket, TICKET_IDLE);
        ticket_free(core, ticket);
        return;
    }
    op->hard_end_us = held ? ticket->hard_end_us : NEVER;
    op->moves = ticket->moving;
    op->holds = held;
    op->idle = !held;
    op->deadline_us = core->now_us + core->settings.command_timeout_us;
    ticket_words(ticket, op);
    ticket->fate = FATE_FORGOTTEN;
    ticket->main_op = slab_handle(&core->ops, op);
    ticket_set_state(core, ticket, TICKET_ASKING);
    op_submit(core, op);
}

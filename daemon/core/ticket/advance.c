/*
 * The loop that serves a ticket's requests, one after the other, as the state
 * of the ticket allows. The handlers of the states never call the loop: they
 * return, or put a ticket on the queue that the end of the step serves.
 */
#include "daemon/core/ticket/tickets.h"

#include "daemon/core/model/lock.h"
#include "daemon/core/model/op_pool.h"
#include "daemon/core/model/part.h"
#include "daemon/core/model/request.h"
#include "daemon/core/model/ticket.h"
#include "daemon/core/model/upgrade.h"
#include "daemon/core/ticket/states.h"
#include "daemon/op/op.h"

#include "daemon/base/assert.h"

/* Whether its LOCK was put again, and waits for a name above. Names are taken
 * from the root down: this place would be in the way of owners above. */
static bool
wait_is_early(const struct core *core, const struct ticket *ticket)
{
    const struct request *request = ticket_request(ticket);

    require(ticket->state == TICKET_WAITING);
    return request != NULL && ticket->fate == FATE_UNATTENDED &&
           (ticket->ask.part || ticket_is_intent(ticket)) &&
           request_stands(request) && multilock_is_waiting(core, request);
}

/* WAITING: true, a wait was ended since the session sends no more. */
static bool
wait_serve(struct core *core, struct ticket *ticket)
{
    require(ticket->fate <= FATE_UNATTENDED);
    if (wait_closes(core, ticket))
        return true;
    if (wait_is_early(core, ticket))
        ticket_leave(core, ticket);
    else if (ticket->fate == FATE_UNATTENDED)
        wait_advance(core, ticket);
    else
        ticket_refuse_impatient(core, ticket);
    return false;
}

/* Whether the owner's other ticket takes the request. Of an upgrade that has
 * ended it takes all requests, in their order, but another upgrade. Or the
 * request is refused, since there is no room. */
static bool
idle_hands_over(
    struct core *core, const struct ticket *ticket, struct request *request)
{
    bool locks = request->command == COMMAND_LOCK;
    struct ticket *other = request_elsewhere(core, ticket, request);
    const char *limit = NULL;

    require(ticket->state == TICKET_IDLE);
    if (ticket->upgrade && request->command != COMMAND_CLAIM) {
        other = ticket_base(core, ticket);
        if (locks && other != NULL && other->state == TICKET_HELD &&
            hold_may_upgrade(core, other, request))
            return false;
        if (locks && other == NULL)
            other = ticket_obtain(core, request->session,
                lock_name(ticket->lock), ticket_owner(ticket), &limit);
    }
    if (other == NULL && limit != NULL)
        request_limit(core, request, limit);
    if (other == NULL)
        return limit != NULL;
    do
        request_hand(core, request, other);
    while (ticket->upgrade && (request = ticket_request(ticket)) != NULL &&
           request->command != COMMAND_CLAIM);
    return true;
}

/* IDLE: the first request of those that stand at it. False: there is none to be
 * served, and the ticket may be gone. */
static bool
idle_serve(struct core *core, struct ticket *ticket, struct request *request)
{
    if (request == NULL) {
        ticket_free(core, ticket);
        return false;
    }
    if (request_stands(request))
        return false;
    if (request->state == REQUEST_ENDED)
        request_refuse(core, request, request->end_code, request->end_why);
    else if (idle_hands_over(core, ticket, request))
        return true;
    else if (request->command == COMMAND_LOCK)
        ticket_begin(core, ticket, request);
    else if (request->command == COMMAND_CLAIM)
        claim_begin(core, ticket, request);
    else
        request_refuse(core, request,
            ticket->ending == ENDING_LOST ? ERROR_LOST : ERROR_NOTHELD, NULL);
    return true;
}

/* LEAVING: whether the request is about the hold that was lost. A CLAIM of a
 * later connection is not: another broker may have prolonged it since. */
static bool
is_about_lost(const struct ticket *ticket, const struct request *request)
{
    if (ticket->ending != ENDING_LOST || request == NULL ||
        request->command == COMMAND_LOCK)
        return false;
    return request->command != COMMAND_CLAIM ||
           (request->fence == ticket->fence &&
               ticket->generation == request->session->generation);
}

/* That request has to be looked at while Redis does not answer. */
static void
leaving_advance(struct core *core, struct ticket *ticket)
{
    struct op *op = slab_get(&core->ops, ticket->main_op);

    require(ticket->state == TICKET_LEAVING);
    require(op == NULL || op->kind == OP_RELEASE || op->kind == OP_RECLAIM);
    if (ticket_expires(core, ticket))
        ticket_refuse_impatient(core, ticket);
    if (op != NULL && op->kind == OP_RELEASE && leaving_is_awaited(ticket))
        op_hurry(core, op);
}

void
ticket_advance(struct core *core, struct ticket *ticket)
{
    struct request *request;

    require(core->effects != NULL); /* DESIGN.md D13.2: in a step */
    for (;;) {
        request = ticket_request(ticket);
        require(request == NULL || request->ticket == ticket);
        if (request != NULL && !effects_room(core->effects)) {
            ticket_stir(core, ticket);
            return;
        }
        if (request != NULL && request_stands(request) &&
            multilock_is_waiting(core, request))
            ticket_refuse_impatient(core, ticket);
        switch (ticket->state) {
        case TICKET_ASKING:
            asking_closes(core, ticket);
            if (ticket_is_patient(ticket))
                ticket_refuse_impatient(core, ticket);
            return;
        case TICKET_WAITING:
            if (!wait_serve(core, ticket))
                return;
            break;
        case TICKET_LEAVING:
            if (!is_about_lost(ticket, request)) {
                leaving_advance(core, ticket);
                return;
            }
            request_refuse(core, request, ERROR_LOST, NULL);
            break;
        case TICKET_IDLE:
            if (!idle_serve(core, ticket, request))
                return;
            break;
        case TICKET_HELD:
            if (!hold_advance(core, ticket, request))
                return;
            break;
        }
    }
}

void
ticket_advance_stirred(struct core *core)
{
    struct list *link;

    while (core->portion > 0 && effects_room(core->effects) &&
           ((link = list_pop_front(&core->stirred)) != NULL ||
               (link = list_pop_front(&core->bulk)) != NULL)) {
        core->portion--;
        ticket_advance(core, container_of(link, struct ticket, stir_link));
    }
}

void
ticket_rest(struct core *core, struct ticket *ticket)
{
    ticket_end(core, ticket);
    ticket_advance(core, ticket);
}

/*
 * The answer to the detachment of a new hold. A LOCK with detached=1 first gets
 * an ordinary hold, which waits in the queue and is lost with its session. Then
 * hold.c asks Redis to detach the hold. After the answer the client is told,
 * and the ticket is freed. See DESIGN.md D9.5.
 *
 * If the client cannot be told, the hold is given back for as long as Redis may
 * have it.
 */
#include "daemon/core/ticket/states.h"

#include "daemon/core/answer/answer.h"
#include "daemon/core/model/request.h"
#include "daemon/core/model/stats.h"
#include "daemon/core/model/ticket.h"
#include "daemon/core/ticket/tickets.h"
#include "daemon/op/op.h"

#include "daemon/base/assert.h"

/* Nobody is told of the hold. */
static void
detached_give_back(struct core *core, struct ticket *ticket)
{
    require(ticket->state == TICKET_HELD && ticket->detached_us > 0);
    ticket_leave(core, ticket);
    ticket_advance(core, ticket);
}

void
hold_detached(
    struct core *core, struct ticket *ticket, const struct op_result *result)
{
    struct request *request = ticket_asking(ticket);
    uint64_t left_us = result_left_us(core, result);

    require(ticket->state == TICKET_HELD && ticket->detached_us > 0);
    if (request == NULL || left_us < 1000) {
        if (request != NULL) {
            count(core->counters, COUNTER_refused_indoubt);
            request_refuse(core, request, ERROR_INDOUBT, lease_was_over);
        }
        detached_give_back(core, ticket);
        return;
    }
    count(core->counters, COUNTER_grants_detached);
    stats_granted(core, request, ticket);
    ticket_log(ticket, LOG_DEBUG, "lock_detached", NULL);
    struct reply reply = answer_begin(core, request->tag, "OK");
    reply_pair_number(&reply, "fence", ticket->fence);
    reply_pair_number(&reply, "ttl_ms", left_us / 1000);
    reply_pair_number(&reply, "count", 1);
    reply_lease(&reply, true, left_us / 1000);
    answer_end(core, request->session, &reply);
    request_free(core, request);
    ticket_rest(core, ticket);
}

void
hold_not_detached(
    struct core *core, struct ticket *ticket, enum op_status status)
{
    struct request *request = ticket_asking(ticket);

    require(ticket->state == TICKET_HELD && status != OP_OK);
    if (status == OP_UNKNOWN)
        count(core->counters, COUNTER_outcomes_unknown);
    if (request != NULL && status == OP_UNKNOWN &&
        core->now_us < detach_until_us(core, ticket, request)) {
        hold_detach(core, ticket, request);
        ticket_advance(core, ticket);
        return;
    }
    if (request != NULL) {
        count(core->counters, COUNTER_refused_indoubt);
        request_refuse(core, request,
            status == OP_REFUSED ? ERROR_INTERNAL : ERROR_INDOUBT, NULL);
    }
    detached_give_back(core, ticket);
}

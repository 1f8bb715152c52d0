/* Redis' answers to the release of a LEAVING ticket, for its requests. */
#include "daemon/core/ticket/states.h"

#include "daemon/core/model/hooks.h"
#include "daemon/core/model/session_table.h"
#include "daemon/core/model/stats.h"
#include "daemon/core/model/ticket.h"
#include "daemon/core/model/times.h"
#include "daemon/core/model/upgrade.h"
#include "daemon/core/ticket/tickets.h"
#include "daemon/op/op.h"

#include "daemon/base/assert.h"

/* Answers the UNLOCK, if one asked for this release; true: with OK. */
static bool
release_answer(struct core *core, struct ticket *ticket, enum op_status status)
{
    struct request *request = ticket_asking(ticket);

    if (request == NULL || request->command != COMMAND_UNLOCK)
        return false;
    require(ticket->fence > 0); /* an UNLOCK is of a hold */
    bool ours = core->now_us < ticket->deadline_us;
    if (status == OP_OK || (status == OP_MISSING && ours) ||
        (status == OP_GONE && ticket->doubt && ours)) {
        /* Gone after a lost answer and before the deadline: it was us. If Redis
         * has lost it, nobody has been granted it since. */
        count(core->counters, COUNTER_releases);
        answer_count(core, request, ticket_all_holds(core, ticket));
        return true;
    }
    if (status == OP_GONE || status == OP_MISSING) {
        if (ticket->ending != ENDING_LATE) {
            count(core->counters, COUNTER_lost_gone);
            namespace_of(core, ticket->lock)->value[NAMESPACE_lost_gone]++;
            hold_note_lost(core, ticket, "gone");
        }
        request_refuse(core, request, ERROR_LOST, NULL);
    } else if (status == OP_REFUSED) {
        request_refuse(core, request, ERROR_INTERNAL, NULL);
    } else if (core->now_us >= request_deadline_us(core, request)) {
        count(core->counters, COUNTER_refused_indoubt);
        request_refuse(core, request, ERROR_INDOUBT, NULL);
    }
    return false;
}

/* The lease is over, and nobody knows whether the hold stood until then. A
 * Redis that comes back with its old data still has it. */
static void
release_given_up(struct core *core, struct ticket *ticket, uint64_t sent_us)
{
    struct request *request = ticket_asking(ticket);

    core->hooks->released(core, ticket, sent_us);
    if (request == NULL || request->command != COMMAND_UNLOCK)
        return;
    count(core->counters, COUNTER_refused_indoubt);
    request_refuse(core, request, ERROR_INDOUBT, NULL);
}

static void
refuse_late(struct core *core, struct request *request)
{
    enum error_code code = ERROR_UNAVAILABLE;
    enum counter counter = COUNTER_refused_unavailable;

    if (request->command != COMMAND_LOCK) {
        code = ERROR_INDOUBT;
        counter = COUNTER_refused_indoubt;
    } else if (session_closes(request->session)) {
        code = ERROR_CANCELLED;
        counter = COUNTER_waits_cancelled;
    }
    count(core->counters, counter);
    request_refuse(core, request, code, NULL);
}

/* Redis cannot be asked: whose patience for that is over is told so; those for
 * whom there is no room, the next time. */
static void
ticket_refuse_late(struct core *core, struct ticket *ticket)
{
    LIST_EACH_SAFE (link, &ticket->requests) {
        struct request *request =
            container_of(link, struct request, ticket_link);
        if (!effects_spare(core->effects))
            return;
        if (request->state != REQUEST_QUEUED || request_stands(request) ||
            core->now_us < request_deadline_us(core, request))
            continue;
        refuse_late(core, request);
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
    require(handle_equal(ticket->main_op, HANDLE_NONE));
    bool given = release_answer(core, ticket, result->status);
    if (given || result->status == OP_OK)
        core->hooks->released(core, ticket, result->sent_us);
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
        release_given_up(core, ticket, result->sent_us);
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

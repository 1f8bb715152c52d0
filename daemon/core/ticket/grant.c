/*
 * Redis has granted a lock: who is to have it, and until when the hold may be
 * believed in.
 */
#include "daemon/core/ticket/states.h"

#include "daemon/core/model/hooks.h"
#include "daemon/core/model/lock.h"
#include "daemon/core/model/part.h"
#include "daemon/core/model/ticket.h"
#include "daemon/core/model/times.h"
#include "daemon/core/ticket/tickets.h"
#include "daemon/op/op.h"

#include "daemon/base/assert.h"

/* Renewals go out together, so often in a lease: many of them share a call. */
#define RENEWALS_TOGETHER 2048

/* Whether the one who asked is still there to be granted anything. A part is
 * not kept for a LOCK that may come again, and that first needs the names above
 * it: their owners would wait for the part. See DESIGN.md D10.7. */
static bool
ticket_wanted(const struct ticket *ticket)
{
    const struct request *request = ticket_asking(ticket);

    if (ticket->fate == FATE_ABANDONED)
        return false;
    if (request == NULL)
        return ticket->fate == FATE_UNATTENDED && !ticket->ask.part;
    return request->command == COMMAND_LOCK ||
           request->command == COMMAND_CLAIM;
}

/*
 * The deadline that follows from an answer to a call sent at `sent_us`. If the
 * lease was not prolonged, the deadline that the client was told stands: an
 * answer that was longer on its way makes it no sooner.
 */
static uint64_t
hold_deadline(const struct core *core, const struct ticket *ticket,
    uint64_t sent_us, uint64_t ttl_us)
{
    uint64_t sure_us = ttl_us - us_min(ttl_us, drift_margin_us(ttl_us));
    uint64_t deadline_us = sent_us + sure_us;

    if (ticket->state == TICKET_HELD && deadline_us < ticket->deadline_us &&
        ticket->deadline_us <= core->now_us + sure_us)
        deadline_us = ticket->deadline_us;
    deadline_us = us_min(deadline_us, part_deadline_us(core, ticket));
    return us_min(ticket->hard_end_us, deadline_us);
}

uint64_t
result_left_us(const struct core *core, const struct op_result *result)
{
    uint64_t ttl_us = us_from_ms(result->ttl_ms);
    uint64_t end_us =
        result->sent_us + ttl_us - us_min(ttl_us, drift_margin_us(ttl_us));

    return end_us - us_min(end_us, core->now_us);
}

void
hold_was_foreign(
    struct core *core, struct ticket *ticket, const struct op_result *result)
{
    ticket->foreign_us = core->now_us + us_from_ms(result->ttl_ms);
}

void
hold_believe(
    struct core *core, struct ticket *ticket, uint64_t sent_us, uint64_t ttl_ms)
{
    uint64_t lease_us = us_from_ms(core->settings.lease_ms);
    uint64_t ttl_us = us_min(us_from_ms(ttl_ms), lease_us);

    require(lease_us >= RENEWALS_TOGETHER); /* it is divided by that */
    ticket_set_deadline(ticket, hold_deadline(core, ticket, sent_us, ttl_us));
    require(
        ticket->deadline_us <= core->now_us + lease_us); /* DESIGN.md D2.1 */
    ticket->jeopardy_us = NEVER;
    ticket->renew_us = NEVER;
    if (ticket->hard_end_us == NEVER ||
        ticket->hard_end_us > ticket->deadline_us + drift_margin_us(lease_us)) {
        ticket->renew_us =
            sent_us + ttl_us / 3 - random_below(&core->random, ttl_us / 30 + 1);
        ticket->renew_us -= ticket->renew_us % (lease_us / RENEWALS_TOGETHER);
        if (!ticket->jeopardy)
            ticket->jeopardy_us = sent_us + ttl_us / 3 * 2;
        if (!ticket->jeopardy && ticket->part)
            part_warn_in_time(core, ticket);
    }
}

/*
 * Sets the end of a lease= hold, counted from the sending of the grant's call.
 */
static void
hold_set_end(struct ticket *ticket, uint64_t sent_us, uint64_t now_us)
{
    uint64_t hold_ms = ticket->ask.hold_ms;

    ticket->hard_end_us =
        hold_ms == 0 ? NEVER : us_add(sent_us, us_from_ms(hold_ms));
    ticket->stands_us =
        hold_ms == 0 ? NEVER : us_add(now_us, us_from_ms(hold_ms));
    require(ticket->hard_end_us <= ticket->stands_us); /* DESIGN.md D9.2 */
}

void
ticket_hear_limit(struct ticket *ticket, uint32_t limit)
{
    if (limit > 0 && ticket->ask.permits_max > 0)
        ticket->ask.permits_max = limit;
}

/* Whether nobody here counts on it, nor has come back to claim it: its session
 * may have given it back at another broker. */
static bool
hold_is_unclaimed(const struct ticket *hold)
{
    return hold->fate == FATE_UNATTENDED && list_empty(&hold->requests);
}

/* Whether a hold is sooner given up than another one: that is so, or Redis has
 * not spoken of it for longer. */
static bool
hold_yields(const struct ticket *hold, const struct ticket *other)
{
    if (hold_is_unclaimed(hold) != hold_is_unclaimed(other))
        return hold_is_unclaimed(hold);
    if (hold->heard_us != other->heard_us)
        return hold->heard_us < other->heard_us;
    return hold->fence < other->fence;
}

/* A hold of ours that cannot stand beside the ticket; or NULL. */
static struct ticket *
ticket_rival(const struct ticket *ticket)
{
    uint64_t permits = ticket->ask.permits;
    struct ticket *rival = NULL;

    LIST_EACH (link, &ticket->lock->holders) {
        struct ticket *holder = container_of(link, struct ticket, holder_link);
        permits += holder->ask.permits;
        if (holder->upgrade != ticket->upgrade && holder->who == ticket->who &&
            ticket->who != NULL)
            continue;
        if (ticket->ask.permits_max == 0 &&
            modes_join(ticket->ask.mode, holder->ask.mode))
            continue;
        if (rival == NULL || hold_yields(holder, rival))
            rival = holder;
    }
    if (ticket->ask.permits_max > 0 &&
        (ticket->beyond || permits <= ticket->ask.permits_max))
        return NULL;
    return rival;
}

/*
 * Redis has given the lock to a ticket while another one of ours is believed to
 * hold it. Its data or its clock were changed, or the other one was claimed and
 * given back elsewhere. The larger fence is right, and the loser is told first.
 * False: the ticket has lost. Fences of a semaphore stand beside each other, so
 * there Redis' last answer is right. A loser that still stands in a semaphore's
 * record is left to its lease: a client that cannot be told believes in it. The
 * ticket also loses if more have lost than this step has room to tell.
 */
static bool
ticket_displaces(struct core *core, const struct ticket *ticket)
{
    struct ticket *holder;

    while ((holder = ticket_rival(ticket)) != NULL) {
        require(holder != ticket);
        if (holder->fence > ticket->fence && ticket->ask.permits_max == 0)
            return false;
        if (!effects_spare(core->effects))
            return false;
        hold_gone(core, holder);
        require(holder->state != TICKET_HELD); /* each turn has one less */
        ticket_advance(core, holder);
    }
    return true;
}

const char lease_was_over[] =
    "the lease was over when the answer of Redis came, and the lock is given "
    "back: a longer lease= is needed";

/* Nobody is to have it: what is left of the lease is given back. */
static void
grant_refuse(struct core *core, struct ticket *ticket)
{
    struct request *request = ticket_asking(ticket);
    /* Else it is the broker's lease that was over, whichever was asked for. */
    bool late = ticket->ask.hold_ms > 0 &&
                ticket->ask.hold_ms < core->settings.lease_ms &&
                core->now_us >= ticket->deadline_us;

    require(ticket->state == TICKET_ASKING || ticket->state == TICKET_WAITING);
    count(core->counters, COUNTER_grants_unwanted);
    if (request != NULL && ticket->fate != FATE_ABANDONED) {
        bool claim = request->command == COMMAND_CLAIM;
        if (!claim)
            count(core->counters, COUNTER_refused_indoubt);
        request_refuse(core, request, claim ? ERROR_LOST : ERROR_INDOUBT,
            late && !claim ? lease_was_over : NULL);
    }
    ticket_leave(core, ticket);
}

void
ticket_grant(struct core *core, struct ticket *ticket, uint64_t fence,
    uint64_t arrival, uint32_t place, uint64_t sent_us, uint64_t ttl_ms)
{
    require(ticket->state == TICKET_ASKING || ticket->state == TICKET_WAITING);
    require(handle_equal(ticket->main_op, HANDLE_NONE) &&
            !ticket_reclaims(core, ticket));
    require(sent_us <= core->now_us); /* DESIGN.md D2.1 */
    ticket->fence = fence;
    ticket->called = ticket->called || ticket->state == TICKET_WAITING;
    ticket_stands(ticket, place, arrival);
    ticket->renew_op = HANDLE_NONE;
    ticket->heard_us = core->now_us;
    lock_see_fence(core, ticket->lock, fence);
    hold_set_end(ticket, sent_us, core->now_us);
    hold_believe(core, ticket, sent_us, ttl_ms);
    /* A record that something else has damaged may show a holder without. */
    bool good = fence > 0 && ticket_wanted(ticket) &&
                ticket->deadline_us > core->now_us &&
                ticket_displaces(core, ticket);
    if (ticket->state == TICKET_LEAVING)
        return; /* its request has lost another member by that */
    if (!good || !ticket_wanted(ticket)) {
        grant_refuse(core, ticket);
        return;
    }
    count(core->counters, COUNTER_grants);
    struct request *request = ticket_asking(ticket);
    /* Without a request it has no hold until its LOCK comes again. */
    ticket->holds = request == NULL                     ? 0
                    : request->command == COMMAND_CLAIM ? request->holds
                                                        : 1;
    ticket->doubt = false;
    ticket_set_state(core, ticket, TICKET_HELD);
    if (intent_is_idle(ticket))
        intent_keep(core, ticket);
    ticket_arm(core, ticket);
    require(wheel_node_set(&ticket->timer)); /* it ends by that */
    ticket_log(ticket, LOG_DEBUG, "lock_granted", NULL);
    core->hooks->held(core, ticket->who);
    if (request != NULL)
        answer_hold(core, request, ticket);
    ticket_advance(core, ticket);
}

/*
 * Redis' answers about a ticket that is not granted yet, and how a wait goes on
 * or ends by them.
 */
#include "daemon/core/ticket/states.h"

#include "daemon/core/answer/answer.h"
#include "daemon/core/model/hooks.h"
#include "daemon/core/model/lock.h"
#include "daemon/core/model/part.h"
#include "daemon/core/model/request.h"
#include "daemon/core/model/session_table.h"
#include "daemon/core/model/stats.h"
#include "daemon/core/model/ticket.h"
#include "daemon/core/model/times.h"
#include "daemon/core/model/upgrade.h"
#include "daemon/core/ticket/tickets.h"
#include "daemon/op/op.h"

#include "daemon/base/assert.h"

/* How long a LOCK with wait=0 waits for idle intentions to be given back, and
 * how often in a session. */
#define PRESS_US       100000
#define PRESS_PAUSE_US 1000000

/* The holder in the way, and for how long if it goes on as it went. */
static void
reply_holder(
    struct reply *reply, const struct ask *ask, const struct op_result *result)
{
    uint64_t typical_ms = result->typical_ms;
    uint64_t age_ms = result->holder_age_ms;

    if (!result->told)
        return;
    reply_pair_if(reply, "holder", result->holder_client);
    reply_pair_if(reply, "note", result->holder_note);
    reply_pair_number(reply, "age_ms", age_ms);
    /* Of several holders nobody knows which one ends first. */
    if (typical_ms > 0 && result->ahead > 0 && ask->permits_max == 0 &&
        ask->mode == MODE_EXCLUSIVE)
        reply_pair_number(reply, "estimate_ms",
            typical_ms * (result->ahead - 1) +
                (typical_ms > age_ms ? typical_ms - age_ms : 0));
}

uint64_t
ticket_settles_us(const struct core *core, const struct ticket *ticket)
{
    return ticket->settles_us - us_min(ticket->settles_us, core->now_us);
}

static void
ticket_queued(
    struct core *core, struct request *request, const struct op_result *result)
{
    const struct request *parent = request;
    struct text name = TEXT("");

    require(request->progress == PROGRESS_WANTED);
    require(request->ticket->state == TICKET_WAITING);
    request->progress = PROGRESS_TOLD;
    bool member = multilock_waits(core, request, &parent, &name);
    struct reply reply = answer_begin(core, parent->tag, "QUEUED");
    if (member)
        reply_pair(&reply, "name", name);
    reply_pair_number(&reply, "position", result->ahead);
    if (request->ticket->settles_us > 0) {
        reply_pair(&reply, "reason", text_from(health_word(HEALTH_SETTLING)));
        reply_pair_number(&reply, "after_ms",
            ticket_settles_us(core, request->ticket) / 1000 + 1);
    }
    reply_holder(&reply, &request->ask, result);
    answer_end(core, request->session, &reply);
}

void
request_busy(
    struct core *core, struct request *request, const struct op_result *result)
{
    const char *why = result->delay_ms == 0
                          ? error_meaning(ERROR_BUSY)
                          : "the lock-delay of an earlier holder is not over, "
                            "and wait=0 was given";
    struct reply reply;

    if (!handle_equal(request->multilock, HANDLE_NONE)) {
        request_refuse(core, request, ERROR_BUSY, why);
        return;
    }
    stats_refused(core, request, ERROR_BUSY);
    answer_error_begin(core, &reply, request->tag, ERROR_BUSY);
    if (result->ahead > 0)
        reply_pair_number(&reply, "position", result->ahead);
    if (result->delay_ms > 0)
        reply_pair_number(&reply, "delay_ms", result->delay_ms);
    reply_holder(&reply, &request->ask, result);
    reply_text(&reply, why);
    answer_end(core, request->session, &reply);
    request_free(core, request);
}

/* wait= is over. While nobody could be granted it, nobody is known to have held
 * it. */
static void
wait_ends(struct core *core, struct ticket *ticket, struct request *request)
{
    if (ticket->settles_us > 0) {
        request_unavailable(core, request, ticket_settles_us(core, ticket));
        return;
    }
    count(core->counters, COUNTER_waits_timed_out);
    request_end(core, request, ERROR_TIMEOUT, NULL);
}

/* An ERR for a wait; of a session that is kept the place in the queue stays. */
static void
wait_end(struct core *core, struct ticket *ticket, struct request *request,
    enum error_code code)
{
    require(request->state == REQUEST_ASKED);
    if (session_keeps(ticket->session)) {
        ticket->fate = FATE_UNATTENDED;
        request_refuse(core, request, code, NULL);
        return;
    }
    if (ticket->state == TICKET_ASKING)
        ticket->fate = FATE_ABANDONED;
    request_end(core, request, code, NULL);
}

/*
 * Redis has not given it the lock, and would have to be asked again: its
 * session sends no more, and the LOCK ends by that. A kept session's place in
 * the queue stays. False: the session goes on, or there is no LOCK.
 */
static bool
wait_called_off(struct core *core, struct ticket *ticket)
{
    struct request *request = ticket_asking(ticket);

    if (ticket->fate == FATE_ABANDONED || request == NULL ||
        !session_closes(ticket->session))
        return false;
    count(core->counters, COUNTER_waits_cancelled);
    wait_end(core, ticket, request, ERROR_CANCELLED);
    return true;
}

/* Whether a wait may go on; else the request has been answered. */
static bool
ticket_may_wait(struct core *core, struct ticket *ticket)
{
    struct request *request = ticket_asking(ticket);

    require(ticket->fate != FATE_FORGOTTEN);
    if (ticket->fate == FATE_ABANDONED)
        return false;
    if (request == NULL)
        return ticket->fate == FATE_UNATTENDED;
    if (wait_called_off(core, ticket))
        return ticket->fate == FATE_UNATTENDED;
    if (core->stopping) {
        wait_end(core, ticket, request, ERROR_DRAINING);
        return ticket->fate == FATE_UNATTENDED;
    }
    if (request->wait_us == 0) { /* an earlier connection's stands there */
        count(core->counters, COUNTER_refused_busy);
        request_refuse(core, request, ERROR_BUSY, NULL);
        return false;
    }
    if (request->wait_us != NEVER &&
        core->now_us >= us_add(request->began_us, request->wait_us)) {
        wait_ends(core, ticket, request);
        return false;
    }
    return true;
}

/* Redis said that the ticket stands in the queue. */
static void
ticket_waits(
    struct core *core, struct ticket *ticket, const struct op_result *result)
{
    uint64_t lease_us = us_from_ms(core->settings.lease_ms);
    bool first = ticket->state != TICKET_WAITING || ticket->doubt;
    struct request *request;

    require(ticket->state == TICKET_ASKING || ticket->state == TICKET_WAITING);
    require(!ticket_reclaims(core, ticket));
    ticket_stands(ticket, result->place, result->arrival);
    ticket->fence = 0;
    ticket->heard_us = core->now_us;
    ticket->over_us = unheard_over_us(core, result->sent_us);
    ticket->unheard = false;
    ticket->doubt = false;
    ticket->settles_us =
        result->unsettled ? core->now_us + us_from_ms(result->again_ms) : 0;
    if (!ticket_may_wait(core, ticket)) {
        ticket_leave(core, ticket);
        return;
    }
    ticket_set_state(core, ticket, TICKET_WAITING);
    ticket->refresh_us = core->now_us + lease_us / 3 -
                         random_below(&core->random, lease_us / 30);
    lock_ask_at(core, ticket->lock,
        core->now_us + us_from_ms(result->again_ms) + 20000 +
            random_below(&core->random, 50000));
    if (first) {
        ticket_log(ticket, LOG_DEBUG, "lock_queued", NULL);
        count(core->counters, COUNTER_waits_begun);
        core->hooks->waits(core, ticket);
    }
    request = ticket_asking(ticket);
    if (request != NULL && request->progress == PROGRESS_WANTED)
        ticket_queued(core, request, result);
    if (ticket->hinted) {
        ticket->hinted = false;
        ticket_refresh(core, ticket);
    }
    ticket_arm(core, ticket);
    require(!handle_equal(ticket->renew_op, HANDLE_NONE) ||
            wheel_node_set(&ticket->timer)); /* DESIGN.md D10.3 */
    ticket_advance(core, ticket);
}

/* The question could not be answered; the request is, by what is known. */
static void
ticket_fail(struct core *core, struct ticket *ticket, enum error_code code)
{
    struct request *request = ticket_asking(ticket);

    require(ticket->state == TICKET_ASKING);
    if (request != NULL && ticket->fate != FATE_ABANDONED) {
        if (code == ERROR_UNAVAILABLE)
            count(core->counters, COUNTER_refused_unavailable);
        if (code == ERROR_INDOUBT)
            count(core->counters, COUNTER_refused_indoubt);
        request_refuse(core, request, code, NULL);
    }
    if (ticket->doubt)
        ticket_leave(core, ticket);
    else
        ticket_rest(core, ticket);
}

/* That, of a question that was not answered; with wait=0 there is no wait. */
static void
asking_called_off(struct core *core, struct ticket *ticket)
{
    const struct request *request = ticket_asking(ticket);

    if (request != NULL && request->wait_us > 0)
        (void)wait_called_off(core, ticket);
}

/* Nobody waits for the answer that was lost, but who comes back for it is to
 * find its place: what stands there is asked as after a change of broker. */
static void
wait_presume(struct core *core, struct ticket *ticket)
{
    require(ticket->state == TICKET_ASKING);
    ticket_set_state(core, ticket, TICKET_WAITING);
    ticket->heard_us = core->now_us;
    ticket->probe_us = NEVER;
    ticket->moving = true;
    ticket_refresh(core, ticket);
}

static void
acquire_unknown(struct core *core, struct ticket *ticket)
{
    count(core->counters, COUNTER_outcomes_unknown);
    ticket->doubt = true;
    asking_called_off(core, ticket);
    struct request *request = ticket_asking(ticket);
    if (request == NULL && ticket->fate == FATE_UNATTENDED) {
        wait_presume(core, ticket);
        return;
    }
    /* Redis may have closed an idle connection just when it was asked. */
    if (ticket->fate == FATE_ABANDONED || request == NULL ||
        session_closes(request->session) ||
        core->now_us >= request_end_us(core, request)) {
        ticket_fail(core, ticket, ERROR_INDOUBT);
        return;
    }
    ticket_ask(core, ticket, request, request_deadline_us(core, request));
    struct op *op = slab_get(&core->ops, ticket->main_op);
    require(op == NULL || op->retry); /* DESIGN.md D8.4 */
    if (op == NULL)
        ticket_leave(core, ticket);
    else
        op->end_us = request_end_us(core, request);
}

/* A broker that is not settled with the node cannot put it into the queue: an
 * earlier connection's hold may be over. A wait goes on. */
static void
acquire_unsettled(struct core *core, struct ticket *ticket, uint64_t after_us)
{
    asking_called_off(core, ticket);
    struct request *request = ticket_asking(ticket);

    require(!ticket->moving);
    if (request != NULL && ticket->fate != FATE_ABANDONED) {
        uint64_t end_us = us_add(request->began_us, request->wait_us);
        if (core->now_us >= end_us || core->stopping)
            request_unavailable(core, request, after_us);
        else
            ticket_ask(core, ticket, request,
                us_min(end_us, core->now_us + core->settings.redis_timeout_us));
        if (!handle_equal(ticket->main_op, HANDLE_NONE)) {
            ticket->settles_us = core->now_us + after_us;
            ticket_advance(core, ticket);
            return;
        }
    }
    if (ticket->doubt)
        ticket_leave(core, ticket);
    else
        ticket_rest(core, ticket);
}

static void
acquire_granted(
    struct core *core, struct ticket *ticket, const struct op_result *result)
{
    ticket_hear_limit(ticket, result->ahead);
    ticket->beyond = result->beyond;
    ticket->called = ticket->called || result->waited_for;
    ticket_grant(core, ticket, result->fence, result->arrival, result->place,
        result->sent_us, result->ttl_ms);
}

/*
 * BUSY by intentions, which may be idle: the script has told their brokers that
 * they are in the way. So a LOCK with wait=0 stands in the queue for a moment,
 * but one of a session in a while: no new part is granted meanwhile. False: it
 * does not, and is BUSY.
 */
static bool
acquire_presses(
    struct core *core, struct ticket *ticket, struct request *request)
{
    struct session *session = request->session;

    if (request->wait_us > 0 || core->stopping || session_closes(session) ||
        (session->pressed_us > 0 &&
            core->now_us < session->pressed_us + PRESS_PAUSE_US))
        return false;
    require(!request->presses);
    session->pressed_us = core->now_us;
    request->presses = true;
    request->no_deadlock = true;
    request->progress = PROGRESS_NONE;
    request->wait_us = core->now_us - request->began_us + PRESS_US;
    wheel_add(&core->wheel, &request->timer, core->now_us + PRESS_US);
    ticket_ask(core, ticket, request, request_deadline_us(core, request));
    if (handle_equal(ticket->main_op, HANDLE_NONE))
        ticket_rest(core, ticket); /* there was no room */
    return true;
}

static void
acquire_conflict(struct core *core, struct request *request, uint32_t limit)
{
    if (!request->ticket->upgrade)
        request_conflict(core, request, limit);
    else
        request_refuse(core, request, ERROR_CONFLICT,
            "others share the lock: a shared hold becomes exclusive only while "
            "it is alone; use mode=upgradable");
}

void
acquire_done(
    struct core *core, struct ticket *ticket, const struct op_result *result)
{
    struct request *request =
        ticket->fate == FATE_ABANDONED ? NULL : ticket_asking(ticket);

    require(ticket->state == TICKET_ASKING);
    require(handle_equal(ticket->main_op, HANDLE_NONE));
    require(request == NULL || (request->command == COMMAND_LOCK &&
                                   request->state == REQUEST_ASKED));
    if (ticket->doubt && result->status <= OP_GONE)
        count(core->counters, COUNTER_outcomes_resolved);
    switch (result->status) {
    case OP_OK:
        if (!ticket->doubt)
            count(core->counters, COUNTER_grants_at_once);
        acquire_granted(core, ticket, result);
        return;
    case OP_WAITING:
        ticket_waits(core, ticket, result);
        return;
    case OP_BUSY:
        if (request != NULL && result->waited_for &&
            acquire_presses(core, ticket, request))
            return;
        count(core->counters, COUNTER_refused_busy);
        if (request != NULL)
            request_busy(core, request, result);
        ticket_rest(core, ticket);
        return;
    case OP_CONFLICT:
        count(core->counters, COUNTER_refused_conflict);
        if (request != NULL)
            acquire_conflict(core, request, result->ahead);
        ticket_rest(core, ticket);
        return;
    case OP_FULL:
        count(core->counters, COUNTER_limit_waiters);
        if (request != NULL)
            request_limit(core, request, "waiters");
        ticket_rest(core, ticket);
        return;
    case OP_UNKNOWN:
        acquire_unknown(core, ticket);
        return;
    case OP_UNSENT:
        asking_called_off(core, ticket);
        ticket_fail(
            core, ticket, ticket->doubt ? ERROR_INDOUBT : ERROR_UNAVAILABLE);
        return;
    case OP_UNSETTLED:
        acquire_unsettled(core, ticket, us_from_ms(result->again_ms));
        return;
    case OP_MISSING:
    case OP_MOVED:
        if (request != NULL)
            request_refuse(core, request, ERROR_CONFLICT,
                "a later connection of this session stands there");
        ticket_rest(core, ticket);
        return;
    case OP_GONE:
    case OP_BROKEN:
    case OP_REFUSED:
        /* A script that stopped half way leaves what it has written. */
        ticket->doubt = true;
        ticket_fail(core, ticket, ERROR_INTERNAL);
        return;
    }
}

void
claim_done(
    struct core *core, struct ticket *ticket, const struct op_result *result)
{
    struct request *request = ticket_asking(ticket);
    enum error_code code = ERROR_INDOUBT;

    require(ticket->state == TICKET_ASKING);
    require(handle_equal(ticket->main_op, HANDLE_NONE));
    require(request == NULL || request->command == COMMAND_CLAIM);
    require(ticket->doubt && ticket->holds == 0);
    switch (result->status) {
    case OP_OK:
        if (result_left_us(core, result) == 0) {
            /* It is left to end by itself: the client may still believe in it
             * by what an earlier connection was told. */
            code = ERROR_LOST;
            break;
        }
        ticket_set_ask(ticket, &result->ask);
        if (ticket->ask.part || ticket_is_intent(ticket)) {
            code = ERROR_LOST; /* no broker but its own may have it */
            break;
        }
        ticket_set_note(ticket, result->note);
        hold_was_foreign(core, ticket, result);
        acquire_granted(core, ticket, result);
        return;
    case OP_UNKNOWN:
        count(core->counters, COUNTER_outcomes_unknown);
        if (request != NULL && ticket->fate != FATE_ABANDONED &&
            core->now_us < request_deadline_us(core, request)) {
            claim_ask(core, ticket, request);
            if (!handle_equal(ticket->main_op, HANDLE_NONE))
                return;
            request = ticket_asking(ticket); /* it was refused, and is gone */
        }
        break;
    case OP_UNSENT:
        code = ERROR_UNAVAILABLE;
        break;
    case OP_MISSING: /* its earlier holder may put it there again */
        if (request != NULL && ticket->fate != FATE_ABANDONED)
            request_unavailable(core, request, us_from_ms(result->again_ms));
        ticket_rest(core, ticket);
        return;
    case OP_GONE:
    case OP_WAITING:
    case OP_MOVED:
    case OP_BROKEN:
        code = ERROR_LOST;
        break;
    case OP_BUSY:
    case OP_FULL:
    case OP_CONFLICT:
    case OP_UNSETTLED:
    case OP_REFUSED:
        code = ERROR_INTERNAL;
        break;
    }
    if (request != NULL && ticket->fate != FATE_ABANDONED)
        request_refuse(core, request, code, NULL);
    ticket_rest(core, ticket);
}

/* An earlier connection's wait could not be asked about: who claims may claim
 * again. Those for whom there is no room are told when it is asked next. */
static void
wait_refuse(struct core *core, struct ticket *ticket, enum op_status status)
{
    if (ticket->fate != FATE_UNATTENDED)
        return;
    LIST_EACH_SAFE (link, &ticket->requests) {
        struct request *request =
            container_of(link, struct request, ticket_link);
        bool unsent = status == OP_UNSENT && request->command != COMMAND_UNLOCK;
        if (request_stands(request) || !effects_spare(core->effects))
            return;
        if (request->command != COMMAND_LOCK || request->wait_us == 0)
            request_refuse(core, request,
                unsent ? ERROR_UNAVAILABLE : ERROR_INDOUBT, NULL);
    }
}

/* A question about a waiting ticket was not answered. The wait ends once Redis
 * has been silent for a lease and for redis.patience. */
static void
wait_unheard(struct core *core, struct ticket *ticket, enum op_status status)
{
    uint64_t most_us = us_from_ms(core->settings.lease_ms);

    require(ticket->heard_us <= core->now_us);
    ticket->unheard = true;
    wait_refuse(core, ticket, status);
    struct request *request = ticket_asking(ticket);
    if (most_us < core->settings.redis_timeout_us)
        most_us = core->settings.redis_timeout_us;
    if (core->now_us < us_add(ticket->heard_us, most_us)) {
        ticket->refresh_us = core->now_us + core_jitter(core, 2 * RETRY_US);
        ticket_arm(core, ticket);
        return;
    }
    if (request != NULL) {
        count(core->counters, COUNTER_refused_unavailable);
        request_refuse(core, request, ERROR_UNAVAILABLE, NULL);
    }
    ticket_leave(core, ticket);
}

/* A waiting ticket stands there no more: who waits asks anew. */
static void
wait_is_gone(struct core *core, struct ticket *ticket)
{
    struct request *request = ticket_asking(ticket);

    if (ticket->doubt) { /* the lost question may yet be carried out */
        if (request != NULL)
            request_move(request, REQUEST_QUEUED);
        ticket_leave(core, ticket);
        return;
    }
    count(core->counters, COUNTER_waits_requeued);
    ticket_set_state(core, ticket, TICKET_IDLE);
    if (request != NULL && !ticket_may_wait(core, ticket)) {
        top_wait_end(core, ticket);
    } else if (request != NULL) {
        request = ticket_asking(ticket);
        if (request != NULL)
            request_move(request, REQUEST_QUEUED);
    }
    ticket->requeued = true;
    ticket_advance(core, ticket);
}

/* It may be a later wait than was known, but never another kind of one. */
static void
wait_hear_ask(struct ticket *ticket, const struct ask *ask)
{
    bool part = ticket->ask.part || ask->part;

    if (ticket_is_intent(ticket) || mode_is_intent(ask->mode))
        return;
    ticket_set_ask(ticket, ask);
    ticket->ask.part = part;
}

void
wait_refresh_done(struct core *core, struct ticket *ticket, const struct op *op)
{
    const struct op_result *result = &op->result;
    struct request *request = ticket_asking(ticket);

    require(handle_equal(ticket->renew_op, HANDLE_NONE));
    if (op->moves &&
        (result->status == OP_OK || result->status == OP_WAITING)) {
        ticket->moving = false;
        wait_hear_ask(ticket, &result->ask);
    }
    switch (result->status) {
    case OP_OK:
        count(core->counters, COUNTER_grants_claimed);
        acquire_granted(core, ticket, result);
        return;
    case OP_WAITING:
        ticket_waits(core, ticket, result);
        return;
    case OP_MISSING:
        if (!ticket->doubt && !ticket->moving && ticket->arrival > 0 &&
            !ticket_is_taken(ticket))
            ticket_reclaim(core, ticket);
        else
            wait_is_gone(core, ticket);
        return;
    case OP_GONE:
    case OP_MOVED:
        wait_is_gone(core, ticket);
        return;
    case OP_BROKEN:
        /* It was granted, and taken away before that was known here. */
        if (request != NULL)
            request_move(request, REQUEST_QUEUED);
        ticket_leave(core, ticket);
        return;
    case OP_BUSY:
    case OP_FULL:
    case OP_CONFLICT:
    case OP_UNSETTLED:
    case OP_UNSENT:
    case OP_UNKNOWN:
    case OP_REFUSED:
        wait_unheard(core, ticket, result->status);
        return;
    }
}

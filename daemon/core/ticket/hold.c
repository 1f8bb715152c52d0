/*
 * A ticket that is HELD: the requests that it serves, and its end. Every rule
 * about when a hold may be believed in is here, in grant.c or in renew.c:
 *
 * - A deadline is the sending of the call that Redis answered, plus the lease
 *   that it said remained, less a margin for drift. It passes before the lease
 *   does, and LOST is sent then, before anybody else can be granted the lock.
 * - A renewal goes out at a third of the lease and is tried again until the
 *   deadline, whatever the errors. It never brings back what is gone.
 * - A grant is delivered only to a request that still wants it, else released.
 *
 * See DESIGN.md D2.1, D8.2 and D9.
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

void
answer_hold(struct core *core, struct request *request, struct ticket *ticket)
{
    require(ticket->state == TICKET_HELD && ticket->fence > 0);
    require(request->ticket == ticket && ticket->holds > 0);
    if (request->ask.detach_ms > 0) {
        hold_detach(core, ticket, request);
        return;
    }
    if (!ticket_is_intent(ticket))
        stats_granted(core, request, ticket);
    if (!handle_equal(request->multilock, HANDLE_NONE)) {
        multilock_granted(core, request, ticket);
        return;
    }
    struct reply reply = answer_begin(core, request->tag, "OK");

    reply_pair_number(&reply, "fence", ticket->fence);
    reply_pair_number(&reply, "ttl_ms", ticket_ttl_ms(core, ticket));
    reply_pair_number(&reply, "count", ticket_all_holds(core, ticket));
    answer_lease(core, &reply, ticket);
    if (ticket->upgrade)
        reply_mode(&reply, MODE_UPGRADE);
    reply_ignored(&reply, hold_ignores(ticket, request, request->ask.hold_ms));
    answer_end(core, request->session, &reply);
    if (request->wanted)
        core->hooks->wanted(core, ticket);
    request_free(core, request);
}

static void
lost_backend(struct core *core, const struct ticket *ticket)
{
    count(core->counters, COUNTER_lost_backend);
    namespace_of(core, ticket->lock)->value[NAMESPACE_lost_backend]++;
}

static const char expired[] = "expired";

static const char *
lost_reason(struct core *core, const struct ticket *ticket)
{
    uint64_t lease_us = us_from_ms(core->settings.lease_ms);

    require(ticket->state == TICKET_HELD);
    if (ticket->hard_end_us != NEVER &&
        ticket->hard_end_us <= core->now_us + 2 * drift_margin_us(lease_us)) {
        count(core->counters, COUNTER_lost_expired);
        namespace_of(core, ticket->lock)->value[NAMESPACE_lost_expired]++;
        return expired;
    }
    lost_backend(core, ticket);
    return "backend";
}

/* A renewal that answers the request. False: no room, and it was refused. */
static bool
hold_ask(struct core *core, struct ticket *ticket, struct request *request,
    uint64_t hard_end_us, bool sets_end)
{
    require(request->ticket == ticket && request->state == REQUEST_QUEUED);
    bool asked = ticket_send_renewal(core, ticket, hard_end_us,
        request_deadline_us(core, request), sets_end);

    if (asked) {
        request_move(request, REQUEST_ASKED);
    } else {
        count(core->counters, COUNTER_limit_requests);
        request_limit(core, request, "requests");
    }
    ticket_arm(core, ticket);
    return asked;
}

void
hold_note_lost(
    struct core *core, const struct ticket *ticket, const char *reason)
{
    bool asked = text_equal(text_from(reason), TEXT("expired")) ||
                 text_equal(text_from(reason), TEXT("broken"));

    ticket_log(ticket, asked ? LOG_INFO : LOG_WARN, "lost", reason);
    core->hooks->lost(core, ticket, reason);
}

/*
 * The client ends the hold by itself, or is gone. A client that keeps its
 * deadline ends a hold before we would, so this is the loss of a hold whose
 * renewal is late. A hold that was renewed since JEOPARDY is not lost, nor one
 * that the session has at another broker.
 */
void
hold_given_up(struct core *core, struct ticket *ticket)
{
    bool late = ticket->jeopardy || core->now_us >= ticket->jeopardy_us;

    require(ticket->state == TICKET_HELD);
    if (!late || ticket_is_taken(ticket))
        return;
    lost_backend(core, ticket);
    hold_note_lost(core, ticket, "backend");
    ticket->ending = ENDING_LATE;
}

/* Tells the client, and the requests on the hold. */
static void
hold_lost(struct core *core, struct ticket *ticket, const char *reason)
{
    struct text lock = text_make(ticket->lock->name, ticket->lock->name_len);

    require(ticket->state == TICKET_HELD && ticket->ending == ENDING_CLEAN);
    hold_note_lost(core, ticket, reason);
    ticket->ending = ENDING_LOST;
    bool known = ticket->session != NULL && ticket_known_holds(ticket) > 0;
    struct request *had = ticket_request(ticket);
    if (had != NULL && had->member == MEMBER_HAD)
        multilock_lost(core, had);
    ticket->fate = FATE_WANTED;
    if (known) {
        struct reply reply = answer_event(core, EVENT_LOST);
        reply_word(&reply, lock);
        reply_pair_number(&reply, "fence", ticket->fence);
        reply_pair(&reply, "reason", text_from(reason));
        if (ticket->owner_len > 0)
            reply_pair(&reply, "owner", ticket_owner(ticket));
        answer_end(core, ticket->session, &reply);
    }
    struct request *request = ticket_asking(ticket);
    if (request != NULL && request->command == COMMAND_LOCK)
        request_move(
            request, REQUEST_QUEUED); /* it is for another hold from now on */
    else if (request != NULL)
        request_refuse(core, request, ERROR_LOST, NULL);
    /* The answers to others have not moved it: the caller does. */
    require(ticket->state == TICKET_HELD && ticket->ending == ENDING_LOST);
}

/*
 * The deadline has come: nothing is granted or prolonged from here on. In one
 * that was claimed here a client that did not hear the answer believes by what
 * the earlier broker had told it: so long it stays.
 */
static void
hold_end(struct core *core, struct ticket *ticket)
{
    uint64_t at_us =
        ticket->foreign_us > core->now_us ? ticket->foreign_us : core->now_us;

    const char *reason = lost_reason(core, ticket);
    hold_lost(core, ticket, reason);
    /* The margin is the client's; for others a lease= lasts until its end. */
    if (reason == expired && ticket->stands_us != NEVER &&
        ticket->stands_us > at_us)
        at_us = ticket->stands_us;
    if (ticket_is_intent(ticket)) /* first the clients hear of its parts */
        at_us = us_max(at_us, core->now_us + RETRY_US);
    ticket_leave_at(core, ticket, at_us);
}

/* The part's intention was lost: somebody may have the whole. */
static void
hold_end_uprooted(struct core *core, struct ticket *ticket)
{
    require(ticket->uprooted && !ticket->part);
    count(core->counters, COUNTER_lost_gone);
    namespace_of(core, ticket->lock)->value[NAMESPACE_lost_gone]++;
    hold_lost(core, ticket, "gone");
    /* A client that is away believes in it until then. */
    ticket_leave_at(core, ticket,
        session_connected(ticket->session)
            ? core->now_us
            : us_max(core->now_us, ticket->deadline_us));
}

void
hold_gone(struct core *core, struct ticket *ticket)
{
    count(core->counters, COUNTER_lost_gone);
    namespace_of(core, ticket->lock)->value[NAMESPACE_lost_gone]++;
    hold_lost(core, ticket, "gone");
    ticket->requeued = true;
    if (!ticket_reclaims(core, ticket)) {
        ticket_end(core, ticket);
        return;
    }
    ticket_leave(core, ticket);
}

void
hold_broken(struct core *core, struct ticket *ticket)
{
    count(core->counters, COUNTER_lost_broken);
    namespace_of(core, ticket->lock)->value[NAMESPACE_lost_broken]++;
    hold_lost(core, ticket, "broken");
    ticket_leave(core, ticket);
}

uint64_t
detach_until_us(const struct core *core, const struct ticket *ticket,
    const struct request *request)
{
    uint64_t granted_us =
        us_add(ticket->granted_us, core->settings.redis_timeout_us);

    return us_max(request_deadline_us(core, request), granted_us);
}

void
hold_detach(struct core *core, struct ticket *ticket, struct request *request)
{
    uint64_t end_us = us_add(core->now_us, us_from_ms(request->ask.detach_ms));

    require(request->command == COMMAND_LOCK && ticket->holds == 1);
    require(ticket->hard_end_us == NEVER && request->ask.detach_ms > 0);
    uint64_t until_us = detach_until_us(core, ticket, request);
    bool asked = ticket_send_renewal(core, ticket, end_us, until_us, false);
    if (!asked) {
        count(core->counters, COUNTER_limit_requests);
        request_limit(core, request, "requests");
        ticket_leave(core, ticket);
        return;
    }
    if (request->state == REQUEST_QUEUED)
        request_move(request, REQUEST_ASKED);
    struct op *op = slab_get(&core->ops, ticket->renew_op);
    op->detaches = true;
    op->end_us = us_add(until_us, core->settings.command_timeout_us);
    ticket->detached_us = end_us;
    ticket_arm(core, ticket);
}

/* One more hold for the holder, with the same fence, unless it has as many as
 * can be; or the first one of this connection, and then with its lease=. */
static void
hold_reenter(struct core *core, struct ticket *ticket, struct request *request)
{
    require(ticket->state == TICKET_HELD);
    if (ticket->holds >= PROTO_COUNT_MAX) {
        count(core->counters, COUNTER_limit_count);
        request_limit(core, request, "count");
        return;
    }
    if (ticket->holds++ > 0)
        count(core->counters, COUNTER_reentries);
    else if (request->ask.hold_ms > 0)
        ticket_set_lease(core, ticket, request->ask.hold_ms);
    else if (request->ask.detach_ms > 0) { /* its end is the detached one's */
        ticket->ask.hold_ms = 0;
        ticket->hard_end_us = NEVER;
    }
    ticket->fate = FATE_WANTED;
    ticket->kept_us = 0;
    ticket_count_deadline(ticket);
    answer_hold(core, request, ticket);
}

/* Two limits of one semaphore. A LOCK that is put again for a wait has that of
 * then, and means what the wait was granted. */
static bool
hold_limit_differs(const struct ticket *ticket, const struct ask *asked)
{
    return ticket->ask.permits_max != asked->permits_max &&
           ticket->ask.permits_max > 0 && asked->permits_max > 0 &&
           ticket->fate != FATE_UNATTENDED;
}

/* Why an owner cannot have a part beside the whole; NULL: it can. */
static const char *
intent_objection(enum mode held, enum mode asked)
{
    if (!mode_is_intent(held))
        return "this owner holds a name above, and with it all of its parts: "
               "give that back first";
    if (!mode_is_intent(asked))
        return "this owner holds a part of it: give all of its parts back "
               "first, or use another owner=";
    if (held == MODE_INTENT_SHARED && asked == MODE_INTENT)
        return "this owner shares another part: give that back first, or use "
               "another owner=";
    return NULL;
}

/* Why a LOCK of the holder itself cannot be had; NULL: it can. */
static const char *
hold_objection(const struct ticket *ticket, const struct request *request)
{
    const struct ask *held = &ticket->ask;
    const struct ask *asked = &request->ask;

    if (mode_is_intent(held->mode) || mode_is_intent(asked->mode))
        return intent_objection(held->mode, asked->mode);
    if (ticket->holds > 0 && asked->detach_ms > 0)
        return "this owner holds the lock: give it back before detached=1";
    if (asked->part && !held->part)
        return "this owner holds the lock without tree=1: give it back first";
    if ((held->permits_max > 0) != (asked->permits_max > 0) ||
        hold_limit_differs(ticket, asked))
        return "limit= is another one than that of the lock";
    if (held->permits != asked->permits)
        return "permits= are other ones than those of the hold";
    if (asked->mode == MODE_UPGRADABLE && held->mode != MODE_UPGRADABLE)
        return "the hold is of another mode: give it back before "
               "mode=upgradable";
    if (asked->mode == MODE_SHARED && held->mode == MODE_UPGRADE)
        return "the owner has upgraded its hold: UNLOCK the upgrade first";
    if (asked->mode == MODE_EXCLUSIVE &&
        (held->mode == MODE_SHARED || held->mode == MODE_UPGRADABLE))
        return "a shared hold cannot become exclusive: give it back first";
    return NULL;
}

bool
hold_may_upgrade(const struct core *core, const struct ticket *ticket,
    const struct request *request)
{
    enum mode mode = ticket->ask.mode;

    return (mode == MODE_SHARED || mode == MODE_UPGRADABLE) &&
           request->ask.mode == MODE_EXCLUSIVE &&
           request->ask.permits_max == ticket->ask.permits_max &&
           ticket->ask.permits_max == 0 && request->ask.detach_ms == 0 &&
           handle_equal(request->multilock, HANDLE_NONE) &&
           !core->settings.no_semaphores && !ticket->ask.part &&
           (ticket->fate != FATE_UNATTENDED ||
               ticket_find_upgrade(core, ticket->session, ticket->lock,
                   ticket_owner(ticket)) != NULL);
}

/* The request goes to the upgrade's own ticket: the hold stays as it is,
 * whatever becomes of the upgrade. See DESIGN.md D1.8. */
static void
hold_upgrade(struct core *core, struct ticket *ticket, struct request *request)
{
    const char *limit;
    struct ticket *upgrade = ticket_obtain_upgrade(core, ticket->session,
        lock_name(ticket->lock), ticket_owner(ticket), &limit);

    if (upgrade == NULL) {
        request_limit(core, request, limit);
        return;
    }
    if (request->state != REQUEST_QUEUED)
        request_move(request, REQUEST_QUEUED);
    request_hand(core, request, upgrade);
}

/*
 * A LOCK that does not fit the hold. One that was granted to a connection that
 * has ended, and that nobody has asked for since, is given up for it: the
 * client may not even know of it. True where that must be waited for.
 */
static bool
hold_misfits(struct core *core, struct ticket *ticket, struct request *request,
    const char *why)
{
    require(why != NULL || ticket->fate == FATE_UNATTENDED);
    if (hold_may_upgrade(core, ticket, request)) {
        hold_upgrade(core, ticket, request);
        return false;
    }
    if (ticket->fate != FATE_UNATTENDED ||
        (mode_is_intent(request->ask.mode) && !ticket_is_intent(ticket))) {
        count(core->counters, COUNTER_refused_conflict);
        request_refuse(core, request, ERROR_CONFLICT, why);
        return false;
    }
    request_move(request, REQUEST_QUEUED);
    ticket->ending = ENDING_UNCLEAN;
    ticket_leave(core, ticket);
    return true;
}

void
hold_relock(struct core *core, struct ticket *ticket, struct request *request)
{
    const char *why = hold_objection(ticket, request);

    require(ticket->state == TICKET_HELD);
    if (ticket->detached_us > 0) /* Redis had lost the hold */
        hold_detach(core, ticket, request);
    else if (why != NULL)
        (void)hold_misfits(core, ticket, request, why);
    else
        hold_reenter(core, ticket, request);
}

/* Whether a LOCK takes an idle intention up, of its own mode. */
static bool
intent_serves(const struct core *core, const struct ticket *intent,
    const struct request *request)
{
    return intent->ask.mode == request->ask.mode &&
           !intent_is_over(core, intent);
}

/*
 * A LOCK of the holder itself. No call to Redis, unless
 *
 * - an exclusive hold is to be shared from now on: that has to be known there.
 *   From its sending on the client has given up what only it had, whatever
 *   becomes of the answer;
 * - an earlier connection of the session had it: a later one may have given it
 *   back at another broker since, and then it is no hold of ours any more;
 * - RESIZE may have changed the limit that this broker has heard of.
 *
 * True where the request has to wait for Redis.
 */
static bool
hold_lock(struct core *core, struct ticket *ticket, struct request *request)
{
    if (request->state != REQUEST_QUEUED)
        return true;
    bool moves =
        ticket->generation != request->session->generation || ticket->moving;
    bool resized = hold_limit_differs(ticket, &request->ask);
    const char *why = hold_objection(ticket, request);
    /* A ticket that was put again may have been given back at another broker.
     * Redis may have lost that, and the fences granted since. */
    if ((why != NULL && !moves && !resized) ||
        (ticket->reborn && ticket->fate == FATE_UNATTENDED) ||
        (intent_is_idle(ticket) && !intent_serves(core, ticket, request)))
        return hold_misfits(core, ticket, request, why);
    bool shares = why == NULL && request->ask.mode == MODE_SHARED &&
                  (ticket->ask.mode != MODE_SHARED ||
                      ticket->downgrade == DOWNGRADE_ASKED);
    if (why == NULL && !shares && !moves) {
        hold_reenter(core, ticket, request);
        return false;
    }
    if (ticket_reclaims(core, ticket) ||
        (ticket->part && part_moves(core, ticket)))
        return true;
    if (shares) {
        ticket->ask.mode = MODE_SHARED;
        ticket->downgrade = DOWNGRADE_ASKED;
    }
    ticket->generation = request->session->generation;
    ticket->moving = moves;
    return hold_ask(core, ticket, request, ticket->hard_end_us, false);
}

/* It was granted to a connection that has ended, and nobody has asked since. */
static bool
hold_is_unattended(
    struct core *core, const struct ticket *ticket, struct request *request)
{
    require((ticket->holds == 0) == (ticket->fate == FATE_UNATTENDED));
    if (ticket->fate != FATE_UNATTENDED)
        return false;
    request_refuse(core, request, ERROR_NOTHELD, NULL);
    return true;
}

static bool
fence_is_stale(
    struct core *core, const struct ticket *ticket, struct request *request)
{
    if (request->fence == 0 || request->fence == ticket->fence)
        return false;
    request_refuse(core, request, ERROR_STALE, NULL);
    return true;
}

/* True where the request has to wait for Redis. */
static bool
hold_unlock(struct core *core, struct ticket *ticket, struct request *request)
{
    require(request->command == COMMAND_UNLOCK);
    if (hold_is_unattended(core, ticket, request))
        return false;
    if (fence_is_stale(core, ticket, request))
        return false;
    if (ticket->holds > 1 && request->ask.delay_ms > 0) {
        count(core->counters, COUNTER_refused_conflict);
        request_refuse(core, request, ERROR_CONFLICT,
            "the owner has entered the hold several times: UNLOCK it without "
            "delay= first");
        return false;
    }
    if (ticket->holds > 1) {
        ticket->holds--;
        answer_count(core, request, ticket_all_holds(core, ticket));
        return false;
    }
    request_move(request, REQUEST_ASKED);
    ticket->delay_ms = request->ask.delay_ms;
    hold_given_up(core, ticket);
    ticket_leave(core, ticket);
    return true;
}

/* Why a hold cannot give so many permits back; NULL: it can. */
static const char *
part_objection(const struct ticket *ticket, uint32_t permits)
{
    if (ticket->ask.permits_max == 0)
        return "permits= is for a semaphore: the hold was taken without limit=";
    if (permits > ticket->ask.permits)
        return "permits= is more than the hold has";
    if (ticket->holds > 1)
        return "the owner has entered the hold several times: UNLOCK it "
               "without "
               "permits= first";
    return NULL;
}

/* UNLOCK permits=: gives some permits back, and keeps the hold with the rest.
 * True where the request has to wait for Redis. */
static bool
hold_unlock_part(
    struct core *core, struct ticket *ticket, struct request *request)
{
    enum ticket_downgrade before = ticket->downgrade;
    uint32_t permits = request->ask.permits;

    if (request->state != REQUEST_QUEUED)
        return true;
    if (hold_is_unattended(core, ticket, request) ||
        fence_is_stale(core, ticket, request))
        return false;
    const char *why = part_objection(ticket, permits);
    if (why != NULL) {
        count(core->counters, COUNTER_refused_conflict);
        request_refuse(core, request, ERROR_CONFLICT, why);
        return false;
    }
    require(permits <= ticket->ask.permits && ticket->holds == 1);
    if (permits == ticket->ask.permits)
        return hold_unlock(core, ticket, request);
    ticket->ask.permits -= permits;
    ticket->downgrade = DOWNGRADE_ASKED;
    if (hold_ask(core, ticket, request, ticket->hard_end_us, false))
        return true;
    ticket->ask.permits += permits;
    ticket->downgrade = before;
    return false;
}

static bool
hold_renew(struct core *core, struct ticket *ticket, struct request *request)
{
    if (request->state != REQUEST_QUEUED)
        return true;
    if (hold_is_unattended(core, ticket, request) ||
        fence_is_stale(core, ticket, request))
        return false;
    uint64_t end_us = us_add(core->now_us, us_from_ms(request->ask.hold_ms));
    if (!hold_ask(core, ticket, request, end_us, true))
        return false;
    ticket->ask.hold_ms = request->ask.hold_ms;
    hold_end_by(ticket, core->now_us, end_us);
    ticket_arm(core, ticket);
    return true;
}

/* Another note. Until Redis has confirmed it each renewal has it, for Redis may
 * come back as it was before. */
static bool
hold_set_note(struct core *core, struct ticket *ticket, struct request *request)
{
    if (request->state != REQUEST_QUEUED)
        return true;
    if (hold_is_unattended(core, ticket, request) ||
        fence_is_stale(core, ticket, request))
        return false;
    bool was_due = ticket->note_due;
    ticket->note_due = true;
    if (!hold_ask(core, ticket, request, ticket->hard_end_us, false)) {
        ticket->note_due = was_due;
        return false;
    }
    ticket_set_note(ticket, text_make(request->note, request->note_len));
    ticket_words(ticket, slab_get(&core->ops, ticket->renew_op));
    return true;
}

void
hold_claimed(struct core *core, struct ticket *ticket, struct request *request)
{
    require(ticket->state == TICKET_HELD);
    require(request->fence == ticket->fence); /* DESIGN.md D7.3 */
    ticket->holds = request->holds;
    ticket->fate = FATE_WANTED;
    ticket->reborn = false;
    ticket_count_deadline(ticket);
    answer_hold(core, request, ticket);
}

/*
 * After a connection of the session took it over here: whether the hold stands
 * in Redis as this generation's. From now on all that is asked about it is of
 * this generation.
 */
static bool
hold_claim(struct core *core, struct ticket *ticket, struct request *request)
{
    if (request->state != REQUEST_QUEUED)
        return true;
    bool ours = ticket->generation == request->session->generation;
    /* An earlier connection may have been granted a later hold beside it. */
    bool beside =
        ticket->ask.mode != MODE_EXCLUSIVE || ticket->ask.permits_max > 0;
    if (!ours && (request->fence > ticket->fence ||
                     (beside && request->fence != ticket->fence))) {
        /* Redis is asked whether another broker had that one. */
        hold_gone(core, ticket);
        return false;
    }
    /* A part without intentions was granted to nobody who heard of it. */
    if (ticket->fence != request->fence ||
        (ticket->ask.part && !ticket->part)) {
        request_refuse(core, request, ERROR_LOST, NULL);
        return false;
    }
    /* The session may have moved an intention, and given it back there. */
    if (ticket->part && part_moves(core, ticket))
        return true;
    if (ours && !ticket->moving) {
        hold_claimed(core, ticket, request);
        return false;
    }
    ticket->generation = request->session->generation;
    ticket->moving = true;
    return hold_ask(core, ticket, request, ticket->hard_end_us, false);
}

/* Whether Redis is being told of a new end, also by a detachment, or of a new
 * note: of two such the earlier one could run last. */
static bool
hold_changes(const struct core *core, const struct ticket *ticket)
{
    const struct op *op = slab_get(&core->ops, ticket->renew_op);

    require(op == NULL || op->kind == OP_RENEW || op->kind == OP_RECLAIM);
    return op != NULL && (op->sets_end || op->detaches || op->notes);
}

/* Serves the first request of a hold. True where it must be waited for. */
static bool
hold_serve(struct core *core, struct ticket *ticket, struct request *request)
{
    struct ticket *other = request_elsewhere(core, ticket, request);

    require(ticket_request(ticket) == request);
    if (other != NULL) {
        request_hand(core, request, other);
        return false;
    }
    if (ticket_is_intent(ticket) && request->command != COMMAND_LOCK) {
        request_refuse(core, request,
            request->command == COMMAND_CLAIM ? ERROR_LOST : ERROR_NOTHELD,
            NULL);
        return false;
    }
    if (request->command == COMMAND_UNLOCK && request->ask.permits == 0)
        return hold_unlock(core, ticket, request);
    if (hold_changes(core, ticket))
        return true;
    /* A lost ticket is put again as it is, before anything changes it. */
    if (ticket_reclaims(core, ticket) && request->command != COMMAND_LOCK)
        return true;
    if (request->command == COMMAND_RENEW)
        return hold_renew(core, ticket, request);
    if (request->command == COMMAND_NOTE)
        return hold_set_note(core, ticket, request);
    if (request->command == COMMAND_UNLOCK)
        return hold_unlock_part(core, ticket, request);
    if (request->command == COMMAND_CLAIM)
        return hold_claim(core, ticket, request);
    require(request->command == COMMAND_LOCK);
    return hold_lock(core, ticket, request);
}

bool
hold_advance(struct core *core, struct ticket *ticket, struct request *request)
{
    if (core->now_us >= ticket->deadline_us) {
        hold_end(core, ticket);
        return true;
    }
    if (ticket->uprooted) {
        hold_end_uprooted(core, ticket);
        return true;
    }
    /* A LOCK that waits for a name above needs no intention here yet. */
    if (ticket_is_unserved(ticket) && intent_is_idle(ticket) &&
        intent_is_over(core, ticket)) {
        ticket_leave(core, ticket);
        return false;
    }
    if (request != NULL)
        return !request_stands(request) && !hold_serve(core, ticket, request);
    if (ticket_is_intent(ticket)) {
        ticket_arm(core, ticket);
    } else if (session_gives_back(ticket->session)) {
        count(core->counters, COUNTER_releases_by_death);
        hold_given_up(core, ticket);
        if (ticket->session == NULL || ticket->session->end != END_QUIT)
            ticket->ending = ENDING_UNCLEAN;
        ticket_leave(core, ticket);
    }
    return false;
}

/*
 * A ticket that is HELD. Every rule about when a hold may be believed in is
 * here:
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
#include "daemon/core/advance.h"
#include "daemon/core/final.h"
#include "daemon/core/question.h"
#include "daemon/core/session_table.h"
#include "daemon/core/ticket.h"
#include "daemon/core/times.h"

#include "daemon/base/assert.h"

/* Renewals go out together, so often in a lease: many of them share a call. */
#define RENEWALS_TOGETHER 2048

static void
answer_hold(struct core *core, struct pending *pending, struct ticket *ticket)
{
    tally_granted(core, pending, ticket);
    if (!handle_equal(pending->bundle, HANDLE_NONE)) {
        bundle_granted(core, pending, ticket);
        return;
    }
    struct reply reply = answer_begin(core, pending->tag, "OK");

    reply_pair_number(&reply, "fence", ticket->fence);
    reply_pair_number(&reply, "ttl_ms", ticket_ttl_ms(core, ticket));
    reply_pair_number(&reply, "count", ticket->holds);
    answer_end(core, pending->session, &reply);
    pending_free(core, pending);
}

static void
answer_ttl(
    struct core *core, struct pending *pending, const struct ticket *ticket)
{
    struct reply reply = answer_begin(core, pending->tag, "OK");

    reply_pair_number(&reply, "ttl_ms", ticket_ttl_ms(core, ticket));
    answer_end(core, pending->session, &reply);
    pending_free(core, pending);
}

static void
lost_backend(struct core *core, const struct ticket *ticket)
{
    count(core->counters, COUNTER_lost_backend);
    space_of(core, ticket->lock)->value[SPACE_lost_backend]++;
}

static const char expired[] = "expired";

static const char *
lost_reason(struct core *core, const struct ticket *ticket)
{
    uint64_t lease_us = us_from_ms(core->settings.lease_ms);

    if (ticket->hard_end_us != NEVER &&
        ticket->hard_end_us <= core->now_us + 2 * drift_margin_us(lease_us)) {
        count(core->counters, COUNTER_lost_expired);
        space_of(core, ticket->lock)->value[SPACE_lost_expired]++;
        return expired;
    }
    lost_backend(core, ticket);
    return "backend";
}

/* A renewal that answers the request. False: no room, and it was refused. */
static bool
hold_ask(struct core *core, struct ticket *ticket, struct pending *pending,
    uint64_t hard_end_us, bool sets_end)
{
    bool asked = ticket_send_renewal(
        core, ticket, hard_end_us, pending_give_up_us(core, pending), sets_end);

    pending->asked = asked;
    if (!asked) {
        count(core->counters, COUNTER_limit_requests);
        pending_limit(core, pending, "requests");
    }
    ticket_arm(core, ticket);
    return asked;
}

/* Tells operators. Only the ends that nobody has asked for are worth a warning.
 */
void
hold_note_lost(
    struct core *core, const struct ticket *ticket, const char *reason)
{
    bool asked = text_equal(text_from(reason), TEXT("expired")) ||
                 text_equal(text_from(reason), TEXT("broken"));

    ticket_log(ticket, asked ? LOG_INFO : LOG_WARN, "lost", reason);
    recent_lost(core, ticket, reason);
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
    ticket->given_up = true;
}

/* Tells the client, and the requests on the hold. */
static void
hold_lost(struct core *core, struct ticket *ticket, const char *reason)
{
    struct text lock = text_make(ticket->lock->name, ticket->lock->name_len);

    hold_note_lost(core, ticket, reason);
    ticket->lost = true;
    bool known = ticket->session != NULL && ticket_known_holds(ticket) > 0;
    struct pending *had = ticket_pending(ticket);
    if (had != NULL && had->part == PART_HAD)
        bundle_lost(core, had);
    ticket->unattended = false;
    if (known) {
        struct reply reply = answer_event(core, EVENT_LOST);
        reply_word(&reply, lock);
        reply_pair_number(&reply, "fence", ticket->fence);
        reply_pair(&reply, "reason", text_from(reason));
        if (ticket->owner_len > 0)
            reply_pair(&reply, "owner", ticket_owner(ticket));
        answer_end(core, ticket->session, &reply);
    }
    struct pending *pending = ticket_asking(ticket);
    if (pending != NULL && pending->command == COMMAND_LOCK)
        pending->asked = false; /* it is for another hold from now on */
    else if (pending != NULL)
        pending_error(core, pending, ERROR_LOST, NULL);
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
    ticket->unclean = true;
    /* The margin is the client's; for others a lease= lasts until its end. */
    if (reason == expired && ticket->stands_us != NEVER &&
        ticket->stands_us > at_us)
        at_us = ticket->stands_us;
    ticket_leave_at(core, ticket, at_us);
}

/* It was claimed: nobody can have been told of more than stands in the record,
 * and that is over so long after the answer at the latest. */
void
hold_was_foreign(
    struct core *core, struct ticket *ticket, const struct op_result *result)
{
    ticket->foreign_us = core->now_us + us_from_ms(result->ttl_ms);
}

/* Redis says that there is no such hold; but it may be being put there. */
static void
hold_gone(struct core *core, struct ticket *ticket)
{
    count(core->counters, COUNTER_lost_gone);
    space_of(core, ticket->lock)->value[SPACE_lost_gone]++;
    hold_lost(core, ticket, "gone");
    ticket->requeued = true;
    if (!ticket->reclaiming) {
        ticket_rest(core, ticket);
        return;
    }
    ticket->unclean = true;
    ticket_leave(core, ticket);
    ticket_advance(core, ticket);
}

/* An operator took it away: BREAK. */
static void
hold_broken(struct core *core, struct ticket *ticket)
{
    count(core->counters, COUNTER_lost_broken);
    space_of(core, ticket->lock)->value[SPACE_lost_broken]++;
    hold_lost(core, ticket, "broken");
    ticket->unclean = true;
    ticket_leave(core, ticket);
}

static void
hold_event(
    struct core *core, const struct ticket *ticket, enum event_code event)
{
    if (ticket->session == NULL || ticket_known_holds(ticket) == 0)
        return;
    struct reply reply = answer_event(core, event);
    reply_word(&reply, text_make(ticket->lock->name, ticket->lock->name_len));
    reply_pair_number(&reply, "ttl_ms", ticket_ttl_ms(core, ticket));
    if (ticket->owner_len > 0)
        reply_pair(&reply, "owner", ticket_owner(ticket));
    answer_end(core, ticket->session, &reply);
}

/* One more hold for the holder, with the same fence, unless it has as many as
 * can be; or the first one of this connection, and then with its lease=. */
static void
hold_reenter(struct core *core, struct ticket *ticket, struct pending *pending)
{
    if (ticket->holds >= PROTO_COUNT_MAX) {
        count(core->counters, COUNTER_limit_count);
        pending_limit(core, pending, "count");
        return;
    }
    if (ticket->holds++ > 0)
        count(core->counters, COUNTER_reentries);
    else if (pending->ask.hold_ms > 0)
        ticket_set_lease(core, ticket, pending->ask.hold_ms);
    ticket->unattended = false;
    ticket_count_deadline(ticket);
    answer_hold(core, pending, ticket);
}

/* Why a LOCK of the holder itself cannot be had; NULL: it can. */
static const char *
hold_objection(const struct ask *held, const struct ask *asked)
{
    if (held->permits_max != asked->permits_max)
        return "limit= is another one than that of the hold";
    if (held->permits != asked->permits)
        return "permits= are other ones than those of the hold";
    if (held->shared && !asked->shared)
        return "a shared hold cannot become exclusive: give it back first";
    return NULL;
}

/*
 * A LOCK that does not fit the hold. One that was granted to a connection that
 * has ended, and that nobody has asked for since, is given up for it: the
 * client may not even know of it. True where that must be waited for.
 */
static bool
hold_misfits(struct core *core, struct ticket *ticket, struct pending *pending,
    const char *why)
{
    if (!ticket->unattended) {
        count(core->counters, COUNTER_refused_conflict);
        pending_error(core, pending, ERROR_CONFLICT, why);
        return false;
    }
    pending->asked = false;
    ticket->unattended = false;
    ticket->unclean = true;
    ticket_leave(core, ticket);
    return true;
}

/* The LOCK of a holder whom Redis has been asked about. */
static void
hold_relock(struct core *core, struct ticket *ticket, struct pending *pending)
{
    const char *why = hold_objection(&ticket->ask, &pending->ask);

    if (why != NULL)
        (void)hold_misfits(core, ticket, pending, why);
    else
        hold_reenter(core, ticket, pending);
}

/*
 * A LOCK of the holder itself. No call to Redis, unless
 *
 * - an exclusive hold is to be shared from now on: that has to be known there.
 *   From its sending on the client has given up what only it had, whatever
 *   becomes of the answer;
 * - an earlier connection of the session had it: a later one may have given it
 *   back at another broker since, and then it is no hold of ours any more.
 *
 * True where the request has to wait for Redis.
 */
static bool
hold_lock(struct core *core, struct ticket *ticket, struct pending *pending)
{
    if (pending->asked)
        return true;
    bool moves =
        ticket->generation != pending->session->generation || ticket->moving;
    const char *why = hold_objection(&ticket->ask, &pending->ask);
    /* What was put again may have been given back at another broker, and Redis
     * have lost that with the fences that were granted since. */
    if ((why != NULL && !moves) || (ticket->reborn && ticket->unattended))
        return hold_misfits(core, ticket, pending, why);
    bool shares = why == NULL && pending->ask.shared &&
                  (!ticket->ask.shared || ticket->sharing);
    if (why == NULL && !shares && !moves) {
        hold_reenter(core, ticket, pending);
        return false;
    }
    if (ticket->reclaiming)
        return true;
    if (why == NULL) {
        ticket->ask.shared = pending->ask.shared;
        ticket->sharing = shares;
        ticket->downgraded = ticket->downgraded || shares;
    }
    ticket->generation = pending->session->generation;
    ticket->moving = moves;
    return hold_ask(core, ticket, pending, ticket->hard_end_us, false);
}

/* It was granted to a connection that has ended, and nobody has asked since. */
static bool
hold_is_unattended(
    struct core *core, const struct ticket *ticket, struct pending *pending)
{
    if (!ticket->unattended)
        return false;
    pending_error(core, pending, ERROR_NOTHELD, NULL);
    return true;
}

static bool
fence_is_stale(
    struct core *core, const struct ticket *ticket, struct pending *pending)
{
    if (pending->fence == 0 || pending->fence == ticket->fence)
        return false;
    pending_error(core, pending, ERROR_STALE, NULL);
    return true;
}

/* True where the request has to wait for Redis. */
static bool
hold_unlock(struct core *core, struct ticket *ticket, struct pending *pending)
{
    if (hold_is_unattended(core, ticket, pending))
        return false;
    if (fence_is_stale(core, ticket, pending))
        return false;
    if (ticket->holds > 1) {
        ticket->holds--;
        answer_count(core, pending, ticket->holds);
        return false;
    }
    pending->asked = true;
    hold_given_up(core, ticket);
    ticket_leave(core, ticket);
    return true;
}

/* A nearer end counts from now on, whatever becomes of the answer. */
static void
hold_end_by(struct ticket *ticket, uint64_t now_us, uint64_t end_us)
{
    uint64_t hold_us = end_us - now_us;

    ticket->hard_end_us = us_min(ticket->hard_end_us, end_us);
    ticket->stands_us = us_min(ticket->stands_us, end_us);
    ticket->foreign_us = us_min(ticket->foreign_us, end_us);
    ticket_set_deadline(
        ticket, us_min(ticket->deadline_us,
                    end_us - us_min(hold_us, drift_margin_us(hold_us))));
}

static bool
hold_renew(struct core *core, struct ticket *ticket, struct pending *pending)
{
    if (pending->asked)
        return true;
    if (hold_is_unattended(core, ticket, pending) ||
        fence_is_stale(core, ticket, pending))
        return false;
    if (ticket->ask.hold_ms == 0) {
        pending_error(core, pending, ERROR_CONFLICT,
            "the broker renews this hold itself");
        return false;
    }
    uint64_t end_us = us_add(core->now_us, us_from_ms(pending->ask.hold_ms));
    if (!hold_ask(core, ticket, pending, end_us, true))
        return false;
    hold_end_by(ticket, core->now_us, end_us);
    ticket_arm(core, ticket);
    return true;
}

/* All parts of a request are had: its lease= begins. */
void
ticket_set_lease(struct core *core, struct ticket *ticket, uint64_t hold_ms)
{
    uint64_t end_us = us_add(core->now_us, us_from_ms(hold_ms));

    require(ticket->state == TICKET_HELD);
    ticket->ask.hold_ms = hold_ms;
    if (!ticket->reclaiming) /* else only the broker knows of that end */
        (void)ticket_send_renewal(core, ticket, end_us,
            us_add(core->now_us, core->settings.patience_us), true);
    hold_end_by(ticket, core->now_us, end_us);
    ticket_arm(core, ticket);
}

static void
hold_claimed(struct core *core, struct ticket *ticket, struct pending *pending)
{
    ticket->holds = pending->holds;
    ticket->unattended = false;
    ticket->reborn = false;
    ticket_count_deadline(ticket);
    answer_hold(core, pending, ticket);
}

/*
 * After a connection of the session took it over here: whether the hold stands
 * in Redis as this generation's. From now on all that is asked about it is of
 * this generation.
 */
static bool
hold_claim(struct core *core, struct ticket *ticket, struct pending *pending)
{
    if (pending->asked)
        return true;
    bool ours = ticket->generation == pending->session->generation;
    /* An earlier connection may have been granted a later hold beside it. */
    bool beside = ticket->ask.shared || ticket->ask.permits_max > 0;
    if (!ours && (pending->fence > ticket->fence ||
                     (beside && pending->fence != ticket->fence))) {
        /* Redis is asked whether another broker had that one. */
        hold_gone(core, ticket);
        return true;
    }
    if (ticket->fence != pending->fence) {
        pending_error(core, pending, ERROR_LOST, NULL);
        return false;
    }
    if (ours && !ticket->moving) {
        hold_claimed(core, ticket, pending);
        return false;
    }
    ticket->generation = pending->session->generation;
    ticket->moving = true;
    return hold_ask(core, ticket, pending, ticket->hard_end_us, false);
}

/* Whether Redis is being told of a new end: of two such the earlier one could
 * run last. */
static bool
hold_ends(const struct core *core, const struct ticket *ticket)
{
    const struct op *op = slab_get(&core->ops, ticket->renew_op);

    return op != NULL && op->sets_end;
}

/* Serves the first request of a hold. True where it must be waited for. */
static bool
hold_serve(struct core *core, struct ticket *ticket, struct pending *pending)
{
    if (pending->command == COMMAND_UNLOCK)
        return hold_unlock(core, ticket, pending);
    if (hold_ends(core, ticket))
        return true;
    /* What is put again is put as it is, before anything changes it. */
    if (ticket->reclaiming && pending->command != COMMAND_LOCK)
        return true;
    if (pending->command == COMMAND_RENEW)
        return hold_renew(core, ticket, pending);
    if (pending->command == COMMAND_CLAIM)
        return hold_claim(core, ticket, pending);
    require(pending->command == COMMAND_LOCK);
    return hold_lock(core, ticket, pending);
}

/* Serves a ticket that is held. False: nothing more can be done now. */
bool
hold_advance(struct core *core, struct ticket *ticket, struct pending *pending)
{
    if (core->now_us >= ticket->deadline_us) {
        hold_end(core, ticket);
        return true;
    }
    if (pending != NULL)
        return !pending_stands(pending) && !hold_serve(core, ticket, pending);
    if (session_gives_back(ticket->session)) {
        count(core->counters, COUNTER_releases_by_death);
        ticket->unclean = ticket->session == NULL ||
                          ticket->session->bye_counter != COUNTER_closed_quit;
        hold_given_up(core, ticket);
        ticket_leave(core, ticket);
    }
    return false;
}

/* Whether the one who asked is still there to be granted anything. */
static bool
ticket_wanted(const struct ticket *ticket)
{
    const struct pending *pending = ticket_asking(ticket);

    if (ticket->abandoned)
        return false;
    if (pending == NULL)
        return ticket->unattended;
    return pending->command == COMMAND_LOCK ||
           pending->command == COMMAND_CLAIM;
}

/*
 * The deadline that follows from an answer to a call sent at `sent_us`. What
 * was believed before, and told, stands where the lease was not prolonged: that
 * this answer was longer on its way makes it no sooner.
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
    return us_min(ticket->hard_end_us, deadline_us);
}

/* Whether nothing is left to be believed of an answer. */
bool
hold_is_over(const struct core *core, const struct op_result *result)
{
    uint64_t ttl_us = us_from_ms(result->ttl_ms);

    return core->now_us >=
           result->sent_us + ttl_us - us_min(ttl_us, drift_margin_us(ttl_us));
}

/* The belief that follows from that. More than the lease that was asked for is
 * not believed. */
static void
hold_believe(
    struct core *core, struct ticket *ticket, uint64_t sent_us, uint64_t ttl_ms)
{
    uint64_t lease_us = us_from_ms(core->settings.lease_ms);
    uint64_t ttl_us = us_min(us_from_ms(ttl_ms), lease_us);

    ticket_set_deadline(ticket, hold_deadline(core, ticket, sent_us, ttl_us));
    ticket->jeopardy_us = NEVER;
    ticket->renew_us = NEVER;
    if (ticket->hard_end_us == NEVER ||
        ticket->hard_end_us > ticket->deadline_us + drift_margin_us(lease_us)) {
        ticket->renew_us =
            sent_us + ttl_us / 3 - random_below(&core->random, ttl_us / 30 + 1);
        ticket->renew_us -= ticket->renew_us % (lease_us / RENEWALS_TOGETHER);
        if (!ticket->jeopardy)
            ticket->jeopardy_us = sent_us + ttl_us / 3 * 2;
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
}

/* Whether nobody here counts on it, nor has come back to claim it: its session
 * may have given it back at another broker. */
static bool
hold_is_unclaimed(const struct ticket *hold)
{
    return hold->unattended && list_empty(&hold->pendings);
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
        if (ticket->ask.permits_max == 0 && ticket->ask.shared &&
            holder->ask.shared)
            continue;
        if (rival == NULL || hold_yields(holder, rival))
            rival = holder;
    }
    if (ticket->ask.permits_max > 0 && permits <= ticket->ask.permits_max)
        return NULL;
    return rival;
}

/*
 * Redis has given the lock to a ticket while another one of ours is believed to
 * hold it (its data or its clock were changed, or the other one was claimed and
 * given back elsewhere): the larger fence is right, and whoever has lost is
 * told before the other one is. False: it is the ticket. Fences of a semaphore
 * stand beside each other, so there what Redis has said last is right. What has
 * lost may be found to stand in Redis, of a semaphore: it is left to its lease,
 * since whoever cannot be told believes in it. Where more have lost than can be
 * told in this step, it is the ticket, too.
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
    }
    return true;
}

/* Nobody is to have it: what is left of the lease is given back. */
static void
grant_refuse(struct core *core, struct ticket *ticket)
{
    struct pending *pending = ticket_asking(ticket);

    count(core->counters, COUNTER_grants_unwanted);
    if (pending != NULL && !ticket->abandoned) {
        bool claim = pending->command == COMMAND_CLAIM;
        if (!claim)
            count(core->counters, COUNTER_refused_indoubt);
        pending_error(core, pending, claim ? ERROR_LOST : ERROR_INDOUBT, NULL);
    }
    ticket_leave(core, ticket);
}

/* The lock is ours; whoever asked may have gone meanwhile. */
void
ticket_grant(struct core *core, struct ticket *ticket, uint64_t fence,
    uint64_t arrival, uint32_t place, uint64_t sent_us, uint64_t ttl_ms)
{
    ticket->fence = fence;
    ticket_stands(ticket, place, arrival);
    ticket->renew_op = HANDLE_NONE;
    ticket->heard_us = core->now_us;
    lock_see_fence(core, ticket->lock, fence);
    hold_set_end(ticket, sent_us, core->now_us);
    hold_believe(core, ticket, sent_us, ttl_ms);
    bool good = ticket_wanted(ticket) && ticket->deadline_us > core->now_us &&
                ticket_displaces(core, ticket);
    if (ticket->state == TICKET_LEAVING)
        return; /* it was for a request that has lost another part by that */
    if (!good || !ticket_wanted(ticket)) {
        grant_refuse(core, ticket);
        return;
    }
    count(core->counters, COUNTER_grants);
    struct pending *pending = ticket_asking(ticket);
    ticket_set_state(core, ticket, TICKET_HELD);
    ticket->jeopardy = false;
    ticket->given_up = false;
    ticket->doubt = false;
    ticket_arm(core, ticket);
    ticket_log(ticket, LOG_DEBUG, "lock_granted", NULL);
    deadlock_held(core, ticket->who);
    if (pending == NULL) {
        ticket->holds = 0; /* until its LOCK comes again */
    } else {
        ticket->holds = pending->command == COMMAND_CLAIM ? pending->holds : 1;
        answer_hold(core, pending, ticket);
    }
    ticket_advance(core, ticket);
}

/*
 * The end of lease= that follows from less than a lease: Redis has counted it
 * from an earlier question, whose answer was lost. As with a deadline, what was
 * told before is made no sooner by an answer that was longer on its way. Where
 * its end is further away, it only was not renewed, but made a shared one.
 */
static uint64_t
hold_end_in_record(
    const struct core *core, const struct ticket *ticket, const struct op *op)
{
    uint64_t ttl_us = us_from_ms(op->result.ttl_ms);
    uint64_t end_us = op->result.sent_us + ttl_us;

    if (op->hard_end_us == NEVER ||
        op->result.ttl_ms >= core->settings.lease_ms ||
        op->result.hold_ms > op->result.ttl_ms)
        return NEVER;
    if (end_us < ticket->deadline_us &&
        ticket->deadline_us <= core->now_us + ttl_us)
        end_us = ticket->deadline_us;
    return end_us;
}

/* How much of the lease was left. */
static void
hold_tally_margin(struct core *core, const struct ticket *ticket)
{
    uint64_t left_us = ticket->deadline_us > core->now_us
                           ? ticket->deadline_us - core->now_us
                           : 0;

    histogram_add(&space_of(core, ticket->lock)->margin, &histogram_shares,
        left_us / core->settings.lease_ms);
}

static void
hold_renewed(struct core *core, struct ticket *ticket, const struct op *op)
{
    struct pending *pending = ticket_asking(ticket);
    const struct op_result *result = &op->result;
    bool late = ticket->jeopardy;

    count(core->counters, COUNTER_renewals);
    if (pending == NULL && !op->sets_end) /* not what a client has asked for */
        hold_tally_margin(core, ticket);
    ticket->heard_us = core->now_us;
    ticket_stands(ticket, result->place, result->arrival);
    ticket->hard_end_us =
        us_min(op->sets_end ? op->hard_end_us : ticket->hard_end_us,
            hold_end_in_record(core, ticket, op));
    if (op->sets_end)
        ticket->stands_us =
            us_add(op->hard_end_us, core->now_us - result->sent_us);
    ticket->jeopardy = false;
    if (op->shares)
        ticket->sharing = false;
    if (op->moves) {
        hold_was_foreign(core, ticket, result);
        ticket->moving = false;
        if (result->ask.shared) /* another broker may have made it so */
            ticket->ask.shared = true;
    }
    hold_believe(core, ticket, result->sent_us, result->ttl_ms);
    if (late)
        hold_event(core, ticket, EVENT_SAFE);
    ticket_arm(core, ticket);
    if (pending != NULL && pending->command == COMMAND_RENEW)
        answer_ttl(core, pending, ticket);
    else if (pending != NULL && pending->command == COMMAND_LOCK)
        hold_relock(core, ticket, pending);
    else if (pending != NULL && pending->command == COMMAND_CLAIM)
        hold_claimed(core, ticket, pending);
    ticket_advance(core, ticket);
}

static void
hold_not_renewed(
    struct core *core, struct ticket *ticket, enum op_status status)
{
    struct pending *pending = ticket_asking(ticket);

    count(core->counters, COUNTER_renewals_failed);
    if (ticket->renew_us != NEVER)
        ticket->renew_us = core->now_us + core_jitter(core, RETRY_US);
    ticket_arm(core, ticket);
    if (pending != NULL)
        pending_error(core, pending,
            status == OP_UNSENT ? ERROR_UNAVAILABLE : ERROR_INDOUBT, NULL);
    ticket_advance(core, ticket);
}

void
hold_renew_done(struct core *core, struct ticket *ticket, const struct op *op)
{
    if (core->now_us >= ticket->deadline_us) {
        ticket_advance(core, ticket);
        return;
    }
    switch (op->result.status) {
    case OP_OK:
        hold_renewed(core, ticket, op);
        return;
    case OP_MISSING:
        if (op->sets_end) /* so it is put again */
            ticket->hard_end_us = op->hard_end_us;
        if (ticket_is_taken(ticket))
            hold_gone(core, ticket);
        else
            ticket_reclaim(core, ticket);
        return;
    case OP_GONE:
    case OP_WAITING:
    case OP_MOVED:
        hold_gone(core, ticket);
        return;
    case OP_BROKEN:
        hold_broken(core, ticket);
        return;
    case OP_BUSY:
    case OP_FULL:
    case OP_CONFLICT:
    case OP_UNSETTLED:
    case OP_UNSENT:
    case OP_UNKNOWN:
    case OP_REFUSED:
        hold_not_renewed(core, ticket, op->result.status);
        return;
    }
}

/* Its next renewal, be it the only one, is then, or sooner. */
void
ticket_renew_at(struct core *core, struct ticket *ticket, uint64_t at_us)
{
    require(ticket->state == TICKET_HELD);
    if (ticket->renew_us <= at_us ||
        !handle_equal(ticket->renew_op, HANDLE_NONE))
        return;
    ticket->renew_us = at_us;
    ticket_arm(core, ticket);
}

/* A hold of ours was taken away. Where that is not told, its renewal tells. */
void
ticket_broken(struct core *core, uint64_t request, uint64_t fence)
{
    struct ticket *ticket = slab_get(&core->tickets, handle_unpack(request));

    if (ticket != NULL && ticket->state == TICKET_HELD &&
        ticket->fence == fence)
        hold_broken(core, ticket);
}

void
hold_timer(struct core *core, struct ticket *ticket)
{
    if (core->now_us >= ticket->deadline_us) {
        ticket_advance(core, ticket);
        return;
    }
    if (core->now_us >= ticket->jeopardy_us) {
        ticket->jeopardy_us = NEVER;
        ticket->jeopardy = true;
        count(core->counters, COUNTER_jeopardies);
        hold_event(core, ticket, EVENT_JEOPARDY);
    }
    if (core->now_us >= ticket->renew_us &&
        handle_equal(ticket->renew_op, HANDLE_NONE)) {
        if (ticket_is_taken(ticket)) {
            hold_gone(core, ticket);
            return;
        }
        (void)ticket_send_renewal(
            core, ticket, ticket->hard_end_us, NEVER, false);
    }
    ticket_arm(core, ticket);
}

/*
 * Tickets: the life of one owner's standing with one lock. See the picture in
 * state.h. Every rule about when a hold may be believed in is here:
 *
 * - A deadline is the sending of the call that Redis answered, plus the lease
 *   that it said remained, less a margin for drift. It passes before the lease
 *   does, and LOST is sent then, before anybody else can be granted the lock.
 * - A renewal goes out at a third of the lease and is tried again until the
 *   deadline, whatever the errors. It never brings back what is gone.
 * - One question at a time: acquire and release do not overtake one another. A
 *   renewal may be under way beside them; its answer counts only where the hold
 *   that it was for still stands.
 * - An answer that was lost leaves doubt. It is resolved by asking again under
 *   the same ticket before the client is told anything.
 * - A grant is delivered only to a request that still wants it, else released.
 */
#include "daemon/core/state.h"

#include "daemon/base/assert.h"
#include "daemon/base/log.h"

#include <inttypes.h>

/* Failed renewals and releases are tried again after so long, at least. */
#define RETRY_US 100000

/* What two clocks may disagree on over a lease, as Redlock has it. */
static uint64_t
drift_margin_us(uint64_t lease_us)
{
    return lease_us / 100 + 2000;
}

static uint64_t
ticket_hash(const struct core *core, const struct session *session,
    const struct lock *lock, uint64_t owner_hash)
{
    const struct {
        struct handle session;
        struct handle lock;
        uint64_t owner_hash;
    } key = {slab_handle(&core->sessions, session),
        slab_handle(&core->locks, lock), owner_hash};

    return hash_bytes(&core->hash_key, &key, sizeof(key));
}

static uint64_t
owner_hash(struct text owner)
{
    return owner.len == 0 ? 0 : core_public_hash(owner.at, owner.len);
}

struct ticket *
ticket_find(const struct core *core, const struct session *session,
    const struct lock *lock, struct text owner)
{
    uint64_t hash = ticket_hash(core, session, lock, owner_hash(owner));

    for (struct table_node *node = table_first(&core->ticket_table, hash);
         node != NULL; node = table_next(node)) {
        struct ticket *ticket = container_of(node, struct ticket, table);
        if (ticket->session == session && ticket->lock == lock &&
            text_equal(ticket_owner(ticket), owner))
            return ticket;
    }
    return NULL;
}

/* IDLE; NULL where there is no room. The caller puts a request to it. */
struct ticket *
ticket_create(struct core *core, struct session *session, struct lock *lock,
    struct text owner)
{
    struct ticket *ticket = slab_alloc(&core->tickets);

    if (ticket == NULL)
        return NULL;
    require(owner.len <= PROTO_OWNER_MAX);
    ticket->state = TICKET_IDLE;
    wheel_node_init(&ticket->timer, TIMER_TICKET);
    list_init(&ticket->pendings);
    ticket->session = session;
    ticket->lock = lock;
    ticket->serial = ++core->serial;
    ticket->generation = 1;
    memcpy(ticket->session_id, session->id, sizeof(ticket->session_id));
    memcpy(ticket->owner, owner.at, owner.len);
    ticket->owner_len = (uint8_t)owner.len;
    ticket->owner_hash = owner_hash(owner);
    lock_ref(lock);
    list_push_back(&lock->tickets, &ticket->lock_link);
    list_push_back(&session->tickets, &ticket->session_link);
    session->ticket_count++;
    table_insert(&core->ticket_table, &ticket->table,
        ticket_hash(core, session, lock, ticket->owner_hash));
    return ticket;
}

/* Cuts the ticket from its session, which ends or has no more use for it. */
static void
ticket_detach(struct core *core, struct ticket *ticket)
{
    struct session *session = ticket->session;

    if (session == NULL)
        return;
    require(session->ticket_count > 0);
    table_remove(&core->ticket_table, &ticket->table);
    list_remove(&ticket->session_link);
    session->ticket_count--;
    session->held -= ticket->state == TICKET_HELD;
    session->waiting -= ticket->state == TICKET_WAITING;
    ticket->session = NULL;
    session_check_end(core, session);
}

static void
ticket_free(struct core *core, struct ticket *ticket)
{
    struct lock *lock = ticket->lock;

    require(ticket->state == TICKET_IDLE && list_empty(&ticket->pendings));
    ticket_detach(core, ticket);
    wheel_remove(&core->wheel, &ticket->timer);
    list_remove(&ticket->lock_link);
    slab_free(&core->tickets, ticket);
    lock_unref(core, lock);
}

struct text
ticket_owner(const struct ticket *ticket)
{
    return text_make(ticket->owner, ticket->owner_len);
}

struct text
ticket_note(const struct ticket *ticket)
{
    return text_make(ticket->note, ticket->note_len);
}

struct text
ticket_client(const struct ticket *ticket)
{
    return text_make(ticket->client, ticket->client_len);
}

/* What the client may count on with no further word from here. */
uint64_t
ticket_ttl_ms(const struct core *core, const struct ticket *ticket)
{
    uint64_t left_us = ticket->deadline_us > core->now_us
                           ? ticket->deadline_us - core->now_us
                           : 0;

    if (ticket->session != NULL)
        left_us = us_min(left_us, session_silence_us(core, ticket->session));
    return left_us / 1000;
}

static void
ticket_set_deadline(struct ticket *ticket, uint64_t deadline_us)
{
    ticket->deadline_us = deadline_us;
    if (ticket->session != NULL)
        ticket->session->least_us =
            us_min(ticket->session->least_us, deadline_us);
}

static struct pending *
ticket_pending(const struct ticket *ticket)
{
    if (list_empty(&ticket->pendings))
        return NULL;
    return container_of(ticket->pendings.next, struct pending, ticket_link);
}

/* The request that the ticket's own operation answers, if it is still there. */
static struct pending *
ticket_asking(const struct ticket *ticket)
{
    struct pending *pending = ticket_pending(ticket);

    return pending != NULL && pending->asked ? pending : NULL;
}

static void
ticket_set_state(
    struct core *core, struct ticket *ticket, enum ticket_state state)
{
    uint32_t held = (uint32_t)(state == TICKET_HELD) -
                    (uint32_t)(ticket->state == TICKET_HELD);
    uint32_t waiting = (uint32_t)(state == TICKET_WAITING) -
                       (uint32_t)(ticket->state == TICKET_WAITING);

    core->held += held;
    core->waiting += waiting;
    ticket->lock->waiting += waiting;
    if (ticket->session != NULL) {
        ticket->session->held += held;
        ticket->session->waiting += waiting;
    }
    if (state == TICKET_HELD)
        ticket->lock->holder = ticket;
    else if (ticket->lock->holder == ticket)
        ticket->lock->holder = NULL;
    ticket->state = state;
    wheel_remove(&core->wheel, &ticket->timer);
}

static void
ticket_arm(struct core *core, struct ticket *ticket)
{
    uint64_t due_us = NEVER;

    switch (ticket->state) {
    case TICKET_HELD:
        due_us = us_min(ticket->deadline_us, ticket->jeopardy_us);
        if (handle_equal(ticket->renew_op, HANDLE_NONE))
            due_us = us_min(due_us, ticket->renew_us);
        break;
    case TICKET_WAITING:
    case TICKET_LEAVING:
        due_us = ticket->refresh_us;
        break;
    case TICKET_IDLE:
    case TICKET_ASKING:
        break;
    }
    if (due_us == NEVER)
        wheel_remove(&core->wheel, &ticket->timer);
    else
        wheel_add(&core->wheel, &ticket->timer, due_us);
}

/* An operation on the ticket's record; NULL where there is no room. */
static struct op *
ticket_op(struct core *core, struct ticket *ticket, enum op_kind kind)
{
    struct handle handle = slab_handle(&core->tickets, ticket);
    struct op *op = op_create(core, kind, ticket->lock, handle);

    if (op == NULL)
        return NULL;
    op->generation = ticket->generation;
    memcpy(op->session, ticket->session_id, sizeof(op->session));
    memcpy(op->owner_hash, &ticket->owner_hash, sizeof(op->owner_hash));
    op->request = handle_pack(handle);
    op->place = ticket->place;
    op->arrival = ticket->arrival;
    op->fence = ticket->fence;
    return op;
}

/* How long the request being served may take where Redis cannot be asked. */
static uint64_t
pending_give_up_us(const struct core *core, const struct pending *pending)
{
    return us_add(pending->began_us,
        us_min(pending->wait_us, core->settings.patience_us));
}

static void
ticket_ask(struct core *core, struct ticket *ticket, struct pending *pending)
{
    if (ticket->used && !ticket->doubt)
        slab_renew_handle(&core->tickets, ticket);
    struct op *op = ticket_op(core, ticket, OP_ACQUIRE);
    if (op == NULL) {
        count(core->counters, COUNTER_limit_tickets);
        answer_limit(core, pending->session, pending->tag, "tickets");
        pending_free(core, pending);
        return;
    }
    op->arrival = 0;
    op->fence = 0;
    op->retry = ticket->doubt;
    op->no_queue = pending->wait_us == 0;
    op->hold_ms = pending->hold_ms;
    op->give_up_us = pending_give_up_us(core, pending);
    op->words[0] = ticket_owner(ticket);
    op->words[1] = ticket_client(ticket);
    op->words[2] = ticket_note(ticket);
    ticket->used = true;
    ticket->main_op = slab_handle(&core->ops, op);
    op_submit(core, op);
}

/* IDLE, with a LOCK to serve. */
static void
ticket_begin(struct core *core, struct ticket *ticket, struct pending *pending)
{
    require(ticket->state == TICKET_IDLE);
    if (core->stopping) {
        pending_error(core, pending, ERROR_DRAINING, NULL);
        return;
    }
    ticket->place = 0;
    ticket->arrival = 0;
    ticket->fence = 0;
    ticket->doubt = false;
    ticket->hinted = false;
    ticket->unheard = false;
    ticket->abandoned = false;
    ticket->lost = false;
    ticket->jeopardy = false;
    ticket->hold_ms = pending->hold_ms;
    memcpy(ticket->note, pending->note, pending->note_len);
    ticket->note_len = pending->note_len;
    memcpy(
        ticket->client, pending->session->client, pending->session->client_len);
    ticket->client_len = pending->session->client_len;
    pending->asked = true;
    /* No room for the question frees the request; the ticket stays IDLE. */
    ticket_ask(core, ticket, pending);
    if (!handle_equal(ticket->main_op, HANDLE_NONE))
        ticket_set_state(core, ticket, TICKET_ASKING);
}

static void
ticket_send_release(struct core *core, struct ticket *ticket)
{
    struct op *op = ticket_op(core, ticket, OP_RELEASE);

    ticket->refresh_us = NEVER;
    if (op == NULL) {
        ticket->refresh_us = core->now_us + RETRY_US;
        ticket_arm(core, ticket);
        return;
    }
    op->retry = ticket->doubt;
    /* It is sent again and again; between, who waits for it is looked at. */
    op->give_up_us = core->now_us + us_min(core->settings.patience_us,
                                        core->settings.command_timeout_us);
    ticket->main_op = slab_handle(&core->ops, op);
    op_submit(core, op);
    ticket_arm(core, ticket);
}

/* Strikes the ticket out of the record; nothing renews it from here on. */
static void
ticket_leave(struct core *core, struct ticket *ticket)
{
    require(handle_equal(ticket->main_op, HANDLE_NONE));
    /* What it asked for all of our waiters, somebody else must ask now. */
    if (ticket->state == TICKET_WAITING &&
        !handle_equal(ticket->renew_op, HANDLE_NONE))
        lock_ask_at(core, ticket->lock, core->now_us + RETRY_US);
    ticket_set_state(core, ticket, TICKET_LEAVING);
    ticket->renew_op = HANDLE_NONE;
    ticket->holds = 0;
    ticket->leave_until_us = core->now_us +
                             us_from_ms(core->settings.lease_ms) +
                             core->settings.command_timeout_us;
    ticket_send_release(core, ticket);
}

/* Nothing of it is in Redis any more. */
static void
ticket_rest(struct core *core, struct ticket *ticket)
{
    ticket_set_state(core, ticket, TICKET_IDLE);
    ticket->renew_op = HANDLE_NONE;
    ticket->holds = 0;
    ticket_advance(core, ticket);
}

static void
answer_hold(
    struct core *core, struct pending *pending, const struct ticket *ticket)
{
    struct reply reply = answer_begin(core, pending->tag, "OK");

    reply_pair_number(&reply, "fence", ticket->fence);
    reply_pair_number(&reply, "ttl_ms", ticket_ttl_ms(core, ticket));
    reply_pair_number(&reply, "count", ticket->holds);
    answer_end(core, pending->session, &reply);
    pending_free(core, pending);
}

static void
answer_count(struct core *core, struct pending *pending, uint32_t holds)
{
    struct reply reply = answer_begin(core, pending->tag, "OK");

    reply_pair_number(&reply, "count", holds);
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

/*
 * By the watchdog, or for a RENEW, which may take the place of one under way:
 * the earlier one may then run last, and must not undo it. False where there is
 * no room: the next one is tried soon.
 */
static bool
ticket_send_renewal(struct core *core, struct ticket *ticket,
    uint64_t hard_end_us, uint64_t give_up_us, bool sets_end)
{
    struct op *op = ticket_op(core, ticket, OP_RENEW);

    if (op == NULL) {
        ticket->renew_us = core->now_us + RETRY_US;
        return false;
    }
    op->hard_end_us = hard_end_us;
    op->sets_end = sets_end;
    op->give_up_us = us_min(give_up_us, ticket->deadline_us);
    ticket->renew_op = slab_handle(&core->ops, op);
    op_submit(core, op);
    return true;
}

/* A LOCK of the holder itself: one more, the same fence, no call. */
static void
hold_reenter(struct core *core, struct ticket *ticket, struct pending *pending)
{
    ticket->holds++;
    count(core->counters, COUNTER_reentries);
    answer_hold(core, pending, ticket);
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
    if (fence_is_stale(core, ticket, pending))
        return false;
    if (ticket->holds > 1) {
        answer_count(core, pending, --ticket->holds);
        return false;
    }
    pending->asked = true;
    ticket_leave(core, ticket);
    return true;
}

static bool
hold_renew(struct core *core, struct ticket *ticket, struct pending *pending)
{
    if (pending->asked)
        return true;
    if (fence_is_stale(core, ticket, pending))
        return false;
    if (ticket->hold_ms == 0) {
        pending_error(core, pending, ERROR_CONFLICT,
            "the broker renews this hold itself");
        return false;
    }
    uint64_t hold_us = us_from_ms(pending->hold_ms);
    uint64_t end_us = us_add(core->now_us, hold_us);
    if (!ticket_send_renewal(
            core, ticket, end_us, pending_give_up_us(core, pending), true)) {
        count(core->counters, COUNTER_limit_requests);
        answer_limit(core, pending->session, pending->tag, "requests");
        pending_free(core, pending);
        ticket_arm(core, ticket);
        return false;
    }
    pending->asked = true;
    /* A nearer end counts from now on, whatever becomes of the answer. */
    ticket->hard_end_us = us_min(ticket->hard_end_us, end_us);
    ticket_set_deadline(
        ticket, us_min(ticket->deadline_us,
                    end_us - us_min(hold_us, drift_margin_us(hold_us))));
    ticket_arm(core, ticket);
    return true;
}

/* Serves the first request of a hold. True where it must be waited for. */
static bool
hold_serve(struct core *core, struct ticket *ticket, struct pending *pending)
{
    if (pending->command == COMMAND_UNLOCK)
        return hold_unlock(core, ticket, pending);
    if (pending->command == COMMAND_RENEW)
        return hold_renew(core, ticket, pending);
    require(pending->command == COMMAND_LOCK);
    hold_reenter(core, ticket, pending);
    return false;
}

/* Refuses at once what wait=0 does not let stand in line behind a wait. */
static void
ticket_refuse_impatient(struct core *core, struct ticket *ticket)
{
    LIST_EACH_SAFE (link, &ticket->pendings) {
        struct pending *pending =
            container_of(link, struct pending, ticket_link);
        if (!pending->asked && pending->command == COMMAND_LOCK &&
            pending->wait_us == 0) {
            count(core->counters, COUNTER_refused_busy);
            pending_error(core, pending, ERROR_BUSY, NULL);
        }
    }
}

static void hold_end(struct core *core, struct ticket *ticket);

/* Serves a ticket that is held. False: nothing more can be done now. */
static bool
hold_advance(struct core *core, struct ticket *ticket, struct pending *pending)
{
    if (core->now_us >= ticket->deadline_us) {
        hold_end(core, ticket);
        return true;
    }
    if (pending != NULL)
        return !hold_serve(core, ticket, pending);
    if (ticket->session == NULL || ticket->session->state == SESSION_CLOSING) {
        count(core->counters, COUNTER_releases_by_death);
        ticket_leave(core, ticket);
    }
    return false;
}

/* Serves what can be served now. The ticket may be gone afterwards. */
void
ticket_advance(struct core *core, struct ticket *ticket)
{
    struct pending *pending;

    for (;;) {
        pending = ticket_pending(ticket);
        switch (ticket->state) {
        case TICKET_ASKING:
            return;
        case TICKET_WAITING:
            ticket_refuse_impatient(core, ticket);
            return;
        case TICKET_LEAVING:
            if (!ticket->lost || pending == NULL ||
                pending->command == COMMAND_LOCK)
                return;
            pending_error(core, pending, ERROR_LOST, NULL);
            break;
        case TICKET_IDLE:
            if (pending == NULL) {
                ticket_free(core, ticket);
                return;
            }
            if (pending->command == COMMAND_LOCK)
                ticket_begin(core, ticket, pending);
            else
                pending_error(core, pending,
                    ticket->lost ? ERROR_LOST : ERROR_NOTHELD, NULL);
            break;
        case TICKET_HELD:
            if (!hold_advance(core, ticket, pending))
                return;
            break;
        }
    }
}

/* Whether the one who asked is still there to be granted anything. */
static bool
ticket_wanted(const struct ticket *ticket)
{
    const struct pending *pending = ticket_asking(ticket);

    return !ticket->abandoned && pending != NULL &&
           pending->command == COMMAND_LOCK;
}

/*
 * The belief that follows from an answer to a call sent at `sent_us`. More than
 * the lease that was asked for is not believed.
 */
static void
hold_believe(
    struct core *core, struct ticket *ticket, uint64_t sent_us, uint64_t ttl_ms)
{
    uint64_t lease_us = us_from_ms(core->settings.lease_ms);
    uint64_t ttl_us = us_min(us_from_ms(ttl_ms), lease_us);

    ticket_set_deadline(ticket,
        us_min(ticket->hard_end_us,
            sent_us + ttl_us - us_min(ttl_us, drift_margin_us(ttl_us))));
    ticket->jeopardy_us = NEVER;
    ticket->renew_us = NEVER;
    if (ticket->hard_end_us == NEVER ||
        ticket->hard_end_us > ticket->deadline_us + drift_margin_us(lease_us)) {
        ticket->renew_us =
            sent_us + ttl_us / 3 - random_below(&core->random, ttl_us / 30 + 1);
        if (!ticket->jeopardy)
            ticket->jeopardy_us = sent_us + ttl_us / 3 * 2;
    }
}

/*
 * Sets the end of a lease= hold, counted from the sending of the grant's call.
 */
static void
hold_set_end(struct ticket *ticket, uint64_t sent_us)
{
    ticket->hard_end_us = ticket->hold_ms == 0
                              ? NEVER
                              : us_add(sent_us, us_from_ms(ticket->hold_ms));
}

static void hold_gone(struct core *core, struct ticket *ticket);

/*
 * Redis has given the lock to a ticket while another one of ours is believed to
 * hold it (its data or its clock were changed): the larger fence is right, and
 * whoever has lost is told before the other one is. False: it is the ticket.
 */
static bool
ticket_displaces(struct core *core, const struct ticket *ticket)
{
    struct ticket *holder = ticket->lock->holder;

    if (holder == NULL)
        return true;
    require(holder != ticket);
    if (holder->fence > ticket->fence)
        return false;
    hold_gone(core, holder);
    return true;
}

/* The lock is ours; whoever asked may have gone meanwhile. */
static void
ticket_grant(struct core *core, struct ticket *ticket, uint64_t fence,
    uint64_t arrival, uint32_t place, uint64_t sent_us, uint64_t ttl_ms)
{
    ticket->fence = fence;
    ticket->arrival = arrival;
    ticket->place = place;
    ticket->renew_op = HANDLE_NONE;
    lock_see_fence(core, ticket->lock, fence);
    hold_set_end(ticket, sent_us);
    hold_believe(core, ticket, sent_us, ttl_ms);
    if (!ticket_wanted(ticket) || ticket->deadline_us <= core->now_us ||
        !ticket_displaces(core, ticket)) {
        struct pending *pending = ticket_asking(ticket);
        count(core->counters, COUNTER_grants_unwanted);
        if (pending != NULL && !ticket->abandoned) {
            count(core->counters, COUNTER_refused_indoubt);
            pending_error(core, pending, ERROR_INDOUBT, NULL);
        }
        ticket_leave(core, ticket);
        return;
    }
    count(core->counters, COUNTER_grants);
    ticket_set_state(core, ticket, TICKET_HELD);
    ticket->holds = 1;
    ticket->granted_us = core->now_us;
    ticket->jeopardy = false;
    ticket->doubt = false;
    ticket_arm(core, ticket);
    answer_hold(core, ticket_asking(ticket), ticket);
    ticket_advance(core, ticket);
}

static void
ticket_queued(
    struct core *core, const struct pending *pending, uint32_t position)
{
    if (!pending->progress)
        return;
    struct reply reply = answer_begin(core, pending->tag, "QUEUED");
    reply_pair_number(&reply, "position", position);
    answer_end(core, pending->session, &reply);
}

/* Whether a wait may go on; else the request has been answered. */
static bool
ticket_may_wait(struct core *core, struct ticket *ticket)
{
    struct pending *pending = ticket_asking(ticket);

    if (pending == NULL || ticket->abandoned)
        return false;
    if (ticket->session->state == SESSION_CLOSING) {
        count(core->counters, COUNTER_waits_cancelled);
        pending_error(core, pending, ERROR_CANCELLED, NULL);
        return false;
    }
    if (core->stopping) {
        pending_error(core, pending, ERROR_DRAINING, NULL);
        return false;
    }
    if (pending->wait_us != NEVER &&
        core->now_us >= us_add(pending->began_us, pending->wait_us)) {
        count(core->counters, COUNTER_waits_timed_out);
        pending_error(core, pending, ERROR_TIMEOUT, NULL);
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
    bool first = ticket->state != TICKET_WAITING;

    ticket->arrival = result->arrival;
    ticket->place = result->place;
    ticket->fence = 0;
    ticket->heard_us = core->now_us;
    ticket->unheard = false;
    ticket->doubt = false;
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
        count(core->counters, COUNTER_waits_begun);
        ticket_queued(core, ticket_asking(ticket), result->ahead);
    }
    ticket_refuse_impatient(core, ticket);
    if (ticket->hinted) {
        ticket->hinted = false;
        ticket_refresh(core, ticket);
    }
    ticket_arm(core, ticket);
}

/* The question could not be answered; the request is, by what is known. */
static void
ticket_fail(struct core *core, struct ticket *ticket, enum error_code code)
{
    struct pending *pending = ticket_asking(ticket);

    if (pending != NULL && !ticket->abandoned) {
        if (code == ERROR_UNAVAILABLE)
            count(core->counters, COUNTER_refused_unavailable);
        if (code == ERROR_INDOUBT)
            count(core->counters, COUNTER_refused_indoubt);
        pending_error(core, pending, code, NULL);
    }
    if (ticket->doubt)
        ticket_leave(core, ticket);
    else
        ticket_rest(core, ticket);
}

static void
acquire_unknown(struct core *core, struct ticket *ticket)
{
    struct pending *pending = ticket_asking(ticket);

    count(core->counters, COUNTER_outcomes_unknown);
    ticket->doubt = true;
    if (ticket->abandoned || pending == NULL ||
        core->now_us >= pending_give_up_us(core, pending)) {
        ticket_fail(core, ticket, ERROR_INDOUBT);
        return;
    }
    ticket_ask(core, ticket, pending);
    if (handle_equal(ticket->main_op, HANDLE_NONE))
        ticket_leave(core, ticket);
}

static void
acquire_done(
    struct core *core, struct ticket *ticket, const struct op_result *result)
{
    struct pending *pending = ticket_asking(ticket);

    require(ticket->state == TICKET_ASKING);
    if (ticket->doubt && result->status <= OP_GONE)
        count(core->counters, COUNTER_outcomes_resolved);
    switch (result->status) {
    case OP_OK:
        if (!ticket->doubt)
            count(core->counters, COUNTER_grants_at_once);
        ticket_grant(core, ticket, result->fence, result->arrival,
            result->place, result->sent_us, result->ttl_ms);
        return;
    case OP_WAITING:
        ticket_waits(core, ticket, result);
        return;
    case OP_BUSY:
        count(core->counters, COUNTER_refused_busy);
        if (pending != NULL)
            pending_error(core, pending, ERROR_BUSY, NULL);
        ticket_rest(core, ticket);
        return;
    case OP_FULL:
        count(core->counters, COUNTER_limit_waiters);
        if (pending != NULL) {
            answer_limit(core, pending->session, pending->tag, "waiters");
            pending_free(core, pending);
        }
        ticket_rest(core, ticket);
        return;
    case OP_UNKNOWN:
        acquire_unknown(core, ticket);
        return;
    case OP_UNSENT:
        ticket_fail(
            core, ticket, ticket->doubt ? ERROR_INDOUBT : ERROR_UNAVAILABLE);
        return;
    case OP_GONE:
    case OP_REFUSED:
        /* A script that stopped half way leaves what it has written. */
        ticket->doubt = true;
        ticket_fail(core, ticket, ERROR_INTERNAL);
        return;
    }
}

/* Answers the UNLOCK, if one asked for this release. */
static void
release_answer(struct core *core, struct ticket *ticket, enum op_status status)
{
    struct pending *pending = ticket_asking(ticket);

    if (pending == NULL || pending->command != COMMAND_UNLOCK)
        return;
    if (status == OP_OK || (status == OP_GONE && ticket->doubt &&
                               core->now_us < ticket->deadline_us)) {
        /* Gone after a lost answer and before the deadline: it was us. */
        count(core->counters, COUNTER_releases);
        answer_count(core, pending, 0);
    } else if (status == OP_GONE) {
        count(core->counters, COUNTER_lost_gone);
        pending_error(core, pending, ERROR_LOST, NULL);
    } else if (status == OP_REFUSED) {
        pending_error(core, pending, ERROR_INTERNAL, NULL);
    } else if (core->now_us >= pending_give_up_us(core, pending)) {
        count(core->counters, COUNTER_refused_indoubt);
        pending_error(core, pending, ERROR_INDOUBT, NULL);
    }
}

/* The lease is over, and nobody knows whether the hold stood until then. */
static void
release_given_up(struct core *core, struct ticket *ticket)
{
    struct pending *pending = ticket_asking(ticket);

    if (pending == NULL || pending->command != COMMAND_UNLOCK)
        return;
    count(core->counters, COUNTER_refused_indoubt);
    pending_error(core, pending, ERROR_INDOUBT, NULL);
}

/* Redis cannot be asked: whose patience for that is over is told so. */
static void
ticket_refuse_late(struct core *core, struct ticket *ticket)
{
    LIST_EACH_SAFE (link, &ticket->pendings) {
        struct pending *pending =
            container_of(link, struct pending, ticket_link);
        bool lock = pending->command == COMMAND_LOCK;
        if (pending->asked || core->now_us < pending_give_up_us(core, pending))
            continue;
        count(core->counters,
            lock ? COUNTER_refused_unavailable : COUNTER_refused_indoubt);
        pending_error(
            core, pending, lock ? ERROR_UNAVAILABLE : ERROR_INDOUBT, NULL);
    }
}

static void
release_done(
    struct core *core, struct ticket *ticket, const struct op_result *result)
{
    require(ticket->state == TICKET_LEAVING);
    release_answer(core, ticket, result->status);
    if (result->status == OP_UNKNOWN) {
        count(core->counters, COUNTER_outcomes_unknown);
        ticket->doubt = true;
        lock_refresh_waiters(core, ticket->lock);
    } else if (result->status != OP_UNSENT) {
        if (ticket->doubt)
            count(core->counters, COUNTER_outcomes_resolved);
        ticket_rest(core, ticket);
        return;
    }
    if (core->now_us >= ticket->leave_until_us) {
        release_given_up(core, ticket);
        ticket_rest(core, ticket);
        return;
    }
    ticket_refuse_late(core, ticket);
    ticket->refresh_us = core->now_us + core_jitter(core, RETRY_US);
    ticket_arm(core, ticket);
    ticket_advance(core, ticket);
}

static const char *
lost_reason(struct core *core, const struct ticket *ticket)
{
    uint64_t lease_us = us_from_ms(core->settings.lease_ms);

    if (core->stopping && core->stop_us == 0) {
        count(core->counters, COUNTER_lost_drain);
        return "drain";
    }
    if (ticket->hard_end_us != NEVER &&
        ticket->hard_end_us <= core->now_us + 2 * drift_margin_us(lease_us)) {
        count(core->counters, COUNTER_lost_expired);
        return "expired";
    }
    count(core->counters, COUNTER_lost_backend);
    return "backend";
}

/* Tells the client, and the requests on the hold. */
static void
hold_lost(struct core *core, struct ticket *ticket, const char *reason)
{
    char name[2 * PROTO_NAME_MAX];
    struct text lock = text_make(ticket->lock->name, ticket->lock->name_len);

    log_write(LOG_INFO, "lost", "lock=%s fence=%" PRIu64 " reason=%s",
        log_quote(name, sizeof(name), lock), ticket->fence, reason);
    ticket->lost = true;
    if (ticket->session != NULL) {
        struct reply reply = answer_event(core, EVENT_LOST);
        reply_word(&reply, lock);
        reply_pair_number(&reply, "fence", ticket->fence);
        reply_pair(&reply, "reason", text_from(reason));
        if (ticket->owner_len > 0)
            reply_pair(&reply, "owner", ticket_owner(ticket));
        answer_end(core, ticket->session, &reply);
    }
    struct pending *pending = ticket_asking(ticket);
    if (pending != NULL)
        pending_error(core, pending, ERROR_LOST, NULL);
}

/* The deadline has come: nothing is granted or prolonged from here on. */
static void
hold_end(struct core *core, struct ticket *ticket)
{
    hold_lost(core, ticket, lost_reason(core, ticket));
    ticket_leave(core, ticket);
}

/* Redis says that there is no such hold. */
static void
hold_gone(struct core *core, struct ticket *ticket)
{
    count(core->counters, COUNTER_lost_gone);
    hold_lost(core, ticket, "gone");
    ticket_rest(core, ticket);
}

static void
hold_event(
    struct core *core, const struct ticket *ticket, enum event_code event)
{
    if (ticket->session == NULL)
        return;
    struct reply reply = answer_event(core, event);
    reply_word(&reply, text_make(ticket->lock->name, ticket->lock->name_len));
    reply_pair_number(&reply, "ttl_ms", ticket_ttl_ms(core, ticket));
    if (ticket->owner_len > 0)
        reply_pair(&reply, "owner", ticket_owner(ticket));
    answer_end(core, ticket->session, &reply);
}

static void
hold_renewed(struct core *core, struct ticket *ticket, const struct op *op)
{
    struct pending *pending = ticket_asking(ticket);
    const struct op_result *result = &op->result;
    bool late = ticket->jeopardy;

    count(core->counters, COUNTER_renewals);
    ticket->arrival = result->arrival;
    ticket->place = result->place;
    ticket->hard_end_us = op->hard_end_us;
    ticket->jeopardy = false;
    hold_believe(core, ticket, result->sent_us, result->ttl_ms);
    if (late)
        hold_event(core, ticket, EVENT_SAFE);
    ticket_arm(core, ticket);
    if (pending != NULL && pending->command == COMMAND_RENEW) {
        answer_ttl(core, pending, ticket);
        ticket_advance(core, ticket);
    }
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
    if (pending == NULL || pending->command != COMMAND_RENEW)
        return;
    pending_error(core, pending,
        status == OP_UNSENT ? ERROR_UNAVAILABLE : ERROR_INDOUBT, NULL);
    ticket_advance(core, ticket);
}

static void
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
    case OP_GONE:
    case OP_WAITING:
        hold_gone(core, ticket);
        return;
    case OP_BUSY:
    case OP_FULL:
    case OP_UNSENT:
    case OP_UNKNOWN:
    case OP_REFUSED:
        hold_not_renewed(core, ticket, op->result.status);
        return;
    }
}

/* Redis has not spoken of a waiting ticket for longer than it can stand. */
static void
wait_unheard(struct core *core, struct ticket *ticket)
{
    struct pending *pending = ticket_asking(ticket);
    uint64_t lease_us = us_from_ms(core->settings.lease_ms);

    ticket->unheard = true;
    if (core->now_us < ticket->heard_us + lease_us) {
        ticket->refresh_us = core->now_us + core_jitter(core, 2 * RETRY_US);
        ticket_arm(core, ticket);
        return;
    }
    if (pending != NULL) {
        count(core->counters, COUNTER_refused_unavailable);
        pending_error(core, pending, ERROR_UNAVAILABLE, NULL);
    }
    ticket_leave(core, ticket);
}

/* A waiting ticket was asked after: claimed, still waiting, or struck. */
static void
wait_refresh_done(
    struct core *core, struct ticket *ticket, const struct op_result *result)
{
    struct pending *pending = ticket_asking(ticket);

    switch (result->status) {
    case OP_OK:
        count(core->counters, COUNTER_grants_claimed);
        ticket_grant(core, ticket, result->fence, result->arrival,
            result->place, result->sent_us, result->ttl_ms);
        return;
    case OP_WAITING:
        ticket_waits(core, ticket, result);
        return;
    case OP_GONE:
        count(core->counters, COUNTER_waits_requeued);
        ticket_set_state(core, ticket, TICKET_IDLE);
        if (pending == NULL || !ticket_may_wait(core, ticket)) {
            ticket_advance(core, ticket);
            return;
        }
        pending->asked = false;
        ticket_advance(core, ticket);
        return;
    case OP_BUSY:
    case OP_FULL:
    case OP_UNSENT:
    case OP_UNKNOWN:
    case OP_REFUSED:
        wait_unheard(core, ticket);
        return;
    }
}

/* The answer to a ticket's operation; it may be gone, or have moved on. */
void
ticket_done(struct core *core, struct op *op)
{
    struct ticket *ticket = slab_get(&core->tickets, op->owner);
    struct handle handle = slab_handle(&core->ops, op);

    if (ticket == NULL)
        return;
    if (handle_equal(ticket->main_op, handle)) {
        ticket->main_op = HANDLE_NONE;
        if (op->kind == OP_ACQUIRE)
            acquire_done(core, ticket, &op->result);
        else
            release_done(core, ticket, &op->result);
        return;
    }
    if (!handle_equal(ticket->renew_op, handle))
        return;
    ticket->renew_op = HANDLE_NONE;
    if (ticket->state == TICKET_HELD)
        hold_renew_done(core, ticket, op);
    else if (ticket->state == TICKET_WAITING)
        wait_refresh_done(core, ticket, &op->result);
}

/* Asks Redis about a waiting ticket, unless that is under way. */
void
ticket_refresh(struct core *core, struct ticket *ticket)
{
    require(ticket->state == TICKET_WAITING);
    if (!handle_equal(ticket->renew_op, HANDLE_NONE))
        return;
    struct op *op = ticket_op(core, ticket, OP_RENEW);
    if (op == NULL) {
        ticket_refresh_at(core, ticket, core->now_us + RETRY_US);
        return;
    }
    ticket->refresh_us = NEVER;
    op->fence = 0;
    op->give_up_us = core->now_us + core->settings.patience_us;
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

/* A release of ours made a waiting ticket of ours the holder. */
void
ticket_granted_by_the_way(
    struct core *core, const struct op_grant *grant, uint64_t sent_us)
{
    struct ticket *ticket =
        slab_get(&core->tickets, handle_unpack(grant->request));

    if (ticket == NULL)
        return;
    if (ticket->state != TICKET_WAITING) {
        ticket->hinted = true;
        return;
    }
    count(core->counters, COUNTER_grants_handed_over);
    ticket_grant(core, ticket, grant->fence, grant->arrival, grant->place,
        sent_us, grant->ttl_ms);
}

/* Another broker's release made a ticket of ours the holder: claim it. */
void
ticket_hint(struct core *core, uint64_t request)
{
    struct ticket *ticket = slab_get(&core->tickets, handle_unpack(request));

    if (ticket == NULL)
        return;
    if (ticket->state != TICKET_WAITING ||
        !handle_equal(ticket->renew_op, HANDLE_NONE)) {
        ticket->hinted = true;
        return;
    }
    ticket_refresh(core, ticket);
}

static void
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
        handle_equal(ticket->renew_op, HANDLE_NONE))
        (void)ticket_send_renewal(
            core, ticket, ticket->hard_end_us, NEVER, false);
    ticket_arm(core, ticket);
}

void
ticket_timer(struct core *core, struct ticket *ticket)
{
    switch (ticket->state) {
    case TICKET_HELD:
        hold_timer(core, ticket);
        return;
    case TICKET_WAITING:
        ticket_refresh(core, ticket);
        return;
    case TICKET_LEAVING:
        if (handle_equal(ticket->main_op, HANDLE_NONE))
            ticket_send_release(core, ticket);
        return;
    case TICKET_IDLE:
    case TICKET_ASKING:
        return;
    }
}

/*
 * Ends a LOCK that has not been granted, with an error. What it may have in
 * Redis is struck out; what else is queued at the ticket goes on.
 */
void
ticket_cancel(struct core *core, struct ticket *ticket, struct pending *pending,
    enum error_code code, const char *why)
{
    bool serving = pending->asked;

    require(pending->ticket == ticket && pending->command == COMMAND_LOCK);
    pending_error(core, pending, code, why);
    if (!serving)
        return;
    if (ticket->state == TICKET_ASKING)
        ticket->abandoned = true;
    else if (ticket->state == TICKET_WAITING)
        ticket_leave(core, ticket);
}

/* The time of a LOCK's wait= has come. */
void
ticket_wait_over(struct core *core, struct pending *pending)
{
    struct ticket *ticket = pending->ticket;

    if (core->stopping) {
        ticket_cancel(core, ticket, pending, ERROR_DRAINING, NULL);
        return;
    }
    if (ticket->state == TICKET_WAITING && !ticket->unheard) {
        count(core->counters, COUNTER_waits_timed_out);
        ticket_cancel(core, ticket, pending, ERROR_TIMEOUT, NULL);
        return;
    }
    if (ticket->state == TICKET_ASKING && pending->asked)
        return; /* its answer is due within a command's time-out */
    count(core->counters, COUNTER_refused_unavailable);
    ticket_cancel(core, ticket, pending, ERROR_UNAVAILABLE, NULL);
}

/* The session sends no more: what waits ends, what nobody uses is released. */
void
ticket_session_closing(struct core *core, struct ticket *ticket)
{
    struct pending *pending = ticket_pending(ticket);

    if (ticket->state == TICKET_WAITING) {
        count(core->counters, COUNTER_waits_cancelled);
        ticket_cancel(core, ticket, pending, ERROR_CANCELLED, NULL);
    } else if (ticket->state == TICKET_HELD) {
        ticket_advance(core, ticket);
    }
}

/* The session is gone; its pending requests have been freed before. */
void
ticket_orphan(struct core *core, struct ticket *ticket)
{
    require(list_empty(&ticket->pendings));
    ticket_detach(core, ticket);
    switch (ticket->state) {
    case TICKET_HELD:
        count(core->counters, COUNTER_releases_by_death);
        ticket_leave(core, ticket);
        break;
    case TICKET_WAITING:
        ticket_leave(core, ticket);
        break;
    case TICKET_ASKING:
        ticket->abandoned = true;
        break;
    case TICKET_LEAVING:
        break;
    case TICKET_IDLE:
        ticket_free(core, ticket);
        break;
    }
}

/* The broker's grace is over: a hold ends now. */
void
ticket_stop(struct core *core, struct ticket *ticket)
{
    if (ticket->state != TICKET_HELD)
        return;
    ticket_set_deadline(ticket, core->now_us);
    ticket_arm(core, ticket);
}

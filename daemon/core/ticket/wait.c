/*
 * A ticket that is not granted yet: ASKING, when Redis has been asked and has
 * not answered, and WAITING, when it stands in the queue. A place in the queue
 * lasts as long as it is asked after. A wait ends by a grant, its wait=, CANCEL
 * or a deadlock.
 *
 * Here is what requests, the end of the session and the timer of the lock do to
 * such a ticket. question.c asks Redis, and acquire.c takes the answers.
 *
 * The timer of the lock is the backstop of hand-over. Only the first of our
 * waiters asks when the holder's lease may be over: a queue is never a herd.
 */
#include "daemon/core/ticket/states.h"

#include "daemon/core/model/hooks.h"
#include "daemon/core/model/lock.h"
#include "daemon/core/model/op_pool.h"
#include "daemon/core/model/request.h"
#include "daemon/core/model/session_table.h"
#include "daemon/core/model/ticket.h"
#include "daemon/core/ticket/tickets.h"
#include "daemon/op/op.h"

#include "daemon/base/assert.h"

void
ticket_refuse_impatient(struct core *core, struct ticket *ticket)
{
    LIST_EACH_SAFE (link, &ticket->requests) {
        struct request *request =
            container_of(link, struct request, ticket_link);
        if (!effects_spare(core->effects)) {
            ticket_stir(core, ticket);
            return;
        }
        if (request_stands(request) || request->command != COMMAND_LOCK)
            continue;
        if (request->state == REQUEST_QUEUED && request->wait_us == 0) {
            count(core->counters, COUNTER_refused_busy);
            request_refuse(core, request, ERROR_BUSY,
                ticket_expires(core, ticket)
                    ? "the lease of this owner's earlier hold lasts a little "
                      "longer for all others, and wait=0 was given"
                    : "an earlier LOCK of this owner waits for the lock, and "
                      "wait=0 was given");
        } else if (request->member == MEMBER_ASKS) {
            multilock_stir(core, request);
        }
    }
}

/*
 * Whether the known state of an unattended wait is this connection's. Redis is
 * asked first about an earlier connection's: the wait may have been granted and
 * given back since, here or at another broker.
 */
static bool
wait_is_ours(struct core *core, struct ticket *ticket)
{
    if (ticket_reclaims(core, ticket))
        return false; /* its answer comes here again */
    if (ticket->generation != ticket->session->generation) {
        ticket->generation = ticket->session->generation;
        ticket->moving = true;
        ticket->renew_op = HANDLE_NONE; /* its answer may be an old one */
        ticket_refresh(core, ticket);
    }
    return !ticket->moving;
}

/* A LOCK is put again for what stands in the queue for it; or for another kind
 * of lock, and then that is given up first. */
static void
wait_attend(struct core *core, struct ticket *ticket, struct request *request)
{
    require(ticket->state == TICKET_WAITING && ticket->fate == FATE_UNATTENDED);
    enum mode mode = ticket->upgrade ? MODE_EXCLUSIVE : ticket->ask.mode;
    if (mode != request->ask.mode || ticket->ask.part != request->ask.part ||
        ticket->ask.permits != request->ask.permits ||
        (ticket->ask.permits_max > 0) != (request->ask.permits_max > 0)) {
        ticket_leave(core, ticket);
        return;
    }
    request_move(request, REQUEST_ASKED);
    ticket->ask.hold_ms = request->ask.hold_ms;
    ticket->fate = FATE_WANTED;
    core->hooks->waits(core, ticket);
    ticket_refresh(core, ticket);
}

/* Whether a later connection asks about a hold that it has from another broker,
 * while what waits here stands in no record that would tell of it. */
static bool
wait_is_passed(const struct core *core, const struct ticket *ticket)
{
    const struct request *request =
        container_of(ticket->requests.next, struct request, ticket_link);

    return core->settings.queues_here && !ticket_reclaims(core, ticket) &&
           ticket->generation != ticket->session->generation &&
           request->command != COMMAND_LOCK;
}

static struct request *
ticket_first_lock(const struct ticket *ticket)
{
    LIST_EACH (link, &ticket->requests) {
        struct request *request =
            container_of(link, struct request, ticket_link);
        if (request->command == COMMAND_LOCK)
            return request;
    }
    return NULL;
}

bool
wait_closes(struct core *core, struct ticket *ticket)
{
    require(ticket->state == TICKET_WAITING && ticket->session != NULL);
    if (!session_closes(ticket->session))
        return false;
    if (ticket->fate == FATE_UNATTENDED && !session_keeps(ticket->session)) {
        ticket_leave(core, ticket);
        return true;
    }
    struct request *request = ticket_first_lock(ticket);
    if (request == NULL)
        return false;
    if (!ticket_cancel(core, ticket, request, ERROR_CANCELLED, NULL))
        return false;
    count(core->counters, COUNTER_waits_cancelled);
    return true;
}

/*
 * ASKING: likewise. Redis' answer ends a LOCK that Redis is being asked about.
 * A LOCK that waits to be asked about ends now: Redis cannot be asked, or the
 * broker is not settled with the node. That is known here, or by the answer
 * that comes at once then.
 */
void
asking_closes(struct core *core, struct ticket *ticket)
{
    struct request *request = ticket_asking(ticket);
    struct op *op = slab_get(&core->ops, ticket->main_op);

    require(ticket->state == TICKET_ASKING);
    if (!session_closes(ticket->session))
        return;
    if (request != NULL && request->command == COMMAND_LOCK &&
        ticket_is_patient(ticket) && ticket->fate != FATE_ABANDONED &&
        ticket_cancel(core, ticket, request, ERROR_CANCELLED, NULL))
        count(core->counters, COUNTER_waits_cancelled);
    if (op != NULL && op->kind == OP_ACQUIRE && !list_empty(&ticket->requests))
        op_hurry(core, op);
}

void
wait_advance(struct core *core, struct ticket *ticket)
{
    require(ticket->state == TICKET_WAITING);
    if (list_empty(&ticket->requests))
        return;
    if (wait_is_passed(core, ticket)) {
        ticket_leave(core, ticket);
        return;
    }
    if (!wait_is_ours(core, ticket))
        return;
    LIST_EACH_SAFE (link, &ticket->requests) {
        struct request *request =
            container_of(link, struct request, ticket_link);
        if (request_stands(request))
            break;
        if (request->command == COMMAND_CLAIM)
            request_refuse(core, request, ERROR_LOST, NULL);
        else if (request->command != COMMAND_LOCK)
            request_refuse(core, request, ERROR_NOTHELD, NULL);
        else if (request->wait_us > 0) {
            wait_attend(core, ticket, request);
            break;
        }
    }
    ticket_refuse_impatient(core, ticket);
}

void
request_end(struct core *core, struct request *request, enum error_code code,
    const char *why)
{
    require(request->state != REQUEST_ENDED && code < ERROR_COUNT);
    if (request->ticket->state != TICKET_ASKING || code == ERROR_DRAINING) {
        request_refuse(core, request, code, why);
        return;
    }
    request_move(request, REQUEST_ENDED);
    request->end_code = code;
    request->end_why = why;
    uint64_t over_us = us_add(request->began_us, request->wait_us);
    wheel_add(&core->wheel, &request->timer,
        us_min(over_us, core->now_us) + core->settings.command_timeout_us);
}

bool
ticket_cancel(struct core *core, struct ticket *ticket, struct request *request,
    enum error_code code, const char *why)
{
    struct op *op = slab_get(&core->ops, ticket->main_op);
    bool serving = request->state != REQUEST_QUEUED;
    bool stands =
        ticket->state == TICKET_ASKING || ticket->state == TICKET_WAITING;

    if (request->state == REQUEST_ENDED ||
        (serving && ticket->detached_us > 0 && ticket->state == TICKET_HELD))
        return false;
    if (request_stands(request))
        return multilock_cancel(core, request, code, why);
    require(request->ticket == ticket && request->command == COMMAND_LOCK);
    if (serving && stands &&
        (code == ERROR_DRAINING || session_closes(ticket->session)) &&
        session_keeps(ticket->session))
        ticket->fate = FATE_UNATTENDED;
    if (!serving || !stands || ticket->fate == FATE_UNATTENDED) {
        request_refuse(core, request, code, why);
        if (serving) /* requests behind it go on */
            ticket_stir(core, ticket);
        return true;
    }
    request_end(core, request, code, why);
    if (ticket->state == TICKET_WAITING) {
        ticket_leave(core, ticket);
        return true;
    }
    ticket->fate = FATE_ABANDONED;
    require(ticket->state == TICKET_ASKING);
    if (op != NULL)
        op_hurry(core, op);
    return true;
}

bool
multilock_cancel(struct core *core, const struct request *request,
    enum error_code code, const char *why)
{
    const struct multilock *multilock = multilock_of(core, request);

    require(multilock != NULL);
    struct request *member = multilock_member(core, multilock, multilock->got);
    require(member != NULL);
    return ticket_cancel(core, member->ticket, member, code, why);
}

/* The first of our tickets that stands in the queue. A ticket that another
 * broker has may be gone there: a question for it would look for nothing. */
static struct ticket *
lock_first_waiter(const struct lock *lock)
{
    LIST_EACH (link, &lock->tickets) {
        struct ticket *ticket = container_of(link, struct ticket, lock_link);
        if (ticket->state == TICKET_WAITING && !ticket_is_taken(ticket))
            return ticket;
    }
    return NULL;
}

static void
lock_refresh_waiters(struct core *core, const struct lock *lock)
{
    LIST_EACH_SAFE (link, &lock->tickets) {
        struct ticket *ticket = container_of(link, struct ticket, lock_link);
        if (ticket->state == TICKET_WAITING)
            ticket_refresh(core, ticket);
    }
}

void
lock_timer(struct core *core, struct lock *lock)
{
    struct ticket *ticket = lock_first_waiter(lock);

    require(!wheel_node_set(&lock->timer) && lock->refs > 0);
    if (lock->all_waiters)
        lock_refresh_waiters(core, lock);
    lock->all_waiters = false;
    if (ticket != NULL) {
        ticket_refresh(core, ticket);
    } else {
        struct op *op =
            op_create(core, OP_LOOK, lock, slab_handle(&core->locks, lock));
        if (op != NULL) {
            op->deadline_us = core->now_us + core->settings.redis_timeout_us;
            op_submit(core, op);
        }
    }
    if (lock->expiry_us > core->now_us)
        lock_ask_at(core, lock, lock->expiry_us);
    lock_unref(core, lock);
}

/*
 * Tickets: the life of one owner's standing with one lock, and what every part
 * of it uses. See the picture in ticket.h; wait.c, hold.c and leave.c have the
 * rules of the states, and advance.c the loop. Of all of them these hold:
 *
 * - One question at a time: acquire and release do not overtake one another. A
 *   renewal may be under way beside them; its answer counts only where the hold
 *   that it was for still stands.
 * - An answer that was lost leaves doubt. It is resolved by asking again under
 *   the same ticket before the client is told anything.
 */
#include "daemon/core/model/ticket.h"

#include "daemon/core/model/state.h"

#include "daemon/core/model/hooks.h"
#include "daemon/core/model/lock.h"
#include "daemon/core/model/op_pool.h"
#include "daemon/core/model/session_table.h"
#include "daemon/core/model/stats.h"
#include "daemon/core/model/times.h"
#include "daemon/core/model/upgrade.h"
#include "daemon/op/op.h"

#include "daemon/base/assert.h"

#include <inttypes.h>

#define BIT(state) (1U << (state))

static uint64_t
owner_hash(struct text owner)
{
    return owner.len == 0 ? 0 : core_public_hash(owner.at, owner.len);
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

/* An owner's hash, as the record has it for an upgrade. */
static uint64_t
upgrade_hash(uint64_t owner_hash)
{
    uint8_t bytes[sizeof(owner_hash)];

    memcpy(bytes, &owner_hash, sizeof(bytes));
    bytes[0] ^= OWNER_UPGRADE;
    memcpy(&owner_hash, bytes, sizeof(bytes));
    return owner_hash;
}

uint64_t
ticket_record_owner(const struct ticket *ticket)
{
    return ticket->upgrade ? upgrade_hash(ticket->owner_hash)
                           : ticket->owner_hash;
}

static struct ticket *
ticket_at(const struct core *core, const struct session *session,
    const struct lock *lock, struct text owner, bool upgrade)
{
    uint64_t whose = owner_hash(owner);
    uint64_t hash =
        ticket_hash(core, session, lock, upgrade ? upgrade_hash(whose) : whose);

    for (struct table_node *node = table_first(&core->ticket_table, hash);
         node != NULL; node = table_next(node)) {
        struct ticket *ticket = container_of(node, struct ticket, table);
        if (ticket->session == session && ticket->lock == lock &&
            ticket->upgrade == upgrade &&
            text_equal(ticket_owner(ticket), owner))
            return ticket;
    }
    return NULL;
}

struct ticket *
ticket_find(const struct core *core, const struct session *session,
    const struct lock *lock, struct text owner)
{
    return ticket_at(core, session, lock, owner, false);
}

struct ticket *
ticket_find_upgrade(const struct core *core, const struct session *session,
    const struct lock *lock, struct text owner)
{
    return core->upgrades > 0 ? ticket_at(core, session, lock, owner, true)
                              : NULL;
}

/* One more of the session, or one less; of its user likewise. */
static void
session_count_ticket(struct session *session, int change)
{
    require(change > 0 || session->ticket_count > 0);
    session->ticket_count += (uint32_t)change;
    if (session->user != NULL)
        session->user->tickets += (uint32_t)change;
}

/* Creates an IDLE ticket, which holds a reference to the lock. The caller must
 * put a request to it. NULL: there is no room. */
static struct ticket *
ticket_create(struct core *core, struct session *session, struct lock *lock,
    struct text owner, bool upgrade)
{
    struct ticket *ticket = slab_alloc(&core->tickets);

    if (ticket == NULL)
        return NULL;
    require(owner.len <= PROTO_OWNER_MAX);
    ticket->state = TICKET_IDLE;
    wheel_node_init(&ticket->timer, TIMER_TICKET);
    list_init(&ticket->requests);
    list_init(&ticket->holder_link);
    list_init(&ticket->stir_link);
    list_init(&ticket->age_link);
    list_init(&ticket->wait_link);
    ticket->session = session;
    ticket->lock = lock;
    ticket->serial = ++core->serial;
    ticket->generation = session->generation;
    memcpy(ticket->session_id, session->id, sizeof(ticket->session_id));
    memcpy(ticket->owner, owner.at, owner.len);
    ticket->owner_len = (uint8_t)owner.len;
    ticket->owner_hash = owner_hash(owner);
    ticket->upgrade = upgrade;
    core->upgrades += upgrade;
    lock_ref(lock);
    list_push_back(&lock->tickets, &ticket->lock_link);
    list_push_back(&session->tickets, &ticket->session_link);
    session_count_ticket(session, 1);
    owner_joined(core, ticket);
    table_insert(&core->ticket_table, &ticket->table,
        ticket_hash(core, session, lock, ticket_record_owner(ticket)));
    return ticket;
}

/* Whether the session's user may have no more of them. */
static bool
user_holds_enough(const struct core *core, const struct session *session)
{
    uint32_t max = core->settings.user_holds_max;

    return max > 0 && session->user != NULL && session->user->tickets >= max;
}

static struct ticket *
ticket_obtain_at(struct core *core, struct session *session, struct text name,
    struct text owner, bool upgrade, const char **limit)
{
    struct lock *lock = lock_obtain(core, name);
    struct ticket *ticket = NULL;

    if (lock != NULL)
        ticket = ticket_at(core, session, lock, owner, upgrade);
    if (ticket == NULL && session->ticket_count >= core->settings.holds_max) {
        count(core->counters, COUNTER_limit_holds);
        *limit = "holds";
    } else if (ticket == NULL && user_holds_enough(core, session)) {
        count(core->counters, COUNTER_limit_user_holds);
        *limit = "user_holds";
    } else if (ticket == NULL) {
        if (lock != NULL)
            ticket = ticket_create(core, session, lock, owner, upgrade);
        if (ticket == NULL) {
            count(core->counters, COUNTER_limit_tickets);
            *limit = "tickets";
        }
    }
    if (lock != NULL)
        lock_unref(core, lock);
    return ticket;
}

struct ticket *
ticket_obtain(struct core *core, struct session *session, struct text name,
    struct text owner, const char **limit)
{
    return ticket_obtain_at(core, session, name, owner, false, limit);
}

struct ticket *
ticket_obtain_upgrade(struct core *core, struct session *session,
    struct text name, struct text owner, const char **limit)
{
    return ticket_obtain_at(core, session, name, owner, true, limit);
}

void
ticket_detach(struct core *core, struct ticket *ticket)
{
    struct session *session = ticket->session;

    if (session == NULL)
        return;
    ticket->part = false; /* its session ends, and with it all of its tickets */
    table_remove(&core->ticket_table, &ticket->table);
    list_remove(&ticket->session_link);
    session_count_ticket(session, -1);
    owner_left(core, ticket);
    session->held -= ticket->state == TICKET_HELD;
    session->waiting -= ticket->state == TICKET_WAITING;
    ticket->session = NULL;
    session_check_end(core, session);
}

void
ticket_free(struct core *core, struct ticket *ticket)
{
    struct lock *lock = ticket->lock;

    require(ticket->state == TICKET_IDLE && list_empty(&ticket->requests));
    ticket_detach(core, ticket);
    top_wait_end(core, ticket);
    wheel_remove(&core->wheel, &ticket->timer);
    list_remove(&ticket->lock_link);
    list_remove(&ticket->stir_link);
    require(core->upgrades >= ticket->upgrade);
    core->upgrades -= ticket->upgrade;
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

void
ticket_log(const struct ticket *ticket, enum log_level level, const char *event,
    const char *reason)
{
    char session[SHORT_ID_BYTES + 1];
    const struct lock *lock = ticket->lock;

    if (!log_enabled(level))
        return;
    core_short_id(ticket->session_id, session);
    log_write(level, event,

        log_quoted("lock", text_make(lock->name, lock->name_len)),
        log_number("fence", ticket->fence),
        reason != NULL ? log_word("reason", reason) : LOG_NOTHING,
        log_word("session", session),
        log_quoted("client", ticket_client(ticket)),
        log_quoted("owner", ticket_owner(ticket)),
        log_quoted("note", ticket_note(ticket)));
}

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

/*
 * LOST comes at the deadline of the last renewal, which is less than a margin
 * of a lease before the end. Until then the clocks may drift for all that is
 * left.
 */
uint64_t
ticket_lease_ms(const struct core *core, const struct ticket *ticket)
{
    uint64_t lease_us = us_from_ms(core->settings.lease_ms);
    uint64_t end_us = ticket->hard_end_us;

    require(end_us != NEVER && end_us >= ticket->deadline_us);
    if (end_us <= ticket->deadline_us + drift_margin_us(lease_us)) {
        end_us = ticket->deadline_us;
    } else {
        uint64_t left_us = end_us - us_min(end_us, core->now_us);
        end_us -= drift_margin_us(left_us > lease_us ? left_us : lease_us);
    }
    return (end_us - us_min(end_us, core->now_us)) / 1000;
}

void
ticket_count_deadline(const struct ticket *ticket)
{
    struct session *session = ticket->session;

    if (session == NULL || ticket->fate == FATE_UNATTENDED)
        return;
    uint64_t *least_us =
        ticket->ask.hold_ms > 0 ? &session->leased_us : &session->least_us;
    *least_us = us_min(*least_us, ticket->deadline_us);
}

void
ticket_set_deadline(struct ticket *ticket, uint64_t deadline_us)
{
    ticket->deadline_us = deadline_us;
    ticket_count_deadline(ticket);
}

struct request *
ticket_request(const struct ticket *ticket)
{
    if (list_empty(&ticket->requests))
        return NULL;
    return container_of(ticket->requests.next, struct request, ticket_link);
}

struct request *
ticket_asking(const struct ticket *ticket)
{
    struct request *request = ticket_request(ticket);

    return request != NULL && request->state != REQUEST_QUEUED ? request : NULL;
}

bool
ticket_is_unserved(const struct ticket *ticket)
{
    const struct request *request = ticket_request(ticket);

    return request == NULL || request_stands(request);
}

uint32_t
ticket_known_holds(const struct ticket *ticket)
{
    const struct request *request = ticket_request(ticket);

    if (ticket->detached_us > 0 || mode_is_intent(ticket->ask.mode))
        return 0;
    return ticket->holds - (request != NULL && request->member == MEMBER_HAD);
}

bool
ticket_reclaims(const struct core *core, const struct ticket *ticket)
{
    const struct op *op = slab_get(&core->ops, ticket->renew_op);

    return op != NULL && op->kind == OP_RECLAIM;
}

/* The moves of the picture in ticket.h. The broker's stop forgets a ticket of
 * any state but LEAVING: it is ASKING once more, or at its end. */
static const uint8_t ticket_moves[] = {
    [TICKET_IDLE] = BIT(TICKET_ASKING) | BIT(TICKET_IDLE),
    [TICKET_ASKING] = BIT(TICKET_WAITING) | BIT(TICKET_HELD) |
                      BIT(TICKET_LEAVING) | BIT(TICKET_IDLE),
    [TICKET_WAITING] = BIT(TICKET_WAITING) | BIT(TICKET_HELD) |
                       BIT(TICKET_LEAVING) | BIT(TICKET_IDLE) |
                       BIT(TICKET_ASKING),
    [TICKET_HELD] = BIT(TICKET_LEAVING) | BIT(TICKET_IDLE) | BIT(TICKET_ASKING),
    [TICKET_LEAVING] = BIT(TICKET_IDLE),
};

void
ticket_check(const struct ticket *ticket)
{
    enum ticket_state state = ticket->state;
    bool held = state == TICKET_HELD;
    bool main_op = !handle_equal(ticket->main_op, HANDLE_NONE);
    bool renew_op = !handle_equal(ticket->renew_op, HANDLE_NONE);

    require(main_op == (state == TICKET_ASKING) || state == TICKET_LEAVING);
    if (renew_op)
        require(held || state == TICKET_WAITING);
    if (ticket->fate > FATE_UNATTENDED)
        require(state == TICKET_ASKING);
    if (state == TICKET_LEAVING)
        require(ticket->fate == FATE_WANTED);
    if (ticket->ending != ENDING_CLEAN || ticket->delay_ms > 0)
        require(state == TICKET_LEAVING || state == TICKET_IDLE);
    if (ticket->downgrade != DOWNGRADE_NONE)
        require(held && (ticket->ask.mode == MODE_SHARED ||
                            ticket->ask.permits_max > 0));
    if (ticket->jeopardy)
        require(held && ticket->jeopardy_us == NEVER);
    if (ticket->reborn || ticket->note_due || ticket->part || ticket->uprooted)
        require(held);
    if (ticket->unheard)
        require(state == TICKET_WAITING);
    require(held == !list_empty(&ticket->holder_link));
    if (ticket->kept_us > 0)
        require(held && ticket->holds == 0 && mode_is_intent(ticket->ask.mode));
    if (!held) {
        require(ticket->holds == 0);
        return;
    }
    require(!ticket->doubt); /* DESIGN.md D8.4 */
    require(ticket->fence > 0);
    require((ticket->holds > 0) != (ticket->fate == FATE_UNATTENDED));
    require(ticket->session != NULL);
    require(ticket->deadline_us <= ticket->hard_end_us); /* DESIGN.md D9.2 */
}

void
ticket_abandon(struct ticket *ticket)
{
    require(ticket->state == TICKET_ASKING);
    if (ticket->fate != FATE_FORGOTTEN)
        ticket->fate = FATE_ABANDONED;
}

void
ticket_set_state(
    struct core *core, struct ticket *ticket, enum ticket_state state)
{
    require((ticket_moves[ticket->state] & BIT(state)) != 0);
    uint32_t held = (uint32_t)(state == TICKET_HELD) -
                    (uint32_t)(ticket->state == TICKET_HELD);
    uint32_t waiting = (uint32_t)(state == TICKET_WAITING) -
                       (uint32_t)(ticket->state == TICKET_WAITING);

    if (ticket->state == TICKET_HELD && state != TICKET_HELD) {
        histogram_add(&namespace_of(core, ticket->lock)->hold, &histogram_waits,
            core->now_us - ticket->granted_us);
        core->hooks->ends(core, ticket);
    }
    core->held += held;
    core->waiting += waiting;
    ticket->lock->waiting += waiting;
    if (ticket->session != NULL) {
        ticket->session->held += held;
        ticket->session->waiting += waiting;
    }
    owner_state(ticket, state);
    top_state(core, ticket, state);
    list_remove(&ticket->holder_link);
    if (state == TICKET_HELD)
        list_push_back(&ticket->lock->holders, &ticket->holder_link);
    ticket->state = state;
    if (state == TICKET_LEAVING || state == TICKET_IDLE)
        ticket->fate = FATE_WANTED;
    if (state != TICKET_WAITING)
        ticket->unheard = false;
    if (state != TICKET_HELD) {
        if (!handle_equal(ticket->wanted, HANDLE_NONE))
            core->hooks->unwanted(core, ticket);
        ticket->downgrade = DOWNGRADE_NONE;
        ticket->jeopardy = false;
        ticket->reborn = false;
        ticket->note_due = false;
        ticket->uprooted = false;
        ticket->kept_us = 0;
        ticket->holds = 0;
    }
    wheel_remove(&core->wheel, &ticket->timer);
    ticket_check(ticket);
}

void
ticket_arm(struct core *core, struct ticket *ticket)
{
    uint64_t due_us = NEVER;

    switch (ticket->state) {
    case TICKET_HELD:
        due_us = us_min(ticket->deadline_us, ticket->jeopardy_us);
        if (handle_equal(ticket->renew_op, HANDLE_NONE))
            due_us = us_min(due_us, ticket->renew_us);
        if (ticket->kept_us > 0 && ticket_is_unserved(ticket))
            due_us = us_min(due_us, ticket->kept_us);
        break;
    case TICKET_WAITING:
        due_us = us_min(ticket->refresh_us, ticket->probe_us);
        break;
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

struct op *
ticket_op(struct core *core, struct ticket *ticket, enum op_kind kind)
{
    struct handle handle = slab_handle(&core->tickets, ticket);
    struct op *op = op_create(core, kind, ticket->lock, handle);

    if (op == NULL)
        return NULL;
    op->generation = ticket->generation;
    memcpy(op->session, ticket->session_id, sizeof(op->session));
    uint64_t owner = ticket_record_owner(ticket);
    memcpy(op->owner_hash, &owner, sizeof(op->owner_hash));
    op->request = handle_pack(handle);
    op->place = ticket->place;
    op->arrival = ticket->stray && kind != OP_RECLAIM ? 0 : ticket->arrival;
    op->fence = ticket->fence;
    return op;
}

void
ticket_stands(struct ticket *ticket, uint32_t place, uint64_t arrival)
{
    ticket->place = place;
    ticket->arrival = arrival;
    ticket->stray = false;
}

bool
ticket_is_patient(const struct ticket *ticket)
{
    return ticket->state == TICKET_WAITING ||
           (ticket->state == TICKET_ASKING && ticket->settles_us > 0);
}

void
ticket_stir(struct core *core, struct ticket *ticket)
{
    if (list_empty(&ticket->stir_link))
        list_push_back(&core->stirred, &ticket->stir_link);
}

void
ticket_stir_late(struct core *core, struct ticket *ticket)
{
    if (list_empty(&ticket->stir_link))
        list_push_back(&core->bulk, &ticket->stir_link);
}

/* Whether a later connection of its session has it at another broker. That one
 * puts it there again where it must; not this one, once it was given back. */
bool
ticket_is_taken(const struct ticket *ticket)
{
    return ticket->taken > ticket->generation;
}

void
ticket_rebind(struct core *core, struct ticket *ticket, struct session *session)
{
    struct session *old = ticket->session;
    bool held = ticket->state == TICKET_HELD;
    bool waiting = ticket->state == TICKET_WAITING;

    require(old != NULL && old != session);
    table_remove(&core->ticket_table, &ticket->table);
    list_remove(&ticket->session_link);
    session_count_ticket(old, -1);
    owner_left(core, ticket);
    old->held -= held;
    old->waiting -= waiting;
    ticket->session = session;
    list_push_back(&session->tickets, &ticket->session_link);
    session_count_ticket(session, 1);
    owner_joined(core, ticket);
    session->held += held;
    session->waiting += waiting;
    if (held)
        ticket_count_deadline(ticket);
    table_insert(&core->ticket_table, &ticket->table,
        ticket_hash(core, session, ticket->lock, ticket_record_owner(ticket)));
}

void
ticket_probe_at(struct core *core, struct ticket *ticket, uint64_t at_us)
{
    require(ticket->state == TICKET_WAITING);
    ticket->probe_us = at_us;
    ticket_arm(core, ticket);
}

uint64_t
request_deadline_us(const struct core *core, const struct request *request)
{
    if (request->command == COMMAND_LOCK && session_closes(request->session))
        return core->now_us;
    return us_add(request->began_us,
        us_min(request->wait_us, core->settings.redis_timeout_us));
}

void
ticket_words(const struct ticket *ticket, struct op *op)
{
    op->words[0] = ticket_owner(ticket);
    op->words[1] = ticket_client(ticket);
    op->words[2] = ticket_note(ticket);
}

void
ticket_set_note(struct ticket *ticket, struct text note)
{
    size_t len =
        note.len < sizeof(ticket->note) ? note.len : sizeof(ticket->note);

    if (len > 0)
        memcpy(ticket->note, note.at, len);
    ticket->note_len = (uint8_t)len;
}

void
ticket_set_client(struct ticket *ticket, const struct session *session)
{
    memcpy(ticket->client, session->client, session->client_len);
    ticket->client_len = session->client_len;
}

void
ticket_reset(struct ticket *ticket, const struct session *session)
{
    require(ticket->state == TICKET_IDLE);
    ticket_stands(ticket, 0, 0);
    ticket->fence = 0;
    ticket->doubt = false;
    ticket->hinted = false;
    ticket->ending = ENDING_CLEAN;
    ticket->delay_ms = 0;
    ticket->moving = false;
    ticket->called = false;
    ticket->fate = FATE_WANTED;
    ticket->foreign_us = 0;
    ticket->detached_us = 0;
    ticket->settles_us = 0;
    ticket->generation = session->generation;
}

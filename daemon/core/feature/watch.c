/*
 * WATCH: sessions that want to hear when a lock is held, and by whom. And holds
 * with wanted=1, whose clients want to hear when somebody waits for the lock.
 *
 * A script that changes a watched lock says so on one channel that all brokers
 * hear, however many locks are watched. That is only a hint. The broker
 * inspects the record, and tells the state that it finds. A lock has one
 * inspection at a time. So quick changes become one, and their order is kept. A
 * record forgets that it is watched after a lease; it is told again at a
 * quarter of it, and inspected then, in case a hint was lost.
 *
 * A client that does not read gets the latest state when it reads again: the
 * next events of its watches wait until its output is drained.
 */
#include "daemon/core/feature/watch.h"

#include "daemon/core/answer/answer.h"
#include "daemon/core/feature/members.h"
#include "daemon/core/model/lock.h"
#include "daemon/core/model/op_pool.h"
#include "daemon/core/model/part.h"
#include "daemon/core/model/request.h"
#include "daemon/core/model/session_table.h"
#include "daemon/core/model/ticket.h"
#include "daemon/core/model/times.h"
#include "daemon/core/model/upgrade.h"
#include "daemon/core/ticket/tickets.h"
#include "daemon/op/op.h"

#include "daemon/base/assert.h"

static struct watch *
watch_find(const struct session *session, const struct lock *lock)
{
    LIST_EACH (link, &lock->watches) {
        struct watch *watch = container_of(link, struct watch, lock_link);
        if (watch->session == session &&
            (watch->kind == WATCH_HOLDERS || watch->kind == WATCH_MEMBERS))
            return watch;
    }
    return NULL;
}

void
watch_free(struct core *core, struct watch *watch)
{
    struct lock *lock = watch->lock;

    require(watch->session->watch_count > 0 && lock->refs > 0);
    list_remove(&watch->lock_link);
    list_remove(&watch->session_link);
    list_remove(&watch->news_link);
    watch->session->watch_count--;
    require(lock->inspected > 0 || watch->kind == WATCH_MEMBERS);
    require(lock->members.watched > 0 || watch->kind != WATCH_MEMBERS);
    lock->waiters_watched -= watch->kind == WATCH_WAITERS;
    core->awaiting -= watch->kind == WATCH_AWAIT;
    lock->inspected -= watch->kind != WATCH_MEMBERS;
    lock->news.known &= lock->inspected > 0;
    lock->members.watched -= watch->kind == WATCH_MEMBERS;
    lock->members.known &= lock->members.watched > 0;
    slab_free(&core->watches, watch);
    if (list_empty(&lock->watches))
        wheel_remove(&core->wheel, &lock->watch_timer);
    lock_unref(core, lock);
}

/* The hold that the watch is of; NULL: its client does not know it yet. */
static const struct ticket *
watch_hold(const struct core *core, const struct watch *watch)
{
    const struct ticket *ticket = slab_get(&core->tickets, watch->ticket);

    require(ticket != NULL && ticket->state == TICKET_HELD);
    return ticket_known_holds(ticket) > 0 ? ticket : NULL;
}

/* The waiters for the hold, without its own upgrade. */
static uint32_t
watch_waiters(const struct core *core, const struct watch *watch)
{
    const struct ticket *hold = slab_get(&core->tickets, watch->ticket);
    uint32_t waiters = watch->lock->news.waiters;

    require(hold != NULL && hold->lock == watch->lock);
    const struct ticket *upgrade = ticket_find_upgrade(
        core, hold->session, hold->lock, ticket_owner(hold));
    bool own = upgrade != NULL && upgrade->state == TICKET_WAITING;
    return waiters - (own && waiters > 0);
}

static void
watch_tell_wanted(struct core *core, struct watch *watch)
{
    uint32_t waiters = watch_waiters(core, watch);
    const struct ticket *ticket = watch_hold(core, watch);
    struct reply reply = answer_event(core, EVENT_WANTED);

    require(ticket != NULL && watch->lock->waiters_watched > 0);
    reply_word(&reply, lock_name(watch->lock));
    reply_pair_number(&reply, "waiters", waiters);
    reply_pair_if(&reply, "owner", ticket_owner(ticket));
    answer_end(core, watch->session, &reply);
    watch->told_waiters = waiters;
}

static void
watch_tell(struct core *core, struct watch *watch)
{
    const struct lock_news *news = &watch->lock->news;
    struct text name = text_make(watch->lock->name, watch->lock->name_len);
    struct reply reply =
        answer_event(core, news->holders > 0 ? EVENT_HELD : EVENT_FREE);

    require(watch->kind == WATCH_HOLDERS && news->known);
    reply_word(&reply, name);
    if (news->holders > 0) {
        reply_pair_number(&reply, "fence", news->fence);
        if (news->holders > 1)
            reply_pair_number(&reply, "holders", news->holders);
        if (news->detached)
            reply_pair_number(&reply, "detached", 1);
        reply_pair_if(
            &reply, "name", text_make(news->client, news->client_len));
        reply_pair_if(&reply, "owner", text_make(news->owner, news->owner_len));
        reply_pair_if(&reply, "note", text_make(news->note, news->note_len));
    }
    answer_end(core, watch->session, &reply);
    watch->told = true;
    watch->told_fence = news->fence;
    watch->told_edition = news->edition;
    watch->told_holders = news->holders;
    watch->told_detached = news->detached;
}

/* Whether the client hears of waiters by the upgrade above the hold. */
static bool
watch_is_below(const struct core *core, const struct watch *watch)
{
    const struct ticket *hold = slab_get(&core->tickets, watch->ticket);

    require(watch->kind == WATCH_WAITERS && hold != NULL);
    const struct ticket *upgrade = ticket_find_upgrade(
        core, hold->session, hold->lock, ticket_owner(hold));
    return upgrade != NULL && upgrade != hold &&
           upgrade->state == TICKET_HELD && ticket_known_holds(upgrade) > 0 &&
           !handle_equal(upgrade->wanted, HANDLE_NONE);
}

/* Growth counts from the fewest that were seen since the last event. */
static bool
watch_grows(const struct core *core, struct watch *watch)
{
    uint32_t waiters = watch_waiters(core, watch);

    if (waiters > watch->told_waiters && !watch_is_below(core, watch))
        return watch_hold(core, watch) != NULL;
    watch->told_waiters = waiters;
    return false;
}

static bool
watch_has_news(const struct core *core, struct watch *watch)
{
    const struct lock_news *news = &watch->lock->news;
    bool held = news->holders > 0;

    require(watch->kind == WATCH_HOLDERS || watch->kind == WATCH_WAITERS);
    if (!news->known)
        return false;
    if (watch->kind == WATCH_WAITERS)
        return watch_grows(core, watch);
    return !watch->told || held != (watch->told_holders > 0) ||
           (held && (news->fence != watch->told_fence ||
                        news->detached != watch->told_detached ||
                        news->edition != watch->told_edition ||
                        news->holders != watch->told_holders));
}

void
watch_flush(struct core *core, struct session *session)
{
    uint32_t told = 0;
    struct list *link;

    require(session_connected(session));
    session->watch_waits = false;
    session->member_bytes = 0;
    while (told < WATCH_PART && (link = list_pop_front(&session->news))) {
        struct watch *watch = container_of(link, struct watch, news_link);
        if (watch->kind == WATCH_MEMBERS) {
            watch->asks = true;
            members_ask(core, watch->lock);
            told++;
            continue;
        }
        if (!watch_has_news(core, watch))
            continue;
        if (watch->kind == WATCH_WAITERS)
            watch_tell_wanted(core, watch);
        else
            watch_tell(core, watch);
        told++;
    }
    if (told == 0)
        return;
    session->watch_waits = true;
    effects_add(
        core->effects, EFFECT_MORE, slab_handle(&core->sessions, session));
}

static void
watch_wake(struct core *core, struct watch *watch)
{
    struct session *session = watch->session;

    require(!list_empty(&watch->lock_link) && session->watch_count > 0);
    if (!watch_has_news(core, watch))
        return;
    if (list_empty(&watch->news_link))
        list_push_back(&session->news, &watch->news_link);
    if (!session->watch_waits)
        watch_flush(core, session);
}

void
watch_inspect(struct core *core, struct lock *lock)
{
    struct op *op = NULL;

    if (lock->inspected == 0)
        return;
    if (!handle_equal(lock->watch_op, HANDLE_NONE)) {
        lock->watch_again = true;
        return;
    }
    op = op_create(core, OP_INSPECT, lock, HANDLE_NONE);
    if (op == NULL)
        return; /* the timer comes again */
    lock->watch_again = false;
    lock->watch_op = slab_handle(&core->ops, op);
    LIST_EACH (link, &lock->watches) {
        struct watch *watch = container_of(link, struct watch, lock_link);
        if (watch->state == WATCH_NEW && watch->kind != WATCH_MEMBERS)
            watch->state = WATCH_HEARS;
    }
    /* It is for the one that came last, at least. */
    const struct watch *last =
        container_of(lock->watches.prev, struct watch, lock_link);
    memcpy(op->session, last->session->id, sizeof(op->session));
    op->reader = READER_WATCH;
    op->limit = WATCH_TICKETS;
    op->deadline_us = core->now_us + core->settings.redis_timeout_us;
    op_submit(core, op);
}

void
watch_timer(struct core *core, struct lock *lock)
{
    require(!list_empty(&lock->watches));
    watch_look(core, lock);
}

void
watch_called(struct core *core, struct text key)
{
    const struct lock *lock = watch_lock_of(core, key);

    if (lock != NULL)
        lock_called(core, lock);
}

void
watch_hint(struct core *core, struct text key)
{
    struct lock *lock = watch_lock_of(core, key);

    if (lock != NULL)
        watch_inspect(core, lock);
}

void
watch_waits(struct core *core, struct text told)
{
    size_t id_bytes = strlen(core->settings.broker_id);

    if (told.len < id_bytes)
        return;
    bool own = memcmp(told.at, core->settings.broker_id, id_bytes) == 0;
    struct lock *lock =
        watch_lock_of(core, text_make(told.at + id_bytes, told.len - id_bytes));
    if (lock == NULL || lock->waiters_watched == 0)
        return;
    bool known = own ? lock->news.waiters > 0 /* which it counts itself */
                     : core->now_us < lock->news.elsewhere_us;
    if (!own)
        lock->news.elsewhere_us = core->now_us + WATCH_ELSEWHERE_US;
    if (!known)
        watch_inspect(core, lock);
}

void
watch_unheard(struct core *core)
{
    for (uint32_t i = 0; i < core->watches.touched; i++) {
        struct watch *watch = slab_at(&core->watches, i);
        if (watch == NULL)
            continue;
        members_lost(core, watch->lock);
        wheel_add(&core->wheel, &watch->lock->watch_timer,
            core->now_us + random_below(&core->random, 500000));
    }
}

void
watch_looked(struct core *core, struct lock *lock, enum op_status status)
{
    if (status == OP_OK)
        watch_inspect(core, lock);
    else if (!list_empty(&lock->watches))
        wheel_add(&core->wheel, &lock->watch_timer,
            core->now_us + core_jitter(core, WATCH_RETRY_US));
}

/* A word from Redis may be longer than the protocol allows. */
static uint8_t
news_word(char *out, size_t room, struct text word)
{
    size_t len = word.len < room ? word.len : room;

    memcpy(out, word.at, len);
    return (uint8_t)len;
}

static void
news_take(
    struct core *core, struct lock_news *news, const struct op_result *result)
{
    const struct lock_news was = *news;
    uint64_t barred_ms = us_max(result->delay_ms, result->ttl_ms);

    news->known = true;
    news->at_us = core->now_us;
    news->unsettled = result->ttl_ms > 0;
    news->barred_us = barred_ms > 0 ? core->now_us + us_from_ms(barred_ms) : 0;
    news->holders = result->holders;
    news->waiters = result->waiters + (core->now_us < news->elsewhere_us);
    news->fence = 0;
    for (uint32_t i = 0; i < result->ticket_count; i++) {
        const struct op_ticket *ticket = &result->tickets[i];
        if (!ticket->granted || ticket->fence < news->fence)
            continue;
        news->fence = ticket->fence;
        news->words_fence = ticket->fence;
        news->detached = ticket->detached;
        news->client_len =
            news_word(news->client, sizeof(news->client), ticket->client);
        news->owner_len =
            news_word(news->owner, sizeof(news->owner), ticket->owner);
        news->note_len =
            news_word(news->note, sizeof(news->note), ticket->note);
    }
    /* Redis forgets a record in the end, and with it the last grant. A record
     * that never had a ticket begins with a fence all the same. */
    if (result->arrival <= 1 && !core->settings.queues_here)
        news->last_fence = 0;
    news->last_fence = us_max(news->last_fence, news->fence);
    if (result->arrival > 1)
        news->last_fence = us_max(news->last_fence, result->fence);
    news->edition += !text_equal(text_make(was.note, was.note_len),
        text_make(news->note, news->note_len));
}

void
watch_inspected(struct core *core, struct op *op)
{
    struct lock *lock = slab_get(&core->locks, op->lock);
    enum op_status status = op->result.status;
    struct watch *awaits = NULL;

    require(op->kind == OP_INSPECT && op->reader == READER_WATCH);
    require(lock != NULL);
    if (!handle_equal(lock->watch_op, slab_handle(&core->ops, op)))
        return;
    lock->watch_op = HANDLE_NONE;
    if (lock->inspected == 0)
        return;
    if (status != OP_OK && status != OP_GONE) {
        watch_looked(core, lock, status);
        return;
    }
    news_take(core, &lock->news, &op->result);
    LIST_EACH (link, &lock->watches) {
        struct watch *watch = container_of(link, struct watch, lock_link);
        if (watch->state == WATCH_HEARS)
            watch->state = watch->kind == WATCH_AWAIT
                               ? watch->await->hears(core, watch)
                               : WATCH_DUE;
        if (watch->kind == WATCH_AWAIT && watch->state != WATCH_DUE)
            awaits = watch;
    }
    if (list_empty(&lock->tell_link))
        list_push_back(&core->telling, &lock->tell_link);
    if (lock->watch_again)
        watch_inspect(core, lock);
    else if (awaits != NULL)
        awaits->await->again(core, awaits, &op->result);
}

/* False: there is no room for all who watch the lock. */
static bool
watch_tell_lock(struct core *core, const struct lock *lock)
{
    LIST_EACH_SAFE (link, &lock->watches) {
        struct watch *watch = container_of(link, struct watch, lock_link);
        if (watch->state != WATCH_DUE)
            continue;
        if (!effects_room(core->effects))
            return false;
        if (watch->kind == WATCH_AWAIT) {
            watch->await->tell(core, watch);
            continue;
        }
        watch->state = WATCH_HEARS;
        watch_answer(core, watch);
        watch_wake(core, watch);
    }
    return true;
}

void
watch_tell_all(struct core *core)
{
    while (!list_empty(&core->telling)) {
        struct lock *lock =
            container_of(core->telling.next, struct lock, tell_link);
        lock_ref(lock);
        bool all = watch_tell_lock(core, lock);
        if (all)
            list_remove(&lock->tell_link);
        lock_unref(core, lock);
        if (!all)
            return;
    }
}

void
watch_give_up(struct core *core, struct request *request)
{
    struct watch *watch = slab_get(&core->watches, request->watch);

    require(request->command == COMMAND_WATCH);
    count(core->counters, COUNTER_refused_unavailable);
    request_refuse(core, request, ERROR_UNAVAILABLE, NULL);
    if (watch != NULL)
        watch_free(core, watch);
}

struct watch *
watch_create(struct core *core, struct session *session, struct lock *lock,
    enum watch_kind kind)
{
    struct watch *watch = slab_alloc(&core->watches);

    require(watch != NULL && lock->refs > 0);
    watch->session = session;
    watch->lock = lock;
    watch->kind = kind;
    list_init(&watch->news_link);
    list_push_back(&session->watches, &watch->session_link);
    list_push_back(&lock->watches, &watch->lock_link);
    session->watch_count++;
    core->awaiting += kind == WATCH_AWAIT;
    watch->asks = kind == WATCH_MEMBERS;
    lock->members.watched += kind == WATCH_MEMBERS;
    lock->inspected += kind != WATCH_MEMBERS;
    return watch;
}

void
watch_wanted(struct core *core, struct ticket *ticket)
{
    struct watch *watch = slab_get(&core->watches, ticket->wanted);

    require(ticket->state == TICKET_HELD);
    if (watch == NULL) {
        lock_ref(ticket->lock);
        watch =
            watch_create(core, ticket->session, ticket->lock, WATCH_WAITERS);
        watch->ticket = slab_handle(&core->tickets, ticket);
        watch->lock->waiters_watched++;
        ticket->wanted = slab_handle(&core->watches, watch);
    }
    require(watch->kind == WATCH_WAITERS && watch->session == ticket->session);
    watch->told_waiters = 0;
    watch_look(core, ticket->lock);
}

void
watch_unwanted(struct core *core, struct ticket *ticket)
{
    struct watch *watch = slab_get(&core->watches, ticket->wanted);

    ticket->wanted = HANDLE_NONE;
    if (watch != NULL) /* or its session's connection has ended */
        watch_free(core, watch);
}

struct watch *
watch_of_request(struct core *core, struct request *request, struct text name,
    enum watch_kind kind)
{
    struct session *session = request->session;
    struct lock *lock = lock_obtain(core, name);

    /* The rest of the slab is for the holds. */
    if (lock == NULL || session->watch_count >= core->settings.holds_max ||
        core->watches.used >= core->settings.tickets_max) {
        count(core->counters, COUNTER_limit_watches);
        request_limit(core, request, "watches");
        if (lock != NULL)
            lock_unref(core, lock);
        return NULL;
    }
    if (kind != WATCH_AWAIT && watch_find(session, lock) != NULL) {
        lock_unref(core, lock);
        request_refuse(
            core, request, ERROR_CONFLICT, "this session watches it already");
        return NULL;
    }
    struct watch *watch = watch_create(core, session, lock, kind);
    watch->request = slab_handle(&core->requests, request);
    request->watch = slab_handle(&core->watches, watch);
    return watch;
}

void
watch_begin(
    struct core *core, struct request *request, const struct request_line *line)
{
    bool members = request_value(line, REQUEST_KEY_MEMBERS, 0) != 0;

    require(request->command == COMMAND_WATCH);
    if (members && core->settings.no_semaphores) {
        request_refuse(core, request, ERROR_BADREQ,
            "members=1 is not supported with redis.topology quorum");
        return;
    }
    struct watch *watch = watch_of_request(
        core, request, line->argument, members ? WATCH_MEMBERS : WATCH_HOLDERS);
    if (watch == NULL)
        return;
    wheel_add(&core->wheel, &request->timer,
        core->now_us + core->settings.redis_timeout_us);
    watch_look(core, watch->lock);
    require(wheel_node_set(&watch->lock->watch_timer));
}

bool
watch_end(struct core *core, struct session *session, struct text name)
{
    struct lock *lock = lock_find(core, name);
    struct watch *watch = lock == NULL ? NULL : watch_find(session, lock);

    if (watch == NULL)
        return false;
    struct request *request = slab_get(&core->requests, watch->request);
    if (request != NULL)
        request_refuse(core, request, ERROR_CANCELLED, NULL);
    watch_free(core, watch);
    return true;
}

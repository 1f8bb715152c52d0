/*
 * AWAIT: requests that end when nobody holds a lock, and take nothing.
 *
 * Each is a watch of the lock. So all AWAITs of a broker for one lock share the
 * inspections, and one change costs one inspection. An AWAIT begins with an
 * inspection that was sent after it, unless the lock is known to be held. Only
 * if the lock is held the record is to tell of changes. watch.c looks again
 * after lost hints.
 *
 * A lock is free if its record shows no holder, its lock-delay is over, and no
 * earlier holder may still report after a failover.
 */
#include "daemon/core/feature/await.h"

#include "daemon/core/answer/answer.h"
#include "daemon/core/feature/watch.h"
#include "daemon/core/model/request.h"
#include "daemon/core/model/session_table.h"
#include "daemon/core/ticket/tickets.h"
#include "daemon/op/op.h"

#include "daemon/base/assert.h"

/* The next inspection comes so much after the end of a lease or a delay. */
#define AFTER_US 50000

static bool
lock_is_free(const struct core *core, const struct lock *lock)
{
    return lock->news.holders == 0 && lock->news.barred_us <= core->now_us;
}

/* Redis is waited for until then: as with LOCK, redis.patience without any
 * answer, and a lease or that after the last answer. */
static uint64_t
await_patience_us(const struct core *core, const struct request *request,
    const struct watch *watch)
{
    uint64_t patience_us = core->settings.redis_timeout_us;

    require(watch->kind == WATCH_AWAIT && watch->lock != NULL);
    if (!watch->told)
        return request->began_us + patience_us;
    return us_max(request->began_us, watch->lock->news.at_us) +
           us_max(patience_us, us_from_ms(core->settings.lease_ms));
}

/* The end of wait=. The first answer may take a command time-out longer. */
static uint64_t
await_over_us(const struct core *core, const struct request *request,
    const struct watch *watch)
{
    uint64_t over_us = us_add(request->began_us, request->wait_us);

    return watch->told ? over_us
                       : us_add(over_us, core->settings.command_timeout_us);
}

static void
await_arm(struct core *core, struct request *request, const struct watch *watch)
{
    require(request->command == COMMAND_AWAIT);
    wheel_add(&core->wheel, &request->timer,
        us_min(await_over_us(core, request, watch),
            await_patience_us(core, request, watch)));
}

static enum watch_state
await_hears(struct core *core, struct watch *watch)
{
    struct request *request = slab_get(&core->requests, watch->request);
    bool first = !watch->told;

    require(watch->kind == WATCH_AWAIT);
    watch->told = true;
    watch->told_holders = !lock_is_free(core, watch->lock);
    if (request == NULL || request->wait_us == 0 || watch->told_holders == 0 ||
        session_closes(request->session))
        return WATCH_DUE;
    if (first)
        await_arm(core, request, watch);
    return WATCH_HEARS;
}

static void
await_again(
    struct core *core, struct watch *watch, const struct op_result *result)
{
    struct lock *lock = watch->lock;
    uint64_t due_us = lock->news.barred_us;

    require(watch->kind == WATCH_AWAIT && watch->state != WATCH_DUE);
    if (lock_is_free(core, lock))
        return;
    if (!wheel_node_set(&lock->watch_timer)) {
        watch_look(core, lock);
        return;
    }
    /* A holder whose broker is gone ends with its lease, without a hint. */
    for (uint32_t i = 0; i < result->ticket_count; i++)
        if (result->tickets[i].granted)
            due_us = us_max(
                due_us, core->now_us + us_from_ms(result->tickets[i].ttl_ms));
    due_us = due_us > core->now_us ? due_us + AFTER_US
                                   : core->now_us + WATCH_RETRY_US;
    if (due_us < lock->watch_timer.due_us)
        wheel_add(&core->wheel, &lock->watch_timer, due_us);
}

static void
await_refuse(
    struct core *core, struct request *request, const struct watch *watch)
{
    const struct lock_news *news = &watch->lock->news;
    uint64_t barred_us =
        news->barred_us - us_min(news->barred_us, core->now_us);

    require(watch->state != WATCH_DUE || watch->told_holders > 0);
    if (session_closes(request->session) && request->wait_us > 0) {
        request_refuse(core, request, ERROR_CANCELLED, NULL);
    } else if (!watch->told) {
        count(core->counters, COUNTER_refused_unavailable);
        request_refuse(core, request, ERROR_UNAVAILABLE, NULL);
    } else if (news->holders == 0 && barred_us > 0 && news->unsettled) {
        request_unavailable(core, request, barred_us);
    } else if (request->wait_us > 0) {
        request_refuse(core, request, ERROR_TIMEOUT, NULL);
    } else {
        count(core->counters, COUNTER_refused_busy);
        request_busy(core, request,
            &(struct op_result){
                .delay_ms = news->holders == 0 ? barred_us / 1000 + 1 : 0});
    }
}

static void
await_tell(struct core *core, struct watch *watch)
{
    struct request *request = slab_get(&core->requests, watch->request);
    const struct lock_news *news = &watch->lock->news;

    require(watch->state == WATCH_DUE);
    if (request != NULL && watch->told_holders > 0) {
        await_refuse(core, request, watch);
    } else if (request != NULL) {
        struct reply reply = answer_begin(core, request->tag, "OK");
        if (news->last_fence > 0)
            reply_pair_number(&reply, "fence", news->last_fence);
        if (news->words_fence == news->last_fence)
            reply_pair_if(
                &reply, "note", text_make(news->note, news->note_len));
        answer_end(core, request->session, &reply);
        count(core->counters, COUNTER_awaits_woken);
        request_free(core, request);
    }
    watch_free(core, watch);
}

static const struct await_calls await_calls = {
    .hears = await_hears,
    .again = await_again,
    .tell = await_tell,
};

void
await_begin(
    struct core *core, struct request *request, const struct request_line *line)
{
    struct watch *watch =
        watch_of_request(core, request, line->argument, WATCH_AWAIT);

    if (watch == NULL)
        return;
    struct lock *lock = watch->lock;
    watch->await = &await_calls;
    watch->told = request->wait_us > 0 && lock->news.known &&
                  lock->news.holders > 0 && wheel_node_set(&lock->watch_timer);
    await_arm(core, request, watch);
    if (!watch->told || !handle_equal(lock->watch_op, HANDLE_NONE))
        watch_inspect(core, lock);
}

void
await_end(struct core *core, struct watch *watch, enum error_code code)
{
    struct request *request = slab_get(&core->requests, watch->request);

    require(watch->kind == WATCH_AWAIT);
    if (request != NULL)
        request_refuse(core, request, code, NULL);
    watch_free(core, watch);
}

void
await_cancel(struct core *core, struct request *request)
{
    await_end(core, slab_get(&core->watches, request->watch), ERROR_CANCELLED);
}

void
await_timer(struct core *core, struct request *request)
{
    struct watch *watch = slab_get(&core->watches, request->watch);

    require(request->command == COMMAND_AWAIT && watch != NULL);
    /* The first answer of Redis comes yet. */
    if (session_closes(request->session) && watch->told) {
        await_cancel(core, request);
        return;
    }
    if (core->stopping) {
        await_end(core, watch, ERROR_DRAINING);
        return;
    }
    if (watch->state == WATCH_DUE) {
        await_tell(core, watch);
        return;
    }
    if (core->now_us < await_over_us(core, request, watch) &&
        core->now_us < await_patience_us(core, request, watch)) {
        await_arm(core, request, watch);
        return;
    }
    if (core->now_us < await_over_us(core, request, watch))
        watch->told = false; /* Redis has been silent for too long */
    await_refuse(core, request, watch);
    watch_free(core, watch);
}

/*
 * Looks at watched records: each tells Redis that the lock is watched, and asks
 * for a page of members where a watch wants one. Also what the kinds of watches
 * have in common.
 */
#include "daemon/core/feature/watch.h"

#include "daemon/core/answer/answer.h"
#include "daemon/core/model/op_pool.h"
#include "daemon/core/model/request.h"
#include "daemon/core/model/times.h"
#include "daemon/op/op.h"

#include "daemon/base/assert.h"

uint64_t
members_after(const struct lock *lock)
{
    LIST_EACH (link, &lock->watches) {
        const struct watch *watch = container_of(link, struct watch, lock_link);
        if (watch->asks)
            return watch->shown;
    }
    return WATCH_SHOWN_ALL;
}

void
watch_look_later(struct core *core, struct lock *lock)
{
    wheel_add(&core->wheel, &lock->watch_timer,
        core->now_us +
            core_jitter(core, us_from_ms(core->settings.lease_ms) / 4));
}

void
watch_look(struct core *core, struct lock *lock)
{
    struct op *op =
        op_create(core, OP_LOOK, lock, slab_handle(&core->locks, lock));

    require(!list_empty(&lock->watches));
    require(lock->inspected > 0 || lock->members.watched > 0);
    watch_look_later(core, lock);
    if (op == NULL)
        return;
    op->watch = true;
    op->waits = lock->waiters_watched > 0;
    op->members = lock->members.watched > 0;
    op->arrival = members_after(lock);
    lock->members.looks += op->members;
    op->deadline_us = core->now_us + core->settings.redis_timeout_us;
    op_submit(core, op);
}

void
members_ask(struct core *core, struct lock *lock)
{
    require(lock->members.watched > 0);
    lock->members.again = lock->members.looks > 0;
    if (!lock->members.again)
        watch_look(core, lock);
}

struct lock *
watch_lock_of(const struct core *core, struct text key)
{
    size_t prefix = strlen(core->settings.key_prefix) + 2;

    if (key.len < prefix + 2)
        return NULL;
    return lock_find(core, text_make(key.at + prefix, key.len - prefix - 1));
}

void
watch_answer(struct core *core, struct watch *watch)
{
    struct request *request = slab_get(&core->requests, watch->request);

    watch->request = HANDLE_NONE;
    if (request == NULL)
        return;
    require(watch->kind != WATCH_AWAIT && watch->kind != WATCH_WAITERS);
    require(slab_get(&core->watches, request->watch) == watch);
    struct reply reply = answer_begin(core, request->tag, "OK");
    answer_end(core, request->session, &reply);
    request_free(core, request);
}

/* Asserts the fields that only one kind of watch has. */
static void
check_watch(const struct core *core, const struct watch *watch)
{
    bool members = watch->kind == WATCH_MEMBERS;

    require(watch->lock->refs > 0 && watch->session->watch_count > 0);
    require((watch->kind == WATCH_AWAIT) == (watch->await != NULL));
    require(watch->kind == WATCH_WAITERS ||
            handle_equal(watch->ticket, HANDLE_NONE));
    require(members || (!watch->asks && watch->shown == 0));
    require(!members || watch->state == WATCH_NEW);
    require(watch->shown == 0 || watch->lock->members.known);
    /* It waits for its session to read, and so for EFFECT_MORE. */
    require(list_empty(&watch->news_link) || watch->session->watch_waits);
    require(wheel_node_set(&watch->lock->watch_timer) ||
            !handle_equal(watch->lock->watch_op, HANDLE_NONE) ||
            core->stopping);
}

void
watch_check(const struct core *core, const struct lock *lock)
{
    uint32_t waiters = 0;
    uint32_t members = 0;
    uint32_t inspected = 0;

    LIST_EACH (link, &lock->watches) {
        const struct watch *watch = container_of(link, struct watch, lock_link);
        check_watch(core, watch);
        waiters += watch->kind == WATCH_WAITERS;
        members += watch->kind == WATCH_MEMBERS;
        inspected += watch->kind != WATCH_MEMBERS;
    }
    require(waiters == lock->waiters_watched);
    require(members == lock->members.watched); /* DESIGN.md D10.6 */
    require(inspected == lock->inspected);
    require(inspected > 0 || !lock->news.known);
    require(members > 0 || !lock->members.known);
}

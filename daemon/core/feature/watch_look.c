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
    require(slab_get(&core->watches, request->watch) == watch);
    struct reply reply = answer_begin(core, request->tag, "OK");
    answer_end(core, request->session, &reply);
    request_free(core, request);
}

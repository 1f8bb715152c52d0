/*
 * Locks that this broker has something to do with: found by name, kept while
 * tickets, operations or the timer refer to them. Redis has the truth. Here are
 * only this broker's own tickets.
 *
 * See DESIGN.md D10.3.
 */
#include "daemon/core/model/lock.h"

#include "daemon/core/model/state.h"

#include "daemon/base/assert.h"

static uint64_t
lock_hash(const struct core *core, struct text name)
{
    return hash_bytes(&core->hash_key, name.at, name.len);
}

static struct lock *
lock_find_hashed(const struct core *core, struct text name, uint64_t hash)
{
    for (struct table_node *node = table_first(&core->lock_table, hash);
         node != NULL; node = table_next(node)) {
        struct lock *lock = container_of(node, struct lock, table);
        if (text_equal(text_make(lock->name, lock->name_len), name))
            return lock;
    }
    return NULL;
}

struct lock *
lock_find(const struct core *core, struct text name)
{
    return lock_find_hashed(core, name, lock_hash(core, name));
}

struct text
lock_name(const struct lock *lock)
{
    return text_make(lock->name, lock->name_len);
}

/* The slot of PREFIX:{NAME}. */
static uint16_t
lock_slot(const struct core *core, struct text name)
{
    char key[sizeof(core->settings.key_prefix) + PROTO_NAME_MAX + 4];
    size_t len = strlen(core->settings.key_prefix);

    memcpy(key, core->settings.key_prefix, len);
    key[len++] = ':';
    key[len++] = '{';
    memcpy(key + len, name.at, name.len);
    len += name.len;
    key[len++] = '}';
    require(len <= sizeof(key));
    return slot_of_key(text_make(key, len));
}

struct lock *
lock_obtain(struct core *core, struct text name)
{
    require(name.len > 0 && name.len <= PROTO_NAME_MAX);
    uint64_t hash = lock_hash(core, name);
    struct lock *lock = lock_find_hashed(core, name, hash);

    if (lock != NULL) {
        lock->refs++;
        return lock;
    }
    lock = slab_alloc(&core->locks);
    if (lock == NULL)
        return NULL;
    wheel_node_init(&lock->timer, TIMER_LOCK);
    list_init(&lock->tickets);
    list_init(&lock->holders);
    list_init(&lock->watches);
    wheel_node_init(&lock->watch_timer, TIMER_WATCH);
    list_init(&lock->tell_link);
    lock->refs = 1;
    memcpy(lock->name, name.at, name.len);
    lock->name_len = (uint16_t)name.len;
    lock->slot = lock_slot(core, name);
    lock->namespace = namespaces_find(&core->namespaces, name);
    lock->namespace_serial = core->namespaces.serial;
    table_insert(&core->lock_table, &lock->table, hash);
    require(core->lock_table.count == core->locks.used);
    return lock;
}

void
lock_unref(struct core *core, struct lock *lock)
{
    require(lock->refs > 0);
    if (--lock->refs > 0)
        return;
    require(list_empty(&lock->tickets) && !wheel_node_set(&lock->timer));
    require(list_empty(&lock->watches) && list_empty(&lock->holders));
    require(lock->waiting == 0 && lock->inspection == NULL);
    require(lock->waits == 0 && !wheel_node_set(&lock->watch_timer));
    list_remove(&lock->tell_link);
    table_remove(&core->lock_table, &lock->table);
    slab_free(&core->locks, lock);
}

void
lock_see_fence(struct core *core, const struct lock *lock, uint64_t fence)
{
    require(lock->slot < SLOT_COUNT);
    if (core->fence_seen[lock->slot] < fence)
        core->fence_seen[lock->slot] = fence;
}

void
lock_ask_at(struct core *core, struct lock *lock, uint64_t at_us)
{
    if (wheel_node_set(&lock->timer)) {
        if (lock->timer.due_us <= at_us)
            return;
    } else {
        lock_ref(lock);
    }
    wheel_add(&core->wheel, &lock->timer, at_us);
    require(wheel_node_set(&lock->timer)); /* it has the reference */
}

/*
 * Somebody of another broker was granted it, and that broker may be gone: then
 * the grant lapses, and the next question serves the others. One that comes
 * sooner says nothing of that.
 */
void
lock_ask_after_expiry(struct core *core, struct lock *lock)
{
    lock->expiry_us = core->now_us + us_from_ms(CORE_EXPIRY_MS) + 50000;
    lock_ask_at(core, lock, lock->expiry_us);
}

void
lock_refresh_soon(struct core *core, struct lock *lock)
{
    if (lock->waiting == 0)
        return;
    require(lock->waiting <= core->waiting);
    lock->all_waiters = true;
    lock_ask_at(core, lock, core->now_us);
}

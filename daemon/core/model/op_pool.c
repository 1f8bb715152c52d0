/*
 * Operations: taken from their slab, handed to the store through the effects,
 * and given back. Each counts as a reference to its lock, if it has one, whose
 * name it shows.
 */
#include "daemon/core/model/op_pool.h"

#include "daemon/core/model/lock.h"
#include "daemon/op/op.h"

#include "daemon/base/assert.h"

enum op_owner
op_owner(const struct op *op)
{
    static const enum op_owner owners[OP_KIND_COUNT] = {

#define OP(id, word, owner, ...) OP_OF_##owner,
#include "daemon/op/op.def"
    };

    require(op->kind < OP_KIND_COUNT);
    return owners[op->kind];
}

struct op *
op_create(struct core *core, enum op_kind kind, struct lock *lock,
    struct handle owner)
{
    struct op *op = slab_alloc(&core->ops);

    require((lock != NULL) == (kind != OP_AUDIT));
    if (op == NULL)
        return NULL;
    list_init(&op->link);
    list_init(&op->hurry_link);
    op->kind = kind;
    op->owner = owner;
    op->lease_ms = core->settings.lease_ms;
    op->hard_end_us = NEVER;
    op->over_us = NEVER;
    if (lock == NULL)
        return op;
    op->lock = slab_handle(&core->locks, lock);
    op->name = text_make(lock->name, lock->name_len);
    require(lock->slot < SLOT_COUNT);
    op->slot = lock->slot;
    op->seen = core->fence_seen[lock->slot];
    lock_ref(lock);
    return op;
}

void
op_submit(struct core *core, struct op *op)
{
    require(core->effects != NULL);
    require(list_empty(&op->link) && op->deadline_us > 0);
    op->began_us = core->now_us;
    list_push_back(&core->effects->ops, &op->link);
}

void
op_hurry(struct core *core, struct op *op)
{
    require(core->effects != NULL);
    if (list_empty(&op->hurry_link))
        list_push_back(&core->effects->hurried, &op->hurry_link);
}

void
op_free(struct core *core, struct op *op)
{
    struct lock *lock = slab_get(&core->locks, op->lock);

    require((lock != NULL) == (op->kind != OP_AUDIT));
    require(list_empty(&op->link));
    list_remove(&op->hurry_link);
    slab_free(&core->ops, op);
    if (lock != NULL)
        lock_unref(core, lock);
}

/*
 * Messages on their way to Redis; each is an operation like others.
 */
#include "daemon/core/feature/message.h"

#include "daemon/core/model/lock.h"
#include "daemon/core/model/op_pool.h"
#include "daemon/op/op.h"

#include "daemon/base/assert.h"

/* Under way at a time; what finds no room is not sent. */
#define MESSAGES_MAX 1024

bool
message_init(struct core *core)
{
    return slab_init(&core->messages, sizeof(struct message), MESSAGES_MAX);
}

void
message_fini(struct core *core)
{
    slab_fini(&core->messages);
}

struct message *
message_create(struct core *core)
{
    return slab_alloc(&core->messages);
}

void
message_send(struct core *core, struct message *message, const char broker[8],
    struct lock *lock)
{
    struct op *op = op_create(
        core, OP_PUBLISH, lock, slab_handle(&core->messages, message));

    require(message->len > 0 && message->len <= sizeof(message->words));
    if (op == NULL) {
        slab_free(&core->messages, message);
        return;
    }
    memcpy(message->to, broker, sizeof(message->to));
    op->words[0] = text_make(message->to, sizeof(message->to));
    op->words[1] = text_make(message->words, message->len);
    op->deadline_us = core->now_us + core->settings.command_timeout_us;
    op_submit(core, op);
}

void
message_tell(struct core *core, const char broker[8], struct text name,
    struct text words)
{
    struct message *message = message_create(core);
    struct lock *lock = message != NULL ? lock_obtain(core, name) : NULL;

    if (lock == NULL) {
        if (message != NULL)
            slab_free(&core->messages, message);
        return;
    }
    require(words.len <= sizeof(message->words));
    memcpy(message->words, words.at, words.len);
    message->len = (uint32_t)words.len;
    message_send(core, message, broker, lock);
    lock_unref(core, lock);
}

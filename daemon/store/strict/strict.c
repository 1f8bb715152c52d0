/*
 * Safety level strict: which answers need the confirmation of replicas, whether
 * that is possible, and the verdict about the answers that wait for it.
 * confirm.c asks for it, replicas.c judges.
 */
#include "daemon/store/strict/strict.h"

#include "daemon/base/assert.h"

#include <stdlib.h>

#define WAIT_AGAIN_US 2000 /* after it was asked too soon */

static const enum op_grants grants_by_kind[OP_KIND_COUNT] = {

#define OP(id, word, owner, done, script, keys, share, grants, ...) \
    KIND_##grants,
#include "daemon/op/op.def"
};

enum op_grants
kind_grants(enum op_kind kind)
{
    require(kind < OP_KIND_COUNT);
    return grants_by_kind[kind];
}

/* The grants that the reply to a call may have, by op.def. */
static enum op_grants
call_grants(const struct call *call)
{
    require(!list_empty(&call->ops));
    return kind_grants(container_of(call->ops.next, struct op, link)->kind);
}

struct text
call_said(const struct call *call)
{
    require(call->said != NULL); /* DESIGN.md D4.1 */
    return text_make(call->said, call->said_len);
}

/* Whether they are connected to the same process. */
static bool
same_run(const struct store *store, const struct conn *conn)
{
    require(conn->index < CONN_ACK);
    return memcmp(store->conns[CONN_ACK + conn->index].run_id, conn->run_id,
               sizeof(conn->run_id)) == 0;
}

bool
confirm_possible(const struct store *store, const struct conn *conn)
{
    return store->conns[CONN_ACK + conn->index].state >= CONN_READY &&
           conn->replicas.state == REPLICAS_FINE && same_run(store, conn);
}

bool
confirm_wanted(const struct store *store, const struct call *call,
    const struct resp *reply)
{
    enum op_grants grants = call_grants(call);

    return store->settings.strict && reply->type == RESP_STRING &&
           grants != KIND_READS &&
           record_grants(reply->text, call->op_count, grants == KIND_GRANTS);
}

bool
confirm_hold(struct call *call, const struct resp *reply)
{
    require(call->said == NULL && call->op_count > 0);
    call->said = malloc(reply->text.len + 1);
    if (call->said == NULL)
        return false;
    memcpy(call->said, reply->text.at, reply->text.len);
    call->said_len = reply->text.len;
    return true;
}

void
confirm_verdict(struct store *store, struct conn *conn, bool all_have_it,
    struct text id, uint64_t now_us)
{
    all_have_it = all_have_it && same_run(store, conn);
    conn->wait_us = all_have_it ? now_us : now_us + WAIT_AGAIN_US;
    LIST_EACH_SAFE (at, &conn->held) {
        struct call *call = container_of(at, struct call, link);
        if (!call->covered)
            break;
        call->covered = false;
        if (!all_have_it || !text_equal(record_reply_id(call_said(call)), id))
            continue;
        list_remove(&call->link);
        list_push_back(&store->confirmed, &call->link);
        store->confirmed_us = now_us;
    }
}

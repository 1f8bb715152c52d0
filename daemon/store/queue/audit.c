/*
 * Audits: a step over the records of one node, which the core names by its
 * number. A mark tells other brokers for a while which broker audits the node.
 * In a cluster these are all masters that have slots, of a quorum all nodes,
 * else the master.
 *
 * A step is what comes last at a node, and is tried only once: the core knows
 * what it is worth.
 */
#include "daemon/store/queue/queue.h"

#include "daemon/store/node/conn.h"
#include "daemon/store/node/history.h"
#include "daemon/store/node/route.h"

#include "daemon/base/assert.h"

/* The first node from that number on which has records; NODE_NONE: no more. */
static uint16_t
audit_node(const struct store *store, uint32_t from)
{
    for (uint32_t i = from; i < store->node_count; i++)
        if (node_counts(store, i))
            return (uint16_t)i;
    return NODE_NONE;
}

void
audit_take(struct store *store, struct op *op, uint64_t now_us)
{
    struct op_audit *audit = op->audit;
    uint16_t node = audit_node(store, audit->node);
    uint16_t slot = 0;

    require(audit != NULL);
    if (node == NODE_NONE && audit->node == 0) {
        /* None is known: that is not the end of them. */
        memcpy(audit->name, "unknown", sizeof("unknown"));
        op_done(store, op, OP_UNSENT);
        return;
    }
    if (node == NODE_NONE) {
        op_done(store, op, OP_GONE);
        return;
    }
    const struct conn *conn = &store->conns[node];
    if (node != audit->node)
        audit->cursor = 0;
    audit->node = node;
    op_own(op)->home = node;
    (void)conn_name(store, conn, audit->name, sizeof(audit->name));
    audit->key_len =
        (uint32_t)history_key(store, conn, "audit", &slot, audit->key);
    if (conn->state < CONN_READY || audit->key_len == 0)
        op_done(store, op, OP_UNSENT);
    else
        op_enqueue(store, op, node, now_us, false);
}

bool
audit_mark(struct store *store, struct conn *conn, const struct call *call)
{
    const struct op *op = container_of(call->ops.next, struct op, link);
    const struct op_audit *audit = op->audit;
    char digits[20];

    require(audit->key_len > 0 && call->op_count == 1);
    const struct text words[] = {
        TEXT("SET"),
        text_make(audit->key, audit->key_len),
        text_make(store->settings.broker_id, 8),
        TEXT("PX"),
        text_make(digits, text_from_u64(digits, audit->mark_ms)),
        TEXT("NX"),
        TEXT("GET"),
    };

    return resp_command(&conn->out, words, audit->marked ? 5 : 7);
}

void
audit_marked(struct store *store, struct call *call, const struct resp *reply)
{
    struct op *op = container_of(list_pop_front(&call->ops), struct op, link);
    bool others =
        reply->type == RESP_STRING &&
        !text_equal(reply->text, text_make(store->settings.broker_id, 8));

    require(list_empty(&call->ops));
    op_done(store, op, others ? OP_BUSY : OP_OK);
}

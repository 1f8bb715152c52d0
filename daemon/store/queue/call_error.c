/*
 * Errors of calls: redirects are followed, errors before anything ran are tried
 * again, other errors end the operations. See DESIGN.md D8.3 and D8.4.
 */
#include "daemon/store/queue/queue.h"

#include "daemon/store/model/times.h"
#include "daemon/store/node/conn.h"
#include "daemon/store/node/history.h"
#include "daemon/store/node/route.h"
#include "daemon/store/node/script.h"

#include "daemon/base/assert.h"
#include "daemon/base/log.h"

#define RETRIES_AT_ONCE 5
#define RETRY_US        50000
#define TRYAGAIN_US     20000

void
call_lost(struct store *store, struct call *call)
{
    struct list *at;

    while ((at = list_pop_front(&call->ops)) != NULL) {
        struct op *op = container_of(at, struct op, link);
        op->answered_us = call->answered_us;
        bool again = op->kind == OP_INSPECT && !op_own(op)->vote &&
                     store->now_us < op->deadline_us;
        if (again)
            op_park(store, op, store->now_us);
        else
            op_done(store, op, OP_UNKNOWN);
    }
}

void
op_again(struct store *store, struct op *op, uint16_t node, uint64_t now_us,
    uint64_t delay_us)
{
    count(store->counters, COUNTER_redis_retries);
    if (++op_own(op)->attempts > RETRIES_AT_ONCE && delay_us == 0)
        delay_us = RETRY_US;
    if (delay_us > 0) {
        op_own(op)->attempts =
            1; /* after a pause redirects are followed again */
        op_park(store, op, now_us + store_jitter(store, delay_us));
    } else if (!node_is_wanted(store, node)) {
        op_route(store, op, now_us); /* nothing more is for that one */
    } else {
        op_enqueue(store, op, node, now_us, true);
    }
}

static void
refused_moved(struct store *store, struct conn *conn, struct op *op,
    uint64_t now_us, struct text error)
{
    uint16_t slot;
    uint16_t node;

    count(store->counters, COUNTER_redis_moved);
    store->map_wanted = true;
    if (!route_redirect(store, error, conn->node, &slot, &node)) {
        op_again(store, op, conn->node, now_us, RETRY_US);
        return;
    }
    (void)route_slot(store, slot, node, now_us);
    op_again(store, op, node, now_us, 0);
}

static void
refused_ask(struct store *store, struct conn *conn, struct op *op,
    uint64_t now_us, struct text error)
{
    uint16_t slot;
    uint16_t node;

    count(store->counters, COUNTER_redis_ask);
    if (!route_redirect(store, error, conn->node, &slot, &node)) {
        op_again(store, op, conn->node, now_us, RETRY_US);
        return;
    }
    history_inherit(store, conn, &store->conns[node], now_us);
    op_own(op)->single = true;
    op_own(op)->asking = true;
    op_again(store, op, node, now_us, 0);
}

/* A script stopped half way, or the error is unknown. */
static void
refused_other(struct store *store, struct conn *conn, struct op *op,
    uint64_t now_us, struct text error, bool alone)
{
    char name[80];

    if (!alone) {
        op_own(op)->single = true;
        op->retry = true;
        op_own(op)->halved = true;
        op_again(store, op, conn->node, now_us, 0);
        return;
    }
    count(store->counters, COUNTER_redis_errors);
    /* A script may not do what it needs. Audits need more than locks do. */
    if (health_of_error(error) != HEALTH_ERROR && op->kind != OP_AUDIT)
        node_refuses(store, conn, now_us, error);
    log_write(LOG_ERROR, "redis_error",
        log_word("node", conn_name(store, conn, name, sizeof(name))),
        log_foreign("error", error));
    op_done(store, op, OP_REFUSED);
}

/* The node runs nothing now. The log says so once a minute, and when the reason
 * changes. */
static void
refused_later(
    struct store *store, struct conn *conn, uint64_t now_us, struct text error)
{
    count(store->counters, COUNTER_redis_refused);
    store->map_wanted = true;
    node_refuses(store, conn, now_us, error);
}

/* The core decides whether to try an audit again. */
static void
refused_audit(struct store *store, struct conn *conn, struct op *op,
    uint64_t now_us, struct text error)
{
    enum refusal refusal = refusal_of(error);

    if (refusal == REFUSAL_NOSCRIPT && op_own(op)->attempts < RETRIES_AT_ONCE) {
        count(store->counters, COUNTER_redis_noscript);
        op_again(store, op, conn->node, now_us, 0);
    } else if (refusal == REFUSAL_OTHER) {
        refused_other(store, conn, op, now_us, error, true);
    } else {
        refused_later(store, conn, now_us, error);
        op_done(store, op, OP_UNSENT);
    }
}

static void
op_refused(struct store *store, struct conn *conn, struct op *op,
    uint64_t now_us, struct text error, bool alone)
{
    op_own(op)->asking = false;
    if (op->kind == OP_AUDIT) {
        refused_audit(store, conn, op, now_us, error);
        return;
    }
    enum health_reason reason = health_of_error(error);
    if (op->kind == OP_PUBLISH &&
        (reason == HEALTH_COMMAND || reason == HEALTH_RIGHTS)) {
        op_done(store, op, OP_UNSENT); /* a hint, which locks do without */
        return;
    }
    switch (refusal_of(error)) {
    case REFUSAL_MOVED:
        refused_moved(store, conn, op, now_us, error);
        return;
    case REFUSAL_ASK:
        refused_ask(store, conn, op, now_us, error);
        return;
    case REFUSAL_TRYAGAIN:
        count(store->counters, COUNTER_redis_tryagain);
        op_own(op)->single = true;
        op_again(store, op, conn->node, now_us, alone ? TRYAGAIN_US : 0);
        return;
    case REFUSAL_NOSCRIPT:
        count(store->counters, COUNTER_redis_noscript);
        op_again(store, op, conn->node, now_us, 0);
        return;
    case REFUSAL_LATER:
        refused_later(store, conn, now_us, error);
        op_again(store, op, conn->node, now_us, RETRY_US);
        return;
    case REFUSAL_OTHER:
        refused_other(store, conn, op, now_us, error, alone);
        return;
    }
}

/* Loads the call's script. The scripts of all connections are loaded together,
 * since Redis has lost them together. */
static void
load_for(struct store *store, struct conn *conn, const struct call *call,
    uint64_t now_us)
{
    const struct op *first = container_of(call->ops.next, struct op, link);
    enum script_id script = record_script(first->kind);

    if (script < SCRIPTS_AT_ONCE)
        scripts_load(store, conn, now_us);
    else if (script < SCRIPT_COUNT)
        script_load(store, conn, script, now_us);
}

void
call_refused(struct store *store, struct conn *conn, struct call *call,
    uint64_t now_us, struct text error)
{
    bool alone = call->op_count == 1;

    require(!list_empty(&call->ops) && call->op_count > 0);
    if (refusal_of(error) == REFUSAL_NOSCRIPT)
        load_for(store, conn, call, now_us);
    /* The last one first, since each goes to the head of its queue. */
    while (!list_empty(&call->ops)) {
        struct list *at = call->ops.prev;
        list_remove(at);
        op_refused(store, conn, container_of(at, struct op, link), now_us,
            error, alone);
    }
}

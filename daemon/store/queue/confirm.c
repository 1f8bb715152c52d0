/*
 * Safety level strict: a grant is not told before the node's replicas have it.
 *
 * The answer to a call that has granted or renewed something is held until all
 * replicas that could be promoted have what was written: see replicas.c. One
 * question is for all calls that were answered before it was asked. A call that
 * is not confirmed in its operations' time is of unknown outcome.
 *
 * Nothing new is asked for while strict.c knows that it cannot be confirmed.
 *
 * See DESIGN.md D4.1.
 */
#include "daemon/store/queue/queue.h"

#include "daemon/store/node/conn.h"
#include "daemon/store/strict/strict.h"

#include "daemon/base/assert.h"

static struct conn *
ack_of(struct store *store, const struct conn *conn)
{
    require(conn->index < CONN_ACK);
    return &store->conns[CONN_ACK + conn->index];
}

static void
held_lost(struct store *store, struct conn *conn, struct call *call)
{
    require(call->said != NULL && call->at_conn == conn->index);
    call_lost(store, call);
    conn_end_call(store, conn, call);
}

void
confirm_drop(struct store *store, struct conn *conn)
{
    if (conn_is_second(conn)) {
        struct conn *node = &store->conns[conn->index - CONN_ACK];
        node->replicas.state = REPLICAS_UNKNOWN;
        LIST_EACH (at, &node->held)
            container_of(at, struct call, link)->covered = false;
        return;
    }
    while (!list_empty(&conn->held))
        held_lost(
            store, conn, container_of(conn->held.next, struct call, link));
    LIST_EACH_SAFE (at, &store->confirmed) {
        struct call *call = container_of(at, struct call, link);
        if (call->at_conn == conn->index)
            held_lost(store, conn, call);
    }
}

/* When the next one is of unknown outcome. */
static uint64_t
held_until_us(const struct store *store, const struct conn *conn)
{
    uint64_t until_us = WHEEL_NEVER;

    LIST_EACH (at, &conn->held) {
        uint64_t due_us =
            call_due_us(store, container_of(at, struct call, link));
        until_us = due_us < until_us ? due_us : until_us;
    }
    return until_us;
}

static bool
confirm_due(const struct store *store, const struct conn *conn)
{
    return !list_empty(&conn->held) && confirm_possible(store, conn) &&
           list_empty(&store->conns[CONN_ACK + conn->index].calls);
}

void
confirm_ask(struct store *store, struct conn *conn, uint64_t now_us)
{
    replicas_ask(store, ack_of(store, conn), now_us);
    LIST_EACH (at, &conn->held)
        container_of(at, struct call, link)->covered = true;
}

void
confirm_tick(struct store *store, struct conn *conn, uint64_t now_us)
{
    LIST_EACH_SAFE (at, &conn->held) {
        struct call *call = container_of(at, struct call, link);
        if (now_us < call_due_us(store, call))
            continue;
        count(store->counters, COUNTER_redis_unconfirmed);
        held_lost(store, conn, call);
    }
    if (!confirm_due(store, conn) || now_us < conn->wait_us)
        return;
    confirm_ask(store, conn, now_us);
    count(store->counters, COUNTER_redis_waits);
}

uint64_t
confirm_next_us(const struct store *store, const struct conn *conn)
{
    uint64_t until_us = held_until_us(store, conn);

    return confirm_due(store, conn) && conn->wait_us < until_us ? conn->wait_us
                                                                : until_us;
}

bool
confirm_take(struct store *store)
{
    struct call *call = store->confirming;

    if (call != NULL)
        conn_end_call(store, &store->conns[call->at_conn], call);
    store->confirming = NULL;
    if (list_empty(&store->confirmed))
        return false;
    call = container_of(list_pop_front(&store->confirmed), struct call, link);
    store->confirming = call;
    call_results(store, &store->conns[call->at_conn], call, store->confirmed_us,
        call_said(call));
    return true;
}

static void
calls_release(const struct list *calls)
{
    LIST_EACH (at, calls)
        confirm_release(container_of(at, struct call, link));
}

void
confirm_fini(struct store *store)
{
    for (uint32_t i = 0; i < CONN_COUNT; i++) {
        calls_release(&store->conns[i].held);
        replicas_forget(&store->conns[i].replicas);
    }
    calls_release(&store->confirmed);
    if (store->confirming != NULL)
        confirm_release(store->confirming);
}

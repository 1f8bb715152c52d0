/*
 * A connection begins, is lost, or is given up; what becomes of its calls, and
 * of what waits at its node.
 */
#include "daemon/store/conn/life.h"

#include "daemon/store/model/times.h"
#include "daemon/store/node/conn.h"
#include "daemon/store/node/history.h"
#include "daemon/store/queue/queue.h"

#include "daemon/base/assert.h"
#include "daemon/base/log.h"

#define BACKOFF_MAX_US 1000000
#define PING_LEAST_US  250000

void
conn_connect(struct store *store, struct conn *conn, uint64_t now_us)
{
    require(list_empty(&conn->calls));
    conn->demoted = false;
    conn->wish = WISH_CONNECT;
    conn_move(conn, CONN_CONNECTING);
    conn->serial++;
    conn->deadline_us = now_us + store->settings.connect_timeout_us;
    buffer_clear(&conn->out);
}

/* The outcome of a sent operation is unknown; an unsent one waits for a
 * route. */
static void
conn_drop_calls(struct store *store, struct conn *conn)
{
    while (!list_empty(&conn->calls)) {
        struct call *call = container_of(conn->calls.next, struct call, link);
        if (call->kind == CALL_SCRIPT)
            call_lost(store, call);
        if (call->kind == CALL_MAP)
            store->map_asked = false;
        call_free(store, conn, call);
    }
    confirm_drop(store, conn);
    buffer_clear(&conn->out);
}

/* Only of a connection that was ready can a command still be asleep. */
static void
conn_remember(struct conn *conn)
{
    conn->old_client_id = conn->client_id;
    memcpy(conn->old_run_id, conn->run_id, sizeof(conn->old_run_id));
}

/*
 * A connection that was good has ended. One try to replace it is worth waiting
 * for. Redis or a balancer may close idle connections: the next ones are used
 * more often.
 */
static void
conn_was_good(struct conn *conn, uint64_t now_us)
{
    uint64_t idle_us = (now_us - conn->spoke_us) / 2;

    conn->again = true;
    if (!conn->demoted && list_empty(&conn->calls) &&
        idle_us >= PING_LEAST_US && idle_us < conn->idle_us)
        conn->idle_us = idle_us;
}

/*
 * Operations at a node without a connection wait on, no longer than without a
 * node. The loss of a good connection adds one try. An operation on its way
 * there by ASK asks the slot's own node again.
 */
static void
op_wait_on(struct store *store, struct op *op, uint64_t now_us)
{
    uint16_t index = op_own(op)->at_node;

    if (op_own(op)->asking) {
        op_dequeue(store, op);
        op_park(store, op, now_us + BACKOFF_MIN_US);
    } else if (!store->conns[index].again) {
        wheel_add(&store->wheel, &op_own(op)->timer, op->deadline_us);
    }
}

struct log_pair
conn_use(const struct store *store, const struct conn *conn)
{
    return conn_listens(store, conn)  ? log_word("use", "hints")
           : sentinel_is(store, conn) ? log_word("use", "sentinel")
           : conn_is_ack(store, conn) ? log_word("use", "replicas")
                                      : LOG_NOTHING;
}

void
conn_lost(struct store *store, struct conn *conn, uint64_t now_us,
    enum health_reason reason, const char *why)
{
    char name[80];
    bool was_ready = conn->state >= CONN_READY;

    if (conn->state == CONN_DOWN)
        return;
    bool news = reason != HEALTH_FINE &&
                health_fault(conn, reason, text_from(why), now_us);
    news = news || was_ready || conn->backoff_us == BACKOFF_MIN_US;
    if (conn->state >= CONN_GREETING)
        count(store->counters, COUNTER_redis_disconnects);
    log_write(news ? LOG_WARN : LOG_DEBUG, "redis_link_lost",
        log_word("node", conn_name(store, conn, name, sizeof(name))),
        conn_use(store, conn), log_quoted("why", text_from(why)));
    conn->again = false;
    if (conn_answers(conn) && (conn->wish != WISH_CLOSE || conn->demoted))
        conn_was_good(conn, now_us);
    if (was_ready && conn->client_id != 0)
        conn_remember(conn);
    conn_move(conn, CONN_DOWN);
    conn_drop_calls(store, conn);
    conn->retry_us = now_us + store_jitter(store, conn->backoff_us);
    conn->backoff_us = conn->backoff_us * 2 > BACKOFF_MAX_US
                           ? BACKOFF_MAX_US
                           : conn->backoff_us * 2;
    if (conn->index >= CONN_SUBSCRIBER) {
        conn->node = NODE_NONE;
        return;
    }
    if (conn_is_second(conn))
        return;
    history_mute(store, conn, now_us);
    lane_each(store, &store->nodes[conn->node], now_us, op_wait_on);
    if (store->topology->conn_lost != NULL)
        store->topology->conn_lost(store, conn, now_us);
}

void
conn_give_up(struct store *store, struct conn *conn, uint64_t now_us,
    enum health_reason reason, const char *why)
{
    conn->wish = WISH_CLOSE;
    conn_lost(store, conn, now_us, reason, why);
}

void
conn_abandon(
    struct store *store, struct conn *conn, uint64_t now_us, const char *why)
{
    conn_give_up(store, conn, now_us, HEALTH_FINE, why);
}

void
conn_unfit(struct store *store, struct conn *conn, uint64_t now_us,
    enum health_reason reason, struct text said)
{
    struct health_why why = {.reason = reason};
    char name[80];
    char text[HEALTH_TEXT_MAX];

    if (health_fault(conn, reason, said, now_us))
        log_write(LOG_ERROR, "redis_unfit",
            log_word("node", conn_name(store, conn, name, sizeof(name))),
            log_word("reason", health_word(reason)),
            log_quoted("why", text_from(health_text(&why, false, text))));
    conn->backoff_us = BACKOFF_MAX_US / 2;
    conn_abandon(store, conn, now_us, "it does not fit");
}

void
route_move_subscriber(struct store *store, uint64_t now_us)
{
    struct conn *conn = &store->conns[CONN_SUBSCRIBER];

    if (conn->state == CONN_DOWN)
        return;
    const struct conn *serves = &store->conns[conn->node];
    if (conn->named && serves->named &&
        memcmp(conn->run_id, serves->run_id, sizeof(conn->run_id)) != 0) {
        conn_abandon(store, conn, now_us, "another server has its address");
        return;
    }
    if (store->nodes[conn->node].mapped)
        return;
    uint16_t host = conn_subscriber_host(store);
    bool better = host != NODE_NONE && store->nodes[host].mapped;
    if (better || !store->nodes[conn->node].seed)
        conn_abandon(store, conn, now_us, "its node is no master now");
}

/*
 * Time passes for a connection: it connects again, asks what is due, is late,
 * or is given up.
 */
#include "daemon/store/conn/life.h"

#include "daemon/store/model/times.h"
#include "daemon/store/node/conn.h"
#include "daemon/store/node/history.h"
#include "daemon/store/node/route.h"
#include "daemon/store/queue/queue.h"
#include "daemon/store/strict/strict.h"

#include "daemon/base/assert.h"
#include "daemon/base/log.h"

/* Any Sentinel that answers. */
static uint16_t
switches_host(const struct store *store)
{
    for (uint16_t i = 0; i < store->node_count; i++)
        if (store->nodes[i].used && store->nodes[i].sentinel &&
            store->conns[i].state >= CONN_READY)
            return i;
    return NODE_NONE;
}

/* Of a node's connection: whether a second one is wanted beside it. */
static bool
conn_wants_second(const struct conn *conn)
{
    return conn->state >= CONN_READY && !conn->readonly;
}

/* Which node a connection that is down is to connect to; NODE_NONE: to none
 * now. */
static uint16_t
conn_host(const struct store *store, const struct conn *conn)
{
    if (conn->index == CONN_SUBSCRIBER)
        return store->topology->independent ? NODE_NONE
                                            : conn_subscriber_host(store);
    if (conn->index == CONN_SWITCHES)
        return switches_host(store);
    if (conn_is_second(conn))
        return conn_wants_second(&store->conns[conn->node]) ? conn->node
                                                            : NODE_NONE;
    return node_is_wanted(store, conn->node) ? conn->node : NODE_NONE;
}

/* Whether it asks a Sentinel who the master is. */
static bool
conn_polls(const struct store *store, const struct conn *conn)
{
    return sentinel_is(store, conn) && conn->index != CONN_SWITCHES;
}

/* Whether late answers count: those to renewals do, and no other node would
 * tell hints sooner. */
static bool
conn_may_be_late(const struct store *store, const struct conn *conn)
{
    bool elsewhere = store->topology->slots && conn->index == CONN_SUBSCRIBER;

    return conn->state >= CONN_READY && !sentinel_is(store, conn) && !elsewhere;
}

/* Until when the oldest call is waited for. */
static uint64_t
conn_until_us(const struct store *store, const struct conn *conn)
{
    uint64_t wait_us = store_silence_us(store);

    if (!conn_may_be_late(store, conn) && conn->greeting_us == 0)
        wait_us = store->settings.command_timeout_us;
    else if (!conn_may_be_late(store, conn))
        wait_us = conn->greeting_us;
    return container_of(conn->calls.next, struct call, link)->sent_us + wait_us;
}

/* It may be slow, or stopped, or have been replaced: whoever knows of another
 * node in its place is asked. */
static void
conn_is_late(struct store *store, struct conn *conn, uint64_t now_us)
{
    uint64_t timeout_ms = store->settings.command_timeout_us / 1000;
    char name[80];

    conn_move(conn, CONN_LATE);
    count(store->counters, COUNTER_redis_timeouts);
    if (conn_serves(store, conn) &&
        (conn->late_us == 0 || now_us >= conn->late_us + SAID_AGAIN_US)) {
        conn->late_us = now_us;
        log_write(LOG_WARN, "redis_late",
            log_word("node", conn_name(store, conn, name, sizeof(name))),
            log_number("waited_ms", timeout_ms),
            log_quoted("advice",
                TEXT("Redis answers later than redis.command_timeout: see "
                     "SLOWLOG GET, or raise it")));
    }
    LIST_EACH (at, &conn->calls) {
        struct call *call = container_of(at, struct call, link);
        if (call->kind != CALL_MAP)
            continue;
        call->kind = CALL_PING; /* another node is asked */
        store->map_asked = false;
    }
    if (conn_serves(store, conn))
        history_mute(store, conn, now_us);
    store->map_wanted = true;
}

/* Operations whose time is over are given back. Their calls' answers count no
 * more. */
static void
conn_give_back(struct store *store, const struct conn *conn, uint64_t now_us)
{
    LIST_EACH (at, &conn->calls) {
        struct call *call = container_of(at, struct call, link);
        if (now_us < call->sent_us + store->settings.command_timeout_us)
            return;
        if (now_us >= call_due_us(store, call))
            call_lost(store, call);
    }
}

/* Calls are under way. */
static void
conn_await(struct store *store, struct conn *conn, uint64_t now_us)
{
    if (now_us < conn_in_time_us(store, conn))
        return;
    bool replaced = conn->index < CONN_ACK && store->topology->slots &&
                    !store->nodes[conn->node].mapped;
    uint64_t until_us = conn_until_us(store, conn);
    if (now_us >= until_us || replaced) {
        uint64_t longer_us = 2 * conn->greeting_us;
        if (longer_us == 0)
            longer_us = 2 * store->settings.command_timeout_us;
        conn->greeting_us = longer_us < store_silence_us(store)
                                ? longer_us
                                : store_silence_us(store);
        if (conn->state != CONN_LATE)
            count(store->counters, COUNTER_redis_timeouts);
        conn_give_up(store, conn, now_us, HEALTH_SILENT, "no answer in time");
        return;
    }
    if (conn->state != CONN_LATE && conn_may_be_late(store, conn))
        conn_is_late(store, conn, now_us);
    conn_give_back(store, conn, now_us);
}

/* When to look at calls under way again. */
static uint64_t
conn_await_us(const struct store *store, const struct conn *conn)
{
    uint64_t next_us = conn_in_time_us(store, conn);

    if (conn->state != CONN_LATE &&
        (conn_may_be_late(store, conn) || conn->greeting_us == 0))
        return next_us;
    next_us = conn_until_us(store, conn);
    LIST_EACH (at, &conn->calls) {
        const struct call *call = container_of(at, struct call, link);
        uint64_t due_us = call_due_us(store, call);
        next_us = due_us < next_us ? due_us : next_us;
    }
    return next_us;
}

static void
conn_down_tick(struct store *store, struct conn *conn, uint64_t now_us)
{
    uint16_t host = conn_host(store, conn);

    if (now_us < conn->retry_us || host == NODE_NONE)
        return;
    conn->node = host;
    conn_connect(store, conn, now_us);
}

static void
conn_connecting_tick(struct store *store, struct conn *conn, uint64_t now_us)
{
    if (now_us < conn->deadline_us)
        return;
    if (conn->state == CONN_OPENED)
        conn_give_up(store, conn, now_us, HEALTH_TLS_FAILED,
            "no answer to the TLS handshake in time");
    else
        conn_give_up(
            store, conn, now_us, HEALTH_SILENT, "connecting takes too long");
}

void
conn_tick(struct store *store, struct conn *conn, uint64_t now_us)
{
    if (conn->state == CONN_DOWN) {
        conn_down_tick(store, conn, now_us);
        return;
    }
    if (conn_is_second(conn) && !conn_wants_second(&store->conns[conn->node])) {
        conn_abandon(store, conn, now_us, "nothing is asked there");
        return;
    }
    if (conn->state < CONN_GREETING) {
        conn_connecting_tick(store, conn, now_us);
        return;
    }
    if (conn_answers(conn) && conn_serves(store, conn))
        history_tick(store, conn, now_us);
    if (conn->state >= CONN_READY && conn_serves(store, conn))
        peers_tick(store, conn, now_us);
    if (conn->state >= CONN_READY && conn_serves(store, conn))
        confirm_tick(store, conn, now_us);
    if (!list_empty(&conn->calls)) {
        conn_await(store, conn, now_us);
        return;
    }
    if (conn->state >= CONN_READY && conn_polls(store, conn)) {
        sentinel_conn_tick(store, conn, now_us);
        return;
    }
    if (conn->state >= CONN_READY && conn_is_ack(store, conn)) {
        if (now_us >= replicas_due_us(store, conn))
            confirm_ask(store, &store->conns[conn->node], now_us);
        return;
    }
    if (conn->state < CONN_READY || now_us < conn->spoke_us + conn->idle_us)
        return;
    if (!conn_serves(store, conn)) {
        CONN_SEND(store, conn, CALL_PING, now_us, TEXT("PING"));
        return;
    }
    /* A broker that has long asked nothing must hear of a clock step,
     * another history, and a replica that has taken over. */
    if (store->settings.settle_us > 0 || conn->readonly)
        (void)conn_ask_ids(store, conn, now_us);
    CONN_SEND(store, conn, CALL_TIME, now_us, TEXT("TIME"));
}

uint64_t
conn_next_us(const struct store *store, const struct conn *conn)
{
    switch (conn->state) {
    case CONN_DOWN:
        return conn_host(store, conn) == NODE_NONE ? WHEEL_NEVER
                                                   : conn->retry_us;
    case CONN_CONNECTING:
    case CONN_OPENED:
        return conn->deadline_us;
    case CONN_GREETING:
    case CONN_PREPARING:
    case CONN_READY:
    case CONN_LATE:
        break;
    }
    uint64_t due_us;
    if (!list_empty(&conn->calls))
        due_us = conn_await_us(store, conn);
    else if (conn_polls(store, conn))
        return sentinel_ask_due_us(store, conn);
    else if (conn_is_ack(store, conn))
        due_us = replicas_due_us(store, conn);
    else
        due_us = conn->spoke_us + conn->idle_us;
    if (conn->state < CONN_READY || !conn_serves(store, conn))
        return due_us;
    uint64_t next_us =
        conn->state == CONN_LATE ? WHEEL_NEVER : history_next_us(store, conn);
    uint64_t confirm_us = confirm_next_us(store, conn);
    uint64_t peers_us = peers_next_us(store, conn);
    next_us = next_us < confirm_us ? next_us : confirm_us;
    next_us = next_us < peers_us ? next_us : peers_us;
    return next_us < due_us ? next_us : due_us;
}

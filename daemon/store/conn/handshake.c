/*
 * The handshake of a connection: who is there, whether it can be used, what it
 * needs before the first script call, and what INFO and TIME say of it later.
 */
#include "daemon/store/conn/life.h"

#include "daemon/store/node/conn.h"
#include "daemon/store/node/history.h"
#include "daemon/store/node/route.h"
#include "daemon/store/node/script.h"
#include "daemon/store/strict/strict.h"

#include "daemon/base/assert.h"
#include "daemon/base/log.h"

static void
conn_auth(struct store *store, struct conn *conn, uint64_t now_us,
    const char *username, const char *password)
{
    if (password[0] != '\0' && username[0] != '\0')
        CONN_SEND(store, conn, CALL_AUTH, now_us, TEXT("AUTH"),
            text_from(username), text_from(password));
    else if (password[0] != '\0')
        CONN_SEND(
            store, conn, CALL_AUTH, now_us, TEXT("AUTH"), text_from(password));
}

void
conn_connected(struct store *store, struct conn *conn, uint64_t now_us)
{
    const struct store_settings *settings = &store->settings;

    if (conn->state != CONN_CONNECTING && conn->state != CONN_OPENED)
        return;
    count(store->counters, COUNTER_redis_connects);
    conn_move(conn, CONN_GREETING);
    if (sentinel_is(store, conn)) {
        conn_auth(store, conn, now_us, settings->sentinel_username,
            settings->sentinel_password);
        sentinel_greet(store, conn, now_us);
    } else {
        conn_auth(store, conn, now_us, settings->username, settings->password);
        CONN_SEND(store, conn, CALL_INFO, now_us, TEXT("INFO"));
        CONN_SEND(
            store, conn, CALL_CLIENT_ID, now_us, TEXT("CLIENT"), TEXT("ID"));
        CONN_SEND(store, conn, CALL_TIME, now_us, TEXT("TIME"));
    }
    if (list_empty(&conn->calls)) {
        conn_abandon(store, conn, now_us, "greeting does not fit");
        return;
    }
    container_of(conn->calls.prev, struct call, link)->last = true;
}

/* Whether another node of a quorum is that very process, by another name: it
 * must not have two votes at a time. */
static bool
is_another_node(
    const struct store *store, const struct conn *conn, struct text run_id)
{
    if (!store->topology->independent || run_id.len == 0)
        return false;
    for (uint16_t i = 0; i < store->node_count; i++)
        if (i != conn->node && store->conns[i].named &&
            text_equal(run_id, text_from(store->conns[i].run_id)))
            return true;
    return false;
}

static bool
is_older_than_7(struct text version)
{
    const char *dot = memchr(version.at, '.', version.len);
    uint64_t major = 0;

    return dot == NULL ||
           !text_to_u64(text_make(version.at, (size_t)(dot - version.at)), 1000,
               &major) ||
           major < 7;
}

/* HEALTH_FINE where the node is one that we can work with; else `*said` may say
 * more. */
static enum health_reason
info_objection(const struct store *store, const struct conn *conn,
    struct text info, struct text *said)
{
    bool cluster = text_equal(info_value(info, "cluster_enabled"), TEXT("1"));
    bool wanted = store->topology->slots;

    *said = TEXT("");
    if (text_equal(info_value(info, "redis_mode"), TEXT("sentinel")))
        return HEALTH_SENTINEL;
    if (text_equal(info_value(info, "loading"), TEXT("1")))
        return HEALTH_LOADING;
    if (cluster && !wanted)
        return HEALTH_IN_CLUSTER;
    if (!cluster && wanted)
        return HEALTH_NO_CLUSTER;
    if (!wanted && text_equal(info_value(info, "role"), TEXT("slave")))
        return HEALTH_REPLICA;
    *said = info_value(info, "redis_version");
    if (is_older_than_7(*said))
        return HEALTH_VERSION;
    *said = TEXT("");
    if (is_another_node(store, conn, info_value(info, "run_id")))
        return HEALTH_SAME_NODE;
    return HEALTH_FINE;
}

/* A master of the map that is a replica now has another one in its place. */
static void
conn_set_role(struct store *store, struct conn *conn, struct text info)
{
    conn->readonly = text_equal(info_value(info, "role"), TEXT("slave"));
    if (!conn->readonly)
        return;
    conn->demoted = !store->topology->slots;
    replicas_forget(&conn->replicas); /* they are another one's */
    if (store->nodes[conn->node].mapped)
        store->map_wanted = true;
}

/* The node's history by INFO. `run_id` is empty if only replication was asked
 * for. */
static void
conn_history(struct store *store, struct conn *conn, const struct call *call,
    uint64_t now_us, struct text run_id, struct text info)
{
    bool settled = conn->history.state == HISTORY_SETTLED;

    history_learn(store, conn, run_id, info_value(info, "master_replid"),
        info_value(info, "master_replid2"), now_us);
    conn_set_role(store, conn, info);
    history_vouch(store, conn, call, info, settled, now_us);
}

void
conn_info(struct store *store, struct conn *conn, const struct call *call,
    uint64_t now_us, const struct resp *reply)
{
    char name[80];
    struct text policy;
    struct text said;

    if (reply->type != RESP_STRING) {
        conn_give_up(store, conn, now_us, HEALTH_NO_REDIS,
            "the answer to INFO is no text");
        return;
    }
    enum health_reason wrong = info_objection(store, conn, reply->text, &said);
    if (wrong != HEALTH_FINE) {
        conn_unfit(store, conn, now_us, wrong, said);
        return;
    }
    conn->named = true;
    conn_history(store, conn, call, now_us, info_value(reply->text, "run_id"),
        reply->text);
    policy = info_value(reply->text, "maxmemory_policy");
    if (!text_equal(policy, TEXT("noeviction")) && policy.len > 0)
        log_write(LOG_WARN, "redis_may_evict_locks",
            log_word("node", conn_name(store, conn, name, sizeof(name))),
            log_span("maxmemory_policy", policy),
            log_quoted("advice", TEXT("set maxmemory-policy noeviction: an "
                                      "evicted lock is held twice")));
}

void
conn_ids(struct store *store, struct conn *conn, const struct call *call,
    uint64_t now_us, const struct resp *reply)
{
    if (reply->type != RESP_STRING) {
        conn->history.ids_asked = false;
        history_mute(store, conn, now_us);
        return;
    }
    conn_history(store, conn, call, now_us, TEXT(""), reply->text);
}

void
conn_time(struct store *store, struct conn *conn, const struct call *call,
    uint64_t now_us, const struct resp *reply)
{
    uint64_t seconds;
    uint64_t micros;

    if (reply->type != RESP_ARRAY || reply->count != 2 ||
        !text_to_u64(reply->item[0].text, UINT64_MAX / 2000000, &seconds) ||
        !text_to_u64(reply->item[1].text, 999999, &micros))
        return;
    history_clock(
        store, conn, seconds * 1000000 + micros, call->sent_us, now_us);
}

static void
conn_subscribe(struct store *store, struct conn *conn, uint64_t now_us)
{
    char channel[80];
    size_t len = strlen(store->channel);

    memcpy(channel, store->channel, len);
    memcpy(channel + len, store->settings.broker_id, 8);
    /* Nobody hears it yet. Scripts publish, and do without where they may not:
     * then nobody would say so. */
    CONN_SEND(store, conn, CALL_PUBLISH, now_us, TEXT("PUBLISH"),
        text_make(channel, len + 8), TEXT("?"));
    memcpy(channel + len, "watch", 5);
    CONN_SEND(store, conn, CALL_SUBSCRIBE, now_us, TEXT("SUBSCRIBE"),
        text_make(channel, len + 5));
    memcpy(channel + len, store->settings.broker_id, 8);
    struct call *call = CONN_SEND(store, conn, CALL_SUBSCRIBE, now_us,
        TEXT("SUBSCRIBE"), text_make(channel, len + 8));
    if (call != NULL)
        call->last = true;
}

void
conn_prepare(struct store *store, struct conn *conn, uint64_t now_us)
{
    char digits[20];
    struct call *call;

    conn_move(conn, CONN_PREPARING);
    if (conn->old_client_id != 0 &&
        memcmp(conn->old_run_id, conn->run_id, sizeof(conn->run_id)) == 0) {
        size_t len = text_from_u64(digits, conn->old_client_id);
        CONN_SEND(store, conn, CALL_KILL, now_us, TEXT("CLIENT"), TEXT("KILL"),
            TEXT("ID"), text_make(digits, len));
    }
    call = CONN_SEND(store, conn, CALL_NAME, now_us, TEXT("CLIENT"),
        TEXT("SETNAME"), TEXT("holdfastd"));
    if (conn_listens(store, conn)) {
        conn_subscribe(store, conn, now_us);
        return;
    }
    if (conn->stranger)
        route_ask_map(store, conn, now_us);
    if (!conn_is_ack(store, conn))
        scripts_load(store, conn, now_us);
    if (!list_empty(&conn->calls))
        call = container_of(conn->calls.prev, struct call, link);
    if (call != NULL)
        call->last = true;
}

void
conn_ready(struct store *store, struct conn *conn, uint64_t now_us)
{
    char name[80];

    conn->again = false;
    conn_move(conn, CONN_READY);
    /* Rights are a user's: they are looked at before anybody asks. */
    conn->unproved =
        conn_serves(store, conn) && (store->settings.username[0] != '\0' ||
                                        store->settings.password[0] != '\0');
    conn->probing = 0;
    health_grants(conn);
    conn->old_client_id = 0; /* the answer has come, so it is dead */
    conn->backoff_us = BACKOFF_MIN_US;
    if (conn_serves(store, conn)) {
        history_has_locks(store, conn);
        route_move_subscriber(store, now_us);
    }
    if (conn_is_ack(store, conn))
        replicas_begin(store, conn, now_us);
    if (store->slots_mapped == 0)
        store->map_next_us = 0; /* here is somebody to ask */
    log_write(LOG_INFO, "redis_link_ready",
        log_word("node", conn_name(store, conn, name, sizeof(name))),
        conn_use(store, conn));
}

/*
 * The handshake of a connection: who is there, whether it can be used, what it
 * needs before the first script call, and what INFO and TIME say of it later.
 */
#include "daemon/store/node/handshake.h"

#include "daemon/store/node/fault.h"
#include "daemon/store/node/link.h"
#include "daemon/store/node/link_life.h"
#include "daemon/store/node/trust.h"
#include "daemon/store/strict/replicas.h"
#include "daemon/store/topology/map.h"
#include "daemon/store/topology/route.h"
#include "daemon/store/topology/sentinel.h"

#include "daemon/base/assert.h"
#include "daemon/base/log.h"

static void
link_auth(struct store *store, struct link *link, uint64_t now_us,
    const char *username, const char *password)
{
    if (password[0] != '\0' && username[0] != '\0')
        LINK_SEND(store, link, CALL_AUTH, now_us, TEXT("AUTH"),
            text_from(username), text_from(password));
    else if (password[0] != '\0')
        LINK_SEND(
            store, link, CALL_AUTH, now_us, TEXT("AUTH"), text_from(password));
}

void
link_connected(struct store *store, struct link *link, uint64_t now_us)
{
    const struct store_settings *settings = &store->settings;

    if (link->state != LINK_CONNECTING)
        return;
    count(store->counters, COUNTER_redis_connects);
    link->state = LINK_GREETING;
    if (sentinel_is(store, link)) {
        link_auth(store, link, now_us, settings->sentinel_username,
            settings->sentinel_password);
        sentinel_greet(store, link, now_us);
    } else {
        link_auth(store, link, now_us, settings->username, settings->password);
        LINK_SEND(store, link, CALL_INFO, now_us, TEXT("INFO"));
        LINK_SEND(
            store, link, CALL_CLIENT_ID, now_us, TEXT("CLIENT"), TEXT("ID"));
        LINK_SEND(store, link, CALL_TIME, now_us, TEXT("TIME"));
    }
    if (list_empty(&link->calls)) {
        link_abandon(store, link, now_us, "greeting does not fit");
        return;
    }
    container_of(link->calls.prev, struct call, link)->last = true;
}

/* Whether another node of a quorum is that very process, by another name: it
 * must not have two votes at a time. */
static bool
is_another_node(
    const struct store *store, const struct link *link, struct text run_id)
{
    if (store->quorum == NULL || run_id.len == 0)
        return false;
    for (uint16_t i = 0; i < store->node_count; i++)
        if (i != link->node && store->links[i].named &&
            text_equal(run_id, text_from(store->links[i].run_id)))
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
info_objection(const struct store *store, const struct link *link,
    struct text info, struct text *said)
{
    bool cluster = text_equal(info_value(info, "cluster_enabled"), TEXT("1"));
    bool wanted = store->settings.topology == STORE_CLUSTER;

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
    if (is_another_node(store, link, info_value(info, "run_id")))
        return HEALTH_SAME_NODE;
    return HEALTH_FINE;
}

/* A master of the map that is a replica now has another one in its place. */
static void
link_set_role(struct store *store, struct link *link, struct text info)
{
    link->readonly = text_equal(info_value(info, "role"), TEXT("slave"));
    if (!link->readonly)
        return;
    link->demoted = store->settings.topology != STORE_CLUSTER;
    replicas_forget(&link->replicas); /* they are another one's */
    if (store->nodes[link->node].mapped)
        route_want_map(store);
}

/* What INFO says of the node's history; `run_id` is empty where it was asked
 * for replication alone. */
static void
link_history(struct store *store, struct link *link, const struct call *call,
    uint64_t now_us, struct text run_id, struct text info)
{
    bool settled = link->settled;

    trust_learn(store, link, run_id, info_value(info, "master_replid"),
        info_value(info, "master_replid2"), now_us);
    link_set_role(store, link, info);
    trust_vouch(store, link, call, info, settled, now_us);
}

void
link_info(struct store *store, struct link *link, const struct call *call,
    uint64_t now_us, const struct resp *reply)
{
    char name[80];
    struct text policy;
    struct text said;

    if (reply->type != RESP_STRING) {
        link_give_up(store, link, now_us, HEALTH_NO_REDIS,
            "the answer to INFO is no text");
        return;
    }
    enum health_reason wrong = info_objection(store, link, reply->text, &said);
    if (wrong != HEALTH_FINE) {
        link_unfit(store, link, now_us, wrong, said);
        return;
    }
    link->named = true;
    link_history(store, link, call, now_us, info_value(reply->text, "run_id"),
        reply->text);
    policy = info_value(reply->text, "maxmemory_policy");
    if (!text_equal(policy, TEXT("noeviction")) && policy.len > 0)
        log_write(LOG_WARN, "redis_may_evict_locks",
            log_word("node", link_name(store, link, name, sizeof(name))),
            log_span("maxmemory_policy", policy),
            log_quoted("advice", TEXT("set maxmemory-policy noeviction: an "
                                      "evicted lock is held twice")));
}

void
link_ids(struct store *store, struct link *link, const struct call *call,
    uint64_t now_us, const struct resp *reply)
{
    if (reply->type != RESP_STRING) {
        link->ids_asked = false;
        trust_mute(store, link, now_us);
        return;
    }
    link_history(store, link, call, now_us, TEXT(""), reply->text);
}

void
link_time(struct store *store, struct link *link, const struct call *call,
    uint64_t now_us, const struct resp *reply)
{
    uint64_t seconds;
    uint64_t micros;

    if (reply->type != RESP_ARRAY || reply->count != 2 ||
        !text_to_u64(reply->item[0].text, UINT64_MAX / 2000000, &seconds) ||
        !text_to_u64(reply->item[1].text, 999999, &micros))
        return;
    trust_clock(store, link, seconds * 1000000 + micros, call->sent_us, now_us);
}

static void
link_subscribe(struct store *store, struct link *link, uint64_t now_us)
{
    char channel[80];
    size_t len = strlen(store->channel);

    memcpy(channel, store->channel, len);
    memcpy(channel + len, store->settings.broker_id, 8);
    /* Nobody hears it yet. Scripts publish, and do without where they may not:
     * then nobody would say so. */
    LINK_SEND(store, link, CALL_PUBLISH, now_us, TEXT("PUBLISH"),
        text_make(channel, len + 8), TEXT("?"));
    memcpy(channel + len, "watch", 5);
    LINK_SEND(store, link, CALL_SUBSCRIBE, now_us, TEXT("SUBSCRIBE"),
        text_make(channel, len + 5));
    memcpy(channel + len, store->settings.broker_id, 8);
    struct call *call = LINK_SEND(store, link, CALL_SUBSCRIBE, now_us,
        TEXT("SUBSCRIBE"), text_make(channel, len + 8));
    if (call != NULL)
        call->last = true;
}

void
link_prepare(struct store *store, struct link *link, uint64_t now_us)
{
    char digits[20];
    struct call *call;

    link->state = LINK_PREPARING;
    if (link->old_client_id != 0 &&
        memcmp(link->old_run_id, link->run_id, sizeof(link->run_id)) == 0) {
        size_t len = text_from_u64(digits, link->old_client_id);
        LINK_SEND(store, link, CALL_KILL, now_us, TEXT("CLIENT"), TEXT("KILL"),
            TEXT("ID"), text_make(digits, len));
    }
    call = LINK_SEND(store, link, CALL_NAME, now_us, TEXT("CLIENT"),
        TEXT("SETNAME"), TEXT("holdfastd"));
    if (link_listens(store, link)) {
        link_subscribe(store, link, now_us);
        return;
    }
    if (link->stranger)
        route_ask_map(store, link, now_us);
    if (!link_is_witness(store, link))
        link_load_scripts(store, link, now_us);
    if (!list_empty(&link->calls))
        call = container_of(link->calls.prev, struct call, link);
    if (call != NULL)
        call->last = true;
}

void
link_ready(struct store *store, struct link *link, uint64_t now_us)
{
    char name[80];

    link->state = LINK_READY;
    link->again = false;
    /* Rights are a user's: they are looked at before anybody asks. */
    link->unproved =
        link_serves(store, link) && (store->settings.username[0] != '\0' ||
                                        store->settings.password[0] != '\0');
    link->probing = 0;
    health_grants(link);
    link->old_client_id = 0; /* the answer has come, so it is dead */
    link->backoff_us = BACKOFF_MIN_US;
    if (link_serves(store, link)) {
        trust_has_locks(store, link);
        route_move_subscriber(store, now_us);
    }
    if (link_is_witness(store, link))
        replicas_begin(store, link, now_us);
    if (store->slots_mapped == 0)
        store->map_next_us = 0; /* here is somebody to ask */
    log_write(LOG_INFO, "redis_link_ready",
        log_word("node", link_name(store, link, name, sizeof(name))),
        link_use(store, link));
}

/*
 * The life of one connection to a node: connect, ask who is there, have the
 * predecessor killed, load the scripts, be ready; be lost, wait, connect again.
 *
 *   DOWN -> CONNECTING -> GREETING -> PREPARING -> READY
 *     ^--------- error, time-out, not what we need ----'
 *
 * Replies come in order: nothing is sooner than the answer to the oldest call.
 * Where that takes longer than the command time-out, the link is late. Nothing
 * more is sent then. Operations are given back when their own time is over; a
 * renewal has a lease. A late answer ends that. A connection in use is given up
 * after a third of a lease without an answer. A dead host or a lost path is
 * noticed sooner: TCP gets no acknowledgement. Greetings begin with the command
 * time-out. Each greeting that fails by it doubles the time of the next one.
 *
 * See DESIGN.md D8.5.
 */
#include "daemon/store/bid.h"
#include "daemon/store/fault.h"
#include "daemon/store/map.h"
#include "daemon/store/mark.h"
#include "daemon/store/master.h"
#include "daemon/store/op_queue.h"
#include "daemon/store/strict.h"
#include "daemon/store/times.h"

#include "daemon/base/assert.h"
#include "daemon/base/log.h"

#include <inttypes.h>

#define BACKOFF_MIN_US 50000
#define BACKOFF_MAX_US 1000000
#define PING_AFTER_US  3000000
#define PING_LEAST_US  250000

void
link_init(struct link *link, uint32_t index)
{
    link->index = index;
    link->node = index < LINK_SUBSCRIBER ? (uint16_t)(index % STORE_NODES_MAX)
                                         : NODE_NONE;
    list_init(&link->calls);
    list_init(&link->held);
    link_forget(link);
}

/* Forgets the node. */
static void
trust_forget(struct link *link)
{
    memset(link->run_id, 0, sizeof(link->run_id));
    memset(link->id, 0, sizeof(link->id));
    link->settled = false;
    link->inherits = false;
    link->guessed = false;
    link->since_us = 0;
    link->mark_us = 0;
    link->clock_at_us = 0;
    link->risen_us = 0;
    link->rose_at_us = 0;
    memset(link->sources, 0, sizeof(link->sources));
}

/* It is another node's from now on. */
void
link_forget(struct link *link)
{
    link->old_client_id = 0;
    link->client_id = 0;
    link->retry_us = 0;
    link->peers_us = 0;
    link->differs = 0;
    link->backoff_us = BACKOFF_MIN_US;
    link->patience_us = 0;
    link->late_us = 0;
    link->idle_us = PING_AFTER_US;
    link->again = false;
    link->stranger = false;
    trust_forget(link);
}

const char *
link_name(const struct store *store, const struct link *link, char *out,
    size_t out_bytes)
{
    const struct store_address *address = &store->nodes[link->node].address;
    size_t len = strnlen(address->host, sizeof(address->host));
    char port[20];
    size_t port_len = text_from_u64(port, address->port);

    require(out_bytes > 30);
    if (len > out_bytes - 22)
        len = out_bytes - 22;
    for (size_t i = 0; i < len; i++) { /* a cluster has told it */
        char byte = address->host[i];
        bool plain = byte > ' ' && byte <= '~' && byte != '"' && byte != '=';
        out[i] = plain ? byte : '?';
    }
    out[len++] = ':';
    memcpy(out + len, port, port_len);
    out[len + port_len] = '\0';
    return out;
}

/* A command that is about to be written into link->out. */
struct call *
link_call(struct store *store, struct link *link, enum call_kind kind,
    uint64_t now_us)
{
    struct call *call = slab_alloc(&store->calls);

    require(call != NULL); /* sized for every link's limit */
    call->kind = kind;
    call->at_link = (uint16_t)link->index;
    call->sent_us = now_us;
    list_init(&call->ops);
    list_push_back(&link->calls, &call->link);
    link->call_count++;
    if (kind != CALL_ASKING && kind != CALL_MAP && kind != CALL_MARK &&
        kind != CALL_PROBE && kind != CALL_PEERS && kind != CALL_LIST)
        link->spoke_us = now_us;
    return call;
}

/* Of a call that is on no list of the link's any more, or is held. */
void
link_end_call(struct store *store, struct link *link, struct call *call)
{
    require(list_empty(&call->ops));
    list_remove(&call->link);
    link->batch_count -= call->kind == CALL_SCRIPT && call->said == NULL;
    link->bulk_count -= call->bulk && call->said == NULL;
    link->held_count -= call->said != NULL;
    link->loading -= call->kind == CALL_LOAD;
    confirm_release(call);
    slab_free(&store->calls, call);
}

static void
call_free(struct store *store, struct link *link, struct call *call)
{
    require(link->call_count > 0);
    link->call_count--;
    link_end_call(store, link, call);
}

bool
link_is_second(const struct link *link)
{
    return link->index >= LINK_WITNESS && link->index < LINK_SUBSCRIBER;
}

bool
link_answers(const struct link *link)
{
    return link->state == LINK_READY && !link->late;
}

/* Whether it asks what replicas have. */
bool
link_is_witness(const struct store *store, const struct link *link)
{
    return store->settings.strict && link_is_second(link);
}

/* Whether it subscribes to what brokers and scripts tell: one does, or at
 * masters that know nothing of one another one at each. */
static bool
link_listens(const struct store *store, const struct link *link)
{
    return store->quorum != NULL ? link_is_second(link)
                                 : link->index == LINK_SUBSCRIBER;
}

/* Sends a command of a few words; NULL where there is no room for it. */
struct call *
link_send(struct store *store, struct link *link, enum call_kind kind,
    uint64_t now_us, const struct text *words, size_t n)
{
    if (!resp_command(&link->out, words, n))
        return NULL;
    return link_call(store, link, kind, now_us);
}

static void
link_connect(struct store *store, struct link *link, uint64_t now_us)
{
    require(link->state == LINK_DOWN && list_empty(&link->calls));
    link->state = LINK_CONNECTING;
    link->serial++;
    link->wish_connect = true;
    link->opened = false;
    link->demoted = false;
    link->late = false;
    link->deadline_us = now_us + store->settings.connect_timeout_us;
    buffer_clear(&link->out);
}

/* What was on its way is unknown; what was not sent waits for a route. */
static void
link_drop_calls(struct store *store, struct link *link)
{
    while (!list_empty(&link->calls)) {
        struct call *call = container_of(link->calls.next, struct call, link);
        if (call->kind == CALL_SCRIPT)
            call_lost(store, call);
        if (call->kind == CALL_MAP)
            store->map_asked = false;
        call_free(store, link, call);
    }
    confirm_drop(store, link);
    buffer_clear(&link->out);
}

/* Only of a connection that was ready can a command still be asleep. */
static void
link_remember(struct link *link)
{
    link->old_client_id = link->client_id;
    memcpy(link->old_run_id, link->run_id, sizeof(link->old_run_id));
}

/*
 * A connection that was good has ended. One try to replace it is worth waiting
 * for. Where it was idle, Redis or a balancer may close idle connections: the
 * next ones are used more often.
 */
static void
link_was_good(struct link *link, uint64_t now_us)
{
    uint64_t idle_us = (now_us - link->spoke_us) / 2;

    link->again = true;
    if (!link->demoted && list_empty(&link->calls) &&
        idle_us >= PING_LEAST_US && idle_us < link->idle_us)
        link->idle_us = idle_us;
}

/*
 * What waits at a node whose connection is gone waits on, no longer than it
 * would without one, but for the one try that follows the loss of a good one.
 * What was to go there by ASK asks the slot's own node again.
 */
static void
op_wait_on(struct store *store, struct op *op, uint64_t now_us)
{
    uint16_t index = op->at_node;

    if (op->asking) {
        op_dequeue(store, op);
        op_park(store, op, now_us + BACKOFF_MIN_US);
    } else if (!store->links[index].again) {
        wheel_add(&store->wheel, &op->timer, op->give_up_us);
    }
}

/* sentinel.c */
static bool
sentinel_is(const struct store *store, const struct link *link)
{
    return link->index == LINK_SWITCHES ||
           (link->node != NODE_NONE && store->nodes[link->node].sentinel);
}

/* What the log says of a connection that carries no operations. */
static const char *
link_use(const struct store *store, const struct link *link)
{
    return link_listens(store, link)      ? " use=hints"
           : sentinel_is(store, link)     ? " use=sentinel"
           : link_is_witness(store, link) ? " use=replicas"
                                          : "";
}

/* The connection is gone, or must go; HEALTH_FINE: that is no fault of the
 * node, or its fault is known. */
void
link_lost(struct store *store, struct link *link, uint64_t now_us,
    enum health_reason reason, const char *why)
{
    char name[80];
    char quoted[160];
    bool was_ready = link->state == LINK_READY;

    if (link->state == LINK_DOWN)
        return;
    bool news = reason != HEALTH_FINE &&
                health_fault(link, reason, text_from(why), now_us);
    news = news || was_ready || link->backoff_us == BACKOFF_MIN_US;
    if (link->state != LINK_CONNECTING)
        count(store->counters, COUNTER_redis_disconnects);
    log_write(news ? LOG_WARN : LOG_DEBUG, "redis_link_lost",
        "node=%s%s why=%s", link_name(store, link, name, sizeof(name)),
        link_use(store, link),
        log_quote(quoted, sizeof(quoted), text_from(why)));
    link->again = false;
    if (link_answers(link) && (!link->wish_close || link->demoted))
        link_was_good(link, now_us);
    link->state = LINK_DOWN;
    link->late = false;
    link->named = false;
    if (was_ready && link->client_id != 0)
        link_remember(link);
    link->client_id = 0;
    link_drop_calls(store, link);
    link->retry_us = now_us + store_jitter(store, link->backoff_us);
    link->backoff_us = link->backoff_us * 2 > BACKOFF_MAX_US
                           ? BACKOFF_MAX_US
                           : link->backoff_us * 2;
    if (link->index >= LINK_SUBSCRIBER) {
        link->node = NODE_NONE;
        return;
    }
    if (link_is_second(link))
        return;
    trust_mute(store, link, now_us);
    lane_each(store, &store->nodes[link->node], now_us, op_wait_on);
    if (store->settings.topology == STORE_CLUSTER)
        route_want_map(store);
    else if (store->settings.topology == STORE_SENTINEL &&
             !sentinel_is(store, link) &&
             (store->master == link->node || store->master == NODE_NONE))
        sentinel_resolve(store, now_us);
}

static void
link_give_up(struct store *store, struct link *link, uint64_t now_us,
    enum health_reason reason, const char *why)
{
    link->wish_close = true;
    link->wish_connect = false;
    link_lost(store, link, now_us, reason, why);
}

/* Gives the connection up from our side, for no fault of the node, or for one
 * that is known. */
void
link_abandon(
    struct store *store, struct link *link, uint64_t now_us, const char *why)
{
    link_give_up(store, link, now_us, HEALTH_FINE, why);
}

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

/* The value of "key:" in INFO's text; empty where it is not there. */
struct text
info_value(struct text info, const char *key)
{
    size_t key_len = strlen(key);
    const char *at = info.at;
    const char *end = info.at + info.len;

    while (at < end) {
        const char *eol = memchr(at, '\n', (size_t)(end - at));
        if (eol == NULL)
            eol = end;
        if ((size_t)(eol - at) > key_len && at[key_len] == ':' &&
            memcmp(at, key, key_len) == 0) {
            const char *value = at + key_len + 1;
            size_t len = (size_t)(eol - value);
            if (len > 0 && value[len - 1] == '\r')
                len--;
            return text_make(value, len);
        }
        at = eol + 1;
    }
    return TEXT("");
}

void
copy_id(char out[41], struct text value)
{
    memset(out, 0, 41);
    memcpy(out, value.at, value.len > 40 ? 40 : value.len);
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

/* Said once in a while, as long as it is the same. */
void
link_unfit(struct store *store, struct link *link, uint64_t now_us,
    enum health_reason reason, struct text said)
{
    struct health_why why = {.reason = reason};
    char name[80];
    char text[HEALTH_TEXT_MAX];

    if (health_fault(link, reason, said, now_us))
        log_write(LOG_ERROR, "redis_unfit", "node=%s reason=%s why=\"%s\"",
            link_name(store, link, name, sizeof(name)), health_word(reason),
            health_text(&why, false, text));
    link->backoff_us = BACKOFF_MAX_US / 2;
    link_abandon(store, link, now_us, "it does not fit");
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

static void
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
            "node=%s maxmemory_policy=%.*s advice=\"set maxmemory-policy "
            "noeviction: an evicted lock is held twice\"",
            link_name(store, link, name, sizeof(name)), (int)policy.len,
            policy.at);
}

/* INFO of a connection that is in use. */
static void
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

bool
link_ask_ids(struct store *store, struct link *link, uint64_t now_us)
{
    return LINK_SEND(store, link, CALL_IDS, now_us, TEXT("INFO"),
               TEXT("replication")) != NULL;
}

/* Reads the marker, or writes it where there is a value. */
void
link_mark(struct store *store, struct link *link, uint64_t now_us,
    struct text key, struct text value)
{
    struct call *call =
        value.len == 0
            ? LINK_SEND(store, link, CALL_MARK, now_us, TEXT("GET"), key)
            : LINK_SEND(store, link, CALL_MARK, now_us, TEXT("SET"), key, value,
                  TEXT("GET"));

    if (call != NULL)
        call->writes = value.len > 0;
}

/* Puts TIME against our clock. */
static void
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

void
link_load_script(
    struct store *store, struct link *link, enum script_id id, uint64_t now_us)
{
    struct call *call =
        LINK_SEND(store, link, CALL_LOAD, now_us, TEXT("SCRIPT"), TEXT("LOAD"),
            text_make(scripts[id].body, scripts[id].body_len));

    if (call == NULL)
        return;
    call->optional = id >= SCRIPTS_AT_ONCE;
    link->loading++;
}

void
link_load_scripts(struct store *store, struct link *link, uint64_t now_us)
{
    if (link->loading > 0)
        return;
    for (int i = 0; i < SCRIPTS_AT_ONCE; i++)
        link_load_script(store, link, (enum script_id)i, now_us);
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

/* The greeting was answered: now what has to be done before any script call. */
static void
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

/* Whether operations go there. */
static bool
link_serves(const struct store *store, const struct link *link)
{
    return link->index < LINK_WITNESS && !sentinel_is(store, link);
}

static void
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
    log_write(LOG_INFO, "redis_link_ready", "node=%s%s",
        link_name(store, link, name, sizeof(name)), link_use(store, link));
}

/* What the core understands. */
static void
link_news(struct store *store, struct text news)
{
    if (store->news_count == NEWS_MAX ||
        sizeof(store->news_text) - store->news_len < news.len) {
        store->unheard = true;
        return;
    }
    memcpy(store->news_text + store->news_len, news.at, news.len);
    store->news[store->news_count++] =
        text_make(store->news_text + store->news_len, news.len);
    store->news_len += news.len;
}

static void
link_message(
    struct store *store, const struct link *link, const struct resp *reply)
{
    struct text payload = reply->item[2].text;
    char moved[13]; /* M, a request, and four bytes */

    if (payload.len > 1 && memchr("WDVKMQA", payload.at[0], 7) != NULL) {
        if (store->quorum != NULL && payload.at[0] == 'W')
            quorum_news(
                store, link->node, text_make(payload.at + 1, payload.len - 1));
        if (store->quorum != NULL && payload.at[0] == 'M' &&
            payload.len == sizeof(moved)) {
            memcpy(moved, payload.at, sizeof(moved));
            quorum_moved(store, moved + 1);
            payload.at = moved;
        }
        link_news(store, payload);
        return;
    }
    if (store->quorum != NULL && payload.len > 9 && payload.at[0] == 'T' &&
        memcmp(payload.at + 1, store->settings.broker_id, 8) != 0)
        quorum_wanted(store, text_make(payload.at + 9, payload.len - 9));
    if (payload.len != 17 || (payload.at[0] != 'G' && payload.at[0] != 'B'))
        return;
    if (store->hint_count == HINTS_MAX) {
        store->unheard = true;
        return;
    }
    struct store_hint *hint = &store->hints[store->hint_count++];
    double fence;
    hint->broken = payload.at[0] == 'B';
    memcpy(&hint->request, payload.at + 1, 8);
    memcpy(&fence, payload.at + 9, 8);
    hint->fence = fence > 0 && fence < 0x1p53 ? (uint64_t)fence : 0;
    if (store->quorum != NULL)
        quorum_hint(store, hint);
}

/* True where the reply was a message and not the answer to a call. */
static bool
link_published(struct store *store, const struct link *link, uint64_t now_us,
    const struct resp *reply)
{
    if (link->index < LINK_WITNESS || reply->type != RESP_ARRAY ||
        reply->count != 3 || !text_equal(reply->item[0].text, TEXT("message")))
        return false;
    if (link_listens(store, link))
        link_message(store, link, reply);
    else
        sentinel_hint(store, now_us);
    return true;
}

static const char *const call_words[] = {
    [CALL_SCRIPT] = "EVALSHA",
    [CALL_ASKING] = "ASKING",
    [CALL_AUTH] = "AUTH",
    [CALL_INFO] = "INFO",
    [CALL_IDS] = "INFO",
    [CALL_MARK] = "SET",
    [CALL_CLIENT_ID] = "CLIENT_ID",
    [CALL_TIME] = "TIME",
    [CALL_KILL] = "CLIENT_KILL",
    [CALL_NAME] = "CLIENT_SETNAME",
    [CALL_LOAD] = "SCRIPT_LOAD",
    [CALL_MAP] = "CLUSTER_SLOTS",
    [CALL_MASTER] = "SENTINEL",
    [CALL_SUBSCRIBE] = "SUBSCRIBE",
    [CALL_PING] = "PING",
    [CALL_WRITE] = "PEXPIRE",
    [CALL_ROLE] = "ROLE",
    [CALL_WAIT] = "WAIT",
    [CALL_MYID] = "CLUSTER_MYID",
    [CALL_MEMBERS] = "CLUSTER_REPLICAS",
    [CALL_REPLICAS] = "INFO",
    [CALL_PROBE] = "EVALSHA",
    [CALL_PEERS] = "SET",
    [CALL_LIST] = "SET",
    [CALL_PUBLISH] = "PUBLISH",
};

/* The command, as the log has it. */
const char *
call_word(enum call_kind kind)
{
    return call_words[kind];
}

/* Until when the oldest call's answer is in time. */
static uint64_t
link_in_time_us(const struct store *store, const struct link *link)
{
    if (list_empty(&link->calls))
        return WHEEL_NEVER;
    return container_of(link->calls.next, struct call, link)->sent_us +
           store->settings.command_timeout_us;
}

static void
link_refused(struct store *store, struct link *link, uint64_t now_us,
    const struct call *call, const struct resp *reply)
{
    enum health_reason reason = health_of_error(reply->text);
    char name[80];
    char text[200];

    if (call->kind == CALL_MASTER && reason == HEALTH_COMMAND)
        reason = HEALTH_NO_SENTINEL;
    if (health_fault(link, reason, reply->text, now_us))
        log_write(LOG_ERROR, "redis_refuses",
            "node=%s%s command=%s reason=%s error=%s",
            link_name(store, link, name, sizeof(name)), link_use(store, link),
            call_word(call->kind), health_word(reason),
            log_quote(text, sizeof(text), reply->text));
    link_abandon(store, link, now_us, "it refuses the handshake");
}

/* Whether Redis does not know the command, or does not allow it. */
static bool
is_missing(const struct resp *reply)
{
    if (reply->type != RESP_ERROR)
        return false;
    enum health_reason reason = health_of_error(reply->text);
    return reason == HEALTH_COMMAND || reason == HEALTH_RIGHTS;
}

/* Locks do without that command, at a price: said once a minute. */
static void
link_misses(struct store *store, struct link *link, uint64_t now_us,
    const struct call *call, const struct resp *reply)
{
    const char *effect =
        call->kind == CALL_NAME ? "CLIENT LIST shows no name"
        : call->kind == CALL_PUBLISH
            ? "clients of other daemons get a lock late: seconds, not ms"
            : "what sleeps in a lost connection is not killed, and may take a "
              "lock late, for nobody, until its lease ends";
    uint32_t bit = 1u << call->kind;
    char name[80];
    char text[200];

    if ((link->missing & bit) != 0 && now_us < link->missing_us + SAID_AGAIN_US)
        return;
    link->missing |= bit;
    link->missing_us = now_us;
    log_write(LOG_WARN, "redis_command_missing",
        "node=%s command=%s effect=\"%s\" error=%s",
        link_name(store, link, name, sizeof(name)), call_word(call->kind),
        effect, log_quote(text, sizeof(text), reply->text));
}

/* A command was refused for good: true, the node is of no use without it. */
static bool
link_lacks(struct store *store, struct link *link, uint64_t now_us,
    const struct call *call, const struct resp *reply)
{
    enum call_kind kind = call->kind;

    if (kind == CALL_TIME || kind == CALL_MAP) {
        link_refused(store, link, now_us, call, reply);
        return true;
    }
    if (kind == CALL_PUBLISH ||
        (link_serves(store, link) &&
            (kind == CALL_CLIENT_ID || kind == CALL_KILL || kind == CALL_NAME)))
        link_misses(store, link, now_us, call, reply);
    return false;
}

static void
link_client_id(struct link *link, const struct resp *reply)
{
    if (reply->type == RESP_INTEGER && reply->integer > 0)
        link->client_id = (uint64_t)reply->integer;
}

static void
link_take(struct store *store, struct link *link, struct call *call,
    uint64_t now_us, const struct resp *reply)
{
    bool error = reply->type == RESP_ERROR;

    if (is_missing(reply) && link_lacks(store, link, now_us, call, reply))
        return;
    switch (call->kind) {
    case CALL_SCRIPT:
        call_script_reply(store, link, call, now_us, reply);
        break;
    case CALL_INFO:
        if (sentinel_is(store, link))
            sentinel_info(store, link, reply);
        else if (error)
            link_refused(store, link, now_us, call, reply);
        else
            link_info(store, link, call, now_us, reply);
        break;
    case CALL_IDS:
        link_ids(store, link, call, now_us, reply);
        break;
    case CALL_MARK:
        trust_marked(store, link, call->writes, reply, now_us);
        break;
    case CALL_CLIENT_ID:
        link_client_id(link, reply);
        break;
    case CALL_TIME:
        link_time(store, link, call, now_us, reply);
        break;
    case CALL_MAP:
        route_map_reply(store, link, now_us, reply);
        break;
    case CALL_AUTH:
    case CALL_LOAD:
        /* Whoever needs a script that not everybody does is refused again. */
        if (error && !call->optional)
            link_refused(store, link, now_us, call, reply);
        break;
    case CALL_SUBSCRIBE:
        if (error)
            link_refused(store, link, now_us, call, reply);
        else if (call->last && link_listens(store, link))
            store->unheard = true;
        break;
    case CALL_MASTER:
        if (error)
            link_refused(store, link, now_us, call, reply);
        else
            sentinel_reply(store, link, call, now_us, reply);
        break;
    case CALL_WRITE:
    case CALL_ROLE:
    case CALL_WAIT:
    case CALL_MYID:
    case CALL_MEMBERS:
    case CALL_REPLICAS:
        replicas_reply(store, link, call, now_us, reply);
        break;
    case CALL_PROBE:
        call_probed(store, link, now_us, reply);
        break;
    case CALL_PEERS:
    case CALL_LIST:
        peers_reply(store, link, call, reply, now_us);
        break;
    case CALL_ASKING:
    case CALL_KILL:
    case CALL_NAME:
    case CALL_PING:
    case CALL_PUBLISH:
        break;
    }
}

/* An unknown command is answered with its words: the password, of an AUTH that
 * somebody has renamed. */
static struct text
without_words(struct text error)
{
    struct text words = TEXT(", with args");

    for (size_t i = 0; i < error.len; i++)
        if (text_starts_with(text_make(error.at + i, error.len - i), words))
            return text_make(error.at, i);
    return error;
}

/* Before it closes a connection Redis may say why. */
static void
link_fault_unasked(struct store *store, struct link *link, uint64_t now_us,
    const struct resp *reply)
{
    enum health_reason reason = reply->type == RESP_ERROR
                                    ? health_of_error(reply->text)
                                    : HEALTH_NO_REDIS;

    link_give_up(store, link, now_us, reason, "it sends what nobody asked for");
}

/*
 * What was a master is a replica now. Its name, or a balancer, may lead to
 * another node, which a connection that stands never finds out: so it ends.
 * Hints are told by the node that is the master.
 */
static void
link_leave(struct store *store, struct link *link, uint64_t now_us)
{
    struct link *hints = &store->links[LINK_SUBSCRIBER];

    if (hints != link && hints->node == link->node)
        link_abandon(store, hints, now_us, "its node is no master now");
    link_give_up(store, link, now_us, HEALTH_REPLICA, "it is a replica now");
}

void
link_reply(struct store *store, struct link *link, uint64_t now_us,
    const struct resp *reply)
{
    if (link_published(store, link, now_us, reply))
        return;
    if (list_empty(&link->calls)) {
        link_fault_unasked(store, link, now_us, reply);
        return;
    }
    struct call *call = container_of(link->calls.next, struct call, link);
    uint32_t serial = link->serial;
    bool last = call->last;
    struct resp told = *reply;

    if (now_us < call->sent_us + store->settings.command_timeout_us)
        link->patience_us = 0;
    if (told.type == RESP_ERROR) {
        told.text = without_words(told.text);
        link->demoted |= text_starts_with(told.text, TEXT("READONLY "));
    }
    link_take(store, link, call, now_us, &told);
    if (link->state == LINK_DOWN || link->serial != serial)
        return; /* given up, and the call with it */
    if (call->said != NULL) {
        list_remove(&call->link);
        link->call_count--;
        link->batch_count--;
        link->bulk_count -= call->bulk;
        link->held_count++;
        list_push_back(&link->held, &call->link);
    } else {
        call_free(store, link, call);
    }
    link->late = link->late && now_us >= link_in_time_us(store, link);
    if (last && link->state == LINK_GREETING && !sentinel_is(store, link))
        link_prepare(store, link, now_us);
    else if (last && link->state != LINK_READY)
        link_ready(store, link, now_us);
    if (link->demoted)
        link_leave(store, link, now_us);
}

/*
 * A node that can be talked to, one with slots rather than a seed that may have
 * left the cluster; NODE_NONE: there is none now.
 */
uint16_t
link_subscriber_host(const struct store *store)
{
    uint16_t found = NODE_NONE;

    for (uint16_t i = 0; i < store->node_count; i++) {
        if (!store->nodes[i].used || store->nodes[i].sentinel ||
            !link_answers(&store->links[i]))
            continue;
        if (store->nodes[i].mapped)
            return i;
        if (found == NODE_NONE)
            found = i;
    }
    return found;
}

/* Any Sentinel that answers. */
static uint16_t
switches_host(const struct store *store)
{
    for (uint16_t i = 0; i < store->node_count; i++)
        if (store->nodes[i].used && store->nodes[i].sentinel &&
            store->links[i].state == LINK_READY)
            return i;
    return NODE_NONE;
}

/* Of a node's link: whether a second one is wanted beside it. */
static bool
link_wants_second(const struct link *link)
{
    return link->state == LINK_READY && !link->readonly;
}

/* Which node a link that is down is to connect to; NODE_NONE: to none now. */
static uint16_t
link_host(const struct store *store, const struct link *link)
{
    if (link->index == LINK_SUBSCRIBER)
        return store->quorum != NULL ? NODE_NONE : link_subscriber_host(store);
    if (link->index == LINK_SWITCHES)
        return switches_host(store);
    if (link_is_second(link))
        return link_wants_second(&store->links[link->node]) ? link->node
                                                            : NODE_NONE;
    /* Of several that Sentinels may name only the master is one. */
    if (store->settings.topology == STORE_SENTINEL &&
        !store->nodes[link->node].sentinel && link->node != store->master)
        return NODE_NONE;
    return link->node;
}

/* Whether it asks a Sentinel who the master is. */
static bool
link_polls(const struct store *store, const struct link *link)
{
    return sentinel_is(store, link) && link->index != LINK_SWITCHES;
}

/* Whether late answers count: those to renewals do, and no other node would
 * tell hints sooner. */
static bool
link_may_be_late(const struct store *store, const struct link *link)
{
    bool elsewhere = store->settings.topology == STORE_CLUSTER &&
                     link->index == LINK_SUBSCRIBER;

    return link->state == LINK_READY && !sentinel_is(store, link) && !elsewhere;
}

/* Until when the oldest call is waited for. */
static uint64_t
link_until_us(const struct store *store, const struct link *link)
{
    uint64_t wait_us = store_silence_us(store);

    if (!link_may_be_late(store, link) && link->patience_us == 0)
        wait_us = store->settings.command_timeout_us;
    else if (!link_may_be_late(store, link))
        wait_us = link->patience_us;
    return container_of(link->calls.next, struct call, link)->sent_us + wait_us;
}

/* It may be slow, or stopped, or have been replaced: whoever knows of another
 * node in its place is asked. */
static void
link_is_late(struct store *store, struct link *link, uint64_t now_us)
{
    uint64_t timeout_ms = store->settings.command_timeout_us / 1000;
    char name[80];

    link->late = true;
    count(store->counters, COUNTER_redis_timeouts);
    if (link_serves(store, link) &&
        (link->late_us == 0 || now_us >= link->late_us + SAID_AGAIN_US)) {
        link->late_us = now_us;
        log_write(LOG_WARN, "redis_late",
            "node=%s waited_ms=%" PRIu64 " advice=\"Redis answers later than "
            "redis.command_timeout: see SLOWLOG GET, or raise it\"",
            link_name(store, link, name, sizeof(name)), timeout_ms);
    }
    LIST_EACH (at, &link->calls) {
        struct call *call = container_of(at, struct call, link);
        if (call->kind != CALL_MAP)
            continue;
        call->kind = CALL_PING; /* another node is asked */
        store->map_asked = false;
    }
    if (link_serves(store, link))
        trust_mute(store, link, now_us);
    route_want_map(store);
}

/* Operations whose time is over are given back. Their calls' answers count no
 * more. */
static void
link_give_back(struct store *store, const struct link *link, uint64_t now_us)
{
    LIST_EACH (at, &link->calls) {
        struct call *call = container_of(at, struct call, link);
        if (now_us < call->sent_us + store->settings.command_timeout_us)
            return;
        if (now_us >= call_due_us(store, call))
            call_lost(store, call);
    }
}

/* Calls are under way. */
static void
link_await(struct store *store, struct link *link, uint64_t now_us)
{
    if (now_us < link_in_time_us(store, link))
        return;
    bool replaced = link->index < LINK_WITNESS &&
                    store->settings.topology == STORE_CLUSTER &&
                    !store->nodes[link->node].mapped;
    uint64_t until_us = link_until_us(store, link);
    if (now_us >= until_us || replaced) {
        uint64_t patience_us = 2 * link->patience_us;
        if (patience_us == 0)
            patience_us = 2 * store->settings.command_timeout_us;
        link->patience_us = patience_us < store_silence_us(store)
                                ? patience_us
                                : store_silence_us(store);
        if (!link->late)
            count(store->counters, COUNTER_redis_timeouts);
        link_give_up(store, link, now_us, HEALTH_SILENT, "no answer in time");
        return;
    }
    if (!link->late && link_may_be_late(store, link))
        link_is_late(store, link, now_us);
    link_give_back(store, link, now_us);
}

/* When to look at calls under way again. */
static uint64_t
link_await_us(const struct store *store, const struct link *link)
{
    uint64_t next_us = link_in_time_us(store, link);

    if (!link->late &&
        (link_may_be_late(store, link) || link->patience_us == 0))
        return next_us;
    next_us = link_until_us(store, link);
    LIST_EACH (at, &link->calls) {
        const struct call *call = container_of(at, struct call, link);
        uint64_t due_us = call_due_us(store, call);
        next_us = due_us < next_us ? due_us : next_us;
    }
    return next_us;
}

static void
link_down_tick(struct store *store, struct link *link, uint64_t now_us)
{
    uint16_t host = link_host(store, link);

    if (now_us < link->retry_us || host == NODE_NONE)
        return;
    link->node = host;
    link_connect(store, link, now_us);
}

static void
link_connecting_tick(struct store *store, struct link *link, uint64_t now_us)
{
    if (now_us < link->deadline_us)
        return;
    if (link->opened)
        link_give_up(store, link, now_us, HEALTH_TLS_FAILED,
            "no answer to the TLS handshake in time");
    else
        link_give_up(
            store, link, now_us, HEALTH_SILENT, "connecting takes too long");
}

void
link_tick(struct store *store, struct link *link, uint64_t now_us)
{
    if (link->state == LINK_DOWN) {
        link_down_tick(store, link, now_us);
        return;
    }
    if (link_is_second(link) && !link_wants_second(&store->links[link->node])) {
        link_abandon(store, link, now_us, "nothing is asked there");
        return;
    }
    if (link->state == LINK_CONNECTING) {
        link_connecting_tick(store, link, now_us);
        return;
    }
    if (link_answers(link) && link_serves(store, link))
        trust_tick(store, link, now_us);
    if (link->state == LINK_READY && link_serves(store, link))
        peers_tick(store, link, now_us);
    if (link->state == LINK_READY && link_serves(store, link))
        confirm_tick(store, link, now_us);
    if (!list_empty(&link->calls)) {
        link_await(store, link, now_us);
        return;
    }
    if (link->state == LINK_READY && link_polls(store, link)) {
        sentinel_link_tick(store, link, now_us);
        return;
    }
    if (link->state == LINK_READY && link_is_witness(store, link)) {
        if (now_us >= replicas_due_us(store, link))
            confirm_ask(store, &store->links[link->node], now_us);
        return;
    }
    if (link->state != LINK_READY || now_us < link->spoke_us + link->idle_us)
        return;
    if (!link_serves(store, link)) {
        LINK_SEND(store, link, CALL_PING, now_us, TEXT("PING"));
        return;
    }
    /* Who has long asked nothing has to hear of it where the clock steps, or
     * the history is another one; and of a replica that has taken over. */
    if (store->settings.settle_us > 0 || link->readonly)
        (void)link_ask_ids(store, link, now_us);
    LINK_SEND(store, link, CALL_TIME, now_us, TEXT("TIME"));
}

uint64_t
link_next_us(const struct store *store, const struct link *link)
{
    switch (link->state) {
    case LINK_DOWN:
        return link_host(store, link) == NODE_NONE ? WHEEL_NEVER
                                                   : link->retry_us;
    case LINK_CONNECTING:
        return link->deadline_us;
    case LINK_GREETING:
    case LINK_PREPARING:
    case LINK_READY:
        break;
    }
    uint64_t due_us;
    if (!list_empty(&link->calls))
        due_us = link_await_us(store, link);
    else if (link_polls(store, link))
        return sentinel_ask_due_us(store, link);
    else if (link_is_witness(store, link))
        due_us = replicas_due_us(store, link);
    else
        due_us = link->spoke_us + link->idle_us;
    if (link->state != LINK_READY || !link_serves(store, link))
        return due_us;
    uint64_t next_us = link->late ? WHEEL_NEVER : trust_next_us(store, link);
    uint64_t confirm_us = confirm_next_us(store, link);
    uint64_t peers_us = peers_next_us(store, link);
    next_us = next_us < confirm_us ? next_us : confirm_us;
    next_us = next_us < peers_us ? next_us : peers_us;
    return next_us < due_us ? next_us : due_us;
}

bool
route_is_at(const struct node *node, struct text host, uint16_t port)
{
    return node->address.port == port &&
           strlen(node->address.host) == host.len &&
           memcmp(node->address.host, host.at, host.len) == 0;
}

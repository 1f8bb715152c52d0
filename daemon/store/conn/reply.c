/*
 * Input of a connection: answers to calls, each to the file that has asked, and
 * messages of brokers and scripts.
 */
#include "daemon/store/conn/life.h"

#include "daemon/store/node/conn.h"
#include "daemon/store/node/history.h"
#include "daemon/store/node/route.h"
#include "daemon/store/node/script.h"
#include "daemon/store/queue/queue.h"
#include "daemon/store/strict/strict.h"

#include "daemon/base/assert.h"
#include "daemon/base/log.h"

/* News for the core. */
static void
conn_news(struct store *store, struct text news)
{
    /* That a ticket waits before a quorum is told again. */
    if (news.at[0] == 'T' && store->news_count > NEWS_MAX / 2)
        return;
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

/* The core's request, of the one that a message has there. */
static uint64_t
request_told(const struct store *store, const char *at)
{
    uint64_t request;

    memcpy(&request, at, sizeof(request));
    return store->topology->request != NULL
               ? store->topology->request(store, request)
               : request;
}

static void
conn_message(
    struct store *store, const struct conn *conn, const struct resp *reply)
{
    struct text payload = reply->item[2].text;
    char moved[13]; /* M, a request, and four bytes */

    if (store->topology->heard != NULL)
        store->topology->heard(store, conn->node, payload);
    if (payload.len > 1 && memchr("WDVKMQATPI", payload.at[0], 10) != NULL) {
        if (payload.at[0] == 'M' && payload.len == sizeof(moved)) {
            uint64_t request = request_told(store, payload.at + 1);
            memcpy(moved, payload.at, sizeof(moved));
            memcpy(moved + 1, &request, sizeof(request));
            payload.at = moved;
        }
        conn_news(store, payload);
        return;
    }
    if (payload.len != 17 || (payload.at[0] != 'G' && payload.at[0] != 'B'))
        return;
    if (store->hint_count == HINTS_MAX) {
        store->unheard = true;
        return;
    }
    struct store_hint *hint = &store->hints[store->hint_count++];
    double fence;
    hint->broken = payload.at[0] == 'B';
    hint->request = request_told(store, payload.at + 1);
    memcpy(&fence, payload.at + 9, 8);
    hint->fence = fence > 0 && fence < 0x1p53 ? (uint64_t)fence : 0;
}

/* True where the reply was a message and not the answer to a call. */
static bool
conn_published(struct store *store, const struct conn *conn, uint64_t now_us,
    const struct resp *reply)
{
    if (conn->index < CONN_ACK || reply->type != RESP_ARRAY ||
        reply->count != 3 || !text_equal(reply->item[0].text, TEXT("message")))
        return false;
    if (conn_listens(store, conn))
        conn_message(store, conn, reply);
    else
        sentinel_hint(store, now_us);
    return true;
}

static void
conn_refused(struct store *store, struct conn *conn, uint64_t now_us,
    const struct call *call, const struct resp *reply)
{
    enum health_reason reason = health_of_error(reply->text);
    char name[80];

    if (call->kind == CALL_MASTER && reason == HEALTH_COMMAND)
        reason = HEALTH_NO_SENTINEL;
    if (health_fault(conn, reason, reply->text, now_us))
        log_write(LOG_ERROR, "redis_refuses",
            log_word("node", conn_name(store, conn, name, sizeof(name))),
            conn_use(store, conn), log_word("command", call_word(call->kind)),
            log_word("reason", health_word(reason)),
            log_foreign("error", reply->text));
    conn_abandon(store, conn, now_us, "it refuses the handshake");
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
conn_misses(struct store *store, struct conn *conn, uint64_t now_us,
    const struct call *call, const struct resp *reply)
{
    const char *effect =
        call->kind == CALL_NAME ? "CLIENT LIST shows no name"
        : call->kind == CALL_PUBLISH
            ? "clients of other daemons get a lock late: seconds, not ms"
            : "a call of a lost connection may still run, and take a lock for "
              "nobody until its lease ends";
    uint32_t bit = 1u << call->kind;
    char name[80];

    if ((conn->missing & bit) != 0 && now_us < conn->missing_us + SAID_AGAIN_US)
        return;
    conn->missing |= bit;
    conn->missing_us = now_us;
    log_write(LOG_WARN, "redis_command_missing",
        log_word("node", conn_name(store, conn, name, sizeof(name))),
        log_word("command", call_word(call->kind)),
        log_quoted("effect", text_from(effect)),
        log_foreign("error", reply->text));
}

/* A command was refused for good: true, the node is of no use without it. */
static bool
conn_lacks(struct store *store, struct conn *conn, uint64_t now_us,
    const struct call *call, const struct resp *reply)
{
    enum call_kind kind = call->kind;

    if (kind == CALL_TIME || kind == CALL_MAP) {
        conn_refused(store, conn, now_us, call, reply);
        return true;
    }
    if (kind == CALL_PUBLISH ||
        (conn_serves(store, conn) &&
            (kind == CALL_CLIENT_ID || kind == CALL_KILL || kind == CALL_NAME)))
        conn_misses(store, conn, now_us, call, reply);
    return false;
}

static void
conn_client_id(struct conn *conn, const struct resp *reply)
{
    if (reply->type == RESP_INTEGER && reply->integer > 0)
        conn->client_id = (uint64_t)reply->integer;
}

/* Whether the connection is of no use after an error. Only some calls need an
 * optional script. */
static bool
call_must_succeed(
    const struct store *store, const struct conn *conn, const struct call *call)
{
    enum call_kind kind = call->kind;

    return kind == CALL_AUTH || kind == CALL_SUBSCRIBE || kind == CALL_MASTER ||
           (kind == CALL_LOAD && !call->optional) ||
           (kind == CALL_INFO && !sentinel_is(store, conn));
}

static void
conn_take(struct store *store, struct conn *conn, struct call *call,
    uint64_t now_us, const struct resp *reply)
{
    if (is_missing(reply) && conn_lacks(store, conn, now_us, call, reply))
        return;
    if (reply->type == RESP_ERROR && call_must_succeed(store, conn, call)) {
        conn_refused(store, conn, now_us, call, reply);
        return;
    }
    switch (call->kind) {
    case CALL_SCRIPT:
        call_script_reply(store, conn, call, now_us, reply);
        break;
    case CALL_INFO:
        if (sentinel_is(store, conn))
            sentinel_info(store, conn, reply);
        else
            conn_info(store, conn, call, now_us, reply);
        break;
    case CALL_IDS:
        conn_ids(store, conn, call, now_us, reply);
        break;
    case CALL_MARK:
        history_marked(store, conn, call->writes, reply, now_us);
        break;
    case CALL_CLIENT_ID:
        conn_client_id(conn, reply);
        break;
    case CALL_TIME:
        conn_time(store, conn, call, now_us, reply);
        break;
    case CALL_MAP:
    case CALL_MASTER:
        store->topology->answer(store, conn, call, now_us, reply);
        break;
    case CALL_SUBSCRIBE:
        store->unheard |= call->last && conn_listens(store, conn);
        break;
    case CALL_WRITE:
    case CALL_ROLE:
    case CALL_WAIT:
    case CALL_MYID:
    case CALL_MEMBERS:
    case CALL_REPLICAS:
        replicas_reply(store, conn, call, now_us, reply);
        break;
    case CALL_PROBE:
        script_probed(store, conn, now_us, reply);
        break;
    case CALL_PEERS:
    case CALL_LIST:
        peers_reply(store, conn, call, reply, now_us);
        break;
    case CALL_ASKING:
    case CALL_AUTH:
    case CALL_LOAD:
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
conn_fault_unasked(struct store *store, struct conn *conn, uint64_t now_us,
    const struct resp *reply)
{
    enum health_reason reason = reply->type == RESP_ERROR
                                    ? health_of_error(reply->text)
                                    : HEALTH_NO_REDIS;

    conn_give_up(store, conn, now_us, reason, "it sends what nobody asked for");
}

/*
 * The former master is a replica now. Its name, or a balancer, may lead to
 * another node, which a connection that stands never finds out: so it ends.
 * Hints are told by the node that is the master.
 */
static void
conn_leave(struct store *store, struct conn *conn, uint64_t now_us)
{
    struct conn *hints = &store->conns[CONN_SUBSCRIBER];

    if (hints != conn && hints->node == conn->node)
        conn_abandon(store, hints, now_us, "its node is no master now");
    conn_give_up(store, conn, now_us, HEALTH_REPLICA, "it is a replica now");
}

void
conn_reply(struct store *store, struct conn *conn, uint64_t now_us,
    const struct resp *reply)
{
    if (conn_published(store, conn, now_us, reply))
        return;
    if (list_empty(&conn->calls)) {
        conn_fault_unasked(store, conn, now_us, reply);
        return;
    }
    struct call *call = container_of(conn->calls.next, struct call, link);
    uint32_t serial = conn->serial;
    bool last = call->last;
    struct resp told = *reply;

    if (now_us < call->sent_us + store->settings.command_timeout_us)
        conn->greeting_us = 0;
    if (told.type == RESP_ERROR) {
        told.text = without_words(told.text);
        conn->demoted |= text_starts_with(told.text, TEXT("READONLY "));
    }
    conn_take(store, conn, call, now_us, &told);
    if (conn->state == CONN_DOWN || conn->serial != serial)
        return; /* given up, and the call with it */
    if (call->said != NULL) {
        list_remove(&call->link);
        conn->call_count--;
        conn->batch_count--;
        conn->bulk_count -= call->bulk;
        conn->held_count++;
        list_push_back(&conn->held, &call->link);
    } else {
        call_free(store, conn, call);
    }
    if (conn->state == CONN_LATE && now_us < conn_in_time_us(store, conn))
        conn_move(conn, CONN_READY);
    if (last && conn->state == CONN_GREETING && !sentinel_is(store, conn))
        conn_prepare(store, conn, now_us);
    else if (last && conn->state < CONN_READY)
        conn_ready(store, conn, now_us);
    if (conn->demoted)
        conn_leave(store, conn, now_us);
}

/*
 * Brokers before the same Redis tell one another the configuration of their
 * leases, and the quorum of a node.
 *
 * Every ten seconds each broker exchanges PREFIX:brokers at each node: it
 * writes its own words, and reads those of the broker that wrote before it.
 * Other words than its own, twice in a row, are a warning. (Once is no more
 * than a broker that was restarted with another configuration.)
 *
 * The words also carry the longest lease that any broker has used here of late,
 * and how old that is. A broker is settled with a node no sooner than after
 * that lease: a broker of the longer lease may be cut off, and its holders
 * believe for as long. The words grow older while they lie in Redis: they carry
 * the node's time at which they were written.
 *
 * A node of a quorum keeps the list of nodes that it was first used in
 * (PREFIX:quorum). Two lists with a node in common may have majorities without
 * it, so a broker that meets another list at any of its nodes grants nothing.
 *
 * See DESIGN.md D12 and D5.7.
 */
#include "daemon/store/node/history.h"

#include "daemon/store/model/state.h"
#include "daemon/store/node/conn.h"

#include "daemon/base/log.h"

#include <inttypes.h>
#include <stdio.h>

#define EVERY_US  10000000
#define AGAIN_US  1000000 /* for a node with another list, or no slot yet */
#define WORDS_MAX 200

/* A broker's words about itself. */
struct words {
    struct text broker;
    struct text safety;
    uint64_t lease_ms;
    uint64_t settle_ms;
    uint64_t longest_ms;
    uint64_t age_ms; /* since the longest was heard of */
    uint64_t at_ms;  /* the node's time then; 0: an older version's */
};

/* A lease that somebody used, so long ago. */
static void
longest_hear(
    struct store *store, uint64_t lease_ms, uint64_t age_ms, uint64_t now_us)
{
    uint64_t lease_us = lease_ms * 1000;
    uint64_t at_us = age_ms * 1000 < now_us ? now_us - age_ms * 1000 : 0;

    if (now_us >= at_us + lease_us + OVERLAP_US ||
        (longest_counts(store, now_us) && lease_us < store->longest_us))
        return;
    if (lease_us == store->longest_us && at_us < store->longest_at_us)
        return;
    store->longest_us = lease_us;
    store->longest_at_us = at_us;
}

static const char *
own_safety(const struct store *store)
{
    return store->settings.strict ? "strict" : "fenced";
}

/* The node's time; 0: it is not known. */
static uint64_t
node_time_ms(const struct conn *conn, uint64_t now_us)
{
    return conn->clock.at_us > 0
               ? (now_us + (uint64_t)conn->clock.least_us) / 1000
               : 0;
}

/* Asks of a node's connection that is ready. */
static void
exchange(
    struct store *store, struct conn *conn, struct text key, uint64_t now_us)
{
    const struct store_settings *own = &store->settings;
    char words[WORDS_MAX];
    char expiry[20];

    longest_hear(store, own->lease_ms, 0, now_us);
    int len = snprintf(words, sizeof(words),
        "broker=%s lease=%" PRIu32 " settle=%" PRIu64
        " safety=%s longest=%" PRIu64 " age=%" PRIu64 " at=%" PRIu64,
        own->broker_id, own->lease_ms, own->settle_us / 1000, own_safety(store),
        store->longest_us / 1000, (now_us - store->longest_at_us) / 1000,
        node_time_ms(conn, now_us));
    size_t digits =
        text_from_u64(expiry, (store->longest_us + 2 * OVERLAP_US) / 1000);
    CONN_SEND(store, conn, CALL_PEERS, now_us, TEXT("SET"), key,
        text_make(words, (size_t)len), TEXT("PX"), text_make(expiry, digits),
        TEXT("GET"));
}

static void
claim_list(
    struct store *store, struct conn *conn, struct text key, uint64_t now_us)
{
    CONN_SEND(store, conn, CALL_LIST, now_us, TEXT("SET"), key,
        text_from(store->list), TEXT("NX"), TEXT("GET"));
}

void
peers_tick(struct store *store, struct conn *conn, uint64_t now_us)
{
    char key[KEY_BYTES];
    uint16_t slot = 0;

    if (store->settings.lease_ms == 0 || now_us < conn->peers_us ||
        conn->readonly)
        return;
    size_t len = history_key(store, conn, "brokers", &slot, key);
    conn->peers_us = now_us + (len == 0 ? AGAIN_US : EVERY_US);
    if (len == 0)
        return;
    exchange(store, conn, text_make(key, len), now_us);
    if (store->list == NULL)
        return;
    len = history_key(store, conn, "quorum", &slot, key);
    claim_list(store, conn, text_make(key, len), now_us);
}

uint64_t
peers_next_us(const struct store *store, const struct conn *conn)
{
    return store->settings.lease_ms == 0 || conn->readonly ? WHEEL_NEVER
                                                           : conn->peers_us;
}

/* The value of KEY=, in words with blanks between. */
static struct text
word_of(struct text words, const char *key)
{
    size_t key_len = strlen(key);

    while (words.len > 0) {
        const char *blank = memchr(words.at, ' ', words.len);
        size_t len = blank == NULL ? words.len : (size_t)(blank - words.at);
        if (len > key_len && words.at[key_len] == '=' &&
            memcmp(words.at, key, key_len) == 0)
            return text_make(words.at + key_len + 1, len - key_len - 1);
        len += blank != NULL;
        words = text_make(words.at + len, words.len - len);
    }
    return TEXT("");
}

static bool
number_of(struct text words, const char *key, uint64_t *number)
{
    return text_to_u64(word_of(words, key), UINT64_MAX / 2000000, number);
}

/* False where the words make no sense: another version's, or nobody's. */
static bool
words_read(struct text text, struct words *words)
{
    words->broker = word_of(text, "broker");
    words->safety = word_of(text, "safety");
    if (!number_of(text, "at", &words->at_ms))
        words->at_ms = 0;
    return words->broker.len == 8 &&
           number_of(text, "lease", &words->lease_ms) &&
           number_of(text, "settle", &words->settle_ms) &&
           number_of(text, "longest", &words->longest_ms) &&
           number_of(text, "age", &words->age_ms);
}

/* The key that another broker has set otherwise; NULL: all are the same. */
static const char *
other_key(const struct store *store, const struct words *words)
{
    if (words->lease_ms != store->settings.lease_ms)
        return "lease.default";
    if (words->settle_ms != store->settings.settle_us / 1000)
        return "redis.settle";
    if (!text_equal(words->safety, text_from(own_safety(store))))
        return "redis.safety";
    return NULL;
}

static void
say_differ(const struct store *store, struct conn *conn, const char *key,
    const struct words *there, uint64_t now_us)
{
    char name[80];

    if (conn->differ_told_us > 0 &&
        now_us < conn->differ_told_us + SAID_AGAIN_US)
        return;
    conn->differ_told_us = now_us;
    log_write(LOG_WARN, "redis_brokers_differ",
        log_word("node", conn_name(store, conn, name, sizeof(name))),
        log_word("key", key), log_foreign("broker", there->broker),
        log_number("lease_ms", store->settings.lease_ms),
        log_number("there_lease_ms", there->lease_ms),
        log_number("settle_ms", store->settings.settle_us / 1000),
        log_number("there_settle_ms", there->settle_ms),
        log_quoted("advice",
            TEXT("give all brokers before one Redis the same values")));
}

/* No configuration has a longer lease: whatever wrote that is no broker. */
static uint64_t
bound_lease(struct store *store, const struct conn *conn,
    const struct words *there, uint64_t lease_ms, uint64_t now_us)
{
    char name[80];

    if (lease_ms <= STORE_LEASE_MAX_MS)
        return lease_ms;
    if (store->bounded_told_us == 0 ||
        now_us >= store->bounded_told_us + SAID_AGAIN_US) {
        store->bounded_told_us = now_us;
        log_write(LOG_WARN, "redis_brokers_garbled",
            log_word("node", conn_name(store, conn, name, sizeof(name))),
            log_foreign("broker", there->broker),
            log_number("lease_ms", lease_ms),
            log_signed("most_ms", STORE_LEASE_MAX_MS),
            log_quoted("advice",
                TEXT("find out who writes PREFIX:brokers besides daemons")));
    }
    return STORE_LEASE_MAX_MS;
}

/* Words of another broker: its lease, and the longest that it has heard of. */
static void
leases_hear(struct store *store, const struct conn *conn,
    const struct words *words, uint64_t now_us)
{
    uint64_t time_ms = node_time_ms(conn, now_us);
    uint64_t lain_ms =
        words->at_ms > 0 && words->at_ms < time_ms ? time_ms - words->at_ms : 0;
    uint64_t lease_ms =
        bound_lease(store, conn, words, words->lease_ms, now_us);
    uint64_t longest_ms =
        bound_lease(store, conn, words, words->longest_ms, now_us);

    longest_hear(store, lease_ms, lain_ms, now_us);
    longest_hear(store, longest_ms, words->age_ms + lain_ms, now_us);
}

/* The words of the broker that wrote before, or nil. */
static void
peers_heard(struct store *store, struct conn *conn, const struct resp *reply,
    uint64_t now_us)
{
    struct words words;

    if (reply->type != RESP_STRING || !words_read(reply->text, &words) ||
        text_equal(words.broker, text_from(store->settings.broker_id))) {
        conn->differs = 0;
        return;
    }
    leases_hear(store, conn, &words, now_us);
    const char *key = other_key(store, &words);
    if (key == NULL) {
        conn->differs = 0;
        return;
    }
    if (++conn->differs >= 2)
        say_differ(store, conn, key, &words, now_us);
}

/* The list that the node has had before, or nil: it has ours now. */
static void
peers_list(struct store *store, struct conn *conn, const struct resp *reply,
    uint64_t now_us)
{
    char *other = store->nodes[conn->node].other_list;
    char name[80];

    if (reply->type == RESP_ERROR)
        return; /* that says nothing of it */
    if (reply->type != RESP_STRING ||
        text_equal(reply->text, text_from(store->list))) {
        store->other_lists -= other[0] != '\0';
        other[0] = '\0';
        return;
    }
    conn->peers_us = now_us + AGAIN_US;
    if (other[0] == '\0') {
        store->other_lists++;
        log_write(LOG_ERROR, "redis_other_quorum",
            log_word("node", conn_name(store, conn, name, sizeof(name))),
            log_foreign("nodes", reply->text),
            log_quoted("advice", TEXT("see guarantees.md, One list of nodes")));
    }
    health_copy(other, HEALTH_SAID_MAX, reply->text);
    if (other[0] == '\0')
        health_copy(other, HEALTH_SAID_MAX, TEXT("none"));
}

void
peers_reply(struct store *store, struct conn *conn, const struct call *call,
    const struct resp *reply, uint64_t now_us)
{
    if (call->kind == CALL_LIST)
        peers_list(store, conn, reply, now_us);
    else
        peers_heard(store, conn, reply, now_us);
}

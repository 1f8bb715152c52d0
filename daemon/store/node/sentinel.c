/*
 * Sentinels: which node is the master. master.c takes their answers.
 *
 * Each Sentinel of the configuration is asked twice a second, and at once where
 * one of them says that the master has changed. The master is the node that a
 * majority of them names, in answers to questions at most TRUST_US old. So a
 * broker that is cut off with an old master soon hands out nothing there. The
 * others may vote for a new one then. Without such a majority there is no
 * master, and operations wait.
 *
 * A Sentinel that the configuration has under two names is one all the same: of
 * answers by one process, as run_id of INFO tells them apart, one counts.
 *
 * Whenever the connection to the master is lost, only what is answered from
 * then on counts: the guidelines for clients of Sentinel say to resolve anew at
 * each reconnect. The node found must call itself a master in INFO.
 */
#include "daemon/store/node/route.h"

#include "daemon/store/node/conn.h"

#include "daemon/base/log.h"

#include <string.h>

#define ASK_EVERY_US 500000

void
sentinel_resolve(struct store *store, uint64_t now_us)
{
    store->anew_us = now_us;
    store->ask_us = now_us;
    store->votes_due_us = 0;
}

static void
sentinel_ask(struct store *store, struct conn *conn, uint64_t now_us)
{
    const struct text words[] = {TEXT("SENTINEL"),
        TEXT("GET-MASTER-ADDR-BY-NAME"),
        text_from(store->settings.sentinel_master)};

    conn_send(store, conn, CALL_MASTER, now_us, words, 3);
}

void
sentinel_greet(struct store *store, struct conn *conn, uint64_t now_us)
{
    const struct text words[] = {TEXT("SUBSCRIBE"), TEXT("+switch-master")};

    if (conn->index == CONN_SWITCHES) {
        conn_send(store, conn, CALL_SUBSCRIBE, now_us, words, 2);
        return;
    }
    CONN_SEND(store, conn, CALL_INFO, now_us, TEXT("INFO"), TEXT("server"));
    sentinel_ask(store, conn, now_us);
}

/* Whether two nodes are one Sentinel, as far as they have told. */
static bool
is_same(const struct store *store, uint16_t a, uint16_t b)
{
    const char *id = store->conns[a].run_id;

    return store->nodes[a].used && store->nodes[a].sentinel &&
           store->nodes[b].used && store->nodes[b].sentinel && id[0] != '\0' &&
           strcmp(id, store->conns[b].run_id) == 0;
}

void
sentinel_info(struct store *store, struct conn *conn, const struct resp *reply)
{
    char name[80];
    char other[80];

    memset(conn->run_id, 0, sizeof(conn->run_id));
    if (reply->type != RESP_STRING)
        return;
    copy_id(conn->run_id, info_value(reply->text, "run_id"));
    store->votes_due_us = 0;
    for (uint16_t i = 0; i < store->node_count; i++)
        if (i != conn->node && is_same(store, i, conn->node))
            log_write(LOG_WARN, "sentinel_twice",
                log_word("node", conn_name(store, conn, name, sizeof(name))),
                log_word("other",
                    conn_name(store, &store->conns[i], other, sizeof(other))));
}

uint64_t
sentinel_ask_due_us(const struct store *store, const struct conn *conn)
{
    return conn->spoke_us < store->ask_us ? store->ask_us
                                          : conn->spoke_us + ASK_EVERY_US;
}

void
sentinel_conn_tick(struct store *store, struct conn *conn, uint64_t now_us)
{
    if (now_us >= sentinel_ask_due_us(store, conn))
        sentinel_ask(store, conn, now_us);
}

void
sentinel_hint(struct store *store, uint64_t now_us)
{
    store->ask_us = now_us;
}

/* Until when the answer counts; 0: it does not. */
static uint64_t
vote_until_us(const struct store *store, const struct node *node,
    uint16_t candidate, uint64_t now_us)
{
    if (!node->used || !node->sentinel || node->names != candidate ||
        node->named_us < store->anew_us || node->named_us + TRUST_US <= now_us)
        return 0;
    return node->named_us + TRUST_US;
}

/* Whether the same Sentinel has a vote by an earlier name. */
static bool
has_voted(const struct store *store, uint16_t sentinel, uint16_t candidate,
    uint64_t now_us)
{
    for (uint16_t i = 0; i < sentinel; i++)
        if (is_same(store, i, sentinel) &&
            vote_until_us(store, &store->nodes[i], candidate, now_us) > 0)
            return true;
    return false;
}

bool
master_elected(const struct store *store, uint16_t candidate, uint64_t now_us,
    uint64_t *due_us)
{
    uint32_t votes = 0;

    *due_us = WHEEL_NEVER;
    for (uint16_t i = 0; i < store->node_count; i++) {
        uint64_t until_us =
            vote_until_us(store, &store->nodes[i], candidate, now_us);
        votes += until_us > 0 && !has_voted(store, i, candidate, now_us);
        if (until_us > 0 && until_us < *due_us)
            *due_us = until_us;
    }
    return 2 * votes > store->sentinel_count;
}

bool
sentinel_names(const struct store *store, uint16_t node)
{
    for (uint16_t i = 0; i < store->node_count; i++)
        if (store->nodes[i].used && store->nodes[i].sentinel &&
            store->nodes[i].names == node)
            return true;
    return false;
}

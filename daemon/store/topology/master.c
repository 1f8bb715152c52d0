/*
 * The master that the Sentinels name: their answers, the count of their votes,
 * and the change to another master.
 */
#include "daemon/store/topology/single.h"

#include "daemon/store/conn/life.h"
#include "daemon/store/node/conn.h"
#include "daemon/store/node/route.h"
#include "daemon/store/queue/queue.h"

#include "daemon/base/assert.h"
#include "daemon/base/log.h"

/* Said where it is another one than before, and where there has been none for
 * longer than it takes to ask. */
static void
master_say(struct store *store, uint64_t now_us)
{
    char name[80];

    if (store->master == store->master_said)
        return;
    if (store->master != NODE_NONE) {
        log_write(LOG_INFO, "redis_master",
            log_word("master", store->settings.sentinel_master),
            log_word("node", conn_name(store, &store->conns[store->master],
                                 name, sizeof(name))));
    } else if (store->masterless_us == 0) { /* at the start */
        store->masterless_us = now_us;
        store->votes_due_us = 0;
        return;
    } else if (now_us < store->masterless_us + TRUST_US) {
        if (store->votes_due_us > store->masterless_us + TRUST_US)
            store->votes_due_us = store->masterless_us + TRUST_US;
        return;
    } else {
        log_write(LOG_WARN, "redis_no_master",
            log_word("master", store->settings.sentinel_master));
    }
    store->master_said = store->master;
}

static void
master_set(struct store *store, uint16_t master, uint64_t now_us)
{
    uint16_t old = store->master;

    require(master == NODE_NONE || master < store->node_count);
    store->master = master;
    if (old != NODE_NONE)
        store->nodes[old].mapped = false;
    if (master == NODE_NONE) {
        store->masterless_us = now_us;
        route_requeue(store, now_us);
        return;
    }
    store->nodes[master].mapped = true;
    for (uint16_t i = 0; i < store->node_count; i++)
        if (i != master && store->nodes[i].used && !store->nodes[i].sentinel &&
            store->conns[i].state != CONN_DOWN)
            conn_abandon(
                store, &store->conns[i], now_us, "another node is the master");
    route_moved(store, now_us);
}

void
sentinel_tick(struct store *store, uint64_t now_us)
{
    uint16_t master = NODE_NONE;

    if (now_us < store->votes_due_us)
        return;
    store->votes_due_us = WHEEL_NEVER;
    for (uint16_t i = 0; i < store->node_count && master == NODE_NONE; i++) {
        uint64_t due_us;
        const struct node *node = &store->nodes[i];
        if (!node->used || !node->sentinel || node->names == NODE_NONE ||
            !master_elected(store, node->names, now_us, &due_us))
            continue;
        master = node->names;
        store->votes_due_us = due_us;
    }
    if (master != store->master)
        master_set(store, master, now_us);
    master_say(store, now_us);
}

uint64_t
sentinel_next_us(const struct store *store)
{
    return store->votes_due_us;
}

void
master_lost(struct store *store, struct conn *conn, uint64_t now_us)
{
    if (!sentinel_is(store, conn) &&
        (store->master == conn->node || store->master == NODE_NONE))
        sentinel_resolve(store, now_us);
}

void
sentinel_reply(struct store *store, struct conn *conn, const struct call *call,
    uint64_t now_us, const struct resp *reply)
{
    struct node *node = &store->nodes[conn->node];
    uint16_t named = NODE_NONE;
    uint64_t port;
    char name[80];

    if (reply->type == RESP_ARRAY && reply->count == 2 &&
        reply->item[0].type == RESP_STRING &&
        reply->item[1].type == RESP_STRING &&
        text_to_u64(reply->item[1].text, UINT16_MAX, &port))
        named = route_node(store, reply->item[0].text, (uint16_t)port);
    if (named != NODE_NONE && store->nodes[named].sentinel)
        named = NODE_NONE; /* not even a Redis */
    bool other = node->names != named;
    node->names = named;
    node->named_us = call->sent_us;
    store->votes_due_us = 0;
    if (other) /* perhaps nobody names the last one now */
        route_retire(store, now_us);
    if (node->names != NODE_NONE) {
        node->nameless = false;
    } else if (!node->nameless) {
        node->nameless = true; /* said once */
        log_write(LOG_WARN, "sentinel_names_none",
            log_word("node", conn_name(store, conn, name, sizeof(name))),
            log_word("master", store->settings.sentinel_master));
    }
}

/*
 * Sentinels: which node is the master.
 *
 * Each Sentinel of the configuration is asked twice a second, and at once where
 * one of them says that the master has changed. The master is what a majority
 * of them names, in answers to questions that are at most TRUST_US old: a
 * broker that is cut off together with an old master, while the others vote for
 * a new one, hands out nothing there after that. Without such a majority there
 * is no master, and operations wait.
 *
 * A Sentinel that the configuration has under two names is one all the same: of
 * answers by one process, as run_id of INFO tells them apart, one counts.
 *
 * Whenever the connection to the master is lost, only what is answered from
 * then on counts: the guidelines for clients of Sentinel say to resolve anew at
 * each reconnect. What is found there must call itself a master in INFO.
 */
#include "daemon/store/map.h"

#include "daemon/base/log.h"

#include <string.h>

#define ASK_EVERY_US 500000

/* Who the master is, is asked before anything else is done. */
void
sentinel_resolve(struct store *store, uint64_t now_us)
{
    store->anew_us = now_us;
    store->ask_us = now_us;
    store->votes_due_us = 0;
}

static void
sentinel_ask(struct store *store, struct link *link, uint64_t now_us)
{
    const struct text words[] = {TEXT("SENTINEL"),
        TEXT("GET-MASTER-ADDR-BY-NAME"),
        text_from(store->settings.sentinel_master)};

    link_send(store, link, CALL_MASTER, now_us, words, 3);
}

/* After AUTH; the answer makes the link ready. */
void
sentinel_greet(struct store *store, struct link *link, uint64_t now_us)
{
    const struct text words[] = {TEXT("SUBSCRIBE"), TEXT("+switch-master")};

    if (link->index == LINK_SWITCHES) {
        link_send(store, link, CALL_SUBSCRIBE, now_us, words, 2);
        return;
    }
    LINK_SEND(store, link, CALL_INFO, now_us, TEXT("INFO"), TEXT("server"));
    sentinel_ask(store, link, now_us);
}

/* Whether two nodes are one Sentinel, as far as they have told. */
static bool
is_same(const struct store *store, uint16_t a, uint16_t b)
{
    const char *id = store->links[a].run_id;

    return store->nodes[a].used && store->nodes[a].sentinel &&
           store->nodes[b].used && store->nodes[b].sentinel && id[0] != '\0' &&
           strcmp(id, store->links[b].run_id) == 0;
}

/* Who it is. One that may not tell is taken for another than all the rest. */
void
sentinel_info(struct store *store, struct link *link, const struct resp *reply)
{
    char name[80];
    char other[80];

    memset(link->run_id, 0, sizeof(link->run_id));
    if (reply->type != RESP_STRING)
        return;
    copy_id(link->run_id, info_value(reply->text, "run_id"));
    store->votes_due_us = 0;
    for (uint16_t i = 0; i < store->node_count; i++)
        if (i != link->node && is_same(store, i, link->node))
            log_write(LOG_WARN, "sentinel_twice", "node=%s other=%s",
                link_name(store, link, name, sizeof(name)),
                link_name(store, &store->links[i], other, sizeof(other)));
}

uint64_t
sentinel_ask_due_us(const struct store *store, const struct link *link)
{
    return link->spoke_us < store->ask_us ? store->ask_us
                                          : link->spoke_us + ASK_EVERY_US;
}

/* Of a link that is ready and waits for no answer. */
void
sentinel_link_tick(struct store *store, struct link *link, uint64_t now_us)
{
    if (now_us >= sentinel_ask_due_us(store, link))
        sentinel_ask(store, link, now_us);
}

/* The master's address, or nil: it knows no such master. */
void
sentinel_reply(struct store *store, const struct link *link,
    const struct call *call, uint64_t now_us, const struct resp *reply)
{
    struct node *node = &store->nodes[link->node];
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
    if (other) /* what it named before may be nobody's now */
        route_retire(store, now_us);
    if (node->names != NODE_NONE) {
        node->nameless = false;
    } else if (!node->nameless) {
        node->nameless = true; /* said once */
        log_write(LOG_WARN, "sentinel_names_none", "node=%s master=%s",
            link_name(store, link, name, sizeof(name)),
            store->settings.sentinel_master);
    }
}

/* "+switch-master": a hint, and no more. */
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

/* Whether a majority names the node; *due_us: when to count again. */
static bool
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

/* Said where it is another one than before, and where there has been none for
 * longer than it takes to ask. */
static void
master_say(struct store *store, uint64_t now_us)
{
    char name[80];

    if (store->master == store->master_said)
        return;
    if (store->master != NODE_NONE) {
        log_write(LOG_INFO, "redis_master", "master=%s node=%s",
            store->settings.sentinel_master,
            link_name(store, &store->links[store->master], name, sizeof(name)));
    } else if (store->masterless_us == 0) { /* at the start */
        store->masterless_us = now_us;
        store->votes_due_us = 0;
        return;
    } else if (now_us < store->masterless_us + TRUST_US) {
        if (store->votes_due_us > store->masterless_us + TRUST_US)
            store->votes_due_us = store->masterless_us + TRUST_US;
        return;
    } else {
        log_write(LOG_WARN, "redis_no_master", "master=%s",
            store->settings.sentinel_master);
    }
    store->master_said = store->master;
}

static void
master_set(struct store *store, uint16_t master, uint64_t now_us)
{
    uint16_t old = store->master;

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
            store->links[i].state != LINK_DOWN)
            link_abandon(
                store, &store->links[i], now_us, "another node is the master");
    route_moved(store, now_us);
}

/* Counts the votes, where there are new ones or old ones end. */
void
sentinel_tick(struct store *store, uint64_t now_us)
{
    uint16_t master = NODE_NONE;

    if (store->settings.topology != STORE_SENTINEL ||
        now_us < store->votes_due_us)
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

/*
 * Which node grants nothing now, why, and since when.
 *
 * Each connection keeps its latest fault (fault.c): why it has no connection,
 * or what Redis answered last where it refuses what grants. A connection that
 * becomes ready has none. A refusing one has its fault until something that
 * grants is answered. Without such a request the marker of mark.c is written
 * each second. Redis takes it where it takes grants.
 *
 * Once a turn the faults, and what is known of settling, replicas, slots and
 * Sentinels, become the one struct health that core and io show.
 */
#include "daemon/store/conn/life.h"

#include "daemon/store/node/conn.h"
#include "daemon/store/node/history.h"
#include "daemon/store/node/route.h"
#include "daemon/store/strict/strict.h"

#include "daemon/base/log.h"

static enum health_reason
conn_reason(const struct conn *conn)
{
    if (conn->state == CONN_LATE)
        return HEALTH_SILENT;
    if (conn->state >= CONN_READY || conn->fault.reason != HEALTH_FINE)
        return conn->fault.reason;
    return HEALTH_CONNECTING;
}

/* Which of a node's connections has the fault that counts. */
static const struct conn *
conn_at_fault(const struct store *store, uint32_t index)
{
    const struct conn *conn = &store->conns[index];
    const struct conn *ack = &store->conns[CONN_ACK + index];

    if (conn_reason(conn) == HEALTH_FINE && conn_is_ack(store, ack) &&
        !store->nodes[index].sentinel && ack->state < CONN_READY)
        return ack;
    return conn;
}

static enum health_reason
node_reason(const struct store *store, uint32_t index)
{
    const struct conn *conn = &store->conns[index];
    enum health_reason reason = conn_reason(conn_at_fault(store, index));

    if (reason != HEALTH_FINE)
        return reason;
    if (conn->unproved && conn->probing > 0)
        return HEALTH_CONNECTING;
    if (store->nodes[index].sentinel)
        return store->nodes[index].nameless ? HEALTH_MASTER_UNKNOWN
                                            : HEALTH_FINE;
    if (store->nodes[index].other_list[0] != '\0')
        return HEALTH_OTHER_QUORUM;
    if (conn->readonly)
        return HEALTH_REPLICA;
    if (store->settings.strict && !confirm_possible(store, conn))
        return HEALTH_REPLICAS;
    return conn->history.state == HISTORY_SETTLED ? HEALTH_FINE
                                                  : HEALTH_SETTLING;
}

/* Whether locks depend on it. Without a map of the cluster its seeds are all
 * that is known. */
static bool
node_needed(const struct store *store, uint32_t index)
{
    const struct node *node = &store->nodes[index];

    if (store->topology->slots && store->slots_mapped == 0)
        return node->used && node->seed;
    return node->used && (node->sentinel || node_counts(store, index));
}

static void
node_update(struct store *store, uint32_t index, uint64_t now_us)
{
    struct health_node *node = &store->health.nodes[index];
    const struct conn *conn = &store->conns[index];
    bool needed = node_needed(store, index);
    enum health_reason reason =
        needed ? node_reason(store, index) : HEALTH_FINE;

    if (needed && !node->needed) {
        conn_name(store, conn, node->name, sizeof(node->name));
        node->since_us = now_us;
        node->sentinel = store->nodes[index].sentinel;
    } else if ((reason == HEALTH_FINE) != (node->reason == HEALTH_FINE)) {
        node->since_us = now_us;
    }
    node->needed = needed;
    node->reason = reason;
    node->connected = conn->state >= CONN_READY;
    node->until_us =
        reason == HEALTH_SETTLING
            ? conn->history.since_us + peers_settle_us(store, now_us)
            : 0;
    const struct conn_fault *fault = &conn_at_fault(store, index)->fault;
    if (reason == HEALTH_OTHER_QUORUM)
        memcpy(node->said, store->nodes[index].other_list, sizeof(node->said));
    else if (reason != HEALTH_FINE && reason == fault->reason)
        memcpy(node->said, fault->said, sizeof(node->said));
    else
        node->said[0] = '\0';
}

/* Whether `a` is the more to blame: what settles does so by itself, and the
 * last one to do so counts. */
static bool
is_worse(const struct health_node *a, const struct health_node *b)
{
    if ((a->reason == HEALTH_OTHER_QUORUM) !=
        (b->reason == HEALTH_OTHER_QUORUM))
        return a->reason == HEALTH_OTHER_QUORUM;
    bool a_settles = a->reason == HEALTH_SETTLING;
    bool b_settles = b->reason == HEALTH_SETTLING;

    if (a_settles && b_settles)
        return a->until_us > b->until_us;
    return b_settles;
}

/* The node that is most to blame, of those that are Sentinels or of those that
 * are not; NODE_NONE: all are well. */
static uint16_t
node_to_blame(const struct store *store, bool sentinels)
{
    const struct health *health = &store->health;
    uint16_t worst = NODE_NONE;

    for (uint16_t i = 0; i < store->node_count; i++) {
        const struct health_node *node = &health->nodes[i];
        if (!node->needed || node->sentinel != sentinels ||
            node->reason == HEALTH_FINE)
            continue;
        if (worst == NODE_NONE || is_worse(node, &health->nodes[worst]))
            worst = i;
    }
    return worst;
}

static uint32_t
nodes_well(const struct store *store)
{
    uint32_t well = 0;

    for (uint32_t i = 0; i < store->node_count; i++)
        well += store->health.nodes[i].needed &&
                store->health.nodes[i].reason == HEALTH_FINE;
    return well;
}

/* Why not every lock can be granted, and the node to blame for it. */
static enum health_reason
whole_reason(const struct store *store, uint16_t *node)
{
    const struct topology *topology = store->topology;
    enum health_reason lacks =
        topology->lacks != NULL ? topology->lacks(store) : HEALTH_FINE;

    *node = NODE_NONE;
    if (topology->suffices != NULL && store->other_lists == 0 &&
        topology->suffices(store, nodes_well(store)))
        return HEALTH_FINE;
    *node = node_to_blame(store, lacks == HEALTH_NO_MASTER);
    return *node != NODE_NONE ? store->health.nodes[*node].reason : lacks;
}

/* Said when it changes, and each minute as long as it is not ready. A start
 * says nothing before the first connection has succeeded, or failed. */
static void
health_say(struct store *store, uint64_t now_us)
{
    const struct health *health = &store->health;
    struct health_why why = health_why(health);
    char text[HEALTH_TEXT_MAX];
    uint64_t left_ms = health_left_ms(&why, now_us);

    if (store->health_told == health->changes &&
        (health->ready || now_us < store->health_told_us + SAID_AGAIN_US))
        return;
    if (health->reason == HEALTH_CONNECTING && store->health_told_us == 0)
        return;
    store->health_told = health->changes;
    store->health_told_us = now_us;
    if (health->ready) {
        log_write(LOG_INFO, "ready", log_number("nodes", nodes_well(store)));
        return;
    }
    log_write(health->reason == HEALTH_SETTLING ? LOG_INFO : LOG_WARN,
        "unready", log_word("reason", health_word(why.reason)),
        why.node != NULL ? log_word("node", why.node->name) : LOG_NOTHING,
        log_number("since_ms", (now_us - health->since_us) / 1000),
        log_number("left_ms", left_ms),
        log_quoted("why", text_from(health_text(&why, false, text))));
}

void
health_update(struct store *store, uint64_t now_us)
{
    struct health *health = &store->health;
    uint16_t node;

    health->node_count = store->node_count;
    health->slots_missing =
        store->topology->slots ? SLOT_COUNT - store->slots_mapped : 0;
    for (uint32_t i = 0; i < store->node_count; i++)
        node_update(store, i, now_us);
    enum health_reason reason = whole_reason(store, &node);
    bool ready = reason == HEALTH_FINE;
    if (ready != health->ready)
        health->since_us = now_us;
    if (ready != health->ready || reason != health->reason ||
        node != health->node)
        health->changes++;
    health->ready = ready;
    health->reason = reason;
    health->node = node;
    health_say(store, now_us);
}

const struct health *
store_health(const struct store *store)
{
    return &store->health;
}

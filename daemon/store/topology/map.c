/*
 * How the map of slots is learnt, and what changes with it.
 *
 * A map refresh (CLUSTER SLOTS) is asked of one node at a time, with a pause
 * between: many MOVED answers cost one refresh. Now and then one is asked
 * without need: a slot that moved and was not asked for since should be known
 * to have, when its old node is lost.
 */
#include "daemon/store/topology/single.h"

#include "daemon/store/conn/life.h"
#include "daemon/store/model/times.h"
#include "daemon/store/node/conn.h"
#include "daemon/store/node/history.h"
#include "daemon/store/node/route.h"
#include "daemon/store/queue/queue.h"
#include "daemon/store/strict/strict.h"

#include "daemon/base/assert.h"
#include "daemon/base/log.h"

#define MAP_PAUSE_US   100000
#define MAP_BACKOFF_US 2000000
#define MAP_EVERY_US   10000000

/* Asks the next node in turn that is ready, of those that have slots or of all;
 * false where there is none. */
static bool
map_ask(struct store *store, bool has_slots, uint64_t now_us)
{
    for (uint32_t i = 0; i < store->node_count; i++) {
        uint32_t index = (store->map_turn + i) % store->node_count;
        struct conn *conn = &store->conns[index];
        if (!conn_answers(conn) || (has_slots && !store->nodes[index].mapped) ||
            !route_ask_map(store, conn, now_us))
            continue;
        store->map_turn = index + 1;
        store->map_wanted = false;
        return true;
    }
    return false;
}

void
route_tick(struct store *store, uint64_t now_us)
{
    if (store->map_asked)
        return;
    if (now_us >= store->map_old_us)
        store->map_wanted = true;
    if (!store->map_wanted || now_us < store->map_next_us)
        return;
    if (!store->map_anybody && map_ask(store, true, now_us))
        return;
    if (map_ask(store, false, now_us))
        return;
    store->map_next_us = now_us + MAP_PAUSE_US;
}

uint64_t
route_next_us(const struct store *store)
{
    if (store->map_asked)
        return WHEEL_NEVER;
    return store->map_wanted ? store->map_next_us : store->map_old_us;
}

static void
route_map_failed(struct store *store, uint64_t now_us)
{
    store->map_asked = false;
    store->map_wanted = true;
    store->map_next_us = now_us + store_jitter(store, store->map_backoff_us);
    if (store->map_backoff_us < MAP_BACKOFF_US)
        store->map_backoff_us *= 2;
}

/* Whether a cluster knows that of a node: "?" stands for a host that it does
 * not know. */
static bool
is_told(const struct resp *host)
{
    return host->type == RESP_STRING && host->text.len > 0 &&
           !text_equal(host->text, TEXT("?"));
}

/*
 * The host in [host, port, id, [key, value, ...]] of CLUSTER SLOTS. No host, or
 * an empty one, is that of the node that answers. A cluster that is to tell
 * names may know none yet, and tell the number beside it; or the other way
 * round. Empty: it is not told.
 */
static struct text
map_host(
    const struct store *store, const struct conn *conn, const struct resp *node)
{
    const struct resp *more = &node->item[3];

    if (node->item[0].type != RESP_STRING || node->item[0].text.len == 0)
        return text_from(store->nodes[conn->node].address.host);
    if (is_told(&node->item[0]))
        return node->item[0].text;
    for (size_t i = 0;
         node->count > 3 && more->type == RESP_ARRAY && i + 1 < more->count;
         i += 2)
        if ((text_equal(more->item[i].text, TEXT("ip")) ||
                text_equal(more->item[i].text, TEXT("hostname"))) &&
            is_told(&more->item[i + 1]))
            return more->item[i + 1].text;
    return TEXT("");
}

/* Those slots are a node's whose address is not told: whoever had them is asked
 * as before, and knows if that is not its own any more. */
static void
map_keep(struct store *store, const struct conn *conn, int64_t first,
    int64_t last, const struct resp *node, uint16_t *map)
{
    char name[80];

    for (int64_t slot = first; slot <= last; slot++) {
        map[slot] = store->slots[slot];
        if (map[slot] != NODE_NONE)
            store->nodes[map[slot]].mapped = true;
    }
    if (store->unknown_us > 0 &&
        store->now_us < store->unknown_us + SAID_AGAIN_US)
        return;
    store->unknown_us = store->now_us;
    log_write(LOG_WARN, "redis_address_unknown",
        log_foreign("id", node->count > 2 ? node->item[2].text : TEXT("")),
        log_signed("port", node->item[1].integer),
        log_word("told_by", conn_name(store, conn, name, sizeof(name))),
        log_quoted("advice", TEXT("set cluster-announce-hostname there, or "
                                  "cluster-announce-ip")));
}

/* One range of CLUSTER SLOTS: start, end, [host, port, ...], replicas. */
static bool
map_range(struct store *store, const struct conn *conn,
    const struct resp *range, uint16_t *map)
{
    if (range->type != RESP_ARRAY || range->count < 3 ||
        range->item[0].type != RESP_INTEGER ||
        range->item[1].type != RESP_INTEGER ||
        range->item[2].type != RESP_ARRAY || range->item[2].count < 2)
        return false;
    int64_t first = range->item[0].integer;
    int64_t last = range->item[1].integer;
    const struct resp *master = range->item[2].item;
    if (first < 0 || last >= SLOT_COUNT || first > last ||
        master[1].type != RESP_INTEGER || master[1].integer < 0 ||
        master[1].integer > UINT16_MAX)
        return false;
    if (master[1].integer == 0)
        return true; /* its address is not known any more: nobody serves it */
    struct text host = map_host(store, conn, &range->item[2]);
    if (host.len == 0) {
        map_keep(store, conn, first, last, &range->item[2], map);
        return true;
    }
    uint16_t node = route_node(store, host, (uint16_t)master[1].integer);
    if (node == NODE_NONE)
        return false;
    store->nodes[node].mapped = true;
    for (int64_t slot = first; slot <= last; slot++)
        map[slot] = node;
    return true;
}

/* The node of the connection is forgotten. */
static void
replicas_retire(struct store *store, struct conn *conn, uint64_t now_us)
{
    struct conn *ack = &store->conns[CONN_ACK + conn->index];

    require(conn_is_second(ack));
    if (ack->state != CONN_DOWN)
        conn_abandon(store, ack, now_us, "its node is no master now");
    replicas_forget(&conn->replicas);
    conn->replicas = (struct replicas){0};
}

void
route_retire(struct store *store, uint64_t now_us)
{
    for (uint16_t i = 0; i < store->node_count; i++) {
        struct node *node = &store->nodes[i];
        struct conn *conn = &store->conns[i];
        if (!node->used || node->seed || node->mapped || node->queued > 0 ||
            conn->call_count > 0 || conn->held_count > 0 ||
            (conn->state >= CONN_READY && conn->history.ids_wanted) ||
            sentinel_names(store, i))
            continue;
        if (conn->state != CONN_DOWN) {
            conn->wish = WISH_CLOSE;
            conn_move(conn, CONN_DOWN);
        }
        replicas_retire(store, conn, now_us);
        node->used = false;
        for (uint32_t slot = 0; slot < SLOT_COUNT; slot++)
            if (store->had[slot] == i)
                store->had[slot] = NODE_GONE;
    }
}

void
route_moved(struct store *store, uint64_t now_us)
{
    route_requeue(store, now_us);
    route_move_subscriber(store, now_us);
    route_retire(store, now_us);
    store_route_parked(store, now_us);
}

/* Markers lie in slots. */
static void
map_slot(struct store *store, uint16_t slot, uint16_t node, uint64_t now_us)
{
    uint16_t old = store->slots[slot];

    require(node == NODE_NONE || node < store->node_count);
    if (!route_slot(store, slot, node, now_us))
        return;
    if (node != NODE_NONE)
        history_unmark(&store->conns[node]);
    if (old != NODE_NONE)
        history_unmark(&store->conns[old]);
}

/* The id of CLUSTER SLOTS' [host, port, id, ...]; empty: it is not told. */
static struct text
map_id(const struct resp *node)
{
    if (node->type != RESP_ARRAY || node->count < 3 ||
        node->item[2].type != RESP_STRING || node->item[2].text.len > 40)
        return TEXT("");
    return node->item[2].text;
}

static bool
is_known_id(const struct store *store, struct text id)
{
    for (uint32_t i = 0; i < store->id_count; i++)
        if (text_equal(id, text_from(store->ids[i])))
            return true;
    return false;
}

/* Calls with each master and replica of the map until one says true. */
static bool
map_any_id(struct store *store, const struct resp *map,
    bool (*wanted)(struct store *store, struct text id))
{
    for (size_t i = 0; i < map->count; i++)
        for (size_t j = 2;
             map->item[i].type == RESP_ARRAY && j < map->item[i].count; j++) {
            struct text id = map_id(&map->item[i].item[j]);
            if (id.len > 0 && wanted(store, id))
                return true;
        }
    return false;
}

static bool
id_met_before(struct store *store, struct text id)
{
    return is_known_id(store, id);
}

static bool
id_keep(struct store *store, struct text id)
{
    require(store->id_count < CLUSTER_IDS_MAX);
    if (!is_known_id(store, id))
        copy_id(store->ids[store->id_count++], id);
    return store->id_count == CLUSTER_IDS_MAX;
}

/* Whether a node of the last map can be asked, other than this one. */
static bool
map_has_other(const struct store *store, const struct conn *conn)
{
    for (uint16_t i = 0; i < store->node_count; i++)
        if (i != conn->node && store->nodes[i].used && store->nodes[i].mapped &&
            conn_answers(&store->conns[i]))
            return true;
    return false;
}

/*
 * Whether the map is of another cluster: it has none of the nodes that the last
 * one had, be they masters or replicas. The address of a node that is gone may
 * be a node's of another cluster now. If no node of the old cluster answers for
 * the time of a lease, that cluster is gone, and holds there are over.
 */
static bool
map_is_strange(struct store *store, const struct conn *conn,
    const struct resp *map, uint64_t now_us)
{
    if (store->id_count == 0 || map_any_id(store, map, id_met_before))
        return false;
    if (map_has_other(store, conn))
        store->ids_us = now_us;
    return now_us < store->ids_us + peers_settle_us(store, now_us);
}

static void
map_keep_ids(struct store *store, const struct resp *map, uint64_t now_us)
{
    store->id_count = 0;
    store->ids_us = now_us;
    (void)map_any_id(store, map, id_keep);
}

void
route_map_reply(struct store *store, struct conn *conn, const struct call *call,
    uint64_t now_us, const struct resp *reply)
{
    static uint16_t map[SLOT_COUNT];
    uint32_t mapped = 0;
    bool good = reply->type == RESP_ARRAY;
    char name[80];

    (void)call;
    conn->stranger = good && map_is_strange(store, conn, reply, now_us);
    if (conn->stranger) {
        conn_unfit(store, conn, now_us, HEALTH_OTHER_CLUSTER, TEXT(""));
        return;
    }
    for (uint32_t i = 0; i < SLOT_COUNT; i++)
        map[i] = NODE_NONE;
    for (uint16_t i = 0; i < store->node_count; i++)
        store->nodes[i].mapped = false;
    for (size_t i = 0; good && i < reply->count; i++)
        good = map_range(store, conn, &reply->item[i], map);
    for (uint32_t i = 0; i < SLOT_COUNT; i++)
        mapped += map[i] != NODE_NONE;
    if (!good || mapped == 0) {
        for (uint32_t i = 0; i < SLOT_COUNT; i++)
            if (store->slots[i] != NODE_NONE)
                store->nodes[store->slots[i]].mapped = true;
        if (store->map_bad_us == 0 ||
            now_us >= store->map_bad_us + SAID_AGAIN_US) {
            store->map_bad_us = now_us;
            log_write(LOG_WARN, "redis_map_unusable",
                log_word("node", conn_name(store, conn, name, sizeof(name))),
                log_number("slots", mapped));
        }
        store->map_anybody = true;
        route_map_failed(store, now_us);
        return;
    }
    map_keep_ids(store, reply, now_us);
    for (uint16_t i = 0; i < SLOT_COUNT; i++)
        map_slot(store, i, map[i], now_us);
    if (store->slots_mapped != mapped)
        log_write(mapped == SLOT_COUNT ? LOG_INFO : LOG_WARN, "redis_map",
            log_number("slots", mapped), log_number("of", SLOT_COUNT));
    if (store->slots_mapped != mapped || mapped == SLOT_COUNT)
        store->map_backoff_us = MAP_PAUSE_US;
    store->slots_mapped = mapped;
    store->map_anybody = false;
    store->map_asked = false;
    store->map_next_us = now_us + store_jitter(store, MAP_PAUSE_US);
    store->map_old_us = now_us + store_jitter(store, MAP_EVERY_US);
    if (mapped < SLOT_COUNT)
        route_map_failed(store, now_us);
    route_moved(store, now_us);
}

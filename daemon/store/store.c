/*
 * The store's front: taking operations, parking those that have no route now,
 * time, wishes, and giving back what is done.
 */
#include "daemon/store/store.h"

#include "daemon/store/conn/life.h"
#include "daemon/store/node/conn.h"
#include "daemon/store/node/route.h"
#include "daemon/store/queue/queue.h"
#include "daemon/store/strict/strict.h"
#include "daemon/store/topology/quorum.h"

#include "daemon/base/assert.h"

#include <stdlib.h>

#define ACK_CALLS     8
#define ACK_OUT_BYTES 4096

/* Whether nodes have a second connection each. */
static bool
store_has_seconds(const struct store *store)
{
    return store->settings.strict || store->topology->independent;
}

static bool
store_take_memory(struct store *store)
{
    uint32_t calls = (STORE_NODES_MAX + 2) * (4 * STORE_FLIGHT_MAX + 32) +
                     STORE_NODES_MAX * ACK_CALLS;

    if (!slab_init(&store->calls, sizeof(struct call), calls) ||
        !table_init(&store->leads, LEADS_EXPECTED))
        return false;
    for (uint32_t i = 0; i < CONN_COUNT; i++)
        if (!buffer_init(&store->conns[i].out, conn_is_second(&store->conns[i])
                                                   ? ACK_OUT_BYTES
                                                   : CONN_OUT_BYTES))
            return false;
    return true;
}

static void
store_seed(struct store *store)
{
    const struct store_settings *settings = &store->settings;

    for (uint32_t i = 0; i < settings->node_count; i++) {
        const struct store_address *seed = &settings->nodes[i];
        uint16_t node = route_node(store, text_from(seed->host), seed->port);
        require(node != NODE_NONE);
        if (store->topology->seed != NULL)
            store->topology->seed(store, &store->nodes[node]);
        store->nodes[node].seed = true;
    }
}

struct store *
store_create(const struct store_settings *settings, struct counters *counters,
    uint64_t now_us)
{
    struct store *store = calloc(1, sizeof(*store));

    if (store == NULL)
        return NULL;
    require(settings->in_flight <= STORE_FLIGHT_MAX);
    store->settings = *settings;
    store->topology = &topologies[settings->topology];
    store->counters = counters;
    store->prefix_len = strlen(settings->key_prefix);
    require(store->prefix_len + sizeof("/broker/") <= sizeof(store->channel));
    memcpy(store->channel, settings->key_prefix, store->prefix_len);
    memcpy(store->channel + store->prefix_len, "/broker/", sizeof("/broker/"));
    random_init(&store->random, settings->seed);
    store->lead_key = (struct hash_key){{settings->seed, settings->seed}};
    wheel_init(&store->wheel, now_us);
    list_init(&store->parked);
    list_init(&store->done);
    list_init(&store->confirmed);
    store->map_backoff_us = ROUTE_RETRY_US;
    store->health = (struct health){.node = HEALTH_NO_NODE,
        .reason = HEALTH_CONNECTING,
        .since_us = now_us};
    if (store->topology->slots)
        store->health.slots = store->slots;
    store->master = NODE_NONE;
    store->master_said = NODE_UNSAID;
    for (uint32_t i = 0; i < CONN_COUNT; i++)
        conn_init(&store->conns[i], i);
    for (uint32_t i = 0; i < STORE_NODES_MAX; i++)
        for (unsigned lane = 0; lane < LANE_COUNT; lane++)
            list_init(&store->nodes[i].lanes[lane]);
    for (uint32_t i = 0; i < SLOT_COUNT; i++)
        store->slots[i] = store->had[i] = NODE_NONE;
    if (!store_take_memory(store)) {
        store_destroy(&store);
        return NULL;
    }
    store_seed(store);
    if (store->topology->create != NULL && !store->topology->create(store)) {
        store_destroy(&store);
        return NULL;
    }
    store->map_wanted = true;
    return store;
}

void
store_configure(struct store *store, const struct store_settings *settings)
{
    struct store_settings *own = &store->settings;

    require(settings->in_flight <= STORE_FLIGHT_MAX);
    memcpy(own->username, settings->username, sizeof(own->username));
    memcpy(own->password, settings->password, sizeof(own->password));
    memcpy(own->sentinel_username, settings->sentinel_username,
        sizeof(own->sentinel_username));
    memcpy(own->sentinel_password, settings->sentinel_password,
        sizeof(own->sentinel_password));
    own->waiters_max = settings->waiters_max;
    own->connect_timeout_us = settings->connect_timeout_us;
    own->command_timeout_us = settings->command_timeout_us;
    own->silence_us = settings->silence_us;
    own->batch = settings->batch;
    own->in_flight = settings->in_flight;
}

const struct store_settings *
store_in_force(const struct store *store)
{
    return &store->settings;
}

void
store_destroy(struct store **store)
{
    if (*store == NULL)
        return;
    for (uint32_t i = 0; i < CONN_COUNT; i++)
        buffer_fini(&(*store)->conns[i].out);
    confirm_fini(*store);
    if ((*store)->topology->destroy != NULL)
        (*store)->topology->destroy(*store);
    free((*store)->list);
    slab_fini(&(*store)->calls);
    table_abandon(&(*store)->leads);
    free(*store);
    *store = NULL;
}

void
store_submit(struct store *store, uint64_t now_us, struct list *ops)
{
    struct list *at;

    store->now_us = now_us;
    while ((at = list_pop_front(ops)) != NULL) {
        struct op *op = container_of(at, struct op, link);
        op_begin(op);
        if (op->kind == OP_AUDIT)
            audit_take(store, op, now_us);
        else
            op_route(store, op, now_us);
    }
}

void
store_hurry(struct store *store, uint64_t now_us, struct list *hurried)
{
    struct list *at;

    while ((at = list_pop_front(hurried)) != NULL) {
        struct op *op = container_of(at, struct op, hurry_link);
        if (now_us >= op->deadline_us)
            continue;
        op->deadline_us = now_us;
        if (!wheel_node_set(&op_own(op)->timer))
            continue; /* its answer is due, and then it waits no more */
        uint64_t due_us = now_us;
        if (op_own(op)->at_node != NODE_NONE)
            due_us = queue_due_us(store, op, op_own(op)->at_node, now_us);
        if (due_us < op_own(op)->timer.due_us)
            wheel_add(&store->wheel, &op_own(op)->timer, due_us);
    }
}

static void
op_give_up(struct store *store, struct op *op, uint64_t now_us)
{
    uint64_t grace_us = op_own(op)->grace_us;

    if (op_own(op)->halved) {
        op_done(store, op, OP_UNKNOWN);
    } else if (grace_us == 0) {
        op_done(store, op, OP_UNSENT);
    } else {
        memset(&op->result, 0, sizeof(op->result));
        op->result.again_ms =
            grace_us > now_us ? (uint32_t)((grace_us - now_us) / 1000) : 0;
        op_done(store, op, OP_UNSETTLED);
    }
}

/* An operation's time has come: to be given up, or routed again. */
static void
op_due(struct store *store, struct op *op, uint64_t now_us)
{
    uint64_t until_us = op_end_by(op, op->deadline_us);

    if (op_own(op)->at_node != NODE_NONE) {
        op_dequeue(store, op);
    } else {
        until_us = route_due_us(store, op);
        list_remove(&op->link);
    }
    if (now_us >= until_us)
        op_give_up(store, op, now_us);
    else
        op_route(store, op, now_us);
}

static void
store_flush_nodes(struct store *store, uint64_t now_us)
{
    for (uint16_t i = 0; i < store->node_count; i++)
        if (store->nodes[i].used)
            call_flush_node(store, i, now_us);
}

void
store_flush(struct store *store, uint64_t now_us, uint64_t realtime_us)
{
    struct wheel_node *timer;

    store->realtime_us = realtime_us;
    store->now_us = now_us;
    if (store->topology->tick != NULL)
        store->topology->tick(store, now_us);
    for (uint32_t i = 0; i < store->node_count; i++)
        if (store->nodes[i].used)
            conn_tick(store, &store->conns[i], now_us);
    for (uint32_t i = 0; store_has_seconds(store) && i < store->node_count; i++)
        if (store->nodes[i].used)
            conn_tick(store, &store->conns[CONN_ACK + i], now_us);
    conn_tick(store, &store->conns[CONN_SUBSCRIBER], now_us);
    conn_tick(store, &store->conns[CONN_SWITCHES], now_us);
    if (store->topology->ask != NULL)
        store->topology->ask(store, now_us);
    store_flush_nodes(store, now_us);
    if (store->settled)
        store_end_grace(store);
    store->settled = false;
    while ((timer = wheel_pop(&store->wheel, now_us)) != NULL)
        op_due(store, op_whole(container_of(timer, struct store_op, timer)),
            now_us);
    /* Operations with a route again go out now, not in some later turn. */
    store_flush_nodes(store, now_us);
    store->was_ready = store->was_ready || store_ready(store);
    health_update(store, now_us);
}

uint64_t
store_next_us(const struct store *store)
{
    uint64_t next_us = wheel_next_us(&store->wheel);
    uint64_t conn_us;

    for (uint32_t i = 0; i < store->node_count; i++) {
        if (!store->nodes[i].used)
            continue;
        conn_us = conn_next_us(store, &store->conns[i]);
        next_us = conn_us < next_us ? conn_us : next_us;
        if (!store_has_seconds(store))
            continue;
        conn_us = conn_next_us(store, &store->conns[CONN_ACK + i]);
        next_us = conn_us < next_us ? conn_us : next_us;
    }
    conn_us = conn_next_us(store, &store->conns[CONN_SUBSCRIBER]);
    next_us = conn_us < next_us ? conn_us : next_us;
    conn_us = conn_next_us(store, &store->conns[CONN_SWITCHES]);
    next_us = conn_us < next_us ? conn_us : next_us;
    uint64_t own_us = store->topology->next_us != NULL
                          ? store->topology->next_us(store)
                          : WHEEL_NEVER;
    return own_us < next_us ? own_us : next_us;
}

struct op *
store_take_done(struct store *store)
{
    while (list_empty(&store->done) && confirm_take(store))
        continue;
    struct list *at = list_pop_front(&store->done);

    return at == NULL ? NULL : container_of(at, struct op, link);
}

bool
store_take_hint(struct store *store, struct store_hint *hint)
{
    if (store->hint_count == 0)
        return false;
    require(store->hint_taken < store->hint_count);
    *hint = store->hints[store->hint_taken++];
    if (store->hint_taken == store->hint_count)
        store->hint_count = store->hint_taken = 0;
    return true;
}

bool
store_take_news(struct store *store, struct text *news)
{
    if (store->news_count == 0)
        return false;
    require(store->news_taken < store->news_count);
    *news = store->news[store->news_taken++];
    if (store->news_taken == store->news_count) {
        store->news_count = store->news_taken = 0;
        store->news_len = 0;
    }
    return true;
}

bool
store_read_members(
    struct store *store, struct text news, struct op_members *out)
{
    return news.len > 0 && news.at[0] == 'P' &&
           record_read_members(news, out, store->tickets, TICKETS_SHOWN);
}

bool
store_take_unheard(struct store *store)
{
    bool unheard = store->unheard;

    store->unheard = false;
    return unheard;
}

bool
store_take_changed(struct store *store)
{
    bool changed = store->changed;

    store->changed = false;
    return changed;
}

static bool
conn_wish(struct store *store, struct conn *conn, struct store_wish *wish)
{
    if (conn->wish == WISH_NONE)
        return false;
    require(conn->wish != WISH_CONNECT || conn->node < store->node_count);
    wish->kind = conn->wish;
    wish->conn = (struct store_conn){conn->index, conn->serial};
    wish->address =
        conn->wish == WISH_CONNECT ? &store->nodes[conn->node].address : NULL;
    conn->wish = WISH_NONE;
    return true;
}

bool
store_take_wish(struct store *store, struct store_wish *wish)
{
    for (uint32_t i = 0; i < store->node_count; i++)
        if (conn_wish(store, &store->conns[i], wish) ||
            (store_has_seconds(store) &&
                conn_wish(store, &store->conns[CONN_ACK + i], wish)))
            return true;
    return conn_wish(store, &store->conns[CONN_SUBSCRIBER], wish) ||
           conn_wish(store, &store->conns[CONN_SWITCHES], wish);
}

struct buffer *
store_conn_output(struct store *store, uint32_t index)
{
    require(index < CONN_COUNT);
    return &store->conns[index].out;
}

bool
store_next_output(const struct store *store, uint32_t *index)
{
    for (; *index < store->node_count; (*index)++)
        if (buffer_len(&store->conns[*index].out) > 0)
            return true;
    if (*index < CONN_ACK)
        *index = store_has_seconds(store) ? CONN_ACK : CONN_SUBSCRIBER;
    for (; *index < CONN_COUNT; (*index)++)
        if (buffer_len(&store->conns[*index].out) > 0)
            return true;
    return false;
}

/* NULL where the news is of an earlier connection. */
static struct conn *
store_conn_of(struct store *store, struct store_conn conn)
{
    require(conn.index < CONN_COUNT);
    struct conn *found = &store->conns[conn.index];
    return found->serial == conn.serial && found->state != CONN_DOWN ? found
                                                                     : NULL;
}

void
store_connected(struct store *store, struct store_conn conn, uint64_t now_us)
{
    struct conn *found = store_conn_of(store, conn);

    store->now_us = now_us;
    if (found != NULL)
        conn_connected(store, found, now_us);
}

void
store_opened(struct store *store, struct store_conn conn)
{
    struct conn *found = store_conn_of(store, conn);

    if (found != NULL && found->state == CONN_CONNECTING)
        conn_move(found, CONN_OPENED);
}

void
store_closed(struct store *store, struct store_conn conn, uint64_t now_us,
    enum health_reason reason, const char *why)
{
    struct conn *found = store_conn_of(store, conn);

    store->now_us = now_us;
    if (found != NULL)
        conn_lost(store, found, now_us, reason, why);
}

void
store_reply(struct store *store, struct store_conn conn, uint64_t now_us,
    const struct resp *reply)
{
    struct conn *found = store_conn_of(store, conn);

    store->now_us = now_us;
    if (found != NULL)
        conn_reply(store, found, now_us, reply);
}

/* Whether the node can be asked, and what it grants be told. */
static bool
conn_is_ready(const struct store *store, const struct conn *conn)
{
    return conn_answers(conn) &&
           (!store->settings.strict || confirm_possible(store, conn));
}

bool
store_ready(const struct store *store)
{
    const struct topology *topology = store->topology;
    uint32_t ready = 0;
    uint32_t away = 0;

    if (topology->lacks != NULL && topology->lacks(store) != HEALTH_FINE)
        return false;
    for (uint32_t i = 0; i < store->node_count; i++) {
        if (!node_counts(store, i))
            continue;
        if (conn_is_ready(store, &store->conns[i]))
            ready++;
        else
            away++;
    }
    return topology->suffices != NULL ? topology->suffices(store, ready)
                                      : away == 0;
}

void
store_totals(const struct store *store, struct store_totals *totals)
{
    *totals = (struct store_totals){0};
    require(store->slots_mapped <= SLOT_COUNT);
    if (store->topology->slots)
        totals->slots_unserved = SLOT_COUNT - store->slots_mapped;
    for (uint32_t i = 0; i < store->node_count; i++) {
        const struct conn *conn = &store->conns[i];
        if (!node_counts(store, i))
            continue;
        totals->nodes++;
        totals->differing += conn->differs >= 2;
        if (!conn_is_ready(store, conn))
            totals->away++;
        else if (conn->history.state != HISTORY_SETTLED)
            totals->unsettled++;
    }
}

uint32_t
store_in_flight(const struct store *store)
{
    uint32_t calls = 0;

    for (uint32_t i = 0; i < store->node_count; i++)
        calls += store->conns[i].batch_count + store->conns[i].held_count;
    return calls;
}

static uint32_t
held_calls(const struct store *store, const struct conn *conn)
{
    uint32_t calls = 0;

    LIST_EACH (at, &conn->held)
        calls++;
    LIST_EACH (at, &store->confirmed)
        calls += container_of(at, struct call, link)->at_conn == conn->index;
    if (store->confirming != NULL)
        calls += store->confirming->at_conn == conn->index;
    return calls;
}

void
store_check(const struct store *store)
{
    for (uint32_t i = 0; i < STORE_NODES_MAX; i++) {
        const struct node *node = &store->nodes[i];
        uint32_t queued = 0;
        for (unsigned lane = 0; lane < LANE_COUNT; lane++)
            LIST_EACH (at, &node->lanes[lane]) {
                const struct op *lead = container_of(at, struct op, link);
                require(op_see(lead)->leads && op_see(lead)->at_node == i);
                queued++;
                LIST_EACH (next, &op_see(lead)->behind)
                    queued++;
            }
        require(queued == node->queued);
        require(queued == 0 || node->used);
    }
    for (uint32_t i = 0; i < CONN_COUNT; i++) {
        const struct conn *conn = &store->conns[i];
        uint32_t calls = 0;
        LIST_EACH (at, &conn->calls)
            calls++;
        conn_check(conn);
        require(calls == conn->call_count);
        require(conn->state != CONN_DOWN || calls == 0);
        require(held_calls(store, conn) == conn->held_count);
        require(conn->held_count == 0 || store->nodes[i].used);
    }
    wheel_check(&store->wheel);
}

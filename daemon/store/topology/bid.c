/*
 * Bids: who waits at this broker for a lock of a quorum, in what order, and in
 * whose turn they try. See model/quorum.h.
 */
#include "daemon/store/topology/quorum.h"

#include "daemon/store/model/quorum.h"

#include "daemon/base/assert.h"

/* Another broker's wait counts so long: a waiter's tries are more frequent. For
 * so long, and some tries, its turn is free. */
#define WANTED_US 2000000
#define TURN_US   20000

static uint64_t
hash_name(const struct quorum *quorum, struct text name)
{
    return hash_bytes(&quorum->key, name.at, name.len);
}

struct turn *
turn_of(struct quorum *quorum, uint64_t hash)
{
    struct turn *turn = &quorum->turns[hash % QUORUM_TURNS];

    if (turn->hash != hash)
        *turn = (struct turn){.hash = hash};
    return turn;
}

uint64_t
turn_due_us(const struct turn *turn)
{
    uint64_t due_us = turn->until_us;

    if (turn->wanted_us > 0 && turn->grants >= QUORUM_TURN &&
        due_us < turn->wanted_us + WANTED_US)
        due_us = turn->wanted_us + WANTED_US;
    return due_us;
}

void
turn_passes(struct store *store, const struct bid *bid)
{
    struct turn *turn = turn_of(store->quorum, bid->hash);

    if (turn->held == 0)
        *turn = (struct turn){.hash = bid->hash};
}

void
turn_begins(struct store *store, struct bid *bid)
{
    struct turn *turn = turn_of(store->quorum, bid->hash);

    turn->grants++;
    turn->took_us = store->now_us - bid->tried_us;
    turn->held += !bid->held;
    bid->held = true;
}

/* When nothing of this broker's is left, others have the time to try. Its own
 * waiters may have been told to stay back for longer. */
static void
turn_hand_on(const struct store *store, struct turn *turn)
{
    struct table_node *at =
        table_first(&store->quorum->queue_table, turn->hash);

    if (turn->held > 0 || store->now_us >= turn_due_us(turn))
        return;
    turn->until_us = store->now_us + TURN_US + 4 * turn->took_us;
    turn->wanted_us = 0;
    turn->grants = 0;
    for (; at != NULL; at = table_next(at)) {
        struct queue *queue = container_of(at, struct queue, table);
        if (queue->stir_us > turn->until_us)
            queue->stir_us = turn->until_us;
    }
}

void
turn_ends(struct store *store, struct bid *bid)
{
    struct turn *turn = turn_of(store->quorum, bid->hash);

    if (!bid->held)
        return;
    bid->held = false;
    if (turn->held > 0)
        turn->held--;
    turn_hand_on(store, turn);
}

struct queue *
queue_find(const struct quorum *quorum, struct text name)
{
    struct table_node *at =
        table_first(&quorum->queue_table, hash_name(quorum, name));

    for (; at != NULL; at = table_next(at)) {
        struct queue *queue = container_of(at, struct queue, table);
        if (text_equal(name, text_make(queue->name, queue->name_len)))
            return queue;
    }
    return NULL;
}

struct queue *
queue_make(struct quorum *quorum, struct text name)
{
    struct queue *queue = slab_alloc(&quorum->queues);

    require(name.len > 0 && name.len <= PROTO_NAME_MAX);
    if (queue == NULL)
        return NULL;
    list_init(&queue->bids);
    list_init(&queue->stir_link);
    queue->name_len = (uint8_t)name.len;
    memcpy(queue->name, name.at, name.len);
    table_insert(&quorum->queue_table, &queue->table, hash_name(quorum, name));
    return queue;
}

struct bid *
queue_first(const struct queue *queue)
{
    require(!list_empty(&queue->bids));
    return container_of(queue->bids.next, struct bid, queue_link);
}

void
queue_stir(struct store *store, struct queue *queue)
{
    struct bid *bid = queue_first(queue);
    uint64_t due_us = turn_due_us(turn_of(store->quorum, bid->hash));

    if (store->now_us < due_us) {
        queue->stir_us = due_us;
        if (list_empty(&queue->stir_link))
            list_push_back(&store->quorum->stirs, &queue->stir_link);
        return;
    }
    if (bid->trying) {
        bid->stirred = true;
        return;
    }
    if (store->hint_count == HINTS_MAX) {
        store->unheard = true;
        return;
    }
    store->hints[store->hint_count++] =
        (struct store_hint){.request = bid->request};
}

void
queue_leave(struct store *store, struct bid *bid, bool stir)
{
    struct queue *queue = bid->queue;

    if (queue == NULL)
        return;
    bool first = queue_first(queue) == bid;
    require(queue->count > 0);
    list_remove(&bid->queue_link);
    bid->queue = NULL;
    queue->count--;
    require((queue->count == 0) == list_empty(&queue->bids));
    if (queue->count == 0) {
        list_remove(&queue->stir_link);
        table_remove(&store->quorum->queue_table, &queue->table);
        slab_free(&store->quorum->queues, queue);
    } else if (!first) {
        queue->gaps = true;
    } else if (stir) {
        queue_stir(store, queue);
    }
}

void
queues_stir(struct store *store)
{
    LIST_EACH_SAFE (at, &store->quorum->stirs) {
        struct queue *queue = container_of(at, struct queue, stir_link);
        if (store->now_us < queue->stir_us)
            continue;
        list_remove(&queue->stir_link);
        queue_stir(store, queue);
    }
}

void
quorum_wanted(struct store *store, struct text key)
{
    size_t prefix = store->prefix_len + 2;

    if (key.len < prefix + 1)
        return;
    struct text name = text_make(key.at + prefix, key.len - prefix - 1);
    struct turn *turn = turn_of(store->quorum, hash_name(store->quorum, name));
    turn->wanted_us = store->now_us;
    turn_hand_on(store, turn);
}

static uint64_t
hash_request(const struct quorum *quorum, uint64_t request)
{
    return hash_bytes(&quorum->key, &request, sizeof(request));
}

struct bid *
bid_find(const struct quorum *quorum, uint64_t request)
{
    struct table_node *at =
        table_first(&quorum->bid_table, hash_request(quorum, request));

    for (; at != NULL; at = table_next(at)) {
        struct bid *bid = container_of(at, struct bid, table);
        if (bid->request == request)
            return bid;
    }
    return NULL;
}

struct bid *
bid_make(struct store *store, const struct op *op)
{
    struct quorum *quorum = store->quorum;
    struct bid *bid = slab_alloc(&quorum->bids);

    if (bid == NULL)
        return NULL;
    list_init(&bid->used_link);
    list_init(&bid->queue_link);
    bid->request = op->request;
    bid->hash = hash_name(quorum, op->name);
    bid->arrival = ++quorum->arrivals;
    bid->pause_ms = PAUSE_MIN_MS;
    bid->split_ms = SPLIT_MS;
    bid->ask = op->ask;
    bid->generation = op->generation;
    memcpy(bid->session, op->session, sizeof(bid->session));
    memcpy(bid->owner_hash, op->owner_hash, sizeof(bid->owner_hash));
    table_insert(
        &quorum->bid_table, &bid->table, hash_request(quorum, bid->request));
    require(quorum->bid_table.count == quorum->bids.used);
    return bid;
}

void
bid_used(struct store *store, struct bid *bid)
{
    list_remove(&bid->used_link);
    list_push_back(&store->quorum->used, &bid->used_link);
    bid->used_us = store->now_us;
}

void
bid_free(struct store *store, struct bid *bid)
{
    require(bid->leaves == NULL);
    turn_ends(store, bid);
    queue_leave(store, bid, true);
    list_remove(&bid->used_link);
    table_remove(&store->quorum->bid_table, &bid->table);
    slab_free(&store->quorum->bids, bid);
}

struct bid *
bid_of_try(const struct store *store, struct handle request)
{
    return slab_get(&store->quorum->bids, request);
}

uint64_t
quorum_request(const struct store *store, uint64_t request)
{
    const struct bid *bid = bid_of_try(store, handle_unpack(request));

    return bid == NULL ? 0 : bid->request;
}

void
quorum_moved(struct store *store, const char told[8])
{
    uint64_t request;

    memcpy(&request, told, sizeof(request));
    struct bid *bid = bid_of_try(store, handle_unpack(request));
    if (bid != NULL)
        turn_ends(store, bid);
}

void
bids_forget(struct store *store)
{
    struct quorum *quorum = store->quorum;
    uint64_t kept_us =
        4 * quorum->lease_us + 4 * store->settings.command_timeout_us;

    while (!list_empty(&quorum->used)) {
        struct bid *bid =
            container_of(quorum->used.next, struct bid, used_link);
        if (bid->used_us + kept_us > store->now_us || bid->leaves != NULL)
            return;
        bid_free(store, bid);
    }
}

uint32_t
queue_count(const struct store *store, struct text name)
{
    const struct queue *queue = queue_find(store->quorum, name);

    require(queue == NULL || queue->count > 0);
    return queue != NULL ? queue->count : 0;
}

uint32_t
queue_show(const struct store *store, struct text name, struct op_ticket *out)
{
    const struct queue *queue = queue_find(store->quorum, name);
    uint32_t n = 0;

    if (queue == NULL)
        return 0;
    LIST_EACH (at, &queue->bids) {
        const struct bid *bid = container_of(at, struct bid, queue_link);
        require(n < queue->count);
        struct op_ticket *ticket = &out[n++];
        uint64_t age_us = store->realtime_us > bid->since_us
                              ? store->realtime_us - bid->since_us
                              : 0;
        *ticket = (struct op_ticket){
            .mode = bid->ask.mode,
            .permits = bid->ask.permits,
            .generation = bid->generation,
            .since_us = bid->since_us,
            .age_ms = age_us / 1000,
            .ttl_ms = store->quorum->lease_us / 1000,
            .owner = TEXT(""),
            .client = TEXT(""),
            .note = TEXT(""),
        };
        memcpy(ticket->session, bid->session, sizeof(ticket->session));
        memcpy(ticket->owner_hash, bid->owner_hash, sizeof(ticket->owner_hash));
        memcpy(ticket->broker, store->settings.broker_id, 8);
    }
    return n;
}

bool
bid_is_over(const struct bid *bid, const struct op *op)
{
    enum op_status status = op->result.status;
    bool stands = bid->queue != NULL || bid->idle || bid->fence > 0;

    if (bid->leaving)
        return false;
    if (op->kind == OP_RENEW && stands)
        return status == OP_GONE || status == OP_MOVED;
    return (op->kind == OP_ACQUIRE || op->kind == OP_RENEW) &&
           status != OP_OK && status != OP_WAITING;
}

void
queue_insert(struct queue *queue, struct bid *bid)
{
    struct list *before = &queue->bids;

    require(list_empty(&bid->queue_link));
    bid->number = queue->numbers++;
    if (bid->idle) {
        LIST_EACH (at, &queue->bids) {
            if (container_of(at, struct bid, queue_link)->arrival <
                bid->arrival)
                continue;
            before = at;
            queue->gaps = true;
            break;
        }
    }
    list_push_back(before, &bid->queue_link);
    bid->queue = queue;
    bid->idle = false;
    queue->count++;
}

uint32_t
bid_place(const struct bid *bid)
{
    struct queue *queue = bid->queue;

    if (queue->gaps) {
        queue->numbers = 0;
        queue->gaps = false;
        LIST_EACH (at, &queue->bids)
            container_of(at, struct bid, queue_link)->number = queue->numbers++;
    }
    uint64_t before = bid->number - queue_first(queue)->number;
    require(before < queue->count);
    return (uint32_t)before + 1;
}

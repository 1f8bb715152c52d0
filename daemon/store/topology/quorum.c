/*
 * The core's operations before a quorum, as rounds of votes; bids; and the
 * queues of waiters. See model/quorum.h.
 */
#include "daemon/store/topology/quorum.h"

#include "daemon/store/model/quorum.h"
#include "daemon/store/node/conn.h"
#include "daemon/store/node/history.h"
#include "daemon/store/queue/queue.h"

#include "daemon/base/assert.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint32_t
all_nodes(const struct quorum *quorum)
{
    return (1u << quorum->nodes) - 1;
}

/*
 * The nodes are numbered by their addresses, from 1 on, so that brokers whose
 * lists are in another order number them in the same way: see own_fence in
 * lua/call.lua.
 */
static uint8_t
node_number(const struct store *store, uint32_t node)
{
    const struct store_address *address = &store->nodes[node].address;
    uint8_t number = 1;

    for (uint32_t i = 0; i < store->node_count; i++) {
        const struct store_address *other = &store->nodes[i].address;
        int order = strcmp(other->host, address->host);
        if (order < 0 || (order == 0 && other->port < address->port))
            number++;
    }
    return number;
}

/* HOST:PORT,HOST:PORT... in the order of their numbers; NULL: no memory. */
static char *
node_list(const struct store *store)
{
    const struct quorum *quorum = store->quorum;
    size_t bytes = quorum->nodes * (STORE_HOST_MAX + 7) + 1;
    char *list = calloc(1, bytes);
    size_t len = 0;

    for (uint32_t number = 1; list != NULL && number <= quorum->nodes; number++)
        for (uint32_t i = 0; i < quorum->nodes; i++) {
            const struct store_address *address = &store->nodes[i].address;
            if (store->nodes[i].number != number)
                continue;
            len += (size_t)snprintf(list + len, bytes - len, "%s%s:%u",
                len > 0 ? "," : "", address->host, address->port);
        }
    require(list == NULL || len < bytes);
    return list;
}

bool
quorum_create(struct store *store)
{
    struct quorum *quorum = calloc(1, sizeof(*quorum));

    if (quorum == NULL)
        return false;
    store->quorum = quorum;
    list_init(&quorum->used);
    list_init(&quorum->over);
    list_init(&quorum->stirs);
    quorum->nodes = store->node_count;
    quorum->majority = quorum->nodes / 2 + 1;
    require(quorum->nodes > 0 && quorum->nodes <= STORE_QUORUM_MAX);
    for (uint32_t i = 0; i < quorum->nodes; i++)
        store->nodes[i].number = node_number(store, i);
    store->list = node_list(store);
    for (int i = 0; i < 2; i++)
        quorum->key.word[i] = random_next(&store->random);
    size_t round_bytes =
        sizeof(struct round) + quorum->nodes * sizeof(struct vote);
    return store->list != NULL &&
           slab_init(&quorum->bids, sizeof(struct bid), QUORUM_BIDS) &&
           slab_init(&quorum->rounds, round_bytes, QUORUM_ROUNDS) &&
           slab_init(&quorum->queues, sizeof(struct queue), QUORUM_QUEUES) &&
           table_init(&quorum->bid_table, QUORUM_BIDS) &&
           table_init(&quorum->queue_table, QUORUM_QUEUES);
}

void
quorum_destroy(struct store *store)
{
    struct quorum *quorum = store->quorum;

    if (quorum == NULL)
        return; /* there was no memory */
    for (uint32_t i = 0; i < quorum->rounds.touched; i++) {
        struct round *round = slab_at(&quorum->rounds, i);
        if (round == NULL)
            continue;
        free(round->views);
        free(round->shown);
        free(round->message);
    }
    table_abandon(&quorum->bid_table);
    table_abandon(&quorum->queue_table);
    slab_fini(&quorum->bids);
    slab_fini(&quorum->rounds);
    slab_fini(&quorum->queues);
    free(quorum);
    store->quorum = NULL;
}

/* Something has changed about a lock: its key, as a script of that node has
 * told. The other nodes are about to tell the same, and who tries too soon gets
 * a part. The news count at nodes where somebody else was in the way. At other
 * nodes they may be of the last try's own grants. */
static void
quorum_news(struct store *store, uint16_t node, struct text key)
{
    size_t prefix = store->prefix_len + 2;

    if (key.len < prefix + 1)
        return;
    struct queue *queue = queue_find(
        store->quorum, text_make(key.at + prefix, key.len - prefix - 1));
    if (queue == NULL || !list_empty(&queue->stir_link))
        return;
    uint32_t busy = queue_first(queue)->busy;
    if (busy != 0 && (busy & 1u << node) == 0)
        return;
    queue->stir_us =
        store->now_us + STIR_US + random_below(&store->random, STIR_US);
    list_push_back(&store->quorum->stirs, &queue->stir_link);
}

static void
quorum_dropped(struct store *store, const struct op *op)
{
    require(op_see(op)->round == NULL || op_see(op)->round->asked == op);
    if (op_see(op)->round != NULL)
        op_see(op)->round->asked = NULL;
    if (op->result.status == OP_OK)
        return;
    struct bid *bid = bid_find(store->quorum, op->request);
    if (bid == NULL)
        return;
    if (bid->leaves == op)
        bid->leaves = NULL;
    else if (bid_is_over(bid, op))
        bid_free(store, bid);
}

static void
try_begin(struct store *store, struct bid *bid, struct op *op)
{
    struct op question = *op;

    require(op->kind == OP_ACQUIRE || op->kind == OP_RENEW);
    slab_renew_handle(&store->quorum->bids, bid);
    question.kind = OP_ACQUIRE;
    question.request = handle_pack(slab_handle(&store->quorum->bids, bid));
    question.no_queue = true;
    question.retry = false;
    question.tells_wait = op->kind == OP_RENEW || !op->no_queue;
    question.moves = bid->moves;
    question.arrival = 0;
    question.fence = 0;
    question.place = 0;
    question.ask = bid->ask;
    question.over_us = WHEEL_NEVER; /* no earlier try has this request */
    /* So all nodes give what is above it. */
    uint64_t floor = fence_clock_floor(store);
    if (question.seen < floor)
        question.seen = floor;
    if (question.seen < bid->seen)
        question.seen = bid->seen;
    struct round *round = round_begin(store, &question, op);
    if (round == NULL) {
        quorum_answer(store, op, OP_UNSENT);
        return;
    }
    bid->trying = true;
    bid->tried_us = store->now_us;
    bid->busy = 0;
    round->bid = slab_handle(&store->quorum->bids, bid);
    round_ask(store, round, all_nodes(store->quorum));
}

/* A LOCK, or its next try. */
static void
take_acquire(struct store *store, struct op *op)
{
    struct bid *bid = bid_find(store->quorum, op->request);
    struct queue *queue = queue_find(store->quorum, op->name);

    if (bid == NULL)
        bid = bid_make(store, op);
    if (bid == NULL) {
        quorum_answer(store, op, OP_UNSENT);
        return;
    }
    bid_used(store, bid);
    bid->moves = bid->moves || op->moves;
    bool first = queue == NULL || queue_first(queue) == bid;
    bool due = store->now_us >= turn_due_us(turn_of(store->quorum, bid->hash));
    if (first && due) {
        try_begin(store, bid, op);
    } else if (op->no_queue) {
        uint32_t count = queue != NULL ? queue->count : 0;
        op->result = (struct op_result){.ahead = count + 1};
        quorum_answer(store, op, OP_BUSY);
    } else if (bid_queues(store, bid, queue, op)) {
        if (first)
            queue_stir(store, bid->queue);
        bid_waits(store, bid, op, NULL);
    }
}

/* Nobody would hear of a grant, and its client may have gone on at another
 * broker, of whose tries nothing is known here. */
static void
take_idle(struct store *store, struct bid *bid, struct op *op)
{
    queue_leave(store, bid, true);
    bid->idle = true;
    op->result = (struct op_result){
        .ask = bid->ask,
        .arrival = bid->arrival,
        .again_ms = PAUSE_MAX_MS,
        .ahead = 1,
        .sent_us = store->now_us,
    };
    quorum_answer(store, op, OP_WAITING);
}

/* Its broker asks after a ticket that waits. */
static void
take_refresh(struct store *store, struct bid *bid, struct op *op)
{
    if (op->idle && !bid->trying) {
        take_idle(store, bid, op);
        return;
    }
    if (!bid_queues(store, bid, queue_find(store->quorum, op->name), op))
        return;
    bid->moves = bid->moves || op->moves;
    if (bid->trying)
        bid->stirred = true;
    if (bid->again_us > bid->not_before_us)
        bid->again_us = bid->not_before_us;
    bool first = queue_first(bid->queue) == bid;
    bool due = store->now_us >= turn_due_us(turn_of(store->quorum, bid->hash));
    if (!bid->trying && first && due && store->now_us >= bid->not_before_us) {
        try_begin(store, bid, op);
        return;
    }
    if (first && !due)
        queue_stir(store, bid->queue);
    bid_waits(store, bid, op, NULL);
}

/* A hold is renewed, or one of an earlier connection is claimed. */
static void
take_renewal(struct store *store, struct bid *bid, struct op *op)
{
    struct op question = *op;

    question.request = handle_pack(slab_handle(&store->quorum->bids, bid));
    question.arrival = 0;
    question.place = 0;
    if (op->shares) /* from the sending on, whatever becomes of the answers */
        bid->ask.mode = MODE_SHARED;
    if (op->detaches)
        bid->detached_us = op->hard_end_us;
    if (!op->moves) { /* the try's request id tells it from all others */
        question.fence = 0;
        question.seen = bid->fence;
        question.raises = question.agreed = true;
    } else if (op->fence == 0) { /* the wait has been granted meanwhile */
        question.fence = bid->fence;
    }
    struct round *round = round_begin(store, &question, op);
    if (round == NULL) {
        quorum_answer(store, op, OP_UNSENT);
        return;
    }
    round->bid = slab_handle(&store->quorum->bids, bid);
    round_ask(store, round, all_nodes(store->quorum));
}

static void
take_renew(struct store *store, struct op *op)
{
    struct bid *bid = bid_find(store->quorum, op->request);

    if (bid == NULL && op->moves && op->fence > 0)
        bid = bid_make(store, op);
    if (bid == NULL || bid->leaving ||
        (bid->queue == NULL && !bid->idle && bid->fence == 0 &&
            op->fence == 0)) {
        op->result = (struct op_result){0};
        quorum_answer(store, op, OP_GONE);
        return;
    }
    bid_used(store, bid);
    if (bid->queue != NULL || bid->idle)
        take_refresh(store, bid, op);
    else
        take_renewal(store, bid, op);
}

/* All nodes whom nobody has told yet. */
static void
leave_ask(struct store *store, struct bid *bid, const struct op *op)
{
    uint32_t nodes =
        all_nodes(store->quorum) & ~(bid->asked_to_leave | bid->left);
    struct op question = *op;

    if (nodes == 0)
        return;
    question.request = handle_pack(slab_handle(&store->quorum->bids, bid));
    question.arrival = 0;
    question.place = 0;
    if (!op->moves) /* else it may be a later connection's */
        question.fence = 0;
    struct round *round = round_begin(store, &question, NULL);
    if (round == NULL)
        return;
    round->bid = slab_handle(&store->quorum->bids, bid);
    bid->asked_to_leave |= nodes;
    round_ask(store, round, nodes);
}

static void
take_release(struct store *store, struct op *op)
{
    struct bid *bid = bid_find(store->quorum, op->request);
    bool stands = bid != NULL && (bid->fence > 0 || bid->leaving);

    if (!stands) { /* a try that is under way is taken back by itself */
        op->result = (struct op_result){0};
        if (bid != NULL)
            bid_free(store, bid);
        quorum_answer(store, op, bid != NULL ? OP_OK : OP_GONE);
        return;
    }
    bid_used(store, bid);
    bid->fence = 0;
    bid->leaving = true;
    bid->leaves = op;
    op_park(store, op, op->deadline_us);
    leave_ask(store, bid, op);
    leave_answer(store, bid); /* it may have been carried out already */
}

static void
ask_plain(struct store *store, const struct op *question, struct op *op)
{
    struct round *round = round_begin(store, question, op);

    if (round == NULL)
        quorum_answer(store, op, OP_UNSENT);
    else
        round_ask(store, round, all_nodes(store->quorum));
}

static void
take_plain(struct store *store, struct op *op)
{
    ask_plain(store, op, op);
}

/* All holders are counted, and the nodes have them in orders of their own. */
static void
take_inspect(struct store *store, struct op *op)
{
    struct op question = *op;

    require(op->kind == OP_INSPECT && op->limit <= TICKETS_SHOWN);
    question.limit = TICKETS_SHOWN;
    ask_plain(store, &question, op);
}

static void
take_look(struct store *store, struct op *op)
{
    if (op->watch) {
        take_plain(store, op);
        return;
    }
    op->result = (struct op_result){0}; /* nobody waits in a record */
    quorum_answer(store, op, OP_OK);
}

/* A ticket that a majority has lost is gone. */
static void
take_reclaim(struct store *store, struct op *op)
{
    op->result = (struct op_result){0};
    quorum_answer(store, op, OP_GONE);
}

/* It is of one node. */
static void
take_never(struct store *store, struct op *op)
{
    (void)store;
    (void)op;
    require(false);
}

void
quorum_take(struct store *store, struct op *op)
{
    static void (*const take[OP_KIND_COUNT])(struct store *, struct op *) = {

#define OP(id, word, owner, done, script, keys, share, grants, take, decide) \
    take,
#include "daemon/op/op.def"
    };
    uint64_t lease_us = (uint64_t)op->lease_ms * 1000;

    op_own(op)->round = NULL;
    if (store->quorum->lease_us < lease_us)
        store->quorum->lease_us = lease_us;
    require(op->kind < OP_KIND_COUNT);
    take[op->kind](store, op);
}

void
quorum_tick(struct store *store, uint64_t now_us)
{
    require(now_us == store->now_us);
    round_sweep(store);
    bids_forget(store);
    queues_stir(store);
}

uint64_t
quorum_next_us(const struct store *store)
{
    uint64_t next_us = WHEEL_NEVER;

    LIST_EACH (at, &store->quorum->stirs) {
        uint64_t stir_us = container_of(at, struct queue, stir_link)->stir_us;
        if (stir_us < next_us)
            next_us = stir_us;
    }
    return next_us;
}

bool
quorum_suffices(const struct store *store, uint32_t nodes)
{
    return nodes >= store->quorum->majority;
}

bool
quorum_results(struct store *store, struct op *op, enum op_status status)
{
    if (op_own(op)->vote)
        quorum_voted(store, op, status);
    else
        quorum_dropped(store, op);
    return op_own(op)->vote;
}

void
quorum_heard(struct store *store, uint16_t node, struct text told)
{
    if (told.len > 1 && told.at[0] == 'W')
        quorum_news(store, node, text_make(told.at + 1, told.len - 1));
    else if (told.len > 9 && told.at[0] == 'T' &&
             memcmp(told.at + 1, store->settings.broker_id, 8) != 0)
        quorum_wanted(store, text_make(told.at + 9, told.len - 9));
    else if (told.len == 13 && told.at[0] == 'M')
        quorum_moved(store, told.at + 1);
}

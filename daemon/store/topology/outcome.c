/*
 * Outcomes of a bid: it waits, wins, loses, or has left. The core's
 * operation is answered then.
 */
#include "daemon/store/topology/quorum.h"

#include "daemon/store/model/times.h"
#include "daemon/store/queue/queue.h"

#include "daemon/base/assert.h"

#define SPLIT_MAX_MS 64
#define RETRY_US     50000

static uint32_t
bits(uint32_t set)
{
    uint32_t n = 0;

    for (; set != 0; set &= set - 1)
        n++;
    return n;
}

/* Has all nodes tell of what changes, for as long as somebody waits. */
static void
queue_watch(struct store *store, struct queue *queue, const struct op *op)
{
    uint64_t lease_us = (uint64_t)op->lease_ms * 1000;
    struct op look = {.kind = OP_LOOK, .watch = true, .lease_ms = op->lease_ms};

    if (store->now_us + lease_us / 2 < queue->watched_us)
        return;
    look.name = text_make(queue->name, queue->name_len);
    look.slot = op->slot;
    struct round *round = round_begin(store, &look, NULL);
    if (round == NULL)
        return;
    queue->watched_us = store->now_us + lease_us;
    for (uint32_t i = 0; i < store->quorum->nodes; i++)
        (void)vote_send(
            store, &round->votes[i], VOTE_ASKED, soon_us(store), false);
    round_end(store, round);
}

void
quorum_answer(struct store *store, struct op *op, enum op_status status)
{
    require(op_see(op)->round == NULL || op_see(op)->round->asked == op);
    if (op_own(op)->round != NULL)
        op_own(op)->round->asked = NULL;
    op_own(op)->round = NULL;
    op_done(store, op, status);
}

/* A pause in ms, by chance up to half as long again; the next is twice as long,
 * up to a limit. */
static uint32_t
pause_next(struct store *store, uint32_t *pause_ms, uint32_t most_ms)
{
    uint32_t low_ms = *pause_ms;

    require(low_ms > 0 && low_ms <= most_ms);
    *pause_ms = 2 * low_ms < most_ms ? 2 * low_ms : most_ms;
    return low_ms + (uint32_t)random_below(&store->random, low_ms / 2 + 1);
}

/*
 * When the first of a queue is to try again. If some nodes had granted it,
 * others may have met it there. It tries again soon, or when something changes,
 * but never at once, or they would meet again and again.
 */
static void
bid_pauses(struct store *store, struct bid *bid, const struct round *round)
{
    bool split = round->stats[OP_OK] > 0;
    bool held = round->stats[OP_BUSY] >= store->quorum->majority;
    uint32_t free_ms = round_free_ms(store, round);
    uint32_t split_ms =
        split ? pause_next(store, &bid->split_ms, SPLIT_MAX_MS) : 0;
    uint32_t pause_ms = pause_next(store, &bid->pause_ms, PAUSE_MAX_MS);

    if (split)
        count(store->counters, COUNTER_quorum_splits);
    if (bid->stirred && pause_ms > 2 * STIR_US / 1000)
        pause_ms =
            (uint32_t)(STIR_US + random_below(&store->random, STIR_US)) / 1000;
    if (free_ms < pause_ms)
        pause_ms = free_ms + (uint32_t)random_below(&store->random, SPLIT_MS);
    if (pause_ms < split_ms || (split && !held))
        pause_ms = split_ms;
    bid->stirred = false;
    bid->busy = round_busy(store, round);
    bid->again_us = store->now_us + (uint64_t)pause_ms * 1000;
    bid->not_before_us = store->now_us + (uint64_t)split_ms * 1000;
}

void
bid_waits(struct store *store, struct bid *bid, struct op *op,
    const struct op_result *about)
{
    uint64_t now_us = store->now_us;
    require(bid->queue != NULL);
    bool first = queue_first(bid->queue) == bid;
    uint64_t again_us =
        bid->again_us > now_us ? bid->again_us - now_us : PAUSE_MIN_MS * 1000;

    op->result = about != NULL ? *about : (struct op_result){0};
    op->result.ask = bid->ask;
    op->result.place = 0;
    op->result.fence = 0;
    op->result.arrival = bid->arrival;
    op->result.again_ms =
        first ? (uint32_t)(again_us / 1000) + 1 : PAUSE_MAX_MS;
    op->result.ahead = bid_place(bid);
    op->result.sent_us = now_us;
    queue_watch(store, bid->queue, op);
    quorum_answer(store, op, OP_WAITING);
}

bool
bid_queues(
    struct store *store, struct bid *bid, struct queue *queue, struct op *op)
{
    if (bid->queue != NULL)
        return true;
    if (queue != NULL && !bid->idle && /* which had its place before */
        queue->count >= store->settings.waiters_max) {
        op->result = (struct op_result){0};
        quorum_answer(store, op, OP_FULL);
        return false;
    }
    if (queue == NULL)
        queue = queue_make(store->quorum, op->name);
    if (queue == NULL) {
        quorum_answer(store, op, OP_UNSENT);
        return false;
    }
    if (!bid->idle)
        bid->since_us = store->realtime_us;
    queue_insert(queue, bid);
    return true;
}

void
bid_wins(struct store *store, struct bid *bid, uint64_t fence)
{
    require(bid->trying);
    bid->trying = false;
    turn_begins(store, bid);
    bid->stirred = false;
    bid->pause_ms = PAUSE_MIN_MS;
    bid->not_before_us = 0;
    bid->fence = fence;
    bid->idle = false;
    queue_leave(
        store, bid, bid->ask.mode == MODE_SHARED); /* the next may share it */
}

/* Too few nodes are settled. Nodes that were away may be enough when they are
 * back, before the others settle. */
static void
bid_stands_back(struct store *store, const struct bid *bid,
    const struct round *round, struct op *op)
{
    uint64_t grace_us = (uint64_t)round_settles_ms(store, round) * 1000;
    bool away = round->stats[OP_UNSENT] + round->stats[OP_UNKNOWN] > 0;

    op_park_grace(store, op, grace_us, away ? bid->again_us : WHEEL_NEVER);
}

void
bid_loses(struct store *store, struct bid *bid, struct round *round)
{
    const uint32_t *stats = round->stats;
    uint32_t majority = store->quorum->majority;
    uint32_t enough = store->quorum->nodes - majority + 1;
    uint32_t spoke = stats[OP_OK] + stats[OP_BUSY];
    struct op *op = round->asked;

    require(bid->trying && round->decided && !round->won);
    bid->trying = false;
    if (op == NULL)
        return;
    bool waits = bid->queue != NULL;
    bid_pauses(store, bid, round);
    if (stats[OP_BUSY] >= majority)
        turn_passes(store, bid);
    if (stats[OP_MOVED] > 0) {
        quorum_answer(store, op, OP_MOVED);
    } else if (stats[OP_CONFLICT] >= enough) {
        quorum_answer(store, op, OP_CONFLICT);
    } else if (stats[OP_REFUSED] >= enough) {
        quorum_answer(store, op, OP_REFUSED);
    } else if (spoke >= majority && op->kind == OP_ACQUIRE && op->no_queue) {
        op->result = round->about;
        op->result.ahead = 1;
        quorum_answer(store, op, OP_BUSY);
    } else if (spoke >= majority ||
               (waits && spoke + stats[OP_UNSETTLED] >= majority)) {
        if (!bid_queues(store, bid, queue_find(store->quorum, op->name), op))
            return;
        round->about.unsettled = spoke < majority;
        bid_waits(store, bid, op, &round->about);
    } else if (waits) {
        quorum_answer(store, op, OP_UNKNOWN);
    } else {
        bool unsettled = spoke + stats[OP_UNSETTLED] >= majority;
        op_own(op)->round->asked = NULL;
        op_own(op)->round = NULL;
        op_own(op)->attempts = 1;
        if (unsettled)
            bid_stands_back(store, bid, round, op);
        else
            op_park(store, op, store->now_us + store_jitter(store, RETRY_US));
    }
}

void
leave_answer(struct store *store, struct bid *bid)
{
    struct op *op = bid->leaves;
    struct queue *queue;

    if (op == NULL || bits(bid->left) < store->quorum->majority)
        return;
    require(bid->leaving && op->request == bid->request);
    bool freed = bid->freed;
    bid->leaves = NULL;
    queue = queue_find(store->quorum, op->name);
    list_remove(&op->link); /* it was parked */
    op->result = (struct op_result){0};
    bid_free(store, bid);
    if (queue != NULL)
        queue_stir(store, queue);
    quorum_answer(store, op, freed ? OP_OK : OP_GONE);
}

void
bid_left(struct store *store, struct bid *bid, uint32_t node, bool had)
{
    require(bid->leaving && (bid->left & node) == 0);
    bid->left |= node;
    bid->freed = bid->freed || had;
    leave_answer(store, bid);
}

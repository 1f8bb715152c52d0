/*
 * Batches: the operations that wait at a node become script calls, as few as
 * slots and limits allow. Replies: call_result.c. Errors: call_error.c.
 *
 * A slow reply delays only the replies behind it on the same connection. While
 * as many calls as allowed are under way, operations gather for the next one:
 * the busier the node, the larger the batch.
 *
 * The lanes of a node take turns, a call each, so that no kind of operation
 * starves another, however many of it wait. In a lane its sessions take turns
 * (lane.c). Releases that no client waits for have a lane of their own: a
 * million of a session that has ended take a turn like one. If renewals have
 * waited for long, every second call is theirs.
 *
 * A call is *bulk* if more urgent ones may come. These are renewals in time,
 * releases that no client waits for, and many operations of one session beside
 * others. Bulk leaves half of the calls under way to others, so that a new
 * operation finds little of it on its way to Redis.
 *
 * See DESIGN.md D8.3 and D8.4.
 */
#include "daemon/store/queue/queue.h"

#include "daemon/store/model/times.h"
#include "daemon/store/node/conn.h"
#include "daemon/store/node/history.h"
#include "daemon/store/node/script.h"
#include "daemon/store/strict/strict.h"

#include "daemon/base/assert.h"

#define MIXED_US 1000000 /* so long a node is not one session's alone */

enum op_keys {
    KIND_KEYED,
    KIND_KEYLESS,
};

enum op_share {
    KIND_ALONE,
    KIND_GATHERS,
};

/* By op.def. */
static const struct {
    enum op_keys keys;
    enum op_share share;
} kinds[OP_KIND_COUNT] = {

#define OP(id, word, owner, done, script, keys, share, ...) \
    {KIND_##keys, KIND_##share},
#include "daemon/op/op.def"
};

/* Whether `over_us` may come before Redis runs what is sent now. */
static bool
op_is_overdue(const struct store *store, const struct op *op, uint64_t now_us)
{
    return now_us + store->settings.command_timeout_us > op->over_us;
}

/* Whether there is no use in sending it any more. */
static bool
op_is_needless(const struct conn *conn, const struct op *op)
{
    return op->unwanted ||
           (op->repeats && conn->history.state == HISTORY_SETTLED);
}

/* Whether an operation may go into a call that begins with `first`: those of a
 * call are of one slot, where there are slots, and some go alone. */
static bool
op_fits(const struct store *store, const struct conn *conn, const struct op *op,
    const struct op *first)
{
    bool slots = store->topology->slots;

    return op == first ||
           !(op_is_needless(conn, op) || op_see(op)->single ||
               op_see(first)->single || (slots && op->slot != first->slot));
}

/* The first operation of that lead's session that fits, or NULL. */
static struct op *
lead_fitting(const struct store *store, const struct conn *conn,
    struct op *lead, const struct op *first, uint32_t *looks)
{
    *looks -= *looks > 0;
    if (op_fits(store, conn, lead, first))
        return lead;
    LIST_EACH (at, &op_own(lead)->behind) {
        struct op *op = container_of(at, struct op, link);
        if (*looks == 0)
            return NULL;
        --*looks;
        if (op_fits(store, conn, op, first))
            return op;
    }
    return NULL;
}

/* Takes an operation out of the lane; its session has the next turn after all
 * others. */
static void
op_take(struct store *store, struct list *leads, struct op *lead, struct op *op)
{
    struct list *before = lead->link.prev;
    bool more = !list_empty(&op_own(lead)->behind);

    op_dequeue(store, op);
    if (!more)
        return;
    struct list *next = before->next;
    list_remove(next);
    list_push_back(leads, next);
}

/*
 * Moves what goes into one call from the lane: of each session in turn an
 * operation, until the call has its size or nothing fits.
 */
static void
batch_gather(struct store *store, const struct conn *conn, struct node *node,
    unsigned lane, struct call *call)
{
    struct list *leads = &node->lanes[lane];
    require(!list_empty(leads) && list_empty(&call->ops));
    const struct op *first = container_of(leads->next, struct op, link);
    uint32_t limit =
        kinds[first->kind].share == KIND_GATHERS ? store->settings.batch : 1;
    uint32_t looks = 4 * limit;
    uint32_t before;

    do {
        before = call->op_count;
        LIST_EACH_SAFE (at, leads) {
            struct op *lead = container_of(at, struct op, link);
            if (call->op_count == limit || looks == 0)
                break;
            struct op *op = lead_fitting(store, conn, lead, first, &looks);
            if (op == NULL)
                continue;
            op_take(store, leads, lead, op);
            op->sent_us = call->sent_us;
            op->overdue = op_is_overdue(store, op, call->sent_us);
            op->tries++;
            list_push_back(&call->ops, &op->link);
            call->op_count++;
        }
    } while (call->op_count > before && call->op_count < limit && looks > 0);
    require(call->op_count > 0);
}

/*
 * Until when the answer to an operation that was sent then is waited for. Redis
 * does not carry it out later, where that matters.
 */
static uint64_t
op_until_us(const struct store *store, const struct op *op, uint64_t sent_us)
{
    uint64_t least_us = sent_us + store->settings.command_timeout_us;
    uint64_t most_us = sent_us + store_silence_us(store);

    if (op->end_us > sent_us && op->end_us < least_us)
        return op->end_us;
    if (!op->overdue && op->over_us < most_us)
        most_us = op->over_us; /* not before least_us, or it is overdue */
    if (op->deadline_us < least_us)
        return least_us;
    return op->deadline_us < most_us ? op->deadline_us : most_us;
}

uint64_t
call_due_us(const struct store *store, const struct call *call)
{
    uint64_t in_time_us = call->sent_us + store->settings.command_timeout_us;
    uint64_t due_us = WHEEL_NEVER;

    if (store->now_us < in_time_us)
        return in_time_us; /* at the soonest */
    LIST_EACH (at, &call->ops) {
        const struct op *op = container_of(at, struct op, link);
        uint64_t until_us = op_until_us(store, op, call->sent_us);
        due_us = until_us < due_us ? until_us : due_us;
    }
    return due_us;
}

static size_t
key_bytes(const struct store *store, const struct op *op)
{
    return store->prefix_len + 3 + op->name.len;
}

/* PREFIX:{NAME} */
static void
write_key(const struct store *store, const struct op *op, char *at)
{
    memcpy(at, store->settings.key_prefix, store->prefix_len);
    at += store->prefix_len;
    *at++ = ':';
    *at++ = '{';
    memcpy(at, op->name.at, op->name.len);
    at[op->name.len] = '}';
}

static void
write_keys(
    struct store *store, const struct call *call, struct resp_writer *writer)
{
    LIST_EACH (at, &call->ops) {
        const struct op *op = container_of(at, struct op, link);
        write_key(store, op, resp_bulk(writer, key_bytes(store, op)));
    }
}

/* A message to another broker: no script. */
static bool
publish_write(struct store *store, struct conn *conn, const struct call *call)
{
    const struct op *op = container_of(call->ops.next, struct op, link);
    char channel[sizeof(store->channel) + 8];
    size_t len = strlen(store->channel);

    require(op->words[0].len == 8);
    memcpy(channel, store->channel, len);
    memcpy(channel + len, op->words[0].at, 8);
    const struct text words[] = {
        TEXT("PUBLISH"), text_make(channel, len + 8), op->words[1]};
    return resp_command(&conn->out, words, 3);
}

/* False where the output has no room for the call now. The script renew takes
 * the arguments of its operations as one string, which is cheaper for Redis. */
static bool
batch_write(struct store *store, struct conn *conn, const struct call *call,
    enum op_kind kind, uint64_t now_us)
{
    struct record_header header = script_header(store, conn, now_us);
    uint32_t keys = kinds[kind].keys == KIND_KEYLESS ? 0 : call->op_count;
    bool joined = record_script(kind) == SCRIPT_RENEW;
    uint32_t arguments = joined ? 1 : call->op_count;
    size_t header_bytes = record_header_bytes(&header);
    size_t bytes = 120 + RESP_BULK_BYTES(header_bytes);
    size_t joined_bytes = 0;
    struct resp_writer writer;

    LIST_EACH (at, &call->ops) {
        const struct op *op = container_of(at, struct op, link);
        size_t own_bytes = record_op_bytes(op);
        bytes +=
            RESP_BULK_BYTES(key_bytes(store, op)) + RESP_BULK_BYTES(own_bytes);
        joined_bytes += own_bytes;
    }
    if (!resp_begin(&writer, &conn->out, 4 + keys + arguments, bytes))
        return false;
    resp_text(&writer, TEXT("EVALSHA"));
    resp_text(&writer, text_make(scripts[record_script(kind)].sha1, 40));
    resp_number(&writer, keys);
    if (keys > 0)
        write_keys(store, call, &writer);
    record_write_header(&header, resp_bulk(&writer, header_bytes));
    char *to = joined ? resp_bulk(&writer, joined_bytes) : NULL;
    LIST_EACH (at, &call->ops) {
        const struct op *op = container_of(at, struct op, link);
        uint64_t until_us = op_until_us(store, op, now_us);
        require(until_us >= now_us); /* DESIGN.md D8.4 */
        uint64_t left_us = until_us - now_us;
        if (!joined)
            to = resp_bulk(&writer, record_op_bytes(op));
        to = record_write_op(
            op, now_us, (header.expected_us + left_us) / 1000, to);
    }
    resp_end(&writer);
    return true;
}

bool
call_is_mark(const struct call *call)
{
    require(!list_empty(&call->ops));
    const struct op *first = container_of(call->ops.next, struct op, link);
    return first->kind == OP_AUDIT && first->audit->mark_ms > 0;
}

static bool
call_write(struct store *store, struct conn *conn, const struct call *call,
    enum op_kind kind, uint64_t now_us)
{
    if (call_is_mark(call))
        return audit_mark(store, conn, call);
    if (kind == OP_PUBLISH)
        return publish_write(store, conn, call);
    return batch_write(store, conn, call, kind, now_us);
}

/* ASKING and the call that it is for must be neighbours. */
static bool
send_asking(struct store *store, struct conn *conn, uint64_t now_us)
{
    const struct text word = TEXT("ASKING");

    if (!resp_command(&conn->out, &word, 1))
        return false;
    conn_call(store, conn, CALL_ASKING, now_us);
    return true;
}

/* One call of that lane; false where no more can be sent now. */
static bool
batch_send(struct store *store, struct conn *conn, struct node *node,
    unsigned lane, bool bulk, uint64_t now_us)
{
    const struct op *first =
        container_of(node->lanes[lane].next, struct op, link);
    enum op_kind kind = first->kind;

    if (CONN_OUT_BYTES - buffer_len(&conn->out) < CONN_OUT_BYTES / 2)
        return false;
    if (op_see(first)->asking && !send_asking(store, conn, now_us))
        return false;
    uint64_t spoke_us = conn->spoke_us;
    struct call *call = conn_call(store, conn, CALL_SCRIPT, now_us);
    call->bulk = bulk;
    conn->batch_count++;
    conn->bulk_count += bulk;
    require(conn->bulk_count <= conn->batch_count); /* DESIGN.md D8.3 */
    batch_gather(store, conn, node, lane, call);
    if (kind == OP_PUBLISH || call_is_mark(call))
        conn->spoke_us = spoke_us;
    /* Half of the output is more than the largest batch takes. */
    bool written = call_write(store, conn, call, kind, now_us);
    require(written);
    count(store->counters, COUNTER_redis_calls);
    store->counters->value[COUNTER_redis_operations] += call->op_count;
    return true;
}

/* Whether the lane has something to send, at its head. */
static bool
lane_drop_needless(struct store *store, const struct conn *conn,
    struct node *node, unsigned lane)
{
    const struct list *leads = &node->lanes[lane];

    while (!list_empty(leads)) {
        struct op *op = container_of(leads->next, struct op, link);
        if (!op_is_needless(conn, op))
            return true;
        op_dequeue(store, op);
        op_done(store, op, op->repeats ? OP_GONE : OP_UNSENT);
    }
    return false;
}

/* Whether renewals press: the first of them has waited for a quarter of the
 * time that it has. */
static bool
renewals_press(const struct node *node, uint64_t now_us)
{
    const struct list *leads = &node->lanes[OP_RENEW];

    if (list_empty(leads))
        return false;
    const struct op *first = container_of(leads->next, struct op, link);
    return now_us > first->began_us &&
           (now_us - first->began_us) >
               (first->deadline_us - first->began_us) / 4;
}

/* `held_only`: what is held goes on, and nothing is granted. */
static bool
lane_goes(unsigned lane, bool grants, bool held_only)
{
    if (lane == LANE_YIELDS)
        return true;
    if (held_only && record_script((enum op_kind)lane) == SCRIPT_ACQUIRE)
        return false;
    return grants || kind_grants((enum op_kind)lane) < KIND_PASSES;
}

/* Whether the next call of a lane, which is not empty, is bulk. */
static bool
lane_is_bulk(const struct node *node, unsigned lane, uint64_t now_us)
{
    const struct list *leads = &node->lanes[lane];
    const struct op *first = container_of(leads->next, struct op, link);

    if (lane == OP_RENEW)
        return !renewals_press(node, now_us);
    return lane == LANE_YIELDS ||
           (now_us < node->mixed_us + MIXED_US && leads->next == leads->prev &&
               !list_empty(&op_see(first)->behind));
}

/* How many calls of a connection may be bulk. With one Redis would pause. */
static uint32_t
bulk_max(const struct store *store)
{
    uint32_t half = (store->settings.in_flight + 1) / 2;

    return half > 2 ? half : 2;
}

void
call_flush_node(struct store *store, uint16_t index, uint64_t now_us)
{
    struct node *node = &store->nodes[index];
    struct conn *conn = &store->conns[index];

    require(conn->node == index);
    if (!conn_answers(conn) || node->queued == 0)
        return;
    if (conn->history.ids_wanted || conn->history.ids_asked)
        return; /* its earlier id would be refused again */
    if (history_awaits(conn))
        return; /* whether all is there that those are to find */
    bool grants = !store->settings.strict || confirm_possible(store, conn);
    bool held_only = store->other_lists > 0;
    unsigned turn = node->turn;
    unsigned idle = 0; /* so many lanes in turn have had nothing to send */
    bool left = false; /* bulk waits */
    while (idle < LANE_COUNT) {
        bool pressed = grants && !node->renewed && renewals_press(node, now_us);
        unsigned lane = pressed ? OP_RENEW : turn;
        bool has = lane_goes(lane, grants, held_only) &&
                   lane_drop_needless(store, conn, node, lane);
        bool bulk = has && lane_is_bulk(node, lane, now_us);
        if (bulk && conn->bulk_count >= bulk_max(store)) {
            has = false;
            left = true;
        }
        if (has && (conn->batch_count >= store->settings.in_flight ||
                       conn->held_count >= 2 * store->settings.in_flight ||
                       !batch_send(store, conn, node, lane, bulk, now_us)))
            return;
        if (has)
            node->renewed = lane == OP_RENEW;
        if (!pressed) {
            turn = (turn + 1) % LANE_COUNT;
            idle = has ? 0 : idle + 1;
            node->turn = has ? turn : node->turn;
        }
    }
    if (left)
        return;
    node->turn = 0;
    node->renewed = false;
}

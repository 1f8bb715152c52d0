/*
 * Batches: the operations that wait at a node become script calls, as few as
 * slots and limits allow, and the replies become results.
 *
 * One slow reply holds nothing up but what is behind it on the same link. While
 * as many calls as allowed are under way, operations gather for the next one:
 * the busier the node, the larger the batch.
 *
 * The lanes of a node take turns, a call each, so that no kind of operation
 * starves another, however many of it wait. In a lane its sessions take turns
 * (lane.c). Releases that no client waits for have a lane of their own: a
 * million of a session that has ended take a turn like one. Where renewals have
 * waited for long, every second call is theirs.
 *
 * A call is *bulk* where more urgent ones may come: renewals in time, releases
 * that no client waits for, and operations of one session that has more of
 * them, where there are others. Bulk leaves half of the calls under way to
 * others, so that a new operation finds little of it on its way to Redis.
 *
 * See DESIGN.md D8.3 and D8.4.
 */
#include "daemon/store/queue/call.h"

#include "daemon/store/model/times.h"
#include "daemon/store/node/conn.h"
#include "daemon/store/node/fault.h"
#include "daemon/store/node/fence_clock.h"
#include "daemon/store/node/history.h"
#include "daemon/store/queue/audit.h"
#include "daemon/store/queue/op_queue.h"
#include "daemon/store/strict/strict.h"
#include "daemon/store/topology/quorum.h"
#include "daemon/store/topology/route.h"

#include "daemon/base/assert.h"
#include "daemon/base/log.h"

#include <stdio.h>

#define RETRIES_AT_ONCE 5
#define RETRY_US        50000
#define TRYAGAIN_US     20000
#define GRACE_US        50000   /* beyond the grace, at most */
#define MIXED_US        1000000 /* so long a node is not one session's alone */

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
    return op->unwanted || (op->repeats && conn->settled);
}

/* Whether an operation may go into a call that begins with `first`: those of a
 * call are of one slot, where there are slots, and some go alone. */
static bool
op_fits(const struct store *store, const struct conn *conn, const struct op *op,
    const struct op *first)
{
    bool slots = store->topology->slots;

    return op == first ||
           !(op_is_needless(conn, op) || op->single || first->single ||
               (slots && op->slot != first->slot));
}

/* The first operation of that lead's session that fits, or NULL. */
static struct op *
lead_fitting(const struct store *store, const struct conn *conn,
    struct op *lead, const struct op *first, uint32_t *looks)
{
    *looks -= *looks > 0;
    if (op_fits(store, conn, lead, first))
        return lead;
    LIST_EACH (at, &lead->behind) {
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
    bool more = !list_empty(&lead->behind);

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

static struct record_header
batch_header(
    const struct store *store, const struct conn *conn, uint64_t now_us)
{
    return (struct record_header){
        .number = store->nodes[conn->node].number,
        .broker = store->settings.broker_id,
        .id = conn->id,
        .channel = text_from(store->channel),
        .fence_clock_us = fence_clock_us(store, now_us),
        .expected_us = now_us + (uint64_t)conn->clock_us,
        .forget_after_ms = store->settings.forget_after_ms,
        .waiters_max = store->settings.waiters_max,
        .settles_ms = history_settles_ms(store, conn, now_us),
        .steady_ms = history_steady_ms(store, conn, now_us),
        .within_us = history_within_us(store, conn),
        .idle_after_ms = store->settings.idle_after_ms,
        .expiry_ms = store->settings.expiry_ms,
    };
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
    struct record_header header = batch_header(store, conn, now_us);
    uint32_t keys = kinds[kind].keys == KIND_KEYLESS ? 0 : call->op_count;
    bool joined = record_script(kind) == SCRIPT_RENEW;
    uint32_t arguments = joined ? 1 : call->op_count;
    size_t header_bytes = record_header_bytes(&header);
    size_t bytes = 120 + RESP_BULK_BYTES(header_bytes);
    size_t joined_bytes = 0;
    struct resp_writer writer;

    LIST_EACH (at, &call->ops) {
        const struct op *op = container_of(at, struct op, link);
        bytes += RESP_BULK_BYTES(key_bytes(store, op)) +
                 RESP_BULK_BYTES(record_op_bytes(op));
        joined_bytes += record_op_bytes(op);
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
        uint64_t left_us = op_until_us(store, op, now_us) - now_us;
        if (!joined)
            to = resp_bulk(&writer, record_op_bytes(op));
        record_write_op(op, now_us, (header.expected_us + left_us) / 1000, to);
        to += record_op_bytes(op);
    }
    resp_end(&writer);
    return true;
}

/* An audit's that is no script. */
static bool
call_is_mark(const struct call *call)
{
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

/* What the probe consists of, in this order. */
static const char *const probes[] = {
    "SET", "GETRANGE", "SETRANGE", "STRLEN", "PEXPIRE", "EVALSHA"};

#define PROBES (sizeof(probes) / sizeof(probes[0]))

static void
probe_script(struct store *store, struct conn *conn, uint64_t now_us)
{
    struct record_header header = batch_header(store, conn, now_us);
    size_t bytes = record_header_bytes(&header);
    struct resp_writer writer;

    if (!resp_begin(&writer, &conn->out, 4, 120 + RESP_BULK_BYTES(bytes)))
        return;
    resp_text(&writer, TEXT("EVALSHA"));
    resp_text(&writer, text_make(scripts[SCRIPT_ACQUIRE].sha1, 40));
    resp_number(&writer, 0);
    record_write_header(&header, resp_bulk(&writer, bytes));
    resp_end(&writer);
    (void)conn_call(store, conn, CALL_PROBE, now_us);
}

void
call_probe(struct store *store, struct conn *conn, uint64_t now_us)
{
    char name[KEY_BYTES];
    uint16_t slot = 0;
    size_t len = history_key(store, conn, "probe", &slot, name);
    struct text key = text_make(name, len);

    if (len == 0 || conn->probing > 0 ||
        CONN_OUT_BYTES - buffer_len(&conn->out) < CONN_OUT_BYTES / 2)
        return;
    CONN_SEND(store, conn, CALL_PROBE, now_us, TEXT("SET"), key, TEXT("?"),
        TEXT("PX"), TEXT("1000"));
    CONN_SEND(store, conn, CALL_PROBE, now_us, TEXT("GETRANGE"), key, TEXT("0"),
        TEXT("0"));
    CONN_SEND(store, conn, CALL_PROBE, now_us, TEXT("SETRANGE"), key, TEXT("0"),
        TEXT("?"));
    CONN_SEND(store, conn, CALL_PROBE, now_us, TEXT("STRLEN"), key);
    CONN_SEND(
        store, conn, CALL_PROBE, now_us, TEXT("PEXPIRE"), key, TEXT("1000"));
    probe_script(store, conn, now_us);
    conn->probing = PROBES;
    conn->lacks[0] = '\0';
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
    if (first->asking && !send_asking(store, conn, now_us))
        return false;
    uint64_t spoke_us = conn->spoke_us;
    struct call *call = conn_call(store, conn, CALL_SCRIPT, now_us);
    call->bulk = bulk;
    conn->batch_count++;
    conn->bulk_count += bulk;
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
               !list_empty(&first->behind));
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

    if (!conn_answers(conn) || node->queued == 0)
        return;
    if (conn->ids_wanted || conn->ids_asked)
        return; /* what it was before would be refused again */
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

void
call_lost(struct store *store, struct call *call)
{
    struct list *at;

    while ((at = list_pop_front(&call->ops)) != NULL) {
        struct op *op = container_of(at, struct op, link);
        op->answered_us = call->answered_us;
        bool again = op->kind == OP_INSPECT && !op->vote &&
                     store->now_us < op->deadline_us;
        if (again)
            op_park(store, op, store->now_us);
        else
            op_done(store, op, OP_UNKNOWN);
    }
}

/* Nothing ran: to be asked again at `node` at once, or wherever it is later. */
static void
op_again(struct store *store, struct op *op, uint16_t node, uint64_t now_us,
    uint64_t delay_us)
{
    count(store->counters, COUNTER_redis_retries);
    if (++op->attempts > RETRIES_AT_ONCE && delay_us == 0)
        delay_us = RETRY_US;
    if (delay_us > 0) {
        op->attempts = 1; /* after a pause redirects are followed again */
        op_park(store, op, now_us + store_jitter(store, delay_us));
    } else if (!node_is_wanted(store, node)) {
        op_route(store, op, now_us); /* nothing more is for that one */
    } else {
        op_enqueue(store, op, node, now_us, true);
    }
}

enum refusal {
    REFUSAL_MOVED,
    REFUSAL_ASK,
    REFUSAL_TRYAGAIN,
    REFUSAL_NOSCRIPT,
    REFUSAL_LATER, /* nothing ran, and it may later */
    REFUSAL_OTHER,
};

static enum refusal
refusal_of(struct text error)
{
    static const char *const later[] = {"LOADING ", "CLUSTERDOWN ", "BUSY ",
        "MASTERDOWN ", "READONLY ", "OOM ", "NOREPLICAS ", "MISCONF ",
        "NOAUTH ", "NOPERM ", "ERR unknown command"};

    if (text_starts_with(error, TEXT("MOVED ")))
        return REFUSAL_MOVED;
    if (text_starts_with(error, TEXT("ASK ")))
        return REFUSAL_ASK;
    if (text_starts_with(error, TEXT("TRYAGAIN ")))
        return REFUSAL_TRYAGAIN;
    if (text_starts_with(error, TEXT("NOSCRIPT ")))
        return REFUSAL_NOSCRIPT;
    for (size_t i = 0; i < sizeof(later) / sizeof(later[0]); i++)
        if (text_starts_with(error, text_from(later[i])))
            return REFUSAL_LATER;
    return REFUSAL_OTHER;
}

static void
refused_moved(struct store *store, struct conn *conn, struct op *op,
    uint64_t now_us, struct text error)
{
    uint16_t slot;
    uint16_t node;

    count(store->counters, COUNTER_redis_moved);
    store->map_wanted = true;
    if (!route_redirect(store, error, conn->node, &slot, &node)) {
        op_again(store, op, conn->node, now_us, RETRY_US);
        return;
    }
    (void)route_slot(store, slot, node, now_us);
    op_again(store, op, node, now_us, 0);
}

static void
refused_ask(struct store *store, struct conn *conn, struct op *op,
    uint64_t now_us, struct text error)
{
    uint16_t slot;
    uint16_t node;

    count(store->counters, COUNTER_redis_ask);
    if (!route_redirect(store, error, conn->node, &slot, &node)) {
        op_again(store, op, conn->node, now_us, RETRY_US);
        return;
    }
    history_inherit(store, conn, &store->conns[node], now_us);
    op->single = true;
    op->asking = true;
    op_again(store, op, node, now_us, 0);
}

/* A script stopped half way, or Redis speaks of what we do not know. */
static void
refused_other(struct store *store, struct conn *conn, struct op *op,
    uint64_t now_us, struct text error, bool alone)
{
    char name[80];

    if (!alone) {
        op->single = true;
        op->retry = true;
        op->halved = true;
        op_again(store, op, conn->node, now_us, 0);
        return;
    }
    count(store->counters, COUNTER_redis_errors);
    /* A script may not do what it needs. Audits need more than locks do. */
    if (health_of_error(error) != HEALTH_ERROR && op->kind != OP_AUDIT)
        call_refuses(store, conn, now_us, error);
    log_write(LOG_ERROR, "redis_error",
        log_word("node", conn_name(store, conn, name, sizeof(name))),
        log_quoted("error", error));
    op_done(store, op, OP_REFUSED);
}

/* Nothing runs there now. That is said once in a while, as long as the reason
 * is the same one. */
static void
refused_later(
    struct store *store, struct conn *conn, uint64_t now_us, struct text error)
{
    count(store->counters, COUNTER_redis_refused);
    store->map_wanted = true;
    call_refuses(store, conn, now_us, error);
}

void
call_refuses(
    struct store *store, struct conn *conn, uint64_t now_us, struct text error)
{
    enum health_reason reason = health_of_error(error);
    char name[80];

    if (health_fault(conn, reason, error, now_us))
        log_write(LOG_WARN, "redis_refuses_for_now",
            log_word("node", conn_name(store, conn, name, sizeof(name))),
            log_word("reason", health_word(reason)),
            log_quoted("error", error));
    history_probe(conn, now_us);
}

/* The first error, and then the commands that got others. */
static void
probe_fails(struct conn *conn, const char *command, struct text error)
{
    size_t len = strlen(conn->lacks);

    if (len == 0)
        health_copy(conn->lacks, sizeof(conn->lacks), error);
    else if (!text_starts_with(text_from(conn->lacks), error))
        (void)snprintf(
            conn->lacks + len, sizeof(conn->lacks) - len, ", nor %s", command);
}

void
call_probed(struct store *store, struct conn *conn, uint64_t now_us,
    const struct resp *reply)
{
    require(conn->probing > 0);
    const char *command = probes[PROBES - conn->probing--];

    if (reply->type == RESP_ERROR) {
        enum refusal refusal = refusal_of(reply->text);
        if (refusal == REFUSAL_NOSCRIPT)
            conn_load_scripts(store, conn, now_us);
        else if (refusal == REFUSAL_LATER || refusal == REFUSAL_OTHER)
            probe_fails(conn, command, reply->text);
    }
    if (conn->probing > 0)
        return;
    conn->unproved = false;
    if (conn->lacks[0] != '\0')
        call_refuses(store, conn, now_us, text_from(conn->lacks));
    else
        health_grants(conn);
}

/* Whether Redis takes a call of that kind only where it takes grants; renewals
 * and releases it takes also when it is full. */
static bool
call_proves(const struct call *call)
{
    const struct op *first = container_of(call->ops.next, struct op, link);

    return record_script(first->kind) == SCRIPT_ACQUIRE;
}

/* Who asks for an audit knows what it is worth to ask again. */
static void
refused_audit(struct store *store, struct conn *conn, struct op *op,
    uint64_t now_us, struct text error)
{
    enum refusal refusal = refusal_of(error);

    if (refusal == REFUSAL_NOSCRIPT && op->attempts < RETRIES_AT_ONCE) {
        count(store->counters, COUNTER_redis_noscript);
        op_again(store, op, conn->node, now_us, 0);
    } else if (refusal == REFUSAL_OTHER) {
        refused_other(store, conn, op, now_us, error, true);
    } else {
        refused_later(store, conn, now_us, error);
        op_done(store, op, OP_UNSENT);
    }
}

static void
op_refused(struct store *store, struct conn *conn, struct op *op,
    uint64_t now_us, struct text error, bool alone)
{
    op->asking = false;
    if (op->kind == OP_AUDIT) {
        refused_audit(store, conn, op, now_us, error);
        return;
    }
    enum health_reason reason = health_of_error(error);
    if (op->kind == OP_PUBLISH &&
        (reason == HEALTH_COMMAND || reason == HEALTH_RIGHTS)) {
        op_done(store, op, OP_UNSENT); /* a hint, which locks do without */
        return;
    }
    switch (refusal_of(error)) {
    case REFUSAL_MOVED:
        refused_moved(store, conn, op, now_us, error);
        return;
    case REFUSAL_ASK:
        refused_ask(store, conn, op, now_us, error);
        return;
    case REFUSAL_TRYAGAIN:
        count(store->counters, COUNTER_redis_tryagain);
        op->single = true;
        op_again(store, op, conn->node, now_us, alone ? TRYAGAIN_US : 0);
        return;
    case REFUSAL_NOSCRIPT:
        count(store->counters, COUNTER_redis_noscript);
        op_again(store, op, conn->node, now_us, 0);
        return;
    case REFUSAL_LATER:
        refused_later(store, conn, now_us, error);
        op_again(store, op, conn->node, now_us, RETRY_US);
        return;
    case REFUSAL_OTHER:
        refused_other(store, conn, op, now_us, error, alone);
        return;
    }
}

/* What the call needs; a script that each connection has, with all of those,
 * which may have gone with it. */
static void
load_for(struct store *store, struct conn *conn, const struct call *call,
    uint64_t now_us)
{
    const struct op *first = container_of(call->ops.next, struct op, link);
    enum script_id script = record_script(first->kind);

    if (script < SCRIPTS_AT_ONCE)
        conn_load_scripts(store, conn, now_us);
    else if (script < SCRIPT_COUNT)
        conn_load_script(store, conn, script, now_us);
}

static void
call_refused(struct store *store, struct conn *conn, struct call *call,
    uint64_t now_us, struct text error)
{
    bool alone = call->op_count == 1;

    if (refusal_of(error) == REFUSAL_NOSCRIPT)
        load_for(store, conn, call, now_us);
    /* The last one first, since each goes to the head of its queue. */
    while (!list_empty(&call->ops)) {
        struct list *at = call->ops.prev;
        list_remove(at);
        op_refused(store, conn, container_of(at, struct op, link), now_us,
            error, alone);
    }
}

#define NOT_AGAIN UINT64_MAX

/* Whether nothing was done, and it may be later: how long to wait for that. */
static uint64_t
again_after(struct store *store, const struct op *op, enum record_status status)
{
    if (op->kind == OP_AUDIT)
        return NOT_AGAIN; /* no script says so of it */
    if (status == RECORD_LATE)
        count(store->counters, COUNTER_redis_late);
    if (status == RECORD_LATE || status == RECORD_CHANGED)
        return 0;
    if (status == RECORD_GRACE && !op->no_queue)
        return op->result.again_ms * (uint64_t)1000;
    return NOT_AGAIN;
}

/* Nothing is as old as a clock says that was set forward. */
static void
tickets_age(struct store *store, const struct conn *conn,
    const struct op_result *result, uint64_t time_us)
{
    for (uint32_t i = 0; i < result->ticket_count; i++) {
        struct op_ticket *ticket = &store->tickets[i];
        if (ticket->since_us < conn->rose_at_us)
            ticket->age_ms =
                history_age_us(conn, ticket->since_us, time_us) / 1000;
    }
}

/* INTERNAL is what a client is told of it; here is why. */
static void
log_record(const struct store *store, const struct conn *conn,
    const struct op *op, enum record_status status)
{
    char name[80];

    if (!op->result.senseless && status != RECORD_NEWER)
        return;
    log_write(LOG_ERROR, "redis_record_refused",
        log_word("node", conn_name(store, conn, name, sizeof(name))),
        log_quoted("lock", op->name),
        log_word("why", op->result.senseless ? "record" : "version"));
}

/* Takes one result; false where the reply makes no sense from here on. */
static bool
op_answered(struct store *store, struct conn *conn, struct call *call,
    struct op *op, uint64_t now_us, const struct record_reply *reply,
    struct record_reader *reader, uint32_t *grants)
{
    enum record_status status;

    if (!record_read_result(
            reader, op, &status, store->grants + *grants, GRANTS_MAX - *grants))
        return false;
    *grants += op->result.grant_count;
    op->result.sent_us = call->sent_us;
    op->answered_us = call->answered_us;
    uint64_t pause_us = again_after(store, op, status);
    if (pause_us != NOT_AGAIN) {
        memset(&op->result, 0, sizeof(op->result)); /* refers to this reply */
        list_remove(&op->link);
        if (pause_us == 0) {
            op_again(store, op, conn->node, now_us, 0);
            return true;
        }
        op->attempts = 1; /* a new map does not make it sooner */
        op->grace_us = now_us + pause_us;
        op_park(store, op,
            now_us + pause_us + random_below(&store->random, GRACE_US));
        return true;
    }
    if (op->kind == OP_INSPECT && status == RECORD_OK &&
        !record_read_tickets(
            reader, op, reply->time_us, store->tickets, TICKETS_SHOWN))
        return false;
    if (op->kind == OP_AUDIT && !record_read_suspects(reader, op->audit,
                                    store->suspects, AUDIT_SUSPECTS_MAX))
        return false;
    if (op->kind == OP_INSPECT)
        tickets_age(store, conn, &op->result, reply->time_us);
    log_record(store, conn, op, status);
    list_remove(&op->link);
    op_done(store, op, op->result.status);
    return true;
}

/* What the answer says of the node. */
static void
call_heard(struct store *store, struct conn *conn, const struct call *call,
    uint64_t now_us, const struct record_reply *reply)
{
    if (reply->time_us == 0)
        return;
    history_clock(store, conn, reply->time_us, call->sent_us, now_us);
    history_see(store, conn, reply->id);
}

void
call_results(struct store *store, struct conn *conn, struct call *call,
    uint64_t now_us, struct text text)
{
    struct record_reader reader;
    struct record_reply reply;
    uint32_t grants = 0;
    bool sense = record_read_reply(&reader, text, &reply);

    if (sense && call->said == NULL)
        call_heard(store, conn, call, now_us, &reply);
    while (sense && !list_empty(&call->ops))
        sense = op_answered(store, conn, call,
            container_of(call->ops.next, struct op, link), now_us, &reply,
            &reader, &grants);
    if (sense)
        return;
    struct list *at;
    count(store->counters, COUNTER_redis_errors);
    log_write(LOG_ERROR, "redis_answer_not_understood",
        log_number("bytes", text.len));
    while ((at = list_pop_front(&call->ops)) != NULL)
        op_done(store, container_of(at, struct op, link), OP_REFUSED);
}

void
call_script_reply(struct store *store, struct conn *conn, struct call *call,
    uint64_t now_us, const struct resp *reply)
{
    const struct op *first = container_of(call->ops.next, struct op, link);

    call->answered_us = now_us;
    histogram_add(
        &store->counters->redis_call, &histogram_calls, now_us - call->sent_us);
    if (list_empty(&call->ops))
        return; /* too late for all of them */
    if (reply->type == RESP_INTEGER && first->kind == OP_PUBLISH) {
        struct op *op =
            container_of(list_pop_front(&call->ops), struct op, link);
        op->result.ahead = reply->integer > 0; /* somebody has heard it */
        op_done(store, op, OP_OK);
        return;
    }
    if (reply->type == RESP_ERROR) {
        call_refused(store, conn, call, now_us, reply->text);
        return;
    }
    if (call_is_mark(call)) {
        audit_marked(store, call, reply);
        return;
    }
    if (call_proves(call) || !health_is_of_node(conn->fault.reason))
        health_grants(conn);
    if (!confirm_wanted(store, call, reply)) {
        call_results(store, conn, call, now_us,
            reply->type == RESP_STRING ? reply->text : TEXT(""));
        return;
    }
    struct record_reader reader;
    struct record_reply said;
    if (record_read_reply(&reader, reply->text, &said))
        call_heard(store, conn, call, now_us, &said);
    if (!confirm_hold(call, reply))
        call_lost(store, call);
}

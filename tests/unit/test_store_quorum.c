/*
 * Tests of daemon/store/topology/quorum.c and round.c: what a majority of
 * masters says, and what is put right at the others.
 */
#include "daemon/store/model/quorum.h"
#include "tests/unit/store_rig.h"

#include <stdio.h>
#include <string.h>

Suite *store_quorum_suite(void);

#define NODES  3
#define HOLDER 71 /* requests of the core */
#define FIRST  72
#define SECOND 73
#define THIRD  74

/* Offsets of a question: its request, its flags, the highest fence known. */
#define AT_REQUEST       28
#define AT_FLAGS         36
#define AT_MODE          37
#define AT_RELEASE_FLAGS 64
#define AT_ACQUIRE_SEEN  72
#define AT_RENEW_FENCE   48
#define AT_RENEW_FLAGS   56
#define AT_RENEW_SEEN    82

#define RETRY      1 /* of an acquire */
#define NO_QUEUE   2
#define TELLS_WAIT 64
#define LOOK       1 /* of a renew */
#define WATCH      32
#define MOVES      4
#define RAISES     64
#define AGREED     128
#define SPARES     32 /* of a release */

/* --- questions ------------------------------------------------------------ */

/* The node is asked one thing, of this script. */
static void
hears(struct srig *rig, uint32_t node, enum script_id script)
{
    srig_expect(rig, node, "EVALSHA 1");
    ck_assert(text_equal(rig->words[1], text_make(scripts[script].sha1, 40)));
    ck_assert(text_equal(rig->words[3], TEXT("holdfast:{name}")));
}

static void
silent(struct srig *rig)
{
    srig_turn(rig);
    for (uint32_t i = 0; i < NODES; i++)
        srig_expect(rig, i, "");
}

/* A little-endian number of the question that was heard last. */
static uint64_t
asked_uint(const struct srig *rig, size_t at, size_t bytes)
{
    struct text question = rig->words[5];
    uint64_t value = 0;

    ck_assert_uint_le(at + bytes, question.len);
    for (size_t i = bytes; i > 0; i--)
        value = value << 8 | (uint8_t)question.at[at + i - 1];
    return value;
}

static uint64_t
asked_request(const struct srig *rig)
{
    return asked_uint(rig, AT_REQUEST, 8);
}

static uint64_t
asked_fence(const struct srig *rig, size_t at)
{
    uint64_t bits = asked_uint(rig, at, 8);
    double fence;

    memcpy(&fence, &bits, sizeof(fence));
    return (uint64_t)fence;
}

/* Every node is asked once; the request id that it is asked with. */
static uint64_t
all_hear(struct srig *rig, enum script_id script)
{
    uint64_t request = 0;

    srig_turn(rig);
    for (uint32_t i = 0; i < NODES; i++) {
        hears(rig, i, script);
        ck_assert(i == 0 || asked_request(rig) == request);
        request = asked_request(rig);
        srig_expect(rig, i, "");
    }
    return request;
}

static void
hears_release_as(
    struct srig *rig, uint32_t node, uint64_t request, uint64_t flags)
{
    srig_turn(rig);
    hears(rig, node, SCRIPT_RELEASE);
    ck_assert_uint_eq(asked_request(rig), request);
    ck_assert_uint_eq(asked_uint(rig, AT_RELEASE_FLAGS, 1), flags);
}

static void
hears_release(struct srig *rig, uint32_t node, uint64_t request)
{
    hears_release_as(rig, node, request, 0);
}

static void
hears_raise(struct srig *rig, uint32_t node, uint64_t request, uint64_t fence)
{
    srig_turn(rig);
    hears(rig, node, SCRIPT_RENEW);
    ck_assert_uint_eq(asked_request(rig), request);
    ck_assert_uint_eq(
        asked_uint(rig, AT_RENEW_FLAGS, 2) | AGREED, RAISES | AGREED);
    ck_assert_uint_eq(asked_fence(rig, AT_RENEW_SEEN), fence);
}

/* --- answers -------------------------------------------------------------- */

/* To the oldest question of the node. */
static void
says_for(struct srig *rig, uint32_t node, enum record_status status,
    uint64_t fence, uint32_t ttl_ms)
{
    char bytes[200];
    size_t len = srig_encode(rig, bytes, 1, status);
    char *result = bytes + len - 38;
    double number = (double)fence;

    memcpy(result + 18, &number, sizeof(number));
    for (int i = 0; i < 4; i++)
        result[26 + i] = (char)(ttl_ms >> 8 * i & 0xff);
    srig_bytes(rig, node, bytes, len);
}

static void
says_again(struct srig *rig, uint32_t node, enum record_status status,
    uint32_t again_ms)
{
    char bytes[200];
    size_t len = srig_encode(rig, bytes, 1, status);

    memcpy(bytes + len - 38 + 30, &again_ms, sizeof(again_ms));
    srig_bytes(rig, node, bytes, len);
}

static void
says(struct srig *rig, uint32_t node, enum record_status status, uint64_t fence)
{
    says_for(rig, node, status, fence, 30000);
}

static void
all_say(struct srig *rig, enum record_status status, uint64_t fence)
{
    for (uint32_t i = 0; i < NODES; i++)
        says(rig, i, status, fence);
}

/* --- operations ----------------------------------------------------------- */

static struct op *
wants(struct srig *rig, enum op_kind kind, uint64_t request)
{
    struct op *op = srig_draft(rig, kind, 0);

    op->request = request;
    srig_submit(rig, op);
    srig_turn(rig);
    return op;
}

static struct op *
wants_for(struct srig *rig, enum op_kind kind, uint64_t request, uint64_t ms)
{
    struct op *op = srig_draft(rig, kind, 0);

    op->request = request;
    op->deadline_us = rig->now_us + ms * 1000;
    srig_submit(rig, op);
    srig_turn(rig);
    return op;
}

static struct op *
wants_now(struct srig *rig, uint64_t request)
{
    struct op *op = srig_draft(rig, OP_ACQUIRE, 0);

    op->request = request;
    op->no_queue = true;
    srig_submit(rig, op);
    srig_turn(rig);
    return op;
}

/* Every node has it, with that fence; the request id of that. */
static uint64_t
holds(struct srig *rig, uint64_t request, uint64_t fence)
{
    const struct op *op = wants(rig, OP_ACQUIRE, request);
    uint64_t try = all_hear(rig, SCRIPT_ACQUIRE);

    all_say(rig, RECORD_OK, fence);
    srig_status(rig, op, OP_OK);
    silent(rig);
    return try;
}

/* The nodes tell of changes from now on. */
static void
all_watch(struct srig *rig)
{
    (void)all_hear(rig, SCRIPT_RENEW);
    ck_assert_uint_eq(asked_uint(rig, AT_RENEW_FLAGS, 2), LOOK | WATCH);
    all_say(rig, RECORD_OK, 0);
}

/* The first in the queue: every node says that somebody else has it. */
static const struct op *
waits(struct srig *rig, uint64_t request)
{
    const struct op *op = wants(rig, OP_ACQUIRE, request);

    (void)all_hear(rig, SCRIPT_ACQUIRE);
    all_say(rig, RECORD_BUSY, 0);
    srig_status(rig, op, OP_WAITING);
    all_watch(rig);
    silent(rig);
    return op;
}

static void
back(struct srig *rig, uint32_t node)
{
    for (int ms = 0; ms < 3000 && !rig->conns[node].connecting; ms++)
        srig_pass(rig, 1);
    srig_connect(rig, node);
    srig_serve(rig, node);
    ck_assert_int_eq(rig->store->conns[node].state, CONN_READY);
    srig_turn(rig);
}

static void
no_hint(struct srig *rig)
{
    struct store_hint hint;

    ck_assert(!store_take_hint(rig->store, &hint));
}

static void
one_hint(struct srig *rig, uint64_t request)
{
    struct store_hint hint;

    ck_assert(store_take_hint(rig->store, &hint));
    ck_assert(!hint.broken);
    ck_assert_uint_eq(hint.request, request);
    no_hint(rig);
}

/* --- a try ---------------------------------------------------------------- */

SRIG_TEST(majority, srig_quorum(NODES))
{
    const struct op *op = wants(rig, OP_ACQUIRE, HOLDER);
    uint64_t sent_us = rig->now_us;

    (void)all_hear(rig, SCRIPT_ACQUIRE);
    ck_assert_uint_eq(asked_uint(rig, AT_FLAGS, 1), NO_QUEUE | TELLS_WAIT);
    srig_pass(rig, 20);
    says_for(rig, 1, RECORD_OK, 9, 30000);
    ck_assert(!srig_done(rig, op));
    says_for(rig, 2, RECORD_OK, 9, 29000);
    srig_status(rig, op, OP_OK);
    ck_assert_uint_eq(op->result.fence, 9);
    ck_assert_uint_gt(op->result.arrival, 0);
    ck_assert_uint_eq(op->result.sent_us, sent_us);
    ck_assert_uint_eq(op->result.ttl_ms, 29000);
    ck_assert_uint_eq(op->sent_us, sent_us);
    ck_assert_uint_eq(op->tries, 2); /* those that were heard */
    silent(rig);
    says(rig, 0, RECORD_OK, 9);
    silent(rig);
}

/* Each is told which it is, so that its fences are no other's. */
SRIG_TEST(numbered, srig_quorum(NODES))
{
    (void)wants(rig, OP_ACQUIRE, HOLDER);
    srig_turn(rig);
    for (uint32_t i = 0; i < NODES; i++) {
        hears(rig, i, SCRIPT_ACQUIRE);
        /* By their addresses, which are in that order. */
        ck_assert_uint_eq((uint8_t)rig->words[4].at[1], i + 1);
    }
}

/* One process by several names has one vote: the first of them, whichever is
 * asked again. */
SRIG_TEST(another_name, srig_create(STORE_QUORUM, NODES))
{
    rig->one_run = 3;
    srig_start(rig);
    srig_settle(rig);
    unsigned ready = 0;
    for (uint32_t i = 0; i < NODES; i++)
        ready += rig->store->conns[i].state == CONN_READY;
    ck_assert_uint_eq(ready, 1);
    ck_assert(!store_ready(rig->store));
    rig->one_run = 0;
    for (unsigned i = 0; i < 20 && !store_ready(rig->store); i++)
        srig_settle(rig);
    ck_assert(store_ready(rig->store));
}

static void
connects_again(struct srig *rig, uint32_t node)
{
    for (unsigned i = 0; i < 100 && !rig->conns[node].connecting; i++)
        srig_pass(rig, 50);
    srig_connect(rig, node);
}

/* It has it by whichever leads to it now. */
SRIG_TEST(another_name_is_dark, srig_create(STORE_QUORUM, NODES))
{
    rig->one_run = 3;
    srig_start(rig);
    srig_settle(rig);
    ck_assert(rig->store->conns[0].state == CONN_READY);
    srig_lose(rig, 0);
    connects_again(rig, 1);
    srig_serve(rig, 1);
    ck_assert(rig->store->conns[1].state == CONN_READY);
    connects_again(rig, 0);
    srig_exchange(rig, 0, "INFO");
    ck_assert(rig->store->conns[0].state == CONN_DOWN);
    ck_assert_int_eq(rig->store->conns[0].fault.reason, HEALTH_SAME_NODE);
    ck_assert_str_eq(rig->store->conns[0].fault.said, "");
}

/* The node that was asked last has the least of it, or the most. */
SRIG_TEST(least_of_majority, srig_quorum(NODES))
{
    bool late = _i;
    for (int i = 0; i < 2; i++) {
        wants(rig, OP_ACQUIRE, FIRST + (uint64_t)i);
        (void)all_hear(rig, SCRIPT_ACQUIRE);
        says(rig, 1, RECORD_OK, 5);
        says(rig, 2, RECORD_OK, 5);
    }
    const struct op *op = wants(rig, OP_ACQUIRE, HOLDER);
    uint64_t sent_us = rig->now_us;
    hears(rig, 1, SCRIPT_ACQUIRE);
    hears(rig, 2, SCRIPT_ACQUIRE);
    srig_expect(rig, 0, ""); /* as many as may be under way */
    srig_pass(rig, 100);
    says(rig, 0, RECORD_OK, 5);
    srig_turn(rig);
    hears(rig, 0, SCRIPT_ACQUIRE);
    says(rig, 0, RECORD_OK, 5);
    says_for(rig, 0, RECORD_OK, 9, late ? 20000 : 29950);
    says_for(rig, 1, RECORD_OK, 9, 30000);
    srig_status(rig, op, OP_OK);
    ck_assert_uint_eq(op->result.sent_us, sent_us + (late ? 100000 : 0));
    ck_assert_uint_eq(op->result.ttl_ms, late ? 20000 : 30000);
}

/* Each try is new: an earlier question of the core has no part in it. */
SRIG_TEST(fences_raised, srig_quorum(NODES))
{
    struct op *op = srig_draft(rig, OP_ACQUIRE, 0);
    uint64_t sent_us = rig->now_us;

    op->request = HOLDER;
    op->over_us = sent_us;
    srig_submit(rig, op);
    uint64_t try = all_hear(rig, SCRIPT_ACQUIRE);

    srig_pass(rig, 10);
    says(rig, 0, RECORD_OK, 5);
    says(rig, 1, RECORD_OK, 9);
    ck_assert(!srig_done(rig, op));
    hears_raise(rig, 0, try, 9);
    silent(rig);
    srig_pass(rig, 10);
    ck_assert(!srig_done(rig, op));
    says(rig, 0, RECORD_OK, 9);
    srig_status(rig, op, OP_OK);
    ck_assert_uint_eq(op->result.fence, 9);
    ck_assert_uint_eq(op->result.sent_us, sent_us);
    /* A late node has that fence from then on, too. */
    silent(rig);
    says(rig, 2, RECORD_OK, 7);
    hears_raise(rig, 2, try, 9);
    ck_assert_uint_eq(asked_uint(rig, AT_RENEW_FLAGS, 2), RAISES | AGREED);
    says(rig, 2, RECORD_OK, 9);
    silent(rig);
    ck_assert_uint_eq(srig_count(rig, COUNTER_quorum_raises), 2);
}

SRIG_TEST(late_and_higher, srig_quorum(NODES))
{
    const struct op *op = wants(rig, OP_ACQUIRE, HOLDER);
    uint64_t try = all_hear(rig, SCRIPT_ACQUIRE);

    says(rig, 0, RECORD_OK, 9);
    says(rig, 1, RECORD_OK, 9);
    srig_status(rig, op, OP_OK);
    ck_assert_uint_eq(op->result.fence, 9);
    says(rig, 2, RECORD_OK, 25);
    hears_raise(rig, 2, try, 9);
    ck_assert_uint_eq(asked_uint(rig, AT_RENEW_FLAGS, 2), RAISES | AGREED);
    says(rig, 2, RECORD_OK, 9);
    silent(rig);
}

/* When the question was sent that was heard of last, and how many were: of each
 * that is sent, once. */
SRIG_TEST(stages, srig_quorum(NODES))
{
    struct op *op = srig_draft(rig, OP_ACQUIRE, 0);
    uint64_t began_us = rig->now_us;

    srig_submit(rig, op);
    srig_turn(rig);
    (void)all_hear(rig, SCRIPT_ACQUIRE);
    srig_pass(rig, 10);
    says(rig, 2, RECORD_BUSY, 0);
    ck_assert_uint_eq(op->tries, 1);
    ck_assert_uint_eq(op->sent_us, began_us);
    says(rig, 0, RECORD_OK, 5);
    ck_assert_uint_eq(op->tries, 2);
    says(rig, 1, RECORD_OK, 9);
    ck_assert_uint_eq(op->tries, 3);
    ck_assert_uint_eq(op->sent_us, began_us);
    srig_turn(rig);
    uint64_t raised_us = rig->now_us;
    hears(rig, 0, SCRIPT_RENEW);
    srig_pass(rig, 10);
    says(rig, 0, RECORD_LATE, 0);
    ck_assert_uint_eq(op->tries, 3);
    ck_assert_uint_eq(op->sent_us, began_us);
    srig_turn(rig);
    hears(rig, 0, SCRIPT_RENEW);
    srig_pass(rig, 10);
    says(rig, 0, RECORD_OK, 9);
    srig_status(rig, op, OP_OK);
    ck_assert_uint_eq(op->tries, 5);
    ck_assert_uint_eq(op->sent_us, raised_us + 10000);
    silent(rig);
    ck_assert_uint_eq(op->tries, 5);
}

/* A vote that was not sent since it was queued last says nothing of that. */
SRIG_TEST(stages_of_unsent, srig_quorum(NODES))
{
    struct op *op = wants_now(rig, HOLDER);
    uint64_t sent_us = rig->now_us;

    (void)all_hear(rig, SCRIPT_ACQUIRE);
    srig_pass(rig, 10);
    says(rig, 1, RECORD_BUSY, 0);
    says(rig, 0, RECORD_LATE, 0);
    srig_lose(rig, 0);
    srig_pass(rig, 1900);
    says(rig, 2, RECORD_OK, 9);
    ck_assert(!srig_done(rig, op));
    srig_pass(rig, 100);
    srig_status(rig, op, OP_BUSY);
    ck_assert_uint_eq(op->sent_us, sent_us);
    ck_assert_uint_eq(op->tries, 2);
}

/* While one is raised another one comes, and is higher. */
SRIG_TEST(raised_twice, srig_quorum(NODES))
{
    const struct op *op = wants(rig, OP_ACQUIRE, HOLDER);
    uint64_t try = all_hear(rig, SCRIPT_ACQUIRE);

    says(rig, 0, RECORD_OK, 5);
    says(rig, 1, RECORD_OK, 9);
    hears_raise(rig, 0, try, 9);
    says(rig, 2, RECORD_OK, 12);
    ck_assert(!srig_done(rig, op));
    hears_raise(rig, 1, try, 12);
    says(rig, 0, RECORD_OK, 9);
    ck_assert(!srig_done(rig, op));
    hears_raise(rig, 0, try, 12);
    says(rig, 1, RECORD_OK, 12);
    srig_status(rig, op, OP_OK);
    ck_assert_uint_eq(op->result.fence, 12);
    says(rig, 0, RECORD_OK, 12);
    silent(rig);
}

/* Three of five have to agree, and three of five to refuse. */
SRIG_TEST(five, srig_quorum(5))
{
    static const uint64_t fences[5] = {5, 9, 7, 9, 0};
    const struct op *op = wants(rig, OP_ACQUIRE, HOLDER);
    uint64_t try = all_hear(rig, SCRIPT_ACQUIRE);

    hears(rig, 3, SCRIPT_ACQUIRE);
    hears(rig, 4, SCRIPT_ACQUIRE);
    for (uint32_t i = 0; i < 3; i++)
        says(rig, i, RECORD_OK, fences[i]);
    hears_raise(rig, 0, try, 9);
    hears_raise(rig, 2, try, 9);
    says(rig, 2, RECORD_OK, 9);
    ck_assert(!srig_done(rig, op));
    says(rig, 3, RECORD_OK, fences[3]);
    srig_status(rig, op, OP_OK);
    ck_assert_uint_eq(op->result.fence, 9);
    says(rig, 4, RECORD_BUSY, 0);
    says(rig, 0, RECORD_OK, 9);
    op = wants_now(rig, FIRST);
    (void)all_hear(rig, SCRIPT_ACQUIRE);
    hears(rig, 3, SCRIPT_ACQUIRE);
    srig_lose(rig, 4);
    for (uint32_t i = 0; i < 2; i++)
        says(rig, i, RECORD_BUSY, 0);
    ck_assert(!srig_done(rig, op));
    says(rig, 2, RECORD_BUSY, 0);
    srig_status(rig, op, OP_BUSY);
}

/* Nobody knows whether it was raised, and there is no other majority. */
SRIG_TEST(raise_lost, srig_quorum(NODES))
{
    const struct op *op = wants_now(rig, HOLDER);
    uint64_t try = all_hear(rig, SCRIPT_ACQUIRE);

    says(rig, 2, RECORD_BUSY, 0);
    says(rig, 0, RECORD_OK, 5);
    says(rig, 1, RECORD_OK, 9);
    hears_raise(rig, 0, try, 9);
    srig_lose(rig, 0);
    srig_status(rig, op, OP_BUSY);
    ck_assert_uint_eq(op->result.delay_ms, 30000);
    hears_release(rig, 1, try);
    says(rig, 1, RECORD_OK, 0);
    back(rig, 0);
    hears_release(rig, 0, try);
    says(rig, 0, RECORD_OK, 0);
    silent(rig);
}

/* It is gone where it was to be raised: the next try asks for what is above. */
SRIG_TEST(raise_too_late, srig_quorum(NODES))
{
    const struct op *op = wants(rig, OP_ACQUIRE, HOLDER);
    uint64_t try = all_hear(rig, SCRIPT_ACQUIRE);

    /* All are to give what is above the fence clock, and so the same. */
    uint64_t floor = asked_fence(rig, AT_ACQUIRE_SEEN);
    uint64_t high = floor + 3600000000;
    ck_assert_uint_le(floor, 1700000010000000 + rig->now_us);
    ck_assert_uint_ge(floor, 1700000010000000);
    says(rig, 0, RECORD_OK, floor + 16);
    says(rig, 1, RECORD_OK, high);
    says(rig, 2, RECORD_OK, floor + 16);
    hears_raise(rig, 0, try, high);
    says(rig, 0, RECORD_GONE, 0);
    hears_raise(rig, 2, try, high);
    says(rig, 2, RECORD_GONE, 0);
    hears_release(rig, 1, try);
    says(rig, 1, RECORD_OK, 0);
    srig_status(rig, op, OP_WAITING);
    all_watch(rig);
    srig_pass(rig, op->result.again_ms);
    (void)wants(rig, OP_RENEW, HOLDER);
    (void)all_hear(rig, SCRIPT_ACQUIRE);
    ck_assert_uint_eq(asked_fence(rig, AT_ACQUIRE_SEEN), high);
}

SRIG_TEST(minority, srig_quorum(NODES))
{
    bool queues = _i;
    const struct op *op =
        queues ? wants(rig, OP_ACQUIRE, FIRST) : wants_now(rig, FIRST);
    uint64_t try = all_hear(rig, SCRIPT_ACQUIRE);
    says(rig, 0, RECORD_OK, 5);
    says(rig, 1, RECORD_BUSY, 0);
    ck_assert(!srig_done(rig, op));
    says(rig, 2, RECORD_BUSY, 0);
    srig_status(rig, op, queues ? OP_WAITING : OP_BUSY);
    ck_assert_uint_eq(op->result.ahead, 1);
    ck_assert_uint_eq(op->result.fence, 0);
    hears_release(rig, 0, try);
    says(rig, 0, RECORD_OK, 0);
    if (queues) {
        ck_assert_uint_gt(op->result.arrival, 0);
        ck_assert_uint_gt(op->result.again_ms, 0);
        all_watch(rig);
    }
    silent(rig);
}

/* The answer of a node after all others had decided against it. */
SRIG_TEST(granted_late, srig_quorum(NODES))
{
    const struct op *op = wants_now(rig, HOLDER);
    uint64_t try = all_hear(rig, SCRIPT_ACQUIRE);

    says(rig, 0, RECORD_BUSY, 0);
    says(rig, 1, RECORD_BUSY, 0);
    srig_status(rig, op, OP_BUSY);
    silent(rig);
    says(rig, 2, RECORD_OK, 5);
    hears_release(rig, 2, try);
    says(rig, 2, RECORD_OK, 0);
    silent(rig);
}

/* Nobody knows what the node has granted, before the decision or after it. */
SRIG_TEST(vote_lost, srig_quorum(NODES))
{
    bool sooner = _i;
    const struct op *op = wants_now(rig, HOLDER);
    uint64_t try = all_hear(rig, SCRIPT_ACQUIRE);
    if (sooner)
        srig_lose(rig, 2);
    says(rig, 0, RECORD_BUSY, 0);
    says(rig, 1, RECORD_BUSY, 0);
    srig_status(rig, op, OP_BUSY);
    if (!sooner)
        srig_lose(rig, 2);
    for (int i = 0; i < 3; i++) {
        back(rig, 2);
        hears_release(rig, 2, try);
        silent(rig);
        if (i < 2)
            srig_lose(rig, 2);
    }
    says(rig, 2, RECORD_GONE, 0);
    silent(rig);
    srig_lose(rig, 2);
    back(rig, 2);
    silent(rig);
}

static const struct one_down_row {
    enum record_status said;
    enum op_status status;
} one_down_rows[] = {
    {RECORD_BUSY, OP_WAITING},
    {RECORD_CONFLICT, OP_CONFLICT},
    {RECORD_GRACE, OP_UNSETTLED},
    {RECORD_CORRUPT, OP_REFUSED},
    {RECORD_OK, OP_OK},
};

/* One node is down: what the other two say is what a majority says. */
SRIG_TEST(one_down, srig_quorum(NODES))
{
    const struct one_down_row *row = &one_down_rows[_i];
    srig_lose(rig, 2);
    const struct op *op = wants_for(rig, OP_ACQUIRE, HOLDER, 90);
    hears(rig, 0, SCRIPT_ACQUIRE);
    hears(rig, 1, SCRIPT_ACQUIRE);
    says(rig, 0, row->said, 9);
    ck_assert(!srig_done(rig, op));
    says(rig, 1, row->said, 9);
    if (row->said == RECORD_GRACE)
        srig_pass(rig, 91);
    srig_status(rig, op, row->status);
}

/* A vote that has not run when the others have decided is not sent again. */
SRIG_TEST(lost_and_refused, srig_quorum(NODES))
{
    for (int lost = 0; lost < 2; lost++) {
        const struct op *op = wants_now(rig, lost ? FIRST : SECOND);
        for (uint32_t i = 0; i < NODES; i++)
            hears(rig, i, SCRIPT_ACQUIRE);
        srig_error(rig, 2, "NOREPLICAS Not enough good replicas to write.");
        for (uint32_t i = 0; i < 2; i++)
            says(rig, i, lost ? RECORD_BUSY : RECORD_OK, lost ? 0 : 9);
        srig_status(rig, op, lost ? OP_BUSY : OP_OK);
        for (int ms = 0; ms < 300; ms++)
            srig_pass(rig, 1);
        if (lost) {
            silent(rig);
            break;
        }
        hears(rig, 2, SCRIPT_ACQUIRE);
        says(rig, 2, RECORD_OK, 9);
    }
}

/* The core takes back what it has asked for while it is asked. */
SRIG_TEST(released_while_tried, srig_quorum(NODES))
{
    const struct op *op = wants(rig, OP_ACQUIRE, HOLDER);
    uint64_t try = all_hear(rig, SCRIPT_ACQUIRE);

    says(rig, 0, RECORD_OK, 5);
    const struct op *release = wants(rig, OP_RELEASE, HOLDER);
    srig_status(rig, release, OP_OK);
    says(rig, 1, RECORD_OK, 5);
    srig_status(rig, op, OP_UNSENT);
    hears_release(rig, 0, try);
    hears_release(rig, 1, try);
    says(rig, 2, RECORD_OK, 5);
    hears_release(rig, 2, try);
}

SRIG_TEST(too_few, srig_quorum(NODES))
{
    unsigned tries = 0;
    unsigned releases = 0;

    srig_lose(rig, 1);
    ck_assert(store_ready(rig->store));
    srig_lose(rig, 2);
    ck_assert(!store_ready(rig->store));
    const struct op *op = wants_for(rig, OP_ACQUIRE, HOLDER, 300);
    uint64_t end_us = op->deadline_us;
    while (!srig_done(rig, op)) {
        ck_assert_uint_le(rig->now_us, end_us + 2000);
        while (srig_next(rig, 0)[0] != '\0') {
            bool release = text_equal(
                rig->words[1], text_make(scripts[SCRIPT_RELEASE].sha1, 40));
            tries += !release;
            releases += release;
            says(rig, 0, RECORD_OK, 5);
            ck_assert(!srig_done(rig, op));
            srig_turn(rig);
        }
        srig_pass(rig, 1);
    }
    srig_status(rig, op, OP_UNSENT);
    ck_assert_uint_ge(rig->now_us, end_us);
    ck_assert_uint_ge(tries, 3);
    ck_assert_uint_eq(releases, tries);
}

SRIG_TEST(unsettled, srig_quorum(NODES))
{
    const struct op *op = wants_for(rig, OP_ACQUIRE, HOLDER, 300);
    uint64_t try = all_hear(rig, SCRIPT_ACQUIRE);
    uint64_t end_us = op->deadline_us;

    says(rig, 0, RECORD_OK, 5);
    says(rig, 1, RECORD_GRACE, 0);
    says(rig, 2, RECORD_GRACE, 0); /* for 400 ms */
    ck_assert(!srig_done(rig, op));
    hears_release(rig, 0, try);
    says(rig, 0, RECORD_OK, 0);
    srig_pass(rig, 298);
    silent(rig);
    ck_assert(!srig_done(rig, op));
    srig_pass(rig, 3);
    ck_assert_uint_ge(rig->now_us, end_us);
    srig_status(rig, op, OP_UNSETTLED);
    ck_assert_uint_gt(op->result.again_ms, 90);
    ck_assert_uint_le(op->result.again_ms, 100);
    /* A LOCK with more time tries again. */
    op = wants(rig, OP_ACQUIRE, HOLDER);
    (void)all_hear(rig, SCRIPT_ACQUIRE);
    all_say(rig, RECORD_GRACE, 0);
    srig_pass(rig, 399);
    silent(rig);
    srig_pass(rig, 52);
    (void)all_hear(rig, SCRIPT_ACQUIRE);
    says(rig, 0, RECORD_GRACE, 0);
    says(rig, 1, RECORD_OK, 5);
    ck_assert(!srig_done(rig, op));
    says(rig, 2, RECORD_OK, 5);
    srig_status(rig, op, OP_OK);
}

/* Grace is over once a majority is settled: before the last node is. */
SRIG_TEST(unsettled_in_turn, srig_quorum(NODES))
{
    static const uint32_t settles_ms[NODES] = {1000, 1800, 1500};
    const struct op *op = wants(rig, OP_ACQUIRE, HOLDER);

    (void)all_hear(rig, SCRIPT_ACQUIRE);
    for (uint32_t i = 0; i < NODES; i++)
        says_again(rig, i, RECORD_GRACE, settles_ms[i]);
    uint64_t end_us = rig->now_us + 1500000;
    while (!srig_next(rig, 0)[0]) {
        ck_assert_uint_le(rig->now_us, end_us + 52000);
        srig_pass(rig, 1);
    }
    ck_assert_uint_ge(rig->now_us, end_us);
    ck_assert(!srig_done(rig, op));
}

/* A node that is back sooner than the others are settled may be enough. */
SRIG_TEST(unsettled_and_away, srig_quorum(NODES))
{
    srig_lose(rig, 2);
    const struct op *op = wants(rig, OP_ACQUIRE, HOLDER);
    hears(rig, 0, SCRIPT_ACQUIRE);
    hears(rig, 1, SCRIPT_ACQUIRE);
    says(rig, 0, RECORD_OK, 5);
    says(rig, 1, RECORD_GRACE, 0); /* for 400 ms */
    srig_turn(rig);
    hears(rig, 0, SCRIPT_RELEASE);
    says(rig, 0, RECORD_OK, 0);
    srig_pass(rig, 30);
    hears(rig, 0, SCRIPT_ACQUIRE);
    hears(rig, 1, SCRIPT_ACQUIRE);
    ck_assert(!srig_done(rig, op));
}

/* --- queues --------------------------------------------------------------- */

SRIG_TEST(first_come_first_served, srig_create(STORE_QUORUM, NODES))
{
    rig->settings.waiters_max = 2;
    srig_start(rig);
    srig_settle(rig);
    uint64_t try = holds(rig, HOLDER, 9);
    const struct op *first = waits(rig, FIRST);
    ck_assert_uint_eq(first->result.ahead, 1);
    const struct op *second = wants(rig, OP_ACQUIRE, SECOND);
    srig_status(rig, second, OP_WAITING);
    ck_assert_uint_eq(second->result.ahead, 2);
    ck_assert_uint_gt(second->result.arrival, first->result.arrival);
    ck_assert_uint_gt(second->result.again_ms, 0);
    srig_status(rig, wants(rig, OP_ACQUIRE, THIRD), OP_FULL);
    const struct op *busy = wants_now(rig, THIRD);
    srig_status(rig, busy, OP_BUSY);
    ck_assert_uint_eq(busy->result.ahead, 3);
    silent(rig);
    /* The first one hears of it when a majority has it no more. */
    const struct op *release = wants(rig, OP_RELEASE, HOLDER);
    ck_assert_uint_eq(all_hear(rig, SCRIPT_RELEASE), try);
    says(rig, 0, RECORD_OK, 0);
    ck_assert(!srig_done(rig, release));
    no_hint(rig);
    says(rig, 1, RECORD_OK, 0);
    srig_status(rig, release, OP_OK);
    one_hint(rig, FIRST);
    says(rig, 2, RECORD_OK, 0);
    no_hint(rig);
    /* Nobody gets past it. */
    second = wants(rig, OP_RENEW, SECOND);
    srig_status(rig, second, OP_WAITING);
    ck_assert_uint_eq(second->result.ahead, 2);
    silent(rig);
    first = wants(rig, OP_RENEW, FIRST);
    ck_assert_uint_ne(all_hear(rig, SCRIPT_ACQUIRE), try);
    ck_assert_uint_eq(asked_uint(rig, AT_FLAGS, 1), NO_QUEUE | TELLS_WAIT);
    all_say(rig, RECORD_OK, 10);
    srig_status(rig, first, OP_OK);
    ck_assert_uint_eq(first->result.fence, 10);
    no_hint(rig); /* it is not shared */
    second = wants(rig, OP_RENEW, SECOND);
    (void)all_hear(rig, SCRIPT_ACQUIRE);
    all_say(rig, RECORD_BUSY, 0);
    srig_status(rig, second, OP_WAITING);
    ck_assert_uint_eq(second->result.ahead, 1);
}

static void
stands_at(struct srig *rig, uint64_t request, uint32_t place)
{
    const struct op *op = wants(rig, OP_ACQUIRE, request);

    srig_status(rig, op, OP_WAITING);
    ck_assert_uint_eq(op->result.ahead, place);
}

/* Places are right whoever leaves. */
SRIG_TEST(places, srig_quorum(NODES))
{
    (void)holds(rig, HOLDER, 9);
    (void)waits(rig, FIRST);
    for (uint64_t i = 1; i < 8; i++)
        stands_at(rig, FIRST + i * 100, (uint32_t)i + 1);
    for (uint64_t i = 2; i < 5; i += 2)
        srig_status(rig, wants(rig, OP_RELEASE, FIRST + i * 100), OP_OK);
    stands_at(rig, FIRST + 500, 4);
    stands_at(rig, FIRST + 100, 2);
    srig_status(rig, wants(rig, OP_RELEASE, FIRST), OP_OK);
    stands_at(rig, FIRST + 700, 5);
    srig_status(rig, wants(rig, OP_RELEASE, FIRST + 700), OP_OK);
    stands_at(rig, FIRST + 800, 5);
    stands_at(rig, FIRST + 600, 4);
    stands_at(rig, FIRST + 300, 2);
}

static const struct op *
away(struct srig *rig, uint64_t request)
{
    struct op *op = srig_draft(rig, OP_RENEW, 0);

    op->request = request;
    op->idle = true;
    srig_submit(rig, op);
    srig_turn(rig);
    srig_status(rig, op, OP_WAITING);
    return op;
}

/* An absent waiter is passed, and has its place when it is back. */
SRIG_TEST(passed, srig_quorum(NODES))
{
    (void)holds(rig, HOLDER, 9);
    uint64_t arrival = waits(rig, FIRST)->result.arrival;
    stands_at(rig, SECOND, 2);
    stands_at(rig, THIRD, 3);
    ck_assert_uint_eq(away(rig, FIRST)->result.arrival, arrival);
    one_hint(rig, SECOND);
    (void)away(rig, FIRST);
    no_hint(rig);
    stands_at(rig, THIRD, 2);
    (void)away(rig, SECOND);
    one_hint(rig, THIRD);
    struct op *op = wants(rig, OP_RENEW, SECOND);
    (void)all_hear(rig, SCRIPT_ACQUIRE);
    all_say(rig, RECORD_BUSY, 0);
    srig_status(rig, op, OP_WAITING);
    ck_assert_uint_eq(op->result.ahead, 1);
    stands_at(rig, THIRD, 2);
    (void)away(rig, THIRD);
    op = wants(rig, OP_RENEW, FIRST);
    (void)all_hear(rig, SCRIPT_ACQUIRE);
    all_say(rig, RECORD_BUSY, 0);
    srig_status(rig, op, OP_WAITING);
    stands_at(rig, SECOND, 2);
    op = wants(rig, OP_RENEW, THIRD);
    srig_status(rig, op, OP_WAITING);
    ck_assert_uint_eq(op->result.ahead, 3);
    silent(rig);
    /* Of one that is away nothing is left. */
    (void)away(rig, FIRST);
    one_hint(rig, SECOND);
    srig_status(rig, wants(rig, OP_RELEASE, FIRST), OP_OK);
    srig_status(rig, wants(rig, OP_RENEW, FIRST), OP_GONE);
    silent(rig);
}

/* Each try looks for holds of an earlier connection at other brokers, and not
 * only the first one. */
SRIG_TEST(tries_for_what_moves, srig_quorum(NODES))
{
    struct op *op = srig_draft(rig, OP_ACQUIRE, 0);
    op->request = FIRST;
    op->moves = true;
    srig_submit(rig, op);
    for (int tries = 0; tries < 2; tries++) {
        (void)all_hear(rig, SCRIPT_ACQUIRE);
        ck_assert_uint_eq(
            asked_uint(rig, AT_FLAGS, 1), NO_QUEUE | TELLS_WAIT | MOVES);
        all_say(rig, RECORD_BUSY, 0);
        srig_status(rig, op, OP_WAITING);
        if (tries == 0)
            all_watch(rig);
        silent(rig);
        if (tries == 0)
            op = wants(rig, OP_RENEW, FIRST);
    }
}

/* A waiter that goes is forgotten. The next one is told. */
SRIG_TEST(first_leaves, srig_quorum(NODES))
{
    (void)holds(rig, HOLDER, 9);
    (void)waits(rig, FIRST);
    (void)wants(rig, OP_ACQUIRE, SECOND);
    (void)wants(rig, OP_ACQUIRE, THIRD);
    srig_status(rig, wants(rig, OP_RELEASE, SECOND), OP_OK);
    no_hint(rig);
    srig_status(rig, wants(rig, OP_RELEASE, FIRST), OP_OK);
    one_hint(rig, THIRD);
    srig_status(rig, wants(rig, OP_RENEW, FIRST), OP_GONE);
    silent(rig);
}

static void
changed(struct srig *rig, uint32_t node, const char *what)
{
    srig_message(
        rig, CONN_ACK + node, "holdfast/broker/watch", text_from(what));
}

SRIG_TEST(woken, srig_quorum(NODES))
{
    (void)holds(rig, HOLDER, 9);
    (void)waits(rig, FIRST);
    (void)wants(rig, OP_ACQUIRE, SECOND);
    changed(rig, 0, "Wholdfast:{other}");
    changed(rig, 0, "W");
    changed(rig, 0, "Wholdfast:{");
    srig_pass(rig, 10);
    no_hint(rig);
    /* The nodes tell it one after the other. */
    changed(rig, 1, "Wholdfast:{name}");
    srig_pass(rig, 1);
    no_hint(rig);
    changed(rig, 2, "Wholdfast:{name}");
    no_hint(rig);
    srig_pass(rig, 3);
    one_hint(rig, FIRST);
    srig_pass(rig, 10);
    no_hint(rig);
}

static void
gives_back(struct srig *rig, uint64_t request)
{
    const struct op *op = wants(rig, OP_RELEASE, request);

    (void)all_hear(rig, SCRIPT_RELEASE);
    all_say(rig, RECORD_OK, 0);
    srig_status(rig, op, OP_OK);
}

static void
takes(struct srig *rig, unsigned times)
{
    for (unsigned i = 0; i < times; i++) {
        (void)holds(rig, HOLDER, 9 + i);
        gives_back(rig, HOLDER);
    }
}

/* A broker that has had the lock eight times in a row stays back once another
 * one waits, until that one has had the time to try. */
SRIG_TEST(turns, srig_quorum(NODES))
{
    takes(rig, 20);
    changed(rig, 0, "Tbroker-1holdfast:{name}"); /* itself */
    changed(rig, 0, "Tbroker-2holdfast:{other}");
    changed(rig, 0, "Tbroker-2");
    (void)holds(rig, HOLDER, 50);
    changed(rig, 1, "Tbroker-2holdfast:{name}");
    srig_status(rig, wants_now(rig, THIRD), OP_BUSY);
    srig_status(rig, wants(rig, OP_ACQUIRE, FIRST), OP_WAITING);
    all_watch(rig);
    silent(rig);
    gives_back(rig, HOLDER);
    no_hint(rig);
    srig_status(rig, wants_now(rig, THIRD), OP_BUSY);
    srig_status(rig, wants(rig, OP_RENEW, FIRST), OP_WAITING);
    silent(rig);
    srig_pass(rig, 19);
    no_hint(rig);
    srig_pass(rig, 1);
    one_hint(rig, FIRST);
    const struct op *op = wants(rig, OP_RENEW, FIRST);
    (void)all_hear(rig, SCRIPT_ACQUIRE);
    all_say(rig, RECORD_OK, 60);
    srig_status(rig, op, OP_OK);
    gives_back(rig, FIRST);
    /* Now it is this broker's turn: seven more. */
    changed(rig, 1, "Tbroker-2holdfast:{name}");
    takes(rig, 7);
    srig_status(rig, wants_now(rig, THIRD), OP_BUSY);
    silent(rig);
}

/* The message when it is free already, and nobody has told more since. */
SRIG_TEST(turns_are_over, srig_quorum(NODES))
{
    takes(rig, 8);
    changed(rig, 1, "Tbroker-2holdfast:{name}");
    srig_status(rig, wants_now(rig, THIRD), OP_BUSY);
    srig_pass(rig, 20);
    takes(rig, 7);
    (void)holds(rig, HOLDER, 50);
    changed(rig, 1, "Tbroker-2holdfast:{name}");
    srig_status(rig, wants_now(rig, THIRD), OP_BUSY);
    srig_pass(rig, 2000);
    const struct op *op = wants_now(rig, THIRD);
    (void)all_hear(rig, SCRIPT_ACQUIRE);
    all_say(rig, RECORD_BUSY, 0);
    srig_status(rig, op, OP_BUSY);
    /* Another one has had it meanwhile: it begins anew. */
    gives_back(rig, HOLDER);
    op = wants_now(rig, THIRD);
    (void)all_hear(rig, SCRIPT_ACQUIRE);
    all_say(rig, RECORD_BUSY, 0);
    srig_status(rig, op, OP_BUSY);
    changed(rig, 1, "Tbroker-2holdfast:{name}");
    takes(rig, 8);
    srig_status(rig, wants_now(rig, THIRD), OP_BUSY);
    silent(rig);
}

/* A try says whether it waits. */
SRIG_TEST(tells_that_it_waits, srig_quorum(NODES))
{
    (void)wants_now(rig, FIRST);
    (void)all_hear(rig, SCRIPT_ACQUIRE);
    ck_assert_uint_eq(asked_uint(rig, AT_FLAGS, 1), NO_QUEUE);
    all_say(rig, RECORD_BUSY, 0);
    (void)wants(rig, OP_ACQUIRE, FIRST);
    (void)all_hear(rig, SCRIPT_ACQUIRE);
    ck_assert_uint_eq(asked_uint(rig, AT_FLAGS, 1), NO_QUEUE | TELLS_WAIT);
    all_say(rig, RECORD_BUSY, 0);
    all_watch(rig);
    srig_pass(rig, 200);
    (void)wants(rig, OP_RENEW, FIRST);
    (void)all_hear(rig, SCRIPT_ACQUIRE);
    ck_assert_uint_eq(asked_uint(rig, AT_FLAGS, 1), NO_QUEUE | TELLS_WAIT);
}

/* A later connection of its client waits elsewhere: it is in nobody's way. */
SRIG_TEST(waits_elsewhere, srig_quorum(NODES))
{
    (void)waits(rig, FIRST);
    (void)wants(rig, OP_ACQUIRE, SECOND);
    const struct op *op = wants(rig, OP_RENEW, FIRST);
    (void)all_hear(rig, SCRIPT_ACQUIRE);
    says(rig, 0, RECORD_MOVED, 0);
    says(rig, 1, RECORD_BUSY, 0);
    ck_assert(!srig_done(rig, op));
    no_hint(rig);
    says(rig, 2, RECORD_BUSY, 0);
    srig_status(rig, op, OP_MOVED);
    one_hint(rig, SECOND);
    srig_status(rig, wants(rig, OP_RENEW, FIRST), OP_GONE);
    (void)wants(rig, OP_RENEW, SECOND);
    (void)all_hear(rig, SCRIPT_ACQUIRE);
    ck_assert_uint_eq(srig_count(rig, COUNTER_quorum_splits), 0);
}

/* Some node had granted it. Its own word undoes it. */
SRIG_TEST(not_too_soon, srig_quorum(NODES))
{
    const struct op *op = wants(rig, OP_ACQUIRE, FIRST);
    uint64_t begin_us = rig->now_us;

    (void)all_hear(rig, SCRIPT_ACQUIRE);
    says(rig, 0, RECORD_OK, 9);
    says(rig, 1, RECORD_BUSY, 0);
    says(rig, 2, RECORD_BUSY, 0);
    srig_status(rig, op, OP_WAITING);
    ck_assert_uint_eq(srig_count(rig, COUNTER_quorum_splits), 1);
    ck_assert_uint_ge(op->result.again_ms, 100);
    ck_assert_uint_le(op->result.again_ms, 151);
    srig_turn(rig);
    hears(rig, 0, SCRIPT_RELEASE);
    says(rig, 0, RECORD_OK, 0);
    all_watch(rig);
    changed(rig, 0, "Wholdfast:{name}");
    srig_pass(rig, 4);
    no_hint(rig);
    changed(rig, 2, "Wholdfast:{name}");
    srig_pass(rig, 4);
    one_hint(rig, FIRST);
    op = wants(rig, OP_RENEW, FIRST);
    if (srig_done(rig, op)) {
        srig_status(rig, op, OP_WAITING);
        ck_assert_uint_le(op->result.again_ms, 5);
        silent(rig);
        srig_pass(rig, op->result.again_ms);
        (void)wants(rig, OP_RENEW, FIRST);
    }
    ck_assert_uint_ge(rig->now_us, begin_us + 8000);
    (void)all_hear(rig, SCRIPT_ACQUIRE);
}

/* Others may have met it there, who try again in a moment, too. */
SRIG_TEST(met_others, srig_quorum(NODES))
{
    const struct op *op = wants(rig, OP_ACQUIRE, FIRST);

    (void)all_hear(rig, SCRIPT_ACQUIRE);
    says(rig, 0, RECORD_OK, 9);
    says(rig, 1, RECORD_BUSY, 0);
    srig_lose(rig, 2);
    srig_status(rig, op, OP_WAITING);
    ck_assert_uint_ge(op->result.again_ms, 8);
    ck_assert_uint_le(op->result.again_ms, 13);
    op = wants(rig, OP_RENEW, FIRST);
    srig_status(rig, op, OP_WAITING);
}

/* A later connection has taken the hold over elsewhere: the core hears its own
 * request, and the hold is not in this broker's turn any more. */
SRIG_TEST(moved_hint, srig_quorum(NODES))
{
    takes(rig, 7);
    uint64_t try = holds(rig, HOLDER, 50);
    char said[14] = "M";
    uint64_t request = HOLDER;
    struct text news;

    changed(rig, 1, "Tbroker-2holdfast:{name}");
    memcpy(said + 1, &try, 8);
    memcpy(said + 9, "\2\0\0", 4);
    srig_message(
        rig, CONN_ACK + 1, "holdfast/broker/broker-1", text_make(said, 13));
    ck_assert(store_take_news(rig->store, &news));
    ck_assert(text_equal(news, TEXT("Tbroker-2holdfast:{name}")));
    ck_assert(store_take_news(rig->store, &news));
    ck_assert_uint_eq(news.len, 13);
    ck_assert_mem_eq(news.at + 1, &request, 8);
    ck_assert_mem_eq(news.at + 9, "\2\0\0", 4);
    srig_pass(rig, 20);
    (void)wants_now(rig, THIRD);
    (void)all_hear(rig, SCRIPT_ACQUIRE);
}

/* A node names the try; the core knows its own request. */
SRIG_TEST(broken_hint, srig_quorum(NODES))
{
    uint64_t try = holds(rig, HOLDER, 9);
    struct store_hint hint;
    double fence = 9;
    char said[17] = "B";

    memcpy(said + 1, &try, 8);
    memcpy(said + 9, &fence, 8);
    srig_message(rig, CONN_ACK + 1, "holdfast/broker/broker-1",
        text_make(said, sizeof(said)));
    ck_assert(store_take_hint(rig->store, &hint));
    ck_assert(hint.broken);
    ck_assert_uint_eq(hint.request, HOLDER);
    ck_assert_uint_eq(hint.fence, 9);
}

/* --- renewals ------------------------------------------------------------- */

/* One node has lost it, and says so before the others or after them. */
SRIG_TEST(mended, srig_quorum(NODES))
{
    bool late = _i;
    uint64_t try = holds(rig, HOLDER, 9);
    const struct op *op = wants(rig, OP_RENEW, HOLDER);
    ck_assert_uint_eq(all_hear(rig, SCRIPT_RENEW), try);
    ck_assert_uint_eq(asked_uint(rig, AT_RENEW_FLAGS, 2), RAISES | AGREED);
    ck_assert_uint_eq(asked_fence(rig, AT_RENEW_SEEN), 9);
    if (!late)
        says(rig, 0, RECORD_GONE, 0);
    says(rig, 1, RECORD_OK, 9);
    ck_assert(!srig_done(rig, op));
    says(rig, 2, RECORD_OK, 9);
    srig_status(rig, op, OP_OK);
    ck_assert_uint_eq(op->result.fence, 9);
    if (late)
        says(rig, 0, RECORD_GONE, 0);
    srig_turn(rig);
    hears(rig, 0, SCRIPT_ACQUIRE);
    ck_assert_uint_eq(asked_request(rig), try);
    ck_assert_uint_eq(asked_uint(rig, AT_FLAGS, 1), RETRY | NO_QUEUE);
    ck_assert_uint_eq(asked_fence(rig, AT_ACQUIRE_SEEN), 8);
    ck_assert_uint_eq(srig_count(rig, COUNTER_quorum_mends), 0);
    says(rig, 0, RECORD_OK, 9);
    silent(rig);
    ck_assert_uint_eq(srig_count(rig, COUNTER_quorum_mends), 1);
    /* It counts from the next one on. */
    srig_lose(rig, 1);
    op = wants(rig, OP_RENEW, HOLDER);
    hears(rig, 0, SCRIPT_RENEW);
    hears(rig, 2, SCRIPT_RENEW);
    says(rig, 2, RECORD_OK, 9);
    ck_assert(!srig_done(rig, op));
    says(rig, 0, RECORD_OK, 9);
    srig_status(rig, op, OP_OK);
}

/* The hold has become a shared one, and so it is where it is put again. */
SRIG_TEST(mended_shared, srig_quorum(NODES))
{
    (void)holds(rig, HOLDER, 9);
    struct op *op = srig_draft(rig, OP_RENEW, 0);

    op->request = HOLDER;
    op->shares = true;
    srig_submit(rig, op);
    srig_turn(rig);
    (void)all_hear(rig, SCRIPT_RENEW);
    says(rig, 0, RECORD_GONE, 0);
    says(rig, 1, RECORD_OK, 9);
    says(rig, 2, RECORD_OK, 9);
    srig_status(rig, op, OP_OK);
    srig_turn(rig);
    hears(rig, 0, SCRIPT_ACQUIRE);
    ck_assert_uint_eq(asked_uint(rig, AT_MODE, 1), 1);
    says(rig, 0, RECORD_OK, 9);
    silent(rig);
}

/* The end of a mending when the lock is given back meanwhile. */
SRIG_TEST(mended_in_vain, srig_quorum(NODES))
{
    uint64_t try = holds(rig, HOLDER, 9);

    (void)wants(rig, OP_RENEW, HOLDER);
    (void)all_hear(rig, SCRIPT_RENEW);
    says(rig, 0, RECORD_GONE, 0);
    says(rig, 1, RECORD_OK, 9);
    says(rig, 2, RECORD_OK, 9);
    srig_turn(rig);
    hears(rig, 0, SCRIPT_ACQUIRE);
    const struct op *op = wants(rig, OP_RELEASE, HOLDER);
    (void)all_hear(rig, SCRIPT_RELEASE);
    says(rig, 1, RECORD_OK, 0);
    says(rig, 2, RECORD_OK, 0);
    srig_status(rig, op, OP_OK);
    says(rig, 0, RECORD_OK, 10);
    hears_release(rig, 0, try);
    says(rig, 0, RECORD_OK, 0);
    says(rig, 0, RECORD_GONE, 0);
    silent(rig);
}

/* A renewal that is answered so, in the order of nodes. */
static const struct op *
renewed(struct srig *rig, const enum record_status said[NODES])
{
    (void)holds(rig, HOLDER, 9);
    const struct op *op = wants(rig, OP_RENEW, HOLDER);
    (void)all_hear(rig, SCRIPT_RENEW);
    for (uint32_t i = 0; i < NODES; i++)
        says(rig, i, said[i], said[i] == RECORD_OK ? 9 : 0);
    return op;
}

static const struct not_renewed_row {
    enum record_status said[NODES];
    enum op_status status;
} not_renewed_rows[] = {
    {{RECORD_GONE, RECORD_GONE, RECORD_OK}, OP_GONE},
    {{RECORD_OK, RECORD_GONE, RECORD_GONE}, OP_GONE},
    {{RECORD_BROKEN, RECORD_OK, RECORD_GONE}, OP_BROKEN},
    {{RECORD_GONE, RECORD_BROKEN, RECORD_OK}, OP_BROKEN},
    {{RECORD_BROKEN, RECORD_OK, RECORD_OK}, OP_OK},
};

SRIG_TEST(not_renewed, srig_quorum(NODES))
{
    const struct not_renewed_row *row = &not_renewed_rows[_i];
    srig_status(rig, renewed(rig, row->said), row->status);
    silent(rig); /* the rest of it keeps others out for its time */
    if (row->status == OP_GONE)
        srig_status(rig, wants(rig, OP_RENEW, HOLDER), OP_GONE);
    silent(rig);
}

static const struct one_down_of_hold_row {
    enum record_status said[2];
    enum op_status status;
} one_down_of_hold_rows[] = {
    {{RECORD_GONE, RECORD_GONE}, OP_GONE},
    {{RECORD_GONE, RECORD_BROKEN}, OP_BROKEN},
    {{RECORD_GONE, RECORD_OK}, OP_UNKNOWN},
    {{RECORD_OK, RECORD_GONE}, OP_UNKNOWN},
    {{RECORD_OK, RECORD_OK}, OP_OK},
};

/* If one node is down, the other two must be heard. */
SRIG_TEST(one_down_of_hold, srig_quorum(NODES))
{
    const struct one_down_of_hold_row *row = &one_down_of_hold_rows[_i];
    (void)holds(rig, HOLDER, 9);
    srig_lose(rig, 2);
    const struct op *op = wants(rig, OP_RENEW, HOLDER);
    hears(rig, 0, SCRIPT_RENEW);
    hears(rig, 1, SCRIPT_RENEW);
    says(rig, 0, row->said[0], 9);
    ck_assert(!srig_done(rig, op));
    says(rig, 1, row->said[1], 9);
    srig_status(rig, op, row->status);
}

SRIG_TEST(renewal_unknown, srig_quorum(NODES))
{
    (void)holds(rig, HOLDER, 9);
    const struct op *op = wants(rig, OP_RENEW, HOLDER);
    (void)all_hear(rig, SCRIPT_RENEW);
    says(rig, 0, RECORD_OK, 9);
    srig_lose(rig, 1);
    ck_assert(!srig_done(rig, op));
    srig_lose(rig, 2);
    srig_status(rig, op, OP_UNKNOWN);
    /* Nor can a majority be asked. */
    op = wants(rig, OP_RENEW, HOLDER);
    srig_status(rig, op, OP_UNSENT);
    hears(rig, 0, SCRIPT_RENEW);
    says(rig, 0, RECORD_OK, 9);
    /* It is held still. */
    back(rig, 1);
    op = wants(rig, OP_RENEW, HOLDER);
    hears(rig, 0, SCRIPT_RENEW);
    hears(rig, 1, SCRIPT_RENEW);
    says(rig, 0, RECORD_OK, 9);
    says(rig, 1, RECORD_OK, 9);
    srig_status(rig, op, OP_OK);
}

/* A hold of an earlier connection is taken over from a majority. */
SRIG_TEST(claimed, srig_quorum(NODES))
{
    for (int missing = 0; missing < 2; missing++) {
        struct op *op = srig_draft(rig, OP_RENEW, 0);
        op->request = missing ? SECOND : FIRST;
        op->moves = true;
        op->fence = 9;
        srig_submit(rig, op);
        uint64_t try = all_hear(rig, SCRIPT_RENEW);
        ck_assert_uint_eq(asked_uint(rig, AT_RENEW_FLAGS, 2), MOVES);
        ck_assert_uint_eq(asked_fence(rig, AT_RENEW_FENCE), 9);
        says(rig, 0, missing ? RECORD_MISSING : RECORD_OK, 9);
        ck_assert(!srig_done(rig, op));
        says(rig, 1, RECORD_GONE, 0);
        if (!missing) {
            ck_assert(!srig_done(rig, op));
            says(rig, 2, RECORD_OK, 9);
            srig_status(rig, op, OP_OK);
            ck_assert_uint_eq(op->result.fence, 9);
            silent(rig); /* its kind is not known before that */
            (void)wants(rig, OP_RENEW, FIRST);
            ck_assert_uint_eq(all_hear(rig, SCRIPT_RENEW), try);
            ck_assert_uint_eq(
                asked_uint(rig, AT_RENEW_FLAGS, 2), RAISES | AGREED);
            all_say(rig, RECORD_OK, 9);
        } else {
            srig_status(rig, op, OP_MISSING);
            says(rig, 2, RECORD_OK, 9);
            srig_status(rig, wants(rig, OP_RENEW, SECOND), OP_GONE);
        }
        silent(rig);
    }
}

/* A wait of an earlier connection is taken over, and has been won meanwhile. */
SRIG_TEST(claimed_when_won, srig_quorum(NODES))
{
    (void)waits(rig, FIRST);
    const struct op *won = wants(rig, OP_RENEW, FIRST);
    uint64_t try = all_hear(rig, SCRIPT_ACQUIRE);
    all_say(rig, RECORD_OK, 10);
    srig_status(rig, won, OP_OK);
    struct op *op = srig_draft(rig, OP_RENEW, 0);
    op->request = FIRST;
    op->moves = true;
    srig_submit(rig, op);
    ck_assert_uint_eq(all_hear(rig, SCRIPT_RENEW), try);
    ck_assert_uint_eq(asked_uint(rig, AT_RENEW_FLAGS, 2), MOVES);
    ck_assert_uint_eq(asked_fence(rig, AT_RENEW_FENCE), 10);
    all_say(rig, RECORD_OK, 10);
    srig_status(rig, op, OP_OK);
    ck_assert_uint_eq(op->result.fence, 10);
    const struct op *renewed = wants(rig, OP_RENEW, FIRST);
    (void)all_hear(rig, SCRIPT_RENEW);
    ck_assert_uint_eq(asked_fence(rig, AT_RENEW_SEEN), 10);
    all_say(rig, RECORD_OK, 10);
    srig_status(rig, renewed, OP_OK);
    ck_assert_uint_eq(renewed->result.fence, 10);
}

/* Nothing of it is queued or granted: it is as if it had never been. */
SRIG_TEST(claimed_of_nothing, srig_quorum(NODES))
{
    struct op *asks = wants_for(rig, OP_ACQUIRE, FIRST, 60000);
    (void)all_hear(rig, SCRIPT_ACQUIRE);
    for (int moves = 0; moves < 2; moves++) {
        struct op *op = srig_draft(rig, OP_RENEW, 0);
        op->request = FIRST;
        op->moves = moves;
        srig_submit(rig, op);
        srig_turn(rig);
        srig_status(rig, op, OP_GONE);
    }
    ck_assert(!srig_done(rig, asks));
    silent(rig);
}

static const struct released_row {
    enum record_status said[2];
    enum op_status status;
} released_rows[] = {
    {{RECORD_OK, RECORD_OK}, OP_OK},
    {{RECORD_GONE, RECORD_OK}, OP_OK},
    {{RECORD_GONE, RECORD_GONE}, OP_GONE},
};

/* --- releases ------------------------------------------------------------- */

SRIG_TEST(released, srig_quorum(NODES))
{
    const struct released_row *row = &released_rows[_i];
    uint64_t try = holds(rig, HOLDER, 9);
    srig_lose(rig, 2);
    const struct op *op = wants(rig, OP_RELEASE, HOLDER);
    hears_release(rig, 0, try);
    hears_release(rig, 1, try);
    says(rig, 0, row->said[0], 0);
    ck_assert(!srig_done(rig, op));
    says(rig, 1, row->said[1], 0);
    srig_status(rig, op, row->status);
    silent(rig);
    back(rig, 2);
    hears_release(rig, 2, try);
    says(rig, 2, RECORD_OK, 0);
    silent(rig);
    srig_status(rig, wants(rig, OP_RELEASE, HOLDER), OP_GONE);
    silent(rig);
}

/* HOLDER gives back, while one node can be asked, and no more: its request of
 * the try. */
static uint64_t
releases_alone(struct srig *rig)
{
    uint64_t try = holds(rig, HOLDER, 9);

    srig_lose(rig, 1);
    srig_lose(rig, 2);
    const struct op *op = wants_for(rig, OP_RELEASE, HOLDER, 200);
    hears_release(rig, 0, try);
    says(rig, 0, RECORD_OK, 0);
    srig_pass(rig, 199);
    ck_assert(!srig_done(rig, op));
    srig_pass(rig, 2);
    srig_status(rig, op, OP_UNSENT);
    return try;
}

/* A majority cannot be reached; the core asks again. */
SRIG_TEST(released_again, srig_quorum(NODES))
{
    uint64_t try = releases_alone(rig);

    const struct op *op = wants(rig, OP_RELEASE, HOLDER);
    silent(rig);
    back(rig, 1);
    hears_release(rig, 1, try);
    silent(rig);
    says(rig, 1, RECORD_GONE, 0);
    srig_status(rig, op, OP_OK);
    back(rig, 2);
    hears_release(rig, 2, try);
    silent(rig);
    says(rig, 2, RECORD_OK, 0);
    silent(rig);
}

/* A majority has it no more before the core asks again. */
SRIG_TEST(released_meanwhile, srig_quorum(NODES))
{
    uint64_t try = releases_alone(rig);

    back(rig, 1);
    hears_release(rig, 1, try);
    says(rig, 1, RECORD_OK, 0);
    const struct op *op = wants(rig, OP_RELEASE, HOLDER);
    srig_status(rig, op, OP_OK);
    silent(rig);
}

/* A renewal is under way, and finds it gone. */
SRIG_TEST(released_while_renewed, srig_quorum(NODES))
{
    uint64_t try = holds(rig, HOLDER, 9);

    const struct op *renewal = wants(rig, OP_RENEW, HOLDER);
    (void)all_hear(rig, SCRIPT_RENEW);
    const struct op *op = wants(rig, OP_RELEASE, HOLDER);
    for (uint32_t i = 0; i < NODES; i++)
        hears_release(rig, i, try);
    all_say(rig, RECORD_GONE, 0); /* they had it carried out before */
    ck_assert(srig_done(rig, renewal));
    ck_assert(!srig_done(rig, op));
    says(rig, 0, RECORD_OK, 0);
    says(rig, 1, RECORD_OK, 0);
    srig_status(rig, op, OP_OK);
}

/* Nobody can be asked, and it has never been: it is asked for again then. */
SRIG_TEST(release_refused, srig_quorum(NODES))
{
    uint64_t try = holds(rig, HOLDER, 9);
    const struct op *op = wants_for(rig, OP_RELEASE, HOLDER, 200);

    for (uint32_t i = 0; i < NODES; i++)
        hears_release(rig, i, try);
    all_say(rig, RECORD_CORRUPT, 0);
    srig_pass(rig, 201);
    srig_status(rig, op, OP_UNSENT);
    op = wants(rig, OP_RELEASE, HOLDER);
    for (uint32_t i = 0; i < NODES; i++)
        hears_release(rig, i, try);
    ck_assert(!srig_done(rig, op));
    all_say(rig, RECORD_OK, 0);
    srig_status(rig, op, OP_OK);
}

/* Only so many releases are kept for a node that is away. */
SRIG_TEST(releases_kept, srig_quorum(NODES))
{
    struct quorum *quorum = rig->store->quorum;

    uint64_t try = holds(rig, HOLDER, 9);
    srig_lose(rig, 2);
    quorum->waiting = QUORUM_WAITING;
    const struct op *op = wants(rig, OP_RELEASE, HOLDER);
    hears_release(rig, 0, try);
    hears_release(rig, 1, try);
    says(rig, 0, RECORD_OK, 0);
    says(rig, 1, RECORD_OK, 0);
    srig_status(rig, op, OP_OK);
    ck_assert_uint_eq(quorum->waiting, QUORUM_WAITING);
    back(rig, 2);
    silent(rig);
}

/* Nobody knows whether a node has carried it out. */
SRIG_TEST(release_unknown, srig_quorum(NODES))
{
    uint64_t try = holds(rig, HOLDER, 9);
    const struct op *op = wants(rig, OP_RELEASE, HOLDER);

    (void)all_hear(rig, SCRIPT_RELEASE);
    says(rig, 0, RECORD_OK, 0);
    srig_lose(rig, 1);
    srig_lose(rig, 2);
    ck_assert(!srig_done(rig, op));
    back(rig, 2);
    hears_release(rig, 2, try);
    says(rig, 2, RECORD_GONE, 0);
    srig_status(rig, op, OP_OK);
    back(rig, 1);
    hears_release(rig, 1, try);
}

/* Nobody has answered, and then nobody has it: it was carried out. */
SRIG_TEST(release_unheard, srig_quorum(NODES))
{
    uint64_t try = holds(rig, HOLDER, 9);
    const struct op *op = wants(rig, OP_RELEASE, HOLDER);

    (void)all_hear(rig, SCRIPT_RELEASE);
    for (uint32_t i = 0; i < NODES; i++)
        srig_lose(rig, i);
    for (uint32_t i = 0; i < 2; i++) {
        back(rig, i);
        ck_assert(!srig_done(rig, op));
        hears_release(rig, i, try);
        says(rig, i, RECORD_GONE, 0);
    }
    srig_status(rig, op, OP_OK);
}

/* --- only asked ----------------------------------------------------------- */

#define MESSAGE "PUBLISH holdfast/broker/broker-2 a message"

SRIG_TEST(published, srig_quorum(NODES))
{
    struct op *op = srig_op(rig, OP_PUBLISH, 0);

    srig_sends(rig, 0, MESSAGE);
    silent(rig);
    srig_number(rig, 0, 0);
    ck_assert(!srig_done(rig, op));
    srig_sends(rig, 1, MESSAGE);
    srig_number(rig, 1, 1);
    srig_status(rig, op, OP_OK);
    silent(rig);
    /* One that is not there; one of which nobody knows. */
    srig_lose(rig, 0);
    op = srig_op(rig, OP_PUBLISH, 0);
    srig_sends(rig, 1, MESSAGE);
    srig_lose(rig, 1);
    ck_assert(!srig_done(rig, op));
    srig_sends(rig, 2, MESSAGE);
    srig_number(rig, 2, 0);
    srig_status(rig, op, OP_OK); /* it was told, and nobody was there */
    srig_lose(rig, 2);
    op = srig_op(rig, OP_PUBLISH, 0);
    srig_turn(rig);
    srig_status(rig, op, OP_UNSENT);
}

/* Of any length, and also when the core has it no more. */
SRIG_TEST(published_long, srig_quorum(NODES))
{
    struct op *op = srig_draft(rig, OP_PUBLISH, 0);
    char message[900];
    char question[sizeof(message) + 40];

    memset(message, 'm', sizeof(message));
    snprintf(question, sizeof(question),
        "PUBLISH holdfast/broker/broker-2 %.*s", (int)sizeof(message), message);
    op->words[1] = text_make(message, sizeof(message));
    srig_submit(rig, op);
    memset(message, 'x', sizeof(message));
    srig_turn(rig);
    for (uint32_t i = 0; i < 2; i++) {
        srig_expect(rig, i, question);
        srig_number(rig, i, i);
        srig_turn(rig);
    }
    srig_status(rig, op, OP_OK);
}

SRIG_TEST(broken, srig_quorum(NODES))
{
    static const struct {
        enum record_status said[NODES];
        enum op_status status;
    } table[] = {
        {{RECORD_GONE, RECORD_OK, RECORD_GONE}, OP_OK},
        {{RECORD_GONE, RECORD_CORRUPT, RECORD_GONE}, OP_REFUSED},
        {{RECORD_GONE, RECORD_GONE, RECORD_GONE}, OP_GONE},
    };
    struct op *op;

    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
        op = srig_op(rig, OP_BREAK, 0);
        srig_turn(rig);
        for (uint32_t node = 0; node < NODES; node++)
            hears(rig, node, SCRIPT_BREAK);
        for (uint32_t node = 0; node < NODES; node++) {
            ck_assert(!srig_done(rig, op));
            says(rig, node, table[i].said[node], 0);
        }
        srig_status(rig, op, table[i].status);
    }
    srig_lose(rig, 1);
    srig_lose(rig, 2);
    op = srig_op(rig, OP_BREAK, 0);
    srig_turn(rig);
    hears(rig, 0, SCRIPT_BREAK);
    says(rig, 0, RECORD_GONE, 0);
    srig_status(rig, op, OP_UNSENT);
}

static const struct by_fence_row {
    enum record_status said[NODES];
    enum op_status unlocked;
    enum op_status renewed;
} by_fence_rows[] = {
    {{RECORD_OK, RECORD_OK, RECORD_OK}, OP_OK, OP_OK},
    {{RECORD_OK, RECORD_OK, RECORD_GONE}, OP_OK, OP_OK},
    {{RECORD_GONE, RECORD_GONE, RECORD_OK}, OP_OK, OP_GONE},
    {{RECORD_GONE, RECORD_CONFLICT, RECORD_GONE}, OP_GONE, OP_GONE},
    {{RECORD_CONFLICT, RECORD_CONFLICT, RECORD_GONE}, OP_CONFLICT, OP_CONFLICT},
    {{RECORD_MISSING, RECORD_OK, RECORD_GONE}, OP_OK, OP_MISSING},
};

/* A detached hold, by its fence: a majority is to be without it, or to have
 * its new end. */
SRIG_TEST(by_fence, srig_quorum(NODES))
{
    static const enum op_kind kinds[] = {OP_UNLOCK_DETACHED, OP_RENEW_DETACHED};
    const struct by_fence_row *row = &by_fence_rows[_i];

    for (int i = 0; i < 2; i++) {
        const struct op *op = wants(rig, kinds[i], 0);
        (void)all_hear(rig, i == 0 ? SCRIPT_RELEASE : SCRIPT_RENEW);
        for (uint32_t node = 0; node < NODES; node++) {
            ck_assert(!srig_done(rig, op));
            says_for(rig, node, row->said[node], 9, 1000 - 100 * node);
        }
        srig_status(rig, op, i == 0 ? row->unlocked : row->renewed);
        if (op->result.status == OP_OK && i == 1)
            ck_assert_uint_eq(
                op->result.ttl_ms, row->said[2] == RECORD_OK ? 800 : 900);
        silent(rig);
    }
}

/* One node has done it, or holders may still report to it, and another one may
 * have done it. */
SRIG_TEST(by_fence_of_two, srig_quorum(NODES))
{
    srig_lose(rig, 2);
    const struct op *op = wants(rig, OP_RENEW_DETACHED, 0);
    hears(rig, 0, SCRIPT_RENEW);
    hears(rig, 1, SCRIPT_RENEW);
    says(rig, 0, _i == 2 ? RECORD_MISSING : RECORD_OK, 9);
    says(rig, 1, _i == 0 ? RECORD_OK : RECORD_GONE, 9);
    srig_status(rig, op, _i == 0 ? OP_OK : OP_UNKNOWN);
    op = wants(rig, OP_UNLOCK_DETACHED, 0);
    hears(rig, 0, SCRIPT_RELEASE);
    hears(rig, 1, SCRIPT_RELEASE);
    says(rig, 0, RECORD_OK, 9);
    srig_lose(rig, 1);
    srig_status(rig, op, OP_UNKNOWN);
    op = wants(rig, OP_UNLOCK_DETACHED, 0);
    hears(rig, 0, SCRIPT_RELEASE);
    says(rig, 0, RECORD_GONE, 0);
    srig_status(rig, op, OP_UNSENT);
}

/* A node that was away, or whose answer was lost, may have the hold for all of
 * its term, not only for a lease. It is told of the UNLOCK when it is back. A
 * hold that no node has is owed to nobody. */
SRIG_TEST(unlock_owed, srig_quorum(NODES))
{
    bool had = _i < 2;

    (void)holds(rig, HOLDER, 9);
    if (_i == 0)
        srig_lose(rig, 2);
    const struct op *op = wants(rig, OP_UNLOCK_DETACHED, 0);
    hears(rig, 0, SCRIPT_RELEASE);
    hears(rig, 1, SCRIPT_RELEASE);
    says(rig, 0, had ? RECORD_OK : RECORD_GONE, 9);
    if (_i > 0)
        srig_lose(rig, 2);
    says(rig, 1, RECORD_GONE, 0);
    srig_status(rig, op, had ? OP_OK : OP_GONE);
    ck_assert_uint_eq(rig->store->quorum->waiting, had);
    srig_pass(rig, 40000);
    back(rig, 2);
    if (had) {
        hears(rig, 2, SCRIPT_RELEASE);
        says(rig, 2, RECORD_OK, 9);
    }
    silent(rig);
    ck_assert_uint_eq(rig->store->quorum->waiting, 0);
}

/* The hold is to be detached for an hour. */
static struct op *
detaches(struct srig *rig)
{
    struct op *op = srig_draft(rig, OP_RENEW, 0);

    op->request = HOLDER;
    op->detaches = true;
    op->deadline_us = rig->now_us + 500000;
    op->end_us = rig->now_us + 600000;
    op->hard_end_us = rig->now_us + 3600000000;
    srig_submit(rig, op);
    srig_turn(rig);
    return op;
}

/* Each node is asked for that. */
static struct op *
detaching(struct srig *rig)
{
    struct op *op = detaches(rig);

    (void)all_hear(rig, SCRIPT_RENEW);
    return op;
}

/* The client could not be told: the same goes for what is given back then. */
SRIG_TEST(detached_owed, srig_quorum(NODES))
{
    uint64_t try = holds(rig, HOLDER, 9);
    struct op *op = detaching(rig);

    srig_lose(rig, 2);
    says(rig, 0, RECORD_OK, 9);
    says(rig, 1, RECORD_OK, 9);
    srig_status(rig, op, OP_OK);
    const struct op *release = wants(rig, OP_RELEASE, HOLDER);
    hears_release(rig, 0, try);
    hears_release(rig, 1, try);
    says(rig, 0, RECORD_OK, 0);
    says(rig, 1, RECORD_OK, 0);
    srig_status(rig, release, OP_OK);
    srig_pass(rig, 40000);
    back(rig, 2);
    hears_release(rig, 2, try);
}

/* An UNLOCK at another broker must not overtake the detachment at a node. So a
 * node that is slow has its command time-out. */
SRIG_TEST(detached_at_all, srig_quorum(NODES))
{
    rig->store->settings.silence_us = 8000000;
    (void)holds(rig, HOLDER, 50);
    struct op *op = detaching(rig);

    says(rig, 0, RECORD_OK, 50);
    says(rig, 2, RECORD_OK, 50);
    srig_pass(rig, 1999);
    ck_assert(!srig_done(rig, op));
    srig_pass(rig, 1);
    srig_status(rig, op, OP_OK);
}

/* A node that has not detached the hold may have it as an ordinary ticket: the
 * LOCK's answer came after the others', or never. That ticket is given back,
 * and nothing else: the node may have carried the detachment out. */
SRIG_TEST(detached_late, srig_quorum(NODES))
{
    rig->store->settings.silence_us = 8000000;
    const struct op *lock = wants(rig, OP_ACQUIRE, HOLDER);
    uint64_t try = all_hear(rig, SCRIPT_ACQUIRE);

    says(rig, 0, RECORD_OK, 50);
    says(rig, 2, RECORD_OK, 50);
    srig_status(rig, lock, OP_OK);
    struct op *op = detaching(rig);
    if (_i == 0)
        says(rig, 1, RECORD_OK, 50);
    says(rig, 0, RECORD_OK, 50);
    says(rig, 2, RECORD_OK, 50);
    silent(rig);
    srig_pass(rig, 2000); /* the slow node is asked no more */
    srig_status(rig, op, OP_OK);
    silent(rig);
    if (_i == 1)
        says(rig, 1, RECORD_OK, 50);
    says(rig, 1, RECORD_OK, 50);
    hears_release_as(rig, 1, try, SPARES);
    silent(rig);
}

/* The same of a node that is away, also when nobody waits for the detachment
 * any more. */
SRIG_TEST(detached_away, srig_quorum(NODES))
{
    uint64_t try = holds(rig, HOLDER, 50);
    struct op *op = detaching(rig);

    srig_lose(rig, 1);
    says(rig, 0, RECORD_OK, 50);
    says(rig, 2, RECORD_OK, 50);
    srig_status(rig, op, OP_OK);
    srig_pass(rig, 700);
    ck_assert_uint_gt(store_next_us(rig->store), rig->now_us + 1000);
    back(rig, 1);
    hears_release_as(rig, 1, try, SPARES);
}

/* At a busy node the detachment even overtakes the LOCK. */
SRIG_TEST(detached_before, srig_quorum(NODES))
{
    for (uint64_t i = 0; i < 2; i++) { /* as many as may be under way */
        (void)wants(rig, OP_ACQUIRE, FIRST + i);
        (void)all_hear(rig, SCRIPT_ACQUIRE);
        says(rig, 0, RECORD_OK, 5);
        says(rig, 2, RECORD_OK, 5);
    }
    const struct op *lock = wants(rig, OP_ACQUIRE, HOLDER);
    hears(rig, 0, SCRIPT_ACQUIRE);
    hears(rig, 2, SCRIPT_ACQUIRE);
    says(rig, 0, RECORD_OK, 50);
    says(rig, 2, RECORD_OK, 50);
    srig_status(rig, lock, OP_OK);
    struct op *op = detaches(rig);
    hears(rig, 0, SCRIPT_RENEW);
    hears(rig, 2, SCRIPT_RENEW);
    says(rig, 0, RECORD_OK, 50);
    says(rig, 2, RECORD_OK, 50);
    says(rig, 1, RECORD_OK, 5);
    says(rig, 1, RECORD_OK, 5);
    srig_turn(rig);
    hears(rig, 1, SCRIPT_RENEW);
    hears(rig, 1, SCRIPT_ACQUIRE);
    uint64_t try = asked_request(rig);
    says(rig, 1, RECORD_GONE, 0);
    srig_status(rig, op, OP_OK);
    hears_release_as(rig, 1, try, SPARES);
    says(rig, 1, RECORD_OK, 50);
    hears_release_as(rig, 1, try, SPARES);
    silent(rig);
}

/* The detachment ends the turn. A waiter that stayed back for the rest of the
 * hold tries sooner. */
SRIG_TEST(detached_turn, srig_quorum(NODES))
{
    takes(rig, 7);
    (void)holds(rig, HOLDER, 50);
    changed(rig, 1, "Tbroker-2holdfast:{name}");
    srig_status(rig, wants(rig, OP_ACQUIRE, FIRST), OP_WAITING);
    all_watch(rig);
    struct op *op = detaching(rig);
    all_say(rig, RECORD_OK, 50);
    srig_status(rig, op, OP_OK);
    srig_pass(rig, 19);
    no_hint(rig);
    srig_pass(rig, 1);
    one_hint(rig, FIRST);
}

/* A majority has the hold from now on; it is put nowhere else. It is in this
 * broker's turn no more. A client that could not be told gives it back. */
SRIG_TEST(detached, srig_quorum(NODES))
{
    takes(rig, 7);
    uint64_t try = holds(rig, HOLDER, 50);
    changed(rig, 1, "Tbroker-2holdfast:{name}");
    struct op *op = detaching(rig);
    says(rig, 0, RECORD_OK, 50);
    says(rig, 1, RECORD_GONE, 0);
    says(rig, 2, RECORD_OK, 50);
    srig_status(rig, op, OP_OK);
    hears_release_as(rig, 1, try, SPARES);
    says(rig, 1, RECORD_GONE, 0);
    silent(rig);
    srig_pass(rig, 20);
    (void)wants_now(rig, THIRD);
    (void)all_hear(rig, SCRIPT_ACQUIRE);
    all_say(rig, RECORD_BUSY, 0);
    (void)wants(rig, OP_RELEASE, HOLDER);
    ck_assert_uint_eq(all_hear(rig, SCRIPT_RELEASE), try);
}

/* Nobody waits in a record, and what a majority has lost is lost. */
SRIG_TEST(nothing_asked, srig_quorum(NODES))
{
    srig_status(rig, wants(rig, OP_LOOK, FIRST), OP_OK);
    srig_status(rig, wants(rig, OP_RECLAIM, FIRST), OP_GONE);
    srig_status(rig, wants(rig, OP_RELEASE, FIRST), OP_GONE);
    srig_status(rig, wants(rig, OP_RENEW, FIRST), OP_GONE);
    silent(rig);
}

/* --- INSPECT -------------------------------------------------------------- */

#define WIDTH (BYTES_TICKET + 4)

/* One that holds it: a session of that letter. */
static void
put_ticket(
    const struct srig *rig, char *at, char session, uint64_t fence, char try)
{
    double number = (double)fence;
    uint64_t now_ms = srig_time_us(rig) / 1000;
    double end_ms = (double)(now_ms + 500);

    memset(at, 0, WIDTH);
    at[AT_TICKET_FLAGS] = 3;
    at[AT_TICKET_WORDS] = 4;
    memcpy(at + AT_TICKET_FENCE, &number, sizeof(number));
    memcpy(at + AT_TICKET_ENDS, &end_ms, sizeof(end_ms));
    memset(at + AT_TICKET_IDENTITY + AT_IDENTITY_SESSION, session, 16);
    at[AT_TICKET_IDENTITY + AT_IDENTITY_REQUEST] = try;
    memcpy(at + AT_TICKET_BROKER, "broker-2", 8);
    at[BYTES_TICKET] = 1;
    at[BYTES_TICKET + 1] = session;
}

/* The node shows one ticket for each letter, of a try of that number. */
static void
shows_try(struct srig *rig, uint32_t node, const char *sessions, uint64_t fence,
    char try)
{
    char bytes[800] = {0};
    size_t count = strlen(sessions);
    size_t at = srig_encode(rig, bytes, 1, RECORD_OK);
    char *head = bytes + at + BYTES_INSPECTED;

    /* Ends of leases are to be trusted. */
    memset(bytes + BYTES_REPLY + AT_RESULT_AGAIN, 0, 4);
    bytes[at] = (char)count;
    head[AT_HEAD_FLAGS] = 1;
    head[AT_HEAD_WIDTH] = WIDTH;
    head[AT_HEAD_LIVE] = head[AT_HEAD_GRANTED] = (char)count;
    for (size_t i = 0; i < count; i++)
        put_ticket(rig, head + BYTES_HEAD + i * WIDTH, sessions[i],
            fence + i * 10, try);
    srig_bytes(
        rig, node, bytes, at + BYTES_INSPECTED + BYTES_HEAD + count * WIDTH);
}

static void
shows(struct srig *rig, uint32_t node, const char *sessions, uint64_t fence)
{
    shows_try(rig, node, sessions, fence, 1);
}

static struct op *
inspected(struct srig *rig)
{
    struct op *op = srig_op(rig, OP_INSPECT, 0);

    srig_turn(rig);
    for (uint32_t i = 0; i < NODES; i++)
        hears(rig, i, SCRIPT_INSPECT);
    return op;
}

/* Holders that the list has no room for count, too. */
SRIG_TEST(shown_in_part, srig_quorum(NODES))
{
    struct op *op = srig_draft(rig, OP_INSPECT, 0);

    op->limit = 1;
    srig_submit(rig, op);
    srig_turn(rig);
    for (uint32_t i = 0; i < NODES; i++) {
        hears(rig, i, SCRIPT_INSPECT);
        ck_assert_uint_eq(asked_uint(rig, 0, 4), TICKETS_SHOWN);
        shows(rig, i, i == 0 ? "ab" : "ba", 7);
    }
    srig_status(rig, op, OP_OK);
    ck_assert_uint_eq(op->result.holders, 2);
    ck_assert_uint_eq(op->result.ticket_count, 1);
}

SRIG_TEST(shown, srig_quorum(NODES))
{
    (void)waits(rig, FIRST);
    const struct op *op = inspected(rig);
    shows(rig, 0, "ab", 7);
    shows(rig, 1, "a", 7);
    ck_assert(!srig_done(rig, op));
    shows(rig, 2, "ca", 6);
    srig_status(rig, op, OP_OK);
    ck_assert_uint_eq(op->result.holders, 1);
    ck_assert_uint_eq(op->result.waiters, 1);
    ck_assert_uint_eq(op->result.ticket_count, 2);
    const struct op_ticket *tickets = op->result.tickets;
    ck_assert(tickets[0].granted && !tickets[1].granted);
    ck_assert(text_equal(tickets[0].owner, TEXT("a")));
    ck_assert_uint_eq(tickets[0].fence, 7);
    ck_assert_uint_eq(op->result.fence, 7);
    ck_assert_str_eq(tickets[0].broker, "broker-2");
    ck_assert_str_eq(tickets[1].broker, "broker-1");
    ck_assert(!op->result.senseless);
    ck_assert_uint_eq(op->result.ttl_ms, 30000); /* until all are settled */
    /* One has a record that is none. */
    op = inspected(rig);
    shows(rig, 0, "a", 5);
    says(rig, 1, RECORD_CORRUPT, 0);
    shows(rig, 2, "a", 5);
    srig_status(rig, op, OP_OK);
    ck_assert_uint_eq(op->result.holders, 1);
    ck_assert(op->result.senseless);
    /* Two of three have to answer. */
    op = inspected(rig);
    shows(rig, 0, "a", 5);
    srig_lose(rig, 1);
    shows(rig, 2, "a", 5);
    srig_status(rig, op, OP_OK);
    ck_assert_uint_eq(op->result.holders, 1);
    op = srig_op(rig, OP_INSPECT, 0);
    srig_turn(rig);
    hears(rig, 0, SCRIPT_INSPECT);
    hears(rig, 2, SCRIPT_INSPECT);
    shows(rig, 0, "a", 5);
    srig_lose(rig, 2);
    srig_status(rig, op, OP_UNSENT);
}

/* A watch hears nothing of a hold that is one of a majority if a silent node
 * has it. SHOW tells what it sees. */
SRIG_TEST(shown_in_doubt, srig_quorum(NODES))
{
    static const struct {
        enum op_reader reader;
        const char *other; /* that the second node shows */
        enum op_status status;
    } cases[] = {
        {READER_WATCH, "", OP_UNSENT},
        {READER_WATCH, "a", OP_OK},
        {READER_REQUEST, "", OP_OK},
    };
    struct op *op = inspected(rig);

    op->reader = READER_WATCH;
    shows(rig, 0, "a", 7);
    shows(rig, 1, "", 7);
    shows(rig, 2, "", 7);
    srig_status(rig, op, OP_OK);
    ck_assert_uint_eq(op->result.holders, 0);
    srig_lose(rig, 2);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        op = srig_op(rig, OP_INSPECT, 0);
        op->reader = cases[i].reader;
        srig_turn(rig);
        hears(rig, 0, SCRIPT_INSPECT);
        hears(rig, 1, SCRIPT_INSPECT);
        shows(rig, 0, "a", 7);
        shows(rig, 1, cases[i].other, 7);
        srig_status(rig, op, cases[i].status);
    }
}

/* Nobody holds what a majority has not one fence for: it is being raised, and
 * has been granted to nobody yet. Nor counts what a node was not told the end
 * of, though its owner has the lock again. */
SRIG_TEST(shown_too_early, srig_quorum(NODES))
{
    const struct op *op = inspected(rig);
    shows(rig, 0, "a", 5);
    shows(rig, 1, "a", 7);
    shows(rig, 2, "a", 9);
    srig_status(rig, op, OP_OK);
    ck_assert_uint_eq(op->result.holders, 0);
    op = inspected(rig);
    shows(rig, 0, "a", 9);
    shows(rig, 1, "a", 7);
    shows(rig, 2, "a", 7);
    srig_status(rig, op, OP_OK);
    ck_assert_uint_eq(op->result.holders, 1);
    ck_assert_uint_eq(op->result.fence, 7);
    op = inspected(rig);
    shows_try(rig, 0, "a", 7, 1);
    shows_try(rig, 1, "a", 7, 2);
    shows(rig, 2, "", 0);
    srig_status(rig, op, OP_OK);
    ck_assert_uint_eq(op->result.holders, 0);
}

static void
add_tries(Suite *suite)
{
    TCase *tests = tcase_create("tries");

    tcase_add_test(tests, majority);
    tcase_add_test(tests, numbered);
    tcase_add_test(tests, another_name);
    tcase_add_test(tests, another_name_is_dark);
    tcase_add_loop_test(tests, least_of_majority, 0, 2);
    tcase_add_test(tests, fences_raised);
    tcase_add_test(tests, late_and_higher);
    tcase_add_test(tests, stages);
    tcase_add_test(tests, stages_of_unsent);
    tcase_add_test(tests, raised_twice);
    tcase_add_test(tests, five);
    tcase_add_test(tests, raise_lost);
    tcase_add_test(tests, raise_too_late);
    tcase_add_loop_test(tests, minority, 0, 2);
    tcase_add_test(tests, granted_late);
    tcase_add_loop_test(tests, vote_lost, 0, 2);
    tcase_add_loop_test(tests, one_down, 0, ROWS(one_down_rows));
    tcase_add_test(tests, lost_and_refused);
    tcase_add_test(tests, released_while_tried);
    tcase_add_test(tests, too_few);
    tcase_add_test(tests, unsettled);
    tcase_add_test(tests, unsettled_and_away);
    tcase_add_test(tests, unsettled_in_turn);
    suite_add_tcase(suite, tests);
}

Suite *
store_quorum_suite(void)
{
    Suite *suite = suite_create("store_quorum");
    TCase *tests = tcase_create("store_quorum");

    add_tries(suite);
    tcase_add_test(tests, first_come_first_served);
    tcase_add_test(tests, places);
    tcase_add_test(tests, first_leaves);
    tcase_add_test(tests, passed);
    tcase_add_test(tests, tries_for_what_moves);
    tcase_add_test(tests, woken);
    tcase_add_test(tests, turns);
    tcase_add_test(tests, turns_are_over);
    tcase_add_test(tests, tells_that_it_waits);
    tcase_add_test(tests, waits_elsewhere);
    tcase_add_test(tests, not_too_soon);
    tcase_add_test(tests, met_others);
    tcase_add_test(tests, broken_hint);
    tcase_add_test(tests, moved_hint);
    tcase_add_loop_test(tests, mended, 0, 2);
    tcase_add_test(tests, mended_shared);
    tcase_add_test(tests, mended_in_vain);
    tcase_add_loop_test(tests, not_renewed, 0, ROWS(not_renewed_rows));
    tcase_add_loop_test(
        tests, one_down_of_hold, 0, ROWS(one_down_of_hold_rows));
    tcase_add_test(tests, renewal_unknown);
    tcase_add_test(tests, claimed);
    tcase_add_test(tests, claimed_when_won);
    tcase_add_test(tests, claimed_of_nothing);
    tcase_add_loop_test(tests, released, 0, ROWS(released_rows));
    tcase_add_test(tests, released_again);
    tcase_add_test(tests, released_meanwhile);
    tcase_add_test(tests, released_while_renewed);
    tcase_add_test(tests, release_refused);
    tcase_add_test(tests, releases_kept);
    tcase_add_test(tests, release_unknown);
    tcase_add_test(tests, release_unheard);
    tcase_add_test(tests, published);
    tcase_add_test(tests, published_long);
    tcase_add_test(tests, broken);
    tcase_add_loop_test(
        tests, by_fence, 0, sizeof(by_fence_rows) / sizeof(by_fence_rows[0]));
    tcase_add_loop_test(tests, by_fence_of_two, 0, 3);
    tcase_add_loop_test(tests, unlock_owed, 0, 3);
    tcase_add_test(tests, detached_owed);
    tcase_add_test(tests, detached_at_all);
    tcase_add_loop_test(tests, detached_late, 0, 2);
    tcase_add_test(tests, detached_away);
    tcase_add_test(tests, detached_before);
    tcase_add_test(tests, detached_turn);
    tcase_add_test(tests, detached);
    tcase_add_test(tests, nothing_asked);
    tcase_add_test(tests, shown);
    tcase_add_test(tests, shown_in_part);
    tcase_add_test(tests, shown_in_doubt);
    tcase_add_test(tests, shown_too_early);
    suite_add_tcase(suite, tests);
    return suite;
}

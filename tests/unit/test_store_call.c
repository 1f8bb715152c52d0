/*
 * Tests of daemon/store/queue/call.c and record.c: batches, results, and
 * everything that Redis may say instead.
 */
#include "tests/unit/log_kept.h"
#include "tests/unit/seed.h"
#include "tests/unit/store_rig.h"

#include "daemon/base/log.h"
#include "daemon/op/op.h"

#include <stdio.h>
#include <string.h>

#define GARBAGE 20000

Suite *store_call_suite(void);

SRIG_TEST(batches, srig_single())
{
    struct op *ops[10];

    /* A batch is of one kind, releases go first, and a call has its limit. */
    for (int i = 0; i < 5; i++)
        ops[i] = srig_op(rig, OP_ACQUIRE, (uint16_t)i);
    for (int i = 5; i < 8; i++)
        ops[i] = srig_op(rig, OP_RELEASE, (uint16_t)i);
    srig_sends(rig, 0, "EVALSHA 3");
    ck_assert(
        text_equal(rig->words[1], text_make(scripts[SCRIPT_RELEASE].sha1, 40)));
    ck_assert(text_equal(rig->words[3], TEXT("holdfast:{name}")));
    srig_expect(rig, 0, "EVALSHA 4");
    ck_assert(
        text_equal(rig->words[1], text_make(scripts[SCRIPT_ACQUIRE].sha1, 40)));
    srig_expect(rig, 0, ""); /* as many as may be under way */
    srig_results(rig, 0, 3, RECORD_OK);
    ck_assert_uint_eq(rig->done_count, 3);
    srig_status(rig, ops[7], OP_OK);
    srig_sends(rig, 0, "EVALSHA 1");
    srig_results(rig, 0, 4, RECORD_WAITING);
    srig_status(rig, ops[3], OP_WAITING);
    ck_assert(!srig_done(rig, ops[4]));
    srig_results(rig, 0, 1, RECORD_BUSY);
    srig_status(rig, ops[4], OP_BUSY);
    ops[8] = srig_op(rig, OP_RENEW, 0);
    ops[9] = srig_op(rig, OP_LOOK, 0);
    srig_sends(rig, 0, "EVALSHA 1");
    srig_expect(rig, 0, "EVALSHA 1");
    srig_results(rig, 0, 1, RECORD_GONE);
    srig_results(rig, 0, 1, RECORD_OK);
    srig_status(rig, ops[8], OP_GONE);
    srig_status(rig, ops[9], OP_OK);
    ck_assert_uint_eq(srig_count(rig, COUNTER_redis_calls), 5);
    ck_assert_uint_eq(srig_count(rig, COUNTER_redis_operations), 10);
}

/* A call is answered, and the next one sent: whether it is of that script. */
static bool
take_turn(struct srig *rig, enum script_id script, unsigned count)
{
    srig_results(rig, 0, count, RECORD_OK);
    srig_sends(rig, 0, "EVALSHA 4");
    return text_equal(rig->words[1], text_make(scripts[script].sha1, 40));
}

/* Very many of each of two kinds wait, and of a third one comes: it is sent
 * after no more calls than there are kinds, whatever their order. */
START_TEST(turns)
{
    static const enum op_kind many[][2] = {{OP_RELEASE, OP_RENEW},
        {OP_RELEASE, OP_ACQUIRE}, {OP_RENEW, OP_ACQUIRE}};

    static const enum script_id rare[] = {
        SCRIPT_ACQUIRE, SCRIPT_RENEW, SCRIPT_RELEASE};

    static const enum op_kind rare_kind[] = {OP_ACQUIRE, OP_RENEW, OP_RELEASE};

    for (int i = 0; i < 3; i++) {
        struct srig *rig = srig_single();
        unsigned calls = 0;

        (void)srig_ops(rig, many[i][0], 0, 80);
        (void)srig_ops(rig, many[i][1], 0, 80);
        srig_sends(rig, 0, "EVALSHA 4");
        srig_expect(rig, 0, "EVALSHA 4");
        (void)srig_ops(rig, rare_kind[i], 0, 4);
        while (!take_turn(rig, rare[i], 4))
            ck_assert_uint_lt(++calls, 3);
        srig_end(rig);
    }
}

END_TEST

/* One of another session than `srig_op` makes. */
static struct op *
op_of(struct srig *rig, enum op_kind kind, uint8_t session, bool yields)
{
    struct op *op = srig_draft(rig, kind, 0);

    op->session[0] = session;
    op->yields = yields;
    srig_submit(rig, op);
    return op;
}

static const enum op_kind turns_of_sessions_kinds[] = {
    OP_ACQUIRE, OP_RENEW, OP_RECLAIM, OP_RELEASE, OP_RELEASE};

/* A session has very many operations, and another one comes with two of the
 * same kind. Both are in the next call, beside two of the first session in
 * their order. */
SRIG_TEST(turns_of_sessions, srig_single())
{
    bool yields = _i == 4;
    struct op *many = &rig->ops[0];
    for (int n = 0; n < 80; n++)
        (void)op_of(rig, turns_of_sessions_kinds[_i], 1, yields);
    srig_turn(rig);
    struct op *few[2] = {op_of(rig, turns_of_sessions_kinds[_i], 2, yields),
        op_of(rig, turns_of_sessions_kinds[_i], 2, yields)};
    store_check(rig->store);
    for (int call = 0; call < 3; call++) {
        srig_expect(rig, 0, "EVALSHA 4");
        srig_results(rig, 0, 4, RECORD_OK);
        srig_turn(rig);
    }
    srig_status(rig, few[0], OP_OK);
    srig_status(rig, few[1], OP_OK);
    srig_statuses(rig, many, 0, 10, OP_OK);
    ck_assert(!srig_done(rig, &many[10]));
    store_check(rig->store);
}

static const enum op_kind bulk_kinds[] = {OP_RENEW, OP_RELEASE, OP_ACQUIRE};

/* Operations that may wait, or of one busy session, leave half of the calls to
 * others. A new operation is sent at once. Renewals that press leave none, nor
 * does a session that has been alone for a while. */
SRIG_TEST(bulk, srig_single())
{
    struct store_settings settings = rig->settings;
    settings.in_flight = 4;
    store_configure(rig->store, &settings);
    (void)op_of(rig, OP_ACQUIRE, 2, false);
    srig_turn(rig);
    srig_results(rig, 0, 1, RECORD_OK);
    for (int n = 0; n < 80; n++)
        (void)op_of(rig, bulk_kinds[_i], 1, _i == 1);
    for (int call = 0; call < 5; call++) {
        srig_turn(rig);
        ck_assert_uint_eq(store_in_flight(rig->store), 2);
        srig_results(rig, 0, 4, RECORD_OK);
    }
    const struct op *other = op_of(rig, OP_ACQUIRE, 2, false);
    srig_turn(rig);
    ck_assert_uint_eq(other->tries, 1);
    for (int n = 0; n < 81; n++)
        rig->ops[n].deadline_us = rig->now_us + 1000000;
    rig->now_us += 1100000;
    srig_turn(rig);
    ck_assert_uint_eq(store_in_flight(rig->store), _i == 1 ? 3 : 4);
    store_check(rig->store);
}

/* Readers of many locks take turns, too, though each goes alone. */
SRIG_TEST(turns_of_readers, srig_single())
{
    for (int i = 0; i < 40; i++)
        (void)op_of(rig, OP_INSPECT, 1, false);
    srig_turn(rig);
    const struct op *other = op_of(rig, OP_INSPECT, 2, false);
    for (int call = 0; call < 2; call++) {
        srig_error(rig, 0, "NOPERM no");
        srig_turn(rig);
    }
    ck_assert_uint_gt(other->tries, 0);
}

/* The first operation of a session is given back before it is sent: the next
 * one takes its place, and has a turn with those of other sessions. */
SRIG_TEST(lead_that_leaves, srig_single())
{
    struct op *sent = srig_ops(rig, OP_RELEASE, 0, 8);

    srig_turn(rig);
    struct op *lead = srig_draft(rig, OP_ACQUIRE, 0);
    lead->unwanted = true;
    srig_submit(rig, lead);
    const struct op *next = srig_op(rig, OP_ACQUIRE, 0);
    const struct op *last = srig_op(rig, OP_ACQUIRE, 0);
    (void)op_of(rig, OP_ACQUIRE, 1, false);
    (void)op_of(rig, OP_ACQUIRE, 1, false);
    (void)op_of(rig, OP_ACQUIRE, 2, false);
    srig_expect(rig, 0, "EVALSHA 4");
    srig_expect(rig, 0, "EVALSHA 4");
    srig_results(rig, 0, 4, RECORD_OK);
    srig_turn(rig);
    srig_status(rig, &sent[0], OP_OK);
    srig_status(rig, lead, OP_UNSENT);
    ck_assert_uint_eq(next->tries, 1);
    ck_assert_uint_eq(last->tries, 1); /* before a second one of another */
    store_check(rig->store);
}

/* Releases that no client waits for have a turn of their own: one that a client
 * waits for overtakes them, and they do not wait for ever. */
SRIG_TEST(yielding, srig_single())
{
    unsigned yields = 0;
    struct op *ops[40];

    for (int i = 0; i < 40; i++) {
        ops[i] = srig_draft(rig, OP_RELEASE, 0);
        ops[i]->yields = true;
        srig_submit(rig, ops[i]);
    }
    srig_sends(rig, 0, "EVALSHA 4");
    srig_expect(rig, 0, "EVALSHA 4");
    struct op *asked = srig_ops(rig, OP_RELEASE, 0, 4);
    (void)srig_ops(rig, OP_ACQUIRE, 0, 80);
    (void)take_turn(rig, SCRIPT_RELEASE, 4);
    (void)take_turn(rig, SCRIPT_ACQUIRE, 4);
    (void)take_turn(rig, SCRIPT_ACQUIRE, 4);
    srig_status(rig, asked, OP_OK);
    ck_assert(!srig_done(rig, ops[8]) || !srig_done(rig, ops[12]));
    for (int i = 0; i < 6; i++)
        yields += take_turn(rig, SCRIPT_RELEASE, 4);
    ck_assert_uint_eq(yields, 3);
}

/* Renewals that have waited for a quarter of their time have every second call,
 * however many kinds there are. One that is tried again, with a nearer
 * deadline, is the first. */
SRIG_TEST(renewals_that_press, srig_single())
{
    unsigned renewals = 0;

    for (int i = 0; i < 80; i++) {
        struct op *op = srig_draft(rig, OP_RENEW, 0);
        op->deadline_us = rig->now_us + 20000000;
        if (i >= 76)
            op->deadline_us -= 1000000 * (uint64_t)(i - 70);
        srig_submit(rig, op);
    }
    (void)srig_ops(rig, OP_ACQUIRE, 0, 80);
    (void)srig_ops(rig, OP_RELEASE, 0, 80);
    srig_sends(rig, 0, "EVALSHA 4");  /* releases */
    srig_expect(rig, 0, "EVALSHA 4"); /* and renewals, the nearest first */
    (void)take_turn(rig, SCRIPT_ACQUIRE, 4);
    (void)take_turn(rig, SCRIPT_ACQUIRE, 4);
    for (int i = 76; i < 80; i++)
        ck_assert(srig_done(rig, &rig->ops[i]));
    for (int i = 0; i < 6; i++)
        renewals += take_turn(rig, SCRIPT_RENEW, 4);
    ck_assert_uint_eq(renewals, 2); /* one of three kinds */
    renewals = 0;
    for (int i = 0; i < 76; i++)
        rig->ops[i].deadline_us = rig->now_us + 1000000;
    rig->now_us += 300000;
    (void)take_turn(rig, SCRIPT_RENEW, 4);
    for (int i = 0; i < 6; i++)
        renewals += take_turn(rig, SCRIPT_RENEW, 4);
    ck_assert_uint_ge(renewals, 3);
}

/* When it was sent last, and answered, as the core takes them for SLOW. */
SRIG_TEST(stages, srig_single())
{
    struct op *op = srig_in_flight(rig, 0, 9) + 8;

    srig_pass(rig, 300);
    ck_assert_uint_eq(op->tries, 0);
    ck_assert_uint_eq(op->sent_us, 0);
    srig_results(rig, 0, 4, RECORD_OK);
    srig_sends(rig, 0, "EVALSHA 1");
    ck_assert_uint_eq(op->tries, 1);
    ck_assert_uint_eq(op->sent_us, rig->now_us);
    srig_results(rig, 0, 4, RECORD_OK);
    srig_pass(rig, 200);
    srig_error(rig, 0, "LOADING Redis is loading the dataset in memory");
    ck_assert_uint_eq(op->sent_us, 0); /* it is queued again */
    srig_pass(rig, 100);
    srig_expect(rig, 0, "EVALSHA 1");
    uint64_t sent_us = op->sent_us;
    ck_assert_uint_gt(sent_us, rig->now_us - 100000);
    ck_assert_uint_eq(op->answered_us, 0);
    srig_pass(rig, 50);
    srig_results(rig, 0, 1, RECORD_OK);
    srig_status(rig, op, OP_OK);
    ck_assert_uint_eq(op->tries, 2);
    ck_assert_uint_eq(op->sent_us, sent_us);
    ck_assert_uint_eq(op->answered_us, rig->now_us);
}

/* Nothing was done: what was before it was queued again is no part of that. */
SRIG_TEST(stages_again, srig_single())
{
    static const enum record_status table[] = {
        RECORD_CHANGED, RECORD_LATE, RECORD_GRACE};
    struct op *op = srig_op(rig, OP_ACQUIRE, 0);

    srig_sends(rig, 0, "EVALSHA 1");
    uint64_t sent_us = op->sent_us;
    ck_assert_uint_gt(sent_us, 0);
    srig_pass(rig, 100);
    srig_results(rig, 0, 1, table[_i]);
    ck_assert(!srig_done(rig, op));
    ck_assert_uint_eq(op->sent_us, 0);
    ck_assert_uint_eq(op->answered_us, 0);
    for (int ms = 0; ms < 1000 && srig_next(rig, 0)[0] != 'E'; ms++)
        srig_pass(rig, 1);
    ck_assert_uint_gt(rig->word_count, 0);
    ck_assert_uint_ge(op->sent_us, sent_us + 100000);
    ck_assert_uint_eq(op->answered_us, 0);
    srig_pass(rig, 50);
    srig_results(rig, 0, 1, RECORD_OK);
    srig_status(rig, op, OP_OK);
    ck_assert_uint_eq(op->tries, 2);
    ck_assert_uint_eq(op->answered_us, rig->now_us);
}

SRIG_TEST(result_fields, srig_single())
{
    struct op *op = srig_op(rig, OP_RELEASE, 0);
    char bytes[400];

    srig_turn(rig);
    uint64_t sent_us = rig->now_us;
    srig_expect(rig, 0, "EVALSHA 1");
    srig_pass(rig, 500);
    size_t len = srig_encode(rig, bytes, 1, RECORD_OK);
    bytes[48 + 1] = 1 + 8 + 16; /* handed; beyond the limit; waited for */
    bytes[48 + 2] = 1;          /* grants */
    uint64_t request = 0x0102030405060708;
    const double fence = 31;
    const double arrival = 32;
    memset(bytes + len, 0, BYTES_GRANT);
    memcpy(bytes + len, &request, 8);
    memcpy(bytes + len + 8, &fence, 8);
    memcpy(bytes + len + 16, &arrival, 8);
    bytes[len + 24] = 33;
    bytes[len + 28] = 34;
    bytes[len + 32] = 35;
    srig_bytes(rig, 0, bytes, len + BYTES_GRANT);
    srig_status(rig, op, OP_OK);
    const struct op_result *result = &op->result;
    ck_assert_uint_eq(result->sent_us, sent_us);
    ck_assert(result->handed && result->beyond && result->waited_for);
    ck_assert_uint_eq(result->place, 3);
    ck_assert_uint_eq(result->arrival, 11);
    ck_assert_uint_eq(result->fence, 22);
    ck_assert_uint_eq(result->ttl_ms, 30000);
    ck_assert_uint_eq(result->again_ms, 400);
    ck_assert_uint_eq(result->ahead, 5);
    ck_assert_uint_eq(result->grant_count, 1);
    ck_assert_uint_eq(result->grants[0].request, request);
    ck_assert_uint_eq(result->grants[0].fence, 31);
    ck_assert_uint_eq(result->grants[0].arrival, 32);
    ck_assert_uint_eq(result->grants[0].ttl_ms, 33);
    ck_assert_uint_eq(result->grants[0].place, 34);
    ck_assert_uint_eq(result->grants[0].limit, 35);
    /* The id that the node tells is the one that it is told next time. */
    srig_op(rig, OP_RELEASE, 0);
    srig_sends(rig, 0, "EVALSHA 1");
    ck_assert_mem_eq(rig->words[4].at + 40, "jjjjjjjjjj", 10);
    ck_assert_mem_eq(rig->words[4].at + 4, "broker-1", 8);
    /* Settled, and with any clock; 120,000 ms; then the channel. */
    ck_assert_mem_eq(rig->words[4].at + 80,
        "\0\0\0\0\0\0\0\0\xff\xff\xff\xff\xc0\xd4\x01\0", 16);
    ck_assert(
        text_equal(text_make(rig->words[4].at + 96, rig->words[4].len - 96),
            TEXT("holdfast/broker/")));
}

SRIG_TEST(statuses, srig_single())
{
    static const struct {
        enum record_status record;
        enum op_status status;
    } table[] = {
        {RECORD_OK, OP_OK},
        {RECORD_WAITING, OP_WAITING},
        {RECORD_BUSY, OP_BUSY},
        {RECORD_FULL, OP_FULL},
        {RECORD_GONE, OP_GONE},
        {RECORD_CONFLICT, OP_CONFLICT},
        {RECORD_BROKEN, OP_BROKEN},
        {RECORD_MOVED, OP_MOVED},
        {RECORD_NEWER, OP_REFUSED},
        {RECORD_CORRUPT, OP_REFUSED},
    };

    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
        struct op *op = srig_op(rig, OP_ACQUIRE, 0);
        srig_sends(rig, 0, "EVALSHA 1");
        srig_results(rig, 0, 1, table[i].record);
        srig_status(rig, op, table[i].status);
        ck_assert(op->result.senseless == (table[i].record == RECORD_CORRUPT));
        ck_assert_uint_eq(
            op->result.delay_ms, table[i].status == OP_BUSY ? 30000 : 0);
    }
}

/* Redis took it for too late, by a clock that we know better now. */
SRIG_TEST(late_is_tried_again, srig_single())
{
    struct op *op = srig_op(rig, OP_RENEW, 0);
    unsigned calls = 0;

    srig_sends(rig, 0, "EVALSHA 1");
    srig_results(rig, 0, 1, RECORD_LATE);
    srig_sends(rig, 0, "EVALSHA 1");
    srig_results(rig, 0, 1, RECORD_OK);
    srig_status(rig, op, OP_OK);
    /* For ever too late: given up in the end, and no storm until then. */
    op = srig_op(rig, OP_RENEW, 0);
    while (!srig_done(rig, op) && calls < 1000) {
        srig_pass(rig, 10);
        while (srig_next(rig, 0)[0] == 'E') {
            srig_results(rig, 0, 1, RECORD_LATE);
            calls++;
        }
        if (rig->word_count > 0)
            srig_answer(rig, 0);
    }
    srig_status(rig, op, OP_UNSENT);
    ck_assert_uint_ge(rig->now_us, op->deadline_us);
    ck_assert_uint_lt(calls, 600);
}

/* The holder in the answer of one call is not that of the next call. */
SRIG_TEST(late_and_told, srig_single())
{
    static const char about[] = "\x64\0\0\0\x14\0\0\0\1w\4shop\0";
    struct op *op = srig_op(rig, OP_ACQUIRE, 0);
    char bytes[200];

    srig_sends(rig, 0, "EVALSHA 1");
    size_t len = srig_encode(rig, bytes, 1, RECORD_LATE);
    bytes[8 + RECORD_ID_BYTES + 4] = 16;
    memcpy(bytes + len, about, 16);
    srig_bytes(rig, 0, bytes, len + 16);
    srig_sends(rig, 0, "EVALSHA 1");
    srig_results(rig, 0, 1, RECORD_WAITING);
    srig_status(rig, op, OP_WAITING);
    ck_assert(!op->result.told);
    ck_assert_uint_eq(op->result.holder_client.len, 0);
}

/* The kind and the note of a ticket that was taken over, or no sense. */
SRIG_TEST(taken_over, srig_single())
{
    static const struct {
        const char *about;
        size_t len;
        enum op_status status;
        const char *note;
    } table[] = {

#define KIND                        \
    "\41\2\0\0\0\5\0\0\0\x58\2\0\0" \
    "\x00\x00\x00\xb0\xc4\x5e\x1d\x42" /* a year in ms */
        {KIND, 21, OP_OK, ""},
        {KIND "\1o\4shop\2hi", 31, OP_OK, "hi"},
        {KIND "\0\0\0", 24, OP_OK, ""},
        {KIND, 20, OP_REFUSED, ""},
        {KIND "\1o\4shop\2hi", 30, OP_REFUSED, ""},
        {KIND "\0\0\xff", 24, OP_REFUSED, ""},
#undef KIND
    };
    struct op *op = srig_op(rig, OP_RENEW, 0);
    char bytes[200];

    op->moves = true;
    srig_sends(rig, 0, "EVALSHA 1");
    size_t len = srig_encode(rig, bytes, 1, RECORD_OK);
    bytes[8 + RECORD_ID_BYTES + 4] = (char)table[_i].len;
    memcpy(bytes + len, table[_i].about, table[_i].len);
    srig_bytes(rig, 0, bytes, len + table[_i].len);
    srig_status(rig, op, table[_i].status);
    if (table[_i].status == OP_OK) {
        ck_assert(text_equal(op->result.note, text_from(table[_i].note)));
        ck_assert(op->result.ask.mode == MODE_SHARED && op->result.ask.part);
        ck_assert_uint_eq(op->result.ask.permits, 2);
        ck_assert_uint_eq(op->result.ask.permits_max, 5);
        ck_assert_uint_eq(op->result.ask.delay_ms, 600);
        ck_assert_uint_eq(op->result.ask.hold_ms, 365 * UINT64_C(86400000));
    }
}

/* Of three results the second one says more, which its record has damaged. */
static void
srig_damaged(
    struct srig *rig, enum record_status status, const char *about, size_t len)
{
    char bytes[300];
    const size_t second = 48 + 38;

    (void)srig_encode(rig, bytes, 2, RECORD_OK);
    bytes[second] = (char)status;
    bytes[second + 4] = (char)len;
    memcpy(bytes + second + 38, about, len);
    memcpy(bytes + second + 38 + len, bytes + 48, 38);
    srig_bytes(rig, 0, bytes, second + 38 + len + 38);
}

/* A damaged record concerns no other lock. */
SRIG_TEST(damaged_words, srig_single())
{
    static const char about[] = "\x64\0\0\0\x14\0\0\0\1w\x44shop\0";
    static const char kind[] = "\0\1\0\0\0\0\0\0\0\0\0\0\0"
                               "\0\0\0\0\0\0\0\0\1o\4shop\3hi";
    struct op *ops[6];

    for (int i = 0; i < 6; i++) {
        ops[i] = srig_op(rig, i < 3 ? OP_ACQUIRE : OP_RENEW, 0);
        ops[i]->tell = i < 3;
        ops[i]->moves = i >= 3;
    }
    srig_sends(rig, 0, "EVALSHA 3");
    srig_expect(rig, 0, "EVALSHA 3");
    srig_damaged(rig, RECORD_OK, kind, sizeof(kind) - 1);
    srig_status(rig, ops[3], OP_OK);
    srig_status(rig, ops[4], OP_REFUSED);
    srig_status(rig, ops[5], OP_OK);
    srig_damaged(rig, RECORD_BUSY, about, sizeof(about) - 1);
    srig_status(rig, ops[0], OP_OK);
    srig_status(rig, ops[1], OP_BUSY);
    srig_status(rig, ops[2], OP_OK);
    ck_assert(ops[1]->result.told);
    ck_assert_uint_eq(ops[1]->result.holder_age_ms, 20);
    ck_assert_uint_eq(ops[1]->result.holder_owner.len, 0);
    ck_assert_uint_eq(ops[1]->result.holder_client.len, 0);
    ck_assert_uint_eq(ops[1]->result.holder_note.len, 0);
}

/* A message to another broker is no script call, and its number no result. */
SRIG_TEST(messages, srig_single())
{
    struct op *op = srig_op(rig, OP_PUBLISH, 0);

    srig_sends(rig, 0, "PUBLISH holdfast/broker/broker-2 a message");
    srig_answer(rig, 0);
    srig_status(rig, op, OP_OK);
    /* Refused, for ever or for now; answered with what it cannot be. */
    op = srig_op(rig, OP_PUBLISH, 0);
    srig_sends(rig, 0, "PUBLISH holdfast/broker/broker-2 a message");
    srig_error(rig, 0, "ERR what");
    srig_status(rig, op, OP_REFUSED);
    op = srig_op(rig, OP_PUBLISH, 0);
    srig_turn(rig);
    (void)srig_next(rig, 0);
    srig_error(rig, 0, "LOADING x");
    srig_pass(rig, 80);
    srig_expect(rig, 0, "PUBLISH holdfast/broker/broker-2 a message");
    srig_reply(rig, 0, &(struct resp){.type = RESP_STATUS});
    srig_status(rig, op, OP_REFUSED);
    /* It goes last, and a script's answer is not its own. */
    op = srig_op(rig, OP_PUBLISH, 0);
    struct op *release = srig_op(rig, OP_RELEASE, 0);
    srig_sends(rig, 0, "EVALSHA 1");
    srig_expect(rig, 0, "PUBLISH holdfast/broker/broker-2 a message");
    srig_reply(rig, 0, &(struct resp){.type = RESP_INTEGER});
    srig_status(rig, release, OP_REFUSED);
    srig_lose(rig, 0);
    srig_status(rig, op, OP_UNKNOWN);
}

SRIG_TEST(noscript_loads_once, srig_single())
{
    struct op *ops[6];

    for (int i = 0; i < 6; i++) {
        ops[i] = srig_op(rig, OP_ACQUIRE, 0);
        ops[i]->request = (uint64_t)i + 1;
    }
    srig_sends(rig, 0, "EVALSHA 4");
    srig_expect(rig, 0, "EVALSHA 2");
    srig_error(rig, 0, "NOSCRIPT No matching script. Please use EVAL.");
    srig_error(rig, 0, "NOSCRIPT No matching script. Please use EVAL.");
    ck_assert_uint_eq(rig->done_count, 0);
    srig_turn(rig);
    for (int i = 0; i < SCRIPTS_AT_ONCE; i++) {
        srig_expect(rig, 0, "LOAD");
        srig_answer(rig, 0);
    }
    srig_expect(rig, 0, "EVALSHA 4");
    srig_results(rig, 0, 4, RECORD_OK);
    srig_expect(rig, 0, "EVALSHA 2");
    srig_results(rig, 0, 2, RECORD_OK);
    srig_expect(rig, 0, "");
    for (int i = 0; i < 6; i++)
        srig_status(rig, ops[i], OP_OK);
    ck_assert_uint_eq(srig_count(rig, COUNTER_redis_noscript), 6);
}

/* The first to ask is first in the queue, also after an error. */
SRIG_TEST(order_is_kept, srig_single())
{
    for (int i = 0; i < 4; i++)
        srig_op(rig, OP_ACQUIRE, 0);
    srig_sends(rig, 0, "EVALSHA 4");
    srig_error(rig, 0, "NOSCRIPT No matching script. Please use EVAL.");
    srig_turn(rig);
    while (strcmp(srig_next(rig, 0), "LOAD") == 0)
        srig_answer(rig, 0);
    ck_assert_uint_eq(rig->word_count, 12);
    for (unsigned i = 0; i < 4; i++)
        ck_assert_int_eq(rig->words[8 + i].at[28], (char)(i + 1));
}

static const char *const later[] = {
    "LOADING Redis is loading the dataset in memory",
    "CLUSTERDOWN The cluster is down",
    "BUSY Redis is busy running a script.",
    "MASTERDOWN Link with MASTER is down",
    "OOM command not allowed when used memory > 'maxmemory'.",
    "NOREPLICAS Not enough good replicas to write.",
    "MISCONF Redis is configured to save RDB snapshots",
    "NOAUTH Authentication required.",
    "NOPERM this user has no permissions",
};

/* Unwanted operations are not sent. */
SRIG_TEST(unwanted, srig_single())
{
    struct op *ops = srig_ops(rig, OP_RENEW, 0, 5);

    ops[0].unwanted = ops[2].unwanted = ops[4].unwanted = true;
    srig_sends(rig, 0, "EVALSHA 2");
    srig_expect(rig, 0, "");
    srig_status(rig, &ops[0], OP_UNSENT);
    srig_status(rig, &ops[2], OP_UNSENT);
    srig_status(rig, &ops[4], OP_UNSENT);
    srig_results(rig, 0, 2, RECORD_OK);
    srig_status(rig, &ops[1], OP_OK);
    srig_status(rig, &ops[3], OP_OK);
}

/* Redis may run a call until its time-out. A hold that an earlier question may
 * have got can be over by then: an acquire and a renewal say so. */
SRIG_TEST(overdue, srig_single())
{
    uint64_t soon_us = rig->now_us + rig->settings.command_timeout_us;
    struct op *ops = srig_ops(rig, OP_RENEW, 0, 2);
    struct op *asks[3];

    ops[0].over_us = soon_us;
    ops[1].over_us = soon_us - 1;
    for (uint64_t i = 0; i < 3; i++) {
        asks[i] = srig_op(rig, OP_ACQUIRE, 0);
        asks[i]->retry = i < 2;
        asks[i]->over_us = soon_us - i;
    }
    srig_sends(rig, 0, "EVALSHA 2");
    ck_assert_int_eq(rig->words[6].at[57], 0);
    ck_assert_int_eq(rig->words[6].at[90 + 57], 512 >> 8);
    ck_assert_uint_eq(rig->words[6].len, 2 * 90);
    srig_expect(rig, 0, "EVALSHA 3");
    ck_assert_int_eq(rig->words[7].at[36], 1);
    ck_assert_int_eq(rig->words[8].at[36], 1 | 32);
    ck_assert_int_eq(rig->words[9].at[36], 0);
    srig_results(rig, 0, 2, RECORD_OK);
    srig_status(rig, &ops[1], OP_OK);
    srig_results(rig, 0, 3, RECORD_OK);
}

/* Operations that nobody waits for any more. A sent one is waited for, one that
 * can be sent soon is sent, and all others are given back at once. */
SRIG_TEST(hurried, srig_single())
{
    struct op *ops = srig_in_flight(rig, 0, 12);
    uint64_t begun_us = rig->now_us;

    srig_hurry(rig, &ops[0]);
    srig_hurry(rig, &ops[8]);
    srig_hurry(rig, &ops[8]);
    srig_turn(rig);
    ck_assert_uint_eq(rig->done_count, 0);
    srig_results(rig, 0, 4, RECORD_OK);
    srig_statuses(rig, ops, 0, 4, OP_OK);
    srig_sends(rig, 0, "EVALSHA 4");
    srig_results(rig, 0, 4, RECORD_OK);
    srig_results(rig, 0, 4, RECORD_OK);
    srig_statuses(rig, ops, 4, 12, OP_OK);
    /* They wait at a node that is lost then, or that cannot be asked. */
    ops = srig_in_flight(rig, 0, 11);
    srig_hurry(rig, &ops[8]);
    srig_lose(rig, 0);
    srig_pass(rig, 1000);
    ck_assert(!srig_done(rig, &ops[8]));
    srig_pass(rig, 200); /* connecting anew fails by then */
    srig_status(rig, &ops[8], OP_UNSENT);
    ck_assert(!srig_done(rig, &ops[9]));
    srig_hurry(rig, &ops[9]);
    srig_pass(rig, 3);
    srig_status(rig, &ops[9], OP_UNSENT);
    struct op *op = srig_op(rig, OP_ACQUIRE, 0);
    srig_hurry(rig, op);
    srig_pass(rig, 3);
    srig_status(rig, op, OP_UNSENT);
    ck_assert(!srig_done(rig, &ops[10]));
    ck_assert_uint_le(rig->now_us, begun_us + 1210000);
}

static unsigned refusals;

static void
count_refusals(enum log_level level, const char *line, size_t len)
{
    (void)level;
    (void)len;
    refusals += strstr(line, "event=redis_refuses_for_now "
                             "node=10.0.0.1:7000 reason=") != NULL;
}

/* The next call of operations; before it the broker looks whether grants are
 * refused still, and they are. */
static bool
next_call(struct srig *rig, const char *error)
{
    for (;;) {
        const char *command = srig_next(rig, 0);
        if (command[0] == '\0' || strcmp(command, "EVALSHA 1") == 0)
            return command[0] != '\0';
        if (command[0] == 'E' || command[0] == 'S')
            srig_error(rig, 0, error);
        else
            srig_answer(rig, 0);
    }
}

/* One call, which is done a moment later. */
static void
refuses(struct srig *rig, const char *error)
{
    struct op *op = srig_op(rig, OP_ACQUIRE, 0);

    srig_turn(rig);
    ck_assert(next_call(rig, error));
    srig_error(rig, 0, error);
    srig_turn(rig);
    ck_assert(!store_health(rig->store)->ready);
    srig_pass(rig, 80);
    ck_assert(next_call(rig, error));
    srig_results(rig, 0, 1, RECORD_OK);
    srig_status(rig, op, OP_OK);
    srig_turn(rig);
    ck_assert(store_health(rig->store)->ready);
}

/* Nothing ran: asked again after a pause, until its time is over. The log says
 * so, once a minute. */
SRIG_TEST(refused_for_now, srig_single())
{
    struct op *op = srig_op(rig, OP_RENEW, 0);
    unsigned calls = 0;

    refusals = 0;
    log_init(count_refusals, LOG_WARN);
    while (!srig_done(rig, op)) {
        srig_turn(rig);
        for (; next_call(rig, later[_i]); calls++)
            srig_error(rig, 0, later[_i]);
        srig_pass(rig, 5);
        ck_assert_uint_le(rig->now_us, op->deadline_us + 10000);
    }
    srig_status(rig, op, OP_UNSENT);
    ck_assert_uint_ge(rig->now_us, op->deadline_us);
    ck_assert_uint_ge(calls, 40);
    ck_assert_uint_le(calls, 110);
    ck_assert_uint_eq(refusals, 1);
    /* And where Redis is well again before that, it is done. */
    refuses(rig, later[_i]);
    ck_assert_uint_eq(refusals, 1);
    refuses(rig, later[_i == 0]);
    ck_assert_uint_eq(refusals, 2);
    refuses(rig, later[_i]);
    ck_assert_uint_eq(refusals, 3);
    rig->store->conns[0].fault.told_us = rig->now_us - 59000000;
    refuses(rig, later[_i]);
    ck_assert_uint_eq(refusals, 3);
    rig->store->conns[0].fault.told_us = rig->now_us - 60000000;
    refuses(rig, later[_i]);
    ck_assert_uint_eq(refusals, 4);
    log_init(NULL, LOG_ERROR);
}

/* Of one code, too. */
SRIG_TEST(refused_for_another_reason, srig_single())
{
    static const char *const errors[] = {
        "NOPERM this user has no permissions to run the 'evalsha' command",
        "NOPERM this user has no permissions to access one of the keys used as "
        "arguments"};

    refusals = 0;
    log_init(count_refusals, LOG_WARN);
    for (unsigned i = 0; i < 4; i++) {
        refuses(rig, errors[i / 2]);
        ck_assert_uint_eq(refusals, 1 + i / 2);
    }
    log_init(NULL, LOG_ERROR);
}

/* A parked operation goes out in the turn in which its time has come. */
SRIG_TEST(parked_goes_in_its_turn, srig_single())
{
    (void)srig_op(rig, OP_RENEW, 0);
    srig_sends(rig, 0, "EVALSHA 1");
    srig_error(rig, 0, later[0]);
    rig->now_us += 200000;
    ck_assert_uint_le(store_next_us(rig->store), rig->now_us);
    srig_sends(rig, 0, "EVALSHA 1");
}

/* An error in a batch may be of one of them: each goes alone. */
SRIG_TEST(error_splits_the_batch, srig_single())
{
    struct op *ops[3];

    for (int i = 0; i < 3; i++)
        ops[i] = srig_op(rig, OP_ACQUIRE, 0);
    srig_sends(rig, 0, "EVALSHA 3");
    srig_error(rig, 0, "ERR user_script:1: what");
    srig_sends(rig, 0, "EVALSHA 1");
    /* It may have run already, which is said. */
    ck_assert_int_eq(rig->words[5].at[36], 1);
    srig_expect(rig, 0, "EVALSHA 1");
    srig_results(rig, 0, 1, RECORD_OK);
    srig_error(rig, 0, "ERR user_script:1: what");
    srig_status(rig, ops[0], OP_OK);
    srig_status(rig, ops[1], OP_REFUSED);
    ck_assert(!ops[1]->result.senseless); /* that is not known of it */
    srig_sends(rig, 0, "EVALSHA 1");
    /* An operation that may have run is not "unsent" when it is given up. */
    for (int i = 0; i < 2000 && !srig_done(rig, ops[2]); i++) {
        srig_error(rig, 0, "LOADING Redis is loading the dataset");
        while (!srig_done(rig, ops[2]) && srig_next(rig, 0)[0] != 'E') {
            if (rig->word_count > 0)
                srig_answer(rig, 0);
            srig_pass(rig, 10);
        }
    }
    srig_status(rig, ops[2], OP_UNKNOWN);
}

SRIG_TEST(garbage, srig_single())
{
    char bytes[600];
    const struct resp replies[] = {
        {.type = RESP_NIL},
        {.type = RESP_INTEGER, .integer = 3},
        {.type = RESP_ARRAY},
        {.type = RESP_STATUS, .text = TEXT("OK")},
        {.type = RESP_STRING, .text = TEXT("")},
    };

    for (size_t i = 0; i < sizeof(replies) / sizeof(replies[0]); i++) {
        struct op *op = srig_op(rig, OP_ACQUIRE, 0);
        srig_sends(rig, 0, "EVALSHA 1");
        srig_reply(rig, 0, &replies[i]);
        srig_status(rig, op, OP_REFUSED);
    }
    /* Cut off anywhere: what came before it counts. */
    size_t whole = srig_encode(rig, bytes, 2, RECORD_OK);
    for (size_t len = 0; len < whole; len++) {
        struct op *one = srig_op(rig, OP_RENEW, 0);
        struct op *two = srig_op(rig, OP_RENEW, 0);
        srig_sends(rig, 0, "EVALSHA 2");
        srig_bytes(rig, 0, bytes, len);
        srig_status(rig, one, len < 48 + 38 ? OP_REFUSED : OP_OK);
        srig_status(rig, two, OP_REFUSED);
    }
    /* A status that there is not; grants that are not there. */
    struct op *op = srig_op(rig, OP_RENEW, 0);
    srig_sends(rig, 0, "EVALSHA 1");
    bytes[48] = RECORD_GRACE + 1;
    srig_bytes(rig, 0, bytes, whole);
    srig_status(rig, op, OP_REFUSED);
    op = srig_op(rig, OP_RENEW, 0);
    srig_sends(rig, 0, "EVALSHA 1");
    bytes[48] = 0;
    bytes[48 + 3] = (char)0xff;
    srig_bytes(rig, 0, bytes, whole);
    srig_status(rig, op, OP_REFUSED);
}

SRIG_TEST(random_bytes, srig_single())
{
    static const enum op_kind kinds[] = {
        OP_ACQUIRE, OP_RELEASE, OP_RENEW, OP_LOOK, OP_INSPECT, OP_BREAK};
    struct random random;
    char bytes[700];

    seed_random(&random, "store_call");
    for (unsigned i = 0; i < GARBAGE; i++) {
        rig->op_count = 0;
        memset(rig->done, 0, sizeof(rig->done));
        struct op *op = srig_op(rig, kinds[i % 6], 0);
        srig_turn(rig);
        if (srig_next(rig, 0)[0] != 'E')
            ck_abort();
        size_t len = random_below(&random, sizeof(bytes));
        for (size_t at = 0; at < len; at++)
            bytes[at] = (char)random_next(&random);
        /* Half of them begin well. */
        if (i % 2 == 0) {
            (void)srig_encode(
                rig, bytes, 1 + (unsigned)random_below(&random, 4), RECORD_OK);
            for (int flip = 0; flip < 6; flip++)
                bytes[random_below(&random, 120)] =
                    (char)random_below(&random, 4);
        }
        srig_bytes(rig, 0, bytes, len);
        rig->now_us += 100;
        while (!srig_done(rig, op)) {
            /* Taken for too late. */
            srig_pass(rig, 20);
            while (srig_next(rig, 0)[0] != '\0')
                if (rig->words[0].at[0] == 'E')
                    srig_results(rig, 0, 1, RECORD_GONE);
                else
                    srig_answer(rig, 0);
        }
    }
}

/* The reply of inspect.lua, and a record that it should not show. */
SRIG_TEST(inspect, srig_single())
{
    struct op *op = srig_op(rig, OP_INSPECT, 0);
    char bytes[800];
    double number;

    srig_op(rig, OP_INSPECT, 0);
    srig_sends(rig, 0, "EVALSHA 1");
    srig_expect(rig, 0, "EVALSHA 1");
    memset(bytes, 0, sizeof(bytes));
    size_t at = srig_encode(rig, bytes, 1, RECORD_OK);
    bytes[at] = 2;
    char *head = bytes + at + BYTES_INSPECTED;
    head[AT_HEAD_WIDTH] = BYTES_TICKET + 8;
    head[AT_HEAD_LIVE] = 2;
    head[AT_HEAD_GRANTED] = 1;
    char *one = head + BYTES_HEAD;
    char *two = one + BYTES_TICKET + 8;
    one[AT_TICKET_FLAGS] = 7;
    one[AT_TICKET_WORDS] = 5;
    memcpy(one + BYTES_TICKET, "\1o\0\1n", 5);
    uint64_t end_ms = 1700000000000u + rig->now_us / 1000 + 500;
    number = (double)end_ms;
    memcpy(one + AT_TICKET_ENDS, &number, 8);
    memcpy(one + AT_TICKET_BROKER, "broker-2", 8);
    two[AT_TICKET_FLAGS] = 1;
    memcpy(two + AT_TICKET_ENDS, &number, 8);
    size_t len = (size_t)(two + BYTES_TICKET + 8 - bytes);
    srig_bytes(rig, 0, bytes, len);
    srig_status(rig, op, OP_OK);
    ck_assert_uint_eq(op->result.holders, 1);
    ck_assert_uint_eq(op->result.waiters, 1);
    ck_assert_uint_eq(op->result.ticket_count, 2);
    const struct op_ticket *tickets = op->result.tickets;
    ck_assert(tickets[0].granted && !tickets[1].granted);
    ck_assert_uint_eq(tickets[0].ttl_ms, 500);
    ck_assert_str_eq(tickets[0].broker, "broker-2");
    ck_assert(text_equal(tickets[0].owner, TEXT("o")));
    ck_assert(text_equal(tickets[0].client, TEXT("")));
    ck_assert(text_equal(tickets[0].note, TEXT("n")));
    /* The words are longer than they are; cut off; a width of nothing. */
    one[BYTES_TICKET] = 40;
    log_keep(LOG_ERROR);
    srig_bytes(rig, 0, bytes, len);
    ck_assert_ptr_nonnull(strstr(log_kept(), "event=redis_record_refused "));
    ck_assert_ptr_nonnull(strstr(log_kept(), " lock=\"name\" why=record"));
    srig_status(rig, op + 1, OP_REFUSED);
    ck_assert(op[1].result.senseless);
    one[BYTES_TICKET] = 1;
    for (int wrong = 0; wrong < 4; wrong++) {
        op = srig_op(rig, OP_INSPECT, 0);
        srig_sends(rig, 0, "EVALSHA 1");
        head[AT_HEAD_WIDTH] = (char)(BYTES_TICKET + (wrong == 0 ? -1 : 8));
        head[AT_HEAD_GRANTED] = wrong == 1 ? 3 : 1;
        one[AT_TICKET_WORDS] = wrong == 2 ? 9 : 5;
        srig_bytes(rig, 0, bytes, wrong == 3 ? len - 1 : len);
        srig_status(rig, op, OP_REFUSED);
        ck_assert(op->result.senseless == (wrong != 3));
        ck_assert_uint_eq(op->result.ticket_count, 0);
    }
    /* A holder whose lease is over is none; but where its end is in doubt. */
    number = 5;
    memcpy(one + AT_TICKET_ENDS, &number, 8);
    for (uint32_t doubt = 0; doubt < 2; doubt++) {
        op = srig_op(rig, OP_INSPECT, 0);
        srig_sends(rig, 0, "EVALSHA 1");
        memset(bytes + BYTES_REPLY + AT_RESULT_AGAIN, 0, 4);
        bytes[BYTES_REPLY + AT_RESULT_AGAIN] = (char)doubt;
        srig_bytes(rig, 0, bytes, len);
        srig_status(rig, op, OP_OK);
        ck_assert_uint_eq(op->result.holders, doubt);
        ck_assert_uint_eq(op->result.ticket_count, 1 + doubt);
    }
}

/* The end of a lease=; its length, while its grant is not claimed. */
static const struct lease_shown_row {
    unsigned flags;
    bool from_now;
    double hold;
    bool leased;
    uint64_t lease_ms;
} lease_shown_rows[] = {
    {7, false, 0, false, 0},
    {7, true, 900, true, 900},
    {7, true, -5, true, 0},
    {3, false, 5000, true, 5000},
    {1, false, 5000, false, 0},
};

SRIG_TEST(lease_shown, srig_single())
{
    const struct lease_shown_row *row = &lease_shown_rows[_i];
    const struct op *op = srig_op(rig, OP_INSPECT, 0);
    const double ends = 4e12;
    char bytes[600] = {0};

    srig_sends(rig, 0, "EVALSHA 1");
    size_t at = srig_encode(rig, bytes, 1, RECORD_OK);
    char *head = bytes + at + BYTES_INSPECTED;
    char *ticket = head + BYTES_HEAD;
    bytes[at] = 1;
    head[AT_HEAD_WIDTH] = BYTES_TICKET;
    head[AT_HEAD_LIVE] = 1;
    head[AT_HEAD_GRANTED] = row->flags > 1;
    ticket[AT_TICKET_FLAGS] = (char)row->flags;
    memcpy(ticket + AT_TICKET_ENDS, &ends, 8);
    const uint64_t now_ms = srig_time_us(rig) / 1000;
    const double hold = row->hold + (row->from_now ? (double)now_ms : 0);
    memcpy(ticket + AT_TICKET_HOLD, &hold, 8);
    srig_bytes(rig, 0, bytes, (size_t)(ticket + BYTES_TICKET - bytes));
    srig_status(rig, op, OP_OK);
    ck_assert_uint_eq(op->result.ticket_count, 1);
    ck_assert(op->result.tickets[0].leased == row->leased);
    ck_assert_uint_eq(op->result.tickets[0].lease_ms, row->lease_ms);
}

/* In the head of version 3 the limit has the counts of intentions. */
static const struct mode_shown_row {
    int byte; /* of the ticket */
    int version;
    int flags; /* of the head */
    uint32_t head_limit;
    enum mode mode;
    bool part;
    enum mode head_mode;
    uint32_t limit;
} mode_shown_rows[] = {
    {0, 1, 0, 0, MODE_EXCLUSIVE, false, MODE_EXCLUSIVE, 0},
    {1, 1, 1, 0, MODE_SHARED, false, MODE_SHARED, 0},
    {4, 2, 65, 0, MODE_UPGRADABLE, false, MODE_UPGRADABLE, 0},
    {8, 2, 1, 0, MODE_UPGRADE, false, MODE_UPGRADE, 0},
    {16, 3, 0, 65536, MODE_INTENT, false, MODE_INTENT, 0},
    {17, 3, 0, 65537, MODE_INTENT_SHARED, false, MODE_INTENT, 0},
    {17, 3, 0, 2, MODE_INTENT_SHARED, false, MODE_INTENT_SHARED, 0},
    {17, 3, 1, 1, MODE_INTENT_SHARED, false, MODE_SHARED, 0},
    {4, 3, 64, 1, MODE_UPGRADABLE, false, MODE_UPGRADABLE, 0},
    {32, 1, 0, 0, MODE_EXCLUSIVE, true, MODE_EXCLUSIVE, 0},
    {33, 1, 1, 0, MODE_SHARED, true, MODE_SHARED, 0},
    {0, 1, 0, 7, MODE_EXCLUSIVE, false, MODE_EXCLUSIVE, 7},
    {0x98, 1, 0, 0, MODE_EXCLUSIVE, false, MODE_EXCLUSIVE, 0},
};

SRIG_TEST(mode_shown, srig_single())
{
    const struct mode_shown_row *row = &mode_shown_rows[_i];
    const struct op *op = srig_op(rig, OP_INSPECT, 0);
    const double ends = 4e12;
    char bytes[600] = {0};

    srig_sends(rig, 0, "EVALSHA 1");
    size_t at = srig_encode(rig, bytes, 1, RECORD_OK);
    char *head = bytes + at + BYTES_INSPECTED;
    char *ticket = head + BYTES_HEAD;
    bytes[at] = 1;
    head[AT_HEAD_VERSION] = (char)row->version;
    head[AT_HEAD_FLAGS] = (char)row->flags;
    head[AT_HEAD_WIDTH] = BYTES_TICKET;
    head[AT_HEAD_LIVE] = head[AT_HEAD_GRANTED] = 1;
    memcpy(head + AT_HEAD_LIMIT, &row->head_limit, 4);
    ticket[AT_TICKET_FLAGS] = 7;
    ticket[AT_TICKET_MODE] = (char)row->byte;
    memcpy(ticket + AT_TICKET_ENDS, &ends, 8);
    srig_bytes(rig, 0, bytes, (size_t)(ticket + BYTES_TICKET - bytes));
    srig_status(rig, op, OP_OK);
    ck_assert_int_eq(op->result.tickets[0].mode, row->mode);
    ck_assert(op->result.tickets[0].part == row->part);
    ck_assert_uint_eq(op->result.tickets[0].owner_hash[0],
        row->mode == MODE_UPGRADE ? OWNER_UPGRADE : 0);
    ck_assert_int_eq(op->result.mode, row->head_mode);
    ck_assert_uint_eq(op->result.limit, row->limit);
}

/* A hold is not as old as a clock says that was set forward since. */
SRIG_TEST(inspected_age, srig_single())
{
    uint64_t since_us = srig_time_us(rig) - UINT64_C(7200000000);
    struct conn *conn = &rig->store->conns[0];
    char bytes[600];

    for (int i = 0; i < 2; i++) {
        const struct op *op = srig_op(rig, OP_INSPECT, 0);
        const double since = (double)since_us;
        const double ends = 4e12;
        srig_sends(rig, 0, "EVALSHA 1");
        memset(bytes, 0, sizeof(bytes));
        size_t at = srig_encode(rig, bytes, 1, RECORD_OK);
        char *head = bytes + at + BYTES_INSPECTED;
        char *ticket = head + BYTES_HEAD;
        bytes[at] = 1;
        head[AT_HEAD_WIDTH] = BYTES_TICKET;
        head[AT_HEAD_LIVE] = head[AT_HEAD_GRANTED] = 1;
        ticket[AT_TICKET_FLAGS] = 7;
        memcpy(ticket + AT_TICKET_ENDS, &ends, 8);
        memcpy(ticket + AT_TICKET_SINCE, &since, 8);
        srig_bytes(rig, 0, bytes, (size_t)(ticket + BYTES_TICKET - bytes));
        srig_status(rig, op, OP_OK);
        ck_assert_uint_eq(op->result.ticket_count, 1);
        ck_assert_uint_eq(
            op->result.tickets[0].age_ms, i == 0 ? 7200000 : 3600000);
        conn->clock.rose_at_us = srig_time_us(rig);
        conn->clock.risen_us = UINT64_C(3600000000);
    }
}

Suite *
store_call_suite(void)
{
    Suite *suite = suite_create("store_call");
    TCase *tests = tcase_create("store_call");

    tcase_set_timeout(tests, 120);
    tcase_add_test(tests, batches);
    tcase_add_test(tests, turns);
    tcase_add_loop_test(tests, turns_of_sessions, 0, 5);
    tcase_add_loop_test(tests, bulk, 0, 3);
    tcase_add_test(tests, turns_of_readers);
    tcase_add_test(tests, lead_that_leaves);
    tcase_add_test(tests, yielding);
    tcase_add_test(tests, renewals_that_press);
    tcase_add_test(tests, stages);
    tcase_add_loop_test(tests, stages_again, 0, 3);
    tcase_add_test(tests, result_fields);
    tcase_add_test(tests, statuses);
    tcase_add_test(tests, late_is_tried_again);
    tcase_add_test(tests, late_and_told);
    tcase_add_loop_test(tests, taken_over, 0, 6);
    tcase_add_test(tests, damaged_words);
    tcase_add_test(tests, messages);
    tcase_add_test(tests, noscript_loads_once);
    tcase_add_test(tests, order_is_kept);
    tcase_add_test(tests, unwanted);
    tcase_add_test(tests, overdue);
    tcase_add_test(tests, hurried);
    tcase_add_loop_test(
        tests, refused_for_now, 0, sizeof(later) / sizeof(later[0]));
    tcase_add_test(tests, refused_for_another_reason);
    tcase_add_test(tests, parked_goes_in_its_turn);
    tcase_add_test(tests, error_splits_the_batch);
    tcase_add_test(tests, garbage);
    tcase_add_test(tests, random_bytes);
    tcase_add_test(tests, inspect);
    tcase_add_test(tests, inspected_age);
    tcase_add_loop_test(tests, mode_shown, 0, ROWS(mode_shown_rows));
    tcase_add_loop_test(tests, lease_shown, 0, ROWS(lease_shown_rows));
    suite_add_tcase(suite, tests);
    return suite;
}

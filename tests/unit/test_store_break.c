/*
 * Tests of daemon/store: the order to break a lock, from its call to its
 * outcome, and what Redis publishes to brokers.
 */
#include "tests/unit/store_rig.h"

#include <math.h>
#include <string.h>

Suite *store_break_suite(void);

/* The next command but those that ask for the map, which are answered. */
static void
expect_call(struct srig *rig, uint32_t link)
{
    while (srig_next(rig, link)[0] == 'C')
        srig_answer(rig, link);
    ck_assert_uint_eq(rig->word_count, 6);
    ck_assert(
        text_equal(rig->words[1], text_make(scripts[SCRIPT_BREAK].sha1, 40)));
}

/* An order for slot 7, which is on its way to the first node. */
static struct op *
ordered(struct srig *rig)
{
    struct op *op = srig_op(rig, OP_BREAK, 7);

    srig_turn(rig);
    expect_call(rig, 0);
    return op;
}

/* A script with one operation. */
static void
expect_script(struct srig *rig, enum script_id script)
{
    srig_expect(rig, 0, "EVALSHA 1");
    ck_assert(text_equal(rig->words[1], text_make(scripts[script].sha1, 40)));
}

static void
expect_fence(const struct srig *rig, double wanted)
{
    double fence = -1;

    ck_assert_uint_eq(rig->words[5].len, sizeof(fence));
    memcpy(&fence, rig->words[5].at, sizeof(fence));
    ck_assert_double_eq(fence, wanted);
}

/* Each goes alone and is the first in turn, with a header and the fence. */
SRIG_TEST(call, srig_single())
{
    struct op *release = srig_op(rig, OP_RELEASE, 0);
    struct op *first = srig_op(rig, OP_BREAK, 0);
    struct op *second = srig_op(rig, OP_BREAK, 0);

    second->fence = 9007199254740991;
    srig_turn(rig);
    expect_script(rig, SCRIPT_BREAK);
    ck_assert(text_equal(rig->words[3], TEXT("holdfast:{name}")));
    ck_assert_mem_eq(rig->words[4].at + 4, "broker-1", 8);
    expect_fence(rig, 0);
    expect_script(rig, SCRIPT_RELEASE);
    srig_expect(rig, 0, "");
    srig_results(rig, 0, 1, RECORD_OK);
    srig_status(rig, first, OP_OK);
    ck_assert_uint_eq(first->result.ahead, 5);
    srig_results(rig, 0, 1, RECORD_OK);
    srig_status(rig, release, OP_OK);
    srig_turn(rig);
    expect_script(rig, SCRIPT_BREAK);
    expect_fence(rig, 9007199254740991.0);
    srig_results(rig, 0, 1, RECORD_GONE);
    srig_status(rig, second, OP_GONE);
}

/* An error of the script, or no answer of it: OP_REFUSED. */
SRIG_TEST(answers, srig_cluster())
{
    static const struct resp odd[] = {
        {.type = RESP_NIL},
        {.type = RESP_INTEGER, .integer = 1},
        {.type = RESP_ARRAY},
        {.type = RESP_STATUS, .text = TEXT("OK")},
        {.type = RESP_STRING, .text = TEXT("")},
        {.type = RESP_ERROR, .text = TEXT("ERR user_script:1: what")},
    };
    char bytes[200];

    for (size_t i = 0; i < sizeof(odd) / sizeof(odd[0]); i++) {
        struct op *op = ordered(rig);
        srig_reply(rig, 0, &odd[i]);
        srig_status(rig, op, OP_REFUSED);
    }
    struct op *op = ordered(rig);
    srig_results(rig, 0, 1, RECORD_CORRUPT);
    srig_status(rig, op, OP_REFUSED);
    size_t whole = srig_encode(rig, bytes, 1, RECORD_OK);
    for (size_t len = 0; len < whole; len++) {
        op = ordered(rig);
        srig_bytes(rig, 0, bytes, len);
        srig_status(rig, op, OP_REFUSED);
        ck_assert_uint_eq(op->result.ahead, 0);
    }
    op = ordered(rig);
    srig_bytes(rig, 0, bytes, whole);
    srig_status(rig, op, OP_OK);
    ck_assert_uint_eq(srig_count(rig, COUNTER_redis_errors),
        sizeof(odd) / sizeof(odd[0]) + whole);
}

/* The slot is elsewhere, for ever or for now; its script is not there yet. */
SRIG_TEST(redirects, srig_cluster())
{
    struct op *op = ordered(rig);

    op->fence = 3;
    srig_error(rig, 0, "ASK 7 10.0.0.1:7001");
    srig_sends(rig, 1, "ASKING");
    srig_answer(rig, 1);
    expect_call(rig, 1);
    double fence = 0;
    memcpy(&fence, rig->words[5].at, sizeof(fence));
    ck_assert_double_eq(fence, 3);
    srig_error(rig, 1, "TRYAGAIN Multiple keys request during rehashing");
    srig_pass(rig, 50);
    expect_call(rig, 0);
    srig_error(rig, 0, "MOVED 7 10.0.0.1:7002");
    srig_turn(rig);
    expect_call(rig, 2);
    srig_error(rig, 2, "NOSCRIPT No matching script. Please use EVAL.");
    srig_turn(rig);
    while (strcmp(srig_next(rig, 2), "LOAD") == 0)
        srig_answer(rig, 2);
    ck_assert_uint_eq(rig->word_count, 6);
    ck_assert(!srig_done(rig, op));
    srig_results(rig, 2, 1, RECORD_OK);
    srig_status(rig, op, OP_OK);
    ck_assert_uint_eq(rig->done_count, 1);
}

/* It was sent, and the answer is not to be had: who has ordered it decides
 * whether to do so again. */
SRIG_TEST(outcome_lost, srig_single())
{
    bool how = _i;
    struct op *sent = srig_op(rig, OP_BREAK, 0);
    srig_turn(rig);
    expect_call(rig, 0);
    if (how == 0)
        srig_lose(rig, 0);
    else
        srig_pass(rig, 2001);
    srig_status(rig, sent, OP_UNKNOWN);
    ck_assert_uint_eq(sent->result.ahead, 0);
    if (how == 1)
        srig_results(rig, 0, 1, RECORD_OK); /* too late, and nobody's */
    ck_assert_uint_eq(rig->done_count, 1);
    srig_settle(rig);
    srig_expect(rig, 0, "");
}

/* Redis does not let it run until its time is over: it did not run. */
SRIG_TEST(never_run, srig_single())
{
    struct op *op = srig_op(rig, OP_BREAK, 0);

    while (!srig_done(rig, op)) {
        srig_pass(rig, 10);
        while (srig_next(rig, 0)[0] == 'E')
            srig_error(rig, 0, "LOADING Redis is loading the dataset");
        if (rig->word_count > 0)
            srig_answer(rig, 0);
        ck_assert_uint_le(rig->now_us, op->deadline_us + 20000);
    }
    srig_status(rig, op, OP_UNSENT);
    srig_lose(rig, 0);
    op = srig_op(rig, OP_BREAK, 0);
    for (int i = 0; i < 600 && !srig_done(rig, op); i++) {
        srig_pass(rig, 10);
        if (rig->conns[0].connecting)
            srig_lose(rig, 0);
    }
    srig_status(rig, op, OP_UNSENT);
}

/* --- messages ------------------------------------------------------------- */

static void
publish(struct srig *rig, const struct resp *items, size_t count)
{
    srig_reply(rig, CONN_SUBSCRIBER,
        &(struct resp){.type = RESP_ARRAY, .item = items, .count = count});
}

static void
publish_bytes(struct srig *rig, const char *bytes, size_t len)
{
    const struct resp items[] = {
        {.type = RESP_STRING, .text = TEXT("message")},
        {.type = RESP_STRING, .text = TEXT("holdfast/broker/broker-1")},
        {.type = RESP_STRING, .text = text_make(bytes, len)},
    };

    publish(rig, items, 3);
}

/* One byte says of what kind it is. Of grants and breaks the length is fixed,
 * of the rest there must be something; of other kinds nothing is understood. */
SRIG_TEST(kinds_and_lengths, srig_single())
{
    struct store_hint hint;
    struct text news;
    char bytes[40];

    (void)store_take_unheard(rig->store);
    for (int kind = 0; kind < 256; kind++) {
        bool hints = kind == 'G' || kind == 'B';
        bool passes = kind != 0 && strchr("WDVKMQATPI", kind) != NULL;
        for (size_t len = 0; len <= sizeof(bytes); len++) {
            memset(bytes, 0x11, sizeof(bytes));
            bytes[0] = (char)kind;
            publish_bytes(rig, bytes, len);
            bool hinted = store_take_hint(rig->store, &hint);
            ck_assert_int_eq(hinted, hints && len == 17);
            if (hinted)
                ck_assert_int_eq(hint.broken, kind == 'B');
            bool passed = store_take_news(rig->store, &news);
            ck_assert_int_eq(passed, passes && len > 1);
            if (passed)
                ck_assert(text_equal(news, text_make(bytes, len)));
            ck_assert(!store_take_hint(rig->store, &hint));
            ck_assert(!store_take_news(rig->store, &news));
        }
    }
    ck_assert(!store_take_unheard(rig->store));
}

static void
put_number(char *at, uint64_t value, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        at[i] = (char)(value >> 8 * i);
}

static void
put_double(char *at, double value)
{
    memcpy(at, &value, sizeof(value));
}

/* A message about one holder is read as a whole, or not at all. */
SRIG_TEST(members, srig_single())
{
    char bytes[BYTES_MEMBERS + 3 + BYTES_TICKET + 4] = "P";
    char *ticket = bytes + BYTES_MEMBERS + 3;
    struct op_members told;

    put_number(bytes + AT_MEMBERS_KIND, MEMBERS_LEFT, 1);
    put_number(bytes + AT_MEMBERS_KEY, 3, 2);
    put_number(bytes + AT_MEMBERS_TICKETS, 1, 4);
    put_number(bytes + AT_MEMBERS_COUNT, 7, 4);
    put_number(bytes + AT_MEMBERS_SUM, 8, 4);
    put_number(bytes + AT_MEMBERS_HISTORY, 9, 4);
    put_double(bytes + AT_MEMBERS_FENCE, 11);
    put_double(bytes + AT_MEMBERS_AFTER, 0x1p53 - 1); /* nobody asked */
    memcpy(bytes + BYTES_MEMBERS, "key", 3);
    put_number(ticket + AT_TICKET_WORDS, 4, 2);
    put_double(ticket + AT_TICKET_ARRIVAL, 6);
    put_double(ticket + AT_TICKET_FENCE, 10);
    memcpy(ticket + BYTES_TICKET, "\0\0\1n", 4);
    for (size_t len = 0; len < sizeof(bytes); len++)
        ck_assert(
            !store_read_members(rig->store, text_make(bytes, len), &told));
    struct text whole = text_make(bytes, sizeof(bytes));
    ck_assert(store_read_members(rig->store, whole, &told));
    ck_assert_int_eq(told.kind, MEMBERS_LEFT);
    ck_assert(text_equal(told.key, TEXT("key")));
    ck_assert_uint_eq(told.count, 7);
    ck_assert_uint_eq(told.sum, 8);
    ck_assert_uint_eq(told.history, 9);
    ck_assert_uint_eq(told.fence, 11);
    ck_assert_uint_eq(told.after, (UINT64_C(1) << 53) - 1);
    ck_assert_uint_eq(told.ticket_count, 1);
    ck_assert_uint_eq(told.tickets[0].arrival, 6);
    ck_assert_uint_eq(told.tickets[0].fence, 10);
    ck_assert(text_equal(told.tickets[0].note, TEXT("n")));

    static const struct {
        size_t at;
        size_t bytes;
        uint64_t value;
    } wrong[] = {{0, 1, 'W'}, {AT_MEMBERS_KIND, 1, MEMBERS_KINDS},
        {AT_MEMBERS_TICKETS, 4, 0}, {AT_MEMBERS_TICKETS, 4, UINT32_MAX},
        {AT_MEMBERS_KEY, 2, UINT16_MAX},
        {BYTES_MEMBERS + 3 + AT_TICKET_ARRIVAL, 8, 0},
        {BYTES_MEMBERS + 3 + AT_TICKET_WORDS, 2, 5}};

    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        char other[sizeof(bytes)];
        memcpy(other, bytes, sizeof(other));
        put_number(other + wrong[i].at, wrong[i].value, wrong[i].bytes);
        ck_assert(!store_read_members(
            rig->store, text_make(other, sizeof(other)), &told));
    }
}

/* A fence is a number that is exact in a double, or none. */
SRIG_TEST(fences, srig_single())
{
    static const struct {
        double number;
        uint64_t fence;
    } table[] = {{0, 0}, {1, 1}, {8e15, 8000000000000000}, {-1, 0}, {0.5, 0},
        {1e17, 0}, {1e300, 0}, {(double)INFINITY, 0}, {-(double)INFINITY, 0},
        {(double)NAN, 0}};
    struct store_hint hint;
    char bytes[17] = "B";

    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
        const uint64_t request = ~(uint64_t)i;
        memcpy(bytes + 1, &request, 8);
        memcpy(bytes + 9, &table[i].number, 8);
        publish_bytes(rig, bytes, sizeof(bytes));
        ck_assert(store_take_hint(rig->store, &hint));
        ck_assert_uint_eq(hint.request, request);
        ck_assert_uint_eq(hint.fence, table[i].fence);
    }
}

/* Of a message only its payload is looked at; what is none ends the link. */
START_TEST(no_messages)
{
    static const struct resp words[] = {
        {.type = RESP_STRING, .text = TEXT("message")},
        {.type = RESP_STRING, .text = TEXT("any")},
        {.type = RESP_INTEGER, .integer = 'W'},
        {.type = RESP_STRING, .text = TEXT("W1")},
    };
    struct store_hint hint;
    struct text news;

    for (int how = 0; how < 4; how++) {
        struct srig *rig = srig_single();
        uint32_t closes = rig->conns[CONN_SUBSCRIBER].closes;
        struct resp items[4];
        memcpy(items, words, sizeof(items));
        if (how == 1)
            items[0].text = TEXT("pmessage");
        publish(rig, items, how == 2 ? 2 : how == 3 ? 4 : 3);
        ck_assert_uint_eq(
            rig->conns[CONN_SUBSCRIBER].closes - closes, how == 0 ? 0 : 1);
        ck_assert(!store_take_hint(rig->store, &hint));
        ck_assert(!store_take_news(rig->store, &news));
        srig_end(rig);
    }
    /* On a link that has not subscribed it is an answer to nothing. */
    struct srig *rig = srig_single();
    struct resp items[3];
    memcpy(items, words, sizeof(items));
    items[2] = words[3];
    srig_reply(
        rig, 0, &(struct resp){.type = RESP_ARRAY, .item = items, .count = 3});
    ck_assert_uint_eq(rig->conns[0].closes, 1);
    ck_assert(!store_take_news(rig->store, &news));
    srig_end(rig);
}

END_TEST

Suite *
store_break_suite(void)
{
    Suite *suite = suite_create("store_break");
    TCase *tests = tcase_create("store_break");

    tcase_add_test(tests, call);
    tcase_add_test(tests, answers);
    tcase_add_test(tests, redirects);
    tcase_add_loop_test(tests, outcome_lost, 0, 2);
    tcase_add_test(tests, never_run);
    tcase_add_test(tests, kinds_and_lengths);
    tcase_add_test(tests, members);
    tcase_add_test(tests, fences);
    tcase_add_test(tests, no_messages);
    suite_add_tcase(suite, tests);
    return suite;
}

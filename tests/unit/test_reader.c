/*
 * Tests of daemon/io/reader.c: RESP2 to trees, however it is cut, and what is
 * refused: other protocols, other versions of it, and too much.
 */
#include "daemon/io/redis.h"

#include <check.h>
#include <string.h>

Suite *reader_suite(void);

static struct reader *reader;

static void
setup(void)
{
    reader = reader_create();
    ck_assert_ptr_nonnull(reader);
}

static void
teardown(void)
{
    reader_destroy(&reader);
    ck_assert_ptr_null(reader);
    reader_destroy(&reader);
}

static const struct resp *
next(void)
{
    const struct resp *reply;

    ck_assert_int_eq(reader_next(reader, &reply), READER_REPLY);
    ck_assert_ptr_nonnull(reply);
    return reply;
}

static enum reader_status
status(void)
{
    const struct resp *reply;
    enum reader_status found = reader_next(reader, &reply);

    ck_assert(found == READER_REPLY || reply == NULL);
    return found;
}

static void
feed(const char *bytes)
{
    ck_assert(reader_feed(reader, bytes, strlen(bytes)));
}

static void
check_text(const struct resp *value, enum resp_type type, const char *text)
{
    ck_assert_int_eq(value->type, type);
    ck_assert(text_equal(value->text, text_from(text)));
}

START_TEST(each_type)
{
    feed("+OK\r\n-ERR "
         "no\r\n:-7\r\n$-1\r\n$0\r\n\r\n$3\r\na\nb\r\n*-1\r\n*0\r\n");
    check_text(next(), RESP_STATUS, "OK");
    check_text(next(), RESP_ERROR, "ERR no");
    const struct resp *reply = next();
    ck_assert_int_eq(reply->type, RESP_INTEGER);
    ck_assert_int_eq(reply->integer, -7);
    ck_assert_int_eq(next()->type, RESP_NIL);
    check_text(next(), RESP_STRING, "");
    check_text(next(), RESP_STRING, "a\nb");
    ck_assert_int_eq(next()->type, RESP_NIL);
    reply = next();
    ck_assert_int_eq(reply->type, RESP_ARRAY);
    ck_assert_uint_eq(reply->count, 0);
    ck_assert_int_eq(status(), READER_MORE);
}

END_TEST

/* A tree outlives the reads that its parts came in. */
START_TEST(nested_and_cut)
{
    static const char bytes[] =
        "*3\r\n:1\r\n*2\r\n$8\r\n10.0.0.1\r\n:7000\r\n*1\r\n*1\r\n+x\r\n";

    for (int round = 0; round < 3; round++) {
        for (const char *at = bytes; at[1] != '\0'; at++) {
            ck_assert(reader_feed(reader, at, 1));
            ck_assert_int_eq(status(), READER_MORE);
        }
        ck_assert(reader_feed(reader, bytes + sizeof(bytes) - 2, 1));
        const struct resp *reply = next();
        ck_assert_uint_eq(reply->count, 3);
        ck_assert_int_eq(reply->item[0].integer, 1);
        check_text(&reply->item[1].item[0], RESP_STRING, "10.0.0.1");
        ck_assert_int_eq(reply->item[1].item[1].integer, 7000);
        check_text(&reply->item[2].item[0].item[0], RESP_STATUS, "x");
        ck_assert_int_eq(status(), READER_MORE);
    }
}

END_TEST

/* More than a block of memory takes, one reply after the other. */
START_TEST(large_replies)
{
    static char bytes[200000];

    for (int round = 0; round < 3; round++) {
        memset(bytes, 'b' + round, sizeof(bytes));
        feed("*2\r\n$200000\r\n");
        ck_assert(reader_feed(reader, bytes, sizeof(bytes)));
        feed("\r\n:5\r\n");
        const struct resp *reply = next();
        ck_assert_uint_eq(reply->item[0].text.len, sizeof(bytes));
        ck_assert_mem_eq(reply->item[0].text.at, bytes, sizeof(bytes));
        ck_assert_int_eq(reply->item[1].integer, 5);
    }
}

END_TEST

START_TEST(what_is_no_resp2)
{
    static const char *const bad[] = {"HTTP/1.1 400 Bad Request\r\n",
        "%1\r\n+a\r\n:1\r\n", ",1.5\r\n", "#t\r\n", "(1\r\n", "=5\r\ntxt:a\r\n",
        "~1\r\n:1\r\n", ">1\r\n:1\r\n", ":x\r\n", "*x\r\n", "\r\n"};

    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        teardown();
        setup();
        feed("+OK\r\n");
        feed(bad[i]);
        check_text(next(), RESP_STATUS, "OK");
        ck_assert_msg(status() == READER_BROKEN, "%s", bad[i]);
        ck_assert_int_eq(status(), READER_BROKEN);
    }
}

END_TEST

/* No CR ends its lines, which looks like an array that is still to come. */
START_TEST(a_broker_is_no_redis)
{
    feed("* HELLO proto=1 server=holdfastd/0.1.0\n");
    ck_assert_int_eq(status(), READER_BROKEN);
    ck_assert_int_eq(status(), READER_BROKEN);
}

END_TEST

/* An array of so many takes too much before its first value has come. */
START_TEST(array_beyond_the_limit)
{
    feed("*2000000\r\n");
    ck_assert_int_eq(status(), READER_BROKEN);
}

END_TEST

START_TEST(bytes_beyond_the_limit)
{
    static char bytes[1 << 20];
    size_t fed = 0;

    feed("$500000000\r\n");
    while (reader_feed(reader, bytes, sizeof(bytes))) {
        fed += sizeof(bytes);
        ck_assert_int_eq(status(), READER_MORE);
        ck_assert_uint_le(fed, READER_REPLY_MAX);
    }
    ck_assert_uint_gt(fed + 2 * sizeof(bytes), READER_REPLY_MAX);
}

END_TEST

Suite *
reader_suite(void)
{
    Suite *suite = suite_create("reader");
    TCase *tests = tcase_create("reader");

    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_add_test(tests, each_type);
    tcase_add_test(tests, nested_and_cut);
    tcase_add_test(tests, large_replies);
    tcase_add_test(tests, what_is_no_resp2);
    tcase_add_test(tests, a_broker_is_no_redis);
    tcase_add_test(tests, array_beyond_the_limit);
    tcase_add_test(tests, bytes_beyond_the_limit);
    suite_add_tcase(suite, tests);
    return suite;
}

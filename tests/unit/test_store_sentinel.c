/*
 * Tests of daemon/store/node/sentinel.c: who the master is, by a majority
 * of the Sentinels and for how long; greetings, and Sentinels that fail.
 */
#include "tests/unit/log_kept.h"
#include "tests/unit/sentinel_rig.h"

#include <string.h>

Suite *store_sentinel_suite(void);

/* --- greeting ------------------------------------------------------------- */

static void
set_credentials(struct srig *rig)
{
    srig_credentials(rig);
    memcpy(rig->settings.sentinel_username, "watcher", 8);
    memcpy(rig->settings.sentinel_password, "hush", 5);
}

SRIG_TEST(greeting_of_a_sentinel, srig_create(STORE_SENTINEL, 2))
{
    set_credentials(rig);
    if (_i == 1)
        rig->settings.sentinel_username[0] = '\0';
    srig_start(rig);
    for (uint32_t i = 0; i < 2; i++) {
        ck_assert_str_eq(rig->conns[i].host, "10.0.0.2");
        ck_assert_uint_eq(rig->conns[i].port, 26379 + i);
        srig_connect(rig, i);
        srig_expect(rig, i, _i == 1 ? "AUTH hush" : "AUTH watcher hush");
        srig_answer(rig, i);
        srig_exchange(rig, i, WHO);
        srig_exchange(rig, i, QUESTION);
        srig_sends(rig, i, "");
    }
    ck_assert_uint_eq(srig_count(rig, COUNTER_redis_connects), 2);
}

/* The password of Redis is none of the Sentinels' business. */
SRIG_TEST(greeting_without_a_password, srig_create(STORE_SENTINEL, 1))
{
    srig_credentials(rig);
    srig_start(rig);
    srig_connect(rig, 0);
    srig_exchange(rig, 0, WHO);
    srig_exchange(rig, 0, QUESTION);
    srig_turn(rig);
    srig_connect(rig, CONN_SWITCHES);
    srig_expect(rig, CONN_SWITCHES, "SUBSCRIBE +switch-master");
}

SRIG_TEST(greeting_of_the_master, srig_create(STORE_SENTINEL, 1))
{
    set_credentials(rig);
    srig_start(rig);
    ck_assert(!rig->conns[1].connecting);
    srig_connect(rig, 0);
    srig_serve(rig, 0);
    srig_turn(rig);
    ck_assert_str_eq(rig->conns[1].host, "10.0.0.1");
    ck_assert_uint_eq(rig->conns[1].port, 7000);
    srig_connect(rig, 1);
    srig_greet(rig, 1);
    srig_turn(rig);
    srig_connect(rig, CONN_SUBSCRIBER);
    srig_expect(rig, CONN_SUBSCRIBER, "AUTH me secret");
}

/* One link more to a Sentinel that answers, and never more than one. */
SRIG_TEST(greeting_for_switches, srig_create(STORE_SENTINEL, 3))
{
    struct srig_conn *conn = &rig->conns[CONN_SWITCHES];

    set_credentials(rig);
    log_keep(LOG_INFO);
    srig_start(rig);
    ck_assert(!conn->connecting);
    srig_connect(rig, 1);
    srig_turn(rig);
    ck_assert(!conn->connecting);
    srig_serve(rig, 1);
    srig_turn(rig);
    ck_assert(conn->connecting);
    ck_assert_uint_eq(conn->port, 26380);
    srig_connect(rig, CONN_SWITCHES);
    srig_exchange(rig, CONN_SWITCHES, "AUTH watcher hush");
    srig_exchange(rig, CONN_SWITCHES, "SUBSCRIBE +switch-master");
    srig_expect(rig, CONN_SWITCHES, "");
    /* The others come; it stays, and is heard of now and then. */
    sen_run(rig, 2990);
    sen_silence(rig, CONN_SWITCHES, CONN_SWITCHES);
    sen_run(rig, 20);
    srig_expect(rig, CONN_SWITCHES, "PING");
    ck_assert_uint_eq(conn->connects, 1);
    ck_assert_uint_eq(conn->closes, 0);
    /* Missed messages on it are hints to ask, not announcements of locks. */
    ck_assert(store_take_unheard(rig->store));
    sen_wake(rig, CONN_SWITCHES, CONN_SWITCHES);
    srig_lose(rig, CONN_SWITCHES);
    sen_run(rig, 100);
    ck_assert_uint_eq(conn->connects, 2);
    ck_assert(!store_take_unheard(rig->store));
}

SRIG_TEST(switches_move, sen_ready())
{
    struct srig_conn *conn = &rig->conns[CONN_SWITCHES];

    ck_assert_uint_eq(conn->port, 26379);
    sen_silence(rig, 0, 0);
    srig_lose(rig, 0);
    sen_run(rig, 1000);
    ck_assert_uint_eq(conn->connects, 1);
    srig_lose(rig, CONN_SWITCHES);
    sen_run(rig, 100);
    ck_assert_uint_eq(conn->connects, 2);
    ck_assert_uint_eq(conn->port, 26380);
    ck_assert(conn->open);
    /* All are gone: nobody to subscribe at. */
    sen_silence(rig, 0, 2);
    srig_lose(rig, 1);
    srig_lose(rig, 2);
    srig_lose(rig, CONN_SWITCHES);
    sen_run(rig, 5000);
    ck_assert_uint_eq(conn->connects, 2);
}

SRIG_TEST(switches_refused, sen_ready())
{
    struct srig_conn *conn = &rig->conns[CONN_SWITCHES];

    sen_silence(rig, CONN_SWITCHES, CONN_SWITCHES);
    srig_lose(rig, CONN_SWITCHES);
    for (unsigned i = 0; i < 10000; i++) {
        sen_run(rig, 1);
        ck_assert(store_ready(rig->store));
        if (!conn->connecting)
            continue;
        srig_connect(rig, CONN_SWITCHES);
        srig_expect(rig, CONN_SWITCHES, "SUBSCRIBE +switch-master");
        srig_error(rig, CONN_SWITCHES, "NOPERM no");
    }
    ck_assert_uint_eq(conn->connects, conn->closes + 1);
    ck_assert_uint_ge(conn->connects, 8);
    ck_assert_uint_le(conn->connects, 17);
}

/* --- a majority ----------------------------------------------------------- */

static const struct {
    unsigned sentinels;
    unsigned votes; /* that make a master, and one less does not */
} majorities[] = {{1, 1}, {2, 2}, {3, 2}, {4, 3}, {5, 3}, {64, 33}};

SRIG_TEST(majority, srig_create(STORE_SENTINEL, majorities[_i].sentinels))
{
    unsigned votes = majorities[_i].votes;

    srig_start(rig);
    struct op *op = srig_op(rig, OP_ACQUIRE, 0);
    sen_silence(rig, votes - 1, majorities[_i].sentinels - 1);
    sen_run(rig, 500);
    sen_no_master(rig);
    sen_wake(rig, votes - 1, votes - 1);
    sen_run(rig, 10);
    ck_assert(store_ready(rig->store));
    srig_status(rig, op, OP_OK);
}

/* One Sentinel that the configuration has twice is one vote. So it is if it is
 * heard by the other name first, or by one name no more. */
SRIG_TEST(one_by_two_names, srig_create(STORE_SENTINEL, 3))
{
    log_keep(LOG_INFO);
    rig->one_run = 2;
    sen_silence(rig, _i == 0 ? 0 : 1, _i == 0 ? 0 : 1);
    sen_silence(rig, 2, 2);
    srig_start(rig);
    sen_run(rig, 100);
    sen_wake(rig, 0, 1);
    sen_run(rig, 400);
    sen_no_master(rig);
    ck_assert_uint_eq(log_kept_count("event=sentinel_twice"), 1);
    srig_lose(rig, (uint32_t)_i);
    sen_run(rig, 5000);
    sen_no_master(rig);
    sen_wake(rig, 2, 2);
    sen_works(rig, OP_ACQUIRE, 4000);
    srig_lose(rig, (uint32_t)_i);
    sen_silence(rig, (uint32_t)_i, (uint32_t)_i);
    for (int i = 0; i < 40; i++)
        sen_works(rig, OP_RENEW, 200);
    /* It is another one behind that name: two of three are heard. */
    rig->one_run = 0;
    sen_wake(rig, 0, 1);
    sen_run(rig, 5000);
    srig_lose(rig, 1);
    sen_run(rig, 5000);
    sen_silence(rig, 2, 2);
    for (int i = 0; i < 40; i++)
        sen_works(rig, OP_RENEW, 200);
}

/* A Sentinel that may not tell its id has its vote. */
SRIG_TEST(one_that_is_not_told, srig_create(STORE_SENTINEL, 3))
{
    log_keep(LOG_INFO);
    sen_silence(rig, 2, 2);
    srig_start(rig);
    for (uint32_t i = 0; i < 2; i++) {
        srig_connect(rig, i);
        srig_expect(rig, i, WHO);
        srig_error(rig, i, "NOPERM no");
        srig_exchange(rig, i, QUESTION);
    }
    sen_works(rig, OP_ACQUIRE, 100);
    ck_assert_uint_eq(log_kept_count("event=sentinel_twice"), 0);
}

SRIG_TEST(two_names, srig_create(STORE_SENTINEL, 3))
{
    sen_name(rig, 1, "7001");
    sen_silence(rig, 2, 2);
    srig_start(rig);
    struct op *op = srig_op(rig, OP_ACQUIRE, 0);
    sen_run(rig, 900);
    sen_no_master(rig);
    sen_name(rig, 2, "7001");
    sen_wake(rig, 2, 2);
    sen_run(rig, 10);
    ck_assert(store_ready(rig->store));
    srig_status(rig, op, OP_OK);
    ck_assert(sen_has_conn(rig, 7001));
    ck_assert(!sen_has_conn(rig, 7000));
}

/* The port is part of an address, and so is the host. */
SRIG_TEST(three_names, srig_create(STORE_SENTINEL, 3))
{
    sen_name(rig, 1, "7001");
    rig->names[2] = (struct srig_name){"10.0.0.11", "7000"};
    srig_start(rig);
    struct op *op = srig_op(rig, OP_ACQUIRE, 0);
    sen_run(rig, 5010);
    ck_assert(sen_no_conn(rig));
    srig_status(rig, op, OP_UNSENT);
}

SRIG_TEST(nil_answers, srig_create(STORE_SENTINEL, 3))
{
    log_keep(LOG_INFO);
    sen_name(rig, 0, NULL);
    sen_name(rig, 1, NULL);
    srig_start(rig);
    struct op *op = srig_op(rig, OP_ACQUIRE, 0);
    sen_run(rig, 3000);
    ck_assert(sen_no_conn(rig));
    ck_assert(!srig_done(rig, op));
    /* Said once, by each that knows no such master. */
    ck_assert_uint_eq(log_kept_count("event=sentinel_names_none"), 2);
    ck_assert_uint_eq(log_kept_count("node=10.0.0.2:26379 master=shop"), 1);
    sen_name(rig, 1, "7000");
    sen_run(rig, 510);
    srig_status(rig, op, OP_OK);
    /* And again where it is new. */
    sen_name(rig, 1, NULL);
    sen_run(rig, 510);
    ck_assert(!store_ready(rig->store));
    ck_assert_uint_eq(log_kept_count("event=sentinel_names_none"), 3);
}

static char long_host[STORE_HOST_MAX + 1];

static const struct srig_name no_addresses[] = {
    {"10.0.0.1", "0"},
    {"10.0.0.1", "65536"},
    {"10.0.0.1", "72536"},
    {"10.0.0.1", "18446744073709558616"},
    {"10.0.0.1", "-1"},
    {"10.0.0.1", "+7000"},
    {"10.0.0.1", " 7000"},
    {"10.0.0.1", "7000 "},
    {"10.0.0.1", "07000"},
    {"10.0.0.1", "7000x"},
    {"10.0.0.1", ""},
    {"", "7000"},
    {long_host, "7000"},
};

SRIG_TEST(no_address, srig_create(STORE_SENTINEL, 1))
{
    memset(long_host, 'h', sizeof(long_host) - 1);
    rig->names[0] = no_addresses[_i];
    srig_start(rig);
    sen_run(rig, 600);
    sen_no_master(rig);
    ck_assert(rig->conns[0].open);
    sen_name(rig, 0, "7000");
    sen_run(rig, 600);
    ck_assert(store_ready(rig->store));
}

/* Replies that are no address at all. */
SRIG_TEST(no_answer, srig_create(STORE_SENTINEL, 1))
{
    const struct resp host = {.type = RESP_STRING, .text = TEXT("10.0.0.1")};
    const struct resp port = {.type = RESP_STRING, .text = TEXT("7000")};
    const struct resp number = {.type = RESP_INTEGER, .integer = 7000};
    const struct resp nil = {.type = RESP_NIL};
    const struct resp said = {.type = RESP_STATUS, .text = TEXT("10.0.0.1")};
    struct resp items[][3] = {{host, number, nil}, {said, port, nil},
        {nil, nil, nil}, {host, nil, nil}, {host, port, port},
        {host, port, nil}};
    const struct resp replies[] = {
        {.type = RESP_NIL},
        {.type = RESP_INTEGER, .integer = 2, .count = 2},
        {.type = RESP_STATUS, .text = TEXT("OK")},
        {.type = RESP_STRING, .text = TEXT("10.0.0.1:7000")},
        {.type = RESP_ARRAY},
        {.type = RESP_ARRAY, .item = items[5], .count = 1},
        {.type = RESP_ARRAY, .item = items[0], .count = 2},
        {.type = RESP_ARRAY, .item = items[1], .count = 2},
        {.type = RESP_ARRAY, .item = items[2], .count = 2},
        {.type = RESP_ARRAY, .item = items[3], .count = 2},
        {.type = RESP_ARRAY, .item = items[4], .count = 3},
    };

    srig_start(rig);
    srig_connect(rig, 0);
    srig_exchange(rig, 0, WHO);
    for (size_t i = 0; i < sizeof(replies) / sizeof(replies[0]); i++) {
        srig_expect(rig, 0, QUESTION);
        srig_reply(rig, 0, &replies[i]);
        srig_pass(rig, 499);
        srig_expect(rig, 0, "");
        ck_assert(sen_no_conn(rig));
        srig_pass(rig, 1);
    }
    srig_exchange(rig, 0, QUESTION);
    srig_turn(rig);
    ck_assert(rig->conns[1].connecting);
}

/* An address of a moment ago does not count on, in its old place. */
SRIG_TEST(nil_after_a_name, sen_ready())
{
    sen_name(rig, 0, NULL);
    sen_name(rig, 1, NULL);
    sen_run(rig, 510);
    ck_assert(!store_ready(rig->store));
}

static const char *const hosts[] = {
    "redis-1.example", "2001:db8::7", "::1", long_host};

SRIG_TEST(names_of_hosts, srig_create(STORE_SENTINEL, 3))
{
    memset(long_host, 'h', STORE_HOST_MAX - 1);
    for (unsigned i = 0; i < 3; i++)
        rig->names[i] = (struct srig_name){hosts[_i], "65535"};
    srig_start(rig);
    sen_run(rig, 10);
    ck_assert(store_ready(rig->store));
    ck_assert_str_eq(rig->conns[3].host, hosts[_i]);
    ck_assert_uint_eq(rig->conns[3].port, 65535);
}

/* No address either; and none that differs from itself each time. */
SRIG_TEST(host_with_a_nul, srig_create(STORE_SENTINEL, 1))
{
    struct resp items[] = {
        {.type = RESP_STRING, .text = TEXT("10.0\0.1")},
        {.type = RESP_STRING, .text = TEXT("7000")},
    };

    srig_start(rig);
    srig_connect(rig, 0);
    srig_exchange(rig, 0, WHO);
    for (int i = 0; i < 200; i++) {
        srig_expect(rig, 0, QUESTION);
        srig_reply_array(rig, 0, items, 2);
        srig_pass(rig, 500);
        ck_assert(sen_no_conn(rig));
    }
    sen_run(rig, 10);
    ck_assert(store_ready(rig->store));
}

/* A Sentinel is no master, whoever says so. */
SRIG_TEST(sentinel_named_as_master, srig_create(STORE_SENTINEL, 3))
{
    for (unsigned i = 0; i < 3; i++)
        rig->names[i] = (struct srig_name){"10.0.0.2", "26380"};
    sen_silence(rig, 1, 1);
    srig_start(rig);
    srig_connect(rig, 1);
    srig_exchange(rig, 1, WHO);
    srig_exchange(rig, 1, QUESTION);
    struct op *op = srig_op(rig, OP_ACQUIRE, 0);
    sen_run(rig, 300);
    sen_no_call(rig, 1);
    ck_assert(!store_ready(rig->store));
    ck_assert(!srig_done(rig, op));
}

/* --- how long an answer counts -------------------------------------------- */

SRIG_TEST(asked_twice_a_second, srig_create(STORE_SENTINEL, 3))
{
    srig_start(rig);
    sen_run(rig, 0);
    for (int round = 0; round < 20; round++) {
        for (uint32_t i = 0; i < 3; i++)
            ck_assert_uint_eq(buffer_len(store_conn_output(rig->store, i)), 0);
        sen_run(rig, 499);
        sen_silence(rig, 0, 2);
        sen_run(rig, 1);
        sen_wake(rig, 0, 2);
        for (uint32_t i = 0; i < 3; i++) {
            srig_exchange(rig, i, QUESTION);
            srig_expect(rig, i, "");
        }
    }
    ck_assert(store_ready(rig->store));
}

/* No second question before the first one is answered, nor a burst then. */
SRIG_TEST(asked_once_at_a_time, sen_ready())
{
    sen_silence(rig, 0, 0);
    sen_run(rig, 1900);
    srig_expect(rig, 0, QUESTION);
    srig_expect(rig, 0, "");
    srig_answer(rig, 0);
    srig_turn(rig);
    srig_exchange(rig, 0, QUESTION);
    srig_pass(rig, 400);
    srig_expect(rig, 0, "");
}

SRIG_TEST(counts_from_the_sending, srig_create(STORE_SENTINEL, 1))
{
    srig_start(rig);
    sen_run(rig, 100);
    ck_assert(store_ready(rig->store));
    sen_silence(rig, 0, 0);
    /* The question is sent at 500 and answered at 1900. */
    sen_run(rig, 1800);
    srig_exchange(rig, 0, QUESTION);
    sen_run(rig, 599);
    ck_assert(store_ready(rig->store));
    ck_assert_uint_le(store_next_us(rig->store), rig->now_us + 1000);
    sen_works(rig, OP_RENEW, 0);
    sen_run(rig, 1);
    ck_assert(!store_ready(rig->store));
    struct op *op = srig_op(rig, OP_RENEW, 0);
    sen_run(rig, 1000);
    ck_assert(!srig_done(rig, op));
}

/* Each answer has an end of its own. */
SRIG_TEST(counts_by_each, srig_create(STORE_SENTINEL, 3))
{
    sen_silence(rig, 1, 2);
    srig_start(rig);
    sen_run(rig, 300);
    sen_wake(rig, 1, 1);
    sen_run(rig, 100);
    ck_assert(store_ready(rig->store));
    /* The greetings' answers are those that count. */
    sen_silence(rig, 0, 1);
    sen_run(rig, TRUST_MS - 401);
    ck_assert(store_ready(rig->store));
    sen_run(rig, 1);
    ck_assert(!store_ready(rig->store));
}

SRIG_TEST(history_ends, sen_ready())
{
    log_keep(LOG_INFO);
    sen_silence(rig, 0, 1);
    sen_run(rig, 1490);
    ck_assert(store_ready(rig->store));
    sen_run(rig, 510);
    ck_assert(!store_ready(rig->store));
    ck_assert_uint_eq(log_kept_count("event=redis_no_master"), 0);
    /* The old one answers, and is not asked. */
    struct op *op = srig_op(rig, OP_ACQUIRE, 0);
    struct op *later = srig_op(rig, OP_RENEW, 0);
    op->deadline_us = rig->now_us + 700000;
    later->deadline_us = rig->now_us + 20000000;
    sen_run(rig, 698);
    ck_assert_uint_eq(rig->done_count, 0);
    sen_run(rig, 4);
    srig_status(rig, op, OP_UNSENT);
    ck_assert_uint_eq(srig_count(rig, COUNTER_redis_calls), 0);
    sen_run(rig, 2000);
    ck_assert_uint_eq(log_kept_count("event=redis_no_master"), 1);
    ck_assert(rig->conns[3].open);
    sen_wake(rig, 0, 1);
    sen_run(rig, 2000);
    ck_assert(store_ready(rig->store));
    srig_status(rig, later, OP_OK);
    ck_assert_uint_eq(rig->conns[3].connects, 1);
    ck_assert_uint_eq(log_kept_count("event=redis_master master=shop"), 1);
}

/* Operations at the master when trust ended wait for the next master. */
SRIG_TEST(history_ends_with_a_queue, sen_ready())
{
    sen_silence(rig, 0, 2);
    sen_run(rig, 1000);
    sen_silence(rig, 3, 3);
    struct op *ops = srig_ops(rig, OP_ACQUIRE, 0, 12);
    for (int i = 0; i < 12; i++)
        ops[i].deadline_us = rig->now_us + 20000000;
    sen_run(rig, 1000);
    ck_assert(!store_ready(rig->store));
    /* A sent operation is answered, and that holds. */
    srig_expect(rig, 3, "EVALSHA 4");
    srig_results(rig, 3, 4, RECORD_OK);
    for (int i = 0; i < 12; i++)
        ck_assert(srig_done(rig, &ops[i]) == (i < 4));
    sen_run(rig, 100);
    srig_expect(rig, 3, "EVALSHA 4");
    srig_expect(rig, 3, "");
    srig_results(rig, 3, 4, RECORD_OK);
    sen_run(rig, 100);
    srig_expect(rig, 3, "");
    sen_name_all(rig, "7001");
    sen_wake(rig, 0, 3);
    sen_run(rig, 3000);
    srig_statuses(rig, ops, 0, 12, OP_OK);
    ck_assert_uint_eq(rig->conns[3].closes, 1);
}

/* An answer to an old call is no reason to send it there again. */
SRIG_TEST(history_ends_and_asks_again, sen_ready())
{
    sen_silence(rig, 0, 2);
    sen_run(rig, 1000);
    struct op *op = srig_op(rig, OP_ACQUIRE, 0);
    op->deadline_us = rig->now_us + 20000000;
    sen_silence(rig, 3, 3);
    sen_run(rig, 1000);
    ck_assert(!store_ready(rig->store));
    srig_expect(rig, 3, "EVALSHA 1");
    if (_i == 0)
        srig_error(rig, 3, "NOSCRIPT No matching script.");
    else
        srig_results(rig, 3, 1, RECORD_LATE);
    sen_run(rig, 100);
    sen_no_call(rig, 3);
    ck_assert(!srig_done(rig, op));
}

SRIG_TEST(one_is_silent, sen_ready())
{
    uint32_t one = (uint32_t)_i;
    uint32_t next = (one + 1) % 3;

    sen_silence(rig, one, one);
    for (int i = 0; i < 40; i++) {
        sen_works(rig, OP_RENEW, 200);
        ck_assert(store_ready(rig->store));
    }
    ck_assert_uint_ge(rig->conns[one].closes, 2);
    sen_wake(rig, one, one);
    sen_run(rig, 2000);
    sen_silence(rig, next, next);
    sen_run(rig, 5000);
    ck_assert(store_ready(rig->store));
}

/* --- Sentinels that fail -------------------------------------------------- */

static const char *const refusals[] = {"NOAUTH Authentication required.",
    "IDONTKNOW I have not enough information", "ERR unknown command 'SENTINEL'",
    "NOPERM no"};

SRIG_TEST(sentinel_refuses, sen_ready())
{
    struct srig_conn *conn = &rig->conns[0];
    unsigned ready = 0;

    log_keep(LOG_INFO);
    sen_silence(rig, 0, 0);
    for (unsigned i = 0; i < 10000; i++) {
        if (i % 100 == 0)
            (void)srig_op(rig, OP_RENEW, 0);
        sen_run(rig, 1);
        if (conn->connecting)
            srig_connect(rig, 0);
        while (conn->open && srig_next(rig, 0)[0] != '\0')
            srig_error(rig, 0, refusals[_i]);
        ready += store_ready(rig->store);
    }
    ck_assert_uint_eq(ready, 10000);
    ck_assert_uint_eq(rig->done_count, 100);
    srig_statuses(rig, rig->ops, 0, 100, OP_OK);
    ck_assert_uint_eq(rig->conns[1].closes + rig->conns[2].closes, 0);
    ck_assert_uint_eq(rig->conns[3].closes, 0);
    /* With growing pauses, and said once a minute. */
    ck_assert_uint_ge(conn->closes, 8);
    ck_assert_uint_le(conn->closes, 17);
    ck_assert_uint_eq(log_kept_count("event=redis_refuses"), 1);
    ck_assert_uint_eq(log_kept_count("command=SENTINEL reason="), 1);
    ck_assert_uint_eq(log_kept_count(refusals[_i]), 1);
    sen_wake(rig, 0, 0);
    sen_run(rig, 2000);
    sen_silence(rig, 1, 1);
    sen_run(rig, 5000);
    ck_assert(store_ready(rig->store));
}

SRIG_TEST(sentinel_refuses_auth, srig_create(STORE_SENTINEL, 3))
{
    set_credentials(rig);
    sen_silence(rig, 0, 0);
    srig_start(rig);
    srig_connect(rig, 0);
    srig_expect(rig, 0, "AUTH watcher hush");
    srig_error(rig, 0, "WRONGPASS no");
    ck_assert_uint_eq(rig->conns[0].closes, 1);
    /* Late answers of that connection are nobody's. */
    sen_answer_late(rig, 0);
    sen_silence(rig, 1, 1);
    sen_run(rig, 500);
    ck_assert(sen_no_conn(rig));
}

/* A Sentinel that worked once is tried again soon, and given time to answer. */
SRIG_TEST(sentinel_too_slow, sen_ready())
{
    unsigned ms = 0;

    sen_silence(rig, 0, 0);
    while (rig->conns[0].connects == 1) {
        sen_run(rig, 1);
        ck_assert_uint_lt(++ms, 3000);
    }
    ck_assert_uint_ge(ms, 2000);
    ck_assert_uint_eq(rig->conns[0].closes, 1);
    ck_assert_uint_eq(srig_count(rig, COUNTER_redis_timeouts), 1);
}

/* --- the log -------------------------------------------------------------- */

SRIG_TEST(what_is_logged, srig_create(STORE_SENTINEL, 3))
{
    log_keep(LOG_INFO);
    srig_start(rig);
    sen_run(rig, 5000);
    ck_assert_uint_eq(log_kept_count("event=redis_master"), 1);
    ck_assert_uint_eq(
        log_kept_count("event=redis_master master=shop node=10.0.0.1:7000"), 1);
    ck_assert_uint_eq(log_kept_count("use=sentinel"), 4);
    ck_assert_uint_eq(log_kept_count("use=hints"), 1);
    /* The same one after a loss is nothing new, nor is the time between. */
    srig_lose(rig, 3);
    sen_run(rig, 5000);
    ck_assert_uint_eq(log_kept_count("event=redis_master"), 1);
    ck_assert_uint_eq(log_kept_count("event=redis_no_master"), 0);
    sen_name_all(rig, NULL);
    sen_run(rig, 2400);
    ck_assert_uint_eq(log_kept_count("event=redis_no_master"), 0);
    sen_run(rig, 200);
    ck_assert_uint_eq(log_kept_count("event=redis_no_master master=shop"), 1);
    sen_run(rig, 5000);
    ck_assert_uint_eq(log_kept_count("event=redis_no_master"), 1);
    sen_name_all(rig, "7001");
    sen_run(rig, 600);
    ck_assert_uint_eq(log_kept_count("event=redis_master"), 2);
    ck_assert_uint_eq(
        log_kept_count("event=unready reason=connecting node=10.0.0.1:7001"),
        1);
    ck_assert_uint_eq(log_kept_count("node=10.0.0.1:7001"), 4);
}

/* Said also where nothing comes that would be a reason to count. */
SRIG_TEST(no_master_is_logged, sen_ready())
{
    log_keep(LOG_INFO);
    sen_trust_ends(rig);
    sen_run(rig, TRUST_MS - 1);
    ck_assert_uint_eq(log_kept_count("event=redis_no_master"), 0);
    sen_run(rig, 2);
    ck_assert_uint_eq(log_kept_count("event=redis_no_master"), 1);
}

static void
add_greetings(TCase *tests)
{
    tcase_add_loop_test(tests, greeting_of_a_sentinel, 0, 2);
    tcase_add_test(tests, greeting_without_a_password);
    tcase_add_test(tests, greeting_of_the_master);
    tcase_add_test(tests, greeting_for_switches);
    tcase_add_test(tests, switches_move);
    tcase_add_test(tests, switches_refused);
}

static void
add_names(TCase *tests)
{
    tcase_add_loop_test(
        tests, majority, 0, sizeof(majorities) / sizeof(majorities[0]));
    tcase_add_loop_test(tests, one_by_two_names, 0, 2);
    tcase_add_test(tests, one_that_is_not_told);
    tcase_add_test(tests, two_names);
    tcase_add_test(tests, three_names);
    tcase_add_test(tests, nil_answers);
    tcase_add_loop_test(
        tests, no_address, 0, sizeof(no_addresses) / sizeof(no_addresses[0]));
    tcase_add_test(tests, no_answer);
    tcase_add_test(tests, nil_after_a_name);
    tcase_add_loop_test(
        tests, names_of_hosts, 0, sizeof(hosts) / sizeof(hosts[0]));
    tcase_add_test(tests, host_with_a_nul);
    tcase_add_test(tests, sentinel_named_as_master);
}

static void
add_trust(TCase *tests)
{
    tcase_add_test(tests, asked_twice_a_second);
    tcase_add_test(tests, asked_once_at_a_time);
    tcase_add_test(tests, counts_from_the_sending);
    tcase_add_test(tests, counts_by_each);
    tcase_add_test(tests, history_ends);
    tcase_add_test(tests, history_ends_with_a_queue);
    tcase_add_loop_test(tests, history_ends_and_asks_again, 0, 2);
    tcase_add_loop_test(tests, one_is_silent, 0, 3);
}

Suite *
store_sentinel_suite(void)
{
    Suite *suite = suite_create("store_sentinel");
    TCase *tests = tcase_create("store_sentinel");

    tcase_set_timeout(tests, 120);
    add_greetings(tests);
    add_names(tests);
    add_trust(tests);
    tcase_add_loop_test(
        tests, sentinel_refuses, 0, sizeof(refusals) / sizeof(refusals[0]));
    tcase_add_test(tests, sentinel_refuses_auth);
    tcase_add_test(tests, sentinel_too_slow);
    tcase_add_test(tests, what_is_logged);
    tcase_add_test(tests, no_master_is_logged);
    suite_add_tcase(suite, tests);
    return suite;
}

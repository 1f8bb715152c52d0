/*
 * Odd cases of the client library: incomplete answers, several holds, full and
 * broken sockets, and each result of the blocking calls.
 */
#include "tests/unit/test_client.h"

#include <check.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

Suite *client_odd_suite(void);

static struct talk talk;

static void
setup(void)
{
    talk_init(&talk);
    talk_greet(&talk);
}

static void
teardown(void)
{
    talk_fini(&talk);
}

/* Writes into the socket, for a later read. */
static void
broker_puts(const char *text)
{
    ssize_t sent = send(talk.broker, text, strlen(text), MSG_NOSIGNAL);

    ck_assert_int_eq(sent, (ssize_t)strlen(text));
}

/* --- lines ---------------------------------------------------------------- */

START_TEST(lines_that_mean_nothing)
{
    uint64_t request;

    ck_assert_int_eq(holdfast_submit(talk.h, "STATS", &request), 0);
    talk_say(&talk, "\r\n\n* HELLO proto=1\r\n* NEWS\n* PING\n* PING x\n"
                    "x OK\n7 OK\n1 MAYBE\n1 QUEUED position=3\n");
    ck_assert_str_eq(talk_sent(&talk), "1 STATS\n");
    ck_assert_str_eq(talk_told(&talk), "QUEUED 1  fence=0 until=0 :\n");
    talk_say(&talk, "1 OK\n1 OK\n");
    ck_assert_str_eq(talk_told(&talk), "OK 1  fence=0 until=0 :\n");
    ck_assert_str_eq(holdfast_reason(talk.h), "");
}

END_TEST

START_TEST(line_max_of_the_broker_counts)
{
    char text[CLIENT_LINE_BYTES + 10];
    uint64_t request;

    talk_fini(&talk);
    talk_init(&talk);
    talk_say(&talk, "* HELLO proto=1 max_line=64\n");
    memset(text, 'x', sizeof(text));
    text[62] = '\0'; /* "1 " and LF make 65 */
    ck_assert_int_eq(
        holdfast_submit(talk.h, text, &request), HOLDFAST_BAD_ARGUMENT);
    text[61] = '\0';
    ck_assert_int_eq(holdfast_submit(talk.h, text, &request), HOLDFAST_SUCCESS);
    memset(text, 'x', sizeof(text));
    text[sizeof(text) - 1] = '\0';
    ck_assert_int_eq(
        holdfast_submit(talk.h, text, &request), HOLDFAST_BAD_ARGUMENT);
    ck_assert_int_eq(holdfast_submit(talk.h, ":x", &request), HOLDFAST_SUCCESS);
    ck_assert_int_eq(
        holdfast_submit(talk.h, "a\tb", &request), HOLDFAST_BAD_ARGUMENT);
}

END_TEST

/* --- sockets -------------------------------------------------------------- */

/* Fills the socket, so that some output stays. */
static uint64_t
fill(void)
{
    int few = 4096;
    uint64_t requests = 0;
    uint64_t request;

    ck_assert_int_eq(setsockopt(holdfast_fd(talk.h), SOL_SOCKET, SO_SNDBUF,
                         &few, sizeof(few)),
        0);
    while ((holdfast_events(talk.h) & POLLOUT) == 0) {
        ck_assert_int_eq(holdfast_submit(talk.h, "PING", &request), 0);
        holdfast_process(talk.h, 0);
        ck_assert_uint_lt(++requests, 100000);
    }
    return requests;
}

START_TEST(output_waits_for_room)
{
    uint64_t requests = fill();
    uint64_t request;
    uint64_t lines = 0;

    for (int i = 0; i < 400; i++, requests++)
        ck_assert_int_eq(holdfast_submit(talk.h, "PING", &request), 0);
    for (int round = 0; round < 100 && lines < requests; round++)
        for (const char *at = talk_sent(&talk); (at = strchr(at, '\n')) != NULL;
             at++)
            lines++;
    ck_assert_uint_eq(lines, requests);
    ck_assert_int_eq(holdfast_events(talk.h), POLLIN);
}

END_TEST

START_TEST(broken_while_writing)
{
    uint64_t request;

    ck_assert_int_eq(shutdown(talk.broker, SHUT_RD), 0);
    ck_assert_int_eq(holdfast_submit(talk.h, "PING", &request), 0);
    talk_pass(&talk, 0);
    ck_assert_str_eq(holdfast_reason(talk.h), "Broken pipe");
    ck_assert_int_eq(holdfast_fd(talk.h), -1);
    ck_assert_int_eq(holdfast_timeout_ms(talk.h), -1); /* CLOSED was told */
}

END_TEST

START_TEST(broken_while_reading)
{
    uint64_t request;

    /* Unread input makes the end a reset. */
    ck_assert_int_eq(holdfast_submit(talk.h, "PING", &request), 0);
    holdfast_process(talk.h, 0);
    (void)close(talk.broker);
    talk.broker = -1;
    holdfast_process(talk.h, POLLIN);
    ck_assert_str_eq(holdfast_reason(talk.h), "Connection reset by peer");
    ck_assert_int_eq(holdfast_timeout_ms(talk.h), 0); /* CLOSED is to be told */
    holdfast_poll(talk.h, 1000);                      /* and does not wait */
}

END_TEST

START_TEST(odd_addresses)
{
    static const char *const bad[] = {"[::1", "[::1]x", "[::1]:0", "[]:1", "",
        ":1", "a:", "a:b", "a:1:2", "127.0.0.1:65536"};
    char host[300];
    struct holdfast *h;

    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        ck_assert_int_eq(holdfast_create(bad[i], &h), HOLDFAST_BAD_ADDRESS);
        ck_assert_ptr_null(h);
    }
    memset(host, 'a', sizeof(host));
    host[sizeof(host) - 1] = '\0';
    ck_assert_int_eq(holdfast_create(host, &h), HOLDFAST_BAD_ADDRESS);
    ck_assert_int_eq(holdfast_create("[::1]", &h), HOLDFAST_SUCCESS);
    holdfast_destroy(&h);
    ck_assert_ptr_null(h);
    holdfast_destroy(&h);
}

END_TEST

/* --- blocking calls ------------------------------------------------------- */

START_TEST(a_life_with_blocking_calls)
{
    const struct holdfast_lock_options options = {
        .wait_ms = 500, .lease_ms = 9000, .owner = "me"};
    struct holdfast_hold hold;
    uint64_t us;

    broker_puts("1 OK fence=5 ttl_ms=9000 count=2\n");
    ck_assert_int_eq(holdfast_lock(talk.h, "a", &options, &hold), 0);
    ck_assert_str_eq(hold.name, "a");
    ck_assert_str_eq(hold.owner, "me");
    ck_assert_uint_eq(hold.fence, 5);
    ck_assert_uint_eq(hold.count, 2);
    ck_assert_uint_eq(hold.deadline_ms, TALK_START + 9000);
    broker_puts("2 OK fence=5 ttl_ms=20000\n");
    ck_assert_int_eq(holdfast_renew(talk.h, &hold, 20000), 0);
    ck_assert_uint_eq(hold.ttl_ms, 20000);
    ck_assert_uint_eq(hold.deadline_ms, TALK_START + 20000);
    broker_puts("3 ERR BADREQ retry=0 :no\n");
    ck_assert_int_eq(holdfast_renew(talk.h, &hold, 1), HOLDFAST_REFUSED);
    ck_assert_str_eq(holdfast_error(talk.h), "BADREQ");
    ck_assert_uint_eq(hold.deadline_ms, TALK_START + 20000);
    broker_puts("4 OK ttl_ms=20000\n");
    ck_assert_int_eq(holdfast_ping(talk.h, 1000, &us), HOLDFAST_SUCCESS);
    broker_puts("5 OK count=1\n");
    ck_assert_int_eq(holdfast_unlock(talk.h, &hold), HOLDFAST_SUCCESS);
    broker_puts("6 OK ttl_ms=10000 lease_ms=10000\n");
    ck_assert_int_eq(holdfast_note(talk.h, &hold, "a b"), 0);
    ck_assert_uint_eq(hold.ttl_ms, 10000);
    ck_assert_str_eq(talk_sent(&talk),
        "1 LOCK a wait=500 lease=9000 owner=me\n"
        "2 RENEW a lease=20000 fence=5 owner=me\n"
        "3 RENEW a lease=1 fence=5 owner=me\n"
        "4 PING\n"
        "5 UNLOCK a fence=5 owner=me\n"
        "6 NOTE a note=a%20b fence=5 owner=me\n");
}

END_TEST

/* Some permits are given back, and then the rest. */
START_TEST(blocking_part)
{
    const struct holdfast_lock_options options = {
        .wait_ms = 0, .limit = 9, .permits = 5};
    struct holdfast_hold hold;

    broker_puts("1 OK fence=5 ttl_ms=9000 count=1\n");
    ck_assert_int_eq(holdfast_lock(talk.h, "a", &options, &hold), 0);
    broker_puts("2 OK count=1 permits=3\n");
    ck_assert_int_eq(holdfast_unlock_part(talk.h, &hold, 2), 0);
    ck_assert_uint_eq(holdfast_deadline_ms(talk.h, &hold), TALK_START + 9000);
    broker_puts("3 OK count=0\n");
    ck_assert_int_eq(holdfast_unlock_part(talk.h, &hold, 3), 0);
    ck_assert_uint_eq(holdfast_deadline_ms(talk.h, &hold), 0);
    ck_assert_str_eq(talk_sent(&talk), "1 LOCK a wait=0 limit=9 permits=5\n"
                                       "2 UNLOCK a permits=2 fence=5\n"
                                       "3 UNLOCK a permits=3 fence=5\n");
}

END_TEST

/* The lock is given back, and the broker keeps it free for some time. */
START_TEST(blocking_delay)
{
    const struct holdfast_hold hold = {.name = "a", .fence = 5};

    broker_puts("1 OK count=0\n");
    ck_assert_int_eq(holdfast_unlock_delayed(talk.h, &hold, 1500), 0);
    broker_puts("2 ERR CONFLICT retry=0 :no\n");
    ck_assert_int_eq(
        holdfast_unlock_delayed(talk.h, &hold, 2), HOLDFAST_REFUSED);
    ck_assert_str_eq(talk_sent(&talk),
        "1 UNLOCK a delay=1500 fence=5\n2 UNLOCK a delay=2 fence=5\n");
}

END_TEST

/* All are asked for before the first answer, and the first trouble is told. */
START_TEST(blocking_all)
{
    const struct holdfast_hold holds[17] = {{.name = "a", .fence = 5},
        {.name = "b", .fence = 6}, {.name = "c", .fence = 7}};

    broker_puts("1 OK count=0\n2 ERR LOST retry=0 :no\n"
                "3 ERR NOTHELD retry=0 :no\n");
    ck_assert_int_eq(holdfast_unlock_all(talk.h, holds, 3), HOLDFAST_REFUSED);
    ck_assert_str_eq(holdfast_error(talk.h), "LOST");
    ck_assert_str_eq(talk_sent(&talk),
        "1 UNLOCK a fence=5\n2 UNLOCK b fence=6\n3 UNLOCK c fence=7\n");
    ck_assert_int_eq(
        holdfast_unlock_all(talk.h, holds, 17), HOLDFAST_BAD_ARGUMENT);
}

END_TEST

START_TEST(blocking_without_options)
{
    const struct holdfast_lock_options forever = {.wait_ms = HOLDFAST_FOREVER};
    struct holdfast_hold hold;

    broker_puts("1 OK fence=5 ttl_ms=9000\n");
    ck_assert_int_eq(holdfast_lock(talk.h, "a", NULL, &hold), 0);
    ck_assert_uint_eq(hold.count, 1);
    ck_assert_str_eq(hold.owner, "");
    broker_puts("2 ERR BUSY retry=1 :no\n");
    ck_assert_int_eq(
        holdfast_lock(talk.h, "b", &forever, &hold), HOLDFAST_REFUSED);
    ck_assert_str_eq(holdfast_error(talk.h), "BUSY");
    ck_assert_str_eq(hold.name, "a");
}

END_TEST

START_TEST(blocking_calls_in_vain)
{
    struct holdfast_event event;
    struct holdfast_hold hold = {.fence = 5};
    uint64_t us;

    ck_assert_int_eq(
        holdfast_lock(talk.h, "", NULL, &hold), HOLDFAST_BAD_ARGUMENT);
    ck_assert_int_eq(holdfast_unlock(talk.h, &hold), HOLDFAST_BAD_ARGUMENT);
    ck_assert_int_eq(holdfast_renew(talk.h, &hold, 1), HOLDFAST_BAD_ARGUMENT);
    ck_assert_int_eq(holdfast_ping(talk.h, 0, &us), HOLDFAST_TIMED_OUT);
    ck_assert_int_eq(holdfast_wait(talk.h, 1, 0, &event), HOLDFAST_TIMED_OUT);
    (void)shutdown(talk.broker, SHUT_WR);
    ck_assert_int_eq(
        holdfast_wait(talk.h, 1, 1000, &event), HOLDFAST_NOT_CONNECTED);
    ck_assert_int_eq(holdfast_ping(talk.h, 1000, &us), HOLDFAST_NOT_CONNECTED);
    ck_assert_int_eq(
        holdfast_connect_wait(talk.h, 1000), HOLDFAST_NOT_CONNECTED);
}

END_TEST

START_TEST(greeting_is_waited_for)
{
    struct holdfast_event event;

    talk_fini(&talk);
    talk_init(&talk);
    ck_assert_int_eq(holdfast_connect_wait(talk.h, 0), HOLDFAST_TIMED_OUT);
    broker_puts("* DRAIN grace_ms=1\n* HELLO proto=1 session=s server=x\n");
    ck_assert_int_eq(holdfast_connect_wait(talk.h, 1000), HOLDFAST_SUCCESS);
    ck_assert_str_eq(holdfast_session(talk.h), "s");
    ck_assert_str_eq(holdfast_server(talk.h), "x");
    ck_assert(holdfast_next(talk.h, &event));
    ck_assert_int_eq(event.kind, HOLDFAST_DRAIN);
    ck_assert(!holdfast_next(talk.h, &event)); /* HELLO was taken out */
    ck_assert_int_eq(holdfast_connect_wait(talk.h, 0), HOLDFAST_SUCCESS);
}

END_TEST

START_TEST(status_texts_differ)
{
    for (int a = HOLDFAST_SUCCESS; a <= HOLDFAST_FULL; a++)
        for (int b = HOLDFAST_SUCCESS; b <= HOLDFAST_FULL + 1; b++) {
            const char *one = holdfast_status_text((enum holdfast_status)a);
            const char *other = holdfast_status_text((enum holdfast_status)b);
            ck_assert_int_eq(strcmp(one, other) == 0, a == b);
        }
}

END_TEST

static const struct talk_script scripts[] = {
    {"survey_takes_only_what_makes_sense",
        "lock a lease=9000 | >* | lock b owner=me | >*\n"
        "< 1 OK fence=5 ttl_ms=9000 count=1\n"
        "< 2 OK fence=6 ttl_ms=9000 count=1 | +3000 | > 3 HELD\n"
        "< 3 ITEM fence=5 ttl_ms=1 | < 3 ITEM name=a fence=5\n"
        "< 3 ITEM name=a ttl_ms=1 | < 3 ITEM name=a fence=4 ttl_ms=1\n"
        "< 3 ITEM name=a owner=me fence=5 ttl_ms=1\n"
        "< 3 ITEM name=c fence=5 ttl_ms=1\n"
        "< 3 ITEM name=b owner=me fence=6 ttl_ms=6000\n"
        "< 3 ITEM name=a fence=5 ttl_ms=7500 | < 3 OK | until a 5 10500\n"
        "until b/me 6 9000\n"
        /* The least ttl decides the next question. */
        "timeout 2000\n"},
    {"survey_of_nothing_is_asked_again",
        "lock a lease=9000 | >* | lock b | >*\n"
        "< 1 OK fence=5 ttl_ms=9000 count=1\n"
        "< 2 OK fence=6 ttl_ms=9000 count=1 | +3000 | >* | < 3 OK\n"
        "until a 5 9000 | timeout 1000 | +1000 | > 4 HELD\n"},
    {"ping_that_is_refused_moves_nothing",
        "lock a | >* | < 1 OK fence=5 ttl_ms=9000 count=1 | +3000\n"
        "> 2 PING | < 2 ERR LIMIT retry=1 :too much | until a 5 9000\n"
        "timeout 1000 | +1000 | > 3 PING\n"
        /* An answer without a ttl, or with one out of range, moves nothing. */
        "< 3 OK | +1000 | > 4 PING | < 4 OK ttl_ms=18446744073709551615\n"
        "until a 5 9000\n"},
    {"short_times_are_not_asked_about_without_pause",
        "margin 0 | lock a | >* | < 1 OK fence=5 ttl_ms=90 count=1 | +30\n"
        "> 2 PING | < 2 OK ttl_ms=90 | +49 | > | +1 | > 3 PING\n"},
    {"margin_beyond_the_deadline", "margin 18446744073709551614 | lock a | >*\n"
                                   "< 1 OK fence=5 ttl_ms=9000 count=1\n"
                                   "= OK 1  fence=5 until=1009000 :\n"
                                   "= DEADLINE 1 a fence=5 until=1009000 :\n"},
    {"lost_is_of_the_fence_that_it_names",
        "lock a | >* | < 1 OK fence=5 ttl_ms=9000 count=1 | =*\n"
        "< * LOST a fence=4 | < * LOST ab fence=5 | < * LOST b fence=5\n"
        "until a 5 9000 | = LOST 0 a fence=4 until=0 :\n"
        "= LOST 0 ab fence=5 until=0 : | = LOST 0 b fence=5 until=0 :\n"
        "< * LOST a | until a 5 0 | = LOST 1 a fence=0 until=0 :\n"},
    {"count_that_is_missing_is_one",
        "lock a | >* | < 1 OK fence=5 ttl_ms=9000 | unlock a 0\n"
        "until a 5 0\n"
        /* the hold is being released */
        "< 2 OK | lock a | >* | < 3 OK fence=6 ttl_ms=9000 count=0\n"
        "until a 6 9000 | unlock a 6 | < 4 ERR LOST retry=0 :it is gone\n"
        "until a 6 0\n"
        /* Without holds there are no questions. */
        "timeout -1\n"},
    {"holds_are_by_owner",
        "lock a owner=me | >* | lock a owner=you | >*\n"
        "< 1 OK fence=5 ttl_ms=9000 count=1\n"
        "< 2 OK fence=6 ttl_ms=8000 count=1 | until a/me 5 9000\n"
        "until a/you 6 8000 | until a 5 0 | < * LOST a fence=5\n"
        "until a/me 5 0 | until a/you 6 8000\n"},
    {"renewal_of_what_is_not_held",
        "renew a/me 5 3000 | > 1 RENEW a lease=3000 fence=5 owner=me\n"
        "< 1 OK fence=5 ttl_ms=3000 | until a/me 5 0 | lock b lease=9000\n"
        ">* | < 2 OK fence=6 ttl_ms=9000 count=1 | renew b 0 3000\n"
        "< 3 OK fence=6\n"
        /* the answer has no ttl */
        "until b 6 9000 | renew b 0 3000\n"
        "< 4 ERR BADREQ retry=0 :no lease | until b 6 9000\n"},
    {"several_old_grants_are_confirmed_together",
        "lock a | >* | lock b | >* | @60000\n"
        "< 1 OK fence=5 ttl_ms=9000 count=1\n"
        "< 2 OK fence=6 ttl_ms=9000 count=1 | =* | > 3 PING | @100\n"
        "< 3 OK ttl_ms=8000 | =* | until a 5 68000\n"
        "until b 6 68000\n"},
    {"own_questions_are_not_told_of",
        /* The program does not see answers to the library's own requests. */
        "lock a | >* | < 1 OK fence=5 ttl_ms=9000 count=1 | =* | +3000\n"
        "> 2 PING | < 2 QUEUED position=1 | < 2 ITEM name=a\n"
        "< 2 OK ttl_ms=9000 | = | until a 5 12000\n"},
};

START_TEST(script)
{
    talk_run(&talk, &scripts[_i], NULL);
}

END_TEST

Suite *
client_odd_suite(void)
{
    Suite *suite = suite_create("client_odd");
    TCase *holds = tcase_create("holds");
    TCase *calls = tcase_create("calls");

    tcase_add_checked_fixture(holds, setup, teardown);
    tcase_add_loop_test(
        holds, script, 0, (int)(sizeof(scripts) / sizeof(scripts[0])));
    tcase_add_checked_fixture(calls, setup, teardown);
    tcase_add_test(calls, lines_that_mean_nothing);
    tcase_add_test(calls, line_max_of_the_broker_counts);
    tcase_add_test(calls, output_waits_for_room);
    tcase_add_test(calls, broken_while_writing);
    tcase_add_test(calls, broken_while_reading);
    tcase_add_test(calls, odd_addresses);
    tcase_add_test(calls, a_life_with_blocking_calls);
    tcase_add_test(calls, blocking_part);
    tcase_add_test(calls, blocking_delay);
    tcase_add_test(calls, blocking_all);
    tcase_add_test(calls, blocking_without_options);
    tcase_add_test(calls, blocking_calls_in_vain);
    tcase_add_test(calls, greeting_is_waited_for);
    tcase_add_test(calls, status_texts_differ);
    suite_add_tcase(suite, holds);
    suite_add_tcase(suite, calls);
    return suite;
}

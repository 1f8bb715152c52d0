/*
 * The client library where things are odd: answers without what belongs in
 * them, several holds at once, sockets that are full or broken, and the
 * blocking calls with each of their outcomes.
 */
#include "tests/unit/test_client.h"

#include <check.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

Suite *client_odd_suite(void);

#define START 1000000u /* where the clock of a talk begins */

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

static void
lock_owner(const char *name, const char *owner, uint64_t lease_ms)
{
    const struct holdfast_lock_options options = {
        .wait_ms = HOLDFAST_FOREVER,
        .lease_ms = lease_ms,
        .owner = owner,
    };
    uint64_t request;

    ck_assert_int_eq(holdfast_submit_lock(talk.h, name, &options, &request), 0);
    (void)talk_sent(&talk);
}

static uint64_t
deadline(const char *name, const char *owner, uint64_t fence)
{
    struct holdfast_hold hold = {.fence = fence};

    (void)snprintf(hold.name, sizeof(hold.name), "%s", name);
    (void)snprintf(hold.owner, sizeof(hold.owner), "%s", owner);
    return holdfast_deadline_ms(talk.h, &hold);
}

/* Into the socket, to be read by what comes. */
static void
broker_puts(const char *text)
{
    ssize_t sent = send(talk.broker, text, strlen(text), MSG_NOSIGNAL);

    ck_assert_int_eq(sent, (ssize_t)strlen(text));
}

/* --- holds ---------------------------------------------------------------- */

START_TEST(survey_takes_only_what_makes_sense)
{
    lock_owner("a", NULL, 9000);
    lock_owner("b", "me", 0);
    talk_say(&talk, "1 OK fence=5 ttl_ms=9000 count=1\n"
                    "2 OK fence=6 ttl_ms=9000 count=1\n");
    talk_pass(&talk, 3000);
    ck_assert_str_eq(talk_sent(&talk), "3 HELD\n");
    talk_say(&talk, "3 ITEM fence=5 ttl_ms=1\n"
                    "3 ITEM name=a fence=5\n"
                    "3 ITEM name=a ttl_ms=1\n"
                    "3 ITEM name=a fence=4 ttl_ms=1\n"
                    "3 ITEM name=a owner=me fence=5 ttl_ms=1\n"
                    "3 ITEM name=c fence=5 ttl_ms=1\n"
                    "3 ITEM name=b owner=me fence=6 ttl_ms=6000\n"
                    "3 ITEM name=a fence=5 ttl_ms=7500\n"
                    "3 OK\n");
    ck_assert_uint_eq(deadline("a", "", 5), START + 3000 + 7500);
    ck_assert_uint_eq(deadline("b", "me", 6), START + 3000 + 6000);
    /* The next question comes by the least of them. */
    ck_assert_int_eq(holdfast_timeout_ms(talk.h), 2000);
}

END_TEST

START_TEST(survey_of_nothing_is_asked_again)
{
    lock_owner("a", NULL, 9000);
    lock_owner("b", NULL, 0);
    talk_say(&talk, "1 OK fence=5 ttl_ms=9000 count=1\n"
                    "2 OK fence=6 ttl_ms=9000 count=1\n");
    talk_pass(&talk, 3000);
    (void)talk_sent(&talk);
    talk_say(&talk, "3 OK\n");
    ck_assert_uint_eq(deadline("a", "", 5), START + 9000);
    ck_assert_int_eq(holdfast_timeout_ms(talk.h), 1000);
    talk_pass(&talk, 1000);
    ck_assert_str_eq(talk_sent(&talk), "4 HELD\n");
}

END_TEST

START_TEST(ping_that_is_refused_moves_nothing)
{
    lock_owner("a", NULL, 0);
    talk_say(&talk, "1 OK fence=5 ttl_ms=9000 count=1\n");
    talk_pass(&talk, 3000);
    ck_assert_str_eq(talk_sent(&talk), "2 PING\n");
    talk_say(&talk, "2 ERR LIMIT retry=1 :too much\n");
    ck_assert_uint_eq(deadline("a", "", 5), START + 9000);
    ck_assert_int_eq(holdfast_timeout_ms(talk.h), 1000);
    talk_pass(&talk, 1000);
    ck_assert_str_eq(talk_sent(&talk), "3 PING\n");
    /* Neither does one without its ttl, or with one beyond all bounds. */
    talk_say(&talk, "3 OK\n");
    talk_pass(&talk, 1000);
    ck_assert_str_eq(talk_sent(&talk), "4 PING\n");
    talk_say(&talk, "4 OK ttl_ms=18446744073709551615\n");
    ck_assert_uint_eq(deadline("a", "", 5), START + 9000);
}

END_TEST

START_TEST(short_times_are_not_asked_about_without_pause)
{
    holdfast_set_margin(talk.h, 0);
    lock_owner("a", NULL, 0);
    talk_say(&talk, "1 OK fence=5 ttl_ms=90 count=1\n");
    talk_pass(&talk, 30);
    ck_assert_str_eq(talk_sent(&talk), "2 PING\n");
    talk_say(&talk, "2 OK ttl_ms=90\n");
    talk_pass(&talk, 49);
    ck_assert_str_eq(talk_sent(&talk), "");
    talk_pass(&talk, 1);
    ck_assert_str_eq(talk_sent(&talk), "3 PING\n");
}

END_TEST

START_TEST(margin_beyond_the_deadline)
{
    holdfast_set_margin(talk.h, UINT64_MAX - 1);
    lock_owner("a", NULL, 0);
    talk_say(&talk, "1 OK fence=5 ttl_ms=9000 count=1\n");
    ck_assert_str_eq(talk_told(&talk),
        "OK 1  fence=5 until=1009000 :\n"
        "DEADLINE 1 a fence=5 until=1009000 :\n");
}

END_TEST

START_TEST(lost_is_of_the_fence_that_it_names)
{
    lock_owner("a", NULL, 0);
    talk_say(&talk, "1 OK fence=5 ttl_ms=9000 count=1\n");
    (void)talk_told(&talk);
    talk_say(&talk, "* LOST a fence=4\n* LOST ab fence=5\n* LOST b fence=5\n");
    ck_assert_uint_eq(deadline("a", "", 5), START + 9000);
    ck_assert_str_eq(talk_told(&talk), "LOST 0 a fence=4 until=0 :\n"
                                       "LOST 0 ab fence=5 until=0 :\n"
                                       "LOST 0 b fence=5 until=0 :\n");
    talk_say(&talk, "* LOST a\n");
    ck_assert_uint_eq(deadline("a", "", 5), 0);
    ck_assert_str_eq(talk_told(&talk), "LOST 1 a fence=0 until=0 :\n");
}

END_TEST

START_TEST(count_that_is_missing_is_one)
{
    uint64_t request;

    lock_owner("a", NULL, 0);
    talk_say(&talk, "1 OK fence=5 ttl_ms=9000\n");
    ck_assert_int_eq(holdfast_submit_unlock(talk.h, "a", NULL, 0, &request), 0);
    ck_assert_uint_eq(deadline("a", "", 5), 0); /* on its way back */
    talk_say(&talk, "2 OK\n");
    lock_owner("a", NULL, 0);
    talk_say(&talk, "3 OK fence=6 ttl_ms=9000 count=0\n");
    ck_assert_uint_eq(deadline("a", "", 6), START + 9000);
    ck_assert_int_eq(holdfast_submit_unlock(talk.h, "a", NULL, 6, &request), 0);
    talk_say(&talk, "4 ERR LOST retry=0 :it is gone\n");
    ck_assert_uint_eq(deadline("a", "", 6), 0);
    /* What is not held any more is nothing to ask about. */
    ck_assert_int_eq(holdfast_timeout_ms(talk.h), -1);
}

END_TEST

START_TEST(holds_are_by_owner)
{
    lock_owner("a", "me", 0);
    lock_owner("a", "you", 0);
    talk_say(&talk, "1 OK fence=5 ttl_ms=9000 count=1\n"
                    "2 OK fence=6 ttl_ms=8000 count=1\n");
    ck_assert_uint_eq(deadline("a", "me", 5), START + 9000);
    ck_assert_uint_eq(deadline("a", "you", 6), START + 8000);
    ck_assert_uint_eq(deadline("a", "", 5), 0);
    talk_say(&talk, "* LOST a fence=5\n");
    ck_assert_uint_eq(deadline("a", "me", 5), 0);
    ck_assert_uint_eq(deadline("a", "you", 6), START + 8000);
}

END_TEST

START_TEST(renewal_of_what_is_not_held)
{
    uint64_t request;

    ck_assert_int_eq(
        holdfast_submit_renew(talk.h, "a", "me", 5, 3000, &request), 0);
    ck_assert_str_eq(
        talk_sent(&talk), "1 RENEW a lease=3000 fence=5 owner=me\n");
    talk_say(&talk, "1 OK fence=5 ttl_ms=3000\n");
    ck_assert_uint_eq(deadline("a", "me", 5), 0);
    lock_owner("b", NULL, 9000);
    talk_say(&talk, "2 OK fence=6 ttl_ms=9000 count=1\n");
    ck_assert_int_eq(
        holdfast_submit_renew(talk.h, "b", NULL, 0, 3000, &request), 0);
    talk_say(&talk, "3 OK fence=6\n"); /* without the time */
    ck_assert_uint_eq(deadline("b", "", 6), START + 9000);
    ck_assert_int_eq(
        holdfast_submit_renew(talk.h, "b", NULL, 0, 3000, &request), 0);
    talk_say(&talk, "4 ERR BADREQ retry=0 :no lease\n");
    ck_assert_uint_eq(deadline("b", "", 6), START + 9000);
}

END_TEST

START_TEST(several_old_grants_are_confirmed_together)
{
    lock_owner("a", NULL, 0);
    lock_owner("b", NULL, 0);
    talk.now_ms += 60000;
    talk_say(&talk, "1 OK fence=5 ttl_ms=9000 count=1\n"
                    "2 OK fence=6 ttl_ms=9000 count=1\n");
    (void)talk_told(&talk);
    ck_assert_str_eq(talk_sent(&talk), "3 PING\n");
    talk.now_ms += 100;
    talk_say(&talk, "3 OK ttl_ms=8000\n");
    (void)talk_told(&talk);
    ck_assert_uint_eq(deadline("a", "", 5), START + 68000);
    ck_assert_uint_eq(deadline("b", "", 6), START + 68000);
}

END_TEST

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

/* What the library asks for itself is nobody else's request. */
START_TEST(own_questions_are_not_told_of)
{
    lock_owner("a", NULL, 0);
    talk_say(&talk, "1 OK fence=5 ttl_ms=9000 count=1\n");
    (void)talk_told(&talk);
    talk_pass(&talk, 3000);
    ck_assert_str_eq(talk_sent(&talk), "2 PING\n");
    talk_say(&talk, "2 QUEUED position=1\n2 ITEM name=a\n2 OK ttl_ms=9000\n");
    ck_assert_str_eq(talk_told(&talk), "");
    ck_assert_uint_eq(deadline("a", "", 5), START + 3000 + 9000);
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

    /* What was not read makes the end a reset. */
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
    ck_assert_uint_eq(hold.deadline_ms, START + 9000);
    broker_puts("2 OK fence=5 ttl_ms=20000\n");
    ck_assert_int_eq(holdfast_renew(talk.h, &hold, 20000), 0);
    ck_assert_uint_eq(hold.ttl_ms, 20000);
    ck_assert_uint_eq(hold.deadline_ms, START + 20000);
    broker_puts("3 ERR BADREQ retry=0 :no\n");
    ck_assert_int_eq(holdfast_renew(talk.h, &hold, 1), HOLDFAST_REFUSED);
    ck_assert_str_eq(holdfast_error(talk.h), "BADREQ");
    ck_assert_uint_eq(hold.deadline_ms, START + 20000);
    broker_puts("4 OK ttl_ms=20000\n");
    ck_assert_int_eq(holdfast_ping(talk.h, 1000, &us), HOLDFAST_SUCCESS);
    broker_puts("5 OK count=1\n");
    ck_assert_int_eq(holdfast_unlock(talk.h, &hold), HOLDFAST_SUCCESS);
    ck_assert_str_eq(talk_sent(&talk),
        "1 LOCK a wait=500 lease=9000 owner=me\n"
        "2 RENEW a lease=20000 fence=5 owner=me\n"
        "3 RENEW a lease=1 fence=5 owner=me\n"
        "4 PING\n"
        "5 UNLOCK a fence=5 owner=me\n");
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

Suite *
client_odd_suite(void)
{
    Suite *suite = suite_create("client_odd");
    TCase *holds = tcase_create("holds");
    TCase *calls = tcase_create("calls");

    tcase_add_checked_fixture(holds, setup, teardown);
    tcase_add_test(holds, survey_takes_only_what_makes_sense);
    tcase_add_test(holds, survey_of_nothing_is_asked_again);
    tcase_add_test(holds, ping_that_is_refused_moves_nothing);
    tcase_add_test(holds, short_times_are_not_asked_about_without_pause);
    tcase_add_test(holds, margin_beyond_the_deadline);
    tcase_add_test(holds, lost_is_of_the_fence_that_it_names);
    tcase_add_test(holds, count_that_is_missing_is_one);
    tcase_add_test(holds, holds_are_by_owner);
    tcase_add_test(holds, renewal_of_what_is_not_held);
    tcase_add_test(holds, several_old_grants_are_confirmed_together);
    tcase_add_checked_fixture(calls, setup, teardown);
    tcase_add_test(calls, lines_that_mean_nothing);
    tcase_add_test(calls, own_questions_are_not_told_of);
    tcase_add_test(calls, line_max_of_the_broker_counts);
    tcase_add_test(calls, output_waits_for_room);
    tcase_add_test(calls, broken_while_writing);
    tcase_add_test(calls, broken_while_reading);
    tcase_add_test(calls, odd_addresses);
    tcase_add_test(calls, a_life_with_blocking_calls);
    tcase_add_test(calls, blocking_without_options);
    tcase_add_test(calls, blocking_calls_in_vain);
    tcase_add_test(calls, greeting_is_waited_for);
    tcase_add_test(calls, status_texts_differ);
    suite_add_tcase(suite, holds);
    suite_add_tcase(suite, calls);
    return suite;
}

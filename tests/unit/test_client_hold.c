/*
 * The client library's deadlines: counted from the sending of the question,
 * told before they pass, never on a grant that is old news.
 */
#include "tests/unit/test_client.h"

#include <check.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

Suite *client_hold_suite(void);

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

static uint64_t
lock(const char *name, uint64_t lease_ms)
{
    const struct holdfast_lock_options options = {
        .wait_ms = HOLDFAST_FOREVER,
        .lease_ms = lease_ms,
    };
    uint64_t request;

    ck_assert_int_eq(holdfast_submit_lock(talk.h, name, &options, &request), 0);
    (void)talk_sent(&talk);
    return request;
}

static uint64_t
deadline(const char *name, uint64_t fence)
{
    struct holdfast_hold hold = {.fence = fence};

    (void)snprintf(hold.name, sizeof(hold.name), "%s", name);
    return holdfast_deadline_ms(talk.h, &hold);
}

START_TEST(counted_from_the_sending)
{
    (void)lock("a", 0);
    talk.now_ms += 2000;
    talk_say(&talk, "1 OK fence=5 ttl_ms=9000 count=1\n");
    ck_assert_str_eq(talk_told(&talk), "OK 1  fence=5 until=1009000 :\n");
    ck_assert_uint_eq(deadline("a", 5), START + 9000);
    ck_assert_uint_eq(deadline("a", 6), 0);
    ck_assert_uint_eq(deadline("b", 5), 0);
}

END_TEST

START_TEST(asks_at_a_third_and_believes_the_answer)
{
    (void)lock("a", 0);
    talk_say(&talk, "1 OK fence=5 ttl_ms=9000 count=1\n");
    ck_assert_int_eq(holdfast_timeout_ms(talk.h), 3000);
    talk_pass(&talk, 2999);
    ck_assert_str_eq(talk_sent(&talk), "");
    talk_pass(&talk, 1);
    ck_assert_str_eq(talk_sent(&talk), "2 PING\n");
    /* The answer is late; it counts from the sending, at START + 3000. */
    talk.now_ms += 4000;
    talk_say(&talk, "2 OK ttl_ms=9000\n");
    ck_assert_uint_eq(deadline("a", 5), START + 12000);
    /* A third of it is over already. */
    ck_assert_str_eq(talk_sent(&talk), "3 PING\n");
}

END_TEST

START_TEST(told_before_it_passes)
{
    (void)lock("a", 0);
    talk_say(&talk, "1 OK fence=5 ttl_ms=4000 count=1\n");
    (void)talk_told(&talk);
    talk_pass(&talk, 3599);
    ck_assert_str_eq(talk_told(&talk), "");
    ck_assert_int_eq(holdfast_timeout_ms(talk.h), 1);
    talk_pass(&talk, 1);
    ck_assert_str_eq(
        talk_told(&talk), "DEADLINE 1 a fence=5 until=1004000 :\n");
    ck_assert_uint_eq(deadline("a", 5), 0);
    /* Once lost, always lost: the answer comes too late. */
    talk_say(&talk, "2 OK ttl_ms=9000\n");
    ck_assert_str_eq(talk_told(&talk), "");
    ck_assert_uint_eq(deadline("a", 5), 0);
}

END_TEST

START_TEST(margin_can_be_set)
{
    holdfast_set_margin(talk.h, 2500);
    (void)lock("a", 0);
    talk_say(&talk, "1 OK fence=5 ttl_ms=9000 count=1\n");
    (void)talk_told(&talk);
    talk_pass(&talk, 6499);
    ck_assert_str_eq(talk_told(&talk), "");
    talk_pass(&talk, 1);
    ck_assert_str_eq(
        talk_told(&talk), "DEADLINE 1 a fence=5 until=1009000 :\n");
}

END_TEST

START_TEST(answer_that_arrived_counts_before_the_clock)
{
    (void)lock("a", 0);
    talk_say(&talk, "1 OK fence=5 ttl_ms=9000 count=1\n");
    talk_pass(&talk, 3000);
    ck_assert_str_eq(talk_sent(&talk), "2 PING\n");
    (void)talk_told(&talk);
    /* The process stood still past the old deadline, but not past the new. */
    talk.now_ms += 7000;
    talk_say(&talk, "2 OK ttl_ms=9000\n");
    ck_assert_str_eq(talk_told(&talk), "");
    ck_assert_uint_eq(deadline("a", 5), START + 12000);
}

END_TEST

START_TEST(latest_word_counts_where_it_is_sooner)
{
    (void)lock("a", 0);
    talk_say(&talk, "1 OK fence=5 ttl_ms=9000 count=1\n");
    talk_pass(&talk, 3000);
    talk_say(&talk, "2 OK ttl_ms=1000\n");
    ck_assert_uint_eq(deadline("a", 5), START + 4000);
}

END_TEST

START_TEST(nothing_is_asked_without_holds)
{
    uint64_t request;

    ck_assert_int_eq(holdfast_timeout_ms(talk.h), -1);
    (void)lock("a", 0);
    talk_say(&talk, "1 OK fence=5 ttl_ms=9000 count=1\n");
    ck_assert_int_eq(holdfast_submit_unlock(talk.h, "a", NULL, 5, &request), 0);
    ck_assert_str_eq(talk_sent(&talk), "2 UNLOCK a fence=5\n");
    /* It is on its way back: its deadline is nobody's business. */
    ck_assert_uint_eq(deadline("a", 5), 0);
    talk_say(&talk, "2 OK count=0\n");
    (void)talk_told(&talk);
    talk_pass(&talk, 60000);
    ck_assert_str_eq(talk_sent(&talk), "");
    ck_assert_str_eq(talk_told(&talk), "");
    ck_assert_int_eq(holdfast_timeout_ms(talk.h), -1);
}

END_TEST

START_TEST(failed_unlock_holds_on)
{
    uint64_t request;

    (void)lock("a", 0);
    talk_say(&talk, "1 OK fence=5 ttl_ms=9000 count=1\n");
    (void)holdfast_submit_unlock(talk.h, "a", NULL, 5, &request);
    talk_say(&talk, "2 ERR UNAVAILABLE retry=1\n");
    ck_assert_uint_eq(deadline("a", 5), START + 9000);
    (void)holdfast_submit_unlock(talk.h, "a", NULL, 5, &request);
    talk_say(&talk, "3 OK ttl_ms=9000\n4 ERR NOTHELD retry=0\n");
    ck_assert_uint_eq(deadline("a", 5), 0);
}

END_TEST

START_TEST(unlock_in_doubt_holds_nothing)
{
    uint64_t request;

    (void)lock("a", 0);
    (void)lock("b", 0);
    talk_say(&talk, "1 OK fence=5 ttl_ms=9000 count=1\n"
                    "2 OK fence=6 ttl_ms=9000 count=2\n");
    (void)holdfast_submit_unlock(talk.h, "a", NULL, 5, &request);
    (void)holdfast_submit_unlock(talk.h, "b", NULL, 6, &request);
    (void)talk_told(&talk);
    (void)talk_sent(&talk);
    talk_say(&talk, "3 ERR INDOUBT retry=1 :no answer\n"
                    "4 ERR INDOUBT retry=1 :the broker is going\n");
    ck_assert_str_eq(talk_told(&talk),
        "ERR 3 INDOUBT fence=0 until=0 :no answer\n"
        "ERR 4 INDOUBT fence=0 until=0 :the broker is going\n");
    /* One was entered twice. */
    ck_assert_uint_eq(deadline("a", 5), 0);
    ck_assert_uint_eq(deadline("b", 6), START + 9000);
    ck_assert_str_eq(talk_sent(&talk), "5 PING\n");
    talk_say(&talk, "5 OK ttl_ms=9500\n");
    ck_assert_uint_eq(deadline("a", 5), 0);
    ck_assert_uint_eq(deadline("b", 6), START + 9500);
}

END_TEST

START_TEST(lost_ends_a_hold)
{
    (void)lock("a", 0);
    talk_say(&talk, "1 OK fence=5 ttl_ms=9000 count=1\n"
                    "* LOST a fence=4 reason=expired\n");
    ck_assert_uint_eq(deadline("a", 5), START + 9000);
    (void)talk_told(&talk);
    talk_say(&talk, "* LOST a fence=5 reason=backend\n");
    ck_assert_str_eq(talk_told(&talk), "LOST 1 a fence=5 until=0 :\n");
    ck_assert_uint_eq(deadline("a", 5), 0);
}

END_TEST

START_TEST(reentry_counts)
{
    uint64_t request;

    (void)lock("a", 0);
    talk_say(&talk, "1 OK fence=5 ttl_ms=9000 count=1\n");
    (void)lock("a", 0);
    talk_say(&talk, "2 OK fence=5 ttl_ms=9000 count=2\n");
    (void)holdfast_submit_unlock(talk.h, "a", NULL, 5, &request);
    ck_assert_uint_eq(deadline("a", 5), START + 9000);
    talk_say(&talk, "3 OK count=1\n");
    ck_assert_uint_eq(deadline("a", 5), START + 9000);
    (void)holdfast_submit_unlock(talk.h, "a", NULL, 5, &request);
    ck_assert_uint_eq(deadline("a", 5), 0);
    talk_say(&talk, "4 OK count=0\n");
    ck_assert_uint_eq(deadline("a", 5), 0);
}

END_TEST

START_TEST(grant_after_a_wait_is_confirmed_first)
{
    (void)lock("a", 0);
    talk.now_ms += 9500;
    talk_say(&talk, "1 OK fence=5 ttl_ms=9000 count=1\n");
    ck_assert_str_eq(talk_told(&talk), "");
    ck_assert_str_eq(talk_sent(&talk), "2 PING\n");
    talk.now_ms += 10;
    talk_say(&talk, "2 OK ttl_ms=8990\n");
    ck_assert_str_eq(talk_told(&talk), "OK 1  fence=5 until=1018490 :\n");
    ck_assert_uint_eq(deadline("a", 5), START + 9500 + 8990);
}

END_TEST

START_TEST(old_grants_of_one_lock_are_confirmed_together)
{
    static const char *const both[] = {"a", "b"};
    uint64_t request;

    (void)lock("a", 0);
    (void)lock("b", 0);
    (void)lock("a", 0);
    (void)holdfast_submit_lock_all(talk.h, both, 2, NULL, &request);
    (void)talk_sent(&talk);
    talk.now_ms += 9500;
    talk_say(&talk, "1 OK fence=5 ttl_ms=9000 count=1\n"
                    "2 OK fence=6 ttl_ms=9000 count=1\n"
                    "3 OK fence=5 ttl_ms=9000 count=2\n"
                    "4 OK fence=5,6 ttl_ms=9000 count=2\n");
    ck_assert_str_eq(talk_told(&talk), "");
    ck_assert_str_eq(talk_sent(&talk), "5 PING\n");
    talk.now_ms += 10;
    talk_say(&talk, "5 OK ttl_ms=8990\n");
    ck_assert_str_eq(talk_told(&talk), "OK 1  fence=5 until=1018490 :\n"
                                       "OK 3  fence=5 until=1018490 :\n"
                                       "OK 2  fence=6 until=1018490 :\n"
                                       "OK 4  fence=5 until=1018490 :\n");
    ck_assert_uint_eq(deadline("a", 5), START + 9500 + 8990);
    ck_assert_uint_eq(deadline("b", 6), START + 9500 + 8990);
}

END_TEST

START_TEST(answers_on_the_way_date_a_grant)
{
    uint64_t request;

    (void)lock("a", 0);
    talk.now_ms += 9000;
    (void)holdfast_submit(talk.h, "HELP", &request);
    talk.now_ms += 100;
    /* The broker wrote this OK after it had read HELP: so it is fresh. */
    talk_say(&talk, "2 OK n=0\n1 OK fence=5 ttl_ms=9000 count=1\n");
    ck_assert_str_eq(talk_told(&talk), "OK 2  fence=0 until=0 :\n"
                                       "OK 1  fence=5 until=1018000 :\n");
}

END_TEST

START_TEST(grant_and_loss_while_standing_still)
{
    (void)lock("a", 0);
    talk.now_ms += 60000;
    talk_say(&talk, "1 OK fence=5 ttl_ms=9000 count=1\n"
                    "* LOST a fence=5 reason=expired\n");
    /* Both, in their order; no program begins to work in between. */
    ck_assert_str_eq(talk_told(&talk), "OK 1  fence=5 until=1009000 :\n"
                                       "LOST 1 a fence=5 until=0 :\n");
    ck_assert_uint_eq(deadline("a", 5), 0);
}

END_TEST

START_TEST(waiting_asks_for_signs_of_life)
{
    (void)lock("a", 0);
    talk_pass(&talk, CLIENT_WAITING_MS);
    ck_assert_str_eq(talk_sent(&talk), "2 PING\n");
    talk_say(&talk, "2 OK\n");
    talk_pass(&talk, CLIENT_WAITING_MS);
    ck_assert_str_eq(talk_sent(&talk), "3 PING\n");
    talk_pass(&talk, CLIENT_SILENCE_MS - 1);
    ck_assert_str_eq(talk_told(&talk), "");
    talk_pass(&talk, 1);
    ck_assert_str_eq(
        talk_told(&talk), "CLOSED 0  fence=0 until=0 :the broker is silent\n");
}

END_TEST

START_TEST(renew_sets_the_deadline)
{
    uint64_t request;

    (void)lock("a", 60000);
    talk_say(&talk, "1 OK fence=5 ttl_ms=9000 count=1\n");
    talk.now_ms += 1000;
    (void)holdfast_submit_renew(talk.h, "a", NULL, 5, 2000, &request);
    talk.now_ms += 100;
    talk_say(&talk, "2 OK ttl_ms=2000\n");
    ck_assert_uint_eq(deadline("a", 5), START + 3000);
}

END_TEST

/* PING leaves a lease out, be it alone; HELD tells of it. */
START_TEST(lease_is_not_pinged)
{
    (void)lock("a", 6000);
    talk_say(&talk, "1 OK fence=5 ttl_ms=3000 count=1\n");
    (void)talk_told(&talk);
    talk_pass(&talk, 1000);
    ck_assert_str_eq(talk_sent(&talk), "2 HELD\n");
    talk_say(&talk, "2 ITEM name=a fence=5 ttl_ms=3000 count=1\n2 OK n=1\n");
    ck_assert_uint_eq(deadline("a", 5), START + 1000 + 3000);
}

END_TEST

/* Nor does a PING of before set its end. */
START_TEST(lease_is_not_pinged_meanwhile)
{
    (void)lock("a", 0);
    talk_say(&talk, "1 OK fence=5 ttl_ms=9000 count=1\n");
    (void)talk_told(&talk);
    talk_pass(&talk, 3000);
    ck_assert_str_eq(talk_sent(&talk), "2 PING\n");
    (void)lock("b", 4000);
    talk_say(&talk, "3 OK fence=6 ttl_ms=4000 count=1\n2 OK ttl_ms=9000\n");
    ck_assert_uint_eq(deadline("a", 5), START + 3000 + 9000);
    ck_assert_uint_eq(deadline("b", 6), START + 3000 + 4000);
}

END_TEST

START_TEST(lease_does_not_shorten_the_others)
{
    (void)lock("a", 0);
    (void)lock("b", 4000);
    talk_say(&talk, "1 OK fence=5 ttl_ms=9000 count=1\n"
                    "2 OK fence=6 ttl_ms=4000 count=1\n");
    (void)talk_told(&talk);
    talk_pass(&talk, 1334);
    ck_assert_str_eq(talk_sent(&talk), "3 HELD\n");
    talk_say(&talk, "3 ITEM name=a fence=5 ttl_ms=9000 count=1\n"
                    "3 ITEM name=b fence=6 ttl_ms=2666 count=1\n"
                    "3 OK n=2\n");
    ck_assert_str_eq(talk_told(&talk), "");
    ck_assert_uint_eq(deadline("a", 5), START + 1334 + 9000);
    ck_assert_uint_eq(deadline("b", 6), START + 4000);
    talk_say(&talk, "* LOST b fence=6 reason=expired\n");
    talk_pass(&talk, 1000);
    /* With the lease gone a PING says all. */
    ck_assert_str_eq(talk_sent(&talk), "4 PING\n");
}

END_TEST

START_TEST(end_of_the_connection_ends_all)
{
    (void)lock("a", 0);
    talk_say(&talk, "1 OK fence=5 ttl_ms=9000 count=1\n");
    (void)talk_told(&talk);
    talk_say(&talk, "nonsense\n");
    ck_assert_str_eq(talk_told(&talk),
        "CLOSED 0  fence=0 until=0 :a line of the broker is malformed\n");
    ck_assert_uint_eq(deadline("a", 5), 0);
}

END_TEST

START_TEST(end_of_the_connection_comes_before_a_deadline)
{
    (void)lock("a", 0);
    talk_say(&talk, "1 OK fence=5 ttl_ms=9000 count=1\n");
    (void)talk_told(&talk);
    ck_assert_int_eq(shutdown(talk.broker, SHUT_RDWR), 0);
    talk_pass(&talk, 9000);
    ck_assert_str_eq(talk_told(&talk),
        "CLOSED 0  fence=0 until=0 :the broker closed the connection\n");
}

END_TEST

START_TEST(grant_without_fence_is_refused)
{
    (void)lock("a", 0);
    talk_say(&talk, "1 OK ttl_ms=9000 count=1\n");
    ck_assert_str_eq(talk_told(&talk),
        "CLOSED 0  fence=0 until=0 :an OK of the broker lacks fence or "
        "ttl_ms\n");
}

END_TEST

/* In a worker: nothing is held, and all that is called says so. */
static bool
worker_has_nothing(void)
{
    struct holdfast_hold hold;
    struct holdfast_event event;
    uint64_t request;

    holdfast_process(talk.h, POLLIN | POLLOUT);
    bool ended =
        holdfast_fd(talk.h) == -1 && deadline("a", 5) == 0 &&
        holdfast_next(talk.h, &event) && event.kind == HOLDFAST_CLOSED &&
        strstr(event.text, "fork") != NULL && !holdfast_next(talk.h, &event) &&
        holdfast_timeout_ms(talk.h) == -1;
    bool refused =
        holdfast_lock(talk.h, "b", NULL, &hold) == HOLDFAST_NOT_CONNECTED &&
        holdfast_submit(talk.h, "PING", &request) == HOLDFAST_NOT_CONNECTED;
    holdfast_destroy(&talk.h);
    return ended && refused;
}

/* Its parent is killed, and it lives on: the broker sees the end. */
START_TEST(worker_keeps_no_lock)
{
    char got[64];
    int gate[2];
    char byte;

    (void)lock("a", 0);
    talk_say(&talk, "1 OK fence=5 ttl_ms=9000 count=1\n");
    (void)talk_told(&talk);
    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, gate), 0);
    pid_t worker = fork();
    if (worker == 0) {
        (void)close(gate[0]);
        byte = worker_has_nothing() ? 'y' : 'n';
        (void)!write(gate[1], &byte, 1);
        _exit((int)read(gate[1], &byte, 1));
    }
    (void)close(gate[1]);
    ck_assert_int_eq(read(gate[0], &byte, 1), 1);
    ck_assert_int_eq(byte, 'y');
    /* The parent's is as it was. */
    ck_assert_uint_eq(deadline("a", 5), START + 9000);
    talk_pass(&talk, 3000);
    ck_assert_str_eq(talk_sent(&talk), "2 PING\n");
    (void)close(talk.h->fd);
    ck_assert_int_eq(recv(talk.broker, got, sizeof(got), MSG_DONTWAIT), 0);
    talk.h->fd = -1;
    (void)close(gate[0]);
    ck_assert_int_eq(waitpid(worker, NULL, 0), worker);
}

END_TEST

Suite *
client_hold_suite(void)
{
    Suite *suite = suite_create("client_hold");
    TCase *tcase = tcase_create("deadlines");

    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, counted_from_the_sending);
    tcase_add_test(tcase, asks_at_a_third_and_believes_the_answer);
    tcase_add_test(tcase, told_before_it_passes);
    tcase_add_test(tcase, margin_can_be_set);
    tcase_add_test(tcase, answer_that_arrived_counts_before_the_clock);
    tcase_add_test(tcase, latest_word_counts_where_it_is_sooner);
    tcase_add_test(tcase, nothing_is_asked_without_holds);
    tcase_add_test(tcase, failed_unlock_holds_on);
    tcase_add_test(tcase, unlock_in_doubt_holds_nothing);
    tcase_add_test(tcase, lost_ends_a_hold);
    tcase_add_test(tcase, reentry_counts);
    tcase_add_test(tcase, grant_after_a_wait_is_confirmed_first);
    tcase_add_test(tcase, old_grants_of_one_lock_are_confirmed_together);
    tcase_add_test(tcase, answers_on_the_way_date_a_grant);
    tcase_add_test(tcase, grant_and_loss_while_standing_still);
    tcase_add_test(tcase, waiting_asks_for_signs_of_life);
    tcase_add_test(tcase, renew_sets_the_deadline);
    tcase_add_test(tcase, lease_is_not_pinged);
    tcase_add_test(tcase, lease_is_not_pinged_meanwhile);
    tcase_add_test(tcase, lease_does_not_shorten_the_others);
    tcase_add_test(tcase, end_of_the_connection_ends_all);
    tcase_add_test(tcase, end_of_the_connection_comes_before_a_deadline);
    tcase_add_test(tcase, grant_without_fence_is_refused);
    tcase_add_test(tcase, worker_keeps_no_lock);
    suite_add_tcase(suite, tcase);
    return suite;
}

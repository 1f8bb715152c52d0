/*
 * Deadlines of the client library: they count from the sending of the question,
 * and are reported before they pass. An old grant waits for a confirmation.
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

/* Whether a worker holds nothing, and each call says so. */
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

/* The parent is killed, and the worker lives on: the broker sees the end. */
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
    /* The parent's connection is unchanged. */
    ck_assert_uint_eq(deadline("a", 5), TALK_START + 9000);
    talk_pass(&talk, 3000);
    ck_assert_str_eq(talk_sent(&talk), "2 PING\n");
    (void)close(talk.h->fd);
    ck_assert_int_eq(recv(talk.broker, got, sizeof(got), MSG_DONTWAIT), 0);
    talk.h->fd = -1;
    (void)close(gate[0]);
    ck_assert_int_eq(waitpid(worker, NULL, 0), worker);
}

END_TEST

static const struct talk_script scripts[] = {
    {"counted_from_the_sending",
        "lock a | >* | @2000 | < 1 OK fence=5 ttl_ms=9000 count=1\n"
        "= OK 1  fence=5 until=1009000 : | until a 5 9000 | until a 6 0\n"
        "until b 5 0\n"},
    {"asks_at_a_third_and_believes_the_answer",
        "lock a | >* | < 1 OK fence=5 ttl_ms=9000 count=1 | timeout 3000\n"
        "+2999 | > | +1 | > 2 PING\n"
        /* The answer is late, and counts from the sending after 3 s. */
        "@4000 | < 2 OK ttl_ms=9000 | until a 5 12000\n"
        /* A third of the time has passed already. */
        "> 3 PING\n"},
    {"told_before_it_passes",
        "lock a | >* | < 1 OK fence=5 ttl_ms=4000 count=1 | =* | +3599 | =\n"
        "timeout 1 | +1 | = DEADLINE 1 a fence=5 until=1004000 :\n"
        "until a 5 0\n"
        /* The answer comes too late. */
        "< 2 OK ttl_ms=9000 | = | until a 5 0\n"},
    {"margin_can_be_set",
        "margin 2500 | lock a | >* | < 1 OK fence=5 ttl_ms=9000 count=1\n"
        "=* | +6499 | = | +1 | = DEADLINE 1 a fence=5 until=1009000 :\n"},
    {"answer_that_arrived_counts_before_the_clock",
        "lock a | >* | < 1 OK fence=5 ttl_ms=9000 count=1 | +3000\n"
        "> 2 PING | =*\n"
        /* The process stood still past the old deadline, not the new one. */
        "@7000 | < 2 OK ttl_ms=9000 | = | until a 5 12000\n"},
    {"latest_word_counts_where_it_is_sooner",
        "lock a | >* | < 1 OK fence=5 ttl_ms=9000 count=1 | +3000\n"
        "< 2 OK ttl_ms=1000 | until a 5 4000\n"},
    {"nothing_is_asked_without_holds",
        "timeout -1 | lock a | >* | < 1 OK fence=5 ttl_ms=9000 count=1\n"
        "unlock a 5 | > 2 UNLOCK a fence=5\n"
        /* A hold that is being released has no deadline. */
        "until a 5 0 | < 2 OK count=0 | =* | +60000 | > | = | timeout -1\n"},
    {"failed_unlock_holds_on",
        "lock a | >* | < 1 OK fence=5 ttl_ms=9000 count=1 | unlock a 5\n"
        "< 2 ERR UNAVAILABLE retry=1 | until a 5 9000 | unlock a 5\n"
        "< 3 OK ttl_ms=9000 | < 4 ERR NOTHELD retry=0 | until a 5 0\n"},
    {"unlock_in_doubt_holds_nothing",
        "lock a | lock b | lock c | < 1 OK fence=5 ttl_ms=9000 count=1\n"
        "< 2 OK fence=6 ttl_ms=9000 count=2\n"
        "< 3 OK fence=7 ttl_ms=9000 count=1\n"
        "unlock a 5 | unlock b 6 | unlock c 7 | =* | >*\n"
        "< 4 ERR INDOUBT retry=1 :no answer\n"
        "< 5 ERR INDOUBT retry=1 :the broker is going\n"
        "< 6 ERR INTERNAL retry=0 :a damaged record\n"
        "= ERR 4 INDOUBT fence=0 until=0 :no answer\n"
        "= ERR 5 INDOUBT fence=0 until=0 :the broker is going\n"
        "= ERR 6 INTERNAL fence=0 until=0 :a damaged record\n"
        /* The count of b was 2. */
        "until a 5 0 | until b 6 9000 | until c 7 0 | > 7 PING\n"
        "< 7 OK ttl_ms=9500 | until a 5 0 | until b 6 9500 | until c 7 0\n"},
    {"lost_ends_a_hold",
        "lock a | >* | < 1 OK fence=5 ttl_ms=9000 count=1\n"
        "< * LOST a fence=4 reason=expired | until a 5 9000 | =*\n"
        "< * LOST a fence=5 reason=backend | = LOST 1 a fence=5 until=0 :\n"
        "until a 5 0\n"},
    {"reentry_counts",
        "lock a | >* | < 1 OK fence=5 ttl_ms=9000 count=1 | lock a | >*\n"
        "< 2 OK fence=5 ttl_ms=9000 count=2 | unlock a 5 | until a 5 9000\n"
        "< 3 OK count=1 | until a 5 9000 | unlock a 5 | until a 5 0\n"
        "< 4 OK count=0 | until a 5 0\n"},
    {"grant_after_a_wait_is_confirmed_first",
        "lock a | >* | @9500 | < 1 OK fence=5 ttl_ms=9000 count=1 | =\n"
        "> 2 PING | @10 | < 2 OK ttl_ms=8990\n"
        "= OK 1  fence=5 until=1018490 : | until a 5 18490\n"},
    {"old_grants_of_one_lock_are_confirmed_together",
        "lock a | >* | lock b | >* | lock a | >* | lock a,b | >* | @9500\n"
        "< 1 OK fence=5 ttl_ms=9000 count=1\n"
        "< 2 OK fence=6 ttl_ms=9000 count=1\n"
        "< 3 OK fence=5 ttl_ms=9000 count=2\n"
        "< 4 OK fence=5,6 ttl_ms=9000 count=2 | = | > 5 PING | @10\n"
        "< 5 OK ttl_ms=8990 | = OK 1  fence=5 until=1018490 :\n"
        "= OK 3  fence=5 until=1018490 : | = OK 2  fence=6 until=1018490 :\n"
        "= OK 4  fence=5 until=1018490 : | until a 5 18490\n"
        "until b 6 18490\n"},
    {"answers_on_the_way_date_a_grant",
        "lock a | >* | @9000 | submit HELP | @100\n"
        /* The broker wrote this OK after it had read HELP, so it is fresh. */
        "< 2 OK n=0 | < 1 OK fence=5 ttl_ms=9000 count=1\n"
        "= OK 2  fence=0 until=0 : | = OK 1  fence=5 until=1018000 :\n"},
    {"grant_and_loss_while_standing_still",
        "lock a | >* | @60000 | < 1 OK fence=5 ttl_ms=9000 count=1\n"
        "< * LOST a fence=5 reason=expired\n"
        /* Both events come in their order. */
        "= OK 1  fence=5 until=1009000 : | = LOST 1 a fence=5 until=0 :\n"
        "until a 5 0\n"},
    {"waiting_asks_for_signs_of_life",
        "lock a | >* | +10000 | > 2 PING | < 2 OK | +10000 | > 3 PING\n"
        "+19999 | = | +1\n"
        "= CLOSED 0  fence=0 until=0 :the broker is silent\n"},
    {"renew_sets_the_deadline",
        "lock a lease=60000 | >* | < 1 OK fence=5 ttl_ms=9000 count=1\n"
        "@1000 | renew a 5 2000 | @100 | < 2 OK ttl_ms=2000\n"
        "until a 5 3000\n"},
    {"refused_renew_may_have_set_the_end",
        "lock a | >* | < 1 OK fence=5 ttl_ms=9000 count=1 | =* | @100\n"
        "renew a 5 60000 | < 2 ERR INDOUBT retry=1 | until a 5 9000\n"
        "renew a 5 8000 | < 3 ERR UNAVAILABLE retry=1 | until a 5 8018\n"
        "renew a 5 7000 | < 4 ERR INDOUBT retry=1 | until a 5 7028\n"
        "renew a 5 6000 | < 5 ERR INTERNAL retry=0 | until a 5 6038\n"
        "renew a 5 1000 | < 6 ERR LIMIT retry=1 | until a 5 6038\n"
        "note a 5 x | < 7 ERR INDOUBT retry=1 | until a 5 6038\n"
        "renew a 5 1 | =* | < 8 ERR INDOUBT retry=1 | until a 5 0\n"
        "= ERR 8 INDOUBT fence=0 until=0 :\n"
        "= DEADLINE 1 a fence=5 until=1000100 :\n"},
    {"renew_without_an_answer",
        "lock a lease=60000 | >* | < 1 OK fence=5 ttl_ms=9000 count=1 | =*\n"
        "@100 | renew a 5 60000 | until a 5 9000\n"
        "@100 | renew a 5 6000 | until a 5 6138 | renew a 5 5000\n"
        "until a 5 5148 | < 2 OK ttl_ms=9500 | until a 5 5148\n"
        /* Refused: as before. In doubt: the sooner end, until HELD. */
        "< 4 ERR CONFLICT retry=0 | until a 5 6138\n"
        "< 3 ERR INDOUBT retry=1 | until a 5 6138 | note a 5 x\n"
        "until a 5 6138 | < 5 OK ttl_ms=9000 renewed=1 | until a 5 9200\n"},
    {"renew_ends_without_an_answer",
        "lock a lease=60000 | >* | < 1 OK fence=5 ttl_ms=9000 count=1 | =*\n"
        "@1000 | renew a 5 1000 | +800 | =* | timeout 90 | until a 5 1988\n"
        "+89 | = | +1 | = DEADLINE 1 a fence=5 until=1001988 :\n"},
    {"renew_before_the_grant",
        "lock a | renew a 0 5000 | >* | @100\n"
        "< 1 OK fence=5 ttl_ms=9000 count=1 | until a 5 4948\n"
        "< 2 OK ttl_ms=4900 | until a 5 4900\n"},
    {"note", "lock a | >* | < 1 OK fence=5 ttl_ms=9000 count=1 | =* | +1000\n"
             "note a 5 b%c | > 2 NOTE a note=b%25c fence=5\n"
             "< 2 OK ttl_ms=9500 renewed=1 | until a 5 10500 | =*\n"
             "+3167 | > 3 PING\n"},
    {"renew_gives_a_lease",
        "lock a | >* | < 1 OK fence=5 ttl_ms=9000 count=1 | =* | +3000\n"
        "> 2 PING | renew a 5 6000 | >* | < 2 OK ttl_ms=9000\n"
        "until a 5 8938 | < 3 OK ttl_ms=6000 | until a 5 9000 | =*\n"
        "+2000 | > 4 HELD\n"},
    {"lease_is_not_pinged",
        /* The answer to PING leaves out leases; HELD has them. */
        "lock a lease=6000 | >* | < 1 OK fence=5 ttl_ms=3000 count=1 | =*\n"
        "+1000 | > 2 HELD | < 2 ITEM name=a fence=5 ttl_ms=3000 count=1\n"
        "< 2 OK n=1 | until a 5 4000\n"},
    {"lease_is_not_pinged_meanwhile",
        /* An earlier PING does not set the deadline of a lease. */
        "lock a | >* | < 1 OK fence=5 ttl_ms=9000 count=1 | =* | +3000\n"
        "> 2 PING | lock b lease=4000 | >*\n"
        "< 3 OK fence=6 ttl_ms=4000 count=1 | < 2 OK ttl_ms=9000\n"
        "until a 5 12000 | until b 6 7000\n"},
    {"lease_does_not_shorten_the_others",
        "lock a | >* | lock b lease=4000 | >*\n"
        "< 1 OK fence=5 ttl_ms=9000 count=1\n"
        "< 2 OK fence=6 ttl_ms=4000 count=1 | =* | +1334 | > 3 HELD\n"
        "< 3 ITEM name=a fence=5 ttl_ms=9000 count=1\n"
        "< 3 ITEM name=b fence=6 ttl_ms=2666 count=1 | < 3 OK n=2 | =\n"
        "until a 5 10334 | until b 6 4000\n"
        "< * LOST b fence=6 reason=expired | +1000\n"
        /* Without the lease PING suffices. */
        "> 4 PING\n"},
    {"end_of_the_connection_ends_all",
        "lock a | >* | < 1 OK fence=5 ttl_ms=9000 count=1 | =* | < nonsense\n"
        "= CLOSED 0  fence=0 until=0 :a line of the broker is malformed\n"
        "until a 5 0\n"},
    {"end_of_the_connection_comes_before_a_deadline",
        "lock a | >* | < 1 OK fence=5 ttl_ms=9000 count=1 | =* | shutdown\n"
        "+9000\n"
        "= CLOSED 0  fence=0 until=0 :the broker closed the connection\n"},
    {"grant_without_fence_is_refused",
        "lock a | >* | < 1 OK ttl_ms=9000 count=1\n"
        "= CLOSED 0  fence=0 until=0 :an OK of the broker lacks fence or "
        "ttl_ms\n"},
};

START_TEST(script)
{
    talk_run(&talk, &scripts[_i], NULL);
}

END_TEST

Suite *
client_hold_suite(void)
{
    Suite *suite = suite_create("client_hold");
    TCase *tcase = tcase_create("deadlines");

    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_loop_test(
        tcase, script, 0, (int)(sizeof(scripts) / sizeof(scripts[0])));
    tcase_add_test(tcase, worker_keeps_no_lock);
    suite_add_tcase(suite, tcase);
    return suite;
}

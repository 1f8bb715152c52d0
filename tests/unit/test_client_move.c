/*
 * The client library's sessions that are kept: two brokers of the test's own,
 * on sockets of a folder, and a clock that stands until it is moved.
 */
#include "tests/unit/test_client.h"

#include <check.h>
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

Suite *client_move_suite(void);

#define START   1000000u /* where the clock of a talk begins */
#define KEEP    30000u
#define SESSION "0123456789abcdef0123456789abcdef"
#define OTHER   "ffffffffffffffffffffffffffffffff"
#define GREETING(id)                                                       \
    "* HELLO proto=1 server=holdfastd/0.1.0 session=" id " max_line=4096 " \
    "lease_ms=9000\n"

static struct talk talk;
static char folder[64];
static char paths[2][96];
static char address[256];
static int listeners[2];
static int served; /* which broker has the connection */

static void
listen_at(int which)
{
    struct sockaddr_un local = {.sun_family = AF_UNIX};

    (void)unlink(paths[which]);
    (void)snprintf(local.sun_path, sizeof(local.sun_path), "%s", paths[which]);
    listeners[which] =
        socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    ck_assert_int_ge(listeners[which], 0);
    ck_assert_int_eq(
        bind(listeners[which], (const struct sockaddr *)&local, sizeof(local)),
        0);
    ck_assert_int_eq(listen(listeners[which], 8), 0);
}

/* Nobody can connect to it any more. */
static void
shut(int which)
{
    if (listeners[which] >= 0)
        (void)close(listeners[which]);
    listeners[which] = -1;
}

static void
setup(void)
{
    (void)snprintf(folder, sizeof(folder), "/tmp/holdfast-move-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(folder));
    for (int i = 0; i < 2; i++) {
        (void)snprintf(paths[i], sizeof(paths[i]), "%s/%c", folder, 'a' + i);
        listen_at(i);
    }
    (void)snprintf(address, sizeof(address), "%s,%s", paths[0], paths[1]);
    talk.h = NULL;
}

static void
teardown(void)
{
    talk_fini(&talk);
    for (int i = 0; i < 2; i++) {
        shut(i);
        (void)unlink(paths[i]);
    }
    (void)rmdir(folder);
}

/* Accepts what the client has connected to; false: there is nothing. */
static bool
taken(void)
{
    for (int i = 0; i < 2; i++) {
        int fd = listeners[i] < 0 ? -1
                                  : accept4(listeners[i], NULL, NULL,
                                        SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd < 0)
            continue;
        if (talk.broker >= 0)
            (void)close(talk.broker);
        talk.broker = fd;
        served = i;
        return true;
    }
    return false;
}

static void
talk_close_broker(void)
{
    if (talk.broker >= 0)
        (void)close(talk.broker);
    talk.broker = -1;
}

static void
begin_with(const char *where, uint64_t keep_ms)
{
    const struct holdfast_options options = {
        .address = where, .name = "me", .keep_ms = keep_ms};

    talk_init_at(&talk, &options);
    ck_assert(taken());
    talk_say(&talk, GREETING(SESSION));
    ck_assert_str_eq(talk_told(&talk), "HELLO 0  fence=0 until=0 :\n");
    char said[128];
    (void)snprintf(
        said, sizeof(said), "1 HELLO name=me keep=%" PRIu64 "\n", keep_ms);
    ck_assert_str_eq(talk_sent(&talk), said);
    (void)snprintf(said, sizeof(said),
        "1 OK session=" SESSION " proto=1 keep_ms=%" PRIu64 "\n", keep_ms);
    talk_say(&talk, said);
    ck_assert_str_eq(talk_told(&talk), "");
}

static void
begin(void)
{
    begin_with(address, KEEP);
}

/* The broker is gone without a word, and nobody listens where it was. */
static void
crash(void)
{
    shut(served);
    (void)close(talk.broker);
    talk.broker = -1;
    talk_pass(&talk, 0);
}

/* Time passes until the client has connected again. */
static void
reconnected(void)
{
    for (int i = 0; i < 100 && !taken(); i++)
        talk_pass(&talk, 50);
    ck_assert_int_ge(talk.broker, 0);
}

/* The other broker greets, and goes on with the session as `generation`. */
static void
resume(unsigned generation)
{
    char said[256];

    reconnected();
    talk_say(&talk, GREETING(OTHER));
    (void)snprintf(said, sizeof(said),
        "HELLO name=me keep=%u resume=" SESSION " gen=%u\n", KEEP, generation);
    const char *sent = talk_sent(&talk);
    uint64_t tag = strtoull(sent, NULL, 10);
    ck_assert_ptr_nonnull(strchr(sent, ' '));
    ck_assert_str_eq(strchr(sent, ' ') + 1, said);
    (void)snprintf(said, sizeof(said),
        "%" PRIu64 " OK session=" SESSION " proto=1 keep_ms=30000 gen=%u\n",
        tag, generation);
    talk_say(&talk, said);
    ck_assert_str_eq(holdfast_session(talk.h), SESSION);
    ck_assert_uint_eq(holdfast_keep_ms(talk.h), KEEP);
}

/* Takes `name`, as the request `tag`. */
static void
hold(const char *name, unsigned tag, unsigned fence)
{
    char said[128];
    uint64_t request;

    ck_assert_int_eq(holdfast_submit_lock(talk.h, name, NULL, &request), 0);
    ck_assert_uint_eq(request, tag);
    (void)talk_sent(&talk);
    (void)snprintf(
        said, sizeof(said), "%u OK fence=%u ttl_ms=9000 count=1\n", tag, fence);
    talk_say(&talk, said);
    (void)talk_told(&talk);
}

static uint64_t
deadline(const char *name, uint64_t fence)
{
    struct holdfast_hold one = {.fence = fence};

    (void)snprintf(one.name, sizeof(one.name), "%s", name);
    return holdfast_deadline_ms(talk.h, &one);
}

#define AWAY_TOLD "AWAY 0  fence=0 until=0 :the broker closed the connection\n"
#define BACK_TOLD "BACK 0  fence=0 until=0 :\n"

START_TEST(hold_is_claimed_at_the_other_broker)
{
    begin();
    hold("a", 2, 5);
    int first = served;
    crash();
    ck_assert_str_eq(talk_told(&talk), AWAY_TOLD);
    ck_assert_uint_eq(deadline("a", 5), START + 9000);
    ck_assert_int_eq(holdfast_fd(talk.h), -1);
    resume(2);
    ck_assert_int_ne(served, first);
    ck_assert_str_eq(talk_sent(&talk), "4 CLAIM a fence=5 count=1\n");
    ck_assert_str_eq(talk_told(&talk), "");
    uint64_t sent = talk.now_ms;
    talk.now_ms += 10;
    talk_say(&talk, "4 OK fence=5 ttl_ms=8000 count=1\n");
    ck_assert_str_eq(talk_told(&talk), BACK_TOLD);
    ck_assert_uint_eq(deadline("a", 5), sent + 8000);
}

END_TEST

START_TEST(nothing_but_an_answer_moves_the_deadline)
{
    begin();
    hold("a", 2, 5);
    crash();
    shut(0);
    shut(1);
    (void)talk_told(&talk);
    while (talk.now_ms < START + 8500) {
        ck_assert_uint_eq(deadline("a", 5), START + 9000);
        ck_assert_str_eq(talk_told(&talk), "");
        talk_pass(&talk, 50);
    }
    ck_assert_str_eq(
        talk_told(&talk), "DEADLINE 2 a fence=5 until=1009000 :\n");
    ck_assert_uint_eq(deadline("a", 5), 0);
}

END_TEST

START_TEST(greeting_and_resumption_are_no_answers)
{
    begin();
    hold("a", 2, 5);
    crash();
    resume(2);
    ck_assert_uint_eq(deadline("a", 5), START + 9000);
    talk.now_ms = START + 8500;
    talk_pass(&talk, 0);
    ck_assert_ptr_nonnull(strstr(talk_told(&talk), "DEADLINE 2 a fence=5"));
}

END_TEST

START_TEST(belief_ends_with_what_the_broker_keeps)
{
    begin_with(address, 2000);
    hold("a", 2, 5);
    ck_assert_uint_eq(deadline("a", 5), START + 9000);
    /* Asked more often, lest the last answer be long ago. */
    ck_assert_int_eq(holdfast_timeout_ms(talk.h), 666);
    talk_pass(&talk, 666);
    ck_assert_str_eq(talk_sent(&talk), "3 PING\n");
    talk_say(&talk, "3 OK ttl_ms=9000\n");
    talk_pass(&talk, 100);
    crash();
    /* It may have seen the end of the connection right after that answer. */
    ck_assert_uint_eq(deadline("a", 5), START + 666 + 2000);
}

END_TEST

START_TEST(lost_while_away)
{
    begin();
    hold("a", 2, 5);
    hold("b%", 3, 6);
    crash();
    (void)talk_told(&talk);
    resume(2);
    ck_assert_str_eq(talk_sent(&talk), "5 CLAIM b%25 fence=6 count=1\n"
                                       "6 CLAIM a fence=5 count=1\n");
    talk_say(&talk, "5 ERR LOST retry=0 :gone\n");
    ck_assert_str_eq(talk_told(&talk), "LOST 3 b% fence=6 until=0 :\n");
    ck_assert_uint_eq(deadline("b%", 6), 0);
    talk_say(&talk, "6 OK fence=5 ttl_ms=9000 count=1\n");
    ck_assert_str_eq(talk_told(&talk), BACK_TOLD);
    ck_assert_uint_gt(deadline("a", 5), 0);
}

END_TEST

START_TEST(claim_in_doubt_is_put_again)
{
    begin();
    hold("a", 2, 5);
    crash();
    (void)talk_told(&talk);
    resume(2);
    (void)talk_sent(&talk);
    talk_say(&talk, "4 ERR UNAVAILABLE retry=1 :no Redis\n");
    ck_assert_str_eq(talk_sent(&talk), "");
    talk_pass(&talk, 300);
    ck_assert_str_eq(talk_sent(&talk), "5 CLAIM a fence=5 count=1\n");
    talk_say(&talk, "5 ERR INDOUBT retry=1 :no answer\n");
    talk_pass(&talk, 300);
    ck_assert_str_eq(talk_sent(&talk), "6 CLAIM a fence=5 count=1\n");
    ck_assert_str_eq(talk_told(&talk), "");
    ck_assert_uint_eq(deadline("a", 5), START + 9000);
    talk_say(&talk, "6 OK fence=5 ttl_ms=9000 count=1\n");
    ck_assert_str_eq(talk_told(&talk), BACK_TOLD);
}

END_TEST

START_TEST(claim_of_a_broker_that_drains)
{
    begin();
    hold("a", 2, 5);
    int first = served;
    crash();
    (void)talk_told(&talk);
    resume(2);
    (void)talk_sent(&talk);
    listen_at(first);
    talk_say(&talk, "4 ERR DRAINING retry=1 :going\n");
    resume(3);
    ck_assert_int_eq(served, first);
    ck_assert_str_eq(talk_sent(&talk), "6 CLAIM a fence=5 count=1\n");
}

END_TEST

START_TEST(ping_says_nothing_of_what_is_not_claimed)
{
    begin();
    hold("a", 2, 5);
    hold("b", 3, 6);
    crash();
    resume(2);
    (void)talk_sent(&talk);
    talk_say(&talk, "5 OK fence=6 ttl_ms=9000 count=1\n"
                    "6 ERR UNAVAILABLE retry=1 :no Redis\n");
    uint64_t before = deadline("a", 5);
    talk.now_ms += 3000;
    talk_pass(&talk, 0);
    ck_assert_ptr_nonnull(strstr(talk_sent(&talk), "PING\n"));
    unsigned tag = (unsigned)talk.h->request_last;
    char said[64];
    for (unsigned i = 7; i <= tag; i++) {
        (void)snprintf(said, sizeof(said), "%u OK ttl_ms=9000\n", i);
        talk_say(&talk, said);
    }
    ck_assert_uint_eq(deadline("a", 5), before);
    ck_assert_uint_gt(deadline("b", 6), talk.now_ms);
}

END_TEST

START_TEST(count_of_reentries_is_claimed)
{
    uint64_t request;

    begin();
    hold("a", 2, 5);
    (void)holdfast_submit_lock(talk.h, "a", NULL, &request);
    talk_say(&talk, "3 OK fence=5 ttl_ms=9000 count=2\n");
    (void)talk_told(&talk);
    /* And one on its way, of which nobody knows whether it is counted. */
    (void)holdfast_submit_lock(talk.h, "a", NULL, &request);
    (void)talk_sent(&talk);
    crash();
    resume(2);
    /* The LOCK comes behind the claim, or that would undo it. */
    ck_assert_str_eq(talk_sent(&talk), "6 CLAIM a fence=5 count=2\n");
    (void)talk_told(&talk);
    talk_say(&talk, "6 OK fence=5 ttl_ms=9000 count=2\n");
    ck_assert_str_eq(talk_sent(&talk), "4 LOCK a\n");
    talk_say(&talk, "4 OK fence=5 ttl_ms=9000 count=3\n");
    ck_assert_str_eq(talk_sent(&talk), "7 CLAIM a fence=5 count=3\n");
    ck_assert_str_eq(talk_told(&talk), BACK_TOLD);
    talk_say(&talk, "7 OK fence=5 ttl_ms=9000 count=3\n");
    ck_assert_ptr_nonnull(strstr(talk_told(&talk), "OK 4  fence=5"));
}

END_TEST

static void
wait_for(const char *name, uint64_t wait_ms)
{
    struct holdfast_lock_options options = HOLDFAST_LOCK_DEFAULTS;
    uint64_t request;

    options.wait_ms = wait_ms;
    ck_assert_int_eq(holdfast_submit_lock(talk.h, name, &options, &request), 0);
    (void)talk_sent(&talk);
}

START_TEST(waits_are_put_again_with_what_is_left)
{
    begin();
    wait_for("a", HOLDFAST_FOREVER);
    wait_for("b", 9000);
    wait_for("c", 10);
    wait_for("d", 0);
    talk_pass(&talk, 1000);
    crash();
    ck_assert_str_eq(talk_told(&talk), AWAY_TOLD);
    resume(2);
    char said[128];
    (void)snprintf(said, sizeof(said),
        "2 LOCK a\n3 LOCK b wait=%" PRIu64 "\n4 LOCK c wait=1\n"
        "5 LOCK d wait=0\n",
        START + 9000 - talk.now_ms);
    ck_assert_str_eq(talk_sent(&talk), said);
    ck_assert_str_eq(talk_told(&talk), BACK_TOLD);
    talk_say(&talk, "4 ERR TIMEOUT retry=1 :held\n");
    ck_assert_str_eq(talk_told(&talk), "ERR 4 TIMEOUT fence=0 until=0 :held\n");
}

END_TEST

START_TEST(grant_that_was_told_to_nobody_counts_once)
{
    struct holdfast_event event;

    begin();
    wait_for("a", HOLDFAST_FOREVER);
    crash();
    resume(2);
    ck_assert_str_eq(talk_sent(&talk), "2 LOCK a\n");
    (void)talk_told(&talk);
    /* It had been granted before, and is a re-entry now. */
    talk_say(&talk, "2 OK fence=5 ttl_ms=9000 count=2\n");
    ck_assert_str_eq(talk_told(&talk), "");
    ck_assert_str_eq(talk_sent(&talk), "4 CLAIM a fence=5 count=1\n");
    ck_assert_int_eq(send(talk.broker, "4 OK fence=5 ttl_ms=9000 count=1\n", 33,
                         MSG_NOSIGNAL),
        33);
    holdfast_process(talk.h, POLLIN);
    ck_assert(holdfast_next(talk.h, &event));
    ck_assert_int_eq(event.kind, HOLDFAST_OK);
    ck_assert_uint_eq(event.request, 2);
    ck_assert_str_eq(holdfast_event_value(&event, "count"), "1");
    ck_assert_uint_eq(event.deadline_ms, talk.now_ms + 9000);
}

END_TEST

START_TEST(unlock_without_an_answer_is_put_again)
{
    uint64_t request;

    begin();
    hold("a", 2, 5);
    (void)holdfast_submit_unlock(talk.h, "a", NULL, 5, &request);
    (void)talk_sent(&talk);
    crash();
    ck_assert_str_eq(talk_told(&talk), AWAY_TOLD);
    ck_assert_uint_eq(deadline("a", 5), 0);
    resume(2);
    ck_assert_str_eq(talk_sent(&talk), "5 CLAIM a fence=5 count=1\n");
    talk_say(&talk, "5 OK fence=5 ttl_ms=9000 count=1\n");
    ck_assert_str_eq(talk_sent(&talk), "3 UNLOCK a fence=5\n");
    talk_say(&talk, "3 OK count=0\n");
    ck_assert_str_eq(talk_told(&talk), BACK_TOLD "OK 3  fence=0 until=0 :\n");
}

END_TEST

START_TEST(unlock_that_was_carried_out)
{
    uint64_t request;

    begin();
    hold("a", 2, 5);
    (void)holdfast_submit_unlock(talk.h, "a", NULL, 5, &request);
    (void)talk_sent(&talk);
    crash();
    resume(2);
    (void)talk_told(&talk);
    talk_say(&talk, "5 ERR LOST retry=0 :gone\n");
    ck_assert_str_eq(talk_told(&talk), "OK 3  fence=0 until=0 :\n");
    ck_assert_str_eq(talk_sent(&talk), "5 CLAIM a fence=5 count=1\n");
}

END_TEST

START_TEST(unlock_while_away)
{
    uint64_t request;

    begin();
    hold("a", 2, 5);
    hold("b", 3, 6);
    crash();
    (void)holdfast_submit_unlock(talk.h, "a", NULL, 5, &request);
    ck_assert_uint_eq(deadline("a", 5), 0);
    (void)holdfast_submit_unlock(talk.h, "b", NULL, 6, &request);
    ck_assert_str_eq(talk_told(&talk), AWAY_TOLD);
    resume(2);
    ck_assert_str_eq(talk_sent(&talk), "7 CLAIM b fence=6 count=1\n"
                                       "8 CLAIM a fence=5 count=1\n");
    ck_assert_str_eq(talk_told(&talk), BACK_TOLD);
    talk_say(&talk, "7 OK fence=6 ttl_ms=9000 count=1\n");
    ck_assert_str_eq(talk_sent(&talk), "5 UNLOCK b fence=6\n");
    /* Nobody had asked for it to be given back before it was lost. */
    talk_say(&talk, "8 ERR LOST retry=0 :gone\n");
    ck_assert_str_eq(talk_told(&talk),
        "ERR 4 LOST fence=0 until=0 :the hold was yours and has ended\n");
}

END_TEST

START_TEST(order_on_one_lock_stays)
{
    uint64_t request;

    begin();
    wait_for("a", HOLDFAST_FOREVER);
    (void)holdfast_submit_unlock(talk.h, "a", NULL, 0, &request);
    (void)holdfast_submit_lock(talk.h, "b", NULL, &request);
    (void)talk_sent(&talk);
    crash();
    resume(2);
    /* Should the LOCK have been granted before, it must be claimed first. */
    ck_assert_str_eq(talk_sent(&talk), "2 LOCK a\n4 LOCK b\n");
    talk_say(&talk, "2 OK fence=5 ttl_ms=9000 count=2\n");
    ck_assert_str_eq(talk_sent(&talk), "6 CLAIM a fence=5 count=1\n");
    talk_say(&talk, "6 OK fence=5 ttl_ms=9000 count=1\n");
    ck_assert_str_eq(talk_sent(&talk), "3 UNLOCK a\n");
}

END_TEST

START_TEST(other_requests_are_in_doubt)
{
    uint64_t request;

    begin();
    (void)holdfast_submit(talk.h, "HELP", &request);
    (void)talk_sent(&talk);
    crash();
    (void)holdfast_submit(talk.h, "STATS", &request);
    ck_assert_str_eq(talk_told(&talk),
        "ERR 2 INDOUBT fence=0 until=0 :the connection ended before the "
        "answer\n" AWAY_TOLD);
    resume(2);
    ck_assert_str_eq(talk_sent(&talk), "3 STATS\n");
}

END_TEST

START_TEST(cancel_goes_with_its_lock)
{
    uint64_t request;

    begin();
    wait_for("a", HOLDFAST_FOREVER);
    (void)holdfast_submit_cancel(talk.h, 2, &request);
    (void)talk_sent(&talk);
    crash();
    (void)talk_told(&talk);
    /* Of this one no broker has heard. */
    wait_for("b", HOLDFAST_FOREVER);
    (void)holdfast_submit_cancel(talk.h, 4, &request);
    ck_assert_str_eq(talk_sent(&talk), "");
    talk_pass(&talk, 0);
    ck_assert_str_eq(talk_told(&talk),
        "ERR 4 CANCELLED fence=0 until=0 :the wait was cancelled\n"
        "OK 5  fence=0 until=0 :\n");
    resume(2);
    ck_assert_str_eq(talk_sent(&talk), "2 LOCK a\n3 CANCEL 2\n");
}

END_TEST

START_TEST(cancel_calls_off_no_unlock)
{
    uint64_t unlock;
    uint64_t request;

    begin();
    hold("a", 2, 5);
    crash();
    (void)talk_told(&talk);
    (void)holdfast_submit_unlock(talk.h, "a", NULL, 5, &unlock);
    (void)holdfast_submit_cancel(talk.h, unlock, &request);
    talk_pass(&talk, 0);
    ck_assert_str_eq(talk_told(&talk), "");
    resume(2);
    ck_assert_str_eq(talk_sent(&talk), "6 CLAIM a fence=5 count=1\n");
    talk_say(&talk, "6 OK fence=5 ttl_ms=9000 count=1\n");
    ck_assert_str_eq(talk_sent(&talk), "3 UNLOCK a fence=5\n4 CANCEL 3\n");
}

END_TEST

START_TEST(generation_grows_with_each_connection)
{
    begin();
    hold("a", 2, 5);
    int first = served;
    crash();
    listen_at(first);
    reconnected();
    talk_say(&talk, GREETING(OTHER));
    ck_assert_ptr_nonnull(strstr(talk_sent(&talk), "gen=2\n"));
    /* It ends before it has answered. */
    (void)close(talk.broker);
    talk.broker = -1;
    talk_pass(&talk, 0);
    resume(3);
    ck_assert_ptr_nonnull(strstr(talk_sent(&talk), "CLAIM a"));
    ck_assert_str_eq(talk_told(&talk), AWAY_TOLD);
}

END_TEST

START_TEST(broker_that_does_not_go_on)
{
    begin();
    hold("a", 2, 5);
    int first = served;
    crash();
    listen_at(first);
    reconnected();
    int second = served;
    talk_say(&talk, GREETING(OTHER));
    (void)talk_sent(&talk);
    talk_say(&talk, "3 ERR CONFLICT retry=0 :gen= must be larger\n");
    resume(3);
    ck_assert_int_ne(served, second);
}

END_TEST

START_TEST(brokers_that_do_not_greet)
{
    begin();
    hold("a", 2, 5);
    int first = served;
    crash();
    listen_at(first);
    reconnected();
    int second = served;
    talk_say(&talk, "* BYE drain\n");
    (void)close(talk.broker);
    talk.broker = -1;
    talk_pass(&talk, 0);
    reconnected();
    ck_assert_int_ne(served, second);
    /* And one that says nothing is left in time. */
    talk_pass(&talk, CLIENT_CONNECT_MS);
    resume(2);
    ck_assert_str_eq(talk_told(&talk), AWAY_TOLD);
}

END_TEST

START_TEST(pauses_grow_to_two_seconds)
{
    uint64_t last = 0;
    uint64_t longest = 0;

    begin();
    wait_for("a", HOLDFAST_FOREVER);
    crash();
    shut(0);
    shut(1);
    for (int i = 0; i < 30; i++) {
        ck_assert_int_eq(talk.h->link, LINK_AWAY);
        uint64_t pause = talk.h->retry_ms - talk.now_ms;
        ck_assert_uint_le(pause, CLIENT_PAUSE_MAX_MS);
        if (i > 8)
            ck_assert_uint_ge(pause, CLIENT_PAUSE_MAX_MS / 2);
        ck_assert_int_eq(holdfast_timeout_ms(talk.h), (int)pause);
        longest = pause > longest ? pause : longest;
        last = pause;
        talk_pass(&talk, pause);
    }
    ck_assert_uint_gt(longest, CLIENT_PAUSE_MAX_MS / 2);
    ck_assert_uint_gt(last, 0);
    /* Who waits without an end is not given up. */
    ck_assert_str_eq(talk_told(&talk), AWAY_TOLD);
}

END_TEST

START_TEST(given_up_when_nobody_would_miss_it)
{
    begin();
    hold("a", 2, 5);
    wait_for("b", 40000);
    crash();
    shut(0);
    shut(1);
    while (talk.now_ms < START + 39000)
        talk_pass(&talk, 500);
    ck_assert_str_eq(
        talk_told(&talk), AWAY_TOLD "DEADLINE 2 a fence=5 until=1009000 :\n");
    while (talk.now_ms < START + 43000)
        talk_pass(&talk, 500);
    ck_assert_str_eq(talk_told(&talk),
        "CLOSED 0  fence=0 until=0 :the broker closed the connection\n");
}

END_TEST

START_TEST(overdue_hold_is_given_back_at_last)
{
    begin();
    hold("a", 2, 5);
    crash();
    talk.now_ms += 9000;
    talk_pass(&talk, 0);
    ck_assert_str_eq(
        talk_told(&talk), AWAY_TOLD "DEADLINE 2 a fence=5 until=1009000 :\n");
    resume(2);
    /* No believer is waited for. */
    ck_assert_str_eq(talk_told(&talk), BACK_TOLD);
    ck_assert_str_eq(talk_sent(&talk), "4 CLAIM a fence=5 count=1\n");
    talk_say(&talk, "4 OK fence=5 ttl_ms=9000 count=1\n");
    ck_assert_uint_eq(deadline("a", 5), 0);
    ck_assert_str_eq(talk_sent(&talk), "5 UNLOCK a fence=5\n");
    talk_say(&talk, "5 OK count=0\n");
    ck_assert_str_eq(talk_told(&talk), "");
    ck_assert_ptr_null(talk.h->holds);
}

END_TEST

START_TEST(drain_moves_before_the_broker_closes)
{
    begin();
    hold("a", 2, 5);
    wait_for("b", HOLDFAST_FOREVER);
    int first = served;
    talk_say(&talk, "* DRAIN grace_ms=4000\n3 ERR DRAINING retry=1 :going\n");
    /* Soon, since a lock is asked for. */
    talk_pass(&talk, CLIENT_MOVE_SOON_MS);
    ck_assert_str_eq(talk_told(&talk),
        "DRAIN 0  fence=0 until=0 :\n"
        "AWAY 0  fence=0 until=0 :the broker drains\n");
    resume(2);
    ck_assert_int_ne(served, first);
    ck_assert_str_eq(talk_sent(&talk), "5 CLAIM a fence=5 count=1\n3 LOCK b\n");
}

END_TEST

START_TEST(drain_is_spread_over_a_part_of_the_grace)
{
    uint64_t soonest = UINT64_MAX;
    uint64_t latest = 0;
    uint64_t request;

    for (int i = 0; i < 50; i++) {
        begin();
        talk_say(&talk, "* DRAIN grace_ms=4000\n");
        /* It may have gone at once. */
        uint64_t wait = talk.h->link == LINK_OPEN
                            ? (uint64_t)holdfast_timeout_ms(talk.h)
                            : 0;
        soonest = wait < soonest ? wait : soonest;
        latest = wait > latest ? wait : latest;
        talk_fini(&talk);
        talk.broker = -1;
        while (taken()) {
            /* what had gone at once */
        }
        talk_close_broker();
    }
    ck_assert_uint_lt(soonest, 500);
    ck_assert_uint_gt(latest, 500);
    ck_assert_uint_le(latest, 1000);
    begin();
    talk.h->random = 1; /* not at once */
    talk_say(&talk, "* DRAIN grace_ms=100000\n");
    ck_assert_int_eq(talk.h->link, LINK_OPEN);
    ck_assert_uint_le(talk.h->move_ms, talk.now_ms + CLIENT_MOVE_MAX_MS);
    /* What is asked for from now on waits for the other broker. */
    (void)holdfast_submit_lock(talk.h, "a", NULL, &request);
    ck_assert_uint_le(talk.h->move_ms, talk.now_ms + CLIENT_MOVE_SOON_MS);
    ck_assert_str_eq(talk_sent(&talk), "");
}

END_TEST

START_TEST(drain_does_not_move_to_the_same_address)
{
    begin();
    int first = served;
    /* A name may have several peers. */
    talk.h->peers[2] = talk.h->peers[1];
    talk.h->peers[1] = talk.h->peers[0];
    talk.h->peer_count = 3;
    ck_assert_uint_eq(talk.h->peer_next, 1);
    talk_say(&talk, "* DRAIN grace_ms=4000\n");
    talk_pass(&talk, 1000);
    ck_assert(taken());
    ck_assert_int_ne(served, first);
}

END_TEST

START_TEST(drain_without_another_address)
{
    begin_with(paths[0], KEEP);
    hold("a", 2, 5);
    talk_say(&talk, "* DRAIN grace_ms=4000\n");
    talk_pass(&talk, 3000);
    /* It renews as long as it is there. */
    ck_assert_str_eq(talk_sent(&talk), "3 PING\n");
    /* A lock has to wait for the next one. */
    wait_for("b", HOLDFAST_FOREVER);
    ck_assert_str_eq(talk_sent(&talk), "");
    talk_say(&talk, "3 OK ttl_ms=9000\n* BYE drain\n");
    ck_assert_str_eq(talk_told(&talk), "DRAIN 0  fence=0 until=0 :\n");
    (void)close(talk.broker);
    talk.broker = -1;
    talk_pass(&talk, 0);
    ck_assert_str_eq(talk_told(&talk),
        "AWAY 0  fence=0 until=0 :the broker said BYE drain\n");
    resume(2);
    ck_assert_str_eq(talk_sent(&talk), "6 CLAIM a fence=5 count=1\n4 LOCK b\n");
}

END_TEST

START_TEST(killed_is_the_end)
{
    begin();
    hold("a", 2, 5);
    talk_say(&talk, "* BYE killed\n");
    crash();
    ck_assert_str_eq(talk_told(&talk),
        "BYE 0 killed fence=0 until=0 :\n"
        "CLOSED 0  fence=0 until=0 :the broker said BYE killed\n");
    ck_assert_uint_eq(deadline("a", 5), 0);
}

END_TEST

START_TEST(quit_is_the_end)
{
    uint64_t request;

    begin();
    (void)holdfast_submit(talk.h, "quit", &request);
    ck_assert_str_eq(talk_sent(&talk), "2 quit\n");
    crash();
    ck_assert_str_eq(talk_told(&talk),
        "CLOSED 0  fence=0 until=0 :the broker closed the connection\n");
}

END_TEST

START_TEST(nonsense_is_the_end)
{
    begin();
    hold("a", 2, 5);
    /* It might have been a LOST. */
    talk_say(&talk, "* LOST %zz\n");
    ck_assert_str_eq(talk_told(&talk),
        "CLOSED 0  fence=0 until=0 :a line of the broker is malformed\n");
}

END_TEST

START_TEST(destroyed_says_quit)
{
    begin();
    hold("a", 2, 5);
    talk_say(&talk, "* NEWS\n");
    holdfast_destroy(&talk.h);
    char got[64] = "";
    ck_assert_int_eq(recv(talk.broker, got, sizeof(got) - 1, 0), 5);
    ck_assert_str_eq(got, "QUIT\n");
    ck_assert_int_eq(recv(talk.broker, got, sizeof(got) - 1, 0), 0);
}

END_TEST

/* The session is the parent's. */
START_TEST(destroyed_in_a_child_says_nothing)
{
    int status = 0;

    begin();
    hold("a", 2, 5);
    pid_t child = fork();
    ck_assert_int_ge(child, 0);
    if (child == 0) {
        holdfast_destroy(&talk.h);
        _exit(0);
    }
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert_int_eq(status, 0);
    char got[64] = "";
    ck_assert_int_eq(recv(talk.broker, got, sizeof(got), MSG_DONTWAIT), -1);
    ck_assert_int_eq(errno, EAGAIN);
    holdfast_destroy(&talk.h);
    ck_assert_int_eq(recv(talk.broker, got, sizeof(got) - 1, 0), 5);
}

END_TEST

START_TEST(broker_that_keeps_nothing)
{
    const struct holdfast_options options = {
        .address = address, .keep_ms = KEEP};

    talk_init_at(&talk, &options);
    ck_assert(taken());
    talk_say(&talk, GREETING(SESSION));
    (void)talk_sent(&talk);
    ck_assert_uint_eq(holdfast_keep_ms(talk.h), 0);
    talk_say(&talk, "1 ERR BADREQ retry=0 :no such key\n");
    ck_assert_uint_eq(holdfast_keep_ms(talk.h), 0);
    hold("a", 2, 5);
    (void)talk_told(&talk);
    crash();
    ck_assert_str_eq(talk_told(&talk),
        "CLOSED 0  fence=0 until=0 :the broker closed the connection\n");
}

END_TEST

START_TEST(silent_broker_is_left_in_time)
{
    begin();
    hold("a", 2, 5);
    talk_pass(&talk, 3000);
    ck_assert_str_eq(talk_sent(&talk), "3 PING\n");
    talk_pass(&talk, 2249);
    ck_assert_str_eq(talk_told(&talk), "");
    talk_pass(&talk, 1);
    ck_assert_str_eq(
        talk_told(&talk), "AWAY 0  fence=0 until=0 :the broker is silent\n");
    resume(2);
    ck_assert_str_eq(talk_sent(&talk), "5 CLAIM a fence=5 count=1\n");
}

END_TEST

START_TEST(requests_wait_for_a_broker_that_greets)
{
    const struct holdfast_options options = {.address = address};
    uint64_t request;

    talk_init_at(&talk, &options);
    (void)holdfast_submit_lock(talk.h, "a", NULL, &request);
    ck_assert(taken());
    int first = served;
    ck_assert_str_eq(talk_sent(&talk), "");
    talk_say(&talk, "* BYE drain\n");
    (void)close(talk.broker);
    talk.broker = -1;
    talk_pass(&talk, 0);
    ck_assert(taken());
    ck_assert_int_ne(served, first);
    talk_say(&talk, GREETING(SESSION));
    ck_assert_str_eq(talk_sent(&talk), "1 LOCK a\n");
    ck_assert_str_eq(talk_told(&talk), "HELLO 0  fence=0 until=0 :\n");
    /* Not kept: its end is the end. */
    crash();
    ck_assert_str_eq(talk_told(&talk),
        "CLOSED 0  fence=0 until=0 :the broker closed the connection\n");
}

END_TEST

START_TEST(lists_of_addresses)
{
    static const char *const bad[] = {"", ",", "127.0.0.1:1,", ",127.0.0.1:1",
        "127.0.0.1:1,,127.0.0.1:2", "127.0.0.1:1,[::1", "127.0.0.1:1,x:y",
        "h,h,h,h,h,h,h,h,h,h,h,h,h,h,h,h,h"};
    bool first[2] = {false, false};

    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct holdfast_options options = {.address = bad[i]};
        struct holdfast *h;
        ck_assert_int_eq(
            holdfast_create_with(&options, &h), HOLDFAST_BAD_ADDRESS);
        ck_assert_ptr_null(h);
    }
    for (int i = 0; i < 64 && !(first[0] && first[1]); i++) {
        const struct holdfast_options options = {.address = address};
        talk_init_at(&talk, &options);
        ck_assert(taken());
        first[served] = true;
        talk_fini(&talk);
    }
    ck_assert(first[0] && first[1]);
}

END_TEST

START_TEST(options_of_a_session)
{
    const struct holdfast_options good = {.address = paths[0],
        .name = "till 3",
        .keep_ms = 1000,
        .heartbeat_ms = 500};
    struct holdfast_options options = {.address = paths[0]};
    char name[HOLDFAST_WORD_MAX + 2];
    struct holdfast *h;

    memset(name, 'x', sizeof(name) - 1);
    name[sizeof(name) - 1] = '\0';
    options.name = name;
    ck_assert_int_eq(holdfast_create_with(&options, &h), HOLDFAST_BAD_ARGUMENT);
    options.name = NULL;
    options.keep_ms = HOLDFAST_KEEP_MAX_MS + 1;
    ck_assert_int_eq(holdfast_create_with(&options, &h), HOLDFAST_BAD_ARGUMENT);
    /* The broker would refuse it, and all else that HELLO asks for with it. */
    options.keep_ms = 1000;
    options.heartbeat_ms = HOLDFAST_HEARTBEAT_MIN_MS - 1;
    ck_assert_int_eq(holdfast_create_with(&options, &h), HOLDFAST_BAD_ARGUMENT);
    options.heartbeat_ms = HOLDFAST_HEARTBEAT_MAX_MS + 1;
    ck_assert_int_eq(holdfast_create_with(&options, &h), HOLDFAST_BAD_ARGUMENT);
    talk_init_at(&talk, &good);
    ck_assert(taken());
    talk_say(&talk, GREETING(SESSION));
    ck_assert_str_eq(
        talk_sent(&talk), "1 HELLO name=till%203 heartbeat=500 keep=1000\n");
}

END_TEST

/* --- users ---------------------------------------------------------------- */

static void
begin_as(const char *where, uint64_t keep_ms)
{
    const struct holdfast_options options = {.address = where,
        .keep_ms = keep_ms,
        .user = "till 3",
        .secret = "s%cret"};

    talk_init_at(&talk, &options);
    ck_assert(taken());
    talk_say(&talk, GREETING(SESSION));
    (void)talk_told(&talk);
}

/* What is asked for before the broker has taken the user waits for that. */
START_TEST(user_comes_first)
{
    uint64_t request;

    begin_as(paths[0], 0);
    ck_assert_int_eq(holdfast_submit_lock(talk.h, "a", NULL, &request), 0);
    talk_pass(&talk, 100);
    ck_assert_str_eq(talk_sent(&talk), "1 AUTH till%203 s%25cret\n");
    talk_say(&talk, "1 OK\n");
    ck_assert_str_eq(talk_sent(&talk), "2 LOCK a\n");
    ck_assert_str_eq(talk_told(&talk), "");
    ck_assert(!holdfast_is_refused(talk.h));
}

END_TEST

START_TEST(user_that_is_refused)
{
    uint64_t request;

    begin_as(paths[0], KEEP);
    ck_assert_str_eq(
        talk_sent(&talk), "1 AUTH till%203 s%25cret\n2 HELLO keep=30000\n");
    ck_assert_int_eq(holdfast_submit_lock(talk.h, "a", NULL, &request), 0);
    talk_say(&talk, "2 OK session=" SESSION " proto=1 keep_ms=30000\n"
                    "1 ERR AUTH retry=0 :no such user, or another secret\n");
    ck_assert_str_eq(talk_sent(&talk), "");
    ck_assert_str_eq(talk_told(&talk),
        "CLOSED 0  fence=0 until=0 :the broker refuses the user till 3: "
        "AUTH\n");
    ck_assert(holdfast_is_refused(talk.h));
    talk_pass(&talk, 60000);
    ck_assert(!taken());
}

END_TEST

/* At each broker, before the session is gone on with. */
START_TEST(user_moves_with_the_session)
{
    begin_as(address, KEEP);
    (void)talk_sent(&talk);
    talk_say(&talk, "1 OK\n2 OK session=" SESSION " proto=1 keep_ms=30000\n");
    hold("a", 3, 7);
    crash();
    reconnected();
    talk_say(&talk, GREETING(OTHER));
    ck_assert_str_eq(talk_sent(&talk),
        "4 AUTH till%203 s%25cret\n"
        "5 HELLO keep=30000 resume=" SESSION " gen=2\n");
    talk_say(
        &talk, "4 OK\n5 OK session=" SESSION " proto=1 keep_ms=30000 gen=2\n");
    ck_assert_str_eq(talk_sent(&talk), "6 CLAIM a fence=7 count=1\n");
}

END_TEST

/* One that does not know the user is left for another; the hold stands. */
START_TEST(user_that_another_broker_refuses)
{
    begin_as(address, KEEP);
    (void)talk_sent(&talk);
    talk_say(&talk, "1 OK\n2 OK session=" SESSION " proto=1 keep_ms=30000\n");
    hold("a", 3, 7);
    talk_close_broker();
    talk_pass(&talk, 0);
    reconnected();
    talk_say(&talk, GREETING(OTHER));
    (void)talk_sent(&talk);
    talk_say(&talk, "5 ERR AUTH retry=0 :who\n");
    ck_assert(!holdfast_is_refused(talk.h));
    ck_assert_uint_ne(deadline("a", 7), 0);
    reconnected();
    talk_say(&talk, GREETING(OTHER));
    ck_assert_str_eq(talk_sent(&talk),
        "6 AUTH till%203 s%25cret\n"
        "7 HELLO keep=30000 resume=" SESSION " gen=3\n");
}

END_TEST

START_TEST(user_that_is_no_more)
{
    begin_as(address, KEEP);
    talk_say(&talk, "1 OK\n2 OK session=" SESSION " proto=1 keep_ms=30000\n"
                    "* BYE auth\n");
    (void)talk_told(&talk);
    talk_close_broker();
    talk_pass(&talk, 0);
    ck_assert_str_eq(holdfast_reason(talk.h), "the broker said BYE auth");
}

END_TEST

START_TEST(users_that_cannot_be)
{
    char longest[HOLDFAST_SECRET_MAX + 2];

    const struct {
        const char *user;
        const char *secret;
    } bad[] = {
        {"a", NULL},
        {NULL, "b"},
        {"", "b"},
        {"a", ""},
        {"a", longest},
        {longest + HOLDFAST_SECRET_MAX - HOLDFAST_USER_MAX, "b"},
    };

    memset(longest, 'x', sizeof(longest) - 1);
    longest[sizeof(longest) - 1] = '\0';
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        const struct holdfast_options options = {
            .address = paths[0], .user = bad[i].user, .secret = bad[i].secret};
        struct holdfast *h;
        ck_assert_int_eq(
            holdfast_create_with(&options, &h), HOLDFAST_BAD_ARGUMENT);
    }
    longest[HOLDFAST_SECRET_MAX] = '\0';
    const struct holdfast_options options = {
        .address = paths[0], .user = "a", .secret = longest};
    talk_init_at(&talk, &options);
    ck_assert(taken());
}

END_TEST

/* --- several names, kinds of lock ----------------------------------------- */

static const char *const three[] = {"b", "a", "c"};

START_TEST(several_names)
{
    struct holdfast_event event;
    uint64_t fences[3];
    uint64_t request;

    begin();
    ck_assert_int_eq(
        holdfast_submit_lock_all(talk.h, three, 3, NULL, &request), 0);
    ck_assert_str_eq(talk_sent(&talk), "2 LOCK b a c\n");
    ck_assert_int_eq(send(talk.broker, "2 OK fence=7,8,9 ttl_ms=9000 count=1\n",
                         37, MSG_NOSIGNAL),
        37);
    holdfast_process(talk.h, POLLIN);
    ck_assert(holdfast_next(talk.h, &event));
    ck_assert_int_eq(event.kind, HOLDFAST_OK);
    ck_assert_uint_eq(event.fence, 7);
    ck_assert_uint_eq(holdfast_event_fences(&event, fences, 3), 3);
    ck_assert_uint_eq(fences[2], 9);
    ck_assert_uint_eq(holdfast_event_fences(&event, fences, 0), 3);
    ck_assert_uint_eq(deadline("b", 7), START + 9000);
    ck_assert_uint_eq(deadline("a", 8), START + 9000);
    ck_assert_uint_eq(deadline("c", 9), START + 9000);
    talk_say(&talk, "* LOST a fence=8 reason=broken\n");
    ck_assert_str_eq(talk_told(&talk), "LOST 2 a fence=8 until=0 :\n");
    ck_assert_uint_eq(deadline("a", 8), 0);
    ck_assert_uint_eq(deadline("c", 9), START + 9000);
}

END_TEST

START_TEST(several_names_are_put_again_and_claimed_each)
{
    uint64_t request;

    begin();
    hold("a", 2, 8);
    (void)holdfast_submit_lock_all(talk.h, three, 3, NULL, &request);
    (void)talk_sent(&talk);
    crash();
    resume(2);
    ck_assert_str_eq(talk_sent(&talk), "5 CLAIM a fence=8 count=1\n");
    talk_say(&talk, "5 OK fence=8 ttl_ms=9000 count=1\n");
    ck_assert_str_eq(talk_sent(&talk), "3 LOCK b a c\n");
    (void)talk_told(&talk);
    talk_say(&talk, "3 OK fence=7,8,9 ttl_ms=9000 count=2\n");
    ck_assert_str_eq(talk_sent(&talk), "6 CLAIM c fence=9 count=1\n"
                                       "7 CLAIM b fence=7 count=1\n"
                                       "8 CLAIM a fence=8 count=2\n");
    talk_say(&talk, "6 OK fence=9 ttl_ms=9000 count=1\n"
                    "8 OK fence=8 ttl_ms=9000 count=2\n");
    ck_assert_str_eq(talk_told(&talk), "");
    talk_say(&talk, "7 OK fence=7 ttl_ms=9000 count=1\n");
    ck_assert_ptr_nonnull(strstr(talk_told(&talk), "OK 3  fence=7"));
}

END_TEST

START_TEST(old_grant_of_several_names_is_confirmed_first)
{
    uint64_t request;

    begin();
    (void)holdfast_submit_lock_all(talk.h, three, 3, NULL, &request);
    (void)talk_sent(&talk);
    talk.now_ms += 9500;
    talk_say(&talk, "2 OK fence=7,8,9 ttl_ms=9000 count=1\n"
                    "* LOST a fence=8 reason=expired\n");
    ck_assert_str_eq(talk_told(&talk),
        "OK 2  fence=7 until=1009000 :\n"
        "LOST 2 a fence=8 until=0 :\n"
        "DEADLINE 2 c fence=9 until=1009000 :\n"
        "DEADLINE 2 b fence=7 until=1009000 :\n");
}

END_TEST

START_TEST(fences_that_do_not_fit)
{
    static const char *const answers[] = {"fence=7,8", "fence=7,8,9,10",
        "fence=7,,9", "fence=7,8,x", "fence=", "fence=7,8,9,"};
    uint64_t request;

    for (size_t i = 0; i < sizeof(answers) / sizeof(answers[0]); i++) {
        char said[96];
        begin();
        (void)holdfast_submit_lock_all(talk.h, three, 3, NULL, &request);
        (void)talk_sent(&talk);
        (void)snprintf(said, sizeof(said), "2 OK %s ttl_ms=9000\n", answers[i]);
        talk_say(&talk, said);
        ck_assert_str_eq(talk_told(&talk),
            "CLOSED 0  fence=0 until=0 :an OK of the broker lacks fence or "
            "ttl_ms\n");
        talk_fini(&talk);
    }
}

END_TEST

START_TEST(kinds_of_lock_as_they_are_written)
{
    struct holdfast_lock_options options = HOLDFAST_LOCK_DEFAULTS;
    const char *many[HOLDFAST_NAMES_MAX + 1];
    uint64_t request;

    begin();
    options.shared = true;
    options.delay_ms = 1500;
    (void)holdfast_submit_lock(talk.h, "a", &options, &request);
    options.shared = false;
    options.limit = 3;
    options.permits = 2;
    options.delay_ms = 0;
    options.no_deadlock = true;
    (void)holdfast_submit_lock(talk.h, "b", &options, &request);
    ck_assert_str_eq(talk_sent(&talk),
        "2 LOCK a mode=shared delay=1500\n"
        "3 LOCK b limit=3 permits=2 deadlock=0\n");
    for (size_t i = 0; i <= HOLDFAST_NAMES_MAX; i++)
        many[i] = "x";
    ck_assert_int_eq(holdfast_submit_lock_all(
                         talk.h, many, HOLDFAST_NAMES_MAX + 1, NULL, &request),
        HOLDFAST_BAD_ARGUMENT);
    ck_assert_int_eq(holdfast_submit_lock_all(talk.h, many, 0, NULL, &request),
        HOLDFAST_BAD_ARGUMENT);
}

END_TEST

/* --- watches -------------------------------------------------------------- */

START_TEST(watches_go_on)
{
    uint64_t request;

    begin();
    (void)holdfast_submit_watch(talk.h, "a", &request);
    ck_assert_str_eq(talk_sent(&talk), "2 WATCH a\n");
    talk_say(&talk, "2 OK\n* HELD a fence=5 name=x\n");
    ck_assert_str_eq(talk_told(&talk), "OK 2  fence=0 until=0 :\n"
                                       "HELD 0 a fence=5 until=0 :\n");
    crash();
    (void)talk_told(&talk);
    resume(2);
    ck_assert_str_eq(talk_sent(&talk), "4 WATCH a\n");
    talk_say(&talk, "4 OK\n* HELD a fence=5 name=x\n");
    /* That was told before. */
    ck_assert_str_eq(talk_told(&talk), BACK_TOLD);
    talk_say(&talk, "* FREE a\n");
    ck_assert_str_eq(talk_told(&talk), "FREE 0 a fence=0 until=0 :\n");
}

END_TEST

START_TEST(who_watches_does_not_give_up)
{
    uint64_t request;

    begin();
    (void)holdfast_submit_watch(talk.h, "a", &request);
    (void)talk_sent(&talk);
    talk_say(&talk, "2 OK\n");
    (void)talk_told(&talk);
    crash();
    shut(0);
    shut(1);
    for (int i = 0; i < 200; i++)
        talk_pass(&talk, 500);
    ck_assert_str_eq(talk_told(&talk), AWAY_TOLD);
    listen_at(0);
    resume(2);
    ck_assert_ptr_nonnull(strstr(talk_sent(&talk), " WATCH a\n"));
}

END_TEST

START_TEST(watch_that_the_next_broker_refuses)
{
    uint64_t request;

    begin();
    (void)holdfast_submit_watch(talk.h, "a", &request);
    (void)talk_sent(&talk);
    talk_say(&talk, "2 OK\n* FREE a\n");
    crash();
    resume(2);
    (void)talk_told(&talk);
    ck_assert_str_eq(talk_sent(&talk), "4 WATCH a\n");
    talk_say(&talk, "4 ERR UNAVAILABLE retry=1 :no Redis\n");
    talk_pass(&talk, 3000);
    ck_assert_str_eq(talk_sent(&talk), "5 WATCH a\n");
    talk_say(&talk, "5 OK\n* HELD a fence=6\n");
    ck_assert_str_eq(talk_told(&talk), "HELD 0 a fence=6 until=0 :\n");
}

END_TEST

START_TEST(unwatch_follows_a_watch_that_is_put_again)
{
    uint64_t request;

    begin();
    (void)holdfast_submit_watch(talk.h, "a", &request);
    (void)holdfast_submit_watch(talk.h, "b", &request);
    (void)talk_sent(&talk);
    talk_say(&talk, "3 OK\n");
    (void)holdfast_submit_unwatch(talk.h, "a", &request);
    (void)holdfast_submit_unwatch(talk.h, "b", &request);
    (void)talk_sent(&talk);
    (void)talk_told(&talk);
    crash();
    (void)talk_told(&talk);
    talk_pass(&talk, 0);
    resume(2);
    ck_assert_str_eq(talk_sent(&talk), "2 WATCH a\n4 UNWATCH a\n");
    talk_say(&talk, "2 OK\n4 OK\n");
    ck_assert_ptr_null(holdfast_watched_find(talk.h, "a"));
    ck_assert_ptr_null(holdfast_watched_find(talk.h, "b"));
}

END_TEST

START_TEST(watch_and_unwatch_while_away)
{
    uint64_t request;

    begin();
    (void)holdfast_submit_watch(talk.h, "a", &request);
    (void)holdfast_submit_watch(talk.h, "b", &request);
    (void)talk_sent(&talk);
    talk_say(&talk, "2 OK\n3 OK\n");
    (void)holdfast_submit_unwatch(talk.h, "a", &request);
    (void)talk_sent(&talk);
    crash();
    (void)holdfast_submit_unwatch(talk.h, "b", &request);
    (void)holdfast_submit_watch(talk.h, "c", &request);
    (void)talk_told(&talk);
    talk_pass(&talk, 0);
    ck_assert_str_eq(talk_told(&talk), "OK 5  fence=0 until=0 :\n");
    resume(2);
    ck_assert_str_eq(talk_sent(&talk), "6 WATCH c\n");
    talk_say(&talk, "6 OK\n");
    ck_assert_ptr_nonnull(holdfast_watched_find(talk.h, "c"));
    ck_assert_ptr_null(holdfast_watched_find(talk.h, "a"));
    ck_assert_ptr_null(holdfast_watched_find(talk.h, "b"));
}

END_TEST

Suite *
client_move_suite(void)
{
    Suite *suite = suite_create("client_move");
    TCase *tcase = tcase_create("sessions");

    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, hold_is_claimed_at_the_other_broker);
    tcase_add_test(tcase, nothing_but_an_answer_moves_the_deadline);
    tcase_add_test(tcase, greeting_and_resumption_are_no_answers);
    tcase_add_test(tcase, belief_ends_with_what_the_broker_keeps);
    tcase_add_test(tcase, lost_while_away);
    tcase_add_test(tcase, claim_in_doubt_is_put_again);
    tcase_add_test(tcase, claim_of_a_broker_that_drains);
    tcase_add_test(tcase, ping_says_nothing_of_what_is_not_claimed);
    tcase_add_test(tcase, count_of_reentries_is_claimed);
    tcase_add_test(tcase, waits_are_put_again_with_what_is_left);
    tcase_add_test(tcase, grant_that_was_told_to_nobody_counts_once);
    tcase_add_test(tcase, unlock_without_an_answer_is_put_again);
    tcase_add_test(tcase, unlock_that_was_carried_out);
    tcase_add_test(tcase, unlock_while_away);
    tcase_add_test(tcase, order_on_one_lock_stays);
    tcase_add_test(tcase, other_requests_are_in_doubt);
    tcase_add_test(tcase, cancel_goes_with_its_lock);
    tcase_add_test(tcase, cancel_calls_off_no_unlock);
    tcase_add_test(tcase, generation_grows_with_each_connection);
    tcase_add_test(tcase, broker_that_does_not_go_on);
    tcase_add_test(tcase, brokers_that_do_not_greet);
    tcase_add_test(tcase, pauses_grow_to_two_seconds);
    tcase_add_test(tcase, given_up_when_nobody_would_miss_it);
    tcase_add_test(tcase, overdue_hold_is_given_back_at_last);
    tcase_add_test(tcase, drain_moves_before_the_broker_closes);
    tcase_add_test(tcase, drain_is_spread_over_a_part_of_the_grace);
    tcase_add_test(tcase, drain_does_not_move_to_the_same_address);
    tcase_add_test(tcase, drain_without_another_address);
    tcase_add_test(tcase, killed_is_the_end);
    tcase_add_test(tcase, quit_is_the_end);
    tcase_add_test(tcase, nonsense_is_the_end);
    tcase_add_test(tcase, destroyed_says_quit);
    tcase_add_test(tcase, destroyed_in_a_child_says_nothing);
    tcase_add_test(tcase, broker_that_keeps_nothing);
    tcase_add_test(tcase, silent_broker_is_left_in_time);
    tcase_add_test(tcase, requests_wait_for_a_broker_that_greets);
    tcase_add_test(tcase, lists_of_addresses);
    tcase_add_test(tcase, options_of_a_session);
    suite_add_tcase(suite, tcase);
    tcase = tcase_create("users");
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, user_comes_first);
    tcase_add_test(tcase, user_that_is_refused);
    tcase_add_test(tcase, user_moves_with_the_session);
    tcase_add_test(tcase, user_that_another_broker_refuses);
    tcase_add_test(tcase, user_that_is_no_more);
    tcase_add_test(tcase, users_that_cannot_be);
    suite_add_tcase(suite, tcase);
    tcase = tcase_create("kinds");
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, several_names);
    tcase_add_test(tcase, several_names_are_put_again_and_claimed_each);
    tcase_add_test(tcase, old_grant_of_several_names_is_confirmed_first);
    tcase_add_test(tcase, fences_that_do_not_fit);
    tcase_add_test(tcase, kinds_of_lock_as_they_are_written);
    suite_add_tcase(suite, tcase);
    tcase = tcase_create("watches");
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, watches_go_on);
    tcase_add_test(tcase, who_watches_does_not_give_up);
    tcase_add_test(tcase, watch_that_the_next_broker_refuses);
    tcase_add_test(tcase, unwatch_follows_a_watch_that_is_put_again);
    tcase_add_test(tcase, watch_and_unwatch_while_away);
    suite_add_tcase(suite, tcase);
    return suite;
}

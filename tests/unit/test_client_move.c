/*
 * Kept sessions of the client library, with two brokers of the test on sockets
 * of a folder, and a clock that the test moves.
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
static int marked; /* an earlier broker */

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

/* The broker accepts no more connections. */
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

/* Accepts the connection of the client. False: there is none. */
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

/* The broker dies, and its address refuses connections. */
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

/* The next broker greets, and resumes the session as `generation`. */
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
    ck_assert_uint_eq(deadline("a", 5), TALK_START + 9000);
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
    while (talk.now_ms < TALK_START + 8500) {
        ck_assert_uint_eq(deadline("a", 5), TALK_START + 9000);
        ck_assert_str_eq(talk_told(&talk), "");
        talk_pass(&talk, 50);
    }
    ck_assert_str_eq(
        talk_told(&talk), "DEADLINE 2 a fence=5 until=1009000 :\n");
    ck_assert_uint_eq(deadline("a", 5), 0);
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
        TALK_START + 9000 - talk.now_ms);
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
    /* The first LOCK was granted, so the broker counts a re-entry. */
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
    /* A wait without end keeps the session. */
    ck_assert_str_eq(talk_told(&talk), AWAY_TOLD);
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
        /* The client may move at once. */
        uint64_t wait = talk.h->link == LINK_OPEN
                            ? (uint64_t)holdfast_timeout_ms(talk.h)
                            : 0;
        soonest = wait < soonest ? wait : soonest;
        latest = wait > latest ? wait : latest;
        talk_fini(&talk);
        talk.broker = -1;
        while (taken()) {
            /* the client moved at once */
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
    /* A new LOCK waits for the other broker. */
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
    /* The session is not kept, so it ends with the connection. */
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
    /* The broker would refuse the whole HELLO. */
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
    ck_assert_uint_eq(deadline("b", 7), TALK_START + 9000);
    ck_assert_uint_eq(deadline("a", 8), TALK_START + 9000);
    ck_assert_uint_eq(deadline("c", 9), TALK_START + 9000);
    talk_say(&talk, "* LOST a fence=8 reason=broken\n");
    ck_assert_str_eq(talk_told(&talk), "LOST 2 a fence=8 until=0 :\n");
    ck_assert_uint_eq(deadline("a", 8), 0);
    ck_assert_uint_eq(deadline("c", 9), TALK_START + 9000);
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
    options.upgradable = true;
    (void)holdfast_submit_lock(talk.h, "c", &options, &request);
    options.upgradable = false;
    options.limit = 3;
    options.permits = 2;
    options.delay_ms = 0;
    options.no_deadlock = true;
    options.wanted = true;
    (void)holdfast_submit_lock(talk.h, "b", &options, &request);
    options = (struct holdfast_lock_options)HOLDFAST_LOCK_DEFAULTS;
    options.tree = true;
    (void)holdfast_submit_lock(talk.h, "a/b", &options, &request);
    ck_assert_str_eq(talk_sent(&talk),
        "2 LOCK a mode=shared delay=1500\n"
        "3 LOCK c mode=upgradable delay=1500\n"
        "4 LOCK b limit=3 permits=2 deadlock=0 wanted=1\n"
        "5 LOCK a/b tree=1\n");
    for (size_t i = 0; i <= HOLDFAST_NAMES_MAX; i++)
        many[i] = "x";
    ck_assert_int_eq(holdfast_submit_lock_all(
                         talk.h, many, HOLDFAST_NAMES_MAX + 1, NULL, &request),
        HOLDFAST_BAD_ARGUMENT);
    ck_assert_int_eq(holdfast_submit_lock_all(talk.h, many, 0, NULL, &request),
        HOLDFAST_BAD_ARGUMENT);
}

END_TEST

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

static bool
is(char **word, const char *verb, const char *object)
{
    return strcmp(word[0], verb) == 0 && strcmp(word[1], object) == 0;
}

static bool
check_step(char **word)
{
    if (is(word, "at", "marked"))
        talk_check(served == marked);
    else if (is(word, "at", "other"))
        talk_check(served != marked);
    else if (is(word, "untaken", ""))
        talk_check(!taken());
    else if (is(word, "refused", "yes"))
        talk_check(holdfast_is_refused(talk.h));
    else if (is(word, "refused", "no"))
        talk_check(!holdfast_is_refused(talk.h));
    else if (is(word, "holds", "none"))
        talk_check(talk.h->holds == NULL);
    else if (strcmp(word[0], "watched") == 0)
        talk_check(holdfast_watched_find(talk.h, word[1]) != NULL);
    else if (strcmp(word[0], "unwatched") == 0)
        talk_check(holdfast_watched_find(talk.h, word[1]) == NULL);
    else
        return false;
    return true;
}

static const char *
where_of(const char *word)
{
    talk_check(word[0] == '\0' || strcmp(word, "one") == 0);
    return word[0] == '\0' ? address : paths[0];
}

static int
broker_of(const char *word)
{
    uint64_t which =
        strcmp(word, "marked") == 0 ? (uint64_t)marked : talk_number(word);

    talk_check(which < 2);
    return (int)which;
}

/*
 * More steps:
 *
 * - `begin [KEEP] [one]`, `begin_as KEEP [one]`: a session at both addresses or
 *   at one; with a user.
 * - `hold NAME REQUEST FENCE`: a granted LOCK.
 * - `crash`, `close`, `shut N`, `listen N`, `listen marked`: the end of a
 *   broker or of a connection, and a new start.
 * - `reconnect`, `greet`, `resume GENERATION`: at the next broker.
 * - `mark`, `at other`, `at marked`: remembers a broker, and compares.
 * - `untaken`, `refused yes`, `refused no`, `holds none`, `watched NAME`,
 *   `unwatched NAME`
 */
static bool
move_step(char **word)
{
    const char *verb = word[0];
    if (strcmp(verb, "begin") == 0) {
        begin_with(where_of(word[2]),
            word[1][0] != '\0' ? talk_number(word[1]) : KEEP);
        marked = served;
    } else if (strcmp(verb, "begin_as") == 0) {
        begin_as(where_of(word[2]), talk_number(word[1]));
    } else if (strcmp(verb, "hold") == 0) {
        hold(word[1], (unsigned)talk_number(word[2]),
            (unsigned)talk_number(word[3]));
    } else if (strcmp(verb, "crash") == 0) {
        crash();
    } else if (strcmp(verb, "close") == 0) {
        talk_close_broker();
    } else if (strcmp(verb, "shut") == 0) {
        shut(broker_of(word[1]));
    } else if (strcmp(verb, "listen") == 0) {
        listen_at(broker_of(word[1]));
    } else if (strcmp(verb, "reconnect") == 0) {
        reconnected();
    } else if (strcmp(verb, "greet") == 0) {
        talk_say(&talk, GREETING(OTHER));
    } else if (strcmp(verb, "resume") == 0) {
        resume((unsigned)talk_number(word[1]));
    } else if (strcmp(verb, "mark") == 0) {
        marked = served;
    } else {
        return check_step(word);
    }
    return true;
}

static const struct talk_script scripts[] = {
    {"greeting_and_resumption_are_no_answers",
        "begin | hold a 2 5 | crash | resume 2 | until a 5 9000\n"
        "clock 8500 | +0 | =~ DEADLINE 2 a fence=5\n"},
    {"belief_ends_with_what_the_broker_keeps",
        "begin 2000 | hold a 2 5 | until a 5 9000\n"
        /* A short keep_ms needs frequent questions. */
        "timeout 666 | +666 | > 3 PING | < 3 OK ttl_ms=9000 | +100 | crash\n"
        /* The broker may have seen the end right after its last answer. */
        "until a 5 2666\n"},
    {"lost_while_away",
        "begin | hold a 2 5 | hold b% 3 6 | hold c 4 7 | hold d 5 8 | crash\n"
        "=* | resume 2 | > 7 CLAIM d fence=8 count=1\n"
        "> 8 CLAIM c fence=7 count=1 | > 9 CLAIM b%25 fence=6 count=1\n"
        "> 10 CLAIM a fence=5 count=1\n"
        "< 7 ERR STALE retry=0 | = LOST 5 d fence=8 until=0 :\n"
        "< 8 ERR NOTHELD retry=0 | = LOST 4 c fence=7 until=0 :\n"
        "< 9 ERR LOST retry=0 :gone | = LOST 3 b% fence=6 until=0 :\n"
        "until b% 6 0 | < 10 OK fence=5 ttl_ms=9000 count=1\n"
        "= BACK 0  fence=0 until=0 : | until a 5 some\n"},
    {"claim_in_doubt_is_put_again",
        "begin | hold a 2 5 | crash | =* | resume 2 | >*\n"
        "< 4 ERR UNAVAILABLE retry=1 :no Redis | > | +300\n"
        "> 5 CLAIM a fence=5 count=1 | < 5 ERR INDOUBT retry=1 :no answer\n"
        /* This OK is of another hold. */
        "+300 | > 6 CLAIM a fence=5 count=1 | < 6 OK fence=6 ttl_ms=9000 "
        "count=1\n"
        "+300 | > 7 CLAIM a fence=5 count=1 | = | until a 5 9000\n"
        "< 7 OK fence=5 ttl_ms=9000 count=1 | = BACK 0  fence=0 until=0 :\n"},
    {"waiters_are_wanted_at_the_next_broker",
        "begin | lock a wait=FOREVER wanted=1 | > 2 LOCK a wanted=1\n"
        "< 2 OK fence=5 ttl_ms=9000 count=1 | =*\n"
        "< * WANTED a waiters=2 | = WANTED 0 a fence=0 until=0 :\n"
        "crash | =* | resume 2 | > 4 CLAIM a fence=5 count=1 wanted=1\n"},
    {"upgrade_and_the_hold_below_it",
        "begin | hold a 2 5 | lock a | > 3 LOCK a\n"
        "< 3 OK fence=9 ttl_ms=9000 count=2 upgrade=1 | =*\n"
        "until a 5 some | until a 9 some\n"
        "crash | =* | resume 2 | > 5 CLAIM a fence=9 count=1 upgrade=1\n"
        "> 6 CLAIM a fence=5 count=1\n"
        "< 6 OK fence=5 ttl_ms=8000 count=1\n"
        "< 5 OK fence=9 ttl_ms=9000 count=2 upgrade=1 | =*\n"
        "unlock a 9 | > 7 UNLOCK a fence=9 | until a 9 0 | until a 5 some\n"
        "< 7 OK count=1 | =* | until a 5 some\n"
        "unlock a 5 | > 8 UNLOCK a fence=5 | < 8 OK count=0 | =*\n"
        "until a 5 0\n"},
    {"upgrade_that_is_put_again",
        "begin | hold a 2 5 | lock a | > 3 LOCK a | crash | =* | resume 2\n"
        "> 5 CLAIM a fence=5 count=1 | < 5 OK fence=5 ttl_ms=9000 count=1\n"
        "> 3 LOCK a | < 3 OK fence=9 ttl_ms=9000 count=2 upgrade=1\n"
        "> 6 CLAIM a fence=9 count=1 upgrade=1 | =*\n"
        "< 6 OK fence=9 ttl_ms=9000 count=2 upgrade=1 | =~ OK 3\n"
        "until a 5 some | until a 9 some\n"},
    {"upgrade_that_is_lost",
        "begin | hold a 2 5 | lock a | > 3 LOCK a\n"
        "< 3 OK fence=9 ttl_ms=9000 count=2 upgrade=1 | =*\n"
        "unlock a 9 | >* | < * LOST a fence=9 reason=gone\n"
        "< 4 ERR STALE retry=0 :another fence | =*\n"
        "until a 9 0 | until a 5 some\n"},
    {"claim_of_a_broker_that_drains",
        "begin | hold a 2 5 | crash | =* | resume 2 | >* | listen marked\n"
        "< 4 ERR DRAINING retry=1 :going | resume 3 | at marked\n"
        "> 6 CLAIM a fence=5 count=1\n"},
    {"count_of_reentries_is_claimed",
        "begin | hold a 2 5 | lock a | < 3 OK fence=5 ttl_ms=9000 count=2\n"
        "=*\n"
        /* The broker may have counted this LOCK or not. */
        "lock a | >* | crash | resume 2\n"
        /* The LOCK must follow the CLAIM, which would undo it. */
        "> 6 CLAIM a fence=5 count=2 | =*\n"
        "< 6 OK fence=5 ttl_ms=9000 count=2 | > 4 LOCK a\n"
        "< 4 OK fence=5 ttl_ms=9000 count=3 | > 7 CLAIM a fence=5 count=3\n"
        "= BACK 0  fence=0 until=0 : | < 7 OK fence=5 ttl_ms=9000 count=3\n"
        "=~ OK 4  fence=5\n"},
    {"unlock_without_an_answer_is_put_again",
        "begin | hold a 2 5 | unlock a 5 | >* | crash\n"
        "= AWAY 0  fence=0 until=0 :the broker closed the connection\n"
        "until a 5 0 | resume 2 | > 5 CLAIM a fence=5 count=1\n"
        "< 5 OK fence=5 ttl_ms=9000 count=1 | > 3 UNLOCK a fence=5\n"
        "< 3 OK count=0 | = BACK 0  fence=0 until=0 :\n"
        "= OK 3  fence=0 until=0 :\n"},
    {"unlock_that_was_carried_out",
        "begin | hold a 2 5 | unlock a 5 | >* | crash | resume 2 | =*\n"
        "< 5 ERR LOST retry=0 :gone | = OK 3  fence=0 until=0 :\n"
        "> 5 CLAIM a fence=5 count=1\n"},
    {"unlock_that_may_be_too_late",
        "begin | hold a 2 5 | unlock a 5 | >* | crash | resume 2 | =*\n"
        /* The hold may have ended before the UNLOCK. */
        "clock 9001 | < 5 ERR LOST retry=0 :gone\n"
        "= ERR 3 LOST fence=0 until=0 :the hold was yours and has ended\n"},
    {"renew_without_an_answer_is_put_again",
        "begin | hold a 2 5 | renew a 5 4000 | > 3 RENEW a lease=4000 fence=5\n"
        "until a 5 3958 | crash | =* | renew a 5 900 | until a 5 3958\n"
        "resume 2 | > 6 CLAIM a fence=5 count=1\n"
        "< 6 OK fence=5 ttl_ms=9000 count=1 | =*\n"
        "> 3 RENEW a lease=4000 fence=5\n> 4 RENEW a lease=900 fence=5\n"
        /* The first sending counts as well. */
        "< 4 ERR CONFLICT retry=0 | until a 5 3958 | =*\n"
        "< 3 OK ttl_ms=4900 | until a 5 some\n"},
    {"some_permits_are_given_back_once",
        "begin | hold a 2 5 | part a 5 2 | >* | crash\n"
        "= ERR 3 INDOUBT fence=0 until=0 :the connection ended before the "
        "answer\n"
        "= AWAY 0  fence=0 until=0 :the broker closed the connection\n"
        "part a 5 1 | resume 2 | > 6 CLAIM a fence=5 count=1\n"
        "< 6 OK fence=5 ttl_ms=9000 count=1 | > 4 UNLOCK a permits=1 fence=5\n"
        "< 4 OK count=1 permits=2 | = BACK 0  fence=0 until=0 :\n"
        "= OK 4  fence=0 until=0 :\n"},
    {"part_of_a_lost_hold",
        "begin | hold a 2 5 | crash | part a 5 1\n"
        "= AWAY 0  fence=0 until=0 :the broker closed the connection\n"
        "resume 2 | > 5 CLAIM a fence=5 count=1 | < 5 ERR LOST retry=0 :gone\n"
        "= LOST 2 a fence=5 until=0 :\n"
        "= ERR 3 LOST fence=0 until=0 :the hold was yours and has ended\n"
        "= BACK 0  fence=0 until=0 :\n"},
    {"unlock_while_away",
        "begin | hold a 2 5 | hold b 3 6 | crash | unlock a 5 | until a 5 0\n"
        "unlock b 6\n"
        "= AWAY 0  fence=0 until=0 :the broker closed the connection\n"
        "resume 2 | > 7 CLAIM b fence=6 count=1\n"
        "> 8 CLAIM a fence=5 count=1 | = BACK 0  fence=0 until=0 :\n"
        "< 7 OK fence=6 ttl_ms=9000 count=1 | > 5 UNLOCK b fence=6\n"
        /* The UNLOCK was not sent before the loss. */
        "< 8 ERR LOST retry=0 :gone\n"
        "= ERR 4 LOST fence=0 until=0 :the hold was yours and has ended\n"},
    {"order_on_one_lock_stays",
        "begin | lock a | >* | unlock a 0 | lock b | >* | crash | resume 2\n"
        /* If the LOCK was granted before, the CLAIM comes first. */
        "> 2 LOCK a | > 4 LOCK b | < 2 OK fence=5 ttl_ms=9000 count=2\n"
        "> 6 CLAIM a fence=5 count=1 | < 6 OK fence=5 ttl_ms=9000 count=1\n"
        "> 3 UNLOCK a\n"},
    {"other_requests_are_in_doubt",
        "begin | submit HELP | >* | crash | submit STATS\n"
        "= ERR 2 INDOUBT fence=0 until=0 :the connection ended before the "
        "answer\n"
        "= AWAY 0  fence=0 until=0 :the broker closed the connection\n"
        "resume 2 | > 3 STATS\n"},
    {"cancel_goes_with_its_lock",
        "begin | lock a | >* | cancel 2 | >* | crash | =*\n"
        /* This LOCK was sent to no broker. */
        "lock b | >* | cancel 4 | > | +0\n"
        "= ERR 4 CANCELLED fence=0 until=0 :the wait was cancelled\n"
        "= OK 5  fence=0 until=0 : | resume 2 | > 2 LOCK a | > 3 CANCEL 2\n"},
    {"cancel_calls_off_no_unlock",
        "begin | hold a 2 5 | crash | =* | unlock a 5 | cancel 3 | +0 | =\n"
        "resume 2 | > 6 CLAIM a fence=5 count=1\n"
        "< 6 OK fence=5 ttl_ms=9000 count=1 | > 3 UNLOCK a fence=5\n"
        "> 4 CANCEL 3\n"},
    {"generation_grows_with_each_connection",
        "begin | hold a 2 5 | crash | listen marked | reconnect | greet\n"
        ">~ gen=2\n"
        /* The connection ends before the answer. */
        "close | +0 | resume 3 | >~ CLAIM a\n"
        "= AWAY 0  fence=0 until=0 :the broker closed the connection\n"},
    {"broker_that_does_not_go_on",
        "begin | hold a 2 5 | crash | listen marked | reconnect | mark\n"
        "greet | >* | < 3 ERR CONFLICT retry=0 :gen= must be larger\n"
        "resume 3 | at other\n"},
    {"brokers_that_do_not_greet",
        "begin | hold a 2 5 | crash | listen marked | reconnect | mark\n"
        "< * BYE drain | close | +0 | reconnect | at other\n"
        /* The client leaves a silent broker in time. */
        "+3000 | resume 2\n"
        "= AWAY 0  fence=0 until=0 :the broker closed the connection\n"},
    {"given_up_when_nobody_would_miss_it",
        "begin | hold a 2 5 | lock b wait=40000 | >* | crash | shut 0\n"
        "shut 1 | pass 39000\n"
        "= AWAY 0  fence=0 until=0 :the broker closed the connection\n"
        "= DEADLINE 2 a fence=5 until=1009000 : | pass 43000\n"
        "= CLOSED 0  fence=0 until=0 :the broker closed the connection\n"},
    {"overdue_hold_is_given_back_at_last",
        "begin | hold a 2 5 | crash | @9000 | +0\n"
        "= AWAY 0  fence=0 until=0 :the broker closed the connection\n"
        "= DEADLINE 2 a fence=5 until=1009000 : | resume 2\n"
        /* BACK does not wait for a hold that is given up. */
        "= BACK 0  fence=0 until=0 : | > 4 CLAIM a fence=5 count=1\n"
        "< 4 OK fence=5 ttl_ms=9000 count=1 | until a 5 0\n"
        "> 5 UNLOCK a fence=5 | < 5 OK count=0 | = | holds none\n"},
    {"drain_moves_before_the_broker_closes",
        "begin | hold a 2 5 | lock b | >* | < * DRAIN grace_ms=4000\n"
        "< 3 ERR DRAINING retry=1 :going\n"
        /* The move is soon, since a LOCK waits. */
        "+200 | = DRAIN 0  fence=0 until=0 :\n"
        "= AWAY 0  fence=0 until=0 :the broker drains | resume 2 | at other\n"
        "> 5 CLAIM a fence=5 count=1 | > 3 LOCK b\n"},
    {"drain_without_another_address",
        "begin 30000 one | hold a 2 5 | < * DRAIN grace_ms=4000 | +3000\n"
        /* The broker renews until it stops. */
        "> 3 PING\n"
        /* A LOCK waits for the next broker. */
        "lock b | >* | > | < 3 OK ttl_ms=9000 | < * BYE drain\n"
        "= DRAIN 0  fence=0 until=0 : | close | +0\n"
        "= AWAY 0  fence=0 until=0 :the broker said BYE drain | resume 2\n"
        "> 6 CLAIM a fence=5 count=1 | > 4 LOCK b\n"},
#define FINAL(why)                                                       \
    {                                                                    \
        "BYE " why " is the end",                                        \
            "begin | hold a 2 5 | < * BYE " why " | crash\n"             \
            "= BYE 0 " why " fence=0 until=0 :\n"                        \
            "= CLOSED 0  fence=0 until=0 :the broker said BYE " why "\n" \
            "until a 5 0\n"                                              \
    }
    FINAL("killed"),
    FINAL("quit"),
    FINAL("resumed"),
    FINAL("protocol"),
    FINAL("auth"),
    {"bye_whose_session_is_over_is_the_end",
        "begin | hold a 2 5 | < * BYE eof keep=0 | crash\n"
        "= BYE 0 eof fence=0 until=0 :\n"
        "= CLOSED 0  fence=0 until=0 :the broker said BYE eof\n"
        "until a 5 0\n"},
    {"bye_of_a_session_that_is_not_resumed_yet",
        "begin | hold a 2 5 | crash | listen marked | reconnect | greet\n"
        ">~ gen=2\n"
        "< * BYE heartbeat keep=0\n"
        "close | +0 | resume 3 | >~ CLAIM a\n"
        "= AWAY 0  fence=0 until=0 :the broker closed the connection\n"},
    {"bye_whose_session_stands_is_not_the_end",
        "begin | hold a 2 5 | < * BYE protocol keep=1 | crash\n"
        "= AWAY 0  fence=0 until=0 :the broker said BYE protocol | resume 2\n"},
    {"quit_is_the_end",
        "begin | submit quit | > 2 quit | crash\n"
        "= CLOSED 0  fence=0 until=0 :the broker closed the connection\n"},
    {"nonsense_is_the_end",
        "begin | hold a 2 5\n"
        /* The line may be a LOST. */
        "< * LOST %zz\n"
        "= CLOSED 0  fence=0 until=0 :a line of the broker is malformed\n"},
    {"silent_broker_is_left_in_time",
        "begin | hold a 2 5 | +3000 | > 3 PING | +2249 | = | +1\n"
        "= AWAY 0  fence=0 until=0 :the broker is silent | resume 2\n"
        "> 5 CLAIM a fence=5 count=1\n"},
    {"user_comes_first",
        /* Requests wait for the OK to AUTH. */
        "begin_as 0 one | lock a | +100 | > 1 AUTH till%203 s%25cret\n"
        "< 1 OK | > 2 LOCK a | = | refused no\n"},
    {"user_that_is_refused",
        "begin_as 30000 one | > 1 AUTH till%203 s%25cret\n"
        "> 2 HELLO keep=30000 | lock a\n"
        "< 2 OK session=0123456789abcdef0123456789abcdef proto=1 "
        "keep_ms=30000\n"
        "< 1 ERR AUTH retry=0 :no such user, or another secret | >\n"
        "= CLOSED 0  fence=0 until=0 :the broker refuses the user till 3: "
        "AUTH\n"
        "refused yes | +60000 | untaken\n"},
    {"user_moves_with_the_session",
        /* AUTH comes before HELLO at each broker. */
        "begin_as 30000 | >* | < 1 OK\n"
        "< 2 OK session=0123456789abcdef0123456789abcdef proto=1 "
        "keep_ms=30000\n"
        "hold a 3 7 | crash | reconnect | greet\n"
        "> 4 AUTH till%203 s%25cret\n"
        "> 5 HELLO keep=30000 resume=0123456789abcdef0123456789abcdef gen=2\n"
        "< 4 OK\n"
        "< 5 OK session=0123456789abcdef0123456789abcdef proto=1 keep_ms=30000 "
        "gen=2\n"
        "> 6 CLAIM a fence=7 count=1\n"},
    {"user_that_another_broker_refuses",
        /* The client tries the next broker, and the hold stands. */
        "begin_as 30000 | >* | < 1 OK\n"
        "< 2 OK session=0123456789abcdef0123456789abcdef proto=1 "
        "keep_ms=30000\n"
        "hold a 3 7 | close | +0 | reconnect | greet | >*\n"
        "< 5 ERR AUTH retry=0 :who | refused no | until a 7 some\n"
        "reconnect | greet | > 6 AUTH till%203 s%25cret\n"
        "> 7 HELLO keep=30000 resume=0123456789abcdef0123456789abcdef gen=3\n"},
    {"several_names_are_put_again_and_claimed_each",
        "begin | hold a 2 8 | lock b,a,c | >* | crash | resume 2\n"
        "> 5 CLAIM a fence=8 count=1 | < 5 OK fence=8 ttl_ms=9000 count=1\n"
        "> 3 LOCK b a c | =* | < 3 OK fence=7,8,9 ttl_ms=9000 count=2\n"
        "> 6 CLAIM c fence=9 count=1 | > 7 CLAIM b fence=7 count=1\n"
        "> 8 CLAIM a fence=8 count=2 | < 6 OK fence=9 ttl_ms=9000 count=1\n"
        "< 8 OK fence=8 ttl_ms=9000 count=2 | =\n"
        "< 7 OK fence=7 ttl_ms=9000 count=1 | =~ OK 3  fence=7\n"},
    {"old_grant_of_several_names_is_confirmed_first",
        "begin | lock b,a,c | >* | @9500\n"
        "< 2 OK fence=7,8,9 ttl_ms=9000 count=1\n"
        "< * LOST a fence=8 reason=expired\n"
        "= OK 2  fence=7 until=1009000 : | = LOST 2 a fence=8 until=0 :\n"
        "= DEADLINE 2 c fence=9 until=1009000 :\n"
        "= DEADLINE 2 b fence=7 until=1009000 :\n"},
    {"await_goes_on",
        "begin | await a FOREVER | await b 5000 | await c 0\n"
        "> 2 AWAIT a | > 3 AWAIT b wait=5000 | > 4 AWAIT c wait=0\n"
        "< 4 ERR BUSY retry=1 :held | = ERR 4 BUSY fence=0 until=0 :held\n"
        "+1000 | >* | crash | =* | resume 2 | > 2 AWAIT a\n"
        "> 3 AWAIT b wait=3950 | < 3 ERR TIMEOUT retry=1 :held\n"
        "= BACK 0  fence=0 until=0 :\n"
        "= ERR 3 TIMEOUT fence=0 until=0 :held\n"
        "< 2 ERR DRAINING retry=1 :going | = | resume 3 | > 2 AWAIT a\n"
        "< 2 OK fence=7 note=x | =~ OK 2  fence=7\n"},
    {"watches_go_on",
        "begin | watch a | > 2 WATCH a | < 2 OK | < * HELD a fence=5 name=x\n"
        "= OK 2  fence=0 until=0 : | = HELD 0 a fence=5 until=0 : | crash\n"
        "=* | resume 2 | > 4 WATCH a | < 4 OK | < * HELD a fence=5 name=x\n"
        /* The program has seen this event. */
        "= BACK 0  fence=0 until=0 : | < * FREE a\n"
        "= FREE 0 a fence=0 until=0 :\n"},
    {"watches_of_members_begin_again",
        "begin | members a | > 2 WATCH a members=1 | < 2 OK\n"
        "< * MEMBERS a members=0 | = OK 2  fence=0 until=0 :\n"
        "= MEMBERS 0 a fence=0 until=0 : | crash | =* | resume 2\n"
        "> 4 WATCH a members=1 | < 4 OK | < * MEMBERS a members=0\n"
        "= BACK 0  fence=0 until=0 : | = MEMBERS 0 a fence=0 until=0 :\n"
        "< * JOINED a fence=5 | = JOINED 0 a fence=5 until=0 :\n"
        "< * CHANGED a fence=5 | < * CHANGED a fence=5 | < * LEFT a fence=5\n"
        "= CHANGED 0 a fence=5 until=0 : | = CHANGED 0 a fence=5 until=0 :\n"
        "= LEFT 0 a fence=5 until=0 :\n"},
    {"who_watches_does_not_give_up",
        "begin | watch a | >* | < 2 OK | =* | crash | shut 0 | shut 1\n"
        "pass 100000\n"
        "= AWAY 0  fence=0 until=0 :the broker closed the connection\n"
        "listen 0 | resume 2 | >~  WATCH a\n"},
    {"watch_that_the_next_broker_refuses",
        "begin | watch a | >* | < 2 OK | < * FREE a | crash | resume 2 | =*\n"
        "> 4 WATCH a | < 4 ERR UNAVAILABLE retry=1 :no Redis | +3000\n"
        "> 5 WATCH a | < 5 OK | < * HELD a fence=6\n"
        "= HELD 0 a fence=6 until=0 :\n"},
    {"unwatch_follows_a_watch_that_is_put_again",
        "begin | watch a | watch b | >* | < 3 OK | unwatch a | unwatch b\n"
        ">* | =* | crash | =* | +0 | resume 2 | > 2 WATCH a | > 4 UNWATCH a\n"
        "< 2 OK | < 4 OK | unwatched a | unwatched b\n"},
    {"unwatch_follows_a_watch_of_members",
        "begin | members a | >* | unwatch a | >* | crash | =* | +0 | resume 2\n"
        "> 2 WATCH a members=1 | > 3 UNWATCH a | < 2 OK | < 3 OK\n"
        "unwatched a\n"},
    {"watch_and_unwatch_while_away",
        "begin | watch a | watch b | >* | < 2 OK | < 3 OK | unwatch a | >*\n"
        "crash | unwatch b | watch c | =* | +0 | = OK 5  fence=0 until=0 :\n"
        "resume 2 | > 6 WATCH c | < 6 OK | watched c | unwatched a\n"
        "unwatched b\n"},
};

START_TEST(script)
{
    talk_run(&talk, &scripts[_i], move_step);
}

END_TEST

Suite *
client_move_suite(void)
{
    Suite *suite = suite_create("client_move");
    TCase *tcase = tcase_create("sessions");

    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_loop_test(
        tcase, script, 0, (int)(sizeof(scripts) / sizeof(scripts[0])));
    tcase_add_test(tcase, hold_is_claimed_at_the_other_broker);
    tcase_add_test(tcase, nothing_but_an_answer_moves_the_deadline);
    tcase_add_test(tcase, ping_says_nothing_of_what_is_not_claimed);
    tcase_add_test(tcase, waits_are_put_again_with_what_is_left);
    tcase_add_test(tcase, grant_that_was_told_to_nobody_counts_once);
    tcase_add_test(tcase, pauses_grow_to_two_seconds);
    tcase_add_test(tcase, drain_is_spread_over_a_part_of_the_grace);
    tcase_add_test(tcase, drain_does_not_move_to_the_same_address);
    tcase_add_test(tcase, destroyed_says_quit);
    tcase_add_test(tcase, destroyed_in_a_child_says_nothing);
    tcase_add_test(tcase, broker_that_keeps_nothing);
    tcase_add_test(tcase, requests_wait_for_a_broker_that_greets);
    tcase_add_test(tcase, lists_of_addresses);
    tcase_add_test(tcase, options_of_a_session);
    suite_add_tcase(suite, tcase);
    tcase = tcase_create("users");
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, users_that_cannot_be);
    suite_add_tcase(suite, tcase);
    tcase = tcase_create("kinds");
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, several_names);
    tcase_add_test(tcase, fences_that_do_not_fit);
    tcase_add_test(tcase, kinds_of_lock_as_they_are_written);
    suite_add_tcase(suite, tcase);
    tcase = tcase_create("watches");
    tcase_add_checked_fixture(tcase, setup, teardown);
    suite_add_tcase(suite, tcase);
    return suite;
}

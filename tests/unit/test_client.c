/*
 * The client library: encoding, lines, requests, events, blocking calls. Its
 * deadlines are in test_client_hold.c.
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
#include <unistd.h>

Suite *client_suite(void);

#define GREETING                                                        \
    "* HELLO proto=1 server=holdfastd/0.1.0 session=abc max_line=4096 " \
    "lease_ms=30000\n"

static uint64_t
talk_clock(void *context)
{
    const struct talk *talk = context;

    return talk->now_ms;
}

void
talk_init(struct talk *talk)
{
    int ends[2];

    memset(talk, 0, sizeof(*talk));
    talk->now_ms = 1000000;
    ck_assert_int_eq(
        socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends), 0);
    talk->broker = ends[1];
    ck_assert_int_eq(holdfast_create_over(ends[0], talk_clock, talk, &talk->h),
        HOLDFAST_SUCCESS);
}

void
talk_init_at(struct talk *talk, const struct holdfast_options *options)
{
    memset(talk, 0, sizeof(*talk));
    talk->now_ms = 1000000;
    talk->broker = -1;
    ck_assert_int_eq(holdfast_create_at(options, talk_clock, talk, &talk->h),
        HOLDFAST_SUCCESS);
}

void
talk_fini(struct talk *talk)
{
    holdfast_destroy(&talk->h);
    if (talk->broker >= 0)
        (void)close(talk->broker);
}

static const char *
kind_name(enum holdfast_kind kind)
{
    static const char *const names[] = {
        [HOLDFAST_HELLO] = "HELLO",
        [HOLDFAST_OK] = "OK",
        [HOLDFAST_ERR] = "ERR",
        [HOLDFAST_ITEM] = "ITEM",
        [HOLDFAST_QUEUED] = "QUEUED",
        [HOLDFAST_LOST] = "LOST",
        [HOLDFAST_JEOPARDY] = "JEOPARDY",
        [HOLDFAST_SAFE] = "SAFE",
        [HOLDFAST_DEADLINE] = "DEADLINE",
        [HOLDFAST_DRAIN] = "DRAIN",
        [HOLDFAST_BYE] = "BYE",
        [HOLDFAST_CLOSED] = "CLOSED",
        [HOLDFAST_AWAY] = "AWAY",
        [HOLDFAST_BACK] = "BACK",
        [HOLDFAST_HELD] = "HELD",
        [HOLDFAST_FREE] = "FREE",
        [HOLDFAST_MEMBERS] = "MEMBERS",
        [HOLDFAST_JOINED] = "JOINED",
        [HOLDFAST_CHANGED] = "CHANGED",
        [HOLDFAST_LEFT] = "LEFT",
        [HOLDFAST_WANTED] = "WANTED",
    };

    return names[kind];
}

static void
talk_note(struct talk *talk, const struct holdfast_event *event)
{
    size_t room = sizeof(talk->told) - talk->told_len;
    int len = snprintf(talk->told + talk->told_len, room,
        "%s %" PRIu64 " %s fence=%" PRIu64 " until=%" PRIu64 " :%s\n",
        kind_name(event->kind), event->request, event->word, event->fence,
        event->deadline_ms, event->text);

    ck_assert_int_gt(len, 0);
    ck_assert_uint_lt((size_t)len, room);
    talk->told_len += (size_t)len;
}

static void
talk_turn(struct talk *talk)
{
    struct holdfast_event event;

    holdfast_process(talk->h, POLLIN);
    while (holdfast_next(talk->h, &event))
        talk_note(talk, &event);
}

static void
talk_send(struct talk *talk, const char *bytes, size_t len)
{
    ck_assert_int_eq(
        send(talk->broker, bytes, len, MSG_NOSIGNAL), (ssize_t)len);
}

void
talk_say(struct talk *talk, const char *text)
{
    talk_send(talk, text, strlen(text));
    talk_turn(talk);
}

void
talk_greet(struct talk *talk)
{
    talk_say(talk, GREETING);
    (void)talk_told(talk);
}

void
talk_pass(struct talk *talk, uint64_t ms)
{
    talk->now_ms += ms;
    talk_turn(talk);
}

const char *
talk_sent(struct talk *talk)
{
    size_t len = 0;
    ssize_t got;

    holdfast_process(talk->h, 0);
    while ((got = recv(talk->broker, talk->sent + len,
                sizeof(talk->sent) - 1 - len, 0)) > 0)
        len += (size_t)got;
    talk->sent[len] = '\0';
    return talk->sent;
}

const char *
talk_told(struct talk *talk)
{
    talk->told[talk->told_len] = '\0';
    talk->told_len = 0;
    return talk->told;
}

START_TEST(encode_and_decode_any_byte)
{
    char bytes[256];
    char word[3 * sizeof(bytes) + 1];

    for (size_t i = 0; i < sizeof(bytes); i++)
        bytes[i] = (char)i;
    size_t len = holdfast_encode(bytes, sizeof(bytes), word, sizeof(word));
    ck_assert_uint_gt(len, sizeof(bytes));
    ck_assert_uint_eq(strlen(word), len);
    for (size_t i = 0; i < len; i++)
        ck_assert(word[i] > 0x20 && word[i] < 0x7f && word[i] != '=');
    ck_assert_uint_eq(holdfast_decode(word, len), sizeof(bytes));
    ck_assert_mem_eq(word, bytes, sizeof(bytes));
}

END_TEST

START_TEST(encode_what_must_be)
{
    char word[64];

    ck_assert_uint_eq(holdfast_encode(":a:b =%", 7, word, sizeof(word)), 15);
    ck_assert_str_eq(word, "%3Aa:b%20%3D%25");
    ck_assert_uint_eq(holdfast_encode("abc", 3, word, 4), 3);
    ck_assert_uint_eq(holdfast_encode("abc", 3, word, 3), 0);
    ck_assert_uint_eq(holdfast_encode("a ", 2, word, 4), 0);
    ck_assert_uint_eq(holdfast_encode("a ", 2, word, 5), 4);
    ck_assert_uint_eq(holdfast_encode("", 0, word, sizeof(word)), 0);
}

END_TEST

START_TEST(decode_refuses_what_is_no_hex)
{
    static const char *const bad[] = {"%", "%4", "a%", "%zz", "%4g", "%%41"};
    char word[16];

    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        (void)snprintf(word, sizeof(word), "%s", bad[i]);
        ck_assert_uint_eq(holdfast_decode(word, strlen(word)), SIZE_MAX);
    }
    (void)snprintf(word, sizeof(word), "%%4a%%4A");
    ck_assert_uint_eq(holdfast_decode(word, 6), 2);
    ck_assert_str_eq(word, "JJ");
}

END_TEST

START_TEST(message_is_taken_apart)
{
    char line[] = "7 ITEM a%20b second key=v%3Dw  other=%00x :free = text";
    struct holdfast_message message;

    ck_assert(holdfast_message_parse(line, sizeof(line) - 1, &message));
    ck_assert_str_eq(message.tag, "7");
    ck_assert_str_eq(message.verb, "ITEM");
    ck_assert_str_eq(message.word, "a b");
    ck_assert_uint_eq(message.word_len, 3);
    ck_assert_uint_eq(message.pair_count, 2);
    ck_assert_str_eq(holdfast_message_value(&message, "key"), "v=w");
    ck_assert_uint_eq(message.pairs[1].len, 2);
    ck_assert_mem_eq(message.pairs[1].value, "\0x", 3);
    ck_assert_str_eq(message.text, "free = text");
    ck_assert_ptr_null(holdfast_message_value(&message, "k"));
}

END_TEST

START_TEST(message_refuses_nonsense)
{
    static const char *const bad[] = {
        "", " ", "7", "7 ", "7 OK a%2", "7 OK =v", "7 OK k=%", "7 OK %zz"};
    struct holdfast_message message;
    char line[64];

    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        (void)snprintf(line, sizeof(line), "%s", bad[i]);
        ck_assert(!holdfast_message_parse(line, strlen(line), &message));
    }
    memcpy(line, "7 O\0K", 6);
    ck_assert(!holdfast_message_parse(line, 5, &message));
}

END_TEST

START_TEST(message_keeps_only_so_many_pairs)
{
    char line[4 * CLIENT_PAIRS * 2];
    struct holdfast_message message;
    int len = snprintf(line, sizeof(line), "1 OK");

    for (int i = 0; i < CLIENT_PAIRS + 5; i++)
        len += snprintf(line + len, sizeof(line) - (size_t)len, " k=v");
    ck_assert(holdfast_message_parse(line, (size_t)len, &message));
    ck_assert_uint_eq(message.pair_count, CLIENT_PAIRS);
}

END_TEST

START_TEST(numbers_are_strict)
{
    static const char *const bad[] = {"", "-1", "+1", " 1", "1 ", "0x1",
        "18446744073709551616", "99999999999999999999999"};
    uint64_t value = 5;

    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        ck_assert(!holdfast_number(bad[i], &value));
    ck_assert_uint_eq(value, 5);
    ck_assert(holdfast_number("18446744073709551615", &value));
    ck_assert_uint_eq(value, UINT64_MAX);
}

END_TEST

static const char conversation[] =
    GREETING "* NEWS of=tomorrow\r\n"
             "\r\n"
             "2 QUEUED position=1\n"
             "1 OK fence=42 ttl_ms=9000 count=1 color=blue\n"
             "* JEOPARDY a ttl_ms=500\n"
             "3 WHATEVER\n"
             "* SAFE a ttl_ms=8000\r\n"
             "2 ERR TIMEOUT retry=1 :the lock was held\n"
             "99 OK\n"
             "- ERR BADREQ retry=0 :what?\n"
             "* LOST a fence=42 reason=expired\n"
             "* DRAIN grace_ms=1000\n"
             "* BYE drain\n";

static const char conversation_told[] =
    "HELLO 0  fence=0 until=0 :\n"
    "QUEUED 2  fence=0 until=0 :\n"
    "OK 1  fence=42 until=1009000 :\n"
    "JEOPARDY 0 a fence=0 until=0 :\n"
    "SAFE 0 a fence=0 until=0 :\n"
    "ERR 2 TIMEOUT fence=0 until=0 :the lock was held\n"
    "LOST 1 a fence=42 until=0 :\n"
    "DRAIN 0  fence=0 until=0 :\n"
    "BYE 0 drain fence=0 until=0 :\n";

static void
conversation_begin(struct talk *talk)
{
    uint64_t request;

    talk_init(talk);
    ck_assert_int_eq(holdfast_submit_lock(talk->h, "a", NULL, &request), 0);
    ck_assert_uint_eq(request, 1);
    ck_assert_int_eq(holdfast_submit_lock(talk->h, "b", NULL, &request), 0);
    ck_assert_uint_eq(request, 2);
    ck_assert_int_eq(holdfast_submit(talk->h, "HELP", &request), 0);
    ck_assert_uint_eq(request, 3);
}

START_TEST(each_task_has_an_owner)
{
    struct holdfast_lock_options options = HOLDFAST_LOCK_DEFAULTS;
    char owners[2][HOLDFAST_OWNER_MAX + 1];
    struct talk talk;
    uint64_t request;

    talk_init(&talk);
    talk_greet(&talk);
    for (size_t i = 0; i < 2; i++) {
        holdfast_new_owner(talk.h, owners[i]);
        options.owner = owners[i];
        ck_assert_int_eq(
            holdfast_submit_lock(talk.h, "a", &options, &request), 0);
    }
    (void)holdfast_submit_unlock(talk.h, "a", owners[0], 5, &request);
    ck_assert_str_eq(talk_sent(&talk), "1 LOCK a owner=~1\n2 LOCK a owner=~2\n"
                                       "3 UNLOCK a fence=5 owner=~1\n");
    talk_fini(&talk);
}

END_TEST

START_TEST(same_events_however_the_reads_are_cut)
{
    size_t len = sizeof(conversation) - 1;

    for (size_t cut = 0; cut <= len; cut++) {
        struct talk talk;

        conversation_begin(&talk);
        talk_send(&talk, conversation, cut);
        talk_turn(&talk);
        talk_send(&talk, conversation + cut, len - cut);
        talk_turn(&talk);
        ck_assert_str_eq(talk_told(&talk), conversation_told);
        talk_fini(&talk);
    }
}

END_TEST

START_TEST(same_events_byte_by_byte)
{
    struct talk talk;

    conversation_begin(&talk);
    for (size_t i = 0; i < sizeof(conversation) - 1; i++) {
        talk_send(&talk, conversation + i, 1);
        talk_turn(&talk);
    }
    ck_assert_str_eq(talk_told(&talk), conversation_told);
    ck_assert_str_eq(holdfast_session(talk.h), "abc");
    ck_assert_str_eq(holdfast_server(talk.h), "holdfastd/0.1.0");
    (void)close(talk.broker);
    talk.broker = -1;
    talk_turn(&talk);
    ck_assert_str_eq(talk_told(&talk),
        "CLOSED 0  fence=0 until=0 :the broker said BYE drain\n");
    ck_assert_int_eq(holdfast_fd(talk.h), -1);
    ck_assert_int_eq(holdfast_events(talk.h), 0);
    ck_assert_int_eq(holdfast_timeout_ms(talk.h), -1);
    talk_turn(&talk);
    ck_assert_str_eq(talk_told(&talk), "");
    talk_fini(&talk);
}

END_TEST

START_TEST(requests_as_they_are_written)
{
    const struct holdfast_lock_options options = {
        .wait_ms = 0,
        .lease_ms = 60000,
        .owner = "till 3",
        .note = "100%",
        .progress = true,
    };
    struct talk talk;
    uint64_t request;

    talk_init(&talk);
    ck_assert_int_eq(holdfast_submit_lock(talk.h, "a", NULL, &request), 0);
    ck_assert_int_eq(
        holdfast_submit_lock(talk.h, ":x=\xc3\xa4", &options, &request), 0);
    ck_assert_int_eq(holdfast_submit_unlock(talk.h, "a", NULL, 7, &request), 0);
    ck_assert_int_eq(holdfast_submit_unlock(talk.h, "a", "me", 0, &request), 0);
    ck_assert_int_eq(
        holdfast_submit_renew(talk.h, "a", NULL, 7, 1500, &request), 0);
    ck_assert_int_eq(holdfast_submit(talk.h, "SHOW a limit=3", &request), 0);
    ck_assert_str_eq(talk_sent(&talk),
        "1 LOCK a\n"
        "2 LOCK %3Ax%3D%C3%A4 wait=0 lease=60000 owner=till%203 note=100%25 "
        "progress=1\n"
        "3 UNLOCK a fence=7\n"
        "4 UNLOCK a owner=me\n"
        "5 RENEW a lease=1500 fence=7\n"
        "6 SHOW a limit=3\n");
    talk_fini(&talk);
}

END_TEST

START_TEST(bad_arguments_send_nothing)
{
    static const char *const lines[] = {
        "", "7 PING", "PING\nPING", "PING\r", "\x7f"};
    struct holdfast_lock_options options = HOLDFAST_LOCK_DEFAULTS;
    char long_name[HOLDFAST_NAME_MAX + 2];
    char long_line[CLIENT_LINE_BYTES + 1];
    struct talk talk;
    uint64_t request = 77;

    talk_init(&talk);
    memset(long_name, 'x', sizeof(long_name) - 1);
    long_name[sizeof(long_name) - 1] = '\0';
    memset(long_line, 'x', sizeof(long_line) - 1);
    long_line[sizeof(long_line) - 1] = '\0';
    ck_assert_int_eq(holdfast_submit_lock(talk.h, "", NULL, &request),
        HOLDFAST_BAD_ARGUMENT);
    ck_assert_int_eq(holdfast_submit_lock(talk.h, long_name, NULL, &request),
        HOLDFAST_BAD_ARGUMENT);
    options.owner = "";
    ck_assert_int_eq(holdfast_submit_lock(talk.h, "a", &options, &request),
        HOLDFAST_BAD_ARGUMENT);
    options.owner = long_name;
    ck_assert_int_eq(holdfast_submit_lock(talk.h, "a", &options, &request),
        HOLDFAST_BAD_ARGUMENT);
    for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++)
        ck_assert_int_eq(
            holdfast_submit(talk.h, lines[i], &request), HOLDFAST_BAD_ARGUMENT);
    ck_assert_int_eq(
        holdfast_submit(talk.h, long_line, &request), HOLDFAST_BAD_ARGUMENT);
    ck_assert_uint_eq(request, 77);
    ck_assert_str_eq(talk_sent(&talk), "");
    /* The longest name fits, also encoded. */
    memset(long_name, ' ', HOLDFAST_NAME_MAX);
    long_name[HOLDFAST_NAME_MAX] = '\0';
    ck_assert_int_eq(holdfast_submit_lock(talk.h, long_name, NULL, &request),
        HOLDFAST_SUCCESS);
    talk_fini(&talk);
}

END_TEST

START_TEST(unread_requests_are_bounded)
{
    enum holdfast_status status = HOLDFAST_SUCCESS;
    char line[CLIENT_LINE_BYTES - 32];
    struct talk talk;
    uint64_t request;
    int count = 0;

    talk_init(&talk);
    memset(line, 'x', sizeof(line) - 1);
    line[sizeof(line) - 1] = '\0';
    while (status == HOLDFAST_SUCCESS && count < 1000) {
        status = holdfast_submit(talk.h, line, &request);
        count++;
    }
    ck_assert_int_eq(status, HOLDFAST_FULL);
    ck_assert_int_gt(count, 200);
    ck_assert_int_eq(holdfast_events(talk.h), POLLIN | POLLOUT);
    talk_fini(&talk);
}

END_TEST

START_TEST(ping_event_is_answered)
{
    struct talk talk;

    talk_init(&talk);
    talk_greet(&talk);
    talk_say(&talk, "* PING 12\n* PING x\n");
    ck_assert_str_eq(talk_sent(&talk), "PONG 12\n");
    ck_assert_str_eq(talk_told(&talk), "");
    talk_fini(&talk);
}

END_TEST

static void
closed_by(const char *text, const char *reason)
{
    struct talk talk;

    talk_init(&talk);
    talk_say(&talk, text);
    ck_assert_ptr_nonnull(strstr(talk_told(&talk), "CLOSED"));
    ck_assert_str_eq(holdfast_reason(talk.h), reason);
    talk_fini(&talk);
}

START_TEST(strangers_are_refused)
{
    closed_by(
        "HTTP/1.1 400 Bad Request\n", "the peer is not a Holdfast broker");
    closed_by(
        "* HELLO proto=2\n", "the broker has another version of the protocol");
    closed_by("* HELLO\n", "the broker has another version of the protocol");
    closed_by("* HELLO proto=1 max_line=63\n",
        "the broker's limit of a line is too small");
    closed_by(GREETING "* LOST a%zz\n", "a line of the broker is malformed");
}

END_TEST

START_TEST(overlong_line_is_refused)
{
    char line[CLIENT_IN_BYTES + 10];
    struct talk talk;

    talk_init(&talk);
    talk_greet(&talk);
    memset(line, 'x', sizeof(line) - 1);
    line[sizeof(line) - 1] = '\0';
    talk_say(&talk, line);
    ck_assert_str_eq(
        holdfast_reason(talk.h), "a line of the broker is too long");
    talk_fini(&talk);
}

END_TEST

START_TEST(no_greeting_in_time)
{
    struct talk talk;

    talk_init(&talk);
    ck_assert_int_eq(holdfast_timeout_ms(talk.h), (int)CLIENT_SILENCE_MS / 2);
    talk_pass(&talk, CLIENT_SILENCE_MS / 2);
    ck_assert_str_eq(
        holdfast_reason(talk.h), "connected, but no greeting came");
    talk_fini(&talk);
}

END_TEST

START_TEST(requests_after_the_end_are_refused)
{
    struct holdfast_hold hold;
    struct talk talk;
    uint64_t request;

    talk_init(&talk);
    (void)close(talk.broker);
    talk.broker = -1;
    talk_turn(&talk);
    ck_assert_int_eq(
        holdfast_submit(talk.h, "PING", &request), HOLDFAST_NOT_CONNECTED);
    ck_assert_int_eq(
        holdfast_connect_wait(talk.h, 1000), HOLDFAST_NOT_CONNECTED);
    ck_assert_int_eq(
        holdfast_lock(talk.h, "a", NULL, &hold), HOLDFAST_NOT_CONNECTED);
    talk_fini(&talk);
}

END_TEST

static const char an_item[] = "1 ITEM name=x\n";

/* As many items as are read while nobody takes them; the number of what they
 * are of. */
static uint64_t
leave_events(struct talk *talk)
{
    uint64_t request;

    talk_init(talk);
    talk_greet(talk);
    ck_assert_int_eq(holdfast_submit(talk->h, "LOCKS", &request), 0);
    for (int i = 0; i < 2 * CLIENT_NOTICES; i++) {
        talk_send(talk, an_item, sizeof(an_item) - 1);
        holdfast_process(talk->h, POLLIN);
        if ((holdfast_events(talk->h) & POLLIN) == 0)
            break;
    }
    ck_assert_int_eq(holdfast_events(talk->h) & POLLIN, 0);
    return request;
}

/* The number of items. */
static size_t
take_events(struct talk *talk)
{
    struct holdfast_event event;
    size_t taken = 0;

    while (holdfast_next(talk->h, &event))
        taken++;
    return taken;
}

START_TEST(reading_stops_when_nobody_takes_the_events)
{
    struct talk talk;

    (void)leave_events(&talk);
    ck_assert_uint_eq(take_events(&talk), CLIENT_NOTICES);
    ck_assert_int_ne(holdfast_events(talk.h) & POLLIN, 0);
    talk_fini(&talk);
}

END_TEST

START_TEST(answer_is_read_behind_events_that_nobody_takes)
{
    struct holdfast_event event;
    struct talk talk;
    uint64_t request = leave_events(&talk);

    talk_send(&talk, an_item, sizeof(an_item) - 1);
    talk_send(&talk, "1 OK\n", 5);
    ck_assert_int_eq(
        holdfast_wait(talk.h, request, 1000, &event), HOLDFAST_SUCCESS);
    ck_assert_int_eq(holdfast_events(talk.h) & POLLIN, 0);
    ck_assert_uint_eq(take_events(&talk), CLIENT_NOTICES + 1);
    talk_fini(&talk);
}

END_TEST

START_TEST(blocking_calls_leave_the_rest)
{
    struct holdfast_event event;
    struct holdfast_hold hold;
    struct talk talk;

    talk_init(&talk);
    talk_send(&talk, GREETING, sizeof(GREETING) - 1);
    ck_assert_int_eq(holdfast_connect_wait(talk.h, 1000), HOLDFAST_SUCCESS);
    static const char text[] = "* DRAIN grace_ms=1\n"
                               "1 OK fence=5 ttl_ms=9000 count=1\n"
                               "* JEOPARDY a ttl_ms=800\n";
    talk_send(&talk, text, sizeof(text) - 1);
    ck_assert_int_eq(holdfast_lock(talk.h, "a", NULL, &hold), HOLDFAST_SUCCESS);
    ck_assert_uint_eq(hold.fence, 5);
    ck_assert_uint_eq(hold.deadline_ms, 1009000);
    ck_assert_uint_eq(holdfast_deadline_ms(talk.h, &hold), 1009000);
    ck_assert(holdfast_next(talk.h, &event));
    ck_assert_int_eq(event.kind, HOLDFAST_DRAIN);
    ck_assert(holdfast_next(talk.h, &event));
    ck_assert_int_eq(event.kind, HOLDFAST_JEOPARDY);
    ck_assert_uint_eq(event.ttl_ms, 800);
    ck_assert(!holdfast_next(talk.h, &event));

    talk_send(&talk, "2 OK count=0\n", 13);
    ck_assert_int_eq(holdfast_unlock(talk.h, &hold), HOLDFAST_SUCCESS);
    ck_assert_uint_eq(holdfast_deadline_ms(talk.h, &hold), 0);
    talk_send(&talk, "3 ERR BUSY retry=1\n", 19);
    ck_assert_int_eq(holdfast_lock(talk.h, "a", NULL, &hold), HOLDFAST_REFUSED);
    ck_assert_str_eq(holdfast_error(talk.h), "BUSY");
    talk_fini(&talk);
}

END_TEST

START_TEST(addresses)
{
    static const char *const bad[] = {"", ":", ":4653", "h:", "h:0", "h:65536",
        "h:12x", "::1", "[::1", "[::1]4653", "[]:1", "a:b:1"};
    static const char *const good[] = {"127.0.0.1:1", "[::1]:1", "127.0.0.1"};
    struct holdfast *h;
    char path[200] = "/";

    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        ck_assert_int_eq(holdfast_create(bad[i], &h), HOLDFAST_BAD_ADDRESS);
        ck_assert_ptr_null(h);
    }
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
        ck_assert_int_eq(holdfast_create(good[i], &h), HOLDFAST_SUCCESS);
        holdfast_destroy(&h);
    }
    memset(path, '/', sizeof(path) - 1);
    ck_assert_int_eq(holdfast_create(path, &h), HOLDFAST_BAD_ADDRESS);
    ck_assert_int_eq(holdfast_create("./there/is/none", &h), HOLDFAST_SUCCESS);
    ck_assert_str_eq(holdfast_reason(h), strerror(ENOENT));
    holdfast_destroy(&h);
    holdfast_destroy(&h);
}

END_TEST

START_TEST(arbitrary_lines_do_no_harm)
{
    static const char *const parts[] = {"* ", "1 ", "2 ", "3 ", "4 ", "OK ",
        "ERR ", "ITEM ", "LOST ", "a ", "fence=1 ", "fence=2 ", "ttl_ms=0 ",
        "ttl_ms=900 ", "count=0 ", "count=2 ", "name=a ", ":x ", "%41 ",
        "k= ", "QUEUED ", "PING ", "NOTHELD ", "ttl_ms=99999999999999999999 "};
    unsigned seed = 12345;

    for (int round = 0; round < 2000; round++) {
        struct talk talk;
        char text[1024];
        int len = 0;
        uint64_t request;

        conversation_begin(&talk);
        talk_greet(&talk);
        (void)holdfast_submit_unlock(talk.h, "a", NULL, 0, &request);
        for (int i = 0; i < 30; i++) {
            seed = seed * 1103515245 + 12345;
            unsigned pick = seed >> 16;

            len += snprintf(text + len, sizeof(text) - (size_t)len, "%s%s",
                parts[pick % (sizeof(parts) / sizeof(parts[0]))],
                pick % 5 == 0 ? "\n" : "");
        }
        talk_say(&talk, text);
        talk_pass(&talk, seed % 3000);
        talk_fini(&talk);
    }
}

END_TEST

Suite *
client_suite(void)
{
    Suite *suite = suite_create("client");
    TCase *words = tcase_create("words");
    TCase *lines = tcase_create("lines");

    tcase_add_test(words, encode_and_decode_any_byte);
    tcase_add_test(words, encode_what_must_be);
    tcase_add_test(words, decode_refuses_what_is_no_hex);
    tcase_add_test(words, message_is_taken_apart);
    tcase_add_test(words, message_refuses_nonsense);
    tcase_add_test(words, message_keeps_only_so_many_pairs);
    tcase_add_test(words, numbers_are_strict);
    tcase_add_test(words, addresses);
    suite_add_tcase(suite, words);
    tcase_add_test(lines, each_task_has_an_owner);
    tcase_add_test(lines, same_events_however_the_reads_are_cut);
    tcase_add_test(lines, same_events_byte_by_byte);
    tcase_add_test(lines, requests_as_they_are_written);
    tcase_add_test(lines, bad_arguments_send_nothing);
    tcase_add_test(lines, unread_requests_are_bounded);
    tcase_add_test(lines, ping_event_is_answered);
    tcase_add_test(lines, strangers_are_refused);
    tcase_add_test(lines, overlong_line_is_refused);
    tcase_add_test(lines, no_greeting_in_time);
    tcase_add_test(lines, requests_after_the_end_are_refused);
    tcase_add_test(lines, reading_stops_when_nobody_takes_the_events);
    tcase_add_test(lines, answer_is_read_behind_events_that_nobody_takes);
    tcase_add_test(lines, blocking_calls_leave_the_rest);
    tcase_add_test(lines, arbitrary_lines_do_no_harm);
    suite_add_tcase(suite, lines);
    return suite;
}

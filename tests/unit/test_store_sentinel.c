/*
 * Tests of daemon/store/sentinel.c: who the master is, by a majority of the
 * Sentinels and for how long, and what becomes of operations meanwhile.
 *
 * The links to Sentinels have the first numbers, in the configuration's order;
 * those to what they name follow.
 */
#include "tests/unit/seed.h"
#include "tests/unit/store_rig.h"

#include "daemon/base/log.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define QUESTION "SENTINEL GET-MASTER-ADDR-BY-NAME shop"
#define TRUST_MS 2000
#define EVENTS   40000

Suite *store_sentinel_suite(void);

static void
expect(struct srig *rig, uint32_t link, const char *command)
{
    ck_assert_str_eq(srig_next(rig, link), command);
}

/* --- what is logged ------------------------------------------------------- */

static char logged[1 << 16];
static size_t logged_len;

static void
keep_line(enum log_level level, const char *line, size_t len)
{
    (void)level;
    if (logged_len + len + 2 > sizeof(logged))
        return;
    memcpy(logged + logged_len, line, len);
    logged_len += len;
    logged[logged_len++] = '\n';
    logged[logged_len] = '\0';
}

static void
log_keep(void)
{
    logged_len = 0;
    logged[0] = '\0';
    log_init(keep_line, LOG_INFO);
}

static unsigned
log_lines(const char *part)
{
    unsigned count = 0;

    for (const char *at = logged; (at = strstr(at, part)) != NULL; at++)
        count++;
    return count;
}

/* --- a world that answers ------------------------------------------------- */

/* Whether there was anything to answer. */
static bool
serve(struct srig *rig, uint32_t index)
{
    struct srig_link *link = &rig->links[index];
    bool any = false;

    if (link->silent)
        return false;
    if (link->connecting) {
        srig_connect(rig, index);
        any = true;
    }
    while (link->open && srig_next(rig, index)[0] != '\0') {
        any = true;
        if (text_equal(rig->words[0], TEXT("EVALSHA")))
            srig_results(rig, index, (rig->word_count - 4) / 2, RECORD_OK);
        else
            srig_answer(rig, index);
    }
    return any;
}

/*
 * Turns and answers until nothing is left to do at this time, which takes few
 * of them: a time to come again that stays in the past would be a busy loop.
 */
static void
serve_all(struct srig *rig)
{
    bool any = true;

    for (int turns = 0; any || store_next_us(rig->store) <= rig->now_us;
         turns++) {
        ck_assert_int_lt(turns, 30);
        srig_turn(rig);
        any = false;
        for (uint32_t i = 0; i < LINK_COUNT; i++)
            any = serve(rig, i) || any;
    }
}

static void
run(struct srig *rig, unsigned ms)
{
    serve_all(rig);
    for (unsigned i = 0; i < ms; i++) {
        rig->now_us += 1000;
        serve_all(rig);
    }
}

/* As srig_sentinel(), with nothing that waits for an answer. */
static struct srig *
rig_ready(void)
{
    struct srig *rig = srig_sentinel();

    run(rig, 100);
    return rig;
}

static void
name(struct srig *rig, unsigned sentinel, const char *port)
{
    rig->names[sentinel] =
        (struct srig_name){port == NULL ? NULL : "10.0.0.1", port};
}

static void
name_all(struct srig *rig, const char *port)
{
    for (unsigned i = 0; i < rig->settings.node_count; i++)
        name(rig, i, port);
}

static void
silence(struct srig *rig, uint32_t first, uint32_t last, bool silent)
{
    for (uint32_t i = first; i <= last; i++)
        rig->links[i].silent = silent;
}

/* The link to a Redis that is there or under way; LINK_COUNT: there is none. */
static uint32_t
find_link(const struct srig *rig, uint16_t port)
{
    for (uint32_t i = rig->settings.node_count; i < LINK_SUBSCRIBER; i++)
        if (rig->links[i].port == port &&
            (rig->links[i].connecting || rig->links[i].open))
            return i;
    return LINK_COUNT;
}

static bool
none_to_redis(const struct srig *rig)
{
    for (uint32_t i = rig->settings.node_count; i < LINK_SUBSCRIBER; i++)
        if (rig->links[i].connecting || rig->links[i].open)
            return false;
    return true;
}

static void
switched(struct srig *rig)
{
    struct resp items[] = {
        {.type = RESP_STRING, .text = TEXT("message")},
        {.type = RESP_STRING, .text = TEXT("+switch-master")},
        {.type = RESP_STRING, .text = TEXT("shop 10.0.0.1 7000 10.0.0.1 7001")},
    };

    srig_reply(rig, LINK_SWITCHES,
        &(struct resp){.type = RESP_ARRAY, .item = items, .count = 3});
}

/* --- greeting ------------------------------------------------------------- */

static void
set_credentials(struct srig *rig, bool of_sentinels)
{
    memcpy(rig->settings.username, "me", 3);
    memcpy(rig->settings.password, "secret", 7);
    if (!of_sentinels)
        return;
    memcpy(rig->settings.sentinel_username, "watcher", 8);
    memcpy(rig->settings.sentinel_password, "hush", 5);
}

START_TEST(greeting_of_a_sentinel)
{
    struct srig *rig = srig_create(STORE_SENTINEL, 2);

    set_credentials(rig, true);
    if (_i == 1)
        rig->settings.sentinel_username[0] = '\0';
    srig_start(rig);
    for (uint32_t i = 0; i < 2; i++) {
        ck_assert_str_eq(rig->links[i].host, "10.0.0.2");
        ck_assert_uint_eq(rig->links[i].port, 26379 + i);
        srig_connect(rig, i);
        expect(rig, i, _i == 1 ? "AUTH hush" : "AUTH watcher hush");
        srig_answer(rig, i);
        expect(rig, i, QUESTION);
        srig_answer(rig, i);
        srig_turn(rig);
        expect(rig, i, "");
    }
    ck_assert_uint_eq(srig_count(rig, COUNTER_redis_connects), 2);
    srig_end(rig);
}

END_TEST

/* The password of Redis is none of the Sentinels' business. */
START_TEST(greeting_without_a_password)
{
    struct srig *rig = srig_create(STORE_SENTINEL, 1);

    set_credentials(rig, false);
    srig_start(rig);
    srig_connect(rig, 0);
    expect(rig, 0, QUESTION);
    srig_answer(rig, 0);
    srig_turn(rig);
    srig_connect(rig, LINK_SWITCHES);
    expect(rig, LINK_SWITCHES, "SUBSCRIBE +switch-master");
    srig_end(rig);
}

END_TEST

START_TEST(greeting_of_the_master)
{
    struct srig *rig = srig_create(STORE_SENTINEL, 1);

    set_credentials(rig, true);
    srig_start(rig);
    ck_assert(!rig->links[1].connecting);
    srig_connect(rig, 0);
    srig_serve(rig, 0);
    srig_turn(rig);
    ck_assert_str_eq(rig->links[1].host, "10.0.0.1");
    ck_assert_uint_eq(rig->links[1].port, 7000);
    srig_connect(rig, 1);
    expect(rig, 1, "AUTH me secret");
    srig_answer(rig, 1);
    expect(rig, 1, "INFO");
    srig_answer(rig, 1);
    expect(rig, 1, "CLIENT ID");
    srig_answer(rig, 1);
    expect(rig, 1, "TIME");
    srig_answer(rig, 1);
    expect(rig, 1, "CLIENT SETNAME holdfastd");
    srig_answer(rig, 1);
    for (int i = 0; i < SCRIPT_COUNT; i++) {
        ck_assert(!store_ready(rig->store));
        expect(rig, 1, "LOAD");
        srig_answer(rig, 1);
    }
    ck_assert(store_ready(rig->store));
    srig_turn(rig);
    srig_connect(rig, LINK_SUBSCRIBER);
    expect(rig, LINK_SUBSCRIBER, "AUTH me secret");
    srig_end(rig);
}

END_TEST

/* One link more to a Sentinel that answers, and never more than one. */
START_TEST(greeting_for_switches)
{
    struct srig *rig = srig_create(STORE_SENTINEL, 3);
    struct srig_link *link = &rig->links[LINK_SWITCHES];

    set_credentials(rig, true);
    log_keep();
    srig_start(rig);
    ck_assert(!link->connecting);
    srig_connect(rig, 1);
    srig_turn(rig);
    ck_assert(!link->connecting);
    srig_serve(rig, 1);
    srig_turn(rig);
    ck_assert(link->connecting);
    ck_assert_uint_eq(link->port, 26380);
    srig_connect(rig, LINK_SWITCHES);
    expect(rig, LINK_SWITCHES, "AUTH watcher hush");
    srig_answer(rig, LINK_SWITCHES);
    expect(rig, LINK_SWITCHES, "SUBSCRIBE +switch-master");
    srig_answer(rig, LINK_SWITCHES);
    expect(rig, LINK_SWITCHES, "");
    /* The others come; it stays, and is heard of now and then. */
    run(rig, 2990);
    silence(rig, LINK_SWITCHES, LINK_SWITCHES, true);
    run(rig, 20);
    expect(rig, LINK_SWITCHES, "PING");
    ck_assert_uint_eq(link->connects, 1);
    ck_assert_uint_eq(link->closes, 0);
    /* What was missed on it are hints to ask, not announcements of locks. */
    ck_assert(store_take_unheard(rig->store));
    silence(rig, LINK_SWITCHES, LINK_SWITCHES, false);
    srig_lose(rig, LINK_SWITCHES);
    run(rig, 100);
    ck_assert_uint_eq(link->connects, 2);
    ck_assert(!store_take_unheard(rig->store));
    srig_end(rig);
}

END_TEST

START_TEST(switches_move)
{
    struct srig *rig = rig_ready();
    struct srig_link *link = &rig->links[LINK_SWITCHES];

    ck_assert_uint_eq(link->port, 26379);
    silence(rig, 0, 0, true);
    srig_lose(rig, 0);
    run(rig, 1000);
    ck_assert_uint_eq(link->connects, 1);
    srig_lose(rig, LINK_SWITCHES);
    run(rig, 100);
    ck_assert_uint_eq(link->connects, 2);
    ck_assert_uint_eq(link->port, 26380);
    ck_assert(link->open);
    /* All are gone: nobody to subscribe at. */
    silence(rig, 0, 2, true);
    srig_lose(rig, 1);
    srig_lose(rig, 2);
    srig_lose(rig, LINK_SWITCHES);
    run(rig, 5000);
    ck_assert_uint_eq(link->connects, 2);
    srig_end(rig);
}

END_TEST

START_TEST(switches_refused)
{
    struct srig *rig = rig_ready();
    struct srig_link *link = &rig->links[LINK_SWITCHES];

    silence(rig, LINK_SWITCHES, LINK_SWITCHES, true);
    srig_lose(rig, LINK_SWITCHES);
    for (unsigned i = 0; i < 10000; i++) {
        run(rig, 1);
        ck_assert(store_ready(rig->store));
        if (!link->connecting)
            continue;
        srig_connect(rig, LINK_SWITCHES);
        expect(rig, LINK_SWITCHES, "SUBSCRIBE +switch-master");
        srig_error(rig, LINK_SWITCHES, "NOPERM no");
    }
    ck_assert_uint_eq(link->connects, link->closes + 1);
    ck_assert_uint_ge(link->connects, 8);
    ck_assert_uint_le(link->connects, 17);
    srig_end(rig);
}

END_TEST

/* --- a majority ----------------------------------------------------------- */

static const struct {
    unsigned sentinels;
    unsigned votes; /* that make a master, and one less does not */
} majorities[] = {{1, 1}, {2, 2}, {3, 2}, {4, 3}, {5, 3}, {64, 33}};

START_TEST(majority)
{
    struct srig *rig = srig_create(STORE_SENTINEL, majorities[_i].sentinels);
    unsigned votes = majorities[_i].votes;

    srig_start(rig);
    struct op *op = srig_op(rig, OP_ACQUIRE, 0);
    silence(rig, votes - 1, majorities[_i].sentinels - 1, true);
    run(rig, 500);
    ck_assert(none_to_redis(rig));
    ck_assert(!store_ready(rig->store));
    silence(rig, votes - 1, votes - 1, false);
    run(rig, 10);
    ck_assert(store_ready(rig->store));
    srig_status(rig, op, OP_OK);
    srig_end(rig);
}

END_TEST

START_TEST(two_names)
{
    struct srig *rig = srig_create(STORE_SENTINEL, 3);

    name(rig, 1, "7001");
    silence(rig, 2, 2, true);
    srig_start(rig);
    struct op *op = srig_op(rig, OP_ACQUIRE, 0);
    run(rig, 900);
    ck_assert(none_to_redis(rig));
    ck_assert(!store_ready(rig->store));
    name(rig, 2, "7001");
    silence(rig, 2, 2, false);
    run(rig, 10);
    ck_assert(store_ready(rig->store));
    srig_status(rig, op, OP_OK);
    ck_assert_uint_lt(find_link(rig, 7001), LINK_COUNT);
    ck_assert_uint_eq(find_link(rig, 7000), LINK_COUNT);
    srig_end(rig);
}

END_TEST

/* The port is part of an address, and so is the host. */
START_TEST(three_names)
{
    struct srig *rig = srig_create(STORE_SENTINEL, 3);

    name(rig, 1, "7001");
    rig->names[2] = (struct srig_name){"10.0.0.11", "7000"};
    srig_start(rig);
    struct op *op = srig_op(rig, OP_ACQUIRE, 0);
    run(rig, 5010);
    ck_assert(none_to_redis(rig));
    srig_status(rig, op, OP_UNSENT);
    srig_end(rig);
}

END_TEST

START_TEST(nil_answers)
{
    struct srig *rig = srig_create(STORE_SENTINEL, 3);

    log_keep();
    name(rig, 0, NULL);
    name(rig, 1, NULL);
    srig_start(rig);
    struct op *op = srig_op(rig, OP_ACQUIRE, 0);
    run(rig, 3000);
    ck_assert(none_to_redis(rig));
    ck_assert(!srig_done(rig, op));
    /* Said once, by each that knows no such master. */
    ck_assert_uint_eq(log_lines("event=sentinel_names_none"), 2);
    ck_assert_uint_eq(log_lines("node=10.0.0.2:26379 master=shop"), 1);
    name(rig, 1, "7000");
    run(rig, 510);
    srig_status(rig, op, OP_OK);
    /* And again where it is new. */
    name(rig, 1, NULL);
    run(rig, 510);
    ck_assert(!store_ready(rig->store));
    ck_assert_uint_eq(log_lines("event=sentinel_names_none"), 3);
    srig_end(rig);
}

END_TEST

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

START_TEST(no_address)
{
    struct srig *rig = srig_create(STORE_SENTINEL, 1);

    memset(long_host, 'h', sizeof(long_host) - 1);
    rig->names[0] = no_addresses[_i];
    srig_start(rig);
    run(rig, 600);
    ck_assert(none_to_redis(rig));
    ck_assert(!store_ready(rig->store));
    ck_assert(rig->links[0].open);
    name(rig, 0, "7000");
    run(rig, 600);
    ck_assert(store_ready(rig->store));
    srig_end(rig);
}

END_TEST

/* Replies that are no address at all. */
START_TEST(no_answer)
{
    struct srig *rig = srig_create(STORE_SENTINEL, 1);
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
    for (size_t i = 0; i < sizeof(replies) / sizeof(replies[0]); i++) {
        expect(rig, 0, QUESTION);
        srig_reply(rig, 0, &replies[i]);
        srig_pass(rig, 499);
        expect(rig, 0, "");
        ck_assert(none_to_redis(rig));
        srig_pass(rig, 1);
    }
    expect(rig, 0, QUESTION);
    srig_answer(rig, 0);
    srig_turn(rig);
    ck_assert(rig->links[1].connecting);
    srig_end(rig);
}

END_TEST

/* What was an address a moment ago does not count on, in its old place. */
START_TEST(nil_after_a_name)
{
    struct srig *rig = rig_ready();

    name(rig, 0, NULL);
    name(rig, 1, NULL);
    run(rig, 510);
    ck_assert(!store_ready(rig->store));
    srig_end(rig);
}

END_TEST

static const char *const hosts[] = {
    "redis-1.example", "2001:db8::7", "::1", long_host};

START_TEST(names_of_hosts)
{
    struct srig *rig = srig_create(STORE_SENTINEL, 3);

    memset(long_host, 'h', STORE_HOST_MAX - 1);
    for (unsigned i = 0; i < 3; i++)
        rig->names[i] = (struct srig_name){hosts[_i], "65535"};
    srig_start(rig);
    run(rig, 10);
    ck_assert(store_ready(rig->store));
    ck_assert_str_eq(rig->links[3].host, hosts[_i]);
    ck_assert_uint_eq(rig->links[3].port, 65535);
    srig_end(rig);
}

END_TEST

/* --- how long an answer counts -------------------------------------------- */

START_TEST(asked_twice_a_second)
{
    struct srig *rig = srig_create(STORE_SENTINEL, 3);

    srig_start(rig);
    run(rig, 0);
    for (int round = 0; round < 20; round++) {
        for (uint32_t i = 0; i < 3; i++)
            ck_assert_uint_eq(buffer_len(store_link_output(rig->store, i)), 0);
        run(rig, 499);
        silence(rig, 0, 2, true);
        run(rig, 1);
        silence(rig, 0, 2, false);
        for (uint32_t i = 0; i < 3; i++) {
            expect(rig, i, QUESTION);
            srig_answer(rig, i);
            expect(rig, i, "");
        }
    }
    ck_assert(store_ready(rig->store));
    srig_end(rig);
}

END_TEST

/* No second question before the first one is answered, nor a burst then. */
START_TEST(asked_once_at_a_time)
{
    struct srig *rig = rig_ready();

    silence(rig, 0, 0, true);
    run(rig, 1900);
    expect(rig, 0, QUESTION);
    expect(rig, 0, "");
    srig_answer(rig, 0);
    srig_turn(rig);
    expect(rig, 0, QUESTION);
    srig_answer(rig, 0);
    srig_pass(rig, 400);
    expect(rig, 0, "");
    srig_end(rig);
}

END_TEST

START_TEST(counts_from_the_sending)
{
    struct srig *rig = srig_create(STORE_SENTINEL, 1);

    srig_start(rig);
    run(rig, 100);
    ck_assert(store_ready(rig->store));
    silence(rig, 0, 0, true);
    /* The question is sent at 500 and answered at 1900. */
    run(rig, 1800);
    expect(rig, 0, QUESTION);
    srig_answer(rig, 0);
    run(rig, 599);
    ck_assert(store_ready(rig->store));
    ck_assert_uint_le(store_next_us(rig->store), rig->now_us + 1000);
    struct op *op = srig_op(rig, OP_RENEW, 0);
    run(rig, 0);
    srig_status(rig, op, OP_OK);
    run(rig, 1);
    ck_assert(!store_ready(rig->store));
    op = srig_op(rig, OP_RENEW, 0);
    run(rig, 1000);
    ck_assert(!srig_done(rig, op));
    srig_end(rig);
}

END_TEST

/* Each answer has an end of its own. */
START_TEST(counts_by_each)
{
    struct srig *rig = srig_create(STORE_SENTINEL, 3);

    silence(rig, 1, 2, true);
    srig_start(rig);
    run(rig, 300);
    silence(rig, 1, 1, false);
    run(rig, 100);
    ck_assert(store_ready(rig->store));
    /* The greetings' answers are those that count. */
    silence(rig, 0, 1, true);
    run(rig, TRUST_MS - 401);
    ck_assert(store_ready(rig->store));
    run(rig, 1);
    ck_assert(!store_ready(rig->store));
    srig_end(rig);
}

END_TEST

START_TEST(trust_ends)
{
    struct srig *rig = rig_ready();

    log_keep();
    silence(rig, 0, 1, true);
    run(rig, 1490);
    ck_assert(store_ready(rig->store));
    run(rig, 510);
    ck_assert(!store_ready(rig->store));
    ck_assert_uint_eq(log_lines("event=redis_no_master"), 0);
    /* The old one answers, and is not asked. */
    struct op *op = srig_op(rig, OP_ACQUIRE, 0);
    struct op *later = srig_op(rig, OP_RENEW, 0);
    op->give_up_us = rig->now_us + 700000;
    later->give_up_us = rig->now_us + 20000000;
    run(rig, 698);
    ck_assert_uint_eq(rig->done_count, 0);
    run(rig, 4);
    srig_status(rig, op, OP_UNSENT);
    ck_assert_uint_eq(srig_count(rig, COUNTER_redis_calls), 0);
    run(rig, 2000);
    ck_assert_uint_eq(log_lines("event=redis_no_master"), 1);
    ck_assert(rig->links[3].open);
    silence(rig, 0, 1, false);
    run(rig, 2000);
    ck_assert(store_ready(rig->store));
    srig_status(rig, later, OP_OK);
    ck_assert_uint_eq(rig->links[3].connects, 1);
    ck_assert_uint_eq(log_lines("event=redis_master master=shop"), 1);
    srig_end(rig);
}

END_TEST

/* What waited at the master when trust ended waits for the next one. */
START_TEST(trust_ends_with_a_queue)
{
    struct srig *rig = rig_ready();
    struct op *ops[12];

    silence(rig, 0, 2, true);
    run(rig, 1000);
    silence(rig, 3, 3, true);
    for (int i = 0; i < 12; i++) {
        ops[i] = srig_op(rig, OP_ACQUIRE, 0);
        ops[i]->give_up_us = rig->now_us + 20000000;
    }
    run(rig, 1000);
    ck_assert(!store_ready(rig->store));
    /* What was sent before is answered, and that holds. */
    expect(rig, 3, "EVALSHA 4");
    srig_results(rig, 3, 4, RECORD_OK);
    for (int i = 0; i < 12; i++)
        ck_assert(srig_done(rig, ops[i]) == (i < 4));
    run(rig, 100);
    expect(rig, 3, "EVALSHA 4");
    expect(rig, 3, "");
    srig_results(rig, 3, 4, RECORD_OK);
    run(rig, 100);
    expect(rig, 3, "");
    name_all(rig, "7001");
    silence(rig, 0, 3, false);
    run(rig, 3000);
    for (int i = 0; i < 12; i++)
        srig_status(rig, ops[i], OP_OK);
    ck_assert_uint_eq(rig->links[3].closes, 1);
    srig_end(rig);
}

END_TEST

/* An answer to an old call is no reason to send it there again. */
START_TEST(trust_ends_and_asks_again)
{
    struct srig *rig = rig_ready();

    silence(rig, 0, 2, true);
    run(rig, 1000);
    struct op *op = srig_op(rig, OP_ACQUIRE, 0);
    op->give_up_us = rig->now_us + 20000000;
    silence(rig, 3, 3, true);
    run(rig, 1000);
    ck_assert(!store_ready(rig->store));
    expect(rig, 3, "EVALSHA 1");
    if (_i == 0)
        srig_error(rig, 3, "NOSCRIPT No matching script.");
    else
        srig_results(rig, 3, 1, RECORD_LATE);
    run(rig, 100);
    while (srig_next(rig, 3)[0] != '\0')
        ck_assert_int_ne(rig->words[0].at[0], 'E');
    ck_assert(!srig_done(rig, op));
    srig_end(rig);
}

END_TEST

START_TEST(one_is_silent)
{
    struct srig *rig = rig_ready();
    uint32_t one = (uint32_t)_i;
    uint32_t next = (one + 1) % 3;

    silence(rig, one, one, true);
    for (int i = 0; i < 40; i++) {
        struct op *op = srig_op(rig, OP_RENEW, 0);
        run(rig, 200);
        ck_assert(store_ready(rig->store));
        srig_status(rig, op, OP_OK);
    }
    ck_assert_uint_ge(rig->links[one].closes, 2);
    silence(rig, one, one, false);
    run(rig, 2000);
    silence(rig, next, next, true);
    run(rig, 5000);
    ck_assert(store_ready(rig->store));
    srig_end(rig);
}

END_TEST

/* --- the master is lost --------------------------------------------------- */

START_TEST(loss_asks_all)
{
    struct srig *rig = rig_ready();

    silence(rig, 0, 2, true);
    run(rig, 10);
    for (uint32_t i = 0; i < 3; i++)
        expect(rig, i, "");
    srig_lose(rig, 3);
    srig_turn(rig);
    for (uint32_t i = 0; i < 3; i++) {
        expect(rig, i, QUESTION);
        expect(rig, i, "");
    }
    srig_end(rig);
}

END_TEST

/* An answer to a question that was sent before does not count. */
START_TEST(loss_voids_votes)
{
    struct srig *rig = rig_ready();

    silence(rig, 0, 2, true);
    run(rig, 600);
    ck_assert(store_ready(rig->store));
    for (uint32_t i = 0; i < 3; i++)
        expect(rig, i, QUESTION);
    srig_lose(rig, 3);
    run(rig, 300);
    ck_assert(none_to_redis(rig));
    for (uint32_t i = 0; i < 3; i++) {
        expect(rig, i, "");
        rig->words[0] = TEXT("SENTINEL");
        srig_answer(rig, i);
    }
    run(rig, 0);
    ck_assert(none_to_redis(rig));
    for (uint32_t i = 0; i < 2; i++) {
        expect(rig, i, QUESTION);
        srig_answer(rig, i);
        srig_turn(rig);
        ck_assert(none_to_redis(rig) == (i == 0));
    }
    ck_assert(rig->links[3].connecting);
    srig_end(rig);
}

END_TEST

/* Nor where there was no majority any more when it was lost. */
START_TEST(loss_without_a_master)
{
    struct srig *rig = rig_ready();

    silence(rig, 0, 2, true);
    while (store_ready(rig->store))
        run(rig, 1);
    for (uint32_t i = 0; i < 3; i++)
        expect(rig, i, QUESTION);
    srig_lose(rig, 3);
    run(rig, 200);
    for (uint32_t i = 0; i < 3; i++) {
        rig->words[0] = TEXT("SENTINEL");
        srig_answer(rig, i);
    }
    run(rig, 0);
    ck_assert(none_to_redis(rig));
    for (uint32_t i = 0; i < 2; i++) {
        expect(rig, i, QUESTION);
        srig_answer(rig, i);
    }
    run(rig, 0);
    ck_assert(rig->links[3].open);
    srig_end(rig);
}

END_TEST

/* In flight: unknown, as with any topology. Queued: to the next master. */
START_TEST(loss_with_operations)
{
    struct srig *rig = rig_ready();
    struct op *ops[12];

    for (int i = 0; i < 12; i++)
        ops[i] = srig_op(rig, OP_ACQUIRE, 0);
    srig_turn(rig);
    expect(rig, 3, "EVALSHA 4");
    expect(rig, 3, "EVALSHA 4");
    expect(rig, 3, "");
    name_all(rig, "7001");
    srig_lose(rig, 3);
    for (int i = 0; i < 8; i++)
        srig_status(rig, ops[i], OP_UNKNOWN);
    ck_assert_uint_eq(rig->done_count, 8);
    /* At once: the new one has no pause to keep. */
    run(rig, 0);
    ck_assert_uint_lt(find_link(rig, 7001), LINK_COUNT);
    for (int i = 8; i < 12; i++)
        srig_status(rig, ops[i], OP_OK);
    ck_assert_uint_eq(rig->links[3].connects, 1);
    srig_end(rig);
}

END_TEST

/* A master that cannot be reached is asked for again, each time. */
START_TEST(loss_while_connecting)
{
    struct srig *rig = srig_create(STORE_SENTINEL, 3);

    silence(rig, 3, 3, true);
    srig_start(rig);
    run(rig, 10);
    ck_assert(rig->links[3].connecting);
    silence(rig, 0, 2, true);
    srig_lose(rig, 3);
    srig_turn(rig);
    for (uint32_t i = 0; i < 3; i++) {
        expect(rig, i, QUESTION);
        srig_answer(rig, i);
    }
    silence(rig, 0, 2, false);
    run(rig, 100);
    ck_assert_uint_eq(rig->links[3].connects, 2);
    /* Nobody answers there. */
    run(rig, 10000);
    ck_assert_uint_ge(rig->links[3].connects, 5);
    ck_assert_uint_le(rig->links[3].connects, 9);
    name_all(rig, "7001");
    run(rig, 510);
    ck_assert(store_ready(rig->store));
    srig_end(rig);
}

END_TEST

/* It is the same one again, whose dead connection is killed first. */
START_TEST(loss_and_the_same_again)
{
    struct srig *rig = rig_ready();

    srig_lose(rig, 3);
    silence(rig, 3, 3, true);
    run(rig, 100);
    silence(rig, 3, 3, false);
    srig_connect(rig, 3);
    for (int i = 0; i < 3; i++) {
        (void)srig_next(rig, 3);
        srig_answer(rig, 3);
    }
    expect(rig, 3, "CLIENT KILL ID 100");
    srig_answer(rig, 3);
    run(rig, 0);
    ck_assert(store_ready(rig->store));
    srig_end(rig);
}

END_TEST

/* --- +switch-master ------------------------------------------------------- */

START_TEST(switch_is_a_hint)
{
    struct srig *rig = rig_ready();

    silence(rig, 0, 2, true);
    run(rig, 5);
    switched(rig);
    srig_turn(rig);
    for (uint32_t i = 0; i < 3; i++) {
        expect(rig, i, QUESTION);
        expect(rig, i, "");
    }
    /* Nobody has answered: the old one is the master. */
    ck_assert(store_ready(rig->store));
    struct op *op = srig_op(rig, OP_ACQUIRE, 0);
    run(rig, 200);
    srig_status(rig, op, OP_OK);
    ck_assert_uint_eq(rig->links[3].closes, 0);
    ck_assert_uint_eq(find_link(rig, 7001), LINK_COUNT);
    /* Nor is it news for the core. */
    struct text news;
    struct store_hint hint;
    ck_assert(!store_take_news(rig->store, &news));
    ck_assert(!store_take_hint(rig->store, &hint));
    srig_end(rig);
}

END_TEST

/* What brokers tell one another is none. */
START_TEST(news_is_no_hint)
{
    struct srig *rig = rig_ready();
    struct resp items[] = {
        {.type = RESP_STRING, .text = TEXT("message")},
        {.type = RESP_STRING, .text = TEXT("holdfast/broker/watch")},
        {.type = RESP_STRING, .text = TEXT("Wname")},
    };

    silence(rig, 0, 2, true);
    srig_reply(rig, LINK_SUBSCRIBER,
        &(struct resp){.type = RESP_ARRAY, .item = items, .count = 3});
    srig_turn(rig);
    for (uint32_t i = 0; i < 3; i++)
        expect(rig, i, "");
    srig_end(rig);
}

END_TEST

/* What is asked for already counts, and is asked once more. */
START_TEST(switch_during_a_question)
{
    struct srig *rig = rig_ready();

    silence(rig, 0, 0, true);
    run(rig, 500);
    switched(rig);
    run(rig, 5);
    expect(rig, 0, QUESTION);
    expect(rig, 0, "");
    srig_answer(rig, 0);
    run(rig, 0);
    expect(rig, 0, QUESTION);
    ck_assert(store_ready(rig->store));
    srig_end(rig);
}

END_TEST

/* --- the master changes --------------------------------------------------- */

/* While the old one answers; and back. */
START_TEST(master_changes)
{
    struct srig *rig = rig_ready();
    struct op *ops[12];

    silence(rig, 3, 3, true);
    for (int i = 0; i < 12; i++)
        ops[i] = srig_op(rig, OP_ACQUIRE, 0);
    srig_turn(rig);
    expect(rig, 3, "EVALSHA 4");
    expect(rig, 3, "EVALSHA 4");
    name_all(rig, "7001");
    switched(rig);
    run(rig, 0);
    ck_assert(!rig->links[3].open);
    ck_assert_uint_eq(rig->links[3].closes, 1);
    srig_results(rig, 3, 4, RECORD_OK);
    for (int i = 0; i < 12; i++)
        srig_status(rig, ops[i], i < 8 ? OP_UNKNOWN : OP_OK);
    /* Nothing more goes to the old one, for as long as it takes. */
    silence(rig, 3, 3, false);
    for (int i = 0; i < 30; i++) {
        struct op *op = srig_op(rig, OP_RENEW, 0);
        run(rig, 200);
        srig_status(rig, op, OP_OK);
        ck_assert_uint_eq(find_link(rig, 7000), LINK_COUNT);
    }
    ck_assert_uint_eq(rig->links[3].connects, 1);
    uint32_t link = find_link(rig, 7001);
    ck_assert_uint_eq(rig->links[link].connects, 1);
    name_all(rig, "7000");
    run(rig, 510);
    struct op *op = srig_op(rig, OP_RENEW, 0);
    run(rig, 100);
    srig_status(rig, op, OP_OK);
    ck_assert_uint_eq(find_link(rig, 7001), LINK_COUNT);
    ck_assert_uint_lt(find_link(rig, 7000), LINK_COUNT);
    ck_assert_uint_eq(rig->links[link].closes, 1);
    srig_end(rig);
}

END_TEST

START_TEST(minority_changes_nothing)
{
    struct srig *rig = rig_ready();

    name(rig, 0, "7001");
    for (int i = 0; i < 20; i++) {
        struct op *op = srig_op(rig, OP_RENEW, 0);
        run(rig, 200);
        srig_status(rig, op, OP_OK);
        ck_assert_uint_eq(find_link(rig, 7001), LINK_COUNT);
    }
    ck_assert_uint_eq(rig->links[3].closes, 0);
    srig_end(rig);
}

END_TEST

/* The one that has no majority any more, and the one that has none yet. */
START_TEST(change_one_by_one)
{
    struct srig *rig = rig_ready();

    name(rig, 0, "7001");
    name(rig, 1, NULL);
    run(rig, 510);
    ck_assert(!store_ready(rig->store));
    ck_assert(rig->links[3].open);
    struct op *op = srig_op(rig, OP_RENEW, 0);
    run(rig, 1000);
    ck_assert(!srig_done(rig, op));
    ck_assert_uint_eq(find_link(rig, 7001), LINK_COUNT);
    name(rig, 1, "7001");
    run(rig, 510);
    srig_status(rig, op, OP_OK);
    ck_assert_uint_eq(find_link(rig, 7000), LINK_COUNT);
    srig_end(rig);
}

END_TEST

START_TEST(change_while_connecting)
{
    struct srig *rig = srig_create(STORE_SENTINEL, 3);

    silence(rig, 3, 3, true);
    srig_start(rig);
    struct op *op = srig_op(rig, OP_ACQUIRE, 0);
    run(rig, 10);
    ck_assert(rig->links[3].connecting);
    name_all(rig, "7001");
    run(rig, 510);
    srig_status(rig, op, OP_OK);
    ck_assert(!rig->links[3].connecting);
    /* It comes too late. */
    store_connected(
        rig->store, (struct store_link){3, rig->links[3].serial}, rig->now_us);
    expect(rig, 3, "");
    srig_end(rig);
}

END_TEST

START_TEST(subscriber_follows)
{
    struct srig *rig = rig_ready();
    struct srig_link *subscriber = &rig->links[LINK_SUBSCRIBER];

    ck_assert_uint_eq(subscriber->port, 7000);
    (void)store_take_unheard(rig->store);
    name_all(rig, "7001");
    run(rig, 700);
    ck_assert(subscriber->open);
    ck_assert_uint_eq(subscriber->port, 7001);
    ck_assert_uint_eq(subscriber->closes, 1);
    ck_assert(store_take_unheard(rig->store));
    /* It stays while nobody is trusted, and where it is the same again. */
    silence(rig, 0, 2, true);
    run(rig, 4000);
    ck_assert(!store_ready(rig->store));
    ck_assert_uint_eq(subscriber->closes, 1);
    silence(rig, 0, 2, false);
    run(rig, 2000);
    ck_assert(store_ready(rig->store));
    ck_assert_uint_eq(subscriber->closes, 1);
    srig_end(rig);
}

END_TEST

/* --- a master that is none ------------------------------------------------ */

START_TEST(named_replica)
{
    struct srig *rig = srig_create(STORE_SENTINEL, 3);
    const char *master = rig->info;

    rig->info = "redis_version:7.0.1\r\nrole:slave\r\ncluster_enabled:0\r\n";
    srig_start(rig);
    struct op *op = srig_op(rig, OP_ACQUIRE, 0);
    silence(rig, 3, 3, true);
    run(rig, 10);
    srig_connect(rig, 3);
    expect(rig, 3, "INFO");
    silence(rig, 0, 2, true);
    srig_answer(rig, 3);
    ck_assert_uint_eq(rig->links[3].closes, 1);
    srig_turn(rig);
    for (uint32_t i = 0; i < 3; i++) {
        expect(rig, i, QUESTION);
        srig_answer(rig, i);
    }
    silence(rig, 0, 3, false);
    run(rig, 490);
    ck_assert_uint_eq(rig->links[3].connects, 1);
    run(rig, 2600);
    ck_assert_uint_ge(rig->links[3].connects, 4);
    ck_assert_uint_le(rig->links[3].connects, 7);
    ck_assert(!store_ready(rig->store));
    ck_assert(!srig_done(rig, op));
    rig->info = master;
    run(rig, 800);
    srig_status(rig, op, OP_OK);
    srig_end(rig);
}

END_TEST

/* A demoted master says so by READONLY; what asked goes to the next one. */
START_TEST(readonly)
{
    struct srig *rig = rig_ready();
    struct op *ops[8];

    for (int i = 0; i < 8; i++)
        ops[i] = srig_op(rig, OP_ACQUIRE, 0);
    srig_turn(rig);
    expect(rig, 3, "EVALSHA 4");
    expect(rig, 3, "EVALSHA 4");
    srig_error(rig, 3, "READONLY You can't write against a read only replica");
    ck_assert_uint_eq(rig->links[3].closes, 1);
    ck_assert_uint_eq(rig->done_count, 4);
    silence(rig, 0, 2, true);
    srig_turn(rig);
    name_all(rig, "7001");
    for (uint32_t i = 0; i < 3; i++) {
        expect(rig, i, QUESTION);
        srig_answer(rig, i);
    }
    silence(rig, 0, 2, false);
    run(rig, 100);
    for (int i = 0; i < 8; i++)
        srig_status(rig, ops[i], i < 4 ? OP_OK : OP_UNKNOWN);
    ck_assert_uint_eq(find_link(rig, 7000), LINK_COUNT);
    /* The new one is not taken for a demoted one. */
    struct op *op = srig_op(rig, OP_RENEW, 0);
    run(rig, 0);
    srig_status(rig, op, OP_OK);
    srig_end(rig);
}

END_TEST

/* The same node is promoted again. */
START_TEST(readonly_and_back)
{
    struct srig *rig = rig_ready();
    struct op *op = srig_op(rig, OP_RENEW, 0);

    srig_turn(rig);
    expect(rig, 3, "EVALSHA 1");
    srig_error(rig, 3, "READONLY You can't write against a read only replica");
    run(rig, 2000);
    srig_status(rig, op, OP_OK);
    ck_assert_uint_eq(rig->links[3].closes, 1);
    ck_assert_uint_eq(rig->links[3].connects, 2);
    srig_end(rig);
}

END_TEST

/* What a master may say as well is no reason to leave it. */
START_TEST(other_refusals)
{
    static const char *const errors[] = {"OOM x", "BUSY x", "NOREPLICAS x",
        "MISCONF x", "LOADING x", "MASTERDOWN x"};
    struct srig *rig = rig_ready();

    for (size_t i = 0; i < sizeof(errors) / sizeof(errors[0]); i++) {
        struct op *op = srig_op(rig, OP_RENEW, 0);
        srig_turn(rig);
        expect(rig, 3, "EVALSHA 1");
        srig_error(rig, 3, errors[i]);
        run(rig, 100);
        srig_status(rig, op, OP_OK);
    }
    ck_assert_uint_eq(rig->links[3].closes, 0);
    srig_end(rig);
}

END_TEST

/* --- nodes come and go ---------------------------------------------------- */

START_TEST(thousand_changes)
{
    struct srig *rig = rig_ready();
    char port[8];

    for (unsigned i = 0; i < 1000; i++) {
        snprintf(port, sizeof(port), "%u", 10000 + i);
        name_all(rig, port);
        switched(rig);
        if (i % 100 == 0)
            run(rig, 300);
        run(rig, 1);
        ck_assert(store_ready(rig->store));
        ck_assert_uint_lt(find_link(rig, (uint16_t)(10000 + i)), LINK_COUNT);
        run(rig, 1);
    }
    ck_assert_uint_le(rig->store->node_count, 3 + 4);
    for (uint32_t i = 0; i < 3; i++)
        ck_assert_uint_eq(rig->links[i].closes, 0);
    srig_end(rig);
}

END_TEST

/* A node that one of them names stays; without a connection. */
START_TEST(named_by_a_minority)
{
    struct srig *rig = rig_ready();

    name(rig, 2, "7001");
    run(rig, 510);
    name(rig, 0, "7002");
    name(rig, 1, "7002");
    run(rig, 510);
    ck_assert(store_ready(rig->store));
    name_all(rig, "7001");
    run(rig, 510);
    ck_assert(store_ready(rig->store));
    ck_assert_uint_lt(find_link(rig, 7001), LINK_COUNT);
    ck_assert_uint_eq(find_link(rig, 7002), LINK_COUNT);
    srig_end(rig);
}

END_TEST

/* Nor has another address its vote, while it is silent. */
START_TEST(vote_of_the_silent)
{
    struct srig *rig = rig_ready();

    name(rig, 2, "7001");
    run(rig, 510);
    name(rig, 0, "7002");
    name(rig, 1, "7002");
    run(rig, 510);
    silence(rig, 2, 2, true);
    name(rig, 1, NULL);
    for (int i = 0; i < 4; i++) {
        static const char *const ports[] = {"7003", "7004", "7005", "7006"};
        name(rig, 0, ports[i]);
        switched(rig);
        run(rig, 1);
        ck_assert(!store_ready(rig->store));
        for (uint16_t port = 7003; port < 7007; port++)
            ck_assert_uint_eq(find_link(rig, port), LINK_COUNT);
    }
    srig_end(rig);
}

END_TEST

/* Said also where nothing comes that would be a reason to count. */
START_TEST(no_master_is_logged)
{
    struct srig *rig = rig_ready();

    log_keep();
    silence(rig, 0, 2, true);
    while (store_ready(rig->store))
        run(rig, 1);
    run(rig, TRUST_MS - 1);
    ck_assert_uint_eq(log_lines("event=redis_no_master"), 0);
    run(rig, 2);
    ck_assert_uint_eq(log_lines("event=redis_no_master"), 1);
    srig_end(rig);
}

END_TEST

/* What a single one makes up does not use the others' places up. */
START_TEST(thousand_names_of_one)
{
    struct srig *rig = rig_ready();
    char port[8];

    for (unsigned i = 0; i < 1000; i++) {
        snprintf(port, sizeof(port), "%u", 10000 + i);
        name(rig, 0, port);
        switched(rig);
        run(rig, 1);
        ck_assert(store_ready(rig->store));
    }
    name(rig, 1, "7001");
    name(rig, 2, "7001");
    run(rig, 510);
    ck_assert(store_ready(rig->store));
    ck_assert_uint_lt(find_link(rig, 7001), LINK_COUNT);
    srig_end(rig);
}

END_TEST

/* No address either; and none that differs from itself each time. */
START_TEST(host_with_a_nul)
{
    struct srig *rig = srig_create(STORE_SENTINEL, 1);
    struct resp items[] = {
        {.type = RESP_STRING, .text = TEXT("10.0\0.1")},
        {.type = RESP_STRING, .text = TEXT("7000")},
    };

    srig_start(rig);
    srig_connect(rig, 0);
    for (int i = 0; i < 200; i++) {
        expect(rig, 0, QUESTION);
        srig_reply(rig, 0,
            &(struct resp){.type = RESP_ARRAY, .item = items, .count = 2});
        srig_pass(rig, 500);
        ck_assert(none_to_redis(rig));
    }
    run(rig, 10);
    ck_assert(store_ready(rig->store));
    srig_end(rig);
}

END_TEST

/* The pauses of the one whose place it has are none of its own. */
START_TEST(pauses_of_a_new_node)
{
    struct srig *rig = rig_ready();

    silence(rig, 3, 3, true);
    srig_lose(rig, 3);
    for (int i = 0; i < 10000; i++) {
        run(rig, 1);
        if (rig->links[3].connecting)
            srig_lose(rig, 3);
    }
    name_all(rig, "7001");
    run(rig, 600);
    name_all(rig, "7002");
    switched(rig);
    run(rig, 10);
    ck_assert_uint_eq(find_link(rig, 7002), 3);
    uint32_t connects = rig->links[3].connects;
    srig_lose(rig, 3);
    run(rig, 80);
    ck_assert_uint_eq(rig->links[3].connects, connects + 1);
    srig_end(rig);
}

END_TEST

/* A Sentinel is no master, whoever says so. */
START_TEST(sentinel_named_as_master)
{
    struct srig *rig = srig_create(STORE_SENTINEL, 3);

    for (unsigned i = 0; i < 3; i++)
        rig->names[i] = (struct srig_name){"10.0.0.2", "26380"};
    silence(rig, 1, 1, true);
    srig_start(rig);
    srig_connect(rig, 1);
    expect(rig, 1, QUESTION);
    srig_answer(rig, 1);
    struct op *op = srig_op(rig, OP_ACQUIRE, 0);
    run(rig, 300);
    while (srig_next(rig, 1)[0] != '\0')
        ck_assert_int_ne(rig->words[0].at[0], 'E');
    ck_assert(!store_ready(rig->store));
    ck_assert(!srig_done(rig, op));
    srig_end(rig);
}

END_TEST

/* --- Sentinels that fail -------------------------------------------------- */

static const char *const refusals[] = {"NOAUTH Authentication required.",
    "IDONTKNOW I have not enough information", "ERR unknown command 'SENTINEL'",
    "NOPERM no"};

START_TEST(sentinel_refuses)
{
    struct srig *rig = rig_ready();
    struct srig_link *link = &rig->links[0];
    unsigned ready = 0;

    log_keep();
    silence(rig, 0, 0, true);
    for (unsigned i = 0; i < 10000; i++) {
        if (i % 100 == 0)
            (void)srig_op(rig, OP_RENEW, 0);
        run(rig, 1);
        if (link->connecting)
            srig_connect(rig, 0);
        while (link->open && srig_next(rig, 0)[0] != '\0')
            srig_error(rig, 0, refusals[_i]);
        ready += store_ready(rig->store);
    }
    ck_assert_uint_eq(ready, 10000);
    ck_assert_uint_eq(rig->done_count, 100);
    for (unsigned i = 0; i < 100; i++)
        ck_assert_int_eq(rig->ops[i].result.status, OP_OK);
    ck_assert_uint_eq(rig->links[1].closes + rig->links[2].closes, 0);
    ck_assert_uint_eq(rig->links[3].closes, 0);
    /* With growing pauses, and said each time. */
    ck_assert_uint_ge(link->closes, 8);
    ck_assert_uint_le(link->closes, 17);
    ck_assert_uint_eq(log_lines("event=redis_refuses"), link->closes);
    ck_assert_uint_eq(log_lines(refusals[_i]), link->closes);
    silence(rig, 0, 0, false);
    run(rig, 2000);
    silence(rig, 1, 1, true);
    run(rig, 5000);
    ck_assert(store_ready(rig->store));
    srig_end(rig);
}

END_TEST

START_TEST(sentinel_refuses_auth)
{
    struct srig *rig = srig_create(STORE_SENTINEL, 3);

    set_credentials(rig, true);
    silence(rig, 0, 0, true);
    srig_start(rig);
    srig_connect(rig, 0);
    expect(rig, 0, "AUTH watcher hush");
    srig_error(rig, 0, "WRONGPASS no");
    ck_assert_uint_eq(rig->links[0].closes, 1);
    /* Late answers of that connection are nobody's. */
    rig->words[0] = TEXT("SENTINEL");
    srig_answer(rig, 0);
    silence(rig, 1, 1, true);
    run(rig, 500);
    ck_assert(none_to_redis(rig));
    srig_end(rig);
}

END_TEST

/* Where it worked once it is tried again soon, and given time to answer. */
START_TEST(sentinel_too_slow)
{
    struct srig *rig = rig_ready();
    unsigned ms = 0;

    silence(rig, 0, 0, true);
    while (rig->links[0].connects == 1) {
        run(rig, 1);
        ck_assert_uint_lt(++ms, 3000);
    }
    ck_assert_uint_ge(ms, 2000);
    ck_assert_uint_eq(rig->links[0].closes, 1);
    ck_assert_uint_eq(srig_count(rig, COUNTER_redis_timeouts), 1);
    srig_end(rig);
}

END_TEST

START_TEST(what_is_logged)
{
    struct srig *rig = srig_create(STORE_SENTINEL, 3);

    log_keep();
    srig_start(rig);
    run(rig, 5000);
    ck_assert_uint_eq(log_lines("event=redis_master"), 1);
    ck_assert_uint_eq(
        log_lines("event=redis_master master=shop node=10.0.0.1:7000"), 1);
    ck_assert_uint_eq(log_lines("use=sentinel"), 4);
    ck_assert_uint_eq(log_lines("use=hints"), 1);
    /* The same one after a loss is nothing new, nor is the time between. */
    srig_lose(rig, 3);
    run(rig, 5000);
    ck_assert_uint_eq(log_lines("event=redis_master"), 1);
    ck_assert_uint_eq(log_lines("event=redis_no_master"), 0);
    name_all(rig, NULL);
    run(rig, 2400);
    ck_assert_uint_eq(log_lines("event=redis_no_master"), 0);
    run(rig, 200);
    ck_assert_uint_eq(log_lines("event=redis_no_master master=shop"), 1);
    run(rig, 5000);
    ck_assert_uint_eq(log_lines("event=redis_no_master"), 1);
    name_all(rig, "7001");
    run(rig, 600);
    ck_assert_uint_eq(log_lines("event=redis_master"), 2);
    ck_assert_uint_eq(log_lines("node=10.0.0.1:7001"), 3);
    srig_end(rig);
}

END_TEST

/* --- random faults -------------------------------------------------------- */

/* What each Sentinel has said, as the test has seen it. */
struct witness {
    struct srig *rig;
    struct random random;
    uint64_t asked_us[3]; /* 0: it has no question */
    uint64_t sent_us[3];  /* of the question of the last answer */
    uint16_t port[3];     /* that it names; 0: none */
    uint32_t calls[LINK_COUNT];
};

static uint16_t
port_of(const struct srig_name *named)
{
    uint64_t port = 0;

    if (named->host != NULL)
        (void)text_to_u64(text_from(named->port), UINT16_MAX, &port);
    return (uint16_t)port;
}

/* Questions are sent in turns, and as the first thing on a connection. */
static void
note_questions(struct witness *witness)
{
    for (uint32_t i = 0; i < 3; i++) {
        struct buffer *out = store_link_output(witness->rig->store, i);
        if (!witness->rig->links[i].open)
            witness->asked_us[i] = 0;
        else if (buffer_len(out) > 0 && witness->asked_us[i] == 0)
            witness->asked_us[i] = witness->rig->now_us;
    }
}

/* No call but to the one whom a majority has named in the last two seconds. */
static void
judge_calls(struct witness *witness)
{
    const struct srig *rig = witness->rig;

    for (uint32_t i = 3; i < LINK_SUBSCRIBER; i++) {
        uint32_t calls = rig->store->links[i].batch_count;
        unsigned votes = 0;
        for (int at = 0; at < 3; at++)
            votes += witness->port[at] == rig->links[i].port &&
                     witness->sent_us[at] + TRUST_MS * 1000 > rig->now_us;
        ck_assert_msg(calls <= witness->calls[i] || votes >= 2,
            "a call to port %u, which %u name", rig->links[i].port, votes);
    }
}

static void
turn_judged(struct witness *witness)
{
    for (uint32_t i = 0; i < LINK_COUNT; i++)
        witness->calls[i] = witness->rig->store->links[i].batch_count;
    srig_turn(witness->rig);
    judge_calls(witness);
    note_questions(witness);
}

/* Refusals that are put again at once, wherever, have a test of their own. */
static void
random_reply(struct witness *witness, uint32_t link)
{
    static const char *const errors[] = {
        "READONLY x", "LOADING x", "OOM x", "NOPERM x"};
    struct srig *rig = witness->rig;

    if (random_below(&witness->random, 100) < 2)
        srig_error(rig, link, errors[random_below(&witness->random, 4)]);
    else
        srig_results(rig, link, (rig->word_count - 4) / 2,
            (enum record_status)random_below(
                &witness->random, RECORD_FULL + 1));
}

static void
random_answer(struct witness *witness, uint32_t link)
{
    struct srig *rig = witness->rig;

    if (text_equal(rig->words[0], TEXT("EVALSHA"))) {
        random_reply(witness, link);
    } else if (random_below(&witness->random, 300) == 0) {
        srig_error(rig, link, "ERR no");
    } else {
        if (link < 3) {
            witness->sent_us[link] = witness->asked_us[link];
            witness->port[link] = port_of(&rig->names[link]);
        }
        srig_answer(rig, link);
    }
    if (link < 3)
        witness->asked_us[link] = 0;
}

static void
random_link(struct witness *witness, uint32_t link)
{
    struct srig *rig = witness->rig;
    struct random *random = &witness->random;

    if (rig->links[link].connecting) {
        if (random_below(random, 5) == 0)
            srig_lose(rig, link);
        else
            srig_connect(rig, link);
        note_questions(witness);
        return;
    }
    if (rig->links[link].open && random_below(random, 300) == 0)
        srig_lose(rig, link);
    if (link == LINK_SWITCHES && rig->links[link].open &&
        random_below(random, 10) == 0)
        switched(rig);
    unsigned some = (unsigned)random_below(random, 8);
    while (
        rig->links[link].open && some-- > 0 && srig_next(rig, link)[0] != '\0')
        random_answer(witness, link);
    note_questions(witness);
}

/* Sentinels change their minds, one after the other or alone. */
static void
random_names(struct witness *witness)
{
    static const char *const ports[] = {"7000", "7001", "7002", "7003"};
    struct random *random = &witness->random;

    if (random_below(random, 400) == 0)
        name_all(witness->rig, ports[random_below(random, 4)]);
    if (random_below(random, 100) == 0)
        name(witness->rig, (unsigned)random_below(random, 3),
            random_below(random, 4) == 0 ? NULL
                                         : ports[random_below(random, 4)]);
}

static uint64_t
random_op(struct witness *witness)
{
    struct srig *rig = witness->rig;
    struct random *random = &witness->random;

    if (rig->op_count == SRIG_OPS || random_below(random, 2) == 0)
        return 0;
    struct op *op =
        srig_op(rig, random_below(random, 2) == 0 ? OP_ACQUIRE : OP_RELEASE, 0);
    if (random_below(random, 3) == 0)
        op->give_up_us = rig->now_us + random_below(random, 100000);
    return 1;
}

START_TEST(faults)
{
    static struct witness witness;
    struct srig *rig = srig_create(STORE_SENTINEL, 3);
    uint64_t submitted = 0;
    uint64_t returned = 0;

    witness = (struct witness){.rig = rig};
    seed_random(&witness.random, "store_sentinel");
    srig_start(rig);
    for (unsigned i = 0; i < EVENTS; i++) {
        if (rig->op_count == SRIG_OPS && rig->done_count == SRIG_OPS) {
            returned += rig->done_count;
            rig->op_count = rig->done_count = 0;
            memset(rig->done, 0, sizeof(rig->done));
        }
        submitted += random_op(&witness);
        uint32_t link = (uint32_t)random_below(&witness.random, 12);
        random_link(&witness, link < 10 ? link : LINK_SUBSCRIBER + link - 10);
        random_names(&witness);
        rig->now_us += random_below(&witness.random, 20000);
        turn_judged(&witness);
    }
    /* All is well again, and so is what comes then. */
    name_all(rig, "7000");
    run(rig, 4000);
    ck_assert(store_ready(rig->store));
    run(rig, 6000);
    returned += rig->done_count;
    printf("store_sentinel: %" PRIu64 " operations\n", submitted);
    ck_assert_uint_eq(returned, submitted);
    ck_assert_uint_gt(submitted, EVENTS / 20);
    ck_assert_uint_gt(srig_count(rig, COUNTER_redis_calls), EVENTS / 100);
    srig_end(rig);
}

END_TEST

static void
add_majorities(TCase *tests)
{
    tcase_add_loop_test(
        tests, majority, 0, sizeof(majorities) / sizeof(majorities[0]));
    tcase_add_test(tests, two_names);
    tcase_add_test(tests, three_names);
    tcase_add_test(tests, nil_answers);
    tcase_add_loop_test(
        tests, no_address, 0, sizeof(no_addresses) / sizeof(no_addresses[0]));
    tcase_add_test(tests, no_answer);
    tcase_add_test(tests, nil_after_a_name);
    tcase_add_loop_test(
        tests, names_of_hosts, 0, sizeof(hosts) / sizeof(hosts[0]));
    tcase_add_test(tests, asked_twice_a_second);
    tcase_add_test(tests, asked_once_at_a_time);
    tcase_add_test(tests, counts_from_the_sending);
    tcase_add_test(tests, counts_by_each);
    tcase_add_test(tests, trust_ends);
    tcase_add_test(tests, trust_ends_with_a_queue);
    tcase_add_loop_test(tests, one_is_silent, 0, 3);
}

static void
add_changes(TCase *tests)
{
    tcase_add_test(tests, loss_asks_all);
    tcase_add_test(tests, loss_voids_votes);
    tcase_add_test(tests, loss_with_operations);
    tcase_add_test(tests, loss_while_connecting);
    tcase_add_test(tests, loss_and_the_same_again);
    tcase_add_test(tests, switch_is_a_hint);
    tcase_add_test(tests, news_is_no_hint);
    tcase_add_test(tests, switch_during_a_question);
    tcase_add_test(tests, master_changes);
    tcase_add_test(tests, minority_changes_nothing);
    tcase_add_test(tests, change_one_by_one);
    tcase_add_test(tests, change_while_connecting);
    tcase_add_test(tests, subscriber_follows);
    tcase_add_test(tests, named_replica);
    tcase_add_test(tests, readonly);
    tcase_add_test(tests, readonly_and_back);
    tcase_add_test(tests, other_refusals);
    tcase_add_test(tests, thousand_changes);
    tcase_add_test(tests, named_by_a_minority);
    tcase_add_test(tests, vote_of_the_silent);
    tcase_add_test(tests, no_master_is_logged);
}

/* What comes at a bad moment, or makes no sense. */
static void
add_odd(TCase *tests)
{
    tcase_add_loop_test(tests, trust_ends_and_asks_again, 0, 2);
    tcase_add_test(tests, loss_without_a_master);
    tcase_add_test(tests, thousand_names_of_one);
    tcase_add_test(tests, host_with_a_nul);
    tcase_add_test(tests, pauses_of_a_new_node);
    tcase_add_test(tests, sentinel_named_as_master);
}

Suite *
store_sentinel_suite(void)
{
    Suite *suite = suite_create("store_sentinel");
    TCase *tests = tcase_create("store_sentinel");

    tcase_set_timeout(tests, 120);
    tcase_add_loop_test(tests, greeting_of_a_sentinel, 0, 2);
    tcase_add_test(tests, greeting_without_a_password);
    tcase_add_test(tests, greeting_of_the_master);
    tcase_add_test(tests, greeting_for_switches);
    tcase_add_test(tests, switches_move);
    tcase_add_test(tests, switches_refused);
    add_majorities(tests);
    add_changes(tests);
    tcase_add_loop_test(
        tests, sentinel_refuses, 0, sizeof(refusals) / sizeof(refusals[0]));
    tcase_add_test(tests, sentinel_refuses_auth);
    tcase_add_test(tests, sentinel_too_slow);
    tcase_add_test(tests, what_is_logged);
    tcase_add_test(tests, faults);
    add_odd(tests);
    suite_add_tcase(suite, tests);
    return suite;
}

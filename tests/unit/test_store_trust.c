/*
 * Tests of daemon/store/node/history.c, and of its part in conn.c and call.c:
 * when a broker is settled with a node. The calls say so, and a marker tells it
 * to others. And the scripts' answers to an unsettled broker.
 */
#include "tests/unit/log_kept.h"
#include "tests/unit/store_rig.h"

#include "daemon/store/conn/life.h"
#include "daemon/store/node/conn.h"
#include "daemon/store/node/history.h"
#include "daemon/store/node/route.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

Suite *store_trust_suite(void);

#define SETTLE_MS 10000

#define R40 "rrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrr"
#define S40 "ssssssssssssssssssssssssssssssssssssssss"
#define I40 "iiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiii"
#define J40 "jjjjjjjjjjjjjjjjjjjjjjjjjjjjjjjjjjjjjjjj"
#define Y40 "yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy"

/* Commands that were sent on a link. */
struct sent {
    unsigned gets;
    unsigned sets;
    unsigned infos; /* INFO replication */
    unsigned times;
    unsigned others;
    char key[100]; /* of the last GET or SET */
};

/* All that the link has to say is answered. */
static void
answer(struct srig *rig, uint32_t link, struct sent *sent)
{
    const char *command;

    while ((command = srig_next(rig, link))[0] != '\0') {
        bool get = strncmp(command, "GET ", 4) == 0;
        bool set = strncmp(command, "SET ", 4) == 0;
        bool info = strcmp(command, "INFO replication") == 0;
        bool time = strcmp(command, "TIME") == 0;
        ck_assert_int_ne(command[0], 'E');
        sent->gets += get;
        sent->sets += set;
        sent->infos += info;
        sent->times += time;
        sent->others += !(get || set || info || time);
        if (get || set)
            snprintf(sent->key, sizeof(sent->key), "%.*s",
                (int)rig->words[1].len, rig->words[1].at);
        srig_answer(rig, link);
    }
}

/* So much time, in which the link's commands are answered, and those of the
 * others too; returns what was sent on it. */
static struct sent
pass(struct srig *rig, uint32_t link, uint64_t ms)
{
    struct sent sent = {0};
    struct sent rest = {0};
    uint64_t end_us = rig->now_us + ms * 1000;

    srig_turn(rig);
    for (;;) {
        for (uint32_t i = 0; i < CONN_COUNT; i++) {
            if (rig->conns[i].connecting && !rig->conns[i].silent)
                srig_connect(rig, i);
            if (rig->conns[i].open && !rig->conns[i].silent)
                answer(rig, i, i == link ? &sent : &rest);
        }
        uint64_t left_us = end_us - rig->now_us;
        if (left_us == 0)
            return sent;
        srig_pass(rig, left_us > 20000 ? 20 : (left_us + 999) / 1000);
        end_us = rig->now_us > end_us ? rig->now_us : end_us;
    }
}

/* A single node, whose process is 'r' and whose history 'i', just seen. */
static struct srig *
begin(uint64_t settle_ms, const char *marker)
{
    struct srig *rig = srig_create(STORE_SINGLE, 1);

    srig_history(rig, "master", 'r', 'i', '0');
    snprintf(rig->marker, sizeof(rig->marker), "%s", marker);
    rig->settings.settle_us = settle_ms * 1000;
    log_keep(LOG_INFO);
    srig_start(rig);
    srig_connect(rig, 0);
    srig_serve(rig, 0);
    ck_assert(store_ready(rig->store));
    ck_assert_str_eq(srig_next(rig, 0), "");
    return rig;
}

/* With the clock in so many ms; which may be so far off. */
struct steadiness {
    uint32_t in_ms;
    uint32_t within_us;
};

static uint32_t
get4(const char *at)
{
    uint32_t value = 0;

    for (int i = 3; i >= 0; i--)
        value = value << 8 | (uint8_t)at[i];
    return value;
}

/* The call that was read last says that id. */
static void
token(const struct srig *rig, char id)
{
    char ids[40];

    memset(ids, id, sizeof(ids));
    ck_assert_mem_eq(rig->words[4].at + 40, ids, sizeof(ids));
}

/* The next call on the link says this: settled in so many ms. It is answered,
 * with OK. */
static uint32_t
settles_ms(struct srig *rig, uint32_t link, uint16_t slot, char id)
{
    struct sent sent = {0};

    srig_turn(rig);
    answer(rig, link, &sent);
    struct op *op = srig_op(rig, OP_ACQUIRE, slot);
    srig_sends(rig, link, "EVALSHA 1");
    token(rig, id);
    uint32_t ms = get4(rig->words[4].at + 80);
    srig_results(rig, link, 1, RECORD_OK);
    srig_status(rig, op, OP_OK);
    return ms;
}

/* The process is another one, or not; the connection is. */
static void
reconnect(struct srig *rig, uint32_t link)
{
    srig_lose(rig, link);
    while (!rig->conns[link].connecting)
        srig_pass(rig, 1);
    srig_connect(rig, link);
    srig_serve(rig, link);
}

SRIG_TEST(first_sight, begin(SETTLE_MS, ""))
{
    uint64_t since_us = rig->now_us;

    ck_assert_uint_eq(srig_count(rig, COUNTER_redis_unsettled), 1);
    ck_assert_uint_eq(
        log_kept_count("level=info event=redis_unsettled "
                       "node=10.0.0.1:7000 run_id=rrrrrrrr id=iiiiiiii"),
        1);
    ck_assert_uint_eq(settles_ms(rig, 0, 0, 'i'), SETTLE_MS);
    (void)pass(rig, 0, 4000);
    ck_assert_uint_eq(settles_ms(rig, 0, 0, 'i'), SETTLE_MS - 4000);
    (void)pass(rig, 0, SETTLE_MS - 4002);
    ck_assert_uint_eq(settles_ms(rig, 0, 0, 'i'), 2);
    (void)pass(rig, 0, 1);
    ck_assert_uint_eq(settles_ms(rig, 0, 0, 'i'), 1);
    rig->now_us = since_us + SETTLE_MS * 1000 - 1;
    ck_assert_uint_eq(settles_ms(rig, 0, 0, 'i'), 1);
    ck_assert_uint_eq(log_kept_count("redis_settled"), 0);
    rig->now_us++;
    ck_assert_uint_eq(settles_ms(rig, 0, 0, 'i'), 0);
    ck_assert_uint_eq(
        log_kept_count(
            "level=info event=redis_settled node=10.0.0.1:7000 why=time"),
        1);
    (void)pass(rig, 0, 60000);
    ck_assert_uint_eq(settles_ms(rig, 0, 0, 'i'), 0);
    ck_assert_uint_eq(log_kept_count("redis_settled"), 1);
    ck_assert_uint_eq(srig_count(rig, COUNTER_redis_unsettled), 1);
}

/* A repeated release is sent only to a node that may have lost the first one.
 * The rest is sent all the same. */
SRIG_TEST(repeated_releases, begin(SETTLE_MS, ""))
{
    for (int round = 0; round < 2; round++) {
        struct op *ops[4];
        struct sent sent = {0};
        srig_turn(rig);
        answer(rig, 0, &sent);
        for (unsigned i = 0; i < 4; i++) {
            ops[i] = srig_draft(rig, OP_RELEASE, 0);
            ops[i]->repeats = i % 2 == 0;
            srig_submit(rig, ops[i]);
        }
        srig_sends(rig, 0, round == 0 ? "EVALSHA 4" : "EVALSHA 2");
        srig_results(rig, 0, round == 0 ? 4 : 2, RECORD_OK);
        srig_expect(rig, 0, "");
        for (unsigned i = 0; i < 4; i++)
            srig_status(
                rig, ops[i], round == 1 && i % 2 == 0 ? OP_GONE : OP_OK);
        (void)pass(rig, 0, SETTLE_MS);
    }
}

/* The store wants to be called for each step of it. */
SRIG_TEST(wakes_for_it, begin(1500, ""))
{
    uint64_t since_us = rig->now_us;
    struct sent sent = {0};

    ck_assert_uint_le(store_next_us(rig->store), since_us);
    srig_turn(rig);
    answer(rig, 0, &sent);
    ck_assert_uint_eq(sent.gets, 1);
    srig_turn(rig);
    answer(rig, CONN_SUBSCRIBER, &sent);
    rig->conns[CONN_SUBSCRIBER].silent = true;
    ck_assert_uint_eq(store_next_us(rig->store), since_us + 1000000);
    rig->now_us = since_us + 1000000;
    srig_turn(rig);
    answer(rig, 0, &sent);
    ck_assert_uint_eq(sent.gets, 2);
    rig->now_us = store_next_us(rig->store);
    while (rig->now_us < since_us + 1500000) {
        srig_turn(rig);
        ck_assert_str_eq(srig_next(rig, 0), "");
        ck_assert_uint_gt(store_next_us(rig->store), rig->now_us);
        rig->now_us = store_next_us(rig->store);
    }
    ck_assert_uint_eq(rig->now_us, since_us + 1500000);
    srig_turn(rig);
    ck_assert_uint_eq(log_kept_count("redis_settled"), 1);
}

SRIG_TEST(settled_by_marker, begin(SETTLE_MS, R40 " " I40))
{
    srig_turn(rig);
    srig_exchange(rig, 0, "GET holdfast:settled");
    ck_assert_uint_eq(settles_ms(rig, 0, 0, 'i'), 0);
    ck_assert_uint_eq(
        log_kept_count(
            "level=info event=redis_settled node=10.0.0.1:7000 why=marker"),
        1);
    /* And it stays so. */
    struct sent sent = pass(rig, 0, SETTLE_MS + 2000);
    ck_assert_uint_eq(sent.gets, 0);
    ck_assert_uint_le(sent.sets, 2);
    ck_assert_mem_eq(rig->marker, R40 " " I40, 81);
    ck_assert_uint_eq(settles_ms(rig, 0, 0, 'i'), 0);
    ck_assert_uint_eq(log_kept_count("redis_settled"), 1);
}

/* A broker that comes later need not wait, once this one need not. */
START_TEST(marker_for_others)
{
    struct srig *rig = begin(SETTLE_MS, "");
    char marker[sizeof(rig->marker)];

    (void)pass(rig, 0, SETTLE_MS - 1);
    ck_assert_str_eq(rig->marker, "");
    (void)pass(rig, 0, 1001);
    memcpy(marker, rig->marker, sizeof(marker));
    ck_assert_mem_eq(marker, R40 " " I40 " ", 82);
    srig_end(rig);
    rig = begin(SETTLE_MS, marker);
    (void)pass(rig, 0, 1);
    ck_assert_uint_eq(settles_ms(rig, 0, 0, 'i'), 0);
    srig_end(rig);
}

END_TEST

/* The core is told where locks come to a node that is not settled. */
START_TEST(changed)
{
    struct srig *rig = begin(SETTLE_MS, "");

    ck_assert(store_take_changed(rig->store));
    ck_assert(!store_take_changed(rig->store));
    (void)pass(rig, 0, 1000);
    reconnect(rig, 0); /* it is not settled yet */
    ck_assert(store_take_changed(rig->store));
    (void)pass(rig, 0, SETTLE_MS + 1100);
    reconnect(rig, 0);
    ck_assert(!store_take_changed(rig->store));
    srig_history(rig, "master", 'r', 'y', '0');
    (void)settles_ms(rig, 0, 0, 'i');
    (void)pass(rig, 0, 1100);
    ck_assert_uint_eq(settles_ms(rig, 0, 0, 'y'), 0);
    ck_assert(!store_take_changed(rig->store));
    srig_history(rig, "master", 'r', 'z', 'y');
    (void)settles_ms(rig, 0, 0, 'y');
    (void)pass(rig, 0, 0);
    ck_assert_uint_eq(settles_ms(rig, 0, 0, 'z'), SETTLE_MS);
    ck_assert(store_take_changed(rig->store));
    ck_assert(!store_take_changed(rig->store));
    srig_end(rig);
    rig = begin(0, "");
    reconnect(rig, 0);
    ck_assert(!store_take_changed(rig->store));
    srig_end(rig);
}

END_TEST

static const struct {
    const char *marker;
    char second;
    bool settles;
} markers[] = {
    {R40 " " I40, '0', true},
    {R40 " " I40, 'h', true},
    {R40 " " Y40, '0', true}, /* this process, and nobody before it */
    {R40 " " Y40, 'h', false},
    {S40 " " I40, '0', false},
    {S40 " " I40, 'h', false},
    {S40 " " Y40, '0', false},
    {I40 " " R40, '0', false},
    {R40 " " I40 " 1", '0', true},
    {R40 " " Y40 " 1", 'h', false},
    {R40 " " I40 " 1x", '0', false},
    {R40 " " I40 "x1", '0', false},
    {R40 " " I40 " ", '0', false},
    {R40 " " I40 " ", 'h', false},
    {R40 " iiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiii", '0', false},
    {R40, '0', false},
    {"r", '0', false},
    {"", '0', false},
};

SRIG_TEST(marker_of_others, srig_create(STORE_SINGLE, 1))
{
    srig_history(rig, "master", 'r', 'i', markers[_i].second);
    snprintf(rig->marker, sizeof(rig->marker), "%s", markers[_i].marker);
    rig->settings.settle_us = SETTLE_MS * 1000;
    srig_start(rig);
    srig_connect(rig, 0);
    srig_serve(rig, 0);
    (void)pass(rig, 0, 3000);
    ck_assert_uint_eq(
        settles_ms(rig, 0, 0, 'i'), markers[_i].settles ? 0 : SETTLE_MS - 3000);
    /* It is put right by whoever is settled. */
    (void)pass(rig, 0, SETTLE_MS);
    ck_assert_mem_eq(rig->marker, R40 " " I40, 81);
}

/* A reply that is no string is no marker. */
SRIG_TEST(marker_of_garbage, begin(SETTLE_MS, ""))
{
    static const enum resp_type types[] = {
        RESP_STATUS, RESP_ERROR, RESP_INTEGER, RESP_ARRAY, RESP_NIL};

    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
        struct resp reply = {
            .type = types[i], .text = TEXT(R40 " " I40), .integer = 1};
        srig_sends(rig, 0, "GET holdfast:settled");
        srig_reply(rig, 0, &reply);
        ck_assert_uint_eq(settles_ms(rig, 0, 0, 'i'), SETTLE_MS - 1000 * i);
        rig->now_us += 1000000;
    }
    /* An empty one, and then the right one. */
    struct resp reply = {.type = RESP_STRING};
    srig_sends(rig, 0, "GET holdfast:settled");
    srig_reply(rig, 0, &reply);
    ck_assert_uint_eq(settles_ms(rig, 0, 0, 'i'), SETTLE_MS - 5000);
    rig->now_us += 1000000;
    srig_sends(rig, 0, "GET holdfast:settled");
    reply.text = TEXT(R40 " " I40);
    srig_reply(rig, 0, &reply);
    ck_assert_uint_eq(settles_ms(rig, 0, 0, 'i'), 0);
}

/* Each second; then it is written, every ten seconds, for it may get lost, and
 * at once where the ids change. */
SRIG_TEST(marker_again, begin(SETTLE_MS, ""))
{
    struct sent sent = pass(rig, 0, 5500);
    ck_assert_uint_eq(sent.gets, 6);
    ck_assert_uint_eq(sent.sets, 0);
    ck_assert_str_eq(sent.key, "holdfast:settled");
    sent = pass(rig, 0, 4499);
    ck_assert_uint_eq(sent.gets, 4);
    ck_assert_uint_eq(sent.sets, 0);
    sent = pass(rig, 0, 1100);
    ck_assert_uint_eq(sent.gets, 0);
    ck_assert_uint_eq(sent.sets, 1);
    ck_assert_str_eq(sent.key, "holdfast:settled");
    ck_assert_mem_eq(rig->marker, R40 " " I40, 81);
    rig->marker[0] = '\0';
    sent = pass(rig, 0, 20000);
    ck_assert_uint_eq(sent.gets, 0);
    ck_assert_uint_eq(sent.sets, 2);
    ck_assert_mem_eq(rig->marker, R40 " " I40, 81);
    /* A benign change, of which an idle connection hears. */
    srig_history(rig, "master", 'r', 'y', '0');
    sent = pass(rig, 0, 7100);
    ck_assert_uint_eq(sent.gets, 0);
    ck_assert_uint_eq(sent.sets, 1);
    ck_assert_mem_eq(rig->marker, R40 " " Y40, 81);
    ck_assert_uint_eq(settles_ms(rig, 0, 0, 'y'), 0);
    /* The same answers again are no change. */
    reconnect(rig, 0);
    sent = pass(rig, 0, 20000);
    ck_assert_uint_eq(sent.gets, 0);
    ck_assert_uint_eq(sent.sets, 2);
}

/* Refused, with whatever: tried again, and nothing else comes of it. */
SRIG_TEST(marker_refused, begin(SETTLE_MS, ""))
{
    static const char *const errors[] = {"NOPERM no", "MOVED 1 10.0.0.9:7009",
        "LOADING x", "ERR what", "WRONGTYPE x"};
    struct sent sent = {0};
    unsigned refused = 0;

    for (unsigned ms = 0; ms < SETTLE_MS + 5000; ms += 500) {
        srig_turn(rig);
        const char *command = srig_next(rig, 0);
        bool set = strncmp(command, "SET ", 4) == 0;
        if (set || strncmp(command, "GET ", 4) == 0) {
            ck_assert_int_eq(set, ms >= SETTLE_MS);
            srig_error(rig, 0, errors[refused++ % 5]);
        } else if (command[0] != '\0') {
            srig_answer(rig, 0);
        }
        answer(rig, 0, &sent);
        ck_assert_uint_eq(
            settles_ms(rig, 0, 0, 'i'), ms < SETTLE_MS ? SETTLE_MS - ms : 0);
        rig->now_us += 500000;
    }
    ck_assert_uint_eq(sent.gets + sent.sets, 0);
    ck_assert_uint_eq(refused, 11);
    ck_assert_uint_eq(log_kept_count("level=warn event=redis_marker_refused "
                                     "node=10.0.0.1:7000 key=holdfast:settled "
                                     "error=\"NOPERM no\""),
        1);
    ck_assert_uint_eq(log_kept_count("redis_marker_refused"), 1);
    ck_assert_uint_eq(rig->conns[0].closes, 0);
    ck_assert_uint_eq(rig->conns[0].connects, 1);
    sent = pass(rig, 0, 6000);
    ck_assert_uint_eq(sent.gets, 0);
    ck_assert_uint_eq(sent.sets, 1);
    ck_assert_mem_eq(rig->marker, R40 " " I40, 81);
}

/* The connection is lost, before or after; the process is the same one. */
SRIG_TEST(same_process, begin(SETTLE_MS, ""))
{
    uint64_t since_us = rig->now_us;

    (void)pass(rig, 0, 4000);
    reconnect(rig, 0);
    uint64_t gone_ms = (rig->now_us - since_us) / 1000;
    ck_assert_uint_gt(gone_ms, 4000);
    ck_assert_uint_eq(settles_ms(rig, 0, 0, 'i'), SETTLE_MS - gone_ms);
    (void)pass(rig, 0, SETTLE_MS - gone_ms);
    ck_assert_uint_eq(settles_ms(rig, 0, 0, 'i'), 0);
    reconnect(rig, 0);
    ck_assert_uint_eq(settles_ms(rig, 0, 0, 'i'), 0);
    /* Nor does it matter how long nobody could ask. */
    srig_lose(rig, 0);
    rig->conns[0].silent = true;
    srig_pass(rig, 100);
    rig->conns[0].silent = false;
    srig_lose(rig, 0);
    rig->now_us += 600000000;
    srig_turn(rig);
    srig_connect(rig, 0);
    srig_serve(rig, 0);
    ck_assert_uint_eq(settles_ms(rig, 0, 0, 'i'), 0);
    ck_assert_uint_eq(srig_count(rig, COUNTER_redis_unsettled), 1);
    ck_assert_uint_eq(log_kept_count("redis_settled"), 1);
}

static const struct {
    char run;
    char id;
    char second;
    bool benign;
} changes[] = {
    {'s', 'i', '0', false}, /* restarted, and with the data it had */
    {'s', 'y', '0', false},
    {'s', 'y', 'i', false},
    {'r', 'y', 'i', false}, /* promoted */
    {'r', 'y', 'h', false},
    {'r', 'y', '0', true}, /* a backup, the first replica */
    {'r', 'i', 'h', true}, /* nothing has changed */
    {'r', 'i', '0', true},
};

/* Another history: settled no more, with what the log says of it. */
static void
expect_change(struct srig *rig, char run, char id, bool benign)
{
    char line[100];

    ck_assert_uint_eq(settles_ms(rig, 0, 0, id), benign ? 0 : SETTLE_MS);
    ck_assert_uint_eq(srig_count(rig, COUNTER_redis_unsettled), benign ? 1 : 2);
    ck_assert_uint_eq(log_kept_count("redis_unsettled"), benign ? 1 : 2);
    if (benign)
        return;
    snprintf(line, sizeof(line),
        "run_id=%c%c%c%c%c%c%c%c id=%c%c%c%c%c%c%c%c\n", run, run, run, run,
        run, run, run, run, id, id, id, id, id, id, id, id);
    ck_assert_uint_eq(log_kept_count(line), 1);
    /* The marker of the last history does not count, and it is all anew. */
    (void)pass(rig, 0, 4000);
    ck_assert_uint_eq(settles_ms(rig, 0, 0, id), SETTLE_MS - 4000);
    (void)pass(rig, 0, SETTLE_MS - 4001);
    ck_assert_uint_eq(settles_ms(rig, 0, 0, id), 1);
    ck_assert_mem_eq(rig->marker, R40 " " I40, 81);
    (void)pass(rig, 0, 1);
    ck_assert_uint_eq(settles_ms(rig, 0, 0, id), 0);
    (void)pass(rig, 0, 1100);
    ck_assert_mem_eq(rig->marker, line + 7, 8);
    ck_assert_int_eq(rig->marker[41], id);
}

/* As the greeting tells it. */
SRIG_TEST(change_at_a_greeting, begin(SETTLE_MS, ""))
{
    (void)pass(rig, 0, SETTLE_MS + 1100);
    srig_history(
        rig, "master", changes[_i].run, changes[_i].id, changes[_i].second);
    reconnect(rig, 0);
    expect_change(rig, changes[_i].run, changes[_i].id, changes[_i].benign);
}

/* As an idle connection hears of it; the process is the one that it was. */
START_TEST(change_while_idle)
{
    struct srig *rig = begin(SETTLE_MS, "");

    if (changes[_i].run == 's') {
        srig_end(rig);
        return;
    }
    (void)pass(rig, 0, SETTLE_MS + 1100);
    struct sent sent = pass(rig, 0, 9000);
    ck_assert_uint_ge(sent.infos, 2);
    ck_assert_uint_le(sent.infos, 3);
    ck_assert_uint_eq(sent.times, sent.infos);
    srig_history(
        rig, "master", changes[_i].run, changes[_i].id, changes[_i].second);
    uint64_t until_us = rig->now_us + 3100000;
    while (strcmp(srig_next(rig, 0), "INFO replication") != 0) {
        if (rig->word_count > 0)
            srig_answer(rig, 0);
        else
            srig_pass(rig, 1);
        ck_assert_uint_lt(rig->now_us, until_us);
    }
    srig_answer(rig, 0);
    expect_change(rig, changes[_i].run, changes[_i].id, changes[_i].benign);
    srig_end(rig);
}

END_TEST

/* Settled or not, a benign change does not begin it anew. */
SRIG_TEST(benign_while_unsettled, begin(SETTLE_MS, ""))
{
    (void)pass(rig, 0, 4000);
    srig_history(rig, "master", 'r', 'y', '0');
    reconnect(rig, 0);
    (void)pass(rig, 0, 1000);
    uint32_t ms = settles_ms(rig, 0, 0, 'y');
    ck_assert_uint_gt(ms, 4000);
    ck_assert_uint_lt(ms, SETTLE_MS - 5000);
    (void)pass(rig, 0, ms + 1100);
    ck_assert_uint_eq(settles_ms(rig, 0, 0, 'y'), 0);
    ck_assert_mem_eq(rig->marker, R40 " " Y40, 81);
    ck_assert_uint_eq(srig_count(rig, COUNTER_redis_unsettled), 1);
}

/* Another id in a script's reply: who is it? Nothing more is sent until that is
 * known; what is under way said the old one. */
SRIG_TEST(script_sees_another_id, begin(SETTLE_MS, ""))
{
    (void)pass(rig, 0, SETTLE_MS + 1100);
    srig_history(rig, "master", 'r', 'y', 'i');
    ck_assert_uint_eq(settles_ms(rig, 0, 0, 'i'), 0);
    ck_assert_uint_le(store_next_us(rig->store), rig->now_us);
    struct op *op = srig_op(rig, OP_RENEW, 0);
    srig_sends(rig, 0, "INFO replication");
    for (int i = 0; i < 3; i++) {
        ck_assert_uint_gt(store_next_us(rig->store), rig->now_us);
        rig->now_us += 400000;
        srig_sends(rig, 0, "");
    }
    ck_assert_uint_eq(srig_count(rig, COUNTER_redis_unsettled), 1);
    srig_reply(rig, 0,
        &(struct resp){.type = RESP_STRING, .text = text_from(rig->info)});
    srig_turn(rig);
    srig_exchange(rig, 0, "GET holdfast:settled");
    srig_expect(rig, 0, "EVALSHA 1");
    token(rig, 'y');
    ck_assert_uint_eq(get4(rig->words[4].at + 80), SETTLE_MS);
    srig_results(rig, 0, 1, RECORD_OK);
    srig_status(rig, op, OP_OK);
    expect_change(rig, 'r', 'y', false);
}

/* Answers to calls from before INFO are no reason to ask twice. */
SRIG_TEST(asks_once, begin(SETTLE_MS, ""))
{
    (void)pass(rig, 0, SETTLE_MS + 1100);
    srig_history(rig, "master", 'r', 'y', '0');
    (void)srig_op(rig, OP_RENEW, 0);
    (void)srig_op(rig, OP_RELEASE, 0);
    srig_sends(rig, 0, "EVALSHA 1");
    srig_expect(rig, 0, "EVALSHA 1");
    srig_results(rig, 0, 1, RECORD_OK);
    srig_sends(rig, 0, "INFO replication");
    srig_results(rig, 0, 1, RECORD_OK);
    srig_sends(rig, 0, "");
    srig_reply(rig, 0,
        &(struct resp){.type = RESP_STRING, .text = text_from(rig->info)});
    srig_sends(
        rig, 0, "SET holdfast:settled " R40 " " Y40); /* the benign change */
    srig_expect(rig, 0, "");
}

/* It is asked again where INFO is refused, or lost. */
SRIG_TEST(asks_again, begin(SETTLE_MS, ""))
{
    (void)pass(rig, 0, SETTLE_MS + 1100);
    srig_history(rig, "master", 'r', 'y', 'i');
    for (int i = 0; i < 3; i++) {
        ck_assert_uint_eq(settles_ms(rig, 0, 0, 'i'), 0);
        srig_sends(rig, 0, "INFO replication");
        srig_error(rig, 0, "NOPERM no");
        srig_sends(rig, 0, "");
    }
    ck_assert_uint_eq(rig->conns[0].closes, 0);
    ck_assert_uint_eq(settles_ms(rig, 0, 0, 'i'), 0);
    srig_sends(rig, 0, "INFO replication");
    reconnect(rig, 0);
    ck_assert_uint_eq(settles_ms(rig, 0, 0, 'y'), SETTLE_MS);
    struct sent sent = pass(rig, 0, 1);
    ck_assert_uint_eq(sent.infos, 0);
    rig->script_id = 'z';
    ck_assert_uint_gt(settles_ms(rig, 0, 0, 'y'), 0);
    srig_sends(rig, 0, "INFO replication");
}

/* The answer to a SET that was sent before it was known who is there says
 * nothing of the marker. */
SRIG_TEST(overtaken_marker, begin(SETTLE_MS, ""))
{
    uint64_t since_us = rig->now_us;
    bool benign = _i == 1;

    (void)pass(rig, 0, SETTLE_MS - 1);
    srig_history(rig, "master", 'r', 'y', benign ? '0' : 'i');
    ck_assert_uint_eq(settles_ms(rig, 0, 0, 'i'), 1);
    rig->now_us = since_us + SETTLE_MS * 1000;
    srig_sends(rig, 0, "INFO replication");
    srig_expect(rig, 0, "SET holdfast:settled " R40 " " I40);
    srig_reply(rig, 0,
        &(struct resp){.type = RESP_STRING, .text = text_from(rig->info)});
    srig_answer(rig, 0);
    ck_assert_mem_eq(rig->marker, R40 " " I40, 81);
    struct sent sent = pass(rig, 0, 1100);
    ck_assert_uint_eq(sent.gets, benign ? 0 : 2);
    ck_assert_uint_eq(sent.sets, benign);
    sent = pass(rig, 0, SETTLE_MS);
    ck_assert_uint_eq(sent.sets, 1);
    ck_assert_mem_eq(rig->marker, R40 " " Y40, 81);
}

/* Markers, or that they are refused, keep nobody from asking for the clock. */
SRIG_TEST(clock_beside_markers, begin(SETTLE_MS, ""))
{
    struct sent sent = pass(rig, 0, SETTLE_MS - 1);

    ck_assert_uint_eq(sent.times, 3);
    ck_assert_uint_eq(sent.infos, 3);
    rig->now_us += 1000;
    for (int i = 0; i < 200; i++) {
        srig_turn(rig);
        while (srig_next(rig, 0)[0] != '\0') {
            bool set = rig->words[0].at[0] == 'S';
            sent.sets += set;
            sent.times += rig->words[0].at[0] == 'T';
            if (set)
                srig_error(rig, 0, "NOPERM no");
            else
                srig_answer(rig, 0);
        }
        rig->now_us += 50000;
    }
    ck_assert_uint_ge(sent.sets, 1);
    ck_assert_uint_eq(sent.times, 6);
}

/* INFO that says nothing of it is no known history. */
SRIG_TEST(nameless, srig_create(STORE_SINGLE, 1))
{
    static const char *const infos[] = {"", "run_id:" R40 "\r\n",
        "master_replid:" I40 "\r\n",
        "master_replid:" I40 "\r\nmaster_replid2:0000\r\n"};

    snprintf(rig->history, sizeof(rig->history),
        "redis_version:7.0.15\r\nrole:master\r\n%s", infos[_i]);
    rig->info = rig->history;
    rig->settings.settle_us = SETTLE_MS * 1000;
    srig_start(rig);
    srig_connect(rig, 0);
    srig_serve(rig, 0);
    ck_assert_uint_eq(srig_count(rig, COUNTER_redis_unsettled), 1);
    srig_turn(rig);
    srig_exchange(rig, 0, "GET holdfast:settled");
    (void)srig_op(rig, OP_ACQUIRE, 0);
    srig_sends(rig, 0, "EVALSHA 1");
    ck_assert_uint_eq(get4(rig->words[4].at + 80), SETTLE_MS);
    /* Nor is the id before it known that is not told. */
    rig->script_id = 'y';
    srig_results(rig, 0, 1, RECORD_OK);
    snprintf(rig->history, sizeof(rig->history),
        "redis_version:7.0.15\r\nrole:master\r\nmaster_replid:" Y40 "\r\n");
    srig_turn(rig);
    srig_exchange(rig, 0, "INFO replication");
    ck_assert_uint_eq(srig_count(rig, COUNTER_redis_unsettled), 2);
}

/* settle: 0s trusts at once, and asks nobody who he is. */
SRIG_TEST(no_settling, begin(0, ""))
{
    ck_assert_uint_eq(settles_ms(rig, 0, 0, 'i'), 0);
    struct sent sent = pass(rig, 0, 2999);
    ck_assert_uint_eq(sent.gets + sent.sets + sent.infos, 0);
    sent = pass(rig, 0, 1);
    ck_assert_uint_eq(sent.sets, 1);
    ck_assert_str_eq(sent.key, "holdfast:settled");
    ck_assert_mem_eq(rig->marker, R40 " " I40, 81);
    sent = pass(rig, 0, 10000);
    ck_assert_uint_ge(sent.times, 2);
    ck_assert_uint_eq(sent.gets + sent.infos + sent.others, 0);
    ck_assert_uint_le(sent.sets, 1);
    /* A script's word is enough. */
    srig_history(rig, "master", 'r', 'y', 'i');
    ck_assert_uint_eq(settles_ms(rig, 0, 0, 'i'), 0);
    srig_sends(rig, 0, "");
    ck_assert_uint_eq(settles_ms(rig, 0, 0, 'y'), 0);
    sent = pass(rig, 0, 2000);
    ck_assert_uint_eq(sent.infos, 0);
    srig_history(rig, "master", 's', 'z', 'y');
    reconnect(rig, 0);
    ck_assert_uint_eq(settles_ms(rig, 0, 0, 'z'), 0);
    sent = pass(rig, 0, 2990);
    ck_assert_uint_eq(sent.gets + sent.sets + sent.infos, 0);
    sent = pass(rig, 0, 10);
    ck_assert_uint_eq(sent.sets, 1);
    ck_assert_mem_eq(rig->marker, S40 " zzzz", 45);
    ck_assert_uint_eq(srig_count(rig, COUNTER_redis_unsettled), 0);
    ck_assert_uint_eq(log_kept_count("settled"), 0);
}

/* Two nodes of a cluster; the first one has all slots, the other one says that
 * it is a `role`. */
static struct srig *
begin_pair(const char *role)
{
    struct srig *rig = srig_create(STORE_CLUSTER, 2);

    rig->settings.settle_us = SETTLE_MS * 1000;
    rig->map_count = 1;
    rig->map[0] = (struct srig_range){0, 16383, "10.0.0.1", 7000};
    srig_start(rig);
    srig_history(rig, "master", 'r', 'i', '0');
    srig_connect(rig, 0);
    srig_serve(rig, 0);
    srig_history(rig, role, 's', 'i', '0');
    srig_connect(rig, 1);
    srig_serve(rig, 1);
    srig_turn(rig);
    srig_history(rig, "master", 'r', 'i', '0');
    srig_serve(rig, 0);
    srig_history(rig, role, 's', 'i', '0');
    srig_serve(rig, 1);
    ck_assert(store_ready(rig->store));
    return rig;
}

/* A replica is told nothing and asked for nothing, but who it is. */
SRIG_TEST(replica, begin_pair("slave"))
{
    /* Were it given slots, it would be a replica still. */
    rig->map[0] = (struct srig_range){0, 16383, "10.0.0.1", 7001};
    rig->store->map_wanted = true;
    struct sent sent = pass(rig, 1, SETTLE_MS + 20000);
    ck_assert_ptr_eq(
        rig->store->nodes + rig->store->slots[0], rig->store->nodes + 1);
    ck_assert_uint_eq(sent.gets + sent.sets, 0);
    ck_assert_uint_ge(sent.infos, 8);
    /* Promoted: its history is another one, and it is asked. */
    uint64_t unsettled = srig_count(rig, COUNTER_redis_unsettled);
    srig_history(rig, "master", 's', 'y', 'i');
    sent = pass(rig, 1, 7000);
    ck_assert_uint_ge(sent.gets, 3);
    ck_assert_uint_eq(sent.sets, 0);
    /* The other one has heard that from the rig, too. */
    ck_assert_uint_eq(srig_count(rig, COUNTER_redis_unsettled), unsettled + 2);
    ck_assert_uint_gt(settles_ms(rig, 1, 5, 'y'), 0);
    sent = pass(rig, 1, SETTLE_MS);
    ck_assert_uint_eq(sent.sets, 1);
    /* And a replica again. */
    srig_history(rig, "slave", 's', 'z', 'y');
    (void)pass(rig, 1, 3100);
    sent = pass(rig, 1, SETTLE_MS + 5000);
    ck_assert_uint_eq(sent.gets + sent.sets, 0);
}

static uint16_t
slot_of_marker(const struct sent *sent)
{
    ck_assert_int_eq(strncmp(sent->key, "holdfast:settled:{", 18), 0);
    ck_assert_int_eq(sent->key[strlen(sent->key) - 1], '}');
    return slot_of_key(text_from(sent->key));
}

/* Two masters, each with half of the slots, both settled. */
static struct srig *
begin_halves(void)
{
    struct srig *rig = srig_create(STORE_CLUSTER, 2);

    rig->settings.settle_us = SETTLE_MS * 1000;
    srig_history(rig, "master", 'r', 'i', '0');
    rig->map_count = 2;
    rig->map[0] = (struct srig_range){0, 8191, "10.0.0.1", 7000};
    rig->map[1] = (struct srig_range){8192, 16383, "10.0.0.1", 7001};
    srig_start(rig);
    srig_settle(rig);
    (void)pass(rig, 0, SETTLE_MS + 5000);
    ck_assert_uint_eq(settles_ms(rig, 0, 0, 'i'), 0);
    ck_assert_uint_eq(settles_ms(rig, 1, 9000, 'i'), 0);
    ck_assert_mem_eq(rig->marker, R40 " " I40, 81);
    return rig;
}

/* The node comes back as another process. */
static void
replace(struct srig *rig, uint32_t link, char run, char id)
{
    srig_history(rig, "master", run, id, '0');
    reconnect(rig, link);
    srig_serve(rig, link);
}

/* A slot goes from a master that may have lost something to another master. The
 * other one is not settled then, whatever the marker says, and however long it
 * was to wait before. */
SRIG_TEST(slots_of_one_that_is_gone, begin_halves())
{
    bool back = _i % 2 == 1; /* and not what it was */
    bool doubted = _i >= 2;  /* the new master of the slot has changed itself */
    char id = doubted ? 'j' : 'i';

    if (doubted) {
        replace(rig, 1, 's', 'j');
        (void)pass(rig, 1, SETTLE_MS - 1000);
        ck_assert_uint_le(settles_ms(rig, 1, 9000, id), 1000);
        ck_assert_uint_gt(settles_ms(rig, 1, 9000, id), 0);
    }
    if (back) {
        replace(rig, 0, 't', 'k');
        srig_history(rig, "master", doubted ? 's' : 'r', id, '0');
    } else {
        rig->conns[0].silent = true;
        srig_lose(rig, 0);
    }
    rig->map[0].last = 4;
    rig->map[1].first = 5;
    rig->store->map_wanted = true;
    uint64_t from_us = rig->now_us;
    while (rig->store->slots[5] != 1 && rig->now_us < from_us + 3000000)
        (void)pass(rig, 1, 20);
    ck_assert_uint_eq(rig->store->slots[5], 1);
    uint32_t ms = settles_ms(rig, 1, 5, id);
    ck_assert_uint_ge(ms, SETTLE_MS - 100);
    ck_assert_uint_le(ms, SETTLE_MS);
    ck_assert_uint_eq(settles_ms(rig, 1, 9000, id), ms);
    snprintf(rig->marker, sizeof(rig->marker), "%s",
        doubted ? S40 " " J40 : R40 " " I40);
    struct sent sent = pass(rig, 1, 3000);
    ck_assert_uint_ge(sent.gets, 2);
    ck_assert_uint_eq(settles_ms(rig, 1, 5, id), ms - 3000);
    uint64_t over_us = rig->store->conns[1].history.since_us + SETTLE_MS * 1000;
    if (doubted && !back) { /* it was well: that is no reason of this one's */
        rig->conns[0].silent = false;
        replace(rig, 0, 'r', 'j');
        srig_history(rig, "master", 's', 'j', '0');
        (void)pass(rig, 1, 100);
        ck_assert(rig->store->conns[0].history.state == HISTORY_SETTLED);
        ms = settles_ms(rig, 1, 5, id);
        ck_assert_uint_eq(ms, (over_us - rig->now_us) / 1000);
    }
    (void)pass(rig, 1, (over_us - rig->now_us + 999) / 1000);
    ck_assert_uint_eq(settles_ms(rig, 1, 5, id), 0);
}

/* Of one that is there, and settled, they may be had at once. */
SRIG_TEST(slots_of_one_that_is_well, begin_halves())
{
    rig->map[0].last = 4;
    rig->map[1].first = 5;
    rig->store->map_wanted = true;
    (void)pass(rig, 1, 3000);
    ck_assert_uint_eq(settles_ms(rig, 1, 5, 'i'), 0);
}

/* An idle node is asked also while it has to tell the map again and again, as
 * another one is away. */
SRIG_TEST(asked_beside_maps, begin_halves())
{
    uint64_t maps = srig_count(rig, COUNTER_redis_map_refreshes);

    rig->conns[1].silent = true;
    srig_lose(rig, 1);
    struct sent sent = pass(rig, 0, 10000);
    ck_assert_uint_ge(srig_count(rig, COUNTER_redis_map_refreshes) - maps, 5);
    ck_assert_uint_ge(sent.infos, 3);
    ck_assert_uint_ge(sent.times, 3);
}

/* Nor is it less idle for messages, or marks of audits: their answers say
 * nothing of what it is. */
SRIG_TEST(asked_beside_what_says_nothing, begin_halves())
{
    uint32_t infos = 0;
    uint32_t times = 0;

    (void)pass(rig, 0, 10);
    for (unsigned i = 0; i < 20; i++) {
        struct op *op = srig_draft(rig, _i == 0 ? OP_PUBLISH : OP_AUDIT, 0);
        if (_i == 1)
            op->audit->mark_ms = 1000;
        srig_submit(rig, op);
        struct sent sent = pass(rig, 0, 500);
        infos += sent.infos;
        times += sent.times;
        ck_assert(srig_done(rig, op));
    }
    ck_assert_uint_ge(infos, 3);
    ck_assert_uint_ge(times, 3);
}

static void
map_again(struct srig *rig, uint16_t slot, uint16_t node)
{
    rig->store->map_wanted = true;
    for (unsigned i = 0; rig->store->slots[slot] != node && i < 300; i++)
        (void)pass(rig, 1, 20);
    ck_assert_uint_eq(rig->store->slots[slot], node);
}

/* A slot that was nobody's in between may have been assigned without its
 * locks, but where it is back at the same node. */
SRIG_TEST(slots_of_nobody, begin_halves())
{
    uint16_t node = (uint16_t)_i;

    rig->map[0].first = 6;
    map_again(rig, 5, NODE_NONE);
    (void)pass(rig, 1, 100);
    rig->map_count = 3;
    rig->map[2] = (struct srig_range){0, 5, "10.0.0.1", 7000 + node};
    map_again(rig, 5, node);
    uint32_t ms = settles_ms(rig, node, 5, 'i');
    ck_assert_uint_ge(ms, node == 0 ? 0 : SETTLE_MS - 100);
    ck_assert_uint_le(ms, node == 0 ? 0 : SETTLE_MS);
    (void)pass(rig, 1, ms);
    ck_assert_uint_eq(settles_ms(rig, node, 5, 'i'), 0);
}

/* Nor is it back at the node that has the place of one that was forgotten. */
SRIG_TEST(slots_of_one_that_was_forgotten, begin_halves())
{
    rig->map_count = 3;
    rig->map[0].first = 6;
    rig->map[2] = (struct srig_range){0, 5, "10.0.0.1", 7002};
    map_again(rig, 5, 2);
    (void)pass(rig, 1, SETTLE_MS + 5000);
    rig->map[2] = (struct srig_range){0, 0, "10.0.0.1", 7001};
    map_again(rig, 5, NODE_NONE);
    for (unsigned i = 0; rig->store->nodes[2].used && i < 300; i++) {
        rig->store->map_wanted = true;
        (void)pass(rig, 1, 20);
    }
    rig->map[2] = (struct srig_range){0, 0, "10.0.0.1", 7003};
    map_again(rig, 0, 2);
    ck_assert_uint_eq(rig->store->nodes[2].address.port, 7003);
    (void)pass(rig, 1, SETTLE_MS + 5000);
    ck_assert_uint_eq(settles_ms(rig, 2, 0, 'i'), 0);
    rig->map[2].last = 5;
    map_again(rig, 5, 2);
    ck_assert_uint_ge(settles_ms(rig, 2, 5, 'i'), SETTLE_MS - 100);
}

/* The role of the node that the slot has left. */
enum source {
    SOURCE_WELL,
    SOURCE_FOLLOWS, /* the one that has it now: that was its last slot */
    SOURCE_TWICE,   /* it was about to say it when the slot went */
    SOURCE_PROBED,  /* likewise, for it had long been idle */
    SOURCE_HINTS,   /* and another connection to it is made before */
    SOURCE_CHANGED,
    SOURCE_DEMOTED, /* it follows another one */
    SOURCE_REFUSES,
    SOURCE_LOST,
    SOURCE_BACK, /* its connection was lost, and is there again */
    SOURCE_LOST_BEFORE,
    SOURCE_OTHERS, /* and what has the slot has another history itself now */
    SOURCE_PROBED_BEFORE, /* it changed after SOURCE_PROBED's first answer */
    SOURCE_COUNT
};

static void
follows(struct srig *rig, unsigned port)
{
    srig_history(rig, "slave", 'r', 'i', '0');
    size_t used = strlen(rig->history);
    snprintf(rig->history + used, sizeof(rig->history) - used,
        "master_host:10.0.0.1\r\nmaster_port:%u\r\n", port);
}

/* The old node is asked what it is, and until it has said so, nothing of the
 * new one. */
static void
source_says(struct srig *rig, enum source source)
{
    struct sent sent = {0};

    if (source == SOURCE_HINTS) {
        ck_assert_uint_eq(rig->store->conns[CONN_SUBSCRIBER].node, 0);
        reconnect(rig, CONN_SUBSCRIBER);
    }
    answer(rig, 1, &sent);
    while (strcmp(srig_next(rig, 0), "INFO replication") != 0) {
        ck_assert_msg(rig->word_count > 0, "it is not asked");
        srig_answer(rig, 0);
    }
    if (source == SOURCE_FOLLOWS)
        follows(rig, 7001);
    else if (source == SOURCE_DEMOTED)
        follows(rig, 7002);
    else if (source == SOURCE_CHANGED)
        srig_history(rig, "master", 'r', 'j', 'i');
    if (source == SOURCE_REFUSES)
        srig_error(rig, 0, "LOADING");
    else if (source == SOURCE_LOST || source == SOURCE_OTHERS)
        srig_lose(rig, 0);
    else if (source == SOURCE_BACK)
        reconnect(rig, 0);
    else
        srig_answer(rig, 0);
    if (source == SOURCE_OTHERS) {
        srig_history(rig, "master", 'r', 'k', 'i');
        rig->store->conns[1].history.ids_wanted = true;
        srig_turn(rig);
        srig_serve(rig, 1);
    }
    srig_history(rig, "master", 'r', 'i', '0');
    srig_turn(rig);
    bool older = source == SOURCE_TWICE || source == SOURCE_PROBED ||
                 source == SOURCE_PROBED_BEFORE;
    if (older)
        ck_assert(history_awaits(&rig->store->conns[1]));
    if (history_awaits(&rig->store->conns[1])) /* or more slots have moved */
        source_says(
            rig, source == SOURCE_PROBED_BEFORE ? SOURCE_CHANGED : SOURCE_WELL);
}

/* The same as it moves: where the key is not there, it may have been lost. */
START_TEST(slots_on_their_way)
{
    static const char *const errors[] = {
        "ASK 5 10.0.0.1:7001", "MOVED 5 10.0.0.1:7001"};
    enum source source = (enum source)(_i / 2);
    struct srig *rig = begin_halves();
    struct sent sent = {0};

    if (source == SOURCE_LOST_BEFORE) {
        srig_history(rig, "master", 's', 'j', '0');
        reconnect(rig, 0);
        srig_serve(rig, 0);
        srig_history(rig, "master", 'r', 'i', '0');
    }
    srig_turn(rig);
    answer(rig, 0, &sent);
    rig->map[0].last = 4;
    rig->map[1].first = 5;
    struct op *op = srig_op(rig, OP_ACQUIRE, 5);
    srig_sends(rig, 0, "EVALSHA 1");
    if (source == SOURCE_TWICE) {
        rig->store->conns[0].history.ids_wanted = true;
        history_tick(rig->store, &rig->store->conns[0], rig->now_us);
    }
    if (source == SOURCE_PROBED || source == SOURCE_PROBED_BEFORE)
        (void)conn_ask_ids(rig->store, &rig->store->conns[0], rig->now_us);
    srig_error(rig, 0, errors[_i % 2]);
    srig_turn(rig);
    if (source != SOURCE_LOST_BEFORE)
        source_says(rig, source);
    const char *next = srig_next(rig, 1);
    for (; next[0] != 'E'; next = srig_next(rig, 1))
        srig_answer(rig, 1); /* ASKING, and what begins with a map */
    uint32_t ms = get4(rig->words[4].at + 80);
    srig_results(rig, 1, 1, RECORD_OK);
    srig_status(rig, op, OP_OK);
    if (source < SOURCE_CHANGED)
        ck_assert_uint_eq(ms, 0);
    else
        ck_assert_uint_ge(ms, SETTLE_MS - 1);
    if (source == SOURCE_BACK) {
        (void)pass(rig, 1, 50);
        ck_assert_uint_eq(settles_ms(rig, 1, 5, 'i'), 0);
    }
    srig_end(rig);
}

END_TEST

/* The slot goes while its master is greeted: what that says is older. */
SRIG_TEST(slots_of_one_that_is_greeted, begin_halves())
{
    const struct conn *conn = &rig->store->conns[1];
    struct sent sent = {0};

    srig_lose(rig, 0);
    while (!rig->conns[0].connecting)
        srig_pass(rig, 1);
    srig_connect(rig, 0);
    srig_expect(rig, 0, "INFO");
    rig->map[0].last = 4;
    rig->map[1].first = 5;
    answer(rig, 1, &sent);
    while (rig->store->slots[5] != 1) {
        srig_pass(rig, 10);
        answer(rig, 1, &sent);
    }
    ck_assert(conn->history.state == HISTORY_GUESSED);
    srig_pass(rig, 500);
    if (_i == 1)
        srig_history(rig, "master", 's', 'j', '0');
    srig_bytes(rig, 0, rig->info, strlen(rig->info));
    ck_assert(conn->history.state == HISTORY_GUESSED);
    ck_assert(conn->history.state != HISTORY_SETTLED);
    unsigned turns = 0;
    while (strcmp(srig_next(rig, 0), "INFO replication") != 0) {
        if (rig->word_count > 0)
            srig_answer(rig, 0);
        ck_assert(conn->history.state == HISTORY_GUESSED);
        srig_turn(rig);
        ck_assert_uint_lt(turns++, 100);
    }
    srig_answer(rig, 0);
    srig_history(rig, "master", 'r', 'i', '0');
    ck_assert(conn->history.state != HISTORY_GUESSED);
    uint32_t ms = settles_ms(rig, 1, 5, 'i');
    ck_assert_uint_eq(ms, _i == 1 ? SETTLE_MS : 0);
}

/* Three masters, all settled, the last of which has the slots from 8192 on. */
static struct srig *
begin_thirds(void)
{
    struct srig *rig = srig_create(STORE_CLUSTER, 3);

    rig->settings.settle_us = SETTLE_MS * 1000;
    srig_history(rig, "master", 'r', 'i', '0');
    rig->map_count = 3;
    rig->map[0] = (struct srig_range){0, 99, "10.0.0.1", 7000};
    rig->map[1] = (struct srig_range){100, 8191, "10.0.0.1", 7001};
    rig->map[2] = (struct srig_range){8192, 16383, "10.0.0.1", 7002};
    srig_start(rig);
    srig_settle(rig);
    (void)pass(rig, 0, SETTLE_MS + 5000);
    for (uint32_t i = 0; i < 3; i++)
        ck_assert(rig->store->conns[i].history.state == HISTORY_SETTLED);
    return rig;
}

/* The wait for its first slot is over while the master of another slot has been
 * asked for its role: that answer counts. The master of its first slot still
 * says nothing, and need not. */
SRIG_TEST(slots_after_slots, begin_thirds())
{
    const struct conn *conn = &rig->store->conns[1];

    rig->conns[0].silent = true;
    srig_lose(rig, 0);
    rig->map[0].last = 49;
    rig->map[1].first = 50;
    rig->store->map_wanted = true;
    while (conn->history.state != HISTORY_GUESSED)
        (void)pass(rig, 1, 1);
    uint64_t over_us = conn->history.since_us + SETTLE_MS * 1000;
    (void)pass(rig, 1, (over_us - rig->now_us) / 1000 - 5);
    ck_assert(conn->history.state == HISTORY_GUESSED);
    ck_assert(rig->store->conns[2].history.state == HISTORY_SETTLED);
    (void)route_slot(rig->store, 9000, 1, rig->now_us);
    srig_sends(rig, 2, "INFO replication");
    ck_assert(!history_awaits(conn));
    rig->now_us = over_us;
    srig_turn(rig);
    ck_assert(conn->history.state == HISTORY_SETTLED);
    ck_assert(history_awaits(conn));
    if (_i == 1)
        srig_history(rig, "master", 'r', 'j', 'k');
    srig_bytes(rig, 2, rig->info, strlen(rig->info));
    srig_history(rig, "master", 'r', 'i', '0');
    ck_assert(!history_awaits(conn));
    uint32_t ms = settles_ms(rig, 1, 50, 'i');
    ck_assert_uint_eq(ms, _i == 1 ? SETTLE_MS : 0);
    ck_assert_uint_eq(settles_ms(rig, 1, 9000, 'i'), ms);
}

/* There is no room for the question: it is a guess until somebody can say. */
SRIG_TEST(slots_of_one_that_cannot_be_asked, begin_halves())
{
    const struct conn *conn = &rig->store->conns[1];
    struct buffer *out = &rig->store->conns[0].out;
    struct sent sent = {0};

    srig_turn(rig);
    answer(rig, 0, &sent);
    answer(rig, 1, &sent);
    (void)route_slot(rig->store, 5, 1, rig->now_us);
    ck_assert(history_awaits(conn));
    ck_assert_uint_eq(buffer_len(out), 0);
    ck_assert_ptr_nonnull(buffer_reserve(out, CONN_OUT_BYTES));
    buffer_commit(out, CONN_OUT_BYTES);
    srig_turn(rig);
    ck_assert(!history_awaits(conn));
    ck_assert(conn->history.state == HISTORY_GUESSED);
    buffer_clear(out);
    uint32_t ms = settles_ms(rig, 1, 5, 'i');
    ck_assert_uint_ge(ms, SETTLE_MS - 1);
    ck_assert_uint_le(ms, SETTLE_MS);
    (void)pass(rig, 0, 4000); /* it is asked when it has been idle */
    ck_assert_uint_eq(settles_ms(rig, 1, 5, 'i'), 0);
}

/* A key that the node has, whatever else it has. */
SRIG_TEST(cluster_keys, srig_create(STORE_CLUSTER, 3))
{
    static const uint16_t lowest[] = {0, 5000, 10000};

    rig->settings.settle_us = SETTLE_MS * 1000;
    srig_history(rig, "master", 'r', 'i', '0');
    for (unsigned i = 0; i < 3; i++)
        rig->map[i] = (struct srig_range){
            lowest[i], i == 2 ? 16383 : lowest[i] + 4999, "10.0.0.1", 7000 + i};
    rig->map_count = 3;
    srig_start(rig);
    srig_settle(rig);
    ck_assert_uint_eq(srig_count(rig, COUNTER_redis_unsettled), 3);
    for (uint32_t i = 0; i < 3; i++) {
        struct sent sent = pass(rig, i, 1000);
        ck_assert_uint_ge(sent.gets, 1);
        ck_assert_uint_eq(slot_of_marker(&sent), lowest[i]);
        ck_assert_uint_gt(settles_ms(rig, i, lowest[i], 'i'), 0);
    }
    /* The second one loses all, and the first one its first: only a lower slot
     * that is its own counts, be it alone. */
    rig->map[0] = (struct srig_range){7, 7, "10.0.0.1", 7000};
    rig->map[1] = (struct srig_range){9000, 16383, "10.0.0.1", 7002};
    rig->map[2] = (struct srig_range){8, 8999, "10.0.0.1", 7000};
    rig->map[3] = (struct srig_range){0, 6, "10.0.0.1", 7002};
    rig->map_count = 4;
    rig->store->map_wanted = true;
    (void)pass(rig, 0, 1000);
    struct sent sent = pass(rig, 0, 1000);
    ck_assert_uint_eq(slot_of_marker(&sent), 7);
    sent = pass(rig, 1, 1000);
    ck_assert_uint_eq(sent.gets + sent.sets, 0);
    sent = pass(rig, 2, SETTLE_MS);
    ck_assert_uint_eq(sent.sets, 1);
    ck_assert_uint_eq(slot_of_marker(&sent), 0);
    /* Slots that come later are as good as those from the start. */
    rig->map[2].port = 7001;
    rig->store->map_wanted = true;
    sent = pass(rig, 1, 2000);
    ck_assert_uint_eq(sent.sets, 1);
    ck_assert_uint_eq(slot_of_marker(&sent), 8);
}

/* Every tag that there may be is of its slot, and the key has room. */
SRIG_TEST(cluster_tags, srig_create(STORE_CLUSTER, 1))
{
    struct sent sent = {0};

    memset(rig->settings.key_prefix, 'p', 32);
    rig->settings.settle_us = SETTLE_MS * 1000;
    srig_history(rig, "master", 'r', 'i', '0');
    rig->map_count = 1;
    rig->map[0] = (struct srig_range){0, 16383, "10.0.0.1", 7000};
    srig_start(rig);
    srig_settle(rig);
    for (unsigned slot = 0; slot < SLOT_COUNT; slot += 97) {
        for (unsigned i = 0; i < SLOT_COUNT; i++)
            rig->store->slots[i] = i < slot ? NODE_NONE : 0;
        rig->store->conns[0].history.mark_us = 0;
        srig_turn(rig);
        sent.key[0] = '\0';
        answer(rig, 0, &sent);
        ck_assert_int_eq(strncmp(sent.key + 32, ":settled:{", 10), 0);
        ck_assert_uint_eq(slot_of_key(text_from(sent.key)), slot);
    }
}

/* A master that has become a replica was replaced: who it is by is asked, also
 * where there is nothing to ask it for. */
SRIG_TEST(replaced_master, srig_create(STORE_CLUSTER, 1))
{
    rig->settings.settle_us = SETTLE_MS * 1000;
    srig_history(rig, "master", 'r', 'i', '0');
    rig->map_count = 1;
    rig->map[0] = (struct srig_range){0, 16383, "10.0.0.1", 7000};
    srig_start(rig);
    srig_settle(rig);
    struct sent sent = pass(rig, 0, 10000);
    ck_assert_uint_ge(sent.infos, 2);
    ck_assert_uint_eq(sent.others, 0);
    srig_history(rig, "slave", 'r', 'i', '0');
    rig->map[0].port = 7001;
    sent = pass(rig, 0, 3200);
    ck_assert_uint_eq(sent.others, 1);
    ck_assert_uint_eq(rig->store->slots[0], 1);
}

/* Only where operations go, histories matter. */
/* Why a node cannot be worked with is said once in a while, and anew where it
 * could be meanwhile. */
SRIG_TEST(unfit, begin(SETTLE_MS, ""))
{
    static const char loading[] = "redis_version:7.0.1\r\nloading:1\r\n";
    const char *fit = rig->info;

    rig->conns[CONN_SUBSCRIBER].silent = true; /* it would say so, too */
    for (unsigned time = 1; time < 3; time++) {
        rig->info = loading;
        srig_lose(rig, 0);
        for (int i = 0; i < 10; i++)
            srig_settle(rig);
        ck_assert(!store_ready(rig->store));
        ck_assert_uint_eq(log_kept_count("redis_unfit"), time);
        rig->info = fit;
        for (int i = 0; i < 20 && !store_ready(rig->store); i++)
            srig_settle(rig);
        ck_assert(store_ready(rig->store));
    }
    rig->info = loading;
    srig_lose(rig, 0);
    for (int i = 0; i < 150; i++)
        srig_settle(rig);
    ck_assert_uint_eq(log_kept_count("redis_unfit"), 4);
}

SRIG_TEST(other_conns, srig_create(STORE_SENTINEL, 3))
{
    uint32_t data = NODE_NONE;

    rig->settings.settle_us = SETTLE_MS * 1000;
    srig_history(rig, "master", 'r', 'i', '0');
    srig_start(rig);
    srig_settle(rig);
    ck_assert(store_ready(rig->store));
    data = rig->store->master;
    for (uint32_t i = 0; i < CONN_COUNT; i++) {
        if (!rig->conns[i].open || i == data)
            continue;
        struct sent sent = pass(rig, i, 7000);
        ck_assert_uint_eq(sent.gets + sent.sets + sent.infos + sent.times, 0);
        ck_assert_uint_gt(sent.others, 0);
    }
    ck_assert_uint_eq(srig_count(rig, COUNTER_redis_unsettled), 1);
    ck_assert_uint_eq(settles_ms(rig, data, 0, 'i'), 0);
    /* The subscriber at another process: not of any weight. */
    srig_history(rig, "master", 's', 'y', 'i');
    reconnect(rig, CONN_SUBSCRIBER);
    ck_assert_uint_eq(srig_count(rig, COUNTER_redis_unsettled), 1);
    srig_history(rig, "master", 'r', 'i', '0');
    ck_assert_uint_eq(settles_ms(rig, data, 0, 'i'), 0);
    struct sent sent = pass(rig, CONN_SUBSCRIBER, 10000);
    ck_assert_uint_eq(sent.gets + sent.sets + sent.infos + sent.times, 0);
}

/* Nothing was done: the same again, in the next turn. */
SRIG_TEST(again_at_once, begin(SETTLE_MS, R40 " " I40))
{
    static const enum record_status statuses[] = {RECORD_CHANGED, RECORD_LATE};

    static const enum op_kind kinds[] = {
        OP_ACQUIRE, OP_RENEW, OP_RECLAIM, OP_RELEASE};

    (void)pass(rig, 0, 2000);
    for (int i = 0; i < 8; i++) {
        struct op *op = srig_op(rig, kinds[i / 2], 0);
        op->no_queue = i % 4 > 1;
        srig_sends(rig, 0, "EVALSHA 1");
        srig_results(rig, 0, 1, statuses[i % 2]);
        ck_assert(!srig_done(rig, op));
        srig_sends(rig, 0, "EVALSHA 1");
        ck_assert_uint_eq(
            srig_count(rig, COUNTER_redis_late), (unsigned)(i + 1) / 2);
        srig_results(rig, 0, 1, RECORD_WAITING);
        srig_status(rig, op, OP_WAITING);
    }
    ck_assert_uint_eq(srig_count(rig, COUNTER_redis_retries), 8);
}

/* By then it is known who is there. */
SRIG_TEST(changed_is_found_out, begin(SETTLE_MS, R40 " " I40))
{
    (void)pass(rig, 0, 2000);
    srig_history(rig, "master", 'r', 'y', 'i');
    struct op *op = srig_op(rig, OP_RENEW, 0);
    srig_sends(rig, 0, "EVALSHA 1");
    srig_results(rig, 0, 1, RECORD_CHANGED);
    srig_turn(rig);
    srig_exchange(rig, 0, "INFO replication");
    srig_expect(rig, 0, "");
    srig_turn(rig);
    srig_exchange(rig, 0, "GET holdfast:settled");
    srig_expect(rig, 0, "EVALSHA 1");
    token(rig, 'y');
    ck_assert_uint_eq(get4(rig->words[4].at + 80), SETTLE_MS);
    srig_results(rig, 0, 1, RECORD_MISSING);
    srig_status(rig, op, OP_MISSING);
    srig_sends(rig, 0, "");
}

/* For ever: no storm, and an end. */
SRIG_TEST(changed_for_ever, begin(SETTLE_MS, R40 " " I40))
{
    struct op *op = srig_op(rig, OP_RECLAIM, 0);
    unsigned calls = 0;

    while (!srig_done(rig, op)) {
        srig_turn(rig);
        while (srig_next(rig, 0)[0] != '\0') {
            bool call = rig->words[0].at[0] == 'E';
            calls += call;
            if (call)
                srig_results(rig, 0, 1, RECORD_CHANGED);
            else
                srig_answer(rig, 0);
        }
        rig->now_us += 5000;
        ck_assert_uint_le(rig->now_us, op->deadline_us + 20000);
    }
    srig_status(rig, op, OP_UNSENT);
    ck_assert_uint_ge(rig->now_us, op->deadline_us);
    ck_assert_uint_gt(calls, 100);
    ck_assert_uint_lt(calls, 600);
}

/* Answers a call on one lock with that status, and when to ask again. */
static void
reply_again(struct srig *rig, enum record_status status, uint32_t again_ms)
{
    char bytes[200];

    size_t len = srig_encode(rig, bytes, 1, status);
    memcpy(bytes + 48 + 30, &again_ms, sizeof(again_ms));
    srig_bytes(rig, 0, bytes, len);
}

/* Not before this broker is settled: it waits here, where it may. */
SRIG_TEST(grace, begin(SETTLE_MS, R40 " " I40))
{
    (void)pass(rig, 0, 2000);
    for (unsigned i = 0; i < 20; i++) {
        struct op *op = srig_op(rig, OP_ACQUIRE, 0);
        srig_sends(rig, 0, "EVALSHA 1");
        uint64_t asked_us = rig->now_us;
        reply_again(rig, RECORD_GRACE, 200);
        ck_assert(!srig_done(rig, op));
        srig_pass(rig, 199);
        ck_assert_str_eq(srig_next(rig, 0), "");
        while (srig_next(rig, 0)[0] != 'E') {
            if (rig->word_count > 0)
                srig_answer(rig, 0);
            srig_pass(rig, 1);
        }
        ck_assert_uint_ge(rig->now_us - asked_us, 200000);
        ck_assert_uint_le(rig->now_us - asked_us, 303000);
        srig_results(rig, 0, 1, RECORD_OK);
        srig_status(rig, op, OP_OK);
        ck_assert_uint_eq(op->result.again_ms, 400);
    }
}

/* Another broker is settled first, and its marker ends the grace. */
SRIG_TEST(grace_ends_early, begin(SETTLE_MS, ""))
{
    (void)srig_op(rig, OP_ACQUIRE, 0);
    srig_sends(rig, 0, "GET holdfast:settled");
    srig_answer(rig, 0);
    srig_expect(rig, 0, "EVALSHA 1");
    reply_again(rig, RECORD_GRACE, SETTLE_MS);
    srig_pass(rig, 900);
    ck_assert_str_eq(srig_next(rig, 0), "");
    snprintf(rig->marker, sizeof(rig->marker), "%s", R40 " " I40);
    srig_pass(rig, 101);
    srig_exchange(rig, 0, "GET holdfast:settled");
    srig_turn(rig);
    srig_pass(rig, 52);
    srig_expect(rig, 0, "EVALSHA 1");
}

/* Its own broker decides, where it does not want to wait. */
SRIG_TEST(grace_without_queue, begin(SETTLE_MS, R40 " " I40))
{
    struct op *op = srig_op(rig, OP_ACQUIRE, 0);

    op->no_queue = true;
    (void)srig_turn(rig);
    srig_exchange(rig, 0, "GET holdfast:settled");
    srig_expect(rig, 0, "EVALSHA 1");
    reply_again(rig, RECORD_GRACE, 77);
    srig_status(rig, op, OP_UNSETTLED);
    ck_assert_uint_eq(op->result.again_ms, 77);
    ck_assert_uint_eq(srig_count(rig, COUNTER_redis_retries), 0);
    (void)pass(rig, 0, 1000);
    ck_assert_uint_eq(rig->done_count, 1);
}

/* The end of its own patience, or grace: whichever is sooner. */
SRIG_TEST(grace_given_up, begin(SETTLE_MS, R40 " " I40))
{
    (void)pass(rig, 0, 2000);
    struct op *op = srig_op(rig, OP_ACQUIRE, 0);
    op->deadline_us = rig->now_us + 100000;
    srig_sends(rig, 0, "EVALSHA 1");
    uint64_t asked_us = rig->now_us;
    reply_again(rig, RECORD_GRACE, 200);
    srig_pass(rig, 99);
    ck_assert(!srig_done(rig, op));
    srig_pass(rig, 3);
    srig_status(rig, op, OP_UNSETTLED);
    ck_assert_uint_le(rig->now_us - asked_us, 103000);
    ck_assert_uint_ge(op->result.again_ms, 97);
    ck_assert_uint_le(op->result.again_ms, 100);
    /* Nobody waits for it any more. */
    op = srig_op(rig, OP_ACQUIRE, 0);
    srig_sends(rig, 0, "EVALSHA 1");
    reply_again(rig, RECORD_GRACE, 200);
    ck_assert(!srig_done(rig, op));
    srig_hurry(rig, op);
    srig_pass(rig, 3);
    srig_status(rig, op, OP_UNSETTLED);
    ck_assert_uint_ge(op->result.again_ms, 190);
    /* Again 0 ms: at once, but no storm. */
    (void)srig_op(rig, OP_ACQUIRE, 0);
    unsigned calls = 0;
    for (int i = 0; i < 100; i++) {
        srig_turn(rig);
        while (srig_next(rig, 0)[0] == 'E') {
            reply_again(rig, RECORD_GRACE, 0);
            calls++;
        }
    }
    ck_assert_uint_ge(calls, 1);
    ck_assert_uint_le(calls, 6);
}

/* A new map is no reason to ask sooner. */
SRIG_TEST(grace_and_map, srig_cluster())
{
    struct op *op = srig_op(rig, OP_ACQUIRE, 0);

    srig_sends(rig, 0, "EVALSHA 1");
    srig_results(rig, 0, 1, RECORD_GRACE);
    uint64_t asked_us = rig->now_us;
    rig->store->map_wanted = true;
    (void)pass(rig, 0, 390); /* none is a script call */
    ck_assert(!srig_done(rig, op));
    while (srig_next(rig, 0)[0] != 'E') {
        if (rig->word_count > 0)
            srig_answer(rig, 0);
        srig_pass(rig, 1);
    }
    ck_assert_uint_ge(rig->now_us - asked_us, 400000);
}

/* A waiter that waits for that; and the other flags of the byte. */
SRIG_TEST(unsettled_flag, begin(SETTLE_MS, R40 " " I40))
{
    char bytes[200];

    (void)pass(rig, 0, 2000);
    for (int flags = 0; flags < 8; flags++) {
        struct op *op = srig_op(rig, OP_ACQUIRE, 0);
        srig_sends(rig, 0, "EVALSHA 1");
        size_t len = srig_encode(rig, bytes, 1, RECORD_WAITING);
        bytes[48 + 1] = (char)flags;
        srig_bytes(rig, 0, bytes, len);
        srig_status(rig, op, OP_WAITING);
        ck_assert_int_eq(op->result.handed, (flags & 1) != 0);
        ck_assert_int_eq(op->result.more, (flags & 2) != 0);
        ck_assert_int_eq(op->result.unsettled, (flags & 4) != 0);
    }

    /* And what is told of by no means. */
    static const enum op_kind kinds[] = {OP_RENEW, OP_RECLAIM, OP_ACQUIRE};

    for (int i = 0; i < 3; i++) {
        struct op *op = srig_op(rig, kinds[i], 0);
        srig_sends(rig, 0, "EVALSHA 1");
        srig_results(rig, 0, 1, RECORD_MISSING);
        srig_status(rig, op, OP_MISSING);
    }
}

static char *
put_double(char *at, double number)
{
    memcpy(at, &number, sizeof(number));
    return at + sizeof(number);
}

/* An operation with something in every field. */
static struct op *
full_op(struct srig *rig, enum op_kind kind)
{
    struct op *op = srig_op(rig, kind, 0);

    op->generation = 0x01020304;
    for (int i = 0; i < 16; i++)
        op->session[i] = (uint8_t)(0x10 + i);
    for (int i = 0; i < 8; i++)
        op->owner_hash[i] = (uint8_t)(0x30 + i);
    op->request = 0x1112131415161718;
    op->moves = true;
    op->ask = (struct ask){.mode = MODE_SHARED,
        .permits = 3,
        .permits_max = 9,
        .delay_ms = 2500,
        .hold_ms = 123456};
    op->lease_ms = 30000;
    op->seen = 70;
    op->arrival = 51;
    op->fence = 52;
    op->place = 99; /* not said */
    op->hard_end_us = rig->now_us + 7654321;
    op->words[0] = TEXT("own");
    op->words[1] = TEXT("");
    op->words[2] = TEXT("a note");
    return op;
}

/* The expected argument, without the parts that the test does not know. */
static size_t
reclaim_bytes(const struct srig *rig, char *out, double hold)
{
    char *at = srig_put(out, 0x01020304, 4);

    for (unsigned i = 0; i < 16; i++)
        at = srig_put(at, 0x10 + i, 1);
    for (unsigned i = 0; i < 8; i++)
        at = srig_put(at, 0x30 + i, 1);
    at = srig_put(at, 0x1112131415161718, 8);
    at = srig_put(at, 16 + 4, 1); /* it stood there; it moves */
    at = srig_put(at, 1, 1);
    at = srig_put(at, 12, 2);
    at = srig_put(at, 3, 4);
    at = srig_put(at, 9, 4);
    at = srig_put(at, 30000, 4);
    at = srig_put(at, 2500, 4);
    at = put_double(at, hold);
    uint64_t latest_ms = 1700000000000 + rig->now_us / 1000 + 2000;
    at = put_double(at, (double)latest_ms);
    at = put_double(at, 70);
    at = put_double(at, 51);
    at = put_double(at, 52);
    memcpy(at, "\3own\0\6a note", 12);
    return (size_t)(at + 12 - out);
}

SRIG_TEST(reclaim, srig_single())
{
    char bytes[200];

    for (int i = 0; i < 5; i++) {
        static const double holds[] = {7654, 0, 1, 1, 2};
        const uint64_t ends_us[] = {rig->now_us + 7654321, WHEEL_NEVER,
            rig->now_us - 1, rig->now_us + 1500, rig->now_us + 2000};
        struct op *op = full_op(rig, OP_RECLAIM);
        op->hard_end_us = ends_us[i];
        srig_sends(rig, 0, "EVALSHA 1");
        ck_assert(text_equal(
            rig->words[1], text_make(scripts[SCRIPT_ACQUIRE].sha1, 40)));
        size_t len = reclaim_bytes(rig, bytes, holds[i]);
        ck_assert_uint_eq(rig->words[5].len, len);
        ck_assert_mem_eq(rig->words[5].at, bytes, len);
        srig_results(rig, 0, 1, RECORD_OK);
        srig_status(rig, op, OP_OK);
    }
    /* A waiter without words; its lease= has not begun. */
    struct op *op = srig_op(rig, OP_RECLAIM, 0);
    op->retry = op->no_queue = op->tell = true;
    op->ask.hold_ms = 5;
    op->arrival = 8;
    srig_sends(rig, 0, "EVALSHA 1");
    ck_assert_uint_eq(rig->words[5].len, 36 + 44 + 16);
    ck_assert_int_eq(rig->words[5].at[36], 1 + 2 + 8 + 16);
    put_double(bytes, 5);
    ck_assert_mem_eq(rig->words[5].at + 56, bytes, 8);
    ck_assert_mem_eq(rig->words[5].at + 88, "\0\0\0\0\0\0\0", 8);
    /* And an OP_ACQUIRE says what it asks for, and nothing of a past. */
    srig_results(rig, 0, 1, RECORD_WAITING);
    op = full_op(rig, OP_ACQUIRE);
    srig_sends(rig, 0, "EVALSHA 1");
    ck_assert_uint_eq(rig->words[5].len, 36 + 44 + 12);
    ck_assert_int_eq(rig->words[5].at[36], 4);
    put_double(bytes, 123456);
    ck_assert_mem_eq(rig->words[5].at + 56, bytes, 8);
    ck_assert_mem_eq(rig->words[5].at + 80, "\3own\0\6a note", 12);
    srig_results(rig, 0, 1, RECORD_WAITING);
    srig_status(rig, op, OP_WAITING);
}

static void
add_history_tests(TCase *tests)
{
    size_t count = sizeof(changes) / sizeof(changes[0]);

    tcase_add_test(tests, first_sight);
    tcase_add_test(tests, repeated_releases);
    tcase_add_test(tests, wakes_for_it);
    tcase_add_test(tests, same_process);
    tcase_add_loop_test(tests, change_at_a_greeting, 0, (int)count);
    tcase_add_loop_test(tests, change_while_idle, 0, (int)count);
    tcase_add_test(tests, benign_while_unsettled);
    tcase_add_test(tests, script_sees_another_id);
    tcase_add_test(tests, asks_once);
    tcase_add_test(tests, asks_again);
    tcase_add_loop_test(tests, overtaken_marker, 0, 2);
    tcase_add_test(tests, clock_beside_markers);
    tcase_add_loop_test(tests, nameless, 0, 4);
    tcase_add_test(tests, no_settling);
    tcase_add_test(tests, changed);
    tcase_add_test(tests, replica);
    tcase_add_test(tests, replaced_master);
    tcase_add_test(tests, unfit);
    tcase_add_test(tests, other_conns);
}

static void
add_marker_tests(TCase *tests)
{
    size_t count = sizeof(markers) / sizeof(markers[0]);

    tcase_add_test(tests, settled_by_marker);
    tcase_add_test(tests, marker_for_others);
    tcase_add_loop_test(tests, marker_of_others, 0, (int)count);
    tcase_add_test(tests, marker_of_garbage);
    tcase_add_test(tests, marker_again);
    tcase_add_test(tests, marker_refused);
    tcase_add_loop_test(tests, slots_of_one_that_is_gone, 0, 4);
    tcase_add_test(tests, slots_of_one_that_is_well);
    tcase_add_test(tests, asked_beside_maps);
    tcase_add_loop_test(tests, asked_beside_what_says_nothing, 0, 2);
    tcase_add_loop_test(tests, slots_of_nobody, 0, 2);
    tcase_add_test(tests, slots_of_one_that_was_forgotten);
    tcase_add_loop_test(tests, slots_on_their_way, 0, 2 * SOURCE_COUNT);
    tcase_add_loop_test(tests, slots_of_one_that_is_greeted, 0, 2);
    tcase_add_loop_test(tests, slots_after_slots, 0, 2);
    tcase_add_test(tests, slots_of_one_that_cannot_be_asked);
    tcase_add_test(tests, cluster_keys);
    tcase_add_test(tests, cluster_tags);
}

/* A call that is so many us on its way there, and back, when the node's clock
 * drifts; what the header says of clocks. */
static struct steadiness
asked_on_way(
    struct srig *rig, uint64_t there_us, uint64_t back_us, int64_t drift_us)
{
    struct sent sent = {0};

    srig_turn(rig);
    answer(rig, 0, &sent);
    struct op *op = srig_op(rig, OP_RENEW, 0);
    srig_sends(rig, 0, "EVALSHA 1");
    struct steadiness steadiness = {
        get4(rig->words[4].at + 84), get4(rig->words[4].at + 88)};
    rig->now_us += there_us;
    char bytes[200];
    size_t len = srig_encode(rig, bytes, 1, RECORD_OK);
    rig->now_us += back_us;
    rig->clock_us += drift_us;
    srig_bytes(rig, 0, bytes, len);
    srig_status(rig, op, OP_OK);
    return steadiness;
}

static struct steadiness
asked(struct srig *rig, uint64_t way_ms)
{
    return asked_on_way(rig, way_ms * 500, way_ms * 500, 0);
}

/* No clock is trusted before it has gone steadily for as long. */
SRIG_TEST(steady, begin(SETTLE_MS, R40 " " I40))
{
    (void)pass(rig, 0, 4000);
    ck_assert_uint_eq(asked(rig, 0).in_ms, SETTLE_MS - 4000 + 1);
    (void)pass(rig, 0, SETTLE_MS - 4000);
    ck_assert_uint_eq(asked(rig, 0).in_ms, 0);
    ck_assert_uint_eq(asked(rig, 0).within_us, SETTLE_MS * 10);
    ck_assert_uint_eq(srig_count(rig, COUNTER_redis_clock_steps), 0);
}

/* However small: a lease must not end sooner than its holder thinks. */
SRIG_TEST(steps, begin(SETTLE_MS, R40 " " I40))
{
    static const int64_t by_us[] = {3600000000, -3600000000, 30000, -30000};

    (void)pass(rig, 0, SETTLE_MS + 1000);
    ck_assert_uint_eq(asked(rig, 1).in_ms, 0);
    rig->clock_us += by_us[_i];
    if (_i % 2 == 0)
        (void)asked(rig, 1);
    else
        (void)pass(rig, 0, 3001); /* nobody has asked anything but TIME */
    ck_assert_uint_ge(asked(rig, 1).in_ms, SETTLE_MS - 3001);
    ck_assert_uint_eq(srig_count(rig, COUNTER_redis_clock_steps), 1);
    ck_assert_uint_eq(log_kept_count("redis_clock_stepped"), 1);
    (void)pass(rig, 0, SETTLE_MS);
    ck_assert_uint_eq(asked(rig, 1).in_ms, 0);
}

#define HOUR_US   UINT64_C(3600000000)
#define SECOND_US UINT64_C(1000000)

/* A clock that is set forward by more than a twelfth of a record's term may
 * have had Redis forget holds: the node is not settled, despite the marker. */
SRIG_TEST(leaps, begin(SETTLE_MS, R40 " " I40))
{
    static const struct {
        int64_t by_us;
        bool idle; /* nothing but TIME is asked meanwhile */
        bool leaps;
    } cases[] = {{9500000, false, false}, {9700000, false, true},
        {9700000, true, true}, {-3600000000, false, false}};

    (void)pass(rig, 0, 100);
    ck_assert_uint_eq(settles_ms(rig, 0, 0, 'i'), 0);
    (void)store_take_changed(rig->store);
    rig->clock_us += cases[_i].by_us;
    if (cases[_i].idle)
        (void)pass(rig, 0, 3001);
    else
        (void)asked(rig, 1);
    ck_assert_int_eq(settles_ms(rig, 0, 0, 'i') > 0, cases[_i].leaps);
    ck_assert_int_eq(store_take_changed(rig->store), cases[_i].leaps);
    (void)pass(rig, 0, SETTLE_MS - 3010);
    ck_assert_int_eq(settles_ms(rig, 0, 0, 'i') > 0, cases[_i].leaps);
    (void)pass(rig, 0, 3010);
    ck_assert_uint_eq(settles_ms(rig, 0, 0, 'i'), 0);
}

/* The fence clock as the next call tells it. */
static uint64_t
fence_clock(struct srig *rig)
{
    double clock;

    (void)settles_ms(rig, 0, 0, 'i');
    memcpy(&clock, rig->words[4].at + 12, sizeof(clock));
    return (uint64_t)clock;
}

/* It is the latest of all clocks, and goes on whatever is done to them. One
 * that is a day ahead of ours is not believed. */
SRIG_TEST(fence_clock_goes_on, begin(SETTLE_MS, R40 " " I40))
{
    uint64_t began_us = srig_time_us(rig);

    rig->clock_us += (int64_t)HOUR_US;
    (void)pass(rig, 0, 3001);
    rig->clock_us -= 2 * (int64_t)HOUR_US;
    (void)pass(rig, 0, 4000);
    uint64_t clock_us = fence_clock(rig);
    ck_assert_uint_ge(clock_us, began_us + HOUR_US + 6900000);
    ck_assert_uint_le(clock_us, began_us + HOUR_US + 7100000);
    (void)pass(rig, 0, 400000);
    ck_assert_uint_ge(fence_clock(rig), clock_us + 399 * SECOND_US - 1);
    ck_assert_uint_le(fence_clock(rig), clock_us + 400 * SECOND_US);
    clock_us = fence_clock(rig);
    rig->clock_us += 30 * (int64_t)HOUR_US;
    (void)pass(rig, 0, 4000);
    ck_assert_uint_le(fence_clock(rig), clock_us + 4 * SECOND_US);
}

/* By markers one broker has it from another, be that one's ids others, or this
 * one settled; and puts there again what it has overwritten. */
START_TEST(fence_clock_of_others)
{
    static const char *const ids[] = {R40 " " I40, S40 " " Y40};
    char marker[120];
    struct srig *rig = begin(SETTLE_MS, "");

    (void)pass(rig, 0, _i < 2 ? 0 : SETTLE_MS);
    uint64_t clock_us = srig_time_us(rig) + HOUR_US;
    snprintf(rig->marker, sizeof(rig->marker), "%s %llu", ids[_i % 2],
        (unsigned long long)clock_us);
    (void)pass(rig, 0, 12000);
    ck_assert_uint_ge(fence_clock(rig), clock_us);
    (void)pass(rig, 0, SETTLE_MS);
    snprintf(marker, sizeof(marker), "%s", rig->marker);
    ck_assert_uint_ge(strtoull(marker + 82, NULL, 10), clock_us);
    srig_end(rig);
}

END_TEST

/* Of something that came before the clock was set. */
static uint64_t
age_us(struct srig *rig, uint64_t since_us)
{
    (void)asked(rig, 1);
    return history_age_us(&rig->store->conns[0], since_us, srig_time_us(rig));
}

/* Nothing becomes older by a clock that is set, whether that is seen at once or
 * when nothing was heard of it for a while. */
SRIG_TEST(ages, begin(SETTLE_MS, R40 " " I40))
{
    struct conn *conn = &rig->store->conns[0];
    uint64_t since_us = srig_time_us(rig);

    (void)pass(rig, 0, 60000);
    (void)asked(rig, 1);
    ck_assert_uint_eq(conn->clock.rose_at_us, 0);
    if (_i == 1)
        conn->clock.at_us -= 20 * SECOND_US;
    rig->clock_us += (int64_t)HOUR_US;
    uint64_t age = age_us(rig, since_us);
    ck_assert_uint_gt(age, 59 * SECOND_US);
    ck_assert_uint_lt(age, 61 * SECOND_US);
    ck_assert_uint_gt(conn->clock.rose_at_us, since_us + HOUR_US);
    ck_assert_uint_le(conn->clock.rose_at_us, srig_time_us(rig));
    /* The answer just before is at least as old. */
    (void)pass(rig, 0, 10000);
    age = age_us(rig, since_us + 60 * SECOND_US);
    ck_assert_uint_ge(age, 9 * SECOND_US);
    ck_assert_uint_lt(age, 11 * SECOND_US);
    /* Once more, */
    rig->clock_us += (int64_t)HOUR_US;
    age = age_us(rig, since_us);
    ck_assert_uint_gt(age, 69 * SECOND_US);
    ck_assert_uint_lt(age, 72 * SECOND_US);
    /* and back: what comes then is as old as it is at once. */
    rig->clock_us -= (int64_t)(2 * HOUR_US);
    age = age_us(rig, since_us);
    ck_assert_uint_gt(age, 69 * SECOND_US);
    ck_assert_uint_lt(age, 72 * SECOND_US);
    ck_assert_uint_le(conn->clock.rose_at_us, srig_time_us(rig));
    rig->clock_us += (int64_t)HOUR_US;
    ck_assert_uint_lt(age_us(rig, since_us), 72 * SECOND_US);
}

/* Answers that are slow, now and then or for ever, and clocks that drift. */
SRIG_TEST(slow_is_no_step, begin(SETTLE_MS, R40 " " I40))
{
    uint32_t within_us = 0;

    for (int i = 0; i < 400; i++) {
        (void)pass(rig, 0, 100);
        rig->clock_us += _i == 1 ? 200 : _i == 2 ? -200 : 0;
        within_us = asked(rig, i % 7 == 3 || i > 200 ? 400 : 1).within_us;
    }
    ck_assert_uint_eq(srig_count(rig, COUNTER_redis_clock_steps), 0);
    ck_assert_uint_eq(asked(rig, 1).in_ms, 0);
    ck_assert_uint_ge(within_us, 600000); /* as slow as they all are now */
    for (int i = 0; i < 20; i++)
        within_us = asked(rig, 1).within_us;
    ck_assert_uint_eq(within_us, SETTLE_MS * 10);
}

/* An answer that has been under way for long says what the clock was then. */
SRIG_TEST(drift_on_the_way_is_no_step, begin(SETTLE_MS, R40 " " I40))
{
    int64_t drift_us = _i == 0 ? 800 : -800;

    (void)pass(rig, 0, SETTLE_MS + 1000);
    for (int i = 0; i < 10; i++) {
        ck_assert_uint_eq(asked(rig, 0).in_ms, 0);
        (void)asked_on_way(rig, 0, 400000, drift_us);
    }
    ck_assert_uint_eq(asked(rig, 0).in_ms, 0);
    ck_assert_uint_eq(srig_count(rig, COUNTER_redis_clock_steps), 0);
}

/* Without settling no clock is doubted. */
SRIG_TEST(any_clock, begin(0, ""))
{
    rig->clock_us += 3600000000;
    ck_assert_uint_eq(asked(rig, 1).in_ms, 0);
    ck_assert_uint_eq(asked(rig, 1).within_us, UINT32_MAX);
    ck_assert_uint_eq(srig_count(rig, COUNTER_redis_clock_steps), 0);
    ck_assert_uint_eq(log_kept_count("redis_clock_stepped"), 0);
}

Suite *
store_trust_suite(void)
{
    Suite *suite = suite_create("store_trust");
    TCase *tests = tcase_create("store_trust");

    tcase_set_timeout(tests, 60);
    add_history_tests(tests);
    add_marker_tests(tests);
    tcase_add_test(tests, again_at_once);
    tcase_add_test(tests, changed_is_found_out);
    tcase_add_test(tests, changed_for_ever);
    tcase_add_test(tests, grace);
    tcase_add_test(tests, grace_ends_early);
    tcase_add_test(tests, grace_without_queue);
    tcase_add_test(tests, grace_given_up);
    tcase_add_test(tests, grace_and_map);
    tcase_add_test(tests, unsettled_flag);
    tcase_add_test(tests, reclaim);
    tcase_add_test(tests, fence_clock_goes_on);
    tcase_add_loop_test(tests, fence_clock_of_others, 0, 4);
    tcase_add_loop_test(tests, leaps, 0, 4);
    tcase_add_test(tests, steady);
    tcase_add_loop_test(tests, steps, 0, 4);
    tcase_add_loop_test(tests, ages, 0, 2);
    tcase_add_loop_test(tests, slow_is_no_step, 0, 3);
    tcase_add_loop_test(tests, drift_on_the_way_is_no_step, 0, 2);
    tcase_add_test(tests, any_clock);
    suite_add_tcase(suite, tests);
    return suite;
}

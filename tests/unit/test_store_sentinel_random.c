/*
 * Tests of daemon/store/node/sentinel.c under random faults, also if two of
 * the Sentinels are one. Each operation is given back exactly once. Calls go
 * only to the master that a majority has named in the last two seconds.
 */
#include "tests/unit/seed.h"
#include "tests/unit/sentinel_rig.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define EVENTS 40000

Suite *store_sentinel_random_suite(void);

/* The word of each Sentinel, as the test has seen it. */
struct ack {
    struct srig *rig;
    struct random random;
    uint64_t asked_us[3]; /* 0: it has no question */
    uint64_t sent_us[3];  /* of the question of the last answer */
    uint16_t port[3];     /* that it names; 0: none */
    uint32_t calls[CONN_COUNT];
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
note_questions(struct ack *ack)
{
    for (uint32_t i = 0; i < 3; i++) {
        struct buffer *out = store_conn_output(ack->rig->store, i);
        if (!ack->rig->conns[i].open)
            ack->asked_us[i] = 0;
        else if (buffer_len(out) > 0 && ack->asked_us[i] == 0)
            ack->asked_us[i] = ack->rig->now_us;
    }
}

static bool
names_it(const struct ack *ack, int sentinel, uint16_t port)
{
    return ack->port[sentinel] == port &&
           ack->sent_us[sentinel] + TRUST_MS * 1000 > ack->rig->now_us;
}

/* No call but to the one whom a majority has named in the last two seconds. */
static void
judge_calls(struct ack *ack)
{
    const struct srig *rig = ack->rig;

    for (uint32_t i = 3; i < CONN_SUBSCRIBER; i++) {
        uint32_t calls = rig->store->conns[i].batch_count;
        unsigned votes = 0;
        for (int at = 0; at < 3; at++)
            votes += names_it(ack, at, rig->conns[i].port);
        if (rig->one_run == 2 && names_it(ack, 0, rig->conns[i].port) &&
            names_it(ack, 1, rig->conns[i].port))
            votes--;
        ck_assert_msg(calls <= ack->calls[i] || votes >= 2,
            "a call to port %u, which %u name", rig->conns[i].port, votes);
    }
}

static void
turn_judged(struct ack *ack)
{
    for (uint32_t i = 0; i < CONN_COUNT; i++)
        ack->calls[i] = ack->rig->store->conns[i].batch_count;
    srig_turn(ack->rig);
    judge_calls(ack);
    note_questions(ack);
}

/* Refusals that are put again at once, wherever, have a test of their own. */
static void
random_reply(struct ack *ack, uint32_t link)
{
    static const char *const errors[] = {
        "READONLY x", "LOADING x", "OOM x", "NOPERM x"};
    struct srig *rig = ack->rig;

    if (random_below(&ack->random, 100) < 2)
        srig_error(rig, link, errors[random_below(&ack->random, 4)]);
    else
        srig_results(rig, link, (rig->word_count - 4) / 2,
            (enum record_status)random_below(&ack->random, RECORD_FULL + 1));
}

static void
random_answer(struct ack *ack, uint32_t link)
{
    struct srig *rig = ack->rig;
    bool question = text_equal(rig->words[0], TEXT("SENTINEL"));

    if (text_equal(rig->words[0], TEXT("EVALSHA"))) {
        random_reply(ack, link);
    } else if (link < 3 && !question) {
        srig_answer(rig, link);
    } else if (random_below(&ack->random, 300) == 0) {
        srig_error(rig, link, "ERR no");
    } else {
        if (question) {
            ack->sent_us[link] = ack->asked_us[link];
            ack->port[link] = port_of(&rig->names[link]);
        }
        srig_answer(rig, link);
    }
    if (question)
        ack->asked_us[link] = 0;
}

static void
random_conn(struct ack *ack, uint32_t link)
{
    struct srig *rig = ack->rig;
    struct random *random = &ack->random;

    if (rig->conns[link].connecting) {
        if (random_below(random, 5) == 0)
            srig_lose(rig, link);
        else
            srig_connect(rig, link);
        note_questions(ack);
        return;
    }
    if (rig->conns[link].open && random_below(random, 300) == 0)
        srig_lose(rig, link);
    if (link == CONN_SWITCHES && rig->conns[link].open &&
        random_below(random, 10) == 0)
        sen_switched(rig);
    unsigned some = (unsigned)random_below(random, 8);
    while (
        rig->conns[link].open && some-- > 0 && srig_next(rig, link)[0] != '\0')
        random_answer(ack, link);
    note_questions(ack);
}

/* Sentinels change their minds, one after the other or alone. */
static void
random_names(struct ack *ack)
{
    static const char *const ports[] = {"7000", "7001", "7002", "7003"};
    struct random *random = &ack->random;

    if (random_below(random, 400) == 0)
        sen_name_all(ack->rig, ports[random_below(random, 4)]);
    if (random_below(random, 100) == 0)
        sen_name(ack->rig, (unsigned)random_below(random, 3),
            random_below(random, 4) == 0 ? NULL
                                         : ports[random_below(random, 4)]);
}

static uint64_t
random_op(struct ack *ack)
{
    struct srig *rig = ack->rig;
    struct random *random = &ack->random;

    if (rig->op_count == SRIG_OPS || random_below(random, 2) == 0)
        return 0;
    struct op *op =
        srig_op(rig, random_below(random, 2) == 0 ? OP_ACQUIRE : OP_RELEASE, 0);
    if (random_below(random, 3) == 0)
        op->deadline_us = rig->now_us + random_below(random, 100000);
    return 1;
}

START_TEST(faults)
{
    static struct ack ack;
    struct srig *rig = srig_create(STORE_SENTINEL, 3);
    uint64_t submitted = 0;
    uint64_t returned = 0;

    ack = (struct ack){.rig = rig};
    rig->one_run = _i == 0 ? 0 : 2;
    seed_random(&ack.random, "store_sentinel_random");
    srig_start(rig);
    for (unsigned i = 0; i < EVENTS; i++) {
        if (rig->op_count == SRIG_OPS && rig->done_count == SRIG_OPS) {
            returned += rig->done_count;
            rig->op_count = rig->done_count = 0;
            memset(rig->done, 0, sizeof(rig->done));
        }
        submitted += random_op(&ack);
        uint32_t link = (uint32_t)random_below(&ack.random, 12);
        random_conn(&ack, link < 10 ? link : CONN_SUBSCRIBER + link - 10);
        random_names(&ack);
        rig->now_us += random_below(&ack.random, 20000);
        turn_judged(&ack);
    }
    /* All is well again, and so is what comes then. */
    sen_name_all(rig, "7000");
    sen_run(rig, 4000);
    ck_assert(store_ready(rig->store));
    sen_run(rig, 6000);
    returned += rig->done_count;
    printf("store_sentinel_random: %" PRIu64 " operations\n", submitted);
    ck_assert_uint_eq(returned, submitted);
    ck_assert_uint_gt(submitted, EVENTS / 20);
    ck_assert_uint_gt(srig_count(rig, COUNTER_redis_calls), EVENTS / 100);
    srig_end(rig);
}

END_TEST

Suite *
store_sentinel_random_suite(void)
{
    Suite *suite = suite_create("store_sentinel_random");
    TCase *tests = tcase_create("store_sentinel_random");

    tcase_set_timeout(tests, 120);
    tcase_add_loop_test(tests, faults, 0, 2);
    suite_add_tcase(suite, tests);
    return suite;
}

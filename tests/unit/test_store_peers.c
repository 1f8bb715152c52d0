/*
 * Tests of daemon/store/node/peers.c: brokers of other configurations before
 * the same Redis, the longest lease of them, and lists of quorums that overlap.
 */
#include "tests/unit/log_kept.h"
#include "tests/unit/store_rig.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

Suite *store_peers_suite(void);

#define LEASE_MS 2000
#define TIME_MS  UINT64_C(1700000000000) /* the node's, less the rig's */
#define LIST     "10.0.0.1:7000,10.0.0.1:7001,10.0.0.1:7002"

/* Redis' answer to the exchange, and to the claim of a list at the last node;
 * NULL: nil. And what was sent. */
static const char *before;
static const char *list;
static char words[300];
static unsigned exchanges;
static unsigned grants;

static void
reply(struct srig *rig, uint32_t link, const char *text)
{
    srig_reply(rig, link,
        &(struct resp){.type = text == NULL ? RESP_NIL : RESP_STRING,
            .text = text_from(text == NULL ? "" : text)});
}

static void
serve(struct srig *rig, uint32_t link)
{
    const char *command;

    while ((command = srig_next(rig, link))[0] != '\0') {
        if (strncmp(command, "SET holdfast:brokers:", 21) == 0) {
            exchanges++;
            reply(rig, link, before);
        } else if (strncmp(command, "SET holdfast:brokers ", 21) == 0) {
            snprintf(words, sizeof(words), "%s", command + 21);
            exchanges++;
            reply(rig, link, before);
        } else if (strcmp(command, "SET holdfast:quorum " LIST " NX GET") ==
                   0) {
            reply(rig, link, link == 2 ? list : NULL);
        } else if (command[0] == 'E') {
            grants++;
            srig_results(rig, link, 1, RECORD_OK);
        } else {
            srig_answer(rig, link);
        }
    }
}

static void
pass(struct srig *rig, unsigned ms)
{
    for (unsigned i = 0; i < ms; i += 50) {
        for (uint32_t link = 0; link < CONN_COUNT; link++) {
            if (rig->conns[link].connecting)
                srig_connect(rig, link);
            if (rig->conns[link].open)
                serve(rig, link);
        }
        srig_pass(rig, 50);
    }
}

static struct srig *
begin(enum store_topology topology, unsigned nodes, unsigned settle_ms)
{
    struct srig *rig = srig_create(topology, nodes);

    rig->settings.lease_ms = LEASE_MS;
    rig->settings.settle_us = settle_ms * 1000;
    rig->now_us = 100000000;
    before = list = NULL;
    exchanges = grants = 0;
    srig_history(rig, "master", 'r', 'i', '0');
    log_keep(LOG_WARN);
    srig_start(rig);
    pass(rig, 1000);
    return rig;
}

static uint32_t
differing(const struct srig *rig)
{
    struct store_totals totals;

    store_totals(rig->store, &totals);
    return totals.differing;
}

static const struct {
    const char *words;
    const char *key; /* NULL: nothing is said */
} others[] = {
    {"broker=broker-2 lease=2000 settle=2000 safety=fenced longest=2000 age=0",
        NULL},
    {"broker=broker-1 lease=9000 settle=2000 safety=fenced longest=9000 age=0",
        NULL}, /* it is this one */
    {"broker=broker-2 lease=9000 settle=9000 safety=fenced longest=9000 age=0",
        "lease.default"},
    {"broker=broker-2 lease=2000 settle=0 safety=fenced longest=2000 age=0",
        "redis.settle"},
    {"broker=broker-2 lease=2000 settle=2000 safety=strict longest=2000 age=0",
        "redis.safety"},
    {"broker=broker-2 lease=x settle=2000 safety=fenced longest=1 age=0", NULL},
    {"broker=broker-2", NULL},
    {"", NULL},
};

SRIG_TEST(configured_otherwise, begin(STORE_SINGLE, 1, 2000))
{
    char said[100];

    ck_assert_uint_eq(exchanges, 1);
    ck_assert_str_eq(words,
        "broker=broker-1 lease=2000 settle=2000 safety=fenced longest=2000 "
        "age=0 at=1700000100000 PX 62000 GET");
    before = others[_i].words;
    pass(rig, 10000); /* once may be a broker that is no more */
    ck_assert_uint_eq(exchanges, 2);
    ck_assert_uint_eq(differing(rig), 0);
    pass(rig, 100000);
    ck_assert_uint_eq(differing(rig), others[_i].key != NULL);
    snprintf(said, sizeof(said),
        "redis_brokers_differ node=10.0.0.1:7000 key=%s broker=\"broker-2\"",
        others[_i].key == NULL ? "" : others[_i].key);
    ck_assert_uint_eq(log_kept_count("redis_brokers_differ"),
        others[_i].key != NULL ? 2 : 0); /* each minute */
    if (others[_i].key != NULL)
        ck_assert_uint_eq(log_kept_count(said), 2);
    before = NULL;
    pass(rig, 10000);
    ck_assert_uint_eq(differing(rig), 0);
}

/* Redis restarts without its data: how long it is not trusted, in ms. */
static unsigned
settles(struct srig *rig, char run)
{
    unsigned ms = 0;

    srig_history(rig, "master", run, run, '0');
    rig->marker[0] = '\0';
    srig_lose(rig, 0);
    pass(rig, 300);
    while (rig->store->conns[0].history.state != HISTORY_SETTLED) {
        ck_assert_uint_lt(ms, 60000);
        pass(rig, 100);
        ms += 100;
    }
    return ms;
}

static const struct {
    const char *words;
    unsigned passed_ms; /* since they were read last */
    unsigned settles_ms;
    int lain_ms; /* in Redis, when they are read; 0: they do not say */
} longest[] = {
    {NULL, 0, 2000, 0},
    {"broker=broker-2 lease=12000 settle=2000 safety=fenced longest=12000 "
     "age=0",
        0, 12000, 0},
    {"broker=broker-2 lease=12000 settle=2000 safety=fenced longest=12000 "
     "age=0",
        20000, 12000, 0},
    {"broker=broker-2 lease=12000 settle=2000 safety=fenced longest=12000 "
     "age=0",
        45000, 2000, 0},
    /* a third one's */
    {"broker=broker-2 lease=2000 settle=2000 safety=fenced longest=12000 "
     "age=5000",
        0, 12000, 0},
    {"broker=broker-2 lease=2000 settle=2000 safety=fenced longest=12000 "
     "age=45000",
        0, 2000, 0},
    {"broker=broker-2 lease=1000 settle=2000 safety=fenced longest=1000 age=0",
        0, 2000, 0},
    {"broker=broker-2 lease=12000 settle=2000 safety=fenced longest=12000 "
     "age=0",
        0, 12000, 5000},
    {"broker=broker-2 lease=12000 settle=2000 safety=fenced longest=12000 "
     "age=0",
        0, 2000, 45000},
    {"broker=broker-2 lease=2000 settle=2000 safety=fenced longest=12000 "
     "age=20000",
        0, 2000, 25000},
    /* The node's clock was set back. */
    {"broker=broker-2 lease=12000 settle=2000 safety=fenced longest=12000 "
     "age=0",
        0, 12000, -45000},
};

SRIG_TEST(longest_lease, begin(STORE_SINGLE, 1, 2000))
{
    uint64_t read_ms = TIME_MS + rig->now_us / 1000 + 9000;
    char text[200];

    before = longest[_i].words;
    if (longest[_i].lain_ms != 0) {
        snprintf(text, sizeof(text), "%s at=%" PRIu64, before,
            read_ms - (uint64_t)(int64_t)longest[_i].lain_ms);
        before = text;
    }
    pass(rig, 10000);
    before = NULL;
    pass(rig, longest[_i].passed_ms);
    unsigned ms = settles(rig, 's');
    ck_assert_uint_ge(ms + 400, longest[_i].settles_ms);
    ck_assert_uint_le(ms, longest[_i].settles_ms);
}

static const char *const garbled[] = {
    "broker=broker-2 lease=2000 settle=2000 safety=fenced longest=9000000000 "
    "age=0",
    "broker=broker-2 lease=3600001 settle=2000 safety=fenced longest=1 age=0",
};

/* No broker leases for longer than a configuration allows. */
SRIG_TEST(lease_beyond_all, begin(STORE_SINGLE, 1, 2000))
{
    before = garbled[_i];
    pass(rig, 40000);
    ck_assert_uint_eq(rig->store->longest_us, STORE_LEASE_MAX_MS * 1000ull);
    ck_assert_uint_eq(log_kept_count("redis_brokers_garbled "
                                     "node=10.0.0.1:7000 broker=\"broker-2\""),
        1);
    pass(rig, 60000); /* each minute */
    ck_assert_uint_eq(log_kept_count("redis_brokers_garbled"), 2);
    before = NULL;
    pass(rig, STORE_LEASE_MAX_MS + 45000);
    ck_assert_uint_eq(rig->store->longest_us, LEASE_MS * 1000);
}

/* A node of a cluster has no key before the map is known. */
SRIG_TEST(map_comes_later, begin(STORE_CLUSTER, 3, 2000))
{
    ck_assert_uint_eq(exchanges, 0);
    rig->map[0] = (struct srig_range){0, 16383, "10.0.0.1", 7000};
    rig->map_count = 1;
    pass(rig, 5000);
    ck_assert_uint_eq(exchanges, 1);
}

/* It is passed on as long as it counts, and no longer. */
SRIG_TEST(longest_lease_is_passed_on, begin(STORE_SINGLE, 1, 2000))
{
    before = longest[1].words;
    pass(rig, 10000);
    before = NULL;
    pass(rig, 10000);
    ck_assert_ptr_nonnull(strstr(words, "lease=2000 settle=2000 "));
    ck_assert_ptr_nonnull(strstr(words, "longest=12000 age=10"));
    pass(rig, 40000);
    ck_assert_ptr_nonnull(strstr(words, "longest=2000 age=0"));
}

/* Two lists with a node in common: nothing is granted anywhere. */
SRIG_TEST(another_quorum, begin(STORE_QUORUM, 3, 0))
{
    ck_assert(store_health(rig->store)->ready);
    list = "10.0.0.1:7002,10.0.0.9:1,10.0.0.9:2";
    pass(rig, 11000);
    const struct health *health = store_health(rig->store);
    ck_assert(!health->ready);
    ck_assert_str_eq(health_word(health->reason), "other_quorum");
    ck_assert_uint_eq(health->node, 2);
    ck_assert_str_eq(health->nodes[2].said, list);
    ck_assert_uint_eq(log_kept_count("redis_other_quorum"), 1);
    struct op *op = srig_op(rig, OP_ACQUIRE, 0);
    op->deadline_us = rig->now_us + 2000000;
    pass(rig, 4000);
    srig_status(rig, op, OP_UNSENT);
    ck_assert_uint_eq(grants, 0);
    list = LIST; /* it was put right by hand */
    pass(rig, 2000);
    ck_assert(store_health(rig->store)->ready);
    (void)srig_op(rig, OP_ACQUIRE, 0);
    pass(rig, 200);
    ck_assert_uint_ge(grants, 2);
}

Suite *
store_peers_suite(void)
{
    Suite *suite = suite_create("store_peers");
    TCase *tests = tcase_create("peers");

    tcase_add_loop_test(
        tests, configured_otherwise, 0, sizeof(others) / sizeof(others[0]));
    tcase_add_loop_test(
        tests, longest_lease, 0, sizeof(longest) / sizeof(longest[0]));
    tcase_add_loop_test(
        tests, lease_beyond_all, 0, sizeof(garbled) / sizeof(garbled[0]));
    tcase_add_test(tests, map_comes_later);
    tcase_add_test(tests, longest_lease_is_passed_on);
    tcase_add_test(tests, another_quorum);
    suite_add_tcase(suite, tests);
    return suite;
}

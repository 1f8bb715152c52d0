/*
 * Tests of daemon/store/node/route.c: slot maps, redirects, nodes that come
 * and go. And operations under random faults: each is given back exactly once.
 */
#include "tests/unit/log_kept.h"
#include "tests/unit/seed.h"
#include "tests/unit/store_rig.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define EVENTS 60000

Suite *store_route_suite(void);

/* The map again, in a turn. */
static void
refresh(struct srig *rig)
{
    rig->store->map_wanted = true;
    srig_settle(rig);
}

static uint32_t
conn_of_port(const struct srig *rig, uint16_t port)
{
    for (uint32_t i = 0; i < CONN_SUBSCRIBER; i++)
        if (rig->conns[i].port == port &&
            (rig->conns[i].connecting || rig->conns[i].open))
            return i;
    ck_abort_msg("no link to port %u", port);
    return 0;
}

SRIG_TEST(slots, srig_cluster())
{
    (void)srig_op(rig, OP_ACQUIRE, 0);
    (void)srig_op(rig, OP_ACQUIRE, 4999);
    (void)srig_op(rig, OP_ACQUIRE, 5000);
    (void)srig_op(rig, OP_ACQUIRE, 16383);
    (void)srig_op(rig, OP_ACQUIRE, 5000);
    srig_turn(rig);
    /* One call for each slot, two for the first node. */
    srig_expect(rig, 0, "EVALSHA 1");
    srig_expect(rig, 0, "EVALSHA 1");
    srig_expect(rig, 0, "");
    srig_expect(rig, 1, "EVALSHA 2");
    srig_expect(rig, 2, "EVALSHA 1");
}

/* An empty or nil host is that of the node that was asked. */
SRIG_TEST(map_without_hosts, srig_create(STORE_CLUSTER, 1))
{
    rig->map_count = 2;
    rig->map[0] = (struct srig_range){0, 9999, NULL, 7000};
    rig->map[1] = (struct srig_range){10000, 16383, "", 7001};
    srig_start(rig);
    srig_settle(rig);
    ck_assert(store_ready(rig->store));
    ck_assert_str_eq(rig->conns[1].host, "10.0.0.1");
    ck_assert_uint_eq(rig->conns[1].port, 7001);
}

static const struct srig_range malformed[] = {
    {-1, 5, "10.0.0.1", 7000},
    {5, 16384, "10.0.0.1", 7000},
    {6, 5, "10.0.0.1", 7000},
    {0, 5, "10.0.0.1", -1},
    {0, 5, "10.0.0.1", 65536},
};

/* The old map goes on; a new one is asked for with growing pauses. */
SRIG_TEST(malformed_map, srig_cluster())
{
    struct srig_range good = rig->map[1];

    rig->map[1] = malformed[_i];
    uint64_t before = srig_count(rig, COUNTER_redis_map_refreshes);
    rig->store->map_wanted = true;
    for (int i = 0; i < 200; i++) {
        srig_pass(rig, 50);
        for (uint32_t link = 0; link < 3; link++)
            srig_serve(rig, link);
        srig_serve(rig, CONN_SUBSCRIBER);
    }
    uint64_t asked = srig_count(rig, COUNTER_redis_map_refreshes) - before;
    ck_assert_uint_ge(asked, 4);
    ck_assert_uint_le(asked, 12);
    (void)srig_op(rig, OP_ACQUIRE, 5001);
    srig_sends(rig, 1, "EVALSHA 1");
    rig->map[0] = (struct srig_range){0, 4999, "10.0.0.1", 7000};
    rig->map[1] = good;
    rig->map_count = 3;
    srig_results(rig, 1, 1, RECORD_OK);
    for (int i = 0; i < 4; i++)
        refresh(rig);
    ck_assert(store_ready(rig->store));
}

/* A host from a map is in the log, whose lines it must not change. */
SRIG_TEST(odd_host, srig_cluster())
{
    rig->map[2].host = "a b=\"\n\xff";
    log_keep(LOG_DEBUG);
    refresh(rig);
    rig->conns[3].connecting = false;
    rig->now_us += 1000;
    store_closed(rig->store, (struct store_conn){3, rig->conns[3].serial},
        rig->now_us, HEALTH_REFUSED, "refused");
    ck_assert_uint_eq(
        log_kept_count("event=redis_link_lost node=a?b????:7002 why="), 1);
}

/* A host may be unknown where the number or a name stands beside it. If nothing
 * does, the node that had the slots is asked on, and the log has the other's
 * id. */
SRIG_TEST(map_that_knows_less, srig_cluster())
{
    log_keep(LOG_WARN);
    rig->map[0].host = "?";
    rig->beside[0].ip = "10.0.0.1";
    rig->map[1].host = "?";
    rig->beside[1].ip = "?";
    rig->map[2].host = "?";
    rig->beside[2].name = "c.test";
    refresh(rig);
    ck_assert_uint_eq(rig->store->slots_mapped, SLOT_COUNT);
    ck_assert_uint_eq(rig->store->slots[0], 0);
    ck_assert_uint_eq(rig->store->slots[5000], 1);
    ck_assert_str_eq(
        rig->store->nodes[rig->store->slots[16383]].address.host, "c.test");
    ck_assert_uint_eq(
        log_kept_count("event=redis_address_unknown id=\"node-id\" port=7001"),
        1);
    refresh(rig);
    ck_assert_uint_eq(log_kept_count("event=redis_address_unknown"), 1);
    (void)srig_op(rig, OP_ACQUIRE, 5001);
    srig_sends(rig, 1, "EVALSHA 1");
}

/* Of a node whose address is forgotten nothing is known; of the others it is.
 * It is asked again with growing pauses. */
SRIG_TEST(map_without_an_address, srig_cluster())
{
    rig->map[0].host = "";
    rig->map[0].port = 0;
    rig->map[2].port = 7001;
    refresh(rig);
    ck_assert_uint_eq(rig->store->slots[0], NODE_NONE);
    ck_assert_uint_eq(rig->store->slots[16383], 1);
    uint64_t before = srig_count(rig, COUNTER_redis_map_refreshes);
    for (int i = 0; i < 200; i++) {
        srig_pass(rig, 50);
        for (uint32_t link = 0; link < 3; link++)
            srig_serve(rig, link);
        srig_serve(rig, CONN_SUBSCRIBER);
    }
    uint64_t asked = srig_count(rig, COUNTER_redis_map_refreshes) - before;
    ck_assert_uint_ge(asked, 4);
    ck_assert_uint_le(asked, 12);
}

/* The second node's address is one of another cluster's from now on: it has all
 * slots there. */
static void
serve_with_stranger(struct srig *rig)
{
    const struct srig_range own = rig->map[0];

    srig_pass(rig, 100);
    for (uint32_t link = 0; link < 3; link++) {
        bool strange = link == 1;
        rig->node_id = strange ? "another" : "node-id";
        rig->map_count = strange ? 1 : 3;
        if (strange)
            rig->map[0] = (struct srig_range){0, 16383, "10.0.0.1", 7001};
        if (rig->conns[link].connecting && !rig->conns[link].silent)
            srig_connect(rig, link);
        srig_serve(rig, link);
        rig->map[0] = own;
    }
    srig_serve(rig, CONN_SUBSCRIBER);
}

/* Its map is none of ours, nor is it asked for its slots; until nobody has told
 * ours for a lease. */
SRIG_TEST(map_of_another_cluster, srig_cluster())
{
    rig->store->settings.settle_us = 4000000;
    log_keep(LOG_ERROR);
    for (int i = 0; i < 400; i++) {
        serve_with_stranger(rig);
        ck_assert_uint_eq(rig->store->slots[0], 0);
        ck_assert_uint_eq(rig->store->slots[5000], 1);
        ck_assert_uint_eq(rig->store->slots[16383], 2);
    }
    ck_assert_uint_gt(rig->conns[1].closes, 3);
    ck_assert_int_eq(rig->store->conns[1].fault.reason, HEALTH_OTHER_CLUSTER);
    ck_assert_uint_eq(log_kept_count("event=redis_unfit node=10.0.0.1:7001 "
                                     "reason=other_cluster"),
        1);
    (void)srig_op(rig, OP_ACQUIRE, 5001);
    srig_turn(rig);
    ck_assert_int_ne(rig->store->conns[1].state, CONN_READY);
    rig->conns[0].silent = true;
    rig->conns[2].silent = true;
    for (int i = 0; i < 200; i++)
        serve_with_stranger(rig);
    ck_assert_uint_eq(rig->store->slots[0], 1);
}

/* Replies to CLUSTER SLOTS that are no map at all. The log has one line of them
 * a minute. */
SRIG_TEST(no_map, srig_cluster())
{
    const struct resp bad_item[] = {{.type = RESP_INTEGER}};
    const struct resp triple[] = {{.type = RESP_INTEGER},
        {.type = RESP_STRING, .text = TEXT("x")}, {.type = RESP_ARRAY}};
    const struct resp ranges[] = {
        {.type = RESP_ARRAY, .item = triple, .count = 3}};
    const struct resp replies[] = {
        {.type = RESP_ERROR, .text = TEXT("LOADING")},
        {.type = RESP_NIL},
        {.type = RESP_ARRAY},
        {.type = RESP_ARRAY, .item = bad_item, .count = 1},
        {.type = RESP_ARRAY, .item = ranges, .count = 1},
    };

    log_keep(LOG_WARN);
    for (size_t i = 0; i < sizeof(replies) / sizeof(replies[0]); i++) {
        rig->store->map_wanted = true;
        bool answered = false;
        while (!answered) {
            srig_pass(rig, 50);
            for (uint32_t link = 0; link < 3; link++)
                while (srig_next(rig, link)[0] != '\0')
                    if (rig->words[0].at[0] == 'C') {
                        srig_reply(rig, link, &replies[i]);
                        answered = true;
                    } else {
                        srig_answer(rig, link);
                    }
            srig_serve(rig, CONN_SUBSCRIBER);
        }
    }
    ck_assert_uint_eq(log_kept_count("event=redis_map_unusable node="), 1);
    ck_assert(store_ready(rig->store));
}

/* Also where nobody says that anything has moved: within 15 s. */
SRIG_TEST(map_now_and_then, srig_cluster())
{
    uint64_t before = srig_count(rig, COUNTER_redis_map_refreshes);

    rig->map[0].last = 4000;
    rig->map[1].first = 4001;
    for (int i = 0; i < 300; i++) {
        srig_pass(rig, 50);
        for (uint32_t link = 0; link < 3; link++)
            srig_serve(rig, link);
        srig_serve(rig, CONN_SUBSCRIBER);
        if (i == 190)
            ck_assert_uint_eq(
                srig_count(rig, COUNTER_redis_map_refreshes), before);
    }
    ck_assert_uint_eq(srig_count(rig, COUNTER_redis_map_refreshes), before + 1);
    ck_assert_uint_eq(rig->store->slots[4000], 0);
    ck_assert_uint_eq(rig->store->slots[4001], 1);
}

SRIG_TEST(moved_to_a_known_node, srig_cluster())
{
    struct op *ops[6];
    uint64_t before = srig_count(rig, COUNTER_redis_map_refreshes);

    for (int i = 0; i < 6; i++)
        ops[i] = srig_op(rig, OP_ACQUIRE, 7);
    srig_sends(rig, 0, "EVALSHA 4");
    srig_expect(rig, 0, "EVALSHA 2");
    srig_error(rig, 0, "MOVED 7 10.0.0.1:7002");
    srig_error(rig, 0, "MOVED 7 10.0.0.1:7002");
    srig_turn(rig);
    /* One refresh for all of them, and the calls at once. */
    unsigned maps = 0;
    unsigned calls = 0;
    for (uint32_t link = 0; link < 3; link++)
        while (srig_next(rig, link)[0] != '\0')
            if (rig->words[0].at[0] == 'C') {
                maps++;
            } else {
                ck_assert_uint_eq(link, 2);
                calls++;
            }
    ck_assert_uint_eq(maps, 1);
    ck_assert_uint_eq(calls, 2);
    ck_assert_uint_eq(srig_count(rig, COUNTER_redis_map_refreshes) - before, 1);
    ck_assert_uint_eq(srig_count(rig, COUNTER_redis_moved), 6);
    srig_pass(rig, 500);
    ck_assert_uint_eq(srig_count(rig, COUNTER_redis_map_refreshes) - before, 1);
    ck_assert(!srig_done(rig, ops[0]));
}

static const struct {
    const char *error;
    const char *host;
    uint16_t port;
} unknown_nodes[] = {
    {"MOVED 7 10.0.0.9:7009", "10.0.0.9", 7009},
    {"MOVED 7 2001:db8::7:6379", "2001:db8::7", 6379},
    {"MOVED 7 ::1:6379", "::1", 6379},
    {"MOVED 7 :7009", "10.0.0.1", 7009},
    {"MOVED 7 redis-9.example:7009", "redis-9.example", 7009},
};

SRIG_TEST(moved_to_an_unknown_node, srig_cluster())
{
    struct op *op = srig_op(rig, OP_ACQUIRE, 7);

    srig_sends(rig, 0, "EVALSHA 1");
    srig_error(rig, 0, unknown_nodes[_i].error);
    srig_turn(rig);
    uint32_t link = conn_of_port(rig, unknown_nodes[_i].port);
    ck_assert_str_eq(rig->conns[link].host, unknown_nodes[_i].host);
    srig_connect(rig, link);
    srig_serve(rig, link);
    srig_turn(rig);
    while (srig_next(rig, link)[0] == 'C')
        ; /* the map's question is left unanswered */
    ck_assert_int_eq(rig->words[0].at[0], 'E');
    srig_results(rig, link, 1, RECORD_OK);
    srig_status(rig, op, OP_OK);
}

static const char *const nonsense[] = {"MOVED ", "MOVED 7", "MOVED 7 ",
    "MOVED 7 x", "MOVED x 10.0.0.1:7000", "MOVED 16384 10.0.0.1:7000",
    "MOVED 7 10.0.0.1:", "MOVED 7 10.0.0.1:0", "MOVED 7 10.0.0.1:65536",
    "MOVED 7 ?:7000", "ASK ", "ASK 7 10.0.0.1:x"};

SRIG_TEST(redirect_to_nowhere, srig_cluster())
{
    struct op *op = srig_op(rig, OP_ACQUIRE, 7);

    srig_sends(rig, 0, "EVALSHA 1");
    srig_error(rig, 0, nonsense[_i]);
    srig_turn(rig);
    ck_assert_int_ne(srig_next(rig, 0)[0], 'E');
    if (rig->word_count > 0)
        srig_answer(rig, 0);
    srig_pass(rig, 80);
    while (srig_next(rig, 0)[0] == 'C')
        srig_answer(rig, 0);
    ck_assert_int_eq(rig->words[0].at[0], 'E');
    srig_results(rig, 0, 1, RECORD_OK);
    srig_status(rig, op, OP_OK);
}

/* ASKING and its command are neighbours, and it goes alone. */
SRIG_TEST(ask, srig_cluster())
{
    struct op *ops[3];

    for (int i = 0; i < 3; i++)
        ops[i] = srig_op(rig, OP_ACQUIRE, 7);
    srig_sends(rig, 0, "EVALSHA 3");
    srig_error(rig, 0, "ASK 7 10.0.0.1:7001");
    srig_turn(rig);
    for (int i = 0; i < 2; i++) {
        srig_expect(rig, 1, "ASKING");
        srig_expect(rig, 1, "EVALSHA 1");
        rig->words[0] = TEXT("ASKING");
    }
    for (int i = 0; i < 2; i++) {
        rig->word_count = 1;
        srig_answer(rig, 1);
        srig_results(rig, 1, 1, RECORD_OK);
    }
    srig_status(rig, ops[0], OP_OK);
    srig_status(rig, ops[1], OP_OK);
    srig_sends(rig, 1, "ASKING");
    srig_answer(rig, 1);
    srig_expect(rig, 1, "EVALSHA 1");
    srig_results(rig, 1, 1, RECORD_OK);
    srig_status(rig, ops[2], OP_OK);
    /* The slot is where it was. */
    (void)srig_op(rig, OP_ACQUIRE, 7);
    srig_sends(rig, 0, "EVALSHA 1");
}

/* However often it was refused before, an ASK is followed. */
SRIG_TEST(ask_after_many_refusals, srig_cluster())
{
    struct op *op = srig_op(rig, OP_ACQUIRE, 7);

    for (int i = 0; i < 10; i++) {
        srig_pass(rig, 80);
        while (srig_next(rig, 0)[0] == 'C')
            srig_answer(rig, 0);
        ck_assert_int_eq(rig->words[0].at[0], 'E');
        srig_error(rig, 0, i < 9 ? "LOADING x" : "ASK 7 10.0.0.1:7001");
    }
    srig_turn(rig);
    while (srig_next(rig, 1)[0] == 'C')
        srig_answer(rig, 1);
    ck_assert(text_equal(rig->words[0], TEXT("ASKING")));
    srig_answer(rig, 1);
    srig_expect(rig, 1, "EVALSHA 1");
    srig_results(rig, 1, 1, RECORD_OK);
    srig_status(rig, op, OP_OK);
}

/* The word of an ASK's target holds for the next call: no ASKING there. */
SRIG_TEST(ask_then_moved, srig_cluster())
{
    struct op *op = srig_op(rig, OP_ACQUIRE, 7);

    srig_sends(rig, 0, "EVALSHA 1");
    srig_error(rig, 0, "ASK 7 10.0.0.1:7001");
    srig_sends(rig, 1, "ASKING");
    srig_answer(rig, 1);
    srig_expect(rig, 1, "EVALSHA 1");
    srig_error(rig, 1, "MOVED 7 10.0.0.1:7002");
    srig_turn(rig);
    while (srig_next(rig, 2)[0] == 'C')
        srig_answer(rig, 2);
    ck_assert_int_eq(rig->words[0].at[0], 'E');
    srig_results(rig, 2, 1, RECORD_OK);
    srig_status(rig, op, OP_OK);
}

/* The target of an ASK is not there: the slot's own node is asked again. */
SRIG_TEST(ask_to_the_dead, srig_cluster())
{
    struct op *op = srig_op(rig, OP_ACQUIRE, 7);

    srig_sends(rig, 0, "EVALSHA 1");
    srig_error(rig, 0, "ASK 7 10.0.0.9:7009");
    srig_turn(rig);
    srig_lose(rig, conn_of_port(rig, 7009));
    srig_pass(rig, 80);
    while (srig_next(rig, 0)[0] == 'C')
        srig_answer(rig, 0);
    ck_assert_int_eq(rig->words[0].at[0], 'E');
    srig_results(rig, 0, 1, RECORD_OK);
    srig_status(rig, op, OP_OK);
}

SRIG_TEST(tryagain, srig_cluster())
{
    struct op *one = srig_op(rig, OP_RENEW, 7);
    struct op *two = srig_op(rig, OP_RENEW, 7);

    srig_sends(rig, 0, "EVALSHA 2");
    srig_error(rig, 0, "TRYAGAIN Multiple keys request during rehashing");
    srig_sends(rig, 0, "EVALSHA 1");
    srig_expect(rig, 0, "EVALSHA 1");
    srig_results(rig, 0, 1, RECORD_OK);
    srig_status(rig, one, OP_OK);
    srig_error(rig, 0, "TRYAGAIN Multiple keys request during rehashing");
    srig_sends(rig, 0, "");
    srig_pass(rig, 35);
    srig_expect(rig, 0, "EVALSHA 1");
    srig_results(rig, 0, 1, RECORD_OK);
    srig_status(rig, two, OP_OK);
}

/* A turn of all links but the first, which is dead. */
static void
answer_all(struct srig *rig)
{
    for (uint32_t link = 1; link < CONN_COUNT; link++) {
        if (rig->conns[link].connecting)
            srig_connect(rig, link);
        while (rig->conns[link].open && srig_next(rig, link)[0] != '\0')
            if (rig->words[0].at[0] == 'E')
                srig_results(rig, link, 1, RECORD_OK);
            else
                srig_answer(rig, link);
    }
}

/* A node dies with operations in its queue: they follow their slot. */
SRIG_TEST(queue_follows_the_map, srig_cluster())
{
    srig_lose(rig, 0);
    struct op *renewal = srig_op(rig, OP_RENEW, 7);
    renewal->deadline_us = rig->now_us + 25000000;
    srig_turn(rig);
    ck_assert(!srig_done(rig, renewal));
    rig->map[0].port = 7009;
    for (int i = 0; i < 30 && !srig_done(rig, renewal); i++) {
        srig_pass(rig, 20);
        answer_all(rig);
    }
    srig_status(rig, renewal, OP_OK);
}

/* A slot that nobody serves: parked, and given up or done. */
SRIG_TEST(slot_of_nobody, srig_cluster())
{
    struct srig_range last = rig->map[2];

    rig->map[2].first = 16000;
    refresh(rig);
    ck_assert(!store_ready(rig->store));
    struct op *op = srig_op(rig, OP_RENEW, 12000);
    struct op *other = srig_op(rig, OP_RENEW, 12000);
    other->deadline_us = rig->now_us + 60000000;
    while (!srig_done(rig, op)) {
        srig_pass(rig, 10);
        for (uint32_t link = 0; link < 3; link++)
            srig_serve(rig, link);
        srig_serve(rig, CONN_SUBSCRIBER);
    }
    srig_status(rig, op, OP_UNSENT);
    ck_assert_uint_le(rig->now_us, op->deadline_us + 20000);
    rig->map[2] = last;
    srig_pass(rig, 300);
    for (uint32_t link = 0; link < 2; link++)
        srig_serve(rig, link);
    while (srig_next(rig, 2)[0] == 'C' || srig_next(rig, 2)[0] == 'P')
        srig_answer(rig, 2);
}

/* So many refreshes; how often that node was asked. */
static unsigned
times_asked(struct srig *rig, uint32_t node, int refreshes)
{
    unsigned asked = 0;

    for (int i = 0; i < refreshes; i++) {
        rig->store->map_wanted = true;
        for (int step = 0; step < 20; step++) {
            const char *command;
            srig_pass(rig, 10);
            for (uint32_t link = 0; link < CONN_COUNT; link++)
                while (rig->conns[link].open &&
                       (command = srig_next(rig, link))[0] != '\0') {
                    asked +=
                        link == node && strcmp(command, "CLUSTER SLOTS") == 0;
                    srig_answer(rig, link);
                }
        }
    }
    return asked;
}

/* A node of the configuration that has no slots may be in another cluster: who
 * has some tells the map, as long as there is one, and it makes sense. */
SRIG_TEST(map_of_who_has_slots, srig_create(STORE_CLUSTER, 3))
{
    rig->map_count = 2;
    rig->map[0] = (struct srig_range){0, 8191, "10.0.0.1", 7000};
    rig->map[1] = (struct srig_range){8192, 16383, "10.0.0.1", 7001};
    srig_start(rig);
    srig_settle(rig);
    (void)times_asked(rig, 2, 3);
    ck_assert_uint_eq(times_asked(rig, 2, 6), 0);
    ck_assert_uint_eq(times_asked(rig, 0, 6), 3);
    rig->map[0].last = -1;
    ck_assert_uint_gt(times_asked(rig, 2, 6), 0);
    rig->map[0].last = 8191;
    (void)times_asked(rig, 2, 3);
    ck_assert_uint_eq(times_asked(rig, 2, 6), 0);
    for (uint32_t link = 0; link < 2; link++) {
        rig->conns[link].silent = true;
        srig_lose(rig, link);
    }
    ck_assert_uint_gt(times_asked(rig, 2, 6), 0);
}

/* Hints come from a node of the cluster, also where a seed has left it. */
SRIG_TEST(subscriber_moves, srig_cluster())
{
    struct srig_conn *subscriber = &rig->conns[CONN_SUBSCRIBER];

    ck_assert_uint_eq(subscriber->port, 7000);
    rig->map[0].port = 7001;
    refresh(rig);
    ck_assert_uint_eq(subscriber->closes, 1);
    srig_pass(rig, 100);
    srig_settle(rig);
    ck_assert_uint_eq(subscriber->connects, 2);
    ck_assert_uint_eq(subscriber->port, 7001);
    ck_assert(store_take_unheard(rig->store));
    refresh(rig);
    ck_assert_uint_eq(subscriber->closes, 1);
}

/* If no node with slots can be reached, they come from the seed, over one
 * connection, until one can. */
SRIG_TEST(subscriber_stays, srig_create(STORE_CLUSTER, 1))
{
    struct srig_conn *subscriber = &rig->conns[CONN_SUBSCRIBER];

    rig->map_count = 1;
    rig->map[0] = (struct srig_range){0, 16383, "10.0.0.1", 7001};
    rig->conns[1].silent = true;
    srig_start(rig);
    for (int i = 0; i < 20; i++)
        refresh(rig);
    ck_assert_uint_eq(subscriber->port, 7000);
    ck_assert_uint_eq(subscriber->connects, 1);
    ck_assert(subscriber->open);
    rig->conns[1].silent = false;
    srig_settle(rig);
    srig_pass(rig, 100);
    srig_settle(rig);
    ck_assert_uint_eq(subscriber->port, 7001);
    ck_assert_uint_eq(subscriber->connects, 2);
}

/* Nodes without slots are forgotten, but for those of the configuration. */
SRIG_TEST(nodes_retire, srig_cluster())
{
    rig->map[0].port = 7009;
    refresh(rig);
    uint32_t link = conn_of_port(rig, 7009);
    ck_assert(rig->conns[link].open);
    ck_assert(rig->conns[0].open);
    rig->map[0].port = 7000;
    for (int i = 0; i < 3; i++)
        refresh(rig);
    ck_assert(!rig->conns[link].open);
    ck_assert(rig->conns[0].open);
    /* Its place is used again. */
    rig->map[0].port = 7010;
    refresh(rig);
    ck_assert_uint_eq(conn_of_port(rig, 7010), link);
}

/* --- random faults -------------------------------------------------------- */

static void
random_reply(struct srig *rig, uint32_t link, struct random *random)
{
    static const char *const errors[] = {"MOVED 7 10.0.0.1:7001",
        "MOVED 9000 10.0.0.1:7002", "MOVED 7 10.0.0.7:7007",
        "ASK 7 10.0.0.1:7001", "ASK 7 10.0.0.8:7008", "ASK 3 ?", "TRYAGAIN now",
        "NOSCRIPT no", "LOADING x", "CLUSTERDOWN x", "READONLY x", "ERR what",
        "WRONGTYPE what"};
    char bytes[64 * 40];
    unsigned count = (rig->word_count - 4) / 2;
    uint64_t what = random_below(random, 100);

    if (what < 70)
        srig_results(rig, link, count,
            (enum record_status)random_below(random, RECORD_MOVED + 1));
    else if (what < 97)
        srig_error(rig, link,
            errors[random_below(random, sizeof(errors) / sizeof(errors[0]))]);
    else
        srig_bytes(rig, link, bytes,
            random_below(random, srig_encode(rig, bytes, count, RECORD_OK)));
}

static void
random_conn(struct srig *rig, uint32_t link, struct random *random)
{
    if (rig->conns[link].connecting) {
        if (random_below(random, 3) == 0)
            srig_lose(rig, link);
        else
            srig_connect(rig, link);
        return;
    }
    if (!rig->conns[link].open)
        return;
    if (random_below(random, 200) == 0) {
        srig_lose(rig, link);
        return;
    }
    unsigned some = (unsigned)random_below(random, 8);
    while (
        rig->conns[link].open && some-- > 0 && srig_next(rig, link)[0] != '\0')
        if (text_equal(rig->words[0], TEXT("EVALSHA")))
            random_reply(rig, link, random);
        else if (random_below(random, 300) == 0)
            srig_error(rig, link, "ERR no");
        else
            srig_answer(rig, link);
}

static void
faults(enum store_topology topology)
{
    struct srig *rig =
        topology == STORE_CLUSTER ? srig_cluster() : srig_single();
    struct random random;
    uint64_t submitted = 0;
    uint64_t returned = 0;

    seed_random(&random, "store_route");
    for (unsigned i = 0; i < EVENTS; i++) {
        if (rig->op_count == SRIG_OPS && rig->done_count == SRIG_OPS) {
            returned += rig->done_count;
            rig->op_count = rig->done_count = 0;
            memset(rig->done, 0, sizeof(rig->done));
        }
        if (rig->op_count < SRIG_OPS && random_below(&random, 2) == 0) {
            struct op *op =
                srig_op(rig, (enum op_kind)random_below(&random, OP_KIND_COUNT),
                    (uint16_t)(random_below(&random, 4) * 4500));
            if (random_below(&random, 3) == 0)
                op->deadline_us = rig->now_us + random_below(&random, 100000);
            submitted++;
        }
        random_conn(rig,
            random_below(&random, 5) == 0 ? CONN_SUBSCRIBER
                                          : (uint32_t)random_below(&random, 6),
            &random);
        if (random_below(&random, 3000) == 0)
            rig->map[0].port = 7000 + (int64_t)random_below(&random, 6);
        rig->now_us += random_below(&random, 20000);
        srig_turn(rig);
    }
    /* Nobody answers any more: all of it comes back in time. */
    for (int i = 0; i < 20; i++) {
        for (uint32_t link = 0; link < CONN_COUNT; link++)
            if (rig->conns[link].open)
                srig_lose(rig, link);
        srig_pass(rig, 1000);
    }
    returned += rig->done_count;
    printf("store: %" PRIu64 " operations\n", submitted);
    ck_assert_uint_eq(returned, submitted);
    ck_assert_uint_gt(submitted, EVENTS / 20);
    srig_end(rig);
}

START_TEST(faults_of_one)
{
    faults(STORE_SINGLE);
}

END_TEST

START_TEST(faults_of_a_cluster)
{
    faults(STORE_CLUSTER);
}

END_TEST

Suite *
store_route_suite(void)
{
    Suite *suite = suite_create("store_route");
    TCase *tests = tcase_create("store_route");

    tcase_set_timeout(tests, 300);
    tcase_add_test(tests, slots);
    tcase_add_test(tests, map_without_hosts);
    tcase_add_test(tests, odd_host);
    tcase_add_loop_test(
        tests, malformed_map, 0, sizeof(malformed) / sizeof(malformed[0]));
    tcase_add_test(tests, no_map);
    tcase_add_test(tests, map_of_another_cluster);
    tcase_add_test(tests, map_now_and_then);
    tcase_add_test(tests, moved_to_a_known_node);
    tcase_add_loop_test(tests, moved_to_an_unknown_node, 0,
        sizeof(unknown_nodes) / sizeof(unknown_nodes[0]));
    tcase_add_loop_test(
        tests, redirect_to_nowhere, 0, sizeof(nonsense) / sizeof(nonsense[0]));
    tcase_add_test(tests, ask);
    tcase_add_test(tests, ask_after_many_refusals);
    tcase_add_test(tests, ask_then_moved);
    tcase_add_test(tests, ask_to_the_dead);
    tcase_add_test(tests, tryagain);
    tcase_add_test(tests, queue_follows_the_map);
    tcase_add_test(tests, slot_of_nobody);
    tcase_add_test(tests, map_that_knows_less);
    tcase_add_test(tests, map_without_an_address);
    tcase_add_test(tests, map_of_who_has_slots);
    tcase_add_test(tests, subscriber_moves);
    tcase_add_test(tests, subscriber_stays);
    tcase_add_test(tests, nodes_retire);
    tcase_add_test(tests, faults_of_one);
    tcase_add_test(tests, faults_of_a_cluster);
    suite_add_tcase(suite, tests);
    return suite;
}

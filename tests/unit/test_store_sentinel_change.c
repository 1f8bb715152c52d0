/*
 * Tests of daemon/store/node/sentinel.c: the master is lost, is another
 * one, or is none, and what becomes of operations meanwhile.
 */
#include "tests/unit/sentinel_rig.h"

#include <stdio.h>

Suite *store_sentinel_change_suite(void);

/* It is the master, once they have all been asked again. */
static void
expect_master(struct srig *rig, uint16_t port)
{
    sen_run(rig, 510);
    ck_assert(store_ready(rig->store));
    ck_assert(sen_has_conn(rig, port));
}

/* --- the master is lost --------------------------------------------------- */

SRIG_TEST(loss_asks_all, sen_ready())
{
    sen_silence(rig, 0, 2);
    sen_run(rig, 10);
    sen_not_asked(rig);
    srig_lose(rig, 3);
    sen_asked(rig);
}

/* The three have a question each when the master is lost: answers to them are
 * void, and two answers to those that follow make it the master again. */
static void
lose_during_questions(struct srig *rig)
{
    for (uint32_t i = 0; i < 3; i++)
        srig_expect(rig, i, QUESTION);
    srig_lose(rig, 3);
    sen_run(rig, 200);
    ck_assert(sen_no_conn(rig));
    sen_not_asked(rig);
    for (uint32_t i = 0; i < 3; i++)
        sen_answer_late(rig, i);
    sen_run(rig, 0);
    ck_assert(sen_no_conn(rig));
    for (uint32_t i = 0; i < 2; i++) {
        srig_exchange(rig, i, QUESTION);
        srig_turn(rig);
        ck_assert(sen_no_conn(rig) == (i == 0));
    }
    ck_assert(rig->conns[3].connecting);
    sen_run(rig, 0);
    ck_assert(rig->conns[3].open);
}

/* An answer to a question that was sent before does not count. */
SRIG_TEST(loss_voids_votes, sen_ready())
{
    sen_silence(rig, 0, 2);
    sen_run(rig, 600);
    ck_assert(store_ready(rig->store));
    lose_during_questions(rig);
}

/* Nor where there was no majority any more when it was lost. */
SRIG_TEST(loss_without_a_master, sen_ready())
{
    sen_trust_ends(rig);
    lose_during_questions(rig);
}

/* In flight: unknown, as with any topology. Queued: to the next master. */
SRIG_TEST(loss_with_operations, sen_ready())
{
    struct op *ops = srig_in_flight(rig, 3, 12);

    sen_name_all(rig, "7001");
    srig_lose(rig, 3);
    srig_statuses(rig, ops, 0, 8, OP_UNKNOWN);
    ck_assert_uint_eq(rig->done_count, 8);
    /* At once: the new one has no pause to keep. */
    sen_run(rig, 0);
    ck_assert(sen_has_conn(rig, 7001));
    srig_statuses(rig, ops, 8, 12, OP_OK);
    ck_assert_uint_eq(rig->conns[3].connects, 1);
}

/* A master that cannot be reached is asked for again, each time. */
SRIG_TEST(loss_while_connecting, srig_create(STORE_SENTINEL, 3))
{
    sen_silence(rig, 3, 3);
    srig_start(rig);
    sen_run(rig, 10);
    ck_assert(rig->conns[3].connecting);
    srig_lose(rig, 3);
    sen_asked_anew(rig);
    sen_run(rig, 100);
    ck_assert_uint_eq(rig->conns[3].connects, 2);
    /* Nobody answers there. */
    sen_run(rig, 10000);
    ck_assert_uint_ge(rig->conns[3].connects, 5);
    ck_assert_uint_le(rig->conns[3].connects, 9);
    sen_name_all(rig, "7001");
    expect_master(rig, 7001);
}

/* It is the same one again, whose dead connection is killed first. */
SRIG_TEST(loss_and_the_same_again, sen_ready())
{
    srig_lose(rig, 3);
    sen_silence(rig, 3, 3);
    sen_run(rig, 100);
    sen_wake(rig, 3, 3);
    srig_connect(rig, 3);
    srig_introduce(rig, 3);
    srig_exchange(rig, 3, "CLIENT KILL ID 100");
    sen_run(rig, 0);
    ck_assert(store_ready(rig->store));
}

/* --- +switch-master ------------------------------------------------------- */

SRIG_TEST(switch_is_a_hint, sen_ready())
{
    sen_silence(rig, 0, 2);
    sen_run(rig, 5);
    sen_switched(rig);
    sen_asked(rig);
    /* Nobody has answered: the old one is the master. */
    ck_assert(store_ready(rig->store));
    sen_works(rig, OP_ACQUIRE, 200);
    ck_assert_uint_eq(rig->conns[3].closes, 0);
    ck_assert(!sen_has_conn(rig, 7001));
    /* Nor is it news for the core. */
    struct text news;
    struct store_hint hint;
    ck_assert(!store_take_news(rig->store, &news));
    ck_assert(!store_take_hint(rig->store, &hint));
}

/* A message between brokers is none. */
SRIG_TEST(news_is_no_hint, sen_ready())
{
    sen_silence(rig, 0, 2);
    srig_message(rig, CONN_SUBSCRIBER, "holdfast/broker/watch", TEXT("Wname"));
    srig_turn(rig);
    sen_not_asked(rig);
}

/* A question under way counts, and is asked once more. */
SRIG_TEST(switch_during_a_question, sen_ready())
{
    sen_silence(rig, 0, 0);
    sen_run(rig, 500);
    sen_switched(rig);
    sen_run(rig, 5);
    srig_expect(rig, 0, QUESTION);
    srig_expect(rig, 0, "");
    srig_answer(rig, 0);
    sen_run(rig, 0);
    srig_expect(rig, 0, QUESTION);
    ck_assert(store_ready(rig->store));
}

/* --- the master changes --------------------------------------------------- */

/* While the old one answers; and back. */
SRIG_TEST(master_changes, sen_ready())
{
    struct op *ops = srig_in_flight(rig, 3, 12);

    sen_silence(rig, 3, 3);
    sen_name_all(rig, "7001");
    sen_switched(rig);
    sen_run(rig, 0);
    ck_assert(!rig->conns[3].open);
    ck_assert_uint_eq(rig->conns[3].closes, 1);
    srig_results(rig, 3, 4, RECORD_OK);
    srig_statuses(rig, ops, 0, 8, OP_UNKNOWN);
    srig_statuses(rig, ops, 8, 12, OP_OK);
    /* Nothing more goes to the old one, for as long as it takes. */
    sen_wake(rig, 3, 3);
    for (int i = 0; i < 30; i++) {
        sen_works(rig, OP_RENEW, 200);
        ck_assert(!sen_has_conn(rig, 7000));
    }
    ck_assert_uint_eq(rig->conns[3].connects, 1);
    uint32_t link = sen_find_conn(rig, 7001);
    ck_assert_uint_eq(rig->conns[link].connects, 1);
    sen_name_all(rig, "7000");
    sen_run(rig, 510);
    sen_works(rig, OP_RENEW, 100);
    ck_assert(!sen_has_conn(rig, 7001));
    ck_assert(sen_has_conn(rig, 7000));
    ck_assert_uint_eq(rig->conns[link].closes, 1);
}

SRIG_TEST(minority_changes_nothing, sen_ready())
{
    sen_name(rig, 0, "7001");
    for (int i = 0; i < 20; i++) {
        sen_works(rig, OP_RENEW, 200);
        ck_assert(!sen_has_conn(rig, 7001));
    }
    ck_assert_uint_eq(rig->conns[3].closes, 0);
}

/* The one that has no majority any more, and the one that has none yet. */
SRIG_TEST(change_one_by_one, sen_ready())
{
    sen_name(rig, 0, "7001");
    sen_name(rig, 1, NULL);
    sen_run(rig, 510);
    ck_assert(!store_ready(rig->store));
    ck_assert(rig->conns[3].open);
    struct op *op = srig_op(rig, OP_RENEW, 0);
    sen_run(rig, 1000);
    ck_assert(!srig_done(rig, op));
    ck_assert(!sen_has_conn(rig, 7001));
    sen_name(rig, 1, "7001");
    sen_run(rig, 510);
    srig_status(rig, op, OP_OK);
    ck_assert(!sen_has_conn(rig, 7000));
}

SRIG_TEST(change_while_connecting, srig_create(STORE_SENTINEL, 3))
{
    sen_silence(rig, 3, 3);
    srig_start(rig);
    struct op *op = srig_op(rig, OP_ACQUIRE, 0);
    sen_run(rig, 10);
    ck_assert(rig->conns[3].connecting);
    sen_name_all(rig, "7001");
    sen_run(rig, 510);
    srig_status(rig, op, OP_OK);
    ck_assert(!rig->conns[3].connecting);
    /* It comes too late. */
    store_connected(
        rig->store, (struct store_conn){3, rig->conns[3].serial}, rig->now_us);
    srig_expect(rig, 3, "");
}

SRIG_TEST(subscriber_follows, sen_ready())
{
    struct srig_conn *subscriber = &rig->conns[CONN_SUBSCRIBER];

    ck_assert_uint_eq(subscriber->port, 7000);
    (void)store_take_unheard(rig->store);
    sen_name_all(rig, "7001");
    sen_run(rig, 700);
    ck_assert(subscriber->open);
    ck_assert_uint_eq(subscriber->port, 7001);
    ck_assert_uint_eq(subscriber->closes, 1);
    ck_assert(store_take_unheard(rig->store));
    /* It stays while nobody is trusted, and where it is the same again. */
    sen_silence(rig, 0, 2);
    sen_run(rig, 4000);
    ck_assert(!store_ready(rig->store));
    ck_assert_uint_eq(subscriber->closes, 1);
    sen_wake(rig, 0, 2);
    sen_run(rig, 2000);
    ck_assert(store_ready(rig->store));
    ck_assert_uint_eq(subscriber->closes, 1);
}

/* --- a master that is none ------------------------------------------------ */

SRIG_TEST(named_replica, srig_create(STORE_SENTINEL, 3))
{
    const char *master = rig->info;

    rig->info = "redis_version:7.0.1\r\nrole:slave\r\ncluster_enabled:0\r\n";
    srig_start(rig);
    struct op *op = srig_op(rig, OP_ACQUIRE, 0);
    sen_silence(rig, 3, 3);
    sen_run(rig, 10);
    srig_connect(rig, 3);
    srig_exchange(rig, 3, "INFO");
    ck_assert_uint_eq(rig->conns[3].closes, 1);
    sen_asked_anew(rig);
    sen_wake(rig, 3, 3);
    sen_run(rig, 490);
    ck_assert_uint_eq(rig->conns[3].connects, 1);
    sen_run(rig, 2600);
    ck_assert_uint_ge(rig->conns[3].connects, 4);
    ck_assert_uint_le(rig->conns[3].connects, 7);
    ck_assert(!store_ready(rig->store));
    ck_assert(!srig_done(rig, op));
    rig->info = master;
    sen_run(rig, 800);
    srig_status(rig, op, OP_OK);
}

static const char demoted[] =
    "READONLY You can't write against a read only replica";

/* A demoted master says so by READONLY; what asked goes to the next one. */
SRIG_TEST(readonly, sen_ready())
{
    struct op *ops = srig_in_flight(rig, 3, 8);

    srig_error(rig, 3, demoted);
    ck_assert_uint_eq(rig->conns[3].closes, 1);
    ck_assert_uint_eq(rig->done_count, 4);
    sen_name_all(rig, "7001");
    sen_asked_anew(rig);
    sen_run(rig, 100);
    srig_statuses(rig, ops, 0, 4, OP_OK);
    srig_statuses(rig, ops, 4, 8, OP_UNKNOWN);
    ck_assert(!sen_has_conn(rig, 7000));
    /* The new one is not taken for a demoted one. */
    sen_works(rig, OP_RENEW, 0);
}

/* The same node is promoted again. */
SRIG_TEST(readonly_and_back, sen_ready())
{
    struct op *op = srig_op(rig, OP_RENEW, 0);

    srig_sends(rig, 3, "EVALSHA 1");
    srig_error(rig, 3, demoted);
    sen_run(rig, 2000);
    srig_status(rig, op, OP_OK);
    ck_assert_uint_eq(rig->conns[3].closes, 1);
    ck_assert_uint_eq(rig->conns[3].connects, 2);
}

/* An error that a master may say as well is no reason to leave it. */
SRIG_TEST(other_refusals, sen_ready())
{
    static const char *const errors[] = {"OOM x", "BUSY x", "NOREPLICAS x",
        "MISCONF x", "LOADING x", "MASTERDOWN x"};

    for (size_t i = 0; i < sizeof(errors) / sizeof(errors[0]); i++) {
        struct op *op = srig_op(rig, OP_RENEW, 0);
        srig_sends(rig, 3, "EVALSHA 1");
        srig_error(rig, 3, errors[i]);
        sen_run(rig, 100);
        srig_status(rig, op, OP_OK);
    }
    ck_assert_uint_eq(rig->conns[3].closes, 0);
}

/* --- nodes come and go ---------------------------------------------------- */

/* A port as text, until the next call. */
static const char *
port_text(unsigned port)
{
    static char text[8];

    snprintf(text, sizeof(text), "%u", port);
    return text;
}

SRIG_TEST(thousand_changes, sen_ready())
{
    for (unsigned i = 0; i < 1000; i++) {
        sen_name_all(rig, port_text(10000 + i));
        sen_switched(rig);
        if (i % 100 == 0)
            sen_run(rig, 300);
        sen_run(rig, 1);
        ck_assert(store_ready(rig->store));
        ck_assert(sen_has_conn(rig, (uint16_t)(10000 + i)));
        sen_run(rig, 1);
    }
    ck_assert_uint_le(rig->store->node_count, 3 + 4);
    for (uint32_t i = 0; i < 3; i++)
        ck_assert_uint_eq(rig->conns[i].closes, 0);
}

/* The third one names 7001, and since then the others have named 7002. */
static struct srig *
outvoted(void)
{
    struct srig *rig = sen_ready();

    sen_name(rig, 2, "7001");
    sen_run(rig, 510);
    sen_name(rig, 0, "7002");
    sen_name(rig, 1, "7002");
    expect_master(rig, 7002);
    return rig;
}

/* A node that one of them names stays; without a connection. */
SRIG_TEST(named_by_a_minority, outvoted())
{
    sen_name_all(rig, "7001");
    expect_master(rig, 7001);
    ck_assert(!sen_has_conn(rig, 7002));
}

/* Nor has another address its vote, while it is silent. */
SRIG_TEST(vote_of_the_silent, outvoted())
{
    sen_silence(rig, 2, 2);
    sen_name(rig, 1, NULL);
    for (unsigned i = 0; i < 4; i++) {
        sen_name(rig, 0, port_text(7003 + i));
        sen_switched(rig);
        sen_run(rig, 1);
        ck_assert(!store_ready(rig->store));
        for (uint16_t port = 7003; port < 7007; port++)
            ck_assert(!sen_has_conn(rig, port));
    }
}

/* The inventions of a single one do not use up the others' places. */
SRIG_TEST(thousand_names_of_one, sen_ready())
{
    for (unsigned i = 0; i < 1000; i++) {
        sen_name(rig, 0, port_text(10000 + i));
        sen_switched(rig);
        sen_run(rig, 1);
        ck_assert(store_ready(rig->store));
    }
    sen_name(rig, 1, "7001");
    sen_name(rig, 2, "7001");
    expect_master(rig, 7001);
}

/* The pauses of the one whose place it has are none of its own. */
SRIG_TEST(pauses_of_a_new_node, sen_ready())
{
    sen_silence(rig, 3, 3);
    srig_lose(rig, 3);
    for (int i = 0; i < 10000; i++) {
        sen_run(rig, 1);
        if (rig->conns[3].connecting)
            srig_lose(rig, 3);
    }
    sen_name_all(rig, "7001");
    sen_run(rig, 600);
    sen_name_all(rig, "7002");
    sen_switched(rig);
    sen_run(rig, 10);
    ck_assert_uint_eq(sen_find_conn(rig, 7002), 3);
    uint32_t connects = rig->conns[3].connects;
    srig_lose(rig, 3);
    sen_run(rig, 80);
    ck_assert_uint_eq(rig->conns[3].connects, connects + 1);
}

static void
add_losses(TCase *tests)
{
    tcase_add_test(tests, loss_asks_all);
    tcase_add_test(tests, loss_voids_votes);
    tcase_add_test(tests, loss_without_a_master);
    tcase_add_test(tests, loss_with_operations);
    tcase_add_test(tests, loss_while_connecting);
    tcase_add_test(tests, loss_and_the_same_again);
    tcase_add_test(tests, switch_is_a_hint);
    tcase_add_test(tests, news_is_no_hint);
    tcase_add_test(tests, switch_during_a_question);
}

static void
add_changes(TCase *tests)
{
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
    tcase_add_test(tests, thousand_names_of_one);
    tcase_add_test(tests, pauses_of_a_new_node);
}

Suite *
store_sentinel_change_suite(void)
{
    Suite *suite = suite_create("store_sentinel_change");
    TCase *tests = tcase_create("store_sentinel_change");

    tcase_set_timeout(tests, 120);
    add_losses(tests);
    add_changes(tests);
    suite_add_tcase(suite, tests);
    return suite;
}

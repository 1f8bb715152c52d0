/*
 * Tests of daemon/store/conn/health.c, and of what the rest of the store tells
 * it: whether locks can be granted, which node is to blame, why, and for how
 * long.
 */
#include "tests/unit/log_kept.h"
#include "tests/unit/sentinel_rig.h"

#include "daemon/store/node/conn.h"

#include <stdio.h>
#include <string.h>

Suite *store_health_suite(void);

#define SETTLE_MS 10000

static const struct health *
health_of(const struct srig *rig)
{
    return store_health(rig->store);
}

static void
is_ready(const struct srig *rig)
{
    ck_assert(health_of(rig)->ready);
    ck_assert_int_eq(health_of(rig)->reason, HEALTH_FINE);
}

static void
is_blamed(const struct srig *rig, uint16_t node, enum health_reason reason)
{
    const struct health *health = health_of(rig);

    ck_assert(!health->ready);
    ck_assert_str_eq(health_word(health->reason), health_word(reason));
    ck_assert_uint_eq(health->node, node);
}

static struct srig *
begin(enum store_topology topology, uint64_t settle_ms)
{
    struct srig *rig = srig_create(topology, 1);

    rig->settings.settle_us = settle_ms * 1000;
    log_keep(LOG_INFO);
    srig_start(rig);
    return rig;
}

/* --- the handshake -------------------------------------------------------- */

static const struct {
    const char *info; /* or an error of INFO */
    enum health_reason reason;
    bool cluster; /* as configured */
} unfit[] = {
    {"redis_version:7.0.1\r\nloading:1\r\n", HEALTH_LOADING, false},
    {"redis_version:7.0.1\r\ncluster_enabled:1\r\n", HEALTH_IN_CLUSTER, false},
    {"redis_version:7.0.1\r\ncluster_enabled:0\r\n", HEALTH_NO_CLUSTER, true},
    {"redis_version:7.0.1\r\nrole:slave\r\n", HEALTH_REPLICA, false},
    {"redis_version:6.2.1\r\nrole:master\r\n", HEALTH_VERSION, false},
    {"redis_version:7.0.1\r\nredis_mode:sentinel\r\n", HEALTH_SENTINEL, false},
    {"redis_version:7.0.1\r\nredis_mode:sentinel\r\n", HEALTH_SENTINEL, true},
    {"NOAUTH Authentication required.", HEALTH_PASSWORD_MISSING, false},
    {"WRONGPASS invalid username-password pair", HEALTH_PASSWORD, false},
    {"ERR AUTH <password> called without any password configured",
        HEALTH_PASSWORD_UNUSED, false},
    {"NOPERM this user has no permissions to run the 'info' command",
        HEALTH_RIGHTS, false},
    {"DENIED Redis is running in protected mode", HEALTH_PROTECTED, false},
    {"ERR max number of clients reached", HEALTH_CLIENTS, false},
    {"ERR unknown command 'INFO'", HEALTH_COMMAND, false},
    {"ERR \x01 what", HEALTH_ERROR, false},
};

START_TEST(handshake_refused)
{
    const char *info = unfit[_i].info;
    struct srig *rig =
        begin(unfit[_i].cluster ? STORE_CLUSTER : STORE_SINGLE, 0);

    is_blamed(rig, 0, HEALTH_CONNECTING);
    ck_assert_uint_eq(log_kept_count("event=unready"), 0);
    rig->info = info;
    for (unsigned i = 0; i < 400; i++) {
        srig_pass(rig, 500);
        if (rig->conns[0].connecting)
            srig_connect(rig, 0);
        if (!rig->conns[0].open || strcmp(srig_next(rig, 0), "INFO") != 0)
            continue;
        if (strchr(info, ':') == NULL)
            srig_error(rig, 0, info);
        else
            srig_answer(rig, 0);
    }
    srig_turn(rig);
    is_blamed(rig, 0, unfit[_i].reason);
    /* Now and then, not once, and not each time. */
    ck_assert_uint_ge(rig->conns[0].connects, 20);
    ck_assert_uint_ge(log_kept_count("event=unready"), 3);
    ck_assert_uint_le(log_kept_count("event=unready"), 4);
    unsigned said = log_kept_count("event=redis_unfit") +
                    log_kept_count("event=redis_refuses ");
    ck_assert_uint_ge(said, 3);
    ck_assert_uint_le(said, 4);
    struct health_why why = health_why(health_of(rig));
    char text[HEALTH_TEXT_MAX];
    (void)health_text(&why, true, text);
    ck_assert_ptr_nonnull(strstr(text, "10.0.0.1:7000: "));
    ck_assert_ptr_null(strchr(text, '\x01'));
    srig_end(rig);
}

END_TEST

/* --- connections ---------------------------------------------------------- */

SRIG_TEST(connection_lost, begin(STORE_SINGLE, 0))
{
    srig_settle(rig);
    is_ready(rig);
    ck_assert_uint_eq(log_kept_count("level=info event=ready"), 1);
    rig->conns[0].silent = true;
    srig_lose(rig, 0);
    srig_turn(rig);
    uint64_t since_us = rig->now_us;
    is_blamed(rig, 0, HEALTH_CLOSED);
    ck_assert_uint_eq(log_kept_count("level=warn event=unready reason=closed "
                                     "node=10.0.0.1:7000 since_ms=0"),
        1);
    ck_assert_str_eq(health_state(&health_of(rig)->nodes[0]), "away");
    ck_assert_str_eq(health_of(rig)->nodes[0].said, "lost");
    srig_pass(rig, 2000); /* nobody accepts */
    is_blamed(rig, 0, HEALTH_SILENT);
    ck_assert_uint_eq(log_kept_count("event=unready reason=silent"), 1);
    ck_assert_uint_eq(health_of(rig)->since_us, since_us);
    ck_assert_uint_eq(health_of(rig)->nodes[0].since_us, since_us);
    rig->conns[0].silent = false;
    for (int i = 0; i < 5; i++)
        srig_settle(rig);
    is_ready(rig);
    ck_assert_uint_eq(log_kept_count("event=ready"), 2);
}

SRIG_TEST(settles, begin(STORE_SINGLE, SETTLE_MS))
{
    srig_settle(rig);
    is_blamed(rig, 0, HEALTH_SETTLING);
    struct health_why why = health_why(health_of(rig));
    uint64_t left_ms = health_left_ms(&why, rig->now_us);
    ck_assert_uint_gt(left_ms, SETTLE_MS - 2000);
    ck_assert_uint_le(left_ms, SETTLE_MS);
    ck_assert_str_eq(health_state(why.node), "settling");
    ck_assert_uint_eq(
        log_kept_count("level=info event=unready reason=settling"), 1);
    for (int i = 0; i < 40; i++)
        srig_settle(rig);
    is_ready(rig);
}

/* --- the refused command -------------------------------------------------- */

static const struct {
    const char *error;
    enum health_reason reason;
} refusals[] = {
    {"OOM command not allowed", HEALTH_FULL},
    {"NOREPLICAS Not enough good replicas", HEALTH_REPLICAS_TOO_FEW},
    {"MISCONF Redis is configured to save", HEALTH_NOT_SAVED},
    {"CLUSTERDOWN The cluster is down", HEALTH_CLUSTER_DOWN},
    {"BUSY Redis is busy", HEALTH_BUSY},
};

/* The marker meets it where no client does, and its end. */
SRIG_TEST(refuses_when_idle, begin(STORE_SINGLE, 0))
{
    unsigned errors = 0;

    srig_settle(rig);
    is_ready(rig);
    for (unsigned ms = 0; ms < 30000; ms += 100) {
        srig_pass(rig, 100);
        const char *command = srig_next(rig, 0);
        bool set = strncmp(command, "SET ", 4) == 0;
        if (set && ++errors < 5)
            srig_error(rig, 0, refusals[_i].error);
        else if (command[0] != '\0')
            srig_answer(rig, 0);
        srig_serve(rig, 0);
        srig_turn(rig);
        if (errors > 0 && errors < 5) {
            is_blamed(rig, 0, refusals[_i].reason);
            ck_assert_str_eq(
                health_state(&health_of(rig)->nodes[0]), "refusing");
        } else {
            is_ready(rig);
        }
    }
    ck_assert_uint_ge(errors, 5);
    ck_assert_uint_eq(log_kept_count("event=unready"), 1);
    ck_assert_uint_eq(log_kept_count("event=redis_refuses_for_now"), 1);
    ck_assert_uint_eq(log_kept_count("event=ready"), 2);
}

/* A release is taken by a full Redis, and proves nothing. */
SRIG_TEST(only_what_grants_proves, begin(STORE_SINGLE, 0))
{
    srig_settle(rig);
    (void)srig_op(rig, OP_ACQUIRE, 0);
    srig_sends(rig, 0, "EVALSHA 1");
    srig_error(rig, 0, refusals[0].error);
    (void)srig_op(rig, OP_RELEASE, 0);
    srig_turn(rig);
    is_blamed(rig, 0, HEALTH_FULL);
    srig_expect(rig, 0, "EVALSHA 1");
    srig_results(rig, 0, 1, RECORD_OK);
    srig_turn(rig);
    is_blamed(rig, 0, HEALTH_FULL);
    srig_pass(rig, 80);
    srig_expect(rig, 0, "EVALSHA 1");
    srig_results(rig, 0, 1, RECORD_OK);
    srig_turn(rig);
    is_ready(rig);
}

/* Of rights the marker says nothing: a script is run. */
SRIG_TEST(rights_come_back, begin(STORE_SINGLE, 0))
{
    unsigned probes = 0;

    srig_settle(rig);
    struct op *op = srig_op(rig, OP_ACQUIRE, 0);
    srig_sends(rig, 0, "EVALSHA 1");
    srig_error(rig, 0, "NOPERM this user has no permissions");
    srig_hurry(rig, op);
    for (unsigned ms = 0; ms < 30000; ms += 100) {
        srig_pass(rig, 100);
        const char *command = srig_next(rig, 0);
        if (strcmp(command, "EVALSHA 0") == 0 && ++probes > 2)
            srig_bytes(rig, 0, "no results", 10);
        else if (command[0] == 'E')
            srig_error(rig, 0, "NOPERM this user has no permissions");
        else if (command[0] != '\0')
            srig_answer(rig, 0);
        srig_turn(rig);
        if (probes <= 2)
            is_blamed(rig, 0, HEALTH_RIGHTS);
        else
            is_ready(rig);
    }
    ck_assert_uint_eq(probes, 3);
}

/* A user's rights are looked at before anybody asks for a lock: all together,
 * and again until they are there. */
SRIG_TEST(rights_are_probed, srig_create(STORE_SINGLE, 1))
{
    static const char *const asked[] = {"SET holdfast:probe ? PX 1000",
        "GETRANGE holdfast:probe 0 0", "SETRANGE holdfast:probe 0 ?",
        "STRLEN holdfast:probe", "PEXPIRE holdfast:probe 1000", "EVALSHA 0"};

    rig->settings.settle_us = 0;
    snprintf(rig->settings.username, sizeof(rig->settings.username), "user");
    snprintf(rig->settings.password, sizeof(rig->settings.password), "secret");
    log_keep(LOG_INFO);
    srig_start(rig);
    srig_connect(rig, 0);
    for (int turn = 0; turn < 3; turn++) {
        for (size_t i = 0; i < sizeof(asked) / sizeof(asked[0]);) {
            const char *command = srig_next(rig, 0);
            if (command[0] == '\0') {
                srig_pass(rig, 100);
                continue;
            }
            ck_assert(!health_of(rig)->ready);
            if (strcmp(command, asked[i]) != 0) {
                srig_answer(rig, 0);
                continue;
            }
            if (turn == 0 && (i == 2 || i == 4))
                srig_error(rig, 0,
                    i == 2 ? "NOPERM no right to SETRANGE" : "NOPERM other");
            else if (turn == 1)
                srig_error(rig, 0, "NOPERM no right to this key");
            else if (i == 5)
                srig_bytes(rig, 0, "no results", 10);
            else
                srig_answer(rig, 0);
            i++;
        }
        srig_turn(rig);
        if (turn == 2)
            break;
        is_blamed(rig, 0, HEALTH_RIGHTS);
        ck_assert_str_eq(health_of(rig)->nodes[0].said,
            turn == 0 ? "NOPERM no right to SETRANGE, nor PEXPIRE"
                      : "NOPERM no right to this key");
    }
    is_ready(rig);
}

START_TEST(long_texts_are_cut_for_all_to_see)
{
    char out[8];

    health_copy(out, sizeof(out), TEXT("1234567"));
    ck_assert_str_eq(out, "1234567");
    health_copy(out, sizeof(out), TEXT("12345678"));
    ck_assert_str_eq(out, "1234...");
}

END_TEST

/* --- topologies ----------------------------------------------------------- */

SRIG_TEST(slots_have_reasons, srig_cluster())
{
    const struct health *health = health_of(rig);

    is_ready(rig);
    rig->conns[1].silent = true;
    srig_lose(rig, 1);
    srig_turn(rig);
    is_blamed(rig, 1, HEALTH_CLOSED);
    ck_assert_int_eq(health_why_slot(health, 0).reason, HEALTH_FINE);
    struct health_why why = health_why_slot(health, 5000);
    ck_assert_int_eq(why.reason, HEALTH_CLOSED);
    ck_assert_str_eq(why.node->name, "10.0.0.1:7001");
    rig->conns[1].silent = false;
    rig->map[1].last = 5001; /* nobody has the rest */
    for (int i = 0; i < 40; i++)
        srig_settle(rig);
    is_blamed(rig, HEALTH_NO_NODE, HEALTH_SLOTS);
    ck_assert_int_eq(health_why_slot(health, 5001).reason, HEALTH_FINE);
    ck_assert_int_eq(health_why_slot(health, 5002).reason, HEALTH_SLOTS);
    ck_assert_ptr_null(health_why_slot(health, 5002).node);
}

SRIG_TEST(a_majority_is_enough, srig_quorum(3))
{
    is_ready(rig);
    for (uint32_t i = 0; i < 2; i++) {
        rig->conns[i].silent = true;
        srig_lose(rig, i);
        srig_turn(rig);
        if (i == 0)
            is_ready(rig);
    }
    is_blamed(rig, 0, HEALTH_CLOSED);
}

SRIG_TEST(sentinels_and_their_master, sen_ready())
{
    is_ready(rig);
    sen_name_all(rig, NULL);
    sen_run(rig, 3000);
    is_blamed(rig, 0, HEALTH_MASTER_UNKNOWN);
    sen_name(rig, 0, "7000");
    sen_name(rig, 1, "7001");
    sen_name(rig, 2, "7002");
    sen_run(rig, 3000);
    is_blamed(rig, HEALTH_NO_NODE, HEALTH_NO_MASTER);
    sen_name_all(rig, "7000");
    sen_run(rig, 3000);
    is_ready(rig);
}

Suite *
store_health_suite(void)
{
    Suite *suite = suite_create("store_health");
    TCase *tests = tcase_create("health");

    tcase_add_loop_test(
        tests, handshake_refused, 0, sizeof(unfit) / sizeof(unfit[0]));
    tcase_add_test(tests, connection_lost);
    tcase_add_test(tests, settles);
    tcase_add_loop_test(
        tests, refuses_when_idle, 0, sizeof(refusals) / sizeof(refusals[0]));
    tcase_add_test(tests, only_what_grants_proves);
    tcase_add_test(tests, rights_come_back);
    tcase_add_test(tests, rights_are_probed);
    tcase_add_test(tests, long_texts_are_cut_for_all_to_see);
    tcase_add_test(tests, slots_have_reasons);
    tcase_add_test(tests, a_majority_is_enough);
    tcase_add_test(tests, sentinels_and_their_master);
    suite_add_tcase(suite, tests);
    return suite;
}

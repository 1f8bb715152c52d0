/*
 * Tests of daemon/store/node/conn.c: connections, from the greeting to the
 * loss, and what becomes of operations then; hints.
 */
#include "tests/unit/log_kept.h"
#include "tests/unit/store_rig.h"

#include <stdio.h>
#include <string.h>

Suite *store_link_suite(void);

SRIG_TEST(greeting, srig_create(STORE_SINGLE, 1))
{
    srig_credentials(rig);
    srig_start(rig);
    ck_assert(rig->conns[0].connecting);
    ck_assert_str_eq(rig->conns[0].host, "10.0.0.1");
    ck_assert_uint_eq(rig->conns[0].port, 7000);
    srig_connect(rig, 0);
    srig_greet(rig, 0);
    /* Then, and only then, the one for hints. */
    ck_assert(!rig->conns[CONN_SUBSCRIBER].connecting);
    srig_turn(rig);
    srig_connect(rig, CONN_SUBSCRIBER);
    ck_assert(!store_take_unheard(rig->store));
    srig_serve(rig, CONN_SUBSCRIBER);
    ck_assert(store_take_unheard(rig->store));
    ck_assert(!store_take_unheard(rig->store));
}

SRIG_TEST(greeting_refused, srig_create(STORE_SINGLE, 1))
{
    static const char *const errors[] = {
        "-WRONGPASS no", "-NOAUTH who", "-NOPERM no"};

    memcpy(rig->settings.password, "secret", 7);
    srig_start(rig);
    for (unsigned i = 0; i < 3; i++) {
        ck_assert_uint_eq(rig->conns[0].connects, i + 1);
        srig_connect(rig, 0);
        srig_expect(rig, 0, "AUTH secret");
        srig_error(rig, 0, errors[i]);
        srig_turn(rig);
        ck_assert_uint_eq(rig->conns[0].closes, i + 1);
        while (!rig->conns[0].connecting)
            srig_pass(rig, 1);
    }
    /* Its later answer is not heard. */
    srig_error(rig, 0, "-ERR late");
}

/* The log says that the refused connection is not the one for operations. */
SRIG_TEST(hints_are_refused, srig_create(STORE_SINGLE, 1))
{
    log_keep(LOG_WARN);
    srig_start(rig);
    srig_settle(rig);
    srig_lose(rig, CONN_SUBSCRIBER);
    srig_turn(rig);
    ck_assert_uint_eq(log_kept_count("event=redis_link_lost "
                                     "node=10.0.0.1:7000 use=hints why="),
        1);
    while (!rig->conns[CONN_SUBSCRIBER].connecting)
        srig_pass(rig, 1);
    srig_connect(rig, CONN_SUBSCRIBER);
    srig_error(rig, CONN_SUBSCRIBER, "-NOPERM no");
    srig_turn(rig);
    ck_assert_uint_eq(log_kept_count("event=redis_refuses "
                                     "node=10.0.0.1:7000 use=hints command="),
        1);
    ck_assert(store_ready(rig->store));
    srig_lose(rig, 0);
    srig_turn(rig);
    ck_assert_uint_eq(log_kept_count("event=redis_link_lost "
                                     "node=10.0.0.1:7000 why="),
        1);
}

/* Nor is anything to be had where no script is. */
/* Redis tells the words of a command that it does not know. */
SRIG_TEST(password_is_not_logged, srig_create(STORE_SINGLE, 1))
{
    memcpy(rig->settings.password, "hunter2", 8);
    srig_start(rig);
    srig_connect(rig, 0);
    log_keep(LOG_DEBUG);
    srig_error(rig, 0,
        "-ERR unknown command 'AUTH', with args beginning with: 'hunter2' ");
    srig_turn(rig);
    ck_assert_uint_eq(log_kept_count("unknown command 'AUTH'\""), 1);
    ck_assert_uint_eq(log_kept_count("hunter2"), 0);
}

SRIG_TEST(scripts_refused, srig_create(STORE_SINGLE, 1))
{
    srig_start(rig);
    srig_connect(rig, 0);
    srig_introduce(rig, 0);
    srig_exchange(rig, 0, "CLIENT SETNAME holdfastd");
    srig_expect(rig, 0, "LOAD");
    srig_error(rig, 0, "NOPERM no");
    srig_turn(rig);
    ck_assert_uint_eq(rig->conns[0].closes, 1);
    ck_assert(!store_ready(rig->store));
}

/* Nor can a node that has lost them and does not take them again. */
SRIG_TEST(scripts_refused_later, srig_single())
{
    struct op *op = srig_op(rig, OP_RENEW, 0);

    srig_sends(rig, 0, "EVALSHA 1");
    srig_error(rig, 0, "NOSCRIPT No matching script. Please use EVAL.");
    srig_sends(rig, 0, "LOAD");
    srig_error(rig, 0, "NOPERM no");
    srig_turn(rig);
    ck_assert_uint_eq(rig->conns[0].closes, 1);
    ck_assert(!store_ready(rig->store));
    srig_status(rig, op, OP_UNKNOWN); /* it was asked again behind that */
}

static const char *const unfit[] = {
    "redis_version:7.0.1\r\nloading:1\r\ncluster_enabled:0\r\n",
    "redis_version:7.0.1\r\nloading:0\r\ncluster_enabled:1\r\n",
    "redis_version:7.0.1\r\nrole:slave\r\ncluster_enabled:0\r\n",
    "redis_version:6.2.1\r\nrole:master\r\ncluster_enabled:0\r\n",
    "redis_version:7\r\ncluster_enabled:0",
    "redis_version:x.1\r\n",
    "\n\n\n:\r\nredis_version",
    "",
};

SRIG_TEST(unfit_server, srig_create(STORE_SINGLE, 1))
{
    rig->info = unfit[_i];
    srig_start(rig);
    srig_connect(rig, 0);
    srig_exchange(rig, 0, "INFO");
    ck_assert_uint_eq(rig->conns[0].closes, 1);
    ck_assert(!store_ready(rig->store));
}

/* INFO, ID and TIME that are none. */
SRIG_TEST(greeting_of_garbage, srig_create(STORE_SINGLE, 1))
{
    srig_start(rig);
    srig_connect(rig, 0);
    srig_expect(rig, 0, "INFO");
    srig_reply(rig, 0, &(struct resp){.type = RESP_INTEGER});
    ck_assert_uint_eq(rig->conns[0].closes, 1);
    srig_pass(rig, 2000);
    srig_connect(rig, 0);
    srig_exchange(rig, 0, "INFO");
    srig_expect(rig, 0, "CLIENT ID");
    srig_error(rig, 0, "-ERR no");
    srig_expect(rig, 0, "TIME");
    srig_reply(rig, 0, &(struct resp){.type = RESP_NIL});
    srig_serve(rig, 0);
    ck_assert(store_ready(rig->store));
}

SRIG_TEST(backoff_and_timeouts, srig_create(STORE_SINGLE, 1))
{
    uint64_t least = 50000;

    srig_start(rig);
    for (unsigned i = 0; i < 12; i++) {
        ck_assert(rig->conns[0].connecting);
        uint32_t connects = rig->conns[0].connects;
        if (i % 2 == 0) {
            /* Nobody answers. */
            srig_pass(rig, 999);
            ck_assert(rig->conns[0].connecting);
            srig_pass(rig, 1);
            ck_assert(!rig->conns[0].connecting);
        } else {
            srig_lose(rig, 0);
        }
        uint64_t lost_us = rig->now_us;
        while (rig->conns[0].connects == connects)
            srig_pass(rig, 1);
        uint64_t pause_us = rig->now_us - lost_us;
        ck_assert_uint_ge(pause_us, least - 1000);
        ck_assert_uint_le(pause_us, least + least / 2 + 2000);
        least = least * 2 > 1000000 ? 1000000 : least * 2;
    }
    srig_settle(rig);
    /* Once it was well the next pause is short. */
    srig_lose(rig, 0);
    srig_pass(rig, 77);
    ck_assert(rig->conns[0].connecting);
}

SRIG_TEST(greeting_takes_too_long, srig_create(STORE_SINGLE, 1))
{
    srig_start(rig);
    srig_connect(rig, 0);
    srig_pass(rig, 1999);
    ck_assert_uint_eq(rig->conns[0].closes, 0);
    srig_pass(rig, 2);
    ck_assert_uint_eq(rig->conns[0].closes, 1);
    ck_assert_uint_eq(srig_count(rig, COUNTER_redis_timeouts), 1);
}

/* A sent operation is unknown. Others are sent on the next connection. */
SRIG_TEST(conn_lost_with_operations, srig_single())
{
    struct op *ops = srig_in_flight(rig, 0, 12);

    srig_lose(rig, 0);
    srig_statuses(rig, ops, 0, 8, OP_UNKNOWN);
    ck_assert_uint_eq(rig->done_count, 8);
    srig_pass(rig, 100);
    srig_connect(rig, 0);
    srig_serve(rig, 0);
    srig_sends(rig, 0, "EVALSHA 4");
    srig_results(rig, 0, 4, RECORD_OK);
    srig_statuses(rig, ops, 8, 12, OP_OK);
}

SRIG_TEST(given_up_without_a_connection, srig_single())
{
    srig_lose(rig, 0);
    struct op *op = srig_op(rig, OP_ACQUIRE, 1);
    struct op *now = srig_op(rig, OP_ACQUIRE, 1);
    uint64_t end_us = op->deadline_us;
    now->deadline_us = rig->now_us;
    wheel_add(&rig->store->wheel, &op_own(now)->timer, rig->now_us);
    rig->now_us += 2000;
    srig_turn(rig);
    srig_status(rig, now, OP_UNSENT);
    while (rig->now_us + 2000 < end_us) {
        srig_pass(rig, 1);
        if (rig->conns[0].connecting)
            srig_lose(rig, 0);
    }
    ck_assert(!srig_done(rig, op));
    srig_pass(rig, 5);
    srig_status(rig, op, OP_UNSENT);
}

/* Settings that change meanwhile. */
SRIG_TEST(configured, srig_single())
{
    struct store_settings settings = rig->settings;

    settings.batch = 1;
    settings.in_flight = STORE_FLIGHT_MAX;
    settings.command_timeout_us = 100000;
    snprintf(settings.username, sizeof(settings.username), "you");
    snprintf(settings.password, sizeof(settings.password), "sesame");
    store_configure(rig->store, &settings);
    for (uint8_t i = 0; i < STORE_FLIGHT_MAX + 1; i++) {
        struct op *op = srig_draft(rig, OP_ACQUIRE, 1);
        op->session[0] = i;
        srig_submit(rig, op);
    }
    srig_turn(rig);
    for (int i = 0; i < STORE_FLIGHT_MAX; i++)
        srig_expect(rig, 0, "EVALSHA 1");
    srig_expect(rig, 0, "");
    srig_pass(rig, 101);
    ck_assert_uint_eq(srig_count(rig, COUNTER_redis_timeouts), 1);
    ck_assert_uint_eq(rig->done_count, STORE_FLIGHT_MAX);
    srig_pass(rig, 100);
    srig_turn(rig);
    srig_connect(rig, 0);
    srig_expect(rig, 0, "AUTH you sesame");
}

SRIG_TEST(command_timeout, srig_single())
{
    struct op *op = srig_op(rig, OP_RENEW, 1);

    srig_sends(rig, 0, "EVALSHA 1");
    srig_pass(rig, 1999);
    ck_assert(!srig_done(rig, op));
    srig_pass(rig, 2);
    srig_status(rig, op, OP_UNKNOWN);
    ck_assert_uint_eq(rig->conns[0].closes, 1);
    /* Its late answer is nobody's. */
    srig_results(rig, 0, 1, RECORD_OK);
}

/* A single one, that may be silent for ten seconds. */
static struct srig *
patient_rig(void)
{
    struct srig *rig = srig_create(STORE_SINGLE, 1);

    rig->settings.silence_us = 10000000;
    srig_start(rig);
    srig_settle(rig);
    return rig;
}

/* The answer to a renewal counts as long as its hold lasts; nothing is sent
 * behind it before it comes. */
SRIG_TEST(late_answer_counts, patient_rig())
{
    struct op *op = srig_draft(rig, OP_RENEW, 1);

    op->deadline_us = rig->now_us + 9000000;
    srig_submit(rig, op);
    srig_sends(rig, 0, "EVALSHA 1");
    srig_pass(rig, 2001);
    ck_assert(!store_ready(rig->store));
    ck_assert_uint_eq(srig_count(rig, COUNTER_redis_timeouts), 1);
    struct op *next = srig_op(rig, OP_ACQUIRE, 1);
    srig_sends(rig, 0, "");
    srig_pass(rig, 4000);
    ck_assert(!srig_done(rig, op));
    srig_results(rig, 0, 1, RECORD_OK);
    srig_status(rig, op, OP_OK);
    ck_assert(store_ready(rig->store));
    srig_turn(rig);
    srig_next(rig, 0);
    srig_answer(rig, 0); /* the marker's */
    srig_expect(rig, 0, "EVALSHA 1");
    srig_results(rig, 0, 1, RECORD_OK);
    srig_status(rig, next, OP_OK);
    ck_assert_uint_eq(rig->conns[0].closes, 0);
}

/* The client is told in time that nobody knows, no later than the end of the
 * lease that an earlier question may have got. The connection stays. */
SRIG_TEST(late_call_given_back, patient_rig())
{
    struct op *op = srig_op(rig, OP_ACQUIRE, 1); /* until in five seconds */
    struct op *hurried = srig_op(rig, OP_ACQUIRE, 2);
    op->over_us = rig->now_us + 4000000;

    rig->settings.batch = 1;
    store_configure(rig->store, &rig->settings);
    srig_sends(rig, 0, "EVALSHA 1");
    srig_expect(rig, 0, "EVALSHA 1");
    srig_pass(rig, 1000);
    srig_hurry(rig, hurried);
    srig_pass(rig, 1001);
    srig_status(rig, hurried, OP_UNKNOWN);
    srig_pass(rig, 1998);
    ck_assert(!srig_done(rig, op));
    srig_pass(rig, 2);
    srig_status(rig, op, OP_UNKNOWN);
    struct op *next = srig_op(rig, OP_ACQUIRE, 1);
    /* Late answers are nobody's. */
    srig_results(rig, 0, 1, RECORD_OK);
    srig_error(rig, 0, "-NOSCRIPT No matching script");
    srig_turn(rig);
    srig_next(rig, 0);
    srig_answer(rig, 0); /* the marker's */
    srig_expect(rig, 0, "EVALSHA 1");
    srig_results(rig, 0, 1, RECORD_OK);
    srig_status(rig, next, OP_OK);
    ck_assert_uint_eq(rig->conns[0].closes, 0);
}

SRIG_TEST(silent_link_given_up, patient_rig())
{
    struct op *op = srig_draft(rig, OP_RENEW, 1);

    op->deadline_us = rig->now_us + 60000000;
    srig_submit(rig, op);
    srig_sends(rig, 0, "EVALSHA 1");
    srig_pass(rig, 9999);
    ck_assert(!srig_done(rig, op));
    srig_pass(rig, 2);
    srig_status(rig, op, OP_UNKNOWN);
    ck_assert_uint_eq(rig->conns[0].closes, 1);
}

/* Each greeting that is too slow leaves the next one twice the time. */
SRIG_TEST(greetings_take_longer, patient_rig())
{
    srig_lose(rig, 0);
    for (uint64_t ms = 2000; ms <= 8000; ms *= 2) {
        srig_pass(rig, 1000);
        srig_connect(rig, 0);
        rig->conns[0].closes = 0;
        srig_pass(rig, ms - 1);
        ck_assert_uint_eq(rig->conns[0].closes, 0);
        srig_pass(rig, 2);
        ck_assert_uint_eq(rig->conns[0].closes, 1);
    }
    srig_pass(rig, 1000);
    srig_connect(rig, 0);
    srig_pass(rig, 9998);
    srig_serve(rig, 0);
    ck_assert(store_ready(rig->store));
}

/* A former master says that it is a replica: to a script, to the marker, or
 * when it is asked. Its connections end, and its address is looked up anew. */
START_TEST(becomes_a_replica)
{
    static const char readonly[] =
        "READONLY You can't write against a read only replica.";
    bool quorum = _i >= 3;
    uint32_t hints = quorum ? CONN_ACK : CONN_SUBSCRIBER;
    struct srig *rig =
        srig_create(quorum ? STORE_QUORUM : STORE_SINGLE, quorum ? 3 : 1);

    srig_start(rig);
    srig_settle(rig);
    switch (_i % 3) {
    case 0:
        (void)srig_op(rig, OP_INSPECT, 1);
        srig_sends(rig, 0, "EVALSHA 1");
        srig_error(rig, 0, readonly);
        break;
    case 1:
        rig->store->conns[0].history.mark_us = rig->now_us;
        srig_turn(rig);
        ck_assert_ptr_nonnull(strstr(srig_next(rig, 0), "SET "));
        srig_error(rig, 0, readonly);
        break;
    default:
        rig->store->conns[0].history.ids_wanted = true;
        srig_sends(rig, 0, "INFO replication");
        srig_history(rig, "slave", 'r', 'k', 'i');
        srig_answer(rig, 0);
    }
    srig_turn(rig);
    ck_assert_uint_eq(rig->conns[0].closes, 1);
    ck_assert_uint_eq(rig->conns[hints].closes, 1);
    ck_assert_int_eq(store_health(rig->store)->nodes[0].reason, HEALTH_REPLICA);
    rig->conns[0].connects = 0;
    srig_pass(rig, 200);
    ck_assert_uint_eq(rig->conns[0].connects, 1);
    srig_end(rig);
}

END_TEST

/* Redis has just closed the connection: what would not wait for Redis waits for
 * one try to replace it. A reading operation is asked again. */
SRIG_TEST(closed_when_asked, srig_single())
{
    struct op *show = srig_op(rig, OP_INSPECT, 1);

    srig_sends(rig, 0, "EVALSHA 1");
    srig_lose(rig, 0);
    struct op *op = srig_op(rig, OP_ACQUIRE, 1);
    srig_hurry(rig, op);
    srig_pass(rig, 100);
    ck_assert(!srig_done(rig, op) && !srig_done(rig, show));
    srig_connect(rig, 0);
    srig_serve(rig, 0);
    srig_turn(rig);
    for (int i = 0; i < 2; i++) {
        srig_expect(rig, 0, "EVALSHA 1");
        srig_error(rig, 0, "-ERR enough");
    }
    srig_status(rig, op, OP_REFUSED);
    srig_status(rig, show, OP_REFUSED);
    /* That try fails. */
    srig_lose(rig, 0);
    op = srig_op(rig, OP_ACQUIRE, 1);
    srig_hurry(rig, op);
    srig_pass(rig, 1000);
    ck_assert(!srig_done(rig, op));
    srig_pass(rig, 100);
    srig_status(rig, op, OP_UNSENT);
    op = srig_op(rig, OP_ACQUIRE, 1);
    srig_hurry(rig, op);
    srig_pass(rig, 1);
    srig_status(rig, op, OP_UNSENT);
}

/* After an idle connection was closed, the next one is used sooner. */
SRIG_TEST(closed_when_idle, srig_single())
{
    rig->store->conns[0].spoke_us = rig->now_us;
    srig_pass(rig, 1000);
    srig_expect(rig, 0, "");
    srig_lose(rig, 0);
    srig_pass(rig, 100);
    srig_connect(rig, 0);
    srig_serve(rig, 0);
    rig->store->conns[0].history.mark_us = WHEEL_NEVER;
    srig_pass(rig, 450);
    srig_expect(rig, 0, "");
    srig_pass(rig, 100);
    srig_expect(rig, 0, "TIME");
}

/* The dead connection is killed before anything else is sent. */
SRIG_TEST(predecessor_killed, srig_single())
{
    char kill[40];

    snprintf(kill, sizeof(kill), "CLIENT KILL ID %d", 100);
    srig_lose(rig, 0);
    struct op *op = srig_op(rig, OP_RELEASE, 1);
    srig_pass(rig, 100);
    /* It is lost itself before it has killed: the next one has to. */
    srig_connect(rig, 0);
    srig_introduce(rig, 0);
    srig_expect(rig, 0, kill);
    srig_lose(rig, 0);
    srig_pass(rig, 2000);
    srig_connect(rig, 0);
    srig_introduce(rig, 0);
    srig_expect(rig, 0, kill);
    srig_error(rig, 0, "-ERR No such client");
    srig_exchange(rig, 0, "CLIENT SETNAME holdfastd");
    srig_serve(rig, 0);
    srig_sends(rig, 0, "EVALSHA 1");
    srig_results(rig, 0, 1, RECORD_OK);
    srig_status(rig, op, OP_OK);
}

SRIG_TEST(predecessor_of_another_run, srig_single())
{
    srig_lose(rig, 0);
    srig_pass(rig, 100);
    rig->info = "redis_version:7.2.0\r\nrun_id:other\r\ncluster_enabled:0\r\n";
    srig_connect(rig, 0);
    srig_introduce(rig, 0);
    srig_expect(rig, 0, "CLIENT SETNAME holdfastd");
}

/* The marker, a while after the first answer; it is no reason to ask later. */
static void
mark(struct srig *rig)
{
    srig_pass(rig, 2500);
    srig_exchange(rig, 0,
        "SET holdfast:settled " SRIG_RUN
        " iiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiii");
    srig_expect(rig, 0, "");
    srig_turn(rig);
    srig_exchange(rig, 0, "TIME");
    srig_expect(rig, 0, "");
}

SRIG_TEST(pings_when_idle, srig_single())
{
    mark(rig);
    srig_pass(rig, 3001);
    srig_exchange(rig, 0, "TIME");
    srig_expect(rig, 0, "");
    srig_pass(rig, 3000);
    srig_expect(rig, 0, "TIME");
    srig_expect(rig, 0, "");
    srig_pass(rig, 2001);
    ck_assert_uint_eq(rig->conns[0].closes, 1);
}

/* The TIME that the header of a call on one lock foretells. */
static double
expected_time(struct srig *rig)
{
    double expected;

    srig_op(rig, OP_ACQUIRE, 0);
    srig_sends(rig, 0, "EVALSHA 1");
    memcpy(&expected, rig->words[4].at + 28, sizeof(expected));
    srig_results(rig, 0, 1, RECORD_OK);
    return expected;
}

/* A Redis whose clock has stepped back carries out what is late by ours. */
SRIG_TEST(clock_steps_while_idle, srig_single())
{
    struct resp time[] = {
        {.type = RESP_STRING, .text = TEXT("1600000000")},
        {.type = RESP_STRING, .text = TEXT("7")},
    };

    mark(rig);
    srig_pass(rig, 3001);
    srig_expect(rig, 0, "TIME");
    srig_reply_array(rig, 0, time, 2);
    ck_assert_double_eq(expected_time(rig), 1600000000000007.0);
}

SRIG_TEST(reply_to_nothing, srig_single())
{
    srig_error(rig, 0, "-ERR what");
    ck_assert_uint_eq(rig->conns[0].closes, 1);
    ck_assert(!store_ready(rig->store));
}

static void
publish(struct srig *rig, const char *payload, size_t len)
{
    srig_message(rig, CONN_SUBSCRIBER, "holdfast/broker/broker-1",
        text_make(payload, len));
}

SRIG_TEST(hints, srig_single())
{
    char payload[17] = "G";
    const uint64_t request = 0x1234567890abcdef;
    struct store_hint hint;
    double number = 9007199254740991;

    (void)store_take_unheard(rig->store);
    memcpy(payload + 1, &request, 8);
    memcpy(payload + 9, &number, 8);
    publish(rig, payload, 16);
    publish(rig, "", 0);
    payload[0] = 'H';
    publish(rig, payload, 17);
    ck_assert(!store_take_hint(rig->store, &hint));
    payload[0] = 'G';
    publish(rig, payload, 17);
    ck_assert(store_take_hint(rig->store, &hint));
    ck_assert_uint_eq(hint.request, request);
    ck_assert_uint_eq(hint.fence, 9007199254740991);
    ck_assert(!hint.broken);
    number = 9007199254740992;
    memcpy(payload + 9, &number, 8);
    publish(rig, payload, 17);
    ck_assert(store_take_hint(rig->store, &hint));
    ck_assert_uint_eq(hint.fence, 0);
    payload[0] = 'B';
    publish(rig, payload, 17);
    ck_assert(store_take_hint(rig->store, &hint));
    ck_assert(hint.broken);
    ck_assert_uint_eq(hint.request, request);
    number = -1;
    memcpy(payload + 9, &number, 8);
    for (unsigned i = 0; i <= HINTS_MAX; i++)
        publish(rig, payload, 17);
    /* Some were too many. */
    ck_assert(store_take_unheard(rig->store));
    for (unsigned i = 0; i < HINTS_MAX; i++)
        ck_assert(store_take_hint(rig->store, &hint));
    ck_assert_uint_eq(hint.fence, 0);
    ck_assert(!store_take_hint(rig->store, &hint));
    /* And while nobody listened. */
    srig_lose(rig, CONN_SUBSCRIBER);
    ck_assert(!store_take_unheard(rig->store));
    srig_settle(rig);
    ck_assert(store_take_unheard(rig->store));
}

/* Messages for watchers and the search for deadlocks, as they came. */
SRIG_TEST(news, srig_single())
{
    char payload[70];
    struct text text;
    size_t taken = 0;

    (void)store_take_unheard(rig->store);
    memset(payload, 'W', sizeof(payload));
    publish(rig, "W", 1);
    publish(rig, "X23", 3);
    ck_assert(!store_take_news(rig->store, &text));
    publish(rig, "Wholdfast:{a}", 13);
    ck_assert(store_take_news(rig->store, &text));
    ck_assert(text_equal(text, TEXT("Wholdfast:{a}")));
    ck_assert(!store_take_news(rig->store, &text));
    static const char *const kinds[] = {"D\0\1", "V\0\2", "K\0\3"};
    for (int i = 0; i < 3; i++)
        publish(rig, kinds[i], 3);
    for (int i = 0; i < 3; i++) {
        ck_assert(store_take_news(rig->store, &text));
        ck_assert_uint_eq(text.len, 3);
        taken += (size_t)text.at[2];
    }
    ck_assert_uint_eq(taken, 6);
    /* Too many, or too much of them. */
    for (unsigned i = 0; i < NEWS_MAX; i++)
        publish(rig, payload, 2);
    ck_assert(!store_take_unheard(rig->store));
    publish(rig, payload, 2);
    ck_assert(store_take_unheard(rig->store));
    for (unsigned i = 0; i < NEWS_MAX; i++)
        ck_assert(store_take_news(rig->store, &text));
    ck_assert(!store_take_news(rig->store, &text));
    for (size_t left = NEWS_BYTES; left >= 70; left -= 70)
        publish(rig, payload, 70);
    ck_assert(!store_take_unheard(rig->store));
    publish(rig, payload, 70);
    ck_assert(store_take_unheard(rig->store));
    for (taken = 0; store_take_news(rig->store, &text); taken++)
        ck_assert(text_equal(text, text_make(payload, 70)));
    ck_assert_uint_eq(taken, NEWS_BYTES / 70);
    publish(rig, payload, 70);
    ck_assert(store_take_news(rig->store, &text));
    /* These leave room for the others, and are lost without a word. */
    payload[0] = 'T';
    for (unsigned i = 0; i <= NEWS_MAX; i++)
        publish(rig, payload, 2);
    ck_assert(!store_take_unheard(rig->store));
    for (taken = 0; store_take_news(rig->store, &text); taken++)
        ck_assert_int_eq(text.at[0], 'T');
    ck_assert_uint_eq(taken, NEWS_MAX / 2 + 1);
}

static void
comes_back(struct srig *rig, uint32_t link)
{
    while (!rig->conns[link].connecting)
        srig_pass(rig, 1);
    srig_connect(rig, link);
    srig_serve(rig, link);
}

/* The server that has a node's address publishes the hints. The one before it
 * may still answer the subscription's PING. */
SRIG_TEST(hints_of_the_server_before, srig_single())
{
    srig_lose(rig, 0);
    comes_back(rig, 0);
    ck_assert_uint_eq(rig->conns[CONN_SUBSCRIBER].closes, 0);
    srig_history(rig, "master", 'x', 'y', 'z');
    srig_lose(rig, 0);
    comes_back(rig, 0);
    srig_turn(rig);
    ck_assert_uint_eq(rig->conns[CONN_SUBSCRIBER].closes, 1);
    (void)store_take_unheard(rig->store);
    comes_back(rig, CONN_SUBSCRIBER);
    srig_turn(rig);
    ck_assert(store_take_unheard(rig->store));
    ck_assert_uint_eq(rig->conns[CONN_SUBSCRIBER].closes, 1);
}

/* One channel for this broker, one for all that watch; both must be had. */
SRIG_TEST(subscribe_refused, srig_single())
{
    srig_lose(rig, CONN_SUBSCRIBER);
    srig_pass(rig, 100);
    srig_connect(rig, CONN_SUBSCRIBER);
    (void)store_take_unheard(rig->store);
    while (strncmp(srig_next(rig, CONN_SUBSCRIBER), "SUBSCRIBE", 9) != 0)
        srig_answer(rig, CONN_SUBSCRIBER);
    ck_assert(text_equal(rig->words[1], TEXT("holdfast/broker/watch")));
    if (_i == 1) {
        srig_answer(rig, CONN_SUBSCRIBER);
        ck_assert(!store_take_unheard(rig->store));
        srig_expect(rig, CONN_SUBSCRIBER, "SUBSCRIBE holdfast/broker/broker-1");
    }
    srig_error(rig, CONN_SUBSCRIBER, "-NOPERM no");
    ck_assert_uint_eq(rig->conns[CONN_SUBSCRIBER].closes, 1);
    /* Without a node to ask there is nobody to subscribe at. */
    srig_lose(rig, 0);
    srig_pass(rig, 5000);
    ck_assert(!rig->conns[CONN_SUBSCRIBER].connecting);
}

Suite *
store_link_suite(void)
{
    Suite *suite = suite_create("store_link");
    TCase *tests = tcase_create("store_link");

    tcase_add_test(tests, greeting);
    tcase_add_test(tests, greeting_refused);
    tcase_add_test(tests, hints_are_refused);
    tcase_add_test(tests, password_is_not_logged);
    tcase_add_test(tests, scripts_refused);
    tcase_add_test(tests, scripts_refused_later);
    tcase_add_loop_test(
        tests, unfit_server, 0, sizeof(unfit) / sizeof(unfit[0]));
    tcase_add_test(tests, greeting_of_garbage);
    tcase_add_test(tests, backoff_and_timeouts);
    tcase_add_test(tests, greeting_takes_too_long);
    tcase_add_test(tests, conn_lost_with_operations);
    tcase_add_test(tests, given_up_without_a_connection);
    tcase_add_test(tests, command_timeout);
    tcase_add_test(tests, late_answer_counts);
    tcase_add_test(tests, late_call_given_back);
    tcase_add_test(tests, silent_link_given_up);
    tcase_add_test(tests, greetings_take_longer);
    tcase_add_loop_test(tests, becomes_a_replica, 0, 6);
    tcase_add_test(tests, closed_when_asked);
    tcase_add_test(tests, closed_when_idle);
    tcase_add_test(tests, configured);
    tcase_add_test(tests, predecessor_killed);
    tcase_add_test(tests, predecessor_of_another_run);
    tcase_add_test(tests, pings_when_idle);
    tcase_add_test(tests, clock_steps_while_idle);
    tcase_add_test(tests, reply_to_nothing);
    tcase_add_test(tests, hints);
    tcase_add_test(tests, news);
    tcase_add_test(tests, hints_of_the_server_before);
    tcase_add_loop_test(tests, subscribe_refused, 0, 2);
    suite_add_tcase(suite, tests);
    return suite;
}

/*
 * Tests of daemon/core/feature/recent.c: what SLOW tells, how much of it is
 * kept, and what is slow. How a store counts the stages is in
 * test_store_call.c.
 */
#include "daemon/op/op.h"
#include "tests/unit/core_stub.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

Suite *core_recent_suite(void);

#define SLOW_US 100000u
#define KEPT    128

static struct rig *
rig_slow(void)
{
    struct rig *rig = rig_create();

    rig->settings.slow_us = SLOW_US;
    rig_start(rig);
    return rig;
}

/* The next operation, sent and answered as a store would note, so long after
 * it was asked for; it is given back `confirm_us` later. */
static void
answered(struct rig *rig, enum op_kind kind, uint64_t queued_us,
    uint64_t redis_us, uint64_t confirm_us, struct op_result result)
{
    struct op *op = rig_op(rig, kind);

    rig_pass_us(rig, queued_us);
    op->sent_us = rig->now_us;
    op->tries = 1;
    rig_pass_us(rig, redis_us);
    op->answered_us = rig->now_us;
    rig_pass_us(rig, confirm_us);
    rig_finish(rig, op, result);
}

static void
lock_slowly(struct rig *rig, unsigned session, const char *request,
    uint64_t queued_us, uint64_t redis_us, uint64_t confirm_us)
{
    rig_say(rig, session, request);
    answered(rig, OP_ACQUIRE, queued_us, redis_us, confirm_us,
        (struct op_result){
            .status = OP_OK, .fence = 7, .ttl_ms = RIG_LEASE_MS});
    rig_expect(rig, session, "~ OK fence=7 ttl_ms=~ count=1");
}

RIG_TEST(stages, rig_slow())
{
    unsigned a = rig_open(rig);

    rig_ask(rig, a, "1 HELLO name=shop", "1 OK session=~ proto=1 server=~");
    lock_slowly(rig, a, "2 LOCK x%20y owner=w note=n", 1000, 150000, 20000);
    rig_pass(rig, 5);
    rig_ask(rig, a, "3 SLOW",
        "3 ITEM kind=slow age_ms=5 name=x%20y session=~ client=shop owner=w "
        "op=acquire result=ok total_us=171000 queued_us=1000 redis_us=150000 "
        "confirm_us=20000 tries=1");
    rig_expect(rig, a, "3 OK n=1");
    ck_assert_uint_eq(rig_count(rig, COUNTER_slow_operations), 1);
}

RIG_TEST(the_threshold, rig_slow())
{
    unsigned a = rig_open(rig);

    lock_slowly(rig, a, "1 LOCK x", 50000, SLOW_US - 50001, 0);
    rig_ask(rig, a, "2 SLOW", "2 OK n=0");
    lock_slowly(rig, a, "3 LOCK y", 50000, SLOW_US - 50000, 0);
    rig_ask(rig, a, "4 SLOW",
        "4 ITEM kind=slow age_ms=0 name=y session=~ op=acquire result=ok "
        "total_us=100000 queued_us=50000 redis_us=50000 confirm_us=0 tries=1");
    rig_expect(rig, a, "4 OK n=1");
}

RIG_TEST(nothing_is_slow, rig_new())
{
    unsigned a = rig_open(rig);

    lock_slowly(rig, a, "1 LOCK x", 1000000, 1000000, 1000000);
    rig_ask(rig, a, "2 SLOW", "2 OK n=0");
}

/* It waits for its turn, which is no operation. */
RIG_TEST(a_wait_is_not_slow, rig_slow())
{
    unsigned a = rig_open(rig);

    rig_wait(rig, a, "1 LOCK x");
    rig_pass(rig, 5000);
    rig_ask(rig, a, "2 CANCEL 1", "1 ERR CANCELLED retry=1");
    rig_expect(rig, a, "2 OK");
    rig_status(rig, rig_op(rig, OP_RELEASE), OP_OK);
    rig_ask(rig, a, "3 SLOW", "3 OK n=0");
}

/* An operation that was not sent was queued. One that was not answered was
 * asked. */
RIG_TEST(unanswered, rig_slow())
{
    unsigned a = rig_open(rig);

    rig_ask(rig, a, "0 HELLO name=shop", "0 OK session=~ proto=1 server=~");
    rig_say(rig, a, "1 SHOW x");
    struct op *op = rig_op(rig, OP_INSPECT);
    rig_pass(rig, 300);
    rig_status(rig, op, OP_UNSENT);
    rig_expect(rig, a, "1 ERR UNAVAILABLE retry=1");
    rig_say(rig, a, "2 BREAK x");
    op = rig_op(rig, OP_BREAK);
    rig_pass(rig, 100);
    op->sent_us = rig->now_us;
    op->tries = 2;
    rig_pass(rig, 200);
    rig_status(rig, op, OP_UNKNOWN);
    rig_expect(rig, a, "2 ERR INDOUBT retry=1");
    rig_say(rig, a, "3 RESIZE x limit=2");
    rig_pass(rig, 100);
    rig_status(rig, rig_op(rig, OP_RESIZE), OP_UNSENT);
    rig_expect(rig, a, "3 ERR UNAVAILABLE retry=1");
    rig_ask(rig, a, "3 SLOW",
        "3 ITEM kind=slow age_ms=0 name=x session=~ client=shop op=resize "
        "result=unsent "
        "total_us=100000 queued_us=100000 redis_us=0 confirm_us=0 tries=0");
    rig_expect(rig, a,
        "3 ITEM kind=slow age_ms=100 name=x session=~ client=shop op=break "
        "result=unknown "
        "total_us=300000 queued_us=100000 redis_us=200000 confirm_us=0 "
        "tries=2");
    rig_expect(rig, a,
        "3 ITEM kind=slow age_ms=400 name=x session=~ client=shop op=inspect "
        "result=unsent "
        "total_us=300000 queued_us=300000 redis_us=0 confirm_us=0 tries=0");
    rig_expect(rig, a, "3 OK n=3");
}

/* Its session is gone when Redis answers. */
RIG_TEST(of_a_session_that_ended, rig_slow())
{
    unsigned a = rig_open(rig);
    unsigned b = rig_open(rig);

    rig_lock(rig, a, "1 LOCK x owner=w", 5);
    rig_event(rig, a, CORE_DROP);
    answered(
        rig, OP_RELEASE, 0, 200000, 0, (struct op_result){.status = OP_OK});
    rig_ask(rig, b, "1 SLOW",
        "1 ITEM kind=slow age_ms=0 name=x session=~ owner=w op=release "
        "result=ok total_us=200000 queued_us=0 redis_us=200000 confirm_us=0 "
        "tries=1");
}

/* A renewal is tried again and again: one entry, until it has succeeded. */
RIG_TEST(a_stretch_of_tries, rig_slow())
{
    unsigned a = rig_open(rig);

    rig_lock(rig, a, "1 LOCK x", 5);
    rig_lock(rig, a, "2 LOCK y", 6);
    rig_pass(rig, 10010);
    for (int i = 0; i < 5; i++) {
        rig_pass(rig, 1000);
        for (int j = 0; j < 2; j++) {
            struct op *op = rig_op(rig, OP_RENEW);
            op->tries = i > 0; /* the first one could not be sent */
            rig_status(rig, op, i > 0 ? OP_UNKNOWN : OP_UNSENT);
        }
        rig_pass(rig, 115);
    }
    rig_say(rig, a, "3 SLOW");
    for (int j = 0; j < 2; j++) {
        const char *line = rig_line(rig, a);
        ck_assert_msg(strstr(line, " op=renew result=unknown ") != NULL &&
                          strstr(line, " age_ms=115 ") != NULL &&
                          strstr(line, " tries=5") != NULL,
            "%s", line);
    }
    rig_expect(rig, a, "3 OK n=2");
    for (int j = 0; j < 2; j++)
        rig_granted(rig, rig_op(rig, OP_RENEW), 5 + (uint64_t)j);
    rig_pass(rig, 10010);
    struct op *later = rig_op(rig, OP_RENEW);
    rig_pass(rig, 1000);
    rig_status(rig, later, OP_UNKNOWN);
    rig_say(rig, a, "4 SLOW limit=1");
    ck_assert_ptr_nonnull(strstr(rig_line(rig, a), " tries=0"));
}

/* Each request of the outage has a ticket of its own. */
RIG_TEST(a_stretch_of_requests, rig_slow())
{
    unsigned a = rig_open(rig);

    for (int i = 0; i < 3; i++) {
        rig_say(rig, a, i < 2 ? "1 LOCK x" : "1 LOCK x owner=o");
        struct op *op = rig_op(rig, OP_ACQUIRE);
        rig_pass(rig, 1000);
        rig_status(rig, op, OP_UNSENT);
        rig_expect(rig, a, "1 ERR UNAVAILABLE retry=1");
    }
    rig_say(rig, a, "2 SLOW");
    ck_assert_ptr_nonnull(strstr(rig_line(rig, a), " owner=o "));
    ck_assert_ptr_nonnull(strstr(rig_line(rig, a), " tries=2"));
    rig_expect(rig, a, "2 OK n=2");
}

enum end {
    END_UNLOCK,
    END_QUIT,
    END_FIN,
    END_DROP,
    END_KEPT,
    END_COUNT,
};

static void
end_hold(struct rig *rig, unsigned session, enum end end)
{
    switch (end) {
    case END_UNLOCK:
        rig_say(rig, session, "2 UNLOCK x owner=w");
        break;
    case END_QUIT:
        rig_say(rig, session, "2 QUIT");
        break;
    case END_FIN:
        rig_event(rig, session, CORE_EOF);
        break;
    case END_DROP:
    case END_KEPT:
        rig_event(rig, session, CORE_DROP);
        break;
    case END_COUNT:
        break;
    }
}

/* A client that keeps its deadline ends its hold before the broker does. */
RIG_TEST(given_up_in_jeopardy, rig_slow())
{
    unsigned a = rig_open(rig);
    unsigned b = rig_open(rig);
    bool late = _i / END_COUNT > 0;
    bool safe = _i / END_COUNT > 1;

    if (_i % END_COUNT == END_KEPT) {
        rig_ask(rig, a, "0 HELLO keep=2s",
            "0 OK session=~ proto=1 server=~ keep_ms=2000");
    }
    rig_lock(rig, a, "1 LOCK x owner=w note=n", 5);
    rig_pass(rig, late ? 20002 : 19990);
    if (safe)
        rig_granted(rig, rig_op(rig, OP_RENEW), 5);
    end_hold(rig, a, (enum end)(_i % END_COUNT));
    rig_pass(rig, 2100);
    while (rig->op_count > 0 && rig->ops[0]->kind == OP_RENEW)
        rig_status(rig, rig->ops[0], OP_UNKNOWN);
    rig_status(rig, rig_op(rig, OP_RELEASE), OP_OK);
    bool lost = !safe && (late || _i % END_COUNT == END_KEPT);
    ck_assert_uint_eq(rig_count(rig, COUNTER_lost_backend), lost);
    rig_say(rig, b, "3 SLOW kind=lost");
    if (lost)
        rig_expect(rig, b,
            "3 ITEM kind=lost age_ms=~ name=x session=~ owner=w "
            "reason=backend fence=5 held_ms=~ late_us=0");
    rig_expect(rig, b, lost ? "3 OK n=1" : "3 OK n=0");
}

/* It was another one's by then: one loss, and not two. */
RIG_TEST(given_up_and_gone, rig_slow())
{
    unsigned a = rig_open(rig);

    rig_lock(rig, a, "1 LOCK x", 5);
    rig_pass(rig, 20002);
    rig_expect(rig, a, "* JEOPARDY x ttl_ms=~");
    rig_say(rig, a, "2 UNLOCK x");
    rig_status(rig, rig_op(rig, OP_RENEW), OP_UNKNOWN);
    rig_status(rig, rig_op(rig, OP_RELEASE), OP_GONE);
    rig_expect(rig, a, "2 ERR LOST retry=0");
    ck_assert_uint_eq(rig_count(rig, COUNTER_lost_backend), 1);
    ck_assert_uint_eq(rig_count(rig, COUNTER_lost_gone), 0);
    rig_lock(rig, a, "3 LOCK x", 6);
    rig_say(rig, a, "4 UNLOCK x");
    rig_status(rig, rig_op(rig, OP_RELEASE), OP_GONE);
    rig_expect(rig, a, "4 ERR LOST retry=0");
    rig_say(rig, a, "5 SLOW kind=lost");
    ck_assert_ptr_nonnull(strstr(rig_line(rig, a), " reason=gone "));
    ck_assert_ptr_nonnull(strstr(rig_line(rig, a), " reason=backend "));
    rig_expect(rig, a, "5 OK n=2");
}

RIG_TEST(losses, rig_slow())
{
    unsigned a = rig_open(rig);

    rig_lock(rig, a, "1 LOCK x owner=w lease=2s", 5);
    rig_pass(rig, 2002);
    rig_expect(rig, a, "* LOST x fence=5 reason=expired owner=w");
    rig_status(rig, rig_op(rig, OP_RELEASE), OP_OK);
    rig_say(rig, a, "2 SLOW kind=lost");
    rig_expect(rig, a,
        "2 ITEM kind=lost age_ms=~ name=x session=~ owner=w reason=expired "
        "fence=5 held_ms=1978 late_us=880"); /* as fine as the timers are */
    rig_expect(rig, a, "2 OK n=1");
}

/* A broker that was stopped tells it when it goes on. */
RIG_TEST(a_late_loss, rig_slow())
{
    unsigned a = rig_open(rig);

    rig_lock(rig, a, "1 LOCK x lease=2s", 5);
    rig_stall(rig, 3000);
    rig_pass(rig, 0);
    rig_expect(rig, a, "* LOST x fence=5 reason=expired");
    rig_status(rig, rig_op(rig, OP_RELEASE), OP_OK);
    rig_say(rig, a, "2 SLOW kind=lost");
    const char *line = rig_line(rig, a);
    const char *late = strstr(line, " held_ms=3000 late_us=");
    ck_assert_msg(late != NULL, "%s", line);
    ck_assert_uint_ge(strtoull(late + 22, NULL, 10), 1000000);
    ck_assert_uint_lt(strtoull(late + 22, NULL, 10), 1100000);
}

START_TEST(deadlocks)
{
    struct stub *stub = stub_new(1);
    struct at x = stub_open(stub, 0);
    struct at y = stub_open(stub, 0);
    char line[200];

    stub_hold(stub, x, "1 LOCK a");
    stub_hold(stub, y, "1 LOCK b");
    stub_wait(stub, x, "2 LOCK b");
    stub_wait(stub, y, "2 LOCK a");
    stub_pass(stub, 100);
    stub_expect(stub, y, "2 ERR DEADLOCK retry=1 cycle=~");
    stub_say(stub, y, "3 SLOW kind=deadlock");
    snprintf(line, sizeof(line), "%s", stub_heard(stub, y));
    char ended[9];
    char first[9];
    char second[9];
    char cycle[9];
    ck_assert_msg(sscanf(line,
                      "3 ITEM kind=deadlock age_ms=%*u name=a session=%8s "
                      "cycle=%3s sessions=%8[^,],%8s",
                      ended, cycle, first, second) == 4,
        "%s", line);
    ck_assert(strcmp(cycle, "a,b") == 0 || strcmp(cycle, "b,a") == 0);
    ck_assert_str_ne(first, second);
    ck_assert(strcmp(ended, first) == 0 || strcmp(ended, second) == 0);
    stub_expect(stub, y, "3 OK n=1");
    stub_free(stub);
}

END_TEST

/* Newest first, of one kind or all, and no more than asked for. The release of
 * what is lost is answered late, too. */
RIG_TEST(order, rig_slow())
{
    unsigned a = rig_open(rig);

    lock_slowly(rig, a, "1 LOCK x lease=10s", 0, 200000, 0);
    rig_pass(rig, 10202);
    rig_expect(rig, a, "* LOST x fence=7 reason=expired");
    rig_status(rig, rig_op(rig, OP_RELEASE), OP_OK);
    lock_slowly(rig, a, "2 LOCK y", 0, 200000, 0);
    static const char *const kinds[] = {"", " kind=slow", " kind=lost"};
    static const char *const names[] = {"yxxx", "yxx", "x"};
    for (size_t i = 0; i < 3; i++) {
        char line[60];
        snprintf(line, sizeof(line), "3 SLOW%s", kinds[i]);
        rig_say(rig, a, line);
        for (const char *name = names[i]; *name != '\0'; name++) {
            snprintf(line, sizeof(line), " name=%c ", *name);
            ck_assert_ptr_nonnull(strstr(rig_line(rig, a), line));
        }
        snprintf(line, sizeof(line), "3 OK n=%zu", strlen(names[i]));
        rig_expect(rig, a, line);
    }
    rig_say(rig, a, "4 SLOW limit=2");
    ck_assert_ptr_nonnull(strstr(rig_line(rig, a), " name=y "));
    ck_assert_ptr_nonnull(strstr(rig_line(rig, a), " op=release "));
    rig_expect(rig, a, "4 OK n=2");
    rig_ask(rig, a, "5 SLOW limit=0", "5 OK n=0");
    rig_ask(rig, a, "6 SLOW kind=fast", "6 ERR BADREQ retry=0");
    rig_ask(rig, a, "7 SLOW x", "7 ERR BADREQ retry=0");
}

/* Only so many are kept, with names as long as they may be. */
RIG_TEST(the_last_are_kept, rig_slow())
{
    unsigned a = rig_open(rig);
    char line[400];

    for (int i = 0; i < KEPT + 5; i++) {
        snprintf(line, sizeof(line), "1 SHOW %0252d%03d", 0, i);
        rig_say(rig, a, line);
        struct op *op = rig_op(rig, OP_INSPECT);
        rig_pass(rig, 100);
        rig_status(rig, op, OP_GONE);
        rig_expect(rig, a, "1 OK state=free holders=0 waiters=0");
    }
    rig_say(rig, a, "2 SLOW limit=500");
    for (int i = 0; i < KEPT; i++) {
        snprintf(line, sizeof(line), "%03d session=", KEPT + 4 - i);
        ck_assert_ptr_nonnull(strstr(rig_line(rig, a), line));
    }
    rig_expect(rig, a, "2 OK n=128");
    ck_assert_uint_eq(rig_count(rig, COUNTER_slow_operations), KEPT + 5);
}

Suite *
core_recent_suite(void)
{
    Suite *suite = suite_create("core_recent");
    TCase *tests = tcase_create("all");

    tcase_add_test(tests, stages);
    tcase_add_test(tests, the_threshold);
    tcase_add_test(tests, nothing_is_slow);
    tcase_add_test(tests, a_wait_is_not_slow);
    tcase_add_test(tests, unanswered);
    tcase_add_test(tests, of_a_session_that_ended);
    tcase_add_test(tests, a_stretch_of_tries);
    tcase_add_test(tests, a_stretch_of_requests);
    tcase_add_loop_test(tests, given_up_in_jeopardy, 0, 3 * END_COUNT);
    tcase_add_test(tests, given_up_and_gone);
    tcase_add_test(tests, losses);
    tcase_add_test(tests, a_late_loss);
    tcase_add_test(tests, deadlocks);
    tcase_add_test(tests, order);
    tcase_add_test(tests, the_last_are_kept);
    suite_add_tcase(suite, tests);
    return suite;
}

/*
 * Tests of daemon/core for two things that seldom meet: heartbeats and a stop,
 * a stall and a grant, a loss and the requests behind it. And an overlong line
 * after the end.
 */
#include "tests/unit/core_rig.h"

#include <stdio.h>

Suite *core_odd_suite(void);

/* The stop is told once, however often the session's clock is looked at. */
SESSION_TEST(heartbeat_while_stopping)
{
    struct core_event stop = {.kind = CORE_STOP};

    rig_say(rig, s, "HELLO heartbeat=1s");
    (void)rig_line(rig, s);
    rig_lock(rig, s, "1 LOCK a", 5);
    rig_step(rig, &stop);
    rig_pass(rig, 3);
    rig_expect(rig, s, "* DRAIN grace_ms=10000");
    rig_pass(rig, 1000);
    rig_expect(rig, s, "* PING 1");
    rig_silent(rig, s);
    rig_say(rig, s, "PONG 1");
    rig_pass(rig, 900);
    rig_silent(rig, s);
    rig_say(rig, s, "2 UNLOCK a");
    rig_status(rig, rig_op(rig, OP_RELEASE), OP_OK);
    rig_expect(rig, s, "2 OK count=0");
    rig_expect(rig, s, "* BYE drain");
}

/* A client that has sent FIN is not asked for signs of life. */
SESSION_TEST(no_heartbeat_after_the_end)
{
    rig_say(rig, s, "HELLO heartbeat=1s");
    (void)rig_line(rig, s);
    rig_lock(rig, s, "1 LOCK a", 5);
    rig_say(rig, s, "2 UNLOCK a");
    struct op *op = rig_op(rig, OP_RELEASE);
    rig_event(rig, s, CORE_EOF);
    rig_pass(rig, 4000);
    rig_silent(rig, s);
    rig_status(rig, op, OP_OK);
    rig_expect(rig, s, "2 OK count=0");
    rig_expect(rig, s, "* BYE eof");
    ck_assert(rig->sessions[s].closed);
}

/* Its three heartbeats were over while we stood still: nothing is promised. */
SESSION_TEST(grant_after_silence)
{
    rig_say(rig, s, "HELLO heartbeat=1s");
    (void)rig_line(rig, s);
    rig_say(rig, s, "1 LOCK a");
    struct op *op = rig_op(rig, OP_ACQUIRE);
    rig_stall(rig, 4000);
    rig_granted(rig, op, 5);
    rig_expect(rig, s, "1 OK fence=5 ttl_ms=0 count=1");
    rig_ask(rig, s, "2 PING", "2 OK ttl_ms=3000");
}

SESSION_TEST(too_long_after_the_end)
{
    rig_lock(rig, s, "1 LOCK a", 5);
    rig_say(rig, s, "2 UNLOCK a");
    rig_event(rig, s, CORE_EOF);
    struct core_event event = {
        .kind = CORE_TOO_LONG, .session = rig->sessions[s].handle};
    char line[] = "3 LOCK ...";
    event.line.at = line;
    event.line.len = sizeof(line) - 1;
    rig_step(rig, &event);
    rig_silent(rig, s);
    ck_assert_uint_eq(rig_count(rig, COUNTER_lines_too_long), 1);
    rig_status(rig, rig_op(rig, OP_RELEASE), OP_OK);
    rig_expect(rig, s, "2 OK count=0");
    rig_expect(rig, s, "* BYE eof");
}

/* Requests behind the one that learns of a loss hear LOST too. */
SESSION_TEST(loss_with_requests_behind)
{
    rig_lock(rig, s, "1 LOCK a lease=60s", 5);
    rig_say(rig, s, "2 RENEW a lease=90s");
    rig_say(rig, s, "3 UNLOCK a");
    rig_say(rig, s, "4 LOCK a wait=0");
    rig_status(rig, rig_op(rig, OP_RENEW), OP_GONE);
    rig_expect(rig, s, "* LOST a fence=5 reason=gone");
    rig_expect(rig, s, "2 ERR LOST retry=0");
    rig_expect(rig, s, "3 ERR LOST retry=0");
    rig_granted(rig, rig_op(rig, OP_ACQUIRE), 6);
    rig_expect(rig, s, "4 OK fence=6 ttl_ms=~ count=1");
}

/* Behind a LOCK that fails there is nothing to give back or to renew. */
SESSION_TEST(failure_with_requests_behind)
{
    rig_say(rig, s, "1 LOCK a wait=0");
    rig_say(rig, s, "2 UNLOCK a");
    rig_say(rig, s, "3 RENEW a lease=90s");
    struct op *op = rig_op(rig, OP_ACQUIRE);
    rig_silent(rig, s);
    rig_status(rig, op, OP_BUSY);
    rig_expect(rig, s, "1 ERR BUSY retry=1");
    rig_expect(rig, s, "2 ERR NOTHELD retry=0");
    rig_expect(rig, s, "3 ERR NOTHELD retry=0");
    rig_no_op(rig);
}

/* A long HELD goes on between requests that wait. */
RIG_TEST(held_beside_a_wait, rig_create())
{
    char line[90];

    rig->settings.holds_max = 1000;
    rig->settings.tickets_max = 1000;
    rig_start(rig);
    unsigned s = rig_open(rig);
    for (unsigned i = 0; i < 501; i++) {
        snprintf(line, sizeof(line), "LOCK a%u", i);
        rig_lock(rig, s, line, i + 1);
    }
    rig_wait(rig, s, "1 LOCK b");
    rig_say(rig, s, "2 HELD");
    for (unsigned i = 0; i < 500; i++)
        rig_expect(rig, s, "2 ITEM name=~ fence=~ ttl_ms=~ count=1");
    rig_silent(rig, s);
    ck_assert_uint_eq(rig->sessions[s].more, 1);
    rig_event(rig, s, CORE_MORE);
    rig_expect(rig, s, "2 ITEM name=a500 fence=501 ttl_ms=~ count=1");
    rig_expect(rig, s, "2 OK n=501");
    rig_silent(rig, s);
}

/* Tags are a session's own: nobody cancels what another one asked for. */
SESSION_TEST(same_tag_in_two_sessions)
{
    unsigned t = rig_open(rig);

    rig_wait(rig, s, "7 LOCK a");
    rig_ask(rig, t, "1 CANCEL 7", "1 ERR BADREQ retry=0");
    rig_silent(rig, s);
    rig_wait(rig, t, "7 LOCK a");
    rig_ask(rig, s, "2 CANCEL 7", "7 ERR CANCELLED retry=1");
    rig_expect(rig, s, "2 OK");
    rig_silent(rig, t);
}

Suite *
core_odd_suite(void)
{
    Suite *suite = suite_create("core_odd");
    TCase *tests = tcase_create("core_odd");

    tcase_add_test(tests, heartbeat_while_stopping);
    tcase_add_test(tests, no_heartbeat_after_the_end);
    tcase_add_test(tests, grant_after_silence);
    tcase_add_test(tests, too_long_after_the_end);
    tcase_add_test(tests, loss_with_requests_behind);
    tcase_add_test(tests, failure_with_requests_behind);
    tcase_add_test(tests, held_beside_a_wait);
    tcase_add_test(tests, same_tag_in_two_sessions);
    suite_add_tcase(suite, tests);
    return suite;
}

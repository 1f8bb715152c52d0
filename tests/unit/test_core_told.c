/*
 * Tests of what the core tells a client, and when: an ERR once nothing is held,
 * an OK in its order, no more time than is left.
 */
#include "daemon/op/op.h"
#include "proto/request.h"
#include "tests/unit/core_rig.h"

#include <string.h>

Suite *core_told_suite(void);

/* Answers to a LOCK that was cancelled while Redis was asked. */
SESSION_TEST(cancelled_while_redis_is_asked)
{
    static const struct {
        enum op_status said;
        bool struck; /* a release has to be confirmed */
    } rows[] = {
        {OP_OK, true},
        {OP_WAITING, true},
        {OP_UNKNOWN, true},
        {OP_BUSY, false},
        {OP_CONFLICT, false},
        {OP_FULL, false},
        {OP_UNSENT, false},
    };

    rig_say(rig, s, "1 LOCK a");
    struct op *op = rig_op(rig, OP_ACQUIRE);
    rig_ask(rig, s, "2 CANCEL 1", "2 OK");
    rig_silent(rig, s);
    ck_assert_uint_eq(rig->hurried, 1);
    rig_ask(rig, s, "3 CANCEL 1", "3 OK");
    if (rows[_i].said == OP_OK)
        rig_granted(rig, op, 7);
    else if (rows[_i].said == OP_WAITING)
        rig_queued(rig, op);
    else
        rig_status(rig, op, rows[_i].said);
    if (rows[_i].struck) {
        rig_silent(rig, s);
        rig_status(rig, rig_op(rig, OP_RELEASE), OP_OK);
    }
    rig_expect(rig, s, "1 ERR CANCELLED retry=1");
    rig_no_op(rig);
    rig_lock(rig, s, "LOCK a", 9);
}

/* A wait of an earlier connection stands for a LOCK of several names, which was
 * called off while Redis was asked for another one. The end of input does not
 * call it off again. */
SESSION_TEST(cancelled_and_closed)
{
    unsigned heir = rig_open(rig);

    rig_ask(rig, s, "HELLO keep=9s",
        "- OK session=~ proto=1 server=~ keep_ms=9000");
    rig_wait(rig, s, "1 LOCK b");
    rig_event(rig, s, CORE_DROP);
    rig_resume(rig, s, heir, 2, " keep=9s");
    rig_expect(rig, heir, "- OK session=~ proto=1 server=~ keep_ms=9000 gen=2");
    rig_say(rig, heir, "1 LOCK a b");
    struct op *op = rig->ops[rig->op_count - 1];
    ck_assert_int_eq(op->kind, OP_ACQUIRE);
    rig_ask(rig, heir, "2 CANCEL 1", "2 OK");
    rig_event(rig, heir, CORE_EOF);
    rig_silent(rig, heir);
    rig_status(rig, op, OP_BUSY);
    rig_expect(rig, heir, "1 ERR CANCELLED retry=1 name=a");
    rig_expect(rig, heir, "* BYE eof");
    ck_assert_uint_eq(rig_count(rig, COUNTER_waits_cancelled), 1);
}

/* Nor does a stop of the broker make it unknown what becomes of it. */
SESSION_TEST(cancelled_and_stopped)
{
    rig_say(rig, s, "1 LOCK a");
    struct op *op = rig_op(rig, OP_ACQUIRE);
    rig_ask(rig, s, "2 CANCEL 1", "2 OK");
    rig_stop(rig);
    rig_pass(rig, 10);
    rig_expect(rig, s, "* DRAIN grace_ms=10000");
    rig_silent(rig, s);
    rig_status(rig, op, OP_BUSY);
    rig_expect(rig, s, "1 ERR CANCELLED retry=1");
    rig_expect(rig, s, "* BYE drain");
}

/* The OK of a QUIT is the last reply: none, where others have no reply. */
SESSION_TEST(killed_while_it_quits)
{
    unsigned by = rig_open(rig);

    rig_lock(rig, s, "LOCK a", 7);
    rig_say(rig, s, "1 UNLOCK a");
    rig_say(rig, s, "2 QUIT");
    rig_silent(rig, s);
    rig_kill(rig, by, s);
    rig_expect(rig, s, "* BYE killed keep=0");
    rig_status(rig, rig_op(rig, OP_RELEASE), OP_OK);
}

/* Without an answer the client is told that it is not known. */
SESSION_TEST(cancelled_without_an_answer)
{
    rig_say(rig, s, "1 LOCK a");
    struct op *op = rig_op(rig, OP_ACQUIRE);
    rig_ask(rig, s, "2 CANCEL 1", "2 OK");
    if (_i == 1) { /* nor to the release */
        rig_granted(rig, op, 7);
        op = rig_op(rig, OP_RELEASE);
    }
    rig_pass_us(rig, rig->settings.command_timeout_us - 2000);
    rig_silent(rig, s);
    rig_pass_us(rig, 4000);
    rig_expect(rig, s, "1 ERR INDOUBT retry=1");
    if (_i == 1)
        rig_status(rig, op, OP_OK);
    else
        rig_status(rig, op, OP_UNSENT);
    rig_silent(rig, s);
}

/* The wait= is over before Redis has put it into the queue. */
SESSION_TEST(a_wait_is_over_once_it_is_struck_out)
{
    rig_say(rig, s, "1 LOCK a wait=300ms");
    rig_pass(rig, 400);
    rig_queued(rig, rig_op(rig, OP_ACQUIRE));
    rig_silent(rig, s);
    rig_status(rig, rig_op(rig, OP_RELEASE), OP_OK);
    rig_expect(rig, s, "1 ERR TIMEOUT retry=1");
}

/* The times of the greeting, as HELLO changes them. The last column is for a
 * Unix socket. */
SESSION_TEST(times_of_the_session)
{
    static const struct {
        const char *hello;
        const char *tcp;
        const char *local;
    } rows[] = {
        {"HELLO name=n", " silence_ms=8000 command_ms=700", " command_ms=700"},
        {"HELLO heartbeat=1s", " silence_ms=3000 ", " silence_ms=3000 "},
        {"HELLO heartbeat=1h", " silence_ms=8000 ", " silence_ms=10800000 "},
        {"HELLO keep=9s", " silence_ms=9000 ", " silence_ms=9000 "},
        {"HELLO keep=0", " silence_ms=8000 ", " silence_ms=10800000 "},
    };

    rig->silence_us = 8000000;
    rig->settings.command_timeout_us = 700000;
    core_configure(rig->core, &rig->settings);
    unsigned tcp = rig_open_tcp(rig);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        rig_say(rig, tcp, rows[i].hello);
        rig_say(rig, s, rows[i].hello);
        rig_text(rig, tcp, rows[i].tcp);
        rig_text(rig, s, rows[i].local);
        ck_assert(
            (strstr(rig_line(rig, s), "silence_ms=") == NULL) == (i == 0));
        (void)rig_line(rig, tcp);
    }
}

enum {
    BYE_QUIT,
    BYE_EOF,
    BYE_DRAIN,
    BYE_HEARTBEAT,
    BYE_KILLED,
    BYE_EXPELLED, /* and each reason for that */
};

static void
bring_about(struct rig *rig, unsigned s, unsigned by, int end)
{
    if (end == BYE_QUIT) {
        rig_ask(rig, s, "QUIT", "- OK");
    } else if (end == BYE_EOF) {
        rig_event(rig, s, CORE_EOF);
    } else if (end == BYE_DRAIN) {
        rig_stop(rig);
        rig_pass(rig, 9996);
        rig_granted(rig, rig_op(rig, OP_RENEW), 5);
        rig_pass(rig, 5);
        rig_expect(rig, s, "* DRAIN grace_ms=10000");
    } else if (end == BYE_HEARTBEAT) {
        rig_say(rig, s, "HELLO heartbeat=1s");
        (void)rig_line(rig, s);
        rig_pass(rig, 3002);
        rig_expect(rig, s, "* PING 1");
        rig_expect(rig, s, "* PING 2");
    } else if (end == BYE_KILLED) {
        rig_kill(rig, by, s);
    } else {
        struct core_event event = {.kind = CORE_EXPEL,
            .session = rig->sessions[s].handle,
            .expel = (enum core_expel)(end - BYE_EXPELLED)};
        rig_step(rig, &event);
    }
}

/* keep= of BYE is what the core does with the session's hold. */
SESSION_TEST(bye_says_whether_the_session_stands)
{
    static const struct {
        const char *plain;
        const char *kept;
    } byes[] = {
        {"* BYE quit keep=0", "* BYE quit keep=0"},
        {"* BYE eof keep=0", "* BYE eof keep=1"},
        {"* BYE drain keep=1", "* BYE drain keep=1"},
        {"* BYE heartbeat keep=0", "* BYE heartbeat keep=1"},
        {"* BYE killed keep=0", "* BYE killed keep=0"},
        {"* BYE output keep=0", "* BYE output keep=1"},
        {"* BYE limit keep=0", "* BYE limit keep=1"},
        {"* BYE protocol keep=0", "* BYE protocol keep=1"},
    };

    bool kept = _i % 2 != 0;
    const char *bye = kept ? byes[_i / 2].kept : byes[_i / 2].plain;
    bool stands = strstr(bye, "keep=1") != NULL;

    rig_say(rig, s, kept ? "HELLO keep=10s" : "HELLO keep=0");
    (void)rig_line(rig, s);
    rig_lock(rig, s, "LOCK a", 5);
    bring_about(rig, s, rig_open(rig), _i / 2);
    rig_expect(rig, s, bye);
    ck_assert(rig->sessions[s].closed);
    if (!stands)
        rig_status(rig, rig_op(rig, OP_RELEASE), OP_OK);
    while (rig->op_count > 0) /* a last renewal */
        rig_granted(rig, rig_op(rig, OP_RENEW), 5);
}

/* QUIT's OK is the last one. */
SESSION_TEST(quit_is_answered_last)
{
    rig_lock(rig, s, "1 LOCK a", 5);
    rig_say(rig, s, "2 UNLOCK a");
    rig_say(rig, s, "3 QUIT");
    rig_silent(rig, s);
    rig_status(rig, rig_op(rig, OP_RELEASE), OP_OK);
    rig_expect(rig, s, "2 OK count=0");
    rig_expect(rig, s, "3 OK");
    rig_expect(rig, s, "* BYE quit");
}

SESSION_TEST(no_reentry)
{
    rig_ask(rig, s, "1 HELLO reenter=0", "1 OK session=~ proto=1 server=~");
    rig_say(rig, s, "2 LOCK a");
    rig_ask(rig, s, "3 LOCK a", "3 ERR CONFLICT retry=0");
    rig_say(rig, s, "4 LOCK a owner=w wait=0");
    rig_granted(rig, rig_op(rig, OP_ACQUIRE), 5);
    rig_expect(rig, s, "2 OK fence=5 ttl_ms=~ count=1");
    rig_status(rig, rig_op(rig, OP_ACQUIRE), OP_BUSY);
    rig_expect(rig, s, "4 ERR BUSY retry=1");
    rig_ask(rig, s, "5 LOCK a mode=shared", "5 ERR CONFLICT retry=0");
    rig_ask(rig, s, "6 LOCK b a", "6 ERR CONFLICT retry=0 name=a");
    rig_no_op(rig);
    rig_say(rig, s, "7 UNLOCK a");
    rig_say(rig, s, "8 LOCK a");
    rig_status(rig, rig_op(rig, OP_RELEASE), OP_OK);
    rig_expect(rig, s, "7 OK count=0");
    rig_granted(rig, rig_op(rig, OP_ACQUIRE), 6);
    rig_expect(rig, s, "8 OK fence=6 ttl_ms=~ count=1");
    rig_ask(rig, s, "9 HELLO reenter=1", "9 OK session=~ proto=1 server=~");
    rig_ask(rig, s, "10 LOCK a", "10 OK fence=6 ttl_ms=~ count=2");
}

/* keep= is all that is left where the broker alone sees the end. */
RIG_TEST(no_more_than_keep, rig_new())
{
    unsigned s = rig_open_tcp(rig);

    rig_ask(rig, s, "HELLO keep=5s",
        "- OK session=~ proto=1 server=~ keep_ms=5000");
    rig_say(rig, s, "LOCK a");
    rig_granted(rig, rig_op(rig, OP_ACQUIRE), 5);
    rig_expect(rig, s, "- OK fence=5 ttl_ms=5000 count=1");
    rig_ask(rig, s, "PING", "- OK ttl_ms=5000");
}

/* A PING is about holds that somebody counts on. */
SESSION_TEST(pinged_holds)
{
    unsigned heir = rig_open(rig);

    rig_ask(rig, s, "HELLO keep=60s",
        "- OK session=~ proto=1 server=~ keep_ms=60000");
    rig_lock(rig, s, "LOCK a", 5);
    rig_lock(rig, s, "LOCK b lease=9s", 6);
    rig_say(rig, s, "PING"); /* b has an end of its own */
    rig_expect(rig, s, "- OK ttl_ms=29698");
    rig_event(rig, s, CORE_DROP);
    rig_resume(rig, s, heir, 2, "");
    rig_expect(rig, heir, "- OK session=~ proto=1 server=~ gen=2");
    rig_ask(rig, heir, "PING", "- OK");
    rig_say(rig, heir, "CLAIM a fence=5");
    struct op *op = rig_op(rig, OP_RENEW);
    rig_finish(rig, op,
        (struct op_result){.status = OP_OK,
            .fence = 5,
            .ttl_ms = RIG_LEASE_MS,
            .ask = {.permits = 1}});
    rig_expect(rig, heir, "- OK fence=5 ttl_ms=~ count=1");
    rig_ask(rig, heir, "PING", "- OK ttl_ms=29698");
}

/* Beside a lease= alone a PING tells for how long the session is safe. */
RIG_TEST(pinged_leases, rig_new())
{
    unsigned s = _i == 0 ? rig_open(rig) : rig_open_tcp(rig);

    rig_lock(rig, s, "LOCK a lease=9s", 5);
    rig_ask(rig, s, "PING", _i == 0 ? "- OK" : "- OK ttl_ms=11000");
}

/* keep= is the connection's that says it. */
SESSION_TEST(keep_is_not_inherited)
{
    unsigned heir = rig_open(rig);

    rig_ask(rig, s, "HELLO keep=60s",
        "- OK session=~ proto=1 server=~ keep_ms=60000");
    rig_lock(rig, s, "LOCK a", 5);
    rig_event(rig, s, CORE_DROP);
    rig_resume(rig, s, heir, 2, _i == 0 ? "" : " keep=9s");
    rig_expect(rig, heir,
        _i == 0 ? "- OK session=~ proto=1 server=~ gen=2"
                : "- OK session=~ proto=1 server=~ keep_ms=9000 gen=2");
    rig_event(rig, heir, CORE_DROP);
    if (_i == 0)
        rig_status(rig, rig_op(rig, OP_RELEASE), OP_OK);
    else
        rig_no_op(rig);
}

/* LOST comes by the client's margin; others wait for the whole lease=. */
SESSION_TEST(a_lease_lasts_for_others)
{
    rig_say(rig, s, "LOCK a lease=10s");
    struct op *op = rig_op(rig, OP_ACQUIRE);
    rig_pass(rig, 20); /* on its way */
    rig_finish(rig, op,
        (struct op_result){.status = OP_OK, .fence = 5, .ttl_ms = 10000});
    rig_expect(rig, s, "- OK fence=5 ttl_ms=~ count=1");
    rig_pass(rig, 9900);
    rig_expect(rig, s, "* LOST a fence=5 reason=expired");
    rig_ask(rig, s, "1 LOCK a wait=0", "1 ERR BUSY retry=1");
    rig_say(rig, s, "2 LOCK a wait=50ms");
    rig_pass(rig, 60);
    rig_expect(rig, s, "2 ERR TIMEOUT retry=1");
    rig_pass(rig, 39);
    for (uint32_t i = 0; i < rig->op_count; i++)
        ck_assert_int_ne(rig->ops[i]->kind, OP_RELEASE);
    rig_pass(rig, 3);
    ck_assert_int_eq(rig->ops[rig->op_count - 1]->kind, OP_RELEASE);
}

/* Nor does an end that Redis has not confirmed keep the owner from the lock for
 * longer than that. */
SESSION_TEST(a_shorter_lease_in_doubt)
{
    rig_lock(rig, s, "LOCK a lease=20s", 5);
    rig_say(rig, s, "1 RENEW a lease=2s");
    rig_pass(rig, 2000);
    rig_expect(rig, s, "* LOST a fence=5 reason=expired");
    rig_expect(rig, s, "1 ERR LOST retry=0");
    rig_pass(rig, 30);
    ck_assert_int_eq(rig->ops[rig->op_count - 1]->kind, OP_RELEASE);
}

START_TEST(break_is_done)
{
    struct op_ticket holder = {.granted = true, .broken = true};
    struct rig *rig = rig_new();
    unsigned s = rig_open(rig);

    rig_say(rig, s, "1 BREAK a");
    rig_finish(rig, rig_op(rig, OP_BREAK),
        (struct op_result){.status = OP_OK, .ahead = 1});
    rig_silent(rig, s);
    rig_pass(rig, 5);
    rig_finish(rig, rig_op(rig, OP_INSPECT),
        (struct op_result){
            .status = OP_OK, .tickets = &holder, .ticket_count = 1});
    rig_silent(rig, s);
    if (_i == 0) {
        rig_pass(rig, 20);
        rig_finish(rig, rig_op(rig, OP_INSPECT),
            (struct op_result){.status = OP_OK, .delay_ms = 70});
        rig_expect(rig, s, "1 OK holders=1 delay_ms=70");
    } else {
        rig_pass(rig, 20);
        struct op *op = rig_op(rig, OP_INSPECT);
        rig_pass_us(rig, rig->settings.command_timeout_us);
        rig_status(rig, op, OP_UNSENT);
        rig_expect(rig, s, "1 OK holders=1 pending=1");
    }
    rig_no_op(rig);
    rig_end(rig);
}

END_TEST

/* The log says which command an error answers. */
START_TEST(errors_speak_of_their_command)
{
    ck_assert_ptr_nonnull(
        strstr(error_outcome(ERROR_INDOUBT, COMMAND_RENEW), "new end"));
    ck_assert_ptr_nonnull(
        strstr(error_outcome(ERROR_UNAVAILABLE, COMMAND_CLAIM), "claim"));
    ck_assert_str_eq(error_outcome(ERROR_INDOUBT, COMMAND_LOCK),
        error_meaning(ERROR_INDOUBT));
}

END_TEST

/* Of two ends that are under way the earlier one could be stored last: the next
 * request waits for the answer to the RENEW of an earlier connection. */
SESSION_TEST(renewals_one_by_one)
{
    unsigned t = rig_open(rig);

    rig_ask(rig, s, "HELLO keep=10s", "- OK ~ ~ ~ keep_ms=10000");
    rig_lock(rig, s, "1 LOCK a lease=20s", 5);
    rig_say(rig, s, "2 RENEW a lease=9s");
    struct op *op = rig_op(rig, OP_RENEW);
    rig_event(rig, s, CORE_DROP);
    rig_resume(rig, s, t, 2, " keep=10s");
    (void)rig_line(rig, t);
    rig_say(rig, t, "3 CLAIM a fence=5 count=1");
    rig_say(rig, t, "4 RENEW a lease=19s");
    rig_silent(rig, t);
    ck_assert_uint_eq(rig->op_count, 1);
    rig_granted(rig, op, 5);
    rig_granted(rig, rig_op(rig, OP_RENEW), 5);
    rig_expect(rig, t, "3 OK fence=5 ttl_ms=~ count=1");
    rig_granted(rig, rig_op(rig, OP_RENEW), 5);
    rig_expect(rig, t, "4 OK ttl_ms=~");
}

Suite *
core_told_suite(void)
{
    Suite *suite = suite_create("core_told");
    TCase *all = tcase_create("all");

    tcase_add_loop_test(all, cancelled_while_redis_is_asked, 0, 7);
    tcase_add_test(all, renewals_one_by_one);
    tcase_add_test(all, cancelled_and_stopped);
    tcase_add_test(all, killed_while_it_quits);
    tcase_add_test(all, cancelled_and_closed);
    tcase_add_loop_test(all, cancelled_without_an_answer, 0, 2);
    tcase_add_test(all, a_wait_is_over_once_it_is_struck_out);
    tcase_add_test(all, times_of_the_session);
    tcase_add_loop_test(all, bye_says_whether_the_session_stands, 0, 16);
    tcase_add_test(all, quit_is_answered_last);
    tcase_add_test(all, no_reentry);
    tcase_add_test(all, no_more_than_keep);
    tcase_add_test(all, pinged_holds);
    tcase_add_loop_test(all, pinged_leases, 0, 2);
    tcase_add_loop_test(all, keep_is_not_inherited, 0, 2);
    tcase_add_test(all, a_lease_lasts_for_others);
    tcase_add_test(all, a_shorter_lease_in_doubt);
    tcase_add_loop_test(all, break_is_done, 0, 2);
    tcase_add_test(all, errors_speak_of_their_command);
    suite_add_tcase(suite, all);
    return suite;
}

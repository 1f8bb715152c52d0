/*
 * Tests of daemon/core/feature/await.c: AWAIT, and when it ends.
 */
#include "daemon/op/op.h"
#include "tests/unit/core_rig.h"

#include <stdio.h>
#include <string.h>

Suite *core_await_suite(void);

#define MANY 60

static const char news_of_a[] = "Wholdfast:{a}";

static void
changed(struct rig *rig)
{
    rig_news(rig, news_of_a, sizeof(news_of_a) - 1);
}

/* Answers the inspection: a holder with that fence and lease, or nobody after a
 * grant with that fence. */
static void
inspected(struct rig *rig, bool held, uint64_t fence, uint32_t lease_ms)
{
    struct op_ticket ticket = {.granted = true,
        .fence = fence,
        .ttl_ms = lease_ms,
        .client = TEXT(""),
        .owner = TEXT(""),
        .note = TEXT("url")};
    struct op *op = rig_op(rig, OP_INSPECT);

    ck_assert_int_eq(op->reader, READER_WATCH);
    rig_finish(rig, op,
        (struct op_result){.status = OP_OK,
            .holders = held,
            .arrival = 2,
            .fence = fence,
            .tickets = &ticket,
            .ticket_count = held});
}

static void
held(struct rig *rig, uint64_t fence)
{
    inspected(rig, true, fence, RIG_LEASE_MS);
}

static void
freed(struct rig *rig, uint64_t fence)
{
    inspected(rig, false, fence, 0);
}

static void
looked(struct rig *rig)
{
    struct op *op = rig_op(rig, OP_LOOK);

    ck_assert(op->watch && !op->waits);
    rig_status(rig, op, OP_OK);
}

/* AWAIT of a lock that the broker finds held. */
static void
await_held(struct rig *rig, unsigned session, const char *line)
{
    rig_say(rig, session, line);
    held(rig, 7);
    looked(rig);
    held(rig, 7);
    rig_silent(rig, session);
    rig_no_op(rig);
}

/* One read of a free lock is all, and nothing is watched. */
SESSION_TEST(free_at_once)
{
    rig_say(rig, s, "1 AWAIT a");
    freed(rig, 9);
    rig_expect(rig, s, "1 OK fence=9");
    rig_say(rig, s, "2 AWAIT a wait=0");
    rig_status(rig, rig_op(rig, OP_INSPECT), OP_GONE);
    rig_expect(rig, s, "2 OK");
    /* The record of a lock that nobody ever held has a fence, too. */
    rig_say(rig, s, "3 AWAIT a");
    rig_finish(rig, rig_op(rig, OP_INSPECT),
        (struct op_result){.status = OP_OK, .arrival = 1, .fence = 5});
    rig_expect(rig, s, "3 OK");
    rig_pass(rig, RIG_LEASE_MS);
    rig_no_op(rig);
    ck_assert_uint_eq(rig_count(rig, COUNTER_awaits_woken), 3);
}

/* With the note of the last holder; not that of an earlier one. */
SESSION_TEST(until_free)
{
    await_held(rig, s, "1 AWAIT a");
    changed(rig);
    freed(rig, 7);
    rig_expect(rig, s, "1 OK fence=7 note=url");
    await_held(rig, s, "2 AWAIT a wait=1h");
    changed(rig);
    freed(rig, 8);
    rig_expect(rig, s, "2 OK fence=8");
    changed(rig);
    rig_pass(rig, RIG_LEASE_MS);
    rig_no_op(rig);
}

/* Redis has forgotten the record: other brokers may have granted since. */
SESSION_TEST(forgotten)
{
    await_held(rig, s, "1 AWAIT a");
    changed(rig);
    rig_finish(rig, rig_op(rig, OP_INSPECT),
        (struct op_result){.status = OP_OK, .arrival = 1, .fence = 5});
    rig_expect(rig, s, "1 OK");
}

/* A change costs one inspection, and a further AWAIT none. */
RIG_TEST(together, rig_new())
{
    unsigned s[MANY];
    char line[40];

    for (unsigned i = 0; i < MANY; i++) {
        s[i] = rig_open(rig);
        rig_say(rig, s[i], "1 AWAIT a");
        if (i > 0)
            continue;
        held(rig, 7);
        rig_say(rig, s[i], "2 AWAIT a"); /* the look is under way */
        looked(rig);
        held(rig, 7);
    }
    rig_no_op(rig);
    rig->effects.entry_capacity = EFFECTS_STEP_ENTRIES + 10;
    changed(rig);
    freed(rig, 7);
    /* Held again, before a step had room to tell all. */
    changed(rig);
    rig_pass(rig, 1);
    for (unsigned i = 0; i < MANY; i++) {
        snprintf(line, sizeof(line), "1 OK fence=7 note=url");
        rig_expect(rig, s[i], line);
    }
    rig_expect(rig, s[0], "2 OK fence=7 note=url");
    while (rig->op_count > 0)
        held(rig, 8);
}

/* An answer from before the AWAIT does not count. */
SESSION_TEST(fresh)
{
    unsigned t = rig_open(rig);

    await_held(rig, s, "1 AWAIT a");
    changed(rig);
    rig_say(rig, t, "1 AWAIT a");
    freed(rig, 7);
    rig_expect(rig, s, "1 OK fence=7 note=url");
    rig_silent(rig, t);
    held(rig, 8);
    rig_silent(rig, t);
    changed(rig);
    freed(rig, 8);
    rig_expect(rig, t, "1 OK fence=8 note=url");
}

SESSION_TEST(wait_over)
{
    rig_say(rig, s, "1 AWAIT a wait=0");
    held(rig, 7);
    rig_expect(rig, s, "1 ERR BUSY retry=1");
    rig_no_op(rig);
    await_held(rig, s, "2 AWAIT a wait=500");
    rig_pass(rig, 490);
    rig_silent(rig, s);
    rig_pass(rig, 20);
    rig_expect(rig, s, "2 ERR TIMEOUT retry=1");
    ck_assert_uint_eq(rig_count(rig, COUNTER_awaits_busy), 1);
    ck_assert_uint_eq(rig_count(rig, COUNTER_awaits_timeout), 1);
    ck_assert_uint_eq(rig_count(rig, COUNTER_waits_timed_out), 0);
    changed(rig);
    rig_no_op(rig);
}

/* A lost hint, and a holder whose broker is gone. */
SESSION_TEST(without_hints)
{
    struct core_event event = {.kind = CORE_UNHEARD};

    await_held(rig, s, "1 AWAIT a");
    rig_pass(rig, RIG_LEASE_MS / 4 + 1000);
    looked(rig);
    inspected(rig, true, 7, 1000);
    rig_pass(rig, 1040);
    rig_no_op(rig);
    rig_pass(rig, 20);
    looked(rig);
    freed(rig, 7);
    rig_expect(rig, s, "1 OK fence=7 note=url");
    await_held(rig, s, "2 AWAIT a");
    rig_step(rig, &event);
    rig_pass(rig, 500);
    looked(rig);
    freed(rig, 7);
    rig_expect(rig, s, "2 OK fence=7 note=url");
}

/* Nobody holds it, but its lock-delay lasts, or a holder may still report. */
SESSION_TEST(not_free_yet)
{
    bool delay = _i;
    struct op_result result = {.status = OP_OK,
        .ttl_ms = delay ? 0 : 2000,
        .delay_ms = delay ? 2000 : 0};

    rig_say(rig, s, "1 AWAIT a wait=0");
    rig_finish(rig, rig_op(rig, OP_INSPECT), result);
    rig_expect(rig, s,
        delay ? "1 ERR BUSY retry=1 delay_ms=~"
              : "1 ERR UNAVAILABLE retry=1 reason=settling after_ms=~");
    rig_say(rig, s, "2 AWAIT a wait=1s");
    rig_say(rig, s, "3 AWAIT a");
    rig_finish(rig, rig_op(rig, OP_INSPECT), result);
    rig_finish(rig, rig_op(rig, OP_INSPECT), result);
    looked(rig);
    rig_finish(rig, rig_op(rig, OP_INSPECT), result);
    rig_pass(rig, 1020);
    rig_expect(rig, s,
        delay ? "2 ERR TIMEOUT retry=1"
              : "2 ERR UNAVAILABLE retry=1 reason=settling after_ms=~");
    rig_pass(rig, 1040);
    looked(rig);
    rig_status(rig, rig_op(rig, OP_INSPECT), OP_GONE);
    rig_expect(rig, s, "3 OK");
}

/* Redis cannot be asked: redis.patience, or a lease after an answer. */
SESSION_TEST(unavailable)
{
    bool known = _i;
    uint64_t left_ms = known ? RIG_LEASE_MS : 5000;

    if (known)
        await_held(rig, s, "1 AWAIT a");
    else
        rig_say(rig, s, "1 AWAIT a");
    for (; left_ms > 0; left_ms -= 100) {
        rig_silent(rig, s);
        while (rig->op_count > 0)
            rig_status(rig, rig->ops[0], OP_UNSENT);
        rig_pass(rig, 100);
    }
    rig_pass(rig, 100);
    rig_expect(rig, s, "1 ERR UNAVAILABLE retry=1");
    rig_say(rig, s, "2 AWAIT a wait=0");
    rig_pass(rig, 1980);
    rig_silent(rig, s);
    rig_pass(rig, 40);
    rig_expect(rig, s, "2 ERR UNAVAILABLE retry=1");
}

/* CANCEL, FIN, the loss of the connection, the stop of the broker. */
SESSION_TEST(ended)
{
    unsigned t = rig_open_kept(rig);
    unsigned u = rig_open(rig);
    struct core_totals now;

    await_held(rig, s, "1 AWAIT a");
    rig_say(rig, t, "1 AWAIT a");
    rig_say(rig, u, "1 AWAIT a");
    core_totals(rig->core, &now);
    ck_assert_uint_eq(now.awaiting, 3);
    rig_ask(rig, s, "2 CANCEL 1", "1 ERR CANCELLED retry=1");
    rig_expect(rig, s, "2 OK");
    rig_ask(rig, s, "3 CANCEL 1", "3 ERR BADREQ retry=0");
    rig_say(rig, s, "4 AWAIT a");
    rig_event(rig, s, CORE_EOF);
    rig_pass(rig, 10);
    rig_expect(rig, s, "4 ERR CANCELLED retry=1");
    rig_expect(rig, s, "* BYE eof");
    rig_event(rig, t, CORE_DROP);
    rig_stop(rig);
    rig_pass(rig, 10);
    rig_expect(rig, u, "* DRAIN grace_ms=~");
    rig_expect(rig, u, "1 ERR DRAINING retry=1");
    core_totals(rig->core, &now);
    ck_assert_uint_eq(now.awaiting, 0);
    ck_assert_uint_eq(rig_count(rig, COUNTER_awaits_cancelled), 2);
    ck_assert_uint_eq(rig_count(rig, COUNTER_awaits_unheard), 1);
    ck_assert_uint_eq(rig_count(rig, COUNTER_awaits_failed), 1);
    ck_assert_uint_eq(rig_count(rig, COUNTER_waits_cancelled), 0);
    changed(rig);
    rig_no_op(rig);
}

/* After a FIN the first answer of Redis is waited for. */
SESSION_TEST(fin)
{
    bool waits = _i;

    rig_say(rig, s, waits ? "1 AWAIT a" : "1 AWAIT a wait=0");
    rig_event(rig, s, CORE_EOF);
    rig_pass(rig, 10);
    rig_silent(rig, s);
    held(rig, 7);
    rig_expect(
        rig, s, waits ? "1 ERR CANCELLED retry=1" : "1 ERR BUSY retry=1");
    rig_expect(rig, s, "* BYE eof");
    rig_no_op(rig);
}

RIG_TEST(limits, rig_create())
{
    rig->settings.outstanding_max = 2;
    rig->settings.holds_max = 3;
    rig_start(rig);
    unsigned s = rig_open(rig);

    await_held(rig, s, "1 AWAIT a");
    rig_say(rig, s, "2 AWAIT a");
    rig_ask(rig, s, "3 AWAIT a", "3 ERR LIMIT retry=1 limit=outstanding");
    changed(rig);
    freed(rig, 7);
    rig_expect(rig, s, "1 OK fence=7 note=url");
    rig_expect(rig, s, "2 OK fence=7 note=url");
}

Suite *
core_await_suite(void)
{
    Suite *suite = suite_create("core_await");
    TCase *tests = tcase_create("core_await");

    tcase_add_test(tests, free_at_once);
    tcase_add_test(tests, until_free);
    tcase_add_test(tests, forgotten);
    tcase_add_test(tests, together);
    tcase_add_test(tests, fresh);
    tcase_add_test(tests, wait_over);
    tcase_add_test(tests, without_hints);
    tcase_add_loop_test(tests, not_free_yet, 0, 2);
    tcase_add_loop_test(tests, unavailable, 0, 2);
    tcase_add_test(tests, ended);
    tcase_add_loop_test(tests, fin, 0, 2);
    tcase_add_test(tests, limits);
    suite_add_tcase(suite, tests);
    return suite;
}

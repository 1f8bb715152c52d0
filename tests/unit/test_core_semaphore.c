/*
 * Tests of semaphores (limit=, permits=): how they are shown and claimed, and
 * the words of QUEUED and ERR BUSY. Permits that are given back in part, and
 * other limits. Holds of more permits than there are.
 */
#include "daemon/op/op.h"
#include "tests/unit/core_rig.h"

#include <stdio.h>
#include <string.h>

Suite *core_semaphore_suite(void);

START_TEST(shown)
{
    struct op_ticket tickets[] = {
        {.granted = true, .fence = 1, .permits = 2, .ttl_ms = 9},
        {.granted = true, .fence = 2, .permits = 1, .ttl_ms = 9},
        {.permits = 1, .ttl_ms = 9}};
    struct rig *rig = rig_new();
    unsigned s = rig_open(rig);

    rig_say(rig, s, "1 SHOW a");
    rig_finish(rig, rig_op(rig, OP_INSPECT),
        (struct op_result){.status = OP_OK,
            .tickets = tickets,
            .ticket_count = 3,
            .holders = 2,
            .waiters = 1,
            .limit = 4,
            .used = 3});
    rig_expect(rig, s, "1 ITEM kind=holder ~ permits=2 fence=1 ~ ~");
    rig_expect(rig, s, "1 ITEM kind=holder ~ fence=2 ~ ~");
    rig_expect(rig, s, "1 ITEM kind=waiter position=1 ~ ~");
    rig_expect(rig, s,
        "1 OK state=held mode=semaphore limit=4 permits=3 holders=2 "
        "waiters=1");
    rig_end(rig);
}

END_TEST

/* A session goes on at another broker, with the permits that it had. */
RIG_TEST(claimed, rig_new())
{
    unsigned t = rig_open(rig);

    rig_ask(rig, t, "HELLO resume=000102030405060708090a0b0c0d0e0f gen=2",
        "- OK ~ ~ ~ gen=2");
    rig_say(rig, t, "1 CLAIM a fence=1 count=2");
    rig_finish(rig, rig_op(rig, OP_RENEW),
        (struct op_result){.status = OP_OK,
            .fence = 1,
            .ttl_ms = RIG_LEASE_MS,
            .ask = {.permits = 2, .permits_max = 3}});
    rig_expect(rig, t, "1 OK fence=1 ttl_ms=~ count=2");
    rig_ask(rig, t, "2 HELD",
        "2 ITEM name=a fence=1 ttl_ms=~ count=2 limit=3 permits=2");
    rig_expect(rig, t, "2 OK n=1");
    rig_ask(rig, t, "3 LOCK a limit=3", "3 ERR CONFLICT retry=0");
    rig_ask(
        rig, t, "4 LOCK a limit=3 permits=2", "4 OK fence=1 ttl_ms=~ count=3");
    for (unsigned i = 0; i < 2; i++) {
        rig_ask(rig, t, "5 UNLOCK a", "5 OK count=~");
        rig_no_op(rig);
    }
    rig_say(rig, t, "6 UNLOCK a");
    rig_status(rig, rig_op(rig, OP_RELEASE), OP_OK);
    rig_expect(rig, t, "6 OK count=0");
}

/* --- UNLOCK permits= ------------------------------------------------------ */

/* `permits` of the next operation, a renewal. */
static struct op *
expect_keeps(struct rig *rig, uint32_t permits)
{
    struct op *op = rig_op(rig, OP_RENEW);

    ck_assert_uint_eq(op->keeps, permits);
    ck_assert(!op->shares && !op->moves && !op->sets_end);
    return op;
}

/* Redis is told, and then it is answered. Requests behind it wait. */
SESSION_TEST(part)
{
    rig_lock(rig, s, "1 LOCK a limit=9 permits=5", 5);
    rig_say(rig, s, "2 UNLOCK a permits=2 fence=5");
    rig_say(rig, s, "3 LOCK a limit=9 permits=5");
    rig_say(rig, s, "4 LOCK a limit=9 permits=3");
    rig_say(rig, s, "5 UNLOCK a permits=1");
    rig_say(rig, s, "6 UNLOCK a");
    rig_say(rig, s, "7 UNLOCK a permits=1");
    rig_silent(rig, s);
    rig_granted(rig, expect_keeps(rig, 3), 5);
    rig_expect(rig, s, "2 OK count=1 permits=3");
    rig_expect(rig, s, "3 ERR CONFLICT retry=0");
    rig_expect(rig, s, "4 OK fence=5 ttl_ms=~ count=2");
    rig_expect(rig, s, "5 ERR CONFLICT retry=0"); /* it was entered twice */
    rig_expect(rig, s, "6 OK count=1");
    rig_granted(rig, expect_keeps(rig, 2), 5);
    rig_expect(rig, s, "7 OK count=1 permits=2");
    rig_pass(rig, 10010);
    rig_granted(rig, expect_keeps(rig, 2), 5); /* the data may be older */
    rig_say(rig, s, "8 UNLOCK a permits=2");
    rig_status(rig, rig_op(rig, OP_RELEASE), OP_OK);
    rig_expect(rig, s, "8 OK count=0");
}

/* Nothing changes. */
SESSION_TEST(part_refused)
{
    rig_lock(rig, s, "1 LOCK a limit=9 permits=5", 5);
    rig_lock(rig, s, "1 LOCK b mode=shared", 5);
    rig_ask(rig, s, "2 UNLOCK a permits=0", "2 ERR BADREQ retry=0");
    rig_ask(rig, s, "2 UNLOCK a permits=1 fence=5 detached=1",
        "2 ERR BADREQ retry=0");
    rig_ask(rig, s, "2 UNLOCK a b permits=1", "2 ERR BADREQ retry=0");
    rig_ask(rig, s, "2 UNLOCK a permits=6", "2 ERR CONFLICT retry=0");
    rig_ask(rig, s, "2 UNLOCK b permits=1", "2 ERR CONFLICT retry=0");
    rig_ask(rig, s, "2 UNLOCK a permits=2 fence=4", "2 ERR STALE retry=0");
    rig_ask(rig, s, "2 UNLOCK a permits=2 owner=o", "2 ERR NOTHELD retry=0");
    ck_assert_uint_eq(rig_count(rig, COUNTER_refused_conflict), 2);
    rig_no_op(rig);
    rig_ask(rig, s, "3 LOCK a limit=9 permits=5", "3 OK ~ ~ count=2");
}

/* The answer is not to be had: Redis is told until it has heard, also where
 * the hold is not renewed, and when it has lost the hold. */
SESSION_TEST(part_in_doubt)
{
    rig_lock(rig, s, "1 LOCK a limit=9 permits=5 lease=20s", 5);
    rig_say(rig, s, "2 UNLOCK a permits=2");
    rig_status(rig, expect_keeps(rig, 3), _i ? OP_UNKNOWN : OP_UNSENT);
    rig_text(
        rig, s, ":Redis has not confirmed it: the hold stands with the rest");
    rig_expect(rig, s, "2 ERR INDOUBT retry=1");
    rig_ask(rig, s, "3 LOCK a limit=9 permits=3", "3 OK ~ ~ count=2");
    rig_pass(rig, 120);
    rig_status(rig, expect_keeps(rig, 3), OP_MISSING);
    ck_assert_uint_eq(rig_op(rig, OP_RECLAIM)->ask.permits, 3);
}

/* The hold is put again with what it keeps, and answered by that; or it has
 * ended. */
SESSION_TEST(part_of_what_is_gone)
{
    rig_lock(rig, s, "1 LOCK a limit=9 permits=5", 5);
    rig_say(rig, s, "2 UNLOCK a permits=2");
    rig_status(rig, expect_keeps(rig, 3), OP_MISSING);
    ck_assert_uint_eq(rig_op(rig, OP_RECLAIM)->ask.permits, 3);
    rig_granted(rig, rig_op(rig, OP_RECLAIM), 5);
    rig_expect(rig, s, "2 OK count=1 permits=3");
    rig_say(rig, s, "3 UNLOCK a permits=2");
    rig_status(rig, expect_keeps(rig, 1), OP_GONE);
    rig_expect(rig, s, "* LOST a fence=5 reason=gone");
    rig_expect(rig, s, "3 ERR LOST retry=0");
}

/* Permits that were given back at another broker do not come back. */
RIG_TEST(part_elsewhere, rig_new())
{
    unsigned s = rig_open_kept(rig);
    unsigned t = rig_open(rig);

    rig_lock(rig, s, "1 LOCK a limit=9 permits=5", 5);
    rig_event(rig, s, CORE_DROP);
    rig_resume(rig, s, t, 3, " keep=10s");
    rig_expect(rig, t, "- OK ~ ~ ~ ~ gen=3");
    rig_say(rig, t, "2 CLAIM a fence=5");
    rig_finish(rig, rig_op(rig, OP_RENEW),
        (struct op_result){.status = OP_OK,
            .fence = 5,
            .ttl_ms = RIG_LEASE_MS,
            .ask = {.permits = 4, .permits_max = 9}});
    rig_expect(rig, t, "2 OK fence=5 ttl_ms=~ count=1");
    rig_ask(rig, t, "3 UNLOCK a permits=5", "3 ERR CONFLICT retry=0");
    rig_say(rig, t, "4 UNLOCK a permits=1");
    rig_granted(rig, expect_keeps(rig, 3), 5);
    rig_expect(rig, t, "4 OK count=1 permits=3");
}

/* --- RESIZE --------------------------------------------------------------- */

static struct op_result
told_limit(uint32_t limit, bool beyond)
{
    return (struct op_result){.status = OP_OK,
        .fence = 5,
        .ttl_ms = RIG_LEASE_MS,
        .ahead = limit,
        .beyond = beyond};
}

SESSION_TEST(resize)
{
    static const struct {
        struct op_result result;
        const char *reply;
    } rows[] = {
        {{.status = OP_OK, .used = 2}, "1 OK limit=3 permits=2"},
        {{.status = OP_GONE}, "1 ERR NOTHELD retry=0"},
        {{.status = OP_CONFLICT}, "1 ERR CONFLICT retry=0"},
        {{.status = OP_MISSING, .again_ms = 4},
            "1 ERR UNAVAILABLE retry=1 reason=settling after_ms=5"},
        {{.status = OP_UNSENT}, "1 ERR UNAVAILABLE retry=1"},
        {{.status = OP_REFUSED}, "1 ERR INTERNAL retry=0"},
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        rig_say(rig, s, "1 RESIZE a limit=3");
        struct op *op = rig_op(rig, OP_RESIZE);
        ck_assert_uint_eq(op->keeps, 3);
        ck_assert(!op->by_fence);
        rig_finish(rig, op, rows[i].result);
        rig_expect(rig, s, rows[i].reply);
    }
    ck_assert_uint_eq(rig_count(rig, COUNTER_resizes), 1);
    rig_ask(rig, s, "1 RESIZE a limit=0", "1 ERR BADREQ retry=0");
    rig_ask(rig, s, "1 RESIZE a", "1 ERR BADREQ retry=0");
}

/* The answer is lost: Redis is asked again, for as long as is worth it. */
SESSION_TEST(resize_in_doubt)
{
    static const enum op_status outcomes[] = {OP_OK, OP_UNSENT, OP_MISSING};

    rig_say(rig, s, "1 RESIZE a limit=3");
    rig_status(rig, rig_op(rig, OP_RESIZE), OP_UNKNOWN);
    struct op *op = rig_op(rig, OP_RESIZE);
    ck_assert_uint_eq(op->keeps, 3);
    rig_status(rig, op, outcomes[_i]);
    rig_expect(rig, s, _i ? "1 ERR INDOUBT retry=1" : "1 OK limit=3 permits=0");
    rig_say(rig, s, "2 RESIZE a limit=3");
    rig_event(rig, s, CORE_DROP);
    rig_status(rig, rig_op(rig, OP_RESIZE), OP_UNKNOWN);
    rig_no_op(rig);
}

/* A LOCK with another limit hears the present one. */
SESSION_TEST(old_limit)
{
    rig_say(rig, s, "1 LOCK a limit=2");
    rig_finish(rig, rig_op(rig, OP_ACQUIRE),
        (struct op_result){.status = OP_CONFLICT, .ahead = _i ? 3 : 0});
    rig_expect(rig, s,
        _i ? "1 ERR CONFLICT retry=0 limit=3" : "1 ERR CONFLICT retry=0");
    rig_say(rig, s, "2 LOCK a b limit=2");
    rig_finish(rig, rig_op(rig, OP_ACQUIRE),
        (struct op_result){.status = OP_CONFLICT, .ahead = _i ? 3 : 0});
    rig_expect(rig, s,
        _i ? "2 ERR CONFLICT retry=0 limit=3 name=a"
           : "2 ERR CONFLICT retry=0 name=a");
}

/* A re-entry with another limit than the broker knows: Redis is asked. */
SESSION_TEST(resized_reentry)
{
    rig_lock(rig, s, "1 LOCK a limit=3 permits=2", 5);
    rig_say(rig, s, "2 LOCK a limit=4 permits=2");
    struct op *op = rig_op(rig, OP_RENEW);
    ck_assert(!op->moves);
    rig_finish(rig, op, told_limit((uint32_t)_i, false));
    rig_expect(rig, s,
        _i == 4 ? "2 OK fence=5 ttl_ms=~ count=2" : "2 ERR CONFLICT retry=0");
    rig_say(rig, s, "3 LOCK a limit=4");
    if (_i != 4)
        rig_finish(rig, rig_op(rig, OP_RENEW), told_limit(4, false));
    rig_expect(rig, s, "3 ERR CONFLICT retry=0");
    rig_ask(rig, s, "4 HELD",
        _i == 4 ? "4 ITEM name=a fence=5 ttl_ms=~ count=2 limit=4 permits=2"
                : "4 ITEM name=a fence=5 ttl_ms=~ count=1 limit=4 permits=2");
    rig_expect(rig, s, "4 OK n=1");
    rig_pass(rig, 10010);
    rig_status(rig, rig_op(rig, OP_RENEW), OP_MISSING); /* Redis has lost it */
    ck_assert_uint_eq(rig_op(rig, OP_RECLAIM)->ask.permits_max, 4);
}

/* A waiter of the old limit is granted the lock by the new one, beside the
 * holds that this broker has. */
SESSION_TEST(grown)
{
    unsigned t = rig_open(rig);

    rig_lock(rig, s, "1 LOCK a limit=1", 5);
    rig_say(rig, t, "1 LOCK a limit=1");
    struct op *asked = rig_op(rig, OP_ACQUIRE);
    uint64_t request = asked->request;
    rig_queued(rig, asked);
    rig_say(rig, s, "2 RESIZE a limit=2");
    struct op *op = rig_op(rig, OP_RESIZE);
    if (_i == 0) {
        const struct op_grant grant = {
            .request = request, .fence = 6, .ttl_ms = RIG_LEASE_MS, .limit = 2};
        rig_finish(rig, op,
            (struct op_result){.status = OP_OK,
                .used = 2,
                .grants = &grant,
                .grant_count = 1});
    } else {
        rig_finish(rig, op, (struct op_result){.status = OP_OK, .used = 2});
        rig_hint(rig, request);
        rig_finish(rig, rig_op(rig, OP_RENEW), told_limit(2, false));
    }
    rig_expect(rig, t, "1 OK fence=~ ttl_ms=~ count=1");
    rig_expect(rig, s, "2 OK limit=2 permits=2");
    rig_silent(rig, s);
}

/* A LOCK that is put again, as it was, for a wait that was granted by another
 * limit since: the hold is the one that it asked for. */
RIG_TEST(granted_meanwhile, rig_new())
{
    unsigned s = rig_open_kept(rig);
    unsigned t = rig_open(rig);

    rig_say(rig, s, "1 LOCK a limit=1");
    struct op *op = rig_op(rig, OP_ACQUIRE);
    uint64_t request = op->request;
    rig_queued(rig, op);
    rig_event(rig, s, CORE_DROP);
    rig_hint(rig, request);
    rig_finish(rig, rig_op(rig, OP_RENEW), told_limit(2, false));
    rig_resume(rig, s, t, 3, " keep=10s");
    rig_expect(rig, t, "- OK ~ ~ ~ ~ gen=3");
    rig_say(rig, t, "2 LOCK a limit=1");
    op = rig_op(rig, OP_RENEW);
    ck_assert(op->moves);
    struct op_result result = told_limit(2, false);
    result.ask = (struct ask){.permits = 1, .permits_max = 2};
    rig_finish(rig, op, result);
    rig_expect(rig, t, "2 OK fence=5 ttl_ms=~ count=1");
    rig_no_op(rig);
}

/* More permits are out than the limit: a hold that comes here displaces none
 * of those that this broker has. */
RIG_TEST(shrunk, rig_new())
{
    unsigned s = rig_open(rig);
    unsigned t = rig_open(rig);

    rig_lock(rig, s, "1 LOCK a limit=2", 5);
    rig_ask(rig, t, "HELLO resume=000102030405060708090a0b0c0d0e0f gen=2",
        "- OK ~ ~ ~ gen=2");
    rig_say(rig, t, "1 CLAIM a fence=4");
    struct op_result result = told_limit(1, true);
    result.fence = 4;
    result.ask = (struct ask){.permits = 1, .permits_max = 1};
    rig_finish(rig, rig_op(rig, OP_RENEW), result);
    rig_expect(rig, t, "1 OK fence=4 ttl_ms=~ count=1");
    rig_silent(rig, s);
}

/* --- QUEUED and ERR BUSY -------------------------------------------------- */

/* The `words` of BUSY, and of QUEUED, after an answer to a LOCK. */
static void
expect_words(const char *kind, struct op_result result, const char *words)
{
    char line[80];
    char pattern[200];

    for (int waits = 0; waits < 2; waits++) {
        struct rig *rig = rig_new();
        unsigned s = rig_open(rig);
        snprintf(line, sizeof(line), "1 LOCK a%s %s", kind,
            waits ? "progress=1" : "wait=0");
        rig_say(rig, s, line);
        result.status = waits ? OP_WAITING : OP_BUSY;
        result.again_ms = 1000;
        rig_finish(rig, rig_op(rig, OP_ACQUIRE), result);
        snprintf(pattern, sizeof(pattern), "1 %s position=3%s",
            waits ? "QUEUED" : "ERR BUSY retry=1", words);
        rig_expect(rig, s, pattern);
        rig_silent(rig, s);
        rig_end(rig);
    }
}

/* Each word is there where it is known; the owner is nobody's business. */
START_TEST(words)
{
    struct op_result told = {.ahead = 3,
        .told = true,
        .typical_ms = 100,
        .holder_age_ms = 30,
        .holder_owner = TEXT("w"),
        .holder_client = TEXT("c"),
        .holder_note = TEXT("n =:")};
    struct op_result now = told;

    expect_words("", told, " holder=c note=n%20%3D: age_ms=30 estimate_ms=270");
    now.holder_client = TEXT("");
    expect_words("", now, " note=n%20%3D: age_ms=30 estimate_ms=270");
    now.holder_note = TEXT("");
    expect_words("", now, " age_ms=30 estimate_ms=270");
    now.holder_age_ms = 0;
    expect_words("", now, " age_ms=0 estimate_ms=300");
    now.holder_age_ms = 100;
    expect_words("", now, " age_ms=100 estimate_ms=200");
    now.holder_age_ms = UINT32_MAX;
    expect_words("", now, " age_ms=4294967295 estimate_ms=200");
    now.typical_ms = 0;
    expect_words("", now, " age_ms=4294967295");
    /* Of several that hold it together nobody knows who goes first. */
    expect_words(" mode=shared", told, " holder=c note=n%20%3D: age_ms=30");
    expect_words(" limit=9", told, " holder=c note=n%20%3D: age_ms=30");
    told.told = false;
    expect_words("", told, "");
}

END_TEST

/* QUEUED is said once, and again where the place was lost. */
SESSION_TEST(queued_once)
{
    rig_say(rig, s, "1 LOCK a progress=1");
    uint64_t request = rig_op(rig, OP_ACQUIRE)->request;
    rig_queued(rig, rig_op(rig, OP_ACQUIRE));
    rig_expect(rig, s, "1 QUEUED position=1");
    for (int i = 0; i < 3; i++) {
        rig_hint(rig, request);
        rig_queued(rig, rig_op(rig, OP_RENEW));
        rig_silent(rig, s);
    }
    rig_hint(rig, request);
    rig_status(rig, rig_op(rig, OP_RENEW), OP_GONE);
    rig_queued(rig, rig_op(rig, OP_ACQUIRE));
    rig_expect(rig, s, "1 QUEUED position=1");
    rig_silent(rig, s);
}

/* Too many permits are out, by what Redis says: a hold that nobody here counts
 * on is given up before one that somebody does, and the oldest of those. */
RIG_TEST(too_many_out, rig_new())
{
    unsigned kept = rig_open(rig);
    unsigned old = rig_open(rig);
    unsigned young = rig_open(rig);
    unsigned last = rig_open(rig);

    rig_lock(rig, old, "1 LOCK a limit=2", 5);
    rig_say(rig, kept, "HELLO keep=10s");
    (void)rig_line(rig, kept);
    rig_lock(rig, kept, "1 LOCK a limit=2", 6);
    rig_event(rig, kept, CORE_DROP);
    rig_lock(rig, young, "1 LOCK a limit=2", 7);
    rig_silent(rig, old);
    ck_assert_uint_eq(rig_count(rig, COUNTER_lost_gone), 1);
    rig_lock(rig, last, "1 LOCK a limit=2", 8);
    rig_expect(rig, old, "* LOST a fence=5 reason=gone");
    rig_silent(rig, young);
}

Suite *
core_semaphore_suite(void)
{
    Suite *suite = suite_create("core_semaphore");
    TCase *tests = tcase_create("core_semaphore");

    tcase_add_test(tests, shown);
    tcase_add_test(tests, claimed);
    tcase_add_test(tests, too_many_out);
    tcase_add_test(tests, part);
    tcase_add_test(tests, part_refused);
    tcase_add_loop_test(tests, part_in_doubt, 0, 2);
    tcase_add_test(tests, part_of_what_is_gone);
    tcase_add_test(tests, part_elsewhere);
    tcase_add_test(tests, resize);
    tcase_add_loop_test(tests, resize_in_doubt, 0, 3);
    tcase_add_loop_test(tests, old_limit, 0, 2);
    tcase_add_loop_test(tests, resized_reentry, 3, 6);
    tcase_add_loop_test(tests, grown, 0, 2);
    tcase_add_test(tests, granted_meanwhile);
    tcase_add_test(tests, shrunk);
    tcase_add_test(tests, words);
    tcase_add_test(tests, queued_once);
    suite_add_tcase(suite, tests);
    return suite;
}

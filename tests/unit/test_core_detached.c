/*
 * Tests of daemon/core/ticket/detach.c and daemon/core/command/detached.c:
 * holds that outlive their session.
 */
#include "daemon/op/op.h"
#include "tests/unit/core_rig.h"

#include <string.h>

#define HOUR_MS 3600000u

Suite *core_detached_suite(void);

/* The lock is granted, and Redis is asked to detach the hold. */
static struct op *
detaching(struct rig *rig, unsigned s, const char *request, uint64_t fence)
{
    rig_say(rig, s, request);
    struct op *op = rig_op(rig, OP_ACQUIRE);
    ck_assert_uint_eq(op->ask.hold_ms, 0);
    rig_granted(rig, op, fence);
    rig_silent(rig, s);
    op = rig_op(rig, OP_RENEW);
    ck_assert(op->detaches && !op->by_fence);
    return op;
}

static void
detached(struct rig *rig, struct op *op)
{
    rig_finish(rig, op,
        (struct op_result){.status = OP_OK, .fence = 5, .ttl_ms = HOUR_MS});
}

/* Nobody holds it here, and nothing asks Redis about it. */
static void
nothing_left(struct rig *rig)
{
    struct core_totals totals;

    core_totals(rig->core, &totals);
    ck_assert_uint_eq(totals.tickets, 0);
    rig_no_op(rig);
}

SESSION_TEST(is_told_when_it_is_detached)
{
    struct op *op = detaching(rig, s, "1 LOCK a lease=1h detached=1", 5);
    ck_assert_uint_eq(op->hard_end_us, rig->now_us + HOUR_MS * UINT64_C(1000));
    rig_ask(rig, s, "2 HELD", "2 OK n=0");
    detached(rig, op);
    rig_expect(rig, s, "1 OK fence=5 ttl_ms=3563998 count=1");
    nothing_left(rig);
    rig_ask(rig, s, "3 HELD", "3 OK n=0");
    rig_ask(rig, s, "4 PING", "4 OK");
    rig_ask(rig, s, "5 UNLOCK a", "5 ERR NOTHELD retry=0");
    rig_say(rig, s, "6 UNLOCK a fence=5");
    rig_text(rig, s, " a detached hold needs detached=1");
    rig_expect(rig, s, "6 ERR NOTHELD retry=0");
    rig_say(rig, s, "7 NOTE a fence=5");
    rig_text(rig, s, " a detached hold keeps its note");
    rig_expect(rig, s, "7 ERR NOTHELD retry=0");
    rig_event(rig, s, CORE_DROP);
    rig_pass(rig, 100000);
    nothing_left(rig);
    ck_assert_uint_eq(rig_count(rig, COUNTER_grants_detached), 1);
}

/* The fence may be that of a detached hold. */
SESSION_TEST(another_fence)
{
    rig_lock(rig, s, "1 LOCK a", 6);
    rig_say(rig, s, "2 RENEW a fence=5 lease=1s");
    rig_text(rig, s, " a detached hold needs detached=1");
    rig_expect(rig, s, "2 ERR STALE retry=0");
    rig_say(rig, s, "3 NOTE a fence=5");
    rig_text(rig, s, " a detached hold keeps its note");
    rig_expect(rig, s, "3 ERR STALE retry=0");
}

SESSION_TEST(after_a_wait)
{
    rig_wait(rig, s, "1 LOCK a lease=1h detached=1 mode=shared");
    rig_pass(rig, 10000);
    struct op *op = rig_op(rig, OP_RENEW);
    ck_assert(!op->detaches);
    rig_granted(rig, op, 5);
    op = rig_op(rig, OP_RENEW);
    ck_assert(op->detaches);
    rig_say(rig, s, "2 LOCK a wait=0");
    detached(rig, op);
    rig_expect(rig, s, "1 OK fence=5 ttl_ms=3563998 count=1");
    rig_status(rig, rig_op(rig, OP_ACQUIRE), OP_BUSY);
    rig_expect(rig, s, "2 ERR BUSY retry=1");
}

/* The client of a program that sends one line, and its end. */
SESSION_TEST(a_session_that_closes)
{
    rig_say(rig, s, "1 LOCK a lease=1h detached=1");
    rig_event(rig, s, CORE_EOF);
    rig_granted(rig, rig_op(rig, OP_ACQUIRE), 5);
    detached(rig, rig_op(rig, OP_RENEW));
    rig_expect(rig, s, "1 OK fence=5 ttl_ms=3563998 count=1");
    rig_expect(rig, s, "* BYE eof");
    nothing_left(rig);
}

/* It may be detached in Redis, though nobody was told so: it is given back for
 * as long as it may stand there. */
static void
given_back(struct rig *rig)
{
    struct op *op;

    for (uint64_t ms = 0; ms < HOUR_MS - 60000; ms += 60000) {
        op = rig_op(rig, OP_RELEASE);
        ck_assert_uint_eq(op->fence, 5);
        rig_status(rig, op, OP_UNSENT);
        rig_pass(rig, 60000);
    }
    rig_status(rig, rig_op(rig, OP_RELEASE), OP_OK);
    nothing_left(rig);
}

SESSION_TEST(an_answer_is_lost)
{
    struct op *op = detaching(rig, s, "1 LOCK a lease=1h detached=1", 5);
    rig_status(rig, op, OP_UNKNOWN);
    op = rig_op(rig, OP_RENEW);
    ck_assert(op->detaches);
    detached(rig, op);
    rig_expect(rig, s, "1 OK fence=5 ttl_ms=3563998 count=1");
    nothing_left(rig);
}

SESSION_TEST(no_answer)
{
    struct op *op = detaching(rig, s, "1 LOCK a lease=1h detached=1", 5);
    rig_status(rig, op, OP_UNKNOWN);
    rig_status(rig, rig_op(rig, OP_RENEW), _i == 0 ? OP_UNSENT : OP_REFUSED);
    rig_expect(
        rig, s, _i == 0 ? "1 ERR INDOUBT retry=1" : "1 ERR INTERNAL retry=0");
    given_back(rig);
}

/* The lease is over when the answer comes. The hold may stand in Redis: a LOCK
 * behind it waits for its release, however long Redis may have it. */
SESSION_TEST(is_over_at_once)
{
    struct op *op = detaching(rig, s, "1 LOCK a lease=1h detached=1", 5);

    rig_finish(
        rig, op, (struct op_result){.status = OP_OK, .fence = 5, .ttl_ms = 2});
    rig_text(rig, s, ":the lease was over when");
    rig_expect(rig, s, "1 ERR INDOUBT retry=1");
    ck_assert_uint_eq(rig_count(rig, COUNTER_refused_indoubt), 1);
    rig_say(rig, s, "2 LOCK a wait=0");
    rig_status(rig, rig_op(rig, OP_RELEASE), OP_OK);
    rig_granted(rig, rig_op(rig, OP_ACQUIRE), 6);
    rig_expect(rig, s, "2 OK fence=6 ttl_ms=~ count=1");
}

/* Redis has lost the hold, or taken it away: the LOCK asks for another one. */
SESSION_TEST(is_gone)
{
    static const enum op_status statuses[] = {OP_GONE, OP_BROKEN, OP_MOVED};

    struct op *op = detaching(rig, s, "1 LOCK a lease=1h detached=1", 5);
    rig_status(rig, op, statuses[_i]);
    if (statuses[_i] == OP_BROKEN)
        rig_status(rig, rig_op(rig, OP_RELEASE), OP_OK);
    rig_granted(rig, rig_op(rig, OP_ACQUIRE), 6);
    detached(rig, rig_op(rig, OP_RENEW));
    rig_expect(rig, s, "1 OK fence=6 ttl_ms=~ count=1");
}

SESSION_TEST(is_put_again_first)
{
    struct op *op = detaching(rig, s, "1 LOCK a lease=1h detached=1", 5);
    rig_status(rig, op, OP_MISSING);
    rig_granted(rig, rig_op(rig, OP_RECLAIM), 5);
    rig_silent(rig, s);
    op = rig_op(rig, OP_RENEW);
    ck_assert(op->detaches);
    detached(rig, op);
    rig_expect(rig, s, "1 OK fence=5 ttl_ms=~ count=1");
}

/* The hold cannot be put again: its LOCK fails, and it is given back. */
SESSION_TEST(is_not_put_again)
{
    struct op *op = detaching(rig, s, "1 LOCK a lease=1h detached=1", 5);
    rig_say(rig, s, "2 LOCK a b");
    rig_status(rig, op, OP_MISSING);
    rig_status(rig, rig_op(rig, OP_RECLAIM), OP_REFUSED);
    rig_expect(rig, s, "1 ERR INTERNAL retry=0");
    rig_status(rig, rig_op(rig, OP_RELEASE), OP_OK);
}

/* The client has gone meanwhile, and its session is kept. */
SESSION_TEST(is_put_again_for_nobody)
{
    unsigned kept = rig_open_kept(rig);
    struct op *op = detaching(rig, kept, "1 LOCK a lease=1h detached=1", 5);

    rig_status(rig, op, OP_MISSING);
    op = rig_op(rig, OP_RECLAIM);
    rig_event(rig, kept, CORE_DROP);
    rig_granted(rig, op, 5);
    given_back(rig);
}

/* The wait has outlasted the Redis time-out, and the detachment has its own. */
SESSION_TEST(is_tried_after_a_long_wait)
{
    struct op *op = NULL;

    rig_wait(rig, s, "1 LOCK a lease=1h detached=1");
    for (unsigned i = 0; i < 6; i++) {
        rig_pass(rig, 10000);
        op = rig_op(rig, OP_RENEW);
        if (i < 5)
            rig_status(rig, op, OP_WAITING);
    }
    rig_granted(rig, op, 5);
    op = rig_op(rig, OP_RENEW);
    ck_assert(op->detaches);
    ck_assert_uint_gt(op->deadline_us, rig->now_us);
    rig_status(rig, op, OP_UNKNOWN);
    detached(rig, rig_op(rig, OP_RENEW));
    rig_expect(rig, s, "1 OK fence=5 ttl_ms=3563998 count=1");
    nothing_left(rig);
}

/* Until it is told, a hold ends by its deadline, and the client, which does not
 * know of it, hears nothing. */
SESSION_TEST(the_deadline_comes)
{
    struct op *op = detaching(rig, s, "1 LOCK a lease=1h detached=1", 5);
    rig_pass(rig, RIG_LEASE_MS);
    rig_silent(rig, s);
    rig_status(rig, op, OP_UNKNOWN);
    rig_status(rig, rig_op(rig, OP_RELEASE), OP_OK);
    rig_granted(rig, rig_op(rig, OP_ACQUIRE), 6);
    detached(rig, rig_op(rig, OP_RENEW));
    rig_expect(rig, s, "1 OK fence=6 ttl_ms=~ count=1");
}

/* There is nobody to be told of it. */
SESSION_TEST(the_connection_ends)
{
    unsigned kept = _i == 0 ? s : rig_open_kept(rig);
    struct op *op = detaching(rig, kept, "1 LOCK a lease=1h detached=1", 5);

    rig_event(rig, kept, CORE_DROP);
    detached(rig, op);
    given_back(rig);
}

/* A later connection puts its LOCK again before Redis has answered. */
SESSION_TEST(its_session_is_resumed)
{
    unsigned kept = rig_open_kept(rig);
    unsigned next = rig_open(rig);
    struct op *op = detaching(rig, kept, "1 LOCK a lease=1h detached=1", 5);

    rig_event(rig, kept, CORE_DROP);
    rig_resume(rig, kept, next, 2, "");
    rig_expect(rig, next, "- OK session=~ proto=1 server=~ gen=2");
    rig_say(rig, next, "1 LOCK a lease=1h detached=1");
    detached(rig, op);
    rig_status(rig, rig_op(rig, OP_RELEASE), OP_OK);
    rig_granted(rig, rig_op(rig, OP_ACQUIRE), 6);
    detached(rig, rig_op(rig, OP_RENEW));
    rig_expect(rig, next, "1 OK fence=6 ttl_ms=~ count=1");
}

/* A hold with lease= of an earlier connection has the detached one's end. */
SESSION_TEST(an_earlier_hold_had_a_lease)
{
    unsigned kept = rig_open_kept(rig);
    unsigned next = rig_open(rig);

    rig_say(rig, kept, "1 LOCK a lease=1h");
    rig_granted(rig, rig_op(rig, OP_ACQUIRE), 5);
    rig_expect(rig, kept, "1 OK fence=5 ttl_ms=~ count=1");
    rig_event(rig, kept, CORE_DROP);
    rig_resume(rig, kept, next, 2, "");
    rig_expect(rig, next, "- OK session=~ proto=1 server=~ gen=2");
    rig_say(rig, next, "1 LOCK a lease=1h detached=1");
    struct op *op = rig_op(rig, OP_RENEW);
    ck_assert(!op->detaches);
    rig_granted(rig, op, 5);
    detached(rig, rig_op(rig, OP_RENEW));
    rig_expect(rig, next, "1 OK fence=5 ttl_ms=3563998 count=1");
    nothing_left(rig);
}

SESSION_TEST(a_cancel_comes_too_late)
{
    struct op *op =
        detaching(rig, s, "1 LOCK a lease=1h detached=1 wait=1s", 5);

    if (_i == 0)
        rig_ask(rig, s, "2 CANCEL 1", "2 OK");
    else if (_i == 1)
        rig_pass(rig, 1500);
    else
        rig_stop(rig);
    rig_pass(rig, 1);
    if (_i == 2)
        rig_expect(rig, s, "* DRAIN grace_ms=~");
    rig_silent(rig, s);
    detached(rig, op);
    rig_expect(rig, s, "1 OK fence=5 ttl_ms=~ count=1");
}

SESSION_TEST(an_owner_that_holds_it)
{
    rig_lock(rig, s, "LOCK a", 5);
    rig_ask(rig, s, "LOCK a lease=1h detached=1", "- ERR CONFLICT retry=0");
    /* The hold stays exclusive. */
    rig_ask(rig, s, "LOCK a lease=1h detached=1 mode=shared",
        "- ERR CONFLICT retry=0");
    rig_no_op(rig);
    rig_ask(rig, s, "LOCK a", "- OK fence=5 ttl_ms=~ count=2");
}

static const char *const bad_requests[] = {
    "LOCK a detached=1",
    "LOCK a lease=25h detached=1",
    "LOCK a b lease=1h detached=1",
    "LOCK a lease=1h detached=1 wanted=1",
    "LOCK a lease=1h detached=2",
    "UNLOCK a detached=1",
    "UNLOCK a fence=1 owner=w detached=1",
    "UNLOCK a fence=1 permits=1 detached=1",
    "RENEW a lease=1h detached=1",
    "RENEW a lease=25h fence=1 detached=1",
};

SESSION_TEST(bad_request)
{
    rig_ask(rig, s, bad_requests[_i], "- ERR BADREQ retry=0");
    rig_no_op(rig);
    rig_lock(rig, s, "1 LOCK a lease=25h detached=0", 5);
    rig_say(rig, s, "2 UNLOCK a detached=0");
    rig_status(rig, rig_op(rig, OP_RELEASE), OP_OK);
    rig_expect(rig, s, "2 OK count=0");
}

/* --- by its fence --------------------------------------------------------- */

static const struct {
    enum op_status status;
    const char *unlock;
    const char *renew;
} by_fence[] = {
    {OP_OK, "1 OK count=0", "1 OK ttl_ms=3563998"},
    {OP_GONE, "1 ERR NOTHELD retry=0", "1 ERR NOTHELD retry=0"},
    {OP_CONFLICT, "1 ERR CONFLICT retry=0", "1 ERR CONFLICT retry=0"},
    {OP_MISSING, "1 ERR UNAVAILABLE retry=1 reason=settling after_ms=701",
        "1 ERR UNAVAILABLE retry=1 reason=settling after_ms=701"},
    {OP_UNSENT, "1 ERR UNAVAILABLE retry=1", "1 ERR UNAVAILABLE retry=1"},
    {OP_REFUSED, "1 ERR INTERNAL retry=0", "1 ERR INTERNAL retry=0"},
};

SESSION_TEST(answers)
{
    struct op_result result = {.status = by_fence[_i].status,
        .ttl_ms = by_fence[_i].status == OP_OK ? HOUR_MS : 0,
        .again_ms = 700};

    rig_say(rig, s, "1 UNLOCK a fence=77 detached=1");
    struct op *op = rig_op(rig, OP_UNLOCK_DETACHED);
    ck_assert(op->by_fence && op->fence == 77);
    rig_finish(rig, op, result);
    rig_expect(rig, s, by_fence[_i].unlock);
    rig_say(rig, s, "1 RENEW a fence=77 lease=1h detached=1");
    op = rig_op(rig, OP_RENEW_DETACHED);
    ck_assert(op->by_fence && op->fence == 77);
    ck_assert_uint_eq(op->hard_end_us, rig->now_us + HOUR_MS * UINT64_C(1000));
    rig_finish(rig, op, result);
    rig_expect(rig, s, by_fence[_i].renew);
    nothing_left(rig);
}

/* Asked again after a lost answer: a hold that is gone may have ended by the
 * first question. */
SESSION_TEST(asked_twice)
{
    rig_say(rig, s, "1 UNLOCK a fence=77 detached=1");
    rig_say(rig, s, "2 RENEW a fence=77 lease=1h detached=1");
    rig_status(rig, rig->ops[0], OP_UNKNOWN);
    rig_status(rig, rig->ops[0], OP_UNKNOWN);
    rig_status(rig, rig_op(rig, OP_UNLOCK_DETACHED), OP_GONE);
    rig_expect(rig, s, "1 ERR INDOUBT retry=1");
    rig_status(rig, rig_op(rig, OP_RENEW_DETACHED), OP_GONE);
    rig_expect(rig, s, "2 ERR NOTHELD retry=0");
    rig_say(rig, s, "4 UNLOCK a fence=77 detached=1");
    rig_status(rig, rig_op(rig, OP_UNLOCK_DETACHED), OP_UNKNOWN);
    rig_status(rig, rig_op(rig, OP_UNLOCK_DETACHED), OP_MISSING);
    rig_expect(rig, s, "4 ERR INDOUBT retry=1"); /* not: the hold stands */
    rig_say(rig, s, "5 RENEW a fence=77 lease=1h detached=1");
    rig_status(rig, rig_op(rig, OP_RENEW_DETACHED), OP_UNKNOWN);
    rig_status(rig, rig_op(rig, OP_RENEW_DETACHED), OP_MISSING);
    rig_expect(rig, s, "5 ERR INDOUBT retry=1"); /* not: with its end */
    rig_say(rig, s, "3 UNLOCK a fence=77 detached=1");
    rig_pass(rig, 6000);
    rig_status(rig, rig_op(rig, OP_UNLOCK_DETACHED), OP_UNKNOWN);
    rig_expect(rig, s, "3 ERR INDOUBT retry=1");
    ck_assert_uint_eq(rig_count(rig, COUNTER_refused_indoubt), 4);
    nothing_left(rig);
}

/* The client does not wait for it. */
SESSION_TEST(nobody_hears_the_answer)
{
    rig_say(rig, s, "1 UNLOCK a fence=77 detached=1");
    rig_event(rig, s, CORE_DROP);
    rig_status(rig, rig_op(rig, OP_UNLOCK_DETACHED), _i == 0 ? OP_OK : OP_GONE);
    nothing_left(rig);
}

/* So is a BREAK of one hold, or of all, where it has ended detached ones. */
SESSION_TEST(a_break_is_repeated)
{
    struct core_event event = {.kind = CORE_CHANGED};

    rig_say(rig, s, _i == 1 ? "1 BREAK a fence=77" : "1 BREAK a");
    rig_finish(rig, rig_op(rig, OP_BREAK),
        (struct op_result){
            .status = OP_OK, .ahead = 1, .fence = _i == 0 ? 0 : 77});
    rig_pass(rig, 1000);
    rig_status(rig, rig_op(rig, OP_INSPECT), OP_GONE);
    rig_expect(rig, s, "1 OK holders=1");
    rig_step(rig, &event);
    rig_pass(rig, 1);
    if (_i == 0) {
        rig_no_op(rig);
        return;
    }
    struct op *op = rig_op(rig, OP_RELEASE);
    ck_assert(op->repeats && op->by_fence && op->earlier == (_i == 2));
    ck_assert_uint_eq(op->fence, 77);
    rig_status(rig, op, OP_OK);
}

/* This broker serves those who wait for the end of its delay. */
SESSION_TEST(a_release_with_delay)
{
    rig_say(rig, s, "1 UNLOCK a fence=77 detached=1 delay=2s");
    rig_finish(rig, rig_op(rig, OP_UNLOCK_DETACHED),
        (struct op_result){.status = OP_OK, .again_ms = 2000});
    rig_expect(rig, s, "1 OK count=0");
    rig_no_op(rig);
    rig_pass(rig, 2030);
    rig_status(rig, rig_op(rig, OP_LOOK), OP_OK);
    nothing_left(rig);
}

/* A new history may lack it, also if the first answer was lost. */
SESSION_TEST(a_release_is_repeated)
{
    struct core_event event = {.kind = CORE_CHANGED};
    bool lost = _i;

    rig_say(rig, s, "1 UNLOCK a fence=77 detached=1 delay=5s");
    if (lost)
        rig_status(rig, rig_op(rig, OP_UNLOCK_DETACHED), OP_UNKNOWN);
    ck_assert_uint_eq(rig_op(rig, OP_UNLOCK_DETACHED)->delay_ms, 5000);
    rig_status(rig, rig_op(rig, OP_UNLOCK_DETACHED), lost ? OP_GONE : OP_OK);
    rig_expect(rig, s, lost ? "1 ERR INDOUBT retry=1" : "1 OK count=0");
    rig_pass(rig, 1999);
    rig_step(rig, &event);
    rig_pass(rig, 1);
    struct op *op = rig_op(rig, OP_RELEASE);
    ck_assert(op->repeats && op->by_fence && !op->moves);
    ck_assert_uint_eq(op->delay_ms, 3001); /* the rest of it */
    ck_assert_uint_eq(op->fence, 77);
    rig_status(rig, op, OP_OK);
    ck_assert_uint_eq(rig_count(rig, COUNTER_releases_repeated), 1);
    rig_lock(rig, s, "LOCK b", 78);
    rig_say(rig, s, "2 UNLOCK b");
    rig_status(rig, rig_op(rig, OP_RELEASE), OP_OK);
    rig_expect(rig, s, "2 OK count=0");
    rig_step(rig, &event);
    rig_pass(rig, 1);
    ck_assert(!rig_op(rig, OP_RELEASE)->by_fence);
}

Suite *
core_detached_suite(void)
{
    Suite *suite = suite_create("core_detached");
    TCase *tests = tcase_create("core_detached");

    tcase_add_test(tests, is_told_when_it_is_detached);
    tcase_add_test(tests, another_fence);
    tcase_add_test(tests, after_a_wait);
    tcase_add_test(tests, a_session_that_closes);
    tcase_add_test(tests, an_answer_is_lost);
    tcase_add_loop_test(tests, no_answer, 0, 2);
    tcase_add_test(tests, is_over_at_once);
    tcase_add_loop_test(tests, is_gone, 0, 3);
    tcase_add_test(tests, is_put_again_first);
    tcase_add_test(tests, is_not_put_again);
    tcase_add_test(tests, is_put_again_for_nobody);
    tcase_add_test(tests, is_tried_after_a_long_wait);
    tcase_add_test(tests, an_earlier_hold_had_a_lease);
    tcase_add_test(tests, the_deadline_comes);
    tcase_add_loop_test(tests, the_connection_ends, 0, 2);
    tcase_add_test(tests, its_session_is_resumed);
    tcase_add_loop_test(tests, a_cancel_comes_too_late, 0, 3);
    tcase_add_test(tests, an_owner_that_holds_it);
    tcase_add_loop_test(
        tests, bad_request, 0, sizeof(bad_requests) / sizeof(bad_requests[0]));
    tcase_add_loop_test(
        tests, answers, 0, sizeof(by_fence) / sizeof(by_fence[0]));
    tcase_add_test(tests, asked_twice);
    tcase_add_loop_test(tests, nobody_hears_the_answer, 0, 2);
    tcase_add_test(tests, a_release_with_delay);
    tcase_add_loop_test(tests, a_release_is_repeated, 0, 2);
    tcase_add_loop_test(tests, a_break_is_repeated, 0, 3);
    suite_add_tcase(suite, tests);
    return suite;
}

/*
 * Tests of daemon/core/ticket/multilock.c: LOCK of several names, all or none;
 * UNLOCK of several names, each by itself.
 */
#include "daemon/op/op.h"
#include "tests/unit/core_rig.h"

#include <stdio.h>
#include <string.h>

Suite *core_names_suite(void);

/* One after the other in the order of their bytes, answered in its own. */
SESSION_TEST(order)
{
    rig_say(rig, s, "1 LOCK c aa b a");
    rig_grant_on(rig, "a", 4);
    ck_assert_uint_eq(rig->op_count, 1);
    rig_grant_on(rig, "aa", 3);
    rig_ask(rig, s, "2 HELD", "2 OK n=0");
    rig_grant_on(rig, "b", 2);
    rig_silent(rig, s);
    rig_grant_on(rig, "c", 1);
    rig_expect(rig, s, "1 OK fence=1,3,2,4 ttl_ms=~ count=1");
    rig_say(rig, s, "3 UNLOCK aa");
    rig_released_on(rig, "aa");
    rig_expect(rig, s, "3 OK count=0");
    rig_say(rig, s, "4 HELD");
    for (int i = 0; i < 3; i++)
        rig_expect(rig, s, "4 ITEM name=~ fence=~ ttl_ms=~ count=1");
    rig_expect(rig, s, "4 OK n=3");
}

static const struct names_refused_row {
    const char *line;
    bool good;
} names_refused_rows[] = {
    {"1 LOCK a a", false},
    {"1 LOCK b a b", false},
    {"1 LOCK a %61", false},
    {"1 LOCK 1 2 3 4 5 6 7 8 9 a b c d e f g", true},
    {"1 LOCK 1 2 3 4 5 6 7 8 9 a b c d e f g h", false},
};

SESSION_TEST(names_refused)
{
    const struct names_refused_row *row = &names_refused_rows[_i];
    rig_say(rig, s, row->line);
    ck_assert_uint_eq(rig->op_count, row->good ? 1 : 0);
    if (!row->good)
        rig_expect(rig, s, "1 ERR BADREQ retry=0");
    ck_assert_uint_eq(rig_count(rig, COUNTER_requests_bad), row->good ? 0 : 1);
}

/* The second name waits: whatever ends that gives the first one back. */
SESSION_TEST(rolled_back)
{
    int how = _i;
    rig_say(rig, s, "1 LOCK b a wait=100 progress=1 deadlock=0");
    rig_grant_on(rig, "a", 4);
    struct op *op = rig_op_on(rig, OP_ACQUIRE, "b");
    if (how < 3) {
        rig_queued(rig, op);
        rig_expect(rig, s, "1 QUEUED name=b position=1");
    }
    if (how == 0) {
        rig_pass(rig, 110);
        rig_expect(rig, s, "1 ERR TIMEOUT retry=1 name=b");
    } else if (how == 1) {
        rig_ask(rig, s, "2 CANCEL 1", "1 ERR CANCELLED retry=1 name=b");
        rig_expect(rig, s, "2 OK");
    } else if (how == 2) {
        rig_event(rig, s, CORE_DROP);
    } else if (how == 3) {
        rig_status(rig, op, OP_CONFLICT);
        rig_expect(rig, s, "1 ERR CONFLICT retry=0 name=b");
    } else if (how == 4) {
        rig_status(rig, op, OP_FULL);
        rig_expect(rig, s, "1 ERR LIMIT retry=1 limit=waiters name=b");
    } else {
        rig_status(rig, op, OP_UNSENT);
        rig_expect(rig, s, "1 ERR UNAVAILABLE retry=1 name=b");
    }
    ck_assert_uint_eq(rig->op_count, how < 3 ? 2 : 1);
    for (uint32_t i = 0; i < rig->op_count; i++)
        ck_assert_int_eq(rig->ops[i]->kind, OP_RELEASE);
}

/* wait=0 asks for each, and takes what was had back. */
SESSION_TEST(at_once)
{
    rig_say(rig, s, "1 LOCK a b wait=0");
    ck_assert(rig_op_on(rig, OP_ACQUIRE, "a")->no_queue);
    rig_grant_on(rig, "a", 4);
    rig_status(rig, rig_op_on(rig, OP_ACQUIRE, "b"), OP_BUSY);
    rig_expect(rig, s, "1 ERR BUSY retry=1 name=b");
    rig_released_on(rig, "a");
    rig_no_op(rig);
}

/* A slow Redis does not prolong the wait by the names that follow. */
SESSION_TEST(too_slow)
{
    rig_say(rig, s, "1 LOCK a b wait=50");
    rig_pass(rig, 200);
    rig_silent(rig, s);
    rig_grant_on(rig, "a", 4);
    rig_expect(rig, s, "1 ERR UNAVAILABLE retry=1 name=b");
    rig_released_on(rig, "a");
    rig_no_op(rig);
}

/* Locks that the owner has already are entered again, and left again. */
SESSION_TEST(reentry)
{
    bool fails = _i;
    rig_lock(rig, s, "1 LOCK a", 4);
    rig_say(rig, s, "2 LOCK b a");
    struct op *op = rig_op_on(rig, OP_ACQUIRE, "b");
    rig_ask(rig, s, "3 HELD", "3 ITEM name=a fence=4 ttl_ms=~ count=1");
    rig_expect(rig, s, "3 OK n=1");
    if (fails) {
        rig_status(rig, op, OP_CONFLICT);
        rig_expect(rig, s, "2 ERR CONFLICT retry=0 name=b");
    } else {
        rig_granted(rig, op, 9);
        rig_expect(rig, s, "2 OK fence=9,4 ttl_ms=~ count=1");
        rig_ask(rig, s, "4 UNLOCK a", "4 OK count=1");
    }
    rig_say(rig, s, "5 UNLOCK a");
    rig_released_on(rig, "a");
    rig_expect(rig, s, "5 OK count=0");
}

/* A part is no hold of the client's while the rest is waited for, and what is
 * sent about any of the names comes after all of them. */
SESSION_TEST(in_order)
{
    bool ends = _i;

    rig_say(rig, s, "1 LOCK a b");
    rig_say(rig, s, "2 UNLOCK b");
    rig_grant_on(rig, "a", 4);
    uint64_t request = rig_op_on(rig, OP_ACQUIRE, "b")->request;
    rig_queued(rig, rig_op_on(rig, OP_ACQUIRE, "b"));
    rig_say(rig, s, "3 UNLOCK a");
    rig_say(rig, s, "4 RENEW a lease=3s");
    rig_ask(rig, s, "5 HELD", "5 OK n=0");
    rig_silent(rig, s);
    if (ends == 0) {
        rig_ask(rig, s, "6 CANCEL 1", "1 ERR CANCELLED retry=1 name=b");
        rig_expect(rig, s, "6 OK");
        rig_released_on(rig, "a");
        rig_released_on(rig, "b");
        rig_expect(rig, s, "3 ERR NOTHELD retry=0");
        rig_expect(rig, s, "4 ERR NOTHELD retry=0");
        rig_expect(rig, s, "2 ERR NOTHELD retry=0");
    } else {
        rig_hint(rig, request);
        rig_granted(rig, rig_op_on(rig, OP_RENEW, "b"), 5);
        rig_expect(rig, s, "1 OK fence=4,5 ttl_ms=~ count=1");
        rig_released_on(rig, "b");
        rig_expect(rig, s, "2 OK count=0");
        rig_released_on(rig, "a");
        rig_expect(rig, s, "3 OK count=0");
        rig_expect(rig, s, "4 ERR NOTHELD retry=0");
    }
    rig_silent(rig, s);
}

/* A LOCK with wait=0 is answered at once, whatever is in its way. */
SESSION_TEST(impatient_behind_it)
{
    rig_say(rig, s, "1 LOCK a b d deadlock=0");
    rig_say(rig, s, "2 LOCK d e wait=100");
    rig_say(rig, s, "3 LOCK e wait=0");
    rig_grant_on(rig, "a", 4);
    rig_silent(rig, s);
    rig_queued(rig, rig_op_on(rig, OP_ACQUIRE, "b"));
    rig_expect(rig, s, "3 ERR BUSY retry=1");
    rig_ask(rig, s, "4 LOCK d wait=0", "4 ERR BUSY retry=1");
    rig_silent(rig, s);
    rig_pass(rig, 110);
    rig_expect(rig, s, "2 ERR TIMEOUT retry=1 name=d");
    rig_silent(rig, s);
}

/* A part is lost while the rest is waited for: that ends the request. */
SESSION_TEST(part_lost)
{
    rig_say(rig, s, "1 LOCK a b");
    uint64_t request = rig_op_on(rig, OP_ACQUIRE, "a")->request;
    rig_grant_on(rig, "a", 4);
    rig_queued(rig, rig_op_on(rig, OP_ACQUIRE, "b"));
    rig_broken(rig, request, 4);
    rig_expect(rig, s, "1 ERR UNAVAILABLE retry=1 name=a");
    rig_silent(rig, s);
    ck_assert_uint_eq(rig->op_count, 2);
    rig_released_on(rig, rig->ops[0]->name.at[0] == 'a' ? "a" : "b");
    (void)rig_op(rig, OP_RELEASE);
}

/* lease= begins when all are had, for all. */
SESSION_TEST(lease)
{
    rig_say(rig, s, "1 LOCK a b lease=3s deadlock=0");
    ck_assert_uint_eq(rig_op_on(rig, OP_ACQUIRE, "a")->ask.hold_ms, 0);
    rig_grant_on(rig, "a", 4);
    uint64_t request = rig_op_on(rig, OP_ACQUIRE, "b")->request;
    rig_queued(rig, rig_op_on(rig, OP_ACQUIRE, "b"));
    rig_pass(rig, 5000);
    rig_silent(rig, s);
    rig_hint(rig, request);
    rig_granted(rig, rig_op_on(rig, OP_RENEW, "b"), 5);
    uint64_t had_us = rig->now_us;
    rig_expect(rig, s, "1 OK fence=4,5 ttl_ms=~ count=1");
    unsigned ends = 0;
    for (uint32_t i = 0; i < rig->op_count; i++) {
        if (!rig->ops[i]->sets_end)
            continue;
        ends++;
        ck_assert_uint_eq(rig->ops[i]->hard_end_us, had_us + 3 * SECOND_US);
        /* Redis may be away: what waits behind it has no more patience. */
        ck_assert_uint_le(rig->ops[i]->deadline_us, had_us + 5 * SECOND_US);
    }
    ck_assert_uint_eq(ends, 2);
    rig_pass(rig, 3000);
    rig_expect(rig, s, "* LOST ~ fence=~ reason=expired");
    rig_expect(rig, s, "* LOST ~ fence=~ reason=expired");
}

/* A lock that one request takes exclusively is not shared by another. */
SESSION_TEST(not_shared_meanwhile)
{
    rig_say(rig, s, "1 LOCK a b");
    rig_grant_on(rig, "a", 4);
    rig_queued(rig, rig_op_on(rig, OP_ACQUIRE, "b"));
    rig_say(rig, s, "2 LOCK a mode=shared");
    rig_no_op(rig);
    rig_ask(rig, s, "3 CANCEL 1", "1 ERR CANCELLED retry=1 name=b");
    rig_expect(rig, s, "3 OK");
    rig_released_on(rig, "a");
    rig_released_on(rig, "b");
    ck_assert(rig_op_on(rig, OP_ACQUIRE, "a")->ask.mode == MODE_SHARED);
}

/* Of a session that is kept the parts stand, for the LOCK that comes again. */
SESSION_TEST(kept)
{
    unsigned t = rig_open(rig);

    rig_say(rig, s, "HELLO keep=10s");
    (void)rig_line(rig, s);
    rig_say(rig, s, "1 LOCK a b");
    rig_grant_on(rig, "a", 4);
    rig_queued(rig, rig_op_on(rig, OP_ACQUIRE, "b"));
    rig_event(rig, s, CORE_DROP);
    rig_no_op(rig);
    rig_resume(rig, s, t, 2, "");
    (void)rig_line(rig, t);
    rig_say(rig, t, "1 LOCK a b");
    struct op *op = rig_op_on(rig, OP_RENEW, "a");
    ck_assert(op->moves && op->generation == 2);
    rig_granted(rig, op, 4);
    op = rig_op_on(rig, OP_RENEW, "b");
    ck_assert(op->moves && op->generation == 2);
    rig_finish(rig, op,
        (struct op_result){.status = OP_OK,
            .fence = 6,
            .arrival = 6,
            .ttl_ms = RIG_LEASE_MS,
            .ask = {.permits = 1}});
    rig_no_op(rig);
    rig_expect(rig, t, "1 OK fence=4,6 ttl_ms=~ count=1");
}

/* ttl_ms and count are the least of all; what was had keeps its own lease. */
SESSION_TEST(least_of_all)
{
    rig_lock(rig, s, "1 LOCK a lease=3s", 4);
    rig_lock(rig, s, "2 LOCK c", 5);
    rig_say(rig, s, "3 LOCK c b a lease=2500");
    rig_grant_on(rig, "b", 6);
    rig_expect(rig, s, "3 OK fence=5,6,4 ttl_ms=2473 count=1 ignored=lease");
    ck_assert_uint_eq(rig->op_count, 1);
    struct op *op = rig_op_on(rig, OP_RENEW, "b");
    ck_assert(op->sets_end);
    rig_granted(rig, op, 6);
    rig_pass(rig, 2490);
    rig_expect(rig, s, "* LOST b fence=6 reason=expired");
    rig_silent(rig, s);
    rig_pass(rig, 510);
    rig_expect(rig, s, "* LOST a fence=4 reason=expired");
    rig_pass(rig, 5000);
    rig_silent(rig, s);
    rig_say(rig, s, "4 LOCK d c");
    rig_granted(rig, rig->ops[rig->op_count - 1], 7);
    rig_expect(rig, s, "4 OK fence=7,5 ttl_ms=~ count=1");
}

SESSION_TEST(least_count)
{
    rig_lock(rig, s, "1 LOCK b", 4);
    rig_ask(rig, s, "2 LOCK b", "2 OK fence=4 ttl_ms=~ count=2");
    rig_say(rig, s, "3 LOCK a b");
    rig_grant_on(rig, "a", 5);
    rig_expect(rig, s, "3 OK fence=5,4 ttl_ms=~ count=1");
    rig_ask(rig, s, "4 LOCK a b", "4 OK fence=5,4 ttl_ms=~ count=2");
}

/* A broker that goes leaves the parts of a kept session as they are. */
SESSION_TEST(drained)
{
    bool keeps = _i;
    rig_say(rig, s, keeps ? "HELLO keep=10s" : "HELLO");
    (void)rig_line(rig, s);
    rig_say(rig, s, "1 LOCK a b");
    rig_grant_on(rig, "a", 4);
    rig_queued(rig, rig_op_on(rig, OP_ACQUIRE, "b"));
    rig_stop(rig);
    rig_pass(rig, 10);
    rig_expect(rig, s, "* DRAIN grace_ms=10000");
    rig_expect(rig, s, "1 ERR DRAINING retry=1 name=b");
    unsigned released = 0;
    for (uint32_t i = 0; i < rig->op_count; i++)
        released += rig->ops[i]->kind == OP_RELEASE;
    ck_assert_uint_eq(released, keeps ? 0 : 2);
}

/* Nor are they holds of the connection that follows, unless it asks again. */
SESSION_TEST(kept_and_not_put_again)
{
    unsigned t = rig_open(rig);

    rig_say(rig, s, "HELLO keep=5s");
    (void)rig_line(rig, s);
    rig_say(rig, s, "1 LOCK a b");
    rig_grant_on(rig, "a", 4);
    rig_queued(rig, rig_op_on(rig, OP_ACQUIRE, "b"));
    rig_event(rig, s, CORE_DROP);
    rig_resume(rig, s, t, 2, " keep=5s");
    (void)rig_line(rig, t);
    rig_ask(rig, t, "1 UNLOCK a", "1 ERR NOTHELD retry=0");
    rig_ask(rig, t, "2 HELD", "2 OK n=0");
    rig_pass(rig, 4900);
    rig_no_op(rig);
    rig_pass(rig, 200);
    ck_assert_uint_eq(rig->op_count, 2);
    for (uint32_t i = 0; i < rig->op_count; i++)
        ck_assert_int_eq(rig->ops[i]->kind, OP_RELEASE);
    rig_silent(rig, t);
}

/* a (twice), b and m are held. Answers to the releases of b and m come last. */
static const struct names_unlock_row {
    const char *line;
    unsigned releases;
    enum op_status status;
    const char *answer;
} names_unlock_rows[] = {
    {"9 UNLOCK m b", 2, OP_OK, "9 OK count=0"},
    {"9 UNLOCK m a b", 2, OP_OK, "9 OK count=1"},
    {"9 UNLOCK m n b c", 2, OP_OK, "9 ERR NOTHELD retry=0 name=n released=2"},
    {"9 UNLOCK z x", 0, OP_OK, "9 ERR NOTHELD retry=0 name=z released=0"},
    {"9 UNLOCK m b owner=x", 0, OP_OK,
        "9 ERR NOTHELD retry=0 name=m released=0"},
    {"9 UNLOCK m b a", 2, OP_GONE, "9 ERR LOST retry=0 name=m released=1"},
    {"9 UNLOCK c b m", 2, OP_GONE, "9 ERR NOTHELD retry=0 name=c released=0"},
    {"9 UNLOCK m m", 0, OP_OK, "9 ERR BADREQ retry=0"},
    {"9 UNLOCK m b fence=5", 0, OP_OK, "9 ERR BADREQ retry=0"},
};

SESSION_TEST(unlock)
{
    const struct names_unlock_row *row = &names_unlock_rows[_i];

    rig_lock(rig, s, "1 LOCK b", 4);
    rig_lock(rig, s, "2 LOCK m", 5);
    rig_lock(rig, s, "3 LOCK a", 6);
    rig_ask(rig, s, "4 LOCK a", "4 OK fence=6 ttl_ms=~ count=2");
    rig_say(rig, s, row->line);
    ck_assert_uint_eq(rig->op_count, row->releases);
    if (row->releases > 0) {
        rig_silent(rig, s);
        rig_status(rig, rig_op_on(rig, OP_RELEASE, "b"), row->status);
        rig_silent(rig, s);
        rig_status(rig, rig_op_on(rig, OP_RELEASE, "m"), row->status);
    }
    rig_expect(rig, s, row->answer);
    rig_ask(rig, s, "10 HELD",
        row->releases > 0 ? "10 ITEM name=a ~ ~ ~" : "10 ITEM name=b ~ ~ ~");
}

/* Each name has its turn behind earlier requests for it. */
SESSION_TEST(unlock_with_delay)
{
    rig_lock(rig, s, "1 LOCK a", 5);
    rig_lock(rig, s, "2 LOCK b", 6);
    rig_say(rig, s, "3 UNLOCK b a delay=700");
    ck_assert_uint_eq(rig_op_on(rig, OP_RELEASE, "a")->delay_ms, 700);
    rig_released_on(rig, "a");
    ck_assert_uint_eq(rig_op_on(rig, OP_RELEASE, "b")->delay_ms, 700);
}

SESSION_TEST(unlock_in_order)
{
    rig_lock(rig, s, "1 LOCK a", 4);
    rig_say(rig, s, "2 LOCK b deadlock=0");
    rig_queued(rig, rig_op_on(rig, OP_ACQUIRE, "b"));
    rig_say(rig, s, "3 UNLOCK b a");
    rig_released_on(rig, "a");
    rig_silent(rig, s);
    rig_ask(rig, s, "4 CANCEL 2", "2 ERR CANCELLED retry=1");
    rig_expect(rig, s, "4 OK");
    rig_released_on(rig, "b");
    rig_expect(rig, s, "3 ERR NOTHELD retry=0 name=b released=1");
}

/* The client goes: the releases go on, and nobody is answered. */
SESSION_TEST(unlock_and_go)
{
    rig_lock(rig, s, "1 LOCK a", 4);
    rig_lock(rig, s, "2 LOCK b", 5);
    rig_say(rig, s, "3 UNLOCK b c a");
    rig_event(rig, s, CORE_DROP);
    rig_released_on(rig, "a");
    rig_released_on(rig, "b");
    rig_no_op(rig);
}

Suite *
core_names_suite(void)
{
    Suite *suite = suite_create("core_names");
    TCase *tests = tcase_create("core_names");

    tcase_add_test(tests, order);
    tcase_add_loop_test(tests, names_refused, 0, ROWS(names_refused_rows));
    tcase_add_loop_test(tests, rolled_back, 0, 6);
    tcase_add_test(tests, at_once);
    tcase_add_test(tests, too_slow);
    tcase_add_loop_test(tests, reentry, 0, 2);
    tcase_add_loop_test(tests, in_order, 0, 2);
    tcase_add_test(tests, impatient_behind_it);
    tcase_add_test(tests, part_lost);
    tcase_add_test(tests, lease);
    tcase_add_test(tests, not_shared_meanwhile);
    tcase_add_test(tests, kept);
    tcase_add_test(tests, kept_and_not_put_again);
    tcase_add_test(tests, least_of_all);
    tcase_add_test(tests, least_count);
    tcase_add_loop_test(tests, drained, 0, 2);
    tcase_add_loop_test(tests, unlock, 0, ROWS(names_unlock_rows));
    tcase_add_test(tests, unlock_with_delay);
    tcase_add_test(tests, unlock_in_order);
    tcase_add_test(tests, unlock_and_go);
    suite_add_tcase(suite, tests);
    return suite;
}

/*
 * Tests of mode=upgradable, and of upgrades: an exclusive hold above another
 * one of its owner.
 */
#include "daemon/op/op.h"
#include "tests/unit/core_rig.h"

#include <stdio.h>
#include <string.h>

Suite *core_upgrade_suite(void);

/* The hold below has fence 5. */
static void
upgradable(struct rig *rig, unsigned s)
{
    rig_lock(rig, s, "1 LOCK a mode=upgradable", 5);
}

static struct op *
upgrading(struct rig *rig, unsigned s, const char *request)
{
    rig_say(rig, s, request);
    struct op *op = rig_op(rig, OP_ACQUIRE);
    ck_assert(op->ask.mode == MODE_UPGRADE);
    ck_assert_uint_eq(op->owner_hash[0], OWNER_UPGRADE);
    return op;
}

static void
released(struct rig *rig, uint64_t fence)
{
    struct op *op = rig_op(rig, OP_RELEASE);
    ck_assert_uint_eq(op->fence, fence);
    ck_assert_uint_eq(op->owner_hash[0], fence == 5 ? 0 : OWNER_UPGRADE);
    rig_status(rig, op, OP_OK);
}

static void
only_the_first_is_left(struct rig *rig, unsigned s)
{
    rig_no_op(rig);
    rig_ask(rig, s, "90 HELD",
        "90 ITEM name=a fence=5 ttl_ms=~ count=1 mode=upgradable");
    rig_expect(rig, s, "90 OK n=1");
}

SESSION_TEST(is_given_back)
{
    rig_say(rig, s, "1 LOCK a mode=upgradable");
    ck_assert(rig_op(rig, OP_ACQUIRE)->ask.mode == MODE_UPGRADABLE);
    rig_granted(rig, rig_op(rig, OP_ACQUIRE), 5);
    rig_expect(rig, s, "1 OK fence=5 ttl_ms=~ count=1");
    rig_ask(
        rig, s, "2 LOCK a mode=upgradable", "2 OK fence=5 ttl_ms=~ count=2");
    rig_ask(rig, s, "3 UNLOCK a", "3 OK count=1");
    struct op *op = upgrading(rig, s, "4 LOCK a note=writes");
    uint64_t told = op->request;
    ck_assert(!op->no_queue);
    rig_queued(rig, op);
    rig_silent(rig, s);
    rig_hint(rig, told);
    rig_granted(rig, rig_op(rig, OP_RENEW), 9);
    rig_expect(rig, s, "4 OK fence=9 ttl_ms=~ count=2 upgrade=1");
    rig_ask(rig, s, "5 LOCK a", "5 OK fence=9 ttl_ms=~ count=3 upgrade=1");
    rig_ask(rig, s, "6 HELD",
        "6 ITEM name=a fence=5 ttl_ms=~ count=1 mode=upgradable");
    rig_expect(
        rig, s, "6 ITEM name=a fence=9 ttl_ms=~ count=2 upgrade=1 note=writes");
    rig_expect(rig, s, "6 OK n=2");
    rig_ask(rig, s, "7 UNLOCK a", "7 OK count=2");
    rig_say(rig, s, "8 UNLOCK a fence=9");
    released(rig, 9);
    rig_expect(rig, s, "8 OK count=1");
    only_the_first_is_left(rig, s);
    rig_say(rig, s, "9 UNLOCK a");
    released(rig, 5);
    rig_expect(rig, s, "9 OK count=0");
}

/* The wait ends, and the hold below it stays. */
SESSION_TEST(is_not_had)
{
    static const char *const answers[] = {"2 ERR TIMEOUT retry=1",
        "2 ERR CANCELLED retry=1", "2 ERR BUSY retry=1"};

    upgradable(rig, s);
    struct op *op =
        upgrading(rig, s, _i < 2 ? "2 LOCK a wait=1s" : "2 LOCK a wait=0");
    ck_assert_uint_eq(op->no_queue, _i == 2);
    if (_i < 2)
        rig_queued(rig, op);
    if (_i == 0)
        rig_pass(rig, 1010);
    if (_i == 1)
        rig_say(rig, s, "3 CANCEL 2");
    if (_i == 2)
        rig_status(rig, op, OP_BUSY);
    rig_expect(rig, s, answers[_i % 3]);
    if (_i == 1)
        rig_expect(rig, s, "3 OK");
    if (_i == 0) /* it was looked at for a deadlock */
        rig_status(rig, rig_op(rig, OP_INSPECT), OP_GONE);
    if (_i != 2)
        released(rig, 0);
    only_the_first_is_left(rig, s);
}

/* Redis refuses it if others share the lock. It may wait for a lock-delay. */
SESSION_TEST(of_a_shared_hold)
{
    rig_lock(rig, s, "1 LOCK a mode=shared", 5);
    struct op *op = upgrading(rig, s, "2 LOCK a");
    ck_assert(!op->no_queue);
    rig_status(rig, op, OP_CONFLICT);
    rig_expect(rig, s, "2 ERR CONFLICT retry=0");
    op = upgrading(rig, s, "3 LOCK a wait=5s");
    rig_granted(rig, op, 9);
    rig_expect(rig, s, "3 OK fence=9 ttl_ms=~ count=2 upgrade=1");
    rig_say(rig, s, "4 UNLOCK a");
    released(rig, 9);
    rig_expect(rig, s, "4 OK count=1");
}

/* Requests behind the LOCK are about the upgrade, or about the hold below it
 * where there is no upgrade. */
SESSION_TEST(in_a_row)
{
    upgradable(rig, s);
    struct op *op = upgrading(rig, s, "2 LOCK a");
    rig_say(rig, s, "3 UNLOCK a");
    rig_silent(rig, s);
    if (_i == 0) {
        rig_granted(rig, op, 9);
        rig_expect(rig, s, "2 OK fence=9 ttl_ms=~ count=2 upgrade=1");
        released(rig, 9);
        rig_expect(rig, s, "3 OK count=1");
        only_the_first_is_left(rig, s);
        return;
    }
    rig_queued(rig, op);
    rig_say(rig, s, "4 CANCEL 2");
    rig_expect(rig, s, "2 ERR CANCELLED retry=1");
    rig_expect(rig, s, "4 OK");
    released(rig, 0);
    released(rig, 5);
    rig_expect(rig, s, "3 OK count=0");
}

/* The hold has fence 5, and the upgrade fence 9. */
static void
upgraded(struct rig *rig, unsigned s)
{
    upgradable(rig, s);
    rig_granted(rig, upgrading(rig, s, "2 LOCK a"), 9);
    rig_expect(rig, s, "2 OK fence=9 ttl_ms=~ count=2 upgrade=1");
}

/* Requests that wait for Redis are served in their order, at whichever of the
 * two tickets. */
SESSION_TEST(behind_its_release)
{
    upgraded(rig, s);
    rig_say(rig, s, "3 UNLOCK a");
    rig_say(rig, s, "4 LOCK a");
    rig_say(rig, s, "5 UNLOCK a");
    rig_say(rig, s, "6 UNLOCK a");
    rig_say(rig, s, "7 LOCK a");
    released(rig, 9);
    rig_expect(rig, s, "3 OK count=1");
    rig_granted(rig, rig_op(rig, OP_ACQUIRE), 10);
    rig_expect(rig, s, "4 OK fence=10 ttl_ms=~ count=2 upgrade=1");
    released(rig, 10);
    rig_expect(rig, s, "5 OK count=1");
    released(rig, 5);
    rig_expect(rig, s, "6 OK count=0");
    struct op *op = rig_op(rig, OP_ACQUIRE);
    ck_assert(op->ask.mode == MODE_EXCLUSIVE);
    rig_granted(rig, op, 11);
    rig_expect(rig, s, "7 OK fence=11 ttl_ms=~ count=1");
}

SESSION_TEST(behind_the_release_below)
{
    upgraded(rig, s);
    rig_say(rig, s, "3 UNLOCK a fence=5");
    rig_say(rig, s, "4 LOCK a");
    rig_say(rig, s, "5 UNLOCK a");
    rig_say(rig, s, "6 LOCK a mode=shared");
    released(rig, 5);
    rig_expect(rig, s, "3 OK count=1");
    rig_expect(rig, s, "4 OK fence=9 ttl_ms=~ count=2 upgrade=1");
    rig_expect(rig, s, "5 OK count=1");
    rig_expect(rig, s, "6 ERR CONFLICT retry=0");
    rig_ask(
        rig, s, "7 HELD", "7 ITEM name=a fence=9 ttl_ms=~ count=1 upgrade=1");
    rig_expect(rig, s, "7 OK n=1");
    rig_no_op(rig);
}

SESSION_TEST(before_the_grant)
{
    rig_say(rig, s, "1 LOCK a mode=upgradable");
    rig_say(rig, s, "2 LOCK a");
    rig_say(rig, s, "3 LOCK a");
    rig_say(rig, s, "4 UNLOCK a");
    rig_say(rig, s, "5 UNLOCK a");
    rig_say(rig, s, "6 UNLOCK a");
    rig_granted(rig, rig_op(rig, OP_ACQUIRE), 5);
    rig_expect(rig, s, "1 OK fence=5 ttl_ms=~ count=1");
    rig_granted(rig, rig_op(rig, OP_ACQUIRE), 9);
    rig_expect(rig, s, "2 OK fence=9 ttl_ms=~ count=2 upgrade=1");
    rig_expect(rig, s, "3 OK fence=9 ttl_ms=~ count=3 upgrade=1");
    rig_expect(rig, s, "4 OK count=2");
    released(rig, 9);
    rig_expect(rig, s, "5 OK count=1");
    released(rig, 5);
    rig_expect(rig, s, "6 OK count=0");
}

/* A re-entry of the hold below stood behind one of the upgrade. */
SESSION_TEST(hands_a_reentry_down)
{
    upgraded(rig, s);
    rig_say(rig, s, "3 NOTE a note=x");
    rig_say(rig, s, "4 LOCK a");
    rig_say(rig, s, "5 LOCK a mode=upgradable");
    rig_say(rig, s, "6 UNLOCK a");
    rig_granted(rig, rig_op(rig, OP_RENEW), 9);
    rig_expect(rig, s, "3 OK ttl_ms=~");
    rig_expect(rig, s, "4 OK fence=9 ttl_ms=~ count=3 upgrade=1");
    rig_expect(rig, s, "6 OK count=2");
    rig_expect(rig, s, "5 OK fence=5 ttl_ms=~ count=3");
    rig_no_op(rig);
}

/* The client was told that its wait had ended: UNLOCK is for its hold. */
RIG_TEST(is_not_known_to_a_later_connection, rig_new())
{
    unsigned s = rig_open_kept(rig), t = rig_open(rig);

    upgradable(rig, s);
    rig_queued(rig, upgrading(rig, s, "2 LOCK a"));
    rig_event(rig, s, CORE_DROP);
    rig_resume(rig, s, t, 2, " keep=10s");
    rig_line(rig, t);
    rig_say(rig, t, "1 CLAIM a fence=5");
    rig_finish(rig, rig_op(rig, OP_RENEW),
        (struct op_result){.status = OP_OK,
            .fence = 5,
            .ttl_ms = RIG_LEASE_MS,
            .ask = {.mode = MODE_UPGRADABLE, .permits = 1}});
    rig_expect(rig, t, "1 OK fence=5 ttl_ms=~ count=1");
    if (_i == 1) { /* the LOCK goes on with that wait */
        rig_say(rig, t, "2 LOCK a");
        struct op *op = rig_op(rig, OP_RENEW);
        uint64_t told = op->request;
        ck_assert_uint_eq(op->owner_hash[0], OWNER_UPGRADE);
        rig_finish(rig, op,
            (struct op_result){.status = OP_WAITING,
                .ahead = 1,
                .again_ms = 1000,
                .ask = {.mode = MODE_UPGRADE, .permits = 1}});
        rig_hint(rig, told);
        rig_granted(rig, rig_op(rig, OP_RENEW), 9);
        rig_expect(rig, t, "2 OK fence=9 ttl_ms=~ count=2 upgrade=1");
        return;
    }
    rig_say(rig, t, "2 UNLOCK a");
    released(rig, 5);
    rig_expect(rig, t, "2 OK count=0");
}

/* A LOCK that stood behind a wait does not fit the hold below. */
SESSION_TEST(of_a_semaphore)
{
    upgradable(rig, s);
    rig_queued(rig, upgrading(rig, s, "2 LOCK a"));
    rig_say(rig, s, "3 LOCK a");
    rig_say(rig, s, "4 LOCK a limit=3");
    rig_ask(rig, s, "5 CANCEL 3", "3 ERR CANCELLED retry=1");
    rig_expect(rig, s, "5 OK");
    rig_ask(rig, s, "6 CANCEL 2", "2 ERR CANCELLED retry=1");
    rig_expect(rig, s, "6 OK");
    released(rig, 0);
    rig_expect(rig, s, "4 ERR CONFLICT retry=0");
    only_the_first_is_left(rig, s);
}

/* Another kind of LOCK that stood behind a wait is for a ticket of its own. */
SESSION_TEST(of_another_kind)
{
    static const char *const options[] = {"limit=3", "mode=shared", ""};

    upgradable(rig, s);
    struct op *op = upgrading(rig, s, "2 LOCK a wait=1s");
    rig_queued(rig, op);
    rig_say(rig, s, "3 UNLOCK a fence=5");
    released(rig, 5);
    rig_expect(rig, s, "3 OK count=0");
    char line[64];
    (void)snprintf(line, sizeof(line), "4 LOCK a %s", options[_i % 3]);
    rig_say(rig, s, line);
    rig_say(rig, s, "5 CANCEL 2");
    rig_expect(rig, s, "2 ERR CANCELLED retry=1");
    rig_expect(rig, s, "5 OK");
    released(rig, 0);
    op = rig_op(rig, OP_ACQUIRE);
    ck_assert(op->ask.mode == (_i == 1 ? MODE_SHARED : MODE_EXCLUSIVE));
    ck_assert_uint_eq(op->ask.permits_max, _i == 0 ? 3 : 0);
    ck_assert_uint_eq(op->owner_hash[0], 0);
}

/* The upgrade outlives the hold below it. */
SESSION_TEST(by_fence)
{
    upgradable(rig, s);
    rig_granted(rig, upgrading(rig, s, "2 LOCK a"), 9);
    rig_expect(rig, s, "2 OK fence=9 ttl_ms=~ count=2 upgrade=1");
    rig_ask(
        rig, s, "3 LOCK a mode=shared wait=0 limit=2", "3 ERR BADREQ retry=0");
    rig_say(rig, s, "4 UNLOCK a fence=5");
    released(rig, 5);
    rig_expect(rig, s, "4 OK count=1");
    rig_ask(rig, s, "5 LOCK a mode=shared", "5 ERR CONFLICT retry=0");
    rig_ask(rig, s, "6 LOCK a", "6 OK fence=9 ttl_ms=~ count=2 upgrade=1");
    rig_ask(rig, s, "7 UNLOCK a fence=5", "7 ERR STALE retry=0");
    rig_ask(rig, s, "8 UNLOCK a", "8 OK count=1");
    rig_event(rig, s, CORE_DROP);
    released(rig, 9);
    rig_no_op(rig);
}

/* The loss of one is told by its fence. */
SESSION_TEST(one_is_lost)
{
    upgradable(rig, s);
    rig_granted(rig, upgrading(rig, s, "2 LOCK a"), 9);
    rig_expect(rig, s, "2 OK fence=9 ttl_ms=~ count=2 upgrade=1");
    rig_pass(rig, 10010);
    for (int i = 0; i < 2; i++) {
        struct op *op = rig_op(rig, OP_RENEW);
        if (op->fence == 5) {
            rig_granted(rig, op, 5);
            continue;
        }
        rig_status(rig, op, OP_GONE);
        rig_expect(rig, s, "* LOST a fence=9 reason=gone");
    }
}

/* While the loss of the hold below is being written, a fence of neither hold is
 * STALE: the upgrade stands. */
SESSION_TEST(base_is_lost)
{
    rig_lock(rig, s, "1 LOCK a mode=upgradable lease=2s", 5);
    rig_granted(rig, upgrading(rig, s, "2 LOCK a"), 9);
    rig_expect(rig, s, "2 OK fence=9 ttl_ms=~ count=2 upgrade=1");
    rig_pass(rig, 2000);
    rig_expect(rig, s, "* LOST a fence=5 reason=expired");
    rig_ask(rig, s, "3 UNLOCK a fence=1", "3 ERR STALE retry=0");
    rig_ask(rig, s, "4 UNLOCK a fence=5", "4 ERR LOST retry=0");
    rig_ask(rig, s, "5 RENEW a fence=1 lease=1s", "5 ERR STALE retry=0");
}

/* Redis has granted the lock to another owner since: what cannot stand beside
 * it is lost. */
SESSION_TEST(is_displaced)
{
    unsigned t = rig_open(rig);

    upgraded(rig, s);
    rig_lock(rig, t, _i == 0 ? "1 LOCK a mode=shared" : "1 LOCK a", 12);
    if (_i == 1)
        rig_expect(rig, s, "* LOST a fence=5 reason=gone");
    rig_expect(rig, s, "* LOST a fence=9 reason=gone");
    rig_silent(rig, s);
}

static void
claim(struct rig *rig, unsigned t, const char *request, enum mode mode,
    uint64_t fence, const char *answer)
{
    rig_say(rig, t, request);
    struct op *op = rig_op(rig, OP_RENEW);
    ck_assert(op->moves);
    ck_assert_uint_eq(
        op->owner_hash[0], mode == MODE_UPGRADE ? OWNER_UPGRADE : 0);
    rig_finish(rig, op,
        (struct op_result){.status = OP_OK,
            .fence = fence,
            .ttl_ms = RIG_LEASE_MS,
            .ask = {.mode = mode, .permits = 1}});
    rig_expect(rig, t, answer);
}

/* Each of the two is claimed by its own fence, in any order, at the broker that
 * knows them or at another one. */
RIG_TEST(is_claimed, rig_new())
{
    unsigned t = rig_open(rig);

    if (_i < 2) {
        unsigned s = rig_open_kept(rig);
        upgradable(rig, s);
        rig_granted(rig, upgrading(rig, s, "2 LOCK a"), 9);
        rig_expect(rig, s, "2 OK fence=9 ttl_ms=~ count=2 upgrade=1");
        rig_event(rig, s, CORE_DROP);
        rig_resume(rig, s, t, 2, " keep=10s");
    } else {
        rig_say(rig, t, "HELLO resume=0123456789abcdef0123456789abcdef gen=2");
    }
    rig_line(rig, t);
    for (int i = 0; i < 2; i++) {
        const char *ok[] = {"1 OK fence=5 ttl_ms=~ count=~",
            "1 OK fence=9 ttl_ms=~ count=~ upgrade=1"};
        bool above = i == _i % 2;
        claim(rig, t,
            above ? "1 CLAIM a fence=9 upgrade=1" : "1 CLAIM a fence=5",
            above ? MODE_UPGRADE : MODE_UPGRADABLE, above ? 9 : 5, ok[above]);
    }
    rig_say(rig, t, "2 UNLOCK a");
    released(rig, 9);
    rig_expect(rig, t, "2 OK count=1");
}

SESSION_TEST(refused)
{
    rig_ask(rig, s, "1 LOCK a mode=upgradable limit=2", "1 ERR BADREQ retry=0");
    rig_ask(rig, s, "1 LOCK a mode=upgradable lease=1h detached=1",
        "1 ERR BADREQ retry=0");
    rig_lock(rig, s, "1 LOCK b", 5);
    rig_ask(rig, s, "2 LOCK b mode=upgradable", "2 ERR CONFLICT retry=0");
    rig_lock(rig, s, "1 LOCK c mode=shared", 6);
    rig_ask(rig, s, "2 LOCK c mode=upgradable", "2 ERR CONFLICT retry=0");
    rig_ask(rig, s, "2 LOCK c lease=1h detached=1", "2 ERR CONFLICT retry=0");
}

RIG_TEST(in_a_quorum, rig_create())
{
    rig->settings.no_semaphores = true;
    rig_start(rig);
    unsigned s = rig_open(rig);
    rig_ask(rig, s, "1 LOCK a mode=upgradable", "1 ERR BADREQ retry=0");
    rig_lock(rig, s, "1 LOCK a mode=shared", 5);
    rig_ask(rig, s, "2 LOCK a", "2 ERR CONFLICT retry=0");
}

Suite *
core_upgrade_suite(void)
{
    Suite *suite = suite_create("core_upgrade");
    TCase *tests = tcase_create("core_upgrade");

    tcase_add_test(tests, is_given_back);
    tcase_add_loop_test(tests, is_not_had, 0, 3);
    tcase_add_test(tests, of_a_shared_hold);
    tcase_add_loop_test(tests, in_a_row, 0, 2);
    tcase_add_test(tests, behind_its_release);
    tcase_add_test(tests, behind_the_release_below);
    tcase_add_test(tests, before_the_grant);
    tcase_add_test(tests, hands_a_reentry_down);
    tcase_add_loop_test(tests, is_not_known_to_a_later_connection, 0, 2);
    tcase_add_test(tests, of_a_semaphore);
    tcase_add_loop_test(tests, of_another_kind, 0, 3);
    tcase_add_test(tests, by_fence);
    tcase_add_test(tests, one_is_lost);
    tcase_add_test(tests, base_is_lost);
    tcase_add_loop_test(tests, is_displaced, 0, 2);
    tcase_add_loop_test(tests, is_claimed, 0, 4);
    tcase_add_test(tests, refused);
    tcase_add_test(tests, in_a_quorum);
    suite_add_tcase(suite, tests);
    return suite;
}

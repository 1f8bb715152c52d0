/*
 * Tests of daemon/core/model/ticket.c: holds. When they are believed in, how
 * they are renewed, lost and given back.
 */
#include "daemon/op/op.h"
#include "tests/unit/core_rig.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LEASE_US    ((uint64_t)RIG_LEASE_MS * 1000)
#define DEADLINE_US (LEASE_US - RIG_MARGIN_US)
/* The wheel's tick: what an event may come later than its time. */
#define TICK_US 1024u

Suite *core_hold_suite(void);

SESSION_TEST(grant_and_unlock)
{
    rig_say(rig, s, "1 LOCK a");
    struct op *op = rig_op(rig, OP_ACQUIRE);
    ck_assert(!op->retry && !op->no_queue && op->ask.hold_ms == 0);
    ck_assert_uint_eq(op->lease_ms, RIG_LEASE_MS);
    ck_assert_uint_eq(op->deadline_us, rig->now_us + 5 * SECOND_US);
    rig_silent(rig, s);
    rig_granted(rig, op, 41);
    rig_expect(rig, s, "1 OK fence=41 ttl_ms=29698 count=1");
    rig_no_op(rig);
    rig_ask(rig, s, "2 UNLOCK a fence=40", "2 ERR STALE retry=0");
    rig_say(rig, s, "3 UNLOCK a fence=41");
    op = rig_op(rig, OP_RELEASE);
    ck_assert_uint_eq(op->fence, 41);
    ck_assert(!op->retry);
    rig_silent(rig, s);
    rig_status(rig, op, OP_OK);
    rig_expect(rig, s, "3 OK count=0");
    rig_ask(rig, s, "4 UNLOCK a", "4 ERR NOTHELD retry=0");
    rig_ask(rig, s, "5 RENEW a lease=5s", "5 ERR NOTHELD retry=0");
    ck_assert_uint_eq(rig_count(rig, COUNTER_grants_at_once), 1);
    ck_assert_uint_eq(rig_count(rig, COUNTER_releases), 1);
}

/* Its answer may be late, unless a request stands behind it. */
SESSION_TEST(unlock_answered_late)
{
    rig_lock(rig, s, "LOCK a", 5);
    rig_say(rig, s, "2 UNLOCK a");
    struct op *op = rig_op(rig, OP_RELEASE);
    ck_assert_uint_eq(op->deadline_us, rig->now_us + 5 * SECOND_US);
    ck_assert_uint_eq(rig->hurried, 0);
    rig_say(rig, s, "3 LOCK a wait=0");
    ck_assert_uint_eq(rig->hurried, 1);
    rig_status(rig, op, OP_UNKNOWN);
    rig_expect(rig, s, "3 ERR UNAVAILABLE retry=1");
    rig_pass(rig, 200);
    op = rig_op(rig, OP_RELEASE);
    rig_say(rig, s, "4 LOCK a wait=0");
    rig_status(rig, op, OP_GONE);
    rig_expect(rig, s, "2 OK count=0");
    rig_granted(rig, rig_op(rig, OP_ACQUIRE), 6);
    rig_expect(rig, s, "4 OK fence=6 ttl_ms=~ count=1");
}

SESSION_TEST(reentry)
{
    rig_lock(rig, s, "LOCK a", 5);
    rig_ask(rig, s, "LOCK a wait=0 lease=1s",
        "- OK fence=5 ttl_ms=~ count=2 renewed=1 ignored=lease");
    rig_ask(rig, s, "LOCK a", "- OK fence=5 ttl_ms=~ count=3");
    rig_no_op(rig);
    for (int left = 2; left > 0; left--) {
        rig_ask(
            rig, s, "UNLOCK a", left == 2 ? "- OK count=2" : "- OK count=1");
    }
    rig_no_op(rig);
    rig_say(rig, s, "UNLOCK a");
    rig_status(rig, rig_op(rig, OP_RELEASE), OP_OK);
    rig_expect(rig, s, "- OK count=0");
    ck_assert_uint_eq(rig_count(rig, COUNTER_reentries), 2);
}

/* A re-entry changes nothing of the hold, and says what it named in vain. */
SESSION_TEST(ignored)
{
    rig_lock(rig, s, "1 LOCK a note=n lease=9s delay=2s", 5);
    rig_ask(rig, s, "2 LOCK a note=n lease=9s delay=2s",
        "2 OK fence=5 ttl_ms=~ count=2");
    rig_ask(rig, s, "3 LOCK a note=m lease=8s delay=1s",
        "3 OK fence=5 ttl_ms=~ count=3 ignored=note,lease,delay");
    rig_ask(rig, s, "4 LOCK a note=m lease=9s",
        "4 OK fence=5 ttl_ms=~ count=4 ignored=note");
    rig_lock(rig, s, "5 LOCK b", 6);
    rig_ask(rig, s, "6 LOCK b delay=1s",
        "6 OK fence=6 ttl_ms=~ count=2 ignored=delay");
    rig_say(rig, s, "7 LOCK b c lease=9s note=o");
    rig_granted(rig, rig_op(rig, OP_ACQUIRE), 7);
    rig_expect(rig, s, "7 OK fence=6,7 ttl_ms=~ count=1 ignored=note,lease");
}

/* RENEW gives a hold an end, also where Redis does not hear of it. */
SESSION_TEST(renew_gives_a_lease)
{
    bool heard = _i;

    rig_lock(rig, s, "1 LOCK a", 5);
    rig_say(rig, s, "2 RENEW a lease=20s");
    struct op *op = rig_op(rig, OP_RENEW);
    ck_assert(op->sets_end);
    ck_assert_uint_eq(op->hard_end_us, rig->now_us + 20 * SECOND_US);
    if (heard) {
        rig_granted(rig, op, 5);
        rig_expect(rig, s, "2 OK ttl_ms=~ lease_ms=19798");
    } else {
        rig_status(rig, op, OP_UNSENT);
        rig_expect(rig, s, "2 ERR UNAVAILABLE retry=1");
    }
    rig_ask(rig, s, "3 HELD",
        "3 ITEM name=a fence=5 ttl_ms=~ count=1 lease_ms=19798");
    rig_expect(rig, s, "3 OK n=1");
    /* It counts no more for PING: what is left is the session's silence. */
    rig_ask(rig, s, "4 LOCK a lease=20s", "4 OK fence=5 ttl_ms=~ count=2");
    rig_pass(rig, 19790);
    rig_silent(rig, s);
    rig_pass(rig, 10);
    rig_expect(rig, s, "* LOST a fence=5 reason=expired");
    if (heard)
        ck_assert_uint_eq(rig_count(rig, COUNTER_renewals), 1);
}

static void
shows_note(struct rig *rig, unsigned s, const char *note)
{
    char line[80];

    snprintf(line, sizeof(line),
        "9 ITEM name=a fence=5 ttl_ms=~ count=1 owner=o%s%s",
        note[0] != '\0' ? " note=" : "", note);
    rig_ask(rig, s, "9 HELD", line);
    rig_expect(rig, s, "9 OK n=1");
}

SESSION_TEST(note)
{
    rig_lock(rig, s, "1 LOCK a owner=o note=n", 5);
    rig_ask(rig, s, "2 NOTE a note=m", "2 ERR NOTHELD retry=0");
    rig_ask(rig, s, "2 NOTE a owner=o fence=4", "2 ERR STALE retry=0");
    rig_no_op(rig);
    rig_say(rig, s, "3 NOTE a owner=o fence=5 note=m");
    struct op *op = rig_op(rig, OP_RENEW);
    ck_assert(op->notes && !op->sets_end && op->hard_end_us == WHEEL_NEVER);
    ck_assert(text_equal(op->words[0], TEXT("o")));
    ck_assert(text_equal(op->words[2], TEXT("m")));
    rig_granted(rig, op, 5);
    rig_expect(rig, s, "3 OK ttl_ms=~ renewed=1");
    shows_note(rig, s, "m");
    /* One after the other, for the earlier one could run last. */
    rig_say(rig, s, "4 NOTE a owner=o");
    rig_say(rig, s, "5 NOTE a owner=o note=k");
    ck_assert_uint_eq(rig->op_count, 1);
    op = rig_op(rig, OP_RENEW);
    ck_assert(op->notes && op->words[2].len == 0);
    shows_note(rig, s, "");
    rig_granted(rig, op, 5);
    rig_expect(rig, s, "4 OK ttl_ms=~ renewed=1");
    rig_granted(rig, rig_op(rig, OP_RENEW), 5);
    rig_expect(rig, s, "5 OK ttl_ms=~ renewed=1");
    shows_note(rig, s, "k");
    rig_pass(rig, 12000);
    ck_assert(!rig_op(rig, OP_RENEW)->notes);
}

/* Redis does not answer: the next renewal has the note. */
SESSION_TEST(note_later)
{
    bool unsent = _i;

    rig_lock(rig, s, "1 LOCK a owner=o", 5);
    rig_say(rig, s, "2 NOTE a note=m owner=o");
    rig_status(rig, rig_op(rig, OP_RENEW), unsent ? OP_UNSENT : OP_UNKNOWN);
    rig_expect(
        rig, s, unsent ? "2 ERR UNAVAILABLE retry=1" : "2 ERR INDOUBT retry=1");
    shows_note(rig, s, "m");
    rig_pass(rig, 12000);
    struct op *op = rig_op(rig, OP_RENEW);
    ck_assert(op->notes && text_equal(op->words[2], TEXT("m")));
    rig_granted(rig, op, 5);
    rig_silent(rig, s);
    rig_pass(rig, 12000);
    ck_assert(!rig_op(rig, OP_RENEW)->notes);
}

/* Redis has lost the hold: it is put again with the new note. */
SESSION_TEST(note_of_a_lost_hold)
{
    rig_lock(rig, s, "1 LOCK a owner=o", 5);
    rig_say(rig, s, "2 NOTE a note=m owner=o");
    rig_status(rig, rig_op(rig, OP_RENEW), OP_MISSING);
    struct op *op = rig_op(rig, OP_RECLAIM);
    ck_assert(text_equal(op->words[2], TEXT("m")));
    rig_granted(rig, op, 5);
    rig_expect(rig, s, "2 OK ttl_ms=~ renewed=1");
}

SESSION_TEST(owners)
{
    rig_lock(rig, s, "1 LOCK a owner=x", 5);
    rig_say(rig, s, "2 LOCK a owner=y");
    struct op *op = rig_op(rig, OP_ACQUIRE);
    rig_queued(rig, op);
    rig_ask(rig, s, "3 UNLOCK a", "3 ERR NOTHELD retry=0");
    rig_say(rig, s, "4 UNLOCK a owner=x");
    op = rig_op(rig, OP_RELEASE);
    rig_status(rig, op, OP_OK);
    rig_expect(rig, s, "4 OK count=0");
    rig_say(rig, s, "5 LOCK a owner=x");
    ck_assert(memcmp(rig_op(rig, OP_ACQUIRE)->words[0].at, "x", 1) == 0);
}

SESSION_TEST(requests_in_order)
{
    rig_say(rig, s, "1 LOCK a");
    rig_say(rig, s, "2 LOCK a");
    rig_say(rig, s, "3 UNLOCK a");
    rig_say(rig, s, "4 UNLOCK a");
    rig_say(rig, s, "5 LOCK a note=n");
    rig_say(rig, s, "6 UNLOCK a");
    struct op *op = rig_op(rig, OP_ACQUIRE);
    uint64_t request = op->request;
    ck_assert_uint_eq(rig->op_count, 1);
    rig_granted(rig, op, 5);
    rig_expect(rig, s, "1 OK fence=5 ttl_ms=~ count=1");
    rig_expect(rig, s, "2 OK fence=5 ttl_ms=~ count=2");
    rig_expect(rig, s, "3 OK count=1");
    rig_silent(rig, s);
    rig_status(rig, rig_op(rig, OP_RELEASE), OP_OK);
    rig_expect(rig, s, "4 OK count=0");
    op = rig_op(rig, OP_ACQUIRE);
    ck_assert_uint_ne(op->request, request);
    rig_granted(rig, op, 6);
    rig_expect(rig, s, "5 OK fence=6 ttl_ms=~ count=1");
    rig_status(rig, rig_op(rig, OP_RELEASE), OP_OK);
    rig_expect(rig, s, "6 OK count=0");
}

/* The deadline counts from the sending, and LOST comes then. */
SESSION_TEST(deadline_from_sending)
{
    rig_say(rig, s, "LOCK a");
    uint64_t sent_us = rig->now_us;
    rig_pass(rig, 1000);
    rig_granted(rig, rig_op(rig, OP_ACQUIRE), 5);
    rig_expect(rig, s, "- OK fence=5 ttl_ms=28698 count=1");
    rig_pass_us(rig, sent_us + DEADLINE_US - 1 - rig->now_us);
    rig_expect(rig, s, "* JEOPARDY a ttl_ms=~");
    rig_silent(rig, s);
    rig_op(rig, OP_RENEW);
    ck_assert_uint_eq(rig->op_count, 1);
    rig_pass_us(rig, TICK_US);
    rig_expect(rig, s, "* LOST a fence=5 reason=backend");
    ck_assert_uint_eq(rig->op_count, 2);
    /* The answer to the renewal brings nothing back now. */
    rig_granted(rig, rig_op(rig, OP_RENEW), 5);
    rig_silent(rig, s);
    rig_ask(rig, s, "UNLOCK a", "- ERR LOST retry=0");
    rig_status(rig, rig_op(rig, OP_RELEASE), OP_OK);
    rig_ask(rig, s, "UNLOCK a", "- ERR NOTHELD retry=0");
    ck_assert_uint_eq(rig_count(rig, COUNTER_lost_backend), 1);
}

/* Nothing is granted, answered or prolonged in the turn of the deadline. */
SESSION_TEST(deadline_before_all_else)
{
    rig_lock(rig, s, "LOCK a", 5);
    rig_pass(rig, 15000);
    struct op *op = rig_op(rig, OP_RENEW);
    rig_stall(rig, 20000);
    rig_ask(rig, s, "LOCK a wait=0", "* LOST a fence=5 reason=backend");
    rig_silent(rig, s);
    rig_granted(rig, op, 5);
    rig_status(rig, rig_op(rig, OP_RELEASE), OP_GONE);
    rig_granted(rig, rig_op(rig, OP_ACQUIRE), 6);
    rig_expect(rig, s, "- OK fence=6 ttl_ms=~ count=1");
    /* The answer to a renewal that comes too late for its hold. */
    rig_pass(rig, 10000);
    op = rig_op(rig, OP_RENEW);
    rig_stall(rig, 20000);
    rig_granted(rig, op, 6);
    rig_expect(rig, s, "* LOST a fence=6 reason=backend");
    rig_status(rig, rig_op(rig, OP_RELEASE), OP_OK);
}

/* So many of them share a call. */
#define TOGETHER_US (LEASE_US / 2048)

SESSION_TEST(renewal_at_a_third)
{
    const uint64_t least_us = LEASE_US / 3 - LEASE_US / 30 - TOGETHER_US;

    rig_lock(rig, s, "LOCK a", 5);
    for (int i = 0; i < 40; i++) {
        uint64_t sent_us = rig->now_us;
        rig_pass_us(rig, least_us - 1);
        rig_no_op(rig);
        while (rig->op_count == 0)
            rig_pass(rig, 1);
        uint64_t after_us = rig->now_us - sent_us;
        ck_assert_uint_lt(rig->now_us % TOGETHER_US, 2 * TICK_US);
        ck_assert_uint_le(after_us, LEASE_US / 3 + 2 * TICK_US);
        struct op *op = rig_op(rig, OP_RENEW);
        ck_assert_uint_eq(op->fence, 5);
        ck_assert_uint_eq(op->hard_end_us, WHEEL_NEVER);
        ck_assert_uint_ge(op->deadline_us, sent_us + DEADLINE_US - TICK_US);
        ck_assert_uint_le(op->deadline_us, sent_us + DEADLINE_US);
        rig_granted(rig, op, 5);
    }
    rig_silent(rig, s);
    ck_assert_uint_eq(rig_count(rig, COUNTER_renewals), 40);
}

/* Errors do not end renewal before the deadline does. */
SESSION_TEST(renewal_retried)
{
    static const enum op_status errors[] = {
        OP_UNSENT, OP_UNKNOWN, OP_REFUSED, OP_BUSY, OP_FULL};

    rig_lock(rig, s, "LOCK a owner=w", 5);
    uint64_t sent_us = rig->now_us;
    rig_pass(rig, 10010);
    int tries = 0;
    while (rig->now_us < sent_us + DEADLINE_US - 200000) {
        ck_assert_uint_eq(rig->op_count, 1);
        rig_status(rig, rig_op(rig, OP_RENEW), errors[tries++ % 5]);
        rig_no_op(rig);
        rig_pass(rig, 99);
        rig_no_op(rig);
        rig_pass(rig, 13);
    }
    ck_assert_int_gt(tries, 150);
    ck_assert_uint_eq(rig_count(rig, COUNTER_renewals_failed), (unsigned)tries);
    rig_expect(rig, s, "* JEOPARDY a ttl_ms=~ owner=w");
    rig_silent(rig, s);
    rig_granted(rig, rig_op(rig, OP_RENEW), 5);
    rig_expect(rig, s, "* SAFE a ttl_ms=~ owner=w");
    rig_pass(rig, 10010);
    rig_granted(rig, rig_op(rig, OP_RENEW), 5);
    rig_silent(rig, s);
}

SESSION_TEST(jeopardy_at_two_thirds)
{
    rig_lock(rig, s, "LOCK a", 5);
    rig_pass(rig, 19999);
    rig_silent(rig, s);
    rig_pass(rig, 3);
    rig_expect(rig, s, "* JEOPARDY a ttl_ms=~");
    /* After a loss the next hold begins well, and is warned of again. */
    rig_pass(rig, 10000);
    rig_expect(rig, s, "* LOST a fence=5 reason=backend");
    rig_say(rig, s, "LOCK a");
    rig_status(rig, rig_op(rig, OP_RENEW), OP_UNKNOWN);
    rig_status(rig, rig_op(rig, OP_RELEASE), OP_OK);
    rig_granted(rig, rig_op(rig, OP_ACQUIRE), 6);
    rig_expect(rig, s, "- OK fence=6 ttl_ms=~ count=1");
    rig_pass(rig, 20002);
    rig_expect(rig, s, "* JEOPARDY a ttl_ms=~");
    rig_granted(rig, rig_op(rig, OP_RENEW), 6);
    rig_expect(rig, s, "* SAFE a ttl_ms=~");
}

SESSION_TEST(renewal_says_gone)
{
    rig_lock(rig, s, "LOCK a owner=w", 5);
    rig_pass(rig, 10010);
    rig_status(rig, rig_op(rig, OP_RENEW), OP_GONE);
    rig_expect(rig, s, "* LOST a fence=5 reason=gone owner=w");
    rig_no_op(rig);
    rig_ask(rig, s, "UNLOCK a owner=w", "- ERR NOTHELD retry=0");
    /* A holder that only waits is one that lost it, too. */
    rig_lock(rig, s, "LOCK a", 6);
    rig_pass(rig, 10010);
    rig_status(rig, rig_op(rig, OP_RENEW), OP_WAITING);
    rig_expect(rig, s, "* LOST a fence=6 reason=gone");
    ck_assert_uint_eq(rig_count(rig, COUNTER_lost_gone), 2);
}

SESSION_TEST(late_renewal_after_unlock)
{
    rig_lock(rig, s, "LOCK a", 5);
    rig_pass(rig, 10010);
    struct op *renewal = rig_op(rig, OP_RENEW);
    rig_say(rig, s, "UNLOCK a");
    struct op *release = rig->ops[1];
    ck_assert_int_eq(release->kind, OP_RELEASE);
    rig_status(rig, release, OP_OK);
    rig_expect(rig, s, "- OK count=0");
    rig_status(rig, renewal, OP_GONE);
    rig_silent(rig, s);
    /* The answer for the hold before is nothing to this one. */
    rig_lock(rig, s, "LOCK a", 6);
    rig_pass(rig, 10010);
    struct op *first = rig_op(rig, OP_RENEW);
    rig_say(rig, s, "UNLOCK a");
    rig_say(rig, s, "LOCK a");
    rig_status(rig, rig->ops[1], OP_OK);
    rig_expect(rig, s, "- OK count=0");
    rig_granted(rig, rig->ops[1], 7);
    rig_expect(rig, s, "- OK fence=7 ttl_ms=~ count=1");
    rig_status(rig, first, OP_GONE);
    rig_silent(rig, s);
}

SESSION_TEST(unlock_of_unknown_outcome)
{
    rig_lock(rig, s, "1 LOCK a", 5);
    rig_say(rig, s, "2 UNLOCK a");
    rig_status(rig, rig_op(rig, OP_RELEASE), OP_UNKNOWN);
    rig_silent(rig, s);
    rig_no_op(rig);
    rig_pass(rig, 115);
    struct op *op = rig_op(rig, OP_RELEASE);
    ck_assert(op->retry);
    rig_status(rig, op, OP_GONE);
    rig_expect(rig, s, "2 OK count=0");
    /* Gone at the first answer, or after the deadline: that was not us. */
    rig_lock(rig, s, "3 LOCK a", 6);
    rig_say(rig, s, "4 UNLOCK a");
    rig_status(rig, rig_op(rig, OP_RELEASE), OP_GONE);
    rig_expect(rig, s, "4 ERR LOST retry=0");
    rig_lock(rig, s, "5 LOCK a", 7);
    rig_pass_us(rig, DEADLINE_US - SECOND_US);
    rig_expect(rig, s, "* JEOPARDY a ttl_ms=~");
    rig_status(rig, rig_op(rig, OP_RENEW), OP_UNKNOWN);
    rig_say(rig, s, "6 UNLOCK a");
    rig_status(rig, rig_op(rig, OP_RELEASE), OP_UNKNOWN);
    rig_pass(rig, 2000);
    rig_status(rig, rig_op(rig, OP_RELEASE), OP_GONE);
    rig_expect(rig, s, "6 ERR LOST retry=0");
}

SESSION_TEST(unlock_in_doubt)
{
    rig_lock(rig, s, "1 LOCK a", 5);
    uint64_t began_us = rig->now_us;
    rig_say(rig, s, "2 UNLOCK a");
    rig_say(rig, s, "3 UNLOCK a");
    rig_say(rig, s, "4 LOCK a");
    rig_pass(rig, 5000);
    rig_status(rig, rig_op(rig, OP_RELEASE), OP_UNSENT);
    rig_expect(rig, s, "2 ERR INDOUBT retry=1");
    rig_expect(rig, s, "3 ERR INDOUBT retry=1");
    rig_expect(rig, s, "4 ERR UNAVAILABLE retry=1");
    rig_silent(rig, s);
    rig_say(rig, s, "5 UNLOCK a");
    /* It goes on trying, until the lease is over in any case. */
    int tries = 0;
    for (; tries < 1000; tries++) {
        rig_pass(rig, 111);
        if (rig->op_count == 0)
            break;
        rig_status(
            rig, rig_op(rig, OP_RELEASE), tries % 2 ? OP_UNSENT : OP_UNKNOWN);
    }
    ck_assert_int_gt(tries, 200);
    ck_assert_uint_ge(rig->now_us - began_us, LEASE_US + 2 * SECOND_US);
    rig_expect(rig, s, "5 ERR INDOUBT retry=1");
    rig_ask(rig, s, "6 UNLOCK a", "6 ERR NOTHELD retry=0");
}

/* The lease is over before anybody's patience: not known is not "not held". */
RIG_TEST(unlock_outlives_its_lease, rig_create())
{
    rig->settings.lease_ms = 1000;
    rig_start(rig);
    unsigned s = rig_open(rig);
    rig_lock(rig, s, "1 LOCK a", 5);
    rig_say(rig, s, "2 UNLOCK a");
    uint64_t began_us = rig->now_us;
    while (rig->op_count > 0) {
        rig_silent(rig, s);
        rig_status(rig, rig_op(rig, OP_RELEASE), OP_UNSENT);
        rig_pass(rig, 300);
    }
    rig_expect(rig, s, "2 ERR INDOUBT retry=1");
    rig_silent(rig, s);
    ck_assert_uint_lt(rig->now_us - began_us, rig->settings.redis_timeout_us);
}

SESSION_TEST(unlock_refused)
{
    rig_lock(rig, s, "1 LOCK a", 5);
    rig_say(rig, s, "2 UNLOCK a");
    rig_status(rig, rig_op(rig, OP_RELEASE), OP_REFUSED);
    rig_expect(rig, s, "2 ERR INTERNAL retry=0");
    rig_no_op(rig);
    rig_pass(rig, 2300);
    rig_status(rig, rig_op(rig, OP_RELEASE), OP_REFUSED);
    rig_pass(rig, 2300);
    rig_status(rig, rig_op(rig, OP_RELEASE), OP_OK);
    rig_lock(rig, s, "5 LOCK a", 5);
    rig_say(rig, s, "6 UNLOCK a");
    rig_finish(rig, rig_op(rig, OP_RELEASE),
        (struct op_result){.status = OP_REFUSED, .senseless = true});
    rig_expect(rig, s, "6 ERR INTERNAL retry=0");
    rig_pass(rig, 2300);
    rig_no_op(rig);
    /* An answer that no release has still ends the request. */
    rig_lock(rig, s, "3 LOCK a", 6);
    rig_say(rig, s, "4 UNLOCK a");
    rig_status(rig, rig_op(rig, OP_RELEASE), OP_FULL);
    rig_expect(rig, s, "4 ERR NOTHELD retry=0");
}

SESSION_TEST(lease_shorter)
{
    rig_say(rig, s, "LOCK a lease=2s");
    struct op *op = rig_op(rig, OP_ACQUIRE);
    ck_assert_uint_eq(op->ask.hold_ms, 2000);
    rig_granted(rig, op, 5);
    rig_expect(rig, s, "- OK fence=5 ttl_ms=1978 count=1");
    rig_pass_us(rig, 2000000 - 22000 - 1);
    rig_silent(rig, s);
    rig_no_op(rig);
    rig_pass_us(rig, TICK_US);
    rig_expect(rig, s, "* LOST a fence=5 reason=expired");
    rig_no_op(rig);
    rig_pass_us(rig, 22000 + TICK_US);
    rig_op(rig, OP_RELEASE);
    ck_assert_uint_eq(rig_count(rig, COUNTER_lost_expired), 1);
    /* Shorter than what clocks may differ by: over at once. */
    rig_say(rig, s, "LOCK b lease=1");
    rig_granted(rig, rig->ops[1], 6);
    rig_text(rig, s, ":the lease was over when");
    rig_expect(rig, s, "- ERR INDOUBT retry=1");
    /* Another end for a hold, and it is over before the answer. */
    rig_lock(rig, s, "LOCK c", 7);
    rig_say(rig, s, "RENEW c lease=1");
    rig_pass(rig, 2);
    rig_expect(rig, s, "* LOST c fence=7 reason=expired");
    rig_expect(rig, s, "- ERR LOST retry=0");
}

/* Between the two ends of a lease the hold is in the owner's way, too. */
SESSION_TEST(lease_over_here)
{
    rig_lock(rig, s, "LOCK a lease=2s", 5);
    rig_pass(rig, 1990);
    rig_expect(rig, s, "* LOST a fence=5 reason=expired");
    rig_say(rig, s, "1 LOCK a wait=0");
    rig_text(rig, s, ":the lease of this owner's earlier hold lasts a little");
    rig_expect(rig, s, "1 ERR BUSY retry=1");
}

SESSION_TEST(lease_longer)
{
    rig_lock(rig, s, "LOCK a lease=70s", 5);
    uint64_t end_us = rig->now_us + 70 * (uint64_t)SECOND_US;
    unsigned renewals = 0;
    while (rig->now_us < end_us - 400000) {
        rig_pass(rig, 1);
        if (rig->op_count > 0) {
            struct op *op = rig_op(rig, OP_RENEW);
            ck_assert_uint_eq(op->hard_end_us, end_us);
            rig_granted(rig, op, 5);
            renewals++;
        }
    }
    ck_assert_uint_ge(renewals, 4);
    ck_assert_uint_le(renewals, 8);
    rig_silent(rig, s);
    rig_pass(rig, 400);
    rig_expect(rig, s, "* LOST a fence=5 reason=expired");
    rig_silent(rig, s);
    ck_assert_uint_eq(rig_count(rig, COUNTER_jeopardies), 0);
}

/* lease_ms of a HELD with one hold, from now on. */
static uint64_t
lease_told_us(struct rig *rig, unsigned s)
{
    rig_say(rig, s, "1 HELD");
    const char *pair = strstr(rig_line(rig, s), " lease_ms=");
    ck_assert(pair != NULL);
    uint64_t left_ms = strtoull(pair + strlen(" lease_ms="), NULL, 10);
    rig_expect(rig, s, "1 OK n=1");
    return rig->now_us + 1000 * left_ms;
}

static const unsigned lease_told_rows[] = {2, 25, 31, 70};

/* No lease_ms is more than was left until LOST, nor much less. */
SESSION_TEST(lease_told)
{
    char line[40];
    uint64_t lease_us = lease_told_rows[_i] * (uint64_t)SECOND_US;
    uint64_t latest_us = 0;

    snprintf(line, sizeof(line), "LOCK a lease=%us", lease_told_rows[_i]);
    rig_lock(rig, s, line, 5);
    uint64_t began_us = rig->now_us;
    ck_assert_uint_ge(
        lease_told_us(rig, s) - began_us, lease_us - lease_us / 99 - 400000);
    while (rig->sessions[s].written == 0) {
        uint64_t told_us = lease_told_us(rig, s);
        latest_us = told_us > latest_us ? told_us : latest_us;
        rig_pass(rig, 3);
        while (rig->op_count > 0 && rig->ops[0]->kind == OP_RENEW)
            rig_granted(rig, rig->ops[0], 5);
    }
    rig_expect(rig, s, "* LOST a fence=5 reason=expired");
    ck_assert_uint_le(latest_us, rig->now_us);
    ck_assert_uint_ge(latest_us + 5000, rig->now_us);
}

SESSION_TEST(renewed_told)
{
    rig_ask(rig, s, "1 HELD", "1 OK n=0");
    rig_say(rig, s, "2 LOCK a");
    rig_granted(rig, rig_op(rig, OP_ACQUIRE), 5);
    rig_expect(rig, s, "2 OK fence=5 ttl_ms=~ count=1 renewed=1");
    rig_ask(
        rig, s, "3 HELD", "3 ITEM name=a fence=5 ttl_ms=~ count=1 renewed=1");
    rig_expect(rig, s, "3 OK n=1");
    rig_say(rig, s, "4 LOCK b lease=10s");
    rig_granted(rig, rig_op(rig, OP_ACQUIRE), 6);
    rig_expect(rig, s, "4 OK fence=6 ttl_ms=9898 count=1 lease_ms=9898");
    rig_ask(rig, s, "5 LOCK b a",
        "5 OK fence=6,5 ttl_ms=9898 count=2 lease_ms=9898");
    rig_ask(rig, s, "6 LOCK a lease=9s",
        "6 OK fence=5 ttl_ms=~ count=3 renewed=1 ignored=lease");
    rig_say(rig, s, "7 LOCK c d");
    rig_granted(rig, rig_op(rig, OP_ACQUIRE), 7);
    rig_granted(rig, rig_op(rig, OP_ACQUIRE), 8);
    rig_expect(rig, s, "7 OK fence=7,8 ttl_ms=~ count=1 renewed=1");
}

SESSION_TEST(renew_longer)
{
    rig_lock(rig, s, "1 LOCK a lease=10s", 5);
    rig_ask(rig, s, "2 RENEW a lease=20s fence=6", "2 ERR STALE retry=0");
    rig_say(rig, s, "3 RENEW a lease=20s fence=5");
    rig_say(rig, s, "4 LOCK a");
    struct op *op = rig_op(rig, OP_RENEW);
    ck_assert(op->sets_end);
    ck_assert_uint_eq(op->hard_end_us, rig->now_us + 20 * SECOND_US);
    rig_silent(rig, s);
    rig_granted(rig, op, 5);
    rig_expect(rig, s, "3 OK ttl_ms=19798 lease_ms=19798");
    rig_expect(rig, s, "4 OK fence=5 ttl_ms=19798 count=2 lease_ms=19798");
    rig_pass(rig, 19790);
    rig_silent(rig, s);
    rig_pass(rig, 10);
    rig_expect(rig, s, "* LOST a fence=5 reason=expired");
}

/* Until the answer comes, and where it does not, the old end stands. */
SESSION_TEST(renew_longer_fails)
{
    rig_lock(rig, s, "1 LOCK a lease=10s", 5);
    rig_say(rig, s, "2 RENEW a lease=20s");
    rig_status(rig, rig_op(rig, OP_RENEW), OP_UNKNOWN);
    rig_expect(rig, s, "2 ERR INDOUBT retry=1");
    rig_say(rig, s, "3 RENEW a lease=20s");
    rig_status(rig, rig_op(rig, OP_RENEW), OP_UNSENT);
    rig_expect(rig, s, "3 ERR UNAVAILABLE retry=1");
    rig_no_op(rig);
    rig_say(rig, s, "4 RENEW a lease=20s");
    rig_pass(rig, 9890);
    rig_silent(rig, s);
    rig_pass(rig, 10);
    rig_expect(rig, s, "* LOST a fence=5 reason=expired");
    rig_expect(rig, s, "4 ERR LOST retry=0");
    rig_status(rig, rig_op(rig, OP_RENEW), OP_OK);
    rig_silent(rig, s);
    rig_pass(rig, 110);
    /* And where there is none any more, that is the answer. */
    rig_status(rig, rig_op(rig, OP_RELEASE), OP_OK);
    rig_lock(rig, s, "5 LOCK a lease=10s", 6);
    rig_say(rig, s, "6 RENEW a lease=20s");
    rig_status(rig, rig_op(rig, OP_RENEW), OP_GONE);
    rig_expect(rig, s, "* LOST a fence=6 reason=gone");
    rig_expect(rig, s, "6 ERR LOST retry=0");
}

/* A nearer end counts from the asking, whatever becomes of the answer. */
SESSION_TEST(renew_shorter)
{
    rig_lock(rig, s, "1 LOCK a lease=1h", 5);
    rig_say(rig, s, "2 RENEW a lease=1s");
    struct op *op = rig_op(rig, OP_RENEW);
    rig_granted(rig, op, 5);
    rig_expect(rig, s, "2 OK ttl_ms=988");
    rig_pass(rig, 980);
    rig_silent(rig, s);
    rig_pass(rig, 10);
    rig_expect(rig, s, "* LOST a fence=5 reason=expired");
    rig_pass(rig, 20);
    rig_status(rig, rig_op(rig, OP_RELEASE), OP_OK);
    rig_lock(rig, s, "3 LOCK a lease=1h", 6);
    rig_say(rig, s, "4 RENEW a lease=2s");
    uint64_t end_us = rig->now_us + 2 * SECOND_US;
    rig_status(rig, rig_op(rig, OP_RENEW), OP_UNKNOWN);
    rig_expect(rig, s, "4 ERR INDOUBT retry=1");
    rig_pass(rig, 120);
    op = rig_op(rig, OP_RENEW);
    ck_assert(!op->sets_end); /* the watchdog's */
    ck_assert_uint_eq(op->hard_end_us, end_us);
    rig_granted(rig, op, 6);
    rig_pass(rig, 1840);
    rig_silent(rig, s);
    rig_pass(rig, 30);
    rig_expect(rig, s, "* LOST a fence=6 reason=expired");
}

RIG_TEST(ttl_of_silence, rig_new())
{
    unsigned s = rig_open_tcp(rig);

    rig_ask(rig, s, "PING", "- OK");
    rig_say(rig, s, "LOCK a");
    rig_granted(rig, rig_op(rig, OP_ACQUIRE), 5);
    rig_expect(rig, s, "- OK fence=5 ttl_ms=11000 count=1");
    rig_say(rig, s, "HELLO heartbeat=2s");
    (void)rig_line(rig, s);
    rig_ask(rig, s, "PING", "- OK ttl_ms=6000");
    rig_lock(rig, s, "LOCK b lease=1s", 6);
    rig_wait(rig, s, "LOCK c");
    rig_ask(rig, s, "PING", "- OK ttl_ms=6000");
}

/* A lease that is said to be longer than any that was asked is not believed. */
SESSION_TEST(ttl_of_garbage)
{
    rig_say(rig, s, "LOCK a");
    rig_finish(rig, rig_op(rig, OP_ACQUIRE),
        (struct op_result){.status = OP_OK, .fence = 5, .ttl_ms = UINT32_MAX});
    rig_expect(rig, s, "- OK fence=5 ttl_ms=29698 count=1");
}

/* Redis has lost what it said before: the larger fence is right. */
SESSION_TEST(two_grants_of_one_lock)
{
    unsigned t = rig_open(rig);

    rig_lock(rig, s, "LOCK a", 5);
    rig_say(rig, t, "1 LOCK a");
    rig_granted(rig, rig_op(rig, OP_ACQUIRE), 4);
    rig_silent(rig, s);
    rig_expect(rig, t, "1 ERR INDOUBT retry=1");
    rig_status(rig, rig_op(rig, OP_RELEASE), OP_OK);
    rig_say(rig, t, "2 LOCK a");
    rig_granted(rig, rig_op(rig, OP_ACQUIRE), 6);
    rig_expect(rig, s, "* LOST a fence=5 reason=gone");
    rig_expect(rig, t, "2 OK fence=6 ttl_ms=~ count=1");
    rig_no_op(rig);
}

/* In the turn of the deadline nothing is left, whoever asks. */
SESSION_TEST(ping_after_the_deadline)
{
    rig_lock(rig, s, "LOCK a", 5);
    rig_stall(rig, 31000);
    rig_ask(rig, s, "PING", "- OK ttl_ms=0");
    rig_ask(rig, s, "UNLOCK a", "* LOST a fence=5 reason=backend");
    rig_expect(rig, s, "- ERR LOST retry=0");
}

SESSION_TEST(fence_seen_goes_along)
{
    rig_lock(rig, s, "LOCK a", 900);
    rig_say(rig, s, "UNLOCK a");
    struct op *op = rig_op(rig, OP_RELEASE);
    ck_assert_uint_eq(op->seen, 900);
    rig_status(rig, op, OP_OK);
    rig_expect(rig, s, "- OK count=0");
    rig_lock(rig, s, "LOCK a", 800);
    rig_say(rig, s, "UNLOCK a");
    ck_assert_uint_eq(rig_op(rig, OP_RELEASE)->seen, 900);
}

Suite *
core_hold_suite(void)
{
    Suite *suite = suite_create("core_hold");
    TCase *tests = tcase_create("core_hold");

    tcase_add_test(tests, grant_and_unlock);
    tcase_add_test(tests, unlock_answered_late);
    tcase_add_test(tests, reentry);
    tcase_add_test(tests, owners);
    tcase_add_test(tests, ignored);
    tcase_add_test(tests, note);
    tcase_add_loop_test(tests, note_later, 0, 2);
    tcase_add_test(tests, note_of_a_lost_hold);
    tcase_add_loop_test(tests, renew_gives_a_lease, 0, 2);
    tcase_add_test(tests, requests_in_order);
    tcase_add_test(tests, deadline_from_sending);
    tcase_add_test(tests, deadline_before_all_else);
    tcase_add_test(tests, renewal_at_a_third);
    tcase_add_test(tests, renewal_retried);
    tcase_add_test(tests, jeopardy_at_two_thirds);
    tcase_add_test(tests, renewal_says_gone);
    tcase_add_test(tests, late_renewal_after_unlock);
    tcase_add_test(tests, unlock_of_unknown_outcome);
    tcase_add_test(tests, unlock_in_doubt);
    tcase_add_test(tests, unlock_outlives_its_lease);
    tcase_add_test(tests, unlock_refused);
    tcase_add_test(tests, lease_shorter);
    tcase_add_test(tests, lease_over_here);
    tcase_add_test(tests, lease_longer);
    tcase_add_loop_test(tests, lease_told, 0, ROWS(lease_told_rows));
    tcase_add_test(tests, renewed_told);
    tcase_add_test(tests, renew_longer);
    tcase_add_test(tests, renew_longer_fails);
    tcase_add_test(tests, renew_shorter);
    tcase_add_test(tests, ttl_of_silence);
    tcase_add_test(tests, ttl_of_garbage);
    tcase_add_test(tests, two_grants_of_one_lock);
    tcase_add_test(tests, ping_after_the_deadline);
    tcase_add_test(tests, fence_seen_goes_along);
    suite_add_tcase(suite, tests);
    return suite;
}

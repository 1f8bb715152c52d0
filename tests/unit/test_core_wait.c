/*
 * Tests of daemon/core/model/ticket.c and lock.c: asking and waiting. Each end
 * of a wait, answers that come late or never, hints, refreshing.
 */
#include "daemon/op/op.h"
#include "tests/unit/core_rig.h"

#define TICK_US 1024u

Suite *core_wait_suite(void);

/* A release of ours reports the grant of a waiter of ours. */
static void
hand_over(struct rig *rig, struct op *release, const struct op_grant *grant)
{
    rig_finish(rig, release,
        (struct op_result){.status = OP_OK, .grants = grant, .grant_count = 1});
}

SESSION_TEST(wait_zero)
{
    rig_say(rig, s, "1 LOCK a wait=0");
    struct op *op = rig_op(rig, OP_ACQUIRE);
    ck_assert(op->no_queue);
    ck_assert_uint_eq(op->deadline_us, rig->now_us);
    rig_status(rig, op, OP_BUSY);
    rig_expect(rig, s, "1 ERR BUSY retry=1");
    rig_no_op(rig);
    rig_say(rig, s, "2 LOCK a wait=0");
    rig_status(rig, rig_op(rig, OP_ACQUIRE), OP_UNSENT);
    rig_expect(rig, s, "2 ERR UNAVAILABLE retry=1");
    rig_say(rig, s, "3 LOCK a wait=0");
    rig_status(rig, rig_op(rig, OP_ACQUIRE), OP_UNKNOWN);
    ck_assert_uint_eq(rig_op(rig, OP_ACQUIRE)->end_us, rig->now_us + 2000000);
    rig_pass(rig, 2000);
    rig_status(rig, rig_op(rig, OP_ACQUIRE), OP_UNKNOWN);
    rig_expect(rig, s, "3 ERR INDOUBT retry=1");
    rig_status(rig, rig_op(rig, OP_RELEASE), OP_GONE);
    rig_silent(rig, s);
}

/* wait=0 does not stand behind a wait of its own owner. */
SESSION_TEST(wait_zero_behind_a_wait)
{
    rig_say(rig, s, "1 LOCK a");
    rig_say(rig, s, "2 LOCK a wait=0");
    rig_silent(rig, s);
    rig_queued(rig, rig_op(rig, OP_ACQUIRE));
    rig_expect(rig, s, "2 ERR BUSY retry=1");
    rig_ask(rig, s, "3 LOCK a wait=0", "3 ERR BUSY retry=1");
    rig_silent(rig, s);
}

SESSION_TEST(limits_of_redis)
{
    rig_say(rig, s, "1 LOCK a");
    rig_status(rig, rig_op(rig, OP_ACQUIRE), OP_FULL);
    rig_expect(rig, s, "1 ERR LIMIT retry=1 limit=waiters");
    rig_no_op(rig);
    /* A failed LOCK may have left a ticket behind, and is released. */
    rig_say(rig, s, "2 LOCK a");
    rig_status(rig, rig_op(rig, OP_ACQUIRE), OP_REFUSED);
    rig_expect(rig, s, "2 ERR INTERNAL retry=0");
    struct op *op = rig_op(rig, OP_RELEASE);
    ck_assert(op->retry);
    rig_say(rig, s, "3 LOCK a"); /* waits for it no longer than for one */
    rig_status(rig, op, OP_REFUSED);
    rig_status(rig, rig_op(rig, OP_ACQUIRE), OP_GONE);
    rig_expect(rig, s, "3 ERR INTERNAL retry=0");
}

SESSION_TEST(wait_and_hand_over)
{
    unsigned t = rig_open(rig);

    rig_lock(rig, s, "LOCK a", 5);
    rig_say(rig, t, "LOCK a progress=1 wait=60s");
    struct op *op = rig_op(rig, OP_ACQUIRE);
    uint64_t request = op->request;
    rig_queued(rig, op);
    rig_expect(rig, t, "- QUEUED position=1");
    rig_pass(rig, 5000);
    uint64_t sent_us = rig->now_us;
    rig_say(rig, s, "UNLOCK a");
    op = rig_op(rig, OP_RELEASE);
    rig_pass(rig, 1000);
    hand_over(rig, op,
        &(struct op_grant){.request = request,
            .fence = 6,
            .arrival = 7,
            .ttl_ms = RIG_LEASE_MS,
            .place = 1});
    rig_expect(rig, s, "- OK count=0");
    rig_expect(rig, t, "- OK fence=6 ttl_ms=28698 count=1");
    rig_no_op(rig);
    rig_say(rig, t, "UNLOCK a");
    op = rig_op(rig, OP_RELEASE);
    ck_assert_uint_eq(op->arrival, 7);
    ck_assert_uint_eq(op->place, 1);
    ck_assert_uint_eq(op->fence, 6);
    ck_assert_uint_gt(rig->now_us, sent_us);
    /* A grant for one that is not there any more is nobody's. */
    hand_over(rig, op,
        &(struct op_grant){.request = 77, .fence = 7, .ttl_ms = 30000});
    rig_expect(rig, t, "- OK count=0");
    ck_assert_uint_eq(rig_count(rig, COUNTER_grants_handed_over), 1);
}

SESSION_TEST(wait_ends)
{
    /* Waiting: TIMEOUT, and the ticket is struck out. */
    rig_wait(rig, s, "1 LOCK a wait=2s");
    rig_pass(rig, 1999);
    rig_silent(rig, s);
    rig_pass(rig, 3);
    rig_expect(rig, s, "1 ERR TIMEOUT retry=1");
    rig_status(rig, rig_op(rig, OP_RELEASE), OP_OK);
    rig_silent(rig, s);
}

SESSION_TEST(wait_ends_while_asking)
{
    rig_say(rig, s, "1 LOCK a wait=1s");
    rig_pass(rig, 1500);
    rig_silent(rig, s);
    rig_queued(rig, rig_op(rig, OP_ACQUIRE));
    rig_status(rig, rig_op(rig, OP_RELEASE), OP_OK);
    rig_expect(rig, s, "1 ERR TIMEOUT retry=1");
    rig_say(rig, s, "2 LOCK a wait=1s");
    rig_pass(rig, 1500);
    rig_granted(rig, rig_op(rig, OP_ACQUIRE), 5);
    rig_expect(rig, s, "2 OK fence=5 ttl_ms=~ count=1");
    rig_say(rig, s, "3 LOCK b wait=1s");
    rig_pass(rig, 3000);
    rig_status(rig, rig_op(rig, OP_ACQUIRE), OP_UNKNOWN);
    rig_expect(rig, s, "3 ERR INDOUBT retry=1");
    rig_status(rig, rig_op(rig, OP_RELEASE), OP_OK);
    rig_say(rig, s, "4 LOCK b wait=1s");
    ck_assert_uint_eq(
        rig_op(rig, OP_ACQUIRE)->deadline_us, rig->now_us + SECOND_US);
    rig_pass(rig, 1000);
    rig_status(rig, rig_op(rig, OP_ACQUIRE), OP_UNSENT);
    rig_expect(rig, s, "4 ERR UNAVAILABLE retry=1");
    rig_silent(rig, s);
}

/* The requests behind the one that is being served. */
SESSION_TEST(wait_ends_behind)
{
    rig_say(rig, s, "1 LOCK a");
    rig_say(rig, s, "2 LOCK a wait=1s");
    rig_pass(rig, 1002);
    rig_expect(rig, s, "2 ERR UNAVAILABLE retry=1");
    rig_queued(rig, rig_op(rig, OP_ACQUIRE));
    rig_say(rig, s, "3 LOCK a wait=1s");
    rig_pass(rig, 1002);
    rig_expect(rig, s, "3 ERR TIMEOUT retry=1");
    rig_ask(rig, s, "4 CANCEL 1", "1 ERR CANCELLED retry=1");
    rig_expect(rig, s, "4 OK");
    rig_say(rig, s, "5 LOCK a wait=1s");
    rig_pass(rig, 1002);
    rig_expect(rig, s, "5 ERR UNAVAILABLE retry=1");
    rig_status(rig, rig_op(rig, OP_RELEASE), OP_OK);
    rig_silent(rig, s);
}

SESSION_TEST(cancel_in_each_state)
{
    /* Asking: the late grant is released. */
    rig_say(rig, s, "1 LOCK a");
    rig_ask(rig, s, "2 CANCEL 1", "2 OK");
    rig_say(rig, s, "3 LOCK a");
    rig_granted(rig, rig_op(rig, OP_ACQUIRE), 5);
    rig_silent(rig, s);
    struct op *op = rig_op(rig, OP_RELEASE);
    ck_assert_uint_eq(op->fence, 5);
    rig_status(rig, op, OP_OK);
    rig_expect(rig, s, "1 ERR CANCELLED retry=1");
    ck_assert_uint_eq(rig_count(rig, COUNTER_grants_unwanted), 1);
    rig_queued(rig, rig_op(rig, OP_ACQUIRE));
    /* Waiting: it leaves the queue. */
    rig_ask(rig, s, "4 CANCEL 3", "3 ERR CANCELLED retry=1");
    rig_expect(rig, s, "4 OK");
    rig_op(rig, OP_RELEASE);
    /* Leaving: only the request that waits for it. */
    rig_say(rig, s, "5 LOCK a");
    rig_ask(rig, s, "6 CANCEL 5", "5 ERR CANCELLED retry=1");
    rig_expect(rig, s, "6 OK");
    ck_assert_uint_eq(rig->op_count, 1);
    rig_status(rig, rig_op(rig, OP_RELEASE), OP_OK);
    rig_no_op(rig);
    /* Held: there is nothing to cancel. */
    rig_lock(rig, s, "7 LOCK a", 6);
    rig_ask(rig, s, "8 CANCEL 7", "8 ERR BADREQ retry=0");
    rig_say(rig, s, "9 UNLOCK a");
    rig_ask(rig, s, "10 CANCEL 9", "10 ERR BADREQ retry=0");
    rig_status(rig, rig_op(rig, OP_RELEASE), OP_OK);
    rig_expect(rig, s, "9 OK count=0");
}

/* A cancelled question whose answer is anything but a grant. */
/* A renewal that waits for Redis longer than the release would bring back what
 * that has struck out. */
SESSION_TEST(no_renewal_outlives_it)
{
    rig_say(rig, s, "1 LOCK a");
    struct op *op = rig_op(rig, OP_ACQUIRE);
    uint64_t request = op->request;
    rig_queued(rig, op);
    rig_hint(rig, request);
    op = rig_op(rig, OP_RENEW);
    ck_assert(!op->unwanted);
    rig_say(rig, s, "2 CANCEL 1");
    ck_assert(op->unwanted);
    rig_status(rig, op, OP_UNSENT);
    op = rig_op(rig, OP_RELEASE);
    ck_assert(!op->unwanted);
    rig_status(rig, op, OP_OK);
    rig_expect(rig, s, "1 ERR CANCELLED retry=1");
    rig_expect(rig, s, "2 OK");
}

SESSION_TEST(cancel_then_any_answer)
{
    static const enum op_status answers[] = {OP_WAITING, OP_BUSY, OP_FULL,
        OP_GONE, OP_UNSENT, OP_UNKNOWN, OP_REFUSED};

    for (size_t i = 0; i < sizeof(answers) / sizeof(answers[0]); i++) {
        rig_say(rig, s, "1 LOCK a");
        rig_say(rig, s, "2 CANCEL 1");
        rig_ask(rig, s, "3 UNLOCK a", "2 OK");
        rig_status(rig, rig_op(rig, OP_ACQUIRE), answers[i]);
        if (rig->op_count > 0) {
            rig_silent(rig, s);
            rig_status(rig, rig_op(rig, OP_RELEASE), OP_OK);
        }
        rig_expect(rig, s, "1 ERR CANCELLED retry=1");
        rig_expect(rig, s, "3 ERR NOTHELD retry=0");
        rig_no_op(rig);
    }
}

SESSION_TEST(unknown_is_asked_again)
{
    rig_say(rig, s, "1 LOCK a");
    struct op *op = rig_op(rig, OP_ACQUIRE);
    uint64_t request = op->request;
    uint64_t deadline_us = op->deadline_us;
    rig_pass(rig, 1000);
    rig_status(rig, op, OP_UNKNOWN);
    rig_silent(rig, s);
    op = rig_op(rig, OP_ACQUIRE);
    ck_assert(op->retry);
    ck_assert_uint_eq(op->request, request);
    ck_assert_uint_eq(op->deadline_us, deadline_us);
    rig_pass(rig, 1000);
    rig_granted(rig, op, 5);
    rig_expect(rig, s, "1 OK fence=5 ttl_ms=28698 count=1");
    ck_assert_uint_eq(rig_count(rig, COUNTER_outcomes_resolved), 1);
    /* With a patience that ends: in doubt, and released. */
    rig_say(rig, s, "2 LOCK b");
    rig_pass(rig, 3000);
    rig_status(rig, rig_op(rig, OP_ACQUIRE), OP_UNKNOWN);
    rig_pass(rig, 4000);
    rig_silent(rig, s);
    rig_status(rig, rig_op(rig, OP_ACQUIRE), OP_UNKNOWN);
    rig_expect(rig, s, "2 ERR INDOUBT retry=1");
    op = rig_op(rig, OP_RELEASE);
    ck_assert(op->retry);
    ck_assert_uint_eq(op->fence, 0);
    rig_status(rig, op, OP_GONE);
    /* Not to be reached after that. */
    rig_say(rig, s, "3 LOCK b");
    rig_status(rig, rig_op(rig, OP_ACQUIRE), OP_UNKNOWN);
    rig_status(rig, rig_op(rig, OP_ACQUIRE), OP_UNSENT);
    rig_expect(rig, s, "3 ERR INDOUBT retry=1");
    rig_status(rig, rig_op(rig, OP_RELEASE), OP_OK);
    /* In the queue after all; busy after all. */
    rig_say(rig, s, "4 LOCK b");
    rig_status(rig, rig_op(rig, OP_ACQUIRE), OP_UNKNOWN);
    rig_queued(rig, rig_op(rig, OP_ACQUIRE));
    rig_say(rig, s, "5 LOCK c");
    rig_status(rig, rig_op(rig, OP_ACQUIRE), OP_UNKNOWN);
    rig_status(rig, rig_op(rig, OP_ACQUIRE), OP_BUSY);
    rig_expect(rig, s, "5 ERR BUSY retry=1");
    rig_silent(rig, s);
}

/* A grant in a lost answer ends a lease after the first question, less the
 * drift of clocks. A grant that a waiter did not hear of ends a lease after
 * Redis last said that it waits. */
SESSION_TEST(unheard_grant_is_over)
{
    rig_say(rig, s, "1 LOCK a");
    uint64_t over_us = rig->now_us + 30000000 - 302000;
    rig_pass(rig, 1000);
    rig_status(rig, rig_op(rig, OP_ACQUIRE), OP_UNKNOWN);
    struct op *op = rig_op(rig, OP_ACQUIRE);
    ck_assert_uint_eq(op->over_us, over_us);
    rig_pass(rig, 1000);
    rig_status(rig, op, OP_UNKNOWN);
    op = rig_op(rig, OP_ACQUIRE);
    ck_assert_uint_eq(op->over_us, over_us);
    rig_queued(rig, op);
    rig_pass(rig, 10000);
    op = rig_op(rig, OP_RENEW);
    ck_assert_uint_eq(op->over_us, over_us + 2000000);
    rig_granted(rig, op, 5);
    rig_expect(rig, s, "1 OK fence=5 ttl_ms=29618 count=1");
    /* A hold that is known is not among these. */
    rig_pass(rig, 10000);
    op = rig_op(rig, OP_RENEW);
    ck_assert_uint_eq(op->over_us, WHEEL_NEVER);
    rig_granted(rig, op, 5);
}

/* A grant that is over when it is told of is no grant. */
SESSION_TEST(grant_that_is_over)
{
    rig_say(rig, s, "1 LOCK a");
    rig_pass(rig, 31000);
    rig_granted(rig, rig_op(rig, OP_ACQUIRE), 5);
    rig_expect(rig, s, "1 ERR INDOUBT retry=1");
    rig_status(rig, rig_op(rig, OP_RELEASE), OP_GONE);
    rig_silent(rig, s);
}

SESSION_TEST(hints)
{
    /* While it waits: claimed at once. */
    rig_say(rig, s, "1 LOCK a");
    struct op *op = rig_op(rig, OP_ACQUIRE);
    uint64_t request = op->request;
    rig_queued(rig, op);
    rig_hint(rig, request);
    op = rig_op(rig, OP_RENEW);
    ck_assert_uint_eq(op->request, request);
    ck_assert_uint_eq(op->fence, 0);
    ck_assert_uint_eq(op->arrival, 7);
    rig_hint(rig, request);
    ck_assert_uint_eq(rig->op_count, 1);
    uint64_t sent_us = rig->now_us;
    rig_pass(rig, 2000);
    rig_granted(rig, op, 5);
    rig_expect(rig, s, "1 OK fence=5 ttl_ms=27698 count=1");
    ck_assert_uint_eq(rig->now_us, sent_us + 2 * SECOND_US);
    ck_assert_uint_eq(rig_count(rig, COUNTER_grants_claimed), 1);
    /* Before the answer that it waits. */
    rig_say(rig, s, "2 LOCK b");
    op = rig_op(rig, OP_ACQUIRE);
    rig_hint(rig, op->request);
    rig_queued(rig, op);
    op = rig_op(rig, OP_RENEW);
    /* While it was asked after already: asked again. */
    rig_hint(rig, op->request);
    rig_queued(rig, op);
    op = rig_op(rig, OP_RENEW);
    rig_granted(rig, op, 6);
    rig_expect(rig, s, "2 OK fence=6 ttl_ms=~ count=1");
    /* For an ended request: nothing. */
    rig_hint(rig, 12345);
    rig_no_op(rig);
}

/* A release of ours grants a ticket whose own question is under way. */
SESSION_TEST(grant_by_the_way_while_asking)
{
    unsigned t = rig_open(rig);

    rig_lock(rig, s, "1 LOCK a", 5);
    rig_say(rig, t, "1 LOCK a");
    rig_say(rig, s, "2 UNLOCK a");
    struct op *acquire = rig_op(rig, OP_ACQUIRE);
    hand_over(rig, rig->ops[1],
        &(struct op_grant){
            .request = acquire->request, .fence = 6, .ttl_ms = 30000});
    rig_expect(rig, s, "2 OK count=0");
    rig_silent(rig, t);
    rig_queued(rig, acquire);
    rig_granted(rig, rig_op(rig, OP_RENEW), 6);
    rig_expect(rig, t, "1 OK fence=6 ttl_ms=~ count=1");
}

/* Or that renews its place. A renewal that was sent as overdue may end the
 * grant: only its answer tells. */
SESSION_TEST(grant_by_the_way_while_renewing)
{
    bool late = _i;
    unsigned t = rig_open(rig);

    rig_lock(rig, s, "1 LOCK a", 5);
    rig_say(rig, t, "1 LOCK a");
    uint64_t request = rig_op(rig, OP_ACQUIRE)->request;
    rig_queued(rig, rig_op(rig, OP_ACQUIRE));
    rig_hint(rig, request);
    struct op *renew = rig_op(rig, OP_RENEW);
    renew->overdue = late > 0;
    rig_say(rig, s, "2 UNLOCK a");
    hand_over(rig, rig->ops[1],
        &(struct op_grant){.request = request, .fence = 6, .ttl_ms = 30000});
    rig_expect(rig, s, "2 OK count=0");
    if (late > 0) {
        rig_silent(rig, t);
        rig_status(rig, renew, OP_GONE);
        rig_granted(rig, rig_op(rig, OP_ACQUIRE), 7);
    } else {
        ck_assert_uint_eq(renew->over_us, WHEEL_NEVER);
    }
    rig_expect(rig, t,
        late > 0 ? "1 OK fence=7 ttl_ms=~ count=1"
                 : "1 OK fence=6 ttl_ms=~ count=1");
}

SESSION_TEST(refresh_of_a_wait)
{
    rig_wait(rig, s, "1 LOCK a");
    for (int i = 0; i < 20; i++) {
        uint64_t since_us = rig->now_us;
        while (rig->op_count == 0)
            rig_pass(rig, 1);
        ck_assert_uint_ge(rig->now_us - since_us, 9000000);
        ck_assert_uint_le(rig->now_us - since_us, 10002000 + TICK_US);
        rig_queued(rig, rig_op(rig, OP_RENEW));
    }
    rig_silent(rig, s);
}

/* If redis.patience is longer than a lease, a wait lasts as long. A Redis that
 * is back by then is asked after the ticket. */
RIG_TEST(wait_unheard_is_patient, rig_create())
{
    rig->settings.redis_timeout_us = 40 * SECOND_US;
    rig_start(rig);
    unsigned s = rig_open(rig);
    rig_wait(rig, s, "1 LOCK a");
    rig_pass(rig, 38000);
    rig_status(rig, rig_op(rig, OP_RENEW), OP_UNKNOWN);
    rig_pass(rig, 225);
    rig_status(rig, rig_op(rig, OP_RENEW), OP_GONE);
    rig_queued(rig, rig_op(rig, OP_ACQUIRE));
    rig_pass(rig, 41000);
    rig_status(rig, rig_op(rig, OP_RENEW), OP_UNSENT);
    rig_expect(rig, s, "1 ERR UNAVAILABLE retry=1");
    rig_status(rig, rig_op(rig, OP_RELEASE), OP_GONE);
}

/* Unheard for one lease, a ticket may have gone from the queue. */
SESSION_TEST(wait_unheard)
{
    static const enum op_status errors[] = {
        OP_UNSENT, OP_UNKNOWN, OP_REFUSED, OP_BUSY, OP_FULL};

    unsigned t = rig_open(rig);

    rig_wait(rig, s, "1 LOCK a");
    uint64_t heard_us = rig->now_us;
    rig_pass(rig, 10010);
    for (unsigned i = 0; rig_op(rig, OP_RENEW); i++) {
        rig_status(rig, rig_op(rig, OP_RENEW), errors[i % 5]);
        if (rig->op_count > 0)
            break;
        rig_pass(rig, 225);
    }
    rig_expect(rig, s, "1 ERR UNAVAILABLE retry=1");
    ck_assert_uint_ge(rig->now_us - heard_us, 30 * SECOND_US);
    ck_assert_uint_le(rig->now_us - heard_us, 31 * SECOND_US);
    rig_status(rig, rig_op(rig, OP_RELEASE), OP_GONE);
    /* wait= that ends in such a time: nobody is known to hold it. */
    rig_wait(rig, t, "1 LOCK b wait=12s");
    rig_pass(rig, 10010);
    rig_status(rig, rig_op(rig, OP_RENEW), OP_UNSENT);
    rig_pass(rig, 2000);
    rig_expect(rig, t, "1 ERR UNAVAILABLE retry=1");
}

SESSION_TEST(requeued_after_gone)
{
    rig_say(rig, s, "1 LOCK a progress=1 wait=60s");
    struct op *op = rig_op(rig, OP_ACQUIRE);
    uint64_t request = op->request;
    rig_queued(rig, op);
    rig_expect(rig, s, "1 QUEUED position=1");
    rig_pass(rig, 10010);
    rig_status(rig, rig_op(rig, OP_RENEW), OP_GONE);
    op = rig_op(rig, OP_ACQUIRE);
    ck_assert(!op->retry);
    ck_assert_uint_ne(op->request, request);
    rig_hint(rig, request);
    rig_queued(rig, op);
    rig_expect(rig, s, "1 QUEUED position=1");
    rig_no_op(rig);
    /* And where the wait is over by then, that is the end of it. */
    rig_pass(rig, 10010);
    op = rig_op(rig, OP_RENEW);
    rig_stall(rig, 50000);
    rig_status(rig, op, OP_GONE);
    rig_expect(rig, s, "1 ERR TIMEOUT retry=1");
    rig_no_op(rig);
    ck_assert_uint_eq(rig_count(rig, COUNTER_waits_requeued), 2);
}

/* When the holder's lease may be over, one of many waiters asks. */
RIG_TEST(first_waiter_asks, rig_new())
{
    unsigned s[5];
    uint64_t first = 0;

    for (unsigned i = 0; i < 5; i++) {
        s[i] = rig_open(rig);
        rig_say(rig, s[i], "LOCK a");
        struct op *op = rig_op(rig, OP_ACQUIRE);
        first = i == 0 ? op->request : first;
        rig_finish(rig, op,
            (struct op_result){
                .status = OP_WAITING, .arrival = i + 1, .again_ms = 1000});
    }
    rig_pass(rig, 1019);
    rig_no_op(rig);
    rig_pass(rig, 55);
    struct op *op = rig_op(rig, OP_RENEW);
    ck_assert_uint_eq(rig->op_count, 1);
    ck_assert_uint_eq(op->request, first);
    /* It leaves before the answer: the next one asks soon. */
    rig_event(rig, s[0], CORE_DROP);
    rig_status(rig, rig->ops[1], OP_OK);
    rig_queued(rig, op);
    rig_pass(rig, 110);
    op = rig_op(rig, OP_RENEW);
    ck_assert_uint_eq(rig->op_count, 1);
    ck_assert_uint_ne(op->request, first);
    rig_granted(rig, op, 5);
    rig_expect(rig, s[1], "- OK fence=5 ttl_ms=~ count=1");
}

SESSION_TEST(look_after_a_hand_over)
{
    rig_lock(rig, s, "LOCK a", 5);
    rig_say(rig, s, "UNLOCK a");
    rig_finish(rig, rig_op(rig, OP_RELEASE),
        (struct op_result){.status = OP_OK, .handed = true});
    rig_expect(rig, s, "- OK count=0");
    rig_pass(rig, CORE_EXPIRY_MS);
    rig_no_op(rig);
    rig_pass(rig, 55);
    struct op *op = rig_op(rig, OP_LOOK);
    rig_finish(rig, op, (struct op_result){.status = OP_OK, .again_ms = 3000});
    rig_pass(rig, 3000);
    rig_no_op(rig);
    rig_pass(rig, 25);
    rig_status(rig, rig_op(rig, OP_LOOK), OP_OK);
    rig_pass(rig, 60000);
    rig_no_op(rig);
}

/* A lost answer to a release may have been a grant to one of ours. */
SESSION_TEST(unknown_release_refreshes)
{
    unsigned t = rig_open(rig);
    unsigned u = rig_open(rig);

    rig_lock(rig, s, "LOCK a", 5);
    rig_wait(rig, t, "LOCK a");
    rig_wait(rig, u, "LOCK a");
    rig_say(rig, s, "UNLOCK a");
    rig_status(rig, rig_op(rig, OP_RELEASE), OP_UNKNOWN);
    rig_pass(rig, 1);
    ck_assert_uint_eq(rig->op_count, 2);
    rig_granted(rig, rig_op(rig, OP_RENEW), 6);
    rig_expect(rig, t, "- OK fence=6 ttl_ms=~ count=1");
    rig_queued(rig, rig_op(rig, OP_RENEW));
    rig_silent(rig, u);
}

SESSION_TEST(unheard_refreshes_all)
{
    struct core_event event = {.kind = CORE_UNHEARD};

    rig_lock(rig, rig_open(rig), "LOCK a", 5);
    rig_wait(rig, s, "LOCK b deadlock=0");
    rig_wait(rig, s, "LOCK c deadlock=0");
    rig_say(rig, s, "LOCK d");
    rig_step(rig, &event);
    rig_pass(rig, 502);
    ck_assert_uint_eq(rig->op_count, 3);
    rig_op(rig, OP_ACQUIRE);
    ck_assert_int_eq(rig->ops[1]->kind, OP_RENEW);
    ck_assert_int_eq(rig->ops[2]->kind, OP_RENEW);
}

/* It was handed to another broker, which may be gone: that is looked after,
 * also where something else was to be asked sooner. */
SESSION_TEST(handed_and_asked_sooner)
{
    unsigned t = rig_open(rig);

    rig_lock(rig, s, "1 LOCK a", 5);
    rig_say(rig, t, "1 LOCK a");
    rig_finish(rig, rig_op(rig, OP_ACQUIRE),
        (struct op_result){
            .status = OP_WAITING, .arrival = 9, .again_ms = 1000});
    rig_say(rig, s, "2 UNLOCK a");
    rig_finish(rig, rig_op(rig, OP_RELEASE),
        (struct op_result){.status = OP_OK, .handed = true});
    rig_expect(rig, s, "2 OK count=0");
    rig_pass(rig, 1200);
    for (int i = 0; i < 2; i++) {
        rig_finish(rig, rig_op(rig, OP_RENEW),
            (struct op_result){
                .status = OP_WAITING, .arrival = 9, .again_ms = 36000000});
        rig_no_op(rig);
        rig_pass(rig, 900);
    }
    rig_no_op(rig); /* once is enough */
}

Suite *
core_wait_suite(void)
{
    Suite *suite = suite_create("core_wait");
    TCase *tests = tcase_create("core_wait");

    tcase_add_test(tests, wait_zero);
    tcase_add_test(tests, wait_zero_behind_a_wait);
    tcase_add_test(tests, limits_of_redis);
    tcase_add_test(tests, wait_and_hand_over);
    tcase_add_test(tests, wait_ends);
    tcase_add_test(tests, wait_ends_while_asking);
    tcase_add_test(tests, wait_ends_behind);
    tcase_add_test(tests, cancel_in_each_state);
    tcase_add_test(tests, no_renewal_outlives_it);
    tcase_add_test(tests, cancel_then_any_answer);
    tcase_add_test(tests, unknown_is_asked_again);
    tcase_add_test(tests, unheard_grant_is_over);
    tcase_add_test(tests, grant_that_is_over);
    tcase_add_test(tests, hints);
    tcase_add_test(tests, grant_by_the_way_while_asking);
    tcase_add_loop_test(tests, grant_by_the_way_while_renewing, 0, 2);
    tcase_add_test(tests, refresh_of_a_wait);
    tcase_add_test(tests, wait_unheard_is_patient);
    tcase_add_test(tests, wait_unheard);
    tcase_add_test(tests, requeued_after_gone);
    tcase_add_test(tests, first_waiter_asks);
    tcase_add_test(tests, look_after_a_hand_over);
    tcase_add_test(tests, unknown_release_refreshes);
    tcase_add_test(tests, unheard_refreshes_all);
    tcase_add_test(tests, handed_and_asked_sooner);
    suite_add_tcase(suite, tests);
    return suite;
}

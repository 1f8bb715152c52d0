/*
 * Tests of daemon/core after Redis has lost tickets: holds and waits that are
 * put again (OP_RECLAIM), whatever happens meanwhile. And replies of a broker
 * that is not settled with a node.
 */
#include "tests/unit/core_rig.h"

#include "daemon/core/model/state.h"
#include "daemon/op/op.h"

#include <stdio.h>
#include <string.h>

#define LEASE_US         ((uint64_t)RIG_LEASE_MS * 1000)
#define DEADLINE_US      (LEASE_US - RIG_MARGIN_US)
#define REDIS_TIMEOUT_US (5 * (uint64_t)SECOND_US)
#define AGAIN_MS         36000000u
/* Of hold and wait, within a tick of the wheel: when it is tried again. */
#define RETRY_MS 112u

Suite *core_reclaim_suite(void);

/* Each operation's ticket and words are there. */
static void
check_shown(struct rig *rig)
{
    for (uint32_t i = 0; i < rig->op_count; i++) {
        const struct op *op = rig->ops[i];
        if (op->kind != OP_ACQUIRE && op->kind != OP_RECLAIM)
            continue;
        const struct ticket *ticket = slab_get(&rig->core->tickets, op->owner);
        ck_assert_msg(ticket != NULL, "kind %d of nobody's", (int)op->kind);
        ck_assert(op->words[0].at == ticket->owner);
        ck_assert(op->words[1].at == ticket->client);
        ck_assert(op->words[2].at == ticket->note);
    }
}

static unsigned
ops_of_kind(struct rig *rig, enum op_kind kind)
{
    unsigned count = 0;

    check_shown(rig);
    for (uint32_t i = 0; i < rig->op_count; i++)
        count += rig->ops[i]->kind == kind;
    return count;
}

static struct op *
op_of_kind(struct rig *rig, enum op_kind kind)
{
    check_shown(rig);
    for (uint32_t i = 0; i < rig->op_count; i++)
        if (rig->ops[i]->kind == kind)
            return rig->ops[i];
    ck_abort_msg("no operation of kind %d", (int)kind);
    return NULL;
}

/* The only one that is under way. */
static struct op *
sole_op(struct rig *rig, enum op_kind kind)
{
    check_shown(rig);
    struct op *op = rig_op(rig, kind);
    ck_assert_uint_eq(rig->op_count, 1);
    return op;
}

/* Nothing but looks at locks is under way. */
static void
nothing_more(struct rig *rig)
{
    while (rig->op_count > 0)
        rig_status(rig, rig_op(rig, OP_LOOK), OP_OK);
}

/* Another connection of the session takes it over. */
static unsigned
resume(struct rig *rig, unsigned from, unsigned generation)
{
    unsigned to = rig_open(rig);

    rig_resume(rig, from, to, generation, " keep=10s");
    rig_expect(rig, to, "- OK session=~ proto=1 server=~ keep_ms=10000 gen=~");
    return to;
}

/* The broker's renewal of the one hold; Redis has lost it. */
static struct op *
lose_hold(struct rig *rig)
{
    rig_pass(rig, 10100);
    rig_status(rig, sole_op(rig, OP_RENEW), OP_MISSING);
    return sole_op(rig, OP_RECLAIM);
}

/* `a` with fence 5, which is being put again. */
static struct op *
losing(struct rig *rig, unsigned session)
{
    rig_lock(rig, session, "1 LOCK a", 5);
    return lose_hold(rig);
}

/* A place in the queue for `a`, which is being put again. */
static struct op *
losing_place(struct rig *rig, unsigned session, const char *request)
{
    rig_wait(rig, session, request);
    rig_pass(rig, 10100);
    rig_status(rig, sole_op(rig, OP_RENEW), OP_MISSING);
    return sole_op(rig, OP_RECLAIM);
}

/* An answer that so much of the lease is left. */
static void
finish_hold(struct rig *rig, struct op *op, uint64_t sent_us, uint64_t ttl_ms)
{
    rig_finish(rig, op,
        (struct op_result){.status = OP_OK,
            .fence = op->fence,
            .arrival = op->arrival,
            .place = 4,
            .sent_us = sent_us,
            .ttl_ms = (uint32_t)ttl_ms});
}

static void
finish_put_again(struct rig *rig)
{
    struct op *op = op_of_kind(rig, OP_RECLAIM);

    finish_hold(rig, op, rig->now_us, RIG_LEASE_MS);
}

/* The answer: it waits; nobody is granted anything for so long. */
static void
finish_unsettled(struct rig *rig, struct op *op, uint32_t again_ms)
{
    rig_finish(rig, op,
        (struct op_result){.status = OP_WAITING,
            .arrival = 7,
            .unsettled = true,
            .again_ms = again_ms});
}

/* It is struck out once, after the answer to the reclaim and not before. */
static void
one_release_after(struct rig *rig, enum op_status status, bool unclean)
{
    rig_pass(rig, 300);
    ck_assert_uint_eq(ops_of_kind(rig, OP_RELEASE), 0);
    ck_assert_uint_eq(ops_of_kind(rig, OP_RENEW), 0);
    ck_assert_uint_eq(ops_of_kind(rig, OP_RECLAIM), 1);
    struct op *op = op_of_kind(rig, OP_RECLAIM);
    struct handle owner = op->owner;
    rig_status(rig, op, status);
    ck_assert_uint_eq(ops_of_kind(rig, OP_RELEASE), 1);
    op = op_of_kind(rig, OP_RELEASE);
    ck_assert(handle_equal(op->owner, owner));
    ck_assert_int_eq(op->unclean, unclean);
    rig_status(rig, op, OP_OK);
    ck_assert_uint_eq(ops_of_kind(rig, OP_RELEASE), 0);
    ck_assert_uint_eq(ops_of_kind(rig, OP_RECLAIM), 0);
}

static const enum op_status ends[] = {
    OP_OK, OP_GONE, OP_BROKEN, OP_MOVED, OP_UNSENT, OP_UNKNOWN, OP_REFUSED};

#define END_COUNT ROWS(ends)

/* --- holds ---------------------------------------------------------------- */

/* All that the record had of it is said again. */
SESSION_TEST(put_again)
{
    rig_say(rig, s, "HELLO name=stock");
    (void)rig_line(rig, s);
    rig_say(rig, s, "LOCK a owner=w note=n1 limit=5 permits=2 delay=700");
    struct op *op = rig_op(rig, OP_ACQUIRE);
    uint64_t request = op->request;
    rig_finish(rig, op,
        (struct op_result){.status = OP_OK,
            .fence = 5,
            .arrival = 70,
            .place = 3,
            .ttl_ms = RIG_LEASE_MS});
    rig_expect(rig, s, "- OK fence=5 ttl_ms=~ count=1");
    op = lose_hold(rig);
    ck_assert_uint_eq(op->arrival, 70);
    ck_assert_uint_eq(op->place, 3);
    ck_assert_uint_eq(op->fence, 5);
    ck_assert_uint_eq(op->request, request);
    ck_assert_uint_eq(op->lease_ms, RIG_LEASE_MS);
    ck_assert(op->hard_end_us == WHEEL_NEVER);
    ck_assert_uint_eq(op->deadline_us, rig->now_us + REDIS_TIMEOUT_US);
    ck_assert(op->ask.mode == MODE_EXCLUSIVE && op->ask.delay_ms == 700);
    ck_assert(op->ask.permits == 2 && op->ask.permits_max == 5);
    ck_assert(text_equal(op->words[0], TEXT("w")));
    ck_assert(text_equal(op->words[1], TEXT("stock")));
    ck_assert(text_equal(op->words[2], TEXT("n1")));
    ck_assert_uint_eq(rig_count(rig, COUNTER_reclaims), 1);
    rig_silent(rig, s);
    rig_pass(rig, 2000);
    ck_assert(sole_op(rig, OP_RECLAIM) == op);
}

/* Its answer is a renewal's: the deadline counts from its sending. */
SESSION_TEST(put_again_and_held)
{
    struct op *op = losing(rig, s);
    uint64_t sent_us = rig->now_us;

    rig_pass(rig, 400);
    finish_hold(rig, op, sent_us, RIG_LEASE_MS);
    rig_no_op(rig);
    rig_silent(rig, s);
    rig_ask(rig, s, "2 HELD", "2 ITEM name=a fence=5 ttl_ms=29298 count=1");
    rig_expect(rig, s, "2 OK n=1");
    /* The next renewal is of the lease that began so. */
    rig_pass_us(rig, sent_us + LEASE_US / 3 - LEASE_US / 30 - rig->now_us);
    rig_no_op(rig);
    rig_pass_us(rig, LEASE_US / 30 + 2048);
    op = sole_op(rig, OP_RENEW);
    ck_assert_uint_eq(op->fence, 5);
    ck_assert_uint_eq(op->place, 4);
    /* And what was lost may be so again. */
    rig_status(rig, op, OP_MISSING);
    rig_status(rig, sole_op(rig, OP_RECLAIM), OP_UNKNOWN);
    rig_pass_us(rig, sent_us + DEADLINE_US - rig->now_us - 2000);
    rig_expect(rig, s, "* JEOPARDY a ttl_ms=~");
    rig_silent(rig, s);
    rig_pass(rig, 4);
    rig_expect(rig, s, "* LOST a fence=5 reason=backend");
    ck_assert_uint_eq(rig_count(rig, COUNTER_renewals), 1);
}

/* Nobody asks past the deadline; and who was warned is told of the end. */
SESSION_TEST(put_again_late)
{
    uint64_t began_us = rig->now_us;

    rig_lock(rig, s, "1 LOCK a", 5);
    rig_pass(rig, 26000);
    rig_expect(rig, s, "* JEOPARDY a ttl_ms=~");
    rig_status(rig, sole_op(rig, OP_RENEW), OP_MISSING);
    struct op *op = sole_op(rig, OP_RECLAIM);
    ck_assert_uint_eq(op->deadline_us, began_us + DEADLINE_US);
    finish_hold(rig, op, rig->now_us, RIG_LEASE_MS);
    rig_expect(rig, s, "* SAFE a ttl_ms=29698");
    rig_silent(rig, s);
    rig_no_op(rig);
}

/* The end that lease= has set stays where it is. */
SESSION_TEST(put_again_with_an_end)
{
    uint64_t began_us = rig->now_us;

    rig_lock(rig, s, "LOCK a lease=40s", 5);
    struct op *op = lose_hold(rig);
    ck_assert_uint_eq(op->hard_end_us, began_us + 40 * SECOND_US);
    finish_hold(rig, op, rig->now_us, (op->hard_end_us - rig->now_us) / 1000);
    rig_pass_us(rig, began_us + 39 * SECOND_US - rig->now_us);
    rig_silent(rig, s);
    rig_pass(rig, 1000);
    rig_expect(rig, s, "* LOST a fence=5 reason=expired");
}

static const enum op_status not_put_again_rows[] = {
    OP_GONE, OP_WAITING, OP_MOVED, OP_BROKEN};

/* Redis says that it is over. */
SESSION_TEST(not_put_again)
{
    enum op_status status = not_put_again_rows[_i];
    bool broken = status == OP_BROKEN;
    struct op *op = losing(rig, s);
    rig_status(rig, op, status);
    rig_expect(rig, s,
        broken ? "* LOST a fence=5 reason=broken"
               : "* LOST a fence=5 reason=gone");
    rig_silent(rig, s);
    ck_assert_uint_eq(ops_of_kind(rig, OP_RELEASE), broken);
    if (broken)
        rig_status(rig, sole_op(rig, OP_RELEASE), OP_OK);
    rig_no_op(rig);
    rig_ask(rig, s, "2 UNLOCK a", "2 ERR NOTHELD retry=0");
    rig_lock(rig, s, "3 LOCK a", 9);
}

static const enum op_status tried_again_rows[] = {
    OP_UNSENT, OP_UNKNOWN, OP_REFUSED, OP_UNSETTLED, OP_FULL};

/* No answer, or none that says anything: it is asked about again soon. */
SESSION_TEST(tried_again)
{
    struct op *op = losing(rig, s);
    rig_status(rig, op, tried_again_rows[_i]);
    rig_no_op(rig);
    ck_assert_uint_eq(rig_count(rig, COUNTER_renewals_failed), 1);
    rig_pass(rig, RETRY_MS);
    rig_status(rig, sole_op(rig, OP_RENEW), OP_MISSING);
    finish_put_again(rig);
    rig_silent(rig, s);
    rig_no_op(rig);
    rig_say(rig, s, "2 UNLOCK a");
    rig_status(rig, sole_op(rig, OP_RELEASE), OP_OK);
    rig_expect(rig, s, "2 OK count=0");
}

/* The deadline comes first: whatever the answer then is, it is released. */
SESSION_TEST(deadline_meanwhile)
{
    (void)losing(rig, s);
    rig_pass(rig, 19700);
    rig_expect(rig, s, "* JEOPARDY a ttl_ms=~");
    rig_expect(rig, s, "* LOST a fence=5 reason=backend");
    rig_silent(rig, s);
    one_release_after(rig, ends[_i], true);
    rig_no_op(rig);
}

/* Nothing stirs for longer than the lease, and it is still waited for. */
SESSION_TEST(answer_after_all)
{
    (void)losing(rig, s);
    rig_event(rig, s, CORE_DROP);
    rig_pass(rig, 100000);
    one_release_after(rig, OP_UNSENT, true);
}

/* A RENEW has its turn after the answer, and is not undone by it. */
SESSION_TEST(renewed_meanwhile)
{
    rig_lock(rig, s, "LOCK a lease=40s", 5);
    (void)lose_hold(rig);
    rig_say(rig, s, "1 RENEW a lease=50s");
    rig_say(rig, s, "2 RENEW a fence=4 lease=50s");
    rig_silent(rig, s);
    finish_put_again(rig);
    struct op *op = sole_op(rig, OP_RENEW);
    ck_assert(op->sets_end);
    ck_assert_uint_eq(op->hard_end_us, rig->now_us + 50 * SECOND_US);
    rig_granted(rig, op, 5);
    rig_expect(rig, s, "1 OK ttl_ms=29698");
    rig_expect(rig, s, "2 ERR STALE retry=0");
}

/* The same, and the connection ends. */
SESSION_TEST(renewed_meanwhile_and_gone)
{
    rig_lock(rig, s, "LOCK a lease=40s", 5);
    (void)lose_hold(rig);
    rig_say(rig, s, "1 RENEW a lease=50s");
    rig_event(rig, s, CORE_DROP);
    one_release_after(rig, ends[_i], true);
    rig_no_op(rig);
}

static const struct lost_row {
    enum op_status status;
    const char *reply;
} renew_finds_it_lost_rows[] = {
    {OP_OK, "1 OK ttl_ms=29698"},
    {OP_GONE, "1 ERR LOST retry=0"},
    {OP_BROKEN, "1 ERR LOST retry=0"},
    {OP_UNSENT, "1 ERR UNAVAILABLE retry=1"},
    {OP_UNKNOWN, "1 ERR INDOUBT retry=1"},
};

/* A RENEW finds that it is lost: it is put again with the end that was asked
 * for, or the RENEW learns why not. */
SESSION_TEST(renew_finds_it_lost)
{
    const struct lost_row *row = &renew_finds_it_lost_rows[_i / 2];
    bool nearer = _i % 2 == 1;
    uint64_t end_us = rig->now_us + (nearer ? 60 : 120) * SECOND_US;
    rig_lock(rig, s, "LOCK a lease=90s", 5);
    rig_say(rig, s, nearer ? "1 RENEW a lease=60s" : "1 RENEW a lease=120s");
    rig_status(rig, sole_op(rig, OP_RENEW), OP_MISSING);
    struct op *op = sole_op(rig, OP_RECLAIM);
    ck_assert_uint_eq(op->hard_end_us, end_us);
    rig_silent(rig, s);
    if (row->status == OP_OK)
        finish_put_again(rig);
    else
        rig_status(rig, op, row->status);
    if (row->reply[2] == 'E' && row->reply[6] == 'L')
        rig_expect(rig, s, "* LOST a fence=5 reason=~");
    rig_expect(rig, s, row->reply);
    if (row->status == OP_OK) {
        rig_pass(rig, 10100);
        ck_assert_uint_eq(sole_op(rig, OP_RENEW)->hard_end_us, end_us);
    }
}

/* All names are had, and the lease= of the one that is put again begins. */
SESSION_TEST(lease_begins_meanwhile)
{
    rig_say(rig, s, "1 LOCK a b lease=40s");
    rig_granted(rig, sole_op(rig, OP_ACQUIRE), 5);
    rig_queued(rig, sole_op(rig, OP_ACQUIRE));
    rig_pass(rig, 8900);
    while (ops_of_kind(rig, OP_RENEW) < 2)
        rig_pass(rig, 100);
    for (int i = 0; i < 2; i++) {
        struct op *op = op_of_kind(rig, OP_RENEW);
        if (op->fence == 5)
            rig_status(rig, op, OP_MISSING);
        else
            rig_granted(rig, op, 6);
    }
    rig_expect(rig, s, "1 OK fence=5,6 ttl_ms=~ count=1");
    uint64_t end_us = rig->now_us + 40 * SECOND_US;
    rig_granted(rig, op_of_kind(rig, OP_RENEW), 6);
    ck_assert_uint_eq(ops_of_kind(rig, OP_RENEW), 0);
    ck_assert(op_of_kind(rig, OP_RECLAIM)->hard_end_us == WHEEL_NEVER);
    finish_put_again(rig);
    while (rig->now_us < end_us - SECOND_US) {
        rig_pass(rig, 100);
        while (ops_of_kind(rig, OP_RENEW) > 0) {
            struct op *op = op_of_kind(rig, OP_RENEW);
            rig_granted(rig, op, op->fence);
        }
    }
    rig_silent(rig, s);
    rig_pass_us(rig, end_us - rig->now_us);
    rig_expect(rig, s, "* LOST ~ fence=~ reason=expired");
    rig_expect(rig, s, "* LOST ~ fence=~ reason=expired");
}

/* Requests that need no word of Redis are answered at once. */
SESSION_TEST(reentered_meanwhile)
{
    (void)losing(rig, s);
    rig_ask(rig, s, "2 LOCK a wait=0", "2 OK fence=5 ttl_ms=~ count=2");
    rig_ask(rig, s, "3 LOCK a limit=3", "3 ERR CONFLICT retry=0");
    rig_ask(rig, s, "4 UNLOCK a", "4 OK count=1");
    (void)sole_op(rig, OP_RECLAIM);
    finish_put_again(rig);
    rig_no_op(rig);
    rig_silent(rig, s);
}

/* A downgrade waits for the answer, and may find the hold lost. */
SESSION_TEST(shared_meanwhile)
{
    bool gone = _i;
    struct op *op = losing(rig, s);
    rig_say(rig, s, "2 LOCK a mode=shared");
    rig_silent(rig, s);
    ck_assert(sole_op(rig, OP_RECLAIM)->ask.mode == MODE_EXCLUSIVE);
    if (gone) {
        rig_status(rig, op, OP_GONE);
        rig_expect(rig, s, "* LOST a fence=5 reason=gone");
        ck_assert(sole_op(rig, OP_ACQUIRE)->ask.mode == MODE_SHARED);
        rig_granted(rig, sole_op(rig, OP_ACQUIRE), 6);
        rig_expect(rig, s, "2 OK fence=6 ttl_ms=~ count=1");
    } else {
        finish_put_again(rig);
        ck_assert(sole_op(rig, OP_RENEW)->shares);
        rig_granted(rig, sole_op(rig, OP_RENEW), 5);
        rig_expect(rig, s, "2 OK fence=5 ttl_ms=~ count=2");
    }
}

/* It is known to be shared from the question on: so it is put again. */
SESSION_TEST(sharing_finds_it_lost)
{
    rig_lock(rig, s, "1 LOCK a", 5);
    rig_say(rig, s, "2 LOCK a mode=shared");
    rig_status(rig, sole_op(rig, OP_RENEW), OP_MISSING);
    ck_assert(sole_op(rig, OP_RECLAIM)->ask.mode == MODE_SHARED);
    finish_put_again(rig);
    rig_expect(rig, s, "2 OK fence=5 ttl_ms=~ count=2");
    rig_no_op(rig);
}

/* The hold of one that is away is put again, and claimed while it is. */
RIG_TEST(claimed_meanwhile, rig_new())
{
    bool gone = _i;
    unsigned s = rig_open_kept(rig);
    struct op *op = losing(rig, s);
    rig_event(rig, s, CORE_DROP);
    unsigned t = resume(rig, s, 2);
    rig_say(rig, t, "1 CLAIM a fence=5");
    rig_silent(rig, t);
    (void)sole_op(rig, OP_RECLAIM);
    rig_pass(rig, 300);
    if (gone)
        rig_status(rig, op, OP_GONE);
    else
        finish_put_again(rig);
    op = sole_op(rig, OP_RENEW);
    ck_assert(op->moves);
    ck_assert_uint_eq(op->generation, 2);
    ck_assert_uint_eq(op->fence, 5);
    if (gone)
        rig_status(rig, op, OP_GONE);
    else
        rig_granted(rig, op, 5);
    rig_expect(
        rig, t, gone ? "1 ERR LOST retry=0" : "1 OK fence=5 ttl_ms=~ count=1");
    rig_no_op(rig);
}

/* Or a LOCK follows. The hold may have been given back at another broker, and
 * the fences of later grants are lost: it is released first. */
RIG_TEST(locked_when_put_again, rig_new())
{
    unsigned s = rig_open_kept(rig);

    (void)losing(rig, s);
    rig_event(rig, s, CORE_DROP);
    finish_put_again(rig);
    unsigned t = resume(rig, s, 2);
    rig_say(rig, t, "1 LOCK a");
    rig_status(rig, sole_op(rig, OP_RELEASE), OP_OK);
    rig_granted(rig, sole_op(rig, OP_ACQUIRE), 6);
    rig_expect(rig, t, "1 OK fence=6 ttl_ms=~ count=1");
}

/* That of another broker is asked for when this one is out of the way. */
RIG_TEST(claimed_with_a_larger_fence, rig_new())
{
    unsigned s = rig_open_kept(rig);

    (void)losing(rig, s);
    rig_event(rig, s, CORE_DROP);
    unsigned t = resume(rig, s, 3);
    rig_say(rig, t, "1 CLAIM a fence=8");
    (void)sole_op(rig, OP_RECLAIM);
    finish_put_again(rig);
    struct op *op = sole_op(rig, OP_RENEW);
    ck_assert_uint_eq(op->fence, 8);
    rig_granted(rig, op, 8);
    rig_expect(rig, t, "1 OK fence=8 ttl_ms=~ count=1");
}

/* The CLAIM itself finds that it is lost: as this generation's it is back. */
RIG_TEST(claim_finds_it_lost, rig_new())
{
    unsigned s = rig_open_kept(rig);

    rig_lock(rig, s, "1 LOCK a", 5);
    rig_event(rig, s, CORE_DROP);
    unsigned t = resume(rig, s, 2);
    rig_say(rig, t, "1 CLAIM a fence=5 count=3");
    rig_status(rig, sole_op(rig, OP_RENEW), OP_MISSING);
    struct op *op = sole_op(rig, OP_RECLAIM);
    ck_assert_uint_eq(op->generation, 2);
    ck_assert_uint_eq(op->fence, 5);
    rig_silent(rig, t);
    finish_put_again(rig);
    rig_expect(rig, t, "1 OK fence=5 ttl_ms=~ count=3");
    rig_no_op(rig);
}

/* A hold of which this broker knows nothing is not put anywhere by it. */
SESSION_TEST(claim_of_the_unknown)
{
    rig_say(rig, s, "HELLO resume=0123456789abcdef0123456789abcdef gen=2");
    (void)rig_line(rig, s);
    rig_say(rig, s, "1 CLAIM a fence=5");
    rig_finish(rig, sole_op(rig, OP_RENEW),
        (struct op_result){.status = OP_MISSING, .again_ms = 700});
    rig_expect(
        rig, s, "1 ERR UNAVAILABLE retry=1 reason=settling after_ms=701");
    ck_assert_uint_eq(rig_count(rig, COUNTER_refused_unavailable), 1);
    rig_no_op(rig);
    rig_say(rig, s, "2 CLAIM a fence=5");
    rig_granted(rig, sole_op(rig, OP_RENEW), 5);
    rig_expect(rig, s, "2 OK fence=5 ttl_ms=~ count=1");
}

/* A client that did not hear of the end may still believe in its hold. The hold
 * is not released before that is over, though the answer was there sooner. */
SESSION_TEST(claimed_and_over_meanwhile)
{
    rig_say(rig, s, "HELLO resume=0123456789abcdef0123456789abcdef gen=2");
    (void)rig_line(rig, s);
    rig_say(rig, s, "1 CLAIM a fence=5");
    rig_pass(rig, 100);
    rig_finish(rig, sole_op(rig, OP_RENEW),
        (struct op_result){
            .status = OP_OK, .fence = 5, .ttl_ms = 600, .ask = {.permits = 1}});
    rig_expect(rig, s, "1 OK fence=5 ttl_ms=492 count=1");
    rig_pass(rig, 110);
    rig_status(rig, sole_op(rig, OP_RENEW), OP_MISSING);
    rig_pass(rig, 383);
    rig_expect(rig, s, "* JEOPARDY a ttl_ms=~");
    rig_expect(rig, s, "* LOST a fence=5 reason=backend");
    rig_status(rig, sole_op(rig, OP_RECLAIM), OP_GONE);
    rig_pass(rig, 105);
    rig_no_op(rig);
    rig_pass(rig, 4);
    ck_assert(sole_op(rig, OP_RELEASE)->unclean);
}

static const struct unlocked_meanwhile_row {
    enum op_status put;
    enum op_status release;
    const char *reply;
} unlocked_meanwhile_rows[] = {
    {OP_OK, OP_OK, "2 OK count=0"},
    {OP_OK, OP_GONE, "2 ERR LOST retry=0"},
    {OP_GONE, OP_GONE, "2 ERR LOST retry=0"},
    {OP_UNKNOWN, OP_OK, "2 OK count=0"},
    {OP_UNKNOWN, OP_GONE, "2 ERR LOST retry=0"},
    {OP_UNKNOWN, OP_MISSING, "2 OK count=0"},
    {OP_UNSENT, OP_MISSING, "2 OK count=0"},
};

/* UNLOCK waits for the answer; then it is struck out, and nobody knows more. */
SESSION_TEST(unlocked_meanwhile)
{
    const struct unlocked_meanwhile_row *row = &unlocked_meanwhile_rows[_i];
    struct op *op = losing(rig, s);
    rig_say(rig, s, "2 UNLOCK a");
    rig_say(rig, s, "3 LOCK a");
    rig_silent(rig, s);
    ck_assert(sole_op(rig, OP_RECLAIM) == op);
    rig_status(rig, op, row->put);
    rig_silent(rig, s);
    op = sole_op(rig, OP_RELEASE);
    ck_assert(op->fence == 5 && !op->unclean);
    rig_status(rig, op, row->release);
    rig_expect(rig, s, row->reply);
    rig_granted(rig, sole_op(rig, OP_ACQUIRE), 6);
    rig_expect(rig, s, "3 OK fence=6 ttl_ms=~ count=1");
}

/* Somebody else has its number by now, and it got another one: it is struck out
 * by that, or whatever it has where the answer is lost. */
SESSION_TEST(given_back_under_another_number)
{
    bool waits = _i / 2 == 1;
    bool lost = _i % 2 == 1;
    struct op *op = waits ? losing_place(rig, s, "1 LOCK a") : losing(rig, s);
    uint64_t arrival = op->arrival + 9;
    rig_say(rig, s, waits ? "2 CANCEL 1" : "2 UNLOCK a");
    if (waits)
        rig_expect(rig, s, "1 ERR CANCELLED retry=1");
    rig_finish(rig, op,
        (struct op_result){.status = lost    ? OP_UNKNOWN
                                     : waits ? OP_WAITING
                                             : OP_OK,
            .fence = waits || lost ? 0 : 5,
            .arrival = lost ? 0 : arrival,
            .place = 2});
    op = sole_op(rig, OP_RELEASE);
    ck_assert_uint_eq(op->arrival, lost ? 0 : arrival);
    ck_assert_uint_eq(op->fence, waits ? 0 : 5);
    rig_status(rig, op, OP_OK);
    rig_expect(rig, s, waits ? "2 OK" : "2 OK count=0");
    nothing_more(rig);
    /* And so in the next history. */
    struct core_event event = {.kind = CORE_CHANGED};
    rig_step(rig, &event);
    rig_pass(rig, 2);
    ck_assert_uint_eq(sole_op(rig, OP_RELEASE)->arrival, lost ? 0 : arrival);
}

/* After an answer that is lost it is looked for whatever its number is, until
 * that is known; it is put again with the one that it had. */
SESSION_TEST(number_in_doubt)
{
    bool waits = _i;
    struct op *op = waits ? losing_place(rig, s, "1 LOCK a") : losing(rig, s);
    uint64_t arrival = op->arrival;
    ck_assert_uint_gt(arrival, 0);
    rig_status(rig, op, OP_UNKNOWN);
    rig_pass(rig, 2 * RETRY_MS);
    op = sole_op(rig, OP_RENEW);
    ck_assert_uint_eq(op->arrival, 0);
    rig_status(rig, op, OP_MISSING);
    op = sole_op(rig, OP_RECLAIM);
    ck_assert_uint_eq(op->arrival, arrival);
    rig_status(rig, op, OP_UNKNOWN);
    rig_pass(rig, 2 * RETRY_MS);
    rig_finish(rig, sole_op(rig, OP_RENEW),
        (struct op_result){.status = waits ? OP_WAITING : OP_OK,
            .fence = waits ? 0 : 5,
            .arrival = arrival + 9,
            .again_ms = waits ? AGAIN_MS : 0,
            .sent_us = rig->now_us,
            .ttl_ms = RIG_LEASE_MS});
    rig_say(rig, s, waits ? "2 CANCEL 1" : "2 UNLOCK a");
    ck_assert_uint_eq(sole_op(rig, OP_RELEASE)->arrival, arrival + 9);
}

/* The reclaim may have taken over what an earlier connection holds, of another
 * kind. A renewal would find that, and call it the lock that was asked for. */
RIG_TEST(earlier_hold_in_doubt, rig_new())
{
    unsigned s = resume(rig, rig_open_kept(rig), 2);
    struct op *op = losing_place(rig, s, "1 LOCK a");

    rig_status(rig, op, OP_UNKNOWN);
    rig_pass(rig, 2 * RETRY_MS);
    rig_status(rig, sole_op(rig, OP_RECLAIM), OP_GONE);
    rig_status(rig, sole_op(rig, OP_ACQUIRE), OP_CONFLICT);
    rig_expect(rig, s, "1 ERR CONFLICT retry=0");
}

/* Neither the release nor what is behind it waits for longer than it may. */
SESSION_TEST(unlocked_and_never_answered)
{
    struct op *op = losing(rig, s);

    rig_say(rig, s, "2 UNLOCK a");
    rig_say(rig, s, "3 LOCK a wait=0");
    uint64_t end_us = op->deadline_us;
    rig_pass_us(rig, end_us - rig->now_us);
    rig_status(rig, op, OP_UNSENT);
    rig_status(rig, sole_op(rig, OP_RELEASE), OP_UNSENT);
    rig_expect(rig, s, "2 ERR INDOUBT retry=1");
    rig_expect(rig, s, "3 ERR UNAVAILABLE retry=1");
    ck_assert_uint_le(
        end_us, 1000 * (uint64_t)SECOND_US + 10100 * 1000 + REDIS_TIMEOUT_US);
}

/* A LOCK behind a RENEW that waits for the answer can be called off. */
SESSION_TEST(cancelled_meanwhile)
{
    (void)losing(rig, s);
    rig_say(rig, s, "2 LOCK a mode=shared");
    rig_say(rig, s, "3 LOCK a mode=shared wait=500");
    rig_ask(rig, s, "4 CANCEL 2", "2 ERR CANCELLED retry=1");
    rig_expect(rig, s, "4 OK");
    rig_pass(rig, 510);
    rig_expect(rig, s, "3 ERR UNAVAILABLE retry=1");
    (void)sole_op(rig, OP_RECLAIM);
    finish_put_again(rig);
    rig_no_op(rig);
    rig_say(rig, s, "5 UNLOCK a");
    rig_status(rig, sole_op(rig, OP_RELEASE), OP_OK);
    rig_expect(rig, s, "5 OK count=0");
}

enum how {
    HOW_DROP,
    HOW_EOF,
    HOW_QUIT,
    HOW_KILL,
    HOW_COUNT,
};

static void
end_session(struct rig *rig, unsigned session, unsigned other, enum how how)
{
    if (how == HOW_DROP)
        rig_event(rig, session, CORE_DROP);
    else if (how == HOW_EOF)
        rig_event(rig, session, CORE_EOF);
    else if (how == HOW_QUIT)
        rig_say(rig, session, "QUIT");
    else
        rig_kill(rig, other, session);
}

/* The session ends: its hold is given back after the answer. */
RIG_TEST(ended_meanwhile, rig_new())
{
    bool keeps = _i % 2 == 1;
    enum how how = (enum how)(_i / 2 % HOW_COUNT);
    unsigned s = keeps ? rig_open_kept(rig) : rig_open(rig);
    unsigned t = rig_open(rig);
    (void)losing(rig, s);
    end_session(rig, s, t, how);
    if (!keeps || how == HOW_QUIT || how == HOW_KILL)
        one_release_after(rig, ends[_i / 2 / HOW_COUNT], how != HOW_QUIT);
}

/* A kept hold stands. It goes when no connection has claimed it, and not before
 * it has been put again. */
RIG_TEST(kept_meanwhile, rig_new())
{
    unsigned s = rig_open_kept(rig);
    (void)losing(rig, s);
    rig_event(rig, s, CORE_DROP);
    if (_i < END_COUNT) {
        rig_pass(rig, 10100);
        one_release_after(rig, ends[_i], true);
    } else {
        finish_put_again(rig);
        rig_no_op(rig);
        rig_pass(rig, 9900);
        ck_assert_uint_eq(ops_of_kind(rig, OP_RELEASE), 0);
        rig_pass(rig, 300);
        ck_assert_uint_eq(ops_of_kind(rig, OP_RELEASE), 1);
    }
}

/* One that is away is killed. */
RIG_TEST(killed_away_meanwhile, rig_new())
{
    unsigned s = rig_open_kept(rig);
    unsigned t = rig_open(rig);

    (void)losing(rig, s);
    rig_event(rig, s, CORE_DROP);
    end_session(rig, s, t, HOW_KILL);
    rig_expect(rig, t, "- OK");
    one_release_after(rig, OP_OK, true);
}

/* The broker goes, and the client goes on elsewhere: nothing is given back, and
 * what the question shows stays until it is answered. */
RIG_TEST(forgotten_meanwhile, rig_new())
{
    unsigned s = rig_open_kept(rig);
    unsigned t = rig_open(rig);
    rig_say(rig, s, "HELLO name=client keep=10s");
    (void)rig_line(rig, s);
    if (_i % 2)
        (void)losing_place(rig, s, "1 LOCK a note=here");
    else {
        rig_lock(rig, s, "1 LOCK a note=here", 5);
        (void)lose_hold(rig);
    }
    rig_lock(rig, t, "1 LOCK b", 6);
    rig_stop(rig);
    rig_event(rig, s, CORE_DROP);
    struct op *op = op_of_kind(rig, OP_RECLAIM);
    ck_assert(text_equal(op->words[1], TEXT("client")));
    ck_assert(text_equal(op->words[2], TEXT("here")));
    rig_status(rig, op, ends[_i / 2]);
    ck_assert_uint_eq(ops_of_kind(rig, OP_RELEASE), 0);
    ck_assert_uint_eq(ops_of_kind(rig, OP_RECLAIM), 0);
}

/* An operator takes it away. */
SESSION_TEST(broken_meanwhile)
{
    struct op *op = losing(rig, s);

    rig_broken(rig, op->request, 5);
    rig_expect(rig, s, "* LOST a fence=5 reason=broken");
    rig_ask(rig, s, "2 UNLOCK a", "2 ERR LOST retry=0");
    one_release_after(rig, OP_BROKEN, true);
    rig_silent(rig, s);
    rig_no_op(rig);
}

/* Redis has granted it to another ticket of ours: the later fence is right, and
 * what may yet be put again is struck out. */
SESSION_TEST(displaced_meanwhile)
{
    unsigned t = rig_open(rig);
    (void)losing(rig, s);
    rig_say(rig, t, "1 LOCK a");
    rig_granted(rig, op_of_kind(rig, OP_ACQUIRE), 9);
    rig_expect(rig, s, "* LOST a fence=5 reason=gone");
    rig_expect(rig, t, "1 OK fence=9 ttl_ms=~ count=1");
    rig_ask(rig, s, "2 UNLOCK a", "2 ERR LOST retry=0");
    one_release_after(rig, ends[_i], true);
    rig_no_op(rig);
}

/* Of a hold that was lost while it was put again nothing is left behind. */
SESSION_TEST(lost_and_locked_again)
{
    (void)losing(rig, s);
    rig_pass(rig, 19700);
    rig_expect(rig, s, "* JEOPARDY a ttl_ms=~");
    rig_expect(rig, s, "* LOST a fence=5 reason=backend");
    rig_say(rig, s, "1 LOCK a");
    rig_silent(rig, s);
    one_release_after(rig, OP_OK, true);
    rig_granted(rig, sole_op(rig, OP_ACQUIRE), 6);
    rig_expect(rig, s, "1 OK fence=6 ttl_ms=~ count=1");
    rig_pass(rig, 10100);
    rig_say(rig, s, "2 UNLOCK a");
    rig_granted(rig, rig_op(rig, OP_RENEW), 6);
    rig_status(rig, sole_op(rig, OP_RELEASE), OP_OK);
    rig_expect(rig, s, "2 OK count=0");
}

/* --- waits ---------------------------------------------------------------- */

/* A place in the queue is put again where it was. */
SESSION_TEST(place_put_again)
{
    rig_say(rig, s, "HELLO name=stock");
    (void)rig_line(rig, s);
    rig_say(rig, s, "1 LOCK a owner=w note=n1 mode=shared progress=1");
    uint64_t request = sole_op(rig, OP_ACQUIRE)->request;
    rig_finish(rig, rig_op(rig, OP_ACQUIRE),
        (struct op_result){.status = OP_WAITING,
            .arrival = 70,
            .place = 3,
            .ahead = 2,
            .again_ms = AGAIN_MS});
    rig_expect(rig, s, "1 QUEUED position=2");
    rig_pass(rig, 10100);
    rig_status(rig, sole_op(rig, OP_RENEW), OP_MISSING);
    struct op *op = sole_op(rig, OP_RECLAIM);
    ck_assert_uint_eq(op->arrival, 70);
    ck_assert_uint_eq(op->place, 3);
    ck_assert_uint_eq(op->fence, 0);
    ck_assert_uint_eq(op->request, request);
    ck_assert(op->ask.mode == MODE_SHARED && op->ask.permits == 1);
    ck_assert(op->hard_end_us == WHEEL_NEVER);
    ck_assert_uint_eq(op->deadline_us, rig->now_us + REDIS_TIMEOUT_US);
    ck_assert(text_equal(op->words[0], TEXT("w")));
    ck_assert(text_equal(op->words[1], TEXT("stock")));
    ck_assert(text_equal(op->words[2], TEXT("n1")));
    ck_assert_uint_eq(rig_count(rig, COUNTER_reclaims), 1);
    rig_finish(rig, op,
        (struct op_result){.status = OP_WAITING,
            .arrival = 70,
            .place = 1,
            .ahead = 1,
            .again_ms = AGAIN_MS});
    rig_no_op(rig);
    rig_silent(rig, s);
    ck_assert_uint_eq(rig_count(rig, COUNTER_waits_begun), 1);
    rig_pass(rig, 10100);
    op = sole_op(rig, OP_RENEW);
    ck_assert(op->place == 1 && op->arrival == 70);
    rig_granted(rig, op, 9);
    rig_expect(rig, s, "1 OK fence=9 ttl_ms=~ count=1");
}

/* A lease= counts from the grant, and waits have none. */
SESSION_TEST(granted_when_put_again)
{
    struct op *op = losing_place(rig, s, "1 LOCK a lease=7s");
    uint64_t sent_us = rig->now_us;

    ck_assert(op->hard_end_us == WHEEL_NEVER && op->ask.hold_ms == 7000);
    rig_pass(rig, 300);
    rig_finish(rig, op,
        (struct op_result){.status = OP_OK,
            .fence = 9,
            .arrival = 7,
            .sent_us = sent_us,
            .ttl_ms = 7000});
    rig_expect(rig, s, "1 OK fence=9 ttl_ms=6628 count=1");
    rig_no_op(rig);
    rig_say(rig, s, "2 UNLOCK a");
    rig_status(rig, sole_op(rig, OP_RELEASE), OP_OK);
    rig_expect(rig, s, "2 OK count=0");
}

static const enum op_status place_lost_rows[] = {OP_GONE, OP_MOVED};

/* There is no such place: it stands at the end, by a new question. */
SESSION_TEST(place_lost)
{
    struct op *op = losing_place(rig, s, "1 LOCK a");
    uint64_t request = op->request;
    rig_status(rig, op, place_lost_rows[_i]);
    op = sole_op(rig, OP_ACQUIRE);
    ck_assert(op->arrival == 0 && op->moves && !op->retry);
    ck_assert_uint_ne(op->request, request);
    ck_assert_uint_eq(rig_count(rig, COUNTER_waits_requeued), 1);
    rig_silent(rig, s);
    rig_granted(rig, op, 6);
    rig_expect(rig, s, "1 OK fence=6 ttl_ms=~ count=1");
}

/* It was granted and taken away unheard: that goes first. */
SESSION_TEST(place_broken)
{
    struct op *op = losing_place(rig, s, "1 LOCK a");

    rig_status(rig, op, OP_BROKEN);
    rig_silent(rig, s);
    rig_status(rig, sole_op(rig, OP_RELEASE), OP_OK);
    rig_granted(rig, sole_op(rig, OP_ACQUIRE), 6);
    rig_expect(rig, s, "1 OK fence=6 ttl_ms=~ count=1");
}

static const enum op_status place_asked_again_rows[] = {
    OP_UNSENT, OP_UNKNOWN, OP_REFUSED};

/* No answer: it is asked about again, for as long as a place may last. */
SESSION_TEST(place_asked_again)
{
    rig_status(
        rig, losing_place(rig, s, "1 LOCK a"), place_asked_again_rows[_i]);
    rig_no_op(rig);
    rig_pass(rig, 230);
    rig_status(rig, sole_op(rig, OP_RENEW), OP_MISSING);
    struct op *op = sole_op(rig, OP_RECLAIM);
    ck_assert_uint_eq(op->arrival, 7);
    rig_pass(rig, 19800);
    rig_status(rig, op, place_asked_again_rows[_i]);
    rig_expect(rig, s, "1 ERR UNAVAILABLE retry=1");
    rig_status(rig, sole_op(rig, OP_RELEASE), OP_MISSING);
    rig_no_op(rig);
}

/* A grant that was told of while it was put again is asked for after it. */
SESSION_TEST(hinted_meanwhile)
{
    struct op *op = losing_place(rig, s, "1 LOCK a");

    rig_hint(rig, op->request);
    ck_assert(sole_op(rig, OP_RECLAIM) == op);
    rig_queued(rig, op);
    rig_granted(rig, sole_op(rig, OP_RENEW), 6);
    rig_expect(rig, s, "1 OK fence=6 ttl_ms=~ count=1");
}

/* A release of ours has granted it: that is believed when its own answer is
 * there, whatever that says. */
SESSION_TEST(granted_by_the_way)
{
    unsigned t = rig_open(rig);
    rig_lock(rig, t, "1 LOCK a", 5);
    rig_wait(rig, s, "1 LOCK a");
    rig_pass(rig, 9000);
    struct op *op = NULL;
    while (rig->op_count < 2)
        rig_pass(rig, 100);
    for (uint32_t at = 2; at > 0; at--) {
        op = rig->ops[at - 1];
        if (op->fence > 0)
            rig_granted(rig, op, 5);
        else
            rig_status(rig, op, OP_MISSING);
    }
    rig_say(rig, t, "2 UNLOCK a");
    const struct op_grant grant = {
        .request = op_of_kind(rig, OP_RECLAIM)->request,
        .fence = 6,
        .arrival = 7,
        .ttl_ms = RIG_LEASE_MS};
    rig_finish(rig, op_of_kind(rig, OP_RELEASE),
        (struct op_result){
            .status = OP_OK, .grants = &grant, .grant_count = 1});
    rig_expect(rig, t, "2 OK count=0");
    check_shown(rig);
    rig_event(rig, s, CORE_DROP);
    one_release_after(rig, ends[_i], ops_of_kind(rig, OP_RENEW) > 0);
}

/* The wait ends while it is put again: it is struck out after the answer. */
RIG_TEST(wait_ended_meanwhile, rig_new())
{
    int what = _i / END_COUNT;
    unsigned t = rig_open(rig);
    unsigned s = what == 6 ? rig_open_kept(rig) : rig_open(rig);
    (void)losing_place(rig, s, "1 LOCK a wait=11s");
    if (what == 0) {
        rig_ask(rig, s, "2 CANCEL 1", "1 ERR CANCELLED retry=1");
        rig_expect(rig, s, "2 OK");
    } else if (what == 1) {
        rig_pass(rig, 1000);
        rig_expect(rig, s, "1 ERR TIMEOUT retry=1");
    } else if (what < 6) {
        end_session(rig, s, t, (enum how)(what - 2));
    } else {
        rig_event(rig, s, CORE_DROP);
        rig_pass(rig, 10100);
    }
    one_release_after(rig, ends[_i % END_COUNT], false);
    nothing_more(rig);
}

/* A request behind a cancelled wait has its turn after all that. */
SESSION_TEST(asked_again_meanwhile)
{
    (void)losing_place(rig, s, "1 LOCK a");
    rig_ask(rig, s, "2 LOCK a wait=0", "2 ERR BUSY retry=1");
    rig_ask(rig, s, "3 CANCEL 1", "1 ERR CANCELLED retry=1");
    rig_expect(rig, s, "3 OK");
    rig_say(rig, s, "4 LOCK a");
    one_release_after(rig, OP_WAITING, false);
    rig_granted(rig, op_of_kind(rig, OP_ACQUIRE), 6);
    rig_expect(rig, s, "4 OK fence=6 ttl_ms=~ count=1");
}

static const enum op_status unattended_place_rows[] = {
    OP_WAITING, OP_OK, OP_GONE, OP_UNSENT};

/* The place of one that is away is put again, and its LOCK finds it there. */
RIG_TEST(unattended_place, rig_new())
{
    enum op_status status = unattended_place_rows[_i];
    unsigned s = rig_open_kept(rig);
    rig_wait(rig, s, "1 LOCK a");
    rig_event(rig, s, CORE_DROP);
    rig_pass(rig, 9990);
    while (rig->op_count == 0)
        rig_pass_us(rig, 500);
    struct op *op = sole_op(rig, OP_RENEW);
    unsigned t = resume(rig, s, 2);
    rig_status(rig, op, OP_MISSING);
    op = sole_op(rig, OP_RECLAIM);
    ck_assert_uint_eq(op->generation, 1);
    rig_say(rig, t, "1 LOCK a");
    rig_say(rig, t, "2 LOCK a wait=0");
    ck_assert(sole_op(rig, OP_RECLAIM) == op);
    rig_silent(rig, t);
    if (status == OP_OK)
        rig_granted(rig, op, 6);
    else if (status == OP_WAITING)
        rig_queued(rig, op);
    else
        rig_status(rig, op, status);
    if (status == OP_UNSENT) {
        rig_expect(rig, t, "2 ERR UNAVAILABLE retry=1");
        rig_pass(rig, 230);
        rig_queued(rig, sole_op(rig, OP_RENEW));
    }
    op = rig_op(rig, status == OP_GONE ? OP_ACQUIRE : OP_RENEW);
    ck_assert(op->moves && op->generation == 2);
    rig_finish(rig, op,
        (struct op_result){.status = OP_OK,
            .fence = 6,
            .ttl_ms = RIG_LEASE_MS,
            .ask = {.permits = 1}});
    rig_expect(rig, t, "1 OK fence=6 ttl_ms=~ count=1");
}

/* A hold that only an earlier connection is known to have had is not put
 * anywhere. */
RIG_TEST(moving_place, rig_new())
{
    unsigned s = rig_open_kept(rig);

    rig_wait(rig, s, "1 LOCK a");
    rig_event(rig, s, CORE_DROP);
    unsigned t = resume(rig, s, 2);
    rig_say(rig, t, "1 LOCK a");
    ck_assert(sole_op(rig, OP_RENEW)->moves);
    rig_status(rig, rig_op(rig, OP_RENEW), OP_MISSING);
    struct op *op = sole_op(rig, OP_ACQUIRE);
    ck_assert(op->moves && op->arrival == 0);
    ck_assert_uint_eq(rig_count(rig, COUNTER_reclaims), 0);
    rig_granted(rig, op, 6);
    rig_expect(rig, t, "1 OK fence=6 ttl_ms=~ count=1");
}

/* Nor one of which nothing was ever heard. */
RIG_TEST(place_in_doubt, rig_new())
{
    unsigned s = rig_open_kept(rig);

    rig_say(rig, s, "1 LOCK a");
    rig_event(rig, s, CORE_DROP);
    rig_status(rig, sole_op(rig, OP_ACQUIRE), OP_UNKNOWN);
    rig_status(rig, sole_op(rig, OP_RENEW), OP_MISSING);
    rig_status(rig, sole_op(rig, OP_RELEASE), OP_MISSING);
    rig_no_op(rig);
    ck_assert_uint_eq(rig_count(rig, COUNTER_reclaims), 0);
}

/* Each of several puts its own place again, and each keeps its own. */
RIG_TEST(several_places, rig_new())
{
    unsigned sessions[3];
    char line[20];

    for (unsigned i = 0; i < 3; i++) {
        sessions[i] = rig_open(rig);
        rig_say(rig, sessions[i], "1 LOCK a");
        rig_finish(rig, sole_op(rig, OP_ACQUIRE),
            (struct op_result){.status = OP_WAITING,
                .arrival = 70 + i,
                .place = i,
                .again_ms = AGAIN_MS});
    }
    rig_pass(rig, 10100);
    for (unsigned i = 0; i < 3; i++)
        rig_status(rig, rig_op(rig, OP_RENEW), OP_MISSING);
    ck_assert_uint_eq(ops_of_kind(rig, OP_RECLAIM), 3);
    while (rig->op_count > 0) {
        struct op *op = rig_op(rig, OP_RECLAIM);
        ck_assert_uint_eq(op->arrival, 70 + op->place);
        snprintf(line, sizeof(line), "2 CANCEL 1");
        unsigned s = sessions[op->place];
        if (op->place == 1)
            rig_say(rig, s, line);
        rig_finish(rig, op,
            (struct op_result){.status = OP_WAITING,
                .arrival = op->arrival,
                .place = op->place,
                .again_ms = AGAIN_MS});
        if (ops_of_kind(rig, OP_RELEASE) > 0) {
            rig_expect(rig, s, "1 ERR CANCELLED retry=1");
            rig_status(rig, op_of_kind(rig, OP_RELEASE), OP_OK);
        }
    }
    struct core_totals totals;
    core_totals(rig->core, &totals);
    ck_assert_uint_eq(totals.waiting, 2);
}

/* --- not settled ---------------------------------------------------------- */

/* Redis has lost what is given back. Before its end nobody else had it. */
SESSION_TEST(unlock_of_the_missing)
{
    bool late = _i;
    rig_lock(rig, s, "1 LOCK a", 5);
    rig_pass_us(rig, DEADLINE_US / 3 - LEASE_US / 30 - 5000);
    rig_say(rig, s, "2 UNLOCK a");
    struct op *op = sole_op(rig, OP_RELEASE);
    uint64_t deadline_us = 1000 * (uint64_t)SECOND_US + DEADLINE_US;
    rig_pass_us(rig, deadline_us - rig->now_us - (late ? 0 : 1));
    rig_status(rig, op, OP_MISSING);
    rig_expect(rig, s, late ? "2 ERR LOST retry=0" : "2 OK count=0");
    ck_assert_uint_eq(rig_count(rig, COUNTER_releases), !late);
    rig_no_op(rig);
}

/* A release that nobody waits for is over where there is nothing. */
SESSION_TEST(release_of_the_missing)
{
    rig_lock(rig, s, "1 LOCK a", 5);
    rig_wait(rig, s, "2 LOCK b");
    rig_event(rig, s, CORE_DROP);
    ck_assert_uint_eq(ops_of_kind(rig, OP_RELEASE), 2);
    rig_status(rig, rig_op(rig, OP_RELEASE), OP_MISSING);
    rig_status(rig, rig_op(rig, OP_RELEASE), OP_MISSING);
    rig_pass(rig, 100000);
    rig_no_op(rig);
}

SESSION_TEST(unsettled_at_once)
{
    rig_say(rig, s, "1 LOCK a wait=0");
    rig_say(rig, s, "2 LOCK a");
    struct op *op = sole_op(rig, OP_ACQUIRE);
    ck_assert(op->no_queue);
    rig_finish(
        rig, op, (struct op_result){.status = OP_UNSETTLED, .again_ms = 1500});
    rig_expect(
        rig, s, "1 ERR UNAVAILABLE retry=1 reason=settling after_ms=1501");
    ck_assert_uint_eq(rig_count(rig, COUNTER_refused_unavailable), 1);
    /* A LOCK that may wait asks for itself. */
    rig_granted(rig, sole_op(rig, OP_ACQUIRE), 5);
    rig_expect(rig, s, "2 OK fence=5 ttl_ms=~ count=1");
    /* And nobody is there to be told. */
    rig_say(rig, s, "3 LOCK b wait=0");
    rig_event(rig, s, CORE_DROP);
    rig_finish(rig, rig_op(rig, OP_ACQUIRE),
        (struct op_result){.status = OP_UNSETTLED, .again_ms = 1500});
    (void)sole_op(rig, OP_RELEASE);
}

/* Of several names the one that cannot be had is named; the others go back. */
SESSION_TEST(unsettled_for_one_name)
{
    rig_say(rig, s, "1 LOCK a b wait=0");
    rig_granted(rig, sole_op(rig, OP_ACQUIRE), 5);
    rig_finish(rig, sole_op(rig, OP_ACQUIRE),
        (struct op_result){.status = OP_UNSETTLED, .again_ms = 2500});
    rig_expect(rig, s,
        "1 ERR UNAVAILABLE retry=1 reason=settling after_ms=2501 name=b");
    ck_assert_uint_eq(sole_op(rig, OP_RELEASE)->fence, 5);
    rig_status(rig, rig_op(rig, OP_RELEASE), OP_OK);
    rig_silent(rig, s);
}

/* And by the end of wait=, when all of that time nobody could have it. */
SESSION_TEST(unsettled_for_one_of_several)
{
    rig_say(rig, s, "1 LOCK a b wait=2s");
    rig_granted(rig, sole_op(rig, OP_ACQUIRE), 5);
    finish_unsettled(rig, sole_op(rig, OP_ACQUIRE), 5000);
    rig_pass(rig, 1990);
    rig_silent(rig, s);
    rig_pass(rig, 20);
    rig_expect(
        rig, s, "1 ERR UNAVAILABLE retry=1 reason=settling after_ms=~ name=b");
    ck_assert_uint_eq(ops_of_kind(rig, OP_RELEASE), 2);
    rig_silent(rig, s);
}

/* wait= ends: by its clock, or with the answer to the question. */
SESSION_TEST(unsettled_until_the_end)
{
    bool late = _i;
    rig_say(rig, s, "1 LOCK a wait=2s");
    rig_say(rig, s, "2 PING");
    struct op *op = sole_op(rig, OP_ACQUIRE);
    if (!late)
        finish_unsettled(rig, op, 5000);
    rig_expect(rig, s, "2 OK");
    rig_pass(rig, 1990);
    rig_silent(rig, s);
    rig_pass(rig, 20);
    if (late) {
        rig_silent(rig, s);
        finish_unsettled(rig, op, 5000);
        rig_expect(
            rig, s, "1 ERR UNAVAILABLE retry=1 reason=settling after_ms=5001");
    } else {
        const char *line = rig_line(rig, s);
        unsigned after_ms = 0;
        int got = sscanf(line,
            "1 ERR UNAVAILABLE retry=1 reason=settling after_ms=%u", &after_ms);
        ck_assert_int_eq(got, 1);
        ck_assert(after_ms > 2990 && after_ms <= 3001);
    }
    ck_assert_uint_eq(rig_count(rig, COUNTER_waits_timed_out), 0);
    ck_assert_uint_eq(rig_count(rig, COUNTER_refused_unavailable), 1);
    rig_status(rig, sole_op(rig, OP_RELEASE), OP_OK);
    rig_silent(rig, s);
    rig_no_op(rig);
}

/* Once Redis has said that it could be granted, a wait that ends is one that
 * others were before. */
SESSION_TEST(settled_before_the_end)
{
    bool heard = _i;
    rig_say(rig, s, "1 LOCK a wait=2s");
    struct op *op = sole_op(rig, OP_ACQUIRE);
    uint64_t request = op->request;
    finish_unsettled(rig, op, heard ? 50000 : 1900);
    if (heard) {
        rig_hint(rig, request);
        rig_queued(rig, sole_op(rig, OP_RENEW));
    }
    rig_pass(rig, 2010);
    rig_expect(rig, s,
        heard ? "1 ERR TIMEOUT retry=1"
              : "1 ERR UNAVAILABLE retry=1 reason=settling after_ms=1");
    ck_assert_uint_eq(rig_count(rig, COUNTER_waits_timed_out), heard ? 1 : 0);
    ck_assert_uint_eq(op_of_kind(rig, OP_RELEASE)->fence, 0);
}

/* A LOCK that cannot even be put into the queue before that waits all the same,
 * for longer than redis.patience. */
SESSION_TEST(unsettled_takeover)
{
    const struct op_result refused = {.status = OP_UNSETTLED, .again_ms = 999};
    uint64_t end_us = rig->now_us + 12000000;

    rig_say(rig, s, "1 LOCK a wait=12s");
    for (int i = 0; i < 2; i++) {
        struct op *op = sole_op(rig, OP_ACQUIRE);
        ck_assert_uint_eq(op->deadline_us, rig->now_us + 5000000);
        rig_pass(rig, 5000);
        rig_finish(rig, op, refused);
        rig_silent(rig, s);
    }
    ck_assert_uint_eq(sole_op(rig, OP_ACQUIRE)->deadline_us, end_us);
    rig_pass(rig, 2001);
    rig_silent(rig, s);
    rig_finish(rig, sole_op(rig, OP_ACQUIRE), refused);
    rig_expect(
        rig, s, "1 ERR UNAVAILABLE retry=1 reason=settling after_ms=1000");
    rig_no_op(rig);
    /* It is granted while it is asked for. */
    rig_say(rig, s, "2 LOCK a");
    rig_finish(rig, sole_op(rig, OP_ACQUIRE), refused);
    rig_granted(rig, sole_op(rig, OP_ACQUIRE), 5);
    rig_expect(rig, s, "2 OK fence=5 ttl_ms=~ count=1");
}

/* Each of several is told for how long yet; and a later word of it counts. */
SESSION_TEST(several_unsettled)
{
    unsigned t = rig_open(rig);
    unsigned u = rig_open(rig);

    rig_say(rig, s, "1 LOCK a wait=1s");
    finish_unsettled(rig, sole_op(rig, OP_ACQUIRE), 9000);
    rig_say(rig, t, "1 LOCK a wait=3s");
    rig_queued(rig, sole_op(rig, OP_ACQUIRE));
    rig_say(rig, u, "1 LOCK a");
    struct op *op = sole_op(rig, OP_ACQUIRE);
    uint64_t request = op->request;
    finish_unsettled(rig, op, 9000);
    rig_pass(rig, 1010);
    rig_expect(rig, s, "1 ERR UNAVAILABLE retry=1 reason=settling after_ms=~");
    rig_status(rig, op_of_kind(rig, OP_RELEASE), OP_OK);
    rig_pass(rig, 2000);
    rig_expect(rig, t, "1 ERR TIMEOUT retry=1");
    rig_status(rig, op_of_kind(rig, OP_RELEASE), OP_OK);
    rig_silent(rig, u);
    rig_hint(rig, request);
    rig_granted(rig, op_of_kind(rig, OP_RENEW), 5);
    rig_expect(rig, u, "1 OK fence=5 ttl_ms=~ count=1");
}

/* --- room ----------------------------------------------------------------- */

/* All operations that there may be, but for those that the rig has already. */
static void
fill_ops(struct rig *rig)
{
    uint32_t room = 4 * rig->settings.tickets_max + rig->settings.requests_max;

    while (rig->op_count < room) {
        unsigned t = rig_open(rig);
        rig_say(rig, t, "SHOW x");
        rig_say(rig, t, "SHOW y");
        rig_event(rig, t, CORE_DROP);
    }
    ck_assert_uint_eq(rig->op_count, room);
}

static struct rig *
small_rig(void)
{
    struct rig *rig = rig_create();

    rig->settings.tickets_max = 2;
    rig->settings.requests_max = 2;
    rig->settings.releases_kept = 0; /* they have room of their own */
    rig_start(rig);
    return rig;
}

/* No room for the question: it is asked about again soon, and then there is. */
RIG_TEST(no_room, small_rig())
{
    bool waits = _i;
    unsigned s = rig_open(rig);
    if (waits)
        rig_wait(rig, s, "1 LOCK a");
    else
        rig_lock(rig, s, "1 LOCK a", 5);
    rig_pass(rig, 10100);
    struct op *op = sole_op(rig, OP_RENEW);
    fill_ops(rig);
    rig_status(rig, op, OP_MISSING);
    ck_assert_uint_eq(ops_of_kind(rig, OP_RECLAIM), 0);
    ck_assert_uint_eq(rig_count(rig, COUNTER_reclaims), 0);
    rig_silent(rig, s);
    rig_pass(rig, RETRY_MS);
    op = op_of_kind(rig, OP_RENEW);
    rig_status(rig, rig_op(rig, OP_INSPECT), OP_OK);
    rig_status(rig, op, OP_MISSING);
    op = op_of_kind(rig, OP_RECLAIM);
    if (waits)
        rig_queued(rig, op);
    else
        finish_put_again(rig);
    rig_silent(rig, s);
}

/* Nor for a release after the answer. */
RIG_TEST(no_room_to_release, small_rig())
{
    unsigned s = rig_open(rig);

    (void)losing(rig, s);
    rig_event(rig, s, CORE_DROP);
    fill_ops(rig);
    rig_status(rig, op_of_kind(rig, OP_RECLAIM), OP_OK);
    ck_assert_uint_eq(ops_of_kind(rig, OP_RELEASE), 0);
    rig_pass(rig, RETRY_MS);
    ck_assert_uint_eq(ops_of_kind(rig, OP_RELEASE), 1);
}

static void
add_holds(TCase *tests)
{
    tcase_add_test(tests, put_again);
    tcase_add_test(tests, put_again_and_held);
    tcase_add_test(tests, put_again_late);
    tcase_add_test(tests, put_again_with_an_end);
    tcase_add_loop_test(tests, not_put_again, 0, ROWS(not_put_again_rows));
    tcase_add_loop_test(tests, tried_again, 0, ROWS(tried_again_rows));
    tcase_add_loop_test(tests, deadline_meanwhile, 0, END_COUNT);
    tcase_add_test(tests, answer_after_all);
    tcase_add_test(tests, renewed_meanwhile);
    tcase_add_loop_test(tests, renewed_meanwhile_and_gone, 0, END_COUNT);
    tcase_add_loop_test(
        tests, renew_finds_it_lost, 0, 2 * ROWS(renew_finds_it_lost_rows));
    tcase_add_test(tests, lease_begins_meanwhile);
    tcase_add_test(tests, reentered_meanwhile);
    tcase_add_loop_test(tests, shared_meanwhile, 0, 2);
    tcase_add_test(tests, sharing_finds_it_lost);
    tcase_add_loop_test(tests, claimed_meanwhile, 0, 2);
    tcase_add_test(tests, locked_when_put_again);
    tcase_add_test(tests, claimed_with_a_larger_fence);
    tcase_add_test(tests, claim_finds_it_lost);
    tcase_add_test(tests, claim_of_the_unknown);
    tcase_add_test(tests, claimed_and_over_meanwhile);
    tcase_add_loop_test(
        tests, unlocked_meanwhile, 0, ROWS(unlocked_meanwhile_rows));
    tcase_add_loop_test(tests, given_back_under_another_number, 0, 4);
    tcase_add_loop_test(tests, number_in_doubt, 0, 2);
    tcase_add_test(tests, earlier_hold_in_doubt);
    tcase_add_test(tests, unlocked_and_never_answered);
    tcase_add_test(tests, cancelled_meanwhile);
    tcase_add_loop_test(tests, ended_meanwhile, 0, 2 * HOW_COUNT * END_COUNT);
    tcase_add_loop_test(tests, kept_meanwhile, 0, END_COUNT + 1);
    tcase_add_test(tests, killed_away_meanwhile);
    tcase_add_loop_test(tests, forgotten_meanwhile, 0, 2 * END_COUNT);
    tcase_add_test(tests, broken_meanwhile);
    tcase_add_loop_test(tests, displaced_meanwhile, 0, END_COUNT);
    tcase_add_test(tests, lost_and_locked_again);
}

static void
add_waits(TCase *tests)
{
    tcase_add_test(tests, place_put_again);
    tcase_add_test(tests, granted_when_put_again);
    tcase_add_loop_test(tests, place_lost, 0, ROWS(place_lost_rows));
    tcase_add_test(tests, place_broken);
    tcase_add_loop_test(
        tests, place_asked_again, 0, ROWS(place_asked_again_rows));
    tcase_add_test(tests, hinted_meanwhile);
    tcase_add_loop_test(tests, granted_by_the_way, 0, END_COUNT);
    tcase_add_loop_test(tests, wait_ended_meanwhile, 0, 7 * END_COUNT);
    tcase_add_test(tests, asked_again_meanwhile);
    tcase_add_loop_test(
        tests, unattended_place, 0, ROWS(unattended_place_rows));
    tcase_add_test(tests, moving_place);
    tcase_add_test(tests, place_in_doubt);
    tcase_add_test(tests, several_places);
}

Suite *
core_reclaim_suite(void)
{
    Suite *suite = suite_create("core_reclaim");
    TCase *tests = tcase_create("core_reclaim");

    add_holds(tests);
    add_waits(tests);
    tcase_add_loop_test(tests, unlock_of_the_missing, 0, 2);
    tcase_add_test(tests, release_of_the_missing);
    tcase_add_test(tests, unsettled_at_once);
    tcase_add_test(tests, unsettled_for_one_name);
    tcase_add_test(tests, unsettled_for_one_of_several);
    tcase_add_loop_test(tests, unsettled_until_the_end, 0, 2);
    tcase_add_loop_test(tests, settled_before_the_end, 0, 2);
    tcase_add_test(tests, several_unsettled);
    tcase_add_test(tests, unsettled_takeover);
    tcase_add_loop_test(tests, no_room, 0, 2);
    tcase_add_test(tests, no_room_to_release);
    suite_add_tcase(suite, tests);
    return suite;
}

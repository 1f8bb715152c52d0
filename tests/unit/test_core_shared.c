/*
 * Tests of daemon/core/model/ticket.c: locks that are shared, semaphores,
 * lock-delay, what is told of a holder in the way, and holds that an operator
 * breaks.
 */
#include "daemon/op/op.h"
#include "tests/unit/core_rig.h"

#include <stdio.h>
#include <string.h>

Suite *core_shared_suite(void);

SESSION_TEST(kinds)
{
    rig_say(rig, s, "1 LOCK a");
    const struct ask *ask = &rig_op(rig, OP_ACQUIRE)->ask;
    ck_assert(ask->mode == MODE_EXCLUSIVE);
    ck_assert_uint_eq(ask->permits, 1);
    ck_assert_uint_eq(ask->permits_max, 0);
    ck_assert_uint_eq(ask->delay_ms, 0);
    rig_granted(rig, rig_op(rig, OP_ACQUIRE), 5);
    rig_say(rig, s, "2 LOCK b mode=shared delay=2s");
    ask = &rig_op(rig, OP_ACQUIRE)->ask;
    ck_assert(ask->mode == MODE_SHARED);
    ck_assert_uint_eq(ask->permits, 1);
    ck_assert_uint_eq(ask->delay_ms, 2000);
    rig_granted(rig, rig_op(rig, OP_ACQUIRE), 6);
    rig_say(rig, s, "3 LOCK c limit=3 permits=2 mode=EXCLUSIVE");
    rig_say(rig, s, "4 LOCK c limit=3 permits=2");
    ask = &rig_op(rig, OP_ACQUIRE)->ask;
    ck_assert(ask->mode == MODE_EXCLUSIVE);
    ck_assert_uint_eq(ask->permits, 2);
    ck_assert_uint_eq(ask->permits_max, 3);
    rig_granted(rig, rig_op(rig, OP_ACQUIRE), 7);
    rig_expect(rig, s, "1 OK fence=5 ttl_ms=~ count=1");
    rig_expect(rig, s, "2 OK fence=6 ttl_ms=~ count=1");
    rig_expect(rig, s, "3 ERR BADREQ retry=0");
    rig_expect(rig, s, "4 OK fence=7 ttl_ms=~ count=1");
    rig_ask(rig, s, "5 HELD", "5 ITEM name=a fence=5 ttl_ms=~ count=1");
    rig_expect(rig, s, "5 ITEM name=b fence=6 ttl_ms=~ count=1 mode=shared");
    rig_expect(
        rig, s, "5 ITEM name=c fence=7 ttl_ms=~ count=1 limit=3 permits=2");
}

SESSION_TEST(nonsense)
{
    static const char *const lines[] = {"1 LOCK a mode=share",
        "1 LOCK a mode=shared limit=2", "1 LOCK a mode=exclusive limit=2",
        "1 LOCK a limit=0", "1 LOCK a permits=2", "1 LOCK a limit=2 permits=3",
        "1 LOCK a limit=3 permits=0", "1 LOCK a limit=0 permits=0",
        "1 LOCK a permits=1", "1 LOCK a limit=4294967295 permits=4294967296",
        "1 LOCK a limit=-1", "1 LOCK a limit=4294967296",
        "1 LOCK a b limit=3 permits=4"};

    for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++) {
        rig_ask(rig, s, lines[i], "1 ERR BADREQ retry=0");
        rig_no_op(rig);
    }
    ck_assert_uint_eq(
        rig_count(rig, COUNTER_requests_bad), sizeof(lines) / sizeof(lines[0]));
    rig_lock(rig, s, "1 LOCK b limit=4294967295 permits=4294967295", 5);
    rig_say(rig, s, "2 LOCK a limit=2");
    rig_status(rig, rig_op(rig, OP_ACQUIRE), OP_CONFLICT);
    rig_expect(rig, s, "2 ERR CONFLICT retry=0");
    ck_assert_uint_eq(rig_count(rig, COUNTER_refused_conflict), 1);
}

static const struct reentry_of_each_kind_row {
    const char *first;
    const char *again;
    bool fits;
} reentry_of_each_kind_rows[] = {
    {"LOCK a", "2 LOCK a", true},
    {"LOCK a", "2 LOCK a mode=exclusive wait=0", true},
    {"LOCK a", "2 LOCK a limit=1", false},
    {"LOCK a mode=shared", "2 LOCK a mode=shared", true},
    {"LOCK a mode=shared", "2 LOCK a mode=upgradable", false},
    {"LOCK a mode=shared", "2 LOCK a limit=1", false},
    {"LOCK a limit=3 permits=2", "2 LOCK a limit=3 permits=2", true},
    {"LOCK a limit=3 permits=2", "2 LOCK a limit=3", false},
    {"LOCK a limit=3", "2 LOCK a", false},
    {"LOCK a limit=3", "2 LOCK a mode=shared", false},
};

/* An owner keeps the kind of its hold, however it asks again. */
SESSION_TEST(reentry_of_each_kind)
{
    const struct reentry_of_each_kind_row *row = &reentry_of_each_kind_rows[_i];
    rig_lock(rig, s, row->first, 5);
    rig_say(rig, s, row->again);
    rig_no_op(rig);
    rig_expect(rig, s,
        row->fits ? "2 OK fence=5 ttl_ms=~ count=2" : "2 ERR CONFLICT retry=0");
    ck_assert_uint_eq(rig_count(rig, COUNTER_refused_conflict), !row->fits);
    /* A refusal changes nothing. */
    if (row->fits) {
        rig_ask(rig, s, "3 UNLOCK a", "3 OK count=1");
    }
    rig_say(rig, s, "4 UNLOCK a");
    rig_status(rig, rig_op(rig, OP_RELEASE), OP_OK);
    rig_expect(rig, s, "4 OK count=0");
}

/* Exclusive to shared: Redis is told, and then it is answered. */
SESSION_TEST(downgrade)
{
    rig_lock(rig, s, "1 LOCK a", 5);
    rig_say(rig, s, "2 LOCK a mode=shared");
    struct op *op = rig_op(rig, OP_RENEW);
    ck_assert(op->shares && !op->moves && !op->sets_end);
    ck_assert_uint_eq(op->fence, 5);
    ck_assert_uint_eq(op->deadline_us, rig->now_us + 5 * SECOND_US);
    /* Requests behind it wait. The hold is exclusive no more. */
    rig_say(rig, s, "3 LOCK a");
    rig_say(rig, s, "4 UNLOCK a");
    rig_silent(rig, s);
    rig_granted(rig, op, 5);
    rig_expect(rig, s, "2 OK fence=5 ttl_ms=~ count=2");
    rig_status(rig, rig_op(rig, OP_ACQUIRE), OP_CONFLICT); /* an upgrade */
    rig_expect(rig, s, "3 ERR CONFLICT retry=0");
    rig_expect(rig, s, "4 OK count=1");
    rig_no_op(rig);
    rig_pass(rig, 10010);
    ck_assert(rig_op(rig, OP_RENEW)->shares); /* the data may be older */
    rig_ask(rig, s, "5 LOCK a mode=shared", "5 OK fence=5 ttl_ms=~ count=2");
}

/* The lease in the record is then not the end that was asked for. */
SESSION_TEST(downgrade_keeps_its_end)
{
    rig_lock(rig, s, "1 LOCK a lease=70s", 5);
    uint64_t end_us = rig->now_us + 70 * (uint64_t)SECOND_US;
    rig_pass(rig, 4000);
    rig_say(rig, s, "2 LOCK a mode=shared");
    rig_finish(rig, rig_op(rig, OP_RENEW),
        (struct op_result){.status = OP_OK,
            .fence = 5,
            .arrival = 5,
            .ttl_ms = 26000,
            .hold_ms = 66000});
    rig_expect(rig, s, "2 OK fence=5 ttl_ms=25738 count=2");
    while (rig->now_us < end_us - 400000) {
        rig_pass(rig, 1);
        if (rig->op_count > 0)
            rig_granted(rig, rig_op(rig, OP_RENEW), 5);
    }
    rig_silent(rig, s);
    rig_pass(rig, 400);
    rig_expect(rig, s, "* LOST a fence=5 reason=expired");
}

static const struct downgrade_in_doubt_row {
    enum op_status status;
    const char *answer;
} downgrade_in_doubt_rows[] = {{OP_UNKNOWN, "2 ERR INDOUBT retry=1"},
    {OP_UNSENT, "2 ERR UNAVAILABLE retry=1"},
    {OP_REFUSED, "2 ERR INDOUBT retry=1"}};

/* The answer is not to be had: no OK, and it is said until Redis has heard. */
SESSION_TEST(downgrade_in_doubt)
{
    const struct downgrade_in_doubt_row *row = &downgrade_in_doubt_rows[_i];
    rig_lock(rig, s, "1 LOCK a", 5);
    rig_say(rig, s, "2 LOCK a mode=shared");
    rig_status(rig, rig_op(rig, OP_RENEW), row->status);
    rig_expect(rig, s, row->answer);
    rig_ask(rig, s, "3 LOCK a limit=1", "3 ERR CONFLICT retry=0");
    rig_pass(rig, 120);
    struct op *op = rig_op(rig, OP_RENEW);
    ck_assert(op->shares);
    /* Asked for again meanwhile: said again, and answered by that. */
    rig_say(rig, s, "4 LOCK a mode=shared");
    ck_assert_uint_eq(rig->op_count, 2);
    ck_assert(rig->ops[1]->shares);
    rig_granted(rig, op, 5);
    rig_silent(rig, s);
    rig_granted(rig, rig_op(rig, OP_RENEW), 5);
    rig_expect(rig, s, "4 OK fence=5 ttl_ms=~ count=2");
}

/* The hold is lost meanwhile: the LOCK is for another one from then on. */
SESSION_TEST(downgrade_of_what_is_lost)
{
    rig_lock(rig, s, "1 LOCK a", 5);
    rig_say(rig, s, "2 LOCK a mode=shared");
    rig_status(rig, rig_op(rig, OP_RENEW), OP_GONE);
    rig_expect(rig, s, "* LOST a fence=5 reason=gone");
    rig_silent(rig, s);
    const struct op *op = rig_op(rig, OP_ACQUIRE);
    ck_assert(op->ask.mode == MODE_SHARED);
    ck_assert(op->moves); /* a later connection may have it elsewhere */
    rig_granted(rig, rig_op(rig, OP_ACQUIRE), 6);
    rig_expect(rig, s, "2 OK fence=6 ttl_ms=~ count=1");
    /* And where the answer comes after the deadline. */
    rig_lock(rig, s, "3 LOCK b", 7);
    rig_say(rig, s, "4 LOCK b mode=shared wait=60s");
    struct op *late = rig->ops[rig->op_count - 1];
    rig_stall(rig, 31000);
    rig_granted(rig, late, 7);
    rig_expect(rig, s, "* LOST b fence=7 reason=backend");
    while (rig->op_count > 0 && rig->ops[0]->kind != OP_ACQUIRE)
        rig_status(rig, rig->ops[0], OP_OK);
    rig_granted(rig, rig_op(rig, OP_ACQUIRE), 8);
    rig_expect(rig, s, "4 OK fence=8 ttl_ms=~ count=1");
}

/* A stop, a time-out or a call-off of such a LOCK leaves the hold as it is. */
SESSION_TEST(downgrade_called_off)
{
    int how = _i;
    rig_say(rig, s, "HELLO keep=10s");
    (void)rig_line(rig, s);
    rig_lock(rig, s, "1 LOCK a", 5);
    rig_say(rig, s, "2 LOCK a mode=shared wait=100");
    if (how == 0) {
        rig_stop(rig);
        rig_pass(rig, 3);
        rig_expect(rig, s, "* DRAIN grace_ms=10000");
        rig_expect(rig, s, "2 ERR DRAINING retry=1");
    } else if (how == 1) {
        rig_pass(rig, 110);
        rig_expect(rig, s, "2 ERR UNAVAILABLE retry=1");
    } else {
        rig_ask(rig, s, "3 CANCEL 2", "2 ERR CANCELLED retry=1");
        rig_expect(rig, s, "3 OK");
    }
    rig_granted(rig, rig_op(rig, OP_RENEW), 5);
    rig_say(rig, s, "4 UNLOCK a");
    rig_status(rig, rig_op(rig, OP_RELEASE), OP_OK);
    rig_expect(rig, s, "4 OK count=0");
}

/* --- lock-delay ----------------------------------------------------------- */

static struct op *
release_of(struct rig *rig)
{
    struct op *op = rig->ops[rig->op_count - 1];

    rig_must(rig->op_count > 0 && op->kind == OP_RELEASE);
    return op;
}

/* Only who gives it back does so cleanly. */
START_TEST(unclean_ends)
{
    for (int how = 0; how < 7; how++) {
        struct rig *rig = rig_new();
        unsigned s = rig_open(rig);
        unsigned t = rig_open(rig);
        bool clean = how <= 1;
        rig_say(rig, s, how == 4 ? "HELLO heartbeat=1s" : "HELLO");
        (void)rig_line(rig, s);
        rig_say(rig, s, how == 5 ? "1 LOCK a delay=1s lease=1s" : "1 LOCK a");
        uint64_t request = rig_op(rig, OP_ACQUIRE)->request;
        rig_granted(rig, rig_op(rig, OP_ACQUIRE), 5);
        if (how == 0)
            rig_say(rig, s, "2 UNLOCK a");
        else if (how == 1)
            rig_say(rig, s, "2 QUIT");
        else if (how <= 3)
            rig_event(rig, s, how == 2 ? CORE_EOF : CORE_DROP);
        else if (how <= 5)
            rig_pass(rig, 3010);
        if (how == 6)
            rig_kill(rig, t, s);
        ck_assert_msg(release_of(rig)->unclean == !clean, "%d", how);
        rig_end(rig);
        (void)request;
    }
}

END_TEST

/* A grant that comes after QUIT was nobody's; after a death, likewise. */
SESSION_TEST(unclean_grant_of_nobody)
{
    bool quit = _i;
    rig_say(rig, s, "1 LOCK a");
    if (quit)
        rig_say(rig, s, "2 QUIT");
    else
        rig_event(rig, s, CORE_DROP);
    rig_granted(rig, rig_op(rig, OP_ACQUIRE), 5);
    ck_assert(!release_of(rig)->unclean);
}

/* Each try of the release has it, and no later release. */
SESSION_TEST(unlock_with_delay)
{
    rig_lock(rig, s, "1 LOCK a delay=9s", 5);
    rig_say(rig, s, "2 UNLOCK a delay=2s");
    rig_status(rig, release_of(rig), OP_UNKNOWN);
    rig_pass(rig, 200);
    ck_assert_uint_eq(release_of(rig)->delay_ms, 2000);
    ck_assert(!release_of(rig)->unclean);
    rig_finish(rig, release_of(rig),
        (struct op_result){.status = OP_OK, .again_ms = 2000});
    rig_expect(rig, s, "2 OK count=0");
    rig_no_op(rig);
    rig_pass(rig, 2030); /* others wait */
    rig_status(rig, rig_op(rig, OP_LOOK), OP_OK);
    rig_lock(rig, s, "3 LOCK a", 6);
    rig_say(rig, s, "4 UNLOCK a");
    ck_assert_uint_eq(release_of(rig)->delay_ms, 0);
}

SESSION_TEST(unlock_with_delay_refused)
{
    rig_lock(rig, s, "1 LOCK a limit=3 permits=2", 5);
    rig_ask(rig, s, "2 UNLOCK a permits=1 delay=1", "2 ERR BADREQ retry=0");
    rig_ask(
        rig, s, "3 LOCK a limit=3 permits=2", "3 OK fence=5 ttl_ms=~ count=2");
    rig_ask(rig, s, "4 UNLOCK a delay=1", "4 ERR CONFLICT retry=0");
    rig_ask(rig, s, "5 UNLOCK a delay=0", "5 OK count=1");
    rig_say(rig, s, "6 UNLOCK a delay=1");
    ck_assert_uint_eq(release_of(rig)->delay_ms, 1);
}

/* --- the holder in the way ------------------------------------------------ */

static void
expect_told(
    const char *request, const struct op_result *result, const char *pattern)
{
    struct rig *rig = rig_new();
    unsigned s = rig_open(rig);

    rig_say(rig, s, request);
    ck_assert(rig_op(rig, OP_ACQUIRE)->tell);
    rig_finish(rig, rig_op(rig, OP_ACQUIRE), *result);
    rig_expect(rig, s, pattern);
    rig_end(rig);
}

START_TEST(told_of_the_holder)
{
    struct op_result busy = {.status = OP_BUSY,
        .ahead = 1,
        .told = true,
        .typical_ms = 1000,
        .holder_age_ms = 400,
        .holder_client = TEXT("c d"),
        .holder_owner = TEXT("o"),
        .holder_note = TEXT("n")};
    struct op_result waits = busy;

    expect_told("1 LOCK a wait=0", &busy,
        "1 ERR BUSY retry=1 position=1 holder=c%20d note=n age_ms=400 "
        "estimate_ms=600");
    waits.status = OP_WAITING;
    waits.ahead = 3;
    waits.again_ms = 1000;
    expect_told("1 LOCK a progress=1", &waits,
        "1 QUEUED position=3 holder=c%20d note=n age_ms=400 estimate_ms=2600");
    waits.holder_age_ms = 1500; /* overdue already */
    waits.holder_note = TEXT("");
    expect_told("1 LOCK a progress=1", &waits,
        "1 QUEUED position=3 holder=c%20d age_ms=1500 estimate_ms=2000");
    /* Nobody can say who of several goes first. */
    expect_told("1 LOCK a progress=1 mode=shared", &waits,
        "1 QUEUED position=3 holder=c%20d age_ms=1500");
    expect_told("1 LOCK a progress=1 limit=2", &waits,
        "1 QUEUED position=3 holder=c%20d age_ms=1500");
    waits.typical_ms = 0;
    expect_told("1 LOCK a progress=1", &waits,
        "1 QUEUED position=3 holder=c%20d age_ms=1500");
    waits.told = false; /* a lock-delay: nobody holds it */
    expect_told("1 LOCK a progress=1", &waits, "1 QUEUED position=3");
    busy.told = false;
    busy.ahead = 0;
    expect_told("1 LOCK a wait=0", &busy, "1 ERR BUSY retry=1");
    busy.delay_ms = 700;
    expect_told("1 LOCK a wait=0", &busy, "1 ERR BUSY retry=1 delay_ms=700");
}

END_TEST

/* Only who would be told is asked for it. */
SESSION_TEST(nobody_is_told)
{
    rig_say(rig, s, "1 LOCK a");
    ck_assert(!rig_op(rig, OP_ACQUIRE)->tell);
    rig_queued(rig, rig_op(rig, OP_ACQUIRE));
    rig_silent(rig, s);
}

/* --- rivals --------------------------------------------------------------- */

/* Redis' data was changed: whose fence is larger is right, kind by kind. */
RIG_TEST(rivals, rig_new())
{
    unsigned s[4];

    for (int i = 0; i < 4; i++)
        s[i] = rig_open(rig);
    rig_lock(rig, s[0], "LOCK a mode=shared", 5);
    rig_lock(rig, s[1], "LOCK a mode=shared", 6);
    rig_silent(rig, s[0]);
    rig_lock(rig, s[2], "LOCK a", 7);
    rig_expect(rig, s[0], "* LOST a fence=5 reason=gone");
    rig_expect(rig, s[1], "* LOST a fence=6 reason=gone");
    rig_say(rig, s[3], "LOCK a mode=shared");
    rig_granted(rig, rig_op(rig, OP_ACQUIRE), 4);
    rig_expect(rig, s[3], "- ERR INDOUBT retry=1");
    rig_status(rig, rig_op(rig, OP_RELEASE), OP_GONE);
    rig_silent(rig, s[2]);
    /* Permits: as many as there are, and no more. */
    rig_lock(rig, s[0], "LOCK b limit=3 permits=2", 10);
    rig_lock(rig, s[1], "LOCK b limit=3", 11);
    rig_silent(rig, s[0]);
    rig_lock(rig, s[2], "LOCK b limit=3", 12);
    rig_expect(rig, s[0], "* LOST b fence=10 reason=gone");
    rig_silent(rig, s[1]);
}

/* Readers that come together, each with many requests behind its first: a step
 * answers as many as there is room for, and later ones the rest, in order. */
RIG_TEST(more_than_a_step_answers, rig_new())
{
    unsigned s[5];
    struct op_grant grants[4] = {{.fence = 0}};
    char line[40];

    for (unsigned i = 0; i < 5; i++)
        s[i] = rig_open(rig);
    rig_lock(rig, s[0], "LOCK a", 5);
    for (unsigned i = 0; i < 4; i++) {
        rig_say(rig, s[i + 1], "0 LOCK a mode=shared");
        grants[i] =
            (struct op_grant){.request = rig_op(rig, OP_ACQUIRE)->request,
                .fence = 6 + i,
                .ttl_ms = RIG_LEASE_MS};
        rig_queued(rig, rig_op(rig, OP_ACQUIRE));
        for (unsigned j = 1; j < 30; j++) {
            snprintf(line, sizeof(line), "%u LOCK a mode=shared", j);
            rig_say(rig, s[i + 1], line);
        }
    }
    rig_say(rig, s[0], "UNLOCK a");
    rig->effects.entry_capacity = EFFECTS_STEP_ENTRIES + 40;
    rig_finish(rig, rig_op(rig, OP_RELEASE),
        (struct op_result){
            .status = OP_OK, .grants = grants, .grant_count = 4});
    ck_assert_uint_lt(rig->sessions[s[4]].finals, 30);
    ck_assert_uint_eq(core_next_us(rig->core), 0);
    rig_say(rig, s[4], "30 UNLOCK a");
    rig_pass(rig, 1);
    for (unsigned i = 0; i < 4; i++) {
        for (unsigned j = 0; j < 30; j++) {
            snprintf(line, sizeof(line), "%u OK fence=%u ttl_ms=~ count=%u", j,
                6 + i, j + 1);
            rig_expect(rig, s[i + 1], line);
        }
    }
    rig_expect(rig, s[4], "30 OK count=29");
}

/* --- BREAK ---------------------------------------------------------------- */

SESSION_TEST(break_orders)
{
    rig_say(rig, s, "1 BREAK a fence=7");
    struct op *op = rig_op(rig, OP_BREAK);
    ck_assert_uint_eq(op->fence, 7);
    ck_assert_uint_eq(op->deadline_us, rig->now_us + 5 * SECOND_US);
    rig_finish(rig, op, (struct op_result){.status = OP_OK, .ahead = 3});
    rig_pass(rig, 4);
    rig_status(rig, rig_op(rig, OP_INSPECT), OP_GONE);
    rig_expect(rig, s, "1 OK holders=3");
    rig_say(rig, s, "2 BREAK a");
    ck_assert_uint_eq(rig_op(rig, OP_BREAK)->fence, 0);
    rig_finish(rig, rig_op(rig, OP_BREAK),
        (struct op_result){.status = OP_GONE, .ahead = 3});
    rig_finish(rig, rig_op(rig, OP_INSPECT),
        (struct op_result){.status = OP_OK, .delay_ms = 700});
    rig_expect(rig, s, "2 OK holders=0 delay_ms=700");
    rig_say(rig, s, "3 BREAK a");
    rig_status(rig, rig_op(rig, OP_BREAK), OP_UNKNOWN);
    rig_expect(rig, s, "3 ERR INDOUBT retry=1");
    rig_say(rig, s, "4 BREAK a");
    rig_status(rig, rig_op(rig, OP_BREAK), OP_UNSENT);
    rig_expect(rig, s, "4 ERR UNAVAILABLE retry=1");
    rig_say(rig, s, "5 BREAK a");
    rig_status(rig, rig_op(rig, OP_BREAK), OP_REFUSED);
    rig_expect(rig, s, "5 ERR INTERNAL retry=0");
    ck_assert_uint_eq(rig_count(rig, COUNTER_orders_break), 5);
    rig_say(rig, s, "6 BREAK a");
    rig_status(rig, rig_op(rig, OP_BREAK), OP_GONE);
    rig_status(rig, rig_op(rig, OP_INSPECT), OP_UNKNOWN);
    rig_expect(rig, s, "6 OK holders=0");
    rig_say(rig, s, "7 BREAK a");
    rig_event(rig, s, CORE_DROP);
    rig_status(rig, rig_op(rig, OP_BREAK), OP_OK);
}

/* The holder is told at once, or by its renewal; once only, and no other. */
SESSION_TEST(broken)
{
    rig_say(rig, s, "1 LOCK a owner=o");
    uint64_t request = rig_op(rig, OP_ACQUIRE)->request;
    rig_broken(rig, request, 5);
    rig_granted(rig, rig_op(rig, OP_ACQUIRE), 5);
    rig_expect(rig, s, "1 OK fence=5 ttl_ms=~ count=1");
    rig_broken(rig, request, 4);
    rig_broken(rig, request + 1, 5);
    rig_silent(rig, s);
    rig_broken(rig, request, 5);
    rig_expect(rig, s, "* LOST a fence=5 reason=broken owner=o");
    ck_assert(rig_op(rig, OP_RELEASE)->unclean);
    rig_broken(rig, request, 5);
    rig_silent(rig, s);
    rig_ask(rig, s, "2 UNLOCK a owner=o", "2 ERR LOST retry=0");
    rig_status(rig, rig_op(rig, OP_RELEASE), OP_OK);
    rig_lock(rig, s, "3 LOCK b lease=60s", 6);
    rig_say(rig, s, "4 RENEW b lease=60s");
    rig_status(rig, rig_op(rig, OP_RENEW), OP_BROKEN);
    rig_expect(rig, s, "* LOST b fence=6 reason=broken");
    rig_expect(rig, s, "4 ERR LOST retry=0");
    ck_assert(rig_op(rig, OP_RELEASE)->unclean);
    ck_assert_uint_eq(rig_count(rig, COUNTER_lost_broken), 2);
}

Suite *
core_shared_suite(void)
{
    Suite *suite = suite_create("core_shared");
    TCase *tests = tcase_create("core_shared");

    tcase_add_test(tests, kinds);
    tcase_add_test(tests, nonsense);
    tcase_add_loop_test(
        tests, reentry_of_each_kind, 0, ROWS(reentry_of_each_kind_rows));
    tcase_add_test(tests, downgrade);
    tcase_add_test(tests, downgrade_keeps_its_end);
    tcase_add_loop_test(
        tests, downgrade_in_doubt, 0, ROWS(downgrade_in_doubt_rows));
    tcase_add_test(tests, downgrade_of_what_is_lost);
    tcase_add_loop_test(tests, downgrade_called_off, 0, 3);
    tcase_add_test(tests, unclean_ends);
    tcase_add_loop_test(tests, unclean_grant_of_nobody, 0, 2);
    tcase_add_test(tests, unlock_with_delay);
    tcase_add_test(tests, unlock_with_delay_refused);
    tcase_add_test(tests, told_of_the_holder);
    tcase_add_test(tests, nobody_is_told);
    tcase_add_test(tests, rivals);
    tcase_add_test(tests, more_than_a_step_answers);
    tcase_add_test(tests, break_orders);
    tcase_add_test(tests, broken);
    suite_add_tcase(suite, tests);
    return suite;
}

/*
 * Tests of daemon/core/feature/watch.c: WATCH and UNWATCH, what is told and
 * when.
 */
#include "daemon/op/op.h"
#include "tests/unit/core_rig.h"

#include <stdio.h>
#include <string.h>

Suite *core_watch_suite(void);

#define WATCHES 100

static const char news_of_a[] = "Wholdfast:{a}";

static void
changed(struct rig *rig)
{
    rig_news(rig, news_of_a, sizeof(news_of_a) - 1);
}

/* Answers the inspection: so many holders, the newest with that fence. */
static void
inspected(struct rig *rig, uint32_t holders, uint64_t fence, const char *note)
{
    struct op_ticket tickets[2] = {{.granted = true,
                                       .fence = fence,
                                       .client = TEXT("shop"),
                                       .owner = TEXT("w"),
                                       .note = text_from(note)},
        {.granted = false, .note = TEXT("waits")}};
    struct op *op = rig_op(rig, OP_INSPECT);

    ck_assert_int_eq(op->reader, READER_WATCH);
    rig_finish(rig, op,
        (struct op_result){.status = holders > 0 ? OP_OK : OP_GONE,
            .holders = holders,
            .tickets = tickets,
            .ticket_count = holders > 0 ? 2 : 0});
}

/* WATCH a, answered, while nobody holds it. */
static void
watch_free_lock(struct rig *rig, unsigned session)
{
    rig_say(rig, session, "1 WATCH a");
    struct op *op = rig_op(rig, OP_LOOK);
    ck_assert(op->watch);
    ck_assert_uint_eq(op->lease_ms, RIG_LEASE_MS);
    rig_status(rig, op, OP_OK);
    rig_silent(rig, session);
    inspected(rig, 0, 0, "");
    rig_expect(rig, session, "1 OK");
    rig_expect(rig, session, "* FREE a");
    rig_event(rig, session, CORE_MORE);
}

SESSION_TEST(held_and_free)
{
    watch_free_lock(rig, s);
    changed(rig);
    inspected(rig, 1, 7, "12:7000");
    rig_expect(rig, s, "* HELD a fence=7 name=shop owner=w note=12:7000");
    rig_event(rig, s, CORE_MORE);
    changed(rig);
    inspected(rig, 3, 9, "");
    rig_expect(rig, s, "* HELD a fence=9 holders=3 name=shop owner=w");
    rig_event(rig, s, CORE_MORE);
    /* The same again is no news; another note of the same holder is. */
    changed(rig);
    inspected(rig, 3, 9, "");
    rig_silent(rig, s);
    changed(rig);
    inspected(rig, 3, 9, "n");
    rig_expect(rig, s, "* HELD a fence=9 holders=3 name=shop owner=w note=n");
    rig_event(rig, s, CORE_MORE);
    changed(rig);
    inspected(rig, 0, 0, "");
    rig_expect(rig, s, "* FREE a");
    rig_ask(rig, s, "2 UNWATCH a", "2 OK");
    changed(rig);
    rig_no_op(rig);
}

/* Hints while an inspection is under way are one more inspection. */
SESSION_TEST(coalesced)
{
    watch_free_lock(rig, s);
    for (int i = 0; i < 5; i++)
        changed(rig);
    ck_assert_uint_eq(rig->op_count, 1);
    inspected(rig, 1, 7, "");
    rig_expect(rig, s, "* HELD a fence=7 name=shop owner=w");
    ck_assert_uint_eq(rig->op_count, 1);
    inspected(rig, 1, 8, "");
    rig_no_op(rig);
}

/* A client that does not read hears the state at the time of its reading. */
SESSION_TEST(slow_reader)
{
    watch_free_lock(rig, s);
    changed(rig);
    inspected(rig, 1, 7, "");
    rig_expect(rig, s, "* HELD a fence=7 name=shop owner=w");
    for (uint64_t fence = 8; fence < 20; fence++) {
        changed(rig);
        inspected(rig, 1, fence, "");
    }
    rig_silent(rig, s);
    rig_event(rig, s, CORE_MORE);
    rig_expect(rig, s, "* HELD a fence=19 name=shop owner=w");
    rig_silent(rig, s);
    rig_event(rig, s, CORE_MORE);
    rig_silent(rig, s);
}

/* A later watcher is not told of a read from before its request. */
SESSION_TEST(second_watcher)
{
    unsigned t = rig_open(rig);

    watch_free_lock(rig, s);
    changed(rig);
    rig_say(rig, t, "1 WATCH a");
    inspected(rig, 1, 7, "");
    rig_expect(rig, s, "* HELD a fence=7 name=shop owner=w");
    rig_silent(rig, t);
    rig_status(rig, rig_op(rig, OP_LOOK), OP_OK);
    inspected(rig, 1, 7, "");
    rig_expect(rig, t, "1 OK");
    rig_expect(rig, t, "* HELD a fence=7 name=shop owner=w");
    rig_silent(rig, s);
    rig_event(rig, s, CORE_DROP);
    changed(rig);
    inspected(rig, 0, 0, "");
    rig_event(rig, t, CORE_MORE);
    rig_expect(rig, t, "* FREE a");
}

RIG_TEST(refused, rig_create())
{
    rig->settings.holds_max = 2;
    rig_start(rig);
    unsigned s = rig_open(rig);
    rig_ask(rig, s, "1 UNWATCH a", "1 ERR NOTHELD retry=0");
    watch_free_lock(rig, s);
    rig_ask(rig, s, "2 WATCH a", "2 ERR CONFLICT retry=0");
    rig_ask(rig, s, "3 UNWATCH b", "3 ERR NOTHELD retry=0");
    rig_say(rig, s, "4 WATCH b");
    rig_ask(rig, s, "5 WATCH c", "5 ERR LIMIT retry=1 limit=watches");
    ck_assert_uint_eq(rig_count(rig, COUNTER_limit_watches), 1);
    rig_ask(rig, s, "6 UNWATCH b", "4 ERR CANCELLED retry=1");
    rig_expect(rig, s, "6 OK");
}

/* Redis cannot be asked: for as long as the request's patience. */
SESSION_TEST(unavailable)
{
    bool how = _i;
    rig_say(rig, s, "1 WATCH a");
    for (uint64_t ms = 0; ms < 5000; ms += 100) {
        rig_silent(rig, s);
        if (rig->op_count > 0 && how == 0)
            rig_status(rig, rig_op(rig, OP_LOOK), OP_UNSENT);
        if (rig->op_count > 0 && how == 1)
            rig_status(rig, rig->ops[0],
                rig->ops[0]->kind == OP_LOOK ? OP_OK : OP_UNKNOWN);
        rig_pass(rig, 100);
    }
    rig_pass(rig, 10);
    rig_expect(rig, s, "1 ERR UNAVAILABLE retry=1");
    rig_ask(rig, s, "2 UNWATCH a", "2 ERR NOTHELD retry=0");
}

/* A record forgets its watchers, and hints are lost: it is looked at again. */
SESSION_TEST(looked_at_again)
{
    struct core_event event = {.kind = CORE_UNHEARD};

    watch_free_lock(rig, s);
    rig_pass(rig, RIG_LEASE_MS / 3);
    rig_status(rig, rig_op(rig, OP_LOOK), OP_OK);
    inspected(rig, 1, 7, "");
    rig_expect(rig, s, "* HELD a fence=7 name=shop owner=w");
    rig_event(rig, s, CORE_MORE);
    rig_step(rig, &event);
    rig_pass(rig, 500);
    rig_status(rig, rig_op(rig, OP_LOOK), OP_OK);
    inspected(rig, 0, 0, "");
    rig_expect(rig, s, "* FREE a");
}

/* Of several holders the newest is told, in whatever order they stand; and how
 * many they are, also where the newest stays. */
START_TEST(newest_of_several)
{
    struct op_ticket tickets[] = {
        {.granted = true, .fence = 8, .note = TEXT("old")},
        {.granted = true, .fence = 9, .note = TEXT("new")},
        {.granted = true, .fence = 7, .note = TEXT("older")},
        {.granted = false, .fence = 99, .note = TEXT("waits")}};
    struct op_result result = {
        .status = OP_OK, .holders = 3, .tickets = tickets, .ticket_count = 4};
    struct rig *rig = rig_new();
    unsigned s = rig_open(rig);

    for (int i = 0; i < 4; i++)
        tickets[i].owner = tickets[i].client = TEXT("");
    watch_free_lock(rig, s);
    changed(rig);
    rig_finish(rig, rig_op(rig, OP_INSPECT), result);
    rig_expect(rig, s, "* HELD a fence=9 holders=3 note=new");
    rig_event(rig, s, CORE_MORE);
    tickets[2].granted = false;
    result.holders = 2;
    changed(rig);
    rig_finish(rig, rig_op(rig, OP_INSPECT), result);
    rig_expect(rig, s, "* HELD a fence=9 holders=2 note=new");
    rig_event(rig, s, CORE_MORE);
    tickets[1].granted = false;
    result.holders = 1;
    changed(rig);
    rig_finish(rig, rig_op(rig, OP_INSPECT), result);
    rig_expect(rig, s, "* HELD a fence=8 note=old");
    rig_end(rig);
}

END_TEST

/* The state is the old one again when the client reads: that is no news. */
SESSION_TEST(changed_and_back)
{
    watch_free_lock(rig, s);
    changed(rig);
    inspected(rig, 1, 7, "");
    rig_expect(rig, s, "* HELD a fence=7 name=shop owner=w");
    changed(rig);
    inspected(rig, 0, 0, "");
    changed(rig);
    inspected(rig, 1, 7, "");
    rig_event(rig, s, CORE_MORE);
    rig_silent(rig, s);
    /* And nothing else is held up by that. */
    changed(rig);
    inspected(rig, 0, 0, "");
    rig_expect(rig, s, "* FREE a");
}

/* Of many changes a part is told, and the rest when that has been read. */
RIG_TEST(in_parts, rig_create())
{
    char line[40];
    unsigned told[3] = {0};

    rig->settings.holds_max = WATCHES;
    rig_start(rig);
    unsigned s = rig_open(rig);
    for (unsigned i = 0; i < WATCHES; i++) {
        snprintf(line, sizeof(line), "1 WATCH n%u", i);
        rig_say(rig, s, line);
        rig_status(rig, rig_op(rig, OP_LOOK), OP_OK);
        inspected(rig, 0, 0, "");
        rig_expect(rig, s, "1 OK");
        rig_expect(rig, s, "* FREE ~");
        rig_event(rig, s, CORE_MORE);
    }
    for (unsigned i = 0; i < WATCHES; i++) {
        snprintf(line, sizeof(line), "Wholdfast:{n%u}", i);
        rig_news(rig, line, strlen(line));
        inspected(rig, 1, 7, "");
    }
    for (int part = 0; part < 3; part++) {
        while (strncmp(rig_line(rig, s), "* HELD n", 8) == 0)
            told[part]++;
        rig_event(rig, s, CORE_MORE);
    }
    ck_assert_uint_eq(told[0], 1);
    ck_assert_uint_eq(told[1], 64);
    ck_assert_uint_eq(told[2], WATCHES - 65);
    rig_silent(rig, s);
}

/* Redis could not be asked: it is asked again soon, and not only when it is
 * time for that anyway. */
SESSION_TEST(asked_again)
{
    watch_free_lock(rig, s);
    changed(rig);
    rig_status(rig, rig_op(rig, OP_INSPECT), OP_UNKNOWN);
    rig_pass(rig, 1000);
    rig_status(rig, rig_op(rig, OP_LOOK), OP_UNSENT);
    rig_no_op(rig);
    rig_pass(rig, 1000);
    rig_status(rig, rig_op(rig, OP_LOOK), OP_OK);
    inspected(rig, 1, 7, "");
    rig_expect(rig, s, "* HELD a fence=7 name=shop owner=w");
}

/* A watch ends with its connection, also where the session is kept. */
SESSION_TEST(not_kept)
{
    rig_say(rig, s, "HELLO keep=10s");
    (void)rig_line(rig, s);
    rig_lock(rig, s, "1 LOCK b", 5);
    watch_free_lock(rig, s);
    rig_event(rig, s, CORE_DROP);
    changed(rig);
    rig_pass(rig, 9000);
    rig_no_op(rig);
}

/* A record that is none of ours has words longer than there are. */
SESSION_TEST(long_words)
{
    char note[256];

    memset(note, 'n', 255);
    note[255] = '\0';
    watch_free_lock(rig, s);
    changed(rig);
    inspected(rig, 1, 7, note);
    note[128] = '\0';
    const char *line = rig_line(rig, s);
    ck_assert_str_eq(strstr(line, " note=") + 6, note);
}

/* No message breaks anything. */
START_TEST(odd_news)
{
    static const char *const news[] = {"", "W", "Wh", "Wholdfast:{}",
        "Wholdfast:{b}", "Wother:{a}", "X", "Wholdfast:{a"};
    struct rig *rig = rig_new();
    unsigned s = rig_open(rig);

    watch_free_lock(rig, s);
    for (size_t i = 0; i < sizeof(news) / sizeof(news[0]); i++) {
        rig_news(rig, news[i], strlen(news[i]));
        while (rig->op_count > 0)
            inspected(rig, 0, 0, "");
        rig_silent(rig, s);
    }
    rig_end(rig);
}

END_TEST

/* Many watch one lock: a step tells as many as there is room for, and later
 * ones the rest. */
RIG_TEST(more_than_a_step_tells, rig_new())
{
    unsigned s[30];

    for (unsigned i = 0; i < 30; i++) {
        s[i] = rig_open(rig);
        watch_free_lock(rig, s[i]);
    }
    rig->effects.entry_capacity = EFFECTS_STEP_ENTRIES + 10;
    changed(rig);
    inspected(rig, 1, 5, "n");
    ck_assert_uint_eq(core_next_us(rig->core), 0);
    rig_silent(rig, s[29]);
    /* A change before all have been told is told to all of them, once. */
    changed(rig);
    inspected(rig, 1, 6, "m");
    rig_pass(rig, 1);
    ck_assert_uint_gt(core_next_us(rig->core), rig->now_us);
    for (unsigned i = 0; i < 30; i++)
        rig_event(rig, s[i], CORE_MORE);
    rig_expect(rig, s[0], "* HELD a fence=5 name=shop owner=w note=n");
    rig_expect(rig, s[0], "* HELD a fence=6 name=shop owner=w note=m");
    rig_expect(rig, s[29], "* HELD a fence=6 name=shop owner=w note=m");
    for (unsigned i = 0; i < 30; i++)
        rig->sessions[s[i]].read = rig->sessions[s[i]].written;
}

/* --- wanted=1 ------------------------------------------------------------- */

/* Answers the look and the inspection: so many wait. */
static void
looked(struct rig *rig, uint32_t waiters)
{
    struct op *op = rig_op(rig, OP_LOOK);

    ck_assert(op->watch && op->waits);
    rig_status(rig, op, OP_OK);
    rig_finish(rig, rig_op(rig, OP_INSPECT),
        (struct op_result){.status = OP_OK, .holders = 1, .waiters = waiters});
}

/* A change, and its inspection. */
static void
now_waits(struct rig *rig, uint32_t waiters)
{
    changed(rig);
    rig_finish(rig, rig_op(rig, OP_INSPECT),
        (struct op_result){.status = OP_OK, .holders = 1, .waiters = waiters});
}

/* The client reads; an event may wait for that. */
static void
expect_wanted(struct rig *rig, unsigned session, const char *line)
{
    rig_expect(rig, session, line);
    rig_event(rig, session, CORE_MORE);
    rig_silent(rig, session);
}

/* From no waiter to some, and where there are more than before: not again for
 * the same ones. */
SESSION_TEST(wanted)
{
    rig_lock(rig, s, "1 LOCK a wanted=1 owner=w", 7);
    looked(rig, 0);
    rig_silent(rig, s);
    now_waits(rig, 1);
    expect_wanted(rig, s, "* WANTED a waiters=1 owner=w");
    now_waits(rig, 1);
    rig_silent(rig, s);
    now_waits(rig, 3);
    expect_wanted(rig, s, "* WANTED a waiters=3 owner=w");
    now_waits(rig, 2);
    rig_silent(rig, s);
    now_waits(rig, 0);
    now_waits(rig, 1);
    expect_wanted(rig, s, "* WANTED a waiters=1 owner=w");
    /* A hint was lost. */
    now_waits(rig, 0);
    rig_pass(rig, RIG_LEASE_MS / 4 + 1000);
    looked(rig, 1);
    expect_wanted(rig, s, "* WANTED a waiters=1 owner=w");
    /* Nobody inspects the lock for a hold that is over. */
    rig_say(rig, s, "2 UNLOCK a owner=w");
    changed(rig);
    rig_status(rig, rig_op(rig, OP_RELEASE), OP_OK);
    rig_expect(rig, s, "2 OK count=0");
    rig_pass(rig, RIG_LEASE_MS);
    rig_no_op(rig);
}

/* Somebody waits already; and a re-entry asks anew, or for the first time. */
SESSION_TEST(wanted_at_once)
{
    rig_lock(rig, s, "1 LOCK a", 7);
    rig_no_op(rig);
    for (int i = 0; i < 2; i++) {
        rig_ask(rig, s, "2 LOCK a wanted=1", "2 OK fence=7 ttl_ms=~ count=~");
        looked(rig, 2);
        expect_wanted(rig, s, "* WANTED a waiters=2");
    }
    rig_ask(rig, s, "3 LOCK a", "3 OK fence=7 ttl_ms=~ count=4");
    rig_no_op(rig);
    now_waits(rig, 3);
    expect_wanted(rig, s, "* WANTED a waiters=3");
}

/* The upgrade of the hold is not one of the others. */
SESSION_TEST(wanted_and_upgraded)
{
    rig_lock(rig, s, "1 LOCK a mode=upgradable wanted=1", 7);
    looked(rig, 0);
    rig_say(rig, s, "2 LOCK a");
    rig_queued(rig, rig_op(rig, OP_ACQUIRE));
    now_waits(rig, 1);
    rig_silent(rig, s);
    now_waits(rig, 2);
    expect_wanted(rig, s, "* WANTED a waiters=1");
}

/* An owner hears once of waiters for both its holds: by the upgrade. */
SESSION_TEST(wanted_by_both)
{
    rig_lock(rig, s, "1 LOCK a mode=upgradable wanted=1", 5);
    looked(rig, 0);
    rig_say(rig, s, "2 LOCK a wanted=1");
    rig_granted(rig, rig_op(rig, OP_ACQUIRE), 9);
    rig_expect(rig, s, "2 OK fence=9 ttl_ms=~ count=2 upgrade=1");
    looked(rig, 0);
    now_waits(rig, 1);
    expect_wanted(rig, s, "* WANTED a waiters=1");
    rig_say(rig, s, "3 UNLOCK a");
    rig_status(rig, rig_op(rig, OP_RELEASE), OP_OK);
    rig_expect(rig, s, "3 OK count=1");
    now_waits(rig, 1);
    rig_silent(rig, s);
    now_waits(rig, 2);
    expect_wanted(rig, s, "* WANTED a waiters=2");
}

/* Of several names each is told, once all are had. */
SESSION_TEST(wanted_of_several)
{
    rig_say(rig, s, "1 LOCK a b wanted=1");
    rig_granted(rig, rig_op(rig, OP_ACQUIRE), 7);
    rig_granted(rig, rig_op(rig, OP_ACQUIRE), 8);
    rig_expect(rig, s, "1 OK fence=7,8 ttl_ms=~ count=1");
    ck_assert_uint_eq(rig->op_count, 2);
    struct op *look = rig_op(rig, OP_LOOK);
    rig_status(rig, look, OP_OK);
    look = rig_op(rig, OP_LOOK);
    ck_assert(text_equal(look->name, TEXT("b")));
    rig_status(rig, look, OP_OK);
    for (int i = 0; i < 2; i++)
        rig_finish(rig, rig_op(rig, OP_INSPECT),
            (struct op_result){.status = OP_OK, .holders = 1, .waiters = 1});
    rig_expect(rig, s, "* WANTED a waiters=1");
    rig_event(rig, s, CORE_MORE);
    expect_wanted(rig, s, "* WANTED b waiters=1");
}

/* Before a quorum no record tells of a wait. The news of the broker's own try
 * does, until its waiters are known. */
SESSION_TEST(wanted_here)
{
    static const char ours[] = "Tbroker-1holdfast:{a}";

    rig_lock(rig, s, "1 LOCK a wanted=1", 7);
    looked(rig, 0);
    rig_news(rig, ours, sizeof(ours) - 1);
    rig_finish(rig, rig_op(rig, OP_INSPECT),
        (struct op_result){.status = OP_OK, .holders = 1, .waiters = 1});
    expect_wanted(rig, s, "* WANTED a waiters=1");
    rig_news(rig, ours, sizeof(ours) - 1);
    rig_no_op(rig);
}

/* Before a quorum, other brokers tell again and again that they wait: that is
 * one wait more. */
SESSION_TEST(wanted_elsewhere)
{
    static const char told[] = "Tbroker-2holdfast:{a}";

    rig_lock(rig, s, "1 LOCK a wanted=1", 7);
    looked(rig, 0);
    rig_news(rig, told, 5);
    rig_no_op(rig);
    for (int i = 0; i < 5; i++) {
        rig_news(rig, told, sizeof(told) - 1);
        if (i == 0) {
            rig_finish(rig, rig_op(rig, OP_INSPECT),
                (struct op_result){.status = OP_OK, .holders = 1});
            expect_wanted(rig, s, "* WANTED a waiters=1");
        }
        rig_no_op(rig);
        rig_pass(rig, 1000);
    }
    now_waits(rig, 1);
    expect_wanted(rig, s, "* WANTED a waiters=2");
    /* They wait no more. */
    rig_pass(rig, 2100);
    now_waits(rig, 0);
    rig_silent(rig, s);
    rig_news(rig, told, sizeof(told) - 1);
    rig_finish(rig, rig_op(rig, OP_INSPECT),
        (struct op_result){.status = OP_OK, .holders = 1});
    expect_wanted(rig, s, "* WANTED a waiters=1");
}

/* Beside a WATCH of the session, which a change of waiters is no news to. */
SESSION_TEST(wanted_and_watched)
{
    rig_lock(rig, s, "1 LOCK a wanted=1", 7);
    looked(rig, 0);
    rig_say(rig, s, "2 WATCH a");
    looked(rig, 0);
    rig_expect(rig, s, "2 OK");
    rig_expect(rig, s, "* HELD a fence=~");
    rig_event(rig, s, CORE_MORE);
    now_waits(rig, 1);
    expect_wanted(rig, s, "* WANTED a waiters=1");
    rig_ask(rig, s, "3 UNWATCH a", "3 OK");
    rig_ask(rig, s, "4 UNWATCH a", "4 ERR NOTHELD retry=0");
    now_waits(rig, 2);
    expect_wanted(rig, s, "* WANTED a waiters=2");
}

/* The wish is the connection's own: it is told again with the CLAIM. */
RIG_TEST(wanted_and_moved, rig_new())
{
    unsigned s = rig_open_kept(rig);
    unsigned t = rig_open(rig);

    rig_lock(rig, s, "1 LOCK a wanted=1", 7);
    looked(rig, 0);
    rig_event(rig, s, CORE_DROP);
    changed(rig);
    rig_no_op(rig);
    rig_resume(rig, s, t, 2, " keep=10s");
    (void)rig_line(rig, t);
    rig_say(rig, t, "2 CLAIM a fence=7 wanted=1");
    rig_granted(rig, rig_op(rig, OP_RENEW), 7);
    rig_expect(rig, t, "2 OK fence=7 ttl_ms=~ count=1");
    looked(rig, 1);
    expect_wanted(rig, t, "* WANTED a waiters=1");
}

Suite *
core_watch_suite(void)
{
    Suite *suite = suite_create("core_watch");
    TCase *tests = tcase_create("core_watch");

    tcase_add_test(tests, held_and_free);
    tcase_add_test(tests, coalesced);
    tcase_add_test(tests, slow_reader);
    tcase_add_test(tests, second_watcher);
    tcase_add_test(tests, refused);
    tcase_add_loop_test(tests, unavailable, 0, 2);
    tcase_add_test(tests, looked_at_again);
    tcase_add_test(tests, newest_of_several);
    tcase_add_test(tests, changed_and_back);
    tcase_add_test(tests, in_parts);
    tcase_add_test(tests, asked_again);
    tcase_add_test(tests, not_kept);
    tcase_add_test(tests, long_words);
    tcase_add_test(tests, odd_news);
    tcase_add_test(tests, more_than_a_step_tells);
    tcase_add_test(tests, wanted);
    tcase_add_test(tests, wanted_at_once);
    tcase_add_test(tests, wanted_and_upgraded);
    tcase_add_test(tests, wanted_by_both);
    tcase_add_test(tests, wanted_of_several);
    tcase_add_test(tests, wanted_here);
    tcase_add_test(tests, wanted_elsewhere);
    tcase_add_test(tests, wanted_and_watched);
    tcase_add_test(tests, wanted_and_moved);
    suite_add_tcase(suite, tests);
    return suite;
}

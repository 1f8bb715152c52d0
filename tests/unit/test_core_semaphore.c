/*
 * Tests of semaphores over several brokers (limit=, permits=), and of the words
 * of QUEUED and ERR BUSY.
 */
#include "tests/unit/core_net.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

Suite *core_semaphore_suite(void);

#define MS      1000u
#define CLIENTS 6

/* Clients at two brokers in turn. */
static struct {
    struct net *net;
    unsigned core[CLIENTS];
    unsigned session[CLIENTS];
} all;

static void
begin(void)
{
    all.net = calloc(1, sizeof(*all.net));
    rig_must(all.net != NULL);
    random_init(&all.net->random, 11);
    net_init(all.net, 2);
    for (unsigned i = 0; i < CLIENTS; i++) {
        all.core[i] = i % 2;
        all.session[i] = rig_open(all.net->rigs[i % 2]);
    }
}

static void
end(void)
{
    net_fini(all.net);
    free(all.net);
}

static void
say(unsigned client, const char *line)
{
    net_say(all.net, all.core[client], all.session[client], line);
    net_pass(all.net, 10 * MS);
}

static void
expect(unsigned client, const char *pattern)
{
    rig_expect(all.net->rigs[all.core[client]], all.session[client], pattern);
}

static void
silent(unsigned client)
{
    rig_silent(all.net->rigs[all.core[client]], all.session[client]);
}

static void
ask(unsigned client, const char *line, const char *pattern)
{
    say(client, line);
    expect(client, pattern);
}

static const char granted[] = "~ OK fence=~ ttl_ms=~ count=1";

static uint32_t
permits_out(void)
{
    const struct net_record *record = &all.net->records[0];
    uint32_t permits = 0;

    for (unsigned i = 0; i < record->count; i++)
        if (record->queue[i].granted &&
            record->queue[i].ends_us > all.net->now_us)
            permits += record->queue[i].permits;
    return permits;
}

/* As many as have the permits together, each with its fence. */
START_TEST(several_holders)
{
    begin();
    ask(0, "1 LOCK a limit=4 permits=2", "1 OK fence=1 ttl_ms=~ count=1");
    ask(1, "1 LOCK a limit=4", "1 OK fence=2 ttl_ms=~ count=1");
    ask(2, "1 LOCK a limit=4", "1 OK fence=3 ttl_ms=~ count=1");
    ask(3, "1 LOCK a limit=4 wait=0", "1 ERR BUSY retry=1 position=~ ~ ~");
    say(4, "1 LOCK a limit=4");
    silent(4);
    ck_assert_uint_eq(permits_out(), 4);
    ask(5, "1 SHOW a", "1 ITEM kind=holder ~ ~ permits=2 fence=1 ~ ~");
    expect(5, "1 ITEM kind=holder ~ ~ fence=2 ~ ~");
    expect(5, "1 ITEM kind=holder ~ ~ fence=3 ~ ~");
    expect(5, "1 ITEM kind=waiter position=1 ~ ~ ~");
    expect(5, "1 OK state=held mode=semaphore limit=4 permits=4 holders=3 "
              "waiters=1");
    ask(1, "2 UNLOCK a fence=3", "2 ERR STALE retry=0");
    ask(1, "3 UNLOCK a fence=2", "3 OK count=0");
    expect(4, "1 OK fence=4 ttl_ms=~ count=1");
    ck_assert_uint_eq(permits_out(), 4);
    net_pass(all.net, 120 * (uint64_t)SECOND_US); /* they are renewed */
    ck_assert_uint_eq(permits_out(), 4);
    for (unsigned i = 0; i < CLIENTS; i++)
        silent(i);
    end();
}

END_TEST

/* Who asks for many is not overtaken by those who ask for few. */
START_TEST(many_permits_are_not_starved)
{
    begin();
    ask(0, "1 LOCK a limit=3", granted);
    ask(1, "1 LOCK a limit=3", granted);
    say(2, "1 LOCK a limit=3 permits=3");
    silent(2);
    /* One is free, and nobody has it before the one who waits. */
    ask(3, "1 LOCK a limit=3 wait=0", "1 ERR BUSY retry=1 position=~ ~ ~");
    say(4, "1 LOCK a limit=3");
    say(5, "1 LOCK a limit=3 permits=2");
    ask(0, "2 UNLOCK a", "2 OK count=0");
    net_pass(all.net, 2000 * MS);
    silent(2);
    silent(4);
    ask(1, "2 UNLOCK a", "2 OK count=0");
    expect(2, "1 OK fence=3 ttl_ms=~ count=1");
    silent(4);
    silent(5);
    ck_assert_uint_eq(permits_out(), 3);
    ask(2, "2 UNLOCK a", "2 OK count=0");
    expect(4, "1 OK fence=4 ttl_ms=~ count=1");
    expect(5, "1 OK fence=5 ttl_ms=~ count=1");
    ck_assert_uint_eq(permits_out(), 3);
    end();
}

END_TEST

/* All must name the same limit=; it is open again when nobody is left. */
START_TEST(other_kinds)
{
    static const char *const lines[] = {"1 LOCK a limit=4", "1 LOCK a limit=2",
        "1 LOCK a", "1 LOCK a mode=shared", "1 LOCK a limit=2 wait=0"};

    for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++) {
        begin();
        ask(0, "1 LOCK a limit=3", granted);
        ask(1, lines[i], "1 ERR CONFLICT retry=0");
        ask(0, "2 LOCK a limit=4", "2 ERR CONFLICT retry=0");
        ask(0, "3 LOCK a limit=3 permits=2", "3 ERR CONFLICT retry=0");
        ask(0, "4 UNLOCK a", "4 OK count=0");
        ask(1, lines[i], granted);
        end();
    }
}

END_TEST

START_TEST(nonsense)
{
    static const char *const lines[] = {"1 LOCK a limit=3 permits=4",
        "1 LOCK a limit=3 permits=0", "1 LOCK a limit=0 permits=0",
        "1 LOCK a limit=0", "1 LOCK a permits=1",
        "1 LOCK a limit=1000001 permits=1000001", "1 LOCK a limit=-1",
        "1 LOCK a limit=4294967296", "1 LOCK a limit=3 mode=shared",
        "1 LOCK a b limit=3 permits=4"};

    begin();
    for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++) {
        ask(0, lines[i], "1 ERR BADREQ retry=0");
        ck_assert_uint_eq(all.net->records[0].arrival, 0);
    }
    ask(0, "1 LOCK a limit=3 permits=3", granted);
    ask(2, "1 LOCK b limit=4294967295 permits=1000000", granted);
    end();
}

END_TEST

/* However a holder ends, its permits are there for others, and no more. */
START_TEST(permits_come_back)
{
    static const char *const lines[] = {
        "2 UNLOCK a", "2 QUIT", NULL, NULL, NULL};

    for (unsigned how = 0; how < 5; how++) {
        begin();
        ask(0,
            how == 3 ? "1 LOCK a limit=3 permits=2 lease=1s"
                     : "1 LOCK a limit=3 permits=2",
            granted);
        ask(1, "1 LOCK a limit=3", granted);
        say(2, "1 LOCK a limit=3");
        say(3, "1 LOCK a limit=3");
        say(4, "1 LOCK a limit=3");
        silent(2);
        if (lines[how] != NULL)
            say(0, lines[how]);
        else if (how == 2)
            net_event(all.net, all.core[0], all.session[0], CORE_DROP);
        else if (how == 4)
            ask(5, "1 BREAK a fence=1", "1 OK holders=1");
        net_pass(all.net, 2500 * MS);
        expect(2, "1 OK fence=3 ttl_ms=~ count=1");
        expect(3, "1 OK fence=4 ttl_ms=~ count=1");
        silent(4);
        silent(1);
        ck_assert_uint_eq(permits_out(), 3);
        if (how == 3)
            expect(0, "* LOST a fence=1 reason=expired");
        if (how == 4)
            expect(0, "* LOST a fence=1 reason=broken");
        end();
    }
}

END_TEST

/* A broker dies: its holders' permits come back when their leases are over. */
START_TEST(permits_of_the_dead)
{
    begin();
    ask(0, "1 LOCK a limit=2", granted);
    ask(2, "1 LOCK a limit=2", granted);
    say(1, "1 LOCK a limit=2 permits=2");
    net_start(all.net, 0);
    net_pass(all.net, (RIG_LEASE_MS - 1000) * (uint64_t)MS);
    silent(1);
    net_pass(all.net, 3000 * MS);
    expect(1, "1 OK fence=3 ttl_ms=~ count=1");
    ck_assert_uint_eq(permits_out(), 2);
    end();
}

END_TEST

/* An owner has its permits once; another owner of the session has its own. */
START_TEST(reentry)
{
    begin();
    ask(0, "1 LOCK a limit=3 permits=2", granted);
    ask(0, "2 LOCK a limit=3 permits=2", "2 OK fence=1 ttl_ms=~ count=2");
    ck_assert_uint_eq(permits_out(), 2);
    ask(0, "3 LOCK a limit=3 owner=w", "3 OK fence=2 ttl_ms=~ count=1");
    ck_assert_uint_eq(permits_out(), 3);
    ask(0, "4 UNLOCK a", "4 OK count=1");
    ck_assert_uint_eq(permits_out(), 3);
    ask(0, "5 UNLOCK a", "5 OK count=0");
    ck_assert_uint_eq(permits_out(), 1);
    ask(0, "6 UNLOCK a", "6 ERR NOTHELD retry=0");
    ask(0, "7 UNLOCK a owner=w", "7 OK count=0");
    ck_assert_uint_eq(permits_out(), 0);
    end();
}

END_TEST

/* A session goes on at the other broker, with what it had. */
START_TEST(claimed)
{
    char id[33];
    char line[80];

    begin();
    say(0, "HELLO keep=10s");
    expect(0, "- OK ~ ~ ~ keep_ms=10000");
    ask(0, "1 LOCK a limit=3 permits=2", granted);
    ask(2, "1 LOCK a limit=3", granted);
    say(3, "1 LOCK a limit=3 permits=3");
    rig_id(all.net->rigs[0], all.session[0], id);
    net_event(all.net, all.core[0], all.session[0], CORE_DROP);
    snprintf(line, sizeof(line), "HELLO resume=%s gen=2 keep=10s", id);
    ask(1, line, "- OK ~ ~ ~ keep_ms=10000 gen=2");
    ask(1, "1 CLAIM a fence=1 count=2", "1 OK fence=1 ttl_ms=~ count=2");
    ck_assert_uint_eq(permits_out(), 3);
    ask(1, "2 HELD",
        "2 ITEM name=a fence=1 ttl_ms=~ count=2 limit=3 permits=2");
    expect(1, "2 OK n=1");
    ask(1, "3 LOCK a limit=3", "3 ERR CONFLICT retry=0");
    ask(1, "4 LOCK a limit=3 permits=2", "4 OK fence=1 ttl_ms=~ count=3");
    net_pass(all.net, 60 * (uint64_t)SECOND_US);
    ck_assert_uint_eq(permits_out(), 3);
    for (int i = 0; i < 3; i++)
        ask(1, "5 UNLOCK a", "5 OK count=~");
    ck_assert_uint_eq(permits_out(), 1);
    silent(3);
    ask(2, "2 UNLOCK a", "2 OK count=0");
    expect(3, "1 OK fence=3 ttl_ms=~ count=1");
    end();
}

END_TEST

/* --- QUEUED and ERR BUSY -------------------------------------------------- */

/* What a LOCK is told of an answer: `words` of BUSY, and of QUEUED. */
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
START_TEST(queued_once)
{
    struct rig *rig = rig_new();
    unsigned s = rig_open(rig);

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
    rig_end(rig);
}

END_TEST

/* Too many permits are out, by what Redis says: a hold that nobody here counts
 * on is given up before one that somebody does, and the oldest of those. */
START_TEST(too_many_out)
{
    struct rig *rig = rig_new();
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
    rig_end(rig);
}

END_TEST

Suite *
core_semaphore_suite(void)
{
    Suite *suite = suite_create("core_semaphore");
    TCase *tests = tcase_create("core_semaphore");

    tcase_add_test(tests, several_holders);
    tcase_add_test(tests, many_permits_are_not_starved);
    tcase_add_test(tests, other_kinds);
    tcase_add_test(tests, nonsense);
    tcase_add_test(tests, permits_come_back);
    tcase_add_test(tests, permits_of_the_dead);
    tcase_add_test(tests, reentry);
    tcase_add_test(tests, claimed);
    tcase_add_test(tests, too_many_out);
    tcase_add_test(tests, words);
    tcase_add_test(tests, queued_once);
    suite_add_tcase(suite, tests);
    return suite;
}

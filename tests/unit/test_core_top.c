/*
 * Tests of daemon/core/feature/top.c: what TOP tells, in what order, to whom.
 * How contention is counted is in test_contention.c; that both lists of the
 * oldest are as they should be, core_check() looks at after each step.
 */
#include "conf/users.h"
#include "daemon/op/op.h"
#include "tests/unit/core_rig.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

Suite *core_top_suite(void);

RIG_TEST(nothing, rig_new())
{
    unsigned a = rig_open(rig);

    rig_ask(rig, a, "1 TOP", "1 OK n=0");
    rig_lock(rig, a, "2 LOCK x", 5);
    rig_say(rig, a, "3 UNLOCK x");
    rig_status(rig, rig_op(rig, OP_RELEASE), OP_OK);
    rig_expect(rig, a, "3 OK count=0");
    rig_say(rig, a, "4 TOP"); /* nobody has waited */
    rig_expect(rig, a, "4 OK n=0");
}

/* Of each kind all that is told. */
RIG_TEST(all_kinds, rig_new())
{
    unsigned a = rig_open(rig);
    unsigned b = rig_open(rig);

    rig_ask(rig, a, "1 HELLO name=shop%0A", "1 OK session=~ proto=1 server=~");
    rig_lock(rig, a, "2 LOCK x%20y owner=w note=n%09", 5);
    rig_lock(rig, a, "3 LOCK s mode=shared", 6);
    rig_pass(rig, 100);
    rig_wait(rig, b, "1 LOCK x%20y limit=3 permits=2 note=m");
    rig_pass(rig, 50);
    rig_ask(rig, a, "4 TOP",
        "4 ITEM kind=contended name=x%20y waits=1 waited_ms=50 waiters=1");
    rig_expect(rig, a,
        "4 ITEM kind=holder name=x%20y age_ms=150 session=~ fence=5 "
        "client=shop%0A owner=w note=n%09");
    rig_expect(rig, a,
        "4 ITEM kind=holder name=s age_ms=150 session=~ fence=6 mode=shared "
        "client=shop%0A");
    rig_expect(rig, a,
        "4 ITEM kind=waiter name=x%20y age_ms=50 session=~ limit=3 permits=2 "
        "note=m");
    rig_expect(rig, a, "4 OK n=4");
}

/* The values of `key` for x, in the order of kinds. */
static void
expect_ages(struct rig *rig, unsigned s, const char *kind, const char *names,
    const unsigned *ages)
{
    char line[80];

    for (size_t i = 0; names[i] != '\0'; i++) {
        snprintf(line, sizeof(line), "kind=%s name=%c age_ms=%u ", kind,
            names[i], ages[i]);
        const char *got = rig_line(rig, s);
        ck_assert_msg(strstr(got, line) != NULL, "%s, not %s", got, line);
    }
}

static void
expect_namespace(const struct core_namespace *namespace, unsigned held,
    unsigned hold_ms, unsigned waiting, unsigned wait_ms)
{
    ck_assert_uint_eq(namespace->held, held);
    ck_assert_uint_eq(namespace->oldest_hold_us, hold_ms * 1000);
    ck_assert_uint_eq(namespace->waiting, waiting);
    ck_assert_uint_eq(namespace->oldest_wait_us, wait_ms * 1000);
}

/* They come by their age, whatever their namespaces are and become. */
START_TEST(by_age_in_any_namespace)
{
    static const unsigned held[] = {60, 50, 40, 30};
    static const unsigned waited[] = {20, 10};
    static const char *const locks[] = {
        "1 LOCK a", "1 LOCK c", "1 LOCK b", "1 LOCK d", "1 LOCK b", "1 LOCK a"};
    const struct text prefixes[] = {TEXT("a"), TEXT("b"), TEXT("c")};
    struct core_namespace namespaces[NAMESPACES_MAX + 1];
    struct rig *rig = rig_new();
    struct core_settings settings = rig->settings;
    unsigned s = rig_open(rig);
    unsigned t = rig_open(rig);
    unsigned u = rig_open(rig);

    for (int i = 0; i < 6; i++) {
        if (i < 4)
            rig_lock(rig, s, locks[i], 5);
        else
            rig_wait(rig, i == 4 ? t : u, locks[i]);
        rig_pass(rig, 10);
    }
    for (int turn = 0; turn < 3; turn++) {
        settings.namespaces = turn < 2 ? prefixes : prefixes + 2;
        settings.namespace_count = turn == 0 ? 0 : turn == 1 ? 2 : 1;
        core_configure(rig->core, &settings);
        rig_say(rig, s, "2 TOP");
        rig_line(rig, s);
        rig_line(rig, s);
        expect_ages(rig, s, "holder", "acbd", held);
        expect_ages(rig, s, "waiter", "ba", waited);
        rig_expect(rig, s, "2 OK n=8");
        (void)core_namespaces(rig->core, rig->now_us, namespaces);
        expect_namespace(&namespaces[0], turn == 0 ? 4 : 1, turn < 2 ? 60 : 50,
            turn == 0 ? 2 : turn == 1,
            turn == 0   ? 20
            : turn == 1 ? 10
                        : 0);
    }
    expect_namespace(&namespaces[1], 3, 60, 2, 20);
    rig_end(rig);
}

END_TEST

/* A wait ends where it is granted, and its hold begins; the oldest come first,
 * whatever the order of the tickets. */
RIG_TEST(a_hand_over, rig_new())
{
    unsigned a = rig_open(rig);
    unsigned b = rig_open(rig);

    rig_lock(rig, a, "1 LOCK x", 5);
    rig_pass(rig, 10);
    rig_wait(rig, b, "1 LOCK x");
    rig_pass(rig, 10);
    rig_lock(rig, a, "2 LOCK y", 6);
    rig_pass(rig, 10);
    rig_say(rig, a, "3 UNLOCK x");
    rig_status(rig, rig_op(rig, OP_RELEASE), OP_OK);
    rig_expect(rig, a, "3 OK count=0");
    rig_pass(rig, 200); /* Redis is asked for who is next */
    while (rig->op_count > 0 && rig->ops[0]->kind == OP_LOOK)
        rig_status(rig, rig->ops[0], OP_OK);
    rig_say(rig, a, "4 TOP limit=5");
    ck_assert_ptr_nonnull(strstr(rig_line(rig, a), "kind=contended name=x "));
    expect_ages(rig, a, "holder", "y", (const unsigned[]){210});
    expect_ages(rig, a, "waiter", "x", (const unsigned[]){220});
    rig_expect(rig, a, "4 OK n=3");
    rig_ask(rig, b, "2 CANCEL 1", "1 ERR CANCELLED retry=1");
    rig_expect(rig, b, "2 OK");
    rig_status(rig, rig_op(rig, OP_RELEASE), OP_OK);
    rig_lock(rig, b, "3 LOCK x", 7);
    rig_ask(rig, a, "5 TOP",
        "5 ITEM kind=contended name=x waits=1 waited_ms=220 waiters=0");
    expect_ages(rig, a, "holder", "yx", (const unsigned[]){210, 0});
    rig_expect(rig, a, "5 OK n=3");
}

/* That Redis has lost it, and it is put there again, is no end of a wait. */
RIG_TEST(a_wait_that_is_put_again, rig_new())
{
    unsigned a = rig_open(rig);

    rig_wait(rig, a, "1 LOCK x deadlock=0");
    rig_wait(rig, a, "2 LOCK y deadlock=0");
    rig_pass(rig, RIG_LEASE_MS / 3);
    struct op *op = rig_op(rig, OP_RENEW);
    while (op->name.at[0] != 'x') {
        rig_queued(rig, op);
        op = rig_op(rig, OP_RENEW);
    }
    rig_status(rig, op, OP_GONE);
    op = rig->ops[rig->op_count - 1];
    ck_assert_int_eq(op->kind, OP_ACQUIRE);
    rig_say(rig, a, "3 TOP"); /* it is asked for, and waits */
    rig_expect(rig, a,
        "3 ITEM kind=contended name=~ waits=1 waited_ms=10000 waiters=1");
    rig_expect(rig, a,
        "3 ITEM kind=contended name=~ waits=1 waited_ms=10000 waiters=1");
    expect_ages(rig, a, "waiter", "xy", (const unsigned[]){10000, 10000});
    rig_expect(rig, a, "3 OK n=4");
    rig_queued(rig, op);
    rig_ask(rig, a, "4 TOP limit=1",
        "4 ITEM kind=contended name=~ waits=1 waited_ms=10000 waiters=1");
    expect_ages(rig, a, "waiter", "x", (const unsigned[]){10000});
    rig_expect(rig, a, "4 OK n=2");
}

/* If its time is over just then, the owner's next request is another wait. */
RIG_TEST(another_wait, rig_new())
{
    unsigned a = rig_open(rig);

    rig_wait(rig, a, "1 LOCK x wait=10s");
    rig_say(rig, a, "2 LOCK x");
    rig_pass(rig, RIG_LEASE_MS / 3 - 1);
    struct op *op = rig_op(rig, OP_RENEW);
    rig_stall(rig, 2);
    rig_status(rig, op, OP_GONE);
    rig_expect(rig, a, "1 ERR TIMEOUT retry=1");
    rig_queued(rig, rig->ops[rig->op_count - 1]);
    rig_pass(rig, 5);
    rig_ask(rig, a, "3 TOP",
        "3 ITEM kind=contended name=x waits=2 waited_ms=10006 waiters=1");
    expect_ages(rig, a, "waiter", "x", (const unsigned[]){5});
    rig_expect(rig, a, "3 OK n=2");
}

/* A minute after the last wait half of it is left. */
RIG_TEST(it_fades, rig_new())
{
    unsigned a = rig_open(rig);

    for (int i = 0; i < 4; i++) {
        rig_wait(rig, a, "1 LOCK x");
        rig_pass(rig, 1000);
        rig_ask(rig, a, "2 CANCEL 1", "1 ERR CANCELLED retry=1");
        rig_expect(rig, a, "2 OK");
        rig_status(rig, rig_op(rig, OP_RELEASE), OP_OK);
    }
    /* Nothing has to be done for it by an idle broker. */
    ck_assert_uint_ge(core_next_us(rig->core), rig->now_us + 600 * SECOND_US);
    static const char *const faded[] = {
        "4 waited_ms=4000", "2 waited_ms=2000", "1 waited_ms=1000"};
    for (size_t i = 0; i < 3; i++) {
        char line[80];
        snprintf(line, sizeof(line),
            "3 ITEM kind=contended name=x waits=%s waiters=0", faded[i]);
        rig_ask(rig, a, "3 TOP", line);
        rig_expect(rig, a, "3 OK n=1");
        rig_pass(rig, 60000);
    }
    rig_ask(rig, a, "3 TOP", "3 OK n=0");
}

/* Of many names those are told that were waited for most, with what may be
 * missing. */
RIG_TEST(many_names, rig_new())
{
    unsigned a = rig_open(rig);
    char line[80];

    for (int i = 0; i < 200; i++) {
        snprintf(line, sizeof(line), "1 LOCK %s%d", i % 2 == 0 ? "hot" : "x",
            i % 2 == 0 ? 0 : i);
        rig_wait(rig, a, line);
        rig_ask(rig, a, "2 CANCEL 1", "1 ERR CANCELLED retry=1");
        rig_expect(rig, a, "2 OK");
        rig_status(rig, rig_op(rig, OP_RELEASE), OP_OK);
    }
    rig_ask(rig, a, "3 TOP limit=2",
        "3 ITEM kind=contended name=hot0 waits=100 waited_ms=0 waiters=0");
    rig_expect(
        rig, a, "3 ITEM kind=contended name=~ waits=1 ~ waited_ms=0 waiters=0");
    rig_expect(rig, a, "3 OK n=2");
    rig_say(rig, a, "4 TOP limit=500");
    for (int i = 0; i < 64; i++)
        ck_assert_ptr_nonnull(strstr(rig_line(rig, a), "kind=contended"));
    rig_expect(rig, a, "4 OK n=64");
}

RIG_TEST(limits, rig_create())
{
    char line[80];

    rig->settings.holds_max = 256;
    rig_start(rig);
    unsigned a = rig_open(rig);
    for (unsigned i = 0; i < 105; i++) {
        snprintf(line, sizeof(line), "1 LOCK x%u", i);
        rig_lock(rig, a, line, 5 + i);
    }
    static const unsigned counts[][2] = {
        {0, 0}, {1, 1}, {10, 10}, {100, 100}, {101, 100}, {4294967295, 100}};
    for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
        snprintf(line, sizeof(line), "2 TOP limit=%u", counts[i][0]);
        rig_say(rig, a, counts[i][0] == 10 ? "2 TOP" : line);
        for (unsigned n = 0; n < counts[i][1]; n++) {
            snprintf(line, sizeof(line), "kind=holder name=x%u ", n);
            ck_assert_ptr_nonnull(strstr(rig_line(rig, a), line));
        }
        snprintf(line, sizeof(line), "2 OK n=%u", counts[i][1]);
        rig_expect(rig, a, line);
    }
    rig_ask(rig, a, "3 TOP x", "3 ERR BADREQ retry=0");
    rig_ask(rig, a, "4 TOP limit=x", "4 ERR BADREQ retry=0");
    rig_ask(rig, a, "5 TOP cursor=1", "5 ERR BADREQ retry=0");
}

/* All that there may be, as long as it may be, fits into a step. */
RIG_TEST(longest_lines, rig_create())
{
    char line[2000];
    char bytes[3 * 255 + 1];

    rig->settings.holds_max = 256;
    rig_start(rig);
    unsigned a = rig_open(rig);
    unsigned b = rig_open(rig);
    for (size_t i = 0; i < 255; i++)
        memcpy(bytes + 3 * i, "%01", 4);
    snprintf(line, sizeof(line), "1 HELLO name=%.192s", bytes);
    rig_ask(rig, a, line, "1 OK session=~ proto=1 server=~");
    for (unsigned i = 0; i < 30; i++) {
        snprintf(line, sizeof(line),
            "LOCK %.756s%03u note=%.384s owner=%.96s lease=24h limit=1000000 "
            "permits=1000000",
            bytes, i, bytes, bytes);
        if (i % 2 == 0)
            rig_lock(rig, a, line, 9007199254740000 + i);
        else
            rig_wait(rig, a, line);
    }
    rig_say(rig, b, "1 TOP limit=100");
    unsigned contended = 0;
    while (strncmp(rig_line(rig, b), "1 ITEM", 6) == 0)
        contended++;
    ck_assert_uint_eq(contended, 15 + 15 + 15);
}

static struct users *
users_of(const char *text)
{
    char error[200];
    struct users *users = users_parse("users", text_from(text), error, 200);

    ck_assert_msg(users != NULL, "%s", error);
    return users;
}

/* Each is told of what the right to see covers; nobody of others' names. */
START_TEST(rights)
{
    struct users *users = users_of("shop uid=1 lock=stock/*\n"
                                   "desk uid=2 see=desk/* see=stock/1\n"
                                   "ops uid=3 admin\n"
                                   "none uid=4\n");
    struct rig *rig = rig_create();

    rig->settings.users = users;
    rig_start(rig);
    unsigned unknown = rig_open_tcp(rig);
    rig_ask(rig, unknown, "1 TOP", "1 ERR AUTH retry=0");
    unsigned s[4];
    for (uint32_t i = 0; i < 4; i++) {
        rig->user = users_of_uid(users, i + 1, &rig->mark);
        s[i] = rig_open(rig);
    }
    rig_lock(rig, s[0], "1 LOCK stock/0", 5);
    rig_lock(rig, s[0], "2 LOCK stock/1", 6);
    rig_wait(rig, s[0], "3 LOCK stock/2");
    rig_wait(rig, s[0], "4 LOCK stock/1 owner=w");
    static const unsigned counts[] = {6, 3, 6, 0};
    for (size_t i = 0; i < 4; i++) {
        char line[40];
        rig_say(rig, s[i], "5 TOP");
        for (unsigned n = 0; n < counts[i]; n++) {
            const char *item = rig_line(rig, s[i]);
            ck_assert_ptr_nonnull(strstr(item, " ITEM kind="));
            ck_assert(i != 1 || strstr(item, " name=stock/1 ") != NULL);
        }
        snprintf(line, sizeof(line), "5 OK n=%u", counts[i]);
        rig_expect(rig, s[i], line);
        /* Hidden locks take no place of visible ones. */
        rig_say(rig, s[i], "6 TOP limit=1");
        for (unsigned n = 0; n < counts[i] && n < 3; n++)
            ck_assert_ptr_nonnull(strstr(rig_line(rig, s[i]), " ITEM kind="));
        snprintf(line, sizeof(line), "6 OK n=%u", counts[i] > 0 ? 3 : 0);
        rig_expect(rig, s[i], line);
    }
    rig->user = NULL;
    rig_end(rig);
    users_destroy(&users);
}

END_TEST

#define HOLDS 4100 /* more than one request looks at */

/* A user who may see what is behind so many that one may not. */
START_TEST(so_many_looks)
{
    struct users *users = users_of("shop uid=1 lock=*\n"
                                   "desk uid=2 see=last\n");
    struct rig *rig = rig_create();
    char line[40];

    rig->settings.users = users;
    rig->settings.holds_max = 2 * HOLDS;
    rig->settings.tickets_max = 2 * HOLDS;
    rig_start(rig);
    rig->user = users_of_uid(users, 1, &rig->mark);
    unsigned shop = rig_open(rig);
    rig->user = users_of_uid(users, 2, &rig->mark);
    unsigned desk = rig_open(rig);
    for (uint32_t i = 0; i < HOLDS; i++) {
        snprintf(line, sizeof(line), "1 LOCK x%u", i);
        rig_lock(rig, shop, line, 5);
        rig->sessions[shop].read = rig->sessions[shop].written = 0;
        if (i == 4094) {
            rig_lock(rig, shop, "1 LOCK last", 5);
            rig_say(rig, desk, "1 TOP");
            ck_assert_ptr_nonnull(strstr(rig_line(rig, desk), " name=last "));
            rig_expect(rig, desk, "1 OK n=1");
            rig_say(rig, shop, "2 UNLOCK last");
            rig_status(rig, rig_op(rig, OP_RELEASE), OP_OK);
            rig_expect(rig, shop, "2 OK count=0");
        }
    }
    rig_lock(rig, shop, "1 LOCK last", 5);
    rig_ask(rig, desk, "2 TOP", "2 OK n=0 cut=1");
    rig_free(rig);
    users_destroy(&users);
}

END_TEST

/* Requests while it waits and holds: sessions that are gone leave nothing on
 * the lists. */
RIG_TEST(sessions_that_end, rig_new())
{
    unsigned a = rig_open(rig);
    unsigned b = rig_open(rig);

    rig_lock(rig, a, "1 LOCK x", 5);
    rig_wait(rig, a, "2 LOCK y");
    rig_event(rig, a, CORE_DROP);
    rig_status(rig, rig_op(rig, OP_RELEASE), OP_OK);
    rig_status(rig, rig_op(rig, OP_RELEASE), OP_OK);
    rig_ask(rig, b, "1 TOP",
        "1 ITEM kind=contended name=y waits=1 waited_ms=0 waiters=0");
    rig_expect(rig, b, "1 OK n=1");
}

Suite *
core_top_suite(void)
{
    Suite *suite = suite_create("core_top");
    TCase *tests = tcase_create("all");

    tcase_set_timeout(tests, 120);
    tcase_add_test(tests, nothing);
    tcase_add_test(tests, all_kinds);
    tcase_add_test(tests, by_age_in_any_namespace);
    tcase_add_test(tests, a_hand_over);
    tcase_add_test(tests, a_wait_that_is_put_again);
    tcase_add_test(tests, another_wait);
    tcase_add_test(tests, it_fades);
    tcase_add_test(tests, many_names);
    tcase_add_test(tests, limits);
    tcase_add_test(tests, longest_lines);
    tcase_add_test(tests, rights);
    tcase_add_test(tests, so_many_looks);
    tcase_add_test(tests, sessions_that_end);
    suite_add_tcase(suite, tests);
    return suite;
}

/*
 * Tests of daemon/core/deadlock.c: circles of waits within one broker and over
 * several, and what must not be taken for one.
 */
#include "tests/unit/core_net.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

Suite *core_deadlock_suite(void);

#define MS 1000u

static struct net *
net_new(unsigned cores)
{
    struct net *net = calloc(1, sizeof(*net));

    rig_must(net != NULL);
    random_init(&net->random, 7);
    net_init(net, cores);
    return net;
}

static void
net_free(struct net *net)
{
    net_fini(net);
    free(net);
}

/* A client at a core. */
struct at {
    unsigned core;
    unsigned session;
};

static struct at
client(struct net *net, unsigned core)
{
    return (struct at){core, rig_open(net->rigs[core])};
}

static void
say(struct net *net, struct at at, const char *line)
{
    net_say(net, at.core, at.session, line);
}

static const char *
heard(struct net *net, struct at at)
{
    return rig_line(net->rigs[at.core], at.session);
}

static void
expect(struct net *net, struct at at, const char *pattern)
{
    rig_expect(net->rigs[at.core], at.session, pattern);
}

static void
have(struct net *net, struct at at, const char *line)
{
    say(net, at, line);
    net_pass(net, 10 * MS);
    expect(net, at, "~ OK fence=~ ttl_ms=~ count=1");
}

/* `count` clients hold a lock each and wait for the next one's, the last for
 * the first one's: it is the youngest. */
static void
circle(struct net *net, struct at *at, unsigned count)
{
    char line[40];

    for (unsigned i = 0; i < count; i++) {
        snprintf(line, sizeof(line), "1 LOCK %c", 'a' + i);
        have(net, at[i], line);
    }
    for (unsigned i = 0; i < count; i++) {
        snprintf(line, sizeof(line), "2 LOCK %c", 'a' + (i + 1) % count);
        say(net, at[i], line);
        net_pass(net, 10 * MS);
    }
}

/* Within 100 ms in one broker, a second over two: the youngest, and only it. */
START_TEST(circles)
{
    static const struct {
        unsigned cores, count;
    } table[] = {{1, 2}, {1, 4}, {2, 2}, {2, 4}, {3, 8}};

    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
        struct net *net = net_new(table[i].cores);
        struct at at[8];
        unsigned count = table[i].count;
        for (unsigned k = 0; k < count; k++)
            at[k] = client(net, k % table[i].cores);
        circle(net, at, count);
        net_pass(net, table[i].cores == 1 ? 100 * MS : 1000 * MS);
        const char *line = heard(net, at[count - 1]);
        ck_assert_msg(strncmp(line, "2 ERR DEADLOCK retry=1 cycle=", 29) == 0,
            "%s", line);
        ck_assert_uint_eq(strlen(line + 29), 2 * count - 1);
        for (unsigned k = 0; k + 1 < count; k++)
            ck_assert_str_eq(heard(net, at[k]), "");
        /* It gives back what it has, and the others go on. */
        say(net, at[count - 1], "3 UNLOCK a");
        expect(net, at[count - 1], "3 ERR NOTHELD retry=0");
        char unlock[20];
        snprintf(unlock, sizeof(unlock), "4 UNLOCK %c", 'a' + count - 1);
        say(net, at[count - 1], unlock);
        net_pass(net, 20 * MS);
        expect(net, at[count - 2], "2 OK fence=~ ttl_ms=~ count=1");
        net_free(net);
    }
}

END_TEST

/* Two owners of one session wait for one another too. */
START_TEST(owners)
{
    struct net *net = net_new(1);
    struct at at = client(net, 0);

    have(net, at, "1 LOCK a owner=x");
    have(net, at, "2 LOCK b owner=y");
    say(net, at, "3 LOCK b owner=x");
    say(net, at, "4 LOCK a owner=y");
    net_pass(net, 100 * MS);
    expect(net, at, "~ ERR DEADLOCK retry=1 cycle=~");
    ck_assert_str_eq(heard(net, at), "");
    net_free(net);
}

END_TEST

/* In a LOCK of several names the reply names the one that was waited for. */
START_TEST(several_names)
{
    struct net *net = net_new(2);
    struct at x = client(net, 0);
    struct at y = client(net, 1);

    have(net, x, "1 LOCK a");
    have(net, y, "1 LOCK b");
    say(net, x, "2 LOCK b");
    net_pass(net, 10 * MS);
    say(net, y, "2 LOCK c a");
    net_pass(net, 1000 * MS);
    expect(net, y, "2 ERR DEADLOCK retry=1 cycle=~ name=a");
    net_free(net);
}

END_TEST

/* Who stands before in the queue is in the way as a holder is. */
START_TEST(through_the_queue)
{
    struct net *net = net_new(1);
    struct at x = client(net, 0);
    struct at y = client(net, 0);
    struct at z = client(net, 0);

    have(net, x, "1 LOCK a mode=shared");
    have(net, y, "1 LOCK b");
    say(net, y, "2 LOCK a");
    net_pass(net, 10 * MS);
    have(net, z, "1 LOCK c");
    say(net, z, "2 LOCK a mode=shared");
    net_pass(net, 10 * MS);
    say(net, x, "2 LOCK c");
    net_pass(net, 200 * MS);
    /* x waits for z, z for y, y for x. */
    expect(net, x, "2 ERR DEADLOCK retry=1 cycle=~");
    net_free(net);
}

END_TEST

/* The last wait of these is none, or ends, or is not the owner's only doing. */
START_TEST(no_circle)
{
    static const char *const lasts[] = {"2 LOCK a wait=0", "2 LOCK a wait=25",
        "2 LOCK a deadlock=0", "2 LOCK c"};

    for (unsigned i = 0; i < 2 * sizeof(lasts) / sizeof(lasts[0]); i++) {
        struct net *net = net_new(2);
        struct at x = client(net, 0);
        struct at y = client(net, i % 2);
        have(net, x, "1 LOCK a");
        have(net, y, "1 LOCK b");
        say(net, x, "2 LOCK b");
        net_pass(net, 200 * MS);
        say(net, y, lasts[i / 2]);
        net_pass(net, 3000 * MS);
        ck_assert_str_eq(heard(net, x), "");
        ck_assert_ptr_null(strstr(heard(net, y), "DEADLOCK"));
        net_free(net);
    }
}

END_TEST

/*
 * A wait of the circle ends at any moment: before it is looked for (30 ms)
 * nobody is told of one, and after it was found all waits have ended or go on.
 */
START_TEST(ends_meanwhile)
{
    unsigned found = 0;

    for (unsigned us = 0; us < 60000; us += 250) {
        struct net *net = net_new(2);
        struct at x = client(net, 0);
        struct at y = client(net, 1);
        have(net, x, "1 LOCK a");
        have(net, y, "1 LOCK b");
        say(net, x, "2 LOCK b");
        say(net, y, "2 LOCK a");
        net_pass(net, 1 + us);
        say(net, x, "3 CANCEL 2");
        net_pass(net, 1000 * MS);
        bool told = strstr(heard(net, x), "DEADLOCK") != NULL ||
                    strstr(heard(net, y), "DEADLOCK") != NULL;
        rig_must(!told || us >= 30 * MS);
        found += told;
        net_free(net);
    }
    ck_assert_uint_gt(found, 0);
}

END_TEST

/* Only a sole holder of a semaphore is in the way for certain. */
START_TEST(semaphores)
{
    for (int sole = 0; sole < 2; sole++) {
        struct net *net = net_new(1);
        struct at x = client(net, 0);
        struct at y = client(net, 0);
        struct at z = client(net, 0);
        have(net, x, sole ? "1 LOCK a limit=2 permits=2" : "1 LOCK a limit=2");
        if (!sole)
            have(net, z, "1 LOCK a limit=2");
        have(net, y, "1 LOCK b");
        say(net, x, "2 LOCK b");
        net_pass(net, 10 * MS);
        say(net, y, "2 LOCK a limit=2 permits=2");
        net_pass(net, 2000 * MS);
        ck_assert_int_eq(strstr(heard(net, y), "DEADLOCK") != NULL, sole);
        net_free(net);
    }
}

END_TEST

/* A message that says nothing true: of any length, with any byte changed. */
START_TEST(odd_messages)
{
    struct net *net = net_new(1);
    struct at x = client(net, 0);
    struct at y = client(net, 0);
    struct rig *rig = net->rigs[0];
    char bytes[3 + 2 * 58];

    have(net, x, "1 LOCK a");
    have(net, y, "1 LOCK b");
    say(net, x, "2 LOCK b");
    net_pass(net, 10 * MS);
    for (unsigned kind = 0; kind < 4; kind++) {
        for (size_t len = 0; len <= sizeof(bytes); len++) {
            memset(bytes, 0, sizeof(bytes));
            bytes[0] = "DVKX"[kind];
            bytes[1] = (char)(kind == 0 ? 1 : 2);
            for (unsigned node = 0; node < 2; node++) {
                char *at = bytes + 3 + node * 58;
                memcpy(at, rig->sessions[0].id, 16);
                memcpy(at + 24, rig->settings.broker_id, 8);
                at[56] = 1;
                at[57] = 'b';
            }
            rig_news(rig, bytes, len);
            net_pass(net, 5 * MS);
        }
        for (size_t i = 0; i < sizeof(bytes) * 2; i++) {
            char one[sizeof(bytes)];
            memcpy(one, bytes, sizeof(one));
            one[i / 2] = (char)(i % 2 ? 0xff : one[i / 2] + 1);
            rig_news(rig, one, sizeof(one));
            net_pass(net, 5 * MS);
        }
    }
    ck_assert_str_eq(heard(net, x), "");
    ck_assert_str_eq(heard(net, y), "");
    net_free(net);
}

END_TEST

/* More searches than there is room for: some are dropped, later ones find. */
START_TEST(room_for_probes)
{
    struct rig *rig = rig_new();
    unsigned s = rig_open(rig);
    char bytes[3 + 2 * 58] = "D\1";

    rig_lock(rig, s, "1 LOCK a", 4);
    rig_wait(rig, s, "2 LOCK b");
    memcpy(bytes + 3, "another session!", 16);
    bytes[3 + 56] = bytes[3 + 58 + 56] = 1;
    memcpy(bytes + 3 + 58, rig->sessions[s].id, 16);
    uint32_t asked = 0;
    for (uint32_t i = 0; i < RIG_OPS - 2; i++) {
        memcpy(bytes + 3 + 48, &i, sizeof(i));
        rig_news(rig, bytes, sizeof(bytes));
        if (rig->op_count == asked)
            break;
        asked = rig->op_count;
    }
    ck_assert_uint_gt(asked, 100);
    rig_pass(rig, 100); /* its own search finds no room */
    while (rig->op_count > 0)
        rig_status(rig, rig->ops[0], OP_UNSENT);
    rig_pass(rig, 1000);
    ck_assert_int_eq(rig_op(rig, OP_INSPECT)->reader, READER_DEADLOCK);
    rig_end(rig);
}

END_TEST

Suite *
core_deadlock_suite(void)
{
    Suite *suite = suite_create("core_deadlock");
    TCase *tests = tcase_create("core_deadlock");

    tcase_set_timeout(tests, 60);
    tcase_add_test(tests, circles);
    tcase_add_test(tests, owners);
    tcase_add_test(tests, several_names);
    tcase_add_test(tests, through_the_queue);
    tcase_add_test(tests, no_circle);
    tcase_add_test(tests, ends_meanwhile);
    tcase_add_test(tests, semaphores);
    tcase_add_test(tests, odd_messages);
    tcase_add_test(tests, room_for_probes);
    suite_add_tcase(suite, tests);
    return suite;
}

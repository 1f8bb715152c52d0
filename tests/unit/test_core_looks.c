/*
 * Tests of daemon/core/feature/inspections.c: the search for cycles reads
 * records no more often than it must, and leaves Redis time for all else.
 */
#include "daemon/op/op.h"
#include "tests/unit/core_stub.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

Suite *core_looks_suite(void);

/* Another broker's search comes to the owners without a word of two sessions,
 * who are in the way of a wait for `name`. */
static void
ask_after_both(struct rig *rig, unsigned first, unsigned second, char name,
    uint32_t search)
{
    char bytes[3 + RIG_NODE_BYTES + 1 + 2 * RIG_ASKED_BYTES] = "D\1\2";
    const struct rig_node node = {.session = rig_other_session,
        .broker = rig_other_broker,
        .fence = search,
        .name = name};
    char *at = rig_node(bytes + 3, &node) + 1;

    memcpy(at, rig->sessions[first].id, 16);
    memcpy(at + RIG_ASKED_BYTES, rig->sessions[second].id, 16);
    rig_news(rig, bytes, sizeof(bytes));
}

static void
ask_after(struct rig *rig, unsigned session, char name, uint32_t search)
{
    ask_after_both(rig, session, session, name, search);
}

static struct op *
look(struct rig *rig)
{
    struct op *op = rig_op(rig, OP_INSPECT);

    ck_assert_int_eq(op->reader, READER_DEADLOCK);
    return op;
}

/* A record of so many tickets, none of which is anybody's here. */
static void
finish(struct rig *rig, struct op *op, unsigned tickets)
{
    static const struct op_ticket others[512];

    rig_finish(rig, op,
        (struct op_result){.tickets = others, .ticket_count = tickets});
}

/* As many as come before it is sent share a reading; those that come while it
 * is under way, another one, which is not sent before the first is back. */
SESSION_TEST(shared)
{
    rig_wait(rig, s, "1 LOCK b");
    for (uint32_t search = 1; search <= 5; search++)
        ask_after(rig, s, 'a', search);
    ck_assert_uint_eq(rig->op_count, 1);
    finish(rig, look(rig), 3);
    ck_assert_uint_eq(rig->op_count, 1);
    finish(rig, look(rig), 3);
    rig_no_op(rig);
    ck_assert_uint_eq(rig_count(rig, COUNTER_deadlock_looks), 2);
    ck_assert_uint_eq(rig_count(rig, COUNTER_deadlock_looks_late), 0);
}

/* A ticket in the way of a waiter for the same lock is in the way of those
 * behind it, too. */
SESSION_TEST(same_lock)
{
    rig_wait(rig, s, "1 LOCK a");
    ask_after(rig, s, 'a', 1);
    rig_no_op(rig);
    rig_wait(rig, s, "2 LOCK b deadlock=0");
    ask_after(rig, s, 'a', 2);
    rig_no_op(rig);
    ask_after(rig, s, 'b', 3);
    ck_assert_int_eq(look(rig)->name.at[0], 'a');
}

/* A wait that has ended before it is looked at is not read. */
SESSION_TEST(ended)
{
    rig_wait(rig, s, "1 LOCK b");
    ask_after(rig, s, 'a', 1);
    ask_after(rig, s, 'a', 2);
    rig_ask(rig, s, "2 CANCEL 1", "1 ERR CANCELLED retry=~");
    rig_expect(rig, s, "2 OK~");
    finish(rig, look(rig), 3);
    ck_assert_int_eq(rig_op(rig, OP_RELEASE)->kind, OP_RELEASE);
    ck_assert_uint_eq(rig->op_count, 1);
}

static const struct rests_row {
    unsigned tickets, rest_ms;
} rests_rows[] = {{3, 0}, {40, 4}, {300, 30}, {512, 51}};

/* The longer a record, the longer it is not read again. */
SESSION_TEST(rests)
{
    const struct rests_row *row = &rests_rows[_i];
    rig_wait(rig, s, "1 LOCK b");
    ask_after(rig, s, 'a', 1);
    finish(rig, look(rig), row->tickets);
    ask_after(rig, s, 'a', 2);
    if (row->rest_ms > 0) {
        rig_pass(rig, row->rest_ms - 1);
        rig_no_op(rig);
        rig_pass(rig, 3);
    }
    finish(rig, look(rig), 3);
}

/* A record in which another broker's owners stand before that session. */
static void
finish_behind(struct rig *rig, struct op *op, unsigned session, unsigned others)
{
    struct op_ticket tickets[20] = {0};

    rig_must(others < 20);
    for (unsigned i = 0; i < others; i++) {
        tickets[i].ttl_ms = 9;
        memset(tickets[i].session, (int)i + 1, 16);
        memcpy(tickets[i].broker, rig_other_broker, 8);
    }
    tickets[others].ttl_ms = 9;
    memcpy(tickets[others].session, rig->sessions[session].id, 16);
    memcpy(tickets[others].broker, rig->settings.broker_id, 8);
    rig_finish(rig, op,
        (struct op_result){.tickets = tickets, .ticket_count = others + 1});
}

/* All together take no more than a part of Redis' time, be they readings, or
 * messages for those that are found in the way. */
START_TEST(part_of_the_time)
{
    for (unsigned others = 0; others < 20; others += 9) {
        struct rig *rig = rig_new();
        char line[60];
        uint32_t search = 0;
        unsigned looks = 0;
        unsigned messages = 0;
        unsigned s[30];
        for (unsigned i = 0; i < 30; i++) {
            s[i] = rig_open(rig);
            snprintf(line, sizeof(line), "1 LOCK %c", (char)('A' + i));
            rig_wait(rig, s[i], line);
        }
        for (unsigned ms = 0; ms < 3000; ms++) {
            for (unsigned i = 0; i < 30 && ms < 2000; i++)
                ask_after(rig, s[i], 'a', ++search);
            while (rig->op_count > 0) {
                if (rig->ops[0]->kind == OP_PUBLISH) {
                    rig_status(rig, rig->ops[0], OP_OK);
                    messages++;
                    continue;
                }
                struct op *op = look(rig);
                finish_behind(rig, op, s[op->name.at[0] - 'A'], others);
                looks++;
            }
            rig_pass(rig, 1);
            if (ms == 2000) {
                /* A tenth of 2 s, and what was saved up. */
                unsigned us = looks * (30 + 2 * (others + 1)) + messages * 20;
                ck_assert_uint_le(us, 205000 + 2000);
                ck_assert_uint_ge(us, 205000 * 9 / 10);
                ck_assert_uint_gt(
                    rig_count(rig, COUNTER_deadlock_looks_late), looks / 2);
                looks = 0;
            }
        }
        /* Those that waited were sent, whatever else came or did not. */
        ck_assert_uint_ge(looks, 20);
        rig_end(rig);
    }
}

END_TEST

/* So many owners are asked after in a step; the rest waits for the next one. */
SESSION_TEST(parts_of_a_crowd)
{
    unsigned looks = 1;

    rig_wait(rig, s, "1 LOCK b");
    for (uint32_t search = 1; search <= 65; search++)
        ask_after(rig, s, 'a', search);
    finish(rig, look(rig), 512);
    for (unsigned ms = 0; ms < 1000; ms++) {
        rig_pass(rig, 1);
        if (rig->op_count > 0) {
            finish(rig, look(rig), 512);
            looks++;
        }
    }
    ck_assert_uint_eq(looks, 1 + 64 * 512 / 4096);
}

static uint64_t
search_of(const struct op *op)
{
    uint64_t search;

    ck_assert_int_eq(op->kind, OP_PUBLISH);
    ck_assert_int_eq(op->words[1].at[0], 'D');
    memcpy(&search, op->words[1].at + 3 + 48, sizeof(search));
    return search;
}

/* The waits of an owner that are due together are one search. */
SESSION_TEST(one_search)
{
    rig_lock(rig, s, "1 LOCK a", 4);
    rig_wait(rig, s, "2 LOCK b");
    rig_wait(rig, s, "3 LOCK c");
    rig_pass(rig, 40);
    ck_assert_uint_eq(rig->op_count, 2);
    finish_behind(rig, look(rig), s, 3);
    finish_behind(rig, look(rig), s, 3);
    ck_assert_uint_eq(rig->op_count, 2);
    ck_assert_uint_eq(search_of(rig->ops[0]), search_of(rig->ops[1]));
}

/* Of those who wait for a lock the hindmost is looked at, once in a search. */
RIG_TEST(hindmost, rig_new())
{
    bool first = _i;
    unsigned s[2] = {rig_open(rig), rig_open(rig)};
    for (unsigned i = 0; i < 2; i++) {
        rig_say(rig, s[i], "1 LOCK b");
        rig_finish(rig, rig_op(rig, OP_ACQUIRE),
            (struct op_result){.status = OP_WAITING,
                .arrival = 7 + i,
                .place = 1,
                .again_ms = 36000000});
    }
    ask_after_both(rig, s[first], s[!first], 'a', 1);
    struct op_ticket tickets[3] = {
        {.granted = true, .ttl_ms = 9}, {.ttl_ms = 9}, {.ttl_ms = 9}};
    memcpy(tickets[0].broker, rig_other_broker, 8);
    for (unsigned i = 0; i < 2; i++) {
        memcpy(tickets[1 + i].session, rig->sessions[s[i]].id, 16);
        memcpy(tickets[1 + i].broker, rig->settings.broker_id, 8);
    }
    rig_finish(rig, look(rig),
        (struct op_result){
            .tickets = tickets, .ticket_count = 3, .holders = 1});
    (void)search_of(rig_op(rig, OP_PUBLISH));
    rig_status(rig, rig_op(rig, OP_PUBLISH), OP_OK);
    rig_no_op(rig);
    ask_after_both(rig, s[first], s[!first], 'a', 1);
    rig_no_op(rig);
}

/* More searches than there is room for at a lock: some are dropped, later ones
 * find. Those that begin there have places of their own. */
SESSION_TEST(room_for_probes)
{
    unsigned looks = 0;

    rig_lock(rig, s, "1 LOCK a", 4);
    rig_wait(rig, s, "2 LOCK b");
    for (uint32_t search = 1; search <= 1000; search++)
        ask_after(rig, s, 'a', search);
    uint64_t drops = rig_count(rig, COUNTER_deadlock_drops);
    ck_assert_uint_le(drops, 1000 - 100);
    ck_assert_uint_ge(drops, 1000 - 1 - 128);
    rig_pass(rig, 40); /* its own search finds no room, and tries again */
    ck_assert_uint_eq(rig_count(rig, COUNTER_deadlock_drops), drops + 1);
    while (rig->op_count > 0) {
        finish(rig, look(rig), 3);
        looks++;
    }
    ck_assert_uint_eq(looks, 3);
    rig_pass(rig, 40);
    finish(rig, look(rig), 3);
    rig_no_op(rig);
    /* The longer there is no room, the more rarely. */
    for (uint32_t search = 1001; search <= 1100; search++)
        ask_after(rig, s, 'a', search);
    rig_pass(rig, 1000);
    drops = rig_count(rig, COUNTER_deadlock_drops);
    rig_pass(rig, 4000);
    ck_assert_uint_ge(rig_count(rig, COUNTER_deadlock_drops), drops + 4);
    ck_assert_uint_le(rig_count(rig, COUNTER_deadlock_drops), drops + 9);
}

/* Many locks that are waited for leave room for others, and for what has been
 * found. */
RIG_TEST(room_for_others, rig_new())
{
    unsigned s[30];
    char line[20];
    uint32_t search = 0;

    for (unsigned i = 0; i < 30; i++) {
        s[i] = rig_open(rig);
        snprintf(line, sizeof(line), "1 LOCK c%u", i);
        rig_wait(rig, s[i], line);
    }
    for (unsigned k = 0; k < 200; k++)
        for (unsigned i = 0; i < 30; i++)
            ask_after(rig, s[i], 'a', ++search);
    /* Each has some, and together they have not all. */
    ck_assert_uint_eq(rig->op_count, 30);
    ck_assert_uint_ge(
        rig_count(rig, COUNTER_deadlock_drops), 200 * 30 - 4096 / 2);
    unsigned t = rig_open(rig);
    rig_lock(rig, t, "1 LOCK x", 4);
    rig_wait(rig, t, "2 LOCK y");
    rig_pass(rig, 40);
    ck_assert_int_eq(rig->ops[rig->op_count - 1]->name.at[0], 'y');
    unsigned drops = (unsigned)rig_count(rig, COUNTER_deadlock_drops);
    ask_after(rig, t, 'x', ++search);
    ask_after(rig, t, 'a', ++search);
    ck_assert_uint_eq(rig_count(rig, COUNTER_deadlock_drops), drops);
}

/* A crowd begins at a lock: a search that comes from another lock has its turn.
 */
START_TEST(turns)
{
    static struct op_ticket tickets[512];
    struct rig *rig = rig_new();
    unsigned t = rig_open(rig);
    char line[20];

    rig_wait(rig, t, "1 LOCK b");
    for (unsigned i = 0; i < 30; i++) {
        unsigned s = rig_open(rig);
        snprintf(line, sizeof(line), "1 LOCK c%u", i);
        rig_lock(rig, s, line, i + 1);
        rig_wait(rig, s, "2 LOCK b");
    }
    rig_pass(rig, 29);
    ask_after(rig, t, 'a', 1);
    struct op *op = look(rig);
    rig_pass(rig, 6);
    ask_after(rig, t, 'a', 2);
    finish(rig, op, 0);
    for (unsigned i = 0; i < 512; i++) {
        tickets[i].ttl_ms = 9;
        memcpy(tickets[i].session, &i, sizeof(i));
        memcpy(tickets[i].broker, rig_other_broker, 8);
    }
    memcpy(tickets[511].session, rig->sessions[t].id, 16);
    memcpy(tickets[511].broker, rig->settings.broker_id, 8);
    rig_finish(rig, look(rig),
        (struct op_result){.tickets = tickets, .ticket_count = 512});
    ck_assert_uint_ge(rig->op_count, 1);
    (void)search_of(rig->ops[0]);
    rig_end(rig);
}

END_TEST

/* Verification comes before search. */
SESSION_TEST(verified_first)
{
    rig_lock(rig, s, "1 LOCK a", 4);
    rig_say(rig, s, "2 LOCK b");
    uint64_t request = rig_op(rig, OP_ACQUIRE)->request;
    rig_queued(rig, rig_op(rig, OP_ACQUIRE));
    for (uint32_t search = 1; search <= 129; search++)
        ask_after(rig, s, 'a', search);
    rig_verify(rig, rig->sessions[s].id, request, 9, 4);
    struct op_ticket tickets[2] = {{.granted = true, .fence = 9, .ttl_ms = 9},
        {.ttl_ms = 9, .since_us = 1}};
    memcpy(tickets[0].session, rig_other_session, 16);
    memcpy(tickets[0].broker, rig_other_broker, 8);
    memcpy(tickets[1].session, rig->sessions[s].id, 16);
    memcpy(tickets[1].broker, rig->settings.broker_id, 8);
    finish(rig, look(rig), 0);
    struct op *op = look(rig);
    rig_finish(rig, op,
        (struct op_result){
            .tickets = tickets, .ticket_count = 2, .holders = 1});
    rig_expect(rig, s, "2 ERR DEADLOCK retry=1 cycle=a,b");
}

/* No room for the question: it is looked at later. */
RIG_TEST(room_for_operations, rig_create())
{
    rig->settings.tickets_max = 2;
    rig->settings.requests_max = 3;
    rig->settings.releases_kept = 0;
    rig_start(rig);
    unsigned s = rig_open(rig);
    rig_lock(rig, s, "1 LOCK a", 4);
    rig_wait(rig, s, "2 LOCK b");
    char words[33] = {'Q'};
    memcpy(words + 9, rig_other_broker, 8);
    while (rig->op_count < 4 * 2 + 3) {
        char line[sizeof(words) + 9] = {0};
        memcpy(line, words, sizeof(words));
        line[41] = 'a';
        unsigned before = rig->op_count;
        rig_news(rig, line, sizeof(line));
        ck_assert_uint_eq(rig->op_count, before + 1);
    }
    rig_pass(rig, 100);
    ck_assert_uint_eq(rig_count(rig, COUNTER_deadlock_looks), 0);
    while (rig->op_count > 0)
        rig_status(rig, rig->ops[0], OP_UNSENT);
    rig_pass(rig, 700);
    ck_assert_int_eq(look(rig)->name.at[0], 'b');
}

/* --- crowds --------------------------------------------------------------- */

#define CROWD 24

struct cost {
    unsigned looks, messages;
};

/* Each client says `holds` and is granted it, and then waits for each lock of
 * `waits`. Returns what the search has asked of Redis in 20 s. */
static struct cost
crowd(unsigned cores, const char *holds, const char *waits)
{
    struct stub *stub = stub_new(cores);
    struct cost cost = {0};
    char line[20];

    struct at z = stub_open(stub, 0);
    for (const char *c = waits; *c != '\0'; c++) {
        snprintf(line, sizeof(line), "1 LOCK %c", *c);
        stub_hold(stub, z, line);
    }
    for (unsigned i = 0; i < CROWD; i++) {
        struct at at = stub_open(stub, i % cores);
        if (holds != NULL)
            stub_hold(stub, at, holds);
        stub_pass(stub, 10);
        for (const char *c = waits; *c != '\0'; c++) {
            snprintf(
                line, sizeof(line), "2%u LOCK %c", (unsigned)(c - waits), *c);
            stub_wait(stub, at, line);
            stub_pass(stub, 2);
        }
    }
    stub_pass(stub, 20000);
    for (unsigned i = 0; i < cores; i++) {
        const struct rig *rig = stub->rigs[i];
        ck_assert_uint_eq(rig_count(rig, COUNTER_deadlocks), 0);
        cost.looks += (unsigned)rig_count(rig, COUNTER_deadlock_looks);
        cost.messages += (unsigned)rig_count(rig, COUNTER_deadlock_probes);
    }
    stub_free(stub);
    return cost;
}

/* After 0.03 s, 0.6, 1.2, 2.4, 4.8 and 9.6 more. */
#define SEARCHES (7 * CROWD)

/* Not each for each: a search reads the queue once, and asks each other broker
 * once; and those of long waits are rare. */
START_TEST(crowds)
{
    struct cost cost = crowd(1, "1 LOCK a mode=shared", "b");

    ck_assert_uint_le(cost.looks, SEARCHES);
    ck_assert_uint_ge(cost.looks, CROWD);
    ck_assert_uint_eq(cost.messages, 0);
    cost = crowd(3, "1 LOCK a mode=shared", "b");
    ck_assert_uint_le(cost.looks, SEARCHES);
    ck_assert_uint_ge(cost.looks, CROWD);
    ck_assert_uint_le(cost.messages, 2 * SEARCHES);
    ck_assert_uint_ge(cost.messages, CROWD);
}

END_TEST

/* Nor where each waits for several: of the waits at a lock the hindmost is for
 * all, or there were some 6,000 readings and 240,000 messages. */
START_TEST(crowds_at_many_locks)
{
    struct cost cost = crowd(1, NULL, "bcd");

    ck_assert_uint_ge(cost.looks, 3 * CROWD);
    ck_assert_uint_le(cost.looks, 1500);
    cost = crowd(3, NULL, "bcd");
    ck_assert_uint_ge(cost.looks, 3 * CROWD);
    ck_assert_uint_le(cost.looks, 4000);
    ck_assert_uint_le(cost.messages, 8000);
}

END_TEST

Suite *
core_looks_suite(void)
{
    Suite *suite = suite_create("core_looks");
    TCase *tests = tcase_create("core_looks");

    tcase_set_timeout(tests, 60);
    tcase_add_test(tests, shared);
    tcase_add_test(tests, same_lock);
    tcase_add_test(tests, ended);
    tcase_add_loop_test(tests, rests, 0, ROWS(rests_rows));
    tcase_add_test(tests, part_of_the_time);
    tcase_add_test(tests, parts_of_a_crowd);
    tcase_add_test(tests, one_search);
    tcase_add_loop_test(tests, hindmost, 0, 2);
    tcase_add_test(tests, room_for_probes);
    tcase_add_test(tests, room_for_operations);
    tcase_add_test(tests, room_for_others);
    tcase_add_test(tests, turns);
    tcase_add_test(tests, verified_first);
    tcase_add_test(tests, crowds);
    tcase_add_test(tests, crowds_at_many_locks);
    suite_add_tcase(suite, tests);
    return suite;
}

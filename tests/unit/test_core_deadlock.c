/*
 * Tests of daemon/core/feature/deadlock.c: cycles of waits within one broker
 * and over several, and what must not be taken for one.
 */
#include "daemon/op/op.h"
#include "tests/unit/core_stub.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

Suite *core_deadlock_suite(void);

/* Each of `count` clients holds a lock and waits for the next one's. The wait
 * of the last client is the youngest. */
static void
cycle(struct stub *stub, struct at *at, unsigned count)
{
    char line[40];

    for (unsigned i = 0; i < count; i++) {
        at[i] = stub_open(stub, i % stub->cores);
        snprintf(line, sizeof(line), "1 LOCK %c", 'a' + i);
        stub_hold(stub, at[i], line);
    }
    for (unsigned i = 0; i < count; i++) {
        snprintf(line, sizeof(line), "2 LOCK %c", 'a' + (i + 1) % count);
        stub_wait(stub, at[i], line);
        stub_pass(stub, 10);
    }
}

/* Within 100 ms, the youngest wait is ended, and only this one. */
START_TEST(cycles)
{
    static const struct {
        unsigned cores, count;
    } table[] = {{1, 2}, {1, 4}, {2, 2}, {2, 4}, {3, 8}};

    struct stub *stub = stub_new(table[_i].cores);
    unsigned count = table[_i].count;
    struct at at[8] = {{0}};
    cycle(stub, at, count);
    stub_pass(stub, 100);
    const char *line = stub_heard(stub, at[count - 1]);
    ck_assert_msg(
        strncmp(line, "2 ERR DEADLOCK retry=1 cycle=", 29) == 0, "%s", line);
    ck_assert_uint_eq(strlen(line + 29), 2 * count - 1);
    for (unsigned k = 0; k + 1 < count; k++)
        ck_assert_str_eq(stub_heard(stub, at[k]), "");
    stub_say(stub, at[count - 1], "3 UNLOCK a");
    stub_expect(stub, at[count - 1], "3 ERR NOTHELD retry=0");
    stub_free(stub);
}

END_TEST

/* A client holds a lock, or waits for one. */
struct step {
    char client; /* 'x', 'y', 'z', 'n' */
    char how;    /* 'h', 'w' */
    const char *line;
};

struct script {
    const char *name;
    unsigned cores[4]; /* of x, y, z and n */
    struct step steps[8];
    const char *told; /* of the last client; NULL: nobody is told */
};

#define XY                                          \
    {'x', 'h', "1 LOCK a"}, {'y', 'h', "1 LOCK b"}, \
    {                                               \
        'x', 'w', "2 LOCK b"                        \
    }
#define ANY "~ ERR DEADLOCK retry=1 cycle=~"

static const struct script scripts[] = {
    {"owners of one session", {0},
        {{'x', 'h', "1 LOCK a owner=x"}, {'x', 'h', "2 LOCK b owner=y"},
            {'x', 'w', "3 LOCK b owner=x"}, {'x', 'w', "4 LOCK a owner=y"}},
        ANY},
    {"the waited-for name of several", {0, 1}, {XY, {'y', 'w', "2 LOCK c a"}},
        "2 ERR DEADLOCK retry=1 cycle=~ name=a"},
    /* x waits for z, z for y in the queue of a, and y for x. */
    {"through the queue", {0},
        {{'x', 'h', "1 LOCK a mode=shared"}, {'y', 'h', "1 LOCK b"},
            {'y', 'w', "2 LOCK a"}, {'z', 'h', "1 LOCK c"},
            {'z', 'w', "2 LOCK a mode=shared"}, {'x', 'w', "2 LOCK c"}},
        ANY},
    {"wait=0", {0, 0}, {XY, {'y', 'w', "2 LOCK a wait=0"}}, NULL},
    {"wait=25", {0, 0}, {XY, {'y', 'w', "2 LOCK a wait=25"}}, NULL},
    {"deadlock=0", {0, 0}, {XY, {'y', 'w', "2 LOCK a deadlock=0"}}, NULL},
    {"another lock", {0, 0}, {XY, {'y', 'h', "2 LOCK c"}}, NULL},
    {"wait=0, two brokers", {0, 1}, {XY, {'y', 'w', "2 LOCK a wait=0"}}, NULL},
    {"wait=25, two brokers", {0, 1}, {XY, {'y', 'w', "2 LOCK a wait=25"}},
        NULL},
    {"deadlock=0, two brokers", {0, 1}, {XY, {'y', 'w', "2 LOCK a deadlock=0"}},
        NULL},
    {"another lock, two brokers", {0, 1}, {XY, {'y', 'h', "2 LOCK c"}}, NULL},
    {"the sole holder of a semaphore", {0},
        {{'x', 'h', "1 LOCK a limit=2 permits=2"}, {'y', 'h', "1 LOCK b"},
            {'x', 'w', "2 LOCK b"}, {'y', 'w', "2 LOCK a limit=2 permits=2"}},
        ANY},
    {"one of two holders of a semaphore", {0},
        {{'x', 'h', "1 LOCK a limit=2"}, {'z', 'h', "1 LOCK a limit=2"},
            {'y', 'h', "1 LOCK b"}, {'x', 'w', "2 LOCK b"},
            {'y', 'w', "2 LOCK a limit=2 permits=2"}},
        NULL},
    {"a writer behind a reader in the queue", {0},
        {{'z', 'h', "1 LOCK a"}, {'y', 'h', "1 LOCK b"},
            {'x', 'w', "1 LOCK a mode=shared"}, {'x', 'w', "2 LOCK b"},
            {'y', 'w', "2 LOCK a"}},
        ANY},
    {"a reader behind a reader in the queue", {0},
        {{'z', 'h', "1 LOCK a"}, {'y', 'h', "1 LOCK b"},
            {'x', 'w', "1 LOCK a mode=shared"}, {'x', 'w', "2 LOCK b"},
            {'y', 'w', "2 LOCK a mode=shared"}},
        NULL},
    /* x waits for z in the queue, z for y, who reads, and y for x. */
    {"an upgradable wait behind a writer", {0},
        {{'y', 'h', "1 LOCK a mode=shared"}, {'x', 'h', "1 LOCK b"},
            {'z', 'w', "1 LOCK a"}, {'y', 'w', "2 LOCK b"},
            {'x', 'w', "2 LOCK a mode=upgradable"}},
        ANY},
    /* It waits for the readers, and not for the hold below it. */
    {"an upgrade", {0},
        {{'x', 'h', "1 LOCK a mode=upgradable"},
            {'y', 'h', "1 LOCK a mode=shared"}, {'x', 'h', "2 LOCK b"},
            {'y', 'w', "2 LOCK b"}, {'x', 'w', "3 LOCK a"}},
        ANY},
    {"an upgrade, two brokers", {0, 1},
        {{'x', 'h', "1 LOCK a mode=upgradable"},
            {'y', 'h', "1 LOCK a mode=shared"}, {'x', 'h', "2 LOCK b"},
            {'x', 'w', "3 LOCK a"}, {'y', 'w', "2 LOCK b"}},
        ANY},
    {"an upgrade and a reader in no cycle", {0, 1},
        {{'x', 'h', "1 LOCK a mode=upgradable"},
            {'y', 'h', "1 LOCK a mode=shared"}, {'x', 'h', "2 LOCK b"},
            {'z', 'w', "1 LOCK b"}, {'x', 'w', "3 LOCK a"}},
        NULL},
    {"two upgrades of two locks", {0, 1},
        {{'x', 'h', "1 LOCK a mode=upgradable"},
            {'y', 'h', "1 LOCK b mode=upgradable"},
            {'x', 'h', "2 LOCK b mode=shared"},
            {'y', 'h', "2 LOCK a mode=shared"}, {'x', 'w', "3 LOCK a"},
            {'y', 'w', "3 LOCK b"}},
        ANY},
    {"a hold that was upgraded", {0, 1},
        {{'x', 'h', "1 LOCK a mode=upgradable"}, {'x', 'h', "2 LOCK a"},
            {'y', 'h', "1 LOCK b"}, {'x', 'w', "3 LOCK b"},
            {'y', 'w', "2 LOCK a"}},
        ANY},
    /* y waits behind z, who goes with y, and not with the part of x. */
    {"a shared part behind who shares the whole", {0, 1},
        {{'x', 'h', "1 LOCK a/b tree=1"}, {'y', 'h', "1 LOCK c"},
            {'x', 'w', "2 LOCK c"}, {'z', 'w', "1 LOCK a mode=shared"},
            {'y', 'w', "2 LOCK a/d tree=1 mode=shared"}},
        "2 ERR DEADLOCK retry=1 cycle=~ name=a"},
    {"a shared part behind a part", {0, 1},
        {{'x', 'h', "1 LOCK a mode=shared"}, {'y', 'h', "1 LOCK c"},
            {'x', 'w', "2 LOCK c"}, {'z', 'w', "1 LOCK a/b tree=1"},
            {'y', 'w', "2 LOCK a/d tree=1 mode=shared"}},
        "2 ERR DEADLOCK retry=1 cycle=~ name=a"},
    /* z waits for y, too, and for x, who does not wait. */
    {"a shared part behind who waits twice", {0, 1},
        {{'x', 'h', "1 LOCK a/b tree=1"}, {'y', 'h', "1 LOCK c"},
            {'z', 'w', "1 LOCK a mode=shared"}, {'z', 'w', "2 LOCK c"},
            {'y', 'w', "2 LOCK a/d tree=1 mode=shared"}},
        NULL},
    /* Each stands before the other for what the other one wants. When both are
     * granted their first lock, none gets the second. */
    {"before they hold", {0, 1},
        {{'z', 'h', "1 LOCK a"}, {'z', 'h', "1 LOCK b"}, {'x', 'w', "1 LOCK a"},
            {'y', 'w', "1 LOCK b"}, {'x', 'w', "2 LOCK b"},
            {'y', 'w', "2 LOCK a"}},
        ANY},
/* A reader waits for the writers before it. If the nearest writer is in no
 * cycle, the next one is looked at. z is the first reader. */
#define NEAREST(x, n)                                                        \
    {                                                                        \
        "the nearest does not count", {x, 0, 0, n},                          \
            {{'z', 'h', "1 LOCK a mode=shared"}, {'y', 'h', "1 LOCK b"},     \
                {'x', 'w', "1 LOCK a"}, {'n', 'w', "1 LOCK a deadlock=0"},   \
                {'y', 'w', "2 LOCK a mode=shared"}, {'z', 'w', "2 LOCK b"}}, \
            ANY                                                              \
    }
    NEAREST(0, 0),
    NEAREST(0, 1),
    NEAREST(1, 0),
    NEAREST(1, 1),
};

#define SCRIPTS (int)(sizeof(scripts) / sizeof(scripts[0]))

/* Every client is told nothing but the end of its wait by a deadlock. */
START_TEST(who_waits_for_whom)
{
    static const char names[] = "xyzn";
    const struct script *script = &scripts[_i];
    struct stub *stub = stub_new(2);
    struct at at[4];
    unsigned last = 0;

    for (unsigned i = 0; i < 4; i++)
        at[i] = stub_open(stub, script->cores[i]);
    for (const struct step *step = script->steps; step->line != NULL; step++) {
        last = (unsigned)(strchr(names, step->client) - names);
        if (step->how == 'h') {
            stub_hold(stub, at[last], step->line);
            continue;
        }
        stub_wait(stub, at[last], step->line);
        stub_pass(stub, 200);
    }
    stub_pass(stub, script->told != NULL ? 0 : 3000);
    if (script->told != NULL)
        stub_expect(stub, at[last], script->told);
    for (unsigned i = 0; i < 4; i++) {
        for (const char *line; (line = stub_heard(stub, at[i]))[0] != '\0';)
            ck_assert_msg(strstr(line, "DEADLOCK") == NULL, "%s: %c: %s",
                script->name, names[i], line);
    }
    stub_free(stub);
}

END_TEST

/* Its record says so before its broker has heard that. Anybody may end it. */
START_TEST(behind_a_detached_hold)
{
    struct stub *stub = stub_new(2);
    struct at x = stub_open(stub, 0);
    struct at y = stub_open(stub, 1);

    stub_hold(stub, x, "1 LOCK a");
    stub_hold(stub, y, "1 LOCK b");
    stub_record(stub, 'a')->tickets[0].detached = true;
    stub_wait(stub, x, "2 LOCK b");
    stub_wait(stub, y, "2 LOCK a");
    stub_pass(stub, 3000);
    for (int i = 0; i < 2; i++)
        ck_assert_uint_eq(rig_count(stub->rigs[i], COUNTER_deadlocks), 0);
    stub_free(stub);
}

END_TEST

/* --- a search, and what ends meanwhile ------------------------------------ */

/* x holds a and waits for b, y holds b and waits for a. The search of y finds
 * the cycle. Meanwhile x or y ends its wait for `lock` or its hold of it. */
static const struct ending {
    bool of_x;
    char lock;
    const char *line; /* NULL: a time-out, or the end of the connection */
    unsigned wait_ms;
    bool for_z; /* which waits before y, and is granted the lock */
} endings[] = {
    {true, 'b', "3 CANCEL 2", 0, false},
    {true, 'b', NULL, 500, false},
    {true, 'b', NULL, 0, false},
    {true, 'a', "3 UNLOCK a", 0, false},
    {true, 'a', "3 UNLOCK a", 0, true},
    {false, 'a', "3 CANCEL 2", 0, false},
    {false, 'a', NULL, 100, false},
    {false, 'b', "3 UNLOCK b", 0, false},
};

static void
wait_for(struct stub *stub, struct at at, char lock, unsigned wait_ms)
{
    char line[40];
    int len = snprintf(line, sizeof(line), "2 LOCK %c", lock);

    if (wait_ms > 0)
        snprintf(line + len, sizeof(line) - (size_t)len, " wait=%u", wait_ms);
    stub_wait(stub, at, line);
}

/* A release has an effect in the record at once. */
static void
end(struct stub *stub, struct at at, const struct ending *ending)
{
    struct rig *rig = stub_rig(stub, at);
    struct stub_record *a = stub_record(stub, 'a');

    if (ending->line == NULL && ending->wait_ms > 0)
        rig_pass(rig, ending->wait_ms);
    else if (ending->line == NULL)
        rig_event(rig, at.session, CORE_DROP);
    else
        stub_say(stub, at, ending->line);
    if (ending->line != NULL && ending->line[2] == 'U')
        stub_finish(stub, at.core, rig->ops[rig->op_count - 1]);
    if (ending->for_z) {
        a->tickets[0].granted = true;
        a->tickets[0].fence = ++stub->clock;
    }
}

/* So many operations are answered before the end, or milliseconds pass where
 * there is none. False: y has been told before. */
static bool
ends_after(const struct ending *ending, unsigned steps, unsigned *looks)
{
    struct stub *stub = stub_new(2);
    struct at x = stub_open(stub, 0);
    struct at y = stub_open(stub, 1);
    const struct rig_session *heard = &stub->rigs[1]->sessions[y.session];

    stub_hold(stub, x, "1 LOCK a");
    stub_hold(stub, y, "1 LOCK b");
    wait_for(stub, x, 'b', ending->of_x ? ending->wait_ms : 0);
    if (ending->for_z)
        stub_wait(stub, stub_open(stub, 0), "1 LOCK a");
    stub_pass(stub, 200);
    stub_record(stub, 'a')->looks = stub_record(stub, 'b')->looks = 0;
    wait_for(stub, y, 'a', ending->of_x ? 0 : ending->wait_ms);
    for (; steps > 0; steps--)
        if (!stub_step(stub, steps % 2) && !stub_step(stub, 1 - steps % 2)) {
            rig_pass(stub->rigs[0], 1);
            rig_pass(stub->rigs[1], 1);
        }
    bool before = heard->finals > 1;
    *looks = stub_record(stub, ending->lock)->looks;
    if (!before)
        end(stub, ending->of_x ? x : y, ending);
    stub_pass(stub, 1500);
    bool seen_twice = *looks >= 2 && (ending->of_x || ending->lock == 'b');
    bool told = rig_count(stub->rigs[1], COUNTER_deadlocks) > 0;
    ck_assert_uint_eq(rig_count(stub->rigs[0], COUNTER_deadlocks), 0);
    ck_assert_msg(before ? told : !told || seen_twice,
        "told, though it had been looked at %u times", *looks);
    stub_free(stub);
    return !before;
}

/*
 * A wait or a hold of the cycle ends after any number of operations: before
 * the search, within it, or between the first round and the second. No client
 * is told of the cycle unless what ends has been seen twice before.
 */
START_TEST(ends_meanwhile)
{
    unsigned ended_at[3] = {0};
    unsigned looks = 0;

    for (unsigned steps = 0; ends_after(&endings[_i], steps, &looks); steps++) {
        ck_assert_uint_lt(steps, 600); /* it is found before that */
        ended_at[looks < 2 ? looks : 2]++;
    }
    ck_assert(ended_at[0] > 0 && ended_at[1] > 0);
}

END_TEST

/* Redis shows a hold, or a wait, that was given back. This keeps nobody
 * waiting. */
START_TEST(given_back)
{
    struct stub *stub = stub_new(2);
    bool waits = _i % 2 == 1;
    struct at x = stub_open(stub, 0);
    struct at y = stub_open(stub, (unsigned)_i / 2);
    struct stub_record *a = stub_record(stub, 'a');

    if (waits) {
        stub_hold(stub, stub_open(stub, 0), "1 LOCK a mode=shared");
        stub_wait(stub, x, "1 LOCK a");
    } else {
        stub_hold(stub, x, "1 LOCK a");
    }
    struct op_ticket old = a->tickets[waits];
    stub_say(stub, x, waits ? "2 CANCEL 1" : "2 UNLOCK a");
    stub_pass(stub, 10);
    while (stub_heard(stub, x)[0] != '\0')
        continue;
    ck_assert_uint_eq(a->count, waits);
    a->tickets[a->count++] = old;
    stub_hold(stub, x, "3 LOCK c");
    stub_hold(stub, y, "1 LOCK b");
    stub_wait(stub, x, "4 LOCK b");
    stub_pass(stub, 200);
    stub_wait(stub, y, waits ? "2 LOCK a mode=shared" : "2 LOCK a");
    stub_pass(stub, 3000);
    ck_assert_str_eq(stub_heard(stub, x), "");
    ck_assert_str_eq(stub_heard(stub, y), "");
    ck_assert_uint_gt(a->looks, 0);
    stub_free(stub);
}

END_TEST

/* A hold whose release is on its way keeps nobody waiting. */
START_TEST(giving_back)
{
    struct stub *stub = stub_new(2);
    struct at x = stub_open(stub, 0);
    struct at y = stub_open(stub, 1);

    /* An upgrade leaves a hold that y does not wait for. */
    if (_i == 1)
        stub_hold(stub, x, "0 LOCK a mode=upgradable");
    stub_hold(stub, x, "1 LOCK a");
    stub_hold(stub, y, "1 LOCK b");
    stub_hold(stub, x, "2 LOCK c");
    stub->keeps_releases = true;
    stub_say(stub, x, "3 UNLOCK a");
    stub_wait(stub, x, "4 LOCK b");
    stub_pass(stub, 200);
    stub_wait(stub, y, _i == 1 ? "2 LOCK a mode=shared" : "2 LOCK a");
    stub_pass(stub, 1500);
    ck_assert_str_eq(stub_heard(stub, x), "");
    ck_assert_str_eq(stub_heard(stub, y), "");
    ck_assert_uint_gt(stub_record(stub, 'a')->looks, 0);
    stub_free(stub);
}

END_TEST

/* A cycle through a semaphore that comes to be long after its waits. */
START_TEST(later)
{
    struct stub *stub = stub_new(2);
    struct at x = stub_open(stub, 0);
    struct at y = stub_open(stub, 1);
    struct at z = stub_open(stub, 0);

    stub_hold(stub, x, "1 LOCK a limit=2");
    stub_hold(stub, z, "1 LOCK a limit=2");
    stub_hold(stub, y, "1 LOCK b");
    stub_wait(stub, x, "2 LOCK b");
    stub_wait(stub, y, "2 LOCK a limit=2 permits=2");
    stub_pass(stub, 20000);
    stub_say(stub, z, "2 UNLOCK a");
    stub_pass(stub, 800);
    ck_assert_str_eq(stub_heard(stub, x), "");
    stub_expect(stub, y, "2 ERR DEADLOCK retry=1 cycle=~");
    stub_free(stub);
}

END_TEST

/* A wait is looked at from when its own owner is in somebody's way. */
START_TEST(in_between)
{
    struct rig *rig = rig_new();
    unsigned s = rig_open(rig);

    rig_lock(rig, s, "1 LOCK a owner=other", 4);
    rig_wait(rig, s, "2 LOCK b");
    rig_pass(rig, 2000);
    rig_no_op(rig);
    rig_lock(rig, s, "3 LOCK c", 5);
    rig_pass(rig, 40);
    ck_assert_int_eq(rig_op(rig, OP_INSPECT)->reader, READER_DEADLOCK);
    rig_end(rig);

    rig = rig_new(); /* or as it waits for another one */
    s = rig_open(rig);
    rig_wait(rig, s, "1 LOCK b");
    rig_pass(rig, 2000);
    rig_no_op(rig);
    rig_wait(rig, s, "2 LOCK c");
    rig_pass(rig, 40);
    ck_assert_uint_eq(rig->op_count, 2);
    ck_assert_int_ne(rig->ops[0]->name.at[0], rig->ops[1]->name.at[0]);
    rig_end(rig);
}

END_TEST

/* A LOCK that waits, as inspections show it. */
static struct op_ticket
waiter(struct rig *rig, unsigned session, const char *request)
{
    struct op_ticket ticket = {.ttl_ms = 1000};

    rig_say(rig, session, request);
    struct op *op = rig_op(rig, OP_ACQUIRE);
    memcpy(ticket.session, op->session, sizeof(ticket.session));
    memcpy(ticket.owner_hash, op->owner_hash, sizeof(ticket.owner_hash));
    memcpy(ticket.broker, rig->settings.broker_id, sizeof(ticket.broker));
    rig_queued(rig, op);
    return ticket;
}

/* A wait that is looked at rarely by now has been nobody's for a while: there
 * may be a cycle when its LOCK comes again. */
SESSION_TEST(comes_again)
{
    unsigned t = rig_open(rig);

    rig_say(rig, s, "HELLO keep=10s");
    (void)rig_line(rig, s);
    rig_lock(rig, s, "1 LOCK a", 4);
    struct op_ticket own = waiter(rig, s, "2 LOCK b");
    const struct op_result alone = {.tickets = &own, .ticket_count = 1};
    for (unsigned ms = 0; ms < 5000; ms++) {
        rig_pass(rig, 1);
        if (rig->op_count > 0)
            rig_finish(rig, rig_op(rig, OP_INSPECT), alone);
    }
    uint64_t looks = rig_count(rig, COUNTER_deadlock_looks);
    rig_event(rig, s, CORE_DROP);
    rig_resume(rig, s, t, 2, "");
    (void)rig_line(rig, t);
    rig_say(rig, t, "2 LOCK b");
    rig_finish(rig, rig_op(rig, OP_RENEW),
        (struct op_result){.status = OP_WAITING, .ask = {.permits = 1}});
    rig_queued(rig, rig_op(rig, OP_RENEW));
    rig_pass(rig, 40);
    ck_assert_uint_eq(rig_count(rig, COUNTER_deadlock_looks), looks + 1);
    rig_finish(rig, rig_op(rig, OP_INSPECT), alone);
    rig_pass(rig, 660);
    ck_assert_uint_eq(rig_count(rig, COUNTER_deadlock_looks), looks + 2);
}

/* Only a wait whose record was read is looked at more rarely. */
SESSION_TEST(not_read)
{
    rig_lock(rig, s, "1 LOCK a", 4);
    rig_wait(rig, s, "2 LOCK b");
    rig_pass(rig, 40);
    for (unsigned i = 0; i < 8; i++) {
        rig_status(rig, rig_op(rig, OP_INSPECT), OP_UNSENT);
        rig_pass(rig, 661);
    }
}

/* An ended request of y has left an expired ticket before x. It is seen only
 * while the clock is doubted, and x waits for no waiter. */
SESSION_TEST(over_in_doubt)
{
    unsigned t = rig_open(rig);

    rig_lock(rig, s, "1 LOCK c owner=o", 4);
    struct op_ticket x = waiter(rig, s, "2 LOCK a owner=o");
    struct op_ticket y = waiter(rig, t, "1 LOCK a");
    struct op_ticket left = y;
    left.ttl_ms = 0;
    y.since_us = 1;
    const struct op_ticket doubted[] = {left, x, y};
    const struct op_ticket trusted[] = {x, y};
    const struct op_result results[] = {
        {.tickets = doubted, .ticket_count = 3, .waiters = 3, .again_ms = 1},
        {.tickets = trusted, .ticket_count = 2, .waiters = 2}};
    rig_pass(rig, 100);
    ck_assert_uint_eq(rig->op_count, 1);
    for (unsigned i = 0; i < 4 && rig->op_count > 0; i++)
        rig_finish(rig, rig_op(rig, OP_INSPECT), results[i % 2]);
    rig_silent(rig, t);
    ck_assert_uint_eq(rig_count(rig, COUNTER_deadlocks), 0);
}

/* A ticket that an ended request has left in front of a holder (clocks were
 * set) hides no cycle, and makes none between two waiters. */
SESSION_TEST(left_in_the_queue)
{
    bool cycle = _i;
    unsigned t = rig_open(rig);
    rig_lock(rig, s, "1 LOCK a", 4);
    rig_lock(rig, t, "1 LOCK b", 5);
    struct op_ticket x = waiter(rig, s, "2 LOCK b");
    struct op_ticket y = waiter(rig, t, "2 LOCK a");
    struct op_ticket holder = x;
    struct op_ticket left = y;
    holder.granted = true;
    holder.fence = 4;
    y.since_us = 1;
    struct op_ticket other = y;
    other.granted = true;
    other.fence = 5;
    const struct op_ticket of_a[] = {left, holder, y};
    const struct op_ticket of_b[] = {other, x};
    const struct op_ticket queue[] = {left, x, y};
    rig_pass(rig, 100);
    for (unsigned i = 0;
         i < 12 && rig->op_count > 0 && rig->ops[0]->kind == OP_INSPECT; i++) {
        struct op *op = rig_op(rig, OP_INSPECT);
        bool a = text_equal(op->name, TEXT("a"));
        rig_finish(rig, op,
            !cycle ? (struct op_result){.tickets = queue,
                         .ticket_count = 3,
                         .waiters = 3}
            : a    ? (struct op_result){.tickets = of_a,
                         .ticket_count = 3,
                         .holders = 1,
                         .waiters = 2}
                   : (struct op_result){.tickets = of_b,
                         .ticket_count = 2,
                         .holders = 1,
                         .waiters = 1});
    }
    ck_assert_uint_eq(rig_count(rig, COUNTER_deadlocks), (unsigned)cycle);
}

/* x holds a and waits for b. y holds b, or stands before x in its queue, and
 * waits for a. There is no cycle if the record of b shows that x was granted it
 * meanwhile, or that the wait of x is over. */
SESSION_TEST(own_ticket)
{
    static const struct {
        bool holds, granted, over;
    } table[] = {{.holds = true}, {.holds = false}, {.granted = true},
        {.holds = true, .over = true}};

    bool cycle = !table[_i].granted && !table[_i].over;
    unsigned t = rig_open(rig);
    struct op_ticket a[2], b[2];

    rig_lock(rig, s, "1 LOCK a", 4);
    if (table[_i].holds)
        rig_lock(rig, t, "1 LOCK b", 5);
    else
        b[0] = waiter(rig, t, "1 LOCK b");
    a[0] = b[1] = waiter(rig, s, "2 LOCK b");
    a[0].granted = true;
    a[0].fence = 4;
    a[1] = waiter(rig, t, "2 LOCK a");
    if (table[_i].holds)
        b[0] = a[1];
    b[0].granted = table[_i].holds;
    b[0].fence = table[_i].holds ? 5 : 0;
    b[1].granted = table[_i].granted;
    b[1].ttl_ms = table[_i].over ? 0 : b[1].ttl_ms;
    rig_pass(rig, 100);
    for (unsigned i = 0;
         i < 12 && rig->op_count > 0 && rig->ops[0]->kind == OP_INSPECT; i++) {
        struct op *op = rig_op(rig, OP_INSPECT);
        rig_finish(rig, op,
            (struct op_result){
                .tickets = text_equal(op->name, TEXT("a")) ? a : b,
                .ticket_count = 2});
    }
    ck_assert_uint_eq(rig_count(rig, COUNTER_deadlocks), cycle);
}

/* Of two waits of one moment that of the greater session ends, or that of the
 * greater owner in one session, and no other wait: both are searched from. */
START_TEST(of_one_moment)
{
    struct stub *stub = stub_new(2);
    bool sessions = _i < 2;
    struct at x = stub_open(stub, 0);
    struct at y = sessions ? stub_open(stub, 1) : x;
    struct op_ticket *a = &stub_record(stub, 'a')->tickets[1];
    struct op_ticket *b = &stub_record(stub, 'b')->tickets[1];
    uint64_t owners[2];

    stub_hold(stub, x, "1 LOCK a owner=x");
    stub_hold(stub, y, "2 LOCK b owner=y");
    if (_i % 2 == 0)
        stub_wait(stub, x, "3 LOCK b owner=x");
    stub_wait(stub, y, "4 LOCK a owner=y");
    if (_i % 2 == 1)
        stub_wait(stub, x, "3 LOCK b owner=x");
    a->since_us = b->since_us = 7;
    memcpy(&owners[0], a->owner_hash, 8);
    memcpy(&owners[1], b->owner_hash, 8);
    bool of_y = sessions ? memcmp(a->session, b->session, 16) > 0
                         : owners[0] > owners[1];
    stub_pass(stub, 200);
    stub_expect(stub, of_y ? y : x,
        of_y ? "4 ERR DEADLOCK retry=1 cycle=~"
             : "3 ERR DEADLOCK retry=1 cycle=~");
    ck_assert_str_eq(stub_heard(stub, of_y ? x : y), "");
    stub_free(stub);
}

END_TEST

/* --- messages ------------------------------------------------------------- */

struct cycle {
    char bytes[8000];
    size_t len;
};

/* 'K' of a cycle, which begins with that wait. */
static struct cycle
cycle_of(const uint8_t session[16], uint64_t request, const char *const *names,
    unsigned count)
{
    struct cycle cycle = {.bytes = {'K', (char)count, 0}, .len = 3};

    for (unsigned i = 0; i < count; i++) {
        char *at = cycle.bytes + cycle.len;
        size_t len = strlen(names[i]);
        if (i == 0) {
            memcpy(at, session, 16);
            memcpy(at + 32, &request, sizeof(request));
        }
        at[56] = (char)len;
        memcpy(at + 57, names[i], len);
        cycle.len += 57 + len;
    }
    return cycle;
}

/* The second round sees who is in the way of the wait now. */
START_TEST(second_round)
{
    static const struct op_ticket hold = {
        .granted = true, .fence = 9, .ttl_ms = 9};
    static const struct op_ticket later_hold = {
        .granted = true, .fence = 10, .ttl_ms = 9};
    static const struct op_ticket wait = {.ttl_ms = 9};
    static const struct op_ticket over = {.granted = false};

    static const struct {
        const struct op_ticket *before, *behind;
        uint64_t fence; /* as it was in the first round */
        uint32_t limit, holders;
        bool told;
    } table[] = {
        {&hold, NULL, 9, 0, 1, true},
        {&later_hold, NULL, 9, 0, 1, false},
        {&wait, NULL, 9, 0, 0, false},
        {NULL, NULL, 9, 0, 0, false},
        {&wait, NULL, 0, 0, 0, true},
        {&over, NULL, 0, 0, 0, false},
        {NULL, &wait, 0, 0, 0, false},
        {&wait, &wait, 0, 0, 0, false}, /* the first one is left over */
        {&hold, NULL, 9, 3, 1, true},
        {&hold, NULL, 9, 3, 2, false},
        {&wait, NULL, 0, 3, 1, false},
    };

    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
        struct rig *rig = rig_new();
        unsigned s = rig_open(rig);
        rig_lock(rig, s, "1 LOCK a", 4);
        rig_say(rig, s, "2 LOCK b");
        struct op *op = rig_op(rig, OP_ACQUIRE);
        uint64_t request = op->request;
        struct op_ticket tickets[3] = {0};
        struct op_result record = {.tickets = tickets,
            .limit = table[i].limit,
            .holders = table[i].holders};
        for (unsigned k = 0; k < 3; k++) {
            const struct op_ticket *from = k == 0   ? table[i].before
                                           : k == 1 ? &wait
                                                    : table[i].behind;
            if (from == NULL)
                continue;
            struct op_ticket *ticket = &tickets[record.ticket_count++];
            *ticket = *from;
            memcpy(ticket->session,
                k == 1 ? (const char *)op->session : rig_other_session, 16);
        }
        rig_queued(rig, op);
        rig_verify(rig, rig->sessions[s].id, request, table[i].fence, 4);
        rig_finish(rig, rig_op(rig, OP_INSPECT), record);
        if (table[i].told)
            rig_expect(rig, s, "2 ERR DEADLOCK retry=1 cycle=a,b");
        else
            rig_silent(rig, s);
        rig_end(rig);
    }
}

END_TEST

/* A wait ends by a message that names it, whole and as it is, and by no other.
 */
SESSION_TEST(wait_is_named)
{
    static const char *const names[] = {"b", "a"};

    rig_lock(rig, s, "1 LOCK a", 4);
    rig_say(rig, s, "2 LOCK b deadlock=1");
    uint64_t request = rig_op(rig, OP_ACQUIRE)->request;
    rig_queued(rig, rig_op(rig, OP_ACQUIRE));
    const struct cycle good = cycle_of(rig->sessions[s].id, request, names, 2);
    for (size_t len = 0; len <= good.len + 1; len++)
        if (len != good.len)
            rig_news(rig, good.bytes, len);
    for (size_t i = 0; i < 3 + 16 + 8 + 8; i++) {
        struct cycle bad = good;
        size_t at = i < 3 + 16 + 8 ? i : i + 8; /* not its broker */
        bad.bytes[at] ^= (char)0x82;
        rig_news(rig, bad.bytes, bad.len);
    }
    rig_silent(rig, s);
    ck_assert_uint_eq(rig_count(rig, COUNTER_deadlocks), 0);
    rig_news(rig, good.bytes, good.len);
    rig_expect(rig, s, "2 ERR DEADLOCK retry=1 cycle=b,a");
    ck_assert_uint_eq(rig_op(rig, OP_RELEASE)->request, request);
    rig_news(rig, good.bytes, good.len);
    rig_silent(rig, s);
    ck_assert_uint_eq(rig_count(rig, COUNTER_deadlocks), 1);
}

/* Its names can be told apart, and a comma at the end says that there are more.
 */
START_TEST(names_of_the_cycle)
{
    static const char *const odd[] = {"x,y", "50%", "=", "z"};
    char longest[256];
    const char *const many[] = {longest, longest, longest, longest};
    char pattern[1000];

    memset(longest, 'n', 255);
    longest[255] = '\0';
    snprintf(pattern, sizeof(pattern), "2 ERR DEADLOCK retry=1 cycle=%s,%s,%s,",
        longest, longest, longest);
    for (int how = 0; how < 2; how++) {
        struct rig *rig = rig_new();
        unsigned s = rig_open(rig);
        rig_lock(rig, s, "1 LOCK a", 4);
        rig_say(rig, s, "2 LOCK b");
        uint64_t request = rig_op(rig, OP_ACQUIRE)->request;
        rig_queued(rig, rig_op(rig, OP_ACQUIRE));
        struct cycle cycle =
            cycle_of(rig->sessions[s].id, request, how == 0 ? odd : many, 4);
        rig_news(rig, cycle.bytes, cycle.len);
        rig_expect(rig, s,
            how == 0 ? "2 ERR DEADLOCK retry=1 cycle=x%252Cy,50%2525,%3D,z"
                     : pattern);
        rig_end(rig);
    }
}

END_TEST

/* A message that says nothing true: of any length, with any byte changed. */
START_TEST(odd_messages)
{
    struct stub *stub = stub_new(1);
    struct at x = stub_open(stub, 0);
    struct at y = stub_open(stub, 0);
    struct rig *rig = stub->rigs[0];
    char bytes[3 + RIG_NODE_BYTES + 1 + 2 * RIG_ASKED_BYTES];

    stub_hold(stub, x, "1 LOCK a");
    stub_hold(stub, y, "1 LOCK b");
    stub_wait(stub, x, "2 LOCK b");
    for (unsigned kind = 0; kind < 4; kind++) {
        size_t sound = kind == 0 ? sizeof(bytes) : 3 + 2 * RIG_NODE_BYTES;
        for (size_t len = 0; len <= sizeof(bytes); len++) {
            memset(bytes, 0, sizeof(bytes));
            bytes[0] = "DVKX"[kind];
            bytes[1] = (char)(kind == 0 ? 1 : 2);
            bytes[2] = (char)(kind == 0 ? 2 : 0);
            for (unsigned node = 0; node < (kind == 0 ? 1 : 2); node++) {
                char *at = bytes + 3 + node * RIG_NODE_BYTES;
                memcpy(at, rig->sessions[0].id, 16);
                memcpy(at + 24, rig->settings.broker_id, 8);
                at[56] = 1;
                at[57] = 'b';
            }
            if (kind == 0)
                memcpy(bytes + 3 + RIG_NODE_BYTES + 1, rig->sessions[1].id, 16);
            rig_news(rig, bytes, len);
            stub_pass(stub, 5);
        }
        for (size_t i = 0; i < sound * 2; i++) {
            char one[sizeof(bytes)];
            memcpy(one, bytes, sizeof(one));
            one[i / 2] = (char)(i % 2 ? 0xff : one[i / 2] + 1);
            rig_news(rig, one, sound);
            stub_pass(stub, 5);
        }
    }
    ck_assert_str_eq(stub_heard(stub, x), "");
    ck_assert_str_eq(stub_heard(stub, y), "");
    stub_free(stub);
}

END_TEST

Suite *
core_deadlock_suite(void)
{
    Suite *suite = suite_create("core_deadlock");
    TCase *tests = tcase_create("core_deadlock");

    tcase_set_timeout(tests, 60);
    tcase_add_loop_test(tests, cycles, 0, 5);
    tcase_add_test(tests, behind_a_detached_hold);
    tcase_add_loop_test(tests, who_waits_for_whom, 0, SCRIPTS);
    tcase_add_loop_test(tests, ends_meanwhile, 0, 8);
    tcase_add_loop_test(tests, given_back, 0, 4);
    tcase_add_loop_test(tests, giving_back, 0, 2);
    tcase_add_test(tests, later);
    tcase_add_test(tests, in_between);
    tcase_add_test(tests, not_read);
    tcase_add_test(tests, comes_again);
    tcase_add_test(tests, over_in_doubt);
    tcase_add_loop_test(tests, left_in_the_queue, 0, 2);
    tcase_add_loop_test(tests, own_ticket, 0, 4);
    tcase_add_loop_test(tests, of_one_moment, 0, 4);
    tcase_add_test(tests, second_round);
    tcase_add_test(tests, wait_is_named);
    tcase_add_test(tests, names_of_the_cycle);
    tcase_add_test(tests, odd_messages);
    suite_add_tcase(suite, tests);
    return suite;
}

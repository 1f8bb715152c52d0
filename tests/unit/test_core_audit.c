/*
 * Tests of daemon/core/feature/audit.c: runs from node to node, what they find,
 * whom they ask, and what is broken.
 */
#include "tests/unit/core_rig.h"
#include "tests/unit/log_kept.h"

#include "daemon/op/op.h"
#include "daemon/op/op_audit.h"

#include <stdio.h>
#include <string.h>

Suite *core_audit_suite(void);

#define INTERVAL_US (600 * (uint64_t)SECOND_US)
#define HOUR_MS     3600000u

/* Of names that begin with "slow/"; of all others. */
static const struct text namespaces[] = {{"slow/", 5}};
static const struct audit_limits limits[] = {
    {.warn_ms = 10 * HOUR_MS},
    {.warn_ms = HOUR_MS, .wait_ms = 60000, .break_ms = 2 * HOUR_MS},
};

static struct rig *
rig_audit(uint64_t interval_us)
{
    struct rig *rig = rig_create();

    rig->settings.namespaces = namespaces;
    rig->settings.namespace_count = 1;
    rig->settings.audit_limits = limits;
    rig->settings.audit_interval_us = interval_us;
    rig->settings.audit_pause_us = 10000;
    rig->settings.audit_keys = 100;
    rig_start(rig);
    return rig;
}

/* One with a session whose AUDIT has sent its first step. */
static struct rig *
rig_asked(void)
{
    struct rig *rig = rig_audit(0);

    (void)rig_open(rig);
    rig_say(rig, 0, "1 AUDIT");
    rig_pass(rig, 12);
    return rig;
}

/* A run by time, whose first step is sent: the node is marked. */
static struct rig *
rig_timed(void)
{
    struct rig *rig = rig_audit(INTERVAL_US);

    rig_pass_us(rig, INTERVAL_US);
    struct op *mark = rig_op(rig, OP_AUDIT);
    ck_assert_uint_gt(mark->audit->mark_ms, INTERVAL_US / 2000);
    ck_assert_uint_lt(mark->audit->mark_ms, INTERVAL_US / 1000);
    ck_assert(!mark->audit->marked);
    rig_status(rig, mark, OP_OK);
    return rig;
}

/* The step's answer: what was seen, and that the node has more, or not. */
static void
stepped(struct rig *rig, const struct op_suspect *suspects, uint32_t count,
    uint64_t cursor)
{
    struct op *op = rig_op(rig, OP_AUDIT);

    ck_assert_uint_eq(op->audit->mark_ms, 0);
    op->audit->records = 10;
    op->audit->holds = 4;
    op->audit->waits = 2;
    op->audit->left = 0;
    op->audit->suspects = suspects;
    op->audit->suspect_count = count;
    op->audit->cursor = cursor;
    rig_status(rig, op, OP_OK);
}

static void
saw(struct rig *rig, unsigned flags, uint64_t age_ms, const char *name)
{
    const struct op_suspect suspect = {
        .flags = flags,
        .hold_ms = age_ms,
        .wait_ms = age_ms,
        .name = text_from(name),
    };

    stepped(rig, &suspect, 1, 0);
}

static struct op_ticket
hold_of(const char *broker, uint64_t age_ms)
{
    struct op_ticket ticket = {
        .granted = true,
        .fence = 77,
        .ttl_ms = 20000,
        .age_ms = age_ms,
        .owner = TEXT("w"),
        .client = TEXT("shop"),
        .note = TEXT("a note"),
    };

    memset(ticket.session, 's', sizeof(ticket.session));
    memcpy(ticket.broker, broker, 9);
    return ticket;
}

static void
inspected(struct rig *rig, const struct op_ticket *tickets, uint32_t count)
{
    struct op *op = rig_op(rig, OP_INSPECT);

    ck_assert_int_eq(op->reader, READER_AUDIT);
    rig_finish(rig, op,
        (struct op_result){.status = OP_OK,
            .holders = 1,
            .waiters = 3,
            .tickets = tickets,
            .ticket_count = count});
}

/* An answer to the question of that number. */
static void
answered(struct rig *rig, uint64_t number, bool known)
{
    char answer[10] = "A";

    memcpy(answer + 1, &number, 8);
    answer[9] = known;
    rig_news(rig, answer, sizeof(answer));
}

/* The question to another broker, which is answered so; 2: not at all. The
 * opposite, which answers another question, says nothing. */
static uint64_t
asked(struct rig *rig, const char *name, int known)
{
    struct op *op = rig_op(rig, OP_PUBLISH);
    struct text words = op->words[1];
    uint64_t number;

    ck_assert(text_equal(op->words[0], TEXT("broker-2")));
    ck_assert_uint_eq(words.len, 41 + strlen(name));
    ck_assert_int_eq(words.at[0], 'Q');
    ck_assert_mem_eq(words.at + 9, "broker-1ssssssssssssssss", 24);
    ck_assert_mem_eq(words.at + 41, name, strlen(name));
    memcpy(&number, words.at + 1, 8);
    rig_status(rig, op, OP_OK);
    answered(rig, number - 1, known == 0);
    rig_no_op(rig);
    if (known < 2)
        answered(rig, number, known == 1);
    return number;
}

static void
no_more_nodes(struct rig *rig)
{
    rig_pass(rig, 12);
    rig_status(rig, rig_op(rig, OP_AUDIT), OP_GONE);
}

/* From node to node, in steps with a pause between. */
RIG_TEST(run, rig_asked())
{
    struct op *op = rig_op(rig, OP_AUDIT);
    ck_assert_uint_eq(op->audit->node, 0);
    ck_assert_uint_eq(op->audit->cursor, 0);
    ck_assert_uint_eq(op->audit->count, 100);
    ck_assert_uint_eq(op->audit->hold_ms, HOUR_MS);
    ck_assert_uint_eq(op->audit->wait_ms, 60000);
    op->audit->detached = 3;
    stepped(rig, NULL, 0, 99);
    rig_pass(rig, 8);
    rig_no_op(rig);
    rig_pass(rig, 4);
    op = rig_op(rig, OP_AUDIT);
    ck_assert_uint_eq(op->audit->node, 0);
    ck_assert_uint_eq(op->audit->cursor, 99);
    stepped(rig, NULL, 0, 0);
    rig_pass(rig, 12);
    op = rig_op(rig, OP_AUDIT);
    ck_assert_uint_eq(op->audit->node, 1);
    ck_assert_uint_eq(op->audit->cursor, 0);
    rig_silent(rig, 0);
    rig_status(rig, op, OP_GONE);
    rig_expect(
        rig, 0, "1 OK records=20 held=8 waiting=4 detached=6 findings=0 ms=~");
    ck_assert_uint_eq(rig_count(rig, COUNTER_audits), 1);
    ck_assert_uint_eq(rig_count(rig, COUNTER_audit_records), 20);
}

/* An answer of more holds than were asked for. */
RIG_TEST(many_holds, rig_asked())
{
    struct op_ticket tickets[100];

    for (unsigned i = 0; i < 100; i++) {
        tickets[i] = hold_of("broker-2", HOUR_MS);
        tickets[i].fence = 1 + i;
    }
    saw(rig, SUSPECT_OLD_HOLD, HOUR_MS, "a");
    ck_assert_uint_eq(rig_op(rig, OP_INSPECT)->limit, 64);
    inspected(rig, tickets, 100);
    for (unsigned i = 0; i < 64; i++) {
        asked(rig, "a", 1);
        rig_expect(rig, 0, "1 ITEM kind=held ~ ~ ~ ~ ~ ~ ~ ~ ~");
    }
    no_more_nodes(rig);
    rig_expect(rig, 0, "1 OK ~ ~ ~ findings=64 ~");
}

/* One at a time, whoever asks. */
RIG_TEST(busy, rig_asked())
{
    (void)rig_open(rig);
    rig_ask(rig, 1, "2 AUDIT", "2 ERR BUSY retry=1");
    stepped(rig, NULL, 0, 0);
    no_more_nodes(rig);
    rig_expect(rig, 0, "1 OK ~ ~ ~ findings=0 ~");
    rig_say(rig, 1, "2 AUDIT");
    rig_pass(rig, 12);
    rig_status(rig, rig_op(rig, OP_AUDIT), OP_GONE);
    rig_expect(rig, 1, "2 OK records=0 held=0 waiting=0 findings=0 ms=~");
}

/* A hold that is too old; with names, where its broker knows it. */
RIG_TEST(held, rig_asked())
{
    struct op_ticket ticket = hold_of("broker-2", HOUR_MS);

    saw(rig, SUSPECT_OLD_HOLD, HOUR_MS, "a");
    inspected(rig, &ticket, 1);
    asked(rig, "a", 1);
    rig_expect(rig, 0,
        "1 ITEM kind=held name=a age_ms=3600000 session=~ broker=broker-2 "
        "fence=77 ttl_ms=20000 client=shop owner=w note=a%20note");
    no_more_nodes(rig);
    rig_expect(rig, 0, "1 OK ~ ~ ~ findings=1 ~");
}

/* No finding: younger than its own namespace allows, or gone by now. */
RIG_TEST(not_held, rig_asked())
{
    const struct op_suspect suspects[] = {
        {.flags = SUSPECT_OLD_HOLD,
            .hold_ms = 9 * HOUR_MS,
            .name = TEXT("slow/a")},
        {.flags = SUSPECT_OLD_WAIT, .wait_ms = HOUR_MS, .name = TEXT("slow/b")},
        {.flags = SUSPECT_OLD_HOLD, .hold_ms = HOUR_MS, .name = TEXT("b")},
        {.flags = SUSPECT_OLD_HOLD, .hold_ms = HOUR_MS, .name = TEXT("c")},
        {.flags = SUSPECT_OLD_HOLD, .hold_ms = HOUR_MS, .name = TEXT("d")},
    };
    struct op_ticket ticket = hold_of("broker-2", HOUR_MS - 1);

    stepped(rig, suspects, 5, 0);
    inspected(rig, &ticket, 1);
    rig_status(rig, rig_op(rig, OP_INSPECT), OP_GONE);
    rig_status(rig, rig_op(rig, OP_INSPECT), OP_UNSENT);
    no_more_nodes(rig);
    rig_expect(rig, 0, "1 OK ~ ~ ~ findings=0 ~");
}

/* A broker that says that it knows nothing of it, or nothing at all. */
RIG_TEST(orphans, rig_asked())
{
    const struct op_suspect suspects[] = {
        {.flags = SUSPECT_LATE_HOLD, .name = TEXT("a")},
        {.flags = SUSPECT_LATE_HOLD, .name = TEXT("b")},
        {.flags = SUSPECT_LATE_HOLD, .name = TEXT("c")},
        {.flags = SUSPECT_LATE_HOLD, .name = TEXT("d")},
    };
    struct op_ticket ticket = hold_of("broker-2", 5000);

    ticket.late = true;
    stepped(rig, suspects, 4, 0);
    inspected(rig, &ticket, 1);
    asked(rig, "a", 1); /* it lives */
    inspected(rig, &ticket, 1);
    asked(rig, "b", 0);
    rig_silent(rig, 0);
    ticket.age_ms = 6000;
    ticket.ttl_ms = 15000;
    inspected(rig, &ticket, 1); /* it is there still */
    rig_expect(rig, 0,
        "1 ITEM kind=orphan name=b age_ms=6000 ~ ~ ~ ttl_ms=15000 ~ ~ ~");
    inspected(rig, &ticket, 1);
    asked(rig, "c", 2);
    rig_pass(rig, 1990);
    rig_no_op(rig);
    rig_pass(rig, 20);
    asked(rig, "c", 2);
    rig_silent(rig, 0);
    rig_pass(rig, 2010);
    inspected(rig, &ticket, 1);
    rig_expect(rig, 0, "1 ITEM kind=orphan name=c ~ ~ ~ ~ ~ ~ ~ ~");
    inspected(rig, &ticket, 1);
    inspected(rig, &ticket, 1); /* its broker is not asked again */
    rig_expect(rig, 0, "1 ITEM kind=orphan name=d ~ ~ ~ ~ ~ ~ ~ ~");
    no_more_nodes(rig);
    rig_expect(rig, 0, "1 OK ~ ~ ~ findings=3 ~");
}

/* The next run asks it again. */
RIG_TEST(silent_for_a_run, rig_asked())
{
    struct op_ticket ticket = hold_of("broker-2", 5000);

    ticket.late = true;
    saw(rig, SUSPECT_LATE_HOLD, 0, "a");
    inspected(rig, &ticket, 1);
    asked(rig, "a", 2);
    rig_pass(rig, 2010);
    asked(rig, "a", 2);
    rig_pass(rig, 2010);
    inspected(rig, &ticket, 1);
    rig_expect(rig, 0, "1 ITEM kind=orphan name=a ~ ~ ~ ~ ~ ~ ~ ~");
    no_more_nodes(rig);
    rig_expect(rig, 0, "1 OK ~ ~ ~ findings=1 ~");
    rig_say(rig, 0, "2 AUDIT");
    rig_pass(rig, 12);
    saw(rig, SUSPECT_LATE_HOLD, 0, "a");
    inspected(rig, &ticket, 1);
    asked(rig, "a", 1);
    no_more_nodes(rig);
    rig_expect(rig, 0, "2 OK ~ ~ ~ findings=0 ~");
}

/* A hold that has ended since it was read, or is another's by now, is none:
 * whether its broker says so, or nothing. */
RIG_TEST(not_orphans, rig_asked())
{
    struct op_ticket ticket = hold_of("broker-2", HOUR_MS);

    saw(rig, SUSPECT_OLD_HOLD, HOUR_MS, "a");
    inspected(rig, &ticket, 1);
    if (_i % 2 == 0) {
        asked(rig, "a", 0);
    } else {
        asked(rig, "a", 2);
        rig_pass(rig, 2010);
        asked(rig, "a", 2);
        rig_pass(rig, 2010);
    }
    if (_i / 2 == 0)
        ticket.fence++;
    else if (_i / 2 == 1)
        ticket.session[15]++;
    else if (_i / 2 == 2)
        ticket.broker[7]++;
    else if (_i / 2 == 3)
        ticket.granted = false;
    if (_i / 2 == 4)
        rig_status(rig, rig_op(rig, OP_INSPECT), OP_GONE);
    else
        inspected(rig, &ticket, 1);
    no_more_nodes(rig);
    rig_expect(rig, 0, "1 OK ~ ~ ~ findings=0 ~");
}

/* The answer to the first asking comes after the second one. */
RIG_TEST(late_answer, rig_asked())
{
    struct op_ticket ticket = hold_of("broker-2", HOUR_MS);

    saw(rig, SUSPECT_OLD_HOLD, HOUR_MS, "a");
    inspected(rig, &ticket, 1);
    uint64_t number = asked(rig, "a", 2);
    rig_pass(rig, 2010);
    asked(rig, "a", 2);
    answered(rig, number, true);
    rig_expect(rig, 0, "1 ITEM kind=held name=a ~ ~ ~ ~ ~ ~ ~ ~");
    no_more_nodes(rig);
}

/* Questions of another broker, until no more can be answered. */
static void
no_room(struct rig *rig)
{
    char question[42] = "Q12345678broker-3";
    uint32_t before;

    question[41] = 'z';
    do {
        before = rig->op_count;
        rig_news(rig, question, sizeof(question));
    } while (rig->op_count > before);
}

static void
room(struct rig *rig)
{
    while (rig->op_count > 0)
        rig_status(rig, rig->ops[0], OP_OK);
}

/* A broker that there was no room to ask is not silent: its holds are no
 * orphans, and it is asked about others. */
RIG_TEST(not_asked, rig_asked())
{
    bool old = _i == 1;
    const struct op_suspect suspect = {
        .flags = SUSPECT_LATE_HOLD, .name = TEXT("a")};
    struct op_ticket ticket = hold_of("broker-2", old ? HOUR_MS : 5000);

    ticket.late = true;
    stepped(rig, &suspect, 1, 7);
    no_room(rig);
    inspected(rig, &ticket, 1);
    no_room(rig);
    rig_pass(rig, 2010);
    rig_pass(rig, 2010);
    room(rig);
    if (old)
        rig_expect(rig, 0, "1 ITEM kind=held name=a ~ ~ ~ ~ ~ ~ ~ ~");
    rig_silent(rig, 0);
    rig_pass(rig, 1010);
    saw(rig, SUSPECT_LATE_HOLD, 0, "b");
    inspected(rig, &ticket, 1);
    asked(rig, "b", 1);
    if (old)
        rig_expect(rig, 0, "1 ITEM kind=held name=b ~ ~ ~ ~ ~ ~ ~ ~");
    no_more_nodes(rig);
    rig_expect(rig, 0, "1 OK ~ ~ ~ ~ ~");
}

/* Nor is one to whom Redis would not pass the question on. */
RIG_TEST(question_refused, rig_asked())
{
    struct op_ticket ticket = hold_of("broker-2", HOUR_MS);

    saw(rig, SUSPECT_OLD_HOLD, HOUR_MS, "a");
    inspected(rig, &ticket, 1);
    rig_status(rig, rig_op(rig, OP_PUBLISH), OP_REFUSED);
    rig_pass(rig, 2010);
    rig_status(rig, rig_op(rig, OP_PUBLISH), OP_UNSENT);
    rig_pass(rig, 2010);
    rig_expect(rig, 0, "1 ITEM kind=held name=a ~ ~ ~ ~ ~ ~ ~ ~");
    no_more_nodes(rig);
}

/* One that was asked once, and does not answer, is. */
RIG_TEST(asked_once, rig_asked())
{
    struct op_ticket ticket = hold_of("broker-2", HOUR_MS);

    saw(rig, SUSPECT_OLD_HOLD, HOUR_MS, "a");
    if (_i == 1)
        no_room(rig);
    inspected(rig, &ticket, 1);
    if (_i == 1)
        room(rig);
    else
        asked(rig, "a", 2);
    if (_i == 0)
        no_room(rig);
    rig_pass(rig, 2010);
    if (_i == 0)
        room(rig);
    else
        asked(rig, "a", 2);
    rig_pass(rig, 2010);
    inspected(rig, &ticket, 1);
    rig_expect(rig, 0, "1 ITEM kind=orphan name=a ~ ~ ~ ~ ~ ~ ~ ~");
    no_more_nodes(rig);
}

/* This broker's own need no message. */
RIG_TEST(own, rig_asked())
{
    const struct op_suspect suspects[] = {
        {.flags = SUSPECT_OLD_HOLD, .hold_ms = HOUR_MS, .name = TEXT("mine")},
        {.flags = SUSPECT_OLD_HOLD, .hold_ms = HOUR_MS, .name = TEXT("lost")},
    };
    struct op_ticket ticket = hold_of("broker-1", HOUR_MS);
    struct op *step = rig_op(rig, OP_AUDIT);

    rig_say(rig, 0, "2 LOCK mine owner=w");
    struct op *op = rig->ops[1];
    memcpy(ticket.session, op->session, sizeof(ticket.session));
    memcpy(ticket.owner_hash, op->owner_hash, sizeof(ticket.owner_hash));
    rig_granted(rig, op, 5);
    rig_expect(rig, 0, "2 OK ~ ~ ~");
    ck_assert_ptr_eq(rig_op(rig, OP_AUDIT), step);
    stepped(rig, suspects, 2, 0);
    inspected(rig, &ticket, 1);
    rig_expect(rig, 0, "1 ITEM kind=held name=mine ~ ~ ~ ~ ~ ~ ~ ~");
    inspected(rig, &ticket, 1);
    inspected(rig, &ticket, 1);
    rig_expect(rig, 0, "1 ITEM kind=orphan name=lost ~ ~ ~ ~ ~ ~ ~ ~");
    no_more_nodes(rig);
}

/* And so it answers others. */
SESSION_TEST(questions)
{
    char question[42] = "Q12345678broker-2";

    rig_say(rig, s, "1 LOCK a owner=w");
    struct op *op = rig_op(rig, OP_ACQUIRE);
    memcpy(question + 17, op->session, 16);
    memcpy(question + 33, op->owner_hash, 8);
    question[41] = 'a';
    rig_granted(rig, op, 5);
    rig_news(rig, question, sizeof(question));
    op = rig_op(rig, OP_PUBLISH);
    ck_assert(text_equal(op->words[0], TEXT("broker-2")));
    ck_assert_uint_eq(op->words[1].len, 10);
    ck_assert_mem_eq(op->words[1].at, "A12345678\1", 10);
    rig_status(rig, op, OP_OK);
    for (int i = 0; i < 3; i++) { /* another session, owner, lock */
        static const int at[] = {17, 33, 41};
        question[at[i]]++;
        rig_news(rig, question, sizeof(question));
        op = rig_op(rig, OP_PUBLISH);
        ck_assert_mem_eq(op->words[1].at, "A12345678\0", 10);
        rig_status(rig, op, OP_OK);
        question[at[i]]--;
    }
    for (size_t len = 1; len < sizeof(question); len++)
        rig_news(rig, question, len);
    char answer[12] = "A";
    for (size_t len = 1; len <= sizeof(answer); len++)
        rig_news(rig, answer, len);
    rig_no_op(rig);
}

/* Of those that wait the first one is told of, with how many there are. */
RIG_TEST(waiting, rig_asked())
{
    struct op_ticket tickets[3] = {
        hold_of("broker-2", 70000),
        hold_of("broker-2", 70000),
        hold_of("broker-3", 60000),
    };

    tickets[1].granted = tickets[2].granted = false;
    saw(rig, SUSPECT_OLD_WAIT, 70000, "a");
    inspected(rig, tickets, 3);
    rig_expect(rig, 0,
        "1 ITEM kind=waiting name=a age_ms=70000 session=~ broker=broker-2 "
        "waiters=3 client=shop owner=w note=~");
    no_more_nodes(rig);
    rig_expect(rig, 0, "1 OK ~ ~ ~ findings=1 ~");
}

/* A record that could not be read when it was looked at closer. A record
 * without sense is a finding. Another error of Redis is none. */
RIG_TEST(senseless_when_looked_at, rig_asked())
{
    const struct op_suspect suspects[] = {
        {.flags = SUSPECT_OLD_HOLD, .hold_ms = HOUR_MS, .name = TEXT("a")},
        {.flags = SUSPECT_OLD_HOLD, .hold_ms = HOUR_MS, .name = TEXT("b")},
        {.flags = SUSPECT_OLD_HOLD,
            .hold_ms = HOUR_MS,
            .wrong = WRONG_RECORD,
            .name = TEXT("c")},
        {.flags = SUSPECT_LATE_HOLD, .name = TEXT("d")},
    };
    const struct op_result bad = {.status = OP_REFUSED, .senseless = true};
    struct op_ticket ticket = hold_of("broker-1", 1000);

    stepped(rig, suspects, 4, 0);
    rig_status(rig, rig_op(rig, OP_INSPECT), OP_REFUSED);
    rig_finish(rig, rig_op(rig, OP_INSPECT), bad);
    rig_expect(rig, 0, "1 ITEM kind=senseless name=b why=record");
    rig_finish(rig, rig_op(rig, OP_INSPECT), bad);
    rig_expect(rig, 0, "1 ITEM kind=senseless name=c why=record");
    ticket.late = true;
    inspected(rig, &ticket, 1);
    rig_finish(rig, rig_op(rig, OP_INSPECT), bad); /* until it was read again */
    no_more_nodes(rig);
    rig_expect(rig, 0, "1 OK ~ ~ ~ findings=2 ~");
}

/* A record without sense is told of once, with its other oddities. */
RIG_TEST(senseless, rig_asked())
{
    const struct op_suspect suspects[] = {
        {.wrong = WRONG_TYPE, .name = TEXT("a")},
        {.wrong = WRONG_TYPE, .name = TEXT("a")},
        {.flags = SUSPECT_OLD_HOLD,
            .hold_ms = HOUR_MS,
            .wrong = WRONG_EXPIRY,
            .name = TEXT("b")},
        {.flags = SUSPECT_OLD_HOLD,
            .hold_ms = HOUR_MS,
            .wrong = WRONG_NAME,
            .name = TEXT("c}d")},
        {.wrong = WRONG_NAME, .name = TEXT("")},
    };
    struct op_ticket ticket = hold_of("broker-2", HOUR_MS);

    stepped(rig, suspects, 5, 0);
    rig_expect(rig, 0, "1 ITEM kind=senseless name=a why=type");
    inspected(rig, &ticket, 1);
    rig_expect(rig, 0, "1 ITEM kind=senseless name=b why=expiry");
    asked(rig, "b", 1);
    rig_expect(rig, 0, "1 ITEM kind=held name=b ~ ~ ~ ~ ~ ~ ~ ~");
    rig_expect(rig, 0, "1 ITEM kind=senseless name=c}d why=name");
    rig_expect(rig, 0, "1 ITEM kind=senseless why=name");
    no_more_nodes(rig);
    rig_expect(rig, 0, "1 OK ~ ~ ~ findings=5 ~");
}

/* Some are told of; all are counted. */
RIG_TEST(too_many, rig_asked())
{
    struct op_suspect suspects[AUDIT_SUSPECTS_MAX];
    char names[AUDIT_SUSPECTS_MAX][8];

    for (int part = 0; part < 3; part++) {
        for (unsigned i = 0; i < AUDIT_SUSPECTS_MAX; i++) {
            int len = snprintf(names[i], sizeof(names[i]), "%d/%u", part, i);
            suspects[i] = (struct op_suspect){.wrong = WRONG_RECORD,
                .name = text_make(names[i], (size_t)len)};
        }
        stepped(rig, suspects, AUDIT_SUSPECTS_MAX, part == 2 ? 0 : 5);
        for (int i = 0; i < (part == 2 ? 0 : 488); i++)
            rig_expect(rig, 0, "1 ITEM kind=senseless ~ ~");
        while (part < 2 && rig_line(rig, 0)[0] != '\0')
            continue;
        rig_event(rig, 0, CORE_MORE);
        rig->sessions[0].read = rig->sessions[0].written = 0;
        rig_pass(rig, 12);
    }
    log_keep(LOG_INFO);
    rig_status(rig, rig_op(rig, OP_AUDIT), OP_GONE);
    rig_expect(rig, 0, "1 OK ~ ~ ~ findings=1536 untold=536 ~");
    ck_assert_ptr_nonnull(
        strstr(log_kept(), " findings=1536 untold=536 unhooked=0 ms="));
}

/* A node that cannot be asked is asked thrice and passed over. */
RIG_TEST(node_away, rig_asked())
{
    static const enum op_status refusals[] = {
        OP_UNSENT, OP_UNKNOWN, OP_REFUSED};

    for (int i = 0; i < 3; i++) {
        struct op *op = rig_op(rig, OP_AUDIT);
        ck_assert_uint_eq(op->audit->node, 0);
        rig_status(rig, op, refusals[i]);
        if (i < 2) {
            rig_pass(rig, 990);
            rig_no_op(rig);
            rig_pass(rig, 20);
        }
    }
    /* Another one is asked as often, and again after each answer. */
    for (uint64_t cursor = 3; cursor-- > 0;) {
        ck_assert_uint_eq(rig_op(rig, OP_AUDIT)->audit->node, 1);
        rig_status(rig, rig_op(rig, OP_AUDIT), OP_UNSENT);
        rig_pass(rig, 1010);
        ck_assert_uint_eq(rig_op(rig, OP_AUDIT)->audit->node, 1);
        stepped(rig, NULL, 0, cursor);
        rig_pass(rig, 12);
    }
    rig_status(rig, rig_op(rig, OP_AUDIT), OP_GONE);
    rig_expect(rig, 0, "1 OK ~ ~ ~ findings=0 skipped=1 ~");
    ck_assert_uint_eq(rig_count(rig, COUNTER_audit_nodes_away), 1);
}

/* Findings beyond the room of a step are told in the log. */
RIG_TEST(left_out, rig_asked())
{
    struct op *op = rig_op(rig, OP_AUDIT);

    snprintf(op->audit->name, sizeof(op->audit->name), "10.0.0.1:7000");
    op->audit->left = 3;
    log_keep(LOG_WARN);
    rig_status(rig, op, OP_OK);
    ck_assert_str_eq(log_kept(),
        "level=warn event=audit_left_out node=10.0.0.1:7000 records=3\n");
    no_more_nodes(rig);
}

/* The session that asked has gone: so has the run, at any stage. */
RIG_TEST(session_gone, rig_asked())
{
    struct op_ticket ticket = hold_of("broker-2", HOUR_MS);

    if (_i == 1) {
        saw(rig, SUSPECT_OLD_HOLD, HOUR_MS, "a");
    } else if (_i == 2) {
        saw(rig, SUSPECT_OLD_HOLD, HOUR_MS, "a");
        inspected(rig, &ticket, 1);
    } else if (_i == 3) {
        stepped(rig, NULL, 0, 7);
    }
    rig_event(rig, 0, CORE_DROP);
    while (rig->op_count > 0)
        rig_status(rig, rig->ops[0], OP_OK);
    rig_pass(rig, 5000);
    rig_no_op(rig);
    (void)rig_open(rig);
    rig_say(rig, 1, "1 AUDIT");
    rig_pass(rig, 12);
    rig_status(rig, rig_op(rig, OP_AUDIT), OP_GONE);
    rig_expect(rig, 1, "1 OK records=0 ~ ~ findings=0 ~");
}

/* And it is in nobody's way, but until its operation is done. */
RIG_TEST(session_gone_another_asks, rig_asked())
{
    struct op_ticket ticket = hold_of("broker-2", HOUR_MS);

    (void)rig_open(rig);
    if (_i == 1) {
        stepped(rig, NULL, 0, 7);
    } else if (_i == 2) {
        saw(rig, SUSPECT_OLD_HOLD, HOUR_MS, "a");
        inspected(rig, &ticket, 1);
        asked(rig, "a", 2);
    }
    rig_ask(rig, 1, "1 AUDIT", "1 ERR BUSY retry=1");
    rig_event(rig, 0, CORE_DROP);
    if (_i == 0) {
        rig_ask(rig, 1, "1 AUDIT", "1 ERR BUSY retry=1");
        stepped(rig, NULL, 0, 7);
    }
    rig_say(rig, 1, "2 AUDIT");
    rig_pass(rig, 12);
    ck_assert_uint_eq(rig_op(rig, OP_AUDIT)->audit->cursor, 0);
    stepped(rig, NULL, 0, 0);
    no_more_nodes(rig);
    rig_expect(rig, 1, "2 OK records=10 ~ ~ findings=0 ~");
}

/* So it is where the broker stops; who asked is told. */
RIG_TEST(stop, rig_asked())
{
    if (_i == 1)
        stepped(rig, NULL, 0, 7);
    rig_stop(rig);
    if (_i == 0)
        rig_status(rig, rig_op(rig, OP_AUDIT), OP_OK);
    rig_expect(rig, 0, "1 ERR DRAINING ~");
    rig_no_op(rig);
    rig_pass(rig, 60000);
    rig_no_op(rig);
}

/* By time: nodes that another broker has marked are its own. */
START_TEST(marks)
{
    struct rig *rig = rig_timed();

    stepped(rig, NULL, 0, 9);
    rig_pass(rig, 12);
    stepped(rig, NULL, 0, 0); /* it is marked still */
    rig_pass(rig, 12);
    struct op *mark = rig_op(rig, OP_AUDIT);
    ck_assert_uint_eq(mark->audit->node, 1);
    ck_assert_uint_gt(mark->audit->mark_ms, 0);
    rig_status(rig, mark, OP_BUSY);
    mark = rig_op(rig, OP_AUDIT);
    ck_assert_uint_eq(mark->audit->node, 2);
    rig_status(rig, mark, OP_OK);
    stepped(rig, NULL, 0, 9);
    rig_pass_us(rig, 12000);
    stepped(rig, NULL, 0, 10);
    rig_pass_us(rig, 12000);
    /* A long one is marked again. */
    rig->now_us += INTERVAL_US / 3;
    stepped(rig, NULL, 0, 11);
    rig_pass(rig, 12);
    mark = rig_op(rig, OP_AUDIT);
    ck_assert_uint_gt(mark->audit->mark_ms, 0);
    ck_assert(mark->audit->marked);
    rig_status(rig, mark, OP_OK);
    stepped(rig, NULL, 0, 0);
    rig_pass(rig, 12);
    mark = rig_op(rig, OP_AUDIT);
    ck_assert(!mark->audit->marked);
    rig_status(rig, mark, OP_GONE);
    rig_no_op(rig);
    ck_assert_uint_eq(rig_count(rig, COUNTER_audits), 1);
    struct core_audit last;
    core_last_audit(rig->core, &last);
    ck_assert_uint_eq(last.nodes, 2);
    ck_assert_uint_eq(last.records, 60);
    rig_free(rig);
}

END_TEST

/* All nodes are others': that was no audit. The next one comes in time. */
START_TEST(nothing_to_do)
{
    struct rig *rig = rig_audit(INTERVAL_US);

    for (int i = 0; i < 3; i++) {
        rig_pass_us(rig, INTERVAL_US / 10 * 11);
        rig_status(rig, rig_op(rig, OP_AUDIT), OP_BUSY);
        rig_status(rig, rig_op(rig, OP_AUDIT), OP_GONE);
        rig_no_op(rig);
    }
    ck_assert_uint_eq(rig_count(rig, COUNTER_audits), 0);
    rig_free(rig);
}

END_TEST

/* By time, what is as old as that is broken: this hold and no later one. */
START_TEST(breaks)
{
    struct rig *rig = rig_timed();
    const struct op_suspect suspects[] = {
        {.flags = SUSPECT_OLD_HOLD, .hold_ms = 3 * HOUR_MS, .name = TEXT("a")},
        {.flags = SUSPECT_OLD_HOLD, .hold_ms = 3 * HOUR_MS, .name = TEXT("b")},
        {.flags = SUSPECT_OLD_HOLD, .hold_ms = 3 * HOUR_MS, .name = TEXT("c")},
        {.flags = SUSPECT_OLD_HOLD, .hold_ms = HOUR_MS, .name = TEXT("d")},
        {.flags = SUSPECT_OLD_HOLD, .hold_ms = 3 * HOUR_MS, .name = TEXT("e")},
    };
    struct op_ticket tickets[2] = {
        hold_of("broker-2", 2 * HOUR_MS), hold_of("broker-2", HOUR_MS)};

    stepped(rig, suspects, 5, 0);
    inspected(rig, tickets, 2);
    asked(rig, "a", 1);
    struct op *op = rig_op(rig, OP_BREAK);
    ck_assert_uint_eq(op->fence, 77);
    ck_assert(text_equal(op->name, TEXT("a")));
    rig_status(rig, op, OP_OK);
    asked(rig, "a", 1); /* the other one is not as old */
    inspected(rig, tickets, 1);
    asked(rig, "b", 0); /* nobody knows it: so much the more */
    inspected(rig, tickets, 1);
    rig_status(rig, rig_op(rig, OP_BREAK), OP_GONE);
    tickets[0].broken = true; /* it has been broken already */
    inspected(rig, tickets, 1);
    asked(rig, "c", 1);
    inspected(rig, tickets + 1, 1);
    asked(rig, "d", 1);
    tickets[0].broken = false; /* it has been broken since it was read */
    inspected(rig, tickets, 1);
    asked(rig, "e", 0);
    tickets[0].broken = true;
    inspected(rig, tickets, 1);
    no_more_nodes(rig);
    ck_assert_uint_eq(rig_count(rig, COUNTER_audit_breaks), 1);
    rig_free(rig);
}

END_TEST

static uint64_t
held_counted(const struct rig *rig)
{
    struct core_namespace counted[NAMESPACES_MAX + 1];
    uint32_t count = core_namespaces(rig->core, rig->now_us, counted);

    return counted[count - 1].counted->value[NAMESPACE_audit_held];
}

/* A lock that is broken while the broker stops is told of. Other locks are not.
 */
START_TEST(breaks_and_stops)
{
    struct rig *rig = rig_create();
    struct op_ticket ticket = hold_of("broker-2", 2 * HOUR_MS);
    bool done = _i == 1;

    rig->settings.audit_limits = limits + 1;
    rig->settings.audit_interval_us = INTERVAL_US;
    rig->settings.audit_hook = true;
    rig_start(rig);
    rig_pass_us(rig, INTERVAL_US);
    rig_status(rig, rig_op(rig, OP_AUDIT), OP_OK);
    saw(rig, SUSPECT_OLD_HOLD, 2 * HOUR_MS, "a");
    inspected(rig, &ticket, 1);
    asked(rig, "a", 1);
    rig_stop(rig);
    log_keep(LOG_WARN);
    rig_status(rig, rig_op(rig, OP_BREAK), done ? OP_OK : OP_GONE);
    rig_no_op(rig);
    ck_assert_uint_eq(rig_count(rig, COUNTER_audit_breaks), done);
    ck_assert_uint_eq(held_counted(rig), done);
    ck_assert_uint_eq(rig->hooks, done);
    ck_assert_int_eq(strstr(rig->hook, "HOLDFAST_BROKEN=1") != NULL, done);
    ck_assert_int_eq(strstr(log_kept(), "kind=held lock=\"a\" ") != NULL, done);
    ck_assert(core_stopped(rig->core));
    rig_free(rig);
}

END_TEST

/* An AUDIT by hand only looks. */
RIG_TEST(request_breaks_nothing, rig_asked())
{
    struct op_ticket ticket = hold_of("broker-2", 9 * HOUR_MS);

    saw(rig, SUSPECT_OLD_HOLD, 9 * HOUR_MS, "a");
    inspected(rig, &ticket, 1);
    asked(rig, "a", 1);
    rig_expect(rig, 0, "1 ITEM kind=held name=a ~ ~ ~ ~ ~ ~ ~ ~");
    no_more_nodes(rig);
}

/* The hook is told of what is found by time, in words without blanks. */
START_TEST(hook)
{
    struct rig *rig = rig_create();
    struct op_suspect suspects[AUDIT_SUSPECTS_MAX];
    struct op_ticket ticket = hold_of("broker-2", HOUR_MS);

    rig->settings.audit_limits = limits + 1;
    rig->settings.audit_interval_us = INTERVAL_US;
    rig->settings.audit_hook = true;
    rig_start(rig);
    (void)rig_open(rig);
    rig_say(rig, 0, "1 AUDIT");
    rig_pass(rig, 2);
    suspects[0] =
        (struct op_suspect){.wrong = WRONG_RECORD, .name = TEXT("a b=\n")};
    stepped(rig, suspects, 1, 0);
    no_more_nodes(rig);
    ck_assert_uint_eq(rig->hooks, 0);
    rig_pass_us(rig, INTERVAL_US);
    rig_status(rig, rig_op(rig, OP_AUDIT), OP_OK);
    stepped(rig, suspects, 1, 1);
    ck_assert_uint_eq(rig->hooks, 1);
    ck_assert_str_eq(rig->hook,
        "HOLDFAST_LOCK=a%20b%3D%0A HOLDFAST_FINDING=senseless "
        "HOLDFAST_NAMESPACE=other HOLDFAST_WHY=record HOLDFAST_AGE_MS=0 "
        "HOLDFAST_SESSION= HOLDFAST_BROKER= HOLDFAST_CLIENT= HOLDFAST_OWNER= "
        "HOLDFAST_NOTE= HOLDFAST_FENCE=0 HOLDFAST_BROKEN=0 "
        "HOLDFAST_DETACHED=0 ");
    rig_pass(rig, 2);
    saw(rig, SUSPECT_OLD_HOLD, HOUR_MS, "c");
    inspected(rig, &ticket, 1);
    asked(rig, "c", 1);
    ck_assert_uint_eq(rig->hooks, 2);
    ck_assert_ptr_nonnull(strstr(rig->hook,
        "HOLDFAST_BROKER=broker-2 HOLDFAST_CLIENT=shop HOLDFAST_OWNER=w "
        "HOLDFAST_NOTE=a%20note HOLDFAST_FENCE=77 HOLDFAST_BROKEN=0 "
        "HOLDFAST_DETACHED=0 "));
    rig_pass(rig, 2);
    rig_status(rig, rig_op(rig, OP_AUDIT), OP_OK);
    /* No more than so many a run. */
    static const char names[AUDIT_SUSPECTS_MAX + 1];
    for (unsigned i = 0; i < 150; i++)
        suspects[i] = (struct op_suspect){
            .wrong = WRONG_RECORD, .name = text_make(names, 1 + i)};
    stepped(rig, suspects, 150, 0);
    ck_assert_uint_eq(rig->hooks, 100);
    rig_pass(rig, 2);
    log_keep(LOG_INFO);
    rig_status(rig, rig_op(rig, OP_AUDIT), OP_GONE);
    ck_assert_ptr_nonnull(
        strstr(log_kept(), " findings=152 untold=0 unhooked=52 ms="));
    rig_free(rig);
}

END_TEST

/* One whose queues are its own: a quorum's. */
static struct rig *
rig_queues(void)
{
    struct rig *rig = rig_create();

    rig->settings.namespaces = namespaces;
    rig->settings.namespace_count = 1;
    rig->settings.audit_limits = limits;
    rig->settings.queues_here = true;
    rig->settings.tickets_max = rig->settings.requests_max = 1024;
    rig_start(rig);
    (void)rig_open(rig);
    return rig;
}

/* The AUDIT that is to look at this lock of ours, and then at no other. */
static void
inspections_here(struct rig *rig, const char *name)
{
    struct op_ticket ticket = hold_of("broker-1", 60000);
    struct op *op = rig->ops[rig->op_count - 1];

    ck_assert_int_eq(op->kind, OP_INSPECT);
    ck_assert(text_equal(op->name, text_from(name)));
    ticket.granted = false;
    rig_finish(rig, op,
        (struct op_result){.status = OP_OK,
            .waiters = 2,
            .tickets = &ticket,
            .ticket_count = 1});
    for (uint32_t i = 0; i < rig->op_count; i++)
        ck_assert_int_ne(rig->ops[i]->kind, OP_INSPECT);
}

/* Waits that stand in no record are found where they are: each lock once. */
RIG_TEST(waits_here, rig_queues())
{
    rig_wait(rig, 0, "1 LOCK slow/a");
    rig_wait(rig, 0, "2 LOCK b owner=1");
    rig_wait(rig, 0, "3 LOCK b owner=2");
    rig->now_us += 60 * (uint64_t)SECOND_US;
    rig_wait(rig, 0, "4 LOCK c");
    rig_say(rig, 0, "5 AUDIT");
    inspections_here(rig, "b");
    rig_expect(rig, 0, "5 ITEM kind=waiting name=b ~ ~ ~ waiters=2 ~ ~ ~");
}

/* By the ages of its namespace as it is now, whatever place that has. */
RIG_TEST(waits_here_reloaded, rig_queues())
{
    static const struct text moved[] = {{"b", 1}, {"slow/", 5}};
    static const struct audit_limits moved_limits[] = {
        {.warn_ms = HOUR_MS},
        {.wait_ms = 60000},
        {.warn_ms = HOUR_MS},
    };

    rig_wait(rig, 0, "1 LOCK b");
    rig_wait(rig, 0, "2 LOCK slow/a");
    rig->settings.namespaces = moved;
    rig->settings.namespace_count = 2;
    rig->settings.audit_limits = moved_limits;
    core_configure(rig->core, &rig->settings);
    rig->now_us += 60 * (uint64_t)SECOND_US;
    rig_say(rig, 0, "3 AUDIT");
    inspections_here(rig, "slow/a");
    rig_expect(rig, 0, "3 ITEM kind=waiting name=slow/a ~ ~ ~ ~ ~ ~ ~");
}

/* So many locks are looked at; the log has it that there are more. */
START_TEST(waits_here_left_out)
{
    struct rig *rig = rig_queues();
    uint32_t looked = 0;

    for (unsigned i = 0; i < AUDIT_SUSPECTS_MAX + 3; i++) {
        char line[40];
        unsigned session = i / 60;
        if (session == rig->session_count)
            (void)rig_open(rig);
        snprintf(line, sizeof(line), "%u LOCK n%u wait=1h", i, i);
        rig_wait(rig, session, line);
    }
    rig->now_us += 60 * (uint64_t)SECOND_US;
    unsigned asks = rig_open(rig);
    log_keep(LOG_WARN);
    rig_say(rig, asks, "1 AUDIT");
    for (; rig->op_count > 0; looked++)
        rig_status(rig, rig_op(rig, OP_INSPECT), OP_GONE);
    ck_assert_uint_eq(looked, AUDIT_SUSPECTS_MAX);
    ck_assert_str_eq(
        log_kept(), "level=warn event=audit_left_out node=here records=3\n");
    rig_free(rig);
}

END_TEST

Suite *
core_audit_suite(void)
{
    Suite *suite = suite_create("core_audit");
    TCase *tests = tcase_create("core_audit");

    tcase_add_test(tests, run);
    tcase_add_test(tests, many_holds);
    tcase_add_test(tests, busy);
    tcase_add_test(tests, held);
    tcase_add_test(tests, not_held);
    tcase_add_test(tests, orphans);
    tcase_add_test(tests, silent_for_a_run);
    tcase_add_loop_test(tests, not_orphans, 0, 10);
    tcase_add_test(tests, late_answer);
    tcase_add_loop_test(tests, not_asked, 0, 2);
    tcase_add_test(tests, question_refused);
    tcase_add_loop_test(tests, asked_once, 0, 2);
    tcase_add_test(tests, own);
    tcase_add_test(tests, questions);
    tcase_add_test(tests, waiting);
    tcase_add_test(tests, senseless);
    tcase_add_test(tests, senseless_when_looked_at);
    tcase_add_test(tests, too_many);
    tcase_add_test(tests, node_away);
    tcase_add_test(tests, left_out);
    tcase_add_loop_test(tests, session_gone, 0, 4);
    tcase_add_loop_test(tests, session_gone_another_asks, 0, 3);
    tcase_add_loop_test(tests, stop, 0, 2);
    tcase_add_test(tests, marks);
    tcase_add_test(tests, nothing_to_do);
    tcase_add_test(tests, breaks);
    tcase_add_loop_test(tests, breaks_and_stops, 0, 2);
    tcase_add_test(tests, request_breaks_nothing);
    tcase_add_test(tests, hook);
    tcase_add_test(tests, waits_here);
    tcase_add_test(tests, waits_here_reloaded);
    tcase_add_test(tests, waits_here_left_out);
    suite_add_tcase(suite, tests);
    return suite;
}

/*
 * Tests of daemon/core/feature/members.c: WATCH members=1.
 */
#include "daemon/core/feature/members.h"
#include "daemon/core/model/lock.h"
#include "daemon/core/model/state.h"
#include "daemon/op/op.h"
#include "tests/unit/core_rig.h"

#include <stdio.h>
#include <string.h>

Suite *core_members_suite(void);

#define KEY     "holdfast:{a}"
#define HISTORY 5
#define UNREAD  (RIG_LINES / 2) /* bytes: MEMBERS_UNREAD */
#define PAGED   (RIG_LINES / 4) /* bytes: MEMBERS_PAGED */

/* The n-th member: its arrival is n, its fence 10 n. */
static struct op_ticket
member(uint64_t n)
{
    struct op_ticket ticket = {.granted = true,
        .arrival = n,
        .fence = 10 * n,
        .permits = 1,
        .owner = TEXT(""),
        .client = TEXT(""),
        .note = TEXT("n")};

    memset(ticket.session, (int)n, sizeof(ticket.session));
    return ticket;
}

static void
told(struct rig *rig, struct op_members members)
{
    struct core_event event = {.kind = CORE_MEMBERS, .members = &members};

    if (members.key.len == 0)
        members.key = TEXT(KEY);
    if (members.history == 0)
        members.history = HISTORY;
    rig_step(rig, &event);
}

/* A page with the members `from` to `to`; all of them are 1 to `count`. */
static void
page(struct rig *rig, uint64_t from, uint64_t to, uint32_t count)
{
    struct op_ticket tickets[8];
    uint32_t n = (uint32_t)(to + 1 - from);

    for (uint32_t i = 0; i < n; i++)
        tickets[i] = member(from + i);
    told(rig,
        (struct op_members){.kind = to < count ? MEMBERS_PAGE : MEMBERS_LAST,
            .count = count,
            .sum = 5 * count * (count + 1),
            .fence = 10 * count,
            .after = from - 1,
            .tickets = tickets,
            .ticket_count = n});
}

/* The n-th member, which has that note, comes, changes or goes; so many are
 * left. */
static void
change_noted(struct rig *rig, enum members_kind kind, uint64_t n,
    uint32_t count, struct text note)
{
    struct op_ticket ticket = member(n);

    ticket.note = note;
    told(rig, (struct op_members){.kind = kind,
                  .count = count,
                  .fence = kind == MEMBERS_JOINED ? 10 * (n - 1) : 0,
                  .tickets = &ticket,
                  .ticket_count = 1});
}

static void
change(struct rig *rig, enum members_kind kind, uint64_t n, uint32_t count)
{
    change_noted(rig, kind, n, count, TEXT("n"));
}

/* Changes of the first member, until the client has so many bytes to read. */
static void
changes(struct rig *rig, unsigned session, size_t bytes, struct text note)
{
    for (size_t unread = 0; unread < bytes;) {
        change_noted(rig, MEMBERS_CHANGED, 1, 1, note);
        const char *line = rig_line(rig, session);
        ck_assert_ptr_nonnull(strstr(line, "* CHANGED a fence=10 session="));
        unread += strlen(line) + 1;
    }
}

static void
asked(struct rig *rig, uint64_t after)
{
    struct op *op = rig_op(rig, OP_LOOK);

    ck_assert(op->watch && op->members);
    ck_assert_uint_lt(op->arrival, UINT64_C(1) << 53); /* a double of Redis */
    ck_assert_uint_eq(op->arrival, after);
    rig_status(rig, op, OP_OK);
}

/* WATCH a members=1, with the members 1 to `count`. */
static void
watch_members(struct rig *rig, unsigned session, uint32_t count)
{
    rig_say(rig, session, "1 WATCH a members=1");
    asked(rig, 0);
    rig_silent(rig, session);
    page(rig, 1, count, count);
    rig_expect(rig, session, "1 OK");
    rig_expect(rig, session, "* MEMBERS a begin=1");
    for (uint32_t i = 1; i <= count; i++)
        rig_expect(rig, session, "* JOINED a fence=~ session=~ note=n");
    rig_expect(rig, session, "* MEMBERS a members=~");
    rig_event(rig, session, CORE_MORE);
    rig_no_op(rig);
}

SESSION_TEST(joined_and_left)
{
    struct op_ticket ticket = member(1);

    watch_members(rig, s, 1);
    change(rig, MEMBERS_JOINED, 2, 2);
    rig_expect(rig, s, "* JOINED a fence=20 session=~ note=n");
    change(rig, MEMBERS_LEFT, 1, 1);
    rig_expect(rig, s, "* LEFT a fence=10 session=~ note=n");
    ticket.permits = 3;
    ticket.detached = true;
    ticket.owner = TEXT("w");
    ticket.client = TEXT("shop");
    told(rig, (struct op_members){.kind = MEMBERS_CHANGED,
                  .count = 1,
                  .tickets = &ticket,
                  .ticket_count = 1});
    rig_expect(rig, s,
        "* CHANGED a fence=10 session=~ permits=3 detached=1 name=shop "
        "owner=w note=n");
    /* Nothing is inspected for it, whatever else is told of the lock. */
    rig_news(rig, "W" KEY, sizeof("W" KEY) - 1);
    rig_no_op(rig);
    rig_ask(rig, s, "2 UNWATCH a", "2 OK");
    change(rig, MEMBERS_LEFT, 2, 0);
    rig_silent(rig, s);
}

/* A page follows when the client has read the one before. Changes of members
 * that it has not heard of are part of a page to come. */
SESSION_TEST(pages)
{
    rig_say(rig, s, "1 WATCH a members=1");
    asked(rig, 0);
    page(rig, 1, 2, 4);
    rig_expect(rig, s, "1 OK");
    rig_expect(rig, s, "* MEMBERS a begin=1");
    rig_expect(rig, s, "* JOINED a fence=10 session=~ note=n");
    rig_expect(rig, s, "* JOINED a fence=20 session=~ note=n");
    rig_no_op(rig);
    change(rig, MEMBERS_CHANGED, 2, 4);
    rig_expect(rig, s, "* CHANGED a fence=20 session=~ note=n");
    change(rig, MEMBERS_CHANGED, 3, 4);
    rig_silent(rig, s);
    page(rig, 3, 4, 4); /* that another watch has asked for */
    rig_silent(rig, s);
    rig_event(rig, s, CORE_MORE);
    asked(rig, 2);
    page(rig, 1, 4, 4);
    rig_silent(rig, s);
    page(rig, 3, 4, 4);
    rig_expect(rig, s, "* JOINED a fence=30 session=~ note=n");
    rig_expect(rig, s, "* JOINED a fence=40 session=~ note=n");
    rig_expect(rig, s, "* MEMBERS a members=4");
    change(rig, MEMBERS_JOINED, 5, 5);
    rig_expect(rig, s, "* JOINED a fence=50 session=~ note=n");
}

/* The list comes again after each sign that messages were lost. */
SESSION_TEST(lost)
{
    struct core_event unheard = {.kind = CORE_UNHEARD};
    struct op_ticket ticket = member(2);
    uint64_t again_us;

    watch_members(rig, s, 1);
    switch (_i) {
    case 0: /* nobody was told of the second one */
        change(rig, MEMBERS_JOINED, 3, 3);
        again_us = core_next_us(rig->core);
        change(rig, MEMBERS_JOINED, 4, 5); /* puts nothing off */
        ck_assert_uint_eq(core_next_us(rig->core), again_us);
        break;
    case 1:
        told(rig, (struct op_members){.kind = MEMBERS_JOINED,
                      .count = 2,
                      .history = 6,
                      .tickets = &ticket,
                      .ticket_count = 1});
        break;
    case 2:
        rig_step(rig, &unheard);
        change(rig, MEMBERS_JOINED, 2, 2);
        break;
    case 6: /* another history */
        rig_pass(rig, RIG_LEASE_MS / 3);
        asked(rig, WATCH_SHOWN_ALL);
        told(rig, (struct op_members){.kind = MEMBERS_LAST,
                      .count = 1,
                      .sum = 10,
                      .history = 6,
                      .after = WATCH_SHOWN_ALL});
        break;
    case 3: /* as many, and others */
        rig_pass(rig, RIG_LEASE_MS / 3);
        asked(rig, WATCH_SHOWN_ALL);
        told(rig, (struct op_members){.kind = MEMBERS_LAST,
                      .count = 1,
                      .sum = 20,
                      .after = WATCH_SHOWN_ALL});
        break;
    case 4: /* one came and went in a record that was not watched */
        told(rig, (struct op_members){.kind = MEMBERS_JOINED,
                      .count = 2,
                      .fence = 11,
                      .tickets = &ticket,
                      .ticket_count = 1});
        break;
    default:
        rig_pass(rig, RIG_LEASE_MS / 3);
        asked(rig, WATCH_SHOWN_ALL);
        told(rig, (struct op_members){.kind = MEMBERS_LAST,
                      .count = 1,
                      .sum = 10,
                      .fence = 11,
                      .after = WATCH_SHOWN_ALL});
        break;
    }
    rig_silent(rig, s);
    ck_assert_uint_eq(rig_count(rig, COUNTER_member_lists), 1);
    if (_i < 3 || _i == 4)
        rig_pass(rig, 600);
    asked(rig, 0);
    page(rig, 1, 2, 2);
    rig_expect(rig, s, "* MEMBERS a begin=1");
    rig_expect(rig, s, "* JOINED a fence=10 session=~ note=n");
    rig_expect(rig, s, "* JOINED a fence=20 session=~ note=n");
    rig_expect(rig, s, "* MEMBERS a members=2");
}

/* The next look finds so many members, with that sum of fences. */
static void
looks_the_same(struct rig *rig, uint32_t count, uint32_t sum)
{
    rig_pass(rig, RIG_LEASE_MS / 3);
    asked(rig, WATCH_SHOWN_ALL);
    told(rig, (struct op_members){.kind = MEMBERS_LAST,
                  .count = count,
                  .sum = sum,
                  .after = WATCH_SHOWN_ALL});
}

/* A page that tells what is known is none for a watch that has the list. */
SESSION_TEST(nothing_lost)
{
    unsigned t = rig_open(rig);

    watch_members(rig, s, 2);
    looks_the_same(rig, 2, 30);
    watch_members(rig, t, 2);
    rig_silent(rig, s);
    change(rig, MEMBERS_LEFT, 2, 1);
    rig_expect(rig, s, "* LEFT a fence=20 session=~ note=n");
    rig_expect(rig, t, "* LEFT a fence=20 session=~ note=n");
    looks_the_same(rig, 1, 10);
    change(rig, MEMBERS_JOINED, 3, 2);
    rig_expect(rig, s, "* JOINED a fence=30 session=~ note=n");
    rig_expect(rig, t, "* JOINED a fence=30 session=~ note=n");
    change(rig, MEMBERS_JOINED, 4, 3);
    rig_expect(rig, s, "* JOINED a fence=40 session=~ note=n");
    rig_expect(rig, t, "* JOINED a fence=40 session=~ note=n");
    looks_the_same(rig, 3, 80);
    rig_silent(rig, s);
    rig_silent(rig, t);
    ck_assert_uint_eq(rig_count(rig, COUNTER_member_lists), 0);
}

/* A client that does not read gets the list when it reads again. The bound is
 * of bytes, however long an event is. */
SESSION_TEST(slow_reader)
{
    char note[255];

    memset(note, 'n', sizeof(note));
    watch_members(rig, s, 1);
    changes(rig, s, UNREAD, text_make(note, _i == 0 ? 1 : sizeof(note)));
    change(rig, MEMBERS_JOINED, 2, 2);
    change(rig, MEMBERS_LEFT, 2, 1);
    rig_silent(rig, s);
    rig_no_op(rig);
    rig_event(rig, s, CORE_MORE);
    asked(rig, 0);
    page(rig, 1, 1, 1);
    rig_expect(rig, s, "* MEMBERS a begin=1");
    rig_expect(rig, s, "* JOINED a fence=10 session=~ note=n");
    rig_expect(rig, s, "* MEMBERS a members=1");
    ck_assert_uint_eq(rig_count(rig, COUNTER_member_lists), 1);
}

/* The lists of many locks would fill the output of a client. */
SESSION_TEST(unread_lists)
{
    const struct op_members empty = {
        .kind = MEMBERS_LAST, .key = TEXT("holdfast:{b}")};

    watch_members(rig, s, 1);
    changes(rig, s, PAGED, TEXT("n"));
    rig_say(rig, s, "2 WATCH b members=1");
    asked(rig, 0);
    told(rig, empty);
    rig_expect(rig, s, "2 OK");
    rig_silent(rig, s);
    rig_no_op(rig);
    rig_event(rig, s, CORE_MORE);
    asked(rig, 0);
    told(rig, empty);
    rig_expect(rig, s, "* MEMBERS b begin=1");
    rig_expect(rig, s, "* MEMBERS b members=0");
}

/* A client takes as much of a page as it has room for, by the latest limit. */
SESSION_TEST(long_page)
{
    rig->settings.output_max = 400;
    core_configure(rig->core, &rig->settings);
    rig_say(rig, s, "1 WATCH a members=1");
    asked(rig, 0);
    page(rig, 1, 4, 4);
    rig_expect(rig, s, "1 OK");
    rig_expect(rig, s, "* MEMBERS a begin=1");
    rig_expect(rig, s, "* JOINED a fence=10 session=~ note=n");
    rig_expect(rig, s, "* JOINED a fence=20 session=~ note=n");
    rig_silent(rig, s);
    rig_event(rig, s, CORE_MORE);
    asked(rig, 2);
    page(rig, 3, 4, 4);
    rig_expect(rig, s, "* JOINED a fence=30 session=~ note=n");
    rig_expect(rig, s, "* JOINED a fence=40 session=~ note=n");
    rig_expect(rig, s, "* MEMBERS a members=4");
}

/* More clients watch the lock than one step has effects for. */
SESSION_TEST(no_room)
{
    const uint32_t room = rig->effects.entry_capacity;
    unsigned sessions[] = {s, rig_open(rig)};
    struct op_ticket ticket = member(2);
    struct op_members members = {.kind = MEMBERS_JOINED,
        .key = TEXT(KEY),
        .count = 2,
        .history = HISTORY,
        .tickets = &ticket,
        .ticket_count = 1};

    for (unsigned i = 0; i < 2; i++)
        watch_members(rig, sessions[i], 1);
    rig->effects.entry_capacity = 0;
    rig->core->effects = &rig->effects;
    members_told(rig->core, &members);
    rig->core->effects = NULL;
    rig->effects.entry_capacity = room;
    rig_pass(rig, 1);
    asked(rig, 0);
    page(rig, 1, 2, 2);
    for (unsigned i = 0; i < 2; i++) {
        rig_expect(rig, sessions[i], "* MEMBERS a begin=1");
        rig_expect(rig, sessions[i], "* JOINED a fence=10 session=~ note=n");
        rig_expect(rig, sessions[i], "* JOINED a fence=20 session=~ note=n");
        rig_expect(rig, sessions[i], "* MEMBERS a members=2");
    }
}

/* Nor has it room for a page. */
SESSION_TEST(no_room_for_a_page)
{
    const uint32_t room = rig->effects.entry_capacity;
    const struct op_members empty = {
        .kind = MEMBERS_LAST, .key = TEXT(KEY), .history = HISTORY};

    rig_say(rig, s, "1 WATCH a members=1");
    asked(rig, 0);
    rig->effects.entry_capacity = 0;
    rig->core->effects = &rig->effects;
    members_told(rig->core, &empty);
    rig->core->effects = NULL;
    rig->effects.entry_capacity = room;
    rig_pass(rig, 1);
    asked(rig, 0);
    page(rig, 1, 0, 0);
    rig_expect(rig, s, "1 OK");
    rig_expect(rig, s, "* MEMBERS a begin=1");
    rig_expect(rig, s, "* MEMBERS a members=0");
}

/* A page that does not come is asked for again, until the request is over. */
SESSION_TEST(page_lost)
{
    rig_say(rig, s, "1 WATCH a members=1");
    asked(rig, 0);
    rig_pass(rig, 1000);
    asked(rig, 0);
    for (int i = 0; i < 50; i++) {
        rig_pass(rig, 100);
        if (rig->op_count > 0)
            rig_status(rig, rig_op(rig, OP_LOOK), OP_UNSENT);
    }
    rig_expect(rig, s, "1 ERR UNAVAILABLE retry=1");
    rig_ask(rig, s, "2 UNWATCH a", "2 ERR NOTHELD retry=0");
}

/* One wish while a page is on its way is one more look. */
SESSION_TEST(asked_once)
{
    unsigned t = rig_open(rig);

    rig_say(rig, s, "1 WATCH a members=1");
    rig_say(rig, t, "1 WATCH a members=1");
    page(rig, 1, 2, 4);
    rig_expect(rig, s, "1 OK");
    rig_expect(rig, t, "1 OK");
    rig_event(rig, s, CORE_MORE);
    rig_event(rig, t, CORE_MORE);
    asked(rig, 0);
    rig_event(rig, t, CORE_DROP);
    asked(rig, 0);
    asked(rig, 2);
}

RIG_TEST(refused, rig_create())
{
    rig->settings.no_semaphores = true;
    rig_start(rig);
    unsigned s = rig_open(rig);
    rig_ask(rig, s, "1 WATCH a members=1", "1 ERR BADREQ retry=0");
    rig_ask(rig, s, "2 WATCH a members=2", "2 ERR BADREQ retry=0");
}

SESSION_TEST(one_watch_a_lock)
{
    watch_members(rig, s, 0);
    rig_ask(rig, s, "2 WATCH a", "2 ERR CONFLICT retry=0");
    rig_ask(rig, s, "3 WATCH a members=1", "3 ERR CONFLICT retry=0");
}

/* Of members beside a watch of holders, each hears its own. */
SESSION_TEST(beside_a_watch)
{
    unsigned t = rig_open(rig);
    struct op_ticket ticket = member(1);

    watch_members(rig, s, 1);
    rig_say(rig, t, "1 WATCH a");
    asked(rig, WATCH_SHOWN_ALL);
    rig_finish(rig, rig_op(rig, OP_INSPECT),
        (struct op_result){.status = OP_OK,
            .holders = 1,
            .tickets = &ticket,
            .ticket_count = 1});
    rig_expect(rig, t, "1 OK");
    rig_expect(rig, t, "* HELD a fence=10 note=n");
    change(rig, MEMBERS_JOINED, 2, 2);
    rig_expect(rig, s, "* JOINED a fence=20 session=~ note=n");
    rig_silent(rig, t);
}

/* The state that an earlier AWAIT has seen is old: nothing has kept it up to
 * date. */
SESSION_TEST(before_an_await)
{
    struct op_ticket ticket = member(1);
    struct op_result held = {
        .status = OP_OK, .holders = 1, .tickets = &ticket, .ticket_count = 1};
    unsigned t = rig_open(rig);

    watch_members(rig, s, 1);
    rig_say(rig, t, "1 AWAIT a");
    rig_finish(rig, rig_op(rig, OP_INSPECT), held);
    if (_i == 1)
        rig_news(rig, "W" KEY, sizeof("W" KEY) - 1);
    rig_ask(rig, t, "2 CANCEL 1", "1 ERR CANCELLED retry=1");
    rig_expect(rig, t, "2 OK");
    if (_i == 1)
        rig_finish(rig, rig_op(rig, OP_INSPECT), held);
    rig_news(rig, "W" KEY, sizeof("W" KEY) - 1);
    rig_no_op(rig);
    rig_say(rig, t, "3 AWAIT a");
    rig_finish(rig, rig_op(rig, OP_INSPECT),
        (struct op_result){.status = OP_OK, .arrival = 2, .fence = 10});
    rig_expect(rig, t, "3 OK fence=10 note=n");
}

Suite *
core_members_suite(void)
{
    Suite *suite = suite_create("core_members");
    TCase *tests = tcase_create("core_members");

    tcase_add_test(tests, joined_and_left);
    tcase_add_test(tests, pages);
    tcase_add_loop_test(tests, lost, 0, 7);
    tcase_add_test(tests, nothing_lost);
    tcase_add_loop_test(tests, slow_reader, 0, 2);
    tcase_add_test(tests, unread_lists);
    tcase_add_test(tests, long_page);
    tcase_add_test(tests, no_room);
    tcase_add_test(tests, no_room_for_a_page);
    tcase_add_test(tests, page_lost);
    tcase_add_test(tests, asked_once);
    tcase_add_test(tests, refused);
    tcase_add_test(tests, one_watch_a_lock);
    tcase_add_test(tests, beside_a_watch);
    tcase_add_loop_test(tests, before_an_await, 0, 2);
    suite_add_tcase(suite, tests);
    return suite;
}

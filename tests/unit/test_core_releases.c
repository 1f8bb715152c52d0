/*
 * Tests of daemon/core/feature/releases.c: what was given back is given back
 * again where Redis may have lost that.
 */
#include "tests/unit/core_rig.h"

#include "daemon/core/model/state.h"
#include "daemon/op/op.h"

#include <stdio.h>
#include <string.h>

#define MS 1000u

Suite *core_releases_suite(void);

static struct rig *
rig_keeping(uint32_t kept)
{
    struct rig *rig = rig_create();

    rig->settings.releases_kept = kept;
    rig->settings.lease_ms = 600000; /* nothing is renewed meanwhile */
    rig_start(rig);
    return rig;
}

static void
changed(struct rig *rig)
{
    struct core_event event = {.kind = CORE_CHANGED};

    rig_step(rig, &event);
    rig_pass(rig, 2);
}

/* `name` is had with that fence, and given back. */
static void
had(struct rig *rig, unsigned session, const char *name, uint64_t fence)
{
    char line[80];

    snprintf(line, sizeof(line), "1 LOCK %s", name);
    rig_lock(rig, session, line, fence);
    snprintf(line, sizeof(line), "2 UNLOCK %s", name);
    rig_say(rig, session, line);
    rig_status(rig, rig_op(rig, OP_RELEASE), OP_OK);
    rig_expect(rig, session, "2 OK count=0");
}

/* It is repeated: of that lock and fence. */
static struct op *
repeats_of(struct op *op, const char *name, uint64_t fence)
{
    ck_assert_int_eq(op->kind, OP_RELEASE);
    ck_assert(op->repeats);
    ck_assert(op->retry);
    ck_assert(text_equal(op->name, text_from(name)));
    ck_assert_uint_eq(op->fence, fence);
    return op;
}

static struct op *
repeated(struct rig *rig, const char *name, uint64_t fence)
{
    return repeats_of(rig_op(rig, OP_RELEASE), name, fence);
}

/* As it was asked the first time, for no ticket, the newest before the others;
 * whatever became of it, nobody is told. */
RIG_TEST(repeats, rig_keeping(8))
{
    unsigned session = rig_open(rig);

    changed(rig);
    rig_no_op(rig);
    had(rig, session, "a", 5);
    rig_lock(rig, session, "1 LOCK b owner=x", 6);
    rig_say(rig, session, "2 UNLOCK b owner=x delay=1s");
    struct op first = *rig_op(rig, OP_RELEASE);
    ck_assert(!first.repeats);
    rig_status(rig, rig_op(rig, OP_RELEASE), OP_OK);
    rig_expect(rig, session, "2 OK count=0");
    rig_no_op(rig);
    rig_pass(rig, 500);
    changed(rig);
    struct op *op = repeated(rig, "b", 6);
    ck_assert(!op->unclean);
    ck_assert_uint_le(op->delay_ms, 501); /* the rest of it */
    ck_assert_uint_ge(op->delay_ms, 490);
    ck_assert_mem_eq(op->session, first.session, sizeof(first.session));
    ck_assert_mem_eq(op->owner_hash, first.owner_hash, 8);
    ck_assert_uint_eq(op->request, first.request);
    ck_assert_uint_eq(op->generation, first.generation);
    ck_assert_uint_eq(op->place, first.place);
    ck_assert_uint_eq(op->arrival, first.arrival);
    rig_status(rig, op, OP_OK);
    ck_assert_uint_eq(rig_op(rig, OP_RELEASE)->delay_ms, 0);
    rig_status(rig, repeated(rig, "a", 5), OP_GONE);
    rig_no_op(rig);
    rig_silent(rig, session);
    ck_assert_uint_eq(rig_count(rig, COUNTER_releases_repeated), 1);
    ck_assert_uint_eq(rig_count(rig, COUNTER_releases), 2);
}

/* So many as are kept; none where none are. */
START_TEST(forgets)
{
    for (uint32_t kept = 0; kept < 3; kept++) {
        struct rig *rig = rig_keeping(kept);
        unsigned session = rig_open(rig);
        had(rig, session, "a", 5);
        had(rig, session, "b", 6);
        had(rig, session, "c", 7);
        changed(rig);
        if (kept > 0)
            rig_status(rig, repeated(rig, "c", 7), OP_GONE);
        if (kept > 1)
            rig_status(rig, repeated(rig, "b", 6), OP_GONE);
        rig_no_op(rig);
        rig_end(rig);
    }
}

END_TEST

/* The next `n` of "a", from that fence on. */
static void
repeated_down(struct rig *rig, unsigned n, uint64_t from)
{
    for (unsigned i = 0; i < n; i++)
        rig_status(rig, repeated(rig, "a", from - i), OP_GONE);
}

/* Many are sent in portions, with pauses, and not too many are under way. */
RIG_TEST(portions, rig_create())
{
    struct core_event event = {.kind = CORE_CHANGED};

    rig->settings.releases_kept = 300;
    rig->settings.lease_ms = 600000;
    rig->settings.tickets_max = 10000;
    rig->settings.requests_max = 10000;
    rig_start(rig);
    unsigned session = rig_open(rig);
    for (unsigned i = 0; i < 400; i++)
        had(rig, session, "a", 5 + i);
    rig_step(rig, &event);
    rig_pass(rig, 2);
    ck_assert_uint_lt(rig->op_count, RELEASES_OUT);
    rig_pass(rig, 8);
    ck_assert_uint_eq(rig->op_count, RELEASES_OUT);
    rig_pass(rig, 1000);
    ck_assert_uint_eq(rig->op_count, RELEASES_OUT);
    repeated_down(rig, 100, 404);
    rig_pass(rig, 2);
    ck_assert_uint_eq(rig->op_count, RELEASES_OUT - 100); /* a pause */
    rig_pass(rig, 8);
    ck_assert_uint_eq(rig->op_count, 300 - 100); /* the rest */
    /* Another change meanwhile: from the newest on again, except those that
     * are under way. */
    changed(rig);
    ck_assert_uint_eq(rig->op_count, RELEASES_OUT);
    repeated_down(rig, 200, 304);
    repeated_down(rig, RELEASES_OUT - 200, 404);
    for (unsigned left = 300 - (RELEASES_OUT - 200); left > 0;) {
        rig_pass(rig, 1000);
        unsigned out = rig->op_count;
        ck_assert_uint_gt(out, 0);
        repeated_down(rig, out, 104 + left);
        left -= out;
    }
    rig_pass(rig, 1000);
    rig_no_op(rig);
}

/* Those that are older come before those that were not taken. */
RIG_TEST(each_once_before_the_next_time, rig_create())
{
    rig->settings.releases_kept = 300;
    rig->settings.lease_ms = 600000;
    rig->settings.tickets_max = 10000;
    rig->settings.requests_max = 10000;
    rig_start(rig);
    unsigned session = rig_open(rig);
    for (unsigned i = 0; i < 300; i++)
        had(rig, session, "a", 5 + i);
    changed(rig);
    rig_pass(rig, 8);
    ck_assert_uint_eq(rig->op_count, RELEASES_OUT);
    for (unsigned i = 0; i < RELEASES_OUT; i++)
        rig_status(rig, repeated(rig, "a", 304 - i), OP_UNSENT);
    rig_pass(rig, 200);
    ck_assert_uint_eq(rig->op_count, 300 - RELEASES_OUT);
    repeated_down(rig, 300 - RELEASES_OUT, 304 - RELEASES_OUT);
    rig_pass(rig, 100);
    ck_assert_uint_eq(rig->op_count, RELEASES_OUT);
    repeated_down(rig, RELEASES_OUT, 304);
    rig_pass(rig, 1000);
    rig_no_op(rig);
}

/* Those once more whose answer was lost, or that could not be sent, until their
 * leases are over; not those that a script refused. */
RIG_TEST(unanswered, rig_keeping(8))
{
    unsigned session = rig_open(rig);

    had(rig, session, "a", 5);
    had(rig, session, "b", 6);
    changed(rig);
    rig_status(rig, repeated(rig, "b", 6), OP_UNKNOWN);
    rig_status(rig, repeated(rig, "a", 5), OP_GONE);
    rig_no_op(rig);
    rig_pass(rig, 40);
    rig_no_op(rig);
    rig_pass(rig, 30);
    rig_status(rig, repeated(rig, "b", 6), OP_UNSENT);
    rig_no_op(rig);
    rig_pass(rig, 70);
    /* a new history meanwhile: what is under way is sent again, too */
    struct op *late = repeated(rig, "b", 6);
    rig_pass(rig, 70);
    changed(rig);
    rig_status(rig, late, OP_GONE);
    rig_status(rig, repeated(rig, "b", 6), OP_REFUSED);
    rig_status(rig, repeated(rig, "a", 5), OP_UNSENT);
    rig_pass(rig, 70);
    rig_pass(rig, 2 * rig->settings.lease_ms);
    rig_status(rig, repeated(rig, "a", 5), OP_UNSENT);
    rig_pass(rig, 70);
    rig_no_op(rig);
}

static struct op *
latest(const struct rig *rig)
{
    ck_assert_uint_gt(rig->op_count, 0);
    return rig->ops[rig->op_count - 1];
}

/* A release that was asked before a new history, and is answered after it, may
 * have run on the old one. Also beside a pass, and after it. */
RIG_TEST(under_way, rig_keeping(8))
{
    unsigned session = rig_open(rig);
    const char *const lines[] = {"2 UNLOCK a", "3 UNLOCK b", "4 UNLOCK c"};
    struct op *op[3];

    rig_lock(rig, session, "1 LOCK a", 5);
    rig_lock(rig, session, "1 LOCK b", 6);
    rig_lock(rig, session, "1 LOCK c", 7);
    for (int i = 0; i < 3; i++) {
        rig_say(rig, session, lines[i]);
        op[i] = latest(rig);
    }
    rig_pass(rig, 1);
    changed(rig);
    ck_assert_uint_eq(rig->op_count, 3);
    rig_status(rig, op[0], OP_OK);
    rig_expect(rig, session, "2 OK count=0");
    rig_pass(rig, 1);
    struct op *again = repeats_of(latest(rig), "a", 5);
    rig_status(rig, op[1], OP_OK);
    rig_expect(rig, session, "3 OK count=0");
    rig_pass(rig, 100);
    ck_assert_uint_eq(rig->op_count, 2);
    rig_status(rig, again, OP_GONE);
    rig_pass(rig, 100);
    rig_status(rig, repeats_of(latest(rig), "b", 6), OP_OK);
    rig_pass(rig, 100);
    rig_status(rig, op[2], OP_OK);
    rig_expect(rig, session, "4 OK count=0");
    rig_pass(rig, 1);
    rig_status(rig, repeated(rig, "c", 7), OP_OK);
    had(rig, session, "d", 8);
    rig_pass(rig, 100);
    rig_no_op(rig);
}

/* A grant by it to a waiter of this broker counts. The lock is looked at when
 * the next hold may be over. */
RIG_TEST(grants, rig_keeping(8))
{
    unsigned session = rig_open(rig);
    unsigned other = rig_open(rig);

    had(rig, session, "a", 5);
    rig_wait(rig, other, "1 LOCK a");
    changed(rig);
    struct op *op = NULL;
    for (uint32_t i = 0; i < rig->op_count; i++)
        if (rig->ops[i]->kind == OP_RELEASE)
            op = rig->ops[i];
    ck_assert_ptr_nonnull(op);
    const struct ticket *ticket = NULL;
    for (uint32_t i = 0; i < rig->core->tickets.touched; i++)
        if ((ticket = slab_at(&rig->core->tickets, i)) != NULL)
            break;
    ck_assert_ptr_nonnull(ticket);
    struct op_grant grant = {
        .request = handle_pack(slab_handle(&rig->core->tickets, ticket)),
        .fence = 6,
        .arrival = ticket->arrival,
        .place = ticket->place,
        .ttl_ms = rig->settings.lease_ms,
    };
    rig_finish(rig, op,
        (struct op_result){
            .status = OP_OK, .grants = &grant, .grant_count = 1});
    rig_expect(rig, other, "1 OK fence=6 ttl_ms=~ count=1");
}

/* Redis was away for longer than the lease. It may come back with old data. */
RIG_TEST(given_up, rig_keeping(8))
{
    unsigned session = rig_open(rig);
    uint64_t over_ms =
        rig->settings.lease_ms + rig->settings.command_timeout_us / 1000;

    rig_lock(rig, session, "1 LOCK a", 5);
    rig_say(rig, session, "2 UNLOCK a");
    struct op *op = rig_op(rig, OP_RELEASE);
    rig_pass(rig, over_ms);
    rig_status(rig, op, OP_UNSENT);
    rig_expect(rig, session, "2 ERR INDOUBT retry=1");
    rig_no_op(rig);
    changed(rig);
    rig_status(rig, repeated(rig, "a", 5), OP_OK);
    rig_no_op(rig);
}

/* Noted are holds that are over in Redis, or for their clients. */
RIG_TEST(what_is_noted, rig_keeping(8))
{
    unsigned session = rig_open(rig);
    unsigned other = rig_open(rig);

    /* a hold that Redis does not know: it may be another generation's */
    rig_lock(rig, session, "1 LOCK b", 5);
    rig_say(rig, session, "2 UNLOCK b");
    rig_status(rig, rig_op(rig, OP_RELEASE), OP_GONE);
    rig_expect(rig, session, "2 ERR LOST retry=0");
    changed(rig);
    rig_no_op(rig);
    /* one whose client was told OK, when the answer had been lost */
    rig_lock(rig, session, "1 LOCK c", 6);
    rig_say(rig, session, "2 UNLOCK c");
    rig_status(rig, rig_op(rig, OP_RELEASE), OP_UNKNOWN);
    rig_pass(rig, 200);
    rig_status(rig, rig_op(rig, OP_RELEASE), OP_GONE);
    rig_expect(rig, session, "2 OK count=0");
    changed(rig);
    rig_status(rig, repeated(rig, "c", 6), OP_GONE);
    rig_no_op(rig);
    /* a wait that was called off: its request tells it from all later ones */
    rig_wait(rig, session, "1 LOCK a");
    rig_ask(rig, session, "2 CANCEL 1", "1 ERR CANCELLED retry=1");
    rig_expect(rig, session, "2 OK");
    rig_status(rig, rig_op(rig, OP_RELEASE), OP_OK);
    changed(rig);
    rig_status(rig, repeated(rig, "c", 6), OP_GONE);
    rig_status(rig, repeated(rig, "a", 0), OP_OK);
    /* that of a client that is gone */
    rig_lock(rig, other, "1 LOCK d", 7);
    rig_event(rig, other, CORE_DROP);
    rig_status(rig, rig_op(rig, OP_RELEASE), OP_OK);
    changed(rig);
    struct op *op = repeated(rig, "d", 7);
    ck_assert(op->unclean);
    rig_status(rig, op, OP_GONE);
    rig_status(rig, repeated(rig, "c", 6), OP_GONE);
    rig_status(rig, repeated(rig, "a", 0), OP_GONE);
    rig_no_op(rig);
    /* however many give up waiting, the releases of holds stay */
    for (unsigned i = 0; i < 20; i++) {
        rig_wait(rig, session, "1 LOCK e");
        rig_ask(rig, session, "2 CANCEL 1", "1 ERR CANCELLED retry=1");
        rig_expect(rig, session, "2 OK");
        rig_status(rig, rig_op(rig, OP_RELEASE), OP_OK);
    }
    changed(rig);
    rig_status(rig, repeated(rig, "d", 7), OP_GONE);
    rig_status(rig, repeated(rig, "c", 6), OP_GONE);
    for (unsigned i = 0; i < 8; i++)
        rig_status(rig, repeated(rig, "e", 0), OP_GONE);
    rig_no_op(rig);
}

/* One that has moved here. */
static unsigned
moved_session(struct rig *rig)
{
    unsigned session = rig_open(rig);
    char line[120];

    snprintf(line, sizeof(line), "0 HELLO keep=5s resume=%s gen=3",
        "0123456789abcdef0123456789abcdef");
    rig_ask(
        rig, session, line, "0 OK session=~ proto=1 server=~ keep_ms=~ gen=3");
    return session;
}

/* That of a session that had moved here is also of where it had been before;
 * be it a wait. */
RIG_TEST(moved, rig_keeping(8))
{
    unsigned session = moved_session(rig);

    had(rig, session, "a", 5);
    rig_wait(rig, session, "1 LOCK b");
    rig_ask(rig, session, "2 CANCEL 1", "1 ERR CANCELLED retry=1");
    rig_expect(rig, session, "2 OK");
    rig_status(rig, rig_op(rig, OP_RELEASE), OP_OK);
    changed(rig);
    for (uint32_t i = 0; i < rig->op_count; i++)
        ck_assert(rig->ops[i]->moves);
    rig_status(rig, repeated(rig, "a", 5), OP_GONE);
    rig_status(rig, repeated(rig, "b", 0), OP_GONE);
    rig_no_op(rig);
    rig_pass(rig, rig->settings.lease_ms);
    rig_no_op(rig);
}

/* The broker that it has left may put it there until the node is settled: it is
 * repeated now and then, and no other one with it. */
RIG_TEST(moved_and_put_again, rig_keeping(8))
{
    unsigned session = moved_session(rig);
    unsigned other = rig_open(rig);

    had(rig, session, "a", 5);
    had(rig, other, "b", 6);
    changed(rig);
    rig_status(rig, repeated(rig, "b", 6), OP_MISSING);
    rig_status(rig, repeated(rig, "a", 5), OP_MISSING);
    rig_pass(rig, 190000);
    rig_no_op(rig);
    rig_pass(rig, 40000);
    rig_status(rig, repeated(rig, "a", 5), OP_OK);
    rig_no_op(rig);
    rig_pass(rig, 230000);
    rig_status(rig, repeated(rig, "a", 5), OP_UNSENT);
    rig_pass(rig, 70);
    rig_status(rig, repeated(rig, "a", 5), OP_GONE);
    rig_pass(rig, 600000);
    rig_no_op(rig);
}

/* Releases that are due sooner, and others that are put off meanwhile. */
RIG_TEST(moved_beside_unanswered, rig_keeping(8))
{
    unsigned session = moved_session(rig);
    unsigned other = rig_open(rig);

    had(rig, session, "a", 5);
    had(rig, other, "b", 6);
    changed(rig);
    rig_status(rig, repeated(rig, "b", 6), OP_UNSENT);
    rig_status(rig, repeated(rig, "a", 5), OP_MISSING);
    rig_pass(rig, 70);
    rig_status(rig, repeated(rig, "b", 6), OP_OK);
    rig_no_op(rig);
    rig_pass(rig, 190000);
    rig_no_op(rig);
    rig_pass(rig, 40000);
    struct op *late = repeated(rig, "a", 5);
    changed(rig);
    rig_status(rig, late, OP_MISSING);
    rig_status(rig, repeated(rig, "b", 6), OP_GONE);
    rig_status(rig, repeated(rig, "a", 5), OP_GONE);
    rig_pass(rig, 600000);
    rig_no_op(rig);
}

/* They take no room from clients, however small the broker is. */
RIG_TEST(room_of_their_own, rig_create())
{
    char line[80];

    rig->settings.releases_kept = 80;
    rig->settings.tickets_max = 4;
    rig->settings.requests_max = 4;
    rig_start(rig);
    unsigned session = rig_open(rig);
    for (unsigned i = 0; i < 80; i++) {
        snprintf(line, sizeof(line), "a%u", i);
        had(rig, session, line, 5 + i);
    }
    changed(rig);
    ck_assert_uint_eq(rig->op_count, 80);
    for (unsigned i = 0; i < 4; i++) {
        snprintf(line, sizeof(line), "%u LOCK b%u", i, i);
        rig_say(rig, session, line);
    }
    ck_assert_uint_eq(rig->op_count, 84);
    rig_silent(rig, session);
}

Suite *
core_releases_suite(void)
{
    Suite *suite = suite_create("core_releases");
    TCase *tests = tcase_create("releases");

    tcase_add_test(tests, repeats);
    tcase_add_test(tests, forgets);
    tcase_add_test(tests, portions);
    tcase_add_test(tests, each_once_before_the_next_time);
    tcase_add_test(tests, unanswered);
    tcase_add_test(tests, under_way);
    tcase_add_test(tests, grants);
    tcase_add_test(tests, given_up);
    tcase_add_test(tests, what_is_noted);
    tcase_add_test(tests, room_of_their_own);
    tcase_add_test(tests, moved);
    tcase_add_test(tests, moved_and_put_again);
    tcase_add_test(tests, moved_beside_unanswered);
    suite_add_tcase(suite, tests);
    return suite;
}

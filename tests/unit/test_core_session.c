/*
 * Tests of daemon/core: sessions. How they end, heartbeats, the broker's stop,
 * limits, tags, and what is listed.
 */
#include "daemon/core/model/state.h"
#include "daemon/op/op.h"
#include "tests/unit/core_rig.h"

#include <stdio.h>
#include <string.h>

Suite *core_session_suite(void);

/* Tickets of one session in each of the states. */
static void
each_state(struct rig *rig, unsigned s)
{
    rig_lock(rig, s, "1 LOCK held", 5);
    rig_lock(rig, s, "2 LOCK renewing lease=5s", 6);
    rig_say(rig, s, "3 RENEW renewing lease=9s");
    rig_wait(rig, s, "4 LOCK waiting");
    rig_say(rig, s, "5 LOCK waiting wait=60s");
    rig_say(rig, s, "6 LOCK asking");
    rig_say(rig, s, "7 UNLOCK asking");
    rig_lock(rig, s, "8 LOCK leaving", 7);
    rig_say(rig, s, "9 UNLOCK leaving");
    rig_say(rig, s, "10 SHOW shown");
    rig_silent(rig, s);
}

static void
count_totals(struct rig *rig, uint32_t sessions, uint32_t requests)
{
    struct core_totals totals;

    core_totals(rig->core, &totals);
    ck_assert_uint_eq(totals.sessions, sessions);
    ck_assert_uint_eq(totals.requests, requests);
}

/* Requests before a QUIT or FIN are carried out. Waits end. */
static void
close_in_each_state(const char *quit)
{
    struct rig *rig = rig_new();
    unsigned s = rig_open(rig);

    each_state(rig, s);
    if (quit != NULL) {
        rig_say(rig, s, "11 QUIT");
    } else {
        rig_event(rig, s, CORE_EOF);
    }
    rig_expect(rig, s, "4 ERR CANCELLED retry=1");
    rig_silent(rig, s);
    ck_assert_uint_eq(
        rig->hurried, 2); /* 6, and the release that 5 is behind */
    rig_say(rig, s, "12 PING");
    rig_event(rig, s, CORE_EOF);
    rig_silent(rig, s);
    rig_status(rig, rig_op(rig, OP_RENEW), OP_UNSENT);
    rig_expect(rig, s, "3 ERR UNAVAILABLE retry=1");
    rig_granted(rig, rig_op(rig, OP_ACQUIRE), 8);
    rig_expect(rig, s, "6 OK fence=8 ttl_ms=~ count=1");
    rig_status(rig, rig_op(rig, OP_RELEASE), OP_OK);
    rig_expect(rig, s, "9 OK count=0");
    rig_status(rig, rig_op(rig, OP_INSPECT), OP_GONE);
    rig_expect(rig, s, "10 OK state=free holders=0 waiters=0");
    /* Releases: held and waiting at the close, renewing, 7. */
    ck_assert(!rig->sessions[s].closed);
    for (int i = 0; i < 4; i++)
        rig_status(rig, rig_op(rig, OP_RELEASE), OP_OK);
    rig_queued(rig, rig_op(rig, OP_ACQUIRE));
    rig_expect(rig, s, "7 OK count=0");
    rig_status(rig, rig_op(rig, OP_RELEASE), OP_OK);
    rig_expect(rig, s, "5 ERR CANCELLED retry=1");
    if (quit != NULL)
        rig_expect(rig, s, "11 OK");
    rig_expect(rig, s, quit != NULL ? "* BYE quit" : "* BYE eof");
    rig_silent(rig, s);
    ck_assert(rig->sessions[s].closed);
    count_totals(rig, 0, 0);
    rig_end(rig);
}

START_TEST(quit_in_each_state)
{
    close_in_each_state("quit");
}

END_TEST

START_TEST(eof_in_each_state)
{
    close_in_each_state(NULL);
}

END_TEST

enum {
    ENDS_EOF,
    ENDS_QUIT,
    ENDS_KEPT,
    ENDS_COUNT
};

/* A session, which is kept where it ends so. */
static unsigned
session_that_ends(struct rig *rig, int how)
{
    unsigned s = rig_open(rig);

    if (how == ENDS_KEPT) {
        rig_ask(rig, s, "HELLO keep=60s",
            "- OK session=~ proto=1 server=~ keep_ms=60000");
    }
    return s;
}

static void
end_session(struct rig *rig, unsigned session, int how)
{
    if (how == ENDS_QUIT) {
        rig_say(rig, session, "9 QUIT");
    } else {
        rig_event(rig, session, CORE_EOF);
    }
}

static void
expect_end(struct rig *rig, unsigned session, int how)
{
    if (how == ENDS_QUIT)
        rig_expect(rig, session, "9 OK");
    rig_expect(rig, session, how == ENDS_QUIT ? "* BYE quit" : "* BYE eof");
    rig_silent(rig, session);
    ck_assert(rig->sessions[session].closed);
}

/*
 * Redis is being asked for the lock. Its answer is told. If Redis cannot be
 * asked, or the answer is lost, the wait ends, and nothing is asked again for
 * the client. A possible grant is given back, or stands for the next connection
 * of a kept session.
 */
START_TEST(closed_while_asking)
{
    static const struct {
        enum op_status status;
        const char *line;
        enum op_kind then;
        enum op_kind then_kept; /* OP_KIND_COUNT: nothing */
    } answers[] = {
        {OP_OK, "1 OK fence=5 ttl_ms=~ count=1", OP_RELEASE, OP_KIND_COUNT},
        {OP_WAITING, "1 ERR CANCELLED retry=1", OP_RELEASE, OP_KIND_COUNT},
        {OP_UNSENT, "1 ERR CANCELLED retry=1", OP_KIND_COUNT, OP_KIND_COUNT},
        {OP_UNSETTLED, "1 ERR CANCELLED retry=1", OP_KIND_COUNT, OP_KIND_COUNT},
        {OP_UNKNOWN, "1 ERR CANCELLED retry=1", OP_RELEASE, OP_RENEW},
        {OP_FULL, "1 ERR LIMIT retry=1 limit=waiters", OP_KIND_COUNT,
            OP_KIND_COUNT},
    };

    for (unsigned i = 0; i < ENDS_COUNT * 6; i++) {
        int how = (int)i % ENDS_COUNT;
        struct op *struck = NULL;
        struct rig *rig = rig_new();
        unsigned s = session_that_ends(rig, how);
        rig_say(rig, s, "1 LOCK a");
        end_session(rig, s, how);
        rig_silent(rig, s);
        ck_assert_uint_eq(rig->hurried, 1);
        rig_finish(rig, rig_op(rig, OP_ACQUIRE),
            (struct op_result){.status = answers[i / ENDS_COUNT].status,
                .fence = 5,
                .arrival = 5,
                .ttl_ms = RIG_LEASE_MS,
                .again_ms = 9000});
        enum op_kind then = how == ENDS_KEPT ? answers[i / ENDS_COUNT].then_kept
                                             : answers[i / ENDS_COUNT].then;
        if (then == OP_KIND_COUNT)
            rig_no_op(rig);
        else
            struck = rig_op(rig, then);
        if (struck != NULL && answers[i / ENDS_COUNT].status != OP_OK &&
            then == OP_RELEASE) { /* an ERR comes when nothing is held */
            rig_silent(rig, s);
            rig_status(rig, struck, OP_OK);
        }
        rig_expect(rig, s, answers[i / ENDS_COUNT].line);
        expect_end(rig, s, how);
        rig_end(rig);
    }
}

END_TEST

static const struct closed_while_asking_at_once_row {
    enum op_status status;
    const char *line;
} closed_while_asking_at_once_answers[] = {
    {OP_UNSENT, "1 ERR UNAVAILABLE retry=1"},
    {OP_UNSETTLED, "1 ERR UNAVAILABLE retry=1 reason=settling after_ms=9001"},
    {OP_UNKNOWN, "1 ERR INDOUBT retry=1"},
};

/* With wait=0 nothing waits. */
SESSION_TEST(closed_while_asking_at_once)
{
    const struct closed_while_asking_at_once_row *row =
        &closed_while_asking_at_once_answers[_i];
    rig_say(rig, s, "1 LOCK a wait=0");
    end_session(rig, s, ENDS_EOF);
    rig_finish(rig, rig_op(rig, OP_ACQUIRE),
        (struct op_result){.status = row->status, .again_ms = 9000});
    rig_expect(rig, s, row->line);
    expect_end(rig, s, ENDS_EOF);
}

/* The broker is not settled with the node, and that is known: the wait ends at
 * once. A grant that comes all the same is given back; or it stands for the
 * next connection of a session that is kept. */
RIG_TEST(closed_while_unsettled, rig_new())
{
    int how = _i;
    unsigned s = session_that_ends(rig, how);
    rig_say(rig, s, "1 LOCK c");
    rig_finish(rig, rig_op(rig, OP_ACQUIRE),
        (struct op_result){.status = OP_UNSETTLED, .again_ms = 9000});
    struct op *op = rig_op(rig, OP_ACQUIRE);
    ck_assert_uint_ge(op->deadline_us, rig->now_us + SECOND_US);
    rig_say(rig, s, "2 LOCK b c");
    end_session(rig, s, how);
    if (how == ENDS_KEPT)
        rig_expect(rig, s, "1 ERR CANCELLED retry=1");
    rig_silent(rig, s);
    /* Of the other names Redis is being asked. */
    rig_status(rig, rig->ops[1], OP_UNSENT);
    rig_expect(rig, s, "2 ERR CANCELLED retry=1 name=b");
    rig_granted(rig, op, 5);
    if (how == ENDS_KEPT) {
        rig_no_op(rig);
    } else {
        ck_assert_uint_eq(rig_op(rig, OP_RELEASE)->fence, 5);
        rig_silent(rig, s);
        rig_status(rig, rig_op(rig, OP_RELEASE), OP_OK);
        rig_expect(rig, s, "1 ERR CANCELLED retry=1");
    }
    expect_end(rig, s, how);
}

/* A cancelled request does not keep those behind it from their end. */
RIG_TEST(closed_behind_a_cancelled, rig_new())
{
    int how = _i;
    unsigned s = session_that_ends(rig, how);
    rig_say(rig, s, "1 LOCK a");
    rig_ask(rig, s, "2 CANCEL 1", "2 OK");
    rig_say(rig, s, "3 LOCK a");
    ck_assert_uint_eq(rig->hurried, 1);
    end_session(rig, s, how);
    ck_assert_uint_eq(rig->hurried, 2);
    rig_status(rig, rig_op(rig, OP_ACQUIRE), OP_UNSENT);
    rig_expect(rig, s, "1 ERR CANCELLED retry=1");
    ck_assert_uint_le(rig_op(rig, OP_ACQUIRE)->deadline_us, rig->now_us);
    rig_status(rig, rig_op(rig, OP_ACQUIRE), OP_UNSENT);
    rig_expect(rig, s, "3 ERR CANCELLED retry=1");
    expect_end(rig, s, how);
}

/* A request that is asked for after the end, when those before it are answered,
 * does not wait for Redis either. */
RIG_TEST(closed_while_leaving, rig_new())
{
    int how = _i;
    unsigned s = session_that_ends(rig, how);
    rig_lock(rig, s, "1 LOCK a", 5);
    rig_say(rig, s, "2 UNLOCK a");
    rig_say(rig, s, "3 LOCK a");
    rig_lock(rig, s, "4 LOCK b", 6);
    rig_say(rig, s, "5 UNLOCK b");
    rig_say(rig, s, "6 LOCK b");
    end_session(rig, s, how);
    rig_silent(rig, s);
    /* The release has been carried out, and then Redis is gone. */
    rig_status(rig, rig_op(rig, OP_RELEASE), OP_OK);
    rig_expect(rig, s, "2 OK count=0");
    struct op *op = rig->ops[1];
    ck_assert_int_eq(op->kind, OP_ACQUIRE);
    ck_assert_uint_le(op->deadline_us, rig->now_us);
    rig_status(rig, op, OP_UNSENT);
    rig_expect(rig, s, "3 ERR CANCELLED retry=1");
    /* It cannot be carried out; and the UNLOCK may take its time. */
    rig_status(rig, rig_op(rig, OP_RELEASE), OP_UNSENT);
    rig_expect(rig, s, "6 ERR CANCELLED retry=1");
    rig_silent(rig, s);
    rig_pass(rig, 200);
    rig_status(rig, rig_op(rig, OP_RELEASE), OP_OK);
    rig_expect(rig, s, "5 OK count=0");
    expect_end(rig, s, how);
}

SESSION_TEST(eof_of_nothing)
{
    rig_event(rig, s, CORE_EOF);
    rig_expect(rig, s, "* BYE eof");
    rig_event(rig, s, CORE_EOF);
    rig_event(rig, s, CORE_MORE);
    rig_say(rig, s, "PING");
    rig_silent(rig, s);
}

/* Nothing can be said any more; everything is released. */
SESSION_TEST(drop_in_each_state)
{
    each_state(rig, s);
    rig_event(rig, s, CORE_DROP);
    rig_event(rig, s, CORE_DROP);
    rig_silent(rig, s);
    count_totals(rig, 0, 0);
    rig_status(rig, rig_op(rig, OP_RENEW), OP_OK);
    rig_granted(rig, rig_op(rig, OP_ACQUIRE), 8);
    rig_status(rig, rig_op(rig, OP_RELEASE), OP_UNKNOWN);
    rig_status(rig, rig_op(rig, OP_INSPECT), OP_OK);
    for (int i = 0; i < 4; i++)
        rig_status(rig, rig_op(rig, OP_RELEASE), OP_OK);
    rig_pass(rig, 115);
    rig_status(rig, rig_op(rig, OP_RELEASE), OP_OK);
    rig_silent(rig, s);
    ck_assert_uint_eq(rig_count(rig, COUNTER_closed_dropped), 1);
    ck_assert_uint_eq(rig_count(rig, COUNTER_grants_unwanted), 1);
}

RIG_TEST(expelled, rig_new())
{
    static const char *const byes[] = {
        "* BYE output", "* BYE limit", "* BYE protocol"};

    for (int why = EXPEL_OUTPUT; why <= EXPEL_PROTOCOL; why++) {
        unsigned s = rig_open(rig);
        rig_lock(rig, s, "LOCK a", 5);
        struct core_event event = {.kind = CORE_EXPEL,
            .session = rig->sessions[s].handle,
            .expel = (enum core_expel)why};
        rig_step(rig, &event);
        rig_expect(rig, s, byes[why]);
        ck_assert(rig->sessions[s].closed);
        rig_status(rig, rig_op(rig, OP_RELEASE), OP_OK);
    }
    unsigned s = rig_open(rig);
    rig_ask(rig, s, "GET / HTTP/1.1", "* BYE protocol");
}

SESSION_TEST(too_long)
{
    char line[] = "7 LOCK xxxxxxxxx";
    char http[] = "GET /xxxxx HTTP/1.1";
    struct core_event event = {
        .kind = CORE_TOO_LONG, .session = rig->sessions[s].handle};

    event.line.at = line;
    event.line.len = strlen(line);
    rig_step(rig, &event);
    rig_expect(rig, s, "7 ERR TOOLONG retry=0");
    event.line.at = http;
    event.line.len = strlen(http);
    rig_step(rig, &event);
    rig_expect(rig, s, "* BYE protocol");
}

RIG_TEST(heartbeats, rig_new())
{
    unsigned s = rig_open_tcp(rig);

    rig_ask(rig, s, "HELLO name=n heartbeat=1s",
        "- OK session=~ proto=1 server=~ heartbeat_ms=1000");
    rig_lock(rig, s, "LOCK a", 5);
    rig_pass(rig, 999);
    rig_silent(rig, s);
    rig_pass(rig, 3);
    rig_expect(rig, s, "* PING 1");
    rig_pass(rig, 500);
    rig_event(rig, s, CORE_BYTES);
    rig_pass(rig, 998);
    rig_silent(rig, s);
    rig_pass(rig, 5);
    rig_expect(rig, s, "* PING 2");
    rig_say(rig, s, "");
    rig_pass(rig, 1002);
    rig_expect(rig, s, "* PING 3");
    rig_say(rig, s, "9 PONG 3");
    rig_silent(rig, s);
    rig_pass(rig, 2999);
    rig_expect(rig, s, "* PING 4");
    rig_expect(rig, s, "* PING 5");
    rig_silent(rig, s);
    rig_pass(rig, 4);
    rig_expect(rig, s, "* BYE heartbeat");
    ck_assert(rig->sessions[s].closed);
    rig_op(rig, OP_RELEASE);
    ck_assert_uint_eq(rig_count(rig, COUNTER_closed_heartbeat), 1);
}

/* A stall of our own is nobody's silence. */
SESSION_TEST(heartbeat_after_a_stall)
{
    rig_say(rig, s, "HELLO heartbeat=1s");
    (void)rig_line(rig, s);
    rig_pass(rig, 500);
    rig_stall(rig, 60000);
    rig_pass(rig, 900);
    rig_silent(rig, s);
    ck_assert_uint_eq(rig_count(rig, COUNTER_loop_stalls), 1);
    rig_pass(rig, 102);
    rig_expect(rig, s, "* PING 1");
    rig_pass(rig, 2002);
    rig_expect(rig, s, "* PING 2");
    rig_expect(rig, s, "* BYE heartbeat");
    /* A clock that goes back is one that stands still. */
    struct core_event event = {.kind = CORE_TIME};
    rig->now_us -= 1000000;
    rig_step(rig, &event);
    rig->now_us += 1000000;
}

/* The broker slept through the grace: one word, and the end. */
RIG_TEST(stop_stalled, rig_new())
{
    unsigned idle = rig_open(rig);
    struct core_event stop = {.kind = CORE_STOP};

    rig_step(rig, &stop);
    rig_stall(rig, 60000);
    rig_pass(rig, 1);
    rig_expect(rig, idle, "* DRAIN grace_ms=0");
    rig_expect(rig, idle, "* BYE drain");
    rig_silent(rig, idle);
}

RIG_TEST(stop_in_each_state, rig_new())
{
    unsigned idle = rig_open(rig);
    unsigned s = rig_open(rig);
    struct core_event stop = {.kind = CORE_STOP};

    each_state(rig, s);
    rig_step(rig, &stop);
    rig_step(rig, &stop);
    rig_pass(rig, 3);
    rig_expect(rig, idle, "* DRAIN grace_ms=10000");
    rig_expect(rig, idle, "* BYE drain");
    const char *line;
    unsigned drained = 0;
    unsigned draining = 0;
    while ((line = rig_line(rig, s))[0] != '\0') {
        drained += strcmp(line, "* DRAIN grace_ms=10000") == 0;
        draining += strstr(line, " ERR DRAINING retry=1") != NULL;
    }
    ck_assert_uint_eq(drained, 1);
    ck_assert_uint_eq(draining, 3); /* 4, 5, 6 */
    rig_ask(rig, s, "12 LOCK other", "12 ERR DRAINING retry=1");
    struct core_event open = {.kind = CORE_OPEN};
    open.open.peer = "";
    rig_step(rig, &open);
    ck_assert(handle_equal(open.session, HANDLE_NONE));
    rig_granted(rig, rig_op(rig, OP_RENEW), 6);
    rig_expect(rig, s, "3 OK ttl_ms=~");
    rig_granted(rig, rig_op(rig, OP_ACQUIRE), 8);
    rig_status(rig, rig_op(rig, OP_RELEASE), OP_OK);
    rig_expect(rig, s, "9 OK count=0");
    rig_status(rig, rig_op(rig, OP_INSPECT), OP_OK);
    rig_expect(rig, s, "10 OK state=free holders=0 waiters=0");
    while (rig->op_count > 0)
        rig_status(rig, rig_op(rig, OP_RELEASE), OP_OK);
    rig_expect(rig, s, "7 ERR NOTHELD retry=0");
    rig_say(rig, s, "13 UNLOCK renewing");
    rig_status(rig, rig_op(rig, OP_RELEASE), OP_OK);
    rig_expect(rig, s, "13 OK count=0");
    rig_silent(rig, s);
    ck_assert(!core_stopped(rig->core));
    /* Holds at the end of grace are renewed once more and forgotten. */
    rig_pass(rig, 9996);
    rig_silent(rig, s);
    rig_granted(rig, rig_op(rig, OP_RENEW), 5);
    rig_pass(rig, 5);
    rig_expect(rig, s, "* BYE drain");
    ck_assert(rig->sessions[s].closed);
    ck_assert(!core_stopped(rig->core));
    ck_assert_uint_eq(rig_op(rig, OP_RENEW)->fence, 5);
    rig_granted(rig, rig_op(rig, OP_RENEW), 5);
    rig_no_op(rig);
    ck_assert(core_stopped(rig->core));
}

/* The last hold given back ends a drained session; a queued wait does not. */
SESSION_TEST(stop_ends_with_the_last_hold)
{
    unsigned t = rig_open(rig);
    struct core_event stop = {.kind = CORE_STOP};

    rig_lock(rig, s, "1 LOCK a", 5);
    rig_say(rig, t, "1 LOCK b");
    rig_step(rig, &stop);
    rig_queued(rig, rig_op(rig, OP_ACQUIRE));
    rig_expect(rig, t, "1 ERR DRAINING retry=1");
    rig_pass(rig, 3);
    rig_expect(rig, s, "* DRAIN grace_ms=10000");
    rig_say(rig, s, "2 UNLOCK a");
    rig_status(rig, rig_op(rig, OP_RELEASE), OP_OK);
    rig_expect(rig, t, "* DRAIN grace_ms=10000");
    rig_expect(rig, t, "* BYE drain");
    rig_status(rig, rig_op(rig, OP_RELEASE), OP_OK);
    rig_expect(rig, s, "2 OK count=0");
    rig_expect(rig, s, "* BYE drain");
    ck_assert(core_stopped(rig->core));
}

/* A LOCK that waits for its own release when the stop comes. */
SESSION_TEST(stop_while_leaving)
{
    struct core_event stop = {.kind = CORE_STOP};

    rig_lock(rig, s, "1 LOCK a", 5);
    rig_say(rig, s, "2 UNLOCK a");
    rig_say(rig, s, "3 LOCK a");
    rig_step(rig, &stop);
    rig_status(rig, rig_op(rig, OP_RELEASE), OP_OK);
    rig_expect(rig, s, "2 OK count=0");
    rig_expect(rig, s, "3 ERR DRAINING retry=1");
    rig_no_op(rig);
}

/* A waiter that cannot be asked after now is asked after soon. */
RIG_TEST(no_operation_for_a_refresh, rig_create())
{
    rig->settings.tickets_max = 2;
    rig->settings.requests_max = 2;
    rig_start(rig);
    unsigned s = rig_open(rig);
    rig_wait(rig, s, "1 LOCK a");
    for (unsigned i = 0; i < 5; i++) {
        unsigned t = rig_open(rig);
        rig_say(rig, t, "SHOW x");
        rig_say(rig, t, "SHOW y");
        rig_event(rig, t, CORE_DROP);
    }
    struct core_event unheard = {.kind = CORE_UNHEARD};
    rig_step(rig, &unheard);
    rig_pass(rig, 700);
    while (rig->op_count > 1 && rig->ops[0]->kind == OP_INSPECT)
        rig_status(rig, rig->ops[0], OP_OK);
    rig_pass(rig, 120);
    rig_granted(rig, rig->ops[rig->op_count - 1], 5);
    rig_expect(rig, s, "1 OK fence=5 ttl_ms=~ count=1");
}

RIG_TEST(limits, rig_create())
{
    char line[40];

    rig->settings.outstanding_max = 3;
    rig->settings.holds_max = 4;
    rig->settings.tickets_max = 6;
    rig->settings.requests_max = 5;
    rig->settings.sessions_max = 3;
    rig_start(rig);
    unsigned s = rig_open(rig);
    unsigned t = rig_open(rig);
    /* As many again may be away. */
    ck_assert_uint_eq(core_sessions_room(&rig->settings), 6);
    for (unsigned i = 2; i < 6; i++)
        (void)rig_open(rig);
    struct core_event open = {.kind = CORE_OPEN};
    open.open.peer = "";
    rig_step(rig, &open);
    ck_assert(handle_equal(open.session, HANDLE_NONE));
    ck_assert_uint_eq(rig_count(rig, COUNTER_limit_connections), 1);
    for (unsigned i = 0; i < 4; i++) {
        snprintf(line, sizeof(line), "%u LOCK a%u", i, i);
        rig_lock(rig, s, line, i + 1);
    }
    rig_ask(rig, s, "5 LOCK b", "5 ERR LIMIT retry=1 limit=holds");
    rig_lock(rig, t, "LOCK c", 5);
    rig_lock(rig, t, "LOCK d", 6);
    rig_ask(rig, t, "LOCK e", "- ERR LIMIT retry=1 limit=tickets");
    rig_say(rig, s, "6 SHOW x");
    rig_say(rig, s, "7 UNLOCK a0");
    rig_say(rig, s, "8 SHOW x");
    rig_ask(rig, s, "9 LOCK a1", "9 ERR LIMIT retry=1 limit=outstanding");
    rig_ask(rig, s, "9 UNLOCK a1", "9 ERR LIMIT retry=1 limit=outstanding");
    rig_ask(rig, s, "9 SHOW a1", "9 ERR LIMIT retry=1 limit=outstanding");
    rig_ask(rig, s, "9 HELD", "9 ERR LIMIT retry=1 limit=outstanding");
    rig_say(rig, t, "1 SHOW x");
    rig_say(rig, t, "2 SHOW x");
    rig_ask(rig, t, "3 SHOW x", "3 ERR LIMIT retry=1 limit=requests");
    rig_ask(rig, t, "3 UNLOCK c", "3 ERR LIMIT retry=1 limit=requests");
    rig_ask(rig, t, "3 LOCK c", "3 ERR LIMIT retry=1 limit=requests");
}

/* A request that never had a place at a lock is counted for its namespace as
 * well. */
START_TEST(turned_away)
{
    const struct text prefix = TEXT("b");
    struct rig *rig = rig_create();
    struct core_namespace namespaces[NAMESPACES_MAX + 1];

    rig->settings.outstanding_max = 3;
    rig->settings.holds_max = 2;
    rig->settings.tickets_max = 3;
    rig->settings.requests_max = 4;
    rig->settings.namespaces = &prefix;
    rig->settings.namespace_count = 1;
    rig_start(rig);
    unsigned s = rig_open(rig);
    unsigned t = rig_open(rig);
    rig_lock(rig, s, "1 LOCK a", 1);
    rig_lock(rig, s, "2 LOCK b", 2);
    rig_ask(rig, s, "3 LOCK b0", "3 ERR LIMIT retry=1 limit=holds");
    rig_ask(rig, s, "3 LOCK a b1", "3 ERR LIMIT retry=1 limit=holds");
    rig_lock(rig, t, "1 LOCK c", 3);
    rig_ask(rig, t, "2 LOCK b2", "2 ERR LIMIT retry=1 limit=tickets");
    rig_say(rig, s, "3 SHOW x");
    rig_say(rig, s, "4 SHOW x");
    rig_say(rig, s, "5 SHOW x");
    rig_ask(rig, s, "6 LOCK b3", "6 ERR LIMIT retry=1 limit=outstanding");
    rig_say(rig, t, "3 SHOW x");
    rig_ask(rig, t, "4 LOCK b4 b5", "4 ERR LIMIT retry=1 limit=requests");
    rig_stop(rig);
    rig_pass(rig, 3);
    rig_expect(rig, t, "* DRAIN grace_ms=10000");
    rig_ask(rig, t, "5 LOCK b6", "5 ERR DRAINING retry=1");
    ck_assert_uint_eq(core_namespaces(rig->core, rig->now_us, namespaces), 2);
    const uint64_t *counted = namespaces[0].counted->value;
    ck_assert_uint_eq(counted[NAMESPACE_limit], 5);
    ck_assert_uint_eq(counted[NAMESPACE_draining], 1);
    ck_assert_uint_eq(counted[NAMESPACE_granted], 1);
    rig_end(rig);
}

END_TEST

/* Settings that change meanwhile: what is there stays, what comes is met by
 * the new ones. */
RIG_TEST(configured, rig_new())
{
    const struct text prefix = TEXT("b");
    struct core_settings settings = rig->settings;
    struct core_namespace namespaces[NAMESPACES_MAX + 1];
    unsigned s = rig_open_tcp(rig);

    rig_lock(rig, s, "1 LOCK a", 1);
    rig_lock(rig, s, "2 LOCK b", 2);
    settings.holds_max = 2;
    settings.redis_timeout_us = 200000;
    settings.stop_grace_us = 7000000;
    settings.lease_ms = 1; /* that is not taken */
    settings.namespaces = &prefix;
    settings.namespace_count = 1;
    core_configure(rig->core, &settings);
    rig->silence_us = 3000000; /* of new connections */
    rig_ask(rig, s, "3 LOCK c", "3 ERR LIMIT retry=1 limit=holds");
    rig_ask(rig, s, "4 PING", "4 OK ttl_ms=11000");
    ck_assert_uint_eq(core_namespaces(rig->core, rig->now_us, namespaces), 2);
    ck_assert_uint_eq(namespaces[0].held, 1);
    ck_assert_uint_eq(namespaces[1].held, 1);
    ck_assert_uint_eq(namespaces[1].counted->value[NAMESPACE_granted], 2);
    rig_say(rig, s, "5 UNLOCK b");
    rig_status(rig, rig_op(rig, OP_RELEASE), OP_OK);
    rig_expect(rig, s, "5 OK count=0");
    ck_assert_uint_eq(core_namespaces(rig->core, rig->now_us, namespaces), 2);
    ck_assert_uint_eq(namespaces[0].counted->hold.count[0], 1);
    rig_say(rig, s, "6 LOCK b");
    struct op *op = rig_op(rig, OP_ACQUIRE);
    ck_assert_uint_eq(op->deadline_us, rig->now_us + 200000);
    rig_granted(rig, op, 3);
    rig_expect(rig, s, "6 OK fence=3 ttl_ms=11000 count=1");
    unsigned later = rig_open_tcp(rig);
    rig_say(rig, later, "LOCK later");
    rig_granted(rig, rig_op(rig, OP_ACQUIRE), 4);
    rig_expect(rig, later, "- OK fence=4 ttl_ms=3000 count=1");
    rig_stop(rig);
    rig_pass(rig, 1);
    rig_expect(rig, s, "* DRAIN grace_ms=7000");
}

/* No room for another operation: told, or tried again. */
RIG_TEST(no_operations_left, rig_create())
{
    rig->settings.tickets_max = 2;
    rig->settings.requests_max = 2;
    rig->settings.releases_kept = 0; /* they have room of their own */
    rig_start(rig);
    unsigned s = rig_open(rig);
    rig_lock(rig, s, "LOCK a lease=5s", 5);
    rig_lock(rig, s, "LOCK b", 6);
    for (unsigned i = 0; i < 5; i++) {
        unsigned t = rig_open(rig);
        rig_say(rig, t, "SHOW x");
        rig_say(rig, t, "SHOW y");
        rig_event(rig, t, CORE_DROP);
    }
    ck_assert_uint_eq(rig->op_count, 10);
    rig_ask(rig, s, "1 SHOW x", "1 ERR LIMIT retry=1 limit=requests");
    rig_ask(rig, s, "2 RENEW a lease=9s", "2 ERR LIMIT retry=1 limit=requests");
    rig_say(rig, s, "3 UNLOCK a");
    ck_assert_uint_eq(rig->op_count, 10);
    rig_pass(rig, 10010);
    rig_status(rig, rig_op(rig, OP_INSPECT), OP_OK);
    for (int i = 0; i < 4; i++) {
        rig_pass(rig, 120);
        if (rig->op_count == 10)
            rig_granted(rig, rig->ops[9], 6);
    }
    rig_expect(rig, s, "3 OK count=0");
    ck_assert_uint_eq(rig_count(rig, COUNTER_renewals), 1);
    while (rig->op_count < 10)
        rig_say(rig, s, "SHOW x");
    rig_ask(rig, s, "4 LOCK c", "4 ERR LIMIT retry=1 limit=tickets");
}

SESSION_TEST(tags)
{
    unsigned t = rig_open(rig);

    rig_wait(rig, s, "1 LOCK a");
    rig_ask(rig, s, "1 LOCK b", "1 ERR BADREQ retry=0");
    rig_ask(rig, s, "1 PING", "1 ERR BADREQ retry=0");
    rig_ask(rig, t, "1 PING", "1 OK");
    rig_ask(rig, t, "2 CANCEL 1", "2 ERR BADREQ retry=0");
    rig_ask(rig, s, "2 CANCEL 1", "1 ERR CANCELLED retry=1");
    rig_expect(rig, s, "2 OK");
    rig_ask(rig, s, "1 PING", "1 OK");
    rig_ask(rig, s, "x+ PING", "- ERR ~ retry=0");
    rig_ask(rig, s, "3 NOSUCH", "3 ERR UNKNOWN retry=0");
}

RIG_TEST(held_in_parts, rig_create())
{
    char line[90];

    rig->settings.holds_max = 2000;
    rig->settings.tickets_max = 2000;
    rig_start(rig);
    unsigned s = rig_open(rig);
    struct rig_session *session = &rig->sessions[s];
    for (unsigned i = 0; i < 501; i++) {
        snprintf(line, sizeof(line), "LOCK a%u", i);
        rig_lock(rig, s, line, i + 1);
    }
    rig_say(rig, s, "1 HELD");
    rig_say(rig, s, "2 HELD");
    ck_assert_uint_eq(session->finals, 501);
    for (unsigned i = 0; i < 1000; i++) {
        snprintf(line, sizeof(line),
            "%u ITEM name=a%u fence=%u ttl_ms=~ "
            "count=1",
            i / 500 + 1, i % 500, i % 500 + 1);
        rig_expect(rig, s, line);
    }
    rig_silent(rig, s);
    /* One MORE for both: each has to come to its end by it. */
    for (unsigned more = session->more; more > 0 && session->finals < 503;) {
        session->more = 0;
        rig_event(rig, s, CORE_MORE);
        more = session->more;
    }
    rig_expect(rig, s, "1 ITEM name=a500 fence=501 ttl_ms=~ count=1");
    rig_expect(rig, s, "1 OK n=501");
    rig_expect(rig, s, "2 ITEM name=a500 fence=501 ttl_ms=~ count=1");
    rig_expect(rig, s, "2 OK n=501");
    rig_silent(rig, s);
    rig_say(rig, s, "3 HELD");
    rig_event(rig, s, CORE_EOF);
    ck_assert(!session->closed);
    rig_event(rig, s, CORE_MORE);
    rig_pass(rig, 1); /* its holds are given up in portions */
    ck_assert(session->closed);
}

SESSION_TEST(show)
{
    struct op_ticket tickets[] = {
        {.granted = true,
            .session = {1, 2, 3},
            .broker = "broker-9",
            .fence = 5,
            .ttl_ms = 100,
            .leased = true,
            .lease_ms = 4000,
            .age_ms = 7,
            .owner = TEXT("o"),
            .client = TEXT("c"),
            .note = TEXT("n n")},
        {.broker = "broker-8", .age_ms = 3},
        {.broker = "broker-8", .age_ms = 2},
    };

    rig_say(rig, s, "1 SHOW a limit=3");
    struct op *op = rig_op(rig, OP_INSPECT);
    ck_assert_uint_eq(op->limit, 3);
    rig_finish(rig, op,
        (struct op_result){.status = OP_OK,
            .holders = 1,
            .waiters = 2,
            .tickets = tickets,
            .ticket_count = 3});
    rig_expect(rig, s,
        "1 ITEM kind=holder session=~ broker=broker-9 fence=5 ttl_ms=100 "
        "lease_ms=4000 age_ms=7 name=c owner=o note=n%20n");
    rig_expect(rig, s,
        "1 ITEM kind=waiter position=1 session=~ broker=broker-8 age_ms=3");
    rig_expect(rig, s,
        "1 ITEM kind=waiter position=2 session=~ broker=broker-8 age_ms=2");
    rig_expect(rig, s, "1 OK state=held mode=exclusive holders=1 waiters=2");
    rig_say(rig, s, "2 SHOW a limit=100000");
    ck_assert_uint_eq(rig_op(rig, OP_INSPECT)->limit, 500);
    rig_status(rig, rig_op(rig, OP_INSPECT), OP_UNKNOWN);
    rig_expect(rig, s, "2 ERR UNAVAILABLE retry=1");
    rig_say(rig, s, "3 SHOW a");
    ck_assert_uint_eq(rig_op(rig, OP_INSPECT)->limit, 100);
    rig_status(rig, rig_op(rig, OP_INSPECT), OP_REFUSED);
    rig_expect(rig, s, "3 ERR INTERNAL retry=0");
}

SESSION_TEST(lists)
{
    unsigned t = rig_open(rig);

    rig_say(rig, s, "HELLO name=me");
    (void)rig_line(rig, s);
    rig_lock(rig, s, "LOCK a owner=o note=n", 5);
    rig_wait(rig, t, "LOCK a");
    rig_wait(rig, t, "LOCK b");
    rig_say(rig, t, "LOCK c");
    rig_ask(rig, s, "1 LOCKS limit=1",
        "1 ITEM name=a state=held holders=1 waiters=1 session=~ fence=5 "
        "age_ms=0 client=me owner=o note=n");
    rig_expect(rig, s, "1 OK n=1 cursor=1");
    rig_ask(rig, s, "2 LOCKS cursor=1",
        "2 ITEM name=b state=waiting holders=0 waiters=1");
    rig_expect(rig, s, "2 OK n=1");
    rig_ask(rig, s, "2 LOCKS cursor=4294967296", "2 OK n=0");
    rig_ask(rig, s, "3 SESSIONS limit=1",
        "3 ITEM session=~ name=me peer=a%20peer age_ms=0 idle_ms=0 holds=1 "
        "waits=0");
    rig_expect(rig, s, "3 OK n=1 cursor=1");
    rig_ask(rig, s, "4 SESSIONS cursor=1",
        "4 ITEM session=~ peer=a%20peer age_ms=0 idle_ms=0 holds=0 waits=2");
    rig_expect(rig, s, "4 OK n=1");
    rig_ask(rig, s, "5 STATS", "5 ITEM name=sessions_now value=2");
    rig_expect(rig, s, "5 ITEM name=locks_now value=3");
    rig_expect(rig, s, "5 ITEM name=held_now value=1");
    rig_expect(rig, s, "5 ITEM name=waiting_now value=2");
    while (rig_line(rig, s)[0] != '\0')
        ;
    rig_ask(rig, s, "6 HELP", "6 ITEM command=HELLO");
}

/* Everything left goes with the core when it is destroyed. */
/* Kept for its holds alone: another broker has them now, and it goes. */
SESSION_TEST(kept_for_nothing)
{
    struct core_totals totals;

    rig_say(rig, s, "HELLO keep=1h");
    (void)rig_line(rig, s);
    rig_lock(rig, s, "LOCK a", 5);
    rig_lock(rig, s, "LOCK b", 6);
    rig_event(rig, s, CORE_DROP);
    rig_pass(rig, RIG_LEASE_MS / 3);
    core_totals(rig->core, &totals);
    ck_assert_uint_eq(totals.sessions, 1);
    rig_status(rig, rig_op(rig, OP_RENEW), OP_GONE);
    core_totals(rig->core, &totals);
    ck_assert_uint_eq(totals.sessions, 1);
    rig_status(rig, rig_op(rig, OP_RENEW), OP_MOVED);
    core_totals(rig->core, &totals);
    ck_assert_uint_eq(totals.sessions, 0);
    ck_assert_uint_eq(rig_count(rig, COUNTER_closed_kept), 1);
}

START_TEST(destroyed_in_the_midst)
{
    struct rig *rig = rig_new();

    each_state(rig, rig_open(rig));
    rig_free(rig);
}

END_TEST

/* Of two that happen to have one short hash none is ended by it. */
RIG_TEST(killed_by_a_short_hash, rig_new())
{
    unsigned by = rig_open(rig);
    unsigned one = rig_open(rig);
    unsigned other = rig_open(rig);
    struct session *session =
        slab_get(&rig->core->sessions, rig->sessions[other].handle);

    memcpy(session->short_id, "0badf00d", 8);
    rig_ask(rig, by, "KILL 0BADF00D", "- OK");
    rig_expect(rig, other, "* BYE killed");
    other = rig_open(rig);
    session = slab_get(&rig->core->sessions, rig->sessions[other].handle);
    memcpy(session->short_id, "0badf00d", 8);
    session = slab_get(&rig->core->sessions, rig->sessions[one].handle);
    memcpy(session->short_id, "0badf00d", 8);
    rig_ask(rig, by, "KILL 0badf00d", "- ERR CONFLICT retry=0");
    rig_silent(rig, one);
    rig_silent(rig, other);
    rig_kill(rig, by, one);
    rig_expect(rig, by, "- OK");
    rig_expect(rig, one, "* BYE killed");
}

Suite *
core_session_suite(void)
{
    Suite *suite = suite_create("core_session");
    TCase *tests = tcase_create("core_session");

    tcase_add_test(tests, quit_in_each_state);
    tcase_add_test(tests, eof_in_each_state);
    tcase_add_test(tests, closed_while_asking);
    tcase_add_loop_test(tests, closed_while_asking_at_once, 0, 3);
    tcase_add_loop_test(tests, closed_while_unsettled, 0, ENDS_COUNT);
    tcase_add_loop_test(tests, closed_while_leaving, 0, ENDS_COUNT);
    tcase_add_loop_test(tests, closed_behind_a_cancelled, 0, ENDS_COUNT);
    tcase_add_test(tests, eof_of_nothing);
    tcase_add_test(tests, drop_in_each_state);
    tcase_add_test(tests, expelled);
    tcase_add_test(tests, too_long);
    tcase_add_test(tests, heartbeats);
    tcase_add_test(tests, heartbeat_after_a_stall);
    tcase_add_test(tests, stop_stalled);
    tcase_add_test(tests, stop_in_each_state);
    tcase_add_test(tests, stop_ends_with_the_last_hold);
    tcase_add_test(tests, stop_while_leaving);
    tcase_add_test(tests, no_operation_for_a_refresh);
    tcase_add_test(tests, limits);
    tcase_add_test(tests, turned_away);
    tcase_add_test(tests, configured);
    tcase_add_test(tests, no_operations_left);
    tcase_add_test(tests, killed_by_a_short_hash);
    tcase_add_test(tests, tags);
    tcase_add_test(tests, held_in_parts);
    tcase_add_test(tests, show);
    tcase_add_test(tests, lists);
    tcase_add_test(tests, kept_for_nothing);
    tcase_add_test(tests, destroyed_in_the_midst);
    suite_add_tcase(suite, tests);
    return suite;
}

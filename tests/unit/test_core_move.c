/*
 * Tests of sessions that move (daemon/core/command/session.c, ticket.c): what
 * is kept, who may take it over, by which generation, and what a later one
 * changes.
 */
#include "daemon/op/op.h"
#include "tests/unit/core_rig.h"
#include "tests/unit/log_kept.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FOREIGN "HELLO resume=0123456789abcdef0123456789abcdef gen=2"

Suite *core_move_suite(void);

/* HELLO resume= of the first session, by another one. */
static void
resume(struct rig *rig, unsigned from, unsigned to, unsigned generation,
    const char *rest, const char *pattern)
{
    rig_resume(rig, from, to, generation, rest[0] != '\0' ? rest : " keep=10s");
    rig_expect(rig, to, pattern);
}

static const char resumed[] =
    "- OK session=~ proto=1 server=~ keep_ms=10000 gen=~";

/* One that has `a` with fence 5, and one that waits for it. */
static unsigned
holding_session(struct rig *rig)
{
    unsigned session = rig_open_kept(rig);

    rig_lock(rig, session, "1 LOCK a", 5);
    return session;
}

static unsigned
waiting_session(struct rig *rig)
{
    unsigned session = rig_open_kept(rig);

    rig_wait(rig, session, "1 LOCK a");
    return session;
}

/* Its connection is lost, and another one, which is returned, takes it over. */
static unsigned
take_over(struct rig *rig, unsigned from, unsigned generation)
{
    unsigned to = rig_open(rig);

    rig_event(rig, from, CORE_DROP);
    resume(rig, from, to, generation, "", resumed);
    return to;
}

/* One that comes from another broker, with holds and waits of which this one
 * has not heard. */
static unsigned
foreign_session(struct rig *rig, bool keeps)
{
    unsigned session = rig_open(rig);

    if (keeps) {
        rig_ask(rig, session, FOREIGN " keep=5s",
            "- OK session=~ proto=1 server=~ keep_ms=5000 gen=2");
    } else {
        rig_ask(rig, session, FOREIGN, "- OK session=~ proto=1 server=~ gen=2");
    }
    return session;
}

/* And claims `a`; the answer, after 100 ms, is that so much is left of it. */
static unsigned
slow_claim(struct rig *rig, bool keeps, uint32_t ttl_ms)
{
    unsigned session = foreign_session(rig, keeps);

    rig_say(rig, session, "1 CLAIM a fence=5");
    rig_pass(rig, 100);
    rig_finish(rig, rig_op(rig, OP_RENEW),
        (struct op_result){.status = OP_OK,
            .fence = 5,
            .ttl_ms = ttl_ms,
            .ask = {.permits = 1}});
    return session;
}

/* The answer to a renewal: it is had, but shared. */
static void
finish_shared(struct rig *rig, uint64_t fence)
{
    rig_finish(rig, rig_op(rig, OP_RENEW),
        (struct op_result){.status = OP_OK,
            .fence = fence,
            .ttl_ms = RIG_LEASE_MS,
            .ask = {.mode = MODE_SHARED, .permits = 1}});
}

/* The answer: it waits there, at the place that another broker gave it. */
static void
finish_waiting(struct rig *rig, struct op *op, bool shared)
{
    rig_finish(rig, op,
        (struct op_result){.status = OP_WAITING,
            .arrival = 9,
            .again_ms = 36000000,
            .ask = {
                .mode = shared ? MODE_SHARED : MODE_EXCLUSIVE, .permits = 1}});
}

/* The hold outlives the connection by keep=, and no longer. */
RIG_TEST(keep_over, rig_new())
{
    unsigned s = holding_session(rig);

    rig_event(rig, s, CORE_DROP);
    rig_pass(rig, 9000);
    rig_no_op(rig);
    rig_pass(rig, 1100);
    struct op *op = rig->ops[rig->op_count - 1];
    ck_assert_int_eq(op->kind, OP_RELEASE);
    ck_assert(op->unclean);
    ck_assert_uint_eq(rig_count(rig, COUNTER_closed_kept), 1);
}

/* QUIT and KILL keep nothing; without keep= nothing is kept. */
RIG_TEST(not_kept, rig_new())
{
    int how = _i;
    unsigned s = how == 2 ? rig_open(rig) : rig_open_kept(rig);
    unsigned t = rig_open(rig);
    rig_lock(rig, s, "1 LOCK a", 5);
    if (how == 0)
        rig_say(rig, s, "QUIT");
    if (how == 1) {
        rig_kill(rig, t, s);
        rig_expect(rig, t, "- OK");
        rig_expect(rig, s, "* BYE killed");
    }
    if (how == 2)
        rig_event(rig, s, CORE_DROP);
    struct op *op = rig_op(rig, OP_RELEASE);
    ck_assert_int_eq(op->unclean, how > 0);
    rig_kill(rig, t, s);
    if (how > 0)
        rig_expect(rig, t, "- ERR NOTHELD retry=0");
}

/*
 * A hold has been entered as often as can be counted: nothing enters it once
 * more. A client could claim 2^32 - 1 and enter again, and the broker aborted
 * as it gave back one of none.
 */
RIG_TEST(claimed_as_often_as_can_be, rig_new())
{
    unsigned s = foreign_session(rig, true);

    rig_ask(
        rig, s, "1 CLAIM a fence=5 count=2147483648", "1 ERR BADREQ retry=0");
    rig_say(rig, s, "2 CLAIM a fence=5 count=2147483647");
    rig_finish(rig, rig_op(rig, OP_RENEW),
        (struct op_result){.status = OP_OK,
            .fence = 5,
            .ttl_ms = RIG_LEASE_MS,
            .ask = {.permits = 1}});
    rig_expect(rig, s, "2 OK fence=5 ttl_ms=~ count=2147483647");
    rig_ask(rig, s, "3 LOCK a", "3 ERR LIMIT retry=1 limit=count");
    rig_ask(rig, s, "4 LOCK a zzz wait=0",
        "4 ERR LIMIT retry=1 limit=count name=a");
    rig_no_op(rig);
    /* The earlier names of a LOCK of several are given back. */
    rig_say(rig, s, "5 LOCK 0 a");
    rig_granted(rig, rig_op(rig, OP_ACQUIRE), 6);
    rig_expect(rig, s, "5 ERR LIMIT retry=1 limit=count name=a");
    rig_status(rig, rig_op(rig, OP_RELEASE), OP_OK);
    /* Redis is asked for what changes the hold; it does not enter it either. */
    rig_say(rig, s, "6 LOCK a mode=shared");
    finish_shared(rig, 5);
    rig_expect(rig, s, "6 ERR LIMIT retry=1 limit=count");
    rig_ask(rig, s, "7 UNLOCK a", "7 OK count=2147483646");
    rig_say(rig, s, "8 LOCK a zzz mode=shared wait=0");
    rig_status(rig, rig_op(rig, OP_ACQUIRE), OP_BUSY);
    rig_expect(rig, s, "8 ERR BUSY retry=1 name=zzz");
    rig_ask(rig, s, "9 LOCK a mode=shared",
        "9 OK fence=5 ttl_ms=~ count=2147483647");
    rig_ask(
        rig, s, "10 LOCK a mode=shared", "10 ERR LIMIT retry=1 limit=count");
    ck_assert_uint_eq(rig_count(rig, COUNTER_limit_count), 5);
}

/* A session that is away is killed with all that it has. */
RIG_TEST(killed_away, rig_new())
{
    unsigned s = holding_session(rig);
    unsigned t = rig_open(rig);

    rig_event(rig, s, CORE_DROP);
    rig_no_op(rig);
    rig_kill(rig, t, s);
    rig_expect(rig, t, "- OK");
    ck_assert(rig_op(rig, OP_RELEASE)->unclean);
    /* Its connection has ended once. */
    ck_assert_uint_eq(rig_count(rig, COUNTER_closed_dropped), 1);
    ck_assert_uint_eq(rig_count(rig, COUNTER_closed_killed), 0);
    ck_assert_uint_eq(rig_count(rig, COUNTER_sessions_kept), 1);
    ck_assert_uint_eq(rig_count(rig, COUNTER_closed_kept), 1);
}

/* The same broker: Redis is told of the generation, and the count is set. */
RIG_TEST(claimed, rig_new())
{
    unsigned t = take_over(rig, holding_session(rig), 2);

    rig_ask(rig, t, "1 UNLOCK a", "1 ERR NOTHELD retry=0");
    rig_ask(rig, t, "2 CLAIM a fence=4", "2 ERR LOST retry=0");
    rig_say(rig, t, "3 CLAIM a fence=5 count=2");
    struct op *op = rig_op(rig, OP_RENEW);
    ck_assert(op->moves);
    ck_assert_uint_eq(op->generation, 2);
    rig_granted(rig, op, 5);
    rig_expect(rig, t, "3 OK fence=5 ttl_ms=~ count=2");
    rig_ask(rig, t, "4 UNLOCK a", "4 OK count=1");
    rig_say(rig, t, "5 UNLOCK a");
    ck_assert_uint_eq(rig_op(rig, OP_RELEASE)->generation, 2);
    rig_status(rig, rig_op(rig, OP_RELEASE), OP_OK);
    rig_expect(rig, t, "5 OK count=0");
}

/* An earlier connection is granted a later shared hold of the same owner. Redis
 * is asked for the one that is claimed. */
RIG_TEST(claimed_beside_a_later_one, rig_new())
{
    unsigned s = rig_open_kept(rig);

    rig_lock(rig, s, "LOCK a mode=shared", 5);
    unsigned t = take_over(rig, s, 3);
    rig_say(rig, t, "1 CLAIM a fence=4");
    struct op *op = rig_op(rig, OP_RENEW);
    ck_assert_uint_eq(op->fence, 4);
    ck_assert_uint_eq(op->generation, 3);
    finish_shared(rig, 4);
    rig_expect(rig, t, "1 OK fence=4 ttl_ms=~ count=1");
}

/* The kind comes from the record: another broker has shared the hold meanwhile.
 */
RIG_TEST(shared_elsewhere, rig_new())
{
    unsigned s = holding_session(rig);
    unsigned t = take_over(rig, s, 3);

    rig_say(rig, t, "1 LOCK a");
    finish_shared(rig, 5);
    /* It is given up for the one that is asked for. */
    rig_silent(rig, t);
    struct op *op = rig_op(rig, OP_RELEASE);
    ck_assert(op->unclean && op->fence == 5 && op->generation == 3);
    rig_status(rig, op, OP_OK);
    rig_granted(rig, rig_op(rig, OP_ACQUIRE), 6);
    rig_expect(rig, t, "1 OK fence=6 ttl_ms=~ count=1");
    /* A hold that is claimed first is not. */
    rig_event(rig, t, CORE_DROP);
    unsigned u = rig_open(rig);
    resume(rig, s, u, 4, "", resumed);
    rig_say(rig, u, "1 CLAIM a fence=6");
    finish_shared(rig, 6);
    rig_expect(rig, u, "1 OK fence=6 ttl_ms=~ count=1");
    rig_say(rig, u, "2 LOCK a");
    rig_status(rig, rig_op(rig, OP_ACQUIRE), OP_CONFLICT); /* an upgrade */
    rig_expect(rig, u, "2 ERR CONFLICT retry=0");
    rig_ask(
        rig, u, "3 HELD", "3 ITEM name=a fence=6 ttl_ms=~ count=1 mode=shared");
}

/* The same, where this broker has granted it to the connection before, and the
 * record says nothing new. */
RIG_TEST(held_as_another_kind, rig_new())
{
    unsigned s = rig_open_kept(rig);
    unsigned t = rig_open(rig);

    rig_say(rig, s, "1 LOCK a mode=shared");
    rig_event(rig, s, CORE_DROP);
    rig_granted(rig, rig_op(rig, OP_ACQUIRE), 5);
    resume(rig, s, t, 2, "", resumed);
    rig_say(rig, t, "1 LOCK a");
    finish_shared(rig, 5);
    rig_status(rig, rig_op(rig, OP_RELEASE), OP_OK);
    ck_assert(rig_op(rig, OP_ACQUIRE)->ask.mode == MODE_EXCLUSIVE);
    rig_granted(rig, rig_op(rig, OP_ACQUIRE), 6);
    rig_expect(rig, t, "1 OK fence=6 ttl_ms=~ count=1");
}

static const struct claim_answers_row {
    enum op_status status;
    const char *reply;
} claim_answers_rows[] = {
    {OP_GONE, "1 ERR LOST retry=0"},
    {OP_MOVED, "1 ERR LOST retry=0"},
    {OP_BROKEN, "1 ERR LOST retry=0"},
    {OP_WAITING, "1 ERR LOST retry=0"},
    {OP_UNSENT, "1 ERR UNAVAILABLE retry=1"},
    {OP_REFUSED, "1 ERR INTERNAL retry=0"},
};

/* A claim is answered for certain, or may be put again. */
RIG_TEST(claim_answers, rig_new())
{
    const struct claim_answers_row *row = &claim_answers_rows[_i];
    unsigned s = foreign_session(rig, true);
    log_keep(LOG_DEBUG);
    rig_say(rig, s, "1 CLAIM a fence=5");
    rig_status(rig, rig_op(rig, OP_RENEW), row->status);
    rig_expect(rig, s, row->reply);
    rig_no_op(rig);
    ck_assert_uint_eq(log_kept_count("event=lock_left"), 1);
    ck_assert_uint_eq(log_kept_count("event=lock_released"), 0);
}

/* Its note comes with it; one that is longer than any is cut. */
START_TEST(claimed_with_its_note)
{
    static char words[255];
    const struct text notes[] = {
        TEXT(""), TEXT("inventory"), text_make(words, sizeof(words))};
    struct rig *rig = rig_new();
    unsigned s = foreign_session(rig, true);
    char line[300];

    memset(words, 'n', sizeof(words));
    rig_say(rig, s, "1 CLAIM a fence=5");
    rig_finish(rig, rig_op(rig, OP_RENEW),
        (struct op_result){.status = OP_OK,
            .fence = 5,
            .ttl_ms = RIG_LEASE_MS,
            .ask = {.permits = 1},
            .note = notes[_i]});
    rig_expect(rig, s, "1 OK fence=5 ttl_ms=~ count=1");
    rig_say(rig, s, "2 HELD");
    size_t len = notes[_i].len < 128 ? notes[_i].len : 128;
    snprintf(line, sizeof(line), "2 ITEM name=a fence=5 ttl_ms=~ count=1%s%.*s",
        len > 0 ? " note=" : "", (int)len, notes[_i].at);
    rig_expect(rig, s, line);
    rig_expect(rig, s, "2 OK n=1");
    rig_end(rig);
}

END_TEST

/* A hold of the semaphore that was given back elsewhere does not stand in the
 * way. Of too many permits, the hold goes that Redis has not confirmed for the
 * longest time, whatever its fence. */
START_TEST(claimed_of_a_semaphore)
{
    struct rig *rig = rig_new();
    unsigned given_back = rig_open(rig);
    unsigned holder = rig_open(rig);

    rig_lock(rig, holder, "LOCK a limit=2", 6);
    rig_lock(rig, given_back, "LOCK a limit=2", 7);
    rig_pass(rig, RIG_LEASE_MS / 3 + 100);
    struct op *first = rig->ops[0];
    ck_assert_uint_eq(rig->op_count, 2);
    rig_granted(rig, first->fence == 6 ? first : rig->ops[1], 6);
    unsigned s = foreign_session(rig, false);
    rig_say(rig, s, "1 CLAIM a fence=5");
    rig_finish(rig, rig->ops[rig->op_count - 1],
        (struct op_result){.status = OP_OK,
            .fence = 5,
            .ttl_ms = RIG_LEASE_MS,
            .ask = {.permits = 1, .permits_max = 2}});
    rig_expect(rig, given_back, "* LOST a fence=7 reason=gone");
    rig_expect(rig, s, "1 OK fence=5 ttl_ms=~ count=1");
    rig_silent(rig, holder);
    rig_free(rig);
}

END_TEST

/* The answer comes when what is left of the lease is over: that is a loss. It
 * is left to end in Redis, since the client may believe in it until then. */
RIG_TEST(claimed_too_late, rig_new())
{
    unsigned s = slow_claim(rig, false, 60);

    rig_expect(rig, s, "1 ERR LOST retry=0");
    rig_no_op(rig);
}

/* gen= of a HELLO counts up: an earlier one, or the same, takes nothing. */
RIG_TEST(resume_refused, rig_new())
{
    unsigned s = holding_session(rig);
    unsigned t = rig_open(rig);
    unsigned u = rig_open(rig);

    resume(rig, s, t, 5, "", resumed);
    rig_expect(rig, s, "* BYE resumed keep=0");
    for (unsigned generation = 2; generation <= 5; generation++)
        resume(rig, s, u, generation, "", "- ERR CONFLICT retry=0");
    rig_silent(rig, t);
    rig_ask(rig, u, "2 HELD", "2 OK n=0");
    /* It can hold what is its own, by its own id. */
    rig_lock(rig, u, "3 LOCK b", 6);
    rig_say(rig, t, "4 CLAIM a fence=5");
    rig_granted(rig, rig_op(rig, OP_RENEW), 5);
    rig_expect(rig, t, "4 OK fence=5 ttl_ms=~ count=1");
    /* And a larger one does: also where the holder is there and well. */
    unsigned w = rig_open(rig);
    resume(rig, s, w, 6, "", resumed);
    rig_expect(rig, t, "* BYE resumed keep=0");
    ck_assert(rig->sessions[t].closed);
    rig_say(rig, w, "5 CLAIM a fence=5");
    ck_assert_uint_eq(rig_op(rig, OP_RENEW)->generation, 6);
    rig_granted(rig, rig_op(rig, OP_RENEW), 5);
    rig_expect(rig, w, "5 OK fence=5 ttl_ms=~ count=1");
}

/* A fence that fits no request changes nothing. */
RIG_TEST(resume_malformed, rig_new())
{
    static const struct {
        const char *words;
        int digits; /* so many of the session's id */
        const char *rest;
    } table[] = {
        {"gen=2", 0, ""},
        {"resume=", 32, ""},
        {"resume=", 0, " gen=2"},
        {"resume=", 31, " gen=2"},
        {"resume=", 32, "0 gen=2"},
        {"resume=", 31, "x gen=2"},
        {"resume=", 32, " gen=0"},
        {"resume=", 32, " gen=1"},
        {"resume=", 32, " gen=02"},
        {"resume=", 32, " gen=4294967296"},
        {"resume=", 32, " gen=2 gen=3"},
    };

    unsigned s = holding_session(rig);
    unsigned t = rig_open(rig);
    char id[33];
    char line[120];

    rig_id(rig, s, id);
    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
        snprintf(line, sizeof(line), "HELLO name=n %s%.*s%s", table[i].words,
            table[i].digits, id, table[i].rest);
        rig_ask(rig, t, line, "- ERR BADREQ retry=0");
        ck_assert_uint_eq(rig_count(rig, COUNTER_requests_bad), i + 1);
    }
    rig_silent(rig, s);
    rig_ask(rig, t, "1 SESSIONS",
        "1 ITEM session=~ peer=~ age_ms=~ idle_ms=~ holds=1 waits=0");
    rig_expect(
        rig, t, "1 ITEM session=~ peer=~ age_ms=~ idle_ms=~ holds=0 waits=0");
    rig_expect(rig, t, "1 OK n=2");
    /* None of that kept it from what is right. */
    resume(rig, s, t, 4294967295, "", resumed);
    rig_expect(rig, s, "* BYE resumed keep=0");
}

/* It comes before all that the connection does with locks, and once. */
START_TEST(resume_too_late)
{
    static const char *const firsts[] = {"1 LOCK b", "1 SHOW b", "1 BREAK b",
        "1 WATCH b", "HELLO resume=00000000000000000000000000000000 gen=2"};

    for (unsigned i = 0; i < 2 * sizeof(firsts) / sizeof(firsts[0]); i++) {
        struct rig *rig = rig_new();
        unsigned s = holding_session(rig);
        unsigned t = rig_open(rig);
        if (i % 2)
            rig_event(rig, s, CORE_DROP);
        rig_say(rig, t, firsts[i / 2]);
        while (rig_line(rig, t)[0] != '\0')
            ;
        resume(rig, s, t, 7, "", "- ERR CONFLICT retry=0");
        if (i / 2 == 0) {
            rig_granted(rig, rig_op(rig, OP_ACQUIRE), 6);
            rig_expect(rig, t, "1 OK fence=6 ttl_ms=~ count=1");
            resume(rig, s, t, 7, "", "- ERR CONFLICT retry=0");
        }
        /* Nothing was taken over: another connection may. */
        rig_silent(rig, s);
        unsigned u = rig_open(rig);
        resume(rig, s, u, 2, "", resumed);
        rig_end(rig);
    }
    struct rig *rig = rig_new();
    unsigned s = rig_open_kept(rig);
    resume(rig, s, s, 2, "", "- ERR CONFLICT retry=0");
    rig_end(rig);
}

END_TEST

/* Outstanding requests of the last connection are answered before its BYE. */
RIG_TEST(resumed_in_the_midst, rig_new())
{
    unsigned s = holding_session(rig);
    unsigned t = rig_open(rig);

    rig_wait(rig, s, "2 LOCK b");
    rig_say(rig, s, "3 SHOW c");
    rig_say(rig, s, "4 UNLOCK a");
    resume(rig, s, t, 2, "", resumed);
    rig_expect(rig, s, "2 ERR CANCELLED retry=1");
    rig_expect(rig, s, "3 ERR UNAVAILABLE retry=1");
    rig_expect(rig, s, "4 ERR INDOUBT retry=1");
    rig_expect(rig, s, "* BYE resumed keep=0");
    rig_silent(rig, t);
}

/* News that a ticket was taken over elsewhere, by that generation. */
static void
moved(struct rig *rig, uint64_t request, uint32_t generation, size_t len)
{
    char news[20] = "M";

    memcpy(news + 1, &request, 8);
    memcpy(news + 9, &generation, 4);
    rig_news(rig, news, len);
}

/* The lock may be with a broker that is gone. The question after that time is
 * for a ticket that stands here, and for none that has moved. */
RIG_TEST(moved_and_asked_for_the_next, rig_new())
{
    unsigned s = rig_open_kept(rig);
    unsigned t = rig_open(rig);
    unsigned u = rig_open(rig);

    rig_lock(rig, u, "1 LOCK a", 5);
    rig_say(rig, s, "1 LOCK a");
    uint64_t request = rig_op(rig, OP_ACQUIRE)->request;
    rig_queued(rig, rig_op(rig, OP_ACQUIRE));
    rig_wait(rig, t, "1 LOCK a");
    rig_event(rig, s, CORE_DROP);
    moved(rig, request, 2, 13);
    rig_say(rig, u, "2 UNLOCK a");
    rig_finish(rig, rig_op(rig, OP_RELEASE),
        (struct op_result){.status = OP_OK, .handed = true});
    rig_pass(rig, CORE_EXPIRY_MS + 55);
    ck_assert_uint_ne(rig_op(rig, OP_RENEW)->request, request);
}

/* Nobody is at the other end any more: it waits for nothing new. */
RIG_TEST(moved_elsewhere, rig_new())
{
    unsigned s = rig_open_kept(rig);
    unsigned t = rig_open(rig);

    rig_say(rig, s, "1 LOCK a");
    struct op *op = rig_op(rig, OP_ACQUIRE);
    uint64_t request = op->request;
    rig_queued(rig, op);
    rig_say(rig, t, "1 LOCK a");
    op = rig_op(rig, OP_ACQUIRE);
    uint64_t other = op->request;
    rig_queued(rig, op);
    /* A HELLO without sense, of an older generation, or for no kept session
     * changes nothing. */
    moved(rig, request, 2, 12);
    moved(rig, request, 2, 14);
    moved(rig, request, 1, 13);
    moved(rig, UINT64_MAX, 2, 13);
    moved(rig, other, 2, 13);
    rig_silent(rig, s);
    rig_silent(rig, t);
    moved(rig, request, 2, 13);
    rig_expect(rig, s, "1 ERR CANCELLED retry=1");
    rig_expect(rig, s, "* BYE resumed keep=0");
    ck_assert_uint_eq(rig_count(rig, COUNTER_sessions_kept), 1);
    moved(rig, request, 3, 13);
    rig_no_op(rig);
    /* If its ticket stands there no more, none is put there again. */
    rig_hint(rig, request);
    rig_status(rig, rig_op(rig, OP_RENEW), OP_GONE);
    rig_no_op(rig);
    rig_silent(rig, t);
}

/* After a loss of data, neither a wait nor a hold is put there again, with or
 * without a connection. It may have been given back since. */
RIG_TEST(moved_elsewhere_and_lost, rig_new())
{
    unsigned s = rig_open_kept(rig);
    bool holds = (_i & 1) != 0;
    bool away = (_i & 2) != 0;

    rig_say(rig, s, "1 LOCK a");
    struct op *op = rig_op(rig, OP_ACQUIRE);
    uint64_t request = op->request;
    if (holds) {
        rig_granted(rig, op, 5);
        rig_expect(rig, s, "1 OK fence=5 ttl_ms=~ count=1");
    } else {
        rig_queued(rig, op);
    }
    if (away)
        rig_event(rig, s, CORE_DROP);
    moved(rig, request, 2, 13);
    if (holds) { /* it may have been given back there */
        struct core_event event = {.kind = CORE_CHANGED};
        rig_step(rig, &event);
        rig_pass(rig, 10000);
    } else {
        rig_hint(rig, request);
        rig_status(rig, rig_op(rig, OP_RENEW), OP_MISSING);
    }
    rig_no_op(rig);
}

static unsigned
ops_of_kind(const struct rig *rig, enum op_kind kind)
{
    unsigned count = 0;

    for (uint32_t i = 0; i < rig->op_count; i++)
        count += rig->ops[i]->kind == kind;
    return count;
}

/* After a change of Redis' history all holds are shown, renewed or not. Holds
 * that a client may come back for are shown at once. */
RIG_TEST(shown_after_a_change, rig_new())
{
    unsigned s = rig_open_kept(rig);
    struct core_event event = {.kind = CORE_CHANGED};

    rig_lock(rig, s, "1 LOCK a lease=2s", 5);
    rig_lock(rig, s, "2 LOCK b", 6);
    rig_pass(rig, 100);
    rig_no_op(rig);
    if (_i == 1)
        rig_event(rig, s, CORE_DROP);
    rig_step(rig, &event);
    rig_pass(rig, _i == 1 ? 1 : 2000);
    ck_assert_uint_eq(ops_of_kind(rig, OP_RENEW), 2);
    for (int i = 0; i < 2; i++) {
        struct op *op = rig_op(rig, OP_RENEW);
        ck_assert(op->holds);
        rig_finish(rig, op,
            (struct op_result){.status = OP_OK,
                .fence = op->fence,
                .ttl_ms = 1500,
                .hold_ms = op->fence == 5 ? 1500 : 0});
    }
}

/* Holds that are not claimed within keep= are given back. Claimed holds are
 * not. */
SESSION_TEST(not_claimed_in_time)
{
    unsigned t = rig_open(rig);

    rig_say(rig, s, "HELLO keep=4s");
    (void)rig_line(rig, s);
    rig_lock(rig, s, "1 LOCK a", 5);
    rig_lock(rig, s, "2 LOCK b", 6);
    rig_wait(rig, s, "3 LOCK c");
    rig_event(rig, s, CORE_DROP);
    rig_pass(rig, 3000);
    resume(rig, s, t, 2, " keep=4s",
        "- OK session=~ proto=1 server=~ keep_ms=4000 gen=~");
    rig_say(rig, t, "1 CLAIM a fence=5");
    rig_granted(rig, rig_op(rig, OP_RENEW), 5);
    rig_expect(rig, t, "1 OK fence=5 ttl_ms=~ count=1");
    rig_pass(rig, 3900);
    ck_assert_uint_eq(ops_of_kind(rig, OP_RELEASE), 0);
    rig_pass(rig, 200);
    ck_assert_uint_eq(ops_of_kind(rig, OP_RELEASE), 2);
    for (uint32_t i = 0; i < rig->op_count; i++)
        if (rig->ops[i]->kind == OP_RELEASE)
            ck_assert_int_eq(
                rig->ops[i]->unclean, rig->ops[i]->name.at[0] == 'b');
    rig_silent(rig, t);
    rig_ask(rig, t, "2 HELD", "2 ITEM name=a fence=5 ttl_ms=~ count=1");
}

/* A CLAIM that is under way then is waited for. */
RIG_TEST(claimed_at_the_last_moment, rig_new())
{
    unsigned t = take_over(rig, holding_session(rig), 2);

    rig_pass(rig, 8900);
    rig_say(rig, t, "1 CLAIM a fence=5");
    struct op *op = rig_op(rig, OP_RENEW);
    rig_pass(rig, 1200);
    ck_assert_uint_eq(ops_of_kind(rig, OP_RELEASE), 0);
    rig_granted(rig, op, 5);
    rig_expect(rig, t, "1 OK fence=5 ttl_ms=~ count=1");
    rig_pass(rig, 5000);
    ck_assert_uint_eq(ops_of_kind(rig, OP_RELEASE), 0);
}

/* How long a client that is cut off may count on it: keep= comes on top of the
 * silence after which the broker knows. */
RIG_TEST(ttl_of_the_kept, rig_new())
{
    unsigned s = rig_open_tcp(rig);

    rig_say(rig, s, "HELLO keep=5s");
    (void)rig_line(rig, s);
    rig_say(rig, s, "1 LOCK a");
    rig_granted(rig, rig_op(rig, OP_ACQUIRE), 5);
    rig_expect(rig, s, "1 OK fence=5 ttl_ms=5000 count=1");
    rig_say(rig, s, "HELLO heartbeat=1s");
    (void)rig_line(rig, s);
    rig_ask(rig, s, "2 PING", "2 OK ttl_ms=5000");
}

/* A CLAIM says which hold, and how often; and it may be put again. */
RIG_TEST(claims_of_other_fences, rig_new())
{
    unsigned t = take_over(rig, holding_session(rig), 3);

    /* The second connection, at another broker, has had it anew. */
    rig_say(rig, t, "2 CLAIM a fence=9 count=2");
    struct op *op = rig_op(rig, OP_RENEW);
    ck_assert_uint_eq(op->fence, 9);
    ck_assert(op->moves && op->generation == 3);
    rig_finish(rig, op,
        (struct op_result){.status = OP_OK,
            .fence = 9,
            .ttl_ms = RIG_LEASE_MS,
            .ask = {.permits = 1}});
    rig_expect(rig, t, "2 OK fence=9 ttl_ms=~ count=2");
    rig_ask(
        rig, t, "3 CLAIM a fence=9 count=2", "3 OK fence=9 ttl_ms=~ count=2");
    rig_ask(rig, t, "4 CLAIM a fence=10", "4 ERR LOST retry=0");
    rig_ask(rig, t, "5 CLAIM a fence=5", "5 ERR LOST retry=0");
    rig_no_op(rig);
    rig_ask(rig, t, "6 UNLOCK a", "6 OK count=1");
}

/* An answer to a question of the last connection is no answer to this one. */
RIG_TEST(old_answer_to_a_wait, rig_new())
{
    unsigned s = rig_open_kept(rig);
    unsigned t = rig_open(rig);

    rig_say(rig, s, "1 LOCK a");
    uint64_t request = rig_op(rig, OP_ACQUIRE)->request;
    rig_queued(rig, rig_op(rig, OP_ACQUIRE));
    rig_hint(rig, request);
    struct op *old = rig_op(rig, OP_RENEW);
    rig_event(rig, s, CORE_DROP);
    resume(rig, s, t, 2, "", resumed);
    rig_say(rig, t, "1 LOCK a mode=shared");
    ck_assert_uint_eq(rig->op_count, 2);
    struct op *op = rig->ops[1];
    ck_assert(op->kind == OP_RENEW && op->moves && op->generation == 2);
    rig_granted(rig, old, 7);
    rig_silent(rig, t);
    /* And what stands there is another broker's, of another kind. */
    finish_waiting(rig, op, true);
    rig_granted(rig, rig_op(rig, OP_RENEW), 8);
    rig_expect(rig, t, "1 OK fence=8 ttl_ms=~ count=1");
    rig_no_op(rig);
    rig_ask(
        rig, t, "2 HELD", "2 ITEM name=a fence=8 ttl_ms=~ count=1 mode=shared");
}

/* If no record names the waiters, an absent waiter is asked after as such. A
 * hold that its session has got elsewhere since is no grant to it. */
RIG_TEST(wait_that_stands_here, rig_create())
{
    bool claims = _i;
    rig->settings.queues_here = true;
    rig_start(rig);
    unsigned s = rig_open_kept(rig);
    unsigned t = rig_open(rig);
    rig_say(rig, s, "1 LOCK a");
    uint64_t request = rig_op(rig, OP_ACQUIRE)->request;
    rig_queued(rig, rig_op(rig, OP_ACQUIRE));
    rig_event(rig, s, CORE_DROP);
    rig_hint(rig, request);
    struct op *op = rig_op(rig, OP_RENEW);
    ck_assert(op->idle && !op->moves);
    finish_waiting(rig, op, false);
    resume(rig, s, t, 2, "", resumed);
    rig_say(rig, t, claims ? "1 CLAIM a fence=7" : "1 LOCK a");
    if (claims) {
        rig_status(rig, rig_op(rig, OP_RELEASE), OP_OK);
        op = rig_op(rig, OP_RENEW);
        ck_assert_uint_eq(op->fence, 7);
    } else {
        op = rig_op(rig, OP_RENEW);
        ck_assert_uint_eq(op->fence, 0);
    }
    ck_assert(op->moves && !op->idle);
    rig_finish(rig, op,
        (struct op_result){.status = OP_OK,
            .fence = 7,
            .ttl_ms = RIG_LEASE_MS,
            .ask = {.permits = 1}});
    rig_expect(rig, t, "1 OK fence=7 ttl_ms=~ count=1");
}

/* The connection went while its LOCK was asked for, and the answer is lost too:
 * what became of it is asked, for whoever comes back for its place. */
START_TEST(lost_answer_to_nobody)
{
    for (unsigned how = 0; how < 4; how++) {
        struct rig *rig = rig_new();
        unsigned s = rig_open_kept(rig);
        unsigned t = rig_open(rig);

        rig_say(rig, s, "1 LOCK a");
        rig_event(rig, s, CORE_DROP);
        rig_status(rig, rig_op(rig, OP_ACQUIRE), OP_UNKNOWN);
        struct op *op = rig_op(rig, OP_RENEW);
        ck_assert(op->moves && op->generation == 1 && op->fence == 0);
        if (how == 0) {
            finish_waiting(rig, op, false);
            ck_assert_uint_eq(rig_count(rig, COUNTER_waits_begun), 1);
            resume(rig, s, t, 2, "", resumed);
            rig_say(rig, t, "1 LOCK a");
            op = rig_op(rig, OP_RENEW);
            ck_assert(op->moves && op->generation == 2 && op->arrival == 9);
            rig_end(rig);
            continue;
        }
        if (how == 1)
            rig_granted(rig, op, 5);
        if (how == 2)
            rig_status(rig, op, OP_GONE);
        if (how == 3)
            rig_pass(rig, 9900); /* nor is that answered while it is kept */
        if (how == 1) {
            rig_no_op(rig);
            resume(rig, s, t, 2, "", resumed);
            rig_say(rig, t, "1 LOCK a");
            op = rig_op(rig, OP_RENEW);
            ck_assert(op->moves && op->fence == 5);
        } else if (how == 2) {
            ck_assert(rig_op(rig, OP_RELEASE)->retry);
        } else {
            ck_assert_uint_eq(rig->op_count, 1);
            rig_pass(rig, 200);
            ck_assert_int_eq(rig->ops[rig->op_count - 1]->kind, OP_RELEASE);
        }
        rig_end(rig);
    }
}

END_TEST

/* wait=0 for what an earlier connection waits for at another broker. */
RIG_TEST(impatient_in_its_place, rig_new())
{
    unsigned s = foreign_session(rig, false);

    rig_say(rig, s, "1 LOCK a wait=0");
    ck_assert(rig_op(rig, OP_ACQUIRE)->moves);
    rig_queued(rig, rig_op(rig, OP_ACQUIRE));
    rig_expect(rig, s, "1 ERR BUSY retry=1");
    (void)rig_op(rig, OP_RELEASE);
}

/* It is told where it stands, and who is in its way, as it was at first. */
RIG_TEST(wait_put_again_with_progress, rig_new())
{
    unsigned t = take_over(rig, waiting_session(rig), 2);

    rig_say(rig, t, "1 LOCK a progress=1");
    ck_assert(!rig_op(rig, OP_RENEW)->tell); /* it asks what stands there */
    rig_finish(rig, rig_op(rig, OP_RENEW),
        (struct op_result){.status = OP_WAITING, .ask = {.permits = 1}});
    struct op *op = rig_op(rig, OP_RENEW);
    ck_assert(op->tell);
    uint64_t request = op->request;
    rig_finish(rig, op,
        (struct op_result){.status = OP_WAITING,
            .ahead = 2,
            .told = true,
            .holder_age_ms = 7,
            .holder_client = TEXT("shop")});
    rig_expect(rig, t, "1 QUEUED position=2 holder=shop age_ms=7");
    rig_hint(rig, request);
    ck_assert(!rig_op(rig, OP_RENEW)->tell);
}

/* It is put again for another kind of lock: the place is given up first. */
RIG_TEST(wait_put_again_otherwise, rig_new())
{
    unsigned t = take_over(rig, waiting_session(rig), 2);

    rig_say(rig, t, "1 LOCK a mode=shared");
    /* Perhaps it was its turn meanwhile: that is asked first. */
    rig_status(rig, rig_op(rig, OP_RENEW), OP_WAITING);
    rig_status(rig, rig_op(rig, OP_RELEASE), OP_OK);
    struct op *op = rig_op(rig, OP_ACQUIRE);
    ck_assert(op->ask.mode == MODE_SHARED);
    rig_granted(rig, op, 7);
    rig_expect(rig, t, "1 OK fence=7 ttl_ms=~ count=1");
}

/* The first LOCK of what an earlier connection had says how long it is had. */
RIG_TEST(put_again_with_lease, rig_new())
{
    unsigned t = take_over(rig, holding_session(rig), 2);

    rig_say(rig, t, "1 LOCK a lease=900");
    rig_granted(rig, rig_op(rig, OP_RENEW), 5);
    rig_expect(rig, t, "1 OK fence=5 ttl_ms=889 count=1");
    struct op *op = rig_op(rig, OP_RENEW);
    ck_assert(op->sets_end);
    rig_granted(rig, op, 5);
    rig_say(rig, t, "2 RENEW a lease=500");
    rig_granted(rig, rig_op(rig, OP_RENEW), 5);
    rig_expect(rig, t, "2 OK ttl_ms=~");
    rig_pass(rig, 600);
    rig_expect(rig, t, "* LOST a fence=5 reason=expired");
}

/* The answer to a CLAIM took long. A client that does not hear it may believe
 * the earlier broker until the record's end. Until then the hold is not
 * released. */
RIG_TEST(claimed_hold_lapses, rig_new())
{
    unsigned s = slow_claim(rig, true, 600);

    rig_expect(rig, s, "1 OK fence=5 ttl_ms=492 count=1");
    rig_pass(rig, 493);
    rig_expect(rig, s, "* JEOPARDY a ttl_ms=~");
    rig_expect(rig, s, "* LOST a fence=5 reason=backend");
    struct op *renewal = rig_op(rig, OP_RENEW);
    ck_assert_uint_eq(rig->op_count, 1);
    rig_pass(rig, 106);
    ck_assert_uint_eq(rig->op_count, 1);
    rig_status(rig, renewal, OP_UNKNOWN);
    rig_no_op(rig);
    rig_pass(rig, 2);
    ck_assert(rig_op(rig, OP_RELEASE)->unclean);
}

/* The lease= that this broker knows of is over; another one prolonged it. */
RIG_TEST(claimed_after_another_broker, rig_new())
{
    unsigned s = rig_open_kept(rig);
    unsigned t = rig_open(rig);

    rig_lock(rig, s, "1 LOCK a lease=500", 5);
    rig_event(rig, s, CORE_DROP);
    rig_pass(rig, 600);
    struct op *op = rig_op(rig, OP_RELEASE);
    resume(rig, s, t, 3, "", resumed);
    rig_say(rig, t, "1 CLAIM a fence=5");
    rig_silent(rig, t);
    rig_status(rig, op, OP_GONE);
    ck_assert(rig_op(rig, OP_RENEW)->moves);
    rig_granted(rig, rig_op(rig, OP_RENEW), 5);
    rig_expect(rig, t, "1 OK fence=5 ttl_ms=~ count=1");
}

/* DRAIN: nothing is released, all is renewed once more and forgotten. */
RIG_TEST(drained, rig_new())
{
    unsigned s = holding_session(rig);
    unsigned t = rig_open(rig);

    rig_wait(rig, s, "2 LOCK b");
    rig_ask(rig, t, "1 DRAIN", "1 OK");
    rig_pass(rig, 10);
    rig_expect(rig, s, "* DRAIN grace_ms=10000");
    rig_expect(rig, s, "2 ERR DRAINING retry=1");
    rig_ask(rig, s, "3 LOCK c", "3 ERR DRAINING retry=1");
    rig_event(rig, s, CORE_DROP);
    for (uint32_t i = 0; i < rig->op_count; i++)
        ck_assert_int_eq(rig->ops[i]->kind, OP_RENEW);
    ck_assert_uint_eq(rig->op_count, 2);
    ck_assert(rig->ops[0]->fence > 0 && !rig->ops[0]->idle);
    ck_assert(rig->ops[1]->fence == 0 && rig->ops[1]->idle);
}

/* Tickets of another broker are not shown on the way out. */
RIG_TEST(drained_after_it_was_taken, rig_new())
{
    unsigned s = rig_open_kept(rig);
    unsigned t = rig_open(rig);

    rig_say(rig, s, "1 LOCK a");
    struct op *op = rig_op(rig, OP_ACQUIRE);
    uint64_t request = op->request;
    rig_granted(rig, op, 5);
    rig_expect(rig, s, "1 OK fence=5 ttl_ms=~ count=1");
    rig_event(rig, s, CORE_DROP);
    if (_i == 1)
        moved(rig, request, 2, 13);
    rig_ask(rig, t, "1 DRAIN", "1 OK");
    rig_pass(rig, 10);
    ck_assert_uint_eq(ops_of_kind(rig, OP_RENEW), _i == 1 ? 0 : 1);
}

/* The broker goes while it owes Redis what the client has changed of its hold:
 * the last renewal tells it. */
RIG_TEST(drained_with_changes, rig_new())
{
    static const struct {
        const char *lock, *change;
    } rows[] = {{"1 LOCK a", "2 NOTE a note=new"},
        {"1 LOCK a", "2 LOCK a mode=shared"},
        {"1 LOCK a limit=9 permits=5", "2 UNLOCK a permits=2"}};

    unsigned s = rig_open_kept(rig);

    rig_lock(rig, s, rows[_i].lock, 5);
    rig_say(rig, s, rows[_i].change);
    rig_status(rig, rig_op(rig, OP_RENEW), OP_UNKNOWN);
    rig_expect(rig, s, "2 ERR INDOUBT retry=1");
    rig_stop(rig);
    rig_event(rig, s, CORE_DROP);
    struct op *op = rig_op(rig, OP_RENEW);
    ck_assert(op->notes == (_i == 0) && op->shares == (_i == 1));
    ck_assert_uint_eq(op->keeps, _i == 2 ? 3 : 0);
    ck_assert(op->holds &&
              text_equal(op->words[2], _i == 0 ? TEXT("new") : TEXT("")));
}

/* The broker goes while it is asked: what is granted then is not given back,
 * since the LOCK may have been put again elsewhere. */
RIG_TEST(drained_while_asking, rig_new())
{
    bool keeps = _i;
    unsigned s = keeps ? rig_open_kept(rig) : rig_open(rig);
    unsigned t = rig_open(rig);
    rig_lock(rig, t, "1 LOCK b", 5);
    rig_say(rig, s, "1 LOCK a");
    rig_stop(rig);
    rig_event(rig, s, CORE_DROP);
    rig_granted(rig, rig_op(rig, OP_ACQUIRE), 6);
    ck_assert_uint_eq(ops_of_kind(rig, OP_RELEASE), keeps ? 0 : 1);
}

/* Redis has given away what one of two has given back elsewhere: that is not
 * the one who has come back for it. */
RIG_TEST(claimed_beside_another_that_is_away, rig_new())
{
    unsigned first = rig_open_kept(rig);
    unsigned second = rig_open_kept(rig);
    unsigned third = rig_open(rig);

    rig_lock(rig, first, "1 LOCK s limit=3 permits=2", 5);
    rig_lock(rig, second, "1 LOCK s limit=3 permits=1", 6);
    rig_say(rig, third, "1 LOCK s limit=3 permits=1");
    struct op *acquire = rig_op(rig, OP_ACQUIRE);
    rig_event(rig, second, CORE_DROP);
    unsigned back = take_over(rig, first, 2);
    rig_say(rig, back, "2 CLAIM s fence=5");
    rig_granted(rig, acquire, 7);
    rig_expect(rig, third, "1 OK fence=7 ttl_ms=~ count=1");
    rig_silent(rig, back);
    ck_assert_uint_eq(rig_count(rig, COUNTER_lost_gone), 1);
    rig_finish(rig, rig_op(rig, OP_RENEW),
        (struct op_result){.status = OP_OK,
            .fence = 5,
            .ttl_ms = RIG_LEASE_MS,
            .ask = {.permits = 2, .permits_max = 3}});
    rig_expect(rig, back, "2 OK fence=5 ttl_ms=~ count=1");
}

Suite *
core_move_suite(void)
{
    Suite *suite = suite_create("core_move");
    TCase *tests = tcase_create("core_move");

    tcase_add_loop_test(tests, drained_with_changes, 0, 3);
    tcase_add_test(tests, keep_over);
    tcase_add_loop_test(tests, not_kept, 0, 3);
    tcase_add_test(tests, killed_away);
    tcase_add_test(tests, claimed);
    tcase_add_test(tests, claimed_as_often_as_can_be);
    tcase_add_test(tests, claimed_beside_a_later_one);
    tcase_add_test(tests, shared_elsewhere);
    tcase_add_test(tests, held_as_another_kind);
    tcase_add_loop_test(tests, claim_answers, 0, ROWS(claim_answers_rows));
    tcase_add_test(tests, claimed_of_a_semaphore);
    tcase_add_test(tests, claimed_too_late);
    tcase_add_loop_test(tests, claimed_with_its_note, 0, 3);
    tcase_add_test(tests, moved_and_asked_for_the_next);
    tcase_add_test(tests, moved_elsewhere);
    tcase_add_loop_test(tests, moved_elsewhere_and_lost, 0, 4);
    tcase_add_test(tests, resume_refused);
    tcase_add_test(tests, resume_malformed);
    tcase_add_test(tests, resume_too_late);
    tcase_add_test(tests, resumed_in_the_midst);
    tcase_add_loop_test(tests, shown_after_a_change, 0, 2);
    tcase_add_test(tests, not_claimed_in_time);
    tcase_add_test(tests, claimed_at_the_last_moment);
    tcase_add_test(tests, ttl_of_the_kept);
    tcase_add_test(tests, claims_of_other_fences);
    tcase_add_test(tests, old_answer_to_a_wait);
    tcase_add_test(tests, lost_answer_to_nobody);
    tcase_add_test(tests, impatient_in_its_place);
    tcase_add_loop_test(tests, wait_that_stands_here, 0, 2);
    tcase_add_test(tests, wait_put_again_with_progress);
    tcase_add_test(tests, wait_put_again_otherwise);
    tcase_add_test(tests, put_again_with_lease);
    tcase_add_test(tests, claimed_hold_lapses);
    tcase_add_test(tests, claimed_after_another_broker);
    tcase_add_test(tests, claimed_beside_another_that_is_away);
    tcase_add_test(tests, drained);
    tcase_add_loop_test(tests, drained_after_it_was_taken, 0, 2);
    tcase_add_loop_test(tests, drained_while_asking, 0, 2);
    suite_add_tcase(suite, tests);
    return suite;
}

/*
 * Tests of daemon/core/feature/deadlock.c: circles of waits within one broker
 * and over several, and what must not be taken for one.
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

/* --- a search, and what ends meanwhile ------------------------------------ */

/* How far the search of y, which waits last, has come. */
enum stage {
    STAGE_BEFORE,   /* it has not begun */
    STAGE_SEARCHES, /* first round */
    STAGE_FOUND,    /* second round: nothing is sure yet */
    STAGE_Y_SURE,   /* what y waits for has been seen twice */
    STAGE_SURE,     /* and what x waits for */
    STAGE_COUNT,
};

enum ending {
    X_CANCELS,
    X_TIMES_OUT,
    X_DROPS,
    X_UNLOCKS,
    X_UNLOCKS_FOR_Z, /* which stands before y */
    Y_CANCELS,
    Y_TIMES_OUT,
    Y_UNLOCKS,
    ENDING_COUNT,
};

/* Of one run. */
static struct search {
    struct at x; /* holds a, and waits for b */
    struct at y; /* holds b, and waits for a */
    enum ending ending;
    enum stage stage;
    bool ended;
    enum stage ended_at;
} search;

static bool
is_inspection(const struct net_job *job)
{
    return job->kind == NET_OP && job->asked.kind == OP_INSPECT &&
           job->asked.reader == READER_DEADLOCK;
}

static bool
search_unlocks(void)
{
    return search.ending == X_UNLOCKS || search.ending == X_UNLOCKS_FOR_Z ||
           search.ending == Y_UNLOCKS;
}

static bool
has_ended(struct net *net)
{
    bool x = search.ending <= X_UNLOCKS_FOR_Z;
    struct at at = x ? search.x : search.y;
    const struct rig_session *s = &net->rigs[at.core]->sessions[at.session];
    uint64_t newest;

    if (search_unlocks()) {
        (void)net_holders(net, x ? 0 : 1, &newest);
        return newest != 1; /* the first hold of that lock */
    }
    return s->finals > 1;
}

/* After each step of a core: what is on its way says how far it is. */
static void
search_heard(struct net *net, unsigned core)
{
    unsigned stage = search.stage;

    (void)core;
    for (unsigned i = 0; i < net->job_count; i++) {
        const struct net_job *job = net->jobs[i];
        unsigned at = STAGE_BEFORE;
        if (is_inspection(job))
            at = STAGE_SEARCHES;
        else if (job->news != NULL && job->news[0] == 'V')
            at = STAGE_FOUND + (unsigned)job->news[2];
        else if (job->news != NULL && job->news[0] == 'K')
            at = STAGE_SURE;
        stage = at > stage ? at : stage;
    }
    search.stage = (enum stage)stage;
    if (!search.ended && has_ended(net)) {
        search.ended = true;
        search.ended_at = search.stage;
    }
}

/* x has waited for long when y begins to: it is y's search that finds. */
static struct net *
search_begin(unsigned seed, enum ending ending, unsigned ms)
{
    struct net *net = calloc(1, sizeof(*net));
    char line[40] = "2 LOCK b";

    rig_must(net != NULL);
    random_init(&net->random, 7 + seed);
    net->way_us = 20 * MS;
    net_init(net, 2);
    search = (struct search){
        .x = client(net, 0), .y = client(net, 1), .ending = ending};
    say(net, search.x, "1 LOCK a");
    say(net, search.y, "1 LOCK b");
    net_pass(net, 50 * MS);
    expect(net, search.x, "1 OK fence=1 ttl_ms=~ count=1");
    expect(net, search.y, "1 OK fence=1 ttl_ms=~ count=1");
    if (ending == X_TIMES_OUT)
        snprintf(line, sizeof(line), "2 LOCK b wait=%u", 200 + ms);
    say(net, search.x, line);
    if (ending == X_UNLOCKS_FOR_Z)
        say(net, client(net, 0), "1 LOCK a");
    net_pass(net, 200 * MS);
    net->heard = search_heard;
    snprintf(line, sizeof(line), "2 LOCK a");
    if (ending == Y_TIMES_OUT)
        snprintf(line, sizeof(line), "2 LOCK a wait=%u", ms + 1);
    say(net, search.y, line);
    return net;
}

static void
search_end_wait(struct net *net)
{
    static const char *const lines[ENDING_COUNT] = {[X_CANCELS] = "3 CANCEL 2",
        [X_UNLOCKS] = "3 UNLOCK a",
        [X_UNLOCKS_FOR_Z] = "3 UNLOCK a",
        [Y_CANCELS] = "3 CANCEL 2",
        [Y_UNLOCKS] = "3 UNLOCK b"};

    if (lines[search.ending] != NULL) {
        say(net, search.ending <= X_UNLOCKS_FOR_Z ? search.x : search.y,
            lines[search.ending]);
    } else if (search.ending == X_DROPS) {
        search.ended = true;
        search.ended_at = search.stage;
        net_event(net, search.x.core, search.x.session, CORE_DROP);
    }
}

/* Lets time pass until it has ended in the record too, and notes whether its
 * second look was taken before that. */
static void
search_unlock(struct net *net)
{
    unsigned lock = search.ending == Y_UNLOCKS ? 1 : 0;
    enum stage before = lock == 0 ? STAGE_FOUND : STAGE_Y_SURE;

    for (unsigned us = 0; us < 50 * MS && !search.ended; us += 100) {
        bool looked = search.stage > before;
        net_pass(net, 100);
        for (unsigned i = 0; i < net->job_count; i++)
            if (is_inspection(net->jobs[i]) && net->jobs[i]->executed &&
                net->jobs[i]->lock == lock && search.stage == before)
                looked = true;
        if (has_ended(net)) {
            search.ended = true;
            search.ended_at = looked ? STAGE_SURE : search.stage;
        }
    }
}

static bool
search_tells(struct net *net)
{
    bool told = false;
    const char *line;

    while ((line = heard(net, search.x))[0] != '\0')
        ck_assert_ptr_null(strstr(line, "DEADLOCK"));
    while ((line = heard(net, search.y))[0] != '\0')
        told = told || strstr(line, "DEADLOCK") != NULL;
    ck_assert_uint_eq(rig_count(net->rigs[0], COUNTER_deadlocks), 0);
    ck_assert_uint_eq(rig_count(net->rigs[1], COUNTER_deadlocks), told);
    return told;
}

/* One run in which it ends after so long; false: y was told before that. */
static bool
search_run(unsigned seed, enum ending ending, unsigned ms,
    unsigned ended_at[STAGE_COUNT])
{
    struct net *net = search_begin(seed, ending, ms);

    net_pass(net, ms * MS);
    const struct rig_session *y = &net->rigs[1]->sessions[search.y.session];
    bool before = y->finals > 1 && ending != Y_TIMES_OUT;
    if (!before)
        search_end_wait(net);
    if (!before && search_unlocks())
        search_unlock(net);
    net_pass(net, 1500 * MS);
    bool tells = search_tells(net);
    if (ending == Y_TIMES_OUT)
        before = tells;
    else if (tells && !before)
        ck_assert_msg(search.ended_at == STAGE_SURE && ending != Y_CANCELS,
            "seed %u, %u ms: told at stage %d", seed, ms, (int)search.ended_at);
    ck_assert(tells || !before);
    if (!before)
        ended_at[search.ended_at]++;
    net_free(net);
    return !before;
}

/*
 * A wait or a hold of the circle ends at any moment: while it is not looked
 * for, while it is, when it was found and not confirmed. Nobody is told of it
 * unless what ends has been seen twice before that.
 */
START_TEST(ends_meanwhile)
{
    enum ending ending = (enum ending)_i;
    unsigned ended_at[STAGE_COUNT] = {0};
    bool early = ending == X_UNLOCKS || ending == X_UNLOCKS_FOR_Z;
    int last = early ? STAGE_FOUND : STAGE_Y_SURE;

    for (unsigned seed = 0; seed < 5; seed++) {
        unsigned ms = 0;
        while (search_run(seed, ending, ms, ended_at))
            ck_assert_uint_lt(++ms, 600); /* it is found before that */
    }
    for (int stage = 0; stage <= last; stage++)
        ck_assert_msg(ended_at[stage] > 0, "never ended at stage %d", stage);
}

END_TEST

/* Redis tells of a hold, or of a wait, that was given back: nobody is kept
 * waiting by what its owner does not have. */
START_TEST(given_back)
{
    for (int i = 0; i < 4; i++) {
        struct net *net = net_new(2);
        bool waits = i % 2 == 1;
        struct at x = client(net, 0);
        struct at y = client(net, (unsigned)i / 2);
        struct at z = client(net, 0);
        if (waits)
            have(net, z, "1 LOCK a mode=shared");
        say(net, x, "1 LOCK a");
        net_pass(net, 10 * MS);
        struct net_record *record = &net->records[0];
        struct net_entry old = record->queue[waits];
        ck_assert_uint_eq(record->count, 1 + (unsigned)waits);
        say(net, x, waits ? "2 CANCEL 1" : "2 UNLOCK a");
        net_pass(net, 10 * MS);
        while (heard(net, x)[0] != '\0')
            continue;
        ck_assert_uint_eq(record->count, waits);
        record->queue[record->count++] = old;
        have(net, x, "3 LOCK c");
        have(net, y, "1 LOCK b");
        say(net, x, "4 LOCK b");
        net_pass(net, 200 * MS);
        say(net, y, waits ? "2 LOCK a mode=shared" : "2 LOCK a");
        net_pass(net, 3000 * MS);
        ck_assert_str_eq(heard(net, x), "");
        ck_assert_str_eq(heard(net, y), "");
        ck_assert_uint_eq(net->records[0].count, 2 + (unsigned)waits);
        net_free(net);
    }
}

END_TEST

/* A release that is not there yet: whoever sends it is not in the way. */
START_TEST(giving_back)
{
    struct net *net = net_new(2);
    struct at x = client(net, 0);
    struct at y = client(net, 1);

    have(net, x, "1 LOCK a");
    have(net, y, "1 LOCK b");
    have(net, x, "2 LOCK c");
    say(net, x, "3 UNLOCK a");
    for (unsigned i = 0; i < net->job_count; i++)
        if (net->jobs[i]->kind == NET_OP &&
            net->jobs[i]->asked.kind == OP_RELEASE) {
            net->jobs[i]->fate = FATE_UNSENT;
            net->jobs[i]->answer_us = net->now_us + 4000 * MS;
        }
    say(net, x, "4 LOCK b");
    net_pass(net, 200 * MS);
    say(net, y, "2 LOCK a");
    net_pass(net, 3000 * MS);
    ck_assert_str_eq(heard(net, x), "");
    ck_assert_str_eq(heard(net, y), "");
    net_pass(net, 2000 * MS);
    expect(net, x, "3 OK count=0");
    expect(net, y, "2 OK fence=~ ttl_ms=~ count=1");
    net_free(net);
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

/* Who shares is not in the way of who would share too. */
START_TEST(readers_in_the_queue)
{
    for (int alone = 0; alone < 2; alone++) {
        struct net *net = net_new(1);
        struct at x = client(net, 0);
        struct at y = client(net, 0);
        struct at z = client(net, 0);
        have(net, z, "1 LOCK a");
        have(net, y, "1 LOCK b");
        say(net, x, "1 LOCK a mode=shared");
        say(net, x, "2 LOCK b");
        net_pass(net, 10 * MS);
        say(net, y, alone ? "2 LOCK a" : "2 LOCK a mode=shared");
        net_pass(net, 2000 * MS);
        ck_assert_int_eq(strstr(heard(net, y), "DEADLOCK") != NULL, alone);
        ck_assert_str_eq(heard(net, x), "");
        net_free(net);
    }
}

END_TEST

/* Who shares is kept waiting by who stands between; where the nearest of those
 * is in no circle, so is the next one. */
START_TEST(nearest_does_not_count)
{
    for (unsigned how = 0; how < 4; how++) {
        struct net *net = net_new(2);
        struct at r = client(net, 0);
        struct at x = client(net, how % 2);
        struct at n = client(net, how / 2);
        struct at s = client(net, 0);
        have(net, r, "1 LOCK a mode=shared");
        have(net, s, "1 LOCK b");
        say(net, x, "1 LOCK a");
        net_pass(net, 10 * MS);
        say(net, n, "1 LOCK a deadlock=0");
        net_pass(net, 10 * MS);
        say(net, s, "2 LOCK a mode=shared");
        net_pass(net, 10 * MS);
        say(net, r, "2 LOCK b");
        net_pass(net, 200 * MS);
        expect(net, r, "2 ERR DEADLOCK retry=1 cycle=~");
        net_free(net);
    }
}

END_TEST

/* A circle through a semaphore that comes to be long after its waits. */
START_TEST(later)
{
    struct net *net = net_new(2);
    struct at x = client(net, 0);
    struct at y = client(net, 1);
    struct at z = client(net, 0);

    have(net, x, "1 LOCK a limit=2");
    have(net, z, "1 LOCK a limit=2");
    have(net, y, "1 LOCK b");
    say(net, x, "2 LOCK b");
    say(net, y, "2 LOCK a limit=2 permits=2");
    net_pass(net, 20000 * MS);
    say(net, z, "2 UNLOCK a");
    net_pass(net, 800 * MS);
    unsigned told = strstr(heard(net, x), "2 ERR DEADLOCK") != NULL;
    told += strstr(heard(net, y), "2 ERR DEADLOCK") != NULL;
    ck_assert_uint_eq(told, 1);
    net_free(net);
}

END_TEST

/* They hold nothing, and each stands before the other for what that one wants:
 * when they are granted what they wait for first, none gets the second. */
START_TEST(before_they_hold)
{
    struct net *net = net_new(2);
    struct at x = client(net, 0);
    struct at y = client(net, 1);
    struct at z = client(net, 0);

    have(net, z, "1 LOCK a");
    have(net, z, "1 LOCK b");
    say(net, x, "1 LOCK a");
    say(net, y, "1 LOCK b");
    net_pass(net, 10 * MS);
    say(net, x, "2 LOCK b");
    net_pass(net, 10 * MS);
    say(net, y, "2 LOCK a");
    net_pass(net, 200 * MS);
    expect(net, y, "2 ERR DEADLOCK retry=1 cycle=~");
    say(net, z, "2 UNLOCK a");
    say(net, z, "3 UNLOCK b");
    net_pass(net, 1000 * MS);
    expect(net, x, "1 OK fence=2 ttl_ms=~ count=1");
    expect(net, y, "1 OK fence=2 ttl_ms=~ count=1");
    ck_assert_str_eq(heard(net, x), "");
    ck_assert_str_eq(heard(net, y), "");
    net_free(net);
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
 * may be a circle when its LOCK comes again. */
START_TEST(comes_again)
{
    struct rig *rig = rig_new();
    unsigned s = rig_open(rig);
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
    ck_assert_uint_eq(rig_count(rig, COUNTER_deadlock_looks), 4);
    rig_event(rig, s, CORE_DROP);
    rig_resume(rig, s, t, 2, "");
    (void)rig_line(rig, t);
    rig_say(rig, t, "2 LOCK b");
    rig_finish(rig, rig_op(rig, OP_RENEW),
        (struct op_result){.status = OP_WAITING, .ask = {.permits = 1}});
    rig_queued(rig, rig_op(rig, OP_RENEW));
    rig_pass(rig, 40);
    ck_assert_uint_eq(rig_count(rig, COUNTER_deadlock_looks), 5);
    rig_finish(rig, rig_op(rig, OP_INSPECT), alone);
    rig_pass(rig, 660);
    ck_assert_uint_eq(rig_count(rig, COUNTER_deadlock_looks), 6);
    rig_end(rig);
}

END_TEST

/* Only a wait whose record was read is looked at more rarely. */
START_TEST(not_read)
{
    struct rig *rig = rig_new();
    unsigned s = rig_open(rig);

    rig_lock(rig, s, "1 LOCK a", 4);
    rig_wait(rig, s, "2 LOCK b");
    rig_pass(rig, 40);
    for (unsigned i = 0; i < 8; i++) {
        rig_status(rig, rig_op(rig, OP_INSPECT), OP_UNSENT);
        rig_pass(rig, 661);
    }
    ck_assert_uint_eq(rig_count(rig, COUNTER_deadlock_looks), 9);
    rig_end(rig);
}

END_TEST

/* An ended request of y has left a ticket before x, whose life is over: only
 * where the clock is doubted it is seen, and x waits for nobody who waits. */
START_TEST(over_in_doubt)
{
    struct rig *rig = rig_new();
    unsigned s = rig_open(rig);
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
    rig_end(rig);
}

END_TEST

/* What an ended request has left in front of a holder (clocks were set) hides
 * no circle, and makes none between two who wait. */
START_TEST(left_in_the_queue)
{
    for (int circle = 0; circle < 2; circle++) {
        struct rig *rig = rig_new();
        unsigned s = rig_open(rig);
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
             i < 12 && rig->op_count > 0 && rig->ops[0]->kind == OP_INSPECT;
             i++) {
            struct op *op = rig_op(rig, OP_INSPECT);
            bool a = text_equal(op->name, TEXT("a"));
            rig_finish(rig, op,
                !circle ? (struct op_result){.tickets = queue,
                              .ticket_count = 3,
                              .waiters = 3}
                : a     ? (struct op_result){.tickets = of_a,
                              .ticket_count = 3,
                              .holders = 1,
                              .waiters = 2}
                        : (struct op_result){.tickets = of_b,
                              .ticket_count = 2,
                              .holders = 1,
                              .waiters = 1});
        }
        ck_assert_uint_eq(rig_count(rig, COUNTER_deadlocks), (unsigned)circle);
        rig_end(rig);
    }
}

END_TEST

/* --- messages ------------------------------------------------------------- */

struct circle {
    char bytes[8000];
    size_t len;
};

/* 'K' of a circle, which begins with that wait. */
static struct circle
circle_of(const uint8_t session[16], uint64_t request, const char *const *names,
    unsigned count)
{
    struct circle circle = {.bytes = {'K', (char)count, 0}, .len = 3};

    for (unsigned i = 0; i < count; i++) {
        char *at = circle.bytes + circle.len;
        size_t len = strlen(names[i]);
        if (i == 0) {
            memcpy(at, session, 16);
            memcpy(at + 32, &request, sizeof(request));
        }
        at[56] = (char)len;
        memcpy(at + 57, names[i], len);
        circle.len += 57 + len;
    }
    return circle;
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
START_TEST(wait_is_named)
{
    static const char *const names[] = {"b", "a"};
    struct rig *rig = rig_new();
    unsigned s = rig_open(rig);

    rig_lock(rig, s, "1 LOCK a", 4);
    rig_say(rig, s, "2 LOCK b deadlock=1");
    uint64_t request = rig_op(rig, OP_ACQUIRE)->request;
    rig_queued(rig, rig_op(rig, OP_ACQUIRE));
    const struct circle good =
        circle_of(rig->sessions[s].id, request, names, 2);
    for (size_t len = 0; len <= good.len + 1; len++)
        if (len != good.len)
            rig_news(rig, good.bytes, len);
    for (size_t i = 0; i < 3 + 16 + 8 + 8; i++) {
        struct circle bad = good;
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
    rig_end(rig);
}

END_TEST

/* Its names can be told apart, and a comma at the end says that there are more.
 */
START_TEST(names_of_the_circle)
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
        struct circle circle =
            circle_of(rig->sessions[s].id, request, how == 0 ? odd : many, 4);
        rig_news(rig, circle.bytes, circle.len);
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
    struct net *net = net_new(1);
    struct at x = client(net, 0);
    struct at y = client(net, 0);
    struct rig *rig = net->rigs[0];
    char bytes[3 + RIG_NODE_BYTES + 1 + 2 * RIG_ASKED_BYTES];

    have(net, x, "1 LOCK a");
    have(net, y, "1 LOCK b");
    say(net, x, "2 LOCK b");
    net_pass(net, 10 * MS);
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
            net_pass(net, 5 * MS);
        }
        for (size_t i = 0; i < sound * 2; i++) {
            char one[sizeof(bytes)];
            memcpy(one, bytes, sizeof(one));
            one[i / 2] = (char)(i % 2 ? 0xff : one[i / 2] + 1);
            rig_news(rig, one, sound);
            net_pass(net, 5 * MS);
        }
    }
    ck_assert_str_eq(heard(net, x), "");
    ck_assert_str_eq(heard(net, y), "");
    net_free(net);
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
    tcase_add_loop_test(tests, ends_meanwhile, 0, ENDING_COUNT);
    tcase_add_test(tests, given_back);
    tcase_add_test(tests, giving_back);
    tcase_add_test(tests, semaphores);
    tcase_add_test(tests, readers_in_the_queue);
    tcase_add_test(tests, before_they_hold);
    tcase_add_test(tests, nearest_does_not_count);
    tcase_add_test(tests, later);
    tcase_add_test(tests, in_between);
    tcase_add_test(tests, not_read);
    tcase_add_test(tests, comes_again);
    tcase_add_test(tests, over_in_doubt);
    tcase_add_test(tests, left_in_the_queue);
    tcase_add_test(tests, second_round);
    tcase_add_test(tests, wait_is_named);
    tcase_add_test(tests, names_of_the_circle);
    tcase_add_test(tests, odd_messages);
    suite_add_tcase(suite, tests);
    return suite;
}

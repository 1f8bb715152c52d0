/*
 * Tests of daemon/core/model/part.c: LOCK with tree=1, and the intentions on
 * the names above.
 */
#include "daemon/op/op.h"
#include "tests/unit/core_rig.h"

#include <stdio.h>
#include <string.h>

Suite *core_tree_suite(void);

/* The operation on that lock, of any age. */
static struct op *
op_for(struct rig *rig, enum op_kind kind, const char *name)
{
    for (uint32_t i = 0; i < rig->op_count; i++) {
        struct op *op = rig->ops[i];
        if (op->kind == kind && text_equal(op->name, text_from(name)))
            return op;
    }
    ck_abort_msg("no such operation on %s", name);
    return NULL;
}

/* `shop/17` is held by tag 1, fence 5, with an intention on `shop`, fence 4.
 * Returns the request of the intention. */
static uint64_t
hold_part(struct rig *rig, unsigned session, const char *options)
{
    char line[100];

    snprintf(line, sizeof(line), "1 LOCK shop/17 tree=1%s", options);
    rig_say(rig, session, line);
    uint64_t request = rig_grant_on(rig, "shop", 4);
    rig_grant_on(rig, "shop/17", 5);
    rig_expect(rig, session, "1 OK fence=5 ttl_ms=~ count=1");
    return request;
}

/* From the root to the part; the client knows of the part alone. */
SESSION_TEST(from_the_root)
{
    bool shared = _i;

    rig_say(rig, s,
        shared ? "1 LOCK a/b/c tree=1 mode=shared note=n"
               : "1 LOCK a/b/c tree=1 note=n");
    for (int i = 0; i < 2; i++) {
        struct op *op = rig_op_on(rig, OP_ACQUIRE, i == 0 ? "a" : "a/b");
        ck_assert(op->ask.mode == (shared ? MODE_INTENT_SHARED : MODE_INTENT));
        ck_assert(!op->ask.part && op->words[2].len == 0);
        rig_granted(rig, op, 3 + (uint64_t)i);
    }
    struct op *op = rig_op_on(rig, OP_ACQUIRE, "a/b/c");
    ck_assert(op->ask.mode == (shared ? MODE_SHARED : MODE_EXCLUSIVE));
    ck_assert(op->ask.part && op->words[2].len == 1);
    rig_granted(rig, op, 5);
    rig_expect(rig, s, "1 OK fence=5 ttl_ms=~ count=1");
    rig_say(rig, s, "2 HELD");
    rig_expect(rig, s,
        shared ? "2 ITEM name=a/b/c fence=5 ~ count=1 mode=shared note=n"
               : "2 ITEM name=a/b/c fence=5 ~ count=1 note=n");
    rig_expect(rig, s, "2 OK n=1");
    rig_ask(rig, s, "3 UNLOCK a/b", "3 ERR NOTHELD retry=0");
    rig_ask(rig, s, "4 RENEW a lease=1s", "4 ERR NOTHELD retry=0");
    rig_ask(rig, s, "5 NOTE a note=x", "5 ERR NOTHELD retry=0");
}

static const struct tree_bad_row {
    const char *line;
    const char *text;
} tree_bad_rows[] = {
    {"1 LOCK /a tree=1", "empty part"},
    {"1 LOCK a/ tree=1", "empty part"},
    {"1 LOCK a//b tree=1", "empty part"},
    {"1 LOCK / tree=1", "empty part"},
    {"1 LOCK a/b tree=1 detached=1 lease=5s", "detached"},
    {"1 LOCK a/b tree=1 limit=3", "limit="},
    {"1 LOCK a a/b tree=1", "above another"},
    {"1 LOCK a/b/c a tree=1", "above another"},
    {"1 LOCK a/b a/b tree=1", "twice"},
    {"1 LOCK a/b/c/d/e/f/g/h/i/j/k/l/m/n/o/p/q tree=1", "16"},
};

SESSION_TEST(bad)
{
    rig_say(rig, s, tree_bad_rows[_i].line);
    rig_text(rig, s, tree_bad_rows[_i].text);
    rig_expect(rig, s, "1 ERR BADREQ retry=0");
    rig_no_op(rig);
}

SESSION_TEST(deepest)
{
    rig_say(rig, s, "1 LOCK a/b/c/d/e/f/g/h/i/j/k/l/m/n/o/p tree=1");
    for (uint64_t fence = 1; fence <= 16; fence++)
        rig_granted(rig, rig_op(rig, OP_ACQUIRE), fence);
    rig_expect(rig, s, "1 OK fence=16 ttl_ms=~ count=1");
}

/* A name without / has nothing above it. */
SESSION_TEST(root)
{
    rig_say(rig, s, "1 LOCK shop tree=1");
    ck_assert(!rig_op_on(rig, OP_ACQUIRE, "shop")->ask.part);
    rig_grant_on(rig, "shop", 4);
    rig_expect(rig, s, "1 OK fence=4 ttl_ms=~ count=1");
    rig_no_op(rig);
}

/* An intention is kept for a moment, for the next part. */
SESSION_TEST(kept_for_a_moment)
{
    hold_part(rig, s, "");
    rig_say(rig, s, "2 UNLOCK shop/17");
    rig_released_on(rig, "shop/17");
    rig_expect(rig, s, "2 OK count=0");
    rig_say(rig, s, "3 LOCK shop/18 tree=1");
    rig_grant_on(rig, "shop/18", 6);
    rig_expect(rig, s, "3 OK fence=6 ttl_ms=~ count=1");
    rig_pass(rig, 1100);
    rig_no_op(rig);
    rig_say(rig, s, "4 UNLOCK shop/18");
    op_for(rig, OP_RELEASE, "shop");
    rig_released_on(rig, "shop/18");
    rig_expect(rig, s, "4 OK count=0");
}

SESSION_TEST(given_back_after_it)
{
    hold_part(rig, s, "");
    rig_say(rig, s, "2 UNLOCK shop/17");
    rig_released_on(rig, "shop/17");
    rig_pass(rig, 900);
    rig_no_op(rig);
    rig_pass(rig, 200);
    rig_say(rig, s, "3 LOCK shop/18 tree=1");
    rig_released_on(rig, "shop");
    rig_grant_on(rig, "shop", 7);
    rig_grant_on(rig, "shop/18", 8);
}

/* Others wait: an idle intention is given back at once, and one in use with
 * its last part. Either is asked for anew then, behind those that wait. */
SESSION_TEST(called)
{
    bool idle = _i & 1;
    bool by_news = _i & 2;
    uint64_t request = hold_part(rig, s, "");

    if (idle) {
        rig_say(rig, s, "2 UNLOCK shop/17");
        rig_released_on(rig, "shop/17");
    }
    if (by_news)
        rig_news(rig, "Iholdfast:{shop}", 16);
    else
        rig_hint(rig, request);
    if (!idle) {
        rig_pass(rig, 5);
        rig_no_op(rig);
        rig_say(rig, s, "2 UNLOCK shop/17");
        rig_released_on(rig, "shop/17");
    }
    rig_expect(rig, s, "2 OK count=0");
    rig_say(rig, s, "3 LOCK shop/18 tree=1");
    rig_released_on(rig, "shop");
    (void)rig_op_on(rig, OP_ACQUIRE, "shop");
}

/* One that waited, or whose answer or the news says that others wait, is not
 * kept. */
SESSION_TEST(not_kept)
{
    rig_say(rig, s, "1 LOCK shop/17 tree=1");
    struct op *op = rig_op_on(rig, OP_ACQUIRE, "shop");
    if (_i == 0) {
        uint64_t request = op->request;
        rig_queued(rig, op);
        rig_hint(rig, request);
        rig_granted(rig, rig_op_on(rig, OP_RENEW, "shop"), 4);
    } else if (_i == 1) {
        rig_finish(rig, op,
            (struct op_result){.status = OP_OK,
                .fence = 4,
                .arrival = 4,
                .ttl_ms = RIG_LEASE_MS,
                .waited_for = true});
    } else { /* the news overtakes the answer */
        rig_news(rig, "Iholdfast:{shop}", 16);
        rig_granted(rig, op, 4);
    }
    rig_grant_on(rig, "shop/17", 5);
    rig_expect(rig, s, "1 OK fence=5 ttl_ms=~ count=1");
    rig_say(rig, s, "2 UNLOCK shop/17");
    rig_released_on(rig, "shop/17");
    rig_released_on(rig, "shop");
}

/* The owner of a part takes another one, while others wait for the whole: it
 * would wait for itself. */
SESSION_TEST(another_part)
{
    rig_hint(rig, hold_part(rig, s, ""));
    rig_say(rig, s, "2 LOCK shop/18 tree=1");
    rig_grant_on(rig, "shop/18", 6);
    rig_expect(rig, s, "2 OK fence=6 ttl_ms=~ count=1");
    rig_say(rig, s, "3 LOCK shop/19 tree=1 owner=w");
    (void)rig_op_on(rig, OP_ACQUIRE, "shop");
}

/* Two LOCKs of one owner for two parts do not wait for one another. */
SESSION_TEST(side_by_side)
{
    hold_part(rig, s, "");
    rig_wait(rig, s, "2 LOCK shop/18 tree=1");
    rig_say(rig, s, "3 LOCK shop/19 tree=1");
    rig_grant_on(rig, "shop/19", 7);
    rig_expect(rig, s, "3 OK fence=7 ttl_ms=~ count=1");
}

/* The whole and its parts, of one owner. */
SESSION_TEST(own)
{
    static const struct {
        const char *first;
        const char *second;
        const char *text;
    } rows[] = {
        {"1 LOCK a tree=1", "2 LOCK a/b tree=1", "name above"},
        {"1 LOCK a", "2 LOCK a/b/c tree=1", "name above"},
        {"1 LOCK a/b tree=1", "2 LOCK a tree=1", "a part of it"},
        {"1 LOCK a/b tree=1", "2 LOCK a limit=2", "a part of it"},
        {"1 LOCK a/b tree=1 mode=shared", "2 LOCK a/c tree=1", "shares"},
        {"1 LOCK a/b", "2 LOCK a/b tree=1", "without tree=1"},
    };

    rig_say(rig, s, rows[_i].first);
    for (uint64_t fence = 1; rig->op_count > 0; fence++)
        rig_granted(rig, rig_op(rig, OP_ACQUIRE), fence);
    rig_expect(rig, s, "1 OK fence=~ ttl_ms=~ count=1");
    rig_say(rig, s, rows[_i].second);
    if (_i == 5)
        rig_grant_on(rig, "a", 5);
    rig_text(rig, s, rows[_i].text);
    rig_expect(rig, s,
        strchr(rows[_i].second, '/') != NULL ? "2 ERR CONFLICT retry=0 name=~"
                                             : "2 ERR CONFLICT retry=0");
    rig_ask(rig, s, "3 HELD",
        _i == 4 ? "3 ITEM ~ ~ ~ count=1 mode=shared" : "3 ITEM ~ ~ ~ count=1");
}

/* These go together. */
SESSION_TEST(own_again)
{
    hold_part(rig, s, "");
    rig_ask(rig, s, "2 LOCK shop/17 tree=1", "2 OK fence=5 ttl_ms=~ count=2");
    rig_ask(rig, s, "3 LOCK shop/17", "3 OK fence=5 ttl_ms=~ count=3");
    rig_say(rig, s, "4 LOCK shop/18 tree=1 mode=shared");
    rig_grant_on(rig, "shop/18", 6);
    rig_expect(rig, s, "4 OK fence=6 ttl_ms=~ count=1");
    rig_say(rig, s, "5 UNLOCK shop/17");
    rig_say(rig, s, "6 UNLOCK shop/17");
    rig_say(rig, s, "7 UNLOCK shop/17 shop/18");
    rig_pass(rig, 1100);
    ck_assert_uint_eq(rig->op_count, 3);
}

/* An idle intention is not in the way of the whole. */
SESSION_TEST(own_whole_after_part)
{
    hold_part(rig, s, "");
    rig_say(rig, s, "2 UNLOCK shop/17");
    rig_released_on(rig, "shop/17");
    rig_expect(rig, s, "2 OK count=0");
    rig_say(rig, s, "3 LOCK shop tree=1");
    rig_released_on(rig, "shop");
    ck_assert(rig_op_on(rig, OP_ACQUIRE, "shop")->ask.mode == MODE_EXCLUSIVE);
}

/* A part is not believed in for longer than its intention. */
SESSION_TEST(no_longer)
{
    rig_say(rig, s, "1 LOCK shop/17 tree=1 owner=w");
    rig_finish(rig, rig_op_on(rig, OP_ACQUIRE, "shop"),
        (struct op_result){
            .status = OP_OK, .fence = 4, .arrival = 4, .ttl_ms = 6000});
    rig_grant_on(rig, "shop/17", 5);
    rig_expect(rig, s, "1 OK fence=5 ttl_ms=5938 count=1");
    rig_ask(rig, s, "2 PING", "2 OK ttl_ms=5938");
    rig_pass(rig, 2000);
    struct op *op = rig_op_on(rig, OP_RENEW, "shop");
    rig_pass(rig, 3950);
    rig_expect(rig, s, "* JEOPARDY shop/17 ttl_ms=~ owner=w");
    rig_expect(rig, s, "* LOST shop/17 fence=5 reason=backend owner=w");
    ck_assert(op->unwanted);
    op_for(rig, OP_RELEASE, "shop/17");
    rig_silent(rig, s);
}

/* The intention is renewed as any hold, and prolongs the part. */
SESSION_TEST(renewed)
{
    hold_part(rig, s, "");
    for (int i = 0; i < 8; i++) {
        rig_pass(rig, 5000);
        while (rig->op_count > 0)
            rig_granted(
                rig, rig_op(rig, OP_RENEW), rig->ops[0]->name.len == 4 ? 4 : 5);
    }
    rig_silent(rig, s);
    rig_ask(rig, s, "3 UNLOCK shop", "3 ERR NOTHELD retry=0");
}

/* Without renewals of the intention, those of the part prolong nothing. */
SESSION_TEST(not_renewed)
{
    hold_part(rig, s, "");
    rig_pass(rig, 10500);
    rig_granted(rig, op_for(rig, OP_RENEW, "shop/17"), 5);
    rig_pass(rig, 19000);
    if (_i == 1)
        rig_granted(rig, op_for(rig, OP_RENEW, "shop/17"), 5);
    rig_expect(rig, s, "* JEOPARDY shop/17 ttl_ms=~");
    rig_pass(rig, 500);
    rig_expect(rig, s, "* LOST shop/17 fence=5 reason=backend");
    rig_silent(rig, s);
    op_for(rig, OP_RELEASE, "shop/17");
}

/* The release of an intention waits until the clients of its parts know. */
SESSION_TEST(told_before_the_release)
{
    rig_say(rig, s, "1 LOCK shop/17 tree=1 lease=10s");
    rig_finish(rig, rig_op_on(rig, OP_ACQUIRE, "shop"),
        (struct op_result){
            .status = OP_OK, .fence = 4, .arrival = 4, .ttl_ms = 6000});
    rig_grant_on(rig, "shop/17", 5);
    rig_expect(rig, s, "1 OK fence=5 ttl_ms=~ count=1");
    rig_pass(rig, 5939);
    rig_expect(rig, s, "* JEOPARDY shop/17 ttl_ms=~");
    rig_expect(rig, s, "* LOST shop/17 fence=5 reason=~");
    for (uint32_t i = 0; i < rig->op_count; i++)
        ck_assert(rig->ops[i]->kind != OP_RELEASE ||
                  rig->ops[i]->name.len == strlen("shop/17"));
    rig_pass(rig, 120);
    op_for(rig, OP_RELEASE, "shop");
}

/* Redis, or an operator, has taken the intention away. */
SESSION_TEST(uprooted)
{
    uint64_t request = hold_part(rig, s, "");

    rig_say(rig, s, "2 LOCK shop/18 tree=1 owner=w");
    rig_grant_on(rig, "shop", 6);
    rig_grant_on(rig, "shop/18", 7);
    rig_expect(rig, s, "2 OK fence=7 ttl_ms=~ count=1");
    rig_say(rig, s, "4 LOCK shopping/1 tree=1");
    rig_grant_on(rig, "shopping", 8);
    rig_grant_on(rig, "shopping/1", 9);
    rig_expect(rig, s, "4 OK fence=9 ttl_ms=~ count=1");
    rig_broken(rig, request, 4);
    rig_expect(rig, s, "* LOST shop/17 fence=5 reason=gone");
    rig_silent(rig, s);
    op_for(rig, OP_RELEASE, "shop");
    op_for(rig, OP_RELEASE, "shop/17");
    ck_assert_uint_eq(rig->op_count, 2);
    rig_ask(rig, s, "3 HELD", "3 ITEM name=shop/18 ~ ~ count=1 owner=w");
    rig_expect(rig, s, "3 ITEM name=shopping/1 ~ ~ count=1");
}

SESSION_TEST(not_upgraded)
{
    hold_part(rig, s, " mode=shared");
    rig_ask(rig, s, "2 LOCK shop/17", "2 ERR CONFLICT retry=0");
    rig_no_op(rig);
}

/* A deeper intention has one part less, and is kept no longer than others. */
SESSION_TEST(uprooted_deep)
{
    rig_say(rig, s, "1 LOCK a/b/c tree=1");
    uint64_t request = rig_grant_on(rig, "a", 3);
    rig_grant_on(rig, "a/b", 4);
    rig_grant_on(rig, "a/b/c", 5);
    rig_expect(rig, s, "1 OK fence=5 ttl_ms=~ count=1");
    rig_broken(rig, request, 3);
    rig_expect(rig, s, "* LOST a/b/c fence=5 reason=gone");
    rig_pass(rig, 1100);
    op_for(rig, OP_RELEASE, "a/b");
}

/* The intention is lost while the part is asked for. */
SESSION_TEST(uprooted_meanwhile)
{
    rig_say(rig, s, "1 LOCK shop/17 tree=1");
    uint64_t request = rig_grant_on(rig, "shop", 4);
    struct op *op = rig_op_on(rig, OP_ACQUIRE, "shop/17");
    rig_broken(rig, request, 4);
    rig_granted(rig, op, 5);
    rig_expect(rig, s, "1 ERR UNAVAILABLE retry=1 name=shop");
    op_for(rig, OP_RELEASE, "shop/17");
    rig_silent(rig, s);
}

/* Each end of the LOCK of a part leaves the intention idle. */
SESSION_TEST(rolled_back)
{
    rig_say(rig, s, "1 LOCK shop/17 tree=1 wait=100 progress=1 deadlock=0");
    rig_grant_on(rig, "shop", 4);
    struct op *op = rig_op_on(rig, OP_ACQUIRE, "shop/17");
    if (_i < 3) {
        rig_queued(rig, op);
        rig_expect(rig, s, "1 QUEUED name=shop/17 position=1");
    }
    if (_i == 0) {
        rig_pass(rig, 110);
        rig_expect(rig, s, "1 ERR TIMEOUT retry=1 name=shop/17");
    } else if (_i == 1) {
        rig_ask(rig, s, "2 CANCEL 1", "1 ERR CANCELLED retry=1 name=shop/17");
    } else if (_i == 2) {
        rig_event(rig, s, CORE_DROP);
        op_for(rig, OP_RELEASE, "shop");
        return;
    } else {
        rig_status(rig, op, _i == 3 ? OP_CONFLICT : OP_UNSENT);
        rig_expect(rig, s,
            _i == 3 ? "1 ERR CONFLICT retry=0 name=shop/17"
                    : "1 ERR UNAVAILABLE retry=1 name=shop/17");
    }
    if (_i < 3)
        rig_released_on(rig, "shop/17");
    rig_no_op(rig);
    rig_pass(rig, 1100);
    (void)rig_op_on(rig, OP_RELEASE, "shop");
}

/* The intention itself cannot be had. */
SESSION_TEST(refused_above)
{
    rig_say(rig, s, "1 LOCK shop/17 tree=1 wait=100 deadlock=0");
    struct op *op = rig_op_on(rig, OP_ACQUIRE, "shop");
    if (_i == 0) {
        rig_queued(rig, op);
        rig_pass(rig, 110);
        rig_expect(rig, s, "1 ERR TIMEOUT retry=1 name=shop");
        rig_released_on(rig, "shop");
    } else if (_i == 1) {
        rig_queued(rig, op);
        rig_ask(rig, s, "2 CANCEL 1", "1 ERR CANCELLED retry=1 name=shop");
        rig_released_on(rig, "shop");
    } else if (_i == 2) {
        rig_status(rig, op, OP_CONFLICT);
        rig_expect(rig, s, "1 ERR CONFLICT retry=0 name=shop");
    } else {
        rig_queued(rig, op);
        rig_event(rig, s, CORE_EOF);
        rig_expect(rig, s, "1 ERR CANCELLED retry=1 name=shop");
        rig_expect(rig, s, "* BYE eof");
        return;
    }
    rig_no_op(rig);
}

SESSION_TEST(at_once)
{
    rig_say(rig, s, "1 LOCK shop/17 tree=1 wait=0");
    ck_assert(rig_op_on(rig, OP_ACQUIRE, "shop")->no_queue);
    rig_status(rig, rig_op_on(rig, OP_ACQUIRE, "shop"), OP_BUSY);
    rig_expect(rig, s, "1 ERR BUSY retry=1 name=shop");
    rig_no_op(rig);
}

/* BUSY by intentions: they may be idle, so the LOCK waits for a moment. */
SESSION_TEST(pressed)
{
    const struct op_result busy = {.status = OP_BUSY, .waited_for = true};

    rig_say(rig, s, "1 LOCK shop tree=1 wait=0 progress=1");
    rig_finish(rig, rig_op_on(rig, OP_ACQUIRE, "shop"), busy);
    rig_silent(rig, s);
    struct op *op = rig_op_on(rig, OP_ACQUIRE, "shop");
    ck_assert(!op->no_queue);
    if (_i == 0) {
        rig_granted(rig, op, 4);
        rig_expect(rig, s, "1 OK fence=4 ttl_ms=~ count=1");
        return;
    }
    rig_queued(rig, op);
    rig_silent(rig, s);
    rig_pass(rig, 110);
    rig_expect(rig, s, "1 ERR BUSY retry=1");
    rig_released_on(rig, "shop");
    rig_say(rig, s, "2 LOCK shop/1 b shop/2 tree=1 wait=0");
    rig_grant_on(rig, "b", 4);
    rig_grant_on(rig, "shop", 5);
    rig_finish(rig, rig_op_on(rig, OP_ACQUIRE, "shop/1"), busy);
    rig_expect(rig, s, "2 ERR BUSY retry=1 name=shop/1");
}

/* An idle intention for an exclusive part would keep those out that share the
 * whole. */
SESSION_TEST(shared_after_exclusive)
{
    hold_part(rig, s, "");
    rig_say(rig, s, "2 UNLOCK shop/17");
    rig_released_on(rig, "shop/17");
    rig_expect(rig, s, "2 OK count=0");
    rig_say(rig, s, "3 LOCK shop/18 tree=1 mode=shared");
    rig_released_on(rig, "shop");
    ck_assert(
        rig_op_on(rig, OP_ACQUIRE, "shop")->ask.mode == MODE_INTENT_SHARED);
}

/* Requests of one owner have their turns in the order sent, at all names. */
SESSION_TEST(crosswise)
{
    rig_say(rig, s, "1 LOCK b c/x tree=1");
    rig_say(rig, s, "2 LOCK c b");
    rig_grant_on(rig, "b", 4);
    rig_grant_on(rig, "c", 5);
    rig_grant_on(rig, "c/x", 6);
    rig_expect(rig, s, "1 OK fence=4,6 ttl_ms=~ count=1");
    rig_expect(rig, s, "2 ERR CONFLICT retry=0 name=c");
}

/* An idle intention is given back, though a LOCK that waits for a name above
 * has its turn there. */
SESSION_TEST(idle_below)
{
    rig_say(rig, s, "1 LOCK a/b/c tree=1");
    uint64_t above = rig_grant_on(rig, "a", 3);
    uint64_t below = rig_grant_on(rig, "a/b", 4);
    rig_grant_on(rig, "a/b/c", 5);
    rig_expect(rig, s, "1 OK fence=5 ttl_ms=~ count=1");
    rig_say(rig, s, "2 UNLOCK a/b/c");
    rig_released_on(rig, "a/b/c");
    rig_expect(rig, s, "2 OK count=0");
    rig_hint(rig, above);
    rig_say(rig, s, "3 LOCK a/b/d tree=1");
    rig_released_on(rig, "a");
    rig_queued(rig, rig_op_on(rig, OP_ACQUIRE, "a"));
    rig_no_op(rig);
    rig_hint(rig, below);
    rig_pass(rig, 2);
    rig_released_on(rig, "a/b");
    rig_ask(rig, s, "4 CANCEL 3", "3 ERR CANCELLED retry=1 name=a");
    rig_released_on(rig, "a");
    rig_no_op(rig);
}

/* The session ends: nothing is left, and a client that quits hears nothing. */
SESSION_TEST(ends)
{
    static const char *const how[] = {"QUIT", "", "", "LOCK shop/18 tree=1"};

    hold_part(rig, s, "");
    rig_say(rig, s, how[_i]);
    if (_i == 1)
        rig_event(rig, s, CORE_EOF);
    else if (_i > 1)
        rig_event(rig, s, CORE_DROP);
    if (_i < 2)
        rig_expect(rig, s, _i == 0 ? "- OK" : "* BYE eof");
    op_for(rig, OP_RELEASE, "shop");
    op_for(rig, OP_RELEASE, "shop/17");
}

/* A kept session has its parts, with their intentions, at this broker. */
SESSION_TEST(kept)
{
    bool claims = _i;
    unsigned t = rig_open(rig);

    rig_say(rig, s, "HELLO keep=10s");
    (void)rig_line(rig, s);
    hold_part(rig, s, "");
    rig_event(rig, s, CORE_DROP);
    rig_pass(rig, 2000);
    rig_no_op(rig);
    rig_resume(rig, s, t, 2, " keep=10s");
    (void)rig_line(rig, t);
    if (claims) {
        rig_say(rig, t, "1 CLAIM shop/17 fence=5");
        rig_pass(rig, 1);
        struct op *op = rig_op_on(rig, OP_RENEW, "shop");
        ck_assert(op->moves && op->generation == 2);
        rig_granted(rig, op, 4);
        rig_finish(rig, rig_op_on(rig, OP_RENEW, "shop/17"),
            (struct op_result){.status = OP_OK,
                .fence = 5,
                .arrival = 5,
                .ttl_ms = RIG_LEASE_MS,
                .ask = {.permits = 1, .part = true}});
        rig_expect(rig, t, "1 OK fence=5 ttl_ms=~ count=1");
        rig_ask(rig, t, "2 CLAIM shop fence=4", "2 ERR LOST retry=0");
        rig_say(rig, t, "3 LOCK shop/18 tree=1");
        rig_grant_on(rig, "shop/18", 6);
        rig_expect(rig, t, "3 OK fence=6 ttl_ms=~ count=1");
    } else {
        rig_pass(rig, 8500);
        while (rig->op_count > 0 && rig->ops[0]->kind == OP_RENEW)
            rig_granted(rig, rig->ops[0], rig->ops[0]->name.len == 4 ? 4 : 5);
        rig_pass(rig, 2500);
        op_for(rig, OP_RELEASE, "shop/17");
        op_for(rig, OP_RELEASE, "shop");
    }
}

/* The connection ends while its LOCK waits for `name`, which it has not got. */
static uint64_t
lose_part(struct rig *rig, unsigned session, const char *lock, const char *name)
{
    rig_say(rig, session, "HELLO keep=10s");
    (void)rig_line(rig, session);
    rig_say(rig, session, lock);
    struct op *op = rig->ops[rig->op_count - 1];
    for (uint64_t fence = 4; !text_equal(op->name, text_from(name)); fence++) {
        rig_granted(rig, op, fence);
        op = rig->ops[rig->op_count - 1];
    }
    uint64_t request = op->request;
    rig_queued(rig, op);
    rig_event(rig, session, CORE_DROP);
    return request;
}

/* A part that is granted to a connection that has ended has no intention. It is
 * given back: its LOCK has to wait for the names above first. */
SESSION_TEST(granted_unheard)
{
    unsigned t = rig_open(rig);

    uint64_t request = lose_part(rig, s, "1 LOCK shop/17 tree=1", "shop/17");
    rig_hint(rig, request);
    rig_granted(rig, op_for(rig, OP_RENEW, "shop/17"), 5);
    rig_released_on(rig, "shop/17");
    rig_resume(rig, s, t, 2, " keep=10s");
    (void)rig_line(rig, t);
    rig_say(rig, t, "1 CLAIM shop/17 fence=5");
    rig_status(rig, op_for(rig, OP_RENEW, "shop/17"), OP_GONE);
    rig_expect(rig, t, "1 ERR LOST retry=0");
}

/* Likewise one that a LOCK of several names had. */
SESSION_TEST(several_unheard)
{
    lose_part(rig, s, "1 LOCK shop/1 shop/2 tree=1", "shop/2");
    rig_released_on(rig, "shop/1");
}

/* A LOCK that is put again keeps its place at a name, unless it has to wait for
 * one above. */
SESSION_TEST(put_again)
{
    static const char *const waits_for[] = {"a/b/c", "a/b"};
    const char *name = waits_for[_i % 2];
    bool early = _i / 2;
    unsigned t = rig_open(rig);

    uint64_t request = lose_part(rig, s, "1 LOCK a/b/c tree=1", name);
    rig_pass(rig, 1100);
    rig_released_on(rig, "a");
    if (_i % 2 == 0)
        rig_released_on(rig, "a/b");
    rig_resume(rig, s, t, 2, " keep=10s");
    (void)rig_line(rig, t);
    rig_say(rig, t, "1 LOCK a/b/c tree=1");
    if (early) {
        rig_queued(rig, rig_op_on(rig, OP_ACQUIRE, "a"));
        rig_released_on(rig, name);
        rig_no_op(rig);
        return;
    }
    rig_hint(rig, request);
    rig_queued(rig, op_for(rig, OP_RENEW, name));
    rig_grant_on(rig, "a", 6);
    struct op *op = rig_op_on(rig, OP_RENEW, name);
    ck_assert(op->moves);
    rig_finish(rig, op,
        (struct op_result){.status = OP_WAITING,
            .place = 1,
            .arrival = 1,
            .again_ms = RIG_LEASE_MS,
            .ask = {.permits = 1, .part = true}});
    if (_i % 2 == 0)
        rig_grant_on(rig, "a/b", 7);
    (void)rig_op_on(rig, OP_RENEW, name); /* in the same place */
}

/* Another broker may have had the session, and an intention, meanwhile. So the
 * part is believed in once Redis has confirmed its intention. */
SESSION_TEST(claimed_after_another_broker)
{
    bool locks = _i == 1;
    unsigned t = rig_open(rig);

    rig_say(rig, s, "HELLO keep=60s");
    (void)rig_line(rig, s);
    hold_part(rig, s, "");
    rig_event(rig, s, CORE_DROP);
    rig_pass(rig, RIG_LEASE_MS / 3 + 500); /* both renewals are under way */
    rig_resume(rig, s, t, 3, " keep=60s");
    (void)rig_line(rig, t);
    rig_say(rig, t, locks ? "1 LOCK shop/17" : "1 CLAIM shop/17 fence=5");
    rig_granted(rig, op_for(rig, OP_RENEW, "shop"), 4);
    rig_granted(rig, op_for(rig, OP_RENEW, "shop/17"), 5);
    rig_pass(rig, 1);
    struct op *op = rig_op_on(rig, OP_RENEW, "shop");
    ck_assert(op->moves && op->generation == 3);
    ck_assert_uint_eq(rig->op_count, 1);
    rig_silent(rig, t);
    if (_i == 2) {
        rig_status(rig, op, OP_UNKNOWN);
        rig_pass(rig, 1000);
        op = rig_op_on(rig, OP_RENEW, "shop");
        ck_assert(op->moves);
    }
    rig_status(rig, op, OP_GONE);
    rig_released_on(rig, "shop/17");
    if (locks) {
        rig_op_on(rig, OP_ACQUIRE, "shop/17");
        return;
    }
    rig_status(rig, rig_op_on(rig, OP_RENEW, "shop/17"), OP_GONE);
    rig_expect(rig, t, "1 ERR LOST retry=0");
}

/* A damaged record shows a part to a claim. */
SESSION_TEST(claimed_elsewhere)
{
    static const char hello[] =
        "HELLO resume=00112233445566778899aabbccddeeff gen=2";

    rig_say(rig, s, hello);
    (void)rig_line(rig, s);
    rig_say(rig, s, "1 CLAIM shop/17 fence=5");
    rig_finish(rig, rig_op_on(rig, OP_RENEW, "shop/17"),
        (struct op_result){.status = OP_OK,
            .fence = 5,
            .arrival = 9,
            .ttl_ms = RIG_LEASE_MS,
            .ask = {.permits = 1, .part = true}});
    rig_expect(rig, s, "1 ERR LOST retry=0");
    rig_no_op(rig);
}

/* A client that is away believes in its part until the deadline. */
SESSION_TEST(uprooted_while_away)
{
    rig_say(rig, s, "HELLO keep=10s");
    (void)rig_line(rig, s);
    uint64_t request = hold_part(rig, s, "");
    rig_event(rig, s, CORE_DROP);
    rig_broken(rig, request, 4);
    (void)rig_op_on(rig, OP_RELEASE, "shop");
    ck_assert_uint_eq(rig->op_count, 1);
}

/* The client of a broker that stops believes in its part until the deadline. */
SESSION_TEST(stopped)
{
    rig_say(rig, s, "HELLO keep=60s");
    (void)rig_line(rig, s);
    hold_part(rig, s, "");
    rig_say(rig, s, "2 LOCK idle/1 tree=1");
    rig_grant_on(rig, "idle", 6);
    rig_grant_on(rig, "idle/1", 7);
    rig_expect(rig, s, "2 OK fence=7 ttl_ms=~ count=1");
    rig_say(rig, s, "3 UNLOCK idle/1");
    rig_released_on(rig, "idle/1");
    rig_expect(rig, s, "3 OK count=0");
    rig_stop(rig);
    rig_pass(rig, 10);
    rig_event(rig, s, CORE_DROP);
    op_for(rig, OP_RENEW, "shop");
    op_for(rig, OP_RENEW, "shop/17");
    op_for(rig, OP_RELEASE, "idle");
    ck_assert_uint_eq(rig->op_count, 3);
}

/* lease= is of the part. */
SESSION_TEST(lease)
{
    hold_part(rig, s, " lease=3s");
    struct op *op = rig_op_on(rig, OP_RENEW, "shop/17");
    ck_assert(op->sets_end);
    rig_granted(rig, op, 5);
    rig_pass(rig, 3000);
    rig_expect(rig, s, "* LOST shop/17 fence=5 reason=expired");
    op_for(rig, OP_RELEASE, "shop");
}

/* Several names, with one intention for two of them. */
SESSION_TEST(several)
{
    rig_say(rig, s, "1 LOCK shop/2 b shop/1 tree=1");
    rig_grant_on(rig, "b", 2);
    rig_grant_on(rig, "shop", 3);
    rig_grant_on(rig, "shop/1", 4);
    rig_grant_on(rig, "shop/2", 5);
    rig_expect(rig, s, "1 OK fence=5,2,4 ttl_ms=~ count=1");
    rig_say(rig, s, "2 UNLOCK shop/1");
    rig_released_on(rig, "shop/1");
    rig_pass(rig, 1500);
    rig_no_op(rig);
    rig_say(rig, s, "3 UNLOCK shop/2");
    op_for(rig, OP_RELEASE, "shop");
}

/* Redis has lost the intention, and it is put again with its mode. */
SESSION_TEST(reclaimed)
{
    struct core_event changed = {.kind = CORE_CHANGED};

    hold_part(rig, s, "");
    rig_step(rig, &changed);
    rig_pass(rig, 1200);
    rig_status(rig, op_for(rig, OP_RENEW, "shop"), OP_MISSING);
    struct op *op = op_for(rig, OP_RECLAIM, "shop");
    ck_assert(op->ask.mode == MODE_INTENT);
    rig_granted(rig, op, 4);
    rig_status(rig, op_for(rig, OP_RENEW, "shop/17"), OP_MISSING);
    op = op_for(rig, OP_RECLAIM, "shop/17");
    ck_assert(op->ask.part);
    rig_granted(rig, op, 5);
    rig_silent(rig, s);
}

Suite *
core_tree_suite(void)
{
    Suite *suite = suite_create("core_tree");
    TCase *tests = tcase_create("core_tree");

    tcase_add_loop_test(tests, from_the_root, 0, 2);
    tcase_add_loop_test(tests, bad, 0, ROWS(tree_bad_rows));
    tcase_add_test(tests, deepest);
    tcase_add_test(tests, root);
    tcase_add_test(tests, kept_for_a_moment);
    tcase_add_test(tests, given_back_after_it);
    tcase_add_loop_test(tests, called, 0, 4);
    tcase_add_loop_test(tests, not_kept, 0, 3);
    tcase_add_test(tests, not_upgraded);
    tcase_add_test(tests, another_part);
    tcase_add_test(tests, side_by_side);
    tcase_add_loop_test(tests, own, 0, 6);
    tcase_add_test(tests, own_again);
    tcase_add_test(tests, own_whole_after_part);
    tcase_add_test(tests, no_longer);
    tcase_add_test(tests, renewed);
    tcase_add_loop_test(tests, not_renewed, 0, 2);
    tcase_add_test(tests, told_before_the_release);
    tcase_add_test(tests, uprooted);
    tcase_add_test(tests, uprooted_deep);
    tcase_add_test(tests, uprooted_meanwhile);
    tcase_add_loop_test(tests, rolled_back, 0, 5);
    tcase_add_loop_test(tests, refused_above, 0, 4);
    tcase_add_test(tests, at_once);
    tcase_add_loop_test(tests, pressed, 0, 2);
    tcase_add_test(tests, shared_after_exclusive);
    tcase_add_test(tests, crosswise);
    tcase_add_test(tests, idle_below);
    tcase_add_loop_test(tests, ends, 0, 4);
    tcase_add_loop_test(tests, kept, 0, 2);
    tcase_add_test(tests, granted_unheard);
    tcase_add_test(tests, several_unheard);
    tcase_add_loop_test(tests, put_again, 0, 4);
    tcase_add_loop_test(tests, claimed_after_another_broker, 0, 3);
    tcase_add_test(tests, claimed_elsewhere);
    tcase_add_test(tests, uprooted_while_away);
    tcase_add_test(tests, stopped);
    tcase_add_test(tests, lease);
    tcase_add_test(tests, several);
    tcase_add_test(tests, reclaimed);
    suite_add_tcase(suite, tests);
    return suite;
}

/*
 * Tests of daemon/core/model/part.c: LOCK with tree=1, and the intentions on
 * the names above.
 */
#include "daemon/op/op.h"
#include "tests/unit/core_rig.h"

#include <stdio.h>
#include <string.h>

Suite *core_tree_suite(void);

/* The oldest operation is of that kind, and for that lock. */
static struct op *
op_on(struct rig *rig, enum op_kind kind, const char *name)
{
    struct op *op = rig_op(rig, kind);

    if (!text_equal(op->name, text_from(name)))
        ck_abort_msg("an operation on %.*s instead of %s", (int)op->name.len,
            op->name.at, name);
    return op;
}

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

static uint64_t
grant_on(struct rig *rig, const char *name, uint64_t fence)
{
    struct op *op = op_on(rig, OP_ACQUIRE, name);
    uint64_t request = op->request;

    rig_granted(rig, op, fence);
    return request;
}

static void
released_on(struct rig *rig, const char *name)
{
    rig_status(rig, op_on(rig, OP_RELEASE, name), OP_OK);
}

/* `shop/17` is held by tag 1, fence 5, with an intention on `shop`, fence 4.
 * Returns the request of the intention. */
static uint64_t
hold_part(struct rig *rig, unsigned session, const char *options)
{
    char line[100];

    snprintf(line, sizeof(line), "1 LOCK shop/17 tree=1%s", options);
    rig_say(rig, session, line);
    uint64_t request = grant_on(rig, "shop", 4);
    grant_on(rig, "shop/17", 5);
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
        struct op *op = op_on(rig, OP_ACQUIRE, i == 0 ? "a" : "a/b");
        ck_assert(op->ask.mode == (shared ? MODE_INTENT_SHARED : MODE_INTENT));
        ck_assert(!op->ask.part && op->words[2].len == 0);
        rig_granted(rig, op, 3 + (uint64_t)i);
    }
    struct op *op = op_on(rig, OP_ACQUIRE, "a/b/c");
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
    ck_assert(!op_on(rig, OP_ACQUIRE, "shop")->ask.part);
    grant_on(rig, "shop", 4);
    rig_expect(rig, s, "1 OK fence=4 ttl_ms=~ count=1");
    rig_no_op(rig);
}

/* An intention is kept for a moment, for the next part. */
SESSION_TEST(kept_for_a_moment)
{
    hold_part(rig, s, "");
    rig_say(rig, s, "2 UNLOCK shop/17");
    released_on(rig, "shop/17");
    rig_expect(rig, s, "2 OK count=0");
    rig_say(rig, s, "3 LOCK shop/18 tree=1");
    grant_on(rig, "shop/18", 6);
    rig_expect(rig, s, "3 OK fence=6 ttl_ms=~ count=1");
    rig_pass(rig, 1100);
    rig_no_op(rig);
    rig_say(rig, s, "4 UNLOCK shop/18");
    op_for(rig, OP_RELEASE, "shop");
    released_on(rig, "shop/18");
    rig_expect(rig, s, "4 OK count=0");
}

SESSION_TEST(given_back_after_it)
{
    hold_part(rig, s, "");
    rig_say(rig, s, "2 UNLOCK shop/17");
    released_on(rig, "shop/17");
    rig_pass(rig, 900);
    rig_no_op(rig);
    rig_pass(rig, 200);
    rig_say(rig, s, "3 LOCK shop/18 tree=1");
    released_on(rig, "shop");
    grant_on(rig, "shop", 7);
    grant_on(rig, "shop/18", 8);
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
        released_on(rig, "shop/17");
    }
    if (by_news)
        rig_news(rig, "Iholdfast:{shop}", 16);
    else
        rig_hint(rig, request);
    if (!idle) {
        rig_pass(rig, 5);
        rig_no_op(rig);
        rig_say(rig, s, "2 UNLOCK shop/17");
        released_on(rig, "shop/17");
    }
    rig_expect(rig, s, "2 OK count=0");
    rig_say(rig, s, "3 LOCK shop/18 tree=1");
    released_on(rig, "shop");
    (void)op_on(rig, OP_ACQUIRE, "shop");
}

/* One that waited, or whose answer or the news says that others wait, is not
 * kept. */
SESSION_TEST(not_kept)
{
    rig_say(rig, s, "1 LOCK shop/17 tree=1");
    struct op *op = op_on(rig, OP_ACQUIRE, "shop");
    if (_i == 0) {
        uint64_t request = op->request;
        rig_queued(rig, op);
        rig_hint(rig, request);
        rig_granted(rig, op_on(rig, OP_RENEW, "shop"), 4);
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
    grant_on(rig, "shop/17", 5);
    rig_expect(rig, s, "1 OK fence=5 ttl_ms=~ count=1");
    rig_say(rig, s, "2 UNLOCK shop/17");
    released_on(rig, "shop/17");
    released_on(rig, "shop");
}

/* The owner of a part takes another one, while others wait for the whole: it
 * would wait for itself. */
SESSION_TEST(another_part)
{
    rig_hint(rig, hold_part(rig, s, ""));
    rig_say(rig, s, "2 LOCK shop/18 tree=1");
    grant_on(rig, "shop/18", 6);
    rig_expect(rig, s, "2 OK fence=6 ttl_ms=~ count=1");
    rig_say(rig, s, "3 LOCK shop/19 tree=1 owner=w");
    (void)op_on(rig, OP_ACQUIRE, "shop");
}

/* Two LOCKs of one owner for two parts do not wait for one another. */
SESSION_TEST(side_by_side)
{
    hold_part(rig, s, "");
    rig_wait(rig, s, "2 LOCK shop/18 tree=1");
    rig_say(rig, s, "3 LOCK shop/19 tree=1");
    grant_on(rig, "shop/19", 7);
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
        grant_on(rig, "a", 5);
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
    grant_on(rig, "shop/18", 6);
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
    released_on(rig, "shop/17");
    rig_expect(rig, s, "2 OK count=0");
    rig_say(rig, s, "3 LOCK shop tree=1");
    released_on(rig, "shop");
    ck_assert(op_on(rig, OP_ACQUIRE, "shop")->ask.mode == MODE_EXCLUSIVE);
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
    tcase_add_test(tests, another_part);
    tcase_add_test(tests, side_by_side);
    tcase_add_loop_test(tests, own, 0, 6);
    tcase_add_test(tests, own_again);
    tcase_add_test(tests, own_whole_after_part);
    suite_add_tcase(suite, tests);
    return suite;
}

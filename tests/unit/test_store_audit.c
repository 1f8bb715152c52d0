/*
 * Tests of daemon/store: steps of an audit, from node to node, and the mark
 * that says whose a node is.
 */
#include "tests/unit/store_rig.h"

#include <string.h>

Suite *store_audit_suite(void);

#define AUDITED_BYTES 25

static void
expect_script(struct srig *rig, uint32_t link)
{
    srig_expect(rig, link, "EVALSHA 0");
    ck_assert(
        text_equal(rig->words[1], text_make(scripts[SCRIPT_AUDIT].sha1, 40)));
}

/* The cursor of the step that was sent last. */
static void
expect_cursor(const struct srig *rig, const char *cursor)
{
    struct text step = rig->words[4];

    ck_assert_uint_eq(step.len, 20 + strlen(cursor));
    ck_assert_mem_eq(step.at + 20, cursor, strlen(cursor));
}

static char *
put_suspect(
    char *at, unsigned flags, unsigned wrong, double hold_ms, const char *name)
{
    double wait_ms = 0;

    at = srig_put(at, flags, 1);
    at = srig_put(at, wrong, 1);
    at = srig_put(at, strlen(name), 2);
    memcpy(at, &hold_ms, 8);
    memcpy(at + 8, &wait_ms, 8);
    memcpy(at + 16, name, strlen(name));
    return at + 16 + strlen(name);
}

/* An answer of the script: 7 records, 3 holds, one of them detached, 2 waits,
 * those sights. */
static size_t
answer(struct srig *rig, char *out, const char *cursor, unsigned suspects)
{
    char *at = out + srig_encode(rig, out, 1, RECORD_OK);

    at = srig_put(at, 7, 4);
    at = srig_put(at, 3, 4);
    at = srig_put(at, 2, 4);
    at = srig_put(at, 1, 4);
    at = srig_put(at, suspects, 4);
    at = srig_put(at, 1, 4);
    at = srig_put(at, strlen(cursor), 1);
    memcpy(at, cursor, strlen(cursor));
    at += strlen(cursor);
    if (suspects > 0)
        at = put_suspect(at, SUSPECT_OLD_HOLD, WRONG_NOTHING, 90000, "a");
    if (suspects > 1)
        at = put_suspect(at, 0, WRONG_EXPIRY, 0, "another");
    return (size_t)(at - out);
}

/* It goes last and alone, has no keys, and says where to go on. */
SRIG_TEST(step, srig_single())
{
    struct op *op = srig_draft(rig, OP_AUDIT, 0);
    struct op_audit *audit = op->audit;
    char bytes[400];
    double ages[2];

    audit->cursor = UINT64_MAX;
    audit->count = 50;
    audit->hold_ms = 1000;
    audit->wait_ms = 2000;
    srig_submit(rig, op);
    struct op *inspect = srig_op(rig, OP_INSPECT, 0);
    srig_sends(rig, 0, "EVALSHA 1");
    expect_script(rig, 0);
    ck_assert_mem_eq(rig->words[3].at + 4, "broker-1", 8);
    ck_assert_mem_eq(rig->words[4].at, "\x32\0\0\0", 4);
    memcpy(ages, rig->words[4].at + 4, sizeof(ages));
    ck_assert_double_eq(ages[0], 1000);
    ck_assert_double_eq(ages[1], 2000);
    expect_cursor(rig, "18446744073709551615");
    srig_results(rig, 0, 1, RECORD_GONE);
    srig_status(rig, inspect, OP_GONE);
    srig_bytes(rig, 0, bytes, answer(rig, bytes, "4711", 2));
    srig_status(rig, op, OP_OK);
    ck_assert_uint_eq(audit->cursor, 4711);
    ck_assert_uint_eq(audit->records, 7);
    ck_assert_uint_eq(audit->holds, 3);
    ck_assert_uint_eq(audit->waits, 2);
    ck_assert_uint_eq(audit->detached, 1);
    ck_assert_uint_eq(audit->left, 1);
    ck_assert_uint_eq(audit->suspect_count, 2);
    ck_assert_uint_eq(audit->suspects[0].flags, SUSPECT_OLD_HOLD);
    ck_assert_uint_eq(audit->suspects[0].hold_ms, 90000);
    ck_assert_uint_eq(audit->suspects[1].wrong, WRONG_EXPIRY);
    ck_assert_uint_eq(audit->suspects[1].name.len, 7);
}

/* A part of an answer is no answer. */
SRIG_TEST(no_answers, srig_single())
{
    char bytes[400];
    size_t len = answer(rig, bytes, "12", 2);

    for (size_t cut = 0; cut < len; cut++) {
        struct op *op = srig_op(rig, OP_AUDIT, 0);
        srig_turn(rig);
        expect_script(rig, 0);
        srig_bytes(rig, 0, bytes, cut);
        srig_status(rig, op, OP_REFUSED);
    }
    static const char *const cursors[] = {"", "x", "-1", "18446744073709551616",
        "1 ", "123456789012345678901234567890"};
    for (size_t i = 0; i < sizeof(cursors) / sizeof(cursors[0]); i++) {
        struct op *op = srig_op(rig, OP_AUDIT, 0);
        srig_turn(rig);
        expect_script(rig, 0);
        srig_bytes(rig, 0, bytes, answer(rig, bytes, cursors[i], 0));
        srig_status(rig, op, OP_REFUSED);
    }
}

/* Answers that no script gives to an audit. It is not asked again. */
SRIG_TEST(no_results, _i == 0 ? srig_single() : srig_quorum(3))
{
    static const enum record_status table[] = {
        RECORD_GRACE, RECORD_CHANGED, RECORD_LATE};

    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
        struct op *op = srig_op(rig, OP_AUDIT, 0);
        srig_turn(rig);
        expect_script(rig, 0);
        srig_results(rig, 0, 1, table[i]);
        srig_status(rig, op, OP_REFUSED);
        ck_assert(list_empty(&rig->store->parked));
        ck_assert_uint_eq(rig->store->nodes[0].queued, 0);
        srig_settle(rig); /* which would not answer it */
    }
    ck_assert_uint_eq(srig_count(rig, COUNTER_redis_late), 0);
    ck_assert_uint_eq(srig_count(rig, COUNTER_redis_retries), 0);
}

/* It is loaded when it is asked for, and alone. */
SRIG_TEST(script_is_loaded, srig_single())
{
    struct op *op = srig_op(rig, OP_AUDIT, 0);
    char bytes[400];

    srig_turn(rig);
    expect_script(rig, 0);
    srig_error(rig, 0, "NOSCRIPT No matching script. Please use EVAL.");
    srig_sends(rig, 0, "LOAD");
    ck_assert(text_equal(rig->words[2],
        text_make(scripts[SCRIPT_AUDIT].body, scripts[SCRIPT_AUDIT].body_len)));
    srig_answer(rig, 0);
    expect_script(rig, 0);
    srig_expect(rig, 0, "");
    srig_bytes(rig, 0, bytes, answer(rig, bytes, "0", 0));
    srig_status(rig, op, OP_OK);
    ck_assert_uint_eq(op->audit->cursor, 0);
}

/* If it cannot be loaded, only the audit is given up. */
SRIG_TEST(script_is_not_loaded, srig_single())
{
    struct op *op = srig_op(rig, OP_AUDIT, 0);
    unsigned calls = 0;

    while (!srig_done(rig, op)) {
        ck_assert_uint_lt(calls++, 10);
        srig_turn(rig);
        if (calls > 1) {
            srig_expect(rig, 0, "LOAD");
            srig_error(rig, 0, "NOPERM User me has no permissions");
        }
        expect_script(rig, 0);
        srig_expect(rig, 0, "");
        srig_error(rig, 0, "NOSCRIPT No matching script. Please use EVAL.");
        ck_assert(list_empty(&rig->store->parked));
    }
    srig_status(rig, op, OP_UNSENT);
    ck_assert_uint_eq(calls, 6);
    srig_expect(rig, 0, "LOAD");
    srig_error(rig, 0, "NOPERM User me has no permissions");
    srig_sends(rig, 0, "");
    ck_assert_uint_eq(rig->conns[0].closes, 0);
    ck_assert_int_eq(rig->store->conns[0].state, CONN_READY);
    op = srig_op(rig, OP_RENEW, 0);
    srig_sends(rig, 0, "EVALSHA 1");
    srig_results(rig, 0, 1, RECORD_OK);
    srig_status(rig, op, OP_OK);
}

/* No error has it asked again. */
SRIG_TEST(refusals, srig_cluster())
{
    static const struct {
        const char *error;
        enum op_status status;
    } table[] = {
        {"LOADING x", OP_UNSENT},
        {"BUSY x", OP_UNSENT},
        {"NOPERM x", OP_UNSENT},
        {"MOVED 7 10.0.0.1:7001", OP_UNSENT},
        {"ASK 7 10.0.0.1:7001", OP_UNSENT},
        {"TRYAGAIN x", OP_UNSENT},
        {"ERR user_script:1: what", OP_REFUSED},
    };

    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
        struct op *op = srig_op(rig, OP_AUDIT, 0);
        srig_turn(rig);
        while (srig_next(rig, 0)[0] == 'C')
            srig_answer(rig, 0);
        srig_error(rig, 0, table[i].error);
        srig_status(rig, op, table[i].status);
    }
    struct op *op = srig_op(rig, OP_AUDIT, 0);
    srig_turn(rig);
    srig_lose(rig, 0);
    srig_status(rig, op, OP_UNKNOWN);
    op = srig_op(rig, OP_AUDIT, 0);
    srig_turn(rig);
    srig_status(rig, op, OP_UNSENT);
    ck_assert_uint_eq(op->audit->node, 0);
}

/* The nodes of a cluster, of a quorum; one after the other, and an end. */
SRIG_TEST(nodes, _i == 0 ? srig_cluster() : srig_quorum(3))
{
    static const char *const names[] = {
        "10.0.0.1:7000", "10.0.0.1:7001", "10.0.0.1:7002"};
    char bytes[400];

    for (uint32_t node = 0; node < 3; node++) {
        struct op *op = srig_draft(rig, OP_AUDIT, 0);
        op->audit->node = node;
        op->audit->cursor = 5;
        srig_submit(rig, op);
        srig_turn(rig);
        expect_script(rig, node);
        expect_cursor(rig, "5");
        srig_bytes(rig, node, bytes, answer(rig, bytes, "9", 1));
        srig_status(rig, op, OP_OK);
        ck_assert_uint_eq(op->audit->node, node);
        ck_assert_uint_eq(op->audit->cursor, 9);
        ck_assert_str_eq(op->audit->name, names[node]);
    }
    struct op *op = srig_draft(rig, OP_AUDIT, 0);
    op->audit->node = 3;
    srig_submit(rig, op);
    srig_turn(rig);
    srig_status(rig, op, OP_GONE);
}

/* A node without slots is passed over, and where another begins, so does its
 * first step. */
SRIG_TEST(node_without_slots, srig_cluster())
{
    rig->map[0].host = rig->map[1].host;
    rig->map[0].port = rig->map[1].port;
    rig->store->map_wanted = true;
    srig_pass(rig, 1000);
    srig_settle(rig);
    ck_assert(!rig->store->nodes[0].mapped);
    struct op *op = srig_draft(rig, OP_AUDIT, 0);
    op->audit->cursor = 5;
    srig_submit(rig, op);
    ck_assert_uint_eq(op->audit->node, 1);
    ck_assert_uint_eq(op->audit->cursor, 0);
    srig_turn(rig);
    expect_script(rig, 1);
    expect_cursor(rig, "0");
    ck_assert_str_eq(op->audit->name, "10.0.0.1:7001");
    srig_results(rig, 1, 1, RECORD_OK);
    srig_status(rig, op, OP_REFUSED);
}

/* An order to mark the node, which is sent so; the next reply is to it. */
static struct op *
marks(struct srig *rig, uint32_t node, bool marked, const char *command)
{
    struct op *op = srig_draft(rig, OP_AUDIT, 0);

    op->audit->node = node;
    op->audit->mark_ms = 540000;
    op->audit->marked = marked;
    srig_submit(rig, op);
    srig_turn(rig);
    const char *next = srig_next(rig, node);
    for (; next[0] == 'C'; next = srig_next(rig, node))
        srig_answer(rig, node); /* a refusal is a reason to ask for a map */
    ck_assert_str_eq(next, command);
    return op;
}

/* The mark: in a slot of the node, for whoever is the first. */
SRIG_TEST(mark, srig_cluster())
{
    static const char first[] =
        "SET holdfast:audit:{1324} broker-1 PX 540000 NX GET";
    static const char later[] = "SET holdfast:audit:{1324} broker-1 PX 540000";

    static const struct {
        const char *was; /* NULL: none */
        enum op_status status;
    } table[] = {
        {NULL, OP_OK},
        {"broker-2", OP_BUSY},
        {"broker-1", OP_OK}, /* of an audit before this one */
        {"broker-10", OP_BUSY},
        {"broker-", OP_BUSY},
        {"", OP_BUSY},
    };

    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
        struct op *op = marks(rig, 1, false, first);
        if (table[i].was == NULL)
            srig_reply(rig, 1, &(struct resp){.type = RESP_NIL});
        else
            srig_bytes(rig, 1, table[i].was, strlen(table[i].was));
        srig_status(rig, op, table[i].status);
    }
    for (int marked = 0; marked < 2; marked++) {
        struct op *op = marks(rig, 1, marked > 0, marked > 0 ? later : first);
        srig_error(rig, 1, "OOM command not allowed");
        srig_status(rig, op, OP_UNSENT);
    }
    struct op *op = marks(rig, 1, true, later);
    srig_reply(rig, 1, &(struct resp){.type = RESP_STATUS, .text = TEXT("OK")});
    srig_status(rig, op, OP_OK);
}

/* If no node is known, there may be some. */
SRIG_TEST(no_node_known, srig_create(STORE_CLUSTER, 3))
{
    srig_start(rig);
    struct op *op = srig_op(rig, OP_AUDIT, 0);
    srig_turn(rig);
    srig_status(rig, op, OP_UNSENT);
    ck_assert_str_eq(op->audit->name, "unknown");
    ck_assert_uint_eq(op->audit->node, 0);
    /* But none that comes after what was. */
    op = srig_draft(rig, OP_AUDIT, 0);
    op->audit->node = 1;
    srig_submit(rig, op);
    srig_turn(rig);
    srig_status(rig, op, OP_GONE);
}

Suite *
store_audit_suite(void)
{
    Suite *suite = suite_create("store_audit");
    TCase *tests = tcase_create("store_audit");

    tcase_add_test(tests, step);
    tcase_add_test(tests, no_answers);
    tcase_add_loop_test(tests, no_results, 0, 2);
    tcase_add_test(tests, script_is_loaded);
    tcase_add_test(tests, script_is_not_loaded);
    tcase_add_test(tests, refusals);
    tcase_add_loop_test(tests, nodes, 0, 2);
    tcase_add_test(tests, node_without_slots);
    tcase_add_test(tests, mark);
    tcase_add_test(tests, no_node_known);
    suite_add_tcase(suite, tests);
    return suite;
}

/*
 * Tests of daemon/store: steps of an audit, from node to node, and the mark
 * that says whose a node is.
 */
#include "tests/unit/store_rig.h"

#include <string.h>

Suite *store_audit_suite(void);

#define AUDITED_BYTES 21

static void
expect_script(struct srig *rig, uint32_t link)
{
    srig_expect(rig, link, "EVALSHA 0");
    ck_assert(
        text_equal(rig->words[1], text_make(scripts[SCRIPT_AUDIT].sha1, 40)));
}

static char *
put(char *at, uint64_t value, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        *at++ = (char)(value >> 8 * i & 0xff);
    return at;
}

static char *
put_sight(
    char *at, unsigned flags, unsigned wrong, double hold_ms, const char *name)
{
    double wait_ms = 0;

    at = put(at, flags, 1);
    at = put(at, wrong, 1);
    at = put(at, strlen(name), 2);
    memcpy(at, &hold_ms, 8);
    memcpy(at + 8, &wait_ms, 8);
    memcpy(at + 16, name, strlen(name));
    return at + 16 + strlen(name);
}

/* What the script says: 7 records, 3 holds, 2 waits, those sights. */
static size_t
answer(struct srig *rig, char *out, const char *cursor, unsigned sights)
{
    char *at = out + srig_encode(rig, out, 1, RECORD_OK);

    at = put(at, 7, 4);
    at = put(at, 3, 4);
    at = put(at, 2, 4);
    at = put(at, sights, 4);
    at = put(at, 1, 4);
    at = put(at, strlen(cursor), 1);
    memcpy(at, cursor, strlen(cursor));
    at += strlen(cursor);
    if (sights > 0)
        at = put_sight(at, SIGHT_OLD_HOLD, WRONG_NOTHING, 90000, "a");
    if (sights > 1)
        at = put_sight(at, 0, WRONG_EXPIRY, 0, "another");
    return (size_t)(at - out);
}

/* It goes last and alone, has no keys, and says where to go on. */
START_TEST(step)
{
    struct srig *rig = srig_single();
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
    srig_turn(rig);
    srig_expect(rig, 0, "EVALSHA 1");
    expect_script(rig, 0);
    ck_assert_mem_eq(rig->words[3].at + 4, "broker-1", 8);
    ck_assert_uint_eq(rig->words[4].len, 20 + 20);
    ck_assert_mem_eq(rig->words[4].at, "\x32\0\0\0", 4);
    memcpy(ages, rig->words[4].at + 4, sizeof(ages));
    ck_assert_double_eq(ages[0], 1000);
    ck_assert_double_eq(ages[1], 2000);
    ck_assert_mem_eq(rig->words[4].at + 20, "18446744073709551615", 20);
    srig_results(rig, 0, 1, RECORD_GONE);
    srig_status(rig, inspect, OP_GONE);
    srig_bytes(rig, 0, bytes, answer(rig, bytes, "4711", 2));
    srig_status(rig, op, OP_OK);
    ck_assert_uint_eq(audit->cursor, 4711);
    ck_assert_uint_eq(audit->records, 7);
    ck_assert_uint_eq(audit->holds, 3);
    ck_assert_uint_eq(audit->waits, 2);
    ck_assert_uint_eq(audit->left, 1);
    ck_assert_uint_eq(audit->sight_count, 2);
    ck_assert_uint_eq(audit->sights[0].flags, SIGHT_OLD_HOLD);
    ck_assert_uint_eq(audit->sights[0].hold_ms, 90000);
    ck_assert_uint_eq(audit->sights[1].wrong, WRONG_EXPIRY);
    ck_assert_uint_eq(audit->sights[1].name.len, 7);
    srig_end(rig);
}

END_TEST

/* What is cut off, or is none, is no answer. */
START_TEST(no_answers)
{
    struct srig *rig = srig_single();
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
    srig_end(rig);
}

END_TEST

/* It is loaded when it is asked for, and alone. */
START_TEST(script_is_loaded)
{
    struct srig *rig = srig_single();
    struct op *op = srig_op(rig, OP_AUDIT, 0);
    char bytes[400];

    srig_turn(rig);
    expect_script(rig, 0);
    srig_error(rig, 0, "NOSCRIPT No matching script. Please use EVAL.");
    srig_turn(rig);
    srig_expect(rig, 0, "LOAD");
    ck_assert(text_equal(rig->words[2],
        text_make(scripts[SCRIPT_AUDIT].body, scripts[SCRIPT_AUDIT].body_len)));
    srig_answer(rig, 0);
    expect_script(rig, 0);
    srig_expect(rig, 0, "");
    srig_bytes(rig, 0, bytes, answer(rig, bytes, "0", 0));
    srig_status(rig, op, OP_OK);
    ck_assert_uint_eq(op->audit->cursor, 0);
    srig_end(rig);
}

END_TEST

/* Whatever is said against it, it is not asked again. */
START_TEST(refusals)
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
    struct srig *rig = srig_cluster();

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
    srig_end(rig);
}

END_TEST

/* The nodes of a cluster, of a quorum; one after the other, and an end. */
START_TEST(nodes)
{
    struct srig *rig = _i == 0 ? srig_cluster() : srig_quorum(3);
    char bytes[400];

    for (uint32_t node = 0; node < 3; node++) {
        struct op *op = srig_draft(rig, OP_AUDIT, 0);
        op->audit->node = node;
        op->audit->cursor = 5;
        srig_submit(rig, op);
        srig_turn(rig);
        expect_script(rig, node);
        srig_bytes(rig, node, bytes, answer(rig, bytes, "9", 1));
        srig_status(rig, op, OP_OK);
        ck_assert_uint_eq(op->audit->node, node);
        ck_assert_uint_gt(strlen(op->audit->name), 0);
    }
    struct op *op = srig_draft(rig, OP_AUDIT, 0);
    op->audit->node = 3;
    srig_submit(rig, op);
    srig_turn(rig);
    srig_status(rig, op, OP_GONE);
    srig_end(rig);
}

END_TEST

/* A node without slots is passed over, and where another begins, so does its
 * first step. */
START_TEST(node_without_slots)
{
    struct srig *rig = srig_cluster();

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
    srig_results(rig, 1, 1, RECORD_OK);
    srig_status(rig, op, OP_REFUSED);
    srig_end(rig);
}

END_TEST

/* The mark: in a slot of the node, for whoever is the first. */
START_TEST(mark)
{
    struct srig *rig = srig_cluster();
    struct op *op = srig_draft(rig, OP_AUDIT, 0);

    op->audit->node = 1;
    op->audit->mark_ms = 540000;
    srig_submit(rig, op);
    srig_turn(rig);
    srig_expect(rig, 1, "SET holdfast:audit:{1324} broker-1 PX 540000 NX");
    srig_reply(rig, 1, &(struct resp){.type = RESP_STATUS, .text = TEXT("OK")});
    srig_status(rig, op, OP_OK);
    op = srig_draft(rig, OP_AUDIT, 0);
    op->audit->mark_ms = 2000;
    srig_submit(rig, op);
    srig_turn(rig);
    ck_assert_ptr_nonnull(strstr(srig_next(rig, 0), " NX"));
    srig_reply(rig, 0, &(struct resp){.type = RESP_NIL});
    srig_status(rig, op, OP_BUSY);
    op = srig_draft(rig, OP_AUDIT, 0);
    op->audit->mark_ms = 2000;
    op->audit->marked = true;
    srig_submit(rig, op);
    srig_turn(rig);
    ck_assert_ptr_null(strstr(srig_next(rig, 0), " NX"));
    srig_error(rig, 0, "OOM command not allowed");
    srig_status(rig, op, OP_UNSENT);
    srig_end(rig);
}

END_TEST

Suite *
store_audit_suite(void)
{
    Suite *suite = suite_create("store_audit");
    TCase *tests = tcase_create("store_audit");

    tcase_add_test(tests, step);
    tcase_add_test(tests, no_answers);
    tcase_add_test(tests, script_is_loaded);
    tcase_add_test(tests, refusals);
    tcase_add_loop_test(tests, nodes, 0, 2);
    tcase_add_test(tests, node_without_slots);
    tcase_add_test(tests, mark);
    suite_add_tcase(suite, tests);
    return suite;
}

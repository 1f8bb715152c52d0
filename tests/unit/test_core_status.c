/*
 * Tests of daemon/core/feature/status.c and health.c: what STATUS tells of the
 * Redis nodes, and what a client is told where a lock cannot be granted.
 */
#include "daemon/op/op.h"
#include "tests/unit/core_rig.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

Suite *core_status_suite(void);

/* Three nodes, of which the second one is down and the third one settles. */
static struct health *
begin(struct rig *rig)
{
    struct health *health = calloc(1, sizeof(*health));

    ck_assert_ptr_nonnull(health);
    *health =
        (struct health){.reason = HEALTH_REFUSED, .node = 1, .node_count = 4};
    for (unsigned i = 0; i < 3; i++) {
        health->nodes[i].needed = true;
        health->nodes[i].connected = true;
        memcpy(health->nodes[i].name, "a:7000", 7);
        health->nodes[i].name[5] = (char)('0' + i);
    }
    health->since_us = rig->now_us;
    health->nodes[0].since_us = rig->now_us;
    health->nodes[1].since_us = rig->now_us + 1000;
    health->nodes[1].reason = HEALTH_REFUSED;
    health->nodes[1].connected = false;
    memcpy(health->nodes[1].said, "no <luck>", 10);
    health->nodes[2].sentinel = true;
    health->nodes[2].reason = HEALTH_SETTLING;
    health->nodes[2].until_us = rig->now_us + 7001000;
    core_set_health(rig->core, health);
    return health;
}

START_TEST(nodes)
{
    struct rig *rig = rig_new();
    struct health *health = begin(rig);
    unsigned a = rig_open(rig);

    rig_pass(rig, 2);
    rig_ask(rig, a, "1 STATUS",
        "1 ITEM kind=node node=a:7000 role=redis state=ready since_ms=2");
    rig_expect(rig, a,
        "1 ITEM kind=node node=a:7001 role=redis state=away since_ms=1 "
        "reason=refused");
    rig_expect(rig, a,
        "1 ITEM kind=node node=a:7002 role=sentinel state=settling since_ms=~ "
        "reason=settling after_ms=7000");
    rig_expect(rig, a,
        "1 OK ready=0 since_ms=2 reason=refused node=a:7001 broker=~ server=~ "
        "n=3");
    health->nodes[1].connected = true;
    health->ready = true;
    rig_ask(rig, a, "2 STATUS", "2 ITEM kind=node node=a:7000 ~ ~ ~");
    rig_expect(rig, a,
        "2 ITEM kind=node node=a:7001 role=redis state=refusing ~ "
        "reason=refused");
    rig_expect(rig, a, "2 ITEM kind=node node=a:7002 ~ ~ ~ ~ ~");
    rig_expect(rig, a, "2 OK ready=1 since_ms=2 broker=~ server=~ n=3");
    rig_end(rig);
    free(health);
}

END_TEST

/* Each lock's own node is to blame, and where none is known, any. */
START_TEST(refused_for_a_reason)
{
    static uint16_t slots[SLOT_COUNT];
    struct rig *rig = rig_new();
    struct health *health = begin(rig);
    unsigned a = rig_open(rig);

    rig_say(rig, a, "1 LOCK x wait=0");
    rig_status(rig, rig_op(rig, OP_ACQUIRE), OP_UNSENT);
    rig_expect(rig, a, "1 ERR UNAVAILABLE retry=1 reason=refused");
    rig_say(rig, a, "2 SHOW x");
    rig_status(rig, rig_op(rig, OP_INSPECT), OP_UNSENT);
    rig_expect(rig, a, "2 ERR UNAVAILABLE retry=1 reason=refused");
    health->slots = slots;
    rig_say(rig, a, "3 LOCK x wait=0"); /* at the first node */
    rig_status(rig, rig_op(rig, OP_ACQUIRE), OP_UNSENT);
    rig_expect(rig, a, "3 ERR UNAVAILABLE retry=1");
    for (unsigned i = 0; i < SLOT_COUNT; i++)
        slots[i] = 2;
    rig_say(rig, a, "4 LOCK x y wait=0");
    rig_status(rig, rig_op(rig, OP_ACQUIRE), OP_UNSENT);
    rig_expect(rig, a, "4 ERR UNAVAILABLE retry=1 reason=settling name=~");
    for (unsigned i = 0; i < SLOT_COUNT; i++)
        slots[i] = HEALTH_NO_NODE;
    rig_say(rig, a, "5 LOCK x wait=0");
    rig_status(rig, rig_op(rig, OP_ACQUIRE), OP_UNSENT);
    rig_expect(rig, a, "5 ERR UNAVAILABLE retry=1 reason=slots");
    rig_end(rig);
    free(health);
}

END_TEST

/* The words of a wait for Redis to settle. */
RIG_TEST(waits_for_settling, rig_new())
{
    unsigned a = rig_open(rig);

    rig_say(rig, a, "1 LOCK x progress=1");
    rig_finish(rig, rig_op(rig, OP_ACQUIRE),
        (struct op_result){.status = OP_WAITING,
            .unsettled = true,
            .again_ms = 5000,
            .ahead = 1,
            .arrival = 3});
    rig_expect(rig, a, "1 QUEUED position=1 reason=settling after_ms=5001");
}

START_TEST(texts)
{
    struct health_node node = {.name = "a:7000", .said = "no <luck>"};
    struct health_why why = {HEALTH_REFUSED, &node};
    char text[HEALTH_TEXT_MAX];

    ck_assert_str_eq(health_text(&why, true, text),
        "a:7000: nothing listens at this address (no <luck>); start Redis, or "
        "correct redis.nodes");
    snprintf(node.said, sizeof(node.said), "nothing listens at this address");
    ck_assert_str_eq(health_text(&why, true, text),
        "a:7000: nothing listens at this address; start Redis, or correct "
        "redis.nodes");
    why.node = NULL;
    ck_assert_str_eq(health_text(&why, true, text),
        "nothing listens at this address; start Redis, or correct redis.nodes");
    /* The longest of all has room, and each has words. */
    memset(node.name, 'n', sizeof(node.name) - 1);
    memset(node.said, 's', sizeof(node.said) - 1);
    why.node = &node;
    for (int i = HEALTH_FINE + 1; i < HEALTH_REASON_COUNT; i++) {
        why.reason = (enum health_reason)i;
        ck_assert_uint_gt(strlen(health_text(&why, true, text)), 200);
        ck_assert_uint_gt(strlen(health_word(why.reason)), 0);
    }
    ck_assert_int_eq(health_why_slot(NULL, 0).reason, HEALTH_FINE);
}

END_TEST

Suite *
core_status_suite(void)
{
    Suite *suite = suite_create("core_status");
    TCase *tests = tcase_create("status");

    tcase_add_test(tests, nodes);
    tcase_add_test(tests, refused_for_a_reason);
    tcase_add_test(tests, waits_for_settling);
    tcase_add_test(tests, texts);
    suite_add_tcase(suite, tests);
    return suite;
}

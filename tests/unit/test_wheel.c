/*
 * Tests of daemon/base/wheel: by hand where the edges are, then at random
 * against a model that looks at every node.
 */
#include "daemon/base/wheel.h"
#include "tests/unit/seed.h"

#include <check.h>

#define TICK   1024ull
#define NODES  200u
#define ROUNDS 60000
#define DAY    86400000000ull

Suite *wheel_suite(void);

START_TEST(never_early)
{
    struct wheel wheel;
    struct wheel_node node;

    wheel_init(&wheel, 5 * TICK + 10);
    wheel_node_init(&node, 7);
    ck_assert_uint_eq(node.kind, 7);
    ck_assert(!wheel_node_set(&node));
    ck_assert_uint_eq(wheel_next_us(&wheel), WHEEL_NEVER);
    ck_assert_ptr_null(wheel_pop(&wheel, 5 * TICK + 11));
    wheel_add(&wheel, &node, 9 * TICK + 1);
    ck_assert_uint_eq(wheel_next_us(&wheel), 10 * TICK);
    ck_assert_ptr_null(wheel_pop(&wheel, 10 * TICK - 1));
    wheel_check(&wheel);
    ck_assert_ptr_eq(wheel_pop(&wheel, 10 * TICK), &node);
    ck_assert(!wheel_node_set(&node));
    ck_assert_ptr_null(wheel_pop(&wheel, 10 * TICK));
    ck_assert_uint_eq(wheel.count, 0);
    /* On a tick's beginning exactly, and in what has been already. */
    wheel_add(&wheel, &node, 12 * TICK);
    ck_assert_ptr_eq(wheel_pop(&wheel, 12 * TICK), &node);
    wheel_add(&wheel, &node, 3);
    ck_assert_uint_le(wheel_next_us(&wheel), 12 * TICK);
    wheel_check(&wheel);
    ck_assert_ptr_eq(wheel_pop(&wheel, 12 * TICK), &node);
}

END_TEST

START_TEST(move_and_remove)
{
    struct wheel wheel;
    struct wheel_node one;
    struct wheel_node two;

    wheel_init(&wheel, 0);
    wheel_node_init(&one, 0);
    wheel_node_init(&two, 0);
    wheel_add(&wheel, &one, 100 * TICK);
    wheel_add(&wheel, &two, 100 * TICK);
    wheel_remove(&wheel, &one);
    wheel_remove(&wheel, &one);
    wheel_check(&wheel);
    ck_assert_uint_eq(wheel.count, 1);
    wheel_remove(&wheel, &two);
    ck_assert_uint_eq(wheel_next_us(&wheel), WHEEL_NEVER);
    wheel_add(&wheel, &one, 50 * TICK);
    wheel_add(&wheel, &one, DAY);
    wheel_add(&wheel, &one, 70 * TICK);
    wheel_check(&wheel);
    ck_assert_uint_eq(wheel.count, 1);
    ck_assert_ptr_null(wheel_pop(&wheel, 69 * TICK));
    wheel_add(&wheel, &two, 69 * TICK); /* due, and then moved away again */
    wheel_add(&wheel, &two, WHEEL_NEVER);
    ck_assert(!wheel_node_set(&two));
    wheel_check(&wheel);
    ck_assert_ptr_eq(wheel_pop(&wheel, 70 * TICK), &one);
    ck_assert_uint_eq(wheel.count, 0);
}

END_TEST

START_TEST(clock_backwards)
{
    struct wheel wheel;
    struct wheel_node node;

    wheel_init(&wheel, DAY);
    wheel_node_init(&node, 0);
    ck_assert_ptr_null(wheel_pop(&wheel, DAY + 1000 * TICK));
    wheel_add(&wheel, &node, DAY + 900 * TICK);
    ck_assert_ptr_eq(wheel_pop(&wheel, DAY + 10 * TICK), &node);
    wheel_add(&wheel, &node, DAY + 1002 * TICK);
    ck_assert_ptr_null(wheel_pop(&wheel, DAY + 10 * TICK));
    ck_assert_ptr_null(wheel_pop(&wheel, 0));
    wheel_check(&wheel);
    ck_assert_ptr_eq(wheel_pop(&wheel, DAY + 1002 * TICK), &node);
}

END_TEST

/* Follows the wheel's own wake-ups for a while, then leaps to the end. */
static void
follow(uint64_t now_us, uint64_t due_us)
{
    struct wheel wheel;
    struct wheel_node node;

    wheel_init(&wheel, now_us);
    wheel_node_init(&node, 0);
    wheel_add(&wheel, &node, due_us);
    for (int wakes = 0; wakes < 100 && wheel_node_set(&node); wakes++) {
        uint64_t next = wheel_next_us(&wheel);

        wheel_check(&wheel);
        ck_assert_uint_gt(next, now_us);
        ck_assert(next <= due_us || next - due_us < TICK);
        now_us = next;
        if (now_us < due_us)
            ck_assert_ptr_null(wheel_pop(&wheel, now_us));
        else
            ck_assert_ptr_eq(wheel_pop(&wheel, now_us), &node);
    }
    if (wheel_node_set(&node)) {
        ck_assert_ptr_null(wheel_pop(&wheel, due_us - 1));
        wheel_check(&wheel);
        ck_assert_ptr_eq(wheel_pop(&wheel, due_us + TICK), &node);
    }
    ck_assert_uint_eq(wheel_next_us(&wheel), WHEEL_NEVER);
}

START_TEST(beyond_the_range)
{
    static const uint64_t days[] = {600, 813, 815, 830, 3000, 100000};
    uint64_t range = TICK << 36;

    for (size_t i = 0; i < sizeof(days) / sizeof(days[0]); i++) {
        follow(0, days[i] * DAY + 5);
        follow(1000 * DAY + 12345, (1000 + days[i]) * DAY);
        follow(range - 1, range + days[i] * DAY);
    }
}

END_TEST

static uint64_t
ceiling(uint64_t time_us)
{
    return (time_us + TICK - 1) / TICK;
}

/* Very many nodes are due in one slot of a higher level. They are sorted in
 * portions before it is entered, so that no call moves all of them. Those that
 * are moved or taken off meanwhile are not lost. */
START_TEST(many_in_one_slot)
{
    static struct wheel_node nodes[20000];
    static struct wheel wheel;
    const size_t many = sizeof(nodes) / sizeof(nodes[0]);
    const uint64_t slot = 64 * 64 * TICK;
    size_t got = 0;
    uint64_t last = 0;

    wheel_init(&wheel, 0);
    for (size_t i = 0; i < many; i++) {
        wheel_node_init(&nodes[i], 0);
        wheel_add(&wheel, &nodes[i], slot + i * 131);
    }
    for (uint64_t now = TICK; now < slot - 100 * TICK; now += TICK)
        ck_assert_ptr_null(wheel_pop(&wheel, now));
    ck_assert(list_empty(&wheel.slots[2][1]));
    wheel_check(&wheel);
    for (size_t i = 0; i < many; i += 3)
        wheel_remove(&wheel, &nodes[i]);
    for (size_t i = 1; i < many; i += 3)
        wheel_add(&wheel, &nodes[i], slot + i * 97);
    wheel_check(&wheel);
    for (uint64_t now = slot - 100 * TICK; wheel.count > 0; now += TICK) {
        const struct wheel_node *node;
        while ((node = wheel_pop(&wheel, now)) != NULL) {
            size_t at = (size_t)(node - nodes);
            uint64_t due = slot + at * (at % 3 == 1 ? 97 : 131);
            ck_assert_uint_ne(at % 3, 0);
            ck_assert_uint_eq(ceiling(due), now / TICK);
            ck_assert_uint_ge(now, last);
            last = now;
            got++;
        }
    }
    ck_assert_uint_eq(got, many - (many + 2) / 3);
    ck_assert_uint_eq(wheel_next_us(&wheel), WHEEL_NEVER);
    wheel_check(&wheel);
}

END_TEST

START_TEST(end_of_time)
{
    struct wheel wheel;
    struct wheel_node node;

    wheel_init(&wheel, DAY);
    wheel_node_init(&node, 0);
    wheel_add(&wheel, &node, WHEEL_NEVER - 1);
    wheel_check(&wheel);
    ck_assert_ptr_null(wheel_pop(&wheel, 1000000 * DAY));
    wheel_check(&wheel);
    ck_assert_uint_gt(wheel_next_us(&wheel), 1000000 * DAY);
    wheel_remove(&wheel, &node);
    ck_assert_uint_eq(wheel.count, 0);
}

END_TEST

struct model {
    struct wheel wheel;
    struct random random;
    struct wheel_node nodes[NODES];
    uint64_t due_us[NODES]; /* as the model sees it */
    bool late[NODES];       /* was due already when it was added */
    uint64_t now_us;        /* of the clock */
    uint64_t seen_us;       /* the latest that the wheel was told */
};

/* Times of all sizes: as likely a tick as a year. */
static uint64_t
some_span(struct random *random)
{
    return random_next(random) >> (18 + random_below(random, 46));
}

static void
model_set(struct model *model)
{
    uint32_t at = (uint32_t)random_below(&model->random, NODES);
    uint64_t due = model->now_us + some_span(&model->random);

    switch (random_below(&model->random, 10)) {
    case 0:
        wheel_remove(&model->wheel, &model->nodes[at]);
        model->due_us[at] = WHEEL_NEVER;
        return;
    case 1: /* in the past */
        due = model->now_us - random_below(&model->random, model->now_us);
        break;
    case 2: /* together with others */
        due = (due | 0xfffff) + 1;
        break;
    default:
        break;
    }
    wheel_add(&model->wheel, &model->nodes[at], due);
    model->due_us[at] = due;
    model->late[at] = ceiling(due) <= model->seen_us / TICK;
}

/* The earliest tick of the model's nodes; WHEEL_NEVER: there are none. */
static uint64_t
model_next_tick(const struct model *model)
{
    uint64_t next = WHEEL_NEVER;

    for (uint32_t i = 0; i < NODES; i++) {
        if (model->due_us[i] != WHEEL_NEVER && ceiling(model->due_us[i]) < next)
            next = ceiling(model->due_us[i]);
    }
    return next;
}

static void
model_turn(struct model *model)
{
    struct wheel_node *node;
    uint64_t last_tick = 0;
    uint64_t tick;

    if (model->now_us > model->seen_us)
        model->seen_us = model->now_us;
    tick = model->seen_us / TICK;
    while ((node = wheel_pop(&model->wheel, model->now_us)) != NULL) {
        size_t at = (size_t)(node - model->nodes);

        ck_assert_uint_ne(model->due_us[at], WHEEL_NEVER);
        ck_assert_uint_le(ceiling(model->due_us[at]), tick);
        if (!model->late[at]) {
            ck_assert_uint_ge(ceiling(model->due_us[at]), last_tick);
            last_tick = ceiling(model->due_us[at]);
        }
        model->due_us[at] = WHEEL_NEVER;
    }
    ck_assert_uint_gt(model_next_tick(model), tick);
}

static void
model_compare(const struct model *model)
{
    uint64_t next = model_next_tick(model);
    uint64_t told = wheel_next_us(&model->wheel);
    size_t count = 0;

    wheel_check(&model->wheel);
    for (uint32_t i = 0; i < NODES; i++) {
        ck_assert_uint_eq(model->nodes[i].due_us, model->due_us[i]);
        count += model->due_us[i] != WHEEL_NEVER;
    }
    ck_assert_uint_eq(model->wheel.count, count);
    if (next == WHEEL_NEVER)
        ck_assert_uint_eq(told, WHEEL_NEVER);
    else if (next <= model->seen_us / TICK)
        ck_assert_uint_le(told, model->seen_us);
    else
        ck_assert_uint_le(told, next * TICK);
}

static void
model_pass_time(struct model *model)
{
    uint64_t told = wheel_next_us(&model->wheel);

    switch (random_below(&model->random, 4)) {
    case 0: /* a leap, of days at times */
        model->now_us += some_span(&model->random) >> 8;
        break;
    case 1: /* back a little */
        model->now_us -= random_below(&model->random, 100 * TICK);
        break;
    case 2: /* as a loop does */
        if (told != WHEEL_NEVER && told > model->now_us &&
            told < model->now_us + 10 * DAY)
            model->now_us = told;
        break;
    default:
        model->now_us += random_below(&model->random, 5 * TICK);
    }
    model_turn(model);
}

static void
model_run(uint64_t start_us)
{
    static struct model model;

    seed_random(&model.random, "wheel");
    model.now_us = start_us;
    model.seen_us = start_us / TICK * TICK;
    wheel_init(&model.wheel, start_us);
    if (start_us >= TICK)
        model.seen_us -= TICK; /* the tick of the start is yet to come */
    for (uint32_t i = 0; i < NODES; i++) {
        wheel_node_init(&model.nodes[i], i);
        model.due_us[i] = WHEEL_NEVER;
    }
    for (int round = 0; round < ROUNDS; round++) {
        if (random_below(&model.random, 3) != 0)
            model_set(&model);
        else
            model_pass_time(&model);
        if (round % 20 == 0)
            model_compare(&model);
    }
}

START_TEST(random_against_model)
{
    model_run(DAY);
}

END_TEST

/* The last level wraps at 2^36 ticks, about 814 days. */
START_TEST(random_over_the_wrap)
{
    model_run(((1ull << 36) - 5000) * TICK);
}

END_TEST

Suite *
wheel_suite(void)
{
    Suite *suite = suite_create("wheel");
    TCase *tests = tcase_create("all");

    tcase_set_timeout(tests, 120);
    tcase_add_test(tests, never_early);
    tcase_add_test(tests, move_and_remove);
    tcase_add_test(tests, clock_backwards);
    tcase_add_test(tests, beyond_the_range);
    tcase_add_test(tests, many_in_one_slot);
    tcase_add_test(tests, end_of_time);
    tcase_add_test(tests, random_against_model);
    tcase_add_test(tests, random_over_the_wrap);
    suite_add_tcase(suite, tests);
    return suite;
}

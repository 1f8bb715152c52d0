/*
 * Tests of daemon/base/log_limit: how many lines pass, and what is told of the
 * others.
 */
#include "daemon/base/log_limit.h"

#include <check.h>

#include <stdio.h>

Suite *log_limit_suite(void);

#define SECOND ((uint64_t)1000000)

static struct log_limit limit;

/* How many of `lines` pass. */
static uint32_t
passed(const char *event, uint32_t lines, uint64_t now_us)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < lines; i++)
        count += log_limit_take(&limit, LOG_WARN, event, now_us);
    return count;
}

START_TEST(a_rate_for_each_event)
{
    log_limit_init(&limit, 50);
    ck_assert_uint_eq(passed("a", 1000, 5 * SECOND), 50);
    ck_assert_uint_eq(passed("b", 1000, 5 * SECOND), 50);
    ck_assert_uint_eq(passed("a", 1000, 5 * SECOND + SECOND / 50 - 1), 0);
    ck_assert_uint_eq(passed("a", 1000, 5 * SECOND + SECOND / 50), 1);
    ck_assert_uint_eq(passed("a", 1000, 6 * SECOND), 49);
    /* No more than that at once, however long it was silent. */
    ck_assert_uint_eq(passed("a", 1000, 60 * SECOND), 50);
}

END_TEST

START_TEST(any_rate)
{
    static const uint32_t rates[] = {1, 3, 7, 1000, LOG_LIMIT_RATE_MAX};

    for (size_t i = 0; i < sizeof(rates) / sizeof(rates[0]); i++) {
        log_limit_init(&limit, rates[i]);
        ck_assert_uint_eq(passed("a", 2 * rates[i], 0), rates[i]);
        ck_assert_uint_eq(passed("a", 2 * rates[i], SECOND), rates[i]);
    }
}

END_TEST

START_TEST(no_limit)
{
    struct log_held_back held_back;

    log_limit_init(&limit, 0);
    ck_assert_uint_eq(passed("a", 100000, 0), 100000);
    ck_assert(!log_limit_tell(&limit, &held_back));
}

END_TEST

START_TEST(what_is_told)
{
    struct log_held_back held_back;

    log_limit_init(&limit, 1);
    ck_assert(!log_limit_tell(&limit, &held_back));
    passed("a", 4, 0);
    passed("b", 1, 0);
    passed("c", 2, 0);
    (void)log_limit_take(&limit, LOG_ERROR, "a", 0);
    (void)log_limit_take(&limit, LOG_INFO, "a", 0);
    ck_assert(log_limit_tell(&limit, &held_back));
    ck_assert_str_eq(held_back.event, "a");
    ck_assert_uint_eq(held_back.lines, 5);
    ck_assert_int_eq(held_back.level, LOG_ERROR);
    ck_assert(log_limit_tell(&limit, &held_back));
    ck_assert_str_eq(held_back.event, "c");
    ck_assert_uint_eq(held_back.lines, 1);
    ck_assert_int_eq(held_back.level, LOG_WARN);
    ck_assert(!log_limit_tell(&limit, &held_back));
    (void)log_limit_take(&limit, LOG_INFO, "a", 0);
    ck_assert(log_limit_tell(&limit, &held_back));
    ck_assert_uint_eq(held_back.lines, 1);
    ck_assert_int_eq(held_back.level, LOG_INFO);
}

END_TEST

START_TEST(too_many_events)
{
    struct log_held_back held_back;
    uint64_t lines = 0;
    uint32_t told = 0;
    char event[60];

    log_limit_init(&limit, 1);
    for (int i = 0; i < 2 * LOG_LIMIT_EVENTS_MAX; i++) {
        snprintf(event, sizeof(event), "%03d_with_a_name_that_is_too_long", i);
        passed(event, 10, 0);
    }
    while (log_limit_tell(&limit, &held_back)) {
        lines += held_back.lines;
        told++;
    }
    ck_assert_uint_eq(told, LOG_LIMIT_EVENTS_MAX);
    ck_assert_uint_eq(lines, 20 * LOG_LIMIT_EVENTS_MAX - told);
    ck_assert_str_eq(held_back.event, "127_with_a_name_that_is_too_lon");
}

END_TEST

Suite *
log_limit_suite(void)
{
    Suite *suite = suite_create("log_limit");
    TCase *tests = tcase_create("all");

    tcase_add_test(tests, a_rate_for_each_event);
    tcase_add_test(tests, any_rate);
    tcase_add_test(tests, no_limit);
    tcase_add_test(tests, what_is_told);
    tcase_add_test(tests, too_many_events);
    suite_add_tcase(suite, tests);
    return suite;
}

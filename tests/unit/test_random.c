/*
 * Tests of daemon/base/random: the same from the same seed, even, in bounds.
 */
#include "daemon/base/random.h"

#include <check.h>

Suite *random_suite(void);

START_TEST(reference)
{
    /* The first outputs of the authors' xoshiro256starstar.c. */
    struct random random = {{1, 2, 3, 4}};

    ck_assert_uint_eq(random_next(&random), 11520);
    ck_assert_uint_eq(random_next(&random), 0);
    ck_assert_uint_eq(random_next(&random), 1509978240);
    ck_assert_uint_eq(random_next(&random), 1215971899390074240);
}

END_TEST

START_TEST(seeds)
{
    struct random one;
    struct random same;
    struct random other;

    random_init(&one, 0);
    random_init(&same, 0);
    random_init(&other, 1);
    /* The first of splitmix64 from 0. */
    ck_assert_uint_eq(one.state[0], 0xe220a8397b1dcdaf);
    for (int i = 0; i < 100; i++) {
        uint64_t value = random_next(&one);

        ck_assert_uint_eq(random_next(&same), value);
        ck_assert_uint_ne(random_next(&other), value);
    }
}

END_TEST

START_TEST(below)
{
    struct random random;
    unsigned seen[7] = {0};

    random_init(&random, 42);
    for (int i = 0; i < 70000; i++)
        seen[random_below(&random, 7)]++;
    for (int i = 0; i < 7; i++)
        ck_assert(seen[i] > 9500 && seen[i] < 10500);
    for (int i = 0; i < 1000; i++) {
        ck_assert_uint_eq(random_below(&random, 1), 0);
        ck_assert_uint_lt(random_below(&random, UINT64_MAX), UINT64_MAX);
        ck_assert_uint_le(random_below(&random, (1ull << 63) + 1), 1ull << 63);
    }
}

END_TEST

Suite *
random_suite(void)
{
    Suite *suite = suite_create("random");
    TCase *tests = tcase_create("all");

    tcase_add_test(tests, reference);
    tcase_add_test(tests, seeds);
    tcase_add_test(tests, below);
    suite_add_tcase(suite, tests);
    return suite;
}

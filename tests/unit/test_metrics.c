/*
 * Tests of daemon/base/histogram, daemon/core/spaces and daemon/core/counters:
 * what is counted where, and what Prometheus is told of it.
 */
#include "daemon/base/histogram.h"
#include "daemon/core/model/namespaces.h"
#include "daemon/op/counters.h"

#include <check.h>

#include <stddef.h>
#include <string.h>

Suite *metrics_suite(void);

START_TEST(bounds_grow)
{
    const struct histogram_scale *scales[] = {
        &histogram_calls, &histogram_waits, &histogram_shares};

    for (size_t i = 0; i < sizeof(scales) / sizeof(scales[0]); i++) {
        ck_assert_uint_gt(scales[i]->bounds, 0);
        ck_assert_uint_le(scales[i]->bounds, HISTOGRAM_BOUNDS);
        for (uint32_t j = 1; j < scales[i]->bounds; j++)
            ck_assert_uint_lt(scales[i]->bound[j - 1], scales[i]->bound[j]);
    }
}

END_TEST

START_TEST(a_value_is_at_most_its_bound)
{
    const struct histogram_scale *scale = &histogram_calls;

    for (uint32_t i = 0; i < scale->bounds; i++) {
        struct histogram histogram = {0};
        histogram_add(&histogram, scale, scale->bound[i]);
        ck_assert_uint_eq(histogram.count[i], 1);
        histogram_add(&histogram, scale, scale->bound[i] + 1);
        ck_assert_uint_eq(histogram.count[i + 1], 1);
        ck_assert_uint_eq(histogram.sum, 2 * scale->bound[i] + 1);
    }
    struct histogram histogram = {0};
    histogram_add(&histogram, scale, 0);
    histogram_add(&histogram, scale, UINT64_MAX / 2);
    ck_assert_uint_eq(histogram.count[0], 1);
    ck_assert_uint_eq(histogram.count[scale->bounds], 1);
}

END_TEST

static const char *
namespace_at(const struct namespaces *namespaces, const char *name)
{
    static char text[NAMESPACE_PREFIX_BYTES + 1];
    uint8_t at = namespaces_find(namespaces, text_from(name));
    struct text found = namespace_name(&namespaces->namespace[at]);

    memcpy(text, found.at, found.len);
    text[found.len] = '\0';
    return text;
}

START_TEST(the_longest_prefix_counts)
{
    const struct text prefixes[] = {
        TEXT("stock/"), TEXT("stock/cups/"), TEXT("job")};
    struct namespaces namespaces;

    namespaces_init(&namespaces, prefixes, 3);
    ck_assert_uint_eq(namespaces.count, 4);
    ck_assert_str_eq(namespace_at(&namespaces, "stock/4711"), "stock/");
    ck_assert_str_eq(namespace_at(&namespaces, "stock/"), "stock/");
    ck_assert_str_eq(namespace_at(&namespaces, "stock"), "other");
    ck_assert_str_eq(namespace_at(&namespaces, "stock/cups/1"), "stock/cups/");
    ck_assert_str_eq(namespace_at(&namespaces, "stock/cups"), "stock/");
    ck_assert_str_eq(namespace_at(&namespaces, "jobs"), "job");
    ck_assert_str_eq(namespace_at(&namespaces, "Job"), "other");
    ck_assert_uint_eq(namespaces_find(&namespaces, TEXT("x")), 3);
}

END_TEST

START_TEST(none_but_the_others)
{
    struct namespaces namespaces;

    namespaces_init(&namespaces, NULL, 0);
    ck_assert_uint_eq(namespaces.count, 1);
    ck_assert_str_eq(namespace_at(&namespaces, "anything"), "other");
}

END_TEST

START_TEST(as_many_as_there_may_be)
{
    char longest[NAMESPACES_MAX][NAMESPACE_PREFIX_BYTES];
    struct text prefixes[NAMESPACES_MAX];
    struct namespaces namespaces;

    for (size_t i = 0; i < NAMESPACES_MAX; i++) {
        memset(longest[i], (int)('A' + i), NAMESPACE_PREFIX_BYTES);
        prefixes[i] = text_make(longest[i], NAMESPACE_PREFIX_BYTES);
    }
    namespaces_init(&namespaces, prefixes, NAMESPACES_MAX);
    for (size_t i = 0; i < NAMESPACES_MAX; i++)
        ck_assert_uint_eq(namespaces_find(&namespaces, prefixes[i]), i);
    ck_assert_uint_eq(
        namespaces_find(&namespaces, text_make(longest[0], 8)), NAMESPACES_MAX);
}

END_TEST

/* Those that stay go on, wherever they stand; a new one begins at nothing. */
START_TEST(others_in_their_place)
{
    const struct text before[] = {TEXT("a/"), TEXT("b/"), TEXT("c/")};
    const struct text after[] = {TEXT("c/"), TEXT("d/"), TEXT("b/"), TEXT("e")};

    const struct {
        const char *name;
        uint64_t counted;
    } table[] = {
        {"c/", 12},
        {"d/", 0},
        {"b/", 11},
        {"e", 0},
        {"other", 13},
    };
    struct namespaces namespaces;

    namespaces_init(&namespaces, before, 3);
    for (uint32_t i = 0; i < 4; i++) {
        namespaces.namespace[i].value[NAMESPACE_granted] = 10 + i;
        namespaces.namespace[i].wait.sum = 10 + i;
    }
    namespaces_change(&namespaces, after, 4);
    ck_assert_uint_eq(namespaces.count, 5);
    ck_assert_uint_eq(namespaces.serial, 1);
    for (uint32_t i = 0; i < 5; i++) {
        const struct namespace *namespace = &namespaces.namespace[i];
        ck_assert(
            text_equal(namespace_name(namespace), text_from(table[i].name)));
        ck_assert_uint_eq(
            namespace->value[NAMESPACE_granted], table[i].counted);
        ck_assert_uint_eq(namespace->wait.sum, table[i].counted);
    }
    namespaces_change(&namespaces, NULL, 0);
    ck_assert_uint_eq(namespaces.namespace[0].value[NAMESPACE_granted], 13);
    ck_assert_str_eq(namespace_at(&namespaces, "b/1"), "other");
}

END_TEST

/* Prometheus wants all of a family together. */
START_TEST(families_are_together)
{
    const char *seen[COUNTER_COUNT];
    struct metric metric;
    size_t count = 0;

    for (enum counter i = 0; i < COUNTER_COUNT; i++) {
        if (!counter_metric(i, &metric) || !metric.first)
            continue;
        for (size_t j = 0; j < count; j++)
            ck_assert_str_ne(seen[j], metric.family->name);
        seen[count++] = metric.family->name;
        ck_assert((metric.family->label == NULL) == (metric.value == NULL));
    }
    ck_assert_uint_gt(count, 30);
    for (enum namespace_counter i = 0; i < NAMESPACE_COUNTER_COUNT; i++) {
        struct metric namespace = namespace_metric(i);
        if (!namespace.first)
            continue;
        for (size_t j = 0; j < count; j++)
            ck_assert_str_ne(seen[j], namespace.family->name);
        seen[count++] = namespace.family->name;
    }
}

END_TEST

Suite *
metrics_suite(void)
{
    Suite *suite = suite_create("metrics");
    TCase *tcase = tcase_create("metrics");

    tcase_add_test(tcase, bounds_grow);
    tcase_add_test(tcase, a_value_is_at_most_its_bound);
    tcase_add_test(tcase, the_longest_prefix_counts);
    tcase_add_test(tcase, none_but_the_others);
    tcase_add_test(tcase, as_many_as_there_may_be);
    tcase_add_test(tcase, others_in_their_place);
    tcase_add_test(tcase, families_are_together);
    suite_add_tcase(suite, tcase);
    return suite;
}

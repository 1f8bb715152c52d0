/*
 * Tests of daemon/core/model/contention.c: against an exact count, halved
 * alike; and what time makes of it.
 */
#include "daemon/core/model/contention.h"

#include "tests/unit/seed.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

Suite *contention_suite(void);

#define NAMES  1000
#define EVENTS 200000
#define MINUTE ((uint64_t)CONTENTION_HALF_US)

/* True of all names. */
struct exact {
    uint64_t total;
    uint64_t halved_us;

    struct {
        uint64_t count;
        uint32_t waiters;
    } name[NAMES];
};

static struct contention *
contention_new(uint64_t now_us)
{
    struct contention *contention = calloc(1, sizeof(*contention));

    ck_assert(contention != NULL && contention_init(contention, now_us));
    return contention;
}

static void
contention_free(struct contention *contention)
{
    contention_fini(contention);
    free(contention);
}

static struct text
name_of(uint32_t which, char out[16])
{
    return text_make(out, (size_t)snprintf(out, 16, "lock/%u", which));
}

/* Few different ones, so that some meet. */
static uint64_t
hash_of(uint32_t which)
{
    return which % 97;
}

static void
begin(struct contention *contention, uint32_t which, uint32_t waiters,
    uint64_t now_us)
{
    char name[16];

    contention_begins(
        contention, name_of(which, name), hash_of(which), waiters, now_us);
}

static void
end(struct contention *contention, uint32_t which, uint32_t waiters,
    uint64_t now_us)
{
    char name[16];

    contention_ends(
        contention, name_of(which, name), hash_of(which), waiters, now_us);
}

static void
exact_fade(struct exact *exact, uint64_t now_us)
{
    while (now_us - exact->halved_us >= MINUTE) {
        exact->halved_us += MINUTE;
        exact->total /= 2;
        for (uint32_t i = 0; i < NAMES; i++)
            exact->name[i].count /= 2;
    }
}

static uint32_t
which_of(const struct contended *entry)
{
    static const char begin[] = "lock/";
    size_t skip = sizeof(begin) - 1;
    uint64_t which = NAMES;

    ck_assert(memcmp(entry->name, begin, skip) == 0);
    ck_assert(text_to_u64(text_make(entry->name + skip, entry->name_len - skip),
        NAMES - 1, &which));
    return (uint32_t)which;
}

/* By the bounds of the paper. */
static void
compare(struct contention *contention, struct exact *exact, uint64_t now_us)
{
    static bool kept[NAMES];
    uint8_t order[CONTENTION_KEPT];

    memset(kept, 0, sizeof(kept));
    exact_fade(exact, now_us);
    uint32_t count = contention_order(contention, now_us, order);
    uint64_t error = exact->total / CONTENTION_KEPT + 1;
    contention_check(contention);
    for (uint32_t i = 0; i < count; i++) {
        const struct contended *entry = &contention->kept[order[i]];
        uint32_t which = which_of(entry);
        uint64_t truth = exact->name[which].count;
        ck_assert(!kept[which]);
        kept[which] = true;
        ck_assert_uint_le(entry->seen, truth);
        ck_assert_uint_ge(entry->count, truth);
        ck_assert_uint_le(entry->count - truth, error);
        ck_assert_uint_le(entry->count - entry->seen, error);
        ck_assert_uint_eq(entry->waiters, exact->name[which].waiters);
        ck_assert(i == 0 || contention->kept[order[i - 1]].seen >= entry->seen);
    }
    for (uint32_t i = 0; i < NAMES; i++)
        ck_assert_msg(kept[i] || exact->name[i].count <= error,
            "%u is missing, with %llu", i,
            (unsigned long long)exact->name[i].count);
}

/* Some names far more often than others, and now and then others. */
static uint32_t
some_name(struct random *random, uint32_t shift)
{
    uint64_t below = 1 + random_below(random, NAMES);

    return (uint32_t)((random_below(random, below) * below / NAMES + shift) %
                      NAMES);
}

START_TEST(against_an_exact_count)
{
    uint64_t now_us = 12345;
    struct contention *contention = contention_new(now_us);
    struct exact *exact = calloc(1, sizeof(*exact));
    struct random random;

    ck_assert_ptr_nonnull(exact);
    exact->halved_us = now_us;
    seed_random(&random, "against_an_exact_count");
    for (uint32_t i = 0; i < EVENTS; i++) {
        uint32_t which = some_name(&random, i / 50000 * 333);
        now_us += random_below(&random, 2500);
        if (random_below(&random, 50000) == 0)
            now_us += random_below(&random, 3 * MINUTE);
        exact_fade(exact, now_us);
        if (random_below(&random, 2) == 0) {
            exact->total++;
            exact->name[which].count++;
            begin(contention, which, ++exact->name[which].waiters, now_us);
        } else if (exact->name[which].waiters > 0) {
            end(contention, which, --exact->name[which].waiters, now_us);
        }
        if (i % 1000 == 0)
            compare(contention, exact, now_us);
    }
    compare(contention, exact, now_us);
    free(exact);
    contention_free(contention);
}

END_TEST

/* With no more names than are kept, all is exact. */
START_TEST(few_names)
{
    struct contention *contention = contention_new(0);
    uint8_t order[CONTENTION_KEPT];

    for (uint32_t i = 0; i < CONTENTION_KEPT; i++)
        for (uint32_t times = 0; times <= i; times++)
            begin(contention, i, times + 1, 1000);
    ck_assert_uint_eq(
        contention_order(contention, 1000, order), CONTENTION_KEPT);
    for (uint32_t i = 0; i < CONTENTION_KEPT; i++) {
        const struct contended *entry = &contention->kept[order[i]];
        uint32_t which = CONTENTION_KEPT - 1 - i;
        ck_assert_uint_eq(which_of(entry), which);
        ck_assert_uint_eq(entry->seen, which + 1);
        ck_assert_uint_eq(entry->count, which + 1);
        ck_assert_uint_eq(entry->waiters, which + 1);
    }
    contention_check(contention);
    contention_free(contention);
}

END_TEST

/* The time of all who wait, up to now, halved with the rest. */
START_TEST(time_waited)
{
    struct contention *contention = contention_new(0);
    const struct contended *entry = &contention->kept[0];
    uint8_t order[CONTENTION_KEPT];

    begin(contention, 1, 1, 0);
    begin(contention, 1, 2, 1000000);
    end(contention, 1, 1, 3000000);
    ck_assert_uint_eq(contention_order(contention, 10000000, order), 1);
    ck_assert_uint_eq(entry->waited_us, 1000000 + 2 * 2000000 + 7000000);
    end(contention, 1, 0, 12000000);
    ck_assert_uint_eq(contention_order(contention, 20000000, order), 1);
    ck_assert_uint_eq(entry->waited_us, 14000000);
    (void)contention_order(contention, MINUTE - 1, order);
    ck_assert_uint_eq(entry->waited_us, 14000000);
    ck_assert_uint_eq(entry->seen, 2);
    ck_assert_uint_eq(contention_order(contention, MINUTE, order), 1);
    ck_assert_uint_eq(entry->waited_us, 7000000);
    ck_assert_uint_eq(entry->seen, 1);
    ck_assert_uint_eq(contention_order(contention, 2 * MINUTE, order), 0);
    contention_free(contention);
}

END_TEST

/* One who waits for ever is told of for ever, and counts for the last minutes;
 * however long nobody has asked. */
START_TEST(one_that_waits_on)
{
    static const uint64_t minutes[] = {3, 63, 64, 65, 66, 1000, 1000000000};
    uint8_t order[CONTENTION_KEPT];

    for (size_t i = 0; i < sizeof(minutes) / sizeof(minutes[0]); i++) {
        struct contention *contention = contention_new(7);
        const struct contended *entry = &contention->kept[0];
        uint64_t now_us = 7 + minutes[i] * MINUTE + 5000000;

        begin(contention, 1, 1, 7);
        ck_assert_uint_eq(contention_order(contention, now_us, order), 1);
        ck_assert_uint_eq(entry->seen, 0);
        ck_assert_uint_eq(entry->waiters, 1);
        ck_assert_uint_ge(entry->waited_us, 5000000 + MINUTE / 2);
        ck_assert_uint_le(entry->waited_us, 5000000 + MINUTE);
        ck_assert_uint_eq(contention->halved_us, now_us - 5000000);
        /* The next name takes part in the same minutes. */
        begin(contention, 1, 2, now_us);
        ck_assert_uint_eq(entry->seen, 1);
        contention_free(contention);
    }
}

END_TEST

/* A name of 255 bytes, one that is the beginning of another, a 0 in it. */
START_TEST(odd_names)
{
    static const struct {
        const char *name;
        size_t len;
    } names[] = {{"a", 1}, {"a\0b", 3}, {"ab", 2}, {"a\0c", 3}};

    struct contention *contention = contention_new(0);
    char longest[PROTO_NAME_MAX];

    memset(longest, 'x', sizeof(longest));
    for (size_t i = 0; i < 4; i++)
        contention_begins(
            contention, text_make(names[i].name, names[i].len), 1, 1, 0);
    contention_begins(contention, text_make(longest, sizeof(longest)), 1, 1, 0);
    contention_begins(
        contention, text_make(longest, sizeof(longest) - 1), 1, 1, 0);
    ck_assert_uint_eq(contention->count, 6);
    contention_check(contention);
    contention_free(contention);
}

END_TEST

Suite *
contention_suite(void)
{
    Suite *suite = suite_create("contention");
    TCase *tests = tcase_create("all");

    tcase_set_timeout(tests, 120);
    tcase_add_test(tests, against_an_exact_count);
    tcase_add_test(tests, few_names);
    tcase_add_test(tests, time_waited);
    tcase_add_test(tests, one_that_waits_on);
    tcase_add_test(tests, odd_names);
    suite_add_tcase(suite, tests);
    return suite;
}

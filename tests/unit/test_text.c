/*
 * Tests of daemon/base/text: comparison, decimal numbers, hex.
 */
#include "daemon/base/text.h"

#include <check.h>

#include <inttypes.h>
#include <stdio.h>

Suite *text_suite(void);

START_TEST(equal)
{
    ck_assert(text_equal(TEXT("abc"), text_from("abc")));
    ck_assert(!text_equal(TEXT("abc"), TEXT("abd")));
    ck_assert(!text_equal(TEXT("abc"), TEXT("ab")));
    ck_assert(text_equal(text_make(NULL, 0), TEXT("")));
    ck_assert(text_equal_nocase(TEXT("LoCk"), TEXT("lOcK")));
    ck_assert(!text_equal_nocase(TEXT("lock"), TEXT("locks")));
    /* '@' and '`' differ by the case bit and are no letters. */
    ck_assert(!text_equal_nocase(TEXT("@["), TEXT("`{")));
    ck_assert(!text_equal_nocase(TEXT("\xc4"), TEXT("\xe4")));
}

END_TEST

START_TEST(number_good)
{
    uint64_t value = 7;

    ck_assert(text_to_u64(TEXT("0"), UINT64_MAX, &value));
    ck_assert_uint_eq(value, 0);
    ck_assert(text_to_u64(TEXT("18446744073709551615"), UINT64_MAX, &value));
    ck_assert_uint_eq(value, UINT64_MAX);
    ck_assert(text_to_u64(TEXT("255"), 255, &value));
    ck_assert_uint_eq(value, 255);
    ck_assert(text_to_u64(TEXT("5"), 5, &value));
    ck_assert_uint_eq(value, 5);
    ck_assert(text_to_u64(TEXT("0"), 0, &value));
    ck_assert_uint_eq(value, 0);
}

END_TEST

START_TEST(number_bad)
{
    static const char *const bad[] = {"", "-1", "+1", " 1", "1 ", "01", "00",
        "1x", "0x1", "1.0", "18446744073709551616", "99999999999999999999"};
    uint64_t value = 7;

    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        ck_assert_msg(!text_to_u64(text_from(bad[i]), UINT64_MAX, &value),
            "taken for a number: '%s'", bad[i]);
    ck_assert(!text_to_u64(TEXT("256"), 255, &value));
    ck_assert(!text_to_u64(TEXT("6"), 5, &value));
    ck_assert(!text_to_u64(TEXT("1"), 0, &value));
    ck_assert(!text_to_u64(text_make("1\0", 2), 100, &value));
    ck_assert_uint_eq(value, 7);
}

END_TEST

START_TEST(number_written)
{
    static const uint64_t values[] = {
        0, 9, 10, 99, 100, 12345678901, UINT64_MAX - 1, UINT64_MAX};
    char expected[21];
    char out[20];

    for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++) {
        size_t len = text_from_u64(out, values[i]);

        snprintf(expected, sizeof(expected), "%" PRIu64, values[i]);
        ck_assert(text_equal(text_make(out, len), text_from(expected)));
    }
}

END_TEST

START_TEST(hex)
{
    static const uint8_t bytes[] = {0x00, 0x0f, 0xf0, 0xff, 0x9a};
    uint8_t back[sizeof(bytes)];
    char out[2 * sizeof(bytes)];

    text_to_hex(out, bytes, sizeof(bytes));
    ck_assert(text_equal(text_make(out, sizeof(out)), TEXT("000ff0ff9a")));
    ck_assert(text_from_hex(text_make(out, sizeof(out)), back, sizeof(back)));
    ck_assert_mem_eq(back, bytes, sizeof(bytes));
    ck_assert(text_from_hex(TEXT("AbCd"), back, 2));
    ck_assert_uint_eq(back[0], 0xab);
    ck_assert(!text_from_hex(TEXT("abc"), back, 1));
    ck_assert(!text_from_hex(TEXT("ab"), back, 2));
    ck_assert(!text_from_hex(TEXT("0g"), back, 1));
    ck_assert(!text_from_hex(TEXT("0/"), back, 1));
}

END_TEST

START_TEST(utf8)
{
    static const struct {
        struct text text;
        size_t count;
        uint32_t code;
    } cases[] = {
        {TEXT("a\xc3"), 1, 'a'},
        {TEXT("\0"), 1, 0},
        {TEXT("\x7f"), 1, 0x7f},
        {TEXT("\xc2\x80x"), 2, 0x80},
        {TEXT("\xdf\xbf"), 2, 0x7ff},
        {TEXT("\xe0\xa0\x80"), 3, 0x800},
        {TEXT("\xef\xbf\xbf"), 3, 0xffff},
        {TEXT("\xf0\x90\x80\x80"), 4, 0x10000},
        {TEXT("\xf4\x8f\xbf\xbf"), 4, 0x10ffff},
        /* Continuations alone, cut, overlong, surrogates, beyond the end. */
        {TEXT("\x80"), 0, 0},
        {TEXT("\xc3"), 0, 0},
        {TEXT("\xe2\x82"), 0, 0},
        {TEXT("\xc3\x28"), 0, 0},
        {TEXT("\xc1\xbf"), 0, 0},
        {TEXT("\xe0\x9f\xbf"), 0, 0},
        {TEXT("\xf0\x8f\xbf\xbf"), 0, 0},
        {TEXT("\xed\xa0\x80"), 0, 0},
        {TEXT("\xf4\x90\x80\x80"), 0, 0},
        {TEXT("\xf8\x88\x80\x80\x80"), 0, 0},
        {TEXT("\xff"), 0, 0},
    };

    uint32_t code;

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        ck_assert_uint_eq(text_utf8(cases[i].text, &code), cases[i].count);
        if (cases[i].count > 0)
            ck_assert_uint_eq(code, cases[i].code);
    }
}

END_TEST

Suite *
text_suite(void)
{
    Suite *suite = suite_create("text");
    TCase *tests = tcase_create("all");

    tcase_add_test(tests, equal);
    tcase_add_test(tests, number_good);
    tcase_add_test(tests, number_bad);
    tcase_add_test(tests, number_written);
    tcase_add_test(tests, hex);
    tcase_add_test(tests, utf8);
    suite_add_tcase(suite, tests);
    return suite;
}

/*
 * Tests of proto/holdfast/escape.c: what steers a terminal, breaks a line or
 * hides is shown as bytes, all else is left as it is.
 */
#include "proto/holdfast/escape.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

Suite *escape_suite(void);

#define BYTES(literal) literal, sizeof(literal) - 1

static void
check_made(const char *bytes, size_t len, const char *expected, size_t chars)
{
    size_t width = 99;
    char *made = escape_make(bytes, len, &width);

    ck_assert_ptr_nonnull(made);
    ck_assert_str_eq(made, expected);
    ck_assert_uint_eq(width, chars);
    free(made);
}

static void
check_json(const char *bytes, size_t len, const char *expected)
{
    char written[200];
    FILE *out = fmemopen(written, sizeof(written), "w");

    ck_assert_ptr_nonnull(out);
    escape_json(out, bytes, len);
    ck_assert_int_eq(fclose(out), 0);
    ck_assert_str_eq(written, expected);
}

START_TEST(utf8_stays)
{
    check_made(BYTES(""), "", 0);
    check_made(BYTES("plain \"text\""), "plain \"text\"", 12);
    check_made(BYTES("\xc3\xbc"), "\xc3\xbc", 1);
    check_made(BYTES("\xe2\x82\xac!"), "\xe2\x82\xac!", 2);
    check_made(BYTES("\xf0\x9f\x94\x92"), "\xf0\x9f\x94\x92", 1);
    check_made(BYTES("\xf4\x8f\xbf\xbf"), "\xf4\x8f\xbf\xbf", 1);
}

END_TEST

START_TEST(what_steers_or_hides_is_shown)
{
    check_made(BYTES("a\nb\t\x1b[0m"), "a\\x0ab\\x09\\x1b[0m", 17);
    check_made(BYTES("\\"), "\\x5c", 4);
    check_made(BYTES("\x7f"), "\\x7f", 4);
    check_made(BYTES("\xc2\x9b"), "\\xc2\\x9b", 8);           /* C1 */
    check_made(BYTES("\xe2\x80\xae"), "\\xe2\\x80\\xae", 12); /* direction */
    check_made(BYTES("\xe2\x80\x8b"), "\\xe2\\x80\\x8b", 12); /* no width */
    check_made(BYTES("\xef\xbb\xbf"), "\\xef\\xbb\\xbf", 12); /* mark */
    check_made(BYTES("\xf3\xa0\x80\x81"), "\\xf3\\xa0\\x80\\x81", 16);
    check_made(BYTES("a\0b"), "a\\x00b", 6);
}

END_TEST

START_TEST(what_is_no_utf8_is_shown)
{
    check_made(BYTES("\x80"), "\\x80", 4); /* nothing before it */
    check_made(BYTES("\xff"), "\\xff", 4); /* never */
    check_made(BYTES("\xf8\x88"), "\\xf8\\x88", 8);
    check_made(BYTES("\xc3"), "\\xc3", 4); /* cut off */
    check_made(BYTES("\xe2\x82"), "\\xe2\\x82", 8);
    check_made(BYTES("\xc3"
                     "a"),
        "\\xc3a", 5);                               /* not continued */
    check_made(BYTES("\xc0\xaf"), "\\xc0\\xaf", 8); /* too long for it */
    check_made(BYTES("\xe0\x80\xaf"), "\\xe0\\x80\\xaf", 12);
    check_made(BYTES("\xed\xa0\x80"), "\\xed\\xa0\\x80", 12); /* surrogate */
    check_made(BYTES("\xf4\x90\x80\x80"), "\\xf4\\x90\\x80\\x80", 16);
}

END_TEST

/* Cut between characters, never within one or within an escape. */
START_TEST(cut_to_what_fits)
{
    static const char text[] = "a\xc3\xbc\n\xe2\x82\xac";
    static const char *const cut[] = {"", "a", "a", "a\xc3\xbc", "a\xc3\xbc",
        "a\xc3\xbc", "a\xc3\xbc", "a\xc3\xbc\\x0a", "a\xc3\xbc\\x0a",
        "a\xc3\xbc\\x0a", "a\xc3\xbc\\x0a\xe2\x82\xac"};
    char out[20];

    for (size_t room = 0; room < sizeof(cut) / sizeof(cut[0]); room++) {
        memset(out, '#', sizeof(out));
        ck_assert_ptr_eq(escape_text(text, out, room + 1), out);
        ck_assert_str_eq(out, cut[room]);
        for (size_t i = room + 1; i < sizeof(out); i++)
            ck_assert_int_eq(out[i], '#');
    }
}

END_TEST

START_TEST(json_strings)
{
    check_json(BYTES(""), "\"\"");
    check_json(BYTES("a b"), "\"a b\"");
    check_json(BYTES("\"\\"), "\"\\\"\\\\\"");
    check_json(BYTES("\n\x1f\x7f"), "\"\\u000a\\u001f\\u007f\"");
    check_json(BYTES("\xe2\x80\xa8"), "\"\\u2028\"");
    check_json(
        BYTES("\xc3\xbc\xf0\x9f\x94\x92"), "\"\xc3\xbc\xf0\x9f\x94\x92\"");
    check_json(BYTES("\xff"
                     "a\xc3"),
        "\"\\ufffda\\ufffd\"");
}

END_TEST

Suite *
escape_suite(void)
{
    Suite *suite = suite_create("escape");
    TCase *tests = tcase_create("escape");

    tcase_add_test(tests, utf8_stays);
    tcase_add_test(tests, what_steers_or_hides_is_shown);
    tcase_add_test(tests, what_is_no_utf8_is_shown);
    tcase_add_test(tests, cut_to_what_fits);
    tcase_add_test(tests, json_strings);
    suite_add_tcase(suite, tests);
    return suite;
}

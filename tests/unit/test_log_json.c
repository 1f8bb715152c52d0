/*
 * Tests of daemon/base/log_json: pairs, types, and strings of any bytes.
 */
#include "daemon/base/log_json.h"

#include "daemon/base/log.h"
#include "tests/unit/seed.h"

#include <check.h>

#include <stdio.h>

Suite *log_json_suite(void);

#define LINE_BYTES 300
#define HEX        "0123456789abcdef"

static char object[LOG_JSON_BYTES(LINE_BYTES)];

static const char *
made(const char *line, const char *format)
{
    size_t len = log_json(object, text_from(line), format);

    ck_assert_uint_eq(strlen(object), len);
    return object;
}

static void
check_value(const char *value, const char *expected)
{
    char line[LINE_BYTES];
    char wanted[LINE_BYTES];

    snprintf(line, sizeof(line), "k=%s", value);
    snprintf(wanted, sizeof(wanted), "{\"k\":%s}", expected);
    ck_assert_str_eq(made(line, "k=%s"), wanted);
}

START_TEST(pairs)
{
    ck_assert_str_eq(made("level=info event=ready", "%s"),
        "{\"level\":\"info\",\"event\":\"ready\"}");
    ck_assert_str_eq(made("", ""), "{}");
    ck_assert_str_eq(made("a=1 b=", "a=%d b=%s"), "{\"a\":1,\"b\":\"\"}");
    ck_assert_str_eq(
        made("a=\"x=1 y\" b=2", "a=%s b=%u"), "{\"a\":\"x=1 y\",\"b\":2}");
    /* What nobody has put in quotes. */
    ck_assert_str_eq(made("file=/a b/c d=x", "file=%s d=%s"),
        "{\"file\":\"/a b/c\",\"d\":\"x\"}");
    ck_assert_str_eq(made("why=\"at \"x\": no\" d=x", "why=\"%s\" d=%s"),
        "{\"why\":\"at \\\"x\\\": no\",\"d\":\"x\"}");
    ck_assert_str_eq(made("words only", "%s"), "{\"words only\":\"\"}");
}

END_TEST

START_TEST(types)
{
    ck_assert_str_eq(made("a=12345678 b=12345678", "a=%s b=%u"),
        "{\"a\":\"12345678\",\"b\":12345678}");
    ck_assert_str_eq(made("a=-5 b=18446744073709551615", "a=%ld b=%zu"),
        "{\"a\":-5,\"b\":18446744073709551615}");
    /* Another key that ends so, and a value that only begins with a number. */
    ck_assert_str_eq(made("ba=7 a=7", "ba=%s a=%d"), "{\"ba\":\"7\",\"a\":7}");
    ck_assert_str_eq(made("a=5s b=1", "a=%us b=%d"), "{\"a\":\"5s\",\"b\":1}");
    ck_assert_str_eq(made("a=007", "a=%03d"), "{\"a\":\"007\"}");
    ck_assert_str_eq(made("a=-", "a=%d"), "{\"a\":\"-\"}");
}

END_TEST

START_TEST(strings)
{
    check_value("\"a b\"", "\"a b\"");
    check_value("\"\\\"\\\\\"", "\"\\\"\\\\\"");
    check_value("\"\\x0a\\x00\\x7f\"", "\"\\u000a\\u0000\\u007f\"");
    check_value("\"\\xc3\\xa4\"", "\"\\u00e4\"");
    check_value("\xc3\xa4", "\"\\u00e4\"");
    check_value("\"\\xe2\\x82\\xacx\"", "\"\\u20acx\"");
    check_value("\"\\xf0\\x9f\\x94\\x92\"", "\"\\ud83d\\udd12\"");
    /* No UTF-8: each byte for itself. */
    check_value("\"\\xff\\xfe\"", "\"\\ufffd\\ufffd\"");
    check_value("\"\\xc3x\"", "\"\\ufffdx\"");
    check_value("\"\\xc0\\x80\"", "\"\\ufffd\\ufffd\"");
    check_value("\"\\xed\\xa0\\x80\"", "\"\\ufffd\\ufffd\\ufffd\"");
    check_value("\"\\xe2\\x82\"", "\"\\ufffd\\ufffd\"");
    check_value("\n", "\"\\u000a\"");
}

END_TEST

START_TEST(lines_that_were_cut)
{
    check_value("\"abc...", "\"abc...\"");
    check_value("\"abc\\x...", "\"abc\\\\x...\"");
    check_value("\"abc\\", "\"abc\\\\\"");
    check_value("\"", "\"\"");
    ck_assert_str_eq(made("a=1 lo...", "a=%d"), "{\"a\":\"1 lo...\"}");
}

END_TEST

static bool
is_plain(char byte)
{
    return byte >= 0x20 && byte <= 0x7e;
}

/* What follows the string at `at`; NULL: it is none. */
static const char *
string_end(const char *at)
{
    if (*at++ != '"')
        return NULL;
    while (*at != '"') {
        if (*at == '\\' && at[1] == 'u' && strspn(at + 2, HEX) >= 4)
            at += 6;
        else if (*at == '\\' && (at[1] == '"' || at[1] == '\\'))
            at += 2;
        else if (*at != '\\' && is_plain(*at))
            at++;
        else
            return NULL;
    }
    return at + 1;
}

START_TEST(any_bytes)
{
    struct random random;
    char bytes[60];
    char quoted[4 * sizeof(bytes) + 3];
    char line[LINE_BYTES];

    seed_random(&random, "log_json");
    for (int i = 0; i < 10000; i++) {
        size_t len = random_below(&random, sizeof(bytes));
        for (size_t j = 0; j < len; j++)
            bytes[j] = (char)random_below(&random, 256);
        log_quote(quoted, sizeof(quoted), text_make(bytes, len));
        snprintf(line, sizeof(line), "k=%s n=1", quoted);
        made(line, "k=%s n=%d");
        const char *end = string_end(object + 5);
        ck_assert_msg(end != NULL, "%s: %s", line, object);
        ck_assert_str_eq(end, ",\"n\":1}");
        /* And as they stand: there is an object, whatever they say. */
        memcpy(line, "k=", 2);
        memcpy(line + 2, bytes, len);
        len = log_json(object, text_make(line, 2 + len), "k=%s");
        size_t plain = 0;
        while (is_plain(object[plain]))
            plain++;
        ck_assert_uint_eq(plain, len);
    }
}

END_TEST

Suite *
log_json_suite(void)
{
    Suite *suite = suite_create("log_json");
    TCase *tests = tcase_create("all");

    tcase_add_test(tests, pairs);
    tcase_add_test(tests, types);
    tcase_add_test(tests, strings);
    tcase_add_test(tests, lines_that_were_cut);
    tcase_add_test(tests, any_bytes);
    suite_add_tcase(suite, tests);
    return suite;
}

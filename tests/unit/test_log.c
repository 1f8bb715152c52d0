/*
 * Tests of daemon/base/log: forms, types, strings, threshold, gate, cutting,
 * quoting.
 */
#include "daemon/base/log.h"

#include "tests/unit/seed.h"

#include <check.h>

#include <stdio.h>

Suite *log_suite(void);

static char last[4096];
static size_t last_len;
static enum log_level last_level;
static int lines;

static void
sink(enum log_level level, const char *line, size_t len)
{
    ck_assert_uint_eq(strlen(line), len);
    ck_assert_uint_lt(len, sizeof(last));
    memcpy(last, line, len + 1);
    last_len = len;
    last_level = level;
    lines++;
}

START_TEST(form)
{
    log_write(LOG_ERROR, "nowhere", log_signed("a", 1));
    log_init(sink, LOG_INFO);
    log_write(LOG_WARN, "redis_down", log_word("node", "a:1"),
        log_number("after_ms", 7u));
    ck_assert_str_eq(last, "level=warn event=redis_down node=a:1 after_ms=7");
    ck_assert_int_eq(last_level, LOG_WARN);
    log_write(LOG_INFO, "ready", LOG_NOTHING);
    ck_assert_str_eq(last, "level=info event=ready");
    ck_assert_int_eq(lines, 2);
}

END_TEST

START_TEST(objects)
{
    log_init(sink, LOG_INFO);
    log_set_format(LOG_JSON);
    log_write(LOG_WARN, "redis_down", log_word("node", "a:1"),
        log_number("after_ms", 7u));
    ck_assert_str_eq(last,
        "{\"level\":\"warn\",\"event\":\"redis_down\",\"node\":\"a:1\","
        "\"after_ms\":7}");
    log_write(LOG_INFO, "ready", LOG_NOTHING);
    ck_assert_str_eq(last, "{\"level\":\"info\",\"event\":\"ready\"}");
}

END_TEST

START_TEST(types)
{
    log_init(sink, LOG_INFO);
    log_write(LOG_INFO, "x", log_number("a", UINT64_MAX),
        log_signed("b", INT64_MIN), log_word("c", "7"), LOG_NOTHING,
        log_span("d", text_make("/a b=c", 6)), log_word("e", ""));
    ck_assert_str_eq(last,
        "level=info event=x a=18446744073709551615 b=-9223372036854775808 c=7 "
        "d=/a b=c e=");
    log_set_format(LOG_JSON);
    log_write(LOG_INFO, "x", log_number("a", UINT64_MAX),
        log_signed("b", INT64_MIN), log_word("c", "7"), LOG_NOTHING,
        log_span("d", text_make("/a b=c", 6)), log_word("e", ""));
    ck_assert_str_eq(last,
        "{\"level\":\"info\",\"event\":\"x\",\"a\":18446744073709551615,"
        "\"b\":-9223372036854775808,\"c\":\"7\",\"d\":\"/a b=c\","
        "\"e\":\"\"}");
}

END_TEST

START_TEST(strings)
{
    static const struct {
        struct text bytes;
        const char *quoted; /* NULL: as log_quote() has it */
        const char *json;
    } rows[] = {
        {TEXT("x=1 y"), "\"x=1 y\"", "\"x=1 y\""},
        {TEXT("\"\\"), "\"\\\"\\\\\"", "\"\\\"\\\\\""},
        {TEXT("\n\0\x7f"), "\"\\x0a\\x00\\x7f\"", "\"\\u000a\\u0000\\u007f\""},
        {TEXT("\xc3\xa4"), "\"\\xc3\\xa4\"", "\"\\u00e4\""},
        {TEXT("\xe2\x82\xacx"), NULL, "\"\\u20acx\""},
        {TEXT("\xf0\x9f\x94\x92"), NULL, "\"\\ud83d\\udd12\""},
        /* No UTF-8: each byte for itself. */
        {TEXT("\xff\xfe"), NULL, "\"\\ufffd\\ufffd\""},
        {TEXT("\xc3x"), NULL, "\"\\ufffdx\""},
        {TEXT("\xc0\x80"), NULL, "\"\\ufffd\\ufffd\""},
        {TEXT("\xed\xa0\x80"), NULL, "\"\\ufffd\\ufffd\\ufffd\""},
        {TEXT("\xe2\x82"), NULL, "\"\\ufffd\\ufffd\""},
    };

    char line[200];
    char quoted[100];

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        log_init(sink, LOG_INFO);
        log_write(LOG_INFO, "x", log_quoted("k", rows[i].bytes));
        snprintf(line, sizeof(line), "level=info event=x k=%s",
            rows[i].quoted != NULL
                ? rows[i].quoted
                : log_quote(quoted, sizeof(quoted), rows[i].bytes));
        ck_assert_str_eq(last, line);
        log_set_format(LOG_JSON);
        log_write(LOG_INFO, "x", log_quoted("k", rows[i].bytes));
        snprintf(line, sizeof(line),
            "{\"level\":\"info\",\"event\":\"x\",\"k\":%s}", rows[i].json);
        ck_assert_str_eq(last, line);
    }
}

END_TEST

/* The rest after the string at `at`; NULL: it is none. */
static const char *
string_end(const char *at)
{
    if (*at++ != '"')
        return NULL;
    while (*at != '"') {
        if (*at == '\\' && at[1] == 'u' &&
            strspn(at + 2, "0123456789abcdef") >= 4)
            at += 6;
        else if (*at == '\\' && (at[1] == '"' || at[1] == '\\'))
            at += 2;
        else if (*at != '\\' && *at >= 0x20 && *at <= 0x7e)
            at++;
        else
            return NULL;
    }
    return at + 1;
}

START_TEST(any_bytes)
{
    struct random random;
    char bytes[2100];

    seed_random(&random, "log");
    log_init(sink, LOG_INFO);
    log_set_format(LOG_JSON);
    for (int i = 0; i < 10000; i++) {
        size_t len = random_below(&random, i % 100 == 0 ? sizeof(bytes) : 60);
        for (size_t j = 0; j < len; j++)
            bytes[j] = (char)random_below(&random, 256);
        log_write(LOG_INFO, "x", log_quoted("k", text_make(bytes, len)),
            log_number("n", 1));
        const char *end = string_end(strstr(last, "\"k\":") + 4);
        ck_assert_msg(end != NULL, "%s", last);
        ck_assert(
            strcmp(end, ",\"n\":1}") == 0 || strcmp(end - 4, "...\"}") == 0);
    }
}

END_TEST

static bool
only_loud(enum log_level level, const char *event)
{
    ck_assert_int_le(level, LOG_INFO);
    return strcmp(event, "loud") == 0;
}

START_TEST(gate)
{
    log_init(sink, LOG_INFO);
    log_set_gate(only_loud);
    log_write(LOG_DEBUG, "loud", log_word("a", "1"));
    log_write(LOG_ERROR, "quiet", log_word("a", "1"));
    ck_assert_int_eq(lines, 0);
    log_write(LOG_INFO, "loud", log_word("a", "1"));
    ck_assert_int_eq(lines, 1);
    log_init(sink, LOG_INFO);
    log_write(LOG_ERROR, "quiet", log_word("a", "1"));
    ck_assert_int_eq(lines, 2);
}

END_TEST

START_TEST(threshold)
{
    log_init(sink, LOG_WARN);
    log_write(LOG_INFO, "quiet", log_word("a", "1"));
    ck_assert_int_eq(lines, 0);
    log_set_level(LOG_DEBUG);
    log_write(LOG_DEBUG, "loud", log_word("a", "1"));
    ck_assert_int_eq(lines, 1);
    ck_assert(log_enabled(LOG_DEBUG));
    log_init(NULL, LOG_DEBUG);
    ck_assert(!log_enabled(LOG_ERROR));
}

END_TEST

START_TEST(cut)
{
    static char longer[5000];

    memset(longer, 'x', sizeof(longer) - 1);
    log_init(sink, LOG_INFO);
    log_write(LOG_INFO, "long", log_word("text", longer));
    ck_assert_uint_eq(last_len, 2047);
    ck_assert_str_eq(last + last_len - 4, "x...");
    log_set_format(LOG_JSON);
    log_write(LOG_INFO, "long", log_quoted("text", text_from(longer)));
    ck_assert_str_eq(last + last_len - 6, "x...\"}");
    log_write(LOG_INFO, "long", log_foreign("text", text_from(longer)),
        log_word("behind", "y"));
    ck_assert_ptr_nonnull(strstr(last, "x\",\"behind\":\"y\""));
}

END_TEST

/* Six bytes of an object may be for one of the line. */
START_TEST(large_objects)
{
    static const char around[] =
        "{\"level\":\"info\",\"event\":\"long\",\"text\":\"\"}";
    static char longer[2500];

    log_init(sink, LOG_INFO);
    log_set_format(LOG_JSON);
    for (size_t len = 1; len < sizeof(longer) - 1; len++) {
        memset(longer, '\t', len);
        log_write(LOG_INFO, "long", log_word("text", longer));
        ck_assert_uint_le(last_len, 4000);
        ck_assert_str_eq(last + last_len - 2, "\"}");
        ck_assert_int_eq(strcmp(last + last_len - 5, "...\"}") == 0,
            strlen(around) + 6 * len > 4000);
    }
}

END_TEST

START_TEST(quote)
{
    char out[64];

    ck_assert_str_eq(log_quote(out, sizeof(out), TEXT("a b")), "\"a b\"");
    ck_assert_str_eq(log_quote(out, sizeof(out), TEXT("\"\\")), "\"\\\"\\\\\"");
    ck_assert_str_eq(log_quote(out, sizeof(out), TEXT("\n\0\x7f\xc3")),
        "\"\\x0a\\x00\\x7f\\xc3\"");
    ck_assert_str_eq(log_quote(out, sizeof(out), TEXT("")), "\"\"");
    ck_assert_str_eq(log_quote(out, 3, TEXT("abc")), "\"\"");
    ck_assert_str_eq(log_quote(out, 5, TEXT("abc")), "\"ab\"");
    ck_assert_str_eq(log_quote(out, 6, TEXT("a\n")), "\"a\"");
}

END_TEST

START_TEST(levels)
{
    enum log_level level = LOG_ERROR;

    ck_assert(log_level_parse(TEXT("Debug"), &level));
    ck_assert_int_eq(level, LOG_DEBUG);
    ck_assert_str_eq(log_level_name(level), "debug");
    ck_assert(!log_level_parse(TEXT("verbose"), &level));
    ck_assert_int_eq(level, LOG_DEBUG);
}

END_TEST

Suite *
log_suite(void)
{
    Suite *suite = suite_create("log");
    TCase *tests = tcase_create("all");

    tcase_add_test(tests, form);
    tcase_add_test(tests, objects);
    tcase_add_test(tests, types);
    tcase_add_test(tests, strings);
    tcase_add_test(tests, any_bytes);
    tcase_add_test(tests, gate);
    tcase_add_test(tests, threshold);
    tcase_add_test(tests, cut);
    tcase_add_test(tests, large_objects);
    tcase_add_test(tests, quote);
    tcase_add_test(tests, levels);
    suite_add_tcase(suite, tests);
    return suite;
}

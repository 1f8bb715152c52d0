/*
 * Tests of daemon/base/log: forms, threshold, gate, cutting, quoting.
 */
#include "daemon/base/log.h"

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
    log_write(LOG_ERROR, "nowhere", "a=%d", 1);
    log_init(sink, LOG_INFO);
    log_write(LOG_WARN, "redis_down", "node=%s after_ms=%u", "a:1", 7u);
    ck_assert_str_eq(last, "level=warn event=redis_down node=a:1 after_ms=7");
    ck_assert_int_eq(last_level, LOG_WARN);
    log_write(LOG_INFO, "ready", "%s", "");
    ck_assert_str_eq(last, "level=info event=ready");
    ck_assert_int_eq(lines, 2);
}

END_TEST

START_TEST(objects)
{
    log_init(sink, LOG_INFO);
    log_set_format(LOG_JSON);
    log_write(LOG_WARN, "redis_down", "node=%s after_ms=%u", "a:1", 7u);
    ck_assert_str_eq(last,
        "{\"level\":\"warn\",\"event\":\"redis_down\",\"node\":\"a:1\","
        "\"after_ms\":7}");
    log_write(LOG_INFO, "ready", "%s", "");
    ck_assert_str_eq(last, "{\"level\":\"info\",\"event\":\"ready\"}");
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
    log_write(LOG_DEBUG, "loud", "a=1");
    log_write(LOG_ERROR, "quiet", "a=1");
    ck_assert_int_eq(lines, 0);
    log_write(LOG_INFO, "loud", "a=1");
    ck_assert_int_eq(lines, 1);
    log_init(sink, LOG_INFO);
    log_write(LOG_ERROR, "quiet", "a=1");
    ck_assert_int_eq(lines, 2);
}

END_TEST

START_TEST(threshold)
{
    log_init(sink, LOG_WARN);
    log_write(LOG_INFO, "quiet", "a=1");
    ck_assert_int_eq(lines, 0);
    log_set_level(LOG_DEBUG);
    log_write(LOG_DEBUG, "loud", "a=1");
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
    log_write(LOG_INFO, "long", "text=%s", longer);
    ck_assert_uint_eq(last_len, 2047);
    ck_assert_str_eq(last + last_len - 4, "x...");
    log_set_format(LOG_JSON);
    log_write(LOG_INFO, "long", "text=\"%s\"", longer);
    ck_assert_str_eq(last + last_len - 6, "x...\"}");
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
        log_write(LOG_INFO, "long", "text=%s", longer);
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
    tcase_add_test(tests, gate);
    tcase_add_test(tests, threshold);
    tcase_add_test(tests, cut);
    tcase_add_test(tests, large_objects);
    tcase_add_test(tests, quote);
    tcase_add_test(tests, levels);
    suite_add_tcase(suite, tests);
    return suite;
}

/*
 * Lines out of a stream of bytes, however the reads cut it. Overlong lines are
 * reported once and skipped. Other protocols are recognized.
 */
#include "daemon/base/random.h"
#include "proto/request.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>

Suite *line_suite(void);

#define STREAM_MAX 16384

/* A connection: the unparsed bytes, and the lines so far. */
struct stream {
    size_t line_max;
    char bytes[STREAM_MAX];
    size_t len;
    bool skipping;
    char told[STREAM_MAX]; /* "[line]" for each, "!" for one too long */
    size_t told_len;
};

static void
stream_tell(struct stream *stream, const char *bytes, size_t len)
{
    ck_assert_uint_le(stream->told_len + len, sizeof(stream->told));
    memcpy(stream->told + stream->told_len, bytes, len);
    stream->told_len += len;
}

/* Hands line_next() a copy of exactly `len` bytes: a sanitizer sees any byte
 * more. */
static enum line_status
stream_step(struct stream *stream, size_t *used)
{
    char *copy = malloc(stream->len == 0 ? 1 : stream->len);
    char *line = NULL;
    size_t line_len = 0;
    enum line_status status;

    ck_assert_ptr_nonnull(copy);
    memcpy(copy, stream->bytes, stream->len);
    status = line_next(copy, stream->len, stream->line_max, &stream->skipping,
        used, &line, &line_len);
    ck_assert_uint_le(*used, stream->len);
    if (status == LINE_FOUND) {
        ck_assert_uint_lt(line_len, stream->line_max);
        stream_tell(stream, "[", 1);
        stream_tell(stream, line, line_len);
        stream_tell(stream, "]", 1);
    } else if (status == LINE_TOO_LONG) {
        ck_assert_uint_eq(line_len, stream->line_max);
        ck_assert_mem_eq(line, copy + *used - line_len, line_len);
        stream_tell(stream, "!", 1);
    }
    free(copy);
    return status;
}

static void
stream_feed(struct stream *stream, const char *bytes, size_t len)
{
    enum line_status status;

    ck_assert_uint_le(stream->len + len, sizeof(stream->bytes));
    memcpy(stream->bytes + stream->len, bytes, len);
    stream->len += len;
    do {
        size_t used = 0;

        status = stream_step(stream, &used);
        stream->len -= used;
        memmove(stream->bytes, stream->bytes + used, stream->len);
        if (status != LINE_MORE)
            ck_assert_uint_gt(used, 0);
    } while (status != LINE_MORE);
    ck_assert_uint_lt(stream->len, stream->line_max);
}

static void
stream_open(struct stream *stream, size_t line_max)
{
    stream->line_max = line_max;
    stream->len = 0;
    stream->skipping = false;
    stream->told_len = 0;
}

static void
stream_expect(const struct stream *stream, const char *told)
{
    ck_assert_msg(stream->told_len == strlen(told) &&
                      memcmp(stream->told, told, stream->told_len) == 0,
        "told \"%.*s\", not \"%s\"", (int)stream->told_len, stream->told, told);
}

/* Feeds the bytes one by one, and cut at every two places. */
static void
expect_lines(const char *bytes, size_t line_max, const char *told)
{
    static struct stream stream;
    size_t len = strlen(bytes);

    stream_open(&stream, line_max);
    for (size_t i = 0; i < len; i++)
        stream_feed(&stream, bytes + i, 1);
    stream_expect(&stream, told);
    for (size_t a = 0; a <= len; a++) {
        for (size_t b = a; b <= len; b++) {
            stream_open(&stream, line_max);
            stream_feed(&stream, bytes, a);
            stream_feed(&stream, bytes + a, b - a);
            stream_feed(&stream, bytes + b, len - b);
            stream_expect(&stream, told);
        }
    }
}

START_TEST(test_lines)
{
    static const struct {
        const char *bytes;
        size_t line_max;
        const char *told;
    } cases[] = {
        /* Lines. */
        {"1 LOCK a\n2 UNLOCK a\n", 64, "[1 LOCK a][2 UNLOCK a]"},
        {"PING\r\nHELD\n", 64, "[PING][HELD]"},
        {"\n\r\nPING\n\n", 64, "[][][PING][]"},
        {"PING\nHEL", 64, "[PING]"},
        {"", 64, ""},
        {"\n", 1, "[]"},
        /* A CR ends no line. */
        {"a\rb\r\nc\n", 64, "[a\rb][c]"},
        {"a\r\r\nb\n", 64, "[a\r][b]"},
        {"a\r", 64, ""},
        {"\r\rQUIT\r\n", 64, "[\r\rQUIT]"},
        {"a\n\rb\n", 64, "[a][\rb]"},
        /* The limit counts the LF. */
        {"1234567\n", 8, "[1234567]"},
        {"12345678\n", 8, "!"},
        {"123456\r\n", 8, "[123456]"},
        {"1234567\r\n", 8, "!"},
        {"1234567", 8, ""},
        {"12345678", 8, "!"},
        /* An overlong line is reported once, and skipped. */
        {"123456789012345678901234567890\nPING\n", 8, "![PING]"},
        {"a\n12345678901234\r\r\nb\n", 8, "[a]![b]"},
        {"12345678\n12345678\nb\n", 8, "!![b]"},
        {"123456789\n\nb\n", 8, "![][b]"},
        {"x\nx\n", 1, "!!"},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        expect_lines(cases[i].bytes, cases[i].line_max, cases[i].told);
}

END_TEST

START_TEST(test_nul_is_a_byte)
{
    static struct stream stream;

    stream_open(&stream, 16);
    stream_feed(&stream, "a\0b\n", 4);
    ck_assert_uint_eq(stream.told_len, 5);
    ck_assert_mem_eq(stream.told, "[a\0b]", 5);
}

END_TEST

START_TEST(test_the_real_limit)
{
    static struct stream stream;
    static char bytes[2 * PROTO_LINE_MAX + 8];

    memset(bytes, 'x', sizeof(bytes));
    bytes[PROTO_LINE_MAX - 1] = '\n';
    stream_open(&stream, PROTO_LINE_MAX);
    stream_feed(&stream, bytes, PROTO_LINE_MAX - 1);
    ck_assert_uint_eq(stream.told_len, 0);
    stream_feed(&stream, bytes + PROTO_LINE_MAX - 1, 1);
    ck_assert_uint_eq(stream.told_len, PROTO_LINE_MAX + 1);

    bytes[PROTO_LINE_MAX - 1] = 'x';
    memcpy(bytes + 2 * PROTO_LINE_MAX, "y\nPING\n", 7);
    stream_open(&stream, PROTO_LINE_MAX);
    stream_feed(&stream, bytes, 2 * PROTO_LINE_MAX + 7);
    stream_expect(&stream, "![PING]");
}

END_TEST

/* A stream of `line_count` lines of all lengths around the limit. */
static size_t
random_stream(struct random *random, char *out, unsigned line_count)
{
    static const char bytes[] = "aZ =%\r\0\x80:1";
    size_t len = 0;

    for (unsigned i = 0; i < line_count; i++) {
        size_t line_len = random_below(random, 40);

        while (line_len-- > 0)
            out[len++] = bytes[random_below(random, sizeof(bytes) - 1)];
        out[len++] = '\n';
    }
    return len;
}

START_TEST(test_random_cuts_give_the_same_lines)
{
    static struct stream whole, cut;
    static char bytes[STREAM_MAX];
    struct random random;

    random_init(&random, 21);
    for (unsigned round = 0; round < 300; round++) {
        size_t len = random_stream(&random, bytes, 30);

        stream_open(&whole, 16);
        stream_feed(&whole, bytes, len);
        stream_open(&cut, 16);
        for (size_t at = 0; at < len;) {
            size_t part = random_below(&random, 24);

            part = part < len - at ? part : len - at;
            stream_feed(&cut, bytes + at, part);
            at += part;
        }
        ck_assert_uint_eq(whole.told_len, cut.told_len);
        ck_assert_mem_eq(whole.told, cut.told, cut.told_len);
        ck_assert_uint_eq(cut.len, 0);
    }
}

END_TEST

START_TEST(test_other_protocols_are_recognized)
{
    static const char *const foreign[] = {"\x16\x03\x01", "\x16",
        "GET / HTTP/1.1", "get /x", "POST /cgi HTTP/1.0", "HEAD /", "PUT /a",
        "DELETE /a", "PATCH /a", "TRACE /", "OPTIONS * HTTP/1.1",
        "CONNECT host:443 HTTP/1.1", "PRI * HTTP/2.0", "Host: example.org",
        "host:x", "GET /cut", "GET http://127.0.0.1:4653/ HTTP/1.1",
        "PROXY TCP4 192.0.2.1 192.0.2.2 56324 4653", "PROXY UNKNOWN"};
    static const char *const ours[] = {"", "PING", "1 LOCK /a", "LOCK /a",
        "GET", "GET ", "GETTER / HTTP/1.1", "GE /", "1 GET / HTTP/1.1",
        "UNLOCK HTTP/1.1", "Hostess", "HELLO name=Host:", "garbage", "GET a b",
        "\x15\x16", "PROXY", "PROXY a", "PROXYTCP4"};
    /* Version 2 of the PROXY protocol: the fourth line is a command of ours. */
    static const char proxy[] = "\r\n\r\n\0\r\nQUIT\n";

    for (size_t i = 0; i < sizeof(foreign) / sizeof(foreign[0]); i++)
        ck_assert_msg(
            line_foreign(foreign[i], strlen(foreign[i])), "%s", foreign[i]);
    for (size_t i = 0; i < sizeof(ours) / sizeof(ours[0]); i++)
        ck_assert_msg(!line_foreign(ours[i], strlen(ours[i])), "%s", ours[i]);
    ck_assert(line_foreign(proxy + 4, 1));
    ck_assert(!line_foreign(proxy, 0));
    ck_assert(!line_foreign("\0a", 2));
}

END_TEST

Suite *
line_suite(void)
{
    Suite *suite = suite_create("line");
    TCase *tcase = tcase_create("line");

    tcase_add_test(tcase, test_lines);
    tcase_add_test(tcase, test_nul_is_a_byte);
    tcase_add_test(tcase, test_the_real_limit);
    tcase_add_test(tcase, test_random_cuts_give_the_same_lines);
    tcase_add_test(tcase, test_other_protocols_are_recognized);
    suite_add_tcase(suite, tcase);
    return suite;
}

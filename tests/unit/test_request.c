/*
 * One line to one request: good lines, and each error.
 */
#include "daemon/base/random.h"
#include "proto/reply.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>

Suite *request_suite(void);

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static const char *const key_words[] = {
#define KEY(id, word, type, min, max) word,
#include "proto/commands.def"
};

enum type {
    WORD,
    DURATION,
    NUMBER,
    FLAG,
};

static const enum type key_types[] = {

#define KEY(id, word, type, min, max) type,
#include "proto/commands.def"
};

/* A line on the heap without a byte around it, so that a sanitizer sees an
 * access past it. The request refers into it until parsed_free(). */
struct parsed {
    char *line;
    enum request_status status;
    struct request_line request;
    struct request_error error;
};

static void
parse_bytes(
    struct parsed *parsed, const char *line, size_t len, size_t name_max)
{
    parsed->line = malloc(len == 0 ? 1 : len);
    ck_assert_ptr_nonnull(parsed->line);
    memcpy(parsed->line, line, len);
    memset(&parsed->request, 0xa5, sizeof(parsed->request));
    parsed->error = (struct request_error){ERROR_COUNT, NULL};
    parsed->status = request_parse(
        parsed->line, len, name_max, &parsed->request, &parsed->error);
    if (parsed->status == REQUEST_BAD)
        ck_assert_ptr_nonnull(parsed->error.what);
}

static void
parsed_free(struct parsed *parsed)
{
    free(parsed->line);
    parsed->line = NULL;
}

/* "TAG VERB [argument] [key=value ...]" in canonical form, for comparison. */
static size_t
request_write(const struct request_line *request, char *out, size_t out_bytes)
{
    struct reply reply;

    reply_begin(
        &reply, out, out_bytes, request->tag, command_name(request->command));
    if (request->argument.len > 0)
        reply_word(&reply, request->argument);
    for (uint32_t i = 1; i < request->name_count; i++)
        reply_word(&reply, request->names[i]);
    for (int i = 0; i < REQUEST_KEY_COUNT; i++) {
        if (!request_has(request, (enum request_key)i))
            continue;
        if (key_types[i] == WORD)
            reply_pair(&reply, key_words[i], request->word[i]);
        else
            reply_pair_number(&reply, key_words[i], request->value[i]);
    }
    return reply_end(&reply);
}

static void
expect_good(const char *line, const char *canonical)
{
    struct parsed parsed;
    char out[2 * PROTO_LINE_MAX];
    size_t len;

    parse_bytes(&parsed, line, strlen(line), PROTO_NAME_MAX);
    ck_assert_msg(parsed.status == REQUEST_OK, "%s: %s", line,
        parsed.error.what == NULL ? "blank" : parsed.error.what);
    len = request_write(&parsed.request, out, sizeof(out));
    ck_assert_uint_gt(len, 0);
    out[len - 1] = '\0';
    ck_assert_str_eq(out, canonical);
    parsed_free(&parsed);
}

static void
expect_bad(
    const char *line, const char *tag, enum error_code code, const char *what)
{
    struct parsed parsed;

    parse_bytes(&parsed, line, strlen(line), PROTO_NAME_MAX);
    ck_assert_msg(parsed.status == REQUEST_BAD, "taken: %s", line);
    ck_assert_msg(parsed.error.code == code, "%s: %s", line,
        error_name(parsed.error.code));
    ck_assert_msg(strstr(parsed.error.what, what) != NULL, "%s: %s", line,
        parsed.error.what);
    ck_assert_str_eq(parsed.request.tag, tag);
    parsed_free(&parsed);
}

/* `format` with one %s in it, filled with `value`. */
static const char *
line_with(const char *before, const char *value, const char *after)
{
    static char line[2 * PROTO_LINE_MAX];

    snprintf(line, sizeof(line), "%s%s%s", before, value, after);
    return line;
}

START_TEST(test_good_lines)
{
    static const char *const lines[][2] = {
        {"LOCK a", "- LOCK a"},
        {"1 LOCK a", "1 LOCK a"},
        {"1 lock a WAIT=0", "1 LOCK a wait=0"},
        {"0 LoCk stock/4711 wait=5s Lease=1h oWNer=t-7 note=x progress=1",
            "0 LOCK stock/4711 wait=5000 lease=3600000 owner=t-7 note=x "
            "progress=1"},
        {"1 LOCK a note=n owner=o wait=1", "1 LOCK a wait=1 owner=o note=n"},
        {"1 LOCK a progress=0", "1 LOCK a progress=0"},
        {"1234567890123456 LOCK a", "1234567890123456 LOCK a"},
        {"7a.B_c- PING", "7a.B_c- PING"},
        {"1 LOCK %61%20b", "1 LOCK a%20b"},
        {"1 LOCK %3ax owner=%3Dy note=a%0a",
            "1 LOCK %3Ax owner=%3Dy note=a%0A"},
        {"1 LOCK a:b", "1 LOCK a:b"},
        {"1 LOCK %00", "1 LOCK %00"},
        {"1 LOCK %ff%00%0D", "1 LOCK %FF%00%0D"},
        {"1 LOCK 12", "1 LOCK 12"},
        {"1 LOCK LOCK", "1 LOCK LOCK"},
        {"1 LOCK a wait=%35s", "1 LOCK a wait=5000"},
        {"LOCK a b%20 12 wait=1", "- LOCK a b%20 12 wait=1"},
        {"LOCK a mode=shared delay=2s deadlock=0",
            "- LOCK a mode=shared delay=2000 deadlock=0"},
        {"LOCK a limit=3 permits=2", "- LOCK a permits=2 limit=3"},
        {"UNLOCK a fence=1", "- UNLOCK a fence=1"},
        {"UNLOCK a fence=9007199254740991",
            "- UNLOCK a fence=9007199254740991"},
        {"RENEW a lease=10s fence=5 owner=o",
            "- RENEW a lease=10000 owner=o fence=5"},
        {"CANCEL 12.x", "- CANCEL 12.x"},
        {"SHOW a limit=0", "- SHOW a limit=0"},
        {"LOCKS", "- LOCKS"},
        {"LOCKS limit=10 cursor=4294967295",
            "- LOCKS limit=10 cursor=4294967295"},
        {"HELLO", "- HELLO"},
        {"HELLO name=shop%20one heartbeat=2s",
            "- HELLO name=shop%20one heartbeat=2000"},
        {"HELLO keep=1h resume=00112233445566778899aabbccddeeff gen=2",
            "- HELLO keep=3600000 resume=00112233445566778899aabbccddeeff "
            "gen=2"},
        {"CLAIM a fence=5 count=2147483647",
            "- CLAIM a count=2147483647 fence=5"},
        {"WATCH a", "- WATCH a"},
        {"UNWATCH a", "- UNWATCH a"},
        {"BREAK a fence=5", "- BREAK a fence=5"},
        {"KILL 0123abcd", "- KILL 0123abcd"},
        {"KILL 00112233445566778899aabbccddeeff",
            "- KILL 00112233445566778899aabbccddeeff"},
        {"DRAIN", "- DRAIN"},
        {"PONG 9007199254740991", "- PONG 9007199254740991"},
        {"QUIT", "- QUIT"},
        {"1  LOCK   a    wait=1", "1 LOCK a wait=1"},
        {"  1 LOCK a  ", "1 LOCK a"},
        {" PING", "- PING"},
    };

    for (size_t i = 0; i < COUNT(lines); i++)
        expect_good(lines[i][0], lines[i][1]);
}

END_TEST

START_TEST(test_blank_lines)
{
    static const char *const lines[] = {"", " ", "     "};

    for (size_t i = 0; i < COUNT(lines); i++) {
        struct parsed parsed;

        parse_bytes(&parsed, lines[i], strlen(lines[i]), PROTO_NAME_MAX);
        ck_assert_int_eq(parsed.status, REQUEST_BLANK);
        parsed_free(&parsed);
    }
}

END_TEST

START_TEST(test_bad_tags)
{
    static const char *const lines[] = {"12345678901234567 PING", "1+ PING",
        "1/2 PING", "1= PING", "1% PING", "1, PING", "1: PING",
        "12345678901234567", "1* PING"};

    for (size_t i = 0; i < COUNT(lines); i++)
        expect_bad(lines[i], "", ERROR_BADREQ, "a tag is");
    expect_bad("1", "1", ERROR_BADREQ, "command is missing");
    expect_bad("1 ", "1", ERROR_BADREQ, "command is missing");
    expect_bad("1 2 PING", "1", ERROR_UNKNOWN, "no such command");
    expect_bad("a1 PING", "", ERROR_UNKNOWN, "no such command");
    expect_bad("- PING", "", ERROR_UNKNOWN, "no such command");
}

END_TEST

START_TEST(test_unknown_commands)
{
    /* Prefixes and extensions of a verb are not the verb. */
    static const char *const verbs[] = {"LOC", "LOCKX", "LOCK%20", "RELEASEX",
        "UNLOCKX", "QUITTER", "PIN", "PINGS", "L", "%4cOCK", "LOCK=a", "=",
        ":LOCK", "AUTHS", "CLAIMS", "WATC", "UNWATCHED", "KILL9", "BREAKX",
        "DRAINS", "GET", "*", "LOCK\x5f"};

    for (size_t i = 0; i < COUNT(verbs); i++) {
        expect_bad(verbs[i], "", ERROR_UNKNOWN, "no such command");
        expect_bad(line_with("1 ", verbs[i], " a"), "1", ERROR_UNKNOWN,
            "no such command");
    }
}

END_TEST

START_TEST(test_bad_words)
{
    expect_bad("1 LOCK", "1", ERROR_BADREQ, "name is missing");
    expect_bad("1 LOCK wait=0", "1", ERROR_BADREQ, "name is missing");
    expect_bad("1 UNLOCK", "1", ERROR_BADREQ, "name is missing");
    expect_bad("1 RENEW lease=1", "1", ERROR_BADREQ, "name is missing");
    expect_bad("1 SHOW", "1", ERROR_BADREQ, "name is missing");
    expect_bad("1 CANCEL", "1", ERROR_BADREQ, "tag is missing");
    expect_bad("1 PONG", "1", ERROR_BADREQ, "number is missing");
    expect_bad("1 LOCK 1 2 3 4 5 6 7 8 9 a b c d e f g h", "1", ERROR_BADREQ,
        "too many names");
    expect_bad("1 LOCK a b wait=0 c", "1", ERROR_BADREQ, "words come before");
    expect_bad("1 LOCK a b%", "1", ERROR_BADREQ, "two hex digits");
    expect_bad("1 CLAIM a b fence=1", "1", ERROR_BADREQ, "too many words");
    expect_bad("1 WATCH", "1", ERROR_BADREQ, "name is missing");
    expect_bad("1 WATCH a b", "1", ERROR_BADREQ, "too many words");
    expect_bad("1 BREAK", "1", ERROR_BADREQ, "name is missing");
    expect_bad("1 DRAIN now", "1", ERROR_BADREQ, "too many words");
    expect_bad("1 KILL", "1", ERROR_BADREQ, "session is missing");
    expect_bad("1 KILL abc", "1", ERROR_BADREQ, "8 or 32 hex digits");
    expect_bad("1 KILL 123456789", "1", ERROR_BADREQ, "8 or 32 hex digits");
    expect_bad("1 KILL 0a1%61b2", "1", ERROR_BADREQ, "8 or 32 hex digits");
    expect_bad("1 KILL 0123456789abcdef0123456789abcdeg", "1", ERROR_BADREQ,
        "8 or 32 hex digits");
    expect_bad("1 RENEW a b", "1", ERROR_BADREQ, "too many words");
    expect_bad("1 PING a", "1", ERROR_BADREQ, "too many words");
    expect_bad("1 HELD a", "1", ERROR_BADREQ, "too many words");
    expect_bad("1 QUIT now", "1", ERROR_BADREQ, "too many words");
    expect_bad("1 CANCEL 1 2", "1", ERROR_BADREQ, "too many words");
    expect_bad("1 PONG 1 2", "1", ERROR_BADREQ, "too many words");
    expect_bad("1 LOCK wait=0 a", "1", ERROR_BADREQ, "words come before");
    expect_bad("1 LOCK :a", "1", ERROR_BADREQ, "%3A");
    expect_bad("1 LOCK :", "1", ERROR_BADREQ, "%3A");
    expect_bad("1 LOCK a :text", "1", ERROR_BADREQ, "%3A");
    expect_bad("1 SHOW a :text", "1", ERROR_BADREQ, "too many words");
    expect_bad("1 CANCEL a", "1", ERROR_BADREQ, "not a tag");
    expect_bad("1 CANCEL %31", "1", ERROR_BADREQ, "not a tag");
    expect_bad("1 CANCEL 12345678901234567", "1", ERROR_BADREQ, "not a tag");
}

END_TEST

START_TEST(test_bad_keys)
{
    static const char *const unknown[] = {"modes=shared", "limits=1",
        "permit=1", "delays=1s", "kee=1s", "resumes=ab", "generation=1",
        "wai=1", "waitt=1", "=1", "=", "w%61it=1", "holds=1", "-=1",
        "wait\x7e=1"};
    static const char *const misplaced[] = {"keep=1s", "resume=ab", "gen=2",
        "count=1", "cursor=1", "name=x", "heartbeat=1s", "fence=1"};

    for (size_t i = 0; i < COUNT(unknown); i++) {
        expect_bad(line_with("1 LOCK a ", unknown[i], ""), "1", ERROR_BADREQ,
            "unknown key");
        expect_bad(line_with("1 HELLO ", unknown[i], ""), "1", ERROR_BADREQ,
            "unknown key");
    }
    for (size_t i = 0; i < COUNT(misplaced); i++)
        expect_bad(line_with("1 LOCK a ", misplaced[i], ""), "1", ERROR_BADREQ,
            "= is not a key of this command");
    expect_bad("1 CLAIM a", "1", ERROR_BADREQ, "fence= is missing");
    expect_bad(
        "1 LOCK a wait=1 wait=1", "1", ERROR_BADREQ, "wait= was given twice");
    expect_bad("1 LOCK a wait=1 owner=x WAIT=2", "1", ERROR_BADREQ,
        "wait= was given twice");
    expect_bad("1 LOCK a wait=", "1", ERROR_BADREQ, "without a value");
    expect_bad("1 LOCK a owner= note=x", "1", ERROR_BADREQ, "without a value");
    expect_bad("1 LOCK a owner=a=b", "1", ERROR_BADREQ, "%3D");
    expect_bad("1 LOCK a owner==", "1", ERROR_BADREQ, "%3D");
    expect_bad("1 LOCK a owner=:x", "1", ERROR_BADREQ, "%3A");
    expect_bad("1 RENEW a", "1", ERROR_BADREQ, "lease= is missing");
    expect_bad(
        "1 RENEW a fence=3 owner=x", "1", ERROR_BADREQ, "lease= is missing");
}

END_TEST

START_TEST(test_bad_escapes)
{
    static const char *const words[] = {
        "%", "a%", "%4", "%zz", "%%", "%4%41", "a%2", "%-1", "%0x"};

    for (size_t i = 0; i < COUNT(words); i++) {
        expect_bad(line_with("1 LOCK ", words[i], ""), "1", ERROR_BADREQ,
            "two hex digits");
        expect_bad(line_with("1 LOCK ", words[i], " wait=0"), "1", ERROR_BADREQ,
            "two hex digits");
        expect_bad(line_with("1 LOCK a owner=", words[i], " wait=0"), "1",
            ERROR_BADREQ, "two hex digits");
    }
}

END_TEST

/* `before`, one byte, `after`; the status of the line. */
static enum request_status
status_with_byte(
    const char *before, unsigned byte, const char *after, struct parsed *parsed)
{
    char line[128];
    int len = snprintf(line, sizeof(line), "%sX%s", before, after);

    line[strlen(before)] = (char)byte;
    parse_bytes(parsed, line, (size_t)len, PROTO_NAME_MAX);
    parsed_free(parsed);
    return parsed->status;
}

START_TEST(test_every_byte_everywhere)
{
    static const char *const places[][2] = {{"", "1 LOCK a"}, {"1", " LOCK a"},
        {"1 LOCK", " a"}, {"1 LOCK a", "b"}, {"1 LOCK ", "b"}, {"1 LOCK a", ""},
        {"1 LOCK a own", "er=x"}, {"1 LOCK a owner=x", ""},
        {"1 LOCK a wait=1", " owner=x"}, {"1 LOCK a ", " owner=x"}};

    for (unsigned byte = 0; byte < 256; byte++) {
        bool allowed = byte >= 0x20 && byte <= 0x7e;

        for (size_t i = 0; i < COUNT(places); i++) {
            struct parsed parsed;
            enum request_status status =
                status_with_byte(places[i][0], byte, places[i][1], &parsed);

            if (allowed)
                continue;
            ck_assert_msg(status == REQUEST_BAD, "%02x at %zu", byte, i);
            ck_assert_int_eq(parsed.error.code, ERROR_BADREQ);
            ck_assert_ptr_nonnull(strstr(parsed.error.what, "control bytes"));
            ck_assert_str_eq(parsed.request.tag, i < 2 ? "" : "1");
        }
        if (byte != '%' && byte != '=') {
            struct parsed parsed;

            ck_assert_int_eq(status_with_byte("1 LOCK a", byte, "", &parsed),
                allowed ? REQUEST_OK : REQUEST_BAD);
            ck_assert_int_eq(
                status_with_byte("1 LOCK a owner=o", byte, "", &parsed),
                allowed ? REQUEST_OK : REQUEST_BAD);
        }
    }
}

END_TEST

static const char *
repeated(const char *part, size_t times)
{
    static char out[PROTO_LINE_MAX];
    size_t len = strlen(part);

    for (size_t i = 0; i < times; i++)
        memcpy(out + i * len, part, len);
    out[times * len] = '\0';
    return out;
}

static void
expect_good_words(const char *before, const char *part, size_t times)
{
    struct parsed parsed;
    const char *line = line_with(before, repeated(part, times), "");

    parse_bytes(&parsed, line, strlen(line), PROTO_NAME_MAX);
    ck_assert_msg(parsed.status == REQUEST_OK, "%s", line);
    parsed_free(&parsed);
}

START_TEST(test_lengths)
{
    static const struct {
        const char *before;
        size_t max;
        const char *what;
    } words[] = {{"1 LOCK a owner=", PROTO_OWNER_MAX, "1 to 64 bytes"},
        {"1 LOCK a note=", PROTO_NOTE_MAX, "1 to 128 bytes"},
        {"1 LOCK a mode=", 16, "1 to 16 bytes"},
        {"1 HELLO name=", PROTO_CLIENT_MAX, "1 to 64 bytes"}};

    expect_good_words("1 LOCK ", "x", PROTO_NAME_MAX);
    expect_good_words("1 LOCK ", "%00", PROTO_NAME_MAX);
    expect_bad(line_with("1 LOCK ", repeated("x", PROTO_NAME_MAX + 1), ""), "1",
        ERROR_TOOLONG, "name is over");
    expect_bad(line_with("1 SHOW ", repeated("%20", PROTO_NAME_MAX + 1), ""),
        "1", ERROR_TOOLONG, "name is over");
    for (size_t i = 0; i < COUNT(words); i++) {
        expect_good_words(words[i].before, "x", words[i].max);
        expect_good_words(words[i].before, "%ff", words[i].max);
        expect_bad(
            line_with(words[i].before, repeated("x", words[i].max + 1), ""),
            "1", ERROR_BADREQ, words[i].what);
        expect_bad(
            line_with(words[i].before, repeated("%ff", words[i].max + 1), ""),
            "1", ERROR_BADREQ, words[i].what);
    }
}

END_TEST

START_TEST(test_configured_name_limit)
{
    for (size_t max = 1; max <= PROTO_NAME_MAX; max++) {
        for (size_t len = max; len <= max + 1; len++) {
            struct parsed parsed;
            const char *line = line_with("1 LOCK ", repeated("x", len), "");

            parse_bytes(&parsed, line, strlen(line), max);
            ck_assert_int_eq(
                parsed.status, len <= max ? REQUEST_OK : REQUEST_BAD);
            if (len > max)
                ck_assert_int_eq(parsed.error.code, ERROR_TOOLONG);
            parsed_free(&parsed);
        }
    }
}

END_TEST

START_TEST(test_durations)
{
    static const struct {
        const char *text;
        uint64_t ms;
    } good[] = {{"0", 0}, {"0ms", 0}, {"0s", 0}, {"0h", 0}, {"1", 1},
        {"1500", 1500}, {"1500ms", 1500}, {"30s", 30000}, {"5m", 300000},
        {"1h", 3600000}, {"8760h", 31536000000}, {"525600m", 31536000000},
        {"31536000s", 31536000000}, {"31536000000", 31536000000},
        {"31536000000ms", 31536000000}};

    static const char *const bad[] = {"-1", "+1", "1.5s", "1e3", "0x10", "s",
        "ms", "m", "h", "1d", "1S", "1MS", "1sm", "1s1", "1sec", "1ss", "1mss",
        "00", "01", "007s", "1_000", "1,5s", "1%20s", "%2b1", "1%00", "8761h",
        "525601m", "31536001s", "31536000001", "31536000001ms",
        "18446744073709551615", "18446744073709551616", "18446744073709551617",
        "18446744073709552s", "307445734561826m", "5124095576030432h",
        "99999999999999999999999999999999", "9007199254740992", "inf", "nan"};

    for (size_t i = 0; i < COUNT(good); i++) {
        char want[64];

        snprintf(want, sizeof(want), "1 LOCK a wait=%llu",
            (unsigned long long)good[i].ms);
        expect_good(line_with("1 LOCK a wait=", good[i].text, ""), want);
    }
    for (size_t i = 0; i < COUNT(bad); i++)
        expect_bad(line_with("1 LOCK a wait=", bad[i], ""), "1", ERROR_BADREQ,
            "wait= must be a duration");
}

END_TEST

START_TEST(test_ranges_of_durations)
{
    expect_good("1 LOCK a lease=1", "1 LOCK a lease=1");
    expect_bad("1 LOCK a lease=0", "1", ERROR_BADREQ, "lease= must be");
    expect_bad("1 RENEW a lease=0s", "1", ERROR_BADREQ, "lease= must be");
    expect_good("1 HELLO heartbeat=100ms", "1 HELLO heartbeat=100");
    expect_good("1 HELLO heartbeat=1h", "1 HELLO heartbeat=3600000");
    expect_bad("1 HELLO heartbeat=99", "1", ERROR_BADREQ, "heartbeat= must be");
    expect_bad("1 HELLO heartbeat=0", "1", ERROR_BADREQ, "heartbeat= must be");
    expect_bad(
        "1 HELLO heartbeat=3600001", "1", ERROR_BADREQ, "heartbeat= must be");
    expect_good("1 HELLO keep=0", "1 HELLO keep=0");
    expect_bad("1 HELLO keep=3600001", "1", ERROR_BADREQ, "keep= must be");
    expect_good("1 LOCK a delay=24h", "1 LOCK a delay=86400000");
    expect_bad("1 LOCK a delay=86400001", "1", ERROR_BADREQ, "delay= must be");
}

END_TEST

START_TEST(test_numbers)
{
    static const char *const bad[] = {"0", "-1", "+1", "00", "01", "1.0", "1e1",
        "0x1", "a", "1a", "9007199254740992", "9007199254740993",
        "9007199254740999", "90071992547409910", "18446744073709551615",
        "18446744073709551616", "18446744073709551617", "27670116110564327424",
        "36893488147419103233", "99999999999999999999999999999999999999"};

    for (size_t i = 0; i < COUNT(bad); i++) {
        expect_bad(line_with("1 UNLOCK a fence=", bad[i], ""), "1",
            ERROR_BADREQ,
            "fence= must be a decimal number from 1 to 9007199254740991");
        if (strcmp(bad[i], "0") != 0)
            expect_bad(line_with("1 PONG ", bad[i], ""), "1", ERROR_BADREQ,
                "not a decimal number");
    }
    expect_bad("1 SHOW a limit=4294967296", "1", ERROR_BADREQ, "limit= must");
    expect_bad(
        "1 LOCKS cursor=9007199254740992", "1", ERROR_BADREQ, "cursor= must");
    expect_bad("1 LOCK a limit=1 permits=0", "1", ERROR_BADREQ,
        "permits= must be a decimal number from 1 to 4294967295");
    expect_bad(
        "1 LOCK a permits=4294967296", "1", ERROR_BADREQ, "permits= must");
    expect_bad("1 HELLO gen=1", "1", ERROR_BADREQ, "gen= must");
    expect_bad("1 HELLO gen=4294967296", "1", ERROR_BADREQ, "gen= must");
    expect_bad("1 CLAIM a fence=1 count=0", "1", ERROR_BADREQ, "count= must");
    expect_bad(
        "1 CLAIM a fence=1 count=2147483648", "1", ERROR_BADREQ, "count= must");
    expect_bad("1 LOCK a deadlock=2", "1", ERROR_BADREQ, "must be 0 or 1");
    expect_bad("1 LOCK a progress=2", "1", ERROR_BADREQ, "must be 0 or 1");
    expect_bad("1 LOCK a progress=yes", "1", ERROR_BADREQ, "must be 0 or 1");
    expect_bad("1 LOCK a progress=01", "1", ERROR_BADREQ, "must be 0 or 1");
}

END_TEST

START_TEST(test_pong_keeps_its_number)
{
    struct parsed parsed;

    parse_bytes(&parsed, "PONG 42", 7, PROTO_NAME_MAX);
    ck_assert_int_eq(parsed.status, REQUEST_OK);
    ck_assert_int_eq(parsed.request.command, COMMAND_PONG);
    ck_assert_uint_eq(parsed.request.number, 42);
    parsed_free(&parsed);
}

END_TEST

/* The parser must take the keys of the usage text. */
START_TEST(test_every_key_of_every_command)
{
    static const char *const samples[] = {
        [WORD] = "x", [DURATION] = "1s", [NUMBER] = "2", [FLAG] = "1"};

    for (int command = 0; command < COMMAND_COUNT; command++) {
        const char *usage = command_usage((enum command)command);
        const char *argument = strstr(usage, " name") != NULL      ? " a"
                               : strstr(usage, " TAG") != NULL     ? " 1"
                               : strstr(usage, " session") != NULL ? " 0123abcd"
                               : strstr(usage, " n") != NULL       ? " 1"
                                                                   : "";

        for (int key = 0; key < REQUEST_KEY_COUNT; key++) {
            char line[128], listed[32];
            struct parsed parsed;
            const char *sample = key == REQUEST_KEY_RESUME
                                     ? "00112233445566778899aabbccddeeff"
                                     : samples[key_types[key]];

            snprintf(listed, sizeof(listed), "%s=", key_words[key]);
            snprintf(line, sizeof(line), "%s%s %s%s",
                command_name((enum command)command), argument, listed, sample);
            parse_bytes(&parsed, line, strlen(line), PROTO_NAME_MAX);
            if (parsed.status == REQUEST_BAD &&
                strstr(parsed.error.what, "is missing") != NULL)
                ck_assert(strstr(usage, " lease=D") != NULL ||
                          strstr(usage, " fence=F") != NULL);
            else
                ck_assert_msg((parsed.status == REQUEST_OK) ==
                                  (strstr(usage, listed) != NULL),
                    "%s", line);
            parsed_free(&parsed);
        }
    }
}

END_TEST

START_TEST(test_words_refer_into_the_line)
{
    struct parsed parsed;

    parse_bytes(
        &parsed, "1 LOCK a%41b owner=%42 note=c%43", 32, PROTO_NAME_MAX);
    ck_assert_int_eq(parsed.status, REQUEST_OK);
    ck_assert_ptr_eq(parsed.request.argument.at, parsed.line + 7);
    ck_assert(text_equal(parsed.request.argument, TEXT("aAb")));
    ck_assert(text_equal(parsed.request.word[REQUEST_KEY_OWNER], TEXT("B")));
    ck_assert(text_equal(parsed.request.word[REQUEST_KEY_NOTE], TEXT("cC")));
    parsed_free(&parsed);
}

END_TEST

START_TEST(test_a_name_may_hold_any_byte)
{
    for (unsigned byte = 0; byte < 256; byte++) {
        char plain = (char)byte, line[16] = "1 LOCK ";
        struct parsed parsed;
        size_t len = percent_encode(text_make(&plain, 1), line + 7, 9);

        parse_bytes(&parsed, line, 7 + len, PROTO_NAME_MAX);
        ck_assert_int_eq(parsed.status, REQUEST_OK);
        ck_assert(text_equal(parsed.request.argument, text_make(&plain, 1)));
        parsed_free(&parsed);
    }
}

END_TEST

START_TEST(test_tag_of_an_unparsed_line)
{
    static const struct {
        const char *line;
        const char *tag; /* NULL: none */
    } lines[] = {{"12 LOCK x", "12"}, {"  7.a LOCK", "7.a"}, {"1", "1"},
        {"LOCK x", NULL}, {"", NULL}, {"  ", NULL}, {"1+ x", NULL},
        {"1234567890123456 x", "1234567890123456"},
        {"12345678901234567 x", NULL}, {"1\t x", NULL}, {"-1 x", NULL}};

    for (size_t i = 0; i < COUNT(lines); i++) {
        size_t len = strlen(lines[i].line);
        char tag[PROTO_TAG_MAX + 1] = "rest";
        char *line = malloc(len == 0 ? 1 : len);

        ck_assert_ptr_nonnull(line);
        memcpy(line, lines[i].line, len);
        ck_assert_int_eq(request_tag(line, len, tag), lines[i].tag != NULL);
        ck_assert_str_eq(tag, lines[i].tag == NULL ? "" : lines[i].tag);
        free(line);
    }
}

END_TEST

START_TEST(test_vocabulary)
{
    ck_assert_str_eq(command_name(COMMAND_SESSIONS), "SESSIONS");
    ck_assert_str_eq(error_name(ERROR_UNAVAILABLE), "UNAVAILABLE");
    ck_assert_str_eq(event_name(EVENT_BYE), "BYE");
    ck_assert(error_retry(ERROR_UNAVAILABLE));
    ck_assert(!error_retry(ERROR_BADREQ));
    for (int i = 0; i < COMMAND_COUNT; i++) {
        const char *name = command_name((enum command)i);

        ck_assert_mem_eq(command_usage((enum command)i), name, strlen(name));
        ck_assert_uint_gt(strlen(command_help((enum command)i)), 0);
    }
    for (int i = 0; i < ERROR_COUNT; i++)
        ck_assert_uint_gt(strlen(error_meaning((enum error_code)i)), 0);
}

END_TEST

static struct text
random_word(struct random *random, char *memory, size_t max)
{
    size_t len = 1 + random_below(random, max);
    /* Half of the bytes are printable, so that not all words are of '%'. */
    bool readable = random_below(random, 2) == 0;

    for (size_t i = 0; i < len; i++)
        memory[i] = readable ? (char)(0x21 + random_below(random, 0x5e))
                             : (char)random_below(random, 256);
    return text_make(memory, len);
}

static void
random_tag(struct random *random, char *tag)
{
    static const char bytes[] = "0123456789aAzZ._-";
    size_t len = 1 + random_below(random, PROTO_TAG_MAX);

    tag[0] = (char)('0' + random_below(random, 10));
    for (size_t i = 1; i < len; i++)
        tag[i] = bytes[random_below(random, sizeof(bytes) - 1)];
    tag[len] = '\0';
}

/* request.c must read a whole LOCK that reply.c has written. */
START_TEST(test_round_trip)
{
    struct random random;

    random_init(&random, 1);
    for (unsigned round = 0; round < 20000; round++) {
        char tag[PROTO_TAG_MAX + 1], line[PROTO_LINE_MAX];
        char name[PROTO_NAME_MAX], owner[PROTO_OWNER_MAX], note[PROTO_NOTE_MAX];
        struct text name_text = random_word(&random, name, sizeof(name));
        struct text owner_text = random_word(&random, owner, sizeof(owner));
        struct text note_text = random_word(&random, note, sizeof(note));
        uint64_t wait_ms = random_below(&random, 31536000001);
        struct parsed parsed;
        struct reply reply;
        size_t len;

        random_tag(&random, tag);
        reply_begin(&reply, line, sizeof(line), tag, "LOCK");
        reply_word(&reply, name_text);
        reply_pair_number(&reply, "wait", wait_ms);
        reply_pair(&reply, "note", note_text);
        reply_pair(&reply, "owner", owner_text);
        len = reply_end(&reply);
        ck_assert_uint_gt(len, 0);
        parse_bytes(&parsed, line, len - 1, PROTO_NAME_MAX);
        ck_assert_msg(parsed.status == REQUEST_OK, "%.*s", (int)len, line);
        ck_assert_str_eq(parsed.request.tag, tag);
        ck_assert(text_equal(parsed.request.argument, name_text));
        ck_assert_uint_eq(parsed.request.value[REQUEST_KEY_WAIT], wait_ms);
        ck_assert(text_equal(parsed.request.word[REQUEST_KEY_NOTE], note_text));
        ck_assert(
            text_equal(parsed.request.word[REQUEST_KEY_OWNER], owner_text));
        ck_assert(!request_has(&parsed.request, REQUEST_KEY_LEASE));
        parsed_free(&parsed);
    }
}

END_TEST

/* Cut and damaged lines have a result, without an access past the line. */
START_TEST(test_damaged_lines)
{
    static const char whole[] =
        "12 LOCK st%6fck wait=5s lease=30s owner=o note=n%20 progress=1";
    struct random random;
    struct parsed parsed;

    for (size_t len = 0; len < sizeof(whole); len++) {
        parse_bytes(&parsed, whole, len, PROTO_NAME_MAX);
        if (len > 3)
            ck_assert_str_eq(parsed.request.tag, "12");
        parsed_free(&parsed);
    }
    random_init(&random, 2);
    for (unsigned round = 0; round < 50000; round++) {
        char line[sizeof(whole)];

        memcpy(line, whole, sizeof(whole));
        for (uint64_t i = 1 + random_below(&random, 4); i > 0; i--)
            line[random_below(&random, sizeof(whole) - 1)] =
                (char)random_below(&random, 256);
        parse_bytes(&parsed, line, sizeof(whole) - 1, PROTO_NAME_MAX);
        if (parsed.status == REQUEST_BAD)
            ck_assert_int_lt(parsed.error.code, ERROR_COUNT);
        parsed_free(&parsed);
    }
}

END_TEST

static void
add_word_tests(TCase *tcase)
{
    tcase_add_test(tcase, test_good_lines);
    tcase_add_test(tcase, test_blank_lines);
    tcase_add_test(tcase, test_bad_tags);
    tcase_add_test(tcase, test_unknown_commands);
    tcase_add_test(tcase, test_bad_words);
    tcase_add_test(tcase, test_bad_keys);
    tcase_add_test(tcase, test_bad_escapes);
    tcase_add_test(tcase, test_every_byte_everywhere);
    tcase_add_test(tcase, test_lengths);
    tcase_add_test(tcase, test_configured_name_limit);
    tcase_add_test(tcase, test_durations);
    tcase_add_test(tcase, test_ranges_of_durations);
    tcase_add_test(tcase, test_numbers);
    tcase_add_test(tcase, test_pong_keeps_its_number);
}

Suite *
request_suite(void)
{
    Suite *suite = suite_create("request");
    TCase *tcase = tcase_create("request");

    add_word_tests(tcase);
    tcase_add_test(tcase, test_every_key_of_every_command);
    tcase_add_test(tcase, test_words_refer_into_the_line);
    tcase_add_test(tcase, test_a_name_may_hold_any_byte);
    tcase_add_test(tcase, test_tag_of_an_unparsed_line);
    tcase_add_test(tcase, test_vocabulary);
    tcase_add_test(tcase, test_round_trip);
    tcase_add_test(tcase, test_damaged_lines);
    suite_add_tcase(suite, tcase);
    return suite;
}

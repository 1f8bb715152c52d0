/*
 * Lines of replies and events: their exact text, bytes that a line must not
 * have, and too little room at every byte.
 */
#include "proto/reply.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>

Suite *reply_suite(void);

static char out[256];
static struct reply reply;

static void
begin(const char *tag, const char *word)
{
    reply_begin(&reply, out, sizeof(out), tag, word);
}

static void
expect_line(const char *line)
{
    size_t len = reply_end(&reply);

    ck_assert_uint_eq(len, strlen(line));
    ck_assert_mem_eq(reply.start, line, len);
}

START_TEST(test_ok)
{
    begin("12", "OK");
    reply_pair_number(&reply, "fence", PROTO_NUMBER_MAX);
    reply_pair_number(&reply, "ttl_ms", 29990);
    reply_pair_number(&reply, "count", 1);
    expect_line("12 OK fence=9007199254740991 ttl_ms=29990 count=1\n");
}

END_TEST

START_TEST(test_untagged)
{
    begin("", "OK");
    expect_line("- OK\n");
    begin(NULL, "QUEUED");
    reply_pair_number(&reply, "position", 0);
    expect_line("- QUEUED position=0\n");
}

END_TEST

START_TEST(test_numbers_to_their_ends)
{
    begin("1", "OK");
    reply_pair_number(&reply, "v", UINT64_MAX);
    reply_number(&reply, 0);
    expect_line("1 OK v=18446744073709551615 0\n");
}

END_TEST

START_TEST(test_words_are_encoded)
{
    begin("1", "ITEM");
    reply_word(&reply, TEXT(":a b"));
    reply_pair(&reply, "owner", TEXT("100%=\n"));
    reply_pair(&reply, "note", text_make("\0\xff", 2));
    expect_line("1 ITEM %3Aa%20b owner=100%25%3D%0A note=%00%FF\n");
}

END_TEST

START_TEST(test_an_empty_value_leaves_its_pair_out)
{
    begin("1", "ITEM");
    reply_pair(&reply, "owner", text_make(NULL, 0));
    reply_pair(&reply, "note", TEXT("x"));
    expect_line("1 ITEM note=x\n");
}

END_TEST

START_TEST(test_free_text_is_one_line)
{
    begin("1", "OK");
    reply_text(&reply, "a=b %20 :c\r\n\t\x1b\x7f\xc3\xa4");
    expect_line("1 OK :a=b %20 :c?????\xc3\xa4\n");
    begin("1", "OK");
    reply_text(&reply, "");
    expect_line("1 OK :\n");
}

END_TEST

START_TEST(test_every_error)
{
    for (int code = 0; code < ERROR_COUNT; code++) {
        char want[256];

        reply_error_begin(
            &reply, out, sizeof(out), "7.a", (enum error_code)code);
        reply_text(&reply, error_meaning((enum error_code)code));
        snprintf(want, sizeof(want), "7.a ERR %s retry=%d :%s\n",
            error_name((enum error_code)code),
            error_retry((enum error_code)code),
            error_meaning((enum error_code)code));
        expect_line(want);
    }
}

END_TEST

START_TEST(test_every_event)
{
    for (int code = 0; code < EVENT_COUNT; code++) {
        char want[256];

        reply_event_begin(&reply, out, sizeof(out), (enum event_code)code);
        reply_word(&reply, TEXT("a name"));
        snprintf(want, sizeof(want), "* %s a%%20name\n",
            event_name((enum event_code)code));
        expect_line(want);
    }
}

END_TEST

static size_t
write_long_line(char *start, size_t room)
{
    reply_error_begin(&reply, start, room, "12", ERROR_LIMIT);
    reply_pair(&reply, "limit", TEXT("holds"));
    reply_word(&reply, TEXT("a b"));
    reply_number(&reply, 4711);
    reply_pair_number(&reply, "n", 10);
    reply_text(&reply, "over\n");
    return reply_end(&reply);
}

START_TEST(test_too_little_room_at_every_byte)
{
    const char *line =
        "12 ERR LIMIT retry=1 limit=holds a%20b 4711 n=10 :over?\n";
    size_t len = strlen(line);

    for (size_t room = 0; room < len + 8; room++) {
        /* A sanitizer sees a write past the room. */
        char *start = malloc(room == 0 ? 1 : room);

        ck_assert_ptr_nonnull(start);
        ck_assert_uint_eq(write_long_line(start, room), room < len ? 0 : len);
        if (room >= len)
            ck_assert_mem_eq(start, line, len);
        free(start);
    }
}

END_TEST

START_TEST(test_what_did_not_fit_is_not_forgotten)
{
    reply_begin(&reply, out, 16, "1", "OK");
    reply_pair(&reply, "note", TEXT("much too long a word"));
    reply_number(&reply, 1); /* would fit alone */
    ck_assert(reply.overflow);
    ck_assert_uint_eq(reply_end(&reply), 0);
}

END_TEST

Suite *
reply_suite(void)
{
    Suite *suite = suite_create("reply");
    TCase *tcase = tcase_create("reply");

    tcase_add_test(tcase, test_ok);
    tcase_add_test(tcase, test_untagged);
    tcase_add_test(tcase, test_numbers_to_their_ends);
    tcase_add_test(tcase, test_words_are_encoded);
    tcase_add_test(tcase, test_an_empty_value_leaves_its_pair_out);
    tcase_add_test(tcase, test_free_text_is_one_line);
    tcase_add_test(tcase, test_every_error);
    tcase_add_test(tcase, test_every_event);
    tcase_add_test(tcase, test_too_little_room_at_every_byte);
    tcase_add_test(tcase, test_what_did_not_fit_is_not_forgotten);
    suite_add_tcase(suite, tcase);
    return suite;
}

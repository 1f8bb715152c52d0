/*
 * Percent-encoding: what is encoded and what is not, both ways, at every length
 * and every room.
 */
#include "daemon/base/random.h"
#include "proto/reply.h"

#include <check.h>
#include <stdlib.h>

Suite *percent_suite(void);

static void
expect_encoded(const char *plain, size_t len, const char *encoded)
{
    char out[1024];
    size_t got = percent_encode(text_make(plain, len), out, sizeof(out));

    ck_assert_uint_eq(got, strlen(encoded));
    ck_assert_mem_eq(out, encoded, got);
}

START_TEST(test_encodes_what_it_must)
{
    expect_encoded("stock/4711", 10, "stock/4711");
    expect_encoded("a b", 3, "a%20b");
    expect_encoded("a%b", 3, "a%25b");
    expect_encoded("a=b", 3, "a%3Db");
    expect_encoded(":a", 2, "%3Aa");
    expect_encoded("a:b:", 4, "a:b:");
    expect_encoded("!~", 2, "!~");
    expect_encoded("\x7f", 1, "%7F");
    expect_encoded("\0", 1, "%00");
    expect_encoded("\r\n\t", 3, "%0D%0A%09");
    expect_encoded("\xc3\xa4", 2, "%C3%A4");
    expect_encoded("", 0, "");
}

END_TEST

START_TEST(test_every_byte_goes_round)
{
    for (unsigned byte = 0; byte < 256; byte++) {
        char plain[3] = {(char)byte, (char)byte, 'x'};
        char out[9];
        size_t len = percent_encode(text_make(plain, 3), out, sizeof(out));

        ck_assert_uint_ge(len, 3);
        for (size_t i = 0; i < len; i++) {
            ck_assert_int_gt(out[i], 0x20);
            ck_assert_int_lt(out[i], 0x7f);
            ck_assert_int_ne(out[i], '=');
        }
        ck_assert_int_ne(out[0], ':');
        ck_assert_uint_eq(percent_decode(out, len), 3);
        ck_assert_mem_eq(out, plain, 3);
    }
}

END_TEST

START_TEST(test_all_bytes_in_one_word)
{
    char plain[256], out[768];
    size_t len;

    for (size_t i = 0; i < sizeof(plain); i++)
        plain[i] = (char)i;
    len = percent_encode(text_make(plain, sizeof(plain)), out, sizeof(out));
    ck_assert_uint_gt(len, sizeof(plain));
    ck_assert_uint_eq(percent_decode(out, len), sizeof(plain));
    ck_assert_mem_eq(out, plain, sizeof(plain));
}

END_TEST

START_TEST(test_any_word_goes_round)
{
    struct random random;

    random_init(&random, 4653);
    for (unsigned round = 0; round < 20000; round++) {
        char plain[64], out[192];
        size_t want = 1 + random_below(&random, sizeof(plain));
        size_t len;

        for (size_t i = 0; i < want; i++)
            plain[i] = (char)random_below(&random, 256);
        len = percent_encode(text_make(plain, want), out, sizeof(out));
        ck_assert_uint_ge(len, want);
        ck_assert_uint_eq(percent_decode(out, len), want);
        ck_assert_mem_eq(out, plain, want);
    }
}

END_TEST

START_TEST(test_never_writes_past_its_room)
{
    struct text word = TEXT("ab c%d");
    const char *encoded = "ab%20c%25d";

    for (size_t room = 0; room < strlen(encoded) + 3; room++) {
        char *out = malloc(room == 0 ? 1 : room);
        size_t len;

        ck_assert_ptr_nonnull(out);
        len = percent_encode(word, out, room);
        if (room < strlen(encoded))
            ck_assert_uint_eq(len, 0);
        else
            ck_assert_uint_eq(len, strlen(encoded));
        free(out);
    }
}

END_TEST

START_TEST(test_decodes_either_case)
{
    char word[] = "%3a%3A%c3%A4";

    ck_assert_uint_eq(percent_decode(word, strlen(word)), 4);
    ck_assert_mem_eq(word, "::\xc3\xa4", 4);
}

END_TEST

START_TEST(test_decodes_once)
{
    char word[] = "%2541";

    ck_assert_uint_eq(percent_decode(word, strlen(word)), 3);
    ck_assert_mem_eq(word, "%41", 3);
}

END_TEST

START_TEST(test_refuses_half_an_escape)
{
    static const char *const words[] = {"%", "a%", "%4", "%4g", "%g4", "%%41",
        "%-1", "% 1", "%+1", "%0x41", "%/0", "%0:", "%@0", "%0G", "%`0",
        "a%41%", "a%41%4"};

    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        size_t len = strlen(words[i]);
        char *word = malloc(len); /* no NUL: to read past it is seen */

        ck_assert_ptr_nonnull(word);
        memcpy(word, words[i], len);
        ck_assert_msg(percent_decode(word, len) == SIZE_MAX, "%s", words[i]);
        free(word);
    }
}

END_TEST

START_TEST(test_only_hex_digits_are_digits)
{
    for (unsigned byte = 0; byte < 256; byte++) {
        char high[3] = {'%', (char)byte, '0'};
        char low[3] = {'%', '0', (char)byte};
        bool digit = (byte >= '0' && byte <= '9') ||
                     (byte >= 'a' && byte <= 'f') ||
                     (byte >= 'A' && byte <= 'F');

        ck_assert_uint_eq(percent_decode(high, 3), digit ? 1 : SIZE_MAX);
        ck_assert_uint_eq(percent_decode(low, 3), digit ? 1 : SIZE_MAX);
    }
}

END_TEST

Suite *
percent_suite(void)
{
    Suite *suite = suite_create("percent");
    TCase *tcase = tcase_create("percent");

    tcase_add_test(tcase, test_encodes_what_it_must);
    tcase_add_test(tcase, test_every_byte_goes_round);
    tcase_add_test(tcase, test_all_bytes_in_one_word);
    tcase_add_test(tcase, test_any_word_goes_round);
    tcase_add_test(tcase, test_never_writes_past_its_room);
    tcase_add_test(tcase, test_decodes_either_case);
    tcase_add_test(tcase, test_decodes_once);
    tcase_add_test(tcase, test_refuses_half_an_escape);
    tcase_add_test(tcase, test_only_hex_digits_are_digits);
    suite_add_tcase(suite, tcase);
    return suite;
}

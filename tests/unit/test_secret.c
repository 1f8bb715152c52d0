/*
 * The secret in a file: what an editor or a shell leaves there beside it.
 */
#include "daemon/base/secret.h"

#include <check.h>

Suite *secret_suite(void);

static struct text secret;
static char why[128];

static bool
take(struct text file)
{
    why[0] = '\0';
    return secret_read(file, 1, 20, &secret, why, sizeof(why));
}

START_TEST(taken)
{
    static const char *const files[] = {"se cret", "se cret\n", "se cret\r\n",
        "se cret\n\n", "se cret\r\n\r\n", "se cret\n\r\n\n",
        "\xef\xbb\xbfse cret", "\xef\xbb\xbfse cret\r\n"};

    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
        ck_assert_msg(take(text_from(files[i])), "%zu: %s", i, why);
        ck_assert(text_equal(secret, TEXT("se cret")));
    }
    ck_assert(take(TEXT("\xff-\xc3\xb6")));
    ck_assert(take(TEXT("12345678901234567890\n")));
}

END_TEST

START_TEST(refused)
{
#define LINES   "has more than one line: leave only the secret in it"
#define CONTROL "has a control character (a NUL, a tab ...): remove it"
#define BEGINS  "begins with a blank: remove it"
#define ENDS    "ends in a blank: remove it"

    static const struct {
        struct text file;
        const char *why;
    } cases[] = {
        {{"", 0}, "is empty"},
        {{"\r\n\n", 3}, "is empty"},
        {{"\xef\xbb\xbf\n", 4}, "is empty"},
        {{"a\nb", 3}, LINES},
        {{"a\rb", 3}, LINES},
        {{"\na", 2}, LINES},
        {{"# a\nb\n", 6}, LINES},
        {{"a\n ", 3}, LINES},
        {{"a\0b", 3}, CONTROL},
        {{"a\t\n", 3}, CONTROL},
        {{"a\x1a", 2}, CONTROL},
        {{"a\x7f", 2}, CONTROL},
        {{" a", 2}, BEGINS},
        {{"\xc2\xa0"
          "a",
             3},
            BEGINS},
        {{"\xef\xbb\xbf a", 5}, BEGINS},
        {{"a ", 2}, ENDS},
        {{"a \r\n", 4}, ENDS},
        {{"a\xc2\xa0", 3}, ENDS},
        {{"a\xe2\x80\x8b", 4}, ENDS},
        {{"a\xef\xbb\xbf", 4}, ENDS},
        {{"\xff\xfe"
          "a\0",
             4},
            "is UTF-16: save it as UTF-8"},
        {{"\xfe\xff\0a", 4}, "is UTF-16: save it as UTF-8"},
        {{"123456789012345678901", 21}, "is longer than 20 bytes"},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        ck_assert_msg(!take(cases[i].file), "%zu", i);
        ck_assert_str_eq(why, cases[i].why);
    }
    ck_assert(!secret_read(TEXT("a\n"), 2, 20, &secret, why, sizeof(why)));
    ck_assert_str_eq(why, "is shorter than 2 bytes");
}

END_TEST

/* The bytes past the room for a file do not matter. */
START_TEST(large_files)
{
    char file[SECRET_FILE_BYTES];

    memset(file, '\n', sizeof(file));
    file[0] = 'a';
    ck_assert(take(text_make(file, sizeof(file) - 1)));
    ck_assert(!take(text_make(file, sizeof(file))));
    ck_assert_str_eq(why, "is longer than 20 bytes");
}

END_TEST

Suite *
secret_suite(void)
{
    Suite *suite = suite_create("secret");
    TCase *tcase = tcase_create("secret");

    tcase_add_test(tcase, taken);
    tcase_add_test(tcase, refused);
    tcase_add_test(tcase, large_files);
    suite_add_tcase(suite, tcase);
    return suite;
}

/*
 * Tests of conf/users.c, which reads users, and of daemon/base/users.c, which
 * looks them up: what may be in the file, how one is known, who may do what.
 */
#include "conf/users.h"
#include "daemon/base/random.h"
#include "tests/unit/seed.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

Suite *users_suite(void);

#define COUNT(table) (sizeof(table) / sizeof((table)[0]))

/* Of the secret "correct horse battery", with a salt of 16 times 'a'. */
#define HORSE                                          \
    "sha256$61616161616161616161616161616161$"         \
    "51a99149c1c3d0c1a66fe5b2a5a0aa6671f70024b123dce6" \
    "e023f0b4d1cdf75f"

static char error[8192];

static struct users *
parse(const char *text)
{
    error[0] = '\0';
    return users_parse("u", text_from(text), error, sizeof(error));
}

static struct users *
good(const char *text)
{
    struct users *users = parse(text);

    ck_assert_msg(users != NULL, "%s: %s", text, error);
    return users;
}

/* A secret as it stands in a file; static. */
static const char *
hashed(const char *secret)
{
    static char texts[4][USER_HASHED_BYTES];
    static unsigned next;
    uint8_t salt[USER_SALT_BYTES];
    char *out = texts[next++ % 4];

    memset(salt, 'a' + (int)(next % 4), sizeof(salt));
    user_hash_text(salt, text_from(secret), out);
    return out;
}

static const struct user *
user_of(const struct users *users, const char *name)
{
    const struct user *user = users_find(users, text_from(name));

    ck_assert_msg(user != NULL, "no user %s", name);
    return user;
}

static bool
may(const struct users *users, const char *name, enum right right,
    const char *lock)
{
    return user_may(users, user_of(users, name), right, text_from(lock));
}

static struct user *
known(const struct users *users, const char *name, const char *secret)
{
    uint32_t mark;

    return users_of_secret(users, text_from(name), text_from(secret), &mark);
}

/* --- the file ------------------------------------------------------------- */

START_TEST(a_file)
{
    struct users *users = good("\xef\xbb\xbf" /* an editor's mark */
                               "# those who may\n"
                               "\n"
                               "  zed uid=7\tsee=* \r\n"
                               "shop uid=1001 lock=stock/* lock=nightly\r\n"
                               "\t# a blank before it\n"
                               "o%20p uid=0 lock=* break=* admin");

    ck_assert_uint_eq(users->count, 3);
    ck_assert(text_equal(users->user[0].name, TEXT("o p")));
    ck_assert(text_equal(users->user[1].name, TEXT("shop")));
    ck_assert(text_equal(users->user[2].name, TEXT("zed")));
    ck_assert_uint_eq(user_of(users, "shop")->rule_count, 2);
    ck_assert(user_of(users, "o p")->admin);
    ck_assert(!user_of(users, "shop")->admin);
    ck_assert_ptr_null(users_find(users, TEXT("sho")));
    ck_assert_ptr_null(users_find(users, TEXT("shopp")));
    users_destroy(&users);
    ck_assert_ptr_null(users);
    users_destroy(&users);
}

END_TEST

START_TEST(mistakes)
{
    static const struct {
        const char *text;
        const char *error;
    } table[] = {
        {"", "u:1:1: the file has no users"},
        {"# a uid=1\n\n", "u:2:1: the file has no users"},
        {"a", "u:1:1: the user has no credentials: secret=, uid= or cert= "
              "expected"},
        {"a lock=*\n", "u:1:1: the user has no credentials: secret=, uid= or "
                       "cert= expected"},
        {"a cert=x\nb uid=1 cert=%78", "u:2:14: cert: already in the file"},
        {"a cert=x cert=x", "u:1:15: cert: already in the file"},
        {"a cert=",
            "u:1:8: cert: a name in the certificate: 1 to 255 bytes expected"},
        {"a cert=%", "u:1:8: '%' must be followed by two hex digits"},
        {"uid=1", "u:1:1: a line begins with the user's name"},
        {"a uid=1\na uid=2", "u:2:1: the user is already in the file"},
        {"a uid=1\nb  uid=1", "u:2:8: uid: already in the file"},
        {"a uid=1 uid=1", "u:1:13: uid: already in the file"},
        {"a uid=", "u:1:7: uid: a number from 0 to 4294967294 expected"},
        {"a uid=-1", "u:1:7: uid: a number from 0 to 4294967294 expected"},
        {"a uid=4294967295",
            "u:1:7: uid: a number from 0 to 4294967294 expected"},
        {"a uid=root", "u:1:7: uid: a number from 0 to 4294967294 expected"},
        {"a uid=1 admins", "u:1:9: unknown word; secret=, uid=, cert=, lock=, "
                           "see=, break= or admin expected"},
        {"a uid=1 admin=1", "u:1:9: unknown word; secret=, uid=, cert=, lock=, "
                            "see=, break= or admin expected"},
        {"a uid=1 Lock=b", "u:1:9: unknown word; secret=, uid=, cert=, lock=, "
                           "see=, break= or admin expected"},
        {"a uid=1 lock=", "u:1:14: a name of locks: 1 to 255 bytes expected"},
        {"a uid=1 lock=a*b", "u:1:15: a * is allowed at the end only; write "
                             "%2A for the character"},
        {"a uid=1 lock=**", "u:1:14: a * is allowed at the end only; write %2A "
                            "for the character"},
        {"a uid=1 lock=a%2", "u:1:14: '%' must be followed by two hex digits"},
        {"a uid=1 lock=\xc3\xa9", "u:1:14: control bytes and bytes above 0x7E "
                                  "must be percent-encoded"},
        {"a\rb uid=1", "u:1:2: control bytes and bytes above 0x7E must be "
                       "percent-encoded"},
        {"% uid=1", "u:1:1: '%' must be followed by two hex digits"},
        /* All of them, and none that would follow from another. */
        {"a uid=x lock=%\n% uid=1\nb lock=*\nc uid=1\nc uid=1 uid=1\n",
            "u:1:7: uid: a number from 0 to 4294967294 expected\n"
            "u:1:14: '%' must be followed by two hex digits\n"
            "u:2:1: '%' must be followed by two hex digits\n"
            "u:3:1: the user has no credentials: secret=, uid= or cert= "
            "expected\n"
            "u:5:1: the user is already in the file\n"
            "u:5:7: uid: already in the file\n"
            "u:5:13: uid: already in the file"},
    };

    for (size_t i = 0; i < COUNT(table); i++) {
        ck_assert_ptr_null(parse(table[i].text));
        ck_assert_str_eq(error, table[i].error);
    }
}

END_TEST

/* Nothing of a secret, however wrong, is in the error. */
START_TEST(bad_secrets)
{
    static const char *const secrets[] = {
        "", "hunter2", "sha256$", "sha256$00$00", "SHA256$", "sha512$"};
    char text[400];
    char most[USER_HASHED_BYTES];

    for (size_t i = 0; i < COUNT(secrets); i++) {
        snprintf(text, sizeof(text), "a secret=%s lock=*", secrets[i]);
        ck_assert_ptr_null(parse(text));
        ck_assert_str_eq(error, "u:1:10: secret: sha256$SALT$DIGEST expected, "
                                "as `holdfast secret` prints it");
    }
    for (size_t i = 0; i + 1 < USER_HASHED_BYTES; i++) {
        memcpy(most, hashed("correct horse battery"), sizeof(most));
        most[i] = 'x';
        snprintf(text, sizeof(text), "a secret=%s", most);
        ck_assert_ptr_null(parse(text));
    }
    snprintf(text, sizeof(text), "a secret=%s0", hashed("a secret"));
    ck_assert_ptr_null(parse(text));
}

END_TEST

/* A file of `count` users, each with what `format` makes of its number. */
static struct users *
many(unsigned count, const char *words)
{
    size_t room = count * (20 + strlen(words)) + 1;
    char *text = malloc(room);
    size_t len = 0;

    ck_assert_ptr_nonnull(text);
    text[0] = '\0';
    for (unsigned i = 0; i < count; i++)
        len += (size_t)snprintf(
            text + len, room - len, "u%u uid=%u%s\n", i, i, words);
    struct users *users = parse(text);
    free(text);
    return users;
}

START_TEST(limits)
{
    char words[USERS_RULES_MAX * 8 + 16] = "";
    struct users *users = many(USERS_MAX, "");

    ck_assert_msg(users != NULL, "%s", error);
    for (unsigned i = 0; i < USERS_MAX; i++) {
        char name[16];
        snprintf(name, sizeof(name), "u%u", i);
        ck_assert_ptr_nonnull(user_of(users, name));
    }
    users_destroy(&users);
    ck_assert_ptr_null(many(USERS_MAX + 1, ""));
    ck_assert_ptr_nonnull(strstr(error, "at most 4096 users"));
    for (unsigned i = 0; i < USERS_RULES_MAX; i++)
        strncat(words, " lock=a", sizeof(words) - strlen(words) - 1);
    users = many(1, words);
    ck_assert_msg(users != NULL, "%s", error);
    users_destroy(&users);
    strncat(words, " see=a", sizeof(words) - strlen(words) - 1);
    ck_assert_ptr_null(many(1, words));
    ck_assert_ptr_null(
        parse("a uid=1 uid=2 uid=3 uid=4 uid=5 uid=6 uid=7 uid=8 uid=9"));
    ck_assert_str_eq(error,
        "u:1:55: a user may have at most 8 secrets, uids and certificates");
}

END_TEST

START_TEST(files)
{
    char path[] = "/tmp/holdfast-users-XXXXXX";
    int file = mkstemp(path);
    char expected[80];

    ck_assert_int_ge(file, 0);
    ck_assert_int_eq(write(file, "a uid=1\n", 8), 8);
    struct users *users = users_load(path, true, NULL, error, sizeof(error));
    ck_assert_msg(users != NULL, "%s", error);
    ck_assert_ptr_eq(
        users_load(path, true, users, error, sizeof(error)), users);
    ck_assert_int_eq(write(file, "# another\n", 10), 10);
    struct users *other = users_load(path, true, users, error, sizeof(error));
    ck_assert_msg(other != NULL, "%s", error);
    ck_assert_ptr_ne(other, users);
    ck_assert_int_eq(write(file, "b\n", 2), 2);
    ck_assert_ptr_null(users_load(path, true, users, error, sizeof(error)));
    users_destroy(&other);
    users_destroy(&users);
    close(file);
    unlink(path);
    ck_assert_ptr_null(users_load(path, true, NULL, error, sizeof(error)));
    snprintf(expected, sizeof(expected), "%s: No such file or directory", path);
    ck_assert_str_eq(error, expected);
    ck_assert_ptr_null(users_load("/", true, NULL, error, sizeof(error)));
    ck_assert_str_eq(error, "/: not a regular file");
    ck_assert_ptr_null(
        users_load("/dev/zero", false, NULL, error, sizeof(error)));
    ck_assert_str_eq(error, "/dev/zero: larger than 1MiB");
}

END_TEST

/* --- identities ----------------------------------------------------------- */

START_TEST(secrets)
{
    char text[800];

    snprintf(text, sizeof(text), "a secret=%s secret=%s\nb secret=%s uid=3\n",
        hashed("the old secret of a"), hashed("the new secret of a"),
        hashed("the secret of b"));
    struct users *users = good(text);
    const struct user *a = user_of(users, "a");
    const struct user *b = user_of(users, "b");

    ck_assert_uint_eq(users->proofs_most, 2); /* hashed for everybody */
    ck_assert_ptr_eq(known(users, "a", "the old secret of a"), a);
    ck_assert_ptr_eq(known(users, "a", "the new secret of a"), a);
    ck_assert_ptr_eq(known(users, "b", "the secret of b"), b);
    ck_assert_ptr_null(known(users, "a", "the secret of b"));
    ck_assert_ptr_null(known(users, "a", "the old secret of "));
    ck_assert_ptr_null(known(users, "a", "the old secret of a "));
    ck_assert_ptr_null(known(users, "a", ""));
    ck_assert_ptr_null(known(users, "c", "the secret of b"));
    ck_assert_ptr_null(known(users, "c", ""));
    users_destroy(&users);
}

END_TEST

/* One who is known by a uid alone has no secret that would do. */
START_TEST(no_secret_of_a_uid)
{
    struct users *users = good("a uid=5");
    uint32_t mark;

    ck_assert_ptr_null(known(users, "a", ""));
    ck_assert_ptr_null(known(users, "a", "a"));
    ck_assert_ptr_eq(users_of_uid(users, 5, &mark), user_of(users, "a"));
    ck_assert_ptr_null(users_of_uid(users, 0, &mark));
    ck_assert_ptr_null(users_of_uid(users, UINT32_MAX, &mark));
    users_destroy(&users);
}

END_TEST

/* Names of certificates are compared byte by byte, and are nothing else. */
START_TEST(certificates)
{
    struct users *users = good("a cert=a.example cert=b%20c uid=5\n"
                               "b cert=A.example cert=5\n"
                               "c cert=c%00.example");

    static const struct {
        struct text cert;
        const char *user;
    } table[] = {
        {{"a.example", 9}, "a"},
        {{"b c", 3}, "a"},
        {{"A.example", 9}, "b"},
        {{"5", 1}, "b"},
        {{"c\0.example", 10}, "c"},
        {{"c", 1}, NULL},
        {{"a.exampl", 8}, NULL},
        {{"a.example\0", 10}, NULL},
        {{"", 0}, NULL},
        {{"a", 1}, NULL},
    };

    uint32_t marks[10] = {0};

    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
        struct user *user = users_of_cert(users, table[i].cert, &marks[i]);
        ck_assert_ptr_eq(
            user, table[i].user == NULL ? NULL : user_of(users, table[i].user));
        ck_assert(user == NULL || user_has_mark(users, user, marks[i]));
        for (size_t j = 0; user != NULL && j < i; j++)
            ck_assert_uint_ne(marks[i], marks[j]);
    }
    ck_assert_ptr_null(known(users, "b", "5"));
    ck_assert_ptr_null(known(users, "b", ""));
    ck_assert_ptr_eq(users_of_uid(users, 5, &marks[0]), user_of(users, "a"));
    ck_assert(!user_has_mark(users, user_of(users, "a"), marks[3]));
    users_destroy(&users);
}

END_TEST

/* A user is the same in another file as long as the proof is in it. */
START_TEST(marks)
{
    char text[800];
    uint32_t old_mark;
    uint32_t new_mark;
    uint32_t uid_mark;

    snprintf(text, sizeof(text), "a secret=%s secret=%s uid=7",
        hashed("the old secret of a"), hashed("the new secret of a"));
    struct users *users = good(text);
    users_of_secret(users, TEXT("a"), TEXT("the old secret of a"), &old_mark);
    users_of_secret(users, TEXT("a"), TEXT("the new secret of a"), &new_mark);
    users_of_uid(users, 7, &uid_mark);
    ck_assert(user_has_mark(users, user_of(users, "a"), old_mark));
    ck_assert(user_has_mark(users, user_of(users, "a"), new_mark));
    ck_assert(user_has_mark(users, user_of(users, "a"), uid_mark));
    char *last = strstr(strstr(text, "secret=") + 1, "secret=");
    char rest[200];
    snprintf(rest, sizeof(rest), "a lock=* %.*s", 111, last);
    users_destroy(&users);
    users = good(rest);
    ck_assert(!user_has_mark(users, user_of(users, "a"), old_mark));
    ck_assert(user_has_mark(users, user_of(users, "a"), new_mark));
    ck_assert(!user_has_mark(users, user_of(users, "a"), uid_mark));
    users_destroy(&users);
}

END_TEST

/* Other programs can compute the hashes of the file. */
START_TEST(a_secret_as_it_stands)
{
    uint8_t salt[USER_SALT_BYTES];
    char out[USER_HASHED_BYTES];
    struct user_proof proof;

    memset(salt, 'a', sizeof(salt));
    user_hash_text(salt, TEXT("correct horse battery"), out);
    ck_assert_str_eq(out, HORSE);
    ck_assert(user_hash_parse(text_from(out), &proof));
    ck_assert_mem_eq(proof.salt, salt, sizeof(salt));
}

END_TEST

/* --- rights --------------------------------------------------------------- */

START_TEST(names_and_beginnings)
{
    struct users *users = good("a uid=1 lock=stock/* lock=night lock=x%2A*\n"
                               "b uid=2 lock=*\n"
                               "c uid=3 lock=%2A\n"
                               "d uid=4\n");

    ck_assert(may(users, "a", RIGHT_LOCK, "stock/"));
    ck_assert(may(users, "a", RIGHT_LOCK, "stock/1"));
    ck_assert(may(users, "a", RIGHT_LOCK, "night"));
    ck_assert(may(users, "a", RIGHT_LOCK, "x*y"));
    ck_assert(!may(users, "a", RIGHT_LOCK, "stock"));
    ck_assert(!may(users, "a", RIGHT_LOCK, "Stock/1"));
    ck_assert(!may(users, "a", RIGHT_LOCK, "nightly"));
    ck_assert(!may(users, "a", RIGHT_LOCK, "nigh"));
    ck_assert(!may(users, "a", RIGHT_LOCK, "xy"));
    ck_assert(may(users, "b", RIGHT_LOCK, "anything"));
    ck_assert(may(users, "c", RIGHT_LOCK, "*"));
    ck_assert(!may(users, "c", RIGHT_LOCK, "anything"));
    ck_assert(!may(users, "d", RIGHT_LOCK, "anything"));
    ck_assert(!may(users, "d", RIGHT_SEE, "anything"));
    users_destroy(&users);
}

END_TEST

/* Each kind of word, and each right by it. */
START_TEST(rights)
{
    static const struct {
        const char *user;
        unsigned rights;
    } table[] = {
        {"locks", RIGHT_LOCK | RIGHT_SEE},
        {"sees", RIGHT_SEE},
        {"breaks", RIGHT_BREAK | RIGHT_SEE},
        {"all", RIGHT_LOCK | RIGHT_SEE | RIGHT_BREAK},
        {"admin", RIGHT_ADMIN},
    };
    struct users *users = good("locks uid=1 lock=n\n"
                               "sees uid=2 see=n\n"
                               "breaks uid=3 break=n\n"
                               "all uid=4 see=n lock=n break=n\n"
                               "admin uid=5 admin\n");

    for (size_t i = 0; i < COUNT(table); i++) {
        for (unsigned right = RIGHT_LOCK; right <= RIGHT_ADMIN; right *= 2)
            ck_assert_int_eq(may(users, table[i].user, (enum right)right, "n"),
                (table[i].rights & right) != 0 ||
                    (right == RIGHT_SEE &&
                        (table[i].rights & RIGHT_ADMIN) != 0));
    }
    ck_assert(!may(users, "sees", RIGHT_SEE, "m"));
    ck_assert(may(users, "admin", RIGHT_SEE, "m"));
    users_destroy(&users);
}

END_TEST

/* Any text is taken or refused, without a read past its end. */
START_TEST(random_files)
{
    static const char horse[] = HORSE;
    static const char *const words[] = {"a", "b", " ", "\t", "\n", "\r", "#",
        "uid=", "secret=", "lock=", "see=", "break=", "admin", "*", "%", "%41",
        "\nc uid=3", "\nd uid=4\n", " lock=x/*", "=", "1", "2", horse, "\xff",
        "/"};
    struct random random;
    unsigned taken = 0;

    seed_random(&random, "users");
    for (unsigned i = 0; i < 20000; i++) {
        char text[2000];
        size_t len = 0;
        for (uint64_t n = random_below(&random, 20); n > 0; n--) {
            const char *word = words[random_below(&random, COUNT(words))];
            memcpy(text + len, word, strlen(word));
            len += strlen(word);
        }
        char *exact = malloc(len + 1);
        memcpy(exact, text, len);
        struct users *users =
            users_parse("u", text_make(exact, len), error, sizeof(error));
        free(exact);
        taken += users != NULL;
        users_destroy(&users);
    }
    ck_assert_uint_gt(taken, 10);
}

END_TEST

Suite *
users_suite(void)
{
    Suite *suite = suite_create("users");
    TCase *cases = tcase_create("users");

    tcase_add_test(cases, a_file);
    tcase_add_test(cases, mistakes);
    tcase_add_test(cases, bad_secrets);
    tcase_add_test(cases, limits);
    tcase_add_test(cases, files);
    tcase_add_test(cases, secrets);
    tcase_add_test(cases, no_secret_of_a_uid);
    tcase_add_test(cases, certificates);
    tcase_add_test(cases, marks);
    tcase_add_test(cases, a_secret_as_it_stands);
    tcase_add_test(cases, names_and_beginnings);
    tcase_add_test(cases, rights);
    tcase_add_test(cases, random_files);
    suite_add_tcase(suite, cases);
    return suite;
}

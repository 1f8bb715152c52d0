/*
 * Tests of daemon/base/sha256.c: the examples of FIPS 180-4, and random bytes
 * in random parts against OpenSSL.
 */
#include "daemon/base/random.h"
#include "daemon/base/sha256.h"
#include "tests/unit/seed.h"

#include <check.h>
#include <openssl/sha.h>
#include <stdlib.h>

Suite *sha256_suite(void);

#define LONG_BYTES 1000

static void
digest(struct text text, char hex[2 * SHA256_BYTES + 1])
{
    uint8_t out[SHA256_BYTES];
    struct sha256 sha;

    sha256_init(&sha);
    sha256_add(&sha, text);
    sha256_end(&sha, out);
    text_to_hex(hex, out, sizeof(out));
    hex[2 * SHA256_BYTES] = '\0';
}

START_TEST(examples)
{
    static const struct {
        const char *text;
        const char *digest;
    } table[] = {
        {"",
            "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"},
        {"abc",
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"},
        {"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1"},
    };

    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
        char hex[2 * SHA256_BYTES + 1];
        digest(text_from(table[i].text), hex);
        ck_assert_str_eq(hex, table[i].digest);
    }
}

END_TEST

/* Each length around the ends of blocks, in whatever parts. */
START_TEST(against_openssl)
{
    uint8_t bytes[LONG_BYTES];
    struct random random;

    seed_random(&random, "sha256");
    for (size_t len = 0; len <= sizeof(bytes); len++) {
        uint8_t ours[SHA256_BYTES];
        uint8_t theirs[SHA256_BYTES];
        struct sha256 sha;
        for (size_t i = 0; i < len; i++)
            bytes[i] = (uint8_t)random_next(&random);
        sha256_init(&sha);
        for (size_t at = 0; at < len;) {
            size_t part = 1 + random_below(&random, len - at);
            sha256_add(&sha, text_make((const char *)bytes + at, part));
            at += part;
        }
        sha256_end(&sha, ours);
        SHA256(bytes, len, theirs);
        ck_assert_mem_eq(ours, theirs, sizeof(ours));
    }
}

END_TEST

START_TEST(equal_secrets)
{
    uint8_t a[SHA256_BYTES] = {1, 2, 3};
    uint8_t b[SHA256_BYTES] = {1, 2, 3};

    ck_assert(secret_equal(a, b, sizeof(a)));
    ck_assert(secret_equal(a, b, 0));
    for (size_t i = 0; i < sizeof(a); i++)
        for (int bit = 0; bit < 8; bit++) {
            b[i] ^= (uint8_t)(1 << bit);
            ck_assert(!secret_equal(a, b, sizeof(a)));
            b[i] ^= (uint8_t)(1 << bit);
        }
}

END_TEST

Suite *
sha256_suite(void)
{
    Suite *suite = suite_create("sha256");
    TCase *cases = tcase_create("sha256");

    tcase_add_test(cases, examples);
    tcase_add_test(cases, against_openssl);
    tcase_add_test(cases, equal_secrets);
    suite_add_tcase(suite, cases);
    return suite;
}

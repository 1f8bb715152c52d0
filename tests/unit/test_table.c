/*
 * Tests of daemon/base/table, and SipHash-2-4 by its authors' test vectors.
 */
#include "daemon/base/table.h"
#include "tests/unit/seed.h"

#include <check.h>

#define NODES  400u
#define ROUNDS 20000

Suite *table_suite(void);

/* From vectors.h of the reference implementation, as 64-bit numbers. */
static const uint64_t vectors[64] = {0x726fdb47dd0e0e31, 0x74f839c593dc67fd,
    0x0d6c8009d9a94f5a, 0x85676696d7fb7e2d, 0xcf2794e0277187b7,
    0x18765564cd99a68d, 0xcbc9466e58fee3ce, 0xab0200f58b01d137,
    0x93f5f5799a932462, 0x9e0082df0ba9e4b0, 0x7a5dbbc594ddb9f3,
    0xf4b32f46226bada7, 0x751e8fbc860ee5fb, 0x14ea5627c0843d90,
    0xf723ca908e7af2ee, 0xa129ca6149be45e5, 0x3f2acc7f57c29bdb,
    0x699ae9f52cbe4794, 0x4bc1b3f0968dd39c, 0xbb6dc91da77961bd,
    0xbed65cf21aa2ee98, 0xd0f2cbb02e3b67c7, 0x93536795e3a33e88,
    0xa80c038ccd5ccec8, 0xb8ad50c6f649af94, 0xbce192de8a85b8ea,
    0x17d835b85bbb15f3, 0x2f2e6163076bcfad, 0xde4daaaca71dc9a5,
    0xa6a2506687956571, 0xad87a3535c49ef28, 0x32d892fad841c342,
    0x7127512f72f27cce, 0xa7f32346f95978e3, 0x12e0b01abb051238,
    0x15e034d40fa197ae, 0x314dffbe0815a3b4, 0x027990f029623981,
    0xcadcd4e59ef40c4d, 0x9abfd8766a33735c, 0x0e3ea96b5304a7d0,
    0xad0c42d6fc585992, 0x187306c89bc215a9, 0xd4a60abcf3792b95,
    0xf935451de4f21df2, 0xa9538f0419755787, 0xdb9acddff56ca510,
    0xd06c98cd5c0975eb, 0xe612a3cb9ecba951, 0xc766e62cfcadaf96,
    0xee64435a9752fe72, 0xa192d576b245165a, 0x0a8787bf8ecb74b2,
    0x81b3e73d20b49b6f, 0x7fa8220ba3b2ecea, 0x245731c13ca42499,
    0xb78dbfaf3a8d83bd, 0xea1ad565322a1a0b, 0x60e61c23a3795013,
    0x6606d7e446282b93, 0x6ca4ecb15c5f91e1, 0x9f626da15c9625f3,
    0xe51b38608ef25f57, 0x958a324ceb064572};

START_TEST(siphash_vectors)
{
    const struct hash_key key = {{0x0706050403020100, 0x0f0e0d0c0b0a0908}};
    unsigned char input[64];

    for (unsigned char len = 0; len < 64; len++) {
        input[len] = len;
        ck_assert_uint_eq(hash_bytes(&key, input, len), vectors[len]);
    }
}

END_TEST

START_TEST(siphash_unaligned)
{
    const struct hash_key key = {{1, 2}};
    unsigned char input[32] = {0};
    uint64_t expected = hash_bytes(&key, input, 13);

    for (size_t at = 1; at < 16; at++)
        ck_assert_uint_eq(hash_bytes(&key, input + at, 13), expected);
}

END_TEST

struct entry {
    struct table_node node;
    uint32_t key;
    bool inside;
};

/* Few hashes, so that equal ones and shared buckets are common. */
static uint64_t
hash_of(uint32_t key)
{
    return key % 150 * 7;
}

static struct entry *
find(const struct table *table, uint32_t key)
{
    struct table_node *node = table_first(table, hash_of(key));

    while (node != NULL) {
        struct entry *entry = (struct entry *)(void *)node;

        if (entry->key == key)
            return entry;
        node = table_next(node);
    }
    return NULL;
}

START_TEST(random_against_model)
{
    static struct entry entries[NODES];
    struct table table;
    struct random random;
    size_t count = 0;

    seed_random(&random, "table");
    ck_assert(table_init(&table, 100));
    ck_assert_uint_eq(table.mask, 127);
    for (int round = 0; round < ROUNDS; round++) {
        uint32_t key = (uint32_t)random_below(&random, NODES);
        struct entry *entry = &entries[key];

        ck_assert_ptr_eq(find(&table, key), entry->inside ? entry : NULL);
        if (entry->inside) {
            table_remove(&table, &entry->node);
            count--;
        } else {
            entry->key = key;
            table_insert(&table, &entry->node, hash_of(key));
            count++;
        }
        entry->inside = !entry->inside;
        ck_assert_uint_eq(table.count, count);
    }
    for (uint32_t key = 0; key < NODES; key++) {
        ck_assert_ptr_eq(
            find(&table, key), entries[key].inside ? &entries[key] : NULL);
        if (entries[key].inside)
            table_remove(&table, &entries[key].node);
    }
    table_fini(&table);
}

END_TEST

START_TEST(sizes)
{
    static const size_t cases[][2] = {
        {0, 16}, {16, 16}, {17, 32}, {1000000, 1 << 20}};

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct table table;

        ck_assert(table_init(&table, cases[i][0]));
        ck_assert_uint_eq(table.mask + 1, cases[i][1]);
        ck_assert_ptr_null(table_first(&table, UINT64_MAX));
        table_fini(&table);
    }
}

END_TEST

Suite *
table_suite(void)
{
    Suite *suite = suite_create("table");
    TCase *tests = tcase_create("all");

    tcase_add_test(tests, siphash_vectors);
    tcase_add_test(tests, siphash_unaligned);
    tcase_add_test(tests, random_against_model);
    tcase_add_test(tests, sizes);
    suite_add_tcase(suite, tests);
    return suite;
}

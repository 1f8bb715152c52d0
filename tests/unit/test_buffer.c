/*
 * Tests of daemon/base/buffer against a plain array that is shifted down.
 */
#include "daemon/base/buffer.h"
#include "tests/unit/seed.h"

#include <check.h>

#include <string.h>

#define CAPACITY 257u
#define ROUNDS   50000

Suite *buffer_suite(void);

START_TEST(all_or_nothing)
{
    struct buffer buffer;

    ck_assert(buffer_init(&buffer, 8));
    ck_assert(buffer_append(&buffer, "12345", 5));
    ck_assert(!buffer_append(&buffer, "6789", 4));
    ck_assert_uint_eq(buffer_len(&buffer), 5);
    ck_assert(buffer_append(&buffer, "678", 3));
    ck_assert(buffer_append(&buffer, NULL, 0));
    ck_assert(!buffer_append(&buffer, "9", 1));
    ck_assert_ptr_null(buffer_reserve(&buffer, 1));
    ck_assert_ptr_null(buffer_reserve(&buffer, SIZE_MAX));
    ck_assert_mem_eq(buffer_data(&buffer), "12345678", 8);
    buffer_consume(&buffer, 3);
    ck_assert(buffer_append(&buffer, "abc", 3));
    ck_assert_mem_eq(buffer_data(&buffer), "45678abc", 8);
    buffer_clear(&buffer);
    ck_assert_uint_eq(buffer_len(&buffer), 0);
    buffer_fini(&buffer);
    buffer_fini(&buffer);
}

END_TEST

struct model {
    struct buffer buffer;
    struct random random;
    char bytes[CAPACITY];
    size_t len;
};

static void
model_append(struct model *model, bool in_place)
{
    size_t len = (size_t)random_below(&model->random, CAPACITY / 2);
    bool fits = model->len + len <= CAPACITY;
    char bytes[CAPACITY];

    for (size_t i = 0; i < len; i++)
        bytes[i] = (char)random_next(&model->random);
    if (in_place) {
        char *place = buffer_reserve(&model->buffer, len);

        ck_assert_int_eq(place != NULL, fits);
        if (fits) {
            memcpy(place, bytes, len);
            buffer_commit(&model->buffer, len);
        }
    } else {
        ck_assert_int_eq(buffer_append(&model->buffer, bytes, len), fits);
    }
    if (fits) {
        memcpy(model->bytes + model->len, bytes, len);
        model->len += len;
    }
}

static void
model_consume(struct model *model)
{
    size_t len = (size_t)random_below(&model->random, model->len + 1);

    buffer_consume(&model->buffer, len);
    memmove(model->bytes, model->bytes + len, model->len - len);
    model->len -= len;
}

START_TEST(random_against_model)
{
    static struct model model;

    seed_random(&model.random, "buffer");
    ck_assert(buffer_init(&model.buffer, CAPACITY));
    for (int round = 0; round < ROUNDS; round++) {
        switch (random_below(&model.random, 3)) {
        case 0:
            model_append(&model, true);
            break;
        case 1:
            model_append(&model, false);
            break;
        default:
            model_consume(&model);
        }
        ck_assert_uint_eq(buffer_len(&model.buffer), model.len);
        ck_assert(
            memcmp(buffer_data(&model.buffer), model.bytes, model.len) == 0);
    }
    buffer_fini(&model.buffer);
}

END_TEST

Suite *
buffer_suite(void)
{
    Suite *suite = suite_create("buffer");
    TCase *tests = tcase_create("all");

    tcase_add_test(tests, all_or_nothing);
    tcase_add_test(tests, random_against_model);
    suite_add_tcase(suite, tests);
    return suite;
}

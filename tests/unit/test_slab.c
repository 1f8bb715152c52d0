/*
 * Tests of daemon/base/slab: handles of the living find them, others nothing.
 */
#include "daemon/base/slab.h"
#include "tests/unit/seed.h"

#include <check.h>

#include <signal.h>
#include <string.h>

#define CAPACITY 100u
#define STALE    300u
#define ROUNDS   50000

Suite *slab_suite(void);

struct object {
    struct slab_node node;
    uint64_t value;
    char rest[21];
};

START_TEST(fill_and_empty)
{
    struct slab slab;
    struct object *objects[CAPACITY];

    ck_assert(slab_init(&slab, sizeof(struct object), CAPACITY));
    for (uint32_t i = 0; i < CAPACITY; i++) {
        objects[i] = slab_alloc(&slab);
        ck_assert_ptr_nonnull(objects[i]);
        ck_assert_uint_eq((uintptr_t)objects[i] % 16, 0);
        memset(objects[i]->rest, 0xff, sizeof(objects[i]->rest));
    }
    ck_assert_ptr_null(slab_alloc(&slab));
    ck_assert_uint_eq(slab.used, CAPACITY);
    slab_free(&slab, objects[7]);
    slab_free(&slab, objects[9]);
    ck_assert_ptr_eq(slab_alloc(&slab), objects[9]);
    ck_assert_ptr_eq(slab_alloc(&slab), objects[7]);
    ck_assert_uint_eq((unsigned char)objects[7]->rest[20], 0);
    ck_assert_ptr_null(slab_alloc(&slab));
    slab_fini(&slab);
    slab_fini(&slab);
}

END_TEST

START_TEST(handles)
{
    struct slab slab;
    struct object *object;
    struct handle first;
    struct handle second;

    ck_assert(slab_init(&slab, sizeof(struct object), CAPACITY));
    ck_assert_ptr_null(slab_get(&slab, HANDLE_NONE));
    object = slab_alloc(&slab);
    first = slab_handle(&slab, object);
    ck_assert_ptr_eq(slab_get(&slab, first), object);
    ck_assert(handle_equal(first, handle_unpack(handle_pack(first))));
    second = slab_renew_handle(&slab, object);
    ck_assert_ptr_null(slab_get(&slab, first));
    ck_assert_ptr_eq(slab_get(&slab, second), object);
    slab_free(&slab, object);
    ck_assert_ptr_null(slab_get(&slab, second));
    ck_assert_ptr_null(slab_at(&slab, 0));
    /* Generations of the free, and places never used. */
    ck_assert_ptr_null(
        slab_get(&slab, (struct handle){0, second.generation + 1}));
    ck_assert_ptr_null(slab_get(&slab, (struct handle){50, 1}));
    ck_assert_ptr_null(slab_get(&slab, (struct handle){UINT32_MAX, 1}));
    slab_fini(&slab);
}

END_TEST

START_TEST(generation_wraps)
{
    struct slab slab;
    struct object *object;
    struct handle last;

    ck_assert(slab_init(&slab, sizeof(struct object), 1));
    object = slab_alloc(&slab);
    object->node.generation = UINT32_MAX;
    last = slab_handle(&slab, object);
    slab_free(&slab, object);
    ck_assert_ptr_null(slab_get(&slab, last));
    ck_assert_ptr_null(slab_get(&slab, HANDLE_NONE));
    ck_assert_ptr_eq(slab_alloc(&slab), object);
    ck_assert_uint_eq(slab_handle(&slab, object).generation, 1);
    slab_fini(&slab);
}

END_TEST

START_TEST(reserve_is_lazy)
{
    struct slab slab;

    /* 64 GiB: only to be had as address space. */
    ck_assert(slab_init(&slab, 4096, 16u << 20));
    ck_assert_ptr_nonnull(slab_alloc(&slab));
    slab_fini(&slab);
    ck_assert(!slab_init(&slab, SIZE_MAX / 2, UINT32_MAX - 1));
}

END_TEST

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>

START_TEST(free_is_poisoned)
{
    struct slab slab;
    struct object *object;

    ck_assert(slab_init(&slab, sizeof(struct object), 2));
    object = slab_alloc(&slab);
    ck_assert(!__asan_address_is_poisoned(&object->value));
    slab_free(&slab, object);
    ck_assert(__asan_address_is_poisoned(&object->value));
    ck_assert(__asan_address_is_poisoned(object->rest + 20));
    ck_assert(!__asan_address_is_poisoned(&object->node.next_free));
    ck_assert_ptr_eq(slab_alloc(&slab), object);
    ck_assert(!__asan_address_is_poisoned(&object->value));
    slab_fini(&slab);
}

END_TEST
#endif

START_TEST(free_twice_aborts)
{
    struct slab slab;
    struct object *object;

    ck_assert(slab_init(&slab, sizeof(struct object), 2));
    object = slab_alloc(&slab);
    slab_free(&slab, object);
    slab_free(&slab, object);
}

END_TEST

struct model {
    struct slab slab;
    struct random random;
    struct handle living[CAPACITY];
    uint64_t values[CAPACITY];
    uint32_t count;
    struct handle stale[STALE];
    uint32_t stale_count;
};

static void
model_alloc(struct model *model)
{
    struct object *object = slab_alloc(&model->slab);

    if (model->count == CAPACITY) {
        ck_assert_ptr_null(object);
        return;
    }
    ck_assert_ptr_nonnull(object);
    ck_assert_uint_eq(object->value, 0);
    object->value = random_next(&model->random);
    model->values[model->count] = object->value;
    model->living[model->count++] = slab_handle(&model->slab, object);
}

static void
model_retire(struct model *model, struct handle handle)
{
    ck_assert_ptr_null(slab_get(&model->slab, handle));
    model->stale[model->stale_count++ % STALE] = handle;
}

static void
model_free(struct model *model)
{
    uint32_t at;
    struct handle handle;

    if (model->count == 0)
        return;
    at = (uint32_t)random_below(&model->random, model->count);
    handle = model->living[at];
    slab_free(&model->slab, slab_get(&model->slab, handle));
    model->count--;
    model->living[at] = model->living[model->count];
    model->values[at] = model->values[model->count];
    model_retire(model, handle);
}

static void
model_renew(struct model *model)
{
    uint32_t at;
    struct handle handle;

    if (model->count == 0)
        return;
    at = (uint32_t)random_below(&model->random, model->count);
    handle = model->living[at];
    model->living[at] =
        slab_renew_handle(&model->slab, slab_get(&model->slab, handle));
    model_retire(model, handle);
}

static void
model_compare(const struct model *model)
{
    uint32_t seen = 0;

    ck_assert_uint_eq(model->slab.used, model->count);
    for (uint32_t i = 0; i < model->count; i++) {
        struct object *object = slab_get(&model->slab, model->living[i]);

        ck_assert_ptr_nonnull(object);
        ck_assert_uint_eq(object->value, model->values[i]);
    }
    for (uint32_t i = 0; i < model->stale_count && i < STALE; i++)
        ck_assert_ptr_null(slab_get(&model->slab, model->stale[i]));
    for (uint32_t i = 0; i < model->slab.touched; i++)
        seen += slab_at(&model->slab, i) != NULL;
    ck_assert_uint_eq(seen, model->count);
}

START_TEST(random_against_model)
{
    static struct model model;

    seed_random(&model.random, "slab");
    ck_assert(slab_init(&model.slab, sizeof(struct object), CAPACITY));
    for (int round = 0; round < ROUNDS; round++) {
        /* The share of allocations swings, so that it runs full and empty. */
        uint64_t share = round / 500 % 2 == 0 ? 6 : 3;
        uint64_t what = random_below(&model.random, 10);

        if (what < share)
            model_alloc(&model);
        else if (what < 9)
            model_free(&model);
        else
            model_renew(&model);
        if (round % 50 == 0)
            model_compare(&model);
    }
    slab_fini(&model.slab);
}

END_TEST

Suite *
slab_suite(void)
{
    Suite *suite = suite_create("slab");
    TCase *tests = tcase_create("all");
    TCase *huge = tcase_create("huge");

    tcase_add_test(tests, fill_and_empty);
    tcase_add_test(tests, handles);
    tcase_add_test(tests, generation_wraps);
#ifdef __SANITIZE_ADDRESS__
    tcase_add_test(tests, free_is_poisoned);
#endif
    tcase_add_test_raise_signal(tests, free_twice_aborts, SIGABRT);
    tcase_add_test(tests, random_against_model);
    suite_add_tcase(suite, tests);
    tcase_add_test(huge, reserve_is_lazy);
    tcase_set_tags(huge, "huge"); /* memcheck has no such address space */
    suite_add_tcase(suite, huge);
    return suite;
}

/*
 * The order and the time of a turn. Core and store have their own suites.
 */
#include "daemon/driver/engine.h"

#include "daemon/base/log.h"
#include "proto/request.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

Suite *engine_suite(void);

#define START_US 1000000000u

struct owner {
    struct engine engine;
    struct counters counters;
    uint64_t clock_us;
    uint64_t step_us; /* each look moves the clock so far */
    struct engine_input input;
    char said[8192]; /* the client's replies */
    size_t said_len;
    uint32_t written; /* how often it was to be written */
    bool closed;
    bool settles; /* something comes of each writing */
};

static uint64_t
owner_clock(void *arg)
{
    struct owner *owner = arg;

    owner->clock_us += owner->step_us;
    return owner->clock_us;
}

static void
owner_effect(void *arg, const struct effect *effect)
{
    struct owner *owner = arg;

    if (effect->kind == EFFECT_CLOSE)
        owner->closed = true;
    if (effect->kind != EFFECT_LINE)
        return;
    ck_assert_uint_lt(owner->said_len + effect->len, sizeof(owner->said));
    memcpy(owner->said + owner->said_len,
        owner->engine.effects.text + effect->offset, effect->len);
    owner->said_len += effect->len;
    owner->said[owner->said_len] = '\0';
}

static void
owner_written(void *arg)
{
    struct owner *owner = arg;

    owner->written++;
}

static bool
owner_settle(void *arg)
{
    const struct owner *owner = arg;

    return owner->settles;
}

static const struct engine_sink sink = {
    .clock = owner_clock,
    .effect = owner_effect,
    .written = owner_written,
    .settle = owner_settle,
};

/* An engine whose Redis does not answer, and a client. */
static struct owner *
owner_create(void)
{
    struct owner *owner = calloc(1, sizeof(*owner));
    struct store_settings *store = calloc(1, sizeof(*store));
    struct core_settings core = {
        .key_prefix = "holdfast",
        .broker_id = "broker-1",
        .server = "holdfastd/test",
        .lease_ms = 10000,
        .redis_timeout_us = 5000000,
        .command_timeout_us = 2000000,
        .stop_grace_us = 10000000,
        .line_max = 256,
        .name_max = 255,
        .sessions_max = 4,
        .outstanding_max = 64,
        .holds_max = 64,
        .tickets_max = 256,
        .requests_max = 256,
    };
    struct core_event event = {
        .kind = CORE_OPEN, .open = {.silence_us = UINT64_MAX}};

    ck_assert(owner != NULL && store != NULL);
    log_set_level(LOG_ERROR);
    owner->clock_us = START_US;
    store->topology = STORE_SINGLE;
    store->node_count = 1;
    memcpy(store->nodes[0].host, "127.0.0.1", 10);
    store->nodes[0].port = 1;
    memcpy(store->key_prefix, core.key_prefix, sizeof(store->key_prefix));
    memcpy(store->broker_id, core.broker_id, sizeof(store->broker_id));
    store->expiry_ms = CORE_EXPIRY_MS;
    store->waiters_max = 100;
    store->connect_timeout_us = 1000000;
    store->command_timeout_us = core.command_timeout_us;
    store->batch = 64;
    store->in_flight = 4;
    ck_assert(engine_init(
        &owner->engine, &core, store, &owner->counters, &sink, owner));
    free(store);
    event.open.peer = "127.0.0.1:1";
    engine_step(&owner->engine, &event);
    owner->input.session = event.session;
    return owner;
}

static void
owner_free(struct owner *owner)
{
    engine_fini(&owner->engine);
    free(owner);
}

static bool
owner_take(struct owner *owner, const char *text, size_t *done)
{
    char bytes[4096];
    size_t len = strlen(text);
    bool late;

    memcpy(bytes, text, len);
    *done = engine_take(&owner->engine, &owner->input, bytes, len, true, &late);
    ck_assert_uint_le(*done, len);
    return late;
}

/* A turn in which the client's bytes are taken whole. */
static void
owner_turn(struct owner *owner, const char *text)
{
    size_t done = 0;

    if (text != NULL) {
        ck_assert(!owner_take(owner, text, &done));
        ck_assert_uint_eq(done, strlen(text));
    }
    engine_move(&owner->engine, 1700000000000000u + owner->clock_us);
    engine_turn_over(&owner->engine);
}

static uint32_t
lines_of(const struct owner *owner)
{
    uint32_t lines = 0;

    for (size_t i = 0; i < owner->said_len; i++)
        lines += owner->said[i] == '\n';
    return lines;
}

START_TEST(one_time_a_turn)
{
    struct owner *owner = owner_create();

    engine_turn_over(&owner->engine);
    ck_assert_uint_eq(engine_now(&owner->engine), START_US);
    owner->clock_us += 5000;
    ck_assert_uint_eq(engine_now(&owner->engine), START_US);
    engine_turn_over(&owner->engine);
    ck_assert_uint_eq(engine_now(&owner->engine), START_US + 5000);
    owner_free(owner);
}

END_TEST

/* A turn began, the process slept, and then it reads what came meanwhile. */
START_TEST(time_of_bytes_is_when_they_are_read)
{
    struct owner *owner = owner_create();

    owner_turn(owner, "PING\n");
    ck_assert_uint_eq(engine_now(&owner->engine), START_US);
    owner->clock_us = START_US + 300000;
    owner_turn(owner, "1 LOCK a wait=100ms\n");
    owner->said_len = 0;
    owner->clock_us = START_US + 399000;
    owner_turn(owner, NULL);
    ck_assert_uint_eq(owner->said_len, 0);
    owner->clock_us = START_US + 402000;
    owner_turn(owner, NULL);
    ck_assert_int_eq(strncmp(owner->said, "1 ERR ", 6), 0);
    owner_free(owner);
}

END_TEST

/* Bytes from an earlier turn are not read anew. */
START_TEST(kept_bytes_are_of_the_turn)
{
    struct owner *owner = owner_create();
    char bytes[] = "PING\n";
    bool late;

    ck_assert_uint_eq(engine_now(&owner->engine), START_US);
    owner->clock_us += 300000;
    ck_assert_uint_eq(engine_take(&owner->engine, &owner->input, bytes,
                          sizeof(bytes) - 1, false, &late),
        sizeof(bytes) - 1);
    ck_assert_uint_eq(engine_now(&owner->engine), START_US);
    owner_free(owner);
}

END_TEST

/* Nobody keeps the others waiting for longer than a moment. */
START_TEST(many_lines_are_for_the_next_turn)
{
    struct owner *owner = owner_create();
    char text[60 * 5 + 1] = "";
    size_t done;

    for (int i = 0; i < 60; i++)
        memcpy(text + 5 * i, "PING\n", 6);
    owner_turn(owner, "PING\n");
    uint32_t greeting = lines_of(owner);
    ck_assert(!owner_take(owner, text, &done));
    ck_assert_uint_eq(done, strlen(text));
    owner->step_us = 20000;
    ck_assert(owner_take(owner, text, &done));
    ck_assert_uint_eq(done, 16 * 5);
    /* Without anything behind them it is not late. */
    ck_assert(!owner_take(owner, text + strlen(text) - 16 * 5, &done));
    ck_assert_uint_eq(done, 16 * 5);
    owner_turn(owner, NULL);
    ck_assert_uint_eq(lines_of(owner), greeting + 60 + 16 + 16);
    owner_free(owner);
}

END_TEST

/* The rest of an earlier turn has as much time as bytes that were just read,
 * however long the turn has lasted. */
START_TEST(late_lines_have_their_own_time)
{
    struct owner *owner = owner_create();
    char text[60 * 5 + 1] = "";
    bool late;

    for (int i = 0; i < 60; i++)
        memcpy(text + 5 * i, "PING\n", 6);
    owner_turn(owner, "PING\n");
    (void)engine_now(&owner->engine);
    owner->clock_us += 50000;
    owner->step_us = 200;
    ck_assert_uint_eq(engine_take(&owner->engine, &owner->input, text,
                          strlen(text), false, &late),
        48 * 5);
    ck_assert(late);
    owner_free(owner);
}

END_TEST

/* Rounds end where they have taken too long, and another turn follows. */
START_TEST(rounds_have_an_end)
{
    struct owner *owner = owner_create();

    owner->settles = true;
    ck_assert(!engine_move(&owner->engine, 1700000000000000u));
    uint32_t many = owner->written;
    owner->step_us = 1500;
    ck_assert(!engine_move(&owner->engine, 1700000000000000u));
    ck_assert_uint_lt(owner->written - many, many / 2);
    owner->settles = false;
    ck_assert(engine_move(&owner->engine, 1700000000000000u));
    owner_free(owner);
}

END_TEST

START_TEST(rest_of_a_line_is_left)
{
    struct owner *owner = owner_create();
    size_t done;

    ck_assert(!owner_take(owner, "6 PING\n7 PI", &done));
    ck_assert_uint_eq(done, 7);
    owner_turn(owner, "7 PING\n");
    ck_assert_ptr_nonnull(strstr(owner->said, "7 OK"));
    owner_free(owner);
}

END_TEST

START_TEST(overlong_line_is_skipped)
{
    struct owner *owner = owner_create();
    char text[600];
    size_t done;

    owner_turn(owner, "PING\n");
    memset(text, 'x', sizeof(text));
    text[sizeof(text) - 1] = '\0';
    ck_assert(!owner_take(owner, text, &done));
    ck_assert(owner->input.skipping);
    owner_turn(owner, "xx\n8 PING\n");
    ck_assert(!owner->input.skipping);
    ck_assert_ptr_nonnull(strstr(owner->said, "- ERR TOOLONG"));
    ck_assert_ptr_nonnull(strstr(owner->said, "8 OK"));
    owner_free(owner);
}

END_TEST

/* A deaf client is read no further, and its bytes are dropped. */
START_TEST(deaf_client_is_not_heard)
{
    struct owner *owner = owner_create();

    owner_turn(owner, "PING\n");
    owner->said_len = 0;
    owner->input.deaf = true;
    owner_turn(owner, "1 PING\n2 PING\n3 PI");
    ck_assert_uint_eq(lines_of(owner), 1);
    owner_free(owner);
}

END_TEST

START_TEST(stop_has_an_end)
{
    struct owner *owner = owner_create();

    owner_turn(owner, "PING\n1 LOCK a wait=60s\n");
    ck_assert(!engine_stopping(&owner->engine));
    ck_assert(!engine_impatient(&owner->engine));
    engine_stop(&owner->engine);
    ck_assert(engine_stopping(&owner->engine));
    owner_turn(owner, NULL);
    owner->clock_us += 2000;
    owner_turn(owner, NULL);
    ck_assert_ptr_nonnull(strstr(owner->said, "* DRAIN grace_ms=10000"));
    ck_assert_ptr_nonnull(strstr(owner->said, "1 ERR DRAINING"));
    ck_assert_uint_le(engine_next_us(&owner->engine), START_US + 14000000);
    owner->clock_us = START_US + 13999000;
    engine_stop(&owner->engine); /* which begins it no second time */
    ck_assert(!engine_impatient(&owner->engine));
    owner->clock_us += 1000;
    ck_assert(engine_impatient(&owner->engine));
    owner_free(owner);
}

END_TEST

Suite *
engine_suite(void)
{
    Suite *suite = suite_create("engine");
    TCase *tcase = tcase_create("turns");

    tcase_add_test(tcase, one_time_a_turn);
    tcase_add_test(tcase, time_of_bytes_is_when_they_are_read);
    tcase_add_test(tcase, kept_bytes_are_of_the_turn);
    tcase_add_test(tcase, many_lines_are_for_the_next_turn);
    tcase_add_test(tcase, late_lines_have_their_own_time);
    tcase_add_test(tcase, rounds_have_an_end);
    tcase_add_test(tcase, rest_of_a_line_is_left);
    tcase_add_test(tcase, overlong_line_is_skipped);
    tcase_add_test(tcase, deaf_client_is_not_heard);
    tcase_add_test(tcase, stop_has_an_end);
    suite_add_tcase(suite, tcase);
    return suite;
}

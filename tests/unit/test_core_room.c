/*
 * Tests of daemon/core: no step says more than there is room for, however many
 * holds and requests it is about. The rest is said in the next steps, all of it
 * before a session's BYE.
 *
 * The effects have room for one step here. Neither core_check(), which walks
 * over all, nor the rig's lines are used while there is much.
 */
#include "conf/keys.h"
#include "daemon/base/assert.h"
#include "daemon/op/op.h"
#include "tests/unit/core_rig.h"

#include <stdio.h>
#include <string.h>

Suite *core_room_suite(void);

#define MANY    3000 /* more LOSTs than a step has room for */
#define OPS_MAX 16384

/* Lines and operations of the steps. */
static struct {
    uint32_t lines;
    uint32_t lost;
    uint32_t errors; /* with the code that is counted */
    uint32_t closed;
    const char *code;
    bool bye;
    uint32_t op_count;
    struct op *ops[OPS_MAX];
} said;

/* A lock's name of 255 bytes, as long in a line as can be. */
static const char *
long_name(unsigned number)
{
    static char names[2][3 * 255 + 1];
    static unsigned turn;
    char *name = names[turn++ % 2];

    for (int i = 0; i < 255; i++)
        memcpy(name + 3 * i, "%20", 3);
    for (int i = 254; number > 0; i--, number /= 10)
        name[3 * i + 2] = (char)('0' + number % 10);
    return name;
}

static struct rig *
rig_of_one_step(void)
{
    const struct key *key = key_find(TEXT("limits.outstanding"));
    struct rig *rig = rig_create();

    memset(&said, 0, sizeof(said));
    rig->settings.outstanding_max = (uint32_t)key->max;
    rig->settings.requests_max = 2 * (uint32_t)key->max;
    rig->settings.holds_max = 4 * MANY;
    rig->settings.tickets_max = 4 * MANY;
    rig_start(rig);
    effects_fini(&rig->effects);
    rig_must(effects_init(&rig->effects, 1));
    return rig;
}

static void
take_line(const char *line, size_t len)
{
    char text[4200];
    char code[24];

    rig_must(len < sizeof(text));
    memcpy(text, line, len);
    text[len] = '\0';
    said.lines++;
    rig_must(!said.bye || strncmp(text, "* LOST ", 7) != 0);
    said.lost += strncmp(text, "* LOST ", 7) == 0;
    said.bye = said.bye || strncmp(text, "* BYE ", 6) == 0;
    snprintf(
        code, sizeof(code), " ERR %s ", said.code != NULL ? said.code : "");
    said.errors += said.code != NULL && strstr(text, code) != NULL;
}

/* One step, whose words are counted and whose operations gather. */
static void
step(struct rig *rig, struct core_event *event)
{
    struct effects *effects = &rig->effects;
    struct list *link;

    core_step(rig->core, rig->now_us, event, effects);
    for (uint32_t i = 0; i < effects->entry_count; i++) {
        const struct effect *effect = &effects->entries[i];
        if (effect->kind == EFFECT_LINE)
            take_line(effects->text + effect->offset, effect->len);
        said.closed += effect->kind == EFFECT_CLOSE;
    }
    while ((link = list_pop_front(&effects->ops)) != NULL) {
        rig_must(said.op_count < OPS_MAX);
        said.ops[said.op_count++] = container_of(link, struct op, link);
    }
    while (list_pop_front(&effects->hurried) != NULL)
        ; /* no operation is waited for here */
    effects_clear(effects);
}

/* Until nothing is left of what a step could not say. Returns how many. */
static uint32_t
steps(struct rig *rig)
{
    struct core_event event = {.kind = CORE_TIME};
    uint32_t count = 0;

    while (core_next_us(rig->core) <= rig->now_us) {
        step(rig, &event);
        count++;
    }
    return count;
}

static void
say(struct rig *rig, unsigned session, const char *line)
{
    char copy[5000];
    struct core_event event = {
        .kind = CORE_LINE, .session = rig->sessions[session].handle};

    event.line.at = copy;
    event.line.len = strlen(line);
    rig_must(event.line.len < sizeof(copy));
    memcpy(copy, line, event.line.len);
    step(rig, &event);
}

static void
event_of(struct rig *rig, unsigned session, enum core_event_kind kind)
{
    struct core_event event = {
        .kind = kind, .session = rig->sessions[session].handle};

    step(rig, &event);
}

/* The oldest operation. */
static void
finish(struct rig *rig, enum op_kind kind, struct op_result result)
{
    struct core_event event = {.kind = CORE_DONE};

    ck_assert_uint_gt(said.op_count, 0);
    ck_assert_int_eq(said.ops[0]->kind, kind);
    event.op = said.ops[0];
    said.op_count--;
    for (uint32_t i = 0; i < said.op_count; i++)
        said.ops[i] = said.ops[i + 1];
    event.op->result = result;
    if (event.op->result.sent_us == 0)
        event.op->result.sent_us = rig->now_us;
    step(rig, &event);
}

static void
grant(struct rig *rig, uint64_t fence)
{
    finish(rig, OP_ACQUIRE,
        (struct op_result){.status = OP_OK,
            .fence = fence,
            .arrival = fence,
            .ttl_ms = RIG_LEASE_MS});
}

static void
end(struct rig *rig)
{
    while (said.op_count > 0)
        finish(rig, said.ops[0]->kind, (struct op_result){.status = OP_OK});
    (void)steps(rig);
    core_check(rig->core);
    rig_free(rig);
}

/* A test of a rig whose steps have little room. */
#define ROOM_TEST(name) RIG_TEST_AS(name, struct rig, rig_of_one_step(), end)

/* Those of a session whose leases end while the broker was stopped. */
static void
take_many(struct rig *rig, unsigned session)
{
    char line[900];

    for (unsigned i = 0; i < MANY; i++) {
        snprintf(line, sizeof(line), "LOCK %s lease=5s", long_name(i));
        say(rig, session, line);
        grant(rig, i + 1);
    }
    rig_must(said.lines == MANY && said.op_count == 0);
}

/*
 * A step has room for the longest answer to all the requests that a session may
 * have outstanding. It had not, and the broker aborted where others came first.
 */
START_TEST(all_answers_in_one_step)
{
    const struct key *key = key_find(TEXT("limits.outstanding"));
    struct rig *rig = rig_of_one_step();
    unsigned s = rig_open(rig);
    unsigned t = rig_open(rig);
    char line[80];
    char id[33];

    say(rig, s, "LOCK a");
    grant(rig, 5);
    for (uint32_t i = 0; i < key->max; i++) {
        snprintf(line, sizeof(line), "%016u UNLOCK a", i);
        say(rig, s, line);
    }
    said.code = "INDOUBT";
    rig_id(rig, s, id);
    snprintf(line, sizeof(line), "HELLO resume=%s gen=2", id);
    say(rig, t, line);
    ck_assert_uint_eq(said.errors, key->max);
    ck_assert(said.bye);
    ck_assert_uint_eq(said.closed, 1);
    end(rig);
}

END_TEST

/* So it has where the longest reason stands in the way of Redis. */
START_TEST(all_answers_for_a_reason)
{
    const struct key *key = key_find(TEXT("limits.outstanding"));
    struct rig *rig = rig_of_one_step();
    struct health health = {
        .reason = HEALTH_SENTINEL, .node = 0, .node_count = 1};
    unsigned s = rig_open(rig);
    unsigned t = rig_open(rig);
    char line[80];
    char id[33];

    health.nodes[0] =
        (struct health_node){.needed = true, .reason = HEALTH_SENTINEL};
    memset(health.nodes[0].name, 'n', HEALTH_NAME_MAX - 1);
    memset(health.nodes[0].said, 's', HEALTH_SAID_MAX - 1);
    core_set_health(rig->core, &health);
    for (uint32_t i = 0; i < key->max; i++) {
        snprintf(line, sizeof(line), "%016u SHOW a", i);
        say(rig, s, line);
    }
    said.code = "UNAVAILABLE";
    rig_id(rig, s, id);
    snprintf(line, sizeof(line), "HELLO resume=%s gen=2", id);
    say(rig, t, line);
    ck_assert_uint_eq(said.errors, key->max);
    ck_assert(said.bye);
    end(rig);
}

END_TEST

/* Redis cannot be asked for longer than those have patience for who wait for a
 * release. */
START_TEST(all_have_waited_too_long)
{
    const struct key *key = key_find(TEXT("limits.outstanding"));
    struct rig *rig = rig_of_one_step();
    unsigned s = rig_open(rig);
    uint32_t count = (uint32_t)key->max / 3;
    char line[1700];

    snprintf(line, sizeof(line), "LOCK %s", long_name(1));
    say(rig, s, line);
    grant(rig, 5);
    snprintf(line, sizeof(line), "UNLOCK %s", long_name(1));
    say(rig, s, line);
    for (uint32_t i = 0; i < count - 1; i++) {
        snprintf(line, sizeof(line), "%016u LOCK %s %s", i, long_name(1),
            long_name(2));
        say(rig, s, line);
    }
    said.code = "UNAVAILABLE";
    rig_stall(rig, 6000);
    for (int round = 0; round < 6 && said.errors < count - 1; round++) {
        finish(rig, OP_RELEASE, (struct op_result){.status = OP_UNSENT});
        rig_stall(rig, 200);
        (void)steps(rig);
    }
    ck_assert_uint_eq(said.errors, count - 1);
    end(rig);
}

END_TEST

/*
 * The leases of many holds end while the broker is stopped, and their session
 * ends before it hears of the time: each is LOST, and then comes the BYE. All
 * was said in one step, and the broker aborted.
 */
ROOM_TEST(all_lost_at_the_end)
{
    bool quits = _i;
    unsigned s = rig_open(rig);
    take_many(rig, s);
    rig_stall(rig, 6000);
    if (quits)
        say(rig, s, "QUIT");
    else
        event_of(rig, s, CORE_EOF);
    ck_assert_uint_lt(said.lost, MANY);
    ck_assert(!said.bye);
    ck_assert_uint_gt(steps(rig), 0);
    ck_assert_uint_eq(said.lost, MANY);
    ck_assert(said.bye);
    ck_assert_uint_eq(said.closed, 1);
    ck_assert_uint_eq(rig_count(rig, COUNTER_lost_expired), MANY);
}

/* Before all has been said the connection is lost, another one takes the
 * session over, or it is killed. */
ROOM_TEST(lost_at_the_end_and_gone)
{
    int how = _i;
    unsigned s = rig_open(rig);
    unsigned t = rig_open(rig);
    char line[80];
    char id[33];
    if (how == 1)
        say(rig, s, "HELLO keep=60s");
    said.lines = 0;
    take_many(rig, s);
    rig_stall(rig, 6000);
    event_of(rig, s, CORE_EOF);
    ck_assert(!said.bye);
    rig_id(rig, s, id);
    snprintf(
        line, sizeof(line), how == 1 ? "HELLO resume=%s gen=2" : "KILL %s", id);
    if (how == 0)
        event_of(rig, s, CORE_DROP);
    else
        say(rig, t, line);
    (void)steps(rig);
    ck_assert_int_eq(said.bye, how > 0);
    while (said.op_count > 0)
        finish(rig, OP_RELEASE, (struct op_result){.status = OP_OK});
    say(rig, t, "QUIT");
    (void)steps(rig);
}

static const enum core_event_kind given_up_in_portions_ends[] = {
    CORE_DROP, CORE_EOF};

/*
 * A session with many holds ends: few are given up in a step, whatever steps
 * there are beside those of time, and others are served between them. It cannot
 * be taken over or killed any more, and all are given up.
 */
ROOM_TEST(given_up_in_portions)
{
    int how = _i;
    unsigned s = rig_open(rig);
    unsigned t = rig_open(rig);
    struct core_event time = {.kind = CORE_TIME};
    char line[80];
    char id[33];
    take_many(rig, s);
    rig_id(rig, s, id);
    event_of(rig, s, given_up_in_portions_ends[how % 2]);
    ck_assert_uint_lt(said.op_count, MANY / 6);
    uint32_t sent = said.op_count;
    snprintf(
        line, sizeof(line), how < 2 ? "KILL %s" : "HELLO resume=%s gen=2", id);
    say(rig, t, line);
    say(rig, t, "LOCK a");
    ck_assert_uint_le(said.op_count, sent + 1);
    ck_assert_int_eq(said.ops[sent]->kind, OP_ACQUIRE);
    core_check(rig->core);
    step(rig, &time);
    ck_assert_uint_gt(said.op_count, sent + 1);
    ck_assert_uint_lt(said.op_count, MANY / 3);
    (void)steps(rig);
    ck_assert_uint_eq(said.op_count, MANY + 1);
    ck_assert_uint_eq(said.lost, 0);
    while (said.op_count > 0 && said.ops[0]->kind == OP_RELEASE)
        finish(rig, OP_RELEASE, (struct op_result){.status = OP_OK});
    grant(rig, MANY + 1);
}

/* A release gives way where no client waits for it, also while its session is
 * not gone yet, for a request of it is still under way. */
ROOM_TEST(releases_that_yield)
{
    unsigned s = rig_open(rig);

    for (unsigned i = 0; i < 2; i++) {
        say(rig, s, i == 0 ? "LOCK a" : "LOCK b");
        grant(rig, i + 1);
    }
    say(rig, s, "UNLOCK a");
    ck_assert(!said.ops[0]->yields);
    finish(rig, OP_RELEASE, (struct op_result){.status = OP_OK});
    say(rig, s, "LOCK c");
    event_of(rig, s, CORE_EOF);
    ck_assert_uint_eq(said.op_count, 2);
    ck_assert_int_eq(said.ops[1]->kind, OP_RELEASE);
    ck_assert(said.ops[1]->yields);
    ck_assert(!said.bye);
    grant(rig, 3);
}

/* LOCKs of several long names, as many as may be outstanding. */
static uint32_t
ask_for_two(struct rig *rig, unsigned session, const char *rest)
{
    const struct key *key = key_find(TEXT("limits.outstanding"));
    uint32_t count = (uint32_t)(key->max - 1) / 3;
    char line[1700];

    snprintf(line, sizeof(line), "LOCK %s", long_name(1));
    say(rig, session, line);
    for (uint32_t i = 0; i < count; i++) {
        snprintf(line, sizeof(line), "%016u LOCK %s %s%s", i, long_name(1),
            long_name(2), rest);
        say(rig, session, line);
    }
    ck_assert_uint_eq(said.op_count, 1);
    ck_assert_uint_eq(said.errors, 0);
    return count;
}

static void
queue(struct rig *rig)
{
    finish(rig, OP_ACQUIRE,
        (struct op_result){.status = OP_WAITING,
            .arrival = 7,
            .place = 1,
            .ahead = 1,
            .again_ms = 36000000});
}

/* The one before them has to wait, and they would not; each is told so, with
 * the name. */
ROOM_TEST(all_busy_at_once)
{
    unsigned s = rig_open(rig);
    uint32_t count;

    said.code = "BUSY";
    count = ask_for_two(rig, s, " wait=0");
    queue(rig);
    (void)steps(rig);
    ck_assert_uint_eq(said.errors, count);
    say(rig, s, "QUIT");
    (void)steps(rig);
    ck_assert(said.bye);
}

/* They wait, and their session, which is kept, ends. */
ROOM_TEST(all_cancelled_at_the_end)
{
    unsigned s = rig_open(rig);
    uint32_t count;

    say(rig, s, "HELLO keep=60s");
    said.code = "CANCELLED";
    count = ask_for_two(rig, s, "");
    queue(rig);
    event_of(rig, s, CORE_EOF);
    ck_assert(!said.bye);
    (void)steps(rig);
    ck_assert_uint_eq(said.errors, count + 1);
    ck_assert(said.bye);
}

/* More share a lock than can be told in a step that Redis has given it to
 * another one: those that can are, and it is given back. */
ROOM_TEST(displaced_by_one)
{
    unsigned s = rig_open(rig);
    unsigned t = rig_open(rig);
    char line[900];

    for (unsigned i = 0; i < MANY; i++) {
        snprintf(line, sizeof(line), "LOCK %s mode=shared owner=%u",
            long_name(1), i);
        say(rig, s, line);
        grant(rig, i + 1);
    }
    snprintf(line, sizeof(line), "LOCK %s", long_name(1));
    said.code = "INDOUBT";
    uint32_t lost = 0;
    for (unsigned i = 0; i < MANY && said.errors == i; i++) {
        say(rig, t, line);
        grant(rig, MANY + 1 + i);
        ck_assert_uint_gt(said.lost, lost);
        lost = said.lost;
        if (said.errors > i)
            finish(rig, OP_RELEASE, (struct op_result){.status = OP_OK});
    }
    ck_assert_uint_eq(said.lost, MANY);
    ck_assert_uint_gt(said.errors, 0);
    say(rig, t, "QUIT");
}

Suite *
core_room_suite(void)
{
    Suite *suite = suite_create("core_room");
    TCase *tests = tcase_create("core_room");

    tcase_set_timeout(tests, 60);
    tcase_add_test(tests, all_answers_in_one_step);
    tcase_add_test(tests, all_answers_for_a_reason);
    tcase_add_test(tests, all_have_waited_too_long);
    tcase_add_loop_test(tests, all_lost_at_the_end, 0, 2);
    tcase_add_loop_test(tests, lost_at_the_end_and_gone, 0, 3);
    tcase_add_loop_test(tests, given_up_in_portions, 0, 4);
    tcase_add_test(tests, releases_that_yield);
    tcase_add_test(tests, all_busy_at_once);
    tcase_add_test(tests, all_cancelled_at_the_end);
    tcase_add_test(tests, displaced_by_one);
    suite_add_tcase(suite, tests);
    return suite;
}

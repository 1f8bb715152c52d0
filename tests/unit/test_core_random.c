/*
 * Fuzzes one core: random lines, events and times of many sessions, and random
 * answers of any kind that an operation allows. The answers model no queue: the
 * simulator judges what the core does with true ones.
 *
 * core_check() runs after each step. A request has at most one final reply, and
 * exactly one where the broker closes the connection in good order. At the end
 * nothing is left.
 */
#include "tests/unit/core_rig.h"
#include "tests/unit/seed.h"

#include "daemon/op/op.h"
#include "daemon/op/op_audit.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

Suite *core_random_suite(void);

#define RUNS    8
#define EVENTS  30000
#define SLOTS   12
#define LOCKS   6
#define NAMES   10
#define TAGS    4096
#define RECENT  64
#define TICKETS 6

/* Locks, and parts of them. */
static const char *const names[NAMES] = {
    "a", "b", "c", "d", "e", "f", "a/b", "a/c", "b/d/e", "b/d"};

/* A ticket of which Redis may speak. */
struct known {
    uint8_t session[16];
    uint8_t owner_hash[8];
    char broker[9];
    uint64_t request;
    uint64_t fence;
};

static struct world {
    struct random random;
    struct rig *rig;
    uint64_t fence;
    uint64_t fences[LOCKS]; /* the newest of each lock */
    struct known known[RECENT];
    unsigned known_count;
    char ids[RECENT][33]; /* of sessions */
    unsigned id_count;
    char news[4096]; /* the last message to another broker */
    size_t news_len;
    bool open[SLOTS][TAGS];
    unsigned tags[SLOTS];
    bool ending[SLOTS];  /* QUIT or FIN was sent */
    bool orderly[SLOTS]; /* BYE came, and says that all is answered */
    uint64_t oks, errors;
} world;

static unsigned
pick(unsigned bound)
{
    return (unsigned)random_below(&world.random, bound);
}

static bool
one_in(unsigned count)
{
    return pick(count) == 0;
}

static const struct known *
pick_known(void)
{
    unsigned count = world.known_count < RECENT ? world.known_count : RECENT;

    return &world.known[count == 0 ? 0 : pick(count)];
}

/* --- replies -------------------------------------------------------------- */

static void
hear_line(unsigned slot, const char *line)
{
    const char *word = strchr(line, ' ') + 1;
    unsigned tag = (unsigned)strtoul(line, NULL, 10) % TAGS;
    bool ok = strncmp(word, "OK", 2) == 0;

    if (strncmp(line, "* BYE quit ", 11) == 0 ||
        strncmp(line, "* BYE eof ", 10) == 0)
        world.orderly[slot] = true;
    if (line[0] == '*' || line[0] == '-' ||
        (!ok && strncmp(word, "ERR ", 4) != 0))
        return;
    if (!world.open[slot][tag])
        ck_abort_msg("answered twice: %s", line);
    world.open[slot][tag] = false;
    world.oks += ok;
    world.errors += !ok;
}

/* The session in a new place, or in the place of one that has ended. */
static void
open_slot(unsigned slot, bool again)
{
    if (again)
        rig_reopen(world.rig, slot);
    else
        (void)rig_open_tcp(world.rig);
    rig_id(world.rig, slot, world.ids[world.id_count++ % RECENT]);
}

static void
reopen(unsigned slot)
{
    memset(world.open[slot], 0, sizeof(world.open[slot]));
    world.ending[slot] = world.orderly[slot] = false;
    open_slot(slot, true);
}

static void
hear(void)
{
    for (unsigned slot = 0; slot < SLOTS; slot++) {
        const char *line;
        while ((line = rig_line(world.rig, slot))[0] != '\0')
            hear_line(slot, line);
        if (!world.rig->sessions[slot].closed)
            continue;
        for (unsigned tag = 0; tag < TAGS && world.orderly[slot]; tag++)
            if (world.open[slot][tag])
                ck_abort_msg("request %u of a closed connection is open", tag);
        reopen(slot);
    }
}

/* --- answers -------------------------------------------------------------- */

static enum op_status
status_of(const struct op *op)
{
    static const enum op_status statuses[OP_KIND_COUNT][10] = {
        [OP_BREAK] = {OP_OK, OP_OK, OP_GONE},
        [OP_RELEASE] = {OP_OK, OP_OK, OP_OK, OP_GONE, OP_MISSING},
        [OP_RENEW] = {OP_OK, OP_OK, OP_OK, OP_OK, OP_WAITING, OP_WAITING,
            OP_GONE, OP_MISSING, OP_BROKEN, OP_MOVED},
        [OP_UNLOCK_DETACHED] = {OP_OK, OP_GONE, OP_CONFLICT},
        [OP_RENEW_DETACHED] = {OP_OK, OP_GONE, OP_CONFLICT, OP_MISSING},
        [OP_RESIZE] = {OP_OK, OP_GONE, OP_CONFLICT, OP_MISSING},
        [OP_RECLAIM] = {OP_OK, OP_OK, OP_WAITING, OP_GONE, OP_MOVED},
        [OP_LOOK] = {OP_OK, OP_GONE},
        [OP_ACQUIRE] = {OP_OK, OP_OK, OP_OK, OP_OK, OP_WAITING, OP_WAITING,
            OP_FULL, OP_CONFLICT, OP_UNSETTLED, OP_MOVED},
        [OP_INSPECT] = {OP_OK, OP_OK, OP_GONE},
    };

    if (one_in(12))
        return OP_UNSENT + pick(OP_REFUSED - OP_UNSENT + 1);
    enum op_status status = statuses[op->kind][pick(10)];
    if (op->no_queue && status == OP_WAITING)
        return OP_BUSY;
    return status == OP_MOVED && !op->moves ? OP_OK : status;
}

static void
fill_tickets(struct op_ticket *tickets, struct op_result *result)
{
    result->ticket_count = pick(TICKETS + 1);
    result->holders = pick(result->ticket_count + 1);
    result->waiters = result->ticket_count - result->holders;
    result->limit = one_in(4) ? 3 : 0;
    result->ttl_ms = one_in(8) ? 300 : 0; /* until it is settled */
    for (unsigned i = 0; i < result->ticket_count; i++) {
        const struct known *known = pick_known();
        tickets[i] = (struct op_ticket){.granted = i < result->holders,
            .mode = one_in(2)   ? MODE_SHARED
                    : one_in(2) ? MODE_INTENT
                                : MODE_EXCLUSIVE,
            .broken = one_in(8),
            .late = one_in(8),
            .generation = 1 + pick(3),
            .permits = 1,
            .request = known->request,
            .fence = i < result->holders ? known->fence : 0,
            .ttl_ms = pick(4000),
            .age_ms = pick(4000),
            .since_us = pick(1000),
            .owner = TEXT(""),
            .client = TEXT("shop"),
            .note = TEXT("")};
        memcpy(tickets[i].session, known->session, 16);
        memcpy(tickets[i].owner_hash, known->owner_hash, 8);
        memcpy(tickets[i].broker, known->broker, 8);
    }
    result->tickets = tickets;
}

/* The fence that a granted ticket of that operation has. */
static uint64_t
fence_of(const struct op *op)
{
    unsigned lock = (unsigned)(op->name.at[0] - 'a');

    if (op->fence > 0 && !one_in(30))
        return op->fence;
    world.fences[lock % LOCKS] = ++world.fence;
    return world.fence;
}

static void
know(const struct op *op, uint64_t fence)
{
    struct known *known = &world.known[world.known_count++ % RECENT];

    *known = (struct known){.request = op->request, .fence = fence};
    memcpy(known->session, op->session, 16);
    memcpy(known->owner_hash, op->owner_hash, 8);
    memcpy(known->broker,
        one_in(3) ? rig_other_broker : world.rig->settings.broker_id, 8);
}

static void
fill_audit(struct op_audit *audit)
{
    static struct op_suspect suspects[LOCKS];

    audit->records = audit->suspect_count = pick(LOCKS + 1);
    audit->suspects = suspects;
    audit->cursor = pick(2);
    for (unsigned i = 0; i < audit->suspect_count; i++)
        suspects[i] = (struct op_suspect){
            .flags = 1u << pick(3), .name = text_make(&"abcdef"[i], 1)};
}

static void
answer(struct op *op)
{
    struct op_ticket tickets[TICKETS];
    struct op_grant grant = {.request = pick_known()->request,
        .fence = world.fence + 1,
        .limit = pick(4),
        .ttl_ms = 1 + pick(2000)};
    struct op_result result = {.status = status_of(op),
        .arrival = 1 + pick(100),
        .place = 1,
        .ahead = 1 + pick(3),
        .again_ms = one_in(3) ? 0 : 1 + pick(2000),
        .ttl_ms = 1 + pick(op->lease_ms + 1),
        .hold_ms = one_in(4) ? 1 + pick(3000) : 0,
        .handed = one_in(8),
        .waited_for = one_in(8),
        .beyond = one_in(8),
        .told = one_in(2),
        .unsettled = one_in(20),
        .typical_ms = pick(200),
        .holder_owner = TEXT("w"),
        .holder_client = TEXT("shop"),
        .holder_note = TEXT(""),
        .note = TEXT(""),
        .ask = {.mode = one_in(3) ? MODE_SHARED : MODE_EXCLUSIVE,
            .part = one_in(6),
            .permits = 1}};

    if (op->kind == OP_AUDIT)
        fill_audit(op->audit);
    if (op->kind == OP_INSPECT && result.status == OP_OK)
        fill_tickets(tickets, &result);
    if (result.status == OP_OK &&
        (op->kind == OP_ACQUIRE || op->kind == OP_RENEW ||
            op->kind == OP_RECLAIM))
        result.fence = fence_of(op);
    if (op->kind != OP_PUBLISH && op->kind != OP_AUDIT)
        know(op, result.fence);
    if (result.status == OP_OK && one_in(10)) {
        world.fence++;
        result.grants = &grant;
        result.grant_count = 1;
    }
    if (op->kind == OP_PUBLISH && op->words[1].len < sizeof(world.news)) {
        world.news_len = op->words[1].len;
        memcpy(world.news, op->words[1].at, world.news_len);
    }
    rig_finish(world.rig, op, result);
}

/* Some of the operations, in any order. */
static void
answer_some(void)
{
    for (unsigned i = pick(world.rig->op_count + 1); i > 0; i--)
        if (world.rig->op_count > 0)
            answer(world.rig->ops[pick(world.rig->op_count)]);
}

/* --- events --------------------------------------------------------------- */

static void
say(unsigned slot, const char *words)
{
    char line[200];
    unsigned tag = world.tags[slot]++ % TAGS;

    if (world.open[slot][tag] || world.ending[slot])
        return;
    world.ending[slot] = strcmp(words, "QUIT") == 0;
    snprintf(line, sizeof(line), "%u %s", tag, words);
    world.open[slot][tag] = true;
    rig_say(world.rig, slot, line);
}

static void
say_lock(unsigned slot)
{
    static const char *const kinds[] = {
        "", "", "", " mode=shared", " mode=upgradable", " limit=3 permits=2"};
    static const char *const waits[] = {
        "", "", "", " wait=0", " wait=50", " wait=1s"};
    static const char *const rest[] = {"", "", "", " lease=30", " lease=700",
        " lease=5s", " lease=700 detached=1", " delay=300", " progress=1",
        " deadlock=0", " note=n", " wanted=1"};
    static const char *const owners[] = {"", "", " owner=w"};
    char line[100] = "LOCK";
    unsigned count = one_in(4) ? 2 + pick(2) : 1;
    unsigned first = pick(NAMES);

    bool tree = one_in(2);

    for (unsigned i = 0; i < count; i++)
        snprintf(line + strlen(line), 8, " %s",
            names[(first + i) % (tree ? NAMES : LOCKS)]);
    snprintf(line + strlen(line), 60, "%s%s%s%s%s", kinds[pick(6)],
        waits[pick(6)], rest[pick(12)], owners[pick(3)], tree ? " tree=1" : "");
    say(slot, line);
}

/* '%c': a lock; '%f': a fence; '%t': a tag; '%s': a session. */
static void
say_any(unsigned slot)
{
    static const char *const lines[] = {"UNLOCK %c", "UNLOCK %c", "UNLOCK %c",
        "UNLOCK %c permits=1", "UNLOCK %c owner=w", "UNLOCK %c fence=%f",
        "UNLOCK %c fence=%f detached=1",
        "RENEW %c fence=%f lease=3000 detached=1", "RENEW %c lease=300",
        "RENEW %c lease=3000", "NOTE %c note=x", "UNLOCK %c f z",
        "CLAIM %c fence=%f count=1", "CLAIM %c fence=%f count=2 owner=w",
        "CLAIM %c fence=%f upgrade=1", "CANCEL %t", "CANCEL %t", "WATCH %c",
        "WATCH %c members=1", "UNWATCH %c", "AWAIT %c", "AWAIT %c wait=0",
        "AWAIT %c wait=50", "SHOW %c", "BREAK %c", "BREAK %c fence=%f", "HELD",
        "STATUS", "SLOW", "TOP", "AUDIT", "SESSIONS", "KILL %s", "LOCKS",
        "STATS", "PING", "HELLO", "HELLO keep=300", "HELLO keep=2s",
        "HELLO resume=%s gen=%g keep=2s", "HELLO resume=%s gen=%g", "QUIT"};
    const char *from = lines[pick(sizeof(lines) / sizeof(lines[0]))];
    char line[120] = "";
    const char *name = names[pick(NAMES)];
    size_t len = 0;

    for (; *from != '\0'; from++) {
        size_t room = sizeof(line) - len;
        if (*from != '%') {
            line[len++] = *from;
            continue;
        }
        from++;
        if (*from == 'c')
            len += (size_t)snprintf(line + len, room, "%s", name);
        else if (*from == 'f')
            len += (size_t)snprintf(line + len, room, "%" PRIu64,
                world.fences[name[0] - 'a'] + one_in(8));
        else if (*from == 't')
            len += (size_t)snprintf(
                line + len, room, "%u", (world.tags[slot] - pick(9)) % TAGS);
        else if (*from == 'g')
            len += (size_t)snprintf(line + len, room, "%u", 2 + pick(4));
        else
            len += (size_t)snprintf(line + len, room, "%s",
                world.ids[pick(
                    world.id_count < RECENT ? world.id_count : RECENT)]);
    }
    say(slot, line);
}

static void
drop(unsigned slot)
{
    if (one_in(3)) {
        world.ending[slot] = true;
        rig_event(world.rig, slot, CORE_EOF);
        return;
    }
    rig_event(world.rig, slot, CORE_DROP);
    reopen(slot);
}

/* A message about holders, which fits what was told before now and then. */
static void
publish_members(void)
{
    char key[] = "holdfast:{a}";
    struct op_ticket tickets[2] = {{.arrival = 1, .fence = 1, .permits = 1},
        {.arrival = 2, .fence = 2, .permits = 1}};
    struct op_members members = {.kind = (enum members_kind)pick(MEMBERS_KINDS),
        .count = pick(3),
        .after = one_in(4) ? 1 : 0,
        .tickets = tickets,
        .ticket_count = pick(3)};
    struct core_event event = {.kind = CORE_MEMBERS, .members = &members};

    key[10] = (char)('a' + pick(LOCKS));
    members.key = text_make(key, sizeof(key) - 1);
    if (members.kind < MEMBERS_PAGE)
        members.ticket_count = 1;
    rig_step(world.rig, &event);
}

/* Messages of Redis and of other brokers. */
static void
publish(void)
{
    const struct known *known = pick_known();
    struct core_event event = {.kind = CORE_UNHEARD};
    char watched[] = "Wholdfast:{a}";

    switch (pick(7)) {
    case 6:
        publish_members();
        break;
    case 0:
        rig_broken(world.rig, known->request, known->fence);
        break;
    case 1:
        watched[0] = one_in(2) ? 'W' : 'I';
        watched[11] = (char)('a' + pick(LOCKS));
        rig_news(world.rig, watched, sizeof(watched) - 1);
        break;
    case 2:
        if (world.news_len > 0 && one_in(2))
            world.news[pick((unsigned)world.news_len)] ^= (char)(1 << pick(8));
        rig_news(world.rig, world.news, world.news_len);
        break;
    case 3:
        if (one_in(4))
            event.kind = CORE_CHANGED;
        rig_step(world.rig, &event);
        break;
    default:
        rig_hint(world.rig, known->request);
    }
}

static void
something_happens(void)
{
    unsigned slot = pick(SLOTS);
    unsigned what = pick(100);

    if (what < 30)
        say_lock(slot);
    else if (what < 60)
        say_any(slot);
    else if (what < 80)
        answer_some();
    else if (what < 85)
        publish();
    else if (what < 88)
        drop(slot);
    else if (what < 92)
        rig_event(world.rig, slot, CORE_MORE);
    else
        rig_pass_us(world.rig, 1 + pick(one_in(20) ? 3000000 : 30000));
    hear();
}

static struct rig *
rig_small(void)
{
    struct rig *rig = rig_create();
    struct core_settings *settings = &rig->settings;

    settings->lease_ms = 2000;
    settings->redis_timeout_us = 600000;
    settings->command_timeout_us = 300000;
    settings->stop_grace_us = SECOND_US;
    settings->tickets_max = 40;
    settings->requests_max = 80;
    settings->outstanding_max = 16;
    settings->holds_max = 9;
    settings->sessions_max = 20;
    rig_start(rig);
    return rig;
}

START_TEST(anything)
{
    memset(&world, 0, sizeof(world));
    seed_random(&world.random, "core");
    random_init(&world.random, random_next(&world.random) + (uint64_t)_i);
    world.rig = rig_small();
    for (unsigned slot = 0; slot < SLOTS; slot++)
        open_slot(slot, false);
    for (unsigned i = 0; i < EVENTS; i++)
        something_happens();
    if (one_in(2))
        rig_stop(world.rig);
    for (unsigned i = 0; i < EVENTS / 10; i++)
        something_happens();
    printf("core: %" PRIu64 " OK, %" PRIu64 " ERR\n", world.oks, world.errors);
    rig_must(world.oks > EVENTS / 20 && world.errors > EVENTS / 20);
    rig_end(world.rig);
}

END_TEST

Suite *
core_random_suite(void)
{
    Suite *suite = suite_create("core_random");
    TCase *tests = tcase_create("core_random");

    tcase_set_timeout(tests, 600);
    tcase_add_loop_test(tests, anything, 0, RUNS);
    suite_add_tcase(suite, tests);
    return suite;
}

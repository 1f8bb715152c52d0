/*
 * Two cores before one fake store, and clients that do anything at any time.
 *
 * The store keeps real queues, with leases, claims and lapses as lua/ has them.
 * It delays, and loses answers, with or without having done what was asked.
 * After each step: every invariant of the core; at most one client believes in
 * a lock; fences grow; each request has at most one final reply, and exactly
 * one where its session was closed and not dropped.
 */
#include "daemon/base/assert.h"
#include "tests/unit/core_rig.h"
#include "tests/unit/seed.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EVENTS      200000
#define CORES       2
#define SESSIONS    6
#define LOCKS       4
#define OWNERS      2
#define QUEUE       16
#define JOBS        4096
#define REQUESTS    512 /* tags in use again after so many */
#define LEASE_MS    2000
#define TIMEOUT_US  300000u
#define PATIENCE_US 600000u

Suite *core_random_suite(void);

/* A ticket in the fake Redis. */
struct entry {
    unsigned core;
    uint64_t request;
    uint64_t arrival;
    uint64_t fence;
    uint64_t ends_us;
    bool granted;
    bool claimed;
    bool suspended;
};

struct record {
    struct entry queue[QUEUE];
    unsigned count;
    uint64_t fence;
    uint64_t arrival;
};

enum job_fate {
    FATE_DONE,    /* executed, and answered */
    FATE_LOST,    /* executed, the answer is lost */
    FATE_NEVER,   /* lost before it was executed */
    FATE_UNSENT,  /* told so when its time is over */
    FATE_REFUSED, /* executed half way, or all of it */
};

/* An operation in the store; or a hint, where op is NULL. */
struct job {
    bool used;
    unsigned core;
    struct op *op;
    enum job_fate fate;
    bool executed;
    bool ghost; /* a release whose answer was given up; still to be executed */
    unsigned lock;
    uint64_t request;
    uint64_t fence;
    uint64_t sent_us;
    uint64_t execute_us;
    uint64_t answer_us;
    struct op_result result;
    struct op_grant grants[1];
};

/* What a client knows of one of its requests. */
struct asked {
    bool open;
    bool unlock;
    unsigned core;
    unsigned session;
    unsigned lock;
    unsigned owner;
};

struct belief {
    bool held;
    uint64_t fence;
    uint32_t count;
    unsigned unlocks; /* sent and not answered */
};

static struct world {
    struct random random;
    uint64_t now_us;
    struct rig *rigs[CORES];
    bool alive[CORES][SESSIONS];
    bool closing[CORES][SESSIONS];
    struct record records[LOCKS];
    struct job jobs[JOBS];
    unsigned job_top;
    struct asked asked[REQUESTS];
    unsigned next_tag;
    struct belief beliefs[CORES][SESSIONS][LOCKS][OWNERS];
    uint64_t told[LOCKS]; /* the last fence */
    uint64_t grants;
    uint64_t losses;
    bool calm; /* nothing fails any more */
} world;

static unsigned
pick(unsigned bound)
{
    return (unsigned)random_below(&world.random, bound);
}

/* --- the fake store ------------------------------------------------------- */

static void
strike(struct record *record, unsigned place)
{
    record->count--;
    memmove(&record->queue[place], &record->queue[place + 1],
        (record->count - place) * sizeof(record->queue[0]));
}

static void
expire(struct record *record)
{
    for (unsigned i = 0; i < record->count;) {
        struct entry entry = record->queue[i];
        if (entry.ends_us > world.now_us) {
            i++;
            continue;
        }
        strike(record, i);
        for (unsigned j = 0; j < record->count; j++)
            if (entry.granted && !entry.claimed && !record->queue[j].granted &&
                record->queue[j].core == entry.core)
                record->queue[j].suspended = true;
    }
}

static struct job *
job_new(unsigned core, struct op *op)
{
    unsigned i = 0;

    while (i < JOBS && world.jobs[i].used)
        i++;
    rig_must(i < JOBS);
    world.job_top = i >= world.job_top ? i + 1 : world.job_top;
    world.jobs[i] = (struct job){.used = true, .core = core, .op = op};
    return &world.jobs[i];
}

static void
serve(struct record *record, struct job *job, const struct entry *own)
{
    for (unsigned i = 0; i < record->count; i++)
        if (record->queue[i].granted)
            return;
    for (unsigned i = 0; i < record->count; i++) {
        struct entry *entry = &record->queue[i];
        if (entry->suspended)
            continue;
        entry->granted = true;
        entry->claimed = entry->core == job->core;
        entry->fence = ++record->fence;
        entry->ends_us =
            world.now_us +
            1000ull * (entry->claimed ? LEASE_MS : CORE_LAPSE_MS / 4);
        if (!entry->claimed) {
            job->result.handed = true;
            if (pick(4) > 0) {
                struct job *hint = job_new(entry->core, NULL);
                hint->request = entry->request;
                hint->executed = true;
                hint->answer_us = world.now_us + pick(100000);
            }
        } else if (entry != own) {
            job->grants[0] = (struct op_grant){.request = entry->request,
                .fence = entry->fence,
                .arrival = entry->arrival,
                .ttl_ms = LEASE_MS};
            job->result.grants = job->grants;
            job->result.grant_count = 1;
        }
        return;
    }
}

static struct entry *
find(struct record *record, const struct job *job)
{
    for (unsigned i = 0; i < record->count; i++)
        if (record->queue[i].core == job->core &&
            record->queue[i].request == job->request &&
            (job->fence == 0 || record->queue[i].fence == job->fence))
            return &record->queue[i];
    return NULL;
}

static void
answer_entry(struct job *job, const struct entry *entry)
{
    uint64_t left_us = entry->ends_us - world.now_us;

    job->result.status = entry->granted ? OP_OK : OP_WAITING;
    job->result.fence = entry->granted ? entry->fence : 0;
    job->result.arrival = entry->arrival;
    job->result.ttl_ms = (uint32_t)(left_us / 1000);
    job->result.again_ms = 50 + pick(LEASE_MS);
    job->result.ahead = 1;
}

static uint64_t
term_us(uint64_t hold_ms)
{
    return 1000 * (hold_ms > 0 && hold_ms < LEASE_MS ? hold_ms : LEASE_MS);
}

static void
execute_acquire(struct record *record, struct job *job)
{
    const struct op *op = job->op;
    struct entry *entry = op->retry ? find(record, job) : NULL;

    if (entry != NULL) {
        entry->suspended = false;
        entry->claimed = entry->granted;
        entry->ends_us = world.now_us + term_us(op->hold_ms);
    } else {
        serve(record, job, NULL);
        if (op->no_queue && record->count > 0) {
            job->result.status = OP_BUSY;
            return;
        }
        if (record->count == QUEUE) {
            job->result.status = OP_FULL;
            return;
        }
        entry = &record->queue[record->count++];
        *entry = (struct entry){.core = job->core,
            .request = job->request,
            .arrival = ++record->arrival,
            .ends_us = world.now_us + 1000 * LEASE_MS};
    }
    bool was = entry->granted;
    serve(record, job, entry);
    if (!was && entry->granted)
        entry->ends_us = world.now_us + term_us(op->hold_ms);
    answer_entry(job, entry);
}

static void
execute_release(struct record *record, struct job *job)
{
    struct entry *entry = find(record, job);

    job->result.status = entry == NULL ? OP_GONE : OP_OK;
    if (entry == NULL)
        return;
    strike(record, (unsigned)(entry - record->queue));
    serve(record, job, NULL);
}

static void
execute_renew(struct record *record, struct job *job)
{
    struct entry *entry = find(record, job);
    const struct op *op = job->op;
    uint64_t left_ms = 0;

    job->result.status = OP_GONE;
    if (entry == NULL)
        return;
    if (op->hard_end_us != WHEEL_NEVER)
        left_ms = op->hard_end_us > job->sent_us + 1000
                      ? (op->hard_end_us - job->sent_us) / 1000
                      : 1;
    entry->suspended = false;
    entry->claimed = entry->granted;
    entry->ends_us = world.now_us + term_us(left_ms);
    serve(record, job, entry);
    answer_entry(job, entry);
}

static void
execute(struct job *job)
{
    struct record *record = &world.records[job->lock];

    job->executed = true;
    expire(record);
    if (job->ghost || job->op->kind == OP_RELEASE)
        execute_release(record, job);
    else if (job->op->kind == OP_ACQUIRE)
        execute_acquire(record, job);
    else if (job->op->kind == OP_RENEW)
        execute_renew(record, job);
    else if (job->op->kind == OP_LOOK)
        serve(record, job, NULL);
}

/* Takes over what a core has asked. */
static void
take_ops(unsigned core)
{
    struct rig *rig = world.rigs[core];

    for (uint32_t i = 0; i < rig->op_count; i++) {
        struct op *op = rig->ops[i];
        if (op->attempts > 0)
            continue; /* has been taken over */
        op->attempts = 1;
        struct job *job = job_new(core, op);
        unsigned slow = pick(20) == 0 ? 200000 : 10000;
        job->lock = (unsigned)(op->name.at[0] - 'a');
        job->request = op->request;
        job->fence = op->fence;
        job->sent_us = world.now_us + pick(slow / 8);
        job->execute_us = job->sent_us + pick(slow / 2);
        job->answer_us = job->execute_us + pick(slow / 4);
        if (!world.calm && pick(8) == 0)
            job->fate = (enum job_fate)pick(5);
        if (job->fate == FATE_LOST || job->fate == FATE_NEVER)
            job->answer_us = world.now_us + TIMEOUT_US;
        if (job->fate == FATE_UNSENT)
            job->answer_us =
                op->give_up_us > world.now_us ? op->give_up_us : world.now_us;
    }
}

/* --- the clients ---------------------------------------------------------- */

static void
lose_all(unsigned core, unsigned session)
{
    memset(
        world.beliefs[core][session], 0, sizeof(world.beliefs[core][session]));
}

static void
check_believers(void)
{
    for (unsigned lock = 0; lock < LOCKS; lock++) {
        unsigned believers = 0;
        for (unsigned i = 0; i < CORES * SESSIONS * OWNERS; i++)
            believers += world
                             .beliefs[i % CORES][i / CORES % SESSIONS][lock]
                                     [i / CORES / SESSIONS]
                             .held;
        rig_must(believers <= 1);
    }
}

static void
told_ok(const struct asked *asked, const char *line)
{
    struct belief *belief =
        &world.beliefs[asked->core][asked->session][asked->lock][asked->owner];
    const char *fence = strstr(line, " fence=");
    const char *count = strstr(line, " count=");

    if (asked->unlock)
        belief->unlocks--;
    if (count == NULL)
        return;
    belief->count = (uint32_t)strtoul(count + 7, NULL, 10);
    if (fence == NULL)
        return;
    belief->fence = strtoull(fence + 7, NULL, 10);
    if (belief->count == 1) {
        rig_must(belief->fence > world.told[asked->lock]);
        world.told[asked->lock] = belief->fence;
        world.grants++;
    } else {
        rig_must(belief->fence == world.told[asked->lock]);
    }
    belief->held =
        belief->unlocks == 0 && !world.closing[asked->core][asked->session];
}

static void
told_lost(unsigned core, unsigned session, const char *line)
{
    unsigned lock = (unsigned)(line[7] - 'a');
    const char *owner = strstr(line, " owner=");
    struct belief *belief =
        &world.beliefs[core][session][lock][owner == NULL ? 0 : 1];
    const char *fence = strstr(line, " fence=");

    rig_must(lock < LOCKS);
    rig_must(fence != NULL);
    if (!world.closing[core][session])
        rig_must(strtoull(fence + 7, NULL, 10) == belief->fence);
    belief->held = false;
    belief->count = 0;
    world.losses++;
}

static void
told(unsigned core, unsigned session, const char *line)
{
    if (line[0] == '*') {
        if (strncmp(line, "* LOST ", 7) == 0)
            told_lost(core, session, line);
        if (strncmp(line, "* BYE ", 6) == 0)
            world.alive[core][session] = false;
        return;
    }
    struct asked *asked = &world.asked[strtoul(line, NULL, 10) % REQUESTS];
    const char *word = strchr(line, ' ') + 1;
    if (!asked->open)
        ck_abort_msg("answered twice: %s", line);
    rig_must(asked->core == core);
    rig_must(asked->session == session);
    asked->open = false;
    if (strncmp(word, "OK", 2) == 0) {
        told_ok(asked, line);
    } else {
        rig_must(strncmp(word, "ERR ", 4) == 0);
        rig_must(strstr(word, "BADREQ") == NULL);
        if (asked->unlock)
            world.beliefs[core][session][asked->lock][asked->owner].unlocks--;
    }
}

static void
hear(unsigned core)
{
    for (unsigned session = 0; session < SESSIONS; session++) {
        const char *line;
        while ((line = rig_line(world.rigs[core], session))[0] != '\0')
            told(core, session, line);
        if (!world.rigs[core]->sessions[session].closed)
            continue;
        lose_all(core, session);
        world.alive[core][session] = false;
        for (unsigned i = 0; i < REQUESTS; i++)
            if (world.asked[i].open && world.asked[i].core == core &&
                world.asked[i].session == session)
                ck_abort_msg("request %u of a closed session is open", i);
    }
    check_believers();
    take_ops(core);
}

static struct asked *
ask(unsigned core, unsigned session, unsigned *tag)
{
    struct asked *asked = &world.asked[world.next_tag % REQUESTS];

    if (asked->open)
        return NULL;
    *tag = world.next_tag++;
    *asked = (struct asked){.open = true, .core = core, .session = session};
    return asked;
}

static void
say(unsigned core, unsigned session, const char *line)
{
    rig_say(world.rigs[core], session, line);
    hear(core);
}

static void
client_lock(unsigned core, unsigned session)
{
    static const char *const waits[] = {
        "", "", " wait=0", " wait=50", " wait=1s", " wait=4s"};
    static const char *const leases[] = {
        "", "", "", " lease=30", " lease=700", " lease=5s"};
    char line[90];
    unsigned tag;
    struct asked *asked = ask(core, session, &tag);

    if (asked == NULL)
        return;
    asked->lock = pick(LOCKS);
    asked->owner = pick(OWNERS);
    snprintf(line, sizeof(line), "%u LOCK %c%s%s%s", tag, 'a' + asked->lock,
        waits[pick(6)], leases[pick(6)], asked->owner ? " owner=w" : "");
    say(core, session, line);
}

static void
client_unlock(unsigned core, unsigned session)
{
    char line[90];
    unsigned tag;
    struct asked *asked = ask(core, session, &tag);

    if (asked == NULL)
        return;
    asked->lock = pick(LOCKS);
    asked->owner = pick(OWNERS);
    bool renew = pick(5) == 0;
    if (!renew) {
        struct belief *belief =
            &world.beliefs[core][session][asked->lock][asked->owner];
        asked->unlock = true;
        belief->unlocks++;
        belief->held = false;
    }
    snprintf(line, sizeof(line), "%u %s %c%s%s", tag,
        renew ? "RENEW" : "UNLOCK", 'a' + asked->lock,
        asked->owner ? " owner=w" : "",
        !renew    ? ""
        : pick(2) ? " lease=300"
                  : " lease=3s");
    say(core, session, line);
}

static void
client_cancel(unsigned core, unsigned session)
{
    char line[60];
    unsigned tag;
    unsigned other = pick(REQUESTS);

    for (unsigned i = 0; i < REQUESTS; i++) {
        unsigned at = (other + i) % REQUESTS;
        const struct asked *asked = &world.asked[at];
        if (!asked->open || asked->unlock || asked->core != core ||
            asked->session != session)
            continue;
        /* The tag that was given for this place last. */
        unsigned last = world.next_tag - 1;
        last -= (last - at) % REQUESTS;
        if (ask(core, session, &tag) == NULL)
            return;
        world.asked[tag % REQUESTS].lock = LOCKS;
        snprintf(line, sizeof(line), "%u CANCEL %u", tag, last);
        rig_say(world.rigs[core], session, line);
        /* A RENEW cannot be cancelled: that is a BADREQ, taken here. */
        world.asked[tag % REQUESTS].open = false;
        const char *got;
        while ((got = rig_line(world.rigs[core], session))[0] != '\0')
            if (got[0] == '*' || strtoul(got, NULL, 10) != tag)
                told(core, session, got);
        hear(core);
        return;
    }
}

static void
client_end(unsigned core, unsigned session)
{
    struct rig *rig = world.rigs[core];
    unsigned how = pick(3);
    unsigned tag = 0;

    if (how == 2 && ask(core, session, &tag) == NULL)
        return;
    lose_all(core, session);
    world.closing[core][session] = true;
    if (how == 0) {
        world.alive[core][session] = false;
        rig_event(rig, session, CORE_DROP);
        for (unsigned i = 0; i < REQUESTS; i++)
            if (world.asked[i].core == core &&
                world.asked[i].session == session)
                world.asked[i].open = false;
    } else if (how == 1) {
        rig_event(rig, session, CORE_EOF);
    } else {
        char line[30];
        snprintf(line, sizeof(line), "%u QUIT", tag);
        rig_say(rig, session, line);
    }
    hear(core);
}

/* --- time ----------------------------------------------------------------- */

static uint64_t
job_due_us(const struct job *job)
{
    if (job->ghost)
        return job->execute_us;
    bool runs = job->fate != FATE_NEVER && job->fate != FATE_UNSENT;
    if (runs && !job->executed && job->execute_us < job->answer_us)
        return job->execute_us;
    return job->answer_us;
}

static void
job_answer(struct job *job)
{
    struct rig *rig = world.rigs[job->core];

    static const enum op_status statuses[] = {[FATE_LOST] = OP_UNKNOWN,
        [FATE_NEVER] = OP_UNKNOWN,
        [FATE_UNSENT] = OP_UNSENT,
        [FATE_REFUSED] = OP_REFUSED};
    struct op *op = job->op;

    if (op == NULL) {
        job->used = false;
        rig_hint(rig, job->request);
        hear(job->core);
        return;
    }
    if (job->fate != FATE_DONE)
        job->result = (struct op_result){.status = statuses[job->fate]};
    job->result.sent_us = job->sent_us;
    if (job->result.grant_count > 0)
        job->result.grants = job->grants;
    bool ghost = job->fate == FATE_NEVER && op->kind == OP_RELEASE;
    struct job copy = *job;
    copy.result.grants = copy.grants;
    job->used = false;
    rig_finish(rig, op, copy.result);
    if (ghost) {
        struct job *late = job_new(copy.core, NULL);
        late->ghost = true;
        late->lock = copy.lock;
        late->request = copy.request;
        late->fence = copy.fence;
        late->execute_us = world.now_us + pick(3000000);
    }
    hear(copy.core);
}

static void
job_move(struct job *job)
{
    if (job->ghost) {
        execute(job);
        job->used = false;
    } else if (!job->executed && job_due_us(job) == job->execute_us &&
               job->execute_us < job->answer_us) {
        execute(job);
    } else {
        if (job->op != NULL && !job->executed && job->fate == FATE_DONE)
            execute(job);
        job_answer(job);
    }
}

static void
set_now(uint64_t now_us)
{
    world.now_us = now_us > world.now_us ? now_us : world.now_us;
    for (unsigned core = 0; core < CORES; core++)
        world.rigs[core]->now_us = world.now_us;
}

/* The earliest thing until `end_us`; false: there is none. */
static bool
move_next(uint64_t end_us)
{
    struct job *next = NULL;
    uint64_t next_us = end_us;
    int core = -1;

    for (unsigned i = 0; i < world.job_top; i++) {
        struct job *job = &world.jobs[i];
        if (job->used && job_due_us(job) < next_us) {
            next = job;
            next_us = job_due_us(job);
        }
    }
    while (world.job_top > 0 && !world.jobs[world.job_top - 1].used)
        world.job_top--;
    for (int i = 0; i < CORES; i++) {
        uint64_t core_us = core_next_us(world.rigs[i]->core);
        if (core_us < next_us) {
            core = i;
            next_us = core_us;
        }
    }
    if (core >= 0) {
        struct core_event event = {.kind = CORE_TIME};
        set_now(next_us);
        rig_step(world.rigs[core], &event);
        hear((unsigned)core);
        return true;
    }
    if (next == NULL)
        return false;
    set_now(next_us);
    job_move(next);
    return true;
}

static void
pass(uint64_t us)
{
    uint64_t end_us = world.now_us + us;

    while (move_next(end_us))
        ;
    set_now(end_us);
}

static void
something_happens(void)
{
    unsigned core = pick(CORES);
    unsigned session = pick(SESSIONS);
    unsigned what = pick(100);

    if (!world.alive[core][session]) {
        rig_reopen(world.rigs[core], session);
        world.alive[core][session] = true;
        world.closing[core][session] = false;
        lose_all(core, session);
        hear(core);
    } else if (world.closing[core][session]) {
        return;
    } else if (what < 45) {
        client_lock(core, session);
    } else if (what < 85) {
        client_unlock(core, session);
    } else if (what < 92) {
        client_cancel(core, session);
    } else if (what < 97) {
        client_end(core, session);
    } else if (what < 98) {
        struct core_event event = {.kind = CORE_UNHEARD};
        rig_step(world.rigs[core], &event);
        hear(core);
    }
}

static void
world_begin(void)
{
    memset(&world, 0, sizeof(world));
    seed_random(&world.random, "core");
    for (unsigned core = 0; core < CORES; core++) {
        struct rig *rig = rig_create();
        rig->settings.lease_ms = LEASE_MS;
        rig->settings.patience_us = PATIENCE_US;
        rig->settings.command_timeout_us = TIMEOUT_US;
        rig->settings.tickets_max = 24;
        rig->settings.requests_max = 64;
        rig->settings.outstanding_max = 16;
        rig->settings.holds_max = 6;
        rig->settings.seed = random_next(&world.random);
        rig_start(rig);
        world.rigs[core] = rig;
        world.now_us = rig->now_us;
        for (unsigned session = 0; session < SESSIONS; session++) {
            (void)rig_open(rig);
            world.alive[core][session] = true;
        }
    }
}

static void
world_end(void)
{
    world.calm = true;
    for (unsigned core = 0; core < CORES; core++)
        for (unsigned session = 0; session < SESSIONS; session++)
            if (world.alive[core][session]) {
                lose_all(core, session);
                world.closing[core][session] = true;
                rig_event(world.rigs[core], session, CORE_EOF);
                hear(core);
            }
    pass(60 * (uint64_t)SECOND_US);
    for (unsigned core = 0; core < CORES; core++) {
        struct core_totals totals;
        core_totals(world.rigs[core]->core, &totals);
        rig_must(totals.sessions == 0);
        rig_must(totals.tickets == 0);
        rig_must(totals.requests == 0);
        rig_must(totals.ops == 0);
        rig_must(totals.locks == 0);
        rig_free(world.rigs[core]);
    }
    for (unsigned i = 0; i < REQUESTS; i++)
        rig_must(!world.asked[i].open);
    for (unsigned i = 0; i < LOCKS; i++) {
        expire(&world.records[i]);
        rig_must(world.records[i].count == 0);
    }
}

START_TEST(two_cores)
{
    world_begin();
    for (unsigned i = 0; i < EVENTS; i++) {
        something_happens();
        pass(pick(pick(200) == 0 ? 3000000 : 12000));
    }
    world_end();
    printf("core: %" PRIu64 " grants, %" PRIu64 " losses\n", world.grants,
        world.losses);
    rig_must(world.grants > EVENTS / 100);
    rig_must(world.losses > EVENTS / 1000);
}

END_TEST

Suite *
core_random_suite(void)
{
    Suite *suite = suite_create("core_random");
    TCase *tests = tcase_create("core_random");

    tcase_set_timeout(tests, 300);
    tcase_add_test(tests, two_cores);
    suite_add_tcase(suite, tests);
    return suite;
}

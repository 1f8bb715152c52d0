/*
 * The judge: beliefs that overlap, fences, updates, records. See check.h.
 *
 * He is told of everything in the order of true time and never acts on it. A
 * lock has a short list of beliefs that have not been ended; one that has only
 * run out stays in it, since its client may be stopped and wake.
 *
 * Records are looked at whenever a Redis has written one, against what was kept
 * of the version before, of whichever server. The layout is that of
 * lua/record.lua.
 */
#include "tests/sim/check.h"

#include "daemon/base/assert.h"
#include "daemon/base/text.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NONE       0
#define TOLD_KEPT  64 /* fences remembered of a lock, to see one told twice */
#define GRANT_KEPT 4  /* granted tickets of one record, to see new ones */
#define STILL_KEPT 16 /* suspended tickets of one record */

const char *const promise_names[PROMISE_COUNT] = {
    [PROMISE_EXCLUSION] = "exclusion",
    [PROMISE_FENCE] = "fence",
    [PROMISE_UPDATE] = "update",
    [PROMISE_ORDER] = "order",
    [PROMISE_SERVED] = "served",
    [PROMISE_FREED] = "freed",
    [PROMISE_ANSWERED] = "answered",
    [PROMISE_STALE] = "stale",
    [PROMISE_TOLD] = "told",
    [PROMISE_CLEAN] = "clean",
};

/* What the topology cannot promise anything about. */
#define CAUSE(fault) (1u << FAULT_##fault)
#define JUMPS        (CAUSE(clock_forward) | CAUSE(clock_back))
#define CLOCKS       (JUMPS | CAUSE(migrate)) /* between clocks that differ */
#define LOSSES       (CAUSE(failover) | CAUSE(wiped) | CLOCKS)
#define DAMAGES      (LOSSES | CAUSE(script_break))

_Static_assert(FAULT_COUNT <= 32, "causes are bits of a word");

/* The causes that excuse each promise; a fence is to survive a failover, and
 * that data are lost. */
static const uint32_t excuses[PROMISE_COUNT] = {
    [PROMISE_EXCLUSION] = DAMAGES | CAUSE(broker_drain) | CAUSE(cut),
    [PROMISE_FENCE] =
        CAUSE(script_break) | CLOCKS | CAUSE(broker_clock) | CAUSE(redis_stop),
    [PROMISE_UPDATE] = CAUSE(script_break) | CLOCKS | CAUSE(broker_clock),
    [PROMISE_ORDER] = DAMAGES,
    [PROMISE_SERVED] = DAMAGES,
    [PROMISE_FREED] = DAMAGES,
    [PROMISE_TOLD] = LOSSES,
    [PROMISE_CLEAN] = DAMAGES,
};

struct belief {
    uint32_t lock;
    uint32_t next; /* of its lock's, or of the unused */
    uint64_t fence;
    uint64_t began_us;
    uint64_t until_us;
    const struct machine *machine; /* ref; NULL: nobody's */
    uint32_t serial;
    bool doubted; /* somebody else believed while its process was stopped */
    char who[16];
};

/* What is kept of the version of a record that was written last. */
struct version {
    bool known;
    bool damaged; /* said already */
    uint64_t fence;
    uint64_t written_us;
    uint32_t granted;
    uint64_t arrivals[GRANT_KEPT];
    uint64_t fences[GRANT_KEPT];
    uint32_t still; /* suspended tickets */
    uint64_t stills[STILL_KEPT];
    bool unclaimed; /* a grant that may lapse, and suspend its broker's */
    char broker[8]; /* of the unclaimed grant */
};

struct subject {
    uint32_t beliefs;
    uint32_t told_next;
    uint64_t told_highest;
    uint64_t told_us; /* when the highest was told */
    uint64_t told[TOLD_KEPT];
    uint64_t resource_fence; /* the highest that the resource has seen */
    uint64_t value;
    uint64_t value_us;
    char writer[16];
    struct version version;
};

struct check {
    struct world *world; /* ref */
    uint32_t locks;
    struct subject *subjects; /* owned; one for each lock */
    struct belief *beliefs;   /* owned; [0] is none */
    uint32_t belief_count;
    uint32_t belief_capacity;
    uint32_t unused;
    uint32_t serial;                  /* of beliefs */
    uint64_t excused_us[FAULT_COUNT]; /* latest; 0: never */
    struct check_totals totals;
};

struct check *
check_create(struct world *world, uint32_t locks)
{
    struct check *check = calloc(1, sizeof(*check));

    require(check != NULL);
    check->world = world;
    check->locks = locks;
    check->subjects = calloc(locks, sizeof(*check->subjects));
    check->belief_capacity = 64;
    check->belief_count = 1;
    check->beliefs = calloc(check->belief_capacity, sizeof(*check->beliefs));
    require(check->subjects != NULL && check->beliefs != NULL);
    return check;
}

void
check_destroy(struct check **check)
{
    if (*check == NULL)
        return;
    free((*check)->subjects);
    free((*check)->beliefs);
    free(*check);
    *check = NULL;
}

const struct check_totals *
check_totals(const struct check *check)
{
    return &check->totals;
}

static struct subject *
subject_of(const struct check *check, uint32_t lock)
{
    require(lock < check->locks);
    return &check->subjects[lock];
}

/* --- what is broken ------------------------------------------------------- */

void
check_excuse(struct check *check, enum fault cause)
{
    check->excused_us[cause] = check->world->now_us;
    /* What a script has left half done stays so, and so does a clock. */
    if (cause == FAULT_script_break || cause == FAULT_broker_clock)
        check->excused_us[cause] = WORLD_NEVER;
}

/* Whoever has lost a lock by a fault knows it by then: his lease is over. */
static bool
excuse_stands(const struct check *check, enum promise promise, uint64_t at_us)
{
    uint64_t lease_us = (uint64_t)check->world->plan.lease_ms * 1000;

    return promise != PROMISE_EXCLUSION || at_us == WORLD_NEVER ||
           check->world->now_us <= at_us + 2 * lease_us + 2000000;
}

/* The latest of the causes since then; FAULT_COUNT: none. */
static enum fault
excuse_since(const struct check *check, enum promise promise, uint32_t causes,
    uint64_t since_us)
{
    enum fault found = FAULT_COUNT;
    uint64_t latest_us = 0;

    for (unsigned i = 0; i < FAULT_COUNT; i++) {
        uint64_t at_us = check->excused_us[i];
        if ((causes >> i & 1) != 0 && at_us > 0 && at_us >= since_us &&
            at_us >= latest_us && excuse_stands(check, promise, at_us)) {
            latest_us = at_us;
            found = (enum fault)i;
        }
    }
    return found;
}

static void broken(struct check *check, enum promise promise, uint32_t causes,
    uint64_t since_us, const char *format, va_list args)
    __attribute__((format(printf, 5, 0)));

static void
broken(struct check *check, enum promise promise, uint32_t causes,
    uint64_t since_us, const char *format, va_list args)
{
    char what[300];
    enum fault cause = excuse_since(check, promise, causes, since_us);

    int len = vsnprintf(what, sizeof(what), format, args);
    require(len >= 0);
    if (cause != FAULT_COUNT) {
        check->totals.excused[cause]++;
        world_note(check->world, "judge", "excused by %s: %s: %s",
            fault_names[cause], promise_names[promise], what);
        return;
    }
    check->totals.violations++;
    check->totals.by_promise[promise]++;
    world_note(check->world, "judge", "VIOLATION %s: %s",
        promise_names[promise], what);
}

void
check_broken(struct check *check, enum promise promise, uint64_t since_us,
    const char *format, ...)
{
    va_list args;

    va_start(args, format);
    broken(check, promise, excuses[promise], since_us, format, args);
    va_end(args);
}

/* As check_broken(), with other causes. */
static void broken_by(struct check *check, enum promise promise,
    uint32_t causes, uint64_t since_us, const char *format, ...)
    __attribute__((format(printf, 5, 6)));

static void
broken_by(struct check *check, enum promise promise, uint32_t causes,
    uint64_t since_us, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    broken(check, promise, causes, since_us, format, args);
    va_end(args);
}

/* So long before that, less a lease: what happened then may still show. */
static uint64_t
lease_before(const struct check *check, uint64_t at_us)
{
    uint64_t lease_us = (uint64_t)check->world->plan.lease_ms * 1000;

    return at_us > lease_us ? at_us - lease_us : 0;
}

/* --- beliefs -------------------------------------------------------------- */

static uint32_t
belief_take(struct check *check)
{
    uint32_t number = check->unused;

    if (number != NONE) {
        check->unused = check->beliefs[number].next;
        return number;
    }
    if (check->belief_count == check->belief_capacity) {
        check->belief_capacity *= 2;
        check->beliefs = realloc(
            check->beliefs, check->belief_capacity * sizeof(*check->beliefs));
        require(check->beliefs != NULL);
    }
    return check->belief_count++;
}

static bool
belief_sleeps(const struct check *check, const struct belief *belief)
{
    return belief->machine != NULL &&
           belief->machine->stopped_until > check->world->now_us;
}

/* A process runs again during whose stop somebody else came to believe. */
static void
belief_wakes(void *arg, uint64_t data)
{
    struct check *check = arg;
    struct belief *belief = &check->beliefs[data >> 32];

    if (belief->serial != (uint32_t)data)
        return;
    if (belief_sleeps(check, belief)) {
        world_at(check->world, belief->machine->stopped_until + 1, belief_wakes,
            check, data);
        return;
    }
    belief->doubted = false;
    if (belief->until_us > check->world->now_us)
        check_broken(check, PROMISE_EXCLUSION,
            lease_before(check, belief->began_us),
            "lock-%" PRIu32 ": %s (fence %" PRIu64
            ") was stopped, and was told nothing when it ran again",
            belief->lock, belief->who, belief->fence);
}

static void
belief_doubt(struct check *check, uint32_t number)
{
    struct belief *belief = &check->beliefs[number];

    if (belief->doubted)
        return;
    belief->doubted = true;
    world_at(check->world, belief->machine->stopped_until + 1, belief_wakes,
        check, (uint64_t)number << 32 | belief->serial);
}

/* Nobody else may believe now. */
static void
beliefs_compare(struct check *check, uint32_t number)
{
    const struct belief *own = &check->beliefs[number];
    uint64_t now_us = check->world->now_us;

    for (uint32_t at = subject_of(check, own->lock)->beliefs; at != NONE;
         at = check->beliefs[at].next) {
        const struct belief *other = &check->beliefs[at];
        if (at == number || other->until_us <= now_us)
            continue;
        if (belief_sleeps(check, other)) {
            belief_doubt(check, at);
            continue;
        }
        uint64_t since_us =
            other->began_us < own->began_us ? other->began_us : own->began_us;
        check_broken(check, PROMISE_EXCLUSION, lease_before(check, since_us),
            "lock-%" PRIu32 ": %s (fence %" PRIu64 ") believes, and %s (fence "
            "%" PRIu64 ") since %" PRIu64 " us for %" PRIu64 " us more",
            own->lock, own->who, own->fence, other->who, other->fence,
            now_us - other->began_us, other->until_us - now_us);
    }
}

uint32_t
check_believes(struct check *check, uint32_t lock, uint64_t fence,
    const char *who, uint64_t until_us)
{
    struct subject *subject = subject_of(check, lock);
    uint32_t number = belief_take(check);
    struct belief *belief = &check->beliefs[number];

    belief->lock = lock;
    belief->fence = fence;
    belief->began_us = check->world->now_us;
    belief->until_us = until_us;
    belief->machine = NULL;
    belief->serial = ++check->serial;
    belief->doubted = false;
    snprintf(belief->who, sizeof(belief->who), "%s", who);
    belief->next = subject->beliefs;
    subject->beliefs = number;
    if (until_us > belief->began_us)
        beliefs_compare(check, number);
    return number;
}

void
check_process(
    struct check *check, uint32_t belief, const struct machine *machine)
{
    require(belief > 0 && belief < check->belief_count);
    check->beliefs[belief].machine = machine;
}

void
check_until(struct check *check, uint32_t belief, uint64_t until_us)
{
    require(belief > 0 && belief < check->belief_count);
    struct belief *own = &check->beliefs[belief];
    uint64_t now_us = check->world->now_us;
    bool revived = own->until_us <= now_us && until_us > now_us;

    own->until_us = until_us;
    if (revived)
        beliefs_compare(check, belief);
}

void
check_ends(struct check *check, uint32_t belief)
{
    require(belief > 0 && belief < check->belief_count);
    struct belief *own = &check->beliefs[belief];
    uint32_t *link = &subject_of(check, own->lock)->beliefs;

    while (*link != belief) {
        require(*link != NONE);
        link = &check->beliefs[*link].next;
    }
    *link = own->next;
    own->serial = 0;
    own->next = check->unused;
    check->unused = belief;
}

/* --- fences --------------------------------------------------------------- */

uint64_t
check_fence_told(const struct check *check, uint32_t lock)
{
    return subject_of(check, lock)->told_highest;
}

void
check_fence(struct check *check, uint32_t lock, uint64_t fence, const char *who)
{
    struct subject *subject = subject_of(check, lock);

    check->totals.grants++;
    for (uint32_t i = 0; i < TOLD_KEPT; i++)
        if (subject->told[i] == fence)
            check_broken(check, PROMISE_FENCE,
                lease_before(check, subject->told_us),
                "lock-%" PRIu32 ": fence %" PRIu64
                " is told to %s, and was told before",
                lock, fence, who);
    subject->told[subject->told_next++ % TOLD_KEPT] = fence;
    if (fence > subject->told_highest) {
        subject->told_highest = fence;
        subject->told_us = check->world->now_us;
    }
}

void
check_fence_above(struct check *check, uint32_t lock, uint64_t fence,
    uint64_t floor, const char *who)
{
    const struct subject *subject = subject_of(check, lock);

    if (fence <= floor)
        check_broken(check, PROMISE_FENCE,
            lease_before(check, subject->told_us),
            "lock-%" PRIu32 ": %s is told fence %" PRIu64
            ", and when it asked, %" PRIu64 " had been told",
            lock, who, fence, floor);
}

/* --- the resource behind a lock ------------------------------------------- */

/* Whether the resource lets somebody with that fence in. */
static bool
resource_admits(struct subject *subject, uint64_t fence)
{
    if (fence < subject->resource_fence)
        return false;
    subject->resource_fence = fence;
    return true;
}

bool
check_read(struct check *check, uint32_t lock, uint64_t fence, uint64_t *value)
{
    struct subject *subject = subject_of(check, lock);

    if (!resource_admits(subject, fence)) {
        check->totals.refused++;
        return false;
    }
    *value = subject->value;
    return true;
}

bool
check_write(struct check *check, uint32_t lock, uint64_t fence, uint64_t read,
    const char *who)
{
    struct subject *subject = subject_of(check, lock);

    if (!resource_admits(subject, fence)) {
        check->totals.refused++;
        return false;
    }
    if (subject->value != read)
        check_broken(check, PROMISE_UPDATE,
            lease_before(check, subject->value_us),
            "lock-%" PRIu32 ": %s with fence %" PRIu64 " had read %" PRIu64
            ", and %s has made it %" PRIu64,
            lock, who, fence, read, subject->writer, subject->value);
    subject->value++;
    subject->value_us = check->world->now_us;
    snprintf(subject->writer, sizeof(subject->writer), "%s", who);
    check->totals.updates++;
    return true;
}

/* --- records -------------------------------------------------------------- */

#define HEAD_BYTES   120
#define TICKET_BYTES 96

enum {
    TICKET_LIVING = 1,
    TICKET_GRANTED = 2,
    TICKET_CLAIMED = 4,
    TICKET_SUSPENDED = 8
};

struct record {
    const char *value; /* ref */
    uint32_t width;
    uint32_t stored;
    uint32_t first;
    uint32_t live;
    uint32_t granted;
    uint64_t fence;
    uint64_t arrival;
};

static uint32_t
read_u32(const char *at)
{
    const unsigned char *b = (const unsigned char *)at;

    return (uint32_t)b[0] | (uint32_t)b[1] << 8 | (uint32_t)b[2] << 16 |
           (uint32_t)b[3] << 24;
}

/* An integer that is stored as a double. */
static uint64_t
read_whole(const char *at)
{
    uint64_t bits = (uint64_t)read_u32(at) | (uint64_t)read_u32(at + 4) << 32;
    double number;

    memcpy(&number, &bits, sizeof(number));
    if (!(number >= 0 && number < 9007199254740992.0))
        return UINT64_MAX;
    return (uint64_t)number;
}

/* False: its bytes make no sense. */
static bool
record_read(struct record *record, const char *value, size_t len)
{
    if (len < HEAD_BYTES + TICKET_BYTES || value[0] != 1)
        return false;
    record->value = value;
    record->width = read_u32(value) >> 16;
    record->fence = read_whole(value + 8);
    record->arrival = read_whole(value + 16);
    record->stored = read_u32(value + 24);
    record->first = read_u32(value + 28);
    record->live = read_u32(value + 32);
    record->granted = read_u32(value + 36);
    return record->width >= TICKET_BYTES && record->first <= record->stored &&
           record->fence != UINT64_MAX && record->arrival != UINT64_MAX &&
           len >= HEAD_BYTES + (size_t)record->stored * record->width;
}

static const char *
record_ticket(const struct record *record, uint32_t place)
{
    return record->value + HEAD_BYTES + (size_t)place * record->width;
}

/* What the tickets say, to compare with the head and the version before. */
struct survey {
    uint32_t live;
    uint32_t granted;
    uint64_t waits;    /* arrival of the first that may be granted; 0: none */
    uint64_t firm;     /* the first that could all the time; 0: none */
    uint64_t passed;   /* one that was granted before a waiter; 0: none */
    uint64_t newest;   /* the largest fence that is newly granted; 0: none */
    bool out_of_order; /* arrivals do not grow */
    struct version version;
};

static bool
version_has(const struct version *version, uint64_t arrival, uint64_t fence)
{
    for (uint32_t i = 0; i < version->granted && i < GRANT_KEPT; i++)
        if (version->arrivals[i] == arrival && version->fences[i] == fence)
            return true;
    return false;
}

/*
 * Whether a waiter may have been passed in this call: it was suspended when the
 * call began, or a grant to its broker lapsed in it, and only a later operation
 * of the call, its broker's, has put it back.
 */
static bool
version_passes(
    const struct version *before, uint64_t arrival, const char *broker)
{
    if (before->unclaimed && memcmp(before->broker, broker, 8) == 0)
        return true;
    for (uint32_t i = 0; i < before->still && i < STILL_KEPT; i++)
        if (before->stills[i] == arrival)
            return true;
    return before->still > STILL_KEPT;
}

static void
survey_waits(struct survey *survey, const struct version *before,
    const char *ticket, uint64_t arrival)
{
    struct version *version = &survey->version;

    if ((ticket[0] & TICKET_SUSPENDED) != 0) {
        if (version->still < STILL_KEPT)
            version->stills[version->still] = arrival;
        version->still++;
        return;
    }
    if (survey->waits == 0)
        survey->waits = arrival;
    if (survey->firm == 0 && !version_passes(before, arrival, ticket + 80))
        survey->firm = arrival;
}

static void
survey_granted(struct survey *survey, const struct version *before,
    const char *ticket, uint64_t arrival)
{
    struct version *version = &survey->version;
    uint64_t fence = read_whole(ticket + 16);

    if ((ticket[0] & TICKET_CLAIMED) == 0) {
        version->unclaimed = true;
        memcpy(version->broker, ticket + 80, sizeof(version->broker));
    }

    if (version->granted < GRANT_KEPT) {
        version->arrivals[version->granted] = arrival;
        version->fences[version->granted] = fence;
    }
    version->granted++;
    survey->granted++;
    if (!before->known || version_has(before, arrival, fence))
        return;
    if (fence > survey->newest)
        survey->newest = fence;
    if (survey->firm != 0)
        survey->passed = arrival;
}

static void
survey_make(const struct record *record, const struct version *before,
    struct survey *survey)
{
    uint64_t last = 0;

    memset(survey, 0, sizeof(*survey));
    for (uint32_t place = record->first; place < record->stored; place++) {
        const char *ticket = record_ticket(record, place);
        unsigned flags = (unsigned char)ticket[0];
        uint64_t arrival = read_whole(ticket + 8);

        if (arrival <= last)
            survey->out_of_order = true;
        last = arrival;
        if ((flags & TICKET_LIVING) == 0)
            continue;
        survey->live++;
        if ((flags & TICKET_GRANTED) != 0)
            survey_granted(survey, before, ticket, arrival);
        else
            survey_waits(survey, before, ticket, arrival);
    }
    if (record->stored > 0 && last >= record->arrival)
        survey->out_of_order = true;
}

/* What is wrong with a record in itself; NULL: nothing. */
static const char *
record_wrong(const struct record *record, const struct survey *survey)
{
    if (survey->out_of_order)
        return "arrivals do not grow with the places";
    if (survey->live != record->live)
        return "the count of the living is wrong";
    if (survey->granted != record->granted)
        return "the count of the granted is wrong";
    if (survey->granted > 1)
        return "two are granted an exclusive lock";
    if (survey->granted == 0 && survey->waits != 0)
        return "nobody is granted, and somebody waits";
    return NULL;
}

static void
record_judge(struct check *check, uint32_t lock, const struct record *record,
    struct survey *survey)
{
    const struct version *before = &check->subjects[lock].version;
    const char *wrong = record_wrong(record, survey);
    uint64_t since_us = lease_before(check, before->written_us);

    survey->version.damaged = wrong != NULL;
    if (wrong != NULL && !before->damaged)
        broken_by(check, PROMISE_ORDER, DAMAGES, 0,
            "lock-%" PRIu32 ": %s (live %" PRIu32 " of %" PRIu32
            ", granted %" PRIu32 " of %" PRIu32 ")",
            lock, wrong, survey->live, record->live, survey->granted,
            record->granted);
    if (!before->known)
        return;
    if (survey->passed != 0)
        check_broken(check, PROMISE_ORDER, since_us,
            "lock-%" PRIu32 ": ticket %" PRIu64 " was granted before %" PRIu64,
            lock, survey->passed, survey->firm);
    /* A lost suffix, or a master that is none any more, has an older head. */
    if (record->fence < before->fence)
        broken_by(check, PROMISE_FENCE, DAMAGES, since_us,
            "lock-%" PRIu32 ": the last fence fell from %" PRIu64
            " to %" PRIu64,
            lock, before->fence, record->fence);
    else if (survey->newest != 0 && survey->newest <= before->fence)
        broken_by(check, PROMISE_FENCE, DAMAGES, since_us,
            "lock-%" PRIu32 ": fence %" PRIu64 " is granted after %" PRIu64,
            lock, survey->newest, before->fence);
    else if (survey->newest > record->fence)
        broken_by(check, PROMISE_FENCE, DAMAGES, since_us,
            "lock-%" PRIu32 ": fence %" PRIu64
            " is granted, and the head has %" PRIu64,
            lock, survey->newest, record->fence);
}

/* The number of a lock from its key, PREFIX:{NAME}; false: not one. */
static bool
lock_of_key(const struct check *check, struct text key, uint32_t *lock)
{
    const char *at = memchr(key.at, ':', key.len);

    if (at == NULL)
        return false;
    size_t left = key.len - (size_t)(at - key.at);
    return left > 3 && at[1] == '{' && at[left - 1] == '}' &&
           plan_lock_of(at + 2, left - 3, check->locks, lock);
}

void
check_record(struct check *check, const char *key, size_t key_len,
    const char *value, size_t value_len)
{
    struct record record;
    struct survey survey;
    uint32_t lock;

    /* A key that is gone may have moved: what comes next is compared. */
    if (value == NULL || !lock_of_key(check, text_make(key, key_len), &lock))
        return;
    struct version *version = &check->subjects[lock].version;
    if (!record_read(&record, value, value_len)) {
        if (!version->damaged)
            broken_by(check, PROMISE_ORDER, DAMAGES, 0,
                "lock-%" PRIu32 ": a record of %zu bytes makes no sense", lock,
                value_len);
        version->damaged = true;
        return;
    }
    survey_make(&record, version, &survey);
    record_judge(check, lock, &record, &survey);
    survey.version.known = true;
    survey.version.fence = record.fence;
    survey.version.written_us = check->world->now_us;
    *version = survey.version;
}

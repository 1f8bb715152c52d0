/*
 * Records: looked at whenever a Redis has written one, against what was kept of
 * the version before, of whichever server; in a quorum of the same one.
 */
#include "tests/sim/check_state.h"
#include "tests/sim/server.h"

#include "daemon/base/assert.h"
#include "daemon/base/text.h"
#include "daemon/store/wire/record.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum {
    TICKET_LIVING = 1,
    TICKET_GRANTED = 2,
    TICKET_CLAIMED = 4,
    TICKET_SUSPENDED = 8,
    TICKET_BROKEN = 16
};

enum {
    MODE_DETACHED = 2,
    MODE_PART = 32,
    INTENTS_VERSION = 3
};

struct record {
    const char *value; /* ref */
    uint32_t width;
    uint32_t stored;
    uint32_t first;
    uint32_t live;
    uint32_t granted;
    uint32_t used;
    uint32_t front;
    uint32_t limit;
    uint32_t intents; /* counts of holders: shared + 65536 * others */
    bool shared;
    uint64_t fence;
    uint64_t arrival;
    uint32_t delayed_ms;
    uint64_t delay_ms;
    uint64_t forget_ms;
    const char *id; /* ref: 40 characters */
};

static uint32_t
read_u16(const char *at)
{
    return (uint32_t)(unsigned char)at[0] | (uint32_t)(unsigned char)at[1] << 8;
}

static uint32_t
read_u32(const char *at)
{
    const unsigned char *b = (const unsigned char *)at;

    return (uint32_t)b[0] | (uint32_t)b[1] << 8 | (uint32_t)b[2] << 16 |
           (uint32_t)b[3] << 24;
}

uint64_t
check_clock_ms(const struct machine *machine)
{
    return machine_real_us(machine) / 1000;
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
    if (len < BYTES_HEAD + BYTES_TICKET ||
        value[AT_HEAD_VERSION] > INTENTS_VERSION)
        return false;
    record->value = value;
    record->shared = (value[AT_HEAD_FLAGS] & 1) != 0;
    record->width = read_u16(value + AT_HEAD_WIDTH);
    record->limit = read_u32(value + AT_HEAD_LIMIT);
    record->intents = 0;
    if (value[AT_HEAD_VERSION] == INTENTS_VERSION) {
        record->intents = record->limit;
        record->limit = 0;
    }
    record->fence = read_whole(value + AT_HEAD_FENCE);
    record->arrival = read_whole(value + AT_HEAD_ARRIVAL);
    record->stored = read_u32(value + AT_HEAD_STORED);
    record->first = read_u32(value + AT_HEAD_FIRST);
    record->live = read_u32(value + AT_HEAD_LIVE);
    record->granted = read_u32(value + AT_HEAD_GRANTED);
    record->used = read_u32(value + AT_HEAD_USED);
    record->front = read_u32(value + AT_HEAD_FRONT);
    record->delayed_ms = read_u32(value + AT_HEAD_DELAYED);
    record->delay_ms = read_whole(value + AT_HEAD_DELAY);
    record->forget_ms = read_whole(value + AT_HEAD_FORGET);
    record->id = value + AT_HEAD_ID;
    return record->width >= BYTES_TICKET && record->first <= record->stored &&
           record->fence != UINT64_MAX && record->arrival != UINT64_MAX &&
           len >= BYTES_HEAD + (size_t)record->stored * record->width;
}

static const char *
record_ticket(const struct record *record, uint32_t place)
{
    return record->value + BYTES_HEAD + (size_t)place * record->width;
}

/* Owners of clients are one letter, or none. */
static uint32_t
owner_word(const char *ticket)
{
    const char *words = ticket + BYTES_TICKET;

    if (read_u16(ticket + AT_TICKET_WORDS) == 0 || words[0] == 0)
        return 0;
    return (uint32_t)(unsigned char)words[1] - 'a' + 1;
}

static void
stand_read(struct check *check, const char *ticket, struct stand *stand)
{
    unsigned flags = (unsigned char)ticket[AT_TICKET_FLAGS];

    *stand = (struct stand){
        .arrival = read_whole(ticket + AT_TICKET_ARRIVAL),
        .fence = read_whole(ticket + AT_TICKET_FENCE),
        .ends_ms = read_whole(ticket + AT_TICKET_ENDS),
        .since_us = read_whole(ticket + AT_TICKET_SINCE),
        .generation =
            read_u32(ticket + AT_TICKET_IDENTITY + AT_IDENTITY_GENERATION),
        .permits = read_u32(ticket + AT_TICKET_PERMITS),
        .owner = owner_number(check,
            (const uint8_t *)ticket + AT_TICKET_IDENTITY + AT_IDENTITY_SESSION,
            owner_word(ticket)),
        .mode =
            (enum mode)(ticket[AT_TICKET_MODE] & ~(MODE_DETACHED | MODE_PART)),
        .detached = (ticket[AT_TICKET_MODE] & MODE_DETACHED) != 0,
        .granted = (flags & TICKET_GRANTED) != 0,
        .claimed = (flags & TICKET_CLAIMED) != 0,
        .suspended = (flags & TICKET_SUSPENDED) != 0,
        .broken = (flags & TICKET_BROKEN) != 0,
    };
    memcpy(stand->request, ticket + AT_TICKET_IDENTITY + AT_IDENTITY_REQUEST,
        sizeof(stand->request));
    memcpy(stand->broker, ticket + AT_TICKET_BROKER, sizeof(stand->broker));
}

/* A fault in the places of the tickets; NULL: none. */
static const char *
version_read(
    struct check *check, const struct record *record, struct version *version)
{
    const char *wrong = NULL;
    uint64_t last = 0;

    version->live = 0;
    for (uint32_t place = record->first; place < record->stored; place++) {
        const char *ticket = record_ticket(record, place);
        struct stand stand;
        if (read_whole(ticket + AT_TICKET_ARRIVAL) <= last)
            wrong = "arrivals do not grow with the places";
        last = read_whole(ticket + AT_TICKET_ARRIVAL);
        if (((unsigned char)ticket[AT_TICKET_FLAGS] & TICKET_LIVING) == 0)
            continue;
        require(version->live < STAND_KEPT);
        stand_read(check, ticket, &stand);
        if (!stand.granted && place < record->front)
            wrong = "somebody waits before the front";
        version->stands[version->live++] = stand;
        version->granted += stand.granted;
        version->used += stand.granted ? stand.permits : 0;
    }
    if (record->stored > 0 && last >= record->arrival)
        wrong = "arrivals do not grow with the places";
    return wrong;
}

/* --- a version in itself -------------------------------------------------- */

/* The hold that an upgrade is of, or that an upgrade is of this one. */
static bool
is_pair(const struct stand *a, const struct stand *b)
{
    return a->owner == b->owner && !a->detached && !b->detached &&
           (a->mode == MODE_UPGRADE) != (b->mode == MODE_UPGRADE);
}

/* The hold below an upgrade; NULL: it has ended. */
static const struct stand *
upgrade_base(const struct version *version, const struct stand *upgrade)
{
    for (uint32_t i = 0; i < version->live; i++)
        if (version->stands[i].granted && is_pair(&version->stands[i], upgrade))
            return &version->stands[i];
    return NULL;
}

/* Whether the ticket goes with all others that are granted. */
static bool
granted_join(const struct version *version, const struct stand *stand)
{
    for (uint32_t i = 0; i < version->live; i++) {
        const struct stand *other = &version->stands[i];
        if (other != stand && other->granted && !is_pair(stand, other) &&
            !modes_join(stand->mode, other->mode))
            return false;
    }
    return true;
}

/* Whether the head counts the holders of intentions. */
static bool
intents_counted(const struct record *record, const struct version *version)
{
    uint32_t intents = 0;

    for (uint32_t i = 0; i < version->live; i++) {
        const struct stand *stand = &version->stands[i];
        if (stand->granted && stand->mode == MODE_INTENT)
            intents += 65536;
        else if (stand->granted && stand->mode == MODE_INTENT_SHARED)
            intents++;
    }
    return record->intents == intents;
}

/* Whether those that are granted may be so together. */
static bool
grants_fit(
    const struct record *record, const struct version *version, uint32_t most)
{
    if (record->limit > 0)
        return version->used <= most;
    for (uint32_t i = 0; i < version->live; i++) {
        const struct stand *stand = &version->stands[i];
        if (!stand->granted)
            continue;
        if (!granted_join(version, stand) ||
            (stand->mode == MODE_SHARED && !record->shared) ||
            (stand->mode == MODE_EXCLUSIVE && record->shared))
            return false;
    }
    return true;
}

static bool
joins(const struct record *record, const struct version *version,
    const struct stand *stand)
{
    if (record->limit > 0)
        return version->used + stand->permits <= record->limit;
    /* An upgrade without the hold below it keeps the next such hold waiting. */
    if (stand->mode != MODE_UPGRADE && upgrade_base(version, stand) != NULL)
        return false;
    return granted_join(version, stand);
}

/* The waiting upgrade that keeps all others out, of a holder; NULL: none. */
static const struct stand *
upgrade_waiting(const struct version *version)
{
    for (uint32_t i = 0; i < version->live; i++) {
        const struct stand *stand = &version->stands[i];
        if (stand->mode == MODE_UPGRADE && !stand->granted &&
            !stand->suspended && upgrade_base(version, stand) != NULL)
            return stand;
    }
    return NULL;
}

static bool
barred(const struct record *record, uint64_t now_ms)
{
    return now_ms < record->delay_ms && record->delayed_ms > 0;
}

/* Whether the first who waits could be granted it, and is not. To a broker that
 * doubts the clock (`doubts`) nobody is over who waits. */
static bool
grant_missed(const struct record *record, const struct version *version,
    uint64_t now_ms, bool doubts)
{
    if (version->pending || barred(record, now_ms))
        return false;
    const struct stand *upgrade = upgrade_waiting(version);
    if (upgrade != NULL && (upgrade->ends_ms > now_ms || doubts))
        return upgrade->ends_ms > now_ms && version->granted == 1;
    for (uint32_t i = 0; i < version->live; i++) {
        const struct stand *stand = &version->stands[i];
        if (stand->granted || stand->suspended)
            continue;
        bool fits = joins(record, version, stand);
        if (stand->ends_ms > now_ms || (doubts && !fits))
            return fits;
    }
    return false;
}

/*
 * Whether nobody has gone along the queue since the version before: only
 * holders have changed, by a renewal or a BREAK. A ticket that can be granted
 * since a waiter before it died is granted by the next request.
 */
static bool
queue_untouched(const struct version *before, const struct version *version)
{
    if (!before->known || before->live != version->live ||
        before->arrival != version->arrival || before->limit != version->limit)
        return false;
    for (uint32_t i = 0; i < version->live; i++) {
        const struct stand *was = &before->stands[i];
        const struct stand *is = &version->stands[i];
        if (is->arrival != was->arrival || is->granted != was->granted ||
            (!is->granted && (is->ends_ms != was->ends_ms ||
                                 is->suspended != was->suspended ||
                                 is->generation != was->generation)))
            return false;
    }
    return true;
}

/* A fault in a record itself; NULL: none. Of one that `stays` as it was, and of
 * which time has passed, nobody need have been granted it. */
static const char *
record_wrong(const struct record *record, const struct version *version,
    uint32_t most, bool stays, bool doubts)
{
    if (version->live != record->live)
        return "the count of the living is wrong";
    if (version->granted != record->granted)
        return "the count of the granted is wrong";
    if (version->used != record->used && record->live > 0)
        return "the count of the permits is wrong";
    if (!grants_fit(record, version, most))
        return "those are granted it who do not fit together";
    if (!intents_counted(record, version))
        return "the counts of intentions are wrong";
    if (!stays &&
        grant_missed(record, version, check_clock_ms(version->machine), doubts))
        return "somebody waits who could be granted it";
    return NULL;
}

/* --- against the version before ------------------------------------------- */

/* The ticket of that arrival in the version before; NULL: it is new. `from`
 * goes along with arrivals that grow. */
static const struct stand *
stand_before(const struct version *before, uint64_t arrival, uint32_t *from)
{
    while (*from < before->live && before->stands[*from].arrival < arrival)
        ++*from;
    if (*from < before->live && before->stands[*from].arrival == arrival)
        return &before->stands[*from];
    return NULL;
}

/*
 * Whether a waiter may have been passed in this call. It was suspended when the
 * call began, or a grant to its broker lapsed in it. Only a later operation of
 * its broker in this call has put it back.
 */
static bool
may_be_passed(const struct version *before, const struct stand *was,
    const struct stand *stand)
{
    const char *broker = was != NULL ? was->broker : stand->broker;

    if (was != NULL && was->suspended)
        return true;
    for (uint32_t i = 0; i < before->live; i++)
        if (before->stands[i].granted && !before->stands[i].claimed &&
            memcmp(before->stands[i].broker, broker, 8) == 0)
            return true;
    return false;
}

/* A fault in the fate of a ticket; NULL: none. A hold that a LOCK has taken
 * over is granted to it, with a fence above the `last` one; in a quorum it is
 * `raised` to what the others have. With another id a grant that was not
 * claimed is none any more. */
static const char *
stand_wrong(const struct stand *was, const struct stand *is, uint64_t last,
    bool adopted, bool raised)
{
    if (is->owner != was->owner)
        return "its owner is another one";
    if (is->generation < was->generation)
        return "its generation goes back";
    if (is->generation == was->generation &&
        memcmp(is->broker, was->broker, sizeof(is->broker)) != 0)
        return "another broker has it, of the same generation";
    if (was->granted && !is->granted && !(adopted && !was->claimed))
        return "it was granted, and waits";
    if (was->granted && is->granted && is->fence != was->fence && !raised &&
        is->fence <= last)
        return "it has another fence";
    if (is->permits > was->permits ||
        (is->permits < was->permits && !is->granted))
        return "it has other permits";
    if (is->mode != was->mode && is->mode != MODE_SHARED)
        return "it has another mode";
    if (was->detached && !is->detached)
        return "it was detached, and is not";
    if (was->broken && !is->broken)
        return "it was broken, and is not";
    if (was->broken && is->ends_ms > was->ends_ms && !adopted)
        return "it was broken, and is renewed";
    return NULL;
}

/* A hold is broken that no operator has had broken: by an audit, as too old. Of
 * a quorum another node may have known it for longer. */
static void
break_judge(struct check *check, uint32_t lock, const struct version *version,
    const struct stand *is)
{
    const struct plan *plan = &check->world->plan;
    uint64_t age_ms = check_clock_ms(version->machine) - is->since_us / 1000;

    if (subject_of(check, lock)->ordered)
        return;
    if (plan->break_ms == 0 || check->world->calm ||
        (plan->quorum == 0 && age_ms < plan->break_ms))
        broken_by(check, PROMISE_AUDIT, DAMAGES, 0,
            "lock-%" PRIu32 ": the hold of fence %" PRIu64
            " is broken after %" PRIu64 " ms",
            lock, is->fence, age_ms);
}

/* Whether an upgrade has kept all others out since the version before. */
static bool
kept_out(const struct version *before, const struct version *version)
{
    const struct stand *upgrade = upgrade_waiting(version);
    uint32_t from = 0;

    if (upgrade == NULL || upgrade->ends_ms <= check_clock_ms(version->machine))
        return false;
    const struct stand *was = stand_before(before, upgrade->arrival, &from);
    return was != NULL && upgrade_base(before, was) != NULL &&
           !may_be_passed(before, was, upgrade);
}

/* A ticket that is newly granted, while the one of arrival `firm` could be
 * granted before it (0: none). */
static void
turn_judge(struct check *check, uint32_t lock, const struct version *before,
    const struct version *version, const struct stand *is, uint64_t firm)
{
    uint64_t since_us = lease_before(check, before->written_us);

    if (check->world->plan.quorum == 0)
        delay_judge(check, lock, is->fence, since_us);
    if (version->limit > 0 && is->fence > before->fence &&
        version->used >
            limit_since(check, lock, version->limit, before->written_us))
        broken_by(check, PROMISE_ORDER, DAMAGES, since_us,
            "lock-%" PRIu32 ": ticket %" PRIu64 " was granted beyond the limit",
            lock, is->arrival);
    if (is->mode == MODE_UPGRADE && upgrade_base(version, is) != NULL)
        return; /* it goes before all waiters */
    if (kept_out(before, version))
        check_broken(check, PROMISE_ORDER, since_us,
            "lock-%" PRIu32 ": ticket %" PRIu64
            " was granted while an upgrade waits",
            lock, is->arrival);
    if (firm != 0)
        check_broken(check, PROMISE_ORDER, since_us,
            "lock-%" PRIu32 ": ticket %" PRIu64 " was granted before %" PRIu64,
            lock, is->arrival, firm);
}

/* Each ticket on its own, and whether it was granted in its turn. */
static void
stands_judge(struct check *check, uint32_t lock, const struct version *before,
    const struct version *version)
{
    uint64_t since_us = lease_before(check, before->written_us);
    uint64_t firm = 0;   /* arrival of the first that could be granted */
    uint64_t newest = 0; /* the largest fence that is newly granted */
    bool quorum = check->world->plan.quorum != 0;
    bool adopted = memcmp(before->id, version->id, sizeof(version->id)) != 0;
    uint32_t from = 0;

    for (uint32_t i = 0; i < version->live; i++) {
        const struct stand *is = &version->stands[i];
        const struct stand *was = stand_before(before, is->arrival, &from);
        const char *wrong =
            was == NULL ? NULL
                        : stand_wrong(was, is, before->fence, adopted, quorum);
        if (wrong != NULL)
            broken_by(check, PROMISE_ORDER, DAMAGES, since_us,
                "lock-%" PRIu32 ": ticket %" PRIu64 ": %s", lock, is->arrival,
                wrong);
        if (is->broken && (was == NULL || !was->broken)) {
            break_judge(check, lock, version, is);
            belief_doom(check, lock, is->fence, FAULT_order_break);
        }
        if (was != NULL && !is->granted && version->limit > 0 &&
            version->limit < before->limit && is->permits > version->limit)
            broken_by(check, PROMISE_ORDER, DAMAGES, since_us,
                "lock-%" PRIu32 ": ticket %" PRIu64
                " waits for more permits than the new limit",
                lock, is->arrival);
        if (!is->granted) {
            if (firm == 0 && !is->suspended && !may_be_passed(before, was, is))
                firm = is->arrival;
            continue;
        }
        if (was != NULL && was->granted)
            continue;
        if (is->fence > newest)
            newest = is->fence;
        turn_judge(check, lock, before, version, is, firm);
    }
    /* A lost suffix, or a master that is none any more, has an older head. */
    if (version->fence < before->fence) {
        fence_fell(check, lock, before->fence);
        broken_by(check, PROMISE_FENCE, DAMAGES, since_us,
            "lock-%" PRIu32 ": the last fence fell from %" PRIu64
            " to %" PRIu64,
            lock, before->fence, version->fence);
    } else if (newest != 0 && newest <= before->fence)
        broken_by(check, PROMISE_FENCE, DAMAGES, since_us,
            "lock-%" PRIu32 ": fence %" PRIu64 " is granted after %" PRIu64,
            lock, newest, before->fence);
    else if (newest > version->fence)
        broken_by(check, PROMISE_FENCE, DAMAGES, since_us,
            "lock-%" PRIu32 ": fence %" PRIu64
            " is granted, and the head has %" PRIu64,
            lock, newest, version->fence);
}

/* --- limits --------------------------------------------------------------- */

static void
limit_note(struct check *check, struct subject *subject, uint32_t limit)
{
    uint32_t oldest = 0;

    for (uint32_t i = 0; i < LIMIT_KEPT; i++) {
        if (subject->limits[i].seen_us > 0 &&
            subject->limits[i].limit == limit) {
            oldest = i;
            break;
        }
        if (subject->limits[i].seen_us < subject->limits[oldest].seen_us)
            oldest = i;
    }
    subject->limits[oldest].limit = limit;
    subject->limits[oldest].seen_us = check->world->now_us;
}

bool
check_conflicts(
    const struct check *check, uint32_t lock, uint32_t limit, uint64_t since_us)
{
    const struct subject *subject = subject_of(check, lock);

    if (subject->version.damaged)
        return true; /* its counts may have somebody who is not there */
    if (subject->version.live > 0 && subject->version.limit != limit)
        return true;
    for (uint32_t i = 0; i < LIMIT_KEPT; i++)
        if (subject->limits[i].limit != limit &&
            subject->limits[i].seen_us >= since_us)
            return true;
    return false;
}

/* --- clocks that differ --------------------------------------------------- */

/* The record came from another host: what its lock-delay lasts longer by that
 * one's clock follows from whatever brought it here. */
static void
astray_note(
    struct check *check, struct subject *subject, const struct machine *machine)
{
    const struct version *before = &subject->version;
    uint64_t now_ms = check_clock_ms(machine);

    if (!before->known || before->machine == machine ||
        before->delay_ms <= now_ms)
        return;
    subject->astray_since_us = 0;
    for (unsigned i = 0; i < FAULT_COUNT; i++)
        if ((LOSSES >> i & 1) != 0 && check->excused_us[i] != WORLD_NEVER &&
            check->excused_us[i] > subject->astray_since_us)
            subject->astray_since_us = check->excused_us[i];
    subject->astray_until_us =
        check->world->now_us + (before->delay_ms - now_ms) * 1000;
}

uint64_t
check_since(const struct check *check, uint32_t lock, uint64_t since_us)
{
    const struct subject *subject = subject_of(check, lock);

    if (check->world->now_us < subject->astray_until_us &&
        subject->astray_since_us > 0 && subject->astray_since_us < since_us)
        return subject->astray_since_us;
    return since_us;
}

/* --- a record ------------------------------------------------------------- */

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

static void
record_judge(struct check *check, uint32_t lock, const struct record *record,
    const struct version *before, struct version *version, const char *wrong)
{
    bool moved = before->machine != version->machine;

    /* RESIZEs under way may have been carried out within one call. After a
     * smaller limit its holders keep their permits. */
    uint32_t most = limit_since(check, lock,
        limit_most(check, lock, record->limit), before->written_us);
    if (check->world->plan.resizes > 0 && version->used <= before->used)
        most = UINT32_MAX;

    if (wrong == NULL)
        wrong = record_wrong(record, version, most,
            moved || queue_untouched(before, version),
            check->world->plan.settle_ms > 0);
    version->damaged = wrong != NULL;
    if (wrong != NULL && !before->damaged)
        broken_by(check, PROMISE_ORDER, DAMAGES, 0,
            "lock-%" PRIu32 ": %s (live %" PRIu32 " of %" PRIu32
            ", granted %" PRIu32 " of %" PRIu32 ", permits %" PRIu32
            " of %" PRIu32 ", limit %" PRIu32 ")",
            lock, wrong, version->live, record->live, version->granted,
            record->granted, version->used, record->used, record->limit);
    if (wrong != NULL)
        for (uint32_t i = 0; i < version->live && check->world->trace; i++)
            world_note(check->world, "judge",
                "  ticket %" PRIu64 " fence %" PRIu64 " owner %" PRIu32
                " ends %" PRIu64 "%s%s%s",
                version->stands[i].arrival, version->stands[i].fence,
                version->stands[i].owner, version->stands[i].ends_ms,
                version->stands[i].granted ? " granted" : "",
                version->stands[i].mode == MODE_SHARED ? " shared" : "",
                version->stands[i].suspended ? " suspended" : "");
    if (before->known)
        stands_judge(check, lock, before, version);
}

/* A key that nobody has used for long is forgotten, at the time that its head
 * had; the record begins anew. */
static bool
version_forgotten(const struct version *version)
{
    if (!version->known)
        return false;
    uint64_t now_ms = check_clock_ms(version->machine);
    if (now_ms <= version->forget_ms)
        return false;
    for (uint32_t i = 0; i < version->live; i++)
        if (version->stands[i].ends_ms > now_ms)
            return false;
    return true;
}

/* The fields of a head. */
static void
version_begin(const struct check *check, const struct machine *machine,
    const char *id, const struct record *record, struct version *version)
{
    memset(version, 0, offsetof(struct version, stands));
    version->known = true;
    version->machine = machine;
    version->fence = record->fence;
    version->arrival = record->arrival;
    version->delay_ms = record->delay_ms;
    version->forget_ms = record->forget_ms;
    version->limit = record->limit;
    memcpy(version->id, record->id, sizeof(version->id));
    version->pending = memcmp(record->id, id, sizeof(version->id)) != 0;
    version->written_us = check->world->now_us;
}

struct version *
check_node(
    const struct check *check, uint32_t lock, const struct machine *machine)
{
    const struct subject *subject = subject_of(check, lock);

    for (uint32_t i = 0; subject->nodes != NULL; i++)
        if (server_machine(check->world, i) == machine)
            return &subject->nodes[i];
    return NULL;
}

/* The version before: of that node, where each has records of its own. */
static struct version *
version_before(
    struct check *check, uint32_t lock, const struct machine *machine)
{
    struct subject *subject = subject_of(check, lock);
    const struct plan *plan = &check->world->plan;

    if (plan->quorum == 0)
        return &subject->version;
    if (subject->nodes == NULL)
        subject->nodes = calloc(plan->masters, sizeof(*subject->nodes));
    require(subject->nodes != NULL);
    return check_node(check, lock, machine);
}

void
check_forgets(struct check *check, const struct machine *machine)
{
    check->forgot_us = check->world->now_us;
    for (uint32_t i = 0; i < check->locks; i++) {
        struct version *node = check_node(check, i, machine);
        if (node == NULL)
            continue;
        circle_count(check, node, -1);
        memset(node, 0, offsetof(struct version, stands));
    }
}

void
check_older(struct check *check, const char *key, size_t key_len)
{
    uint32_t lock;

    if (!lock_of_key(check, text_make(key, key_len), &lock))
        return;
    struct version *version = &subject_of(check, lock)->version;
    circle_count(check, version, -1);
    memset(version, 0, offsetof(struct version, stands));
}

static bool
version_has_leavings(const struct version *version)
{
    for (uint32_t i = 0; i < version->live; i++)
        if (version->stands[i].ends_ms <= check_clock_ms(version->machine))
            return true;
    return false;
}

bool
check_has_leavings(const struct check *check, uint32_t lock)
{
    const struct subject *subject = subject_of(check, lock);

    if (subject->nodes == NULL)
        return version_has_leavings(&subject->version);
    for (uint32_t i = 0; i < check->world->plan.masters; i++)
        if (version_has_leavings(&subject->nodes[i]))
            return true;
    return false;
}

void
check_record(struct check *check, const struct machine *machine, const char *id,
    const char *key, size_t key_len, const char *value, size_t value_len)
{
    struct record record;
    struct version version;
    uint32_t lock;

    /* A key that is gone may have moved: what comes next is compared. */
    if (value == NULL || !lock_of_key(check, text_make(key, key_len), &lock))
        return;
    struct subject *subject = subject_of(check, lock);
    struct version *before = version_before(check, lock, machine);
    bool stood = before->live > 0;
    if (!record_read(&record, value, value_len)) {
        if (!before->damaged)
            broken_by(check, PROMISE_ORDER, DAMAGES, 0,
                "lock-%" PRIu32 ": a record of %zu bytes makes no sense", lock,
                value_len);
        before->damaged = true;
        return;
    }
    if (version_forgotten(before)) {
        circle_count(check, before, -1);
        before->live = 0;
        before->granted = 0;
    }
    astray_note(check, subject, machine);
    version_begin(check, machine, id, &record, &version);
    if (version.pending && record.fence == 0) { /* it is not known yet */
        version.fence = before->fence;
        version.written_us = before->written_us;
    }
    const char *wrong = version_read(check, &record, &version);
    record_judge(check, lock, &record, before, &version, wrong);
    detached_judge(check, lock, before, &version);
    permits_judge(check, lock, &version);
    if (before->live > 0)
        limit_note(check, subject, before->limit);
    circle_count(check, before, -1);
    memcpy(before, &version,
        offsetof(struct version, stands) +
            version.live * sizeof(version.stands[0]));
    circle_count(check, before, 1);
    if (version.live > 0 || stood)
        limit_note(check, subject, version.limit);
    holders_note(subject, before);
    waits_note(check, subject, before);
    circle_look(check, lock);
}

void
check_breaks(struct check *check, const char *key, size_t key_len,
    const char *value, size_t value_len)
{
    struct record record;
    struct stand stand;
    uint32_t lock;

    if (value == NULL || !lock_of_key(check, text_make(key, key_len), &lock) ||
        !record_read(&record, value, value_len))
        return;
    for (uint32_t place = record.first; place < record.stored; place++) {
        stand_read(check, record_ticket(&record, place), &stand);
        if (stand.broken && !check_is_broken(check, lock, stand.fence))
            belief_doom(check, lock, stand.fence, FAULT_order_break);
    }
}

uint64_t
check_record_fence(const char *value, size_t value_len)
{
    struct record record;

    return record_read(&record, value, value_len) ? record.fence : 0;
}

uint32_t
check_record_granted(const char *value, size_t value_len)
{
    struct record record;

    return record_read(&record, value, value_len) ? record.granted : 0;
}

/*
 * The waits-for graph, by the records: an owner waits for all that stand before
 * it and do not fit beside it. An owner that is told of a deadlock must have
 * stood in a cycle of such waits at a moment of its own, as the youngest.
 *
 * A cycle has owners with several tickets, one of which waits, in each of its
 * locks; they are few, and nothing is looked for where there are none. With
 * hundreds of tickets in one record, most of them of brokers that cannot be
 * reached, that would take minutes: then no deadlock is judged.
 */
#include "tests/sim/check_state.h"

#include "daemon/base/assert.h"
#include "daemon/base/text.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define CROWD 128 /* tickets of a lock */

static uint32_t
owner_hash(const uint8_t session[16], uint32_t word)
{
    uint32_t hash;

    memcpy(&hash, session, sizeof(hash)); /* it is random */
    return (hash + word) % OWNER_HASHES;
}

static uint32_t
owner_find(const struct check *check, const uint8_t session[16], uint32_t word)
{
    uint32_t at = check->owner_table[owner_hash(session, word)];

    while (
        at != NONE && (check->owners[at].word != word ||
                          memcmp(check->owners[at].session, session, 16) != 0))
        at = check->owners[at].next;
    return at;
}

uint32_t
owner_number(struct check *check, const uint8_t session[16], uint32_t word)
{
    uint32_t number = owner_find(check, session, word);

    if (number != NONE)
        return number;
    if (check->owner_count == check->owner_capacity) {
        check->owner_capacity *= 2;
        check->owners = realloc(
            check->owners, check->owner_capacity * sizeof(*check->owners));
        require(check->owners != NULL);
    }
    number = check->owner_count++;
    struct standing *owner = &check->owners[number];
    uint32_t *head = &check->owner_table[owner_hash(session, word)];
    memset(owner, 0, sizeof(*owner));
    memcpy(owner->session, session, sizeof(owner->session));
    owner->word = word;
    owner->next = *head;
    *head = number;
    return number;
}

void
circle_count(struct check *check, const struct version *version, int change)
{
    for (uint32_t i = 0; i < version->live; i++) {
        const struct stand *stand = &version->stands[i];
        struct standing *owner = &check->owners[stand->owner];
        if (stand->detached)
            continue; /* its owner can end it, whatever it waits for */
        owner->tickets += (uint32_t)change;
        owner->waits += stand->granted ? 0 : (uint32_t)change;
    }
}

/* Whether it may be part of a cycle. */
static bool
owner_counts(const struct check *check, uint32_t owner)
{
    return check->owners[owner].tickets > 1 && check->owners[owner].waits > 0;
}

/* A wait: a place in the version of a lock. */
struct wait {
    uint32_t lock;
    uint32_t place;
};

static const struct stand *
stand_of(const struct check *check, struct wait wait)
{
    return &check->subjects[wait.lock].version.stands[wait.place];
}

/* How many hold it whose leases are not about to end. */
static uint32_t
holders_now(const struct check *check, const struct version *version)
{
    uint64_t now_ms = machine_real_us(version->machine) / 1000;
    uint32_t count = 0;

    for (uint32_t i = 0; i < version->live; i++)
        count += version->stands[i].granted &&
                 version->stands[i].ends_ms >
                     now_ms + check->world->plan.lease_ms / 4;
    return count;
}

/* A reader waits behind an upgradable wait, which waits for another hold. */
static bool
shares_with(const struct stand *own, const struct stand *before)
{
    return modes_join(own->mode, before->mode) &&
           (before->granted || before->mode != MODE_UPGRADABLE);
}

/* Whether a ticket shares with all behind it, up to that place. */
static bool
shares_with_all(const struct version *version, uint32_t at, uint32_t place)
{
    for (uint32_t i = at + 1; i <= place; i++)
        if (!shares_with(&version->stands[i], &version->stands[at]))
            return false;
    return true;
}

/*
 * Of the tickets before a wait, those up to here must go first, be it because
 * somebody between must who waits for them.
 */
static uint32_t
in_the_way(
    const struct check *check, const struct version *version, uint32_t place)
{
    uint32_t end = place;

    if (version->limit > 0)
        return holders_now(check, version) <= 1 ? place : 0;
    while (end > 0 && shares_with_all(version, end - 1, place))
        end--;
    return end;
}

/* Whether the ticket must go before a wait, of which those before `end` must.
 * Only holders go before an upgrade, and it goes before all other waits, also
 * once it is granted: it may stand behind them, without the hold below it. */
static bool
goes_before(const struct stand *own, const struct stand *ticket, bool before)
{
    if (own->mode == MODE_UPGRADE)
        return ticket->granted || before;
    return before || ticket->mode == MODE_UPGRADE;
}

/* The younger of two waits, as brokers have it. */
static bool
younger(const struct check *check, const struct stand *a, const struct stand *b)
{
    const struct standing *x = &check->owners[a->owner];
    const struct standing *y = &check->owners[b->owner];

    if (a->since_us != b->since_us)
        return a->since_us > b->since_us;
    return memcmp(x->session, y->session, sizeof(x->session)) > 0;
}

/*
 * Whether the owner of `goal` is reached from a wait, by waits that are no
 * younger than `goal` where `older` says so.
 */
static bool
circle_reaches(
    struct check *check, struct wait wait, const struct stand *goal, bool older)
{
    const struct version *version = &check->subjects[wait.lock].version;
    const struct stand *own = stand_of(check, wait);
    uint32_t end = in_the_way(check, version, wait.place);

    for (uint32_t i = 0; i < version->live; i++) {
        const struct stand *other = &version->stands[i];
        struct standing *owner = &check->owners[other->owner];
        if (other->owner == own->owner || other->detached ||
            !goes_before(own, other, i < end) ||
            (version->limit > 0 && !other->granted))
            continue;
        if (other->owner == goal->owner)
            return true;
        if (!owner_counts(check, other->owner) ||
            owner->visited == check->search)
            continue;
        owner->visited = check->search;
        for (uint32_t lock = 0; lock < check->locks; lock++) {
            const struct version *at = &check->subjects[lock].version;
            for (uint32_t place = 0; place < at->live; place++) {
                const struct stand *next = &at->stands[place];
                if (next->owner != other->owner || next->granted ||
                    (older && younger(check, next, goal)))
                    continue;
                if (circle_reaches(
                        check, (struct wait){lock, place}, goal, older))
                    return true;
            }
        }
    }
    return false;
}

static bool
circle_of(struct check *check, struct wait wait, bool older)
{
    check->search++;
    return circle_reaches(check, wait, stand_of(check, wait), older);
}

/* The wait of its owner for that lock is in a cycle now. */
static void
circle_mark(struct check *check, struct wait wait)
{
    struct standing *owner = &check->owners[stand_of(check, wait)->owner];

    owner->marks[wait.lock].circle_us = check->world->now_us;
    if (circle_of(check, wait, true))
        owner->marks[wait.lock].youngest_us = check->world->now_us;
}

/* Each wait of each cycle. */
static void
circle_mark_all(struct check *check)
{
    for (uint32_t lock = 0; lock < check->locks; lock++) {
        const struct version *version = &check->subjects[lock].version;
        for (uint32_t place = 0; place < version->live; place++) {
            const struct stand *stand = &version->stands[place];
            struct wait wait = {lock, place};
            if (!stand->granted && circle_of(check, wait, false))
                circle_mark(check, wait);
        }
    }
}

void
circle_look(struct check *check, uint32_t lock)
{
    const struct version *version = &check->subjects[lock].version;

    if (version->live == version->granted)
        return;
    if (version->live > CROWD) {
        check->crowded_us = check->world->now_us;
        return;
    }
    for (uint32_t place = 0; place < version->live; place++) {
        const struct stand *stand = &version->stands[place];
        if (stand->granted || !owner_counts(check, stand->owner) ||
            !circle_of(check, (struct wait){lock, place}, false))
            continue;
        circle_mark_all(check);
        return;
    }
}

void
check_deadlock(struct check *check, const char *session, uint32_t owner,
    uint32_t lock, uint64_t since_us, const char *who)
{
    uint8_t id[16];

    check_deed(check, DEED_DEADLOCK);
    require(text_from_hex(text_from(session), id, sizeof(id)));
    if (check->world->plan.quorum != 0 || check->crowded_us >= since_us)
        return;
    const struct standing *standing =
        &check->owners[owner_find(check, id, owner)];
    uint64_t circle_us = standing->marks[lock].circle_us;
    uint64_t youngest_us = standing->marks[lock].youngest_us;
    if (circle_us < since_us)
        check_broken(check, PROMISE_DEADLOCK, lease_before(check, since_us),
            "lock-%" PRIu32 ": %s was in no circle while it waited", lock, who);
    else if (youngest_us < since_us)
        check_broken(check, PROMISE_DEADLOCK, lease_before(check, since_us),
            "lock-%" PRIu32 ": %s was not the youngest of any circle", lock,
            who);
}

uint64_t
check_arrival(const struct check *check, uint32_t lock)
{
    return subject_of(check, lock)->version.arrival;
}

/* The ticket of an earlier LOCK does not count. The record has it until its
 * release arrives, or until its lease is over for others. */
static bool
stand_holds_since(
    const struct subject *subject, const struct stand *stand, uint64_t arrival)
{
    return stand->granted && stand->arrival >= arrival &&
           stand->ends_ms > check_clock_ms(subject->version.machine);
}

void
check_called_off(struct check *check, const char *session, uint32_t owner,
    uint32_t lock, uint64_t arrival, uint64_t since_us, const char *who)
{
    const struct subject *subject = subject_of(check, lock);
    uint32_t live = subject->version.live;
    uint8_t id[16];

    require(text_from_hex(text_from(session), id, sizeof(id)));
    uint64_t from_us = lease_before(check, since_us);
    /* Of a record that was lost its last version is known. */
    if (check->world->plan.quorum != 0 ||
        check->excused_us[FAULT_wiped] > from_us)
        return;
    uint32_t number = owner_find(check, id, owner);
    for (uint32_t i = 0; number != NONE && i < live; i++) {
        const struct stand *stand = &subject->version.stands[i];
        if (stand->owner == number &&
            stand_holds_since(subject, stand, arrival))
            check_broken(check, PROMISE_ANSWERED, from_us,
                "lock-%" PRIu32 ": %s was told CANCELLED, and holds it", lock,
                who);
    }
}

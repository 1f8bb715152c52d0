/*
 * The messages to watchers, against the holders of a lock, version by version.
 *
 * A broker of a quorum reads its nodes one after the other, and may see a state
 * that never was at one moment. There it is judged only that some node had
 * granted that fence, after the one that was told before. At last, when nothing
 * changes any more, it must be the truth of a majority.
 */
#include "tests/sim/check_state.h"
#include "tests/sim/server.h"

#include "daemon/base/assert.h"
#include "daemon/store/store.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static uint32_t
quorum_nodes(const struct check *check, const struct subject *subject)
{
    return subject->nodes == NULL ? 0 : check->world->plan.masters;
}

static void *
room_for(void *array, uint32_t count, uint32_t *capacity, size_t bytes)
{
    if (count < *capacity)
        return array;
    *capacity = 2 * *capacity + 64;
    array = realloc(array, *capacity * bytes);
    require(array != NULL);
    return array;
}

/* Whether the same hold it as in the latest entry; if so, their new ends are
 * noted. */
static bool
holders_same(struct subject *subject, const struct version *version)
{
    uint32_t at = 0;

    if (subject->history_count == 0)
        return false;
    const struct holders *last = &subject->history[subject->history_count - 1];
    if (last->count != version->granted)
        return false;
    struct hold_end *ends = subject->hold_ends + last->first;
    for (uint32_t i = 0; i < version->live; i++)
        if (version->stands[i].granted &&
            ends[at++].fence != version->stands[i].fence)
            return false;
    at = 0;
    for (uint32_t i = 0; i < version->live; i++)
        if (version->stands[i].granted)
            ends[at++].ends_ms = version->stands[i].ends_ms;
    return true;
}

void
holders_note(struct subject *subject, const struct version *version)
{
    if (holders_same(subject, version))
        return;
    subject->history = room_for(subject->history, subject->history_count,
        &subject->history_capacity, sizeof(*subject->history));
    subject->history[subject->history_count++] =
        (struct holders){subject->hold_end_count, version->granted};
    for (uint32_t i = 0; i < version->live; i++) {
        const struct stand *stand = &version->stands[i];
        if (!stand->granted)
            continue;
        subject->hold_ends =
            room_for(subject->hold_ends, subject->hold_end_count,
                &subject->hold_end_capacity, sizeof(*subject->hold_ends));
        subject->hold_ends[subject->hold_end_count++] =
            (struct hold_end){stand->fence, stand->ends_ms};
    }
}

/* Whether that was so at some time: leases that are over count as none. */
static bool
holders_match(const struct subject *subject, const struct holders *entry,
    uint64_t fence, uint32_t holders, uint64_t now_ms)
{
    const struct hold_end *ends = subject->hold_ends + entry->first;
    uint32_t newer = 0;
    uint32_t over = 0;
    bool there = false;

    for (uint32_t i = 0; i < entry->count; i++) {
        bool ended = ends[i].ends_ms <= now_ms;
        if (ends[i].fence > fence && !ended)
            return false;
        newer += ends[i].fence > fence;
        over += ended;
        there = there || ends[i].fence == fence;
    }
    if (holders == 0)
        return over == entry->count;
    return there && holders <= entry->count - newer &&
           holders + over >= entry->count;
}

/* Some of the tickets that are granted, and whose leases are not over. */
struct holding {
    uint32_t count;
    uint64_t newest; /* fence */
};

static bool
stand_holds(const struct version *version, const struct stand *stand)
{
    return stand->granted && stand->ends_ms > check_clock_ms(version->machine);
}

static struct holding
holding_now(const struct version *version)
{
    struct holding holding = {0};

    for (uint32_t i = 0; i < version->live; i++) {
        const struct stand *stand = &version->stands[i];
        if (!stand_holds(version, stand))
            continue;
        holding.count++;
        if (stand->fence > holding.newest)
            holding.newest = stand->fence;
    }
    return holding;
}

static bool
same_ticket(const struct stand *a, const struct stand *b)
{
    return a->owner == b->owner && a->generation == b->generation &&
           a->mode == b->mode &&
           memcmp(a->request, b->request, sizeof(a->request)) == 0 &&
           memcmp(a->broker, b->broker, sizeof(a->broker)) == 0;
}

/* The fence that a majority has for that ticket of one node; 0: none. */
static uint64_t
majority_fence(const struct check *check, const struct subject *subject,
    const struct stand *ticket)
{
    uint32_t nodes = quorum_nodes(check, subject);
    uint64_t fences[STORE_QUORUM_MAX];
    uint32_t has = 0;

    for (uint32_t i = 0; i < nodes; i++) {
        const struct version *node = &subject->nodes[i];
        for (uint32_t j = 0; j < node->live; j++) {
            const struct stand *stand = &node->stands[j];
            if (!stand_holds(node, stand) || !same_ticket(stand, ticket))
                continue;
            uint32_t at = has++;
            for (; at > 0 && fences[at - 1] < stand->fence; at--)
                fences[at] = fences[at - 1];
            fences[at] = stand->fence;
            break;
        }
    }
    for (uint32_t i = 0; i + nodes / 2 < has; i++)
        if (fences[i] == fences[i + nodes / 2])
            return fences[i];
    return 0;
}

/* A node before that one has the ticket, too. */
static bool
stands_before(
    const struct subject *subject, uint32_t number, const struct stand *ticket)
{
    for (uint32_t i = 0; i < number; i++) {
        const struct version *node = &subject->nodes[i];
        for (uint32_t j = 0; j < node->live; j++)
            if (stand_holds(node, &node->stands[j]) &&
                same_ticket(&node->stands[j], ticket))
                return true;
    }
    return false;
}

/* Each holder is counted at the first node that has it. */
static struct holding
quorum_holding_now(const struct check *check, const struct subject *subject)
{
    struct holding holding = {0};

    for (uint32_t i = 0; i < quorum_nodes(check, subject); i++) {
        const struct version *node = &subject->nodes[i];
        for (uint32_t j = 0; j < node->live; j++) {
            const struct stand *stand = &node->stands[j];
            if (!stand_holds(node, stand) || stands_before(subject, i, stand))
                continue;
            uint64_t fence = majority_fence(check, subject, stand);
            holding.count += fence > 0;
            if (fence > holding.newest)
                holding.newest = fence;
        }
    }
    return holding;
}

/* Of a node of a quorum: whether it had granted that. */
static bool
holders_have(const struct subject *subject, const struct holders *entry,
    uint64_t fence, uint32_t holders)
{
    const struct hold_end *ends = subject->hold_ends + entry->first;
    bool there = holders == 0;

    for (uint32_t i = 0; i < entry->count; i++)
        there = there || ends[i].fence == fence;
    return there;
}

uint64_t
check_watch_from(const struct check *check, uint32_t lock)
{
    /* The latest entry is one node's only. */
    if (check->world->plan.quorum != 0)
        return 0;
    return subject_of(check, lock)->history_count;
}

void
check_watched(struct check *check, uint32_t lock, uint64_t fence,
    uint32_t holders, uint64_t *seen, const char *who)
{
    const struct subject *subject = subject_of(check, lock);
    const struct machine *machine = subject->version.machine;
    uint64_t now_ms = machine == NULL ? 0 : check_clock_ms(machine);
    uint32_t from = *seen > 0 ? (uint32_t)*seen - 1 : 0;
    bool quorum = check->world->plan.quorum != 0;

    check_deed(check, DEED_WATCH);
    if (subject->history_count == 0 && holders == 0)
        return; /* before anybody had it */
    for (uint32_t i = from; i < subject->history_count; i++) {
        const struct holders *entry = &subject->history[i];
        if (quorum ? !holders_have(subject, entry, fence, holders)
                   : !holders_match(subject, entry, fence, holders, now_ms))
            continue;
        *seen = i + 1;
        return;
    }
    check_broken(check, PROMISE_WATCH, lease_before(check, 0),
        "lock-%" PRIu32 ": %s is told of %" PRIu32 " holders, the newest with "
        "fence %" PRIu64 ", and that was so never, or before what it was told "
        "before",
        lock, who, holders, fence);
}

/* That note of the holder with that fence, or another one; NULL: none. */
static const struct noted *
noted_find(const struct subject *subject, uint64_t fence, uint64_t note)
{
    const struct noted *found = NULL;

    for (uint32_t i = 0; i < NOTED_KEPT; i++) {
        if (subject->noted[i].fence != fence)
            continue;
        found = &subject->noted[i];
        if (found->note == note)
            break;
    }
    return found;
}

static void
noted_add(struct subject *subject, uint64_t fence, uint64_t note)
{
    struct noted *place = &subject->noted[subject->noted_next++ % NOTED_KEPT];

    if (place->fence > subject->noted_floor)
        subject->noted_floor = place->fence;
    *place = (struct noted){fence, note};
}

void
check_noted(struct check *check, uint32_t lock, uint64_t fence, uint64_t note,
    const char *who)
{
    struct subject *subject = subject_of(check, lock);
    const struct noted *other = noted_find(subject, fence, note);

    if (fence <= subject->noted_floor)
        return; /* some of its notes may be forgotten */
    if (other == NULL)
        noted_add(subject, fence, note);
    else if (other->note != note)
        /* Data that come back have what its session asked for before. */
        check_broken(check, PROMISE_WATCH, 0,
            "lock-%" PRIu32 ": the holder with fence %" PRIu64
            " has the note %" PRIu64 ", and by what %s knows %" PRIu64,
            lock, fence, other->note, who, note);
}

bool
check_may_note(
    struct check *check, uint32_t lock, uint64_t fence, uint64_t note)
{
    struct subject *subject = subject_of(check, lock);

    if (fence <= subject->noted_floor ||
        noted_find(subject, fence, note) == NULL)
        return false;
    noted_add(subject, fence, note);
    return true;
}

/* --- AWAIT and WANTED ----------------------------------------------------- */

/* Somebody believed in it when that was asked, and does so still. */
static const struct belief *
believer_since(const struct check *check, uint32_t lock, uint64_t asked_us)
{
    uint64_t now_us = check->world->now_us;

    for (uint32_t at = subject_of(check, lock)->beliefs; at != NONE;
         at = check->beliefs[at].next) {
        const struct belief *belief = &check->beliefs[at];
        bool sleeps =
            belief->machine != NULL && belief->machine->stopped_until > now_us;
        if (belief->began_us < asked_us && belief->until_us > now_us &&
            belief->doom == FAULT_COUNT && !sleeps)
            return belief;
    }
    return NULL;
}

static bool
was_free(const struct check *check, uint32_t lock, uint64_t seen)
{
    const struct subject *subject = subject_of(check, lock);
    const struct machine *machine = subject->version.machine;

    if (check->world->plan.quorum != 0 || seen == 0)
        return true; /* nobody had had it before */
    if (excuse_since(check, PROMISE_WATCH, LOST, subject->version.written_us) !=
        FAULT_COUNT)
        return true; /* the record may be lost since it was written */
    for (uint64_t i = seen - 1; i < subject->history_count; i++)
        if (holders_match(
                subject, &subject->history[i], 0, 0, check_clock_ms(machine)))
            return true;
    return false;
}

/* From before it was asked until now there was the hold, or its lock-delay. */
static bool
delay_outlasts(
    const struct subject *subject, uint64_t asked_us, uint64_t now_us)
{
    return subject->delay_stood_us <= asked_us && now_us < subject->delay_us;
}

void
check_awaited(struct check *check, uint32_t lock, uint64_t asked_us,
    uint64_t seen, uint64_t floor, uint64_t fence, const char *who)
{
    const struct subject *subject = subject_of(check, lock);
    const struct belief *belief = believer_since(check, lock, asked_us);
    uint64_t from_us = lease_before(check, asked_us);

    check_deed(check, DEED_AWAITED);
    /* A broker may be left with a master that was replaced. */
    if (servers_replaced(check->world)) {
        if (belief != NULL || fence < floor)
            excused_by(check, PROMISE_WATCH, FAULT_failover, "AWAIT", lock);
        return;
    }
    if (belief != NULL)
        broken_by(check, PROMISE_WATCH, DAMAGES | CAUSE(cut),
            lease_before(check, belief->began_us),
            "lock-%" PRIu32 ": %s has awaited it, and %s (fence %" PRIu64
            ") had it all the time",
            lock, who, belief->who, belief->fence);
    else if (!was_free(check, lock, seen))
        check_broken(check, PROMISE_WATCH, from_us,
            "lock-%" PRIu32 ": %s has awaited it, and it was never free", lock,
            who);
    else if (delay_outlasts(subject, asked_us, check->world->now_us))
        check_broken(check, PROMISE_DELAY,
            lease_before(check, subject->delay_stood_us),
            "lock-%" PRIu32 ": %s has awaited it, and the lock-delay of %s is "
            "not over",
            lock, who, subject->delayed_by);
    if (fence == 0 || check->world->plan.quorum != 0)
        return; /* a broker of a quorum knows what it has seen */
    /* An older copy may have come back since the highest was told. */
    if (fence < floor)
        check_broken(check, PROMISE_WATCH,
            subject->told_us < asked_us ? lease_before(check, subject->told_us)
                                        : from_us,
            "lock-%" PRIu32 ": %s has awaited fence %" PRIu64
            ", and was told of %" PRIu64 " before",
            lock, who, fence, floor);
    /* A failover loses grants, and the broker has seen them. */
    else if (fence > subject->version.fence && fence > subject->fell_from)
        check_broken(check, PROMISE_WATCH, from_us,
            "lock-%" PRIu32 ": %s has awaited fence %" PRIu64
            ", and the last one is %" PRIu64,
            lock, who, fence, subject->version.fence);
}

void
check_awaited_in_vain(struct check *check, uint32_t lock, uint64_t asked_us,
    uint64_t seen, const char *who)
{
    const struct subject *subject = subject_of(check, lock);
    const struct version *version = &subject->version;

    if (check->world->plan.quorum != 0 || seen == 0 ||
        seen != subject->history_count || version->pending ||
        version->written_us >= asked_us || version->granted > 0 ||
        version->delay_ms >= check_clock_ms(version->machine))
        return;
    check_broken(check, PROMISE_WATCH, lease_before(check, asked_us),
        "lock-%" PRIu32 ": %s is told that it is held, and nobody has it", lock,
        who);
}

/* The first end of a wait, by its Redis; UINT64_MAX: nobody waits. */
static uint64_t
waits_end_ms(const struct version *version)
{
    uint64_t end_ms = UINT64_MAX;

    for (uint32_t i = 0; i < version->live; i++)
        if (!version->stands[i].granted && version->stands[i].ends_ms < end_ms)
            end_ms = version->stands[i].ends_ms;
    return end_ms;
}

/* Of a quorum no record has who waits. */
void
waits_note(const struct check *check, struct subject *subject,
    const struct version *version)
{
    uint32_t count = version->live - version->granted;
    uint32_t last = (subject->waits_next - 1) % WAITS_KEPT;
    bool same = subject->waits_next > 0 && subject->waits[last].count == count;

    if (check->world->plan.quorum != 0)
        return;
    if (!same)
        last = subject->waits_next++ % WAITS_KEPT;
    else if (subject->waits[last].sure_ms <= check_clock_ms(version->machine))
        return; /* some of them were over */
    subject->waits[last].count = count;
    subject->waits[last].sure_ms = waits_end_ms(version);
}

uint64_t
check_wanted_from(const struct check *check, uint32_t lock)
{
    uint32_t next = subject_of(check, lock)->waits_next;

    return next > 0 ? next - 1 : 0;
}

void
check_wanted(struct check *check, uint32_t lock, uint64_t waiters,
    uint32_t last, uint64_t *seen, const char *who)
{
    const struct subject *subject = subject_of(check, lock);
    bool fell = false;

    check_deed(check, DEED_WANTED);
    if (check->world->plan.quorum != 0 ||
        *seen + WAITS_KEPT <= subject->waits_next)
        return; /* there were more changes than are known */
    uint64_t now_ms = check_clock_ms(subject->version.machine);
    for (uint64_t i = *seen; i < subject->waits_next; i++) {
        uint32_t count = subject->waits[i % WAITS_KEPT].count;
        /* A broker does not count waits that are over. */
        bool fewer = subject->waits[i % WAITS_KEPT].sure_ms <= now_ms;
        fell = fell || fewer || count < waiters;
        if ((fewer ? count < waiters : count != waiters) ||
            (waiters <= last && !fell))
            continue;
        *seen = i;
        return;
    }
    check_broken(check, PROMISE_WATCH, lease_before(check, 0),
        "lock-%" PRIu32 ": %s is told that %" PRIu64 " wait, after %" PRIu32
        ", and that was so never, or is not news",
        lock, who, waiters, last);
}

/* --- at last -------------------------------------------------------------- */

void
check_watched_true(struct check *check, uint32_t lock, uint64_t fence,
    uint32_t holders, uint64_t since_us, const char *who)
{
    const struct subject *subject = subject_of(check, lock);
    struct holding now = check->world->plan.quorum != 0
                             ? quorum_holding_now(check, subject)
                             : holding_now(&subject->version);

    if (now.count != holders || (now.count > 0 && now.newest != fence))
        check_broken(check, PROMISE_WATCH, since_us,
            "lock-%" PRIu32 ": %s was told last of %" PRIu32
            " holders (%" PRIu64 "), and there are %" PRIu32 " (%" PRIu64 ")",
            lock, who, holders, fence, now.count, now.newest);
}

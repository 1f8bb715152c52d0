/*
 * The messages to watchers of members, against the holders of a lock.
 *
 * Such a watcher knows each holder from its JOINED to its LEFT. Fences of
 * JOINED grow, but in a list. No holder that has stood since the list was
 * complete is left out. At last, when nothing changes any more, the watcher
 * knows just those of the record.
 */
#include "tests/sim/check_state.h"

#include <inttypes.h>

static void
members_broken(struct check *check, const struct check_roster *roster,
    uint64_t fence, const char *who, const char *what)
{
    check_broken(check, PROMISE_WATCH, lease_before(check, 0),
        "lock-%" PRIu32 ": %s, which knows %" PRIu32
        " members, is told of fence %" PRIu64 ": %s",
        roster->lock, who, roster->count, fence, what);
}

void
check_members_begin(struct check_roster *roster, uint32_t lock)
{
    *roster = (struct check_roster){.lock = lock};
}

void
check_members_end(struct check *check, struct check_roster *roster,
    uint64_t count, const char *who)
{
    if (roster->complete || count != roster->count)
        members_broken(check, roster, count, who, "the list has not so many");
    roster->complete = true;
    roster->from = subject_of(check, roster->lock)->history_count;
}

/* The place of the member with that fence; ROSTER_MAX: it is none. */
static uint32_t
roster_find(const struct check_roster *roster, uint64_t fence)
{
    for (uint32_t i = 0; i < roster->count; i++)
        if (roster->fences[i] == fence)
            return i;
    return ROSTER_MAX;
}

/* A fence between those two that has stood since the list; 0: none. */
static uint64_t
fence_between(const struct subject *subject, const struct check_roster *roster,
    uint64_t low, uint64_t high)
{
    for (uint32_t i = roster->from; i < subject->history_count; i++) {
        const struct holders *entry = &subject->history[i];
        for (uint32_t j = 0; j < entry->count; j++) {
            uint64_t fence = subject->hold_ends[entry->first + j].fence;
            if (fence > low && fence < high)
                return fence;
        }
    }
    return 0;
}

static void
member_joins(struct check *check, struct check_roster *roster, uint64_t fence,
    const char *who)
{
    const struct subject *subject = subject_of(check, roster->lock);

    if (roster->count == ROSTER_MAX) {
        members_broken(check, roster, fence, who, "so many cannot be there");
        return;
    }
    if (roster_find(roster, fence) < ROSTER_MAX)
        members_broken(check, roster, fence, who, "it has joined before");
    else if (roster->complete && fence <= roster->newest)
        members_broken(check, roster, fence, who, "a later one came before");
    else if (roster->complete &&
             fence_between(subject, roster, roster->newest, fence) > 0)
        members_broken(check, roster, fence, who, "one before it is left out");
    if (roster->newest < fence)
        roster->newest = fence;
    roster->fences[roster->count++] = fence;
}

void
check_member(struct check *check, struct check_roster *roster,
    enum member_event event, uint64_t fence, const char *who)
{
    uint32_t at = roster_find(roster, fence);

    check_deed(check, DEED_MEMBER);
    if (event == MEMBER_JOINED)
        member_joins(check, roster, fence, who);
    else if (at == ROSTER_MAX)
        members_broken(check, roster, fence, who, "it is no member");
    else if (event == MEMBER_LEFT)
        roster->fences[at] = roster->fences[--roster->count];
}

void
check_members_true(struct check *check, const struct check_roster *roster,
    uint64_t since_us, const char *who)
{
    const struct version *version = &subject_of(check, roster->lock)->version;
    uint32_t granted = 0;
    bool same = roster->complete;

    for (uint32_t i = 0; i < version->live; i++) {
        const struct stand *stand = &version->stands[i];
        granted += stand->granted;
        if (stand->granted && roster_find(roster, stand->fence) == ROSTER_MAX)
            same = false;
    }
    if (!same || granted != roster->count)
        check_broken(check, PROMISE_WATCH, since_us,
            "lock-%" PRIu32 ": %s knows %" PRIu32
            " members (%d), and there are %" PRIu32,
            roster->lock, who, roster->count, roster->complete, granted);
}

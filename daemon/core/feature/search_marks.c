/*
 * Places that searches for deadlocks have visited lately.
 *
 * A search visits each lock about once. The marks of all searches share one
 * table of fixed size. A newer mark replaces an older one of the same slot; a
 * search then visits the place again. See DESIGN.md D6.2.
 */
#include "daemon/core/feature/deadlock.h"

#include "daemon/base/assert.h"

uint64_t
search_hash(const struct core *core, const struct probe_node *first)
{
    struct {
        uint64_t search;
        char broker[8];
    } key = {.search = first->fence};

    memcpy(key.broker, first->broker, sizeof(key.broker));
    return hash_bytes(&core->hash_key, &key, sizeof(key));
}

/* A place that a search has visited. */
enum mark {
    MARK_EXCLUSIVE, /* waits of a lock */
    MARK_SHARED,
    MARK_WAIT,
    MARK_OWNER,
};

/* A cheap hash is enough: the search's hash is a secret of this broker. */
static uint64_t
mark_hash(uint64_t search, enum mark mark, struct handle of)
{
    uint64_t hash = (search ^ handle_pack(of)) * 0x9e3779b97f4a7c15 + mark;

    hash = (hash ^ hash >> 32) * 0xd6e8feb86659fd93;
    return hash ^ hash >> 32;
}

/* Whether the search has been there, at a lock as far behind. A place whose
 * mark was replaced is visited again. */
static bool
mark_stands(const struct core *core, uint64_t hash, uint64_t arrival)
{
    const struct search_mark *mark = &core->search_marks[hash % SEARCH_MARKS];

    return mark->hash == hash && mark->arrival >= arrival;
}

static void
mark_set(struct core *core, uint64_t hash, uint64_t arrival)
{
    core->search_marks[hash % SEARCH_MARKS] =
        (struct search_mark){hash, arrival};
}

/* Whether a visit of that wait says nothing of other waits of the lock: those
 * before it need not be in its way. */
static bool
stands_alone(const struct core *core, const struct ticket *ticket)
{
    require(ticket->state == TICKET_WAITING);
    return core->settings.queues_here || ticket->upgrade ||
           mode_is_intent(ticket->ask.mode);
}

bool
search_covers(const struct core *core, uint64_t search,
    const struct ticket *ticket, bool behind)
{
    struct handle lock = slab_handle(&core->locks, ticket->lock);
    struct handle wait = slab_handle(&core->tickets, ticket);
    uint64_t arrival = ticket->arrival + behind;

    if (stands_alone(core, ticket))
        return !behind &&
               mark_stands(core, mark_hash(search, MARK_WAIT, wait), 0);
    if (mark_stands(core, mark_hash(search, MARK_EXCLUSIVE, lock), arrival))
        return true;
    return ticket->ask.mode == MODE_SHARED &&
           mark_stands(core, mark_hash(search, MARK_SHARED, lock), arrival);
}

void
search_visits(struct core *core, uint64_t search, const struct ticket *ticket)
{
    /* An upgradable wait is not behind readers. */
    enum mark kind =
        ticket->ask.mode == MODE_EXCLUSIVE ? MARK_EXCLUSIVE : MARK_SHARED;
    struct handle lock = slab_handle(&core->locks, ticket->lock);
    struct handle wait = slab_handle(&core->tickets, ticket);

    if (stands_alone(core, ticket))
        mark_set(core, mark_hash(search, MARK_WAIT, wait), 0);
    else
        mark_set(core, mark_hash(search, kind, lock), ticket->arrival);
}

bool
search_was_at(struct core *core, uint64_t search, const struct owner *owner)
{
    uint64_t hash =
        mark_hash(search, MARK_OWNER, slab_handle(&core->owners, owner));
    bool was = mark_stands(core, hash, 0);

    require(owner->waiting > 0 && owner->waiting <= owner->tickets);
    mark_set(core, hash, 0);
    return was;
}

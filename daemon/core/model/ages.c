/*
 * Holds and waits by age.
 *
 * All that hold, and all that wait, are on a list of their namespace each, the
 * oldest first: they come to its end, and time does not go back. A scrape costs
 * the same however many tickets there are.
 *
 * A wait begins when its ticket enters the queue. It ends with a grant, or when
 * the client gives up. A ticket that Redis lost, and that is put there again,
 * still waits. A lock that nobody waits for is not counted anywhere.
 */
#include "daemon/core/model/stats.h"

#include "daemon/core/model/lock.h"

#include "daemon/base/assert.h"

bool
top_init(struct core *core)
{
    for (uint32_t i = 0; i <= NAMESPACES_MAX; i++) {
        list_init(&core->ages[i].holds);
        list_init(&core->ages[i].waits);
    }
    return contention_init(&core->contention, core->now_us);
}

void
top_fini(struct core *core)
{
    contention_fini(&core->contention);
}

static struct ages *
ages_of(struct core *core, struct lock *lock)
{
    (void)namespace_of(core, lock);
    return &core->ages[lock->namespace];
}

uint64_t
ticket_since_us(const struct ticket *ticket)
{
    require(!list_empty(&ticket->age_link));
    return ticket->state == TICKET_HELD ? ticket->granted_us : ticket->waits_us;
}

void
walk_begin(struct walk *walk, struct core *core, bool holds)
{
    require(core->namespaces.count <= NAMESPACES_MAX + 1);
    walk->count = core->namespaces.count;
    for (uint32_t i = 0; i < walk->count; i++) {
        struct ages *ages = &core->ages[i];
        walk->head[i] = holds ? &ages->holds : &ages->waits;
        walk->next[i] = walk->head[i]->next;
    }
}

struct ticket *
walk_next(struct walk *walk)
{
    struct ticket *oldest = NULL;
    uint32_t place = 0;

    for (uint32_t i = 0; i < walk->count; i++) {
        if (walk->next[i] == walk->head[i])
            continue;
        struct ticket *ticket =
            container_of(walk->next[i], struct ticket, age_link);
        if (oldest != NULL &&
            ticket_since_us(ticket) >= ticket_since_us(oldest))
            continue;
        oldest = ticket;
        place = i;
    }
    if (oldest != NULL)
        walk->next[place] = walk->next[place]->next;
    return oldest;
}

static void
walk_to(struct walk *walk, struct list *all)
{
    struct ticket *ticket;

    list_init(all);
    while ((ticket = walk_next(walk)) != NULL) {
        list_remove(&ticket->age_link);
        list_push_back(all, &ticket->age_link);
    }
}

void
top_set_namespaces(
    struct core *core, const struct text *prefixes, uint32_t count)
{
    struct list holds, waits;
    struct list *link;
    struct walk walk;

    if (namespaces_are(&core->namespaces, prefixes, count))
        return;
    walk_begin(&walk, core, true);
    walk_to(&walk, &holds);
    walk_begin(&walk, core, false);
    walk_to(&walk, &waits);
    namespaces_change(&core->namespaces, prefixes, count);
    for (uint32_t i = 0; i <= NAMESPACES_MAX; i++)
        core->ages[i].held = core->ages[i].waiting = 0;
    while ((link = list_pop_front(&holds)) != NULL) {
        struct ticket *ticket = container_of(link, struct ticket, age_link);
        struct ages *ages = ages_of(core, ticket->lock);
        list_push_back(&ages->holds, link);
        ages->held++;
    }
    while ((link = list_pop_front(&waits)) != NULL) {
        struct ticket *ticket = container_of(link, struct ticket, age_link);
        struct ages *ages = ages_of(core, ticket->lock);
        list_push_back(&ages->waits, link);
        ages->waiting += ticket->state == TICKET_WAITING;
    }
}

static bool
ticket_in_wait(const struct ticket *ticket)
{
    return ticket->state != TICKET_HELD && !list_empty(&ticket->age_link);
}

static void
wait_begin(struct core *core, struct ticket *ticket)
{
    struct lock *lock = ticket->lock;

    require(list_empty(&ticket->age_link));
    list_push_back(&ages_of(core, lock)->waits, &ticket->age_link);
    ticket->waits_us = core->now_us;
    lock->waits++;
    contention_begins(&core->contention, lock_name(lock), lock->table.hash,
        lock->waits, core->now_us);
}

void
top_wait_end(struct core *core, struct ticket *ticket)
{
    struct lock *lock = ticket->lock;

    if (!ticket_in_wait(ticket))
        return;
    list_remove(&ticket->age_link);
    require(lock->waits > 0);
    lock->waits--;
    contention_ends(&core->contention, lock_name(lock), lock->table.hash,
        lock->waits, core->now_us);
}

/* Whether a wait outlasts that change: Redis has lost it, and it is asked for
 * anew. */
static bool
wait_goes_on(enum ticket_state from, enum ticket_state to)
{
    return to == TICKET_WAITING ||
           (from == TICKET_WAITING && to == TICKET_IDLE) ||
           (from == TICKET_IDLE && to == TICKET_ASKING);
}

void
top_state(struct core *core, struct ticket *ticket, enum ticket_state state)
{
    struct ages *ages = ages_of(core, ticket->lock);

    require(ticket->state != TICKET_HELD || ages->held > 0);
    require(ticket->state != TICKET_WAITING || ages->waiting > 0);
    ages->held -= ticket->state == TICKET_HELD;
    ages->held += state == TICKET_HELD;
    ages->waiting -= ticket->state == TICKET_WAITING;
    ages->waiting += state == TICKET_WAITING;
    if (ticket->state == TICKET_HELD)
        list_remove(&ticket->age_link);
    else if (!wait_goes_on(ticket->state, state))
        top_wait_end(core, ticket);
    if (state == TICKET_HELD) {
        require(list_empty(&ticket->age_link));
        ticket->granted_us = core->now_us;
        list_push_back(&ages->holds, &ticket->age_link);
    } else if (state == TICKET_WAITING && list_empty(&ticket->age_link)) {
        wait_begin(core, ticket);
    }
}

static void
ages_check(const struct core *core, uint32_t place, uint32_t *waits)
{
    const struct ages *ages = &core->ages[place];
    uint64_t last_us = 0;
    uint32_t held = 0;
    uint32_t waiting = 0;

    LIST_EACH (link, &ages->holds) {
        const struct ticket *ticket =
            container_of(link, struct ticket, age_link);
        require(ticket->state == TICKET_HELD && ticket->granted_us >= last_us);
        require(ticket->lock->namespace == place);
        last_us = ticket->granted_us;
        held++;
    }
    last_us = 0;
    LIST_EACH (link, &ages->waits) {
        const struct ticket *ticket =
            container_of(link, struct ticket, age_link);
        require(ticket->state != TICKET_HELD && ticket->waits_us >= last_us);
        require(ticket->lock->waits > 0 && ticket->lock->namespace == place);
        last_us = ticket->waits_us;
        waiting += ticket->state == TICKET_WAITING;
        *waits += 1;
    }
    require(held == ages->held && waiting == ages->waiting);
}

void
top_check(const struct core *core)
{
    uint32_t held = 0;
    uint32_t waiting = 0;
    uint32_t waits = 0;

    for (uint32_t i = 0; i <= NAMESPACES_MAX; i++) {
        ages_check(core, i, &waits);
        held += core->ages[i].held;
        waiting += core->ages[i].waiting;
    }
    require(held == core->held && waiting == core->waiting);
    for (uint32_t i = 0; i < core->locks.touched; i++) {
        const struct lock *lock = slab_at(&core->locks, i);
        if (lock != NULL)
            waits -= lock->waits;
    }
    require(waits == 0);
    contention_check(&core->contention);
}

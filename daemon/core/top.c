/*
 * TOP: the locks that are waited for most, the oldest holds, the oldest waits.
 *
 * All that hold, and all that wait, are on a list of their namespace each, the
 * oldest first: they come to its end, and time does not go back. So whoever
 * asks for some of the oldest costs no more than these; and whoever may not see
 * all of them, a bounded number of looks. A scrape costs the same however many
 * tickets there are.
 *
 * A wait begins when its ticket comes to stand in the queue, and ends when it
 * is granted or given up; that Redis has lost it and it is put there again is
 * no end. A lock that nobody waits for is not counted anywhere.
 */
#include "daemon/core/ticket.h"

#include "daemon/base/assert.h"

#define TOP_DEFAULT 10
#define TOP_MAX     100 /* of each kind */
/* Places of a list that one request looks at. */
#define TOP_LOOKS 4096

static struct text
lock_name(const struct lock *lock)
{
    return text_make(lock->name, lock->name_len);
}

bool
top_init(struct core *core)
{
    for (uint32_t i = 0; i <= SPACES_MAX; i++) {
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

/* --- who holds, and who waits --------------------------------------------- */

static struct ages *
ages_of(struct core *core, struct lock *lock)
{
    (void)space_of(core, lock);
    return &core->ages[lock->space];
}

static uint64_t
ticket_since_us(const struct ticket *ticket)
{
    return ticket->state == TICKET_HELD ? ticket->granted_us : ticket->waits_us;
}

/* The lists of all namespaces together, from the oldest ticket on. */
struct walk {
    struct list *head[SPACES_MAX + 1];
    struct list *next[SPACES_MAX + 1];
    uint32_t count;
};

static void
walk_begin(struct walk *walk, struct core *core, bool holds)
{
    walk->count = core->spaces.count;
    for (uint32_t i = 0; i < walk->count; i++) {
        struct ages *ages = &core->ages[i];
        walk->head[i] = holds ? &ages->holds : &ages->waits;
        walk->next[i] = walk->head[i]->next;
    }
}

/* NULL: that were all. */
static struct ticket *
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

/* Others in place of the namespaces: at the cost of a walk over all tickets,
 * unless they are the same. */
void
top_set_spaces(struct core *core, const struct text *prefixes, uint32_t count)
{
    struct list holds, waits;
    struct list *link;
    struct walk walk;

    if (spaces_are(&core->spaces, prefixes, count))
        return;
    walk_begin(&walk, core, true);
    walk_to(&walk, &holds);
    walk_begin(&walk, core, false);
    walk_to(&walk, &waits);
    spaces_change(&core->spaces, prefixes, count);
    for (uint32_t i = 0; i <= SPACES_MAX; i++)
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

/* The ticket comes into that state. */
void
top_state(struct core *core, struct ticket *ticket, enum ticket_state state)
{
    struct ages *ages = ages_of(core, ticket->lock);

    ages->held -= ticket->state == TICKET_HELD;
    ages->held += state == TICKET_HELD;
    ages->waiting -= ticket->state == TICKET_WAITING;
    ages->waiting += state == TICKET_WAITING;
    if (ticket->state == TICKET_HELD)
        list_remove(&ticket->age_link);
    else if (!wait_goes_on(ticket->state, state))
        top_wait_end(core, ticket);
    if (state == TICKET_HELD) {
        ticket->granted_us = core->now_us;
        list_push_back(&ages->holds, &ticket->age_link);
    } else if (state == TICKET_WAITING && list_empty(&ticket->age_link)) {
        wait_begin(core, ticket);
    }
}

/* --- the answer ----------------------------------------------------------- */

static void
contended_item(struct core *core, struct session *session, const char *tag,
    const struct contended *entry)
{
    struct reply reply = answer_begin(core, tag, "ITEM");

    reply_pair(&reply, "kind", TEXT("contended"));
    reply_pair(&reply, "name", text_make(entry->name, entry->name_len));
    reply_pair_number(&reply, "waits", entry->seen);
    if (entry->count > entry->seen)
        reply_pair_number(&reply, "unseen", entry->count - entry->seen);
    reply_pair_number(&reply, "waited_ms", entry->waited_us / 1000);
    reply_pair_number(&reply, "waiters", entry->waiters);
    answer_end(core, session, &reply);
}

static uint32_t
top_contended(
    struct core *core, struct session *session, const char *tag, uint32_t limit)
{
    uint8_t order[CONTENTION_KEPT];
    uint32_t count = contention_order(&core->contention, core->now_us, order);
    uint32_t shown = 0;

    for (uint32_t i = 0; i < count && shown < limit; i++) {
        const struct contended *entry = &core->contention.kept[order[i]];
        if (!auth_sees(core, session, text_make(entry->name, entry->name_len)))
            continue;
        contended_item(core, session, tag, entry);
        shown++;
    }
    return shown;
}

static void
ticket_item(struct core *core, struct session *session, const char *tag,
    const struct ticket *ticket)
{
    struct reply reply = answer_begin(core, tag, "ITEM");
    bool held = ticket->state == TICKET_HELD;
    char short_id[SHORT_ID_BYTES + 1];

    core_short_id(ticket->session_id, short_id);
    reply_pair(&reply, "kind", held ? TEXT("holder") : TEXT("waiter"));
    reply_pair(&reply, "name", lock_name(ticket->lock));
    reply_pair_number(
        &reply, "age_ms", (core->now_us - ticket_since_us(ticket)) / 1000);
    reply_pair(&reply, "session", text_from(short_id));
    if (held)
        reply_pair_number(&reply, "fence", ticket->fence);
    listing_kind(&reply, &ticket->ask);
    reply_pair_if(&reply, "client", ticket_client(ticket));
    reply_pair_if(&reply, "owner", ticket_owner(ticket));
    reply_pair_if(&reply, "note", ticket_note(ticket));
    answer_end(core, session, &reply);
}

/* The oldest holds or waits; *cut: there may be more that the session may see.
 */
static uint32_t
top_oldest(struct core *core, struct session *session, const char *tag,
    bool holds, uint32_t limit, bool *cut)
{
    const struct ticket *ticket;
    uint32_t looked = 0;
    uint32_t shown = 0;
    struct walk walk;

    walk_begin(&walk, core, holds);
    while (shown < limit && (ticket = walk_next(&walk)) != NULL) {
        if (looked++ == TOP_LOOKS) {
            *cut = true;
            break;
        }
        if (!auth_sees(core, session, lock_name(ticket->lock)))
            continue;
        ticket_item(core, session, tag, ticket);
        shown++;
    }
    return shown;
}

/* All that there is fits into one answer. */
void
top_list(
    struct core *core, struct session *session, const struct request *request)
{
    const char *tag = request->tag;
    uint32_t limit = TOP_DEFAULT;
    uint32_t shown;
    bool cut = false;

    if (request_has(request, REQUEST_KEY_LIMIT)) {
        uint64_t asked = request->value[REQUEST_KEY_LIMIT];
        limit = asked < TOP_MAX ? (uint32_t)asked : TOP_MAX;
    }
    shown = top_contended(core, session, tag, limit);
    shown += top_oldest(core, session, tag, true, limit, &cut);
    shown += top_oldest(core, session, tag, false, limit, &cut);
    struct reply reply = answer_begin(core, tag, "OK");
    reply_pair_number(&reply, "n", shown);
    if (cut)
        reply_pair_number(&reply, "cut", 1);
    answer_end(core, session, &reply);
}

/* --- checks --------------------------------------------------------------- */

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
        require(ticket->lock->space == place);
        last_us = ticket->granted_us;
        held++;
    }
    last_us = 0;
    LIST_EACH (link, &ages->waits) {
        const struct ticket *ticket =
            container_of(link, struct ticket, age_link);
        require(ticket->state != TICKET_HELD && ticket->waits_us >= last_us);
        require(ticket->lock->waits > 0 && ticket->lock->space == place);
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

    for (uint32_t i = 0; i <= SPACES_MAX; i++) {
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

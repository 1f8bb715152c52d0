/*
 * Deadlocks: owners that wait for one another in a cycle, over any number of
 * locks and brokers.
 *
 * Edge-chasing after Chandy, Misra and Haas. A search begins when an owner has
 * waited for a moment, and has a hold or another wait. A probe goes to the
 * brokers of all owners in the way of that wait. From those that wait too, it
 * goes on to the owners in their way.
 *
 * A probe that comes back to its owner has found a cycle, but has seen its
 * edges one after another. So the probe goes round a second time. An edge with
 * the same wait and the same fence in both rounds was there all the time
 * between. So all edges were there at the moment between the rounds. In the
 * second round each broker also says whether its owner still has the lock: the
 * record alone may show holds whose release Redis has lost. Then the youngest
 * wait ends. All searches that find the cycle choose the same wait.
 *
 * The record says which owners are in the way of a wait: the holders, and the
 * earlier waits that are not compatible. A semaphore counts only with one
 * holder. With several holders any of them may make room.
 *
 * A search visits each lock about once, since the ways through a few long
 * queues are too many. An owner in the way of a wait is also in the way of
 * later waits, at once or by the waits between. So a search inspects only the
 * last wait of a lock that it visits. Owners before that wait are asked only
 * about their other waits.
 *
 * See DESIGN.md D6.1 and D6.2.
 */
#include "daemon/core/feature/deadlock.h"

#include "daemon/core/feature/listing.h"
#include "daemon/core/feature/message.h"
#include "daemon/core/model/lock.h"
#include "daemon/core/model/part.h"
#include "daemon/core/model/session_table.h"
#include "daemon/core/model/ticket.h"
#include "daemon/core/model/times.h"
#include "daemon/core/ticket/tickets.h"
#include "daemon/op/op.h"

#include "daemon/base/assert.h"
#include "daemon/base/log.h"

#include <stdio.h>

#define FIRST_US  30000  /* a wait may end by itself */
#define SOON_US   5000   /* searches due by then begin now */
#define AGAIN_US  600000 /* holders change, and messages are lost */
#define DOUBLED   4      /* so often it is twice as long the next time */
#define WAITS_MAX 8      /* of one owner, that a search follows */
/* Waits of an owner that are looked through for a certain one. */
#define SCAN_MAX 64
/* Asked after in a step, so that none is long. */
#define STEP_OWNERS 4096

static void
search_soon(struct core *core, struct ticket *ticket)
{
    require(ticket->state == TICKET_WAITING && ticket->who != NULL);
    ticket->looked = 0;
    ticket->refused = 0;
    ticket_probe_at(core, ticket, core->now_us + core_jitter(core, FIRST_US));
}

/* Those waits of an owner that were in no cycle, and can be in one now: where
 * there is more than that, the others have been looked at before. */
static void
search_waits(struct core *core, const struct owner *owner)
{
    if (!owner_is_in_between(owner) || owner->held + owner->waiting > 3)
        return;
    LIST_EACH (link, &owner->waits) {
        struct ticket *ticket = container_of(link, struct ticket, wait_link);
        if (ticket->probe_us == NEVER)
            search_soon(core, ticket);
    }
}

void
deadlock_waits(struct core *core, struct ticket *ticket)
{
    const struct owner *owner = ticket->who;

    require(ticket->state == TICKET_WAITING);
    ticket->probe_us = NEVER;
    if (owner == NULL)
        return;
    if (owner_is_in_between(owner))
        search_soon(core, ticket);
    search_waits(core, owner);
}

void
deadlock_held(struct core *core, const struct owner *owner)
{
    require(owner->held > 0 && owner->held <= owner->tickets);
    search_waits(core, owner);
}

/* Whether a wait keeps its owner waiting. */
static bool
wait_counts(const struct ticket *ticket)
{
    if (ticket->state != TICKET_WAITING || list_empty(&ticket->requests))
        return false;
    const struct request *request =
        container_of(ticket->requests.next, struct request, ticket_link);
    return request->state != REQUEST_QUEUED &&
           request->command == COMMAND_LOCK && !request->no_deadlock;
}

/* A ticket of this broker, by what others know of it; NULL: it is gone. */
static struct ticket *
ticket_named(const struct core *core, uint64_t request,
    const uint8_t session[16], uint64_t owner)
{
    struct ticket *ticket = slab_get(&core->tickets, handle_unpack(request));

    if (ticket == NULL || ticket->owner_hash != owner ||
        memcmp(ticket->session_id, session, 16) != 0)
        return NULL;
    return ticket;
}

static void probe_arrived(struct core *core, struct probe *probe);

/* Sends the probe to a broker, this one or another; it is gone afterwards. The
 * lock only says where to ask Redis for that. */
static void
probe_send(struct core *core, struct probe *probe, const char *broker,
    struct lock *lock)
{
    require(probe->index < probe->count && list_empty(&probe->link));
    if (memcmp(broker, core->settings.broker_id, 8) == 0) {
        probe_arrived(core, probe);
        return;
    }
    probe_tell(core, probe, NULL, broker, lock);
    slab_free(&core->probes, probe);
}

/* Copies a probe that is to look at that lock; NULL where there is no room. */
static struct probe *
probe_copy(struct core *core, const struct probe *from,
    enum probe_purpose purpose, const struct lock *lock)
{
    struct probe *probe = probe_create(core, purpose, lock);

    require(from->count <= PROBE_NODES);
    if (probe == NULL)
        return NULL;
    probe->kind = from->kind;
    probe->count = from->count;
    probe->index = from->index;
    memcpy(probe->nodes, from->nodes, from->count * sizeof(probe->nodes[0]));
    return probe;
}

/* --- looking at a wait ---------------------------------------------------- */

/* Reads who is in the wait's way. */
static void
probe_examine(struct core *core, struct probe *probe, struct ticket *ticket)
{
    require(probe->count <= PROBE_NODES && ticket->lock->refs > 0);
    require(ticket->state == TICKET_WAITING);
    probe->ticket = slab_handle(&core->tickets, ticket);
    inspection_ask(core, probe, ticket->lock);
}

/* The wait that it looks at, if that still keeps its owner waiting. */
static struct ticket *
probe_ticket(const struct core *core, const struct probe *probe)
{
    struct ticket *ticket = slab_get(&core->tickets, probe->ticket);

    return ticket != NULL && wait_counts(ticket) ? ticket : NULL;
}

bool
deadlock_stands(const struct core *core, const struct probe *probe)
{
    return probe_ticket(core, probe) != NULL;
}

/* There was no room for a probe. */
static uint64_t
inspection_refused(struct core *core, struct ticket *ticket)
{
    uint64_t again_us = (uint64_t)FIRST_US << ticket->refused;

    require(ticket->refused <= DOUBLED);
    if (ticket->refused < DOUBLED)
        ticket->refused++;
    return core->now_us + core_jitter(core, again_us);
}

/* Looks at a wait; says when to look again. */
static uint64_t
search_begin(struct core *core, struct ticket *ticket, uint64_t search)
{
    uint64_t again_us =
        core->now_us + core_jitter(core, (uint64_t)AGAIN_US << ticket->looked);

    require(ticket->state == TICKET_WAITING && ticket->looked <= DOUBLED);
    if (!wait_counts(ticket))
        return again_us;
    struct probe *probe = probe_create(core, PROBE_BEGINS, ticket->lock);
    if (probe == NULL)
        return inspection_refused(core, ticket);
    struct probe_node *first = &probe->nodes[0];
    probe->kind = 'D';
    memcpy(first->session, ticket->session_id, 16);
    memcpy(first->broker, core->settings.broker_id, 8);
    first->owner = ticket->owner_hash;
    first->fence = search;
    search_visits(core, search_hash(core, first), ticket);
    probe_examine(core, probe, ticket);
    ticket->refused = 0;
    return again_us;
}

/*
 * A wait has lasted: looks whether it can end, and others of its owner with it.
 * Says when to look again.
 *
 * A cycle begins with its youngest wait, whose search is soon. A wait in no
 * cycle is searched again, as messages may be lost. The pause doubles, except
 * for semaphores: there a release by others may close a cycle.
 */
uint64_t
deadlock_search(struct core *core, struct ticket *ticket)
{
    uint64_t search = ++core->serial; /* tells searches apart */
    uint32_t left = WAITS_MAX - 1;
    uint32_t scanned = 0;

    require(ticket->state == TICKET_WAITING);
    if (ticket->who == NULL || !owner_is_in_between(ticket->who))
        return NEVER;
    LIST_EACH (link, &ticket->who->waits) {
        struct ticket *other = container_of(link, struct ticket, wait_link);
        if (left == 0 || scanned++ == SCAN_MAX)
            break;
        if (other == ticket || other->probe_us == NEVER ||
            other->probe_us > core->now_us + SOON_US)
            continue;
        ticket_probe_at(core, other, search_begin(core, other, search));
        left--;
    }
    return search_begin(core, ticket, search);
}

static bool
is_owner(const struct op_ticket *ticket, const struct probe_node *node)
{
    return memcmp(ticket->session, node->session, 16) == 0 &&
           memcmp(ticket->owner_hash, &node->owner, 8) == 0;
}

/* The place of the wait among the tickets, the last of its owner; ticket_count:
 * it is not there, or is in nobody's way for long. Nobody waits for what it
 * holds: a hold of the same owner is one of an earlier request, which nobody
 * renews, and ends. A detached hold is not the owner's. */
static uint32_t
own_place(
    const struct op_result *result, const struct probe_node *own, bool upgrade)
{
    uint32_t place = result->ticket_count;

    for (uint32_t i = 0; i < result->ticket_count; i++) {
        const struct op_ticket *ticket = &result->tickets[i];
        if (!is_owner(ticket, own) || ticket_is_over(ticket) ||
            ticket->detached || (ticket->mode == MODE_UPGRADE) != upgrade)
            continue;
        if (ticket->granted)
            return result->ticket_count;
        place = i;
    }
    return place;
}

/* The cycle stood: its youngest wait is to end. */
static void
probe_conclude(struct core *core, struct probe *probe, struct lock *lock)
{
    uint32_t victim = 0;

    require(probe->kind == 'V' && probe->count > 0); /* DESIGN.md D6.1 */
    for (uint32_t i = 1; i < probe->count; i++) {
        const struct probe_node *a = &probe->nodes[i];
        const struct probe_node *b = &probe->nodes[victim];
        int way = memcmp(a->session, b->session, 16);
        if (a->since_us > b->since_us ||
            (a->since_us == b->since_us &&
                (way > 0 || (way == 0 && a->owner > b->owner))))
            victim = i;
    }
    probe->kind = 'K';
    probe->index = victim;
    probe_send(core, probe, probe->nodes[victim].broker, lock);
}

/* Somebody in the way is the one who began: there may be a cycle. */
static void
probe_closes(struct core *core, const struct probe *probe,
    const struct op_ticket *first, struct lock *lock)
{
    struct probe *next = probe_copy(core, probe, PROBE_VERIFIES, NULL);

    if (next == NULL)
        return;
    next->kind = 'V';
    next->index = 0;
    next->nodes[0].fence = first->fence;
    probe_send(core, next, next->nodes[0].broker, lock);
}

static bool
probe_has(const struct probe *probe, const struct op_ticket *ticket)
{
    for (uint32_t i = 0; i < probe->count; i++)
        if (is_owner(ticket, &probe->nodes[i]))
            return true;
    return false;
}

static void owners_asked(struct core *core, const struct probe *probe,
    const struct question *question, const struct lock *passed);

/*
 * Asks after the owners at these places of the record, the hindmost first, each
 * at its broker.
 *
 * All owners in the way of an earlier wait are in the way of an exclusive wait,
 * too. A shared wait does not wait for owners that share the lock, but for the
 * waits between. Then each broker also inspects the last of them there.
 */
static void
probe_ask(struct core *core, const struct probe *probe,
    const struct op_result *result, uint32_t *places, uint32_t place_count,
    bool again, struct lock *lock)
{
    require(probe->kind == 'D' && place_count <= result->ticket_count);
    while (place_count > 0) {
        const char *broker = result->tickets[places[0]].broker;
        struct question question = {.again = again};
        uint32_t kept = 0;
        for (uint32_t i = 0; i < place_count; i++) {
            const struct op_ticket *ticket = &result->tickets[places[i]];
            if (question.count == PROBE_ASKED ||
                memcmp(ticket->broker, broker, 8) != 0) {
                places[kept++] = places[i];
                continue;
            }
            struct probe_asked *asked = &question.asked[question.count++];
            memcpy(asked->session, ticket->session, 16);
            memcpy(&asked->owner, ticket->owner_hash, 8);
            asked->request = ticket->request;
            asked->fence = ticket->fence;
        }
        require(question.count > 0); /* that of places[0], at least */
        place_count = kept;
        if (memcmp(broker, core->settings.broker_id, 8) == 0)
            owners_asked(core, probe, &question, lock);
        else
            probe_tell(core, probe, &question, broker, lock);
    }
}

/* Second round: the next one must be in the way still. */
static void
probe_verify(struct core *core, struct probe *probe,
    const struct reading *reading, uint32_t own, struct lock *lock)
{
    require(probe->count > 0);
    require(probe->kind == 'V' && own < reading->result->ticket_count);
    uint32_t next = (probe->index + 1) % probe->count;
    const struct probe_node *node = &probe->nodes[next];
    bool stands = false;

    for (uint32_t i = 0; i < own; i++) {
        const struct op_ticket *ticket = &reading->result->tickets[i];
        if (is_owner(ticket, node) && ticket->fence == node->fence &&
            reading_in_the_way(reading, own, i))
            stands = true;
    }
    if (!stands) {
        slab_free(&core->probes, probe);
        return;
    }
    if (next == 0) {
        probe_conclude(core, probe, lock);
        return;
    }
    probe->index = next;
    probe_send(core, probe, node->broker, lock);
}

/* First round: the wait becomes part of the way that the probe has gone. */
static void
probe_search(struct core *core, struct probe *probe,
    const struct reading *reading, uint32_t own, struct ticket *ticket)
{
    const struct op_result *result = reading->result;
    struct probe_node *node = &probe->nodes[probe->count++];
    struct lock *lock = ticket->lock;
    uint32_t places[INSPECTION_TICKETS];
    uint32_t place_count = 0;

    require(probe->kind == 'D' && own < result->ticket_count);
    require(probe->count <= PROBE_NODES && lock->name_len <= PROTO_NAME_MAX);
    memcpy(node->broker, core->settings.broker_id, 8);
    node->request = handle_pack(slab_handle(&core->tickets, ticket));
    node->since_us = result->tickets[own].since_us;
    node->name_len = (uint8_t)lock->name_len;
    memcpy(node->name, lock->name, lock->name_len);
    require(own < INSPECTION_TICKETS); /* the room of `places` */
    for (uint32_t i = own; i > 0; i--) {
        const struct op_ticket *other = &result->tickets[i - 1];
        if (!reading_in_the_way(reading, own, i - 1))
            continue;
        if (is_owner(other, &probe->nodes[0]))
            probe_closes(core, probe, other, lock);
        else if (!probe_has(probe, other))
            places[place_count++] = i - 1;
    }
    if (probe->count < PROBE_NODES)
        probe_ask(core, probe, result, places, place_count,
            result->tickets[own].mode != MODE_EXCLUSIVE, lock);
    slab_free(&core->probes, probe);
}

static void
probe_read(
    struct core *core, struct probe *probe, const struct reading *reading)
{
    struct ticket *ticket = probe_ticket(core, probe);
    uint32_t at = probe->kind == 'D' ? probe->count : probe->index;
    uint32_t own = reading->result->ticket_count;

    require(list_empty(&probe->link) && probe->count <= PROBE_NODES);
    if (ticket != NULL)
        own = own_place(reading->result, &probe->nodes[at], ticket->upgrade);
    if (ticket != NULL && probe->count == 0 && ticket->looked < DOUBLED &&
        ticket->ask.permits_max == 0)
        ticket->looked++;
    if (own == reading->result->ticket_count)
        slab_free(&core->probes, probe);
    else if (probe->kind == 'D')
        probe_search(core, probe, reading, own, ticket);
    else
        probe_verify(core, probe, reading, own, ticket->lock);
}

void
deadlock_read(
    struct core *core, struct list *probes, const struct op_result *result)
{
    struct reading reading;
    uint32_t owners = 0;
    struct list *link;

    reading_begin(core, &reading, result);
    while (owners < STEP_OWNERS && effects_spare(core->effects) &&
           (link = list_pop_front(probes)) != NULL) {
        probe_read(core, container_of(link, struct probe, link), &reading);
        owners += result->ticket_count;
    }
}

/* --- what comes ----------------------------------------------------------- */

/* A wait that a probe may follow: of an owner that it asks after. */
struct way {
    const struct probe_asked *asked;
    struct ticket *ticket;
};

#define WAYS_MAX (WAITS_MAX + 1) /* of an owner */

static struct owner *
asked_owner(const struct core *core, const struct probe_asked *asked)
{
    const struct ticket *ticket =
        ticket_named(core, asked->request, asked->session, asked->owner);
    const struct session *session;

    if (ticket != NULL && ticket->who != NULL)
        return ticket->who;
    session = session_find(core, asked->session);
    return session != NULL ? owner_find(core, session, asked->owner) : NULL;
}

/* The owner's wait at that lock. NULL: none among the first SCAN_MAX. */
static struct ticket *
owner_wait_at(const struct core *core, const struct owner *owner,
    const struct probe_asked *asked, const struct lock *lock)
{
    struct ticket *ticket =
        ticket_named(core, asked->request, asked->session, asked->owner);
    uint32_t scanned = 0;

    require(owner->waiting <= owner->tickets);
    if (ticket != NULL && ticket->lock == lock)
        return ticket;
    LIST_EACH (link, &owner->waits) {
        ticket = container_of(link, struct ticket, wait_link);
        if (ticket->lock == lock)
            return ticket;
        if (++scanned == SCAN_MAX)
            break;
    }
    return NULL;
}

static uint32_t
add_way(struct core *core, uint64_t search, const struct probe_asked *asked,
    struct ticket *ticket, struct way *way)
{
    if (!wait_counts(ticket) || search_covers(core, search, ticket, false))
        return 0;
    search_visits(core, search, ticket);
    *way = (struct way){asked, ticket};
    return 1;
}

/*
 * The owner's waits; of many some, and others the next time. That at the lock
 * `passed` is none of them, where not somebody is still to be looked at there.
 */
static uint32_t
owner_ways(struct core *core, uint64_t search, const struct probe_asked *asked,
    const struct lock *passed, bool *again, struct way ways[WAYS_MAX])
{
    struct owner *owner = asked_owner(core, asked);
    uint32_t way_count = 0;

    if (owner == NULL)
        return 0;
    struct ticket *here =
        *again ? owner_wait_at(core, owner, asked, passed) : NULL;
    if (here != NULL && wait_counts(here)) {
        *again = false;
        way_count += add_way(core, search, asked, here, ways);
    }
    if (owner->waiting > WAITS_MAX && search_was_at(core, search, owner))
        return way_count;
    for (uint32_t i = 0; i < WAITS_MAX && i < owner->waiting; i++) {
        struct list *link = list_pop_front(&owner->waits);
        require(link != NULL); /* there are as many as `waiting` */
        struct ticket *ticket = container_of(link, struct ticket, wait_link);
        list_push_back(&owner->waits, link);
        if (ticket->lock != passed)
            way_count += add_way(core, search, asked, ticket, ways + way_count);
    }
    require(way_count <= WAYS_MAX);
    return way_count;
}

/* The probe goes on to that wait, whose record is inspected. */
static void
probe_follow(struct core *core, const struct probe *probe, struct way way)
{
    struct probe *next =
        probe_copy(core, probe, PROBE_FOLLOWS, way.ticket->lock);

    require(probe->count < PROBE_NODES);
    if (next == NULL)
        return;
    struct probe_node *node = &next->nodes[next->count];
    memcpy(node->session, way.asked->session, 16);
    node->owner = way.asked->owner;
    node->fence = way.asked->fence;
    probe_examine(core, next, way.ticket);
}

/* Follows of their waits at each lock the hindmost, if this search has not been
 * at one further behind. They are in the way of a wait for `passed`. */
static void
owners_asked(struct core *core, const struct probe *probe,
    const struct question *question, const struct lock *passed)
{
    uint64_t search = search_hash(core, &probe->nodes[0]);
    struct way ways[PROBE_ASKED * WAYS_MAX];
    uint32_t way_count = 0;
    bool again = question->again;

    require(question->count <= PROBE_ASKED && probe->count > 0);
    for (uint32_t i = 0; i < question->count; i++)
        way_count += owner_ways(core, search, &question->asked[i], passed,
            &again, ways + way_count);
    require(way_count <= question->count * WAYS_MAX);
    for (uint32_t i = 0; i < way_count; i++)
        if (!search_covers(core, search, ways[i].ticket, true))
            probe_follow(core, probe, ways[i]);
}

/* The wait of that node, if it is still the same one. */
static struct ticket *
probe_wait(const struct core *core, const struct probe_node *node)
{
    struct ticket *ticket =
        ticket_named(core, node->request, node->session, node->owner);

    return ticket != NULL && wait_counts(ticket) ? ticket : NULL;
}

/*
 * Whether the owner of that node has, or waits for, what the one before it
 * waits for. The record may be older than what was given back. A wait may have
 * been granted since. The hold below an upgrade that was given back stays.
 */
static bool
probe_stands(const struct core *core, const struct probe *probe)
{
    const struct probe_node *node = &probe->nodes[probe->index];
    uint32_t before = (probe->index + probe->count - 1) % probe->count;
    const struct session *session = session_find(core, node->session);
    const struct lock *lock = lock_find(core,
        text_make(probe->nodes[before].name, probe->nodes[before].name_len));

    require(probe->index < probe->count);
    if (session == NULL || lock == NULL)
        return false;
    LIST_EACH (link, &session->tickets) {
        const struct ticket *ticket =
            container_of(link, struct ticket, session_link);
        bool held = ticket->state == TICKET_HELD && !intent_is_idle(ticket) &&
                    (node->fence == 0 || node->fence == ticket->fence);
        bool waits = node->fence == 0 && ticket->state == TICKET_WAITING;
        if (ticket->lock == lock && ticket->owner_hash == node->owner &&
            (held || waits))
            return true;
    }
    return false;
}

/* 'K': the wait ends. */
static void
probe_kill(struct core *core, struct probe *probe)
{
    struct ticket *ticket = probe_wait(core, &probe->nodes[probe->index]);
    char list[RECENT_CYCLE_BYTES]; /* thrice as long in a line, encoded */
    char people[600];
    char why[700];
    char sessions[RECENT_SESSIONS_BYTES];

    if (ticket != NULL) {
        require(ticket->session != NULL && ticket->who != NULL);
        struct request *request =
            container_of(ticket->requests.next, struct request, ticket_link);
        struct text names = cycle_names(probe, list, sizeof(list));
        cycle_people(probe, people, sizeof(people));
        snprintf(why, sizeof(why), "sessions wait for one another: %s", people);
        count(core->counters, COUNTER_deadlocks);
        log_write(LOG_WARN, "deadlock", log_quoted("cycle", names),
            log_quoted("sessions", text_from(people)),
            log_word("ended", ticket->session->short_id));
        recent_deadlock(core, ticket, names, cycle_sessions(probe, sessions));
        ticket_deadlocked(core, ticket, request, names, why);
    }
    slab_free(&core->probes, probe);
}

static void
probe_arrived(struct core *core, struct probe *probe)
{
    struct ticket *ticket;

    require(probe->index < probe->count && list_empty(&probe->link));
    switch (probe->kind) {
    case 'V':
        ticket = probe_wait(core, &probe->nodes[probe->index]);
        if (ticket != NULL && probe_stands(core, probe))
            probe_examine(core, probe, ticket);
        else
            slab_free(&core->probes, probe);
        return;
    case 'K':
        probe_kill(core, probe);
        return;
    default:
        slab_free(&core->probes, probe);
    }
}

void
deadlock_message(struct core *core, struct text message)
{
    struct probe news = {0};
    struct question question;

    if (!probe_decode(message, &news, &question))
        return;
    require(news.count > 0 && news.count <= PROBE_NODES);
    if (news.kind == 'D') {
        const struct probe_node *last = &news.nodes[news.count - 1];
        owners_asked(core, &news, &question,
            lock_find(core, text_make(last->name, last->name_len)));
        return;
    }
    struct probe *probe = probe_copy(core, &news, PROBE_VERIFIES, NULL);
    if (probe != NULL)
        probe_arrived(core, probe);
}

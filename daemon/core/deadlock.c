/*
 * Deadlocks: owners that wait for one another in a circle, over any number of
 * locks and brokers.
 *
 * Edge-chasing after Chandy, Misra and Haas: when an owner that holds something
 * has waited for a moment, a probe goes to the brokers of all who are in its
 * way, and from those of them that wait too to whoever is in theirs. Where it
 * comes back to its owner there was a circle, but its edges were seen one after
 * the other. So it goes round a second time: an edge that was there both times,
 * with the same wait and the same fence, was there all the time between, and so
 * were all of them at the moment between the rounds. In the second one brokers
 * also say whether the owner has what it is waited for: the record alone may
 * tell of holds that were given back, where Redis has lost that. Then the
 * youngest wait is ended; all who find the circle find the same one.
 *
 * What is in a wait's way is read from the record: whoever holds the lock, and
 * whoever stands before and is not compatible. Of a semaphore only a sole
 * holder counts, since where there are several anyone of them may make room.
 *
 * A search comes to each owner once, or the ways through a few long queues
 * would be more than anybody can go: whichever way is the first is as good as
 * all. Nor is one queue gone through place by place: whoever stands before an
 * exclusive wait is in its way as well as in those of all between, and only
 * asked what else it waits for.
 */
#include "daemon/core/deadlock.h"

#include "daemon/base/assert.h"
#include "daemon/base/log.h"

#include <stdio.h>

#define FIRST_US  30000  /* a wait may end by itself */
#define AGAIN_US  600000 /* holders change, and messages are lost */
#define DOUBLED   4      /* so often it is twice as long the next time */
#define WAITS_MAX 8      /* of one owner, that a probe follows */

static void
look_soon(struct core *core, struct ticket *ticket)
{
    ticket->looked = 0;
    ticket_probe_at(core, ticket, core->now_us + core_jitter(core, FIRST_US));
}

/* The waits of an owner that were in no circle, and can be in one now. */
static void
look_at_waits(struct core *core, const struct owner *owner)
{
    LIST_EACH (link, &owner->waits) {
        struct ticket *ticket = container_of(link, struct ticket, wait_link);
        if (ticket->probe_us == NEVER)
            look_soon(core, ticket);
    }
}

/* A wait begins, or counts again as its LOCK was put again. */
void
deadlock_waits(struct core *core, struct ticket *ticket)
{
    const struct owner *owner = ticket->who;

    ticket->probe_us = NEVER;
    if (owner == NULL)
        return;
    if (owner->held + owner->waiting == 2)
        look_at_waits(core, owner);
    else if (owner_is_in_between(owner))
        look_soon(core, ticket);
}

/* One more hold of the owner. */
void
deadlock_held(struct core *core, const struct owner *owner)
{
    if (owner->held + owner->waiting == 2)
        look_at_waits(core, owner);
}

/* Whether a wait keeps its owner waiting. */
static bool
wait_counts(const struct ticket *ticket)
{
    if (ticket->state != TICKET_WAITING || list_empty(&ticket->pendings))
        return false;
    const struct pending *pending =
        container_of(ticket->pendings.next, struct pending, ticket_link);
    return pending->asked && pending->command == COMMAND_LOCK &&
           !pending->no_deadlock;
}

static void probe_arrived(struct core *core, struct probe *probe);

/* Sends the probe to a broker, this one or another; it is gone afterwards. The
 * lock only says where to ask Redis for that. */
static void
probe_send(struct core *core, struct probe *probe, const char *broker,
    struct lock *lock)
{
    if (memcmp(broker, core->settings.broker_id, 8) == 0) {
        probe_arrived(core, probe);
        return;
    }
    probe_tell(core, probe, NULL, 0, broker, lock);
    slab_free(&core->probes, probe);
}

static struct probe *
probe_copy(struct core *core, const struct probe *from)
{
    struct probe *probe = slab_alloc(&core->probes);

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
    probe->ticket = slab_handle(&core->tickets, ticket);
    look_ask(core, probe, ticket->lock);
}

/* The wait that it looks at, if that still keeps its owner waiting. */
static struct ticket *
probe_ticket(const struct core *core, const struct probe *probe)
{
    struct ticket *ticket = slab_get(&core->tickets, probe->ticket);

    return ticket != NULL && wait_counts(ticket) ? ticket : NULL;
}

/* Whether there still is something to look at. */
bool
deadlock_stands(const struct core *core, const struct probe *probe)
{
    return probe_ticket(core, probe) != NULL;
}

/*
 * A wait has lasted: looks whether it can end. Says when to look again.
 *
 * A circle comes to be with its youngest wait, which is looked at soon. What
 * was in none is looked at again for what may have gone wrong, and the more
 * rarely the longer it lasts; but semaphores, where a circle is there only when
 * others have given theirs back.
 */
uint64_t
deadlock_look(struct core *core, struct ticket *ticket)
{
    uint64_t again_us =
        core->now_us + core_jitter(core, AGAIN_US << ticket->looked);

    if (ticket->who == NULL || !owner_is_in_between(ticket->who))
        return NEVER;
    if (!wait_counts(ticket))
        return again_us;
    struct probe *probe = slab_alloc(&core->probes);
    if (probe == NULL)
        return again_us;
    probe->kind = 'D';
    memcpy(probe->nodes[0].session, ticket->session_id, 16);
    probe->nodes[0].owner = ticket->owner_hash;
    probe->nodes[0].fence = ++core->serial; /* tells searches apart */
    probe_examine(core, probe, ticket);
    if (ticket->ask.permits_max == 0 && ticket->looked < DOUBLED)
        ticket->looked++;
    return again_us;
}

static bool
is_owner(const struct op_ticket *ticket, const struct probe_node *node)
{
    return memcmp(ticket->session, node->session, 16) == 0 &&
           memcmp(ticket->owner_hash, &node->owner, 8) == 0;
}

/* A waiter that nobody has asked after for its whole life. Who doubts the clock
 * sees it still, and others do not: by both together there would be circles
 * through what an ended request has left in the queue. */
static bool
is_over(const struct op_ticket *ticket)
{
    return !ticket->granted && ticket->ttl_ms == 0;
}

/* A record, for the probes that wait for it. */
struct reading {
    const struct op_result *result;
    bool left[LOOK_TICKETS];
};

/*
 * The waits that an ended request has left: their owners wait further behind.
 * Nobody asks after them, and they end. One walk from the end of the queue, for
 * there may be hundreds, with the owners that were met in a table of hashes.
 */
static void
find_left(const struct core *core, struct reading *reading)
{
    const struct op_result *result = reading->result;
    uint64_t met[2 * LOOK_TICKETS] = {0};

    require(result->ticket_count <= LOOK_TICKETS);
    for (uint32_t i = result->ticket_count; i > 0; i--) {
        const struct op_ticket *ticket = &result->tickets[i - 1];
        uint8_t owner[24];
        reading->left[i - 1] = false;
        if (ticket->granted || is_over(ticket))
            continue;
        memcpy(owner, ticket->session, 16);
        memcpy(owner + 16, ticket->owner_hash, 8);
        uint64_t hash = hash_bytes(&core->hash_key, owner, sizeof(owner)) | 1;
        uint32_t at = (uint32_t)(hash >> 32) % (2 * LOOK_TICKETS);
        while (met[at] != 0 && met[at] != hash)
            at = (at + 1) % (2 * LOOK_TICKETS);
        reading->left[i - 1] = met[at] == hash;
        met[at] = hash;
    }
}

/* Whether the one at `other`, before that at `own`, must go first. */
static bool
in_the_way(const struct reading *reading, uint32_t own, uint32_t other)
{
    const struct op_result *result = reading->result;
    const struct op_ticket *before = &result->tickets[other];

    if (reading->left[other] || is_over(before))
        return false;
    if (result->limit > 0)
        return before->granted && result->holders == 1;
    return !(result->tickets[own].shared && before->shared);
}

/* The place of the wait among the tickets, the last of its owner; ticket_count:
 * it is not there, or is in nobody's way for long. Nobody waits for what it
 * holds: a hold of the same owner is one of an earlier request, which nobody
 * renews, and ends. */
static uint32_t
own_place(const struct op_result *result, const struct probe_node *own)
{
    uint32_t place = result->ticket_count;

    for (uint32_t i = 0; i < result->ticket_count; i++) {
        if (!is_owner(&result->tickets[i], own) || is_over(&result->tickets[i]))
            continue;
        if (result->tickets[i].granted)
            return result->ticket_count;
        place = i;
    }
    return place;
}

/* Somebody in the way is the one who began: there may be a circle. */
static void
probe_closes(struct core *core, const struct probe *probe,
    const struct op_ticket *first, struct lock *lock)
{
    struct probe *next = probe_copy(core, probe);

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
    const struct probe_asked *asked, uint32_t asked_count);

/*
 * Asks after the owners at these places of the record, each at its broker.
 *
 * All who are in the way of a wait before an exclusive one are in the way of
 * that, too. A shared one is not kept waiting by those who share the lock, but
 * is by who stands between: the first of those, at places[0], is asked who is
 * in its way there.
 */
static void
probe_ask(struct core *core, const struct probe *probe,
    const struct op_result *result, uint32_t *places, uint32_t place_count,
    bool again)
{
    struct lock *lock =
        lock_find(core, text_make(probe->nodes[probe->count - 1].name,
                            probe->nodes[probe->count - 1].name_len));

    while (place_count > 0) {
        const char *broker = result->tickets[places[0]].broker;
        struct probe_asked asked[PROBE_ASKED];
        uint32_t asked_count = 0;
        uint32_t kept = 0;
        for (uint32_t i = 0; i < place_count; i++) {
            const struct op_ticket *ticket = &result->tickets[places[i]];
            if (asked_count == PROBE_ASKED ||
                memcmp(ticket->broker, broker, 8) != 0) {
                places[kept++] = places[i];
                continue;
            }
            struct probe_asked *one = &asked[asked_count++];
            memcpy(one->session, ticket->session, 16);
            memcpy(&one->owner, ticket->owner_hash, 8);
            one->fence = ticket->fence;
            one->again = again;
            again = false;
        }
        place_count = kept;
        if (memcmp(broker, core->settings.broker_id, 8) == 0)
            owners_asked(core, probe, asked, asked_count);
        else
            probe_tell(core, probe, asked, asked_count, broker, lock);
    }
}

/* The circle stood: its youngest wait is to end. */
static void
probe_conclude(struct core *core, struct probe *probe, struct lock *lock)
{
    uint32_t victim = 0;

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

/* Second round: the next one must be in the way still. */
static void
probe_verify(struct core *core, struct probe *probe,
    const struct reading *reading, uint32_t own, struct lock *lock)
{
    uint32_t next = (probe->index + 1) % probe->count;
    const struct probe_node *node = &probe->nodes[next];
    bool stands = false;

    for (uint32_t i = 0; i < own; i++) {
        const struct op_ticket *ticket = &reading->result->tickets[i];
        if (is_owner(ticket, node) && ticket->fence == node->fence &&
            in_the_way(reading, own, i))
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
    const struct reading *reading, uint32_t own, const struct ticket *ticket)
{
    const struct op_result *result = reading->result;
    struct probe_node *node = &probe->nodes[probe->count++];
    struct lock *lock = ticket->lock;
    uint32_t places[LOOK_TICKETS];
    uint32_t place_count = 0;

    memcpy(node->broker, core->settings.broker_id, 8);
    node->request = handle_pack(slab_handle(&core->tickets, ticket));
    node->since_us = result->tickets[own].since_us;
    node->name_len = (uint8_t)lock->name_len;
    memcpy(node->name, lock->name, lock->name_len);
    for (uint32_t i = own; i > 0; i--) {
        const struct op_ticket *other = &result->tickets[i - 1];
        if (!in_the_way(reading, own, i - 1))
            continue;
        if (is_owner(other, &probe->nodes[0])) {
            if (probe->count > 1)
                probe_closes(core, probe, other, lock);
        } else if (!probe_has(probe, other)) {
            places[place_count++] = i - 1;
        }
    }
    if (probe->count < PROBE_NODES)
        probe_ask(core, probe, result, places, place_count,
            result->tickets[own].shared);
    slab_free(&core->probes, probe);
}

static void
probe_read(
    struct core *core, struct probe *probe, const struct reading *reading)
{
    const struct ticket *ticket = probe_ticket(core, probe);
    uint32_t at = probe->kind == 'D' ? probe->count : probe->index;
    uint32_t own = reading->result->ticket_count;

    if (ticket != NULL)
        own = own_place(reading->result, &probe->nodes[at]);
    if (own == reading->result->ticket_count)
        slab_free(&core->probes, probe);
    else if (probe->kind == 'D')
        probe_search(core, probe, reading, own, ticket);
    else
        probe_verify(core, probe, reading, own, ticket->lock);
}

/* The record of what all of them wait for. Takes them from the list, as many as
 * the step has room for. */
void
deadlock_read(
    struct core *core, struct list *probes, const struct op_result *result)
{
    struct reading reading = {.result = result};
    struct list *link;

    find_left(core, &reading);
    while (
        effects_spare(core->effects) && (link = list_pop_front(probes)) != NULL)
        probe_read(core, container_of(link, struct probe, link), &reading);
}

/* --- what comes ----------------------------------------------------------- */

/* Whether this search has come to the owner before; it is noted. (One that was
 * forgotten is gone to again.) */
static bool
probe_seen(struct core *core, const struct probe *probe,
    const struct probe_asked *asked)
{
    const struct probe_node *first = &probe->nodes[0];

    struct {
        uint64_t search;
        uint64_t owner;
        uint8_t session[16];
        char broker[8];
    } key = {.search = first->fence, .owner = asked->owner};

    memcpy(key.session, asked->session, sizeof(key.session));
    memcpy(key.broker, first->broker, sizeof(key.broker));
    uint64_t hash = hash_bytes(&core->hash_key, &key, sizeof(key));
    uint64_t *slot = &core->probes_seen[hash % PROBES_SEEN];
    bool seen = *slot == hash;
    *slot = hash;
    return seen;
}

/* Who is in the way of that wait, which is the next one on the probe's way? */
static void
probe_follow(struct core *core, const struct probe *probe,
    const struct probe_asked *asked, struct ticket *ticket)
{
    struct probe *next = probe_copy(core, probe);

    if (next == NULL)
        return;
    struct probe_node *node = &next->nodes[next->count];
    memcpy(node->session, asked->session, 16);
    node->owner = asked->owner;
    node->fence = asked->fence;
    probe_examine(core, next, ticket);
}

/* Follows the owner's waits, but one at the lock `passed`; of many some, by
 * chance, so that a later search finds what this one does not. */
static void
owner_asked(struct core *core, const struct probe *probe,
    const struct probe_asked *asked, const struct lock *passed)
{
    const struct session *session = session_find(core, asked->session);
    const struct owner *owner =
        session != NULL ? owner_find(core, session, asked->owner) : NULL;

    if (owner == NULL || owner->waiting == 0)
        return;
    const struct ticket *first =
        container_of(owner->waits.next, struct ticket, wait_link);
    if (owner->waiting == 1 && first->lock == passed)
        return;
    if (probe_seen(core, probe, asked))
        return;
    uint32_t waits = owner->waiting;
    uint32_t left = WAITS_MAX;
    LIST_EACH (link, &owner->waits) {
        struct ticket *ticket = container_of(link, struct ticket, wait_link);
        bool drawn = random_below(&core->random, waits--) < left;
        if (!drawn || ticket->lock == passed || !wait_counts(ticket))
            continue;
        probe_follow(core, probe, asked, ticket);
        left--;
    }
}

static void
owners_asked(struct core *core, const struct probe *probe,
    const struct probe_asked *asked, uint32_t asked_count)
{
    const struct probe_node *last = &probe->nodes[probe->count - 1];
    const struct lock *passed =
        lock_find(core, text_make(last->name, last->name_len));

    for (uint32_t i = 0; i < asked_count; i++)
        owner_asked(core, probe, &asked[i], asked[i].again ? NULL : passed);
}

/* The wait of that node, if it is still the same one. */
static struct ticket *
probe_wait(struct core *core, const struct probe_node *node)
{
    struct ticket *ticket =
        slab_get(&core->tickets, handle_unpack(node->request));

    if (ticket == NULL || !wait_counts(ticket) ||
        ticket->owner_hash != node->owner ||
        memcmp(ticket->session_id, node->session, 16) != 0)
        return NULL;
    return ticket;
}

/*
 * Whether the owner of that node has, or waits for, what the one before it
 * waits for. The record may be older than what was given back.
 */
static bool
probe_stands(const struct core *core, const struct probe *probe)
{
    const struct probe_node *node = &probe->nodes[probe->index];
    uint32_t before = (probe->index + probe->count - 1) % probe->count;
    const struct session *session = session_find(core, node->session);
    const struct lock *lock = lock_find(core,
        text_make(probe->nodes[before].name, probe->nodes[before].name_len));

    if (session == NULL || lock == NULL)
        return false;
    LIST_EACH (link, &session->tickets) {
        const struct ticket *ticket =
            container_of(link, struct ticket, session_link);
        if (ticket->lock == lock && ticket->owner_hash == node->owner)
            return ticket->state == TICKET_HELD ||
                   (node->fence == 0 && ticket->state == TICKET_WAITING);
    }
    return false;
}

/* A name as part of a list: what could be taken for the list's is encoded. */
static size_t
circle_name(const struct probe_node *node, char out[3 * PROTO_NAME_MAX])
{
    size_t len = 0;

    for (size_t i = 0; i < node->name_len; i++) {
        char c = node->name[i];
        if (c == ',' || c == '%') {
            memcpy(out + len, c == ',' ? "%2C" : "%25", 3);
            len += 3;
        } else {
            out[len++] = c;
        }
    }
    return len;
}

/* "x,y,z": each waited for by the holder of the one before; where they are too
 * many, a comma at the end says that there are more. */
static struct text
circle_names(const struct probe *probe, char *out, size_t out_bytes)
{
    char name[3 * PROTO_NAME_MAX];
    size_t len = 0;

    for (uint32_t i = 0; i < probe->count; i++) {
        size_t name_len = circle_name(&probe->nodes[i], name);
        if (i > 0)
            out[len++] = ',';
        if (len + name_len + 2 > out_bytes)
            break;
        memcpy(out + len, name, name_len);
        len += name_len;
    }
    return text_make(out, len);
}

static void
circle_people(const struct probe *probe, char *out, size_t out_bytes)
{
    size_t len = 0;

    out[0] = '\0';
    for (uint32_t i = 0; i < probe->count && len + 40 < out_bytes; i++) {
        const struct probe_node *node = &probe->nodes[i];
        char id[SHORT_ID_BYTES + 1];
        core_short_id(node->session, id);
        len += (size_t)snprintf(
            out + len, out_bytes - len, "%s%s", i > 0 ? ", for " : "", id);
    }
}

static struct text
circle_sessions(const struct probe *probe, char *out)
{
    size_t len = 0;

    for (uint32_t i = 0; i < probe->count; i++) {
        if (i > 0)
            out[len++] = ',';
        core_short_id(probe->nodes[i].session, out + len);
        len += SHORT_ID_BYTES;
    }
    return text_make(out, len);
}

/* 'K': the wait ends. */
static void
probe_kill(struct core *core, struct probe *probe)
{
    struct ticket *ticket = probe_wait(core, &probe->nodes[probe->index]);
    char list[RECENT_CYCLE_BYTES]; /* thrice as long in a line, encoded */
    char quoted[2 * sizeof(list)];
    char people[600];
    char why[700];
    char sessions[RECENT_SESSIONS_BYTES];

    if (ticket != NULL) {
        struct pending *pending =
            container_of(ticket->pendings.next, struct pending, ticket_link);
        struct text names = circle_names(probe, list, sizeof(list));
        circle_people(probe, people, sizeof(people));
        snprintf(why, sizeof(why), "sessions wait for one another: %s", people);
        count(core->counters, COUNTER_deadlocks);
        log_write(LOG_WARN, "deadlock", "cycle=%s sessions=\"%s\" ended=%s",
            log_quote(quoted, sizeof(quoted), names), people,
            ticket->session->short_id);
        recent_deadlock(core, ticket, names, circle_sessions(probe, sessions));
        ticket_deadlocked(core, ticket, pending, names, why);
    }
    slab_free(&core->probes, probe);
}

static void
probe_arrived(struct core *core, struct probe *probe)
{
    struct ticket *ticket;

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

/* A message of another broker. */
void
deadlock_message(struct core *core, struct text message)
{
    struct probe *probe = slab_alloc(&core->probes);
    struct probe_asked asked[PROBE_ASKED];
    uint32_t asked_count;

    if (probe == NULL)
        return;
    list_init(&probe->link);
    if (!probe_decode(message, probe, asked, &asked_count)) {
        slab_free(&core->probes, probe);
    } else if (probe->kind == 'D') {
        owners_asked(core, probe, asked, asked_count);
        slab_free(&core->probes, probe);
    } else {
        probe_arrived(core, probe);
    }
}

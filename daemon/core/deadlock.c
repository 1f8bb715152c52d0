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
 * all.
 */
#include "daemon/core/state.h"

#include "daemon/base/assert.h"
#include "daemon/base/log.h"

#include <stdio.h>

#define FIRST_US  30000  /* a wait may end by itself */
#define AGAIN_US  600000 /* holders change, and messages are lost */
#define WAITS_MAX 8      /* of one owner, that a probe follows */

/* 'D' looks for a circle, 'V' verifies it, 'K' ends a wait of it. */
#define NODE_BYTES (16 + 8 + 8 + 8 + 8 + 8 + 1)

/* The waits of an owner that were in no circle, and can be in one now. */
static void
look_at_waits(struct core *core, const struct owner *owner)
{
    LIST_EACH (link, &owner->waits) {
        struct ticket *ticket = container_of(link, struct ticket, wait_link);
        if (ticket->probe_us == NEVER)
            ticket_probe_at(
                core, ticket, core->now_us + core_jitter(core, FIRST_US));
    }
}

/* A wait begins. */
void
deadlock_waits(struct core *core, struct ticket *ticket)
{
    ticket->probe_us = NEVER;
    if (ticket->who != NULL && owner_is_in_between(ticket->who))
        look_at_waits(core, ticket->who);
}

/* One more hold of the owner. */
void
deadlock_held(struct core *core, const struct owner *owner)
{
    if (owner->held == 1)
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

static bool
same_owner(const struct probe_node *a, const struct probe_node *b)
{
    return a->owner == b->owner && memcmp(a->session, b->session, 16) == 0;
}

/* --- messages ------------------------------------------------------------- */

static char *
put(char *at, const void *bytes, size_t len)
{
    memcpy(at, bytes, len);
    return at + len;
}

/* kind, count, index, then the nodes; of 'D' one more, which is to be asked. */
static void
probe_encode(struct probe *probe)
{
    uint32_t nodes = probe->count + (probe->kind == 'D');
    char *at = probe->payload;

    *at++ = probe->kind;
    *at++ = (char)probe->count;
    *at++ = (char)probe->index;
    for (uint32_t i = 0; i < nodes; i++) {
        const struct probe_node *node = &probe->nodes[i];
        at = put(at, node->session, 16);
        at = put(at, &node->owner, 8);
        at = put(at, node->broker, 8);
        at = put(at, &node->request, 8);
        at = put(at, &node->since_us, 8);
        at = put(at, &node->fence, 8);
        *at++ = (char)node->name_len;
        at = put(at, node->name, node->name_len);
    }
    probe->payload_len = (uint32_t)(at - probe->payload);
}

static bool
get(struct text *from, void *bytes, size_t len)
{
    if (from->len < len)
        return false;
    memcpy(bytes, from->at, len);
    *from = text_make(from->at + len, from->len - len);
    return true;
}

static bool
node_decode(struct text *from, struct probe_node *node)
{
    return get(from, node->session, 16) && get(from, &node->owner, 8) &&
           get(from, node->broker, 8) && get(from, &node->request, 8) &&
           get(from, &node->since_us, 8) && get(from, &node->fence, 8) &&
           get(from, &node->name_len, 1) &&
           get(from, node->name, node->name_len);
}

/* What comes from Redis is not trusted. */
static bool
probe_decode(struct text from, struct probe *probe)
{
    uint8_t head[3];

    if (!get(&from, head, sizeof(head)))
        return false;
    probe->kind = (char)head[0];
    probe->count = head[1];
    probe->index = head[2];
    uint32_t nodes = probe->count + (probe->kind == 'D');
    if (probe->count == 0 || nodes > PROBE_NODES ||
        (probe->kind != 'D' && probe->index >= probe->count))
        return false;
    for (uint32_t i = 0; i < nodes; i++)
        if (!node_decode(&from, &probe->nodes[i]))
            return false;
    return from.len == 0;
}

static void probe_arrived(struct core *core, struct probe *probe);

/* The probe keeps what is sent until it is gone. */
static void
probe_submit(
    struct core *core, struct probe *probe, const char *broker, struct op *op)
{
    memcpy(probe->to, broker, 8);
    op->words[0] = text_make(probe->to, 8);
    op->words[1] = text_make(probe->payload, probe->payload_len);
    op->give_up_us = core->now_us + core->settings.command_timeout_us;
    op_submit(core, op);
}

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
    struct op *op =
        op_create(core, OP_PUBLISH, lock, slab_handle(&core->probes, probe));
    if (op == NULL) {
        slab_free(&core->probes, probe);
        return;
    }
    probe_encode(probe);
    count(core->counters, COUNTER_deadlock_probes);
    probe_submit(core, probe, broker, op);
}

/* The message is out, or is not: then a later one will be. */
void
deadlock_sent(struct core *core, struct op *op)
{
    struct probe *probe = slab_get(&core->probes, op->owner);

    if (probe == NULL)
        return;
    if (op->result.status == OP_OK)
        audit_told(core, text_make(probe->payload, probe->payload_len));
    slab_free(&core->probes, probe);
}

/* Another message to a broker, which may be lost, or not even leave. */
void
deadlock_tell(struct core *core, const char broker[8], struct text name,
    struct text words)
{
    struct probe *probe = slab_alloc(&core->probes);
    struct lock *lock = probe != NULL ? lock_obtain(core, name) : NULL;
    struct op *op = NULL;

    if (lock != NULL) {
        op = op_create(
            core, OP_PUBLISH, lock, slab_handle(&core->probes, probe));
        lock_unref(core, lock);
    }
    if (op == NULL) {
        if (probe != NULL)
            slab_free(&core->probes, probe);
        return;
    }
    require(words.len <= sizeof(probe->payload));
    memcpy(probe->payload, words.at, words.len);
    probe->payload_len = (uint32_t)words.len;
    probe_submit(core, probe, broker, op);
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
    memcpy(
        probe->nodes, from->nodes, (from->count + 1) * sizeof(probe->nodes[0]));
    return probe;
}

/* --- looking at a wait ---------------------------------------------------- */

/* Reads who is in the wait's way. */
static void
probe_examine(struct core *core, struct probe *probe, struct ticket *ticket)
{
    struct op *op = op_create(
        core, OP_INSPECT, ticket->lock, slab_handle(&core->probes, probe));

    if (op == NULL) {
        slab_free(&core->probes, probe);
        return;
    }
    probe->ticket = slab_handle(&core->tickets, ticket);
    op->reader = READER_DEADLOCK;
    op->limit = PROBE_TICKETS;
    op->give_up_us = core->now_us + core->settings.command_timeout_us;
    op_submit(core, op);
}

/* A wait has lasted: looks whether it can end. Says when to look again. */
uint64_t
deadlock_look(struct core *core, struct ticket *ticket)
{
    uint64_t again_us = core->now_us + core_jitter(core, AGAIN_US);

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
    return again_us;
}

static void
node_of(const struct op_ticket *ticket, struct probe_node *node)
{
    memset(node, 0, sizeof(*node));
    memcpy(node->session, ticket->session, 16);
    memcpy(&node->owner, ticket->owner_hash, 8);
    memcpy(node->broker, ticket->broker, 8);
    node->fence = ticket->fence;
}

/* A waiter that nobody has asked after for its whole life. Who doubts the clock
 * sees it still, and others do not: by both together there would be circles
 * through what an ended request has left in the queue. */
static bool
is_over(const struct op_ticket *ticket)
{
    return !ticket->granted && ticket->ttl_ms == 0;
}

/*
 * The waits that an ended request has left: their owners wait further behind.
 * Nobody asks after them, and they end. One walk from the end of the queue, for
 * there may be hundreds, with the owners that were met in a table of hashes.
 */
static void
find_left(const struct core *core, const struct op_result *result, bool left[])
{
    uint64_t met[2 * PROBE_TICKETS] = {0};

    require(result->ticket_count <= PROBE_TICKETS);
    for (uint32_t i = result->ticket_count; i > 0; i--) {
        const struct op_ticket *ticket = &result->tickets[i - 1];
        uint8_t owner[24];
        left[i - 1] = false;
        if (ticket->granted || is_over(ticket))
            continue;
        memcpy(owner, ticket->session, 16);
        memcpy(owner + 16, ticket->owner_hash, 8);
        uint64_t hash = hash_bytes(&core->hash_key, owner, sizeof(owner)) | 1;
        uint32_t at = (uint32_t)(hash >> 32) % (2 * PROBE_TICKETS);
        while (met[at] != 0 && met[at] != hash)
            at = (at + 1) % (2 * PROBE_TICKETS);
        left[i - 1] = met[at] == hash;
        met[at] = hash;
    }
}

/* Whether `other`, which stands before, must go before `own` is granted. */
static bool
in_the_way(const struct op_result *result, const struct op_ticket *own,
    const struct op_ticket *other)
{
    if (is_over(other))
        return false;
    if (result->limit > 0)
        return other->granted && result->holders == 1;
    return !(own->shared && other->shared);
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
        struct probe_node node;
        node_of(&result->tickets[i], &node);
        if (!same_owner(&node, own) || is_over(&result->tickets[i]))
            continue;
        if (result->tickets[i].granted)
            return result->ticket_count;
        place = i;
    }
    return place;
}

static bool
probe_has(const struct probe *probe, const struct probe_node *node)
{
    for (uint32_t i = 0; i < probe->count; i++)
        if (same_owner(&probe->nodes[i], node))
            return true;
    return false;
}

/* Where somebody in the way is the one who began, there may be a circle; else
 * he is asked. */
static void
probe_follow(struct core *core, const struct probe *probe,
    const struct probe_node *node, struct lock *lock)
{
    bool closed = same_owner(&probe->nodes[0], node);

    if (!closed && (probe_has(probe, node) || probe->count == PROBE_NODES))
        return;
    struct probe *next = probe_copy(core, probe);
    if (next == NULL)
        return;
    if (closed) {
        next->kind = 'V';
        next->index = 0;
        next->nodes[0].fence = node->fence;
        probe_send(core, next, next->nodes[0].broker, lock);
    } else {
        next->nodes[next->count] = *node;
        probe_send(core, next, node->broker, lock);
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
    const struct op_result *result, uint32_t own, struct lock *lock)
{
    uint32_t next = (probe->index + 1) % probe->count;
    bool left[PROBE_TICKETS];
    bool stands = false;

    find_left(core, result, left);
    for (uint32_t i = 0; i < own; i++) {
        struct probe_node node;
        node_of(&result->tickets[i], &node);
        if (!left[i] && same_owner(&node, &probe->nodes[next]) &&
            node.fence == probe->nodes[next].fence &&
            in_the_way(result, &result->tickets[own], &result->tickets[i]))
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
    probe_send(core, probe, probe->nodes[next].broker, lock);
}

/* First round: the wait becomes part of the way that the probe has gone. */
static void
probe_search(struct core *core, struct probe *probe,
    const struct op_result *result, uint32_t own, struct ticket *ticket)
{
    struct probe_node *node = &probe->nodes[probe->count];
    struct lock *lock = ticket->lock;
    bool left[PROBE_TICKETS];

    find_left(core, result, left);
    memcpy(node->broker, core->settings.broker_id, 8);
    node->request = handle_pack(slab_handle(&core->tickets, ticket));
    node->since_us = result->tickets[own].since_us;
    node->name_len = (uint8_t)lock->name_len;
    memcpy(node->name, lock->name, lock->name_len);
    probe->count++;
    lock_ref(lock);
    for (uint32_t i = 0; i < own; i++) {
        struct probe_node other;
        node_of(&result->tickets[i], &other);
        if (!left[i] && !same_owner(&other, node) &&
            in_the_way(result, &result->tickets[own], &result->tickets[i]))
            probe_follow(core, probe, &other, lock);
    }
    lock_unref(core, lock);
    slab_free(&core->probes, probe);
}

void
deadlock_inspected(struct core *core, struct op *op)
{
    struct probe *probe = slab_get(&core->probes, op->owner);

    if (probe == NULL)
        return;
    struct ticket *ticket = slab_get(&core->tickets, probe->ticket);
    const struct op_result *result = &op->result;
    uint32_t at = probe->kind == 'D' ? probe->count : probe->index;
    uint32_t own = result->ticket_count;
    if (ticket != NULL && result->status == OP_OK && wait_counts(ticket))
        own = own_place(result, &probe->nodes[at]);
    if (own == result->ticket_count)
        slab_free(&core->probes, probe);
    else if (probe->kind == 'D')
        probe_search(core, probe, result, own, ticket);
    else
        probe_verify(core, probe, result, own, ticket->lock);
}

/* --- what comes ----------------------------------------------------------- */

/* Whether this search has come to the owner before; it is noted. (One that was
 * forgotten is gone to again.) */
static bool
probe_seen(struct core *core, const struct probe *probe)
{
    const struct probe_node *first = &probe->nodes[0];
    const struct probe_node *node = &probe->nodes[probe->count];

    struct {
        uint64_t search;
        uint64_t owner;
        uint8_t session[16];
        char broker[8];
    } key = {.search = first->fence, .owner = node->owner};

    memcpy(key.session, node->session, sizeof(key.session));
    memcpy(key.broker, first->broker, sizeof(key.broker));
    uint64_t hash = hash_bytes(&core->hash_key, &key, sizeof(key));
    uint64_t *slot = &core->probes_seen[hash % PROBES_SEEN];
    bool seen = *slot == hash;
    *slot = hash;
    return seen;
}

/* 'D': the waits of the owner that is asked about; of many some, by chance, so
 * that a later search finds what this one does not. */
static void
probe_spread(struct core *core, struct probe *probe)
{
    const struct probe_node *node = &probe->nodes[probe->count];
    const struct session *session = session_find(core, node->session);
    const struct owner *owner =
        session != NULL ? owner_find(core, session, node->owner) : NULL;

    if (owner != NULL && owner->waiting > 0 && !probe_seen(core, probe)) {
        uint32_t waits = owner->waiting;
        uint32_t left = WAITS_MAX;
        LIST_EACH (link, &owner->waits) {
            struct ticket *ticket =
                container_of(link, struct ticket, wait_link);
            bool drawn = random_below(&core->random, waits--) < left;
            if (!drawn || !wait_counts(ticket))
                continue;
            struct probe *copy = probe_copy(core, probe);
            if (copy != NULL)
                probe_examine(core, copy, ticket);
            left--;
        }
    }
    slab_free(&core->probes, probe);
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
    case 'D':
        probe_spread(core, probe);
        return;
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

    if (probe == NULL)
        return;
    if (probe_decode(message, probe))
        probe_arrived(core, probe);
    else
        slab_free(&core->probes, probe);
}

/*
 * A fake Redis among others: slots and redirects, what it believes of the other
 * nodes, and replication.
 *
 * A master keeps what its commands wrote, key by key, until each replica has
 * applied it. A replica whose master was started anew takes a full copy before
 * anything else. Nothing moves by itself: the caller says when.
 */
#include "tests/sim/fake_state.h"

#include "daemon/base/slot.h"

#include <stdlib.h>

/* --- the map -------------------------------------------------------------- */

/* The index of a server among the peers, where it is put if need be. */
static uint8_t
peer_of(struct fake *fake, const struct fake *other)
{
    struct cluster *cluster = fake->cluster;
    size_t index = 0;

    while (index < cluster->peer_count && cluster->peers[index].fake != other)
        index++;
    require(index < FAKE_NODES_MAX);
    struct peer *peer = &cluster->peers[index];
    if (index == cluster->peer_count) {
        cluster->peer_count++;
        memset(peer, 0, sizeof(*peer));
        peer->fake = other;
    }
    memcpy(peer->id, other->node_id, sizeof(peer->id));
    memcpy(peer->host, other->settings.host, sizeof(peer->host));
    peer->port = other->settings.port;
    return (uint8_t)index;
}

void
fake_map_slot(struct fake *fake, uint16_t slot, const struct fake *owner)
{
    require(fake->cluster != NULL && slot < FAKE_SLOTS);
    fake->cluster->owner[slot] =
        owner != NULL ? (uint8_t)(peer_of(fake, owner) + 1) : 0;
}

void
fake_map_replica(
    struct fake *fake, const struct fake *master, const struct fake *replica)
{
    require(fake->cluster != NULL);
    fake->cluster->peers[peer_of(fake, replica)].master = master;
}

void
fake_unmap_replicas(struct fake *fake)
{
    require(fake->cluster != NULL);
    for (size_t i = 0; i < fake->cluster->peer_count; i++)
        fake->cluster->peers[i].master = NULL;
}

/* NULL: the slot is not open there. */
static struct open_slot *
open_find(struct open_slot *slots, size_t count, int slot)
{
    for (size_t i = 0; i < count; i++)
        if (slots[i].slot == slot)
            return &slots[i];
    return NULL;
}

static void
open_set(struct fake *fake, struct open_slot **slots, size_t *count,
    size_t *cap, uint16_t slot, const struct fake *other)
{
    struct open_slot *open = open_find(*slots, *count, slot);

    require(slot < FAKE_SLOTS);
    if (other == NULL) {
        if (open != NULL)
            *open = (*slots)[--*count];
        return;
    }
    if (open == NULL) {
        *slots = array_room(*slots, *count, cap, sizeof(struct open_slot));
        open = &(*slots)[(*count)++];
        open->slot = slot;
    }
    open->peer = peer_of(fake, other);
}

void
fake_migrating(struct fake *fake, uint16_t slot, const struct fake *to)
{
    struct cluster *cluster = fake->cluster;

    open_set(fake, &cluster->migrating, &cluster->migrating_count,
        &cluster->migrating_cap, slot, to);
}

void
fake_importing(struct fake *fake, uint16_t slot, const struct fake *from)
{
    struct cluster *cluster = fake->cluster;

    open_set(fake, &cluster->importing, &cluster->importing_count,
        &cluster->importing_cap, slot, from);
}

unsigned
fake_move_keys(struct fake *from, struct fake *to, uint16_t slot, unsigned n)
{
    unsigned moved = 0;

    require(from->depth == 0 && to->depth == 0);
    for (size_t i = 0; i < from->keys.count && moved < n;) {
        struct key *key = from->keys.all[i];
        if (key->slot != slot) {
            i++;
            continue;
        }
        if (key_expired(from, key)) { /* MIGRATE does not find it */
            keys_remove(from, key);
            continue;
        }
        struct text name = text_make(key->name, key->name_len);
        struct key *copy = keys_find(&to->keys, name);
        if (copy == NULL)
            copy = keys_add(to, name);
        keys_touch(to, copy);
        copy->type = key->type;
        copy->value.len = 0;
        bytes_add(&copy->value, key->value.at, key->value.len);
        keys_set_expiry(to, copy, key->expires_ms);
        keys_remove(from, key);
        moved++;
    }
    keys_flush(from);
    keys_flush(to);
    return moved;
}

/* --- redirects ------------------------------------------------------------ */

/* The slot of all keys of a command. */
struct key_count {
    int slot; /* -1: there is no key */
    bool several;
    size_t here;
    size_t missing;
};

/* False: they are of several slots. */
static bool
count_keys(const struct call *call, struct key_count *count)
{
    size_t first;
    size_t keys;

    *count = (struct key_count){.slot = -1};
    command_keys(call->command, call->arg, call->count, &first, &keys);
    for (size_t i = 0; i < keys; i++) {
        struct text name = call->arg[first + i];
        if (i == 0)
            count->slot = slot_of_key(name);
        else if (!text_equal(name, call->arg[first])) {
            if (slot_of_key(name) != count->slot)
                return false;
            count->several = true;
        }
    }
    return true;
}

/* Only for slots that are open. */
static void
count_missing(const struct call *call, struct key_count *count)
{
    size_t first;
    size_t keys;
    int64_t now_ms = fake_now_ms(call->fake);

    command_keys(call->command, call->arg, call->count, &first, &keys);
    for (size_t i = 0; i < keys; i++) {
        const struct key *key =
            keys_find(&call->fake->keys, call->arg[first + i]);
        if (key != NULL &&
            (key->expires_ms == FAKE_NEVER_MS || now_ms <= key->expires_ms))
            count->here++;
        else
            count->missing++;
    }
}

/* An open slot; REDIRECT_NONE with `*served` false: as if it were closed. */
static enum redirect
route_open(const struct call *call, struct key_count *count, bool mine,
    bool *served, const struct peer **peer)
{
    struct cluster *cluster = call->fake->cluster;
    const struct open_slot *migrating =
        open_find(cluster->migrating, cluster->migrating_count, count->slot);
    const struct open_slot *importing =
        open_find(cluster->importing, cluster->importing_count, count->slot);

    *served = false;
    if (migrating != NULL && mine) {
        count_missing(call, count);
        if (count->missing == 0)
            return REDIRECT_NONE;
        *peer = &cluster->peers[migrating->peer];
        return count->here > 0 ? REDIRECT_TRYAGAIN : REDIRECT_ASK;
    }
    if (importing == NULL || !call->connection->asking)
        return REDIRECT_NONE;
    count_missing(call, count);
    if (count->several && count->missing > 0)
        return REDIRECT_TRYAGAIN;
    *served = true;
    return REDIRECT_NONE;
}

enum redirect
cluster_route(const struct call *call, unsigned flags, int *slot,
    const struct peer **peer)
{
    const struct fake *fake = call->fake;
    const struct cluster *cluster = fake->cluster;
    struct key_count count;
    bool served;
    bool same = count_keys(call, &count);

    if (count.slot < 0)
        return REDIRECT_NONE;
    if (cluster->owner[count.slot] == 0)
        return REDIRECT_UNSERVED;
    if (!same)
        return REDIRECT_CROSS_SLOT;
    if (fake->mood == FAKE_CLUSTERDOWN)
        return REDIRECT_DOWN;
    *slot = count.slot;
    const struct peer *owner = &cluster->peers[cluster->owner[count.slot] - 1];
    bool mine = owner->fake == fake;
    if (cluster->migrating_count + cluster->importing_count > 0) {
        enum redirect redirect = route_open(call, &count, mine, &served, peer);
        if (redirect != REDIRECT_NONE || served)
            return redirect;
    }
    if (mine)
        return REDIRECT_NONE;
    if (call->connection->readonly && (flags & COMMAND_WRITE) == 0 &&
        fake->replica && owner->fake == fake->master)
        return REDIRECT_NONE;
    *peer = owner;
    return REDIRECT_MOVED;
}

void
cluster_redirect(struct call *call, enum redirect redirect, int slot,
    const struct peer *peer)
{
    switch (redirect) {
    case REDIRECT_NONE:
        break;
    case REDIRECT_CROSS_SLOT:
        reply_error(
            call, "-CROSSSLOT Keys in request don't hash to the same slot");
        break;
    case REDIRECT_TRYAGAIN:
        reply_error(
            call, "-TRYAGAIN Multiple keys request during rehashing of slot");
        break;
    case REDIRECT_DOWN:
        reply_error(call, "-CLUSTERDOWN The cluster is down");
        break;
    case REDIRECT_UNSERVED:
        reply_error(call, "-CLUSTERDOWN Hash slot not served");
        break;
    case REDIRECT_MOVED:
    case REDIRECT_ASK:
        reply_error(call, "-%s %d %s:%u",
            redirect == REDIRECT_ASK ? "ASK" : "MOVED", slot, peer->host,
            (unsigned)peer->port);
        break;
    }
}

/* --- commands ------------------------------------------------------------- */

static bool
cluster_enabled(struct call *call)
{
    if (call->fake->cluster != NULL)
        return true;
    reply_error(call, "This instance has cluster support disabled");
    return false;
}

void
command_cluster_keyslot(struct call *call)
{
    if (cluster_enabled(call))
        reply_integer(call, slot_of_key(call->arg[2]));
}

void
command_cluster_myid(struct call *call)
{
    if (cluster_enabled(call))
        reply_string(call, call->fake->node_id);
}

/* Of this node's alone. A line has as much of a real one's as anybody reads. */
void
command_cluster_replicas(struct call *call)
{
    const struct fake *fake = call->fake;
    size_t count = 0;

    if (!cluster_enabled(call))
        return;
    if (!text_equal(call->arg[2], text_from(fake->node_id))) {
        reply_error(
            call, "Unknown node %.*s", (int)call->arg[2].len, call->arg[2].at);
        return;
    }
    for (size_t i = 0; i < fake->cluster->peer_count; i++)
        count += fake->cluster->peers[i].master == fake;
    reply_array(call, count);
    for (size_t i = 0; i < fake->cluster->peer_count; i++)
        if (fake->cluster->peers[i].master == fake)
            reply_string(call, fake->cluster->peers[i].id);
}

static void
reply_peer(struct call *call, const struct peer *peer)
{
    reply_array(call, 4);
    reply_string(call, peer->host);
    reply_integer(call, peer->port);
    reply_string(call, peer->id);
    reply_array(call, 0);
}

static void
reply_range(struct call *call, size_t first, size_t last)
{
    const struct cluster *cluster = call->fake->cluster;
    const struct peer *owner = &cluster->peers[cluster->owner[first] - 1];
    size_t replicas = 0;

    for (size_t i = 0; i < cluster->peer_count; i++)
        replicas += cluster->peers[i].master == owner->fake;
    reply_array(call, 3 + replicas);
    reply_integer(call, (int64_t)first);
    reply_integer(call, (int64_t)last);
    reply_peer(call, owner);
    for (size_t i = 0; i < cluster->peer_count; i++)
        if (cluster->peers[i].master == owner->fake)
            reply_peer(call, &cluster->peers[i]);
}

/* The end of the range of one owner that begins at `slot`, exclusive. */
static size_t
range_end(const struct cluster *cluster, size_t slot)
{
    uint8_t owner = cluster->owner[slot];

    while (slot < FAKE_SLOTS && cluster->owner[slot] == owner)
        slot++;
    return slot;
}

void
command_cluster_slots(struct call *call)
{
    const struct cluster *cluster = call->fake->cluster;
    size_t ranges = 0;

    if (!cluster_enabled(call))
        return;
    for (size_t i = 0; i < FAKE_SLOTS; i = range_end(cluster, i))
        ranges += cluster->owner[i] != 0;
    reply_array(call, ranges);
    for (size_t i = 0; i < FAKE_SLOTS;) {
        size_t end = range_end(cluster, i);
        if (cluster->owner[i] != 0)
            reply_range(call, i, end - 1);
        i = end;
    }
}

void
cluster_publish(struct call *call)
{
    const struct fake_settings *settings = &call->fake->settings;

    if (settings->sink.bus != NULL)
        settings->sink.bus(settings->arg, call->arg[1].at, call->arg[1].len,
            call->arg[2].at, call->arg[2].len);
}

/* --- the log -------------------------------------------------------------- */

static struct effect *
log_at(const struct replication_log *log, uint64_t number)
{
    return &log->effects[number & (log->cap - 1)];
}

/* Forgets what is before `number`. */
static void
log_trim(struct replication_log *log, uint64_t number)
{
    while (log->first < number) {
        struct effect *effect = log_at(log, log->first++);
        free(effect->name);
        effect->name = NULL;
    }
}

static void
log_grow(struct replication_log *log)
{
    struct replication_log old = *log;

    log->cap = old.cap == 0 ? 64 : old.cap * 2;
    log->effects = memory_get(NULL, log->cap * sizeof(struct effect));
    for (uint64_t i = log->first; i < log->end; i++)
        *log_at(log, i) = *log_at(&old, i);
    free(old.effects);
}

void
replication_write(struct fake *fake, const struct key *key)
{
    struct replication_log *log = &fake->log;
    size_t value_len = key->dead ? 0 : key->value.len;

    if (fake->replica_count == 0) {
        log->end++;
        log->first = log->end;
        return;
    }
    if (log->end - log->first == log->cap)
        log_grow(log);
    struct effect *effect = log_at(log, log->end++);
    *effect = (struct effect){
        .name = memory_get(NULL, key->name_len + value_len + 1),
        .name_len = key->name_len,
        .value_len = value_len,
        .expires_ms = key->expires_ms,
        .type = key->type,
        .gone = key->dead,
    };
    memcpy(effect->name, key->name, key->name_len);
    if (value_len > 0)
        memcpy(effect->name + key->name_len, key->value.at, value_len);
}

void
replication_commit(struct fake *fake)
{
    fake->log.commands++;
    if (fake->log.first < fake->log.end)
        log_at(&fake->log, fake->log.end - 1)->last = true;
}

/* Keeps of the log what some replica still needs. */
static void
replication_trim(struct fake *fake)
{
    uint64_t needed = fake->log.end;

    for (size_t i = 0; i < fake->replica_count; i++) {
        const struct fake *replica = fake->replicas[i];
        if (!replica->link_down && replica->applied < needed)
            needed = replica->applied;
    }
    log_trim(&fake->log, needed);
}

void
replication_reset(struct fake *fake)
{
    for (size_t i = 0; i < fake->replica_count; i++)
        fake->replicas[i]->link_down = true;
    log_trim(&fake->log, fake->log.end);
}

/* --- replicas ------------------------------------------------------------- */

static void
replication_detach(struct fake *fake)
{
    struct fake *master = fake->master;

    if (master == NULL)
        return;
    size_t place = 0;
    while (master->replicas[place] != fake)
        place++;
    master->replica_count--;
    memmove(master->replicas + place, master->replicas + place + 1,
        (master->replica_count - place) * sizeof(struct fake *));
    master->info_cache.len = 0;
    fake->master = NULL;
    replication_trim(master);
}

void
replication_fini(struct fake *fake)
{
    replication_detach(fake);
    replication_reset(fake);
    for (size_t i = 0; i < fake->replica_count; i++)
        fake->replicas[i]->master = NULL;
    free(fake->log.effects);
    free(fake->replicas);
}

static void
ids_copy(struct fake *to, const struct fake *from)
{
    memcpy(to->repl_id, from->repl_id, sizeof(to->repl_id));
    memset(to->repl_id2, '0', 40);
    to->second_offset = -1;
    to->info_cache.len = 0;
}

/* A full copy of the master's data; its own replicas need one as well. */
static void
replication_sync(struct fake *fake)
{
    struct fake *master = fake->master;

    keys_copy(fake, master);
    replication_reset(fake);
    ids_copy(fake, master);
    fake->link_down = false;
    fake->applied = master->log.end;
    fake->applied_commands = master->log.commands;
}

void
fake_replicate_from(struct fake *fake, struct fake *master)
{
    require(fake != master && fake->depth == 0 && master->depth == 0);
    replication_detach(fake);
    if (!master->had_replica && !master->replica) {
        /* The first replica makes a backlog, and that a new id. */
        fake_new_id(master, master->repl_id);
        memset(master->repl_id2, '0', 40);
        master->second_offset = -1;
    }
    master->had_replica = true;
    master->info_cache.len = 0;
    master->replicas = array_room(master->replicas, master->replica_count,
        &master->replica_cap, sizeof(struct fake *));
    fake->link_down = true; /* the log has nothing for it yet */
    master->replicas[master->replica_count++] = fake;
    fake->master = master;
    fake->replica = true;
    fake->had_replica = true;
    replication_sync(fake);
}

/* The new id of a master goes down to those who follow it. */
static void
ids_follow(struct fake *fake)
{
    for (size_t i = 0; i < fake->replica_count; i++) {
        struct fake *replica = fake->replicas[i];
        if (replica->link_down)
            continue;
        memcpy(replica->repl_id, fake->repl_id, sizeof(fake->repl_id));
        memcpy(replica->repl_id2, fake->repl_id2, sizeof(fake->repl_id2));
        replica->second_offset = (int64_t)replica->applied + 1;
        replica->info_cache.len = 0;
        ids_follow(replica);
    }
}

void
fake_promote(struct fake *fake)
{
    require(fake->depth == 0);
    if (!fake->replica)
        return;
    replication_detach(fake);
    fake->replica = false;
    fake->link_down = false;
    memcpy(fake->repl_id2, fake->repl_id, sizeof(fake->repl_id));
    fake->second_offset = (int64_t)fake->log.end + 1;
    fake_new_id(fake, fake->repl_id);
    fake->info_cache.len = 0;
    ids_follow(fake);
}

bool
fake_is_replica(const struct fake *fake)
{
    return fake->replica;
}

uint64_t
fake_replica_lag(const struct fake *fake)
{
    if (fake->master == NULL)
        return 0;
    return fake->master->log.commands - fake->applied_commands +
           fake->link_down;
}

static void
effect_apply(struct fake *fake, const struct effect *effect)
{
    struct text name = text_make(effect->name, effect->name_len);
    struct key *key = keys_find(&fake->keys, name);

    if (effect->gone) {
        if (key != NULL)
            keys_remove(fake, key);
        return;
    }
    if (key == NULL)
        key = keys_add(fake, name);
    keys_touch(fake, key);
    key->type = effect->type;
    key->value.len = 0;
    bytes_add(&key->value, effect->name + effect->name_len, effect->value_len);
    keys_set_expiry(fake, key, effect->expires_ms);
}

void
fake_replica_apply(struct fake *fake, uint64_t n)
{
    struct fake *master = fake->master;

    require(fake->depth == 0);
    for (; n > 0 && fake_replica_lag(fake) > 0; n--) {
        if (fake->link_down) {
            replication_sync(fake);
            continue;
        }
        bool last = false;
        while (!last) {
            const struct effect *effect = log_at(&master->log, fake->applied++);
            effect_apply(fake, effect);
            last = effect->last;
        }
        fake->applied_commands++;
        keys_flush(fake);
        fake->info_cache.len = 0;
    }
    if (master != NULL)
        replication_trim(master);
}

/*
 * Which node is trusted with new grants. A node whose history is new to this
 * broker (another process, a promotion, a restart) may lack what was granted
 * before; whoever holds that says so within a lease. The broker is *settled*
 * with a node when it has known its history for as long; until then the scripts
 * grant nothing that an old holder may have (lua/record.lua).
 *
 * A history is told by two ids: of the process, and of its replication. The
 * second one changes also where nothing was lost (a backup, the first replica);
 * then it has no predecessor.
 *
 * The same goes for its clock, by which leases end: a broker that has not seen
 * it go steadily for as long ends none. Each answer with a time bounds what the
 * clock is ahead of ours, from both sides; where bounds do not meet, it has
 * stepped. The age of data from before such a step excludes the step.
 *
 * A broker that is settled leaves a marker with the ids at the node, so that
 * one that starts later need not wait. No times are compared. Without a marker
 * nothing shortens the wait. An empty keyspace and a long uptime prove nothing.
 * The data may have been wiped. A moment ago the address may have led to
 * another server, where holders' brokers wrote. The marker has the fence clock
 * as well, which whoever reads or writes it takes over from it.
 *
 * A clock that is set forward by much may have had Redis forget holds that are
 * too young to be kept for long (lua/record.lua). The node is not settled then,
 * and the marker does not help.
 *
 * A slot takes its locks along when it moves; those that are still to be missed
 * where it was will be missed where it is then. Whether any may be, the node
 * that had it has to say after it went: the one this broker knows may have been
 * replaced by then.
 *
 * See DESIGN.md D2.3, and D3.2 to D3.4, D3.10 and D3.11.
 */
#include "daemon/store/node/history.h"

#include "daemon/store/node/conn.h"

#include "daemon/base/assert.h"
#include "daemon/base/log.h"

#define MARGIN_PERCENT  1 /* of a lease; see drift_margin_us */
#define MARGIN_LEAST_US 2000
#define LEAP_US         80       /* a ms of idle_after: LEAP of lua/call.lua */
#define CLOCK_HEARD_US  10000000 /* a known clock counts for so long */
#define MARK_AFTER_US   3000000  /* it is written no sooner after the change */

static bool
is_none(struct text id)
{
    for (size_t i = 0; i < id.len; i++)
        if (id.at[i] != '0')
            return false;
    return id.len > 0;
}

void
history_unmark(struct conn *conn)
{
    conn->history.mark_us = 0;
    LIST_EACH (at, &conn->calls)
        container_of(at, struct call, link)->writes = false;
}

void
history_probe(struct conn *conn, uint64_t now_us)
{
    if (conn->history.mark_us > now_us + MARK_AGAIN_US)
        conn->history.mark_us = now_us + MARK_AGAIN_US;
}

void
history_has_locks(struct store *store, const struct conn *conn)
{
    if (conn->state >= CONN_READY && conn->history.state != HISTORY_SETTLED)
        store->changed = true;
}

static void
history_begin(struct store *store, struct conn *conn, uint64_t now_us)
{
    char name[80];
    bool settled = store->settings.settle_us == 0;

    conn->history.state = settled ? HISTORY_SETTLED : HISTORY_NEW;
    conn->history.since_us = now_us;
    history_unmark(conn);
    conn->history.mark_us = settled ? now_us + MARK_AFTER_US : now_us;
    if (settled)
        return;
    count(store->counters, COUNTER_redis_unsettled);
    log_write(LOG_INFO, "redis_unsettled",
        log_word("node", conn_name(store, conn, name, sizeof(name))),
        log_span("run_id", text_make(conn->run_id, strnlen(conn->run_id, 8))),
        log_span("id", text_make(conn->id, strnlen(conn->id, 8))));
    history_has_locks(store, conn);
}

/* Whether an answer of the node to that is to come. */
static bool
is_being_asked(const struct conn *conn)
{
    return conn->state >= CONN_READY &&
           (conn->history.ids_wanted || conn->history.ids_asked);
}

/* Forgets the sources that are not being asked: they need not answer. */
static void
sources_forget(const struct store *store, struct conn *conn)
{
    for (uint16_t i = 0; i < store->node_count; i++)
        if (!is_being_asked(&store->conns[i]))
            conn->history.sources[i / 64] &= ~((uint64_t)1 << i % 64);
}

void
history_settle(struct store *store, struct conn *conn, const char *why)
{
    char name[80];

    conn->history.state = HISTORY_SETTLED;
    store->settled = true;
    sources_forget(store, conn);
    log_write(LOG_INFO, "redis_settled",
        log_word("node", conn_name(store, conn, name, sizeof(name))),
        log_word("why", why));
}

void
history_learn(struct store *store, struct conn *conn, struct text run_id,
    struct text id, struct text second, uint64_t now_us)
{
    bool same_run =
        run_id.len == 0 || text_equal(run_id, text_from(conn->run_id));
    bool same_id = text_equal(id, text_from(conn->id));
    bool known = conn->history.since_us > 0;

    conn->history.ids_asked = false;
    conn->history.ids_wanted = false; /* ids seen by scripts so far are older */
    conn->first = is_none(second);
    if (known && same_run && same_id)
        return;
    copy_id(conn->id, id);
    if (run_id.len > 0)
        copy_id(conn->run_id, run_id);
    if (known && same_run && conn->first) {
        history_unmark(conn);
    } else if (conn->index < CONN_ACK) {
        memset(conn->history.sources, 0, sizeof(conn->history.sources));
        history_begin(store, conn, now_us);
    }
}

/*
 * A missing lock may have come with a slot, so the node settles anew from now
 * on. If that is a `guess` without another reason, it lasts until the sources
 * have answered. Markers know nothing of that.
 */
static void
history_doubt(
    struct store *store, struct conn *conn, bool guess, uint64_t now_us)
{
    if (conn->history.state == HISTORY_SETTLED) {
        history_begin(store, conn, now_us);
        conn->history.state = guess ? HISTORY_GUESSED : HISTORY_INHERITED;
    } else if (!guess || conn->history.state != HISTORY_GUESSED) {
        conn->history.state = HISTORY_INHERITED;
        conn->history.since_us = now_us;
    }
}

static void
source_add(struct conn *conn, const struct conn *from)
{
    conn->history.sources[from->node / 64] |= (uint64_t)1 << from->node % 64;
}

/* Whether it was one. */
static bool
source_remove(struct conn *conn, const struct conn *from)
{
    uint64_t bit = (uint64_t)1 << from->node % 64;
    bool was = (conn->history.sources[from->node / 64] & bit) != 0;

    conn->history.sources[from->node / 64] &= ~bit;
    return was;
}

static bool
has_sources(const struct conn *conn)
{
    for (size_t i = 0; i < STORE_NODES_MAX / 64; i++)
        if (conn->history.sources[i] != 0)
            return true;
    return false;
}

/*
 * A slot has come from another node. If nothing is missed any more that this
 * one was told, it has all; but another may have taken its place meanwhile, and
 * given the slot away. So it says what it is before anything is asked of the
 * new one, and that by an answer to what is sent from now on.
 *
 * `from` is NULL where the slot was nobody's in between: who has it may have
 * been given it without its locks, whatever the node that had them says.
 */
void
history_inherit(
    struct store *store, struct conn *from, struct conn *conn, uint64_t now_us)
{
    if (store->settings.settle_us == 0)
        return;
    if (from == NULL) {
        history_doubt(store, conn, false, now_us);
        return;
    }
    if (from->history.state != HISTORY_SETTLED || !conn_answers(from)) {
        history_doubt(
            store, conn, from->history.state == HISTORY_SETTLED, now_us);
        if (conn->history.state != HISTORY_GUESSED)
            return;
    }
    source_add(conn, from);
    from->history.ids_wanted = true;
    LIST_EACH (at, &from->calls)
        container_of(at, struct call, link)->stale = true;
}

bool
history_awaits(const struct conn *conn)
{
    return conn->history.state != HISTORY_INHERITED &&
           conn->history.state != HISTORY_GUESSED && has_sources(conn);
}

/* Whether a replica has that node for its master. */
static bool
is_replica_of(
    const struct store *store, struct text info, const struct conn *conn)
{
    uint64_t port;

    return text_to_u64(info_value(info, "master_port"), UINT16_MAX, &port) &&
           route_is_at(&store->nodes[conn->node],
               info_value(info, "master_host"), (uint16_t)port);
}

void
history_mute(struct store *store, struct conn *from, uint64_t now_us)
{
    for (uint16_t i = 0; i < store->node_count; i++) {
        struct conn *conn = &store->conns[i];
        if (!source_remove(conn, from))
            continue;
        history_doubt(store, conn, true, now_us);
        if (conn->history.state == HISTORY_GUESSED)
            source_add(conn, from);
    }
}

/*
 * The node has said what it is, in `info`: slots that came from it are trusted,
 * or not. If it was asked before they came, it is asked again. A node that has
 * given its last slot away becomes a replica of the slot's node. It vouches if
 * it was `settled` before.
 */
void
history_vouch(struct store *store, struct conn *from, const struct call *call,
    struct text info, bool settled, uint64_t now_us)
{
    if (from->index >= CONN_ACK)
        return; /* of the same node, but it does not say what that was before */
    if (call->stale) {
        from->history.ids_wanted = true;
        return;
    }
    for (uint16_t i = 0; i < store->node_count; i++) {
        struct conn *conn = &store->conns[i];
        if (!source_remove(conn, from))
            continue;
        if (from->readonly ? !settled || !is_replica_of(store, info, conn)
                           : from->history.state != HISTORY_SETTLED)
            history_doubt(store, conn, false, now_us);
        else if (conn->history.state == HISTORY_GUESSED && !has_sources(conn))
            history_settle(store, conn, "source");
    }
}

void
history_see(struct store *store, struct conn *conn, const char *id)
{
    if (memcmp(conn->id, id, sizeof(conn->id)) == 0)
        return;
    if (store->settings.settle_us == 0)
        memcpy(conn->id, id, sizeof(conn->id));
    else
        conn->history.ids_wanted = true;
}

uint32_t
history_settles_ms(
    const struct store *store, const struct conn *conn, uint64_t now_us)
{
    uint64_t at_us = conn->history.since_us + peers_settle_us(store, now_us);

    if (conn->history.state == HISTORY_SETTLED)
        return 0;
    return at_us > now_us + 1000 ? (uint32_t)((at_us - now_us) / 1000) : 1;
}

/* The clock is by so much ahead of ours now, and may have been set, to
 * `time_us`. A step back may be undone by a step forward. Returns by how much
 * it was set forward at least. */
static int64_t
clock_was_set(struct conn *conn, int64_t least_us, int64_t most_us,
    uint64_t time_us, uint64_t now_us)
{
    int64_t drift_us = (int64_t)((now_us - conn->clock.at_us) / CLOCK_DRIFT);
    int64_t low_us = conn->clock.least_us - drift_us;
    int64_t high_us = conn->clock.most_us + drift_us;

    if (least_us > high_us) {
        conn->clock.risen_us += (uint64_t)(most_us - low_us);
        conn->clock.rose_at_us = time_us;
        return least_us - high_us;
    }
    if (most_us < low_us) {
        uint64_t by_us = (uint64_t)(low_us - most_us);
        conn->clock.risen_us -=
            by_us < conn->clock.risen_us ? by_us : conn->clock.risen_us;
        if (conn->clock.rose_at_us > time_us)
            conn->clock.rose_at_us = time_us;
    }
    return 0;
}

/*
 * The least age, by the node's clock, of data that came at `since_us`. The
 * clock, which is `time_us` now, was set forward since: whether for the last
 * time or the first is not known.
 */
uint64_t
history_age_us(const struct conn *conn, uint64_t since_us, uint64_t time_us)
{
    uint64_t age_us = time_us > since_us ? time_us - since_us : 0;
    uint64_t after_us =
        time_us > conn->clock.rose_at_us ? time_us - conn->clock.rose_at_us : 0;

    require(since_us < conn->clock.rose_at_us);
    age_us -= conn->clock.risen_us < age_us ? conn->clock.risen_us : age_us;
    return age_us > after_us ? age_us : after_us;
}

void
history_clock(struct store *store, struct conn *conn, uint64_t time_us,
    uint64_t sent_us, uint64_t now_us)
{
    int64_t least_us = (int64_t)(time_us - now_us);
    uint64_t way_us = now_us - sent_us;
    int64_t most_us = (int64_t)(time_us - sent_us + way_us / CLOCK_DRIFT);
    bool known =
        conn->clock.at_us > 0 && now_us - conn->clock.at_us < CLOCK_HEARD_US;
    uint64_t drift_us = known ? (now_us - conn->clock.at_us) / CLOCK_DRIFT : 0;
    char name[80];

    (void)fence_clock_hear(store, time_us, now_us);
    conn->clock.least_us -= (int64_t)drift_us;
    conn->clock.most_us += (int64_t)drift_us;
    conn->clock.at_us += drift_us * CLOCK_DRIFT;
    if (known && least_us <= conn->clock.most_us &&
        most_us >= conn->clock.least_us) {
        if (least_us > conn->clock.least_us)
            conn->clock.least_us = least_us;
        if (most_us < conn->clock.most_us)
            conn->clock.most_us = most_us;
        return;
    }
    if (known && store->settings.settle_us > 0) {
        count(store->counters, COUNTER_redis_clock_steps);
        log_write(LOG_WARN, "redis_clock_stepped",
            log_word("node", conn_name(store, conn, name, sizeof(name))),
            log_signed("by_ms", (least_us - conn->clock.least_us) / 1000));
    }
    if (conn->clock.at_us > 0 &&
        clock_was_set(conn, least_us, most_us, time_us, now_us) >
            (int64_t)store->settings.idle_after_ms * LEAP_US &&
        conn->index < CONN_ACK && store->settings.settle_us > 0)
        history_doubt(store, conn, false, now_us);
    conn->clock.least_us = least_us;
    conn->clock.most_us = most_us;
    conn->clock.at_us = now_us;
    conn->clock.steady_us = now_us;
}

uint32_t
history_steady_ms(
    const struct store *store, const struct conn *conn, uint64_t now_us)
{
    uint64_t at_us = conn->clock.steady_us + peers_settle_us(store, now_us);

    return at_us > now_us ? (uint32_t)((at_us - now_us) / 1000 + 1) : 0;
}

uint32_t
history_within_us(const struct store *store, const struct conn *conn)
{
    uint64_t margin_us = store->settings.settle_us / 100 * MARGIN_PERCENT;
    uint64_t way_us =
        2 * (uint64_t)(conn->clock.most_us - conn->clock.least_us);

    if (store->settings.settle_us == 0)
        return UINT32_MAX;
    if (margin_us < MARGIN_LEAST_US)
        margin_us = MARGIN_LEAST_US;
    if (margin_us < way_us)
        margin_us = way_us;
    return margin_us < UINT32_MAX ? (uint32_t)margin_us : UINT32_MAX - 1;
}

size_t
history_key(const struct store *store, const struct conn *conn,
    const char *word, uint16_t *slot, char out[KEY_BYTES])
{
    size_t len = store->prefix_len;
    uint32_t steps = 0;

    memcpy(out, store->settings.key_prefix, len);
    out[len++] = ':';
    memcpy(out + len, word, strlen(word));
    len += strlen(word);
    if (!store->topology->slots)
        return len;
    *slot %= SLOT_COUNT;
    while (store->slots[*slot] != conn->node) {
        *slot = (uint16_t)((*slot + 1) % SLOT_COUNT);
        if (++steps == SLOT_COUNT)
            return 0;
    }
    memcpy(out + len, ":{", 2);
    len += 2;
    len += text_from_u64(out + len, slot_tag(*slot));
    out[len++] = '}';
    return len;
}

uint64_t
peers_settle_us(const struct store *store, uint64_t now_us)
{
    uint64_t own_us = store->settings.settle_us;

    if (own_us > 0 && longest_counts(store, now_us) &&
        store->longest_us > own_us)
        return store->longest_us;
    return own_us;
}

bool
longest_counts(const struct store *store, uint64_t now_us)
{
    return store->longest_us > 0 &&
           now_us < store->longest_at_us + store->longest_us + OVERLAP_US;
}

/*
 * The last slow operations, lost holds and deadlocks, for operators. Each kind
 * has memory that is taken at start.
 *
 * An operation is what Redis is asked for once. That somebody waits for the
 * turn at a lock is none, and so is not slow however long it takes.
 *
 * Nothing here changes a lock. No secret is kept, and of the clients' words
 * names and owners only: no notes.
 */
#include "daemon/core/feature/listing.h"

#include "daemon/core/answer/answer.h"
#include "daemon/core/model/handlers.h"
#include "daemon/core/model/op_pool.h"
#include "daemon/core/model/session_table.h"
#include "daemon/core/model/ticket.h"
#include "daemon/op/op.h"

#include "daemon/base/assert.h"

/* Longer than the pause between two tries. */
#define TRY_GAP_US 2000000

static const char *const kind_words[RECENT_KINDS] = {
    [RECENT_SLOW] = "slow",
    [RECENT_LOST] = "lost",
    [RECENT_DEADLOCK] = "deadlock",
};

static const char *const op_words[OP_KIND_COUNT] = {
#define OP(id, word, ...) word,
#include "daemon/op/op.def"
};

static const char *const status_words[] = {
    [OP_OK] = "ok",
    [OP_WAITING] = "waiting",
    [OP_BUSY] = "busy",
    [OP_FULL] = "full",
    [OP_CONFLICT] = "conflict",
    [OP_GONE] = "gone",
    [OP_BROKEN] = "broken",
    [OP_MOVED] = "moved",
    [OP_MISSING] = "missing",
    [OP_UNSETTLED] = "unsettled",
    [OP_UNSENT] = "unsent",
    [OP_UNKNOWN] = "unknown",
    [OP_REFUSED] = "refused",
};

static uint8_t
keep_text(char *out, size_t out_bytes, struct text text)
{
    require(text.len <= out_bytes && text.len <= UINT8_MAX);
    if (text.len > 0)
        memcpy(out, text.at, text.len);
    return (uint8_t)text.len;
}

/* A place for one, in that of the oldest. */
static struct recent *
recent_add(struct core *core, enum recent_kind kind, struct text name)
{
    struct recents *recents = &core->recents[kind];
    struct recent *recent = &recents->kept[recents->count++ % RECENT_KEPT];

    require(kind < RECENT_KINDS);
    memset(recent, 0, sizeof(*recent));
    recent->serial = core->recent_serial++;
    recent->at_us = core->now_us;
    recent->name_len = keep_text(recent->name, sizeof(recent->name), name);
    return recent;
}

static void
recent_of_ticket(struct recent *recent, const struct ticket *ticket)
{
    require(ticket->lock->refs > 0);
    core_short_id(ticket->session_id, recent->session);
    recent->client_len = keep_text(
        recent->client, sizeof(recent->client), ticket_client(ticket));
    recent->owner_len =
        keep_text(recent->owner, sizeof(recent->owner), ticket_owner(ticket));
}

/* The session and owner of the operation, if they still exist. A release that
 * is repeated has no ticket. */
static void
recent_of_op(struct core *core, struct recent *recent, const struct op *op)
{
    require(op_owner(op) != OP_OF_AUDIT); /* which has no lock */
    if (op_owner(op) == OP_OF_TICKET) {
        const struct ticket *ticket =
            op->repeats ? NULL : slab_get(&core->tickets, op->owner);
        core_short_id(op->session, recent->session);
        if (ticket != NULL)
            recent_of_ticket(recent, ticket);
    } else if (op->kind == OP_BREAK || op->kind == OP_RESIZE || op->by_fence ||
               (op->kind == OP_INSPECT && op->reader == READER_REQUEST)) {
        const struct request *request = slab_get(&core->requests, op->owner);
        if (request == NULL)
            return;
        const struct session *session = request->session;
        core_short_id(session->id, recent->session);
        recent->client_len = keep_text(recent->client, sizeof(recent->client),
            text_make(session->client, session->client_len));
    }
}

/* The owner of a try. The tries of a session have a ticket each, where the one
 * before has ended. */
static uint64_t
recent_owner(const struct op *op)
{
    uint8_t who[sizeof(op->session) + sizeof(op->owner_hash)];

    if (op_owner(op) != OP_OF_TICKET)
        return handle_pack(op->owner);
    memcpy(who, op->session, sizeof(op->session));
    memcpy(who + sizeof(op->session), op->owner_hash, sizeof(op->owner_hash));
    return core_public_hash(who, sizeof(who));
}

/*
 * The entry of the try before this one; NULL: there is none. A try that Redis
 * did not carry out is soon followed by another one, of the same owner. So an
 * outage gives one entry to each lock, and pushes out little else.
 */
static struct recent *
recent_before_try(struct core *core, const struct op *op)
{
    struct recents *recents = &core->recents[RECENT_SLOW];
    uint64_t owner = recent_owner(op);
    uint64_t kept = recents->count < RECENT_KEPT ? recents->count : RECENT_KEPT;

    require(recents->count <= core->recent_serial);
    for (uint64_t i = 0; i < kept; i++) {
        struct recent *recent = &recents->kept[i];
        enum op_status status = recent->slow.status;

        if ((status == OP_UNSENT || status == OP_UNKNOWN ||
                status == OP_REFUSED) &&
            recent->slow.op == op->kind && recent->slow.owner == owner &&
            op->began_us <= recent->at_us + TRY_GAP_US &&
            text_equal(text_make(recent->name, recent->name_len), op->name))
            return recent;
    }
    return NULL;
}

/* In a stretch a try counts though nothing could be sent. */
static uint32_t
at_least_one(uint32_t tries)
{
    return tries > 0 ? tries : 1;
}

void
recent_slow(struct core *core, const struct op *op)
{
    struct recent *recent = recent_before_try(core, op);
    uint64_t sent_us = op->sent_us > 0 ? op->sent_us : core->now_us;
    uint64_t answered_us = op->answered_us > 0 ? op->answered_us : core->now_us;

    require(op->began_us <= sent_us && sent_us <= answered_us &&
            answered_us <= core->now_us);
    count(core->counters, COUNTER_slow_operations);
    if (recent == NULL) {
        recent = recent_add(core, RECENT_SLOW, op->name);
        recent_of_op(core, recent, op);
        recent->slow.op = op->kind;
        recent->slow.owner = recent_owner(op);
        recent->slow.tries = op->tries;
    } else {
        recent->slow.tries =
            at_least_one(recent->slow.tries) + at_least_one(op->tries);
    }
    recent->at_us = core->now_us;
    recent->slow.status = op->result.status;
    recent->slow.queued_us += sent_us - op->began_us;
    recent->slow.redis_us += answered_us - sent_us;
    recent->slow.confirm_us += core->now_us - answered_us;
}

void
recent_lost(struct core *core, const struct ticket *ticket, const char *reason)
{
    struct recent *recent = recent_add(core, RECENT_LOST,
        text_make(ticket->lock->name, ticket->lock->name_len));

    require(reason != NULL && ticket->granted_us <= core->now_us);
    recent_of_ticket(recent, ticket);
    recent->lost.reason = reason;
    recent->lost.fence = ticket->fence;
    recent->lost.held_us = core->now_us - ticket->granted_us;
    recent->lost.late_us =
        core->now_us - us_min(core->now_us, ticket->deadline_us);
}

void
recent_deadlock(struct core *core, const struct ticket *ticket,
    struct text cycle, struct text sessions)
{
    struct recent *recent = recent_add(core, RECENT_DEADLOCK,
        text_make(ticket->lock->name, ticket->lock->name_len));

    require(cycle.len <= sizeof(recent->deadlock.cycle));
    require(sessions.len <= sizeof(recent->deadlock.sessions));
    recent_of_ticket(recent, ticket);
    memcpy(recent->deadlock.cycle, cycle.at, cycle.len);
    recent->deadlock.cycle_len = (uint16_t)cycle.len;
    memcpy(recent->deadlock.sessions, sessions.at, sessions.len);
    recent->deadlock.sessions_len = (uint16_t)sessions.len;
}

static void
slow_pairs(struct reply *reply, const struct recent *recent)
{
    require(recent->slow.op < OP_KIND_COUNT);
    require(
        recent->slow.status < sizeof(status_words) / sizeof(status_words[0]));
    reply_pair(reply, "op", text_from(op_words[recent->slow.op]));
    reply_pair(reply, "result", text_from(status_words[recent->slow.status]));
    reply_pair_number(reply, "total_us",
        recent->slow.queued_us + recent->slow.redis_us +
            recent->slow.confirm_us);
    reply_pair_number(reply, "queued_us", recent->slow.queued_us);
    reply_pair_number(reply, "redis_us", recent->slow.redis_us);
    reply_pair_number(reply, "confirm_us", recent->slow.confirm_us);
    reply_pair_number(reply, "tries", recent->slow.tries);
}

static void
lost_pairs(struct reply *reply, const struct recent *recent)
{
    require(recent->lost.reason != NULL);
    reply_pair(reply, "reason", text_from(recent->lost.reason));
    reply_pair_number(reply, "fence", recent->lost.fence);
    reply_pair_number(reply, "held_ms", recent->lost.held_us / 1000);
    reply_pair_number(reply, "late_us", recent->lost.late_us);
}

static void
deadlock_pairs(struct reply *reply, const struct recent *recent)
{
    require(recent->deadlock.cycle_len <= RECENT_CYCLE_BYTES);
    require(recent->deadlock.sessions_len <= RECENT_SESSIONS_BYTES);
    reply_pair(reply, "cycle",
        text_make(recent->deadlock.cycle, recent->deadlock.cycle_len));
    reply_pair(reply, "sessions",
        text_make(recent->deadlock.sessions, recent->deadlock.sessions_len));
}

typedef void pairs_function(struct reply *reply, const struct recent *recent);

static void
recent_item(struct core *core, struct session *session, const char *tag,
    enum recent_kind kind, const struct recent *recent)
{
    static pairs_function *const pairs[RECENT_KINDS] = {
        [RECENT_SLOW] = slow_pairs,
        [RECENT_LOST] = lost_pairs,
        [RECENT_DEADLOCK] = deadlock_pairs,
    };
    struct reply reply = answer_begin(core, tag, "ITEM");

    require(kind < RECENT_KINDS && recent->serial < core->recent_serial);
    require(recent->at_us <= core->now_us);
    reply_pair(&reply, "kind", text_from(kind_words[kind]));
    reply_pair_number(&reply, "age_ms", (core->now_us - recent->at_us) / 1000);
    reply_pair(&reply, "name", text_make(recent->name, recent->name_len));
    reply_pair_if(&reply, "session", text_from(recent->session));
    reply_pair_if(
        &reply, "client", text_make(recent->client, recent->client_len));
    reply_pair_if(&reply, "owner", text_make(recent->owner, recent->owner_len));
    pairs[kind](&reply, recent);
    answer_end(core, session, &reply);
}

/* The newest of a kind but for so many; NULL: there are no more. */
static const struct recent *
recent_before(const struct recents *recents, uint64_t newer)
{
    if (newer >= RECENT_KEPT || newer >= recents->count)
        return NULL;
    return &recents->kept[(recents->count - 1 - newer) % RECENT_KEPT];
}

/* RECENT_KINDS: there is no such word. */
static enum recent_kind
kind_of_word(struct text word)
{
    enum recent_kind kind = 0;

    while (
        kind < RECENT_KINDS && !text_equal(word, text_from(kind_words[kind])))
        kind++;
    return kind;
}

/* Whether the session's user may see it. A cycle has names of others. */
static bool
recent_is_seen(const struct core *core, const struct session *session,
    enum recent_kind kind, const struct recent *recent)
{
    if (kind == RECENT_DEADLOCK)
        return auth_is_admin(core, session);
    return auth_sees(core, session, text_make(recent->name, recent->name_len));
}

/* Those of the kind, or of all where it is RECENT_KINDS; returns how many. */
static uint32_t
recent_items(struct core *core, struct session *session, const char *tag,
    uint32_t limit, enum recent_kind only)
{
    uint64_t shown[RECENT_KINDS] = {0};
    uint32_t items = 0;

    require(limit <= LISTING_MAX && only <= RECENT_KINDS);
    while (items < limit) {
        const struct recent *newest = NULL;
        enum recent_kind of = 0;

        for (enum recent_kind kind = 0; kind < RECENT_KINDS; kind++) {
            const struct recent *recent =
                recent_before(&core->recents[kind], shown[kind]);
            if (recent == NULL || (only != RECENT_KINDS && only != kind) ||
                (newest != NULL && newest->serial > recent->serial))
                continue;
            newest = recent;
            of = kind;
        }
        if (newest == NULL)
            break;
        shown[of]++;
        if (!recent_is_seen(core, session, of, newest))
            continue;
        recent_item(core, session, tag, of, newest);
        items++;
    }
    return items;
}

/* SLOW. All that there are fit into one answer. */
void
recent_list(
    struct core *core, struct session *session, const struct request_line *line)
{
    enum recent_kind only = RECENT_KINDS;

    if (request_has(line, REQUEST_KEY_KIND)) {
        only = kind_of_word(line->word[REQUEST_KEY_KIND]);
        if (only == RECENT_KINDS) {
            count(core->counters, COUNTER_requests_bad);
            answer_error(core, session, line->tag, ERROR_BADREQ,
                "kind= must be slow, lost or deadlock");
            return;
        }
    }
    listing_end(core, session, line->tag,
        recent_items(core, session, line->tag, listing_limit(line), only), 0);
}

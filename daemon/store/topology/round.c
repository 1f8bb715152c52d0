/*
 * Votes: the questions of a round, when it is decided, and what is put right
 * afterwards. See model/quorum.h.
 *
 *   a try      won if a majority has granted it with one fence: those with
 *              a lower one are raised to the highest first. After a lost try
 *              all grants, and possible grants, are taken back.
 *   a renewal  is good if a majority has renewed it. A missing hold is put
 *              again, and does not count before the next renewal.
 *   a detachment is a renewal. It is decided when all have answered.
 *   a release  is one where a majority has it no more. The others are told as
 *              soon as they can be, unless the lease is over by then.
 *
 * A lease counts from the sending to the node of the majority that was asked
 * first.
 *
 * See DESIGN.md D5.1, D5.2 and D5.4.
 */
#include "daemon/store/topology/quorum.h"

#include "daemon/store/model/quorum.h"
#include "daemon/store/model/times.h"
#include "daemon/store/node/conn.h"

#include "daemon/base/assert.h"

#include <stdlib.h>
#include <string.h>

static struct vote *
vote_of(struct op *op)
{
    return container_of(op, struct vote, op);
}

/* A renewal's votes count as long as its hold lasts: all nodes may be slow. */
static uint64_t
renewal_until_us(const struct store *store, const struct round *round)
{
    uint64_t late_us = store->now_us + store_silence_us(store);

    if (round->kind != OP_RENEW || round->asked == NULL ||
        round->asked->detaches)
        return soon_us(store);
    if (round->asked->deadline_us < late_us)
        late_us = round->asked->deadline_us;
    return late_us > soon_us(store) ? late_us : soon_us(store);
}

/* Gives what was granted the fence that the others have. */
static void
vote_raise(struct store *store, struct vote *vote, uint64_t fence)
{
    vote->op.kind = OP_RENEW;
    vote->op.fence = 0;
    vote->op.arrival = 0;
    vote->op.seen = fence;
    vote->op.raises = true;
    vote->op.agreed = vote->round->decided;
    vote->op.moves = false;
    vote->op.hard_end_us = WHEEL_NEVER;
    if (!vote_send(store, vote, VOTE_RAISING, soon_us(store), false))
        vote->state = VOTE_DOUBT;
    else
        count(store->counters, COUNTER_quorum_raises);
}

/* --- a try ---------------------------------------------------------------- */

struct count {
    uint32_t has;
    uint32_t pending;
    uint32_t agree; /* they have the highest fence */
    uint64_t fence;
};

static struct count
try_count(const struct store *store, const struct round *round)
{
    struct count count = {0};

    for (uint32_t i = 0; i < store->quorum->nodes; i++) {
        const struct vote *vote = &round->votes[i];
        count.pending +=
            vote->state == VOTE_ASKED || vote->state == VOTE_RAISING;
        if (vote->state != VOTE_YES)
            continue;
        count.has++;
        if (vote->fence > count.fence) {
            count.fence = vote->fence;
            count.agree = 0;
        }
        count.agree += vote->fence == count.fence;
    }
    return count;
}

/* The least rest of the lease at the nodes in favour. */
static void
round_term(const struct store *store, const struct round *round, uint64_t fence,
    struct op_result *result)
{
    uint64_t end_us = WHEEL_NEVER;

    for (uint32_t i = 0; i < store->quorum->nodes; i++) {
        const struct vote *vote = &round->votes[i];
        uint64_t vote_end_us = vote->sent_us + (uint64_t)vote->ttl_ms * 1000;
        if (vote->state != VOTE_YES || (fence > 0 && vote->fence != fence) ||
            vote_end_us >= end_us)
            continue;
        end_us = vote_end_us;
        result->sent_us = vote->sent_us;
        result->ttl_ms = vote->ttl_ms;
    }
    require(end_us != WHEEL_NEVER); /* DESIGN.md D5.1: a majority has it */
}

/* After the decision: what a vote has brought is put right. */
static void
vote_settle(struct store *store, struct vote *vote)
{
    const struct round *round = vote->round;
    const struct bid *bid = bid_of_try(store, round->bid);
    bool stands = round->won && bid != NULL && bid->fence > 0 && !bid->detached;

    if (vote->state != VOTE_YES && vote->state != VOTE_DOUBT)
        return;
    if (!stands)
        vote_undo(store, vote);
    else if (vote->state == VOTE_YES && vote->fence != bid->fence)
        vote_raise(store, vote, bid->fence);
}

static void
round_settle(struct store *store, struct round *round)
{
    for (uint32_t i = 0; i < store->quorum->nodes; i++)
        vote_settle(store, &round->votes[i]);
}

/* There is no majority for it, and why is known: a majority has said so, or
 * nobody else will say anything. */
static bool
try_lost(const struct store *store, const struct round *round,
    const struct count *count)
{
    uint32_t majority = store->quorum->majority;
    uint32_t spoke = round->stats[OP_OK] + round->stats[OP_BUSY];

    return count->has + count->pending < majority &&
           (spoke >= majority || count->pending == 0);
}

/* Votes of a lost try that have not been sent are not sent: they would meet the
 * next try. */
static void
round_call_off(const struct store *store, struct round *round)
{
    for (uint32_t i = 0; i < store->quorum->nodes; i++)
        if (round->votes[i].state == VOTE_ASKED)
            round->votes[i].op.unwanted = true;
}

static void
try_decide(struct store *store, struct round *round)
{
    uint32_t majority = store->quorum->majority;
    struct bid *bid = bid_of_try(store, round->bid);
    struct count count = try_count(store, round);

    if (bid == NULL || try_lost(store, round, &count)) {
        round->decided = true;
        round_call_off(store, round);
        round_settle(store, round);
        if (bid != NULL && bid->seen < count.fence)
            bid->seen = count.fence;
        if (bid != NULL)
            bid_loses(store, bid, round);
        else if (round->asked != NULL)
            quorum_answer(store, round->asked, OP_UNSENT);
        return;
    }
    if (count.agree >= majority) {
        round->decided = round->won = true;
        bid_wins(store, bid, count.fence);
        if (round->asked != NULL) {
            struct op_result *result = &round->asked->result;
            *result = (struct op_result){
                .ask = bid->ask, .arrival = bid->arrival, .fence = count.fence};
            round_term(store, round, count.fence, result);
            quorum_answer(store, round->asked, OP_OK);
        }
        round_settle(store, round);
        return;
    }
    if (count.has < majority)
        return;
    bool lost = false;
    for (uint32_t i = 0; i < store->quorum->nodes; i++) {
        struct vote *vote = &round->votes[i];
        if (vote->state != VOTE_YES || vote->fence == count.fence)
            continue;
        require(vote->fence < count.fence); /* DESIGN.md D5.2 */
        vote_raise(store, vote, count.fence);
        lost = lost || vote->state == VOTE_DOUBT;
    }
    if (lost) /* a node that was there is not */
        try_decide(store, round);
}

/* --- a renewal ------------------------------------------------------------ */

/* A hold that a node knows nothing of is put there again; it counts from the
 * next renewal on. */
static void
vote_repair(struct store *store, struct vote *vote)
{
    const struct bid *bid = bid_of_try(store, vote->round->bid);
    struct op *op = &vote->op;

    require(vote->round->decided && vote->round->won);
    if (bid == NULL || bid->fence == 0)
        return;
    op->kind = OP_ACQUIRE;
    op->ask = bid->ask;
    op->ask.hold_ms = record_hold_left_ms(op, store->now_us);
    op->seen = bid->fence - 1;
    op->arrival = 0;
    op->fence = 0;
    op->retry = true;
    op->no_queue = true;
    op->tell = false;
    op->raises = false;
    op->agreed = false;
    (void)vote_send(store, vote, VOTE_REPAIRING, soon_us(store), false);
}

/* It is missing there, or may be. */
static bool
vote_misses(const struct vote *vote)
{
    enum op_status status = vote->op.result.status;

    return vote->state == VOTE_NO &&
           (status == OP_GONE || status == OP_MISSING);
}

static void
renew_repair(struct store *store, struct round *round)
{
    for (uint32_t i = 0; i < store->quorum->nodes; i++)
        if (vote_misses(&round->votes[i]))
            vote_repair(store, &round->votes[i]);
}

/* A majority has detached the hold. At the other nodes the LOCK may have been
 * carried out, late or in time: see DESIGN.md D9.5. */
static void
detach_settle(struct store *store, struct round *round, struct bid *bid)
{
    require(round->out == 0 && round->won);
    bid->detached = true;
    turn_ends(store, bid);
    for (uint32_t i = 0; i < store->quorum->nodes; i++)
        if (round->votes[i].state != VOTE_YES)
            vote_undo(store, &round->votes[i]);
}

/* Answers a renewal that a majority has carried out. */
static void
renew_won(struct store *store, struct round *round, struct bid *bid)
{
    struct op *asked = round->asked;

    round->decided = round->won = true;
    if (asked->moves) {
        bid->ask = round->about.ask;
        bid->fence = asked->fence > 0 ? asked->fence : bid->fence;
    }
    asked->result = round->about;
    asked->result.arrival = bid->arrival;
    asked->result.place = 0;
    asked->result.fence = bid->fence;
    round_term(store, round, 0, &asked->result);
    bool repairs = !asked->moves && !asked->detaches;
    if (asked->detaches) /* the bid stays: the core may give the hold back */
        detach_settle(store, round, bid);
    quorum_answer(store, asked, OP_OK);
    if (repairs)
        renew_repair(store, round);
}

/* Why there is no majority for it. */
static enum op_status
renew_verdict(const struct store *store, const struct round *round)
{
    const uint32_t *stats = round->stats;
    uint32_t enough = store->quorum->nodes - store->quorum->majority + 1;

    if (stats[OP_BROKEN] > 0)
        return OP_BROKEN;
    if (stats[OP_MOVED] > 0)
        return OP_MOVED;
    if (stats[OP_GONE] >= enough)
        return OP_GONE;
    if (stats[OP_GONE] + stats[OP_MISSING] >= enough)
        return round->asked->moves ? OP_MISSING : OP_GONE;
    return stats[OP_UNSENT] >= enough ? OP_UNSENT : OP_UNKNOWN;
}

static void
renew_decide(struct store *store, struct round *round)
{
    uint32_t majority = store->quorum->majority;
    struct bid *bid = bid_of_try(store, round->bid);
    struct count count = try_count(store, round);

    if (round->asked == NULL) {
        round->decided = true;
    } else if (bid == NULL || bid->leaving) {
        round->decided = true;
        quorum_answer(store, round->asked, OP_UNSENT);
    } else if (round->asked->detaches && round->out > 0) {
        return; /* an UNLOCK must not overtake it: DESIGN.md D9.5 */
    } else if (count.has >= majority) {
        renew_won(store, round, bid);
    } else if (count.has + count.pending < majority) {
        enum op_status status = renew_verdict(store, round);
        if (status == OP_UNKNOWN && count.pending > 0)
            return; /* a node still to answer may know */
        /* It keeps others out where it is left, until its holder believes in it
         * no more: the holder may not hear that it is lost. */
        round->decided = true;
        quorum_answer(store, round->asked, status);
    }
}

/* --- questions alone ------------------------------------------------------ */

static uint32_t
round_answered(const struct store *store, const struct round *round)
{
    uint32_t silent = round->stats[OP_UNSENT] + round->stats[OP_UNKNOWN];

    require(silent + round->out <= store->quorum->nodes);
    return store->quorum->nodes - silent - round->out;
}

/* A BREAK, a LOOK: when all have answered. If too few have, some may all the
 * same have carried it out. */
static void
plain_decide(struct store *store, struct round *round)
{
    bool done = round->kind == OP_BREAK &&
                round->stats[OP_OK] + round->stats[OP_UNKNOWN] > 0;
    enum op_status status = done ? OP_UNKNOWN : OP_UNSENT;

    if (round->out > 0)
        return;
    round->decided = true;
    if (round->asked == NULL)
        return;
    if (round_answered(store, round) >= store->quorum->majority)
        status = round->stats[OP_OK] > 0        ? OP_OK
                 : round->stats[OP_REFUSED] > 0 ? OP_REFUSED
                                                : OP_GONE;
    round->asked->result = (struct op_result){.ahead = round->about.ahead};
    quorum_answer(store, round->asked, status);
}

/* Why too few nodes have carried it out. GONE: no majority has such a hold. */
static enum op_status
detached_verdict(const struct store *store, const struct round *round)
{
    const uint32_t *stats = round->stats;
    uint32_t majority = store->quorum->majority;

    if (round_answered(store, round) < majority)
        return stats[OP_OK] + stats[OP_UNKNOWN] > 0 ? OP_UNKNOWN : OP_UNSENT;
    if (stats[OP_REFUSED] > 0)
        return OP_REFUSED;
    if (stats[OP_OK] + stats[OP_MISSING] >= majority)
        return OP_MISSING;
    if (stats[OP_OK] + stats[OP_MISSING] + stats[OP_UNKNOWN] +
            stats[OP_UNSENT] >=
        majority)
        return OP_UNKNOWN; /* the silent and unsettled ones may have it */
    return stats[OP_CONFLICT] >= majority ? OP_CONFLICT : OP_GONE;
}

/* An UNLOCK has ended the hold. Nodes that were away, or whose answers were
 * lost, are told it later: they may have the hold until its end. */
static void
detached_owe(struct store *store, struct round *round)
{
    uint64_t end_us = soon_us(store) + OP_DETACHED_MAX_MS * 1000;

    for (uint32_t i = 0; i < store->quorum->nodes; i++) {
        struct vote *vote = &round->votes[i];
        enum op_status status = vote->op.result.status;
        if (status == OP_UNSENT || status == OP_UNKNOWN)
            (void)vote_send(store, vote, VOTE_UNDOING, end_us, true);
    }
}

/* UNLOCK and RENEW by a fence, when all have answered. A majority is without
 * the hold after an UNLOCK, and has it with the new end after a RENEW. */
static void
detached_decide(struct store *store, struct round *round)
{
    uint32_t majority = store->quorum->majority;
    uint32_t needed = round->kind == OP_RENEW_DETACHED ? majority : 1;
    enum op_status status = detached_verdict(store, round);
    struct op_result result = {0};

    if (round->out > 0)
        return;
    round->decided = true;
    if (round->stats[OP_OK] >= needed &&
        round_answered(store, round) >= majority) {
        round_term(store, round, 0, &result);
        status = OP_OK;
    }
    if (status == OP_OK && round->kind == OP_UNLOCK_DETACHED)
        detached_owe(store, round);
    if (round->asked == NULL)
        return;
    for (uint32_t i = 0; i < store->quorum->nodes; i++)
        if (result.again_ms < round->votes[i].again_ms)
            result.again_ms = round->votes[i].again_ms;
    round->asked->result = result;
    quorum_answer(store, round->asked, status);
}

/* One node is enough whose subscribers have heard it; else the next. */
static void
publish_decide(struct store *store, struct round *round)
{
    struct vote *next = NULL;

    if (round->out > 0)
        return;
    for (uint32_t i = 0; i < store->quorum->nodes; i++)
        if (round->votes[i].state == VOTE_YES &&
            round->votes[i].op.result.ahead > 0)
            round->won = true;
    for (uint32_t i = store->quorum->nodes; !round->won && i > 0; i--)
        if (round->votes[i - 1].state == VOTE_NONE &&
            conn_answers(&store->conns[i - 1]))
            next = &round->votes[i - 1];
    if (next != NULL &&
        vote_send(store, next, VOTE_ASKED, soon_us(store), false))
        return;
    round->decided = true;
    if (round->asked != NULL)
        quorum_answer(store, round->asked,
            round->won || round->stats[OP_OK] > 0 ? OP_OK : OP_UNSENT);
}

/* --- INSPECT -------------------------------------------------------------- */

/* Of one try: a node that was away may have an earlier one of that owner, which
 * is over. */
static bool
same_ticket(const struct op_ticket *a, const struct op_ticket *b)
{
    return a->request == b->request && a->generation == b->generation &&
           a->mode == b->mode && strcmp(a->broker, b->broker) == 0 &&
           memcmp(a->session, b->session, sizeof(a->session)) == 0 &&
           memcmp(a->owner_hash, b->owner_hash, sizeof(a->owner_hash)) == 0;
}

static void
view_add(struct round *round, const struct op_ticket *ticket, uint32_t node)
{
    struct merged_view *view = NULL;

    for (uint32_t i = 0; i < round->view_count && view == NULL; i++)
        if (same_ticket(&round->views[i].ticket, ticket))
            view = &round->views[i];
    if (view == NULL) {
        struct merged_view *views =
            realloc(round->views, (round->view_count + 1) * sizeof(*views));
        if (views == NULL) {
            round->starved = true;
            return;
        }
        round->views = views;
        view = &views[round->view_count++];
        *view = (struct merged_view){.ticket = *ticket};
        struct text *words[] = {
            &view->ticket.owner, &view->ticket.client, &view->ticket.note};
        for (int i = 0; i < 3; i++)
            keep_word(view->words[i], words[i]);
    } else {
        if (ticket->ttl_ms < view->ticket.ttl_ms)
            view->ticket.ttl_ms = ticket->ttl_ms;
        if (ticket->leased &&
            (!view->ticket.leased || ticket->lease_ms < view->ticket.lease_ms))
            view->ticket.lease_ms = ticket->lease_ms;
        view->ticket.leased = view->ticket.leased || ticket->leased;
    }
    if ((view->seen & node) != 0)
        return;
    require(view->nodes < STORE_QUORUM_MAX);
    view->seen |= node;
    uint32_t at = view->nodes++;
    for (; at > 0 && view->fences[at - 1] < ticket->fence; at--)
        view->fences[at] = view->fences[at - 1];
    view->fences[at] = ticket->fence;
}

/* The fence that a majority has for it, of those in falling order; 0: none, or
 * not yet: a try is raised to one fence before it is won. */
static uint64_t
view_fence(const struct merged_view *view, uint32_t majority)
{
    for (uint32_t i = 0; i + majority <= view->nodes; i++)
        if (view->fences[i] == view->fences[i + majority - 1])
            return view->fences[i];
    return 0;
}

static void
inspect_hear(struct round *round, const struct op_result *result, uint32_t node)
{
    for (uint32_t i = 0; i < result->ticket_count; i++)
        if (result->tickets[i].granted)
            view_add(round, &result->tickets[i], node);
    if (result->typical_ms > round->about.typical_ms)
        round->about.typical_ms = result->typical_ms;
    round->again_ms |= result->again_ms;
}

/* Whether nobody is shown as a holder, and somebody may be one all the same: a
 * minority shows the hold, and silent nodes may have it. */
static bool
inspect_doubts(const struct store *store, const struct round *round)
{
    uint32_t majority = store->quorum->majority;
    uint32_t silent = store->quorum->nodes - round_answered(store, round);
    bool doubts = false;

    require(silent < majority);
    for (uint32_t i = 0; i < round->view_count; i++) {
        if (view_fence(&round->views[i], majority) > 0)
            return false;
        doubts = doubts || view_fence(&round->views[i], majority - silent) > 0;
    }
    return doubts;
}

static void
inspect_decide(struct store *store, struct round *round)
{
    uint32_t majority = store->quorum->majority;
    struct op *asked = round->asked;
    struct op_result result = {0};

    if (round->out > 0)
        return;
    round->decided = true;
    if (asked == NULL)
        return;
    uint32_t waiters = queue_count(store, asked->name);
    if (round->view_count + waiters > 0)
        round->shown =
            calloc(round->view_count + waiters, sizeof(*round->shown));
    /* A lock that was not seen is not free for that. */
    if (round_answered(store, round) < majority || round->starved ||
        (round->shown == NULL && round->view_count + waiters > 0) ||
        (asked->reader == READER_WATCH && inspect_doubts(store, round))) {
        quorum_answer(store, asked, OP_UNSENT);
        return;
    }
    for (uint32_t i = 0; round->shown != NULL && i < round->view_count; i++) {
        struct merged_view *view = &round->views[i];
        uint64_t fence = view_fence(view, majority);
        if (fence == 0)
            continue;
        struct op_ticket *shown = &round->shown[result.holders++];
        *shown = view->ticket;
        shown->owner.at = view->words[0];
        shown->client.at = view->words[1];
        shown->note.at = view->words[2];
        shown->fence = fence;
        if (shown->mode == MODE_SHARED)
            result.mode = MODE_SHARED;
        if (shown->fence > result.fence)
            result.fence = shown->fence;
    }
    if (round->shown != NULL)
        result.waiters =
            queue_show(store, asked->name, round->shown + result.holders);
    result.tickets = round->shown;
    result.ticket_count = result.holders + result.waiters;
    require(result.ticket_count <= round->view_count + waiters);
    if (result.ticket_count > asked->limit)
        result.ticket_count = asked->limit;
    result.delay_ms = round->about.delay_ms;
    result.ttl_ms = round->about.ttl_ms;
    result.typical_ms = round->about.typical_ms;
    result.again_ms = round->again_ms;
    result.sent_us = store->now_us;
    result.senseless = round->about.senseless;
    asked->result = result;
    quorum_answer(store, asked, OP_OK);
}

/* --- votes come in -------------------------------------------------------- */

/* Of two ends, each 0 where there is none. */
static uint64_t
sooner_ms(uint64_t a, uint64_t b)
{
    return a > 0 && (a < b || b == 0) ? a : b;
}

/* Keeps parts of one node's answer for the core: the answer is gone then. */
static void
round_hear(struct round *round, const struct op_result *result, uint32_t node)
{
    struct text *words[] = {&round->about.holder_client,
        &round->about.holder_owner, &round->about.holder_note};
    uint64_t delay_ms = round->about.delay_ms;

    if (delay_ms < result->delay_ms)
        delay_ms = result->delay_ms;
    if (round->kind == OP_INSPECT && round->about.ttl_ms < result->ttl_ms)
        round->about.ttl_ms = result->ttl_ms;
    if (round->kind == OP_INSPECT && result->senseless) {
        round->about.senseless = true;
    } else if (round->kind == OP_INSPECT && result->status == OP_OK) {
        inspect_hear(round, result, node);
    } else if (round->kind == OP_BREAK) {
        if (result->ahead > round->about.ahead)
            round->about.ahead = result->ahead;
    } else if (round->kind == OP_RENEW && result->status == OP_OK) {
        uint64_t left_ms = round->about.hold_ms;
        uint64_t hold_ms = round->about.ask.hold_ms;
        round->about = *result;
        round->about.hold_ms = (uint32_t)sooner_ms(left_ms, result->hold_ms);
        round->about.ask.hold_ms = sooner_ms(hold_ms, result->ask.hold_ms);
        keep_word(round->said[0], &round->about.note);
    } else if (result->told && !round->about.told) {
        round->about = *result;
        for (int i = 0; i < 3; i++)
            keep_word(round->said[i], words[i]);
    }
    round->about.delay_ms = delay_ms;
}

static void
round_decide(struct store *store, struct round *round)
{
    static void (*const decide[OP_KIND_COUNT])(
        struct store *, struct round *) = {

#define OP(id, word, owner, done, script, keys, share, grants, take, decide) \
    decide,
#include "daemon/op/op.def"
    };

    decide[round->kind](store, round);
}

static enum vote_state
vote_read(struct vote *vote, enum op_status status)
{
    vote->fence = vote->op.result.fence;
    vote->sent_us = vote->op.result.sent_us;
    vote->ttl_ms = vote->op.result.ttl_ms;
    vote->again_ms = vote->op.result.again_ms;
    if (status == OP_OK)
        return VOTE_YES;
    return status == OP_UNKNOWN || status == OP_REFUSED ? VOTE_DOUBT : VOTE_NO;
}

/* A release has been carried out at a node, or was not needed there. */
static void
release_heard(struct store *store, struct vote *vote, enum op_status status)
{
    struct bid *bid = bid_of_try(store, vote->round->bid);

    if (bid == NULL)
        return;
    if (status == OP_UNSENT || status == OP_UNKNOWN || status == OP_REFUSED)
        bid->asked_to_leave &= ~bit_of(vote);
    else
        bid_left(store, bid, bit_of(vote), status == OP_OK);
}

/* Sends a release again if nobody knows whether it was carried out. */
static bool
vote_again(struct store *store, struct vote *vote, enum op_status status)
{
    bool gives = vote->state == VOTE_UNDOING || vote->round->kind == OP_RELEASE;
    struct bid *bid = bid_of_try(store, vote->round->bid);

    if (!gives || status != OP_UNKNOWN)
        return false;
    if (bid != NULL && bid->leaving)
        bid->freed = true; /* GONE is what it says then if it was */
    return store->now_us < vote->op.deadline_us &&
           vote_send(store, vote, vote->state, vote->op.deadline_us, true);
}

/* A question to all counts as sent when the one that was heard last was. */
static void
round_note_sending(struct round *round, const struct op *op)
{
    if (round->asked == NULL || op->sent_us == 0)
        return;
    round->asked->sent_us = op->sent_us;
    round->asked->tries += op->tries;
}

void
quorum_voted(struct store *store, struct op *op, enum op_status status)
{
    struct vote *vote = vote_of(op);
    struct round *round = vote->round;
    enum vote_state was = vote->state;

    require(round->out > 0 && status <= OP_REFUSED);
    require(was == VOTE_ASKED || was >= VOTE_RAISING);
    require(store->quorum->waiting >= vote->waits);
    round->out--;
    store->quorum->waiting -= vote->waits;
    round_note_sending(round, op);
    if (vote_again(store, vote, status))
        return;
    if (was == VOTE_UNDOING) {
        vote->state = VOTE_NONE;
    } else if (was == VOTE_ASKED) {
        vote->state = vote_read(vote, status);
        round->stats[status]++;
        round_hear(round, &op->result, bit_of(vote));
        if (round->kind == OP_RELEASE)
            release_heard(store, vote, status);
    } else {
        vote->state = vote_read(vote, status);
        if (vote->state == VOTE_NO)
            vote->state = VOTE_NONE;
    }
    if (was == VOTE_REPAIRING && status == OP_OK)
        count(store->counters, COUNTER_quorum_mends);
    if (was == VOTE_REPAIRING ||
        (round->decided && round->kind == OP_ACQUIRE)) {
        vote_settle(store, vote);
    } else if (round->decided && round->won && round->kind == OP_RENEW &&
               was == VOTE_ASKED && !op->moves && !op->detaches &&
               vote_misses(vote)) {
        vote_repair(store, vote);
    } else if (!round->decided && was != VOTE_UNDOING) {
        round_decide(store, round);
    }
    round_end(store, round);
}

void
round_ask(struct store *store, struct round *round, uint32_t nodes)
{
    require(round->out == 0 && nodes >> store->quorum->nodes == 0);
    for (uint32_t i = 0; i < store->quorum->nodes; i++) {
        struct vote *vote = &round->votes[i];
        bool waits = round->kind == OP_RELEASE;
        uint64_t deadline_us =
            waits ? lease_over_us(store, vote) : renewal_until_us(store, round);
        if (round->kind == OP_PUBLISH || (nodes & 1u << i) == 0)
            continue;
        if (vote_send(store, vote, VOTE_ASKED, deadline_us, waits))
            continue;
        vote->state = VOTE_NO;
        vote->op.result.status = OP_UNSENT;
        round->stats[OP_UNSENT]++;
        if (round->kind == OP_RELEASE)
            release_heard(store, vote, OP_UNSENT);
    }
    round_decide(store, round);
    round_end(store, round);
}

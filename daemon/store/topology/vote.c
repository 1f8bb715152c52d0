/*
 * Rounds and their votes: begun, sent, over. round.c decides.
 */
#include "daemon/store/topology/quorum.h"

#include "daemon/store/node/conn.h"
#include "daemon/store/queue/queue.h"

#include "daemon/base/assert.h"

#include <stdlib.h>
#include <string.h>

uint32_t
bit_of(const struct vote *vote)
{
    require(op_see(&vote->op)->home < STORE_QUORUM_MAX);
    return 1u << op_see(&vote->op)->home;
}

void
keep_word(char to[PROTO_NOTE_MAX], struct text *word)
{
    size_t len = word->len < PROTO_NOTE_MAX ? word->len : PROTO_NOTE_MAX;

    if (len > 0)
        memcpy(to, word->at, len);
    *word = text_make(to, len);
}

/* Brokers' messages to each other are longer than any word of a lock. */
static bool
keep_message(struct round *round, struct text *message)
{
    round->message = malloc(message->len + 1);
    if (round->message == NULL)
        return false;
    if (message->len > 0)
        memcpy(round->message, message->at, message->len);
    message->at = round->message;
    return true;
}

static void
round_free(struct store *store, struct round *round)
{
    free(round->views);
    free(round->shown);
    free(round->message);
    slab_free(&store->quorum->rounds, round);
}

struct round *
round_begin(struct store *store, const struct op *op, struct op *asked)
{
    struct quorum *quorum = store->quorum;
    struct round *round = slab_alloc(&quorum->rounds);

    if (round == NULL)
        return NULL;
    require(op->name.len <= sizeof(round->name));
    require(asked == NULL || op_own(asked)->round == NULL);
    struct op question = *op;
    list_init(&round->link);
    round->asked = asked;
    round->kind = op->kind;
    memcpy(round->name, op->name.at, op->name.len);
    question.name = text_make(round->name, op->name.len);
    for (int i = 0; i < 3; i++) {
        if (i != 1 || op->kind != OP_PUBLISH) {
            keep_word(round->words[i], &question.words[i]);
        } else if (!keep_message(round, &question.words[i])) {
            round_free(store, round);
            return NULL;
        }
    }
    question.unwanted = false;
    memset(&question.result, 0, sizeof(question.result));
    for (uint32_t i = 0; i < quorum->nodes; i++) {
        struct vote *vote = &round->votes[i];
        vote->op = question;
        op_begin(&vote->op);
        op_own(&vote->op)->vote = true;
        op_own(&vote->op)->home = (uint16_t)i;
        vote->round = round;
        list_init(&vote->op.link);
    }
    if (asked != NULL)
        op_own(asked)->round = round;
    return round;
}

void
round_end(struct store *store, struct round *round)
{
    if (round->out > 0 || round->asked != NULL || !list_empty(&round->link))
        return;
    list_push_back(&store->quorum->over, &round->link);
}

void
round_sweep(struct store *store)
{
    struct list *at;

    while ((at = list_pop_front(&store->quorum->over)) != NULL) {
        struct round *round = container_of(at, struct round, link);
        require(round->out == 0 && round->asked == NULL);
        round_free(store, round);
    }
}

bool
vote_send(struct store *store, struct vote *vote, enum vote_state state,
    uint64_t deadline_us, bool waits)
{
    uint16_t node = op_own(&vote->op)->home;
    bool away = !conn_answers(&store->conns[node]);

    if (away && (!waits || store->quorum->waiting >= QUORUM_WAITING))
        return false;
    require(vote->round->out < store->quorum->nodes);
    vote->waits = away;
    store->quorum->waiting += away;
    vote->state = state;
    vote->op.deadline_us = deadline_us;
    if (state != VOTE_ASKED)
        vote->op.end_us = 0; /* that was the end of the question */
    op_own(&vote->op)->attempts = 0;
    vote->op.tries = 0;
    op_own(&vote->op)->halved = false;
    vote->op.unwanted = false;
    vote->round->out++;
    op_enqueue(store, &vote->op, node, store->now_us, false);
    return true;
}

uint64_t
soon_us(const struct store *store)
{
    return store->now_us + store->settings.command_timeout_us;
}

uint64_t
lease_over_us(const struct store *store, const struct vote *vote)
{
    const struct bid *bid = bid_of_try(store, vote->round->bid);
    uint64_t end_us = store->now_us + (uint64_t)vote->op.lease_ms * 1000;

    if (bid != NULL && bid->detached_us > end_us && !vote->op.spares)
        end_us = bid->detached_us;
    return end_us + store->settings.command_timeout_us;
}

void
vote_undo(struct store *store, struct vote *vote)
{
    const struct bid *bid = bid_of_try(store, vote->round->bid);

    require(vote->round->decided); /* DESIGN.md D5.4 */
    vote->op.kind = OP_RELEASE;
    vote->op.fence = 0;
    vote->op.arrival = 0;
    vote->op.unclean = false;
    vote->op.moves = false;
    vote->op.spares = bid != NULL && bid->detached;
    (void)vote_send(
        store, vote, VOTE_UNDOING, lease_over_us(store, vote), true);
}

static bool
vote_is(const struct vote *vote, enum op_status status)
{
    return vote->state == VOTE_NO && vote->op.result.status == status;
}

/* When so many of the votes with that status count, by their ends. */
static uint32_t
votes_end_ms(const struct store *store, const struct round *round,
    enum op_status status, uint32_t count)
{
    uint32_t least[STORE_QUORUM_MAX];
    uint32_t n = 0;

    for (uint32_t i = 0; i < store->quorum->nodes; i++) {
        const struct vote *vote = &round->votes[i];
        uint32_t at = n;
        if (!vote_is(vote, status))
            continue;
        for (; at > 0 && least[at - 1] > vote->again_ms; at--)
            least[at] = least[at - 1];
        least[at] = vote->again_ms;
        n++;
    }
    return count == 0 || count > n ? UINT32_MAX : least[count - 1];
}

uint32_t
round_free_ms(const struct store *store, const struct round *round)
{
    uint32_t has = round->stats[OP_OK];
    uint32_t majority = store->quorum->majority;

    return votes_end_ms(
        store, round, OP_BUSY, has < majority ? majority - has : 0);
}

uint32_t
round_settles_ms(const struct store *store, const struct round *round)
{
    uint32_t spoke = round->stats[OP_OK] + round->stats[OP_BUSY];
    uint32_t majority = store->quorum->majority;

    require(spoke < majority);
    require(spoke + round->stats[OP_UNSETTLED] >= majority);
    return votes_end_ms(store, round, OP_UNSETTLED, majority - spoke);
}

uint32_t
round_busy(const struct store *store, const struct round *round)
{
    uint32_t nodes = 0;

    for (uint32_t i = 0; i < store->quorum->nodes; i++)
        if (vote_is(&round->votes[i], OP_BUSY))
            nodes |= bit_of(&round->votes[i]);
    return nodes;
}

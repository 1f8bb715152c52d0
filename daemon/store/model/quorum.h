/*
 * Topology quorum: independent masters, of which a majority says who holds a
 * lock (Redlock). For daemon/store only.
 *
 * An operation of the core becomes a *round*: one question, a *vote*, at each
 * node. The round is decided once enough have answered; later answers are put
 * right one by one. A ticket of the core that asks, waits or holds is a *bid*
 * here. Each try to get the lock for it has a request id of its own in Redis,
 * so that taking an old try back never harms a new one.
 *
 * Waiters stand in no record: each lock has a queue here, first come first
 * served. Its first one tries again at each release anywhere, and now and then.
 * A try that finds the lock held tells all brokers
 * that it waits. A broker whose own tickets have had the lock QUORUM_TURN times
 * in a row then stays back, so that each broker gets its turn.
 *
 * A node that has lost its data grants nothing for a lease (history.c). Its
 * first fence then is above all earlier ones, as long as clocks agree within a
 * lease. A majority without the node knows the fences granted since.
 *
 * quorum.c has the questions, bid.c bids and queues, round.c rounds, vote.c
 * votes, outcome.c what follows from them.
 *
 * See DESIGN.md D5.
 */
#ifndef HOLDFAST_STORE_MODEL_QUORUM_H
#define HOLDFAST_STORE_MODEL_QUORUM_H

#include "daemon/base/table.h"
#include "daemon/store/model/state.h"
#include "proto/request.h"

#define QUORUM_BIDS   (1u << 20)
#define QUORUM_ROUNDS (1u << 17)
#define QUORUM_QUEUES (1u << 18)
#define QUORUM_TURNS  (1u << 12)
#define QUORUM_TURN   8 /* grants in a row, while other brokers wait */
/* Releases that wait for nodes that are away. Each keeps a round; a release
 * that is told to nobody ends with its lease. */
#define QUORUM_WAITING (1u << 13)

/* Turns at a lock. Two locks may have one place: then it begins anew. */
struct turn {
    uint64_t hash;      /* of the lock's name */
    uint64_t wanted_us; /* when another broker last told that it waits */
    uint64_t until_us;  /* this broker stays back until then */
    uint64_t took_us;   /* the last try that won */
    uint32_t grants;    /* in a row, of this broker's tickets */
    uint32_t held;      /* by tickets of this broker */
};

struct queue {
    struct slab_node node;
    struct table_node table;
    struct list bids; /* in order of arrival */
    struct list stir_link;
    uint64_t stir_us; /* when its first one tries; if it is on that list */
    uint32_t count;
    uint64_t numbers;    /* the next one's in it */
    bool gaps;           /* somebody has left from its middle since */
    uint64_t watched_us; /* until then the nodes tell of changes */
    uint8_t name_len;
    char name[PROTO_NAME_MAX];
};

struct bid {
    struct slab_node node; /* its handle is the request id of the last try */
    struct table_node table;
    struct list used_link; /* all, by the time of use */
    struct list queue_link;
    struct queue *queue; /* ref; NULL: it does not wait */
    uint64_t number;     /* in the queue; they grow by one, but for gaps */
    uint64_t request;    /* the core's */
    uint64_t used_us;
    uint64_t tried_us; /* when the last try began */
    uint64_t hash;     /* of the lock's name */
    bool held;         /* counted in its turn */
    uint64_t arrival;
    uint64_t fence;         /* of the hold; 0: it is none */
    uint64_t detached_us;   /* nodes may have it until then; 0: not asked for */
    uint64_t seen;          /* the highest that a lost try was given */
    uint64_t again_us;      /* it tries then, if nothing happens sooner */
    uint64_t not_before_us; /* nor sooner than that, whatever happens */
    uint32_t pause_ms;      /* before the next try */
    uint32_t split_ms;      /* when nobody had a majority */
    uint32_t busy;          /* bits of nodes where somebody was in the way */
    bool trying;
    bool stirred;            /* something was given back meanwhile */
    bool moves;              /* an earlier connection's may stand somewhere */
    bool idle;               /* its client is away: others come first */
    bool detached;           /* by a majority: the other nodes give it back */
    bool leaving;            /* its release goes on until it is carried out */
    bool freed;              /* leaving: some node had it, or may have had */
    uint32_t asked_to_leave; /* leaving: bits of nodes */
    uint32_t left;           /* leaving: bits of nodes that have answered */
    struct op *leaves;       /* ref: the core's release, or NULL */
    struct ask ask;
    /* for readers of the queue */
    uint8_t session[16];
    uint8_t owner_hash[8];
    uint32_t generation;
    uint64_t since_us; /* it waits: CLOCK_REALTIME */
};

enum vote_state {
    VOTE_NONE,      /* not asked, or nothing is to be done any more */
    VOTE_ASKED,     /* the round's question is on its way */
    VOTE_YES,       /* granted, renewed, done */
    VOTE_NO,        /* it was refused, or did not run */
    VOTE_DOUBT,     /* it may have run */
    VOTE_RAISING,   /* its fence is being raised to the others' */
    VOTE_REPAIRING, /* a hold is being put where it is missing */
    VOTE_UNDOING,   /* its grant is being taken back */
};

struct vote {
    struct op op;
    struct round *round; /* ref */
    enum vote_state state;
    bool waits; /* its node was away when it was asked */
    uint64_t fence;
    uint64_t sent_us;
    uint32_t ttl_ms;
    uint32_t again_ms;
};

/* A ticket that some nodes show. */
struct merged_view {
    struct op_ticket ticket; /* of its words the lengths */
    uint32_t seen;           /* bits of nodes */
    uint32_t nodes;
    uint64_t fences[STORE_QUORUM_MAX];
    char words[3][PROTO_NOTE_MAX];
};

struct round {
    struct slab_node node;
    struct list link;  /* of those that are over */
    struct op *asked;  /* ref: the core's; NULL: it was answered, or is ours */
    struct handle bid; /* as Redis knows it */
    enum op_kind kind;
    bool decided;
    bool won;
    bool starved; /* there was no memory for all that was seen */
    uint32_t out; /* votes under way */
    uint32_t stats[OP_REFUSED + 1];
    uint32_t again_ms;
    struct op_result about;    /* the holder in the way, or the answer */
    struct merged_view *views; /* owned, or NULL */
    uint32_t view_count;
    struct op_ticket *shown; /* owned, or NULL */
    char name[PROTO_NAME_MAX];
    char words[3][PROTO_NOTE_MAX]; /* of the question */
    char *message;                 /* OP_PUBLISH: words[1]; owned, or NULL */
    char said[3][PROTO_NOTE_MAX];  /* of `about` */
    struct vote votes[];           /* one for each node */
};

struct quorum {
    struct slab bids;
    struct slab rounds;
    struct slab queues;
    struct table bid_table;
    struct table queue_table;
    struct hash_key key;
    struct turn turns[QUORUM_TURNS];
    struct list used;  /* bids */
    struct list over;  /* rounds whose answers may still be read */
    struct list stirs; /* queues that have heard of a change */
    uint64_t arrivals;
    uint64_t lease_us; /* the longest that was asked for */
    uint32_t nodes;
    uint32_t majority;
    uint32_t waiting; /* votes for nodes that are away */
};

#endif

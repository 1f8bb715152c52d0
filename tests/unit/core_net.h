/*
 * Several cores before one fake Redis, for tests of daemon/core in which
 * brokers meet: records with real queues of every kind, leases, claims, lapses,
 * generations and lock-delays as lua/ has them, messages between brokers,
 * answers that come late or not at all, and records that lose tickets, which
 * for a lease are nobody's but those of whoever puts them there again. Time is
 * virtual, and a net with one seed does the same each time.
 *
 * Locks have names of one letter, from 'a' on.
 */
#ifndef HOLDFAST_TESTS_UNIT_CORE_NET_H
#define HOLDFAST_TESTS_UNIT_CORE_NET_H

#include "daemon/base/random.h"
#include "tests/unit/core_rig.h"

#define NET_CORES 4
#define NET_LOCKS 16
#define NET_QUEUE 32
#define NET_JOBS  8192

/* A ticket in the fake Redis. */
struct net_entry {
    char broker[9];
    uint8_t session[16];
    uint8_t owner_hash[8];
    uint32_t generation;
    uint64_t request;
    bool shared;
    bool granted;
    bool claimed;
    bool suspended;
    bool broken;
    uint32_t permits;
    uint32_t delay_ms;
    uint32_t lease_ms;
    uint64_t hold_ms;     /* lease=, until it is claimed */
    uint64_t hold_end_us; /* then; 0: none */
    uint64_t arrival;
    uint64_t fence;
    uint64_t ends_us;
    uint64_t since_us;
};

struct net_record {
    struct net_entry queue[NET_QUEUE];
    unsigned count;
    uint32_t limit;
    uint64_t fence;
    uint64_t arrival;
    uint64_t delay_until_us;
    uint64_t watched_until_us;
    uint64_t request_until_us; /* it has lost some: nobody is granted it */
    uint64_t bereft_until_us;  /* waiters that it has lost may come back */
    uint64_t over;             /* fence: until then a hold that is over */
    bool news;
};

enum net_fate {
    FATE_DONE,    /* executed, and answered */
    FATE_LOST,    /* executed, the answer is lost */
    FATE_NEVER,   /* lost; executed much later, where nothing forbids that */
    FATE_UNSENT,  /* told so when its time is over */
    FATE_REFUSED, /* executed, and answered by an error */
};

enum net_job_kind {
    NET_OP,
    NET_HINT,
    NET_BROKEN,
    NET_NEWS,
    NET_CHANGED,
};

/* An operation on its way, or a message. */
struct net_job {
    enum net_job_kind kind;
    unsigned core;
    uint32_t life;  /* of the core that is meant */
    char broker[9]; /* its id in that life */
    struct op *op;  /* ref: the core's; NULL: nobody waits for the answer */
    struct op asked;
    enum net_fate fate;
    bool executed;
    unsigned lock;
    uint64_t sent_us;
    uint64_t execute_us;
    uint64_t answer_us;
    uint64_t request; /* of a hint */
    uint64_t fence;
    struct op_result result;
    struct op_grant grants[NET_QUEUE];
    struct op_ticket *tickets; /* owned; of an inspection */
    char *news;                /* owned */
    size_t news_len;
    char to[9]; /* PUBLISH: the broker */
};

struct net {
    struct random random;
    uint64_t now_us;
    unsigned cores;
    struct rig *rigs[NET_CORES]; /* owned */
    uint32_t lives[NET_CORES];
    struct net_record records[NET_LOCKS];
    struct net_job *jobs[NET_JOBS]; /* owned */
    unsigned job_count;
    uint64_t steps;
    uint64_t lost; /* tickets */
    uint64_t back; /* of them, put there again */
    /* The test's. */
    unsigned faults; /* one operation in so many goes wrong; 0: none */
    unsigned deaf;   /* one message in so many is lost; 0: none */
    unsigned losses; /* one operation in so many finds tickets lost; 0: none */
    unsigned way_us; /* a call takes up to so long */
    unsigned slow;   /* one in so many takes twelve times that; 0: none */
    uint32_t lapse_ms; /* of a grant to another broker */
    void (*prepare)(struct core_settings *settings);
    /* After each step of a core. */
    void (*heard)(struct net *net, unsigned core);
    bool traced; /* by HOLDFAST_TRACE in the environment */
};

/* A line of the trace: what came or went (`way`) at a session of a core. */
void net_trace(const struct net *net, unsigned core, unsigned session,
    const char *way, const char *line);

void net_init(struct net *net, unsigned cores);
void net_fini(struct net *net);

/* Starts a core, or starts it again; the one before forgets all, at once. */
void net_start(struct net *net, unsigned core);

unsigned net_pick(struct net *net, unsigned bound);

/* Steps of a core, after which its operations are on their way. */
void net_say(
    struct net *net, unsigned core, unsigned session, const char *line);
void net_event(struct net *net, unsigned core, unsigned session,
    enum core_event_kind kind);
void net_reopen(struct net *net, unsigned core, unsigned session);
void net_stop(struct net *net, unsigned core);
void net_unheard(struct net *net, unsigned core);

/* Lets time pass, thing by thing. */
void net_pass(struct net *net, uint64_t us);

/* The living holders of a lock, by what Redis has at this moment. */
unsigned net_holders(struct net *net, unsigned lock, uint64_t *newest);

/* The living ticket of a session with that fence; NULL: there is none. */
const struct net_entry *net_hold(
    struct net *net, unsigned lock, const uint8_t session[16], uint64_t fence);

#endif

/*
 * Drills: at the end of a run, when all has healed and all were served, one
 * thing goes wrong at a time. Its promise must come true in the promised time.
 * drill.c has their course, drill_kinds.c their kinds.
 *
 * A drill has a lock and parts that tasks of resting clients take: a holder,
 * some who wait, an heir who must be served. The client that is about to die,
 * or to be cut off, is no part of it any more. If another participant falls
 * out, the drill is off. The next one begins when what this one shook has come
 * to rest.
 */
#ifndef HOLDFAST_TESTS_SIM_DRILL_H
#define HOLDFAST_TESTS_SIM_DRILL_H

#include "tests/sim/client_state.h"
#include "tests/sim/server.h"

#define DRILL_WAITERS 3
#define DRILL_NOBODY  UINT32_MAX

/* Brokers have their links to Redis again, with one try that fails. */
#define DRILL_REJOIN_US 3000000

/* The fault while everything else is well. */
enum drill_kind {
    DRILL_DEATH,   /* a holder dies, or one who waits before the heir */
    DRILL_GONE,    /* one who has just asked dies */
    DRILL_SHAKEN,  /* the brokers lose Redis while the heir asks */
    DRILL_UNHEARD, /* or while the holder gives back, and hints are lost */
    DRILL_RETRIES, /* no answer comes for a lease, though it was granted */
    DRILL_PLACE,   /* a waiter of longer than a lease keeps its place */
    DRILL_SILENT,  /* a holder's host dies or is cut off */
    DRILL_LAPSES,  /* a lease= runs out, and nobody does anything */
    DRILL_RENEWS,  /* a RENEW overtakes a renewal that Redis did not take */
    DRILL_BROKER,  /* a broker dies, stops, or loses Redis, with its clients' */
    DRILL_ASLEEP,  /* every Redis sleeps until the brokers have given up */
    DRILL_MOVES,   /* a slot is on its way for long */
    DRILL_WIPED,   /* Redis loses its data */
    DRILL_IDS,     /* replication ids change in short order */
    DRILL_RESUMED, /* a session moves, and claims what it holds */
    DRILL_REJOINS, /* or puts again what it waits for */
    DRILL_CROSSED, /* and is granted it meanwhile */
    DRILL_UNKEPT,  /* nobody comes for a session that is kept */
    DRILL_DELAY,   /* a lock-delay, or none after an UNLOCK */
    DRILL_BREAK,   /* an operator takes the lock from its holder */
    DRILL_SEVERAL, /* a LOCK of two names is called off */
    DRILL_CIRCLE,  /* two owners wait for one another */
    DRILL_WATCH,   /* somebody watches the lock */
    DRILL_SWEEP,   /* the next request removes what lost brokers have left */
    DRILL_FORGETS, /* one of several masters loses its data (of a quorum) */
    DRILL_PARTED,  /* a broker is left with the smaller part (of a quorum) */
    DRILL_GIVEN,   /* an UNLOCK overtakes a renewal (of a quorum) */
    DRILL_NAMED,   /* its name leads to the replica that takes over */
    DRILL_SLOW,    /* every Redis answers later than a command may take */
    DRILL_TURNS,   /* one broker's clients ask again and again (of a quorum) */
    DRILL_CROWDED, /* one session keeps the broker busy */
    DRILL_CHANGED, /* a broker has a shorter lease than one that is cut off */
    DRILL_STRANDS, /* a slot's data are lost while it is on its way */
    DRILL_BEHIND,  /* a replica gets nothing for a moment (where strict) */
    DRILL_SPLIT,   /* a master that has been replaced goes on (where strict) */
    DRILL_STALE,   /* and somebody asks it (where strict) */
    DRILL_UNDONE,  /* a master is replaced that alone knew of a release */
    DRILL_REVIVED, /* and somebody claims what was released */
    DRILL_CUTOFF,  /* or of a grant, and its broker is cut off */
    DRILL_LAPSED,  /* or that one lapsed, and who has it */
    DRILL_CLAIMED, /* or of a claim, and its broker is cut off */
    DRILL_RETURNED, /* the broker that a claim has left brings it back */
    DRILL_ORDERED,  /* or of those who wait */
    DRILL_RACED,    /* or of a grant, which is given back just then */
    DRILL_REPEATED, /* or of a grant that followed one nobody heard of */
    DRILL_COPIES,   /* an older copy of a record comes back */
    DRILL_SETBACK,  /* all clocks are set back, and Redis has forgotten */
    DRILL_HANDED,   /* the broker dies where a detached hold was taken */
    DRILL_ROUSED,   /* a lock is wanted by some, and awaited by others */
    DRILL_COUNT
};

enum drill_stage {
    DRILL_NONE,
    DRILL_HOLDS,  /* the holder has asked */
    DRILL_QUEUES, /* those who wait are asking, one after the other */
    DRILL_ACTS,   /* its event is near */
    DRILL_FREES,  /* from now on time is short */
    DRILL_STAYS,  /* the heir has it, and is to keep it for a while */
};

struct drill {
    enum drill_kind kind;
    enum drill_stage stage;
    uint32_t lock;
    uint32_t broker;      /* that is in trouble; DRILL_NOBODY: none */
    struct task *holder;  /* ref; NULL: no part of it any more, as all these */
    struct task *heir;    /* ref; who is to be served in time */
    struct task *another; /* ref; asks after the heir, or beside it */
    struct task *waiters[DRILL_WAITERS]; /* ref; in order, before the heir */
    uint32_t waiter_count;
    uint32_t queued; /* of the waiters */
    uint32_t rounds;
    uint32_t lease_ms;  /* lease= of the holder, 0: none */
    uint32_t delay_ms;  /* delay= of it */
    uint32_t keep_ms;   /* keep= of its session */
    uint64_t fence;     /* of the hold that is broken */
    uint64_t order;     /* serial of that BREAK; 0: none */
    uint32_t second;    /* another lock, for those that are about two */
    struct task *mover; /* ref; whose connection ends, and that goes on */
    const struct outlook *watcher; /* ref; of a client that takes no part */
    bool renewed;                  /* its RENEW was answered OK */
    bool survives;                 /* no failover of its own takes it away */
    uint64_t silence_us;           /* until a silent session ends */
    uint64_t true_from;
    bool patient;  /* packets were lost: it waits until brokers ask */
    size_t copied; /* bytes of that copy of the lock's record */
    char copy[SERVER_COPY_BYTES];
    uint64_t serial; /* of its events; the only thing that outlives it */
};

/*
 * A detached hold. Its fence goes from client to client. Any client may give
 * the hold back, or prolong it, at any broker.
 */
struct baton {
    uint64_t fence; /* 0: this place is free */
    uint32_t lock;
    bool alone;           /* it is exclusive */
    uint32_t belief;      /* the judge's; 0: nobody relies on it any more */
    uint32_t renewals;    /* with an end that may come true */
    uint32_t turn;        /* of the latest of them */
    uint32_t unlocks;     /* that were sent */
    uint64_t given_us;    /* when an UNLOCK was answered OK; 0: not */
    uint64_t true_began;  /* when its OK came */
    uint64_t true_until;  /* the end that was told, or an earlier one */
    uint64_t true_cap;    /* the earliest end that these may bring */
    uint64_t true_asking; /* no further UNLOCK before */
};

#define BATONS 64

struct fleet {
    struct world *world; /* ref */
    uint32_t count;
    struct client *clients; /* ref: world->clients */
    bool winding;
    uint64_t true_wind;        /* when that began */
    uint64_t true_quiet;       /* until then what a drill shook comes to rest */
    uint64_t true_deaf;        /* until then a change may not be heard of */
    uint64_t wait_us;          /* the lock must be granted in it */
    uint32_t drills;           /* that were begun */
    bool settled;              /* after the last of them */
    bool left[PLAN_LOCKS_MAX]; /* a lost broker has tickets there */
    uint32_t limits[PLAN_LOCKS_MAX]; /* told of late; 0: none was */
    struct drill drill;
    struct baton batons[BATONS];
};

/* Whether there is something to be done now: the next drill, or the end. */
void fleet_look(struct fleet *fleet);

/* Begins one; false: no more of them, or not enough left to take part. */
bool drill_next(struct fleet *fleet);

/* News of a task that may take part. Its LOCK was queued, granted, or refused;
 * its RENEW was answered OK; it has lost the lock; or its client has left in
 * another way. */
void drill_queued(struct task *task);
void drill_granted(struct task *task);
void drill_refused(struct task *task, const char *code);
void drill_renewed(struct task *task);
void drill_lost(struct task *task, const char *reason);
void drill_failed(struct client *client);

/* Its CLAIM is answered, or the LOCK that it has put again is queued. */
void drill_claimed(struct task *task, bool ok);
void drill_rejoined(struct task *task);

/* Its LOCK with detached=1 is answered OK. */
void drill_detached(struct task *task, uint64_t fence);

/* A BREAK is answered. */
void drill_ordered(struct client *client, const struct request *request,
    const struct answer *a);

/* --- for drill_*.c -------------------------------------------------------- */

struct drill_plan {
    const char *name;
    const char *after; /* the begin of its bound, for people */

    /* Chooses who takes part; false: not enough can. */
    bool (*begin)(struct fleet *fleet);

    /* It happens: when the holder has the lock and the others stand in the
     * queue (`holds`), or else at once. */
    void (*acts)(struct fleet *fleet);
    bool holds;

    /* Somebody is granted the lock, but for the holder where `acts` is to
     * follow; NULL: when the heir is, the drill is over. */
    void (*granted)(struct fleet *fleet, struct task *task);

    /* The heir or the other one stands in the queue, later than before `acts`;
     * NULL: that does not matter. */
    void (*queued)(struct fleet *fleet, const struct task *task);
};

extern const struct drill_plan drill_plans[DRILL_COUNT];

/* A lease; what a few packets may take; in how long a lock must be had that has
 * become free. */
uint64_t drill_lease_us(const struct world *world);
uint64_t drill_packets_us(const struct world *world);
uint64_t drill_prompt_us(const struct world *world);
/* How often brokers ask for who waits, if nothing is heard. */
uint64_t drill_asks_us(const struct world *world);

/* Whether a packet was sent again in the drill's time, or shortly before: what
 * it had came late, and the link may have been given up for it. */
bool drill_is_resent(const struct fleet *fleet);

/* In that a grant lapses that nobody claims. */
uint64_t drill_lapse_us(const struct world *world);

/* In that a request may be anywhere between client and Redis. */
uint64_t drill_moment_us(const struct world *world);

/* Masters and replicas. */
uint32_t drill_servers(const struct world *world);

enum where {
    ANYWHERE,
    AT_BROKER,     /* the drill's */
    NOT_AT_BROKER, /* at another one */
};

/* The first task of a client that takes no part yet; NULL: there is none. One
 * whose LOCK stands behind the heir's: in a quorum each broker has a queue of
 * its own. A holder and an heir. Those of one client who wait, under different
 * owners. */
struct task *drill_choose(struct fleet *fleet, enum where where);
struct task *drill_choose_behind(struct fleet *fleet);
bool drill_choose_two(struct fleet *fleet);
/* Another one, and an heir at another broker. */
bool drill_choose_apart(struct fleet *fleet);
void drill_choose_waiters(struct fleet *fleet, enum where where);

/* Its session is to outlive its connection by so long from now on. */
void drill_keep(struct client *client, uint32_t keep_ms);

/* A LOCK, which leaves with all that the client has gathered. */
void drill_ask(struct drill *drill, struct task *task,
    enum task_purpose purpose, uint32_t wait_ms);

void drill_ask_for(struct drill *drill, struct task *task, uint32_t lock,
    enum task_purpose purpose);

/* Of a detached hold, for two leases and a half. */
void drill_ask_detached(struct drill *drill, struct task *task);

/* In that a broker tells its clients of a change in Redis. */
uint64_t told_bound_us(const struct fleet *fleet);

/* It gives back what it has, or what it will have. */
void drill_release(struct task *task, enum task_purpose purpose);

/* The waiter is in trouble, and goes on by itself. */
void drill_abandon_waiters(struct drill *drill);

/* The first who should have been served; NULL: all have. */
const struct task *drill_unserved(const struct drill *drill);

/* Later on, with the drill's serial at this moment. */
void drill_event(struct fleet *fleet, uint64_t in_us, world_call *call);

/* The drill, where that serial is still its own, at that stage; else NULL. */
struct drill *drill_at(
    struct fleet *fleet, uint64_t data, enum drill_stage stage);

/* From now on the heir must be served in that time. */
void drill_frees(struct fleet *fleet, uint64_t bound_us);

/* The same, since the holder gives the lock back. */
void drill_gives(struct fleet *fleet, uint64_t bound_us);

/* The heir has it, and keeps it for so long; then the drill is over. */
void drill_stays(struct fleet *fleet, uint64_t for_us);

/* So many nodes, from that one on, are out of that broker's reach. */
void drill_nodes_leave(
    struct fleet *fleet, uint32_t number, uint32_t from, uint32_t count);

/* No drill begins for so long. */
void drill_quiet(struct fleet *fleet, uint64_t for_us);

/* Its client's process dies, by FIN or RST. */
void drill_kill(struct fleet *fleet, const struct task *victim);

/* An event of the world: nothing is cut off from anything. */
void drill_packets_pass(void *arg, uint64_t data);

/* When it is granted, and it is the heir, the drill is over; anybody else does
 * not have the right to it yet. */
void drill_in_order(struct fleet *fleet, struct task *task);

/* All give back. */
void drill_end(struct fleet *fleet);

/* --- drill_redis.c -------------------------------------------------------- */

bool moves_begin(struct fleet *fleet);
void moves_acts(struct fleet *fleet);
void moves_granted(struct fleet *fleet, struct task *task);
bool forgets_begin(struct fleet *fleet);
void forgets_acts(struct fleet *fleet);
void forgets_granted(struct fleet *fleet, struct task *task);
void forgets_over(struct fleet *fleet);
void parted_acts(struct fleet *fleet);
void named_acts(struct fleet *fleet);
bool slow_begin(struct fleet *fleet);
void slow_acts(struct fleet *fleet);
bool turns_begin(struct fleet *fleet);
void turns_acts(struct fleet *fleet);
void turns_granted(struct fleet *fleet, struct task *task);
bool given_begin(struct fleet *fleet);
void given_granted(struct fleet *fleet, struct task *task);
bool strands_begin(struct fleet *fleet);
void strands_acts(struct fleet *fleet);
void strands_over(struct fleet *fleet);
bool behind_begin(struct fleet *fleet);
void behind_acts(struct fleet *fleet);
void behind_granted(struct fleet *fleet, struct task *task);
bool split_begin(struct fleet *fleet);
void split_acts(struct fleet *fleet);
void split_over(struct fleet *fleet);

/* The remnants of a SWEEP. */
void sweep_over(struct fleet *fleet);
bool stale_begin(struct fleet *fleet);
void stale_acts(struct fleet *fleet);
void stale_granted(struct fleet *fleet, struct task *task);
bool wiped_begin(struct fleet *fleet);
void wiped_acts(struct fleet *fleet);
void wiped_granted(struct fleet *fleet, struct task *task);
bool ids_begin(struct fleet *fleet);
bool copies_begin(struct fleet *fleet);
void copies_acts(struct fleet *fleet);
void copies_granted(struct fleet *fleet, struct task *task);
bool setback_begin(struct fleet *fleet);
void setback_acts(struct fleet *fleet);
void ids_acts(struct fleet *fleet);
void ids_granted(struct fleet *fleet, struct task *task);

/* --- drill_later.c -------------------------------------------------------- */

bool handed_begin(struct fleet *fleet);
void handed_acts(struct fleet *fleet);
void handed_queued(struct fleet *fleet, const struct task *task);
bool roused_begin(struct fleet *fleet);
/* Each client that can awaits the lock of the drill. */
void drill_awaits(struct fleet *fleet);
void roused_acts(struct fleet *fleet);
void roused_granted(struct fleet *fleet, struct task *task);

/* --- drill_failover.c ----------------------------------------------------- */

bool undone_begin(struct fleet *fleet);
void undone_acts(struct fleet *fleet);
bool revived_begin(struct fleet *fleet);
void revived_acts(struct fleet *fleet);
void revived_granted(struct fleet *fleet, struct task *task);
void revived_claimed(struct fleet *fleet, const struct task *task, bool ok);
bool cutoff_begin(struct fleet *fleet);
void cutoff_acts(struct fleet *fleet);
void cutoff_granted(struct fleet *fleet, struct task *task);
bool lapsed_begin(struct fleet *fleet);
void lapsed_acts(struct fleet *fleet);
void lapsed_granted(struct fleet *fleet, struct task *task);
bool claimed_begin(struct fleet *fleet);
void claimed_acts(struct fleet *fleet);
void claimed_claimed(struct fleet *fleet, struct task *task, bool ok);
void returned_acts(struct fleet *fleet);
void returned_claimed(struct fleet *fleet, struct task *task, bool ok);
bool ordered_begin(struct fleet *fleet);
void ordered_acts(struct fleet *fleet);
void ordered_queued(struct fleet *fleet, const struct task *task);
bool raced_begin(struct fleet *fleet);
void raced_granted(struct fleet *fleet, struct task *task);
bool repeated_begin(struct fleet *fleet);
void repeated_acts(struct fleet *fleet);
void repeated_granted(struct fleet *fleet, struct task *task);

/* --- drill_change.c ------------------------------------------------------- */

/* lease.default changes in the run, and back: broker by broker. */
void change_rolls(struct world *world);
bool changed_begin(struct fleet *fleet);
void changed_acts(struct fleet *fleet);

/* --- drill_sessions.c ----------------------------------------------------- */

bool resumed_begin(struct fleet *fleet);
void resumed_acts(struct fleet *fleet);
bool rejoins_begin(struct fleet *fleet);
void rejoins_acts(struct fleet *fleet);
void rejoins_queued(struct fleet *fleet, const struct task *task);
void rejoins_granted(struct fleet *fleet, struct task *task);
bool crossed_begin(struct fleet *fleet);
void crossed_acts(struct fleet *fleet);
void crossed_granted(struct fleet *fleet, struct task *task);
bool unkept_begin(struct fleet *fleet);
void unkept_acts(struct fleet *fleet);

/* --- drill_rules.c -------------------------------------------------------- */

bool delay_begin(struct fleet *fleet);
void delay_acts(struct fleet *fleet);
void break_acts(struct fleet *fleet);
void break_granted(struct fleet *fleet, struct task *task);
bool several_begin(struct fleet *fleet);
void several_acts(struct fleet *fleet);
void several_queued(struct fleet *fleet, const struct task *task);
void several_granted(struct fleet *fleet, struct task *task);
bool crowded_begin(struct fleet *fleet);
void crowded_acts(struct fleet *fleet);
bool circle_begin(struct fleet *fleet);
void circle_acts(struct fleet *fleet);
void circle_granted(struct fleet *fleet, struct task *task);
bool told_begin(struct fleet *fleet);
void told_acts(struct fleet *fleet);
void told_granted(struct fleet *fleet, struct task *task);

#endif

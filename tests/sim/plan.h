/*
 * The draws of a seed before a run begins: sizes, rates, kinds of faults. Every
 * run has another mix (swarm testing), so that each fault also meets worlds
 * that are free of the others. Shrinking edits a plan and runs it again.
 */
#ifndef HOLDFAST_TESTS_SIM_PLAN_H
#define HOLDFAST_TESTS_SIM_PLAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* name, what it is; faults.c does them. */
#define FAULTS(X)                                                      \
    X(cut, "a connection is reset, at any byte")                       \
    X(half_open, "a connection goes silent both ways")                 \
    X(partition, "machines cannot reach each other, both ways")        \
    X(one_way, "packets are lost one way")                             \
    X(slow, "packets take long")                                       \
    X(client_kill, "a client's process is killed")                     \
    X(client_stop, "a client's process is stopped for a while")        \
    X(client_vanish, "a client's host dies without a word")            \
    X(broker_kill, "a broker is killed and started again")             \
    X(broker_stop, "a broker is stopped for a while")                  \
    X(broker_drain, "a broker gets SIGTERM")                           \
    X(redis_stop, "a Redis is stopped for a while")                    \
    X(redis_restart, "a Redis is restarted with its data")             \
    X(redis_mood, "a Redis refuses: LOADING, BUSY, OOM and others")    \
    X(script_flush, "a Redis forgets its scripts")                     \
    X(client_list_kill, "a Redis closes all its connections")          \
    X(migrate, "a slot moves to another master")                       \
    X(order_break, "an operator takes a lock from its holders")        \
    X(order_kill, "an operator ends a session")                        \
    X(script_break, "a script stops half way")                         \
    X(failover, "a replica is promoted; what it had not seen is lost") \
    X(wiped, "a Redis is restarted without its data, or FLUSHALL")     \
    X(clock_forward, "a Redis host's clock jumps forward")             \
    X(clock_back, "a Redis host's clock jumps back")                   \
    X(broker_clock, "a broker host's wall clock jumps")

#define FAULT_ENUM(name, text) FAULT_##name,

enum fault {
    FAULTS(FAULT_ENUM) FAULT_COUNT
};

#undef FAULT_ENUM

/* Faults from here on break a topology's promises, without a rule of settled
 * brokers and with scripts that Redis stops half way. Their consequences are
 * counted by cause. */
#define FAULT_FIRST_EXCUSE FAULT_script_break

extern const char *const fault_names[FAULT_COUNT];
extern const char *const fault_texts[FAULT_COUNT];

/*
 * The keys of the configuration that the simulated parts use: the field, the
 * key with its unit, and its range as in conf/keys.c.
 */
#define CONFIG(X)                                                \
    X(lease_ms, "lease.default ms", 1000, 3600000)               \
    X(settle_ms, "redis.settle ms", 0, 3600000)                  \
    X(redis_timeout_ms, "redis.patience ms", 100, 3600000)       \
    X(connect_timeout_ms, "redis.connect_timeout ms", 10, 60000) \
    X(command_timeout_ms, "redis.command_timeout ms", 10, 60000) \
    X(forget_h, "redis.forget_after h", 1, 8760)                 \
    X(batch, "redis.batch", 1, 64)                               \
    X(in_flight, "redis.in_flight", 0, 64)                       \
    X(least_replicas, "redis.replicas", 0, 100)                  \
    X(silence_ms, "session.tcp_user_timeout ms", 1000, 3600000)  \
    X(stop_grace_ms, "session.stop_grace ms", 0, 3600000)        \
    X(line, "limits.line", 512, 4096)                            \
    X(name, "limits.name", 1, 255)                               \
    X(outstanding, "limits.outstanding", 1, 8192)                \
    X(holds, "limits.holds", 1, 1048576)                         \
    X(waiters, "limits.waiters", 1, 100000)                      \
    X(tickets, "limits.tickets", 16, 16777216)                   \
    X(requests, "limits.requests", 16, 16777216)                 \
    X(audit_ms, "audit.interval ms", 0, 86400000)                \
    X(audit_keys, "audit.keys", 1, 500)                          \
    X(audit_pause_ms, "audit.pause ms", 0, 60000)                \
    X(warn_ms, "audit.warn_after ms", 0, UINT32_MAX)             \
    X(wait_ms, "audit.wait_after ms", 0, UINT32_MAX)             \
    X(break_ms, "audit.break_after ms", 0, UINT32_MAX)           \
    X(slow_ms, "slow.threshold ms", 0, 3600000)                  \
    X(output, "limits.output", 16384, 1073741824)

#define X(name, key, low, high) CONFIG_##name,

enum config_key {
    CONFIG(X) CONFIG_COUNT
};

#undef X

struct plan {
    uint64_t seed;
    uint64_t run_us; /* with faults; then it heals */
    uint32_t brokers;
    uint32_t clients;
    uint32_t masters;  /* 1: topology single or a small cluster */
    uint32_t replicas; /* of each master */
    bool cluster;
    uint32_t sentinels; /* that watch the one master; 0: there are none */
    uint32_t locks;
    uint32_t quorum;   /* of the masters a majority says who has a lock */
    uint32_t strict;   /* redis.safety: strict */
    uint32_t loses;    /* a Redis that restarts may have lost its data */
    uint32_t peers;    /* brokers tell one another by what they lease */
    uint32_t short_ms; /* their other lease.default; 0: there is none */
    uint32_t rolls;    /* it changes to that in the run, and back */
#define FIELD(name, key, low, high) uint32_t name;
    CONFIG(FIELD)
#undef FIELD
    uint64_t think_us;   /* a client's mean pause between requests */
    uint64_t hold_us;    /* mean time of a hold */
    uint64_t latency_us; /* least of a packet */
    uint64_t jitter_us;  /* mean of what comes on top */
    uint64_t skew_us;    /* wall clocks of Redis hosts differ by up to that */
    uint64_t fault_us;   /* mean time between faults; 0: none */
    uint32_t fault_weight[FAULT_COUNT]; /* 0: not in this run */
    /* deeds of clients, in percent */
    uint32_t semaphores; /* of the locks */
    uint32_t shares;     /* of the requests for the others */
    uint32_t several;    /* LOCKs of several names */
    uint32_t nests;      /* holds within which another lock is taken */
    uint32_t keeps;      /* of the clients: their sessions move */
    uint32_t watches;    /* of the clients */
    uint32_t members;    /* some of these have members=1 */
    uint32_t delays;     /* LOCKs with a lock-delay */
    uint32_t conflicts;  /* LOCKs that do not fit, on purpose */
    uint32_t detaches;   /* LOCKs with detached=1, and what comes of them */
    uint32_t awaits;     /* steps of clients that AWAIT a lock */
    uint32_t wants;      /* LOCKs with wanted=1 */
    uint32_t parts;      /* holds of several permits that give some back */
    uint32_t resizes;    /* further steps of clients that RESIZE a semaphore */
    uint32_t upgrades;   /* shared LOCKs that are upgradable; and of upgrades */
    uint32_t trees;      /* LOCKs with tree=1: by hand, and in no quorum */
    uint32_t rests;      /* UNLOCKs with delay=: by hand */
};

#define PLAN_LOCKS_MAX 64

/* These locks have the names of a whole and its parts. */
#define PLAN_TREE     16
#define PLAN_TREE_END 24

/* Of the configuration: a key's name, its range, its value in that plan. */
extern const char *const config_names[CONFIG_COUNT];
extern const uint32_t config_low[CONFIG_COUNT];
extern const uint32_t config_high[CONFIG_COUNT];
uint32_t plan_config(const struct plan *plan, enum config_key key);

/* By then TCP has given a silent client up. */
uint64_t plan_silence_us(const struct plan *plan);

/* A lease, but no more than a request may name four times. */
uint32_t plan_term_ms(const struct plan *plan);

/* The longest lease= of a detached hold, in ms. */
uint32_t plan_detached_ms(const struct plan *plan);

/* So much later than usual a lock is free, at most. */
uint64_t plan_late_us(const struct plan *plan);

/* Whether redis.settle is as long as a lease: less takes the safety away. */
bool plan_settles(const struct plan *plan);

/* Whether lease.default changes in the run, broker by broker, by the steps of
 * operations.md. The run is too short for long leases. Time from step to
 * step. */
bool plan_rolls(const struct plan *plan);
uint64_t plan_roll_us(const struct plan *plan);

/* The shortest lease.default of the run. */
uint32_t plan_least_lease_ms(const struct plan *plan);

/* Whether brokers reach the one master by a name that follows it, as behind a
 * balancer: nothing else tells them of a replica that takes over. */
bool plan_named(const struct plan *plan);

/* Topology and safety: what can be promised depends on them. */
#define SETTINGS(X)    \
    X(single)          \
    X(sentinel)        \
    X(sentinel_strict) \
    X(cluster)         \
    X(cluster_strict)  \
    X(quorum)

enum setting {
#define X(name) SETTING_##name,
    SETTINGS(X)
#undef X
    SETTING_COUNT
};

extern const char *const setting_names[SETTING_COUNT];

enum setting plan_setting(const struct plan *plan);

/* redis.forget_after in ms; in some runs far less than its least, so that
 * records are forgotten within the run. */
uint64_t plan_forget_ms(const struct plan *plan);

/* How long the record of a free lock stays, in ms. */
uint32_t plan_idle_ms(const struct plan *plan);

void plan_draw(struct plan *plan, uint64_t seed, uint64_t run_us);

/* Of locks in a run, with those of a tree. */
uint32_t plan_lock_count(const struct plan *plan);

/* The name of a lock, lock-N or lock-N.X, or that of a tree. Two of three are
 * in one slot of a cluster, as far as Redis tells. So calls have several keys
 * there too. */
const char *plan_lock_name(uint32_t lock);

static inline bool
plan_lock_is_tree(uint32_t lock)
{
    return lock >= PLAN_TREE && lock < PLAN_TREE_END;
}

/* Whether the second lock is a part of the first one, at any depth. */
bool plan_lock_has_part(uint32_t lock, uint32_t part);

/* The lock of that name among the first `locks`; false: none of them. */
bool plan_lock_of(const char *name, size_t len, uint32_t locks, uint32_t *lock);

/* The permits of a lock that is a semaphore; 0: it is none. */
uint32_t plan_lock_limit(const struct plan *plan, uint32_t lock);
void plan_print(const struct plan *plan);

/* "clients=2,cut=0,run_us=5000000"; faults=0 takes all faults out, usual=1, as
 * the first, all keys of the configuration that were drawn. False: not
 * understood, or out of bounds. */
bool plan_set(struct plan *plan, const char *text);

/* The words with which plan_set() would make `plan` of `from`. */
void plan_difference(
    const struct plan *plan, const struct plan *from, char *out, size_t bytes);

#endif

/*
 * A Redis of the simulator: one server process, as far as a broker can see it.
 *
 * It runs the real scripts of lua/ through liblua5.1 as Redis 7.0 does, and
 * speaks RESP2 on any number of connections. It has no socket, no clock and no
 * randomness of its own. Bytes are put in and come out by the sink. Time is set
 * before each input. Ids are drawn from its seed. Given the same calls it does
 * the same. The caller decides on events between servers (replication, the
 * cluster's bus, the migration of slots, promotion), on the times of bytes, on
 * pauses of the process and on its network.
 *
 * tests/sim/fake_check.c holds it against a real Redis. It differs from Redis.
 * WAIT waits only if there is a sink for it. Inline requests are a protocol
 * error. It has the commands that a broker or a test uses, and as much of lists
 * and hashes as makes a key of the wrong type. Scripts have no cjson and
 * cmsgpack, and RESP2 only. A cluster serves its slots also if a slot is
 * nobody's (cluster-require-full-coverage no). INFO has Redis' sections, but
 * few of their fields.
 */
#ifndef HOLDFAST_TESTS_SIM_FAKE_H
#define HOLDFAST_TESTS_SIM_FAKE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define FAKE_SLOTS 16384

struct fake;

/* The effects of a server on the world around it. `arg` is the settings'. None
 * of these may call back into a server. NULL: no news. */
struct fake_sink {
    /* Bytes for the peer of a connection, in order. */
    void (*send)(void *arg, uint32_t connection, const char *bytes, size_t len);

    /* The server closed it (CLIENT KILL, a protocol error); the id is dead. */
    void (*closed)(void *arg, uint32_t connection);

    /* PUBLISH in a cluster: to be given to fake_publish() of the others. */
    void (*bus)(void *arg, const char *channel, size_t channel_len,
        const char *message, size_t message_len);

    /* Each key that a command has written, when it is done, be it a command of
     * the master's that a replica applies; and what expires, is moved, or is
     * flushed. `value` is NULL where the key is gone now. For checks. */
    void (*wrote)(void *arg, const char *key, size_t key_len, const char *value,
        size_t value_len);

    /* A connection waits for replicas: fake_wake() is to be called when one of
     * them has applied something, and at that time of its clock. NULL: WAIT
     * answers at once. */
    void (*waits)(void *arg, uint64_t until_us);
};

struct fake_settings {
    uint64_t seed;
    struct fake_sink sink;
    void *arg;     /* ref, of the sink's functions */
    bool cluster;  /* cluster_enabled */
    bool sentinel; /* knows the commands of a Sentinel as well */
    char host[48]; /* as CLUSTER SLOTS and redirects name it */
    uint16_t port;
    char password[64]; /* of the default user; empty: none */
    char maxmemory_policy[24];
};

/* A master with no data and no slots. Aborts where there is no memory. */
struct fake *fake_create(const struct fake_settings *settings);
void fake_destroy(struct fake **fake);

/* CLOCK_REALTIME of its host in microseconds, as TIME and expiry see it. */
void fake_set_clock(struct fake *fake, uint64_t realtime_us);

/* Connections. Ids are never used again while the process lives (after a
 * restart they are); they are what CLIENT ID answers. Input is carried out at
 * once, command by command; a part of a command is kept until the rest has
 * come. */
uint32_t fake_accept(struct fake *fake);
void fake_input(
    struct fake *fake, uint32_t connection, const char *bytes, size_t len);
void fake_hangup(struct fake *fake, uint32_t connection);

/* The answer of a Sentinel to SENTINEL GET-MASTER-ADDR-BY-NAME, of any name. A
 * change of it is published on +switch-master. */
void fake_name_master(struct fake *fake, const char *host, uint16_t port);

/* --- faults --------------------------------------------------------------- */

/* The process ends and is started again. Connections are gone (without
 * `closed`), scripts too. Run id and replication id are new (with data the old
 * one is master_replid2, as Redis 7.0 does it). */
void fake_restart(struct fake *fake, bool keep_data);

/* Every command but the few that Redis lets through is refused so, until it is
 * FAKE_WELL again. */
enum fake_mood {
    FAKE_WELL,
    FAKE_LOADING,     /* -LOADING */
    FAKE_BUSY,        /* -BUSY: a script is running */
    FAKE_OOM,         /* -OOM for writes; scripts without allow-oom */
    FAKE_MISCONF,     /* -MISCONF for writes */
    FAKE_NOREPLICAS,  /* -NOREPLICAS for writes */
    FAKE_CLUSTERDOWN, /* -CLUSTERDOWN */
    FAKE_MOOD_COUNT
};

void fake_set_mood(struct fake *fake, enum fake_mood mood);

void fake_script_flush(struct fake *fake);
void fake_flush_all(struct fake *fake);

/* The next script calls stop with an error after that many redis.call()s of
 * the script, once; what it has written stays. 0: off. */
void fake_break_script(struct fake *fake, unsigned calls);

/* Closes all its connections (CLIENT KILL TYPE normal); `closed` for each. */
void fake_drop_clients(struct fake *fake);

/* --- replication ---------------------------------------------------------- */

/* Makes it a replica of `master`, with a full copy of its data as it is now.
 * Or a master again with a new replication id (the old one as second). A
 * replica refuses writes with -READONLY (-MOVED in a cluster) and takes its
 * ids from its master. The first replica that a master has since its start
 * gives it a backlog, and with that a new replication id, as in Redis. */
void fake_replicate_from(struct fake *fake, struct fake *master);
void fake_promote(struct fake *fake);
bool fake_is_replica(const struct fake *fake);

/* Writes of its master that it has not applied; applies up to `n` of them, each
 * with all that one command or script wrote. If one of the two was started
 * anew, a full copy comes first, and counts as one. */
uint64_t fake_replica_lag(const struct fake *fake);
void fake_replica_apply(struct fake *fake, uint64_t n);

/* WAIT counts the replicas that have applied all writes up to the end of the
 * connection's last command. Before its first command, it counts all replicas.
 * (The caller drives the lag.) Answers those that have waited long enough, or
 * for what is there now, and carries out what has come behind them. Returns
 * until when others wait, or 0. */
uint64_t fake_wake(struct fake *fake);

/* --- cluster -------------------------------------------------------------- */

/* The node's own map of the others, so that nodes may disagree. NULL: nobody
 * has the slot. `fake_own` is set on the owner itself; it answers -MOVED for
 * what it does not own. */
void fake_map_slot(struct fake *fake, uint16_t slot, const struct fake *owner);
void fake_map_replica(struct fake *fake, const struct fake *master,
    const struct fake *replica); /* as CLUSTER SLOTS lists it */
void fake_unmap_replicas(struct fake *fake);

/* A slot on its way: at its owner (-ASK for keys that are not there any more),
 * and at the one that gets it (served after ASKING). NULL ends it. */
void fake_migrating(struct fake *fake, uint16_t slot, const struct fake *to);
void fake_importing(struct fake *fake, uint16_t slot, const struct fake *from);

/* Moves up to `n` keys of the slot, with values and expiry, as MIGRATE does;
 * returns how many there were. */
unsigned fake_move_keys(
    struct fake *from, struct fake *to, uint16_t slot, unsigned n);

/* A message of the bus. */
void fake_publish(struct fake *fake, const char *channel, size_t channel_len,
    const char *message, size_t message_len);

/* --- for checks ----------------------------------------------------------- */

const char *fake_run_id(const struct fake *fake);
const char *fake_repl_id(const struct fake *fake);
const char *fake_node_id(const struct fake *fake); /* CLUSTER MYID */

/* Ids of 40 hex digits, to look like another server. A node's id before it is
 * known to others. */
void fake_set_ids(struct fake *fake, const char *run_id, const char *repl_id);
void fake_set_node_id(struct fake *fake, const char *node_id);

/* The value of a key, or NULL; valid until the next input. */
const char *fake_get(
    const struct fake *fake, const char *key, size_t key_len, size_t *len);

/* A key has that value, as after RESTORE ... REPLACE; false: it is gone. */
bool fake_restore(struct fake *fake, const char *key, size_t key_len,
    const char *value, size_t len);

/* Every key in a fixed order: index from 0 on; false: no more. */
bool fake_key(const struct fake *fake, size_t index, const char **key,
    size_t *key_len, const char **value, size_t *value_len);

/* When that key goes by the server's clock, in ms; INT64_MAX: never. */
int64_t fake_key_expires_ms(const struct fake *fake, size_t index);

struct fake_counts {
    uint64_t commands;
    uint64_t scripts;
    uint64_t errors; /* replies that are errors */
    uint64_t published;
};

void fake_counts(const struct fake *fake, struct fake_counts *counts);

#endif

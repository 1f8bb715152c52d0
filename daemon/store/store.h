/*
 * The store: operations of the core to script calls on Redis nodes, and the
 * replies to results. It decides what goes where and when; io obeys.
 *
 * A state machine without socket or clock. Operations are submitted, gathered,
 * and leave as few calls as slots allow at the end of each turn. Connections
 * ("connections") are asked for and given up by wishes that io carries out; io
 * tells what became of them, and hands over each reply as it was read.
 *
 * An operation is given back exactly once, with one of these:
 *
 * - the script's result
 * - OP_UNSENT: nothing ran, and deadline_us has come
 * - OP_UNKNOWN: its call was sent, and the connection was lost or too slow
 * - OP_REFUSED: Redis answered that it cannot be done
 *
 * Redirects, reloads of scripts and errors that say that nothing ran are dealt
 * with here.
 *
 * After a connection was lost, the next one to the same server first has the
 * old one killed. No command that slept in a buffer runs after that.
 */
#ifndef HOLDFAST_STORE_STORE_H
#define HOLDFAST_STORE_STORE_H

#include "daemon/base/buffer.h"
#include "daemon/base/list.h"
#include "daemon/op/counters.h"
#include "daemon/op/health.h"
#include "daemon/op/kind.h"
#include "daemon/op/resp.h"

struct op_members;

#define STORE_NODES_MAX  128
#define STORE_HOST_MAX   256
#define STORE_QUORUM_MAX 15
#define STORE_FLIGHT_MAX 64 /* calls a connection */

#define STORE_LEASE_MAX_MS 3600000 /* lease.default; see conf/keys.c */

enum store_topology {
    STORE_SINGLE,
    STORE_CLUSTER,
    STORE_SENTINEL,
    STORE_QUORUM,
};

struct store_address {
    char host[STORE_HOST_MAX]; /* a name or a number, without brackets */
    uint16_t port;
};

struct store_settings {
    enum store_topology topology;
    struct store_address nodes[64]; /* seeds, or the Sentinels */
    uint32_t node_count;
    char username[128]; /* empty: none */
    char password[512]; /* empty: none */
    char sentinel_master[128];
    char sentinel_username[128]; /* empty: none */
    char sentinel_password[512]; /* empty: none */
    char key_prefix[33];
    char broker_id[9];
    uint32_t expiry_ms;
    uint32_t waiters_max;
    uint64_t forget_after_ms;
    uint32_t idle_after_ms; /* 2.5 leases at least */
    uint64_t settle_us;
    uint32_t lease_ms; /* told to other brokers; 0: nothing is */
    bool strict;       /* tell no grant before replicas have it */
    uint32_t replicas; /* strict: so many at least have to have it */
    uint64_t connect_timeout_us;
    uint64_t command_timeout_us;
    uint64_t silence_us; /* no answer for so long ends a connection in use; at
                          * least command_timeout_us in any case */
    uint32_t batch;      /* operations a call, at most */
    uint32_t
        in_flight; /* calls a connection, at most; up to STORE_FLIGHT_MAX */
    uint64_t seed; /* of jitter */
};

struct store;

/* NULL where there is no memory. `counters` stays the caller's. */
struct store *store_create(const struct store_settings *settings,
    struct counters *counters, uint64_t now_us);

/* Frees the store and sets *store to NULL. A NULL *store is ignored. */
void store_destroy(struct store **store);

/*
 * Takes new settings while it runs: users and passwords (of connections made
 * from now on), time-outs, calls and their size, waiters a lock. All others are
 * those of store_create().
 */
void store_configure(
    struct store *store, const struct store_settings *settings);

/* The settings in force; they stay where they are. */
const struct store_settings *store_in_force(const struct store *store);

/* Takes all operations of the list. */
void store_submit(struct store *store, uint64_t now_us, struct list *ops);

/*
 * Takes all of the list, by hurry_link: submitted operations for which nobody
 * waits any more but while a node that answers is asked. Their deadline_us is
 * now; what has been sent is waited for.
 */
void store_hurry(struct store *store, uint64_t now_us, struct list *hurried);

/*
 * Once a turn, after all else: deals with what time has brought, then puts what
 * was gathered into the connections' output. `realtime_us` is CLOCK_REALTIME.
 */
void store_flush(struct store *store, uint64_t now_us, uint64_t realtime_us);

/* When to come with store_flush() at the latest. */
uint64_t store_next_us(const struct store *store);

/* An operation that is done, or NULL. To be emptied before the next reply. */
struct op *store_take_done(struct store *store);

/* Another broker has granted or broken a ticket of ours. */
struct store_hint {
    bool broken;      /* taken away; else granted */
    uint64_t request; /* the ticket's */
    uint64_t fence;
};

/* False: no more. */
bool store_take_hint(struct store *store, struct store_hint *hint);

/* The next message of a script or another broker for the core; valid until the
 * next reply. False: no more. */
bool store_take_news(struct store *store, struct text *news);

/* Reads news about holders of a lock, which are valid until the next call.
 * False: they are news of another kind. */
bool store_read_members(
    struct store *store, struct text news, struct op_members *out);

/* Whether announcements may have been missed since it was last asked. */
bool store_take_unheard(struct store *store);

/* Whether locks have come to a node with which this broker is not settled. */
bool store_take_changed(struct store *store);

/* Connections are numbered from 0; which connection of a connection is meant is
 * told by its serial number, so that news of an earlier one is ignored. */
struct store_conn {
    uint32_t index;
    uint32_t serial;
};

enum store_wish_kind {
    WISH_NONE,
    WISH_CONNECT, /* to `address`; then report connected or closed */
    WISH_CLOSE,   /* no report is wanted */
};

struct store_wish {
    enum store_wish_kind kind;
    struct store_conn conn;
    const struct store_address *address; /* ref, valid until the next call */
};

/* The next wish about connections; false: no more. */
bool store_take_wish(struct store *store, struct store_wish *wish);

/* One more than the highest index of a connection: two for each node, and two.
 */
#define STORE_CONNS (2 * STORE_NODES_MAX + 2)

/* The bytes that a connection has to send; io consumes them. */
struct buffer *store_conn_output(struct store *store, uint32_t index);

/*
 * The next connection from *index on that has something to send: true, and its
 * index is in *index; false where there is none.
 */
bool store_next_output(const struct store *store, uint32_t *index);

/* The connection is there, but not yet to be used: TLS is being agreed on. */
void store_opened(struct store *store, struct store_conn conn);

/* The connection that was wished for is there. One that the store gave up is
 * ignored. */
void store_connected(
    struct store *store, struct store_conn conn, uint64_t now_us);

/* `reason`: HEALTH_FINE where it is no fault. */
void store_closed(struct store *store, struct store_conn conn, uint64_t now_us,
    enum health_reason reason, const char *why);

/* Takes the next reply of a connection. `reply` is not needed afterwards. */
void store_reply(struct store *store, struct store_conn conn, uint64_t now_us,
    const struct resp *reply);

/*
 * Why the store is of no use as it is configured, or NULL. It is strict, and a
 * node has had no replica for some seconds, nor ever, as far as is known. Only
 * before it was ready for the first time.
 */
const char *store_refusal(const struct store *store);

/* Whether locks can be granted, as of the last store_flush(); stays where it
 * is. */
const struct health *store_health(const struct store *store);

/* Whether every slot has a node that answers, be it settled or not. */
bool store_ready(const struct store *store);

/* The nodes that locks are asked of, at the moment. */
struct store_totals {
    uint32_t nodes;
    uint32_t away;           /* of them: cannot be asked */
    uint32_t unsettled;      /* of them: can, and is not trusted with all */
    uint32_t slots_unserved; /* of a cluster: nobody is known to have them */
    uint32_t differing;      /* with a broker that is configured otherwise */
};

/* Counts the nodes by what they can do now. */
void store_totals(const struct store *store, struct store_totals *totals);

/* Calls under way; for tests. */
uint32_t store_in_flight(const struct store *store);

/* Checks every invariant at the cost of a walk; for tests. */
void store_check(const struct store *store);

#endif

/*
 * The store's own state, for the files of daemon/store only. Nodes, connections
 * and calls are in model_*.h. Each other header has the functions of the file
 * of its name.
 *
 * A *node* is an address with a queue of operations. Each node has a data
 * *connection*. With strict safety, a second one asks how far its replicas are.
 * One connection more subscribes to this broker's channel, and another one, to
 * a Sentinel, to +switch-master. A *call* is a command that has been sent on a
 * connection; replies come in calls' order.
 *
 * An operation is in exactly one place: a lane of a node, a call, the parked
 * (to be routed again later, or when there is a route), or the done.
 *
 * The folders, from below:
 *
 * - wire/: bytes.
 * - model/: structs.
 * - node/: the calls of a connection, and the known state of its node.
 * - strict/: which answers wait for replicas.
 * - queue/: operations that wait, their calls and results.
 * - conn/: a connection's begin, handshake, replies, time and end.
 * - topology/: the differences of single, cluster, sentinel and quorum, by the
 *   table of topology.h.
 * - store.c: the front, and time.
 */
#ifndef HOLDFAST_STORE_MODEL_STATE_H
#define HOLDFAST_STORE_MODEL_STATE_H

#include "daemon/base/random.h"
#include "daemon/base/slab.h"
#include "daemon/base/slot.h"
#include "daemon/base/table.h"
#include "daemon/base/wheel.h"
#include "daemon/op/op_audit.h"
#include "daemon/store/model/call.h"
#include "daemon/store/model/conn.h"
#include "daemon/store/model/node.h"
#include "daemon/store/model/op.h"
#include "daemon/store/model/topology.h"
#include "daemon/store/store.h"
#include "daemon/store/wire/record.h"
#include "daemon/store/wire/scripts.h"

/* The first pause before a connection is tried again. */
#define BACKOFF_MIN_US 50000

#define OVERLAP_US 30000000 /* a broker that is there is heard within that */

/* A Sentinel's answer counts for so long. */
#define TRUST_US 2000000

/* A marker is looked for, or written, again after so long. */
#define MARK_AGAIN_US 1000000

/* An operation without a route is routed again after so long. */
#define ROUTE_RETRY_US 50000

#define GRANTS_MAX    65536
#define TICKETS_SHOWN 512
#define HINTS_MAX     4096
#define NEWS_MAX      4096
#define NEWS_BYTES    262144

/* After that long what is still so is logged again. */
#define SAID_AGAIN_US 60000000

#define LEADS_EXPECTED 16384 /* more sessions are slower */

#define CLOCK_DRIFT 400 /* clocks drift apart by less than 1 in so many */

#define CLUSTER_IDS_MAX 256 /* more are not compared */

struct quorum;

struct store {
    struct store_settings settings;
    const struct topology *topology;
    struct counters *counters; /* ref */
    size_t prefix_len;         /* of settings.key_prefix */
    char channel[64];          /* prefix of the brokers' channels */
    uint64_t realtime_us;
    uint64_t fence_clock_us; /* as it was then; see fence_clock.c */
    uint64_t fence_clock_at_us;
    uint64_t now_us;       /* of the call under way */
    struct quorum *quorum; /* owned; NULL: another topology */
    char *list;            /* owned: the nodes, as each node keeps them; or
                            * NULL: none does */
    uint32_t other_lists;  /* nodes that keep another one */
    struct random random;
    struct wheel wheel; /* operations: give up, or route again */
    struct table leads; /* of all lanes, by session, node and lane */
    struct hash_key lead_key;
    struct slab calls;
    struct conn conns[CONN_COUNT];
    struct node nodes[STORE_NODES_MAX];
    uint16_t node_count;        /* used ones are below it */
    uint16_t slots[SLOT_COUNT]; /* node, or NODE_NONE */
    uint16_t had[SLOT_COUNT];   /* its last node; NODE_NONE: none yet */
    uint32_t slots_mapped;
    bool map_wanted;
    bool map_asked;                /* one refresh at a time */
    bool map_anybody;              /* the last map made no sense */
    char ids[CLUSTER_IDS_MAX][41]; /* of the cluster's nodes, as told last */
    uint32_t id_count;
    uint64_t ids_us; /* when that was */
    uint64_t map_next_us;
    uint64_t map_old_us; /* then it is asked for again */
    uint32_t map_turn;   /* which connection to ask next */
    uint64_t unknown_us; /* when a node without an address was logged; or 0 */
    uint64_t map_bad_us; /* when an unusable map was logged; or 0 */
    uint64_t map_backoff_us;
    uint32_t sentinel_count;
    uint16_t master;        /* that a majority of the Sentinels names */
    uint16_t master_said;   /* in the log */
    uint64_t masterless_us; /* since then there is none */
    uint64_t anew_us;       /* answers to earlier questions do not count */
    uint64_t ask_us;        /* ask those at once that were asked before */
    uint64_t votes_due_us;  /* when to count the votes */
    struct list parked;
    struct list done;
    struct list confirmed;   /* calls that replicas have got */
    struct call *confirming; /* the one that `done` is of, or NULL */
    uint64_t confirmed_us;
    bool was_ready;
    uint64_t longest_us;      /* lease that any broker has used; 0: unknown */
    uint64_t longest_at_us;   /* when that was heard of last */
    uint64_t bounded_told_us; /* see peers.c; 0: not yet */
    struct health health;     /* told to core and io */
    uint64_t health_told_us;  /* when it was logged that it is not ready */
    uint32_t health_told;     /* health.changes then */
    bool unheard;
    bool changed;
    bool settled; /* a node has: see store_end_grace() */
    struct store_hint hints[HINTS_MAX];
    uint32_t hint_count;
    uint32_t hint_taken;        /* of them, from the first */
    struct text news[NEWS_MAX]; /* refs into news_text */
    uint32_t news_count;
    uint32_t news_taken;
    size_t news_len;
    char news_text[NEWS_BYTES];
    struct op_grant grants[GRANTS_MAX];
    struct op_ticket tickets[TICKETS_SHOWN];
    struct op_suspect suspects[AUDIT_SUSPECTS_MAX];
};

#endif

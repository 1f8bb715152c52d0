/*
 * Topologies: a row of functions and facts for each one. The rows are in
 * topology/topology.c.
 */
#ifndef HOLDFAST_STORE_MODEL_TOPOLOGY_H
#define HOLDFAST_STORE_MODEL_TOPOLOGY_H

#include "daemon/store/model/call.h"
#include "daemon/store/model/conn.h"
#include "daemon/store/model/node.h"

/* NULL, where it is allowed: the topology has nothing to do there. */
struct topology {
    bool slots; /* a map of slots says which node has a lock; nodes that have
                 * none are connected too, and may be replicas */
    bool independent; /* each node counts by itself: no two nodes are one
                       * process, and each one is subscribed to */

    /* Takes memory of its own, after the nodes are known. False: there is none.
     * destroy() is called then, too. NULL: both. */
    bool (*create)(struct store *store);
    void (*destroy)(struct store *store);

    /* Takes a node of the configuration. NULL. */
    void (*seed)(struct store *store, struct node *node);

    /* The node of an operation; NODE_NONE: none is known. */
    uint16_t (*route)(const struct store *store, const struct op *op);

    /* Takes an operation of the core as a whole, instead of route(). It ends by
     * op_done(). NULL. */
    void (*submit)(struct store *store, struct op *op);

    /* An operation is done with that status. True: it was the topology's own,
     * and is not the core's to take. NULL. */
    bool (*results)(struct store *store, struct op *op, enum op_status status);

    /* Once a turn, before the connections have their time; ask(): after them.
     * NULL. */
    void (*tick)(struct store *store, uint64_t now_us);
    void (*ask)(struct store *store, uint64_t now_us);

    /* When one of both has something to do. NULL: never. */
    uint64_t (*next_us)(const struct store *store);

    /* The connection of a node is gone. NULL. */
    void (*conn_lost)(struct store *store, struct conn *conn, uint64_t now_us);

    /* Takes the answer to a question of ask() or tick(). NULL: none asks. */
    void (*answer)(struct store *store, struct conn *conn,
        const struct call *call, uint64_t now_us, const struct resp *reply);

    /* Hears what a broker or a script has told at the node. NULL. */
    void (*heard)(struct store *store, uint16_t node, struct text told);

    /* The core's request, of a request ID in Redis; 0: there is none. NULL:
     * both are one. */
    uint64_t (*request)(const struct store *store, uint64_t request);

    /* Why some locks have no node; HEALTH_FINE: all have. NULL: they always
     * have. */
    enum health_reason (*lacks)(const struct store *store);

    /* Whether so many nodes are enough for all locks. NULL: all nodes are
     * needed. */
    bool (*suffices)(const struct store *store, uint32_t nodes);
};

/* By enum store_topology. */
extern const struct topology topologies[];

#endif

/*
 * Nodes, and the operations that wait at them.
 */
#ifndef HOLDFAST_STORE_MODEL_NODE_H
#define HOLDFAST_STORE_MODEL_NODE_H

#include "daemon/base/list.h"
#include "daemon/store/store.h"

/* Operations wait at a node in lanes: one for each kind, and one for the
 * releases that no client waits for. */
#define LANE_YIELDS ((unsigned)OP_KIND_COUNT)
#define LANE_COUNT  (OP_KIND_COUNT + 1)

struct node {
    bool used;
    bool seed;   /* from the configuration: never forgotten */
    bool mapped; /* locks are asked of it: it has slots, or is a master */
    bool sentinel;
    bool nameless;     /* the Sentinel knows no such master */
    uint16_t names;    /* the Sentinel's master; NODE_NONE: not known */
    uint64_t named_us; /* it was asked for that */
    struct store_address address;
    uint8_t number; /* of a quorum's, as fences tell it; else 0 */
    char other_list[HEALTH_SAID_MAX]; /* it is part of; or empty */
    struct list lanes[LANE_COUNT];    /* of leads, by link: see lane.c */
    uint32_t queued;
    unsigned turn;            /* the lane that is next */
    bool renewed;             /* the last call was of renewals */
    uint8_t last_session[16]; /* of the operation that came last */
    uint64_t mixed_us;        /* when another session's came after it */
};

#endif

/*
 * The store's own part of an operation, in the bytes that the core keeps for
 * it. See op_begin().
 */
#ifndef HOLDFAST_STORE_MODEL_OP_H
#define HOLDFAST_STORE_MODEL_OP_H

#include "daemon/base/assert.h"
#include "daemon/base/table.h"
#include "daemon/base/wheel.h"
#include "daemon/op/op.h"

struct round;

struct store_op {
    struct wheel_node timer;
    struct table_node lead; /* see daemon/store/queue/lane.c */
    struct list behind;     /* of a lead: by link */
    bool leads;
    bool single;         /* goes alone, by ASK or after a failure */
    bool asking;         /* after ASKING */
    bool halved;         /* an error may have left it done, or half done */
    bool vote;           /* it is asked of one of several nodes: `home` */
    uint16_t attempts;   /* since the last pause */
    uint16_t at_node;    /* the node of its lane; NODE_NONE: in no lane */
    uint16_t home;       /* the node of a vote, or of an OP_AUDIT */
    uint64_t grace_us;   /* parked: nothing is granted before; 0: not so */
    struct round *round; /* ref: of the votes on it */
};

_Static_assert(sizeof(struct store_op) <= OP_STORE_BYTES, "has room");

static inline struct store_op *
op_own(struct op *op)
{
    return (struct store_op *)(void *)op->store;
}

static inline const struct store_op *
op_see(const struct op *op)
{
    return (const struct store_op *)(const void *)op->store;
}

/* The operation of its store's part. */
static inline struct op *
op_whole(struct store_op *own)
{
    return container_of(own, struct op, store);
}

#endif

/*
 * Hierarchical timer wheel (Varghese and Lauck, 1987) with intrusive nodes.
 *
 * Times are microseconds of a monotonic clock that the caller reads. The wheel
 * turns in ticks of 1,024 us. A node is due in the first tick that begins at or
 * after its time, so it never comes out early. Adding, moving and removing cost
 * the same with any number of nodes. A second removal is harmless. Due nodes
 * come out in the order of their ticks.
 */
#ifndef HOLDFAST_BASE_WHEEL_H
#define HOLDFAST_BASE_WHEEL_H

#include "daemon/base/list.h"

#include <stdbool.h>
#include <stdint.h>

#define WHEEL_LEVELS     6
#define WHEEL_SLOTS      64
#define WHEEL_TICK_SHIFT 10 /* microseconds to ticks */
#define WHEEL_NEVER      UINT64_MAX

struct wheel_node {
    struct list link;
    uint64_t due_us;    /* WHEEL_NEVER: on no wheel */
    uint32_t tick_slot; /* the wheel's own */
    uint32_t kind;      /* the caller's: the kind of the node's owner */
};

struct wheel {
    uint64_t tick;   /* all ticks before this one have been given out */
    size_t count;    /* nodes on it, `due` included */
    struct list due; /* nodes whose tick has come, not yet given out */
    uint64_t occupied[WHEEL_LEVELS]; /* a bit for each slot that has nodes */
    struct list slots[WHEEL_LEVELS][WHEEL_SLOTS];
    /* Of the next slot of the level above: nodes that are sorted already. */
    struct list ahead[WHEEL_LEVELS - 2][WHEEL_SLOTS];
    size_t ahead_count[WHEEL_LEVELS - 2];
};

/* An empty wheel, whose first tick is that of `now_us`. */
void wheel_init(struct wheel *wheel, uint64_t now_us);

/* Prepares a node, once before its first use. */
void wheel_node_init(struct wheel_node *node, uint32_t kind);

/*
 * Adds the node, or moves it if it is on the wheel. WHEEL_NEVER takes it off. A
 * time that has passed makes it due at once, after the nodes that are due now.
 */
void wheel_add(struct wheel *wheel, struct wheel_node *node, uint64_t due_us);

/* Takes the node off, if it is on a wheel. */
void wheel_remove(struct wheel *wheel, struct wheel_node *node);

static inline bool
wheel_node_set(const struct wheel_node *node)
{
    return node->due_us != WHEEL_NEVER;
}

/*
 * Takes off and returns a node that is due at `now_us`, or NULL. A `now_us`
 * that lies before that of an earlier call counts as that one.
 */
struct wheel_node *wheel_pop(struct wheel *wheel, uint64_t now_us);

/*
 * When to call wheel_pop() again: not after the time of the earliest node. An
 * earlier call finds nothing and is harmless. WHEEL_NEVER: the wheel is empty.
 */
uint64_t wheel_next_us(const struct wheel *wheel);

/* Checks every invariant at the cost of a walk; for tests. */
void wheel_check(const struct wheel *wheel);

#endif

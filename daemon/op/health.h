/*
 * Whether locks can be granted now, and if not: which Redis node is to blame,
 * why, and since when.
 *
 * The store fills it in (daemon/store/conn/health.c), once a turn. The core
 * answers STATUS and ERR UNAVAILABLE from it; io shows it in /readyz, on the
 * page and to the service manager.
 */
#ifndef HOLDFAST_OP_HEALTH_H
#define HOLDFAST_OP_HEALTH_H

#include "daemon/base/slot.h"

enum health_reason {
#define REASON(id, word, wrong, advice) HEALTH_##id,
#include "daemon/op/health.def"
#undef REASON
    HEALTH_REASON_COUNT
};

#define HEALTH_NODES_MAX 128
#define HEALTH_NO_NODE   UINT16_MAX
#define HEALTH_NO_SLOT   UINT16_MAX
#define HEALTH_NAME_MAX  80  /* bytes, with the NUL */
#define HEALTH_SAID_MAX  160 /* likewise */
#define HEALTH_TEXT_MAX  600 /* of health_text() */

struct health_node {
    bool needed;   /* locks depend on it now; the rest is valid only then */
    bool sentinel; /* asked for the master, and for no locks */
    bool connected;
    enum health_reason reason; /* FINE: it grants */
    uint64_t since_us;         /* it is FINE, or not, since then */
    uint64_t until_us;         /* SETTLING: when that ends */
    char name[HEALTH_NAME_MAX];
    char said[HEALTH_SAID_MAX]; /* by Redis or the system; or empty */
};

struct health {
    bool ready;                /* every lock can be granted */
    enum health_reason reason; /* FINE where ready */
    uint16_t node;             /* to blame for that; HEALTH_NO_NODE: none */
    uint64_t since_us;         /* ready, or not, since then */
    uint32_t changes;          /* of ready, reason and node, so far */
    uint32_t slots_missing;    /* of a cluster */
    const uint16_t *slots;     /* ref: of a cluster, a node each; or NULL */
    uint32_t node_count;       /* in use below that index */
    struct health_node nodes[HEALTH_NODES_MAX];
};

/* The reason that a lock cannot be taken. */
struct health_why {
    enum health_reason reason;      /* FINE: nothing that is known */
    const struct health_node *node; /* ref; NULL: no node in particular */
};

/* Of all locks together. */
static inline struct health_why
health_why(const struct health *health)
{
    bool blamed = health->node != HEALTH_NO_NODE;

    return (struct health_why){
        health->reason, blamed ? &health->nodes[health->node] : NULL};
}

/* Of locks in that slot; HEALTH_NO_SLOT: of any. `health` may be NULL. */
struct health_why health_why_slot(const struct health *health, uint16_t slot);

/* The word in reason= and in the log; empty for FINE. */
const char *health_word(enum health_reason reason);

/* ready, settling, refusing, or away. */
const char *health_state(const struct health_node *node);

/* Until a node has settled; 0: it has, or nobody knows. */
static inline uint64_t
health_left_ms(const struct health_why *why, uint64_t now_us)
{
    if (why->node == NULL || why->node->until_us <= now_us)
        return 0;
    return (why->node->until_us - now_us) / 1000 + 1;
}

/*
 * A sentence for people: what is wrong, in the words of Redis too, and what to
 * do. `node`: with the address of the node. Bytes of Redis are printable.
 */
const char *health_text(
    const struct health_why *why, bool node, char out[HEALTH_TEXT_MAX]);

#endif

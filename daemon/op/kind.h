/*
 * Kinds and outcomes of operations, and the question of a LOCK, for those who
 * need no operation itself. See op.h.
 */
#ifndef HOLDFAST_OP_KIND_H
#define HOLDFAST_OP_KIND_H

#include <stdbool.h>
#include <stdint.h>

enum op_kind {
#define OP(id, ...) OP_##id,
#include "daemon/op/op.def"
    OP_KIND_COUNT
};

enum op_status {
    OP_OK,        /* held; released; looked */
    OP_WAITING,   /* stands in the queue */
    OP_BUSY,      /* not granted, and not put in the queue, as asked */
    OP_FULL,      /* the lock has all the tickets that it may have */
    OP_CONFLICT,  /* of another kind than the tickets that stand */
    OP_GONE,      /* there is no such ticket any more */
    OP_BROKEN,    /* it was taken from its holder */
    OP_MOVED,     /* it is of a later generation of its session */
    OP_MISSING,   /* there is none, but the data may be older than it */
    OP_UNSETTLED, /* not before this broker is settled (again_ms) */
    OP_UNSENT,    /* Redis could not be asked until deadline_us: nothing ran */
    OP_UNKNOWN,   /* it was asked and the answer is not to be had */
    OP_REFUSED,   /* the record is not ours, too new, or the script failed */
};

/* Modes of a ticket, as the record has them. */
enum mode {
    MODE_EXCLUSIVE = 0,
    MODE_SHARED = 1,
    MODE_UPGRADABLE = 4, /* one beside those that share */
    MODE_UPGRADE = 8,    /* exclusive, above another hold of its owner */
    /* Of a name above a part: somebody has the part, or waits for it. */
    MODE_INTENT = 16,
    MODE_INTENT_SHARED = 17, /* a part that is shared */
};

/* In the record an upgrade's owner differs from that of the hold below it: in
 * this bit of the first byte of its hash. */
#define OWNER_UPGRADE 1u

static inline bool
mode_is_intent(enum mode mode)
{
    return mode == MODE_INTENT || mode == MODE_INTENT_SHARED;
}

/* Whether nothing of the lock is exclusive, nor may become so at once. */
static inline bool
mode_shares(enum mode mode)
{
    return mode == MODE_SHARED || mode == MODE_UPGRADABLE ||
           mode == MODE_INTENT_SHARED;
}

/* Whether holds of both modes go together. */
static inline bool
modes_join(enum mode a, enum mode b)
{
    if (mode_is_intent(a) && mode_is_intent(b))
        return true;
    return mode_shares(a) && mode_shares(b) &&
           !(a == MODE_UPGRADABLE && b == MODE_UPGRADABLE);
}

/* The options of a LOCK. */
struct ask {
    enum mode mode;
    bool part; /* tree=1: it has intentions on the names above it */
    uint32_t permits;
    uint32_t permits_max; /* of a semaphore; 0: it is none */
    uint32_t delay_ms;    /* lock-delay */
    uint64_t hold_ms;     /* lease=; 0: renewed as long as the session lives */
    uint64_t detach_ms;   /* lease= with detached=1; 0: without */
};

#endif

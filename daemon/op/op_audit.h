/*
 * The question of an audit to the store, and its answer. See op.h.
 */
#ifndef HOLDFAST_OP_OP_AUDIT_H
#define HOLDFAST_OP_OP_AUDIT_H

#include "daemon/base/text.h"

#include <stdbool.h>
#include <stdint.h>

/* Oddities of a record; `wrong` says why one makes no sense. */
#define SUSPECT_OLD_HOLD  1u
#define SUSPECT_OLD_WAIT  2u
#define SUSPECT_LATE_HOLD 4u /* its broker has not renewed it */

enum suspect_wrong {
    WRONG_NOTHING,
    WRONG_TYPE,    /* the key is none of ours */
    WRONG_NAME,    /* nor is it called so */
    WRONG_VERSION, /* newer than this broker knows */
    WRONG_RECORD,
    WRONG_COUNTS, /* are not those of the tickets */
    WRONG_EXPIRY, /* the key never expires */
    WRONG_FENCE,  /* far ahead of the clock */
    WRONG_COUNT
};

/* A record that an OP_AUDIT has come upon. */
struct op_suspect {
    unsigned flags;
    enum suspect_wrong wrong;
    uint64_t hold_ms; /* age of the oldest hold */
    uint64_t wait_ms;
    struct text name; /* ref, valid during the completion */
};

#define AUDIT_SUSPECTS_MAX 512 /* of a step */

/*
 * A step of an audit. It goes to the first node from `node` on that has
 * records, which `node` says then: OP_GONE, there is none after the first. A
 * step that cannot be asked now is not asked again: OP_UNSENT (also where no
 * node at all is known), OP_UNKNOWN, OP_REFUSED.
 */
struct op_audit {
    uint32_t node;
    /* No records: the node is marked as this broker's for so long, where it is
     * no other's (OP_BUSY: it is), or has been this broker's. */
    uint64_t mark_ms;
    bool marked;
    uint64_t cursor;  /* 0: the node's first step; then the next, 0: none */
    uint32_t count;   /* keys, about */
    uint64_t hold_ms; /* report holds this old */
    uint64_t wait_ms;
    /* the answer */
    char name[80]; /* of the node, for people */
    uint32_t records;
    uint32_t holds;
    uint32_t waits;
    uint32_t detached; /* of the holds */
    uint32_t left;     /* sights that there was no room for */
    uint32_t suspect_count;
    const struct op_suspect *suspects; /* ref, valid during the completion */
    /* the store's */
    uint32_t key_len;
    char key[80]; /* of the mark */
};

#endif

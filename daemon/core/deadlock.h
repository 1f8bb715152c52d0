/*
 * What deadlock.c, looks.c and probe.c have of one another: the search for
 * circles of waits. The rest of the core uses what state.h names.
 */
#ifndef HOLDFAST_CORE_DEADLOCK_H
#define HOLDFAST_CORE_DEADLOCK_H

#include "daemon/core/state.h"

/* An owner on the way of a probe. */
struct probe_node {
    uint8_t session[16];
    uint64_t owner; /* hash of its word */
    char broker[8];
    uint64_t request;  /* of the wait */
    uint64_t since_us; /* when that began, by Redis' clock */
    uint64_t fence;    /* of what it has that the one before waits for */
    uint8_t name_len;
    char name[PROTO_NAME_MAX]; /* of what it waits for */
};

struct probe {
    struct slab_node node;
    struct list link; /* of a look */
    char kind; /* 'D' looks for a circle, 'V' verifies it, 'K' ends a wait */
    uint32_t count; /* nodes behind it; of 'D' nodes[count] is looked at */
    uint32_t index; /* of 'V' and 'K': which one is meant */
    struct handle ticket; /* the wait that is looked at */
    struct probe_node nodes[PROBE_NODES];
};

/* An owner in the way of a wait: who is in its own? */
struct probe_asked {
    uint8_t session[16];
    uint64_t owner;
    uint64_t request; /* of the ticket that is in the way */
    uint64_t fence;
};

#define PROBE_ASKED 128

/* What 'D' asks a broker: after its owners, the hindmost first. */
struct question {
    bool again; /* the first whose wait there counts is looked at there, too */
    uint32_t count;
    struct probe_asked asked[PROBE_ASKED];
};

/* probe.c */
bool probe_decode(
    struct text from, struct probe *probe, struct question *question);
void probe_tell(struct core *core, const struct probe *probe,
    const struct question *question, const char broker[8], struct lock *lock);

#define LOOK_TICKETS 512 /* of a record, from its first on */

/* looks.c */
enum probe_purpose {
    PROBE_FOLLOWS, /* a search that is under way */
    PROBE_BEGINS,
    PROBE_VERIFIES, /* what has been found */
    PURPOSES
};

/* deadlock.c */
bool deadlock_stands(const struct core *core, const struct probe *probe);
void deadlock_read(
    struct core *core, struct list *probes, const struct op_result *result);

#endif

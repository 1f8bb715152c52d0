/*
 * Probes as messages. See probe.c.
 */
#ifndef HOLDFAST_CORE_FEATURE_PROBE_H
#define HOLDFAST_CORE_FEATURE_PROBE_H

#include "daemon/core/model/state.h"

/* An owner on the way of a probe. */
struct probe_node {
    uint8_t session[16];
    uint64_t owner; /* hash of its word */
    char broker[8];
    uint64_t request;  /* of the wait */
    uint64_t since_us; /* when that began, by Redis' clock */
    uint64_t fence;    /* of the hold that the owner before waits for */
    uint8_t name_len;
    char name[PROTO_NAME_MAX]; /* of the lock that it waits for */
};

struct probe {
    struct slab_node node;
    struct list link; /* of an inspection */
    char kind; /* 'D' looks for a cycle, 'V' verifies it, 'K' ends a wait */
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

/* The question of a 'D' to a broker, about owners: the last in the queue
 * first. */
struct question {
    bool again; /* the first whose wait there counts is looked at there, too */
    uint32_t count;
    struct probe_asked asked[PROBE_ASKED];
};

/* Sends the probe to a broker; it stays the caller's. `question` goes with 'D'
 * alone. Without room it is counted as dropped. */
void probe_tell(struct core *core, const struct probe *probe,
    const struct question *question, const char broker[8], struct lock *lock);

/* Reads a probe from Redis' untrusted bytes, and the question of a 'D'. False:
 * it is malformed. */
bool probe_decode(
    struct text from, struct probe *probe, struct question *question);

#endif

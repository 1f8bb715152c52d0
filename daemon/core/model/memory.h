/*
 * Memory of features: marks of deadlock searches, releases, recent events for
 * operators, and holds and waits by age.
 */
#ifndef HOLDFAST_CORE_MODEL_MEMORY_H
#define HOLDFAST_CORE_MODEL_MEMORY_H

#include "daemon/base/slab.h"
#include "daemon/core/model/session.h"
#include "daemon/op/kind.h"

#define PROBE_NODES 32 /* the longest cycle that is found */

#define SEARCH_MARKS 16384

/* A place that a deadlock search has visited; see search_marks.c. */
struct search_mark {
    uint64_t hash;
    uint64_t arrival; /* at a lock: of the hindmost wait */
};

#define RELEASES_KINDS 2
#define RELEASES_OUT   256 /* of a kind that are repeated at a time */

/* Those of late of a kind; see releases.c. */
struct releases {
    struct slab ring; /* of settings.releases_kept; none is ever freed */
    uint64_t count;   /* ever noted; the last one is at count - 1 */
    uint64_t left;    /* those before it are to be looked at in this pass */
    uint32_t out;     /* operations under way */
    bool again;       /* some of this pass were not taken */
    bool later;       /* some are to be repeated after a rest */
    uint64_t
        since_us; /* when the latest history was met; 0: none since start */
    struct wheel_node timer;
};

enum recent_kind {
    RECENT_SLOW,     /* an operation that took long */
    RECENT_LOST,     /* a hold that was lost */
    RECENT_DEADLOCK, /* a wait that was ended as it would have been for ever */
    RECENT_KINDS
};

#define RECENT_KEPT           128 /* of each kind */
#define RECENT_CYCLE_BYTES    800
#define RECENT_SESSIONS_BYTES ((SHORT_ID_BYTES + 1) * PROBE_NODES)

/* One recent event; see recent.c. */
struct recent {
    uint64_t serial; /* grows, over all kinds */
    uint64_t at_us;
    char session[SHORT_ID_BYTES + 1]; /* or empty */
    uint8_t client_len;
    uint8_t owner_len;
    uint8_t name_len;
    char client[PROTO_CLIENT_MAX];
    char owner[PROTO_OWNER_MAX];
    char name[PROTO_NAME_MAX];

    union {
        /* One operation, or a stretch of tries: then sums. */
        struct {
            enum op_kind op;
            enum op_status status; /* of the last try */
            uint64_t owner;        /* of each try: see recent_owner() */
            uint32_t tries;
            uint64_t queued_us;  /* until it was sent, the last time */
            uint64_t redis_us;   /* then until Redis answered */
            uint64_t confirm_us; /* then until replicas had it */
        } slow;

        struct {
            const char *reason; /* ref, static */
            uint64_t fence;
            uint64_t held_us;
            uint64_t late_us; /* after its deadline */
        } lost;

        struct {
            uint16_t cycle_len;
            uint16_t sessions_len;
            char cycle[RECENT_CYCLE_BYTES];
            char sessions[RECENT_SESSIONS_BYTES];
        } deadlock;
    };
};

struct recents {
    uint64_t count; /* ever; the last one is at count - 1, modulo RECENT_KEPT */
    struct recent kept[RECENT_KEPT];
};

/* Holds and waits of a namespace now; see ages.c. */
struct ages {
    struct list holds; /* tickets by age_link, the oldest first */
    struct list waits; /* likewise */
    uint32_t held;
    uint32_t waiting; /* those that stand in the queue now */
};

#endif

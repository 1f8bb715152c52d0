/*
 * The core's part of the configuration. Durations in microseconds but for
 * lease_ms, which goes to Redis as it is.
 */
#ifndef HOLDFAST_CORE_SETTINGS_H
#define HOLDFAST_CORE_SETTINGS_H

#include "daemon/base/users.h"

#include <stdbool.h>
#include <stdint.h>

/* How long an unclaimed grant to another broker's waiter stands. */
#define CORE_EXPIRY_MS 2000

/* Releases that a broker remembers; 328 bytes each. */
#define CORE_RELEASES_KEPT 8192

/* From when on an audit tells of what it finds, in ms; 0: never. */
struct audit_limits {
    uint64_t warn_ms;  /* holds */
    uint64_t wait_ms;  /* waits */
    uint64_t break_ms; /* holds, which are broken */
};

struct core_settings {
    char key_prefix[33];
    char broker_id[9];         /* 8 printable characters, new for each start */
    const char *server;        /* ref: "holdfastd/VERSION" */
    uint64_t seed;             /* of jitter */
    uint64_t hash_seed[2];     /* secret; of the tables */
    uint32_t lease_ms;         /* lease.default */
    uint64_t redis_timeout_us; /* how long a request waits for Redis */
    uint64_t command_timeout_us; /* the longest that one call may take */
    uint64_t stop_grace_us;
    uint64_t auth_us; /* by then it is known who a session is; 0: any time */
    uint64_t slow_us; /* operations that take as long are remembered; 0: none */
    uint32_t line_max;
    uint32_t name_max;
    uint32_t sessions_max;
    uint64_t output_max;              /* unread bytes a session */
    uint32_t outstanding_max;         /* requests a session */
    uint32_t holds_max;               /* tickets a session */
    uint32_t tickets_max;             /* of the broker */
    uint32_t requests_max;            /* of the broker */
    uint32_t address_connections_max; /* 0: no limit, as these */
    uint32_t user_connections_max;
    uint32_t user_holds_max;   /* tickets of a user */
    const struct users *users; /* ref; NULL: there are none */
    uint32_t releases_kept;    /* to be repeated where Redis has lost them */
    const struct text *namespaces; /* refs, for the call: namespaces.h */
    uint32_t namespace_count;
    /* ref, for the call alone: of each namespace, the rest last; or NULL */
    const struct audit_limits *audit_limits;
    uint64_t audit_interval_us; /* 0: only when a session asks for it */
    uint64_t audit_pause_us;    /* between steps */
    uint32_t audit_keys;        /* of a step, about */
    bool audit_hook;            /* there is one: see EFFECT_HOOK */
    bool no_semaphores;         /* majorities of nodes do not count permits */
    bool queues_here;           /* nor is it in a record who waits */
};

#endif

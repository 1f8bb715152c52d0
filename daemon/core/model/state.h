/*
 * The core's own state, for the files of daemon/core only. daemon/README.md has
 * the job of each file. ticket.c alone writes ticket->state.
 */
#ifndef HOLDFAST_CORE_MODEL_STATE_H
#define HOLDFAST_CORE_MODEL_STATE_H

#include "daemon/base/random.h"
#include "daemon/base/slot.h"
#include "daemon/core/core.h"
#include "daemon/core/model/contention.h"
#include "daemon/core/model/lock.h"
#include "daemon/core/model/memory.h"
#include "daemon/core/model/namespaces.h"
#include "daemon/core/model/request.h"
#include "daemon/core/model/session.h"
#include "daemon/core/model/ticket.h"
#include "daemon/core/model/time.h"
#include "proto/reply.h"

struct audit;
struct ticket_hooks;

struct core {
    struct core_settings settings;
    const struct ticket_hooks *hooks; /* ref, static */
    struct counters *counters;        /* ref */
    const struct health *health;      /* ref; NULL: nothing is known of Redis */
    struct effects *effects;          /* ref, during a step */
    uint64_t now_us;
    uint64_t awake_us; /* end of the last stall */
    struct slab sessions;
    struct slab locks;
    struct slab tickets;
    struct slab owners;
    struct slab requests;
    struct slab ops;
    struct slab multilocks;
    struct slab watches;
    struct slab probes;
    struct slab inspections;
    struct slab messages;
    struct slab behind;
    struct table lock_table;    /* by name */
    struct table ticket_table;  /* by session, owner, lock */
    struct table owner_table;   /* by session and owner */
    struct table tag_table;     /* by session and tag */
    struct table session_table; /* by id */
    struct table address_table; /* by address */
    struct slab addresses;
    struct list idle_addresses; /* the oldest first */
    uint32_t idle_count;
    struct hash_key hash_key;
    struct random random;
    struct wheel wheel;
    struct releases releases[RELEASES_KINDS];
    struct recents recents[RECENT_KINDS];
    uint64_t recent_serial;
    struct namespaces namespaces;
    struct contention contention;
    struct ages ages[NAMESPACES_MAX + 1];
    struct slab audits;  /* of one */
    struct audit *audit; /* ref */
    struct list stirred; /* tickets to advance when the step ends */
    struct list bulk;    /* likewise, after those, of sessions that close */
    struct list telling; /* locks some of whose watchers are still to be told */
    struct list ending;  /* sessions to look at when the step ends */
    uint32_t portion;    /* so many tickets and timers more before CORE_TIME */
    uint64_t serial;
    uint32_t held;
    uint32_t waiting;
    uint32_t upgrades; /* tickets of them, in any state */
    uint32_t awaiting; /* watches of AWAITs */
    uint32_t away;     /* sessions without a connection */
    bool stopping;
    uint64_t stop_us; /* NEVER; when grace is over; 0: it is */
    struct list
        inspections_due[2]; /* inspections to be sent: for few, and for many */
    unsigned inspections_turn;           /* next queue */
    struct wheel_node inspections_timer; /* there is time for one */
    uint64_t inspections_paid_us;        /* Redis' time is used up until then */
    struct search_mark search_marks[SEARCH_MARKS];
    uint64_t fence_seen[SLOT_COUNT];
};

#endif

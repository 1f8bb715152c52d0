/*
 * The core: sessions, tickets, holds and waits of one broker as a state
 * machine.
 *
 * It has no socket, no clock and no Redis, and takes no memory after
 * core_create(). core_step() is told what happened and says in its effects what
 * is to be done. Given the same settings and the same events it does the same.
 *
 * Times are microseconds of one monotonic clock that also runs while the
 * machine sleeps (CLOCK_BOOTTIME), read by the caller once a turn.
 *
 * See DESIGN.md D13.2.
 */
#ifndef HOLDFAST_CORE_CORE_H
#define HOLDFAST_CORE_CORE_H

#include "daemon/core/model/effects.h"
#include "daemon/core/model/namespaces.h"
#include "daemon/core/settings.h"
#include "daemon/op/counters.h"
#include "daemon/op/health.h"

struct op;

struct core;

enum core_event_kind {
    CORE_OPEN,     /* a connection was accepted; sets event->session */
    CORE_LINE,     /* a line arrived */
    CORE_TOO_LONG, /* a line over the limit arrived; `line` is its start */
    CORE_BYTES,    /* a part of a line arrived: the client is alive */
    CORE_MORE,     /* asked for by EFFECT_MORE */
    CORE_EOF,      /* the client has sent all that it will (FIN) */
    CORE_DROP,     /* the connection is gone; nothing can be sent */
    CORE_EXPEL,    /* the connection must end: `expel` says why */
    CORE_DONE,     /* the store gives an operation back */
    CORE_HINT,     /* another broker granted a ticket of ours */
    CORE_BROKEN,   /* a hold of ours was taken away */
    CORE_NEWS,     /* a script or another broker has published something */
    CORE_MEMBERS,  /* a script has told of holders of a lock */
    CORE_UNHEARD,  /* hints may have been missed */
    CORE_CHANGED,  /* Redis may have lost what we believe in */
    CORE_TIME,     /* time has passed; `more` is set where there is more due */
    CORE_STOP,     /* begin to drain */
};

enum core_expel {
    EXPEL_OUTPUT,   /* does not read its replies */
    EXPEL_MEMORY,   /* limits.memory */
    EXPEL_PROTOCOL, /* not our protocol */
};

struct core_event {
    enum core_event_kind kind;
    struct handle session; /* OPEN (out), LINE .. EXPEL */

    union {
        struct {
            uint8_t id[16];      /* secret, from a good source */
            const char *peer;    /* ref; address for people */
            uint64_t silence_us; /* TCP ends no silent session sooner;
                                  * UINT64_MAX: a Unix socket */
            uint8_t address[16]; /* the same for those who count as one */
            /* The user out of settings->users that the connection itself
             * shows, and by what; NULL: it shows none. */
            struct user *user;
            uint32_t mark;
        } open;

        struct {
            char *at; /* without its LF; is overwritten */
            size_t len;
        } line;
        enum core_expel expel;
        struct op *op; /* DONE */

        struct {
            uint64_t request;
            uint64_t fence;
        } hint; /* HINT, BROKEN */

        struct text news;                 /* NEWS: what was published */
        const struct op_members *members; /* MEMBERS */
        bool more;                        /* TIME (out) */
    };
};

/* NULL where there is no memory. `counters` stays the caller's. */
struct core *core_create(const struct core_settings *settings,
    struct counters *counters, uint64_t now_us);

/*
 * Takes the settings that a reload may change (core_configure() lists them);
 * equal namespaces go on. All others are those of core_create(). There are
 * users from the beginning, or never. No reference to earlier ones is kept.
 */
void core_configure(struct core *core, const struct core_settings *settings);

/* Before the first step: what is known of Redis, for errors and for STATUS.
 * `health` is a ref, and may change from step to step. */
void core_set_health(struct core *core, const struct health *health);

struct peer_address;

/*
 * A connection that is no session yet, since its handshake goes on, counts for
 * its address. False: there are too many from there. `*peer` is to be given
 * back when it becomes one, before CORE_OPEN, or when it ends.
 */
bool core_arrive(
    struct core *core, const uint8_t address[16], struct peer_address **peer);

/* Counts a connection off its address and sets *peer to NULL. A NULL *peer
 * is ignored. */
void core_depart(struct core *core, struct peer_address **peer);

/*
 * A connection that is no session any more, or is to be none, and stays until
 * its client has read why. Of an address there may be as many as may be served,
 * beside these. False: there are; it is to be closed at once. `*peer` is to
 * be given back when it ends.
 */
bool core_linger(
    struct core *core, const uint8_t address[16], struct peer_address **peer);

/* Counts a lingering connection off its address and sets *peer to NULL. A
 * NULL *peer is ignored. */
void core_linger_end(struct core *core, struct peer_address **peer);

/* Destroys what is left too, and sets *core to NULL. */
void core_destroy(struct core **core);

/* One thing happened. effects_room() must be true. */
void core_step(struct core *core, uint64_t now_us, struct core_event *event,
    struct effects *effects);

/* One more than the highest index of a session's handle: those whose connection
 * has ended may be kept. */
uint32_t core_sessions_room(const struct core_settings *settings);

/* When to come with CORE_TIME at the latest; WHEEL_NEVER: no need to. */
uint64_t core_next_us(const struct core *core);

/* Whether it stops, by CORE_STOP or by a client's DRAIN. */
bool core_stopping(const struct core *core);

/* Whether a stopping core has nothing left to do. */
bool core_stopped(const struct core *core);

struct core_totals {
    uint32_t sessions;
    uint32_t locks;
    uint32_t tickets;
    uint32_t held;
    uint32_t waiting;
    uint32_t awaiting; /* AWAITs */
    uint32_t requests;
    uint32_t ops;
};

/* A namespace: its present figures, and its counts since the start. */
struct core_namespace {
    const struct namespace *counted; /* ref, the core's */
    uint32_t held;
    uint32_t waiting;
    uint64_t oldest_hold_us;
    uint64_t oldest_wait_us;
};

/* Of each, `other` being the last; returns how many. `out` has room for
 * NAMESPACES_MAX + 1. `now_us` is no sooner than that of the last step. */
uint32_t core_namespaces(
    const struct core *core, uint64_t now_us, struct core_namespace *out);

/* The last audit that this broker has gone through. */
struct core_audit {
    uint64_t took_us;
    uint32_t nodes;
    uint32_t skipped; /* nodes that could not be asked */
    uint64_t records;
    uint64_t holds;
    uint64_t waits;
    uint64_t detached; /* of the holds */
    uint64_t findings;
};

/* Copies the figures of the last audit that has ended. */
void core_last_audit(const struct core *core, struct core_audit *audit);

/* The present figures. */
void core_totals(const struct core *core, struct core_totals *totals);

/* Checks every invariant at the cost of a walk over all; for tests. */
void core_check(const struct core *core);

#endif

/*
 * The judge: what everybody was told, believes and did, against what was
 * promised (the list is in tests/README.md). He knows true time; nobody else
 * does.
 *
 * A broken promise is a violation, unless a fault that the topology cannot
 * promise anything about (plan.h: from FAULT_FIRST_EXCUSE on) came shortly
 * before: then it is counted under that cause.
 */
#ifndef HOLDFAST_TESTS_SIM_CHECK_H
#define HOLDFAST_TESTS_SIM_CHECK_H

#include "tests/sim/world.h"

enum promise {
    PROMISE_EXCLUSION, /* believers in true time that do not fit together */
    PROMISE_FENCE,     /* a grant's fence is not above all earlier ones */
    PROMISE_UPDATE,    /* a fenced update was lost */
    PROMISE_ORDER,     /* granted before somebody who stood before it */
    PROMISE_SERVED,    /* a waiter waits after all has healed */
    PROMISE_FREED,     /* a dead session's lock is not free in time */
    PROMISE_ANSWERED,  /* not exactly one final reply, or to whom? */
    PROMISE_STALE,     /* a stale fence changed something */
    PROMISE_TOLD,      /* a loss was told too late, or not at all */
    PROMISE_CLEAN,     /* something is left in tables, wheel or Redis */
    PROMISE_KEPT,      /* a hold or a place that could be claimed is gone */
    PROMISE_DELAY,     /* granted within a lock-delay */
    PROMISE_DEADLOCK,  /* a false alarm, the wrong victim, or none */
    PROMISE_WATCH,     /* told what never was, what is older, or too late */
    PROMISE_TRUST,     /* a server is asked that is known to be no master */
    PROMISE_AUDIT,     /* an audit tells of what is not so */
    PROMISE_COUNT
};

extern const char *const promise_names[PROMISE_COUNT];

struct check *check_create(struct world *world, uint32_t locks);
void check_destroy(struct check **check);

/* A fault of the kind that excuses happened now. */
void check_excuse(struct check *check, enum fault cause);

/* Broken: noted, and counted as a violation or by its cause. `since_us`: causes
 * from then on count (true time). */
void check_broken(struct check *check, enum promise promise, uint64_t since_us,
    const char *format, ...) __attribute__((format(printf, 4, 5)));

/* Likewise, and no cause excuses it. */
void check_violated(struct check *check, enum promise promise,
    const char *format, ...) __attribute__((format(printf, 3, 4)));

/* From when on causes count for what a lock is like now: `since_us`, or before,
 * since a lock-delay that comes from a host with another clock lasts longer. */
uint64_t check_since(
    const struct check *check, uint32_t lock, uint64_t since_us);

/* A hold that a client believes in. `limit`: permits of a semaphore; 0: none.
 */
struct check_hold {
    uint32_t lock;
    uint64_t fence;
    const char *who;
    const struct machine *machine; /* ref; whose belief it is; NULL: nobody's */
    uint32_t limit;
    uint32_t permits;
    bool shared;
    bool upgradable;   /* and it is the only one of these */
    uint64_t below;    /* fence of the hold that it upgrades; 0: none */
    bool part;         /* tree=1: it fits those of names above */
    bool detached;     /* nobody's: it stands in Redis until then */
    uint64_t asked_us; /* a detached one: it may stand since then */
    enum fault doom; /* an order took it away already; FAULT_COUNT: none did */
};

/* A client was told of a grant and believes in it from now on. Returns a
 * belief's number, for the calls below. A process that is stopped cannot be
 * told of anything, and does nothing either. So an overlap meanwhile is judged
 * when it runs again: it must have been told by then. */
uint32_t check_believes(
    struct check *check, const struct check_hold *hold, uint64_t until_us);

/* Its deadline, in true time, is another now. */
void check_until(struct check *check, uint32_t belief, uint64_t until_us);

/* It does not believe any more: unlocked, told, disconnected, dead. */
void check_ends(struct check *check, uint32_t belief);

/* It relies on so many permits from now on, and gives the others back; `done`:
 * it was told that they are. */
void check_permits(
    struct check *check, uint32_t belief, uint32_t permits, bool done);

/* It is a shared one from now on. */
void check_shares(struct check *check, uint32_t belief);

/* An UNLOCK of a detached hold that somebody was told of is answered OK. */
void check_given_back(
    struct check *check, uint32_t lock, uint64_t fence, const char *who);

/* An UNLOCK or RENEW is told that there is no such detached hold, which has
 * stood since then, is not over, and was given back by nobody. */
void check_missing(struct check *check, uint32_t lock, uint64_t fence,
    uint64_t since_us, const char *who);

/* An UNLOCK or RENEW with detached=1 is answered OK, and no detached hold has
 * had that fence since then. */
void check_stale_fence(struct check *check, uint32_t lock, uint64_t fence,
    uint64_t since_us, const char *who);

/* An operator ends what that process believes: it is told so, but who cannot
 * hear it believes until its deadline. */
void check_doom(
    struct check *check, const struct machine *machine, enum fault order);

/* An operator orders a break of that lock: from now on audits may be innocent
 * of breaks. */
void check_ordered(struct check *check, uint32_t lock);

/* Whether a break has taken the hold of that fence away. */
bool check_is_broken(const struct check *check, uint32_t lock, uint64_t fence);

/* Whether a master was replaced up to a lease before `since_us`, or later: what
 * that one has written and answered after its time is not seen here. */
bool check_was_replaced(const struct check *check, uint64_t since_us);

/* A hold ends uncleanly that surely stood at `stood_us`: nobody is granted the
 * lock for `delay_ms` after that. */
void check_delays(struct check *check, uint32_t lock, uint64_t fence,
    uint64_t stood_us, uint32_t delay_ms, const char *who);

/* An UNLOCK of an exclusive hold, sent then with delay=, is answered OK. */
void check_rests(struct check *check, uint32_t lock, uint64_t fence,
    uint64_t sent_us, uint32_t delay_ms, const char *who);

/* Whether some ticket of another `limit` has stood since then: a CONFLICT. */
bool check_conflicts(const struct check *check, uint32_t lock, uint32_t limit,
    uint64_t since_us);

/* A RESIZE is sent, and answered: OK (`code` NULL) or with an error. */
void check_resizes(struct check *check, uint32_t lock, uint32_t limit);
void check_resized(struct check *check, uint32_t lock, uint32_t limit,
    uint64_t sent_us, const char *code, const char *who);

/* A wait of that session (32 hex digits) and owner, that began then, is ended
 * as one of a deadlock. */
void check_deadlock(struct check *check, const char *session, uint32_t owner,
    uint32_t lock, uint64_t since_us, const char *who);

/* The arrival number of the next one who asks for that lock. */
uint64_t check_arrival(const struct check *check, uint32_t lock);

/* A client reads CANCELLED of a LOCK that was never told to be queued. The
 * record grants no ticket of that session and owner with `arrival` or above. */
void check_called_off(struct check *check, const char *session, uint32_t owner,
    uint32_t lock, uint64_t arrival, uint64_t since_us, const char *who);

/* A watcher is told of a holder with that fence, and of how many, or that there
 * is none (0). `seen` says how far it was told before; at first, what it is
 * when it asks. */
uint64_t check_watch_from(const struct check *check, uint32_t lock);
void check_watched(struct check *check, uint32_t lock, uint64_t fence,
    uint32_t holders, uint64_t *seen, const char *who);

/* The members that a watcher knows. */
#define ROSTER_MAX 128

struct check_roster {
    uint32_t lock;
    bool complete; /* it has the whole list */
    uint32_t count;
    uint64_t fences[ROSTER_MAX];
    uint64_t newest; /* of them, and of those that have left */
    uint32_t from;   /* the judge's: the list was complete by then */
};

enum member_event {
    MEMBER_JOINED,
    MEMBER_CHANGED,
    MEMBER_LEFT,
};

/* The list of members begins, or is complete and has so many. */
void check_members_begin(struct check_roster *roster, uint32_t lock);
void check_members_end(struct check *check, struct check_roster *roster,
    uint64_t count, const char *who);

/* A watcher is told of the member with that fence. */
void check_member(struct check *check, struct check_roster *roster,
    enum member_event event, uint64_t fence, const char *who);

/* They must be the holders now. */
void check_members_true(struct check *check, const struct check_roster *roster,
    uint64_t since_us, const char *who);

/* The client that has asked with that note is told of that fence, or a watcher
 * is told of both; 0: none. Of one holder that is the same, or another one that
 * it has asked for. */
void check_noted(struct check *check, uint32_t lock, uint64_t fence,
    uint64_t note, const char *who);

/* The holder asks for another note. False: it must not, for the judge does not
 * know the first one. */
bool check_may_note(
    struct check *check, uint32_t lock, uint64_t fence, uint64_t note);

/* An AWAIT that was asked at that time is told OK, with that fence (0: none):
 * at some time since then nobody had the lock. `seen` is check_watch_from() of
 * that time, and `floor` the highest fence that had been told. */
void check_awaited(struct check *check, uint32_t lock, uint64_t asked_us,
    uint64_t seen, uint64_t floor, uint64_t fence, const char *who);

/* An AWAIT that looks once is told that somebody has it. */
void check_awaited_in_vain(struct check *check, uint32_t lock,
    uint64_t asked_us, uint64_t seen, const char *who);

/* A holder is told how many wait; it was told of `last` before (0: not yet).
 * `seen` says how far that was, and at first what it is when it asks. */
uint64_t check_wanted_from(const struct check *check, uint32_t lock);
void check_wanted(struct check *check, uint32_t lock, uint64_t waiters,
    uint32_t last, uint64_t *seen, const char *who);

/* Its last message must be the truth now. */
void check_watched_true(struct check *check, uint32_t lock, uint64_t fence,
    uint32_t holders, uint64_t since_us, const char *who);

/* A fence was told in an OK of a new grant; `again`: it may be that of a hold
 * that an earlier connection was told of. */
void check_fence(struct check *check, uint32_t lock, uint64_t fence,
    const char *who, bool again);

/* The highest fence told of a lock so far. An OK may be overtaken by that of a
 * later grant; so who asks remembers this when it sends its LOCK, and its own
 * fence must be above it. */
uint64_t check_fence_told(const struct check *check, uint32_t lock);
void check_fence_above(struct check *check, uint32_t lock, uint64_t fence,
    uint64_t floor, const char *who);

/* The resource behind a lock: reads and writes carry the fence; false: refused
 * as stale. A write says what was read. A client that shares only reads, and
 * keeps nobody out. Its value stays while it believes. */
bool check_read(struct check *check, uint32_t lock, uint64_t fence, bool shared,
    uint64_t *value);
void check_same(struct check *check, uint32_t belief, uint64_t value);
bool check_write(struct check *check, uint32_t lock, uint64_t fence,
    uint64_t read, const char *who);

/* A Redis on that machine, with that replication id, has written a lock's
 * record: order, prefix, counts, who waits for whom. */
void check_record(struct check *check, const struct machine *machine,
    const char *id, const char *key, size_t key_len, const char *value,
    size_t value_len);

/* Likewise of one that is no master, or does not know yet that it is none any
 * more: of what it says only that holds are broken matters. */
void check_breaks(struct check *check, const char *key, size_t key_len,
    const char *value, size_t value_len);

/* An older record comes back: what is written next is not compared. */
void check_older(struct check *check, const char *key, size_t key_len);

/* A Redis host's clock is set. */
void check_clock_set(struct check *check);

/* That node of a quorum has lost its data. */
void check_forgets(struct check *check, const struct machine *machine);

/* Whether the lock's record, of a quorum some node's, has a ticket whose time
 * is over. */
bool check_has_leavings(const struct check *check, uint32_t lock);

/* The last fence of a record; 0: it makes no sense. How many have been granted
 * it and are not yet gone from it, whether or not their leases are over. */
uint64_t check_record_fence(const char *value, size_t value_len);
uint32_t check_record_granted(const char *value, size_t value_len);

/* A broker's audit tells the hook of that: KEY=value and a NUL each. */
void check_finding(
    struct check *check, const char *who, const char *env, size_t len);

/* Deeds of clients, for the summary. */
enum deed {
    DEED_EXCLUSIVE, /* grants, by kind */
    DEED_SHARED,
    DEED_SEMAPHORE,
    DEED_TREE,
    DEED_DETACHED,
    DEED_PROLONGED,  /* a detached hold */
    DEED_GIVEN_BACK, /* likewise */
    DEED_PART,       /* permits that were given back */
    DEED_RESIZED,
    DEED_AWAITED,
    DEED_WANTED,
    DEED_SEVERAL, /* LOCKs of several names that were granted */
    DEED_DOWNGRADE,
    DEED_UPGRADE,
    DEED_RESUME,
    DEED_CLAIM,  /* answered OK */
    DEED_AGAIN,  /* waiting LOCKs that were put again and granted */
    DEED_WATCH,  /* HELD and FREE */
    DEED_MEMBER, /* JOINED, CHANGED and LEFT */
    DEED_DEADLOCK,
    DEED_CONFLICT,
    DEED_BROKEN, /* LOST reason=broken */
    DEED_FOUND,  /* findings of audits */
    DEED_COUNT
};

extern const char *const deed_names[DEED_COUNT];
void check_deed(struct check *check, enum deed deed);

struct check_totals {
    uint64_t grants;
    uint64_t updates;
    uint64_t refused; /* stale writes */
    uint64_t violations;
    uint64_t by_promise[PROMISE_COUNT];
    uint64_t excused[FAULT_COUNT];
    uint64_t overlaps; /* of those: believers who do not fit together */
    uint64_t deeds[DEED_COUNT];
};
const struct check_totals *check_totals(const struct check *check);

#endif

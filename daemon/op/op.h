/*
 * One operation on one lock's record in Redis: what the core asks of the store,
 * and what the store answers.
 *
 * The core fills in a `struct op` of its slab and puts it among its effects.
 * From then on the store owns it, until the store gives it back with a result,
 * exactly once. The core may only have it hurry. Names and words are refs that
 * stay valid for as long.
 */
#ifndef HOLDFAST_OP_OP_H
#define HOLDFAST_OP_OP_H

#include "daemon/base/slab.h"
#include "daemon/base/text.h"
#include "daemon/base/wheel.h"
#include "daemon/op/kind.h"

struct op_audit;

#define OP_STORE_BYTES 112 /* see daemon/store/model/op.h */

#define OP_DETACHED_MAX_MS UINT64_C(86400000) /* a detached hold's term */

/* The kind of the handle `owner`. */
enum op_owner {
    OP_OF_TICKET,
    OP_OF_LOCK,
    OP_OF_READER,
    OP_OF_MESSAGE,
    OP_OF_AUDIT,
};

/* The reader of an OP_INSPECT or an OP_BREAK. */
enum op_reader {
    READER_REQUEST, /* SHOW, BREAK: `owner` is the request */
    READER_BREAK,   /* BREAK, whether it is done: likewise */
    READER_WATCH,
    READER_DEADLOCK, /* `owner` is the inspection */
    READER_AUDIT,
};

/* Another ticket of this broker that was granted by the way. */
struct op_grant {
    uint64_t request; /* the ticket's handle, packed */
    uint64_t fence;
    uint64_t arrival;
    uint32_t ttl_ms;
    uint32_t place;
    uint32_t limit; /* of the semaphore; 0: it is none */
};

/* A ticket as OP_INSPECT shows it. */
struct op_ticket {
    bool granted;
    enum mode mode;
    bool part;
    bool detached;
    bool broken;
    bool late;   /* its broker should have renewed it by now */
    bool leased; /* a hold with lease= */
    uint8_t session[16];
    uint8_t owner_hash[8];
    uint32_t generation;
    uint32_t permits;
    char broker[9];
    uint64_t request; /* that of the operation, at that broker */
    uint64_t fence;
    uint64_t arrival;
    uint64_t ttl_ms;   /* that remain; of the lease, or of the waiter's life */
    uint64_t lease_ms; /* that remain of lease=; in full: it has not begun */
    uint64_t age_ms;   /* since grant or arrival */
    uint64_t since_us; /* that, by Redis' clock */
    struct text owner; /* refs, valid during the completion */
    struct text client;
    struct text note;
};

enum members_kind {
    MEMBERS_JOINED,
    MEMBERS_CHANGED, /* its permits, its note, or it is detached */
    MEMBERS_LEFT,
    MEMBERS_PAGE, /* the holders that arrived later than `after`, in part */
    MEMBERS_LAST, /* and the last of them */
    MEMBERS_KINDS
};

/* A message of a script about holders of a watched lock. */
struct op_members {
    enum members_kind kind;
    struct text key;  /* ref: the record's */
    uint32_t count;   /* of holders from now on */
    uint32_t sum;     /* PAGE, LAST: of their fences, modulo 2^32 */
    uint32_t history; /* of the node */
    uint64_t fence;   /* of the last grant before it */
    uint64_t after;   /* PAGE, LAST */
    const struct op_ticket *tickets; /* ref; of the others, just one */
    uint32_t ticket_count;
};

struct op_result {
    enum op_status status;
    bool senseless; /* OP_REFUSED: for the record is none, or damaged; of a
                     * quorum's OP_INSPECT also where one node says so */
    bool handed;    /* a grant went to a waiter of another broker */
    bool more;      /* so many were granted that some are left: ask again */
    bool
        unsettled; /* OP_WAITING: for this broker to be settled with the node */
    bool beyond;   /* of a grant: more permits are out than the limit */
    bool waited_for; /* of an intention that is held: others wait; OP_BUSY:
                      * for intentions alone */
    uint32_t place;  /* OP_INSPECT: waiters that arrived before */
    uint64_t arrival;
    uint64_t fence;
    uint32_t ttl_ms;   /* that remained when Redis answered; OP_INSPECT: until
                        * this broker is settled with the node */
    uint32_t again_ms; /* OP_WAITING, OP_BUSY: when to look again; OP_INSPECT:
                        * not 0 where ends of leases are not to be trusted */
    uint32_t ahead;    /* place in the queue, from 1; OP_BREAK: how many;
                        * OP_INSPECT: not 0 where more tickets follow; of a
                        * hold, OP_CONFLICT: limit of the semaphore, 0: not
                        * told */
    uint32_t hold_ms;  /* of a hold: until the end of its lease=; 0: none */
    uint32_t holders;  /* OP_INSPECT */
    uint32_t waiters;
    enum mode mode;      /* OP_INSPECT: of the holders together */
    uint32_t limit;      /* OP_INSPECT: permits of a semaphore, 0: none */
    uint32_t used;       /* OP_INSPECT, OP_RESIZE: of them */
    uint64_t delay_ms;   /* OP_BUSY, OP_INSPECT: what is left of a lock-delay */
    struct ask ask;      /* OP_RENEW with `moves`: what was asked for it */
    struct text note;    /* likewise; ref, valid during the completion */
    uint32_t typical_ms; /* how long holds last; 0: not known */
    /* `tell`, and somebody is in the way: */
    bool told;
    uint32_t holder_age_ms;
    struct text holder_client; /* refs, valid during the completion */
    struct text holder_owner;
    struct text holder_note;
    uint64_t sent_us; /* when the call was sent that Redis answered */
    const struct op_grant *grants; /* ref, valid during the completion */
    uint32_t grant_count;
    const struct op_ticket *tickets; /* ref, likewise */
    uint32_t ticket_count;
};

struct op {
    struct slab_node node;
    struct list link;       /* the effects', then the store's */
    struct list hurry_link; /* the effects' */
    enum op_kind kind;
    /* the core's */
    enum op_reader reader;
    struct handle
        owner; /* ticket, lock, request, inspection or message, by kind */
    struct handle lock;
    uint64_t began_us;
    /* the question */
    struct text name; /* ref: the lock's */
    uint16_t slot;
    bool retry;    /* OP_ACQUIRE, OP_RELEASE: it may have run already */
    bool no_queue; /* OP_ACQUIRE */
    bool moves;    /* it may still be of an earlier generation */
    bool tell;     /* OP_ACQUIRE, OP_RENEW: who is in the way */
    bool shares;   /* OP_RENEW: from now on */
    bool idle;     /* OP_RENEW: who waits is away, and its place is kept */
    bool unclean;  /* OP_RELEASE: the lock-delay of the LOCK begins */
    bool watch;    /* OP_LOOK: changes are to be told for a lease */
    bool waits;    /* with `watch`: so are the first wait and the last's end */
    bool members;  /* with `watch`: so is each holder. Those that arrived later
                    * than `arrival` are told now. */
    bool notes;    /* OP_RENEW: the hold has these words from now on */
    bool sets_end; /* OP_RENEW: a client's own, whose end may be nearer */
    bool holds;    /* OP_RENEW with `moves`: of what this broker holds */
    bool raises;   /* OP_RENEW: the fence is `seen`, where it is lower */
    bool agreed;   /* and where it is higher, too: a majority has it */
    bool detaches; /* OP_RENEW: the hold is detached, until hard_end_us */
    bool by_fence; /* no ticket, but the detached hold with that fence */
    bool earlier;  /* and those with smaller fences */
    bool spares;   /* OP_RELEASE: of a hold that is detached nothing ends */
    bool unwanted; /* given back as OP_UNSENT if not sent yet */
    bool repeats;  /* OP_RELEASE: so it is where the node has lost nothing */
    bool yields;   /* OP_RELEASE: no client waits for its answer */
    uint32_t generation;
    uint8_t session[16];
    uint8_t owner_hash[8];
    uint64_t request;
    uint32_t place;
    uint64_t arrival; /* 0: not known */
    uint64_t fence;   /* 0: any, or a waiter's */
    uint64_t seen;    /* the highest fence known of that slot */
    uint32_t lease_ms;
    uint32_t delay_ms;    /* OP_RELEASE, OP_UNLOCK_DETACHED: of delay= */
    struct ask ask;       /* OP_ACQUIRE */
    uint32_t keeps;       /* OP_RENEW: permits at most; 0: all; OP_RESIZE */
    uint64_t hard_end_us; /* renewals: of lease=, WHEEL_NEVER: none */
    uint64_t deadline_us; /* while Redis cannot be asked */
    uint64_t end_us;      /* in any case; 0: not before it is answered */
    /* OP_ACQUIRE, OP_RENEW of a wait: the end of the lease of a hold that an
     * earlier question may have got; WHEEL_NEVER: of no such hold. */
    uint64_t over_us;
    uint32_t limit;         /* OP_INSPECT: tickets at most */
    uint64_t after;         /* OP_INSPECT: their arrival is later */
    struct op_audit *audit; /* ref; OP_AUDIT */
    /* refs: owner, client, note; of PUBLISH others. OP_RENEW has them for the
     * nodes of a quorum, at which it may put the ticket. */
    struct text words[3];
    bool tells_wait; /* OP_ACQUIRE of a quorum: others hear that it waits */
    /* the answer */
    bool overdue;     /* when sent: `over_us` may come before Redis runs it */
    uint64_t sent_us; /* to Redis; 0: not since it was queued last */
    uint64_t answered_us; /* by Redis; 0: not since it was queued last */
    uint32_t tries;       /* how often it was sent, to all nodes together */
    struct op_result result;
    _Alignas(16) unsigned char store[OP_STORE_BYTES]; /* the store's own */
};

#endif

/*
 * The search for deadlocks.
 */
#ifndef HOLDFAST_CORE_FEATURE_DEADLOCK_H
#define HOLDFAST_CORE_FEATURE_DEADLOCK_H

#include "daemon/core/model/state.h"

struct op_result;
struct op_ticket;

/* probe.c */

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

/* inspection_queue.c */

#define INSPECTION_TICKETS 512 /* of a record, from its first on */

/* Served by one reading, so that no step is long; others are by the next. */
#define INSPECTION_PROBES 64

enum probe_purpose {
    PROBE_FOLLOWS, /* a search that is under way */
    PROBE_BEGINS,
    PROBE_VERIFIES, /* a cycle that was found */
    PURPOSES
};

/* The readings of a lock's record: the one that is under way, and the next. */
struct inspection {
    struct slab_node node;
    struct lock *lock;            /* ref, counted */
    struct list probes[PURPOSES]; /* for the next reading */
    enum probe_purpose turn;      /* the purpose of the last one */
    uint32_t probe_count;         /* that wait for the next one */
    uint32_t served_count;        /* by this one, or the last one */
    struct list served;           /* for the one that is under way */
    struct list due_link;         /* core->inspections_due */
    struct wheel_node timer;      /* it rests until then */
    bool under_way;
    uint64_t due_us; /* since when it could have been made */
};

/* Takes memory for probes and readings. False: there is none. */
bool inspections_init(struct core *core);

/* Frees the memory of probes and readings. */
void inspections_fini(struct core *core);

/* Frees a reading that no probe waits for. */
void inspection_end(struct core *core, struct inspection *inspection);

/* Queues the next reading, if nothing hinders it, or frees it, if no probe
 * waits for it. */
void inspection_go_on(struct core *core, struct inspection *inspection);

/* A probe to look at that lock, or to verify. NULL: there is no room, and that
 * is counted. */
struct probe *probe_create(
    struct core *core, enum probe_purpose purpose, const struct lock *lock);

/* The purpose of the probe: to verify, to follow, or to begin a search. */
enum probe_purpose probe_purpose(const struct probe *probe);

/* Gives the probe to the next reading of the lock's record, which calls
 * deadlock_read() with both. The probe is owned from here on. */
void inspection_ask(struct core *core, struct probe *probe, struct lock *lock);

/* Counts `cost_us` of Redis' time as used. */
void inspections_pay(struct core *core, uint64_t cost_us);

/* Frees all probes of the list, and counts them as dropped. */
void drop_probes(struct core *core, struct list *probes);

/* inspections.c */

/* Sends the inspections that Redis has time for. To be called at the end of a
 * step. */
void inspections_send(struct core *core);

/* The rest of the lock is over: its next inspection is queued. */
void inspections_timer(struct core *core, struct wheel_node *node);

/* Takes the answer to an inspection. Its probes are served, or dropped after an
 * error. */
void inspections_done(struct core *core, const struct op *op);

/* Asserts that each inspection waits for one thing alone. For core_check(). */
void inspections_check(const struct core *core);

/* search_marks.c */

/* The hash of a search, from the first node of its probes. It differs between
 * searches and brokers. */
uint64_t search_hash(const struct core *core, const struct probe_node *first);

/* Whether the search has visited a wait of that lock which is as far behind, or
 * `behind` this one, and waits for all that this wait waits for. The queue of a
 * quorum is not in the order of arrival. */
bool search_covers(const struct core *core, uint64_t search,
    const struct ticket *ticket, bool behind);

/* Marks the wait as visited. */
void search_visits(
    struct core *core, uint64_t search, const struct ticket *ticket);

/* Whether the search has visited some of the owner's many waits before. Marks
 * the owner as visited. */
bool search_was_at(
    struct core *core, uint64_t search, const struct owner *owner);

/* reading.c */

/* A record, for the probes that wait for it. */
struct reading {
    const struct op_result *result;
    bool left[INSPECTION_TICKETS];
    /* The place of the next wait that the ticket keeps waiting, of those that
     * go with a shared intention. INSPECTION_TICKETS: there is none. */
    uint32_t bars[INSPECTION_TICKETS];
};

/* Reads `result`, which has to live as long as the reading. */
void reading_begin(const struct core *core, struct reading *reading,
    const struct op_result *result);

/* Whether the ticket at the place `other`, before the wait at `own`, must go
 * first. */
bool reading_in_the_way(
    const struct reading *reading, uint32_t own, uint32_t other);

/* A waiter whose broker has not renewed it for its whole lease. A broker that
 * doubts the clock still sees it, and others do not. Both views together would
 * give cycles through waits of ended requests. */
bool ticket_is_over(const struct op_ticket *ticket);

/* cycle.c */

/* Writes the lock names as "x,y,z". The holder of each lock waits for the next
 * one. A comma at the end says that more names follow. Refers to `out`. */
struct text cycle_names(const struct probe *probe, char *out, size_t out_bytes);

/* Writes the short IDs of the sessions as a sentence for people. */
void cycle_people(const struct probe *probe, char *out, size_t out_bytes);

/* Writes the short IDs with commas between. `out` has room for
 * RECENT_SESSIONS_BYTES. */
struct text cycle_sessions(const struct probe *probe, char *out);

/* deadlock.c */

/* A wait begins, or counts again after its LOCK came again. Searches of its
 * owner's waits are scheduled. */
void deadlock_waits(struct core *core, struct ticket *ticket);

/* The owner has one more hold. Searches from its waits are scheduled. */
void deadlock_held(struct core *core, const struct owner *owner);

/* Whether the wait of the probe still lasts at this broker. */
bool deadlock_stands(const struct core *core, const struct probe *probe);

/* Begins the searches that are due for the ticket's owner. Returns when the
 * ticket is due again; NEVER: not. */
uint64_t deadlock_search(struct core *core, struct ticket *ticket);

/* Serves probes of the list with a record that was read. Probes beyond the room
 * of a step stay in the list. */
void deadlock_read(
    struct core *core, struct list *probes, const struct op_result *result);

/* Takes a probe of another broker. A malformed probe is ignored. */
void deadlock_message(struct core *core, struct text message);

#endif

/*
 * The state of an audit, and what its parts share. See audit_run.c.
 */
#ifndef HOLDFAST_CORE_FEATURE_AUDIT_RUN_H
#define HOLDFAST_CORE_FEATURE_AUDIT_RUN_H

#include "daemon/core/feature/finding.h"

#define CASES_MAX   AUDIT_SUSPECTS_MAX
#define TICKETS_MAX 64   /* of a lock that are looked at */
#define TOLD_HASHES 4096 /* of those of late; SCAN may give a key twice */
#define SILENT_MAX  16   /* brokers that do not answer; known in a run */

/* The states of the run. audit_move() makes each move by a table, and asserts
 * what is legal in the new state. */
enum audit_state {
    AUDIT_IDLE,          /* the timer begins the next run by time */
    AUDIT_STEPS,         /* an OP_AUDIT is under way */
    AUDIT_LOOKS,         /* an operation on the record at hand is under way */
    AUDIT_WONDERS,       /* the broker of a hold was asked; the timer ends it */
    AUDIT_WONDERS_AGAIN, /* the broker was asked once more; likewise */
    AUDIT_PAUSES,        /* the timer goes on */
    AUDIT_STATE_COUNT
};

/* A record to be looked at closer. */
struct audit_case {
    unsigned flags;
    enum suspect_wrong wrong;
    uint8_t name_len;
    char name[PROTO_NAME_MAX];
};

struct audit {
    struct slab_node node;
    enum audit_state state;
    struct wheel_node timer;
    uint64_t due_us;       /* of the next run by time; NEVER: none */
    struct handle request; /* the AUDIT; NONE: by time */
    struct op_audit step;
    bool marked; /* the node, as this broker's */
    uint64_t marked_us;
    unsigned tries;
    struct audit_limits limits[NAMESPACES_MAX + 1];
    uint64_t run; /* number */
    uint64_t began_us;
    struct core_audit now; /* counts of this run so far */
    struct core_audit last;
    uint32_t told;
    uint32_t hooks;
    uint32_t case_count;
    uint32_t case_at; /* cases that were begun; the last one is at hand */
    struct audit_case cases[CASES_MAX];
    uint32_t finding_count;
    uint32_t finding_at;
    struct finding findings[TICKETS_MAX + 2];
    uint64_t question;  /* number of the last one */
    uint64_t published; /* number of the last one that Redis has published */
    uint32_t silent_count;
    char silent[SILENT_MAX][8];
    uint64_t told_hashes[TOLD_HASHES];
};

/* Takes the limits of the namespaces, copied, in the order of core->namespaces.
 * NULL: the limits stay. */
void audit_set_limits(struct core *core, const struct audit_limits *limits);

/* Whether the age has reached the limit. A limit of 0 is never reached. */
bool limit_reached(uint64_t age_ms, uint64_t limit_ms);

/* The age from which a hold is a finding: the audit tells of each hold that it
 * breaks. */
uint64_t hold_limit_ms(const struct audit_limits *limits);

/* The name of the record that the audit looks at. */
struct text case_name(const struct audit *audit);

/* The record that the audit looks at. There must be one. */
const struct audit_case *case_now(const struct audit *audit);

/* The limits of the lock's namespace. */
const struct audit_limits *case_limits(
    const struct core *core, struct text name);

/* The AUDIT that the run is for. NULL: it has ended, or the run is by time. */
struct request *audit_asker(struct core *core);

/* Whether the run has begun by time, without an AUDIT. */
bool audit_is_by_time(const struct audit *audit);

/* Enters a state. The move must be in the table. */
void audit_move(struct core *core, enum audit_state state);

/* Asserts the invariants of the audit. */
void audit_check(const struct core *core);

/* Whether the broker of a hold was asked, and may still answer. */
bool audit_wonders(const struct audit *audit);

/* Enters a state that the timer ends after `us`. */
void audit_pause(struct core *core, enum audit_state state, uint64_t us);

#endif

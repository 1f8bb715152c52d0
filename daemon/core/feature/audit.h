/*
 * Audits: their state, their findings, their questions to brokers.
 */
#ifndef HOLDFAST_CORE_FEATURE_AUDIT_H
#define HOLDFAST_CORE_FEATURE_AUDIT_H

#include "daemon/core/model/state.h"
#include "daemon/op/op_audit.h"

struct op_result;

/* finding.c */

enum finding_kind {
    FINDING_HELD,
    FINDING_WAITING,
    FINDING_ORPHAN,
    FINDING_SENSELESS,
};

enum finding_stage {
    FINDING_NEW,
    FINDING_UNKNOWN, /* to its broker: an orphan where it is still there */
    FINDING_SURE,    /* of a known kind, and no more in doubt */
    FINDING_DONE,    /* to be told */
};

struct finding {
    enum finding_kind kind;
    enum finding_stage stage;
    enum suspect_wrong wrong;
    bool old; /* a hold: it is one even if its broker knows it */
    bool broken;
    bool detached;
    uint32_t waiters;
    uint64_t age_ms;
    uint64_t ttl_ms;
    uint64_t fence;
    uint64_t since_us;
    uint8_t session[16];
    uint8_t owner_hash[8];
    char short_id[SHORT_ID_BYTES + 1];
    char broker[9];
    struct text client; /* refs into words */
    struct text owner;
    struct text note;
    char words[PROTO_CLIENT_MAX + PROTO_OWNER_MAX + PROTO_NOTE_MAX];
};

/* Logs the finding about that lock as a warning. */
void finding_log(struct text lock, const struct finding *finding);

/* To the session whose AUDIT that is. */
void finding_item(struct core *core, const struct request *request,
    struct text lock, const struct finding *finding);

/* One run of the hook; whether there is one is for the caller to know. */
void finding_hook(
    struct core *core, struct text lock, const struct finding *finding);

/* audit_run.c */

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

/* audit.c */

/* Takes memory and sets the time of the first audit. False: there is no
 * memory. */
bool audit_init(struct core *core);

/* Frees the memory of audits. */
void audit_fini(struct core *core);

/* Begins an audit for the request, which is answered when the audit ends.
 * False: an audit is under way. */
bool audit_request(struct core *core, struct request *request);

/* Ends the audit when the broker stops. An operation that is under way is
 * awaited. */
void audit_stop(struct core *core);

/* Takes the answer to OP_AUDIT, one step over the records of a node. */
void audit_stepped(struct core *core, struct op *op);

/* Takes the answer to an inspection of a record that the audit asked for. */
void audit_inspected(struct core *core, const struct op *op);

/* Takes a question or an answer of another broker's audit. Malformed news is
 * ignored. */
void audit_news(struct core *core, struct text news);

/* Takes the answer to OP_BREAK for a finding. */
void audit_broken(struct core *core, const struct op *op);

/* The time of the audit has come: begins it, goes on, or closes the wait for
 * answers. */
void audit_timer(struct core *core);

/* audit_case.c */

/* Adds an empty finding to those of the record. */
struct finding *finding_add(struct audit *audit, enum finding_kind kind);

/* Adds the findings of a record that was read. The first old wait stands for
 * all waits of the record. */
void audit_take_tickets(struct core *core, const struct op_result *result);

/* Takes the second reading of a hold that its broker does not know. The finding
 * is an orphan if the hold is still there, and is dropped otherwise. */
void finding_looked_again(struct audit *audit, const struct op_result *result);

/* Tells of the finding, unless the run has told of it before. */
void finding_tell(
    struct core *core, struct text lock, const struct finding *finding);

/* Whether `break_ms` applies to the hold of the finding. */
bool finding_is_to_break(struct core *core, const struct finding *finding);

/* audit_question.c */

/* Makes sure of a new finding. False: its broker has to answer first. */
bool question_ask(struct core *core, struct finding *finding);

/* Redis has published a message of this broker. The wait for answers to a
 * question begins with it. */
void question_told(struct core *core, struct text words);

/* Takes a question or an answer of another broker's audit. Malformed news is
 * ignored. True: the audit goes on, with the answer that it waited for. */
bool question_news(struct core *core, struct text news);

/* The time for an answer is over: asks once more. True: the audit goes on
 * without an answer. */
bool question_timer(struct core *core);

#endif

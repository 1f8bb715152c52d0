/*
 * The findings of an audit, told as a line of the log, as an ITEM, or to the
 * hook. audit_case.c says how many are told.
 */
#ifndef HOLDFAST_CORE_FEATURE_FINDING_H
#define HOLDFAST_CORE_FEATURE_FINDING_H

#include "daemon/core/model/state.h"
#include "daemon/op/op_audit.h"

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

#endif

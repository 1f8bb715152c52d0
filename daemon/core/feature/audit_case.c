/*
 * Findings of an audit: from the tickets of a record to the line, `ITEM` or
 * hook that tells of them. finding.c has these three forms.
 */
#include "daemon/core/feature/audit.h"

#include "daemon/core/model/session_table.h"
#include "daemon/core/model/stats.h"
#include "daemon/op/op.h"

#include "daemon/base/assert.h"

#define TOLD_MAX  1000 /* findings of a run, one by one */
#define HOOKS_MAX 100  /* of a run */

static const enum namespace_counter kind_counters[] = {
    [FINDING_HELD] = NAMESPACE_audit_held,
    [FINDING_WAITING] = NAMESPACE_audit_waiting,
    [FINDING_ORPHAN] = NAMESPACE_audit_orphan,
    [FINDING_SENSELESS] = NAMESPACE_audit_senseless,
};

struct finding *
finding_add(struct audit *audit, enum finding_kind kind)
{
    require(audit->finding_count <
            sizeof(audit->findings) / sizeof(audit->findings[0]));
    struct finding *finding = &audit->findings[audit->finding_count++];

    *finding = (struct finding){.kind = kind};
    return finding;
}

static struct text
keep_word(char **at, struct text word, size_t room)
{
    struct text kept = text_make(*at, word.len < room ? word.len : room);

    if (kept.len > 0)
        memcpy(*at, word.at, kept.len);
    *at += kept.len;
    return kept;
}

static struct finding *
finding_of(
    struct audit *audit, enum finding_kind kind, const struct op_ticket *ticket)
{
    struct finding *finding = finding_add(audit, kind);
    char *at = finding->words;

    finding->broken = ticket->broken;
    finding->detached = ticket->detached;
    finding->age_ms = ticket->age_ms;
    finding->ttl_ms = ticket->ttl_ms;
    finding->fence = ticket->fence;
    finding->since_us = ticket->since_us;
    memcpy(finding->session, ticket->session, sizeof(finding->session));
    memcpy(finding->owner_hash, ticket->owner_hash, 8);
    memcpy(finding->broker, ticket->broker, sizeof(finding->broker));
    core_short_id(ticket->session, finding->short_id);
    finding->client = keep_word(&at, ticket->client, PROTO_CLIENT_MAX);
    finding->owner = keep_word(&at, ticket->owner, PROTO_OWNER_MAX);
    finding->note = keep_word(&at, ticket->note, PROTO_NOTE_MAX);
    require(at <= finding->words + sizeof(finding->words));
    return finding;
}

void
audit_take_tickets(struct core *core, const struct op_result *result)
{
    struct audit *audit = core->audit;
    const struct audit_limits *limits = case_limits(core, case_name(audit));
    bool waits = false;

    require(audit->finding_at == 0 && audit->finding_count <= 1);
    for (uint32_t i = 0; i < result->ticket_count && i < TICKETS_MAX; i++) {
        const struct op_ticket *ticket = &result->tickets[i];
        bool old = limit_reached(ticket->age_ms, hold_limit_ms(limits));
        if (ticket->granted && (old || ticket->late)) {
            struct finding *finding = finding_of(audit, FINDING_HELD, ticket);
            finding->old = old;
            if (ticket->detached) /* no broker knows it */
                finding->stage = FINDING_SURE;
        } else if (!ticket->granted && !waits &&
                   limit_reached(ticket->age_ms, limits->wait_ms)) {
            finding_of(audit, FINDING_WAITING, ticket)->waiters =
                result->waiters;
            waits = true;
        }
    }
}

static bool
is_hold_of(const struct op_ticket *ticket, const struct finding *finding)
{
    return ticket->granted && ticket->fence == finding->fence &&
           memcmp(ticket->session, finding->session, 16) == 0 &&
           memcmp(ticket->broker, finding->broker, 8) == 0;
}

void
finding_looked_again(struct audit *audit, const struct op_result *result)
{
    struct finding *finding = &audit->findings[audit->finding_at];

    require(finding->kind == FINDING_HELD);
    for (uint32_t i = 0; result->status == OP_OK && i < result->ticket_count;
         i++) {
        const struct op_ticket *ticket = &result->tickets[i];
        if (!is_hold_of(ticket, finding))
            continue;
        finding->kind = FINDING_ORPHAN;
        finding->stage = FINDING_SURE;
        finding->broken = ticket->broken;
        finding->age_ms = ticket->age_ms;
        finding->ttl_ms = ticket->ttl_ms;
        return;
    }
    audit->finding_at++;
}

/* Whether the run has told of that before; it is noted. */
static bool
finding_was_told(
    struct core *core, struct text name, const struct finding *finding)
{
    struct {
        uint64_t run;
        uint64_t name;
        uint64_t fence;
        uint64_t since_us;
        uint64_t kind;
    } key = {
        .run = core->audit->run,
        .name = hash_bytes(&core->hash_key, name.at, name.len),
        .fence = finding->fence,
        .since_us = finding->kind == FINDING_WAITING ? finding->since_us : 0,
        .kind = finding->kind,
    };

    uint64_t hash = hash_bytes(&core->hash_key, &key, sizeof(key));
    uint64_t *slot = &core->audit->told_hashes[hash % TOLD_HASHES];
    bool told = *slot == hash;
    *slot = hash;
    return told;
}

void
finding_tell(struct core *core, struct text lock, const struct finding *finding)
{
    struct audit *audit = core->audit;
    struct request *request = audit_asker(core);

    require(audit->told <= audit->now.findings && audit->hooks <= HOOKS_MAX);
    if (finding_was_told(core, lock, finding))
        return;
    stats_finding(core, lock, kind_counters[finding->kind]);
    audit->now.findings++;
    if (audit->told == TOLD_MAX)
        return;
    audit->told++;
    if (request != NULL) {
        finding_item(core, request, lock, finding);
        return;
    }
    finding_log(lock, finding);
    if (core->settings.audit_hook && audit->hooks < HOOKS_MAX) {
        audit->hooks++;
        finding_hook(core, lock, finding);
    }
}

bool
finding_is_to_break(struct core *core, const struct finding *finding)
{
    struct audit *audit = core->audit;
    bool hold =
        finding->kind == FINDING_HELD || finding->kind == FINDING_ORPHAN;

    return hold && audit_is_by_time(audit) && !finding->broken &&
           limit_reached(
               finding->age_ms, case_limits(core, case_name(audit))->break_ms);
}

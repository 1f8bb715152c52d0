/*
 * The parts that all files of an audit share: the limits of namespaces, the
 * record at hand, and the AUDIT that the run is for.
 */
#include "daemon/core/feature/audit.h"

#include "daemon/base/assert.h"

/* 0 stands for never. */
static uint64_t
sooner(uint64_t a_ms, uint64_t b_ms)
{
    return a_ms == 0 || (b_ms != 0 && b_ms < a_ms) ? b_ms : a_ms;
}

bool
limit_reached(uint64_t age_ms, uint64_t limit_ms)
{
    return limit_ms != 0 && age_ms >= limit_ms;
}

uint64_t
hold_limit_ms(const struct audit_limits *limits)
{
    return sooner(limits->warn_ms, limits->break_ms);
}

/* A step lists the tickets that exceed the least limit of all namespaces. */
static void
audit_set_ages(struct core *core)
{
    struct audit *audit = core->audit;
    uint64_t hold_ms = 0;
    uint64_t wait_ms = 0;

    for (uint32_t i = 0; i < core->namespaces.count; i++) {
        hold_ms = sooner(hold_ms, hold_limit_ms(&audit->limits[i]));
        wait_ms = sooner(wait_ms, audit->limits[i].wait_ms);
    }
    audit->step.hold_ms = hold_ms > 0 ? hold_ms : PROTO_NUMBER_MAX;
    audit->step.wait_ms = wait_ms > 0 ? wait_ms : PROTO_NUMBER_MAX;
}

void
audit_set_limits(struct core *core, const struct audit_limits *limits)
{
    for (uint32_t i = 0; i < core->namespaces.count && limits != NULL; i++)
        core->audit->limits[i] = limits[i];
    audit_set_ages(core);
}

const struct audit_case *
case_now(const struct audit *audit)
{
    require(audit->case_at > 0 && audit->case_at <= audit->case_count);
    return &audit->cases[audit->case_at - 1];
}

struct text
case_name(const struct audit *audit)
{
    const struct audit_case *at = case_now(audit);

    return text_make(at->name, at->name_len);
}

const struct audit_limits *
case_limits(const struct core *core, struct text name)
{
    return &core->audit->limits[namespaces_find(&core->namespaces, name)];
}

struct request *
audit_asker(struct core *core)
{
    return slab_get(&core->requests, core->audit->request);
}

bool
audit_is_by_time(const struct audit *audit)
{
    return handle_equal(audit->request, HANDLE_NONE);
}

void
audit_pause(struct core *core, enum audit_state state, uint64_t us)
{
    wheel_add(&core->wheel, &core->audit->timer, core->now_us + us);
    audit_move(core, state);
}

bool
audit_wonders(const struct audit *audit)
{
    return audit->state == AUDIT_WONDERS || audit->state == AUDIT_WONDERS_AGAIN;
}

void
audit_check(const struct core *core)
{
    const struct audit *audit = core->audit;
    bool looks = audit->state == AUDIT_LOOKS;
    bool wonders = audit_wonders(audit);

    require(audit->case_at <= audit->case_count);
    require(audit->finding_at <= audit->finding_count);
    require(audit->hooks <= audit->told && audit->told <= audit->now.findings);
    require(audit->published <= audit->question);
    if (audit->state == AUDIT_IDLE)
        require(audit->case_count == 0 && audit->finding_count == 0 &&
                audit_is_by_time(audit));
    if (looks || wonders)
        require(audit->case_at > 0);
    if (looks || audit->state == AUDIT_STEPS)
        require(!wheel_node_set(&audit->timer));
    if (wonders || audit->state == AUDIT_PAUSES)
        require(wheel_node_set(&audit->timer));
    if (wonders) {
        const struct finding *finding = &audit->findings[audit->finding_at];
        require(audit->finding_at < audit->finding_count);
        require(finding->kind == FINDING_HELD && finding->stage == FINDING_NEW);
    }
    if (audit->state == AUDIT_STEPS || audit->state == AUDIT_PAUSES)
        require(audit->case_at == audit->case_count &&
                audit->finding_at == audit->finding_count);
}

#define TO(state) (1u << AUDIT_##state)
#define ON        (TO(IDLE) | TO(PAUSES) | TO(LOOKS))

void
audit_move(struct core *core, enum audit_state state)
{
    static const unsigned moves[AUDIT_STATE_COUNT] = {
        [AUDIT_IDLE] = ON,
        [AUDIT_STEPS] = ON | TO(STEPS),
        [AUDIT_LOOKS] = ON | TO(WONDERS),
        [AUDIT_WONDERS] = ON | TO(WONDERS) | TO(WONDERS_AGAIN),
        [AUDIT_WONDERS_AGAIN] = ON | TO(WONDERS),
        [AUDIT_PAUSES] = TO(IDLE) | TO(PAUSES) | TO(STEPS),
    };

    require((moves[core->audit->state] & 1u << state) != 0);
    core->audit->state = state;
    audit_check(core);
}

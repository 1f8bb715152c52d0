/*
 * Audits: a read of all records in Redis. An audit finds old holds and waits,
 * holds whose broker is gone or does not know them, and malformed records.
 *
 * A run goes from node to node, each in many small steps with a pause between.
 * Before the next step it inspects the records that a step has listed. A run
 * has one operation, or one question to another broker, under way at a time.
 * Brokers share the nodes: each audits the nodes that no other broker has
 * marked. A run for a session (AUDIT) goes over all nodes, and only tells.
 *
 * A hold of a dead broker ends with its lease, and a live broker renews long
 * before. So the audit asks only the brokers of late and of old holds. When the
 * broker does not know the hold, or does not answer, the record is read again:
 * the hold may have ended meanwhile.
 */
#include "daemon/core/feature/audit.h"

#include "daemon/core/answer/answer.h"
#include "daemon/core/model/lock.h"
#include "daemon/core/model/op_pool.h"
#include "daemon/core/model/request.h"
#include "daemon/core/model/ticket.h"
#include "daemon/core/model/times.h"
#include "daemon/core/ticket/tickets.h"
#include "daemon/op/op.h"
#include "daemon/op/op_audit.h"

#include "daemon/base/assert.h"
#include "daemon/base/log.h"

#define TRIES    3 /* of a step */
#define AGAIN_US 1000000

static void audit_go_on(struct core *core);

/* --- runs ----------------------------------------------------------------- */

bool
audit_init(struct core *core)
{
    const struct core_settings *settings = &core->settings;

    require(core->audit == NULL);
    if (!slab_init(&core->audits, sizeof(struct audit), 1))
        return false;
    core->audit = slab_alloc(&core->audits);
    struct audit *audit = core->audit;
    wheel_node_init(&audit->timer, TIMER_AUDIT);
    audit_set_limits(core, settings->audit_limits);
    core->settings.audit_limits = NULL;
    audit->due_us = NEVER;
    if (settings->audit_interval_us > 0)
        audit->due_us = core->now_us + random_below(&core->random,
                                           settings->audit_interval_us);
    wheel_add(&core->wheel, &audit->timer, audit->due_us);
    return true;
}

void
audit_fini(struct core *core)
{
    slab_fini(&core->audits);
    core->audit = NULL;
}

/* Whether there is still somebody to do it for. */
static bool
audit_is_wanted(struct core *core)
{
    return !core->stopping &&
           (audit_is_by_time(core->audit) || audit_asker(core) != NULL);
}

static void
audit_answer_end(struct core *core, struct request *request)
{
    const struct core_audit *now = &core->audit->now;
    uint64_t findings = now->findings;
    struct reply reply = answer_begin(core, request->tag, "OK");

    require(request->command == COMMAND_AUDIT);
    require(core->audit->told <= findings);
    reply_pair_number(&reply, "records", now->records);
    reply_pair_number(&reply, "held", now->holds);
    reply_pair_number(&reply, "waiting", now->waits);
    if (now->detached > 0)
        reply_pair_number(&reply, "detached", now->detached);
    reply_pair_number(&reply, "findings", findings);
    if (findings > core->audit->told)
        reply_pair_number(&reply, "untold", findings - core->audit->told);
    if (now->skipped > 0)
        reply_pair_number(&reply, "skipped", now->skipped);
    reply_pair_number(&reply, "ms", now->took_us / 1000);
    answer_end(core, request->session, &reply);
    request_free(core, request);
}

/* All nodes have been gone over. */
static void
audit_is_done(struct core *core)
{
    struct audit *audit = core->audit;
    struct core_audit *now = &audit->now;
    struct request *request = audit_asker(core);
    bool hooked = core->settings.audit_hook && audit_is_by_time(audit);

    require(audit->case_at == audit->case_count);
    require(audit->began_us <= core->now_us);
    now->took_us = core->now_us - audit->began_us;
    if (request != NULL)
        audit_answer_end(core, request);
    if (now->nodes + now->skipped == 0)
        return; /* all are another broker's */
    count(core->counters, COUNTER_audits);
    log_write(LOG_INFO, "audit",
        log_word("by", audit_is_by_time(audit) ? "time" : "session"),
        log_number("nodes", now->nodes), log_number("skipped", now->skipped),
        log_number("records", now->records), log_number("held", now->holds),
        log_number("waiting", now->waits),
        log_number("detached", now->detached),
        log_number("findings", now->findings),
        log_number("untold", now->findings - audit->told),
        log_number("unhooked", hooked ? now->findings - audit->hooks : 0),
        log_number("ms", now->took_us / 1000));
    audit->last = *now;
}

/* Leaves the run, done or not. */
static void
audit_leave(struct core *core)
{
    struct audit *audit = core->audit;
    struct request *request = audit_asker(core);

    if (request != NULL)
        request_refuse(core, request, ERROR_DRAINING, NULL);
    audit->request = HANDLE_NONE;
    audit->case_count = audit->case_at = 0;
    audit->finding_count = audit->finding_at = 0;
    audit_move(core, AUDIT_IDLE);
    wheel_add(
        &core->wheel, &audit->timer, core->stopping ? NEVER : audit->due_us);
}

/* The next step, or where the node is to be marked, that. */
static void
audit_ask(struct core *core)
{
    struct audit *audit = core->audit;
    uint64_t interval_us = core->settings.audit_interval_us;
    /* A little less, so that the mark is gone when the next run comes. */
    uint64_t mark_us = interval_us - interval_us / 10;
    bool fresh = core->now_us < us_add(audit->marked_us, mark_us / 3);
    struct op *op = op_create(core, OP_AUDIT, NULL, HANDLE_NONE);

    require(audit->case_at == audit->case_count);
    require(audit->finding_at == audit->finding_count);
    if (op == NULL) {
        audit_pause(core, AUDIT_PAUSES, AGAIN_US);
        return;
    }
    audit->step.count = core->settings.audit_keys;
    audit->step.marked = audit->marked;
    audit->step.mark_ms = 0;
    if (audit_is_by_time(audit) && (!audit->marked || !fresh))
        audit->step.mark_ms = mark_us / 1000 + 1;
    op->audit = &audit->step;
    op->deadline_us = core->now_us + core->settings.redis_timeout_us;
    audit_move(core, AUDIT_STEPS);
    op_submit(core, op);
}

static void
audit_next_node(struct core *core)
{
    struct audit *audit = core->audit;

    audit->step.node++;
    audit->step.cursor = 0;
    audit->marked = false;
    audit->tries = 0;
}

static void
case_add(struct audit *audit, unsigned flags, enum suspect_wrong wrong,
    struct text name)
{
    require(audit->case_count < CASES_MAX && name.len <= PROTO_NAME_MAX);
    struct audit_case *at = &audit->cases[audit->case_count++];

    *at = (struct audit_case){
        .flags = flags, .wrong = wrong, .name_len = (uint8_t)name.len};
    memcpy(at->name, name.at, name.len);
}

/* Whether one of ours has waited for the lock for as long as its namespace
 * has it, as that is by now. */
static bool
lock_has_old_wait(const struct core *core, const struct lock *lock)
{
    const struct audit_limits *limits =
        case_limits(core, text_make(lock->name, lock->name_len));

    LIST_EACH (link, &lock->tickets) {
        const struct ticket *ticket =
            container_of(link, struct ticket, lock_link);
        const struct request *request =
            ticket->state == TICKET_WAITING ? ticket_asking(ticket) : NULL;
        if (request != NULL &&
            limit_reached(
                (core->now_us - request->began_us) / 1000, limits->wait_ms))
            return true;
    }
    return false;
}

/* With redis.topology quorum no record has waits: adds this broker's waits. */
static void
audit_own_waits(struct core *core)
{
    struct audit *audit = core->audit;
    uint32_t left = 0;

    require(audit->case_count == 0 && audit->finding_count == 0);
    if (!core->settings.queues_here)
        return;
    for (uint32_t i = 0; i < core->locks.touched; i++) {
        const struct lock *lock = slab_at(&core->locks, i);
        if (lock == NULL || lock->waiting == 0 ||
            !lock_has_old_wait(core, lock))
            continue;
        if (audit->case_count < CASES_MAX)
            case_add(audit, SUSPECT_OLD_WAIT, WRONG_NOTHING,
                text_make(lock->name, lock->name_len));
        else
            left++;
    }
    if (left > 0)
        log_write(LOG_WARN, "audit_left_out", log_word("node", "here"),
            log_number("records", left));
}

static void
audit_begin(struct core *core, struct handle request)
{
    struct audit *audit = core->audit;

    require(audit->state == AUDIT_IDLE);
    audit->request = request;
    audit->run++;
    audit->began_us = core->now_us;
    audit->now = (struct core_audit){0};
    audit->told = audit->hooks = 0;
    audit->silent_count = 0;
    audit->step.node = 0;
    audit->step.cursor = 0;
    audit->marked = false;
    audit->tries = 0;
    wheel_remove(&core->wheel, &audit->timer);
    audit_own_waits(core);
    audit_go_on(core);
}

/* Whether an operation is under way. */
static bool
audit_works(const struct audit *audit)
{
    return audit->state == AUDIT_STEPS || audit->state == AUDIT_LOOKS;
}

bool
audit_request(struct core *core, struct request *request)
{
    struct audit *audit = core->audit;

    require(request->command == COMMAND_AUDIT);
    if (!audit_works(audit) && !audit_is_wanted(core))
        audit_leave(core);
    if (audit->state != AUDIT_IDLE)
        return false;
    audit_begin(core, slab_handle(&core->requests, request));
    return true;
}

void
audit_stop(struct core *core)
{
    if (!audit_works(core->audit)) /* else with its answer */
        audit_leave(core);
}

void
core_last_audit(const struct core *core, struct core_audit *audit)
{
    *audit = core->audit->last;
}

/* --- steps ---------------------------------------------------------------- */

static void
audit_take_cases(struct core *core)
{
    struct audit *audit = core->audit;

    require(audit->case_at == audit->case_count);
    require(audit->step.suspect_count <= AUDIT_SUSPECTS_MAX);
    audit->case_count = audit->case_at = 0;
    for (uint32_t i = 0; i < audit->step.suspect_count; i++) {
        const struct op_suspect *suspect = &audit->step.suspects[i];
        const struct audit_limits *limits = case_limits(core, suspect->name);
        bool ours = suspect->wrong != WRONG_NAME && suspect->name.len > 0;
        unsigned flags = ours ? suspect->flags & SUSPECT_LATE_HOLD : 0;
        if (ours && limit_reached(suspect->hold_ms, hold_limit_ms(limits)))
            flags |= SUSPECT_OLD_HOLD;
        if (ours && limit_reached(suspect->wait_ms, limits->wait_ms))
            flags |= SUSPECT_OLD_WAIT;
        if (flags == 0 && suspect->wrong == WRONG_NOTHING)
            continue;
        case_add(audit, flags, suspect->wrong, suspect->name);
    }
}

static void
audit_step_done(struct core *core)
{
    struct audit *audit = core->audit;
    const struct op_audit *step = &audit->step;

    require(audit->tries < TRIES && step->detached <= step->holds);
    audit->tries = 0;
    audit->now.records += step->records;
    audit->now.holds += step->holds;
    audit->now.waits += step->waits;
    audit->now.detached += step->detached;
    core->counters->value[COUNTER_audit_records] += step->records;
    if (step->left > 0)
        log_write(LOG_WARN, "audit_left_out", log_word("node", step->name),
            log_number("records", step->left));
    audit_take_cases(core);
    if (step->cursor == 0) {
        audit->now.nodes++;
        audit_next_node(core);
    }
    audit_go_on(core);
}

static void
audit_step_failed(struct core *core)
{
    struct audit *audit = core->audit;

    require(audit->tries < TRIES);
    if (++audit->tries < TRIES) {
        audit_pause(core, AUDIT_PAUSES, AGAIN_US);
        return;
    }
    log_write(LOG_WARN, "audit_node_away", log_word("node", audit->step.name));
    count(core->counters, COUNTER_audit_nodes_away);
    audit->now.skipped++;
    audit_next_node(core);
    audit_ask(core);
}

void
audit_stepped(struct core *core, struct op *op)
{
    struct audit *audit = core->audit;
    enum op_status status = op->result.status;
    bool mark = audit->step.mark_ms > 0;

    require(op->kind == OP_AUDIT && op->audit == &audit->step);
    require(audit->state == AUDIT_STEPS);
    if (!audit_is_wanted(core)) {
        audit_leave(core);
    } else if (status == OP_GONE) {
        audit_is_done(core);
        audit_leave(core);
    } else if (status == OP_BUSY) {
        audit_next_node(core);
        audit_ask(core);
    } else if (status == OP_OK && mark) {
        audit->marked = true;
        audit->marked_us = core->now_us;
        audit_ask(core);
    } else if (status == OP_OK) {
        audit_step_done(core);
    } else {
        audit_step_failed(core);
    }
}

/* --- findings ------------------------------------------------------------- */

/* An operation on the record that is looked at; NULL: there is no room. */
static struct op *
audit_op(struct core *core, enum op_kind kind, struct text name)
{
    struct lock *lock = lock_obtain(core, name);
    struct op *op = NULL;

    if (lock == NULL)
        return NULL;
    op = op_create(core, kind, lock, HANDLE_NONE);
    lock_unref(core, lock);
    if (op == NULL)
        return NULL;
    op->reader = READER_AUDIT;
    op->deadline_us = core->now_us + core->settings.redis_timeout_us;
    audit_move(core, AUDIT_LOOKS);
    return op;
}

/* Has the record read; false: there is no room. */
static bool
audit_look(struct core *core)
{
    struct op *op = audit_op(core, OP_INSPECT, case_name(core->audit));

    if (op == NULL)
        return false;
    op->limit = TICKETS_MAX;
    op_submit(core, op);
    return true;
}

void
audit_inspected(struct core *core, const struct op *op)
{
    struct audit *audit = core->audit;

    require(op->kind == OP_INSPECT && op->reader == READER_AUDIT);
    require(audit->state == AUDIT_LOOKS);
    /* A step looks along the front of a queue, and some time before. */
    if (op->result.senseless && audit->finding_count == 0)
        finding_add(audit, FINDING_SENSELESS)->wrong = WRONG_RECORD;
    if (audit->finding_at < audit->finding_count &&
        audit->findings[audit->finding_at].stage == FINDING_UNKNOWN)
        finding_looked_again(audit, &op->result);
    else if (op->result.status == OP_OK)
        audit_take_tickets(core, &op->result);
    audit_go_on(core);
}

/* --- telling and breaking ------------------------------------------------- */

/* Breaks that hold, and no later one; false: that is under way. */
static bool
finding_break(struct core *core, struct finding *finding)
{
    finding->stage = FINDING_DONE;
    if (!finding_is_to_break(core, finding))
        return true;
    struct op *op = audit_op(core, OP_BREAK, case_name(core->audit));
    if (op == NULL)
        return true;
    op->fence = finding->fence;
    op_submit(core, op);
    return false;
}

void
audit_broken(struct core *core, const struct op *op)
{
    struct audit *audit = core->audit;
    struct finding *finding = &audit->findings[audit->finding_at];

    require(op->kind == OP_BREAK);
    require(audit->state == AUDIT_LOOKS && finding->stage == FINDING_DONE);
    if (op->result.status == OP_OK) {
        finding->broken = true;
        count(core->counters, COUNTER_audit_breaks);
        if (core->stopping) /* the run ends here, and this is done */
            finding_tell(core, case_name(audit), finding);
    }
    audit_go_on(core);
}

void
audit_news(struct core *core, struct text news)
{
    if (question_news(core, news))
        audit_go_on(core);
}

/* --- going on ------------------------------------------------------------- */

/* Begins the next case. False: the record has to be read first. */
static bool
case_begin(struct core *core)
{
    struct audit *audit = core->audit;

    require(audit->finding_at == audit->finding_count);
    audit->case_at++;
    const struct audit_case *at = case_now(audit);
    audit->finding_count = audit->finding_at = 0;
    if (at->wrong != WRONG_NOTHING)
        finding_add(audit, FINDING_SENSELESS)->wrong = at->wrong;
    if (at->flags == 0)
        return true;
    return !audit_look(core);
}

/* Whether the hold is still there; where there is no room to ask, it is let go.
 * False: an answer is needed. */
static bool
finding_look_again(struct core *core)
{
    if (audit_look(core))
        return false;
    core->audit->finding_at++;
    return true;
}

/* A stage further; false: an answer is needed. */
static bool
finding_go_on(struct core *core)
{
    struct audit *audit = core->audit;
    struct finding *finding = &audit->findings[audit->finding_at];

    switch (finding->stage) {
    case FINDING_NEW:
        return question_ask(core, finding);
    case FINDING_UNKNOWN:
        return finding_look_again(core);
    case FINDING_SURE:
        return finding_break(core, finding);
    case FINDING_DONE:
        break;
    }
    finding_tell(core, case_name(audit), finding);
    audit->finding_at++;
    return true;
}

/* Deals with the cases of the last step, one after another. The next step
 * follows after a pause. */
static void
audit_go_on(struct core *core)
{
    struct audit *audit = core->audit;
    bool on = true;

    while (on && audit_is_wanted(core)) {
        if (audit->finding_at < audit->finding_count) {
            on = finding_go_on(core);
        } else if (audit->case_at < audit->case_count) {
            on = case_begin(core);
        } else {
            audit_pause(core, AUDIT_PAUSES, core->settings.audit_pause_us);
            return;
        }
    }
    if (on)
        audit_leave(core);
}

static void
audit_due(struct core *core)
{
    struct audit *audit = core->audit;

    require(core->settings.audit_interval_us > 0);
    audit->due_us =
        core->now_us + core_jitter(core, core->settings.audit_interval_us);
    audit_begin(core, HANDLE_NONE);
}

void
audit_timer(struct core *core)
{
    if (!audit_is_wanted(core)) {
        audit_leave(core);
        return;
    }
    switch (core->audit->state) {
    case AUDIT_IDLE:
        audit_due(core);
        return;
    case AUDIT_PAUSES:
        audit_ask(core);
        return;
    case AUDIT_WONDERS:
    case AUDIT_WONDERS_AGAIN:
        if (question_timer(core))
            audit_go_on(core);
        return;
    case AUDIT_STEPS:
    case AUDIT_LOOKS:
    case AUDIT_STATE_COUNT:
        break;
    }
    require(false);
}

/*
 * UNLOCK and RENEW with detached=1, about a hold that is no session's, and
 * RESIZE, about a semaphore. The fence, or the name, tells what it is about, so
 * no ticket is needed: the request waits for one answer of Redis. See DESIGN.md
 * D9.5, D1.7.
 */
#include "daemon/core/command/command.h"

#include "daemon/core/answer/answer.h"
#include "daemon/core/feature/releases.h"
#include "daemon/core/model/handlers.h"
#include "daemon/core/model/op_pool.h"
#include "daemon/core/model/request.h"
#include "daemon/core/model/session_table.h"
#include "daemon/core/model/ticket.h"
#include "daemon/core/ticket/states.h"
#include "daemon/core/ticket/tickets.h"
#include "daemon/op/op.h"

#include "daemon/base/log.h"

static const char not_known[] =
    "Redis has not confirmed it: send the request again";

const char *
detached_objection(const struct request_line *line)
{
    if (!line_is_detached(line))
        return NULL;
    if (line->command != COMMAND_UNLOCK &&
        !request_has(line, REQUEST_KEY_LEASE))
        return "detached=1 needs lease=";
    if (line->command != COMMAND_UNLOCK &&
        line->value[REQUEST_KEY_LEASE] > OP_DETACHED_MAX_MS)
        return "with detached=1, lease= must be at most 24h";
    if (line->command == COMMAND_LOCK && request_has(line, REQUEST_KEY_MODE) &&
        text_equal(line->word[REQUEST_KEY_MODE], TEXT("upgradable")))
        return "detached=1 takes no mode=upgradable";
    if (line->command == COMMAND_LOCK)
        return request_has(line, REQUEST_KEY_WANTED)
                   ? "detached=1 takes no wanted=: no client holds the lock"
                   : NULL;
    if (!request_has(line, REQUEST_KEY_FENCE))
        return "detached=1 needs fence=";
    if (request_has(line, REQUEST_KEY_OWNER))
        return "a detached hold has no owner=: its fence= names it";
    if (request_has(line, REQUEST_KEY_PERMITS))
        return "a detached hold is released as a whole, without permits=";
    return NULL;
}

static void
detached_ask(struct core *core, const struct request *request, struct op *op)
{
    op->by_fence = request->command != COMMAND_RESIZE;
    require(op->by_fence == (request->fence > 0)); /* DESIGN.md D9.5 */
    op->fence = request->fence;
    op->keeps = request->ask.permits_max;
    op->delay_ms = request->ask.delay_ms;
    if (request->command == COMMAND_RENEW)
        op->hard_end_us =
            us_add(core->now_us, us_from_ms(request->ask.detach_ms));
    op->deadline_us = request_deadline_us(core, request);
    op_submit(core, op);
}

void
detached_command(
    struct core *core, struct session *session, const struct request_line *line)
{
    const char *wrong = detached_objection(line);
    bool renews = line->command == COMMAND_RENEW;

    require(line_is_detached(line));
    if (wrong != NULL) {
        count(core->counters, COUNTER_requests_bad);
        answer_error(core, session, line->tag, ERROR_BADREQ, wrong);
        return;
    }
    struct op *op = command_op(
        core, session, line, renews ? OP_RENEW_DETACHED : OP_UNLOCK_DETACHED);
    if (op == NULL)
        return;
    struct request *request = slab_get(&core->requests, op->owner);
    request->fence = line->value[REQUEST_KEY_FENCE];
    request->ask.detach_ms = renews ? line->value[REQUEST_KEY_LEASE] : 0;
    detached_ask(core, request, op);
}

/* Another limit for a semaphore that is held or waited for. */
void
command_resize(
    struct core *core, struct session *session, const struct request_line *line)
{
    const char *wrong = limit_objection(core, line);

    require(line->command == COMMAND_RESIZE);
    if (wrong != NULL) {
        count(core->counters, COUNTER_requests_bad);
        answer_error(core, session, line->tag, ERROR_BADREQ, wrong);
        return;
    }
    struct op *op = command_op(core, session, line, OP_RESIZE);
    if (op == NULL)
        return;
    struct request *request = slab_get(&core->requests, op->owner);
    request->ask.permits_max = (uint32_t)line->value[REQUEST_KEY_LIMIT];
    log_write(LOG_INFO, "order_resize", log_quoted("lock", line->argument),
        log_number("limit", request->ask.permits_max),
        log_word("by", session->short_id), auth_log_user(session));
    detached_ask(core, request, op);
}

/* Redis has carried it out. */
static void
detached_answer(
    struct core *core, struct request *request, const struct op_result *result)
{
    require(result->status == OP_OK);
    if (request->command == COMMAND_UNLOCK) {
        count(core->counters, COUNTER_releases_detached);
        answer_count(core, request, 0);
        return;
    }
    struct reply reply = answer_begin(core, request->tag, "OK");
    if (request->command == COMMAND_RESIZE) {
        count(core->counters, COUNTER_resizes);
        reply_pair_number(&reply, "limit", request->ask.permits_max);
        reply_pair_number(&reply, "permits", result->used);
    } else {
        uint64_t left_ms = result_left_us(core, result) / 1000;
        reply_pair_number(&reply, "ttl_ms", left_ms);
        reply_lease(&reply, true, left_ms);
    }
    answer_end(core, request->session, &reply);
    request_free(core, request);
}

/* The answer was lost: Redis is asked again. */
static void
detached_unknown(
    struct core *core, struct request *request, const struct op *op)
{
    struct op *again = NULL;

    require(op->result.status == OP_UNKNOWN);
    count(core->counters, COUNTER_outcomes_unknown);
    if (core->now_us < request_deadline_us(core, request))
        again = op_create(
            core, op->kind, slab_get(&core->locks, op->lock), op->owner);
    if (again != NULL) {
        again->retry = true;
        detached_ask(core, request, again);
        return;
    }
    count(core->counters, COUNTER_refused_indoubt);
    request_refuse(core, request, ERROR_INDOUBT, not_known);
}

static void
detached_refuse(struct core *core, struct request *request, const struct op *op)
{
    enum op_status status = op->result.status;
    bool gone = status == OP_GONE && request->command == COMMAND_UNLOCK;
    bool resizes = request->command == COMMAND_RESIZE;

    require(status != OP_OK && status != OP_UNKNOWN);
    /* The first time may have carried it out. */
    if (op->retry && (gone || status == OP_MISSING)) {
        count(core->counters, COUNTER_refused_indoubt);
        request_refuse(core, request, ERROR_INDOUBT,
            gone ? "the hold has ended: by this request, or before"
                 : not_known);
        return;
    }
    switch (status) {
    case OP_GONE:
        request_refuse(core, request, ERROR_NOTHELD,
            resizes ? "no client holds the lock or waits for it: the limit= of "
                      "the next LOCK counts"
                    : "no detached hold of this lock has that fence");
        return;
    case OP_CONFLICT:
        request_refuse(core, request, ERROR_CONFLICT,
            resizes ? "the lock is no semaphore: its holders and waiters have "
                      "no limit="
                    : "the hold with that fence is not detached: its session "
                      "uses it without detached=1");
        return;
    case OP_MISSING:
        request_unavailable(core, request, us_from_ms(op->result.again_ms));
        return;
    case OP_UNSENT:
        count(core->counters,
            op->retry ? COUNTER_refused_indoubt : COUNTER_refused_unavailable);
        request_refuse(core, request,
            op->retry ? ERROR_INDOUBT : ERROR_UNAVAILABLE,
            op->retry ? not_known : NULL);
        return;
    case OP_OK:
    case OP_UNKNOWN:
    case OP_WAITING:
    case OP_BUSY:
    case OP_FULL:
    case OP_BROKEN:
    case OP_MOVED:
    case OP_UNSETTLED:
    case OP_REFUSED:
        request_refuse(core, request, ERROR_INTERNAL,
            "Redis has refused the request: see the broker's log");
        return;
    }
}

void
detached_done(struct core *core, struct op *op)
{
    struct request *request = slab_get(&core->requests, op->owner);
    enum op_status status = op->result.status;
    bool ended = status == OP_OK || (status == OP_GONE && op->retry);

    require(op->kind == OP_UNLOCK_DETACHED || op->kind == OP_RENEW_DETACHED ||
            op->kind == OP_RESIZE);
    if (ended && op->kind == OP_UNLOCK_DETACHED)
        releases_note_detached(core, op);
    if (request == NULL)
        return;
    if (status == OP_OK)
        detached_answer(core, request, &op->result);
    else if (status == OP_UNKNOWN)
        detached_unknown(core, request, op);
    else
        detached_refuse(core, request, op);
}

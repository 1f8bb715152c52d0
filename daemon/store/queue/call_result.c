/*
 * Replies to calls become results of their operations. See DESIGN.md D8.3 and
 * D8.4.
 */
#include "daemon/store/queue/queue.h"

#include "daemon/store/node/conn.h"
#include "daemon/store/node/history.h"
#include "daemon/store/strict/strict.h"

#include "daemon/base/assert.h"
#include "daemon/base/log.h"

/* Whether Redis takes a call of that kind only where it takes grants; renewals
 * and releases it takes also when it is full. */
static bool
call_proves(const struct call *call)
{
    const struct op *first = container_of(call->ops.next, struct op, link);

    return record_script(first->kind) == SCRIPT_ACQUIRE;
}

#define NOT_AGAIN UINT64_MAX

/* How long to wait before another try, if Redis did nothing. */
static uint64_t
again_after(struct store *store, const struct op *op, enum record_status status)
{
    if (op->kind == OP_AUDIT)
        return NOT_AGAIN; /* no script says so of it */
    if (status == RECORD_LATE)
        count(store->counters, COUNTER_redis_late);
    if (status == RECORD_LATE || status == RECORD_CHANGED)
        return 0;
    if (status == RECORD_GRACE && !op->no_queue)
        return op->result.again_ms * (uint64_t)1000;
    return NOT_AGAIN;
}

/* Corrects ages by a clock that was set forward (D2.3). */
static void
tickets_age(struct store *store, const struct conn *conn,
    const struct op_result *result, uint64_t time_us)
{
    for (uint32_t i = 0; i < result->ticket_count; i++) {
        struct op_ticket *ticket = &store->tickets[i];
        if (ticket->since_us < conn->clock.rose_at_us)
            ticket->age_ms =
                history_age_us(conn, ticket->since_us, time_us) / 1000;
    }
}

/* Clients see INTERNAL. The log has the reason. */
static void
log_record(const struct store *store, const struct conn *conn,
    const struct op *op, enum record_status status)
{
    char name[80];

    if (!op->result.senseless && status != RECORD_NEWER)
        return;
    log_write(LOG_ERROR, "redis_record_refused",
        log_word("node", conn_name(store, conn, name, sizeof(name))),
        log_quoted("lock", op->name),
        log_word("why", op->result.senseless ? "record" : "version"));
}

/* Takes one result; false where the reply makes no sense from here on. */
static bool
op_answered(struct store *store, struct conn *conn, struct call *call,
    struct op *op, uint64_t now_us, const struct record_reply *reply,
    struct record_reader *reader, uint32_t *grants)
{
    enum record_status status;

    require(*grants <= GRANTS_MAX);
    if (!record_read_result(
            reader, op, &status, store->grants + *grants, GRANTS_MAX - *grants))
        return false;
    *grants += op->result.grant_count;
    op->result.sent_us = call->sent_us;
    op->answered_us = call->answered_us;
    uint64_t pause_us = again_after(store, op, status);
    if (pause_us != NOT_AGAIN) {
        memset(&op->result, 0, sizeof(op->result)); /* refers to this reply */
        list_remove(&op->link);
        if (pause_us == 0) {
            op_again(store, op, conn->node, now_us, 0);
            return true;
        }
        op_park_grace(store, op, pause_us, WHEEL_NEVER);
        return true;
    }
    if (op->kind == OP_INSPECT && status == RECORD_OK &&
        !record_read_tickets(
            reader, op, reply->time_us, store->tickets, TICKETS_SHOWN))
        return false;
    if (op->kind == OP_AUDIT && !record_read_suspects(reader, op->audit,
                                    store->suspects, AUDIT_SUSPECTS_MAX))
        return false;
    if (op->kind == OP_INSPECT)
        tickets_age(store, conn, &op->result, reply->time_us);
    log_record(store, conn, op, status);
    list_remove(&op->link);
    op_done(store, op, op->result.status);
    return true;
}

/* Learns the node's time and replication id from an answer. */
static void
call_heard(struct store *store, struct conn *conn, const struct call *call,
    uint64_t now_us, const struct record_reply *reply)
{
    if (reply->time_us == 0)
        return;
    history_clock(store, conn, reply->time_us, call->sent_us, now_us);
    history_see(store, conn, reply->id);
}

void
call_results(struct store *store, struct conn *conn, struct call *call,
    uint64_t now_us, struct text text)
{
    struct record_reader reader;
    struct record_reply reply;
    uint32_t grants = 0;
    bool sense = record_read_reply(&reader, text, &reply);

    if (sense && call->said == NULL)
        call_heard(store, conn, call, now_us, &reply);
    while (sense && !list_empty(&call->ops))
        sense = op_answered(store, conn, call,
            container_of(call->ops.next, struct op, link), now_us, &reply,
            &reader, &grants);
    if (sense)
        return;
    struct list *at;
    count(store->counters, COUNTER_redis_errors);
    log_write(LOG_ERROR, "redis_answer_not_understood",
        log_number("bytes", text.len));
    while ((at = list_pop_front(&call->ops)) != NULL)
        op_done(store, container_of(at, struct op, link), OP_REFUSED);
}

void
call_script_reply(struct store *store, struct conn *conn, struct call *call,
    uint64_t now_us, const struct resp *reply)
{
    const struct op *first = container_of(call->ops.next, struct op, link);

    require(call->kind == CALL_SCRIPT && call->answered_us == 0);
    call->answered_us = now_us;
    histogram_add(
        &store->counters->redis_call, &histogram_calls, now_us - call->sent_us);
    if (list_empty(&call->ops))
        return; /* too late for all of them */
    if (reply->type == RESP_INTEGER && first->kind == OP_PUBLISH) {
        struct op *op =
            container_of(list_pop_front(&call->ops), struct op, link);
        op->result.ahead = reply->integer > 0; /* somebody has heard it */
        op_done(store, op, OP_OK);
        return;
    }
    if (reply->type == RESP_ERROR) {
        call_refused(store, conn, call, now_us, reply->text);
        return;
    }
    if (call_is_mark(call)) {
        audit_marked(store, call, reply);
        return;
    }
    if (call_proves(call) || !health_is_of_node(conn->fault.reason))
        health_grants(conn);
    if (!confirm_wanted(store, call, reply)) {
        call_results(store, conn, call, now_us,
            reply->type == RESP_STRING ? reply->text : TEXT(""));
        return;
    }
    struct record_reader reader;
    struct record_reply said;
    if (record_read_reply(&reader, reply->text, &said))
        call_heard(store, conn, call, now_us, &said);
    if (!confirm_hold(call, reply))
        call_lost(store, call);
}

/*
 * Statistics of the namespace of a lock: answers to its requests, times of
 * waits and holds, and the present totals.
 */
#include "daemon/core/model/stats.h"

#include "daemon/base/assert.h"

struct namespace *
namespace_of(struct core *core, struct lock *lock)
{
    require(lock->refs > 0);
    if (lock->namespace_serial != core->namespaces.serial) {
        lock->namespace = namespaces_find(
            &core->namespaces, text_make(lock->name, lock->name_len));
        lock->namespace_serial = core->namespaces.serial;
    }
    require(lock->namespace < core->namespaces.count);
    return &core->namespaces.namespace[lock->namespace];
}

/* NULL: the request is no LOCK of a name, but perhaps one of several, each of
 * which is counted. */
static struct namespace *
namespace_of_lock(struct core *core, const struct request *request)
{
    if (request->command != COMMAND_LOCK || request->ticket == NULL)
        return NULL;
    return namespace_of(core, request->ticket->lock);
}

void
stats_granted(struct core *core, const struct request *request,
    const struct ticket *ticket)
{
    struct namespace *namespace = namespace_of_lock(core, request);

    require(ticket->state == TICKET_HELD && ticket->holds > 0);
    require(request->began_us <= core->now_us);
    if (namespace == NULL)
        return;
    if (ticket->holds > 1) {
        namespace->value[NAMESPACE_reentered]++;
        return;
    }
    namespace->value[NAMESPACE_granted]++;
    histogram_add(
        &namespace->wait, &histogram_waits, core->now_us - request->began_us);
}

static enum namespace_counter
refusal(enum error_code code)
{
    switch (code) {
    case ERROR_BUSY:
        return NAMESPACE_busy;
    case ERROR_TIMEOUT:
        return NAMESPACE_timeout;
    case ERROR_CANCELLED:
        return NAMESPACE_cancelled;
    case ERROR_CONFLICT:
        return NAMESPACE_conflict;
    case ERROR_DEADLOCK:
        return NAMESPACE_deadlock;
    case ERROR_DENIED:
        return NAMESPACE_denied;
    case ERROR_UNAVAILABLE:
        return NAMESPACE_unavailable;
    case ERROR_INDOUBT:
        return NAMESPACE_indoubt;
    case ERROR_LIMIT:
        return NAMESPACE_limit;
    case ERROR_DRAINING:
        return NAMESPACE_draining;
    case ERROR_BADREQ:
    case ERROR_UNKNOWN:
    case ERROR_TOOLONG:
    case ERROR_AUTH:
    case ERROR_NOTHELD:
    case ERROR_STALE:
    case ERROR_LOST:
    case ERROR_INTERNAL:
    case ERROR_COUNT:
        break;
    }
    return NAMESPACE_failed;
}

static enum counter
await_refusal(enum error_code code)
{
    return code == ERROR_BUSY          ? COUNTER_awaits_busy
           : code == ERROR_TIMEOUT     ? COUNTER_awaits_timeout
           : code == ERROR_CANCELLED   ? COUNTER_awaits_cancelled
           : code == ERROR_UNAVAILABLE ? COUNTER_awaits_unavailable
                                       : COUNTER_awaits_failed;
}

void
stats_refused(
    struct core *core, const struct request *request, enum error_code code)
{
    struct namespace *namespace = namespace_of_lock(core, request);

    if (request->command == COMMAND_AWAIT)
        count(core->counters, await_refusal(code));
    if (namespace != NULL)
    namespace->value[refusal(code)]++;
}

void
stats_turned_away(struct core *core, struct text name, enum error_code code)
{
    core->namespaces.namespace[namespaces_find(&core->namespaces, name)]
        .value[refusal(code)]++;
}

void
stats_unheard(struct core *core, const struct request *request)
{
    struct namespace *namespace = namespace_of_lock(core, request);

    if (request->command == COMMAND_AWAIT)
        count(core->counters, COUNTER_awaits_unheard);
    if (namespace != NULL && !request_stands(request))
    namespace->value[NAMESPACE_unheard]++;
}

void
stats_finding(
    struct core *core, struct text name, enum namespace_counter counter)
{
    require(counter < NAMESPACE_COUNTER_COUNT);
    core->namespaces.namespace[namespaces_find(&core->namespaces, name)]
        .value[counter]++;
}

static uint64_t
oldest_us(const struct list *tickets, uint64_t now_us)
{
    if (list_empty(tickets))
        return 0;
    const struct ticket *ticket =
        container_of(tickets->next, struct ticket, age_link);
    return now_us - (ticket->state == TICKET_HELD ? ticket->granted_us
                                                  : ticket->waits_us);
}

uint32_t
core_namespaces(
    const struct core *core, uint64_t now_us, struct core_namespace *out)
{
    require(core->namespaces.count <= NAMESPACES_MAX + 1);
    for (uint32_t i = 0; i < core->namespaces.count; i++) {
        const struct ages *ages = &core->ages[i];
        require(ages->held <= core->held && ages->waiting <= core->waiting);
        out[i] = (struct core_namespace){
            .counted = &core->namespaces.namespace[i],
            .held = ages->held,
            .waiting = ages->waiting,
            .oldest_hold_us = oldest_us(&ages->holds, now_us),
            .oldest_wait_us = oldest_us(&ages->waits, now_us),
        };
    }
    return core->namespaces.count;
}

void
core_totals(const struct core *core, struct core_totals *totals)
{
    require(core->held + core->waiting <= core->tickets.used);
    totals->sessions = core->sessions.used;
    totals->locks = core->locks.used;
    totals->tickets = core->tickets.used;
    totals->held = core->held;
    totals->waiting = core->waiting;
    totals->awaiting = core->awaiting;
    totals->requests = core->requests.used;
    totals->ops = core->ops.used;
}

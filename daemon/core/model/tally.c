/*
 * What is counted for the namespace of a lock: how requests for it were
 * answered, how long they waited, how long it was held; and what there is at
 * the moment.
 */
#include "daemon/core/model/tally.h"

#include "daemon/base/assert.h"

/* Where its namespace is, also where they have changed since it was found. */
static uint8_t
space_place(const struct core *core, const struct lock *lock)
{
    if (lock->space_serial == core->spaces.serial)
        return lock->space;
    return spaces_find(&core->spaces, text_make(lock->name, lock->name_len));
}

struct space *
space_of(struct core *core, struct lock *lock)
{
    lock->space = space_place(core, lock);
    lock->space_serial = core->spaces.serial;
    return &core->spaces.space[lock->space];
}

/* NULL: the request is no LOCK of a name, but perhaps one of several, each of
 * which is counted. */
static struct space *
space_of_lock(struct core *core, const struct request *request)
{
    if (request->command != COMMAND_LOCK || request->ticket == NULL)
        return NULL;
    return space_of(core, request->ticket->lock);
}

void
tally_granted(struct core *core, const struct request *request,
    const struct ticket *ticket)
{
    struct space *space = space_of_lock(core, request);

    if (space == NULL)
        return;
    if (ticket->holds > 1) {
        space->value[SPACE_reentered]++;
        return;
    }
    space->value[SPACE_granted]++;
    histogram_add(
        &space->wait, &histogram_waits, core->now_us - request->began_us);
}

static enum space_counter
refusal(enum error_code code)
{
    switch (code) {
    case ERROR_BUSY:
        return SPACE_busy;
    case ERROR_TIMEOUT:
        return SPACE_timeout;
    case ERROR_CANCELLED:
        return SPACE_cancelled;
    case ERROR_CONFLICT:
        return SPACE_conflict;
    case ERROR_DEADLOCK:
        return SPACE_deadlock;
    case ERROR_DENIED:
        return SPACE_denied;
    case ERROR_UNAVAILABLE:
        return SPACE_unavailable;
    case ERROR_INDOUBT:
        return SPACE_indoubt;
    case ERROR_LIMIT:
        return SPACE_limit;
    case ERROR_DRAINING:
        return SPACE_draining;
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
    return SPACE_failed;
}

void
tally_refused(
    struct core *core, const struct request *request, enum error_code code)
{
    struct space *space = space_of_lock(core, request);

    if (space != NULL)
        space->value[refusal(code)]++;
}

void
tally_turned_away(struct core *core, struct text name, enum error_code code)
{
    core->spaces.space[spaces_find(&core->spaces, name)].value[refusal(code)]++;
}

void
tally_unheard(struct core *core, const struct request *request)
{
    struct space *space = space_of_lock(core, request);

    if (space != NULL && !request_stands(request))
        space->value[SPACE_unheard]++;
}

void
tally_finding(struct core *core, struct text name, enum space_counter counter)
{
    core->spaces.space[spaces_find(&core->spaces, name)].value[counter]++;
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
core_spaces(const struct core *core, uint64_t now_us, struct core_space *out)
{
    for (uint32_t i = 0; i < core->spaces.count; i++) {
        const struct ages *ages = &core->ages[i];
        out[i] = (struct core_space){
            .counted = &core->spaces.space[i],
            .held = ages->held,
            .waiting = ages->waiting,
            .oldest_hold_us = oldest_us(&ages->holds, now_us),
            .oldest_wait_us = oldest_us(&ages->waits, now_us),
        };
    }
    return core->spaces.count;
}

void
core_totals(const struct core *core, struct core_totals *totals)
{
    totals->sessions = core->sessions.used;
    totals->locks = core->locks.used;
    totals->tickets = core->tickets.used;
    totals->held = core->held;
    totals->waiting = core->waiting;
    totals->requests = core->requests.used;
    totals->ops = core->ops.used;
}

/*
 * Inspections: readings of records for the search for cycles, few enough that
 * Redis has time for all else. inspection_queue.c has the probes that wait for
 * them.
 *
 * Probes share the next reading of a lock that is being read or may not be read
 * yet. That reading begins after all of them have come: the second round must
 * not see what was before the first one's end. The more tickets a record has,
 * the more rarely it is read. Readings and messages together take a bounded
 * part of Redis' time; readings that are put off for that are counted.
 *
 * See DESIGN.md D6.3.
 */
#include "daemon/core/feature/deadlock.h"

#include "daemon/core/model/op_pool.h"
#include "daemon/op/op.h"

#include "daemon/base/assert.h"

/* The approximate cost of a reading in Redis. */
#define INSPECTION_US        30
#define INSPECTION_TICKET_US 2
/* Redis' time that may have been saved up for readings, before PART. */
#define BURST_US 50000
/* So long it is not read again, for each ticket; with few of them, it is. */
#define REST_TICKET_US 100
#define REST_LEAST_US  2000

/* The next one of those that wait, or NULL. */
static struct probe *
inspection_pop(struct inspection *inspection)
{
    struct list *link = list_pop_front(&inspection->probes[PROBE_VERIFIES]);

    for (unsigned i = 0; i < 2 && link == NULL; i++) {
        inspection->turn =
            inspection->turn == PROBE_FOLLOWS ? PROBE_BEGINS : PROBE_FOLLOWS;
        link = list_pop_front(&inspection->probes[inspection->turn]);
    }
    require((link == NULL) == (inspection->probe_count == 0));
    if (link == NULL)
        return NULL;
    inspection->probe_count--;
    return container_of(link, struct probe, link);
}

/* Those that still have something to look at, up to INSPECTION_PROBES. */
static void
inspection_take(struct core *core, struct inspection *inspection)
{
    struct probe *probe;

    require(list_empty(&inspection->served));
    inspection->served_count = 0;
    while (inspection->served_count < INSPECTION_PROBES &&
           (probe = inspection_pop(inspection)) != NULL) {
        if (deadlock_stands(core, probe)) {
            list_push_back(&inspection->served, &probe->link);
            inspection->served_count++;
        } else {
            slab_free(&core->probes, probe);
        }
    }
}

static void
inspection_send(struct core *core, struct inspection *inspection)
{
    require(!inspection->under_way && !wheel_node_set(&inspection->timer));
    require(inspection->due_us <= core->now_us);
    inspection_take(core, inspection);
    if (list_empty(&inspection->served)) {
        inspection_go_on(core, inspection);
        return;
    }
    struct op *op = op_create(core, OP_INSPECT, inspection->lock,
        slab_handle(&core->inspections, inspection));
    if (op == NULL) {
        drop_probes(core, &inspection->served);
        for (unsigned i = 0; i < PURPOSES; i++)
            drop_probes(core, &inspection->probes[i]);
        inspection->probe_count = 0;
        inspection_end(core, inspection);
        return;
    }
    op->reader = READER_DEADLOCK;
    op->limit = INSPECTION_TICKETS;
    op->deadline_us = core->now_us + core->settings.command_timeout_us;
    inspection->under_way = true;
    inspections_pay(core, INSPECTION_US);
    count(core->counters, COUNTER_deadlock_looks);
    if (inspection->due_us < core->now_us)
        count(core->counters, COUNTER_deadlock_looks_late);
    op_submit(core, op);
}

/* The next one; NULL: none. Locks that few probes wait for and locks that many
 * wait for take turns, or the few would wait for all the others. */
static struct inspection *
inspections_next(struct core *core)
{
    struct list *link = NULL;

    for (unsigned i = 0; i < 2 && link == NULL; i++) {
        core->inspections_turn = !core->inspections_turn;
        link = list_pop_front(&core->inspections_due[core->inspections_turn]);
    }
    return link != NULL ? container_of(link, struct inspection, due_link)
                        : NULL;
}

void
inspections_send(struct core *core)
{
    struct inspection *inspection;

    while (core->inspections_paid_us <= core->now_us + BURST_US) {
        if ((inspection = inspections_next(core)) == NULL)
            return;
        inspection_send(core, inspection);
    }
    if (!list_empty(&core->inspections_due[0]) ||
        !list_empty(&core->inspections_due[1]))
        wheel_add(&core->wheel, &core->inspections_timer,
            core->inspections_paid_us - BURST_US);
}

void
inspections_timer(struct core *core, struct wheel_node *node)
{
    struct inspection *inspection =
        container_of(node, struct inspection, timer);

    require(!inspection->under_way && list_empty(&inspection->due_link));
    inspection_go_on(core, inspection);
}

/* Probes that the step had no room for are first in the next reading. */
static void
inspection_return(struct inspection *inspection)
{
    while (!list_empty(&inspection->served)) {
        struct list *link = inspection->served.prev;
        const struct probe *probe = container_of(link, struct probe, link);
        list_remove(link);
        list_push_front(&inspection->probes[probe_purpose(probe)], link);
        inspection->probe_count++;
    }
}

void
inspections_done(struct core *core, const struct op *op)
{
    struct inspection *inspection = slab_get(&core->inspections, op->owner);
    uint64_t rest_us = (uint64_t)op->result.ticket_count * REST_TICKET_US;

    require(inspection != NULL && inspection->under_way);
    require(inspection->lock->inspection == inspection);
    inspections_pay(
        core, (uint64_t)op->result.ticket_count * INSPECTION_TICKET_US);
    if (op->result.status == OP_OK)
        deadlock_read(core, &inspection->served, &op->result);
    else
        drop_probes(core, &inspection->served);
    inspection->under_way = false;
    inspection_return(inspection);
    require(inspection->probe_count <= core->probes.used);
    if (rest_us >= REST_LEAST_US)
        wheel_add(&core->wheel, &inspection->timer, core->now_us + rest_us);
    else
        inspection_go_on(core, inspection);
}

void
inspections_check(const struct core *core)
{
    uint32_t locks = 0;

    for (uint32_t i = 0; i < core->inspections.touched; i++) {
        const struct inspection *inspection = slab_at(&core->inspections, i);
        if (inspection == NULL)
            continue;
        require(inspection->lock->inspection == inspection &&
                inspection->lock->refs > 0);
        require(inspection->under_way + wheel_node_set(&inspection->timer) +
                    !list_empty(&inspection->due_link) ==
                1);
        require(list_empty(&inspection->served) || inspection->under_way);
        uint32_t probes = 0;
        for (unsigned k = 0; k < PURPOSES; k++)
            LIST_EACH (link, &inspection->probes[k])
                probes++;
        require(probes == inspection->probe_count);
    }
    require((list_empty(&core->inspections_due[0]) &&
                list_empty(&core->inspections_due[1])) ||
            wheel_node_set(&core->inspections_timer));
    for (uint32_t i = 0; i < core->locks.touched; i++) {
        const struct lock *lock = slab_at(&core->locks, i);
        locks += lock != NULL && lock->inspection != NULL;
    }
    require(locks == core->inspections.used);
}

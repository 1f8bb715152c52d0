/*
 * Looks: readings of records for the search for cycles, few enough that Redis
 * has time for all else. look_queue.c has the probes that wait for them.
 *
 * All probes that come to a lock while its record is being read, or is not to
 * be read just now, share the next reading: it is made after all of them have
 * come, as the second round must not see what was before the first one's end.
 * A record of many tickets is read the more rarely, and readings and messages
 * together take no more than a part of Redis' time; readings that are put off
 * for that are counted.
 *
 * See DESIGN.md D6.3.
 */
#include "daemon/core/feature/looks.h"

#include "daemon/core/feature/deadlock.h"
#include "daemon/core/feature/look_queue.h"
#include "daemon/core/feature/probe.h"
#include "daemon/core/model/op_pool.h"

#include "daemon/base/assert.h"

/* What a reading costs Redis, about. */
#define LOOK_US        30
#define LOOK_TICKET_US 2
/* Redis' time that may have been saved up for readings, before PART. */
#define BURST_US 50000
/* So long it is not read again, for each ticket; with few of them, it is. */
#define REST_TICKET_US 100
#define REST_LEAST_US  2000

/* The next one of those that wait, or NULL. */
static struct probe *
look_pop(struct look *look)
{
    struct list *link = list_pop_front(&look->probes[PROBE_VERIFIES]);

    for (unsigned i = 0; i < 2 && link == NULL; i++) {
        look->turn = look->turn == PROBE_FOLLOWS ? PROBE_BEGINS : PROBE_FOLLOWS;
        link = list_pop_front(&look->probes[look->turn]);
    }
    if (link == NULL)
        return NULL;
    look->probe_count--;
    return container_of(link, struct probe, link);
}

/* Those that still have something to look at, up to LOOK_PROBES. */
static void
look_take(struct core *core, struct look *look)
{
    struct probe *probe;

    look->served_count = 0;
    while (
        look->served_count < LOOK_PROBES && (probe = look_pop(look)) != NULL) {
        if (deadlock_stands(core, probe)) {
            list_push_back(&look->served, &probe->link);
            look->served_count++;
        } else {
            slab_free(&core->probes, probe);
        }
    }
}

static void
look_send(struct core *core, struct look *look)
{
    look_take(core, look);
    if (list_empty(&look->served)) {
        look_go_on(core, look);
        return;
    }
    struct op *op = op_create(
        core, OP_INSPECT, look->lock, slab_handle(&core->looks, look));
    if (op == NULL) {
        drop_probes(core, &look->served);
        for (unsigned i = 0; i < PURPOSES; i++)
            drop_probes(core, &look->probes[i]);
        look->probe_count = 0;
        look_end(core, look);
        return;
    }
    op->reader = READER_DEADLOCK;
    op->limit = LOOK_TICKETS;
    op->deadline_us = core->now_us + core->settings.command_timeout_us;
    look->under_way = true;
    looks_pay(core, LOOK_US);
    count(core->counters, COUNTER_deadlock_looks);
    if (look->due_us < core->now_us)
        count(core->counters, COUNTER_deadlock_looks_late);
    op_submit(core, op);
}

/* The next one: those that few probes wait for and those that many do take
 * turns, or who has found a lock that nobody else asks after would wait for all
 * who have not. NULL: there is none. */
static struct look *
looks_next(struct core *core)
{
    struct list *link = NULL;

    for (unsigned i = 0; i < 2 && link == NULL; i++) {
        core->looks_turn = !core->looks_turn;
        link = list_pop_front(&core->looks_due[core->looks_turn]);
    }
    return link != NULL ? container_of(link, struct look, due_link) : NULL;
}

void
looks_send(struct core *core)
{
    struct look *look;

    while (core->looks_paid_us <= core->now_us + BURST_US) {
        if ((look = looks_next(core)) == NULL)
            return;
        look_send(core, look);
    }
    if (!list_empty(&core->looks_due[0]) || !list_empty(&core->looks_due[1]))
        wheel_add(
            &core->wheel, &core->looks_timer, core->looks_paid_us - BURST_US);
}

void
looks_timer(struct core *core, struct wheel_node *node)
{
    look_go_on(core, container_of(node, struct look, timer));
}

/* What the step had no room for is first in the next reading. */
static void
look_return(struct look *look)
{
    while (!list_empty(&look->served)) {
        struct list *link = look->served.prev;
        const struct probe *probe = container_of(link, struct probe, link);
        list_remove(link);
        list_push_front(&look->probes[probe_purpose(probe)], link);
        look->probe_count++;
    }
}

void
looks_done(struct core *core, const struct op *op)
{
    struct look *look = slab_get(&core->looks, op->owner);
    uint64_t rest_us = (uint64_t)op->result.ticket_count * REST_TICKET_US;

    require(look != NULL && look->under_way);
    looks_pay(core, (uint64_t)op->result.ticket_count * LOOK_TICKET_US);
    if (op->result.status == OP_OK)
        deadlock_read(core, &look->served, &op->result);
    else
        drop_probes(core, &look->served);
    look->under_way = false;
    look_return(look);
    if (rest_us >= REST_LEAST_US)
        wheel_add(&core->wheel, &look->timer, core->now_us + rest_us);
    else
        look_go_on(core, look);
}

void
looks_check(const struct core *core)
{
    uint32_t locks = 0;

    for (uint32_t i = 0; i < core->looks.touched; i++) {
        const struct look *look = slab_at(&core->looks, i);
        if (look == NULL)
            continue;
        require(look->lock->look == look && look->lock->refs > 0);
        require(look->under_way + wheel_node_set(&look->timer) +
                    !list_empty(&look->due_link) ==
                1);
        require(list_empty(&look->served) || look->under_way);
        uint32_t probes = 0;
        for (unsigned k = 0; k < PURPOSES; k++)
            LIST_EACH (link, &look->probes[k])
                probes++;
        require(probes == look->probe_count);
    }
    require(
        (list_empty(&core->looks_due[0]) && list_empty(&core->looks_due[1])) ||
        wheel_node_set(&core->looks_timer));
    for (uint32_t i = 0; i < core->locks.touched; i++) {
        const struct lock *lock = slab_at(&core->locks, i);
        locks += lock != NULL && lock->look != NULL;
    }
    require(locks == core->looks.used);
}

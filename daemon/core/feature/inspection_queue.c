/*
 * Probes that wait for the reading of a record, and the room that searches for
 * deadlocks have.
 *
 * A probe without room is dropped, and counted. A later search finds the cycle
 * instead. A lock has a share of what is left of the room, or a few that many
 * wait for would leave none to others. Of its share searches that begin at the
 * lock have half, and they take turns with those that have come from another
 * lock. A probe that verifies a cycle always has room, and comes first.
 */
#include "daemon/core/feature/deadlock.h"

#include "daemon/core/model/lock.h"

#include "daemon/base/assert.h"

/* Of the time that passes, one part in so many is for readings. */
#define PART 10

/* So many are few, and cost little. */
#define FEW 4
/* A lock has room for that many, or for such a share of what is left. */
#define LOCK_PROBES (2 * INSPECTION_PROBES)
#define LOCK_SHARE  16

#define PROBES_MAX 4096
static const uint32_t room[] = {
    [PROBE_FOLLOWS] = PROBES_MAX / 2,
    [PROBE_BEGINS] = PROBES_MAX / 4 * 3,
    [PROBE_VERIFIES] = PROBES_MAX,
};
/* Each has a probe, of its next reading or of this one, or rests. */
#define INSPECTIONS_MAX (2 * PROBES_MAX)

bool
inspections_init(struct core *core)
{
    list_init(&core->inspections_due[0]);
    list_init(&core->inspections_due[1]);
    wheel_node_init(&core->inspections_timer, TIMER_INSPECTIONS);
    return slab_init(&core->probes, sizeof(struct probe), PROBES_MAX) &&
           slab_init(
               &core->inspections, sizeof(struct inspection), INSPECTIONS_MAX);
}

void
inspections_fini(struct core *core)
{
    slab_fini(&core->inspections);
    slab_fini(&core->probes);
}

static struct inspection *
inspection_create(struct core *core, struct lock *lock)
{
    struct inspection *inspection = slab_alloc(&core->inspections);

    require(lock->inspection == NULL);
    if (inspection == NULL)
        return NULL;
    lock_ref(lock);
    inspection->lock = lock;
    lock->inspection = inspection;
    for (unsigned i = 0; i < PURPOSES; i++)
        list_init(&inspection->probes[i]);
    list_init(&inspection->served);
    list_init(&inspection->due_link);
    wheel_node_init(&inspection->timer, TIMER_INSPECTION);
    return inspection;
}

void
inspection_end(struct core *core, struct inspection *inspection)
{
    struct lock *lock = inspection->lock;

    require(!inspection->under_way && !wheel_node_set(&inspection->timer));
    require(inspection->probe_count == 0 && list_empty(&inspection->served));
    lock->inspection = NULL;
    slab_free(&core->inspections, inspection);
    lock_unref(core, lock);
}

void
inspection_go_on(struct core *core, struct inspection *inspection)
{
    require(inspection->lock->inspection == inspection);
    if (inspection->under_way || wheel_node_set(&inspection->timer) ||
        !list_empty(&inspection->due_link))
        return;
    if (inspection->probe_count == 0) {
        inspection_end(core, inspection);
        return;
    }
    inspection->due_us = core->now_us;
    bool many = inspection->served_count > FEW || inspection->probe_count > FEW;
    list_push_back(&core->inspections_due[many], &inspection->due_link);
}

/* Probes that it keeps. */
static uint32_t
inspection_load(const struct inspection *inspection)
{
    require(inspection->served_count <= INSPECTION_PROBES);
    return inspection->probe_count +
           (inspection->under_way ? inspection->served_count : 0);
}

/* How many of them a lock may have. */
static uint32_t
lock_room(const struct core *core, enum probe_purpose purpose)
{
    uint32_t most = room[PROBE_FOLLOWS];
    uint32_t used = core->probes.used;
    uint32_t share = used < most ? (most - used) / LOCK_SHARE + 1 : 1;

    require(purpose < PURPOSES);
    if (share > LOCK_PROBES)
        share = LOCK_PROBES;
    return purpose == PROBE_BEGINS ? (share + 1) / 2 : share;
}

struct probe *
probe_create(
    struct core *core, enum probe_purpose purpose, const struct lock *lock)
{
    struct probe *probe = NULL;

    require(purpose < PURPOSES);
    if (core->probes.used < room[purpose] &&
        (purpose == PROBE_VERIFIES || lock->inspection == NULL ||
            inspection_load(lock->inspection) < lock_room(core, purpose)))
        probe = slab_alloc(&core->probes);
    if (probe != NULL)
        list_init(&probe->link);
    else
        count(core->counters, COUNTER_deadlock_drops);
    return probe;
}

enum probe_purpose
probe_purpose(const struct probe *probe)
{
    require(probe->kind == 'V' || probe->kind == 'D');
    if (probe->kind == 'V')
        return PROBE_VERIFIES;
    return probe->count > 0 ? PROBE_FOLLOWS : PROBE_BEGINS;
}

void
inspection_ask(struct core *core, struct probe *probe, struct lock *lock)
{
    struct inspection *inspection = lock->inspection != NULL
                                        ? lock->inspection
                                        : inspection_create(core, lock);

    require(list_empty(&probe->link) && probe->count <= PROBE_NODES);
    if (inspection == NULL) {
        count(core->counters, COUNTER_deadlock_drops);
        slab_free(&core->probes, probe);
        return;
    }
    list_push_back(&inspection->probes[probe_purpose(probe)], &probe->link);
    inspection->probe_count++;
    require(inspection->probe_count <= core->probes.used);
    inspection_go_on(core, inspection);
}

void
inspections_pay(struct core *core, uint64_t cost_us)
{
    if (core->inspections_paid_us < core->now_us)
        core->inspections_paid_us = core->now_us;
    core->inspections_paid_us += PART * cost_us;
}

void
drop_probes(struct core *core, struct list *probes)
{
    struct list *link;

    while ((link = list_pop_front(probes)) != NULL) {
        count(core->counters, COUNTER_deadlock_drops);
        slab_free(&core->probes, container_of(link, struct probe, link));
    }
}

/*
 * Probes that wait for the reading of a record, and the room that searches for
 * deadlocks have.
 *
 * What finds no room is dropped, and counted: later searches find what this one
 * does not. A lock has a share of what is left of the room, or a few that many
 * wait for would leave none to others. Of its share searches that begin at the
 * lock have half, and they take turns with those that have come from another
 * lock. What verifies a cycle has room always, and comes first.
 */
#include "daemon/core/feature/look_queue.h"

#include "daemon/core/feature/probe.h"
#include "daemon/core/model/lock.h"

#include "daemon/base/assert.h"

/* Of the time that passes, one part in so many is for readings. */
#define PART 10

/* So many are few, and cost little. */
#define FEW 4
/* A lock has room for that many, or for such a share of what is left. */
#define LOCK_PROBES (2 * LOOK_PROBES)
#define LOCK_SHARE  16

#define PROBES_MAX 4096
static const uint32_t room[] = {
    [PROBE_FOLLOWS] = PROBES_MAX / 2,
    [PROBE_BEGINS] = PROBES_MAX / 4 * 3,
    [PROBE_VERIFIES] = PROBES_MAX,
};
/* Each has a probe, of its next reading or of this one, or rests. */
#define LOOKS_MAX (2 * PROBES_MAX)

bool
looks_init(struct core *core)
{
    list_init(&core->looks_due[0]);
    list_init(&core->looks_due[1]);
    wheel_node_init(&core->looks_timer, TIMER_LOOKS);
    return slab_init(&core->probes, sizeof(struct probe), PROBES_MAX) &&
           slab_init(&core->looks, sizeof(struct look), LOOKS_MAX);
}

void
looks_fini(struct core *core)
{
    slab_fini(&core->looks);
    slab_fini(&core->probes);
}

static struct look *
look_create(struct core *core, struct lock *lock)
{
    struct look *look = slab_alloc(&core->looks);

    if (look == NULL)
        return NULL;
    lock_ref(lock);
    look->lock = lock;
    lock->look = look;
    for (unsigned i = 0; i < PURPOSES; i++)
        list_init(&look->probes[i]);
    list_init(&look->served);
    list_init(&look->due_link);
    wheel_node_init(&look->timer, TIMER_LOOK);
    return look;
}

void
look_end(struct core *core, struct look *look)
{
    struct lock *lock = look->lock;

    require(!look->under_way && !wheel_node_set(&look->timer));
    require(look->probe_count == 0 && list_empty(&look->served));
    lock->look = NULL;
    slab_free(&core->looks, look);
    lock_unref(core, lock);
}

void
look_go_on(struct core *core, struct look *look)
{
    if (look->under_way || wheel_node_set(&look->timer) ||
        !list_empty(&look->due_link))
        return;
    if (look->probe_count == 0) {
        look_end(core, look);
        return;
    }
    look->due_us = core->now_us;
    bool many = look->served_count > FEW || look->probe_count > FEW;
    list_push_back(&core->looks_due[many], &look->due_link);
}

/* Probes that it keeps. */
static uint32_t
look_load(const struct look *look)
{
    return look->probe_count + (look->under_way ? look->served_count : 0);
}

/* How many of them a lock may have. */
static uint32_t
lock_room(const struct core *core, enum probe_purpose purpose)
{
    uint32_t most = room[PROBE_FOLLOWS];
    uint32_t used = core->probes.used;
    uint32_t share = used < most ? (most - used) / LOCK_SHARE + 1 : 1;

    if (share > LOCK_PROBES)
        share = LOCK_PROBES;
    return purpose == PROBE_BEGINS ? (share + 1) / 2 : share;
}

struct probe *
probe_create(
    struct core *core, enum probe_purpose purpose, const struct lock *lock)
{
    struct probe *probe = NULL;

    if (core->probes.used < room[purpose] &&
        (purpose == PROBE_VERIFIES || lock->look == NULL ||
            look_load(lock->look) < lock_room(core, purpose)))
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
    if (probe->kind == 'V')
        return PROBE_VERIFIES;
    return probe->count > 0 ? PROBE_FOLLOWS : PROBE_BEGINS;
}

void
look_ask(struct core *core, struct probe *probe, struct lock *lock)
{
    struct look *look =
        lock->look != NULL ? lock->look : look_create(core, lock);

    if (look == NULL) {
        count(core->counters, COUNTER_deadlock_drops);
        slab_free(&core->probes, probe);
        return;
    }
    list_push_back(&look->probes[probe_purpose(probe)], &probe->link);
    look->probe_count++;
    look_go_on(core, look);
}

void
looks_pay(struct core *core, uint64_t cost_us)
{
    if (core->looks_paid_us < core->now_us)
        core->looks_paid_us = core->now_us;
    core->looks_paid_us += PART * cost_us;
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

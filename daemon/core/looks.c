/*
 * Looks: readings of records for the search for circles, few enough that Redis
 * has time for all else.
 *
 * All probes that come to a lock while its record is being read, or is not to
 * be read just now, share the next reading: it is made after all of them have
 * come, as the second round must not see what was before the first one's end.
 * A record of many tickets is read the more rarely, and all readings together
 * take no more than a part of Redis' time; what that puts off is counted.
 */
#include "daemon/core/deadlock.h"

#include "daemon/base/assert.h"

/* What a reading costs Redis, about. */
#define LOOK_US        30
#define LOOK_TICKET_US 2
/* Of the time that passes, one part in so many is for readings; as much as that
 * makes in BURST_US may have been saved up. */
#define PART     10
#define BURST_US 100000
/* So long it is not read again, for each ticket; with few of them, it is. */
#define REST_TICKET_US 100
#define REST_LEAST_US  2000
/* Served by one reading, so that no step is long; others are by the next. */
#define LOOK_PROBES 64

/* Probes on their way within this broker; others are dropped, and later
 * searches find what these do not. */
#define PROBES_MAX 4096
/* Each has a probe at least, or rests for a moment. */
#define LOOKS_MAX (2 * PROBES_MAX)

struct look {
    struct slab_node node;
    struct lock *lock;       /* ref, counted */
    struct list probes;      /* for the next reading */
    struct list served;      /* for the one that is under way */
    struct list due_link;    /* core->looks_due */
    struct wheel_node timer; /* it rests until then */
    bool under_way;
    uint64_t due_us; /* since when it could have been made */
};

bool
looks_init(struct core *core)
{
    list_init(&core->looks_due);
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
    list_init(&look->probes);
    list_init(&look->served);
    list_init(&look->due_link);
    wheel_node_init(&look->timer, TIMER_LOOK);
    return look;
}

static void
look_end(struct core *core, struct look *look)
{
    struct lock *lock = look->lock;

    require(!look->under_way && !wheel_node_set(&look->timer));
    require(list_empty(&look->probes) && list_empty(&look->served));
    lock->look = NULL;
    slab_free(&core->looks, look);
    lock_unref(core, lock);
}

/* Where it is wanted and nothing hinders: when the step ends, or when there is
 * time for it. */
static void
look_is_due(struct core *core, struct look *look)
{
    if (look->under_way || wheel_node_set(&look->timer) ||
        !list_empty(&look->due_link))
        return;
    if (list_empty(&look->probes)) {
        look_end(core, look);
        return;
    }
    look->due_us = core->now_us;
    list_push_back(&core->looks_due, &look->due_link);
}

/* Reads the lock's record for the probe, and calls deadlock_read() with both;
 * the probe is given away. */
void
look_ask(struct core *core, struct probe *probe, struct lock *lock)
{
    struct look *look =
        lock->look != NULL ? lock->look : look_create(core, lock);

    if (look == NULL) {
        slab_free(&core->probes, probe);
        return;
    }
    list_push_back(&look->probes, &probe->link);
    look_is_due(core, look);
}

/* Of Redis' time that much has been taken. */
static void
looks_pay(struct core *core, uint64_t cost_us)
{
    if (core->looks_paid_us < core->now_us)
        core->looks_paid_us = core->now_us;
    core->looks_paid_us += PART * cost_us;
}

static void
drop_probes(struct core *core, struct list *probes)
{
    struct list *link;

    while ((link = list_pop_front(probes)) != NULL)
        slab_free(&core->probes, container_of(link, struct probe, link));
}

/* Those that still have something to look at, up to LOOK_PROBES. */
static void
look_take(struct core *core, struct look *look)
{
    struct list *link;
    uint32_t taken = 0;

    while (
        taken < LOOK_PROBES && (link = list_pop_front(&look->probes)) != NULL) {
        struct probe *probe = container_of(link, struct probe, link);
        if (deadlock_stands(core, probe)) {
            list_push_back(&look->served, link);
            taken++;
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
        look_is_due(core, look);
        return;
    }
    struct op *op = op_create(
        core, OP_INSPECT, look->lock, slab_handle(&core->looks, look));
    if (op == NULL) {
        drop_probes(core, &look->served);
        drop_probes(core, &look->probes);
        look_end(core, look);
        return;
    }
    op->reader = READER_DEADLOCK;
    op->limit = LOOK_TICKETS;
    op->give_up_us = core->now_us + core->settings.command_timeout_us;
    look->under_way = true;
    looks_pay(core, LOOK_US);
    count(core->counters, COUNTER_deadlock_looks);
    if (look->due_us < core->now_us)
        count(core->counters, COUNTER_deadlock_looks_late);
    op_submit(core, op);
}

/* At the end of a step: those that there is time for, in turn. */
void
looks_send(struct core *core)
{
    while (!list_empty(&core->looks_due)) {
        if (core->looks_paid_us > core->now_us + BURST_US) {
            wheel_add(&core->wheel, &core->looks_timer,
                core->looks_paid_us - BURST_US);
            return;
        }
        look_send(core, container_of(list_pop_front(&core->looks_due),
                            struct look, due_link));
    }
}

/* The lock has rested. */
void
looks_timer(struct core *core, struct wheel_node *node)
{
    look_is_due(core, container_of(node, struct look, timer));
}

/* A record was read, or could not be. */
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
    list_splice_back(&look->served, &look->probes);
    list_splice_back(&look->probes, &look->served);
    if (rest_us >= REST_LEAST_US)
        wheel_add(&core->wheel, &look->timer, core->now_us + rest_us);
    else
        look_is_due(core, look);
}

/* Each has one thing to wait for. */
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
    }
    require(list_empty(&core->looks_due) || wheel_node_set(&core->looks_timer));
    for (uint32_t i = 0; i < core->locks.touched; i++) {
        const struct lock *lock = slab_at(&core->locks, i);
        locks += lock != NULL && lock->look != NULL;
    }
    require(locks == core->looks.used);
}

/*
 * Looks: readings of records for the search for circles, few enough that Redis
 * has time for all else, and the room that searches have.
 *
 * All probes that come to a lock while its record is being read, or is not to
 * be read just now, share the next reading: it is made after all of them have
 * come, as the second round must not see what was before the first one's end.
 * A record of many tickets is read the more rarely, and readings and messages
 * together take no more than a part of Redis' time; readings that are put off
 * for that are counted.
 *
 * What finds no room is dropped, and counted: later searches find what this one
 * does not. A lock has a share of what is left of the room, or a few that many
 * wait for would leave none to others. Of its share searches that begin at the
 * lock have half, and they take turns with those that have come from another
 * lock. What verifies a circle has room always, and comes first.
 *
 * See DESIGN.md D6.3.
 */
#include "daemon/core/deadlock.h"

#include "daemon/base/assert.h"

/* What a reading costs Redis, about. */
#define LOOK_US        30
#define LOOK_TICKET_US 2
/* Of the time that passes, one part in so many is for them; as much as that
 * makes in BURST_US may have been saved up. */
#define PART     10
#define BURST_US 50000
/* So long it is not read again, for each ticket; with few of them, it is. */
#define REST_TICKET_US 100
#define REST_LEAST_US  2000
/* Served by one reading, so that no step is long; others are by the next. */
#define LOOK_PROBES 64

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

struct look {
    struct slab_node node;
    struct lock *lock;            /* ref, counted */
    struct list probes[PURPOSES]; /* for the next reading */
    enum probe_purpose turn;      /* whose was the last one */
    uint32_t probe_count;         /* that wait for the next one */
    uint32_t served_count;        /* by this one, or the last one */
    struct list served;           /* for the one that is under way */
    struct list due_link;         /* core->looks_due */
    struct wheel_node timer;      /* it rests until then */
    bool under_way;
    uint64_t due_us; /* since when it could have been made */
};

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

static void
look_end(struct core *core, struct look *look)
{
    struct lock *lock = look->lock;

    require(!look->under_way && !wheel_node_set(&look->timer));
    require(look->probe_count == 0 && list_empty(&look->served));
    lock->look = NULL;
    slab_free(&core->looks, look);
    lock_unref(core, lock);
}

/* Where nothing hinders, it is made when the step ends or there is time for it;
 * or it ends, if nobody wants it any more. */
static void
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

/* To look at that lock, or to verify; NULL: there is no room for that. */
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

static enum probe_purpose
probe_purpose(const struct probe *probe)
{
    if (probe->kind == 'V')
        return PROBE_VERIFIES;
    return probe->count > 0 ? PROBE_FOLLOWS : PROBE_BEGINS;
}

/* Reads the lock's record for the probe, and calls deadlock_read() with both;
 * the probe is given away. */
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

/* Of Redis' time that much has been taken. */
void
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

    while ((link = list_pop_front(probes)) != NULL) {
        count(core->counters, COUNTER_deadlock_drops);
        slab_free(&core->probes, container_of(link, struct probe, link));
    }
}

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
    op->give_up_us = core->now_us + core->settings.command_timeout_us;
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

/* At the end of a step: those that there is time for. */
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

/* The lock has rested. */
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
    look_return(look);
    if (rest_us >= REST_LEAST_US)
        wheel_add(&core->wheel, &look->timer, core->now_us + rest_us);
    else
        look_go_on(core, look);
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

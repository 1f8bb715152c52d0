/*
 * Drills of detached holds (PROTOCOL.md, 3.4), and of AWAIT and WANTED.
 */
#include "tests/sim/drill.h"

#include "daemon/base/assert.h"
#include "tests/sim/broker.h"

#include <inttypes.h>

/* --- a detached hold, whose broker dies ----------------------------------- */

/* `another` takes it, and its broker dies. The heir prolongs it and gives it
 * back at another one. */
bool
handed_begin(struct fleet *fleet)
{
    return drill_choose_apart(fleet);
}

void
handed_acts(struct fleet *fleet)
{
    struct drill *drill = &fleet->drill;

    drill->stage = DRILL_STAYS;
    drill_ask_detached(drill, drill->another);
}

static void
handed_dies(void *arg, uint64_t data)
{
    struct fleet *fleet = arg;
    struct drill *drill = drill_at(fleet, data, DRILL_STAYS);

    if (drill == NULL)
        return;
    broker_kill(fleet->world, drill->broker);
    if (!detached_prolong(
            drill->heir->client, drill->lock, drill->fence, drill->lease_ms))
        drill_failed(drill->heir->client);
    else
        drill_ask(drill, drill->heir, TASK_DRILL_WAITS, CLIENT_NO_WAIT);
}

/* The client still reads: the lines behind its OK come before the reset. */
void
drill_detached(struct task *task, uint64_t fence)
{
    struct fleet *fleet = task->client->fleet;
    struct drill *drill = &fleet->drill;

    if (drill->stage != DRILL_STAYS || drill->kind != DRILL_HANDED ||
        task != drill->another)
        return;
    drill->fence = fence;
    drill->another = NULL;
    task->purpose = TASK_DRILL_OVER;
    fleet->left[drill->lock] = true;
    drill_quiet(fleet, 2 * DRILL_REJOIN_US);
    drill->serial++;
    drill_event(fleet, 0, handed_dies);
}

/* It has outlived its broker by more than a lease. */
static void
handed_over(void *arg, uint64_t data)
{
    struct fleet *fleet = arg;
    struct drill *drill = drill_at(fleet, data, DRILL_STAYS);

    if (drill == NULL)
        return;
    drill_frees(fleet, drill_prompt_us(fleet->world));
    if (!detached_give_back(drill->heir->client, drill->lock, drill->fence))
        drill_failed(drill->heir->client);
}

void
handed_queued(struct fleet *fleet, const struct task *task)
{
    struct drill *drill = &fleet->drill;

    if (task != drill->heir || drill->stage != DRILL_STAYS)
        return;
    drill->serial++;
    drill_event(fleet, drill_lease_us(fleet->world) * 3 / 2, handed_over);
}

/* --- AWAIT and WANTED ----------------------------------------------------- */

bool
roused_begin(struct fleet *fleet)
{
    /* Else brokers would look by themselves as well. */
    if (fleet->world->now_us < fleet->true_deaf ||
        told_bound_us(fleet) > drill_lease_us(fleet->world) / 5)
        return false;
    return drill_choose_two(fleet);
}

static bool
roused_is_late(struct fleet *fleet, bool late, const char *what)
{
    const struct drill *drill = &fleet->drill;

    if (late && !drill_is_resent(fleet))
        check_broken(fleet->world->check, PROMISE_WATCH, drill->true_from,
            "lock-%" PRIu32 ": %s, %" PRIu64 " us after that was so",
            drill->lock, what, fleet->world->now_us - drill->true_from);
    return late;
}

static void
roused_awaits(void *arg, uint64_t data)
{
    struct fleet *fleet = arg;
    struct drill *drill = drill_at(fleet, data, DRILL_STAYS);

    if (drill == NULL)
        return;
    uint32_t left = 0;
    for (uint32_t i = 0; i < fleet->count; i++)
        left += awaits_of(&fleet->clients[i], drill->lock);
    (void)roused_is_late(fleet, left > 0, "it is free, and an AWAIT goes on");
    drill_end(fleet);
}

static void
roused_wanted(void *arg, uint64_t data)
{
    struct fleet *fleet = arg;
    struct drill *drill = drill_at(fleet, data, DRILL_STAYS);

    if (drill == NULL)
        return;
    if (roused_is_late(fleet, drill->holder->wanted == 0,
            "somebody waits, and its holder has not heard of it"))
        drill_end(fleet);
    else
        drill_gives(fleet, drill_prompt_us(fleet->world));
}

void
drill_awaits(struct fleet *fleet)
{
    for (uint32_t i = 0; i < fleet->count; i++) {
        struct client *client = &fleet->clients[i];
        if (!machine_runs(client->machine) || client->draining ||
            await_send(client, fleet->drill.lock, CLIENT_NO_WAIT) == NULL)
            continue;
        wire_flush(client);
    }
}

/* The heir waits. Some clients await the lock. */
void
roused_acts(struct fleet *fleet)
{
    struct drill *drill = &fleet->drill;

    drill_awaits(fleet);
    drill->stage = DRILL_STAYS;
    drill->serial++;
    drill->true_from = fleet->world->now_us;
    drill_event(fleet, told_bound_us(fleet), roused_wanted);
}

void
roused_granted(struct fleet *fleet, struct task *task)
{
    struct drill *drill = &fleet->drill;

    if (task != drill->heir || drill->stage != DRILL_FREES) {
        drill_failed(task->client);
        return;
    }
    drill->heir = NULL;
    drill->stage = DRILL_STAYS;
    drill->serial++;
    drill->true_from = fleet->world->now_us;
    drill_event(fleet, told_bound_us(fleet), roused_awaits);
    drill_release(task, TASK_DRILL_OVER);
}

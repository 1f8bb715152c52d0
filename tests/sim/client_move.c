/*
 * Sessions that move (PROTOCOL.md, profile C). The next connection resumes the
 * session, claims each hold, and puts each LOCK again that had no answer. It
 * goes on believing in its holds until their deadlines.
 */
#include "tests/sim/drill.h"

#include "daemon/base/assert.h"
#include "tests/sim/server.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

bool
client_keeps(const struct client *client)
{
    return client->keep_ms > 0 && client->session[0] != '\0' &&
           !client->finishing && !client->dismissed;
}

/* --- the connection has ended --------------------------------------------- */

/* A LOCK without an answer is put again, unless it was called off. */
static bool
asks_again(const struct task *task)
{
    const struct task *leader = task->leader != NULL ? task->leader : task;
    const struct client *client = task->client;
    const struct request *asking =
        &client->requests[leader->asking & (CLIENT_REQUESTS - 1)];
    bool cancelled = asking->serial == leader->asking && asking->cancelled;

    return task->state == TASK_ASKING && leader->asking != ASKING_NONE &&
           !cancelled && task->wish.wait_ms != 0;
}

/*
 * The broker has seen the connection stand when it answered what was sent at
 * proven_us. It may have seen the end of it any time after, and keeps what was
 * held for so long.
 */
static void
task_leaves_broker(struct task *task)
{
    const struct client *client = task->client;
    uint64_t end_us = client->proven_us + (uint64_t)client->keep_ms * 990;

    if (task->here && task->deadline_us > end_us)
        deadline_move(task, end_us);
    task->here = false;
}

static void
task_cut(struct task *task, bool again)
{
    task_leaves_broker(task);
    task->claims = false;
    task->outstanding = 0;
    task->locks = 0;
    task->unlocks = 0;
    if (task->renews > 0)
        task->renewed = true;
    task->renews = 0;
    task->vague = task->vague || task->parts > 0;
    task->parts = 0;
    if (task->state == TASK_IDLE)
        return;
    task_leaves(task);
    if (task->count > 0)
        return;
    if (again) {
        task->timer++;
        return;
    }
    belief_break(task);
    task->state = TASK_IDLE;
    task->timer++;
    task_nest_ends(task);
}

void
client_cut(struct client *client)
{
    bool again[CLIENT_TASKS] = {false};

    for (uint32_t i = 0; i < client->task_count; i++)
        again[i] = asks_again(&client->tasks[i]);
    for (uint32_t i = 0; i < client->task_count; i++)
        task_cut(&client->tasks[i], again[i]);
}

/* --- another connection --------------------------------------------------- */

void
client_hello(struct client *client)
{
    struct world *world = client->world;
    bool resumes = client->moved;
    struct request *request;
    char text[48];

    if (!resumes)
        client->generation = 0;
    else if (client->generation == 0)
        client->generation = 1; /* that of a connection that said nothing */
    client->generation++;
    if (!resumes && client->keep_ms == 0 && !world_odds(world, 2))
        return;
    request = wire_begin(client, VERB_HELLO, NULL);
    if (request == NULL)
        return;
    snprintf(text, sizeof(text), "name=%s", client->machine->name);
    wire_word(client, text);
    if (!client->fleet->winding && world_odds(world, 2))
        wire_pair(client, "heartbeat", 500 + world_below(world, 8000));
    request->keep_ms = client->keep_ms;
    if (client->keep_ms > 0)
        wire_pair(client, "keep", client->keep_ms);
    if (resumes) {
        snprintf(text, sizeof(text), "resume=%s", client->session);
        wire_word(client, text);
        wire_pair(client, "gen", client->generation);
        request->generation = client->generation;
        check_deed(world->check, DEED_RESUME);
    }
    wire_end(client);
}

/* Holds are claimed, and requests are sent again. */
void
client_resume(struct client *client)
{
    for (uint32_t i = 0; i < client->task_count; i++) {
        struct task *task = &client->tasks[i];
        if (task->count > 0 && !task_claim(task))
            task_wake(task, 10000);
    }
    for (uint32_t i = 0; i < client->task_count; i++) {
        struct task *task = &client->tasks[i];
        if (task->count > 0)
            continue;
        if (task->state == TASK_ASKING && task->leader == NULL) {
            if (!task_send_wish(task, true))
                task_wake(task, 10000);
        } else if (task->state != TASK_ASKING) {
            task_think(task);
        }
    }
}

void
hello_answered(struct client *client, const struct request *request,
    const char *session, uint64_t keep_ms, uint64_t generation)
{
    bool same = strcmp(client->session, session) == 0;

    if (!same ||
        (request->generation > 1 && generation != request->generation) ||
        (request->keep_ms > 0 && keep_ms != request->keep_ms))
        check_broken(client->world->check, PROMISE_ANSWERED,
            request->true_sent_us,
            "%s: HELLO is answered with session %s, gen %" PRIu64
            " and keep %" PRIu64,
            client->machine->name, session, generation, keep_ms);
}

static void
move_on(void *arg, uint64_t data)
{
    struct client *client = arg;

    if (data != client->life || client->link != LINK_OPEN || client->finishing)
        return;
    if (client->machine->stopped_until > client->world->now_us) {
        world_at(client->world, client->machine->stopped_until, move_on, client,
            data);
        return;
    }
    client->avoid = client->broker;
    client_hang_up(client, true);
}

/* A quarter of the clients stays for the broker's grace. The broker keeps the
 * session's places and holds for so long. So no client stays for longer than a
 * lease once each lock must be free in time. */
void
client_moves_on(struct client *client)
{
    struct world *world = client->world;
    const struct plan *plan = &world->plan;
    bool must = client->fleet->winding && plan->stop_grace_ms > plan->lease_ms;

    if (!client_keeps(client) || (!must && world_odds(world, 4)))
        return;
    world_at(world, world->now_us + world_below(world, 1500000), move_on,
        client, client->life);
}

/* --- claims --------------------------------------------------------------- */

bool
task_claim(struct task *task)
{
    struct client *client = task->client;

    if (task->claims || task->here || task->count == 0)
        return false;
    struct request *request = wire_begin(client, VERB_CLAIM, task);
    if (request == NULL)
        return false;
    request->fence = task->fence;
    wire_pair(client, "fence", task->fence);
    task->wanted = 0; /* it is told anew */
    task->wanted_seen = check_wanted_from(client->world->check, task->lock);
    if (task->wish.wanted)
        wire_pair(client, "wanted", 1);
    if (task->upgrade)
        wire_pair(client, "upgrade", 1);
    if (task->count > 1 || world_odds(client->world, 2))
        wire_pair(client, "count", task->count);
    wire_end(client);
    task->outstanding++;
    task->claims = true;
    return true;
}

/* By a clock of Redis that is doubted, a lease= that is claimed ends no later
 * than a lease from then (guarantees.md, "Clocks"). */
static void
claim_puts_off(struct task *task, const struct answer *a)
{
    uint64_t lease_ms = task->client->world->plan.lease_ms;
    uint64_t left_ms = a->ttl_ms < lease_ms ? a->ttl_ms : lease_ms;
    uint64_t over_us = machine_boot_us(task->client->machine) + left_ms * 1010;

    if (task->over_us < over_us)
        task->over_us = over_us;
}

static void
claim_ok(
    struct task *task, const struct request *request, const struct answer *a)
{
    if (!a->has_fence || !a->has_ttl || !a->has_count ||
        a->fence != task->fence || a->count != task->count)
        task_odd(task, PROMISE_ANSWERED, request, a, "it claimed another one");
    check_deed(task->client->world->check, DEED_CLAIM);
    task->here = true;
    task->loose = true;
    task->cap_us = UINT64_MAX;
    task->true_stood = request->true_sent_us;
    /* Redis may have forgotten that a lease= was put off: where another server
     * is the master each has a lease from then on. */
    if (servers_changed_us(task->client->world) >= task->true_asked)
        task->renewed = true;
    claim_puts_off(task, a);
    deadline_set(task, request->sent_us, a->ttl_ms);
    if (task->state == TASK_CONFIRMING)
        task_confirm(task);
}

/* An unknown hold is claimed again, as long as it is worth it. */
static void
claim_again(struct task *task, const struct answer *a)
{
    struct client *client = task->client;
    bool going = strcmp(a->code, "DRAINING") == 0;

    if (machine_boot_us(client->machine) >= task->deadline_us &&
        world_odds(client->world, 2)) {
        task_gone(task);
        return;
    }
    if (going)
        client_moves_on(client);
    else if (task->state != TASK_HOLDING)
        task_wake(task, 50000);
}

void
claim_answered(
    struct task *task, const struct request *request, const struct answer *a)
{
    task->claims = false;
    if (task->count == 0)
        return; /* LOST has come first */
    if (a->code == NULL)
        claim_ok(task, request, a);
    else if (strcmp(a->code, "LOST") == 0)
        task_gone(task);
    else
        claim_again(task, a);
    if (a->code == NULL || strcmp(a->code, "LOST") == 0)
        drill_claimed(task, a->code == NULL);
}

void
send_unclaimed(struct client *client)
{
    if (client->generation < 2 || wire_begin(client, VERB_CLAIM, NULL) == NULL)
        return;
    wire_lock(client,
        (uint32_t)world_below(client->world, client->world->plan.locks));
    wire_owner(client, OWNERS + 1);
    wire_pair(client, "fence", 1);
    wire_end(client);
}

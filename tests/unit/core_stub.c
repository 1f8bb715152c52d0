/*
 * A stub of Redis before several cores. See core_stub.h.
 */
#include "tests/unit/core_stub.h"
#include "daemon/op/op.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define AGAIN_MS 36000000u
#define STEP_MS  5 /* while there is nothing to answer */

struct stub *
stub_new(unsigned cores)
{
    struct stub *stub = calloc(1, sizeof(*stub));

    rig_must(stub != NULL && cores <= STUB_CORES);
    for (; stub->cores < cores; stub->cores++) {
        struct rig *rig = rig_create();
        snprintf(rig->settings.broker_id, sizeof(rig->settings.broker_id),
            "broker-%u", stub->cores);
        rig_start(rig);
        stub->rigs[stub->cores] = rig;
    }
    return stub;
}

void
stub_free(struct stub *stub)
{
    for (unsigned core = 0; core < stub->cores; core++)
        rig_free(stub->rigs[core]);
    free(stub);
}

struct at
stub_open(struct stub *stub, unsigned core)
{
    return (struct at){core, rig_open(stub->rigs[core])};
}

struct rig *
stub_rig(struct stub *stub, struct at at)
{
    return stub->rigs[at.core];
}

struct stub_record *
stub_record(struct stub *stub, char name)
{
    rig_must(name >= 'a' && name <= 'z');
    return &stub->records[name - 'a'];
}

/* A part such as a/b has the record of its last letter. */
static struct stub_record *
record_of(struct stub *stub, const struct op *op)
{
    return stub_record(stub, op->name.at[op->name.len - 1]);
}

void
stub_say(struct stub *stub, struct at at, const char *line)
{
    rig_say(stub_rig(stub, at), at.session, line);
}

const char *
stub_heard(struct stub *stub, struct at at)
{
    return rig_line(stub_rig(stub, at), at.session);
}

void
stub_expect(struct stub *stub, struct at at, const char *pattern)
{
    rig_expect(stub_rig(stub, at), at.session, pattern);
}

/* --- answers -------------------------------------------------------------- */

static void
add_ticket(
    struct stub *stub, const struct rig *rig, const struct op *op, bool granted)
{
    struct stub_record *record = record_of(stub, op);
    struct op_ticket *ticket = &record->tickets[record->count++];

    rig_must(record->count < STUB_TICKETS);
    *ticket = (struct op_ticket){.granted = granted,
        .mode = op->ask.mode,
        .permits = op->ask.permits,
        .generation = op->generation,
        .request = op->request,
        .fence = granted ? stub->clock : 0,
        .since_us = stub->clock,
        .ttl_ms = RIG_LEASE_MS};
    memcpy(ticket->session, op->session, 16);
    memcpy(ticket->owner_hash, op->owner_hash, 8);
    if (op->ask.mode == MODE_UPGRADE) /* as the record's reader has it */
        ticket->owner_hash[0] ^= OWNER_UPGRADE;
    memcpy(ticket->broker, rig->settings.broker_id, 8);
    record->limit = op->ask.permits_max;
}

static void
stand(struct rig *rig, struct op *op, uint64_t arrival)
{
    rig_finish(rig, op,
        (struct op_result){.status = op->no_queue ? OP_BUSY : OP_WAITING,
            .arrival = arrival,
            .place = 1,
            .ahead = 1,
            .again_ms = AGAIN_MS});
}

void
stub_answer(struct stub *stub, struct at at, bool granted)
{
    struct rig *rig = stub_rig(stub, at);

    rig_must(rig->op_count > 0);
    struct op *op = rig->ops[rig->op_count - 1];
    rig_must(op->kind == OP_ACQUIRE);
    stub->clock++;
    if (granted || !op->no_queue)
        add_ticket(stub, rig, op, granted);
    if (granted)
        rig_granted(rig, op, stub->clock);
    else
        stand(rig, op, stub->clock);
}

void
stub_hold(struct stub *stub, struct at at, const char *line)
{
    const struct rig *rig = stub_rig(stub, at);

    stub_say(stub, at, line);
    do /* first the intentions of a part */
        stub_answer(stub, at, true);
    while (
        rig->op_count > 0 && rig->ops[rig->op_count - 1]->kind == OP_ACQUIRE);
    rig_must(strstr(stub_heard(stub, at), " OK fence=") != NULL);
}

void
stub_wait(struct stub *stub, struct at at, const char *line)
{
    stub_say(stub, at, line);
    stub_answer(stub, at, false);
}

static struct op_ticket *
find_ticket(struct stub_record *record, const struct op *op)
{
    for (unsigned i = 0; i < record->count; i++)
        if (record->tickets[i].request == op->request &&
            memcmp(record->tickets[i].session, op->session, 16) == 0)
            return &record->tickets[i];
    return NULL;
}

static void
carry(struct stub *stub, struct rig *rig, struct op *op)
{
    char to[8];
    char news[8192];
    size_t len = op->words[1].len;

    rig_must(len <= sizeof(news));
    memcpy(to, op->words[0].at, sizeof(to));
    memcpy(news, op->words[1].at, len);
    rig_status(rig, op, OP_OK);
    for (unsigned core = 0; core < stub->cores; core++)
        if (memcmp(stub->rigs[core]->settings.broker_id, to, 8) == 0)
            rig_news(stub->rigs[core], news, len);
}

static void
show(struct rig *rig, struct op *op, struct stub_record *record)
{
    struct op_result result = {.status = OP_OK,
        .tickets = record->tickets,
        .ticket_count = record->count,
        .limit = record->limit};

    for (unsigned i = 0; i < record->count; i++)
        result.holders += record->tickets[i].granted;
    result.waiters = record->count - result.holders;
    record->looks += op->reader == READER_DEADLOCK;
    rig_finish(rig, op, result);
}

void
stub_finish(struct stub *stub, unsigned core, struct op *op)
{
    struct rig *rig = stub->rigs[core];

    if (op->kind == OP_PUBLISH) {
        carry(stub, rig, op);
        return;
    }
    struct stub_record *record = record_of(stub, op);
    struct op_ticket *ticket = find_ticket(record, op);
    if (op->kind == OP_INSPECT) {
        show(rig, op, record);
    } else if (op->kind == OP_RENEW && ticket != NULL && ticket->granted) {
        rig_granted(rig, op, ticket->fence);
    } else if (op->kind == OP_RENEW && ticket != NULL) {
        stand(rig, op, ticket->since_us);
    } else {
        rig_must(op->kind == OP_RELEASE);
        if (ticket != NULL)
            memmove(ticket, ticket + 1,
                (size_t)(&record->tickets[--record->count] - ticket) *
                    sizeof(*ticket));
        rig_status(rig, op, OP_OK);
    }
}

bool
stub_step(struct stub *stub, unsigned core)
{
    struct rig *rig = stub->rigs[core];

    for (uint32_t i = 0; i < rig->op_count; i++)
        if (rig->ops[i]->kind != OP_RELEASE || !stub->keeps_releases) {
            stub_finish(stub, core, rig->ops[i]);
            return true;
        }
    return false;
}

void
stub_pass(struct stub *stub, unsigned ms)
{
    bool some = true;

    while (ms > 0) {
        unsigned step = some || ms < STEP_MS ? 1 : STEP_MS;
        bool more = true;
        ms -= step;
        some = false;
        for (unsigned core = 0; core < stub->cores; core++)
            rig_pass(stub->rigs[core], step);
        for (; more; some = some || more) {
            more = false;
            for (unsigned core = 0; core < stub->cores; core++)
                more = stub_step(stub, core) || more;
        }
    }
}

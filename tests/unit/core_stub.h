/*
 * Several cores, and a stub of Redis for tests in which brokers read records or
 * send messages to one another. The stub decides nothing: the test says which
 * LOCK is granted and which one waits. The stub keeps these tickets, shows them
 * to inspections, and drops them at their release. It carries messages.
 *
 * Locks have names of one letter, from 'a' on.
 */
#ifndef HOLDFAST_TESTS_UNIT_CORE_STUB_H
#define HOLDFAST_TESTS_UNIT_CORE_STUB_H

#include "daemon/op/op.h"
#include "tests/unit/core_rig.h"

#define STUB_CORES   3
#define STUB_TICKETS 32

struct stub_record {
    struct op_ticket tickets[STUB_TICKETS];
    unsigned count;
    unsigned looks; /* for deadlocks */
    uint32_t limit;
};

struct stub {
    unsigned cores;
    struct rig *rigs[STUB_CORES]; /* owned */
    uint64_t clock;               /* of Redis: grants and arrivals */
    struct stub_record records[26];
    bool keeps_releases; /* they are not answered */
};

/* A client at a core. */
struct at {
    unsigned core;
    unsigned session;
};

struct stub *stub_new(unsigned cores);
void stub_free(struct stub *stub);

struct at stub_open(struct stub *stub, unsigned core);
struct rig *stub_rig(struct stub *stub, struct at at);
struct stub_record *stub_record(struct stub *stub, char name);

void stub_say(struct stub *stub, struct at at, const char *line);
const char *stub_heard(struct stub *stub, struct at at);
void stub_expect(struct stub *stub, struct at at, const char *pattern);

/* Answers the newest operation, an ACQUIRE: it is granted, or it waits. */
void stub_answer(struct stub *stub, struct at at, bool granted);

/* A LOCK that is granted, or that waits; wait=0 is answered BUSY. */
void stub_hold(struct stub *stub, struct at at, const char *line);
void stub_wait(struct stub *stub, struct at at, const char *line);

/* Answers an operation of a core, which is no ACQUIRE. */
void stub_finish(struct stub *stub, unsigned core, struct op *op);

/* Answers the oldest operation of a core. False: there is none. */
bool stub_step(struct stub *stub, unsigned core);

/* Answers operations and lets time pass, by a few milliseconds. */
void stub_pass(struct stub *stub, unsigned ms);

#endif

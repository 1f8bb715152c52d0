/*
 * Brokers of the simulator: the real proto, core and store, on a machine, with
 * the engine that io uses. net.h takes the place of io's sockets.
 */
#ifndef HOLDFAST_TESTS_SIM_BROKER_H
#define HOLDFAST_TESTS_SIM_BROKER_H

#include "tests/sim/net.h"

struct broker;

void brokers_create(struct world *world);
void brokers_destroy(struct world *world);
struct machine *broker_machine(struct world *world, uint32_t number);

void broker_kill(struct world *world, uint32_t number);
void broker_start(struct world *world, uint32_t number);
void broker_drain(struct world *world, uint32_t number); /* SIGTERM */

/* The broker has that lease.default and redis.settle from its next start on. A
 * broker that has not been started since then is killed. */
void broker_configure(struct world *world, uint32_t number, uint32_t lease_ms,
    uint32_t settle_ms);
void broker_kill_old(struct world *world, uint32_t number);

/* Whether every slot has a node that answers it. */
bool broker_ready(const struct world *world, uint32_t number);

/* Adds what it and its predecessors have counted; one for each counter. */
void broker_add_counters(
    struct world *world, uint32_t number, uint64_t *counters);

/* Of a cluster: whether all of them have known all masters for long enough. */
bool brokers_settled(const struct world *world);

/* Whether it is putting back a ticket that Redis has lost. */
bool broker_reclaims(const struct world *world, uint32_t number);

/* All has healed: audits break nothing any more. */
void brokers_heal(struct world *world);

/* Whether it asks Redis for anything. */
bool broker_asks(struct world *world, uint32_t number);

/* At the end of a run: everything is back. Reports to the judge. */
void broker_check_idle(struct world *world, uint32_t number);

#endif

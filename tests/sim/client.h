/*
 * Clients of the simulator: programs that take locks, by the rules that
 * PROTOCOL.md gives a careful client, and tell the judge what they believe.
 *
 * Each has a machine. It connects to a broker, asks for locks of all sorts,
 * waits, holds, works on the resource behind the lock, and gives back. Now and
 * then it makes mistakes (a stale fence, a name it does not hold). It connects
 * to another broker when its own is gone. Every request gets exactly one final
 * reply, on the connection that it was sent on.
 */
#ifndef HOLDFAST_TESTS_SIM_CLIENT_H
#define HOLDFAST_TESTS_SIM_CLIENT_H

#include "tests/sim/net.h"

struct client;

/* Makes world->clients, plan.clients of them, and lets them begin. */
void clients_create(struct world *world);
void clients_destroy(struct world *world);
struct machine *client_machine(struct world *world, uint32_t number);

/* The process is killed (its connection ends), or its host dies; after a while
 * it starts anew, unless the run is healing. */
void client_kill(struct world *world, uint32_t number);
void client_vanish(struct world *world, uint32_t number);

/* Orders of an operator, by whichever client is connected. */
void client_order(struct world *world, enum fault order);

/* From now on: no new locks but one LOCK of each name (to see that it can be
 * had), then all is given back and the connection closed by QUIT. */
void clients_wind_up(struct world *world);

/* Whether all of them are done; else what one of them waits for, for people. */
bool clients_done(struct world *world, char *what, size_t what_bytes);

#endif

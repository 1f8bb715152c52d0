/*
 * Redis servers of the simulator: a fake Redis on a machine, with what is
 * between servers: replication with a lag, the bus, slots, promotion.
 */
#ifndef HOLDFAST_TESTS_SIM_SERVER_H
#define HOLDFAST_TESTS_SIM_SERVER_H

#include "tests/sim/fake.h"
#include "tests/sim/net.h"

struct server;

void servers_create(struct world *world);
void servers_destroy(struct world *world);
struct machine *server_machine(struct world *world, uint32_t number);

/* The address of a server, as the brokers' configuration has it. */
const char *server_host(struct world *world, uint32_t number);
uint16_t server_port(struct world *world, uint32_t number);

/* The machine that an address belongs to; NULL: nobody's. */
struct machine *server_at(struct world *world, const char *host, uint16_t port);

/* The one master, as the world knows. */
struct machine *server_master(struct world *world);

/* --- sentinel.c: those that say which server is the master ---------------- */

/* `index` is below plan.sentinels. */
struct machine *sentinel_machine(struct world *world, uint32_t index);
bool server_is_sentinel(struct world *world, const struct machine *machine);

/* SENTINEL FAILOVER: a replica takes over, though the master is well. */
void sentinel_failover(struct world *world, uint32_t index);

/* Its address. */
const char *sentinel_host(struct world *world, uint32_t index);
uint16_t sentinel_port(struct world *world, uint32_t index);

/* A broker sends operations to that machine; the judge hears of it where it is
 * a master no more and Sentinels have long said so. */
void server_asked(struct world *world, const struct machine *machine);

struct fake *server_fake(struct world *world, uint32_t number);

/* Faults; `number` is a server. */
void server_restart(struct world *world, uint32_t number, bool keep_data);
void server_failover(struct world *world, uint32_t number);
void server_migrate(struct world *world);
void server_jump(struct world *world, uint32_t number, int64_t us);

/* Whether a master lives on that was replaced, and does not know it yet. */
bool servers_replaced(const struct world *world);

/* When a server last came up, took over, or followed another one. */
uint64_t servers_changed_us(const struct world *world);

/* The slot of a lock begins to move to another shard, with so many of its keys,
 * and stays so until the end; false: it cannot now. */
bool server_park(struct world *world, uint32_t lock, unsigned keys);
void server_park_end(struct world *world);

/* The same, but the shard loses its data before any of the slot's is moved; and
 * the slot is the other one's as soon as that shard is up again. */
bool server_strand(struct world *world, uint32_t lock);

/* One of the replicas of the lock's shard gets nothing from its master, until
 * packets pass again; false: there is none that could. The number of writes
 * that it has not got; it takes so many of them; whether the lock is held by
 * its data. It takes the shard over, and its master follows it, and is the one
 * that is left behind. */
bool server_leaves_behind(struct world *world, uint32_t lock);
uint64_t server_misses(struct world *world);
void server_takes(struct world *world, uint64_t n);
bool server_believes(const struct world *world, uint32_t lock);
void server_swaps(struct world *world);

/* A replica that misses no more than so many writes takes over, and its master
 * follows it at once. False: there is none that could. */
bool server_switches(struct world *world, uint64_t misses);

/* Whether the master of the lock's shard has granted it with that fence, and
 * all that follow it know. */
bool servers_have(struct world *world, uint32_t lock, uint64_t fence);

/* A replica takes the lock's shard over, and the master, which is returned,
 * goes on beside it until the end; NULL: it cannot be now. */
struct machine *server_split(struct world *world, uint32_t lock);
void server_split_end(struct world *world);

/* All of them refuse for a while, or are well again. */
void servers_refuse(struct world *world, enum fake_mood mood);

/* FLUSHALL of every shard; an excuse only where something is `held`. */
void servers_flush(struct world *world, bool held);

/* A copy of the lock's record, and its length; 0: there is none, or no room. It
 * comes back, in place of what is there; false: nothing is. */
#define SERVER_COPY_BYTES 2048
size_t servers_copy(
    struct world *world, uint32_t lock, char out[SERVER_COPY_BYTES]);
bool servers_restore(
    struct world *world, uint32_t lock, const char *copy, size_t len);

/* All clocks are set back, of Redis hosts and of brokers'. */
void servers_set_back(struct world *world, uint64_t us);

/* They have new replication ids: a backlog has expired, a replica came. */
void servers_rename(struct world *world);

/* Ends what is under way: migrations are brought to their end, replicas catch
 * up, moods are well. */
void servers_heal(struct world *world);

/* At the end of a run: no living tickets, by the judge. */
void servers_check_idle(struct world *world);

#endif

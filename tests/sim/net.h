/*
 * The network of the simulator: streams between machines that delay, split and
 * join what is sent, are cut at any byte, or fall silent.
 *
 * A connection has two ends; 0 is the one that connected. Bytes arrive in the
 * order sent, later, in other portions. Different connections overtake one
 * another. The functions of its user are told of each event at an end, never
 * from within a net_ call of that user.
 *
 * A stopped process is told nothing until it runs again. Packets that cannot
 * pass (a partition, a dead host) are held until they can. An end with
 * keepalive is told NET_TIMEOUT when that has lasted for its `silence_us`.
 */
#ifndef HOLDFAST_TESTS_SIM_NET_H
#define HOLDFAST_TESTS_SIM_NET_H

#include "tests/sim/world.h"

enum net_end_reason {
    NET_EOF,     /* the peer sends no more; we still may */
    NET_RESET,   /* gone both ways */
    NET_TIMEOUT, /* given up as silent; gone both ways */
    NET_REFUSED, /* nobody listens: never was open */
};

struct net_user {
    /* The connection is open (told to the end that asked for it). */
    void (*opened)(void *arg, uint32_t id);
    void (*bytes)(void *arg, uint32_t id, const char *bytes, size_t len);
    void (*ended)(void *arg, uint32_t id, enum net_end_reason reason);
};

/* Somebody connects to a listener: his user and arg for this end; false: not
 * accepted (reset). */
typedef bool net_accept(void *arg, uint32_t id, const struct net_user **user,
    void **user_arg, uint64_t *silence_us);

struct net *net_create(struct world *world);
void net_destroy(struct net **net);

/* One listener for each machine. */
void net_listen(
    struct net *net, struct machine *machine, net_accept *accept, void *arg);

/* Begins to connect; the answer comes by `opened` or `ended`. An id is the
 * connection's for both ends, and never used again in a run. */
uint32_t net_connect(struct net *net, struct machine *from, struct machine *to,
    const struct net_user *user, void *arg, uint64_t silence_us);

/* `machine` says which end speaks. Nothing happens where it is gone. */
void net_send(struct net *net, uint32_t id, const struct machine *machine,
    const void *bytes, size_t len);

/* No more bytes from this end (FIN), after what was sent. */
void net_finish(struct net *net, uint32_t id, const struct machine *machine);

/* close(): FIN, and what comes is not read any more; the user is forgotten. */
void net_close(struct net *net, uint32_t id, const struct machine *machine);

/* The process is gone: its connections end with a FIN or RST, or, where the
 * machine is silent, without a sign. Its users are told nothing any more. */
void net_process_died(struct net *net, struct machine *machine);

/* Faults. */
/* RST for both, somewhere in the stream; false: one of them cannot hear it. */
bool net_cut(struct net *net, uint32_t id);
void net_cut_machine(struct net *net, const struct machine *machine);
void net_cut_between(
    struct net *net, const struct machine *a, const struct machine *b);
void net_half_open(struct net *net, uint32_t id); /* silence both ways */
void net_block(struct net *net, struct machine *from, struct machine *to);
void net_unblock_all(struct net *net);
void net_slow(struct net *net, uint64_t extra_us); /* mean; 0: as planned */

/* When the last of all the packets that were lost and sent again arrives, or
 * has arrived; true time. */
uint64_t net_resent_us(const struct net *net);

/* A connection that lives, by chance; 0: there is none. */
uint32_t net_any(struct net *net);

/* Connections that are not gone at both ends. */
uint32_t net_count(const struct net *net);

#endif

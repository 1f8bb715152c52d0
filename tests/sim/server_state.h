/*
 * Shared by server.c, and by sentinel.c for Sentinels.
 */
#ifndef HOLDFAST_TESTS_SIM_SERVER_STATE_H
#define HOLDFAST_TESTS_SIM_SERVER_STATE_H

#include "tests/sim/server.h"

struct peer {
    uint32_t net_id;
    uint32_t fake_id; /* 0: gone */
};

/* A Redis server; or a Sentinel, and these come after all servers. */
struct server {
    struct world *world; /* ref */
    struct machine *machine;
    struct fake *fake; /* owned */
    uint32_t number;
    uint32_t shard;
    bool master;
    bool demoted;           /* it is to hear that another one is the master */
    struct server *follows; /* ref; whose log it takes; NULL: nobody's */
    bool replicating;       /* an apply is on its way */
    uint32_t life;          /* of the process */
    uint32_t stage;         /* of its replication */
    uint64_t demoted_us;    /* in true time; 0: never */
    struct peer *peers;     /* owned */
    uint32_t peer_count;
    uint32_t peer_capacity;
    char host[32];
    /* of a Sentinel */
    uint32_t names;      /* the master: a server's number */
    uint64_t epoch;      /* of that choice; the larger one is right */
    uint64_t missed_us;  /* it has not heard of the master since; 0: it has */
    uint64_t bus_us[64]; /* when its last message reaches that machine */
};

/* Which shard has a slot, and the one that is on its way. */
struct cluster {
    struct world *world; /* ref */
    uint8_t shard[FAKE_SLOTS];
    bool moving;
    bool forgotten; /* by one of the two, which took its shard over since */
    bool parked;    /* its migration goes on when it is told to */
    uint16_t slot;
    uint32_t from; /* shards */
    uint32_t to;
    struct server *split;  /* ref; a master that has been replaced, or NULL */
    struct server *behind; /* ref; one that gets nothing from another one */
    uint64_t changed_us;   /* a server came up, took over, or follows another */
};

/* server.c */
uint32_t server_count(const struct world *world); /* without Sentinels */
struct server *shard_master(struct world *world, uint32_t shard);
bool servers_meet(const struct server *a, const struct server *b);

/* Before it is asked for anything: its clock is its machine's. */
void server_wind(struct server *server);

/* Its process dies, and its connections with it. */
void server_dies(struct server *server);

/* An event of the world: it comes back, if it is down since that life (shifted
 * by one), with its data or (bit 0) without. */
void server_back(void *arg, uint64_t data);

/* A replica begins to follow its shard's master. */
void server_attach(struct server *replica);

/* It hears who has which slot, and which replicas there are. */
void server_learn(struct server *server);
void server_learn_replicas(struct server *server);

/* An excuse: writes are lost with a process, or leases end by another clock.
 * Brokers that settle leave old holders their time, and two never believe. */
void servers_lost(struct world *world, enum fault cause);

/* failover.c */
bool server_clocks_differ(const struct server *a, const struct server *b);

/* The replica is the shard's master from now on, for those that know. If the
 * old one is `split` off, other replicas may stay with that one. */
void server_takes_over(struct server *replica, bool split);

/* One that is demoted, and runs, follows the master. */
void server_follows(struct server *server);

/* Masters that have been replaced hear of it soon, where no Sentinel is to tell
 * them. */
void servers_hear(struct world *world);

/* sentinel.c */
void sentinels_begin(struct world *world);

#endif

/*
 * What the files of Redis servers share: server.c, and sentinel.c for those
 * that are Sentinels.
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
    bool demoted;        /* it is to hear that another one is the master */
    bool replicating;    /* an apply is on its way */
    uint32_t life;       /* of the process */
    uint32_t stage;      /* of its replication */
    uint64_t demoted_us; /* in true time; 0: never */
    struct peer *peers;  /* owned */
    uint32_t peer_count;
    uint32_t peer_capacity;
    char host[32];
    /* of a Sentinel */
    uint32_t names;     /* the master: a server's number */
    uint64_t epoch;     /* of that choice; the larger one is right */
    uint64_t missed_us; /* it has not heard of the master since; 0: it has */
};

/* server.c */
uint32_t server_count(const struct world *world); /* without Sentinels */
struct server *shard_master(struct world *world, uint32_t shard);
bool servers_meet(const struct server *a, const struct server *b);

/* The replica is the shard's master from now on, for whoever knows. */
void server_takes_over(struct server *replica);

/* One that is demoted, and runs, follows the master. */
void server_follows(struct server *server);

/* sentinel.c */
void sentinels_begin(struct world *world);

#endif

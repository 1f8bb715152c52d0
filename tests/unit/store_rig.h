/*
 * A rig for tests of daemon/store: a store, virtual time, operations made by
 * hand, and links. Commands are read and answered one by one, by hand or as a
 * Redis does. store_check() runs after each step.
 */
#ifndef HOLDFAST_TESTS_UNIT_STORE_RIG_H
#define HOLDFAST_TESTS_UNIT_STORE_RIG_H

#include "tests/unit/rig_test.h"

#include "daemon/store/model/state.h"

#define SRIG_OPS    512
#define SRIG_WORDS  600
#define SRIG_OFFSET 100 /* the end of a master's log */
#define SRIG_RUN    "rrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrr"

struct srig_conn {
    bool connecting;
    bool open;
    bool silent; /* srig_serve() and srig_settle() leave it alone */
    uint32_t serial;
    uint32_t connects;
    uint32_t closes;
    char host[STORE_HOST_MAX];
    uint16_t port;
};

struct srig_range {
    int64_t first;
    int64_t last;
    const char *host; /* NULL: nil */
    int64_t port;
};

/* Further words of that entry; NULL: none. */
struct srig_beside {
    const char *ip;
    const char *name;
};

/* The master's address, as a Sentinel says. */
struct srig_name {
    const char *host; /* NULL: nil */
    const char *port;
};

struct srig {
    struct store_settings settings;
    struct counters counters;
    struct store *store; /* owned */
    uint64_t now_us;
    int64_t clock_us; /* Redis' clock is so far ahead of what it was */
    struct srig_conn conns[CONN_COUNT];
    struct op ops[SRIG_OPS];
    struct op_audit audits[SRIG_OPS]; /* of those that are some */
    uint32_t op_count;
    uint32_t done[SRIG_OPS]; /* how often it was given back */
    uint32_t done_count;
    /* The command that was read last. */
    char text[1 << 17];
    struct text words[SRIG_WORDS];
    unsigned word_count;
    /* INFO of the Redis behind all links. */
    const char *info;
    uint32_t one_run;   /* so many, from the first on, are the same process */
    char history[2000]; /* that, after srig_history() */
    char script_id;     /* of the id that its scripts say */
    /* The replicas that it says to have; before srig_history(). */
    unsigned replicas;
    unsigned reached; /* so many of them have what was written */
    unsigned first;   /* the last number of the first one's address */
    unsigned members; /* so many the cluster knows of */
    char marker[100]; /* the marker; empty: there is none */
    int64_t client_id;
    struct srig_range map[8];
    struct srig_beside beside[8];
    unsigned map_count;
    const char *node_id;        /* of all in the map */
    struct srig_name names[64]; /* of the links to Sentinels, in order */
};

/* Settings and answers that a test may change before srig_start(). */
struct srig *srig_create(enum store_topology topology, unsigned nodes);
void srig_start(struct srig *rig);

/* To Redis: "me", "secret". Before srig_start(). */
void srig_credentials(struct srig *rig);

/*
 * From now on INFO says that it is the process `run` (that letter, 40 times),
 * with the history `id`, and `second` before it ('0': with none); so do the
 * scripts.
 */
void srig_history(
    struct srig *rig, const char *role, char run, char id, char second);

/* Started, every link that was asked for ready. */
struct srig *srig_single(void);
struct srig *srig_cluster(void);
struct srig *srig_sentinel(void);
struct srig *srig_quorum(unsigned nodes);
void srig_end(struct srig *rig);

/* A test of `rig`, which begins as the expression says. */
#define SRIG_TEST(name, ...) \
    RIG_TEST_AS(name, struct srig, __VA_ARGS__, srig_end)

/* One turn: time, output, wishes, results. */
void srig_turn(struct srig *rig);
void srig_pass(struct srig *rig, uint64_t ms);

/* An operation that is not submitted yet, and that. */
struct op *srig_draft(struct srig *rig, enum op_kind kind, uint16_t slot);
void srig_submit(struct srig *rig, struct op *op);

/* Nobody waits any more for Redis to be asked. */
void srig_hurry(struct srig *rig, struct op *op);

/* An operation that is submitted; the turn is the caller's. */
struct op *srig_op(struct srig *rig, enum op_kind kind, uint16_t slot);
bool srig_done(const struct srig *rig, const struct op *op);

/* So many of them; a ref to the first, and the others follow it. */
struct op *srig_ops(
    struct srig *rig, enum op_kind kind, uint16_t slot, unsigned count);

/*
 * `count` of them, eight or more, and a turn: the first eight are on the link,
 * in two calls that are read and not answered; the others wait. As srig_ops().
 */
struct op *srig_in_flight(struct srig *rig, uint32_t link, unsigned count);

/* It was given back, with this. */
void srig_status(
    const struct srig *rig, const struct op *op, enum op_status status);

/* So were ops[first] to ops[end - 1]. */
void srig_statuses(const struct srig *rig, const struct op *ops, unsigned first,
    unsigned end, enum op_status status);

/*
 * The next command on the link in short: its words, "LOAD" for a script, and
 * "EVALSHA n" for a call; empty: there is none.
 */
const char *srig_next(struct srig *rig, uint32_t link);
void srig_expect(struct srig *rig, uint32_t link, const char *command);

/* A turn, after which that is the next command. */
void srig_sends(struct srig *rig, uint32_t link, const char *command);

void srig_reply(struct srig *rig, uint32_t link, const struct resp *reply);
void srig_reply_array(
    struct srig *rig, uint32_t link, const struct resp *items, unsigned count);
void srig_number(struct srig *rig, uint32_t link, int64_t number);
void srig_error(struct srig *rig, uint32_t link, const char *error);

/* A message to a subscriber. */
void srig_message(
    struct srig *rig, uint32_t link, const char *channel, struct text payload);

/* Answers the command that was read last as a Redis does; not scripts. A SET
 * writes the marker. */
void srig_answer(struct srig *rig, uint32_t link);

/* The next command is this one, and is answered so. */
void srig_exchange(struct srig *rig, uint32_t link, const char *command);

/* The greeting up to the first command that depends on the answers: INFO,
 * CLIENT ID, TIME. And all of it, with the password of srig_credentials(). */
void srig_introduce(struct srig *rig, uint32_t link);
void srig_greet(struct srig *rig, uint32_t link);

/* Answers the oldest call on the link: `count` results with that status. */
void srig_results(
    struct srig *rig, uint32_t link, unsigned count, enum record_status status);

/* A reply of raw bytes. */
void srig_bytes(struct srig *rig, uint32_t link, const char *bytes, size_t len);

/* A little-endian number; returns what is after it. */
char *srig_put(char *at, uint64_t value, size_t bytes);

/* TIME. */
uint64_t srig_time_us(const struct srig *rig);

/* The bytes of a script's reply, without grants; returns the length. */
size_t srig_encode(
    struct srig *rig, char *out, unsigned count, enum record_status status);

/* Connects the link and answers until it has nothing more to say. */
void srig_connect(struct srig *rig, uint32_t link);
void srig_serve(struct srig *rig, uint32_t link);
void srig_lose(struct srig *rig, uint32_t link);

/* Connects and serves all that was asked for. */
void srig_settle(struct srig *rig);

uint64_t srig_count(const struct srig *rig, enum counter counter);

#endif

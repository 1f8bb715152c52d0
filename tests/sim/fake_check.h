/*
 * The program that holds the fake Redis against a real one; see fake_check.c.
 */
#ifndef HOLDFAST_TESTS_SIM_FAKE_CHECK_H
#define HOLDFAST_TESTS_SIM_FAKE_CHECK_H

#include "daemon/store/wire/scripts.h"
#include "tests/sim/fake_state.h"

#define CHECK_ARGS_MAX  40
#define CHECK_LANES_MAX 4

/* How two replies must agree. */
enum match {
    MATCH_EXACT,
    MATCH_MS,      /* integers, 10,000 apart at most where both are positive */
    MATCH_SECONDS, /* the same, 10 */
    MATCH_SHAPE    /* the same first byte: what tells the time */
};

/* One command that both got. */
struct item {
    size_t at; /* in batch.request */
    size_t len;
    enum match match;
};

struct batch {
    struct bytes request;
    struct bytes expected; /* the fake's reply */
    struct item *items;
    size_t count;
    size_t cap;
};

/* A connection to a real server and one to its fake. */
struct lane {
    struct fake *fake;
    uint32_t connection;
    int fd;
    struct batch now;     /* the fake has answered, the real one not asked */
    struct batch pending; /* the real one has been asked */
    struct bytes actual;  /* read from the real one, not compared */
    struct bytes pushed;  /* fake's messages, for lanes that only listen */
    bool listens;
};

/* A command under construction. */
struct words {
    struct text word[CHECK_ARGS_MAX];
    size_t count;
    struct bytes memory[CHECK_ARGS_MAX];
    enum match match;
};

struct node {
    struct fake *fake;
    char host[48];
    uint16_t port;
    struct lane *lanes[CHECK_LANES_MAX];
    size_t lane_count;
};

struct check {
    struct random random;
    uint64_t seed;
    uint64_t step; /* comparisons made */
    uint64_t made; /* commands generated */
    uint64_t count;
    uint64_t now_us; /* the time of the scripts */
    char repl_id[41];
    bool in_cluster; /* no lives that MIGRATE's arithmetic cannot take */
    bool is_replica; /* INFO is not compared */
    struct words words;
    char sha[SCRIPT_COUNT][FAKE_SHA_HEX + 1]; /* with that time */
    struct bytes script[SCRIPT_COUNT];
    uint64_t by_kind[8]; /* for the summary */
};

/* --- fake_check.c --------------------------------------------------------- */

uint64_t check_below(struct check *check, uint64_t bound);
bool check_chance(struct check *check, unsigned percent);
_Noreturn void check_fail(const char *format, ...)
    __attribute__((format(printf, 1, 2)));

void words_begin(struct words *words);
void words_add(struct words *words, const char *at, size_t len);
void words_string(struct words *words, const char *string);
void words_format(struct words *words, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

struct lane *lane_open(struct node *node);
void lane_close(struct node *node, struct lane *lane);

/* Gives the command to the fake, and keeps it for the real one. */
void lane_ask(struct check *check, struct lane *lane);

/* Sends what was gathered; compares what was sent before. */
void lane_send(struct lane *lane);
void lane_compare(struct check *check, struct lane *lane);
void lane_settle(struct check *check, struct lane *lane); /* both */
void lane_messages(struct check *check, struct lane *lane);

/* One command to the real server only; the reply's text, until the next. '~'
 * is a blank within a word. */
const char *real_command(struct lane *lane, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

uint64_t clock_us(void);
void node_open(
    struct check *check, struct node *node, const char *address, bool cluster);
void node_close(struct node *node);

/* --- fake_check_make.c, fake_check_locks.c -------------------------------- */

void make_command(struct check *check, const struct fake *fake);
void make_plain(struct check *check);
void make_script(struct check *check);
void make_locks(struct check *check, const struct fake *fake);
void locks_init(struct check *check);

/* --- fake_check_replicas.c ------------------------------------------------ */

void check_replicas(void);

/* --- fake_check_cluster.c ------------------------------------------------- */

void check_cluster(struct check *check, char **addresses, size_t count);

#endif

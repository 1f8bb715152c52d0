/*
 * Random graphs of who waits for whom, over several brokers, with locks of all
 * kinds: no circle stands for long, and nobody is told of one that was none.
 * What is one is found here by going all ways through the fake Redis' records.
 */
#include "tests/unit/core_net.h"
#include "tests/unit/seed.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

Suite *core_graphs_suite(void);

#define MS      1000u
#define CLIENTS 12
#define LOCKS   5
#define GRAPHS  500
#define LAST_MS 1200 /* that a circle may stand, and some for the last look */

struct graph {
    struct net *net; /* owned */
    unsigned clients;
    unsigned core[CLIENTS];
    unsigned session[CLIENTS];
    bool off[CLIENTS][LOCKS]; /* deadlock=0 */
    bool waits_for[CLIENTS][CLIENTS];
    uint64_t circle_us[CLIENTS]; /* when it was last part of one; 0: never */
    unsigned told;
};

static unsigned
client_of(const struct graph *graph, const struct net_entry *entry)
{
    for (unsigned i = 0; i < graph->clients; i++) {
        const struct rig *rig = graph->net->rigs[graph->core[i]];
        if (memcmp(rig->sessions[graph->session[i]].id, entry->session, 16) ==
            0)
            return i;
    }
    ck_abort_msg("a ticket of nobody");
}

static bool
in_the_way(const struct net_record *record, unsigned place, unsigned before)
{
    const struct net_entry *other = &record->queue[before];
    unsigned holders = 0;

    if (record->limit == 0)
        return !(record->queue[place].shared && other->shared);
    for (unsigned i = 0; i < record->count; i++)
        holders += record->queue[i].granted;
    return other->granted && holders == 1;
}

/* All ways, after Warshall; whether there is a circle. */
static bool
graph_look(struct graph *graph)
{
    unsigned n = graph->clients;
    bool circle = false;

    memset(graph->waits_for, 0, sizeof(graph->waits_for));
    for (unsigned lock = 0; lock < LOCKS; lock++) {
        const struct net_record *record = &graph->net->records[lock];
        for (unsigned place = 0; place < record->count; place++) {
            unsigned who = client_of(graph, &record->queue[place]);
            if (record->queue[place].granted || graph->off[who][lock])
                continue;
            for (unsigned k = 0; k < place; k++)
                if (in_the_way(record, place, k))
                    graph->waits_for[who][client_of(graph, &record->queue[k])] =
                        true;
        }
    }
    for (unsigned k = 0; k < n; k++)
        for (unsigned i = 0; i < n; i++)
            for (unsigned j = 0; j < n; j++)
                graph->waits_for[i][j] =
                    graph->waits_for[i][j] ||
                    (graph->waits_for[i][k] && graph->waits_for[k][j]);
    for (unsigned i = 0; i < n; i++)
        if (graph->waits_for[i][i]) {
            graph->circle_us[i] = graph->net->now_us;
            circle = true;
        }
    return circle;
}

/* Who has been told was in one just now. */
static void
graph_hear(struct graph *graph)
{
    for (unsigned i = 0; i < graph->clients; i++) {
        struct rig *rig = graph->net->rigs[graph->core[i]];
        const char *line;
        while ((line = rig_line(rig, graph->session[i]))[0] != '\0') {
            if (strstr(line, " ERR DEADLOCK ") == NULL)
                continue;
            graph->told++;
            ck_assert_msg(
                graph->circle_us[i] != 0 &&
                    graph->net->now_us - graph->circle_us[i] < 100 * MS,
                "client %u was in no circle: %s", i, line);
        }
    }
}

static bool
graph_pass(struct graph *graph, unsigned ms)
{
    bool circle = false;

    for (; ms > 0; ms--) {
        net_pass(graph->net, 1 * MS);
        circle = graph_look(graph);
        graph_hear(graph);
    }
    return circle;
}

/* A LOCK of any kind, of the next of its names. */
static void
graph_lock(struct graph *graph, unsigned who, unsigned tag, unsigned lock)
{
    struct random *random = &graph->net->random;
    char line[80];
    const char *kind = random_below(random, 3) == 0 ? " mode=shared" : "";

    if (lock == 0)
        kind = random_below(random, 2) == 0 ? " limit=2" : " limit=2 permits=2";
    graph->off[who][lock] = random_below(random, 10) == 0;
    snprintf(line, sizeof(line), "%u LOCK %c%s%s", tag, 'a' + lock, kind,
        graph->off[who][lock] ? " deadlock=0" : "");
    net_say(graph->net, graph->core[who], graph->session[who], line);
}

static unsigned
graph_run(uint64_t seed)
{
    struct graph *graph = calloc(1, sizeof(*graph));
    unsigned cores = 1 + (unsigned)(seed % 3);

    rig_must(graph != NULL);
    graph->net = calloc(1, sizeof(*graph->net));
    rig_must(graph->net != NULL);
    random_init(&graph->net->random, seed);
    net_init(graph->net, cores);
    struct random *random = &graph->net->random;
    graph->clients = 3 + (unsigned)random_below(random, CLIENTS - 2);
    for (unsigned i = 0; i < graph->clients; i++) {
        graph->core[i] = (unsigned)random_below(random, cores);
        graph->session[i] = rig_open(graph->net->rigs[graph->core[i]]);
    }
    /* Each asks for some of the names, in any order; in turns. */
    unsigned order[CLIENTS][LOCKS] = {0};
    for (unsigned i = 0; i < graph->clients; i++)
        for (unsigned k = 0; k < LOCKS; k++) {
            unsigned at = (unsigned)random_below(random, k + 1);
            order[i][k] = order[i][at];
            order[i][at] = k;
        }
    for (unsigned turn = 0; turn < 3; turn++) {
        for (unsigned i = 0; i < graph->clients; i++)
            if (random_below(random, 4) > 0) {
                graph_lock(graph, i, turn + 1, order[i][turn]);
                (void)graph_pass(graph, (unsigned)random_below(random, 8));
            }
        (void)graph_pass(graph, 10);
    }
    ck_assert_msg(
        !graph_pass(graph, LAST_MS), "%" PRIu64 ": a circle stands", seed);
    unsigned told = graph->told;
    net_fini(graph->net);
    free(graph->net);
    free(graph);
    return told;
}

START_TEST(graphs)
{
    struct random random;
    unsigned told = 0;

    seed_random(&random, "core_graphs");
    for (unsigned i = 0; i < GRAPHS; i++)
        told += graph_run(random_next(&random));
    ck_assert_uint_gt(told, GRAPHS / 4);
}

END_TEST

Suite *
core_graphs_suite(void)
{
    Suite *suite = suite_create("core_graphs");
    TCase *tests = tcase_create("core_graphs");

    tcase_set_timeout(tests, 300);
    tcase_add_test(tests, graphs);
    suite_add_tcase(suite, tests);
    return suite;
}

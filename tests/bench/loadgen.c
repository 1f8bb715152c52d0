/*
 * The load generator: options, and the choice of what is measured. See usage()
 * for the modes; modes.h says what all of them print and return.
 */
#include "tests/bench/modes.h"
#include "tests/bench/net.h"

#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXIT_USAGE 64

static const char usage_text[] =
    "Usage: loadgen --mode MODE --address HOST:PORT|PATH [options]\n"
    "  setnx hash    lock + unlock pairs straight against Redis, in a closed "
    "loop\n"
    "  holdfast      the same against a broker\n"
    "  tree          the same of parts of one root, with tree=1\n"
    "  idle          opens --connections sessions, keeps them until stdin "
    "ends\n"
    "  hold          one session holds --locks locks for --seconds\n"
    "  handover      unlock to a waiter's grant, --rounds times\n"
    "  death         kill of a holder of --locks locks to a waiter's grant\n"
    "  fence         --grants grants on --keys names: does a fence run back?\n"
    "  roam          --connections kept sessions take --rate locks a second, "
    "of\n"
    "                --keys, until stdin ends\n"
    "Options:\n"
    "  --address A       repeatable: another broker\n"
    "  --connections N   (1)\n"
    "  --lanes N         requests under way on a connection (1)\n"
    "  --keys N          shared names; 0: one for each connection and lane "
    "(0)\n"
    "  --warm-up S       (1) --seconds S (5) --locks N (1) --rounds N (100)\n"
    "  --grants N        (100000) --rate N\n"
    "  --shards N        masters that share the slots evenly (1)\n"
    "  --tls-ca FILE     throughput by TLS, to whom these CAs vouch for\n"
    "  --cpu-pid PID     repeatable: a process whose CPU time is told\n";

enum option_id {
    OPTION_MODE = 1,
    OPTION_ADDRESS,
    OPTION_CONNECTIONS,
    OPTION_LANES,
    OPTION_KEYS,
    OPTION_LOCKS,
    OPTION_ROUNDS,
    OPTION_GRANTS,
    OPTION_RATE,
    OPTION_SHARDS,
    OPTION_TLS_CA,
    OPTION_WARM_UP,
    OPTION_SECONDS,
    OPTION_CPU_PID,
    OPTION_HELP,
};

static const struct option long_options[] = {
    {"mode", required_argument, NULL, OPTION_MODE},
    {"address", required_argument, NULL, OPTION_ADDRESS},
    {"connections", required_argument, NULL, OPTION_CONNECTIONS},
    {"lanes", required_argument, NULL, OPTION_LANES},
    {"keys", required_argument, NULL, OPTION_KEYS},
    {"locks", required_argument, NULL, OPTION_LOCKS},
    {"rounds", required_argument, NULL, OPTION_ROUNDS},
    {"grants", required_argument, NULL, OPTION_GRANTS},
    {"rate", required_argument, NULL, OPTION_RATE},
    {"shards", required_argument, NULL, OPTION_SHARDS},
    {"tls-ca", required_argument, NULL, OPTION_TLS_CA},
    {"warm-up", required_argument, NULL, OPTION_WARM_UP},
    {"seconds", required_argument, NULL, OPTION_SECONDS},
    {"cpu-pid", required_argument, NULL, OPTION_CPU_PID},
    {"help", no_argument, NULL, OPTION_HELP},
    {NULL, 0, NULL, 0},
};

static void __attribute__((noreturn)) usage(int status)
{
    fputs(usage_text, status == 0 ? stdout : stderr);
    exit(status);
}

/* A whole number of at most `max`. */
static unsigned long
number(const char *text, unsigned long max)
{
    char *end;
    unsigned long value;

    errno = 0;
    value = strtoul(text, &end, 10);
    if (errno != 0 || end == text || *end != '\0' || value > max)
        usage(EXIT_USAGE);
    return value;
}

static double
duration(const char *text)
{
    char *end;
    double value = strtod(text, &end);

    if (end == text || *end != '\0' || !(value >= 0.0 && value < 100000.0))
        usage(EXIT_USAGE);
    return value;
}

static void
take_address(struct options *options, const char *text)
{
    if (options->addresses == ADDRESSES_MAX)
        usage(EXIT_USAGE);
    options->address[options->addresses++] = text;
}

static void
take_cpu_pid(struct options *options, const char *text)
{
    if (options->cpu_pids == CPU_PIDS_MAX)
        usage(EXIT_USAGE);
    options->cpu_pid[options->cpu_pids++] = (pid_t)number(text, 1U << 30);
}

static void
take_option(struct options *options, enum option_id id, const char *text)
{
    switch (id) {
    case OPTION_MODE:
        options->mode = text;
        break;
    case OPTION_ADDRESS:
        take_address(options, text);
        break;
    case OPTION_CONNECTIONS:
        options->connections = (unsigned)number(text, 1000000);
        break;
    case OPTION_LANES:
        options->lanes = (unsigned)number(text, 4096);
        break;
    case OPTION_KEYS:
        options->keys = (unsigned)number(text, 1000000000);
        break;
    case OPTION_LOCKS:
        options->locks = (unsigned)number(text, 1000000);
        break;
    case OPTION_ROUNDS:
        options->rounds = (unsigned)number(text, 1000000000);
        break;
    case OPTION_GRANTS:
        options->grants = number(text, 1000000000);
        break;
    case OPTION_RATE:
        options->rate = (unsigned)number(text, 1000000);
        break;
    case OPTION_SHARDS:
        options->shards = (unsigned)number(text, 1000000);
        break;
    case OPTION_TLS_CA:
        options->tls_ca = text;
        break;
    case OPTION_WARM_UP:
        options->warm_up_s = duration(text);
        break;
    case OPTION_SECONDS:
        options->seconds = duration(text);
        break;
    case OPTION_CPU_PID:
        take_cpu_pid(options, text);
        break;
    case OPTION_HELP:
        usage(0);
    default:
        usage(EXIT_USAGE);
    }
}

static int
run_mode(const struct options *options)
{
    static const struct {
        const char *name;
        int (*run)(const struct options *options);
    } modes[] = {
        {"idle", idle_run},
        {"hold", hold_run},
        {"handover", handover_run},
        {"death", death_run},
        {"fence", fence_run},
        {"roam", roam_run},
    };
    const struct backend *backend = backend_find(options->mode);

    if (backend != NULL)
        return load_run(options, backend);
    for (size_t i = 0; i < sizeof(modes) / sizeof(modes[0]); i++) {
        if (strcmp(modes[i].name, options->mode) == 0)
            return modes[i].run(options);
    }
    usage(EXIT_USAGE);
}

int
main(int argc, char **argv)
{
    struct options options = {
        .connections = 1,
        .lanes = 1,
        .locks = 1,
        .rounds = 100,
        .grants = 100000,
        .warm_up_s = 1.0,
        .seconds = 5.0,
    };
    int id;

    while ((id = getopt_long(argc, argv, "", long_options, NULL)) != -1)
        take_option(&options, (enum option_id)id, optarg);
    if (optind != argc || options.mode == NULL || options.addresses == 0 ||
        options.connections == 0 || options.lanes == 0 || options.locks == 0)
        usage(EXIT_USAGE);
    signal(SIGPIPE, SIG_IGN);
    net_raise_descriptors();
    return run_mode(&options);
}

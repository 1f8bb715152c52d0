/*
 * The measurements that the program knows; each prints one line of JSON to
 * stdout and returns the exit status: 0, or 1 where something unexpected was
 * answered.
 */
#ifndef HOLDFAST_BENCH_MODES_H
#define HOLDFAST_BENCH_MODES_H

#include "tests/bench/backend.h"

#include <stdint.h>
#include <sys/types.h>

#define ADDRESSES_MAX 4
#define CPU_PIDS_MAX  8

struct options {
    const char *mode;
    const char *address[ADDRESSES_MAX]; /* ref; at least one */
    unsigned addresses;
    const char *tls_ca; /* ref; NULL: no TLS */
    unsigned connections;
    unsigned lanes; /* requests under way on a connection */
    unsigned keys;  /* 0: one for each connection and lane */
    unsigned locks;
    unsigned rounds;
    unsigned shards; /* 0: one */
    unsigned rate;   /* lock + unlock pairs a second, of all together */
    uint64_t grants;
    double warm_up_s;
    double seconds;
    pid_t cpu_pid[CPU_PIDS_MAX];
    unsigned cpu_pids;
};

/* Nanoseconds of CPU that all threads of a process have used. */
uint64_t cpu_ns_of(pid_t pid);

int load_run(const struct options *options, const struct backend *backend);
int idle_run(const struct options *options);
int hold_run(const struct options *options);
int handover_run(const struct options *options);
int death_run(const struct options *options);
int fence_run(const struct options *options);
int roam_run(const struct options *options);

#endif

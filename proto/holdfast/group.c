/*
 * Killing a process group of other processes' children.
 *
 * kill() finds a group while any member is left, even a zombie. A zombie stays
 * until its parent reaps it, and some programs that run as process 1 reap
 * nothing. So /proc shows whether the members are zombies. A zombie with
 * threads still runs.
 *
 * This check is valid only after SIGKILL: no member can fork any more, so none
 * is missed. If /proc shows no member, the result of kill() counts.
 *
 * /proc may be of an outer PID namespace, with other numbers. "NSpgid" in
 * /proc/PID/status lists the numbers from the namespace of /proc inwards. The
 * length of this process' own list tells its namespace's place.
 */
#define _GNU_SOURCE 1

#include "proto/holdfast/guard.h"

#include "daemon/base/assert.h"
#include "proto/holdfast/loop.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define BURY_MS    3000 /* for SIGKILL to take effect */
#define NAP_NS     1000000
#define LEVELS_MAX 33 /* of PID namespaces; the kernel nests 32 */

struct process {
    char state;
    unsigned long threads;
    size_t levels;
    long group[LEVELS_MAX]; /* the number at each level */
};

static void
groups_read(const char *text, struct process *out)
{
    char *end;

    for (out->levels = 0; out->levels < LEVELS_MAX; out->levels++) {
        long group = strtol(text, &end, 10);

        if (end == text)
            return;
        out->group[out->levels] = group;
        text = end;
    }
}

/* Reads the process `name` of /proc. False: it is gone. */
static bool
process_read(const char *name, struct process *out)
{
    char path[sizeof("/proc//status") + NAME_MAX];
    char *line = NULL;
    size_t room = 0;

    memset(out, 0, sizeof(*out));
    (void)snprintf(path, sizeof(path), "/proc/%s/status", name);
    FILE *file = fopen(path, "re");
    if (file == NULL)
        return false;
    while (getline(&line, &room, file) > 0) {
        if (strncmp(line, "State:\t", 7) == 0)
            out->state = line[7];
        else if (strncmp(line, "Threads:\t", 9) == 0)
            out->threads = strtoul(line + 9, NULL, 10);
        else if (strncmp(line, "NSpgid:\t", 8) == 0)
            groups_read(line + 8, out);
    }
    free(line);
    (void)fclose(file);
    return out->levels > 0;
}

static bool
process_runs(const struct process *process)
{
    return (process->state != 'Z' && process->state != 'X') ||
           process->threads > 1;
}

/* Whether /proc shows members of the group, and none of them runs. */
static bool
group_is_dead(pid_t group)
{
    struct process self;
    struct process other;
    const struct dirent *entry;
    size_t seen = 0;
    DIR *folder;

    if (!process_read("self", &self) || (folder = opendir("/proc")) == NULL)
        return false;
    while ((entry = readdir(folder)) != NULL) {
        if (entry->d_name[0] < '1' || entry->d_name[0] > '9' ||
            !process_read(entry->d_name, &other) ||
            other.levels < self.levels || other.group[self.levels - 1] != group)
            continue;
        seen++;
        if (process_runs(&other)) {
            seen = 0;
            break;
        }
    }
    (void)closedir(folder);
    return seen > 0;
}

bool
group_bury(pid_t group)
{
    const struct timespec nap = {.tv_nsec = NAP_NS};
    uint64_t end = loop_now_ms() + BURY_MS;

    /* -1 is every process of the user. */
    require(group > 1);
    while (kill(-group, SIGKILL) == 0) {
        (void)nanosleep(&nap, NULL);
        if (group_is_dead(group))
            return true;
        if (loop_now_ms() >= end)
            return false;
    }
    return errno == ESRCH;
}

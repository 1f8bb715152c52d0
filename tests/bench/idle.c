/*
 * Sessions that hold and sessions that only are there.
 *
 * idle  opens N sessions, says so, and keeps them until stdin ends, so that the
 *       caller can look at the daemon's memory meanwhile.
 * hold  one session takes N locks, keeps them for some seconds and gives them
 *       back; what it hears of them meanwhile is counted.
 */
#include "tests/bench/modes.h"
#include "tests/bench/net.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define GREETING_MS 10000
#define ANSWER_MS   30000
#define WINDOW      1000 /* requests under way */
#define LINE_BYTES  48   /* of a request, at most */
#define RESERVE     64   /* descriptors for all else */

static void
wait_for_stdin_end(void)
{
    char byte;

    while (read(STDIN_FILENO, &byte, 1) > 0)
        continue;
}

/* Reads the greeting of a session; false where it is refused. */
static bool
greeted(int fd)
{
    struct pollfd wait = {.fd = fd, .events = POLLIN};
    char line[512];
    ssize_t bytes;

    if (poll(&wait, 1, GREETING_MS) != 1)
        return false;
    bytes = read(fd, line, sizeof(line));
    return bytes > 8 && memcmp(line, "* HELLO ", 8) == 0;
}

int
idle_run(const struct options *options)
{
    uint64_t room = net_raise_descriptors() - RESERVE;
    unsigned wanted = options->connections;
    unsigned opened = 0;
    int *fds;
    uint64_t begin;

    if (wanted > room)
        wanted = (unsigned)room;
    fds = calloc(wanted, sizeof(*fds));
    if (fds == NULL)
        die("no memory");
    begin = clock_ns();
    for (; opened < wanted; opened++) {
        fds[opened] = net_connect(options->address[0]);
        if (!greeted(fds[opened]))
            break;
    }
    printf("{\"mode\":\"idle\",\"sessions\":%u,\"wanted\":%u,"
           "\"seconds\":%.3f}\n",
        opened, options->connections, (double)(clock_ns() - begin) / 1e9);
    fflush(stdout);
    wait_for_stdin_end();
    for (unsigned i = 0; i < opened; i++)
        close(fds[i]);
    free(fds);
    return opened == options->connections ? 0 : 1;
}

struct holder {
    struct peer peer;
    unsigned done;
    unsigned wrong;
    unsigned lost;
    unsigned jeopardy;
};

static void
holder_event(struct holder *holder, const char *line)
{
    if (strncmp(line, "* LOST ", 7) == 0)
        holder->lost++;
    else if (strncmp(line, "* JEOPARDY ", 11) == 0)
        holder->jeopardy++;
    else if (strncmp(line, "* HELLO ", 8) != 0 &&
             strncmp(line, "* SAFE ", 7) != 0)
        holder->wrong++;
}

/* Takes one line; waits for it at most `timeout_ms`. */
static bool
holder_line(struct holder *holder, const char *wanted, int timeout_ms)
{
    const char *line = peer_line(&holder->peer, timeout_ms);
    const char *space;

    if (line == NULL)
        return false;
    if (line[0] == '*') {
        holder_event(holder, line);
        return true;
    }
    holder->done++;
    space = strchr(line, ' ');
    if (space == NULL || strncmp(space + 1, wanted, strlen(wanted)) != 0) {
        if (holder->wrong++ < 5)
            fprintf(stderr, "loadgen: unexpected: %s\n", line);
    }
    return true;
}

/* One request for each lock, WINDOW at a time. */
static void
holder_ask_all(
    struct holder *holder, const char *verb, const char *wanted, unsigned locks)
{
    unsigned asked = 0;

    holder->done = 0;
    while (holder->done < locks) {
        char out[WINDOW * LINE_BYTES];
        size_t used = 0;

        for (; asked < locks && asked - holder->done < WINDOW; asked++)
            used += (size_t)snprintf(out + used, sizeof(out) - used,
                "%u %s hold%u\n", asked, verb, asked);
        peer_send_bytes(&holder->peer, out, used);
        do {
            if (!holder_line(holder, wanted, ANSWER_MS))
                die("%s: %u of %u are not answered", verb, locks - holder->done,
                    locks);
        } while (peer_has_line(&holder->peer));
    }
}

int
hold_run(const struct options *options)
{
    static struct holder holder;
    uint64_t cpu[2][CPU_PIDS_MAX];
    uint64_t begin;
    uint64_t end;

    peer_open(&holder.peer, options->address[0]);
    holder_ask_all(&holder, "LOCK", "OK fence=", options->locks);
    for (unsigned i = 0; i < options->cpu_pids; i++)
        cpu[0][i] = cpu_ns_of(options->cpu_pid[i]);
    begin = clock_ns();
    end = begin + (uint64_t)(options->seconds * 1e9);
    while (clock_ns() < end)
        holder_line(&holder, "nothing", (int)((end - clock_ns()) / 1000000U));
    for (unsigned i = 0; i < options->cpu_pids; i++)
        cpu[1][i] = cpu_ns_of(options->cpu_pid[i]);
    holder_ask_all(&holder, "UNLOCK", "OK count=0", options->locks);
    printf("{\"mode\":\"hold\",\"locks\":%u,\"seconds\":%.3f,\"lost\":%u,"
           "\"jeopardy\":%u,\"errors\":%u,\"cpu\":[",
        options->locks, options->seconds, holder.lost, holder.jeopardy,
        holder.wrong);
    for (unsigned i = 0; i < options->cpu_pids; i++)
        printf("%s{\"pid\":%d,\"us\":%.0f,\"share\":%.4f}", i > 0 ? "," : "",
            (int)options->cpu_pid[i], (double)(cpu[1][i] - cpu[0][i]) / 1000.0,
            (double)(cpu[1][i] - cpu[0][i]) / 1e9 / options->seconds);
    printf("]}\n");
    return holder.lost + holder.wrong == 0 ? 0 : 1;
}

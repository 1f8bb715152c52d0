/*
 * How long until the next one has it.
 *
 * handover  one process holds, another waits in the queue; from before the send
 *           of the UNLOCK to after the read of the waiter's grant.
 * death     the holder's process is killed. The first time is from before the
 *           kill to the grant of a waiter for the first lock. The second one
 *           ends when a survivor that then asks for all locks has them.
 *
 * With a second address the waiter is at another broker. CLOCK_MONOTONIC is one
 * clock for all processes of a host.
 */
#include "tests/bench/histogram.h"
#include "tests/bench/modes.h"
#include "tests/bench/net.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define ANSWER_MS  60000
#define WINDOW     1000
#define LINE_BYTES 48

/* The other process and its two pipes. */
struct child {
    pid_t pid;
    int to;
    int from;
};

/*
 * Forks; in the child returns true with the pipes' other ends. It dies with
 * its parent.
 */
static bool
child_start(struct child *child)
{
    int down[2];
    int up[2];
    bool inside;

    if (pipe(down) != 0 || pipe(up) != 0)
        die("pipe: %s", strerror(errno));
    child->pid = fork();
    if (child->pid < 0)
        die("fork: %s", strerror(errno));
    inside = child->pid == 0;
    if (inside)
        prctl(PR_SET_PDEATHSIG, SIGKILL);
    child->from = inside ? down[0] : up[0];
    child->to = inside ? up[1] : down[1];
    close(inside ? down[1] : up[1]);
    close(inside ? up[0] : down[0]);
    return inside;
}

static void
child_end(struct child *child)
{
    close(child->to);
    close(child->from);
    waitpid(child->pid, NULL, 0);
}

static void
signal_byte(int fd)
{
    write_all(fd, "x", 1);
}

static bool
wait_byte(int fd)
{
    char byte;

    return read_all(fd, &byte, 1);
}

/* The next line that is no event; must begin so, after its tag where `wanted`
 * begins with a space. */
static void
want(struct peer *peer, const char *wanted)
{
    const char *line;

    do {
        line = peer_line(peer, ANSWER_MS);
        if (line == NULL)
            die("'%s' did not come", wanted);
    } while (line[0] == '*');
    if (wanted[0] == ' ')
        line += strcspn(line, " ");
    if (strncmp(line, wanted, strlen(wanted)) != 0)
        die("'%s' wanted, got: %s", wanted, line);
}

static void
want_greeting(struct peer *peer)
{
    const char *line = peer_line(peer, ANSWER_MS);

    if (line == NULL || strncmp(line, "* HELLO ", 8) != 0)
        die("no greeting");
}

/* Waits in the queue each round; reports QUEUED by a byte, then the time. */
static void
waiter_main(const struct child *child, const char *address)
{
    static struct peer peer;

    peer_open(&peer, address);
    want_greeting(&peer);
    while (wait_byte(child->from)) {
        uint64_t granted_ns;

        peer_send(&peer, "1 LOCK handover progress=1\n");
        want(&peer, "1 QUEUED");
        signal_byte(child->to);
        want(&peer, "1 OK");
        granted_ns = clock_ns();
        peer_send(&peer, "2 UNLOCK handover\n");
        want(&peer, "2 OK");
        write_all(child->to, &granted_ns, sizeof(granted_ns));
    }
    exit(0);
}

static uint64_t
handover_round(struct peer *peer, const struct child *child)
{
    uint64_t released_ns;
    uint64_t granted_ns;

    peer_send(peer, "1 LOCK handover\n");
    want(peer, "1 OK");
    signal_byte(child->to);
    if (!wait_byte(child->from))
        die("the waiter ended");
    released_ns = clock_ns();
    peer_send(peer, "2 UNLOCK handover\n");
    if (!read_all(child->from, &granted_ns, sizeof(granted_ns)))
        die("the waiter ended");
    want(peer, "2 OK");
    return granted_ns - released_ns;
}

int
handover_run(const struct options *options)
{
    static struct histogram histogram;
    static struct peer peer;
    struct child child;

    if (child_start(&child))
        waiter_main(&child, options->address[options->addresses - 1]);
    histogram_init(&histogram);
    peer_open(&peer, options->address[0]);
    want_greeting(&peer);
    for (unsigned i = 0; i < options->rounds; i++)
        histogram_add(&histogram, handover_round(&peer, &child));
    child_end(&child);
    printf("{\"mode\":\"handover\",\"brokers\":%u,\"rounds\":%u,"
           "\"handover_us\":",
        options->addresses, options->rounds);
    histogram_print(&histogram, stdout);
    printf("}\n");
    return 0;
}

/* Sends `verb` for the locks from `first` on, WINDOW at a time, and reads as
 * many OKs. */
static void
ask_all(struct peer *peer, const char *verb, unsigned first, unsigned locks)
{
    unsigned asked = first;
    unsigned answered = first;

    while (answered < locks) {
        char out[WINDOW * LINE_BYTES];
        size_t used = 0;

        for (; asked < locks && asked - answered < WINDOW; asked++)
            used += (size_t)snprintf(out + used, sizeof(out) - used,
                "%u %s death%u\n", asked, verb, asked);
        peer_send_bytes(peer, out, used);
        do {
            want(peer, " OK");
            answered++;
        } while (answered < asked && peer_has_line(peer));
    }
}

/* Takes all locks, says so, and waits to be killed. */
static void
victim_main(
    const struct child *child, const struct options *options, unsigned locks)
{
    static struct peer peer;

    peer_open(&peer, options->address[0]);
    want_greeting(&peer);
    ask_all(&peer, "LOCK", 0, locks);
    signal_byte(child->to);
    for (;;)
        pause();
}

/* One try; nanoseconds from the kill to the first grant, and to all. */
static void
death_round(struct peer *peer, const struct options *options, uint64_t *first,
    uint64_t *all)
{
    struct child child;
    uint64_t killed_ns;

    if (child_start(&child))
        victim_main(&child, options, options->locks);
    if (!wait_byte(child.from))
        die("the holder ended by itself");
    peer_send(peer, "1 LOCK death0 progress=1\n");
    want(peer, "1 QUEUED");
    killed_ns = clock_ns();
    kill(child.pid, SIGKILL);
    want(peer, "1 OK");
    *first = clock_ns() - killed_ns;
    ask_all(peer, "LOCK", 1, options->locks);
    *all = clock_ns() - killed_ns;
    ask_all(peer, "UNLOCK", 0, options->locks);
    child_end(&child);
}

int
death_run(const struct options *options)
{
    static struct histogram first;
    static struct histogram all;
    static struct peer peer;

    histogram_init(&first);
    histogram_init(&all);
    peer_open(&peer, options->address[options->addresses - 1]);
    want_greeting(&peer);
    for (unsigned i = 0; i < options->rounds; i++) {
        uint64_t first_ns;
        uint64_t all_ns;

        death_round(&peer, options, &first_ns, &all_ns);
        histogram_add(&first, first_ns);
        histogram_add(&all, all_ns);
    }
    printf("{\"mode\":\"death\",\"brokers\":%u,\"locks\":%u,\"rounds\":%u,"
           "\"first_us\":",
        options->addresses, options->locks, options->rounds);
    histogram_print(&first, stdout);
    printf(",\"all_us\":");
    histogram_print(&all, stdout);
    printf("}\n");
    return 0;
}

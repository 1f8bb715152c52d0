/*
 * Whether a fence ever runs backwards: many grants on a few names, over all the
 * brokers given, while the caller troubles Redis.
 *
 * Two rules, judged by what the clients saw:
 *
 *   - a grant's fence is larger than every fence that was told for that name
 *     before its LOCK was sent;
 *   - no fence of a name is told for two grants.
 *
 * (The order of reading alone does not compare grants. After a wipe under a
 * running Redis, two may believe to hold a lock. The later grant may be read
 * first.) Refusals and losses are counted; they are to be expected. "progress
 * N" on stderr tells the caller when to trouble Redis.
 */
#include "tests/bench/modes.h"
#include "tests/bench/net.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CLIENTS_MAX    64
#define NAMES_MAX      1024
#define PROGRESS_STEPS 100
#define REST_NS        10000000ULL     /* after a refusal */
#define SILENCE_NS     120000000000ULL /* without any grant: give up */

enum client_state {
    CLIENT_RESTING, /* until rest_until */
    CLIENT_LOCKING,
    CLIENT_UNLOCKING,
};

struct client {
    struct peer peer;
    enum client_state state;
    unsigned name;
    uint64_t floor; /* the highest fence told for the name at the LOCK */
    uint64_t rest_until;
};

struct grant {
    unsigned name;
    uint64_t fence;
};

struct fences {
    const struct options *options; /* ref */
    struct client *clients;
    struct grant *grants;
    uint64_t granted;
    uint64_t refused;
    uint64_t lost;     /* events */
    uint64_t not_held; /* at the UNLOCK */
    uint64_t backwards;
    uint64_t doubled;
    uint64_t last_grant_ns;
    uint64_t highest[NAMES_MAX];
};

static void
client_lock(struct fences *fences, struct client *client)
{
    client->state = CLIENT_LOCKING;
    client->floor = fences->highest[client->name];
    peer_send(&client->peer, "1 LOCK fence%u\n", client->name);
}

static void
client_rest(struct client *client)
{
    client->state = CLIENT_RESTING;
    client->rest_until = clock_ns() + REST_NS;
}

static void
client_granted(struct fences *fences, struct client *client, const char *line)
{
    const char *at = strstr(line, " fence=");
    uint64_t fence = at != NULL ? strtoull(at + 7, NULL, 10) : 0;

    if (fence <= client->floor) {
        fences->backwards++;
        fprintf(stderr, "loadgen: fence%u: %llu after %llu: %s\n", client->name,
            (unsigned long long)fence, (unsigned long long)client->floor, line);
    }
    if (fence > fences->highest[client->name])
        fences->highest[client->name] = fence;
    fences->grants[fences->granted].name = client->name;
    fences->grants[fences->granted].fence = fence;
    fences->granted++;
    fences->last_grant_ns = clock_ns();
    if (fences->granted % (fences->options->grants / PROGRESS_STEPS + 1) == 0)
        fprintf(stderr, "progress %llu\n", (unsigned long long)fences->granted);
    client->state = CLIENT_UNLOCKING;
    peer_send(&client->peer, "2 UNLOCK fence%u\n", client->name);
}

static void
client_line(struct fences *fences, struct client *client, const char *line)
{
    bool ok = strncmp(line + 1, " OK", 3) == 0;

    if (line[0] == '*') {
        fences->lost += strncmp(line, "* LOST ", 7) == 0;
    } else if (line[0] == '1' && client->state == CLIENT_LOCKING) {
        if (ok) {
            client_granted(fences, client, line);
        } else {
            fences->refused++;
            client_rest(client);
        }
    } else if (line[0] == '2' && client->state == CLIENT_UNLOCKING) {
        fences->not_held += !ok;
        client_lock(fences, client);
    } else {
        die("an answer to nothing: %s", line);
    }
}

static void
fences_wake(struct fences *fences)
{
    uint64_t now = clock_ns();

    if (now - fences->last_grant_ns > SILENCE_NS)
        die("no grant for %llu s", SILENCE_NS / 1000000000ULL);
    for (unsigned i = 0; i < fences->options->connections; i++) {
        struct client *client = &fences->clients[i];

        if (client->state == CLIENT_RESTING && now >= client->rest_until)
            client_lock(fences, client);
    }
}

static void
fences_turn(struct fences *fences)
{
    struct pollfd wait[CLIENTS_MAX];
    unsigned count = fences->options->connections;

    for (unsigned i = 0; i < count; i++) {
        wait[i].fd = fences->clients[i].peer.fd;
        wait[i].events = POLLIN;
        wait[i].revents = 0;
    }
    if (poll(wait, count, 5) < 0)
        die("poll: %s", strerror(errno));
    for (unsigned i = 0; i < count; i++) {
        struct client *client = &fences->clients[i];

        if (wait[i].revents == 0 || fences->granted == fences->options->grants)
            continue;
        do {
            const char *line = peer_line(&client->peer, 0);

            if (line != NULL)
                client_line(fences, client, line);
        } while (peer_has_line(&client->peer) &&
                 fences->granted < fences->options->grants);
    }
    fences_wake(fences);
}

static int
grant_compare(const void *a, const void *b)
{
    const struct grant *one = a;
    const struct grant *two = b;

    if (one->name != two->name)
        return one->name < two->name ? -1 : 1;
    return (one->fence > two->fence) - (one->fence < two->fence);
}

static void
fences_count_doubled(struct fences *fences)
{
    qsort(fences->grants, fences->granted, sizeof(*fences->grants),
        grant_compare);
    for (uint64_t i = 1; i < fences->granted; i++) {
        if (grant_compare(&fences->grants[i - 1], &fences->grants[i]) != 0)
            continue;
        fences->doubled++;
        fprintf(stderr, "loadgen: fence%u: %llu twice\n",
            fences->grants[i].name,
            (unsigned long long)fences->grants[i].fence);
    }
}

static void
fences_begin(struct fences *fences)
{
    const struct options *options = fences->options;

    if (options->connections > CLIENTS_MAX || options->keys > NAMES_MAX ||
        options->keys == 0)
        die("--connections up to %d, --keys 1 to %d", CLIENTS_MAX, NAMES_MAX);
    fences->clients = calloc(options->connections, sizeof(*fences->clients));
    fences->grants = calloc(options->grants + 1, sizeof(*fences->grants));
    if (fences->clients == NULL || fences->grants == NULL)
        die("no memory");
    fences->last_grant_ns = clock_ns();
    for (unsigned i = 0; i < options->connections; i++) {
        struct client *client = &fences->clients[i];

        /* Each name is asked for at every broker. */
        client->name = i / options->addresses % options->keys;
        peer_open(&client->peer, options->address[i % options->addresses]);
        client_lock(fences, client);
    }
}

int
fence_run(const struct options *options)
{
    static struct fences fences;
    uint64_t begin = clock_ns();
    double seconds;

    fences.options = options;
    fences_begin(&fences);
    while (fences.granted < options->grants)
        fences_turn(&fences);
    seconds = (double)(clock_ns() - begin) / 1e9;
    fences_count_doubled(&fences);
    printf("{\"mode\":\"fence\",\"brokers\":%u,\"names\":%u,"
           "\"connections\":%u,\"grants\":%llu,\"seconds\":%.1f,"
           "\"refused\":%llu,\"lost\":%llu,\"not_held\":%llu,"
           "\"doubled\":%llu,\"backwards\":%llu}\n",
        options->addresses, options->keys, options->connections,
        (unsigned long long)fences.granted, seconds,
        (unsigned long long)fences.refused, (unsigned long long)fences.lost,
        (unsigned long long)fences.not_held, (unsigned long long)fences.doubled,
        (unsigned long long)fences.backwards);
    for (unsigned i = 0; i < options->connections; i++)
        peer_close(&fences.clients[i].peer);
    free(fences.clients);
    free(fences.grants);
    return fences.backwards + fences.doubled == 0 ? 0 : 1;
}

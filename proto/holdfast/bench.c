/*
 * The command bench: the speed of a broker. Each connection takes and releases
 * one lock after another, for some time, in one process and one loop.
 *
 * With as many keys as connections, or more, no two connections share a key. A
 * pair counts if its UNLOCK was answered in time. At the end the command waits
 * up to a second for open requests. The end of a connection releases the rest.
 */
#define _GNU_SOURCE 1

#include "daemon/base/assert.h"
#include "proto/holdfast/escape.h"
#include "proto/holdfast/loop.h"
#include "proto/holdfast/options.h"
#include "proto/holdfast/out.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#define CONNECTIONS     10
#define CONNECTIONS_MAX 1000
#define KEYS_MAX        1000000
#define DURATION_MS     5000
#define DURATION_MAX_MS 3600000
#define PREFIX          "bench/"
#define CONNECT_MS      10000
#define DRAIN_MS        1000
#define DESCRIPTORS     40 /* beside those of connections */

/* --- latencies ------------------------------------------------------------ */

/*
 * A histogram with 64 steps for each power of two: an error of 1.6 % at most.
 */
#define STEPS_LOG 6
#define STEPS     (1u << STEPS_LOG)
#define LOGS      34 /* powers of two above STEPS: up to 12 days, in µs */

struct latency {
    uint64_t count;
    uint64_t max_us;
    uint64_t step[STEPS * (LOGS + 1)];
};

static void
latency_add(struct latency *latency, uint64_t us)
{
    uint64_t place = us;
    unsigned shift = 0;

    while (place >= 2 * STEPS && shift < LOGS - 1) {
        place >>= 1;
        shift++;
    }
    if (place >= 2 * STEPS)
        place = 2 * STEPS - 1;
    require(shift * STEPS + place < COUNT(latency->step));
    latency->step[shift * STEPS + place]++;
    latency->count++;
    if (us > latency->max_us)
        latency->max_us = us;
}

/* The percentile: `percent` of a hundred values do not exceed it. */
static uint64_t
latency_at(const struct latency *latency, uint64_t percent)
{
    uint64_t rank = (latency->count * percent + 99) / 100;
    uint64_t count = 0;

    for (size_t i = 0; i < COUNT(latency->step); i++) {
        count += latency->step[i];
        if (count < rank || count == 0)
            continue;
        size_t shift = i < 2 * STEPS ? 0 : i / STEPS - 1;
        uint64_t us = ((uint64_t)(i - shift * STEPS + 1) << shift) - 1;
        return us < latency->max_us ? us : latency->max_us;
    }
    return 0;
}

/* --- the bench ------------------------------------------------------------ */

enum bench_op {
    OP_PAIR, /* from the sending of the LOCK to the UNLOCK's answer */
    OP_LOCK,
    OP_UNLOCK,
    OPS
};

static const char *const op_words[OPS] = {"pair", "lock", "unlock"};

enum client_state {
    CLIENT_GREETS, /* its PING is not answered yet */
    CLIENT_IDLE,
    CLIENT_LOCKS,
    CLIENT_UNLOCKS,
    CLIENT_OVER,
};

struct client {
    struct holdfast *h; /* owned; NULL: CLIENT_OVER */
    enum client_state state;
    uint64_t request; /* awaits its answer */
    uint64_t key;
    uint64_t fence;
    uint64_t began_us; /* when its LOCK was sent */
    uint64_t asked_us; /* when `request` was sent */
};

struct bench {
    struct settings *settings; /* ref */
    struct loop *loop;         /* ref */
    const char *prefix;        /* ref */
    uint64_t keys;
    uint64_t count; /* of clients */
    uint64_t duration_ms;
    struct holdfast_lock_options ask;
    struct client *clients; /* owned */
    struct pollfd *entries; /* owned; of the clients, then of the signals */
    size_t greeting;        /* clients in CLIENT_GREETS */
    size_t busy;            /* clients in CLIENT_LOCKS or CLIENT_UNLOCKS */
    size_t over;            /* clients in CLIENT_OVER */
    bool measures;
    bool interrupted;
    uint64_t took_us;
    uint64_t errors[OPS]; /* of OP_PAIR: connections that were lost */
    char first[256];      /* the first error */
    struct latency latency[OPS];
};

static uint64_t
now_us(void)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

static void
bench_error(
    struct bench *bench, enum bench_op op, const char *code, const char *text)
{
    char escaped[200];
    char word[40];

    if (bench->measures)
        bench->errors[op]++;
    if (bench->first[0] == '\0')
        (void)snprintf(bench->first, sizeof(bench->first), "%s%s%s",
            escape_text(code, word, sizeof(word)), code[0] != '\0' ? ": " : "",
            escape_text(text, escaped, sizeof(escaped)));
}

static void
client_set_state(
    struct bench *bench, struct client *client, enum client_state state)
{
    bench->greeting -= client->state == CLIENT_GREETS;
    bench->busy -=
        client->state == CLIENT_LOCKS || client->state == CLIENT_UNLOCKS;
    bench->over -= client->state == CLIENT_OVER;
    client->state = state;
    bench->greeting += state == CLIENT_GREETS;
    bench->busy += state == CLIENT_LOCKS || state == CLIENT_UNLOCKS;
    bench->over += state == CLIENT_OVER;
    require(bench->greeting + bench->busy + bench->over <= bench->count);
}

static void
client_end(struct bench *bench, struct client *client)
{
    client_set_state(bench, client, CLIENT_OVER);
    holdfast_destroy(&client->h);
}

static void
client_fail(struct bench *bench, struct client *client, const char *why)
{
    bench_error(bench, OP_PAIR, "", why);
    client_end(bench, client);
}

/* Sends the next LOCK, or the UNLOCK. */
static void
client_ask(struct bench *bench, struct client *client, enum client_state what)
{
    char key[HOLDFAST_NAME_MAX + 1];
    enum holdfast_status status;

    if (what == CLIENT_LOCKS && bench->keys > bench->count) {
        client->key += bench->count;
        if (client->key >= bench->keys)
            client->key = (uint64_t)(client - bench->clients);
    }
    (void)snprintf(key, sizeof(key), "%s%" PRIu64, bench->prefix, client->key);
    client->asked_us = now_us();
    if (what == CLIENT_LOCKS) {
        client->began_us = client->asked_us;
        status =
            holdfast_submit_lock(client->h, key, &bench->ask, &client->request);
    } else {
        status = holdfast_submit_unlock(
            client->h, key, NULL, client->fence, &client->request);
    }
    if (status != HOLDFAST_SUCCESS) {
        client_fail(bench, client, holdfast_status_text(status));
        return;
    }
    client_set_state(bench, client, what);
    holdfast_process(client->h, 0); /* it is sent now */
}

/* A pair is over, and another one follows while the bench measures. */
static void
client_next(struct bench *bench, struct client *client)
{
    if (bench->measures)
        client_ask(bench, client, CLIENT_LOCKS);
    else
        client_set_state(bench, client, CLIENT_IDLE);
}

static void
client_refused(struct bench *bench, struct client *client,
    const struct holdfast_event *event)
{
    const char *retry = holdfast_event_value(event, "retry");
    bool again = client->state == CLIENT_UNLOCKS ||
                 (retry != NULL && strcmp(retry, "1") == 0);

    bench_error(bench, client->state == CLIENT_UNLOCKS ? OP_UNLOCK : OP_LOCK,
        event->word, event->text);
    if (again && client->state != CLIENT_GREETS)
        client_next(bench, client);
    else
        client_end(bench, client); /* every other LOCK would fail too */
}

/* The OK to the request. */
static void
client_answered(struct bench *bench, struct client *client,
    const struct holdfast_event *event)
{
    uint64_t now = now_us();

    if (client->state == CLIENT_GREETS) {
        client_set_state(bench, client, CLIENT_IDLE);
    } else if (client->state == CLIENT_LOCKS) {
        if (bench->measures)
            latency_add(&bench->latency[OP_LOCK], now - client->asked_us);
        client->fence = event->fence;
        client_ask(bench, client, CLIENT_UNLOCKS);
    } else {
        if (bench->measures) {
            latency_add(&bench->latency[OP_UNLOCK], now - client->asked_us);
            latency_add(&bench->latency[OP_PAIR], now - client->began_us);
        }
        client_next(bench, client);
    }
}

static void
client_events(struct bench *bench, struct client *client)
{
    struct holdfast_event event;

    while (client->h != NULL && holdfast_next(client->h, &event)) {
        if (event.kind == HOLDFAST_CLOSED)
            client_fail(bench, client, event.text);
        else if (event.request == 0 || event.request != client->request)
            continue;
        else if (event.kind == HOLDFAST_OK)
            client_answered(bench, client, &event);
        else if (event.kind == HOLDFAST_ERR)
            client_refused(bench, client, &event);
    }
}

/*
 * A turn of the loop, until `until_us` at most. False: a signal ends the bench.
 */
static bool
bench_turn(struct bench *bench, uint64_t until_us)
{
    uint64_t now = now_us();
    int wait_ms = now < until_us ? (int)((until_us - now + 999) / 1000) : 0;
    int signal;

    for (size_t i = 0; i < bench->count; i++) {
        struct holdfast *h = bench->clients[i].h;
        int own_ms = h != NULL ? holdfast_timeout_ms(h) : -1;

        bench->entries[i].fd = h != NULL ? holdfast_fd(h) : -1;
        bench->entries[i].events = h != NULL ? holdfast_events(h) : 0;
        bench->entries[i].revents = 0;
        if (own_ms >= 0 && own_ms < wait_ms)
            wait_ms = own_ms;
    }
    (void)poll(bench->entries, bench->count + 1, wait_ms);
    for (size_t i = 0; i < bench->count; i++) {
        struct client *client = &bench->clients[i];
        short revents = bench->entries[i].revents;

        if (client->h == NULL ||
            (revents == 0 && holdfast_timeout_ms(client->h) != 0))
            continue;
        holdfast_process(client->h, revents);
        client_events(bench, client);
    }
    while ((signal = loop_signal(bench->loop)) != 0) {
        if (loop_signal_ends(bench->loop, signal))
            return false;
        if (signal == SIGTSTP)
            loop_stop_self();
    }
    return true;
}

/* --- the course ---------------------------------------------------------- */

/* Raises the limit of descriptors. False after a complaint. */
static bool
bench_descriptors(uint64_t count)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) != 0)
        return true;
    if (limit.rlim_cur < count + DESCRIPTORS) {
        limit.rlim_cur = count + DESCRIPTORS < limit.rlim_max
                             ? count + DESCRIPTORS
                             : limit.rlim_max;
        (void)setrlimit(RLIMIT_NOFILE, &limit);
    }
    if (limit.rlim_cur >= count + DESCRIPTORS)
        return true;
    complain("bench: %" PRIu64 " connections need a limit of %" PRIu64
             " descriptors; raise it with ulimit -n",
        count, count + DESCRIPTORS);
    return false;
}

/* Connects all clients. A PING proves that the broker accepts the user. False
 * after a complaint, or a signal. */
static bool
bench_connect(struct bench *bench)
{
    struct holdfast_options options = {.name = "holdfast bench"};

    if (!connect_options(bench->settings, &options))
        return false;
    for (size_t i = 0; i < bench->count; i++) {
        struct client *client = &bench->clients[i];
        enum holdfast_status status =
            holdfast_create_with(&options, &client->h);

        client->key = i % bench->keys;
        if (status == HOLDFAST_SUCCESS)
            status = holdfast_submit(client->h, "PING", &client->request);
        if (status != HOLDFAST_SUCCESS) {
            complain("%s: %s", options.address, holdfast_status_text(status));
            return false;
        }
    }
    uint64_t end = now_us() + (uint64_t)CONNECT_MS * 1000;
    while (bench->greeting > 0 && bench->over == 0 && now_us() < end) {
        bench->interrupted = !bench_turn(bench, end);
        if (bench->interrupted)
            return false;
    }
    if (bench->greeting == 0 && bench->over == 0)
        return true;
    complain("%s: %s", options.address,
        bench->over > 0 ? bench->first : "the broker does not answer");
    return false;
}

/* Measures for the given time, then waits for open requests. */
static void
bench_measure(struct bench *bench)
{
    uint64_t start = now_us();
    uint64_t end = start + bench->duration_ms * 1000;

    bench->measures = true;
    for (size_t i = 0; i < bench->count; i++)
        client_ask(bench, &bench->clients[i], CLIENT_LOCKS);
    while (now_us() < end && bench->over < bench->count && !bench->interrupted)
        bench->interrupted = !bench_turn(bench, end);
    bench->measures = false;
    bench->took_us = now_us() - start;
    end = now_us() + (uint64_t)DRAIN_MS * 1000;
    while (bench->busy > 0 && now_us() < end)
        if (!bench_turn(bench, end))
            break;
}

/* --- output --------------------------------------------------------------- */

static const struct out_column bench_columns[] = {
    {"op", "OP", OUT_TYPE_TEXT},
    {"count", "COUNT", OUT_TYPE_NUMBER},
    {"per_second", "PER_SECOND", OUT_TYPE_NUMBER},
    {"p50_us", "P50", OUT_TYPE_US},
    {"p99_us", "P99", OUT_TYPE_US},
    {"max_us", "MAX", OUT_TYPE_US},
    {"errors", "ERRORS", OUT_TYPE_NUMBER},
    {"connections", "CONNECTIONS", OUT_TYPE_NUMBER},
    {"keys", "KEYS", OUT_TYPE_NUMBER},
    {"time_ms", "TIME", OUT_TYPE_MS},
};

#define COLUMNS COUNT(bench_columns)

/* Prints one row. False: stdout is gone, or no memory. */
static bool
bench_row(struct out *out, const struct bench *bench, enum bench_op op)
{
    const struct latency *latency = &bench->latency[op];
    uint64_t took_us = bench->took_us > 0 ? bench->took_us : 1;
    uint64_t errors = bench->errors[op];
    struct holdfast_pair pairs[COLUMNS];
    char digits[COLUMNS][24];

    for (size_t i = 0; op == OP_PAIR && i < OPS; i++)
        errors += i != OP_PAIR ? bench->errors[i] : 0;
    const uint64_t value[COLUMNS] = {0, latency->count,
        latency->count * 1000000 / took_us, latency_at(latency, 50),
        latency_at(latency, 99), latency->max_us, errors, bench->count,
        bench->keys, bench->took_us / 1000};
    for (size_t i = 0; i < COLUMNS; i++) {
        const char *text = op_words[op];

        if (i > 0) {
            (void)snprintf(digits[i], sizeof(digits[i]), "%" PRIu64, value[i]);
            text = digits[i];
        }
        pairs[i] =
            (struct holdfast_pair){bench_columns[i].key, text, strlen(text)};
    }
    const struct holdfast_event row = {.kind = HOLDFAST_ITEM,
        .word = "",
        .pairs = pairs,
        .pair_count = COLUMNS,
        .text = ""};
    return out_row(out, &row);
}

/* Prints the rows; the exit status. */
static int
bench_print(const struct bench *bench)
{
    struct out *out =
        out_create(bench->settings->format, bench_columns, COLUMNS);
    bool written = out != NULL;
    uint64_t errors = 0;

    for (enum bench_op op = 0; op < OPS; op++) {
        written = written && bench_row(out, bench, op);
        errors += bench->errors[op];
    }
    written = out_destroy(&out) && written;
    if (errors > 0)
        complain(
            "bench: %" PRIu64 " errors, the first: %s", errors, bench->first);
    if (!written) {
        complain("cannot write");
        return STATUS_TROUBLE;
    }
    return errors > 0 ? STATUS_REFUSED : STATUS_FINE;
}

static int
bench_run(struct bench *bench)
{
    int status = STATUS_TROUBLE;

    bench->clients = calloc(bench->count, sizeof(*bench->clients));
    bench->entries = calloc(bench->count + 1, sizeof(*bench->entries));
    bench->greeting = bench->count;
    if (bench->clients == NULL || bench->entries == NULL) {
        complain("out of memory");
    } else {
        bench->entries[bench->count] =
            (struct pollfd){.fd = bench->loop->signal_fd, .events = POLLIN};
        if (bench_connect(bench)) {
            bench_measure(bench);
            status = bench_print(bench);
        } else if (bench->interrupted) {
            status = STATUS_FINE;
        }
        for (size_t i = 0; i < bench->count; i++)
            holdfast_destroy(&bench->clients[i].h);
    }
    free(bench->clients);
    free(bench->entries);
    return status;
}

/* Reads the command line. False: *status is the exit status. */
static bool
bench_parse(struct bench *bench, char **argv, int *status)
{
    const struct option options[] = {
        {.name = "c", .max = CONNECTIONS_MAX, .number = &bench->count},
        {.name = "t", .duration_ms = &bench->duration_ms},
        {.name = "keys", .max = KEYS_MAX, .number = &bench->keys},
        {.name = "wait", .duration_ms = &bench->ask.wait_ms},
    };
    struct words words;

    bool taken = words_take(
        bench->settings, "bench", options, COUNT(options), argv, &words);
    *status = words.status;
    if (!taken)
        return false;
    if (words.count == 1)
        bench->prefix = words.word[0];
    if (strlen(bench->prefix) > HOLDFAST_NAME_MAX - 6) {
        complain("bench: a KEY-PREFIX must have at most %d bytes",
            HOLDFAST_NAME_MAX - 6);
        return false;
    }
    if (bench->duration_ms == 0 || bench->duration_ms > DURATION_MAX_MS) {
        complain("-t: %" PRIu64 "ms is not a duration from 1ms to 1h",
            bench->duration_ms);
        return false;
    }
    if (bench->keys == 0)
        bench->keys = bench->count;
    return bench_descriptors(bench->count);
}

int
command_bench(struct settings *settings, char **argv)
{
    struct bench *bench = calloc(1, sizeof(*bench));
    struct loop loop;
    int status = STATUS_TROUBLE;

    if (bench == NULL) {
        complain("out of memory");
        return status;
    }
    bench->settings = settings;
    bench->loop = &loop;
    bench->prefix = PREFIX;
    bench->count = CONNECTIONS;
    bench->duration_ms = DURATION_MS;
    bench->ask = (struct holdfast_lock_options){.wait_ms = HOLDFAST_FOREVER};
    if (bench_parse(bench, argv, &status)) {
        status = STATUS_TROUBLE;
        if (loop_init(&loop)) {
            status = bench_run(bench);
            loop_fini(&loop);
        }
    }
    free(bench);
    return status;
}

/*
 * The closed loop: N connections, each with some lanes; a lane takes a lock,
 * gives it back and begins again. One thread, one epoll.
 *
 * All back ends go through the same reads and writes. A readable socket has one
 * read, then all complete replies, then one write with the requests that
 * follow. With TLS each record has that. A latency is from before the write of
 * a request to after the read that brought the last byte of its reply.
 *
 * At the end lanes stop after a release, so that no lock stays behind.
 */
#include "tests/bench/channel.h"
#include "tests/bench/histogram.h"
#include "tests/bench/modes.h"
#include "tests/bench/net.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>

#define EVENTS_MAX 256
#define IN_BYTES   16384
#define DRAIN_S    30
#define WRONG_MAX  1000
#define NS         1000000000.0

enum phase {
    PHASE_WARM_UP,
    PHASE_MEASURE,
    PHASE_DRAIN,
};

struct lane {
    uint64_t sent_ns;
    unsigned key;
    bool releasing;
};

struct connection {
    struct channel channel;
    unsigned number;
    struct lane *lanes; /* owned */
    unsigned *order;    /* owned; ring of lanes by the time of asking */
    unsigned order_first;
    unsigned order_count;
    char *out; /* owned */
    size_t out_used;
    size_t in_used;
    char in[IN_BYTES];
};

struct load {
    const struct options *options; /* ref */
    const struct backend *backend; /* ref */
    struct connection *connections;
    int epoll;
    enum phase phase;
    unsigned lanes_running;
    uint64_t now_ns; /* of the last read or before the last write */
    uint64_t pairs;
    uint64_t busy;
    uint64_t wrong;
    uint64_t connect_begin_ns;
    uint64_t connect_end_ns;
    uint64_t begin_ns;
    uint64_t end_ns;
    uint64_t cpu_begin[CPU_PIDS_MAX];
    uint64_t cpu_end[CPU_PIDS_MAX];
    uint64_t own_begin_ns;
    uint64_t own_end_ns;
    struct histogram acquire;
    struct histogram release;
};

/* The first number in a thread's schedstat: nanoseconds on a CPU. */
static uint64_t
thread_cpu_ns(pid_t pid, const char *thread)
{
    char path[64];
    char line[128];
    FILE *file;
    uint64_t ns = 0;

    snprintf(
        path, sizeof(path), "/proc/%d/task/%.16s/schedstat", (int)pid, thread);
    file = fopen(path, "re");
    if (file == NULL)
        return 0; /* it has just ended */
    if (fgets(line, sizeof(line), file) != NULL)
        ns = strtoull(line, NULL, 10);
    fclose(file);
    return ns;
}

uint64_t
cpu_ns_of(pid_t pid)
{
    char path[64];
    DIR *threads;
    const struct dirent *entry;
    uint64_t ns = 0;

    snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
    threads = opendir(path);
    if (threads == NULL)
        die("process %d does not run", (int)pid);
    while ((entry = readdir(threads)) != NULL) {
        if (entry->d_name[0] != '.')
            ns += thread_cpu_ns(pid, entry->d_name);
    }
    closedir(threads);
    return ns;
}

static uint64_t
cpu_ns_own(void)
{
    struct rusage usage;

    getrusage(RUSAGE_SELF, &usage);
    return ((uint64_t)usage.ru_utime.tv_sec + (uint64_t)usage.ru_stime.tv_sec) *
               1000000000U +
           ((uint64_t)usage.ru_utime.tv_usec +
               (uint64_t)usage.ru_stime.tv_usec) *
               1000U;
}

static void
load_ask(struct load *load, struct connection *connection, unsigned number)
{
    struct lane *lane = &connection->lanes[number];
    unsigned lanes = load->options->lanes;
    struct request request = {
        .connection = connection->number,
        .lane = number,
        .key = lane->key,
        .releasing = lane->releasing,
    };

    connection->out_used +=
        load->backend->write(&request, connection->out + connection->out_used);
    connection
        ->order[(connection->order_first + connection->order_count) % lanes] =
        number;
    connection->order_count++;
    lane->sent_ns = 0; /* the flush sets it */
}

static void
load_flush(struct load *load, struct connection *connection)
{
    if (connection->out_used == 0)
        return;
    load->now_ns = clock_ns();
    for (unsigned i = 0; i < load->options->lanes; i++) {
        if (connection->lanes[i].sent_ns == 0)
            connection->lanes[i].sent_ns = load->now_ns;
    }
    channel_write(&connection->channel, connection->out, connection->out_used);
    connection->out_used = 0;
}

static void
load_complain(struct load *load, const struct reply *reply)
{
    load->wrong++;
    if (load->wrong <= 5)
        fprintf(stderr, "loadgen: unexpected: %.*s\n", (int)reply->why_bytes,
            reply->why);
    if (load->wrong > WRONG_MAX)
        die("too many unexpected replies");
}

/* The lane of a reply: named in it, or the one that asked first. */
static unsigned
load_lane_of(
    struct load *load, struct connection *connection, const struct reply *reply)
{
    unsigned lanes = load->options->lanes;
    unsigned lane;

    if (connection->order_count == 0)
        die("a reply to nothing: %.*s", (int)reply->why_bytes, reply->why);
    lane = connection->order[connection->order_first];
    connection->order_first = (connection->order_first + 1) % lanes;
    connection->order_count--;
    if (reply->lane < 0)
        return lane;
    if ((unsigned)reply->lane >= lanes)
        die("a reply with a wrong tag: %.*s", (int)reply->why_bytes,
            reply->why);
    return (unsigned)reply->lane;
}

static void
load_take(
    struct load *load, struct connection *connection, const struct reply *reply)
{
    unsigned number = load_lane_of(load, connection, reply);
    struct lane *lane = &connection->lanes[number];
    enum verdict verdict = load->backend->judge(reply, lane->releasing);
    uint64_t took_ns = load->now_ns - lane->sent_ns;

    if (verdict == VERDICT_WRONG)
        load_complain(load, reply);
    if (verdict == VERDICT_BUSY)
        load->busy++;
    if (verdict == VERDICT_DONE && load->phase == PHASE_MEASURE) {
        histogram_add(
            lane->releasing ? &load->release : &load->acquire, took_ns);
        load->pairs += lane->releasing;
    }
    if (load->phase == PHASE_DRAIN &&
        (lane->releasing || verdict != VERDICT_DONE)) {
        load->lanes_running--;
        return;
    }
    lane->releasing = verdict == VERDICT_DONE && !lane->releasing;
    load_ask(load, connection, number);
}

static void
load_parse(struct load *load, struct connection *connection)
{
    size_t taken = 0;
    struct reply reply;
    size_t bytes;

    while ((bytes = load->backend->read(connection->in + taken,
                connection->in_used - taken, &reply)) > 0) {
        if (reply.kind == REPLY_EVENT)
            load_complain(load, &reply);
        else
            load_take(load, connection, &reply);
        taken += bytes;
    }
    memmove(
        connection->in, connection->in + taken, connection->in_used - taken);
    connection->in_used -= taken;
}

static void
load_readable(struct load *load, struct connection *connection)
{
    size_t bytes;

    while ((bytes = channel_read(&connection->channel,
                connection->in + connection->in_used,
                sizeof(connection->in) - connection->in_used)) > 0) {
        load->now_ns = clock_ns();
        connection->in_used += bytes;
        load_parse(load, connection);
        load_flush(load, connection);
        if (!channel_has_more(&connection->channel))
            return;
    }
}

static void
load_connect(struct load *load, unsigned number)
{
    const struct options *options = load->options;
    struct connection *connection = &load->connections[number];
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = connection};
    unsigned lanes = options->lanes;

    connection->number = number;
    connection->lanes = calloc(lanes, sizeof(*connection->lanes));
    connection->order = calloc(lanes, sizeof(*connection->order));
    connection->out = malloc((size_t)lanes * REQUEST_BYTES_MAX);
    if (connection->lanes == NULL || connection->order == NULL ||
        connection->out == NULL)
        die("no memory");
    for (unsigned i = 0; i < lanes; i++) {
        connection->lanes[i].key = number * lanes + i;
        if (options->keys > 0)
            connection->lanes[i].key %= options->keys;
    }
    channel_open(&connection->channel,
        options->address[number % options->addresses], load->backend->greets);
    if (epoll_ctl(load->epoll, EPOLL_CTL_ADD, connection->channel.fd, &event) !=
        0)
        die("epoll: %s", strerror(errno));
}

static void
load_begin(struct load *load)
{
    load->backend->prepare(load->options->address[0]);
    load->epoll = epoll_create1(EPOLL_CLOEXEC);
    load->connections =
        calloc(load->options->connections, sizeof(*load->connections));
    if (load->epoll < 0 || load->connections == NULL)
        die("no memory");
    load->connect_begin_ns = clock_ns();
    for (unsigned i = 0; i < load->options->connections; i++)
        load_connect(load, i);
    load->connect_end_ns = clock_ns();
    for (unsigned i = 0; i < load->options->connections; i++) {
        for (unsigned lane = 0; lane < load->options->lanes; lane++)
            load_ask(load, &load->connections[i], lane);
        load_flush(load, &load->connections[i]);
    }
    load->lanes_running = load->options->connections * load->options->lanes;
}

static void
load_read_cpu(struct load *load, uint64_t *cpu, uint64_t *own)
{
    for (unsigned i = 0; i < load->options->cpu_pids; i++)
        cpu[i] = cpu_ns_of(load->options->cpu_pid[i]);
    *own = cpu_ns_own();
}

/* The CPU times are read within the measured time, so both ends alike. */
static void
load_next_phase(struct load *load)
{
    if (load->phase == PHASE_WARM_UP) {
        load->phase = PHASE_MEASURE;
        load_read_cpu(load, load->cpu_begin, &load->own_begin_ns);
        load->begin_ns = clock_ns();
    } else {
        load->phase = PHASE_DRAIN;
        load->end_ns = clock_ns();
        load_read_cpu(load, load->cpu_end, &load->own_end_ns);
    }
}

static void
load_loop(struct load *load)
{
    struct epoll_event events[EVENTS_MAX];
    uint64_t start = clock_ns();
    uint64_t measure_at = start + (uint64_t)(load->options->warm_up_s * NS);
    uint64_t drain_at = measure_at + (uint64_t)(load->options->seconds * NS);

    while (load->phase != PHASE_DRAIN || load->lanes_running > 0) {
        int count = epoll_wait(load->epoll, events, EVENTS_MAX, 100);
        uint64_t now = clock_ns();

        if (load->phase == PHASE_WARM_UP && now >= measure_at)
            load_next_phase(load);
        else if (load->phase == PHASE_MEASURE && now >= drain_at)
            load_next_phase(load);
        else if (now >= drain_at + DRAIN_S * 1000000000ULL)
            die("%u requests are not answered", load->lanes_running);
        for (int i = 0; i < count; i++)
            load_readable(load, events[i].data.ptr);
    }
}

static void
load_print(const struct load *load)
{
    const struct options *options = load->options;
    double seconds = (double)(load->end_ns - load->begin_ns) / NS;
    double requests = (double)load->pairs * 2.0;

    printf("{\"mode\":\"%s\",\"connections\":%u,\"lanes\":%u,\"keys\":%u,"
           "\"seconds\":%.3f,\"pairs\":%llu,\"pairs_per_s\":%.0f,"
           "\"busy\":%llu,\"errors\":%llu,\"connect_us\":%.1f,"
           "\"acquire_us\":",
        options->mode, options->connections, options->lanes, options->keys,
        seconds, (unsigned long long)load->pairs, (double)load->pairs / seconds,
        (unsigned long long)load->busy, (unsigned long long)load->wrong,
        (double)(load->connect_end_ns - load->connect_begin_ns) / 1000.0 /
            options->connections);
    histogram_print(&load->acquire, stdout);
    printf(",\"release_us\":");
    histogram_print(&load->release, stdout);
    printf(",\"generator_cpu_us_per_request\":%.2f,"
           "\"generator_cpu_share\":%.2f,\"cpu\":[",
        (double)(load->own_end_ns - load->own_begin_ns) / 1000.0 / requests,
        (double)(load->own_end_ns - load->own_begin_ns) / NS / seconds);
    for (unsigned i = 0; i < options->cpu_pids; i++) {
        double used = (double)(load->cpu_end[i] - load->cpu_begin[i]);

        printf("%s{\"pid\":%d,\"us\":%.0f,\"us_per_request\":%.3f,"
               "\"share\":%.3f}",
            i > 0 ? "," : "", (int)options->cpu_pid[i], used / 1000.0,
            used / 1000.0 / requests, used / NS / seconds);
    }
    printf("]}\n");
}

static void
load_end(struct load *load)
{
    for (unsigned i = 0; i < load->options->connections; i++) {
        channel_close(&load->connections[i].channel);
        free(load->connections[i].lanes);
        free(load->connections[i].order);
        free(load->connections[i].out);
    }
    free(load->connections);
}

int
load_run(const struct options *options, const struct backend *backend)
{
    static struct load load;

    load.options = options;
    load.backend = backend;
    if (options->tls_ca != NULL)
        channels_use_tls(options->tls_ca);
    histogram_init(&load.acquire);
    histogram_init(&load.release);
    load_begin(&load);
    load_loop(&load);
    load_print(&load);
    load_end(&load);
    return load.wrong == 0 ? 0 : 1;
}

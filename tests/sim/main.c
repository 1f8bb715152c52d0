/*
 * holdfast-sim: runs of the simulator, one by seed or many at a time.
 *
 * Many seeds are shared out among worker processes, so that a crash costs one
 * seed and is reported with it. Each takes the next one from a shared board
 * when it is done with one. A seed with a violation is shrunk.
 */
#include "daemon/base/assert.h"
#include "tests/sim/run.h"
#include "tests/sim/shrink.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define WORKERS_MAX 64
#define FAILED_MAX  20
#define RARE        10000 /* seeds; each setting is more frequent than that */

struct options {
    uint64_t seed;
    uint64_t count; /* of runs; 0: one, by seed */
    uint64_t run_us;
    double hours; /* of real time; 0: by count */
    unsigned jobs;
    bool trace;
    bool shrink;
    bool twice;
    const char *set;
    const char *record;
    uint32_t settings; /* that are run, bits of enum setting; 0: all */
    bool lines;
};

static void
usage(FILE *file)
{
    fputs("usage: holdfast-sim --seed N [--set KEY=VALUE,...] [--trace]\n"
          "       holdfast-sim --count N [--seed FIRST] [--jobs N]\n"
          "  --seconds S   virtual seconds of a run, with faults (60)\n"
          "  --hours H     as many seeds as fit, instead of --count\n"
          "  --settings S,...  only seeds of these: single, sentinel,\n"
          "                sentinel_strict, cluster, cluster_strict, quorum\n"
          "  --twice       each seed twice: the traces must be equal\n"
          "  --no-shrink   leave a seed with a violation as it is\n"
          "  --record FILE append the summary as a line of JSON\n"
          "  --lines       also say which lines of the scripts never ran\n",
        file);
}

static double
seconds_now(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static uint64_t
number_of(const char *text)
{
    char *end;
    uint64_t value = strtoull(text, &end, 10);

    if (*text == '\0' || *end != '\0') {
        usage(stderr);
        exit(64);
    }
    return value;
}

static enum setting
setting_of(const char *name, size_t len)
{
    for (int i = 0; i < SETTING_COUNT; i++)
        if (strlen(setting_names[i]) == len &&
            memcmp(setting_names[i], name, len) == 0)
            return (enum setting)i;
    usage(stderr);
    exit(64);
}

static uint32_t
settings_of(const char *names)
{
    uint32_t settings = 0;

    for (;;) {
        size_t len = strcspn(names, ",");
        settings |= UINT32_C(1) << setting_of(names, len);
        if (names[len] == '\0')
            return settings;
        names += len + 1;
    }
}

static void
options_parse(struct options *options, int argc, char **argv)
{
    bool seed = false;

    for (int i = 1; i < argc; i++) {
        const char *word = argv[i];
        const char *value = i + 1 < argc ? argv[i + 1] : "";
        if (strcmp(word, "--trace") == 0)
            options->trace = true;
        else if (strcmp(word, "--no-shrink") == 0)
            options->shrink = false;
        else if (strcmp(word, "--twice") == 0)
            options->twice = true;
        else if (strcmp(word, "--lines") == 0)
            options->lines = true;
        else if (strcmp(word, "--help") == 0)
            usage(stdout), exit(0);
        else if (strcmp(word, "--seed") == 0)
            options->seed = number_of(value), seed = true, i++;
        else if (strcmp(word, "--count") == 0)
            options->count = number_of(value), i++;
        else if (strcmp(word, "--seconds") == 0)
            options->run_us = number_of(value) * 1000000, i++;
        else if (strcmp(word, "--jobs") == 0)
            options->jobs = (unsigned)number_of(value), i++;
        else if (strcmp(word, "--hours") == 0)
            options->hours = strtod(value, NULL), i++;
        else if (strcmp(word, "--set") == 0)
            options->set = value, i++;
        else if (strcmp(word, "--record") == 0)
            options->record = value, i++;
        else if (strcmp(word, "--settings") == 0)
            options->settings = settings_of(value), i++;
        else
            usage(stderr), exit(64);
    }
    if (!seed && options->count == 0 && options->hours <= 0)
        usage(stderr), exit(64);
}

static void
options_plan(const struct options *options, uint64_t seed, struct plan *plan)
{
    plan_draw(plan, seed, options->run_us);
    if (options->set != NULL && !plan_set(plan, options->set)) {
        fprintf(
            stderr, "holdfast-sim: --set %s: not understood\n", options->set);
        exit(64);
    }
}

static bool
options_want(const struct options *options, const struct plan *plan)
{
    return options->settings == 0 ||
           (options->settings >> plan_setting(plan) & 1) != 0;
}

/* The seed after the last one, where so many runs are wanted. */
static uint64_t
options_end(const struct options *options)
{
    uint64_t seed = options->seed, last = seed;

    if (options->hours > 0)
        return UINT64_MAX;
    for (uint64_t left = options->count; left > 0; seed++) {
        struct plan plan;
        options_plan(options, seed, &plan);
        if (options_want(options, &plan))
            left--, last = seed;
        if (seed - last < RARE)
            continue;
        fputs("holdfast-sim: --set leaves none of --settings\n", stderr);
        exit(64);
    }
    return seed;
}

static void
say_result(const struct result *result)
{
    printf("seed=%" PRIu64 " hash=%016" PRIx64 " grants=%" PRIu64
           " faults=%" PRIu64 " violations=%" PRIu64 "\n",
        result->seed, result->hash, result->totals.grants,
        result_faults(result), result->totals.violations);
}

/* One run in this process. */
static int
run_one(const struct options *options)
{
    struct plan plan;
    struct result result;

    options_plan(options, options->seed, &plan);
    plan_print(&plan);
    fflush(stdout);
    run_plan(&plan, options->trace, &result);
    for (int i = 0; i < FAULT_COUNT; i++)
        if (result.totals.excused[i] > 0)
            printf("excused by %s: %" PRIu64 "\n", fault_names[i],
                result.totals.excused[i]);
    for (int i = 0; i < PROMISE_COUNT; i++)
        if (result.totals.by_promise[i] > 0)
            printf("broken: %s: %" PRIu64 "\n", promise_names[i],
                result.totals.by_promise[i]);
    say_result(&result);
    return result.totals.violations > 0;
}

/* --- many ----------------------------------------------------------------- */

/* In memory that the workers share. */
struct board {
    double until; /* if hours are given */
    uint64_t end; /* the seed after the last */
    _Atomic uint64_t next;
    _Atomic uint64_t at[WORKERS_MAX]; /* the seed that each is at */
};

struct worker {
    pid_t pid;
    size_t got; /* bytes of a result that is on its way */
    struct result result;
};

/* The runs of one topology and safety. */
struct share {
    uint64_t seeds;
    uint64_t virtual_us;
    uint64_t grants;
    uint64_t faults;
    uint64_t overlaps;
    uint64_t violations;
};

struct summary {
    double began;
    uint64_t end; /* the seed after the last that was begun */
    uint64_t seeds;
    struct result sum;
    struct share shares[SETTING_COUNT];
    uint64_t crashed;
    uint64_t failed[FAILED_MAX];
    uint64_t failed_count;
    uint64_t differed;
};

static void
worker_body(const struct options *options, struct board *board, unsigned number,
    int out)
{
    for (;;) {
        struct plan plan;
        struct result result;
        uint64_t seed = atomic_fetch_add(&board->next, 1);
        if (seed >= board->end ||
            (options->hours > 0 && seconds_now() >= board->until))
            exit(0);
        options_plan(options, seed, &plan);
        if (!options_want(options, &plan))
            continue;
        atomic_store(&board->at[number], seed);
        run_plan(&plan, false, &result);
        if (options->twice) {
            struct result again;
            run_plan(&plan, false, &again);
            result.crashed = again.hash != result.hash;
        }
        const char *at = (const char *)&result;
        for (size_t left = sizeof(result); left > 0;) {
            ssize_t put = write(out, at, left);
            if (put <= 0)
                exit(1);
            at += put;
            left -= (size_t)put;
        }
    }
}

/* Its reports can be read from `at`. */
static void
worker_start(const struct options *options, struct board *board,
    unsigned number, struct worker *worker, struct pollfd *at)
{
    int ends[2];

    fflush(stdout);
    if (pipe(ends) != 0 || (worker->pid = fork()) < 0) {
        perror("holdfast-sim");
        exit(71);
    }
    if (worker->pid == 0) {
        close(ends[0]);
        worker_body(options, board, number, ends[1]);
    }
    close(ends[1]);
    *at = (struct pollfd){.fd = ends[0], .events = POLLIN};
    worker->got = 0;
}

static void
summary_failed(struct summary *summary, uint64_t seed)
{
    if (summary->failed_count < FAILED_MAX)
        summary->failed[summary->failed_count] = seed;
    summary->failed_count++;
}

static void
share_add(struct share *share, const struct result *result)
{
    share->seeds++;
    share->virtual_us += result->virtual_us;
    share->grants += result->totals.grants;
    share->faults += result_faults(result);
    share->overlaps += result->totals.overlaps;
    share->violations += result->totals.violations;
}

static void
summary_add(struct summary *summary, const struct result *result)
{
    struct result *sum = &summary->sum;

    summary->seeds++;
    share_add(&summary->shares[result->setting], result);
    sum->virtual_us += result->virtual_us;
    sum->events += result->events;
    sum->commands += result->commands;
    sum->scripts += result->scripts;
    cover_add(&sum->cover, &result->cover);
    sum->totals.grants += result->totals.grants;
    sum->totals.updates += result->totals.updates;
    sum->totals.refused += result->totals.refused;
    sum->totals.violations += result->totals.violations;
    for (int i = 0; i < DEED_COUNT; i++)
        sum->totals.deeds[i] += result->totals.deeds[i];
    for (int i = 0; i < PROMISE_COUNT; i++)
        sum->totals.by_promise[i] += result->totals.by_promise[i];
    for (int i = 0; i < FAULT_COUNT; i++) {
        sum->totals.excused[i] += result->totals.excused[i];
        sum->faults.by_kind[i] += result->faults.by_kind[i];
    }
    for (size_t i = 0; i < COUNTER_COUNT; i++)
        sum->counters[i] += result->counters[i];
    if (result->crashed) /* twice, and not the same */
        summary->differed++;
    if (result->totals.violations > 0 || result->crashed)
        summary_failed(summary, result->seed);
}

/* True: it has crashed, which costs the seed that it was at. */
static bool
worker_crashed(
    const struct worker *worker, uint64_t seed, struct summary *summary)
{
    int status = 0;

    while (waitpid(worker->pid, &status, 0) < 0 && errno == EINTR)
        continue;
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
        return false;
    fprintf(stderr, "seed=%" PRIu64 " crashed\n", seed);
    summary->crashed++;
    summary_failed(summary, seed);
    return true;
}

/* False: there is no more to come of it. */
static bool
worker_read(struct worker *worker, int pipe, struct summary *summary)
{
    ssize_t got = read(pipe, (char *)&worker->result + worker->got,
        sizeof(worker->result) - worker->got);

    if (got <= 0)
        return false;
    worker->got += (size_t)got;
    if (worker->got == sizeof(worker->result)) {
        worker->got = 0;
        summary_add(summary, &worker->result);
    }
    return true;
}

static void
workers_run(
    const struct options *options, struct board *board, struct summary *summary)
{
    static struct worker workers[WORKERS_MAX];
    struct pollfd at[WORKERS_MAX];
    unsigned running = options->jobs;

    for (unsigned i = 0; i < options->jobs; i++)
        worker_start(options, board, i, &workers[i], &at[i]);
    while (running > 0) {
        if (poll(at, options->jobs, -1) < 0)
            continue;
        for (unsigned i = 0; i < options->jobs; i++) {
            if (at[i].revents == 0 ||
                worker_read(&workers[i], at[i].fd, summary))
                continue;
            close(at[i].fd);
            at[i].fd = -1;
            if (worker_crashed(&workers[i], board->at[i], summary))
                worker_start(options, board, i, &workers[i], &at[i]);
            else
                running--;
        }
    }
}

static void
say_coverage(const struct summary *summary)
{
    unsigned seen = 0;

    for (size_t i = 0; i < COUNTER_COUNT; i++)
        seen += summary->sum.counters[i] > 0;
    printf("events counted by the brokers: %u of %u kinds; not seen:", seen,
        (unsigned)COUNTER_COUNT);
    for (size_t i = 0; i < COUNTER_COUNT; i++)
        if (summary->sum.counters[i] == 0)
            printf(" %s", counter_name((enum counter)i));
    printf("\n");
}

static void
say_summary(const struct options *options, const struct summary *summary)
{
    const struct result *sum = &summary->sum;
    double took = seconds_now() - summary->began;
    uint64_t excused = 0;

    printf("faults:");
    for (int i = 0; i < FAULT_COUNT; i++)
        printf(" %s=%" PRIu64, fault_names[i], sum->faults.by_kind[i]);
    printf("\ndone:");
    for (int i = 0; i < DEED_COUNT; i++)
        printf(" %s=%" PRIu64, deed_names[i], sum->totals.deeds[i]);
    printf("\nexcused:");
    for (int i = 0; i < FAULT_COUNT; i++) {
        excused += sum->totals.excused[i];
        if (sum->totals.excused[i] > 0)
            printf(" %s=%" PRIu64, fault_names[i], sum->totals.excused[i]);
    }
    printf("\n");
    for (int i = 0; i < PROMISE_COUNT; i++)
        if (sum->totals.by_promise[i] > 0)
            printf("broken: %s: %" PRIu64 "\n", promise_names[i],
                sum->totals.by_promise[i]);
    say_coverage(summary);
    cover_say(&sum->cover, options->lines);
    for (uint64_t i = 0; i < summary->failed_count && i < FAILED_MAX; i++)
        printf("failed: --seed %" PRIu64 "\n", summary->failed[i]);
    printf("seeds=%" PRIu64 " virtual_hours=%.1f grants=%" PRIu64
           " updates=%" PRIu64 " stale_refused=%" PRIu64 " faults=%" PRIu64
           " scripts=%" PRIu64 " excused=%" PRIu64 " seconds=%.0f"
           " seeds_per_second=%.1f speed=%.0f crashed=%" PRIu64
           " differed=%" PRIu64 " violations=%" PRIu64 "\n",
        summary->seeds, (double)sum->virtual_us / 3.6e9, sum->totals.grants,
        sum->totals.updates, sum->totals.refused, result_faults(sum),
        sum->scripts, excused, took, (double)summary->seeds / took,
        (double)sum->virtual_us / 1e6 / took, summary->crashed,
        summary->differed, sum->totals.violations);
}

/* A hash of this program: figures of one version can be added up. */
static uint64_t
program_hash(void)
{
    uint64_t hash = 0xcbf29ce484222325; /* FNV-1a */
    FILE *file = fopen("/proc/self/exe", "re");
    int byte;

    if (file == NULL)
        return 0;
    while ((byte = getc(file)) != EOF)
        hash = (hash ^ (uint8_t)byte) * 0x100000001b3;
    fclose(file);
    return hash;
}

/* Two digits of it, so that many runs have few values; the ends are exact. */
static uint32_t
config_rounded(enum config_key key, uint32_t value)
{
    uint32_t unit = 1;

    if (value == config_low[key] || value == config_high[key])
        return value;
    while (value / unit >= 100)
        unit *= 10;
    return value / unit * unit;
}

static int
compare_values(const void *a, const void *b)
{
    const uint32_t *one = a, *two = b;

    return (*one > *two) - (*one < *two);
}

/* How often each value of a key was drawn. */
static void
record_key(FILE *file, enum config_key key, uint32_t *values, size_t count)
{
    qsort(values, count, sizeof(*values), compare_values);
    fprintf(file, "%s\"%s\": {", key > 0 ? ", " : "", config_names[key]);
    for (size_t i = 0, first; i < count; i++) {
        for (first = i; i + 1 < count && values[i + 1] == values[i];)
            i++;
        fprintf(file, "%s\"%" PRIu32 "\": %zu", first > 0 ? ", " : "",
            values[i], i + 1 - first);
    }
    fprintf(file, "}");
}

static void
record_config(
    FILE *file, const struct options *options, const struct summary *summary)
{
    size_t room = (size_t)(summary->end - options->seed);
    uint32_t *values = calloc(room, CONFIG_COUNT * sizeof(*values));
    size_t count = 0;

    for (uint64_t seed = options->seed; values != NULL && seed < summary->end;
         seed++) {
        struct plan plan;
        options_plan(options, seed, &plan);
        if (!options_want(options, &plan))
            continue;
        for (enum config_key key = 0; key < CONFIG_COUNT; key++)
            values[key * room + count] =
                config_rounded(key, plan_config(&plan, key));
        count++;
    }
    for (enum config_key key = 0; values != NULL && key < CONFIG_COUNT; key++)
        record_key(file, key, values + key * room, count);
    free(values);
}

static void
record_summary(const struct options *options, const struct summary *summary)
{
    const struct result *sum = &summary->sum;
    FILE *file = fopen(options->record, "ae");

    if (file == NULL) {
        perror(options->record);
        return;
    }
    fprintf(file,
        "{\"version\": \"" HOLDFAST_VERSION "\", \"program\": \"%016" PRIx64
        "\", \"first\": %" PRIu64 ", \"seeds\": %" PRIu64
        ", \"virtual_s\": %" PRIu64 ", \"real_s\": %.0f, \"jobs\": %u"
        ", \"grants\": %" PRIu64 ", \"crashed\": %" PRIu64
        ", \"violations\": %" PRIu64 ", \"faults\": {",
        program_hash(), options->seed, summary->seeds,
        sum->virtual_us / 1000000, seconds_now() - summary->began,
        options->jobs, sum->totals.grants, summary->crashed,
        sum->totals.violations);
    for (int i = 0; i < FAULT_COUNT; i++)
        fprintf(file, "%s\"%s\": %" PRIu64, i > 0 ? ", " : "", fault_names[i],
            sum->faults.by_kind[i]);
    fprintf(file, "}, \"done\": {");
    for (int i = 0; i < DEED_COUNT; i++)
        fprintf(file, "%s\"%s\": %" PRIu64, i > 0 ? ", " : "", deed_names[i],
            sum->totals.deeds[i]);
    fprintf(file, "}, \"excused\": {");
    for (int i = 0, n = 0; i < FAULT_COUNT; i++)
        if (sum->totals.excused[i] > 0)
            fprintf(file, "%s\"%s\": %" PRIu64, n++ > 0 ? ", " : "",
                fault_names[i], sum->totals.excused[i]);
    fprintf(file, "}, \"settings\": {");
    for (int i = 0; i < SETTING_COUNT; i++) {
        const struct share *share = &summary->shares[i];
        fprintf(file,
            "%s\"%s\": {\"seeds\": %" PRIu64 ", \"virtual_s\": %" PRIu64
            ", \"grants\": %" PRIu64 ", \"faults\": %" PRIu64
            ", \"overlaps\": %" PRIu64 ", \"violations\": %" PRIu64 "}",
            i > 0 ? ", " : "", setting_names[i], share->seeds,
            share->virtual_us / 1000000, share->grants, share->faults,
            share->overlaps, share->violations);
    }
    fprintf(file, "}, \"config\": {");
    record_config(file, options, summary);
    fprintf(file, "}}\n");
    fclose(file);
}

static int
run_many(struct options *options)
{
    static struct summary summary;
    struct board *board = mmap(NULL, sizeof(*board), PROT_READ | PROT_WRITE,
        MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    if (board == MAP_FAILED) {
        perror("holdfast-sim");
        exit(71);
    }
    summary.began = seconds_now();
    board->until = summary.began + options->hours * 3600;
    board->next = options->seed;
    board->end = options_end(options);
    if (options->jobs == 0)
        options->jobs = (unsigned)sysconf(_SC_NPROCESSORS_ONLN);
    if (options->jobs > WORKERS_MAX)
        options->jobs = WORKERS_MAX;
    workers_run(options, board, &summary);
    summary.end = board->next < board->end ? board->next : board->end;
    (void)munmap(board, sizeof(*board));
    for (uint64_t i = 0; options->shrink && i < summary.failed_count && i < 3;
         i++) {
        struct plan plan;
        options_plan(options, summary.failed[i], &plan);
        shrink(&plan);
    }
    say_summary(options, &summary);
    if (options->record != NULL)
        record_summary(options, &summary);
    return summary.failed_count > 0;
}

int
main(int argc, char **argv)
{
    struct options options = {.run_us = 60000000, .shrink = true};

    signal(SIGPIPE, SIG_IGN);
    options_parse(&options, argc, argv);
    if (options.count == 0 && options.hours <= 0)
        return run_one(&options);
    return run_many(&options);
}

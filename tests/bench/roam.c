/*
 * Sessions that are kept, by the client library, while their brokers come and
 * go. Each holds a lock of its own all the time, and takes one of a few common
 * ones now and then, for a few milliseconds.
 *
 * The referee: a common lock has one holder, from the OK to the sending of the
 * UNLOCK, or to the word of its loss; its fences grow. All is one thread, which
 * reads what the sessions are told in any order, so a loss that is read after
 * the next one's OK counts as two holders too.
 *
 * Says so when all have their own locks, and goes on until stdin ends.
 */
#include "tests/bench/histogram.h"
#include "tests/bench/modes.h"
#include "tests/bench/net.h"

#include "daemon/base/slot.h"
#include "proto/clients/c/holdfast.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define KEEP_MS      30000
#define HOLD_NS      4000000U /* a common lock is held for at most */
#define FINISH_NS    60000000000ULL
#define NAME_BYTES   32
#define SHARDS_MAX   16
#define ERRORS_SHOWN 10

enum step {
    STEP_OWN,   /* asks for its own lock */
    STEP_RESTS, /* until `due_ns` */
    STEP_ASKS,
    STEP_HOLDS, /* until `due_ns` */
    STEP_LEAVES,
    STEP_ENDS, /* gives its own lock back */
    STEP_OVER,
};

struct roamer {
    struct holdfast *h; /* owned */
    enum step step;
    unsigned number;
    unsigned key;
    uint64_t request;
    uint64_t sent_ns;
    uint64_t due_ns;
    uint64_t next_ns; /* of its next lock, by the rate that is wanted */
    uint64_t fence;
    uint64_t away_ns; /* since when no broker serves it; 0: one does */
};

struct place {
    const struct roamer *holder; /* ref; NULL: nobody */
    uint64_t fence;
    uint64_t granted_ns; /* last; 0: never */
};

/* The masters of a cluster that divides its slots evenly. */
struct shard {
    uint64_t granted_ns; /* of its common locks one, last; 0: never */
    uint64_t longest_ns; /* without a grant */
};

struct roam {
    const struct options *options; /* ref */
    struct roamer *roamers;        /* owned */
    struct place *places;          /* owned */
    struct pollfd *polls;          /* owned; the last one is stdin */
    struct histogram lock;
    struct histogram unlock;
    struct histogram away;
    struct histogram gap; /* from one grant of a common lock to the next */
    struct shard shards[SHARDS_MAX];
    uint64_t seed;
    uint64_t interval_ns; /* between the locks of one session */
    uint64_t pairs;
    uint64_t grants;
    unsigned lost;    /* told, or found out by an answer */
    unsigned doubled; /* holders at the same time */
    unsigned backwards;
    unsigned refused;
    unsigned closed;
    unsigned moves;
    unsigned over;
    bool finishing;
};

static uint64_t
roam_random(struct roam *roam, uint64_t below)
{
    roam->seed ^= roam->seed << 13;
    roam->seed ^= roam->seed >> 7;
    roam->seed ^= roam->seed << 17;
    return roam->seed % below;
}

static void
complain(unsigned *count, const struct roamer *roamer, const char *what,
    const struct holdfast_event *event)
{
    const char *reason = holdfast_event_value(event, "reason");

    if (++*count <= ERRORS_SHOWN)
        fprintf(stderr, "loadgen: session %u: %s: %s %s %s\n", roamer->number,
            what, event->word, reason != NULL ? reason : "", event->text);
}

static unsigned
shards_of(const struct roam *roam)
{
    return roam->options->shards > 0 ? roam->options->shards : 1;
}

static void
own_name(const struct roamer *roamer, char *name)
{
    snprintf(name, NAME_BYTES, "own%u", roamer->number);
}

static void
common_name(const struct roamer *roamer, char *name)
{
    snprintf(name, NAME_BYTES, "common%u", roamer->key);
}

static void
roam_lock(struct roamer *roamer, const char *name, enum step step)
{
    roamer->step = step;
    roamer->sent_ns = clock_ns();
    if (holdfast_submit_lock(roamer->h, name, NULL, &roamer->request) !=
        HOLDFAST_SUCCESS)
        die("a LOCK could not be submitted");
}

static void
roam_unlock(
    struct roamer *roamer, const char *name, uint64_t fence, enum step step)
{
    roamer->step = step;
    roamer->sent_ns = clock_ns();
    if (holdfast_submit_unlock(
            roamer->h, name, NULL, fence, &roamer->request) != HOLDFAST_SUCCESS)
        die("an UNLOCK could not be submitted");
}

static void
roam_rest(struct roam *roam, struct roamer *roamer)
{
    uint64_t now = clock_ns();

    roamer->step = STEP_RESTS;
    roamer->next_ns +=
        roam->interval_ns / 2 + roam_random(roam, roam->interval_ns);
    roamer->due_ns = roamer->next_ns > now ? roamer->next_ns : now;
}

/* Work due by the clock. */
static void
roam_act(struct roam *roam, struct roamer *roamer, uint64_t now)
{
    char name[NAME_BYTES];

    if (roamer->step == STEP_RESTS && roam->finishing) {
        own_name(roamer, name);
        roam_unlock(roamer, name, 0, STEP_ENDS);
    } else if (roamer->step == STEP_RESTS && now >= roamer->due_ns) {
        roamer->key = (unsigned)roam_random(roam, roam->options->keys);
        common_name(roamer, name);
        roam_lock(roamer, name, STEP_ASKS);
    } else if (roamer->step == STEP_HOLDS && now >= roamer->due_ns) {
        common_name(roamer, name);
        roam->places[roamer->key].holder = NULL;
        roam_unlock(roamer, name, roamer->fence, STEP_LEAVES);
    }
}

static void
roam_over(struct roam *roam, struct roamer *roamer)
{
    if (roamer->step != STEP_OVER)
        roam->over++;
    roamer->step = STEP_OVER;
}

static void
shard_granted(struct roam *roam, const struct roamer *roamer, uint64_t now)
{
    char name[NAME_BYTES];

    common_name(roamer, name);
    unsigned slot = slot_of_key(text_from(name));
    struct shard *shard = &roam->shards[slot * shards_of(roam) / SLOT_COUNT];
    if (shard->granted_ns > 0 && now - shard->granted_ns > shard->longest_ns)
        shard->longest_ns = now - shard->granted_ns;
    shard->granted_ns = now;
}

static void
roam_granted(struct roam *roam, struct roamer *roamer,
    const struct holdfast_event *event)
{
    struct place *place = &roam->places[roamer->key];
    uint64_t now = clock_ns();

    roam->grants++;
    histogram_add(&roam->lock, now - roamer->sent_ns);
    if (place->holder != NULL)
        complain(&roam->doubled, roamer, "two holders", event);
    if (event->fence <= place->fence)
        complain(&roam->backwards, roamer, "the fence ran back", event);
    if (place->granted_ns > 0)
        histogram_add(&roam->gap, now - place->granted_ns);
    place->granted_ns = now;
    shard_granted(roam, roamer, now);
    place->holder = roamer;
    place->fence = event->fence;
    roamer->fence = event->fence;
    roamer->step = STEP_HOLDS;
    roamer->due_ns = now + roam_random(roam, HOLD_NS);
}

/* The final answer to the session's one request. */
static void
roam_answered(struct roam *roam, struct roamer *roamer,
    const struct holdfast_event *event)
{
    bool good = event->kind == HOLDFAST_OK;

    switch (roamer->step) {
    case STEP_OWN:
        if (!good)
            die("its own lock: %s", event->word);
        roamer->next_ns = clock_ns();
        roam_rest(roam, roamer);
        break;
    case STEP_ASKS:
        if (good) {
            roam_granted(roam, roamer, event);
            break;
        }
        complain(&roam->refused, roamer, "LOCK", event);
        roam_rest(roam, roamer);
        break;
    case STEP_LEAVES:
        histogram_add(&roam->unlock, clock_ns() - roamer->sent_ns);
        roam->pairs++;
        if (!good)
            complain(&roam->lost, roamer, "UNLOCK", event);
        roam_rest(roam, roamer);
        break;
    case STEP_ENDS:
        if (!good)
            complain(&roam->lost, roamer, "UNLOCK at the end", event);
        roam_over(roam, roamer);
        break;
    case STEP_RESTS:
    case STEP_HOLDS:
    case STEP_OVER:
    default:
        die("an answer to nothing: %s", event->word);
    }
}

static void
roam_lost(struct roam *roam, struct roamer *roamer,
    const struct holdfast_event *event)
{
    complain(&roam->lost, roamer,
        event->kind == HOLDFAST_LOST ? "LOST" : "deadline", event);
    if (strncmp(event->word, "common", 6) == 0 &&
        roam->places[roamer->key].holder == roamer)
        roam->places[roamer->key].holder = NULL;
}

static void
roam_take(struct roam *roam, struct roamer *roamer,
    const struct holdfast_event *event)
{
    switch (event->kind) {
    case HOLDFAST_OK:
    case HOLDFAST_ERR:
        if (event->request == roamer->request)
            roam_answered(roam, roamer, event);
        break;
    case HOLDFAST_LOST:
    case HOLDFAST_DEADLINE:
        roam_lost(roam, roamer, event);
        break;
    case HOLDFAST_AWAY:
        roamer->away_ns = clock_ns();
        break;
    case HOLDFAST_BACK:
        roam->moves++;
        histogram_add(&roam->away, clock_ns() - roamer->away_ns);
        roamer->away_ns = 0;
        break;
    case HOLDFAST_CLOSED:
        if (roamer->step != STEP_OVER)
            complain(&roam->closed, roamer, holdfast_reason(roamer->h), event);
        roam_over(roam, roamer);
        break;
    case HOLDFAST_HELLO:
    case HOLDFAST_ITEM:
    case HOLDFAST_QUEUED:
    case HOLDFAST_JEOPARDY:
    case HOLDFAST_SAFE:
    case HOLDFAST_DRAIN:
    case HOLDFAST_BYE:
    case HOLDFAST_HELD:
    case HOLDFAST_FREE:
    case HOLDFAST_MEMBERS:
    case HOLDFAST_JOINED:
    case HOLDFAST_CHANGED:
    case HOLDFAST_LEFT:
    case HOLDFAST_WANTED:
    default:
        break;
    }
}

/* One turn: what came, what is due, and then all wait together. */
static void
roam_turn(struct roam *roam)
{
    unsigned count = roam->options->connections;
    int timeout = 100;
    uint64_t now;

    for (unsigned i = 0; i < count; i++) {
        struct roamer *roamer = &roam->roamers[i];
        struct holdfast_event event;
        int due;

        holdfast_process(roamer->h, roam->polls[i].revents);
        while (holdfast_next(roamer->h, &event))
            roam_take(roam, roamer, &event);
        now = clock_ns();
        roam_act(roam, roamer, now);
        due = holdfast_timeout_ms(roamer->h);
        if (roamer->step == STEP_RESTS || roamer->step == STEP_HOLDS)
            due = roamer->due_ns <= now
                      ? 0
                      : (int)((roamer->due_ns - now) / 1000000U) + 1;
        if (due >= 0 && due < timeout)
            timeout = due;
        roam->polls[i].fd = holdfast_fd(roamer->h);
        roam->polls[i].events = holdfast_events(roamer->h);
        roam->polls[i].revents = 0;
    }
    poll(roam->polls, count + 1, timeout);
}

static void
roam_begin(struct roam *roam)
{
    const struct options *options = roam->options;
    unsigned count = options->connections;
    char addresses[ADDRESSES_MAX * 128] = "";
    struct holdfast_options how = {.address = addresses, .keep_ms = KEEP_MS};

    for (unsigned i = 0; i < options->addresses; i++) {
        strncat(addresses, i > 0 ? "," : "", 2);
        strncat(addresses, options->address[i], 120);
    }
    roam->roamers = calloc(count, sizeof(*roam->roamers));
    roam->places = calloc(options->keys, sizeof(*roam->places));
    roam->polls = calloc(count + 1, sizeof(*roam->polls));
    if (roam->roamers == NULL || roam->places == NULL || roam->polls == NULL)
        die("no memory");
    for (unsigned i = 0; i < count; i++) {
        struct roamer *roamer = &roam->roamers[i];
        char name[NAME_BYTES];

        roamer->number = i;
        if (holdfast_create_with(&how, &roamer->h) != HOLDFAST_SUCCESS)
            die("no session");
        own_name(roamer, name);
        roam_lock(roamer, name, STEP_OWN);
    }
    roam->polls[count] = (struct pollfd){.fd = STDIN_FILENO, .events = POLLIN};
}

static bool
all_began(const struct roam *roam)
{
    for (unsigned i = 0; i < roam->options->connections; i++) {
        if (roam->roamers[i].step == STEP_OWN)
            return false;
    }
    return true;
}

static void
roam_print(const struct roam *roam, double seconds)
{
    const struct options *options = roam->options;

    printf("{\"mode\":\"roam\",\"sessions\":%u,\"keys\":%u,\"seconds\":%.3f,"
           "\"pairs\":%llu,\"pairs_per_s\":%.0f,\"moves\":%u,\"lost\":%u,"
           "\"doubled\":%u,\"backwards\":%u,\"refused\":%u,\"closed\":%u,"
           "\"lock_us\":",
        options->connections, options->keys, seconds,
        (unsigned long long)roam->pairs, (double)roam->pairs / seconds,
        roam->moves, roam->lost, roam->doubled, roam->backwards, roam->refused,
        roam->closed);
    histogram_print(&roam->lock, stdout);
    printf(",\"unlock_us\":");
    histogram_print(&roam->unlock, stdout);
    printf(",\"away_us\":");
    histogram_print(&roam->away, stdout);
    printf(",\"gap_us\":");
    histogram_print(&roam->gap, stdout);
    printf(",\"shard_ms\":[");
    for (unsigned i = 0; i < shards_of(roam); i++)
        printf("%s%.1f", i > 0 ? "," : "",
            (double)roam->shards[i].longest_ns / 1e6);
    printf("]}\n");
}

static void
roam_end(struct roam *roam)
{
    for (unsigned i = 0; i < roam->options->connections; i++)
        holdfast_destroy(&roam->roamers[i].h);
    free(roam->roamers);
    free(roam->places);
    free(roam->polls);
}

int
roam_run(const struct options *options)
{
    static struct roam roam;
    uint64_t begin_ns;
    uint64_t end_ns = 0;

    if (options->keys == 0 || options->rate == 0)
        die("--keys and --rate are wanted");
    if (options->shards > SHARDS_MAX)
        die("--shards is %u at most", SHARDS_MAX);
    roam.options = options;
    roam.seed = 88172645463325252ULL;
    roam.interval_ns =
        (uint64_t)(1e9 * options->connections / (double)options->rate);
    histogram_init(&roam.lock);
    histogram_init(&roam.unlock);
    histogram_init(&roam.away);
    histogram_init(&roam.gap);
    roam_begin(&roam);
    while (!all_began(&roam))
        roam_turn(&roam);
    printf("{\"mode\":\"roam\",\"ready\":%u}\n", options->connections);
    fflush(stdout);
    begin_ns = clock_ns();
    while (roam.over < options->connections) {
        roam_turn(&roam);
        if (!roam.finishing && roam.polls[options->connections].revents != 0) {
            roam.finishing = true;
            end_ns = clock_ns();
            roam.polls[options->connections].fd = -1;
        }
        if (roam.finishing && clock_ns() > end_ns + FINISH_NS)
            die("%u sessions do not end", options->connections - roam.over);
    }
    roam_print(&roam, (double)(end_ns - begin_ns) / 1e9);
    roam_end(&roam);
    return roam.lost + roam.doubled + roam.backwards + roam.refused +
                       roam.closed ==
                   0
               ? 0
               : 1;
}

/*
 * A lock, or several, from a broker that may be away for a moment.
 *
 * If no broker can be reached, it is tried again for REACH_MS or --wait,
 * whichever is less. A restarting broker is back by then, and the user should
 * hear of a missing one. "Reached" means that it greeted. A connection that
 * ends while the lock is waited for begins this anew, within the same --wait.
 * For a kept session the library does so, and the request keeps its place in
 * the queue; else it is at its end. A place that is kept needs a guard from
 * before the request on: killed, this process would leave it to stand there,
 * and to be granted the lock, for nobody.
 *
 * Signals that would end the process end it here too, with nothing held.
 */
#define _GNU_SOURCE 1

#include "proto/holdfast/acquire.h"

#include "daemon/base/assert.h"
#include "proto/holdfast/escape.h"
#include "proto/holdfast/guard.h"
#include "proto/holdfast/nested.h"
#include "proto/holdfast/out.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

#define REACH_MS     9000 /* leaves room below the ten seconds promised */
#define REACH_MIN_MS 1000 /* for one try, also with --wait 0 */
#define PAUSE_MIN_MS 50
#define PAUSE_MAX_MS 1000
#define ANSWER_MS    8000 /* for the final answer, behind the wait */
#define RELEASE_MS   2000
#define KEPT_MS      5000  /* the same where another broker may be found */
#define KEEP_MS      30000 /* the default of --keep */
#define TELL_MS      2000  /* then it is told what is waited for */
#define PERMITS_MAX  1000000
#define LIMIT_MAX    4294967295u

#define TELLING_TRIES 3 /* as many have failed when that is told first */

#define HOST_CHARS 47 /* the PID must not be cut off */

/* No exit statuses. */
enum {
    AGAIN = -1,   /* connect anew */
    WAITING = -2, /* it goes on */
};

struct attempt {
    const struct acquire *acquire; /* ref */
    struct loop *loop;             /* ref */
    struct guard *guard;           /* ref */
    uint64_t start_ms;
    uint64_t reach_ms; /* until when a broker must be reached */
    unsigned tries;
    bool away; /* no broker serves the session; until reach_ms */
    bool told; /* the reason of the wait */
    char why[256];
    char waits[640]; /* the reason; "": the broker has not said it */
};

static bool
keys_check(const struct words *words, const char *command)
{
    bool good = words->count > 0 && words->count <= HOLDFAST_NAMES_MAX;

    for (size_t i = 0; i < words->count && good; i++)
        good = words->word[i][0] != '\0' &&
               strlen(words->word[i]) <= HOLDFAST_NAME_MAX;
    if (!good)
        complain("%s: takes 1 to %d KEYs, each of 1 to %d bytes", command,
            HOLDFAST_NAMES_MAX, HOLDFAST_NAME_MAX);
    return good;
}

/* The options together. */
static bool
options_check(struct acquire *acquire)
{
    struct holdfast_lock_options *asked = &acquire->options;

    if (asked->lease_ms == 0) {
        complain("--lease: 0 is no lease");
        return false;
    }
    if (asked->lease_ms == UINT64_MAX)
        asked->lease_ms = 0;
    if (acquire->keep_ms > HOLDFAST_KEEP_MAX_MS) {
        complain("--keep: one hour is the most");
        return false;
    }
    if (asked->permits > asked->limit) {
        complain("--permits: there are no more than --limit");
        return false;
    }
    if (asked->shared && asked->limit > 0) {
        complain("--shared and --limit are two kinds of lock");
        return false;
    }
    return true;
}

bool
acquire_parse(struct settings *settings, const char *command, char **argv,
    bool program, struct acquire *acquire, struct words *words, int *status)
{
    struct holdfast_lock_options *asked = &acquire->options;
    const struct option options[] = {
        {.name = "wait", .duration_ms = &asked->wait_ms},
        {.name = "lease", .duration_ms = &asked->lease_ms},
        {.name = "keep", .duration_ms = &acquire->keep_ms},
        {.name = "delay", .duration_ms = &asked->delay_ms},
        {.name = "owner", .max = HOLDFAST_OWNER_MAX, .text = &asked->owner},
        {.name = "note", .max = HOLDFAST_NOTE_MAX, .text = &asked->note},
        {.name = "limit", .max = LIMIT_MAX, .number = &asked->limit},
        {.name = "permits", .max = PERMITS_MAX, .number = &asked->permits},
        {.name = "shared", .flag = &asked->shared},
    };

    *acquire = (struct acquire){.keep_ms = KEEP_MS,
        .options = {.wait_ms = HOLDFAST_FOREVER, .lease_ms = UINT64_MAX}};
    *status = STATUS_TROUBLE;
    if (!options_parse(settings, options, sizeof(options) / sizeof(options[0]),
            STOP_NEVER, argv, words))
        return false;
    if (words->help) {
        (void)help_print(command);
        *status = STATUS_FINE;
        return false;
    }
    if (!keys_check(words, command))
        return false;
    if (!connect_options(settings, &(struct holdfast_options){.keep_ms = 0}))
        return false;
    if (program && (words->rest == NULL || words->rest[0] == NULL)) {
        complain("%s: '-- PROGRAM' is missing", command);
        return false;
    }
    if (!program && words->rest != NULL) {
        complain("%s: takes no PROGRAM", command);
        return false;
    }
    acquire->address = connect_address(settings);
    acquire->keys = (const char *const *)words->word;
    acquire->key_count = words->count;
    return options_check(acquire);
}

/* HOST:PID, so that those who list the sessions know whom to ask. */
static const char *
session_name(char *name, size_t name_bytes)
{
    char host[HOST_NAME_MAX + 1] = "";

    (void)gethostname(host, sizeof(host));
    (void)snprintf(
        name, name_bytes, "%.*s:%ld", HOST_CHARS, host, (long)getpid());
    return name;
}

/*
 * Nothing is held while a name is looked up, so a resolver that hangs is ended
 * the simple way.
 */
static void
resolver_over(int signal)
{
    static const char text[] =
        "holdfast: no broker: its name is not resolved\n";

    (void)signal;
    (void)!write(STDERR_FILENO, text, sizeof(text) - 1);
    _exit(STATUS_TROUBLE);
}

/* holdfast_create(), which may block, ended by a signal or by the time. */
static enum holdfast_status
create_bounded(const struct attempt *attempt, struct holdfast **h)
{
    struct sigaction alarmed = {.sa_handler = resolver_over};
    struct sigaction before;
    struct itimerval timer = {.it_interval = {0, 0}};
    struct itimerval off = {.it_interval = {0, 0}};
    sigset_t blocked;
    char name[HOLDFAST_WORD_MAX + 1];
    struct holdfast_options options = {
        .name = session_name(name, sizeof(name)),
        .keep_ms = attempt->acquire->keep_ms,
    };
    /* All was read before, and is there. */
    (void)connect_options(attempt->guard->settings, &options);
    uint64_t now = loop_now_ms();
    uint64_t left =
        attempt->reach_ms > now ? attempt->reach_ms - now : REACH_MIN_MS;

    timer.it_value.tv_sec = (time_t)(left / 1000);
    timer.it_value.tv_usec = (suseconds_t)(left % 1000) * 1000 + 1;
    (void)sigaction(SIGALRM, &alarmed, &before);
    (void)setitimer(ITIMER_REAL, &timer, NULL);
    (void)sigprocmask(SIG_SETMASK, &attempt->loop->before, &blocked);
    enum holdfast_status status = holdfast_create_with(&options, h);
    (void)sigprocmask(SIG_SETMASK, &blocked, NULL);
    (void)setitimer(ITIMER_REAL, &off, NULL);
    (void)sigaction(SIGALRM, &before, NULL);
    return status;
}

/* Acts on the signals that came; not STATUS_FINE: end with this status. */
static int
signals_take(struct loop *loop)
{
    int signal;

    while ((signal = loop_signal(loop)) != 0) {
        if (loop_signal_ends(loop, signal))
            return STATUS_SIGNAL + signal;
        if (signal == SIGTSTP)
            loop_stop_self();
    }
    return STATUS_FINE;
}

/* Waits without a connection. */
static int
pause_until(struct attempt *attempt, uint64_t until_ms)
{
    int status = STATUS_FINE;

    while (status == STATUS_FINE && loop_now_ms() < until_ms) {
        (void)loop_wait(attempt->loop, NULL, until_ms, -1, NULL);
        status = signals_take(attempt->loop);
    }
    return status;
}

/* A pause that doubles, and differs between those that wait for one broker. */
static uint64_t
pause_ms(struct attempt *attempt)
{
    uint64_t pause = PAUSE_MIN_MS;

    for (unsigned i = 0; i < attempt->tries && pause < PAUSE_MAX_MS; i++)
        pause *= 2;
    pause = pause < PAUSE_MAX_MS ? pause : PAUSE_MAX_MS;
    attempt->tries++;
    return pause - (uint64_t)getpid() % (pause / 2);
}

/* One connection with its greeting; AGAIN: not this time, `why` says why. */
static int
greet_once(
    struct attempt *attempt, struct holdfast **h, char *why, size_t why_bytes)
{
    enum holdfast_status status = create_bounded(attempt, h);
    struct holdfast_event event;

    if (status != HOLDFAST_SUCCESS) {
        (void)snprintf(why, why_bytes, "%s", holdfast_status_text(status));
        return status == HOLDFAST_NO_HOST ? AGAIN : STATUS_TROUBLE;
    }
    for (;;) {
        while (holdfast_next(*h, &event)) {
            if (event.kind == HOLDFAST_HELLO)
                return STATUS_FINE;
            if (event.kind == HOLDFAST_CLOSED) {
                (void)escape_text(event.text, why, why_bytes);
                return AGAIN;
            }
        }
        if (loop_now_ms() >= attempt->reach_ms) {
            (void)snprintf(why, why_bytes, "it does not answer%s",
                tls_hint(attempt->guard->settings));
            return AGAIN;
        }
        short revents =
            loop_wait(attempt->loop, *h, attempt->reach_ms, -1, NULL);
        holdfast_process(*h, revents);
        int ended = signals_take(attempt->loop);
        if (ended != STATUS_FINE)
            return ended;
    }
}

/* Connections until one greets or the time is over. */
static int
greet(struct attempt *attempt, struct holdfast **h)
{
    char why[256];
    int status;

    for (;;) {
        status = greet_once(attempt, h, why, sizeof(why));
        if (status == STATUS_FINE)
            return status;
        holdfast_destroy(h);
        uint64_t next = loop_now_ms() + pause_ms(attempt);
        if (status == STATUS_TROUBLE ||
            (status == AGAIN && next >= attempt->reach_ms)) {
            complain("no broker at %s: %s", attempt->acquire->address, why);
            return STATUS_TROUBLE;
        }
        if (status == AGAIN && attempt->tries == TELLING_TRIES)
            complain("warning: no broker at %s yet: %s",
                attempt->acquire->address, why);
        if (status == AGAIN)
            status = pause_until(attempt, next);
        if (status != STATUS_FINE)
            return status;
    }
}

/* Begins the time within which a broker must be reached. */
static void
reach_begin(struct attempt *attempt)
{
    uint64_t left = attempt->acquire->options.wait_ms < REACH_MS
                        ? attempt->acquire->options.wait_ms
                        : REACH_MS;

    left = left < REACH_MIN_MS ? REACH_MIN_MS : left;
    attempt->reach_ms = loop_now_ms() + left;
    attempt->tries = 0;
}

/* The rest of --wait, for the request. The first try has all of it. */
static uint64_t
wait_left(const struct attempt *attempt, bool first)
{
    uint64_t wait = attempt->acquire->options.wait_ms;
    uint64_t passed = loop_now_ms() - attempt->start_ms;

    if (wait == HOLDFAST_FOREVER || first)
        return wait;
    return passed < wait ? wait - passed : 0;
}

/* The holder that is in the way, if the broker names it; "" else. */
static const char *
holder_text(const struct holdfast_event *event, char *text, size_t text_bytes)
{
    const char *holder = holdfast_event_value(event, "holder");
    char name[256];
    uint64_t age;

    text[0] = '\0';
    if (holder != NULL && holdfast_event_number(event, "age_ms", &age))
        (void)snprintf(text, text_bytes, " (%s, for %" PRIu64 ".%" PRIu64 " s)",
            escape_text(holder, name, sizeof(name)), age / 1000,
            age % 1000 / 100);
    return text;
}

/* The exit status for an ERR to LOCK. */
static int
refused(const struct attempt *attempt, const struct holdfast_event *event)
{
    const char *name = holdfast_event_value(event, "name");
    char what[4 * HOLDFAST_NAME_MAX + 1];
    char holder[320];

    if (strcmp(event->word, "DRAINING") == 0)
        return AGAIN;
    if (name == NULL)
        name = attempt->acquire->keys[0];
    (void)escape_text(name, what, sizeof(what));
    complain_refused(what, event, holder_text(event, holder, sizeof(holder)));
    if (strcmp(event->word, "BUSY") == 0 || strcmp(event->word, "TIMEOUT") == 0)
        return STATUS_NOT_ACQUIRED;
    return STATUS_TROUBLE;
}

/* The locks to hold. */
static void
acquired_init(struct acquired *acquired, const struct acquire *acquire)
{
    const char *owner = acquire->options.owner;

    require(acquire->key_count <= HOLDFAST_NAMES_MAX);
    memset(acquired, 0, sizeof(*acquired));
    acquired->count = acquire->key_count;
    for (size_t i = 0; i < acquired->count; i++) {
        struct holdfast_hold *hold = &acquired->hold[i];

        (void)snprintf(hold->name, sizeof(hold->name), "%s", acquire->keys[i]);
        (void)snprintf(
            hold->owner, sizeof(hold->owner), "%s", owner != NULL ? owner : "");
    }
}

/* It is. */
static void
acquired_fill(struct acquired *acquired, const struct holdfast_event *event)
{
    uint64_t fences[HOLDFAST_NAMES_MAX] = {0};

    /* The library tells no OK that lacks one. */
    require(holdfast_event_fences(event, fences, HOLDFAST_NAMES_MAX) ==
            acquired->count);
    for (size_t i = 0; i < acquired->count; i++) {
        struct holdfast_hold *hold = &acquired->hold[i];

        hold->fence = fences[i];
        hold->count = 1;
        hold->ttl_ms = event->ttl_ms;
        hold->deadline_ms = event->deadline_ms;
    }
}

void
acquired_text(const struct acquired *acquired, bool fences, char between,
    char *text, size_t text_bytes)
{
    size_t at = 0;

    text[0] = '\0';
    for (size_t i = 0; i < acquired->count && at < text_bytes; i++) {
        const struct holdfast_hold *hold = &acquired->hold[i];
        const char gap[] = {i > 0 ? between : '\0', '\0'};
        int len = fences ? snprintf(text + at, text_bytes - at, "%s%" PRIu64,
                               gap, hold->fence)
                         : snprintf(text + at, text_bytes - at, "%s%s", gap,
                               hold->name);

        at += (size_t)len;
    }
}

uint64_t
acquired_deadline_ms(const struct holdfast *h, const struct acquired *acquired)
{
    uint64_t soonest = UINT64_MAX;

    for (size_t i = 0; i < acquired->count; i++) {
        uint64_t deadline = holdfast_deadline_ms(h, &acquired->hold[i]);

        if (deadline < soonest)
            soonest = deadline;
    }
    return soonest;
}

void
acquire_complain_away(const struct holdfast_event *event)
{
    char text[256];

    if (event->kind == HOLDFAST_BACK)
        complain("a broker is there again");
    else
        complain("warning: the broker is away: %s",
            escape_text(event->text, text, sizeof(text)));
}

/* Before the locks are asked for. Without a guard it is done all the same. */
static void
guard_wait(const struct attempt *attempt, const struct holdfast *h,
    const struct acquired *acquired)
{
    const struct acquire *acquire = attempt->acquire;
    struct will *will = &attempt->guard->will;

    if (acquire->keep_ms == 0)
        return;
    will->state = WILL_WAITING;
    (void)snprintf(
        will->session, sizeof(will->session), "%s", holdfast_session(h));
    will->keep_ms = acquire->keep_ms;
    will->shared = acquire->options.shared;
    will->limit = acquire->options.limit;
    will->permits = acquire->options.permits;
    will->acquired = *acquired;
    if (!guard_tell(attempt->guard))
        complain("warning: no guard: %s", strerror(errno));
}

bool
acquire_guard(struct guard *guard, const struct holdfast *h,
    const struct acquired *acquired, pid_t group)
{
    struct will *will = &guard->will;

    will->state = WILL_HELD;
    will->group = group;
    will->acquired = *acquired;
    if (holdfast_keep_ms(h) == 0)
        will->session[0] = '\0';
    return guard_tell(guard);
}

static enum holdfast_status
ask(const struct attempt *attempt, struct holdfast *h, uint64_t wait_ms,
    uint64_t *request)
{
    const struct acquire *acquire = attempt->acquire;
    struct holdfast_lock_options options = acquire->options;

    options.wait_ms = wait_ms;
    options.progress = wait_ms > TELL_MS;
    return holdfast_submit_lock_all(
        h, acquire->keys, acquire->key_count, &options, request);
}

/* A place in the queue. */
static void
note_queued(struct attempt *attempt, const struct holdfast_event *event)
{
    const char *name = holdfast_event_value(event, "name");
    char what[4 * HOLDFAST_NAME_MAX + 1];
    char holder[320];
    char left[32];
    uint64_t position = 0;
    uint64_t after_ms;

    if (attempt->acquire->key_count > 1 && name == NULL)
        return;
    (void)escape_text(
        name != NULL ? name : attempt->acquire->keys[0], what, sizeof(what));
    (void)holdfast_event_number(event, "position", &position);
    if (holdfast_event_number(event, "after_ms", &after_ms)) {
        out_duration(after_ms, left, sizeof(left));
        (void)snprintf(attempt->waits, sizeof(attempt->waits),
            "%.300s: waiting for the broker to settle with Redis, for %s at "
            "most",
            what, left);
        return;
    }
    (void)snprintf(attempt->waits, sizeof(attempt->waits),
        "%.300s: waiting at position %" PRIu64 "%s", what, position,
        holder_text(event, holder, sizeof(holder)));
}

/* The reason of a wait is told once, when it has lasted for a while. */
static void
tell_waiting(struct attempt *attempt)
{
    if (attempt->told || loop_now_ms() < attempt->start_ms + TELL_MS)
        return;
    attempt->told = true;
    if (attempt->waits[0] != '\0')
        complain("%s", attempt->waits);
    else if (!attempt->away)
        complain("waiting: the broker has not answered yet; `holdfast status` "
                 "tells whether it can ask Redis");
}

/*
 * One event while the lock is waited for. STATUS_FINE: held; AGAIN: the broker
 * is gone; WAITING: it goes on.
 */
static int
lock_event(struct attempt *attempt, const struct holdfast_event *event,
    uint64_t request, struct acquired *acquired)
{
    if (event->kind == HOLDFAST_CLOSED)
        return AGAIN;
    if (event->kind == HOLDFAST_BYE && strcmp(event->word, "killed") == 0) {
        complain("not acquired: the session was ended by an operator");
        return STATUS_TROUBLE;
    }
    if (event->kind == HOLDFAST_AWAY) {
        (void)escape_text(event->text, attempt->why, sizeof(attempt->why));
        attempt->away = true;
        reach_begin(attempt);
    }
    if (event->kind == HOLDFAST_BACK)
        attempt->away = false;
    if (event->kind == HOLDFAST_AWAY || event->kind == HOLDFAST_BACK)
        acquire_complain_away(event);
    if (event->request == request && event->kind == HOLDFAST_QUEUED)
        note_queued(attempt, event);
    if (event->request == request && event->kind == HOLDFAST_ERR)
        return refused(attempt, event);
    if (event->request == request && event->kind == HOLDFAST_OK) {
        acquired_fill(acquired, event);
        return STATUS_FINE;
    }
    return WAITING;
}

/* Whether it has been waited for long enough; WAITING: not yet. */
static int
lock_overdue(const struct attempt *attempt, uint64_t end_ms)
{
    uint64_t now = loop_now_ms();

    if (attempt->away && now >= attempt->reach_ms) {
        complain(
            "no broker at %s: %s", attempt->acquire->address, attempt->why);
        return STATUS_TROUBLE;
    }
    if (now < end_ms)
        return WAITING;
    complain("not acquired: the broker does not answer");
    return STATUS_NOT_ACQUIRED;
}

/* Waits for the answer to the LOCK; AGAIN: the broker is gone. */
static int
lock_once(struct attempt *attempt, struct holdfast *h, bool first,
    struct acquired *acquired)
{
    uint64_t wait = wait_left(attempt, first);
    uint64_t end = wait == HOLDFAST_FOREVER ? UINT64_MAX
                                            : loop_now_ms() + wait + ANSWER_MS;
    struct holdfast_event event;
    uint64_t request;

    guard_wait(attempt, h, acquired);
    enum holdfast_status asked = ask(attempt, h, wait, &request);
    if (asked != HOLDFAST_SUCCESS) {
        complain("%s", holdfast_status_text(asked));
        return asked == HOLDFAST_NOT_CONNECTED ? AGAIN : STATUS_TROUBLE;
    }
    attempt->away = false;
    holdfast_process(h, 0);
    for (;;) {
        while (holdfast_next(h, &event)) {
            int status = lock_event(attempt, &event, request, acquired);
            if (status != WAITING)
                return status;
        }
        int status = lock_overdue(attempt, end);
        if (status != WAITING)
            return status;
        tell_waiting(attempt);
        uint64_t until =
            attempt->away && attempt->reach_ms < end ? attempt->reach_ms : end;
        if (!attempt->told && attempt->start_ms + TELL_MS < until)
            until = attempt->start_ms + TELL_MS;
        short revents = loop_wait(attempt->loop, h, until, -1, NULL);
        holdfast_process(h, revents);
        int ended = signals_take(attempt->loop);
        if (ended != STATUS_FINE)
            return ended;
    }
}

/*
 * After a connection, greeted at `greeted_ms`, that ended without the lock:
 * pauses; STATUS_FINE where another one is to be tried.
 */
static int
reach_again(struct attempt *attempt, uint64_t greeted_ms)
{
    const struct acquire *acquire = attempt->acquire;

    /* A broker that refuses at once was not reached in any useful sense. */
    if (loop_now_ms() - greeted_ms >= PAUSE_MAX_MS)
        reach_begin(attempt);
    uint64_t next = loop_now_ms() + pause_ms(attempt);
    if (next >= attempt->reach_ms) {
        complain("no broker at %s: it is going", acquire->address);
        return STATUS_TROUBLE;
    }
    if (acquire->options.wait_ms != HOLDFAST_FOREVER &&
        wait_left(attempt, false) == 0) {
        complain("not acquired: the connection to the broker ended");
        return STATUS_NOT_ACQUIRED;
    }
    return pause_until(attempt, next);
}

/* One session after another; STATUS_FINE: *h holds the locks. */
static int
lock_at_last(
    struct attempt *attempt, struct holdfast **h, struct acquired *acquired)
{
    for (bool first = true;; first = false) {
        int status = greet(attempt, h);
        if (status != STATUS_FINE)
            return status;
        uint64_t greeted = loop_now_ms();
        status = lock_once(attempt, *h, first && attempt->tries == 0, acquired);
        if (status == STATUS_FINE)
            return status;
        if (status == AGAIN && holdfast_is_refused(*h)) {
            char why[256];
            complain("%s", escape_text(holdfast_reason(*h), why, sizeof(why)));
            status = STATUS_TROUBLE;
        }
        holdfast_destroy(h);
        if (status != AGAIN)
            return status;
        status = reach_again(attempt, greeted);
        if (status != STATUS_FINE)
            return status;
    }
}

/* A wait that ends by --wait says enough itself. */
static bool
would_wait_for_itself(const struct acquire *acquire)
{
    char text[256];
    const char *key;
    long pid;

    if (acquire->options.wait_ms != HOLDFAST_FOREVER ||
        (key = nested_find(acquire, &pid)) == NULL)
        return false;
    complain("%s is held by the holdfast run (process %ld) that this command "
             "runs under: waiting for it would never end; use another key, "
             "or --wait",
        escape_text(key, text, sizeof(text)), pid);
    return true;
}

int
acquire_lock(const struct acquire *acquire, struct loop *loop,
    struct guard *guard, struct holdfast **h, struct acquired *acquired)
{
    struct attempt attempt = {
        .acquire = acquire,
        .loop = loop,
        .guard = guard,
        .start_ms = loop_now_ms(),
    };

    *h = NULL;
    if (would_wait_for_itself(acquire))
        return STATUS_TROUBLE;
    acquired_init(acquired, acquire);
    reach_begin(&attempt);
    int status = lock_at_last(&attempt, h, acquired);
    if (status != STATUS_FINE && attempt.away)
        guard_leave(guard); /* no broker has heard that it is over */
    else if (status != STATUS_FINE)
        guard_dismiss(guard);
    return status;
}

/* Waits for the answer to one UNLOCK, until `end_ms`; false: there is none. */
static bool
release_wait(struct holdfast *h, enum holdfast_status status, uint64_t request,
    uint64_t end_ms)
{
    uint64_t now = loop_now_ms();
    struct holdfast_event event;
    char why[256];

    if (status == HOLDFAST_SUCCESS)
        status =
            holdfast_wait(h, request, end_ms > now ? end_ms - now : 0, &event);
    if (status == HOLDFAST_REFUSED) {
        complain_refused("warning: the unlock was refused", &event, "");
    } else if (status != HOLDFAST_SUCCESS) {
        complain("warning: the unlock was not answered: %s",
            broker_trouble(h, status, why, sizeof(why)));
        return false;
    }
    return true;
}

void
acquire_release(
    struct holdfast *h, struct guard *guard, const struct acquired *acquired)
{
    uint64_t end = loop_now_ms() + (holdfast_fd(h) >= 0 ? RELEASE_MS : KEPT_MS);
    enum holdfast_status status[HOLDFAST_NAMES_MAX];
    uint64_t request[HOLDFAST_NAMES_MAX];
    bool answered = true;

    guard->will.state = WILL_OVER;
    guard->will.group = 0;
    if (guard->pid != 0)
        (void)guard_tell(guard);
    for (size_t i = 0; i < acquired->count; i++) {
        const struct holdfast_hold *hold = &acquired->hold[i];
        const char *owner = hold->owner[0] != '\0' ? hold->owner : NULL;

        status[i] = holdfast_submit_unlock(
            h, hold->name, owner, hold->fence, &request[i]);
    }
    for (size_t i = 0; i < acquired->count; i++)
        answered &= release_wait(h, status[i], request[i], end);
    if (answered)
        guard_dismiss(guard);
    else
        guard_leave(guard);
}

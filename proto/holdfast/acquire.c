/*
 * Taking locks from a broker that may be away for a moment.
 *
 * Without a broker the command tries again for REACH_MS or --wait, whichever is
 * less. A restarting broker is back by then. A broker is reached when it has
 * greeted. If a connection ends during the wait, the search begins anew, within
 * the same --wait. A kept session keeps its place in the queue meanwhile; the
 * library moves it. Any other session begins at the end of the queue.
 *
 * A kept place needs a guard before the request is sent. Otherwise a killed
 * process would leave its place in the queue, and the broker would grant the
 * lock to nobody.
 *
 * Signals that would end the process end it here too, with no lock held.
 */
#define _GNU_SOURCE 1

#include "proto/holdfast/acquire.h"

#include "daemon/base/assert.h"
#include "proto/holdfast/escape.h"
#include "proto/holdfast/guard.h"
#include "proto/holdfast/out.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

#define REACH_MS     9000 /* the manual promises ten seconds */
#define REACH_MIN_MS 1000 /* for one try, also with --wait 0 */
#define PAUSE_MIN_MS 50
#define PAUSE_MAX_MS 1000
#define ANSWER_MS    8000 /* for the final answer, after the wait */
#define RELEASE_MS   2000
#define KEPT_MS      5000  /* for a release at another broker */
#define KEEP_MS      30000 /* the default of --keep */
#define TELL_MS      2000  /* of waiting, until its reason is printed */
#define LIMIT_MAX    4294967295u

#define TELLING_TRIES 3 /* failed tries, until a warning is printed */

#define HOST_CHARS 47 /* leaves room for the PID */

/* Beside the exit statuses. */
enum {
    AGAIN = -1,   /* connect anew */
    WAITING = -2, /* wait on */
};

struct attempt {
    const struct acquire *acquire; /* ref */
    struct loop *loop;             /* ref */
    struct guard *guard;           /* ref */
    uint64_t start_ms;
    uint64_t reach_ms; /* the deadline for reaching a broker */
    unsigned tries;
    bool away;       /* no broker serves the session now */
    bool told;       /* `waits` was printed */
    char why[256];   /* the session is away */
    char waits[640]; /* the reason of the wait; "": not known */
};

/* The rules between options. False after a complaint. */
static bool
options_check(const struct acquire *acquire)
{
    const struct holdfast_lock_options *asked = &acquire->options;

    if (acquire->detached && acquire->keep_ms != UINT64_MAX)
        complain("--keep and --detached cannot be combined: a detached hold "
                 "has no session");
    else if (acquire->keep_ms != UINT64_MAX &&
             acquire->keep_ms > HOLDFAST_KEEP_MAX_MS)
        complain(
            "--keep: %" PRIu64 "ms is more than one hour", acquire->keep_ms);
    else if (asked->delay_ms > DAY_MS)
        complain("--delay: %" PRIu64 "ms is more than 24h", asked->delay_ms);
    else if (asked->permits > 0 && asked->limit == 0)
        complain("--permits needs --limit");
    else if (asked->permits > asked->limit)
        complain("--permits: %" PRIu64 " is more than --limit, %" PRIu64,
            asked->permits, asked->limit);
    else if (asked->shared && asked->limit > 0)
        complain("--shared and --limit cannot be combined");
    else if (asked->tree && (asked->limit > 0 || acquire->detached))
        complain("--tree cannot be combined with --limit or --detached");
    else if (acquire->detached && asked->lease_ms == UINT64_MAX)
        complain("--detached needs --lease D, of at most 24h");
    else if (acquire->detached && acquire->key_count > 1)
        complain("--detached takes one KEY, not %zu", acquire->key_count);
    else
        return asked->lease_ms == UINT64_MAX ||
               lease_check(asked->lease_ms, acquire->detached);
    return false;
}

bool
acquire_parse(struct settings *settings, const char *command, char **argv,
    struct acquire *acquire, struct words *words)
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
        {.name = "permits", .max = LIMIT_MAX, .number = &asked->permits},
        {.name = "shared", .flag = &asked->shared},
        {.name = "tree", .flag = &asked->tree},
        {.name = "detached", .flag = &acquire->detached}, /* of lock alone */
    };
    size_t count = COUNT(options) - (strcmp(command, "lock") != 0);

    *acquire = (struct acquire){.keep_ms = UINT64_MAX,
        .options = {.wait_ms = HOLDFAST_FOREVER, .lease_ms = UINT64_MAX}};
    bool taken = words_take(settings, command, options, count, argv, words);
    if (words->status != STATUS_FINE)
        words->status = STATUS_TROUBLE;
    acquire->key_count = words->count;
    for (size_t i = 0; i < words->count && taken; i++)
        taken = key_check(command, words->word[i]);
    if (!taken || !options_check(acquire) ||
        !connect_options(settings, &(struct holdfast_options){.keep_ms = 0}))
        return false;
    if (asked->lease_ms == UINT64_MAX)
        asked->lease_ms = 0;
    if (acquire->keep_ms == UINT64_MAX)
        acquire->keep_ms = KEEP_MS;
    acquire->address = connect_address(settings);
    acquire->keys = (const char *const *)words->word;
    return true;
}

/* HOST:PID, which tells operators where the session comes from. */
static const char *
session_name(char *name, size_t name_bytes)
{
    char host[HOST_NAME_MAX + 1] = "";

    (void)gethostname(host, sizeof(host));
    (void)snprintf(
        name, name_bytes, "%.*s:%ld", HOST_CHARS, host, (long)getpid());
    return name;
}

/* A resolver hangs. No lock is held while a name is looked up, so the process
 * may end at once. */
static void
resolver_over(int signal)
{
    static const char text[] =
        "holdfast: no broker: the host's name is not resolved in time\n";

    (void)signal;
    (void)!write(STDERR_FILENO, text, sizeof(text) - 1);
    _exit(STATUS_TROUBLE);
}

/* holdfast_create_with(), which may block, until a signal or reach_ms. */
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
    /* acquire_parse() has called it, so it cannot fail. */
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

/*
 * Acts on the signals that came. Any status but STATUS_FINE is the exit status.
 */
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

/* Waits without a connection; returns as signals_take(). */
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

/* A pause that doubles, and differs from process to process. */
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

/* Connects once, up to the greeting. AGAIN: it failed, `why` says why. */
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

/* Connects until a broker greets, or reach_ms. */
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

/* Sets reach_ms. */
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

/* The rest of --wait, for the request. The first try has the whole. */
static uint64_t
wait_left(const struct attempt *attempt, bool first)
{
    uint64_t wait = attempt->acquire->options.wait_ms;
    uint64_t passed = loop_now_ms() - attempt->start_ms;

    if (wait == HOLDFAST_FOREVER || first)
        return wait;
    return passed < wait ? wait - passed : 0;
}

/* " (HOLDER, for AGE s)", or "" if the broker does not name the holder. */
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

/* The locks of the request, without fences. */
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

/* The locks of the request, by its OK. */
static void
acquired_fill(struct acquired *acquired, const struct holdfast_event *event)
{
    uint64_t fences[HOLDFAST_NAMES_MAX] = {0};

    /* The library passes on no OK that lacks a fence. */
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
        complain("a broker serves the session again");
    else
        complain("warning: the broker is away: %s",
            escape_text(event->text, text, sizeof(text)));
}

const char *
acquire_loss(const struct holdfast_event *event)
{
    const char *reason = holdfast_event_value(event, "reason");

    if (event->kind == HOLDFAST_LOST && event->request != 0)
        return reason != NULL ? reason : "the broker says so";
    if (event->kind == HOLDFAST_DEADLINE)
        return "the broker did not answer before the deadline";
    if (event->kind == HOLDFAST_CLOSED)
        return event->text;
    if (event->kind == HOLDFAST_JEOPARDY)
        complain("warning: the renewal of the lock is late; %" PRIu64
                 " ms are left",
            event->ttl_ms);
    if (event->kind == HOLDFAST_SAFE)
        complain("the lock is renewed again");
    if (event->kind == HOLDFAST_AWAY || event->kind == HOLDFAST_BACK)
        acquire_complain_away(event);
    return NULL;
}

/* Tells the guard of the request to come. The command goes on without a guard,
 * after a warning. */
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
    will->tree = acquire->options.tree;
    will->limit = acquire->options.limit;
    will->permits = acquire->options.permits;
    will->acquired = *acquired;
    if (!guard_tell(attempt->guard))
        complain("warning: no guard process: %s", strerror(errno));
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

/* Sends the LOCK. */
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

/* Keeps the reason of the wait, from a QUEUED. */
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
            "%.300s: waiting for the broker to settle with Redis, at most %s",
            what, left);
        return;
    }
    (void)snprintf(attempt->waits, sizeof(attempt->waits),
        "%.300s: waiting at position %" PRIu64 "%s", what, position,
        holder_text(event, holder, sizeof(holder)));
}

/* Prints the reason of the wait once, after TELL_MS. */
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
                 "shows whether it reaches Redis");
}

/* Handles one event of the wait. STATUS_FINE: the locks are held; AGAIN: the
 * connection has ended; WAITING: the wait goes on. */
static int
lock_event(struct attempt *attempt, const struct holdfast_event *event,
    uint64_t request, struct acquired *acquired)
{
    if (event->kind == HOLDFAST_CLOSED)
        return AGAIN;
    if (event->kind == HOLDFAST_BYE && strcmp(event->word, "killed") == 0) {
        complain("not acquired: an operator has ended the session");
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

/* Ends a wait that is overdue; WAITING: it is not. */
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

/* Sends the LOCK and waits for its answer; returns as lock_event(). */
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

/* Pauses after a connection that ended without the lock. STATUS_FINE: try
 * another one. */
static int
reach_again(struct attempt *attempt, uint64_t greeted_ms)
{
    const struct acquire *acquire = attempt->acquire;

    /* A broker that refuses at once does not count as reached. */
    if (loop_now_ms() - greeted_ms >= PAUSE_MAX_MS)
        reach_begin(attempt);
    uint64_t next = loop_now_ms() + pause_ms(attempt);
    if (next >= attempt->reach_ms) {
        complain("no broker at %s: it stops", acquire->address);
        return STATUS_TROUBLE;
    }
    if (acquire->options.wait_ms != HOLDFAST_FOREVER &&
        wait_left(attempt, false) == 0) {
        complain("not acquired: the connection to the broker ended");
        return STATUS_NOT_ACQUIRED;
    }
    return pause_until(attempt, next);
}

/* Tries session after session; STATUS_FINE: *h holds the locks. */
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

/* Whether a run above this process holds a key. A wait that --wait ends is
 * allowed. */
static bool
would_wait_for_itself(const struct acquire *acquire)
{
    char text[256];
    const char *key;
    long pid;

    if (acquire->options.wait_ms != HOLDFAST_FOREVER ||
        (key = nested_find(acquire, &pid)) == NULL)
        return false;
    complain("%s is held by holdfast run (process %ld), under which this "
             "command runs: the wait would never end; use another key, or "
             "--wait",
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
        guard_leave(guard); /* the guard ends the session */
    else if (status != STATUS_FINE)
        guard_dismiss(guard);
    return status;
}

/* Waits for the answer to one UNLOCK, until `end_ms`. False: no answer. */
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

    require(acquired->count > 0 && acquired->count <= HOLDFAST_NAMES_MAX);
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

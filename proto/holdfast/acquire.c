/*
 * A lock from a broker that may be away for a moment.
 *
 * Where no broker is to be reached it is tried again for REACH_MS or --wait,
 * whichever is less: a restarting broker is back by then, and who waits for a
 * missing one should hear of it. "Reached" means that it greeted. A connection
 * that ends while the lock is waited for begins this anew, at the end of the
 * queue, within the same --wait.
 *
 * Signals that would end the process end it here too, with nothing held.
 */
#define _GNU_SOURCE 1

#include "proto/holdfast/acquire.h"

#include "proto/holdfast/escape.h"

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

#define SESSION_NAME_BYTES 65 /* what HELLO takes, and a NUL */
#define HOST_CHARS         47 /* the PID must not be cut off */

enum {
    AGAIN = -1
}; /* no exit status: connect anew */

struct attempt {
    const struct acquire *acquire; /* ref */
    struct loop *loop;             /* ref */
    uint64_t start_ms;
    uint64_t reach_ms; /* until when a broker must be reached */
    unsigned tries;
};

bool
acquire_parse(struct settings *settings, const char *command, char **argv,
    bool program, struct acquire *acquire, struct words *words, int *status)
{
    *acquire = (struct acquire){.wait_ms = HOLDFAST_FOREVER};
    const struct option options[] = {
        {"wait", 0, NULL, &acquire->wait_ms},
        {"lease", 0, NULL, &acquire->lease_ms},
        {"owner", HOLDFAST_OWNER_MAX, &acquire->owner, NULL},
        {"note", HOLDFAST_NOTE_MAX, &acquire->note, NULL},
    };

    *status = STATUS_TROUBLE;
    acquire->lease_ms = UINT64_MAX;
    if (!options_parse(settings, options, sizeof(options) / sizeof(options[0]),
            STOP_NEVER, argv, words))
        return false;
    if (words->help) {
        (void)help_print(command);
        *status = STATUS_FINE;
        return false;
    }
    if (words->count != 1 || strlen(words->word[0]) == 0 ||
        strlen(words->word[0]) > HOLDFAST_NAME_MAX) {
        complain(
            "%s: takes one KEY, of 1 to %d bytes", command, HOLDFAST_NAME_MAX);
        return false;
    }
    if (program && (words->rest == NULL || words->rest[0] == NULL)) {
        complain("%s: '-- PROGRAM' is missing", command);
        return false;
    }
    if (!program && words->rest != NULL) {
        complain("%s: takes no PROGRAM", command);
        return false;
    }
    if (acquire->lease_ms == 0) {
        complain("--lease: 0 is no lease");
        return false;
    }
    if (acquire->lease_ms == UINT64_MAX)
        acquire->lease_ms = 0;
    acquire->address = settings->address;
    acquire->key = words->word[0];
    return true;
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
    uint64_t now = loop_now_ms();
    uint64_t left =
        attempt->reach_ms > now ? attempt->reach_ms - now : REACH_MIN_MS;

    timer.it_value.tv_sec = (time_t)(left / 1000);
    timer.it_value.tv_usec = (suseconds_t)(left % 1000) * 1000 + 1;
    (void)sigaction(SIGALRM, &alarmed, &before);
    (void)setitimer(ITIMER_REAL, &timer, NULL);
    (void)sigprocmask(SIG_SETMASK, &attempt->loop->before, &blocked);
    enum holdfast_status status = holdfast_create(attempt->acquire->address, h);
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
            (void)snprintf(why, why_bytes, "it does not answer");
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
    uint64_t left = attempt->acquire->wait_ms < REACH_MS
                        ? attempt->acquire->wait_ms
                        : REACH_MS;

    left = left < REACH_MIN_MS ? REACH_MIN_MS : left;
    attempt->reach_ms = loop_now_ms() + left;
    attempt->tries = 0;
}

/* What is left of --wait, for the request. The first try has all of it. */
static uint64_t
wait_left(const struct attempt *attempt, bool first)
{
    uint64_t wait = attempt->acquire->wait_ms;
    uint64_t passed = loop_now_ms() - attempt->start_ms;

    if (wait == HOLDFAST_FOREVER || first)
        return wait;
    return passed < wait ? wait - passed : 0;
}

/* What an ERR to LOCK means for the exit status. */
static int
refused(const struct attempt *attempt, const struct holdfast_event *event)
{
    char what[4 * HOLDFAST_NAME_MAX + 1];

    if (strcmp(event->word, "DRAINING") == 0)
        return AGAIN;
    complain_refused(
        escape_text(attempt->acquire->key, what, sizeof(what)), event);
    if (strcmp(event->word, "BUSY") == 0 || strcmp(event->word, "TIMEOUT") == 0)
        return STATUS_NOT_ACQUIRED;
    return STATUS_TROUBLE;
}

static void
hold_fill(const struct acquire *acquire, const struct holdfast_event *event,
    struct holdfast_hold *hold)
{
    memset(hold, 0, sizeof(*hold));
    (void)snprintf(hold->name, sizeof(hold->name), "%s", acquire->key);
    (void)snprintf(hold->owner, sizeof(hold->owner), "%s",
        acquire->owner != NULL ? acquire->owner : "");
    hold->fence = event->fence;
    hold->count = 1;
    hold->ttl_ms = event->ttl_ms;
    hold->deadline_ms = event->deadline_ms;
}

/* HOST:PID, so that those who list the sessions know whom to ask. */
static void
session_name(char *name, size_t name_bytes)
{
    char host[HOST_NAME_MAX + 1] = "";

    (void)gethostname(host, sizeof(host));
    (void)snprintf(
        name, name_bytes, "%.*s:%ld", HOST_CHARS, host, (long)getpid());
}

/* Sends the session's name, whose answer does not matter, and the LOCK. */
static enum holdfast_status
ask(const struct attempt *attempt, struct holdfast *h, uint64_t wait_ms,
    uint64_t *request)
{
    const struct acquire *acquire = attempt->acquire;
    const struct holdfast_lock_options options = {
        .wait_ms = wait_ms,
        .lease_ms = acquire->lease_ms,
        .owner = acquire->owner,
        .note = acquire->note,
    };
    char name[SESSION_NAME_BYTES];
    char word[3 * SESSION_NAME_BYTES];
    char line[sizeof(word) + 16];

    session_name(name, sizeof(name));
    (void)holdfast_encode(name, strlen(name), word, sizeof(word));
    (void)snprintf(line, sizeof(line), "HELLO name=%s", word);
    (void)holdfast_submit(h, line, request);
    return holdfast_submit_lock(h, acquire->key, &options, request);
}

/* Waits for the answer to the LOCK; AGAIN: the broker is gone. */
static int
lock_once(struct attempt *attempt, struct holdfast *h, bool first,
    struct holdfast_hold *hold)
{
    uint64_t wait = wait_left(attempt, first);
    uint64_t end = wait == HOLDFAST_FOREVER ? UINT64_MAX
                                            : loop_now_ms() + wait + ANSWER_MS;
    struct holdfast_event event;
    uint64_t request;

    enum holdfast_status asked = ask(attempt, h, wait, &request);
    if (asked != HOLDFAST_SUCCESS) {
        complain("%s", holdfast_status_text(asked));
        return asked == HOLDFAST_NOT_CONNECTED ? AGAIN : STATUS_TROUBLE;
    }
    holdfast_process(h, 0);
    for (;;) {
        while (holdfast_next(h, &event)) {
            if (event.kind == HOLDFAST_CLOSED)
                return AGAIN;
            if (event.request == request && event.kind == HOLDFAST_ERR)
                return refused(attempt, &event);
            if (event.request == request && event.kind == HOLDFAST_OK) {
                hold_fill(attempt->acquire, &event, hold);
                return STATUS_FINE;
            }
        }
        if (loop_now_ms() >= end) {
            complain("not acquired: the broker does not answer");
            return STATUS_NOT_ACQUIRED;
        }
        short revents = loop_wait(attempt->loop, h, end, -1, NULL);
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
    if (acquire->wait_ms != HOLDFAST_FOREVER &&
        wait_left(attempt, false) == 0) {
        complain("not acquired: the connection to the broker ended");
        return STATUS_NOT_ACQUIRED;
    }
    return pause_until(attempt, next);
}

int
acquire_lock(const struct acquire *acquire, struct loop *loop,
    struct holdfast **h, struct holdfast_hold *hold)
{
    struct attempt attempt = {
        .acquire = acquire,
        .loop = loop,
        .start_ms = loop_now_ms(),
    };

    *h = NULL;
    reach_begin(&attempt);
    for (bool first = true;; first = false) {
        int status = greet(&attempt, h);
        if (status != STATUS_FINE)
            return status;
        uint64_t greeted = loop_now_ms();
        status = lock_once(&attempt, *h, first && attempt.tries == 0, hold);
        if (status == STATUS_FINE)
            return status;
        holdfast_destroy(h);
        if (status != AGAIN)
            return status;
        status = reach_again(&attempt, greeted);
        if (status != STATUS_FINE)
            return status;
    }
}

void
acquire_release(struct holdfast *h, const struct holdfast_hold *hold)
{
    const char *owner = hold->owner[0] != '\0' ? hold->owner : NULL;
    struct holdfast_event event;
    uint64_t request;
    char why[256];

    enum holdfast_status status =
        holdfast_submit_unlock(h, hold->name, owner, hold->fence, &request);
    if (status == HOLDFAST_SUCCESS)
        status = holdfast_wait(h, request, RELEASE_MS, &event);
    if (status == HOLDFAST_REFUSED) {
        complain_refused("warning: the unlock was refused", &event);
    } else if (status != HOLDFAST_SUCCESS) {
        complain("warning: the unlock was not answered: %s",
            broker_trouble(h, status, why, sizeof(why)));
    }
}

/*
 * The input is a broker's lines to the client library, and in between, on lines
 * that begin with '!', the program's deeds:
 *
 *     !l3 NAME  asks for a lock; the digit's bits choose the options (ASK_*)
 *     !L3 NAME  the same of the kinds that are shared by several (ASK_*)
 *     !a A B    asks for several names
 *     !h NAME   watches a lock         !H NAME   no more
 *     !u1 NAME  gives it back          !r1 NAME  renews it
 *     !s TEXT   any other request      !w 7      looks for the answer to it
 *     !t 500    milliseconds pass      !m 100    the margin of deadlines
 *     !c 3      bytes a read from now  !n        leaves events lying, or not
 *     !k        the broker closes
 *
 * For each input:
 *
 * - each request has at most one final answer, and nothing else has one;
 * - the greeting is told once, before any success, the end once and last;
 * - the object of an event is there;
 * - no deadline lies beyond now and the longest time that was promised;
 * - the library comes to rest: left alone it never asks to be called for ever,
 *   and nothing is trusted when the broker has been silent for long.
 */
#include "daemon/base/assert.h"
#include "proto/clients/c/client.h"
#include "proto/clients/c/hold.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define REQUESTS_MAX   4096
#define LINE_BYTES_MAX 20000 /* more than a line of the broker may have */
#define STEPS_MAX      20000 /* of a library that is left alone */

enum ask {
    ASK_NO_WAIT = 1,
    ASK_OWNER = 2,
    ASK_LEASE = 4, /* or, of UNLOCK and RENEW, with the fence */
    ASK_NOTE = 8,  /* and progress */
    ASK_KINDS = 16,
};

struct talk {
    struct holdfast *h; /* owned */
    int broker;         /* owned; the other end, -1: closed */
    uint64_t now_ms;
    uint64_t promised_ms; /* the longest ttl_ms of any line */
    size_t part;          /* bytes a read */
    bool lazy;            /* events are left lying */
    bool greeted;
    bool closed;
    uint64_t requests; /* the highest number */
    bool answered[REQUESTS_MAX];
    struct holdfast_hold hold; /* the last one granted */
};

static uint64_t
talk_clock(void *context)
{
    const struct talk *talk = context;

    return talk->now_ms;
}

static void
check_refs(const struct holdfast_event *event)
{
    require(event->word != NULL && event->text != NULL);
    require(event->word[event->word_len] == '\0');
    require(event->text[strlen(event->text)] == '\0');
    require(event->pair_count <= CLIENT_PAIRS);
    for (size_t i = 0; i < event->pair_count; i++) {
        const struct holdfast_pair *pair = &event->pairs[i];
        require(pair->key[0] != '\0' && pair->value[pair->len] == '\0');
        require(holdfast_event_value(event, pair->key) != NULL);
    }
}

static void
check_event(struct talk *talk, const struct holdfast_event *event)
{
    require(!talk->closed);
    require(event->request <= talk->requests);
    check_refs(event);
    require(event->deadline_ms <= talk->now_ms + talk->promised_ms);
    if (event->kind == HOLDFAST_HELLO) {
        require(!talk->greeted);
        talk->greeted = true;
    }
    if (event->kind == HOLDFAST_CLOSED) {
        talk->closed = true;
        require(holdfast_fd(talk->h) == -1 && holdfast_events(talk->h) == 0);
        require(holdfast_reason(talk->h)[0] != '\0');
    }
    if (event->kind == HOLDFAST_OK || event->kind == HOLDFAST_ERR) {
        require(event->request > 0 && !talk->answered[event->request]);
        talk->answered[event->request] = true;
    }
    if (event->kind == HOLDFAST_OK && event->deadline_ms > 0)
        talk->hold.fence = event->fence;
}

static void
take_events(struct talk *talk)
{
    struct holdfast_event event;

    while (holdfast_next(talk->h, &event)) {
        require(talk->greeted || event.kind != HOLDFAST_OK);
        check_event(talk, &event);
    }
}

static void
check_deadline(const struct talk *talk)
{
    require(holdfast_deadline_ms(talk->h, &talk->hold) <=
            talk->now_ms + talk->promised_ms);
}

/* The socket never fills, and the library is never stuck for that. */
static void
broker_read(const struct talk *talk)
{
    char bytes[4096];

    while (talk->broker >= 0 && read(talk->broker, bytes, sizeof(bytes)) > 0)
        continue;
}

/* One turn of the program's loop, and more as long as the library wants it. */
static void
turn(struct talk *talk)
{
    int calls = 0;

    do {
        holdfast_process(talk->h, POLLIN | POLLOUT);
        broker_read(talk);
        if (!talk->lazy)
            take_events(talk);
        check_deadline(talk);
        require(++calls < 8);
    } while (!talk->lazy && holdfast_timeout_ms(talk->h) == 0);
}

static void
broker_close(struct talk *talk)
{
    if (talk->broker >= 0)
        (void)close(talk->broker);
    talk->broker = -1;
}

static void
broker_say(struct talk *talk, const char *bytes, size_t len)
{
    while (len > 0 && talk->broker >= 0) {
        size_t part = len < talk->part ? len : talk->part;
        ssize_t sent = send(talk->broker, bytes, part, MSG_NOSIGNAL);
        turn(talk);
        if (sent < 0)
            return; /* the client has closed, or reads no more */
        bytes += sent;
        len -= (size_t)sent;
    }
}

/* The longest promise that a line could be taken for. */
static void
note_promise(struct talk *talk, const char *line, size_t len)
{
    const char *key = "ttl_ms=";
    const char *end = line + len;

    for (const char *at = line; end - at > 7; at++) {
        uint64_t sum = 0;
        if (memcmp(at, key, 7) != 0)
            continue;
        for (const char *digit = at + 7; digit < end; digit++) {
            /* A digit may be encoded; then anything may be promised. */
            if (*digit == '%')
                sum = UINT64_MAX / 4;
            if (*digit < '0' || *digit > '9' || sum > UINT64_MAX / 10 - 1)
                break;
            sum = sum * 10 + (uint64_t)(*digit - '0');
        }
        sum = sum > UINT64_MAX / 4 ? UINT64_MAX / 4 : sum;
        if (sum > talk->promised_ms)
            talk->promised_ms = sum;
    }
}

static void
submit_lock(struct talk *talk, const char *name, unsigned ask)
{
    struct holdfast_lock_options options = HOLDFAST_LOCK_DEFAULTS;
    uint64_t request = 0;

    options.wait_ms = (ask & ASK_NO_WAIT) != 0 ? 0 : HOLDFAST_FOREVER;
    options.owner = (ask & ASK_OWNER) != 0 ? "me" : NULL;
    options.lease_ms = (ask & ASK_LEASE) != 0 ? 4000 : 0;
    options.note = (ask & ASK_NOTE) != 0 ? "a note" : NULL;
    options.progress = (ask & ASK_NOTE) != 0;
    if ((ask & ASK_KINDS) != 0) {
        options.shared = (ask & ASK_NO_WAIT) == 0;
        options.limit = (ask & ASK_NO_WAIT) != 0 ? 3 : 0;
        options.permits = (ask & ASK_LEASE) != 0 ? 2 : 0;
        options.delay_ms = (ask & ASK_NOTE) != 0 ? 500 : 0;
        options.no_deadlock = (ask & ASK_OWNER) != 0;
    }
    if (holdfast_submit_lock(talk->h, name, &options, &request) !=
        HOLDFAST_SUCCESS)
        return;
    require(strlen(name) <= HOLDFAST_NAME_MAX);
    memset(&talk->hold, 0, sizeof(talk->hold));
    memcpy(talk->hold.name, name, strlen(name));
    if (options.owner != NULL)
        memcpy(talk->hold.owner, options.owner, strlen(options.owner));
}

/* The words of the text; of one with more than enough of them the first. */
static void
submit_several(struct talk *talk, const char *text)
{
    const char *names[HOLDFAST_NAMES_MAX + 1];
    struct holdfast_lock_options options = HOLDFAST_LOCK_DEFAULTS;
    char *copy = strdup(text);
    char *rest = NULL;
    size_t count = 0;
    uint64_t request;

    require(copy != NULL);
    for (char *word = strtok_r(copy, " ", &rest);
         word != NULL && count <= HOLDFAST_NAMES_MAX;
         word = strtok_r(NULL, " ", &rest))
        names[count++] = word;
    (void)holdfast_submit_lock_all(talk->h, names, count, &options, &request);
    free(copy);
}

static void
submit_other(struct talk *talk, char what, const char *text, unsigned ask)
{
    const char *owner = (ask & ASK_OWNER) != 0 ? "me" : NULL;
    uint64_t fence = (ask & ASK_LEASE) != 0 ? talk->hold.fence : 0;
    uint64_t request;

    if (what == 'u')
        (void)holdfast_submit_unlock(talk->h, text, owner, fence, &request);
    else if (what == 'r')
        (void)holdfast_submit_renew(
            talk->h, text, owner, fence, 5000, &request);
    else if (what == 'h')
        (void)holdfast_submit_watch(talk->h, text, &request);
    else if (what == 'H')
        (void)holdfast_submit_unwatch(talk->h, text, &request);
    else
        (void)holdfast_submit(talk->h, text, &request);
}

static void
program_wait(struct talk *talk, uint64_t request)
{
    struct holdfast_event event;
    enum holdfast_status status = holdfast_wait(talk->h, request, 0, &event);

    if (status == HOLDFAST_SUCCESS || status == HOLDFAST_REFUSED)
        check_event(talk, &event);
    require(status == HOLDFAST_SUCCESS || status == HOLDFAST_REFUSED ||
            status == HOLDFAST_TIMED_OUT || status == HOLDFAST_NOT_CONNECTED);
}

/* `text` ends with a NUL. */
static void
program_act(struct talk *talk, const char *text, size_t len)
{
    char what = len > 1 ? text[1] : '\0';
    unsigned ask = len > 2 ? (unsigned char)text[2] % 16 : 0;
    const char *argument = len > 4 ? text + 4 : "";
    uint64_t number = strtoull(argument, NULL, 10);

    if (what == 'l')
        submit_lock(talk, argument, ask);
    else if (what == 'L')
        submit_lock(talk, argument, ask | ASK_KINDS);
    else if (what == 'a')
        submit_several(talk, argument);
    else if (what != '\0' && strchr("urshH", what) != NULL)
        submit_other(talk, what, argument, ask);
    else if (what == 'w')
        program_wait(talk, number);
    else if (what == 't')
        talk->now_ms += number % 100000;
    else if (what == 'm')
        holdfast_set_margin(talk->h, number);
    else if (what == 'c')
        talk->part = 1 + number % 64;
    else if (what == 'n')
        talk->lazy = !talk->lazy;
    else if (what == 'k')
        broker_close(talk);
    talk->requests = talk->h->request_last;
    turn(talk);
    talk->requests = talk->h->request_last;
}

/* No answer comes any more, and time passes. It passes faster if nothing is due
 * for longer than poll() can wait, since a lease may last for ages. */
static void
leave_alone(struct talk *talk)
{
    int wait_ms;
    int steps = 0;

    talk->lazy = false;
    turn(talk);
    talk->requests = talk->h->request_last + REQUESTS_MAX;
    while ((wait_ms = holdfast_timeout_ms(talk->h)) >= 0) {
        talk->now_ms += (uint64_t)wait_ms * (wait_ms == INT_MAX ? 65536 : 1);
        turn(talk);
        require(++steps < STEPS_MAX);
    }
    /* Only what is on its way back, or was closed, has no deadline. */
    require(
        talk->closed || talk->h->holds == NULL || talk->h->holds->releases > 0);
    require(talk->closed || holdfast_deadline_ms(talk->h, &talk->hold) == 0);
}

static void
talk_init(struct talk *talk)
{
    int ends[2];

    memset(talk, 0, sizeof(*talk));
    talk->now_ms = 1000000;
    talk->part = LINE_BYTES_MAX;
    int made = socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends);
    require(made == 0);
    talk->broker = ends[1];
    enum holdfast_status status =
        holdfast_create_over(ends[0], talk_clock, talk, &talk->h);
    require(status == HOLDFAST_SUCCESS);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct talk talk;
    const char *end = (const char *)data + size;

    talk_init(&talk);
    for (const char *at = (const char *)data; at < end;) {
        const char *eol = memchr(at, '\n', (size_t)(end - at));
        size_t len = (size_t)((eol != NULL ? eol : end) - at);
        char *line = malloc(len + 2);

        require(line != NULL);
        memcpy(line, at, len);
        line[len] = '\0';
        at += len + 1;
        if (len > 0 && line[0] == '!') {
            if (talk.h->request_last + 64 < REQUESTS_MAX)
                program_act(&talk, line, len);
        } else {
            note_promise(&talk, line, len);
            line[len] = '\n';
            broker_say(&talk, line, eol != NULL ? len + 1 : len);
        }
        free(line);
    }
    leave_alone(&talk);
    holdfast_destroy(&talk.h);
    require(talk.h == NULL);
    broker_close(&talk);
    return 0;
}

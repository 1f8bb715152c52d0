/*
 * The connection object and its turn: connect, read and dispatch, check the
 * clock, write. Reading comes before the clock, so that an answer that has
 * arrived counts before a deadline is reported.
 */
#define _GNU_SOURCE 1

#include "proto/clients/c/client.h"
#include "proto/clients/c/hold.h"
#include "proto/clients/c/link.h"
#include "proto/clients/c/pending.h"
#include "proto/clients/c/session.h"
#include "proto/clients/c/submit.h"

#include <assert.h>
#include <limits.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#define TURN_READS 16 /* input buffers in one turn */

struct holdfast *
holdfast_make(void)
{
    struct holdfast *h = calloc(1, sizeof(*h));

    if (h == NULL)
        return NULL;
    h->pid = getpid();
    h->fd = -1;
    holdfast_fork_enter(h);
    h->read_wants = POLLIN;
    h->write_wants = POLLOUT;
    h->last = &h->first;
    h->pending_last = &h->pending;
    h->line_max = CLIENT_LINE_BYTES;
    h->margin_ms = UINT64_MAX;
    h->ping_next_ms = UINT64_MAX;
    h->move_ms = UINT64_MAX;
    h->lost = holdfast_session_away;
    h->clock = holdfast_clock;
    if (getrandom(&h->random, sizeof(h->random), GRND_NONBLOCK) !=
        (ssize_t)sizeof(h->random))
        h->random = (uint64_t)getpid() << 32 ^ holdfast_clock(NULL);
    return h;
}

/* Copies the word; NULL is "". False: it is empty or too long. */
static bool
word_take(char *out, size_t out_bytes, const char *word)
{
    size_t len = word != NULL ? strlen(word) : 0;

    if (len >= out_bytes || (word != NULL && len == 0))
        return false;
    if (len > 0)
        memcpy(out, word, len + 1);
    return true;
}

/* Copies the options except the address. False: an option is bad. */
static bool
options_take(struct holdfast *h, const struct holdfast_options *options)
{
    size_t len = options->name != NULL ? strlen(options->name) : 0;

    if (len > HOLDFAST_WORD_MAX || options->keep_ms > HOLDFAST_KEEP_MAX_MS)
        return false;
    if (options->heartbeat_ms > 0 &&
        (options->heartbeat_ms < HOLDFAST_HEARTBEAT_MIN_MS ||
            options->heartbeat_ms > HOLDFAST_HEARTBEAT_MAX_MS))
        return false;
    if (len > 0)
        memcpy(h->name, options->name, len + 1);
    if (!word_take(h->user, sizeof(h->user), options->user) ||
        !word_take(h->secret, sizeof(h->secret), options->secret) ||
        (h->user[0] == '\0') != (h->secret[0] == '\0'))
        return false;
    h->keep_ms = options->keep_ms;
    h->heartbeat_ms = options->heartbeat_ms;
    h->transport = options->transport;
    return true;
}

enum holdfast_status
holdfast_create_at(const struct holdfast_options *options,
    uint64_t (*clock)(void *context), void *context, struct holdfast **out)
{
    struct holdfast *h = holdfast_make();

    *out = NULL;
    if (h == NULL)
        return HOLDFAST_NO_MEMORY;
    if (clock != NULL) {
        h->clock = clock;
        h->clock_context = context;
    }
    enum holdfast_status status = HOLDFAST_BAD_ARGUMENT;
    if (options_take(h, options))
        status = holdfast_link_resolve(h, options->address);
    if (status != HOLDFAST_SUCCESS) {
        holdfast_destroy(&h);
        return status;
    }
    holdfast_link_connect(h);
    holdfast_session_greet(h);
    *out = h;
    return HOLDFAST_SUCCESS;
}

enum holdfast_status
holdfast_create_with(
    const struct holdfast_options *options, struct holdfast **out)
{
    return holdfast_create_at(options, NULL, NULL, out);
}

enum holdfast_status
holdfast_create(const char *address, struct holdfast **out)
{
    const struct holdfast_options options = {.address = address};

    return holdfast_create_with(&options, out);
}

enum holdfast_status
holdfast_create_over(int fd, uint64_t (*clock)(void *context), void *context,
    struct holdfast **out)
{
    struct holdfast *h = holdfast_make();

    *out = h;
    if (h == NULL)
        return HOLDFAST_NO_MEMORY;
    h->fd = fd;
    h->clock = clock;
    h->clock_context = context;
    h->generation = 1;
    h->link = LINK_GREETING;
    h->connect_deadline_ms = holdfast_now_ms(h) + CLIENT_SILENCE_MS / 2;
    return HOLDFAST_SUCCESS;
}

/*
 * Ends a kept session by QUIT, since the end of its connection does not end it.
 * Unread input is read before the close, which would otherwise reset the
 * connection before QUIT arrives. A child of the creator must not end the
 * session.
 */
static void
session_quit(struct holdfast *h)
{
    static const char line[] = "QUIT\n";

    if (!holdfast_session_known(h) || h->link != LINK_OPEN ||
        h->pid != getpid() ||
        holdfast_link_append(h, line, sizeof(line) - 1) != HOLDFAST_SUCCESS)
        return;
    h->final = true;
    holdfast_link_flush(h);
    if (h->link != LINK_OPEN)
        return;
    (void)holdfast_link_finish(h);
    for (int i = 0; i < TURN_READS && h->link == LINK_OPEN; i++) {
        h->in_len = 0;
        if (!holdfast_link_fill(h))
            break;
    }
}

/* Frees requests, holds and watches. */
static void
session_clear(struct holdfast *h)
{
    holdfast_pending_clear(h);
    holdfast_kept_clear(h);
    holdfast_watches_clear(h);
}

void
holdfast_destroy(struct holdfast **h)
{
    if (*h == NULL)
        return;
    session_quit(*h);
    holdfast_link_close(*h, "destroyed");
    session_clear(*h);
    holdfast_notice_clear(*h);
    if ((*h)->out != NULL)
        explicit_bzero((*h)->out, (*h)->out_bytes);
    free((*h)->out);
    holdfast_fork_leave(*h);
    explicit_bzero((*h)->secret, sizeof((*h)->secret));
    free(*h);
    *h = NULL;
}

int
holdfast_fd(const struct holdfast *h)
{
    return h->fd;
}

static bool
input_wanted(const struct holdfast *h)
{
    return h->awaits || h->notice_count < CLIENT_NOTICES;
}

short
holdfast_events(const struct holdfast *h)
{
    return holdfast_link_events(h, input_wanted(h), h->out_start < h->out_end);
}

static uint64_t
least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

int
holdfast_timeout_ms(const struct holdfast *h)
{
    uint64_t due =
        least(holdfast_session_due_ms(h), holdfast_keepalive_due_ms(h));

    if (h->link == LINK_CLOSED)
        return h->closed_told ? -1 : 0;
    if (input_wanted(h) && holdfast_link_pending(h))
        return 0;
    due = least(due, holdfast_claims_due_ms(h));
    due = least(due, holdfast_watches_due_ms(h));
    if (due == UINT64_MAX)
        return -1;
    uint64_t now = holdfast_now_ms(h);
    if (due <= now)
        return 0;
    return due - now < INT_MAX ? (int)(due - now) : INT_MAX;
}

/* Dispatches the whole lines of the input, and keeps the rest. */
static void
input_dispatch(struct holdfast *h)
{
    uint64_t connection = h->connection;
    size_t start = 0;
    char *end;

    while (h->connection == connection &&
           (end = memchr(h->in + start, '\n', h->in_len - start)) != NULL) {
        size_t len = (size_t)(end - (h->in + start));

        holdfast_dispatch(h, h->in + start, len);
        start += len + 1;
    }
    if (h->connection != connection)
        return;
    assert(start <= h->in_len);
    memmove(h->in, h->in + start, h->in_len - start);
    h->in_len -= start;
    if (h->in_len == sizeof(h->in))
        holdfast_link_close(h, "a line of the broker is too long");
}

void
holdfast_process(struct holdfast *h, short revents)
{
    if (h->link == LINK_CLOSED)
        return;
    holdfast_link_connected(h, revents);
    for (int i = 0; i < TURN_READS && input_wanted(h) && holdfast_link_reads(h);
         i++) {
        if (!holdfast_link_fill(h))
            break;
        input_dispatch(h);
    }
    uint64_t now = holdfast_now_ms(h);
    holdfast_link_expire(h, now);
    holdfast_keepalive_tick(h, now);
    holdfast_session_tick(h, now);
    holdfast_claims_tick(h, now);
    holdfast_submit_parked(h);
    holdfast_link_flush(h);
    if (h->no_memory)
        holdfast_link_close(h, "out of memory");
    if (h->link == LINK_CLOSED)
        session_clear(h);
}

const char *
holdfast_session(const struct holdfast *h)
{
    return h->session;
}

const char *
holdfast_server(const struct holdfast *h)
{
    return h->server;
}

uint64_t
holdfast_keep_ms(const struct holdfast *h)
{
    return h->keep_agreed ? h->keep_ms : 0;
}

bool
holdfast_is_refused(const struct holdfast *h)
{
    return h->user_denied;
}

const char *
holdfast_reason(const struct holdfast *h)
{
    return h->link == LINK_CLOSED ? h->reason : "";
}

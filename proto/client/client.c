/*
 * The connection object and its turn: connect, read and dispatch, look at the
 * clock, write. Reading comes before the clock, so that an answer that has
 * arrived counts before a deadline is told.
 */
#define _GNU_SOURCE 1

#include "proto/client/client.h"

#include <limits.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define TURN_READS 16 /* input buffers in one turn */

static uint64_t
clock_boottime(void *context)
{
    struct timespec now;

    (void)context;
    (void)clock_gettime(CLOCK_BOOTTIME, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

uint64_t
holdfast_now_ms(const struct holdfast *h)
{
    return h->clock(h->clock_context);
}

struct holdfast *
holdfast_make(void)
{
    struct holdfast *h = calloc(1, sizeof(*h));

    if (h == NULL)
        return NULL;
    h->fd = -1;
    h->last = &h->first;
    h->pending_last = &h->pending;
    h->line_max = CLIENT_LINE_BYTES;
    h->margin_ms = UINT64_MAX;
    h->ping_next_ms = UINT64_MAX;
    h->clock = clock_boottime;
    return h;
}

enum holdfast_status
holdfast_create(const char *address, struct holdfast **out)
{
    struct holdfast *h = holdfast_make();

    *out = NULL;
    if (h == NULL)
        return HOLDFAST_NO_MEMORY;
    enum holdfast_status status = holdfast_link_resolve(h, address);
    if (status != HOLDFAST_SUCCESS) {
        holdfast_destroy(&h);
        return status;
    }
    holdfast_link_connect(h);
    *out = h;
    return HOLDFAST_SUCCESS;
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
    h->link = LINK_GREETING;
    h->connect_deadline_ms = holdfast_now_ms(h) + CLIENT_SILENCE_MS / 2;
    return HOLDFAST_SUCCESS;
}

void
holdfast_destroy(struct holdfast **h)
{
    if (*h == NULL)
        return;
    holdfast_link_close(*h, "destroyed");
    holdfast_notice_clear(*h);
    free((*h)->out);
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
    return h->notice_count < CLIENT_NOTICES;
}

short
holdfast_events(const struct holdfast *h)
{
    short events = 0;

    switch (h->link) {
    case LINK_CONNECTING:
        return POLLOUT;
    case LINK_GREETING:
    case LINK_OPEN:
        if (input_wanted(h))
            events |= POLLIN;
        if (h->out_start < h->out_end)
            events |= POLLOUT;
        return events;
    case LINK_CLOSED:
        return 0;
    }
    return 0;
}

int
holdfast_timeout_ms(const struct holdfast *h)
{
    uint64_t due = holdfast_kept_due_ms(h);

    if (h->link == LINK_CLOSED)
        return h->closed_told ? -1 : 0;
    if (h->link == LINK_CONNECTING || h->link == LINK_GREETING)
        due = h->connect_deadline_ms;
    if (due == UINT64_MAX)
        return -1;
    uint64_t now = holdfast_now_ms(h);
    if (due <= now)
        return 0;
    return due - now < INT_MAX ? (int)(due - now) : INT_MAX;
}

/* Hands every whole line of the input on and keeps what is left. */
static void
input_dispatch(struct holdfast *h)
{
    size_t start = 0;
    char *end;

    while (h->link != LINK_CLOSED &&
           (end = memchr(h->in + start, '\n', h->in_len - start)) != NULL) {
        size_t len = (size_t)(end - (h->in + start));

        holdfast_dispatch(h, h->in + start, len);
        start += len + 1;
    }
    if (h->link == LINK_CLOSED)
        return;
    memmove(h->in, h->in + start, h->in_len - start);
    h->in_len -= start;
    if (h->in_len == sizeof(h->in))
        holdfast_link_close(h, "a line of the broker is too long");
}

void
holdfast_process(struct holdfast *h, short revents)
{
    if (h->link == LINK_CONNECTING)
        holdfast_link_connected(h, revents);
    for (int i = 0; i < TURN_READS && input_wanted(h) &&
                    (h->link == LINK_GREETING || h->link == LINK_OPEN);
         i++) {
        if (!holdfast_link_fill(h))
            break;
        input_dispatch(h);
    }
    uint64_t now = holdfast_now_ms(h);
    holdfast_link_expire(h, now);
    holdfast_kept_tick(h, now);
    holdfast_link_flush(h);
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

const char *
holdfast_reason(const struct holdfast *h)
{
    return h->link == LINK_CLOSED ? h->reason : "";
}

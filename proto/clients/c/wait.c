/*
 * The blocking calls, by the calls that do not block.
 */
#define _GNU_SOURCE 1

#include "proto/clients/c/client.h"
#include "proto/clients/c/hold.h"
#include "proto/clients/c/link.h"

#include <assert.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#define ANSWER_MS 10000 /* for an answer, after the wait of a LOCK */
#define NAP_MS    1000  /* poll() does not notice the machine's sleep */

const char *
holdfast_status_text(enum holdfast_status status)
{
    switch (status) {
    case HOLDFAST_SUCCESS:
        return "success";
    case HOLDFAST_BAD_ADDRESS:
        return "the address is not HOST:PORT or a path, or several of them";
    case HOLDFAST_NO_HOST:
        return "the host's name cannot be resolved";
    case HOLDFAST_NO_MEMORY:
        return "out of memory";
    case HOLDFAST_BAD_ARGUMENT:
        return "an argument is empty, too long or malformed";
    case HOLDFAST_NOT_CONNECTED:
        return "not connected";
    case HOLDFAST_TIMED_OUT:
        return "no answer in time";
    case HOLDFAST_REFUSED:
        return "refused by the broker";
    case HOLDFAST_FULL:
        return "too many bytes are waiting to be sent";
    }
    return "unknown status";
}

void
holdfast_poll(struct holdfast *h, int timeout_ms)
{
    struct pollfd entry = {.fd = h->fd, .events = holdfast_events(h)};
    int own_ms = holdfast_timeout_ms(h);

    if (h->link == LINK_CLOSED)
        return;
    if (timeout_ms < 0 || (own_ms >= 0 && own_ms < timeout_ms))
        timeout_ms = own_ms;
    if (timeout_ms < 0 || timeout_ms > NAP_MS)
        timeout_ms = NAP_MS;
    if (poll(&entry, 1, timeout_ms) <= 0)
        entry.revents = 0;
    holdfast_process(h, entry.revents);
}

/* Polls once, until `end_ms` at most. False: `end_ms` has passed. Reading does
 * not stop, since any number of events may come before the awaited one. */
static bool
poll_until(struct holdfast *h, uint64_t end_ms)
{
    uint64_t now = holdfast_now_ms(h);

    if (now >= end_ms)
        return false;
    assert(!h->awaits); /* no callback runs within a blocking call */
    h->awaits = true;
    holdfast_poll(h, end_ms - now < NAP_MS ? (int)(end_ms - now) : NAP_MS);
    h->awaits = false;
    return true;
}

static uint64_t
end_after(const struct holdfast *h, uint64_t timeout_ms)
{
    uint64_t now = holdfast_now_ms(h);

    return timeout_ms < UINT64_MAX - now ? now + timeout_ms : UINT64_MAX;
}

enum holdfast_status
holdfast_wait(struct holdfast *h, uint64_t request, uint64_t timeout_ms,
    struct holdfast_event *event)
{
    uint64_t end = end_after(h, timeout_ms);

    holdfast_link_flush(h);
    for (;;) {
        if (holdfast_notice_take(h, request, event))
            break;
        if (h->link == LINK_CLOSED)
            return HOLDFAST_NOT_CONNECTED;
        if (!poll_until(h, end))
            return HOLDFAST_TIMED_OUT;
    }
    if (event->kind == HOLDFAST_OK)
        return HOLDFAST_SUCCESS;
    (void)snprintf(h->error, sizeof(h->error), "%s", event->word);
    return HOLDFAST_REFUSED;
}

enum holdfast_status
holdfast_connect_wait(struct holdfast *h, uint64_t timeout_ms)
{
    uint64_t end = end_after(h, timeout_ms);

    while (h->link != LINK_OPEN || h->unknown) {
        if (h->link == LINK_CLOSED)
            return HOLDFAST_NOT_CONNECTED;
        if (!poll_until(h, end))
            return HOLDFAST_TIMED_OUT;
    }
    holdfast_notice_drop_hello(h);
    return HOLDFAST_SUCCESS;
}

/* The hold of one name of the OK. */
static void
hold_fill(struct holdfast_hold *hold, const char *name, const char *owner,
    uint64_t fence, const struct holdfast_event *event)
{
    memset(hold, 0, sizeof(*hold));
    (void)snprintf(hold->name, sizeof(hold->name), "%s", name);
    if (owner != NULL)
        (void)snprintf(hold->owner, sizeof(hold->owner), "%s", owner);
    hold->fence = fence;
    hold->ttl_ms = event->ttl_ms;
    hold->deadline_ms = event->deadline_ms;
    if (!holdfast_event_number(event, "count", &hold->count))
        hold->count = 1;
}

enum holdfast_status
holdfast_lock_all(struct holdfast *h, const char *const *names,
    size_t name_count, const struct holdfast_lock_options *options,
    struct holdfast_hold *holds)
{
    struct holdfast_event event;
    uint64_t fences[HOLDFAST_NAMES_MAX];
    uint64_t timeout = HOLDFAST_FOREVER;
    uint64_t request;

    enum holdfast_status status =
        holdfast_submit_lock_all(h, names, name_count, options, &request);
    if (status != HOLDFAST_SUCCESS)
        return status;
    if (options != NULL && options->wait_ms < HOLDFAST_FOREVER - ANSWER_MS)
        timeout = options->wait_ms + ANSWER_MS;
    status = holdfast_wait(h, request, timeout, &event);
    if (status != HOLDFAST_SUCCESS)
        return status;
    size_t count = holdfast_event_fences(&event, fences, HOLDFAST_NAMES_MAX);
    assert(count == name_count); /* an OK without them closes the connection */
    (void)count;
    for (size_t i = 0; i < name_count; i++)
        hold_fill(&holds[i], names[i], options != NULL ? options->owner : NULL,
            fences[i], &event);
    return HOLDFAST_SUCCESS;
}

enum holdfast_status
holdfast_lock(struct holdfast *h, const char *name,
    const struct holdfast_lock_options *options, struct holdfast_hold *hold)
{
    return holdfast_lock_all(h, &name, 1, options, hold);
}

static const char *
hold_owner(const struct holdfast_hold *hold)
{
    return hold->owner[0] != '\0' ? hold->owner : NULL;
}

enum holdfast_status
holdfast_unlock_all(
    struct holdfast *h, const struct holdfast_hold *holds, size_t hold_count)
{
    enum holdfast_status status[HOLDFAST_NAMES_MAX];
    uint64_t request[HOLDFAST_NAMES_MAX];
    enum holdfast_status first = HOLDFAST_SUCCESS;
    struct holdfast_event event;
    char error[sizeof(h->error)];

    if (hold_count > HOLDFAST_NAMES_MAX)
        return HOLDFAST_BAD_ARGUMENT;
    for (size_t i = 0; i < hold_count; i++)
        status[i] = holdfast_submit_unlock(h, holds[i].name,
            hold_owner(&holds[i]), holds[i].fence, &request[i]);
    for (size_t i = 0; i < hold_count; i++) {
        if (status[i] == HOLDFAST_SUCCESS)
            status[i] = holdfast_wait(h, request[i], ANSWER_MS, &event);
        if (status[i] == HOLDFAST_SUCCESS || first != HOLDFAST_SUCCESS)
            continue;
        first = status[i];
        (void)snprintf(error, sizeof(error), "%s", h->error);
    }
    if (first != HOLDFAST_SUCCESS)
        (void)snprintf(h->error, sizeof(h->error), "%s", error);
    return first;
}

enum holdfast_status
holdfast_unlock(struct holdfast *h, const struct holdfast_hold *hold)
{
    return holdfast_unlock_all(h, hold, 1);
}

enum holdfast_status
holdfast_unlock_delayed(
    struct holdfast *h, const struct holdfast_hold *hold, uint64_t delay_ms)
{
    struct holdfast_event event;
    uint64_t request;

    enum holdfast_status status = holdfast_submit_unlock_delayed(
        h, hold->name, hold_owner(hold), hold->fence, delay_ms, &request);
    if (status != HOLDFAST_SUCCESS)
        return status;
    return holdfast_wait(h, request, ANSWER_MS, &event);
}

enum holdfast_status
holdfast_unlock_part(
    struct holdfast *h, const struct holdfast_hold *hold, uint64_t permits)
{
    struct holdfast_event event;
    uint64_t request;

    enum holdfast_status status = holdfast_submit_unlock_part(
        h, hold->name, hold_owner(hold), hold->fence, permits, &request);
    if (status != HOLDFAST_SUCCESS)
        return status;
    return holdfast_wait(h, request, ANSWER_MS, &event);
}

/* Waits for the answer that tells a new ttl of the hold, unless the request
 * could not be submitted. */
static enum holdfast_status
renewal_wait(struct holdfast *h, enum holdfast_status status, uint64_t request,
    struct holdfast_hold *hold)
{
    struct holdfast_event event;

    if (status != HOLDFAST_SUCCESS)
        return status;
    status = holdfast_wait(h, request, ANSWER_MS, &event);
    if (status == HOLDFAST_SUCCESS) {
        hold->ttl_ms = event.ttl_ms;
        hold->deadline_ms = holdfast_deadline_ms(h, hold);
    }
    return status;
}

enum holdfast_status
holdfast_renew(
    struct holdfast *h, struct holdfast_hold *hold, uint64_t lease_ms)
{
    uint64_t request = 0;
    enum holdfast_status status = holdfast_submit_renew(
        h, hold->name, hold_owner(hold), hold->fence, lease_ms, &request);

    return renewal_wait(h, status, request, hold);
}

enum holdfast_status
holdfast_note(struct holdfast *h, struct holdfast_hold *hold, const char *note)
{
    uint64_t request = 0;
    enum holdfast_status status = holdfast_submit_note(
        h, hold->name, hold_owner(hold), hold->fence, note, &request);

    return renewal_wait(h, status, request, hold);
}

static uint64_t
monotonic_us(void)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

enum holdfast_status
holdfast_ping(struct holdfast *h, uint64_t timeout_ms, uint64_t *microseconds)
{
    struct holdfast_event event;
    uint64_t start = monotonic_us();
    uint64_t request;

    enum holdfast_status status = holdfast_submit(h, "PING", &request);
    if (status != HOLDFAST_SUCCESS)
        return status;
    status = holdfast_wait(h, request, timeout_ms, &event);
    if (status == HOLDFAST_SUCCESS)
        *microseconds = monotonic_us() - start;
    return status;
}

const char *
holdfast_error(const struct holdfast *h)
{
    return h->error;
}

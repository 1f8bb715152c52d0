/*
 * The outstanding requests, oldest first. The tag on the wire is the request's
 * number in decimal, on each connection.
 *
 * Each request has its line. A parked request is not sent yet: no broker serves
 * the session now, or an earlier request is not settled.
 */
#define _GNU_SOURCE 1

#include "proto/clients/c/pending.h"
#include "proto/clients/c/hold.h"
#include "proto/clients/c/submit.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static size_t
subject_bytes(const struct holdfast_subject *subject)
{
    size_t bytes = 1;

    for (size_t i = 0; subject != NULL && i < subject->name_count; i++)
        bytes += strlen(subject->names[i]) + 1;
    return bytes;
}

/* Copies the line, and after it the names, each with its NUL. */
static void
pending_fill(struct holdfast_pending *pending, const struct holdfast_line *line,
    const struct holdfast_subject *subject)
{
    char *at = pending->text + line->len;

    memcpy(pending->text, line->bytes, line->len);
    pending->line_len = line->len;
    pending->wait_at = line->wait_at;
    pending->wait_ms = line->wait_ms;
    *at++ = '\0';
    pending->names = at;
    *at = '\0';
    if (subject == NULL)
        return;
    pending->name_count = subject->name_count;
    for (size_t i = 0; i < subject->name_count; i++) {
        size_t len = strlen(subject->names[i]);
        memcpy(at, subject->names[i], len + 1);
        at += len + 1;
    }
    (void)snprintf(pending->owner, sizeof(pending->owner), "%s",
        subject->owner != NULL ? subject->owner : "");
}

struct holdfast_pending *
holdfast_pending_add(struct holdfast *h, enum holdfast_pending_kind kind,
    const struct holdfast_line *line, const struct holdfast_subject *subject)
{
    struct holdfast_pending *pending =
        calloc(1, sizeof(*pending) + line->len + 1 + subject_bytes(subject));

    if (pending == NULL)
        return NULL;
    pending->request = ++h->request_last;
    pending->kind = kind;
    pending->sent_ms = holdfast_now_ms(h);
    pending->asked_ms = pending->sent_ms;
    pending->ttl_ms = UINT64_MAX;
    pending->end_ms = UINT64_MAX;
    pending_fill(pending, line, subject);
    assert(*h->pending_last == NULL);
    *h->pending_last = pending;
    h->pending_last = &pending->next;
    if (holdfast_pending_waits(pending))
        h->waiting++;
    return pending;
}

struct holdfast_pending *
holdfast_pending_of(const struct holdfast *h, uint64_t request)
{
    EACH (holdfast_pending, pending, h->pending)
        if (pending->request == request)
            return pending;
    return NULL;
}

struct holdfast_pending *
holdfast_pending_find(const struct holdfast *h, const char *tag)
{
    uint64_t request;

    if (!holdfast_number(tag, &request))
        return NULL;
    struct holdfast_pending *pending = holdfast_pending_of(h, request);
    return pending != NULL && !pending->parked ? pending : NULL;
}

bool
holdfast_pending_names(
    const struct holdfast_pending *pending, const char *name, const char *owner)
{
    const char *at = pending->names;

    if (strcmp(pending->owner, owner) != 0)
        return false;
    for (size_t i = 0; i < pending->name_count; i++) {
        if (strcmp(at, name) == 0)
            return true;
        at += strlen(at) + 1;
    }
    return false;
}

void
holdfast_pending_park(struct holdfast *h, struct holdfast_pending *pending)
{
    if (pending->parked)
        return;
    pending->parked = true;
    h->parked++;
    h->parked_bytes += pending->line_len;
}

void
holdfast_pending_unpark(struct holdfast *h, struct holdfast_pending *pending)
{
    if (!pending->parked)
        return;
    assert(h->parked > 0 && h->parked_bytes >= pending->line_len);
    pending->parked = false;
    h->parked--;
    h->parked_bytes -= pending->line_len;
}

void
holdfast_pending_remove(struct holdfast *h, struct holdfast_pending *pending)
{
    for (struct holdfast_pending **link = &h->pending; *link != NULL;
         link = &(*link)->next) {
        if (*link != pending)
            continue;
        *link = pending->next;
        if (h->pending_last == &pending->next)
            h->pending_last = link;
        assert(!holdfast_pending_waits(pending) || h->waiting > 0);
        if (holdfast_pending_waits(pending))
            h->waiting--;
        holdfast_pending_unpark(h, pending);
        if (pending->kind == PENDING_AUTH)
            explicit_bzero(pending->text, pending->line_len);
        free(pending);
        return;
    }
    assert(false); /* it was in the list */
}

void
holdfast_pending_clear(struct holdfast *h)
{
    while (h->pending != NULL)
        holdfast_pending_remove(h, h->pending);
}

/* Whether an outstanding WATCH of the name comes before the UNWATCH. */
static bool
watch_comes_before(
    const struct holdfast *h, const struct holdfast_pending *unwatch)
{
    for (const struct holdfast_pending *pending = h->pending;
         pending != unwatch; pending = pending->next)
        if ((pending->kind == PENDING_WATCH ||
                pending->kind == PENDING_WATCH_MEMBERS) &&
            strcmp(pending->names, unwatch->names) == 0)
            return true;
    return false;
}

/* The connection has ended: parks, answers or removes the request. */
static void
pending_dropped(struct holdfast *h, struct holdfast_pending *pending)
{
    bool again = false;

    switch (pending->kind) {
    case PENDING_LOCK:
    case PENDING_AWAIT:
    case PENDING_UNLOCK:
    case PENDING_RENEW:
    case PENDING_CANCEL:
    case PENDING_WATCH:
    case PENDING_WATCH_MEMBERS:
        again = true;
        break;
    case PENDING_OTHER:
    case PENDING_PART: /* twice is more permits than were asked for */
        holdfast_notice_say(h, HOLDFAST_ERR, pending->request,
            "- ERR INDOUBT retry=1 :the connection ended before the answer");
        break;
    case PENDING_UNWATCH:
        again = watch_comes_before(h, pending);
        if (again)
            break;
        (void)holdfast_watch_end(h, pending->names);
        holdfast_notice_say(h, HOLDFAST_OK, pending->request, "- OK");
        break;
    case PENDING_KEEPALIVE:
    case PENDING_SURVEY:
    case PENDING_AUTH:
    case PENDING_HELLO:
    case PENDING_CLAIM:
    case PENDING_DISCARD:
    case PENDING_REWATCH:
        break;
    }
    if (!again) {
        holdfast_pending_remove(h, pending);
        return;
    }
    pending->again = true;
    holdfast_pending_park(h, pending);
}

void
holdfast_pending_dropped(struct holdfast *h)
{
    for (struct holdfast_pending *pending = h->pending; pending != NULL;) {
        struct holdfast_pending *next = pending->next;

        if (!pending->parked)
            pending_dropped(h, pending);
        pending = next;
    }
}

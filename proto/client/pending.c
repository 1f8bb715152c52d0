/*
 * The requests whose final answer is outstanding, oldest first. The tag on the
 * wire is the request's number in decimal.
 */
#include "proto/client/client.h"

#include <stdlib.h>

struct holdfast_pending *
holdfast_pending_add(struct holdfast *h, enum holdfast_pending_kind kind)
{
    struct holdfast_pending *pending = calloc(1, sizeof(*pending));

    if (pending == NULL)
        return NULL;
    pending->request = ++h->request_last;
    pending->kind = kind;
    pending->sent_ms = holdfast_now_ms(h);
    pending->ttl_ms = UINT64_MAX;
    *h->pending_last = pending;
    h->pending_last = &pending->next;
    if (kind == PENDING_LOCK)
        h->waiting++;
    return pending;
}

struct holdfast_pending *
holdfast_pending_find(const struct holdfast *h, const char *tag)
{
    uint64_t request;

    if (!holdfast_number(tag, &request))
        return NULL;
    for (struct holdfast_pending *pending = h->pending; pending != NULL;
         pending = pending->next)
        if (pending->request == request)
            return pending;
    return NULL;
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
        if (pending->kind == PENDING_LOCK)
            h->waiting--;
        free(pending);
        return;
    }
}

void
holdfast_pending_clear(struct holdfast *h)
{
    while (h->pending != NULL)
        holdfast_pending_remove(h, h->pending);
}

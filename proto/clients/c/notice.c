/*
 * The queue of events. holdfast_process() fills it; holdfast_next() and the
 * blocking calls empty it. Each event owns its line. HOLDFAST_CLOSED is not in
 * the queue, so that it needs no memory.
 */
#include "proto/clients/c/client.h"
#include "proto/clients/c/hold.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

struct holdfast_notice *
holdfast_notice_create(const char *line, size_t len)
{
    struct holdfast_notice *notice = malloc(sizeof(*notice) + len + 1);

    if (notice == NULL)
        return NULL;
    memset(notice, 0, sizeof(*notice));
    memcpy(notice->line, line, len);
    notice->line[len] = '\0';
    return notice;
}

void
holdfast_notice_push(struct holdfast *h, struct holdfast_notice *notice,
    enum holdfast_kind kind, uint64_t request)
{
    const struct holdfast_message *message = &notice->message;
    struct holdfast_event *event = &notice->event;
    uint64_t fence;

    event->kind = kind;
    event->request = request;
    event->word = message->word;
    event->word_len = message->word_len;
    event->pairs = message->pairs;
    event->pair_count = message->pair_count;
    event->text = message->text;
    if (event->fence == 0 && holdfast_event_fences(event, &fence, 1) > 0)
        event->fence = fence;
    if (event->ttl_ms == 0)
        (void)holdfast_message_number(message, "ttl_ms", &event->ttl_ms);
    notice->next = NULL;
    assert(*h->last == NULL);
    *h->last = notice;
    h->last = &notice->next;
    h->notice_count++;
}

void
holdfast_notice_say(struct holdfast *h, enum holdfast_kind kind,
    uint64_t request, const char *line)
{
    size_t len = strlen(line);
    struct holdfast_notice *notice = holdfast_notice_create(line, len);

    if (notice == NULL) {
        h->no_memory = true;
        return;
    }
    if (holdfast_message_parse(notice->line, len, &notice->message))
        holdfast_notice_push(h, notice, kind, request);
    else
        free(notice);
}

/* Removes the notice at `link` from the queue; it becomes the current one. */
static struct holdfast_notice *
notice_unlink(struct holdfast *h, struct holdfast_notice **link)
{
    struct holdfast_notice *notice = *link;

    assert(h->notice_count > 0);
    *link = notice->next;
    if (h->last == &notice->next)
        h->last = link;
    h->notice_count--;
    free(h->current);
    h->current = notice;
    return notice;
}

bool
holdfast_next(struct holdfast *h, struct holdfast_event *event)
{
    if (h->first != NULL) {
        *event = notice_unlink(h, &h->first)->event;
        return true;
    }
    free(h->current);
    h->current = NULL;
    if (h->link != LINK_CLOSED || h->closed_told)
        return false;
    h->closed_told = true;
    *event = (struct holdfast_event){
        .kind = HOLDFAST_CLOSED, .word = "", .text = h->reason};
    return true;
}

bool
holdfast_notice_take(
    struct holdfast *h, uint64_t request, struct holdfast_event *event)
{
    for (struct holdfast_notice **link = &h->first; *link != NULL;
         link = &(*link)->next) {
        enum holdfast_kind kind = (*link)->event.kind;

        if ((*link)->event.request == request &&
            (kind == HOLDFAST_OK || kind == HOLDFAST_ERR)) {
            *event = notice_unlink(h, link)->event;
            return true;
        }
    }
    return false;
}

void
holdfast_notice_drop_hello(struct holdfast *h)
{
    struct holdfast_notice **link = &h->first;

    while (*link != NULL && (*link)->event.kind != HOLDFAST_HELLO)
        link = &(*link)->next;
    if (*link != NULL)
        (void)notice_unlink(h, link);
}

void
holdfast_notice_clear(struct holdfast *h)
{
    while (h->first != NULL)
        (void)notice_unlink(h, &h->first);
    free(h->current);
    h->current = NULL;
}

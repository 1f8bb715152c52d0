/*
 * Watched locks. claim.c sends their WATCHes to the next broker. Its first
 * event is the state of the lock. The program does not see the same event
 * twice.
 */
#include "proto/clients/c/link.h"
#include "proto/clients/c/submit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct holdfast_watched *
holdfast_watched_find(const struct holdfast *h, const char *name)
{
    EACH (holdfast_watched, watched, h->watches)
        if (strcmp(watched->name, name) == 0)
            return watched;
    return NULL;
}

bool
holdfast_watch_end(struct holdfast *h, const char *name)
{
    struct holdfast_watched **link = &h->watches;

    while (*link != NULL && strcmp((*link)->name, name) != 0)
        link = &(*link)->next;
    struct holdfast_watched *watched = *link;
    if (watched == NULL)
        return false;
    *link = watched->next;
    free(watched);
    return true;
}

void
holdfast_watches_clear(struct holdfast *h)
{
    while (h->watches != NULL)
        (void)holdfast_watch_end(h, h->watches->name);
}

static void
watch_add(struct holdfast *h, const char *name, bool members)
{
    struct holdfast_watched *watched = calloc(1, sizeof(*watched));

    if (watched == NULL) {
        holdfast_link_close(h, "out of memory");
        return;
    }
    (void)snprintf(watched->name, sizeof(watched->name), "%s", name);
    watched->members = members;
    watched->next = h->watches;
    h->watches = watched;
}

/* The answer to the library's own WATCH. */
static void
rewatch_done(struct holdfast *h, struct holdfast_watched *watched,
    const struct holdfast_message *message, bool done)
{
    /* CONFLICT: the broker watches it already. */
    if (watched == NULL || done || strcmp(message->word, "CONFLICT") == 0)
        return;
    watched->needed = true;
    watched->due_ms = holdfast_now_ms(h) + CLIENT_PAUSE_MAX_MS / 2 +
                      holdfast_random(h, CLIENT_PAUSE_MAX_MS);
}

void
holdfast_watch_done(struct holdfast *h, const struct holdfast_pending *pending,
    const struct holdfast_message *message, bool done)
{
    struct holdfast_watched *watched = holdfast_watched_find(h, pending->names);

    if (pending->kind == PENDING_REWATCH)
        rewatch_done(h, watched, message, done);
    else if (pending->kind == PENDING_UNWATCH)
        (void)holdfast_watch_end(h, pending->names);
    else if (done && watched == NULL)
        watch_add(h, pending->names, pending->kind == PENDING_WATCH_MEMBERS);
}

/* FNV-1a; never 0. */
static uint64_t
line_hash(const char *line, size_t len)
{
    uint64_t hash = 0xcbf29ce484222325u;

    for (size_t i = 0; i < len; i++)
        hash = (hash ^ (unsigned char)line[i]) * 0x100000001b3u;
    return hash != 0 ? hash : 1;
}

bool
holdfast_watch_news(struct holdfast *h, const struct holdfast_message *message,
    const char *line, size_t len)
{
    struct holdfast_watched *watched = holdfast_watched_find(h, message->word);
    uint64_t hash = line_hash(line, len);

    if (watched == NULL)
        return true;
    bool news = watched->told != hash;
    watched->told = hash;
    return news;
}

void
holdfast_watches_dropped(struct holdfast *h)
{
    EACH (holdfast_watched, watched, h->watches) {
        watched->needed = true;
        watched->due_ms = 0;
    }
}

uint64_t
holdfast_watches_due_ms(const struct holdfast *h)
{
    uint64_t due = UINT64_MAX;

    if (h->link != LINK_OPEN)
        return due;
    EACH (holdfast_watched, watched, h->watches)
        if (watched->needed && watched->due_ms < due)
            due = watched->due_ms;
    return due;
}

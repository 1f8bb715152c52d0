/*
 * Watched locks.
 */
#ifndef HOLDFAST_CLIENT_WATCH_H
#define HOLDFAST_CLIENT_WATCH_H

#include "proto/client/message.h"
#include "proto/client/pending.h"

struct holdfast_watched {
    struct holdfast_watched *next; /* owned by the list */
    char name[HOLDFAST_NAME_MAX + 1];
    uint64_t told; /* a hash of the last event; 0: none */
    bool needed;   /* this broker needs a WATCH, at due_ms */
    uint64_t due_ms;
};

/* The watched lock of that name, or NULL. */
struct holdfast_watched *holdfast_watched_find(
    const struct holdfast *h, const char *name);

/* The answer to a WATCH or UNWATCH; `done`: it is OK. Without memory it closes
 * the connection. */
void holdfast_watch_done(struct holdfast *h,
    const struct holdfast_pending *pending,
    const struct holdfast_message *message, bool done);

/* An event of a watched lock; `line` is not decoded. False: the program has
 * seen the same event last. */
bool holdfast_watch_news(struct holdfast *h,
    const struct holdfast_message *message, const char *line, size_t len);

/* Ends the watch of `name`. False: there is none. */
bool holdfast_watch_end(struct holdfast *h, const char *name);

/* The connection has ended: the next broker needs all WATCHes. */
void holdfast_watches_dropped(struct holdfast *h);

/* Ends all watches. */
void holdfast_watches_clear(struct holdfast *h);

/* When the next WATCH is due; UINT64_MAX: never. */
uint64_t holdfast_watches_due_ms(const struct holdfast *h);

#endif

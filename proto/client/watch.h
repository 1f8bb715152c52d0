/*
 * Locks that are watched.
 */
#ifndef HOLDFAST_CLIENT_WATCH_H
#define HOLDFAST_CLIENT_WATCH_H

#include "proto/client/message.h"
#include "proto/client/pending.h"

/* A lock that is watched. */
struct holdfast_watched {
    struct holdfast_watched *next; /* owned by the list */
    char name[HOLDFAST_NAME_MAX + 1];
    uint64_t told; /* a hash of the last event; 0: none */
    bool needed;   /* this connection's broker is to be asked, at due_ms */
    uint64_t due_ms;
};

/* The watched lock of that name, or NULL. */
struct holdfast_watched *holdfast_watched_find(
    const struct holdfast *h, const char *name);

/* The answer to a WATCH or UNWATCH, of the user or of the library; `done`: it
 * is OK. Without memory it closes the connection. */
void holdfast_watch_done(struct holdfast *h,
    const struct holdfast_pending *pending,
    const struct holdfast_message *message, bool done);

/* An event of a watched lock, `line` as it came. True: it is news to the user.
 */
bool holdfast_watch_news(struct holdfast *h,
    const struct holdfast_message *message, const char *line, size_t len);

/* Watches `name` no more; false: it was not watched. */
bool holdfast_watch_end(struct holdfast *h, const char *name);

/* The connection is gone: the next broker is asked for all that is watched. */
void holdfast_watches_dropped(struct holdfast *h);

/* Watches nothing any more. */
void holdfast_watches_clear(struct holdfast *h);

/* When the next WATCH is to be sent again; UINT64_MAX: none. */
uint64_t holdfast_watches_due_ms(const struct holdfast *h);

#endif

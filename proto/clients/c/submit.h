/*
 * The library's own requests. A function that returns false has sent nothing:
 * the output has no room now, or the connection is closed.
 */
#ifndef HOLDFAST_CLIENT_SUBMIT_H
#define HOLDFAST_CLIENT_SUBMIT_H

#include "proto/clients/c/hold.h"
#include "proto/clients/c/pending.h"

/* submit.c */

/* PING or HELD, by `kind`: PENDING_KEEPALIVE or PENDING_SURVEY. */
bool holdfast_submit_keepalive(
    struct holdfast *h, enum holdfast_pending_kind kind);

/* Answers the broker's PING, unless `number` is no number. */
void holdfast_submit_pong(struct holdfast *h, const char *number);

/* AUTH with the user and secret of the options. */
bool holdfast_submit_auth(struct holdfast *h);

/* HELLO with the options, and with resume= from the second connection on. */
bool holdfast_submit_hello(struct holdfast *h);

/* CLAIM of a hold. */
bool holdfast_submit_claim(
    struct holdfast *h, const struct holdfast_kept *kept);

/* UNLOCK of a hold that is given up. */
bool holdfast_submit_discard(
    struct holdfast *h, const struct holdfast_kept *kept);

/* WATCH of a lock that an earlier broker watched. */
bool holdfast_submit_rewatch(
    struct holdfast *h, const struct holdfast_watched *watched);

/* Sends the parked requests that may be sent now, in their order. */
void holdfast_submit_parked(struct holdfast *h);

/* watch.c */

struct holdfast_watched {
    struct holdfast_watched *next; /* owned by the list */
    char name[HOLDFAST_NAME_MAX + 1];
    uint64_t told; /* a hash of the last event; 0: none */
    bool members;  /* with members=1 */
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

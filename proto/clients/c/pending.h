/*
 * Outstanding requests: those without a final answer.
 */
#ifndef HOLDFAST_CLIENT_PENDING_H
#define HOLDFAST_CLIENT_PENDING_H

#include "proto/clients/c/client.h"
#include "proto/clients/c/holdfast.h"

/* message.c */

#define CLIENT_PAIRS 32 /* of one line; more are ignored */

/* A line of the broker; all refs into the line. */
struct holdfast_message {
    const char *tag;
    const char *verb; /* OK, ERR, ITEM, LOST ... */
    const char *word; /* the first after it, or "" */
    size_t word_len;
    struct holdfast_pair pairs[CLIENT_PAIRS];
    size_t pair_count;
    const char *text; /* or "" */
};

/* Decodes `line` in place; it has room for a NUL at `len`. False: the line is
 * malformed, and *out is invalid. */
bool holdfast_message_parse(
    char *line, size_t len, struct holdfast_message *out);

/* The value of `key`, a ref into the line; NULL: there is no such key. */
const char *holdfast_message_value(
    const struct holdfast_message *message, const char *key);

/* False: there is no such key, or its value is no decimal number. */
bool holdfast_message_number(
    const struct holdfast_message *message, const char *key, uint64_t *value);

/* False: `digits` is no decimal number of 64 bits; *value is as before. */
bool holdfast_number(const char *digits, uint64_t *value);

/* Reads a list "F1,F2". Returns the number of values, of which at most `max`
 * are filled in; 0: it is not a list of numbers. */
size_t holdfast_numbers(const char *list, uint64_t *values, size_t max);

/* pending.c */

/* From PENDING_KEEPALIVE on the library's own, whose answers the program does
 * not see. */
enum holdfast_pending_kind {
    PENDING_OTHER,
    PENDING_LOCK,
    PENDING_AWAIT,
    PENDING_UNLOCK,
    PENDING_PART, /* UNLOCK of some permits */
    PENDING_RENEW,
    PENDING_CANCEL,
    PENDING_WATCH,
    PENDING_WATCH_MEMBERS,
    PENDING_UNWATCH,
    PENDING_KEEPALIVE, /* PING */
    PENDING_SURVEY,    /* HELD, instead of PING */
    PENDING_AUTH,
    PENDING_HELLO,
    PENDING_CLAIM,
    PENDING_DISCARD, /* UNLOCK of a hold that is given up */
    PENDING_REWATCH, /* WATCH at another broker */
};

/* A line of the wire, without tag, wait= and LF. */
struct holdfast_line {
    char bytes[CLIENT_LINE_BYTES];
    size_t len;
    size_t wait_at;   /* the place of wait= */
    uint64_t wait_ms; /* HOLDFAST_FOREVER: none */
    bool bad;         /* it is too long, or has a bad argument */
};

/* The locks of a request. */
struct holdfast_subject {
    const char *const *names; /* refs */
    size_t name_count;
    const char *owner; /* ref; NULL: the session's default owner */
};

/* An outstanding request. */
struct holdfast_pending {
    struct holdfast_pending *next; /* owned by the list */
    uint64_t request;
    enum holdfast_pending_kind kind;
    uint64_t sent_ms;  /* not later than the sending */
    uint64_t asked_ms; /* when it was submitted; wait_ms counts from it */
    uint64_t wait_ms;
    bool parked;       /* it is not sent on this connection yet */
    bool again;        /* it was sent on an earlier connection */
    bool leased;       /* LOCK with a lease */
    bool wanted;       /* LOCK with wanted=1 */
    uint64_t lease_ms; /* of a RENEW, else 0 */
    uint64_t end_ms;   /* of the lease of a sent RENEW; else UINT64_MAX */
    uint64_t ttl_ms;   /* PENDING_SURVEY: the least so far; else UINT64_MAX */
    uint64_t target;   /* CANCEL: the number of the LOCK */
    uint64_t fence;    /* of the hold that it is about; 0: any */
    char owner[HOLDFAST_OWNER_MAX + 1];
    size_t name_count;
    const char *names; /* ref into text: each with its NUL */
    size_t line_len;
    size_t wait_at;
    char text[]; /* the line, and the names */
};

/* Whether the request may wait for long, and goes on at the next broker. */
static inline bool
holdfast_pending_waits(const struct holdfast_pending *pending)
{
    return pending->kind == PENDING_LOCK || pending->kind == PENDING_AWAIT;
}

/* Adds a request that is sent now, with the next number. It copies the line and
 * the subject (may be NULL). NULL: no memory. */
struct holdfast_pending *holdfast_pending_add(struct holdfast *h,
    enum holdfast_pending_kind kind, const struct holdfast_line *line,
    const struct holdfast_subject *subject);

/* The request of an answer with `tag`, or NULL. It does not find parked
 * requests, which were not sent on this connection. */
struct holdfast_pending *holdfast_pending_find(
    const struct holdfast *h, const char *tag);

/* The request of that number, or NULL. */
struct holdfast_pending *holdfast_pending_of(
    const struct holdfast *h, uint64_t request);

/* Whether the request has that name and that owner ("": the default). */
bool holdfast_pending_names(const struct holdfast_pending *pending,
    const char *name, const char *owner);

/* Parks a request, to be sent later. A second time changes nothing. */
void holdfast_pending_park(
    struct holdfast *h, struct holdfast_pending *pending);

/* Undoes holdfast_pending_park(). A second time changes nothing. */
void holdfast_pending_unpark(
    struct holdfast *h, struct holdfast_pending *pending);

/* Removes the request from the list and frees it. */
void holdfast_pending_remove(
    struct holdfast *h, struct holdfast_pending *pending);

/* Frees all requests, without answers. */
void holdfast_pending_clear(struct holdfast *h);

/* The connection has ended. Each request that was sent on it is parked or
 * answered; the library's own are dropped. */
void holdfast_pending_dropped(struct holdfast *h);

#endif

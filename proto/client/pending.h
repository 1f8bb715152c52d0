/*
 * Requests whose final answer is outstanding.
 */
#ifndef HOLDFAST_CLIENT_PENDING_H
#define HOLDFAST_CLIENT_PENDING_H

#include "proto/client/client.h"

/* From PENDING_KEEPALIVE on the library's own, of which nobody is told. */
enum holdfast_pending_kind {
    PENDING_OTHER,
    PENDING_LOCK,
    PENDING_UNLOCK,
    PENDING_RENEW,
    PENDING_CANCEL,
    PENDING_WATCH,
    PENDING_UNWATCH,
    PENDING_KEEPALIVE, /* PING */
    PENDING_SURVEY,    /* HELD, instead of PING */
    PENDING_AUTH,
    PENDING_HELLO,
    PENDING_CLAIM,
    PENDING_DISCARD, /* UNLOCK of a hold that the user has given up */
    PENDING_REWATCH, /* WATCH, at another broker */
};

/* A request as it goes over the wire, without tag, wait= and LF. */
struct holdfast_line {
    char bytes[CLIENT_LINE_BYTES];
    size_t len;
    size_t wait_at;   /* where wait= belongs */
    uint64_t wait_ms; /* HOLDFAST_FOREVER: none */
    bool bad;         /* it did not fit, or an argument was bad */
};

/* Locks that a request is about. */
struct holdfast_subject {
    const char *const *names; /* refs */
    size_t name_count;
    const char *owner; /* ref; NULL: the session's default owner */
};

/* A request whose final answer is outstanding. */
struct holdfast_pending {
    struct holdfast_pending *next; /* owned by the list */
    uint64_t request;
    enum holdfast_pending_kind kind;
    uint64_t sent_ms;  /* not later than its sending */
    uint64_t asked_ms; /* when the user asked; wait_ms counts from it */
    uint64_t wait_ms;
    bool parked;     /* it is still to be sent on this connection */
    bool again;      /* it was sent on an earlier one */
    bool leased;     /* LOCK with a lease */
    uint64_t ttl_ms; /* PENDING_SURVEY: the least so far; else UINT64_MAX */
    uint64_t target; /* CANCEL: what it is to end */
    char owner[HOLDFAST_OWNER_MAX + 1];
    size_t name_count;
    const char *names; /* ref into text: each with its NUL */
    size_t line_len;
    size_t wait_at;
    char text[]; /* the line, and the names */
};

/*
 * A new request at the end of the list, with the next number, as sent now. It
 * keeps copies of the line and of the subject (NULL: none). NULL: no memory.
 */
struct holdfast_pending *holdfast_pending_add(struct holdfast *h,
    enum holdfast_pending_kind kind, const struct holdfast_line *line,
    const struct holdfast_subject *subject);

/* The request that an answer with `tag` is for, or NULL. No parked request is
 * found: it was not sent on this connection. */
struct holdfast_pending *holdfast_pending_find(
    const struct holdfast *h, const char *tag);

/* The request of that number, parked or not; or NULL. */
struct holdfast_pending *holdfast_pending_of(
    const struct holdfast *h, uint64_t request);

/* Whether the request is about `name`, and for `owner` ("": the default). */
bool holdfast_pending_names(const struct holdfast_pending *pending,
    const char *name, const char *owner);

/* Marks a request as still to be sent. A second time changes nothing. */
void holdfast_pending_park(
    struct holdfast *h, struct holdfast_pending *pending);

/* The contrary of holdfast_pending_park(); a second time changes nothing. */
void holdfast_pending_unpark(
    struct holdfast *h, struct holdfast_pending *pending);

/* Takes the request out of the list and frees it. */
void holdfast_pending_remove(
    struct holdfast *h, struct holdfast_pending *pending);

/* Frees all requests; the user is told of none. */
void holdfast_pending_clear(struct holdfast *h);

/*
 * The connection is gone. Each request that was sent on it is parked to be sent
 * again, or answered, or dropped where it is the library's own.
 */
void holdfast_pending_dropped(struct holdfast *h);

#endif

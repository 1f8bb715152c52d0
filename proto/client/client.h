/*
 * What the files of the client library share and its users do not see.
 *
 *     link.c     the socket: addresses, connecting, bytes in and out
 *     message.c  a line of the broker to its parts
 *     dispatch.c what a line does: answers, events, holds
 *     notice.c   the queue of events that the user has not taken yet
 *     hold.c     holds and their deadlines; when to ask the broker
 *     pending.c  requests whose final answer is outstanding
 *     submit.c   requests to lines
 *     client.c   the object and its turn
 *     wait.c     the blocking calls
 *     encode.c   percent-encoding
 *
 * Invariant of all deadlines: a deadline is the sending of the latest question
 * that was answered, plus what the broker answered to it.
 */
#ifndef HOLDFAST_CLIENT_CLIENT_H
#define HOLDFAST_CLIENT_CLIENT_H

#include "proto/client/holdfast.h"

#include <sys/socket.h>

#define CLIENT_LINE_BYTES  4096  /* a request with its LF */
#define CLIENT_LINE_MIN    64    /* the library's own questions fit */
#define CLIENT_IN_BYTES    16384 /* input; a longer line is a defect */
#define CLIENT_OUT_BYTES   (1u << 20)
#define CLIENT_PAIRS       32 /* of one line; more are ignored */
#define CLIENT_PEERS       8  /* addresses of one name */
#define CLIENT_NOTICES     4096
#define CLIENT_CONNECT_MS  3000  /* for one address */
#define CLIENT_SILENCE_MS  20000 /* an unanswered PING ends the connection */
#define CLIENT_WAITING_MS  10000 /* between PINGs while only waiting */
#define CLIENT_PING_MIN_MS 50

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

/* An event in the queue. */
struct holdfast_notice {
    struct holdfast_notice *next; /* owned by the queue */
    struct holdfast_event event;  /* refs into message and line */
    struct holdfast_message message;
    char line[]; /* the decoded line */
};

enum holdfast_pending_kind {
    PENDING_OTHER,
    PENDING_LOCK,
    PENDING_UNLOCK,
    PENDING_RENEW,
    PENDING_KEEPALIVE, /* the library's own PING */
    PENDING_SURVEY,    /* the library's own HELD, instead of PING */
};

/* A request whose final answer is outstanding. */
struct holdfast_pending {
    struct holdfast_pending *next; /* owned by the list */
    uint64_t request;
    enum holdfast_pending_kind kind;
    uint64_t sent_ms; /* not later than its sending */
    bool leased;      /* LOCK with a lease */
    uint64_t ttl_ms;  /* PENDING_SURVEY: the least so far; else UINT64_MAX */
    char name[HOLDFAST_NAME_MAX + 1];
    char owner[HOLDFAST_OWNER_MAX + 1];
};

/*
 * A hold that the broker granted. It lives on holdfast.holds, from the OK of
 * its LOCK until it is given back, lost, overdue, or the connection ends.
 */
struct holdfast_kept {
    struct holdfast_kept *next; /* owned by the list */
    uint64_t request;           /* that took it first */
    char name[HOLDFAST_NAME_MAX + 1];
    char owner[HOLDFAST_OWNER_MAX + 1];
    uint64_t fence;
    uint64_t count;
    uint64_t releases; /* UNLOCKs outstanding */
    bool leased;
    uint64_t ttl_ms;     /* as last told */
    uint64_t granted_ms; /* when its OK arrived */
    uint64_t deadline_ms;
    struct holdfast_notice *deferred; /* owned; its OK, to be confirmed; NULL */
};

enum holdfast_link {
    LINK_CONNECTING,
    LINK_GREETING, /* connected; the greeting has not come */
    LINK_OPEN,
    LINK_CLOSED,
};

struct holdfast_peer {
    struct sockaddr_storage address;
    socklen_t len;
};

struct holdfast {
    /* link.c */
    int fd; /* owned; -1: none */
    enum holdfast_link link;
    struct holdfast_peer peers[CLIENT_PEERS];
    size_t peer_count;
    size_t peer_next;             /* the next to be tried */
    uint64_t connect_deadline_ms; /* of the one being tried */
    char in[CLIENT_IN_BYTES];
    size_t in_len;
    char *out; /* owned; bytes out_start .. out_end are to be sent */
    size_t out_start;
    size_t out_end;
    size_t out_bytes;
    char reason[160];

    /* greeting */
    char session[96];
    char server[96];
    size_t line_max;

    /* notice.c */
    struct holdfast_notice *first; /* owned */
    struct holdfast_notice **last;
    size_t notice_count;
    struct holdfast_notice *current; /* owned; handed out last */
    bool closed_told;

    /* pending.c */
    struct holdfast_pending *pending; /* owned; oldest first */
    struct holdfast_pending **pending_last;
    size_t waiting; /* LOCKs among them */
    uint64_t request_last;

    /* hold.c */
    struct holdfast_kept *holds; /* owned */
    uint64_t margin_ms;          /* UINT64_MAX: by the ttl */
    uint64_t proven_ms;    /* latest sending of a request that was answered */
    uint64_t ping_next_ms; /* when the next PING is due */
    uint64_t ping_sent_ms; /* of the one outstanding */
    bool ping_outstanding;

    /* wait.c */
    char error[24];

    uint64_t (*clock)(void *context); /* ms */
    void *clock_context;
};

/* client.c: also for tests, over a connected socket and their own clock. */
struct holdfast *holdfast_make(void);
enum holdfast_status holdfast_create_over(int fd,
    uint64_t (*clock)(void *context), void *context, struct holdfast **out);

/* link.c */
enum holdfast_status holdfast_link_resolve(
    struct holdfast *h, const char *address);
void holdfast_link_connect(struct holdfast *h);
void holdfast_link_connected(struct holdfast *h, short revents);
void holdfast_link_expire(struct holdfast *h, uint64_t now_ms);
enum holdfast_status holdfast_link_append(
    struct holdfast *h, const char *bytes, size_t len);
void holdfast_link_flush(struct holdfast *h);
bool holdfast_link_fill(struct holdfast *h);
/* Ends the connection; the first reason stays. Drops holds and requests. */
void holdfast_link_close(struct holdfast *h, const char *reason);

/* message.c: takes the line apart in place; `line` has room for a NUL. */
bool holdfast_message_parse(
    char *line, size_t len, struct holdfast_message *out);
const char *holdfast_message_value(
    const struct holdfast_message *message, const char *key);
bool holdfast_message_number(
    const struct holdfast_message *message, const char *key, uint64_t *value);
bool holdfast_number(const char *digits, uint64_t *value);

/* dispatch.c */
void holdfast_dispatch(struct holdfast *h, const char *line, size_t len);

/* notice.c */
struct holdfast_notice *holdfast_notice_create(const char *line, size_t len);
void holdfast_notice_push(struct holdfast *h, struct holdfast_notice *notice,
    enum holdfast_kind kind, uint64_t request);
bool holdfast_notice_take(
    struct holdfast *h, uint64_t request, struct holdfast_event *event);
bool holdfast_notice_take_hello(struct holdfast *h);
void holdfast_notice_clear(struct holdfast *h);

/* pending.c */
struct holdfast_pending *holdfast_pending_add(
    struct holdfast *h, enum holdfast_pending_kind kind);
struct holdfast_pending *holdfast_pending_find(
    const struct holdfast *h, const char *tag);
void holdfast_pending_remove(
    struct holdfast *h, struct holdfast_pending *pending);
void holdfast_pending_clear(struct holdfast *h);

/* hold.c */
struct holdfast_kept *holdfast_kept_find(
    const struct holdfast *h, const char *name, const char *owner);
/* True: the OK may be told now; false: it is kept until it is confirmed. */
bool holdfast_kept_grant(struct holdfast *h,
    const struct holdfast_pending *pending, struct holdfast_notice *notice);
void holdfast_kept_released(struct holdfast *h,
    const struct holdfast_pending *pending,
    const struct holdfast_message *message, bool done);
void holdfast_kept_renewed(struct holdfast *h,
    const struct holdfast_pending *pending,
    const struct holdfast_message *message);
void holdfast_kept_lost(struct holdfast *h,
    const struct holdfast_message *message, uint64_t *request);
void holdfast_kept_confirmed(struct holdfast *h,
    const struct holdfast_pending *pending,
    const struct holdfast_message *message);
void holdfast_kept_surveyed(struct holdfast *h,
    struct holdfast_pending *pending, const struct holdfast_message *message);
void holdfast_kept_clear(struct holdfast *h);
/* Tells deadlines and asks the broker, as far as due. */
void holdfast_kept_tick(struct holdfast *h, uint64_t now_ms);
/* When holdfast_kept_tick() has something to do; UINT64_MAX: nothing. */
uint64_t holdfast_kept_due_ms(const struct holdfast *h);

/* submit.c: the library's own question. */
bool holdfast_submit_keepalive(
    struct holdfast *h, enum holdfast_pending_kind kind);
void holdfast_submit_pong(struct holdfast *h, const char *number);

#endif

/*
 * What the files of the client library share and its users do not see.
 *
 *     address.c  addresses to what can be connected to
 *     link.c     the socket, and its transport: connecting, bytes in and out
 *     session.c  a session that is kept: away, and back at another broker
 *     drain.c    a broker that drains, and when to leave it
 *     message.c  a line of the broker to its parts
 *     dispatch.c what a line does: answers, events, holds
 *     notice.c   the queue of events that the user has not taken yet
 *     hold.c     holds and their deadlines
 *     keepalive.c  when to ask the broker, and deadlines that pass
 *     claim.c    what another broker is asked: holds and watches
 *     watch.c    locks that are watched
 *     pending.c  requests whose final answer is outstanding
 *     submit.c   requests to lines
 *     client.c   the object and its turn
 *     fork.c     the end of its copies in children
 *     wait.c     the blocking calls
 *     encode.c   percent-encoding
 *     state.c    time, random numbers, whether the session goes on
 *
 * Invariant of all deadlines: a deadline is the sending of the latest question
 * that was answered, plus what the broker answered to it, or sooner.
 */
#ifndef HOLDFAST_CLIENT_CLIENT_H
#define HOLDFAST_CLIENT_CLIENT_H

#include "proto/client/holdfast.h"

#include <sys/socket.h>

#define CLIENT_LINE_BYTES          4096  /* a request with its LF */
#define CLIENT_LINE_MIN            64    /* the library's own questions fit */
#define CLIENT_IN_BYTES            16384 /* input; a longer line is a defect */
#define CLIENT_OUT_BYTES           (1u << 20)
#define CLIENT_PAIRS               32 /* of one line; more are ignored */
#define CLIENT_PEERS               32 /* of all addresses */
#define CLIENT_ADDRESSES           16
#define CLIENT_HOST_BYTES          256 /* of one of them, with its NUL */
#define CLIENT_NOTICES             4096
#define CLIENT_CONNECT_MS          3000 /* for one address, and for its HELLO */
#define CLIENT_SILENCE_MS          20000 /* without an answer to PING */
#define CLIENT_WAITING_MS          10000 /* between PINGs while only waiting */
#define CLIENT_PING_MIN_MS         50
#define CLIENT_KEPT_SILENCE_MIN_MS 1000 /* as CLIENT_SILENCE_MS, where kept */
#define CLIENT_KEPT_SILENCE_MS     5000 /* the same without holds */
#define CLIENT_PAUSE_MIN_MS        50   /* between rounds of the addresses */
#define CLIENT_PAUSE_MAX_MS        2000
#define CLIENT_STEADY_MS           500 /* a connection that stood is good */
#define CLIENT_CLAIM_PAUSE_MS      200 /* until a claim is tried again */
#define CLIENT_MOVE_SOON_MS        200 /* where a lock is asked for meanwhile */
#define CLIENT_MOVE_MAX_MS         5000 /* after DRAIN */
#define CLIENT_WHY_BYTES           256

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

/* Where a hold stands with the broker of this connection. */
enum holdfast_claim {
    CLAIM_NONE,   /* it has confirmed the hold */
    CLAIM_NEEDED, /* it is to be asked at claim_due_ms */
    CLAIM_ASKED,
};

/*
 * A hold that the broker granted. It lives on holdfast.holds, from the OK of
 * its LOCK until it is given back or lost, or the session ends; and where the
 * session is not kept, until it is overdue.
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
    bool given_up;       /* its deadline was told: nobody believes in it */
    uint64_t ttl_ms;     /* as last told */
    uint64_t granted_ms; /* when its OK arrived */
    uint64_t deadline_ms;
    uint64_t confirming; /* the last request whose OK waits for word; 0: none */
    struct holdfast_notice *deferred; /* owned; that OK and those before it, at
                                       * one of the holds that they are of */
    enum holdfast_claim claim;
    uint64_t claim_due_ms;
};

/* A lock that is watched. */
struct holdfast_watched {
    struct holdfast_watched *next; /* owned by the list */
    char name[HOLDFAST_NAME_MAX + 1];
    uint64_t told; /* a hash of the last event; 0: none */
    bool needed;   /* this connection's broker is to be asked, at due_ms */
    uint64_t due_ms;
};

enum holdfast_link {
    LINK_AWAY, /* of a kept session: no socket, until retry_ms */
    LINK_CONNECTING,
    LINK_SHAKING,  /* connected; the transport has not come about */
    LINK_GREETING, /* the greeting has not come */
    LINK_RESUMING, /* greeted; HELLO resume= is not answered */
    LINK_OPEN,
    LINK_CLOSED,
};

struct holdfast_peer {
    struct sockaddr_storage address;
    socklen_t len;
    size_t origin; /* which of the addresses it is of */
};

struct holdfast {
    pid_t pid; /* that has made it */

    /* fork.c */
    struct holdfast *next;
    struct holdfast *prev;

    /* address.c, link.c */
    int fd;                                     /* owned; -1: none */
    const struct holdfast_transport *transport; /* ref; NULL: none */
    void *through;                              /* owned; its link, or NULL */
    short read_wants;  /* POLLIN, unless the transport wants it otherwise */
    short write_wants; /* POLLOUT, likewise; or what the handshake wants */
    enum holdfast_link link;
    uint64_t connection; /* changes with each socket */
    struct holdfast_peer peers[CLIENT_PEERS];
    size_t peer_count;
    size_t peer_next;             /* the next to be tried */
    size_t peer_left;             /* of this round */
    size_t peer_origin;           /* of the one being tried */
    uint64_t connect_deadline_ms; /* of the one being tried */
    char hosts[CLIENT_ADDRESSES][CLIENT_HOST_BYTES]; /* by origin */
    char unshaken[256]; /* why a handshake of this round failed; "" */
    char in[CLIENT_IN_BYTES];
    size_t in_len;
    char *out; /* owned; bytes out_start .. out_end are to be sent */
    size_t out_start;
    size_t out_end;
    size_t out_bytes;
    char reason[256];

    /* greeting */
    char session[96];
    char server[96];
    size_t line_max;

    /* session.c */
    char name[HOLDFAST_WORD_MAX + 1];
    uint64_t keep_ms;                 /* 0: the session is not kept */
    bool keep_agreed;                 /* a broker has said so */
    char user[HOLDFAST_USER_MAX + 1]; /* "": none */
    char secret[HOLDFAST_SECRET_MAX + 1];
    bool unknown;     /* this connection's broker has not taken the user yet */
    bool user_denied; /* nor did it, which was the end */
    uint64_t heartbeat_ms;
    uint64_t generation; /* connections that were to serve the session */
    bool final;          /* the end of this connection is the end of all */
    bool away;           /* AWAY was told, and BACK not */
    bool draining;       /* this connection's broker is going */
    bool refused;        /* it does not go on with the session */
    bool no_memory;      /* something could not be told: the end */
    uint64_t away_ms;    /* since when */
    uint64_t retry_ms;   /* when to connect again */
    uint64_t opened_ms;  /* when this connection began to serve */
    uint64_t move_ms;    /* when to leave a draining broker; UINT64_MAX: not */
    unsigned rounds;     /* of the addresses, in vain */
    uint64_t random;

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
    size_t parked;  /* those that are still to be sent */
    size_t parked_bytes;
    uint64_t request_last;

    /* hold.c, claim.c */
    struct holdfast_kept *holds; /* owned */
    uint64_t margin_ms;          /* UINT64_MAX: by the ttl */
    uint64_t proven_ms;    /* latest sending of a request that was answered */
    uint64_t ping_next_ms; /* when the next PING is due */
    uint64_t ping_sent_ms; /* of the one outstanding */
    bool ping_outstanding;

    /* watch.c */
    struct holdfast_watched *watches; /* owned */

    /* wait.c */
    bool awaits; /* a blocking call: who would take events waits for it */
    char error[24];

    /* Called where a session that goes on has lost its connection. */
    void (*lost)(struct holdfast *h, const char *reason);
    uint64_t (*clock)(void *context); /* ms */
    void *clock_context;
};

/* client.c: also for tests, over a connected socket or their own clock. */
struct holdfast *holdfast_make(void);
enum holdfast_status holdfast_create_over(int fd,
    uint64_t (*clock)(void *context), void *context, struct holdfast **out);
enum holdfast_status holdfast_create_at(const struct holdfast_options *options,
    uint64_t (*clock)(void *context), void *context, struct holdfast **out);

/*
 * fork.c: each connection enters and leaves. No fork() comes between lock and
 * unlock, which are to enclose each change of its descriptor.
 */
void holdfast_fork_enter(struct holdfast *h);
void holdfast_fork_leave(struct holdfast *h);
void holdfast_fork_lock(void);
void holdfast_fork_unlock(void);

/* address.c: one address or several, into h->peers. */
enum holdfast_status holdfast_link_resolve(
    struct holdfast *h, const char *address);

/* link.c */
void holdfast_link_connect(struct holdfast *h);
/* Connecting, or shaking: what poll() said of it. */
void holdfast_link_connected(struct holdfast *h, short revents);
void holdfast_link_expire(struct holdfast *h, uint64_t now_ms);
enum holdfast_status holdfast_link_append(
    struct holdfast *h, const char *bytes, size_t len);
void holdfast_link_flush(struct holdfast *h);
bool holdfast_link_fill(struct holdfast *h);
/*
 * As send() and recv(), through the transport where there is one. What has
 * failed is put into `why`, of CLIENT_WHY_BYTES.
 */
enum holdfast_moved holdfast_link_send(
    struct holdfast *h, const char *bytes, size_t len, size_t *sent, char *why);
enum holdfast_moved holdfast_link_receive(
    struct holdfast *h, char *out, size_t room, size_t *got, char *why);
/* As shutdown(SHUT_WR). DONE, a want, or BROKEN. */
enum holdfast_moved holdfast_link_finish(struct holdfast *h);
/* Whether there is input that no poll() tells of. */
bool holdfast_link_pending(const struct holdfast *h);
/* What to poll for, be there input wanted or output to be sent. */
short holdfast_link_events(const struct holdfast *h, bool input, bool output);
/* Whether there is a connection that bytes come from, or may be sent over. */
bool holdfast_link_reads(const struct holdfast *h);
bool holdfast_link_writes(const struct holdfast *h);
/*
 * Ends the connection and the session; the first reason stays. Requests and
 * holds are dropped when the turn ends.
 */
void holdfast_link_close(struct holdfast *h, const char *reason);
/* Drops the socket; connects again after a pause. */
void holdfast_link_pause(struct holdfast *h, const char *reason);
/* The connection is no more: on to the next address, or the end. */
void holdfast_link_lost(struct holdfast *h, const char *reason);
/* Drops the socket and what was on its way. */
void holdfast_link_drop(struct holdfast *h);

/* state.c */
/* CLOCK_BOOTTIME in ms. */
uint64_t holdfast_clock(void *context);
uint64_t holdfast_random(struct holdfast *h, uint64_t below);
bool holdfast_session_known(const struct holdfast *h);
/* Whether requests may be sent now. */
bool holdfast_session_serves(const struct holdfast *h);

/* session.c */
/* HELLO, where there is something to say. */
void holdfast_session_greet(struct holdfast *h);
/* The answer to AUTH. */
void holdfast_session_known_as(
    struct holdfast *h, const struct holdfast_message *message, bool done);
void holdfast_session_greeted(
    struct holdfast *h, const struct holdfast_message *message, bool done);
/* No broker serves the session now; connects again by and by. */
void holdfast_session_away(struct holdfast *h, const char *reason);
/* BYE; true: it is the end of all. */
bool holdfast_session_bye(struct holdfast *h, const char *why);
void holdfast_session_tick(struct holdfast *h, uint64_t now_ms);
uint64_t holdfast_session_due_ms(const struct holdfast *h);

/* drain.c */
void holdfast_drain_told(
    struct holdfast *h, const struct holdfast_message *message);
/* Something waits for another broker, where this one drains. */
void holdfast_drain_hasten(struct holdfast *h);
/* A request was answered with DRAINING; true: the user is not to know. */
bool holdfast_drain_refused(
    struct holdfast *h, struct holdfast_pending *pending);

/* message.c: takes the line apart in place; `line` has room for a NUL. */
bool holdfast_message_parse(
    char *line, size_t len, struct holdfast_message *out);
const char *holdfast_message_value(
    const struct holdfast_message *message, const char *key);
bool holdfast_message_number(
    const struct holdfast_message *message, const char *key, uint64_t *value);
bool holdfast_number(const char *digits, uint64_t *value);
/* "F1,F2": returns how many; 0 where it is no such list. */
size_t holdfast_numbers(const char *list, uint64_t *values, size_t max);

/* dispatch.c */
void holdfast_dispatch(struct holdfast *h, const char *line, size_t len);

/* notice.c */
struct holdfast_notice *holdfast_notice_create(const char *line, size_t len);
void holdfast_notice_push(struct holdfast *h, struct holdfast_notice *notice,
    enum holdfast_kind kind, uint64_t request);
/*
 * A line that the library says itself. Out of memory it closes the connection.
 */
void holdfast_notice_say(struct holdfast *h, enum holdfast_kind kind,
    uint64_t request, const char *line);
bool holdfast_notice_take(
    struct holdfast *h, uint64_t request, struct holdfast_event *event);
bool holdfast_notice_take_hello(struct holdfast *h);
void holdfast_notice_clear(struct holdfast *h);

/* pending.c */
struct holdfast_pending *holdfast_pending_add(struct holdfast *h,
    enum holdfast_pending_kind kind, const struct holdfast_line *line,
    const struct holdfast_subject *subject);
struct holdfast_pending *holdfast_pending_find(
    const struct holdfast *h, const char *tag);
struct holdfast_pending *holdfast_pending_of(
    const struct holdfast *h, uint64_t request);
bool holdfast_pending_names(const struct holdfast_pending *pending,
    const char *name, const char *owner);
void holdfast_pending_park(
    struct holdfast *h, struct holdfast_pending *pending);
void holdfast_pending_unpark(
    struct holdfast *h, struct holdfast_pending *pending);
void holdfast_pending_remove(
    struct holdfast *h, struct holdfast_pending *pending);
void holdfast_pending_clear(struct holdfast *h);
/* The connection is gone: what is answered by that, and what is put again. */
void holdfast_pending_dropped(struct holdfast *h);

/* hold.c */
struct holdfast_kept *holdfast_kept_find(
    const struct holdfast *h, const char *name, const char *owner);
/* Whether the user believes, or may, in the hold. */
bool holdfast_kept_stands(const struct holdfast_kept *kept);
bool holdfast_kept_releasing(const struct holdfast_kept *kept);
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
void holdfast_kept_clear(struct holdfast *h);
void holdfast_kept_remove(struct holdfast *h, struct holdfast_kept *kept);
/* The OKs that wait for `kept`, where nothing of theirs is to be confirmed. */
void holdfast_kept_tell(struct holdfast *h, struct holdfast_kept *kept);
void holdfast_kept_set(
    struct holdfast_kept *kept, uint64_t base_ms, uint64_t ttl_ms);
bool holdfast_ttl_read(
    const struct holdfast_message *message, uint64_t *ttl_ms);
/* Asks the broker no later than `when_ms`, and again within `ttl_ms`. */
void holdfast_kept_ask_by(struct holdfast *h, uint64_t when_ms);
uint64_t holdfast_kept_pause_ms(const struct holdfast *h, uint64_t ttl_ms);

/* keepalive.c */
void holdfast_keepalive_confirmed(struct holdfast *h,
    const struct holdfast_pending *pending,
    const struct holdfast_message *message);
void holdfast_keepalive_surveyed(struct holdfast *h,
    struct holdfast_pending *pending, const struct holdfast_message *message);
/* Tells deadlines and asks the broker, as far as due. */
void holdfast_keepalive_tick(struct holdfast *h, uint64_t now_ms);
/* When holdfast_keepalive_tick() has something to do; UINT64_MAX: nothing. */
uint64_t holdfast_keepalive_due_ms(const struct holdfast *h);

/* claim.c */
/* The connection is gone: all is to be claimed, and believed no longer than the
 * broker may have kept it. */
void holdfast_claims_dropped(struct holdfast *h);
void holdfast_claim_done(struct holdfast *h,
    const struct holdfast_pending *pending,
    const struct holdfast_message *message, bool done);
void holdfast_claim_discarded(
    struct holdfast *h, const struct holdfast_pending *pending);
bool holdfast_claims_open(const struct holdfast *h);
void holdfast_claims_tick(struct holdfast *h, uint64_t now_ms);
uint64_t holdfast_claims_due_ms(const struct holdfast *h);

/* watch.c */
struct holdfast_watched *holdfast_watched_find(
    const struct holdfast *h, const char *name);
void holdfast_watch_done(struct holdfast *h,
    const struct holdfast_pending *pending,
    const struct holdfast_message *message, bool done);
/* True: it is news to the user. */
bool holdfast_watch_news(struct holdfast *h,
    const struct holdfast_message *message, const char *line, size_t len);
bool holdfast_watch_end(struct holdfast *h, const char *name);
void holdfast_watches_dropped(struct holdfast *h);
void holdfast_watches_clear(struct holdfast *h);
uint64_t holdfast_watches_due_ms(const struct holdfast *h);

/* submit.c: the library's own requests; false: there is no room now. */
bool holdfast_submit_keepalive(
    struct holdfast *h, enum holdfast_pending_kind kind);
void holdfast_submit_pong(struct holdfast *h, const char *number);
bool holdfast_submit_auth(struct holdfast *h);
bool holdfast_submit_hello(struct holdfast *h);
bool holdfast_submit_claim(
    struct holdfast *h, const struct holdfast_kept *kept);
bool holdfast_submit_discard(
    struct holdfast *h, const struct holdfast_kept *kept);
bool holdfast_submit_rewatch(
    struct holdfast *h, const struct holdfast_watched *watched);
/* Sends what was parked, as far as that may go now. */
void holdfast_submit_parked(struct holdfast *h);

#endif

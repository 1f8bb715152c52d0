/*
 * The connection object, which all files of the library share. Each file calls
 * only files above it in this list:
 *
 *     encode.c     percent-encoding
 *     message.c    lines of the broker to their parts
 *     state.c      time, random numbers, the state of the session
 *     fork.c       closes copies of connections in children
 *     address.c    addresses to peers
 *     conn.c       the socket and its transport: connecting, bytes in and out
 *     notice.c     the queue of events for the program
 *     hold.c       holds and their deadlines
 *     watch.c      watched locks
 *     pending.c    outstanding requests
 *     drain.c      when to leave a draining broker
 *     submit.c     requests to lines
 *     keepalive.c  PINGs, and deadlines that pass
 *     claim.c      claims and watches at the next broker
 *     session.c    kept sessions: away, and back at another broker
 *     dispatch.c   the effects of a line: answers, events, holds
 *     client.c     the object and its turn
 *     wait.c       the blocking calls
 *
 * Invariant: a deadline is at most the sending time of the latest answered
 * question, plus the ttl in its answer.
 */
#ifndef HOLDFAST_CLIENT_CLIENT_H
#define HOLDFAST_CLIENT_CLIENT_H

#include "proto/clients/c/holdfast.h"

#include <sys/socket.h>

/* client.c */

#define CLIENT_LINE_BYTES          4096  /* a request with its LF */
#define CLIENT_LINE_MIN            64    /* the library's own questions fit */
#define CLIENT_IN_BYTES            16384 /* input; no line is longer */
#define CLIENT_OUT_BYTES           (1u << 20)
#define CLIENT_PEERS               32 /* of all addresses */
#define CLIENT_ADDRESSES           16
#define CLIENT_HOST_BYTES          256 /* with the NUL */
#define CLIENT_NOTICES             4096
#define CLIENT_CONNECT_MS          3000  /* for one peer, and for its HELLO */
#define CLIENT_SILENCE_MS          20000 /* without an answer to PING */
#define CLIENT_WAITING_MS          10000 /* between PINGs without holds */
#define CLIENT_PING_MIN_MS         50
#define CLIENT_KEPT_SILENCE_MIN_MS 1000 /* of a kept session */
#define CLIENT_KEPT_SILENCE_MS     5000 /* of a kept session without holds */
#define CLIENT_PAUSE_MIN_MS        50   /* between rounds of the addresses */
#define CLIENT_PAUSE_MAX_MS        2000
#define CLIENT_STEADY_MS           500 /* a longer connection ends the pauses */
#define CLIENT_CLAIM_PAUSE_MS      200 /* before a claim is sent again */
#define CLIENT_MOVE_SOON_MS        200 /* if a LOCK waits to be sent */
#define CLIENT_MOVE_MAX_MS         5000 /* after DRAIN */
#define CLIENT_WHY_BYTES           256

/* Loops over a list, from `first` on. The loop must not free `at`. */
#define EACH(type, at, first) \
    for (struct type *at = (first); at != NULL; at = at->next)

enum holdfast_link {
    LINK_AWAY, /* a kept session without a socket, until retry_ms */
    LINK_CONNECTING,
    LINK_SHAKING,  /* connected; the handshake is not done */
    LINK_GREETING, /* the greeting has not come */
    LINK_RESUMING, /* greeted; HELLO resume= is not answered */
    LINK_OPEN,
    LINK_CLOSED,
};

struct holdfast_peer {
    struct sockaddr_storage address;
    socklen_t len;
    size_t origin; /* the index of its address */
};

struct holdfast {
    pid_t pid; /* of the creator */

    /* fork.c */
    struct holdfast *next;
    struct holdfast *prev;

    /* address.c, conn.c */
    int fd;                                     /* owned; -1: none */
    const struct holdfast_transport *transport; /* ref; NULL: none */
    void *through;                              /* owned; its link, or NULL */
    short read_wants;  /* to poll for input: POLLIN, or by the transport */
    short write_wants; /* to poll for output: POLLOUT, or by the transport */
    enum holdfast_link link;
    uint64_t connection; /* changes with each socket */
    struct holdfast_peer peers[CLIENT_PEERS];
    size_t peer_count;
    size_t peer_next;                                /* the next to try */
    size_t peer_left;                                /* of this round */
    size_t peer_origin;                              /* of the present one */
    uint64_t connect_deadline_ms;                    /* of the present one */
    char hosts[CLIENT_ADDRESSES][CLIENT_HOST_BYTES]; /* by origin */
    char unshaken[256]; /* the error of a handshake of this round; or "" */
    char in[CLIENT_IN_BYTES];
    size_t in_len;
    char *out; /* owned; out[out_start .. out_end] is not sent yet */
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
    bool keep_agreed;                 /* a broker has agreed to keep_ms */
    char user[HOLDFAST_USER_MAX + 1]; /* "": none */
    char secret[HOLDFAST_SECRET_MAX + 1];
    bool unknown;     /* this broker has not answered AUTH with OK */
    bool user_denied; /* AUTH was refused, which ended the session */
    uint64_t heartbeat_ms;
    uint64_t owner_last; /* of holdfast_new_owner() */
    uint64_t generation; /* the number of the connection, for HELLO gen= */
    bool final;          /* the session ends with this connection */
    bool away;           /* AWAY was reported, and BACK was not */
    bool draining;       /* this broker drains */
    bool refused;        /* this broker does not resume the session */
    bool no_memory;      /* an event was lost: the connection must close */
    uint64_t away_ms;    /* the time of AWAY */
    uint64_t retry_ms;   /* when to connect again */
    uint64_t opened_ms;  /* when this connection began to serve */
    uint64_t move_ms; /* when to leave a draining broker; UINT64_MAX: never */
    unsigned rounds;  /* failed rounds of the addresses */
    uint64_t random;

    /* notice.c */
    struct holdfast_notice *first; /* owned */
    struct holdfast_notice **last;
    size_t notice_count;
    struct holdfast_notice *current; /* owned; the program has its event */
    bool closed_told;

    /* pending.c */
    struct holdfast_pending *pending; /* owned; oldest first */
    struct holdfast_pending **pending_last;
    size_t waiting; /* LOCKs and AWAITs among them */
    size_t parked;  /* requests that are not sent yet */
    size_t parked_bytes;
    uint64_t request_last;

    /* hold.c, claim.c */
    struct holdfast_kept *holds; /* owned */
    uint64_t margin_ms;          /* UINT64_MAX: by the ttl */
    uint64_t proven_ms;          /* the latest sending of an answered request */
    uint64_t ping_next_ms;       /* when the next PING is due */
    uint64_t ping_sent_ms;       /* of the outstanding PING */
    bool ping_outstanding;

    /* watch.c */
    struct holdfast_watched *watches; /* owned */

    /* wait.c */
    bool awaits; /* in a blocking call: reading must not stop */
    char error[24];

    /* Called when a kept session has lost its connection. */
    void (*lost)(struct holdfast *h, const char *reason);
    uint64_t (*clock)(void *context); /* ms */
    void *clock_context;
};

/* state.c: CLOCK_BOOTTIME in ms, for h->clock. */
uint64_t holdfast_clock(void *context);

/*
 * A random number below `below`, to spread clients in time. It can be guessed.
 */
uint64_t holdfast_random(struct holdfast *h, uint64_t below);

/* Whether the session is kept, and has its ID. */
bool holdfast_session_known(const struct holdfast *h);

/* Whether requests may go to the output now. */
bool holdfast_session_serves(const struct holdfast *h);

/* client.c: a connection without an address; NULL: no memory. */
struct holdfast *holdfast_make(void);

/* For tests: a connection over a connected socket, which it owns, with another
 * clock, in ms. */
enum holdfast_status holdfast_create_over(int fd,
    uint64_t (*clock)(void *context), void *context, struct holdfast **out);

/* As holdfast_create_with(), with a clock; NULL: CLOCK_BOOTTIME. */
enum holdfast_status holdfast_create_at(const struct holdfast_options *options,
    uint64_t (*clock)(void *context), void *context, struct holdfast **out);

/* dispatch.c */

/* Handles one line without its LF, which is copied. It may close or replace the
 * connection: see h->connection. */
void holdfast_dispatch(struct holdfast *h, const char *line, size_t len);

/* fork.c */

/* Adds a connection, before it has a descriptor. */
void holdfast_fork_enter(struct holdfast *h);

/* Removes a connection, before it is freed. */
void holdfast_fork_leave(struct holdfast *h);

/* Between lock and unlock no fork() happens. They enclose each change of a
 * descriptor, and no blocking call. */
void holdfast_fork_lock(void);
void holdfast_fork_unlock(void);

#endif

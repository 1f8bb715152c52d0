/*
 * The connection object, which all files of the library share. Each file calls
 * those above it in this list, and none below:
 *
 *     encode.c     percent-encoding
 *     message.c    a line of the broker to its parts
 *     state.c      time, random numbers, whether the session goes on
 *     fork.c       the end of its copies in children
 *     address.c    addresses to what can be connected to
 *     link.c       the socket, and its transport: connecting, bytes in and out
 *     notice.c     the queue of events that the user has not taken yet
 *     hold.c       holds and their deadlines
 *     watch.c      locks that are watched
 *     pending.c    requests whose final answer is outstanding
 *     drain.c      a broker that drains, and when to leave it
 *     submit.c     requests to lines
 *     keepalive.c  when to ask the broker, and deadlines that pass
 *     claim.c      what another broker is asked: holds and watches
 *     session.c    a session that is kept: away, and back at another broker
 *     dispatch.c   what a line does: answers, events, holds
 *     client.c     the object and its turn
 *     wait.c       the blocking calls
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
#define CLIENT_STEADY_MS           500  /* a connection that stood is good */
#define CLIENT_CLAIM_PAUSE_MS      200  /* until a claim is tried again */
#define CLIENT_MOVE_SOON_MS        200  /* if a lock is requested meanwhile */
#define CLIENT_MOVE_MAX_MS         5000 /* after DRAIN */
#define CLIENT_WHY_BYTES           256

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

/* state.c: CLOCK_BOOTTIME in ms, for h->clock. */
uint64_t holdfast_clock(void *context);

/* A random number below `below`, to spread in time, not to be guessed. */
uint64_t holdfast_random(struct holdfast *h, uint64_t below);

/* Whether the session is kept, and a broker has given it its number. */
bool holdfast_session_known(const struct holdfast *h);

/* Whether requests may be sent now, or put into the output at least. */
bool holdfast_session_serves(const struct holdfast *h);

/* client.c: a connection without an address; NULL: no memory. */
struct holdfast *holdfast_make(void);

/*
 * For tests: over a connected socket, which it owns from then on, and with a
 * clock of their own, in ms.
 */
enum holdfast_status holdfast_create_over(int fd,
    uint64_t (*clock)(void *context), void *context, struct holdfast **out);

/* As holdfast_create_with(), with a clock; NULL: CLOCK_BOOTTIME. */
enum holdfast_status holdfast_create_at(const struct holdfast_options *options,
    uint64_t (*clock)(void *context), void *context, struct holdfast **out);

#endif

/*
 * The loop's own state, for the files of daemon/io only.
 *
 *     listen.c                  sockets to listen on
 *     accept.c                  new connections
 *     handshake.c               their TLS handshakes
 *     open.c                    the begin of their sessions
 *     client.c                  connections of clients from then on
 *     redis.c, reader.c         connections to Redis; replies on them
 *     http.c, http_page.c       the HTTP port and its pages
 *     hook.c                    processes of audit.hook
 *     loop.c                    turns
 *
 * Nothing here decides about locks.
 */
#ifndef HOLDFAST_IO_STATE_H
#define HOLDFAST_IO_STATE_H

#include "daemon/io/hook.h"
#include "daemon/io/loop.h"

#include <event2/event.h>
#include <event2/event_struct.h>
#include <sys/socket.h>
#include <sys/stat.h>

#define READ_BYTES  16384 /* of a client, a turn */
#define REDIS_READ  262144
#define SECRET_POOL 4096

/* The most sockets of a name: one for each of its addresses. */
#define LISTEN_SOCKETS_MAX 8
/* listen.tcp, listen.tls and listen.unix have 16 each at most. */
#define LISTENERS_MAX (2 * 16 * LISTEN_SOCKETS_MAX + 16)

/* It ends no session: that of an earlier connection may be resumed. */
#define CLIENT_BYE_LIMIT "* BYE limit keep=1\n"

/* The result of a client's write. The core hears of it when all have written.
 */
enum client_fate {
    FATE_DRAINED, /* nothing is left to send */
    FATE_BROKEN,
    FATE_OUTPUT, /* over its limit */
    FATE_MEMORY,
};

/*
 * The state of a client's connection. client_move() makes every move:
 *
 *     ACCEPTED -> HANDSHAKE, FRESH
 *     HANDSHAKE -> FRESH, LEAVING, HURRIED
 *     FRESH -> OPEN, EOF, LEAVING, HURRIED
 *     OPEN -> EOF, LEAVING, HURRIED
 *     EOF -> LEAVING_EOF, HURRIED
 *     LEAVING -> LEAVING_EOF, LINGER
 *
 * client_destroy() ends each of them. Only HANDSHAKE has a handshake. FRESH,
 * OPEN and EOF have a session; later states are deaf. EOF and later ones have
 * no partial line. LINGER has neither output nor TLS.
 */
enum client_state {
    CLIENT_ACCEPTED,
    CLIENT_HANDSHAKE,
    CLIENT_FRESH, /* nothing came so far */
    CLIENT_OPEN,
    CLIENT_EOF,         /* the client sends no more */
    CLIENT_LEAVING,     /* closed when all is sent, or at close_us */
    CLIENT_LEAVING_EOF, /* the same, and the client sends no more */
    CLIENT_HURRIED,     /* closed as soon as the socket takes no more */
    CLIENT_LINGER,      /* our FIN is sent; waits for the client's */
};

/* The end of a client's input, until client_over() meets it. */
enum client_over {
    OVER_NOT,
    OVER_END,    /* it sends no more */
    OVER_BROKEN, /* the connection is gone */
};

struct client {
    struct list link;       /* loop->clients */
    struct list dirty_link; /* loop->dirty */
    struct list fate_link;  /* loop->fated */
    struct list late_link;  /* loop->late */
    enum client_state state;
    enum client_fate fate;
    enum client_over over;
    struct loop *loop;     /* ref */
    struct event event;    /* reading, or of the handshake */
    struct event *writing; /* owned; only while output waits */
    struct tls_conn *tls;  /* owned; NULL: plain, or no handshake has begun */
    struct handshake *handshake; /* owned; while the handshake goes on */
    /* Ref, the core's; where it lingers, or NULL. */
    struct peer_address *address;
    int fd;
    bool more;        /* wants CORE_MORE when its output is drained */
    bool torn;        /* no memory for its output, which ends there */
    bool within;      /* a partial TLS record counts as memory */
    bool read_waits;  /* TLS must write before it reads on */
    bool write_waits; /* TLS must read before it writes on */
    uint16_t partial_len;
    struct engine_input input;
    char *partial; /* owned, or NULL; on loop->late it has whole lines */
    char *out;     /* owned; output that the socket did not take, or NULL */
    uint32_t out_start;
    uint32_t out_len;
    uint32_t out_capacity;
    uint32_t turn_offset; /* in the effects' text: lines of this turn */
    uint32_t turn_len;
    uint64_t close_us;   /* from CLIENT_LEAVING on: closed then */
    uint64_t silence_us; /* TCP ends it no sooner; UINT64_MAX: a Unix socket */
};

/* A TLS handshake. */
struct handshake {
    struct list link;          /* loop->handshakes, or loop->handshakes_due */
    struct client *client;     /* ref */
    struct peer_address *peer; /* ref, the core's; NULL: not counted there */
    uint64_t end_us;
    uint64_t since_us; /* its client has kept the loop waiting since then */
    uint32_t waits;    /* how often the wait began anew */
    struct sockaddr_storage address;
    socklen_t address_len;
};

struct listener {
    struct event event;
    struct loop *loop; /* ref */
    int fd;
    bool tcp;
    bool tls;
    char path[108]; /* of a Unix socket, to be removed; or empty */
};

/* The stop that signals ask for. The core has that of DRAIN. */
enum stop_wish {
    STOP_NONE,
    STOP_ASKED,
    STOP_AT_ONCE,
};

struct http;
struct redis_conn;

struct loop {
    struct loop_settings settings;
    struct event_base *base;
    struct evdns_base *dns;   /* NULL: no name was resolved yet */
    struct stat dns_files[2]; /* as the resolver has read them */
    struct engine engine;
    struct counters counters;
    struct event timer;
    uint64_t timer_us;          /* its time; WHEEL_NEVER: not set */
    struct client **by_session; /* owned; by the handle's index */
    struct list clients;
    struct list dirty;          /* clients with lines of this turn */
    struct list fated;          /* clients whose fate is to be met */
    struct list late;           /* clients with lines left for the next turn */
    struct list handshakes;     /* handshakes that wait for their clients */
    struct list handshakes_due; /* handshakes that can go on */
    uint32_t handshake_count;
    uint32_t client_count;
    uint32_t client_max;
    uint32_t tls_count; /* TLS clients, handshakes included */
    uint64_t memory;    /* unread and unparsed bytes of clients */
    struct listener listeners[LISTENERS_MAX];
    uint32_t listener_count;
    struct event accept_timer; /* ends a pause, after EMFILE or of TLS */
    bool tls_paused;           /* no TLS client is accepted */
    bool handshake_over;       /* a handshake has ended */
    int spare_fd;              /* kept to refuse a client under EMFILE */
    struct redis_conn *conns;  /* owned; by index */
    struct http *http;         /* owned; NULL: off */
    struct hooks *hooks;       /* owned; NULL: no hook */
    uint64_t started_us;       /* CLOCK_REALTIME */
    uint64_t reloaded_us; /* CLOCK_REALTIME; the start counts as a reload */
    bool reload_failed;   /* the last reload */
    char *read_buffer;    /* owned; for all reads of clients */
    char *redis_buffer;   /* owned; for all reads of Redis */
    uint8_t secrets[SECRET_POOL];
    uint32_t secrets_left;
    loop_told *told; /* told of changes of health; NULL: none */
    void *told_arg;  /* ref */
    uint32_t told_changes;
    bool poll_pays; /* the last wait was short enough to poll */
    enum stop_wish stop;
};

/* Sets a timer. Without memory for it, its time has come at once. */
static inline void
loop_arm(struct event *event, const struct timeval *wait)
{
    if (event_add(event, wait) != 0)
        event_active(event, EV_TIMEOUT, 1);
}

#endif

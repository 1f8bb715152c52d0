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

/* One for each address that a host's name has. */
#define LISTEN_SOCKETS_MAX 8
/* listen.tcp, listen.tls and listen.unix have 16 each at most. */
#define LISTENERS_MAX (2 * 16 * LISTEN_SOCKETS_MAX + 16)

#define CLIENT_BYE_LIMIT "* BYE limit\n"

/* The result of a client's write; the core hears of it after the writes. */
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
    struct event event;    /* reading; or of the handshake */
    struct event *writing; /* owned; only while output waits */
    struct tls_conn *tls;  /* owned; NULL: plain, or no handshake has begun */
    struct handshake *handshake; /* owned; while the handshake goes on */
    /* Ref, the core's; where it lingers, or NULL. */
    struct peer_address *address;
    int fd;
    bool more;        /* wants CORE_MORE when its output is drained */
    bool torn;        /* no memory for its output: what it gets ends there */
    bool within;      /* a part of a record of TLS came, and counts as memory */
    bool read_waits;  /* TLS has to write before it can be read on */
    bool write_waits; /* the other way round */
    uint16_t partial_len;
    struct engine_input input;
    char *partial; /* owned; the beginning of a line, or NULL; on loop->late
                      lines come before it */
    char *out;     /* owned; what the socket did not take, or NULL */
    uint32_t out_start;
    uint32_t out_len;
    uint32_t out_capacity;
    uint32_t turn_offset; /* in the effects' text: lines of this turn */
    uint32_t turn_len;
    uint64_t close_us;   /* of CLIENT_LEAVING and later: closed then */
    uint64_t silence_us; /* TCP ends it no sooner; UINT64_MAX: a Unix socket */
};

/* A handshake by TLS. */
struct handshake {
    struct list link;          /* loop->handshakes, or loop->handshakes_due */
    struct client *client;     /* ref */
    struct peer_address *peer; /* ref, the core's; NULL: not counted there */
    uint64_t end_us;
    uint64_t since_us; /* it has kept the loop waiting since then */
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

struct http;
struct redis_conn;

struct loop {
    struct loop_settings settings;
    struct event_base *base;
    struct evdns_base *dns;   /* made when a name is to be resolved */
    struct stat dns_files[2]; /* as it has read them */
    struct engine engine;
    struct counters counters;
    struct event timer;
    uint64_t timer_us;          /* when it is set to; WHEEL_NEVER: it is not */
    struct client **by_session; /* owned; by the handle's index */
    struct list clients;
    struct list dirty;      /* clients with lines of this turn */
    struct list fated;      /* clients with a fate to be met */
    struct list late;       /* clients whose lines took too long for one turn */
    struct list handshakes; /* of TLS' handshakes: who waits for its client */
    struct list handshakes_due; /* those that can go on */
    uint32_t handshake_count;
    uint32_t client_count;
    uint32_t client_max;
    uint32_t tls_count; /* clients that have TLS by now */
    uint64_t memory;    /* unread and unparsed bytes */
    struct listener listeners[LISTENERS_MAX];
    uint32_t listener_count;
    struct event accept_timer; /* after EMFILE, or where TLS is paused */
    bool tls_paused;           /* nobody is accepted by TLS */
    bool handshake_over;       /* a handshake's place has become free */
    int spare_fd;              /* to be given up under EMFILE */
    struct redis_conn *conns;  /* owned; by index */
    struct http *http;         /* owned; NULL: off */
    struct hooks *hooks;       /* owned; NULL: there is none */
    uint64_t started_us;       /* CLOCK_REALTIME */
    uint64_t reloaded_us;      /* likewise; the start was the first time */
    bool reload_failed;        /* the last one */
    char *read_buffer;         /* owned; shared by all reads of clients */
    char *redis_buffer;        /* owned; likewise of links */
    uint8_t secrets[SECRET_POOL];
    uint32_t secrets_left;
    loop_told *told; /* of changes of health; NULL: nobody is */
    void *told_arg;  /* ref */
    uint32_t told_changes;
    bool poll_pays;  /* the last wait was over while polling, or as short */
    bool stop_asked; /* by a signal, and not by DRAIN */
    bool stop_now;
};

/* Sets a timer; where there is no memory for it, its time has come already. */
static inline void
loop_arm(struct event *event, const struct timeval *wait)
{
    if (event_add(event, wait) != 0)
        event_active(event, EV_TIMEOUT, 1);
}

#endif

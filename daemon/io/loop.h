/*
 * The event loop: sockets, and the turns in which core and store are moved.
 *
 * A turn: libevent reports ready sockets. Clients' lines and Redis' replies go
 * into the core, and its effects gather. Then come time, operations to the
 * store, its output and the clients' replies, one write for each. The order and
 * the time of a turn are the engine's.
 */
#ifndef HOLDFAST_IO_LOOP_H
#define HOLDFAST_IO_LOOP_H

#include "daemon/driver/engine.h"

struct hook_settings;
struct loop;
struct tls;

struct loop_address {
    char host[STORE_HOST_MAX]; /* or a path, where port is 0 and is_path */
    uint16_t port;
    bool is_path;
    bool tls; /* for clients who speak it from the first byte on */
};

/* The users of a socket. */
enum socket_use {
    SOCKET_CLIENTS,
    SOCKET_TLS,  /* clients, by TLS */
    SOCKET_HTTP, /* operators */
};

/* One that listens already, of TCP or a path: see sd_listen_fds(3). */
struct loop_socket {
    int fd;
    const char *name; /* ref: for errors */
    enum socket_use use;
};

struct loop_settings {
    struct core_settings core;
    struct store_settings store;
    const struct loop_address *listen; /* ref, until loop_create() is done */
    uint32_t listen_count;
    const struct loop_address *http;  /* ref, likewise; NULL: off */
    const struct hook_settings *hook; /* ref, likewise; NULL: there is none */
    /* In place of those of `listen`, or of `http`, that are of the kind. */
    const struct loop_socket *passed; /* ref, likewise; owned from then on */
    uint32_t passed_count;
    /* ref, until the loop has another: to Redis; NULL: plain */
    struct tls *tls;
    /* Likewise, for clients; NULL: there is no address for it. */
    struct tls *client_tls;
    int backlog;
    bool loopback_only; /* listens where no other machine gets, or not at all */
    uint32_t keepalive_idle_s;
    uint32_t keepalive_interval_s;
    uint32_t keepalive_count;
    uint32_t tcp_user_timeout_ms;
    uint32_t busy_poll_us; /* 0: always sleep */
    uint64_t output_max;   /* unread bytes a client */
    uint64_t memory_max;   /* unread and unparsed bytes of all */
};

/*
 * Listens and makes all ready. NULL: `error` has a line that says what the
 * system refused.
 */
struct loop *loop_create(
    const struct loop_settings *settings, char *error, size_t error_bytes);

/* Closes all, and frees it; *loop becomes NULL, and may be. */
void loop_destroy(struct loop **loop);

/*
 * Takes new settings while it runs: those of engine_configure(), limits of
 * memory, and polling. TLS (if it is on) and socket options apply to new
 * connections.
 */
void loop_configure(struct loop *loop, const struct loop_settings *settings);

/* From here on it is work of a turn, and counted as such in /metrics. */
void loop_begin_turn(struct loop *loop);

/* That a configuration was read again and taken, or not; for /metrics. */
void loop_note_reload(struct loop *loop, bool taken);

/* Until loop_stop() has been done; returns the exit status. */
int loop_run(struct loop *loop);

/* Begins to stop; the second time at once. For signal events: one that comes
 * after DRAIN is the first. */
void loop_stop(struct loop *loop);

typedef void loop_told(void *arg, const char *text);

/* Has `told` called with a line for people when that changes, and once before:
 * whether locks can be granted, and why not. */
void loop_tell_health(struct loop *loop, loop_told *told, void *arg);

struct event_base;

/* For signals, watchdog, HTTP and the log, which live beside it. */
struct event_base *loop_base(struct loop *loop);

/* Refs; the counters of the process, which those beside the loop count in. */
struct counters *loop_counters(struct loop *loop);

/* Whether locks can be granted; a ref, good for this turn. */
const struct health *loop_health(const struct loop *loop);

/* Whether a stop is under way, by a signal or by DRAIN. */
bool loop_stopping(const struct loop *loop);

#endif

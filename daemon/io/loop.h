/*
 * The event loop: sockets, and the turns of core and store.
 *
 * In a turn, libevent reports ready sockets. Lines of clients and replies of
 * Redis go into the core, and its effects gather. Then come time, operations to
 * the store, its output, and the replies to clients, with one write for each
 * connection. The engine has the order and the time of a turn.
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
    bool tls; /* TLS from the first byte on */
};

/* The users of a socket. */
enum socket_use {
    SOCKET_CLIENTS,
    SOCKET_TLS,  /* clients, by TLS */
    SOCKET_HTTP, /* operators */
};

/* A socket that listens already, TCP or Unix: see sd_listen_fds(3). */
struct loop_socket {
    int fd;
    const char *name; /* ref: for errors */
    enum socket_use use;
};

struct loop_settings {
    struct core_settings core;
    struct store_settings store;
    /* Refs, until loop_create() is done. */
    const struct loop_address *listen;
    uint32_t listen_count;
    const struct loop_address *http;  /* NULL: off */
    const struct hook_settings *hook; /* NULL: no hook */
    /* They replace the addresses of their use. The loop owns the sockets. */
    const struct loop_socket *passed;
    uint32_t passed_count;
    /* To Redis: ref, until the loop has another; NULL: plain. */
    struct tls *tls;
    /* For clients: ref, until the loop has another; NULL: no TLS. */
    struct tls *client_tls;
    int backlog;
    bool loopback_only; /* refuses addresses that other machines can reach */
    uint32_t keepalive_idle_s;
    uint32_t keepalive_interval_s;
    uint32_t keepalive_count;
    uint32_t tcp_user_timeout_ms;
    uint32_t busy_poll_us; /* 0: always sleep */
    uint64_t memory_max;   /* unread and unparsed bytes of all */
};

/* Listens and makes all ready. NULL: `error` says why, in a line. */
struct loop *loop_create(
    const struct loop_settings *settings, char *error, size_t error_bytes);

/* Closes all, and frees the loop; *loop becomes NULL, and may be NULL. */
void loop_destroy(struct loop **loop);

/*
 * Takes new settings while it runs: those of engine_configure(), limits of
 * memory, and polling. TLS (if it is on) and socket options apply to new
 * connections.
 */
void loop_configure(struct loop *loop, const struct loop_settings *settings);

/* Begins a turn, whose time /metrics counts. */
void loop_begin_turn(struct loop *loop);

/* Notes the result of a reload, for /metrics. */
void loop_note_reload(struct loop *loop, bool taken);

/* Runs until the stop is done; returns the exit status. */
int loop_run(struct loop *loop);

/* Begins to stop, for signals. The second time stops at once; a DRAIN before
 * does not count. */
void loop_stop(struct loop *loop);

typedef void loop_told(void *arg, const char *text);

/* Calls `told` now and at each change with a line for people: whether locks can
 * be granted, and why not. */
void loop_tell_health(struct loop *loop, loop_told *told, void *arg);

struct event_base;

/* The event base, for signals, watchdog, HTTP and the log. */
struct event_base *loop_base(struct loop *loop);

/* The counters of the process (ref). */
struct counters *loop_counters(struct loop *loop);

/* Whether locks can be granted (ref, good for this turn). */
const struct health *loop_health(const struct loop *loop);

/* Whether a stop is under way, by a signal or DRAIN. */
bool loop_stopping(const struct loop *loop);

#endif

/*
 * Shared by the measuring modes: the clock, sockets, and a blocking reader of
 * lines. Nothing here knows a protocol beyond "lines end in LF". Any failure of
 * the system ends the program with a message: a measurement that did not go as
 * planned is none.
 */
#ifndef HOLDFAST_BENCH_NET_H
#define HOLDFAST_BENCH_NET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PEER_BYTES 65536

/* A blocking connection that is read line by line. */
struct peer {
    int fd;
    size_t start; /* of bytes not handed out yet */
    size_t used;
    char in[PEER_BYTES];
};

/* CLOCK_MONOTONIC, the same in all processes; nanoseconds. */
uint64_t clock_ns(void);

/* Prints the message and ends the program with status 1. */
void die(const char *format, ...)
    __attribute__((noreturn, format(printf, 1, 2)));

/* Connects to "host:port" (a number for host) or a path; TCP_NODELAY. */
int net_connect(const char *address);

void net_nonblocking(int fd);

/* The soft limit of descriptors becomes the hard one; returns it. */
uint64_t net_raise_descriptors(void);

void peer_open(struct peer *peer, const char *address);
void peer_close(struct peer *peer);

/* Whether a line can be handed out without reading. */
bool peer_has_line(const struct peer *peer);

void peer_send(struct peer *peer, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
void peer_send_bytes(struct peer *peer, const char *data, size_t bytes);

/*
 * The next line without its end (LF or CR LF), valid until the next call; NULL
 * where none came within `timeout_ms`. The end of the connection is fatal.
 */
char *peer_line(struct peer *peer, int timeout_ms);

/* All of `bytes`, also where the system writes them in parts. */
void write_all(int fd, const void *data, size_t bytes);

/* False at the end of the file. */
bool read_all(int fd, void *data, size_t bytes);

#endif

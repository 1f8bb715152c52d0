/*
 * A connection of the closed loop, as bare bytes or by TLS. It is made while
 * the program waits, and does not block from then on. Failures end the program
 * (net.h).
 */
#ifndef HOLDFAST_BENCH_CHANNEL_H
#define HOLDFAST_BENCH_CHANNEL_H

#include <stdbool.h>
#include <stddef.h>

struct channel {
    int fd;
    void *link; /* owned; by TLS, else NULL */
};

/* All channels speak TLS from now on, to whom the CAs in the file vouch for. */
void channels_use_tls(const char *ca);

/* Connects to the address (net_connect()); after a greeting, if there is one,
 * of which nothing is left to be read. */
void channel_open(struct channel *channel, const char *address, bool greets);

void channel_close(struct channel *channel);

/* Bytes that came, at most `room`; 0: none have. */
size_t channel_read(struct channel *channel, char *out, size_t room);

/* Whether there is something to read that the socket does not tell of. */
bool channel_has_more(const struct channel *channel);

/* The socket has room for all of it, or that is a failure. */
void channel_write(struct channel *channel, const char *bytes, size_t len);

#endif

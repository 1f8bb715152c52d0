/*
 * The measured side of the closed loop: three ways to take and give back a
 * lock, each as a pair of requests and a judge of their replies.
 *
 *   setnx     SET NX PX, then compare-and-delete by script; no fence
 *   hash      a hash a lock: owner, fence, expiry, count; by two scripts
 *   holdfast  LOCK and UNLOCK lines
 *
 * The first two ask Redis directly. A back end only writes and reads bytes in
 * memory; sockets and time are the loop's.
 */
#ifndef HOLDFAST_BENCH_BACKEND_H
#define HOLDFAST_BENCH_BACKEND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define REQUEST_BYTES_MAX 256

/* The asker and its question. */
struct request {
    unsigned connection;
    unsigned lane; /* of the connection */
    unsigned key;
    bool releasing;
};

enum reply_kind {
    REPLY_STATUS,
    REPLY_INTEGER,
    REPLY_NIL,
    REPLY_ERROR,
    REPLY_EVENT,
};

struct reply {
    enum reply_kind kind;
    int lane;        /* -1: that of the oldest request */
    int64_t number;  /* an integer; a fence or a count; -1: none */
    const char *why; /* ref to the text of an error or event, in the input */
    size_t why_bytes;
};

enum verdict {
    VERDICT_DONE,
    VERDICT_BUSY,
    VERDICT_WRONG,
};

struct backend {
    const char *name;

    /* Before the loop, with an address of its own to connect to. */
    void (*prepare)(const char *address);

    /* Whether the server speaks first. */
    bool greets;

    /* Appends a request to `out` (REQUEST_BYTES_MAX are free); its bytes. */
    size_t (*write)(const struct request *request, char *out);

    /* Takes one reply off `in`; its bytes, 0 where it is not complete. */
    size_t (*read)(const char *in, size_t bytes, struct reply *reply);

    enum verdict (*judge)(const struct reply *reply, bool releasing);
};

/* NULL where there is none of that name. */
const struct backend *backend_find(const char *name);

#endif

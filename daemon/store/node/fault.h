/*
 * Faults of connections. See fault.c.
 */
#ifndef HOLDFAST_STORE_NODE_FAULT_H
#define HOLDFAST_STORE_NODE_FAULT_H

#include "daemon/store/model/state.h"

enum refusal {
    REFUSAL_MOVED,
    REFUSAL_ASK,
    REFUSAL_TRYAGAIN,
    REFUSAL_NOSCRIPT,
    REFUSAL_LATER, /* nothing ran, and it may later */
    REFUSAL_OTHER,
};

/* The meaning of an error of Redis for the call. */
enum refusal refusal_of(struct text error);

/* The meaning of an error of Redis for the node's health. */
enum health_reason health_of_error(struct text error);

/* Whether the node refuses all writes alike, whoever asks. */
bool health_is_of_node(enum health_reason reason);

/* Copies what is printable of a text, cut to `out_bytes`. */
void health_copy(char *out, size_t out_bytes, struct text text);

/* Notes a fault of the connection. True: it is to be logged, as it is new, or
 * was told a minute ago. */
bool health_fault(struct conn *conn, enum health_reason reason,
    struct text said, uint64_t now_us);

/* The node has taken what grants: the connection has no fault. */
void health_grants(struct conn *conn);

#endif

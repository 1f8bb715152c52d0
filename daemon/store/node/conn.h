/*
 * A connection to a node, and its calls. See conn.c.
 */
#ifndef HOLDFAST_STORE_NODE_CONN_H
#define HOLDFAST_STORE_NODE_CONN_H

#include "daemon/store/model/state.h"

/* conn.c */

/* Sends a command of the words that follow. See conn_send(). */
#define CONN_SEND(store, conn, kind, now_us, ...)                            \
    conn_send(store, conn, kind, now_us, (const struct text[]){__VA_ARGS__}, \
        sizeof((const struct text[]){__VA_ARGS__}) / sizeof(struct text))

/* Sets up a connection that is down. Connections never move in memory. */
void conn_init(struct conn *conn, uint32_t index);

/* Asserts what is legal together. See enum conn_state. */
void conn_check(const struct conn *conn);

/* Makes the transition, and ends what only a connection has. */
void conn_move(struct conn *conn, enum conn_state state);

/* Forgets what is known of the node, as the connection gets another one. */
void conn_forget(struct conn *conn);

/* Writes HOST:PORT, cut to `out_bytes`, which must be above 30, and returns
 * `out`. Unprintable bytes become '?'. */
const char *conn_name(const struct store *store, const struct conn *conn,
    char *out, size_t out_bytes);

/* Adds a call at the end of the connection's. The caller writes its command
 * into connection->out. */
struct call *conn_call(struct store *store, struct conn *conn,
    enum call_kind kind, uint64_t now_us);

/* Frees a call without operations. Its reply was taken, or is not awaited any
 * more. */
void conn_end_call(struct store *store, struct conn *conn, struct call *call);

/* Frees the reply that a call keeps, if it keeps one. */
void confirm_release(struct call *call);

/* Takes a call off its connection, and frees it. */
void call_free(struct store *store, struct conn *conn, struct call *call);

/* Whether the connection is the second one to its node. */
static inline bool
conn_is_second(const struct conn *conn)
{
    return conn->index >= CONN_ACK && conn->index < CONN_SUBSCRIBER;
}

/* Whether the node can be asked now. */
static inline bool
conn_answers(const struct conn *conn)
{
    return conn->state == CONN_READY;
}

/* Whether the connection asks what replicas have. */
static inline bool
conn_is_ack(const struct store *store, const struct conn *conn)
{
    return store->settings.strict && conn_is_second(conn);
}

/* Whether the connection subscribes to what brokers and scripts tell. Of a
 * quorum each node has one that does. */
bool conn_listens(const struct store *store, const struct conn *conn);

/* Sends a command of `n` words. NULL: the connection has no room for it. */
struct call *conn_send(struct store *store, struct conn *conn,
    enum call_kind kind, uint64_t now_us, const struct text *words, size_t n);

/* Whether the connection leads to a Sentinel. */
static inline bool
sentinel_is(const struct store *store, const struct conn *conn)
{
    return conn->index == CONN_SWITCHES ||
           (conn->node != NODE_NONE && store->nodes[conn->node].sentinel);
}

/* The value of `key` in the text of INFO, a part of it; empty: there is
 * none. */
struct text info_value(struct text info, const char *key);

/* Copies at most 40 bytes of an ID, and ends them with zeros. */
void copy_id(char out[41], struct text value);

/* Asks the node for its replication IDs. False: the connection has no room. */
bool conn_ask_ids(struct store *store, struct conn *conn, uint64_t now_us);

/* Writes the marker, or reads it if `value` is empty. Without room it sends
 * nothing. */
void conn_mark(struct store *store, struct conn *conn, uint64_t now_us,
    struct text key, struct text value);

/* Whether operations go to that connection. */
static inline bool
conn_serves(const struct store *store, const struct conn *conn)
{
    return conn->index < CONN_ACK && !sentinel_is(store, conn);
}

/* The call's command for the log. It is static. */
const char *call_word(enum call_kind kind);

/* Until when the answer to the oldest call is in time. */
uint64_t conn_in_time_us(const struct store *store, const struct conn *conn);

/* A node that answers, one with slots if possible; NODE_NONE: there is none
 * now. */
uint16_t conn_subscriber_host(const struct store *store);

/* Whether the node has that address. */
bool route_is_at(const struct node *node, struct text host, uint16_t port);

/* Whether the node has a use: of several that Sentinels have named, the master
 * alone. */
bool node_is_wanted(const struct store *store, uint16_t node);

/* Asks the node for the map of slots. False: there is no room. */
bool route_ask_map(struct store *store, struct conn *conn, uint64_t now_us);

/* fault.c */

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

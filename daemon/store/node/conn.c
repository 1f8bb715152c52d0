/*
 * A connection to a node, as all files use it: its name, its calls, what it is
 * for. Its life: connect (conn_life.c), ask who is there, have the predecessor
 * killed, load the scripts, be ready (handshake.c); be lost, wait, connect
 * again (conn_time.c).
 *
 *   DOWN -> CONNECTING -> OPENED -> GREETING -> PREPARING -> READY <-> LATE
 *     ^--------- error, time-out, not what we need --------------'-------'
 *
 * A Sentinel's connection has no PREPARING. One without TLS has no OPENED.
 *
 * Replies come in order: nothing is sooner than the answer to the oldest call.
 * If that takes longer than the command time-out, the connection is LATE.
 * Nothing more is sent then. Operations are given back when their own time is
 * over; a renewal has a lease. A late answer ends that. A connection in use is
 * given up after a third of a lease without an answer. A dead host or a lost
 * path is noticed sooner: TCP gets no acknowledgement. Greetings begin with the
 * command time-out. Each greeting that fails by it doubles the time of the next
 * one.
 *
 * See DESIGN.md D8.5.
 */
#include "daemon/store/node/conn.h"

#include "daemon/base/assert.h"

#include <stdlib.h>

#define PING_AFTER_US 3000000

#define TO(state) (1u << CONN_##state)

void
conn_check(const struct conn *conn)
{
    enum conn_state state = conn->state;

    require(state <= CONN_LATE);
    if (conn->named || conn->client_id != 0)
        require(state >= CONN_GREETING);
    if (conn->again)
        require(state < CONN_READY);
    if (conn->wish != WISH_NONE)
        require(state ==
                (conn->wish == WISH_CONNECT ? CONN_CONNECTING : CONN_DOWN));
}

void
conn_move(struct conn *conn, enum conn_state state)
{
    static const unsigned moves[] = {
        [CONN_DOWN] = TO(CONNECTING),
        [CONN_CONNECTING] = TO(OPENED) | TO(GREETING) | TO(DOWN),
        [CONN_OPENED] = TO(GREETING) | TO(DOWN),
        [CONN_GREETING] = TO(PREPARING) | TO(READY) | TO(DOWN),
        [CONN_PREPARING] = TO(READY) | TO(DOWN),
        [CONN_READY] = TO(LATE) | TO(DOWN),
        [CONN_LATE] = TO(READY) | TO(DOWN),
    };

    require((moves[conn->state] & 1u << state) != 0);
    conn->state = state;
    if (state == CONN_DOWN) {
        conn->named = false;
        conn->client_id = 0;
    }
    conn_check(conn);
}

void
conn_init(struct conn *conn, uint32_t index)
{
    conn->index = index;
    conn->node = index < CONN_SUBSCRIBER ? (uint16_t)(index % STORE_NODES_MAX)
                                         : NODE_NONE;
    list_init(&conn->calls);
    list_init(&conn->held);
    conn_forget(conn);
}

/* Forgets the node. */
static void
history_forget(struct conn *conn)
{
    memset(conn->run_id, 0, sizeof(conn->run_id));
    memset(conn->id, 0, sizeof(conn->id));
    conn->history.state = HISTORY_NEW;
    conn->history.since_us = 0;
    conn->history.mark_us = 0;
    conn->clock.at_us = 0;
    conn->clock.risen_us = 0;
    conn->clock.rose_at_us = 0;
    memset(conn->history.sources, 0, sizeof(conn->history.sources));
}

void
conn_forget(struct conn *conn)
{
    conn->old_client_id = 0;
    conn->client_id = 0;
    conn->retry_us = 0;
    conn->peers_us = 0;
    conn->differs = 0;
    conn->backoff_us = BACKOFF_MIN_US;
    conn->greeting_us = 0;
    conn->late_us = 0;
    conn->idle_us = PING_AFTER_US;
    conn->again = false;
    conn->stranger = false;
    history_forget(conn);
}

const char *
conn_name(const struct store *store, const struct conn *conn, char *out,
    size_t out_bytes)
{
    const struct store_address *address = &store->nodes[conn->node].address;
    size_t len = strnlen(address->host, sizeof(address->host));
    char port[20];
    size_t port_len = text_from_u64(port, address->port);

    require(out_bytes > 30);
    if (len > out_bytes - 22)
        len = out_bytes - 22;
    for (size_t i = 0; i < len; i++) { /* a cluster has told it */
        char byte = address->host[i];
        bool plain = byte > ' ' && byte <= '~' && byte != '"' && byte != '=';
        out[i] = plain ? byte : '?';
    }
    out[len++] = ':';
    memcpy(out + len, port, port_len);
    out[len + port_len] = '\0';
    return out;
}

struct call *
conn_call(struct store *store, struct conn *conn, enum call_kind kind,
    uint64_t now_us)
{
    struct call *call = slab_alloc(&store->calls);

    require(call != NULL); /* sized for every connection's limit */
    call->kind = kind;
    call->at_conn = (uint16_t)conn->index;
    call->sent_us = now_us;
    list_init(&call->ops);
    list_push_back(&conn->calls, &call->link);
    conn->call_count++;
    if (kind != CALL_ASKING && kind != CALL_MAP && kind != CALL_MARK &&
        kind != CALL_PROBE && kind != CALL_PEERS && kind != CALL_LIST)
        conn->spoke_us = now_us;
    return call;
}

void
confirm_release(struct call *call)
{
    free(call->said);
    call->said = NULL;
}

void
conn_end_call(struct store *store, struct conn *conn, struct call *call)
{
    require(list_empty(&call->ops));
    list_remove(&call->link);
    conn->batch_count -= call->kind == CALL_SCRIPT && call->said == NULL;
    conn->bulk_count -= call->bulk && call->said == NULL;
    conn->held_count -= call->said != NULL;
    conn->loading -= call->kind == CALL_LOAD;
    confirm_release(call);
    slab_free(&store->calls, call);
}

void
call_free(struct store *store, struct conn *conn, struct call *call)
{
    require(conn->call_count > 0);
    conn->call_count--;
    conn_end_call(store, conn, call);
}

bool
conn_listens(const struct store *store, const struct conn *conn)
{
    return store->topology->independent ? conn_is_second(conn)
                                        : conn->index == CONN_SUBSCRIBER;
}

struct call *
conn_send(struct store *store, struct conn *conn, enum call_kind kind,
    uint64_t now_us, const struct text *words, size_t n)
{
    if (!resp_command(&conn->out, words, n))
        return NULL;
    return conn_call(store, conn, kind, now_us);
}

struct text
info_value(struct text info, const char *key)
{
    size_t key_len = strlen(key);
    const char *at = info.at;
    const char *end = info.at + info.len;

    while (at < end) {
        const char *eol = memchr(at, '\n', (size_t)(end - at));
        if (eol == NULL)
            eol = end;
        if ((size_t)(eol - at) > key_len && at[key_len] == ':' &&
            memcmp(at, key, key_len) == 0) {
            const char *value = at + key_len + 1;
            size_t len = (size_t)(eol - value);
            if (len > 0 && value[len - 1] == '\r')
                len--;
            return text_make(value, len);
        }
        at = eol + 1;
    }
    return TEXT("");
}

void
copy_id(char out[41], struct text value)
{
    memset(out, 0, 41);
    memcpy(out, value.at, value.len > 40 ? 40 : value.len);
}

bool
conn_ask_ids(struct store *store, struct conn *conn, uint64_t now_us)
{
    return CONN_SEND(store, conn, CALL_IDS, now_us, TEXT("INFO"),
               TEXT("replication")) != NULL;
}

void
conn_mark(struct store *store, struct conn *conn, uint64_t now_us,
    struct text key, struct text value)
{
    struct call *call =
        value.len == 0
            ? CONN_SEND(store, conn, CALL_MARK, now_us, TEXT("GET"), key)
            : CONN_SEND(store, conn, CALL_MARK, now_us, TEXT("SET"), key, value,
                  TEXT("GET"));

    if (call != NULL)
        call->writes = value.len > 0;
}

static const char *const call_words[] = {
    [CALL_SCRIPT] = "EVALSHA",
    [CALL_ASKING] = "ASKING",
    [CALL_AUTH] = "AUTH",
    [CALL_INFO] = "INFO",
    [CALL_IDS] = "INFO",
    [CALL_MARK] = "SET",
    [CALL_CLIENT_ID] = "CLIENT_ID",
    [CALL_TIME] = "TIME",
    [CALL_KILL] = "CLIENT_KILL",
    [CALL_NAME] = "CLIENT_SETNAME",
    [CALL_LOAD] = "SCRIPT_LOAD",
    [CALL_MAP] = "CLUSTER_SLOTS",
    [CALL_MASTER] = "SENTINEL",
    [CALL_SUBSCRIBE] = "SUBSCRIBE",
    [CALL_PING] = "PING",
    [CALL_WRITE] = "PEXPIRE",
    [CALL_ROLE] = "ROLE",
    [CALL_WAIT] = "WAIT",
    [CALL_MYID] = "CLUSTER_MYID",
    [CALL_MEMBERS] = "CLUSTER_REPLICAS",
    [CALL_REPLICAS] = "INFO",
    [CALL_PROBE] = "EVALSHA",
    [CALL_PEERS] = "SET",
    [CALL_LIST] = "SET",
    [CALL_PUBLISH] = "PUBLISH",
};

const char *
call_word(enum call_kind kind)
{
    return call_words[kind];
}

uint64_t
conn_in_time_us(const struct store *store, const struct conn *conn)
{
    if (list_empty(&conn->calls))
        return WHEEL_NEVER;
    return container_of(conn->calls.next, struct call, link)->sent_us +
           store->settings.command_timeout_us;
}

/*
 * A node that can be talked to, one with slots rather than a seed that may have
 * left the cluster; NODE_NONE: there is none now.
 */
uint16_t
conn_subscriber_host(const struct store *store)
{
    uint16_t found = NODE_NONE;

    for (uint16_t i = 0; i < store->node_count; i++) {
        if (!store->nodes[i].used || store->nodes[i].sentinel ||
            !conn_answers(&store->conns[i]))
            continue;
        if (store->nodes[i].mapped)
            return i;
        if (found == NODE_NONE)
            found = i;
    }
    return found;
}

bool
route_is_at(const struct node *node, struct text host, uint16_t port)
{
    return node->address.port == port &&
           strlen(node->address.host) == host.len &&
           memcmp(node->address.host, host.at, host.len) == 0;
}

bool
node_is_wanted(const struct store *store, uint16_t node)
{
    return store->topology->slots || store->nodes[node].mapped ||
           store->nodes[node].sentinel;
}

bool
route_ask_map(struct store *store, struct conn *conn, uint64_t now_us)
{
    if (CONN_SEND(store, conn, CALL_MAP, now_us, TEXT("CLUSTER"),
            TEXT("SLOTS")) == NULL)
        return false;
    count(store->counters, COUNTER_redis_map_refreshes);
    store->map_asked = true;
    return true;
}

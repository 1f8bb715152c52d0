/*
 * A connection to a node, as all files use it: its name, its calls, what it is
 * for. Its life: connect (link_life.c), ask who is there, have the predecessor
 * killed, load the scripts, be ready (handshake.c); be lost, wait, connect
 * again (link_time.c).
 *
 *   DOWN -> CONNECTING -> GREETING -> PREPARING -> READY
 *     ^--------- error, time-out, not what we need ----'
 *
 * Replies come in order: nothing is sooner than the answer to the oldest call.
 * Where that takes longer than the command time-out, the link is late. Nothing
 * more is sent then. Operations are given back when their own time is over; a
 * renewal has a lease. A late answer ends that. A connection in use is given up
 * after a third of a lease without an answer. A dead host or a lost path is
 * noticed sooner: TCP gets no acknowledgement. Greetings begin with the command
 * time-out. Each greeting that fails by it doubles the time of the next one.
 *
 * See DESIGN.md D8.5.
 */
#include "daemon/store/node/link.h"

#include "daemon/store/strict/strict.h"

#include "daemon/base/assert.h"

#define PING_AFTER_US 3000000

void
link_init(struct link *link, uint32_t index)
{
    link->index = index;
    link->node = index < LINK_SUBSCRIBER ? (uint16_t)(index % STORE_NODES_MAX)
                                         : NODE_NONE;
    list_init(&link->calls);
    list_init(&link->held);
    link_forget(link);
}

/* Forgets the node. */
static void
trust_forget(struct link *link)
{
    memset(link->run_id, 0, sizeof(link->run_id));
    memset(link->id, 0, sizeof(link->id));
    link->settled = false;
    link->inherits = false;
    link->guessed = false;
    link->since_us = 0;
    link->mark_us = 0;
    link->clock_at_us = 0;
    link->risen_us = 0;
    link->rose_at_us = 0;
    memset(link->sources, 0, sizeof(link->sources));
}

void
link_forget(struct link *link)
{
    link->old_client_id = 0;
    link->client_id = 0;
    link->retry_us = 0;
    link->peers_us = 0;
    link->differs = 0;
    link->backoff_us = BACKOFF_MIN_US;
    link->redis_timeout_us = 0;
    link->late_us = 0;
    link->idle_us = PING_AFTER_US;
    link->again = false;
    link->stranger = false;
    trust_forget(link);
}

const char *
link_name(const struct store *store, const struct link *link, char *out,
    size_t out_bytes)
{
    const struct store_address *address = &store->nodes[link->node].address;
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
link_call(struct store *store, struct link *link, enum call_kind kind,
    uint64_t now_us)
{
    struct call *call = slab_alloc(&store->calls);

    require(call != NULL); /* sized for every link's limit */
    call->kind = kind;
    call->at_link = (uint16_t)link->index;
    call->sent_us = now_us;
    list_init(&call->ops);
    list_push_back(&link->calls, &call->link);
    link->call_count++;
    if (kind != CALL_ASKING && kind != CALL_MAP && kind != CALL_MARK &&
        kind != CALL_PROBE && kind != CALL_PEERS && kind != CALL_LIST)
        link->spoke_us = now_us;
    return call;
}

void
link_end_call(struct store *store, struct link *link, struct call *call)
{
    require(list_empty(&call->ops));
    list_remove(&call->link);
    link->batch_count -= call->kind == CALL_SCRIPT && call->said == NULL;
    link->bulk_count -= call->bulk && call->said == NULL;
    link->held_count -= call->said != NULL;
    link->loading -= call->kind == CALL_LOAD;
    confirm_release(call);
    slab_free(&store->calls, call);
}

void
call_free(struct store *store, struct link *link, struct call *call)
{
    require(link->call_count > 0);
    link->call_count--;
    link_end_call(store, link, call);
}

bool
link_is_second(const struct link *link)
{
    return link->index >= LINK_WITNESS && link->index < LINK_SUBSCRIBER;
}

bool
link_answers(const struct link *link)
{
    return link->state == LINK_READY && !link->late;
}

bool
link_is_witness(const struct store *store, const struct link *link)
{
    return store->settings.strict && link_is_second(link);
}

bool
link_listens(const struct store *store, const struct link *link)
{
    return store->quorum != NULL ? link_is_second(link)
                                 : link->index == LINK_SUBSCRIBER;
}

struct call *
link_send(struct store *store, struct link *link, enum call_kind kind,
    uint64_t now_us, const struct text *words, size_t n)
{
    if (!resp_command(&link->out, words, n))
        return NULL;
    return link_call(store, link, kind, now_us);
}

bool
sentinel_is(const struct store *store, const struct link *link)
{
    return link->index == LINK_SWITCHES ||
           (link->node != NODE_NONE && store->nodes[link->node].sentinel);
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
link_ask_ids(struct store *store, struct link *link, uint64_t now_us)
{
    return LINK_SEND(store, link, CALL_IDS, now_us, TEXT("INFO"),
               TEXT("replication")) != NULL;
}

void
link_mark(struct store *store, struct link *link, uint64_t now_us,
    struct text key, struct text value)
{
    struct call *call =
        value.len == 0
            ? LINK_SEND(store, link, CALL_MARK, now_us, TEXT("GET"), key)
            : LINK_SEND(store, link, CALL_MARK, now_us, TEXT("SET"), key, value,
                  TEXT("GET"));

    if (call != NULL)
        call->writes = value.len > 0;
}

void
link_load_script(
    struct store *store, struct link *link, enum script_id id, uint64_t now_us)
{
    struct call *call =
        LINK_SEND(store, link, CALL_LOAD, now_us, TEXT("SCRIPT"), TEXT("LOAD"),
            text_make(scripts[id].body, scripts[id].body_len));

    if (call == NULL)
        return;
    call->optional = id >= SCRIPTS_AT_ONCE;
    link->loading++;
}

void
link_load_scripts(struct store *store, struct link *link, uint64_t now_us)
{
    if (link->loading > 0)
        return;
    for (int i = 0; i < SCRIPTS_AT_ONCE; i++)
        link_load_script(store, link, (enum script_id)i, now_us);
}

bool
link_serves(const struct store *store, const struct link *link)
{
    return link->index < LINK_WITNESS && !sentinel_is(store, link);
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
link_in_time_us(const struct store *store, const struct link *link)
{
    if (list_empty(&link->calls))
        return WHEEL_NEVER;
    return container_of(link->calls.next, struct call, link)->sent_us +
           store->settings.command_timeout_us;
}

/*
 * A node that can be talked to, one with slots rather than a seed that may have
 * left the cluster; NODE_NONE: there is none now.
 */
uint16_t
link_subscriber_host(const struct store *store)
{
    uint16_t found = NODE_NONE;

    for (uint16_t i = 0; i < store->node_count; i++) {
        if (!store->nodes[i].used || store->nodes[i].sentinel ||
            !link_answers(&store->links[i]))
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

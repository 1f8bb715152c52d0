/*
 * The table of keys, and looking things up in it.
 *
 * To add a key: a field in struct config, a row here, an entry in holdfast.yaml
 * (a test compares them), and a check in checks.c where it must fit others.
 */
#include "conf/keys.h"

#include "conf/config.h"
#include "daemon/base/assert.h"
#include "daemon/base/log_limit.h"

#include <string.h>

#define SECOND ((uint64_t)1000)
#define MINUTE (60 * SECOND)
#define HOUR   (60 * MINUTE)
#define KIB    ((uint64_t)1024)
#define MIB    (1024 * KIB)
#define GIB    (1024 * MIB)

#define FIELD(name)                          \
    .offset = offsetof(struct config, name), \
    .bytes = sizeof(((struct config *)NULL)->name)
#define ITEM_FIELD(type, name) \
    .offset = offsetof(type, name), .bytes = sizeof(((type *)NULL)->name)
#define RANGE(low, high) .min = (low), .max = (high)

/* Longer names are not compared: no key is near them. */
#define NEAR_BYTES_MAX 48

static const struct key_word topologies[] = {
    {"single", TOPOLOGY_SINGLE},
    {"cluster", TOPOLOGY_CLUSTER},
    {"sentinel", TOPOLOGY_SENTINEL},
    {"quorum", TOPOLOGY_QUORUM},
    {NULL, 0},
};

static const struct key_word safeties[] = {
    {"fenced", SAFETY_FENCED},
    {"strict", SAFETY_STRICT},
    {NULL, 0},
};

static const struct key_word verifications[] = {
    {"full", VERIFY_FULL},
    {"ca", VERIFY_CA},
    {NULL, 0},
};

static const struct key_word client_certs[] = {
    {"asked", CLIENT_CERT_ASKED},
    {"required", CLIENT_CERT_REQUIRED},
    {NULL, 0},
};

static const struct key_word permissions[] = {
    {"refused", WITHOUT_USERS_REFUSED},
    {"allowed", WITHOUT_USERS_ALLOWED},
    {NULL, 0},
};

static const struct key_word levels[] = {
    {"error", 0},
    {"warn", 0},
    {"info", 0},
    {"debug", 0},
    {NULL, 0},
};

static const struct key_word formats[] = {
    {"text", LOG_TEXT},
    {"json", LOG_JSON},
    {NULL, 0},
};

static const struct key keys[] = {
    {.path = "listen", .type = KEY_SECTION, .help = "where clients are served"},
    {.path = "listen.tcp",
        .type = KEY_LISTEN,
        FIELD(listen_tcp),
        RANGE(0, CONFIG_LISTEN_MAX),
        .standard = "127.0.0.1:4653",
        .help = "addresses for clients, HOST:PORT each; port 0: any free one"},
    {.path = "listen.unix",
        .type = KEY_PATHS,
        FIELD(listen_unix),
        RANGE(0, CONFIG_LISTEN_MAX),
        .standard = "",
        .help = "paths of Unix sockets for clients"},
    {.path = "listen.tls",
        .type = KEY_LISTEN,
        FIELD(listen_tls),
        RANGE(0, CONFIG_LISTEN_MAX),
        .standard = "",
        .help = "addresses for clients who speak TLS, as those of tcp"},
    {.path = "listen.tls_cert",
        .type = KEY_FILE,
        FIELD(listen_tls_cert),
        .standard = "",
        .reloadable = true,
        .help = "PEM file of the certificate that clients are shown"},
    {.path = "listen.tls_key",
        .type = KEY_FILE,
        FIELD(listen_tls_key),
        .standard = "",
        .reloadable = true,
        .help = "PEM file of its private key, without a passphrase"},
    {.path = "listen.tls_client_ca",
        .type = KEY_FILE,
        FIELD(listen_tls_client_ca),
        .standard = "",
        .reloadable = true,
        .help = "PEM file of the CAs that sign clients' certificates; empty: "
                "none are asked for"},
    {.path = "listen.tls_client_cert",
        .type = KEY_CHOICE,
        FIELD(listen_tls_client_cert),
        .standard = "asked",
        .reloadable = true,
        .words = client_certs,
        .help = "whether a client has to show a certificate"},
    {.path = "listen.backlog",
        .type = KEY_COUNT,
        FIELD(listen_backlog),
        RANGE(1, 65535),
        .standard = "1024",
        .help = "connections that the kernel may hold until they are accepted"},

    {.path = "listen.beyond_loopback_without_users",
        .type = KEY_CHOICE,
        FIELD(without_users),
        .standard = "refused",
        .words = permissions,
        .help = "whether it serves whoever reaches it, from other machines"},

    {.path = "auth", .type = KEY_SECTION, .help = "who may do what"},
    {.path = "auth.users_file",
        .type = KEY_FILE,
        FIELD(users_file),
        .standard = "",
        .reloadable = true,
        .help = "file of the users, with their secrets and rights; empty: "
                "anybody may do all"},
    {.path = "auth.timeout",
        .type = KEY_DURATION,
        FIELD(auth_timeout_ms),
        RANGE(0, HOUR),
        .standard = "30s",
        .reloadable = true,
        .help = "how long a client may be connected before it says who it "
                "is; 0s: for ever"},

    {.path = "admin",
        .type = KEY_SECTION,
        .help = "where operators are served"},
    {.path = "admin.http",
        .type = KEY_LISTEN_ONE,
        FIELD(admin_http),
        RANGE(0, 1),
        .standard = "127.0.0.1:4654",
        .help = "address for metrics, health and the status page; none: off"},

    {.path = "redis", .type = KEY_SECTION, .help = "the store of all locks"},
    {.path = "redis.topology",
        .type = KEY_CHOICE,
        FIELD(topology),
        .standard = "cluster",
        .words = topologies,
        .help = "how the Redis nodes belong together"},
    {.path = "redis.nodes",
        .type = KEY_NODES,
        FIELD(redis_nodes),
        RANGE(1, CONFIG_NODES_MAX),
        .standard = "127.0.0.1:7000 127.0.0.1:7001 127.0.0.1:7002",
        .help = "the one node, or any nodes of the cluster to begin with, or "
                "all Sentinels"},
    {.path = "redis.sentinel_master",
        .type = KEY_USER,
        FIELD(sentinel_master),
        .standard = "mymaster",
        .help = "the master's name at the Sentinels"},
    {.path = "redis.sentinel_username",
        .type = KEY_USER,
        FIELD(sentinel_username),
        .standard = "",
        .reloadable = true,
        .help = "the ACL user at the Sentinels; empty: their default user"},
    {.path = "redis.sentinel_password_file",
        .type = KEY_FILE,
        FIELD(sentinel_password_file),
        .standard = "",
        .reloadable = true,
        .help = "file whose one line is the Sentinels' password; empty: none"},
    {.path = "redis.username",
        .type = KEY_USER,
        FIELD(redis_username),
        .standard = "",
        .reloadable = true,
        .help = "the ACL user; empty: Redis' default user"},
    {.path = "redis.password_file",
        .type = KEY_FILE,
        FIELD(redis_password_file),
        .standard = "",
        .reloadable = true,
        .help = "file whose one line is the password; empty: none"},
    {.path = "redis.tls",
        .type = KEY_SECTION,
        .help = "encryption on the way to Redis and the Sentinels"},
    {.path = "redis.tls.ca",
        .type = KEY_FILE,
        FIELD(tls_ca),
        .standard = "",
        .reloadable = true,
        .help = "PEM file of the CAs that are trusted; empty: no TLS"},
    {.path = "redis.tls.cert",
        .type = KEY_FILE,
        FIELD(tls_cert),
        .standard = "",
        .reloadable = true,
        .help = "PEM file of the broker's own certificate; empty: none"},
    {.path = "redis.tls.key",
        .type = KEY_FILE,
        FIELD(tls_key),
        .standard = "",
        .reloadable = true,
        .help = "PEM file of its private key, without a passphrase"},
    {.path = "redis.tls.server_name",
        .type = KEY_HOST,
        FIELD(tls_server_name),
        .standard = "",
        .reloadable = true,
        .help = "the name that every node's certificate has; empty: its own"},
    {.path = "redis.tls.verify",
        .type = KEY_CHOICE,
        FIELD(tls_verify),
        .standard = "full",
        .reloadable = true,
        .words = verifications,
        .help = "whether a certificate has to name the node"},
    {.path = "redis.key_prefix",
        .type = KEY_PREFIX,
        FIELD(key_prefix),
        .standard = "holdfast",
        .help = "a lock is the one key PREFIX:{NAME}"},
    {.path = "redis.safety",
        .type = KEY_CHOICE,
        FIELD(safety),
        .standard = "fenced",
        .words = safeties,
        .help = "what a grant rests on"},
    {.path = "redis.replicas",
        .type = KEY_COUNT,
        FIELD(redis_replicas),
        RANGE(0, 100),
        .standard = "0",
        .help = "strict: so many replicas at least have to confirm"},
    {.path = "redis.settle",
        .type = KEY_DURATION,
        FIELD(settle_ms),
        RANGE(0, HOUR),
        .help = "how long a node that is new or changed is not trusted with "
                "grants where an old holder may be unknown"},
    {.path = "redis.forget_after",
        .type = KEY_DURATION,
        FIELD(forget_after_ms),
        RANGE(HOUR, 8760 * HOUR),
        .standard = "24h",
        .help = "how long a lock's record stays whose renewals have stopped"},
    {.path = "redis.patience",
        .type = KEY_DURATION,
        FIELD(patience_ms),
        RANGE(100, HOUR),
        .standard = "5s",
        .reloadable = true,
        .help = "how long a request waits for a Redis that cannot be asked"},
    {.path = "redis.connect_timeout",
        .type = KEY_DURATION,
        FIELD(connect_timeout_ms),
        RANGE(10, MINUTE),
        .standard = "1s",
        .reloadable = true,
        .help = "how long a connection to a node may take to be made"},
    {.path = "redis.command_timeout",
        .type = KEY_DURATION,
        FIELD(command_timeout_ms),
        RANGE(10, MINUTE),
        .reloadable = true,
        .help = "how long a node may take to answer"},
    {.path = "redis.batch",
        .type = KEY_COUNT,
        FIELD(redis_batch),
        RANGE(1, 64), /* each may bring a thousand grants */
        .standard = "64",
        .reloadable = true,
        .help = "operations that share one call, at most; three times as many "
                "renewals do"},
    {.path = "redis.in_flight",
        .type = KEY_COUNT,
        FIELD(redis_in_flight),
        RANGE(0, 64),
        .standard = "0",
        .reloadable = true,
        .help = "calls unanswered on one connection, at most; 0: as it fits"},

    {.path = "redis.busy_poll_us",
        .type = KEY_COUNT,
        FIELD(busy_poll_us),
        RANGE(0, 1000),
        .standard = "50",
        .reloadable = true,
        .help = "microseconds to poll before sleeping, where polling has paid"},
    {.path = "lease", .type = KEY_SECTION, .help = "how long a lock is kept"},
    {.path = "lease.default",
        .type = KEY_DURATION,
        FIELD(lease_ms),
        RANGE(SECOND, HOUR),
        .standard = "30s",
        .help = "how long a lock outlives the last word of its broker"},

    {.path = "session",
        .type = KEY_SECTION,
        .help = "when a client is taken for dead"},
    {.path = "session.keepalive",
        .type = KEY_SECTION,
        .help = "TCP keepalive towards clients"},
    {.path = "session.keepalive.idle",
        .type = KEY_SECONDS,
        FIELD(keepalive_idle_ms),
        RANGE(SECOND, HOUR),
        .standard = "5s",
        .reloadable = true,
        .help = "silence before the first probe"},
    {.path = "session.keepalive.interval",
        .type = KEY_SECONDS,
        FIELD(keepalive_interval_ms),
        RANGE(SECOND, HOUR),
        .standard = "2s",
        .reloadable = true,
        .help = "time between probes"},
    {.path = "session.keepalive.count",
        .type = KEY_COUNT,
        FIELD(keepalive_count),
        RANGE(1, 127),
        .standard = "3",
        .reloadable = true,
        .help = "probes without an answer that end the connection"},
    {.path = "session.tcp_user_timeout",
        .type = KEY_DURATION,
        FIELD(tcp_user_timeout_ms),
        RANGE(SECOND, HOUR),
        .standard = "10s",
        .reloadable = true,
        .help = "how long what was sent may stay unacknowledged"},
    {.path = "session.stop_grace",
        .type = KEY_DURATION,
        FIELD(stop_grace_ms),
        RANGE(0, HOUR),
        .standard = "5s",
        .reloadable = true,
        .help = "how long a stopping broker's clients have to finish or move"},

    {.path = "limits",
        .type = KEY_SECTION,
        .help = "what is refused, so that the rest is served"},
    {.path = "limits.connections",
        .type = KEY_COUNT,
        FIELD(limit_connections),
        RANGE(0, 1048576),
        .standard = "0",
        .help = "clients; 0: as many as descriptors allow, less a reserve"},
    {.path = "limits.connections_per_address",
        .type = KEY_COUNT,
        FIELD(limit_address_connections),
        RANGE(0, 1048576),
        .standard = "0",
        .reloadable = true,
        .help = "clients of one address; 0: no limit"},
    {.path = "limits.connections_per_user",
        .type = KEY_COUNT,
        FIELD(limit_user_connections),
        RANGE(0, 1048576),
        .standard = "0",
        .reloadable = true,
        .help = "clients of one user; 0: no limit"},
    {.path = "limits.holds_per_user",
        .type = KEY_COUNT,
        FIELD(limit_user_holds),
        RANGE(0, 16777216),
        .standard = "0",
        .reloadable = true,
        .help = "holds and waits of one user; 0: no limit"},
    {.path = "limits.line",
        .type = KEY_COUNT,
        FIELD(limit_line),
        RANGE(512, 4096),
        .standard = "4096",
        .help = "bytes of a request, with its line end"},
    {.path = "limits.name",
        .type = KEY_COUNT,
        FIELD(limit_name),
        RANGE(1, 255),
        .standard = "255",
        .help = "bytes of a lock's name, decoded"},
    {.path = "limits.outstanding",
        .type = KEY_COUNT,
        FIELD(limit_outstanding),
        RANGE(1, 8192), /* all may be answered in one step of the core */
        .standard = "4096",
        .reloadable = true,
        .help = "unanswered requests of a session"},
    {.path = "limits.holds",
        .type = KEY_COUNT,
        FIELD(limit_holds),
        RANGE(1, 1048576),
        .standard = "16384",
        .reloadable = true,
        .help = "holds and waits of a session"},
    {.path = "limits.waiters",
        .type = KEY_COUNT,
        FIELD(limit_waiters),
        RANGE(1, 100000),
        .standard = "10000",
        .reloadable = true,
        .help = "waiters of a lock, over all brokers"},
    {.path = "limits.tickets",
        .type = KEY_COUNT,
        FIELD(limit_tickets),
        RANGE(16, 16777216),
        .standard = "262144",
        .help = "holds and waits of this broker"},
    {.path = "limits.requests",
        .type = KEY_COUNT,
        FIELD(limit_requests),
        RANGE(16, 16777216),
        .standard = "262144",
        .help = "unanswered requests of this broker"},
    {.path = "limits.output",
        .type = KEY_SIZE,
        FIELD(limit_output),
        RANGE(16 * KIB, GIB),
        .standard = "1MiB",
        .reloadable = true,
        .help = "bytes that a session has not read yet"},
    {.path = "limits.memory",
        .type = KEY_SIZE,
        FIELD(limit_memory),
        RANGE(MIB, 1024 * GIB),
        .standard = "256MiB",
        .reloadable = true,
        .help = "unread and unparsed bytes of all sessions"},

    {.path = "namespaces",
        .type = KEY_ITEMS,
        FIELD(spaces),
        RANGE(0, CONFIG_SPACES_MAX),
        .item_bytes = sizeof(struct config_space),
        .count_offset = offsetof(struct config, space_count),
        .reloadable = true,
        .help = "locks whose names begin alike, to be told of together"},
    {.path = "namespaces.prefix",
        .type = KEY_SPACE,
        ITEM_FIELD(struct config_space, prefix),
        .standard = "",
        .help = "what their names begin with"},
    {.path = "namespaces.warn_after",
        .type = KEY_DURATION,
        ITEM_FIELD(struct config_space, warn_after_ms),
        RANGE(0, 8760 * HOUR),
        .help = "audit.warn_after for them"},
    {.path = "namespaces.wait_after",
        .type = KEY_DURATION,
        ITEM_FIELD(struct config_space, wait_after_ms),
        RANGE(0, 8760 * HOUR),
        .help = "audit.wait_after for them"},
    {.path = "namespaces.break_after",
        .type = KEY_DURATION,
        ITEM_FIELD(struct config_space, break_after_ms),
        RANGE(0, 8760 * HOUR),
        .help = "audit.break_after for them"},

    {.path = "audit",
        .type = KEY_SECTION,
        .help = "looking over all locks in Redis for what is odd"},
    {.path = "audit.interval",
        .type = KEY_DURATION,
        FIELD(audit_interval_ms),
        RANGE(0, 24 * HOUR),
        .standard = "10m",
        .help = "how often each node of Redis has an audit; 0s: never"},
    {.path = "audit.keys",
        .type = KEY_COUNT,
        FIELD(audit_keys),
        RANGE(1, 500),
        .standard = "100",
        .help = "keys that one step looks at, about"},
    {.path = "audit.pause",
        .type = KEY_DURATION,
        FIELD(audit_pause_ms),
        RANGE(0, MINUTE),
        .standard = "10ms",
        .help = "time between two steps"},
    {.path = "audit.warn_after",
        .type = KEY_DURATION,
        FIELD(warn_after_ms),
        RANGE(0, 8760 * HOUR),
        .standard = "24h",
        .help = "age from which on a hold is told of; 0s: never"},
    {.path = "audit.wait_after",
        .type = KEY_DURATION,
        FIELD(wait_after_ms),
        RANGE(0, 8760 * HOUR),
        .standard = "1h",
        .help = "age from which on a wait is told of; 0s: never"},
    {.path = "audit.break_after",
        .type = KEY_DURATION,
        FIELD(break_after_ms),
        RANGE(0, 8760 * HOUR),
        .standard = "0s",
        .help = "age from which on a hold is broken; 0s: never"},
    {.path = "audit.hook",
        .type = KEY_WORDS,
        FIELD(audit_hook),
        RANGE(0, CONFIG_WORDS_MAX),
        .standard = "",
        .help = "program and words, to be run for each finding; none: nothing"},
    {.path = "audit.hook_timeout",
        .type = KEY_DURATION,
        FIELD(hook_timeout_ms),
        RANGE(1, HOUR),
        .standard = "10s",
        .help = "how long a run of it may take"},

    {.path = "slow",
        .type = KEY_SECTION,
        .help = "what is remembered for SLOW"},
    {.path = "slow.threshold",
        .type = KEY_DURATION,
        FIELD(slow_threshold_ms),
        RANGE(0, HOUR),
        .standard = "100ms",
        .help = "operations that take as long are remembered; 0s: none"},

    {.path = "log", .type = KEY_SECTION, .help = "what is told on stderr"},
    {.path = "log.level",
        .type = KEY_WORD,
        FIELD(log_level),
        .standard = "info",
        .reloadable = true,
        .words = levels,
        .help = "error, warn, info or debug"},
    {.path = "log.format",
        .type = KEY_CHOICE,
        FIELD(log_format),
        .standard = "text",
        .reloadable = true,
        .words = formats,
        .help = "key=value lines, or a JSON object a line"},
    {.path = "log.rate",
        .type = KEY_COUNT,
        FIELD(log_rate),
        RANGE(0, LOG_LIMIT_RATE_MAX),
        .standard = "50",
        .reloadable = true,
        .help = "lines a second of each event, at most; 0: no limit"},
};

size_t
key_count(void)
{
    return sizeof(keys) / sizeof(keys[0]);
}

const struct key *
key_at(size_t index)
{
    require(index < key_count());
    return &keys[index];
}

size_t
key_index(const struct key *key)
{
    require(key >= keys && key < keys + key_count());
    return (size_t)(key - keys);
}

const struct key *
key_find(struct text path)
{
    for (size_t i = 0; i < key_count(); i++) {
        if (text_equal(text_from(keys[i].path), path))
            return &keys[i];
    }
    return NULL;
}

/* What follows the last dot; all of it where there is none. */
static struct text
last_word(struct text path)
{
    size_t start = path.len;

    while (start > 0 && path.at[start - 1] != '.')
        start--;
    return text_make(path.at + start, path.len - start);
}

const struct key *
key_items(const struct key *key)
{
    struct text path = text_from(key->path);
    size_t len = path.len - last_word(path).len;
    const struct key *section =
        len == 0 ? NULL : key_find(text_make(path.at, len - 1));

    return section != NULL && section->type == KEY_ITEMS ? section : NULL;
}

const char *
key_name(const struct key *key)
{
    return last_word(text_from(key->path)).at;
}

size_t
key_depth(const struct key *key)
{
    size_t depth = 0;

    for (const char *at = key->path; *at != '\0'; at++)
        depth += *at == '.';
    return depth;
}

static size_t
least(size_t a, size_t b)
{
    return a < b ? a : b;
}

/*
 * How many bytes must be put in, left out, replaced or swapped with the next
 * one to make `a` into `b` (optimal string alignment). Both are at most
 * NEAR_BYTES_MAX.
 */
static size_t
distance(struct text a, struct text b)
{
    size_t rows[3][NEAR_BYTES_MAX + 1];
    size_t *before = rows[0]; /* two rows up */
    size_t *above = rows[1];
    size_t *row = rows[2];

    for (size_t j = 0; j <= b.len; j++)
        before[j] = above[j] = j;
    for (size_t i = 1; i <= a.len; i++) {
        size_t *spare = before;

        row[0] = i;
        for (size_t j = 1; j <= b.len; j++) {
            size_t other = a.at[i - 1] != b.at[j - 1];

            row[j] =
                least(least(above[j], row[j - 1]) + 1, above[j - 1] + other);
            if (i > 1 && j > 1 && a.at[i - 1] == b.at[j - 2] &&
                a.at[i - 2] == b.at[j - 1])
                row[j] = least(row[j], before[j - 2] + 1);
        }
        before = above;
        above = row;
        row = spare;
    }
    return above[b.len];
}

static bool
same_section(struct text a, struct text b)
{
    return text_equal(text_make(a.at, a.len - last_word(a).len),
        text_make(b.at, b.len - last_word(b).len));
}

const struct key *
key_suggest(struct text path)
{
    struct text word = last_word(path);
    const struct key *nearest = NULL;
    /* A third of the word may be wrong; beyond that it is another word. */
    size_t best = least(word.len / 3, 3) + 1;

    if (word.len > NEAR_BYTES_MAX)
        return NULL;
    if (best == 1)
        best = 2; /* one wrong byte, even of two */
    for (size_t i = 0; i < key_count(); i++) {
        struct text known = text_from(keys[i].path);
        size_t far = distance(word, last_word(known));

        /* The right word elsewhere is as near as a slip in this section. */
        far += !same_section(path, known);
        if (far < best) {
            best = far;
            nearest = &keys[i];
        }
    }
    for (size_t i = 0; nearest == NULL && i < key_count(); i++) {
        struct text known = text_from(keys[i].path);

        /* "password" for "password_file" */
        if (text_starts_with(known, path) && known.at[path.len] == '_')
            nearest = &keys[i];
    }
    return nearest;
}

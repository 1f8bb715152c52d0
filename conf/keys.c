/*
 * The table of keys, and searches in it.
 *
 * daemon/README.md lists what a new key touches. Rules between keys are in
 * checks.c.
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

#define FIELD(type, name) \
    .offset = offsetof(type, name), .bytes = sizeof(((type *)NULL)->name)
#define RANGE(low, high) .min = (low), .max = (high)

/* Each KEY() names one. RELOAD: a reload takes a new value. */
#define TAKEN_BY_RELOAD  true
#define TAKEN_BY_RESTART false

#define SECTION(dotted)                       \
    {                                         \
        .path = (dotted), .type = KEY_SECTION \
    }
/* A RANGE() or `.words` follows the default `value`. */
#define KEY(dotted, kind, field, by, value, ...)                           \
    {                                                                      \
        .path = (dotted), .type = KEY_##kind, FIELD(struct config, field), \
        .reloadable = TAKEN_BY_##by, .standard = (value), __VA_ARGS__      \
    }
/*
 * The key of an item. The row of `namespaces` says whether a reload takes it.
 */
#define ITEM(dotted, kind, field, value, ...)                       \
    {                                                               \
        .path = (dotted), .type = KEY_##kind,                       \
        FIELD(struct config_namespace, field), .standard = (value), \
        __VA_ARGS__                                                 \
    }

/* key_suggest() finds no key for a longer name. */
#define NEAR_BYTES_MAX 48

static const struct key_word topologies[] = {{"single", TOPOLOGY_SINGLE},
    {"cluster", TOPOLOGY_CLUSTER}, {"sentinel", TOPOLOGY_SENTINEL},
    {"quorum", TOPOLOGY_QUORUM}, {NULL, 0}};

static const struct key_word safeties[] = {
    {"fenced", SAFETY_FENCED}, {"strict", SAFETY_STRICT}, {NULL, 0}};

static const struct key_word verifications[] = {
    {"full", VERIFY_FULL}, {"ca", VERIFY_CA}, {NULL, 0}};

static const struct key_word client_certs[] = {{"asked", CLIENT_CERT_ASKED},
    {"required", CLIENT_CERT_REQUIRED}, {NULL, 0}};

static const struct key_word permissions[] = {
    {"refused", WITHOUT_USERS_REFUSED}, {"allowed", WITHOUT_USERS_ALLOWED},
    {NULL, 0}};

static const struct key_word levels[] = {
    {"error", 0}, {"warn", 0}, {"info", 0}, {"debug", 0}, {NULL, 0}};

static const struct key_word formats[] = {
    {"text", LOG_TEXT}, {"json", LOG_JSON}, {NULL, 0}};

static const struct key keys[] = {
    SECTION("listen"),
    KEY("listen.tcp", LISTEN, listen_tcp, RESTART, "127.0.0.1:4653",
        RANGE(0, CONFIG_LISTEN_MAX)),
    KEY("listen.unix", PATHS, listen_unix, RESTART, "",
        RANGE(0, CONFIG_LISTEN_MAX)),
    KEY("listen.tls", LISTEN, listen_tls, RESTART, "",
        RANGE(0, CONFIG_LISTEN_MAX)),
    KEY("listen.tls_cert", FILE, listen_tls_cert, RELOAD, ""),
    KEY("listen.tls_key", FILE, listen_tls_key, RELOAD, ""),
    KEY("listen.tls_client_ca", FILE, listen_tls_client_ca, RELOAD, ""),
    KEY("listen.tls_client_cert", CHOICE, listen_tls_client_cert, RELOAD,
        "asked", .words = client_certs),
    KEY("listen.backlog", COUNT, listen_backlog, RESTART, "1024",
        RANGE(1, 65535)),
    KEY("listen.beyond_loopback_without_users", CHOICE, without_users, RESTART,
        "refused", .words = permissions),

    SECTION("auth"),
    KEY("auth.users_file", FILE, users_file, RELOAD, ""),
    KEY("auth.timeout", DURATION, auth_timeout_ms, RELOAD, "30s",
        RANGE(0, HOUR)),

    SECTION("admin"),
    KEY("admin.http", LISTEN_ONE, admin_http, RESTART, "127.0.0.1:4654",
        RANGE(0, 1)),

    SECTION("redis"),
    KEY("redis.topology", CHOICE, topology, RESTART, "cluster",
        .words = topologies),
    KEY("redis.nodes", NODES, redis_nodes, RESTART,
        "127.0.0.1:7000 127.0.0.1:7001 127.0.0.1:7002",
        RANGE(1, CONFIG_NODES_MAX)),
    KEY("redis.sentinel_master", USER, sentinel_master, RESTART, "mymaster"),
    KEY("redis.sentinel_username", USER, sentinel_username, RELOAD, ""),
    KEY("redis.sentinel_password_file", FILE, sentinel_password_file, RELOAD,
        ""),
    KEY("redis.username", USER, redis_username, RELOAD, ""),
    KEY("redis.password_file", FILE, redis_password_file, RELOAD, ""),
    SECTION("redis.tls"),
    KEY("redis.tls.ca", FILE, tls_ca, RELOAD, ""),
    KEY("redis.tls.cert", FILE, tls_cert, RELOAD, ""),
    KEY("redis.tls.key", FILE, tls_key, RELOAD, ""),
    KEY("redis.tls.server_name", HOST, tls_server_name, RELOAD, ""),
    KEY("redis.tls.verify", CHOICE, tls_verify, RELOAD, "full",
        .words = verifications),
    KEY("redis.key_prefix", PREFIX, key_prefix, RESTART, "holdfast"),
    KEY("redis.safety", CHOICE, safety, RESTART, "fenced", .words = safeties),
    KEY("redis.replicas", COUNT, redis_replicas, RESTART, "0", RANGE(0, 100)),
    KEY("redis.settle", DURATION, settle_ms, RESTART, NULL, RANGE(0, HOUR)),
    KEY("redis.forget_after", DURATION, forget_after_ms, RESTART, "24h",
        RANGE(HOUR, 8760 * HOUR)),
    KEY("redis.patience", DURATION, redis_timeout_ms, RELOAD, "5s",
        RANGE(100, HOUR)),
    KEY("redis.connect_timeout", DURATION, connect_timeout_ms, RELOAD, "1s",
        RANGE(10, MINUTE)),
    KEY("redis.command_timeout", DURATION, command_timeout_ms, RELOAD, NULL,
        RANGE(10, MINUTE)),
    KEY("redis.batch", COUNT, redis_batch, RELOAD, "64",
        RANGE(1, 64)), /* each may bring a thousand grants */
    KEY("redis.in_flight", COUNT, redis_in_flight, RELOAD, "0", RANGE(0, 64)),
    KEY("redis.busy_poll_us", COUNT, busy_poll_us, RELOAD, "50",
        RANGE(0, 1000)),

    SECTION("lease"),
    KEY("lease.default", DURATION, lease_ms, RESTART, "30s",
        RANGE(SECOND, HOUR)),

    SECTION("session"),
    SECTION("session.keepalive"),
    KEY("session.keepalive.idle", SECONDS, keepalive_idle_ms, RELOAD, "5s",
        RANGE(SECOND, HOUR)),
    KEY("session.keepalive.interval", SECONDS, keepalive_interval_ms, RELOAD,
        "2s", RANGE(SECOND, HOUR)),
    KEY("session.keepalive.count", COUNT, keepalive_count, RELOAD, "3",
        RANGE(1, 127)),
    KEY("session.tcp_user_timeout", DURATION, tcp_user_timeout_ms, RELOAD,
        "10s", RANGE(SECOND, HOUR)),
    KEY("session.stop_grace", DURATION, stop_grace_ms, RELOAD, "5s",
        RANGE(0, HOUR)),

    SECTION("limits"),
    KEY("limits.connections", COUNT, limit_connections, RESTART, "0",
        RANGE(0, 1048576)),
    KEY("limits.connections_per_address", COUNT, limit_address_connections,
        RELOAD, "0", RANGE(0, 1048576)),
    KEY("limits.connections_per_user", COUNT, limit_user_connections, RELOAD,
        "0", RANGE(0, 1048576)),
    KEY("limits.holds_per_user", COUNT, limit_user_holds, RELOAD, "0",
        RANGE(0, 16777216)),
    KEY("limits.line", COUNT, limit_line, RESTART, "4096", RANGE(512, 4096)),
    KEY("limits.name", COUNT, limit_name, RESTART, "255", RANGE(1, 255)),
    KEY("limits.outstanding", COUNT, limit_outstanding, RELOAD, "4096",
        RANGE(1, 8192)), /* all may be answered in one step of the core */
    KEY("limits.holds", COUNT, limit_holds, RELOAD, "16384", RANGE(1, 1048576)),
    KEY("limits.waiters", COUNT, limit_waiters, RELOAD, "10000",
        RANGE(1, 100000)),
    KEY("limits.tickets", COUNT, limit_tickets, RESTART, "262144",
        RANGE(16, 16777216)),
    KEY("limits.requests", COUNT, limit_requests, RESTART, "262144",
        RANGE(16, 16777216)),
    KEY("limits.output", SIZE, limit_output, RELOAD, "1MiB",
        RANGE(16 * KIB, GIB)),
    KEY("limits.memory", SIZE, limit_memory, RELOAD, "256MiB",
        RANGE(MIB, 1024 * GIB)),

    {.path = "namespaces",
        .type = KEY_ITEMS,
        FIELD(struct config, namespaces),
        RANGE(0, CONFIG_NAMESPACES_MAX),
        .item_bytes = sizeof(struct config_namespace),
        .count_offset = offsetof(struct config, namespace_count),
        .reloadable = true},
    ITEM("namespaces.prefix", NAMESPACE, prefix, ""),
    ITEM("namespaces.warn_after", DURATION, warn_after_ms, NULL,
        RANGE(0, 8760 * HOUR)),
    ITEM("namespaces.wait_after", DURATION, wait_after_ms, NULL,
        RANGE(0, 8760 * HOUR)),
    ITEM("namespaces.break_after", DURATION, break_after_ms, NULL,
        RANGE(0, 8760 * HOUR)),

    SECTION("audit"),
    KEY("audit.interval", DURATION, audit_interval_ms, RESTART, "10m",
        RANGE(0, 24 * HOUR)),
    KEY("audit.keys", COUNT, audit_keys, RESTART, "100", RANGE(1, 500)),
    KEY("audit.pause", DURATION, audit_pause_ms, RESTART, "10ms",
        RANGE(0, MINUTE)),
    KEY("audit.warn_after", DURATION, warn_after_ms, RESTART, "24h",
        RANGE(0, 8760 * HOUR)),
    KEY("audit.wait_after", DURATION, wait_after_ms, RESTART, "1h",
        RANGE(0, 8760 * HOUR)),
    KEY("audit.break_after", DURATION, break_after_ms, RESTART, "0s",
        RANGE(0, 8760 * HOUR)),
    KEY("audit.hook", WORDS, audit_hook, RESTART, "",
        RANGE(0, CONFIG_WORDS_MAX)),
    KEY("audit.hook_timeout", DURATION, hook_timeout_ms, RESTART, "10s",
        RANGE(1, HOUR)),

    SECTION("slow"),
    KEY("slow.threshold", DURATION, slow_threshold_ms, RESTART, "100ms",
        RANGE(0, HOUR)),

    SECTION("log"),
    KEY("log.level", WORD, log_level, RELOAD, "info", .words = levels),
    KEY("log.format", CHOICE, log_format, RELOAD, "text", .words = formats),
    KEY("log.rate", COUNT, log_rate, RELOAD, "50",
        RANGE(0, LOG_LIMIT_RATE_MAX)),
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

/* The word after the last dot, or the whole path. */
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
 * The edit distance (optimal string alignment): the number of bytes to insert,
 * delete, replace, or swap with the next byte, to make `b` of `a`. Both have at
 * most NEAR_BYTES_MAX bytes.
 */
static size_t
distance(struct text a, struct text b)
{
    size_t rows[3][NEAR_BYTES_MAX + 1];
    size_t *before = rows[0]; /* two rows up */
    size_t *above = rows[1];
    size_t *row = rows[2];

    require(a.len <= NEAR_BYTES_MAX && b.len <= NEAR_BYTES_MAX);
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
    /* At most a third of the bytes may differ. */
    size_t best = least(word.len / 3, 3) + 1;

    if (word.len > NEAR_BYTES_MAX)
        return NULL;
    if (best == 1)
        best = 2; /* one byte may differ even in a short word */
    for (size_t i = 0; i < key_count(); i++) {
        struct text known = text_from(keys[i].path);
        size_t far = distance(word, last_word(known));

        /* Another section counts as one wrong byte. */
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
